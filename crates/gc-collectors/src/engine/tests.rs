#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use gc_types::{Change, PropagationPolicy};
use serde_json::json;

use super::*;

/// A collector that returns the given decisions one after the other.
#[derive(Default)]
struct ScriptedCollector(Vec<Decision>);

impl Collector for ScriptedCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Job]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        if let Observation::Observed(facts) = observation {
            dirty.push(facts.key());
        }
    }

    fn decide(&mut self, _key: &ObjectKey, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        if self.0.is_empty() { Decision::Leave } else { self.0.remove(0) }
    }
}

fn job() -> Facts {
    let object = json!({"metadata": {"namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "5"}});
    Facts::read(Kind::Job, object.to_string().as_bytes()).unwrap()
}

fn act(request: Request) -> Decision {
    Decision::Act(request, reason("a test says so", ResourceVersion::UNKNOWN, &[]))
}

fn delete(version: u64) -> Decision {
    act(Request::Delete {
        key: job().key(),
        uid: job().meta().uid.clone(),
        resource_version: Some(ResourceVersion(version)),
        policy: PropagationPolicy::Background,
    })
}

fn status(version: u64, text: &str) -> Decision {
    act(Request::Guarded {
        key: job().key(),
        uid: job().meta().uid.clone(),
        resource_version: ResourceVersion(version),
        change: Change::Status(text.into()),
    })
}

fn read() -> Decision {
    act(Request::Read { key: job().key() })
}

/// Delivers a complete list of these objects.
fn list(engine: &mut Engine<ScriptedCollector>, objects: &[Facts]) {
    engine.observe(Observation::ListStarted(Kind::Job));
    for facts in objects {
        engine.observe(Observation::Observed(facts.clone()));
    }
    engine.observe(Observation::Synced(Kind::Job));
}

/// Observes the object once for each decision, skips requests that change something, and answers all others.
fn skipped(engine: &mut Engine<ScriptedCollector>, decisions: Vec<Decision>) -> usize {
    let mut skipped = 0;
    for decision in decisions {
        engine.collector.0 = vec![decision];
        engine.observe(Observation::Observed(job()));
        while let Some(effect) = engine.poll_effect() {
            if matches!(effect.request, Request::Read { .. }) {
                engine.finish(effect.id, &Outcome::Absent);
            } else {
                skipped += 1;
                engine.skip(effect.id);
            }
        }
    }
    skipped
}

#[test]
fn what_is_skipped_is_wanted_once_of_each_version() {
    for (case, decisions, expected) in [
        ("the same", vec![delete(5), delete(5)], 1),
        ("another version", vec![delete(5), delete(6)], 2),
        ("another time in it", vec![status(5, "now"), status(5, "later")], 1),
        ("another time, and another version", vec![status(5, "now"), status(6, "later")], 2),
        ("another change", vec![status(5, "now"), delete(5)], 2),
        ("nothing wanted meanwhile", vec![delete(5), Decision::Leave, delete(5)], 1),
        ("looked up again meanwhile", vec![delete(5), read(), delete(5)], 1),
    ] {
        let mut engine = Engine::new(ScriptedCollector::default());
        list(&mut engine, &[]);
        assert_eq!(skipped(&mut engine, decisions), expected, "{case}");
    }
}

/// After a list is repeated, objects that are still there are not reported again, but objects that were missing are.
#[test]
fn what_is_skipped_outlasts_lists() {
    let mut engine = Engine::new(ScriptedCollector::default());
    list(&mut engine, &[]);
    assert_eq!(skipped(&mut engine, vec![delete(5)]), 1);
    list(&mut engine, &[job()]);
    assert_eq!(skipped(&mut engine, vec![delete(5)]), 0);
    list(&mut engine, &[]);
    assert_eq!(skipped(&mut engine, vec![delete(5)]), 1);
    engine.observe(Observation::Removed(job().key()));
    assert_eq!(skipped(&mut engine, vec![delete(5)]), 1);
}

/// Objects that were reconciled again while they were skipped are also returned on release.
#[test]
fn what_is_skipped_is_released() {
    for between in [vec![], vec![read()], vec![Decision::Leave], vec![read(), delete(5)]] {
        let mut engine = Engine::new(ScriptedCollector::default());
        list(&mut engine, &[]);
        assert_eq!(skipped(&mut engine, vec![delete(5)]), 1);
        assert_eq!(skipped(&mut engine, between), 0);
        engine.collector.0 = vec![delete(5)];
        engine.release(Some(Kind::Pod.resource()));
        assert_eq!(engine.poll_effect(), None, "another resource");
        engine.release(Some(Kind::Job.resource()));
        assert!(engine.poll_effect().is_some());
    }
}

/// For any collector, a missing object is a success, and a changed one is reconciled again.
#[test]
fn a_404_is_success_and_a_409_is_no_error() {
    let failed = Outcome::Failed { message: "x".into(), retry_after_milliseconds: None };
    let refused = Outcome::Refused { code: 403, message: "x".into() };
    for (outcome, expected) in [
        (Outcome::Applied(None), (1, 0, 0)),
        (Outcome::Absent, (1, 0, 0)),
        (Outcome::Conflict, (0, 1, 0)),
        (failed, (0, 0, 1)),
        (refused, (0, 0, 1)),
        (Outcome::NotServed, (0, 0, 1)),
    ] {
        let mut engine = Engine::new(ScriptedCollector(vec![delete(5)]));
        list(&mut engine, &[job()]);
        let effect = engine.poll_effect().unwrap();
        engine.finish(effect.id, &outcome);
        let Counts { done, conflicts, errors, .. } = engine.counts();
        assert_eq!((done, conflicts, errors), expected, "{outcome:?}");
    }
}

/// After a second conflict, the request is not repeated until the watch has delivered the change, which triggers it immediately.
#[test]
fn a_second_conflict_waits_for_the_watch() {
    let mut engine = Engine::new(ScriptedCollector(vec![delete(5); 5]));
    engine.tick(Timestamp(1_000));
    list(&mut engine, &[job()]);
    let mut asked = Vec::new();
    for now in 1_000..2_000 {
        engine.tick(Timestamp(now));
        if now == 1_300 {
            engine.observe(Observation::Observed(job()));
        }
        while let Some(effect) = engine.poll_effect() {
            asked.push(now);
            engine.finish(effect.id, &Outcome::Conflict);
        }
    }
    assert_eq!(asked, [1_000, 1_005, 1_255, 1_300, 1_550]);
}

/// The number of requests in flight never exceeds the limit.
#[test]
fn requests_in_flight_are_bounded() {
    let mut engine = Engine::new(ScriptedCollector(vec![delete(5); IN_FLIGHT + 2]));
    engine.observe(Observation::ListStarted(Kind::Job));
    for number in 0..=IN_FLIGHT {
        let object = json!({"metadata": {"name": format!("j{number}"), "uid": "u", "resourceVersion": "5"}});
        let facts = Facts::read(Kind::Job, object.to_string().as_bytes()).unwrap();
        engine.observe(Observation::Observed(facts));
    }
    engine.observe(Observation::Synced(Kind::Job));
    let flying: Vec<_> = std::iter::from_fn(|| engine.poll_effect()).collect();
    assert_eq!(flying.len(), IN_FLIGHT);
    engine.finish(flying[0].id, &Outcome::Applied(None));
    assert!(engine.poll_effect().is_some());
}

/// A collector that wants to delete each object once, in the lane that its label names.
#[derive(Default)]
struct InLanes {
    wanted: BTreeMap<ObjectKey, Facts>,
    flying: usize,
}

const SLOTS: usize = 2;

impl Collector for InLanes {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Job]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        if let Observation::Observed(facts) = observation {
            dirty.push(facts.key());
            self.wanted.insert(facts.key(), facts);
        }
    }

    fn decide(&mut self, key: &ObjectKey, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(facts) = self.wanted.get(key) else { return Decision::Leave };
        let request = Kind::Job.deletion(facts.meta(), PropagationPolicy::Background);
        Decision::Act(request, reason("a test says so", ResourceVersion::UNKNOWN, &[]))
    }

    fn lane(&self, request: &Request) -> Option<Lane> {
        let Request::Delete { key, .. } = request else { return None };
        Some(Lane { name: Arc::clone(&key.namespace), slots: SLOTS })
    }

    fn sending(&mut self, _key: &ObjectKey, _request: &Request, _reason: &Reason, _now: Timestamp) {
        self.flying += 1;
    }

    fn skipped(&mut self, _key: &ObjectKey, _request: &Request) {
        self.flying -= 1;
    }

    fn finished(&mut self, ended: EndedRequest<'_>, _dirty: &mut Vec<ObjectKey>) {
        self.flying -= 1;
        if matches!(ended.outcome, Outcome::Applied(_)) {
            self.wanted.remove(ended.key);
        }
    }
}

fn job_in_lane(number: u8, kept: bool, version: u64) -> Facts {
    let lane = if number.is_multiple_of(2) { "even" } else { "odd" };
    let annotations = if kept { json!({"kubegc.io/keep": "true"}) } else { json!({}) };
    let object = json!({"metadata": {"namespace": lane, "name": format!("j{number}"), "uid": format!("u{number}"),
        "resourceVersion": version.to_string(), "annotations": annotations}});
    Facts::read(Kind::Job, object.to_string().as_bytes()).unwrap()
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 300, ..Default::default() })]

    /// No lane is ever overfull, every started request ends, and every object that is no longer kept is deleted eventually,
    /// whatever is kept, withheld, refused or removed. No slot is therefore lost.
    #[test]
    fn a_lane_loses_no_slot(steps in proptest::collection::vec((0_u8..7, 0_u8..12), 0..120)) {
        let mut engine = Engine::new(InLanes::default());
        engine.observe(Observation::ListStarted(Kind::Job));
        engine.observe(Observation::Synced(Kind::Job));
        let (mut flying, mut version): (Vec<Effect>, u64) = (Vec::new(), 0);
        let mut now = 0;
        for (step, number) in steps {
            version += 1;
            now += 1;
            engine.tick(Timestamp(now));
            let failed = Outcome::Failed { message: "x".into(), retry_after_milliseconds: None };
            let which = usize::from(number).checked_rem(flying.len());
            match step {
                0 => engine.observe(Observation::Observed(job_in_lane(number, false, version))),
                1 => engine.observe(Observation::Observed(job_in_lane(number, true, version))),
                2 => {
                    let key = job_in_lane(number, false, version).key();
                    engine.collector.wanted.remove(&key);
                    engine.observe(Observation::Removed(key));
                }
                3 => if let Some(which) = which { engine.skip(flying.remove(which).id) },
                4 => if let Some(which) = which { engine.finish(flying.remove(which).id, &failed) },
                5 => if let Some(which) = which { engine.finish(flying.remove(which).id, &Outcome::Applied(None)) },
                _ => engine.release(None),
            }
            flying.extend(std::iter::from_fn(|| engine.poll_effect()));
            proptest::prop_assert_eq!(flying.len(), engine.collector.flying);
            for lane in ["even", "odd"] {
                let used = engine.flying.values().filter(|flight| *flight.key.namespace == *lane).count();
                proptest::prop_assert!(used <= SLOTS);
            }
        }
        for _ in 0..200 {
            for effect in flying.drain(..) {
                engine.finish(effect.id, &Outcome::Applied(None));
            }
            engine.release(None);
            now += LONGEST_RETRY_MILLISECONDS;
            engine.tick(Timestamp(now));
            flying.extend(std::iter::from_fn(|| engine.poll_effect()));
        }
        let left = engine.collector.wanted.values().filter(|facts| !facts.meta().keeps());
        proptest::prop_assert_eq!((left.count(), engine.collector.flying, engine.standing().waiting), (0, 0, 0));
    }
}

