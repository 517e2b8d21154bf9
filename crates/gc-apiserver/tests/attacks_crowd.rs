//! Crowds of hostile connections that reconnect immediately, each kind beside an administrator who lists namespaces over a new
//! connection every time. `KUBEGC_ATTACK_SECONDS=30` measures: it prints how long the administrator waited and how much memory the
//! server held, also a minute later. Without it, each kind lasts for a few requests of the administrator, and work is counted.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::crowd::{Attack, CONNECTIONS, Course, Kind, withstand};
use support::raw_http2::{PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, get, preface, read_to_end};
use support::victim::{Victim, dial, http1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The allocator that `kubegc` uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time for which a connection is silenced; the test asserts a part of it.
const SILENCE: Duration = Duration::from_secs(5);

/// Starts the server of [`Victim`]: a test only so that this program can be started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attacked_server() {
    support::victim::serve().await;
}

/// Connects, sends over HTTP/2, and waits for the end of the connection.
async fn send(connector: &TlsConnector, to: SocketAddr, window: u32, bytes: Vec<u8>) {
    let Ok(mut stream) = dial("127.0.0.1", to, connector).await else { return };
    let all = [preface(window), bytes].concat();
    if stream.write_all(&all).await.is_ok() {
        read_to_end(&mut stream).await;
    }
}

fn requests(window: u32, count: u32) -> impl Fn(TlsConnector, SocketAddr) -> Attack {
    move |connector, to| {
        let bytes = (0..count).flat_map(|number| get(2 * number + 1, "/livez?verbose")).collect();
        Box::pin(async move { send(&connector, to, window, bytes).await })
    }
}

fn frames(connector: TlsConnector, to: SocketAddr, one: Vec<u8>) -> Attack {
    Box::pin(async move { send(&connector, to, 65_535, one.repeat(5_000)).await })
}

/// Sends over HTTP/1.1, and waits for the end of the connection.
fn plain(connector: &TlsConnector, to: SocketAddr, request: String) -> Attack {
    let connector = http1(connector);
    Box::pin(async move {
        let Ok(mut stream) = dial("127.0.0.1", to, &connector).await else { return };
        if stream.write_all(request.as_bytes()).await.is_ok() {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    })
}

/// Sends over HTTP/1.1 without pause, and reads the answers if it `reads`.
fn endless(connector: &TlsConnector, to: SocketAddr, reads: bool) -> Attack {
    let connector = http1(connector);
    Box::pin(async move {
        let Ok(stream) = dial("127.0.0.1", to, &connector).await else { return };
        let (mut answers, mut requests) = tokio::io::split(stream);
        let some = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
        let writing = async { while requests.write_all(some.as_bytes()).await.is_ok() {} };
        let reading = async { while reads && matches!(answers.read(&mut [0; 4096]).await, Ok(1..)) {} };
        tokio::join!(writing, reading);
    })
}

/// Kinds with their names, and whether their connections are silenced, so that they reconnect no sooner than that.
const KINDS: [(&str, Kind, bool); 12] = [
    ("1,000 streams without a window", |connector, to| requests(0, 1_000)(connector, to), true),
    ("1,000 streams that are read", |connector, to| requests(65_535, 1_000)(connector, to), true),
    ("pings", |connector, to| frames(connector, to, frame(PING, 0, 0, &[0; 8])), true),
    ("settings", |connector, to| frames(connector, to, frame(SETTINGS, 0, 0, &[])), true),
    (
        "window updates",
        |connector, to| frames(connector, to, frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())),
        true,
    ),
    (
        "requests that are reset",
        |connector, to| {
            let one = |number: u32| {
                let stream = 2 * number + 1;
                [get(stream, "/livez"), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
            };
            let bytes = (0..2_000).flat_map(one).collect();
            Box::pin(async move { send(&connector, to, 65_535, bytes).await })
        },
        true,
    ),
    ("health without pause", |connector, to| endless(&connector, to, false), true),
    ("health without pause that is read", |connector, to| endless(&connector, to, true), true),
    (
        "handshakes, and nothing else",
        |connector, to| Box::pin(async move { drop(dial("127.0.0.1", to, &connector).await) }),
        false,
    ),
    (
        "no TLS at all",
        |_, to| {
            Box::pin(async move {
                let Ok(mut stream) = TcpStream::connect(to).await else { return };
                if stream.write_all(&[0; 1024]).await.is_ok() {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            })
        },
        false,
    ),
    (
        "tokens that nobody issued",
        |connector, to| {
            let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMifQ.AAAA";
            let one = format!(
                "GET /api/v1/secrets HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
            );
            plain(&connector, to, one.repeat(100))
        },
        true,
    ),
    (
        "large headers",
        |connector, to| {
            let name = "x".repeat(60_000);
            plain(
                &connector,
                to,
                format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {name}\r\n\r\n").repeat(20),
            )
        },
        false,
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_are_answered_beside_crowds() {
    let wanted = std::env::var("KUBEGC_ATTACK").unwrap_or_default();
    for (name, kind, is_silenced) in KINDS.into_iter().filter(|(name, ..)| name.contains(&wanted)) {
        beside_a_crowd(name, kind, is_silenced).await;
    }
}

async fn beside_a_crowd(name: &str, kind: Kind, is_silenced: bool) {
    let mut victim = Victim::start("-d 524288");
    let Course { lasted, connected, before, peak } = withstand(&mut victim, name, kind, async |victim| {
        victim.probe("127.0.0.1", "/livez").await;
        victim.ask().await
    })
    .await;
    assert!(peak <= before + 128, "{name}: {before} MiB before, {peak} MiB at most");
    if is_silenced {
        let turns = 2 + lasted.as_millis() / SILENCE.as_millis();
        let most = CONNECTIONS * usize::try_from(turns).unwrap();
        assert!(connected <= most, "{name}: {connected} connections in {lasted:?}, of {most} that may come");
    }
}
