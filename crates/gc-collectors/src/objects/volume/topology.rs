//! The nodes that can reach a volume: the required node affinity of a PersistentVolume.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

/// Labels of a node, or of the topology that a driver serves.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Nodes that can reach a volume: all that match one of the terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity(Vec<Vec<Requirement>>);

/// A requirement on a label, or on the field `metadata.name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireAffinity {
    required: Option<WireSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSelector {
    node_selector_terms: Option<Vec<WireTerm>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerm {
    match_expressions: Option<Vec<Requirement>>,
    match_fields: Option<Vec<Requirement>>,
}

impl WireAffinity {
    /// Returns the affinity, if anything is required.
    pub(crate) fn read(self) -> Option<Affinity> {
        let terms = self.required?.node_selector_terms.unwrap_or_default();
        let requirements = |term: WireTerm| {
            let (expressions, fields) = (term.match_expressions, term.match_fields);
            expressions.into_iter().chain(fields).flatten().collect()
        };
        Some(Affinity(terms.into_iter().map(requirements).collect()))
    }
}

impl Affinity {
    /// Reports whether a node with these labels (and its name as `metadata.name`) matches. An empty term matches no node.
    #[must_use]
    pub fn fits(&self, labels: &Labels) -> bool {
        let term_fits = |term: &Vec<Requirement>| {
            !term.is_empty() && term.iter().all(|requirement| requirement.fits(labels))
        };
        self.0.iter().any(term_fits)
    }
}

impl Requirement {
    fn fits(&self, labels: &Labels) -> bool {
        let value = labels.get(self.key.as_str());
        let values = self.values.as_deref().unwrap_or_default();
        let is_listed = || value.is_some_and(|value| values.iter().any(|listed| **listed == **value));
        let compared = || {
            let [bound] = values else { return None };
            Some((value?.parse::<i64>().ok()?, bound.parse::<i64>().ok()?))
        };
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared().is_some_and(|(value, bound)| value > bound),
            "Lt" => compared().is_some_and(|(value, bound)| value < bound),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn terms_fit_as_those_of_node_selectors_do() {
        let labels: Labels = [("zone", "a"), ("rack", "7"), ("metadata.name", "n1")]
            .map(|(key, value)| (key.into(), value.into()))
            .into();
        let one = |key: &str, operator: &str, values: Value| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
        for (terms, expected) in [
            (one("zone", "In", json!(["a", "b"])), true),
            (one("zone", "In", json!(["b"])), false),
            (one("none", "In", json!(["a"])), false),
            (one("zone", "NotIn", json!(["b"])), true),
            (one("zone", "NotIn", json!(["a"])), false),
            (one("none", "NotIn", json!(["a"])), true),
            (one("zone", "Exists", Value::Null), true),
            (one("none", "Exists", Value::Null), false),
            (one("none", "DoesNotExist", Value::Null), true),
            (one("zone", "DoesNotExist", Value::Null), false),
            (one("rack", "Gt", json!(["6"])), true),
            (one("rack", "Gt", json!(["7"])), false),
            (one("rack", "Lt", json!(["8"])), true),
            (one("rack", "Lt", json!(["7"])), false),
            (one("zone", "Gt", json!(["6"])), false),
            (one("rack", "Lt", json!(["8", "9"])), false),
            (one("zone", "Like", json!(["a"])), false),
            (json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true),
            (json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]), false),
            // All requirements of a term must match, but only one of several terms.
            (
                json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]),
                false,
            ),
            (
                json!([{"matchExpressions": [{"key": "none", "operator": "Exists"}]},
                    {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
                true,
            ),
            (json!([{}]), false),
            (json!([]), false),
        ] {
            let wire: WireAffinity =
                serde_json::from_value(json!({"required": {"nodeSelectorTerms": terms}})).unwrap();
            assert_eq!(wire.read().unwrap().fits(&labels), expected, "{terms}");
        }
        assert_eq!(WireAffinity::default().read(), None);
    }
}
