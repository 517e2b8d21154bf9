//! Schemas that a document refers to.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Form;
use crate::kubernetes::KubernetesVersion;
use crate::resource::ResourceDefinition;
use crate::schema::{
    Fields, IntegerFormat, List, ListType, Node, Object, Ownership, Property, Schema, SchemaRef,
    StringFormat, definition_name, definition_named, descriptions, kinds,
};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Kinds of the meta group that are registered in the core group.
const META_KINDS: [&str; 7] =
    ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "Status", "WatchEvent"];

/// Those of them that are also registered in every other group.
const EVERYWHERE: [&str; 2] = ["DeleteOptions", "WatchEvent"];

/// Groups and versions in which kube-apiserver registers kinds, whether it serves them or not. Definitions of custom resources only
/// list the first part.
const BUILTINS: &str = "admissionregistration.k8s.io/v1 admissionregistration.k8s.io/v1alpha1 \
    admissionregistration.k8s.io/v1beta1 apps/v1 apps/v1beta1 apps/v1beta2 authentication.k8s.io/v1 \
    authentication.k8s.io/v1alpha1 authentication.k8s.io/v1beta1 authorization.k8s.io/v1 authorization.k8s.io/v1beta1 \
    autoscaling/v1 autoscaling/v2 batch/v1 batch/v1beta1 certificates.k8s.io/v1 certificates.k8s.io/v1alpha1 \
    certificates.k8s.io/v1beta1 coordination.k8s.io/v1 coordination.k8s.io/v1alpha2 coordination.k8s.io/v1beta1 \
    discovery.k8s.io/v1 discovery.k8s.io/v1beta1 events.k8s.io/v1 events.k8s.io/v1beta1 extensions/v1beta1 \
    flowcontrol.apiserver.k8s.io/v1 flowcontrol.apiserver.k8s.io/v1beta1 flowcontrol.apiserver.k8s.io/v1beta2 \
    flowcontrol.apiserver.k8s.io/v1beta3 internal.apiserver.k8s.io/v1alpha1 networking.k8s.io/v1 \
    networking.k8s.io/v1beta1 node.k8s.io/v1 node.k8s.io/v1alpha1 node.k8s.io/v1beta1 policy/v1 policy/v1beta1 \
    rbac.authorization.k8s.io/v1 rbac.authorization.k8s.io/v1alpha1 rbac.authorization.k8s.io/v1beta1 resource.k8s.io/v1 \
    resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1 resource.k8s.io/v1beta2 scheduling.k8s.io/v1 \
    scheduling.k8s.io/v1alpha2 scheduling.k8s.io/v1beta1 storage.k8s.io/v1 storage.k8s.io/v1alpha1 \
    storage.k8s.io/v1beta1 storagemigration.k8s.io/v1beta1";
/// Further groups and versions that 1.37 registers, each after `+`, and those that it no longer registers, each after `-`.
const REGISTERED_1_37: &str = include_str!("registered-1.37.txt");
const OTHER_BUILTINS: &str = "admission.k8s.io/v1 admission.k8s.io/v1beta1 apiextensions.k8s.io/v1 \
    apiextensions.k8s.io/v1beta1 apiregistration.k8s.io/v1 apiregistration.k8s.io/v1beta1 imagepolicy.k8s.io/v1alpha1";

/// Groups in which a document states that the kinds of [`EVERYWHERE`] are registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RegisteredKinds {
    /// In the core group, and in this group and version.
    In(String, String),
    /// In the core group and in [`BUILTINS`].
    InBuiltins,
    /// In all groups and versions.
    Everywhere,
}

impl RegisteredKinds {
    /// Returns the groups and versions other than the core group, in the order of documents.
    fn places(&self) -> Vec<(&str, &str)> {
        let mut places: Vec<(&str, &str)> = match self {
            Self::In(group, version) => vec![(group, version)],
            Self::InBuiltins => builtins().filter_map(|word| word.split_once('/')).collect(),
            Self::Everywhere => {
                builtins().chain(OTHER_BUILTINS.split(' ')).filter_map(|word| word.split_once('/')).collect()
            }
        };
        places.retain(|(group, _)| !group.is_empty());
        places.sort_unstable();
        places
    }
}

