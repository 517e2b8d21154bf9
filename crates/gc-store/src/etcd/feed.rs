//! A single watch of etcd per process, which is distributed to any number of watchers.
//!
//! The most recent changes are kept, so a watcher that begins slightly in the past costs etcd nothing. One that begins further back
//! reads the gap through its own watch before it joins.
//!
//! The feed knows its progress from the events themselves and from progress notifications that etcd sends on its own. It does not
//! request progress: etcd before 3.4.25 and 3.5.8 may answer ahead of events that are still to be sent. Every process writes a mark
//! under the watched prefix when it begins, and the compaction does so from then on, so the feed progresses even if objects do not
//! change.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gc_store_api::{Change, Revision, StorageError, Transaction};

use super::answers::{Step, WatchReader};
use super::attempt;
use super::client::{CallError, EtcdClient, MemberWatch};
use super::convert::{self, Refusal, describe};
use super::protocol::{Event, PutRequest, RangeRequest, WatchCreateRequest};
use super::{Names, after_prefix};
use crate::hub::{Hub, HubStream, lock};
use crate::mvcc::{CHANGE_BYTES, HistoryOptions};

/// Delays between attempts to resume the watch.
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(2);
/// Maximum lag of a watcher in changes and their bytes; beyond it, the watcher has to list again.
const CATCH_UP: (usize, usize) = (262_144, 256 << 20);
/// Maximum time to catch up, as a multiple of the patience for each response: a sequence of useless responses must end.
const CATCH_UP_RESPONSES: u32 = 12;
/// Interval of the checks while waiting for a revision.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum time for the watch of etcd to deliver the changes that a search needs.
const SEARCH_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Feed {
    names: Names,
    hub: Arc<Hub>,
    window: Mutex<Window>,
    history: HistoryOptions,
    watch_lag: usize,
}

/// All changes after `from`, up to `until`.
#[derive(Debug)]
struct Window {
    log: VecDeque<Arc<Change>>,
    bytes: usize,
    from: Revision,
    until: Revision,
}

/// Changes that a watcher reads before it joins.
#[derive(Debug, Default)]
struct Missed {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
}

impl Feed {
    /// Creates a feed that begins after the revision of a mark.
    pub(super) fn new(names: Names, mark: Revision, history: HistoryOptions, watch_lag: usize) -> Self {
        let window = Window { log: VecDeque::new(), bytes: 0, from: mark, until: mark };
        Self { names, hub: Arc::new(Hub::new(mark)), window: Mutex::new(window), history, watch_lag }
    }

