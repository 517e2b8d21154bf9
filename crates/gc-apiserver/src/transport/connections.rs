//! Serves connections, and limits the time that one may stay open without a request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::{Extensions, HeaderMap, Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use super::account::ClientStanding;
use super::clients::{AdmittedConnection, AnonymousStream, Client, Ending, MAXIMUM_STREAMS};
use super::frames::FloodGuard;
use super::stall::StallGuard;
use super::streams::{
    HeldBody, RefusedStream, STREAM_WINDOW, SendingBody, StreamError, StreamExecutor, WindowPatience,
    request_bytes,
};

/// Maximum time to receive the header of a request.
const HEADER_PATIENCE: Duration = Duration::from_secs(32);
/// Maximum length of a header block.
const MAXIMUM_HEADER_BYTES: usize = 64 * 1024;
/// Maximum number of headers in a request: impersonating a user with many groups takes one for each group.
const MAXIMUM_HEADERS: usize = 1000;
/// Number of excess streams and other errors that are tolerated before the connection ends.
const MAXIMUM_REFUSED_STREAMS: usize = 400;
/// Number of body bytes that may arrive on one HTTP/2 connection before they are read.
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;
/// Number of bytes of an answer that HTTP/2 buffers before it can send them.
const MAXIMUM_SEND_BUFFER: usize = 128 * 1024;
/// Interval of HTTP/2 pings, and the time for their answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Time that an idle connection has to close when the server shuts down.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(1);
/// Time for which requests may continue on a connection that accepts no further ones: without valid credentials...
const ANONYMOUS_FAREWELL_PATIENCE: Duration = Duration::from_mins(1);
/// ...and with them: no watch lasts longer.
const FAREWELL_PATIENCE: Duration = Duration::from_hours(1);

/// Maximum time without a request; it may take up to twice as long to be noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdlePatience {
    /// Before the first request; half a preface or half a header is not a request.
    pub(crate) first: Duration,
    /// After the first request (upstream: 90 s).
    pub(crate) later: Duration,
}

impl Default for IdlePatience {
    fn default() -> Self {
        Self { first: Duration::from_secs(16), later: Duration::from_secs(90) }
    }
}

/// Maximum silence of a connection, from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until the TLS handshake is complete.
    pub(crate) handshake: Duration,
    /// After the handshake.
    pub(crate) idle: IdlePatience,
    /// While there is data to be sent.
    pub(crate) window: WindowPatience,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            idle: IdlePatience::default(),
            window: WindowPatience::default(),
        }
    }
}

/// Reports whether a request asks to turn its connection into a WebSocket.
pub(crate) fn wants_web_socket(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text(UPGRADE).eq_ignore_ascii_case("websocket")
        && text(CONNECTION).split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Handle for switching a connection to another protocol.
#[derive(Clone)]
pub(crate) struct Upgrade {
    pub(crate) connection: OnUpgrade,
    pub(crate) place: Arc<AdmittedConnection>,
}

impl Upgrade {
    /// Takes the handle out of a request; there is none within this process.
    pub(crate) fn of(extensions: &mut Extensions) -> Option<Self> {
        Some(Self { place: extensions.remove()?, connection: extensions.remove()? })
    }
}

/// Serves a connection until its peer ends it, it is idle for too long, it is asked to end, or `stop` resolves.
pub(crate) async fn converse<I, B, F>(
    stream: I,
    client: &Arc<Client>,
    patience: Patience,
    stop: impl Future<Output = ()>,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: HeldBody + Send + Unpin + 'static,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
{
    let builder = builder(client, patience.window);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let under_way = client.begin();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_multiplexed = request.version() == Version::HTTP_2;
        let asked = client.charge(request_bytes(&request)).map(|charge| (answer(request), charge));
        let client = Arc::clone(client);
        // Boxed, so that a stream whose answer waits to be sent does not keep the space of the future that produced it.
        async move {
            let Ok((answering, charge)) = asked else {
                client.losses().stream("memory");
                return Err(StreamError::refused());
            };
            let mut answer = match answering.await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            drop(charge);
            if is_multiplexed {
                limit_streams(&client, &mut answer);
            }
            let sending = SendingBody::answer(&client, under_way, answer, reads)?;
            let _turn = client.turn().await;
            Ok(sending)
        }
        .boxed()
    });
    let guarded = FloodGuard::new(StallGuard::new(stream), Arc::clone(client));
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(guarded), service);
    tokio::pin!(serving);
    let farewell = async {
        tokio::select! {
            () = stop => {}
            () = client.asked(Ending::AfterRequests) => {}
        }
    };
    let patience = tokio::select! {
        biased;
        () = client.asked(Ending::Silenced) => return,
        ended = &mut serving => return report(ended),
        () = farewell => match client.standing() {
            ClientStanding::Anonymous => ANONYMOUS_FAREWELL_PATIENCE,
            ClientStanding::Authenticated | ClientStanding::Privileged => FAREWELL_PATIENCE,
        },
        () = client.idle(patience.idle.first, patience.idle.later) => GOODBYE_PATIENCE,
    };
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        () = client.asked(Ending::Silenced) => {}
        ended = serving => report(ended),
        () = tokio::time::sleep(patience) => {}
    }
}

