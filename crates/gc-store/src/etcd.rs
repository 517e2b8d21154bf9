//! Storage in etcd, which several processes can share.
//!
//! Revisions and data are etcd's own: every read and write goes to etcd, and an outage is an error rather than a guess. Only
//! watches are served locally, from a single watch of etcd per process.

mod answers;
mod attempt;
mod client;
mod compactor;
mod convert;
mod feed;
mod fence;
mod guarded;
mod members;
mod protocol;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use gc_store_api::{
    Blocking, Committed, GetAnswer, Key, KeyValue, RangeAnswer, RangeOptions, Revision, Storage,
    StorageError, StoreStatus, Transaction, WatchStream, Write,
};
use tokio::runtime::Runtime;

use crate::memory::WATCH_LAG;
use crate::mvcc::HistoryOptions;
use answers::FetchedRange;
use attempt::{Sent, Signatures, write_key};
use client::{CallError, EtcdClient};
use convert::{REQUEST_LIMIT, Refusal};
use feed::Feed;
use protocol::{LARGEST_MESSAGE, RangeRequest, TxnResponse};

/// Number of keys that one range request reads.
const PAGE: usize = 2000;
/// Divisor of the number of keys in a page that turned out too large, before it is read again.
const PAGE_DIVISOR: usize = 16;
/// Number of threads in the runtime for calls to etcd.
const THREADS: usize = 2;

/// Options of [`EtcdStorage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Prefix of all keys. Several clusters can share an etcd under different prefixes.
    pub prefix: String,
    /// Maximum duration of a request before storage counts as unavailable.
    pub timeout: Duration,
    /// Interval of compaction, which goes to the revision of the previous interval; never if `None`.
    pub compaction_interval: Option<Duration>,
    /// Amount of history kept here for watches, in addition to etcd's.
    pub history: HistoryOptions,
    /// Maximum lag of a watcher in changes, before it is ended with [`StorageError::Lagged`].
    pub watch_lag: usize,
    /// Maximum size of one list in bytes; a larger one is an error.
    pub largest_list: usize,
    /// TLS material, for endpoints with `https://`.
    pub tls: Option<EtcdTls>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            prefix: "/kubegc".to_owned(),
            timeout: Duration::from_secs(5),
            compaction_interval: Some(Duration::from_mins(5)),
            history: HistoryOptions::default(),
            watch_lag: WATCH_LAG,
            largest_list: 1 << 30,
            tls: None,
        }
    }
}

/// Certificates for both sides, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdTls {
    /// Authority that etcd's certificate is verified against.
    pub ca: Vec<u8>,
    /// Client certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls").field("identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

/// Reason why etcd could not be used. Each message is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The runtime could not be started.
    #[error("cannot start the threads that speak to etcd: {0}")]
    Threads(#[from] std::io::Error),
    /// An endpoint or the TLS material is malformed.
    #[error("cannot use the etcd endpoints {endpoints}: {reason}")]
    Options {
        /// Configured endpoints.
        endpoints: String,
        /// Description of the error.
        reason: String,
    },
    /// The endpoint does not answer, or not like etcd.
    #[error("cannot reach etcd at {endpoints}: {reason}")]
    Unreachable {
        /// Configured endpoints.
        endpoints: String,
        /// The error.
        reason: StorageError,
    },
}

/// Layout of keys in etcd.
#[derive(Clone, Debug)]
struct Names {
    /// Prefix of all keys, which is watched.
    all: String,
    /// Prefix of the trait's keys.
    data: String,
    /// Key written when a process begins to watch.
    mark: String,
    /// Key written when history is compacted.
    compaction: String,
    /// Key written when a member failed during a creation.
    fence: String,
    /// Key written with each deletion.
    signature: String,
}

impl Names {
    fn new(prefix: &str) -> Self {
        let all = format!("{}/", prefix.trim_end_matches('/'));
        Self {
            data: format!("{all}data"),
            mark: format!("{all}meta/mark"),
            compaction: format!("{all}meta/compaction"),
            fence: format!("{all}meta/fence"),
            signature: format!("{all}meta/signature"),
            all,
        }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.data)
    }
}

