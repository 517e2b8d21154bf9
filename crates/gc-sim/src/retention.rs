//! The retention collectors of a simulated process: a controller for each of the real judges, fed by the same watches as the
//! owner-reference collector, and a ledger of their observations and answers, which the oracles use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use gc_collectors::certificates::CertificateCollector;
use gc_collectors::engine::{AnyCollector, CollectorState, Engine, MachineState, Observation};
use gc_collectors::expiry::{ExpiryEngine, FINISHING, FinishedExpiry};
use gc_collectors::jobs::JobCollector;
use gc_collectors::leases::LeaseCollector;
use gc_collectors::nodes::{NodeLifecycle, NodePolicy};
use gc_collectors::objects::{self, Facts};
use gc_collectors::pods::PodCollector;
use gc_collectors::volumes::{ClaimProtection, VolumeProtection};
use gc_controller::Moment;
use gc_controller::clocks::Reading;
use gc_controller::concurrency::ConcurrencyOptions;
use gc_controller::controller::{Controller, Engine as _, Rest, Step};
use gc_controller::engines::{ByEvents, ByFacts};
use gc_controller::requests::PerformedRequest;
use gc_registry::api::Object;
use gc_types::{Effect, Event, ObjectKey, ResourceId, Timestamp, Uid};

use crate::defects::Defect;
use crate::performed::Part;

use crate::kinds::{KINDS, RETAINED, facts_of, index_of};
use crate::metadata::Metadata;
use crate::process::Process;
use crate::saboteur::Saboteur;

/// `--terminated-pod-gc-threshold` in the simulated cluster.
pub const FINISHED_PODS_KEPT: i32 = 2;

/// A live read of a node that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// Time of the decision by the collector's steady clock.
    pub decided: i64,
    /// Time of the answer by the same clock.
    pub answered: i64,
    /// True if the server answered that there is no such node.
    pub absent: bool,
    /// Time since which the collector had not observed such a node when it decided; `None` if it knew one.
    pub unknown_since: Option<i64>,
}

/// True deliveries and answers to a collector.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    nodes: BTreeSet<Arc<str>>,
    listed: Option<BTreeSet<Arc<str>>>,
    unknown_since: BTreeMap<Arc<str>, i64>,
    /// Time at which it first knew all nodes.
    begun: i64,
    looks: BTreeMap<(Part, Arc<str>), LookUp>,
    /// Number of consecutive answers that the machine of a node is gone, and the time of the first.
    absences: BTreeMap<Uid, (u32, i64)>,
}

impl Ledger {
    fn record(&mut self, event: &Event, clock: i64) {
        match event {
            Event::ListStarted(_) => self.listed = Some(BTreeSet::new()),
            Event::Observed(object) => {
                self.nodes.insert(Arc::clone(&object.key.name));
                if let Some(listed) = &mut self.listed {
                    listed.insert(Arc::clone(&object.key.name));
                }
            }
            Event::Removed { key, .. } => self.lost(&key.name, clock),
            Event::Synced { .. } => {
                if let Some(listed) = self.listed.take() {
                    let lost: Vec<_> = self.nodes.difference(&listed).cloned().collect();
                    for name in lost {
                        self.lost(&name, clock);
                    }
                }
                self.begun = if self.begun == 0 { clock } else { self.begun };
            }
            _ => {}
        }
    }

    fn lost(&mut self, name: &Arc<str>, clock: i64) {
        if self.nodes.remove(name) {
            self.unknown_since.insert(Arc::clone(name), clock);
        }
    }

    /// Returns the time since which no node of that name has been known; `None` if one is known.
    #[must_use]
    pub fn unknown_since(&self, name: &str) -> Option<i64> {
        (!self.nodes.contains(name)).then(|| self.unknown_since.get(name).copied().unwrap_or(self.begun))
    }

    /// Records an answered live read of a node.
    pub fn looked(&mut self, part: Part, name: &Arc<str>, look: LookUp) {
        self.looks.insert((part, Arc::clone(name)), look);
    }

    /// Returns the last live read of each node by one part.
    #[must_use]
    pub fn looks(&self, part: Part) -> BTreeMap<Arc<str>, LookUp> {
        let of_part = self.looks.iter().filter(|((by, _), _)| *by == part);
        of_part.map(|((_, name), look)| (Arc::clone(name), *look)).collect()
    }

