//! First sight and last use of each image (spec `node-gc.md`, section 3).

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{GoDuration, UnixNanoseconds};
use serde::{Deserialize, Serialize};

use super::{Image, ImageId};

/// Record of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Time of the first observation that listed it, in nanoseconds since the epoch.
    #[serde(rename = "firstSeen")]
    first_seen: i64,
    /// Time of the last observation that saw it in use; `None` if never.
    #[serde(rename = "lastUsed", skip_serializing_if = "Option::is_none", default)]
    last_used: Option<i64>,
}

impl ImageRecord {
    /// Creates the record of an image that was first seen then and never used.
    #[must_use]
    pub fn new(first_seen: UnixNanoseconds) -> Self {
        Self { first_seen: first_seen.0, last_used: None }
    }

    /// Returns when it was first seen.
    #[must_use]
    pub fn first_seen(&self) -> UnixNanoseconds {
        UnixNanoseconds(self.first_seen)
    }

    /// Returns when it was last seen in use.
    #[must_use]
    pub fn last_used(&self) -> Option<UnixNanoseconds> {
        self.last_used.map(UnixNanoseconds)
    }

    /// Returns since when nothing has used it: since its last use, or since it was first seen.
    #[must_use]
    pub fn idle_since(&self) -> UnixNanoseconds {
        UnixNanoseconds(self.last_used.map_or(self.first_seen, |used| used.max(self.first_seen)))
    }

    /// Returns the time since its last use. A time in the future (the clock was set back) counts as zero.
    #[must_use]
    pub fn idle(&self, now: UnixNanoseconds) -> GoDuration {
        now.since(self.idle_since())
    }

    /// Returns how long it has been on the node.
    #[must_use]
    pub fn age(&self, now: UnixNanoseconds) -> GoDuration {
        now.since(self.first_seen())
    }
}

/// Records of all listed images. Bounded by the runtime's listing: an image that is no longer listed loses its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageHistory {
    records: BTreeMap<ImageId, ImageRecord>,
}

impl ImageHistory {
    /// Restores saved records. Times after `now` (the clock was set back) count as now.
    #[must_use]
    pub fn restore(saved: impl IntoIterator<Item = (ImageId, ImageRecord)>, now: UnixNanoseconds) -> Self {
        let clamp = |record: ImageRecord| ImageRecord {
            first_seen: record.first_seen.min(now.0),
            last_used: record.last_used.map(|used| used.min(now.0)),
        };
        Self { records: saved.into_iter().map(|(id, record)| (id, clamp(record))).collect() }
    }

    /// Takes one complete observation. `detected` is a time before the runtime was queried, `now` one after it, so an image in use
    /// counts as used later than the pass began.
    pub fn observe(
        &mut self,
        images: &[Image],
        in_use: &BTreeSet<ImageId>,
        detected: UnixNanoseconds,
        now: UnixNanoseconds,
    ) {
        let mut records = BTreeMap::new();
        for image in images {
            let known = self.records.get(&image.id).or_else(|| records.get(&image.id)).copied();
            let mut record = known.unwrap_or(ImageRecord::new(detected));
            if in_use.contains(&image.id) {
                record.last_used = Some(record.last_used.map_or(now.0, |used| used.max(now.0)));
            }
            records.insert(image.id.clone(), record);
        }
        self.records = records;
    }

    /// Records a use of a listed image that an event or a later observation reported (a container started or ended between two
    /// observations). An image that had not been observed yet has existed since that use at the latest.
    pub fn record_use(&mut self, image: &ImageId, at: UnixNanoseconds) {
        let record = self.records.entry(image.clone()).or_insert_with(|| ImageRecord::new(at));
        record.last_used = Some(record.last_used.map_or(at.0, |used| used.max(at.0)));
    }

    /// Records that all of these are in use now.
    pub fn record_uses(&mut self, images: &BTreeSet<ImageId>, now: UnixNanoseconds) {
        for image in images {
            self.record_use(image, now);
        }
    }

    /// Forgets a removed image.
    pub fn forget(&mut self, image: &ImageId) {
        self.records.remove(image);
    }

    /// Returns the record of one image.
    #[must_use]
    pub fn get(&self, image: &ImageId) -> Option<&ImageRecord> {
        self.records.get(image)
    }

    /// Returns all records, by identifier.
    pub fn iter(&self) -> impl Iterator<Item = (&ImageId, &ImageRecord)> {
        self.records.iter()
    }

    /// Returns the number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Reports whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{id, image};
    use super::*;

    const fn at(time: i64) -> UnixNanoseconds {
        UnixNanoseconds(time)
    }

