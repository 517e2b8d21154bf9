//! Replica sets.

use crate::kinds::access::at;
use crate::kinds::kind::prelude::*;
use crate::kinds::printers::shown_selector;
use crate::kinds::shared::workloads::{replicas_status, selected_replicas};

const COLUMNS: &[Heading] = &[
    H::NAME,
    H::integer("Desired", F("api.apps.v1.ReplicaSetSpec", "replicas")),
    H::integer("Current", F("api.apps.v1.ReplicaSetStatus", "replicas")),
    H::integer("Ready", F("api.apps.v1.ReplicaSetStatus", "readyReplicas")),
    H::AGE,
    H::wide("Containers", H::CONTAINERS),
    H::wide("Images", H::IMAGES),
    H::wide("Selector", F("api.apps.v1.ReplicaSetSpec", "selector")),
];

pub(crate) struct ReplicaSet;

impl Kind for ReplicaSet {
    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        row.replicas(shown_selector(at(row.object, &["spec", "selector"])))
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.not_negative(&spec.get("replicas"));
        report.not_negative(&spec.get("minReadySeconds"));
        selected_replicas(&spec, "ReplicaSet", report);
    }

    fn validate_update(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        self.validate(new, report);
        report.immutable(&new.get("spec").get("selector"), &old.get("spec").get("selector"));
    }

    fn validate_status(&self, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        replicas_status(&new.get("status"), report);
        report.not_negative(&new.get("status").get("terminatingReplicas"));
    }
}
