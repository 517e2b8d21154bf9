//! The journal: every effect with its reason, evidence, outcome and duration, one JSON object per line. The newest entries are kept
//! in memory (`recent`); if there is a file, all entries are appended to it (`file`).

mod entry;
mod file;
mod query;
mod recent;
mod serve;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::user_limits::UserLimits;
pub use entry::{
    AGREEMENT, DEFINITIONS, DELETE, DISAGREEMENT, JournalObserver, OBSERVE, OUTCOMES, PROTECTED, REFUSED,
    RELEASE, VERBS, collectors, entry, is_accepted, subject, verb, word,
};
pub use file::JournalOptions;
use file::RotatedFile;
pub use query::{Found, LONGEST_LINE_BYTES, Object, Query, Selection, long_name, scan, search, text};
use recent::Recent;
pub use serve::{FoundEntries, PATH, answer};

/// Name of the journal in the data directory of a server.
pub const SERVER_JOURNAL: &str = "journal.jsonl";
/// Maximum number of entries that wait for the disk; further ones are dropped and counted.
const QUEUED_ENTRIES: usize = 8192;
/// Pause in which the thread gathers entries after it has written some: under load, waking it for each entry costs more than
/// writing it.
const GATHERING_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of concurrent searches; each reads all files.
const SEARCHES_AT_ONCE: usize = 2;
/// Maximum number of clients that follow the journal.
const MAXIMUM_FOLLOWERS: usize = 32;
/// Maximum number of these clients that belong to one user.
const MAXIMUM_FOLLOWERS_OF_USER: usize = 16;

/// Reason why a journal has no file.
#[derive(Debug)]
pub struct InMemoryOnly(anyhow::Error);

impl InMemoryOnly {
    /// Logs the reason.
    pub fn log(&self) {
        tracing::info!("the journal is kept in memory only: {:#}", self.0);
    }
}

/// Takes entries on any thread, and keeps and writes them on a thread of its own.
pub struct Journal {
    recent: Arc<Recent>,
    /// File of the entries, if any.
    file: Option<PathBuf>,
    queue: Mutex<Option<SyncSender<Value>>>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Number of entries that were lost because the queue was full or because the disk did not take them.
    dropped: Arc<AtomicU64>,
    searches: Arc<Semaphore>,
    followers: UserLimits,
}

/// State of the journal's thread.
struct Writer {
    recent: Arc<Recent>,
    file: Option<RotatedFile>,
    /// Server that the entries are about, if each of them names it.
    server: Option<String>,
    lost: Arc<AtomicU64>,
}

impl Journal {
    /// Keeps entries in memory and, if there is a file, appends them to it. With a server, each entry names it.
    pub fn open(options: Option<JournalOptions>, server: Option<String>) -> anyhow::Result<Self> {
        let path = options.as_ref().map(|options| options.file.clone());
        Self::start(path, options.map(RotatedFile::open).transpose()?, server)
    }

    /// Opens the journal with a file by default: if it cannot be written, memory is enough, and the log should say why.
    pub fn open_default(
        options: JournalOptions,
        server: Option<String>,
    ) -> anyhow::Result<(Self, Option<InMemoryOnly>)> {
        let path = options.file.clone();
        Ok(match RotatedFile::open_alone(options) {
            Ok(file) => (Self::start(Some(path), Some(file), server)?, None),
            Err(error) => (Self::start(None, None, server)?, Some(InMemoryOnly(error))),
        })
    }