    fn observe(history: &mut ImageHistory, numbers: &[u64], used: &[u64], detected: i64, now: i64) {
        let images: Vec<_> = numbers.iter().map(|&n| image(n, 1)).collect();
        let used = used.iter().map(|&n| id(n)).collect();
        history.observe(&images, &used, at(detected), at(now));
    }

    fn dump(history: &ImageHistory) -> Vec<(ImageId, i64, Option<i64>)> {
        history.iter().map(|(i, r)| (i.clone(), r.first_seen, r.last_used)).collect()
    }

    /// T1, T3, T4, T6, T7 and T11 of the spec's catalogue, in one history.
    #[test]
    fn a_history_follows_what_is_listed_and_used() {
        let mut history = ImageHistory::default();
        observe(&mut history, &[0, 1, 2], &[1, 2], 0, 5);
        assert_eq!(dump(&history), [(id(0), 0, None), (id(1), 0, Some(5)), (id(2), 0, Some(5))], "T1");
        observe(&mut history, &[0, 1, 3], &[], 10, 15);
        assert_eq!(dump(&history), [(id(0), 0, None), (id(1), 0, Some(5)), (id(3), 10, None)], "T3, T6");
        observe(&mut history, &[0, 0, 1], &[0], 20, 25);
        assert_eq!(dump(&history), [(id(0), 0, Some(25)), (id(1), 0, Some(5))], "T4, T11");
        observe(&mut history, &[3], &[], 30, 35);
        assert_eq!(dump(&history), [(id(3), 30, None)], "T7: an image that was away is new");
        observe(&mut history, &[], &[], 40, 45);
        assert!(history.is_empty(), "T4");
    }

    /// T13: overlapping observations never move a use back.
    #[test]
    fn an_older_observation_does_not_move_a_use_back() {
        let mut history = ImageHistory::default();
        observe(&mut history, &[1], &[1], 0, 50);
        observe(&mut history, &[1], &[1], 0, 20);
        history.record_use(&id(1), at(30));
        assert_eq!(dump(&history), [(id(1), 0, Some(50))]);
    }

    /// T14 and T15: saved records survive, and future times count as now.
    #[test]
    fn a_restored_history_never_lies_in_the_future() {
        let saved = [
            (id(1), ImageRecord { first_seen: 3, last_used: Some(7) }),
            (id(2), ImageRecord { first_seen: 30, last_used: Some(99) }),
        ];
        let history = ImageHistory::restore(saved, at(10));
        assert_eq!(dump(&history), [(id(1), 3, Some(7)), (id(2), 10, Some(10))]);
        assert_eq!(history.get(&id(2)).map(|r| r.idle(at(10))), Some(GoDuration(0)));
    }

    /// T17: a use that only an event has reported counts.
    #[test]
    fn a_use_between_two_observations_counts() {
        let mut history = ImageHistory::default();
        observe(&mut history, &[1], &[], 0, 0);
        history.record_use(&id(1), at(33));
        history.record_use(&id(2), at(35));
        assert_eq!(dump(&history), [(id(1), 0, Some(33)), (id(2), 35, Some(35))]);
        observe(&mut history, &[1, 2], &[], 40, 45);
        assert_eq!(dump(&history), [(id(1), 0, Some(33)), (id(2), 35, Some(35))]);
    }

    /// T176: an image that was removed and pulled again is new, so the minimum age protects it again. T2: copies of one image for
    /// several runtime handlers share a record, so a use of one keeps all.
    #[test]
    fn an_image_that_comes_back_is_young_again() {
        let mut history = ImageHistory::default();
        observe(&mut history, &[1], &[1], 0, 5);
        history.forget(&id(1));
        observe(&mut history, &[1], &[], 60, 65);
        assert_eq!(history.get(&id(1)).map(|r| r.age(at(70))), Some(GoDuration(10)));
        let mut copy = image(1, 1);
        copy.runtime_handler = "h".into();
        history.observe(&[image(1, 1), copy], &[id(1)].into(), at(80), at(85));
        assert_eq!(dump(&history), [(id(1), 60, Some(85))]);
    }

    #[test]
    fn all_uses_of_a_moment_are_recorded() {
        let mut history = ImageHistory::default();
        assert_eq!((history.len(), history.is_empty()), (0, true));
        observe(&mut history, &[1, 2, 3], &[], 0, 0);
        history.record_uses(&[id(1), id(3)].into(), at(7));
        assert_eq!(dump(&history), [(id(1), 0, Some(7)), (id(2), 0, None), (id(3), 0, Some(7))]);
        assert_eq!((history.len(), history.is_empty()), (3, false));
    }
}
