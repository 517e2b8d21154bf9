#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better without references")]

use super::*;

/// Returns the record of `Kind name` with owners (`Kind/name`, plus `*` for the controller) and further members.
fn record(at: i64, title: &str, owners: &[&str], more: Value) -> Record {
    let (kind, name) = title.split_once(' ').unwrap();
    let owners: Vec<Value> = owners
        .iter()
        .map(|owner| {
            let (kind, name) = owner.trim_end_matches('*').split_once('/').unwrap();
            json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": format!("uid-{name}"),
                "controller": owner.ends_with('*')})
        })
        .collect();
    let (api_version, resource) = match kind {
        "Deployment" => ("apps/v1", "deployments.apps"),
        "ReplicaSet" => ("apps/v1", "replicasets.apps"),
        "Job" => ("batch/v1", "jobs.batch"),
        "Pod" => ("v1", "pods"),
        "Namespace" => ("v1", "namespaces"),
        _ => ("v1", "configmaps"),
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "n",
        "uid": format!("uid-{name}"), "ownerReferences": owners}});
    for (path, value) in more.as_object().into_iter().flatten() {
        let (parent, field) = path.rsplit_once('/').unwrap();
        if object.pointer(parent).is_none() {
            *object
                .pointer_mut("")
                .unwrap()
                .as_object_mut()
                .unwrap()
                .entry(&parent[1..])
                .or_insert(json!({})) = json!({});
        }
        object.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    Record { at: Timestamp(at), resource: resource.to_owned(), object }
}

fn all(records: &[Record]) -> ChosenRecords {
    let records = records.iter().map(|record| (record.uid().to_owned(), record.at)).collect();
    ChosenRecords { records, ..ChosenRecords::default() }
}

fn absent(_: &str) -> Presence {
    Presence::Absent
}

/// Returns owners whose revisions are unknown.
fn beside(presence: &dyn Fn(&str) -> Presence) -> Owners<'_> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    Owners { presence, revisions: &NONE }
}

fn shown(undo: &Undo) -> Vec<String> {
    let line = |step: &Step| match &step.action {
        Action::Recreated(by) => format!("Recreated {} by {by}", step.place.title()),
        Action::Impossible(why) => format!("Impossible {}: {why}", step.place.title()),
        action => format!("{} {}", action.name(), step.place.title()),
    };
    undo.steps.iter().map(line).collect()
}

#[test]
fn choices_take_what_depended() {
    let records = [
        record(1, "ConfigMap root", &[], json!({})),
        record(2, "ConfigMap child", &["ConfigMap/root"], json!({})),
        record(3, "ConfigMap leaf", &["ConfigMap/child"], json!({})),
        record(4, "ConfigMap other", &[], json!({})),
        record(5, "ConfigMap root", &[], json!({"/metadata/uid": "uid-later"})),
        record(6, "Namespace n", &[], json!({"/metadata/namespace": ""})),
    ];
    let names =
        |choice: Choice<'_>| -> Vec<String> { chosen(&records, &choice).records.into_keys().collect() };
    let is = |resource: &'static str, name: &'static str| {
        move |record: &Record| record.resource == resource && record.place().name == name
    };
    assert_eq!(names(Choice::Cascade("uid-root".into())), ["uid-child", "uid-leaf", "uid-root"]);
    assert_eq!(names(Choice::Last(&is("configmaps", "child"))), ["uid-child", "uid-leaf"]);
    assert_eq!(names(Choice::Last(&is("configmaps", "root"))), ["uid-later"], "the last of that name");
    assert_eq!(names(Choice::Last(&is("configmaps", "nothing"))), [""; 0]);
    let maps = |record: &Record| record.resource == "configmaps" && record.place().name != "child";
    assert_eq!(names(Choice::Last(&maps)), ["uid-later", "uid-leaf", "uid-other"], "the last of each name");
    assert_eq!(names(Choice::Since(Timestamp(4), &|_| true)), ["uid-later", "uid-n", "uid-other"]);
    assert_eq!(
        names(Choice::Since(Timestamp(2), &is("configmaps", "child"))),
        ["uid-child", "uid-leaf"],
        "with what depended on it"
    );
    assert_eq!(
        names(Choice::Since(Timestamp(3), &is("namespaces", "n"))),
        ["uid-later", "uid-leaf", "uid-n", "uid-other"],
        "nothing older"
    );
    assert_eq!(
        names(Choice::Last(&is("namespaces", "n"))),
        ["uid-child", "uid-later", "uid-leaf", "uid-n", "uid-other"],
        "of two objects of one name, the last"
    );
    let all = chosen(&records, &Choice::Last(&is("namespaces", "n")));
    assert_eq!(
        all.earlier["uid-later"].iter().map(|record| record.uid.as_str()).collect::<Vec<_>>(),
        ["uid-root"]
    );
}

