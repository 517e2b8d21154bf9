//! Answers that are errors.

use gc_apiserver::ExtensionAnswer;
use serde_json::{Value, json};

use crate::endpoints::status;
use crate::reviews::ReviewError;

/// An answer that is an error.
pub(super) struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
    pub(super) details: Value,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: json!({}) }
    }

    pub(super) fn answer(self) -> ExtensionAnswer {
        let Self { code, reason, message, details } = self;
        ExtensionAnswer::json(code, &status(code, reason, &message, &details))
    }
}

/// What cannot be reviewed is refused.
impl From<ReviewError> for Refusal {
    fn from(error: ReviewError) -> Self {
        tracing::warn!(%error, "a request for the page is refused: it cannot be reviewed");
        Self::new(503, "ServiceUnavailable", "the API server does not say who may ask; see the log")
    }
}

/// A question or an order that cannot be understood is the caller's mistake, anything else one of the server.
impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let message = format!("{error:#}");
        match () {
            () if error.is::<crate::UsageError>() => Self::new(400, "BadRequest", message),
            () if message.contains("not found") => Self::new(404, "NotFound", message),
            () if message.contains(" is forbidden: ") => Self::new(403, "Forbidden", message),
            () => Self::new(502, "Unanswered", message),
        }
    }
}
