//! Ingress classes.

use super::ingress::typed_reference;
use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::names::{domain_prefixed_path, label};
use crate::resource::Target;

const CONTROLLER_MAX_BYTES: usize = 250;

pub(crate) struct IngressClass;

impl Kind for IngressClass {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let controller = spec.get("controller");
        if controller.text().len() > CONTROLLER_MAX_BYTES {
            report.too_long(&controller, CONTROLLER_MAX_BYTES);
        }
        domain_prefixed_path(&controller, report);
        let parameters = spec.get("parameters");
        if parameters.is_set() {
            parameter_reference(&parameters, report);
        }
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        report.immutable_text(&new.get("spec").get("controller"), &old.get("spec").get("controller"));
        self.validate(target, new, report);
    }
}

fn parameter_reference(field: &Field<'_, '_>, report: &mut Report) {
    typed_reference(field, report);
    let (scope, namespace) = (field.get("scope"), field.get("namespace"));
    match scope.text() {
        "" if !scope.is_set() => report.required(&scope, ""),
        "Namespace" => {
            if namespace.is_set() {
                label(&namespace, report);
            } else {
                report.required(&namespace, "`parameters.scope` is set to 'Namespace'");
            }
        }
        "Cluster" => {
            if namespace.is_set() {
                report.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
            }
        }
        _ => report.not_supported(&scope, &["Cluster", "Namespace"]),
    }
}
