//! Failures of calls to the runtime.

use std::time::Duration;

use crate::Endpoint;

/// A failed call, classified by status code; the runtime's text is shown, but never decides.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// No runtime answers at the socket.
    #[error("cannot reach the container runtime at {endpoint}: {why}")]
    Unreachable {
        /// The endpoint.
        endpoint: Endpoint,
        /// The system's error.
        why: String,
    },
    /// The socket exists, but this process may not use it.
    #[error("permission denied on {endpoint}; the container runtime socket needs root or its group")]
    PermissionDenied {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// Something listens, but does not speak CRI v1.
    #[error(
        "{endpoint} does not speak CRI v1 ({why}); expected a container runtime that serves runtime.v1, such as containerd 1.6 or CRI-O 1.26 and newer"
    )]
    NotCri {
        /// The endpoint.
        endpoint: Endpoint,
        /// Answer of the runtime.
        why: String,
    },
    /// The runtime is still starting, stopping, or gone.
    #[error("{call}: the container runtime is unavailable: {message}")]
    Unavailable {
        /// The call.
        call: &'static str,
        /// The runtime's message.
        message: String,
    },
    /// There was no answer in time. The operation may still complete.
    #[error("{call}: no answer within {limit:?}")]
    Timeout {
        /// The call.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The object does not exist.
    #[error("{call}: not found: {message}")]
    NotFound {
        /// The call.
        call: &'static str,
        /// The runtime's message.
        message: String,
    },
    /// The answer is larger than one side accepts.
    #[error("{call}: the answer is too large for one message: {message}")]
    TooLarge {
        /// The call.
        call: &'static str,
        /// The runtime's message.
        message: String,
    },
    /// The runtime does not have this call.
    #[error("{call}: not implemented by this runtime")]
    Unimplemented {
        /// The call.
        call: &'static str,
    },
    /// The runtime refused for another reason.
    #[error("{call}: {message}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The runtime's message.
        message: String,
    },
    /// The answer lacks a part that the protocol requires.
    #[error("{call}: malformed answer: {what}")]
    Malformed {
        /// The call.
        call: &'static str,
        /// The missing field.
        what: String,
    },
}

/// Prefix of the message about a broken connection.
const TRANSPORT: &str = "transport error: ";

impl CriError {
    /// Classifies a gRPC status.
    pub(crate) fn of(call: &'static str, limit: Duration, status: &tonic::Status) -> Self {
        let message = status.message().to_owned();
        // A status from the runtime has no source on this side; one with a source was created here when the connection broke,
        // whatever its code.
        if std::error::Error::source(status).is_some() {
            return Self::Unavailable { call, message: format!("{TRANSPORT}{message}") };
        }
        match status.code() {
            tonic::Code::NotFound => Self::NotFound { call, message },
            tonic::Code::Unimplemented => Self::Unimplemented { call },
            tonic::Code::DeadlineExceeded => Self::Timeout { call, limit },
            tonic::Code::ResourceExhausted | tonic::Code::OutOfRange => Self::TooLarge { call, message },
            tonic::Code::Unavailable | tonic::Code::Cancelled => Self::Unavailable { call, message },
            _ => Self::Refused { call, message },
        }
    }

    /// Reports whether the object certainly does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Reports whether there is no connection to the runtime. In that case, nothing about a single object was answered.
    #[must_use]
    pub fn is_connection_lost(&self) -> bool {
        match self {
            Self::Unavailable { message, .. } => message.starts_with(TRANSPORT),
            Self::Unreachable { .. } | Self::PermissionDenied { .. } | Self::NotCri { .. } => true,
            _ => false,
        }
    }

    /// Reports whether the fault may be the runtime's and not this one object's. If the runtime then answers that it is ready, it
    /// is the object's.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::PermissionDenied { .. }
                | Self::NotCri { .. }
                | Self::Unavailable { .. }
                | Self::Timeout { .. }
        )
    }
}
