//! Prevents users from granting permissions that they do not hold. The check runs on the object that a write of a role or a binding
//! would store.

use std::collections::{BTreeMap, BTreeSet};

use gc_registry::api::{Attributes, UserInfo, Write};
use gc_registry::error::ApiError;
use gc_registry::names::quoted;
use serde_json::{Map, Value};

use crate::auth::rbac::{self, MissingPermissions, Question, Rbac, Rule};

/// Maximum number of missing permissions that an answer lists.
const MAXIMUM_LISTED: usize = 100;
/// Metadata that a garbage collector changes, and metadata that changes with every write.
const COLLECTORS_METADATA: [&str; 5] =
    ["ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion"];

/// Refuses a write of a role or a binding that would grant more than the writer holds, unless they may `escalate`
/// (roles) or `bind` (bindings).
pub(crate) fn check(rbac: &Rbac, user: &UserInfo, write: &Write<'_>) -> Result<(), ApiError> {
    let resource = &*write.target.resource.resource;
    if *write.target.resource.group != *rbac::GROUP
        || !rbac::RESOURCES.contains(&resource)
        || rbac::is_master(user)
    {
        return Ok(());
    }
    let only_collected = write.old.is_some_and(|old| same_but_for_collectors(write.new, old));
    let checker = Checker { rbac, user, write };
    match resource {
        _ if only_collected => Ok(()),
        "roles" | "clusterroles" => checker.role(),
        _ => checker.binding(),
    }
}

struct Checker<'a> {
    rbac: &'a Rbac,
    user: &'a UserInfo,
    write: &'a Write<'a>,
}

impl Checker<'_> {
    fn role(&self) -> Result<(), ApiError> {
        let target = self.write.target;
        // Upstream uses the name in the path, which a POST lacks.
        if self.permitted("escalate", rbac::GROUP, &target.resource.resource, &target.name) {
            return Ok(());
        }
        self.holds(&rbac::rules_of(self.write.new))?;
        let aggregates = std::iter::once(self.write.new).chain(self.write.old).any(rbac::is_aggregated);
        if &*target.resource.resource == "clusterroles" && aggregates {
            // An aggregated role could gather any permission, now or later.
            let everything = rbac::everything();
            if !matches!(self.rbac.missing(self.user, "", &everything), MissingPermissions::Nothing) {
                return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
            }
        }
        Ok(())
    }

    fn binding(&self) -> Result<(), ApiError> {
        let reference = |field: &str| {
            let pointer = format!("/roleRef/{field}");
            self.write.new.pointer(&pointer).and_then(Value::as_str).unwrap_or_default()
        };
        let role = match reference("kind") {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            other => {
                let why = format!("unsupported role reference kind: {}", quoted(other));
                return Err(ApiError::new(500, "", why));
            }
        };
        let name = reference("name");
        if self.permitted("bind", reference("apiGroup"), role, name) {
            return Ok(());
        }
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        // The role is read from the store because the authorizer's caches may be older.
        let namespace = if role == "roles" { self.write.target.namespace.as_str() } else { "" };
        match (self.write.read)(rbac::GROUP, role, namespace, name)? {
            Some(role) => self.holds(&rbac::rules_of(&role)),
            // The rules of an absent role cannot be compared. Upstream names a missing Role by the resource of the request.
            None if role == "roles" => {
                Err(ApiError::not_found(rbac::GROUP, &self.write.target.resource.resource, name))
            }
            None => Err(ApiError::not_found(rbac::GROUP, role, name)),
        }
    }

    fn holds(&self, rules: &[Rule]) -> Result<(), ApiError> {
        match self.rbac.missing(self.user, &self.write.target.namespace, rules) {
            MissingPermissions::Nothing => Ok(()),
            MissingPermissions::TooMany => Err(self.forbidden(&format!(
                "the rules name more permissions than can be compared with those of user {}",
                quoted(&self.user.name)
            ))),
            MissingPermissions::Some(missing) => Err(self.forbidden(&format!(
                "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
                quoted(&self.user.name),
                texts(&self.user.groups),
                listed(missing)
            ))),
        }
    }

    fn forbidden(&self, why: &str) -> ApiError {
        let object = self.write.new;
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        ApiError::forbidden(rbac::GROUP, &self.write.target.resource.resource, name, why)
    }

    fn permitted(&self, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let wanted = Attributes {
            verb,
            group,
            version: "v1",
            resource,
            subresource: "",
            namespace: &self.write.target.namespace,
            name,
        };
        self.rbac.decide(self.user, &Question::Resource(wanted)).allowed
    }
}

