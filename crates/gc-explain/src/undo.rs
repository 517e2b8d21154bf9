//! Plans the undoing of recorded deletions: owners before dependents, only the topmost of the objects that controllers recreate,
//! and never over an existing object. Pure; the caller reads records and existing objects, and performs the steps one by one. Each
//! step can be repeated.

mod choice;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Timestamp;
use serde_json::{Value, json};

use crate::object::parse_time;
use crate::stuck::Place;
pub use choice::{Choice, ChosenRecords, Earlier, Index, RecordPredicate, chosen, grants_rights};

/// Annotation of a restored object with its former UID.
pub const RESTORED_FROM: &str = "kubegc.io/restored-from";

/// Last state of a deleted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Time at which its deletion was seen.
    pub at: Timestamp,
    /// `resource.group`
    pub resource: String,
    /// The object, with `apiVersion` and `kind`.
    pub object: Value,
}

impl Record {
    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Returns its place.
    #[must_use]
    pub fn place(&self) -> Place {
        let text = |pointer: &str| self.text(pointer).to_owned();
        Place {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            resource: self.resource.clone(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
        }
    }

    fn owners(&self) -> impl Iterator<Item = &Value> {
        self.object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
    }
}

/// The object that now has the name of a deleted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentObject {
    /// UID of the object.
    pub uid: String,
    /// UID of the deleted object that it was restored from; empty if it was not.
    pub restored_from: String,
    /// True if it is terminating.
    pub is_terminating: bool,
}

/// Action on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The object is created.
    Create,
    /// An earlier run has created the object, but its status may be missing.
    Complete,
    /// Another object has its name, and is never overwritten.
    Exists,
    /// A controller recreates it from this owner.
    Recreated(String),
    /// Would grant permissions, and was not named explicitly.
    Withheld,
    /// Cannot be restored, for this reason.
    Impossible(&'static str),
}

/// Knowledge about the owner of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Exists.
    Lives,
    /// Terminating.
    Terminating,
    /// Does not exist.
    Absent,
    /// Could not be read.
    Unknown,
}

/// Facts about owners that were not deleted, by UID.
pub struct Owners<'a> {
    /// Returns the presence of an owner.
    pub presence: &'a dyn Fn(&str) -> Presence,
    /// Current revisions: that of a Deployment, or the name of the ControllerRevision of a StatefulSet.
    pub revisions: &'a BTreeMap<String, String>,
}

/// Expected state of an owner when its dependents are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prospect {
    Known(Presence),
    /// Its controller creates it, under a UID that is not known yet.
    Recreated,
    /// Another object has its name.
    Namesake,
}

impl Action {
    /// Returns the code.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Complete => "Complete",
            Self::Exists => "Exists",
            Self::Recreated(_) => "Recreated",
            Self::Withheld => "Withheld",
            Self::Impossible(_) => "Impossible",
        }
    }
}

/// One step, or an object that is left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object, with its former UID.
    pub place: Place,
    /// Action of the step.
    pub action: Action,
    /// Differences from the deleted object, as messages.
    pub notes: Vec<String>,
    /// Object to create, whose references still have the old UIDs.
    pub object: Value,
    /// Status of the object, if it has one.
    pub status: Option<Value>,
    /// Order of the step; steps of equal rank can be taken together, except for owners.
    pub rank: u8,
}

/// The plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undo {
    /// Owners before dependents.
    pub steps: Vec<Step>,
    /// New UIDs of objects that already exist again, by former UID.
    pub known: BTreeMap<String, String>,
}

impl Undo {
    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        let step = |step: &Step| {
            let why = match &step.action {
                Action::Impossible(why) => (*why).into(),
                Action::Recreated(owner) => owner.as_str().into(),
                _ => Value::Null,
            };
            json!({
                "action": step.action.name(), "object": step.place.value(), "why": why, "notes": step.notes,
            })
        };
        json!({"items": self.steps.iter().map(step).collect::<Vec<_>>()})
    }
}

