//! Conversions between etcd's messages and the trait.

use std::error::Error as _;
use std::sync::Arc;

use bytes::Bytes;
use gc_store_api::{Change, Key, KeyValue, Revision, StorageError};
use tonic::Code;

use super::client::CallError;
use super::protocol::{self, Event, EventType, ResponseHeader};

/// Maximum request that etcd accepts by default (`--max-request-bytes`).
pub(super) const REQUEST_LIMIT: usize = 3 << 19;

pub(super) fn revision(from: i64) -> Revision {
    Revision(u64::try_from(from).unwrap_or(0))
}

/// Returns the revision at which a response was made.
pub(super) fn made_at(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(Revision(0), |header| revision(header.revision))
}

/// Converts a revision to read at. etcd takes 0 for "newest" where the trait means "before anything"; nothing exists at revision 1
/// either.
pub(super) fn to_etcd(revision: Revision) -> i64 {
    i64::try_from(revision.0.max(1)).unwrap_or(i64::MAX)
}

/// Class of a failed request, regardless of its kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Compacted,
    Future,
    Full,
    TooLarge,
    /// The answer exceeds the maximum size.
    LargeAnswer,
    Unavailable(String),
    Broken(String),
}

impl Refusal {
    pub(super) fn of(error: &CallError) -> Self {
        let status = match error {
            CallError::Status(status) => status,
            CallError::Endpoint(_) => return Self::Broken(describe(error)),
            CallError::Transport(_) | CallError::Silent | CallError::LeaderChanged => {
                return Self::Unavailable(describe(error));
            }
        };
        let message = status.message();
        match status.code() {
            Code::OutOfRange if message.contains("compacted") => Self::Compacted,
            Code::OutOfRange if message.contains("future") => Self::Future,
            Code::OutOfRange if message.contains("decoded message length too large") => Self::LargeAnswer,
            Code::ResourceExhausted if message.contains("space exceeded") => Self::Full,
            Code::ResourceExhausted if message.contains("larger than max") => Self::TooLarge,
            Code::InvalidArgument if message.contains("too large") => Self::TooLarge,
            Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => {
                Self::Broken(message.to_owned())
            }
            _ => Self::Unavailable(describe(error)),
        }
    }
}

/// Formats an error with its causes in one line.
pub(super) fn describe(error: &CallError) -> String {
    let (mut text, mut cause) = match error {
        CallError::Status(status) => (status.message().to_owned(), status.source()),
        CallError::Transport(transport) => (transport.to_string(), transport.source()),
        CallError::Endpoint(reason) => (reason.clone(), None),
        CallError::Silent | CallError::LeaderChanged => (error.to_string(), None),
    };
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text.lines().collect::<Vec<_>>().join(" ")
}

/// Returns the trait's key, if the key has the prefix of the data.
pub(super) fn local_key(data: &str, key: &[u8]) -> Result<Option<Key>, StorageError> {
    let Some(local) = key.strip_prefix(data.as_bytes()) else { return Ok(None) };
    match std::str::from_utf8(local) {
        Ok(local) => Ok(Some(local.into())),
        Err(_) => Err(StorageError::Broken(format!("etcd holds a key under {data} that is not UTF-8"))),
    }
}

pub(super) fn item(key: Key, found: protocol::KeyValue) -> KeyValue {
    let (create_revision, mod_revision) = (revision(found.create_revision), revision(found.mod_revision));
    KeyValue { key, value: Bytes::from(found.value), create_revision, mod_revision }
}

/// Converts an event to a change; `None` if it does not concern the data. Fails with `Compacted` if etcd no longer has the previous
/// value.
pub(super) fn change(data: &str, event: Event) -> Result<Option<Change>, StorageError> {
    let deleted = event.r#type() == EventType::Delete;
    let Some(now) = event.kv else { return Ok(None) };
    let Some(key) = local_key(data, &now.key)? else { return Ok(None) };
    let at = revision(now.mod_revision);
    let previous = event.prev_kv.map(|before| item(Arc::clone(&key), before));
    if previous.is_none() && (deleted || now.version > 1) {
        return Err(StorageError::Compacted { requested: Revision(at.0.saturating_sub(1)), oldest: at });
    }
    let value = (!deleted).then(|| Bytes::from(now.value));
    Ok(Some(Change { revision: at, key, value, previous }))
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn a_refusal_is_known_by_its_code_and_message() {
        let broken = |message: &str| Refusal::Broken(message.to_owned());
        let unavailable = |message: &str| Refusal::Unavailable(message.to_owned());
        let rows = [
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Refusal::Compacted),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", Refusal::Future),
            (Code::OutOfRange, "decoded message length too large: found 9", Refusal::LargeAnswer),
            (Code::OutOfRange, "other", unavailable("other")),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Refusal::Full),
            (Code::ResourceExhausted, "trying to send message larger than max", Refusal::TooLarge),
            (Code::ResourceExhausted, "other", unavailable("other")),
            (Code::InvalidArgument, "etcdserver: request is too large", Refusal::TooLarge),
            (Code::InvalidArgument, "etcdserver: duplicate key", broken("etcdserver: duplicate key")),
            (Code::PermissionDenied, "denied", broken("denied")),
            (Code::Unauthenticated, "who", broken("who")),
            (Code::Unavailable, "later\nor never", unavailable("later or never")),
        ];
        for (code, message, expected) in rows {
            let error = CallError::Status(Status::new(code, message));
            assert_eq!(Refusal::of(&error), expected, "{code:?} {message}");
        }
        assert_eq!(Refusal::of(&CallError::Endpoint("no URL".to_owned())), broken("no URL"));
    }
}
