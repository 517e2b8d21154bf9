#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_types::{ResourceId, Timestamp};

use super::planner::Planner;
use super::*;
use crate::catalog::Catalog;
use crate::facts::{Known, Need};

const CORE: &str = r#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[
    {"resource":"namespaces","responseKind":{"kind":"Namespace"},"scope":"Cluster","verbs":["list","delete"]},
    {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["list","delete"]},
    {"resource":"configmaps","responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
const POD: ResourceId = ResourceId(1);
const CONFIG_MAP: ResourceId = ResourceId(2);

/// The namespace `n` with these objects: resource, name, owner, finalizer.
fn survey(objects: &[(ResourceId, String, Option<&str>, Option<&str>)]) -> Survey {
    let mut survey =
        Survey::new(Catalog::read(CORE.as_bytes(), br#"{"items":[]}"#).unwrap(), Timestamp(1_000));
    let namespace = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "1"}});
    survey.observe(ResourceId(0), serde_json::from_value(namespace).unwrap());
    for (resource, name, owner, finalizer) in objects {
        let owners: Vec<Value> = owner
            .iter()
            .map(|owner| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner}))
            .collect();
        let finalizers: Vec<&&str> = finalizer.iter().collect();
        let object = json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
            "ownerReferences": owners, "finalizers": finalizers}});
        survey.observe(*resource, serde_json::from_value(object).unwrap());
    }
    survey.complete();
    survey
}

fn namespace() -> Target {
    let key = ObjectKey { resource: ResourceId(0), namespace: "".into(), name: "n".into() };
    Target { key, uid: Uid::new("n"), policy: Some(PropagationPolicy::Background) }
}

/// The plan where nothing else exists, and how often it was asked for what.
fn planned(survey: &Survey, targets: &[Target]) -> BlastRadius {
    let mut facts = Facts::at(Timestamp(1_000));
    loop {
        let radius = plan(survey, &facts, targets, 100_000).unwrap();
        let needs = facts.take_needs();
        if needs.is_empty() {
            return radius;
        }
        assert_eq!(radius.items, [], "nothing is rehearsed before everything was read");
        for need in needs {
            match need {
                Need::Object(resource, namespace, name) => {
                    facts.tell_object(resource, &namespace, &name, Known::Absent);
                }
                Need::List(resource, namespace) => {
                    facts.tell_list(resource, &namespace, Known::Present(Vec::new()));
                }
            }
        }
    }
}

/// `name fate` of each object.
fn fates(radius: &BlastRadius) -> Vec<String> {
    radius.items.iter().map(|item| format!("{} {}", item.name, item.fate.name())).collect()
}

/// However many leaves a namespace has, only the other objects are rehearsed.
#[test]
fn leaves_are_not_rehearsed() {
    for leaves in [10, 1_000] {
        let mut objects = vec![
            (CONFIG_MAP, "owner".to_owned(), None, None),
            (CONFIG_MAP, "held".to_owned(), None, Some("acme.io/hold")),
        ];
        objects.extend((0..leaves).map(|number| (CONFIG_MAP, format!("c{number}"), Some("owner"), None)));
        objects.extend((0..leaves).map(|number| (POD, format!("p{number}"), None, None)));
        let survey = survey(&objects);
        let mut facts = Facts::at(Timestamp(1_000));
        facts.give_up();
        let targets = [namespace()];
        let mut planner = Planner::new(&survey, &facts, &targets);
        planner.reach(100_000).unwrap();
        let rehearsed: Vec<String> = planner.candidates().iter().map(ToString::to_string).collect();
        assert_eq!(rehearsed, ["held", "n", "owner"]);
        let radius = planned(&survey, &targets);
        assert_eq!(radius.count(Fate::Deleted), 2 * leaves + 1);
        assert_eq!(radius.count(Fate::Hangs), 2, "what is held, and the namespace");
        assert_eq!(radius.edges.len(), leaves);
    }
}

/// The rest of a namespace waits for its pods; a leaf with an owner may end before.
#[test]
fn leaves_wait_for_pods() {
    let survey = survey(&[
        (POD, "pod".to_owned(), None, Some("acme.io/hold")),
        (CONFIG_MAP, "alone".to_owned(), None, None),
        (CONFIG_MAP, "owned".to_owned(), Some("owner"), None),
        (CONFIG_MAP, "owner".to_owned(), None, None),
    ]);
    let radius = planned(&survey, &[namespace()]);
    assert_eq!(
        fates(&radius),
        ["alone DeletedLater", "owned DeletedLater", "owner DeletedLater", "n Hangs", "pod Hangs"]
    );
    let remark = "later, only when what hangs is released: when the pods of namespace n are gone";
    assert!(radius.items[..3].iter().all(|item| item.remarks == [remark]), "{:?}", radius.items);
}

/// The plan of what the server refuses says so, and is about the rest.
#[test]
fn what_the_server_never_deletes_is_refused() {
    let mut survey = survey(&[]);
    let system = json!({"metadata": {"name": "kube-system", "uid": "system", "resourceVersion": "1"}});
    survey.observe(ResourceId(0), serde_json::from_value(system).unwrap());
    let key = ObjectKey { name: "kube-system".into(), ..namespace().key };
    let system = Target { key, uid: Uid::new("system"), policy: None };
    let refused = ["Namespace/kube-system: this namespace may not be deleted"];
    let nothing = planned(&survey, std::slice::from_ref(&system));
    assert_eq!((fates(&nothing), &nothing.refused[..]), (vec![], &refused.map(String::from)[..]));
    assert_eq!(nothing.summary(), "nothing: the server refuses the deletion");
    let rest = planned(&survey, &[system, namespace()]);
    assert_eq!(
        (fates(&rest), &rest.refused[..]),
        (vec!["n Deleted".to_owned()], &refused.map(String::from)[..])
    );
}

#[test]
fn plans_that_are_too_large_are_refused() {
    let objects: Vec<_> = (0..20).map(|number| (CONFIG_MAP, format!("c{number}"), None, None)).collect();
    let facts = Facts::at(Timestamp(1_000));
    let refused = plan(&survey(&objects), &facts, &[namespace()], 10);
    assert_eq!(refused, Err(PlanError::TooLarge(10)));
}