/// Plans the chosen ones of these records. `living` has the objects that now exist in the place of each, by UID.
#[must_use]
pub fn plan(
    records: &[Record],
    chosen: &ChosenRecords,
    living: &BTreeMap<String, CurrentObject>,
    owners: &Owners<'_>,
) -> Undo {
    let taken = records.iter().filter(|record| chosen.takes(record));
    let by_uid: BTreeMap<&str, &Record> = taken.map(|record| (record.uid(), record)).collect();
    let mut undo = Undo::default();
    let mut prospects: BTreeMap<&str, Prospect> = BTreeMap::new();
    for record in in_order(&by_uid) {
        // In an ownership cycle, one reference is lost.
        let prospect = |uid: &str| match (prospects.get(uid), by_uid.contains_key(uid)) {
            (Some(known), _) => *known,
            (None, true) => Prospect::Known(Presence::Absent),
            (None, false) => Prospect::Known((owners.presence)(uid)),
        };
        let found = living.get(record.uid());
        let action = Decision {
            record,
            chosen,
            by_uid: &by_uid,
            found,
            prospect: &prospect,
            revisions: owners.revisions,
        }
        .action();
        let mut notes: Vec<String> =
            chosen.earlier.get(record.uid()).into_iter().flatten().map(earlier_note).collect();
        let (object, status) = prepared(record, &mut notes);
        let mut step = Step { place: record.place(), action, notes, object, status, rank: rank(record) };
        if matches!(step.action, Action::Create | Action::Complete) {
            drop_absent_owners(&mut step, &|uid| prospect(uid) == Prospect::Known(Presence::Lives));
        }
        let next = match (&step.action, found) {
            (Action::Create | Action::Complete, _) => Prospect::Known(Presence::Lives),
            // The object was never gone.
            (Action::Exists, Some(found)) if found.uid == record.uid() => Prospect::Known(Presence::Lives),
            (Action::Exists, _) => Prospect::Namesake,
            (Action::Recreated(_), _) => Prospect::Recreated,
            (_, Some(found)) if found.is_terminating => Prospect::Known(Presence::Terminating),
            (Action::Withheld | Action::Impossible(_), _) => Prospect::Known(Presence::Absent),
        };
        if let (Prospect::Known(Presence::Lives), Some(found)) = (next, found) {
            undo.known.insert(record.uid().to_owned(), found.uid.clone());
        }
        prospects.insert(record.uid(), next);
        undo.steps.push(step);
    }
    undo
}

fn earlier_note(Earlier { at, uid }: &Earlier) -> String {
    format!("an earlier object of this name, deleted {at}, is left out: --uid {uid}")
}

/// Facts for the decision about one record.
struct Decision<'a> {
    record: &'a Record,
    chosen: &'a ChosenRecords,
    by_uid: &'a BTreeMap<&'a str, &'a Record>,
    found: Option<&'a CurrentObject>,
    prospect: &'a dyn Fn(&str) -> Prospect,
    revisions: &'a BTreeMap<String, String>,
}

