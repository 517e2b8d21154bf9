//! Between etcd's words and the trait's.

use std::error::Error as _;
use std::sync::Arc;

use bytes::Bytes;
use etcd_client::{Error, Event, EventType};
use gc_registry::storage::{Change, Key, KeyValue, Revision, StorageError};

/// What etcd takes in one request unless it is told otherwise (`--max-request-bytes`).
pub(super) const REQUEST_LIMIT: usize = 3 << 19;

// The status codes of gRPC that are told apart (the type is not exported by the client).
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

pub(super) fn revision(from: i64) -> Revision {
    Revision(u64::try_from(from).unwrap_or(0))
}

/// etcd takes 0 for "newest" where the trait means "before anything": nothing is there at revision 1 either.
pub(super) fn to_etcd(revision: Revision) -> i64 {
    i64::try_from(revision.0.max(1)).unwrap_or(i64::MAX)
}

/// Why a request failed, before what was asked for is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Compacted,
    Future,
    Full,
    TooLarge,
    Unavailable(String),
    Broken(String),
}

impl Refusal {
    pub(super) fn of(error: &Error) -> Self {
        let Error::GRpcStatus(status) = error else {
            return match error {
                Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::Utf8Error(_) => {
                    Self::Broken(describe(error))
                }
                _ => Self::Unavailable(describe(error)),
            };
        };
        let message = status.message();
        match i32::from(status.code()) {
            OUT_OF_RANGE if message.contains("compacted") => Self::Compacted,
            OUT_OF_RANGE if message.contains("future") => Self::Future,
            RESOURCE_EXHAUSTED if message.contains("space exceeded") => Self::Full,
            RESOURCE_EXHAUSTED if message.contains("larger than max") => Self::TooLarge,
            INVALID_ARGUMENT if message.contains("too large") => Self::TooLarge,
            INVALID_ARGUMENT | PERMISSION_DENIED | UNAUTHENTICATED => Self::Broken(message.to_owned()),
            _ => Self::Unavailable(describe(error)),
        }
    }
}

/// An error with its causes, in one line.
pub(super) fn describe(error: &Error) -> String {
    let mut text = match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let mut cause = match error {
        Error::GRpcStatus(status) => status.source(),
        Error::TransportError(error) => error.source(),
        _ => None,
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

/// The key of the trait, if it lies under the prefix of the data.
pub(super) fn local_key(data: &str, key: &[u8]) -> Result<Option<Key>, StorageError> {
    let Some(local) = key.strip_prefix(data.as_bytes()) else { return Ok(None) };
    match std::str::from_utf8(local) {
        Ok(local) => Ok(Some(local.into())),
        Err(_) => Err(StorageError::Broken(format!("etcd holds a key under {data} that is not UTF-8"))),
    }
}

pub(super) fn item(key: Key, found: etcd_client::KeyValue) -> KeyValue {
    let (create_revision, mod_revision) = (revision(found.create_revision()), revision(found.mod_revision()));
    KeyValue { key, value: Bytes::from(found.into_key_value().1), create_revision, mod_revision }
}

/// An event as a change; nothing if it is none of the data's. `Err(Compacted)` if etcd no longer has what was before.
pub(super) fn change(data: &str, event: &Event) -> Result<Option<Change>, StorageError> {
    let Some(now) = event.kv() else { return Ok(None) };
    let Some(key) = local_key(data, now.key())? else { return Ok(None) };
    let at = revision(now.mod_revision());
    let previous = event.prev_kv().map(|before| item(Arc::clone(&key), before.clone()));
    let deleted = event.event_type() == EventType::Delete;
    if previous.is_none() && (deleted || now.version() > 1) {
        return Err(StorageError::Compacted { requested: Revision(at.0.saturating_sub(1)), oldest: at });
    }
    let value = (!deleted).then(|| Bytes::copy_from_slice(now.value()));
    Ok(Some(Change { revision: at, key, value, previous }))
}
