//! The schemas that a document refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Form;
use crate::resource::ResourceDefinition;
use crate::schema::{
    IntegerFormat, List, ListType, Node, Object, Ownership, Property, Schema, SchemaRef, StringFormat,
    builtin,
};

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// What every custom resource has, in the words of its documentation.
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers \
    should convert recognized schemas to the latest internal value, and may reject unrecognized values. More \
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may \
    infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Collects the schemas of one document: those asked for, and all that they refer to.
pub(super) struct Components {
    form: Form,
    schemas: BTreeMap<String, Value>,
    wanted: Vec<Arc<Schema>>,
}

impl Components {
    pub(super) fn new(form: Form) -> Self {
        Self { form, schemas: BTreeMap::new(), wanted: Vec::new() }
    }

    /// All collected schemas by name.
    pub(super) fn into_schemas(mut self) -> Map<String, Value> {
        self.complete();
        self.schemas.into_iter().collect()
    }

    /// Writes the definitions that were referred to but are not written yet. Each name is written once.
    fn complete(&mut self) {
        while let Some(schema) = self.wanted.pop() {
            let Some(name) = schema.name.clone() else { continue };
            if !self.schemas.contains_key(&*name) {
                self.schemas.insert(name.to_string(), Value::Null);
                let written = self.write(&schema);
                self.schemas.insert(name.to_string(), written);
            }
        }
    }

    pub(super) fn reference(&self, name: &str) -> Value {
        json!({"$ref": format!("{}{name}", self.form.prefix())})
    }

    /// Adds the schema of a kind, marks it with group, version and kind, and gives its name.
    pub(super) fn kind(&mut self, group: &str, version: &str, kind: &str) -> Option<String> {
        let schema = builtin(group, version, kind)?;
        let name = schema.name.as_ref()?.to_string();
        self.wanted.push(schema);
        self.complete();
        self.mark(&name, group, version, kind);
        Some(name)
    }

    fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        if let Some(schema) = self.schemas.get_mut(name).and_then(Value::as_object_mut) {
            let gvk = json!({"group": group, "kind": kind, "version": version});
            let all = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut()
                && !all.contains(&gvk)
            {
                all.push(gvk);
            }
        }
    }

    /// Adds the schemas of a resource and of its list, and gives their names.
    pub(super) fn resource(&mut self, resource: &ResourceDefinition) -> (String, String) {
        let (group, version, kind) = (&*resource.group, &*resource.version, &*resource.kind);
        let name = match (&resource.custom, self.kind(group, version, kind)) {
            (None, Some(name)) => name,
            (custom, _) => {
                let name = reversed_name(group, version, kind);
                let source = custom.as_ref().map_or(&Value::Null, |custom| custom.open_api_schema());
                let schema = self.custom(source);
                self.schemas.insert(name.clone(), schema);
                self.mark(&name, group, version, kind);
                name
            }
        };
        let list_name = match name.rsplit_once('.') {
            Some((path, _)) => format!("{path}.{}", resource.list_kind),
            None => resource.list_kind.to_string(),
        };
        let list = self.list_of(&name, kind);
        self.schemas.insert(list_name.clone(), list);
        self.mark(&list_name, group, version, &resource.list_kind);
        (name, list_name)
    }

    fn list_of(&mut self, name: &str, kind: &str) -> Value {
        self.want_meta();
        json!({
            "description": format!("{kind}List is a list of {kind}"),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": API_VERSION},
                "kind": {"type": "string", "description": KIND},
                "metadata": self.described(self.reference(LIST_META), Some(METADATA)),
                "items": {
                    "type": "array", "description": format!("List of {kind} objects"),
                    "items": self.reference(name),
                },
            },
        })
    }

    /// ListMeta comes with Status, ObjectMeta with every kind.
    fn want_meta(&mut self) {
        for kind in ["Status", "ConfigMap"] {
            let Some(schema) = builtin("", "v1", kind) else { continue };
            if let Node::Object(object) = &schema.node
                && let Some(metadata) = object.properties.get("metadata")
            {
                self.wanted.push(metadata.schema.shared().clone());
            }
        }
        self.complete();
    }

    /// The schema of a custom resource: what its definition says, and what all objects have.
    fn custom(&mut self, source: &Value) -> Value {
        self.want_meta();
        let mut schema = match source {
            Value::Object(_) => source.clone(),
            _ => json!({"type": "object"}),
        };
        if self.form == Form::Two {
            reduce(&mut schema);
        }
        if let Some(map) = schema.as_object_mut() {
            let properties = map.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION}));
                properties.insert("kind".into(), json!({"type": "string", "description": KIND}));
                let metadata = self.described(self.reference(OBJECT_META), Some(METADATA));
                properties.insert("metadata".into(), metadata);
            }
        }
        schema
    }

    /// The body of DELETE.
    pub(super) fn delete_options(&mut self) -> Value {
        let strings =
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"});
        let schema = json!({
            "description": "DeleteOptions may be provided when deleting an API object.",
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string", "description": API_VERSION},
                "kind": {"type": "string", "description": KIND},
                "dryRun": strings,
                "gracePeriodSeconds": {"type": "integer", "format": "int64"},
                "orphanDependents": {"type": "boolean"},
                "preconditions": {
                    "type": "object",
                    "properties": {"resourceVersion": {"type": "string"}, "uid": {"type": "string"}},
                },
                "propagationPolicy": {"type": "string"},
            },
        });
        self.schemas.entry(DELETE_OPTIONS.into()).or_insert(schema);
        self.mark(DELETE_OPTIONS, "", "v1", "DeleteOptions");
        self.reference(DELETE_OPTIONS)
    }

    /// A reference with a description: version 3 knows none beside `$ref`.
    fn described(&self, reference: Value, description: Option<&str>) -> Value {
        match (self.form, description) {
            (_, None) => reference,
            (Form::Two, Some(text)) => {
                let mut reference = reference;
                reference["description"] = text.into();
                reference
            }
            (Form::Three, Some(text)) => json!({"allOf": [reference], "default": {}, "description": text}),
        }
    }

    fn place(&mut self, schema: &SchemaRef) -> Value {
        match &schema.name {
            Some(name) => {
                self.wanted.push(schema.shared().clone());
                self.reference(name)
            }
            None => self.write(schema),
        }
    }

    fn write(&mut self, schema: &Schema) -> Value {
        let mut written = self.write_node(&schema.node);
        if let Some(map) = written.as_object_mut() {
            if let Some(description) = &schema.description {
                map.insert("description".into(), (&**description).into());
            }
            if let Some(default) = &schema.default {
                map.insert("default".into(), default.clone());
            }
        }
        written
    }

    fn write_node(&mut self, node: &Node) -> Value {
        match node {
            Node::Any => json!({"type": "object"}),
            Node::Object(object) => self.write_object(object),
            Node::Map(map) => {
                let mut written = json!({"type": "object", "additionalProperties": self.place(&map.values)});
                mark_atomic(&mut written, map.map_type == Ownership::Atomic);
                written
            }
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

    fn write_object(&mut self, object: &Object) -> Value {
        let mut properties = Map::new();
        for (name, property) in &object.properties {
            properties.insert(name.to_string(), self.write_property(property));
        }
        let mut written = json!({"type": "object"});
        if !properties.is_empty() {
            written["properties"] = properties.into();
        }
        if !object.required.is_empty() {
            written["required"] = object.required.iter().map(|name| Value::from(&**name)).collect();
        }
        mark_atomic(&mut written, object.map_type == Ownership::Atomic);
        written
    }

    fn write_property(&mut self, property: &Property) -> Value {
        let placed = self.place(&property.schema);
        let mut written = if placed.get("$ref").is_some() {
            self.described(placed, property.description.as_deref())
        } else {
            let mut placed = placed;
            if let (Some(map), Some(description)) = (placed.as_object_mut(), &property.description) {
                map.insert("description".into(), (&**description).into());
            }
            placed
        };
        let patch = &property.patch;
        let strategies =
            [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
        let strategies: Vec<&str> = strategies.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        if let Some(map) = written.as_object_mut() {
            if !strategies.is_empty() {
                map.insert("x-kubernetes-patch-strategy".into(), strategies.join(",").into());
            }
            if let Some(key) = &patch.merge_key {
                map.insert("x-kubernetes-patch-merge-key".into(), (&**key).into());
            }
            if property.atomic {
                map.insert("x-kubernetes-map-type".into(), "atomic".into());
            }
        }
        written
    }

    fn write_list(&mut self, list: &List) -> Value {
        let mut written = json!({"type": "array", "items": self.place(&list.items)});
        match &list.list_type {
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

fn mark_atomic(written: &mut Value, atomic: bool) {
    if atomic {
        written["x-kubernetes-map-type"] = "atomic".into();
    }
}

/// `com.example.v1.Widget`
fn reversed_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// Drops from a schema what version 2 does not know.
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
