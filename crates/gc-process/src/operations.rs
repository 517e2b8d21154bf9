//! The small HTTP server of a collector: `/metrics`, `/healthz`, `/livez`, `/readyz`, and the pages that a collector adds.
//!
//! On a loopback address, everybody who can reach it may read everything. On any other address it speaks TLS, and everything but
//! health is for users with permission for the path (`nonResourceURLs`), as with Kubernetes' own components.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use futures::future::BoxFuture;
use gc_apiserver::exposition;
use gc_apiserver::{ExtensionAnswer, ExtensionBody, Listener, ListenerTls, Peer};
use gc_kube::ApiClient;
use http::{Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::UsageError;
use crate::guard;
use crate::reviews::{ReviewError, Reviews};

/// Maximum number of connections; for one more, an idle one is closed.
const MAX_CONNECTIONS: usize = 512;
/// Paths that are open to everybody: kubelets send no credentials.
const HEALTH_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// Maximum number of further pages that are rendered at a time.
const PAGES_AT_ONCE: usize = 4;
/// Media type of text.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Content of the server's pages.
#[derive(Clone)]
pub struct OperationsPages {
    /// Metrics.
    pub metrics: Arc<Registry>,
    /// `true` once the first passes are done.
    pub ready: Arc<AtomicBool>,
    /// Further pages.
    pub pages: Option<Arc<dyn Pages>>,
}

/// Response of a page: ready at once, or after asking something else.
pub enum PageAnswer {
    /// A document of this media type.
    Document(&'static str, String),
    /// Response that this future returns.
    Asked(BoxFuture<'static, ExtensionAnswer>),
}

/// Pages that a collector adds. Called on the server's tasks; a slow response delays only its client.
pub trait Pages: Send + Sync {
    /// Updates the metrics before they are shown.
    fn refresh(&self);
    /// Returns the reason why the process should be restarted, if it should.
    fn unhealthy(&self) -> Option<String>;
    /// Returns the reason why the process is not ready, if more is known than that the first pass is not done.
    fn unready(&self) -> Option<String> {
        None
    }
    /// Returns the page at a path, if there is one, for a user (an empty name stands for everybody on this machine).
    fn page(&self, user: &str, path: &str, query: &[(String, String)]) -> Option<PageAnswer>;
    /// Performs a POST to a path, if there is an action for it.
    fn order(&self, _path: &str, _query: &[(String, String)]) -> Option<PageAnswer> {
        None
    }
}

/// Heading of the flags of listeners in help texts.
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
    /// Returns the given certificate, or a new one.
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
        let host = gc_host::host_name();
        Ok(ListenerTls::new(given, &[host])
            .map_err(|error| UsageError::new(format!("--tls-cert-file: {error}")))?)
    }
}

/// Access rule of the pages.
pub enum Protection {
    /// Open to everybody who can reach the server.
    Open,
    /// Only for users with permission, over TLS.
    Reviewed {
        /// Certificate of the server.
        tls: Arc<ListenerTls>,
        /// Authenticator of users; without an API server, no user is known.
        reviews: Option<Box<Reviews>>,
    },
}

impl Protection {
    /// Returns the rule for an address: open on loopback; elsewhere, for users whom the API server of this client knows.
    pub fn of(address: SocketAddr, flags: &TlsFlags, client: Option<&ApiClient>) -> Result<Self> {
        if address.ip().to_canonical().is_loopback() {
            return Ok(Self::Open);
        }
        let reviews = client.cloned().map(Reviews::new).map(Box::new);
        Ok(Self::Reviewed { tls: Arc::new(flags.load()?), reviews })
    }

    /// Returns the certificate, if there is one.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<ListenerTls>> {
        match self {
            Self::Open => None,
            Self::Reviewed { tls, .. } => Some(Arc::clone(tls)),
        }
    }

    /// Refuses a request for a path that its user may not read; otherwise returns the name of the user.
    async fn admit(&self, request: &Request<Incoming>, peer: &Peer) -> Result<String, ExtensionAnswer> {
        let path = request.uri().path();
        let Self::Reviewed { reviews, .. } = self else {
            // A browser on this machine also sends requests on behalf of any site that it shows.
            if let Some(why) = guard::foreign(request.headers()) {
                return Err(text(StatusCode::FORBIDDEN, why));
            }
            peer.is_trusted();
            return Ok(String::new());
        };
        if HEALTH_PATHS.contains(&path) {
            return Ok(String::new());
        }
        let unauthorized = |why: &str| {
            let bearer = http::HeaderValue::from_static("Bearer");
            let headers = vec![(http::header::WWW_AUTHENTICATE, bearer)];
            ExtensionAnswer { headers, ..text(StatusCode::UNAUTHORIZED, why.to_owned()) }
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
            peer.was_denied();
            return Err(unauthorized("the API server does not know this token"));
        };
        peer.is_of(&user);
        let verb = request.method().as_str().to_lowercase();
        if reviews.allows_path(&user, &verb, path).await.map_err(unanswered)? {
            return Ok(user.name);
        }
        let why = format!(
            "user {:?} cannot {verb} {path}: a ClusterRole with nonResourceURLs: [{path:?}] and verbs: [{verb:?}] would \
             allow it",
            user.name
        );
        Err(text(StatusCode::FORBIDDEN, why))
    }
}

