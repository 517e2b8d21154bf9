//! Compaction by one of several processes.
//!
//! The scheme is kube-apiserver's: all know one key. Whoever finds it as it was one interval ago writes to it, and
//! compacts to what the newest revision was then; the others see that it has changed, and wait for another interval. So
//! history reaches back at least one interval, and nobody has to be elected.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, Error, Txn, TxnOp, TxnOpResponse};
use gc_registry::storage::Revision;

use super::Names;
use super::convert::{self, Refusal, describe};
use super::feed::Feed;

/// What was seen at the last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// How often the key had been written.
    version: i64,
    /// The newest revision.
    revision: i64,
}

/// Compacts for ever.
pub(super) async fn run(client: Client, names: Names, feed: Arc<Feed>, interval: Duration) {
    let mut seen = Seen::default();
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

async fn turn(client: &Client, names: &Names, seen: Seen) -> Result<(Seen, Option<Revision>), Error> {
    let key = names.compaction.as_str();
    let unchanged = Txn::new()
        .when([Compare::version(key, CompareOp::Equal, seen.version)])
        .and_then([TxnOp::put(key, seen.revision.to_string(), None)])
        .or_else([TxnOp::get(key, None)]);
    let mut kv = client.kv_client();
    let answer = kv.txn(unchanged).await?;
    let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
    if !answer.succeeded() {
        let version = match answer.op_responses().first() {
            Some(TxnOpResponse::Get(found)) => found.kvs().first().map_or(0, etcd_client::KeyValue::version),
            _ => 0,
        };
        return Ok((Seen { version, revision }, None));
    }
    let next = Seen { version: seen.version + 1, revision };
    if seen.revision == 0 {
        // The first one ever has no interval behind it.
        return Ok((next, None));
    }
    match kv.compact(seen.revision, None).await {
        Ok(_) => Ok((next, Some(convert::revision(seen.revision)))),
        Err(error) if Refusal::of(&error) == Refusal::Compacted => Ok((next, None)),
        Err(error) => Err(error),
    }
}
