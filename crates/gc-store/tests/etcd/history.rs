//! A checker of histories. Clients record the begin and end of their operations; a watch delivers all changes with their revisions,
//! which are the order in which etcd performed the writes. The history is strictly serializable if every answer is correct at its
//! revision, and no operation has an older revision than one that had ended before it began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gc_store_api::{Change, KeyValue, Revision, StorageError};

/// Result of an operation.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A read of one key.
    Read { key: String, found: Option<KeyValue>, revision: Revision },
    /// A read of all keys.
    Listed { items: Vec<KeyValue>, revision: Revision },
    /// An acknowledged write; `value` is `None` for a deletion.
    Written { key: String, value: Option<String>, guard: Revision, revision: Revision },
    /// A write whose guard did not hold, with the state that caused the refusal.
    Refused { key: String, guard: Revision, present: Option<KeyValue> },
    /// A read without an answer.
    Unread(StorageError),
    /// A write without an answer: it may have been performed.
    Unknown { key: String, value: Option<String>, error: StorageError },
}

/// An operation of one client.
#[derive(Debug)]
pub(crate) struct Recorded {
    begun: Instant,
    ended: Instant,
    outcome: Outcome,
}

impl Recorded {
    fn revision(&self) -> Option<Revision> {
        match &self.outcome {
            Outcome::Read { revision, .. }
            | Outcome::Listed { revision, .. }
            | Outcome::Written { revision, .. } => Some(*revision),
            Outcome::Refused { .. } | Outcome::Unread(_) | Outcome::Unknown { .. } => None,
        }
    }
}

/// Operations of all clients.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Vec<Recorded>>);

/// Figures of a history.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) operations: usize,
    pub(crate) writes: usize,
    /// Errors of operations without an answer.
    pub(crate) failures: Vec<StorageError>,
    /// Duration of the slowest operation.
    #[allow(dead_code, reason = "printed")]
    pub(crate) slowest: Duration,
}

impl History {
    /// Performs and records an operation.
    pub(crate) fn record(&self, operation: impl FnOnce() -> Outcome) {
        let begun = Instant::now();
        let outcome = operation();
        let recorded = Recorded { begun, ended: Instant::now(), outcome };
        self.0.lock().unwrap().push(recorded);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Checks the history against all changes since an empty store.
    pub(crate) fn check(&self, changes: &[Change]) -> Figures {
        let recorded = self.0.lock().unwrap();
        assert!(changes.is_sorted_by(|one, next| one.revision < next.revision), "one write per revision");
        let log = Log::new(changes);
        check_writes(&recorded, changes);
        for operation in recorded.iter() {
            let is_correct = match &operation.outcome {
                Outcome::Read { key, found, revision } => log.at(key, *revision) == found.as_ref().map(facts),
                Outcome::Listed { items, revision } => {
                    log.all(*revision) == items.iter().map(|item| (&*item.key, facts(item))).collect()
                }
                Outcome::Written { .. } | Outcome::Unread(_) | Outcome::Unknown { .. } => true,
                Outcome::Refused { guard, present, .. } => {
                    present.as_ref().map_or(Revision(0), |item| item.mod_revision) != *guard
                }
            };
            assert!(is_correct, "not the state of its revision: {operation:?}");
        }
        check_times(&recorded, &log);
        let error = |operation: &Recorded| match &operation.outcome {
            Outcome::Unread(error) | Outcome::Unknown { error, .. } => Some(error.clone()),
            _ => None,
        };
        let took = recorded.iter().map(|operation| operation.ended - operation.begun);
        let is_write = |operation: &&Recorded| matches!(operation.outcome, Outcome::Written { .. });
        Figures {
            operations: recorded.len(),
            writes: recorded.iter().filter(is_write).count(),
            failures: recorded.iter().filter_map(error).collect(),
            slowest: took.max().unwrap_or_default(),
        }
    }
}

/// Properties of a stored value that must agree: its bytes and its revision.
type Facts<'a> = (&'a [u8], Revision);

