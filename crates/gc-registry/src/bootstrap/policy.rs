//! The RBAC policy of every cluster, read from a table.

use serde_json::{Map, Value, json};

use super::{BootstrapObject, RBAC, Reconcile};
use crate::kubernetes::KubernetesVersion;

/// The table; the head of the file describes its lines.
const FACTS: &str = include_str!("policy.txt");
/// Additional lines for 1.37.
const DIFFERENCE_1_37: &str = include_str!("policy-1.37.txt");
/// Prefix of roles that belong to the controller, and the ServiceAccount, named after it.
const CONTROLLER: &str = "system:controller:";
/// Prefix of the labels by which a role aggregates rules from others.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// The roles and bindings. They are needed once in most processes, and are not kept.
pub(super) fn objects() -> Vec<BootstrapObject> {
    parse(&[FACTS, KubernetesVersion::chosen().difference(DIFFERENCE_1_37)])
}

fn parse(texts: &[&str]) -> Vec<BootstrapObject> {
    let mut found: Vec<BootstrapObject> = Vec::new();
    // Index of the role that subsequent rules belong to.
    let mut role = 0;
    for line in texts.iter().flat_map(|text| text.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["clusterrole", name, aggregation @ ..] => {
                let is_it = |wanted: &BootstrapObject| {
                    wanted.resource == "clusterroles" && wanted.object["metadata"]["name"] == **name
                };
                if let Some(place) = found.iter().position(is_it) {
                    role = place;
                    continue;
                }
                role = found.len();
                found.push(cluster_role(name, aggregation));
                if let Some(account) = name.strip_prefix(CONTROLLER) {
                    let subject = format!("ServiceAccount/{account}");
                    found.push(binding("", name, "ClusterRole", name, &[&subject]));
                }
            }
            ["role", namespace, name] => {
                role = found.len();
                found.push(wanted("roles", namespace, json!({"metadata": metadata(name), "rules": []})));
            }
            ["clusterbinding", name, subjects @ ..] => {
                found.push(binding("", name, "ClusterRole", name, subjects));
            }
            ["binding", namespace, name, role, subjects @ ..] => {
                found.push(binding(namespace, name, "Role", role, subjects));
            }
            [verbs, rest @ ..] if line.starts_with(' ') => {
                let role = found.get_mut(role);
                if let Some(rules) = role.and_then(|role| role.object["rules"].as_array_mut()) {
                    rules.push(rule(verbs, rest));
                }
            }
            _ => {}
        }
    }
    found
}

fn wanted(resource: &'static str, namespace: &str, object: Value) -> BootstrapObject {
    BootstrapObject {
        reconcile: Reconcile::Policy,
        ..BootstrapObject::new(RBAC, "v1", resource, namespace, object)
    }
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

fn cluster_role(name: &str, aggregation: &[&str]) -> BootstrapObject {
    let mut role = json!({"metadata": metadata(name), "rules": []});
    for word in aggregation {
        match word.split_once('=') {
            Some(("to", aggregate)) => {
                role["metadata"]["labels"][format!("{AGGREGATE}{aggregate}")] = "true".into();
            }
            Some((_, aggregate)) => {
                let labels = Map::from_iter([(format!("{AGGREGATE}{aggregate}"), "true".into())]);
                role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
                role["rules"] = Value::Null;
            }
            None => {}
        }
    }
    wanted("clusterroles", "", role)
}

fn binding(namespace: &str, name: &str, kind: &str, role: &str, subjects: &[&str]) -> BootstrapObject {
    let mut object = json!({"metadata": metadata(name),
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role}});
    let subjects: Vec<Value> = subjects
        .iter()
        .filter_map(|subject| subject.split_once('/'))
        .map(|(kind, name)| match kind {
            "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": "kube-system"}),
            _ => json!({"apiGroup": RBAC, "kind": kind, "name": name}),
        })
        .collect();
    if !subjects.is_empty() {
        object["subjects"] = subjects.into();
    }
    let resource = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
    wanted(resource, namespace, object)
}

fn rule(verbs: &str, rest: &[&str]) -> Value {
    let list = |words: &str| -> Value {
        words.split(',').map(|word| if word == "core" { "" } else { word }).collect()
    };
    match rest {
        ["url", paths] => json!({"nonResourceURLs": list(paths), "verbs": list(verbs)}),
        [groups, resources, names @ ..] => {
            let mut rule =
                json!({"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)});
            if let [names] = names {
                rule["resourceNames"] = list(names);
            }
            rule
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_facts_is_understood() {
        let lines = FACTS.lines().chain(DIFFERENCE_1_37.lines());
        for line in lines.filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [first, ..] if !line.starts_with(' ') => {
                    assert!(["clusterrole", "role", "clusterbinding", "binding"].contains(first), "{line}");
                }
                [verbs, rest @ ..] => assert!(rule(verbs, rest).is_object(), "{line}"),
                [] => panic!("an empty line"),
            }
        }
        let count = |resource: &str| objects().iter().filter(|wanted| wanted.resource == resource).count();
        let counts = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(count);
        assert_eq!(counts, [69, 50, 7, 7]);
    }

    #[test]
    fn a_difference_adds_roles_and_rules_of_roles() {
        let rules = |objects: &[BootstrapObject], name: &str| {
            let is_it = |wanted: &&BootstrapObject| {
                wanted.resource == "clusterroles" && wanted.object["metadata"]["name"] == name
            };
            let role = objects.iter().find(is_it);
            role.and_then(|role| role.object["rules"].as_array()).map_or(0, Vec::len)
        };
        let (before, after) = (parse(&[FACTS]), parse(&[FACTS, DIFFERENCE_1_37]));
        assert_eq!(rules(&after, "system:node"), rules(&before, "system:node") + 2);
        assert_eq!(rules(&after, "system:node-proxier"), rules(&before, "system:node-proxier"));
        assert_eq!(rules(&after, "system:cluster-trust-bundle-discovery"), 1);
        // Four roles, the bindings of three of them to controllers, and one further binding.
        assert_eq!(after.len(), before.len() + 8);
    }

    #[test]
    fn a_role_has_its_rules_its_aggregation_and_its_binding() {
        let find = |resource: &str, name: &str| {
            let found = objects()
                .into_iter()
                .find(|wanted| wanted.resource == resource && wanted.object["metadata"]["name"] == name);
            found.map(|wanted| wanted.object)
        };
        assert_eq!(
            find("clusterroles", "view").unwrap_or_default(),
            json!({"metadata": {"name": "view",
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults",
                    "rbac.authorization.k8s.io/aggregate-to-edit": "true"},
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
                "aggregationRule": {"clusterRoleSelectors": [
                    {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}]},
                "rules": null})
        );
        let cleaner = "system:controller:legacy-service-account-token-cleaner";
        assert_eq!(
            find("clusterroles", cleaner).unwrap_or_default()["rules"],
            json!([
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"],
                    "resourceNames": ["kube-apiserver-legacy-service-account-token-tracking"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete", "patch"]},
            ])
        );
        assert_eq!(
            find("clusterrolebindings", cleaner).unwrap_or_default()["subjects"],
            json!([{"kind": "ServiceAccount", "name": "legacy-service-account-token-cleaner",
                "namespace": "kube-system"}])
        );
        assert_eq!(find("clusterrolebindings", "system:node").unwrap_or_default().get("subjects"), None);
    }
}
