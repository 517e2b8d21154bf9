//! Checks that collectors obey their restraints: the operator's orders, the limits of the circuit breaker, and the
//! bounds of the concurrency limit. Judged from what was sent and answered, without asking any of those.

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

/// A process of the world, and one of its controllers.
type Sender = (usize, Part);

/// Requests and answers that restraints are about.
#[derive(Clone, Debug)]
pub struct RestraintBook {
    breaker: BreakerOptions,
    largest: usize,
    /// Until when the server has asked each controller to send nothing.
    silent_until: BTreeMap<Sender, Moment>,
    /// When the deletions were decided that each process has done of each kind since its breaker was resumed, by its steady clock.
    deletions: BTreeMap<(usize, usize), Vec<i64>>,
    /// When the breaker of each process was resumed: what was decided before no longer counts.
    resumed_at: BTreeMap<usize, Moment>,
    excess: Option<Violation>,
}

impl RestraintBook {
    /// Nothing was sent yet.
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

    /// The breaker of a process counts from the beginning.
    pub fn resumed(&mut self, collector: usize, now: Moment) {
        self.resumed_at.insert(collector, now);
        self.deletions.retain(|(number, _), _| *number != collector);
    }

    /// Judges what was decided just now.
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

    /// Judges how many requests of each of its controllers a process has in flight.
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

    /// A process gets an answer.
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

    /// Deletions are counted in tenths of a window, so that at any time the last nine of them hold no more than allowed.
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
