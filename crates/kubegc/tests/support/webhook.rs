//! A webhook over TLS that a test answers for, and that records its requests.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::{TlsAcceptor, rustls};

/// A request to the webhook.
#[derive(Clone, Debug)]
pub struct SentRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl SentRequest {
    /// Returns its body as JSON.
    pub fn body(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

type Answers = Arc<Mutex<dyn FnMut(&SentRequest) -> (u16, Bytes) + Send>>;

/// A webhook that listens until it is dropped.
pub struct Webhook {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<SentRequest>>>,
    folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Webhook {
    /// Status that stands for no response at all.
    pub const SILENCE: u16 = 0;

    /// Listens on a free port of this machine, and answers with the status and body that the closure returns.
    pub fn start(answer: impl FnMut(&SentRequest) -> (u16, Bytes) + Send + 'static) -> Self {
        Self::listen(std::net::TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    /// Listens on this address, and answers with the status and body that the closure returns.
    pub fn listen(
        listener: std::net::TcpListener,
        answer: impl FnMut(&SentRequest) -> (u16, Bytes) + Send + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = listener.local_addr().unwrap();
        let names = ["localhost".to_owned(), address.ip().to_string()];
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certified.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = runtime.block_on(async { tokio::net::TcpListener::from_std(listener) }).unwrap();
        let sent = Arc::<Mutex<Vec<SentRequest>>>::default();
        let answers: Answers = Arc::new(Mutex::new(answer));
        runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&sent), answers));
        Self { address, sent, folder, _runtime: runtime }
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its address with a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// Returns the file of the authority of its certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns a file with a token, surrounded by white space.
    pub fn token(&self, token: &str) -> PathBuf {
        let file = self.folder.path().join("token");
        std::fs::write(&file, format!("{token}\n")).unwrap();
        file
    }

    pub fn sent(&self) -> Vec<SentRequest> {
        self.sent.lock().unwrap().clone()
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    tls: TlsAcceptor,
    sent: Arc<Mutex<Vec<SentRequest>>>,
    answers: Answers,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (tls, sent, answers) = (tls.clone(), Arc::clone(&sent), Arc::clone(&answers));
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                serve(request, Arc::clone(&sent), Arc::clone(&answers))
            });
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    sent: Arc<Mutex<Vec<SentRequest>>>,
    answers: Answers,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let request = SentRequest {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        bytes: body.collect().await?.to_bytes(),
    };
    let (code, body) = (*answers.lock().unwrap())(&request);
    sent.lock().unwrap().push(request);
    if code == Webhook::SILENCE {
        std::future::pending::<()>().await;
    }
    Ok(Response::builder().status(code).body(Full::new(body)).unwrap())
}
