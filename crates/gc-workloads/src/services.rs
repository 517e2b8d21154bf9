//! Services: their pods as EndpointSlices and as Endpoints, and the addresses of load balancers.

pub mod balancers;
pub mod endpoints;
pub mod mirroring;
pub mod slices;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, items, text};
use crate::plan::View;
use crate::selector;
use crate::store::Change;
pub use crate::store::SERVICE_NAME;

/// Label that marks a headless Service, which has no address of its own.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Annotation with the time of the change that led to an update.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Annotation with which old clients elect a leader on Endpoints, which no controller touches.
const ELECTION_RECORD: &str = "control-plane.alpha.kubernetes.io/leader";
/// Maximum length of a generated name before its random suffix.
const LONGEST_PREFIX: usize = 252;

/// Reconciles the Services that select a pod, or did before it changed.
fn wake_for_pod(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    if let (Some(before), Some(after)) = (before, after)
        && shown_of(before) == shown_of(after)
    {
        return;
    }
    let Some(pod) = change.object() else { return };
    for service in view.store.in_namespace(Kind::Service, pod.namespace()) {
        if [before, after].into_iter().flatten().any(|pod| selects(service, pod)) {
            keys.push(service.key.clone());
        }
    }
}

/// Returns the part of a pod that is visible behind a Service.
fn shown_of(pod: &Object) -> impl PartialEq {
    let (spec, status) = (pod.spec(), pod.status());
    (
        (pod.labels(), &spec["hostname"], &spec["subdomain"], &spec["nodeName"]),
        (&status["podIPs"], &status["podIP"], pod.ready, pod.finished),
        (&pod.uid, pod.deleting),
    )
}

/// Reports whether a Service selects a pod; one without a selector selects none.
fn selects(service: &Object, pod: &Object) -> bool {
    let wanted = &service.spec()["selector"];
    wanted.is_object() && selector::matches_map(wanted, pod.labels())
}

/// Returns the pods that a Service selects, if it has a selector that applies.
fn pods_behind<'a>(view: &View<'a>, service: &'a Object) -> Option<Vec<&'a Arc<Object>>> {
    let spec = service.spec();
    let wanted = spec["selector"].as_object().filter(|_| spec["type"] != "ExternalName")?;
    Some(view.store.pods_with(&service.key.namespace, wanted).collect())
}

/// Reports whether a pod has an address and its containers have not ended for good.
fn is_reachable(pod: &Object) -> bool {
    let status = pod.status();
    let has_address = !text(&status["podIP"]).is_empty() || items(&status["podIPs"]).next().is_some();
    has_address && !pod.finished
}

/// Returns a pod's host name, if this Service gives it a name in DNS.
fn hostname<'a>(service: &Object, pod: &'a Object) -> Option<&'a str> {
    let spec = pod.spec();
    let named = text(&spec["subdomain"]) == service.name() && !text(&spec["hostname"]).is_empty();
    named.then(|| text(&spec["hostname"]))
}

/// Returns a pod's addresses of one family.
fn addresses(pod: &Object, family: Family) -> Vec<String> {
    let all = items(&pod.status()["podIPs"]).filter_map(|entry| text(&entry["ip"]).parse::<IpAddr>().ok());
    all.filter(|address| Family::of(*address) == family).map(|address| address.to_string()).collect()
}

/// Resolves a Service's port on a pod.
fn port_number(service_port: &Value, pod: &Object) -> Option<i64> {
    let target = &service_port["targetPort"];
    let Some(name) = target.as_str() else { return target.as_i64() };
    let spec = pod.spec();
    let sidecars = items(&spec["initContainers"]).filter(|container| container["restartPolicy"] == "Always");
    let ports = items(&spec["containers"]).chain(sidecars).flat_map(|container| items(&container["ports"]));
    let mut named = ports.filter(|port| port["name"] == name && protocol(port) == protocol(service_port));
    named.next()?["containerPort"].as_i64()
}

fn protocol(port: &Value) -> &str {
    port["protocol"].as_str().unwrap_or("TCP")
}

/// Returns the ports of a Service on a pod, in the form that both kinds of objects use.
fn ports_on(service: &Object, pod: &Object) -> Vec<Value> {
    let ports = items(&service.spec()["ports"]).filter_map(|port| {
        let mut shown = json!({
            "name": text(&port["name"]), "port": port_number(port, pod)?, "protocol": protocol(port),
        });
        if !port["appProtocol"].is_null() {
            shown["appProtocol"] = port["appProtocol"].clone();
        }
        Some(shown)
    });
    let mut ports: Vec<Value> = ports.collect();
    ports.sort_by_key(Value::to_string);
    ports
}

/// Reports whether a Service has an address of its own.
fn has_address(service: &Object) -> bool {
    !matches!(text(&service.spec()["clusterIP"]), "" | "None")
}

/// Returns the reference to a pod in endpoints.
fn target(pod: &Object) -> Value {
    json!({"kind": "Pod", "namespace": pod.namespace(), "name": pod.name(), "uid": &*pod.uid})
}

/// Returns when a pod last began or ceased to be ready.
fn readiness_changed(pod: &Object) -> &Value {
    condition(pod.status(), "Ready").map_or(&Value::Null, |ready| &ready["lastTransitionTime"])
}

/// Returns the prefix of a generated name.
fn name_prefix(name: &str) -> String {
    if name.len() < LONGEST_PREFIX { format!("{name}-") } else { name.to_owned() }
}

/// Family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns `addressType` of an EndpointSlice, and an entry of `ipFamilies`.
    const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the families of a Service, its primary one first.
    fn of_service(service: &Object) -> Vec<Self> {
        let spec = service.spec();
        let named = items(&spec["ipFamilies"]).filter_map(|family| match text(family) {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        });
        let named: Vec<Self> = named.collect();
        if !named.is_empty() {
            return named;
        }
        match text(&spec["clusterIP"]).parse::<IpAddr>() {
            Ok(address) => vec![Self::of(address)],
            Err(_) => vec![Self::V4, Self::V6],
        }
    }
}
