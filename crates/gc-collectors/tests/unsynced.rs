//! Laws that hold for every collector. X-T07: whatever it has observed, it decides nothing before everything that it watches has been
//! listed; what a list lacks is as good as removed; and a clock that is set, a request that is withheld and an object that is kept
//! change nothing else.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use gc_collectors::certificates::CertificateCollector;
use gc_collectors::collectors::{Controller, Watches};
use gc_collectors::engine::{AnyCollector, Engine, MachineState, Observation, StorageFailure};
use gc_collectors::expiry::FinishedExpiry;
use gc_collectors::jobs::JobCollector;
use gc_collectors::lease_candidates::LeaseCandidateCollector;
use gc_collectors::leases::LeaseCollector;
use gc_collectors::nodes::{NodeLifecycle, NodePolicy};
use gc_collectors::objects::{Facts, Kind};
use gc_collectors::pod_certificates::PodCertificateCollector;
use gc_collectors::pods::PodCollector;
use gc_collectors::storage_versions::StorageVersionCollector;
use gc_collectors::tokens::{CLEAN_UP_PERIOD_MILLISECONDS, TokenCollector};
use gc_collectors::volumes::reclaim::{Deleters, VolumeReclaim};
use gc_collectors::volumes::{AttributesClassProtection, ClaimProtection, VolumeProtection};
use gc_types::{Effect, ObjectKey, Outcome, OutsideCall, Request, Timestamp};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// Returns an object of each kind with which some collector has something to do.
fn overdue(kind: Kind) -> Value {
    let metadata = json!({"namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "5",
        "creationTimestamp": LONG_AGO});
    let with = |more: Value| {
        let mut object = json!({ "metadata": metadata });
        for (pointer, value) in more.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        object
    };
    let finished = |kind: &str| {
        json!({"conditions": [{"type": kind, "status": "True", "lastTransitionTime": LONG_AGO,
            "lastUpdateTime": LONG_AGO}]})
    };
    match kind {
        Kind::Pod => {
            with(json!({"/spec": {}, "/status": {"phase": "Failed"}, "/metadata/deletionTimestamp": LONG_AGO,
            "/metadata/deletionGracePeriodSeconds": 30, "/metadata/annotations": {"kubegc.io/ttl": "1h"}}))
        }
        Kind::Job => with(json!({"/spec": {"ttlSecondsAfterFinished": 1}, "/status": finished("Complete"),
            "/metadata/annotations": {"kubegc.io/ttl": "1h"}})),
        Kind::SigningRequest => with(json!({"/status": finished("Denied")})),
        Kind::Volume => with(json!({"/metadata/deletionTimestamp": LONG_AGO,
            "/metadata/finalizers": ["kubernetes.io/pv-protection"], "/status": {"phase": "Released"},
            "/spec": {"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/tmp/a"},
                "claimRef": {"namespace": "shop", "name": "data", "uid": "gone"}}})),
        Kind::Claim => with(json!({"/metadata/deletionTimestamp": LONG_AGO,
            "/metadata/finalizers": ["kubernetes.io/pvc-protection"]})),
        Kind::Lease => with(json!({"/metadata/namespace": "kube-system",
            "/metadata/labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}})),
        Kind::TokenSecret => {
            with(json!({"/metadata/annotations": {"kubernetes.io/service-account.name": "a"}}))
        }
        Kind::ServiceAccount => with(json!({"/secrets": [{"name": "a"}]})),
        Kind::TokenTracking => with(json!({"/data": {"since": "2020-01-01"}})),
        Kind::StorageVersion => {
            with(json!({"/status": {"storageVersions": [{"apiServerID": "gone", "encodingVersion": "v1"}]}}))
        }
        _ => with(json!({})),
    }
}

fn all() -> Vec<(Controller, Box<dyn AnyCollector>)> {
    let deleters = Deleters { host_path: true, ..Deleters::default() };
    vec![
        (Controller::PodGarbageCollector, Box::new(Engine::new(PodCollector::new(0)))),
        (Controller::TtlAfterFinished, Box::new(Engine::new(JobCollector::default()))),
        (Controller::CertificateCleaner, Box::new(Engine::new(CertificateCollector::default()))),
        (Controller::PodCertificateCleaner, Box::new(Engine::new(PodCertificateCollector::default()))),
        (Controller::ClaimProtection, Box::new(Engine::new(ClaimProtection::default()))),
        (Controller::VolumeProtection, Box::new(Engine::new(VolumeProtection::default()))),
        (Controller::AttributesClassProtection, Box::new(Engine::new(AttributesClassProtection::default()))),
        (Controller::VolumeReclaim, Box::new(Engine::new(VolumeReclaim::new(deleters)))),
        (Controller::NodeLifecycle, Box::new(Engine::new(NodeLifecycle::new(NodePolicy::default())))),
        (Controller::StaleLease, Box::new(Engine::new(LeaseCollector::new(true)))),
        (Controller::LeaseCandidate, Box::new(Engine::new(LeaseCandidateCollector::default()))),
        (
            Controller::LegacyTokenCleaner,
            Box::new(Engine::new(TokenCollector::new(CLEAN_UP_PERIOD_MILLISECONDS))),
        ),
        (Controller::StorageVersion, Box::new(Engine::new(StorageVersionCollector::default()))),
        (Controller::Expiry, Box::new(Engine::new(FinishedExpiry::default()))),
    ]
}

/// The table declares what each collector watches. (Collectors of every kind have no narrow facts, except for finished objects that
/// expire.)
#[test]
fn the_table_says_what_each_watches() {
    let covered: BTreeSet<Controller> = all().iter().map(|(controller, _)| *controller).collect();
    for (controller, collector) in all() {
        let expected = match controller.collector().watches {
            Watches::Kinds(kinds) => kinds,
            Watches::Everything | Watches::ByPolicies => &[Kind::Pod, Kind::Job],
        };
        assert_eq!(collector.kinds(), expected, "{controller}");
    }
    let others = Controller::ALL.into_iter().filter(|one| !covered.contains(one));
    let narrow: Vec<_> = others.filter(|one| matches!(one.collector().watches, Watches::Kinds(_))).collect();
    assert!(narrow.is_empty(), "not tested here: {narrow:#?}");
}

#[test]
fn nothing_is_decided_before_the_lists_are_complete() {
    for (name, mut collector) in all() {
        let kinds = collector.kinds();
        collector.tick(NOW);
        for kind in kinds {
            collector.observe(Observation::ListStarted(*kind));
            let object = overdue(*kind).to_string();
            collector.observe(Observation::Observed(Facts::read(*kind, object.as_bytes()).unwrap()));
            assert_eq!(collector.poll_effect(), None, "{name}");
        }
        for kind in kinds {
            assert!(!collector.standing().synced, "{name}");
            assert_eq!((collector.poll_effect(), collector.next_wakeup()), (None, None), "{name}");
            collector.observe(Observation::Synced(*kind));
        }
        // After that there is something to do, so the lists were the reason for doing nothing.
        assert!(collector.standing().synced && collector.poll_effect().is_some(), "{name}");
    }
}

/// Returns the key under which a collector knows an object.
fn key(kind: Kind, object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().into();
    kind.key(&text("namespace"), &text("name"))
}

fn facts(kind: Kind, object: &Value) -> Facts {
    Facts::read(kind, object.to_string().as_bytes()).unwrap()
}

/// Returns an object with a UID of its own and these parts besides its metadata.
fn object(namespace: &str, name: &str, metadata: &Value, rest: &Value) -> Value {
    let mut object = json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("u-{name}"),
        "resourceVersion": "5", "creationTimestamp": LONG_AGO}});
    for (into, from) in [("/metadata", metadata), ("", rest)] {
        let into = object.pointer_mut(into).unwrap().as_object_mut().unwrap();
        into.extend(from.as_object().unwrap().clone());
    }
    object
}

