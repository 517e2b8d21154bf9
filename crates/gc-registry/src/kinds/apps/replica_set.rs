//! Replica sets.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::workloads::{replicas_status, selected_replicas};
use crate::resource::Target;

pub(crate) struct ReplicaSet;

impl Kind for ReplicaSet {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.not_negative(&spec.get("replicas"));
        report.not_negative(&spec.get("minReadySeconds"));
        selected_replicas(&spec, "ReplicaSet", report);
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        self.validate(target, new, report);
        report.immutable(&new.get("spec").get("selector"), &old.get("spec").get("selector"));
    }

    fn validate_status(&self, _: Target<'_>, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        replicas_status(&new.get("status"), report);
        report.not_negative(&new.get("status").get("terminatingReplicas"));
    }
}