/// A controller replaces a finished pod, now or later; a Job counts it.
#[test]
fn finished_pods_are_recreated_where_their_controller_replaces_them() {
    let failed = || json!({"/status/phase": "Failed"});
    let records = [
        record(1, "Pod of-living", &["ReplicaSet/living*"], failed()),
        record(1, "Pod of-gone", &["ReplicaSet/gone*"], failed()),
        record(1, "Pod of-restored", &["ReplicaSet/restored*"], failed()),
        record(1, "ReplicaSet restored", &[], json!({})),
        record(1, "Pod of-job", &["Job/living*"], failed()),
        record(1, "Pod alone", &[], failed()),
    ];
    let lives = |uid: &str| if uid == "uid-living" { Presence::Lives } else { Presence::Absent };
    let undo = plan(&records, &all(&records), &BTreeMap::new(), &beside(&lives));
    assert_eq!(
        shown(&undo),
        [
            "Create ReplicaSet/restored",
            "Impossible Pod/alone: a finished pod would run again",
            "Impossible Pod/of-gone: a finished pod would run again",
            "Impossible Pod/of-job: a finished pod would run again",
            "Recreated Pod/of-living by ReplicaSet/living",
            "Recreated Pod/of-restored by ReplicaSet/restored",
        ]
    );
}

#[test]
fn owners_come_first_and_controllers_do_their_part() {
    let finished = json!({"/status/conditions": [{"type": "Complete", "status": "True"}]});
    let records = [
        record(1, "Deployment web", &[], json!({})),
        record(1, "ReplicaSet web-1", &["Deployment/web*"], json!({})),
        record(1, "Pod web-1-a", &["ReplicaSet/web-1*"], json!({})),
        record(1, "ConfigMap z-owner", &[], json!({})),
        record(1, "ConfigMap a-child", &["ConfigMap/z-owner", "ConfigMap/gone"], json!({})),
        record(1, "ConfigMap taken", &[], json!({})),
        record(1, "ConfigMap below-taken", &["ConfigMap/taken"], json!({})),
        record(1, "ConfigMap before", &[], json!({})),
        record(1, "Job done", &[], finished),
        record(1, "Pod of-job", &["Job/done*"], json!({})),
    ];
    let living = BTreeMap::from([
        (
            "uid-taken".to_owned(),
            CurrentObject { uid: "new-taken".into(), restored_from: String::new(), is_terminating: false },
        ),
        (
            "uid-before".to_owned(),
            CurrentObject {
                uid: "new-before".into(),
                restored_from: "uid-before".into(),
                is_terminating: false,
            },
        ),
    ]);
    let undo = plan(&records, &all(&records), &living, &beside(&absent));
    assert_eq!(
        shown(&undo),
        [
            "Complete ConfigMap/before",
            "Exists ConfigMap/taken",
            "Create ConfigMap/below-taken",
            "Create ConfigMap/z-owner",
            "Create ConfigMap/a-child",
            "Create Deployment/web",
            "Recreated ReplicaSet/web-1 by Deployment/web",
            "Impossible Job/done: a finished Job would run again",
            "Create Pod/of-job",
            "Recreated Pod/web-1-a by ReplicaSet/web-1",
        ]
    );
    let child = &undo.steps[4];
    assert_eq!(child.notes, ["without references to owners that are gone: ConfigMap/gone"]);
    let mut known = undo.known.clone();
    assert_eq!(with_owners(&child.object, &known, &|_| false), None, "its owner is not there yet");
    known.insert("uid-z-owner".into(), "new-owner".into());
    let sent = with_owners(&child.object, &known, &|_| false).unwrap();
    assert_eq!(sent["metadata"]["ownerReferences"][0]["uid"], "new-owner");
    // A name proves nothing: another object does not own the dependents of its namesake.
    let below = with_owners(&undo.steps[2].object, &known, &|_| false).unwrap();
    assert_eq!(below["metadata"]["ownerReferences"], json!([]));
    assert_eq!(undo.steps[2].notes, ["without references to owners that are gone: ConfigMap/taken"]);
}

