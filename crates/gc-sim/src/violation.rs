//! What an oracle reports.

use std::fmt;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub oracle: &'static str,
    /// How.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.message)
    }
}

pub(crate) fn broken<T>(oracle: &'static str, message: String) -> Result<T, Violation> {
    Err(Violation { oracle, message })
}
