#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::catalog::Catalog;

/// Served resources as `resource Kind group scope`.
const SERVED: [(&str, &str, &str, &str); 8] = [
    ("", "configmaps", "ConfigMap", "Namespaced"),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim", "Namespaced"),
    ("", "persistentvolumes", "PersistentVolume", "Cluster"),
    ("", "pods", "Pod", "Namespaced"),
    ("", "namespaces", "Namespace", "Cluster"),
    ("apps", "replicasets", "ReplicaSet", "Namespaced"),
    ("batch", "jobs", "Job", "Namespaced"),
    ("acme.dev", "platforms", "Platform", "Cluster"),
];

fn catalog() -> Catalog {
    let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (group, resource, kind, scope) in SERVED {
        groups.entry(group).or_default().push(json!({"resource": resource, "responseKind": {"kind": kind},
            "scope": scope, "verbs": ["list", "delete"]}));
    }
    let document = |is_core: bool| {
        let groups = groups.iter().filter(|(group, _)| group.is_empty() == is_core);
        let items: Vec<Value> = groups
            .map(|(group, resources)| {
                json!({"metadata": {"name": group}, "versions": [{"version": "v1",
                "freshness": "Current", "resources": resources}]})
            })
            .collect();
        json!({"items": items}).to_string()
    };
    Catalog::read(document(true).as_bytes(), document(false).as_bytes()).unwrap()
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "ReplicaSet" => "apps/v1",
        "Job" => "batch/v1",
        "Platform" => "acme.dev/v1",
        _ => "v1",
    }
}

fn owner(title: &str, uid: &str) -> Value {
    let (kind, name) = title.split_once('/').unwrap();
    json!({"apiVersion": api_version(kind), "kind": kind, "name": name, "uid": uid, "controller": true})
}

/// Returns the object `Kind namespace/name` with a UID, owners (`Kind/name=uid`) and further members by JSON pointer.
fn object(title: &str, uid: &str, owners: &[&str], more: &[(&str, Value)]) -> Value {
    let (kind, place) = title.split_once(' ').unwrap();
    let (namespace, name) = place.split_once('/').unwrap();
    let owners: Vec<Value> = owners
        .iter()
        .map(|owned| {
            let (title, uid) = owned.split_once('=').unwrap();
            owner(title, uid)
        })
        .collect();
    let mut object = json!({"apiVersion": api_version(kind), "kind": kind, "metadata": {"name": name, "uid": uid,
        "resourceVersion": "7", "namespace": namespace, "ownerReferences": owners, "labels": {}, "annotations": {}},
        "spec": {}, "status": {}});
    for (pointer, value) in more {
        let (parent, field) = pointer.rsplit_once('.').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    object
}

fn cluster(objects: &[Value]) -> Cluster {
    let catalog = catalog();
    let mut cluster = Cluster::new(catalog.clone());
    for object in objects {
        let text = |field: &str| object[field].as_str().unwrap();
        cluster.add(catalog.of_kind(text("apiVersion"), text("kind")).unwrap(), object);
    }
    cluster
}

fn backup(objects: &[Value]) -> Backup {
    let mut backup = Backup::default();
    for object in objects {
        assert!(backup.add(object));
    }
    backup
}

fn compared(backup: Backup) -> Evidence {
    Evidence { backup: Some(backup), ..Evidence::default() }
}

/// Returns an object as Velero recreates it: with another UID, no owners, and the labels of the restore.
fn restored(object: &Value) -> Value {
    let mut object = object.clone();
    let uid = format!("new-{}", object["metadata"]["uid"].as_str().unwrap());
    object["metadata"]["uid"] = uid.into();
    object["metadata"]["ownerReferences"] = json!([]);
    object["metadata"]["labels"]["velero.io/restore-name"] = "monday".into();
    object["metadata"]["labels"]["velero.io/backup-name"] = "nightly".into();
    if let Some(claim) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
        claim.remove("uid");
    }
    object
}

fn shown(found: &Relink) -> Vec<String> {
    let line = |link: &Link| {
        let new = link.new.as_ref().map_or_else(|left| left.name().to_owned(), Clone::clone);
        format!("{} {} {} → {new}", link.place.name, link.owner, link.old)
    };
    found.links.iter().map(line).collect()
}

