//! Common parts of kubegc's own endpoints: shared paths, the bound on request bodies, and failures.

use serde_json::{Value, json};

/// Path of the clock of the collectors that run beside the server.
pub const CLOCK: &str = "/kubegc/v1/clock";
/// Path of the deletions that a server was asked for and keeps.
pub const DELETIONS: &str = "/kubegc/v1/deletions";
/// Largest order or query, in bytes.
pub const MAXIMUM_ORDER_BYTES: usize = 64 * 1024;

/// 405.
#[must_use]
pub fn not_allowed() -> (u16, Value) {
    let message = "the server does not allow this method on the requested resource";
    (405, status(405, "MethodNotAllowed", message, &json!({})))
}

/// Returns a 400 with this message.
#[must_use]
pub fn refused(message: &str) -> (u16, Value) {
    (400, status(400, "BadRequest", message, &json!({})))
}

/// Returns the Status of a failure.
#[must_use]
pub fn status(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code})
}
