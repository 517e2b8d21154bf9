//! Reclaims PersistentVolumes whose claim is gone (spec `cluster-collectors.md`, 6 and 9), like upstream's PV controller and CSI
//! external-provisioner. Binding and provisioning are out of scope, so the phases `Pending` and `Available` are never written.
//!
//! Storage is deleted only if a live read has shown that the claim is gone, a live list has shown that the volume is not attached,
//! no other volume has the same storage, and the adapter has read the volume immediately before and found it unchanged since the
//! decision.

mod deleters;
mod index;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{
    Change, EventRecord, ObjectKey, Outcome, OutsideCall, PropagationPolicy, Reason, Request,
    ResourceVersion, Severity, Storage, Timestamp, Uid,
};
use serde_json::json;

use crate::engine::{Collector, Decision, EndedRequest, Lane, Observation, StorageFailure, reason};
use crate::entry::{CHANGE, CollectorEntry, READ, WATCH, WRITE_EVENTS, Watches, rule};
use crate::measures::{self, Measurement, ReportQueue, Tally};
pub use crate::objects::Attachment;
use crate::objects::{Cache, Claim, ClaimReference, Facts, Kind, Source, Volume};
use deleters::Deleter;
pub use deleters::Deleters;

/// Finalizer that marks the existence of a CSI volume's storage.
pub const EXTERNAL_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Finalizer that marks the existence of any other volume's storage.
pub const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";
/// Provisioner of host-path volumes.
pub const HOST_PATH_PLUGIN: &str = "kubernetes.io/host-path";
/// Maximum number of deletions in flight per CSI driver, so that one that does not answer cannot delay the others.
pub const CALLS_PER_DRIVER: usize = 16;
/// Validity of a live read that found no claim, and of a live list that found no attachment, milliseconds.
const PROOF_MILLISECONDS: i64 = 20_000;
/// Maximum wait for the watch to deliver the result of a live read, milliseconds.
const WATCH_PATIENCE_MILLISECONDS: i64 = 1_000;
/// First and maximum delay after a CSI driver failed, milliseconds (spec 9.2).
const CSI_RETRY_MILLISECONDS: (i64, i64) = (1_000, 300_000);
/// First and maximum delay after anything else failed, milliseconds (spec 6.3).
const IN_TREE_RETRY_MILLISECONDS: (i64, i64) = (500, 122_000);

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "reclaim of volumes",
    name: "persistentvolume-binder-controller",
    alias: Some("persistentvolume-binder"),
    account: "persistent-volume-binder",
    event_source: "persistentvolume-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::Volume, Kind::Claim, Kind::Attachment]),
    flags: &["csi-endpoint", "csi-timeout", "csi-topology", "enable-hostpath-provisioner"],
    rules: &[
        rule("", "persistentvolumes", CHANGE),
        rule("", "persistentvolumes/status", &["patch"]),
        rule("", "persistentvolumeclaims", READ),
        rule("storage.k8s.io", "volumeattachments", WATCH),
        rule("storage.k8s.io", "storageclasses", &["get"]),
        // Secrets that drivers need for a deletion are read by name, and never listed.
        rule("", "secrets", &["get"]),
        WRITE_EVENTS,
    ],
};

fn has_finalizer(volume: &Volume, name: &str) -> bool {
    volume.finalizers.iter().any(|present| **present == *name)
}

/// State of a volume's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// There never was a claim.
    None,
    /// The claim exists, and is or may become bound to the volume.
    Lives {
        /// True if it names this volume.
        bound: bool,
    },
    /// The claim exists, but is bound to another volume.
    Elsewhere,
    /// The claim is gone, according to a live read.
    Gone,
    /// The claim was not observed, so a live read is needed.
    Unknown(ClaimReference),
}

/// A failed deletion of storage.
#[derive(Clone, Debug)]
struct FailedDeletion {
    uid: Uid,
    message: String,
    times: u32,
    not_before: Timestamp,
}

/// A live list of attachments, in progress.
#[derive(Debug)]
struct LiveList {
    begun: Timestamp,
    /// Volumes that wait for it.
    answers: BTreeSet<ObjectKey>,
    /// Those of these volumes that it has found attached.
    used: BTreeSet<ObjectKey>,
}

