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
mod tests;