#[test]
fn objects_are_sent_without_what_the_server_sets() {
    let full = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n",
        "uid": "u", "resourceVersion": "7", "generation": 3, "creationTimestamp": "2027-01-01T00:00:00Z",
        "deletionTimestamp": "2027-01-02T00:00:00Z", "deletionGracePeriodSeconds": 0, "managedFields": [{}],
        "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["acme.io/x", "foregroundDeletion"]},
        "spec": {"size": 1}, "status": {"phase": "Ready"}});
    let record = Record { at: Timestamp(0), resource: "widgets.example.com".into(), object: full };
    let records = [record];
    let undo = plan(&records, &all(&records), &BTreeMap::new(), &beside(&absent));
    let step = &undo.steps[0];
    assert_eq!(
        step.object,
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n",
            "labels": {"a": "b"}, "annotations": {"c": "d", "kubegc.io/restored-from": "u"}}, "spec": {"size": 1}})
    );
    assert_eq!(step.status, Some(json!({"phase": "Ready"})));
    assert_eq!(step.notes, ["without its finalizers, which their controllers add again: acme.io/x"]);
    for (kind, api_version, spec, expected) in [
        ("Pod", "v1", json!({"nodeName": "x", "containers": []}), json!({"containers": []})),
        ("Namespace", "v1", json!({"finalizers": ["kubernetes"]}), json!({})),
        (
            "Job",
            "batch/v1",
            json!({"selector": {}, "template": {"metadata": {"labels": {"controller-uid": "u", "app": "a"}}}}),
            json!({"template": {"metadata": {"labels": {"app": "a"}}}}),
        ),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "uid": "u"},
            "spec": spec, "status": {"phase": "Running"}});
        let record = Record { at: Timestamp(0), resource: String::new(), object };
        let records = [record];
        let undo = plan(&records, &all(&records), &BTreeMap::new(), &beside(&absent));
        assert_eq!((&undo.steps[0].object["spec"], &undo.steps[0].status), (&expected, &None), "{kind}");
    }
}

#[test]
fn what_cannot_come_back_is_said() {
    for (object, why) in [
        (json!({"apiVersion": "v1", "kind": "Node"}), "a node comes back when its kubelet registers it"),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Failed"}}),
            "a finished pod would run again",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}),
            "a new token has to be made: the one of the past is no longer valid",
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
            "its storage was deleted with it",
        ),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "o", "uid": "u"});
        let record = Record { at: Timestamp(0), resource: String::new(), object };
        let records = [record];
        let undo = plan(&records, &all(&records), &BTreeMap::new(), &beside(&absent));
        assert_eq!(undo.steps[0].action, Action::Impossible(why));
    }
}

/// An ownership cycle does not block the plan.
#[test]
fn rings_are_planned_as_well() {
    let records = [
        record(1, "ConfigMap a", &["ConfigMap/b"], json!({})),
        record(1, "ConfigMap b", &["ConfigMap/a"], json!({})),
    ];
    assert_eq!(
        shown(&plan(&records, &all(&records), &BTreeMap::new(), &beside(&absent))),
        ["Create ConfigMap/a", "Create ConfigMap/b"]
    );
}

