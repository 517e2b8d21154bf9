//! Calling webhooks: those of admission, and those of conversion.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_registry::dynamic::{
    ConditionsReport, Outside, WebhookAnswer, WebhookCall, WebhookFailure, WebhookReport,
};
use gc_registry::numbers::write_json;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::transport::dial::{Peer, Trust, dial};
use crate::webhook_metrics::WebhookMetrics;

/// The largest answer of a webhook in bytes.
const LARGEST_ANSWER: usize = 3 * 1024 * 1024;

/// How much longer than its own timeout a call is waited for, before the runtime is taken for dead.
const GRACE: Duration = Duration::from_secs(2);

/// Calls webhooks on a runtime, for threads that may block.
pub(crate) struct Webhooks {
    runtime: Handle,
    metrics: WebhookMetrics,
}

impl Webhooks {
    /// On the runtime of the caller.
    pub(crate) fn new(metrics: WebhookMetrics) -> Self {
        Self { runtime: Handle::current(), metrics }
    }
}

impl Outside for Webhooks {
    fn call(&self, calls: &[WebhookCall]) -> Vec<WebhookAnswer> {
        let waiting: Vec<(Duration, mpsc::Receiver<_>)> = calls
            .iter()
            .map(|call| {
                let timeout = Duration::from_secs(call.timeout_seconds.into());
                let (done, waiting) = mpsc::sync_channel(1);
                let call = call.clone();
                self.runtime.spawn(async move {
                    let begun = Instant::now();
                    let answer = tokio::time::timeout(timeout, ask(&call)).await;
                    let answer = answer
                        .unwrap_or_else(|_| Err(WebhookFailure::unavailable("context deadline exceeded")));
                    let result = answer.map_err(|failure| WebhookFailure {
                        message: format!("Post {:?}: {failure}", call.url),
                        ..failure
                    });
                    // The receiver is gone if it stopped waiting.
                    let _ = done.send(WebhookAnswer { result, took: begun.elapsed() });
                });
                (timeout + GRACE, waiting)
            })
            .collect();
        let answers = waiting.into_iter();
        answers
            .map(|(timeout, waiting)| {
                waiting
                    .recv_timeout(timeout)
                    .unwrap_or_else(|_| Err("the call was not finished".to_owned()).into())
            })
            .collect()
    }

    fn report(&self, report: WebhookReport) {
        self.metrics.count(&report);
    }

    fn report_conditions(&self, report: ConditionsReport) {
        self.metrics.count_conditions(&report);
    }

    fn timed(&self, work: &mut dyn FnMut()) -> Duration {
        let begun = Instant::now();
        work();
        begun.elapsed()
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) {
        // It reports to whoever waits for it.
        drop(self.runtime.spawn_blocking(work));
    }
}

async fn ask(call: &WebhookCall) -> Result<Value, WebhookFailure> {
    let unavailable = |why: String| WebhookFailure::unavailable(why);
    let uri: Uri = call.url.parse().map_err(|why| unavailable(format!("the URL cannot be read: {why}")))?;
    let name = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let address = call.address.clone().unwrap_or_else(|| (name.clone(), port));
    let peer = Peer { name, address, trust: Trust::Authorities(call.ca_bundle.clone()) };
    let mut connection = dial(&peer, None).await.map_err(unavailable)?;
    exchange(&mut connection.sender, &uri, call).await
}

async fn exchange(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    uri: &Uri,
    call: &WebhookCall,
) -> Result<Value, WebhookFailure> {
    fn unavailable(why: impl std::fmt::Display) -> WebhookFailure {
        WebhookFailure::unavailable(why.to_string())
    }
    let mut body = Vec::new();
    write_json(&mut body, &call.body).map_err(unavailable)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, uri.authority().map_or("", |authority| authority.as_str()))
        .header(CONTENT_TYPE, "application/json")
        .header("accept", "application/json, */*")
        .header("user-agent", "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(unavailable)?;
    let response = sender.send_request(request).await.map_err(unavailable)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST_ANSWER);
    let bytes = body.collect().await.map_err(unavailable)?.to_bytes();
    if !status.is_success() {
        /// Characters of an error page that are shown.
        const SHOWN: usize = 200;
        let text: String = String::from_utf8_lossy(&bytes).chars().take(SHOWN).collect();
        let message = format!("the webhook answered {status}: {}", text.trim());
        return Err(WebhookFailure { code: status.as_u16(), message });
    }
    serde_json::from_slice(&bytes).map_err(|why| unavailable(format!("the answer is not JSON: {why}")))
}
