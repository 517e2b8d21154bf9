//! Streams of a connection: the memory that each holds is charged to its client, and a stream whose peer reads nothing is reset.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;

use super::account::{Charge, ClientStanding, OverBudget};
use super::clients::{AnonymousStream, Client, UnderWay};

/// Memory of a request while it is answered, in bytes, excluding its headers and its body.
const ANSWERING_BYTES: usize = 16 * 1024;
/// Memory of a stream while its answer is sent, in bytes, excluding the answer.
const SENDING_BYTES: usize = 4 * 1024;
/// Number of body bytes that may arrive before they are read: the window of a stream.
pub(crate) const STREAM_WINDOW: u32 = 256 * 1024;

/// Reason why a stream breaks off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// The request was not executed and may be repeated, which HTTP/2 has a code for.
    #[error("the request is refused")]
    Refused(#[source] h2::Error),
    /// It is unknown whether the request was executed.
    #[error("there is no room for the answer")]
    NoRoom,
    /// The rest of the answer cannot be read.
    #[error(transparent)]
    CutOff(#[from] CutOff),
}

impl StreamError {
    /// Returns the error that refuses a request.
    pub(crate) fn refused() -> Self {
        Self::Refused(h2::Reason::REFUSED_STREAM.into())
    }
}

/// Maximum time for which the peer of a stream may grant no window for pending data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowPatience {
    /// On a connection without valid credentials.
    pub(crate) anonymous: Duration,
    /// On any other connection; its user may read page by page.
    pub(crate) authenticated: Duration,
}

impl Default for WindowPatience {
    fn default() -> Self {
        Self { anonymous: Duration::from_secs(10), authenticated: Duration::from_mins(1) }
    }
}

impl WindowPatience {
    fn with(self, client: &Client) -> Duration {
        if client.standing() == ClientStanding::Anonymous { self.anonymous } else { self.authenticated }
    }
}

tokio::task_local! {
    /// Data of the stream that the current task serves; not set for HTTP/1.
    static HANDOVER: Arc<Handover>;
}

/// Data that a stream has passed to its connection, which takes more once the peer has granted a window.
#[derive(Debug, Default)]
struct Handover {
    pieces: AtomicUsize,
    is_waiting: AtomicBool,
}

impl Handover {
    fn handed(&self) {
        self.pieces.fetch_add(1, Ordering::Relaxed);
        self.is_waiting.store(true, Ordering::Relaxed);
    }

    fn asked(&self) {
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// Returns the number of the chunk that waits for a window.
    fn waiting(&self) -> Option<usize> {
        self.is_waiting.load(Ordering::Relaxed).then(|| self.pieces.load(Ordering::Relaxed))
    }
}

/// Runs the streams of one connection, and ends those whose peer reads nothing: hyper resets a stream that is dropped.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    client: Arc<Client>,
    patience: WindowPatience,
}

impl StreamExecutor {
    pub(crate) fn new(client: Arc<Client>, patience: WindowPatience) -> Self {
        Self { client, patience }
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, stream: F) {
        let (client, patience) = (Arc::clone(&self.client), self.patience);
        let handover = Arc::new(Handover::default());
        let serving = serve(stream, Arc::clone(&handover), client, patience);
        tokio::spawn(HANDOVER.scope(handover, serving));
    }
}

/// Polls a stream until it ends, or until a chunk of it has waited for a window for too long.
async fn serve<F: Future>(stream: F, handover: Arc<Handover>, client: Arc<Client>, patience: WindowPatience) {
    let mut stream = pin!(stream);
    // Created only when a stream waits, which most never do.
    let mut timer: Option<(usize, Pin<Box<tokio::time::Sleep>>)> = None;
    let is_stalled = poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        let Some(piece) = handover.waiting() else {
            timer = None;
            return Poll::Pending;
        };
        let (of, sleep) =
            timer.get_or_insert_with(|| (piece, Box::pin(tokio::time::sleep(patience.with(&client)))));
        if *of != piece {
            *of = piece;
            sleep.as_mut().reset(tokio::time::Instant::now() + patience.with(&client));
        }
        sleep.as_mut().poll(cx).map(|()| true)
    })
    .await;
    if is_stalled {
        client.losses().stream("window");
        tracing::debug!("a stream was reset: its peer grants no window");
    }
}

