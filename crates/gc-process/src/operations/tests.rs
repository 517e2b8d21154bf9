//! Hostile clients of the pages must not keep other clients from being answered.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::future::Future;
use std::pin::Pin;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::*;

/// Number of hostile connections, more than the server has places for.
const CONNECTIONS: usize = 200;
/// Time within which a request is answered on any machine; not a measure of how long it takes.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// Size of one page in bytes.
const LARGE: usize = 4 << 20;

struct LargePages;

impl Pages for LargePages {
    fn refresh(&self) {}

    fn unhealthy(&self) -> Option<String> {
        None
    }

    fn page(&self, _user: &str, path: &str, _query: &[(String, String)]) -> Option<PageAnswer> {
        (path == "/large").then(|| PageAnswer::Document(PLAIN, "x".repeat(LARGE)))
    }
}

async fn start() -> SocketAddr {
    let shown = OperationsPages {
        metrics: Arc::new(Registry::default()),
        ready: Arc::new(AtomicBool::new(true)),
        pages: Some(Arc::new(LargePages)),
    };
    serve("127.0.0.1:0".parse().unwrap(), shown, Arc::new(Protection::Open)).await.unwrap()
}

/// Sends a request on a new connection and returns the status line of the answer.
async fn ask(to: SocketAddr, request: &str) -> String {
    let asking = async {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("the request is answered")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

type Attack = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Connects from another address than the client that must be answered: the server first closes connections of the same address to
/// make room.
async fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 2], 0)))?;
    socket.connect(to).await
}

/// Sends `more` over and over until the connection ends, and reads nothing.
fn endless(to: SocketAddr, first: String, more: String) -> Attack {
    Box::pin(async move {
        let Ok(mut stream) = connect(to).await else { return };
        if stream.write_all(first.as_bytes()).await.is_err() {
            return;
        }
        while !more.is_empty() && stream.write_all(more.as_bytes()).await.is_ok() {}
        if more.is_empty() {
            // The client stays until it is cut off.
            while matches!(stream.read(&mut [0]).await, Ok(1..)) {
                std::future::pending::<()>().await;
            }
        }
    })
}

type Kind = fn(SocketAddr) -> Attack;

const KINDS: [(&str, Kind); 8] = [
    ("silence", |to| endless(to, String::new(), String::new())),
    ("half a header", |to| endless(to, "GET / HTTP/1.1\r\nx: ".into(), String::new())),
    ("a header that never ends", |to| endless(to, "GET / HTTP/1.1\r\nx: ".into(), "y".repeat(4096))),
    ("headers that never end", |to| endless(to, "GET / HTTP/1.1\r\n".into(), "x: y\r\n".repeat(512))),
    ("a path that never ends", |to| endless(to, "GET /".into(), "a/".repeat(2048))),
    ("answers that are not read", |to| {
        let request = "GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n";
        endless(to, String::new(), request.repeat(64))
    }),
    ("a body that never ends", |to| {
        let first = "POST /metrics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        endless(to, first.into(), format!("1000\r\n{}\r\n", "z".repeat(4096)))
    }),
    ("no HTTP", |to| endless(to, "\0\u{1}\u{2}\r\n\r\n".into(), "\0".repeat(4096))),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_hostile_clients_do_others_are_answered() {
    for (what, kind) in KINDS {
        let address = start().await;
        let mut crowd = JoinSet::new();
        for _ in 0..CONNECTIONS {
            crowd.spawn(kind(address));
        }
        for path in ["/healthz", "/metrics", "/readyz", "/healthz", "/metrics", "/large"] {
            assert_eq!(ask(address, &get(path)).await, "HTTP/1.1 200 OK", "{what}: {path}");
        }
    }
}

#[tokio::test]
async fn large_requests_are_refused() {
    let address = start().await;
    for (request, expected) in [
        (get(&format!("/{}", "a".repeat(200_000))), "HTTP/1.1 431 Request Header Fields Too Large"),
        (
            format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200_000)),
            "HTTP/1.1 431 Request Header Fields Too Large",
        ),
        ("GET / HTTP/1.1\r\n\r\n".into(), "HTTP/1.1 400 Bad Request"),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n".into(),
            "HTTP/1.1 501 Not Implemented",
        ),
    ] {
        let found = ask(address, &request).await;
        // A client that is refused while it sends may lose the response with the connection.
        assert!(found == expected || found.is_empty(), "{found}, not {expected}");
    }
    assert_eq!(ask(address, &get("/healthz")).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn sites_in_a_browser_on_this_machine_are_refused() {
    let address = start().await;
    for (header, expected) in [
        ("sec-fetch-site: cross-site", "HTTP/1.1 403 Forbidden"),
        ("origin: https://evil.example", "HTTP/1.1 403 Forbidden"),
        ("sec-fetch-site: none", "HTTP/1.1 200 OK"),
    ] {
        let request = format!(
            "POST /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: 0\r\n{header}\r\n\r\n"
        );
        assert_eq!(ask(address, &request).await, expected, "{header}");
    }
}
