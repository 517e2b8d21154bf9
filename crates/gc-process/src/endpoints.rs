//! Common parts of kubegc's own endpoints: a shared path, the bound of request bodies, and failures.

use serde_json::{Value, json};

/// The clock of the collectors that run beside the server.
pub const CLOCK: &str = "/kubegc/v1/clock";
/// The deletions that a server has been asked for, as it keeps them.
pub const DELETIONS: &str = "/kubegc/v1/deletions";
/// Largest order or inquiry.
pub const MAXIMUM_ORDER_BYTES: usize = 64 * 1024;

/// 405.
#[must_use]
pub fn not_allowed() -> (u16, Value) {
    let message = "the server does not allow this method on the requested resource";
    (405, status(405, "MethodNotAllowed", message, &json!({})))
}

/// 400 with this message.
#[must_use]
pub fn refused(message: &str) -> (u16, Value) {
    (400, status(400, "BadRequest", message, &json!({})))
}

/// The Status of a failure.
#[must_use]
pub fn status(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code})
}