/// A collector that follows a script for each object, and sends one deletion at a time.
#[derive(Default)]
struct OneAtATime(BTreeMap<ObjectKey, Vec<Decision>>);

impl Collector for OneAtATime {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Job]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        if let Observation::Observed(facts) = observation {
            dirty.push(facts.key());
        }
    }

    fn decide(&mut self, key: &ObjectKey, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        match self.0.get_mut(key) {
            Some(script) if !script.is_empty() => script.remove(0),
            _ => Decision::Leave,
        }
    }

    fn lane(&self, request: &Request) -> Option<Lane> {
        request.deletes().then(|| Lane { name: "one".into(), slots: 1 })
    }
}

/// Returns an engine that has listed these jobs, each with its script.
fn one_at_a_time(scripts: &[(u8, Vec<Decision>)]) -> Engine<OneAtATime> {
    let of = |number: u8| job_in_lane(number, false, 5);
    let scripts_by_key = scripts.iter().map(|(number, script)| (of(*number).key(), script.clone()));
    let mut engine = Engine::new(OneAtATime(scripts_by_key.collect()));
    engine.observe(Observation::ListStarted(Kind::Job));
    for (number, _) in scripts {
        engine.observe(Observation::Observed(of(*number)));
    }
    engine.observe(Observation::Synced(Kind::Job));
    engine
}

