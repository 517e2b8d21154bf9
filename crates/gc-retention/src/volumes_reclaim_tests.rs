#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::result_large_err, reason = "an outcome is handed on once")]

use super::*;
use crate::engine::Engine;
use gc_types::{DeletionState, Effect, EffectId, ObservedObject};
use proptest::prelude::*;
use serde_json::{Value, json};

const DRIVER: &str = "disk.example.com";

fn at(milliseconds: i64) -> Timestamp {
    Timestamp(1_800_000_000_000 + milliseconds)
}

/// A cluster of volumes, claims and attachments, as JSON, and the storage behind it.
struct World {
    engine: Engine<VolumeReclaim>,
    objects: BTreeMap<ObjectKey, Value>,
    version: u64,
    now: i64,
    /// What the storage answers.
    answer: Result<(), StorageFailure>,
    /// Every effect, in words.
    log: Vec<String>,
}

fn deleters() -> Deleters {
    Deleters { drivers: [DRIVER.into()].into(), host_path: true }
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

/// A volume that was bound to the claim `data`, of which there is no trace.
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

/// JSON merge patch.
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
        })
    }

    /// What a server answers to a guard.
    fn guard(&self, key: &ObjectKey, uid: &Uid, version: Option<ResourceVersion>) -> Result<(), Outcome> {
        match self.observed(key) {
            Some(found) if found.uid == *uid => match version {
                Some(version) if version != found.resource_version => Err(Outcome::Conflict),
                _ => Ok(()),
            },
            _ => Err(Outcome::Absent),
        }
    }

    /// Takes a finalizer's work into account: what is being deleted and has none is gone.
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
            Request::Note(_) => Outcome::Applied(None),
            other => panic!("{other:?}"),
        }
    }

    /// The law: what is retained, bound, attached or shared is never destroyed.
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

    /// Performs what is wanted now, until there is nothing.
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
        Request::Note(note) => format!("{} {} {}", note.severity, note.reason, note.message),
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

