//! Validation of expressions in webhooks and policies.

use std::collections::BTreeSet;

use gc_cel::{Environment, Program, Type};

use crate::kinds::prelude::*;
use crate::kinds::shared::names::qualified;

/// Type of a policy's variables.
pub(crate) const VARIABLES: &str = "kubernetes.variables";
/// Type of the object that mutations construct.
pub(crate) const OBJECT: &str = "Object";
pub(crate) const PATCH: &str = "JSONPatch";
const CONDITIONS_MAX: usize = 64;

/// Optional variables of expressions besides the request and its objects. Created once per policy, because the cost depends on the
/// number of variables.
#[derive(Clone, Debug)]
pub(crate) struct NamedVariables {
    /// Environment without the authorizer.
    messages: Environment,
    rules: Environment,
}

impl NamedVariables {
    /// Returns the variables of match conditions, which are evaluated before `variables`. Objects may be of any kind, so their
    /// types are only known during evaluation.
    pub(crate) fn in_conditions(params: bool) -> Self {
        let mut environment = Environment::default();
        for name in ["object", "oldObject"] {
            environment = environment.with(name, Type::Dyn);
        }
        environment = environment.with("request", request()).with("namespaceObject", namespace());
        if params {
            environment = environment.with("params", Type::Dyn);
        }
        let rules = environment
            .clone()
            .with("authorizer", Type::Library("kubernetes.authorization.Authorizer"))
            .with("authorizer.requestResource", Type::Library("kubernetes.authorization.ResourceCheck"));
        Self { messages: environment, rules }
    }

    /// Returns the variables of a policy's mutations, including `Object` and `JSONPatch`, which construct mutations.
    pub(crate) fn in_mutations(self) -> Self {
        let texts = ["op", "path", "from"].map(|field| (field, Type::Text));
        Self { rules: self.rules.with_open_object(OBJECT, &[]).with_open_object(PATCH, &texts), ..self }
    }

    /// Returns the variables of a policy's messages.
    pub(crate) fn in_messages(&self) -> Self {
        Self { messages: self.messages.clone(), rules: self.messages.clone() }
    }

    fn with_variables(self) -> Self {
        let with = |environment: Environment| environment.with("variables", Type::object(VARIABLES, []));
        Self { messages: with(self.messages), rules: with(self.rules) }
    }

    fn declare(&mut self, variable: &str, of: &Type) {
        for environment in [&mut self.messages, &mut self.rules] {
            environment.declare_field(VARIABLES, variable, of.clone());
        }
    }
}

/// Checks that an expression compiles, uses no unknown name, and has one of the wanted types, or any type if none is given. Returns
/// the type.
pub(crate) fn expression(
    field: &Field<'_, '_>,
    named: &NamedVariables,
    wanted: &[Type],
    report: &mut Report,
) -> Option<Type> {
    compiled(field.text(), named, wanted).map_err(|why| report.invalid(field, &why)).ok()
}

/// Checks an expression like [`expression`], without surrounding whitespace, which upstream does not show either.
pub(crate) fn trimmed_expression(
    field: &Field<'_, '_>,
    named: &NamedVariables,
    wanted: &[Type],
    report: &mut Report,
) {
    let text = Value::from(field.text().trim());
    expression(&field.with(&text), named, wanted, report);
}

/// Returns the type of an expression, or a description of its error.
pub(crate) fn compiled(text: &str, named: &NamedVariables, wanted: &[Type]) -> Result<Type, String> {
    let found = match Program::check(text, &named.rules, None) {
        Ok(checked) => checked.result,
        Err(error) => return Err(format!("compilation failed: {error}")),
    };
    if wanted.is_empty() || wanted.contains(&found) {
        return Ok(found);
    }
    let names: Vec<String> = wanted.iter().map(type_name).collect();
    let wanted = match names.as_slice() {
        [name] => name.clone(),
        names => format!("one of [{}]", names.join(" ")),
    };
    Err(format!("must evaluate to {wanted} but got {}", type_name(&found)))
}

/// Returns a type's name as printed by its value, which differs from the checker's errors.
pub(crate) fn type_name(of: &Type) -> String {
    match of {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::List(item) => format!("list({})", type_name(item)),
        Type::Map(key, value) => format!("map({}, {})", type_name(key), type_name(value)),
        other => other.to_string(),
    }
}

/// Validates the conditions under which a webhook or policy applies.
pub(crate) fn match_conditions(field: &Field<'_, '_>, named: &NamedVariables, report: &mut Report) {
    if field.list().len() > CONDITIONS_MAX {
        report.too_many(field, field.list().len(), CONDITIONS_MAX);
    }
    let mut names = BTreeSet::new();
    for condition in field.items() {
        let (name, text) = (condition.get("name"), condition.get("expression"));
        if text.text().trim().is_empty() {
            report.required(&text, "");
        } else {
            trimmed_expression(&text, named, &[Type::Bool], report);
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

/// Validates the variables of a policy, each of which may use earlier ones. Returns the variables available to the policy's rules.
pub(crate) fn variables(field: &Field<'_, '_>, params: bool, report: &mut Report) -> NamedVariables {
    let mut named = NamedVariables::in_conditions(params).with_variables();
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
            let of = type_of_variable(expression(&text, &named, &[], report));
            named.declare(name.text(), &of);
        }
    }
    named
}

/// Returns the type of a variable for expressions that use it: like upstream, without information about objects, or about
/// expressions that do not compile.
pub(crate) fn type_of_variable(found: Option<Type>) -> Type {
    found.filter(is_known_of_variables).unwrap_or(Type::Dyn)
}

fn is_known_of_variables(of: &Type) -> bool {
    let is_scalar = matches!(
        of,
        Type::Bool | Type::Bytes | Type::Double | Type::Duration | Type::Int | Type::Text | Type::Timestamp
    );
    is_scalar || matches!(of, Type::Null | Type::Uint | Type::List(_) | Type::Map(..))
}

fn typed<const N: usize>(name: &str, fields: [(&str, Type); N]) -> Type {
    Type::object(name, fields.map(|(field, of)| (field.to_owned(), of)))
}

/// Returns the type of `request`.
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

/// Returns the type of `namespaceObject`, with the fields of a namespace that upstream exposes.
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
