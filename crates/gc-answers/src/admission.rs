//! Which admission webhooks the server asks before it deletes an object, and which of them are certain to fail.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use gc_types::{ObjectKey, ResourceId};
use serde_json::Value;

use crate::backend::backend;
use crate::catalog::{GroupResource, Resource};
use crate::facts::{Facts, Known};
use crate::object::Object;
use crate::survey::Survey;

/// The group of what configures admission.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";
/// The resources that configure webhooks; the server asks no webhook about objects of its group that configure admission.
pub(crate) const CONFIGURATIONS: [&str; 2] =
    ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];

/// Whether something is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    No,
    /// It cannot be seen from here.
    Perhaps,
    Yes,
}

impl From<bool> for Answer {
    fn from(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}

/// A webhook that is asked about deletions.
pub(crate) struct Webhook<'a> {
    /// The resource of its configuration.
    pub(crate) resource: &'static str,
    /// Its configuration.
    pub(crate) configuration: &'a Object,
    hook: &'a Value,
    /// Why nothing answers for it, if that is certain.
    pub(crate) down: Option<String>,
}

impl Webhook<'_> {
    fn text(&self, field: &str) -> &str {
        self.hook[field].as_str().unwrap_or_default()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.text("name")
    }

    /// Namespace and name of the Service that answers for it, if one does.
    pub(crate) fn service(&self) -> Option<(&str, &str)> {
        let service = &self.hook["clientConfig"]["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        Some((text("namespace"), text("name"))).filter(|(_, name)| !name.is_empty())
    }

    /// Whether the server continues without its answer.
    pub(crate) fn may_be_ignored(&self) -> bool {
        self.text("failurePolicy") == "Ignore"
    }

    /// What people call it.
    pub(crate) fn title(&self) -> String {
        format!("admission webhook {} of {}", self.name(), self.configuration.name())
    }

    /// Why it fails every deletion that it is asked about.
    fn failure(&self) -> Option<String> {
        let down = self.down.as_ref()?;
        Some(format!("{} does not answer and fails the deletion → {down}", self.title()))
    }

    /// Whether a rule names the deletion of such objects.
    fn names(&self, resource: &Resource) -> bool {
        let is_exact = self.text("matchPolicy") == "Exact";
        let version = |served: &str| served.rsplit('/').next().unwrap_or_default().to_owned();
        let versions: Vec<String> = if is_exact {
            vec![resource.version.to_string()]
        } else {
            resource.served_api_versions.iter().map(|served| version(served)).collect()
        };
        let rules = self.hook["rules"].as_array();
        rules.into_iter().flatten().any(|rule| {
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
            is_in_scope
                && has("operations", &|operation| operation == "DELETE")
                && has("apiGroups", &|group| *resource.name.group == *group)
                && has("apiVersions", &|named| versions.iter().any(|served| served == named))
                && has("resources", &|named| {
                    let (named, sub) = named.split_once('/').unwrap_or((named, ""));
                    (named == "*" || named == name) && matches!(sub, "" | "*")
                })
        })
    }

    /// Whether it is asked about the deletion of this object, of a resource that its rules name.
    fn is_asked(&self, facts: &Facts, resource: &Resource, key: &ObjectKey) -> Answer {
        let labels = |resource: &GroupResource, namespace: &str, name: &str| match facts
            .object(resource, namespace, name)
        {
            Some(Known::Present(object)) => Some(object.value()["metadata"]["labels"].clone()),
            Some(Known::Absent) => Some(Value::Null),
            Some(Known::Unreadable(_)) | None => None,
        };
        let is_selected = |selector: &Value, read: &dyn Fn() -> Option<Value>| {
            if is_everything(selector) {
                return Answer::Yes;
            }
            read().map_or(Answer::Perhaps, |labels| selects(selector, &labels).into())
        };
        let namespaces = GroupResource::new("", "namespaces");
        let namespace = if resource.name == namespaces { &key.name } else { &key.namespace };
        let by_namespace = if namespace.is_empty() {
            Answer::Yes
        } else {
            is_selected(&self.hook["namespaceSelector"], &|| labels(&namespaces, "", namespace))
        };
        if by_namespace == Answer::No {
            return Answer::No;
        }
        // Whether it fails for certain is worth reading the object; whether it decides is not.
        let own = || self.down.as_ref().and_then(|_| labels(&resource.name, &key.namespace, &key.name));
        let by_object = is_selected(&self.hook["objectSelector"], &own);
        let conditions = self.hook["matchConditions"].as_array().is_some_and(|all| !all.is_empty());
        let by_conditions = if conditions { Answer::Perhaps } else { Answer::Yes };
        by_namespace.min(by_object).min(by_conditions)
    }
}

fn is_everything(selector: &Value) -> bool {
    selector.as_object().is_none_or(|fields| {
        fields.values().all(|field| {
            field.is_null()
                || field.as_object().is_some_and(serde_json::Map::is_empty)
                || field.as_array().is_some_and(Vec::is_empty)
        })
    })
}