fn facts(item: &KeyValue) -> Facts<'_> {
    (&item.value, item.mod_revision)
}

/// Changes of each key.
struct Log<'a>(BTreeMap<&'a str, Vec<&'a Change>>);

impl<'a> Log<'a> {
    fn new(changes: &'a [Change]) -> Self {
        let mut log: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
        for change in changes {
            log.entry(&change.key).or_default().push(change);
        }
        Self(log)
    }

    /// Returns the state of a key at a revision.
    fn at(&self, key: &str, revision: Revision) -> Option<Facts<'a>> {
        let changes = self.0.get(key)?;
        let last = changes[..changes.partition_point(|change| change.revision <= revision)].last()?;
        last.value.as_deref().map(|value| (value, last.revision))
    }

    fn all(&self, revision: Revision) -> BTreeMap<&'a str, Facts<'a>> {
        self.0.keys().filter_map(|key| Some((*key, self.at(key, revision)?))).collect()
    }

    /// Returns the last revision at which a key had this state; `None` if it still has it.
    fn until(&self, key: &str, present: Option<&KeyValue>, from: Revision) -> Option<Revision> {
        let since = present.map_or(from, |item| item.mod_revision);
        let changes = self.0.get(key)?;
        let next = changes.get(changes.partition_point(|change| change.revision <= since))?;
        Some(Revision(next.revision.0 - 1))
    }
}

/// Checks that every acknowledged write was performed once, on the state that it was conditional on, and that nothing else was,
/// except writes without an answer, at most once each.
fn check_writes(recorded: &[Recorded], changes: &[Change]) {
    let mut acknowledged = BTreeMap::new();
    let mut unknown = BTreeMap::new();
    for operation in recorded {
        match &operation.outcome {
            Outcome::Written { revision, .. } => {
                let other = acknowledged.insert(*revision, operation);
                assert!(
                    other.is_none(),
                    "two writes are acknowledged with one revision: {other:?} {operation:?}"
                );
            }
            Outcome::Unknown { key, value, .. } => {
                *unknown.entry((key.as_str(), value.as_deref())).or_insert(0_usize) += 1;
            }
            _ => {}
        }
    }
    let mut values = BTreeSet::new();
    for change in changes {
        let value = change.value.as_deref().map(|value| std::str::from_utf8(value).unwrap());
        assert!(value.is_none_or(|value| values.insert(value)), "performed twice: {change:?}");
        if let Some(operation) = acknowledged.remove(&change.revision) {
            let Outcome::Written { key, value: written, guard, .. } = &operation.outcome else { continue };
            let before = change.previous.as_ref().map_or(Revision(0), |before| before.mod_revision);
            let expected = (key.as_str(), written.as_deref(), *guard);
            assert_eq!((&*change.key, value, before), expected, "{operation:?}");
        } else {
            let left = unknown.get_mut(&(&*change.key, value)).filter(|left| **left > 0);
            *left.unwrap_or_else(|| panic!("no client wrote {change:?}")) -= 1;
        }
    }
    assert!(acknowledged.is_empty(), "acknowledged and lost: {acknowledged:?}");
}

