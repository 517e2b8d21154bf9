//! The paths of a document and what can be done at them.

use gc_types::Scope;
use serde_json::{Map, Value, json};

use super::schemas::Components;
use super::{Form, group_version_path};
use crate::catalog::GroupVersion;
use crate::resource::{ResourceDefinition, Subresource};

const REPRESENTATIONS: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// A query parameter: name, type, description.
type Parameter = (&'static str, &'static str, &'static str);

const PRETTY: Parameter = ("pretty", "string", "If 'true', then the output is pretty printed.");
const DRY_RUN: Parameter = (
    "dryRun",
    "string",
    "When present, indicates that modifications should not be persisted. Valid values are: - All: all dry run \
     stages will be processed",
);
const WRITES: [Parameter; 2] = [
    (
        "fieldManager",
        "string",
        "fieldManager is a name associated with the actor or entity that is making these changes.",
    ),
    (
        "fieldValidation",
        "string",
        "fieldValidation instructs the server on how to handle objects in the request containing unknown or \
         duplicate fields. Valid values are: Ignore, Warn, Strict.",
    ),
];
const FORCE: Parameter = (
    "force",
    "boolean",
    "Force is going to \"force\" Apply requests. It means user will re-acquire conflicting fields owned by other \
     people.",
);
const DELETES: [Parameter; 3] = [
    (
        "gracePeriodSeconds",
        "integer",
        "The duration in seconds before the object should be deleted. Value must be non-negative integer.",
    ),
    (
        "orphanDependents",
        "boolean",
        "Deprecated: please use the PropagationPolicy. Should the dependent objects be orphaned.",
    ),
    ("propagationPolicy", "string", "Whether and how garbage collection will be performed."),
];
const LISTS: [Parameter; 10] = [
    ("allowWatchBookmarks", "boolean", "allowWatchBookmarks requests watch events with type \"BOOKMARK\"."),
    ("continue", "string", "The continue option should be set when retrieving more results from the server."),
    (
        "fieldSelector",
        "string",
        "A selector to restrict the list of returned objects by their fields. Defaults to everything.",
    ),
    (
        "labelSelector",
        "string",
        "A selector to restrict the list of returned objects by their labels. Defaults to everything.",
    ),
    ("limit", "integer", "limit is a maximum number of responses to return for a list call."),
    (
        "resourceVersion",
        "string",
        "resourceVersion sets a constraint on what resource versions a request may be served from.",
    ),
    (
        "resourceVersionMatch",
        "string",
        "resourceVersionMatch determines how resourceVersion is applied to list calls.",
    ),
    ("sendInitialEvents", "boolean", "`sendInitialEvents=true` may be set together with `watch=true`."),
    ("timeoutSeconds", "integer", "Timeout for the list/watch call."),
    (
        "watch",
        "boolean",
        "Watch for changes to the described resources and return them as a stream of add, update, and remove \
         notifications.",
    ),
];

/// Group, version and kind of the bodies of one place.
#[derive(Clone, Copy)]
struct Body<'a> {
    kind: (&'a str, &'a str, &'a str),
    schema: Option<&'a str>,
}

/// Writes the operations of one resource or subresource.
struct Writer<'a> {
    form: Form,
    tag: String,
    components: &'a mut Components,
}

/// All paths of a group and version.
pub(super) fn paths(
    form: Form,
    group: &str,
    version: &GroupVersion,
    components: &mut Components,
) -> Map<String, Value> {
    let root = format!("/{}", group_version_path(group, &version.version));
    let tag = format!(
        "{}_{}",
        if group.is_empty() { "core" } else { group.trim_end_matches(".k8s.io") },
        version.version
    );
    let mut writer = Writer { form, tag: tag.replace('.', "_"), components };
    let mut paths = Map::new();
    for resource in &version.resources {
        writer.resource(&root, resource, &mut paths);
    }
    paths
}

