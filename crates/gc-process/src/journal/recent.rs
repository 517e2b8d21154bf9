//! The newest entries in memory, for clients that follow the journal and for a journal without a file.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

/// Maximum number of entries that are kept in addition to a file.
pub(super) const KEPT_ENTRIES: usize = 4_096;
/// Maximum total size of their text, in bytes.
const KEPT_BYTES: usize = 4 << 20;
/// Factor by which these bounds grow if there is no file.
const KEPT_WITHOUT_FILE: usize = 4;

#[derive(Debug)]
struct Line {
    number: u64,
    text: Arc<str>,
    /// True if the file has the entry.
    is_written: bool,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Number of entries that were dropped to make room.
    dropped: u64,
    /// Number of those that are in no file.
    lost: u64,
    last_number: u64,
}

impl Ring {
    fn end(&self) -> u64 {
        self.dropped.saturating_add(u64::try_from(self.lines.len()).unwrap_or(u64::MAX))
    }
}

/// A ring buffer of entries. A reader only needs its position in it.
#[derive(Debug)]
pub(super) struct Recent {
    ring: Mutex<Ring>,
    /// Bounds of the buffer: the number of entries, and the bytes of their text.
    kept: (usize, usize),
    /// Position after the newest entry.
    end: watch::Sender<u64>,
}

/// Entries that a reader has not seen.
pub(super) struct Unread {
    /// Entries, oldest first.
    pub(super) lines: Vec<Arc<str>>,
    /// Number of older entries that are no longer kept.
    pub(super) lost: u64,
    /// Position to continue from.
    pub(super) next: u64,
}

impl Default for Recent {
    fn default() -> Self {
        Self { ring: Mutex::default(), kept: (KEPT_ENTRIES, KEPT_BYTES), end: watch::Sender::new(0) }
    }
}

impl Recent {
    /// Creates a buffer that keeps more entries because no file has them.
    pub(super) fn without_file() -> Self {
        let kept = (KEPT_ENTRIES * KEPT_WITHOUT_FILE, KEPT_BYTES * KEPT_WITHOUT_FILE);
        Self { kept, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes entries and gives each its number: microseconds since 1970, or more if several come at once. Returns their lines.
    pub(super) fn push(&self, entries: impl Iterator<Item = Value>) -> Vec<Arc<str>> {
        let now = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default();
        let mut ring = self.lock();
        let mut lines = Vec::new();
        for mut entry in entries {
            let number = now.max(ring.last_number.saturating_add(1));
            ring.last_number = number;
            entry["number"] = number.into();
            let text: Arc<str> = entry.to_string().into();
            lines.push(Arc::clone(&text));
            ring.bytes += text.len();
            ring.lines.push_back(Line { number, text, is_written: false });
            let (entries, bytes) = self.kept;
            while ring.lines.len() > 1 && (ring.lines.len() > entries || ring.bytes > bytes) {
                let Some(line) = ring.lines.pop_front() else { break };
                ring.bytes -= line.text.len();
                ring.dropped += 1;
                ring.lost += u64::from(!line.is_written);
            }
        }
        let end = ring.end();
        drop(ring);
        self.end.send_replace(end);
        lines
    }

    /// Notes that the file has the newest entries.
    pub(super) fn wrote(&self, number_of_entries: usize) {
        self.lock().lines.iter_mut().rev().take(number_of_entries).for_each(|line| line.is_written = true);
    }

    /// Returns the number of entries that are no longer kept anywhere.
    pub(super) fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Returns the entries that are in no file.
    pub(super) fn unwritten(&self) -> Vec<Arc<str>> {
        let ring = self.lock();
        ring.lines.iter().filter(|line| !line.is_written).map(|line| Arc::clone(&line.text)).collect()
    }

    /// Returns a receiver that changes whenever there is a new entry.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Returns the position of the first entry after the one with this number; without a number, the position after the newest
    /// entry.
    pub(super) fn position(&self, after: Option<u64>) -> u64 {
        let ring = self.lock();
        match after {
            None => ring.end(),
            Some(number) => {
                let seen = ring.lines.partition_point(|line| line.number <= number);
                ring.dropped.saturating_add(u64::try_from(seen).unwrap_or(u64::MAX))
            }
        }
    }

    /// Returns the entries from this position on.
    pub(super) fn since(&self, position: u64) -> Unread {
        let ring = self.lock();
        let skip = usize::try_from(position.saturating_sub(ring.dropped)).unwrap_or(usize::MAX);
        Unread {
            lines: ring.lines.iter().skip(skip).map(|line| Arc::clone(&line.text)).collect(),
            lost: ring.dropped.saturating_sub(position),
            next: ring.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use serde_json::json;

    use super::*;

    fn names(lines: &[Arc<str>]) -> Vec<u64> {
        lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["n"].as_u64().unwrap()).collect()
    }

    #[test]
    fn the_newest_entries_are_kept_in_order() {
        let recent = Recent::default();
        let count = u64::try_from(KEPT_ENTRIES).unwrap();
        let pushed = recent.push((1..=count + 2).map(|number| json!({ "n": number })));
        let all = recent.since(0);
        assert_eq!((all.lines.len(), all.lost, all.next), (KEPT_ENTRIES, 2, count + 2));
        assert_eq!((names(&all.lines)[0], *recent.changes().borrow()), (3, count + 2));
        let number =
            |line: &Arc<str>| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap();
        let numbers: Vec<u64> = pushed.iter().map(number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        // A number identifies a reader's position, even one that is no longer in the buffer.
        for (after, expected) in
            [(Some(numbers[numbers.len() - 2]), vec![count + 2]), (Some(u64::MAX), vec![]), (None, vec![])]
        {
            assert_eq!(names(&recent.since(recent.position(after)).lines), expected, "{after:?}");
        }
        assert_eq!(recent.since(recent.position(Some(0))).lines.len(), KEPT_ENTRIES);
    }

    #[test]
    fn large_entries_push_out_more_of_the_others() {
        let recent = Recent::default();
        let large = "x".repeat(KEPT_BYTES / 2);
        for number in 1..=4 {
            recent.push(std::iter::once(json!({"n": number, "message": large})));
        }
        assert_eq!(names(&recent.since(0).lines), [4]);
        // An entry that exceeds the bound by itself is still delivered.
        recent.push(std::iter::once(json!({"n": 5, "message": large.repeat(3)})));
        assert_eq!(names(&recent.since(0).lines), [5]);
    }

    #[test]
    fn what_the_file_does_not_have_is_known() {
        let recent = Recent::default();
        recent.push([json!({"n": 1}), json!({"n": 2})].into_iter());
        recent.wrote(2);
        recent.push(std::iter::once(json!({"n": 3})));
        recent.push(std::iter::once(json!({"n": 4})));
        recent.wrote(1);
        assert_eq!(names(&recent.unwritten()), [3]);
    }
}
