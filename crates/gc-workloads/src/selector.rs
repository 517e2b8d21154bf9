//! Selectors of labels and of nodes, as objects carry them.

use serde_json::{Value, json};

use crate::object::{Object, items};

/// Reports whether a `LabelSelector` selects these labels. An empty one selects everything, a missing or invalid one nothing.
#[must_use]
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else { return false };
    let equal = selector.get("matchLabels").is_none_or(|wanted| matches_map(wanted, labels));
    equal
        && selector
            .get("matchExpressions")
            .is_none_or(|all| items(all).all(|requirement| matches_requirement(requirement, labels)))
}

/// Reports whether labels contain all entries of a map, the form of selectors in Services and ReplicationControllers.
#[must_use]
pub fn matches_map(wanted: &Value, labels: &Value) -> bool {
    wanted.as_object().is_none_or(|wanted| wanted.iter().all(|(name, value)| labels.get(name) == Some(value)))
}

/// Reports whether labels match one `matchExpressions` entry. Also supports the operators of node selectors.
#[must_use]
pub fn matches_requirement(requirement: &Value, labels: &Value) -> bool {
    let key = requirement["key"].as_str().unwrap_or_default();
    let present = labels.get(key);
    let listed = || items(&requirement["values"]).any(|value| Some(value) == present);
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<i64>().ok());
    let compared = |order: std::cmp::Ordering| {
        let limit = requirement["values"].get(0).and_then(number);
        present.and_then(number).zip(limit).is_some_and(|(value, limit)| value.cmp(&limit) == order)
    };
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => present.is_some() && listed(),
        "NotIn" => present.is_none() || !listed(),
        "Exists" => present.is_some(),
        "DoesNotExist" => present.is_none(),
        "Gt" => compared(std::cmp::Ordering::Greater),
        "Lt" => compared(std::cmp::Ordering::Less),
        _ => false,
    }
}

/// Reports whether a selector has no requirements.
#[must_use]
pub fn selects_all(selector: &Value) -> bool {
    let is_empty = |name: &str| match &selector[name] {
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => true,
    };
    selector.is_object() && is_empty("matchLabels") && is_empty("matchExpressions")
}

/// Reports whether a `NodeSelector`, if there is one, selects a node.
pub(crate) fn selects_terms(required: &Value, node: &Object) -> bool {
    required.is_null() || items(&required["nodeSelectorTerms"]).any(|term| matches_term(term, node))
}

fn matches_term(term: &Value, node: &Object) -> bool {
    let fields = json!({"metadata.name": node.name()});
    let (expressions, by_field) = (items(&term["matchExpressions"]), items(&term["matchFields"]));
    // A term without requirements selects nothing.
    (expressions.clone().next().is_some() || by_field.clone().next().is_some())
        && expressions.into_iter().all(|requirement| matches_requirement(requirement, node.labels()))
        && by_field.into_iter().all(|requirement| matches_requirement(requirement, &fields))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select() {
        let labels = json!({"app": "web", "size": "3"});
        for (selector, expected) in [
            (json!(null), false),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchLabels": {"tier": "db"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["2"]}]}), true),
            (json!({"matchExpressions": [{"key": "size", "operator": "Lt", "values": ["3"]}]}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "Unheard"}]}), false),
        ] {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
    }
}
