//! Crowds of hostile connections that reconnect immediately, beside a client that must be answered. With `KUBEGC_ATTACK_SECONDS`, a
//! crowd lasts that long and the measurements are printed, also a minute later; otherwise it lasts for a few requests of the
//! client.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::victim::Victim;

pub const CONNECTIONS: usize = 200;
/// Number of requests of the client beside each kind.
const REQUESTS: usize = 10;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(20);

pub type Attack = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One hostile connection, until it ends.
pub type Kind = fn(TlsConnector, SocketAddr) -> Attack;

/// Course of a crowd's attack.
pub struct Course {
    pub lasted: Duration,
    pub connected: usize,
    /// Resident memory of the server in MiB, before the attack and at most.
    pub before: usize,
    pub peak: usize,
}

/// Returns the duration of a measurement, if this is one.
fn measured() -> Option<Duration> {
    std::env::var("KUBEGC_ATTACK_SECONDS").ok().map(|text| Duration::from_secs(text.parse().unwrap()))
}

/// Attacks with a crowd while `ask` queries the server repeatedly. Fails unless the server stays alive and answers, also
/// afterwards.
pub async fn withstand(
    victim: &mut Victim,
    name: &str,
    kind: Kind,
    ask: impl AsyncFn(&Victim) -> Duration,
) -> Course {
    for _ in 0..5 {
        ask(victim).await;
    }
    let before = victim.resident().unwrap();
    let connected = Arc::new(AtomicUsize::new(0));
    // The crowd has its own threads, so that the client does not wait for the crowd's work.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut crowd = tokio::task::JoinSet::new();
    let begun = Instant::now();
    for _ in 0..CONNECTIONS {
        let (connected, connector, to) = (Arc::clone(&connected), victim.anonymous.clone(), victim.address);
        let attack = async move {
            loop {
                connected.fetch_add(1, Ordering::Relaxed);
                kind(connector.clone(), to).await;
            }
        };
        crowd.spawn_on(attack, runtime.handle());
    }
    let (mut waited, mut peak) = (Vec::new(), before);
    while measured().map_or(waited.len() < REQUESTS, |time| begun.elapsed() < time) {
        waited.push(ask(victim).await);
        peak = peak.max(victim.resident().expect("the server lives"));
        tokio::time::sleep(PAUSE).await;
    }
    let (lasted, connected) = (begun.elapsed(), connected.load(Ordering::Relaxed));
    crowd.shutdown().await;
    runtime.shutdown_background();
    waited.sort_unstable();
    let part = |of_thousand: usize| waited[(waited.len() * of_thousand / 1_000).min(waited.len() - 1)];
    println!(
        "{name}: {connected} connections in {lasted:?}; {} requests beside them waited {:?} (median), {:?} (p99); \
         {before} MiB before, {peak} at most",
        waited.len(),
        part(500),
        part(990),
    );
    if measured().is_some() {
        tokio::time::sleep(Duration::from_mins(1)).await;
        println!("{name}: {} MiB a minute later", victim.resident().unwrap());
    }
    ask(victim).await;
    assert_eq!(victim.child.try_wait().unwrap(), None, "{name}: the server lives");
    Course { lasted, connected, before, peak }
}

/// Number of requests sent at once on a connection without credentials, of which the last eight are answered a second later.
pub const PACED: usize = 64 + 8;

/// Sends this many requests at once over HTTP/1.1, and reads the same number of answers.
pub async fn pipelined(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), path: &str, count: usize) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.repeat(count).as_bytes()).await.unwrap();
    let mut read = String::new();
    while read.matches("HTTP/1.1 200 OK\r\n").count() < count {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).await.unwrap();
        assert_ne!(length, 0, "{path}: nothing is refused: {read}");
        read.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
}
