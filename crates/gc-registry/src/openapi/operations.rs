//! Paths of a document, and their operations.

use gc_types::Scope;
use serde_json::{Map, Value, json};

use super::parameters::{self, Parameter};
use super::schemas::Components;
use super::{Form, group_version_path};
use crate::catalog::{Group, GroupVersion};
use crate::resource::{ResourceDefinition, Subresource};

const REPRESENTATIONS: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAMS: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const ANYTHING: [&str; 1] = ["*/*"];
const CUSTOM_REPRESENTATIONS: [&str; 2] = ["application/json", "application/yaml"];

/// Group, version and kind of the bodies at one path.
#[derive(Clone, Copy)]
struct Body<'a> {
    kind: (&'a str, &'a str, &'a str),
    schema: Option<&'a str>,
}

/// An operation, before the parameters shared by all operations of its path are factored out.
struct Operation {
    value: Value,
    parameters: Vec<Parameter>,
}

/// Writes the operations of one group and version.
struct Writer<'a> {
    form: Form,
    /// For example `core_v1` or `rbacAuthorization_v1`.
    tag: String,
    /// For example `CoreV1` or `RbacAuthorizationV1`.
    prefix: String,
    components: &'a mut Components,
    representations: &'static [&'static str],
}

/// Returns `rbacAuthorization` for `rbac.authorization.k8s.io`.
fn group_word(group: &str) -> String {
    let short = if group.is_empty() { "core" } else { group.trim_end_matches(".k8s.io") };
    let mut words = short.split('.');
    words.next().unwrap_or_default().to_owned() + &words.map(capitalized).collect::<String>()
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns all paths of a group and version.
pub(super) fn paths(
    form: Form,
    group: &str,
    version: &GroupVersion,
    components: &mut Components,
) -> Map<String, Value> {
    let root = format!("/{}", group_version_path(group, &version.version));
    let word = group_word(group);
    let builtin = version.resources.iter().all(|resource| resource.custom.is_none());
    let mut writer = Writer {
        form,
        tag: format!("{word}_{}", version.version),
        prefix: format!("{}{}", capitalized(&word), capitalized(&version.version)),
        components,
        representations: if builtin { &REPRESENTATIONS } else { &CUSTOM_REPRESENTATIONS },
    };
    let mut paths = Map::new();
    if builtin {
        let list = writer.components.meta("APIResourceList");
        let id = format!("get{}APIResources", writer.prefix);
        paths.insert(format!("{root}/"), writer.document(&id, &list));
    }
    for resource in &version.resources {
        writer.resource(&root, resource, &mut paths);
    }
    paths
}

/// Returns the path of a group: `/api/` or `/apis/GROUP/`.
pub(super) fn group_path(form: Form, group: &Group, components: &mut Components) -> (String, Value) {
    let word = group_word(&group.name);
    let (path, answer) = if group.name.is_empty() {
        ("/api/".to_owned(), components.meta("APIVersions"))
    } else {
        (format!("/apis/{}/", group.name), components.meta("APIGroup"))
    };
    let id = match &*group.name {
        "" => "getCoreAPIVersions".to_owned(),
        _ => format!("get{}APIGroup", capitalized(&word)),
    };
    let writer =
        Writer { form, tag: word, prefix: String::new(), components, representations: &REPRESENTATIONS };
    (path, writer.document(&id, &answer))
}

/// Other documents of the server: path, tag, operation, definition of the answer (empty for text).
pub(super) const DOCUMENTS: [(&str, &str, &str, &str); 4] = [
    ("/apis/", "apis", "getAPIVersions", "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList"),
    ("/version/", "version", "getCodeVersion", "io.k8s.apimachinery.pkg.version.Info"),
    ("/.well-known/openid-configuration/", "WellKnown", "getServiceAccountIssuerOpenIDConfiguration", ""),
    ("/openid/v1/jwks/", "openid", "getServiceAccountIssuerOpenIDKeyset", ""),
];

/// Writes one of [`DOCUMENTS`].
pub(super) fn document(
    form: Form,
    (_, tag, id, answer): (&str, &str, &str, &str),
    components: &mut Components,
) -> Value {
    let (answer, representations): (Value, &'static [&'static str]) = match (answer, tag) {
        ("", "openid") => (json!({"type": "string"}), &["application/jwk-set+json"]),
        ("", _) => (json!({"type": "string"}), &["application/json"]),
        (name, "version") => (components.reference(name), &["application/json"]),
        (name, _) => (components.reference(name), &REPRESENTATIONS),
    };
    let tag = tag.to_owned();
    let writer = Writer { form, tag, prefix: String::new(), components, representations };
    let mut written = writer.document(id, &answer);
    if form == Form::Two && matches!(writer.tag.as_str(), "WellKnown" | "openid") {
        written["get"]["consumes"] = Value::Null;
        if let Some(get) = written["get"].as_object_mut() {
            get.remove("consumes");
        }
    }
    written
}

