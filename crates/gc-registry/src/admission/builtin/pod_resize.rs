//! PodResizeValidator and NodeDeclaredFeatureValidator.

use gc_types::Quantity;
use serde_json::Value;

use super::quota::pods::totals;
use crate::admission::Request;
use crate::error::{ApiError, Cause, CauseReason};
use crate::kinds::access::{at, integer, list, members, text};
use crate::metadata::meta;
use crate::metadata::quantity;

/// Label with a node's operating system.
const OPERATING_SYSTEM: &str = "kubernetes.io/os";

/// Feature declared by nodes that can change the resources of whole pods.
const RESIZED_PODS: &str = "InPlacePodLevelResourcesVerticalScaling";
/// Feature declared by nodes that can change the resources of init containers.
const RESIZED_INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";

/// Refuses to resize a pod beyond its node's capacity, or on a node that cannot resize pods.
pub(crate) fn check(request: &Request<'_>, new: &Value, _: &mut Vec<String>) -> Result<(), ApiError> {
    if !request.resizes() || old_of_changed(request, new).is_none() {
        return Ok(());
    }
    let node = node(request, new)?;
    let name = meta::name(&node);
    let because = |reason: CauseReason, why: &str| {
        let mut error = request.forbidden(new, why);
        if let Some(details) = &mut error.details {
            let (message, field) = (String::new(), String::new());
            details.causes.push(Cause { reason: reason.as_str().into(), message, field });
        }
        error
    };
    let system = at(&node, &["metadata", "labels", OPERATING_SYSTEM]).and_then(Value::as_str);
    if let Some(system) = system.filter(|system| *system != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return Err(because(CauseReason::UnsupportedPlatform, &why));
    }
    match beyond(new, &node).as_slice() {
        [] => Ok(()),
        many => {
            let why = format!("node didn't have enough allocatable resources: {}", many.join("; "));
            Err(because(CauseReason::NodeCapacity, &why))
        }
    }
}

/// Refuses changes to a pod that its node does not declare to support.
pub(crate) fn check_features(
    request: &Request<'_>,
    new: &Value,
    _: &mut Vec<String>,
) -> Result<(), ApiError> {
    let is_concerned = request.resizes() || request.writes("", "pods");
    let Some(old) = old_of_changed(request, new).filter(|_| is_concerned) else { return Ok(()) };
    let mut needed = Vec::new();
    if at(new, &["spec", "resources"]) != at(old, &["spec", "resources"]) {
        needed.push(RESIZED_PODS);
    }
    let resizes = |(new, old): (&Value, &Value)| {
        text(old, &["restartPolicy"]) != "Always" && new.get("resources") != old.get("resources")
    };
    let init_containers = |pod| list(pod, &["spec", "initContainers"]).iter();
    if init_containers(new).zip(init_containers(old)).any(resizes) {
        needed.push(RESIZED_INIT_CONTAINERS);
    }
    if needed.is_empty() {
        return Ok(());
    }
    let node = node(request, new)?;
    let declared = list(&node, &["status", "declaredFeatures"]);
    needed.retain(|feature| !declared.iter().any(|declared| declared == feature));
    if needed.is_empty() {
        return Ok(());
    }
    let why = format!(
        "pod update requires features {} which are not available on node {:?}",
        needed.join(", "),
        meta::name(&node)
    );
    Err(request.forbidden(new, &why))
}

/// Returns the previous pod if an update changes the spec of a pod on a node. The generation increases only with the spec.
fn old_of_changed<'a>(request: &Request<'a>, new: &Value) -> Option<&'a Value> {
    let generation = |pod: &Value| integer(pod, &["metadata", "generation"]);
    request
        .old
        .filter(|old| !text(new, &["spec", "nodeName"]).is_empty() && generation(old) != generation(new))
}

/// Returns the node of a pod.
fn node(request: &Request<'_>, pod: &Value) -> Result<Value, ApiError> {
    let name = text(pod, &["spec", "nodeName"]);
    let node = request.read("", "nodes", "", name)?;
    node.ok_or_else(|| request.forbidden(pod, &format!("node {name:?} not found")))
}

/// Returns the resources of which a pod requests more than its node has.
fn beyond(pod: &Value, node: &Value) -> Vec<String> {
    let (requests, _) = totals(pod);
    let allocatable = members(node, &["status", "allocatable"]);
    let units: [(&str, fn(Quantity) -> i128); 2] =
        [("cpu", Quantity::milli_value), ("memory", Quantity::value)];
    units
        .into_iter()
        .filter_map(|(name, number)| {
            let requested = requests.get(name).copied().unwrap_or_default();
            let has = allocatable.and_then(|list| quantity::of(list.get(name)?)?.ok()).unwrap_or_default();
            let text = || format!("{name}, requested: {}, allocatable: {}", number(requested), number(has));
            requested.exceeds(has).then(text)
        })
        .collect()
}
