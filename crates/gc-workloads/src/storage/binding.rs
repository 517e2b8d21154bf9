//! Binding of claims and volumes to each other. The collector of volumes handles those whose claim is gone.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, NO_PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER,
    STORAGE_PROVISIONER_OF_OLD, annotate, claim_key, class_name, class_of, default_class, is_bound, matching,
    names, waits_for_consumer,
};
use crate::kinds::{Key, Kind};
use crate::object::{Object, map, text};
use crate::plan::{Note, Plan, Request, View};
use crate::store::Change;

/// Reconciles a claim or a volume when it or its counterpart changes, and all unbound claims when a volume becomes free or a class
/// appears.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::PersistentVolumeClaim => {
            keys.push(object.key.clone());
            let named = text(&object.spec()["volumeName"]);
            if !named.is_empty() {
                keys.push(Kind::PersistentVolume.key("", named));
            }
            let reserved = view.store.volumes_of(&object.key.namespace, object.name());
            keys.extend(reserved.map(|volume| volume.key.clone()));
        }
        Kind::PersistentVolume => {
            keys.push(object.key.clone());
            keys.extend(claim_key(object));
            let is_free = change.after.as_ref().is_some_and(|volume| {
                volume.spec()["claimRef"].is_null() && volume.status()["phase"] == "Available"
            });
            if is_free && change.differs(Object::status) {
                keys.extend(unbound(view));
            }
        }
        Kind::StorageClass if change.after.is_some() => keys.extend(unbound(view)),
        _ => {}
    }
}

fn unbound<'a>(view: &View<'a>) -> impl Iterator<Item = Key> + use<'a> {
    let claims = view.store.all(Kind::PersistentVolumeClaim);
    claims.filter(|claim| !is_bound(claim)).map(|claim| claim.key.clone())
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(object) = view.store.get(key) else { return plan };
    match key.kind {
        Kind::PersistentVolume => keep_volume(view, object, &mut plan),
        _ if object.annotation(BIND_COMPLETED).is_some() => keep_bound(view, object, &mut plan),
        _ => find_volume(view, object, &mut plan),
    }
    plan
}

/// Keeps a claim bound, or marks it as lost.
fn keep_bound(view: &View<'_>, claim: &Object, plan: &mut Plan) {
    let name = text(&claim.spec()["volumeName"]);
    let volume = view.store.find(Kind::PersistentVolume, "", name);
    let reference = volume.map_or(&Value::Null, |volume| &volume.spec()["claimRef"]);
    let lost = |plan: &mut Plan, reason, message: &str| {
        if claim.status()["phase"] != "Lost" {
            plan.notes.push(Note::warning(claim, reason, message));
            write_status(claim, &claim.value, json!({"phase": "Lost"}), plan);
        }
    };
    match volume {
        None if name.is_empty() => {
            let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            lost(plan, "ClaimLost", message);
        }
        None => {
            lost(plan, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
        }
        Some(volume) if reference.is_null() || reference["uid"] == *claim.uid => bind(volume, claim, plan),
        Some(_) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost(plan, "ClaimMisbound", message);
        }
    }
}

/// Searches for the volume of an unbound claim.
fn find_volume(view: &View<'_>, claim: &Object, plan: &mut Plan) {
    let named = text(&claim.spec()["volumeName"]);
    if !named.is_empty() {
        return match view.store.find(Kind::PersistentVolume, "", named) {
            None => {}
            Some(volume) if volume.spec()["claimRef"].is_null() && !super::satisfies(volume, claim) => {
                let message = format!(
                    "Cannot bind to requested volume \"{named}\": it does not have what the claim asks for"
                );
                plan.notes.push(Note::warning(claim, "VolumeMismatch", message));
            }
            Some(volume) if volume.spec()["claimRef"].is_null() || names(volume, claim) => {
                bind(volume, claim, plan);
            }
            Some(_) => {
                let message = format!("volume \"{named}\" already bound to a different claim.");
                plan.notes.push(Note::warning(claim, "FailedBinding", message));
            }
        };
    }
    if claim.deleting {
        return;
    }
    if claim.spec()["storageClassName"].is_null()
        && class_name(claim).is_empty()
        && let Some(class) = default_class(view)
    {
        let mut value = claim.value.clone();
        value["spec"]["storageClassName"] = class.name().into();
        return plan.then(Request::update(&claim.key, value, "default-class"));
    }
    let class = class_of(view, claim);
    let node = claim.annotation(SELECTED_NODE);
    if waits_for_consumer(class) && node.is_none() {
        // A volume that was reserved for the claim has already been chosen.
        let mut reserved = view.store.volumes_of(&claim.key.namespace, claim.name());
        if !reserved.any(|volume| names(volume, claim)) {
            let message = "waiting for first consumer to be created before binding";
            return plan.notes.push(Note::normal(claim, "WaitForFirstConsumer", message));
        }
    }
    let node = node.and_then(|name| view.store.find(Kind::Node, "", name));
    match (matching(view, claim, node.map(|node| &**node)), class) {
        (Some(volume), _) => bind(volume, claim, plan),
        (None, Some(class)) => ask_provisioner(claim, class, plan),
        (None, None) if class_name(claim).is_empty() => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            plan.notes.push(Note::normal(claim, "FailedBinding", message));
        }
        (None, None) => {
            let message = format!("storageclass.storage.k8s.io \"{}\" not found", class_name(claim));
            plan.notes.push(Note::warning(claim, "ProvisioningFailed", message));
        }
    }
}

