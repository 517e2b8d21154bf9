#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_types::{ResourceId, Timestamp};

use super::planner::Planner;
use super::*;
use crate::catalog::{Catalog, GroupResource};
use crate::facts::{Knowledge, Need};

const CORE: &str = r#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[
    {"resource":"namespaces","responseKind":{"kind":"Namespace"},"scope":"Cluster","verbs":["list","delete"]},
    {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["list","delete"]},
    {"resource":"configmaps","responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]},
    {"resource":"services","responseKind":{"kind":"Service"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
const POD: ResourceId = ResourceId(1);
const CONFIG_MAP: ResourceId = ResourceId(2);
const SERVICE: ResourceId = ResourceId(3);

/// Creates a survey of namespace `n` with these objects: resource, name, owner, finalizer.
fn survey(objects: &[(ResourceId, String, Option<&str>, Option<&str>)]) -> Survey {
    survey_of(r#"{"items":[]}"#, objects)
}

/// Creates the same survey on a server with these API groups.
fn survey_of(groups: &str, objects: &[(ResourceId, String, Option<&str>, Option<&str>)]) -> Survey {
    let catalog = Catalog::read(CORE.as_bytes(), groups.as_bytes()).unwrap();
    let mut survey = Survey::new(catalog, Timestamp(1_000));
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

/// Returns the plan for a cluster with nothing else.
fn planned(survey: &Survey, targets: &[Target]) -> BlastRadius {
    planned_with(Facts::at(Timestamp(1_000)), survey, targets)
}

/// Returns the plan for a cluster with nothing but these facts.
fn planned_with(mut facts: Facts, survey: &Survey, targets: &[Target]) -> BlastRadius {
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
                    facts.tell_object(resource, &namespace, &name, Knowledge::Absent);
                }
                Need::List(resource, namespace) => {
                    facts.tell_list(resource, &namespace, Knowledge::Present(Vec::new()));
                }
            }
        }
    }
}

/// Formats each object as `name fate`.
fn fates(radius: &BlastRadius) -> Vec<String> {
    radius.items.iter().map(|item| format!("{} {}", item.name, item.fate.name())).collect()
}

/// Only objects other than leaves are rehearsed, however many leaves a namespace has.
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
        assert_eq!(radius.count(Fate::Stuck), 2, "what is held, and the namespace");
        assert_eq!(radius.edges.len(), leaves);
    }
}

/// The rest of a namespace waits for its pods, but a leaf with an owner may be deleted earlier.
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
        ["alone DeletedLater", "owned DeletedLater", "owner DeletedLater", "n Stuck", "pod Stuck"]
    );
    let remark = "later, only when what is stuck is released: when the pods of namespace n are gone";
    assert!(radius.items[..3].iter().all(|item| item.remarks == [remark]), "{:?}", radius.items);
}

/// Before 1.33, a namespace is emptied in no particular order, so a blocked pod does not delay the others.
#[test]
fn an_older_server_empties_a_namespace_in_no_order() {
    let survey = survey(&[
        (POD, "pod".to_owned(), None, Some("acme.io/hold")),
        (CONFIG_MAP, "alone".to_owned(), None, None),
    ]);
    for (minor, expected) in [(32, "alone Deleted"), (33, "alone DeletedLater")] {
        let mut facts = Facts::at(Timestamp(1_000));
        facts.tell_server_minor(minor);
        let radius = planned_with(facts, &survey, &[namespace()]);
        assert_eq!(fates(&radius), [expected, "n Stuck", "pod Stuck"], "1.{minor}");
    }
}

/// A plan reports what the server refuses, and continues with the rest.
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

/// A tool's mark on an object with a controller is only a copy; some objects are recreated by Kubernetes itself.
#[test]
fn what_is_recreated_is_said_of_what_it_is_about() {
    let mut survey = survey(&[]);
    let map = |name: &str, owners: Value| {
        json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1", "ownerReferences": owners,
            "annotations": {"meta.helm.sh/release-name": "shop"}}})
    };
    let owner =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "set", "uid": "set", "controller": true}]);
    for object in [map("set", json!([])), map("revision", owner), map("kube-root-ca.crt", json!([]))] {
        survey.observe(CONFIG_MAP, serde_json::from_value(object).unwrap());
    }
    let recreated = |targets: &[Target]| planned(&survey, targets).recreated;
    let target = |name: &str| {
        let key = ObjectKey { resource: CONFIG_MAP, namespace: "n".into(), name: name.into() };
        Target { key, uid: Uid::new(name), policy: Some(PropagationPolicy::Background) }
    };
    let whole = recreated(&[namespace()]);
    assert!(!whole.iter().any(|line| line.contains("revision")), "{whole:?}");
    assert!(whole.iter().any(|line| line.starts_with("ConfigMap/set: ")), "{whole:?}");
    assert!(
        !whole.iter().any(|line| line.contains("publisher")),
        "nothing is published into what is gone: {whole:?}"
    );
    let publisher = "ConfigMap/kube-root-ca.crt: the publisher of the root certificate will recreate this";
    assert!(recreated(&[target("kube-root-ca.crt")]).contains(&publisher.to_owned()));
}