/// Listens until the process ends. Returns the address, since the given port may be 0.
pub async fn serve(
    address: SocketAddr,
    shown: OperationsPages,
    protection: Arc<Protection>,
) -> Result<SocketAddr> {
    let listener = Listener::new(protection.tls(), MAX_CONNECTIONS);
    let listening = listener.listen(address, move |request, peer| {
        let (shown, protection) = (shown.clone(), Arc::clone(&protection));
        async move {
            match protection.admit(&request, &peer).await {
                Ok(user) => answer(&user, &request, &shown).await,
                Err(refusal) => refusal,
            }
        }
    });
    listening.await.with_context(|| format!("cannot listen on {address}"))
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> ExtensionAnswer {
    let body = ExtensionBody::Whole(text.into());
    ExtensionAnswer { code: code.as_u16(), content_type: PLAIN, headers: Vec::new(), body }
}

async fn answer(user: &str, request: &Request<Incoming>, shown: &OperationsPages) -> ExtensionAnswer {
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
        _ => match further(shown, user, request.method(), request.uri()).await {
            Some(answer) => answer,
            None => text(StatusCode::NOT_FOUND, "not found; try /metrics, /healthz, /livez or /readyz"),
        },
    }
}

/// Renders a further page. A large graph takes a while, so this happens on a separate thread, and only a few run at a time, even
/// after their clients have gone.
async fn further(shown: &OperationsPages, user: &str, method: &Method, uri: &Uri) -> Option<ExtensionAnswer> {
    static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(PAGES_AT_ONCE)));
    let (pages, is_order) = (shown.pages.clone()?, method == Method::POST);
    let (path, query) = (uri.path().to_owned(), gc_apiserver::query_pairs(uri.query().unwrap_or_default()));
    let (user, turn) = (user.to_owned(), Arc::clone(&TURNS).acquire_owned().await.ok()?);
    let find = move || {
        let _turn = turn;
        if is_order { pages.order(&path, &query) } else { pages.page(&user, &path, &query) }
    };
    Some(match tokio::task::spawn_blocking(find).await.ok().flatten()? {
        PageAnswer::Document(content_type, document) => {
            ExtensionAnswer { content_type, ..text(StatusCode::OK, document) }
        }
        PageAnswer::Asked(answer) => answer.await,
    })
}

fn metrics(request: &Request<Incoming>, shown: &OperationsPages) -> ExtensionAnswer {
    let accept = request.headers().get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
    let (content_type, body) = exposition(&shown.metrics, accept);
    ExtensionAnswer { content_type, ..text(StatusCode::OK, body) }
}

#[cfg(test)]
mod tests;