    /// Records an answer of the provider.
    pub fn machine(&mut self, node: &Uid, state: &Result<MachineState, String>, clock: i64) {
        if let Ok(MachineState::Absent) = state {
            self.absences.entry(node.clone()).or_insert((0, clock)).0 += 1;
        } else {
            self.absences.remove(node);
        }
    }

    /// Returns the number of consecutive answers that the machine of the node is gone, and the time of the first.
    #[must_use]
    pub fn absences(&self, node: &Uid) -> (u32, i64) {
        self.absences.get(node).copied().unwrap_or_default()
    }
}

static FACTS: LazyLock<Vec<Option<objects::Kind>>> =
    LazyLock::new(|| (0..KINDS.len()).map(facts_of).collect());

/// One retention collector.
struct One {
    part: Part,
    controller: Controller<ByFacts<dyn AnyCollector>>,
    /// Result of its last turn.
    rest: Rest,
}

/// All retention collectors of one process.
pub struct Retention {
    collecting: Vec<One>,
    marked: Controller<ByEvents<ExpiryEngine>>,
    marked_rest: Rest,
    /// Kinds of the resources of annotated objects, as the owner-reference collector numbers them.
    kinds: BTreeMap<ResourceId, usize>,
    /// Kinds whose list is being delivered.
    listing: BTreeSet<usize>,
    /// True deliveries.
    pub ledger: Ledger,
    turn: usize,
    last_machine: Option<Observation>,
}

impl std::fmt::Debug for Retention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

/// Request of a retention collector: its part, the number with its controller, and the effect.
pub type WantedRequest = (Part, u64, Effect);

/// Returns the kind of a retention collector's resource number.
fn kind_of_facts(resource: ResourceId) -> Option<usize> {
    RETAINED.into_iter().find(|kind| kind.resource() == resource).and_then(index_of)
}

impl Retention {
    /// Creates the collectors, which know nothing yet.
    #[must_use]
    pub fn new(concurrency: ConcurrencyOptions, saboteur: &Saboteur) -> Self {
        let kept = FINISHED_PODS_KEPT - i32::from(saboteur.is(Defect::OnePodTooMany));
        let judges: [(Part, Box<dyn AnyCollector>); 8] = [
            (Part::Pods, Box::new(Engine::new(PodCollector::new(kept)))),
            (Part::Jobs, Box::new(Engine::new(JobCollector::default()))),
            (Part::Certificates, Box::new(Engine::new(CertificateCollector::default()))),
            (Part::Leases, Box::new(Engine::new(LeaseCollector::new(true)))),
            (Part::Nodes, Box::new(Engine::new(NodeLifecycle::new(NodePolicy::default())))),
            (Part::Claims, Box::new(Engine::new(ClaimProtection::default()))),
            (Part::Volumes, Box::new(Engine::new(VolumeProtection::default()))),
            (Part::Finished, Box::new(Engine::new(FinishedExpiry::default()))),
        ];
        let one = |(part, judge)| One {
            part,
            controller: Controller::new(ByFacts(judge), concurrency),
            rest: Rest::Idle,
        };
        Self {
            collecting: judges.into_iter().map(one).collect(),
            marked: Controller::new(ByEvents(ExpiryEngine::default()), concurrency).with_barriers(),
            marked_rest: Rest::Idle,
            kinds: BTreeMap::new(),
            listing: BTreeSet::new(),
            ledger: Ledger::default(),
            turn: 0,
            last_machine: None,
        }
    }

    /// With a defect, gives the last answer about machines three times over two minutes.
    pub fn insist(&mut self, now: i64) {
        let Some(last) = self.last_machine.take() else { return };
        for one in self.collecting.iter_mut().filter(|one| one.part == Part::Nodes) {
            let engine = one.controller.engine_mut();
            for minute in 1..3 {
                engine.0.tick(Timestamp(now + minute * 61_000));
                engine.0.observe(last.clone());
            }
        }
    }