/// Returns the objects of a kind in a small cluster: one with which some collector has something to do at once, and others that keep
/// each other, or whose time comes.
fn objects(kind: Kind) -> Vec<Value> {
    let (none, deleted) =
        (json!({}), |finalizer: &str| json!({"deletionTimestamp": LONG_AGO, "finalizers": [finalizer]}));
    let identity = json!({"labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}});
    let renewed = json!({"spec": {"renewTime": LONG_AGO, "leaseDurationSeconds": 10}});
    let elected = json!({"spec": {"renewTime": LONG_AGO, "leaseDurationSeconds": 10, "holderIdentity": "a"}});
    let classed = |class: &str| json!({"spec": {"volumeAttributesClassName": class}});
    let others = match kind {
        Kind::Pod => vec![
            object(
                "shop",
                "orphan",
                &none,
                &json!({"spec": {"nodeName": "gone"}, "status": {"phase": "Failed"}}),
            ),
            object(
                "shop",
                "user",
                &none,
                &json!({"spec": {"nodeName": "n", "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]}, "status": {"phase": "Running"}}),
            ),
        ],
        Kind::Node => ["n", "ready"]
            .map(|name| {
                object(
                    "",
                    name,
                    &none,
                    &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
                )
            })
            .into(),
        Kind::Lease => vec![
            object("kube-system", "api", &identity, &renewed),
            object("kube-node-lease", "gone", &none, &renewed),
            object("kube-node-lease", "n", &none, &renewed),
            object("shop", "leader", &none, &elected),
        ],
        Kind::SystemLease => vec![object("kube-system", "s", &identity, &renewed)],
        Kind::StorageVersion => vec![object(
            "",
            "two",
            &none,
            &json!({"status": {"storageVersions": [
            {"apiServerID": "s", "encodingVersion": "v1"}]}}),
        )],
        Kind::LeaseCandidate => vec![object("kube-system", "renewed", &none, &renewed)],
        Kind::SigningRequest => vec![object(
            "",
            "issued",
            &none,
            &json!({"status": {"certificate": "x",
            "conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": LONG_AGO}]}}),
        )],
        Kind::Claim => vec![
            object("shop", "used", &deleted("kubernetes.io/pvc-protection"), &none),
            object("shop", "classed", &none, &classed("gold")),
        ],
        Kind::Volume => vec![
            object("", "classed", &none, &classed("tin")),
            object(
                "",
                "attached",
                &none,
                &json!({"status": {"phase": "Released"},
                "spec": {"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/tmp/b"},
                    "claimRef": {"namespace": "shop", "name": "data", "uid": "gone"}}}),
            ),
            object(
                "",
                "claimed",
                &none,
                &json!({"status": {"phase": "Released"},
                "spec": {"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/tmp/c"},
                    "claimRef": {"namespace": "shop", "name": "used", "uid": "u-used"}}}),
            ),
        ],
        Kind::Attachment => vec![object(
            "",
            "holds",
            &none,
            &json!({"spec": {"nodeName": "n",
            "source": {"persistentVolumeName": "attached"}}}),
        )],
        Kind::AttributesClass => ["gold", "tin", "free"]
            .map(|name| object("", name, &deleted("kubernetes.io/vac-protection"), &none))
            .into(),
        _ => Vec::new(),
    };
    others.into_iter().chain([overdue(kind)]).collect()
}

/// A collector of that cluster with a server that answers each request, and what it has requested so far.
struct World {
    collector: Box<dyn AnyCollector>,
    now: Timestamp,
    /// Milliseconds that have really passed.
    passed: i64,
    /// When each request was sent, and what it was.
    log: Vec<(i64, String)>,
    /// Number of answers, of which the first ones are failures.
    answers: usize,
    failures: usize,
}

fn words(request: &Request) -> String {
    let (verb, key) = match request {
        Request::RecordEvent(note) => return format!("event {} {}", note.reason, note.about.name),
        Request::Barrier { resource, namespace, .. } => return format!("list {} {namespace:?}", resource.0),
        Request::Read { key } => ("read", key),
        Request::Delete { key, .. } => ("delete", key),
        Request::Guarded { key, .. } | Request::Outside { key, .. } if request.deletes() => ("delete", key),
        Request::Guarded { key, .. } => ("change", key),
        Request::Outside { key, .. } => ("look up", key),
        other => panic!("{other:?}"),
    };
    format!("{verb} {} {}/{}", key.resource.0, key.namespace, key.name)
}

impl World {
    /// Lists everything, without these objects, and gives each object such annotations.
    fn new(collector: Box<dyn AnyCollector>, annotations: &Value) -> Self {
        let mut world = Self { collector, now: NOW, passed: 0, log: Vec::new(), answers: 0, failures: 0 };
        world.collector.tick(NOW);
        for kind in world.collector.kinds() {
            let mut all = objects(*kind);
            for object in &mut all {
                let known = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
                let added = annotations.as_object().unwrap().clone();
                object["metadata"]["annotations"] = known.into_iter().chain(added).collect();
                if *kind == Kind::SigningRequest {
                    // It has no certificate yet.
                    let mut earlier = object.clone();
                    earlier["status"]["certificate"].take();
                    world.collector.observe(Observation::Observed(facts(*kind, &earlier)));
                }
            }
            world.list(*kind, &all);
        }
        world
    }

    fn list(&mut self, kind: Kind, all: &[Value]) {
        self.collector.observe(Observation::ListStarted(kind));
        for object in all {
            self.collector.observe(Observation::Observed(facts(kind, object)));
        }
        self.collector.observe(Observation::Synced(kind));
    }

    /// Answers like a server on which nothing reads as existing and no pod is listed, after the failures.
    fn answer(&mut self, effect: &Effect) {
        self.answers += 1;
        let failed = || Outcome::Failed { message: "away".into(), retry_after_milliseconds: None };
        let outcome = match &effect.request {
            _ if self.answers <= self.failures => failed(),
            Request::Read { .. } => Outcome::Absent,
            Request::Outside { key, uid, call: OutsideCall::LookUpMachine { .. }, .. } => {
                let state = if *key.name == *"a" { MachineState::Absent } else { MachineState::Running };
                let (node, uid, state) = (key.clone(), uid.clone(), Ok(state));
                self.collector.observe(Observation::Machine { node, uid, state });
                Outcome::Applied(None)
            }
            Request::Outside { key, uid, call: OutsideCall::DeleteStorage(_), .. } => {
                let result = Err(StorageFailure { in_use: false, message: "away".into() });
                let (volume, uid) = (key.clone(), uid.clone());
                self.collector.observe(Observation::StorageDeletion { volume, uid, remark: None, result });
                failed()
            }
            _ => Outcome::Applied(None),
        };
        self.collector.finish(effect.id, &outcome);
    }

    /// Takes all requests of this moment, and does this with each.
    fn take(&mut self, mut each: impl FnMut(&mut Self, &Effect)) {
        while let Some(effect) = self.collector.poll_effect() {
            self.log.push((self.passed, words(&effect.request)));
            each(self, &effect);
        }
    }

    /// Lets more than an hour pass.
    fn run(&mut self, mut each: impl FnMut(&mut Self, &Effect)) {
        for _ in 0..3_000 {
            self.take(&mut each);
            let Some(next) = self.collector.next_wakeup() else { return };
            let step = next.since(self.now).max(1);
            (self.now, self.passed) = (self.now.after(step), self.passed + step);
            if self.passed > 70 * 60 * 1_000 {
                return;
            }
            self.collector.tick(self.now);
        }
        panic!("it wakes too often: {:?}", self.log.iter().rev().take(9).collect::<Vec<_>>());
    }

    /// Runs, and returns the requests of each moment in order.
    fn requests(mut self) -> Vec<(i64, String)> {
        self.run(Self::answer);
        assert_eq!(self.collector.counts(), self.collector.standing().counts);
        self.log.sort();
        self.log
    }

    fn nothing_else(self) -> BTreeSet<String> {
        self.requests().into_iter().map(|(_, words)| words).collect()
    }
}

/// Returns the world of each collector, however often it is needed.
fn worlds() -> Vec<(Controller, impl Fn() -> World)> {
    let count = all().len();
    (0..count)
        .map(|index| (all().swap_remove(index).0, move || World::new(all().swap_remove(index).1, &json!({}))))
        .collect()
}

/// An object that is missing from the next list is as good as removed: the collector requests what it would request after an event
/// that says so, and changes nothing about the object itself.
#[test]
fn what_a_list_lacks_is_as_good_as_removed() {
    for (name, world) in worlds() {
        let mut ended = world();
        ended.run(World::answer);
        assert!(ended.collector.counts().done > 0, "{name}");
        let before = world().requests();
        let mut has_changed = false;
        for kind in world().collector.kinds() {
            let all = objects(*kind);
            for (index, gone) in all.iter().enumerate() {
                let key = key(*kind, gone);
                let mut removed = world();
                removed.collector.observe(Observation::Removed(key.clone()));
                // A watch that is resumed has no list, and brings nothing back.
                removed.collector.observe(Observation::Synced(*kind));
                let mut relisted = world();
                relisted.list(*kind, &[&all[..index], &all[index + 1..]].concat());
                let removed = removed.requests();
                assert_eq!(relisted.requests(), removed, "{name}: {kind:?} {}", key.name);
                let about = format!(" {} {}/{}", key.resource.0, key.namespace, key.name);
                let is_wanted =
                    |(_, words): &(i64, String)| !words.starts_with("read") && words.ends_with(&about);
                assert!(!removed.iter().any(is_wanted), "{name}: {kind:?} {}: {removed:?}", key.name);
                has_changed |= removed != before;
            }
        }
        assert!(has_changed, "{name}");
    }
}

/// A list that contains everything again changes nothing.
#[test]
fn what_a_list_has_again_stays_known() {
    for (name, world) in worlds() {
        let before = world().requests();
        let mut relisted = world();
        for kind in relisted.collector.kinds() {
            relisted.list(*kind, &objects(*kind));
        }
        assert_eq!(relisted.requests(), before, "{name}");
    }
}

/// Whatever is observed of a kind that a collector does not watch, it does nothing else than before.
#[test]
fn what_is_said_of_other_kinds_changes_nothing() {
    for (name, world) in worlds() {
        let before = world().requests();
        let mut disturbed = world();
        let kinds = disturbed.collector.kinds();
        for kind in Kind::ALL.iter().filter(|kind| !kinds.contains(kind)) {
            disturbed.collector.observe(Observation::Synced(*kind));
            for object in objects(*kind) {
                disturbed.collector.observe(Observation::Observed(facts(*kind, &object)));
                disturbed.collector.observe(Observation::Found(facts(*kind, &object)));
            }
            let names = kinds.iter().flat_map(|own| objects(*own));
            for object in names.chain(objects(*kind)) {
                disturbed.collector.observe(Observation::Removed(key(*kind, &object)));
            }
            disturbed.collector.observe(Observation::ListStarted(*kind));
        }
        assert_eq!(disturbed.requests(), before, "{name}");
    }
}

/// Times that a collector takes from the clock move with the clock: whenever it is set, each request is sent after the same time.
#[test]
fn a_clock_that_is_set_changes_no_wait() {
    const HOURS: i64 = 6 * 3_600_000;
    for (name, world) in worlds() {
        for (failures, answers) in [(0, 0), (0, 1), (0, 2), (0, 4), (1, 1), (1, 2), (2, 2), (2, 3), (3, 5)] {
            let set = |by: i64| {
                let mut world = world();
                world.failures = failures;
                let set = move |world: &mut World| {
                    world.now = world.now.after(by);
                    world.collector.set_clock(world.now);
                };
                if answers == 0 {
                    set(&mut world);
                }
                world.run(|world, effect| {
                    world.answer(effect);
                    if world.answers == answers {
                        set(world);
                    }
                });
                world.log.sort();
                world.log
            };
            let expected = set(0);
            for by in [HOURS, -HOURS] {
                assert_eq!(
                    set(by),
                    expected,
                    "{name}: {by} after {answers} answers with {failures} failures"
                );
            }
        }
    }
}

/// A request that is withheld keeps nothing: when it is released, everything happens that would have happened.
#[test]
fn what_is_withheld_and_released_happens_then() {
    for (name, world) in worlds() {
        let expected = world().nothing_else();
        for answers in 0..6 {
            let mut withheld = world();
            withheld.take(|world, effect| {
                if world.answers < answers { world.answer(effect) } else { world.collector.skip(effect.id) }
            });
            withheld.collector.release(None);
            assert_eq!(withheld.nothing_else(), expected, "{name}: withheld after {answers} answers");
        }
    }
}

/// Nothing that is kept is deleted, whatever is listed again before its time has come, and it is not considered again and again.
#[test]
fn what_is_kept_stays_kept_when_something_is_listed() {
    for (name, collector) in all() {
        let kept = json!({"kubegc.io/keep": "true"});
        let mut world = World::new(collector, &kept);
        for kind in world.collector.kinds() {
            let mut all = objects(*kind);
            for object in &mut all {
                object["metadata"]["annotations"] = kept.clone();
            }
            world.take(World::answer);
            world.list(*kind, &all);
        }
        let requested = world.requests();
        assert!(!requested.iter().any(|(_, words)| words.starts_with("delete")), "{name}: {requested:?}");
    }
}