/// A finished Job does not replace deleted pods; a running one does.
#[test]
fn the_pods_of_a_finished_job_are_not_recreated() {
    let batch = r#"{"items":[{"metadata":{"name":"batch"},"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"jobs","responseKind":{"kind":"Job"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
    let catalog = Catalog::read(CORE.as_bytes(), batch.as_bytes()).unwrap();
    let jobs = GroupResource::new("batch", "jobs");
    let job_id = catalog.named(&jobs).unwrap().id;
    let mut survey = Survey::new(catalog, Timestamp(1_000));
    let job = json!({"metadata": {"namespace": "n", "name": "j", "uid": "j", "resourceVersion": "1"}});
    let pod = json!({"metadata": {"namespace": "n", "name": "j-1", "uid": "j-1", "resourceVersion": "1",
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]}});
    survey.observe(job_id, serde_json::from_value(job.clone()).unwrap());
    survey.observe(POD, serde_json::from_value(pod).unwrap());
    survey.complete();
    let key = ObjectKey { resource: POD, namespace: "n".into(), name: "j-1".into() };
    let target = Target { key, uid: Uid::new("j-1"), policy: Some(PropagationPolicy::Background) };
    let again = Some("Pod/j-1: Job j will recreate this");
    // The same applies if the Job cannot be read.
    assert_eq!(planned(&survey, std::slice::from_ref(&target)).recreated.first().map(String::as_str), again);
    for (condition, expected) in [("Complete", None), ("Failed", None), ("Suspended", again)] {
        let mut facts = Facts::at(Timestamp(1_000));
        let mut whole = job.clone();
        whole["status"] = json!({"conditions": [{"type": condition, "status": "True"}]});
        facts.tell_object(jobs.clone(), "n", "j", Knowledge::Present(whole));
        let radius = planned_with(facts, &survey, std::slice::from_ref(&target));
        assert_eq!(radius.recreated.first().map(String::as_str), expected, "{condition}");
    }
}