/// Lists missing permissions as upstream does: grouped by resource, in the order of their text.
fn listed(missing: Vec<Rule>) -> String {
    let mut compact: BTreeMap<(Vec<String>, Vec<String>, Vec<String>, Vec<String>), Vec<String>> =
        BTreeMap::new();
    let mut lines = BTreeSet::new();
    for rule in missing {
        if rule.urls.is_empty() {
            let key = (rule.groups, rule.resources, rule.names, rule.urls);
            compact.entry(key).or_default().extend(rule.verbs);
        } else {
            lines.insert(shown(&rule));
        }
    }
    lines.extend(compact.into_iter().map(|((groups, resources, names, urls), verbs)| {
        shown(&Rule { verbs, groups, resources, names, urls })
    }));
    let more = lines.len().saturating_sub(MAXIMUM_LISTED);
    let mut lines: Vec<String> = lines.into_iter().take(MAXIMUM_LISTED).collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

fn shown(rule: &Rule) -> String {
    let parts: Vec<String> = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ]
    .into_iter()
    .filter(|(_, list)| !list.is_empty())
    .map(|(name, list)| format!("{name}:{}", texts(list)))
    .collect();
    format!("{{{}}}", parts.join(", "))
}

/// Formats texts as Go's `%q` prints a list.
fn texts(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" "))
}

/// Reports whether an update changes only what a garbage collector must be able to change, so that a collector
/// without the rights of a role can remove it.
fn same_but_for_collectors(new: &Value, old: &Value) -> bool {
    let metadata = |object: &Value| {
        let mut metadata = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        metadata.retain(|key, value| {
            let empty = value.as_object().is_some_and(Map::is_empty);
            !empty && !COLLECTORS_METADATA.contains(&key.as_str())
        });
        Value::Object(metadata)
    };
    let rest = |object: &Value| object.as_object().cloned().map(|mut map| (map.remove("metadata"), map).1);
    match (rest(new), rest(old)) {
        (Some(new_rest), Some(old_rest)) => {
            same_members(&new_rest, &old_rest) && same(&metadata(new), &metadata(old))
        }
        _ => false,
    }
}

/// Compares values, treating absence, null and an empty list as equal.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => same_members(a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(one, other)| same(one, other))
        }
        _ => a == b || is_empty(a) && is_empty(b),
    }
}

fn same_members(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let holds = |a: &Map<String, Value>, b: &Map<String, Value>| {
        a.iter().all(|(key, value)| b.get(key).map_or_else(|| is_empty(value), |other| same(value, other)))
    };
    holds(a, b) && b.iter().all(|(key, value)| a.contains_key(key) || is_empty(value))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn collectors_may_change_owners_and_finalizers_alone() {
        let old = json!({"metadata": {"name": "r", "ownerReferences": [{"name": "a"}], "finalizers": ["f"],
            "resourceVersion": "1", "managedFields": [{}]}, "rules": [{"verbs": ["*"]}]});
        let table = [
            (json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["*"]}]}), true),
            (
                json!({"metadata": {"name": "r", "labels": {}}, "rules": [{"verbs": ["*"]}], "aggregationRule": null}),
                true,
            ),
            (json!({"metadata": {"name": "r", "labels": {"a": "b"}}, "rules": [{"verbs": ["*"]}]}), false),
            (json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"]}]}), false),
            (json!({"metadata": {"name": "r"}, "rules": []}), false),
            (json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["*"]}], "aggregationRule": {}}), false),
        ];
        for (new, want) in table {
            assert_eq!(same_but_for_collectors(&new, &old), want, "{new}");
        }
    }

    #[test]
    fn missing_permissions_are_listed_as_upstream_lists_them() {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let atom = |verb: &str, resource: &str, names: &[&str]| Rule {
            verbs: list(&[verb]),
            groups: list(&[""]),
            resources: list(&[resource]),
            names: list(names),
            urls: vec![],
        };
        let url = Rule { verbs: list(&["get"]), urls: list(&["/x"]), ..Rule::default() };
        let missing =
            vec![atom("get", "pods", &[]), url, atom("list", "pods", &[]), atom("get", "pods", &["a"])];
        let want = "{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}\n\
                    {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
                    {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}";
        assert_eq!(listed(missing), want);
        let many = (0..150).map(|n| atom("get", &format!("r{n:03}"), &[])).collect();
        let text = listed(many);
        assert_eq!(text.lines().count(), MAXIMUM_LISTED + 1);
        assert!(text.ends_with("and 50 more"), "{text}");
    }
}
