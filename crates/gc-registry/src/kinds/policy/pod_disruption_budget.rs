//! Pod disruption budgets.

use crate::kinds::prelude::*;
use crate::kinds::shared::conditions::conditions;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::workloads::{at_most_all, number_or_percent};

pub(crate) struct PodDisruptionBudget;

impl Kind for PodDisruptionBudget {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata::LAST;
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Min Available", T("The minimum number of pods that must be available.")),
        H::text("Max Unavailable", T("The maximum number of pods that may be unavailable.")),
        H::integer("Allowed Disruptions", T("Calculated number of pods that may be disrupted at this time.")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let bound = |key: &str| int_or_string(at(row.object, &["spec", key])).unwrap_or_else(|| "N/A".into());
        vec![
            row.name(),
            bound("minAvailable").into(),
            bound("maxUnavailable").into(),
            row.number(&["status", "disruptionsAllowed"]).into(),
            row.age(),
        ]
    }

    fn defaults(members: &mut Members) {
        if let Some(status) = child(members, "status") {
            for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                fill_absent(status, key, 0);
            }
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
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

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        conditions(&status.get("conditions"), report);
        for member in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            report.not_negative(&status.get(member));
        }
    }
}
