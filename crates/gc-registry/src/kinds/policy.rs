//! The group policy.

mod pod_disruption_budget;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] =
    &[("v1", "poddisruptionbudgets", Rules::of::<pod_disruption_budget::PodDisruptionBudget>())];
