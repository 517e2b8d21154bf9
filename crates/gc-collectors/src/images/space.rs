//! Bytes to free, and the condition to stop (spec `node-gc.md`, sections 5.4, 5.7, 6 and 7).
//!
//! The size that a runtime reports for an image is nominal: one reports compressed sizes, another unpacked ones, with shared layers
//! counted each time. Reported sizes therefore only determine the next batch; measurements decide whether enough is free.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::ImageId;
use super::plan::{Removal, Space};

/// One filesystem as the kernel reports it. Available means usable by an unprivileged process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// Path at which it was measured.
    pub path: Arc<str>,
    /// Total bytes.
    pub capacity_bytes: u64,
    /// Bytes free.
    pub available_bytes: u64,
    /// Total inodes; 0 if the filesystem does not count them.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
}

/// Usage at which the removal of images begins, and usage at which it ends. Percent; low < high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Removal begins at or above this usage.
    pub high_percent: u8,
    /// Removal ends at this usage.
    pub low_percent: u8,
}

/// A filesystem whose capacity is reported as zero, from which nothing can be concluded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid capacity 0 on image filesystem")]
pub struct InvalidCapacity {
    /// Path of the filesystem.
    pub path: Arc<str>,
}

/// Space that must be available on a filesystem before a run may stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The filesystem.
    pub path: Arc<str>,
    /// Bytes that must be available.
    pub available_bytes: u64,
    /// Inodes that must be free.
    pub inodes_free: u64,
}

/// Usage of one filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Usage of bytes in percent, rounded up.
    pub usage_percent: u8,
    /// Usage of inodes in percent, rounded up; 0 if the filesystem has none to count.
    pub inodes_usage_percent: u8,
    /// Goal, if a threshold was crossed and space is missing.
    pub goal: Option<Goal>,
}

/// Computes usage like upstream, without its overflow: the available share is rounded down, so usage is rounded up.
fn usage_percent(total: u64, available: u64) -> u8 {
    if total == 0 {
        return 0;
    }
    let available = u128::from(available.min(total));
    u8::try_from(100 - available * 100 / u128::from(total)).unwrap_or(100)
}

/// Returns ⌊total × (100 − low) / 100⌋.
fn wanted(total: u64, low_percent: u8) -> u64 {
    let share = u128::from(100_u8.saturating_sub(low_percent));
    u64::try_from(u128::from(total) * share / 100).unwrap_or(u64::MAX)
}

/// Compares a filesystem with the thresholds.
pub fn assess(filesystem: &Filesystem, thresholds: Thresholds) -> Result<Assessment, InvalidCapacity> {
    if filesystem.capacity_bytes == 0 {
        return Err(InvalidCapacity { path: filesystem.path.clone() });
    }
    let usage = usage_percent(filesystem.capacity_bytes, filesystem.available_bytes);
    let inodes_usage = usage_percent(filesystem.inodes, filesystem.inodes_free);
    let bytes_crossed = usage >= thresholds.high_percent;
    let inodes_crossed = filesystem.inodes > 0 && inodes_usage >= thresholds.high_percent;
    let goal = Goal {
        path: filesystem.path.clone(),
        available_bytes: if bytes_crossed {
            wanted(filesystem.capacity_bytes, thresholds.low_percent)
        } else {
            0
        },
        inodes_free: if inodes_crossed { wanted(filesystem.inodes, thresholds.low_percent) } else { 0 },
    };
    let goal = (!goal.is_met_by(filesystem)).then_some(goal);
    Ok(Assessment { usage_percent: usage, inodes_usage_percent: inodes_usage, goal })
}

impl Goal {
    /// Reports whether the measured filesystem meets the goal.
    #[must_use]
    pub fn is_met_by(&self, filesystem: &Filesystem) -> bool {
        self.missing_bytes(filesystem) == 0 && filesystem.inodes_free >= self.inodes_free
    }

    /// Returns the number of missing bytes.
    #[must_use]
    pub fn missing_bytes(&self, filesystem: &Filesystem) -> u64 {
        self.available_bytes.saturating_sub(filesystem.available_bytes.min(filesystem.capacity_bytes))
    }

    /// Returns the number of missing inodes.
    #[must_use]
    pub fn missing_inodes(&self, filesystem: &Filesystem) -> u64 {
        self.inodes_free.saturating_sub(filesystem.inodes_free)
    }
}

