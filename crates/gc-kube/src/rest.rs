//! Why nothing is sent now, and until when.

use gc_control::Moment;
use tokio::time::Instant;

use crate::clock::instant;

/// Why nothing is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing is wanted.
    Idle,
    /// The pacing lets nothing go until then, or until a request is done. What is wanted is not decided before.
    Full(Option<Moment>),
}

impl Rest {
    /// When it ends by itself, if something is `due` next: what is due is no reason to look while nothing may go.
    pub(crate) fn ends(self, due: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Idle => due,
            Self::Full(until) => until.map(instant),
        }
    }
}
