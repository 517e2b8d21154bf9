//! Failures to delete an object with its definition that have been recorded already: the server retries each of them, and an entry
//! every few seconds for thousands of objects would displace everything else in the journal.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::{SignedDuration, Timestamp};

/// Maximum number of objects whose failures are remembered; failures of further ones are not recorded.
const OBJECTS: usize = 10_000;
/// Maximum number of different failures of one object that are recorded, because messages may differ with each attempt.
const RECORDED_OF_OBJECT: u8 = 5;
/// Time without an attempt after which an object is gone, or its definition is kept now.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// Minimum time between two searches for entries to forget.
const PRUNE_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// Action on a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Differs from the last failure of its object.
    Record,
    /// Recorded already, or its object has had too many.
    Known,
    /// About one object too many, the first such failure for a while.
    FirstOfTooMany,
    /// About another object too many.
    TooMany,
}

struct Failure {
    message: u64,
    recorded: u8,
    tried: Timestamp,
}

/// The last failure of each object, by UID.
#[derive(Default)]
pub(super) struct Failures {
    by_object: BTreeMap<Box<str>, Failure>,
    pruned: Option<Timestamp>,
    is_full: bool,
}

impl Failures {
    /// Takes a failure to delete an object, and returns what to do about it.
    pub(super) fn failed(&mut self, uid: &str, message: &str, now: Timestamp) -> News {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let message = hasher.finish();
        if let Some(known) = self.by_object.get_mut(uid) {
            known.tried = now;
            if known.message == message || known.recorded >= RECORDED_OF_OBJECT {
                return News::Known;
            }
            known.message = message;
            known.recorded += 1;
            return News::Record;
        }
        if self.by_object.len() >= OBJECTS && !self.prune(now) {
            let was_full = std::mem::replace(&mut self.is_full, true);
            return if was_full { News::TooMany } else { News::FirstOfTooMany };
        }
        self.by_object.insert(uid.into(), Failure { message, recorded: 1, tried: now });
        News::Record
    }

    /// Forgets an object that was deleted.
    pub(super) fn succeeded(&mut self, uid: &str) {
        self.by_object.remove(uid);
    }

    /// Forgets objects without recent attempts, and returns whether there is room then.
    fn prune(&mut self, now: Timestamp) -> bool {
        if self.pruned.is_some_and(|pruned| now.duration_since(pruned) < PRUNE_PERIOD) {
            return false;
        }
        self.pruned = Some(now);
        self.by_object.retain(|_, failure| now.duration_since(failure.tried) < FORGOTTEN_AFTER);
        let has_room = self.by_object.len() < OBJECTS;
        self.is_full &= !has_room;
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    /// Attempts this many objects once, and counts each result.
    fn tried(failures: &mut Failures, objects: usize, now: Timestamp) -> [usize; 4] {
        let mut counts = [0; 4];
        for object in 0..objects {
            let news = failures.failed(&format!("u-{object}"), "refused", now);
            counts[news as usize] += 1;
        }
        counts
    }

    #[test]
    fn each_object_is_recorded_once_however_many_there_are() {
        let mut failures = Failures::default();
        assert_eq!(tried(&mut failures, OBJECTS, at(0)), [OBJECTS, 0, 0, 0]);
        assert_eq!(tried(&mut failures, OBJECTS, at(1)), [0, OBJECTS, 0, 0]);
        // With somewhat more objects than are remembered, nothing that was recorded is recorded again.
        assert_eq!(tried(&mut failures, OBJECTS + 500, at(2)), [0, OBJECTS, 1, 499]);
        assert_eq!(tried(&mut failures, OBJECTS + 500, at(600)), [0, OBJECTS, 0, 500]);
        // One is finally deleted, which makes room.
        failures.succeeded("u-7");
        assert_eq!(failures.failed("u-another", "refused", at(601)), News::Record);
    }

    #[test]
    fn what_is_tried_no_more_makes_room() {
        let mut failures = Failures::default();
        tried(&mut failures, OBJECTS, at(0));
        assert_eq!(failures.failed("u-new", "refused", at(1)), News::FirstOfTooMany);
        assert_eq!(failures.failed("u-new", "refused", at(2_000)), News::Record);
        assert_eq!(failures.by_object.len(), 1);
    }

    #[test]
    fn an_object_is_recorded_again_when_the_cause_changes_and_not_without_end() {
        let mut failures = Failures::default();
        let messages = ["a", "a", "b", "b", "a", "c", "d", "e", "f"];
        let recorded =
            messages.iter().filter(|message| failures.failed("u", message, at(0)) == News::Record).count();
        assert_eq!(recorded, usize::from(RECORDED_OF_OBJECT));
    }
}
