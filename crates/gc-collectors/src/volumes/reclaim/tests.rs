#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::result_large_err, reason = "an outcome is handed on once")]

use super::*;
use crate::engine::Engine;
use gc_types::{DeletionState, Effect, EffectId, ObservedObject};
use serde_json::{Value, json};

mod laws;
mod proofs;
mod scenarios;

const DRIVER: &str = "disk.example.com";
/// A driver that has replaced an in-tree plugin.
const BLOCK_DRIVER: &str = "ebs.csi.aws.com";

fn at(milliseconds: i64) -> Timestamp {
    Timestamp(1_800_000_000_000 + milliseconds)
}

/// A cluster of volumes, claims and attachments as JSON, and the storage behind it.
struct World {
    engine: Engine<VolumeReclaim>,
    objects: BTreeMap<ObjectKey, Value>,
    version: u64,
    now: i64,
    /// Answer of the storage to all calls.
    answer: Result<(), StorageFailure>,
    /// Every effect, as text.
    log: Vec<String>,
}

fn deleters() -> Deleters {
    let drivers = [DRIVER, BLOCK_DRIVER, "cinder.csi.openstack.org"].map(Into::into).into();
    Deleters { drivers, host_path: true, ..Deleters::default() }
}

fn kind_of(key: &ObjectKey) -> Kind {
    Kind::ALL.iter().copied().find(|kind| kind.resource() == key.resource).unwrap()
}

fn volume_key(name: &str) -> ObjectKey {
    Kind::Volume.key(&"".into(), &name.into())
}

fn claim_key(name: &str) -> ObjectKey {
    Kind::Claim.key(&"shop".into(), &name.into())
}

/// Returns a volume that was bound to the claim `data`, which does not exist.
fn volume(name: &str, more: &Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name, "uid": format!("u-{name}"), "finalizers": ["kubernetes.io/pv-protection"]},
        "spec": {
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
            "claimRef": {"namespace": "shop", "name": "data", "uid": "u-data"},
        },
        "status": {"phase": "Bound"},
    });
    merge(&mut object, more);
    object
}

/// Applies a JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return };
    for (name, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(name)),
            Value::Object(_) if target[name].is_object() => merge(&mut target[name], value),
            other => target[name] = other.clone(),
        }
    }
}

fn host(path: &str) -> Value {
    json!({"spec": {"hostPath": {"path": path}}})
}

fn csi(handle: &str) -> Value {
    json!({
        "metadata": {
            "finalizers": ["kubernetes.io/pv-protection", EXTERNAL_FINALIZER],
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
        },
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": handle}},
    })
}

fn claim(name: &str, uid: &str, volume: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "uid": uid}, "spec": {"volumeName": volume},
        "status": {"phase": "Bound"}})
}

fn attachment(name: &str, volume: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name},
        "spec": {"nodeName": node, "attacher": DRIVER, "source": {"persistentVolumeName": volume}}})
}

impl World {
    fn new(deleters: Deleters) -> Self {
        let mut engine = Engine::new(VolumeReclaim::new(deleters));
        engine.tick(at(0));
        for kind in [Kind::Volume, Kind::Claim, Kind::Attachment] {
            engine.observe(Observation::ListStarted(kind));
            engine.observe(Observation::Synced(kind));
        }
        Self { engine, objects: BTreeMap::new(), version: 10, now: 0, answer: Ok(()), log: Vec::new() }
    }

    fn put(&mut self, kind: Kind, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let facts = Facts::read(kind, object.to_string().as_bytes()).unwrap();
        self.objects.insert(facts.key(), object);
        self.engine.observe(Observation::Observed(facts));
    }

    fn put_volume(&mut self, object: Value) {
        self.put(Kind::Volume, object);
    }

    fn change(&mut self, key: &ObjectKey, patch: &Value) {
        let mut object = self.objects[key].clone();
        merge(&mut object, patch);
        self.put(kind_of(key), object);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if self.objects.remove(key).is_some() {
            self.version += 1;
            self.engine.observe(Observation::Removed(key.clone()));
        }
    }

    fn get(&self, name: &str) -> &Value {
        self.objects.get(&volume_key(name)).unwrap_or(&Value::Null)
    }

    fn observed(&self, key: &ObjectKey) -> Option<ObservedObject> {
        let meta = &self.objects.get(key)?["metadata"];
        Some(ObservedObject {
            key: key.clone(),
            uid: Uid::new(meta["uid"].as_str().unwrap()),
            resource_version: ResourceVersion::parse(meta["resourceVersion"].as_str().unwrap()),
            owners: std::iter::empty().collect(),
            deletion: DeletionState::default(),
            recreator: None,
        })
    }

    /// Returns a server's response to a conditional request.
    fn guard(&self, key: &ObjectKey, uid: &Uid, version: Option<ResourceVersion>) -> Result<(), Outcome> {
        match self.observed(key) {
            Some(found) if found.uid == *uid => match version {
                Some(version) if version != found.resource_version => Err(Outcome::Conflict),
                _ => Ok(()),
            },
            _ => Err(Outcome::Absent),
        }
    }

    /// Emulates finalizers: a terminating object without any is removed.
    fn settle(&mut self, key: &ObjectKey) {
        let meta = &self.objects[key]["metadata"];
        let held = meta["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if !meta["deletionTimestamp"].is_null() && !held {
            self.remove(key);
        }
    }

