//! Parts of a collector that request changes, and the results.

use gc_collectors::engine::Observation;
use gc_controller::barriers::ListEnd;
use gc_controller::concurrency::Signal;
use gc_types::{Event, Outcome};

/// Part of a collector that requests changes.
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

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerformedRequest {
    /// Events that a barrier found.
    pub found: Vec<Event>,
    /// Observations of a live list of retention, or of a machine provider.
    pub observations: Vec<Observation>,
    /// The outcome.
    pub outcome: Outcome,
    /// Evidence of the last answer about the server.
    pub signal: Signal,
    /// Number of calls.
    pub round_trips: u32,
    /// End of a barrier's list.
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
