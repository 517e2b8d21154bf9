//! Calls to admission and conversion webhooks.

use std::time::Duration;

use serde_json::Value;

/// Request to a webhook, with its address.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCall {
    /// The URL, with its query.
    pub url: String,
    /// Where to connect to; the host of the URL if there is none.
    pub address: Option<(String, u16)>,
    /// The certificates of authorities that the webhook's own is checked against, as PEM; the system's if empty.
    pub ca_bundle: Vec<u8>,
    /// The time that it has.
    pub timeout: Duration,
    /// The review.
    pub body: Value,
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookAnswer {
    /// The webhook's answer, or why there is none.
    pub result: Result<Value, WebhookFailure>,
    /// The time from the call to the answer.
    pub took: Duration,
}

/// Why a webhook did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WebhookFailure {
    /// The HTTP status of the answer, if it was an error, otherwise 503.
    pub code: u16,
    /// The reason in words.
    pub message: String,
}

impl WebhookFailure {
    /// A webhook that could not be reached, or whose answer cannot be used.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { code: 503, message: message.into() }
    }
}

impl From<Result<Value, String>> for WebhookAnswer {
    /// An answer at once.
    fn from(result: Result<Value, String>) -> Self {
        Self { result: result.map_err(WebhookFailure::unavailable), took: Duration::ZERO }
    }
}

/// A finished call of an admission webhook, as metrics count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookReport {
    /// Name of the webhook.
    pub webhook: String,
    /// `admit` for mutating webhooks, otherwise `validating`.
    pub step: &'static str,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// The time that the call took.
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

/// The match conditions of a webhook or policy that were evaluated for a request, as metrics count them.
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
    /// True if the webhook was not asked because of them.
    pub is_excluded: bool,
    /// The time that the evaluation took, if the conditions did not all hold: upstream observes no other.
    pub took: Option<Duration>,
}

/// Calls what is outside. Calls may block.
pub trait Outside: Send + Sync {
    /// Calls webhooks, several at the same time: one answer for each call, in their order. Ends at once, with failures, when
    /// `time_left` has come to zero.
    fn call(&self, calls: &[WebhookCall], time_left: &dyn Fn() -> Duration) -> Vec<WebhookAnswer>;

    /// Counts a finished call of an admission webhook. Does nothing unless metrics are kept.
    fn report(&self, _: WebhookReport) {}

    /// Counts match conditions that were evaluated. Does nothing unless metrics are kept.
    fn report_conditions(&self, _: ConditionsReport) {}

    /// Does work at once, and returns how long it took.
    fn timed(&self, work: &mut dyn FnMut()) -> Duration {
        work();
        Duration::ZERO
    }

    /// Does work that may block, such as calls, on another thread.
    fn spawn(&self, work: Box<dyn FnOnce() + Send>);
}
