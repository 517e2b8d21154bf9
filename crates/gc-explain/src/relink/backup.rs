//! The objects in a backup with their owners, and the namespaces they were restored to.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::OwnerReference;
use serde_json::Value;

use super::cluster::{ClaimReference, Cluster, RestoreLabels, owners_of, restore_labels};
use super::{Identity, Left};

/// Annotation of a pod that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// One object of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedObject {
    /// UID; empty in manifests that were never applied.
    pub(super) uid: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) labels: Option<RestoreLabels>,
    /// Claim, if it is a volume.
    pub(super) claim: Option<ClaimReference>,
    /// Reason why no restore creates it, if so.
    pub(super) left_out: Option<Left>,
}

impl SavedObject {
    fn new(uid: String, group: &str, object: &Value) -> Self {
        Self {
            uid,
            owners: owners_of(object),
            labels: restore_labels(object),
            claim: ClaimReference::of(object),
            left_out: left_out(group, object),
        }
    }
}

/// Explains why a restore leaves an object out.
fn left_out(group: &str, object: &Value) -> Option<Left> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let status = &object["status"];
    match (group, kind) {
        ("", "Pod") if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) => {
            Some(Left::Finished)
        }
        ("batch", "Job") if status["completionTime"].is_string() => Some(Left::Finished),
        ("", "Pod") if !object["metadata"]["annotations"][MIRROR].is_null() => Some(Left::OfNode),
        ("", "Node") | ("storage.k8s.io", "CSINode" | "VolumeAttachment") => Some(Left::OfNode),
        _ => None,
    }
}

/// The objects of a backup by identity, with their owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backup {
    pub(super) objects: BTreeMap<Identity, SavedObject>,
    /// Identities by UID, for all UIDs in the backup.
    pub(super) by_uid: BTreeMap<String, Identity>,
    /// Namespaces of the backup that were restored under other names, as given by the user.
    pub mappings: BTreeMap<String, BTreeSet<String>>,
    /// Field managers that write the status of custom resources, by kind: their operators.
    pub operators: BTreeMap<String, BTreeSet<String>>,
    /// True for records of deletions: their objects may be gone on purpose, so missing ones are not counted.
    pub is_partial: bool,
}

impl Backup {
    /// Adds an object, replacing an earlier one with the same identity. Returns false if it is not an object.
    pub fn add(&mut self, object: &Value) -> bool {
        let Some((uid, identity)) = Identity::in_object(object) else { return false };
        if !uid.is_empty() {
            self.by_uid.insert(uid.clone(), identity.clone());
        }
        self.note_operators(&identity, object);
        let saved = SavedObject::new(uid, &identity.group, object);
        self.objects.insert(identity, saved);
        true
    }

    /// Notes the writer of a custom resource's status, since it creates the objects that the resource owns.
    fn note_operators(&mut self, identity: &Identity, object: &Value) {
        let group = identity.group.as_str();
        if !group.contains('.') || group.ends_with(".k8s.io") {
            return;
        }
        let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let writers = entries.filter(|entry| !entry["fieldsV1"]["f:status"].is_null());
        for manager in writers.filter_map(|entry| entry["manager"].as_str()) {
            self.operators.entry(identity.kind.clone()).or_default().insert(manager.to_owned());
        }
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Reports whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the identity of each UID.
    #[must_use]
    pub fn identities(&self) -> &BTreeMap<String, Identity> {
        &self.by_uid
    }

    /// Reports whether the backup contains a namespace.
    #[must_use]
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.objects.keys().any(|identity| identity.namespace == namespace)
    }

    /// Returns where each namespace of the backup was restored, if not under its own name: as given by the user, or else as the
    /// objects with a restore's labels show. A namespace that matches two of the backup equally well is assigned to neither.
    pub(super) fn targets(&self, cluster: &Cluster) -> BTreeMap<String, BTreeSet<String>> {
        let mut spaces: BTreeMap<(&str, &str, &str), BTreeSet<&str>> = BTreeMap::new();
        for identity in self.objects.keys().filter(|identity| !identity.namespace.is_empty()) {
            let name = (identity.group.as_str(), identity.kind.as_str(), identity.name.as_str());
            spaces.entry(name).or_default().insert(&identity.namespace);
        }
        let mut votes: BTreeMap<&str, (usize, BTreeMap<&str, usize>)> = BTreeMap::new();
        for living in cluster.objects.iter().filter(|living| living.labels.is_some()) {
            let Identity { group, kind, namespace, name } = &living.identity;
            if namespace.is_empty() {
                continue;
            }
            let (labelled, votes) = votes.entry(namespace).or_default();
            *labelled += 1;
            for original in spaces.get(&(group.as_str(), kind.as_str(), name.as_str())).into_iter().flatten()
            {
                *votes.entry(original).or_default() += 1;
            }
        }
        let mut targets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (namespace, (labelled, votes)) in &votes {
            let most = votes.values().max().copied().unwrap_or_default();
            // Some names occur in every namespace, but a copy has most of them.
            if most * 2 <= *labelled {
                continue;
            }
            let mut best = votes.iter().filter(|(_, count)| **count == most).map(|(original, _)| *original);
            let original = if votes.get(namespace) == Some(&most) { Some(*namespace) } else { best.next() };
            let is_clear = original == Some(*namespace) || best.next().is_none();
            if let Some(original) = original.filter(|_| is_clear) {
                targets.entry(original.to_owned()).or_default().insert((*namespace).to_owned());
            }
        }
        targets.extend(self.mappings.iter().map(|(from, to)| (from.clone(), to.clone())));
        targets.retain(|from, to| *to != BTreeSet::from([from.clone()]));
        targets
    }
}
