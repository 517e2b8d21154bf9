//! One controller of namespaces: the real passes, and the responses that have not reached them yet.

use std::sync::Arc;
use std::time::Duration;

use gc_controller::Moment;
use gc_controller::concurrency::ConcurrencyOptions;
use gc_controller::namespaces::{Answer, Now, Passes, Question};
use gc_types::Timestamp;

use crate::defects::Defect;
use crate::process::Process;
use crate::server::BEGINNING_MILLISECONDS;
use crate::story::Story;

/// Settling time of observations, milliseconds.
const SETTLE_MILLISECONDS: i64 = 1_000;
/// Divisor of the responses that the defect loses: one in this many.
const LOST_ANSWERS: u64 = 5;

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) controller: usize,
    pub(super) question: Question,
    pub(super) sent: i64,
    /// True if the gate has held it back because its sender no longer leads.
    pub(super) gated: bool,
}

/// A response in flight.
#[derive(Clone, Debug)]
pub(super) struct Mail {
    pub(super) flight: Flight,
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(super) struct NamespaceController {
    pub(super) number: usize,
    passes: Passes,
    /// Restraints of the controller.
    pub(super) process: Process,
    answers: u64,
    /// True if the controller is suspended, and receives and sends nothing.
    pub(super) paused: bool,
    /// True if another controller has led since it was paused: no change leaves it any more.
    pub(super) deposed: bool,
    /// Error of its wall clock, milliseconds.
    pub(super) clock_error: i64,
    /// Responses that have not arrived yet.
    pub(super) mail: Vec<Mail>,
    pub(super) defect: Option<Defect>,
}

impl NamespaceController {
    pub(super) fn new(number: usize, story: &Story, defect: Option<Defect>) -> Self {
        let is_unpaced = defect == Some(Defect::NamespaceLimitIgnored);
        let (concurrency, breaker) = story.namespace_restraints().unwrap_or_default();
        let concurrency = if is_unpaced { ConcurrencyOptions::default() } else { concurrency };
        Self {
            number,
            passes: Passes::new(SETTLE_MILLISECONDS, concurrency),
            process: Process::new(breaker, defect),
            answers: 0,
            paused: false,
            deposed: false,
            clock_error: 0,
            mail: Vec::new(),
            defect,
        }
    }

    /// Makes the controller lead; it finds these namespaces terminating.
    pub(super) fn lead(&mut self, terminating: &[Arc<str>], now: i64) {
        if self.defect != Some(Defect::NamespaceInheritanceRefused) {
            self.passes.inherit(terminating, Timestamp(now));
        }
        for name in terminating {
            self.listed(name, now);
        }
    }

    /// Observes that a namespace is terminating, or has changed since.
    pub(super) fn observed(&mut self, name: &Arc<str>, now: i64) {
        self.passes.observed(name, Timestamp(now));
    }

    /// Notes a namespace that a list of all namespaces found terminating.
    pub(super) fn listed(&mut self, name: &Arc<str>, now: i64) {
        self.passes.listed(name, Timestamp(now));
    }

    /// Returns the next requests of its passes, at most this many.
    pub(super) fn ask(&mut self, most: usize, now: i64) -> Vec<Flight> {
        let surroundings = self.process.around(&|_| None).observing();
        let questions = std::iter::from_fn(|| self.passes.poll_question(at(now), &surroundings)).take(most);
        let (controller, deposed) = (self.number, self.deposed);
        let flight = |question: Question| Flight {
            controller,
            gated: deposed && question.changes(),
            question,
            sent: now,
        };
        let flights = questions.map(flight).collect();
        self.forget_ends();
        flights
    }

    /// Takes a response.
    pub(super) fn take(&mut self, mail: Mail, now: i64) {
        self.answers += 1;
        if self.defect == Some(Defect::NamespaceAnswersLost) && self.answers.is_multiple_of(LOST_ANSWERS) {
            return;
        }
        let surroundings = self.process.around(&|_| None).observing();
        self.passes.answered(&mail.flight.question, mail.answer, at(now), &surroundings);
        self.forget_ends();
    }

    /// Drops the ends of passes, which are for users.
    fn forget_ends(&mut self) {
        while self.passes.poll_end().is_some() {}
    }

    /// Returns the time of its next action by itself.
    pub(super) fn next_wakeup(&self, now: i64) -> Option<i64> {
        let surroundings = self.process.around(&|_| None).observing();
        self.passes.next_wakeup(at(now), &surroundings).map(|at| at.0)
    }

    /// Resumes, as the operator, everything that the breaker has stopped. Returns false if there is nothing.
    pub(super) fn resume(&mut self, now: i64) -> bool {
        let any = self.process.resume() > 0;
        if any {
            self.passes.hurry(Timestamp(now));
        }
        any
    }

    /// Returns the number of remembered namespaces, and of those that wait or are in a pass: zero if none is terminating.
    pub(super) fn burden(&self) -> (usize, usize) {
        (self.passes.remembered(), self.passes.len())
    }
}

fn at(now: i64) -> Now {
    let running = Duration::from_millis(u64::try_from(now - BEGINNING_MILLISECONDS).unwrap_or_default());
    Now { time: Timestamp(now), moment: Moment::from_start(running) }
}
