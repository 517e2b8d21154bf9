//! Replication controllers.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::pod_spec;
use crate::kinds::shared::workloads::{
    SELECTOR_MISMATCH, always_restarted, replicas_status, template_labels,
};
use crate::resource::Target;

pub(crate) struct ReplicationController;

impl Kind for ReplicationController {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.not_negative(&spec.get("minReadySeconds"));
        let selector = spec.get("selector");
        if selector.is_empty() {
            report.required(&selector, "");
        }
        report.not_negative(&spec.get("replicas"));
        let template = spec.get("template");
        if !template.is_set() {
            report.required(&template, "");
            return;
        }
        let labels = template_labels(&template);
        let selected = selector.entries().all(|(key, value)| labels.get(key) == Some(value.value()));
        if !selected {
            let metadata = template.get("metadata");
            report.invalid(&metadata.named("labels", labels), SELECTOR_MISMATCH);
        }
        pod_spec::template(&template, report);
        always_restarted(&template, "ReplicationController", report);
    }

    fn validate_status(&self, _: Target<'_>, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        replicas_status(&new.get("status"), report);
    }
}
