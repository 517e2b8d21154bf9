//! Ingress classes.

use super::ingress::typed_reference;
use crate::kinds::prelude::*;
use crate::kinds::shared::names::{domain_prefixed_path, label};

const CONTROLLER_MAX_BYTES: usize = 250;

pub(crate) struct IngressClass;

impl Kind for IngressClass {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::SPEC;
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Controller", T("Controller that is responsible for handling this class")),
        H::text("Parameters", T("A reference to a resource with additional parameters")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.shown(&["spec", "controller"]), shown_parameters(row), row.age()]
    }

    fn defaults(members: &mut Members) {
        if let Some(parameters) = existing(members, "spec").and_then(|spec| existing(spec, "parameters")) {
            fill_absent(parameters, "scope", "Cluster");
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
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

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        report.immutable_text(&new.get("spec").get("controller"), &old.get("spec").get("controller"));
        Self::validate(new, report);
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

fn shown_parameters(row: &Row<'_>) -> Value {
    let Some(parameters) = at(row.object, &["spec", "parameters"]) else { return NONE.into() };
    let mut shown = text(parameters, &["kind"]).to_owned();
    if let Some(group) = at(parameters, &["apiGroup"]).and_then(Value::as_str) {
        shown = format!("{shown}.{group}");
    }
    format!("{shown}/{}", text(parameters, &["name"])).into()
}
