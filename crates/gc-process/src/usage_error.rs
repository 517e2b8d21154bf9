/// Invalid options or configuration: exit code 2, as for errors of the command line itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl UsageError {
    /// Creates an error with a message that names the option, the value and the expectation.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
