//! Report of an oracle.

use std::fmt;

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the violated rule.
    pub oracle: &'static str,
    /// Description of the violation.
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
