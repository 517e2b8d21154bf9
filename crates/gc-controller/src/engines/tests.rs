#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};

use gc_collectors::engine::{AnyCollector, CollectorState, Counts, Observation};
use gc_collectors::measures::Measurement;
use gc_collectors::objects::Kind;
use gc_collectors::policies::engine::digest;
use gc_collectors::policies::roster::Observation as PolicyObservation;
use gc_types::{
    Coordinates, DeletionState, Gvr, Marks, ObjectKey, ObservedObject, OwnerReference, PropagationPolicy,
    Reason, Request, ResourceInfo, ResourceVersion, Scope, Uid, Verdict, WithheldBy,
};
use serde_json::json;

use super::*;

fn effect(number: u64) -> Effect {
    let key = ObjectKey { resource: ResourceId(7), namespace: "n".into(), name: "a".into() };
    let reason = Reason { verdict: Verdict::OwnersAbsent, owners: Vec::new(), evidence: Vec::new() };
    Effect { id: EffectId(number), request: Request::Read { key }, reason }
}

/// Records every call, and returns fixed values.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn note(&self, call: String) {
        self.0.lock().unwrap().push(call);
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl EventEngine for Recorder {
    fn handle(&mut self, event: Event) {
        self.note(format!("{event:?}"));
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Some(effect(3))
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        Some(Timestamp(44))
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.note(format!("set to {now:?}"));
    }

    fn objects_of(&self, resource: ResourceId) -> Option<usize> {
        Some(resource.0 as usize + 10)
    }
}

impl AnyCollector for Recorder {
    fn kinds(&self) -> &'static [Kind] {
        &[]
    }

    fn tick(&mut self, now: Timestamp) {
        self.note(format!("tick {now:?}"));
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.note(format!("set to {now:?}"));
    }

    fn observe(&mut self, _: Observation) {}

    fn poll_effect(&mut self) -> Option<Effect> {
        Some(effect(3))
    }

    fn finish(&mut self, id: EffectId, outcome: &Outcome) {
        self.note(format!("finish {id:?} {outcome:?}"));
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        Some(Timestamp(44))
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn skip(&mut self, id: EffectId) {
        self.note(format!("skip {id:?}"));
    }

    fn release(&mut self, resource: Option<ResourceId>) {
        self.note(format!("release {resource:?}"));
    }

    fn take_measurement(&mut self) -> Option<Measurement> {
        None
    }

    fn standing(&self) -> CollectorState {
        CollectorState::default()
    }
}

/// Passes everything to an engine that a controller does, and returns what the engine says.
fn drive<E: Engine<Origin = ()>>(engine: &mut E) -> (Option<Effect>, Option<Timestamp>, Option<usize>) {
    let all = |_| true;
    engine.tick(Timestamp(5), Timestamp(6));
    engine.set_clock(Timestamp(8));
    engine.finish(&(), EffectId(1), Outcome::Conflict);
    engine.finish(&(), EffectId(2), Outcome::Withheld(WithheldBy::Breaker));
    engine.release(Some(ResourceId(7)));
    engine.release(None);
    let polled = engine.poll_effect(&all).map(|((), effect)| effect);
    (polled, engine.next_wakeup(&all), engine.objects_of(ResourceId(7)))
}

#[test]
fn an_engine_of_events_learns_all_from_them() {
    let mut recorder = Recorder::default();
    let said = drive(&mut ByEvents(&mut recorder));
    assert_eq!(said, (Some(effect(3)), Some(Timestamp(44)), Some(17)));
    let expected = [
        format!("{:?}", Event::Tick(Timestamp(5))),
        format!("set to {:?}", Timestamp(8)),
        format!("{:?}", Event::Done(EffectId(1), Outcome::Conflict)),
        format!("{:?}", Event::Done(EffectId(2), Outcome::Withheld(WithheldBy::Breaker))),
        format!("{:?}", Event::Released(Some(ResourceId(7)))),
        format!("{:?}", Event::Released(None)),
    ];
    assert_eq!(recorder.taken(), expected);
}

/// A withheld effect is skipped, which is no outcome of it.
#[test]
fn a_collector_gets_outcomes_and_skips_what_is_withheld() {
    let recorder = Recorder::default();
    let mut engine = ByFacts(Box::new(recorder.clone()));
    assert_eq!(drive(&mut engine), (Some(effect(3)), Some(Timestamp(44)), None));
    let expected = [
        format!("tick {:?}", Timestamp(5)),
        format!("set to {:?}", Timestamp(8)),
        format!("finish {:?} {:?}", EffectId(1), Outcome::Conflict),
        format!("skip {:?}", EffectId(2)),
        format!("release {:?}", Some(ResourceId(7))),
        format!("release {:?}", None::<ResourceId>),
    ];
    assert_eq!(recorder.taken(), expected);
    assert_eq!(format!("{engine:?}"), "ByFacts { .. }");
}

fn object(name: &str, owners: &[&str]) -> Event {
    let reference = |name: &&str| OwnerReference {
        coordinates: Coordinates {
            api_version: "v1".into(),
            kind: "Secret".into(),
            name: (*name).into(),
            uid: Uid::new(name),
        },
        controller: None,
        block_owner_deletion: None,
    };
    Event::Observed(ObservedObject {
        key: ObjectKey { resource: ResourceId(7), namespace: "n".into(), name: name.into() },
        uid: Uid::new(name),
        resource_version: ResourceVersion(1),
        owners: owners.iter().map(reference).collect(),
        deletion: DeletionState::default(),
        recreator: None,
    })
}

