//! Pod templates.

use crate::kinds::access::at;
use crate::kinds::kind::prelude::*;
use crate::kinds::printers::shown_labels;
use crate::kinds::shared::disabled;
use crate::kinds::shared::pod_defaults::template;
use crate::kinds::shared::pod_spec;
use crate::kinds::shared::warnings;

const COLUMNS: &[Heading] = &[
    H::NAME,
    H::text("Containers", H::CONTAINERS),
    H::text("Images", H::IMAGES),
    H::text("Pod Labels", T("The labels for the pod template.")),
];

pub(crate) struct PodTemplate;

impl Kind for PodTemplate {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Neither, generation: Generation::Counts(&[&["template"]]) }
    }

    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [names, images] = row.containers(&["template", "spec"]);
        let shown = shown_labels(at(row.object, &["template", "metadata", "labels"]));
        vec![row.name(), names, images, shown]
    }

    fn defaults(&self, members: &mut Members) {
        template(members, "template");
    }

    fn drop_disabled(&self, members: &mut Members) {
        disabled::pod_spec(members, &["template", "spec"]);
    }

    fn warnings(&self, new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        warnings::pod::pod("template", new.get("template").unwrap_or(&Value::Null), texts);
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        pod_spec::template(&object.get("template"), report);
    }
}