#[test]
fn the_scenarios_of_reclaim() {
    let released = json!({"status": {"phase": "Released"}});
    let policy = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    let path = host("/tmp/a");
    let destroyed = ["read data", "phase v Released", "list attachments", "destroy v /tmp/a", "delete v"];
    let unmatched =
        "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
    let gluster = "error getting deleter volume plugin for volume \"v\": no volume plugin matched name: \
                   kubernetes.io/glusterfs; remove its storage by hand, then the volume and its finalizers";
    let failed = |event: &str, message: &str| {
        vec![
            "read data".to_owned(),
            "phase v Released".to_owned(),
            format!("Warning {event} {message}"),
            format!("phase v Failed {message}"),
        ]
    };
    let only = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let marked = only(&["read data", "phase v Released"]);
    for (scenario, more, expected) in [
        (
            "PV-T01",
            both(
                &path,
                &json!({"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}}),
            ),
            only(&destroyed),
        ),
        ("PV-T02", path.clone(), only(&destroyed)),
        ("PV-T03", json!({"spec": {"nfs": {"server": "s"}}}), failed("VolumeFailedDelete", unmatched)),
        (
            "PV-T09",
            both(&provisioned("external.io/test"), &json!({"spec": {"csi": {"driver": "external.io/test"}}})),
            marked.clone(),
        ),
        (
            "PV-T10",
            json!({"spec": {"csi": {"driver": "other.example.com", "volumeHandle": "h"}}}),
            marked.clone(),
        ),
        (
            "PV-T11",
            json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/gce-pd",
            "pv.kubernetes.io/migrated-to": "pd.csi.storage.gke.io"}}}),
            marked.clone(),
        ),
        (
            "PV-T16",
            policy("Scrap"),
            failed("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"),
        ),
        ("PV-T17", both(&path, &policy("Retain")), marked.clone()),
        ("PV-T17, again", both(&both(&path, &policy("Retain")), &released), only(&[])),
        (
            "PV-T19",
            both(&path, &json!({"status": {"phase": "Failed", "message": "old"}})),
            only(&["read data", "list attachments", "destroy v /tmp/a", "delete v"]),
        ),
        (
            // Nothing is recycled, and it is said so, whatever uses the claim: PV-T33, PV-T34 and PV-T36 to PV-T38 as well.
            "PV-T35",
            both(&path, &policy("Recycle")),
            failed("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        ),
        (
            "PV-T44",
            both(
                &provisioned("kubernetes.io/glusterfs"),
                &json!({"metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [IN_TREE_FINALIZER]}}),
            ),
            failed("VolumeFailedDelete", gluster),
        ),
        (
            "PV-T14",
            both(
                &both(&path, &provisioned(HOST_PATH_PLUGIN)),
                &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
                    "finalizers": ["kubernetes.io/pv-protection", IN_TREE_FINALIZER]}}),
            ),
            only(&[
                "read data",
                "phase v Released",
                "list attachments",
                "destroy v /tmp/a",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        (
            "PV-T39",
            json!({"spec": {"persistentVolumeReclaimPolicy": "Recycle", "claimRef": null},
                "status": {"phase": "Available"}}),
            only(&[]),
        ),
        (
            // Upstream leaves it (BEAT-CSI-4).
            "CSI-T07",
            both(&csi("h"), &json!({"status": {"phase": "Failed"}})),
            only(&[
                "read data",
                "list attachments",
                "destroy v csi h",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        ("available", json!({"spec": {"claimRef": null}, "status": {"phase": "Available"}}), only(&[])),
        (
            "reserved",
            json!({"spec": {"claimRef": {"uid": null}}, "status": {"phase": "Available"}}),
            only(&[]),
        ),
        (
            "CSI-T01",
            csi("h"),
            only(&[
                "read data",
                "phase v Released",
                "list attachments",
                "destroy v csi h",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        (
            "CSI-T03",
            both(&csi("h"), &policy("Retain")),
            only(&["finalizers v kubernetes.io/pv-protection", "read data", "phase v Released"]),
        ),
        (
            "CSI-T04",
            both(
                &both(&csi("h"), &released),
                &json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
            only(&["read data"]),
        ),
        (
            "CSI-T06",
            both(
                &both(&csi("h"), &released),
                &both(&policy("Retain"), &json!({"metadata": {"finalizers": []}})),
            ),
            only(&[]),
        ),
        ("CSI-T08", both(&csi("h"), &both(&provisioned("other.example.com"), &released)), only(&[])),
        (
            "CSI-T09",
            both(&csi("h"), &both(&released, &json!({"metadata": {"annotations": null}}))),
            only(&[
                "read data",
                "list attachments",
                "destroy v csi h",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        (
            "BEAT-CSI-4",
            json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
                    "finalizers": ["kubernetes.io/pv-protection", EXTERNAL_FINALIZER]},
                "spec": {"claimRef": null, "csi": {"driver": DRIVER, "volumeHandle": "h"}},
                "status": {"phase": "Available"},
            }),
            only(&["list attachments", "destroy v csi h", "finalizers v kubernetes.io/pv-protection"]),
        ),
    ] {
        let mut world = World::new(deleters());
        world.put_volume(volume("v", &more));
        world.run();
        assert_eq!(world.took(), expected, "{scenario}");
        // What is at rest stays at rest.
        world.pass(3_600_000);
        assert_eq!(world.took(), Vec::<String>::new(), "{scenario}");
    }
}

#[test]
fn the_scenarios_of_finalizers() {
    let foreign = "example.com/f";
    let of = |by: Option<&str>, policy: &str, finalizers: &[&str]| {
        let mut more = json!({"metadata": {"finalizers": finalizers},
            "spec": {"persistentVolumeReclaimPolicy": policy, "hostPath": {"path": "/tmp/a"}}});
        if let Some(by) = by {
            more["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = by.into();
        }
        volume("v", &more)
    };
    let path = Some(HOST_PATH_PLUGIN);
    for (scenario, object, expected) in [
        ("PV-T23", of(Some("other.example.com"), "Delete", &[EXTERNAL_FINALIZER]), &[EXTERNAL_FINALIZER][..]),
        ("PV-T24", of(Some("other.example.com"), "Delete", &[]), &[]),
        ("PV-T25", of(path, "Delete", &[foreign]), &[foreign, IN_TREE_FINALIZER]),
        ("PV-T26", of(path, "Delete", &[]), &[IN_TREE_FINALIZER]),
        ("PV-T27", of(path, "Delete", &[EXTERNAL_FINALIZER]), &[IN_TREE_FINALIZER]),
        ("PV-T27", of(path, "Delete", &[EXTERNAL_FINALIZER, foreign]), &[foreign, IN_TREE_FINALIZER]),
        (
            "PV-T28",
            of(Some("kubernetes.io/gce-pd"), "Delete", &[EXTERNAL_FINALIZER, IN_TREE_FINALIZER]),
            &[EXTERNAL_FINALIZER],
        ),
        ("PV-T29", of(None, "Delete", &[EXTERNAL_FINALIZER]), &[EXTERNAL_FINALIZER]),
        ("PV-T30", of(None, "Delete", &[]), &[]),
        ("PV-T31", of(path, "Retain", &[]), &[]),
        ("PV-T31", of(path, "Recycle", &[]), &[]),
        ("PV-T32", of(path, "Retain", &[IN_TREE_FINALIZER]), &[]),
        // BEAT-PV-6: nobody could ever take it off.
        ("BEAT-PV-6", of(Some("kubernetes.io/rbd"), "Delete", &[]), &[]),
        // CSI-T02, and BEAT-PV-8
        ("CSI-T02", of(Some(DRIVER), "Delete", &[foreign]), &[foreign, EXTERNAL_FINALIZER]),
    ] {
        let expected: Vec<Arc<str>> = expected.iter().map(|name| Arc::from(*name)).collect();
        let read = |object: &Value| serde_json::from_value::<Volume>(object.clone()).unwrap();
        assert_eq!(deleters().finalizers(&read(&object)), expected, "{scenario}");
        let mut terminating = object;
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let facts = read(&terminating);
        let added = deleters().finalizers(&facts).into_iter().any(|name| !facts.finalizers.contains(&name));
        assert!(!added, "{scenario}: added while it is being deleted");
    }
}

#[test]
fn annotations_of_migrated_plugins_are_kept_up() {
    let of = |by: &str, to: Option<&str>| {
        let more = json!({"metadata": {"annotations": {
            "pv.kubernetes.io/provisioned-by": by, "pv.kubernetes.io/migrated-to": to}}});
        serde_json::from_value::<Volume>(volume("v", &more)).unwrap()
    };
    for (object, expected) in [
        (of("kubernetes.io/aws-ebs", None), Some(json!("ebs.csi.aws.com"))),
        (of("kubernetes.io/aws-ebs", Some("ebs.csi.aws.com")), None),
        (of("kubernetes.io/host-path", Some("x")), Some(Value::Null)),
        (of("disk.example.com", None), None),
    ] {
        assert_eq!(Deleters::migration(&object), expected, "{object:?}");
    }
}

/// PV-T07, PV-T08, PV-T12, PV-T13, PV-T42
#[test]
fn claims_that_live_hold_their_volume() {
    for (scenario, claims, more, expected) in [
        ("PV-T07", vec![claim("data", "u-data", "v")], host("/tmp/a"), vec![]),
        ("it may be bound still", vec![claim("data", "u-data", "")], host("/tmp/a"), vec![]),
        (
            "PV-T08",
            vec![claim("data", "u-new", "")],
            host("/tmp/a"),
            vec!["read data", "phase v Released", "list attachments", "destroy v /tmp/a", "delete v"],
        ),
        (
            "PV-T12",
            vec![claim("data", "u-data", "w")],
            both(&host("/tmp/a"), &provisioned(HOST_PATH_PLUGIN)),
            vec![
                "finalizers v kubernetes.io/pv-protection,kubernetes.io/pv-controller",
                "phase v Released",
                "list attachments",
                "destroy v /tmp/a",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ],
        ),
        (
            "PV-T13",
            vec![claim("data", "u-data", "w")],
            both(
                &provisioned("other.example.com"),
                &json!({"spec": {"csi": {"driver": "other.example.com"}}}),
            ),
            vec!["phase v Released"],
        ),
        (
            "CSI-T05",
            vec![claim("data", "u-data", "v")],
            both(&csi("h"), &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            vec![],
        ),
        ("made by hand", vec![claim("data", "u-data", "w")], host("/tmp/a"), vec![]),
        (
            "PV-T42",
            vec![claim("data", "u-data", "v")],
            both(&host("/tmp/a"), &json!({"status": {"phase": "Released", "message": "x"}})),
            vec!["phase v Bound"],
        ),
    ] {
        let mut world = World::new(deleters());
        for claim in claims {
            world.put(Kind::Claim, claim);
        }
        world.put_volume(volume("v", &more));
        world.run();
        assert_eq!(world.took(), expected, "{scenario}");
    }
}

#[test]
fn what_ends_is_noticed_at_once() {
    // PV-T21: the claim goes before our eyes.
    let mut world = World::new(deleters());
    world.put(Kind::Claim, claim("data", "u-data", "v"));
    world.put_volume(volume(
        "v",
        &json!({"spec": {"csi": {"driver": "other.example.com", "volumeHandle": "h"}}}),
    ));
    world.run();
    assert_eq!(world.took(), Vec::<String>::new());
    world.remove(&claim_key("data"));
    world.run();
    assert_eq!(world.took(), ["read data", "phase v Released"], "PV-T21");

    // PV-T22: a bound volume goes; that its claim is lost is said by whoever binds.
    let mut world = World::new(deleters());
    world.put(Kind::Claim, claim("data", "u-data", "v"));
    world.put_volume(volume("v", &host("/tmp/a")));
    world.run();
    world.remove(&volume_key("v"));
    world.run();
    let engine: &mut dyn crate::engine::Collecting = &mut world.engine;
    assert_eq!(engine.take_measurement(), None, "PV-T22");
    assert_eq!(world.took(), Vec::<String>::new(), "PV-T22");

    // PV-T06: the volume goes while its storage is about to.
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&host("/tmp/a"), &json!({"status": {"phase": "Released"}}))));
    let destroy = loop {
        let effect = world.engine.poll_effect().unwrap();
        if matches!(effect.request, Request::Outside { .. }) {
            break effect;
        }
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    };
    world.remove(&volume_key("v"));
    assert_eq!(world.perform(&destroy), Outcome::Absent);
    world.engine.finish(destroy.id, &Outcome::Absent);
    world.pass(3_600_000);
    assert_eq!(world.took(), Vec::<String>::new(), "PV-T06");
}

/// CSI-T19: the storage is gone, its volume could not be deleted. Another call finds nothing, and none is needed.
#[test]
fn a_deletion_of_the_volume_that_fails_is_repeated() {
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let failed = Outcome::Failed { message: "500".into(), retry_after_milliseconds: None };
    let mut failures = 0;
    while failures < 2 {
        let effect = world.engine.poll_effect().unwrap();
        let outcome = match &effect.request {
            Request::Delete { .. } => {
                failures += 1;
                failed.clone()
            }
            _ => world.perform(&effect),
        };
        world.engine.finish(effect.id, &outcome);
        world.now += 100;
        world.engine.tick(at(world.now));
    }
    world.pass(1_000);
    assert_eq!(world.get("v")["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    assert_ne!(world.get("v")["metadata"]["deletionTimestamp"], Value::Null);
}

/// PV-T42 once more: the claim is there, and the watch has not told of it.
#[test]
fn a_claim_that_only_a_live_read_knows_holds_its_volume() {
    let mut world = World::new(deleters());
    world.objects.insert(
        claim_key("data"),
        both(&claim("data", "u-data", "v"), &json!({"metadata": {"resourceVersion": "9"}})),
    );
    world.put_volume(volume("v", &both(&host("/tmp/a"), &json!({"status": {"phase": "Released"}}))));
    world.run();
    assert_eq!(world.took(), ["read data"]);
    world.pass(WATCH_PATIENCE_MILLISECONDS);
    assert_eq!(world.took(), ["read data"]);
}

/// PV-T18, PV-T40, PV-T41, CSI-T21, CSI-T22
#[test]
fn what_changes_at_the_last_moment_counts() {
    let mut world = World::new(deleters());
    world.put_volume(volume(
        "v",
        &both(&csi("h"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
    ));
    world.run();
    assert_eq!(world.calls(), 0);
    world.change(&volume_key("v"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    world.run();
    assert_eq!(world.calls(), 1, "PV-T18");

    // The policy becomes Retain after the verdict: the guard of the call refuses it.
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let destroy = loop {
        let effect = world.engine.poll_effect().unwrap();
        if matches!(effect.request, Request::Outside { .. }) {
            break effect;
        }
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    };
    world.change(&volume_key("v"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    assert_eq!(world.perform(&destroy), Outcome::Conflict);
    world.engine.finish(destroy.id, &Outcome::Conflict);
    world.pass(3_600_000);
    assert_eq!(world.calls(), 0, "PV-T41");

    // Another volume takes the name while the driver works.
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let destroy = loop {
        let effect = world.engine.poll_effect().unwrap();
        if matches!(effect.request, Request::Outside { .. }) {
            break effect;
        }
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    };
    world.remove(&volume_key("v"));
    world.put(Kind::Claim, claim("data", "u-data", "v"));
    world.put_volume(volume("v", &both(&csi("new"), &json!({"metadata": {"uid": "u-other"}}))));
    world.engine.observe(Observation::StorageDeletion {
        volume: volume_key("v"),
        uid: Uid::new("u-v"),
        remark: None,
        result: Ok(()),
    });
    world.engine.finish(destroy.id, &Outcome::Applied(None));
    world.pass(3_600_000);
    assert_eq!(
        (world.took(), world.get("v")["metadata"]["uid"].clone()),
        (vec![], "u-other".into()),
        "CSI-T22"
    );
}

/// PV-T05, PV-T15, PV-T20, PV-T43, CSI-T18
#[test]
fn failures_are_shown_and_tried_again_later_and_later() {
    let failure = |in_use, message: &str| Err(StorageFailure { in_use, message: message.to_owned() });
    let mut world = World::new(deleters());
    world.answer = failure(false, "the disk is on fire");
    world.put_volume(volume("v", &host("/tmp/a")));
    world.run();
    let shown = [
        "destroy v /tmp/a",
        "Warning VolumeFailedDelete the disk is on fire",
        "phase v Failed the disk is on fire",
    ];
    assert_eq!(world.took()[3..], shown, "PV-T05");
    world.answer = failure(false, "the disk is wet");
    world.pass(499);
    assert_eq!(world.took(), Vec::<String>::new());
    world.pass(1);
    let shown =
        ["destroy v /tmp/a", "Warning VolumeFailedDelete the disk is wet", "phase v Failed the disk is wet"];
    assert_eq!(world.took(), shown, "PV-T43");
    world.answer = Ok(());
    world.pass(1_000);
    assert_eq!(world.took(), ["destroy v /tmp/a", "delete v"], "PV-T15");

    let mut world = World::new(deleters());
    world.answer = failure(true, "somebody reads it");
    world.put_volume(volume("v", &host("/tmp/a")));
    world.run();
    assert_eq!(world.took()[3..], ["destroy v /tmp/a", "Normal VolumeDelete somebody reads it"], "PV-T20");
    assert_eq!(world.get("v")["status"]["phase"], "Released");

    let mut world = World::new(deleters());
    world.answer = failure(false, "rpc error: code = Unavailable desc = x");
    world.put_volume(volume("v", &csi("h")));
    world.run();
    let text = "rpc error: code = Unavailable desc = x";
    let (event, phase) = (format!("Warning VolumeFailedDelete {text}"), format!("phase v Released {text}"));
    assert_eq!(world.took()[3..], ["destroy v csi h", &event, &phase], "CSI-T18");
    for delay in [1_000, 2_000, 4_000] {
        world.pass(delay - 1);
        assert_eq!(world.calls(), 0, "before {delay} ms");
        world.pass(1);
        assert_eq!(world.took(), ["destroy v csi h", &event], "after {delay} ms");
    }
    for _ in 0..12 {
        world.pass(CSI_RETRY_MILLISECONDS.1);
    }
    // After a long while it is looked again whether it is attached.
    assert_eq!(world.took().iter().filter(|line| line.starts_with("destroy")).count(), 12);
    world.answer = Ok(());
    world.pass(CSI_RETRY_MILLISECONDS.1);
    assert_eq!(world.get("v")["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
}

/// CSI-T11 to T13, and what only a live list knows.
#[test]
fn what_is_attached_is_not_destroyed() {
    let attached = |node: &str| format!("persistentvolume v is still attached to node {node}");
    let mut world = World::new(deleters());
    world.put(Kind::Attachment, attachment("a1", "v", "n1"));
    world.put(Kind::Attachment, attachment("a2", "v", "n2"));
    world.put(Kind::Attachment, attachment("a3", "other", "n3"));
    world.put_volume(volume("v", &csi("h")));
    world.run();
    let shown = |node: &str| {
        let text = attached(node);
        [format!("Warning VolumeFailedDelete {text}"), format!("phase v Released {text}")]
    };
    assert_eq!(world.took()[2..], shown("n1"), "CSI-T11");
    world.remove(&Kind::Attachment.key(&"".into(), &"a1".into()));
    world.run();
    assert_eq!(world.took(), shown("n2"), "CSI-T12");
    world.remove(&Kind::Attachment.key(&"".into(), &"a2".into()));
    world.run();
    assert_eq!(world.took()[..2], ["list attachments", "destroy v csi h"], "CSI-T13");

    let mut world = World::new(deleters());
    let hidden = Kind::Attachment.key(&"".into(), &"a".into());
    world.objects.insert(hidden.clone(), attachment("a", "v", "n"));
    world.put_volume(volume("v", &csi("h")));
    world.run();
    world.pass(600);
    world.pass(600);
    assert_eq!(world.took()[2..], ["list attachments", "list attachments"]);
    world.objects.remove(&hidden);
    world.pass(WATCH_PATIENCE_MILLISECONDS);
    assert_eq!(world.calls(), 1);
}

/// BEAT-CSI-7, and folders within folders.
#[test]
fn shared_storage_is_not_destroyed() {
    for (one, other, shared) in [
        (csi("h"), csi("h"), true),
        (csi("h"), csi("h2"), false),
        (host("/tmp/a"), host("/tmp/a/"), true),
        (host("/tmp/a"), host("/tmp/a/b"), true),
        (host("/tmp/a"), host("/tmp/ab"), false),
    ] {
        let mut world = World::new(deleters());
        world.put_volume(volume(
            "w",
            &both(&other, &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
        ));
        world.put_volume(volume("v", &one));
        world.run();
        assert_eq!(world.calls(), usize::from(!shared), "{one} {other}");
        if shared {
            let message = world.get("v")["status"]["message"].as_str().unwrap();
            assert!(message.contains("persistentvolume w has the same storage"), "{message}");
            world.remove(&volume_key("w"));
            world.run();
            assert_eq!(world.calls(), 1, "{one} {other}");
        }
    }
}

#[test]
fn a_driver_that_hangs_is_asked_for_so_many_at_a_time() {
    let mut world = World::new(Deleters { drivers: [DRIVER.into(), "fast".into()].into(), host_path: false });
    let released = json!({"status": {"phase": "Released"}});
    for number in 0..40 {
        world.put_volume(volume(&format!("v{number:02}"), &both(&csi(&format!("h{number}")), &released)));
    }
    let mut flying: Vec<(EffectId, ObjectKey, Uid)> = Vec::new();
    while let Some(effect) = world.engine.poll_effect() {
        if let Request::Outside { key, uid, .. } = &effect.request {
            flying.push((effect.id, key.clone(), uid.clone()));
            continue;
        }
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    }
    assert_eq!(flying.len(), CALLS_PER_DRIVER);
    let (id, key, uid) = flying.pop().unwrap();
    let result = Err(StorageFailure { in_use: false, message: "late".into() });
    world.engine.observe(Observation::StorageDeletion { volume: key, uid, remark: None, result });
    world.engine.finish(id, &Outcome::Applied(None));
    let next = std::iter::from_fn(|| world.engine.poll_effect())
        .filter(|effect| matches!(effect.request, Request::Outside { .. }));
    assert_eq!(next.count(), 1);
}

#[test]
fn measurements_are_taken_under_upstreams_names() {
    let mut world = World::new(deleters());
    world.put_volume(volume(
        "v",
        &both(&csi("h"), &json!({"metadata": {"finalizers": [EXTERNAL_FINALIZER]}})),
    ));
    world.put(Kind::Claim, claim("other", "u-o", "w"));
    let mut gauges = world.engine.standing().gauges;
    gauges.retain(|gauge| gauge.value > 0.0);
    let shown: Vec<_> = gauges.iter().map(|gauge| (gauge.metric.name, gauge.labels.join("/"))).collect();
    assert_eq!(
        shown,
        [
            ("pv_collector_total_pv_count", "kubernetes.io/csi:disk.example.com/Filesystem".to_owned()),
            ("pv_collector_bound_pv_count", "fast".to_owned()),
            ("pv_collector_bound_pvc_count", "shop//".to_owned()),
        ]
    );
    world.answer = Err(StorageFailure { in_use: false, message: "x".into() });
    world.run();
    world.answer = Ok(());
    world.pass(1_000);
    let engine: &mut dyn crate::engine::Collecting = &mut world.engine;
    let taken: Vec<_> = std::iter::from_fn(|| engine.take_measurement())
        .map(|taken| format!("{} {} {}", taken.metric.name, taken.labels.join("/"), taken.value))
        .collect();
    assert_eq!(
        taken,
        [
            "controller_persistentvolume_delete fast 1",
            "controller_persistentvolume_delete_failed fast 1",
            "volume_operation_errors disk.example.com/delete 1",
            "controller_persistentvolume_delete fast 1",
            "controller_persistentvolume_delete_duration_seconds fast 0",
            "volume_operation_total_seconds disk.example.com/delete 1",
        ]
    );
}

/// What users, binder and attacher do to one of three volumes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Unclaim,
    ClaimAgain,
    Retain,
    Reclaim,
    Attach,
    Detach,
    DeleteObject,
    Fail,
    Work,
    Wait(i64),
    /// So many effects are performed.
    Some(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Unclaim),
        2 => Just(Step::ClaimAgain),
        1 => Just(Step::Retain),
        2 => Just(Step::Reclaim),
        1 => Just(Step::Attach),
        2 => Just(Step::Detach),
        1 => Just(Step::DeleteObject),
        1 => Just(Step::Fail),
        1 => Just(Step::Work),
        3 => (0..3_000_i64).prop_map(Step::Wait),
        6 => (1..4_u8).prop_map(Step::Some),
    ]
}

fn apply(world: &mut World, which: usize, step: Step, uids: &mut u32) {
    let name = format!("v{which}");
    let (key, claim_name) = (volume_key(&name), format!("c{which}"));
    let policy = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    let attachment_key = Kind::Attachment.key(&"".into(), &format!("a{which}").into());
    let exists = world.objects.contains_key(&key);
    let claimed = world.objects.contains_key(&claim_key(&claim_name));
    match step {
        Step::Unclaim if !world.objects.contains_key(&attachment_key) => {
            world.remove(&claim_key(&claim_name));
        }
        Step::ClaimAgain if exists && !claimed => {
            *uids += 1;
            let uid = format!("u{uids}");
            world.change(
                &key,
                &json!({"spec": {"claimRef": {"namespace": "shop", "name": claim_name, "uid": uid}}}),
            );
            world.put(Kind::Claim, claim(&claim_name, &uid, &name));
        }
        Step::Retain if exists => world.change(&key, &policy("Retain")),
        Step::Reclaim if exists => world.change(&key, &policy("Delete")),
        // Nothing attaches a volume without a claim.
        Step::Attach if exists && claimed => {
            world.put(Kind::Attachment, attachment(&format!("a{which}"), &name, "n"));
        }
        Step::Detach => world.remove(&attachment_key),
        Step::DeleteObject if exists => {
            world.change(&key, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
            world.settle(&key);
        }
        Step::Fail => world.answer = Err(StorageFailure { in_use: false, message: "no".into() }),
        Step::Work => world.answer = Ok(()),
        Step::Wait(milliseconds) => {
            world.now += milliseconds;
            world.engine.tick(at(world.now));
        }
        Step::Some(effects) => {
            for _ in 0..effects {
                let Some(effect) = world.engine.poll_effect() else { return };
                let outcome = world.perform(&effect);
                world.engine.finish(effect.id, &outcome);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: what is bound again, attached, retained or shared is never destroyed
    /// (checked by `may_be_destroyed` at each call), and what is left unclaimed with policy Delete goes in the end.
    #[test]
    fn a_volume_in_use_is_never_destroyed(steps in proptest::collection::vec((0..3_usize, step()), 1..80)) {
        let mut world = World::new(deleters());
        let mut uids = 0;
        for which in 0..3 {
            let (name, claim_name) = (format!("v{which}"), format!("c{which}"));
            let reference = json!({"spec": {"claimRef": {"namespace": "shop", "name": claim_name, "uid": format!("first{which}")}}});
            world.put(Kind::Claim, claim(&claim_name, &format!("first{which}"), &name));
            // Two of them share their storage.
            let handle = if which == 2 { "other" } else { "shared" };
            world.put_volume(volume(&name, &both(&csi(handle), &reference)));
        }
        for (which, step) in steps {
            apply(&mut world, which, step, &mut uids);
        }
        world.answer = Ok(());
        for which in 0..3 {
            for step in [Step::Detach, Step::Unclaim, Step::Reclaim] {
                apply(&mut world, which, step, &mut uids);
            }
        }
        for _ in 0..8 {
            world.pass(CSI_RETRY_MILLISECONDS.1);
        }
        // The third one shares nothing. Its protection finalizer is another collector's.
        let left = world.get("v2").clone();
        let released = left.is_null() || left["metadata"]["finalizers"] == json!(["kubernetes.io/pv-protection"]);
        prop_assert!(released, "{left}");
    }
}