/// First goal that a filesystem did not meet before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceNeed {
    /// The filesystem.
    pub path: Arc<str>,
    /// Missing bytes.
    pub bytes: u64,
    /// Missing inodes.
    pub inodes: u64,
    /// Usage of inodes in percent.
    pub inodes_usage_percent: u8,
}

impl SpaceNeed {
    /// Compares goals with measured filesystems; `None` if all are met.
    #[must_use]
    pub fn of(goals: &[Goal], measured: &[Filesystem]) -> Option<Self> {
        let mut needs = goals.iter().filter_map(|goal| {
            let filesystem = measured.iter().find(|one| one.path == goal.path)?;
            Some(Self {
                path: goal.path.clone(),
                bytes: goal.missing_bytes(filesystem),
                inodes: goal.missing_inodes(filesystem),
                inodes_usage_percent: usage_percent(filesystem.inodes, filesystem.inodes_free),
            })
        });
        needs.find(|need| need.bytes > 0 || need.inodes > 0)
    }
}

impl fmt::Display for SpaceNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, bytes, inodes, inodes_usage_percent } = self;
        let inodes_text =
            format!("{inodes} inodes are needed on {path}, where {inodes_usage_percent} % are used");
        match (bytes, inodes) {
            (0, _) => f.write_str(&inodes_text),
            (_, 0) => write!(f, "space is needed on {path}"),
            _ => write!(f, "space is needed on {path}; {inodes_text}"),
        }
    }
}

/// Outcome of one removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalOutcome {
    /// The image was removed.
    Yes,
    /// The image was kept, because it has come into use, or has become pinned or protected since the plan.
    KeptAfterAll,
    /// The runtime refused or failed.
    Failed,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Remove these (in any order, in parallel), report each, and measure again.
    Remove(Vec<Removal>),
    /// The goals are met.
    Met,
    /// The goals are not met, but nothing removable is left.
    Exhausted,
}

/// Number of removals between two measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Limit until a removal has visibly freed something, since it is not known before that how much one really frees.
    pub first: usize,
    /// Limit after that.
    pub most: usize,
}

/// Assumed number of bytes that an image frees for each byte of its reported size, in thousandths, before any measurement:
/// compressed layers are stored beside the unpacked ones.
const PRIOR_RATIO: u64 = 4_000;
/// Minimum of the same ratio after measurements: no image frees less than its reported size, unless some of its layers are shared.
const LEAST_RATIO: u64 = 1_000;
/// Assumed number of inodes that an image frees, before any measurement.
const PRIOR_INODES: u64 = 1_000;
/// Amount by which a batch of images with known sizes may free more than planned, for files of the runtime itself.
const TOLERANCE_BYTES: u64 = 64 << 10;

/// A run towards measured goals. Pass it measurements; it returns batches until it is done.
///
/// Reported sizes may be a fifth of the real ones (compressed layers, stored beside the unpacked ones) or many times as large
/// (shared ones). Therefore the first batch is one image, and later ones contain only as many as cannot free more than is missing,
/// judging by the highest ratio of freed to reported bytes in any batch so far. Near the goal, images are removed one by one, so
/// that at most one image is removed beyond it.
///
/// If the runtime reports the sizes of layers, a batch is as large as these sizes allow, once a first image has shown that they are
/// right.
#[derive(Debug)]
pub struct SpaceRun {
    queue: VecDeque<Removal>,
    goals: Vec<Goal>,
    batches: Batches,
    /// The last batch, until its effect is measured.
    last: Option<Batch>,
    /// Highest ratio of freed to reported bytes in any batch, in thousandths, and highest number of inodes freed per image.
    ratio: u64,
    inodes: u64,
    /// True once a batch without shared layers has been measured.
    is_measured: bool,
    /// True if it is known for every candidate what its removal frees.
    is_known: bool,
    /// Highest ratio of freed to expected bytes in any batch, in thousandths; `None` before the first.
    known_ratio: Option<u64>,
    /// Sum of the reported sizes of the removed images.
    freed_book_bytes: u64,
    failures: Vec<ImageId>,
}

