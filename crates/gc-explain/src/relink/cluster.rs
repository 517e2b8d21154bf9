//! Objects in the cluster, as far as a relink needs them: metadata, and the binding of volumes and claims.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{Coordinates, OwnerReference, Uid};
use serde_json::Value;

use super::Identity;
use crate::catalog::{Catalog, GroupResource, Resource};
use crate::stuck::Place;
use crate::undo::RESTORED_FROM;

/// Label with which Velero marks restored objects: the name of the restore.
pub(super) const RESTORE_NAME: &str = "velero.io/restore-name";
/// Label with which Velero marks restored objects: the name of the backup.
const BACKUP_NAME: &str = "velero.io/backup-name";
/// Annotation of a volume that Velero has renamed: its name in the backup.
const ORIGINAL_VOLUME: &str = "velero.io/original-pv-name";
/// Labels with its own UID by which a Job finds its pods.
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// The restore that created an object, according to its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RestoreLabels {
    /// `velero.io/restore-name`
    pub(super) restore: String,
    /// `velero.io/backup-name`
    pub(super) backup: String,
}

/// Claim that a volume refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimReference {
    pub(super) namespace: String,
    pub(super) name: String,
    /// UID; empty if a restore has removed it.
    pub(super) uid: String,
}

impl ClaimReference {
    /// Returns the `claimRef` of a volume, if it has one.
    pub(super) fn of(volume: &Value) -> Option<Self> {
        let text = |field: &str| volume["spec"]["claimRef"][field].as_str().unwrap_or_default().to_owned();
        let claim = Self { namespace: text("namespace"), name: text("name"), uid: text("uid") };
        (!claim.name.is_empty()).then_some(claim)
    }
}

/// One object in the cluster.
#[derive(Clone, Debug)]
pub(super) struct LivingObject {
    pub(super) place: Place,
    pub(super) identity: Identity,
    pub(super) resource: GroupResource,
    pub(super) resource_version: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) is_terminating: bool,
    pub(super) labels: Option<RestoreLabels>,
    /// UID of the deleted object that `kubegc undo` recreated as this one; empty if it did not.
    pub(super) undone: String,
    pub(super) uid_labels: Vec<(&'static str, String)>,
    /// Former name, if it is a renamed volume.
    pub(super) original_name: String,
    /// Claim, if it is a volume.
    pub(super) claim: Option<ClaimReference>,
    /// True for a volume whose claim is gone and whose storage is retained.
    pub(super) is_released: bool,
    /// Volume, if it is a bound claim; otherwise empty.
    pub(super) volume: String,
}

/// Returns the owner references of an object, as written.
pub(super) fn owners_of(object: &Value) -> Vec<OwnerReference> {
    let owner = |wire: &Value| {
        let text = |field: &str| wire[field].as_str().unwrap_or_default();
        OwnerReference {
            coordinates: Coordinates {
                api_version: text("apiVersion").into(),
                kind: text("kind").into(),
                name: text("name").into(),
                uid: Uid::new(text("uid")),
            },
            controller: wire["controller"].as_bool(),
            block_owner_deletion: wire["blockOwnerDeletion"].as_bool(),
        }
    };
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten().map(owner).collect()
}

/// Returns the labels of a restore, if an object has them.
pub(super) fn restore_labels(object: &Value) -> Option<RestoreLabels> {
    let text = |label: &str| object["metadata"]["labels"][label].as_str().unwrap_or_default().to_owned();
    let labels = RestoreLabels { restore: text(RESTORE_NAME), backup: text(BACKUP_NAME) };
    (!labels.restore.is_empty() || !labels.backup.is_empty()).then_some(labels)
}

impl LivingObject {
    fn new(resource: &Resource, object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let annotation = |name: &str| metadata["annotations"][name].as_str().unwrap_or_default().to_owned();
        let of_spec = |field: &str| object["spec"][field].as_str().unwrap_or_default();
        let place = Place {
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            resource: resource.name.to_string(),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
        };
        if place.uid.is_empty() || place.name.is_empty() {
            return None;
        }
        let uid_label = |name: &'static str| Some((name, metadata["labels"][name].as_str()?.to_owned()));
        Some(Self {
            identity: Identity {
                group: resource.name.group.to_string(),
                kind: place.kind.clone(),
                namespace: place.namespace.clone(),
                name: place.name.clone(),
            },
            place,
            resource: resource.name.clone(),
            resource_version: text("resourceVersion"),
            owners: owners_of(object),
            is_terminating: !metadata["deletionTimestamp"].is_null(),
            labels: restore_labels(object),
            undone: annotation(RESTORED_FROM),
            uid_labels: UID_LABELS.into_iter().filter_map(uid_label).collect(),
            original_name: annotation(ORIGINAL_VOLUME),
            claim: ClaimReference::of(object),
            is_released: object["status"]["phase"] == "Released"
                && of_spec("persistentVolumeReclaimPolicy") == "Retain",
            volume: of_spec("volumeName").to_owned(),
        })
    }
}

