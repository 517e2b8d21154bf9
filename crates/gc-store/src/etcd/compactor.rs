//! Compaction by one of several processes.
//!
//! The scheme is kube-apiserver's: all processes share one key. A process that finds the key unchanged for one interval writes to
//! it, and compacts to the revision that was the newest one interval ago; the others see that the key has changed and wait for
//! another interval. Thus history reaches back at least one interval, without an election.

use std::sync::Arc;
use std::time::Duration;

use gc_store_api::Revision;

use super::Names;
use super::client::{CallError, EtcdClient};
use super::convert::{self, Refusal, describe};
use super::feed::Feed;
use super::members::Repeat;
use super::protocol::{Compare, Operation, PutRequest, RangeRequest, TxnRequest};

/// State at the last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CompactorState {
    /// Number of writes of the key.
    version: i64,
    /// Newest revision.
    revision: i64,
}

/// Compacts forever.
pub(super) async fn run(client: EtcdClient, names: Names, feed: Arc<Feed>, interval: Duration) {
    let mut seen = CompactorState::default();
    loop {
        match turn(&client, &names, seen).await {
            Ok((next, compacted)) => {
                seen = next;
                if let Some(revision) = compacted {
                    tracing::debug!(%revision, "compacted");
                    feed.compacted(revision);
                }
            }
            Err(error) => tracing::warn!(error = describe(&error), "etcd could not be compacted"),
        }
        tokio::time::sleep(interval).await;
    }
}

async fn turn(
    client: &EtcdClient,
    names: &Names,
    seen: CompactorState,
) -> Result<(CompactorState, Option<Revision>), CallError> {
    let key = names.compaction.as_str();
    let put = PutRequest { key: key.into(), value: seen.revision.to_string().into() };
    let get = RangeRequest { key: key.into(), ..RangeRequest::default() };
    let unchanged = TxnRequest::new(
        [Compare::version(key, seen.version)],
        [Operation::Put(put)],
        [Operation::Range(get)],
    );
    let (answer, _) = client.transaction(unchanged, Repeat::Harmful).await?;
    let revision = answer.header.as_ref().map_or(0, |header| header.revision);
    if !answer.succeeded {
        let version = answer.range(0).and_then(|found| found.kvs.first()).map_or(0, |found| found.version);
        return Ok((CompactorState { version, revision }, None));
    }
    let next = CompactorState { version: seen.version + 1, revision };
    if seen.revision == 0 {
        // The very first turn has no preceding interval.
        return Ok((next, None));
    }
    match client.compact(seen.revision).await {
        Ok(()) => Ok((next, Some(convert::revision(seen.revision)))),
        Err(error) if Refusal::of(&error) == Refusal::Compacted => Ok((next, None)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
