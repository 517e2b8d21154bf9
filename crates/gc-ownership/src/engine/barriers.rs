//! Barriers: proof that all objects that a resource had when owners were marked for deletion have been observed.
//!
//! There is one barrier per resource, which serves every owner that waits when it is created. It requests the whole resource, or a
//! single namespace if that takes fewer pages. Owners that begin to wait while it is in progress use the next one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gc_types::{Outcome, Reason, Request, ResourceVersion, Timestamp, Verdict};

use super::Engine;
use super::clock::{Clock, Timer};
use super::config::Config;
use super::effects::{Context, HeldLanes, ListedPlace, PendingEffect};
use super::retry::backoff;
use super::waiting::WaitingOwner;
use crate::graph::{CLUSTER, NodeId, ResourceIndex};

/// Number of objects that an adapter reads with one request; decides whether one list of a whole resource is cheaper than a list of
/// each namespace.
const OBJECTS_PER_PAGE: usize = 1_000;
/// Number of proofs about single namespaces that are remembered for one resource; forgotten ones are obtained again.
const NAMESPACES_REMEMBERED: usize = 1_000;

/// Effects of the two newest answered barriers for one place.
#[derive(Clone, Copy, Debug, Default)]
struct RecentAnswers {
    newest: Option<u64>,
    before: Option<u64>,
}

impl RecentAnswers {
    /// Adds an answer. A place has one barrier at a time, so each is newer than those before it.
    fn add(&mut self, effect: u64) {
        self.before = self.newest.replace(effect);
    }

    /// Returns how many of the two were created after a mark was seen.
    fn since(&self, mark_effect: u64) -> usize {
        [self.newest, self.before].into_iter().flatten().filter(|effect| *effect >= mark_effect).count()
    }
}

/// Barrier of one resource.
#[derive(Clone, Debug, Default)]
struct Barrier {
    /// True if it is queued, in progress, or about to be retried.
    pending: bool,
    /// Answered barriers for the whole resource; each covers every mark that was seen before it was created.
    done: RecentAnswers,
    /// Answered barriers for single namespaces.
    done_in: BTreeMap<Arc<str>, RecentAnswers>,
    /// Effect number before which barriers prove nothing.
    valid_from: u64,
    failures: u32,
    /// Time before which it is not created.
    due: Timestamp,
    /// Time since which owners have been waiting for it.
    asked_at: Timestamp,
}

impl Barrier {
    /// Returns the number of answers that cover an owner in this namespace whose mark was seen before effect number `mark_effect`.
    fn covering(&self, namespace: Option<&str>, mark_effect: u64) -> usize {
        let narrow = namespace.and_then(|namespace| self.done_in.get(namespace));
        self.done.since(mark_effect) + narrow.map_or(0, |narrow| narrow.since(mark_effect))
    }

    fn forget_proofs(&mut self) {
        self.done = RecentAnswers::default();
        self.done_in.clear();
    }

    /// Records that it was answered by this effect.
    fn prove(&mut self, effect: u64, namespace: Option<Arc<str>>) {
        if effect < self.valid_from {
            return;
        }
        let Some(namespace) = namespace else {
            self.done.add(effect);
            return;
        };
        if self.done_in.len() >= NAMESPACES_REMEMBERED {
            self.done_in.clear();
        }
        self.done_in.entry(namespace).or_default().add(effect);
    }
}

/// Barriers of all resources, and the owners that wait for them or for the progress of a watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Barriers {
    by_resource: BTreeMap<ResourceIndex, Barrier>,
    /// Resources whose barrier is due.
    queue: VecDeque<ResourceIndex>,
    /// Waiting owners by the resource that blocks them, in the order of their marks.
    held: BTreeSet<(ResourceIndex, ResourceVersion, NodeId)>,
    /// Time at which the last owner began to wait for barriers.
    newest_wait: Timestamp,
}

impl Barriers {
    /// Records that an owner begins to wait.
    pub(super) fn wait_began(&mut self, now: Timestamp) {
        self.newest_wait = now;
    }

    /// Records that an owner with this mark waits for a resource.
    pub(super) fn hold(&mut self, resource: ResourceIndex, mark: ResourceVersion, node: NodeId) {
        self.held.insert((resource, mark, node));
    }

    /// Records that it no longer waits.
    pub(super) fn free(&mut self, resource: ResourceIndex, mark: ResourceVersion, node: NodeId) {
        self.held.remove(&(resource, mark, node));
    }

    /// Frees the next owner that waits for a resource: any, or only one whose mark the resource has reached.
    pub(super) fn free_next(
        &mut self,
        resource: ResourceIndex,
        reached: Option<ResourceVersion>,
    ) -> Option<NodeId> {
        let first = (resource, ResourceVersion::UNKNOWN, 0);
        let &(held_by, mark, node) = self.held.range(first..).next()?;
        if held_by != resource || reached.is_some_and(|reached| mark > reached) {
            return None;
        }
        self.free(held_by, mark, node);
        Some(node)
    }

