//! Records on disk: files of JSON lines, the oldest of which are removed when they are too old or too large. A line that was
//! truncated by a crash is skipped.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gc_explain::undo::Record;
use gc_process::lines::Lines;
use gc_process::private_files;
use gc_types::Timestamp;

use super::seal::Reader;
use super::status::{ErrorCode, RecorderStatus};

/// Minimum size limit of a store, bytes.
pub(crate) const SMALLEST_STORE: u64 = 1 << 20;
/// Minimum number of files in a store before the first is removed.
const FILES: u64 = 8;
/// Maximum size of a file of records, bytes.
const LARGEST_FILE: u64 = 64 << 20;
/// Maximum length of a line: the largest object of an API server, with room for its escapes.
const LONGEST_LINE_BYTES: usize = 32 << 20;

/// Bounds of the records to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Age above which records are removed.
    pub max_age_milliseconds: i64,
    /// Size above which the oldest records are removed.
    pub max_bytes: u64,
}

/// Appends records to the newest file of a directory.
pub(crate) struct RecordStore {
    directory: PathBuf,
    bounds: Bounds,
    file: BufWriter<File>,
    bytes: u64,
    status: RecorderStatus,
}

fn files(directory: &Path) -> anyhow::Result<Vec<(i64, PathBuf)>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read the records in {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", directory.display()))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let begun = name.strip_prefix("deleted-").and_then(|rest| rest.strip_suffix(".jsonl"));
        // A pipe or a device in its place may have no end.
        let is_file = || path.metadata().is_ok_and(|metadata| metadata.is_file());
        if let Some(begun) = begun.and_then(|text| text.parse().ok()).filter(|_| is_file()) {
            files.push((begun, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Creates a file, removing the oldest ones if the disk is full. It becomes the newest one, even after the clock was set back, so
/// that new records are never the first to be removed.
fn create_pruning(
    directory: &Path,
    now: Timestamp,
    status: &RecorderStatus,
) -> anyhow::Result<BufWriter<File>> {
    loop {
        let newest = files(directory)?.last().map_or(i64::MIN, |(begun, _)| *begun);
        let path = directory.join(format!("deleted-{}.jsonl", now.0.max(newest.saturating_add(1))));
        match private_files::open(File::options().append(true), &path) {
            Ok(file) => return Ok(BufWriter::new(file)),
            Err(error) if is_full(&error) => remove_oldest(directory, 0, &error, status)?,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write {}", path.display()));
            }
        }
    }
}

/// Reports whether a disk has no room left, for anybody or for this user.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Removes the oldest file on a full disk; fails if there are no more than must be kept.
fn remove_oldest(
    directory: &Path,
    keeps: usize,
    error: &std::io::Error,
    status: &RecorderStatus,
) -> anyhow::Result<()> {
    let files = files(directory)?;
    let Some((_, oldest)) = files.first().filter(|_| files.len() > keeps) else {
        anyhow::bail!("the disk takes no record, and there is no older file to remove: {error}");
    };
    tracing::error!(%error, removed = %oldest.display(), "a record could not be written; the oldest records were removed");
    status.failed(ErrorCode::DiskFull, &format!("{error}; the oldest records were removed"));
    std::fs::remove_file(oldest).with_context(|| format!("cannot remove {}", oldest.display()))
}

impl RecordStore {
    /// Creates a new file in the directory, which is created if it does not exist.
    pub(crate) fn open(
        directory: &Path,
        bounds: Bounds,
        now: Timestamp,
        status: RecorderStatus,
    ) -> anyhow::Result<Self> {
        private_files::create_directory(directory)?;
        let file = create_pruning(directory, now, &status)?;
        let mut store = Self { directory: directory.to_owned(), bounds, file, bytes: 0, status };
        store.prune(now)?;
        Ok(store)
    }

    /// Adds the line of a record with this time; the operating system has it when this returns. On a full disk, the oldest records
    /// are removed to make room.
    pub(crate) fn append(&mut self, at: Timestamp, line: &str) -> anyhow::Result<()> {
        let length = line.len() as u64;
        if self.bytes > 0 && self.bytes + length > LARGEST_FILE.min(self.bounds.max_bytes / FILES) {
            self.file = create_pruning(&self.directory, at, &self.status)?;
            self.bytes = 0;
            self.prune(at)?;
        }
        while let Err(error) = self.write(line) {
            anyhow::ensure!(is_full(&error), "a record could not be written: {error}");
            self.make_room(at, &error)?;
        }
        self.bytes += length;
        Ok(())
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        self.file.write_all(line.as_bytes())?;
        self.file.flush()
    }

    /// Removes the oldest file on a full disk and creates a new one, because the last line of the current one is torn.
    fn make_room(&mut self, at: Timestamp, error: &std::io::Error) -> anyhow::Result<()> {
        // The current file is the newest, if it is a regular file at all.
        let keeps = usize::from(self.file.get_ref().metadata().is_ok_and(|metadata| metadata.is_file()));
        remove_oldest(&self.directory, keeps, error, &self.status)?;
        // The writer holds the torn line, which must not be written again when it is dropped.
        let torn = std::mem::replace(&mut self.file, create_pruning(&self.directory, at, &self.status)?);
        drop(torn.into_parts());
        self.bytes = 0;
        Ok(())
    }

    /// Removes files whose records are all too old, and the oldest ones while the size exceeds the bound; never the newest.
    pub(crate) fn prune(&mut self, now: Timestamp) -> anyhow::Result<()> {
        let files = files(&self.directory)?;
        // Room for the newest file, which grows.
        let room = self.bounds.max_bytes - LARGEST_FILE.min(self.bounds.max_bytes / FILES);
        // The records of a file end where the next one begins; the newest is never removed.
        let ends = files.iter().skip(1).map(|(begun, _)| *begun).chain([i64::MAX]);
        let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
        let ages: Vec<(i64, u64)> = ends.zip(files.iter().map(|(_, path)| size(path))).collect();
        let surplus = surplus(&ages, self.bounds.max_age_milliseconds, room, now);
        for (_, path) in files.iter().take(surplus.min(files.len().saturating_sub(1))) {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns the number of files to remove, each given with the time of its last record and its size, oldest first: those that are
/// too old, and the oldest ones while the size exceeds the bound.
pub(crate) fn surplus(files: &[(i64, u64)], max_age_milliseconds: i64, room: u64, now: Timestamp) -> usize {
    let mut total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let is_surplus = move |(ended, bytes): &&(i64, u64)| {
        let is_old = now.0.saturating_sub(*ended) > max_age_milliseconds;
        let exceeds = total > room;
        total = total.saturating_sub(*bytes);
        is_old || exceeds
    };
    files.iter().take_while(is_surplus).count()
}

/// Reports whether a directory contains the records of a recorder.
pub(crate) fn has_records(directory: &Path) -> anyhow::Result<bool> {
    Ok(!files(directory)?.is_empty())
}

/// Passes on the records in a directory, oldest first, one at a time.
pub(crate) fn each(
    directory: &Path,
    reader: &mut Reader,
    mut take: impl FnMut(Record),
) -> anyhow::Result<()> {
    for (_, path) in files(directory)? {
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut lines = Lines::new(BufReader::new(file), LONGEST_LINE_BYTES);
        while let Some(line) = lines.next().with_context(|| format!("cannot read {}", path.display()))? {
            if let Some(record) = line.text().and_then(|line| reader.record(line)) {
                take(record);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::super::seal::Writer;
    use super::*;

    const BOUNDS: Bounds = Bounds { max_age_milliseconds: 1_000, max_bytes: SMALLEST_STORE };

    fn of(at: i64, name: &str, bytes: usize) -> Record {
        Record {
            at: Timestamp(at),
            resource: "configmaps".into(),
            object: json!({"metadata": {"name": name}, "data": {"k": "v".repeat(bytes)}}),
        }
    }

    fn append(store: &mut RecordStore, record: &Record) {
        store.append(record.at, &Writer::default().line(record).unwrap()).unwrap();
    }

    fn open(directory: &Path, at: i64) -> RecordStore {
        RecordStore::open(directory, BOUNDS, Timestamp(at), RecorderStatus::default()).unwrap()
    }

    fn read(directory: &Path) -> Vec<Record> {
        let mut records = Vec::new();
        each(directory, &mut Reader::default(), |record| records.push(record)).unwrap();
        records
    }

    fn names(directory: &Path) -> Vec<String> {
        let records = read(directory);
        records.iter().map(|record| record.object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn records_come_back_and_a_cut_line_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("records");
        let mut store = open(&directory, 1);
        for name in ["a", "b"] {
            append(&mut store, &of(2, name, 1));
        }
        drop(store);
        let newest = files(&directory).unwrap().pop().unwrap().1;
        assert_eq!(newest.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let mut text = std::fs::read(&newest).unwrap();
        text.extend(b"{\"at\":3,\"resource\":\"configmaps\",\"obj");
        std::fs::write(&newest, text).unwrap();
        let mut store = open(&directory, 4);
        append(&mut store, &of(4, "c", 1));
        assert_eq!(names(&directory), ["a", "b", "c"]);
        assert_eq!(read(&directory).pop(), Some(of(4, "c", 1)));
    }

    /// Anyone who may write to the directory may put any files there.
    #[test]
    fn hostile_files_and_lines_take_nothing_from_records() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), 1);
        append(&mut store, &of(2, "a", 1));
        let at = |name: &str| folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(at("deleted-5.jsonl")).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", at("deleted-6.jsonl")).unwrap();
        std::os::unix::fs::symlink("/nonexistent", at("deleted-7.jsonl")).unwrap();
        std::fs::create_dir(at("deleted-8.jsonl")).unwrap();
        std::fs::write(at("deleted-..jsonl"), "x").unwrap();
        let large = vec![b'x'; LONGEST_LINE_BYTES + 1];
        let deep = "[".repeat(1 << 20).into_bytes();
        let record = Writer::default().line(&of(9, "b", 1)).unwrap().into_bytes();
        let half = record[..record.len() / 2].to_vec();
        let lines =
            [large, deep, half, b"\0\xff".to_vec(), b"{}".to_vec(), b"signed-1 a b c".to_vec(), record];
        std::fs::write(at("deleted-9.jsonl"), lines.join(&b'\n')).unwrap();
        assert_eq!(names(folder.path()), ["a", "b"]);
        store.prune(Timestamp(3)).unwrap();
        assert_eq!(names(folder.path()), ["b"], "what they take counts, and nothing but files is removed");
        assert!(at("deleted-5.jsonl").exists() && at("deleted-8.jsonl").is_dir());
    }

    #[test]
    fn the_file_that_is_written_stays_after_the_clock_was_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), 1_000_000);
        append(&mut store, &of(1_000_000, "before", 900_000));
        let mut store = open(folder.path(), 5);
        append(&mut store, &of(6, "after", 1));
        store.prune(Timestamp(2_000_000)).unwrap();
        assert_eq!(names(folder.path()), ["after"]);
    }

    #[test]
    fn a_full_disk_loses_the_oldest_records_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), 1);
        append(&mut store, &of(2, "old", 1));
        let mut store = open(folder.path(), 5);
        store.file = BufWriter::new(File::options().write(true).open("/dev/full").unwrap());
        append(&mut store, &of(6, "new", 1));
        assert!(store.status.last_error().contains("DiskFull: "), "{}", store.status.last_error());
        drop(store);
        assert_eq!(names(folder.path()), ["new"]);
    }

    /// Creates the next file of a store whose last one began at `newest`, on a disk without room.
    fn full(folder: &Path, newest: i64) {
        std::os::unix::fs::symlink("/dev/full", folder.join(format!("deleted-{}.jsonl", newest + 1)))
            .unwrap();
    }

    #[test]
    fn as_many_files_go_as_one_record_needs() {
        let folder = tempfile::tempdir().unwrap();
        for begun in [1, 2, 3] {
            let mut store = open(folder.path(), begun);
            append(&mut store, &of(begun, "old", 1));
        }
        full(folder.path(), 3);
        let mut store = open(folder.path(), 0);
        append(&mut store, &of(2, "new", 1));
        drop(store);
        assert_eq!(names(folder.path()), ["new"]);
    }

    #[test]
    fn a_full_disk_without_older_records_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), 1);
        std::fs::remove_dir_all(folder.path()).unwrap();
        std::fs::create_dir(folder.path()).unwrap();
        store.file = BufWriter::new(File::options().write(true).open("/dev/full").unwrap());
        let line = Writer::default().line(&of(6, "new", 1)).unwrap();
        let error = store.append(Timestamp(6), &line).unwrap_err().to_string();
        assert!(
            error.starts_with("the disk takes no record, and there is no older file to remove"),
            "{error}"
        );
    }

    #[test]
    fn another_failure_than_a_full_disk_removes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), 1);
        append(&mut store, &of(2, "old", 1));
        let mut store = open(folder.path(), 5);
        // Opened for reading only.
        store.file = BufWriter::new(File::open("/dev/null").unwrap());
        let line = Writer::default().line(&of(6, "new", 1)).unwrap();
        let error = store.append(Timestamp(6), &line).unwrap_err();
        assert!(error.to_string().starts_with("a record could not be written: "), "{error}");
        drop(store);
        assert_eq!(names(folder.path()), ["old"]);
    }

    #[test]
    fn a_store_is_bounded_by_size_and_age() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), 0);
        for number in 0..100 {
            append(&mut store, &of(10 + number, &format!("r{number}"), 50_000));
            let total: u64 =
                files(folder.path()).unwrap().iter().map(|(_, path)| path.metadata().unwrap().len()).sum();
            assert!(total <= BOUNDS.max_bytes, "{total}");
        }
        let kept = names(folder.path());
        assert!(kept.len() >= 14 && kept.last().unwrap() == "r99", "{kept:?}");
        // Records older than a second are removed with the next file.
        store.prune(Timestamp(5_000)).unwrap();
        assert_eq!(files(folder.path()).unwrap().len(), 1, "the newest is never removed");
    }
}
