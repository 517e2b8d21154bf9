//! What an evaluation may cost, and how it fails.

/// The remaining budget; each step, and each element or byte that is examined, costs.
#[derive(Debug)]
pub struct Budget(u64);

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// As CEL words it, such as `no such key: size`.
    #[error("{0}")]
    Failed(String),
    /// The budget is spent.
    #[error("the expression costs too much")]
    TooExpensive,
}

impl Budget {
    /// A budget of this many steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// What is left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0
    }

    pub(crate) fn spend(&mut self, cost: usize) -> Result<(), EvalError> {
        match self.0.checked_sub(cost as u64) {
            Some(rest) => {
                self.0 = rest;
                Ok(())
            }
            None => {
                self.0 = 0;
                Err(EvalError::TooExpensive)
            }
        }
    }
}

pub(crate) fn failed<T>(why: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError::Failed(why.into()))
}
