//! Storage without disks: claims are bound to volumes, and a simulated provisioner creates volumes for the classes that name it.

pub mod binding;
pub mod ephemeral;
pub mod provisioning;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use gc_types::parse_quantity;
use serde_json::Value;

use crate::kinds::{Key, Kind};
use crate::object::{Object, items, map, text};
use crate::plan::View;
use crate::selector;
use crate::selector::selects_terms;

/// Name of the provisioner in storage classes.
pub const PROVISIONER: &str = "kubegc.io/simulated";
/// CSI driver in its volumes, whose name may not contain a slash.
const DRIVER: &str = "simulated.kubegc.io";
/// Annotation of the class for claims that name none.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
const CLASS_OF_OLD: &str = "volume.beta.kubernetes.io/storage-class";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation with the provisioner of a claim's volume, and its former name.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const STORAGE_PROVISIONER_OF_OLD: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Annotation with the node that the scheduler chose for the pod that waits for the claim.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// A class whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Returns the class that a claim or a volume names; empty if it names none on purpose.
fn class_name(object: &Object) -> &str {
    object.annotation(CLASS_OF_OLD).unwrap_or_else(|| text(&object.spec()["storageClassName"]))
}

fn class_of<'a>(view: &View<'a>, claim: &Object) -> Option<&'a Arc<Object>> {
    view.store.find(Kind::StorageClass, "", class_name(claim))
}

/// Returns the class for claims that name none: the newest default class, then the first by name.
fn default_class<'a>(view: &View<'a>) -> Option<&'a Arc<Object>> {
    let classes = view.store.all(Kind::StorageClass);
    let defaults = classes.filter(|class| class.annotation(IS_DEFAULT) == Some("true"));
    defaults.min_by_key(|class| (std::cmp::Reverse(class.created), Arc::clone(&class.key.name)))
}

/// Reports whether claims of a class are bound only once a pod that needs them has a node.
fn waits_for_consumer(class: Option<&Arc<Object>>) -> bool {
    class.is_some_and(|class| class.value["volumeBindingMode"] == "WaitForFirstConsumer")
}

fn is_bound(claim: &Object) -> bool {
    !text(&claim.spec()["volumeName"]).is_empty() && claim.annotation(BIND_COMPLETED).is_some()
}

fn storage(amounts: &Value) -> i128 {
    parse_quantity(text(&amounts["storage"])).unwrap_or_default()
}

/// Reports whether a volume names a claim, by its name and, once it is bound, by its UID.
fn names(volume: &Object, claim: &Object) -> bool {
    let reference = &volume.spec()["claimRef"];
    let uid = text(&reference["uid"]);
    reference["namespace"] == claim.namespace()
        && reference["name"] == claim.name()
        && (uid.is_empty() || uid == &*claim.uid)
}

/// Returns the volume to which an unbound claim is bound: one that was reserved for it, or else the smallest free one that is large
/// enough. `node` is where it has to be reachable from.
fn matching<'a>(view: &View<'a>, claim: &Object, node: Option<&Object>) -> Option<&'a Arc<Object>> {
    let fits = |volume: &&Arc<Object>| satisfies(volume, claim) && is_reachable(volume, node);
    let mut reserved = view.store.volumes_of(&claim.key.namespace, claim.name());
    if let Some(volume) = reserved.find(|volume| names(volume, claim) && fits(volume)) {
        return Some(volume);
    }
    let wanted = &claim.spec()["selector"];
    let free = view.store.free_volumes().filter(|volume| {
        volume.status()["phase"] == "Available"
            && (wanted.is_null() || selector::matches(wanted, volume.labels()))
    });
    free.filter(fits).min_by_key(|volume| (storage(&volume.spec()["capacity"]), Arc::clone(&volume.key.name)))
}

/// Reports whether a volume meets the requirements of a claim.
fn satisfies(volume: &Object, claim: &Object) -> bool {
    let (has, asks) = (volume.spec(), claim.spec());
    let mode = |spec: &Value| spec["volumeMode"].as_str().unwrap_or("Filesystem").to_owned();
    let modes: Vec<&Value> = items(&has["accessModes"]).collect();
    !volume.deleting
        && class_name(volume) == class_name(claim)
        && mode(has) == mode(asks)
        && storage(&has["capacity"]) >= storage(&asks["resources"]["requests"])
        && items(&asks["accessModes"]).all(|wanted| modes.contains(&wanted))
        && text(&has["volumeAttributesClassName"]) == text(&asks["volumeAttributesClassName"])
}

/// Reports whether a volume can be reached from a node.
fn is_reachable(volume: &Object, node: Option<&Object>) -> bool {
    let required = &volume.spec()["nodeAffinity"]["required"];
    node.is_none_or(|node| selects_terms(required, node))
}