impl Writer<'_> {
    /// Reports whether the paths belong to custom resources.
    fn is_custom(&self) -> bool {
        self.representations == CUSTOM_REPRESENTATIONS
    }

    /// Writes a path whose only operation reads a document.
    fn document(&self, id: &str, answer: &Value) -> Value {
        let mut get = json!({
            "description": "get available resources",
            "tags": [self.tag],
            "operationId": id,
            "responses": {"200": self.response(answer, self.representations), "401": {"description": "Unauthorized"}},
        });
        if self.form == Form::Two {
            get["produces"] = json!(self.representations);
            get["consumes"] = json!(self.representations);
            get["schemes"] = json!(["https"]);
        }
        json!({"get": get})
    }

    fn resource(&mut self, root: &str, resource: &ResourceDefinition, paths: &mut Map<String, Value>) {
        let (name, list_name) = self.components.resource(resource);
        let own = (&*resource.group, &*resource.version, &*resource.kind);
        let one = Body { kind: own, schema: Some(&name) };
        let list = Body { kind: own, schema: Some(&list_name) };
        let namespaced = resource.scope == Scope::Namespaced;
        let plural = &resource.resource;
        let place =
            if namespaced { format!("/namespaces/{{namespace}}/{plural}") } else { format!("/{plural}") };
        let base = format!("{root}{place}");
        let inside = if namespaced { "Namespaced" } else { "" };
        let kind = &resource.kind;
        let scope: &[Parameter] = if namespaced { &[parameters::NAMESPACE] } else { &[] };
        let item_scope = [&[parameters::NAME], scope].concat();

        let mut collection = Vec::new();
        if resource.has_verb("list") {
            collection.push(("get", self.list(&format!("list{}{inside}{kind}", self.prefix), &list, scope)));
        }
        if resource.has_verb("create") {
            let id = format!("create{}{inside}{kind}", self.prefix);
            collection.push(("post", self.write("post", &id, &one, scope, resource)));
        }
        if resource.has_verb("deletecollection") {
            let id = format!("delete{}Collection{inside}{kind}", self.prefix);
            collection.push(("delete", self.delete("deletecollection", &id, resource, &name, scope)));
        }
        if namespaced && resource.has_verb("list") {
            let id = format!("list{}{kind}ForAllNamespaces", self.prefix);
            let all = vec![("get", self.list(&id, &list, &[]))];
            paths.insert(format!("{root}/{plural}"), self.finish(all));
        }
        if !collection.is_empty() {
            paths.insert(base.clone(), self.finish(collection));
        }

        let mut item = Vec::new();
        if resource.has_verb("get") {
            item.push(("get", self.read(&format!("read{}{inside}{kind}", self.prefix), &one, &item_scope)));
        }
        if resource.has_verb("update") {
            let id = format!("replace{}{inside}{kind}", self.prefix);
            item.push(("put", self.write("put", &id, &one, &item_scope, resource)));
        }
        if resource.has_verb("patch") {
            let id = format!("patch{}{inside}{kind}", self.prefix);
            item.push(("patch", self.write("patch", &id, &one, &item_scope, resource)));
        }
        if resource.has_verb("delete") {
            let id = format!("delete{}{inside}{kind}", self.prefix);
            item.push(("delete", self.delete("delete", &id, resource, &name, &item_scope)));
        }
        if !item.is_empty() {
            paths.insert(format!("{base}/{{name}}"), self.finish(item));
        }
        if resource.has_verb("watch") && resource.custom.is_none() {
            self.watches(root, &place, resource, own, paths);
        }
        for subresource in &resource.subresources {
            let path = format!("{base}/{{name}}/{}", subresource.name);
            let word = format!("{inside}{kind}{}", capitalized(&subresource.name));
            self.subresource(&path, &word, subresource, resource, &name, &item_scope, paths);
        }
    }

    /// Writes the deprecated watch paths.
    fn watches(
        &mut self,
        root: &str,
        place: &str,
        resource: &ResourceDefinition,
        own: (&str, &str, &str),
        paths: &mut Map<String, Value>,
    ) {
        let kind = &resource.kind;
        let namespaced = resource.scope == Scope::Namespaced;
        let scope: &[Parameter] = if namespaced { &[parameters::NAMESPACE] } else { &[] };
        let item_scope = [&[parameters::NAME], scope].concat();
        let inside = if namespaced { "Namespaced" } else { "" };
        let event = self.components.meta("WatchEvent");
        let mut add = |writer: &mut Self, path: String, action: &str, id: String, scope: &[Parameter]| {
            let mut operation = writer.operation(action, &id, own, &event, &["200"]);
            operation.parameters = [&parameters::LISTS[..], scope, &[parameters::PRETTY]].concat();
            if writer.form == Form::Two {
                operation.value["produces"] = json!(with_streams());
            } else {
                let response = writer.response(&event, &with_streams());
                operation.value["responses"]["200"] = response;
            }
            paths.insert(path, writer.finish(vec![("get", operation)]));
        };
        let prefix = self.prefix.clone();
        add(
            self,
            format!("{root}/watch{place}"),
            "watchlist",
            format!("watch{prefix}{inside}{kind}List"),
            scope,
        );
        if resource.has_verb("get") {
            let id = format!("watch{prefix}{inside}{kind}");
            add(self, format!("{root}/watch{place}/{{name}}"), "watch", id, &item_scope);
        }
        if namespaced {
            let id = format!("watch{prefix}{kind}ListForAllNamespaces");
            add(self, format!("{root}/watch/{}", resource.resource), "watchlist", id, &[]);
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one call, of what the parent resource has already worked out"
    )]
    fn subresource(
        &mut self,
        path: &str,
        word: &str,
        subresource: &Subresource,
        resource: &ResourceDefinition,
        own_schema: &str,
        scope: &[Parameter],
        paths: &mut Map<String, Value>,
    ) {
        let (group, version, kind) = &subresource.response_kind;
        if kind.ends_with("Options") {
            return self.connections(path, word, subresource, scope, paths);
        }
        let is_own = kind.is_empty() || *kind == resource.kind;
        let found = if is_own { Some(own_schema.to_owned()) } else { Components::kind(group, version, kind) };
        // Upstream's documents treat every subresource of a custom resource as one of its kind.
        let kind = if is_own || self.is_custom() {
            (&*resource.group, &*resource.version, &*resource.kind)
        } else {
            (&**group, &**version, &**kind)
        };
        let is_log = &*subresource.name == "log";
        let body = Body { kind, schema: found.as_deref().filter(|_| !is_log) };
        let mut operations = Vec::new();
        for verb in &subresource.verbs {
            let prefix = &self.prefix;
            operations.push(match &**verb {
                "get" if is_log => {
                    let mut read = self.read(&format!("read{prefix}{word}"), &body, scope);
                    read.parameters.extend(parameters::LOGS);
                    let forms = [
                        "text/plain",
                        "application/json",
                        "application/yaml",
                        "application/vnd.kubernetes.protobuf",
                    ];
                    let answer = json!({"type": "string"});
                    if self.form == Form::Two {
                        read.value["produces"] = json!(forms);
                    } else {
                        read.value["responses"]["200"] = self.response(&answer, &forms);
                    }
                    ("get", read)
                }
                "get" => ("get", self.read(&format!("read{prefix}{word}"), &body, scope)),
                "create" => {
                    let id = format!("create{prefix}{word}");
                    ("post", self.write("post", &id, &body, scope, resource))
                }
                "update" => {
                    let id = format!("replace{prefix}{word}");
                    ("put", self.write("put", &id, &body, scope, resource))
                }
                "patch" => {
                    let id = format!("patch{prefix}{word}");
                    ("patch", self.write("patch", &id, &body, scope, resource))
                }
                _ => continue,
            });
        }
        paths.insert(path.to_owned(), self.finish(operations));
    }

    /// Writes subresources that connect to something, such as `exec` and `proxy`.
    fn connections(
        &mut self,
        path: &str,
        word: &str,
        subresource: &Subresource,
        scope: &[Parameter],
        paths: &mut Map<String, Value>,
    ) {
        let proxy = &*subresource.name == "proxy";
        let methods: &[&str] = if proxy {
            &["delete", "get", "head", "options", "patch", "post", "put"]
        } else {
            &["get", "post"]
        };
        let (group, version, kind) = &subresource.response_kind;
        let answer = json!({"type": "string"});
        let forms: &[(&str, &str)] = if proxy { &[("", ""), ("/{path}", "WithPath")] } else { &[("", "")] };
        for (tail, suffix) in forms {
            let mut operations = Vec::new();
            for method in methods {
                let id = format!("connect{}{}{word}{suffix}", self.prefix, capitalized(method));
                let mut operation = self.operation("connect", &id, (group, version, kind), &answer, &["200"]);
                operation.parameters = [scope, parameters::connection(&subresource.name)].concat();
                if !tail.is_empty() {
                    operation.parameters.push(parameters::PATH);
                }
                if self.form == Form::Two {
                    operation.value["produces"] = json!(ANYTHING);
                } else {
                    operation.value["responses"]["200"] = self.response(&answer, &ANYTHING);
                }
                operations.push((*method, operation));
            }
            paths.insert(format!("{path}{tail}"), self.finish(operations));
        }
    }

    /// Writes a path: its operations, and the parameters that all of them share.
    fn finish(&self, operations: Vec<(&'static str, Operation)>) -> Value {
        let mut common: Vec<Parameter> = match operations.first() {
            Some((_, first)) => first.parameters.clone(),
            None => Vec::new(),
        };
        common.retain(|parameter| {
            !parameter.is_body() && operations.iter().all(|(_, other)| other.parameters.contains(parameter))
        });
        let mut path = Map::new();
        for (method, Operation { mut value, parameters }) in operations {
            let own = parameters.into_iter().filter(|parameter| !common.contains(parameter)).collect();
            let own = parameters::write(self.form, own, value.get_mut("parameters").map(Value::take));
            if !own.is_empty() {
                value["parameters"] = own.into();
            } else if let Some(map) = value.as_object_mut() {
                map.remove("parameters");
            }
            path.insert(method.to_owned(), value);
        }
        let common = parameters::write(self.form, common, None);
        if !common.is_empty() {
            path.insert("parameters".into(), common.into());
        }
        path.into()
    }

    fn schema(&mut self, body: &Body<'_>) -> Value {
        match body.schema {
            Some(name) => self.components.reference(name),
            None => json!({"type": "string"}),
        }
    }

    fn response(&self, answer: &Value, representations: &[&str]) -> Value {
        match self.form {
            Form::Two => json!({"description": "OK", "schema": answer}),
            Form::Three => json!({"description": "OK", "content": content(representations, answer)}),
        }
    }

    fn operation(
        &self,
        action: &str,
        id: &str,
        (group, version, kind): (&str, &str, &str),
        answer: &Value,
        codes: &[&str],
    ) -> Operation {
        let mut responses: Map<String, Value> = codes
            .iter()
            .map(|code| ((*code).to_owned(), self.response(answer, self.representations)))
            .collect();
        for (code, text) in [("201", "Created"), ("202", "Accepted")] {
            if let Some(response) = responses.get_mut(code) {
                response["description"] = text.into();
            }
        }
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        let mut value = json!({
            "description": format!("{action} {kind}"),
            "tags": [self.tag],
            "operationId": id,
            "responses": responses,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
        });
        if self.form == Form::Two {
            value["produces"] = json!(self.representations);
            value["consumes"] =
                if self.is_custom() { json!(CUSTOM_REPRESENTATIONS) } else { json!(ANYTHING) };
            value["schemes"] = json!(["https"]);
        }
        Operation { value, parameters: Vec::new() }
    }

    fn read(&mut self, id: &str, body: &Body<'_>, scope: &[Parameter]) -> Operation {
        let schema = self.schema(body);
        let mut operation = self.operation("get", id, body.kind, &schema, &["200"]);
        operation.parameters = [scope, &[parameters::PRETTY]].concat();
        let lists = parameters::LISTS.iter();
        operation.parameters.extend(lists.filter(|row| self.is_custom() && row.name == "resourceVersion"));
        operation
    }

    fn list(&mut self, id: &str, body: &Body<'_>, scope: &[Parameter]) -> Operation {
        let schema = self.schema(body);
        let mut operation = self.operation("list", id, body.kind, &schema, &["200"]);
        operation.parameters = [scope, &[parameters::PRETTY], &parameters::LISTS[..]].concat();
        if self.representations.len() == REPRESENTATIONS.len() {
            if self.form == Form::Two {
                operation.value["produces"] = json!(with_streams());
            } else {
                operation.value["responses"]["200"] = self.response(&schema, &with_streams());
            }
        }
        operation
    }

    fn write(
        &mut self,
        action: &str,
        id: &str,
        body: &Body<'_>,
        scope: &[Parameter],
        resource: &ResourceDefinition,
    ) -> Operation {
        let schema = self.schema(body);
        let codes: &[&str] = match (action, resource.custom.is_some()) {
            ("post", _) => &["200", "201", "202"],
            ("patch", true) => &["200"],
            _ => &["200", "201"],
        };
        let mut operation = self.operation(action, id, body.kind, &schema, codes);
        let patch = action == "patch";
        let manager = if patch { parameters::PATCH_MANAGER } else { parameters::FIELD_MANAGER };
        operation.parameters = [
            scope,
            &[parameters::PRETTY, parameters::DRY_RUN, manager, parameters::FIELD_VALIDATION],
            if patch { &[parameters::FORCE] } else { &[] },
        ]
        .concat();
        let (sent, consumes): (Value, Vec<&str>) = match (patch, resource.custom.is_some()) {
            (true, false) => (self.components.meta("Patch"), PATCHES.to_vec()),
            (true, true) => (
                self.components.meta("Patch"),
                PATCHES.into_iter().filter(|name| !name.contains("strategic")).collect(),
            ),
            (false, false) => (schema, ANYTHING.to_vec()),
            (false, true) => (schema, CUSTOM_REPRESENTATIONS.to_vec()),
        };
        self.set_body(&mut operation, &sent, true, &consumes, patch.then_some("body-78PwaGsr"));
        operation
    }

    fn delete(
        &mut self,
        action: &str,
        id: &str,
        resource: &ResourceDefinition,
        name: &str,
        scope: &[Parameter],
    ) -> Operation {
        // A namespace can also be returned, which upstream's documents do not mention.
        let is_namespace = resource.group.is_empty() && *resource.resource == *"namespaces";
        let returns = action == "delete" && resource.returns_deleted_object && !is_namespace;
        let answer = if returns { self.components.reference(name) } else { self.components.meta("Status") };
        let kind = (&*resource.group, &*resource.version, &*resource.kind);
        let codes: &[&str] = if action == "delete" { &["200", "202"] } else { &["200"] };
        let mut operation = self.operation(action, id, kind, &answer, codes);
        // Custom resources also accept delete options for collections, which upstream's documents do not mention.
        if action == "deletecollection" && self.is_custom() {
            operation.parameters = [scope, &[parameters::PRETTY], &parameters::LISTS[..]].concat();
            return operation;
        }
        operation.parameters =
            [scope, &[parameters::PRETTY, parameters::DRY_RUN], &parameters::DELETES[..]].concat();
        if action == "deletecollection" {
            let lists = parameters::LISTS.iter();
            operation
                .parameters
                .extend(lists.filter(|row| !matches!(row.name, "allowWatchBookmarks" | "watch")));
        }
        let options = self.components.meta("DeleteOptions");
        let consumes = if resource.custom.is_some() { &CUSTOM_REPRESENTATIONS[..] } else { &ANYTHING[..] };
        self.set_body(&mut operation, &options, false, consumes, Some("body-2Y1dVQaQ"));
        operation
    }

    fn set_body(
        &mut self,
        operation: &mut Operation,
        schema: &Value,
        required: bool,
        consumes: &[&str],
        shared: Option<&'static str>,
    ) {
        match (self.form, shared) {
            (Form::Two, shared) => {
                operation.value["consumes"] = json!(consumes);
                operation.value["parameters"] = match shared {
                    Some(name) => json!({"$ref": format!("#/parameters/{name}")}),
                    None => {
                        let mut body = json!({"name": "body", "in": "body", "schema": schema});
                        if required {
                            body["required"] = true.into();
                        }
                        body
                    }
                };
            }
            (Form::Three, _) => {
                let mut body = json!({"content": content(consumes, schema)});
                if required {
                    body["required"] = true.into();
                }
                operation.value["requestBody"] = body;
            }
        }
    }
}

fn with_streams() -> Vec<&'static str> {
    [&REPRESENTATIONS[..], &STREAMS[..]].concat()
}

fn content(representations: &[&str], schema: &Value) -> Map<String, Value> {
    representations.iter().map(|name| ((*name).to_owned(), json!({"schema": schema}))).collect()
}
