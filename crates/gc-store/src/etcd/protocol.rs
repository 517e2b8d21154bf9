//! The messages of etcd's API v3 (`etcdserverpb`, `mvccpb`) that this client reads and writes.
//!
//! Written by hand from the published protocol with its field numbers, as CRI's messages are; fields that the store does not need
//! are omitted, and skipped while decoding. This makes a protocol compiler unnecessary.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// Maximum size of a message. A larger page of a list is read again in smaller pages; a watch arrives in fragments, which are far
/// smaller (etcd's `--max-request-bytes`, 1.5 MiB by default).
pub(super) const LARGEST_MESSAGE: usize = 64 << 20;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(super) raft_term: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// End of the range, exclusive; empty for a single key.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// Limit on the number of keys; 0 means no limit.
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// Revision to read at; 0 means the newest.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// Number of keys in the range, including those beyond the limit.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(super) request: Option<Operation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OperationAnswer {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Empty),
    #[prost(message, tag = "3")]
    Delete(Empty),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "OperationAnswer", tags = "1, 2, 3")]
    pub(super) response: Option<OperationAnswer>,
}

/// Value that a condition compares; the required result is always "equal", which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum Target {
    Version = 0,
    Mod = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub(super) enum Expected {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "Target", tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Expected", tags = "4, 6")]
    pub(super) expected: Option<Expected>,
}

impl Compare {
    /// Requires this number of writes since the key was created; 0 if it must not exist.
    pub(super) fn version(key: &str, version: i64) -> Self {
        let (target, expected) = (Target::Version.into(), Some(Expected::Version(version)));
        Self { target, key: key.into(), expected }
    }

    /// Requires that the key was last written at this revision; 0 if it must not exist.
    pub(super) fn mod_revision(key: String, revision: i64) -> Self {
        let (target, expected) = (Target::Mod.into(), Some(Expected::ModRevision(revision)));
        Self { target, key: key.into(), expected }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

impl TxnRequest {
    /// Builds a request that performs `then` if all conditions hold, otherwise `otherwise`.
    pub(super) fn new(
        conditions: impl IntoIterator<Item = Compare>,
        then: impl IntoIterator<Item = Operation>,
        otherwise: impl IntoIterator<Item = Operation>,
    ) -> Self {
        let operation = |request| RequestOp { request: Some(request) };
        Self {
            compare: conditions.into_iter().collect(),
            success: then.into_iter().map(operation).collect(),
            failure: otherwise.into_iter().map(operation).collect(),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

impl TxnResponse {
    /// Returns the result of the operation with this number, if it was a read.
    pub(super) fn range(&self, number: usize) -> Option<&RangeResponse> {
        match self.responses.get(number)?.response.as_ref()? {
            OperationAnswer::Range(found) => Some(found),
            OperationAnswer::Put(_) | OperationAnswer::Delete(_) => None,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(int64, tag = "3")]
    pub(super) db_size: i64,
    /// Errors, including alarms such as `memberID:1 alarm:NOSPACE`.
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) db_size_in_use: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// First revision that is sent.
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(bool, tag = "4")]
    pub(super) progress_notify: bool,
    #[prost(bool, tag = "6")]
    pub(super) prev_kv: bool,
    /// True if large responses may arrive in parts.
    #[prost(bool, tag = "8")]
    pub(super) fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create_request: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// Oldest revision that can be watched, if the watch was canceled because of compaction.
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    /// True if the next response continues this one.
    #[prost(bool, tag = "7")]
    pub(super) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum EventType {
    Put = 0,
    Delete = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub(super) r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub(super) prev_kv: Option<KeyValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_compares_the_version_or_the_revision() {
        let of = |target: Target, expected| Compare {
            target: target.into(),
            key: b"k".to_vec(),
            expected: Some(expected),
        };
        assert_eq!(Compare::version("k", 3), of(Target::Version, Expected::Version(3)));
        assert_eq!(Compare::mod_revision("k".to_owned(), 4), of(Target::Mod, Expected::ModRevision(4)));
    }

    #[test]
    fn only_reads_have_results() {
        let range = RangeResponse { count: 3, ..RangeResponse::default() };
        let operations = [
            Some(OperationAnswer::Put(Empty {})),
            Some(OperationAnswer::Range(range.clone())),
            Some(OperationAnswer::Delete(Empty {})),
            None,
        ];
        let responses = operations.into_iter().map(|response| ResponseOp { response }).collect();
        let answer = TxnResponse { responses, ..TxnResponse::default() };
        let found: Vec<Option<&RangeResponse>> = (0..5).map(|number| answer.range(number)).collect();
        assert_eq!(found, [None, Some(&range), None, None, None]);
    }
}