/// Whether a label selector selects these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
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

/// Every webhook that is asked about deletions and may refuse one. Who may not read one kind of configuration is not expected
/// to read the other.
pub(crate) fn webhooks(facts: &Facts) -> Vec<Webhook<'_>> {
    let mut all = Vec::new();
    for resource in CONFIGURATIONS {
        let Some(known) = facts.list(&GroupResource::new(GROUP, resource), "") else { return all };
        let Some(configurations) = known.present() else { return all };
        for configuration in configurations {
            for hook in configuration.items("/webhooks") {
                let mut webhook = Webhook { resource, configuration, hook, down: None };
                if !webhook.takes_deletions() {
                    continue;
                }
                let backend = webhook.service().map(|(namespace, name)| backend(facts, namespace, name));
                webhook.down = backend.filter(|backend| backend.is_down).map(|backend| backend.chain);
                // What does not answer and may be ignored decides nothing.
                if webhook.down.is_none() || !webhook.may_be_ignored() {
                    all.push(webhook);
                }
            }
        }
    }
    all
}

impl Webhook<'_> {
    fn takes_deletions(&self) -> bool {
        let operations = self.hook["rules"].as_array().into_iter().flatten();
        let mut operations = operations.filter_map(|rule| rule["operations"].as_array()).flatten();
        operations.any(|operation| operation == "DELETE" || operation == "*")
    }
}

/// The webhooks that are asked about the deletions of a plan.
pub(crate) struct Admission<'a> {
    survey: &'a Survey,
    facts: &'a Facts,
    webhooks: Vec<Webhook<'a>>,
    /// By resource, the webhooks whose rules name it.
    named: RefCell<BTreeMap<ResourceId, Rc<Vec<usize>>>>,
}

impl<'a> Admission<'a> {
    pub(crate) fn new(survey: &'a Survey, facts: &'a Facts) -> Self {
        Self { survey, facts, webhooks: webhooks(facts), named: RefCell::default() }
    }

    /// The webhooks whose rules name a resource.
    fn named(&self, resource: &Resource) -> Rc<Vec<usize>> {
        let mut known = self.named.borrow_mut();
        let found = known.entry(resource.id).or_insert_with(|| {
            let is_exempt = &*resource.name.group == GROUP;
            let all = self.webhooks.iter().enumerate().filter(|(_, webhook)| webhook.names(resource));
            Rc::new(if is_exempt { Vec::new() } else { all.map(|(place, _)| place).collect() })
        });
        Rc::clone(found)
    }

    /// Whether no webhook is asked about such objects.
    pub(crate) fn is_free(&self, resource: ResourceId) -> bool {
        self.webhooks.is_empty()
            || self.survey.catalog.get(resource).is_none_or(|resource| self.named(resource).is_empty())
    }

    /// The webhooks that are, or may be, asked about the deletion of this object.
    fn asked(&self, key: &ObjectKey) -> Vec<(&Webhook<'a>, Answer)> {
        if self.webhooks.is_empty() {
            return Vec::new();
        }
        let Some(resource) = self.survey.catalog.get(key.resource) else { return Vec::new() };
        let named = self.named(resource);
        let all = named.iter().filter_map(|place| self.webhooks.get(*place));
        let asked = all.map(|webhook| (webhook, webhook.is_asked(self.facts, resource, key)));
        asked.filter(|(_, answer)| *answer != Answer::No).collect()
    }

    /// Why the deletion of this object is certain to fail.
    pub(crate) fn refuses(&self, key: &ObjectKey) -> Option<String> {
        let refused = self.refused_in(&key.namespace);
        self.asked(key).into_iter().find_map(|(webhook, answer)| match webhook.failure() {
            Some(failure) => Some(failure).filter(|_| answer == Answer::Yes),
            None => refused
                .as_ref()
                .filter(|name| **name == webhook.name())
                .map(|_| format!("{} has refused deletions in namespace {}", webhook.title(), key.namespace)),
        })
    }

    /// The webhooks that decide about the deletion of this object, and are not known to fail.
    pub(crate) fn decides(&self, key: &ObjectKey) -> Vec<&Webhook<'a>> {
        let asked = self.asked(key).into_iter();
        let open = asked.filter(|(webhook, answer)| webhook.down.is_none() || *answer == Answer::Perhaps);
        open.map(|(webhook, _)| webhook).collect()
    }

    /// The webhook that has refused the deletion of something in this namespace, by what its controller reports.
    fn refused_in(&self, namespace: &str) -> Option<String> {
        if self.webhooks.is_empty() || namespace.is_empty() {
            return None;
        }
        let namespaces = GroupResource::new("", "namespaces");
        let id = self.survey.catalog.named(&namespaces)?.id;
        let key = ObjectKey { resource: id, namespace: "".into(), name: namespace.into() };
        self.survey.terminating().get(&key)?;
        let object = self.facts.present(&namespaces, "", namespace)?;
        let message = crate::stuck::content_failure(object)?;
        crate::stuck::webhook_in(message).map(str::to_owned)
    }
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
