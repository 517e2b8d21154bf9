//! Error responses.

use gc_apiserver::ExtensionAnswer;
use gc_explain::UnreadCode;
use gc_inspect::unanswered::Cause;
use gc_process::endpoints::status;
use gc_process::reviews::ReviewError;
use serde_json::{Value, json};

/// An error response.
pub(crate) struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
    pub(crate) details: Value,
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: json!({}) }
    }

    pub(crate) fn answer(self) -> ExtensionAnswer {
        let Self { code, reason, message, details } = self;
        ExtensionAnswer::json(code, &status(code, reason, &message, &details))
    }
}

/// A request that cannot be reviewed is refused.
impl From<ReviewError> for Refusal {
    fn from(error: ReviewError) -> Self {
        tracing::warn!(%error, "a request for the page is refused: it cannot be reviewed");
        Self::new(503, "ServiceUnavailable", "the API server does not say who may ask; see the log")
    }
}

/// An invalid question or order is the caller's mistake, anything else the server's.
impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let message = format!("{error:#}");
        if error.is::<gc_process::UsageError>() {
            return Self::new(400, "BadRequest", message);
        }
        match Cause::of(&error) {
            Some(Cause::NotFound) => Self::new(404, "NotFound", message),
            Some(Cause::Unread(UnreadCode::Forbidden)) => Self::new(403, "Forbidden", message),
            Some(Cause::Unread(UnreadCode::TimedOut)) => Self::new(504, "Timeout", message),
            Some(Cause::Unread(_)) | None => Self::new(502, "Unanswered", message),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::anyhow;
    use gc_explain::Unread;

    use super::*;
    use gc_inspect::unanswered::UnansweredReason;

    /// The cause of an error decides, and not its text.
    #[test]
    fn the_cause_of_an_error_decides_and_not_its_words() {
        let unread = |code, message: &str| {
            let why = Unread::new(code, message);
            anyhow::Error::new(UnansweredReason::Unread { what: "pods/a cannot be read".to_owned(), why })
        };
        let table = [
            (gc_process::UsageError::new("not found").into(), (400, "BadRequest")),
            (UnansweredReason::NotFound("pods \"a\" does not exist".to_owned()).into(), (404, "NotFound")),
            (unread(UnreadCode::Forbidden, "no"), (403, "Forbidden")),
            (unread(UnreadCode::ServerError, "500: the file was not found"), (502, "Unanswered")),
            (unread(UnreadCode::NotServed, "x is forbidden: y"), (502, "Unanswered")),
            (unread(UnreadCode::TimedOut, "no answer"), (504, "Timeout")),
            (UnansweredReason::TimedOut(Duration::from_secs(1)).into(), (504, "Timeout")),
            (anyhow!("its cause was not found"), (502, "Unanswered")),
        ];
        for (error, expected) in table {
            let shown = format!("{error:#}");
            let refusal = Refusal::from(error.context("asked"));
            assert_eq!((refusal.code, refusal.reason), expected, "{shown}");
        }
    }
}
