//! Tests watches over real connections.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::BodyExt as _;
use serde_json::json;
use support::{Lines, TOKEN, TestServer, request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

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

/// Go multiplies seconds to nanoseconds, and an overflow may lie in the past.
#[tokio::test]
async fn a_watch_may_ask_for_any_time() {
    let server = TestServer::start().await;
    for (seconds, ends) in
        [(i64::MAX, true), (i64::MIN, false), (-1, true), (9_223_372_036, false), (9_223_372_037, true)]
    {
        let list = server.get(CONFIG_MAPS).await.json();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds={seconds}&resourceVersion={version}");
        let mut events = Lines::new(server.open("GET", &path, &[], "").await);
        if ends {
            assert_eq!(events.next().await, None, "{seconds}");
        } else {
            let name = format!("a{}", seconds.unsigned_abs());
            server.config_map(&name).await;
            let next = events.next_name().await;
            assert_eq!(next.0, "ADDED", "{seconds}");
        }
    }
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

/// Opens a connection, and requests a watch over WebSocket on it.
async fn web_socket(server: &TestServer, path: &str, headers: &str) -> TlsStream<TcpStream> {
    let mut stream = server.connect(b"http/1.1", false).await;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\nconnection: keep-alive, Upgrade\r\n\
         upgrade: WebSocket\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Returns the head of an answer, in lower case.
async fn head(stream: &mut TlsStream<TcpStream>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Returns the first byte and the payload of the next frame.
async fn frame(stream: &mut TlsStream<TcpStream>) -> (u8, Vec<u8>) {
    let first = stream.read_u8().await.unwrap();
    let length = match stream.read_u8().await.unwrap() {
        126 => usize::from(stream.read_u16().await.unwrap()),
        length => usize::from(length),
    };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.unwrap();
    (first, payload)
}

const KEY: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The frames must be the same as those of kube-apiserver 1.36.2.
#[tokio::test]
async fn watches_go_over_web_sockets() {
    let server = TestServer::start().await;
    server.config_map("a").await;
    let opened = format!("{KEY}sec-websocket-version: 13\r\norigin: http://x\r\n");
    let path = format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Da");
    let protocol = format!("{opened}sec-websocket-protocol: base64.binary.k8s.io\r\n");
    let mut stream = web_socket(&server, &path, &protocol).await;
    let text = head(&mut stream).await;
    for line in [
        "http/1.1 101 switching protocols\r\n",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n",
        "sec-websocket-protocol: base64.binary.k8s.io\r\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    for want in ["ADDED", "DELETED"] {
        let (first, payload) = frame(&mut stream).await;
        let event: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!((first, event["type"].as_str().unwrap(), payload.ends_with(b"\n")), (0x81, want, true));
        server.send("DELETE", &format!("{CONFIG_MAPS}/a"), &[], "").await;
    }
    // The server answers a ping and a close; the masks are zero.
    stream.write_all(b"\x89\x82\0\0\0\0hi").await.unwrap();
    assert_eq!(frame(&mut stream).await, (0x8a, b"hi".to_vec()));
    stream.write_all(b"\x88\x82\0\0\0\0\x03\xe8").await.unwrap();
    assert_eq!(frame(&mut stream).await, (0x88, b"\x03\xe8".to_vec()));
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);

    let protobuf = format!("{opened}accept: application/vnd.kubernetes.protobuf;stream=watch\r\n");
    let mut stream = web_socket(&server, "/api/v1/watch/namespaces?timeoutSeconds=1", &protobuf).await;
    assert!(head(&mut stream).await.starts_with("http/1.1 101"));
    let (first, payload) = frame(&mut stream).await;
    assert_eq!((first, &payload[..7]), (0x82, &b"\n\x05ADDED"[..]));
    while frame(&mut stream).await.0 != 0x88 {}
}

/// The subprotocols are the only header that pages can set.
#[tokio::test]
async fn tokens_may_stand_among_the_protocols_of_a_web_socket() {
    let server = TestServer::start().await;
    let path = "/api/v1/namespaces?watch=1&timeoutSeconds=1";
    for (token, code) in [(TOKEN, "101"), ("wrong", "401")] {
        let token = URL_SAFE_NO_PAD.encode(token);
        let mut stream = server.connect(b"http/1.1", false).await;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n{KEY}sec-websocket-version: 13\r\n\
             origin: http://x\r\nsec-websocket-protocol: base64url.bearer.authorization.k8s.io.{token}, a\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let text = head(&mut stream).await;
        assert!(text.starts_with(&format!("http/1.1 {code} ")) && !text.contains("bearer"), "{text}");
        assert_eq!(text.contains("sec-websocket-protocol: a\r\n"), code == "101", "{text}");
    }
}

#[tokio::test]
async fn handshakes_of_web_sockets_are_refused_as_upstream_refuses_them() {
    let server = TestServer::start().await;
    let services = "/api/v1/namespaces/default/services";
    let watch = format!("{services}?watch=1&timeoutSeconds=1");
    for (path, headers, code) in [
        (watch.as_str(), format!("{KEY}sec-websocket-version: 13\r\n"), 403),
        (&watch, format!("{KEY}sec-websocket-version: 13\r\norigin: null\r\n"), 403),
        (&watch, format!("{KEY}sec-websocket-version: 8\r\norigin: http://x\r\n"), 400),
        (&watch, "sec-websocket-version: 13\r\norigin: http://x\r\n".to_owned(), 400),
        (
            &watch,
            format!("{KEY}sec-websocket-version: 13\r\norigin: http://x\r\nsec-websocket-protocol: a, b\r\n"),
            400,
        ),
        (services, format!("{KEY}sec-websocket-version: 13\r\norigin: http://x\r\n"), 200),
        ("/api/v1/nothings?watch=1", format!("{KEY}sec-websocket-version: 13\r\norigin: http://x\r\n"), 404),
    ] {
        let mut stream = web_socket(&server, path, &headers).await;
        let text = head(&mut stream).await;
        assert!(text.starts_with(&format!("http/1.1 {code} ")), "{path} {headers}: {text}");
    }
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
        // Field 1 of the frame is its type, preceded by a length of one byte.
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
    server.server.shutdown().await;
    // The watch ended in order and was not cut off: reading a broken stream panics.
    reading.await.unwrap();
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Ten thousand idle watches must cost little memory (client and server together, because they share a process here), and one
/// change must reach them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_watches_are_cheap() {
    // As many streams as a connection may have.
    const CONNECTIONS: usize = 100;
    const STREAMS: usize = 100;
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
