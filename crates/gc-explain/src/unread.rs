//! Reasons why something could not be read.

use serde::Serialize;

/// Reason why something could not be read, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum UnreadCode {
    /// Nothing is served at its path, or the server does not know it.
    NotServed,
    /// The server does not recognize the user.
    Unauthorized,
    /// The user may not read it.
    Forbidden,
    /// There was no answer in time.
    TimedOut,
    /// The server answered with another error.
    ServerError,
    /// The server could not be reached, or the answer broke off.
    Unreachable,
    /// The answer is not of the expected form.
    Malformed,
}

impl UnreadCode {
    /// Returns the code for an HTTP error status.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 | 405 => Self::Forbidden,
            404 => Self::NotServed,
            408 | 504 => Self::TimedOut,
            _ => Self::ServerError,
        }
    }
}

/// Reason why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{message}")]
pub struct Unread {
    /// Code for programs.
    pub code: UnreadCode,
    /// Human-readable message; the server's own, if it sent one.
    pub message: String,
}

impl Unread {
    /// Creates a reason.
    #[must_use]
    pub fn new(code: UnreadCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Reason why a resource could not be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnlistedReason {
    /// Nothing is served there.
    #[error("it is not served")]
    NotServed,
    /// The user may not list it.
    #[error("this user may not list it")]
    Forbidden,
    /// The server answered with an error.
    #[error("{code}: {message}")]
    Failed {
        /// HTTP status.
        code: u16,
        /// The error.
        message: String,
    },
    /// There was no answer, or one that cannot be read.
    #[error("{0}")]
    Unread(Unread),
}

impl From<UnlistedReason> for Unread {
    fn from(why: UnlistedReason) -> Self {
        let message = why.to_string();
        match why {
            UnlistedReason::NotServed => Self::new(UnreadCode::NotServed, message),
            UnlistedReason::Forbidden => Self::new(UnreadCode::Forbidden, message),
            UnlistedReason::Failed { code, .. } => Self::new(UnreadCode::of_status(code), message),
            UnlistedReason::Unread(why) => why,
        }
    }
}

/// An object or list that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadPlace {
    /// Resource, for example `deployments.apps`.
    pub resource: String,
    /// Namespace; empty at cluster scope and for all namespaces.
    pub namespace: String,
    /// The object; empty for all of them.
    pub name: String,
    /// Reason for programs.
    pub code: UnreadCode,
    /// Human-readable reason.
    pub message: String,
}

impl std::fmt::Display for UnreadPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { resource, namespace, name, message, .. } = self;
        f.write_str(resource)?;
        if !name.is_empty() {
            write!(f, "/{name}")?;
        }
        if !namespace.is_empty() {
            write!(f, " in namespace {namespace}")?;
        }
        write!(f, ": {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_listed_has_the_code_of_its_cause() {
        let malformed = Unread::new(UnreadCode::Malformed, "no JSON");
        let failed = |code| UnlistedReason::Failed { code, message: "why".to_owned() };
        let table = [
            (UnlistedReason::NotServed, UnreadCode::NotServed, "it is not served"),
            (UnlistedReason::Forbidden, UnreadCode::Forbidden, "this user may not list it"),
            (failed(401), UnreadCode::Unauthorized, "401: why"),
            (failed(405), UnreadCode::Forbidden, "405: why"),
            (failed(500), UnreadCode::ServerError, "500: why"),
            (failed(504), UnreadCode::TimedOut, "504: why"),
            (UnlistedReason::Unread(malformed), UnreadCode::Malformed, "no JSON"),
        ];
        for (unlisted, code, message) in table {
            assert_eq!(Unread::from(unlisted), Unread::new(code, message));
        }
    }
}
