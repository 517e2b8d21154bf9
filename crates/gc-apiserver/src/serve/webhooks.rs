//! Calls admission and conversion webhooks.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_registry::admission::configured::{
    ConditionsReport, Outside, WebhookAnswer, WebhookCall, WebhookFailure, WebhookReport,
};
use gc_registry::numbers::write_json;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT};
use http::response::Parts;
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::encode::decode::answer;
use crate::transport::channels::{Channels, Outgoing, Place, Unread};
use crate::transport::dial::{Peer, Trust};
use crate::webhook_metrics::WebhookMetrics;

/// Extra time that a call is given beyond its own timeout, before the runtime is considered dead.
const GRACE: Duration = Duration::from_secs(2);
/// Period in which a waiting thread checks whether the answer is still needed.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Maximum number of requests per call with redirects, including the first, as in Go.
const MOST_HOPS: usize = 10;
/// Maximum number of retries per call that answers may ask for, as in client-go.
const MOST_RETRIES: usize = 10;

/// Calls webhooks on a runtime, on behalf of threads that may block.
pub(crate) struct Webhooks {
    runtime: Handle,
    metrics: WebhookMetrics,
    channels: Arc<Channels>,
}

impl Webhooks {
    /// Uses the caller's runtime.
    pub(crate) fn new(metrics: WebhookMetrics) -> Self {
        Self { runtime: Handle::current(), metrics, channels: Arc::default() }
    }
}

impl Outside for Webhooks {
    fn call(&self, calls: &[WebhookCall], time_left: &dyn Fn() -> Duration) -> Vec<WebhookAnswer> {
        let waiting: Vec<_> = calls.iter().map(|call| Pending::begin(self, call)).collect();
        waiting.into_iter().map(|pending| pending.wait(time_left)).collect()
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
        // The work reports to its waiter itself.
        drop(self.runtime.spawn_blocking(work));
    }
}

/// A call that has not been answered yet; dropping it cancels the call.
struct Pending {
    task: AbortHandle,
    answer: mpsc::Receiver<WebhookAnswer>,
    begun: Instant,
    timeout: Duration,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pending {
    fn begin(webhooks: &Webhooks, call: &WebhookCall) -> Self {
        let (done, answer) = mpsc::sync_channel(1);
        let (call, timeout, begun) = (call.clone(), call.timeout, Instant::now());
        let channels = Arc::clone(&webhooks.channels);
        let task = webhooks.runtime.spawn(async move {
            let begun = Instant::now();
            let answer = tokio::time::timeout(timeout, ask(&channels, &call)).await;
            let answer =
                answer.unwrap_or_else(|_| Err(FailedCall::at(&call.url, "context deadline exceeded")));
            let result = answer.map_err(|FailedCall(failure)| failure);
            // The receiver is gone if the caller stopped waiting.
            let _ = done.send(WebhookAnswer { result, took: begun.elapsed() });
        });
        Self { task: task.abort_handle(), answer, begun, timeout }
    }

    /// Waits for the answer, at most until the deadline of the request that needs it.
    fn wait(self, time_left: &dyn Fn() -> Duration) -> WebhookAnswer {
        loop {
            let failed = |why: &str| WebhookAnswer {
                result: Err(WebhookFailure::unavailable(why)),
                took: self.begun.elapsed(),
            };
            match self.answer.recv_timeout(LOOK_PERIOD) {
                Ok(answer) => return answer,
                Err(mpsc::RecvTimeoutError::Timeout) if time_left().is_zero() => {
                    return failed("context canceled");
                }
                Err(mpsc::RecvTimeoutError::Timeout) if self.begun.elapsed() < self.timeout + GRACE => {}
                Err(_) => return failed("the call was not finished"),
            }
        }
    }
}

/// A failed call, in the wording of a Go client.
struct FailedCall(WebhookFailure);

impl FailedCall {
    /// Creates the error of a call to a URL that was not answered.
    fn at(url: &str, why: impl std::fmt::Display) -> Self {
        Self(WebhookFailure::unavailable(format!("Post {url:?}: {why}")))
    }
}

/// One request of a call, which may be redirected.
struct Hop<'a> {
    channels: &'a Arc<Channels>,
    call: &'a WebhookCall,
    method: Method,
    uri: Uri,
    body: Bytes,
}

