//! Calling webhooks: those of admission, and those of conversion.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use gc_registry::dynamic::{Outside, WebhookCall};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;

/// The largest answer of a webhook in bytes.
const LARGEST_ANSWER: usize = 3 * 1024 * 1024;

/// How much longer than its own timeout a call is waited for, before the runtime is taken for dead.
const GRACE: Duration = Duration::from_secs(2);

/// Calls webhooks on a runtime, for threads that may block.
pub(crate) struct Webhooks(Handle);

impl Webhooks {
    /// On the runtime of the caller.
    pub(crate) fn new() -> Self {
        Self(Handle::current())
    }
}

impl Outside for Webhooks {
    fn call(&self, calls: &[WebhookCall]) -> Vec<Result<Value, String>> {
        let waiting: Vec<(Duration, mpsc::Receiver<_>)> = calls
            .iter()
            .map(|call| {
                let timeout = Duration::from_secs(call.timeout_seconds.into());
                let (done, waiting) = mpsc::sync_channel(1);
                let call = call.clone();
                self.0.spawn(async move {
                    let answer = tokio::time::timeout(timeout, ask(&call)).await;
                    let answer = answer.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
                    // Nobody waits any more where this fails.
                    let _ = done.send(answer.map_err(|why| format!("Post {:?}: {why}", call.url)));
                });
                (timeout + GRACE, waiting)
            })
            .collect();
        let answers = waiting.into_iter();
        answers
            .map(|(timeout, waiting)| {
                waiting.recv_timeout(timeout).unwrap_or_else(|_| Err("the call was not finished".to_owned()))
            })
            .collect()
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) {
        // It reports to whoever waits for it.
        drop(self.0.spawn_blocking(work));
    }
}

async fn ask(call: &WebhookCall) -> Result<Value, String> {
    let uri: Uri = call.url.parse().map_err(|why| format!("the URL cannot be read: {why}"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let (to, to_port) = call.address.clone().unwrap_or_else(|| (host.clone(), port));
    let stream = TcpStream::connect((to.as_str(), to_port))
        .await
        .map_err(|why| format!("dial tcp {to}:{to_port}: connect: {}", shown(&why)))?;
    let name = ServerName::try_from(host).map_err(|why| format!("tls: {why}"))?;
    let tls = TlsConnector::from(Arc::new(client_config(&call.ca_bundle)?));
    let stream = tls.connect(name, stream).await.map_err(|why| format!("tls: {why}"))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
    let serving = tokio::spawn(connection);
    let answer = exchange(&mut sender, &uri, call).await;
    serving.abort();
    answer
}

async fn exchange(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    uri: &Uri,
    call: &WebhookCall,
) -> Result<Value, String> {
    let body = serde_json::to_vec(&call.body).map_err(|why| why.to_string())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, uri.authority().map_or("", |authority| authority.as_str()))
        .header(CONTENT_TYPE, "application/json")
        .header("accept", "application/json, */*")
        .header("user-agent", "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(|why| why.to_string())?;
    let response = sender.send_request(request).await.map_err(|why| why.to_string())?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST_ANSWER);
    let bytes = body.collect().await.map_err(|why| why.to_string())?.to_bytes();
    if !status.is_success() {
        /// Characters of an error page that are shown.
        const SHOWN: usize = 200;
        let text: String = String::from_utf8_lossy(&bytes).chars().take(SHOWN).collect();
        return Err(format!("the webhook answered {status}: {}", text.trim()));
    }
    serde_json::from_slice(&bytes).map_err(|why| format!("the answer is no JSON: {why}"))
}

/// Trusts the authorities of the bundle alone.
fn client_config(bundle: &[u8]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|why| format!("caBundle cannot be read: {why}"))?;
        roots.add(certificate).map_err(|why| format!("caBundle cannot be used: {why}"))?;
    }
    if roots.is_empty() {
        return Err("tls: caBundle names no authority, and this server trusts no other".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config.map_err(|why| why.to_string())?.with_root_certificates(roots).with_no_client_auth())
}

/// An error of a connection in the words of Go, where it is a common one.
fn shown(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}
