//! TaintNodesByCondition.

use serde_json::{Value, json};

use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::child;

/// Taints a new node, so that it gets no pods until its controller has found it ready.
#[allow(clippy::unnecessary_wraps)] // all plugins have one form
pub(crate) fn taint(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.creates("", "nodes") {
        return Ok(());
    }
    let Some(spec) = new.as_object_mut().and_then(|members| child(members, "spec")) else { return Ok(()) };
    let taints = spec.entry("taints").or_insert(Value::Null);
    if taints.is_null() {
        *taints = json!([]);
    }
    if let Some(taints) = taints.as_array_mut() {
        let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let same = |taint: &Value| {
            taint.get("key") == not_ready.get("key") && taint.get("effect") == not_ready.get("effect")
        };
        if !taints.iter().any(same) {
            taints.push(not_ready);
        }
    }
    Ok(())
}