/// "Will recreate" is a promise: only for objects of Kubernetes' own controllers, and for revisions that were read.
#[test]
fn promises_need_evidence() {
    let apps = r#"{"items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"deployments","responseKind":{"kind":"Deployment"},"scope":"Namespaced","verbs":["list","delete"]},
        {"resource":"replicasets","responseKind":{"kind":"ReplicaSet"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
    let catalog = Catalog::read(CORE.as_bytes(), apps.as_bytes()).unwrap();
    let id = |name: &str| catalog.named(&GroupResource::new("apps", name)).unwrap().id;
    let (deployments, sets) = (id("deployments"), id("replicasets"));
    let mut survey = Survey::new(catalog, Timestamp(1_000));
    let object = |name: &str, owner: Value| json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1", "ownerReferences": owner}});
    let owned = |kind: &str, owner: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": true}]);
    for (resource, object) in [
        (deployments, object("d", json!([]))),
        (sets, object("d-1", owned("Deployment", "d"))),
        (CONFIG_MAP, object("settings", owned("Deployment", "d"))),
        (POD, object("d-1-x", owned("ReplicaSet", "d-1"))),
        (CONFIG_MAP, object("of-set", owned("ReplicaSet", "d-1"))),
    ] {
        survey.observe(resource, serde_json::from_value(object).unwrap());
    }
    survey.complete();
    let read = |revision: &str| {
        let annotations = json!({"deployment.kubernetes.io/revision": revision});
        Knowledge::Present(json!({"metadata": {"annotations": annotations}}))
    };
    for (resource, name, revisions, expected) in [
        (CONFIG_MAP, "settings", None, "ConfigMap/settings: Deployment d may recreate this"),
        (CONFIG_MAP, "of-set", None, "ConfigMap/of-set: ReplicaSet d-1 may recreate this"),
        (POD, "d-1-x", None, "Pod/d-1-x: ReplicaSet d-1 will recreate this"),
        (sets, "d-1", None, "ReplicaSet/d-1: Deployment d may recreate this"),
        (sets, "d-1", Some(("2", "2")), "ReplicaSet/d-1: Deployment d will recreate this"),
        (
            sets,
            "d-1",
            Some(("1", "2")),
            "ReplicaSet/d-1: a revision of Deployment d that cannot be rolled back to any more",
        ),
    ] {
        let mut facts = Facts::at(Timestamp(1_000));
        if let Some((set, deployment)) = revisions {
            facts.tell_object(GroupResource::new("apps", "replicasets"), "n", "d-1", read(set));
            facts.tell_object(GroupResource::new("apps", "deployments"), "n", "d", read(deployment));
        }
        let key = ObjectKey { resource, namespace: "n".into(), name: name.into() };
        let target = Target { key, uid: Uid::new(name), policy: Some(PropagationPolicy::Background) };
        let radius = planned_with(facts, &survey, &[target]);
        assert!(radius.recreated.contains(&expected.to_owned()), "{expected}: {:?}", radius.recreated);
    }
}

/// Only reclaim policy Retain keeps the data of a volume: a recycled volume stays, but its data does not.
#[test]
fn only_retained_data_is_not_lost() {
    let storage = r#"{"items":[{"metadata":{"name":""},"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"persistentvolumeclaims","responseKind":{"kind":"PersistentVolumeClaim"},"scope":"Namespaced","verbs":["list","delete"]},
        {"resource":"persistentvolumes","responseKind":{"kind":"PersistentVolume"},"scope":"Cluster","verbs":["list","delete"]}]}]}]}"#;
    let catalog = Catalog::read(storage.as_bytes(), br#"{"items":[]}"#).unwrap();
    let (claims, volumes) =
        (GroupResource::new("", "persistentvolumeclaims"), GroupResource::new("", "persistentvolumes"));
    let claim_id = catalog.named(&claims).unwrap().id;
    let mut survey = Survey::new(catalog, Timestamp(1_000));
    let claim = json!({"metadata": {"namespace": "n", "name": "c", "uid": "c", "resourceVersion": "1"}});
    survey.observe(claim_id, serde_json::from_value(claim.clone()).unwrap());
    survey.complete();
    for (policy, lost) in [("Retain", 0), ("Recycle", 1)] {
        let mut facts = Facts::at(Timestamp(1_000));
        let mut whole = claim.clone();
        whole["spec"] = json!({"volumeName": "v"});
        let volume = json!({"metadata": {"name": "v", "uid": "v"}, "spec": {"persistentVolumeReclaimPolicy": policy,
            "claimRef": {"namespace": "n", "name": "c", "uid": "c"}}, "status": {"phase": "Bound"}});
        facts.tell_object(claims.clone(), "n", "c", Knowledge::Present(whole));
        facts.tell_object(volumes.clone(), "", "v", Knowledge::Present(volume));
        let key = ObjectKey { resource: claim_id, namespace: "n".into(), name: "c".into() };
        let target = Target { key, uid: Uid::new("c"), policy: Some(PropagationPolicy::Background) };
        let radius = planned_with(facts, &survey, &[target]);
        assert_eq!(radius.lost_volumes.len(), lost, "{policy}");
    }
}

