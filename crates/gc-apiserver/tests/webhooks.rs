//! Admission webhooks over real connections: a server in this process answers them.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use support::{TestServer, webhook};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Answers reviews by the path: `/label` patches, `/no` refuses, `/slow` never answers, `/odd` answers no review.
fn answer(path: &str, review: &Value) -> Option<Value> {
    let uid = &review["request"]["uid"];
    let response = match path {
        "/label" => {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]).to_string();
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
        }
        "/no" => json!({"uid": uid, "allowed": false, "status": {"message": "never"}}),
        "/slow" => return None,
        // What it sees of the managers decides about the replicas.
        "/scale" => {
            let manager =
                |object: &str| &review["request"][object]["metadata"]["managedFields"][0]["manager"];
            let seen = manager("object") == "scaler" && manager("oldObject") == "maker";
            let replicas = if seen { 7 } else { 0 };
            let patch = json!([{"op": "add", "path": "/spec/replicas", "value": replicas}]).to_string();
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
        }
        "/forget" => {
            let patch = json!([{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]).to_string();
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
        }
        _ => Value::Null,
    };
    Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

async fn configure(server: &TestServer, kind: &str, client: Value, timeout_seconds: u32) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    configure_for(server, kind, client, timeout_seconds, rule).await;
}

async fn configure_for(server: &TestServer, kind: &str, client: Value, timeout_seconds: u32, rule: Value) {
    let configuration = json!({
        "metadata": {"name": "w"},
        "webhooks": [{
            "name": "w.example.com", "clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": timeout_seconds,
            "rules": [rule],
        }],
    });
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
    let answer = server.post(&path, &configuration).await;
    assert_eq!(answer.code, 201, "{answer:?}");
}

#[tokio::test]
async fn webhooks_change_and_refuse_what_is_created() {
    let server = TestServer::start().await;
    let (address, authority) = webhook::serve(answer).await;
    let client = |path: &str| json!({"url": format!("https://{address}{path}"), "caBundle": authority});
    configure(&server, "mutating", client("/label"), 10).await;
    let created = server.config_map("a").await;
    assert_eq!(created["metadata"]["labels"], json!({"a": "b"}));
    configure(&server, "validating", client("/no"), 10).await;
    let refused = server.post(CONFIG_MAPS, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!(refused.code, 400);
    assert_eq!(refused.json()["message"], "admission webhook \"w.example.com\" denied the request: never");
    let metrics = server.get("/metrics").await;
    let metrics = String::from_utf8(metrics.bytes.to_vec()).unwrap();
    let labels = |step: &str| format!("name=\"w.example.com\",type=\"{step}\",operation=\"CREATE\"");
    let (admit, validating) = (labels("admit"), labels("validating"));
    let prefix = "apiserver_admission_webhook";
    for line in [
        format!("{prefix}_request_total{{{admit},code=\"200\",rejected=\"false\"}} 2"),
        format!("{prefix}_request_total{{{validating},code=\"400\",rejected=\"true\"}} 1"),
        format!("{prefix}_admission_duration_seconds_count{{{admit},rejected=\"false\"}} 2"),
        format!("{prefix}_rejection_count{{{validating},error_type=\"no_error\",rejection_code=\"400\"}} 1"),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn webhooks_see_and_change_a_scale_with_its_managers() {
    let server = TestServer::start().await;
    let (address, authority) = webhook::serve(answer).await;
    let client = json!({"url": format!("https://{address}/scale"), "caBundle": authority});
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["deployments/scale"]});
    configure_for(&server, "mutating", client, 10, rule).await;
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pod});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let made = json!({"metadata": {"name": "a"}, "spec": spec});
    assert_eq!(server.post(&format!("{deployments}?fieldManager=maker"), &made).await.code, 201);
    let scale = json!({"spec": {"replicas": 3}}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    let path = format!("{deployments}/a/scale?fieldManager=scaler");
    let scaled = server.send("PATCH", &path, &headers, scale).await;
    assert_eq!(scaled.json()["spec"], json!({"replicas": 7}));
}

#[tokio::test]
async fn managers_that_a_webhook_spoils_stay_as_they_were() {
    let server = TestServer::start().await;
    let (address, authority) = webhook::serve(answer).await;
    let client = json!({"url": format!("https://{address}/forget"), "caBundle": authority});
    configure(&server, "mutating", client, 10).await;
    let made = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let answer = server.post(&format!("{CONFIG_MAPS}?fieldManager=maker"), &made).await;
    assert_eq!(answer.json()["metadata"]["managedFields"][0]["manager"], "maker");
    let warning = answer.headers["warning"].to_str().unwrap();
    assert_eq!(
        warning,
        "299 - \".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
         mutating admission controller; please fix your requests: operation must be `Apply` or `Update`\""
    );
}

#[tokio::test]
async fn what_does_not_answer_refuses_in_time() {
    let (address, authority) = webhook::serve(answer).await;
    let url = |path: &str| format!("https://{address}{path}");
    for (client, why) in [
        (json!({"url": "https://127.0.0.1:1/x", "caBundle": authority}), "connect: connection refused"),
        (json!({"url": url("/slow"), "caBundle": authority}), "context deadline exceeded"),
        (json!({"url": url("/odd"), "caBundle": authority}), "webhook response was absent"),
        (json!({"url": url("/label")}), "certificate signed by unknown authority"),
    ] {
        let server = TestServer::start().await;
        configure(&server, "validating", client.clone(), 1).await;
        let refused = server.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await;
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(refused.code, 500, "{client} {message}");
        assert!(message.contains("failed calling webhook \"w.example.com\""), "{message}");
        assert!(message.contains(why), "{message}");
        // Everything else continues.
        assert_eq!(
            server.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await.code,
            201
        );
    }
}