    fn perform(&mut self, effect: &Effect) -> Outcome {
        match &effect.request {
            Request::Read { key } => self.observed(key).map_or(Outcome::Absent, Outcome::Found),
            Request::Barrier { .. } => {
                let attachments: Vec<Facts> = self
                    .objects
                    .iter()
                    .filter(|(key, _)| key.resource == Kind::Attachment.resource())
                    .map(|(_, object)| Facts::read(Kind::Attachment, object.to_string().as_bytes()).unwrap())
                    .collect();
                for facts in attachments {
                    self.engine.observe(Observation::Found(facts));
                }
                Outcome::Applied(None)
            }
            Request::Delete { key, uid, resource_version, .. } => {
                if let Err(outcome) = self.guard(key, uid, *resource_version) {
                    return outcome;
                }
                let key = key.clone();
                self.change(&key, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
                self.settle(&key);
                Outcome::Applied(None)
            }
            Request::Guarded { key, uid, resource_version, change } => {
                if let Err(outcome) = self.guard(key, uid, Some(*resource_version)) {
                    return outcome;
                }
                let patch = match change {
                    Change::Finalizers(list) => {
                        json!({"metadata": {"finalizers": list.iter().map(|name| &**name).collect::<Vec<_>>()}})
                    }
                    Change::Status(status) => {
                        json!({"status": serde_json::from_str::<Value>(status).unwrap()})
                    }
                    Change::Merge(patch) => serde_json::from_str(patch).unwrap(),
                    Change::MergeStatus(_) | Change::ForceDelete => panic!("never of a volume"),
                };
                self.change(key, &patch);
                self.settle(key);
                Outcome::Applied(None)
            }
            Request::Outside { key, uid, resource_version, .. } => {
                if let Err(outcome) = self.guard(key, uid, Some(*resource_version)) {
                    return outcome;
                }
                self.may_be_destroyed(key);
                let result = self.answer.clone();
                let outcome = match &result {
                    Ok(()) => Outcome::Applied(None),
                    Err(failure) => {
                        Outcome::Failed { message: failure.message.clone(), retry_after_milliseconds: None }
                    }
                };
                let (volume, uid) = (key.clone(), uid.clone());
                self.engine.observe(Observation::StorageDeletion { volume, uid, remark: None, result });
                outcome
            }
            Request::RecordEvent(_) => Outcome::Applied(None),
            other => panic!("{other:?}"),
        }
    }

    /// Asserts that storage that is retained, bound, attached or shared is never destroyed.
    fn may_be_destroyed(&self, key: &ObjectKey) {
        let object = &self.objects[key];
        let name = object["metadata"]["name"].clone();
        assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Delete", "{object}");
        let attached = |other: &Value| other["spec"]["source"]["persistentVolumeName"] == name;
        assert!(!self.objects.values().any(attached), "{object} is attached");
        let reference = &object["spec"]["claimRef"];
        let holds = |other: &Value| {
            other["metadata"]["uid"] == reference["uid"]
                && !reference["uid"].is_null()
                && (other["spec"]["volumeName"] == name || other["spec"]["volumeName"] == "")
        };
        assert!(!self.objects.values().any(holds), "{object} is claimed");
        let handle = &object["spec"]["csi"]["volumeHandle"];
        let shares = |other: &Value| {
            other["metadata"]["name"] != name && other["spec"]["csi"]["volumeHandle"] == *handle
        };
        assert!(handle.is_null() || !self.objects.values().any(shares), "{object} is shared");
    }

    /// Performs requests, up to the call that deletes storage.
    fn run_up_to_the_call(&mut self) -> Effect {
        loop {
            let effect = self.engine.poll_effect().unwrap();
            if matches!(effect.request, Request::Outside { .. }) {
                return effect;
            }
            let outcome = self.perform(&effect);
            self.engine.finish(effect.id, &outcome);
        }
    }

    /// Performs all current requests.
    fn run(&mut self) {
        for _ in 0..1000 {
            let Some(effect) = self.engine.poll_effect() else { return };
            self.log.push(words(&effect));
            let outcome = self.perform(&effect);
            self.engine.finish(effect.id, &outcome);
        }
        panic!("it never rests: {:?}", self.log.iter().rev().take(8).collect::<Vec<_>>());
    }

    fn pass(&mut self, milliseconds: i64) {
        self.now += milliseconds;
        self.engine.tick(at(self.now));
        self.run();
    }

    fn took(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn calls(&self) -> usize {
        self.log.iter().filter(|line| line.starts_with("destroy")).count()
    }
}

fn words(effect: &Effect) -> String {
    match &effect.request {
        Request::Read { key } => format!("read {}", key.name),
        Request::Barrier { .. } => "list attachments".into(),
        Request::Delete { key, .. } => format!("delete {}", key.name),
        Request::Guarded { key, change: Change::Finalizers(list), .. } => {
            format!("finalizers {} {}", key.name, list.join(","))
        }
        Request::Guarded { key, change: Change::Status(status), .. } => {
            let status: Value = serde_json::from_str(status).unwrap();
            let message = status["message"].as_str().unwrap_or_default();
            format!("phase {} {} {message}", key.name, status["phase"].as_str().unwrap())
                .trim_end()
                .to_owned()
        }
        Request::Guarded { key, change: Change::Merge(patch), .. } => format!("patch {} {patch}", key.name),
        Request::Outside { key, call: OutsideCall::DeleteStorage(storage), .. } => match &**storage {
            Storage::Csi { handle, .. } => format!("destroy {} csi {handle}", key.name),
            Storage::HostPath { path } => format!("destroy {} {path}", key.name),
        },
        Request::RecordEvent(note) => format!("{} {} {}", note.severity, note.reason, note.message),
        other => format!("{other:?}"),
    }
}

fn provisioned(by: &str) -> Value {
    json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": by}}})
}

fn both(one: &Value, other: &Value) -> Value {
    let mut merged = one.clone();
    merge(&mut merged, other);
    merged
}
