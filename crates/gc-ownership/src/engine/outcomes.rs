//! Outcomes of effects.

use gc_types::{EffectId, ObservedObject, Outcome, ResourceId, ResourceVersion, Uid};

use super::Engine;
use super::effects::{Action, Context};
use super::observe::Source;
use super::retry::backoff;
use crate::graph::{Departure, Flag, NodeId};

/// Delay after an applied request before an object with incomparable versions is read, milliseconds.
const OPAQUE_READ_MILLISECONDS: i64 = 1_000;

impl Engine {
    pub(super) fn done(&mut self, effect: EffectId, outcome: Outcome) {
        let Some(flight) = self.effects.land(effect) else { return };
        match flight.context {
            Context::Item(uid, action, asked_on) => {
                self.item_done(&uid, action, asked_on, outcome);
                if let Some(node) = self.graph.find(&uid).filter(|node| self.rereads.remove(node)) {
                    self.reread(node);
                }
            }
            Context::OwnerRead(identity, uid) => self.owner_read(&identity, &uid, outcome),
            Context::Barrier(place) => self.barrier_done(effect.0, place, &outcome),
            Context::RecordEvent => {}
        }
        for lane in flight.lanes {
            self.lanes.finished(lane);
            self.lane_drained(lane);
        }
    }

    /// Queues an owner that waits for the requests about its dependents to end.
    pub(super) fn lane_drained(&mut self, lane: NodeId) {
        if self.lanes.is_idle(lane) && self.waiting.contains_key(&lane) {
            self.enqueue(lane);
        }
    }

    fn item_done(&mut self, uid: &Uid, action: Action, asked_on: ResourceVersion, outcome: Outcome) {
        self.effects.answered(uid);
        let Some(node) = self.graph.find(uid) else { return };
        self.graph.set(node, Flag::IN_FLIGHT, false);
        let dirty = self.graph.has(node, Flag::DIRTY);
        self.graph.set(node, Flag::DIRTY, false);
        if !self.graph.has(node, Flag::OBSERVED) {
            self.departure_answered(node, action, &outcome);
            return;
        }
        if action == Action::Delete && self.graph.has(node, Flag::WAITING) {
            // The watch was faster, and its dependents wait for this response.
            self.enqueue_dependents(node);
        }
        if let Outcome::Withheld(_) = outcome {
            self.hold(node);
            if dirty {
                self.enqueue(node);
            }
            return;
        }
        let outcome = self.unless_crossed(outcome, self.graph.resource(node));
        let deletion = self.graph.deletion(node);
        let is_told_of = deletion.deleting && !deletion.foreground;
        if action == Action::Finalizer && !deletion.orphan && !is_told_of {
            // A stale list may have shown the object as it was before, so the knowledge of the removal is lost.
            self.finishing.insert(node);
        }
        if (action == Action::Finalizer || self.finishing.contains(&node))
            && !matches!(outcome, Outcome::Applied(_))
        {
            // It may have been removed nevertheless, and a failed read does not show it.
            self.graph.set(node, Flag::UNCLEAR, true);
        }
        let had_nothing_to_change = |answer: &ObservedObject| {
            answer.uid == *uid && asked_on != ResourceVersion::UNKNOWN && answer.resource_version == asked_on
        };
        match outcome {
            // The version to change needs no change, because it is another one, of a restored backup. The watch will not deliver
            // it, so only a read shows it.
            Outcome::Applied(Some(answer)) if action != Action::Delete && had_nothing_to_change(&answer) => {
                self.graph.set(node, Flag::UNCLEAR, true);
                self.retry(node, "there was nothing to change", None);
            }
            Outcome::Applied(answer) => {
                if action == Action::Delete {
                    self.counters.deletions += 1;
                    if answer.is_none() && self.graph.has_dependents(node) {
                        self.ended.insert(node);
                    }
                }
                self.retries.forget(node, &mut self.clock);
                if action != Action::Finalizer && self.graph.has(node, Flag::UNCLEAR) {
                    // The object came back since, in a list that this request may have overtaken, so only a read shows its state.
                    self.enqueue(node);
                    return;
                }
                self.graph.set(node, Flag::UNCLEAR, false);
                self.graph.set(node, Flag::FRESH, false);
                if let Some(object) = answer.filter(|object| object.uid == *uid) {
                    self.observed(&object, Source::Answer);
                }
                if self.graph.version(node) != asked_on {
                    // The watch was faster, or the response contained the new state.
                    if self.finishing.contains(&node) {
                        self.graph.set(node, Flag::UNCLEAR, true);
                        self.enqueue(node);
                    }
                } else if asked_on == ResourceVersion::UNKNOWN {
                    // The watch may have been faster: read the object after a while.
                    self.graph.set(node, Flag::UNCLEAR, true);
                    let delay = self.config.poll_longest_milliseconds.min(OPAQUE_READ_MILLISECONDS);
                    self.retries.put_off(node, delay, &mut self.clock);
                } else {
                    // Nothing new is known. The watch will deliver it, and no further request is made until then.
                    self.graph.set(node, Flag::GRANTED, true);
                }
            }
            Outcome::Found(object) if object.uid == *uid => {
                if self.finishing.remove(&node) {
                    self.enqueue_dependents(node);
                }
                let known = self.graph.version(node);
                let is_older =
                    object.resource_version != ResourceVersion::UNKNOWN && object.resource_version < known;
                // The watch may deliver something newer while the read is in flight.
                let is_correction = is_older && action == Action::Read && known == asked_on;
                // The watch has overtaken the answer. A conditional request will notice that about an object of ours; about one of
                // another shard there is none.
                let is_overtaken = is_older && !is_correction && !self.acts_on(node);
                self.graph.set(node, Flag::UNCLEAR, is_overtaken);
                self.graph.set(node, Flag::FRESH, !is_overtaken);
                // It may have to be read once more because of what this shows.
                self.observed(&object, if is_correction { Source::Correction } else { Source::Answer });
                self.enqueue(node);
            }
            Outcome::Found(_) | Outcome::Absent => {
                self.depart(node, Departure::ReadAbsent(self.clock.now().0));
                return;
            }
            Outcome::Conflict if action == Action::Finalizer => self.retry(node, "conflict", None),
            Outcome::Conflict => self.conflicted(node),
            Outcome::NotServed | Outcome::Withheld(_) => self.retry(node, "the path is not served", None),
            Outcome::Refused { code, message } => self.retry(node, &format!("{code}: {message}"), None),
            Outcome::Failed { message, retry_after_milliseconds } => {
                self.retry(node, &message, retry_after_milliseconds);
            }
        }
        if dirty {
            self.enqueue(node);
        }
    }

