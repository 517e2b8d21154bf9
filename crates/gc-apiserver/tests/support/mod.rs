//! A server on loopback, and a client that talks to it over real HTTPS.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

pub mod crowd;
pub mod raw_http2;
pub mod victim;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gc_apiserver::{Clock, Extension, RunningServer, Server, ServerConfig};
use gc_registry::storage::Storage;
use gc_registry::{Config, Registry};
use gc_store::MemoryStorage;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The administrator's token.
pub const TOKEN: &str = "test-token";

pub struct TestServer {
    pub server: RunningServer,
    roots: rustls::RootCertStore,
}

/// An answer with its complete body.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.bytes))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns code and reason of a Status.
    pub fn outcome(&self) -> (u16, String) {
        let reason = serde_json::from_slice::<Value>(&self.bytes).ok();
        let reason = reason.and_then(|status| status["reason"].as_str().map(str::to_owned));
        (self.code, reason.unwrap_or_default())
    }
}

impl TestServer {
    pub async fn start() -> Self {
        Self::start_at(Clock::default()).await
    }

    /// Starts a server whose objects are stamped by this clock.
    pub async fn start_at(clock: Clock) -> Self {
        Self::start_over(Arc::new(MemoryStorage::default()), clock).await
    }

    /// Starts a server over this store.
    pub async fn start_over(storage: Arc<dyn Storage>, clock: Clock) -> Self {
        Self::begin(storage, clock, None).await
    }

    /// Starts a server with further paths.
    pub async fn start_with(extension: Arc<dyn Extension>) -> Self {
        Self::begin(Arc::new(MemoryStorage::default()), Clock::default(), Some(extension)).await
    }

    async fn begin(storage: Arc<dyn Storage>, clock: Clock, extension: Option<Arc<dyn Extension>>) -> Self {
        let settings = Config { aggregates_roles: true, ..Config::default() };
        let opening = tokio::task::spawn_blocking(move || Registry::open(storage, settings));
        let registry = opening.await.unwrap().unwrap();
        let config = ServerConfig {
            admin_token: Some(TOKEN.into()),
            clock,
            extension,
            flags: [("feature-gates".to_owned(), "A=true".to_owned())].into(),
            ..ServerConfig::at("127.0.0.1:0".parse().unwrap())
        };
        let server = Server::start(config, Arc::new(registry)).await.unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.credentials().ca_pem.as_bytes()).unwrap()).unwrap();
        Self { server, roots }
    }

    /// Opens a TLS connection; with `client_certificate`, presents the administrator's certificate.
    pub async fn connect(&self, protocol: &[u8], client_certificate: bool) -> TlsStream<TcpStream> {
        let credentials = self.server.credentials();
        let shown = client_certificate.then(|| {
            let chain = vec![CertificateDer::from_pem_slice(credentials.certificate_pem.as_bytes()).unwrap()];
            (chain, PrivateKeyDer::from_pem_slice(credentials.key_pem.as_bytes()).unwrap())
        });
        self.connect_as(protocol, shown).await
    }

    /// Opens a TLS connection that presents a certificate.
    pub async fn connect_as(
        &self,
        protocol: &[u8],
        shown: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let mut config = match shown {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.server.address().unwrap()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// Opens an HTTP/2 connection for many requests.
    pub async fn http2(&self) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
        let stream = self.connect(b"h2", false).await;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Sends a request as the administrator and returns the answer before its body is read.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<Incoming> {
        let stream = self.connect(b"http/1.1", false).await;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request(method, path, headers, body)).await.unwrap()
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let (head, body) = self.open(method, path, headers, body).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { code: head.status.as_u16(), headers: head.headers, bytes }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], body.to_string()).await
    }

    /// Creates a ConfigMap in the default namespace.
    pub async fn config_map(&self, name: &str) -> Value {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
        let answer = self.post("/api/v1/namespaces/default/configmaps", &body).await;
        assert_eq!(answer.code, 201, "{answer:?}");
        answer.json()
    }
}

/// Builds a request as the administrator, unless `headers` say otherwise.
pub fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut builder = Request::builder().method(method).uri(path).header("host", "localhost");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        builder = builder.header("authorization", format!("Bearer {TOKEN}"));
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Full::new(body.into())).unwrap()
}

/// Reader of the lines of a streamed JSON body.
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    pub fn new(response: http::Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), buffer: Vec::new() }
    }

    /// Returns the next event; `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await {
                Some(frame) => self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default()),
                None => return None,
            }
        }
    }

    /// Returns type and name of the next event.
    pub async fn next_name(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text =
            |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/type"), text("/object/metadata/name"))
    }
}

/// Returns the CPU time of all threads of this process, on which other processes have little effect.
pub fn work() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // USER_HZ is 100 on every Linux.
    Duration::from_millis(10 * ticks)
}
