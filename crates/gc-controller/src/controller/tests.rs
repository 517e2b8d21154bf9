#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use gc_types::{Evidence, PropagationPolicy, Reason, ResourceVersion, Severity, Uid, Verdict, codes};

use super::*;
use crate::breaker::BreakerOptions;

const PODS: ResourceId = ResourceId(1);
const JOBS: ResourceId = ResourceId(2);

/// An engine that requests the given effects, and requests withheld ones again when they are released.
#[derive(Debug, Default)]
struct WantingEngine {
    wanted: VecDeque<Request>,
    /// True if each is requested because of its age.
    timed: bool,
    /// True if it first asks whether anything may be deleted.
    asks: bool,
    flying: BTreeMap<EffectId, Request>,
    held: Vec<Request>,
    outcomes: Vec<Outcome>,
    set_to: Vec<Timestamp>,
    due: Option<Timestamp>,
    /// Evidence of each request.
    evidence: Vec<Evidence>,
}

impl Engine for WantingEngine {
    type Origin = &'static str;

    fn tick(&mut self, _now: Timestamp, _steady: Timestamp) {}

    fn set_clock(&mut self, now: Timestamp) {
        self.set_to.push(now);
    }

    fn poll_effect(&mut self, may_delete: &dyn Fn(ResourceId) -> bool) -> Option<(&'static str, Effect)> {
        let next = self.wanted.front()?;
        if self.asks && !changed_resource(next).is_none_or(may_delete) {
            return None;
        }
        let request = self.wanted.pop_front()?;
        let id = EffectId(self.outcomes.len() as u64 + self.flying.len() as u64);
        self.flying.insert(id, request.clone());
        let verdict = if self.timed { Verdict::Retention(codes::TIMED[0]) } else { Verdict::OwnersAbsent };
        Some((
            "one",
            Effect {
                id,
                request,
                reason: Reason { verdict, owners: vec![], evidence: self.evidence.clone() },
            },
        ))
    }

    fn finish(&mut self, origin: &&'static str, id: EffectId, outcome: Outcome) {
        assert_eq!(*origin, "one");
        let request = self.flying.remove(&id).unwrap();
        if let Outcome::Withheld(_) = outcome {
            self.held.push(request);
        }
        self.outcomes.push(outcome);
    }

    fn release(&mut self, resource: Option<ResourceId>) {
        let released = self.held.extract_if(.., |request| {
            resource.is_none_or(|resource| changed_resource(request) == Some(resource))
        });
        self.wanted.extend(released);
    }

    fn next_wakeup(&self, _may_delete: &dyn Fn(ResourceId) -> bool) -> Option<Timestamp> {
        self.due
    }

    fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
        None
    }
}

/// Restraints of the controller, and the number of reports to it.
pub(crate) struct World {
    pub(crate) is_held: Cell<bool>,
    pub(crate) dry_run: Cell<Option<WithheldBy>>,
    pub(crate) clocks_disagree: Cell<bool>,
    pub(crate) breaker: RefCell<Breaker>,
    pub(crate) reports: RefCell<Vec<&'static str>>,
}

impl World {
    pub(crate) fn new(largest_number: u64) -> Self {
        let options = BreakerOptions { largest_number: Some(largest_number), ..BreakerOptions::default() };
        Self {
            is_held: Cell::new(false),
            dry_run: Cell::new(None),
            clocks_disagree: Cell::new(false),
            breaker: RefCell::new(Breaker::new(options)),
            reports: RefCell::default(),
        }
    }
}

impl Surroundings for World {
    fn is_held(&self) -> bool {
        self.is_held.get()
    }

    fn dry_run(&self) -> Option<WithheldBy> {
        self.dry_run.get()
    }

    fn clocks_disagree(&self) -> bool {
        self.clocks_disagree.get()
    }

    fn ask_breaker<T>(&self, ask: impl FnOnce(&mut Breaker) -> T) -> Option<T> {
        Some(ask(&mut self.breaker.borrow_mut()))
    }