/// Lists the actions as well, each with its evidence.
fn actions(found: &Relink) -> Vec<String> {
    let line = |link: &Link| {
        let why = match (&link.new, &link.proof) {
            (Err(left), _) => left.name(),
            (Ok(_), Some(proof)) => proof.name(),
            (Ok(_), None) => "",
        };
        format!("{} {} of {}: {why}", link.action(), link.place.title(), link.owner)
    };
    found.links.iter().map(line).collect()
}

fn identity(name: &str) -> Identity {
    Identity { group: String::new(), kind: "ConfigMap".into(), namespace: "n".into(), name: name.into() }
}

#[test]
fn references_are_rewritten_on_evidence_alone() {
    let terminating = [("/metadata.deletionTimestamp", json!("2027-01-01T00:00:00Z"))];
    let map = |name: &str, owners: &[&str], is_terminating: bool| {
        let more = if is_terminating { &terminating[..] } else { &[] };
        object(&format!("ConfigMap n/{name}"), &format!("new-{name}"), owners, more)
    };
    let cluster = cluster(&[
        map("root", &[], false),
        map("ending", &[], true),
        map("fine", &["ConfigMap/root=new-root"], false),
        map("child", &["ConfigMap/root=old-root", "ConfigMap/root=new-root"], false),
        map("named", &["ConfigMap/root=old-named"], false),
        map("lost", &["ConfigMap/root=old-unknown"], false),
        map("late", &["ConfigMap/root=old-root"], true),
        map("orphan", &["ConfigMap/gone=old-gone"], false),
        map("below", &["ConfigMap/ending=old-ending"], false),
        object("PersistentVolumeClaim n/claim", "new-claim", &[], &[]),
        map("mixed", &["ConfigMap/claim=old-claim"], false),
    ]);
    let mut evidence = Evidence::default();
    for name in ["root", "gone", "ending"] {
        evidence.identities.insert(format!("old-{name}"), identity(name));
    }
    evidence.map.insert("old-named".into(), "new-root".into());
    evidence.map.insert("old-claim".into(), "new-claim".into());
    let found = relink(&cluster, &evidence, "");
    assert_eq!(
        shown(&found),
        [
            "below ConfigMap/ending old-ending → OwnerTerminating",
            "child ConfigMap/root old-root → new-root",
            "late ConfigMap/root old-root → Terminating",
            "lost ConfigMap/root old-unknown → NoEvidence",
            "mixed ConfigMap/claim old-claim → OwnerUnfit",
            "named ConfigMap/root old-named → new-root",
            "orphan ConfigMap/gone old-gone → OwnerAbsent",
        ]
    );
    let child = found.patches.iter().find(|patch| patch.place.name == "child").unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": "new-root", "controller": true});
    assert_eq!(
        child.body,
        json!({"metadata": {"uid": "new-child", "resourceVersion": "7", "ownerReferences": [owner]}})
    );
    assert_eq!((found.patches.len(), found.comparison), (2, None));
}

#[test]
fn volumes_follow_their_claims() {
    let volume = |name: &str, claim: &str, uid: &str| {
        let claim = json!({"kind": "PersistentVolumeClaim", "namespace": "n", "name": claim, "uid": uid});
        object(
            &format!("PersistentVolume /{name}"),
            &format!("uid-{name}"),
            &[],
            &[("/metadata.resourceVersion", json!("5")), ("/spec.claimRef", claim)],
        )
    };
    let cluster = cluster(&[
        object("PersistentVolumeClaim n/data", "new-data", &[], &[]),
        volume("a", "data", "old"),
        volume("b", "data", "new-data"),
        volume("c", "data", "unknown"),
        volume("d", "other", "old"),
        volume("e", "data", ""),
    ]);
    let claim = Identity { kind: "PersistentVolumeClaim".into(), ..identity("data") };
    let evidence = Evidence { identities: BTreeMap::from([("old".into(), claim)]), ..Evidence::default() };
    let found = relink(&cluster, &evidence, "");
    assert_eq!(
        shown(&found),
        [
            "a PersistentVolumeClaim/data old → new-data",
            "c PersistentVolumeClaim/data unknown → NoEvidence",
            "d PersistentVolumeClaim/other old → OwnerUnfit",
        ]
    );
    assert_eq!(
        found.patches.iter().map(|patch| patch.body.clone()).collect::<Vec<_>>(),
        [json!({"metadata": {"uid": "uid-a", "resourceVersion": "5"},
            "spec": {"claimRef": {"uid": "new-data", "resourceVersion": null}}})]
    );
}