/// The reclaimer.
#[derive(Debug)]
pub struct VolumeReclaim {
    deleters: Deleters,
    volumes: Cache<Volume>,
    claims: Cache<Claim>,
    attachments: Cache<Attachment>,
    attached: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// Volumes by claim, to reconcile when the claim changes.
    by_claim: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Volumes by their storage, to detect shared storage (BEAT-CSI-7).
    by_storage: BTreeMap<(Arc<str>, Arc<str>), BTreeSet<ObjectKey>>,
    /// Claims that a live read has found to be gone, by their volumes, and when the read was sent.
    gone: BTreeMap<ObjectKey, (Uid, Timestamp)>,
    /// Volumes whose claim is being read, with the claim's UID and the start of the read.
    asked: BTreeMap<ObjectKey, (Uid, Timestamp)>,
    /// Times to check again for claims that exist but that the watch has not delivered.
    recheck_at: BTreeMap<ObjectKey, Timestamp>,
    /// Time since which a live list has shown volumes as not attached.
    unattached: BTreeMap<ObjectKey, Timestamp>,
    list: Option<LiveList>,
    /// Time before which no list is made, after one that failed or disagreed with the watch.
    no_list_before: Timestamp,
    /// Volumes for the next list.
    waiting: BTreeSet<ObjectKey>,
    /// Start of each call in flight.
    calls: BTreeMap<ObjectKey, Timestamp>,
    failed: BTreeMap<ObjectKey, FailedDeletion>,
    /// Volumes whose storage is deleted.
    destroyed: BTreeMap<ObjectKey, Uid>,
    /// Start of each volume's reclaim.
    begun: BTreeMap<ObjectKey, (Uid, Timestamp, Arc<str>)>,
    tallies: [Tally; 5],
    reports: ReportQueue,
}

const DRIVERLESS: &str = "";

/// Returns the identity of storage: its driver (none for a directory) and its handle or path.
fn storage_of(volume: &Volume) -> Option<(Arc<str>, Arc<str>)> {
    match &volume.source {
        Source::Csi { driver, handle } | Source::InTree { driver, handle } => {
            Some((Arc::clone(driver), Arc::clone(handle)))
        }
        Source::HostPath { path } => {
            // `/tmp/a`, `/tmp//a/` and `/tmp/./a` are the same directory.
            let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
            Some((DRIVERLESS.into(), names.fold(String::new(), |path, name| path + "/" + name).into()))
        }
        Source::Other => None,
    }
}

/// Returns the name in upstream's metrics.
fn plugin_name(volume: &Volume) -> Arc<str> {
    match &volume.source {
        Source::Csi { driver, .. } => format!("kubernetes.io/csi:{driver}").into(),
        Source::HostPath { .. } => HOST_PATH_PLUGIN.into(),
        Source::InTree { .. } | Source::Other => {
            volume.provisioned_by.clone().unwrap_or_else(|| "N/A".into())
        }
    }
}

impl VolumeReclaim {
    /// Creates a reclaimer that can delete the storage of these deleters.
    #[must_use]
    pub fn new(deleters: Deleters) -> Self {
        Self {
            deleters,
            volumes: Cache::new(Kind::Volume),
            claims: Cache::new(Kind::Claim),
            attachments: Cache::new(Kind::Attachment),
            attached: BTreeMap::new(),
            by_claim: BTreeMap::new(),
            by_storage: BTreeMap::new(),
            gone: BTreeMap::new(),
            asked: BTreeMap::new(),
            recheck_at: BTreeMap::new(),
            unattached: BTreeMap::new(),
            list: None,
            no_list_before: Timestamp::default(),
            waiting: BTreeSet::new(),
            calls: BTreeMap::new(),
            failed: BTreeMap::new(),
            destroyed: BTreeMap::new(),
            begun: BTreeMap::new(),
            tallies: [
                Tally::new(&measures::VOLUMES),
                Tally::new(&measures::VOLUMES_BOUND),
                Tally::new(&measures::VOLUMES_UNBOUND),
                Tally::new(&measures::CLAIMS_BOUND),
                Tally::new(&measures::CLAIMS_UNBOUND),
            ],
            reports: ReportQueue::default(),
        }
    }

    fn claim_key(reference: &ClaimReference) -> ObjectKey {
        Kind::Claim.key(&reference.namespace, &reference.name)
    }

