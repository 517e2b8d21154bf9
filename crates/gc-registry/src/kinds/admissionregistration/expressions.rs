//! Expressions in webhooks and policies: whether they compile.

use std::collections::BTreeSet;

use gc_cel::{Environment, Program, Type};

use crate::kinds::prelude::*;
use crate::kinds::shared::names::qualified;

const CONDITIONS_MAX: usize = 64;

/// What expressions may name besides the request and its objects: each only where there is some.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named {
    params: bool,
    variables: bool,
}

impl Named {
    /// What the expressions of a policy may name.
    pub(crate) fn of(spec: &Field<'_, '_>) -> Self {
        Self { params: spec.has("paramKind"), variables: !spec.get("variables").list().is_empty() }
    }

    /// What match conditions may name: they are evaluated before variables.
    pub(crate) fn without_variables(self) -> Self {
        Self { variables: false, ..self }
    }
}

/// What expressions may name. Objects are of any kind, so that their types are seen when expressions are evaluated.
fn environment(named: Named) -> Environment {
    let mut environment = Environment::default();
    for name in ["object", "oldObject"] {
        environment = environment.with(name, Type::Dyn);
    }
    environment = environment.with("request", request()).with("namespaceObject", namespace());
    for (name, is_there) in [("variables", named.variables), ("params", named.params)] {
        if is_there {
            environment = environment.with(name, Type::Dyn);
        }
    }
    environment
        .with("authorizer", Type::Library("kubernetes.authorization.Authorizer"))
        .with("authorizer.requestResource", Type::Library("kubernetes.authorization.ResourceCheck"))
        .with_open_object("Object")
        .with_open_object("JSONPatch")
}

/// Checks that an expression compiles, names nothing unknown and has a value of the type that is wanted.
pub(crate) fn expression(field: &Field<'_, '_>, named: Named, wanted: Option<&Type>, report: &mut Report) {
    let checked = match Program::check(field.text(), &environment(named), None) {
        Ok(checked) => checked,
        Err(error) => return report.invalid(field, &format!("compilation failed: {error}")),
    };
    if let Some(wanted) = wanted
        && checked.result != *wanted
        && checked.result != Type::Dyn
    {
        report.invalid(field, &format!("must evaluate to {wanted} but got {}", checked.result));
    }
}

/// Conditions under which a webhook or policy is asked at all.
pub(crate) fn match_conditions(field: &Field<'_, '_>, named: Named, report: &mut Report) {
    if field.list().len() > CONDITIONS_MAX {
        report.too_many(field, field.list().len(), CONDITIONS_MAX);
    }
    let mut names = BTreeSet::new();
    for condition in field.items() {
        let (name, text) = (condition.get("name"), condition.get("expression"));
        if text.text().trim().is_empty() {
            report.required(&text, "");
        } else {
            expression(&text, named, Some(&Type::Bool), report);
        }
        if name.text().is_empty() {
            report.required(&name, "");
            continue;
        }
        qualified(&name, report);
        if !names.insert(name.text()) {
            report.duplicate(&name);
        }
    }
}

/// The variables of a policy.
pub(crate) fn variables(field: &Field<'_, '_>, named: Named, report: &mut Report) {
    for variable in field.items() {
        let (name, text) = (variable.get("name"), variable.get("expression"));
        if name.text().trim().is_empty() {
            report.required(&name, "name is not specified");
        } else if !crate::kinds::shared::names::is_c_identifier(name.text()) {
            report.invalid(&name, "must be a valid CEL identifier");
        }
        if text.text().trim().is_empty() {
            report.required(&text, "expression is not specified");
        } else {
            expression(&text, named, None, report);
        }
    }
}

fn typed<const N: usize>(name: &str, fields: [(&str, Type); N]) -> Type {
    Type::object(name, fields.map(|(field, of)| (field.to_owned(), of)))
}

/// The type of `request`.
pub(crate) fn request() -> Type {
    let texts = |name: &str, fields: [&str; 3]| typed(name, fields.map(|field| (field, Type::Text)));
    let kind = texts("kubernetes.GroupVersionKind", ["group", "version", "kind"]);
    let resource = texts("kubernetes.GroupVersionResource", ["group", "version", "resource"]);
    let user = typed(
        "kubernetes.UserInfo",
        [
            ("username", Type::Text),
            ("uid", Type::Text),
            ("groups", Type::list(Type::Text)),
            ("extra", Type::map(Type::Text, Type::list(Type::Text))),
        ],
    );
    typed(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Type::Text),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Type::Text),
            ("name", Type::Text),
            ("namespace", Type::Text),
            ("operation", Type::Text),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
}

/// The type of `namespaceObject`: the fields that upstream shows of a namespace.
pub(crate) fn namespace() -> Type {
    let labels = || Type::map(Type::Text, Type::Text);
    let texts = || Type::list(Type::Text);
    let metadata = typed(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::Text),
            ("generateName", Type::Text),
            ("namespace", Type::Text),
            ("labels", labels()),
            ("annotations", labels()),
            ("UID", Type::Text),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::Text),
            ("finalizers", texts()),
        ],
    );
    let condition = typed(
        "kubernetes.NamespaceCondition",
        [
            ("status", Type::Text),
            ("type", Type::Text),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::Text),
            ("reason", Type::Text),
        ],
    );
    let status =
        typed("kubernetes.NamespaceStatus", [("conditions", Type::list(condition)), ("phase", Type::Text)]);
    let spec = typed("kubernetes.NamespaceSpec", [("finalizers", texts())]);
    typed("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
}
