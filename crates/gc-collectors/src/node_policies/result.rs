//! Report of a node about a policy that selects it: an entry of the policy's status, and a part of the node's report.

use gc_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::images::plan::Removal;

/// Maximum number of nodes with results in a policy's status. Each has an entry, and a record of managed fields, in one object that
/// every node reads.
pub const MOST_NODES: usize = 200;
/// Maximum number of images that are named in a result.
const NAMED: usize = 5;
/// Maximum length of a message and of an image's name.
pub const LONGEST_TEXT: usize = 512;
/// Age at which a result is written again even if nothing has changed,
const RENEWED_AFTER_MILLISECONDS: i64 = 3_600_000;
/// so that one older than this belongs to a node that is gone, or whose agent is.
pub const FORGOTTEN_AFTER_MILLISECONDS: i64 = 24 * RENEWED_AFTER_MILLISECONDS;
/// Change of its bytes, in percent, at which a result is written again.
const STEP_PERCENT: u64 = 5;

/// Role of the policy on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Reports what it would remove.
    #[default]
    DryRun,
    /// In force.
    Enforced,
    /// Another policy is in force.
    Superseded,
    /// Cannot be in force here.
    Invalid,
}

impl State {
    /// Returns its name in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DryRun => "DryRun",
            Self::Enforced => "Enforced",
            Self::Superseded => "Superseded",
            Self::Invalid => "Invalid",
        }
    }
}

/// Result of a policy on a node, as of its last pass over images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResult {
    /// Name of the node.
    pub node: String,
    /// Role of the policy there.
    pub state: State,
    /// Generation of the policy.
    pub observed_generation: i64,
    /// Time of the pass, in RFC 3339 format.
    pub time: String,
    /// Number of images that the policy would have removed in that pass, or has removed if it is in force.
    pub images: u64,
    /// Bytes that this would have freed, or has freed.
    pub bytes: u64,
    /// The first of the images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_images: Vec<String>,
    /// Reason why it is not in force, or why the pass failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Contradiction between the policy and the configuration of the node's kubelet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubelet: String,
}

impl NodeResult {
    /// Adds what a pass would remove.
    pub fn take(&mut self, removals: &[Removal]) {
        self.images = removals.len() as u64;
        self.bytes = removals.iter().map(|one| one.expected_freed_bytes).fold(0, u64::saturating_add);
        self.first_images = removals.iter().take(NAMED).map(|one| one.name.to_string()).collect();
    }

    /// Truncates everything beyond the bounds of a status.
    pub fn bound(&mut self) {
        self.first_images.truncate(NAMED);
        for text in self.first_images.iter_mut().chain([&mut self.message, &mut self.kubelet]) {
            let mut end = LONGEST_TEXT.min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
    }

    /// Reports whether readers would learn nothing from it that is not in `before`.
    #[must_use]
    pub fn adds_nothing_to(&self, before: &Self) -> bool {
        let shape = |one: &Self| {
            let texts = (one.message.clone(), one.kubelet.clone(), one.first_images.clone());
            (one.state, one.observed_generation, texts)
        };
        let (Some(now), Some(then)) = (time(&self.time), time(&before.time)) else { return false };
        let is_close = |now: u64, then: u64| {
            u128::from(now.abs_diff(then)) * 100 < u128::from(now.max(then).max(1)) * u128::from(STEP_PERCENT)
        };
        shape(self) == shape(before)
            && (self.images == 0) == (before.images == 0)
            && is_close(self.bytes, before.bytes)
            && is_close(self.images, before.images)
            && now.since(then) < RENEWED_AFTER_MILLISECONDS
    }

    /// Reports whether its node has not renewed it for so long that it may be removed.
    #[must_use]
    pub fn is_forgotten(&self, now: Timestamp) -> bool {
        // A time that cannot be parsed is not for kubegc to remove.
        time(&self.time).is_some_and(|at| now.since(at) > FORGOTTEN_AFTER_MILLISECONDS)
    }
}

fn time(text: &str) -> Option<Timestamp> {
    Some(Timestamp(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()))
}
