//! Updates existing objects when a server starts, by kube-apiserver's rules for automatic updates: additions of an administrator
//! stay.

use serde_json::{Value, json};

use crate::metadata::meta;

/// Rule for updating an existing object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reconcile {
    /// The object is left as it is.
    Never,
    /// A role or binding gets missing rules or subjects, unless its annotation says `false`.
    Policy,
    /// The spec is replaced while the annotation says `true`.
    FlowControl,
    /// These fields belong to the server.
    Members(&'static [&'static str]),
}

/// Returns the new state of an object; `None` if it is up to date.
pub(super) fn reconciled(how: Reconcile, live: &Value, wanted: &Value) -> Option<Value> {
    let mut new = live.clone();
    match how {
        Reconcile::Never => return None,
        Reconcile::Policy => {
            if annotation(live, "rbac.authorization.kubernetes.io/autoupdate") == Some("false") {
                return None;
            }
            add_metadata(&mut new, wanted);
            add_missing(&mut new, wanted, "/subjects", <[Value]>::contains);
            add_missing(&mut new, wanted, "/aggregationRule/clusterRoleSelectors", <[Value]>::contains);
            if wanted.get("aggregationRule").is_none() {
                add_missing(&mut new, wanted, "/rules", covers);
            }
        }
        Reconcile::FlowControl => {
            if annotation(live, "apf.kubernetes.io/autoupdate-spec") != Some("true") {
                return None;
            }
            new["spec"] = wanted["spec"].clone();
        }
        Reconcile::Members(names) => {
            for name in names {
                new[*name] = wanted.get(*name).cloned().unwrap_or_default();
            }
        }
    }
    (new != *live).then_some(new)
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    meta::metadata(object).get("annotations")?.get(name)?.as_str()
}

/// Adds missing labels and annotations; different ones stay.
fn add_metadata(new: &mut Value, wanted: &Value) {
    for member in ["labels", "annotations"] {
        let Some(pairs) = wanted["metadata"][member].as_object() else { continue };
        let have = meta::metadata_mut(new).entry(member).or_insert_with(|| json!({}));
        let Some(have) = have.as_object_mut() else { continue };
        for (key, value) in pairs {
            have.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn add_missing(new: &mut Value, wanted: &Value, path: &str, has: impl Fn(&[Value], &Value) -> bool) {
    let Some(items) = wanted.pointer(path).and_then(Value::as_array) else { return };
    let have = new.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let missing: Vec<Value> = items.iter().filter(|item| !has(&have, item)).cloned().collect();
    if missing.is_empty() {
        return;
    }
    let all: Value = have.into_iter().chain(missing).collect();
    let mut place = new;
    for name in path.split('/').skip(1) {
        place = &mut place[name];
    }
    *place = all;
}

/// Reports whether several rules together permit everything that one rule permits.
fn covers(rules: &[Value], wanted: &Value) -> bool {
    let paths = !texts(wanted, "nonResourceURLs").is_empty();
    let dimensions: [&str; 4] = if paths {
        ["verbs", "nonResourceURLs", "", ""]
    } else {
        ["verbs", "apiGroups", "resources", "resourceNames"]
    };
    let choices = dimensions.map(|name| {
        let values = texts(wanted, name);
        if values.is_empty() { vec![""] } else { values }
    });
    let [verbs, seconds, thirds, names] = &choices;
    let allowed = |request: [&str; 4]| {
        rules.iter().any(|rule| {
            dimensions.iter().zip(request).all(|(dimension, value)| {
                let have = texts(rule, dimension);
                // A rule without names applies to all names.
                have.contains(&value)
                    || have.contains(&"*")
                    || (matches!(*dimension, "" | "resourceNames") && have.is_empty())
            })
        })
    };
    verbs.iter().all(|verb| {
        seconds.iter().all(|second| {
            thirds.iter().all(|third| names.iter().all(|name| allowed([verb, second, third, name])))
        })
    })
}

fn texts<'a>(rule: &'a Value, member: &str) -> Vec<&'a str> {
    rule.get(member).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: &Value) -> Value {
        json!({"metadata": {"name": "a", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}, "rules": rules})
    }

    #[test]
    fn a_role_gets_the_rules_that_it_lacks() {
        let wanted = role(&json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]));
        let cases = [
            (json!([]), Some(wanted["rules"].clone())),
            // Several rules may permit together what one rule wants.
            (
                json!([
                    {"apiGroups": ["*"], "resources": ["pods"], "verbs": ["get"]},
                    {"apiGroups": [""], "resources": ["*"], "verbs": ["list", "delete"]},
                    {"nonResourceURLs": ["*"], "verbs": ["get"]},
                ]),
                None,
            ),
            // A rule for some names does not apply to all of them.
            (
                json!([
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"], "resourceNames": ["a"]},
                    {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
                ]),
                Some(json!([
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"], "resourceNames": ["a"]},
                    {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
                ])),
            ),
        ];
        for (have, expected) in cases {
            let new = reconciled(Reconcile::Policy, &role(&have), &wanted);
            assert_eq!(new.map(|new| new["rules"].clone()), expected, "{have}");
        }
    }

    #[test]
    fn an_administrator_can_keep_a_role_and_additions_stay() {
        let wanted = role(&json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
        let mut kept = role(&json!([]));
        kept["metadata"]["annotations"] = json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
        assert_eq!(reconciled(Reconcile::Policy, &kept, &wanted), None);

        let binding = |subjects: &Value| json!({"metadata": wanted["metadata"], "subjects": subjects});
        let both = json!([{"kind": "User", "name": "b"}, {"kind": "User", "name": "a"}]);
        let (one, other) = (json!([{"kind": "User", "name": "a"}]), json!([{"kind": "User", "name": "b"}]));
        let new = reconciled(Reconcile::Policy, &binding(&other), &binding(&one));
        assert_eq!(new, Some(binding(&both)));
    }

    #[test]
    fn flow_control_follows_while_its_annotation_says_so() {
        let schema = |says: &str, spec: u32| json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": says}}, "spec": spec});
        let wanted = schema("true", 1);
        assert_eq!(reconciled(Reconcile::FlowControl, &schema("true", 2), &wanted), Some(wanted.clone()));
        assert_eq!(reconciled(Reconcile::FlowControl, &schema("false", 2), &wanted), None);
    }
}