    fn holder(&self, key: &ObjectKey, volume: &Volume, now: Timestamp) -> Holder {
        let Some(reference) = &volume.claim else { return Holder::None };
        let Some(uid) = &reference.uid else { return Holder::None };
        match self.claims.get(&Self::claim_key(reference)) {
            Some(claim) if claim.meta.uid == *uid => {
                if claim.volume.is_empty() || claim.volume == volume.meta.name {
                    Holder::Lives { bound: !claim.volume.is_empty() }
                } else {
                    Holder::Elsewhere
                }
            }
            _ if self.gone.get(key).is_some_and(|(gone, at)| gone == uid && proves(*at, now)) => Holder::Gone,
            _ => Holder::Unknown(reference.clone()),
        }
    }

    fn decide_volume(&mut self, key: &ObjectKey, volume: &Volume, now: Timestamp) -> Decision {
        if let Some(decision) = self.upkeep(volume) {
            return decision;
        }
        let (over, deletes) = (matches!(&*volume.phase, "Released" | "Failed"), *volume.policy == *"Delete");
        let deleter = self.deleters.of(volume);
        match self.holder(key, volume, now) {
            Holder::None => return self.decide_unclaimed(key, volume, deleter, now),
            Holder::Lives { bound: true } if over => {
                let fact = "its claim exists, and is bound to it".to_owned();
                return status(volume, "Bound", "", gc_types::codes::VOLUME_BOUND, fact);
            }
            Holder::Lives { .. } => return Decision::Leave,
            Holder::Elsewhere if !(deletes && volume.provisioned_by.is_some()) => return Decision::Leave,
            // The result would not matter.
            Holder::Unknown(_) if over && (*volume.policy == *"Retain" || deleter == Deleter::External) => {
                return Decision::Leave;
            }
            Holder::Unknown(claim) => {
                return match self.recheck_at.get(key) {
                    Some(time) if now < *time => Decision::Later(*time),
                    _ => ask_claim(volume, &claim),
                };
            }
            Holder::Elsewhere | Holder::Gone => {}
        }
        if !over {
            let fact = "a live read found its claim gone, or bound to another volume".to_owned();
            return status(volume, "Released", "", gc_types::codes::VOLUME_RELEASED, fact);
        }
        match &*volume.policy {
            "Retain" => Decision::Leave,
            "Delete" => self.decide_deletion(key, volume, deleter, now),
            "Recycle" => self.report(
                volume,
                "Failed",
                "No recycler plugin found for the volume!",
                "VolumeFailedRecycle",
            ),
            _ => self.report(
                volume,
                "Failed",
                "Volume has unrecognized PersistentVolumeReclaimPolicy",
                "VolumeUnknownReclaimPolicy",
            ),
        }
    }

    /// Decides about a volume that never had a claim. It is reclaimed only when it is deleted, because then nothing else would
    /// delete the storage that was created for it (BEAT-PV-7).
    fn decide_unclaimed(
        &mut self,
        key: &ObjectKey,
        volume: &Volume,
        deleter: Deleter,
        now: Timestamp,
    ) -> Decision {
        let keeps_storage =
            has_finalizer(volume, EXTERNAL_FINALIZER) || has_finalizer(volume, IN_TREE_FINALIZER);
        let wanted = volume.meta.deleting
            && keeps_storage
            && *volume.policy == *"Delete"
            && volume.provisioned_by.is_some();
        if wanted { self.decide_deletion(key, volume, deleter, now) } else { Decision::Leave }
    }

    /// Returns the correction of annotation and finalizers, if they need one.
    fn upkeep(&self, volume: &Volume) -> Option<Decision> {
        if let Some(wanted) = Deleters::migration(volume) {
            let moved = if wanted.is_null() { "has not moved" } else { "has moved" };
            let fact = format!("its plugin {moved} to CSI");
            let patch = json!({"metadata": {"annotations": {"pv.kubernetes.io/migrated-to": wanted}}});
            let change = Change::Merge(patch.to_string().into());
            return Some(guarded(volume, change, gc_types::codes::MIGRATION_ANNOTATION_OUTDATED, fact));
        }
        let wanted = self.deleters.finalizers(volume);
        if wanted == volume.finalizers {
            return None;
        }
        let fact = format!("its policy is {} and its phase {}", volume.policy, volume.phase);
        let verdict = gc_types::codes::VOLUME_FINALIZERS_OUTDATED;
        Some(guarded(volume, Change::Finalizers(wanted), verdict, fact))
    }

