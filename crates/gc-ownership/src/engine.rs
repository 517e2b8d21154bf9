//! The cascade engine: events in, effects out.

mod absent;
mod barriers;
mod clock;
mod config;
mod doubt;
mod effects;
mod identity;
mod lanes;
mod observe;
mod outcomes;
mod retry;
mod ring;
mod sight;
#[cfg(test)]
mod tests;
mod verdict;
mod verifications;
mod virtual_nodes;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{Effect, Event, ResourceId, Timestamp};

use crate::graph::{EdgeFlag, Flag, Graph, NONE, NodeId, ResourceIndex};
use barriers::Barriers;
use clock::{Clock, Timer};
use effects::Effects;
use lanes::Lanes;
use observe::Source;
use retry::Retries;
use verifications::Verifications;

pub use config::{Config, Stats};
pub use verdict::ReferenceState;
pub(crate) use waiting::WaitingOwner;

#[derive(Clone, Debug, Default)]
struct Counters {
    deletions: u64,
    gaps_given_up: u64,
}

/// The engine. See the crate's documentation.
///
/// Bounds: an object is in the queue at most once, has at most one request in flight and at most one retry timer; live reads and
/// barriers are shared by all items that need them, one in flight per claim and per resource; effects in flight are limited by
/// [`Config::effects_in_flight`].
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
    clock: Clock,
    discovered_at: Option<Timestamp>,
    started: bool,
    pub(crate) graph: Graph,
    lanes: Lanes,
    /// Kind of work that is next.
    rotation: u8,
    effects: Effects,
    verifications: Verifications,
    pub(crate) waiting: BTreeMap<NodeId, WaitingOwner>,
    /// Owners whose `foregroundDeletion` is being removed, so that it is unknown whether they still wait.
    finishing: BTreeSet<NodeId>,
    barriers: Barriers,
    pub(crate) retries: Retries,
    /// Objects that a second resource shows as well, with the one that showed them last.
    views: BTreeMap<NodeId, ResourceIndex>,
    /// Objects with dependents that our DELETE has removed, according to its response. Their watch has yet to report that.
    ended: BTreeSet<NodeId>,
    /// Objects to read once their request in flight has an outcome, whatever it is.
    rereads: BTreeSet<NodeId>,
    counters: Counters,
}

