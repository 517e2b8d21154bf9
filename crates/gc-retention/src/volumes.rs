//! Protection of PersistentVolumes and PersistentVolumeClaims in use (spec `cluster-collectors.md`, 7 and 8): their
//! finalizers are removed when nothing uses them, and added where they are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{Change, ObjectKey, Outcome, Request, Timestamp, Uid};
use serde::Deserialize;

use crate::engine::{Collector, Decision, Observation, reason};
use crate::objects::{
    Cache, Facts, HasMeta, Kind, Meta, WireAnnotations, WireCondition, WireLabels, WireMeta, drop_from,
};
use crate::pods::Pod;
use crate::volumes_in_tree::{WireInTree, WireStorage};
use crate::volumes_topology::{Affinity, WireAffinity};
use crate::volumes_unused;

/// The finalizer of claims.
pub const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// The finalizer of volumes.
pub const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
/// Delay before the next list after one that failed or disagreed with the watch, milliseconds.
pub(crate) const LIST_AGAIN_MILLISECONDS: i64 = 1_000;

/// What verdicts need of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireVolume")]
pub struct Volume {
    /// Its metadata.
    pub meta: Meta,
    /// Its finalizers, in order.
    pub finalizers: Vec<Arc<str>>,
    /// `status.phase`
    pub phase: Arc<str>,
    /// `status.message`
    pub message: Arc<str>,
    /// `spec.persistentVolumeReclaimPolicy`
    pub policy: Arc<str>,
    /// `spec.claimRef`
    pub claim: Option<ClaimReference>,
    /// The annotation `pv.kubernetes.io/provisioned-by`.
    pub provisioned_by: Option<Arc<str>>,
    /// The annotation `pv.kubernetes.io/migrated-to`.
    pub migrated_to: Option<Arc<str>>,
    /// Where its data is.
    pub source: Source,
    /// `spec.storageClassName`
    pub class: Arc<str>,
    /// `spec.volumeMode`
    pub mode: Arc<str>,
    /// The annotations `volume.kubernetes.io/provisioner-deletion-secret-name` and `-namespace`.
    pub secret: (Option<Arc<str>>, Option<Arc<str>>),
    /// `spec.nodeAffinity.required`; `None` if it can be reached from everywhere.
    pub affinity: Option<Arc<Affinity>>,
    /// `spec.volumeAttributesClassName`
    pub attributes_class: Arc<str>,
}

/// The claim that a volume is bound to, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimReference {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID; `None` if the volume is only reserved for it.
    pub uid: Option<Uid>,
}

/// Where the data of a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// With a CSI driver.
    Csi {
        /// The driver.
        driver: Arc<str>,
        /// The driver's name of the volume.
        handle: Arc<str>,
    },
    /// With an in-tree plugin that a CSI driver has replaced.
    InTree {
        /// The driver.
        driver: Arc<str>,
        /// The driver's name of the volume.
        handle: Arc<str>,
    },
    /// In a directory of a machine.
    HostPath {
        /// The directory.
        path: Arc<str>,
    },
    /// Anywhere else.
    Other,
}

impl Volume {
    /// Whether its phase is `Bound`.
    #[must_use]
    pub fn bound(&self) -> bool {
        *self.phase == *"Bound"
    }
}

