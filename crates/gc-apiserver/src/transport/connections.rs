//! Connections: how many there may be, and for how long one may stay without a request.

use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::{Extensions, HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use super::stall::StallGuard;

/// Connections that may be open at once where files are no bound; more wait in the system's queue.
const MAXIMUM_CONNECTIONS: usize = 30_000;
/// File descriptors that connections leave to storage, watches and files.
const FILES_IN_RESERVE: usize = 128;
/// Connections that there may be however few files there are.
const MINIMUM_CONNECTIONS: usize = 32;
/// How many of a hundred connections one peer may have, so that another one always finds room.
const SHARE_OF_ONE_PERCENT: usize = 75;
/// How long the header of a request may take.
const HEADER_PATIENCE: Duration = Duration::from_secs(32);
/// Longest header block.
const MAXIMUM_HEADER_BYTES: usize = 64 * 1024;
/// Most headers of a request: whoever impersonates a user of many groups sends one for each.
const MAXIMUM_HEADERS: usize = 1000;
/// Requests in flight on one HTTP/2 connection.
const MAXIMUM_STREAMS: u32 = 1000;
/// How often an HTTP/2 peer is asked whether it is still there, and how long it may take to answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// How long an idle connection has to close once the server shuts it down.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(1);

/// How long a connection may be without a request; up to twice as long may pass before it is noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdlePatience {
    /// Before the first one: half a preface, or half a header, is no request.
    pub(crate) first: Duration,
    /// After it (upstream: 90 s).
    pub(crate) later: Duration,
}

impl Default for IdlePatience {
    fn default() -> Self {
        Self { first: Duration::from_secs(16), later: Duration::from_secs(90) }
    }
}

/// How long a connection may be silent, from its beginning on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until the TLS handshake is complete.
    pub(crate) handshake: Duration,
    /// After the handshake.
    pub(crate) idle: IdlePatience,
}

impl Default for Patience {
    fn default() -> Self {
        Self { handshake: Duration::from_secs(10), idle: IdlePatience::default() }
    }
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// In all.
    pub(crate) total: usize,
    /// From one address.
    pub(crate) of_peer: usize,
}

impl Limits {
    /// For a process with this limit on open files, if it is known.
    fn of_files(files: Option<usize>) -> Self {
        let by_files = files.map_or(MAXIMUM_CONNECTIONS, |files| files.saturating_sub(FILES_IN_RESERVE));
        let total = by_files.clamp(MINIMUM_CONNECTIONS, MAXIMUM_CONNECTIONS);
        Self { total, of_peer: total * SHARE_OF_ONE_PERCENT / 100 }
    }

    /// For this process.
    pub(crate) fn of_process() -> Self {
        Self::of_files(std::fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(open_files))
    }
}

/// The soft limit of open files in `/proc/self/limits`.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What a connection takes from the bounds on them, for as long as anything of it is used.
#[derive(Clone)]
pub(crate) struct ConnectionPlace {
    _taken: Arc<dyn Any + Send + Sync>,
}

impl ConnectionPlace {
    pub(crate) fn new(taken: impl Any + Send + Sync) -> Self {
        Self { _taken: Arc::new(taken) }
    }
}

/// Whether a request wants its connection to become a WebSocket.
pub(crate) fn wants_web_socket(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text(UPGRADE).eq_ignore_ascii_case("websocket")
        && text(CONNECTION).split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// The way to another protocol on a connection.
#[derive(Clone)]
pub(crate) struct Upgrade {
    pub(crate) connection: OnUpgrade,
    pub(crate) place: ConnectionPlace,
}

impl Upgrade {
    /// That of a request; there is none within this process.
    pub(crate) fn of(extensions: &mut Extensions) -> Option<Self> {
        Some(Self { place: extensions.remove()?, connection: extensions.remove()? })
    }
}

/// Who has how many connections.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    most: usize,
    open: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// One connection of a peer.
#[derive(Debug)]
pub(crate) struct PeerPlace {
    peers: Peers,
    address: IpAddr,
}

impl Peers {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { most: limits.of_peer, open: Arc::default() }
    }

    /// A place for one more connection; none if the peer has too many.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<PeerPlace> {
        let address = address.to_canonical();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        (*count < self.most).then(|| {
            *count += 1;
            PeerPlace { peers: self.clone(), address }
        })
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut open = self.peers.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// The state of a connection.
#[derive(Debug, Default)]
struct Activity {
    in_flight: AtomicUsize,
    /// Grows with every request that begins or ends.
    changes: AtomicU64,
}

impl Activity {
    fn begin(self: &Arc<Self>) -> UnderWay {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(self))
    }

    /// Resolves when there was no request for as long as the patience lasts.
    async fn idle(&self, patience: IdlePatience) {
        loop {
            let before = self.changes.load(Ordering::SeqCst);
            tokio::time::sleep(if before == 0 { patience.first } else { patience.later }).await;
            if self.in_flight.load(Ordering::SeqCst) == 0 && self.changes.load(Ordering::SeqCst) == before {
                return;
            }
        }
    }
}

