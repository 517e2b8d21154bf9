//! Claims of a StatefulSet's pods, which are created before the pods and owned as the retention policy requires.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Work;
use crate::kinds::Kind;
use crate::object::{Object, items, map, text};
use crate::plan::{Note, Request};

/// Reason not to create a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A claim belongs to a deleted pod or set of the same name, and is about to be collected.
    Stale,
    /// The claim of this name is terminating.
    Deleting(String),
}

/// Reports whether a reference names an object, which may have another UID.
fn names(reference: &Value, kind: Kind, name: &str) -> bool {
    reference["apiVersion"] == kind.api_version()
        && reference["kind"] == kind.name()
        && reference["name"] == name
}

fn owners_of(claim: &Object) -> impl Iterator<Item = &Value> + Clone {
    items(&claim.value["metadata"]["ownerReferences"])
}

/// Reports whether an object is being deleted with its dependents orphaned.
fn orphans(object: &Object) -> bool {
    object.deleting && object.has_finalizer("orphan")
}

impl Work<'_> {
    pub(super) fn claim_name(&self, template: &Value, ordinal: i64) -> String {
        format!("{}-{}-{ordinal}", text(&template["metadata"]["name"]), self.set.name())
    }

    fn policy(&self, event: &str) -> &str {
        text(&self.spec()["persistentVolumeClaimRetentionPolicy"][event])
    }

    /// Returns the claims of a pod that exist.
    fn claims(&self, ordinal: i64) -> Vec<Arc<Object>> {
        let templates = items(&self.spec()["volumeClaimTemplates"]);
        let names = templates.map(|template| self.claim_name(template, ordinal));
        names
            .filter_map(|name| {
                self.view.store.find(Kind::PersistentVolumeClaim, self.set.namespace(), &name).cloned()
            })
            .collect()
    }

    /// Returns the reason not to create the missing pod of an ordinal, if any. Upstream creates a pod beside a claim that belongs
    /// to a deleted set; the claim would then be collected, but blocked by the new pod.
    pub(super) fn obstacle(&self, ordinal: i64) -> Option<Obstacle> {
        let (pod, set) = (format!("{}-{ordinal}", self.set.name()), self.set);
        let claims = self.claims(ordinal);
        let is_stale = |claim: &Arc<Object>| {
            owners_of(claim).any(|owner| {
                names(owner, Kind::Pod, &pod)
                    || (names(owner, Kind::StatefulSet, set.name()) && owner["uid"] != *set.uid)
            })
        };
        if claims.iter().any(is_stale) {
            return Some(Obstacle::Stale);
        }
        let deleting = claims.iter().find(|claim| claim.deleting)?;
        Some(Obstacle::Deleting(deleting.name().to_owned()))
    }

    /// Returns the owner that the retention policy requires: the set, so that its deletion deletes the claim, or a pod, so that
    /// scaling down does.
    fn claim_owner(&self, ordinal: i64, pod: Option<&Object>) -> Option<Value> {
        let condemned = ordinal < self.first() || ordinal >= self.first() + self.wanted();
        if self.policy("whenScaled") == "Delete" && condemned {
            // A pod that orphans its dependents would lose the claim immediately, and wait for it forever if the set gave it back.
            // Upstream also gives it back, but reconciles only when a pod or the set changes.
            let mut owner = pod.filter(|pod| !orphans(pod))?.controller_reference();
            // Upstream lets the claim block the deletion of the pod. A pod that is deleted in the foreground would then wait for
            // its claim, which the protection of claims keeps until the pod is gone.
            owner.as_object_mut()?.remove("blockOwnerDeletion");
            return Some(owner);
        }
        (self.policy("whenDeleted") == "Delete").then(|| self.set.controller_reference())
    }

    /// Returns the owners that a claim should have, if they differ. Upstream ignores a claim whose set of the same name is gone; it
    /// would be collected although an adopted pod uses it.
    fn new_owners(&self, claim: &Object, ordinal: i64, pod: &Object) -> Option<Vec<Value>> {
        let is_of = |owner: &Value, object: &Object| names(owner, object.key.kind, object.name());
        let is_ours = |owner: &Value| is_of(owner, self.set) || is_of(owner, pod);
        if claim.deleting {
            return None;
        }
        let retains = self.policy("whenScaled") != "Delete" && self.policy("whenDeleted") != "Delete";
        let has_other_controller =
            !retains && owners_of(claim).any(|owner| !is_ours(owner) && owner["controller"] == true);
        let owner = self.claim_owner(ordinal, Some(pod)).filter(|_| !has_other_controller);
        let owners: Vec<Value> =
            owners_of(claim).filter(|owner| !is_ours(owner)).cloned().chain(owner).collect();
        let same = |owner: &Value, other: &Value| {
            owner["uid"] == other["uid"] && (owner["controller"] == true) == (other["controller"] == true)
        };
        let unchanged = owners.len() == owners_of(claim).count()
            && owners.iter().all(|owner| owners_of(claim).any(|known| same(owner, known)));
        (!unchanged).then_some(owners)
    }

    /// Gives a pod's claims the owners that the retention policy requires, and returns whether any claim changes.
    pub(super) fn own_claims(&mut self, ordinal: i64, pod: &Object) -> bool {
        let mut changes = false;
        for claim in self.claims(ordinal) {
            let Some(owners) = self.new_owners(&claim, ordinal, pod) else { continue };
            if !changes {
                // A set that is being deleted with its claims orphaned may still seem to be living.
                self.plan.then(Request::confirm(self.set, "retention"));
            }
            let mut value = claim.value.clone();
            value["metadata"]["ownerReferences"] = owners.into();
            self.plan.then(Request::update(&claim.key, value, "retention"));
            changes = true;
        }
        changes
    }

    /// Creates the claims that a pod lacks.
    pub(super) fn create_claims(&mut self, ordinal: i64) {
        let set = self.set;
        for template in items(&set.spec()["volumeClaimTemplates"]) {
            let name = self.claim_name(template, ordinal);
            if self.view.store.find(Kind::PersistentVolumeClaim, set.namespace(), &name).is_some() {
                continue;
            }
            let mut metadata = map(&template["metadata"]);
            let mut labels = map(&metadata.remove("labels").unwrap_or_default());
            labels.extend(map(&set.spec()["selector"]["matchLabels"]));
            metadata.retain(|field, _| field == "annotations" || field == "finalizers");
            metadata.insert("name".into(), name.clone().into());
            metadata.insert("namespace".into(), set.namespace().into());
            metadata.insert("labels".into(), labels.into());
            if let Some(owner) = self.claim_owner(ordinal, None) {
                metadata.insert("ownerReferences".into(), json!([owner]));
            }
            let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
                "spec": template["spec"].clone()});
            let message = |link: &str, outcome: &str| {
                format!(
                    "Create Claim {name} {link}Pod {}-{ordinal} in StatefulSet {} {outcome}",
                    set.name(),
                    set.name()
                )
            };
            let request = Request::create(Kind::PersistentVolumeClaim, set.namespace(), claim, "claim")
                .noting(
                    Note::normal(set, "SuccessfulCreate", message("", "success")),
                    Note::warning(set, "FailedCreate", message("for ", "failed error: {}")),
                );
            self.plan.then(request);
        }
    }
}
