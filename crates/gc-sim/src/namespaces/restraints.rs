//! Checks that controllers obey their restraints: the operator's orders, the limits of the circuit breaker, the bounds of the
//! concurrency limit and the server's Retry-After. The checks use the questions and answers, without asking any of the restraints.

use std::collections::BTreeMap;

use gc_collectors::namespaces::emptying::{Ask, ContainedResource};
use gc_controller::breaker::BreakerOptions;
use gc_controller::concurrency::Signal;
use gc_types::milliseconds;

use super::controller::{Flight, Mail};
use crate::process::Orders;
use crate::story::Story;
use crate::violation::Violation;
use crate::violation::broken;

/// Questions and answers that concern restraints.
#[derive(Debug)]
pub(super) struct RestraintBook {
    breaker: BreakerOptions,
    largest: usize,
    /// Time until which the server has asked each controller to send nothing.
    silent_until: BTreeMap<usize, i64>,
    /// Times of the deletions by each controller in each resource since its breaker was resumed.
    deletions: BTreeMap<(usize, String), Vec<i64>>,
    /// Time at which the breaker of each controller was resumed: earlier questions no longer count.
    resumed_at: BTreeMap<usize, i64>,
}

impl RestraintBook {
    /// Creates an empty book.
    pub(super) fn new(story: &Story) -> Self {
        let (concurrency, breaker) = story.namespace_restraints().unwrap_or_default();
        Self {
            breaker,
            largest: concurrency.largest,
            silent_until: BTreeMap::new(),
            deletions: BTreeMap::new(),
            resumed_at: BTreeMap::new(),
        }
    }

    /// Notes that the breaker of a controller counts from the beginning.
    pub(super) fn resumed(&mut self, controller: usize, now: i64) {
        self.resumed_at.insert(controller, now);
        self.deletions.retain(|(number, _), _| *number != controller);
    }

    /// Checks a question that is asked right now by a controller with `in_flight` questions and answers in flight, including this
    /// one.
    pub(super) fn judge_question(
        &self,
        flight: &Flight,
        orders: Orders,
        in_flight: usize,
    ) -> Result<(), Violation> {
        let ask = &flight.question.ask;
        let broken = |why: &str| broken("restraints", format!("{ask:?} is asked {why}"));
        if orders.is_paused {
            return broken("while collectors are paused");
        }
        if orders.is_dry_run && flight.question.changes() {
            return broken("in a dry run");
        }
        if in_flight > self.largest {
            return broken(&format!("as one of {in_flight}, {} allowed", self.largest));
        }
        if self.silent_until.get(&flight.controller).is_some_and(|until| flight.sent < *until) {
            return broken("although the server asked for a pause");
        }
        let window = milliseconds(self.breaker.window * 9 / 10);
        let counted =
            deletes(ask).and_then(|resource| self.deletions.get(&(flight.controller, resource.name())));
        let recent = |at: &&i64| **at >= flight.sent - window;
        let deleted = counted.map_or(0, |times| times.iter().filter(recent).count() as u64);
        if self.breaker.largest_number.is_some_and(|largest| deleted > largest) {
            return broken(&format!("after {deleted} deletions within {window} ms"));
        }
        Ok(())
    }

    /// Records an answer to a controller.
    pub(super) fn note_answer(&mut self, mail: &Mail, now: i64) {
        let (flight, answer) = (&mail.flight, &mail.answer);
        if let Some((Signal::Busy(Some(wait)), _)) = answer.signal {
            let silent = self.silent_until.entry(flight.controller).or_default();
            *silent = (*silent).max(now + milliseconds(wait));
        }
        let counts = self.resumed_at.get(&flight.controller).is_none_or(|at| flight.sent > *at);
        if counts && let Some(resource) = deletes(&flight.question.ask) {
            let times = self.deletions.entry((flight.controller, resource.name())).or_default();
            times.extend((0..answer.deleted).map(|_| flight.sent));
        }
    }
}

fn deletes(ask: &Ask) -> Option<&ContainedResource> {
    match ask {
        Ask::DeleteAll(resource) | Ask::Delete(resource, _) => Some(resource),
        _ => None,
    }
}
