//! Calls to admission and conversion webhooks.

use std::time::Duration;

use serde_json::Value;

/// Request to a webhook, with its address.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCall {
    /// URL, including its query.
    pub url: String,
    /// Address to connect to; `None` for the host in the URL.
    pub address: Option<(String, u16)>,
    /// Certificates of the authorities that verify the webhook's certificate, in PEM; the system's if empty.
    pub ca_bundle: Vec<u8>,
    /// Time limit.
    pub timeout: Duration,
    /// Review to send.
    pub body: Value,
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookAnswer {
    /// Answer of the webhook, or the reason why there is none.
    pub result: Result<Value, WebhookFailure>,
    /// Time from the call to the answer.
    pub took: Duration,
}

/// Reason why a webhook did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WebhookFailure {
    /// HTTP status of an error answer, otherwise 503.
    pub code: u16,
    /// Description of the failure.
    pub message: String,
}

impl WebhookFailure {
    /// Creates the failure of a webhook that could not be reached, or whose answer is unusable.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { code: 503, message: message.into() }
    }
}

impl From<Result<Value, String>> for WebhookAnswer {
    /// Creates an immediate answer.
    fn from(result: Result<Value, String>) -> Self {
        Self { result: result.map_err(WebhookFailure::unavailable), took: Duration::ZERO }
    }
}

/// A completed call of an admission webhook, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookReport {
    /// Name of the webhook.
    pub webhook: String,
    /// `admit` for mutating webhooks, otherwise `validating`.
    pub step: &'static str,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Duration of the call.
    pub took: Duration,
    /// Consequence for the request.
    pub end: WebhookEnd,
}

/// Consequence of an admission webhook's call for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookEnd {
    /// The webhook allowed the request.
    Allowed,
    /// The webhook refused the request with this code.
    Rejected(u16),
    /// The call failed with this code, and the request with it.
    FailedClosed(u16),
    /// The call failed with this code, which the webhook's failure policy ignores.
    FailedOpen(u16),
    /// The webhook's patch could not be applied.
    NotApplied,
}

/// Evaluation of a webhook's or policy's match conditions for a request, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionsReport {
    /// Name of the webhook or policy.
    pub name: String,
    /// `webhook` or `policy`.
    pub kind: &'static str,
    /// `admit` for mutating webhooks, `validating` for others, `validate` for policies.
    pub step: &'static str,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Number of conditions that could not be evaluated.
    pub errors: usize,
    /// True if the conditions excluded the webhook.
    pub is_excluded: bool,
    /// Duration of the evaluation, if not all conditions held; upstream does not observe others.
    pub took: Option<Duration>,
}

/// Makes outside calls, which may block.
pub trait Outside: Send + Sync {
    /// Calls webhooks concurrently, and returns one answer per call, in order. Ends immediately, with failures, once `time_left`
    /// reaches zero.
    fn call(&self, calls: &[WebhookCall], time_left: &dyn Fn() -> Duration) -> Vec<WebhookAnswer>;

    /// Counts a completed call of an admission webhook. Does nothing unless metrics are kept.
    fn report(&self, _: WebhookReport) {}

    /// Counts an evaluation of match conditions. Does nothing unless metrics are kept.
    fn report_conditions(&self, _: ConditionsReport) {}

    /// Runs work immediately, and returns its duration.
    fn timed(&self, work: &mut dyn FnMut()) -> Duration {
        work();
        Duration::ZERO
    }

    /// Runs work that may block, such as calls, on another thread.
    fn spawn(&self, work: Box<dyn FnOnce() + Send>);
}
