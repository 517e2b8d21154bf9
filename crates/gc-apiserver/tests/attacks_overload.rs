//! Attacks that would make the server slow, large or silent.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use support::{TOKEN, TestServer, work};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Shorter than the minute that a body may take.
const PATIENCE: Duration = Duration::from_secs(30);
const YAML: (&str, &str) = ("content-type", "application/yaml");

/// Bodies of this size took 15 seconds of work when parsing was quadratic.
#[tokio::test]
async fn hostile_yaml_is_refused_at_once() {
    let server = TestServer::start().await;
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}, ", level - 1).repeat(10);
        writeln!(bomb, "a{level}: &a{level} [{alias}]").unwrap();
    }
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(90_000), "*a, ".repeat(22_000));
    let table = [
        ("half-open maps", "{a: ".repeat(50_000), "exceeded max depth"),
        ("half-open lists", "[".repeat(200_000), "exceeded max depth"),
        ("nested complex keys", "? ".repeat(100_000), "exceeded max depth"),
        ("an alias bomb", bomb, "excessive aliasing"),
        ("aliases of long text", text, "excessive aliasing"),
    ];
    for (what, body, want) in table {
        let before = work();
        let answer = server.send("POST", CONFIG_MAPS, &[YAML], body).await;
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert_eq!(answer.outcome(), (400, "BadRequest".into()), "{what}: {message}");
        assert!(message.contains(want) && message.len() <= 400, "{what}: {message}");
        let took = work().saturating_sub(before);
        assert!(took < Duration::from_secs(3), "{what}: {took:?}");
    }
}

#[tokio::test]
async fn keys_that_yaml_has_twice_follow_the_field_validation() {
    let server = TestServer::start().await;
    let body =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: twice\n  nmae: x\ndata:\n  k: a\n  k: b\n";
    let line = "line 8: key \\\"k\\\" already set in map";
    let unknown = "unknown field \\\"metadata.nmae\\\"";
    let table = [
        ("Ignore", 201, vec![]),
        ("Warn", 201, vec![format!("299 - \"{line}\""), format!("299 - \"{unknown}\"")]),
        ("Strict", 400, vec![]),
    ];
    for (mode, code, warnings) in table {
        let path = format!("{CONFIG_MAPS}?dryRun=All&fieldValidation={mode}");
        let answer = server.send("POST", &path, &[YAML], body).await;
        let got: Vec<&str> =
            answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!((answer.code, got), (code, warnings.iter().map(String::as_str).collect()), "{mode}");
        if mode == "Strict" {
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            let want = "strict decoding error: yaml: unmarshal errors:\n  line 8: key \"k\" already set in map, \
                        unknown field \"metadata.nmae\"";
            assert!(message.ends_with(want), "{message}");
        } else {
            assert_eq!(answer.json()["data"], json!({"k": "b"}));
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_fields_of_json_is_said_in_the_order_of_the_document() {
    let server = TestServer::start().await;
    let path = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let (unknown, duplicate) = ("unknown field \"spce\"", "duplicate field \"data.k\"");
    for (body, want) in [
        (
            r#"{"metadata": {"name": "a"}, "data": {"k": "a", "k": "b"}, "spce": 1, "spce": 2}"#,
            format!("strict decoding error: {duplicate}, {unknown}"),
        ),
        (
            r#"{"spce": 1, "metadata": {"name": "a"}, "data": {"k": "a", "k": "b"}, "spce": 2}"#,
            format!("strict decoding error: {unknown}, {duplicate}"),
        ),
    ] {
        let answer = server.send("POST", &path, &[("content-type", "application/json")], body).await;
        let message: Value = answer.json()["message"].clone();
        assert!(message.as_str().unwrap().ends_with(&want), "{message}");
    }
}

/// 800 bodies that never arrive, from a user without rights, must take no seats: seats used to be taken before the body arrived. A
/// connection has 100 streams.
#[tokio::test]
async fn bodies_that_do_not_arrive_hold_no_places() {
    type Never = futures::stream::Pending<Result<http_body::Frame<Bytes>, std::convert::Infallible>>;
    let server = TestServer::start().await;
    let mut slow = Vec::new();
    for _ in 0..9 {
        let stream = server.connect(b"h2", false).await;
        let (mut sender, connection) = hyper::client::conn::http2::handshake::<_, _, StreamBody<Never>>(
            TokioExecutor::new(),
            TokioIo::new(stream),
        )
        .await
        .unwrap();
        tokio::spawn(connection);
        for _ in 0..90 {
            sender.ready().await.unwrap();
            let request =
                Request::post("https://localhost/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                    .header("authorization", format!("Bearer {TOKEN}"))
                    .header("impersonate-user", "eve")
                    .body(StreamBody::new(futures::stream::pending()))
                    .unwrap();
            slow.push(sender.send_request(request));
        }
        // The server has seen all of them, because this request comes after them on the same connection.
        let probe = Request::post("https://localhost/readyz")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(StreamBody::new(futures::stream::pending()))
            .unwrap();
        assert_eq!(sender.send_request(probe).await.unwrap().status(), 200);
    }
    assert!(slow.len() >= 800);
    let created = tokio::time::timeout(PATIENCE, server.config_map("a"));
    assert_eq!(created.await.expect("an administrator is not in line")["metadata"]["name"], "a");
    let review = r#"{"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}"#;
    let other = [("impersonate-user", "bob"), ("content-type", "application/json")];
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = tokio::time::timeout(PATIENCE, server.send("POST", path, &other, review));
    assert_eq!(asked.await.expect("nor is another user").code, 201);
}

#[tokio::test]
async fn requests_follow_the_stored_flow_schemas() {
    const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    const HEADER: &str = "x-kubernetes-pf-flowschema-uid";
    let server = TestServer::start().await;
    let exempt = server.get(&format!("{SCHEMAS}/exempt")).await;
    let uid = exempt.json()["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(exempt.header(HEADER), uid);
    let level = server.get("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/exempt").await;
    assert_eq!(
        level.header("x-kubernetes-pf-prioritylevel-uid"),
        level.json()["metadata"]["uid"].as_str().unwrap()
    );
    let mine = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "mine"},
        "spec": {"priorityLevelConfiguration": {"name": "workload-low"}, "matchingPrecedence": 7,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "eve"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}]}]}});
    let created = server.post(SCHEMAS, &mine).await;
    assert_eq!(created.code, 201, "{created:?}");
    let uid = created.json()["metadata"]["uid"].as_str().unwrap().to_owned();
    let followed = async {
        while server.send("GET", "/version", &[("impersonate-user", "eve")], "").await.header(HEADER) != uid {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, followed).await.expect("the new schema applies");
}