#[test]
fn what_a_restore_has_removed_is_added_back_as_it_was() {
    let mut shared = object("ConfigMap n/shared", "3", &["Platform/main=1", "ConfigMap/root=2"], &[]);
    shared["metadata"]["ownerReferences"][0]["controller"] = Value::Null;
    shared["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into();
    let saved = [
        object("Platform /main", "1", &[], &[]),
        object("ConfigMap n/root", "2", &["Platform/main=1"], &[]),
        shared,
    ];
    let mut cluster_now: Vec<Value> = saved.iter().map(restored).collect();
    let evidence = compared(backup(&saved));
    let found = relink(&cluster(&cluster_now), &evidence, "");
    assert_eq!(
        actions(&found),
        [
            "Add ConfigMap/root of Platform/main: Restored",
            "Add ConfigMap/shared of Platform/main: Restored",
            "Add ConfigMap/shared of ConfigMap/root: Restored",
        ]
    );
    assert_eq!(found.outcome().unwrap(), "0 of 3 references of the backup restored, 3 can be");
    assert!(!found.is_complete());
    let owners = json!([
        {"apiVersion": "acme.dev/v1", "kind": "Platform", "name": "main", "uid": "new-1", "blockOwnerDeletion": true},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": "new-2", "controller": true},
    ]);
    let of_shared = found.patches.iter().find(|patch| patch.place.name == "shared").unwrap();
    assert_eq!(
        of_shared.body,
        json!({"metadata": {"uid": "new-3", "resourceVersion": "7", "ownerReferences": owners}})
    );
    for (object, patch) in [(1, "root"), (2, "shared")] {
        let patch = found.patches.iter().find(|known| known.place.name == patch).unwrap();
        cluster_now[object]["metadata"]["ownerReferences"] =
            patch.body["metadata"]["ownerReferences"].clone();
    }
    let again = relink(&cluster(&cluster_now), &evidence, "");
    assert_eq!((again.links.len(), again.patches.len(), again.is_complete()), (0, 0, true));
    assert_eq!(again.outcome().unwrap(), "3 of 3 references of the backup restored");
}

/// References are restored only with evidence, never beside another controller, and not to recreated objects.
#[test]
fn nothing_is_linked_on_a_name_alone() {
    let child = |name: &str, owner: &str| object(&format!("ConfigMap n/{name}"), name, &[owner], &[]);
    let root = |name: &str| object(&format!("ConfigMap n/{name}"), name, &[], &[]);
    let saved = [
        root("restored"),
        root("recreated"),
        root("kept"),
        root("gone"),
        root("ending"),
        root("newer"),
        child("of-restored", "ConfigMap/restored=restored"),
        child("of-recreated", "ConfigMap/recreated=recreated"),
        child("of-kept", "ConfigMap/kept=kept"),
        child("of-gone", "ConfigMap/gone=gone"),
        child("of-ending", "ConfigMap/ending=ending"),
        child("of-another", "ConfigMap/restored=restored"),
        child("itself-recreated", "ConfigMap/restored=restored"),
        child("stale", "ConfigMap/newer=older"),
        child("lost", "ConfigMap/restored=restored"),
        child("of-nothing", "Platform/main=p"),
        object(
            "Pod n/done",
            "done",
            &["ConfigMap/restored=restored"],
            &[("/status.phase", json!("Succeeded"))],
        ),
    ];
    let mut living: Vec<Value> = Vec::new();
    for object in &saved {
        let name = object["metadata"]["name"].as_str().unwrap();
        let mut now = restored(object);
        match name {
            "recreated" | "itself-recreated" => now["metadata"]["labels"] = json!({}),
            "kept" => now = object.clone(),
            "ending" => now["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into(),
            "of-another" => now["metadata"]["ownerReferences"] = json!([owner("ConfigMap/kept", "kept")]),
            "gone" | "lost" | "done" => continue,
            _ => {}
        }
        living.push(now);
    }
    let found = relink(&cluster(&living), &compared(backup(&saved)), "");
    assert_eq!(
        actions(&found),
        [
            "Leave ConfigMap/itself-recreated of ConfigMap/restored: ObjectRecreated",
            "Leave ConfigMap/lost of ConfigMap/restored: NotRestored",
            "Leave ConfigMap/of-another of ConfigMap/restored: OtherController",
            "Leave ConfigMap/of-ending of ConfigMap/ending: OwnerTerminating",
            "Leave ConfigMap/of-gone of ConfigMap/gone: OwnerAbsent",
            "Add ConfigMap/of-kept of ConfigMap/kept: NeverDeleted",
            "Leave ConfigMap/of-nothing of Platform/main: OwnerAbsent",
            "Leave ConfigMap/of-recreated of ConfigMap/recreated: OwnerRecreated",
            "Add ConfigMap/of-restored of ConfigMap/restored: Restored",
            "Leave ConfigMap/stale of ConfigMap/newer: StaleInBackup",
            "Leave Pod/done of ConfigMap/restored: Finished",
        ]
    );
    let outcome = found.outcome().unwrap();
    assert!(
        outcome.starts_with("0 of 11 references of the backup restored, 2 can be, 7 impossible because "),
        "{outcome}"
    );
    let by_design = "2 left out by design because it led nowhere in the backup (1), no restore creates finished Jobs and pods (1)";
    assert!(outcome.contains(by_design), "{outcome}");
    assert!(outcome.contains("the owner was not restored (2)"), "{outcome}");
    let advice: Vec<&str> =
        found.advice.iter().flat_map(|advice| &advice.commands).map(String::as_str).collect();
    assert_eq!(
        advice,
        [
            "--map recreated=new-recreated",
            "kubectl -n n delete configmaps/of-gone",
            "kubectl -n n delete configmaps/of-nothing"
        ]
    );
    // The user may say so.
    let mut evidence = compared(backup(&saved));
    evidence.map.insert("recreated".into(), "new-recreated".into());
    let found = relink(&cluster(&living), &evidence, "");
    assert!(actions(&found).contains(&"Add ConfigMap/of-recreated of ConfigMap/recreated: Map".to_owned()));
}

/// If nothing has the labels of a restore, another tool has restored it, and the backup shows where each object was.
#[test]
fn without_labels_the_backup_says_where_owners_were() {
    let mut saved = [
        object("ConfigMap n/root", "1", &[], &[]),
        object("ConfigMap n/child", "2", &["ConfigMap/root=1"], &[]),
    ];
    // A label of an earlier restore proves nothing.
    saved[1]["metadata"]["labels"]["velero.io/restore-name"] = "sunday".into();
    let mut living: Vec<Value> = saved.to_vec();
    for object in &mut living {
        object["metadata"]["uid"] = format!("new-{}", object["metadata"]["uid"].as_str().unwrap()).into();
        object["metadata"]["ownerReferences"] = json!([]);
    }
    let found = relink(&cluster(&living), &compared(backup(&saved)), "");
    assert_eq!(actions(&found), ["Add ConfigMap/child of ConfigMap/root: Place"]);
    // An interrupted undo from records is completed in the same way.
    living[0]["metadata"]["annotations"][crate::undo::RESTORED_FROM] = "1".into();
    let mut records = backup(&saved);
    records.is_partial = true;
    records.add(&object("ConfigMap n/deleted-on-purpose", "3", &["ConfigMap/root=1"], &[]));
    let found = relink(&cluster(&living), &compared(records), "");
    assert_eq!(actions(&found), ["Add ConfigMap/child of ConfigMap/root: Undone"]);
    assert_eq!(found.outcome().unwrap(), "0 of 1 references of the backup restored, 1 can be");
}

#[test]
fn namespaces_that_were_renamed_are_found_by_their_labels() {
    let saved = [
        object("ConfigMap shop/root", "1", &[], &[]),
        object("ConfigMap shop/child", "2", &["ConfigMap/root=1"], &[]),
        object("ConfigMap other/common", "3", &[], &[]),
    ];
    let copies: Vec<Value> = saved[..2]
        .iter()
        .map(|object| {
            let mut copy = restored(object);
            copy["metadata"]["namespace"] = "shop-2".into();
            copy
        })
        .collect();
    let mut foreign = restored(&object("ConfigMap foreign/common", "9", &[], &[]));
    let more = restored(&object("ConfigMap foreign/own", "10", &[], &[]));
    foreign["metadata"]["namespace"] = "foreign".into();
    let mut living = copies.clone();
    living.extend([foreign, more]);
    let found = relink(&cluster(&living), &compared(backup(&saved)), "");
    assert_eq!(actions(&found), ["Add ConfigMap/child of ConfigMap/root: Restored"]);
    assert_eq!(found.links[0].place.namespace, "shop-2");
    let renamed = vec![("shop".to_owned(), "shop-2".to_owned())];
    assert_eq!(found.comparison.unwrap().namespaces, renamed);
    // Without labels, the user has to name the namespace.
    for object in &mut living {
        object["metadata"]["labels"] = json!({});
    }
    let mut told = backup(&saved);
    assert!(!told.has_namespace("shop-2") && told.has_namespace("shop"));
    let found = relink(&cluster(&living), &compared(told.clone()), "");
    assert_eq!(actions(&found), ["Leave ConfigMap/child of ConfigMap/root: NotRestored"]);
    told.mappings.insert("shop".into(), ["shop-2".to_owned()].into());
    let found = relink(&cluster(&living), &compared(told), "shop-2");
    assert_eq!(actions(&found), ["Add ConfigMap/child of ConfigMap/root: Place"]);
}

#[test]
fn controllers_that_were_faster_are_recognised() {
    let set = object("ReplicaSet n/web", "set", &[], &[]);
    let job = object("Job n/mail", "job", &[], &[]);
    let pod = |name: &str, owner: &str, labels: Value| {
        object(&format!("Pod n/{name}"), name, &[owner], &[("/metadata.labels", labels)])
    };
    let of_job = json!({"batch.kubernetes.io/controller-uid": "job", "controller-uid": "job", "app": "mail"});
    let saved = [
        set.clone(),
        job.clone(),
        pod("adopted", "ReplicaSet/web=set", json!({})),
        pod("replaced", "ReplicaSet/web=set", json!({})),
        pod("surplus", "ReplicaSet/web=set", json!({})),
        pod("working", "Job/mail=job", of_job),
    ];
    let mut adopted = restored(&saved[2]);
    adopted["metadata"]["ownerReferences"] = json!([owner("ReplicaSet/web", "new-set")]);
    let new = [
        pod("new", "ReplicaSet/web=new-set", json!({})),
        pod("beside", "Job/mail=new-job", json!({"controller-uid": "new-job"})),
    ];
    let mut living = vec![restored(&set), restored(&job), adopted, restored(&saved[5])];
    living.extend(new);
    let found = relink(&cluster(&living), &compared(backup(&saved)), "");
    assert_eq!(
        actions(&found),
        ["Leave Pod/surplus of ReplicaSet/web: NotRestored", "Add Pod/working of Job/mail: Restored"]
    );
    let comparison = found.comparison.as_ref().unwrap();
    assert_eq!((comparison.references, comparison.in_place), (4, 1));
    assert_eq!(comparison.replaced.iter().map(|one| one.by.as_str()).collect::<Vec<_>>(), ["Pod/new"]);
    // A Job releases pods that do not have its UID.
    let labels = json!({"batch.kubernetes.io/controller-uid": "new-job", "controller-uid": "new-job"});
    assert_eq!(found.patches[0].body["metadata"]["labels"], labels);
    let advice = found.advice.iter().find(|advice| advice.place.kind == "Job").unwrap();
    assert!(advice.text.starts_with("it has made Pod/beside beside 1 Pod that the restore has created"));
    assert_eq!(advice.commands, ["kubectl -n n delete pods/working"]);
}

#[test]
fn what_cannot_be_listed_proves_nothing() {
    let saved = [
        object("Platform /main", "1", &[], &[]),
        object("ConfigMap n/child", "2", &["Platform/main=1"], &[]),
        object("Job n/unseen", "3", &["Platform/main=1"], &[]),
    ];
    let mut living = cluster(&[restored(&saved[1])]);
    for (api_version, kind) in [("acme.dev/v1", "Platform"), ("batch/v1", "Job")] {
        living.not_listed(catalog().of_kind(api_version, kind).unwrap());
    }
    let found = relink(&living, &compared(backup(&saved)), "");
    assert_eq!(
        actions(&found),
        ["Leave Job/unseen of Platform/main: Unread", "Leave ConfigMap/child of Platform/main: Unread"]
    );
}

/// Returns a volume with its phase and its `claimRef`.
fn volume(name: &str, phase: &str, claim: &str, uid: &str) -> Value {
    let claim = json!({"kind": "PersistentVolumeClaim", "namespace": "n", "name": claim, "uid": uid});
    let spec = json!({"claimRef": claim, "persistentVolumeReclaimPolicy": "Retain"});
    let title = format!("PersistentVolume /{name}");
    object(&title, name, &[], &[(".spec", spec), ("/status.phase", json!(phase))])
}

fn claim(name: &str, uid: &str, volume: &str) -> Value {
    object(&format!("PersistentVolumeClaim n/{name}"), uid, &[], &[("/spec.volumeName", json!(volume))])
}

#[test]
fn volumes_are_bound_again_to_the_claims_of_the_backup() {
    let saved = [
        volume("kept", "Bound", "data-0", "c0"),
        volume("taken", "Bound", "data-1", "c1"),
        volume("provisioned", "Bound", "data-2", "c2"),
        claim("data-0", "c0", "kept"),
        claim("data-1", "c1", "taken"),
        claim("data-2", "c2", "provisioned"),
        claim("data-3", "c3", "absent"),
    ];
    let mut living: Vec<Value> = saved.iter().map(restored).collect();
    // By now, one claim is bound to another volume, and one volume was recreated.
    living[4]["spec"]["volumeName"] = "fresh".into();
    living[5]["spec"]["volumeName"] = "fresh-2".into();
    living.remove(2);
    living.extend([
        volume("fresh", "Bound", "data-1", "new-c1"),
        volume("fresh-2", "Bound", "data-2", "new-c2"),
    ]);
    let found = relink(&cluster(&living), &compared(backup(&saved)), "");
    assert_eq!(
        actions(&found),
        [
            "Add PersistentVolume/kept of PersistentVolumeClaim/data-0: Restored",
            "Leave PersistentVolume/taken of PersistentVolumeClaim/data-1: BoundElsewhere",
        ]
    );
    let comparison = found.comparison.as_ref().unwrap();
    assert_eq!(comparison.replaced[0].by, "PersistentVolume/fresh-2");
    assert_eq!(found.patches[0].body["spec"]["claimRef"], json!({"uid": "new-c0", "resourceVersion": null}));
    let lost: Vec<&str> = found.advice.iter().map(|advice| advice.place.name.as_str()).collect();
    assert_eq!(lost, ["data-3"]);
    assert_eq!(found.advice[0].commands, ["kubectl -n n delete persistentvolumeclaims/data-3"]);
}

#[test]
fn released_volumes_are_bound_again_by_commands() {
    let living = [
        volume("a", "Released", "data-a", "old-a"),
        volume("b", "Released", "data-b", "old-b"),
        volume("c", "Released", "data-c", "old-c"),
        claim("data-a", "new-a", ""),
        claim("data-b", "new-b", "c"),
    ];
    let found = relink(&cluster(&living), &Evidence::default(), "");
    let commands: Vec<&str> =
        found.advice.iter().flat_map(|advice| &advice.commands).map(String::as_str).collect();
    assert_eq!(
        commands,
        [
            "kubegc relink --map old-a=new-a --yes",
            r#"kubectl patch persistentvolumes/b --type=merge -p '{"metadata":{"uid":"b"},"spec":{"claimRef":null}}'"#,
            r#"kubectl patch persistentvolumes/c --type=merge -p '{"metadata":{"uid":"c"},"spec":{"claimRef":{"resourceVersion":null,"uid":null}}}'"#,
        ]
    );
}