    /// Takes the response to a request about an object whose removal its watch has reported in the meantime. If it was a DELETE
    /// that has removed the object, the two agree; otherwise a read has to decide.
    fn departure_answered(&mut self, node: NodeId, action: Action, outcome: &Outcome) {
        if !self.graph.is_reported_gone(node) {
            return;
        }
        if action == Action::Delete && matches!(outcome, Outcome::Applied(None) | Outcome::Absent) {
            self.graph.confirm_gone(node);
        }
        self.enqueue_dependents(node);
    }

    fn retry(&mut self, node: NodeId, message: &str, retry_after: Option<u64>) {
        self.retries.fail(node, message, retry_after, &self.config, &mut self.clock);
    }

    /// Withholds an item, for which nothing was sent, until it changes or is released.
    fn hold(&mut self, node: NodeId) {
        // It still waits, because no request to end that was sent.
        if self.finishing.remove(&node) {
            self.enqueue_dependents(node);
        }
        self.retries.hold(node, &mut self.clock);
    }

    /// Queues the withheld items of one resource, or of all.
    pub(super) fn released(&mut self, resource: Option<ResourceId>) {
        let concerned = |node: &NodeId| {
            resource.is_none_or(|id| self.graph.resource_id(self.graph.resource(*node)) == id)
        };
        let nodes: Vec<NodeId> = self.retries.withheld().iter().copied().filter(concerned).collect();
        for node in nodes {
            self.retries.retry_now(node, &mut self.clock);
            self.enqueue(node);
        }
    }

    /// Reads an object that is not as observed. The first conflict causes no delay, further ones do.
    fn conflicted(&mut self, node: NodeId) {
        self.graph.set(node, Flag::UNCLEAR, true);
        let former = self.retries.get(node).map_or(0, |retry| retry.conflicts);
        if former >= self.config.conflicts_before_uid_only {
            self.retry(node, "conflict", None);
        } else {
            self.retries.conflict(node, self.clock.now());
            if former == 0 {
                self.enqueue(node);
            } else {
                let first = self.config.retry_first_milliseconds;
                let delay = backoff(first, self.config.retry_longest_milliseconds, former);
                self.retries.put_off(node, delay, &mut self.clock);
            }
        }
    }
}