/// A CronJob creates Jobs on schedule and does not replace deleted ones; other owners do.
#[test]
fn a_job_of_a_cron_job_is_not_recreated() {
    let batch = r#"{"items":[{"metadata":{"name":"batch"},"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"cronjobs","responseKind":{"kind":"CronJob"},"scope":"Namespaced","verbs":["list","delete"]},
        {"resource":"jobs","responseKind":{"kind":"Job"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
    for (version, expected) in
        [("batch/v1", None), ("acme.dev/v1", Some("Job/j: CronJob c may recreate this"))]
    {
        let catalog = Catalog::read(CORE.as_bytes(), batch.as_bytes()).unwrap();
        let id = |name: &str| catalog.named(&GroupResource::new("batch", name)).unwrap().id;
        let (cron_jobs, jobs) = (id("cronjobs"), id("jobs"));
        let mut survey = Survey::new(catalog, Timestamp(1_000));
        let owner = json!({"metadata": {"namespace": "n", "name": "c", "uid": "c", "resourceVersion": "1"}});
        let job = json!({"metadata": {"namespace": "n", "name": "j", "uid": "j", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": version, "kind": "CronJob", "name": "c", "uid": "c", "controller": true}]}});
        survey.observe(cron_jobs, serde_json::from_value(owner).unwrap());
        survey.observe(jobs, serde_json::from_value(job).unwrap());
        survey.complete();
        let key = ObjectKey { resource: jobs, namespace: "n".into(), name: "j".into() };
        let target = Target { key, uid: Uid::new("j"), policy: Some(PropagationPolicy::Background) };
        let plan = planned(&survey, &[target]);
        assert_eq!(plan.recreated.first().map(String::as_str), expected, "{version}");
    }
}

/// Returns the facts of a cluster with one bound policy.
fn policy(spec: &Value, binding: &Value) -> Facts {
    let mut facts = Facts::at(Timestamp(1_000));
    let group = "admissionregistration.k8s.io";
    let mut bound = json!({"policyName": "keep", "validationActions": ["Deny"]});
    for (field, value) in binding.as_object().unwrap() {
        bound[field] = value.clone();
    }
    let mut policy = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [
        {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}});
    for (field, value) in spec.as_object().unwrap() {
        policy[field] = value.clone();
    }
    let named = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let list = |resource: &str| GroupResource::new(group, resource);
    facts.tell_list(list("validatingadmissionpolicies"), "", Knowledge::Present(vec![named("keep", policy)]));
    facts.tell_list(
        list("validatingadmissionpolicybindings"),
        "",
        Knowledge::Present(vec![named("all", bound)]),
    );
    let namespace = json!({"metadata": {"name": "n", "labels": {"team": "shop"}}});
    facts.tell_object(GroupResource::new("", "namespaces"), "", "n", Knowledge::Present(namespace));
    let map =
        |name: &str, labels: Value| json!({"metadata": {"namespace": "n", "name": name, "labels": labels}});
    let maps = vec![map("a", json!({"keep": "yes"})), map("b", json!({})), map("c", json!({}))];
    facts.tell_list(GroupResource::new("", "configmaps"), "n", Knowledge::Present(maps));
    facts
}

fn with_policies(objects: &[(ResourceId, String, Option<&str>, Option<&str>)]) -> Survey {
    let named = r#"{"items":[{"metadata":{"name":"admissionregistration.k8s.io"},"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"validatingadmissionpolicies","responseKind":{"kind":"ValidatingAdmissionPolicy"},"scope":"Cluster","verbs":["list"]},
        {"resource":"validatingadmissionpolicybindings","responseKind":{"kind":"ValidatingAdmissionPolicyBinding"},"scope":"Cluster","verbs":["list"]}]}]}]}"#;
    survey_of(named, objects)
}

