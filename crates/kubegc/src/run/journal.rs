//! The journal: every effect with its reason, evidence, outcome and duration, one JSON object per line, in a file of
//! bounded size with a bounded number of older ones (`FILE.1` is the youngest of them).

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use gc_kube::breaker::Trip;
use gc_kube::{Observer, ResourceTable};
use gc_retention::permissions::Controller;
use gc_types::{
    Change, Effect, FinalizerName, HeldBy, ObjectKey, Outcome, OutsideCall, PropagationPolicy, Request,
};
use serde_json::{Map, Value, json};

/// Maximum number of entries that wait for the disk; further ones are dropped and counted.
const QUEUED_ENTRIES: usize = 8192;

/// Where and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalOptions {
    pub(crate) file: PathBuf,
    pub(crate) largest_bytes: u64,
    pub(crate) older_files: u32,
}

/// Takes entries on any thread and writes them on its own.
pub(crate) struct Journal {
    queue: Mutex<Option<SyncSender<Value>>>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Entries that were lost because too many waited, or because the disk did not take them.
    dropped: Arc<AtomicU64>,
}

impl Journal {
    /// Opens the file for appending.
    pub(crate) fn open(options: JournalOptions) -> anyhow::Result<Self> {
        let mut file = RotatedFile::open(options)?;
        let (queue, entries) = sync_channel(QUEUED_ENTRIES);
        let dropped = Arc::<AtomicU64>::default();
        let lost = Arc::clone(&dropped);
        let write = move || drain(&entries, &mut file, &lost);
        let writer = std::thread::Builder::new()
            .name("journal".into())
            .spawn(write)
            .context("cannot start the journal's thread")?;
        Ok(Self { queue: Mutex::new(Some(queue)), writer: Mutex::new(Some(writer)), dropped })
    }

    /// Number of missing entries.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes what waits and closes the file.
    pub(crate) fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The writer ends by itself; that it panicked is all there could be to say.
            let _ = writer.join();
        }
    }
}

impl Journal {
    /// Notes something that is no effect. The time is added.
    pub(crate) fn record(&self, mut entry: Value) {
        entry["time"] = now().into();
        self.take(entry);
    }