/// An answer ended prematurely, and must not be taken for complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is cut off")]
pub struct CutOff;

/// A body that reports the memory that it holds.
pub(crate) trait HeldBody: Body<Data = Bytes, Error = CutOff> {
    /// Returns the number of bytes held for this body alone, until it has been sent.
    fn held_bytes(&self) -> usize;

    /// Reports whether the body lasts until its client ends it, as a watch does.
    fn is_open_ended(&self) -> bool;

    /// Returns the answer that replaces one for which there is no room: a 429 whose bytes all such answers share.
    fn too_many_requests() -> Response<Self>
    where
        Self: Sized;
}

/// Marks an answer that must not take a stream: the request is refused unexecuted, and may be repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedStream;

/// Returns the memory that a request takes while it is answered, in bytes.
pub(crate) fn request_bytes<B: Body>(request: &Request<B>) -> usize {
    let headers =
        header_bytes(request.headers()) + request.uri().path_and_query().map_or(0, |uri| uri.as_str().len());
    let unread = if request.body().is_end_stream() { 0 } else { unread_bytes(request.headers()) };
    ANSWERING_BYTES + headers + unread
}

/// Returns the approximate size of a header map, in bytes.
fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum()
}

fn unread_bytes(headers: &HeaderMap) -> usize {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    declared.unwrap_or(usize::MAX).min(STREAM_WINDOW as usize)
}

/// An answer that is being sent.
pub(crate) struct SendingBody<B> {
    body: B,
    /// Last byte of the chunk that was handed over. HTTP/2 accepts a chunk of any size once there is a window for one byte. This
    /// byte is accepted only when there is a window for the entire chunk, so the stream can be observed until then.
    last_byte: Option<Bytes>,
    handover: Option<Arc<Handover>>,
    client: Arc<Client>,
    charge: Charge,
    _under_way: UnderWay,
    _anonymous: Option<Arc<AnonymousStream>>,
}

impl<B: HeldBody> SendingBody<B> {
    /// Charges the body of an answer to a client. If there is no room for the answer to a request that only `reads`, the client
    /// receives an error that says so.
    pub(crate) fn answer(
        client: &Arc<Client>,
        under_way: UnderWay,
        mut answer: Response<B>,
        reads: bool,
    ) -> Result<Response<Self>, StreamError> {
        if answer.extensions_mut().remove::<RefusedStream>().is_some() {
            client.losses().stream("anonymous");
            return Err(StreamError::refused());
        }
        let anonymous = answer.extensions_mut().remove();
        let mut charge = Self::charge(client, &answer);
        if charge.is_err() && reads {
            answer = B::too_many_requests();
            charge = Self::charge(client, &answer);
        }
        let Ok(charge) = charge else {
            client.losses().stream("memory");
            return Err(StreamError::NoRoom);
        };
        let client = Arc::clone(client);
        let handover = HANDOVER.try_with(Arc::clone).ok();
        Ok(answer.map(|body| Self {
            body,
            last_byte: None,
            handover,
            client,
            charge,
            _under_way: under_way,
            _anonymous: anonymous,
        }))
    }

    fn charge(client: &Client, answer: &Response<B>) -> Result<Charge, OverBudget> {
        client.charge(SENDING_BYTES + header_bytes(answer.headers()) + answer.body().held_bytes())
    }

    fn piece(&mut self, bytes: Bytes, is_shared: bool) -> Result<Piece, StreamError> {
        let charge = if is_shared {
            None
        } else if self.charge.bytes() >= bytes.len() + SENDING_BYTES {
            Some(self.charge.split(bytes.len()))
        } else {
            match self.client.charge(bytes.len()) {
                Ok(charge) => Some(charge),
                Err(_) => {
                    self.client.losses().stream("memory");
                    return Err(StreamError::NoRoom);
                }
            }
        };
        if let Some(handover) = &self.handover {
            handover.handed();
        }
        Ok(Piece { bytes, _charge: charge })
    }
}

