//! Replication controllers.

use crate::kinds::access::at;
use crate::kinds::kind::prelude::*;
use crate::kinds::printers::shown_labels;
use crate::kinds::shared::pod_spec;
use crate::kinds::shared::workloads::{
    SELECTOR_MISMATCH, always_restarted, replicas_status, template_labels,
};

const COLUMNS: &[Heading] = &[
    H::NAME,
    H::integer("Desired", F("api.core.v1.ReplicationControllerSpec", "replicas")),
    H::integer("Current", F("api.core.v1.ReplicationControllerStatus", "replicas")),
    H::integer("Ready", F("api.core.v1.ReplicationControllerStatus", "readyReplicas")),
    H::AGE,
    H::wide("Containers", H::CONTAINERS),
    H::wide("Images", H::IMAGES),
    H::wide("Selector", F("api.core.v1.ReplicationControllerSpec", "selector")),
];

pub(crate) struct ReplicationController;

impl Kind for ReplicationController {
    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        row.replicas(shown_labels(at(row.object, &["spec", "selector"])))
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
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

    fn validate_status(&self, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        replicas_status(&new.get("status"), report);
    }
}