/// Deletions on other days are unrelated to that of the namespace or owner.
#[test]
fn only_what_went_along_comes_back() {
    const DAY: i64 = 86_400_000;
    let begun = jiff::Timestamp::from_millisecond(10 * DAY).unwrap().to_string();
    let deleted = || json!({"/metadata/namespace": "", "/metadata/deletionTimestamp": begun});
    let records = [
        record(3 * DAY, "ConfigMap revoked", &["ConfigMap/owner"], json!({})),
        record(10 * DAY - 60_000, "ConfigMap before", &[], json!({})),
        record(10 * DAY + 500, "ConfigMap owner", &[], json!({})),
        record(10 * DAY + 400, "ConfigMap along", &["ConfigMap/owner"], json!({})),
        record(10 * DAY + 9_000, "Namespace n", &[], deleted()),
        record(11 * DAY, "ConfigMap of-the-next", &[], json!({})),
    ];
    let names =
        |choice: Choice<'_>| -> Vec<String> { chosen(&records, &choice).records.into_keys().collect() };
    let namespace = |record: &Record| record.resource == "namespaces";
    assert_eq!(names(Choice::Last(&namespace)), ["uid-along", "uid-n", "uid-owner"]);
    assert_eq!(names(Choice::Cascade("uid-owner".into())), ["uid-along", "uid-owner"]);
}

#[test]
fn rights_come_back_only_when_they_are_named() {
    let mut binding = record(1, "RoleBinding admin", &[], json!({}));
    binding.object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    let records = [binding, record(2, "Namespace n", &[], json!({"/metadata/namespace": ""}))];
    let planned = |choice: &Choice<'_>| {
        shown(&plan(&records, &chosen(&records, choice), &BTreeMap::new(), &beside(&absent)))
    };
    for choice in
        [Choice::Last(&|record| record.resource == "namespaces"), Choice::Since(Timestamp(0), &|_| true)]
    {
        assert_eq!(planned(&choice), ["Create Namespace/n", "Withheld RoleBinding/admin"]);
    }
    assert_eq!(planned(&Choice::Cascade("uid-admin".into())), ["Create RoleBinding/admin"]);
}

/// Below a terminating owner, dependents would be collected again, and its controller creates nothing.
#[test]
fn nothing_is_created_below_an_owner_that_goes() {
    let records = [
        record(1, "ConfigMap below", &["ConfigMap/dying"], json!({})),
        record(1, "ConfigMap unclear", &["ConfigMap/unread"], json!({})),
        record(1, "ConfigMap held", &["ConfigMap/dying", "ConfigMap/living"], json!({})),
        record(1, "Pod of-dying", &["ReplicaSet/dying*"], json!({})),
        record(1, "ConfigMap again", &[], json!({})),
        record(1, "ConfigMap below-again", &["ConfigMap/again"], json!({})),
        record(1, "Job scheduled", &["CronJob/living*"], json!({})),
    ];
    let presence = |uid: &str| match uid {
        "uid-living" => Presence::Lives,
        "uid-dying" => Presence::Terminating,
        _ => Presence::Unknown,
    };
    let again = CurrentObject { uid: "new".into(), restored_from: "uid-again".into(), is_terminating: true };
    let undo = plan(
        &records,
        &all(&records),
        &BTreeMap::from([("uid-again".to_owned(), again)]),
        &beside(&presence),
    );
    let gone = "its owner is being deleted, and would take it along";
    let mut lines = shown(&undo);
    lines.sort();
    assert_eq!(
        lines,
        [
            "Create ConfigMap/held".to_owned(),
            "Create Job/scheduled".to_owned(),
            "Impossible ConfigMap/again: an object of its name is being deleted: repeat when that is gone".to_owned(),
            format!("Impossible ConfigMap/below-again: {gone}"),
            format!("Impossible ConfigMap/below: {gone}"),
            "Impossible ConfigMap/unclear: its owner could not be read: it may be gone, and its dependents with it"
                .to_owned(),
            format!("Impossible Pod/of-dying: {gone}"),
        ]
    );
}

/// A repeated run writes the same references as the first one.
#[test]
fn what_an_earlier_run_has_created_refers_to_nothing_that_is_gone() {
    let records = [record(1, "ConfigMap child", &["ConfigMap/gone"], json!({"/status/phase": "x"}))];
    let found = CurrentObject { uid: "new".into(), restored_from: "uid-child".into(), is_terminating: false };
    let undo =
        plan(&records, &all(&records), &BTreeMap::from([("uid-child".to_owned(), found)]), &beside(&absent));
    assert_eq!(shown(&undo), ["Complete ConfigMap/child"]);
    assert!(with_owners(&undo.steps[0].object, &undo.known, &|_| false).is_some());
}

