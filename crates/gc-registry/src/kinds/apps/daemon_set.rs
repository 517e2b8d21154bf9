//! Daemon sets.

use crate::kinds::prelude::*;
use crate::kinds::shared::labels::is_valid;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::pod_defaults::{rolling, template};
use crate::kinds::shared::workloads::{
    SELECTOR_MISMATCH, always_restarted, at_most_all, is_zero, not_decremented, number_or_percent,
    template_labels,
};
use crate::kinds::shared::{labels, pod_spec};

/// Annotation with the generation of a daemon set's template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) struct DaemonSet;

impl Kind for DaemonSet {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["spec", "template"]);
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer("Desired", F("api.apps.v1.DaemonSetStatus", "desiredNumberScheduled")),
        H::integer("Current", F("api.apps.v1.DaemonSetStatus", "currentNumberScheduled")),
        H::integer("Ready", F("api.apps.v1.DaemonSetStatus", "numberReady")),
        H::integer("Up-to-date", F("api.apps.v1.DaemonSetStatus", "updatedNumberScheduled")),
        H::integer("Available", F("api.apps.v1.DaemonSetStatus", "numberAvailable")),
        H::text("Node Selector", F("api.core.v1.PodSpec", "nodeSelector")),
        H::AGE,
        H::wide("Containers", H::CONTAINERS),
        H::wide("Images", H::IMAGES),
        H::wide("Selector", F("api.apps.v1.DaemonSetSpec", "selector")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let [names, images] = row.containers(&["spec", "template", "spec"]);
        let mut cells = vec![row.name()];
        for key in [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ] {
            cells.push(row.number(&["status", key]).into());
        }
        cells.extend([
            shown_labels(at(row.object, &["spec", "template", "spec", "nodeSelector"])),
            row.age(),
            names,
            images,
            shown_selector(at(row.object, &["spec", "selector"])),
        ]);
        cells
    }

    fn defaults(members: &mut Members) {
        // The version without this field always has the annotation.
        if let Some(annotations) =
            child(members, "metadata").and_then(|metadata| child(metadata, "annotations"))
        {
            annotations.entry(TEMPLATE_GENERATION).or_insert_with(|| "0".into());
        }
        if let Some(spec) = child(members, "spec") {
            rolling(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
            fill_absent(spec, "revisionHistoryLimit", 10);
            template(spec, "template");
        }
        if let Some(status) = child(members, "status") {
            for key in
                ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"]
            {
                fill_absent(status, key, 0);
            }
        }
    }

    fn prepare_create(object: &mut Value, _: &Context<'_>) {
        put(object, &["metadata", "annotations", TEMPLATE_GENERATION], "1".into());
    }

    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        let path = ["metadata", "annotations", TEMPLATE_GENERATION];
        let mut generation = text(old, &path).parse::<i64>().unwrap_or_default();
        if at(new, &["spec", "template"]) != at(old, &["spec", "template"]) {
            generation += 1;
        }
        put(new, &path, generation.to_string().into());
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let (chosen, template) = (spec.get("selector"), spec.get("template"));
        selector(&chosen, report);
        let labels = template_labels(&template);
        // For upstream, an invalid selector selects nothing, and neither does an absent one.
        let selected = is_valid(&chosen) && chosen.is_set() && labels::selects(chosen.value(), labels);
        let chooses = !chosen.is_set() || !labels::is_empty(chosen.value());
        if is_valid(&chosen) && chooses && !selected {
            let metadata = template.get("metadata");
            report.invalid(&metadata.named("labels", labels), SELECTOR_MISMATCH);
        }
        if chosen.is_set() && labels::is_empty(chosen.value()) {
            report.invalid(&chosen, "empty selector is invalid for daemonset");
        }
        pod_spec::template(&template, report);
        always_restarted(&template, "DaemonSet", report);
        report.not_negative(&spec.get("minReadySeconds"));
        strategy(&spec.get("updateStrategy"), report);
        report.not_negative(&spec.get("revisionHistoryLimit"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        report.immutable(&new.get("spec").get("selector"), &old.get("spec").get("selector"));
        Self::validate(new, report);
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        for member in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ] {
            report.not_negative(&status.get(member));
        }
        let before = old.get("status");
        not_decremented(&status.get("collisionCount"), &before.get("collisionCount"), report);
    }
}

fn strategy(field: &Field<'_, '_>, report: &mut Report) {
    let rolling = field.get("rollingUpdate");
    match field.text_of("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            if rolling.is_set() {
                rolling_update(&rolling, report);
            } else {
                report.required(&rolling, "");
            }
        }
        kind => {
            let shown =
                format!("{{\"Type\":{},\"RollingUpdate\":{}}}", quoted(kind), shown_rolling(&rolling));
            report.not_supported_shown(field, &shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn shown_rolling(field: &Field<'_, '_>) -> String {
    if !field.is_set() {
        return "null".into();
    }
    let part = |name: &str| match field.member(name) {
        serde_json::Value::Null => "0".to_owned(),
        value => value.to_string(),
    };
    format!("{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}", part("maxUnavailable"), part("maxSurge"))
}

/// Checks that exactly one of the two numbers is not zero.
fn rolling_update(field: &Field<'_, '_>, report: &mut Report) {
    let (unavailable, surge) = (field.get("maxUnavailable"), field.get("maxSurge"));
    for number in [&unavailable, &surge] {
        number_or_percent(number, report);
    }
    for number in [&unavailable, &surge] {
        at_most_all(number, report);
    }
    match (is_zero(&unavailable), is_zero(&surge)) {
        (true, true) => report.required(&unavailable, "cannot be 0 when maxSurge is 0"),
        (false, false) => {
            report.invalid(&surge, "may not be set when maxUnavailable is non-zero");
        }
        _ => {}
    }
}