impl Decision<'_> {
    fn action(&self) -> Action {
        match self.found {
            Some(found) if found.is_terminating => {
                return Action::Impossible(
                    "an object of its name is being deleted: repeat when that is gone",
                );
            }
            Some(found) if found.restored_from == self.record.uid() => return Action::Complete,
            Some(_) => return Action::Exists,
            None => {}
        }
        let impossible_because = impossible(self.record);
        if let Some(owner) = self.recreator(impossible_because.is_some()) {
            return Action::Recreated(owner);
        }
        if let Some(why) = impossible_because.or_else(|| self.unowned()) {
            return Action::Impossible(why);
        }
        let is_named = self.chosen.named.contains(self.record.uid());
        if grants_rights(&self.record.object) && !is_named { Action::Withheld } else { Action::Create }
    }

    /// Returns the owner whose controller recreates the object.
    fn recreator(&self, is_impossible: bool) -> Option<String> {
        let record = self.record;
        let owner = record.owners().find(|owner| {
            let uid = owner["uid"].as_str().unwrap_or_default();
            let kind = owner["kind"].as_str().unwrap_or_default();
            let will_be = (self.prospect)(uid);
            owner["controller"] == true
                && is_of_kubernetes(owner)
                && recreates(kind, record)
                && (!is_impossible || replaces_finished_pods(kind))
                && (matches!(will_be, Prospect::Recreated | Prospect::Namesake)
                    || will_be == Prospect::Known(Presence::Lives))
                && !self.is_history(uid)
        });
        let title = |owner: &Value| {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            format!("{}/{}", text("kind"), text("name"))
        };
        owner.map(title).or_else(|| self.maker())
    }

    /// Reports whether the object is part of a rollback history, which no controller recreates. For an owner that was never gone,
    /// only its current revision shows which one is recreated.
    fn is_history(&self, owner: &str) -> bool {
        const REVISION: &str = "deployment.kubernetes.io/revision";
        let revision = |record: &Record| record.object["metadata"]["annotations"][REVISION].clone();
        let present = self.revisions.get(owner).map(String::as_str);
        match (self.record.text("/kind"), self.by_uid.get(owner)) {
            ("ReplicaSet", None) => present.is_none_or(|present| revision(self.record) != present),
            ("ReplicaSet", Some(owner)) => {
                let (own, current) = (revision(self.record), revision(owner));
                !own.is_null() && !current.is_null() && own != current
            }
            ("ControllerRevision", None) => present != Some(self.record.text("/metadata/name")),
            // The newest one matches the template, so its controller recreates it.
            ("ControllerRevision", Some(_)) => {
                let number = |record: &Record| record.object["revision"].as_i64();
                let is_of_owner = |other: &Record| other.owners().any(|other| other["uid"] == owner);
                let all = self.by_uid.values().filter(|other| other.text("/kind") == "ControllerRevision");
                number(self.record)
                    < all.filter(|other| is_of_owner(other)).filter_map(|other| number(other)).max()
            }
            _ => false,
        }
    }

    /// Returns the controller that creates an object without owners: controllers of namespaces, and of Services with a selector.
    fn maker(&self) -> Option<String> {
        let record = self.record;
        let (namespace, name) = (record.text("/metadata/namespace"), record.text("/metadata/name"));
        match (record.text("/apiVersion"), record.text("/kind"), name) {
            ("v1", "ServiceAccount", "default") | ("v1", "ConfigMap", "kube-root-ca.crt") => {
                Some(format!("Namespace/{namespace}"))
            }
            ("v1", "Endpoints", _) => {
                let is_service = |other: &&Record| {
                    other.resource == "services"
                        && other.text("/metadata/name") == name
                        && other.text("/metadata/namespace") == namespace
                        && other.object["spec"]["selector"]
                            .as_object()
                            .is_some_and(|labels| !labels.is_empty())
                };
                self.by_uid.values().any(is_service).then(|| format!("Service/{name}"))
            }
            _ => None,
        }
    }

    /// Explains why the object would be collected immediately, if it has owners and none of them lives.
    fn unowned(&self) -> Option<&'static str> {
        let prospects: Vec<Prospect> = self
            .record
            .owners()
            .map(|owner| (self.prospect)(owner["uid"].as_str().unwrap_or_default()))
            .collect();
        let has = |presence: Presence| prospects.contains(&Prospect::Known(presence));
        match () {
            () if has(Presence::Lives) => None,
            () if has(Presence::Terminating) => Some("its owner is being deleted, and would take it along"),
            () if has(Presence::Unknown) => {
                Some("its owner could not be read: it may be gone, and its dependents with it")
            }
            () => None,
        }
    }
}

/// Reports whether a controller starts another pod in place of a finished one.
fn replaces_finished_pods(owner: &str) -> bool {
    matches!(owner, "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet")
}

/// Reports whether a reference is to a built-in kind: other APIs have kinds of the same names.
fn is_of_kubernetes(owner: &Value) -> bool {
    let version = owner["apiVersion"].as_str().unwrap_or_default();
    matches!(version.split_once('/').map_or("", |(group, _)| group), "" | "apps" | "batch")
}

/// Reports whether the controllers of Kubernetes recreate an object for an owner of this kind.
fn recreates(owner: &str, record: &Record) -> bool {
    const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
    match (owner, record.text("/kind")) {
        ("Deployment", "ReplicaSet")
        | ("ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" | "Job", "Pod")
        | ("StatefulSet" | "DaemonSet", "ControllerRevision")
        | ("Service", "Endpoints")
        | ("Pod", "PersistentVolumeClaim")
        | ("Node", "Lease" | "CSINode") => true,
        // If the Service has no selector, somebody else creates the slices.
        ("Service" | "Endpoints", "EndpointSlice") => {
            let manager = record.object["metadata"]["labels"][MANAGED_BY].as_str();
            matches!(
                manager,
                Some("endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io")
            )
        }
        _ => false,
    }
}