/// The last recorded state of a pod that was running is finished, because its deletion ended it.
#[test]
fn pods_that_ran_until_their_deletion_come_back() {
    let pod = |finished: &str| {
        let ended = json!([{"state": {"terminated": {"finishedAt": finished}}}]);
        record(
            1,
            "Pod bare",
            &[],
            json!({"/status/phase": "Failed", "/status/containerStatuses": ended,
            "/metadata/deletionTimestamp": "2027-01-01T00:00:30Z", "/metadata/deletionGracePeriodSeconds": 30}),
        )
    };
    for (finished, expected) in [
        ("2027-01-01T00:00:02Z", "Create Pod/bare"),
        ("2026-12-31T23:50:00Z", "Impossible Pod/bare: a finished pod would run again"),
    ] {
        let records = [pod(finished)];
        assert_eq!(shown(&plan(&records, &all(&records), &BTreeMap::new(), &beside(&absent))), [expected]);
    }
}

/// Controllers create the objects of every namespace and Service; they do not recreate the rollback history of a Deployment.
#[test]
fn controllers_make_what_is_theirs() {
    let revision =
        |number: &str| json!({"/metadata/annotations": {"deployment.kubernetes.io/revision": number}});
    let mut service = record(
        1,
        "Service web",
        &[],
        json!({"/metadata/uid": "uid-service", "/spec/selector": {"app": "web"}}),
    );
    service.resource = "services".into();
    let records = [
        record(1, "ConfigMap kube-root-ca.crt", &[], json!({})),
        record(1, "ServiceAccount default", &[], json!({})),
        service,
        record(1, "Endpoints web", &[], json!({})),
        record(1, "Endpoints by-hand", &[], json!({})),
        record(1, "Deployment d", &[], revision("2")),
        record(1, "ReplicaSet d-1", &["Deployment/d*"], revision("1")),
        record(1, "ReplicaSet d-2", &["Deployment/d*"], revision("2")),
        record(1, "StatefulSet s", &[], json!({})),
        record(1, "ControllerRevision s-1", &["StatefulSet/s*"], json!({"/revision": 1})),
        record(1, "ControllerRevision s-2", &["StatefulSet/s*"], json!({"/revision": 2})),
    ];
    let mut lines = shown(&plan(&records, &all(&records), &BTreeMap::new(), &beside(&absent)));
    lines.sort();
    assert_eq!(
        lines,
        [
            "Create ControllerRevision/s-1",
            "Create Deployment/d",
            "Create Endpoints/by-hand",
            "Create ReplicaSet/d-1",
            "Create Service/web",
            "Create StatefulSet/s",
            "Recreated ConfigMap/kube-root-ca.crt by Namespace/n",
            "Recreated ControllerRevision/s-2 by StatefulSet/s",
            "Recreated Endpoints/web by Service/web",
            "Recreated ReplicaSet/d-2 by Deployment/d",
            "Recreated ServiceAccount/default by Namespace/n",
        ]
    );
}