/// Annotates the claim with the provisioner that is to create a volume for it.
fn ask_provisioner(claim: &Object, class: &Object, plan: &mut Plan) {
    let provisioner = text(&class.value["provisioner"]);
    if provisioner == NO_PROVISIONER || claim.annotation(STORAGE_PROVISIONER) == Some(provisioner) {
        return;
    }
    let mut value = claim.value.clone();
    annotate(&mut value, STORAGE_PROVISIONER, provisioner);
    annotate(&mut value, STORAGE_PROVISIONER_OF_OLD, provisioner);
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    let note = Note::normal(claim, "ExternalProvisioning", message);
    plan.then(Request::update(&claim.key, value, "provision").noting(note, None));
}

/// Makes up to four writes, as far as something is missing: the volume and its phase, the claim and its status.
fn bind(volume: &Object, claim: &Object, plan: &mut Plan) {
    let mut value = volume.value.clone();
    if value["spec"]["claimRef"]["uid"] != *claim.uid {
        if !names(volume, claim) {
            annotate(&mut value, BOUND_BY_CONTROLLER, "yes");
        }
        let mut reference = claim.reference();
        reference["kind"] = Kind::PersistentVolumeClaim.name().into();
        value["spec"]["claimRef"] = reference;
        plan.then(Request::update(&volume.key, value.clone(), "bind"));
    }
    set_phase(volume, &value, "Bound", plan);
    let mut value = claim.value.clone();
    if value["spec"]["volumeName"] != volume.name() {
        value["spec"]["volumeName"] = volume.name().into();
        annotate(&mut value, BOUND_BY_CONTROLLER, "yes");
    }
    if claim.annotation(BIND_COMPLETED).is_none() {
        annotate(&mut value, BIND_COMPLETED, "yes");
    }
    if value != claim.value {
        plan.then(Request::update(&claim.key, value.clone(), "bind"));
    }
    let has = volume.spec();
    let mut status = map(claim.status());
    let was_bound = status.get("phase").is_some_and(|phase| phase == "Bound");
    status.insert("phase".into(), "Bound".into());
    status.insert("accessModes".into(), has["accessModes"].clone());
    if !was_bound || !status.contains_key("capacity") {
        // Once it is bound, the controller that resizes it shows the new size.
        status.insert("capacity".into(), has["capacity"].clone());
    }
    write_status(claim, &value, status.into(), plan);
}

/// Writes another status on top of the plan's other changes of the claim: a status update writes annotations, too.
fn write_status(claim: &Object, value: &Value, status: Value, plan: &mut Plan) {
    if status != *claim.status() {
        let mut value = value.clone();
        value["status"] = status;
        plan.then(Request::update_status(&claim.key, value, "status"));
    }
}

fn set_phase(volume: &Object, value: &Value, phase: &str, plan: &mut Plan) {
    if volume.status()["phase"] == phase {
        return;
    }
    let mut value = value.clone();
    value["status"] = json!({"phase": phase});
    plan.then(Request::update_status(&volume.key, value, "status"));
}

/// Updates the phase of a volume that has a claim, or is free for one.
fn keep_volume(view: &View<'_>, volume: &Arc<Object>, plan: &mut Plan) {
    let reference = &volume.spec()["claimRef"];
    if reference.is_null() || text(&reference["uid"]).is_empty() {
        return set_phase(volume, &volume.value, "Available", plan);
    }
    let claim = claim_key(volume).and_then(|key| view.store.get(&key));
    let Some(claim) = claim.filter(|claim| reference["uid"] == *claim.uid) else { return };
    let named = text(&claim.spec()["volumeName"]);
    if named == volume.name() {
        set_phase(volume, &volume.value, "Bound", plan);
    } else if !named.is_empty() && volume.annotation(BOUND_BY_CONTROLLER).is_some() {
        release(volume, plan);
    }
}

/// Frees a volume whose claim was bound to another one.
fn release(volume: &Object, plan: &mut Plan) {
    let mut value = volume.value.clone();
    if let Some(spec) = value["spec"].as_object_mut() {
        spec.remove("claimRef");
    }
    if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
        annotations.remove(BOUND_BY_CONTROLLER);
    }
    plan.then(Request::update(&volume.key, value.clone(), "unbind"));
    set_phase(volume, &value, "Available", plan);
}