#[test]
fn the_ownership_engine_acts_through_its_adapter() {
    let all = |_| true;
    let mut engine = ByEvents(gc_ownership::Engine::new(gc_ownership::Config::default()));
    let info = ResourceInfo {
        id: ResourceId(7),
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: "secrets".into() },
        kind: "Secret".into(),
        scope: Scope::Namespaced,
        served_api_versions: vec!["v1".into()],
        watched: true,
        comparable_versions: true,
    };
    engine.tick(Timestamp(5), Timestamp(5));
    // Its timers follow a clock that is never set.
    engine.set_clock(Timestamp(1_000_000));
    for event in [
        Event::ResourceServed(info),
        Event::ListStarted(ResourceId(7)),
        object("a", &[]),
        object("b", &["a", "gone"]),
        Event::Synced { resource: ResourceId(7), resource_version: ResourceVersion(1) },
    ] {
        engine.0.handle(event);
    }
    EventEngine::handle(&mut engine.0, Event::Discovered);
    assert_eq!(engine.objects_of(ResourceId(7)), Some(2));
    assert_eq!(engine.poll_effect(&all), None, "it gives the owner time to arrive");
    assert_eq!(engine.next_wakeup(&all), Some(Timestamp(55)));
    engine.tick(Timestamp(55), Timestamp(55));
    let ((), read) = engine.poll_effect(&all).unwrap();
    assert!(matches!(&read.request, Request::Read { key } if *key.name == *"gone"));
    engine.finish(&(), read.id, Outcome::Absent);
    let ((), release) = engine.poll_effect(&all).unwrap();
    assert!(matches!(&release.request, Request::SetOwners { key, .. } if *key.name == *"b"));
}

#[test]
fn the_expiry_engine_acts_through_its_adapter() {
    let all = |_| true;
    let mut engine = ByEvents(ExpiryEngine::default());
    engine.tick(Timestamp(1_000), Timestamp(1_000));
    let key = ObjectKey { resource: ResourceId(7), namespace: "n".into(), name: "a".into() };
    let marks = Marks { created: Some(Timestamp(1_000)), ttl: Some("1h".into()), ..Marks::default() };
    EventEngine::handle(&mut engine.0, object("a", &[]));
    EventEngine::handle(&mut engine.0, Event::Marked { key: key.clone(), marks: marks.into() });
    assert_eq!(engine.poll_effect(&all), None);
    assert_eq!(engine.next_wakeup(&all), Some(Timestamp(3_601_000)));
    assert_eq!(engine.objects_of(ResourceId(7)), None, "it does not count them");
    engine.set_clock(Timestamp(3_601_000));
    let ((), expired) = engine.poll_effect(&all).unwrap();
    let expected = Request::Delete {
        key,
        uid: Uid::new("a"),
        resource_version: Some(ResourceVersion(1)),
        policy: PropagationPolicy::Background,
    };
    assert_eq!(expired.request, expected);
}

const NOW: i64 = 1_800_000_000_000;

/// A policy is applied at the time of the last tick, and follows the clock that is set.
#[test]
fn policies_act_at_the_time_of_the_last_tick() {
    let mut policy = json!({
        "metadata": {"name": "old", "uid": "old-uid", "generation": 1},
        "spec": {"target": {"apiVersion": "batch/v1", "kind": "Job"}, "maxAge": "1h", "enforce": true},
    });
    policy["status"] = json!({"observedGeneration": 1, "observedSpec": digest(&policy["spec"]), "due": 1});
    let mut policies = Policies::default();
    policies.tick(Timestamp(NOW), Timestamp(NOW));
    policies.roster.list_started();
    policies.roster.observed(&policy, |_, _| ResourceId(1)).unwrap();
    policies.roster.synced();
    policies.settle();
    let number = *policies.roster.watches().keys().next().unwrap();
    policies.roster.observe(number, PolicyObservation::ListStarted);
    let job = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "a", "resourceVersion": "5",
        "creationTimestamp": "2027-01-15T07:10:00Z"}});
    let looks = policies.roster.watches()[&number].looks(&job);
    let observed = PolicyObservation::Observed { namespace: "shop".into(), name: "a".into(), looks };
    policies.roster.observe(number, observed);
    policies.roster.observe(number, PolicyObservation::Synced);
    policies.tick(Timestamp(NOW + 1_000), Timestamp(NOW + 1_000));
    assert_eq!(policies.poll_effect(&|_| true), None, "it is fifty minutes old");
    assert_eq!(policies.next_wakeup(&|_| true), Some(Timestamp(NOW + 600_000)));
    assert_eq!(policies.objects_of(ResourceId(1)), None);
    let status = policies.next_status();
    assert!(status.is_some_and(|at| at > Timestamp(NOW)), "{status:?}");
    policies.tick(Timestamp(NOW + 601_000), Timestamp(NOW + 601_000));
    assert_eq!(policies.poll_effect(&|_| false), None, "the resource is stopped");
    let (member, effect) = policies.poll_effect(&|_| true).unwrap();
    assert!(matches!(&effect.request, Request::Delete { key, .. } if *key.name == *"a"));
    policies.finish(&member, effect.id, Outcome::Applied(None));
    policies.tick(Timestamp(NOW + 700_000), Timestamp(NOW + 700_000));
    let runs: Vec<_> =
        policies.roster.statuses().iter().map(|write| write.patch["status"]["lastRun"].clone()).collect();
    assert_eq!(runs, [json!({"time": "2027-01-15T08:10:01Z", "deleted": 1, "failed": 0, "error": null})]);
    // Another clock decides again which objects are due, by a new watch.
    policies.set_clock(Timestamp(NOW));
    assert!(policies.roster.newest_watch() > number);
}
