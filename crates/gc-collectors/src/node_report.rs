//! Report of a node's agent to its cluster: removals of the last hour, images that are due because of their age, and the state of
//! its disks and passes. The agent writes it as an annotation of a Lease; pages and terminals read it.

mod state;

use std::fmt;
use std::ops::{AddAssign, Sub};

use gc_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::images::space::BinaryBytes;
pub use state::{DiskState, LastPass, NodeState, PolicyReport};

/// Annotation that holds a report.
pub const ANNOTATION: &str = "kubegc.io/node-report";
/// Label of the Leases that have a report, and its value.
pub const LABEL: (&str, &str) = ("kubegc.io/report", "node");
/// Name of the collector of images in a report.
pub const COLLECTOR: &str = "node-images";
/// Name of the collector of containers, sandboxes and logs.
pub const COLLECTOR_OF_CONTAINERS: &str = "node-containers";
/// Code of the verdict on due images.
pub const IMAGE_UNUSED_TOO_LONG: &str = "ImageUnusedTooLong";
/// Period for which removals are reported, milliseconds.
pub const FREED_WITHIN_MILLISECONDS: i64 = 3_600_000;
/// Time ahead for which due images are reported, milliseconds.
pub const DUE_WITHIN_MILLISECONDS: i64 = 24 * 3_600_000;
/// Age at which an agent writes its report again even if nothing has changed,
pub const RENEWED_AFTER_MILLISECONDS: i64 = 3_600_000;
/// so that one older than this comes from an agent that no longer runs.
pub const SILENT_AFTER_MILLISECONDS: i64 = 2 * RENEWED_AFTER_MILLISECONDS;
/// Maximum number of due images that are named; all are counted.
pub const DUE_NAMED: usize = 20;
/// Maximum length of a report.
const LONGEST_REPORT: usize = 32 * 1024;
/// Maximum length of an image's name in a report.
const LONGEST_NAME: usize = 512;
/// Length of the periods by which removals are counted: an hour has twelve.
const SLOT_MILLISECONDS: i64 = 300_000;
/// Precision of reported times, so that a report does not change with the clock.
const MINUTE_MILLISECONDS: i64 = 60_000;

/// Removals by an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Tally {
    /// Images.
    pub images: u64,
    /// Bytes that became available on the image filesystems during the passes.
    pub freed_bytes: u64,
    /// Containers.
    pub containers: u64,
    /// Sandboxes.
    pub sandboxes: u64,
    /// Log directories.
    pub log_directories: u64,
    /// Dead links.
    pub links: u64,
}

impl Tally {
    fn each(&mut self, other: &Self, combine: fn(u64, u64) -> u64) {
        for (own, other) in [
            (&mut self.images, other.images),
            (&mut self.freed_bytes, other.freed_bytes),
            (&mut self.containers, other.containers),
            (&mut self.sandboxes, other.sandboxes),
            (&mut self.log_directories, other.log_directories),
            (&mut self.links, other.links),
        ] {
            *own = combine(*own, other);
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.each(&other, u64::saturating_add);
    }
}

impl Sub for Tally {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self.each(&other, u64::saturating_sub);
        self
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Removed {} images ({} freed), {} containers, {} sandboxes, {} log directories and {} dead links.",
            self.images,
            BinaryBytes(self.freed_bytes),
            self.containers,
            self.sandboxes,
            self.log_directories,
            self.links
        )
    }
}

/// Removals within five minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    at: i64,
    #[serde(flatten)]
    removed: Tally,
}

/// An image that will be removed because of its age if nothing uses it until then.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DueImage {
    /// Time of its removal, in milliseconds since the epoch.
    pub at: i64,
    /// Name of the image.
    pub name: String,
}

/// Report of an agent about its node. All times are in milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeReport {
    /// Time of writing.
    written: i64,
    /// Removals, in order.
    removed: Vec<Slot>,
    /// The images that are due first.
    due: Vec<DueImage>,
    /// Number of due images.
    due_total: usize,
    /// Disks, images and passes.
    state: NodeState,
}

