//! Deployments.

use crate::kinds::prelude::*;
use crate::kinds::shared::pod_defaults::{rolling, template};
use crate::kinds::shared::selector_text::label_selector_text;
use crate::kinds::shared::workloads::{
    MORE_THAN_REPLICAS, at_most_all, is_zero, not_decremented, number_or_percent, selected_replicas,
};

pub(crate) struct Deployment;

impl Kind for Deployment {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Counts(&[&["spec"], &["metadata", "annotations"]]);
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["spec", "template"]);
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Ready", T("Number of the pod with ready state")),
        H::text("Up-to-date", F("api.apps.v1.DeploymentStatus", "updatedReplicas")),
        H::text("Available", F("api.apps.v1.DeploymentStatus", "availableReplicas")),
        H::AGE,
        H::wide("Containers", H::CONTAINERS),
        H::wide("Images", H::IMAGES),
        H::wide("Selector", F("api.apps.v1.DeploymentSpec", "selector")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let [names, images] = row.containers(&["spec", "template", "spec"]);
        vec![
            row.name(),
            row.ready_replicas(),
            row.number(&["status", "updatedReplicas"]).into(),
            row.number(&["status", "availableReplicas"]).into(),
            row.age(),
            names,
            images,
            at(row.object, &["spec", "selector"]).map(label_selector_text).unwrap_or_default().into(),
        ]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        fill_absent(spec, "replicas", 1);
        template(spec, "template");
        rolling(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
        fill_absent(spec, "revisionHistoryLimit", 10);
        fill_absent(spec, "progressDeadlineSeconds", 600);
    }

    fn prepare_status(new: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(new, old, "labels");
    }

    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        warnings::name_of_pods(new, old, texts);
        warnings::template(&["spec", "template"], new, old, texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.not_negative(&spec.get("replicas"));
        selected_replicas(&spec, "ReplicaSet", report);
        strategy(&spec.get("strategy"), report);
        for member in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
            report.not_negative(&spec.get(member));
        }
        let deadline = spec.get("progressDeadlineSeconds");
        if deadline.integer().is_some_and(|seconds| seconds <= spec.number_of("minReadySeconds")) {
            report.invalid(&deadline, "must be greater than minReadySeconds");
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        report.immutable(&new.get("spec").get("selector"), &old.get("spec").get("selector"));
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        for member in [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ] {
            report.not_negative(&status.get(member));
        }
        for member in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
            if status.number_of(member) > status.number_of("replicas") {
                report.invalid(&status.get(member), MORE_THAN_REPLICAS);
            }
        }
        if status.number_of("availableReplicas") > status.number_of("readyReplicas") {
            report.invalid(&status.get("availableReplicas"), "cannot be greater than readyReplicas");
        }
        let before = old.get("status");
        not_decremented(&status.get("collisionCount"), &before.get("collisionCount"), report);
    }
}

fn strategy(field: &Field<'_, '_>, report: &mut Report) {
    let rolling = field.get("rollingUpdate");
    match field.text_of("type") {
        "Recreate" => {
            if rolling.is_set() {
                report.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            if rolling.is_set() {
                rolling_update(&rolling, report);
            } else {
                report.required(&rolling, "this should be defaulted and never be nil");
            }
        }
        _ => report.not_supported_value(field, &["Recreate", "RollingUpdate"]),
    }
}

fn rolling_update(field: &Field<'_, '_>, report: &mut Report) {
    let (unavailable, surge) = (field.get("maxUnavailable"), field.get("maxSurge"));
    number_or_percent(&unavailable, report);
    number_or_percent(&surge, report);
    if is_zero(&unavailable) && is_zero(&surge) {
        report.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
    }
    at_most_all(&unavailable, report);
}
