//! A smaller data file, written while the current one is in use.
//!
//! A thread copies a snapshot of the current file. Concurrent writes are recorded and added to the copy in rounds, until the rest
//! is so small that the committer adds it itself and replaces the file with the copy. Until then, only the current file counts: if
//! anything goes wrong, the copy is discarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ::redb::Database;
use bytes::Bytes;
use gc_store_api::{Change, Revision};

use super::disk::{self, Disk, Missing};
use super::failure::Failure;

/// Maximum number of changes that the committer adds to a copy itself.
const LAST_CHANGES: usize = 1024;
/// Maximum number of rounds in which a copy may catch up with the writes.
const ROUNDS: u32 = 16;

/// Maximum size of the changes that a copy lacks, with their former and new values.
const MISSING_BYTES: usize = 128 << 20;

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
    /// The copy cannot keep up with the writes, and has been abandoned.
    Outrun,
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
        self.missing.bytes += changes.iter().map(|change| size(change)).sum::<usize>();
        self.missing.compact = self.missing.compact.max(compact);
        self.missing.revision = revision;
    }

    /// Continues the copy if the thread has done its part.
    pub(super) fn step(mut self) -> Step {
        if self.missing.bytes > MISSING_BYTES {
            self.abandon();
            return Step::Outrun;
        }
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
            return Step::Outrun;
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

fn size(change: &Change) -> usize {
    let former = change.previous.as_ref().map_or(0, |previous| previous.value.len());
    change.key.len() + former + change.value.as_ref().map_or(0, Bytes::len)
}

fn spawn(
    work: impl FnOnce() -> Result<Database, Failure> + Send + 'static,
) -> Result<JoinHandle<Result<Database, Failure>>, Failure> {
    Ok(std::thread::Builder::new().name("store-copy".to_owned()).spawn(work)?)
}

fn joined(thread: JoinHandle<Result<Database, Failure>>) -> Result<Database, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::Io("the thread that copies has panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use gc_store_api::{Key, KeyValue};

    use super::*;

    /// Starts a copy that lasts until it is abandoned.
    fn endless() -> (Successor, Arc<AtomicBool>) {
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_abandoned);
        let thread = spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Err(Failure::Io("abandoned".to_owned()))
        });
        let (missing, sync_failed) = (Missing::default(), Arc::default());
        let thread = thread.unwrap();
        let flag = Arc::clone(&is_abandoned);
        (Successor { thread, is_abandoned, sync_failed, missing, rounds: 0 }, flag)
    }

    /// Regression test: deletions during a copy were kept in memory, with the values that they deleted, until it ended.
    #[test]
    fn a_copy_that_lacks_too_much_is_abandoned() {
        let (key, value) = (Key::from("/a"), Bytes::from(vec![0; 1 << 20]));
        let revision = Revision(1);
        let former = KeyValue { key: key.clone(), value, create_revision: revision, mod_revision: revision };
        let deletion = Arc::new(Change { revision, key, value: None, previous: Some(former) });
        let (mut copy, is_abandoned) = endless();
        for _ in 0..MISSING_BYTES >> 20 {
            let Step::Wait(further) = copy.step() else { panic!("the bound is not reached") };
            copy = further;
            copy.note(&[Arc::clone(&deletion)], revision, None);
        }
        assert!(matches!(copy.step(), Step::Outrun));
        assert!(is_abandoned.load(Ordering::Relaxed));
    }

    #[test]
    fn a_copy_that_does_not_catch_up_is_given_up() {
        let deletion = |number: usize| {
            let revision = Revision(number as u64 + 2);
            Arc::new(Change { revision, key: "/a".into(), value: None, previous: None })
        };
        let changes: Vec<_> = (0..=LAST_CHANGES).map(deletion).collect();
        let empty = redb::Builder::new().create_with_backend(redb::backends::InMemoryBackend::new()).unwrap();
        let thread = spawn(|| Ok(empty)).unwrap();
        let (missing, is_abandoned, sync_failed) = (Missing::default(), Arc::default(), Arc::default());
        let mut copy = Successor { thread, is_abandoned, sync_failed, missing, rounds: 0 };
        let mut noted = 0;
        loop {
            if copy.missing.changes.is_empty() {
                copy.note(&changes, Revision(9_999), None);
                noted += 1;
            }
            match copy.step() {
                Step::Wait(further) => copy = further,
                Step::Outrun => break,
                Step::Replace(..) => panic!("it lacks too much"),
                Step::Failed(failure) => panic!("{failure}"),
            }
            std::thread::yield_now();
        }
        assert_eq!(noted, ROUNDS + 1);
    }
}
