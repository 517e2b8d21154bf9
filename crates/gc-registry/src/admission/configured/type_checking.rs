//! `status.typeChecking` of ValidatingAdmissionPolicies: checks whether their expressions match the types of their objects, as
//! upstream's `validatingadmissionpolicy-status-controller` does.

use std::collections::{BTreeMap, BTreeSet};

use gc_cel::{Environment, Program, Type};
use serde_json::{Value, json};

use crate::api::{Operation, PatchType, RequestBody, RequestContext, RequestTarget, WriteOptions};
use crate::catalog::{Catalog, rules};
use crate::error::ApiError;
use crate::kinds::expressions;
use crate::metadata::meta;
use crate::registry::Registry;
use crate::resource::ResourceDefinition;
use crate::schema::{self, Node, Schema, StringFormat};

/// Maximum number of kinds that the expressions of one policy are checked against.
const MAXIMUM_KINDS: usize = 10;
/// Field manager of the status.
const MANAGER: &str = "validatingadmissionpolicy-status";

impl Registry {
    /// Checks the types of policies that have changed since their last check, and writes the result to their status.
    pub(crate) fn check_policy_types(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        if !self.config().checks_policy_types {
            return Ok(());
        }
        let catalog = self.catalog();
        let group = "admissionregistration.k8s.io";
        let Some(resource) = catalog.find(group, "v1", "validatingadmissionpolicies") else { return Ok(()) };
        for policy in &self.configured().validating_policies {
            let generation = policy["metadata"]["generation"].as_i64().unwrap_or_default();
            if generation <= policy["status"]["observedGeneration"].as_i64().unwrap_or_default() {
                continue;
            }
            let name = meta::name(policy);
            let mut checking = json!({});
            let warnings = warnings(&catalog, policy);
            if !warnings.is_empty() {
                checking["expressionWarnings"] = warnings.into();
            }
            let status = json!({
                "apiVersion": format!("{group}/v1"), "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": name},
                "status": {"observedGeneration": generation, "typeChecking": checking},
            });
            let target = RequestTarget {
                name: name.to_owned(),
                subresource: "status".to_owned(),
                ..RequestTarget::collection(resource)
            };
            let options = WriteOptions {
                field_manager: MANAGER.to_owned(),
                force: Some(true),
                ..WriteOptions::default()
            };
            let body = RequestBody::from(status);
            match self.handle(&target, Operation::Patch(PatchType::Apply, body, options), context) {
                // The policy may have been deleted.
                Ok(_) | Err(ApiError { code: 404 | 409, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the type checker's warnings about a policy, as in `expressionWarnings`.
fn warnings(catalog: &Catalog, policy: &Value) -> Vec<Value> {
    let spec = &policy["spec"];
    let kinds: Vec<_> = kinds(catalog, &spec["matchConstraints"])
        .into_iter()
        .map(|resource| {
            let environment = environment(catalog, spec, resource);
            (shown(resource), with_variables(&environment, &spec["variables"]))
        })
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for member in ["expression", "messageExpression"] {
            let Some(text) = validation[member].as_str().filter(|text| !text.is_empty()) else { continue };
            let problems: Vec<String> = kinds
                .iter()
                .filter_map(|(kind, environment)| {
                    let error = Program::check(text, environment, None).err()?;
                    Some(format!("{kind}: {error}\n"))
                })
                .collect();
            if !problems.is_empty() {
                let field = format!("spec.validations[{index}].{member}");
                warnings.push(json!({"fieldRef": field, "warning": problems.join("\n")}));
            }
        }
    }
    warnings
}

/// Formats a kind as upstream does.
fn shown(resource: &ResourceDefinition) -> String {
    format!("{}/{}, Kind={}", resource.group, resource.version, resource.kind)
}

/// Returns the kinds that a policy names, sorted. Rules with wildcards name none.
fn kinds<'c>(catalog: &'c Catalog, constraints: &Value) -> Vec<&'c ResourceDefinition> {
    let mut found = BTreeMap::new();
    for rule in constraints["resourceRules"].as_array().into_iter().flatten() {
        let named = |key: &str| -> BTreeSet<&str> {
            rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let (groups, versions) = (named("apiGroups"), named("apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let mut of_rule = 0;
        for (group, version) in groups.iter().flat_map(|group| versions.iter().map(move |v| (group, v))) {
            for name in named("resources").iter().filter(|name| !name.contains(['*', '/'])) {
                let Some(resource) = catalog.find(group, version, name) else { continue };
                found.insert((&resource.group, &resource.version, &resource.kind), &**resource);
                of_rule += 1;
                if of_rule == MAXIMUM_KINDS {
                    return found.into_values().collect();
                }
            }
        }
    }
    found.into_values().collect()
}

/// Returns the variables of a policy's expressions for one kind.
fn environment(catalog: &Catalog, spec: &Value, resource: &ResourceDefinition) -> Environment {
    let object = type_of(resource);
    let environment = Environment::default()
        .with("object", object.clone())
        .with("oldObject", object)
        .with("request", expressions::request())
        .with("namespaceObject", expressions::namespace())
        .with("authorizer", Type::Library("kubernetes.authorization.Authorizer"))
        .with("authorizer.requestResource", Type::Library("kubernetes.authorization.ResourceCheck"));
    let kind = &spec["paramKind"];
    if kind.is_null() {
        return environment;
    }
    let text = |key: &str| kind[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let params = catalog.by_kind(group, version, text("kind")).next();
    environment.with("params", params.map_or(Type::Dyn, |resource| type_of(resource)))
}

/// Adds the variables of a policy, each of which may use the ones before it.
fn with_variables(environment: &Environment, variables: &Value) -> Environment {
    let mut environment = environment.clone().with("variables", Type::object(expressions::VARIABLES, []));
    for variable in variables.as_array().into_iter().flatten() {
        let text = |key: &str| variable[key].as_str().unwrap_or_default();
        let checked = Program::check(text("expression"), &environment, None);
        let found = checked.ok().map(|checked| checked.result);
        environment.declare_field(expressions::VARIABLES, text("name"), expressions::type_of_variable(found));
    }
    environment
}

/// Returns the type of a resource's objects.
fn type_of(resource: &ResourceDefinition) -> Type {
    let typing = Typing { is_custom: resource.custom.is_some() };
    let schema = rules::schema(resource);
    typing.type_of(&schema, &resource.kind, true, &mut Vec::new()).unwrap_or(Type::Dyn)
}

/// Reports whether a definition that accepts any value is an object without known fields in upstream's schemas.
fn is_open_object(name: &str) -> bool {
    [".RawExtension", ".FieldsV1"].iter().any(|end| name.ends_with(end))
}

/// Conversion from schemas to types.
#[derive(Clone, Copy)]
struct Typing {
    /// True if the schema belongs to a CustomResourceDefinition.
    is_custom: bool,
}

impl Typing {
    /// Returns the type of a schema's values; `None` if expressions cannot see them. `above` contains the enclosing definitions: a
    /// recursive one has no fields at its second occurrence.
    fn type_of(
        self,
        schema: &Schema,
        name: &str,
        is_resource: bool,
        above: &mut Vec<std::sync::Arc<str>>,
    ) -> Option<Type> {
        if let Some(definition) = &schema.name {
            if above.contains(definition) {
                return Some(Type::object(name, []));
            }
            above.push(definition.clone());
        }
        let found = self.shape(schema, name, is_resource, above);
        if schema.name.is_some() {
            above.pop();
        }
        found
    }

    fn shape(
        self,
        schema: &Schema,
        name: &str,
        is_resource: bool,
        above: &mut Vec<std::sync::Arc<str>>,
    ) -> Option<Type> {
        Some(match &schema.node {
            Node::Object(object) => {
                let mut fields: Vec<(String, Type)> = Vec::new();
                for (field, property) in &object.properties {
                    let path = format!("{name}.{field}");
                    let inner = &property.schema;
                    if let Some(found) = self.type_of(inner, &path, inner.embedded_resource, above) {
                        fields.push((field.to_string(), found));
                    }
                }
                if is_resource && self.is_custom {
                    fields.retain(|(field, _)| !["apiVersion", "kind", "metadata"].contains(&field.as_str()));
                    let built_in = Self { is_custom: false };
                    let path = format!("{name}.metadata");
                    let metadata = built_in.type_of(schema::object_meta(), &path, false, above);
                    fields.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
                    fields.extend(["apiVersion", "kind"].map(|field| (field.to_owned(), Type::Text)));
                }
                Type::object(name, fields)
            }
            Node::Map(map) => {
                let values = self.type_of(&map.values, &format!("{name}.@elem"), false, above)?;
                Type::map(Type::Text, values)
            }
            Node::List(list) => {
                let items = &list.items;
                Type::list(self.type_of(items, &format!("{name}.@idx"), items.embedded_resource, above)?)
            }
            Node::String(format) => self.text(format),
            Node::Integer(_) => Type::Int,
            Node::Number => Type::Double,
            Node::Boolean => Type::Bool,
            Node::IntOrString => Type::Dyn,
            Node::Any if schema.name.as_ref().is_some_and(|name| is_open_object(name)) => {
                Type::object(name, [])
            }
            // Upstream's schemas of these have no type.
            Node::Any | Node::Quantity => return None,
        })
    }

    fn text(self, format: &StringFormat) -> Type {
        match format {
            StringFormat::Byte => Type::Bytes,
            StringFormat::DateTime | StringFormat::MicroTime => Type::Timestamp,
            // Upstream's schema of `metav1.Duration` names no format.
            StringFormat::Duration if self.is_custom => Type::Duration,
            StringFormat::Other(format) if &**format == "date" => Type::Timestamp,
            _ => Type::Text,
        }
    }
}