/// A policy refuses as its expressions say; one that cannot be evaluated is reported by name.
#[test]
fn a_policy_refuses_what_its_expressions_refuse() {
    let survey = with_policies(&[(CONFIG_MAP, "a".to_owned(), None, None)]);
    let key = ObjectKey { resource: CONFIG_MAP, namespace: "n".into(), name: "a".into() };
    let map = Target { key, uid: Uid::new("a"), policy: Some(PropagationPolicy::Background) };
    let rule =
        |expression: &str| json!({"validations": [{"expression": expression, "message": "it is kept"}]});
    let with = |field: &str, value: Value| {
        let mut spec = rule("false");
        spec[field] = value;
        spec
    };
    let rules = |operation: &str| json!({"resourceRules": [{"operations": [operation], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    let none = json!({});
    for (spec, binding, refused, decides) in [
        (rule("false"), none.clone(), Some("it is kept"), 0),
        (rule("true"), none.clone(), None, 0),
        (rule("oldObject.metadata.?labels.?keep.orValue('') != 'yes'"), none.clone(), Some("it is kept"), 0),
        (
            rule("oldObject.metadata.labels.other == 'x'"),
            none.clone(),
            Some("expression 'oldObject.metadata.labels.other == 'x'' resulted in error: no such key: other"),
            0,
        ),
        (rule("request.name != 'a' || request.operation != 'DELETE'"), none.clone(), Some("it is kept"), 0),
        (rule("request.userInfo.username == 'admin'"), none.clone(), None, 1),
        (rule("authorizer.group('').resource('pods').check('get').allowed()"), none.clone(), None, 1),
        (rule("namespaceObject.metadata.labels.team != 'shop'"), none.clone(), Some("it is kept"), 0),
        (rule("oldObject.kind != 'ConfigMap'"), none.clone(), Some("it is kept"), 0),
        (rule("params.allowed"), none.clone(), Some("expression 'params.allowed' resulted in error: "), 0),
        (with("failurePolicy", json!("Ignore")), none.clone(), Some("it is kept"), 0),
        (with("matchConstraints", rules("UPDATE")), none.clone(), None, 0),
        (
            with("matchConditions", json!([{"name": "c", "expression": "request.namespace == 'm'"}])),
            none.clone(),
            None,
            0,
        ),
        (
            with("matchConditions", json!([{"name": "c", "expression": "request.userInfo.username == 'x'"}])),
            none.clone(),
            None,
            1,
        ),
        (
            json!({"variables": [{"name": "kept", "expression": "oldObject.metadata.labels.keep == 'yes'"}],
                "validations": [{"expression": "!variables.kept", "messageExpression": "'kept: ' + oldObject.metadata.name"}]}),
            none.clone(),
            Some("kept: a"),
            0,
        ),
        (rule("false"), json!({"validationActions": ["Warn", "Audit"]}), None, 0),
        (
            rule("false"),
            json!({"matchResources": {"namespaceSelector": {"matchLabels": {"team": "bank"}}}}),
            None,
            0,
        ),
        (
            rule("false"),
            json!({"matchResources": {"objectSelector": {"matchLabels": {"keep": "yes"}}}}),
            Some("it is kept"),
            0,
        ),
        (rule("false"), json!({"policyName": "another"}), None, 0),
    ] {
        let radius = planned_with(policy(&spec, &binding), &survey, std::slice::from_ref(&map));
        let expected = refused.map(|message| format!("ConfigMap/a: refused by policy keep: {message}"));
        let found = radius.refused.first().cloned();
        let is_right = match (&found, &expected) {
            (Some(found), Some(expected)) => found.starts_with(expected),
            (found, expected) => found == expected,
        };
        assert!(is_right, "{spec} {binding}: {found:?}, expected {expected:?}");
        assert_eq!(
            (radius.webhooks.len(), radius.would_get_stuck()),
            (decides, refused.is_some()),
            "{spec} {binding}"
        );
    }
}

/// If a policy refuses the deletion of an object, the object is not even marked; its dependents and its container stay.
#[test]
fn what_a_policy_keeps_stays_with_what_depends_on_it() {
    let survey = with_policies(&[
        (CONFIG_MAP, "c".to_owned(), None, None),
        (CONFIG_MAP, "a".to_owned(), Some("c"), None),
        (CONFIG_MAP, "b".to_owned(), Some("a"), None),
    ]);
    let spec =
        json!({"validations": [{"expression": "!has(oldObject.metadata.labels.keep)", "message": "kept"}]});
    let key = ObjectKey { resource: CONFIG_MAP, namespace: "n".into(), name: "c".into() };
    for (propagation, expected) in [
        (PropagationPolicy::Background, ["c Deleted", "b DeletedLater", "a Stuck"]),
        (PropagationPolicy::Foreground, ["c Deleted", "b DeletedLater", "a Stuck"]),
    ] {
        let target = Target { key: key.clone(), uid: Uid::new("c"), policy: Some(propagation) };
        let radius = planned_with(policy(&spec, &json!({})), &survey, &[target]);
        assert_eq!(fates(&radius), expected, "{propagation:?}");
        assert_eq!(radius.stuck, ["ConfigMaps cannot be deleted: refused by policy keep: kept"]);
        let kept = radius.items.iter().find(|item| &*item.name == "a").unwrap();
        assert_eq!(kept.remarks, ["stuck: refused by policy keep: kept"]);
    }
}

/// A policy refuses to remove the reference of `a` to `c`, which is deleted; once its other owner is gone as well, `a` is deleted.
#[test]
fn a_release_that_a_policy_refuses_puts_off_no_deletion() {
    let mut survey = with_policies(&[]);
    let map = |name: &str, owners: &[&str]| {
        let owner = |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name});
        let owners: Vec<Value> = owners.iter().map(owner).collect();
        json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1", "ownerReferences": owners}})
    };
    for object in [map("c", &[]), map("b", &["c"]), map("a", &["c", "b"])] {
        survey.observe(CONFIG_MAP, serde_json::from_value(object).unwrap());
    }
    survey.complete();
    let key = ObjectKey { resource: CONFIG_MAP, namespace: "n".into(), name: "c".into() };
    let target = Target { key, uid: Uid::new("c"), policy: Some(PropagationPolicy::Background) };
    let spec = json!({
        "matchConstraints": {"resourceRules": [
            {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "!has(oldObject.metadata.labels.keep)", "message": "kept"}],
    });
    let radius = planned_with(policy(&spec, &json!({})), &survey, &[target]);
    assert_eq!(fates(&radius), ["a Deleted", "b Deleted", "c Deleted"]);
    assert_eq!((radius.stuck, radius.refused), (vec![], vec![]));
}

/// A foreground deletion never ends if it waits for an object that a policy protects.
#[test]
fn a_foreground_deletion_waits_for_what_a_policy_keeps() {
    let mut survey = with_policies(&[]);
    let blocked = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c", "blockOwnerDeletion": true}]);
    let map = |name: &str, more: Value| {
        let mut map =
            json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}});
        for (field, value) in more.as_object().unwrap() {
            map["metadata"][field] = value.clone();
        }
        map
    };
    let going = json!({"deletionTimestamp": "2026-09-21T14:00:00Z", "finalizers": ["foregroundDeletion"]});
    for object in [map("c", going), map("a", json!({"ownerReferences": blocked}))] {
        survey.observe(CONFIG_MAP, serde_json::from_value(object).unwrap());
    }
    survey.complete();
    let key = ObjectKey { resource: CONFIG_MAP, namespace: "n".into(), name: "c".into() };
    let spec =
        json!({"validations": [{"expression": "!has(oldObject.metadata.labels.keep)", "message": "kept"}]});
    for (propagation, expected) in [
        (PropagationPolicy::Foreground, ["a Stuck", "c Stuck"]),
        // The server removes the finalizer of the first request.
        (PropagationPolicy::Background, ["c Deleted", "a Stuck"]),
    ] {
        let target = Target { key: key.clone(), uid: Uid::new("c"), policy: Some(propagation) };
        let radius = planned_with(policy(&spec, &json!({})), &survey, &[target]);
        assert_eq!(fates(&radius), expected, "{propagation:?}");
    }
}

