//! The small HTTP server of a collector: `/metrics`, `/healthz`, `/livez`, `/readyz`, and what pages a collector adds.
//!
//! On a loopback address whoever reaches it may read everything. On any other address it speaks TLS, and everything but
//! health is for users with permission for the path (`nonResourceURLs`), as for Kubernetes' own components.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use gc_apiserver::exposition;
use gc_apiserver::{ExtensionAnswer, ExtensionBody, ListenerTls};
use gc_kube::ApiClient;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::UsageError;
use crate::reviews::{ReviewError, Reviews};

/// Connections served at once; more wait.
const MAX_CONNECTIONS: usize = 64;
/// Paths that are open to everybody: kubelets ask without credentials.
const HEALTH_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// Maximum time of a connection without a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Contents of the server's pages.
#[derive(Clone)]
pub struct OperationsPages {
    /// The metrics.
    pub metrics: Arc<Registry>,
    /// `true` once the first passes are done.
    pub ready: Arc<AtomicBool>,
    /// Further pages.
    pub pages: Option<Arc<dyn Pages>>,
}

/// The answer of a page: made at once, or by a question to something else.
pub enum PageAnswer {
    /// A document of this media type.
    Document(&'static str, String),
    /// The answer that this future returns.
    Asked(BoxFuture<'static, ExtensionAnswer>),
}

/// Pages that a collector adds. Called on the server's tasks; a slow answer delays its client only.
pub trait Pages: Send + Sync {
    /// Brings the metrics up to date before they are shown.
    fn refresh(&self);
    /// Why the process should be restarted, if it should.
    fn unhealthy(&self) -> Option<String>;
    /// Why it is not ready, where more is known than that the first pass is not done.
    fn unready(&self) -> Option<String> {
        None
    }
    /// The page at a path, if there is one.
    fn page(&self, path: &str, query: &[(String, String)]) -> Option<PageAnswer>;
    /// Performs a POST to a path, if there is an action for it.
    fn order(&self, _path: &str, _query: &[(String, String)]) -> Option<PageAnswer> {
        None
    }
}

/// The heading of flags of listeners in help texts.
pub const PAGES_HEADING: &str = "Metrics and pages";

/// The certificate of pages on an address that is not loopback.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsFlags {
    /// Certificate chain (PEM) for metrics and pages on an address other than loopback [default: a new self-signed one at
    /// each start]
    #[arg(long, help_heading = PAGES_HEADING, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Key (PEM) of --tls-cert-file
    #[arg(long, help_heading = PAGES_HEADING, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
}

impl TlsFlags {
    /// The certificate that was given, or a new one.
    pub fn load(&self) -> Result<ListenerTls> {
        let read = |flag: &str, file: &PathBuf| {
            std::fs::read(file)
                .map_err(|error| UsageError::new(format!("--{flag} {}: {error}", file.display())))
        };
        let given = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                Some((read("tls-cert-file", certificate)?, read("tls-private-key-file", key)?))
            }
            _ => None,
        };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(ListenerTls::new(given, &[host])
            .map_err(|error| UsageError::new(format!("--tls-cert-file: {error}")))?)
    }
}

/// Access rule of the pages.
pub enum Protection {
    /// Everybody who can reach the server.
    Open,
    /// Users with permission, over TLS.
    Reviewed {
        /// The certificate.
        tls: Arc<ListenerTls>,
        /// Authenticator of users; without an API server no user is known.
        reviews: Option<Reviews>,
    },
}

impl Protection {
    /// For an address: open on loopback; elsewhere for those that the API server of this client knows.
    pub fn of(address: SocketAddr, flags: &TlsFlags, client: Option<&ApiClient>) -> Result<Self> {
        if address.ip().to_canonical().is_loopback() {
            return Ok(Self::Open);
        }
        Ok(Self::Reviewed { tls: Arc::new(flags.load()?), reviews: client.cloned().map(Reviews::new) })
    }

    /// The certificate, if there is one.
    pub fn tls(&self) -> Option<Arc<ListenerTls>> {
        match self {
            Self::Open => None,
            Self::Reviewed { tls, .. } => Some(Arc::clone(tls)),
        }
    }

    /// Refuses a request for a path that is not for its user.
    async fn admit(&self, request: &Request<Incoming>) -> Result<(), Response<Body>> {
        let path = request.uri().path();
        let Self::Reviewed { reviews, .. } = self else { return Ok(()) };
        if HEALTH_PATHS.contains(&path) {
            return Ok(());
        }
        let unauthorized = |why: &str| {
            let mut response = text(StatusCode::UNAUTHORIZED, why.to_owned());
            let bearer = http::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(http::header::WWW_AUTHENTICATE, bearer);
            response
        };
        let header = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let scheme_and_token = header.and_then(|value| value.split_once(' '));
        let token = scheme_and_token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, token)) = token else {
            return Err(unauthorized("a bearer token of the cluster is needed"));
        };
        let Some(reviews) = reviews else {
            return Err(unauthorized(
                "no API server is known that could say whose token it is; see --kubeconfig",
            ));
        };
        let unanswered = |error: ReviewError| {
            tracing::warn!(%error, "a request for a page is refused: it cannot be authenticated");
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server does not say who may read this; see the log",
            )
        };
        let Some(user) = reviews.user(token.trim()).await.map_err(unanswered)? else {
            return Err(unauthorized("the API server does not know this token"));
        };
        let verb = request.method().as_str().to_lowercase();
        if reviews.allows_path(&user, &verb, path).await.map_err(unanswered)? {
            return Ok(());
        }
        let why = format!(
            "user {:?} cannot {verb} {path}: a ClusterRole with nonResourceURLs: [{path:?}] and verbs: [{verb:?}] would \
             allow it",
            user.name
        );
        Err(text(StatusCode::FORBIDDEN, why))
    }
}