/// Returns [`BUILTINS`] of the served version.
fn builtins() -> impl Iterator<Item = &'static str> {
    let difference = || KubernetesVersion::chosen().difference(REGISTERED_1_37).lines();
    let gone = move |word: &str| difference().any(|line| line.strip_prefix('-') == Some(word));
    let added = difference().filter_map(|line| line.strip_prefix('+'));
    BUILTINS.split(' ').filter(move |word| !gone(word)).chain(added)
}

/// Descriptions of the fields of every custom resource.
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers \
    should convert recognized schemas to the latest internal value, and may reject unrecognized values. More \
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may \
    infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Collects the schemas of one document: the requested ones, and all that they refer to.
pub(super) struct Components {
    form: Form,
    registered: RegisteredKinds,
    schemas: BTreeMap<String, Value>,
    wanted: Vec<String>,
}

impl Components {
    pub(super) fn new(form: Form, registered: RegisteredKinds) -> Self {
        Self { form, registered, schemas: BTreeMap::new(), wanted: Vec::new() }
    }

    /// Returns all collected schemas by name.
    pub(super) fn into_schemas(mut self) -> Map<String, Value> {
        self.complete();
        self.schemas.into_iter().collect()
    }

    /// Writes the definitions that are referred to but not written yet. Each name is written once.
    fn complete(&mut self) {
        while let Some(name) = self.wanted.pop() {
            if self.schemas.contains_key(&name) {
                continue;
            }
            let Some(schema) = definition_named(&name) else { continue };
            self.schemas.insert(name.clone(), Value::Null);
            let mut written = self.write_definition(&name, &schema);
            if let Some((group, version, kind)) = registered_as(&name) {
                mark(&mut written, &group, &version, &kind);
                if EVERYWHERE.contains(&kind.as_str())
                    && let Some(marks) = written[GROUP_VERSION_KIND].as_array_mut()
                {
                    let places = self.registered.places();
                    marks.extend(
                        places.iter().map(|(group, version)| group_version_kind(group, version, &kind)),
                    );
                }
            }
            self.schemas.insert(name, written);
        }
    }

    /// Returns a reference to a definition, which becomes part of the document.
    pub(super) fn reference(&mut self, name: &str) -> Value {
        if !self.schemas.contains_key(name) {
            self.wanted.push(name.to_owned());
        }
        json!({"$ref": format!("{}{name}", self.form.prefix())})
    }

    /// Returns a reference to a definition of the meta group.
    pub(super) fn meta(&mut self, kind: &str) -> Value {
        self.reference(&format!("{META}{kind}"))
    }

    /// Returns the name of a built-in kind's definition.
    pub(super) fn kind(group: &str, version: &str, kind: &str) -> Option<String> {
        let name = definition_name(group, version, kind);
        definition_named(&name)?;
        Some(name)
    }

    /// Returns the names of the schemas of a resource and of its list.
    pub(super) fn resource(&mut self, resource: &ResourceDefinition) -> (String, String) {
        let (group, version, kind) = (&*resource.group, &*resource.version, &*resource.kind);
        let Some(custom) = &resource.custom else {
            return (
                definition_name(group, version, kind),
                definition_name(group, version, &resource.list_kind),
            );
        };
        let name = reversed_name(group, version, kind);
        let mut schema = self.custom(custom.open_api_schema());
        mark(&mut schema, group, version, kind);
        self.schemas.insert(name.clone(), schema);
        let list_name = reversed_name(group, version, &resource.list_kind);
        let mut list = self.list_of(&name, resource);
        mark(&mut list, group, version, &resource.list_kind);
        self.schemas.insert(list_name.clone(), list);
        (name, list_name)
    }

