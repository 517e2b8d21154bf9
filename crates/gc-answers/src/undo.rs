//! What of recorded deletions can be undone, and in which order: owners before dependents, only the topmost of what
//! controllers recreate, nothing over an object that is there. Pure; the caller reads records and living objects, and
//! performs the steps one by one, each of which can be repeated.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Timestamp;
use serde_json::{Value, json};

use crate::stuck::Place;

/// The annotation of a restored object: the UID that it had.
pub const RESTORED_FROM: &str = "kubegc.io/restored-from";

/// The last state of a deleted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When its deletion was seen.
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

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Where it was.
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

/// Whether a choice is about a record.
pub type Selected<'a> = &'a dyn Fn(&Record) -> bool;

/// Which deletions are undone.
pub enum Choice<'a> {
    /// The last deletion of each selected object, with everything that depended on it.
    Last(Selected<'a>),
    /// The object with this UID, with everything that depended on it.
    Cascade(String),
    /// Every selected object that was deleted since then, with what depended on it and was deleted since then.
    Since(Timestamp, Selected<'a>),
}

/// What is found where a deleted object was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its UID.
    pub uid: String,
    /// The UID that it had before it was restored; empty if it was not.
    pub restored_from: String,
    /// It is being deleted.
    pub is_terminating: bool,
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is created.
    Create,
    /// An earlier run has created it; its status may be missing.
    Complete,
    /// Another object has its name. It is never overwritten.
    Exists,
    /// A controller recreates it from this owner.
    Recreated(String),
    /// It cannot come back: why.
    Impossible(&'static str),
}

impl Action {
    /// The code.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Complete => "Complete",
            Self::Exists => "Exists",
            Self::Recreated(_) => "Recreated",
            Self::Impossible(_) => "Impossible",
        }
    }
}

/// One step, or what is not done.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object, with the UID that it had.
    pub place: Place,
    /// What becomes of it.
    pub action: Action,
    /// What is different afterwards, for people.
    pub notes: Vec<String>,
    /// The object to create, whose references still have the old UIDs.
    pub object: Value,
    /// Its status, if it has one.
    pub status: Option<Value>,
    /// What comes earlier has a lower one; steps of equal rank can be taken together, owners aside.
    pub rank: u8,
}

/// The plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undo {
    /// Owners before dependents.
    pub steps: Vec<Step>,
    /// UIDs of the past whose object lives under another one.
    pub known: BTreeMap<String, String>,
}

