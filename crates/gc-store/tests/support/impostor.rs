//! A server in place of etcd, whose answers a test chooses. Shared by path.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

/// Body of a response.
pub type Body = BoxBody<Bytes, Infallible>;
/// Answers a call, given the first message of its request.
pub type Responder = Arc<dyn Fn(&[u8]) -> Body + Send + Sync>;
/// Answers by the last segment of the call's path. Other calls get no answer.
pub type Answers = BTreeMap<&'static str, Responder>;

type Requests = BTreeMap<String, Vec<Vec<u8>>>;

/// Length of the prefix of each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Returns a body made of chunks; it ends after them, or never.
pub fn pieces(pieces: Vec<Vec<u8>>, ends: bool) -> Body {
    let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece))));
    if ends {
        return BodyExt::boxed(StreamBody::new(pieces.chain(stream::iter([Ok(status(0, ""))]))));
    }
    BodyExt::boxed(StreamBody::new(pieces.chain(stream::pending())))
}

/// Returns a body whose chunks have a pause before each, and that never ends.
pub fn slowly(pieces: Vec<Vec<u8>>, pause: Duration) -> Body {
    let pieces = stream::iter(pieces).then(move |piece| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(Bytes::from(piece)))
    });
    BodyExt::boxed(StreamBody::new(pieces.chain(stream::pending())))
}

/// Returns a body that repeats the same chunk forever.
pub fn endless(piece: Vec<u8>) -> Body {
    let piece = Bytes::from(piece);
    BodyExt::boxed(StreamBody::new(stream::repeat_with(move || Ok(Frame::data(piece.clone())))))
}

/// Returns a body without a message, which refuses the call with a gRPC status.
pub fn refusal(code: u16, message: &str) -> Body {
    BodyExt::boxed(StreamBody::new(stream::iter([Ok(status(code, message))])))
}

fn status(code: u16, message: &str) -> Frame<Bytes> {
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    trailers.insert("grpc-message", message.parse().unwrap());
    Frame::trailers(trailers)
}

/// Frames a message as gRPC does.
pub fn framed(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[0][..], &u32::try_from(bytes.len()).unwrap().to_be_bytes(), &bytes].concat()
}

/// Returns a body with one message.
pub fn whole(message: &impl Message) -> Body {
    pieces(vec![framed(message)], true)
}

/// Returns a message that announces 4 GiB, and begins.
pub fn enormous() -> Body {
    let start = [&[0][..], &u32::MAX.to_be_bytes(), &[0; 1024]].concat();
    pieces(vec![start], false)
}

/// Gives each call the next of these bodies; further calls get no answer.
pub fn script(bodies: impl IntoIterator<Item = Body>) -> Responder {
    // A body can be sent to another thread, but not shared.
    let left = Mutex::new(bodies.into_iter().collect::<VecDeque<Body>>());
    Arc::new(move |_| left.lock().unwrap().pop_front().unwrap_or_else(|| pieces(Vec::new(), false)))
}

/// An impostor that listens until it is dropped, and records its calls.
pub struct Impostor {
    runtime: Option<tokio::runtime::Runtime>,
    address: SocketAddr,
    requests: Arc<Mutex<Requests>>,
}

impl Impostor {
    pub fn start(answers: Answers) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (answers, requests) = (Arc::new(answers), Arc::<Mutex<Requests>>::default());
        let recorded = Arc::clone(&requests);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answers, recorded) = (Arc::clone(&answers), Arc::clone(&recorded));
                let service = hyper::service::service_fn(move |request| {
                    answer(request, Arc::clone(&answers), Arc::clone(&recorded))
                });
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { runtime: Some(runtime), address, requests }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns how often a call was received.
    pub fn asked(&self, call: &str) -> usize {
        self.requests.lock().unwrap().get(call).map_or(0, Vec::len)
    }

    /// Returns the first message of each request of a call.
    pub fn requests<Q: Message + Default>(&self, call: &str) -> Vec<Q> {
        let requests = self.requests.lock().unwrap();
        let received = requests.get(call).into_iter().flatten();
        received.map(|bytes| Q::decode(bytes.as_slice()).unwrap()).collect()
    }

    /// Waits until a call has been received this often.
    pub fn await_asked(&self, call: &str, times: usize) {
        while self.asked(call) < times {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

async fn answer(
    request: hyper::Request<hyper::body::Incoming>,
    answers: Arc<Answers>,
    requests: Arc<Mutex<Requests>>,
) -> Result<hyper::Response<Body>, http::Error> {
    let call = request.uri().path().rsplit('/').next().unwrap().to_owned();
    // The requests of a watch never end.
    let frame = request.into_body().frame().await.and_then(Result::ok);
    let bytes = frame.and_then(|frame| frame.into_data().ok()).unwrap_or_default();
    let message = bytes.get(PREFIX..).unwrap_or_default().to_vec();
    let answer = answers.get(call.as_str());
    let body = answer.map_or_else(|| pieces(Vec::new(), false), |answer| answer(&message));
    requests.lock().unwrap().entry(call).or_default().push(message);
    hyper::Response::builder().header("content-type", "application/grpc").body(body)
}

impl Drop for Impostor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