    /// Sets the time.
    pub fn tick(&mut self, reading: Reading, steady: Timestamp, process: &Process, saboteur: &Saboteur) {
        let around = process.around(&kind_of_facts).ticking();
        for One { part, controller, .. } in &mut self.collecting {
            let reading = ahead(reading, saboteur.haste(*part));
            controller.tick(reading, steady, &around);
            if *part == Part::Pods && saboteur.is(Defect::QuarantineSkipped) {
                // The defect skips the wait of forty seconds.
                let now = controller.now().0;
                let engine = controller.engine_mut();
                let due = engine.next_wakeup(&|_| true).filter(|due| due.0 - now <= 40_000);
                engine.0.tick(due.unwrap_or_default());
            }
        }
        let kinds = &self.kinds;
        let kind_of = |resource: ResourceId| kinds.get(&resource).copied();
        let reading = ahead(reading, saboteur.haste(Part::Marked));
        self.marked.tick(reading, steady, &process.around(&kind_of).ticking());
    }

    /// Applies a change of the breaker: withheld effects are decided again.
    pub fn breaker_changed(&mut self, process: &Process) {
        let around = process.around(&kind_of_facts);
        for One { controller, .. } in &mut self.collecting {
            controller.breaker_changed(&around);
        }
        let kinds = &self.kinds;
        let kind_of = |resource: ResourceId| kinds.get(&resource).copied();
        self.marked.breaker_changed(&process.around(&kind_of));
    }

    /// Sets new bounds of the concurrency limit.
    pub fn set_concurrency(&mut self, concurrency: ConcurrencyOptions) {
        for One { controller, .. } in &mut self.collecting {
            controller.set_concurrency(concurrency);
        }
        self.marked.set_concurrency(concurrency);
    }

    /// Takes a delivery of a watch.
    pub fn observe(
        &mut self,
        kind: usize,
        event: &Event,
        object: Option<&Object>,
        clock: i64,
        saboteur: &mut Saboteur,
    ) {
        if KINDS[kind].resource == "nodes" {
            self.ledger.record(event, clock);
        }
        if let Event::Observed(object) = event {
            self.kinds.insert(object.key.resource, kind);
        }
        let row = &KINDS[kind];
        if !FINISHING.contains(&(row.group, row.resource)) {
            self.tell_marked(event, object, saboteur);
        }
        if let Some(facts) = FACTS[kind] {
            self.tell_facts(kind, facts, event, object, saboteur);
        }
    }

    fn tell_marked(&mut self, event: &Event, object: Option<&Object>, saboteur: &Saboteur) {
        if !matches!(
            event,
            Event::ListStarted(_)
                | Event::Synced { .. }
                | Event::Observed(_)
                | Event::Removed { .. }
                | Event::ResourceGone(_)
        ) {
            return;
        }
        self.marked.engine_mut().0.handle(event.clone());
        if let (Event::Observed(observed), Some(object)) = (event, object)
            && let Some(mut marks) = Metadata::of(object).and_then(|metadata| metadata.marks())
        {
            if saboteur.is(Defect::KeepIgnored) {
                marks.keep = None;
            }
            if !marks.is_empty() {
                self.marked
                    .engine_mut()
                    .0
                    .handle(Event::Marked { key: observed.key.clone(), marks: marks.into() });
            }
        }
    }

    fn tell_facts(
        &mut self,
        kind: usize,
        facts: objects::Kind,
        event: &Event,
        object: Option<&Object>,
        saboteur: &mut Saboteur,
    ) {
        let observation = match event {
            Event::ListStarted(_) => {
                self.listing.insert(kind);
                Observation::ListStarted(facts)
            }
            // A resumed watch has listed nothing.
            Event::Synced { .. } if self.listing.remove(&kind) => Observation::Synced(facts),
            Event::Observed(observed) => match object.and_then(|object| read_facts(facts, object)) {
                Some(mut read) => {
                    // A liar may list it under another UID.
                    read.meta_mut().uid = observed.uid.clone();
                    Observation::Observed(saboteur.facts(read))
                }
                None => return,
            },
            Event::Removed { key, .. } => Observation::Removed(facts.key(&key.namespace, &key.name)),
            _ => return,
        };
        for One { controller, .. } in &mut self.collecting {
            let engine = controller.engine_mut();
            if engine.0.kinds().contains(&facts) {
                engine.0.observe(observation.clone());
            }
        }
    }

    /// Polls the collectors for effects, each in turn, at most `most` in all.
    pub fn act(
        &mut self,
        most: usize,
        moment: Moment,
        process: &Process,
        saboteur: &Saboteur,
    ) -> Vec<WantedRequest> {
        let mut wanted = Vec::new();
        let begun = process.decided();
        let mut idle = 0;
        while idle <= self.collecting.len() && process.decided() - begun < most {
            let before = process.decided();
            self.turn = (self.turn + 1) % (self.collecting.len() + 1);
            self.act_one(moment, process, saboteur, &mut wanted);
            idle = if process.decided() == before { idle + 1 } else { 0 };
        }
        wanted
    }

