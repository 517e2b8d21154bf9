//! Replication controllers.

use crate::kinds::prelude::*;
use crate::kinds::shared::pod_defaults::drop_empty_selector;
use crate::kinds::shared::pod_defaults::{inherit_labels, labels_of_template, template};
use crate::kinds::shared::pod_spec;
use crate::kinds::shared::selector_text::map_text;
use crate::kinds::shared::workloads::{
    SELECTOR_MISMATCH, always_restarted, replicas_status, template_labels,
};
use crate::metadata::names::long_name;

pub(crate) struct ReplicationController;

impl Kind for ReplicationController {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata {
        name: long_name,
        checks_prefixes: false,
        update: &[MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["spec", "template"]);
    const FOLDER: Option<&'static str> = Some("controllers");
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer("Desired", F("api.core.v1.ReplicationControllerSpec", "replicas")),
        H::integer("Current", F("api.core.v1.ReplicationControllerStatus", "replicas")),
        H::integer("Ready", F("api.core.v1.ReplicationControllerStatus", "readyReplicas")),
        H::AGE,
        H::wide("Containers", H::CONTAINERS),
        H::wide("Images", H::IMAGES),
        H::wide("Selector", F("api.core.v1.ReplicationControllerSpec", "selector")),
    ];
    const FIELD_LABELS: &'static [&'static str] = &["status.replicas"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        row.replicas(shown_labels(at(row.object, &["spec", "selector"])))
    }

    fn defaults(members: &mut Members) {
        let labels = labels_of_template(members);
        if let Some(spec) = child(members, "spec") {
            drop_empty_selector(spec);
            fill_absent(spec, "replicas", 1);
            if spec.get("template").is_some() {
                template(spec, "template");
            }
            if let Some(labels) = &labels {
                fill_absent(spec, "selector", labels.clone());
            }
        }
        inherit_labels(members, labels);
        if let Some(status) = child(members, "status") {
            fill_absent(status, "replicas", 0);
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        warnings::name_of_pods(new, old, texts);
        // Upstream mistakes the template before an update for the one after it.
        let (shown, other) = old.map_or((new, None), |old| (old, Some(new)));
        warnings::template(&["spec", "template"], shown, other, texts);
    }

    fn field_label(name: &str, object: &Value) -> String {
        match name {
            "status.replicas" => integer(object, &["status", "replicas"]).unwrap_or_default().to_string(),
            _ => text_label(name, object),
        }
    }

    /// Formats a plain map of labels as a selector.
    fn scale_selector(object: &Value) -> String {
        at(object, &["spec", "selector"]).map(map_text).unwrap_or_default()
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
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

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        replicas_status(&new.get("status"), report);
    }
}