/// Returns the facts of a cluster with one admission webhook; nothing answers for it if `service` does not exist.
fn webhook(changes: &Value, service: Knowledge<Value>) -> Facts {
    let mut hook = json!({"name": "check.acme.dev", "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": "ops", "name": "checker"}},
        "rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    for (field, value) in changes.as_object().unwrap() {
        hook[field] = value.clone();
    }
    let configuration = json!({"metadata": {"name": "checks"}, "webhooks": [hook]});
    let mut facts = Facts::at(Timestamp(1_000));
    let group = "admissionregistration.k8s.io";
    let name = GroupResource::new(group, "validatingwebhookconfigurations");
    facts.tell_list(name, "", Knowledge::Present(vec![configuration]));
    facts.tell_object(GroupResource::new("", "services"), "ops", "checker", service);
    let namespace = json!({"metadata": {"name": "n", "labels": {"team": "shop"}}});
    facts.tell_object(GroupResource::new("", "namespaces"), "", "n", Knowledge::Present(namespace));
    let labelled = json!({"metadata": {"namespace": "n", "name": "a", "labels": {"app": "web"}}});
    facts.tell_object(GroupResource::new("", "configmaps"), "n", "a", Knowledge::Present(labelled));
    facts
}

/// A webhook that cannot answer refuses everything its rules and selectors match, and nothing else.
#[test]
fn a_webhook_that_cannot_answer_refuses_what_it_is_asked_about() {
    let objects = [(CONFIG_MAP, "a".to_owned(), None, None), (CONFIG_MAP, "b".to_owned(), Some("a"), None)];
    let survey = survey(&objects);
    let key = ObjectKey { resource: CONFIG_MAP, namespace: "n".into(), name: "a".into() };
    let map = Target { key, uid: Uid::new("a"), policy: Some(PropagationPolicy::Background) };
    let rule = |field: &str, value: Value| {
        let mut rule =
            json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
        rule[field] = value;
        json!({"rules": [rule]})
    };
    for (changes, is_refused, decides) in [
        (json!({}), true, 0),
        (rule("scope", json!("Namespaced")), true, 0),
        (rule("scope", json!("Cluster")), false, 0),
        (rule("operations", json!(["UPDATE"])), false, 0),
        (rule("apiGroups", json!(["apps"])), false, 0),
        (rule("apiVersions", json!(["v2"])), false, 0),
        (rule("resources", json!(["secrets", "configmaps/status"])), false, 0),
        (json!({"namespaceSelector": {"matchLabels": {"team": "shop"}}}), true, 0),
        (json!({"namespaceSelector": {"matchLabels": {"team": "bank"}}}), false, 0),
        (json!({"objectSelector": {"matchLabels": {"app": "web"}}}), true, 0),
        (json!({"objectSelector": {"matchLabels": {"app": "db"}}}), false, 0),
        (json!({"failurePolicy": "Ignore"}), false, 0),
        (json!({"matchConditions": [{"name": "c", "expression": "true"}]}), false, 1),
        (json!({"clientConfig": {"url": "https://checker.acme.dev"}}), false, 1),
    ] {
        let radius = planned_with(webhook(&changes, Knowledge::Absent), &survey, std::slice::from_ref(&map));
        assert_eq!(
            (radius.refused.len(), radius.webhooks.len()),
            (usize::from(is_refused), decides),
            "{changes}"
        );
        assert_eq!(radius.would_get_stuck(), is_refused, "{changes}");
    }
    let refused =
        planned_with(webhook(&json!({}), Knowledge::Absent), &survey, std::slice::from_ref(&map)).refused;
    let why = "admission webhook check.acme.dev of checks does not answer and fails the deletion → \
               Service ops/checker does not exist";
    assert_eq!(refused, [format!("ConfigMap/a: {why}")]);
    let whole = planned_with(webhook(&json!({}), Knowledge::Absent), &survey, &[namespace()]);
    assert_eq!(fates(&whole), ["a Stuck", "b Stuck", "n Stuck"]);
    assert_eq!(whole.stuck, [format!("ConfigMaps cannot be deleted: {why}")]);
    let service = Knowledge::Unreadable(crate::Unread::new(crate::UnreadCode::Forbidden, "it is hidden"));
    let unseen = planned_with(webhook(&json!({}), service), &survey, &[namespace()]);
    assert_eq!(unseen.webhooks, ["admission webhook check.acme.dev of checks, about 2 objects"]);
    assert!(!unseen.would_get_stuck());
}