    fn resource_name(&self, resource: ResourceId) -> Option<Arc<str>> {
        Some(if resource == PODS { "pods".into() } else { "jobs.batch".into() })
    }

    fn decided(&self, _effect: &Effect) {
        self.reports.borrow_mut().push("decided");
    }

    fn finished(&self, _effect: &Effect, _outcome: &Outcome, _round_trips: u32, _took: Duration) {
        self.reports.borrow_mut().push("finished");
    }

    fn tripped(&self, _trip: &Trip) {
        self.reports.borrow_mut().push("tripped");
    }
}

fn key(resource: ResourceId) -> ObjectKey {
    ObjectKey { resource, namespace: "shop".into(), name: "web".into() }
}

fn delete(resource: ResourceId) -> Request {
    Request::Delete {
        key: key(resource),
        uid: Uid::new("u"),
        resource_version: Some(ResourceVersion(1)),
        policy: PropagationPolicy::Background,
    }
}

fn barrier(at_least: u64) -> Request {
    Request::Barrier { resource: PODS, namespace: None, at_least: ResourceVersion(at_least) }
}

fn controller(wanted: impl IntoIterator<Item = Request>) -> Controller<WantingEngine> {
    let engine = WantingEngine { wanted: wanted.into_iter().collect(), ..WantingEngine::default() };
    Controller::new(engine, ConcurrencyOptions::default())
}

fn at(milliseconds: u64) -> Moment {
    Moment::from_start(Duration::from_millis(milliseconds))
}