impl Writer<'_> {
    fn resource(&mut self, root: &str, resource: &ResourceDefinition, paths: &mut Map<String, Value>) {
        let (name, list_name) = self.components.resource(resource);
        let own = (&*resource.group, &*resource.version, &*resource.kind);
        let one = Body { kind: own, schema: Some(&name) };
        let list = Body { kind: own, schema: Some(&list_name) };
        let takes = |verb: &str| resource.verbs.iter().any(|given| **given == *verb);
        let namespaced = resource.scope == Scope::Namespaced;
        let plural = &resource.resource;
        let base = if namespaced {
            format!("{root}/namespaces/{{namespace}}/{plural}")
        } else {
            format!("{root}/{plural}")
        };
        let patches = if resource.custom.is_some() { &PATCHES[..3] } else { &PATCHES[..] };

        let mut collection = Map::new();
        if takes("list") {
            collection.insert("get".into(), self.read("list", &list, &LISTS));
        }
        if takes("create") {
            collection.insert("post".into(), self.write("post", &one, &REPRESENTATIONS[..2]));
        }
        if takes("deletecollection") {
            collection.insert("delete".into(), self.delete("deletecollection", own));
        }
        if namespaced && takes("list") {
            let mut all = Map::new();
            all.insert("get".into(), self.read("list", &list, &LISTS));
            paths.insert(format!("{root}/{plural}"), self.finish(all, false, false));
        }
        if !collection.is_empty() {
            paths.insert(base.clone(), self.finish(collection, namespaced, false));
        }

        let mut item = Map::new();
        if takes("get") {
            item.insert("get".into(), self.read("get", &one, &[]));
        }
        if takes("update") {
            item.insert("put".into(), self.write("put", &one, &REPRESENTATIONS[..2]));
        }
        if takes("patch") {
            item.insert("patch".into(), self.write("patch", &one, patches));
        }
        if takes("delete") {
            item.insert("delete".into(), self.delete("delete", own));
        }
        if !item.is_empty() {
            paths.insert(format!("{base}/{{name}}"), self.finish(item, namespaced, true));
        }
        for subresource in &resource.subresources {
            let path = format!("{base}/{{name}}/{}", subresource.name);
            let operations = self.subresource(subresource, own, &name, patches);
            paths.insert(path, self.finish(operations, namespaced, true));
        }
    }

    fn subresource(
        &mut self,
        subresource: &Subresource,
        own: (&str, &str, &str),
        own_schema: &str,
        patches: &[&str],
    ) -> Map<String, Value> {
        let (group, version, kind) = &subresource.response_kind;
        // Empty parts are those of the resource itself.
        let other =
            |part: &'_ str, own: &'_ str| if part.is_empty() { own.to_owned() } else { part.to_owned() };
        let is_own = kind.is_empty() || **kind == *own.2;
        let kind = (
            if is_own { own.0.to_owned() } else { group.to_string() },
            other(version, own.1),
            other(kind, own.2),
        );
        let found = if is_own {
            Some(own_schema.to_owned())
        } else {
            self.components.kind(&kind.0, &kind.1, &kind.2)
        };
        let body = Body { kind: (&kind.0, &kind.1, &kind.2), schema: found.as_deref() };
        let mut operations = Map::new();
        for verb in &subresource.verbs {
            let (method, operation) = match &**verb {
                "get" => ("get", self.read("get", &body, &[])),
                "create" => ("post", self.write("post", &body, &REPRESENTATIONS[..2])),
                "update" => ("put", self.write("put", &body, &REPRESENTATIONS[..2])),
                "patch" => ("patch", self.write("patch", &body, patches)),
                _ => continue,
            };
            operations.insert(method.into(), operation);
        }
        operations
    }

    /// One path: its operations and the parameters in it.
    fn finish(&self, mut operations: Map<String, Value>, namespace: bool, name: bool) -> Value {
        let mut parameters = Vec::new();
        if name {
            parameters.push(self.path_parameter("name", "name of the resource"));
        }
        if namespace {
            parameters.push(
                self.path_parameter(
                    "namespace",
                    "object name and auth scope, such as for teams and projects",
                ),
            );
        }
        parameters.push(self.query_parameter(&PRETTY));
        operations.insert("parameters".into(), parameters.into());
        operations.into()
    }

    fn path_parameter(&self, name: &str, description: &str) -> Value {
        let mut parameter = json!({"name": name, "in": "path", "required": true, "description": description});
        self.set_type(&mut parameter, "string");
        parameter
    }

    fn query_parameter(&self, (name, kind, description): &Parameter) -> Value {
        let mut parameter = json!({"name": name, "in": "query", "description": description});
        self.set_type(&mut parameter, kind);
        parameter
    }

    fn set_type(&self, parameter: &mut Value, kind: &str) {
        match self.form {
            Form::Two => {
                parameter["type"] = kind.into();
                parameter["uniqueItems"] = true.into();
            }
            Form::Three => parameter["schema"] = json!({"type": kind, "uniqueItems": true}),
        }
    }

    fn schema(&self, body: &Body<'_>) -> Value {
        match body.schema {
            Some(name) => self.components.reference(name),
            None => json!({"type": "string"}),
        }
    }

    fn operation(
        &self,
        action: &str,
        kind: (&str, &str, &str),
        parameters: &[Value],
        answer: &Value,
    ) -> Value {
        let (group, version, kind) = kind;
        let response = match self.form {
            Form::Two => json!({"description": "OK", "schema": answer}),
            Form::Three => json!({"description": "OK", "content": content(&REPRESENTATIONS, answer)}),
        };
        let mut operation = json!({
            "description": format!("{action} {kind}"),
            "tags": [self.tag],
            "parameters": parameters,
            "responses": {"200": response, "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
        });
        if self.form == Form::Two {
            operation["produces"] = json!(REPRESENTATIONS);
            operation["consumes"] = json!(["*/*"]);
            operation["schemes"] = json!(["https"]);
        }
        operation
    }

    fn read(&self, action: &str, body: &Body<'_>, parameters: &[Parameter]) -> Value {
        let parameters: Vec<Value> =
            parameters.iter().map(|parameter| self.query_parameter(parameter)).collect();
        self.operation(action, body.kind, &parameters, &self.schema(body))
    }

    fn write(&self, action: &str, body: &Body<'_>, consumes: &[&str]) -> Value {
        let mut parameters = vec![self.query_parameter(&DRY_RUN)];
        parameters.extend(WRITES.iter().map(|parameter| self.query_parameter(parameter)));
        if action == "patch" {
            parameters.push(self.query_parameter(&FORCE));
        }
        let schema = self.schema(body);
        let sent = if action == "patch" {
            json!({
                "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH \
                                request body.",
                "type": "object",
            })
        } else {
            schema.clone()
        };
        let mut operation = self.operation(action, body.kind, &parameters, &schema);
        self.set_body(&mut operation, &sent, true, consumes);
        operation
    }

    fn delete(&mut self, action: &str, kind: (&str, &str, &str)) -> Value {
        let mut parameters = vec![self.query_parameter(&DRY_RUN)];
        parameters.extend(DELETES.iter().map(|parameter| self.query_parameter(parameter)));
        if action == "deletecollection" {
            parameters.extend(
                LISTS
                    .iter()
                    .filter(|row| !matches!(row.0, "allowWatchBookmarks" | "watch"))
                    .map(|row| self.query_parameter(row)),
            );
        }
        let options = self.components.delete_options();
        let status = match self.components.kind("", "v1", "Status") {
            Some(name) => self.components.reference(&name),
            None => json!({"type": "object"}),
        };
        let mut operation = self.operation(action, kind, &parameters, &status);
        self.set_body(&mut operation, &options, false, &REPRESENTATIONS[..2]);
        operation
    }

    fn set_body(&self, operation: &mut Value, schema: &Value, required: bool, consumes: &[&str]) {
        match self.form {
            Form::Two => {
                operation["consumes"] = json!(consumes);
                let mut body = json!({"name": "body", "in": "body", "schema": schema});
                if required {
                    body["required"] = true.into();
                }
                if let Some(parameters) = operation["parameters"].as_array_mut() {
                    parameters.push(body);
                }
            }
            Form::Three => {
                operation["requestBody"] =
                    json!({"content": content(consumes, schema), "required": required});
            }
        }
    }
}

fn content(representations: &[&str], schema: &Value) -> Map<String, Value> {
    representations.iter().map(|name| ((*name).to_owned(), json!({"schema": schema}))).collect()
}