/// Calls a webhook as a Go client does: follows redirects, and retries if the answer says after what time.
async fn ask(channels: &Arc<Channels>, call: &WebhookCall) -> Result<Value, FailedCall> {
    let mut body = Vec::new();
    write_json(&mut body, &call.body).map_err(|why| FailedCall::at(&call.url, why))?;
    let body = Bytes::from(body);
    let mut retries = 0;
    loop {
        let uri: Uri = call
            .url
            .parse()
            .map_err(|why| FailedCall::at(&call.url, format!("the URL cannot be read: {why}")))?;
        let hop = Hop { channels, call, method: Method::POST, uri, body: body.clone() };
        let (head, bytes) = follow(hop).await?;
        let is_busy = head.status == StatusCode::TOO_MANY_REQUESTS || head.status.is_server_error();
        match retry_after(&head.headers).filter(|_| is_busy && retries < MOST_RETRIES) {
            // The call's timeout bounds this pause.
            Some(pause) => tokio::time::sleep(pause).await,
            None => return read(&head, &bytes).map_err(FailedCall),
        }
        retries += 1;
    }
}

/// Returns the time that an answer asks to wait before the next attempt.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: i64 = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Sends a request and follows redirects. An error names the last address.
async fn follow(mut hop: Hop<'_>) -> Result<(Parts, Bytes), FailedCall> {
    let mut hops = 1;
    loop {
        let at = hop.uri.to_string();
        let (head, bytes) = hop.send().await?;
        let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(location) = location.filter(|location| !location.is_empty()) else {
            return Ok((head, bytes));
        };
        match head.status.as_u16() {
            307 | 308 => {}
            301..=303 => {
                hop.method = Method::GET;
                hop.body = Bytes::new();
            }
            _ => return Ok((head, bytes)),
        }
        if hops == MOST_HOPS {
            return Err(FailedCall::at(location, format!("stopped after {MOST_HOPS} redirects")));
        }
        if let Some(scheme) = foreign_scheme(location) {
            return Err(FailedCall::at(location, format!("unsupported protocol scheme {scheme:?}")));
        }
        hop.uri = resolved(&hop.uri, location)
            .ok_or_else(|| FailedCall::at(&at, format!("failed to parse Location header {location:?}")))?;
        hops += 1;
    }
}

/// Returns the scheme of an address, if webhooks cannot be called with it.
fn foreign_scheme(location: &str) -> Option<&str> {
    let (scheme, _) = location.split_once(':').filter(|(scheme, _)| !scheme.contains(['/', '?', '#']))?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (is_scheme && !matches!(scheme, "http" | "https")).then_some(scheme)
}