impl NodeReport {
    /// Parses an annotation; `None` if it is not a report.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if text.len() > LONGEST_REPORT {
            return None;
        }
        // A structure could otherwise be read from an array of values, too.
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
        let mut report: Self = serde_json::from_value(fields.into()).ok()?;
        report.due.truncate(DUE_NAMED);
        report.due_total = report.due_total.max(report.due.len());
        report.state.bound();
        Some(report)
    }

    /// Adds the removals so far, and replaces the due images.
    pub fn observe(&mut self, now: Timestamp, removed: Tally, mut due: Vec<DueImage>) {
        self.removed.retain(|slot| is_recent(slot, now));
        if removed != Tally::default() {
            let at = now.0 - now.0.rem_euclid(SLOT_MILLISECONDS);
            match self.removed.last_mut().filter(|slot| slot.at == at) {
                Some(slot) => slot.removed += removed,
                None => self.removed.push(Slot { at, removed }),
            }
        }
        due.retain(|image| {
            image.at <= now.after(DUE_WITHIN_MILLISECONDS).0 && image.name.len() <= LONGEST_NAME
        });
        for image in &mut due {
            // An overdue image is removed in the next pass.
            image.at = image.at.max(now.0) / MINUTE_MILLISECONDS * MINUTE_MILLISECONDS;
        }
        due.sort();
        self.due_total = due.len();
        due.truncate(DUE_NAMED);
        self.due = due;
    }

    /// Replaces the state of the node.
    pub fn observe_state(&mut self, mut state: NodeState) {
        state.bound();
        self.state = state;
    }

    /// Returns the last reported state of the node.
    #[must_use]
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Reports whether readers would learn nothing from it that is not in `before`.
    #[must_use]
    pub fn adds_nothing_to(&self, before: &Self, now: Timestamp) -> bool {
        let recent = |report: &Self| -> Vec<Slot> {
            report.removed.iter().filter(|slot| is_recent(slot, now)).copied().collect()
        };
        // Images that are overdue now may have been due before.
        let due = |report: &Self| -> Vec<DueImage> {
            let soonest = now.0 / MINUTE_MILLISECONDS * MINUTE_MILLISECONDS;
            let clamped = |image: &DueImage| DueImage { at: image.at.max(soonest), ..image.clone() };
            let mut due: Vec<DueImage> = report.due.iter().map(clamped).collect();
            due.sort();
            due
        };
        now.0.saturating_sub(before.written) < RENEWED_AFTER_MILLISECONDS
            && recent(self) == recent(before)
            && (due(self), self.due_total) == (due(before), before.due_total)
            && !self.state.is_news_after(&before.state)
    }

    /// Returns the text of the annotation, and records when it was written.
    pub fn written(&mut self, now: Timestamp) -> String {
        self.written = now.0;
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns when it was written.
    #[must_use]
    pub fn written_at(&self) -> Timestamp {
        Timestamp(self.written)
    }

    /// Returns the removals of the last hour.
    #[must_use]
    pub fn removed(&self, now: Timestamp) -> Tally {
        let mut sum = Tally::default();
        for slot in self.removed.iter().filter(|slot| is_recent(slot, now)) {
            sum += slot.removed;
        }
        sum
    }

    /// Returns the images that are due first, and the number of due images. There are none if the agent no longer runs.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> (&[DueImage], usize) {
        if self.is_silent(now) { (&[], 0) } else { (&self.due, self.due_total) }
    }

    /// Reports whether its agent no longer runs.
    #[must_use]
    pub fn is_silent(&self, now: Timestamp) -> bool {
        now.0.saturating_sub(self.written) > SILENT_AFTER_MILLISECONDS
    }
}