    fn take(&self, entry: Value) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_some_and(|queue| queue.try_send(entry).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes down what one collector does, whose effects name resources by this table.
pub(super) struct JournalObserver {
    pub(super) journal: Arc<Journal>,
    pub(super) controller: Controller,
    pub(super) table: ResourceTable,
}

impl Observer for JournalObserver {
    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let mut entry = entry(effect, outcome, round_trips, took, &self.table);
        entry["controller"] = self.controller.name().into();
        self.journal.take(entry);
    }

    fn tripped(&self, trip: &Trip) {
        self.journal.record(json!({
            "verb": "stop", "outcome": "tripped", "resource": &*trip.resource, "verdict": "BreakerTripped", "message": &*trip.why,
            "controller": self.controller.name(),
        }));
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn drain(entries: &Receiver<Value>, file: &mut RotatedFile, lost: &AtomicU64) {
    let mut failing = false;
    while let Ok(first) = entries.recv() {
        let mut taken = 0;
        let batch = std::iter::once(first).chain(entries.try_iter()).inspect(|_| taken += 1);
        let result = file.append(batch);
        if let Err(error) = &result {
            // Some of them may have got through.
            lost.fetch_add(taken, Ordering::Relaxed);
            if !failing {
                tracing::error!(%error, "the journal cannot be written; collection continues without it");
            }
        }
        failing = result.is_err();
    }
}

struct RotatedFile {
    options: JournalOptions,
    file: BufWriter<File>,
    bytes: u64,
}

fn open(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().append(true).create(true).mode(0o600).open(path)
}

impl RotatedFile {
    fn open(options: JournalOptions) -> anyhow::Result<Self> {
        let file = open(&options.file)
            .with_context(|| format!("cannot open the journal {}", options.file.display()))?;
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        Ok(Self { options, file: BufWriter::new(file), bytes })
    }

    fn append(&mut self, entries: impl Iterator<Item = Value>) -> std::io::Result<()> {
        for entry in entries {
            let line = format!("{entry}\n");
            let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
            if self.bytes > 0 && self.bytes.saturating_add(length) > self.options.largest_bytes {
                self.rotate()?;
            }
            self.file.write_all(line.as_bytes())?;
            self.bytes = self.bytes.saturating_add(length);
        }
        self.file.flush()
    }

    fn rotate(&mut self) -> std::io::Result<()> {
        self.file.flush()?;
        let numbered = |number: u32| {
            let mut name = self.options.file.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.options.older_files).rev() {
            match std::fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.options.older_files > 0 {
            std::fs::rename(&self.options.file, numbered(1))?;
        } else {
            std::fs::remove_file(&self.options.file)?;
        }
        self.file = BufWriter::new(open(&self.options.file)?);
        self.bytes = 0;
        Ok(())
    }
}

/// `delete`, `set-owners`, …: what an effect asks for, in one word.
pub(crate) fn verb(request: &Request) -> &'static str {
    match request {
        Request::Delete { .. } => "delete",
        Request::SetOwners { .. } => "set-owners",
        Request::RemoveFinalizer { .. } => "remove-finalizer",
        Request::Read { .. } => "read",
        Request::Barrier { .. } => "barrier",
        Request::Note(_) => "event",
        Request::Guarded { change: Change::ForceDelete, .. } => "force-delete",
        Request::Guarded { change: Change::Finalizers(_), .. } => "set-finalizers",
        Request::Guarded { change: Change::Status(_) | Change::MergeStatus(_), .. } => "set-status",
        Request::Guarded { change: Change::Merge(_), .. } => "patch",
        Request::Outside { call: OutsideCall::DeleteStorage(_), .. } => "delete-storage",
        Request::Outside { call: OutsideCall::LookUpMachine { .. }, .. } => "look-up-machine",
    }
}

/// What became of it, in one word.
pub(crate) fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied(_) => "applied",
        Outcome::Found(_) => "found",
        Outcome::Absent => "absent",
        Outcome::Conflict => "conflict",
        Outcome::NotServed => "not-served",
        Outcome::Held(HeldBy::DryRun) => "dry-run",
        Outcome::Held(HeldBy::Observe) => "observed",
        Outcome::Held(HeldBy::Breaker) => "held-by-breaker",
        Outcome::Held(HeldBy::Configuration) => "held-by-configuration",
        Outcome::Held(HeldBy::Clock) => "held-by-clock",
        Outcome::Refused { .. } => "refused",
        Outcome::Failed { .. } => "failed",
    }
}

/// The object that a request is about, if it is about one.
pub(super) fn subject(request: &Request) -> Option<&ObjectKey> {
    match request {
        Request::Delete { key, .. }
        | Request::SetOwners { key, .. }
        | Request::RemoveFinalizer { key, .. }
        | Request::Guarded { key, .. }
        | Request::Outside { key, .. }
        | Request::Read { key } => Some(key),
        Request::Note(note) => Some(&note.about),
        Request::Barrier { .. } => None,
    }
}

/// What is asked for, as data; questions print it too.
pub(crate) fn request_value(request: &Request, table: &ResourceTable) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    set("verb", verb(request).into());
    let resource_name = |id| table.get(id).map_or_else(String::new, |route| route.display_name());
    if let Some(key) = subject(request) {
        set("resource", resource_name(key.resource).into());
        if let Some(route) = table.get(key.resource) {
            set("kind", (*route.info.kind).into());
        }
        set("namespace", (*key.namespace).into());
        set("name", (*key.name).into());
    }
    match request {
        Request::Delete { uid, resource_version, policy, .. } => {
            set("uid", uid.to_string().into());
            set("resourceVersion", resource_version.map(|version| version.to_string()).into());
            let policy = match policy {
                PropagationPolicy::Background => "Background",
                PropagationPolicy::Foreground => "Foreground",
                PropagationPolicy::Orphan => "Orphan",
            };
            set("propagationPolicy", policy.into());
        }
        Request::SetOwners { uid, resource_version, remaining, .. } => {
            set("uid", uid.to_string().into());
            set("resourceVersion", resource_version.to_string().into());
            let uids = remaining.iter().map(|owner| owner.coordinates.uid.to_string());
            set("remainingOwners", uids.collect());
        }
        Request::RemoveFinalizer { uid, finalizer, .. } => {
            set("uid", uid.to_string().into());
            let finalizer = match finalizer {
                FinalizerName::Orphan => "orphan",
                FinalizerName::ForegroundDeletion => "foregroundDeletion",
            };
            set("finalizer", finalizer.into());
        }
        Request::Barrier { resource, namespace, at_least } => {
            set("resource", resource_name(*resource).into());
            set("namespace", namespace.as_deref().unwrap_or_default().into());
            set("resourceVersion", at_least.to_string().into());
        }
        Request::Note(note) => {
            set("uid", note.uid.to_string().into());
            set("eventReason", note.reason.into());
            set("message", note.message.clone().into());
        }
        Request::Guarded { uid, resource_version, .. } | Request::Outside { uid, resource_version, .. } => {
            set("uid", uid.to_string().into());
            set("resourceVersion", resource_version.to_string().into());
        }
        Request::Read { .. } => {}
    }
    fields
}