    /// Polls the next collector for one effect.
    fn act_one(
        &mut self,
        moment: Moment,
        process: &Process,
        saboteur: &Saboteur,
        wanted: &mut Vec<WantedRequest>,
    ) {
        let Some(One { part, controller, rest }) = self.collecting.get_mut(self.turn) else {
            let kinds = &self.kinds;
            let kind_of = |resource: ResourceId| kinds.get(&resource).copied();
            self.marked_rest = self.marked.act(moment, 1, &process.around(&kind_of));
            while let Some(step) = self.marked.poll_step() {
                wanted.extend(sent(Part::Marked, &self.marked, &step));
            }
            return;
        };
        let around = process.around(&kind_of_facts);
        *rest = controller.act(moment, 1, &around);
        while let Some(step) = controller.poll_step() {
            let Some((part, number, effect)) = sent(*part, controller, &step) else { continue };
            match saboteur.made_up(part, &effect.request) {
                Some(outcome) => {
                    let performed = PerformedRequest::without_a_call(outcome);
                    controller.finished(number, performed, None, moment, &around);
                }
                None => wanted.push((part, number, effect)),
            }
        }
    }

    /// Takes the result of a collector's request.
    pub fn finished(
        &mut self,
        (part, number): (Part, u64),
        found: Vec<Observation>,
        performed: PerformedRequest,
        moment: Moment,
        process: &Process,
    ) {
        if part == Part::Marked {
            let kinds = &self.kinds;
            let kind_of = |resource: ResourceId| kinds.get(&resource).copied();
            self.marked.finished(number, performed, None, moment, &process.around(&kind_of));
            return;
        }
        if let Some(One { controller, .. }) = self.collecting.iter_mut().find(|one| one.part == part) {
            for observation in found {
                if let Observation::Machine { .. } = observation {
                    self.last_machine = Some(observation.clone());
                }
                controller.engine_mut().0.observe(observation);
            }
            controller.finished(number, performed, None, moment, &process.around(&kind_of_facts));
        }
    }

    /// Iterates over the queue states of the parts with their own kinds.
    pub fn standings(&self) -> impl Iterator<Item = (Part, CollectorState)> {
        self.collecting.iter().map(|one| (one.part, one.controller.engine().0.standing()))
    }

    /// Returns the time at which a collector has something to do again, if any does.
    #[must_use]
    pub fn next_due(&self, moment: Moment, process: &Process) -> Option<Moment> {
        let around = process.around(&kind_of_facts);
        let due = self.collecting.iter().filter_map(|one| one.controller.next_due(one.rest, moment, &around));
        let kinds = &self.kinds;
        let kind_of = |resource: ResourceId| kinds.get(&resource).copied();
        let marked = self.marked.next_due(self.marked_rest, moment, &process.around(&kind_of));
        due.chain(marked).min()
    }
}

/// Returns a reading of a clock that is this much ahead.
fn ahead(reading: Reading, by: i64) -> Reading {
    match reading {
        Reading::Passed(now) => Reading::Passed(now.after(by)),
        Reading::Set { expected, now } => Reading::Set { expected: expected.after(by), now: now.after(by) },
    }
}

/// Returns the request of a step, if any.
fn sent<E: gc_controller::controller::Engine>(
    part: Part,
    controller: &Controller<E>,
    step: &Step,
) -> Option<WantedRequest> {
    let Step::Send { number, .. } = step else { return None };
    let flight = controller.flight(*number)?;
    Some((part, *number, flight.effect.clone()))
}

/// Returns a collector's facts about an object.
#[must_use]
pub fn read_facts(kind: objects::Kind, object: &Object) -> Option<Facts> {
    let mut json = Vec::new();
    object.write_json(&mut json, false).ok()?;
    Facts::read(kind, &json).ok()
}

/// Returns the kind of facts for a key of a retention collector.
#[must_use]
pub fn kind_of_key(key: &ObjectKey) -> Option<objects::Kind> {
    RETAINED.into_iter().find(|kind| kind.resource() == key.resource)
}
