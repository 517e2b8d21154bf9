//! Replica sets.

use crate::kinds::prelude::*;
use crate::kinds::shared::pod_defaults::template;
use crate::kinds::shared::workloads::{replicas_status, selected_replicas};

pub(crate) struct ReplicaSet;

impl Kind for ReplicaSet {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["spec", "template"]);
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer("Desired", F("api.apps.v1.ReplicaSetSpec", "replicas")),
        H::integer("Current", F("api.apps.v1.ReplicaSetStatus", "replicas")),
        H::integer("Ready", F("api.apps.v1.ReplicaSetStatus", "readyReplicas")),
        H::AGE,
        H::wide("Containers", H::CONTAINERS),
        H::wide("Images", H::IMAGES),
        H::wide("Selector", F("api.apps.v1.ReplicaSetSpec", "selector")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        row.replicas(shown_selector(at(row.object, &["spec", "selector"])))
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            fill_absent(spec, "replicas", 1);
            template(spec, "template");
        }
        if let Some(status) = child(members, "status") {
            fill_absent(status, "replicas", 0);
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        warnings::name_of_pods(new, old, texts);
        warnings::template(&["spec", "template"], new, old, texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.not_negative(&spec.get("replicas"));
        report.not_negative(&spec.get("minReadySeconds"));
        selected_replicas(&spec, "ReplicaSet", report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        report.immutable(&new.get("spec").get("selector"), &old.get("spec").get("selector"));
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        replicas_status(&new.get("status"), report);
        report.not_negative(&new.get("status").get("terminatingReplicas"));
    }
}
