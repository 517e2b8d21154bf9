//! RuntimeClass.

use serde_json::{Map, Value};

use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::{at, child, list, members};
use crate::metadata::names::path_segment;
use crate::metadata::quantity;

/// Returns the class of a pod, if it has one.
fn class(request: &Request<'_>, pod: &Value) -> Result<Option<Value>, ApiError> {
    let Some(name) = at(pod, &["spec", "runtimeClassName"]).and_then(Value::as_str) else { return Ok(None) };
    // Upstream's plugin sends a request to its own server, and the client refuses names that no path can contain.
    if name.is_empty() {
        return Err(ApiError::new(500, "", "resource name may not be empty"));
    }
    let problems = path_segment(name);
    if !problems.is_empty() {
        let why = format!("invalid resource name {name:?}: [{}]", problems.join(" "));
        return Err(ApiError::new(500, "", why));
    }
    let found = request.read("node.k8s.io", "runtimeclasses", "", name)?;
    let missing = || request.forbidden(pod, &format!("pod rejected: RuntimeClass {name:?} not found"));
    found.map(Some).ok_or_else(missing)
}

/// Adds the overhead and the scheduling rules of the class.
pub(crate) fn complete(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.creates("", "pods") {
        return Ok(());
    }
    let Some(class) = class(request, new)? else { return Ok(()) };
    if let Some(overhead) = at(&class, &["overhead", "podFixed"]) {
        check_overhead(request, new, overhead)?;
    }
    let selector = members(&class, &["scheduling", "nodeSelector"]);
    for (key, value) in selector.into_iter().flatten() {
        let given = at(new, &["spec", "nodeSelector", key]);
        if let Some(given) = given.filter(|given| *given != value) {
            let shown = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                shown(value),
                shown(given)
            );
            return Err(request.forbidden(new, &why));
        }
    }
    let Some(spec) = new.as_object_mut().and_then(|members| child(members, "spec")) else { return Ok(()) };
    if let Some(overhead) = at(&class, &["overhead", "podFixed"]) {
        spec.insert("overhead".into(), overhead.clone());
    }
    if let (Some(selector), Some(ours)) =
        (selector, child(spec, "nodeSelector").filter(|_| selector.is_some()))
    {
        ours.extend(selector.clone());
    }
    let tolerations = list(&class, &["scheduling", "tolerations"]);
    if !tolerations.is_empty() {
        let ours = spec.entry("tolerations").or_insert_with(|| Value::Array(Vec::new()));
        if let Some(ours) = ours.as_array_mut() {
            for toleration in tolerations {
                if !ours.contains(toleration) {
                    ours.push(toleration.clone());
                }
            }
        }
    }
    Ok(())
}

/// Checks that a pod has the overhead of its class, and none without a class.
pub(crate) fn check(request: &Request<'_>, new: &Value, _: &mut Vec<String>) -> Result<(), ApiError> {
    if !request.creates("", "pods") {
        return Ok(());
    }
    let class = class(request, new)?;
    match class.as_ref().and_then(|class| at(class, &["overhead", "podFixed"])) {
        Some(overhead) => check_overhead(request, new, overhead),
        None if at(new, &["spec", "overhead"]).is_some() => Err(request.forbidden(
            new,
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )),
        None => Ok(()),
    }
}

fn check_overhead(request: &Request<'_>, pod: &Value, overhead: &Value) -> Result<(), ApiError> {
    let amounts = |list: &Map<String, Value>| -> Vec<(String, Option<i128>)> {
        let milli = |value: &Value| Some(quantity::of(value)?.ok()?.milli_value());
        list.iter().map(|(name, value)| (name.clone(), milli(value))).collect()
    };
    let given = members(pod, &["spec", "overhead"]);
    if given.is_some_and(|given| overhead.as_object().is_none_or(|wanted| amounts(given) != amounts(wanted)))
    {
        let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        return Err(request.forbidden(pod, why));
    }
    Ok(())
}
