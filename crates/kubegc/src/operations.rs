//! The small HTTP server of a collector: `/metrics`, `/healthz`, `/livez`, `/readyz`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections served at once; more wait.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection without a request is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server shows.
#[derive(Clone)]
pub(crate) struct Shown {
    /// The metrics.
    pub metrics: Arc<Registry>,
    /// Whether the first passes are done.
    pub ready: Arc<AtomicBool>,
    /// What else there is.
    pub pages: Option<Arc<dyn Pages>>,
}

/// One answer beyond metrics and health.
pub(crate) struct Page {
    /// Its media type.
    pub content_type: &'static str,
    /// Its text.
    pub body: String,
}

/// What a particular collector adds. Called on the server's tasks; a slow answer delays its client only.
pub(crate) trait Pages: Send + Sync {
    /// Brings the metrics up to date before they are shown.
    fn refresh(&self);
    /// Why the process should be restarted, if it should.
    fn unhealthy(&self) -> Option<String>;
    /// Why it is not ready, where more is known than that the first pass is not done.
    fn unready(&self) -> Option<String> {
        None
    }
    /// The page at a path, if there is one.
    fn page(&self, path: &str, query: &str) -> Option<Page>;
}

/// Listens until the process ends. Returns the address (the port may have been 0).
pub(crate) async fn serve(address: SocketAddr, shown: Shown) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let bound = listener.local_addr().context("cannot tell the address listened on")?;
    tokio::spawn(async move {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else { continue };
            let shown = shown.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| {
                    let shown = shown.clone();
                    async move { Ok::<_, Infallible>(answer(&request, &shown).await) }
                });
                let mut server = hyper::server::conn::http1::Builder::new();
                let connection = server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
                // A connection that breaks concerns its client only.
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                drop(slot);
            });
        }
    });
    Ok(bound)
}

async fn answer(request: &Request<Incoming>, shown: &Shown) -> Response<Full<Bytes>> {
    let text = |status, text: &str| {
        let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
        *response.status_mut() = status;
        response
    };
    match request.uri().path() {
        "/healthz" | "/livez" => match shown.pages.as_ref().and_then(|pages| pages.unhealthy()) {
            None => text(StatusCode::OK, "ok"),
            Some(why) => text(StatusCode::INTERNAL_SERVER_ERROR, &why),
        },
        "/readyz" if shown.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok"),
        "/readyz" => {
            let why = shown.pages.as_ref().and_then(|pages| pages.unready());
            text(StatusCode::SERVICE_UNAVAILABLE, why.as_deref().unwrap_or("the first pass is not done yet"))
        }
        "/metrics" => {
            if let Some(pages) = &shown.pages {
                pages.refresh();
            }
            metrics(shown)
        }
        path => match further(shown, path, request.uri().query().unwrap_or_default()).await {
            Some(page) => {
                let mut response = text(StatusCode::OK, &page.body);
                let headers = response.headers_mut();
                headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(page.content_type));
                let nosniff = http::HeaderValue::from_static("nosniff");
                headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
                response
            }
            None => text(StatusCode::NOT_FOUND, "not found; try /metrics, /healthz, /livez or /readyz"),
        },
    }
}

/// Writing out a large graph takes a while: not on a thread that others need.
async fn further(shown: &Shown, path: &str, query: &str) -> Option<Page> {
    let pages = shown.pages.clone()?;
    let (path, query) = (path.to_owned(), query.to_owned());
    tokio::task::spawn_blocking(move || pages.page(&path, &query)).await.ok().flatten()
}

fn metrics(shown: &Shown) -> Response<Full<Bytes>> {
    let mut body = String::new();
    let status = match encode(&mut body, &shown.metrics) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