/// A batch whose effect is to be measured.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// Available space before the batch, on all filesystems with goals.
    available: u64,
    inodes_free: u64,
    /// Number of removed images, and the sums of their reported sizes without and with shared layers.
    removed: u64,
    whole: u64,
    partial: u64,
    /// Space that they should free, if known.
    known: Space,
}

impl Batch {
    /// Adds a removed image. If it leaves layers behind, it frees at most its size, and possibly any part of it.
    fn add(&mut self, removal: &Removal) {
        self.known = self.known.and(removal.freed_space.unwrap_or_default());
        let is_whole = removal.expected_freed_bytes >= removal.size_bytes;
        let sum = if is_whole { &mut self.whole } else { &mut self.partial };
        *sum = sum.saturating_add(removal.size_bytes);
        self.removed += 1;
    }
}

impl SpaceRun {
    /// Creates a run over candidates in their order.
    #[must_use]
    pub fn new(candidates: Vec<Removal>, goals: Vec<Goal>, batches: Batches) -> Self {
        let is_known = candidates.iter().all(|removal| removal.freed_space.is_some());
        Self {
            queue: candidates.into(),
            goals,
            batches,
            last: None,
            ratio: 0,
            inodes: 0,
            is_measured: false,
            is_known,
            known_ratio: None,
            freed_book_bytes: 0,
            failures: Vec::new(),
        }
    }

    /// Returns the next step, given every filesystem as measured now.
    pub fn next(&mut self, measured: &[Filesystem]) -> Step {
        let of = |goal: &Goal| measured.iter().find(|filesystem| filesystem.path == goal.path);
        let sum = |of_one: fn(&Filesystem) -> u64| {
            self.goals.iter().filter_map(of).fold(0, |sum: u64, one| sum.saturating_add(of_one(one)))
        };
        let (available, inodes_free) = (sum(|one| one.available_bytes), sum(|one| one.inodes_free));
        // A filesystem that could not be measured counts as not met, so the run ends when the candidates do.
        let unmet = self.goals.iter().filter(|g| !of(g).is_some_and(|f| g.is_met_by(f)));
        let missing = unmet.clone().filter_map(|g| of(g).map(|f| g.missing_bytes(f))).max().unwrap_or(0);
        let lacks = |g: &&Goal| of(g).map(|f| g.missing_inodes(f));
        let inodes_missing = unmet.clone().filter_map(|g| lacks(&g)).max().unwrap_or(0);
        let is_met = unmet.count() == 0;
        self.learn(available, inodes_free);
        if is_met {
            return Step::Met;
        }
        let has_freed = self.ratio > 0 || self.inodes > 0 || (self.is_known && self.known_ratio.is_some());
        let limit = if has_freed { self.batches.most } else { self.batches.first };
        let mut batch = Vec::new();
        let mut planned = Batch::default();
        while batch.len() < limit.max(1) {
            let Some(removal) = self.queue.front() else { break };
            if self.is_known && !batch.is_empty() && self.suffices(&planned, missing, inodes_missing) {
                break;
            }
            planned.add(removal);
            if !self.is_known && !batch.is_empty() && self.may_exceed(&planned, missing, inodes_missing) {
                break;
            }
            batch.extend(self.queue.pop_front());
        }
        if batch.is_empty() {
            return Step::Exhausted;
        }
        self.last = Some(Batch { available, inodes_free, ..Batch::default() });
        Step::Remove(batch)
    }

    /// Reports whether a batch may free more than is missing. The space that images without shared layers free varies with their
    /// compression, so each counts twice; before one of them has been measured, that is not known of the others either.
    fn may_exceed(&self, planned: &Batch, missing: u64, inodes_missing: u64) -> bool {
        let ratio = self.ratio.max(if self.is_measured { LEAST_RATIO } else { PRIOR_RATIO });
        let of_partial = if self.is_measured { 1 } else { 2 };
        let nominal = u128::from(planned.whole) * 2 + u128::from(planned.partial) * of_partial;
        let bytes = nominal * u128::from(ratio) / 1_000;
        let of_one = if self.inodes == 0 { PRIOR_INODES } else { self.inodes };
        let inodes = u128::from(planned.removed) * u128::from(of_one) * 2;
        bytes > u128::from(missing) && inodes > u128::from(inodes_missing)
    }