    fn decide_deletion(
        &mut self,
        key: &ObjectKey,
        volume: &Volume,
        deleter: Deleter,
        now: Timestamp,
    ) -> Decision {
        let storage = match deleter {
            Deleter::External => return Decision::Leave,
            Deleter::Missing(why) => {
                let phase =
                    if self.deleters.csi(volume) { Arc::clone(&volume.phase) } else { "Failed".into() };
                return self.report(volume, &phase, &why, "VolumeFailedDelete");
            }
            Deleter::Ours(storage) => storage,
        };
        if self.destroyed.get(key) == Some(&volume.meta.uid) {
            return finish(volume);
        }
        let driver = driver_of(&storage);
        // A terminating volume without the finalizer no longer has any storage (CSI-T04).
        let stripped = volume.meta.deleting && !has_finalizer(volume, EXTERNAL_FINALIZER);
        if stripped && *driver != *DRIVERLESS {
            return Decision::Leave;
        }
        if let Some(why) = self.obstacle(key, volume) {
            return self.report(volume, &volume.phase, &why, "VolumeFailedDelete");
        }
        if let Some(failed) = self.failed.get(key).filter(|failed| failed.uid == volume.meta.uid) {
            let (message, not_before) = (failed.message.clone(), failed.not_before);
            if *volume.message != *message {
                let phase = if *driver == *DRIVERLESS { "Failed".into() } else { Arc::clone(&volume.phase) };
                return status(
                    volume,
                    &phase,
                    &message,
                    gc_types::codes::STORAGE_DELETION_FAILED,
                    message.clone(),
                );
            }
            if now < not_before {
                return Decision::Later(not_before);
            }
        }
        if !self.unattached.get(key).is_some_and(|at| proves(*at, now)) {
            return self.ask_attachments(key, volume, now);
        }
        let request = Request::Outside {
            key: key.clone(),
            uid: volume.meta.uid.clone(),
            resource_version: volume.meta.resource_version,
            call: OutsideCall::DeleteStorage(Box::new(storage)),
        };
        let facts = [
            "a live read found its claim gone, or bound to another volume".to_owned(),
            "a live list found it attached to no node".to_owned(),
        ];
        let why = reason(gc_types::codes::CLAIM_GONE, volume.meta.resource_version, &facts);
        Decision::Act(request, why)
    }

    /// Returns the reason not to delete the storage, as text for the volume's status.
    fn obstacle(&self, key: &ObjectKey, volume: &Volume) -> Option<String> {
        let name = &volume.meta.name;
        let attachment = self.attached.get(name).and_then(BTreeSet::first);
        if let Some(attachment) = attachment.and_then(|first| self.attachments.get(first)) {
            return Some(format!("persistentvolume {name} is still attached to node {}", attachment.node));
        }
        let (driver, handle) = storage_of(volume)?;
        let sharing = if *driver == *DRIVERLESS {
            // A directory inside this one counts as well, as does one that contains it.
            let below = |path: &str| path.strip_prefix(&*handle).is_some_and(|rest| rest.starts_with('/'));
            let around = handle.match_indices('/').filter_map(|(at, _)| handle.get(..at));
            let around = around.filter_map(|path| self.by_storage.get(&(Arc::clone(&driver), path.into())));
            let folders = self.by_storage.range((Arc::clone(&driver), Arc::clone(&handle))..);
            folders
                .take_while(|((other, path), _)| *other == driver && path.starts_with(&*handle))
                .filter(|((_, path), _)| **path == *handle || below(path))
                .map(|(_, keys)| keys)
                .chain(around)
                .flatten()
                .find(|other| *other != key)
        } else {
            let keys = self.by_storage.get(&(driver, Arc::clone(&handle)));
            keys.into_iter().flatten().find(|other| *other != key)
        };
        sharing
            .map(|other| format!("persistentvolume {} has the same storage {handle:?} as {name}", other.name))
    }