impl HasMeta for Volume {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// What verdicts need of a PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireClaim")]
pub struct Claim {
    /// Its metadata.
    pub meta: Meta,
    /// Its finalizers, in order.
    pub finalizers: Vec<Arc<str>>,
    /// The owner that is its controller, if any.
    pub controller: Option<Uid>,
    /// `spec.volumeName`
    pub volume: Arc<str>,
    /// `status.phase` is `Bound`.
    pub bound: bool,
    /// `spec.storageClassName`
    pub class: Arc<str>,
    /// `spec.volumeAttributesClassName`
    pub attributes_class: Arc<str>,
    /// The VolumeAttributesClasses in its status: the current one, and the target of a modification.
    pub status_attributes_classes: Vec<Arc<str>>,
    /// Its condition `Unused`: `True`, anything else, or absent.
    pub unused: Option<bool>,
}

impl HasMeta for Claim {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireVolume {
    metadata: WireMeta,
    spec: WireVolumeSpec,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolumeSpec {
    persistent_volume_reclaim_policy: String,
    claim_ref: Option<WireClaimReference>,
    csi: Option<WireCsi>,
    host_path: Option<WireHostPath>,
    aws_elastic_block_store: Option<WireStorage>,
    azure_disk: Option<WireStorage>,
    cinder: Option<WireStorage>,
    gce_persistent_disk: Option<WireStorage>,
    portworx_volume: Option<WireStorage>,
    vsphere_volume: Option<WireStorage>,
    storage_class_name: String,
    volume_mode: Option<String>,
    node_affinity: Option<WireAffinity>,
    volume_attributes_class_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaimReference {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCsi {
    driver: String,
    volume_handle: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireHostPath {
    path: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaim {
    metadata: WireMeta,
    spec: WireClaimSpec,
    status: WireClaimStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaimStatus {
    phase: String,
    conditions: Option<Vec<WireCondition>>,
    current_volume_attributes_class_name: Option<String>,
    modify_volume_status: Option<WireModification>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireModification {
    target_volume_attributes_class_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaimSpec {
    volume_name: String,
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
}

impl From<WireVolume> for Volume {
    fn from(wire: WireVolume) -> Self {
        let spec = wire.spec;
        let in_tree = WireInTree {
            block_store: spec.aws_elastic_block_store,
            azure_disk: spec.azure_disk,
            cinder: spec.cinder,
            persistent_disk: spec.gce_persistent_disk,
            portworx: spec.portworx_volume,
            vsphere: spec.vsphere_volume,
        };
        let zones = wire.metadata.labels.as_ref().and_then(WireLabels::zones);
        let source = match (spec.csi, spec.host_path, in_tree.handle(zones)) {
            (Some(csi), _, _) => Source::Csi { driver: csi.driver.into(), handle: csi.volume_handle.into() },
            (None, Some(host), _) => Source::HostPath { path: host.path.into() },
            (None, None, Some((driver, handle))) => {
                Source::InTree { driver: driver.into(), handle: handle.into() }
            }
            (None, None, None) => Source::Other,
        };
        let annotations = wire.metadata.annotations.as_ref();
        let annotation = |of: fn(&WireAnnotations) -> &Option<String>| {
            annotations.and_then(|all| of(all).as_deref()).map(Arc::from)
        };
        Self {
            finalizers: wire.metadata.finalizers(),
            phase: wire.status.phase.into(),
            message: wire.status.message.into(),
            policy: spec.persistent_volume_reclaim_policy.into(),
            claim: spec.claim_ref.map(|claim| ClaimReference {
                namespace: claim.namespace.into(),
                name: claim.name.into(),
                uid: (!claim.uid.is_empty()).then(|| Uid::new(&claim.uid)),
            }),
            provisioned_by: annotation(|all| &all.provisioned_by),
            migrated_to: annotation(|all| &all.migrated_to),
            source,
            class: spec.storage_class_name.into(),
            mode: spec.volume_mode.map_or_else(|| "Filesystem".into(), Into::into),
            secret: (annotation(|all| &all.secret_name), annotation(|all| &all.secret_namespace)),
            affinity: spec.node_affinity.and_then(WireAffinity::read).map(Arc::new),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default().into(),
            meta: Meta::from(&wire.metadata),
        }
    }
}

impl From<WireClaim> for Claim {
    fn from(wire: WireClaim) -> Self {
        let mut owners = wire.metadata.owner_references.iter().flatten();
        let mut conditions = wire.status.conditions.iter().flatten();
        let target = wire
            .status
            .modify_volume_status
            .and_then(|modification| modification.target_volume_attributes_class_name);
        let in_status = wire.status.current_volume_attributes_class_name.into_iter().chain(target);
        Self {
            status_attributes_classes: in_status.filter(|name| !name.is_empty()).map(Arc::from).collect(),
            unused: conditions
                .find(|condition| condition.r#type == volumes_unused::CONDITION)
                .map(|condition| condition.status == "True"),
            finalizers: wire.metadata.finalizers(),
            controller: owners.find(|owner| owner.controller == Some(true)).map(|owner| Uid::new(&owner.uid)),
            volume: wire.spec.volume_name.into(),
            bound: wire.status.phase == "Bound",
            class: wire.spec.storage_class_name.unwrap_or_default().into(),
            attributes_class: wire.spec.volume_attributes_class_name.unwrap_or_default().into(),
            meta: Meta::from(&wire.metadata),
        }
    }
}

/// The state of an object's protection finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// The object lives and has it, or is terminating without it.
    Settled,
    /// The object lives without it.
    Missing,
    /// The object is terminating, and has it.
    Holding,
}

pub(crate) fn protection(meta: &Meta, finalizers: &[Arc<str>], finalizer: &str) -> Protection {
    let present = finalizers.iter().any(|name| **name == *finalizer);
    match (meta.deleting, present) {
        (false, false) => Protection::Missing,
        (true, true) => Protection::Holding,
        _ => Protection::Settled,
    }
}

/// The finalizer added, or removed.
pub(crate) fn change(
    kind: Kind,
    meta: &Meta,
    finalizers: &[Arc<str>],
    finalizer: &str,
    add: bool,
) -> Decision {
    let mut left: Vec<Arc<str>> = finalizers.iter().filter(|name| ***name != *finalizer).cloned().collect();
    if add {
        left.push(finalizer.into());
    }
    let request = Request::Guarded {
        key: kind.key(&meta.namespace, &meta.name),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version,
        change: Change::Finalizers(left),
    };
    let (verdict, fact) = match (kind, add) {
        (_, true) => (gc_types::codes::PROTECTION_MISSING, format!("it lives without {finalizer}")),
        (Kind::Volume, false) => (gc_types::codes::VOLUME_UNUSED, "its phase is not Bound".to_owned()),
        (Kind::AttributesClass, false) => (
            gc_types::codes::ATTRIBUTES_CLASS_UNUSED,
            "live lists found no claim and no volume that names it".to_owned(),
        ),
        (_, false) => {
            (gc_types::codes::CLAIM_UNUSED, "a live list found no pod on a node that uses it".to_owned())
        }
    };
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact]))
}

/// The decision about a volume's protection: its phase alone decides.
#[must_use]
pub fn volume_verdict(volume: &Volume) -> Decision {
    match protection(&volume.meta, &volume.finalizers, VOLUME_FINALIZER) {
        Protection::Missing => change(Kind::Volume, &volume.meta, &volume.finalizers, VOLUME_FINALIZER, true),
        Protection::Holding if !volume.bound() => {
            change(Kind::Volume, &volume.meta, &volume.finalizers, VOLUME_FINALIZER, false)
        }
        Protection::Holding | Protection::Settled => Decision::Leave,
    }
}

/// Whether a pod blocks the deletion of a claim in its namespace. A finished pod does as long as it exists; one
/// without a node does not, for no kubelet starts a pod whose claim is terminating.
#[must_use]
pub fn in_use(claim: &Claim, pod: &Pod) -> bool {
    let shut_down = pod.meta.deleting && pod.without_grace;
    let own = claim.controller.as_ref() == Some(&pod.meta.uid);
    pod.node.is_some()
        && pod.meta.namespace == claim.meta.namespace
        && pod
            .claims
            .iter()
            .any(|used| used.claim == claim.meta.name && (!used.ephemeral || (own && !shut_down)))
}

/// The PV protection controller.
#[derive(Debug)]
pub struct VolumeProtection {
    volumes: Cache<Volume>,
}

impl Default for VolumeProtection {
    fn default() -> Self {
        Self { volumes: Cache::new(Kind::Volume) }
    }
}

impl Collector for VolumeProtection {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Volume]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Volume) => self.volumes.list_started(),
            Observation::Observed(Facts::Volume(volume)) => dirty.push(self.volumes.put(volume).0),
            Observation::Removed(key) => drop(self.volumes.remove(&key)),
            Observation::Synced(Kind::Volume) => {
                for key in self.volumes.list_ended() {
                    self.volumes.remove(&key);
                }
                dirty.extend(self.volumes.keys().cloned());
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        self.volumes.get(key).map_or(Decision::Leave, volume_verdict)
    }
}

/// What a live list of pods is to show about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// Whether a pod blocks it, while it is terminating.
    Held,
    /// Whether a pod refers to it, while it lives.
    Referred,
}

impl Question {
    fn answers(self, claim: &Claim, pod: &Pod) -> bool {
        match self {
            Self::Held => in_use(claim, pod),
            Self::Referred => volumes_unused::refers(claim, pod),
        }
    }
}

/// A live list of the pods of a namespace that is in progress.
#[derive(Debug, Default)]
struct LiveList {
    /// The claims that no observed pod used before it began.
    asked: BTreeSet<(Question, ObjectKey)>,
    /// Those of them that it found in use.
    used: BTreeSet<(Question, ObjectKey)>,
}

/// The PVC protection controller.
#[derive(Debug)]
pub struct ClaimProtection {
    claims: Cache<Claim>,
    /// Pods with claims only.
    pods: Cache<Pod>,
    users: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    lists: BTreeMap<Arc<str>, LiveList>,
    /// The claims for the next list of a namespace.
    waiting: BTreeMap<Arc<str>, BTreeSet<(Question, ObjectKey)>>,
    not_before: BTreeMap<Arc<str>, Timestamp>,
    /// Claims that no pod used: when they were already terminating, and while they lived.
    unused: BTreeMap<(Question, ObjectKey), Uid>,
    /// Whether claims that live get the condition `Unused`.
    reports_unused: bool,
    /// The pending value of that condition, and since when.
    noticed: BTreeMap<ObjectKey, (bool, Timestamp)>,
}

impl Default for ClaimProtection {
    fn default() -> Self {
        Self::new(false)
    }
}

impl ClaimProtection {
    /// With `reports_unused`, claims that live also get the condition `Unused`.
    #[must_use]
    pub fn new(reports_unused: bool) -> Self {
        Self {
            claims: Cache::new(Kind::Claim),
            pods: Cache::new(Kind::Pod),
            users: BTreeMap::new(),
            lists: BTreeMap::new(),
            waiting: BTreeMap::new(),
            not_before: BTreeMap::new(),
            unused: BTreeMap::new(),
            reports_unused,
            noticed: BTreeMap::new(),
        }
    }

    fn claims_of(pod: &Pod) -> impl Iterator<Item = ObjectKey> + '_ {
        pod.claims.iter().map(|used| Kind::Claim.key(&pod.meta.namespace, &used.claim))
    }

    /// A pod no longer uses its claims: those that are terminating may be removed.
    fn drop_pod(&mut self, key: &ObjectKey, pod: &Pod, dirty: &mut Vec<ObjectKey>) {
        for claim in Self::claims_of(pod) {
            drop_from(&mut self.users, &claim, key);
            if self.reports_unused || self.claims.get(&claim).is_some_and(|claim| claim.meta.deleting) {
                dirty.push(claim);
            }
        }
    }

    fn put_pod(&mut self, pod: Pod, dirty: &mut Vec<ObjectKey>) {
        let claims: Vec<ObjectKey> = Self::claims_of(&pod).collect();
        let (key, before) = if claims.is_empty() {
            let key = Kind::Pod.key(&pod.meta.namespace, &pod.meta.name);
            let before = self.pods.remove(&key);
            (key, before)
        } else {
            self.pods.put(pod)
        };
        if let Some(before) = before {
            self.drop_pod(&key, &before, dirty);
        }
        for claim in claims {
            if self.reports_unused {
                dirty.push(claim.clone());
            }
            self.users.entry(claim).or_default().insert(key.clone());
        }
    }

    fn remove_pod(&mut self, key: &ObjectKey, dirty: &mut Vec<ObjectKey>) {
        if let Some(pod) = self.pods.remove(key) {
            self.drop_pod(key, &pod, dirty);
        }
    }

    fn remove_claim(&mut self, key: &ObjectKey) {
        self.claims.remove(key);
        self.noticed.remove(key);
        for question in [Question::Held, Question::Referred] {
            self.unused.remove(&(question, key.clone()));
        }
        if let Some(waiting) = self.waiting.get_mut(&key.namespace) {
            waiting.retain(|(_, waits)| waits != key);
            if waiting.is_empty() {
                self.waiting.remove(&key.namespace);
            }
        }
    }

    /// Claims are listed again, perhaps because a backup was restored: earlier findings belong to another history, in
    /// which other pods used them.
    fn doubt(&mut self) {
        self.unused.clear();
        for (namespace, list) in &mut self.lists {
            let asked = std::mem::take(&mut list.asked);
            self.waiting.entry(Arc::clone(namespace)).or_default().extend(asked);
        }
    }

    fn found(&mut self, pod: &Pod) {
        let Some(list) = self.lists.get_mut(&pod.meta.namespace) else { return };
        for key in Self::claims_of(pod) {
            let Some(claim) = self.claims.get(&key) else { continue };
            for question in [Question::Held, Question::Referred] {
                let asked = (question, key.clone());
                if list.asked.contains(&asked) && question.answers(claim, pod) {
                    list.used.insert(asked);
                }
            }
        }
    }

    /// Whether a pod uses a claim, as far as the watch has delivered.
    fn is_used(&self, question: Question, key: &ObjectKey, claim: &Claim) -> bool {
        let mut users = self.users.get(key).into_iter().flatten().filter_map(|pod| self.pods.get(pod));
        users.any(|pod| question.answers(claim, pod))
    }

    /// The result of a live list, or a request for one.
    fn ask_pods(&mut self, question: Question, claim: &Claim, now: Timestamp) -> Decision {
        let namespace = &claim.meta.namespace;
        let asked = (question, Kind::Claim.key(namespace, &claim.meta.name));
        if self.lists.contains_key(namespace) {
            self.waiting.entry(Arc::clone(namespace)).or_default().insert(asked);
            return Decision::Leave;
        }
        if let Some(&time) = self.not_before.get(namespace) {
            if now < time {
                return Decision::Later(time);
            }
            self.not_before.remove(namespace);
        }
        let mut all = self.waiting.remove(namespace).unwrap_or_default();
        all.insert(asked);
        self.lists.insert(Arc::clone(namespace), LiveList { asked: all, used: BTreeSet::new() });
        let version = claim.meta.resource_version;
        let request = Request::Barrier {
            resource: Kind::Pod.resource(),
            namespace: Some(Arc::clone(namespace)),
            at_least: version,
        };
        let fact = "no pod that uses it was observed".to_owned();
        Decision::Act(request, reason(gc_types::codes::CLAIM_USE_UNKNOWN, version, &[fact]))
    }

    fn decide_holding(&mut self, key: &ObjectKey, claim: &Claim, now: Timestamp) -> Decision {
        if self.is_used(Question::Held, key, claim) {
            return Decision::Leave;
        }
        if self.unused.get(&(Question::Held, key.clone())) == Some(&claim.meta.uid) {
            return change(Kind::Claim, &claim.meta, &claim.finalizers, CLAIM_FINALIZER, false);
        }
        self.ask_pods(Question::Held, claim, now)
    }

    /// The update of the condition `Unused` of a living claim; `None` if it is up to date.
    fn decide_condition(&mut self, key: &ObjectKey, claim: &Claim, now: Timestamp) -> Option<Decision> {
        let proof = (Question::Referred, key.clone());
        let unused = if self.is_used(Question::Referred, key, claim) {
            self.unused.remove(&proof);
            false
        } else if claim.unused == Some(true) || self.unused.get(&proof) == Some(&claim.meta.uid) {
            true
        } else {
            return Some(self.ask_pods(Question::Referred, claim, now));
        };
        if claim.unused == Some(unused) {
            self.noticed.remove(key);
            return None;
        }
        let noticed = self.noticed.entry(key.clone()).or_insert((unused, now));
        if noticed.0 != unused {
            *noticed = (unused, now);
        }
        Some(volumes_unused::set(claim, unused, noticed.1))
    }
}

impl Collector for ClaimProtection {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Claim, Kind::Pod]
    }