/// All objects in the cluster, and what could not be listed.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub(super) catalog: Catalog,
    pub(super) objects: Vec<LivingObject>,
    by_identity: BTreeMap<Identity, usize>,
    by_uid: BTreeMap<String, usize>,
    /// Volumes by their name in the backup.
    renamed: BTreeMap<String, usize>,
    /// Objects by the UID of their controller.
    controlled: BTreeMap<String, Vec<usize>>,
    /// Groups and kinds that could not be listed.
    unread: BTreeSet<(String, String)>,
    restores: BTreeSet<String>,
}

impl Cluster {
    /// Creates an empty cluster, before anything is listed.
    #[must_use]
    pub fn new(catalog: Catalog) -> Self {
        Self { catalog, ..Self::default() }
    }

    /// Adds a listed object: the whole object for volumes and claims, the metadata for others.
    pub fn add(&mut self, resource: &Resource, object: &Value) {
        let Some(living) = LivingObject::new(resource, object) else { return };
        let number = self.objects.len();
        self.by_identity.insert(living.identity.clone(), number);
        self.by_uid.insert(living.place.uid.clone(), number);
        if !living.original_name.is_empty() {
            self.renamed.insert(living.original_name.clone(), number);
        }
        for owner in living.owners.iter().filter(|owner| owner.controller == Some(true)) {
            self.controlled.entry(owner.coordinates.uid.to_string()).or_default().push(number);
        }
        self.restores.extend(living.labels.as_ref().map(|labels| labels.restore.clone()));
        self.objects.push(living);
    }

    /// Records that a resource could not be listed, so that the absence of its objects proves nothing.
    pub fn not_listed(&mut self, resource: &Resource) {
        self.unread.insert((resource.name.group.to_string(), resource.kind.to_string()));
    }

    /// Returns the names of the restores that objects are labelled with.
    #[must_use]
    pub fn restores(&self) -> &BTreeSet<String> {
        &self.restores
    }

    /// Reports whether a namespace contains objects of this restore.
    #[must_use]
    pub fn has_restored_into(&self, restore: &str, namespace: &str) -> bool {
        let is_of =
            |living: &LivingObject| living.labels.as_ref().is_some_and(|labels| labels.restore == restore);
        self.objects.iter().any(|living| living.place.namespace == namespace && is_of(living))
    }

    pub(super) fn is_unread(&self, group: &str, kind: &str) -> bool {
        self.catalog.is_unclear(group) || self.unread.contains(&(group.to_owned(), kind.to_owned()))
    }

    pub(super) fn with_uid(&self, uid: &str) -> Option<usize> {
        self.by_uid.get(uid).copied()
    }

    pub(super) fn at(&self, identity: &Identity) -> Option<usize> {
        let volume = || {
            let is_volume = identity.group.is_empty() && identity.kind == "PersistentVolume";
            self.renamed.get(&identity.name).copied().filter(|_| is_volume)
        };
        self.by_identity.get(identity).copied().or_else(volume)
    }

    /// Returns the objects whose controller has this UID.
    pub(super) fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &LivingObject> {
        let numbers = self.controlled.get(uid).into_iter().flatten();
        numbers.filter_map(|number| self.objects.get(*number))
    }

    /// Reports whether a kind is namespaced; `None` if it is not served.
    pub(super) fn is_namespaced(&self, group: &str, kind: &str) -> Option<bool> {
        let is_it = |resource: &&Resource| *resource.name.group == *group && *resource.kind == *kind;
        self.catalog.all().iter().find(is_it).map(Resource::is_namespaced)
    }

    /// Reports whether objects in a namespace can refer to an object: it is cluster-scoped, or in the same namespace.
    pub(super) fn sees(&self, namespace: &str, number: usize) -> bool {
        let own = self.objects.get(number).map_or("", |living| &living.place.namespace);
        own.is_empty() || own == namespace
    }

    /// Reports whether the owner of a reference exists where an object in this namespace can refer to it; owners that could not be
    /// listed count as existing.
    pub(super) fn lives(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let owner = &reference.coordinates;
        let found = self.by_uid.get(&owner.uid.to_string());
        found.is_some_and(|number| self.sees(namespace, *number))
            || (found.is_none() && self.is_unread(super::group_of(&owner.api_version), &owner.kind))
    }
}
