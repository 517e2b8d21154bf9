//! The simulated provisioner: creates volumes without storage for the classes that name it, expands them on request, and deletes
//! them after use.

use serde_json::{Value, json};

use super::{
    DRIVER, IS_DEFAULT, PROVISIONED_BY, PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER, claim_key, class_of,
    is_bound, storage, waits_for_consumer,
};
use crate::kinds::{Key, Kind};
use crate::object::{Object, map, text};
use crate::plan::{Note, Plan, Request, View};
use crate::store::Change;

/// Class that exists at the start.
const CLASS: &str = "standard";
/// Finalizer that keeps a volume until its storage is deleted.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Returns the default class, to reconcile it once at the start: it is not recreated when a user deletes it.
pub(crate) fn first_keys() -> Vec<Key> {
    vec![Kind::StorageClass.key("", CLASS)]
}

/// Reconciles claims and volumes when they change, and unbound claims when a class does.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.after.as_ref() else { return };
    match object.key.kind {
        Kind::PersistentVolumeClaim => keys.push(object.key.clone()),
        Kind::PersistentVolume => {
            keys.push(object.key.clone());
            keys.extend(claim_key(object));
        }
        Kind::StorageClass => {
            let claims = view.store.all(Kind::PersistentVolumeClaim);
            let of_class = claims.filter(|claim| super::class_name(claim) == object.name());
            keys.extend(of_class.map(|claim| claim.key.clone()));
        }
        _ => {}
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    match (key.kind, view.store.get(key)) {
        (Kind::StorageClass, None) => {
            plan.then(Request::create(Kind::StorageClass, "", class(view), "default"));
        }
        (Kind::PersistentVolumeClaim, Some(claim)) if is_bound(claim) => resize(view, claim, &mut plan),
        (Kind::PersistentVolumeClaim, Some(claim)) => provision(view, claim, &mut plan),
        (Kind::PersistentVolume, Some(volume)) => reclaim(view, volume, &mut plan),
        _ => {}
    }
    plan
}

/// Returns the default class, unless there is another one.
fn class(view: &View<'_>) -> Value {
    let is_default = super::default_class(view).is_none();
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {IS_DEFAULT: is_default.to_string()}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true,
    })
}

fn provision(view: &View<'_>, claim: &Object, plan: &mut Plan) {
    let Some(class) = class_of(view, claim).filter(|class| class.value["provisioner"] == PROVISIONER) else {
        return;
    };
    let chosen = !waits_for_consumer(Some(class)) || claim.annotation(SELECTED_NODE).is_some();
    let asked = claim.annotation(STORAGE_PROVISIONER) == Some(PROVISIONER);
    let named = text(&claim.spec()["volumeName"]);
    let name = format!("pvc-{}", claim.uid);
    if claim.deleting
        || !chosen
        || !asked
        || !named.is_empty()
        || view.store.find(Kind::PersistentVolume, "", &name).is_some()
    {
        return;
    }
    let spec = claim.spec();
    let mut reference = claim.reference();
    reference["kind"] = Kind::PersistentVolumeClaim.name().into();
    let policy = class.value["reclaimPolicy"].as_str().unwrap_or("Delete");
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "accessModes": spec["accessModes"], "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": reference, "csi": {"driver": DRIVER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": policy, "storageClassName": class.name(),
            "volumeMode": spec["volumeMode"].as_str().unwrap_or("Filesystem"),
        },
    });
    if policy == "Delete" {
        volume["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    if !class.value["mountOptions"].is_null() {
        volume["spec"]["mountOptions"] = class.value["mountOptions"].clone();
    }
    let note =
        Note::normal(claim, "ProvisioningSucceeded", format!("Successfully provisioned volume {name}"));
    plan.then(Request::create(Kind::PersistentVolume, "", volume, "provision").noting(note, None));
}

/// Expands a claim that requests more, if its class allows that.
fn resize(view: &View<'_>, claim: &Object, plan: &mut Plan) {
    let volume = view.store.find(Kind::PersistentVolume, "", text(&claim.spec()["volumeName"]));
    let Some(volume) = volume.filter(|volume| is_ours(volume)) else { return };
    let wanted = &claim.spec()["resources"]["requests"];
    let allowed = class_of(view, claim).is_some_and(|class| class.value["allowVolumeExpansion"] == true);
    if !allowed || claim.deleting || storage(wanted) <= storage(&claim.status()["capacity"]) {
        return;
    }
    if storage(&volume.spec()["capacity"]) < storage(wanted) {
        let mut value = volume.value.clone();
        value["spec"]["capacity"]["storage"] = wanted["storage"].clone();
        let message = format!("External resizer is resizing volume {}", volume.name());
        let note = Note::normal(claim, "Resizing", message);
        plan.then(Request::update(&volume.key, value, "resize").noting(note, None));
    }
    let mut status = map(claim.status());
    status.insert("capacity".into(), json!({"storage": wanted["storage"]}));
    let note = Note::normal(claim, "VolumeResizeSuccessful", "Resize volume succeeded");
    let value = claim.with_status(status.into());
    plan.then(Request::update_status(&claim.key, value, "resize").noting(note, None));
}

fn is_ours(volume: &Object) -> bool {
    volume.annotation(PROVISIONED_BY) == Some(PROVISIONER) && volume.spec()["csi"]["driver"] == DRIVER
}

/// Deletes a released volume if its policy says so. There is no storage to delete first, so the finalizer is removed immediately.
fn reclaim(view: &View<'_>, volume: &Object, plan: &mut Plan) {
    let claimed = claim_key(volume).and_then(|key| view.store.get(&key));
    let in_use = claimed.is_some_and(|claim| volume.spec()["claimRef"]["uid"] == *claim.uid);
    let keeps = volume.spec()["persistentVolumeReclaimPolicy"] != "Delete";
    if !is_ours(volume) || in_use {
        return;
    }
    if volume.deleting {
        if volume.has_finalizer(FINALIZER) {
            let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER], "uid": &*volume.uid}});
            plan.then(Request::patch(&volume.key, patch, "reclaimed"));
        }
    } else if !keeps && volume.status()["phase"] == "Released" {
        plan.then(Request::delete(volume, "released"));
    }
}
