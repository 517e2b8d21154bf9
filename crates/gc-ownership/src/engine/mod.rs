//! The cascade engine: events in, effects out.

mod absent;
mod barriers;
mod config;
mod lanes;
mod observe;
mod outcomes;
mod retry;
mod ring;
mod verdict;
mod virtual_nodes;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gc_types::{Effect, EffectId, Event, Reason, Request, ResourceId, ResourceVersion, Timestamp, Uid};

use smallvec::SmallVec;

use crate::graph::{EdgeFlag, Flag, Graph, NONE, NodeId, ResourceIndex};
use absent::AbsentOwners;
use barriers::Barrier;
use lanes::Lanes;
use observe::Source;
use virtual_nodes::{Identity, Verification};

pub use config::{Config, Stats};
pub(crate) use retry::Retry;
pub use verdict::ReferenceState;
pub(crate) use waiting::Waiting;

/// The decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Delete,
    Owners,
    Finalizer,
    Read,
}

/// The subject of an effect, for when its outcome comes.
#[derive(Clone, Debug)]
enum Context {
    /// The object, the request, and the version that it was decided on.
    Item(Uid, Action, ResourceVersion),
    OwnerRead(Identity, Uid),
    /// A resource, or one namespace of it.
    Barrier(ResourceIndex, Option<Arc<str>>),
    RecordEvent,
}

/// The lanes that a request blocks.
type HeldLanes = SmallVec<[NodeId; 1]>;

#[derive(Clone, Debug)]
struct InFlight {
    context: Context,
    lanes: HeldLanes,
}

/// An effect that has not been returned yet.
#[derive(Clone, Debug)]
struct Wanted {
    request: Request,
    reason: Reason,
    context: Context,
    lanes: HeldLanes,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The wait at start is over.
    StartUp,
    /// An item is retried.
    Item(NodeId),
    /// An owner has waited long enough for resources that lag behind.
    GiveUp(NodeId),
    /// The owner of a claim is verified by a live read.
    OwnerRead(Identity),
    /// A resource is asked to catch up again.
    Barrier(ResourceIndex),
}

#[derive(Clone, Debug, Default)]
struct Counters {
    deletions: u64,
    retries: u64,
    gaps_given_up: u64,
}

/// The engine. See the crate's documentation.
///
/// Bounds: an object is in the queue at most once, has at most one request in flight and at most one retry timer;
/// live reads and barriers are shared by all items that need them, one in flight per claim and per resource; effects
/// in flight are limited by [`Config::effects_in_flight`].
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
    now: Timestamp,
    discovered_at: Option<Timestamp>,
    started: bool,
    pub(crate) graph: Graph,
    lanes: Lanes,
    /// The next kind of work.
    rotation: u8,
    /// The decision of the last turn, until it is launched in the same call.
    decided: Option<Wanted>,
    /// Events to write; unlike decisions, they do not become stale.
    events: VecDeque<Wanted>,
    /// Claims whose owner is to be read, by their position.
    read_queue: BTreeMap<u64, Identity>,
    next_read: u64,
    barrier_queue: VecDeque<ResourceIndex>,
    in_flight: BTreeMap<EffectId, InFlight>,
    /// Objects with an unanswered request. If a list omits one in the meantime and it comes back, it is the same
    /// object: no other request about it is made until the answer.
    asked: BTreeMap<Uid, Action>,
    next_effect: u64,
    verifications: BTreeMap<Identity, Verification>,
    absent: AbsentOwners,
    pub(crate) waiting: BTreeMap<NodeId, Waiting>,
    /// Owners whose `foregroundDeletion` is being removed: whether they still wait is unknown.
    finishing: BTreeSet<NodeId>,
    /// Waiting owners by the resource that blocks them, in the order of their marks.
    held: BTreeSet<(ResourceIndex, ResourceVersion, NodeId)>,
    barriers: BTreeMap<ResourceIndex, Barrier>,
    /// When the last owner began to wait for barriers.
    newest_wait: Timestamp,
    /// Items that were held ([`gc_types::Outcome::Held`]) and are not reconciled until they change or are released.
    held_back: BTreeSet<NodeId>,
    pub(crate) retries: BTreeMap<NodeId, Retry>,
    /// Until when the shared retry rate is reserved, milliseconds.
    retry_reserved_until: i64,
    timers: BTreeSet<(Timestamp, Timer)>,
    counters: Counters,
}