/// The plan cannot promise the order, and the order decides whether the webhook still answers when it is called.
#[test]
fn a_webhook_whose_service_is_deleted_too_may_leave_the_rest_stuck() {
    let asked = "admission webhook check.acme.dev of checks, about 1 object";
    let remark = "; its Service n/checker is deleted too, and what is still left by then may get stuck";
    let objects = [(CONFIG_MAP, "a".to_owned(), None, None), (SERVICE, "checker".to_owned(), None, None)];
    for (changes, objects, expected) in [
        (json!({}), &objects[..], format!("{asked}{remark}")),
        (json!({"failurePolicy": "Ignore"}), &objects, asked.to_owned()),
        (json!({}), &objects[..1], asked.to_owned()),
    ] {
        let mut changes = changes;
        changes["clientConfig"] = json!({"service": {"namespace": "n", "name": "checker"}});
        let mut facts = webhook(&changes, Knowledge::Absent);
        let service = json!({"metadata": {"namespace": "n", "name": "checker"}});
        facts.tell_object(GroupResource::new("", "services"), "n", "checker", Knowledge::Present(service));
        let slice = json!({"metadata": {"namespace": "n", "name": "s", "labels": {"kubernetes.io/service-name": "checker"}},
            "endpoints": [{"conditions": {"ready": true}}]});
        facts.tell_list(
            GroupResource::new("discovery.k8s.io", "endpointslices"),
            "n",
            Knowledge::Present(vec![slice]),
        );
        assert_eq!(planned_with(facts, &survey(objects), &[namespace()]).webhooks, [expected], "{changes}");
    }
}

#[test]
fn plans_that_are_too_large_are_refused() {
    let objects: Vec<_> = (0..20).map(|number| (CONFIG_MAP, format!("c{number}"), None, None)).collect();
    let facts = Facts::at(Timestamp(1_000));
    let refused = plan(&survey(&objects), &facts, &[namespace()], 10);
    assert_eq!(refused, Err(PlanError::TooLarge(10)));
}