    fn list_of(&mut self, name: &str, resource: &ResourceDefinition) -> Value {
        let texts = list_descriptions(&resource.list_kind, &resource.kind, &resource.resource);
        let list_meta = self.meta("ListMeta");
        json!({
            "description": texts[""],
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": texts["apiVersion"]},
                "kind": {"type": "string", "description": texts["kind"]},
                "metadata": self.described(list_meta, Some(&texts["metadata"]), None),
                "items": {"type": "array", "description": texts["items"], "items": self.reference(name)},
            },
        })
    }

    /// Returns the schema of a custom resource: that of its definition, plus the fields of all objects.
    fn custom(&mut self, source: &Value) -> Value {
        let Value::Object(_) = source else {
            return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        };
        let mut schema = source.clone();
        if self.form == Form::Two {
            reduce(&mut schema);
        }
        let metadata = self.meta("ObjectMeta");
        let metadata = self.described(metadata, Some(METADATA), None);
        if let Some(map) = schema.as_object_mut() {
            // A schema that preserves unknown fields does not describe its fields.
            if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
                if self.form == Form::Two {
                    return json!({"type": "object"});
                }
                if !map.contains_key("properties") {
                    return schema;
                }
            }
            let properties = map.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION}));
                properties.insert("kind".into(), json!({"type": "string", "description": KIND}));
                properties.insert("metadata".into(), metadata);
            }
        }
        schema
    }

    /// Returns a reference with a description and a default: version 3 permits nothing beside `$ref`.
    fn described(&self, reference: Value, description: Option<&str>, default: Option<Value>) -> Value {
        let mut reference = match (self.form, description.is_some() || default.is_some()) {
            (Form::Three, true) => json!({"allOf": [reference]}),
            _ => reference,
        };
        if let Some(text) = description {
            reference["description"] = text.into();
        }
        if let Some(default) = default {
            reference["default"] = default;
        }
        reference
    }

    fn place(&mut self, schema: &SchemaRef) -> Value {
        match &schema.name {
            Some(name) => self.reference(&name.clone()),
            None => self.write(schema),
        }
    }

    fn write_definition(&mut self, name: &str, schema: &Schema) -> Value {
        let kind = name.rsplit_once('.').map_or(name, |(_, kind)| kind);
        let list = kind.strip_suffix("List").filter(|_| !descriptions().contains_key(name));
        let list = list.map(|item| list_descriptions(kind, item, item));
        let described = descriptions().get(name).or(list.as_ref());
        let mut written = match &schema.node {
            Node::Object(object) => self.write_object(object, described),
            // A type that encodes itself in several forms has no schema type; raw objects do.
            Node::Any if name.contains(".apiextensions.") => json!({}),
            _ => self.write_node(&schema.node),
        };
        if let Some(text) = described.and_then(|fields| fields.get("")) {
            written["description"] = (&**text).into();
        }
        written
    }

    fn write(&mut self, schema: &Schema) -> Value {
        let mut written = self.write_node(&schema.node);
        if let Some(go) = &schema.go
            && !go.enumeration.is_empty()
        {
            written["enum"] = go.enumeration.iter().copied().collect();
        }
        if let Some(default) = schema.default.as_ref().filter(|_| self.form == Form::Three) {
            written["default"] = default.clone();
        }
        written
    }

    fn write_node(&mut self, node: &Node) -> Value {
        match node {
            Node::Any => json!({"type": "object"}),
            Node::Object(object) => self.write_object(object, None),
            Node::Map(map) => json!({"type": "object", "additionalProperties": self.place(&map.values)}),
            Node::List(list) => self.write_list(list),
            Node::String(format) => match format {
                StringFormat::Plain | StringFormat::Duration => json!({"type": "string"}),
                StringFormat::Byte => json!({"type": "string", "format": "byte"}),
                StringFormat::DateTime | StringFormat::MicroTime => {
                    json!({"type": "string", "format": "date-time"})
                }
                StringFormat::Other(name) => json!({"type": "string", "format": &**name}),
            },
            Node::Integer(IntegerFormat::Int32) => json!({"type": "integer", "format": "int32"}),
            Node::Integer(IntegerFormat::Int64) => json!({"type": "integer", "format": "int64"}),
            Node::Number => json!({"type": "number", "format": "double"}),
            Node::Boolean => json!({"type": "boolean"}),
            Node::IntOrString if self.form == Form::Three => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            Node::IntOrString => json!({"type": "string", "format": "int-or-string"}),
            Node::Quantity if self.form == Form::Three => {
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
            }
            Node::Quantity => json!({"type": "string"}),
        }
    }

    fn write_object(&mut self, object: &Object, described: Option<&Fields>) -> Value {
        let mut properties = Map::new();
        for (name, property) in &object.properties {
            let description = described.and_then(|fields| fields.get(&**name)).map(|text| &**text);
            properties.insert(name.to_string(), self.write_property(property, description));
        }
        let mut written = json!({"type": "object"});
        if !properties.is_empty() {
            written["properties"] = properties.into();
        }
        if !object.required.is_empty() {
            written["required"] = object.required.iter().map(|name| Value::from(&**name)).collect();
        }
        if object.map_type == Ownership::Atomic {
            written["x-kubernetes-map-type"] = "atomic".into();
        }
        if let Some((discriminator, members)) = object.union.and_then(|text| text.split_once('/')) {
            let members: Map<String, Value> = members
                .split(',')
                .filter_map(|member| member.split_once(':'))
                .map(|(field, name)| (field.to_owned(), name.into()))
                .collect();
            let mut union = json!({"fields-to-discriminateBy": members});
            if !discriminator.is_empty() {
                union["discriminator"] = discriminator.into();
            }
            written["x-kubernetes-unions"] = json!([union]);
        }
        written
    }

    fn write_property(&mut self, property: &Property, description: Option<&str>) -> Value {
        let placed = self.place(&property.schema);
        let mut written = if placed.get("$ref").is_some() {
            let is_struct = matches!(property.schema.node, Node::Object(_)) && !property.pointer;
            let default = (is_struct && self.form == Form::Three).then(|| json!({}));
            self.described(placed, description, default)
        } else {
            let mut placed = placed;
            if let Some(text) = description {
                let values = property.schema.go.as_ref().map_or(&[][..], |go| &go.enumeration);
                let text = if values.is_empty() { text.to_owned() } else { with_values(text, values) };
                placed["description"] = text.into();
            }
            placed
        };
        let patch = &property.patch;
        let strategies =
            [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
        let strategies: Vec<&str> = strategies.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        if !strategies.is_empty() {
            written["x-kubernetes-patch-strategy"] = strategies.join(",").into();
        }
        if let Some(key) = &patch.merge_key {
            written["x-kubernetes-patch-merge-key"] = (&**key).into();
        }
        if let Some(ownership) = property.map_type {
            let name = if ownership == Ownership::Atomic { "atomic" } else { "granular" };
            written["x-kubernetes-map-type"] = name.into();
        }
        written
    }

    fn write_list(&mut self, list: &List) -> Value {
        let mut written = json!({"type": "array", "items": self.place(&list.items)});
        match &list.list_type {
            ListType::Unspecified => {}
            ListType::Atomic => written["x-kubernetes-list-type"] = "atomic".into(),
            ListType::Set => written["x-kubernetes-list-type"] = "set".into(),
            ListType::Map(keys) => {
                written["x-kubernetes-list-type"] = "map".into();
                written["x-kubernetes-list-map-keys"] = keys.iter().map(|key| Value::from(&**key)).collect();
            }
        }
        written
    }
}

