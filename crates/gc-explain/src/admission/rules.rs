//! Rules and selectors with which webhooks and policies choose the requests they apply to.

use serde_json::Value;

use crate::catalog::Resource;

/// API group of the resources that configure admission.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// Change that a request makes to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// A deletion.
    Delete,
    /// A change: the removal of owner references.
    Update,
}

impl Operation {
    /// Returns the name that rules use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Delete => "DELETE",
            Self::Update => "UPDATE",
        }
    }

    /// Returns the noun for messages.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Delete => "deletion",
            Self::Update => "removal of its owner references",
        }
    }
}

/// Rules that choose the requests a webhook or policy applies to.
pub(super) struct Rules<'a> {
    pub(super) rules: &'a Value,
    /// True if the rules match only the versions that they name.
    pub(super) is_exact: bool,
}

impl Rules<'_> {
    pub(super) fn are_empty(&self) -> bool {
        self.rules.as_array().is_none_or(Vec::is_empty)
    }

    /// Reports whether a rule matches requests about this resource, and the object of this name if one is given.
    pub(super) fn name(&self, operation: Operation, resource: &Resource, object: Option<&str>) -> bool {
        let version = |served: &str| served.rsplit('/').next().unwrap_or_default().to_owned();
        let versions: Vec<String> = if self.is_exact {
            vec![resource.version.to_string()]
        } else {
            resource.served_api_versions.iter().map(|served| version(served)).collect()
        };
        self.rules.as_array().into_iter().flatten().any(|rule| {
            let has = |field: &str, is: &dyn Fn(&str) -> bool| {
                let texts = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
                texts.into_iter().any(|text| text == "*" || is(text))
            };
            let is_in_scope = match rule["scope"].as_str().unwrap_or("*") {
                "Namespaced" => resource.is_namespaced(),
                "Cluster" => !resource.is_namespaced(),
                _ => true,
            };
            let name = &*resource.name.resource;
            let names = rule["resourceNames"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_named =
                object.is_none_or(|object| names.is_empty() || names.iter().any(|name| name == object));
            is_in_scope
                && is_named
                && has("operations", &|named| named == operation.name())
                && has("apiGroups", &|group| *resource.name.group == *group)
                && has("apiVersions", &|named| versions.iter().any(|served| served == named))
                && has("resources", &|named| {
                    let (named, sub) = named.split_once('/').unwrap_or((named, ""));
                    (named == "*" || named == name) && matches!(sub, "" | "*")
                })
        })
    }
}

/// Reports whether one of these rules matches the operation, for any object.
pub(super) fn takes_operation(rules: &Value, operation: Operation) -> bool {
    let rules = rules.as_array().into_iter().flatten();
    let mut named = rules.filter_map(|rule| rule["operations"].as_array()).flatten();
    named.any(|named| named == operation.name() || named == "*")
}

/// Reports whether a selector selects everything.
pub(super) fn is_everything(selector: &Value) -> bool {
    selector.as_object().is_none_or(|fields| {
        fields.values().all(|field| {
            field.is_null()
                || field.as_object().is_some_and(serde_json::Map::is_empty)
                || field.as_array().is_some_and(Vec::is_empty)
        })
    })
}

/// Reports whether a label selector selects these labels.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = |(name, value): (&String, &Value)| labels.get(name) == Some(value);
    let fits = |expression: &Value| {
        let own = labels.get(expression["key"].as_str().unwrap_or_default());
        let is_listed = || {
            let mut values = expression["values"].as_array().into_iter().flatten();
            own.is_some_and(|own| values.any(|value| value == own))
        };
        match expression["operator"].as_str().unwrap_or_default() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => own.is_some(),
            "DoesNotExist" => own.is_none(),
            _ => false,
        }
    };
    selector["matchLabels"].as_object().into_iter().flatten().all(equal)
        && selector["matchExpressions"].as_array().into_iter().flatten().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_select_as_the_server_does() {
        let labels = json!({"app": "web", "tier": "front"});
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "back"}}), false),
            (expression("app", "In", json!(["db", "web"])), true),
            (expression("app", "NotIn", json!(["web"])), false),
            (expression("absent", "NotIn", json!(["web"])), true),
            (expression("absent", "Exists", json!([])), false),
            (expression("absent", "DoesNotExist", Value::Null), true),
            (expression("app", "Unknown", json!(["web"])), false),
        ] {
            assert_eq!(selects(&selector, &labels), expected, "{selector}");
        }
        assert!(
            is_everything(&Value::Null) && is_everything(&json!({"matchLabels": {}, "matchExpressions": []}))
        );
        assert!(!is_everything(&json!({"matchLabels": {"app": "web"}})));
    }
}
