//! Calling webhooks: those of admission, and those of conversion.

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use gc_registry::dynamic::{Outside, WebhookCall};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::transport::dial::{Peer, Trust, dial};

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
    let name = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let address = call.address.clone().unwrap_or_else(|| (name.clone(), port));
    let peer = Peer { name, address, trust: Trust::Authorities(call.ca_bundle.clone()) };
    let mut connection = dial(&peer, None).await?;
    exchange(&mut connection.sender, &uri, call).await
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