/// Explains why an object cannot be restored.
fn impossible(record: &Record) -> Option<&'static str> {
    let is_finished = || {
        let conditions = record.object["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|condition| condition["status"] == "True")
            .any(|condition| matches!(condition["type"].as_str(), Some("Complete" | "Failed")))
    };
    let group = record.text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    match (group, record.text("/kind")) {
        ("", "Node") => Some("a node comes back when its kubelet registers it"),
        ("" | "events.k8s.io", "Event") => Some("events are not restored"),
        ("coordination.k8s.io", "Lease") => Some("leases are not restored"),
        ("batch", "Job") if is_finished() => Some("a finished Job would run again"),
        ("", "Pod")
            if matches!(record.text("/status/phase"), "Succeeded" | "Failed") && !was_ended(record) =>
        {
            Some("a finished pod would run again")
        }
        ("", "Secret") if record.text("/type") == "kubernetes.io/service-account-token" => {
            Some("a new token has to be made: the one of the past is no longer valid")
        }
        ("", "Secret")
            if record.object.get("data").is_none()
                && record.object["metadata"]["annotations"][REDACTED] == "true" =>
        {
            Some("its contents were not recorded")
        }
        ("", "PersistentVolume") if record.text("/spec/persistentVolumeReclaimPolicy") == "Delete" => {
            Some("its storage was deleted with it")
        }
        _ => None,
    }
}

/// Reports whether the deletion ended a pod: the last state of a pod that was running is finished as well.
fn was_ended(record: &Record) -> bool {
    let grace = record.object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let Some(deleted) = parse_time(record.text("/metadata/deletionTimestamp")) else { return false };
    // Containers record times in whole seconds.
    let requested = deleted.after(-grace.max(0).saturating_add(1).saturating_mul(1_000));
    let statuses = record.object["status"]["containerStatuses"].as_array().into_iter().flatten();
    let ends = statuses.filter_map(|status| status["state"]["terminated"]["finishedAt"].as_str());
    let last = ends.filter_map(parse_time).max();
    last.is_some_and(|last| last >= requested)
}

/// Annotation of a record whose contents were left out.
pub const REDACTED: &str = "kubegc.io/not-recorded";

/// Orders records: definitions and namespaces first, then owners before dependents, each after the objects that it needs.
fn in_order<'a>(by_uid: &BTreeMap<&str, &'a Record>) -> Vec<&'a Record> {
    let mut waiting: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut dependents: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (uid, record) in by_uid {
        let owners: BTreeSet<&str> = record
            .owners()
            .filter_map(|owner| owner["uid"].as_str())
            .filter(|owner| by_uid.contains_key(owner))
            .collect();
        for owner in &owners {
            dependents.entry(owner).or_default().push(uid);
        }
        waiting.insert(uid, owners);
    }
    let key = |uid: &str| by_uid.get(uid).map(|record| (rank(record), record.place()));
    let mut ready: BTreeSet<(Option<(u8, Place)>, &str)> =
        waiting.iter().filter(|(_, owners)| owners.is_empty()).map(|(uid, _)| (key(uid), *uid)).collect();
    let mut order = Vec::new();
    while let Some((_, uid)) = ready.pop_first() {
        waiting.remove(uid);
        order.extend(by_uid.get(uid).copied());
        for dependent in dependents.get(uid).into_iter().flatten() {
            if let Some(owners) = waiting.get_mut(dependent) {
                owners.remove(uid);
                if owners.is_empty() {
                    ready.insert((key(dependent), dependent));
                }
            }
        }
    }
    // Members of an ownership cycle come in any order: their references are dropped or mapped like any others.
    order.extend(waiting.keys().filter_map(|uid| by_uid.get(uid).copied()));
    order
}