fn about(number: u8, deletes: bool) -> Decision {
    let facts = job_in_lane(number, false, 5);
    act(if deletes {
        Kind::Job.deletion(facts.meta(), PropagationPolicy::Background)
    } else {
        Request::Read { key: facts.key() }
    })
}

/// An object that is gone waits for no lane.
#[test]
fn what_is_gone_does_not_wait() {
    let mut engine =
        one_at_a_time(&[(0, vec![about(0, true)]), (2, vec![about(2, true)]), (4, vec![about(4, true)])]);
    let first = engine.poll_effect().unwrap();
    assert_eq!((engine.poll_effect(), engine.standing().waiting), (None, 2));
    assert_eq!(engine.next_wakeup(), None, "there is no room");
    engine.observe(Observation::Removed(job_in_lane(2, false, 5).key()));
    assert_eq!(engine.standing().waiting, 1);
    engine.finish(first.id, &Outcome::Failed { message: "away".into(), retry_after_milliseconds: None });
    assert_eq!(engine.next_wakeup(), Some(Timestamp(0)), "there is room");
}

/// An object that was called to a lane keeps its slot while it still finds out whether it needs it.
#[test]
fn an_object_that_is_called_keeps_its_slot_while_it_asks() {
    let mut engine = one_at_a_time(&[
        (0, vec![about(0, true)]),
        (2, vec![about(2, true), about(2, false), about(2, false), Decision::Leave]),
        (4, vec![about(4, true), about(4, true)]),
    ]);
    let mut requests = Vec::new();
    while let Some(effect) = engine.poll_effect() {
        assert_eq!(engine.poll_effect(), None, "after {requests:?}");
        let (Request::Delete { key, .. } | Request::Read { key }) = &effect.request else { panic!() };
        requests.push((key.name.to_string(), effect.request.deletes()));
        engine.finish(effect.id, &Outcome::Absent);
    }
    let expected = [("j0", true), ("j2", false), ("j2", false), ("j4", true)];
    assert_eq!(requests, expected.map(|(name, deletes)| (name.to_owned(), deletes)));
}
