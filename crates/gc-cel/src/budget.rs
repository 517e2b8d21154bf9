//! The cost limit of an evaluation, and its errors.

use crate::pattern::Patterns;

/// The remaining budget of an evaluation; each step costs, and so does each element or byte that is examined.
#[derive(Debug)]
pub struct Budget {
    steps: u64,
    /// Patterns whose compilation has been paid for.
    pub(crate) patterns: Patterns,
}

/// Reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// CEL's own message, such as `no such key: size`.
    #[error("{0}")]
    Failed(String),
    /// The budget is spent.
    #[error("the expression costs too much")]
    TooExpensive,
}

impl Budget {
    /// Creates a budget of this many steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self { steps, patterns: Patterns::default() }
    }

    /// Returns the remaining steps.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.steps
    }

    pub(crate) fn spend(&mut self, cost: usize) -> Result<(), EvalError> {
        match self.steps.checked_sub(cost as u64) {
            Some(rest) => {
                self.steps = rest;
                Ok(())
            }
            None => {
                self.steps = 0;
                Err(EvalError::TooExpensive)
            }
        }
    }
}

pub(crate) fn failed<T>(why: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError::Failed(why.into()))
}