    fn start(
        path: Option<PathBuf>,
        file: Option<RotatedFile>,
        server: Option<String>,
    ) -> anyhow::Result<Self> {
        let recent = Arc::new(if file.is_some() { Recent::default() } else { Recent::without_file() });
        let dropped = Arc::<AtomicU64>::default();
        let (queue, entries) = sync_channel(QUEUED_ENTRIES);
        let writer = Writer { recent: Arc::clone(&recent), file, server, lost: Arc::clone(&dropped) };
        let writer = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.drain(&entries))
            .context("cannot start the journal's thread")?;
        Ok(Self {
            recent,
            file: path,
            queue: Mutex::new(Some(queue)),
            writer: Mutex::new(Some(writer)),
            dropped,
            searches: Arc::new(Semaphore::new(SEARCHES_AT_ONCE)),
            followers: UserLimits::new(MAXIMUM_FOLLOWERS, MAXIMUM_FOLLOWERS_OF_USER),
        })
    }

    /// Returns the number of missing entries.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes the queued entries and closes the file.
    pub fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The writer ends by itself; an error could only say that it panicked.
            let _ = writer.join();
        }
    }

    /// Records something that is not an effect, and adds the time.
    pub fn record(&self, mut entry: Value) {
        entry["time"] = entry::now().into();
        self.append(entry);
    }

    fn append(&self, entry: Value) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_some_and(|queue| queue.try_send(entry).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the entries of this selection: those of its files, and from memory those that are in no file.
    pub fn search(&self, selection: &Selection) -> Found {
        let unwritten = self.recent.unwritten();
        let mut found = match self.file.as_deref().map(|file| search(file, selection)) {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                let mut found = Found::default();
                found.failures.push(format!("{error:#}"));
                found
            }
            None => Found::default(),
        };
        found.complete(&unwritten, selection);
        found.no_longer_kept = self.recent.lost();
        found
    }
}

impl Writer {
    fn drain(mut self, entries: &Receiver<Value>) {
        let mut failing = false;
        while let Ok(first) = entries.recv() {
            let server = self.server.clone();
            let named = |mut entry: Value| {
                if let Some(server) = &server {
                    entry["server"] = server.as_str().into();
                }
                entry
            };
            let batch = std::iter::once(first).chain(entries.try_iter().take(QUEUED_ENTRIES)).map(named);
            let lines = self.recent.push(batch);
            self.write(&lines, &mut failing);
            std::thread::sleep(GATHERING_PAUSE);
        }
    }

    fn write(&mut self, lines: &[Arc<str>], failing: &mut bool) {
        let Some(file) = &mut self.file else { return };
        let result = file.append(lines);
        match &result {
            Ok(()) => self.recent.wrote(lines.len()),
            Err(error) => {
                // Some of the lines may have been written.
                let lost = u64::try_from(lines.len()).unwrap_or(u64::MAX);
                self.lost.fetch_add(lost, Ordering::Relaxed);
                if !*failing {
                    tracing::error!(%error, "the journal cannot be written; collection continues without it");
                }
            }
        }
        *failing = result.is_err();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use serde_json::json;

    use super::*;

    fn numbers(found: &Found) -> Vec<u64> {
        found.entries.iter().map(|entry| entry["n"].as_u64().unwrap()).collect()
    }

    #[test]
    fn what_the_disk_does_not_take_is_counted_and_still_known() {
        // Writing to this device fails as on a full disk.
        let options = JournalOptions { file: "/dev/full".into(), largest_bytes: 1 << 20, older_files: 0 };
        let journal = Journal::open(Some(options), None).unwrap();
        for number in 0..3 {
            journal.record(json!({"n": number}));
        }
        journal.close();
        assert_eq!(journal.dropped(), 3);
        let mut found = Found::default();
        found.complete(&journal.recent.unwritten(), &Selection::default());
        assert_eq!(numbers(&found), [0, 1, 2]);
    }

    #[test]
    fn a_journal_finds_what_it_wrote_and_what_it_keeps_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let options = JournalOptions { file: file.clone(), largest_bytes: 1 << 20, older_files: 1 };
        for (options, server) in
            [(Some(options.clone()), Some("https://c")), (Some(options), None), (None, None)]
        {
            let has_file = options.is_some();
            let journal = Journal::open(options, server.map(str::to_owned)).unwrap();
            journal.record(json!({"n": 7, "verb": "delete"}));
            journal.close();
            let found = journal.search(&Selection::default());
            let expected = match (has_file, server) {
                (true, None) => vec![7, 7],
                _ => vec![7],
            };
            assert_eq!(numbers(&found), expected, "{server:?} {has_file}");
            assert_eq!(found.entries[0]["server"].as_str(), has_file.then_some("https://c"));
        }
    }
}
