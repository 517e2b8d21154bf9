//! Simulated nodes and the scheduler.

mod admission;
mod devices;
mod host_ports;
pub mod kubelet;
pub mod lifecycle;
pub mod lifetime;
mod reports;
pub mod scheduler;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::object::Object;

/// Label of the nodes that this process simulates; a node without it belongs to a kubelet, or to its creator.
pub const SIMULATED: &str = "kubegc.io/simulated";
/// Annotation that stops a simulated node: its Lease and its pods are left alone.
pub const STOPPED: &str = "kubegc.io/stopped";
/// Annotation with the time after its start at which a simulated pod completes.
pub const COMPLETES_AFTER: &str = "kubegc.io/completes-after";
/// Annotation with the exit code of a simulated pod's containers.
pub const FAILS: &str = "kubegc.io/fails";

/// Annotation with the time after its deletion at which a simulated pod ends, within its grace period.
pub const TERMINATES_AFTER: &str = "kubegc.io/terminates-after";

/// Returns the name of a simulated node.
#[must_use]
pub fn name(number: u32) -> String {
    format!("kubegc-node-{number}")
}

/// Reports whether this process simulates a node that is not stopped.
pub(crate) fn is_kept(node: &Object) -> bool {
    node.annotation(SIMULATED) == Some("true") && node.annotation(STOPPED) != Some("true") && !node.deleting
}

/// Returns the capacity of a simulated node: more than any test needs.
pub(crate) fn capacity() -> Value {
    json!({"cpu": "1k", "memory": "10Ti", "ephemeral-storage": "100Ti", "pods": "200k"})
}

/// Mixes a text to 32 bits, to distribute addresses.
pub(crate) fn spread(text: &str) -> u32 {
    let mut hash = crate::hash::Fnv32a::default();
    hash.write(text.as_bytes());
    hash.finish()
}
