//! Crowds at the other listeners of a process: the metrics and the page of a collector, as [`Listener`] serves them. Each kind
//! comes from one address, beside a scraper at another address that uses a new connection every time. `KUBEGC_ATTACK_SECONDS=10`
//! measures, as for `attacks_crowd`.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gc_apiserver::{ExtensionAnswer, ExtensionBody, Listener, ListenerTls, Peer};
use gc_registry::api::UserInfo;
use hyper::body::Incoming;
use serde_json::json;
use support::crowd::{Attack, Course, Kind, PACED, pipelined, withstand};
use support::raw_http2::{REFUSED_STREAM, RST_STREAM, get, next, preface};
use support::victim::{self, PATIENCE, Victim, dial, http1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// The allocator that `kubegc` uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of connections, the same as for the listener of metrics.
const PLACES: usize = 512;
/// Address of the crowd.
const CROWD: &str = "127.0.0.2";
/// The scraper's request.
const SCRAPE: &str =
    "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer good\r\nconnection: close\r\n\r\n";
/// Size of the metrics, in bytes.
const LARGE: usize = 256 << 10;

/// Path on which clients are trusted, as all are on loopback.
const TRUSTED: &str = "/trusted";

/// Answers health checks for everybody, and other requests only with the token.
async fn answer(request: http::Request<Incoming>, peer: Peer) -> ExtensionAnswer {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let (code, body) = match (request.uri().path(), token) {
        ("/healthz", _) => (200, "ok".to_owned()),
        (TRUSTED, _) => {
            peer.is_trusted();
            (200, "ok".to_owned())
        }
        (_, Some("Bearer good")) => {
            let groups = vec!["system:authenticated".to_owned()];
            peer.is_of(&UserInfo { name: "scraper".into(), groups, ..UserInfo::default() });
            (200, "m 1\n".repeat(LARGE / 4))
        }
        (_, Some(_)) => {
            peer.was_denied();
            (401, "no".to_owned())
        }
        (_, None) => (401, "no".to_owned()),
    };
    ExtensionAnswer {
        code,
        content_type: "text/plain",
        headers: Vec::new(),
        body: ExtensionBody::Whole(body.into()),
    }
}

/// Starts the server of [`Victim`]: a test only so that this program can be started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attacked_server() {
    if !victim::is_attacked() {
        return;
    }
    let tls = Arc::new(ListenerTls::new(None, &["localhost".to_owned()]).unwrap());
    let authority = tls.authority_pem().unwrap().to_owned();
    let listener = Listener::new(Some(tls), PLACES);
    let address = listener.listen("127.0.0.1:0".parse().unwrap(), answer).await.unwrap();
    victim::until_the_end(&json!({"address": address.to_string(), "ca": authority})).await;
}

async fn plain(to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(CROWD.parse().unwrap(), 0))?;
    socket.connect(to).await
}

/// Sends `first`, then `more` repeatedly; if `more` is empty, reads the answers.
fn send(connector: &TlsConnector, to: SocketAddr, first: String, more: String) -> Attack {
    let connector = http1(connector);
    Box::pin(async move {
        let Ok(mut stream) = dial(CROWD, to, &connector).await else { return };
        if stream.write_all(first.as_bytes()).await.is_err() {
            return;
        }
        if more.is_empty() {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        while !more.is_empty() && stream.write_all(more.as_bytes()).await.is_ok() {}
    })
}

const KINDS: [(&str, Kind); 9] = [
    ("connections that say nothing", |_, to| {
        Box::pin(async move {
            let Ok(mut stream) = plain(to).await else { return };
            let _ = stream.read_to_end(&mut Vec::new()).await;
        })
    }),
    ("handshakes, and nothing else", |connector, to| {
        Box::pin(async move { drop(dial(CROWD, to, &connector).await) })
    }),
    ("half a header", |connector, to| send(&connector, to, "GET / HTTP/1.1\r\nx: ".into(), String::new())),
    ("headers that never end", |connector, to| {
        send(&connector, to, "GET / HTTP/1.1\r\n".into(), "x: y\r\n".repeat(512))
    }),
    ("a body that never ends", |connector, to| {
        let first = "POST /metrics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        send(&connector, to, first.into(), format!("1000\r\n{}\r\n", "z".repeat(4096)))
    }),
    ("health, over and over", |connector, to| {
        send(&connector, to, String::new(), "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50))
    }),
    ("health, over and over, that is read", |connector, to| {
        let connector = http1(&connector);
        Box::pin(async move {
            let Ok(stream) = dial(CROWD, to, &connector).await else { return };
            let (mut answers, mut requests) = tokio::io::split(stream);
            let some = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
            let writing = async { while requests.write_all(some.as_bytes()).await.is_ok() {} };
            let reading = async { while matches!(answers.read(&mut [0; 4096]).await, Ok(1..)) {} };
            tokio::join!(writing, reading);
        })
    }),
    ("tokens that nobody issued", |connector, to| {
        let one = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer forged\r\n\r\n";
        send(&connector, to, one.repeat(100), String::new())
    }),
    ("metrics of a user that are not read", |connector, to| {
        let one = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer good\r\n\r\n";
        send(&connector, to, String::new(), one.repeat(50))
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapers_are_answered_beside_crowds() {
    let wanted = std::env::var("KUBEGC_ATTACK").unwrap_or_default();
    for (name, kind) in KINDS.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        beside_a_crowd(name, kind).await;
    }
}

async fn beside_a_crowd(name: &str, kind: Kind) {
    let mut victim = Victim::start("-d 524288");
    let Course { before, peak, .. } = withstand(&mut victim, name, kind, async |victim| {
        victim.probe("127.0.0.1", "/healthz").await;
        victim.ask_for(SCRAPE).await
    })
    .await;
    assert!(peak <= before + 160, "{name}: {before} MiB before, {peak} MiB at most");
}

/// Starts a listener in this process, without TLS.
async fn start() -> SocketAddr {
    Listener::new(None, PLACES).listen("127.0.0.1:0".parse().unwrap(), answer).await.unwrap()
}

/// Floods are paced as on the API server, even on a listener that trusts everybody.
#[tokio::test]
async fn floods_without_credentials_are_answered_at_a_pace() {
    for path in ["/healthz", TRUSTED] {
        let mut stream = TcpStream::connect(start().await).await.unwrap();
        let begun = Instant::now();
        let answered = pipelined(&mut stream, path, PACED);
        tokio::time::timeout(PATIENCE, answered).await.expect("everything is answered");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{path}: {:?}", begun.elapsed());
    }
}

/// Streams without credentials are limited as on the API server, because a waiting answer is held in memory.
#[tokio::test]
async fn streams_without_credentials_are_few() {
    const STREAMS: u32 = 90;
    const ANSWERED: u32 = 8;
    let mut stream = TcpStream::connect(start().await).await.unwrap();
    let requests = (0..STREAMS).flat_map(|number| get(2 * number + 1, "/healthz"));
    stream.write_all(&preface(0).into_iter().chain(requests).collect::<Vec<u8>>()).await.unwrap();
    let refusals = async {
        let mut refused = 0;
        while refused < STREAMS - ANSWERED {
            let frame = next(&mut stream).await.expect("the connection stays");
            if frame.kind == RST_STREAM {
                assert_eq!(frame.payload, REFUSED_STREAM.to_be_bytes());
                refused += 1;
            }
        }
    };
    tokio::time::timeout(PATIENCE, refusals).await.expect("the others are refused");
}
