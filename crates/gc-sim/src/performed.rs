//! Who in a collector wants something, and what becomes of it.

use gc_collectors::engine::Observation;
use gc_controller::barriers::ListEnd;
use gc_controller::concurrency::Signal;
use gc_types::{Event, Outcome};

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

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerformedRequest {
    /// What a barrier found.
    pub found: Vec<Event>,
    /// What a live list of retention, or a machine provider, said.
    pub observations: Vec<Observation>,
    /// What became of it.
    pub outcome: Outcome,
    /// What the last answer says about the server.
    pub signal: Signal,
    /// How many calls it took.
    pub round_trips: u32,
    /// How a list of a barrier ended.
    pub end: Option<(ListEnd, Option<Signal>)>,
    /// A liar has answered it.
    pub is_lie: bool,
}

impl PerformedRequest {
    /// It came to this, after one call.
    #[must_use]
    pub fn of(outcome: Outcome, signal: Signal) -> Self {
        let (found, observations) = (Vec::new(), Vec::new());
        Self { found, observations, outcome, signal, round_trips: 1, end: None, is_lie: false }
    }

    /// The list of a barrier, whose kind is not known any more.
    #[must_use]
    pub fn without_a_list() -> Self {
        Self { end: Some((ListEnd::NotServed, None)), ..Self::of(Outcome::NotServed, Signal::Answered) }
    }

    /// It was not answered.
    #[must_use]
    pub fn unanswered(message: &str) -> Self {
        Self::of(failed(message), Signal::Busy(None))
    }
}

/// It has failed.
pub(crate) fn failed(message: &str) -> Outcome {
    Outcome::Failed { message: message.to_owned(), retry_after_milliseconds: None }
}
