//! Pod templates.

use crate::kinds::access::at;
use crate::kinds::kind::prelude::*;
use crate::kinds::printers::shown_labels;
use crate::kinds::shared::pod_spec;

const COLUMNS: &[Heading] = &[
    H::NAME,
    H::text("Containers", H::CONTAINERS),
    H::text("Images", H::IMAGES),
    H::text("Pod Labels", T("The labels for the pod template.")),
];

pub(crate) struct PodTemplate;

impl Kind for PodTemplate {
    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [names, images] = row.containers(&["template", "spec"]);
        let shown = shown_labels(at(row.object, &["template", "metadata", "labels"]));
        vec![row.name(), names, images, shown]
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        pod_spec::template(&object.get("template"), report);
    }
}
