//! LimitRanger.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Quantity;
use serde_json::Value;

use super::quota::pods::{Amounts, amounts, totals};
use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::{child, items, list, members, put, text};

/// Annotation in which the plugin records what it has set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Sets the default requests and limits of containers without them.
pub(crate) fn default_resources(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !(request.creates("", "pods") || request.resizes()) {
        return Ok(());
    }
    for range in request.all("", "limitranges", request.namespace())? {
        let limits = list(&range, &["spec", "limits"]);
        let mut defaults: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
        for limit in limits.iter().filter(|limit| text(limit, &["type"]) == "Container") {
            for (from, to) in [("defaultRequest", "requests"), ("default", "limits")] {
                let found = members(limit, &[from]).into_iter().flatten();
                defaults.entry(to).or_default().extend(found.map(|(name, value)| (name.as_str(), value)));
            }
        }
        let mut said = Vec::new();
        let Some(spec) = new.as_object_mut().and_then(|members| child(members, "spec")) else {
            return Ok(());
        };
        for (kind, word) in [("containers", "container"), ("initContainers", "init container")] {
            for container in items(spec, kind) {
                let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                for (field, what) in [("requests", "request"), ("limits", "limit")] {
                    let set = fill(container, field, defaults.get(field));
                    if !set.is_empty() {
                        said.push(format!("{} {what} for {word} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !said.is_empty() {
            let said = format!("LimitRanger plugin set: {}", said.join("; "));
            put(new, &["metadata", "annotations", ANNOTATION], said.into());
        }
    }
    Ok(())
}

/// Fills in defaults; returns the names of those that were set.
fn fill(
    container: &mut crate::kinds::access::Members,
    field: &str,
    defaults: Option<&BTreeMap<&str, &Value>>,
) -> Vec<String> {
    let mut set = Vec::new();
    let Some(defaults) = defaults.filter(|defaults| !defaults.is_empty()) else { return set };
    let Some(have) = child(container, "resources").and_then(|resources| child(resources, field)) else {
        return set;
    };
    for (name, value) in defaults {
        if !have.contains_key(*name) {
            have.insert((*name).to_owned(), (*value).clone());
            set.push((*name).to_owned());
        }
    }
    set
}

/// Refuses requests and limits outside the bounds.
pub(crate) fn check(request: &Request<'_>, new: &Value, _: &mut Vec<String>) -> Result<(), ApiError> {
    let is_pod = request.creates("", "pods") || request.resizes();
    if !is_pod && !request.writes("", "persistentvolumeclaims") {
        return Ok(());
    }
    for range in request.all("", "limitranges", request.namespace())? {
        let mut problems = Vec::new();
        for limit in list(&range, &["spec", "limits"]) {
            match (text(limit, &["type"]), is_pod) {
                ("Container", true) => {
                    for kind in ["containers", "initContainers"] {
                        for container in list(new, &["spec", kind]) {
                            let has = |field: &str| amounts(members(container, &["resources", field]));
                            bounds("Container", limit, &has("requests"), &has("limits"), &mut problems);
                        }
                    }
                }
                ("Pod", true) => {
                    let (requests, limits) = totals(new);
                    bounds("Pod", limit, &requests, &limits, &mut problems);
                }
                ("PersistentVolumeClaim", false) => {
                    let requests = amounts(members(new, &["spec", "resources", "requests"]));
                    claim(limit, &requests, &mut problems);
                }
                _ => {}
            }
        }
        // Several containers may have the same problem.
        let mut said = BTreeSet::new();
        problems.retain(|problem: &String| said.insert(problem.clone()));
        match problems.as_slice() {
            [] => {}
            [one] => return Err(request.forbidden(new, one)),
            many => return Err(request.forbidden(new, &format!("[{}]", many.join(", ")))),
        }
    }
    Ok(())
}

fn bound(limit: &Value, field: &str) -> Amounts {
    amounts(members(limit, &[field]))
}

fn bounds(kind: &str, limit: &Value, requests: &Amounts, limits: &Amounts, problems: &mut Vec<String>) {
    for (name, least) in bound(limit, "min") {
        let begin = format!("minimum {name} usage per {kind} is {least}");
        match requests.get(&name) {
            None => problems.push(format!("{begin}.  No request is specified")),
            Some(request) if least.exceeds(*request) => {
                problems.push(format!("{begin}, but request is {request}"));
            }
            Some(_) => match limits.get(&name) {
                Some(has) if least.exceeds(*has) => problems.push(format!("{begin}, but limit is {has}")),
                _ => {}
            },
        }
    }
    for (name, most) in bound(limit, "max") {
        let begin = format!("maximum {name} usage per {kind} is {most}");
        match limits.get(&name) {
            None => problems.push(format!("{begin}.  No limit is specified")),
            Some(has) if has.exceeds(most) => problems.push(format!("{begin}, but limit is {has}")),
            Some(_) => match requests.get(&name) {
                Some(request) if request.exceeds(most) => {
                    problems.push(format!("{begin}, but request is {request}"));
                }
                _ => {}
            },
        }
    }
    for (name, most) in bound(limit, "maxLimitRequestRatio") {
        let request = requests.get(&name).copied().unwrap_or_default();
        let has = limits.get(&name).copied().unwrap_or_default();
        let begin = format!("{name} max limit to request ratio per {kind} is {most}");
        if request.is_zero() {
            problems.push(format!("{begin}, but no request is specified or request is 0"));
        } else if has.is_zero() {
            problems.push(format!("{begin}, but no limit is specified or limit is 0"));
        } else if ratio(has, request) > thousandths(most) / THOUSAND {
            problems.push(format!("{begin}, but provided ratio is {:.6}", ratio(has, request)));
        }
    }
}

const THOUSAND: f64 = 1000.0;

/// Converts a quantity to thousandths; the loss of precision for very large ones does not matter to a ratio.
#[allow(clippy::cast_precision_loss)]
fn thousandths(quantity: Quantity) -> f64 {
    quantity.milli_value() as f64
}

fn ratio(limit: Quantity, request: Quantity) -> f64 {
    thousandths(limit) / thousandths(request)
}

fn claim(limit: &Value, requests: &Amounts, problems: &mut Vec<String>) {
    const KIND: &str = "PersistentVolumeClaim";
    for (name, least) in bound(limit, "min") {
        let begin = format!("minimum {name} usage per {KIND} is {least}");
        match requests.get(&name) {
            None => problems.push(format!("{begin}.  No request is specified")),
            Some(has) if least.exceeds(*has) => problems.push(format!("{begin}, but request is {has}")),
            Some(_) => {}
        }
    }
    for (name, most) in bound(limit, "max") {
        let begin = format!("maximum {name} usage per {KIND} is {most}");
        match requests.get(&name) {
            None => problems.push(format!("{begin}.  No request is specified")),
            Some(has) if has.exceeds(most) => problems.push(format!("{begin}, but request is {has}")),
            Some(_) => {}
        }
    }
}