impl Undo {
    /// As data.
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

/// The records that a choice is about: the last one of each object, by UID.
#[must_use]
pub fn chosen<'a>(records: &'a [Record], choice: &Choice<'_>) -> Vec<&'a Record> {
    let mut last: BTreeMap<&str, &Record> = BTreeMap::new();
    for record in records.iter().filter(|record| !record.uid().is_empty()) {
        let known = last.entry(record.uid()).or_insert(record);
        if record.at >= known.at {
            *known = record;
        }
    }
    let roots: Vec<&Record> = match choice {
        Choice::Since(since, is_selected) => {
            last.retain(|_, record| record.at >= *since);
            last.values().copied().filter(|record| is_selected(record)).collect()
        }
        Choice::Cascade(uid) => last.get(uid.as_str()).copied().into_iter().collect(),
        Choice::Last(is_selected) => {
            let mut of_name: BTreeMap<(String, String, String), &Record> = BTreeMap::new();
            for record in last.values().filter(|record| is_selected(record)) {
                let place = record.place();
                let known = of_name.entry((place.resource, place.namespace, place.name)).or_insert(record);
                if record.at >= known.at {
                    *known = record;
                }
            }
            of_name.into_values().collect()
        }
    };
    let (mut dependents, mut contents): (BTreeMap<&str, Vec<&Record>>, BTreeMap<&str, Vec<&Record>>) =
        Default::default();
    for record in last.values() {
        for owner in record.owners() {
            dependents.entry(owner["uid"].as_str().unwrap_or_default()).or_default().push(record);
        }
        contents.entry(record.text("/metadata/namespace")).or_default().push(record);
    }
    let mut taken: BTreeMap<&str, &Record> = roots.iter().map(|root| (root.uid(), *root)).collect();
    // A namespace takes along what is in it.
    let namespaces = roots.iter().filter(|root| root.resource == "namespaces");
    let inside: Vec<&Record> =
        namespaces.filter_map(|root| contents.get(root.text("/metadata/name"))).flatten().copied().collect();
    let mut open = roots;
    for record in inside {
        if taken.insert(record.uid(), record).is_none() {
            open.push(record);
        }
    }
    while let Some(record) = open.pop() {
        for dependent in dependents.get(record.uid()).into_iter().flatten() {
            if taken.insert(dependent.uid(), dependent).is_none() {
                open.push(dependent);
            }
        }
    }
    taken.into_values().collect()
}

/// The plan for these records. `living` is what is found where each of them was, by its UID; `lives` says whether the object of
/// a UID is there.
#[must_use]
pub fn plan(records: &[&Record], living: &BTreeMap<String, Living>, lives: &dyn Fn(&str) -> bool) -> Undo {
    let by_uid: BTreeMap<&str, &Record> = records.iter().map(|record| (record.uid(), *record)).collect();
    let mut known = BTreeMap::new();
    let mut steps: Vec<Step> = Vec::new();
    for record in in_order(&by_uid) {
        let action = action(record, &by_uid, living.get(record.uid()), lives);
        if let (Action::Exists | Action::Complete, Some(found)) = (&action, living.get(record.uid())) {
            known.insert(record.uid().to_owned(), found.uid.clone());
        }
        let mut notes = Vec::new();
        let (object, status) = prepared(record, &mut notes);
        steps.push(Step { place: record.place(), action, notes, object, status, rank: rank(record) });
    }
    // What is not there by then owns nothing; of a ring, one reference is lost.
    let mut there: BTreeSet<String> = BTreeSet::new();
    for step in &mut steps {
        if step.action == Action::Create {
            drop_absent_owners(step, &|uid| there.contains(uid) || lives(uid));
        }
        if matches!(step.action, Action::Create | Action::Complete | Action::Exists) {
            there.insert(step.place.uid.clone());
        }
    }
    Undo { steps, known }
}

fn action(
    record: &Record,
    by_uid: &BTreeMap<&str, &Record>,
    found: Option<&Living>,
    lives: &dyn Fn(&str) -> bool,
) -> Action {
    match found {
        Some(found) if found.restored_from == record.uid() && !found.is_terminating => {
            return Action::Complete;
        }
        Some(_) => return Action::Exists,
        None => {}
    }
    let impossible_because = impossible(record);
    let recreator = record.owners().find(|owner| {
        let uid = owner["uid"].as_str().unwrap_or_default();
        let kind = owner["kind"].as_str().unwrap_or_default();
        owner["controller"] == true
            && recreates(kind, record.text("/kind"))
            && (impossible_because.is_none() || replaces_finished_pods(kind))
            && (lives(uid) || by_uid.get(uid).is_some_and(|owner| impossible(owner).is_none()))
    });
    match (recreator, impossible_because) {
        (None, Some(why)) => Action::Impossible(why),
        (Some(owner), _) => Action::Recreated(format!(
            "{}/{}",
            owner["kind"].as_str().unwrap_or_default(),
            owner["name"].as_str().unwrap_or_default()
        )),
        (None, None) => Action::Create,
    }
}

/// Whether a controller has another pod run in place of one that has finished.
fn replaces_finished_pods(owner: &str) -> bool {
    matches!(owner, "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet")
}

/// Whether the controllers of Kubernetes create objects of a kind for an owner again.
fn recreates(owner: &str, kind: &str) -> bool {
    matches!(
        (owner, kind),
        ("Deployment", "ReplicaSet")
            | ("ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" | "Job", "Pod")
            | ("StatefulSet" | "DaemonSet", "ControllerRevision")
            | ("CronJob", "Job")
            | ("Service", "EndpointSlice" | "Endpoints")
            | ("Pod", "PersistentVolumeClaim")
            | ("Node", "Lease" | "CSINode")
    )
}

/// Why an object cannot come back.
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
        ("", "Pod") if matches!(record.text("/status/phase"), "Succeeded" | "Failed") => {
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

/// The annotation of a record whose contents were left out.
pub const REDACTED: &str = "kubegc.io/not-recorded";

/// Definitions and namespaces first, then owners before dependents, and what others need before those.
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
    // The members of a ring, in any order: their references are dropped or mapped like those of others.
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

/// What is sent: without what the server sets, and without finalizers, which controllers that live add again.
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

/// What has to be different in objects of some kinds.
fn of_kind(object: &mut Value, status: Option<Value>, notes: &mut Vec<String>) -> Option<Value> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let mut without = |object: &mut Value, fields: &[&str], note: Option<&str>| {
        let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) else { return };
        let had = fields.iter().filter(|field| spec.remove(**field).is_some()).count() > 0;
        notes.extend(note.filter(|_| had).map(str::to_owned));
    };
    match kind.as_str() {
        // It is scheduled and started again.
        "Pod" => {
            without(object, &["nodeName"], Some("it is scheduled again"));
            None
        }
        "Namespace" => {
            without(object, &["finalizers"], None);
            None
        }
        // The controller chooses the selector again, and labels the template by the new UID.
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
                notes.push(format!(
                    "it gets volume {volume} back only if that still exists: relink its claimRef, or remove \
                     spec.volumeName for a new one"
                ));
            }
            None
        }
        // Controllers of these write what they see.
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

/// An object with the present UIDs of its owners. `None` if one of them has none yet.
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

#[cfg(test)]
mod tests;