pub(crate) fn entry(
    effect: &Effect,
    outcome: &Outcome,
    round_trips: u32,
    took: Duration,
    table: &ResourceTable,
) -> Value {
    let mut fields = request_value(&effect.request, table);
    let owners: Vec<Value> = effect
        .reason
        .owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name,
                   "uid": owner.uid.to_string()})
        })
        .collect();
    let evidence: Vec<String> = effect.reason.evidence.iter().map(ToString::to_string).collect();
    let (code, text) = match outcome {
        Outcome::Refused { code, message } => (Some(*code), Some(message.as_str())),
        Outcome::Failed { message, .. } => (None, Some(message.as_str())),
        _ => (None, None),
    };
    let rest = json!({
        "time": now(),
        "effect": effect.id.0, "verdict": effect.reason.code(), "message": effect.reason.message(), "owners": owners,
        "evidence": evidence, "outcome": word(outcome), "requests": round_trips,
        "durationSeconds": took.as_secs_f64(),
    });
    if let Value::Object(rest) = rest {
        fields.extend(rest);
    }
    if let Some(code) = code.filter(|code| *code != 0) {
        fields.insert("code".into(), code.into());
    }
    if let Some(text) = text {
        fields.insert("failure".into(), text.into());
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    #[test]
    fn what_the_disk_does_not_take_is_counted() {
        // Writing to this device fails as a full disk does.
        let options = JournalOptions { file: "/dev/full".into(), largest_bytes: 1 << 20, older_files: 0 };
        let journal = Journal::open(options).unwrap();
        for number in 0..3 {
            journal.record(json!({"n": number}));
        }
        journal.close();
        assert_eq!(journal.dropped(), 3);
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let options = JournalOptions { file: file.clone(), largest_bytes: 20, older_files: 2 };
        let mut rotated = RotatedFile::open(options.clone()).unwrap();
        rotated.append((1..=8).map(|number| json!({"n": number}))).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("journal"), "{\"n\":7}\n{\"n\":8}\n");
        assert_eq!(read("journal.1"), "{\"n\":5}\n{\"n\":6}\n");
        assert_eq!(read("journal.2"), "{\"n\":3}\n{\"n\":4}\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        // Opened again, it continues where it was.
        let mut again = RotatedFile::open(options).unwrap();
        again.append(std::iter::once(json!({"n": 9}))).unwrap();
        assert_eq!(read("journal"), "{\"n\":9}\n");
        assert_eq!(read("journal.1"), "{\"n\":7}\n{\"n\":8}\n");
    }
}