fn rank(record: &Record) -> u8 {
    match record.text("/kind") {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        "PriorityClass" | "StorageClass" | "RuntimeClass" | "PersistentVolume" => 2,
        "ServiceAccount" | "Role" | "ClusterRole" => 3,
        "ConfigMap" | "Secret" | "PersistentVolumeClaim" | "Service" => 4,
        _ => 5,
    }
}

/// Prepares the object to send: without the fields that the server sets, and without finalizers, which living
/// controllers add again.
fn prepared(record: &Record, notes: &mut Vec<String>) -> (Value, Option<Value>) {
    let mut object = record.object.clone();
    let uid = record.uid().to_owned();
    let finalizers: Vec<String> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|finalizer| finalizer.as_str().map(str::to_owned))
        .filter(|finalizer| !matches!(finalizer.as_str(), "foregroundDeletion" | "orphan"))
        .collect();
    if !finalizers.is_empty() {
        notes.push(format!(
            "without its finalizers, which their controllers add again: {}",
            finalizers.join(", ")
        ));
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
            "finalizers",
        ] {
            metadata.remove(field);
        }
    }
    object["metadata"]["annotations"][RESTORED_FROM] = uid.into();
    let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
    let status = status.filter(|status| status.as_object().is_some_and(|fields| !fields.is_empty()));
    let status = of_kind(&mut object, status, notes);
    (object, status)
}

/// Adapts objects of some kinds.
fn of_kind(object: &mut Value, status: Option<Value>, notes: &mut Vec<String>) -> Option<Value> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let mut without = |object: &mut Value, fields: &[&str], note: Option<&str>| {
        let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) else { return };
        let had = fields.iter().filter(|field| spec.remove(**field).is_some()).count() > 0;
        notes.extend(note.filter(|_| had).map(str::to_owned));
    };
    match kind.as_str() {
        // The pod is scheduled and started again.
        "Pod" => {
            without(object, &["nodeName"], Some("it is scheduled again"));
            None
        }
        "Namespace" => {
            without(object, &["finalizers"], None);
            None
        }
        // The controller chooses a new selector, and labels the template with the new UID.
        "Job" if object["spec"]["manualSelector"] != true => {
            without(object, &["selector"], None);
            for place in ["/spec/template/metadata/labels", "/metadata/labels"] {
                if let Some(labels) = object.pointer_mut(place).and_then(Value::as_object_mut) {
                    for label in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
                        labels.remove(label);
                    }
                }
            }
            notes.push("it runs from the beginning".to_owned());
            None
        }
        "PersistentVolumeClaim" => {
            if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                annotations.retain(|name, _| !name.starts_with("pv.kubernetes.io/bind"));
            }
            let volume = object["spec"]["volumeName"].as_str().unwrap_or_default().to_owned();
            if !volume.is_empty() {
                notes.push(format!("it is bound to volume {volume} again if that still exists"));
            }
            None
        }
        // The controllers of these kinds write what they observe.
        "Deployment"
        | "ReplicaSet"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicationController"
        | "Service"
        | "CronJob"
        | "Job"
        | "PersistentVolume"
        | "CustomResourceDefinition"
        | "APIService" => None,
        _ => status,
    }
}

fn drop_absent_owners(step: &mut Step, is_there: &dyn Fn(&str) -> bool) {
    let owners = step.object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    let Some(owners) = owners else { return };
    let mut dropped = Vec::new();
    owners.retain(|owner| {
        let stays = owner["uid"].as_str().is_some_and(is_there);
        if !stays {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            dropped.push(format!("{}/{}", text("kind"), text("name")));
        }
        stays
    });
    if !dropped.is_empty() {
        step.notes.push(format!("without references to owners that are gone: {}", dropped.join(", ")));
    }
}

/// Returns an object with the current UIDs of its owners. `None` if one of them has none yet.
#[must_use]
pub fn with_owners(
    object: &Value,
    known: &BTreeMap<String, String>,
    lives: &dyn Fn(&str) -> bool,
) -> Option<Value> {
    let mut object = object.clone();
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        let old = owner["uid"].as_str().unwrap_or_default();
        match known.get(old) {
            Some(new) => owner["uid"] = new.as_str().into(),
            None if lives(old) => {}
            None => return None,
        }
    }
    Some(object)
}