    fn ask_attachments(&mut self, key: &ObjectKey, volume: &Volume, now: Timestamp) -> Decision {
        self.waiting.insert(key.clone());
        if self.list.is_some() {
            return Decision::Leave;
        }
        if now < self.no_list_before {
            return Decision::Later(self.no_list_before);
        }
        let fact = format!("{} volumes wait for the answer", self.waiting.len());
        let request = Request::Barrier {
            resource: Kind::Attachment.resource(),
            namespace: None,
            at_least: ResourceVersion::UNKNOWN,
        };
        let verdict = gc_types::codes::ATTACHMENT_UNKNOWN;
        Decision::Act(request, reason(verdict, volume.meta.resource_version, &[fact]))
    }

    /// Reports a failure on the volume, once for each text.
    fn report(&mut self, volume: &Volume, phase: &str, message: &str, event: &'static str) -> Decision {
        if *volume.phase == *phase && *volume.message == *message {
            return Decision::Leave;
        }
        self.queue_event(volume, Severity::Warning, event, message);
        status(volume, phase, message, gc_types::codes::VOLUME_RECLAIM_FAILED, message.to_owned())
    }

    fn queue_event(&mut self, volume: &Volume, severity: Severity, event: &'static str, message: &str) {
        let meta = &volume.meta;
        let note = EventRecord {
            about: Kind::Volume.key(&meta.namespace, &meta.name),
            uid: meta.uid.clone(),
            severity,
            reason: event,
            message: message.to_owned(),
        };
        let why =
            reason(gc_types::codes::VOLUME_RECLAIM_REPORTED, meta.resource_version, &[message.to_owned()]);
        self.reports.event(note, why);
    }

    /// Takes the answer of a driver, or of this machine.
    fn answered(
        &mut self,
        (key, uid): (&ObjectKey, &Uid),
        remark: Option<&str>,
        result: Result<(), StorageFailure>,
        now: Timestamp,
    ) {
        // Another volume may have the name by now, whose storage was not meant.
        let Some(volume) = self.volumes.get(key).filter(|volume| volume.meta.uid == *uid).cloned() else {
            return;
        };
        if let Some(remark) = remark {
            self.queue_event(&volume, Severity::Warning, "VolumeDeletionSecret", remark);
        }
        let (driver, csi) = match &volume.source {
            Source::Csi { driver, .. } | Source::InTree { driver, .. } => (Arc::clone(driver), true),
            Source::HostPath { .. } | Source::Other => (HOST_PATH_PLUGIN.into(), false),
        };
        let begun = self.calls.get(key).copied().unwrap_or(now);
        let class = || vec![Arc::clone(&volume.class)];
        if csi {
            self.reports.count(&measures::VOLUME_DELETIONS, class());
        }
        let failure = match result {
            Ok(()) => {
                if csi {
                    let took = seconds(now.since(begun));
                    self.reports.observe(&measures::VOLUME_DELETION_DURATION, class(), took);
                }
                self.failed.remove(key);
                self.destroyed.insert(key.clone(), volume.meta.uid);
                return;
            }
            Err(failure) => failure,
        };
        if csi {
            self.reports.count(&measures::VOLUME_DELETIONS_FAILED, class());
        }
        self.reports.count(&measures::VOLUME_OPERATION_ERRORS, vec![driver, "delete".into()]);
        let (first, longest) = if csi { CSI_RETRY_MILLISECONDS } else { IN_TREE_RETRY_MILLISECONDS };
        let times = self.failed.get(key).map_or(0, |failed| failed.times);
        let not_before = now.after((first << times.min(20)).min(longest));
        let in_use = failure.in_use && !csi;
        let (severity, event) = if in_use {
            (Severity::Normal, "VolumeDelete")
        } else {
            (Severity::Warning, "VolumeFailedDelete")
        };
        self.queue_event(&volume, severity, event, &failure.message);
        // A volume in use keeps its phase and message (PV-T20).
        let message = if in_use { volume.message.to_string() } else { failure.message };
        let uid = volume.meta.uid;
        self.failed
            .insert(key.clone(), FailedDeletion { uid, message, times: times.saturating_add(1), not_before });
    }

    /// Forgets what live reads and lists have shown, and will show, when volumes, claims or attachments are listed again, perhaps
    /// because a backup was restored: it is about another history.
    fn doubt(&mut self) {
        self.gone.clear();
        self.asked.clear();
        self.unattached.clear();
        if let Some(list) = &mut self.list {
            self.waiting.append(&mut list.answers);
        }
    }

