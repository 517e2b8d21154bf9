//! Checks that collectors obey their restraints: the operator's orders, the limits of the circuit breaker, and the bounds of the
//! concurrency limit. The checks use the requests and responses, without asking any of the restraints.

use std::collections::BTreeMap;

use gc_controller::Moment;
use gc_controller::breaker::BreakerOptions;
use gc_controller::concurrency::Signal;
use gc_types::{Outcome, Request};

use crate::collector::{Collector, Flight, Return};
use crate::performed::Part;
use crate::process::Orders;
use crate::story::Story;
use crate::verdicts::deletes;
use crate::violation::Violation;
use crate::violation::broken;

/// One controller of a process of the world.
type Sender = (usize, Part);

/// Requests and responses that concern restraints.
#[derive(Clone, Debug)]
pub struct RestraintBook {
    breaker: BreakerOptions,
    largest: usize,
    /// Time until which the server has asked each controller to send nothing.
    silent_until: BTreeMap<Sender, Moment>,
    /// Times, by its steady clock, at which each process decided its deletions of each kind since its breaker was resumed.
    deletions: BTreeMap<(usize, usize), Vec<i64>>,
    /// Time at which the breaker of each process was resumed: earlier decisions no longer count.
    resumed_at: BTreeMap<usize, Moment>,
    excess: Option<Violation>,
}

impl RestraintBook {
    /// Creates an empty book.
    #[must_use]
    pub fn new(story: &Story) -> Self {
        Self {
            breaker: story.breaker,
            largest: story.concurrency.largest,
            silent_until: BTreeMap::new(),
            deletions: BTreeMap::new(),
            resumed_at: BTreeMap::new(),
            excess: None,
        }
    }

    /// Notes that the breaker of a process counts from the beginning.
    pub fn resumed(&mut self, collector: usize, now: Moment) {
        self.resumed_at.insert(collector, now);
        self.deletions.retain(|(number, _), _| *number != collector);
    }

    /// Judges a decision that was just made.
    pub fn judge_decision(&self, flight: &Flight, orders: Orders) -> Result<(), Violation> {
        if let Some(excess) = &self.excess {
            return Err(excess.clone());
        }
        if flight.number.is_none() && flight.list.is_none() {
            return Ok(());
        }
        let request = &flight.effect.request;
        if orders.is_paused {
            return broken("restraints", format!("{request:?} is decided while collectors are paused"));
        }
        let is_dry_run = orders.is_dry_run && flight.part == Part::Ownership;
        if is_dry_run && !matches!(request, Request::Read { .. } | Request::Barrier { .. }) {
            return broken("restraints", format!("{request:?} is decided in a dry run"));
        }
        let silent = self.silent_until.get(&(flight.collector, flight.part));
        if silent.is_some_and(|until| flight.moment < *until) {
            return broken(
                "restraints",
                format!("{request:?} is decided although the server asked for a pause"),
            );
        }
        Ok(())
    }

    /// Checks the number of requests that each controller of a process has in flight.
    pub fn judge_limit(&self, collector: &Collector) -> Result<(), Violation> {
        let mut flights: BTreeMap<Part, usize> = BTreeMap::new();
        let answered = collector.returns.iter().map(|answer| &answer.flight);
        for flight in collector.requests.iter().chain(answered) {
            let counts = flight.number.is_some() || flight.list.is_some();
            *flights.entry(flight.part).or_default() += usize::from(counts);
        }
        match flights.into_iter().find(|(_, count)| *count > self.largest) {
            Some((part, count)) => broken(
                "restraints",
                format!("{part:?} has {count} requests in flight, {} allowed", self.largest),
            ),
            None => Ok(()),
        }
    }

    /// Records a response to a process.
    pub fn note_answer(&mut self, answer: &Return, now: Moment) {
        let Return { flight, performed, .. } = answer;
        let sender = (flight.collector, flight.part);
        let signal = performed.end.as_ref().map_or(Some(performed.signal), |(_, signal)| *signal);
        if let Some(Signal::Busy(Some(wait))) = signal {
            let until = now.after(wait);
            let silent = self.silent_until.entry(sender).or_default();
            *silent = until.max(*silent);
        }
        let counts = self.resumed_at.get(&flight.collector).is_none_or(|at| flight.moment > *at);
        if let (true, Outcome::Applied(_), Some(kind), Some(_)) =
            (counts && deletes(&flight.effect.request), &performed.outcome, flight.kind, flight.number)
        {
            self.note_deletion((flight.collector, kind), flight.steady);
        }
    }

    /// Records a deletion. Deletions are counted in tenths of a window, so the last nine tenths never hold more than is allowed.
    fn note_deletion(&mut self, place: (usize, usize), steady: i64) {
        let Some(largest) = self.breaker.largest_number else { return };
        let deletions = self.deletions.entry(place).or_default();
        deletions.push(steady);
        let window = gc_types::milliseconds(self.breaker.window * 9 / 10);
        let until =
            |end: i64| deletions.iter().filter(|at| (end - window..=end).contains(*at)).count() as u64;
        let most = deletions.iter().map(|end| until(*end)).max().unwrap_or_default();
        if most > largest {
            let collector = place.0;
            let message =
                format!("collector {collector} deletes {most} objects within {window} ms, {largest} allowed");
            self.excess = Some(Violation { oracle: "restraints", message });
        }
    }
}
