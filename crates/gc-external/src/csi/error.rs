//! Failures of calls to a driver.

use std::time::Duration;

/// A failed call. Nothing is known to be deleted.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// No driver answers at the socket.
    #[error("cannot reach CSI driver {driver} at {endpoint}: {why}")]
    Unreachable {
        /// The driver.
        driver: String,
        /// The endpoint.
        endpoint: String,
        /// The system's error.
        why: String,
    },
    /// Another driver listens at the socket.
    #[error(
        "the CSI driver at {endpoint} calls itself {found:?}, not {expected:?}; no request was sent to it"
    )]
    OtherDriver {
        /// The endpoint.
        endpoint: String,
        /// The expected name.
        expected: String,
        /// The actual name.
        found: String,
    },
    /// The driver reports that it cannot do this.
    #[error("CSI driver {driver} does not advertise {capability}")]
    Incapable {
        /// The driver.
        driver: String,
        /// The missing capability.
        capability: &'static str,
    },
    /// The driver reports that it is not ready.
    #[error("CSI driver {driver} is not ready")]
    NotReady {
        /// The driver.
        driver: String,
    },
    /// The driver's list of its volumes does not end.
    #[error("CSI driver {driver}: its list of volumes {why}")]
    Endless {
        /// The driver.
        driver: String,
        /// Fault in the list.
        why: &'static str,
    },
    /// There was no answer in time. The operation may still complete.
    #[error("{call}: rpc error: code = DeadlineExceeded desc = no answer within {limit:?}")]
    Timeout {
        /// The call.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The driver answered with a failure, or invalidly.
    #[error("{call}: rpc error: code = {code:?} desc = {message}")]
    Status {
        /// The call.
        call: &'static str,
        /// The gRPC code.
        code: tonic::Code,
        /// The driver's message.
        message: String,
    },
}

impl CsiError {
    /// Reports whether the driver says that the volume is in use.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Status { code: tonic::Code::FailedPrecondition, .. })
    }
}
