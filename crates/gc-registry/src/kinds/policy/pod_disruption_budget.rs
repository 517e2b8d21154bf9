//! Pod disruption budgets.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::conditions::conditions;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::workloads::{at_most_all, number_or_percent};
use crate::resource::Target;

pub(crate) struct PodDisruptionBudget;

impl Kind for PodDisruptionBudget {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        if spec.has("minAvailable") && spec.has("maxUnavailable") {
            report.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
        }
        for member in ["minAvailable", "maxUnavailable"] {
            number_or_percent(&spec.get(member), report);
            at_most_all(&spec.get(member), report);
        }
        selector(&spec.get("selector"), report);
        report.one_of_if_set(&spec.get("unhealthyPodEvictionPolicy"), &["AlwaysAllow", "IfHealthyBudget"]);
    }

    fn validate_status(&self, _: Target<'_>, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        conditions(&status.get("conditions"), report);
        for member in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            report.not_negative(&status.get(member));
        }
    }
}
