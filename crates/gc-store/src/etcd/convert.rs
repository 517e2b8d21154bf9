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

    #[test]
    fn revisions_are_never_negative_and_never_the_newest_by_accident() {
        for (etcd, ours) in [(-1, 0), (0, 0), (1, 1), (i64::MAX, u64::MAX >> 1)] {
            assert_eq!(revision(etcd), Revision(ours));
            let header = ResponseHeader { revision: etcd, ..ResponseHeader::default() };
            assert_eq!(made_at(Some(&header)), Revision(ours));
        }
        assert_eq!(made_at(None), Revision(0));
        for (ours, etcd) in [(0, 1), (1, 1), (2, 2), (u64::MAX, i64::MAX)] {
            assert_eq!(to_etcd(Revision(ours)), etcd);
        }
    }

    /// An error with a cause, whose texts may be the same.
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] Option<Box<Outer>>);

    #[test]
    fn an_error_is_described_with_the_causes_that_it_does_not_name() {
        let caused = |text, cause| Outer(text, Some(Box::new(cause)));
        let rows = [
            (Outer("broken", None), "broken"),
            (caused("broken", Outer("too late", None)), "broken: too late"),
            (caused("broken: too late", Outer("too late", None)), "broken: too late"),
            (caused("broken", caused("broken", Outer("too\nlate", None))), "broken: too late"),
        ];
        for (error, expected) in rows {
            let described = describe(&CallError::Status(Status::from_error(Box::new(error))));
            assert_eq!(described, expected);
        }
        assert_eq!(describe(&CallError::Silent), "the member of etcd does not answer");
        assert_eq!(describe(&CallError::LeaderChanged), "the leader of etcd has changed");
    }

    fn stored(key: &str, version: i64) -> protocol::KeyValue {
        let (create_revision, mod_revision) = (3, 7);
        protocol::KeyValue { key: key.into(), create_revision, mod_revision, version, value: b"v".to_vec() }
    }

    #[test]
    fn an_event_becomes_a_change_if_it_is_of_data_and_has_its_previous_value() {
        let event = |kind: EventType, kv: Option<protocol::KeyValue>, prev_kv| Event {
            r#type: kind.into(),
            kv,
            prev_kv,
        };
        let changed = |value: Option<&'static str>, previous| {
            let value = value.map(|value| Bytes::from_static(value.as_bytes()));
            Ok(Some(Change { revision: Revision(7), key: "/a".into(), value, previous }))
        };
        let before = || Some(item("/a".into(), stored("d/a", 1)));
        let compacted = || Err(StorageError::Compacted { requested: Revision(6), oldest: Revision(7) });
        let (put, delete) = (EventType::Put, EventType::Delete);
        let rows = [
            ("nothing", event(put, None, None), Ok(None)),
            ("another key", event(put, Some(stored("e/a", 1)), None), Ok(None)),
            ("created", event(put, Some(stored("d/a", 1)), None), changed(Some("v"), None)),
            (
                "changed",
                event(put, Some(stored("d/a", 2)), Some(stored("d/a", 1))),
                changed(Some("v"), before()),
            ),
            ("changed from what is gone", event(put, Some(stored("d/a", 2)), None), compacted()),
            (
                "deleted",
                event(delete, Some(stored("d/a", 0)), Some(stored("d/a", 1))),
                changed(None, before()),
            ),
            ("deleted from what is gone", event(delete, Some(stored("d/a", 0)), None), compacted()),
        ];
        for (name, event, expected) in rows {
            assert_eq!(change("d", event), expected, "{name}");
        }
        let garbled = protocol::KeyValue { key: b"d\xff".to_vec(), ..protocol::KeyValue::default() };
        assert_eq!(
            change("d", event(put, Some(garbled), None)),
            Err(StorageError::Broken("etcd holds a key under d that is not UTF-8".to_owned()))
        );
    }
}
