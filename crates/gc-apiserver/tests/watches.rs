//! Watches, over real connections.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use serde_json::json;
use support::{Lines, TestServer, request};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn pair(event: &str, name: &str) -> (String, String) {
    (event.to_owned(), name.to_owned())
}

#[tokio::test]
async fn changes_arrive_in_order_and_the_watch_ends_at_its_timeout() {
    let server = TestServer::start().await;
    let version =
        server.get(CONFIG_MAPS).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let mut events = Lines::new(server.open("GET", &path, &[], "").await);
    server.config_map("a").await;
    let change = json!({"data": {"k": "w"}}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    assert_eq!(server.send("PATCH", &format!("{CONFIG_MAPS}/a"), &headers, change).await.code, 200);
    assert_eq!(server.send("DELETE", &format!("{CONFIG_MAPS}/a"), &[], "").await.code, 200);
    for want in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(events.next_name().await, pair(want, "a"));
    }
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn the_deprecated_watch_paths_still_watch() {
    let server = TestServer::start().await;
    server.config_map("a").await;
    server.config_map("b").await;
    let path = "/api/v1/watch/namespaces/default/configmaps/b?timeoutSeconds=30";
    let mut events = Lines::new(server.open("GET", path, &[], "").await);
    assert_eq!(events.next_name().await, pair("ADDED", "b"));
}

#[tokio::test]
async fn metadata_comes_as_protobuf_frames() {
    let server = TestServer::start().await;
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let path = format!(
        "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    );
    server.config_map("a").await;
    let response = server.open("GET", &path, &[("accept", accept)], "").await;
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!(content_type, "application/vnd.kubernetes.protobuf;stream=watch");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let mut rest = &bytes[..];
    let mut types = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let frame = &rest[4..4 + length];
        // Field 1 of the frame is its type, with a length of one byte.
        types.push(String::from_utf8(frame[2..2 + usize::from(frame[1])].to_vec()).unwrap());
        rest = &rest[4 + length..];
    }
    assert_eq!(types.last().map(String::as_str), Some("BOOKMARK"), "{types:?}");
    assert!(types[..types.len() - 1].iter().all(|event| event == "ADDED"), "{types:?}");
}

#[tokio::test]
async fn watches_end_when_the_server_stops() {
    let server = TestServer::start().await;
    let mut events = Lines::new(server.open("GET", &format!("{CONFIG_MAPS}?watch=true"), &[], "").await);
    let reading = tokio::spawn(async move { while events.next().await.is_some() {} });
    let started = Instant::now();
    server.server.shutdown().await;
    reading.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Ten thousand idle watches cost little memory (client and server together, in one process here), and one
/// change reaches them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_watches_are_cheap() {
    const CONNECTIONS: usize = 20;
    const STREAMS: usize = 500;
    const BYTES_PER_WATCH: usize = 32 * 1024;
    let server = TestServer::start().await;
    let version =
        server.get(CONFIG_MAPS).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    let before = resident();
    let mut bodies = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut sender = server.http2().await;
        for _ in 0..STREAMS {
            sender.ready().await.unwrap();
            let uri = format!("https://localhost{path}");
            let response = sender.send_request(request("GET", &uri, &[], "")).await.unwrap();
            assert_eq!(response.status(), 200);
            bodies.push(response.into_body());
        }
    }
    let each = resident().saturating_sub(before) / bodies.len();
    assert!(each < BYTES_PER_WATCH, "{each} bytes per watch");
    server.config_map("a").await;
    for mut body in bodies {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(frame.starts_with(br#"{"type":"ADDED""#), "{frame:?}");
    }
}
