//! State of a node in its report: the disks of its images, and the last pass of each collector.

use serde::{Deserialize, Serialize};

use crate::node_policies::result::NodeResult;

/// Maximum number of disks that are reported.
const DISKS: usize = 4;
/// Maximum number of collectors on a node.
const PASSES: usize = 4;
/// Maximum number of policies that are reported.
const POLICIES: usize = 8;
/// Maximum length of a path and of a collector's name.
const LONGEST_TEXT: usize = 256;
/// Change of a figure, in percent of the disk, at which a report is written again, because figures change with every write to a
/// disk.
const STEP_PERCENT: u64 = 5;

/// A filesystem that holds images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskState {
    /// Path of the runtime's images.
    pub path: String,
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Bytes that are in use or reserved, as the agent's thresholds count them.
    pub used_bytes: u64,
}

impl DiskState {
    /// Returns the usage in percent, rounded down; 0 for a disk without a size.
    #[must_use]
    pub fn usage_percent(&self) -> u64 {
        percent(self.used_bytes, self.capacity_bytes)
    }
}

/// Last pass of a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LastPass {
    /// `images` or `containers`.
    pub collector: String,
    /// Time at which it ended, in milliseconds since the epoch.
    pub at: i64,
    /// True if it failed.
    pub failed: bool,
}

/// Result of a policy on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicyReport {
    /// Name of the policy.
    pub policy: String,
    /// Result of the policy; the policy's status has the names of images.
    #[serde(flatten)]
    pub result: NodeResult,
}

/// Disks, images and passes of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeState {
    /// Disks with images.
    pub disks: Vec<DiskState>,
    /// Number of images; `None` if the runtime did not report it.
    pub images: Option<u64>,
    /// Their nominal size in bytes, as the runtime reports it.
    pub image_bytes: Option<u64>,
    /// Used bytes of the first disk that are neither images nor writable layers nor logs; `None` if unknown.
    pub unexplained_bytes: Option<u64>,
    /// Last pass of each collector.
    pub passes: Vec<LastPass>,
    /// Results of policies that select the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyReport>,
}

impl NodeState {
    /// Truncates everything beyond the bounds of a report.
    pub(super) fn bound(&mut self) {
        self.disks.retain(|disk| disk.path.len() <= LONGEST_TEXT);
        self.disks.truncate(DISKS);
        self.passes.retain(|pass| pass.collector.len() <= LONGEST_TEXT);
        self.passes.truncate(PASSES);
        self.policies.retain(|one| one.policy.len() <= LONGEST_TEXT);
        self.policies.truncate(POLICIES);
        for PolicyReport { result, .. } in &mut self.policies {
            result.first_images.clear();
            result.bound();
            for text in [&mut result.node, &mut result.time, &mut result.message, &mut result.kubelet] {
                let end = (0..=LONGEST_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                text.truncate(end.unwrap_or_default());
            }
        }
    }

    /// Returns the usage of the fullest disk in percent.
    #[must_use]
    pub fn fullest_percent(&self) -> u64 {
        self.disks.iter().map(DiskState::usage_percent).max().unwrap_or_default()
    }

    /// Reports whether a pass failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.passes.iter().any(|pass| pass.failed)
    }

    /// Reports whether this is news to readers of an earlier state: another disk, a pass that now fails or succeeds, or a
    /// sufficient change of a figure.
    pub(super) fn is_news_after(&self, before: &Self) -> bool {
        let shape = |state: &Self| {
            let disks = state.disks.iter().map(|disk| (disk.path.clone(), disk.capacity_bytes));
            let passes = state.passes.iter().map(|pass| (pass.collector.clone(), pass.failed));
            (disks.collect::<Vec<_>>(), passes.collect::<Vec<_>>(), state.unexplained_bytes.is_some())
        };
        if shape(self) != shape(before) || self.policies.len() != before.policies.len() {
            return true;
        }
        let mut policies = self.policies.iter().zip(&before.policies);
        if policies.any(|(now, then)| now.policy != then.policy || !now.result.adds_nothing_to(&then.result))
        {
            return true;
        }
        let capacity = self.disks.first().map(|disk| disk.capacity_bytes).unwrap_or_default();
        let unexplained =
            [self, before].map(|state| percent(state.unexplained_bytes.unwrap_or_default(), capacity));
        let used = self.disks.iter().zip(&before.disks);
        let used = used.map(|(now, then)| [now.usage_percent(), then.usage_percent()]);
        used.chain([unexplained]).any(|[now, then]| now.abs_diff(then) >= STEP_PERCENT)
    }
}

