//! A smaller data file, written while the current one is in use.
//!
//! A thread copies a snapshot of the current file. Concurrent writes are recorded and added to the copy in rounds, until the rest
//! is so small that the committer adds it itself and replaces the file with the copy. Until then, only the current file counts: if
//! anything goes wrong, the copy is discarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ::redb::Database;
use gc_store_api::{Change, Revision};

use super::disk::{self, Disk, Missing};
use super::failure::Failure;

/// Maximum number of changes that the committer adds to a copy itself.
const LAST_CHANGES: usize = 1024;
/// Maximum number of rounds in which a copy may catch up with the writes.
const ROUNDS: u32 = 16;

/// A copy in progress.
pub(super) struct Successor {
    thread: JoinHandle<Result<Database, Failure>>,
    is_abandoned: Arc<AtomicBool>,
    sync_failed: Arc<AtomicBool>,
    missing: Missing,
    rounds: u32,
}

/// Next step of a copy.
pub(super) enum Step {
    /// The copy is not complete yet.
    Wait(Successor),
    /// The copy lacks only these writes.
    Replace(Database, Missing, Arc<AtomicBool>),
    Failed(Failure),
}

impl Successor {
    /// Begins to copy the file, which is at this revision.
    pub(super) fn begin(disk: &Disk, revision: Revision) -> Result<Self, Failure> {
        let (is_abandoned, sync_failed) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let copying = disk.copying(&sync_failed)?;
        let flag = Arc::clone(&is_abandoned);
        let thread = spawn(move || copying.run(&flag))?;
        let missing = Missing { revision, ..Missing::default() };
        Ok(Self { thread, is_abandoned, sync_failed, missing, rounds: 0 })
    }

    /// Records writes to the current file.
    pub(super) fn note(&mut self, changes: &[Arc<Change>], revision: Revision, compact: Option<Revision>) {
        self.missing.changes.extend_from_slice(changes);
        self.missing.compact = self.missing.compact.max(compact);
        self.missing.revision = revision;
    }

    /// Continues the copy if the thread has done its part.
    pub(super) fn step(mut self) -> Step {
        if !self.thread.is_finished() {
            return Step::Wait(self);
        }
        let database = match joined(self.thread) {
            Ok(database) => database,
            Err(failure) => return Step::Failed(failure),
        };
        if self.missing.changes.len() <= LAST_CHANGES {
            return Step::Replace(database, self.missing, self.sync_failed);
        }
        self.rounds += 1;
        if self.rounds > ROUNDS {
            return Step::Failed(Failure::Io("a copy of it cannot keep up with the writes".to_owned()));
        }
        let revision = self.missing.revision;
        let missing = std::mem::replace(&mut self.missing, Missing { revision, ..Missing::default() });
        let added = spawn(move || {
            disk::write(&database, &missing.changes, missing.revision, missing.compact)?;
            Ok(database)
        });
        match added {
            Ok(thread) => Step::Wait(Self { thread, ..self }),
            Err(failure) => Step::Failed(failure),
        }
    }

    /// Ends the thread. The caller must remove its file.
    pub(super) fn abandon(self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        drop(joined(self.thread));
    }
}

fn spawn(
    work: impl FnOnce() -> Result<Database, Failure> + Send + 'static,
) -> Result<JoinHandle<Result<Database, Failure>>, Failure> {
    Ok(std::thread::Builder::new().name("store-copy".to_owned()).spawn(work)?)
}

fn joined(thread: JoinHandle<Result<Database, Failure>>) -> Result<Database, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::Io("the thread that copies has panicked".to_owned())))
}