    fn clock_set(&mut self, by: i64) {
        for at in self.not_before.values_mut() {
            *at = at.after(by);
        }
        for (_, since) in self.noticed.values_mut() {
            *since = since.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Claim) => {
                self.claims.list_started();
                self.doubt();
            }
            Observation::ListStarted(Kind::Pod) => self.pods.list_started(),
            Observation::Observed(Facts::Claim(claim)) => dirty.push(self.claims.put(claim).0),
            Observation::Observed(Facts::Pod(pod)) => self.put_pod(pod, dirty),
            Observation::Found(Facts::Pod(pod)) => self.found(&pod),
            Observation::Removed(key) if key.resource == Kind::Claim.resource() => self.remove_claim(&key),
            Observation::Removed(key) if key.resource == Kind::Pod.resource() => self.remove_pod(&key, dirty),
            Observation::Synced(Kind::Claim) => {
                for key in self.claims.list_ended() {
                    self.remove_claim(&key);
                }
                dirty.extend(self.claims.keys().cloned());
            }
            Observation::Synced(Kind::Pod) => {
                for key in self.pods.list_ended() {
                    self.remove_pod(&key, dirty);
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(claim) = self.claims.get(key).cloned() else { return Decision::Leave };
        if self.reports_unused
            && !claim.meta.deleting
            && let Some(decision) = self.decide_condition(key, &claim, now)
        {
            return decision;
        }
        match protection(&claim.meta, &claim.finalizers, CLAIM_FINALIZER) {
            Protection::Settled => Decision::Leave,
            Protection::Missing => change(Kind::Claim, &claim.meta, &claim.finalizers, CLAIM_FINALIZER, true),
            Protection::Holding => self.decide_holding(key, &claim, now),
        }
    }

    fn finished(
        &mut self,
        key: &ObjectKey,
        request: &Request,
        outcome: &Outcome,
        now: Timestamp,
        dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Barrier { .. } = request else { return };
        let Some(list) = self.lists.remove(&key.namespace) else { return };
        let listed = matches!(outcome, Outcome::Applied(_));
        if !listed || !list.used.is_empty() {
            self.not_before.insert(Arc::clone(&key.namespace), now.after(LIST_AGAIN_MILLISECONDS));
        }
        if listed {
            for asked in list.asked.difference(&list.used) {
                if let Some(facts) = self.claims.get(&asked.1) {
                    self.unused.insert(asked.clone(), facts.meta.uid.clone());
                }
            }
        }
        dirty.extend(list.asked.into_iter().map(|(_, claim)| claim));
        let waiting = self.waiting.get(&key.namespace).into_iter().flatten();
        dirty.extend(waiting.map(|(_, claim)| claim.clone()));
    }
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