/// Checks that no operation has an older revision than one that had ended before it began.
fn check_times(recorded: &[Recorded], log: &Log<'_>) {
    let mut ended: Vec<(Instant, Revision)> =
        recorded.iter().filter_map(|operation| Some((operation.ended, operation.revision()?))).collect();
    ended.sort();
    let mut newest = Revision(0);
    for (_, revision) in &mut ended {
        newest = newest.max(*revision);
        *revision = newest;
    }
    for operation in recorded {
        let before = ended.partition_point(|(end, _)| *end < operation.begun);
        let floor = before.checked_sub(1).map_or(Revision(0), |last| ended[last].1);
        let is_timely = match &operation.outcome {
            Outcome::Read { revision, .. } | Outcome::Listed { revision, .. } => *revision >= floor,
            Outcome::Written { revision, .. } => *revision > floor,
            Outcome::Refused { key, present, .. } => {
                log.until(key, present.as_ref(), floor).is_none_or(|until| until >= floor)
            }
            Outcome::Unread(_) | Outcome::Unknown { .. } => true,
        };
        assert!(is_timely, "older than {floor}, which was known before: {operation:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64, value: Option<&str>, previous: u64) -> Change {
        let previous = (previous > 0).then(|| item("?", previous));
        let value = value.map(|value| value.as_bytes().to_vec().into());
        Change { revision: Revision(revision), key: "k".into(), value, previous }
    }

    fn item(value: &str, revision: u64) -> KeyValue {
        let (create_revision, mod_revision) = (Revision(revision), Revision(revision));
        KeyValue { key: "k".into(), value: value.as_bytes().to_vec().into(), create_revision, mod_revision }
    }

    fn written(value: &str, guard: u64, revision: u64) -> Outcome {
        let value = Some(value.to_owned());
        Outcome::Written { key: "k".to_owned(), value, guard: Revision(guard), revision: Revision(revision) }
    }

    fn read(found: Option<KeyValue>, revision: u64) -> Outcome {
        Outcome::Read { key: "k".to_owned(), found, revision: Revision(revision) }
    }

    fn unknown(value: &str) -> Outcome {
        let error = StorageError::Unavailable(String::new());
        Outcome::Unknown { key: "k".to_owned(), value: Some(value.to_owned()), error }
    }

    /// Checks operations that follow each other.
    fn is_accepted(outcomes: Vec<Outcome>, changes: &[Change]) -> bool {
        let begin = Instant::now();
        let at = |step: usize| begin + Duration::from_secs(u64::try_from(step).unwrap());
        let recorded =
            |(number, outcome)| Recorded { begun: at(2 * number), ended: at(2 * number + 1), outcome };
        let history = History(Mutex::new(outcomes.into_iter().enumerate().map(recorded).collect()));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history.check(changes))).is_ok()
    }

    #[test]
    fn each_violation_is_found() {
        let changes = [change(2, Some("a"), 0), change(3, Some("b"), 2), change(4, None, 3)];
        let deleted = || Outcome::Written {
            key: "k".to_owned(),
            value: None,
            guard: Revision(3),
            revision: Revision(4),
        };
        let all = || vec![written("a", 0, 2), written("b", 2, 3), deleted()];
        let with = |more: Vec<Outcome>| all().into_iter().chain(more).collect::<Vec<_>>();
        let refused =
            |guard: u64, present| Outcome::Refused { key: "k".to_owned(), guard: Revision(guard), present };
        assert!(is_accepted(with(vec![read(None, 4)]), &changes));
        assert!(is_accepted(with(vec![refused(3, None)]), &changes));
        assert!(is_accepted(vec![written("a", 0, 2), unknown("b"), deleted()], &changes));
        for (violation, outcomes) in [
            ("a stale read", with(vec![read(Some(item("b", 3)), 3)])),
            ("a wrong value", with(vec![read(Some(item("b", 3)), 4)])),
            ("a lost write", with(vec![written("c", 0, 5)])),
            ("a write on another state", vec![written("a", 0, 2), written("b", 1, 3), deleted()]),
            ("a write of no client", vec![written("a", 0, 2), deleted()]),
            ("a stale refusal", with(vec![refused(2, Some(item("b", 3)))])),
            ("a refusal although the guard holds", with(vec![refused(0, None)])),
            ("a write before one that had ended", vec![written("b", 2, 3), written("a", 0, 2), deleted()]),
        ] {
            assert!(!is_accepted(outcomes, &changes), "{violation}");
        }
        let twice = [change(2, Some("a"), 0), change(3, None, 2), change(4, Some("a"), 0)];
        let removed =
            Outcome::Written { key: "k".to_owned(), value: None, guard: Revision(2), revision: Revision(3) };
        assert!(!is_accepted(vec![written("a", 0, 2), removed, unknown("a")], &twice), "performed twice");
    }
}
