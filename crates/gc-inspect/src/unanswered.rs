//! Reasons why a question has no answer, for programs.

use std::time::Duration;

use gc_explain::messages::webhook_in;
use gc_explain::{Resource, Unread, UnreadCode};
use gc_kube::connection::RequestError;
use http::StatusCode;

/// Reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum UnansweredReason {
    /// The server reports that the object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Something cannot be read.
    #[error("{what}: {why}")]
    Unread {
        /// The object or list, in a message.
        what: String,
        /// Cause.
        why: Unread,
    },
    /// Answering took too long.
    #[error("there was no answer within {0:?}")]
    TimedOut(Duration),
}

impl UnansweredReason {
    /// Returns the error for a missing object, worded like kubectl's.
    #[must_use]
    pub fn no_object(resource: &Resource, namespace: &str, name: &str) -> Self {
        Self::NotFound(if resource.is_namespaced() {
            format!("{} {name:?} not found in namespace {namespace:?}", resource.name)
        } else {
            format!("{} {name:?} not found", resource.name)
        })
    }

    /// Returns the error for an object that cannot be read.
    #[must_use]
    pub fn unreadable(resource: &Resource, name: &str, why: Unread) -> Self {
        Self::Unread { what: format!("{}/{name} cannot be read", resource.name), why }
    }
}

/// A deletion that the server did not accept.
#[derive(Debug, thiserror::Error)]
#[error("{object} was not deleted: {message}")]
pub struct NotDeleted {
    /// Resource and name.
    pub object: String,
    /// Message of the server.
    pub message: String,
    /// Status of its response.
    pub status: StatusCode,
}

impl NotDeleted {
    /// Reports whether the server would refuse again: because of permissions or admission.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let passes = [StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS];
        (self.status.is_client_error() && !passes.contains(&self.status))
            || webhook_in(&self.message).is_some()
    }

    /// Reports whether the object does not exist.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }
}

/// Reason why a server did not carry out a request, if an error contains one.
pub enum Cause {
    /// The object does not exist.
    NotFound,
    /// Another reason.
    Unread(UnreadCode),
}

impl Cause {
    /// Returns the cause in an error.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Option<Self> {
        let unanswered = error.chain().find_map(|error| error.downcast_ref::<UnansweredReason>());
        let not_deleted = error.chain().find_map(|error| error.downcast_ref::<NotDeleted>());
        let request = error.chain().find_map(|error| error.downcast_ref::<RequestError>());
        Some(match (unanswered, not_deleted, request) {
            (Some(UnansweredReason::NotFound(_)), ..) => Self::NotFound,
            (Some(UnansweredReason::Unread { why, .. }), ..) => Self::Unread(why.code),
            (Some(UnansweredReason::TimedOut(_)), ..) | (.., Some(RequestError::Timeout(_))) => {
                Self::Unread(UnreadCode::TimedOut)
            }
            (_, Some(not_deleted), _) if not_deleted.is_gone() => Self::NotFound,
            (_, Some(not_deleted), _) => Self::Unread(UnreadCode::of_status(not_deleted.status.as_u16())),
            (.., Some(_)) => Self::Unread(UnreadCode::Unreachable),
            (None, None, None) => return None,
        })
    }
}
