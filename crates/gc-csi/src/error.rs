//! Why a call to a driver failed.

use std::time::Duration;

/// A call that did not succeed. Nothing is known to be removed.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// No driver answers at the socket.
    #[error("cannot reach CSI driver {driver} at {endpoint}: {why}")]
    Unreachable {
        /// The driver.
        driver: String,
        /// Where.
        endpoint: String,
        /// The system's reason.
        why: String,
    },
    /// Another driver listens at the socket.
    #[error("the CSI driver at {endpoint} calls itself {found:?}, not {expected:?}; nothing was asked of it")]
    OtherDriver {
        /// Where.
        endpoint: String,
        /// Who was expected.
        expected: String,
        /// Who answered.
        found: String,
    },
    /// The driver says that it cannot delete volumes.
    #[error("CSI driver {driver} does not advertise {capability}")]
    Incapable {
        /// The driver.
        driver: String,
        /// What it lacks.
        capability: &'static str,
    },
    /// The driver says that it is not ready.
    #[error("CSI driver {driver} is not ready")]
    NotReady {
        /// The driver.
        driver: String,
    },
    /// No answer in time. The operation may still complete.
    #[error("{call}: rpc error: code = DeadlineExceeded desc = no answer within {limit:?}")]
    Timeout {
        /// Which call.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The driver answered with a failure, or with what is no answer.
    #[error("{call}: rpc error: code = {code:?} desc = {message}")]
    Status {
        /// Which call.
        call: &'static str,
        /// gRPC's code.
        code: tonic::Code,
        /// What it said.
        message: String,
    },
}

impl CsiError {
    /// Whether the driver says that the volume is in use.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Status { code: tonic::Code::FailedPrecondition, .. })
    }
}