impl Engine {
    /// An engine without any knowledge.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let absent = AbsentOwners::new(config.absent_owners);
        Self {
            config,
            now: Timestamp::default(),
            discovered_at: None,
            started: false,
            graph: Graph::new(),
            lanes: Lanes::default(),
            rotation: 0,
            decided: None,
            events: VecDeque::new(),
            read_queue: BTreeMap::new(),
            next_read: 0,
            barrier_queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_effect: 0,
            verifications: BTreeMap::new(),
            absent,
            waiting: BTreeMap::new(),
            finishing: BTreeSet::new(),
            held: BTreeSet::new(),
            barriers: BTreeMap::new(),
            newest_wait: Timestamp::default(),
            held_back: BTreeSet::new(),
            retries: BTreeMap::new(),
            retry_reserved_until: 0,
            timers: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    /// Takes one event. Never fails: events that make no sense (an unknown effect, an unannounced resource) are
    /// ignored.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::ResourceServed(info) => self.resource_served(info),
            Event::ResourceGone(resource) => self.resource_gone(resource),
            Event::Discovered => {
                if self.discovered_at.is_none() {
                    self.discovered_at = Some(self.now);
                    let due = self.now.after(self.config.startup_wait_milliseconds);
                    self.timers.insert((due, Timer::StartUp));
                }
            }
            Event::ListStarted(resource) => self.list_started(resource),
            Event::Synced { resource, resource_version } => self.synced(resource, resource_version),
            Event::Progress { resource, resource_version } => self.progress(resource, resource_version),
            Event::Stale(resource) => self.stale(resource),
            Event::Observed(object) => self.observed(&object, Source::Watch),
            Event::Found(object) => self.found(&object),
            // Only owners count here: an object with `kubegc.io/keep` is deleted with its owner.
            Event::Marked { .. } => {}
            Event::Removed { key, uid, resource_version } => self.removed(&key, &uid, resource_version),
            Event::Done(effect, outcome) => self.done(effect, outcome),
            Event::Released(resource) => self.released(resource),
            Event::Tick(now) => self.tick(now),
        }
    }

    fn tick(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        while let Some((due, _)) = self.timers.first() {
            if *due > self.now {
                return;
            }
            let Some((_, timer)) = self.timers.pop_first() else { return };
            match timer {
                Timer::StartUp => {}
                Timer::Item(node) | Timer::GiveUp(node) => self.enqueue(node),
                Timer::OwnerRead(identity) => self.read_due(identity),
                Timer::Barrier(resource) => self.schedule_barrier(resource),
            }
        }
    }

    /// nothing is done before everything listed at start is known completely, or the wait for it is over.
    fn may_act(&mut self) -> bool {
        if !self.started
            && let Some(discovered_at) = self.discovered_at
        {
            let listed =
                |state: &crate::graph::Resource| state.ever_synced || !state.info.watched || !state.served;
            self.started = self.now.since(discovered_at) >= self.config.startup_wait_milliseconds
                || self.graph.resources.iter().all(|(_, state)| listed(state));
        }
        self.started
    }

    /// The next effect, or `None` if there is nothing to do now or the maximum is in flight. Poll until `None` after
    /// each batch of events.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if !self.may_act() {
            return None;
        }
        while self.in_flight.len() < self.config.effects_in_flight {
            // The decision of a turn applies now or never: by the next call it may no longer be valid.
            if let Some(wanted) = self.decided.take().or_else(|| self.events.pop_front()) {
                return Some(self.launch(wanted));
            }
            if !self.take_turn() {
                return None;
            }
        }
        None
    }

    fn launch(&mut self, wanted: Wanted) -> Effect {
        let id = EffectId(self.next_effect);
        self.next_effect += 1;
        self.in_flight.insert(id, InFlight { context: wanted.context, lanes: wanted.lanes });
        Effect { id, request: wanted.request, reason: wanted.reason }
    }

    /// Reconciles one item, claim or barrier, each kind in turn. False if there is none.
    fn take_turn(&mut self) -> bool {
        for _ in 0..3 {
            self.rotation = (self.rotation + 1) % 3;
            let taken = match self.rotation {
                0 => self.read_queue.pop_first().map(|(_, identity)| self.read_owner(identity)),
                1 => self.barrier_queue.pop_front().map(|resource| self.make_barrier(resource)),
                _ => self.next_item().map(|(lane, node)| self.take_item(lane, node)),
            };
            if taken.is_some() {
                return true;
            }
        }
        false
    }

    /// The next item that still exists.
    fn next_item(&mut self) -> Option<(NodeId, NodeId)> {
        while let Some((lane, node)) = self.lanes.pop() {
            if self.graph.has(node, Flag::QUEUED) {
                return Some((lane, node));
            }
            self.lanes.skipped();
            self.lane_drained(lane);
        }
        None
    }

    fn take_item(&mut self, lane: NodeId, node: NodeId) {
        self.evaluate(node);
        if node != lane {
            self.lane_drained(lane);
        }
    }

    /// Queues a node, unless it is queued. Only existing objects have turns.
    fn enqueue(&mut self, node: NodeId) {
        if !self.graph.has(node, Flag::OBSERVED) || self.graph.has(node, Flag::QUEUED) {
            return;
        }
        self.graph.set(node, Flag::QUEUED, true);
        let lane = self.lanes_of(node).next().unwrap_or(node);
        self.lanes.push(lane, node);
    }

    /// The lanes that a node belongs to: a waiting owner comes after its dependents; any other node waits with its
    /// siblings, in the lane of its first owner, and blocks all its owners while a request about it is in flight.
    fn lanes_of(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let alone = self.graph.has(node, Flag::WAITING) || !self.graph.has_references(node);
        let owners = self.graph.edges_of(node).filter(move |_| !alone).map(|edge| self.graph.owner(edge));
        alone.then_some(node).into_iter().chain(owners)
    }

    fn enqueue_dependents(&mut self, owner: NodeId) {
        let mut cursor = self.graph.first_dependent(owner);
        while cursor != NONE {
            self.enqueue(self.graph.dependent(cursor));
            cursor = self.graph.next_dependent(cursor);
        }
    }

    /// When the engine needs the next `Event::Tick`, if at all.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Whether only repeated live reads of owners are left: nothing is queued or in flight, no item is to be retried,
    /// and every remaining read has been made at least as often as it takes to stop waiting for it.
    #[must_use]
    pub fn only_polls_left(&self) -> bool {
        self.in_flight.is_empty()
            && self.lanes.queued() == 0
            && self.timers.iter().all(|(_, timer)| match timer {
                Timer::OwnerRead(identity) => self
                    .verifications
                    .get(identity)
                    .is_none_or(|claim| claim.is_settled(self.config.failures_before_undecidable)),
                Timer::StartUp => true,
                Timer::Item(_) | Timer::GiveUp(_) | Timer::Barrier(_) => false,
            })
    }

    /// Whether the wait at start is over.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// The current statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let oldest = self.waiting.values().map(|waiting| self.now.since(waiting.since)).max();
        Stats {
            objects: self.graph.objects(),
            virtual_owners: self.graph.virtual_owners(),
            references: self.graph.references(),
            queued: self.lanes.queued(),
            in_flight: self.in_flight.len(),
            retrying: self.retries.len().saturating_sub(self.held_back.len()),
            held: self.held_back.len(),
            waiting_owners: self.waiting.len(),
            oldest_waiting_milliseconds: oldest.unwrap_or(0),
            unsynced_resources: self
                .graph
                .resources
                .iter()
                .filter(|(_, state)| state.served && state.info.watched && !state.synced)
                .count(),
            unknown_kind_references: self.graph.unknown_kind_references(),
            gaps_given_up: self.counters.gaps_given_up,
            deletions: self.counters.deletions,
            retries: self.counters.retries,
        }
    }

    /// The number of known objects of a resource.
    #[must_use]
    pub fn objects_of(&self, resource: ResourceId) -> usize {
        let index = self.graph.resources.index(resource);
        index.and_then(|index| self.graph.resources.get(index)).map_or(0, |state| state.objects)
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time of the last `Event::Tick`.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Every broken invariant of the graph (spec 1.4) and of the tables over it, as text; empty if all hold. For
    /// tests and simulators: it visits everything.
    #[must_use]
    pub fn verify(&self) -> Vec<String> {
        let mut broken = self.graph.verify();
        for node in self.graph.slots().filter(|&node| self.graph.has(node, Flag::OBSERVED)) {
            if self.graph.has(node, Flag::IN_FLIGHT) != self.asked.contains_key(&self.graph.uid(node)) {
                broken.push(format!("node {node}: it is not so whether something was asked about it"));
            }
            let deletion = self.graph.deletion(node);
            let should = deletion.deleting && (deletion.foreground || deletion.orphan);
            let counted = self
                .graph
                .dependents_of(node)
                .filter(|&edge| self.graph.edge_has(edge, EdgeFlag::COUNTED))
                .count();
            match self.waiting.get(&node) {
                Some(waiting) if waiting.blocking != counted => {
                    broken.push(format!(
                        "node {node}: {counted} references block, {} counted",
                        waiting.blocking
                    ));
                }
                Some(_) if should => {}
                None if !should => {}
                _ => broken.push(format!("node {node}: the table of waiting owners is wrong about it")),
            }
        }
        for node in self.held_back.iter().filter(|node| !self.retries.contains_key(node)) {
            broken.push(format!("node {node} is held and not in the table of what is put off"));
        }
        for node in self.waiting.keys().chain(self.retries.keys()) {
            if !self.graph.has(*node, Flag::OBSERVED) {
                broken.push(format!("node {node} is in a table and not there"));
            }
        }
        if self.decided.is_some() {
            broken.push("a decision was kept for later".to_owned());
        }
        let queued = self.graph.slots().filter(|&node| self.graph.has(node, Flag::QUEUED)).count();
        if queued != self.lanes.queued() || self.lanes.has_many_vacancies() {
            broken.push(format!("{queued} nodes wait for a turn, the queue says {:?}", self.lanes.places()));
        }
        if self.read_queue.len() > self.verifications.len() || self.barrier_queue.len() > self.barriers.len()
        {
            broken.push("more live reads or barriers are queued than are wanted".to_owned());
        }
        for identity in self.verifications.keys() {
            if !self.graph.is_live(identity.owner) {
                broken.push(format!("a claim on freed node {} is kept", identity.owner));
            }
        }
        broken
    }
}
