//! A gRPC server over HTTP/2 on a Unix socket, frame by frame, so that a test can break a stream in the middle, answer late, or
//! never.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;

/// Answer to one call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These messages, and success.
    Messages(Vec<Vec<u8>>),
    /// These messages, and then the connection breaks.
    Broken(Vec<Vec<u8>>),
    /// A failure with code and message.
    Failure(u32, String),
    /// No answer, ever.
    Silence,
}

impl Answer {
    pub fn one(message: &impl Message) -> Self {
        Self::Messages(vec![message.encode_to_vec()])
    }

    pub fn failure(code: u32, text: &str) -> Self {
        Self::Failure(code, text.to_owned())
    }
}

/// Answers a call, by its path and its message.
type Answers = dyn Fn(&str, &[u8]) -> Answer + Send + Sync;

/// A server that runs until it is dropped.
pub struct Server {
    socket: PathBuf,
    answers: Arc<Answers>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    pub fn start(socket: PathBuf, answers: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static) -> Self {
        let mut server = Self { socket, answers: Arc::new(answers), runtime: None };
        server.listen();
        server
    }

    /// Stops, closing all connections; after this returns, nothing answers any more.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // On a separate thread, because the test may be asynchronous, where blocking is forbidden.
            let ending =
                std::thread::spawn(move || runtime.shutdown_timeout(std::time::Duration::from_secs(5)));
            ending.join().unwrap();
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Listens (again).
    pub fn listen(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(&self.socket).unwrap()
        };
        let answers = Arc::clone(&self.answers);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answers = Arc::clone(&answers);
                tokio::spawn(async move {
                    let service =
                        hyper::service::service_fn(move |request| serve(Arc::clone(&answers), request));
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        self.runtime = Some(runtime);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

async fn serve(
    answers: Arc<Answers>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let answer = answers(&path, body.get(5..).unwrap_or_default());
    let ok = || -> Result<Frame<Bytes>, std::io::Error> {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        Ok(Frame::trailers(trailers))
    };
    let data = |message: Vec<u8>| Ok(Frame::data(frame(&message)));
    let response = http::Response::builder().header("content-type", "application/grpc");
    let (response, frames) = match answer {
        Answer::Messages(messages) => {
            (response, messages.into_iter().map(data).chain([ok()]).collect::<Vec<_>>())
        }
        Answer::Broken(messages) => {
            let broken = Err(std::io::Error::other("broken on purpose"));
            (response, messages.into_iter().map(data).chain([broken]).collect())
        }
        Answer::Failure(code, text) => {
            (response.header("grpc-status", code.to_string()).header("grpc-message", text), Vec::new())
        }
        Answer::Silence => std::future::pending().await,
    };
    // Each frame separately, so that the frames before a break are really sent.
    let frames = futures::stream::iter(frames).then(|frame| async {
        tokio::task::yield_now().await;
        frame
    });
    response.body(UnsyncBoxBody::new(StreamBody::new(frames))).map_err(std::io::Error::other)
}

/// Encodes gRPC's frame: not compressed, length, message.
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}
