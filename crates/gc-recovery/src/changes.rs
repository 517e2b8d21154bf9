//! Requests that change something, one at a time.

use gc_kube::ApiClient;
use gc_process::preflight;
use http::{Method, StatusCode};
use serde_json::Value;

/// Media type of the patches.
const MERGE: &str = "application/merge-patch+json";

/// Reason why a request changed nothing, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The server refused it.
    #[error("{code}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// Message of the server.
        message: String,
    },
    /// There was no response.
    #[error("{0}")]
    Unanswered(String),
}

impl ChangeError {
    /// Reports whether it was refused with this status.
    pub(crate) fn is(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted.as_u16())
    }
}

/// Sends a request with a document, and returns the document in the response.
pub(crate) async fn send(
    client: &ApiClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, ChangeError> {
    let request = match body {
        Some(body) if method == Method::PATCH => preflight::patch(path, MERGE, body),
        body => preflight::request(method, path, body),
    };
    let answer =
        client.call(request).await.map_err(|error| ChangeError::Unanswered(preflight::one_line(&error)))?;
    if answer.head.status.is_success() {
        return Ok(serde_json::from_slice(&answer.body).unwrap_or_default());
    }
    Err(ChangeError::Refused { code: answer.head.status.as_u16(), message: preflight::message(&answer) })
}
