//! Pod templates.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::pod_spec;
use crate::resource::Target;

pub(crate) struct PodTemplate;

impl Kind for PodTemplate {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        pod_spec::template(&object.get("template"), report);
    }
}
