//! The one thread that writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use gc_registry::storage::{Change, Committed, Key, KeyValue, Revision, StorageError, Transaction, Write};

use super::disk::{Disk, Failure};
use crate::core::Core;
use crate::mvcc::{Evaluated, HistoryOptions, evaluate, result_of};

/// The most transactions that share one fsync.
const BATCH_TRANSACTIONS: usize = 1024;
/// The most bytes of values that share one fsync (one transaction may exceed it alone).
const BATCH_BYTES: usize = 16 << 20;
/// The most transactions that wait; a caller beyond that waits to be let in.
const WAITING: usize = 4096;

type Reply<T> = SyncSender<Result<T, StorageError>>;

enum Request {
    Commit(Transaction, Reply<Committed>),
    Compact(Revision, Reply<()>),
}

/// The handle on the thread. Dropping it finishes what waits and closes the file.
#[derive(Debug)]
pub(super) struct Committer {
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn start(disk: Disk, core: Arc<Core>, history: HistoryOptions) -> Result<Self, Failure> {
        let (requests, receiver) = sync_channel(WAITING);
        let writer = Writer { disk, core, history, unresolved: None };
        let thread = std::thread::Builder::new()
            .name("store-commit".to_owned())
            .spawn(move || writer.run(&receiver))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
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
        self.requests.as_ref().ok_or_else(gone)?.send(request(reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so, and there is nobody left to tell.
            drop(thread.join());
        }
    }
}

struct Writer {
    disk: Disk,
    core: Arc<Core>,
    history: HistoryOptions,
    /// A batch of which is not known whether it reached the disk. Nothing is written before that is known.
    unresolved: Option<Batch>,
}

/// What shares one fsync.
#[derive(Default)]
struct Batch {
    changes: Vec<Arc<Change>>,
    /// The keys that this batch has changed, as it leaves them.
    overlay: HashMap<Key, Option<KeyValue>>,
    compact: Option<Revision>,
}

impl Writer {
    fn run(mut self, requests: &Receiver<Request>) {
        while let Ok(first) = requests.recv() {
            let mut waiting = vec![first];
            let mut bytes = size(&waiting[0]);
            while waiting.len() < BATCH_TRANSACTIONS && bytes < BATCH_BYTES {
                match requests.try_recv() {
                    Ok(request) => {
                        bytes += size(&request);
                        waiting.push(request);
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.serve(waiting);
        }
    }

    fn serve(&mut self, waiting: Vec<Request>) {
        let ready = self.resolve();
        let mut batch = Batch::default();
        // Answers depend on what others in the batch do, so none is given before all of it is on disk.
        let mut commits = Vec::new();
        let mut compactions = Vec::new();
        for request in waiting {
            match request {
                Request::Commit(transaction, reply) => {
                    let answer = ready.clone().and_then(|()| self.stage(&mut batch, transaction));
                    commits.push((reply, answer));
                }
                Request::Compact(revision, reply) => {
                    let answer = ready.clone().and_then(|()| {
                        if self.core.write().can_compact(revision)? {
                            batch.compact = batch.compact.max(Some(revision));
                        }
                        Ok(())
                    });
                    compactions.push((reply, answer));
                }
            }
        }
        let written = self.write(batch);
        // A caller that has gone does not want its answer.
        for (reply, answer) in commits {
            let _ = reply.send(written.clone().and(answer));
        }
        for (reply, answer) in compactions {
            let _ = reply.send(written.clone().and(answer));
        }
    }

    fn stage(&self, batch: &mut Batch, transaction: Transaction) -> Result<Committed, StorageError> {
        let newest = batch.changes.last().map_or_else(|| self.core.revision(), |change| change.revision);
        let revision = Revision(newest.0 + 1);
        let present = |key: &str| batch.overlay.get(key).cloned().unwrap_or_else(|| self.core.current(key));
        let changes = match evaluate(transaction, revision, present)? {
            Evaluated::Conflict(found) => return Ok(Committed::Conflict(found)),
            Evaluated::Changes(changes) if changes.is_empty() => return Ok(Committed::Done(newest)),
            Evaluated::Changes(changes) => changes,
        };
        for change in changes {
            batch.overlay.insert(Arc::clone(&change.key), result_of(&change));
            batch.changes.push(Arc::new(change));
        }
        Ok(Committed::Done(revision))
    }

    /// Writes a batch and publishes it.
    fn write(&mut self, mut batch: Batch) -> Result<(), StorageError> {
        if batch.changes.is_empty() && batch.compact.is_none() {
            return Ok(());
        }
        // What the bounds want forgotten goes along with a write; an fsync of its own would serve nobody.
        batch.compact = batch.compact.max(self.core.overdue(&self.history));
        let newest = batch.changes.last().map_or_else(|| self.core.revision(), |change| change.revision);
        match self.disk.write(&batch.changes, newest, batch.compact) {
            Ok(()) => {
                self.publish(&batch);
                Ok(())
            }
            Err(failure) => {
                tracing::error!(%failure, transactions = batch.changes.len(), "writing to the data file failed");
                self.unresolved = Some(batch);
                self.disk.close();
                let before = self.core.revision();
                match self.resolve() {
                    Ok(()) if newest > before && self.core.revision() == newest => Ok(()),
                    Ok(()) => Err(failure.to_storage_error()),
                    Err(error) => Err(StorageError::Unavailable(format!("{failure}; then: {error}"))),
                }
            }
        }
    }

    fn publish(&self, batch: &Batch) {
        self.core.publish(self.core.write(), &batch.changes, |_| batch.compact);
    }

    /// Reopens the file after a failure, and finds out what became of the batch that failed.
    fn resolve(&mut self) -> Result<(), StorageError> {
        if self.disk.is_open() {
            return Ok(());
        }
        let found = self.disk.reopen().map_err(|failure| match failure {
            Failure::Full => StorageError::Full,
            other => StorageError::Unavailable(format!("the data file cannot be reopened: {other}")),
        })?;
        let known = self.core.revision();
        let batch = self.unresolved.take();
        if found == known {
            return Ok(());
        }
        if let Some(batch) =
            batch.filter(|batch| batch.changes.last().is_some_and(|last| last.revision == found))
        {
            self.publish(&batch);
            return Ok(());
        }
        self.disk.close();
        Err(StorageError::Broken(format!(
            "the data file is at revision {found}, which nobody wrote; the newest one known is {known}"
        )))
    }
}

fn size(request: &Request) -> usize {
    match request {
        Request::Commit(transaction, _) => transaction.writes.iter().fold(0, |sum, write| match write {
            Write::Put(_, value) => sum + value.len(),
            Write::Delete(_) => sum,
        }),
        Request::Compact(..) => 0,
    }
}