/// Listens until the process ends. Returns the address (the port may have been 0).
pub async fn serve(
    address: SocketAddr,
    shown: OperationsPages,
    protection: Arc<Protection>,
) -> Result<SocketAddr> {
    let tls = protection.tls();
    listen(address, tls, MAX_CONNECTIONS, move |request| {
        let (shown, protection) = (shown.clone(), Arc::clone(&protection));
        async move {
            match protection.admit(&request).await {
                Ok(()) => answer(&request, &shown).await,
                Err(refusal) => refusal,
            }
        }
    })
    .await
}

/// Answers requests, over TLS if there is a certificate, until the process ends. Of more than this number of connections, the
/// others wait. Returns the address (the port may have been 0).
pub async fn listen<A>(
    address: SocketAddr,
    tls: Option<Arc<ListenerTls>>,
    most_connections: usize,
    answer: impl Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
) -> Result<SocketAddr>
where
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let bound = listener.local_addr().context("cannot find out the address listened on")?;
    tokio::spawn(
        async move {
            let slots = Arc::new(Semaphore::new(most_connections));
            loop {
                let Ok(slot) = slots.clone().acquire_owned().await else { return };
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (tls, answer) = (tls.clone(), answer.clone());
                tokio::spawn(
                    async move {
                        match tls {
                            None => converse(stream, answer).await,
                            Some(tls) => {
                                // A handshake that fails concerns its client only.
                                if let Ok(stream) = tls.accept(stream).await {
                                    converse(stream, answer).await;
                                }
                            }
                        }
                        drop(slot);
                    }
                    .boxed(),
                );
            }
        }
        .boxed(),
    );
    Ok(bound)
}

async fn converse<S, A>(stream: S, answer: impl Fn(Request<Incoming>) -> A + Send)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let service = hyper::service::service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    let connection = server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // A connection that breaks concerns its client only.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

async fn answer(request: &Request<Incoming>, shown: &OperationsPages) -> Response<Body> {
    match request.uri().path() {
        "/healthz" | "/livez" => match shown.pages.as_ref().and_then(|pages| pages.unhealthy()) {
            None => text(StatusCode::OK, "ok"),
            Some(why) => text(StatusCode::INTERNAL_SERVER_ERROR, why),
        },
        "/readyz" if shown.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok"),
        "/readyz" => {
            let why = shown.pages.as_ref().and_then(|pages| pages.unready());
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                why.unwrap_or_else(|| "the first pass is not done yet".into()),
            )
        }
        "/metrics" => {
            if let Some(pages) = &shown.pages {
                pages.refresh();
            }
            metrics(request, shown)
        }
        _ => match further(shown, request.method(), request.uri()).await {
            Some(answer) => page(answer),
            None => text(StatusCode::NOT_FOUND, "not found; try /metrics, /healthz, /livez or /readyz"),
        },
    }
}

/// Writing out a large graph takes a while: not on a thread that others need.
async fn further(shown: &OperationsPages, method: &Method, uri: &Uri) -> Option<ExtensionAnswer> {
    let (pages, is_order) = (shown.pages.clone()?, method == Method::POST);
    let (path, query) = (uri.path().to_owned(), gc_apiserver::query_pairs(uri.query().unwrap_or_default()));
    let find = move || if is_order { pages.order(&path, &query) } else { pages.page(&path, &query) };
    let answer = tokio::task::spawn_blocking(find).await.ok().flatten()?;
    Some(match answer {
        PageAnswer::Document(content_type, text) => {
            let body = ExtensionBody::Whole(text.into());
            ExtensionAnswer { code: 200, content_type, headers: Vec::new(), body }
        }
        PageAnswer::Asked(answer) => answer.await,
    })
}

/// An answer as it is sent.
pub fn page(answer: ExtensionAnswer) -> Response<Body> {
    let body = match answer.body {
        ExtensionBody::Whole(bytes) => Full::new(bytes).boxed_unsync(),
        ExtensionBody::Shared(body) => Full::new(body.bytes()).boxed_unsync(),
        ExtensionBody::Stream(stream) => {
            StreamBody::new(stream.map(|piece| Ok(Frame::data(piece)))).boxed_unsync()
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(answer.content_type));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    headers.extend(answer.headers);
    response
}

fn metrics(request: &Request<Incoming>, shown: &OperationsPages) -> Response<Body> {
    let accept = request.headers().get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
    let (content_type, body) = exposition(&shown.metrics, accept);
    let mut response = text(StatusCode::OK, body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