    fn list_ended(&mut self, outcome: &Outcome, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        let Some(list) = self.list.take() else { return };
        let complete = matches!(outcome, Outcome::Applied(_));
        if complete {
            for key in list.answers.difference(&list.used) {
                self.unattached.insert(key.clone(), list.begun);
            }
        }
        if !complete || list.answers.intersection(&list.used).next().is_some() {
            self.no_list_before = now.after(WATCH_PATIENCE_MILLISECONDS);
        }
        dirty.extend(list.answers);
        dirty.extend(self.waiting.iter().next().cloned());
    }
}

fn driver_of(storage: &Storage) -> Arc<str> {
    match storage {
        Storage::Csi { driver, .. } => Arc::clone(driver),
        Storage::HostPath { .. } => DRIVERLESS.into(),
    }
}

/// Reports whether a live read or list that began then still proves something.
fn proves(begun: Timestamp, now: Timestamp) -> bool {
    now.since(begun) <= PROOF_MILLISECONDS
}

fn seconds(milliseconds: i64) -> f64 {
    f64::from(u32::try_from(milliseconds.max(0)).unwrap_or(u32::MAX)) / 1000.0
}

fn guarded(volume: &Volume, change: Change, verdict: &'static str, fact: String) -> Decision {
    let meta = &volume.meta;
    let request = Kind::Volume.guarded(meta, change);
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact]))
}

/// Returns an update of phase and message; an empty message is removed.
fn status(volume: &Volume, phase: &str, message: &str, verdict: &'static str, fact: String) -> Decision {
    let message = (!message.is_empty()).then_some(message);
    let status = json!({"phase": phase, "message": message});
    guarded(volume, Change::Status(status.to_string().into()), verdict, fact)
}

fn ask_claim(volume: &Volume, claim: &ClaimReference) -> Decision {
    let fact = format!("no claim {}/{} with its UID was observed", claim.namespace, claim.name);
    let why = reason(gc_types::codes::CLAIM_UNKNOWN, volume.meta.resource_version, &[fact]);
    Decision::Act(Request::Read { key: VolumeReclaim::claim_key(claim) }, why)
}

/// Returns the decision once the storage is deleted: the object is deleted first, then the finalizers that protected the storage
/// are removed.
fn finish(volume: &Volume) -> Decision {
    let meta = &volume.meta;
    let fact = "its storage has been destroyed".to_owned();
    let verdict = gc_types::codes::STORAGE_DELETED;
    if !meta.deleting {
        let request = Kind::Volume.deletion(meta, PropagationPolicy::Background);
        return Decision::Act(request, reason(verdict, meta.resource_version, &[fact]));
    }
    let ours = |name: &&Arc<str>| matches!(&***name, EXTERNAL_FINALIZER | IN_TREE_FINALIZER);
    let left: Vec<Arc<str>> = volume.finalizers.iter().filter(|name| !ours(name)).cloned().collect();
    if left == volume.finalizers {
        return Decision::Leave;
    }
    guarded(volume, Change::Finalizers(left), verdict, fact)
}