/// A [`Storage`] in etcd v3.
pub struct EtcdStorage {
    /// `None` only while the store is being dropped.
    runtime: Option<Runtime>,
    client: EtcdClient,
    names: Names,
    feed: Arc<Feed>,
    timeout: Duration,
    largest_list: usize,
    /// Revision before which history is known to be compacted.
    compacted: AtomicU64,
    /// Revision of the last write of the fence known to this process.
    fence: AtomicU64,
    signatures: Signatures,
}

impl fmt::Debug for EtcdStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStorage").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Drop for EtcdStorage {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A store may be dropped on threads that must not block.
            runtime.shutdown_background();
        }
    }
}

impl EtcdStorage {
    /// Connects to etcd. Blocks until it has answered.
    pub fn connect(endpoints: &[String], options: &EtcdOptions) -> Result<Self, ConnectError> {
        let named = endpoints.join(",");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("store-etcd")
            .enable_all()
            .build()?;
        let keys = Names::new(&options.prefix);
        let connecting = {
            let (endpoints, options, keys) = (endpoints.to_vec(), options.clone(), keys.clone());
            async move {
                let client = EtcdClient::new(&endpoints, &options, &keys.mark)?;
                client.check_clusters().await?;
                let mark = match feed::mark(&client, &keys).await {
                    // A full etcd still serves reads and deletions.
                    Err(error) if Refusal::of(&error) == Refusal::Full => feed::newest(&client, &keys).await,
                    written => written,
                }?;
                Ok((client, mark))
            }
        };
        let (client, mark) = match wait(&runtime, options.timeout, connecting) {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => {
                runtime.shutdown_background();
                return Err(match Refusal::of(&error) {
                    Refusal::Broken(reason) => ConnectError::Options { endpoints: named, reason },
                    refusal => ConnectError::Unreachable { endpoints: named, reason: plain(refusal, &error) },
                });
            }
            Err(reason) => {
                runtime.shutdown_background();
                return Err(ConnectError::Unreachable { endpoints: named, reason });
            }
        };
        let feed = Arc::new(Feed::new(keys.clone(), mark, options.history, options.watch_lag));
        runtime.spawn(Arc::clone(&feed).run(client.clone()));
        if let Some(interval) = options.compaction_interval {
            runtime.spawn(compactor::run(client.clone(), keys.clone(), Arc::clone(&feed), interval));
        }
        let compacted = AtomicU64::new(0);
        // The first creation reads the fence.
        let (timeout, largest_list, fence) = (options.timeout, options.largest_list, AtomicU64::new(0));
        Ok(Self {
            runtime: Some(runtime),
            client,
            names: keys,
            feed,
            timeout,
            largest_list,
            compacted,
            fence,
            signatures: Signatures::new(),
        })
    }

    /// Runs a request to completion on the store's threads.
    fn ask<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<Result<T, (Refusal, CallError)>, StorageError> {
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        Ok(wait(runtime, self.timeout, request)?.map_err(|error| (Refusal::of(&error), error)))
    }

    /// Runs a request that reads at a revision.
    fn read<T: Send + 'static>(
        &self,
        at: Option<Revision>,
        request: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.ask(request)?.map_err(|(refusal, error)| match (refusal, at) {
            (Refusal::Compacted, Some(requested)) => {
                // etcd does not report how far it is compacted, only that it is at least beyond the requested revision.
                let known = self.compacted.fetch_max(requested.0 + 1, Ordering::Relaxed);
                StorageError::Compacted { requested, oldest: Revision(known.max(requested.0 + 1)) }
            }
            (Refusal::Future, Some(requested)) => match self.revision() {
                Ok(newest) => StorageError::Future { requested, newest },
                Err(error) => error,
            },
            (refusal, _) => plain(refusal, &error),
        })
    }

    /// Reads one key, or only the revision.
    fn fetch(&self, request: RangeRequest, at: Option<Revision>) -> Result<FetchedRange, StorageError> {
        self.page(request, at)?.ok_or_else(|| {
            StorageError::Broken(format!("etcd's answer is larger than {} MiB", LARGEST_MESSAGE >> 20))
        })
    }

    /// Reads several keys; returns `None` if the answer is too large.
    fn page(
        &self,
        request: RangeRequest,
        at: Option<Revision>,
    ) -> Result<Option<FetchedRange>, StorageError> {
        let request = RangeRequest { revision: at.map_or(0, convert::to_etcd), ..request };
        let (client, asked) = (self.client.clone(), request.clone());
        let answer = self.read(at, async move {
            match client.range(request).await {
                Err(error) if Refusal::of(&error) == Refusal::LargeAnswer => Ok(None),
                answer => answer.map(Some),
            }
        })?;
        answer.map(|answer| answers::range(&self.names.data, &asked, answer, at)).transpose()
    }
}

