//! Parts of a collector that request changes, and the results of their requests.

use gc_collectors::engine::Observation;
use gc_controller::barriers::ListEnd;
use gc_controller::concurrency::Signal;
use gc_types::{Event, Outcome};

/// Part of a collector that requests changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The ownership engine.
    Ownership,
    /// The pod collector.
    Pods,
    /// The collector of finished Jobs.
    Jobs,
    /// The collector of certificate signing requests.
    Certificates,
    /// The lease collector.
    Leases,
    /// The collector of nodes whose machine is gone.
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
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Evidence about the server from the last response.
    pub signal: Signal,
    /// Number of calls.
    pub round_trips: u32,
    /// End of a barrier's list.
    pub end: Option<(ListEnd, Option<Signal>)>,
    /// True if a liar has answered.
    pub is_lie: bool,
}

impl PerformedRequest {
    /// Creates a result after one call.
    #[must_use]
    pub fn of(outcome: Outcome, signal: Signal) -> Self {
        let (found, observations) = (Vec::new(), Vec::new());
        Self { found, observations, outcome, signal, round_trips: 1, end: None, is_lie: false }
    }

    /// Creates the result of a barrier's list whose kind is no longer known.
    #[must_use]
    pub fn without_a_list() -> Self {
        Self { end: Some((ListEnd::NotServed, None)), ..Self::of(Outcome::NotServed, Signal::Answered) }
    }

    /// Creates the outcome of a request without a response.
    #[must_use]
    pub fn unanswered(message: &str) -> Self {
        Self::of(failed(message), Signal::Busy(None))
    }
}

/// Creates the outcome of a failed request.
pub(crate) fn failed(message: &str) -> Outcome {
    Outcome::Failed { message: message.to_owned(), retry_after_milliseconds: None }
}
