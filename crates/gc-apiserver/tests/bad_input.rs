//! Bad input must get the same status as from kube-apiserver, over a real connection, and the server must keep running.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use serde_json::json;
use support::{TOKEN, TestServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn bad_bodies_are_refused() {
    let server = TestServer::start().await;
    let deep = format!(r#"{{"data":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let large = format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(3 * 1024 * 1024));
    let table = [
        ("cut off", "application/json", br#"{"apiVersion": "v1","#.to_vec(), (400, "BadRequest")),
        ("empty", "application/json", Vec::new(), (400, "BadRequest")),
        ("an array", "application/json", b"[]".to_vec(), (400, "BadRequest")),
        ("trailing text", "application/json", b"{} more".to_vec(), (400, "BadRequest")),
        (
            "another kind",
            "application/json",
            br#"{"apiVersion":"v1","kind":"Secret"}"#.to_vec(),
            (400, "BadRequest"),
        ),
        ("10,000 deep", "application/json", deep.into_bytes(), (400, "BadRequest")),
        ("broken YAML", "application/yaml", b"a: [".to_vec(), (400, "BadRequest")),
        ("bad UTF-8 in YAML", "application/yaml", b"a: \xff".to_vec(), (400, "BadRequest")),
        ("unknown type", "text/plain", b"{}".to_vec(), (415, "UnsupportedMediaType")),
        (
            "broken protobuf",
            "application/vnd.kubernetes.protobuf",
            b"k8s\0\xff".to_vec(),
            (400, "BadRequest"),
        ),
        ("more than 3 MiB", "application/json", large.into_bytes(), (413, "RequestEntityTooLarge")),
    ];
    for (what, content_type, body, want) in table {
        let answer = server.send("POST", CONFIG_MAPS, &[("content-type", content_type)], body).await;
        let got = answer.outcome();
        assert_eq!((got.0, got.1.as_str()), want, "{what}: {:?}", answer.bytes);
    }
    assert_eq!(server.get("/readyz").await.code, 200);
}

/// Sends a request verbatim, and returns the first line of the answer.
async fn first_line(server: &TestServer, request: &str) -> String {
    let mut stream = server.connect(b"http/1.1", false).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn requests_that_a_proxy_could_take_for_others_are_refused() {
    let server = TestServer::start().await;
    let many = (0..300).map(|index| format!("x-{index}: a\r\n")).collect::<Vec<_>>().concat();
    for (headers, code) in [
        ("host: a\r\n", 200),
        ("", 400),
        ("host: a\r\nhost: b\r\n", 400),
        ("host: a b\r\n", 400),
        ("host: a\r\nexpect: other\r\n", 417),
        ("host: a\r\ntransfer-encoding: gzip, chunked\r\n", 501),
        (&format!("host: a\r\n{many}"), 200),
    ] {
        let request = format!("GET /version HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
        let line = first_line(&server, &request).await;
        assert!(line.starts_with(&format!("HTTP/1.1 {code} ")), "{headers:?}: {line}");
    }
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let server = TestServer::start().await;
    server.config_map("a").await;
    let object = format!("{CONFIG_MAPS}/a");
    let table = [
        ("GET", format!("{CONFIG_MAPS}?labelSelector=a%20b%20c"), (400, "BadRequest")),
        ("GET", format!("{CONFIG_MAPS}?labelSelector=%ff"), (400, "BadRequest")),
        ("GET", format!("{CONFIG_MAPS}?fieldSelector=nonsense"), (400, "BadRequest")),
        ("GET", format!("{CONFIG_MAPS}?limit=many"), (400, "BadRequest")),
        ("GET", format!("{CONFIG_MAPS}?continue=rubbish"), (400, "BadRequest")),
        ("GET", format!("{CONFIG_MAPS}/%ff"), (404, "NotFound")),
        ("GET", "/api/v1/nothings".into(), (404, "NotFound")),
        ("GET", "/apis/none.example.com/v1/things".into(), (404, "")),
        ("GET", "/nowhere".into(), (404, "")),
        ("POST", object.clone(), (405, "MethodNotAllowed")),
        ("PUT", CONFIG_MAPS.into(), (405, "MethodNotAllowed")),
        ("TRACE", object.clone(), (405, "MethodNotAllowed")),
        ("DELETE", "/api/v1/configmaps".into(), (405, "MethodNotAllowed")),
        ("DELETE", format!("{object}?gracePeriodSeconds=abc"), (400, "BadRequest")),
        ("DELETE", format!("{object}?propagationPolicy=Sideways"), (422, "Invalid")),
        ("PATCH", object.clone(), (415, "UnsupportedMediaType")),
        ("GET", format!("{CONFIG_MAPS}?timeout=bogus"), (400, "BadRequest")),
        ("GET", "/version?timeout=bogus".into(), (400, "BadRequest")),
        ("GET", "/apis?timeout=bogus".into(), (400, "BadRequest")),
        ("GET", "/version?timeout=3m".into(), (200, "")),
        ("GET", format!("{CONFIG_MAPS}?shardSelector=a"), (422, "Invalid")),
        ("GET", format!("{CONFIG_MAPS}?shardSelector="), (200, "")),
    ];
    for (method, path, want) in table {
        let answer = server.send(method, &path, &[], "").await;
        let got = answer.outcome();
        assert_eq!((got.0, got.1.as_str()), want, "{method} {path}: {:?}", answer.bytes);
    }
    assert_eq!(server.get(&object).await.code, 200, "and the object is still there");
}

#[tokio::test]
async fn invalid_utf8_in_json_is_replaced_as_upstream_does() {
    let server = TestServer::start().await;
    let body = b"{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"\xff\"}}".to_vec();
    let answer = server.send("POST", CONFIG_MAPS, &[("content-type", "application/json")], body).await;
    assert_eq!((answer.code, &answer.json()["data"]), (201, &json!({"k": "\u{fffd}"})));
}

#[tokio::test]
async fn a_token_request_whose_spec_is_no_object_is_refused() {
    let server = TestServer::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let json = [("content-type", "application/json")];
    server.send("POST", accounts, &json, r#"{"metadata":{"name":"robot"}}"#).await;
    for (spec, code) in [("5", 400), ("\"x\"", 400), ("[]", 400), ("true", 400), ("null", 201), ("{}", 201)] {
        let body = format!(r#"{{"spec":{spec}}}"#);
        let answer = server.send("POST", &format!("{accounts}/robot/token"), &json, body).await;
        assert_eq!(answer.code, code, "{spec}: {:?}", answer.bytes);
    }
}

/// Sends raw bytes on a TLS connection, and reads until the server answers or closes it.
async fn raw(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut stream = server.connect(b"http/1.1", false).await;
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.unwrap_or(0);
    answer.truncate(length);
    answer
}

#[tokio::test]
async fn what_is_no_http_does_not_hurt() {
    let server = TestServer::start().await;
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(1000));
    for bytes in [b"\0\0\0\0 nonsense\r\n\r\n".as_slice(), long.as_bytes(), many.as_bytes()] {
        let answer = String::from_utf8_lossy(&raw(&server, bytes).await).into_owned();
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{answer}");
    }
    // This is not even TLS.
    let mut plain = tokio::net::TcpStream::connect(server.server.address().unwrap()).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest).await;
    assert_eq!(server.get("/readyz").await.code, 200);
}

/// A request that never ends is cut off, and does not delay other requests.
#[tokio::test]
async fn slow_requests_hold_up_nobody() {
    let server = TestServer::start().await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut stream = server.connect(b"http/1.1", false).await;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        slow.push(stream);
        let mut stream = server.connect(b"http/1.1", false).await;
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    assert_eq!(server.get("/readyz").await.code, 200);
    server.config_map("quick").await;
    // Such requests do not delay the shutdown either, although their bodies may take a minute.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), server.server.shutdown());
    ended.await.expect("the server does not wait for them");
}

/// S20: the whitespace in the posted data of a ControllerRevision is not part of the data, so a patch of another field must not
/// count as a change of it.
#[tokio::test]
async fn s20_a_controller_revision_that_was_posted_with_spaces_can_be_patched() {
    const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let server = TestServer::start().await;
    let spaced = r#"{ "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": { "name": "r" },
        "revision": 1, "data": { "spec": { "template" : { "a" :  1 } } } }"#;
    assert_eq!(
        server.send("POST", REVISIONS, &[("content-type", "application/json")], spaced).await.code,
        201
    );
    let path = format!("{REVISIONS}/r");
    for content_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let owners = r#"{"metadata":{"ownerReferences":null,"labels":{"a":"b"}}}"#;
        let answer = server.send("PATCH", &path, &[("content-type", content_type)], owners).await;
        assert_eq!(answer.code, 200, "{content_type}: {:?}", answer.bytes);
    }
}
