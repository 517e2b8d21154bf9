//! The only thread that writes to the file.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gc_store_api::{Change, Committed, Key, KeyValue, Revision, StorageError, Transaction, Write};

use super::disk::Disk;
use super::failure::Failure;
use super::index;
use super::space::{Reservation, Reserve, frees};
use super::successor::{Step, Successor};
use crate::core::Core;
use crate::hub::lock;
use crate::mvcc::{HistoryOptions, TransactionResult, evaluate, result_of, write_key};

/// Maximum number of transactions per fsync.
const BATCH_TRANSACTIONS: usize = 1024;
/// Maximum number of value bytes per fsync (a single transaction may exceed it).
const BATCH_BYTES: usize = 16 << 20;
/// Maximum number of waiting transactions; further callers block.
const WAITING: usize = 4096;
/// Maximum delay between two attempts to make room on a full disk, or to replace an untrustworthy file: each may write the entire
/// file.
const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// Delay once something was removed, as a multiple of the last attempt's duration, if that is shorter: writes resume as soon as
/// there is room, and attempts take a small part of the time.
const RECOVERY_REST: u32 = 9;

/// Maximum number of searches for values to move out of memory after a batch.
const SWEEPS: u32 = 256;

/// Interval at which an otherwise idle committer checks on a copy of the file in progress.
const COPY_LOOK: Duration = Duration::from_millis(50);
/// Minimum time between two copies, as a multiple of the last one's duration.
const COPY_REST: u32 = 9;

type Reply<T> = SyncSender<Result<T, StorageError>>;

enum Request {
    Commit(Transaction, Reply<Committed>),
    Compact(Revision, Reply<()>),
    /// Check whether there is space again, open a file again that could not be read, and move values out of memory.
    Tend,
    /// Close the file, once all earlier requests are answered.
    Close,
}

/// Result of a request.
type Outcome = Result<Option<Committed>, StorageError>;

impl Request {
    fn reply(self, outcome: Outcome) {
        // A caller that has left does not need its answer.
        match (self, outcome) {
            (Self::Commit(_, reply), Ok(Some(committed))) => drop(reply.send(Ok(committed))),
            (Self::Commit(_, reply), Err(error)) => drop(reply.send(Err(error))),
            (Self::Compact(_, reply), outcome) => drop(reply.send(outcome.map(drop))),
            (Self::Commit(_, _), Ok(None)) | (Self::Tend | Self::Close, _) => {}
        }
    }
}

/// Handle of the thread. Closing or dropping it completes waiting requests and closes the file.
#[derive(Debug)]
pub(super) struct Committer {
    requests: SyncSender<Request>,
    /// `None` once it has ended.
    thread: Mutex<Option<JoinHandle<()>>>,
    is_full: Arc<AtomicBool>,
    /// True while a request of [`Self::tend`] waits.
    is_tending: Arc<AtomicBool>,
}