    /// Reports whether a batch of images with known sizes frees the missing space.
    fn suffices(&self, planned: &Batch, missing: u64, inodes_missing: u64) -> bool {
        let ratio = u128::from(self.known_ratio.unwrap_or(1_000));
        let bytes = u128::from(planned.known.bytes) * ratio / 1_000;
        bytes >= u128::from(missing) && planned.known.inodes >= inodes_missing
    }

    /// Takes the measured effect of the last batch.
    fn learn(&mut self, available: u64, inodes_free: u64) {
        let Some(last) = self.last.take().filter(|last| last.removed > 0) else { return };
        let freed = u128::from(available.saturating_sub(last.available));
        let nominal = u128::from(last.whole.saturating_add(last.partial)).max(1);
        self.ratio = self.ratio.max(u64::try_from(freed * 1_000 / nominal).unwrap_or(u64::MAX));
        self.inodes = self.inodes.max(inodes_free.saturating_sub(last.inodes_free).div_ceil(last.removed));
        self.is_measured |= last.partial == 0 && freed > 0;
        let surplus = freed.saturating_sub(u128::from(TOLERANCE_BYTES));
        let known = u128::from(last.known.bytes).max(1);
        let ratio = u64::try_from(surplus * 1_000 / known).unwrap_or(u64::MAX).max(1_000);
        self.known_ratio = Some(self.known_ratio.map_or(ratio, |before| before.max(ratio)));
    }

    /// Takes the outcome of one removal of the last batch.
    pub fn report(&mut self, removal: &Removal, outcome: RemovalOutcome) {
        match outcome {
            RemovalOutcome::Yes => {
                self.freed_book_bytes = self.freed_book_bytes.saturating_add(removal.size_bytes);
                if let Some(last) = &mut self.last {
                    last.add(removal);
                }
            }
            RemovalOutcome::KeptAfterAll => {}
            RemovalOutcome::Failed => self.failures.push(removal.id.clone()),
        }
    }

    /// Sum of the reported sizes of the removed images.
    #[must_use]
    pub fn freed_book_bytes(&self) -> u64 {
        self.freed_book_bytes
    }

    /// Returns the images that could not be removed.
    #[must_use]
    pub fn failures(&self) -> &[ImageId] {
        &self.failures
    }
}

/// Formats the message of the `FreeDiskSpaceFailed` event, which names inodes if they are short. Like upstream's message, whose
/// wording tools search for, it contains the sizes of the removed images as the runtime reports them; [`sizes_message`] says so.
#[must_use]
pub fn shortage_message(filesystem: &Filesystem, thresholds: Thresholds, nominal_bytes: u64) -> String {
    let bytes = usage_percent(filesystem.capacity_bytes, filesystem.available_bytes);
    let capacity = BinaryBytes(filesystem.capacity_bytes);
    let inodes = usage_percent(filesystem.inodes, filesystem.inodes_free);
    let used = if inodes > thresholds.low_percent && inodes > bytes {
        format!("{inodes}% of {} inodes used, {bytes}% of {capacity}", filesystem.inodes)
    } else {
        format!("{bytes}% of {capacity} used")
    };
    format!(
        "Insufficient free disk space on the node's image filesystem ({used}). Failed to free sufficient space \
         by deleting unused images (freed {nominal_bytes} bytes). Investigate disk usage, as it could be used by active \
         images, logs, volumes, or other data.",
    )
}

/// Describes nominal and measured bytes separately; empty if nothing was removed.
#[must_use]
pub fn sizes_message(freed_bytes: u64, nominal_bytes: u64) -> String {
    if nominal_bytes == 0 {
        return String::new();
    }
    let (freed, nominal) = (BinaryBytes(freed_bytes), BinaryBytes(nominal_bytes));
    format!(" By measurement {freed} were freed; the nominal size of these images is {nominal}.")
}

/// Formats bytes in human-readable form: `512 B`, `1.5 KiB`, …, `2.0 TiB` (spec, 17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryBytes(pub u64);