/// Marks an answer as refused if its connection has no valid credentials and already has as many such streams as permitted. The
/// code that answered may have counted the stream already.
fn limit_streams<B>(client: &Arc<Client>, answer: &mut Response<B>) {
    let extensions = answer.extensions_mut();
    if client.standing() > ClientStanding::Anonymous
        || extensions.get::<RefusedStream>().is_some()
        || extensions.get::<Arc<AnonymousStream>>().is_some()
    {
        return;
    }
    match client.anonymous_stream() {
        Some(stream) => drop(extensions.insert(Arc::new(stream))),
        None => drop(extensions.insert(RefusedStream)),
    }
}

fn builder(client: &Arc<Client>, patience: WindowPatience) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor::new(Arc::clone(client), patience));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(MAXIMUM_HEADER_BYTES * 2)
        .max_headers(MAXIMUM_HEADERS)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAXIMUM_STREAMS)
        .max_local_error_reset_streams(MAXIMUM_REFUSED_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAXIMUM_SEND_BUFFER)
        .max_header_list_size(u32::try_from(MAXIMUM_HEADER_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1);
    builder
}

fn report(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use crate::exchange::body::AnswerBody;
    use crate::transport::clients::tests::lone_client;
    use crate::transport::pace::{BURST, PERIOD};
    use bytes::Bytes;
    use std::time::Instant;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const SHORT: IdlePatience =
        IdlePatience { first: Duration::from_millis(20), later: Duration::from_millis(20) };

    /// Serves a client that sends this and then stays silent; returns the bytes that it received until the connection ended.
    async fn silent_after(sent: &[u8]) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(4096);
        let answer = |_| async { Ok(Response::new(AnswerBody::Whole(Bytes::from_static(b"ok")))) };
        let (admitted, patience) = (lone_client(), Patience { idle: SHORT, ..Patience::default() });
        let serving = converse(near, admitted.client(), patience, std::future::pending(), answer);
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

    /// A client that does not wait for answers is answered at a limited pace, and no request is refused.
    #[tokio::test]
    async fn a_flood_is_answered_at_a_pace() {
        const MORE: u32 = 4;
        let count = (BURST + MORE) as usize;
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let answer = |_| async { Ok(Response::new(AnswerBody::Whole(Bytes::from_static(b"ok")))) };
        let (admitted, begun) = (lone_client(), Instant::now());
        let serving = converse(near, admitted.client(), Patience::default(), std::future::pending(), answer);
        let client = async {
            far.write_all(&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(count)).await.unwrap();
            let (mut read, mut answered) = (String::new(), 0);
            while answered < count {
                let mut bytes = [0; 4096];
                let length = far.read(&mut bytes).await.unwrap();
                assert_ne!(length, 0, "the connection stays: {read}");
                read.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
                answered = read.matches("HTTP/1.1 200 OK\r\n").count();
            }
        };
        let both = async {
            tokio::select! { () = serving => panic!("the connection stays"), () = client => {} }
        };
        tokio::time::timeout(Duration::from_mins(1), both).await.expect("everything is answered");
        assert!(begun.elapsed() >= MORE * PERIOD, "{:?}", begun.elapsed());
    }
}