/// The controller of an owner that was never gone recreates only its current revision; older ones are needed for a rollback.
#[test]
fn the_history_of_a_living_owner_comes_back() {
    let revision =
        |number: &str| json!({"/metadata/annotations": {"deployment.kubernetes.io/revision": number}});
    let records = [
        record(1, "ReplicaSet d-1", &["Deployment/d*"], revision("1")),
        record(1, "ReplicaSet d-2", &["Deployment/d*"], revision("2")),
        record(1, "ReplicaSet unread-1", &["Deployment/unread*"], revision("1")),
        record(1, "ControllerRevision s-1", &["StatefulSet/s*"], json!({"/revision": 1})),
        record(1, "ControllerRevision s-2", &["StatefulSet/s*"], json!({"/revision": 2})),
        record(1, "ControllerRevision ds-1", &["DaemonSet/ds*"], json!({"/revision": 1})),
    ];
    let revisions = BTreeMap::from([("uid-d".into(), "2".into()), ("uid-s".into(), "s-2".into())]);
    let owners = Owners { presence: &|_| Presence::Lives, revisions: &revisions };
    let mut lines = shown(&plan(&records, &all(&records), &BTreeMap::new(), &owners));
    lines.sort();
    assert_eq!(
        lines,
        [
            "Create ControllerRevision/ds-1",
            "Create ControllerRevision/s-1",
            "Create ReplicaSet/d-1",
            "Create ReplicaSet/unread-1",
            "Recreated ControllerRevision/s-2 by StatefulSet/s",
            "Recreated ReplicaSet/d-2 by Deployment/d",
        ]
    );
}

/// Only objects of Kubernetes' own controllers are called recreated.
#[test]
fn only_controllers_of_kubernetes_are_known_to_make_objects() {
    let slice = |name: &str, owner: &str, manager: &str| {
        let title = format!("EndpointSlice {name}");
        let labels = json!({"/metadata/labels": {"endpointslice.kubernetes.io/managed-by": manager}});
        record(1, &title, &[owner], labels)
    };
    let mut foreign = record(1, "Pod of-another", &["StatefulSet/kruise*"], json!({}));
    foreign.object["metadata"]["ownerReferences"][0]["apiVersion"] = "apps.kruise.io/v1beta1".into();
    let records = [
        foreign,
        slice("by-controller", "Service/web*", "endpointslice-controller.k8s.io"),
        slice("mirrored", "Endpoints/web*", "endpointslicemirroring-controller.k8s.io"),
        slice("by-hand", "Service/web*", "acme"),
    ];
    let lives = |_: &str| Presence::Lives;
    let mut lines = shown(&plan(&records, &all(&records), &BTreeMap::new(), &beside(&lives)));
    lines.sort();
    assert_eq!(
        lines,
        [
            "Create EndpointSlice/by-hand",
            "Create Pod/of-another",
            "Recreated EndpointSlice/by-controller by Service/web",
            "Recreated EndpointSlice/mirrored by Endpoints/web",
        ]
    );
}

/// Permissions are restored only when named explicitly; the same holds for credentials of the cluster, and for OpenShift's
/// permissions.
#[test]
fn whatever_grants_rights_has_to_be_named() {
    for (api_version, kind, secret_type, expected) in [
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "", true),
        ("authorization.openshift.io/v1", "RoleBinding", "", true),
        ("security.openshift.io/v1", "SecurityContextConstraints", "", true),
        ("v1", "Secret", "bootstrap.kubernetes.io/token", true),
        ("v1", "Secret", "Opaque", false),
        ("v1", "ServiceAccount", "", false),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "type": secret_type});
        assert_eq!(grants_rights(&object), expected, "{api_version} {kind} {secret_type}");
    }
}

/// If the server recorded the start of both deletions, a dependent that was deleted shortly before its owner is not part of the
/// act.
#[test]
fn what_was_deleted_before_its_owner_does_not_come_back_with_it() {
    let ended = |name: &str, owner: &[&str], begun: &str| {
        let title = format!("ConfigMap {name}");
        record(1_800_000_100_000, &title, owner, json!({"/metadata/deletionTimestamp": begun}))
    };
    let records = [
        ended("root", &[], "2027-01-15T08:00:20Z"),
        ended("before", &["ConfigMap/root"], "2027-01-15T08:00:10Z"),
        ended("with-it", &["ConfigMap/root"], "2027-01-15T08:00:20Z"),
        ended("after", &["ConfigMap/root"], "2027-01-15T08:01:00Z"),
        // The start of its deletion is unknown, and it was recorded later.
        record(1_800_000_100_000, "ConfigMap undated", &["ConfigMap/root"], json!({})),
    ];
    let chosen: Vec<String> =
        chosen(&records, &Choice::Cascade("uid-root".into())).records.into_keys().collect();
    assert_eq!(chosen, ["uid-after", "uid-root", "uid-undated", "uid-with-it"]);
}
