#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::testing::{World, owner};

fn world(spec: &Value) -> World {
    let mut world = World::whole();
    let mut whole = json!({"replicas": 3, "serviceName": "web", "updateStrategy": {"type": "RollingUpdate"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    world.create(Kind::StatefulSet, owner("web", &whole));
    world.settle();
    world
}

fn change(world: &mut World, change: impl FnOnce(&mut Value)) {
    world.change(Kind::StatefulSet, "web", change);
    world.settle();
}

fn images(world: &World) -> Vec<Value> {
    world.of_kind(Kind::Pod).into_iter().map(|pod| pod["spec"]["containers"][0]["image"].clone()).collect()
}

#[test]
fn pods_are_created_in_order_and_shown() {
    let mut world = world(&json!({}));
    let revision = world.names(Kind::ControllerRevision)[0].to_owned();
    assert_eq!(world.names(Kind::Pod), ["web-0", "web-1", "web-2"]);
    let created = world.events("web");
    let expected =
        [0, 1, 2].map(|n| format!("SuccessfulCreate Create Pod web-{n} in StatefulSet web successful"));
    assert_eq!(created, expected);
    assert_eq!(
        world.get(Kind::StatefulSet, "web")["status"],
        json!({"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3,
            "currentReplicas": 3, "updatedReplicas": 3, "currentRevision": revision, "updateRevision": revision,
            "collisionCount": 0})
    );
    let pod = world.get(Kind::Pod, "web-1");
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "web", "statefulset.kubernetes.io/pod-name": "web-1", "apps.kubernetes.io/pod-index": "1",
            "controller-revision-hash": revision})
    );
    assert_eq!(pod["metadata"]["generateName"], "web-");
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-1"), &json!("web")));
    change(&mut world, |value| value["spec"]["replicas"] = 1.into());
    assert_eq!(world.names(Kind::Pod), ["web-0"]);
    let events = world.events("web");
    assert_eq!(events[3], "SuccessfulDelete Delete Pod web-2 in StatefulSet web successful");
}