/// Returns a request for one key.
fn one(key: String) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

/// Returns a request for no items, whose answer contains the revision.
fn count_of(key: String) -> RangeRequest {
    RangeRequest { count_only: true, ..one(key) }
}

impl Storage for EtcdStorage {
    fn blocks(&self) -> Blocking {
        Blocking::Always
    }

    fn status(&self) -> Result<StoreStatus, StorageError> {
        let client = self.client.clone();
        let asked = self.ask(async move { client.status().await })?;
        let answer = asked.map_err(|(refusal, error)| plain(refusal, &error))?;
        let bytes = |size: i64| u64::try_from(size).ok().filter(|size| *size > 0);
        Ok(StoreStatus {
            newest: convert::made_at(answer.header.as_ref()),
            oldest: Some(Revision(self.compacted.load(Ordering::Relaxed))).filter(|oldest| oldest.0 > 0),
            bytes: bytes(answer.db_size),
            bytes_in_use: bytes(answer.db_size_in_use),
            is_full: answer.errors.iter().any(|error| error.contains("alarm:NOSPACE")),
            ..StoreStatus::default()
        })
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        Ok(self.fetch(count_of(self.names.mark.clone()), None)?.revision)
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        let FetchedRange { mut items, revision, .. } = self.fetch(one(self.names.key(key)), at)?;
        Ok(GetAnswer { item: items.pop(), revision })
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        let end = after_prefix(&self.names.key(prefix));
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let mut after: Option<Key> = options.after.clone();
        let mut at = options.at;
        let mut items: Vec<KeyValue> = Vec::new();
        let (mut bytes, mut page_keys, mut left) = (0, PAGE, None);
        loop {
            let start = match after.as_deref() {
                Some(after) if after >= prefix => self.names.key(after) + "\0",
                _ => self.names.key(prefix),
            };
            if start.as_bytes() >= end.as_slice() {
                // Nothing can follow, and etcd would refuse the request; the revision is still needed.
                let seen = self.fetch(count_of(start), at)?;
                return Ok(RangeAnswer { items, more: false, remaining: 0, revision: seen.revision });
            }
            let page = page_keys.min(limit - items.len());
            let limit_of_page = i64::try_from(page).unwrap_or(i64::MAX);
            let wanted = RangeRequest { range_end: end.clone(), limit: limit_of_page, ..one(start) };
            let Some(found) =
                (if page == 1 { self.fetch(wanted, at).map(Some)? } else { self.page(wanted, at)? })
            else {
                page_keys = page.div_ceil(PAGE_DIVISOR);
                continue;
            };
            let remaining = answers::remaining(&found, left)?;
            left = Some(remaining);
            bytes += found.items.iter().map(answers::item_bytes).sum::<usize>();
            if bytes > self.largest_list {
                return Err(StorageError::Broken(format!(
                    "a list of etcd's keys is larger than {} MiB",
                    self.largest_list >> 20
                )));
            }
            items.extend(found.items);
            if remaining == 0 || items.len() >= limit {
                return Ok(RangeAnswer { items, more: remaining > 0, remaining, revision: found.revision });
            }
            // All pages are read at the same revision.
            at = Some(found.revision);
            after = items.last().map(|item| Arc::clone(&item.key));
        }
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        let mut sent = Sent::new(&transaction, &self.signatures, self.feed.reached());
        if may_be_repeated(&transaction) {
            self.commit_guarded(&mut sent)
        } else {
            self.commit_once(&mut sent)
        }
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        if let Some(stream) = self.feed.join(prefix, after) {
            return Ok(Box::new(stream));
        }
        // Check that the revision is readable: etcd would wait for a future one, and knows which are compacted.
        self.fetch(count_of(self.names.mark.clone()), Some(after))?;
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (feed, client, prefix, patience) =
            (Arc::clone(&self.feed), self.client.clone(), prefix.to_owned(), self.timeout);
        let joined =
            wait(
                runtime,
                Duration::MAX,
                async move { feed.catch_up(&client, &prefix, after, patience).await },
            )?;
        Ok(Box::new(joined?))
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        let (client, at) = (self.client.clone(), convert::to_etcd(revision));
        match self.ask(async move { client.compact(at).await })? {
            Err((Refusal::Compacted, _)) => Ok(()),
            Err((Refusal::Future, _)) => {
                Err(StorageError::Future { requested: revision, newest: self.revision()? })
            }
            Err((refusal, error)) => Err(plain(refusal, &error)),
            Ok(()) => {
                self.compacted.fetch_max(revision.0, Ordering::Relaxed);
                self.feed.compacted(revision);
                Ok(())
            }
        }
    }
}