    /// Follows etcd until the runtime ends.
    pub(super) async fn run(self: Arc<Self>, client: EtcdClient) {
        let mut pause = *RETRY.start();
        loop {
            let before = lock(&self.window).until;
            match self.follow(&client).await {
                Ok(()) => tracing::debug!("etcd ended the watch"),
                Err(error @ StorageError::Compacted { .. }) => {
                    tracing::warn!(%error, "history was compacted before it could be watched; all watches end");
                    self.restart(&client, &error).await;
                }
                Err(error) => tracing::warn!(%error, "the watch of etcd was interrupted"),
            }
            pause = if lock(&self.window).until > before {
                *RETRY.start()
            } else {
                (pause * 2).min(*RETRY.end())
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn follow(&self, client: &EtcdClient) -> Result<(), StorageError> {
        let after = lock(&self.window).until;
        let mut stream = open(client, &self.names, after).await?;
        let mut reader = WatchReader::new(after);
        while let Some(response) = stream.message().await.map_err(|error| failed(&error))? {
            match reader.read(response)? {
                Step::Events(events, until) => self.extend(&self.changes(events)?, until),
                Step::Progress(until) => self.extend(&[], until),
                Step::Nothing => {}
            }
        }
        Ok(())
    }

    /// Converts the events of whole revisions to changes.
    fn changes(&self, events: Vec<Event>) -> Result<Vec<Arc<Change>>, StorageError> {
        let mut changes = Vec::with_capacity(events.len());
        for event in events {
            changes.extend(convert::change(&self.names.data, event)?.map(Arc::new));
        }
        // The changes of one transaction arrive in the order in which they were written; the trait promises key order.
        changes.sort_by(|left, right| (left.revision, &left.key).cmp(&(right.revision, &right.key)));
        Ok(changes)
    }

    fn extend(&self, changes: &[Arc<Change>], until: Revision) {
        let mut window = lock(&self.window);
        window.until = window.until.max(until);
        for change in changes {
            window.bytes += size(change);
            window.log.push_back(Arc::clone(change));
        }
        while window.log.len() > self.history.changes || window.bytes > self.history.bytes {
            let Some(gone) = window.log.front().map(|change| change.revision) else { break };
            window.forget(gone);
        }
        // Under the lock, so that a watcher that joins gets each change exactly once, replayed or published.
        let wakers = self.hub.publish(changes, window.until);
        drop(window);
        wakers.wake();
    }

    /// Ends all watches, and starts over at the newest revision.
    async fn restart(&self, client: &EtcdClient, error: &StorageError) {
        self.hub.end_all(error).wake();
        match newest(client, &self.names).await {
            Ok(newest) => {
                let mut window = lock(&self.window);
                *window = Window { log: VecDeque::new(), bytes: 0, from: newest, until: newest };
                // Watchers that joined in the meantime missed the compacted changes.
                let wakers = self.hub.end_all(error);
                self.hub.publish(&[], newest).wake();
                drop(window);
                wakers.wake();
            }
            Err(error) => tracing::warn!(error = describe(&error), "etcd cannot be read"),
        }
    }

    /// Forgets compacted changes.
    pub(super) fn compacted(&self, revision: Revision) {
        let mut window = lock(&self.window);
        let revision = revision.min(window.until);
        window.forget(revision);
    }

    /// Returns the revision up to which all changes are known here.
    pub(super) fn reached(&self) -> Revision {
        lock(&self.window).until
    }

    /// Waits for the changes up to `until`, and returns the revisions after `since` whose changes match the writes of a
    /// transaction; `None` if the changes are unknown, or do not arrive in time.
    pub(super) async fn search(
        &self,
        transaction: &Transaction,
        since: Revision,
        until: Revision,
    ) -> Option<Vec<Revision>> {
        let end = tokio::time::Instant::now() + SEARCH_PATIENCE;
        loop {
            {
                let window = lock(&self.window);
                if window.from > since {
                    return None;
                }
                if window.until >= until {
                    let start = window.log.partition_point(|change| change.revision <= since);
                    return Some(attempt::search(transaction, window.log.range(start..)));
                }
            }
            if tokio::time::Instant::now() >= end {
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Joins without a request to etcd, if all changes since then are kept here.
    pub(super) fn join(&self, prefix: &str, after: Revision) -> Option<HubStream> {
        let window = lock(&self.window);
        (window.from <= after && after <= window.until)
            .then(|| self.subscribe(&window, prefix, after, VecDeque::new()))
    }

    /// Joins at a revision that etcd has, but that the feed has not reached yet or has forgotten.
    pub(super) async fn catch_up(
        &self,
        client: &EtcdClient,
        prefix: &str,
        after: Revision,
        patience: Duration,
    ) -> Result<HubStream, StorageError> {
        let mut missed = Missed::default();
        let mut reached = after;
        let (mut reader, mut stream) = (WatchReader::new(after), None);
        let ends = tokio::time::Instant::now() + patience * CATCH_UP_RESPONSES;
        loop {
            {
                let window = lock(&self.window);
                if window.from <= reached {
                    return Ok(self.subscribe(&window, prefix, reached, missed.changes));
                }
            }
            let stream = match &mut stream {
                Some(stream) => stream,
                none => none.insert(
                    tokio::time::timeout(patience, open(client, &self.names, after)).await.map_err(
                        |_| StorageError::Unavailable("etcd did not open a watch in time".to_owned()),
                    )??,
                ),
            };
            let response = tokio::time::timeout(patience, stream.message())
                .await
                .map_err(|_| StorageError::Unavailable("etcd did not send its history in time".to_owned()))?
                .map_err(|error| failed(&error))?
                .ok_or_else(|| StorageError::Unavailable("etcd ended the watch".to_owned()))?;
            match reader.read(response)? {
                Step::Events(events, until) => {
                    let changes = self.changes(events)?.into_iter();
                    changes
                        .filter(|change| change.key.starts_with(prefix))
                        .for_each(|change| missed.add(change));
                    reached = until;
                }
                Step::Progress(until) => reached = until,
                Step::Nothing => {}
            }
            if missed.is_too_much() {
                return Err(StorageError::Lagged { limit: missed.changes.len() });
            }
            if tokio::time::Instant::now() >= ends {
                return Err(StorageError::Unavailable("etcd did not send its history in time".to_owned()));
            }
        }
    }

    fn subscribe(
        &self,
        window: &Window,
        prefix: &str,
        after: Revision,
        mut replay: VecDeque<Arc<Change>>,
    ) -> HubStream {
        let start = window.log.partition_point(|change| change.revision <= after);
        replay.extend(window.log.range(start..).filter(|change| change.key.starts_with(prefix)).cloned());
        self.hub.subscribe(prefix, after, replay, self.watch_lag)
    }
}

impl Window {
    fn forget(&mut self, revision: Revision) {
        while let Some(change) = self.log.pop_front_if(|change| change.revision <= revision) {
            self.bytes -= size(&change);
        }
        self.from = self.from.max(revision);
    }
}

impl Missed {
    fn add(&mut self, change: Arc<Change>) {
        self.bytes += size(&change);
        self.changes.push_back(change);
    }

    /// Reports whether the watcher has to list again instead.
    fn is_too_much(&self) -> bool {
        self.changes.len() > CATCH_UP.0 || self.bytes > CATCH_UP.1
    }
}

fn size(change: &Change) -> usize {
    CHANGE_BYTES
        + change.value.as_ref().map_or(0, bytes::Bytes::len)
        + change.previous.as_ref().map_or(0, |before| before.value.len())
}

async fn open(client: &EtcdClient, names: &Names, after: Revision) -> Result<MemberWatch, StorageError> {
    let request = WatchCreateRequest {
        key: names.all.clone().into(),
        range_end: after_prefix(&names.all),
        start_revision: convert::to_etcd(Revision(after.0 + 1)),
        progress_notify: true,
        prev_kv: true,
        fragment: true,
    };
    client.watch(request).await.map_err(|error| failed(&error))
}

/// Writes a key under the watched prefix; returns the revision of the write.
pub(super) async fn mark(client: &EtcdClient, names: &Names) -> Result<Revision, CallError> {
    let request = PutRequest { key: names.mark.clone().into(), ..PutRequest::default() };
    Ok(convert::made_at(client.put(request).await?.header.as_ref()))
}

/// Returns the newest revision by a read, which even a full etcd answers.
pub(super) async fn newest(client: &EtcdClient, names: &Names) -> Result<Revision, CallError> {
    let request =
        RangeRequest { key: names.mark.clone().into(), count_only: true, ..RangeRequest::default() };
    Ok(convert::made_at(client.range(request).await?.header.as_ref()))
}

fn failed(error: &CallError) -> StorageError {
    match Refusal::of(error) {
        Refusal::Broken(reason) => StorageError::Broken(reason),
        Refusal::LargeAnswer => StorageError::Broken(describe(error)),
        _ => StorageError::Unavailable(describe(error)),
    }
}

#[cfg(test)]
mod tests;