    /// Reports whether no owner waits for a resource.
    pub(super) fn holds_none(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the number of answers about a resource that cover an owner in this namespace whose mark was seen before effect
    /// number `mark_effect`.
    pub(super) fn covering(
        &self,
        resource: ResourceIndex,
        namespace: Option<&str>,
        mark_effect: u64,
    ) -> usize {
        self.by_resource.get(&resource).map_or(0, |barrier| barrier.covering(namespace, mark_effect))
    }

    /// Requests a barrier for a resource, unless one is pending.
    pub(super) fn ask(&mut self, resource: ResourceIndex, config: &Config, clock: &mut Clock) {
        let barrier = self.by_resource.entry(resource).or_default();
        if barrier.pending {
            return;
        }
        barrier.pending = true;
        barrier.asked_at = clock.now();
        self.schedule(resource, config, clock);
    }

    /// Queues a pending barrier once it is due and serves all owners that begin to wait together.
    pub(super) fn schedule(&mut self, resource: ResourceIndex, config: &Config, clock: &mut Clock) {
        let Some(barrier) = self.by_resource.get(&resource) else { return };
        let quiet = self.newest_wait.after(config.barrier_quiet_milliseconds);
        let latest = barrier.asked_at.after(config.barrier_gathers_milliseconds);
        let due = barrier.due.max(quiet.min(latest));
        if due > clock.now() {
            clock.set(due, Timer::Barrier(resource));
        } else {
            self.queue.push_back(resource);
        }
    }

    /// Returns the next barrier that is due.
    pub(super) fn next_due(&mut self) -> Option<ResourceIndex> {
        self.queue.pop_front()
    }

    /// Drops the barrier of a resource that no owner needs any more.
    fn give_up(&mut self, resource: ResourceIndex) {
        self.by_resource.remove(&resource);
    }

    /// Records the answer to the barrier of a resource. Returns false if there is none.
    fn answered(
        &mut self,
        ListedPlace { resource, namespace }: ListedPlace,
        effect: u64,
        outcome: &Outcome,
        config: &Config,
        now: Timestamp,
    ) -> bool {
        let Some(barrier) = self.by_resource.get_mut(&resource) else { return false };
        barrier.pending = false;
        if let Outcome::Applied(_) = outcome {
            barrier.failures = 0;
            barrier.prove(effect, namespace);
        } else {
            barrier.failures = barrier.failures.saturating_add(1);
            let (first, longest) = (config.poll_first_milliseconds, config.gap_wait_milliseconds);
            barrier.due = now.after(backoff(first, longest, barrier.failures));
        }
        true
    }

    /// Voids the proofs about a resource that is no longer served: those by effects before this one do not hold when it is served
    /// again.
    pub(super) fn void(&mut self, resource: ResourceIndex, next_effect: u64) {
        if let Some(barrier) = self.by_resource.get_mut(&resource) {
            barrier.forget_proofs();
            barrier.valid_from = next_effect;
        }
    }

    /// Drops proofs that are no longer needed or no longer valid.
    pub(super) fn forget_proofs(&mut self) {
        self.by_resource.retain(|_, barrier| barrier.pending);
        self.by_resource.values_mut().for_each(Barrier::forget_proofs);
    }

    /// Returns every broken invariant, as text.
    pub(super) fn verify(&self) -> Option<String> {
        let broken = self.queue.len() > self.by_resource.len();
        broken.then(|| "more barriers are queued than are wanted".to_owned())
    }
}

impl Engine {
    /// Returns the waiting owners of our shard: only they need barriers.
    fn served_by_barriers(&self) -> impl Iterator<Item = (NodeId, &WaitingOwner)> {
        let owners = self.waiting.iter().map(|(&node, waiting)| (node, waiting));
        owners.filter(|&(node, _)| self.acts_on(node))
    }

    /// Turns a pending barrier into an effect.
    pub(super) fn make_barrier(&mut self, resource: ResourceIndex) {
        let owners = || self.served_by_barriers();
        // The answer applies to every owner that waits now, so it must be new enough for all of them.
        let highest = owners().map(|(_, waiting)| waiting.mark).max();
        if highest.is_none() {
            self.barriers.give_up(resource);
            return;
        }
        let all_comparable = owners().all(|(node, _)| self.is_comparable(node, resource));
        // For an owner that orphans its dependents, the progress of the watch is one of two answers, and this must be the other.
        let needs_list = owners().any(|(node, waiting)| self.needs_list(node, waiting, resource));
        let at_least = highest.filter(|_| all_comparable && !needs_list).unwrap_or(ResourceVersion::UNKNOWN);
        let namespace = self.barrier_namespace(resource);
        let request = Request::Barrier {
            resource: self.graph.resource_id(resource),
            namespace: namespace.clone(),
            at_least,
        };
        let reason = Reason { verdict: Verdict::CatchUp, owners: Vec::new(), evidence: Vec::new() };
        let context = Context::Barrier(ListedPlace { resource, namespace });
        self.effects.decide(PendingEffect { request, reason, context, lanes: HeldLanes::new() });
    }

    /// Returns the single namespace that a barrier is to request; `None` if requesting the whole resource takes no more requests
    /// than each namespace with an owner that needs the barrier.
    fn barrier_namespace(&self, resource: ResourceIndex) -> Option<Arc<str>> {
        if !self.graph.resources.is_namespaced(resource) {
            return None;
        }
        let pages = 1 + self.graph.resources.get(resource)?.objects / OBJECTS_PER_PAGE;
        let mut namespaces = BTreeSet::new();
        let mut first = None;
        for (node, waiting) in self.served_by_barriers() {
            let namespace = self.graph.namespace(node);
            if namespaces.contains(&namespace) || self.has_caught_up(node, waiting, resource) {
                continue;
            }
            if namespace == CLUSTER {
                return None;
            }
            first.get_or_insert(namespace);
            namespaces.insert(namespace);
            if namespaces.len() > pages.max(1) {
                return None;
            }
        }
        let narrow = namespaces.len() == 1 || namespaces.len() < pages;
        first.filter(|_| narrow).map(|namespace| self.graph.namespace_text(namespace))
    }

    /// Takes the answer to a barrier.
    pub(super) fn barrier_done(&mut self, effect: u64, place: ListedPlace, outcome: &Outcome) {
        let (now, resource) = (self.clock.now(), place.resource);
        if self.barriers.answered(place, effect, outcome, &self.config, now) {
            self.wake_held(resource, None);
        }
    }
}