/// Resolves a `Location` relative to the address that it came from.
fn resolved(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.starts_with("https://") || location.starts_with("http://") {
        return location.parse().ok();
    }
    let scheme = from.scheme_str().unwrap_or("https");
    if location.starts_with("//") {
        return format!("{scheme}:{location}").parse().ok();
    }
    if location.split(['/', '?']).next().is_some_and(|first| first.contains(':')) {
        // The scheme is unknown.
        return None;
    }
    let authority = from.authority()?;
    let target = match location.as_bytes().first() {
        None => from.path_and_query().map_or_else(String::new, ToString::to_string),
        Some(b'/') => location.to_owned(),
        Some(b'?') => format!("{}{location}", from.path()),
        Some(_) => format!("{}/{location}", from.path().rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    let (path, query) = target.split_once('?').map_or((&*target, None), |(path, query)| (path, Some(query)));
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    if path.ends_with("/..") || path.ends_with("/.") {
        segments.push("");
    }
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{scheme}://{authority}/{}{query}", segments.join("/")).parse().ok()
}

impl Hop<'_> {
    async fn send(&self) -> Result<(Parts, Bytes), FailedCall> {
        let is_plain = self.uri.scheme_str() == Some("http");
        let name = self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        // A Service is reached at its endpoint. Its name is the name in the certificate, even after redirects.
        let own: Option<Uri> = self.call.url.parse().ok().filter(|_| self.call.address.is_some());
        let is_own = own.as_ref().is_some_and(|own| own.authority() == self.uri.authority());
        let address = self.call.address.clone().filter(|_| is_own).unwrap_or_else(|| (name.clone(), port));
        let name = own.as_ref().and_then(Uri::host).map_or(name, str::to_owned);
        let peer = Peer { name, address, trust: Trust::Authorities(self.call.ca_bundle.clone()) };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
        if !self.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let (method, uri, body) = (self.method.clone(), self.uri.clone(), self.body.clone());
        // Go uses many HTTP/1.1 connections for a Service, which spreads calls over its endpoints.
        let own = own.or_else(|| self.call.url.parse().ok());
        let offers_http2 =
            self.call.address.is_none() && own.as_ref().and_then(Uri::host).is_some_and(is_loopback);
        let place = Place { peer, is_plain, offers_http2 };
        let answered = self.channels.call(&place, &Outgoing { method, uri, headers, body }).await;
        answered.map_err(|failure| match failure {
            Unread::NoAnswer(why) => FailedCall::at(&self.uri.to_string(), why),
            Unread::BrokenAnswer(why) => FailedCall(WebhookFailure::unavailable(format!(
                "unexpected error when reading response body. Please retry. Original error: {why}"
            ))),
        })
    }
}

/// Reports whether a host name means this machine.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the document in an answer, whatever its content type.
fn read(head: &Parts, bytes: &[u8]) -> Result<Value, WebhookFailure> {
    let code = head.status.as_u16();
    if !(200..=206).contains(&code) {
        return Err(WebhookFailure { code, message: refusal(head, bytes) });
    }
    if bytes.is_empty() {
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let why = format!("0-length response with status code: {code} and content type: {kind}");
        return Err(WebhookFailure::unavailable(why));
    }
    answer(bytes).map_err(WebhookFailure::unavailable)
}

/// Describes an answer with an error as a Go client does: by the message of the Status, if it is one.
fn refusal(head: &Parts, bytes: &[u8]) -> String {
    /// Number of bytes of an error page that are shown.
    const SHOWN: usize = 2048;
    let status: Option<Value> = serde_json::from_slice(bytes).ok();
    let status = status.filter(|status| status["kind"] == "Status" && status["status"] == "Failure");
    if let Some(message) = status.as_ref().and_then(|status| status["message"].as_str()) {
        return message.to_owned();
    }
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_text = kind.is_empty() || kind.starts_with("text/");
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let shown = if is_text { shown.trim() } else { "unknown" };
    let code = head.status.as_u16();
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if shown.is_empty() || shown == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        403 | 406 | 415 => shown.to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing \
                the request"
                .to_owned()
        }
        500.. => format!("an error on the server ({shown:?}) has prevented the request from succeeding"),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::metrics::Metrics;

    /// A webhook that accepts the connection and never answers must not block the thread once its answer is no longer needed.
    #[test]
    fn who_left_is_not_waited_for() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let webhooks = Webhooks::new(Metrics::new().webhooks);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let call = WebhookCall {
            url: format!("https://{}/", listener.local_addr().unwrap()),
            address: None,
            ca_bundle: Vec::new(),
            timeout: Duration::from_hours(1),
            body: Value::Null,
        };
        let answers = webhooks.call(&[call], &|| Duration::ZERO);
        assert_eq!(answers[0].result, Err(WebhookFailure::unavailable("context canceled")));
    }

    #[test]
    fn locations_are_resolved() {
        let from = Uri::from_static("https://h:1/a/b?timeout=10s");
        for (location, wanted) in [
            ("/x", Some("https://h:1/x")),
            ("x?y=z", Some("https://h:1/a/x?y=z")),
            ("../x/./y", Some("https://h:1/x/y")),
            ("..", Some("https://h:1/")),
            ("?c", Some("https://h:1/a/b?c")),
            ("//other/x#f", Some("https://other/x")),
            ("http://other:2/x/", Some("http://other:2/x/")),
            ("", Some("https://h:1/a/b?timeout=10s")),
            ("ftp://other/x", None),
            ("mailto:x", None),
        ] {
            let found = resolved(&from, location).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), wanted, "{location}");
        }
    }
}