/// Claims of a pod, from the point of view of its scheduling.
pub(crate) enum Claims<'a> {
    /// No node is possible before this changes.
    Refused(String),
    /// May run where `volumes` can be reached; `waiting` claims are bound once it has a node.
    Ready { volumes: Vec<&'a Arc<Object>>, waiting: Vec<&'a Arc<Object>> },
}

/// Returns the names of the claims that a pod uses.
pub(crate) fn claim_names(pod: &Object) -> impl Iterator<Item = String> + use<'_> {
    claims_named(pod).map(|(name, _)| name)
}

/// Returns the names of the claims that a pod uses, and whether each is created for an ephemeral volume of the pod.
fn claims_named(pod: &Object) -> impl Iterator<Item = (String, bool)> + use<'_> {
    items(&pod.spec()["volumes"]).filter_map(|volume| {
        match volume["persistentVolumeClaim"]["claimName"].as_str() {
            Some(name) => Some((name.to_owned(), false)),
            None => volume["ephemeral"].is_object().then(|| (ephemeral::claim_name(pod, volume), true)),
        }
    })
}

/// Returns the state of the claims that a pod uses.
pub(crate) fn claims_of<'a>(view: &View<'a>, pod: &Object) -> Claims<'a> {
    let (mut volumes, mut waiting) = (Vec::new(), Vec::new());
    for (name, is_ephemeral) in claims_named(pod) {
        let quoted = format!("persistentvolumeclaim \"{name}\"");
        let Some(claim) = view.store.find(Kind::PersistentVolumeClaim, pod.namespace(), &name) else {
            return Claims::Refused(if is_ephemeral {
                format!("waiting for ephemeral volume controller to create the {quoted}")
            } else {
                format!("{quoted} not found")
            });
        };
        let volume_name = text(&claim.spec()["volumeName"]);
        if claim.status()["phase"] == "Lost" {
            return Claims::Refused(format!(
                "{quoted} bound to non-existent persistentvolume \"{volume_name}\""
            ));
        }
        if claim.deleting {
            return Claims::Refused(format!("{quoted} is being deleted"));
        }
        if let Some(problem) = ephemeral::stranger(pod, claim).filter(|_| is_ephemeral) {
            return Claims::Refused(problem);
        }
        if is_bound(claim) {
            match view.store.find(Kind::PersistentVolume, "", volume_name) {
                Some(volume) => volumes.push(volume),
                None => {
                    return Claims::Refused(format!(
                        "{quoted} bound to non-existent persistentvolume \"{volume_name}\""
                    ));
                }
            }
        } else if waits_for_consumer(class_of(view, claim)) && volume_name.is_empty() {
            waiting.push(claim);
        } else {
            return Claims::Refused("pod has unbound immediate PersistentVolumeClaims".into());
        }
    }
    Claims::Ready { volumes, waiting }
}

/// Explains why a pod with these claims cannot run on a node.
pub(crate) fn claims_against(
    view: &View<'_>,
    volumes: &[&Arc<Object>],
    waiting: &[&Arc<Object>],
    node: &Object,
) -> Option<String> {
    if !volumes.iter().all(|volume| is_reachable(volume, Some(node))) {
        return Some("node(s) didn't match PersistentVolume's node affinity".into());
    }
    let provisioned = |claim: &Object| {
        let class = class_of(view, claim);
        class.is_some_and(|class| class.value["provisioner"] != NO_PROVISIONER && allows(class, node))
    };
    let found = |claim: &&Arc<Object>| provisioned(claim) || matching(view, claim, Some(node)).is_some();
    (!waiting.iter().all(found)).then(|| "node(s) didn't find available persistent volumes to bind".into())
}

/// Reports whether a class's `allowedTopologies` include a node.
fn allows(class: &Object, node: &Object) -> bool {
    let terms = &class.value["allowedTopologies"];
    let mut any = items(terms).map(|term| {
        items(&term["matchLabelExpressions"]).all(|expression| {
            let label = node.label(text(&expression["key"]));
            items(&expression["values"]).any(|value| value.as_str() == label)
        })
    });
    items(terms).next().is_none() || any.any(|allowed| allowed)
}

/// Sets an annotation.
fn annotate(value: &mut Value, name: &str, text: &str) {
    let mut annotations = map(&value["metadata"]["annotations"]);
    annotations.insert(name.into(), text.into());
    value["metadata"]["annotations"] = annotations.into();
}

/// Returns the claim that a volume names.
fn claim_key(volume: &Object) -> Option<Key> {
    let reference = &volume.spec()["claimRef"];
    let name = reference["name"].as_str()?;
    Some(Kind::PersistentVolumeClaim.key(text(&reference["namespace"]), name))
}