impl Engine {
    /// Creates an engine without any knowledge.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            clock: Clock::default(),
            discovered_at: None,
            started: false,
            graph: Graph::new(),
            lanes: Lanes::default(),
            rotation: 0,
            effects: Effects::default(),
            verifications: Verifications::new(config.absent_owners),
            waiting: BTreeMap::new(),
            finishing: BTreeSet::new(),
            barriers: Barriers::default(),
            retries: Retries::default(),
            views: BTreeMap::new(),
            ended: BTreeSet::new(),
            rereads: BTreeSet::new(),
            counters: Counters::default(),
            config,
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
                    let now = self.clock.now();
                    self.discovered_at = Some(now);
                    self.clock.set(now.after(self.config.startup_wait_milliseconds), Timer::StartUp);
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
        self.clock.advance(now);
        while let Some(timer) = self.clock.pop_expired() {
            match timer {
                Timer::StartUp => {}
                Timer::Item(node) | Timer::GiveUp(node) => self.enqueue(node),
                Timer::OwnerRead(identity) => self.verifications.read_due(identity),
                Timer::Barrier(resource) => {
                    self.barriers.schedule(resource, &self.config, &mut self.clock);
                }
                Timer::Withdrawn(resource) => self.kind_counts_as_removed(resource),
            }
        }
    }

    /// Reports whether everything listed at start is known completely, or the wait for it is over; nothing is done before.
    fn may_act(&mut self) -> bool {
        if !self.started
            && let Some(discovered_at) = self.discovered_at
        {
            let listed =
                |state: &crate::graph::Resource| state.ever_synced || !state.info.watched || !state.served;
            self.started = self.clock.now().since(discovered_at) >= self.config.startup_wait_milliseconds
                || self.graph.resources.iter().all(|(_, state)| listed(state));
        }
        self.started
    }

    /// Returns the next effect, or `None` if there is nothing to do now or the maximum is in flight. Poll until `None` after each
    /// batch of events.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if !self.may_act() {
            return None;
        }
        while self.effects.in_flight() < self.config.effects_in_flight {
            let effect = self.effects.launch();
            if effect.is_some() {
                return effect;
            }
            if !self.take_turn() {
                return None;
            }
        }
        None
    }

    /// Reconciles one item, claim or barrier, each kind in turn. Returns false if there is none.
    fn take_turn(&mut self) -> bool {
        for _ in 0..3 {
            self.rotation = (self.rotation + 1) % 3;
            let taken = match self.rotation {
                0 => self.verifications.next_due().map(|identity| self.read_owner(identity)),
                1 => self.barriers.next_due().map(|resource| self.make_barrier(resource)),
                _ => self.next_item().map(|(lane, node)| self.take_item(lane, node)),
            };
            if taken.is_some() {
                return true;
            }
        }
        false
    }

    /// Returns the next item that still exists.
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

    /// Queues a node, unless it is queued already. Only existing objects have turns.
    fn enqueue(&mut self, node: NodeId) {
        if !self.graph.has(node, Flag::OBSERVED) || self.graph.has(node, Flag::QUEUED) {
            return;
        }
        self.graph.set(node, Flag::QUEUED, true);
        let lane = self.lanes_of(node).next().unwrap_or(node);
        self.lanes.push(lane, node);
    }

    /// Returns the lanes that a node belongs to. A waiting owner comes after its dependents; any other node waits with its siblings
    /// in the lane of its first owner, and blocks all its owners while it has a request in flight.
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

    /// Returns when the engine needs the next `Event::Tick`, if at all.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.clock.next()
    }

    /// Reports whether only repeated live reads of owners are left: nothing is queued or in flight, no item is to be retried, and
    /// every remaining read has been made at least as often as it takes to stop waiting for it.
    #[must_use]
    pub fn only_polls_left(&self) -> bool {
        self.effects.in_flight() == 0
            && self.lanes.queued() == 0
            && self.verifications.are_queued_settled(&self.config)
            && self.clock.timers().all(|timer| match timer {
                Timer::OwnerRead(identity) => self.verifications.is_settled(identity, &self.config),
                Timer::StartUp => true,
                Timer::Withdrawn(resource) => self.reported_gone_of(*resource).next().is_none(),
                Timer::Item(_) | Timer::GiveUp(_) | Timer::Barrier(_) => false,
            })
    }

    /// Reports whether the wait at start is over.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Returns the current statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let oldest = self.waiting.values().map(|waiting| self.now().since(waiting.since)).max();
        Stats {
            objects: self.graph.objects(),
            virtual_owners: self.graph.virtual_owners(),
            references: self.graph.references(),
            queued: self.lanes.queued(),
            in_flight: self.effects.in_flight(),
            retrying: self.retries.len().saturating_sub(self.retries.withheld().len()),
            withheld: self.retries.withheld().len(),
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
            retries: self.retries.scheduled(),
        }
    }

    /// Returns the number of known objects of a resource.
    #[must_use]
    pub fn objects_of(&self, resource: ResourceId) -> usize {
        let index = self.graph.resources.index(resource);
        index.and_then(|index| self.graph.resources.get(index)).map_or(0, |state| state.objects)
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the time of the last `Event::Tick`.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns every broken invariant of the graph (spec 1.4) and of the tables over it, as text; empty if all hold. It visits
    /// everything, and is meant for tests and simulators.
    #[must_use]
    pub fn verify(&self) -> Vec<String> {
        let mut broken = self.graph.verify();
        for node in self.graph.slots().filter(|&node| self.graph.has(node, Flag::OBSERVED)) {
            if self.graph.has(node, Flag::IN_FLIGHT) != self.effects.asked(&self.graph.uid(node)).is_some() {
                broken.push(format!("node {node}: it is not so whether something was asked about it"));
            }
            let deletion = self.graph.deletion(node);
            let should = deletion.waits_for_dependents();
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
        broken.extend(self.retries.verify());
        broken.extend(self.verifications.verify(|owner| self.graph.is_live(owner)));
        broken.extend(self.barriers.verify());
        let in_tables =
            self.waiting.keys().chain(self.views.keys()).chain(&self.ended).chain(&self.rereads).copied();
        for node in in_tables.chain(self.retries.iter().map(|(node, _)| node)) {
            if !self.graph.has(node, Flag::OBSERVED) {
                broken.push(format!("node {node} is in a table and not there"));
            }
        }
        if !self.effects.has_launched_all() {
            broken.push("a decision was kept for later".to_owned());
        }
        let queued = self.graph.slots().filter(|&node| self.graph.has(node, Flag::QUEUED)).count();
        if queued != self.lanes.queued() || self.lanes.has_many_vacancies() {
            broken.push(format!("{queued} nodes wait for a turn, the queue says {:?}", self.lanes.places()));
        }
        broken
    }
}