impl Committer {
    /// Starts the thread. `reserve` is already released if opening needed its space.
    pub(super) fn start(
        disk: Disk,
        core: Arc<Core>,
        (history, shrink_from): (HistoryOptions, u64),
        mut reserve: Box<dyn Reserve>,
    ) -> Result<Self, Failure> {
        let (requests, receiver) = sync_channel(WAITING);
        let is_full = Arc::new(AtomicBool::new(reserve.take(false) == Reservation::NoRoom));
        let space = Space { reserve, is_full: Arc::clone(&is_full), recovered: None, freed: false };
        // Left over by a process that ended while it wrote a copy.
        disk.discard_copy();
        let shrinking =
            Shrinking { from: shrink_from, successor: None, begun: (Instant::now(), 0), last: None };
        let is_tending = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            disk,
            core,
            history,
            space,
            shrinking,
            unresolved: None,
            rewrite_failed: None,
            is_tending: Arc::clone(&is_tending),
        };
        let thread = std::thread::Builder::new()
            .name("store-commit".to_owned())
            .spawn(move || writer.run(&receiver))?;
        Ok(Self { requests, thread: Mutex::new(Some(thread)), is_full, is_tending })
    }

    /// Reports whether only deletions are accepted because there is no space. If so, starts an attempt to make room.
    pub(super) fn is_full(&self) -> bool {
        let is_full = self.is_full.load(Ordering::Relaxed);
        if is_full {
            self.tend();
        }
        is_full
    }

    /// Has the thread make room on the disk and in memory, and open a file again that could not be read.
    pub(super) fn tend(&self) {
        if !self.is_tending.swap(true, Ordering::Relaxed) && self.requests.try_send(Request::Tend).is_err() {
            // The queue is full, so its requests will trigger it anyway.
            self.is_tending.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the thread, which closes the file.
    pub(super) fn close(&self) {
        let mut thread = lock(&self.thread);
        if let Some(thread) = thread.take() {
            // Fails only if the thread has panicked. That was printed, and there is nowhere left to report it.
            drop(self.requests.send(Request::Close));
            drop(thread.join());
        }
    }

    pub(super) fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        self.ask(|reply| Request::Commit(transaction, reply))
    }

    pub(super) fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.ask(|reply| Request::Compact(revision, reply))
    }

    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, StorageError> {
        let gone = || StorageError::Broken("the thread that writes has ended".to_owned());
        let (reply, answer) = sync_channel(1);
        self.requests.send(request(reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.close();
    }
}

struct Writer {
    disk: Disk,
    core: Arc<Core>,
    history: HistoryOptions,
    space: Space,
    shrinking: Shrinking,
    /// A batch that may or may not have reached the disk. No further writes happen until that is known.
    unresolved: Option<Batch>,
    /// Time at which replacing the file after a failed sync last failed.
    rewrite_failed: Option<Instant>,
    is_tending: Arc<AtomicBool>,
}

/// Replacement of the file by a smaller one.
struct Shrinking {
    /// Minimum size of a file for which this is worthwhile.
    from: u64,
    successor: Option<Successor>,
    /// Start of the current or last copy, and the bytes in use at that moment: what is deleted during a copy stays in its file.
    begun: (Instant, u64),
    last: Option<LastCopy>,
}

/// The last copy of the file: when it ended, how long it took, the bytes in use when it began, and the length of the file.
struct LastCopy {
    ended: Instant,
    took: Duration,
    used: u64,
    length: u64,
}

impl Shrinking {
    /// Reports whether most of a file is unused, and a copy would be smaller than the last one.
    fn is_worth_it(&self, length: u64, used: u64) -> bool {
        let is_bloated = length > self.from && length / 5 > used / 2;
        is_bloated
            && self.last.as_ref().is_none_or(|last| {
                let has_changed = used / 4 < last.used / 5 || length / 3 > last.length / 2;
                has_changed && last.ended.elapsed() > last.took.saturating_mul(COPY_REST)
            })
    }
}

/// State of the space on the disk.
struct Space {
    reserve: Box<dyn Reserve>,
    /// True if the reserve has been released, or never existed: only transactions that free space are written.
    is_full: Arc<AtomicBool>,
    /// Time at which the last search for room ended, and its duration.
    recovered: Option<(Instant, Duration)>,
    /// True if something was removed since the file was last shrunk.
    freed: bool,
}

impl Space {
    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Releases the reserve. Returns false if there was none.
    fn release(&mut self) -> bool {
        let released = self.reserve.release();
        if released {
            tracing::error!("the disk is full: only deletions are written until there is space again");
            self.is_full.store(true, Ordering::Relaxed);
        }
        released
    }
}

/// Transactions that share an fsync.
#[derive(Default)]
struct Batch {
    changes: Vec<Arc<Change>>,
    /// Keys that this batch has changed, in their new state.
    overlay: HashMap<Key, Option<KeyValue>>,
    compact: Option<Revision>,
}

impl Writer {
    fn run(mut self, requests: &Receiver<Request>) {
        loop {
            let first = if self.shrinking.successor.is_some() {
                match requests.recv_timeout(COPY_LOOK) {
                    Ok(first) => first,
                    Err(RecvTimeoutError::Timeout) => {
                        self.shrink();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            } else {
                let Ok(first) = requests.recv() else { break };
                first
            };
            let (waiting, is_closing) = gather(first, || requests.try_recv().ok());
            if !waiting.is_empty() {
                self.serve(waiting);
            }
            if is_closing {
                break;
            }
            self.shrink();
        }
        self.abandon_copy();
        self.write_index();
    }

    /// Leaves an index to the next start, if that need not read all values. It is written to a sound file alone, because nothing would
    /// answer for what it breaks.
    fn write_index(&mut self) {
        let data = self.core.read();
        let is_sound = self.unresolved.is_none()
            && self.disk.is_open()
            && !self.disk.is_distrusted()
            && !self.disk.values().has_failed();
        if is_sound
            && data.exceeds_budget()
            && !self.space.is_full()
            && self.space.reserve.has_room(index::size(&data))
            && let Err(failure) = self.disk.write_index(&data)
        {
            tracing::warn!(%failure, "the next start reads the whole data file: its index cannot be written");
        }
    }

    /// Continues a smaller copy of the file, or begins one if most of the file is unused.
    fn shrink(&mut self) {
        if let Some(successor) = self.shrinking.successor.take() {
            match successor.step() {
                Step::Wait(successor) => self.shrinking.successor = Some(successor),
                Step::Replace(copy, missing, sync_failed) => {
                    let before = self.disk.length();
                    match self.disk.replace(copy, &missing, sync_failed) {
                        Ok(_) => {
                            tracing::info!(
                                before,
                                after = self.disk.length(),
                                "the data file was made smaller"
                            );
                        }
                        Err(failure) => {
                            tracing::warn!(%failure, "the data file cannot be made smaller");
                            // Readers need an open file. If that fails, the next request tries again.
                            drop(self.resolve());
                        }
                    }
                    self.note_copy();
                }
                Step::Outrun => {
                    tracing::info!(
                        "the data file is made smaller later: a copy cannot keep up with the writes"
                    );
                    self.disk.discard_copy();
                    // Another copy is worthwhile without further deletions.
                    self.shrinking.begun.1 = u64::MAX;
                    self.note_copy();
                }
                Step::Failed(failure) => {
                    tracing::warn!(%failure, "the data file cannot be made smaller");
                    self.disk.discard_copy();
                    self.note_copy();
                }
            }
            return;
        }
        let (length, used) = (self.disk.length(), self.core.read().bytes());
        let is_sound = self.disk.is_open() && !self.disk.is_distrusted() && !self.space.is_full();
        if !is_sound || !self.shrinking.is_worth_it(length, used) || !self.space.reserve.has_room(used) {
            return;
        }
        self.shrinking.begun = (Instant::now(), used);
        match Successor::begin(&self.disk, self.core.revision()) {
            Ok(successor) => self.shrinking.successor = Some(successor),
            Err(failure) => {
                tracing::warn!(%failure, "the data file cannot be made smaller");
                self.disk.discard_copy();
                self.note_copy();
            }
        }
    }

    fn note_copy(&mut self) {
        let (begun, used) = self.shrinking.begun;
        let length = self.disk.length();
        self.shrinking.last = Some(LastCopy { ended: Instant::now(), took: begun.elapsed(), used, length });
    }

    /// Discards a copy in progress. Returns `true` if there was one.
    fn abandon_copy(&mut self) -> bool {
        let Some(successor) = self.shrinking.successor.take() else { return false };
        successor.abandon();
        self.disk.discard_copy();
        self.note_copy();
        true
    }

    fn serve(&mut self, waiting: Vec<Request>) {
        self.is_tending.store(false, Ordering::Relaxed);
        if self.disk.values().has_failed() {
            self.abandon_copy();
            self.disk.close();
        }
        self.recover();
        let all: Vec<usize> = (0..waiting.len()).collect();
        let mut outcomes = self.perform(&waiting, &all);
        let refused = |outcomes: &[Outcome]| -> Vec<usize> {
            let is_refused = |&number: &usize| outcomes[number] == Err(StorageError::Full);
            all.iter().copied().filter(is_refused).collect()
        };
        let mut again = refused(&outcomes);
        if !again.is_empty() && self.abandon_copy() {
            // The copy occupied the space.
            for (number, outcome) in again.iter().zip(self.perform(&waiting, &again)) {
                outcomes[*number] = outcome;
            }
            again = refused(&outcomes);
        }
        if !again.is_empty() && !self.space.is_full() && self.space.release() {
            self.rewrite_failed = None;
            // Transactions that free space may use the reserve.
            for (number, outcome) in again.iter().zip(self.perform(&waiting, &again)) {
                outcomes[*number] = outcome;
            }
        }
        for (request, outcome) in waiting.into_iter().zip(outcomes) {
            request.reply(outcome);
        }
        self.make_room();
    }

    /// Moves values out of memory if they exceed the budget. Until the file surely has what the map has, all stay.
    fn make_room(&self) {
        if self.unresolved.is_none() && self.disk.is_open() {
            for _ in 0..SWEEPS {
                if !self.core.sweep() {
                    break;
                }
            }
        }
    }

    /// Performs the requests with these numbers as one batch; returns their outcomes in order. The requests depend on each other,
    /// so no outcome is known before the entire batch is on disk.
    fn perform(&mut self, waiting: &[Request], numbers: &[usize]) -> Vec<Outcome> {
        let ready = self.resolve().map(drop);
        let mut batch = Batch::default();
        let outcomes: Vec<Outcome> = numbers
            .iter()
            .map(|&number| {
                ready.clone()?;
                match &waiting[number] {
                    Request::Commit(transaction, _) => self.stage(&mut batch, transaction.clone()).map(Some),
                    Request::Compact(revision, _) => {
                        if self.core.write().can_compact(*revision)? {
                            batch.compact = batch.compact.max(Some(*revision));
                        }
                        Ok(None)
                    }
                    Request::Tend | Request::Close => Ok(None),
                }
            })
            .collect();
        let written = self.write(batch);
        outcomes.into_iter().map(|outcome| written.clone().and(outcome)).collect()
    }

    /// On a full disk, occasionally forgets history and returns unused parts of the file to the disk. Accepts all writes again once
    /// the reserve can be restored.
    fn recover(&mut self) {
        let freed = self.space.freed;
        let is_early = self.space.recovered.is_some_and(|(ended, took)| {
            let rest = took.saturating_mul(RECOVERY_REST).min(RECOVERY_PAUSE);
            ended.elapsed() < if freed { rest } else { RECOVERY_PAUSE }
        });
        if !self.space.is_full() || is_early || self.resolve().is_err() {
            return;
        }
        self.abandon_copy();
        let begun = Instant::now();
        if freed {
            // Watchers that still need this history must list again.
            let forgotten = self.write(Batch { compact: Some(self.core.revision()), ..Batch::default() });
            match forgotten.map(|()| self.disk.shrink()) {
                Ok(Ok(())) => self.space.freed = false,
                Ok(Err(failure)) => {
                    tracing::warn!(%failure, "the data file cannot be made smaller");
                    self.disk.close();
                }
                Err(error) => tracing::warn!(%error, "history cannot be forgotten"),
            }
        }
        self.space.recovered = Some((Instant::now(), begun.elapsed()));
        if self.space.reserve.take(freed) != Reservation::NoRoom {
            tracing::info!("there is space on the disk again: everything is written");
            self.space.is_full.store(false, Ordering::Relaxed);
        }
    }

    fn stage(&self, batch: &mut Batch, transaction: Transaction) -> Result<Committed, StorageError> {
        self.warm(batch, &transaction)?;
        let newest = batch.changes.last().map_or_else(|| self.core.revision(), |change| change.revision);
        let revision = Revision(newest.0 + 1);
        let present = |key: &str| batch.overlay.get(key).cloned().unwrap_or_else(|| self.core.current(key));
        if self.space.is_full() && !frees(&transaction, present) {
            return Err(StorageError::Full);
        }
        let changes = match evaluate(transaction, revision, present)? {
            TransactionResult::Conflict(found) => return Ok(Committed::Conflict(found)),
            TransactionResult::Changes(changes) if changes.is_empty() => return Ok(Committed::Done(newest)),
            TransactionResult::Changes(changes) => changes,
        };
        for change in changes {
            batch.overlay.insert(Arc::clone(&change.key), result_of(&change));
            batch.changes.push(Arc::new(change));
        }
        Ok(Committed::Done(revision))
    }

    /// Brings the values back into memory that a transaction may change, before the file loses them. A transaction that only deletes
    /// one object, and does not say in which version, does so even if its value is damaged: nothing else removes it from the file.
    fn warm(&self, batch: &Batch, transaction: &Transaction) -> Result<(), StorageError> {
        let conditions = transaction.conditions.iter().map(|condition| &condition.key);
        let keys = conditions.chain(transaction.writes.iter().map(write_key));
        let warmed = self.core.warm(keys.filter(|key| !batch.overlay.contains_key(*key)).map(|key| &**key));
        match (warmed, &*transaction.conditions, &*transaction.writes) {
            (Err(StorageError::Broken(why)), [], [Write::Delete(key)]) => {
                tracing::warn!(%key, why, "an object is deleted whose value cannot be read");
                self.core.give_up(key);
                Ok(())
            }
            (warmed, ..) => warmed,
        }
    }

    /// Writes a batch and publishes it.
    fn write(&mut self, mut batch: Batch) -> Result<(), StorageError> {
        if batch.changes.is_empty() && batch.compact.is_none() {
            return Ok(());
        }
        // History beyond the bounds is removed together with a write; it does not justify its own fsync.
        batch.compact = batch.compact.max(self.core.overdue(&self.core.read(), &self.history));
        let newest = batch.changes.last().map_or_else(|| self.core.revision(), |change| change.revision);
        match self.disk.write(&batch.changes, newest, batch.compact) {
            Ok(()) => {
                if let Some(successor) = &mut self.shrinking.successor {
                    successor.note(&batch.changes, newest, batch.compact);
                }
                self.space.freed |= batch.changes.iter().any(|change| change.value.is_none());
                self.publish(&batch);
                Ok(())
            }
            Err(failure) => {
                tracing::error!(%failure, transactions = batch.changes.len(), "writing to the data file failed");
                self.unresolved = Some(batch);
                self.abandon_copy();
                self.disk.close();
                match self.resolve() {
                    Ok(BatchResolution::Written) => Ok(()),
                    Ok(BatchResolution::NotWritten) => Err(failure.to_storage_error()),
                    Err(error) => Err(StorageError::Unavailable(format!("{failure}; then: {error}"))),
                }
            }
        }
    }

    fn publish(&self, batch: &Batch) {
        self.core.publish(self.core.write(), &batch.changes, |_| batch.compact);
    }

    /// Reopens the file after a failure, and determines whether the failed batch was written. A file with a failed sync is replaced
    /// by the state that was acknowledged, without that batch. If that fails, values can be read if the medium can.
    fn resolve(&mut self) -> Result<BatchResolution, StorageError> {
        if self.disk.is_open() {
            return Ok(BatchResolution::NotWritten);
        }
        let resolved = self.reopen();
        if resolved.is_err()
            && self.core.read().has_cold()
            && let Err(failure) = self.disk.open_for_reading()
        {
            tracing::error!(%failure, "the data file cannot even be read");
        }
        resolved
    }

    fn reopen(&mut self) -> Result<BatchResolution, StorageError> {
        if self.disk.is_distrusted() {
            return self.rewrite().map(|()| BatchResolution::NotWritten);
        }
        let found = match self.disk.reopen() {
            Err(_) if self.disk.is_distrusted() => {
                return self.rewrite().map(|()| BatchResolution::NotWritten);
            }
            reopened => reopened.map_err(|failure| cannot("be reopened", &failure))?,
        };
        let known = self.core.revision();
        let batch = self.unresolved.take();
        if found.revision == known {
            let asked = batch.and_then(|batch| batch.compact);
            // History that is missing in the file must also be forgotten in memory.
            if found.compacted > self.core.read().compacted() {
                self.core.publish(self.core.write(), &[], |_| Some(found.compacted));
            }
            let is_done = asked.is_some_and(|asked| asked <= found.compacted);
            return Ok(if is_done { BatchResolution::Written } else { BatchResolution::NotWritten });
        }
        let Some(batch) =
            batch.filter(|batch| batch.changes.last().is_some_and(|last| last.revision == found.revision))
        else {
            self.disk.close();
            return Err(StorageError::Broken(format!(
                "the data file is at revision {}, which was never written; the newest known revision is {known}",
                found.revision
            )));
        };
        // The batch is visible, which does not mean that it is durable.
        if let Err(failure) = self.disk.confirm(found) {
            self.disk.close();
            if self.disk.is_distrusted() {
                return self.rewrite().map(|()| BatchResolution::NotWritten);
            }
            self.unresolved = Some(batch);
            return Err(cannot("be synced", &failure));
        }
        self.publish(&batch);
        Ok(BatchResolution::Written)
    }

    /// Writes everything that was acknowledged into a new file, which replaces the current one.
    fn rewrite(&mut self) -> Result<(), StorageError> {
        if self.rewrite_failed.is_some_and(|at| at.elapsed() < RECOVERY_PAUSE) {
            return Err(StorageError::Unavailable(
                "the data file cannot be trusted after a failed sync, and could not be written anew yet"
                    .to_owned(),
            ));
        }
        tracing::error!("a sync of the data file failed: it is written anew");
        self.unresolved = None;
        let rewritten = self.disk.rewrite(&self.core.read());
        self.rewrite_failed = rewritten.is_err().then(Instant::now);
        match rewritten {
            Ok(_) => {
                tracing::info!("the data file was written anew");
                Ok(())
            }
            Err(failure) => Err(cannot("be written anew", &failure)),
        }
    }
}

/// Resolution of a batch whose write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchResolution {
    Written,
    NotWritten,
}

fn cannot(be: &str, failure: &Failure) -> StorageError {
    match failure {
        Failure::Full => StorageError::Full,
        other => StorageError::Unavailable(format!("the data file cannot {be}: {other}")),
    }
}

/// Returns the requests that wait, within the bounds of a batch, and whether they end with one to close the file.
fn gather(first: Request, mut next_waiting: impl FnMut() -> Option<Request>) -> (Vec<Request>, bool) {
    let (mut waiting, mut bytes, mut next) = (Vec::new(), 0, Some(first));
    while let Some(request) = next.take_if(|request| !matches!(request, Request::Close)) {
        bytes += size(&request);
        waiting.push(request);
        if may_grow(waiting.len(), bytes) {
            next = next_waiting();
        }
    }
    (waiting, next.is_some())
}

/// Reports whether a batch of this many transactions, with this many bytes of values, takes another one.
fn may_grow(transactions: usize, bytes: usize) -> bool {
    transactions < BATCH_TRANSACTIONS && bytes < BATCH_BYTES
}

fn size(request: &Request) -> usize {
    match request {
        Request::Commit(transaction, _) => transaction.writes.iter().fold(0, |sum, write| match write {
            Write::Put(_, value) => sum + value.len(),
            Write::Delete(_) => sum,
        }),
        Request::Compact(..) | Request::Tend | Request::Close => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_copy_is_worth_it_when_most_of_a_file_is_unused() {
        let shrinking = Shrinking { from: 100, successor: None, begun: (Instant::now(), 0), last: None };
        for (length, used, is_worth_it) in [
            (100, 0, false),
            (101, 0, true),
            (1000, 398, true),
            (1000, 400, false),
            (1004, 399, true),
            (1004, 402, false),
        ] {
            assert_eq!(shrinking.is_worth_it(length, used), is_worth_it, "{used} of {length}");
        }
    }

    /// Otherwise a file that a copy does not make smaller would be copied without end.
    #[test]
    fn another_copy_waits_until_more_is_deleted() {
        let worth_it = |took, length, used| {
            // The last copy ended a second ago, of a file of 9000 bytes with 2000 in use.
            let ended = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
            let last = Some(LastCopy { ended, took, used: 2000, length: 9000 });
            Shrinking { from: 100, successor: None, begun: (ended, 0), last }.is_worth_it(length, used)
        };
        for (length, used, is_worth_it) in [
            (9000, 2000, false),
            (9000, 1600, false),
            (9000, 1596, true),
            (13500, 2000, false),
            (13503, 2000, true),
        ] {
            assert_eq!(worth_it(Duration::from_millis(100), length, used), is_worth_it, "{used} of {length}");
        }
        assert!(!worth_it(Duration::from_secs(2), 9000, 0), "copies take a tenth of the time at most");
    }

    #[test]
    fn a_batch_grows_up_to_its_bounds() {
        let (most, largest) = (BATCH_TRANSACTIONS, BATCH_BYTES);
        for (transactions, bytes, expected) in [
            (1, 0, true),
            (most - 1, largest - 1, true),
            (most, 0, false),
            (1, largest, false),
            (most, largest, false),
        ] {
            assert_eq!(may_grow(transactions, bytes), expected, "{transactions}, {bytes}");
        }
    }

    #[test]
    fn the_committer_is_asked_once_to_make_room() {
        let (requests, waiting) = sync_channel(1);
        let committer = Committer {
            requests,
            thread: Mutex::new(None),
            is_full: Arc::default(),
            is_tending: Arc::default(),
        };
        let waiting = || waiting.try_iter().count();
        assert_eq!((committer.is_full(), waiting()), (false, 0));
        committer.tend();
        committer.tend();
        assert_eq!(waiting(), 1);
        committer.tend();
        assert_eq!(waiting(), 0, "it has not begun yet");
        committer.is_tending.store(false, Ordering::Relaxed);
        committer.is_full.store(true, Ordering::Relaxed);
        assert_eq!((committer.is_full(), waiting()), (true, 1));
        // A request that finds no place can be made again.
        committer.is_tending.store(false, Ordering::Relaxed);
        committer.requests.try_send(Request::Tend).unwrap();
        committer.tend();
        assert_eq!(waiting(), 1);
        committer.tend();
        assert_eq!(waiting(), 1);
    }

    #[test]
    fn a_batch_ends_at_its_bounds_or_when_the_file_is_closed() {
        let put = |bytes: usize| {
            let write = Write::Put("/a".into(), vec![0; bytes].into());
            Request::Commit(Transaction { conditions: Vec::new(), writes: vec![write] }, sync_channel(1).0)
        };
        let half = BATCH_BYTES / 2;
        let (tend, close) = (|| Request::Tend, || Request::Close);
        for (requests, expected) in [
            (vec![tend()], (1, false)),
            (vec![close(), tend()], (0, true)),
            (vec![tend(), put(1), close(), tend()], (2, true)),
            (vec![put(half), put(half - 1), put(half), put(1)], (3, false)),
            (vec![put(half), put(half), close()], (2, false)),
        ] {
            let mut requests = requests.into_iter();
            let (waiting, is_closing) = gather(requests.next().unwrap(), || requests.next());
            assert_eq!((waiting.len(), is_closing), expected);
        }
    }

    #[test]
    fn a_batch_counts_the_values_that_are_written() {
        let (reply, _answer) = sync_channel(1);
        let writes = vec![
            Write::Put("/a".into(), "four".into()),
            Write::Delete("/b".into()),
            Write::Put("/c".into(), "seven77".into()),
        ];
        assert_eq!(size(&Request::Commit(Transaction { conditions: Vec::new(), writes }, reply)), 11);
        assert_eq!(size(&Request::Tend), 0);
    }
}
