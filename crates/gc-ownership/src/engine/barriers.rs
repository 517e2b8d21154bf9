//! Barriers: proof that all objects that a resource had when owners were marked for deletion have been observed
//!
//!
//! There is one barrier per resource, for every owner that waits when it is created: it requests the whole resource,
//! or a single namespace where that takes fewer pages. Owners that begin to wait while it is in progress use the next
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{Outcome, Reason, Request, ResourceVersion, Timestamp, Verdict};

use super::retry::backoff;
use super::{Context, Engine, HeldLanes, Timer, Wanted};
use crate::graph::{CLUSTER, ResourceIndex};

/// Number of objects that an adapter reads with one request; decides whether one list of a whole resource is cheaper
/// than a list of each namespace.
const OBJECTS_PER_PAGE: usize = 1_000;
/// Number of proofs about single namespaces that are remembered for one resource; forgotten ones are obtained again.
const NAMESPACES_REMEMBERED: usize = 1_000;

/// The barrier of one resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barrier {
    /// It is queued, in progress, or about to be retried.
    pub(crate) pending: bool,
    /// The newest answered barrier over the whole resource; it covers every mark that was seen before it was created.
    done: Option<u64>,
    /// The same for single namespaces.
    done_in: BTreeMap<Arc<str>, u64>,
    /// Answers to barriers created before this effect prove nothing.
    valid_from: u64,
    failures: u32,
    /// Not to be created before this time.
    due: Timestamp,
    /// Since when owners wait for it.
    asked_at: Timestamp,
}

impl Barrier {
    /// Whether it covers an owner in this namespace whose mark was seen before effect number `mark_effect`.
    pub(super) fn covers(&self, namespace: Option<&str>, mark_effect: u64) -> bool {
        let narrow = namespace.and_then(|namespace| self.done_in.get(namespace).copied());
        self.done.max(narrow).is_some_and(|done| done >= mark_effect)
    }
}

impl Engine {
    /// Requests a barrier for a resource, unless one is pending.
    pub(super) fn ask_barrier(&mut self, resource: ResourceIndex) {
        let barrier = self.barriers.entry(resource).or_default();
        if barrier.pending {
            return;
        }
        barrier.pending = true;
        barrier.asked_at = self.now;
        self.schedule_barrier(resource);
    }

    /// Queues a pending barrier once it is due and serves all owners that begin to wait together.
    pub(super) fn schedule_barrier(&mut self, resource: ResourceIndex) {
        let Some(barrier) = self.barriers.get(&resource) else { return };
        let quiet = self.newest_wait.after(self.config.barrier_quiet_milliseconds);
        let latest = barrier.asked_at.after(self.config.barrier_gathers_milliseconds);
        let due = barrier.due.max(quiet.min(latest));
        if due > self.now {
            self.timers.insert((due, Timer::Barrier(resource)));
        } else {
            self.barrier_queue.push_back(resource);
        }
    }

    /// Turns a pending barrier into an effect.
    pub(super) fn make_barrier(&mut self, resource: ResourceIndex) {
        if self.waiting.is_empty() {
            // No owner needs it any more.
            self.barriers.remove(&resource);
            return;
        }
        // The answer applies to every owner that waits now, so it must be new enough for all of them.
        let all_comparable = self.waiting.keys().all(|&node| self.is_comparable(node, resource));
        let highest = self.waiting.values().map(|waiting| waiting.mark).max();
        let at_least = highest.filter(|_| all_comparable).unwrap_or(ResourceVersion::UNKNOWN);
        let namespace = self.barrier_namespace(resource);
        let request = Request::Barrier {
            resource: self.graph.resource_id(resource),
            namespace: namespace.clone(),
            at_least,
        };
        let reason = Reason { verdict: Verdict::CatchUp, owners: Vec::new(), evidence: Vec::new() };
        let context = Context::Barrier(resource, namespace);
        self.decided = Some(Wanted { request, reason, context, lanes: HeldLanes::new() });
    }

    /// The single namespace that a barrier is to request; `None` if requesting the whole resource takes no more
    /// requests than each namespace with an owner that needs the barrier.
    fn barrier_namespace(&self, resource: ResourceIndex) -> Option<Arc<str>> {
        if !self.graph.resources.is_namespaced(resource) {
            return None;
        }
        let pages = 1 + self.graph.resources.get(resource)?.objects / OBJECTS_PER_PAGE;
        let mut namespaces = BTreeSet::new();
        let mut first = None;
        for (&node, waiting) in &self.waiting {
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

    /// The answer to a barrier.
    pub(super) fn barrier_done(
        &mut self,
        effect: u64,
        resource: ResourceIndex,
        namespace: Option<Arc<str>>,
        outcome: &Outcome,
    ) {
        let Some(barrier) = self.barriers.get_mut(&resource) else { return };
        barrier.pending = false;
        if let Outcome::Applied(_) = outcome {
            barrier.failures = 0;
            if effect < barrier.valid_from {
                return self.wake_held(resource, None);
            }
            match namespace {
                None => barrier.done = barrier.done.max(Some(effect)),
                Some(namespace) => {
                    if barrier.done_in.len() >= NAMESPACES_REMEMBERED {
                        barrier.done_in.clear();
                    }
                    let done = barrier.done_in.entry(namespace).or_default();
                    *done = effect.max(*done);
                }
            }
        } else {
            barrier.failures = barrier.failures.saturating_add(1);
            let wait = backoff(
                self.config.poll_first_milliseconds,
                self.config.gap_wait_milliseconds,
                barrier.failures,
            );
            barrier.due = self.now.after(wait);
        }
        self.wake_held(resource, None);
    }

    /// A resource is no longer served: proofs about it do not hold when it is served again.
    pub(super) fn void_barrier(&mut self, resource: ResourceIndex) {
        if let Some(barrier) = self.barriers.get_mut(&resource) {
            barrier.done = None;
            barrier.done_in.clear();
            barrier.valid_from = self.next_effect;
        }
    }

    /// Proofs obtained so far are no longer needed or no longer valid.
    pub(super) fn forget_barriers(&mut self) {
        self.barriers.retain(|_, barrier| barrier.pending);
        for barrier in self.barriers.values_mut() {
            barrier.done = None;
            barrier.done_in.clear();
        }
    }
}