impl<B> Body for SendingBody<B>
where
    B: HeldBody + Unpin,
{
    type Data = Piece;
    type Error = StreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, StreamError>>> {
        let this = self.get_mut();
        if let Some(handover) = &this.handover {
            handover.asked();
        }
        if let Some(byte) = this.last_byte.take() {
            // This byte was charged together with the rest.
            return Poll::Ready(Some(this.piece(byte, true).map(Frame::data)));
        }
        let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let mut bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(other) => {
                return Poll::Ready(other.into_trailers().ok().map(|trailers| Ok(Frame::trailers(trailers))));
            }
        };
        let is_shared = !bytes.is_unique();
        if this.handover.is_some() && !this.body.is_open_ended() && bytes.len() > 1 {
            this.last_byte = Some(bytes.split_off(bytes.len() - 1));
        }
        Poll::Ready(Some(this.piece(bytes, is_shared).map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.last_byte.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.last_byte.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// Bytes in transit to a client, charged until they have been sent.
pub(crate) struct Piece {
    bytes: Bytes,
    _charge: Option<Charge>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use crate::transport::clients::tests::lone_client;
    use http_body_util::BodyExt as _;

    /// A body made of these chunks.
    struct Pieces(Vec<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = CutOff;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop().map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    impl HeldBody for Pieces {
        fn held_bytes(&self) -> usize {
            self.0.iter().map(Bytes::len).sum()
        }

        fn is_open_ended(&self) -> bool {
            false
        }

        fn too_many_requests() -> Response<Self> {
            Response::new(Self(vec![Bytes::from_static(b"later")]))
        }
    }

    #[tokio::test]
    async fn an_answer_is_charged_until_its_last_piece_is_gone() {
        let admitted = lone_client();
        let client = admitted.client();
        let before = client.held_bytes();
        let pieces = vec![Bytes::from_static(b"shared"), vec![1; 5_000].into(), vec![2; 7_000].into()];
        let answer = HANDOVER.sync_scope(Arc::default(), || {
            SendingBody::answer(client, client.begin(), Response::new(Pieces(pieces)), true).unwrap()
        });
        let mut body = answer.into_body();
        let (mut sizes, mut kept) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().ok().unwrap();
            sizes.push(piece.remaining());
            kept.push(piece);
        }
        assert_eq!(sizes, [6_999, 1, 4_999, 1, 5, 1], "each piece ends with a byte of its own");
        drop(body);
        let held = client.held_bytes() - before;
        assert!((11_998..12_006).contains(&held), "{held}: what was handed over, but not what is shared");
        drop(kept);
        assert_eq!(client.held_bytes(), before);
    }

    /// A body that ends prematurely.
    struct Incomplete;

    impl Body for Incomplete {
        type Data = Bytes;
        type Error = CutOff;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(Some(Err(CutOff)))
        }
    }

    impl HeldBody for Incomplete {
        fn held_bytes(&self) -> usize {
            0
        }

        fn is_open_ended(&self) -> bool {
            false
        }

        fn too_many_requests() -> Response<Self> {
            Response::new(Self)
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_ends_with_an_error() {
        let admitted = lone_client();
        let client = admitted.client();
        let answer = SendingBody::answer(client, client.begin(), Response::new(Incomplete), true).unwrap();
        let ended = answer.into_body().frame().await;
        assert!(matches!(ended, Some(Err(StreamError::CutOff(_)))));
    }

    #[tokio::test]
    async fn a_piece_that_nobody_takes_ends_its_stream() {
        const SHORT: Duration = Duration::from_millis(20);
        let admitted = lone_client();
        let handover = Arc::new(Handover::default());
        let patience = WindowPatience { anonymous: SHORT, authenticated: SHORT };
        let (watched, reached) = (Arc::clone(&handover), Arc::new(AtomicBool::new(false)));
        let at_the_last = Arc::clone(&reached);
        let stream = async move {
            watched.handed();
            watched.asked();
            // The stream waits for data to send, not for its peer.
            tokio::time::sleep(SHORT * 5).await;
            watched.handed();
            at_the_last.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        serve(stream, handover, Arc::clone(admitted.client()), patience).await;
        assert!(reached.load(Ordering::Relaxed));
    }
}
