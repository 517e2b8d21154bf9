//! Connections to webhooks, kept for the next call as client-go does.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

use crate::transport::dial::{Peer, connect, connect_tls};

/// Maximum answer to a small request, in bytes. The answer to a large request may be larger, because it may repeat and replace the
/// objects.
const LARGEST_ANSWER: usize = 3 * 1024 * 1024;
const ANSWER_TO_REQUEST: usize = 4;
/// Time for which an unused connection is kept, as in client-go.
const IDLE_PATIENCE: Duration = Duration::from_secs(90);
/// Period in which connections that were unused for longer are closed.
const SWEEP_PERIOD: Duration = Duration::from_secs(30);
/// Maximum number of kept connections to one place (as in client-go), and in total.
const MOST_TO_ONE_PLACE: usize = 25;
const MOST: usize = 100;
/// Protocols offered in the handshake, in order of preference; the first one only on request.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Destination of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) peer: Peer,
    /// True if the connection has no TLS, which only happens after redirects.
    pub(crate) is_plain: bool,
    /// True if HTTP/2 is offered.
    pub(crate) offers_http2: bool,
}

/// Reason why a request has no readable answer.
#[derive(Debug)]
pub(crate) enum Unread {
    NoAnswer(String),
    /// The answer began but did not end properly.
    BrokenAnswer(String),
}

/// A request that can be repeated over another connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// Headers other than the host name.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Connections that wait for their next call. Each serves one call at a time.
#[derive(Default)]
pub(crate) struct Channels(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    idle: HashMap<Place, Vec<(Channel, Instant)>>,
    /// True if a task closes connections that wait too long; it ends when none are left.
    is_swept: bool,
}

/// Reason why a request was not answered.
enum Unanswered {
    /// The connection was closed before anything was sent.
    Unsent,
    Failed(String),
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and reads its complete answer, over an open connection if there is one. A request that was sent is never
    /// sent twice.
    pub(crate) async fn call(
        self: &Arc<Self>,
        place: &Place,
        request: &Outgoing,
    ) -> Result<(Parts, Bytes), Unread> {
        let (channel, response) = loop {
            let kept = self.take(place);
            let is_new = kept.is_none();
            let mut channel = match kept {
                Some(channel) => channel,
                None => Channel::open(place).await.map_err(Unread::NoAnswer)?,
            };
            match channel.send(request).await {
                Ok(response) => break (channel, response),
                // The server may have closed a waiting connection. A new connection is never closed without an error.
                Err(Unanswered::Unsent) if !is_new => {}
                Err(Unanswered::Unsent) => return Err(Unread::NoAnswer("EOF".to_owned())),
                Err(Unanswered::Failed(why)) => return Err(Unread::NoAnswer(why)),
            }
        };
        let (head, body) = response.into_parts();
        let limit = LARGEST_ANSWER + ANSWER_TO_REQUEST * request.body.len();
        let bytes = Limited::new(body, limit).collect().await.map_err(|why| {
            Unread::BrokenAnswer(if why.is::<LengthLimitError>() {
                why.to_string()
            } else {
                "unexpected EOF".to_owned()
            })
        })?;
        self.keep(place, channel);
        let bytes = unpacked(&head, bytes.to_bytes(), limit).map_err(Unread::BrokenAnswer)?;
        Ok((head, bytes))
    }

    fn take(&self, place: &Place) -> Option<Channel> {
        let mut kept = self.lock();
        let waiting = kept.idle.get_mut(place)?;
        let (channel, _) = waiting.pop()?;
        if waiting.is_empty() {
            kept.idle.remove(place);
        }
        Some(channel)
    }

    fn keep(self: &Arc<Self>, place: &Place, channel: Channel) {
        let mut kept = self.lock();
        if kept.idle.values().map(Vec::len).sum::<usize>() >= MOST {
            return;
        }
        let waiting = kept.idle.entry(place.clone()).or_default();
        if waiting.len() < MOST_TO_ONE_PLACE {
            waiting.push((channel, Instant::now()));
        }
        if !std::mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }
}

/// Closes connections that have waited too long, until none are left.
async fn sweep(channels: Weak<Channels>) {
    loop {
        tokio::time::sleep(SWEEP_PERIOD).await;
        let Some(channels) = channels.upgrade() else { return };
        let mut kept = channels.lock();
        kept.idle.retain(|_, waiting| {
            waiting.retain(|(_, since)| since.elapsed() < IDLE_PATIENCE);
            !waiting.is_empty()
        });
        kept.is_swept = !kept.idle.is_empty();
        if !kept.is_swept {
            return;
        }
    }
}

/// A connection in the protocol that both ends support; it ends when dropped.
struct Channel {
    sender: Sender,
    driver: AbortHandle,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Channel {
    async fn open(place: &Place) -> Result<Self, String> {
        if place.is_plain {
            return Self::http1(connect(&place.peer).await?).await;
        }
        let protocols = if place.offers_http2 { &PROTOCOLS[..] } else { &PROTOCOLS[1..] };
        let stream = connect_tls(&place.peer, None, protocols).await?;
        if stream.get_ref().1.alpn_protocol() != Some(PROTOCOLS[0]) {
            return Self::http1(EndsAnywhere(stream)).await;
        }
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|why| why.to_string())?;
        let driver = tokio::spawn(connection).abort_handle();
        Ok(Self { sender: Sender::Http2(sender), driver })
    }

    async fn http1(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, String> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
        let driver = tokio::spawn(connection).abort_handle();
        Ok(Self { sender: Sender::Http1(sender), driver })
    }

    async fn send(&mut self, outgoing: &Outgoing) -> Result<http::Response<Incoming>, Unanswered> {
        let ready = match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        };
        ready.map_err(|_| Unanswered::Unsent)?;
        let request = outgoing.request(matches!(self.sender, Sender::Http2(_)))?;
        let answered = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        answered.map_err(|mut error| match error.take_message() {
            Some(_) => Unanswered::Unsent,
            None if error.error().is_incomplete_message() => Unanswered::Failed("EOF".to_owned()),
            None => Unanswered::Failed(error.into_error().to_string()),
        })
    }
}

/// A stream that may end without announcement: many servers close connections without TLS's closing alert, which Go accepts. A
/// truncated answer is detected by its length, or because it cannot be parsed.
struct EndsAnywhere<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for EndsAnywhere<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer).map(|read| match read {
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            read => read,
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for EndsAnywhere<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Decompresses the bytes of an answer, which the request permits to be compressed.
fn unpacked(head: &Parts, bytes: Bytes, limit: usize) -> Result<Bytes, String> {
    let is_packed = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"gzip");
    if bytes.is_empty() || !head.headers.get(CONTENT_ENCODING).is_some_and(is_packed) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    GzDecoder::new(&*bytes).take(bound).read_to_end(&mut unpacked).map_err(|why| format!("gzip: {why}"))?;
    if unpacked.len() > limit {
        return Err("length limit exceeded".to_owned());
    }
    Ok(unpacked.into())
}

impl Outgoing {
    /// Builds the request. HTTP/2 has the host in the URI, HTTP/1.1 in a header.
    fn request(&self, is_http2: bool) -> Result<Request<Full<Bytes>>, Unanswered> {
        let failed = |why: &dyn std::fmt::Display| Unanswered::Failed(why.to_string());
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if is_http2 {
            *request.uri_mut() = self.uri.clone();
            return Ok(request);
        }
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        *request.uri_mut() = target.parse().map_err(|why: http::uri::InvalidUri| failed(&why))?;
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(host).map_err(|why| failed(&why))?;
        request.headers_mut().insert(HOST, host);
        Ok(request)
    }
}
