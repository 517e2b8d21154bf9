//! Host ports of pods.

use serde_json::Value;

use crate::object::{Object, int, items, text};
use crate::plan::View;

/// Address that stands for all addresses of a node.
const ALL_ADDRESSES: &str = "0.0.0.0";

/// A port of a node: address, protocol and number.
type HostPort<'a> = (&'a str, &'a str, i64);

/// Returns the host ports that a pod's containers use while it runs.
fn of_pod(pod: &Object) -> impl Iterator<Item = HostPort<'_>> + Clone {
    let spec = pod.spec();
    let sidecars = items(&spec["initContainers"]).filter(|container| container["restartPolicy"] == "Always");
    let ports = items(&spec["containers"]).chain(sidecars).flat_map(|container| items(&container["ports"]));
    ports.map(host_port).filter(|(_, _, number)| *number > 0)
}

fn host_port(port: &Value) -> HostPort<'_> {
    let address = Some(text(&port["hostIP"])).filter(|address| !address.is_empty());
    let protocol = Some(text(&port["protocol"])).filter(|protocol| !protocol.is_empty());
    (address.unwrap_or(ALL_ADDRESSES), protocol.unwrap_or("TCP"), int(&port["hostPort"], 0))
}

/// Reports whether a pod needs a host port that an unfinished pod already uses, among those that `counts` accepts.
pub(super) fn are_taken(
    view: &View<'_>,
    pod: &Object,
    node: &Object,
    counts: impl Fn(&Object) -> bool,
) -> bool {
    let wanted = of_pod(pod);
    if wanted.clone().next().is_none() {
        return false;
    }
    let others = view.store.pods_on(node.name()).filter(|other| !other.finished && counts(other));
    others.flat_map(|other| of_pod(other)).any(|taken| wanted.clone().any(|port| conflict(port, taken)))
}

fn conflict(a: HostPort<'_>, b: HostPort<'_>) -> bool {
    let same_address = a.0 == b.0 || a.0 == ALL_ADDRESSES || b.0 == ALL_ADDRESSES;
    same_address && (a.1, a.2) == (b.1, b.2)
}
