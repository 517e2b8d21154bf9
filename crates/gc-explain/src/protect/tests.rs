#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::stuck::tests::{NOW, answered, object, owned};

fn counted(objects: &[(&str, Value)], counting: &Counting) -> BTreeMap<String, String> {
    let found = answered(objects, |survey, _| count(survey, counting, "8:00")).unwrap();
    let end = " (as of 8:00; kubegc protect counts again)";
    found.into_values().map(|one| (one.title, one.why.strip_suffix(end).unwrap().to_owned())).collect()
}

#[test]
fn namespaces_and_owners_are_counted() {
    let namespace = |name: &str| {
        (
            "namespaces",
            json!({"metadata": {"name": name, "uid": format!("ns-{name}"), "resourceVersion": "1"}}),
        )
    };
    let mut by_itself = object("kube-root-ca.crt", json!({"namespace": "empty", "uid": "ca"}));
    by_itself["data"] = json!({});
    let objects = [
        namespace("n"),
        namespace("empty"),
        ("configmaps", by_itself),
        ("configmaps", object("owner", json!({}))),
        ("configmaps", owned("a", "ConfigMap", "owner")),
        ("configmaps", owned("b", "ConfigMap", "owner")),
        ("configmaps", owned("c", "ConfigMap", "a")),
    ];
    let namespaces = Counting { namespaces: true, ..Counting::default() };
    assert_eq!(counted(&objects, &namespaces), [("Namespace/n".into(), "it has 4 objects".into())].into());
    let owners =
        |above: usize| counted(&objects, &Counting { owners_above: Some(above), ..Counting::default() });
    assert_eq!(owners(1), [("ConfigMap/owner".into(), "it has 2 dependents".into())].into());
    assert_eq!(owners(0).len(), 2);
    assert_eq!(owners(2), BTreeMap::new());
}

#[test]
fn a_rule_is_faulty_where_it_does_not_deny() {
    let (policy, binding) = (Rule::Marked.policy(), Rule::Marked.binding());
    let messages = |policies: &[Value], bindings: &[Value], counts: Option<&Value>| -> Vec<(bool, String)> {
        let rules = status(policies, bindings, counts, NOW);
        faults(&rules).map(|(_, fault)| (fault.is_open, fault.message.clone())).collect()
    };
    let all = |policy: &Value, binding: &Value| {
        messages(std::slice::from_ref(policy), std::slice::from_ref(binding), None)
    };
    assert_eq!(all(&policy, &binding), []);
    // Servers add defaults.
    let mut with_defaults = policy.clone();
    with_defaults["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
    assert_eq!(all(&with_defaults, &binding), []);
    let mut audits = binding.clone();
    audits["spec"]["validationActions"] = json!(["Audit"]);
    assert!(all(&policy, &audits)[0].0);
    let mut changed = policy.clone();
    changed["spec"]["validations"][0]["expression"] = json!("true");
    assert_eq!(all(&changed, &binding), [(false, "it was changed, or written by another version".into())]);
    assert!(messages(std::slice::from_ref(&policy), &[], None)[0].0);
    assert!(messages(&[], &[binding], None)[0].0);
    // Policies that kubegc did not create are not its business.
    let mut other = policy;
    other["metadata"]["name"] = json!("kubegc-protection");
    assert_eq!(messages(&[other], &[], None), []);

    let (policy, binding) = (Rule::Counted.policy(), Rule::Counted.binding());
    let counts =
        |at: &str| json!({"metadata": {"annotations": {COUNTED_AT: at, COUNTED: "--owners-above 9"}}});
    let all = |counts: Option<&Value>| {
        messages(std::slice::from_ref(&policy), std::slice::from_ref(&binding), counts)
    };
    assert!(all(None)[0].0);
    assert_eq!(all(Some(&counts("2027-01-15T07:00:00Z"))), []);
    assert_eq!(all(Some(&counts("2027-01-13T07:00:00Z"))), [(false, "it was counted 2d1h ago".into())]);
}

#[test]
fn marks_are_annotations_and_labels() {
    let marked = |field: &str, text: &str| json!({"metadata": {field: {MARK: text}}});
    assert_eq!(mark(&marked("annotations", "the only copy")), "the only copy");
    assert_eq!(mark(&marked("labels", "yes")), "yes");
    assert_eq!(mark(&marked("annotations", "false")), "");
    assert_eq!(mark(&json!({})), "");
}
