//! Answers of kube-apiserver 1.36.2, recorded where this server once answered differently.
//!
//! A line of `recorded/answers.jsonl` holds requests that are sent one after another, each with the code of its answer and with one
//! of: the message of a Status and the fields that it names, the spec of the object, the fields that its managers own, or the
//! warnings.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use serde_json::{Value, json};
use support::TestServer;

const RECORDED: &str = include_str!("recorded/answers.jsonl");

/// Returns the expected answer of a recorded request.
fn wanted(request: &Value) -> Value {
    let mut wanted = json!({"code": request["code"]});
    for key in ["message", "causes", "spec", "fields", "warnings"] {
        if let Some(value) = request.get(key) {
            wanted[key] = value.clone();
        }
    }
    wanted
}

/// Returns the same parts of an actual answer.
fn given(code: u16, body: &Value, warnings: &[&str], wanted: &Value) -> Value {
    let mut given = json!({"code": code});
    if wanted.get("warnings").is_some() {
        given["warnings"] = json!(warnings);
    }
    if body["kind"] == "Status" {
        given["message"] = body["message"].clone();
        let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
        given["causes"] = causes.iter().map(|cause| json!([cause["reason"], cause["field"]])).collect();
    } else if wanted.get("spec").is_some() {
        given["spec"] = body["spec"].clone();
    } else if wanted.get("fields").is_some() {
        let entries = body["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        given["fields"] = entries.iter().map(|entry| entry["fieldsV1"].clone()).collect();
    }
    given
}

#[tokio::test]
async fn recorded_requests_are_answered_as_kube_apiserver_does() {
    let server = TestServer::start().await;
    let mut differences = Vec::new();
    for line in RECORDED.lines() {
        let story: Value = serde_json::from_str(line).unwrap();
        for request in story["requests"].as_array().unwrap() {
            let text = |key: &str| request[key].as_str().unwrap();
            let body = request.get("body").map(Value::to_string).unwrap_or_default();
            let kind = request["headers"]["Content-Type"].as_str().unwrap_or("application/json");
            let answer = server.send(text("method"), text("path"), &[("content-type", kind)], body).await;
            let wanted = wanted(request);
            let warnings = answer.headers.get_all("warning").iter();
            let warnings: Vec<&str> = warnings.map(|value| value.to_str().unwrap()).collect();
            let body = serde_json::from_slice(&answer.bytes).unwrap_or_default();
            let given = given(answer.code, &body, &warnings, &wanted);
            if given != wanted {
                differences.push(format!("{} {}\n  {wanted}\n  {given}", story["about"], text("method")));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