const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";

fn group_version_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "kind": kind, "version": version})
}

fn mark(schema: &mut Value, group: &str, version: &str, kind: &str) {
    schema[GROUP_VERSION_KIND] = json!([group_version_kind(group, version, kind)]);
}

/// Returns descriptions for the list of a kind, which the published types share among all kinds.
fn list_descriptions(list_kind: &str, kind: &str, resource: &str) -> Fields {
    let texts = [
        ("", format!("{list_kind} is a list of {kind}")),
        ("apiVersion", API_VERSION.to_owned()),
        ("kind", KIND.to_owned()),
        ("metadata", LIST_METADATA.to_owned()),
        ("items", format!("List of {resource}. More info: {CONVENTIONS}")),
    ];
    texts.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect()
}

/// Adds the possible values of a field to its description; their meanings are not available.
fn with_values(text: &str, values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("\n - `\"{value}\"`")).collect();
    format!("{text}\n\nPossible enum values:{}", values.concat())
}

/// Returns group, version and kind of a definition that is a kind, or a list of one.
fn registered_as(name: &str) -> Option<(String, String, String)> {
    let (path, kind) = name.rsplit_once('.')?;
    if let Some(meta) = name.strip_prefix(META) {
        return META_KINDS.contains(&meta).then(|| (String::new(), "v1".into(), kind.to_owned()));
    }
    let item = kind.strip_suffix("List").unwrap_or(kind);
    let wanted = format!("{path}.{item}");
    let (group, version, _) =
        kinds().find(|(group, version, item)| definition_name(group, version, item) == wanted)?;
    Some((group.to_owned(), version.to_owned(), kind.to_owned()))
}

/// Returns a name such as `com.example.v1.Widget`.
fn reversed_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// Drops everything from a schema that version 2 does not support.
fn reduce(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    for name in ["nullable", "oneOf", "anyOf", "not", "default", "allOf"] {
        map.remove(name);
    }
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        map.remove("items");
        map.remove("properties");
        if map.get("type").is_some_and(|kind| kind != "object") {
            map.remove("type");
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(schema) = map.get_mut(name) {
            reduce(schema);
        }
    }
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(reduce);
    }
}
