//! The retention collectors of a simulated collector: the real judges with their schedules, told by the same watches
//! as the ownership engine, and a ledger of what they were told and answered, which the oracles go by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use gc_registry::api::Object;
use gc_retention::certificates::CertificateCollector;
use gc_retention::engine::{Collecting, Engine, MachineState, Observation, Standing};
use gc_retention::expiry::{ExpiryEngine, FINISHING, FinishedExpiry};
use gc_retention::jobs::JobCollector;
use gc_retention::leases::LeaseCollector;
use gc_retention::nodes::{NodeLifecycle, NodePolicy};
use gc_retention::objects::{self, Facts};
use gc_retention::pods::PodCollector;
use gc_retention::volumes::{ClaimProtection, VolumeProtection};
use gc_types::{Effect, EffectId, Event, HeldBy, ObjectKey, Outcome, ResourceId, Timestamp, Uid};

use crate::defects::{Defect, Saboteur};
use crate::kinds::{KINDS, RETAINED, facts_of};
use crate::metadata::Metadata;

/// `--terminated-pod-gc-threshold` in the simulated cluster.
pub const FINISHED_PODS_KEPT: i32 = 2;

/// Who in a collector wanted something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The ownership engine.
    Ownership,
    /// The collector of pods.
    Pods,
    /// That of finished Jobs.
    Jobs,
    /// That of certificate signing requests.
    Certificates,
    /// That of leases.
    Leases,
    /// That of nodes whose machine is gone.
    Nodes,
    /// The protection of claims.
    Claims,
    /// The protection of volumes.
    Volumes,
    /// The expiry of annotated Jobs and Pods.
    Finished,
    /// The expiry of every other annotated object.
    Marked,
    /// The policies.
    Policies,
}

/// A live look at a node that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The collector's steady clock when it was decided.
    pub decided: i64,
    /// The same when the answer came.
    pub answered: i64,
    /// Whether the server said that there is no such node.
    pub absent: bool,
    /// Since when the collector had not been told of such a node, when it decided; `None` if it knew one.
    pub unknown_since: Option<i64>,
}

/// What a collector was really told and answered.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    nodes: BTreeSet<Arc<str>>,
    listed: Option<BTreeSet<Arc<str>>>,
    unknown_since: BTreeMap<Arc<str>, i64>,
    /// When it knew all nodes for the first time.
    begun: i64,
    looks: BTreeMap<(Part, Arc<str>), LookUp>,
    /// How many answers in a row said that the machine of a node is gone, and when the first of them came.
    absences: BTreeMap<Uid, (u32, i64)>,
}

impl Ledger {
    fn told(&mut self, event: &Event, clock: i64) {
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

    /// Since when a node of that name has not been known; `None` if one is.
    #[must_use]
    pub fn unknown_since(&self, name: &str) -> Option<i64> {
        (!self.nodes.contains(name)).then(|| self.unknown_since.get(name).copied().unwrap_or(self.begun))
    }

    /// A look at a node was answered.
    pub fn looked(&mut self, part: Part, name: &Arc<str>, look: LookUp) {
        self.looks.insert((part, Arc::clone(name)), look);
    }

    /// The last look of one part at each node.
    #[must_use]
    pub fn looks(&self, part: Part) -> BTreeMap<Arc<str>, LookUp> {
        let of_part = self.looks.iter().filter(|((by, _), _)| *by == part);
        of_part.map(|((_, name), look)| (Arc::clone(name), *look)).collect()
    }

    /// The provider has answered.
    pub fn machine(&mut self, node: &Uid, state: &Result<MachineState, String>, clock: i64) {
        if let Ok(MachineState::Absent) = state {
            self.absences.entry(node.clone()).or_insert((0, clock)).0 += 1;
        } else {
            self.absences.remove(node);
        }
    }

    /// How many answers in a row said that the machine of a node is gone, and when the first came.
    #[must_use]
    pub fn absences(&self, node: &Uid) -> (u32, i64) {
        self.absences.get(node).copied().unwrap_or_default()
    }
}

static FACTS: LazyLock<Vec<Option<objects::Kind>>> =
    LazyLock::new(|| (0..KINDS.len()).map(facts_of).collect());

/// All retention collectors of one collector.
pub struct Retention {
    collecting: Vec<(Part, Box<dyn Collecting>)>,
    marked: ExpiryEngine,
    /// Kinds of which a list is being told.
    listing: BTreeSet<usize>,
    /// What was really told.
    pub ledger: Ledger,
    turn: usize,
    last_machine: Option<Observation>,
}

impl std::fmt::Debug for Retention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

impl Retention {
    /// Collectors that know nothing yet.
    #[must_use]
    pub fn new(saboteur: &Saboteur) -> Self {
        let kept = FINISHED_PODS_KEPT - i32::from(saboteur.is(Defect::OnePodTooMany));
        let collecting: Vec<(Part, Box<dyn Collecting>)> = vec![
            (Part::Pods, Box::new(Engine::new(PodCollector::new(kept)))),
            (Part::Jobs, Box::new(Engine::new(JobCollector::default()))),
            (Part::Certificates, Box::new(Engine::new(CertificateCollector::default()))),
            (Part::Leases, Box::new(Engine::new(LeaseCollector::new(true)))),
            (Part::Nodes, Box::new(Engine::new(NodeLifecycle::new(NodePolicy::default())))),
            (Part::Claims, Box::new(Engine::new(ClaimProtection::default()))),
            (Part::Volumes, Box::new(Engine::new(VolumeProtection::default()))),
            (Part::Finished, Box::new(Engine::new(FinishedExpiry::default()))),
        ];
        Self {
            collecting,
            marked: ExpiryEngine::default(),
            listing: BTreeSet::new(),
            ledger: Ledger::default(),
            turn: 0,
            last_machine: None,
        }
    }