/// Reports whether any of the slot's five minutes are within the last hour.
fn is_recent(slot: &Slot, now: Timestamp) -> bool {
    now.0.saturating_sub(slot.at) < FREED_WITHIN_MILLISECONDS + SLOT_MILLISECONDS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const MINUTE: i64 = MINUTE_MILLISECONDS;
    /// Divisible by an hour.
    const NOW: i64 = 1_800_000_000_000;

    fn at(minutes: i64) -> Timestamp {
        Timestamp(NOW + minutes * MINUTE)
    }

    fn images(images: u64) -> Tally {
        Tally { images, freed_bytes: images << 20, ..Tally::default() }
    }

    fn due(name: &str, minutes: i64) -> DueImage {
        DueImage { name: name.into(), at: at(minutes).0 }
    }

    #[test]
    fn removals_are_reported_for_an_hour() {
        let mut report = NodeReport::default();
        for (minutes, removed, expected) in [(0, 1, 1), (4, 2, 3), (5, 4, 7), (61, 8, 15), (66, 16, 28)] {
            report.observe(at(minutes), images(removed), Vec::new());
            assert_eq!(report.removed(at(minutes)), images(expected), "after {minutes} minutes");
        }
        for (minutes, expected) in [(69, 28), (70, 24), (125, 16), (130, 0)] {
            assert_eq!(report.removed(at(minutes)), images(expected), "after {minutes} minutes");
        }
        let mut busy = NodeReport::default();
        for minutes in 0..300 {
            busy.observe(at(minutes), images(1), Vec::new());
            assert!(busy.removed.len() <= 13, "after {minutes} minutes: {}", busy.removed.len());
        }
    }

    #[test]
    fn the_images_that_are_due_first_are_named() {
        let mut report = NodeReport::default();
        let many = (0..30).map(|number| due(&format!("image-{number}"), 100 + number));
        let others = [due("overdue", -500), due("tomorrow", 24 * 60), due("later", 24 * 60 + 1)];
        report.observe(at(0), Tally::default(), many.chain(others).collect());
        report.written(at(0));
        let (named, total) = report.due(at(0));
        assert_eq!((named.len(), total), (DUE_NAMED, 32));
        assert_eq!(named[..3], [due("overdue", 0), due("image-0", 100), due("image-1", 101)]);
        assert_eq!(report.due(at(120)).1, 32);
        assert_eq!(report.due(at(121)), (&[][..], 0), "the agent is gone");
        report.observe(at(0), Tally::default(), vec![due(&"x".repeat(LONGEST_NAME + 1), 1)]);
        assert_eq!(report.due(at(0)).1, 0);
    }

    /// A report is written if it contains news, and otherwise once an hour.
    #[test]
    fn a_report_that_says_nothing_new_is_not_written() {
        let mut before = NodeReport::default();
        before.observe(at(0), images(1), vec![due("overdue", -5), due("a", 30)]);
        before.written(at(0));
        let later = |minutes: i64, removed: u64, all: Vec<DueImage>| {
            let mut report = before.clone();
            report.observe(at(minutes), images(removed), all);
            report.adds_nothing_to(&before, at(minutes))
        };
        let same = || vec![due("overdue", -5), due("a", 30)];
        for (minutes, removed, all, expected) in [
            (1, 0, same(), true),
            (59, 0, same(), true),
            (60, 0, same(), false),
            (1, 1, same(), false),
            (1, 0, vec![due("a", 30)], false),
            (1, 0, vec![due("overdue", -5), due("a", 31)], false),
        ] {
            assert_eq!(later(minutes, removed, all.clone()), expected, "{minutes} {removed} {all:?}");
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut report = NodeReport::default();
        report.observe(at(0), images(3), vec![due("a", 30)]);
        let disk = DiskState { path: "/var/lib/containerd".into(), capacity_bytes: 100, used_bytes: 60 };
        let pass = LastPass { collector: "images".into(), at: NOW, failed: true };
        let state = NodeState {
            disks: vec![disk],
            unexplained_bytes: Some(7),
            passes: vec![pass],
            ..NodeState::default()
        };
        report.observe_state(state.clone());
        assert_eq!((report.state(), state.fullest_percent(), state.has_failed()), (&state, 60, true));
        let text = report.written(at(1));
        assert_eq!(NodeReport::read(&text), Some(report));
        for nonsense in ["", "[]", "{\"due\":1}", &" ".repeat(LONGEST_REPORT + 1)] {
            assert_eq!(NodeReport::read(nonsense), None, "{nonsense:.20}");
        }
        // Anyone who can change the Lease can write any numbers.
        for (written, is_silent) in [(i64::MIN, true), (i64::MAX, false)] {
            let hostile = serde_json::json!({"written": written, "dueTotal": usize::MAX,
                "due": [{"at": i64::MIN, "name": "a"}], "removed": [{"at": i64::MIN, "images": u64::MAX}]});
            let read = NodeReport::read(&hostile.to_string()).unwrap();
            assert_eq!((read.is_silent(at(0)), read.removed(at(0))), (is_silent, Tally::default()));
            assert_eq!(read.adds_nothing_to(&read, at(0)), !is_silent);
        }
        let named = vec![due("a", 1); 100];
        let many = serde_json::json!({"due": named, "dueTotal": 0}).to_string();
        let read = NodeReport::read(&many).unwrap();
        assert_eq!((read.due.len(), read.due_total), (DUE_NAMED, DUE_NAMED));
    }

    #[test]
    fn a_tally_is_what_was_removed_since_another_one() {
        let tally = |n: u64| Tally {
            images: n,
            freed_bytes: n << 20,
            containers: n + 1,
            sandboxes: n + 2,
            log_directories: n + 3,
            links: n + 4,
        };
        let passed = Tally {
            images: 2,
            freed_bytes: 2 << 20,
            containers: 2,
            sandboxes: 2,
            log_directories: 2,
            links: 2,
        };
        assert_eq!(tally(5) - tally(3), passed);
        assert_eq!(tally(3) - tally(5), Tally::default());
        assert_eq!(
            tally(5).to_string(),
            "Removed 5 images (5.0 MiB freed), 6 containers, 7 sandboxes, 8 log directories and 9 dead links."
        );
    }

    #[test]
    fn a_report_is_read_up_to_its_longest() {
        let mut report = NodeReport::default();
        let text = report.written(at(3));
        assert_eq!(report.written_at(), at(3));
        for (length, is_read) in
            [(LONGEST_REPORT, true), (LONGEST_REPORT + 1, false), (LONGEST_REPORT + 2, false)]
        {
            let padded = format!("{text:length$}");
            assert_eq!(NodeReport::read(&padded).is_some(), is_read, "{length}");
        }
    }
}