/// Returns a part in percent, rounded down; 0 if there is no whole. Anyone who can change the Lease can write any numbers.
fn percent(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    if whole == 0 { 0 } else { u64::try_from(percent).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(used: u64, unexplained: Option<u64>, failed: bool) -> NodeState {
        let disk = DiskState { path: "/var/lib/containerd".into(), capacity_bytes: 1_000, used_bytes: used };
        let pass = LastPass { collector: "images".into(), at: 7, failed };
        NodeState {
            disks: vec![disk],
            unexplained_bytes: unexplained,
            passes: vec![pass],
            ..NodeState::default()
        }
    }

    /// Figures change constantly, and a cluster of thousands of nodes must not have to store every change.
    #[test]
    fn small_changes_are_no_news() {
        let before = state(500, Some(100), false);
        let later = NodeState { images: Some(9), image_bytes: Some(9), ..state(549, Some(149), false) };
        let moved =
            NodeState { passes: vec![LastPass { at: 8, ..later.passes[0].clone() }], ..later.clone() };
        for (now, expected) in [
            (before.clone(), false),
            (later, false),
            (moved, false),
            (state(550, Some(100), false), true),
            (state(450, Some(100), false), true),
            (state(500, Some(150), false), true),
            (state(500, None, false), true),
            (state(500, Some(100), true), true),
            (NodeState::default(), true),
        ] {
            assert_eq!(now.is_news_after(&before), expected, "{now:?}");
        }
        assert!(!NodeState::default().is_news_after(&NodeState::default()));
    }

    #[test]
    fn a_state_is_bounded_and_takes_any_numbers() {
        let mut hostile = state(u64::MAX, Some(u64::MAX), false);
        hostile.disks[0].capacity_bytes = 0;
        assert_eq!(hostile.fullest_percent(), 0);
        hostile.disks[0].capacity_bytes = 1;
        assert_eq!(hostile.fullest_percent(), u64::MAX);
        assert!(!hostile.is_news_after(&hostile));
        let long = DiskState { path: "x".repeat(LONGEST_TEXT + 1), ..hostile.disks[0].clone() };
        hostile.disks = [vec![long], vec![hostile.disks[0].clone(); 9]].concat();
        hostile.passes = vec![hostile.passes[0].clone(); 9];
        hostile.bound();
        assert_eq!((hostile.disks.len(), hostile.passes.len()), (DISKS, PASSES));
        assert!(hostile.disks.iter().all(|disk| disk.path.len() <= LONGEST_TEXT));
    }

    #[test]
    fn what_a_policy_newly_says_is_news() {
        let report = |policy: &str, message: &str| PolicyReport {
            policy: policy.into(),
            result: NodeResult {
                time: "2027-01-01T00:00:00Z".into(),
                message: message.into(),
                ..NodeResult::default()
            },
        };
        let with =
            |policies: &[PolicyReport]| NodeState { policies: policies.to_vec(), ..state(500, None, false) };
        let before = with(&[report("a", ""), report("b", "")]);
        for (now, expected) in [
            (before.clone(), false),
            (with(&[report("a", ""), report("b", "broken")]), true),
            (with(&[report("a", ""), report("c", "")]), true),
            (with(&[report("a", "")]), true),
        ] {
            assert_eq!(now.is_news_after(&before), expected, "{now:?}");
        }
        assert_eq!(
            [state(1, None, false), state(1, None, true)].map(|state| state.has_failed()),
            [false, true]
        );
    }

    #[test]
    fn policies_with_long_names_are_left_out() {
        let report = |length: usize| PolicyReport { policy: "x".repeat(length), ..PolicyReport::default() };
        let mut long = NodeState {
            policies: vec![report(LONGEST_TEXT + 1), report(LONGEST_TEXT), report(1)],
            ..NodeState::default()
        };
        long.bound();
        assert_eq!(long.policies, [report(LONGEST_TEXT), report(1)]);
    }
}
