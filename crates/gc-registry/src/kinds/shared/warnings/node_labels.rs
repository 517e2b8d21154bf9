//! Warnings about node labels that have newer names, wherever nodes are selected.

use serde_json::Value;

use crate::kinds::access::{at, list, text};
use crate::metadata::names::label_value;

/// Returns upstream's message about a node label that it no longer uses.
pub(crate) fn message(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

/// Returns the old labels among the keys of a map, with their messages.
pub(crate) fn in_map(map: Option<&Value>) -> impl Iterator<Item = (&String, &'static str)> + use<'_> {
    let members = map.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(label, _)| Some((label, message(label)?)))
}

/// Checks a term of a node selector; with `values`, also for values that no label can have.
pub(crate) fn in_term(path: &str, term: &Value, values: bool, texts: &mut Vec<String>) {
    for (index, expression) in list(term, &["matchExpressions"]).iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let key = text(expression, &["key"]);
        if let Some(message) = message(key) {
            texts.push(format!("{path}.key: {key} is {message}"));
        }
        if values {
            for (index, value) in list(expression, &["values"]).iter().filter_map(Value::as_str).enumerate() {
                let problems = label_value(value).into_iter();
                texts.extend(
                    problems.map(|problem| format!("{path}.values[{index}]: {value} is invalid, {problem}")),
                );
            }
        }
    }
}

/// Checks a label selector for nodes.
pub(crate) fn in_selector(path: &str, selector: Option<&Value>, texts: &mut Vec<String>) {
    let Some(selector) = selector else { return };
    in_term(path, selector, false, texts);
    let labels = in_map(at(selector, &["matchLabels"]));
    texts.extend(labels.map(|(label, message)| format!("{path}.matchLabels.{label}: {message}")));
}