#[test]
fn one_that_is_not_ready_holds_up_those_behind_it_unless_they_are_parallel() {
    let stuck = json!({"template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"nodeSelector": {"disk": "none"}, "containers": [{"name": "c"}]}}});
    assert_eq!(world(&stuck).names(Kind::Pod), ["web-0"]);
    let mut parallel = stuck.clone();
    parallel["podManagementPolicy"] = "Parallel".into();
    assert_eq!(world(&parallel).names(Kind::Pod), ["web-0", "web-1", "web-2"]);
}

#[test]
fn a_roll_goes_from_the_last_to_the_partition_and_back() {
    let mut world =
        world(&json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}));
    change(&mut world, |value| value["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
    assert_eq!(images(&world), ["web:1", "web:1", "web:2"]);
    // A pod below the partition comes back as it was.
    world.delete(&Kind::Pod.key("default", "web-0"), None);
    world.settle();
    assert_eq!(images(&world), ["web:1", "web:1", "web:2"]);
    change(&mut world, |value| value["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 0.into());
    assert_eq!(images(&world), ["web:2", "web:2", "web:2"]);
    let status = &world.get(Kind::StatefulSet, "web")["status"];
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    change(&mut world, |value| value["spec"]["template"]["spec"]["containers"][0]["image"] = "web:1".into());
    assert_eq!(images(&world), ["web:1", "web:1", "web:1"]);
    // The first revision is now the third.
    let mut numbers: Vec<_> =
        world.of_kind(Kind::ControllerRevision).iter().map(|one| one["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
}

#[test]
fn pods_are_replaced_on_deletion_alone_where_that_is_the_strategy() {
    let mut world = world(&json!({"updateStrategy": {"type": "OnDelete"}}));
    change(&mut world, |value| value["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
    assert_eq!(images(&world), ["web:1", "web:1", "web:1"]);
    world.delete(&Kind::Pod.key("default", "web-1"), None);
    world.settle();
    assert_eq!(images(&world), ["web:1", "web:2", "web:1"]);
}

#[test]
fn claims_follow_the_retention_policy() {
    let templates = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let owners = |world: &World, name: &str| {
        let owners = &world.get(Kind::PersistentVolumeClaim, name)["metadata"]["ownerReferences"];
        let kinds =
            owners.as_array().into_iter().flatten().map(|owner| owner["kind"].as_str().unwrap().to_owned());
        kinds.collect::<Vec<_>>()
    };
    let mut retained = world(&json!({"replicas": 2, "volumeClaimTemplates": templates}));
    assert_eq!(retained.names(Kind::PersistentVolumeClaim), ["data-web-0", "data-web-1"]);
    assert_eq!(
        retained.get(Kind::PersistentVolumeClaim, "data-web-0")["metadata"]["labels"],
        json!({"app": "web"})
    );
    let volume = &retained.get(Kind::Pod, "web-0")["spec"]["volumes"][0];
    assert_eq!(*volume, json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}));
    change(&mut retained, |value| value["spec"]["replicas"] = 1.into());
    assert_eq!(owners(&retained, "data-web-1"), [""; 0]);
    let mut deleted = world(&json!({"replicas": 2, "volumeClaimTemplates": templates,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"}}));
    assert_eq!(owners(&deleted, "data-web-1"), ["StatefulSet"]);
    change(&mut deleted, |value| value["spec"]["replicas"] = 1.into());
    assert_eq!(owners(&deleted, "data-web-0"), ["StatefulSet"]);
    // The owner-reference collector deletes it with the pod, which does not wait for it.
    assert_eq!(owners(&deleted, "data-web-1"), ["Pod"]);
    let owner = &deleted.get(Kind::PersistentVolumeClaim, "data-web-1")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &Value::Null));
}

/// Returns a set of two with a claim for each, which are deleted when it is scaled down.
fn with_claims() -> World {
    world(&json!({"replicas": 2,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"}}))
}

#[test]
fn a_pod_waits_for_the_end_of_the_claim_that_the_one_before_it_left() {
    let mut world = with_claims();
    change(&mut world, |value| value["spec"]["replicas"] = 1.into());
    change(&mut world, |value| value["spec"]["replicas"] = 2.into());
    assert_eq!(world.names(Kind::Pod), ["web-0"], "the claim belongs to a pod that is gone");
    world.change(Kind::PersistentVolumeClaim, "data-web-1", |value| {
        value["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    });
    let claim = Kind::PersistentVolumeClaim.key("default", "data-web-1");
    world.delete(&claim, None);
    world.change(Kind::PersistentVolumeClaim, "data-web-1", |value| {
        value["metadata"]["ownerReferences"] = json!([]);
    });
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["web-0"]);
    let refused =
        "FailedCreate Create Pod web-1 in StatefulSet web failed error: pvc data-web-1 is being deleted";
    assert!(world.events("web").contains(&refused.to_owned()), "{:?}", world.events("web"));
    world.change(Kind::PersistentVolumeClaim, "data-web-1", |value| {
        value["metadata"]["finalizers"] = json!([]);
    });
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["web-0", "web-1"]);
    assert_eq!(world.names(Kind::PersistentVolumeClaim), ["data-web-0", "data-web-1"]);
}

/// The owner-reference collector removes the pod from the claim's owners before the pod can end.
#[test]
fn a_pod_that_orphans_its_dependents_gets_no_claim() {
    let mut world = with_claims();
    let pod = Kind::Pod.key("default", "web-1");
    world.change(Kind::Pod, "web-1", |value| value["metadata"]["finalizers"] = json!(["orphan"]));
    world.delete(&pod, Some(0));
    change(&mut world, |value| value["spec"]["replicas"] = 1.into());
    assert_eq!(world.names(Kind::Pod), ["web-0", "web-1"], "its finalizer keeps the pod");
    let owners = |world: &World| {
        world.get(Kind::PersistentVolumeClaim, "data-web-1")["metadata"]["ownerReferences"].clone()
    };
    assert!(owners(&world).as_array().is_none_or(Vec::is_empty), "{}", owners(&world));
    world.change(Kind::Pod, "web-1", |value| value["metadata"]["finalizers"] = json!([]));
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["web-0"]);
    assert!(owners(&world).as_array().is_none_or(Vec::is_empty), "{}", owners(&world));
}

#[test]
fn a_claim_with_another_controller_is_left_alone_and_one_of_a_set_that_is_gone_is_taken_over() {
    let claims = json!({"replicas": 1,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}});
    let mut world = world(&claims);
    let own = world.get(Kind::PersistentVolumeClaim, "data-web-0")["metadata"]["ownerReferences"].clone();
    let other = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other", "controller": true}]);
    let gone = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "gone"}]);
    for (before, after) in [(&other, &other), (&gone, &own)] {
        world.change(Kind::PersistentVolumeClaim, "data-web-0", |value| {
            value["metadata"]["ownerReferences"] = before.clone();
        });
        world.settle();
        let owners = &world.get(Kind::PersistentVolumeClaim, "data-web-0")["metadata"]["ownerReferences"];
        assert_eq!(owners, after, "{before}");
    }
}

#[test]
fn orphaned_pods_and_revisions_of_a_set_of_the_same_name_are_adopted() {
    let mut world = world(&json!({}));
    let names = |world: &World, kind| world.names(kind).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let (pods, revisions) = (names(&world, Kind::Pod), names(&world, Kind::ControllerRevision));
    let uids = |world: &World| {
        world.of_kind(Kind::Pod).iter().map(|pod| pod["metadata"]["uid"].clone()).collect::<Vec<_>>()
    };
    let before = uids(&world);
    world.delete(&Kind::StatefulSet.key("default", "web"), None);
    for (kind, names) in [(Kind::Pod, &pods), (Kind::ControllerRevision, &revisions)] {
        for name in names {
            world.change(kind, name, |value| value["metadata"]["ownerReferences"] = json!([]));
        }
    }
    world.settle();
    let again = json!({"replicas": 3, "serviceName": "web", "updateStrategy": {"type": "RollingUpdate"}});
    world.create(Kind::StatefulSet, owner("web", &again));
    world.settle();
    assert_eq!((uids(&world), names(&world, Kind::ControllerRevision)), (before, revisions));
    let owner = &world.of_kind(Kind::ControllerRevision)[0]["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(*owner, world.get(Kind::StatefulSet, "web")["metadata"]["uid"]);
}

#[test]
fn several_pods_are_replaced_at_a_time_if_several_may_be_unavailable() {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
    let mut world =
        world(&json!({"replicas": 5, "updateStrategy": strategy, "podManagementPolicy": "Parallel"}));
    change(&mut world, |value| value["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
    world.settle();
    assert_eq!(images(&world), ["web:2"; 5]);
    let deleted: Vec<String> = world.log.iter().filter(|line| line.contains(" order ")).cloned().collect();
    assert_eq!(deleted.len(), 5);
}