    /// A defect: the last answer about machines is told three times, over two minutes.
    pub fn insist(&mut self, now: i64) {
        let Some(last) = self.last_machine.take() else { return };
        for (_, collecting) in self.collecting.iter_mut().filter(|(part, _)| *part == Part::Nodes) {
            for minute in 1..3 {
                collecting.tick(Timestamp(now + minute * 61_000));
                collecting.observe(last.clone());
            }
        }
    }

    /// Tells the time.
    pub fn tick(&mut self, now: i64, saboteur: &Saboteur) {
        for (part, collecting) in &mut self.collecting {
            collecting.tick(Timestamp(now + saboteur.haste(*part)));
            if *part == Part::Pods && saboteur.is(Defect::QuarantineSkipped) {
                // What was to wait for forty seconds does not.
                let due = collecting.next_wakeup().filter(|due| due.0 - now <= 40_000);
                collecting.tick(due.unwrap_or_default());
            }
        }
        self.marked.handle(Event::Tick(Timestamp(now)));
    }

    /// The wall clock was set.
    pub fn set_clock(&mut self, now: i64) {
        for (_, collecting) in &mut self.collecting {
            collecting.set_clock(Timestamp(now));
        }
        self.marked.set_clock(Timestamp(now));
    }

    /// An effect of one of them is not sent for now.
    pub fn hold(&mut self, part: Part, id: EffectId) {
        if part == Part::Marked {
            self.marked.handle(Event::Done(id, Outcome::Held(HeldBy::Clock)));
        } else if let Some((_, collecting)) = self.collecting.iter_mut().find(|(known, _)| *known == part) {
            collecting.skip(id);
        }
    }

    /// What was held of a resource is decided again.
    pub fn release(&mut self, part: Part, resource: ResourceId) {
        if part == Part::Marked {
            self.marked.handle(Event::Released(Some(resource)));
        } else if let Some((_, collecting)) = self.collecting.iter_mut().find(|(known, _)| *known == part) {
            collecting.release(Some(resource));
        }
    }

    /// Tells what a watch told.
    pub fn told(
        &mut self,
        kind: usize,
        event: &Event,
        object: Option<&Object>,
        clock: i64,
        saboteur: &mut Saboteur,
    ) {
        if KINDS[kind].resource == "nodes" {
            self.ledger.told(event, clock);
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
        self.marked.handle(event.clone());
        if let (Event::Observed(observed), Some(object)) = (event, object)
            && let Some(mut marks) = Metadata::of(object).and_then(|metadata| metadata.marks())
        {
            if saboteur.is(Defect::KeepIgnored) {
                marks.keep = None;
            }
            if !marks.is_empty() {
                self.marked.handle(Event::Marked { key: observed.key.clone(), marks: marks.into() });
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
            // A watch that was resumed has listed nothing.
            Event::Synced { .. } if self.listing.remove(&kind) => Observation::Synced(facts),
            Event::Observed(_) => match object.and_then(|object| read_facts(facts, object)) {
                Some(read) => Observation::Observed(saboteur.facts(read)),
                None => return,
            },
            Event::Removed { key, .. } => Observation::Removed(facts.key(&key.namespace, &key.name)),
            _ => return,
        };
        for (_, collecting) in &mut self.collecting {
            if collecting.kinds().contains(&facts) {
                collecting.observe(observation.clone());
            }
        }
    }

    /// The next thing that one of them wants, each in turn.
    pub fn poll(&mut self, saboteur: &Saboteur) -> Option<(Part, Effect)> {
        for _ in 0..=self.collecting.len() {
            self.turn = (self.turn + 1) % (self.collecting.len() + 1);
            let Some((part, collecting)) = self.collecting.get_mut(self.turn) else {
                match self.marked.poll_effect() {
                    Some(effect) => return Some((Part::Marked, effect)),
                    None => continue,
                }
            };
            while let Some(effect) = collecting.poll_effect() {
                match saboteur.made_up(*part, &effect.request) {
                    Some(outcome) => collecting.finish(effect.id, &outcome),
                    None => return Some((*part, effect)),
                }
            }
        }
        None
    }

    /// Tells one of them what became of an effect, and what was found by it.
    pub fn answered(&mut self, part: Part, id: EffectId, found: Vec<Observation>, outcome: Outcome) {
        if part == Part::Marked {
            self.marked.handle(Event::Done(id, outcome));
            return;
        }
        if let Some((_, collecting)) = self.collecting.iter_mut().find(|(known, _)| *known == part) {
            for observation in found {
                if let Observation::Machine { .. } = observation {
                    self.last_machine = Some(observation.clone());
                }
                collecting.observe(observation);
            }
            collecting.finish(id, &outcome);
        }
    }

    /// How the queues of those stand that are about kinds of their own.
    pub fn standings(&self) -> impl Iterator<Item = (Part, Standing)> {
        self.collecting.iter().map(|(part, collecting)| (*part, collecting.standing()))
    }

    /// When one of them wants to be told the time again, if any does.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let due = self.collecting.iter().filter_map(|(_, collecting)| collecting.next_wakeup());
        due.chain(self.marked.next_wakeup()).min()
    }
}

/// What a collector reads of an object.
#[must_use]
pub fn read_facts(kind: objects::Kind, object: &Object) -> Option<Facts> {
    let mut json = Vec::new();
    object.write_json(&mut json, false).ok()?;
    Facts::read(kind, &json).ok()
}

/// The kind of facts that a key of a retention collector is of.
#[must_use]
pub fn kind_of_key(key: &ObjectKey) -> Option<objects::Kind> {
    RETAINED.into_iter().find(|kind| kind.resource() == key.resource)
}