/// Reports whether a transaction changes nothing when it is sent a second time, however late the first is performed. Each key must
/// be guarded by the revision of a write, which never recurs; absence does.
fn may_be_repeated(transaction: &Transaction) -> bool {
    let is_guarded = |key: &Key| {
        transaction
            .conditions
            .iter()
            .any(|condition| condition.key == *key && condition.mod_revision > Revision(0))
    };
    transaction.writes.iter().all(|write| is_guarded(write_key(write)))
}

/// Returns the error of a transaction that etcd refused.
fn refused(transaction: &Transaction, refusal: Refusal, error: &CallError) -> StorageError {
    match refusal {
        Refusal::TooLarge => StorageError::TooLarge {
            size: transaction.writes.iter().map(value_size).sum(),
            limit: REQUEST_LIMIT,
        },
        refusal => plain(refusal, error),
    }
}

/// Returns the states of the keys of all conditions, which are at the beginning of an answer.
fn present(transaction: &Transaction, answer: &TxnResponse) -> Vec<Option<KeyValue>> {
    let present = transaction.conditions.iter().enumerate().map(|(number, condition)| {
        let found = answer.range(number)?.kvs.first()?;
        Some(convert::item(Arc::clone(&condition.key), found.clone()))
    });
    present.collect()
}

/// Runs a future on a runtime and waits for it, from any thread.
fn wait<T: Send + 'static>(
    runtime: &Runtime,
    patience: Duration,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, StorageError> {
    let (sender, receiver) = sync_channel(1);
    runtime.spawn(async move {
        // The caller may have timed out.
        drop(sender.send(tokio::time::timeout(patience, future).await));
    });
    receiver
        .recv()
        .map_err(|_| ended())?
        .map_err(|_| StorageError::Unavailable(format!("etcd did not answer within {patience:?}")))
}

/// Returns the error of a write that a member did not answer.
fn unknown() -> StorageError {
    StorageError::Unavailable(
        "a member of etcd failed during a write, which may have been performed".to_owned(),
    )
}

fn ended() -> StorageError {
    StorageError::Unavailable("the connection to etcd was closed".to_owned())
}

/// Returns the error for a refusal that does not depend on the request.
fn plain(refusal: Refusal, error: &CallError) -> StorageError {
    match refusal {
        Refusal::Full => StorageError::Full,
        Refusal::Broken(reason) => StorageError::Broken(reason),
        Refusal::Unavailable(reason) => StorageError::Unavailable(reason),
        Refusal::TooLarge | Refusal::LargeAnswer | Refusal::Compacted | Refusal::Future => {
            StorageError::Broken(convert::describe(error))
        }
    }
}

fn value_size(write: &Write) -> usize {
    match write {
        Write::Put(_, value) => value.len(),
        Write::Delete(_) => 0,
    }
}

/// Returns the first key after all that begin with a prefix (which is never empty here, and is UTF-8, so its last byte has a
/// successor).
fn after_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "shared with the integration tests"
)]
#[cfg(test)]
#[path = "../tests/support/impostor.rs"]
mod impostor;
#[cfg(test)]
mod tests;