impl fmt::Display for BinaryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let steps = usize::try_from(self.0.ilog2() / 10).unwrap_or(1).clamp(1, units.len());
        #[allow(clippy::cast_precision_loss, reason = "one decimal is printed")]
        let value = self.0 as f64 / (1_u64 << (10 * steps)) as f64;
        write!(f, "{value:.1} {}", units[steps - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::super::layers::LayerUsers;
    use super::super::testing::{id, image, layer, removal};
    use super::super::{Image, LayerId};
    use super::*;
    use proptest::prelude::*;

    fn disk(capacity_bytes: u64, available_bytes: u64) -> Filesystem {
        Filesystem { path: "/images".into(), capacity_bytes, available_bytes, inodes: 0, inodes_free: 0 }
    }

    fn thresholds(high_percent: u8, low_percent: u8) -> Thresholds {
        Thresholds { high_percent, low_percent }
    }

    /// T36 to T39, T42, T44, T56, T57 and T156: usage, and the amount to free.
    #[test]
    fn thresholds_are_compared_as_upstream_does() {
        for (case, capacity, available, high, low, usage, to_free) in [
            ("T36", 1000, 600, 90, 80, 40, 0),
            ("T37", 1000, 50, 90, 80, 95, 150),
            ("T38 below", 1000, 160, 85, 80, 84, 0),
            ("T38", 1000, 159, 85, 80, 85, 41),
            ("T38", 1000, 150, 85, 80, 85, 50),
            ("T38", 1000, 155, 85, 80, 85, 45),
            ("T39", 999, 150, 85, 80, 85, 49),
            ("T42", 1000, 1200, 85, 80, 0, 0),
            ("T44 below", 1000, 10, 100, 80, 99, 0),
            ("T44", 1000, 9, 100, 80, 100, 191),
            ("T56: nothing to free is nothing to do", 1000, 155, 85, 85, 85, 0),
            ("T57", 200_000_000_000_000_000, 30_000_000_000_000_000, 85, 80, 85, 10_000_000_000_000_000),
        ] {
            let filesystem = disk(capacity, available);
            let found = assess(&filesystem, thresholds(high, low)).expect("capacity");
            assert_eq!(found.usage_percent, usage, "{case}: usage");
            let missing = found.goal.map_or(0, |goal| goal.missing_bytes(&filesystem));
            assert_eq!(missing, to_free, "{case}: to free");
        }
    }

    /// T41 and T59.
    #[test]
    fn a_capacity_of_zero_is_refused_and_inodes_count() {
        assert_eq!(assess(&disk(0, 0), thresholds(85, 80)), Err(InvalidCapacity { path: "/images".into() }));
        let full_of_files = Filesystem { inodes: 1000, inodes_free: 10, ..disk(1000, 900) };
        let found = assess(&full_of_files, thresholds(85, 80)).expect("capacity");
        let goal = Goal { path: "/images".into(), available_bytes: 0, inodes_free: 200 };
        assert_eq!(found, Assessment { usage_percent: 10, inodes_usage_percent: 99, goal: Some(goal) });
    }

    /// T54 and T58: measurements decide, and not reported sizes.
    #[test]
    fn a_run_stops_at_what_is_measured() {
        let goal = Goal { path: "/images".into(), available_bytes: 500, inodes_free: 0 };
        let candidates = (1..=6).map(|n| removal(n, 200)).collect();
        let mut run = SpaceRun::new(candidates, vec![goal], Batches { first: 1, most: 8 });
        let batch = |numbers: &[u64]| Step::Remove(numbers.iter().map(|&n| removal(n, 200)).collect());
        assert_eq!(run.next(&[disk(10_000, 100)]), batch(&[1]), "one shows what an image frees");
        run.report(&removal(1, 200), RemovalOutcome::Yes);
        assert_eq!(run.next(&[disk(10_000, 110)]), batch(&[2]), "a part of what the books say");
        run.report(&removal(2, 200), RemovalOutcome::Failed);
        assert_eq!(run.next(&[disk(10_000, 110)]), batch(&[3]), "what remains is less than two may free");
        run.report(&removal(3, 200), RemovalOutcome::KeptAfterAll);
        assert_eq!(run.next(&[disk(10_000, 110)]), batch(&[4]));
        run.report(&removal(4, 200), RemovalOutcome::Yes);
        assert_eq!(run.next(&[disk(10_000, 500)]), Step::Met, "T54: the fifth is not touched");
        assert_eq!((run.freed_book_bytes(), run.failures()), (400, &[id(2)][..]));
        assert_eq!(run.next(&[disk(10_000, 400)]), batch(&[5]));
        assert_eq!(run.next(&[disk(10_000, 400)]), batch(&[6]));
        assert_eq!(run.next(&[disk(10_000, 400)]), Step::Exhausted);
    }

    /// Freed space may show only later (btrfs, ZFS, a snapshotter that removes asynchronously); no batch grows until then.
    #[test]
    fn batches_grow_only_by_what_they_freed() {
        let goal = || vec![Goal { path: "/images".into(), available_bytes: 1_000_000, inodes_free: 0 }];
        let candidates = || (1..=200).map(|n| removal(n, 100)).collect::<Vec<_>>();
        let sizes = |freed: u64| {
            let mut run = SpaceRun::new(candidates(), goal(), Batches { first: 1, most: 64 });
            let (mut available, mut sizes) = (0, Vec::new());
            while let Step::Remove(batch) = run.next(&[disk(2_000_000, available)]) {
                for removal in &batch {
                    run.report(removal, RemovalOutcome::Yes);
                }
                available += freed * batch.len() as u64;
                sizes.push(batch.len());
            }
            sizes
        };
        assert_eq!(sizes(0), [1; 200]);
        assert_eq!(sizes(100), [1, 64, 64, 64, 7]);
        // If only inodes are short, a batch has as many images as the last ones have shown to be enough.
        let goal = vec![Goal { path: "/images".into(), available_bytes: 0, inodes_free: 1_000 }];
        let mut run = SpaceRun::new(candidates(), goal, Batches { first: 1, most: 64 });
        let (mut inodes_free, mut sizes) = (0, Vec::new());
        while let Step::Remove(batch) =
            run.next(&[Filesystem { inodes: 10_000, inodes_free, ..disk(1_000, 500) }])
        {
            for removal in &batch {
                run.report(removal, RemovalOutcome::Yes);
            }
            inodes_free += 10 * batch.len() as u64;
            sizes.push(batch.len());
        }
        assert_eq!(sizes.iter().sum::<usize>(), 100, "no more than needed: {sizes:?}");
        assert!(sizes.len() < 12, "{sizes:?}");
    }

    /// T55 and T133: without candidates the shortage is reported, and every filesystem with a goal counts.
    #[test]
    fn every_goal_counts() {
        let goals = |wanted: [u64; 2]| -> Vec<Goal> {
            let of = |(path, available_bytes): (&str, u64)| Goal {
                path: path.into(),
                available_bytes,
                inodes_free: 0,
            };
            ["/images", "/more"].into_iter().zip(wanted).map(of).collect()
        };
        let more = Filesystem { path: "/more".into(), ..disk(1000, 100) };
        let batches = Batches { first: 8, most: 8 };
        assert_eq!(
            SpaceRun::new(vec![], goals([500, 0]), batches).next(&[disk(1000, 100), more.clone()]),
            Step::Exhausted
        );
        let mut run = SpaceRun::new(vec![removal(1, 50)], goals([100, 150]), batches);
        assert_eq!(run.next(&[disk(1000, 100), more.clone()]), Step::Remove(vec![removal(1, 50)]));
        let unmeasured = SpaceRun::new(vec![], goals([100, 100]), batches).next(&[disk(1000, 100)]);
        assert_eq!(unmeasured, Step::Exhausted, "what cannot be measured is not met");
        let both = [disk(1000, 100), Filesystem { available_bytes: 150, ..more }];
        assert_eq!(run.next(&both), Step::Met);
    }

    /// Images that leave layers behind were the only ones that were measured, and the next of them are small, but free all of their
    /// layers: six times their reported size. One alone reaches the goal.
    #[test]
    fn images_with_shared_layers_are_removed_one_by_one_until_a_whole_one_is_measured() {
        let shared =
            |number: u64, size: u64| Removal { expected_freed_bytes: size / 2, ..removal(number, size) };
        let candidates = vec![shared(1, 100), shared(2, 100), shared(3, 50)];
        let goal = Goal { path: "/images".into(), available_bytes: 700, inodes_free: 0 };
        let mut run = SpaceRun::new(candidates, vec![goal], Batches { first: 1, most: 8 });
        assert_eq!(run.next(&[disk(10_000, 0)]), Step::Remove(vec![shared(1, 100)]));
        run.report(&shared(1, 100), RemovalOutcome::Yes);
        assert_eq!(run.next(&[disk(10_000, 100)]), Step::Remove(vec![shared(2, 100)]));
        run.report(&shared(2, 100), RemovalOutcome::Yes);
        assert_eq!(run.next(&[disk(10_000, 700)]), Step::Met);
    }

    /// T166.
    #[test]
    fn bytes_read_as_upstream_prints_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1024.0 KiB"),
            (1_048_576, "1.0 MiB"),
            (10 << 30, "10.0 GiB"),
            (3 << 40, "3.0 TiB"),
            (5000 << 40, "5000.0 TiB"),
            (5 << 50, "5120.0 TiB"),
        ] {
            assert_eq!(BinaryBytes(bytes).to_string(), text);
        }
    }

    /// T43: the two parts of the message that tools search for.
    #[test]
    fn the_shortage_names_usage_and_what_was_freed() {
        let capacity = 10 << 30;
        let text = shortage_message(&disk(capacity, capacity / 20), thresholds(85, 80), 524_288_000);
        assert!(
            text.contains("(95% of 10.0 GiB used)") && text.contains("(freed 524288000 bytes)"),
            "{text}"
        );
        let short = Filesystem { inodes: 1000, inodes_free: 90, ..disk(capacity, capacity / 100 * 77) };
        let text = shortage_message(&short, thresholds(85, 80), 5);
        assert!(text.contains("(91% of 1000 inodes used, 24% of 10.0 GiB)"), "{text}");
        assert_eq!(sizes_message(5, 0), "");
        let text = sizes_message(5, 4);
        assert_eq!(text, " By measurement 5 B were freed; the nominal size of these images is 4 B.");
    }

    proptest! {
        /// A run frees at least its goal, or removes everything removable; and it removes at most one image beyond the goal,
        /// although layers are shared and each image frees several times its reported size, or a part of it.
        #[test]
        fn a_run_reaches_its_goal_or_takes_everything(
            layers in prop::collection::vec(1_u64..1_000, 1..12),
            images in prop::collection::vec(prop::collection::btree_set(0_usize..12, 1..6), 0..40),
            wanted in 0_u64..20_000, most in 1_usize..65, truth in 1_u64..7,
        ) {
            let size = |layer: usize| layers.get(layer).copied().unwrap_or(50);
            // Each also has a layer of its own, with a size different from the others.
            let images: Vec<Image> = images
                .iter()
                .enumerate()
                .map(|(n, shared)| Image {
                    layers: shared.iter().map(|one| layer(*one as u64)).chain([layer(100 + n as u64)]).collect(),
                    ..image(n as u64, shared.iter().map(|one| size(*one)).sum::<u64>() + n as u64 * 7)
                })
                .collect();
            let real = |layer_id: &LayerId| {
                let known = (0..12).find(|one| layer(*one) == *layer_id);
                let own = (0..40_u64).find(|n| layer(100 + n) == *layer_id).unwrap_or_default() * 7;
                truth * known.map_or(own, |one| size(usize::try_from(one).unwrap_or_default()))
            };
            let mut users = LayerUsers::of(images.iter());
            let candidates: Vec<Removal> = images
                .iter()
                .map(|image| Removal {
                    id: image.id.clone(),
                    expected_freed_bytes: users.take(image),
                    ..removal(0, image.size_bytes)
                })
                .collect();
            let goal = Goal { path: "/images".into(), available_bytes: wanted, inodes_free: 0 };
            let mut run = SpaceRun::new(candidates, vec![goal], Batches { first: 1, most });
            let (mut available, mut gone, mut before_last) = (0, 0, 0);
            loop {
                match run.next(&[disk(100_000_000, available)]) {
                    Step::Remove(batch) => {
                        prop_assert!(batch.len() <= most);
                        for one in &batch {
                            before_last = available;
                            let (image, left) = (&images[gone], &images[gone + 1..]);
                            let last = image.layers.iter().filter(|one| !left.iter().any(|other| other.layers.contains(one)));
                            available += last.map(real).sum::<u64>();
                            run.report(one, RemovalOutcome::Yes);
                            gone += 1;
                        }
                    }
                    Step::Met => {
                        prop_assert!(available >= wanted && (gone == 0 || before_last < wanted));
                        break;
                    }
                    Step::Exhausted => { prop_assert!(available < wanted && gone == images.len()); break; }
                }
            }
        }
    }
}
