//! The group policy.

mod pod_disruption_budget;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] =
    &[("v1", "poddisruptionbudgets", Rules::of::<pod_disruption_budget::PodDisruptionBudget>())];
