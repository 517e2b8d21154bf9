//! Permissions that a write needs in addition to the write itself: collectors act on the contents of objects, with their own
//! permissions.

use serde_json::Value;

use crate::api::Attributes;
use crate::error::ApiError;
use crate::metadata::meta;
use crate::metadata::names::quoted;
use crate::registry::advisor::{PermissionScope, RequiredPermission};
use crate::registry::call::Call;
use crate::resource::ResourceDefinition;

impl Call<'_> {
    /// Refuses a write that would make a collector do something that its author may not do. Receives the versions that the write
    /// replaces and stores.
    pub(crate) fn admit_deputies(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let Some(advisor) = &self.registry.config.advisor else { return Ok(()) };
        let resource = self.resource();
        let required = advisor.required(&resource.group, &resource.kind, new, old);
        required.iter().try_for_each(|permission| self.admit_permission(new, permission))
    }

    fn admit_permission(&self, new: &Value, permission: &RequiredPermission) -> Result<(), ApiError> {
        let RequiredPermission { verb, scope, why } = permission;
        let missing = match scope {
            PermissionScope::Written => {
                let name = meta::name(new);
                let of_it = of_object(self.resource(), verb, &self.target.namespace, name);
                (!self.is_permitted(&of_it)).then(|| described(&of_it))
            }
            PermissionScope::Kind { api_version, kind, namespaces } => {
                self.missing_on_kind(verb, api_version, kind, namespaces)
            }
        };
        let Some(missing) = missing else { return Ok(()) };
        Err(self
            .forbidden(meta::name(new), &format!("{why}, and user {} cannot {missing}", self.user_name())))
    }

    /// Describes the first permission on objects of a kind that the user lacks.
    fn missing_on_kind(
        &self,
        verb: &str,
        api_version: &str,
        kind: &str,
        namespaces: &[String],
    ) -> Option<String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let catalog = self.registry.catalog();
        let versions = catalog.group(group).into_iter().flat_map(|group| &group.versions);
        let known: Vec<_> =
            versions.flat_map(|version| &version.resources).filter(|row| *row.kind == *kind).collect();
        let mut questions = Vec::new();
        if !known.iter().any(|row| *row.version == *version) {
            // The resource may be served later, or by another server, under any name in the group.
            questions.push(Attributes { verb, group, version, resource: "*", ..Attributes::default() });
        }
        for row in known {
            if namespaces.is_empty() {
                questions.push(of_object(row, verb, "", ""));
                continue;
            }
            for namespace in namespaces {
                questions.push(match (row.namespaced(), row.is("", "namespaces")) {
                    (true, _) => of_object(row, verb, namespace, ""),
                    (false, true) => of_object(row, verb, "", namespace),
                    (false, false) => of_object(row, verb, "", ""),
                });
            }
        }
        questions.into_iter().find(|question| !self.is_permitted(question)).map(|missing| described(&missing))
    }

    fn is_permitted(&self, question: &Attributes<'_>) -> bool {
        self.context.authorizer.allows(self.context.user, question)
    }

    fn user_name(&self) -> String {
        quoted(&self.context.user.name)
    }

    /// Restores fields that no subresource may change, and warns about it.
    pub(crate) fn restore_from_subresource(&mut self, new: &mut Value, live: &Value) {
        let Some(advisor) = &self.registry.config.advisor else { return };
        if self.target.subresource.is_empty() {
            return;
        }
        let restored = advisor.restore(new, live);
        let subresource = &self.target.subresource;
        self.warnings.extend(
            restored
                .into_iter()
                .map(|name| format!("{name} cannot be changed through {subresource}: ignored")),
        );
    }

    /// Restores such fields after a Binding, whose annotations and labels are copied to the pod whichever path was used.
    pub(crate) fn restore_from_binding(&mut self, pod: &mut Value, live: &Value) {
        let Some(advisor) = &self.registry.config.advisor else { return };
        for name in advisor.restore(pod, live) {
            let warning = format!("{name} cannot be set by a Binding: ignored");
            // An earlier attempt that lost a race has already added the warning.
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// Returns the question about one object, or with an empty name about all objects in a namespace.
fn of_object<'a>(
    resource: &'a ResourceDefinition,
    verb: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    // For authorization, a namespace is inside itself, unless it is listed.
    let is_namespace = resource.is("", "namespaces") && verb != "list";
    Attributes {
        verb,
        group: &resource.group,
        version: &resource.version,
        resource: &resource.resource,
        subresource: "",
        namespace: if is_namespace { name } else { namespace },
        name,
    }
}

fn described(question: &Attributes<'_>) -> String {
    let Attributes { verb, group, resource, namespace, name, .. } = *question;
    let mut text = format!("{verb} resource {} in API group {}", quoted(resource), quoted(group));
    if !name.is_empty() {
        text = format!("{text} with the name {}", quoted(name));
    }
    match namespace {
        "" => format!("{text} at the cluster scope"),
        namespace => format!("{text} in the namespace {}", quoted(namespace)),
    }
}