impl Collector for VolumeReclaim {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Volume, Kind::Claim, Kind::Attachment]
    }

    fn clock_set(&mut self, by: i64) {
        let calls = self.calls.values_mut();
        let reads = self.gone.values_mut().chain(self.asked.values_mut()).map(|(_, at)| at);
        let begun = self.begun.values_mut().map(|(_, at, _)| at);
        let failed = self.failed.values_mut().map(|failed| &mut failed.not_before);
        let looks = self.recheck_at.values_mut().chain(self.unattached.values_mut());
        let list = self.list.iter_mut().map(|list| &mut list.begun);
        let all = calls.chain(reads).chain(begun).chain(failed).chain(looks).chain(list);
        for at in all.chain([&mut self.no_list_before]) {
            *at = at.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(kind) => {
                match kind {
                    Kind::Volume => self.volumes.list_started(),
                    Kind::Claim => self.claims.list_started(),
                    Kind::Attachment => self.attachments.list_started(),
                    _ => return,
                }
                self.doubt();
            }
            Observation::Observed(Facts::Volume(volume)) => self.put_volume(volume, dirty),
            Observation::Observed(Facts::Claim(claim)) => self.put_claim(claim, dirty),
            Observation::Observed(Facts::Attachment(attachment)) => self.put_attachment(attachment, dirty),
            // Attachments in a live list exist, whatever the watch has delivered so far.
            Observation::Found(Facts::Attachment(attachment)) => {
                if let (Some(list), Some(volume)) = (&mut self.list, &attachment.volume) {
                    list.used.insert(Kind::Volume.key(&"".into(), volume));
                }
            }
            Observation::Removed(key) if key.resource == Kind::Volume.resource() => {
                self.remove_volume(&key, now, dirty);
            }
            Observation::Removed(key) if key.resource == Kind::Claim.resource() => {
                self.remove_claim(&key, dirty);
            }
            Observation::Removed(key) => self.remove_attachment(&key, dirty),
            Observation::Synced(Kind::Volume) => {
                for key in self.volumes.list_ended() {
                    self.remove_volume(&key, now, dirty);
                }
                dirty.extend(self.volumes.keys().cloned());
            }
            Observation::Synced(Kind::Claim) => {
                for key in self.claims.list_ended() {
                    self.remove_claim(&key, dirty);
                }
            }
            Observation::Synced(Kind::Attachment) => {
                for key in self.attachments.list_ended() {
                    self.remove_attachment(&key, dirty);
                }
            }
            Observation::StorageDeletion { volume, uid, remark, result } => {
                self.answered((&volume, &uid), remark.as_deref(), result, now);
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        match self.volumes.get(key).cloned() {
            Some(volume) => self.decide_volume(key, &volume, now),
            None => Decision::Leave,
        }
    }

    fn lane(&self, request: &Request) -> Option<Lane> {
        let Request::Outside { call: OutsideCall::DeleteStorage(storage), .. } = request else { return None };
        Some(Lane { name: driver_of(storage), slots: CALLS_PER_DRIVER })
    }

    fn sending(&mut self, key: &ObjectKey, request: &Request, _reason: &Reason, now: Timestamp) {
        match request {
            Request::Barrier { .. } => {
                let answers = std::mem::take(&mut self.waiting);
                self.list = Some(LiveList { begun: now, answers, used: BTreeSet::new() });
            }
            Request::Read { .. } => {
                let claim = self.volumes.get(key).and_then(|volume| volume.claim.as_ref());
                let uid = claim.and_then(|claim| claim.uid.clone());
                self.asked.extend(uid.map(|uid| (key.clone(), (uid, now))));
            }
            Request::Outside { uid, call: OutsideCall::DeleteStorage(storage), .. } => {
                self.calls.insert(key.clone(), now);
                let driver = driver_of(storage);
                let plugin = if *driver == *DRIVERLESS { HOST_PATH_PLUGIN.into() } else { driver };
                self.begun.entry(key.clone()).or_insert_with(|| (uid.clone(), now, plugin));
            }
            _ => {}
        }
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, now }: EndedRequest<'_>,
        dirty: &mut Vec<ObjectKey>,
    ) {
        match request {
            Request::Barrier { .. } => self.list_ended(outcome, now, dirty),
            Request::Outside { .. } => {
                self.calls.remove(key);
                // The failure is reported immediately.
                dirty.push(key.clone());
            }
            Request::Read { .. } => {
                // The answer is about the requested claim, whatever the volume names by now.
                let Some((uid, begun)) = self.asked.remove(key) else { return };
                match outcome {
                    Outcome::Found(found) if found.uid == uid => {
                        self.recheck_at.insert(key.clone(), now.after(WATCH_PATIENCE_MILLISECONDS));
                    }
                    Outcome::Found(_) | Outcome::Absent => drop(self.gone.insert(key.clone(), (uid, begun))),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn skipped(&mut self, key: &ObjectKey, request: &Request) {
        match request {
            Request::Barrier { .. } => {
                self.waiting.extend(self.list.take().into_iter().flat_map(|list| list.answers));
            }
            Request::Read { .. } => drop(self.asked.remove(key)),
            _ => drop(self.calls.remove(key)),
        }
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }

    fn gauges(&self, into: &mut Vec<Measurement>) {
        for tally in &self.tallies {
            tally.read(into);
        }
    }
}