/// A request, until its answer has been sent.
#[derive(Debug)]
struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::SeqCst);
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An answer that is being sent.
struct Sending<B> {
    body: B,
    _under_way: UnderWay,
}

impl<B: Body + Unpin> Body for Sending<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves a connection until its peer ends it, it is idle for too long, or `stop` resolves.
pub(crate) async fn converse<I, B, F>(
    stream: I,
    patience: IdlePatience,
    stop: impl Future<Output = ()>,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
{
    let activity = Arc::new(Activity::default());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(MAXIMUM_HEADER_BYTES * 2)
        .max_headers(MAXIMUM_HEADERS)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAXIMUM_STREAMS)
        .max_header_list_size(u32::try_from(MAXIMUM_HEADER_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1);
    let service = hyper::service::service_fn(|request| {
        let under_way = activity.begin();
        let answer = answer(request);
        async move {
            let answer = answer.await;
            answer.map(|answer| answer.map(|body| Sending { body, _under_way: under_way }))
        }
    });
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(StallGuard::new(stream)), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = stop => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
        () = activity.idle(patience) => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(GOODBYE_PATIENCE, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const SHORT: IdlePatience =
        IdlePatience { first: Duration::from_millis(20), later: Duration::from_millis(20) };

    /// Serves a client that sends this and then falls silent; returns what it received until the connection ended.
    async fn silent_after(sent: &[u8]) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(4096);
        let answer = |_| async { Ok(Response::new(Full::new(Bytes::from_static(b"ok")))) };
        let serving = converse(near, SHORT, std::future::pending(), answer);
        let client = async {
            far.write_all(sent).await.unwrap();
            let mut read = Vec::new();
            let _ = far.read_to_end(&mut read).await;
            read
        };
        let both = async { tokio::join!(serving, client).1 };
        tokio::time::timeout(Duration::from_secs(10), both).await.expect("the connection is ended")
    }

    #[tokio::test]
    async fn silent_connections_are_ended() {
        let table: [(&str, &[u8], &str); 4] = [
            ("nothing", b"", ""),
            ("half a preface", b"PRI * HTTP/2.0\r\n\r\n", ""),
            ("half a header", b"GET / HTTP/1.1\r\nhost: a\r\n", ""),
            ("a request", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", "ok"),
        ];
        for (what, sent, want) in table {
            let read = silent_after(sent).await;
            assert!(
                read.ends_with(want.as_bytes()) && read.is_empty() == want.is_empty(),
                "{what}: {read:?}"
            );
        }
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        assert!(!silent_after(preface).await.is_empty(), "settings, and a goodbye");
    }

    #[tokio::test]
    async fn what_is_under_way_keeps_a_connection() {
        let activity = Arc::new(Activity::default());
        let under_way = activity.begin();
        let idle = activity.idle(SHORT);
        tokio::pin!(idle);
        assert!(tokio::time::timeout(Duration::from_millis(100), idle.as_mut()).await.is_err());
        drop(under_way);
        idle.await;
    }

    #[test]
    fn one_peer_leaves_room_for_another() {
        let peers = Peers::new(Limits { total: 4, of_peer: 2 });
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let held = [peers.admit(one).unwrap(), peers.admit("::ffff:10.0.0.1".parse().unwrap()).unwrap()];
        assert!(peers.admit(one).is_none());
        assert!(peers.admit(other).is_some());
        drop(held);
        assert!(peers.admit(one).is_some());
        assert!(peers.open.lock().unwrap().is_empty(), "no peer is remembered");
    }

    #[test]
    fn files_are_kept_in_reserve() {
        let table = [(None, 30_000), (Some(1024), 896), (Some(64), 32), (Some(1_000_000), 30_000)];
        for (files, total) in table {
            assert_eq!(Limits::of_files(files), Limits { total, of_peer: total * 3 / 4 }, "{files:?}");
        }
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files("Max open files            unlimited            unlimited            files"),
            None
        );
    }
}