fn sent(controller: &mut Controller<WantingEngine>) -> Vec<Request> {
    let steps = std::iter::from_fn(|| controller.poll_step());
    steps
        .map(|step| match step {
            Step::Send { request, .. } => request,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn answered(outcome: Outcome) -> PerformedRequest {
    PerformedRequest { outcome, signal: Signal::Answered, round_trips: 1 }
}

/// Each restraint alone withholds a deletion; withheld ones are sent when the restraint ends.
#[test]
fn every_restraint_holds_a_deletion_until_it_ends() {
    struct Case {
        name: &'static str,
        set: fn(&World, bool),
        by: Option<WithheldBy>,
        reads_pass: bool,
    }
    let cases = [
        Case { name: "held", set: |world, on| world.is_held.set(on), by: None, reads_pass: false },
        Case {
            name: "dry run",
            set: |world, on| world.dry_run.set(on.then_some(WithheldBy::DryRun)),
            by: Some(WithheldBy::DryRun),
            reads_pass: true,
        },
        Case {
            name: "clocks",
            set: |world, on| world.clocks_disagree.set(on),
            by: Some(WithheldBy::Clock),
            reads_pass: true,
        },
        Case {
            name: "breaker",
            set: |world, on| {
                let mut breaker = world.breaker.borrow_mut();
                if on {
                    breaker.stop(Trip { resource: "pods".into(), since: Timestamp(0), why: "test".into() });
                } else {
                    breaker.resume("pods");
                }
            },
            by: Some(WithheldBy::Breaker),
            reads_pass: true,
        },
    ];
    for Case { name, set, by, reads_pass } in cases {
        let world = World::new(100);
        let read = Request::Read { key: key(PODS) };
        let mut controller = controller([delete(PODS), read.clone()]);
        controller.engine.timed = true;
        set(&world, true);
        controller.tick(Reading::Passed(Timestamp(1)), Timestamp(1), &world);
        assert_eq!(controller.act(at(1), 9, &world), Rest::Idle, "{name}");
        let passed = if reads_pass { vec![read.clone()] } else { Vec::new() };
        assert_eq!(sent(&mut controller), passed, "{name}");
        let held: Vec<Outcome> = by.into_iter().map(Outcome::Withheld).collect();
        assert_eq!(controller.engine.outcomes, held, "{name}");
        set(&world, false);
        controller.tick(Reading::Passed(Timestamp(2)), Timestamp(2), &world);
        controller.breaker_changed(&world);
        controller.dry_run_changed(&world);
        controller.act(at(2), 9, &world);
        let mut expected = vec![delete(PODS)];
        expected.extend((!reads_pass).then_some(read));
        assert_eq!(sent(&mut controller), expected, "{name}");
    }
}

/// An engine that asks first requests nothing of stopped resources, so nothing of them is withheld.
#[test]
fn an_engine_can_ask_what_may_be_deleted() {
    let world = World::new(100);
    let mut controller = controller([delete(PODS)]);
    controller.engine.asks = true;
    world.clocks_disagree.set(true);
    controller.act(at(1), 9, &world);
    assert_eq!((sent(&mut controller), controller.engine.outcomes.len()), (vec![], 0));
    world.clocks_disagree.set(false);
    controller.act(at(2), 9, &world);
    assert_eq!(sent(&mut controller), [delete(PODS)]);
}

/// A deletion that the server did not execute is not counted; a trip is reported once, and stops only its resource.
#[test]
fn the_breaker_counts_what_was_done() {
    let world = World::new(1);
    let mut controller = controller([delete(PODS)]);
    controller.act(at(1), 9, &world);
    sent(&mut controller);
    controller.finished(0, answered(Outcome::Conflict), None, at(2), &world);
    controller.engine.wanted.extend([delete(PODS), delete(PODS), delete(PODS), delete(JOBS)]);
    controller.act(at(3), 9, &world);
    assert_eq!(sent(&mut controller), [delete(PODS), delete(JOBS)]);
    let held = Outcome::Withheld(WithheldBy::Breaker);
    assert_eq!(controller.engine.outcomes, [Outcome::Conflict, held.clone(), held]);
    let trips = world.reports.borrow().iter().filter(|report| **report == "tripped").count();
    assert_eq!(trips, 1);
}

/// The concurrency limit is consulted before anything is decided.
#[test]
fn nothing_is_decided_that_cannot_be_sent() {
    let world = World::new(100);
    let concurrency =
        ConcurrencyOptions { initial: 1, smallest: 1, largest: 1, ..ConcurrencyOptions::default() };
    let engine = WantingEngine { wanted: [delete(PODS), delete(JOBS)].into(), ..WantingEngine::default() };
    let mut controller = Controller::new(engine, concurrency);
    assert_eq!(controller.act(at(1), 9, &world), Rest::Full(None));
    assert_eq!((sent(&mut controller), controller.engine.wanted.len()), (vec![delete(PODS)], 1));
    let busy = PerformedRequest {
        outcome: Outcome::Failed { message: "429".into(), retry_after_milliseconds: Some(1_000) },
        signal: Signal::Busy(Some(Duration::from_secs(1))),
        round_trips: 1,
    };
    controller.finished(0, busy, None, at(5), &world);
    assert_eq!(controller.act(at(6), 9, &world), Rest::Full(Some(at(1_005))));
    assert_eq!(controller.next_wake(Rest::Full(Some(at(700))), at(6), &world), at(700));
    assert_eq!(controller.act(at(1_005), 9, &world), Rest::Full(None));
    assert_eq!(sent(&mut controller), [delete(JOBS)]);
}

#[test]
fn a_barrier_ends_with_its_watch_or_with_a_list() {
    let world = World::new(100);
    let mut controller = controller([barrier(7), barrier(0), barrier(0)]).with_barriers();
    controller.act(at(1), 9, &world);
    let Some(Step::List(list)) = controller.poll_step() else { panic!("no list") };
    assert_eq!((list.number, list.not_older_than, controller.poll_step()), (0, None, None), "they share one");
    controller.delivered(&Event::Progress { resource: PODS, resource_version: ResourceVersion(7) });
    controller.act(at(2), 9, &world);
    assert_eq!(controller.engine.outcomes, [Outcome::Applied(None)]);
    assert_eq!(controller.concurrency().in_flight, 1);
    controller.listed(0, ListEnd::Complete, Some(Signal::Answered), at(9), &world);
    assert_eq!(controller.engine.outcomes, vec![Outcome::Applied(None); 3]);
    assert_eq!(controller.concurrency().in_flight, 0);
}

/// The response to a list may already be in flight when its barrier ends otherwise.
#[test]
fn a_busy_server_is_left_alone_although_the_list_was_cancelled() {
    let world = World::new(100);
    let mut controller = controller([barrier(7)]).with_barriers();
    controller.act(at(1), 9, &world);
    controller.act(at(60_000), 9, &world);
    let Some(Step::List(list)) = controller.poll_step() else { panic!("no list") };
    controller.delivered(&Event::Progress { resource: PODS, resource_version: ResourceVersion(7) });
    controller.engine.wanted.push_back(delete(PODS));
    let failed = ListEnd::Failed("429".into());
    let busy = Signal::Busy(Some(Duration::from_secs(1)));
    controller.end_reached(at(60_001), &world);
    assert_eq!(controller.poll_step(), Some(Step::CancelList(list.number)));
    controller.listed(list.number, failed, Some(busy), at(60_002), &world);
    assert_eq!(controller.act(at(60_003), 9, &world), Rest::Full(Some(at(61_002))));
    assert_eq!((sent(&mut controller), controller.concurrency().in_flight), (vec![], 0));
}

/// Without barriers of its own, a controller sends them as requests.
#[test]
fn a_barrier_can_be_a_request() {
    let world = World::new(100);
    let mut controller = controller([barrier(7)]);
    controller.act(at(1), 9, &world);
    assert_eq!(sent(&mut controller), [barrier(7)]);
}

#[test]
fn a_note_is_written_at_once_and_not_in_a_dry_run() {
    let note = EventRecord {
        about: key(PODS),
        uid: Uid::new("u"),
        severity: Severity::Normal,
        reason: "Test",
        message: "m".into(),
    };
    for (dry_run, steps, outcome) in [
        (None, vec![Step::RecordEvent(note.clone())], Outcome::Applied(None)),
        (Some(WithheldBy::DryRun), vec![], Outcome::Withheld(WithheldBy::DryRun)),
    ] {
        let world = World::new(100);
        world.dry_run.set(dry_run);
        let mut controller = controller([Request::RecordEvent(note.clone())]);
        controller.act(at(1), 9, &world);
        let made: Vec<Step> = std::iter::from_fn(|| controller.poll_step()).collect();
        assert_eq!((made, &controller.engine.outcomes[..]), (steps, &[outcome][..]));
    }
}

#[test]
fn an_engine_learns_that_its_clock_was_set() {
    let world = World::new(100);
    let mut controller = controller([]);
    let reading = Reading::Set { expected: Timestamp(9), now: Timestamp(5) };
    controller.tick(reading, Timestamp(70), &world);
    assert_eq!((controller.now(), &controller.engine.set_to[..]), (Timestamp(5), &[Timestamp(5)][..]));
}

#[test]
fn it_wakes_for_what_is_due_unless_it_is_held() {
    let world = World::new(100);
    let mut controller = controller([]);
    controller.tick(Reading::Passed(Timestamp(1_000)), Timestamp(0), &world);
    for (due, held, expected) in [
        (None, false, 1_100),
        (Some(1_250), false, 350),
        (Some(900), false, 101),
        (Some(9_000), false, 1_100),
        (Some(1_250), true, 1_100),
    ] {
        controller.engine.due = due.map(Timestamp);
        world.is_held.set(held);
        assert_eq!(controller.next_wake(Rest::Idle, at(100), &world), at(expected), "{due:?}");
    }
}

/// Withheld effects stay so while their restraint lasts, and each resource is released for itself.
#[test]
fn nothing_is_decided_again_while_its_restraint_lasts() {
    let decided = |world: &World| world.reports.take().iter().filter(|report| **report == "decided").count();
    let world = World::new(100);
    let mut clocks = controller([delete(PODS)]);
    clocks.engine.timed = true;
    world.clocks_disagree.set(true);
    for (now, disagree, expected) in [(1, true, 1), (2, true, 0), (3, false, 1), (4, false, 0)] {
        world.clocks_disagree.set(disagree);
        clocks.tick(Reading::Passed(Timestamp(now)), Timestamp(now), &world);
        clocks.act(at(1), 9, &world);
        assert_eq!(decided(&world), expected, "at {now}");
    }
    let mut stopped = controller([delete(PODS), delete(JOBS)]);
    for resource in ["pods", "jobs.batch"] {
        let trip = Trip { resource: resource.into(), since: Timestamp(0), why: "test".into() };
        world.breaker.borrow_mut().stop(trip);
    }
    stopped.act(at(1), 9, &world);
    assert_eq!((decided(&world), sent(&mut stopped)), (2, vec![]));
    world.breaker.borrow_mut().resume("jobs.batch");
    for expected in [vec![delete(JOBS)], vec![]] {
        stopped.breaker_changed(&world);
        stopped.act(at(2), 9, &world);
        assert_eq!((decided(&world), sent(&mut stopped)), (expected.len(), expected));
    }
}

/// If every owner vanished from one list at once, what they own is kept until an operator resumes their resource.
#[test]
fn dependents_of_owners_that_vanished_together_are_withheld() {
    let world = World::new(100);
    let mut controller = controller([delete(PODS), delete(PODS)]);
    controller.engine.evidence = vec![Evidence::KindVanished { resource: JOBS, at: Timestamp(5) }];
    controller.act(at(1), 9, &world);
    assert_eq!(sent(&mut controller), []);
    assert_eq!(controller.engine.outcomes, vec![Outcome::Withheld(WithheldBy::Breaker); 2]);
    assert_eq!(world.reports.take().iter().filter(|report| **report == "tripped").count(), 1);
    let tripped: Vec<Arc<str>> =
        world.breaker.borrow().tripped().into_iter().map(|trip| trip.resource).collect();
    assert_eq!(tripped, ["jobs.batch".into()]);
    world.breaker.borrow_mut().resume("jobs.batch");
    controller.breaker_changed(&world);
    controller.act(at(2), 9, &world);
    assert_eq!(sent(&mut controller), [delete(PODS), delete(PODS)]);
}

/// The storage of a stopped resource is not deleted, but looked up.
#[test]
fn storage_of_a_stopped_resource_is_kept() {
    use gc_types::Storage;
    let world = World::new(100);
    let outside = |call| Request::Outside {
        key: key(PODS),
        uid: Uid::new("u"),
        resource_version: ResourceVersion(1),
        call,
    };
    let destroy = outside(OutsideCall::DeleteStorage(Box::new(Storage::HostPath { path: "/data".into() })));
    let mut controller = controller([destroy.clone()]);
    world.breaker.borrow_mut().stop(Trip {
        resource: "pods".into(),
        since: Timestamp(0),
        why: "test".into(),
    });
    controller.act(at(1), 9, &world);
    assert_eq!(controller.engine.outcomes, [Outcome::Withheld(WithheldBy::Breaker)]);
    world.breaker.borrow_mut().resume("pods");
    controller.breaker_changed(&world);
    controller.act(at(2), 9, &world);
    assert_eq!(sent(&mut controller), [destroy]);
}

/// Requests have numbers of their own; the observers, but not the engine, learn what a deletion left of its object.
#[test]
fn each_request_in_flight_has_its_number_until_its_outcome() {
    let world = World::new(100);
    let release = Request::SetOwners {
        key: key(PODS),
        uid: Uid::new("u"),
        resource_version: ResourceVersion(1),
        remaining: vec![],
    };
    let mut controller = controller([delete(PODS), delete(JOBS), release.clone()]);
    controller.act(at(1), 9, &world);
    let numbers: Vec<u64> = std::iter::from_fn(|| controller.poll_step())
        .filter_map(|step| if let Step::Send { number, .. } = step { Some(number) } else { None })
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
    let flying = |controller: &Controller<WantingEngine>| {
        [0, 1, 2].map(|number| controller.flight(number).map(|flight| flight.effect.request.clone()))
    };
    assert_eq!(flying(&controller), [Some(delete(PODS)), Some(delete(JOBS)), Some(release.clone())]);
    let object = gc_types::ObservedObject {
        key: key(PODS),
        uid: Uid::new("u"),
        resource_version: ResourceVersion(2),
        owners: [].into_iter().collect(),
        deletion: gc_types::DeletionState::default(),
        recreator: None,
    };
    for number in [0, 2] {
        controller.finished(number, answered(Outcome::Applied(Some(object.clone()))), None, at(3), &world);
    }
    assert_eq!(flying(&controller), [None, Some(delete(JOBS)), None]);
    assert_eq!(controller.engine.outcomes, [Outcome::Applied(None), Outcome::Applied(Some(object))]);
    assert_eq!(controller.concurrency().in_flight, 1);
}

#[test]
fn the_concurrency_limit_can_be_changed() {
    let world = World::new(100);
    let mut controller = controller(std::iter::repeat_n(delete(PODS), 40));
    let largest = |largest| ConcurrencyOptions { largest, ..ConcurrencyOptions::default() };
    controller.set_concurrency(largest(3));
    assert_eq!((controller.act(at(1), 99, &world), sent(&mut controller).len()), (Rest::Full(None), 3));
}

/// A request of several calls, or a list of several pages, is as slow as one of them on average; other servers do not count.
#[test]
fn the_latency_is_that_of_one_call() {
    let world = World::new(100);
    let milliseconds = Duration::from_millis;
    for (round_trips, server_took, expected) in
        [(1, None, 400), (4, None, 100), (2, Some(60), 30), (0, None, 400)]
    {
        let mut controller = controller(std::iter::repeat_n(delete(PODS), 40));
        controller.set_concurrency(ConcurrencyOptions { largest: 10, ..ConcurrencyOptions::default() });
        controller.act(at(1_000), 99, &world);
        for number in 0..10 {
            let performed = PerformedRequest { round_trips, ..answered(Outcome::Applied(None)) };
            controller.finished(number, performed, server_took.map(milliseconds), at(1_400), &world);
        }
        assert_eq!(controller.concurrency().latency, milliseconds(expected), "{round_trips} {server_took:?}");
    }
    for pages in [1, 4] {
        let mut controller = controller([]).with_barriers();
        controller.set_concurrency(ConcurrencyOptions { largest: 1, ..ConcurrencyOptions::default() });
        for number in 0..10 {
            controller.engine.wanted.push_back(barrier(0));
            let begun = 10_000 * (number + 1);
            controller.act(at(begun), 99, &world);
            let Some(Step::List(list)) = controller.poll_step() else { panic!("no list") };
            assert_eq!(list.number, number);
            for _ in 1..pages {
                controller.list_continued(number);
            }
            controller.listed(number, ListEnd::Complete, Some(Signal::Answered), at(begun + 400), &world);
        }
        assert_eq!(controller.concurrency().latency, milliseconds(400 / pages), "{pages} pages");
    }
}

/// A status may be written unless everything is held or only rehearsed.
#[test]
fn what_may_be_written_besides_effects() {
    for (held, dry_run, may) in [
        (false, None, true),
        (true, None, false),
        (false, Some(WithheldBy::DryRun), false),
        (true, Some(WithheldBy::DryRun), false),
    ] {
        let world = World::new(100);
        world.is_held.set(held);
        world.dry_run.set(dry_run);
        assert_eq!(Controller::<WantingEngine>::may_write(&world), may, "{held} {dry_run:?}");
    }
}

/// While clocks disagree, they are compared again soon.
#[test]
fn it_wakes_to_compare_the_clocks() {
    let world = World::new(100);
    let mut controller = controller([delete(PODS)]);
    controller.engine.timed = true;
    assert_eq!(controller.next_due(Rest::Idle, at(1), &world), None);
    world.clocks_disagree.set(true);
    controller.act(at(1), 9, &world);
    assert_eq!(controller.next_due(Rest::Idle, at(1), &world), Some(at(1).after(LONGEST_SLEEP)));
}
