//! Runtime classes.

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kinds::printers::Says;
use crate::kinds::shared::labels::labels;
use crate::kinds::shared::names::dns_label;
use crate::kinds::shared::resources::{Names, requirements};
use crate::kinds::shared::scheduling;
use crate::kinds::shared::warnings::node_labels;

pub(crate) struct RuntimeClass;

impl Kind for RuntimeClass {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        refuses_plain_finalizers: false,
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] = &[H::NAME, H::text("Handler", Says::Nothing), H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.shown(&["handler"]), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        let labels = node_labels::in_map(at(new, &["scheduling", "nodeSelector"]));
        texts.extend(labels.map(|(_, message)| format!("scheduling.nodeSelector: {message}")));
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let handler = object.get("handler");
        if handler.text().is_empty() {
            report.required(&handler, "");
        } else {
            report.each(&handler, dns_label(handler.text()));
        }
        let overhead = object.get("overhead");
        if overhead.has("podFixed") {
            // Upstream validates them like the limits of a container.
            let limits = json!({"limits": overhead.member("podFixed")});
            let field = Field::root(&limits);
            let mut inner = Report::default();
            requirements(&field, Names::Container, &BTreeSet::new(), &mut inner);
            for mut error in inner.errors {
                let is_whole = error.field.is_empty();
                error.field =
                    if is_whole { "overhead".to_owned() } else { format!("overhead.{}", error.field) };
                report.errors.push(error);
            }
        }
        let scheduling = object.get("scheduling");
        labels(&scheduling.get("nodeSelector"), report);
        let tolerations = scheduling.get("tolerations");
        scheduling::tolerations(&tolerations, report);
        let mut seen = BTreeSet::new();
        for toleration in tolerations.items() {
            if !seen.insert(toleration.value().to_string()) {
                report.duplicate(&toleration);
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        report.immutable_text(&new.get("handler"), &old.get("handler"));
    }
}
