#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::testing::World;
use crate::workloads::Workload;

fn claim(name: &str, class: &Value) -> Value {
    json!({"metadata": {"name": name}, "status": {"phase": "Pending"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class}})
}

fn volume(name: &str, size: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"phase": "Pending"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": class,
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"}}})
}

fn pod(claim: &str) -> Value {
    json!({"metadata": {"name": "user"}, "spec": {"containers": [{"name": "c"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}, "status": {"phase": "Pending"}})
}

fn phase(world: &World, kind: Kind, name: &str) -> Value {
    world.get(kind, name)["status"]["phase"].clone()
}

#[test]
fn a_claim_gets_the_smallest_volume_that_is_large_enough() {
    let mut world = World::new(&[Workload::VolumeBinding]);
    for (name, size) in [("large", "5Gi"), ("fitting", "2Gi"), ("small", "500Mi")] {
        world.create(Kind::PersistentVolume, volume(name, size, ""));
    }
    world.create(Kind::PersistentVolumeClaim, claim("data", &"".into()));
    world.settle();
    let (bound, used) =
        (world.get(Kind::PersistentVolumeClaim, "data"), world.get(Kind::PersistentVolume, "fitting"));
    let uid = &bound["metadata"]["uid"];
    assert_eq!(bound["spec"]["volumeName"], "fitting");
    assert_eq!(
        bound["metadata"]["annotations"],
        json!({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"})
    );
    let status = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}});
    assert_eq!(bound["status"], status);
    assert_eq!((&used["spec"]["claimRef"]["uid"], &used["status"]["phase"]), (uid, &"Bound".into()));
    assert_eq!(phase(&world, Kind::PersistentVolume, "small"), "Available");
    // The volume is deleted by force, so its data is lost.
    world.delete(&Kind::PersistentVolume.key("", "fitting"), None);
    world.settle();
    assert_eq!(phase(&world, Kind::PersistentVolumeClaim, "data"), "Lost");
    assert_eq!(
        world.events("data"),
        ["ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!"]
    );
}

#[test]
fn a_volume_reserved_for_a_claim_is_its_own() {
    let mut world = World::new(&[Workload::VolumeBinding]);
    let mut reserved = volume("mine", "5Gi", "");
    reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    world.create(Kind::PersistentVolume, reserved);
    world.create(Kind::PersistentVolume, volume("other", "1Gi", ""));
    world.create(Kind::PersistentVolumeClaim, claim("data", &"".into()));
    world.create(Kind::PersistentVolumeClaim, claim("more", &"".into()));
    world.create(Kind::PersistentVolumeClaim, claim("waits", &"".into()));
    world.settle();
    assert_eq!(world.get(Kind::PersistentVolumeClaim, "data")["spec"]["volumeName"], "mine");
    assert_eq!(world.get(Kind::PersistentVolumeClaim, "more")["spec"]["volumeName"], "other");
    assert_eq!(phase(&world, Kind::PersistentVolumeClaim, "waits"), "Pending");
    let annotations = &world.get(Kind::PersistentVolume, "mine")["metadata"]["annotations"];
    assert_eq!(*annotations, Value::Null, "who reserved it is not the controller");
    world.create(Kind::PersistentVolume, volume("late", "1Gi", ""));
    world.settle();
    assert_eq!(phase(&world, Kind::PersistentVolumeClaim, "waits"), "Bound");
}

#[test]
fn the_default_class_provisions_resizes_and_deletes() {
    let mut world = World::whole();
    world.create(Kind::PersistentVolumeClaim, claim("data", &Value::Null));
    world.settle();
    let bound = world.get(Kind::PersistentVolumeClaim, "data");
    let name = format!("pvc-{}", bound["metadata"]["uid"].as_str().unwrap());
    assert_eq!(
        (&bound["spec"]["storageClassName"], &bound["spec"]["volumeName"]),
        (&"standard".into(), &name.clone().into())
    );
    let provisioned = world.get(Kind::PersistentVolume, &name);
    assert_eq!(
        provisioned["metadata"]["annotations"],
        json!({"pv.kubernetes.io/provisioned-by": "kubegc.io/simulated"})
    );
    assert_eq!(provisioned["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(provisioned["status"]["phase"], "Bound");
    world.change(Kind::PersistentVolumeClaim, "data", |claim| {
        claim["spec"]["resources"]["requests"]["storage"] = "3Gi".into();
    });
    world.settle();
    assert_eq!(
        world.get(Kind::PersistentVolumeClaim, "data")["status"]["capacity"],
        json!({"storage": "3Gi"})
    );
    assert_eq!(world.get(Kind::PersistentVolume, &name)["spec"]["capacity"], json!({"storage": "3Gi"}));
    world.delete(&Kind::PersistentVolumeClaim.key("default", "data"), None);
    world.settle();
    assert_eq!(
        world.names(Kind::PersistentVolume),
        [&name],
        "the collector of volumes says that it is released"
    );
    world.change(Kind::PersistentVolume, &name, |volume| volume["status"]["phase"] = "Released".into());
    world.settle();
    assert_eq!(world.names(Kind::PersistentVolume), <[&str; 0]>::default());
}

#[test]
fn a_pod_waits_for_its_claims_and_gives_them_a_node() {
    let mut world = World::whole();
    world.create(Kind::Pod, pod("data"));
    world.settle();
    let refused = |world: &World| {
        let conditions = world.get(Kind::Pod, "user")["status"]["conditions"].clone();
        conditions[0]["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(refused(&world), "0/1 nodes are available: persistentvolumeclaim \"data\" not found.");
    world.create(Kind::PersistentVolumeClaim, claim("data", &"later".into()));
    world.settle();
    assert_eq!(refused(&world), "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.");
    let class = json!({"metadata": {"name": "later"}, "provisioner": "kubegc.io/simulated",
        "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete"});
    world.create(Kind::StorageClass, class);
    world.settle();
    let bound = world.get(Kind::PersistentVolumeClaim, "data");
    assert_eq!(bound["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "kubegc-node-0");
    assert_eq!(bound["status"]["phase"], "Bound");
    assert_eq!(phase(&world, Kind::Pod, "user"), "Running");
    world.create(Kind::PersistentVolumeClaim, claim("unused", &"later".into()));
    world.settle();
    assert_eq!(phase(&world, Kind::PersistentVolumeClaim, "unused"), "Pending");
    assert_eq!(
        world.events("unused"),
        ["WaitForFirstConsumer waiting for first consumer to be created before binding"]
    );
}

#[test]
fn a_local_volume_binds_the_pod_to_its_node() {
    let mut world = World::whole();
    let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    world.create(Kind::StorageClass, class);
    let mut there = volume("disk", "2Gi", "local");
    there["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["elsewhere"]}]}]}});
    world.create(Kind::PersistentVolume, there);
    world.create(Kind::PersistentVolumeClaim, claim("data", &"local".into()));
    world.create(Kind::Pod, pod("data"));
    world.settle();
    let message = &world.get(Kind::Pod, "user")["status"]["conditions"][0]["message"];
    assert_eq!(
        *message,
        "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    );
    world.change(Kind::PersistentVolume, "disk", |volume| {
        let values =
            &mut volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        values["values"] = json!(["kubegc-node-0"]);
    });
    world.settle();
    assert_eq!(phase(&world, Kind::Pod, "user"), "Running");
    assert_eq!(phase(&world, Kind::PersistentVolume, "disk"), "Bound");
}

#[test]
fn an_ephemeral_volume_gets_a_claim_of_its_pod() {
    let mut world = World::whole();
    let template = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "standard"}});
    let with = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}})
    };
    let uid = world.create(Kind::Pod, with("user"))["metadata"]["uid"].clone();
    world.settle();
    assert_eq!(phase(&world, Kind::Pod, "user"), "Running");
    let made = world.get(Kind::PersistentVolumeClaim, "user-scratch").clone();
    let metadata = &made["metadata"];
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "user", "uid": uid, "controller": true,
        "blockOwnerDeletion": true}]);
    assert_eq!((&metadata["labels"], &metadata["ownerReferences"]), (&json!({"l": "1"}), &owner));
    assert_eq!((&metadata["annotations"]["a"], &made["status"]["phase"]), (&json!("1"), &json!("Bound")));
    // It is recreated if it is deleted.
    world.delete(&Kind::PersistentVolumeClaim.key("default", "user-scratch"), None);
    world.settle();
    assert_ne!(world.get(Kind::PersistentVolumeClaim, "user-scratch")["metadata"]["uid"], metadata["uid"]);
    // A claim that existed before is not used, and has to be deleted first.
    world.create(Kind::PersistentVolumeClaim, claim("other-scratch", &"standard".into()));
    world.create(Kind::Pod, with("other"));
    world.settle();
    let why = "PVC default/other-scratch was not created for pod default/other (pod is not owner)";
    assert_eq!(
        world.events("other"),
        [
            format!("FailedScheduling 0/1 nodes are available: {why}."),
            format!("FailedBinding ephemeral volume scratch: {why}"),
        ]
    );
    world.delete(&Kind::PersistentVolumeClaim.key("default", "other-scratch"), None);
    world.settle();
    assert_eq!(phase(&world, Kind::Pod, "other"), "Running");
}

#[test]
fn a_refused_claim_of_an_ephemeral_volume_is_reported() {
    let mut world = World::whole();
    world.refused.push(Kind::PersistentVolumeClaim);
    world.create(
        Kind::Pod,
        json!({"metadata": {"name": "user"}, "spec": {"containers": [{"name": "c"}],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}}),
    );
    world.settle();
    let events = world.events("user");
    for expected in [
        "FailedBinding ephemeral volume scratch: create PVC user-scratch: Refused",
        "FailedScheduling 0/1 nodes are available: waiting for ephemeral volume controller to create the \
         persistentvolumeclaim \"user-scratch\".",
    ] {
        assert!(events.contains(&expected.to_owned()), "{events:?}");
    }
}
