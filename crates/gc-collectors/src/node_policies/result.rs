//! The report of a node about a policy that selects it: an entry of the policy's status, and a part of the node's report.

use gc_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::images::plan::Removal;

/// Nodes whose results the status of a policy holds. Each has its entry, and its own record of managed fields, in one object that
/// every node reads.
pub const MOST_NODES: usize = 200;
/// Images that are named in a result.
const NAMED: usize = 5;
/// Longest message, and longest name of an image.
pub const LONGEST_TEXT: usize = 512;
/// A result is written again after this time, even if nothing has changed,
const RENEWED_AFTER_MILLISECONDS: i64 = 3_600_000;
/// so that one that is older than this is of a node that is gone, or whose agent is.
pub const FORGOTTEN_AFTER_MILLISECONDS: i64 = 24 * RENEWED_AFTER_MILLISECONDS;
/// A result is written again when its bytes have changed by this part.
const STEP_PERCENT: u64 = 5;

/// The role of a policy on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It shows what it would remove.
    #[default]
    DryRun,
    /// It is in force.
    Enforced,
    /// Another one is in force.
    Superseded,
    /// It cannot be in force here.
    Invalid,
}

impl State {
    /// Its name in the status.
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

/// The result of a policy on a node, as of its last pass over images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResult {
    /// The node.
    pub node: String,
    /// The role of the policy there.
    pub state: State,
    /// The generation of the policy.
    pub observed_generation: i64,
    /// When the pass was, as text of RFC 3339.
    pub time: String,
    /// Images that the policy would have removed in that pass, or has removed if it is in force.
    pub images: u64,
    /// Bytes that this would have freed, or has freed.
    pub bytes: u64,
    /// The first of the images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_images: Vec<String>,
    /// Why it is not in force, or why the pass failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How the configuration of the node's kubelet disagrees with the policy.
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

    /// Cuts off what is beyond the bounds of a status.
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

    /// Reports whether readers would learn nothing from this one that is not in `before`.
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
        // One that is not understood is not ours to remove.
        time(&self.time).is_some_and(|at| now.since(at) > FORGOTTEN_AFTER_MILLISECONDS)
    }
}

fn time(text: &str) -> Option<Timestamp> {
    Some(Timestamp(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()))
}
