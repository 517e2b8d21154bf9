//! Priority and DefaultTolerationSeconds.

use serde_json::{Value, json};

use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::{at, child, flag, integer, text};
use crate::metadata::meta;

/// Default time for which a pod stays on a node that does not answer, in seconds.
const TOLERATION_SECONDS: i64 = 300;
/// Default preemption policy.
const PREEMPTION: &str = "PreemptLowerPriority";

/// Sets the priority of a pod from its class.
pub(crate) fn set_priority(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.writes("", "pods") {
        return Ok(());
    }
    if let Some(old) = request.old {
        keep_priority(new, old);
        return Ok(());
    }
    let name = text(new, &["spec", "priorityClassName"]).to_owned();
    let class = if name.is_empty() {
        // If there are several because of a race, the one with the lowest value applies.
        let classes = request.all("scheduling.k8s.io", "priorityclasses", "")?;
        let defaults = classes.into_iter().filter(|class| flag(class, &["globalDefault"]) == Some(true));
        defaults.min_by_key(|class| integer(class, &["value"]).unwrap_or_default())
    } else {
        let class = request.read("scheduling.k8s.io", "priorityclasses", "", &name)?;
        let missing = || request.forbidden(new, &format!("no PriorityClass with name {name} was found"));
        Some(class.ok_or_else(missing)?)
    };
    let priority = class.as_ref().and_then(|class| integer(class, &["value"])).unwrap_or_default();
    let policy =
        class.as_ref().map(|class| text(class, &["preemptionPolicy"])).filter(|policy| !policy.is_empty());
    let policy = policy.unwrap_or(PREEMPTION).to_owned();
    let computed = "priority admission controller computed";
    if let Some(given) = integer(new, &["spec", "priority"]).filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; {computed} {priority} from the \
             given PriorityClass name"
        );
        return Err(request.forbidden(new, &why));
    }
    // The field is a pointer, so an empty text counts as a value.
    let given = at(new, &["spec", "preemptionPolicy"]).and_then(Value::as_str);
    if let Some(given) = given.filter(|given| *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; {computed} {policy} from \
             the given PriorityClass name"
        );
        return Err(request.forbidden(new, &why));
    }
    if let Some(spec) = new.as_object_mut().and_then(|members| child(members, "spec")) {
        if let Some(class) = class {
            spec.insert("priorityClassName".into(), meta::name(&class).into());
        }
        spec.insert("priority".into(), priority.into());
        spec.insert("preemptionPolicy".into(), policy.into());
    }
    Ok(())
}

/// Keeps the priority if an update omits it.
fn keep_priority(new: &mut Value, old: &Value) {
    let Some(spec) = new.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    for name in ["priority", "preemptionPolicy"] {
        if let (false, Some(value)) = (spec.contains_key(name), at(old, &["spec", name])) {
            spec.insert(name.into(), value.clone());
        }
    }
}

/// Refuses a second default class.
pub(crate) fn check_default_class(
    request: &Request<'_>,
    new: &Value,
    _: &mut Vec<String>,
) -> Result<(), ApiError> {
    const RESOURCE: (&str, &str) = ("scheduling.k8s.io", "priorityclasses");
    if !request.writes(RESOURCE.0, RESOURCE.1) || flag(new, &["globalDefault"]) != Some(true) {
        return Ok(());
    }
    let classes = request.all(RESOURCE.0, RESOURCE.1, "")?;
    let other = classes
        .iter()
        .find(|class| flag(class, &["globalDefault"]) == Some(true) && meta::name(class) != meta::name(new));
    match other {
        None => Ok(()),
        Some(other) => {
            let name = meta::name(other);
            let why =
                format!("PriorityClass {name} is already marked as default. Only one default can exist");
            Err(request.forbidden(new, &why))
        }
    }
}

/// Adds tolerations, so that pods survive short failures of their node. They are restored if an update drops them.
#[allow(clippy::unnecessary_wraps)] // all plugins have one form
pub(crate) fn tolerate(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.writes("", "pods") {
        return Ok(());
    }
    let Some(spec) = new.as_object_mut().and_then(|members| child(members, "spec")) else { return Ok(()) };
    let list = spec.entry("tolerations").or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return Ok(()) };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_tolerated = list.iter().any(|toleration| {
            let text = |key: &str| at(toleration, &[key]).and_then(Value::as_str).unwrap_or_default();
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
        });
        if !is_tolerated {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
    Ok(())
}
