//! Pod templates.

use crate::kinds::prelude::*;
use crate::kinds::shared::pod_defaults::template;
use crate::kinds::shared::pod_spec;

pub(crate) struct PodTemplate;

impl Kind for PodTemplate {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Counts(&[&["template"]]);
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["template"]);
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Containers", H::CONTAINERS),
        H::text("Images", H::IMAGES),
        H::text("Pod Labels", T("The labels for the pod template.")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let [names, images] = row.containers(&["template", "spec"]);
        let shown = shown_labels(at(row.object, &["template", "metadata", "labels"]));
        vec![row.name(), names, images, shown]
    }

    fn defaults(members: &mut Members) {
        template(members, "template");
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        pod_spec::template(&object.get("template"), report);
    }
}
