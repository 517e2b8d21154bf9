//! Schemas of the built-in types, built from the table of facts at the first use of a definition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::facts::{self, Fact, Flag, TypeCode};
use super::{
    GoType, IntegerFormat, List, ListType, MapNode, Node, Object, Ownership, PatchStrategy, Property, Schema,
    SchemaRef, StringFormat, kinds as table,
};
use crate::kubernetes::KubernetesVersion;

/// Definitions by name. Grows with the kinds in use, and is bounded by the table of facts.
static DEFINITIONS: Mutex<BTreeMap<Arc<str>, Arc<Schema>>> = Mutex::new(BTreeMap::new());

/// Returns the schema of a built-in kind, or `None` if there is no such kind.
#[must_use]
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Arc<Schema>> {
    static ROOTS: Mutex<BTreeMap<table::Row, Arc<Schema>>> = Mutex::new(BTreeMap::new());
    let row = table::row(group, version, kind)?;
    if let Some(schema) = ROOTS.lock().unwrap_or_else(PoisonError::into_inner).get(&row) {
        return Some(schema.clone());
    }
    let schema = definition_named(&definition_name(group, version, kind))?;
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner).insert(row, schema.clone());
    Some(schema)
}

/// Returns the name of a kind's definition, such as `io.k8s.api.apps.v1.Deployment`.
#[must_use]
pub(crate) fn definition_name(group: &str, version: &str, kind: &str) -> String {
    let package = match group {
        "" if kind == "Status" => "apimachinery.pkg.apis.meta".into(),
        "" => "api.core".into(),
        "apiextensions.k8s.io" => "apiextensions-apiserver.pkg.apis.apiextensions".into(),
        "apiregistration.k8s.io" => "kube-aggregator.pkg.apis.apiregistration".into(),
        "meta.k8s.io" => "apimachinery.pkg.apis.meta".into(),
        other => format!("api.{}", other.split('.').next().unwrap_or_default()),
    };
    format!("{}{package}.{version}.{kind}", facts::PREFIX)
}

/// Returns group, version and name of every built-in kind.
pub(crate) fn kinds() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    table::of(KubernetesVersion::chosen())
}

/// Returns the definition with a name that a schema refers to. The table contains every definition that it refers to, so the
/// fallback to "anything" is never used; it only avoids a panic.
pub(super) fn definition(name: &str) -> Arc<Schema> {
    definition_named(name).unwrap_or_default()
}

/// Returns a definition by its full name, or `None` if the table lacks it.
#[must_use]
pub(crate) fn definition_named(name: &str) -> Option<Arc<Schema>> {
    let mut definitions = DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = definitions.get(name) {
        return Some(found.clone());
    }
    let made = Arc::new(make(name)?);
    definitions.insert(name.into(), Arc::clone(&made));
    Some(made)
}

fn make(name: &str) -> Option<Schema> {
    let fact = facts::of(name.strip_prefix(facts::PREFIX)?)?;
    let mut schema = match special(name) {
        Some(node) => Schema { preserve_unknown: node == Node::Any, ..Schema::of(node) },
        None => Schema::of(object(&fact)),
    };
    schema.name = Some(name.into());
    Some(schema)
}

/// Returns the schema of a type that encodes itself, by the last parts of its name.
fn special(name: &str) -> Option<Node> {
    let (path, last) = name.rsplit_once('.')?;
    Some(match last {
        "Time" if path.ends_with("meta.v1") => Node::String(StringFormat::DateTime),
        "MicroTime" if path.ends_with("meta.v1") => Node::String(StringFormat::MicroTime),
        "Duration" if path.ends_with("meta.v1") => Node::String(StringFormat::Duration),
        "Quantity" if path.ends_with("api.resource") => Node::Quantity,
        "IntOrString" => Node::IntOrString,
        "RawExtension"
        | "FieldsV1"
        | "JSON"
        | "JSONSchemaPropsOrArray"
        | "JSONSchemaPropsOrBool"
        | "JSONSchemaPropsOrStringArray" => Node::Any,
        _ => return None,
    })
}

fn ownership(atomic: bool) -> Ownership {
    if atomic { Ownership::Atomic } else { Ownership::Granular }
}

fn object(fact: &Fact) -> Node {
    let mut object = Object { map_type: ownership(fact.atomic()), union: fact.union(), ..Object::default() };
    for line in fact.fields() {
        let Some((name, code, flags)) = facts::field(line) else { continue };
        let name: Arc<str> = name.into();
        let property = property(code, flags.clone());
        if flags.clone().any(|flag| flag == Flag::Required) {
            object.required.push(Arc::clone(&name));
        }
        if property.always {
            object.always.push(Arc::clone(&name));
        }
        object.properties.insert(name, property);
    }
    Node::Object(object)
}

fn property(code: TypeCode, flags: facts::Flags) -> Property {
    let mut property = Property::default();
    let (mut list, mut keys, mut map, mut default) = ("", "", "", None);
    let mut omit_zero = false;
    for flag in flags {
        match flag {
            Flag::Pointer => property.pointer = true,
            Flag::OmitEmpty => property.omit_empty = true,
            Flag::OmitZero => omit_zero = true,
            Flag::Required | Flag::GoName(_) => {}
            Flag::List(kind) => list = kind,
            Flag::Keys(names) => keys = names,
            Flag::Map(kind) => map = kind,
            Flag::Patch(strategies) => property.patch = patch_strategy(strategies, property.patch.merge_key),
            Flag::MergeKey(key) => property.patch.merge_key = Some(key.into()),
            Flag::Off => property.is_off = true,
            Flag::Default(text) => default = serde_json::from_str(text).ok(),
            Flag::In(embedded) => property.embedded_in.push(embedded),
        }
    }
    property.map_type = (!map.is_empty()).then_some(ownership(map == "atomic"));
    // Raw objects are a unit in server-side apply.
    property.atomic =
        map == "atomic" || matches!(code, TypeCode::Definition(name) if name.ends_with(".RawExtension"));
    property.schema = match code {
        TypeCode::Definition(name) => SchemaRef::named(format!("{}{name}", facts::PREFIX).into()),
        code => {
            let mut schema = inline(code);
            match &mut schema.node {
                Node::List(node) => node.list_type = list_type(list, keys),
                Node::Map(node) => node.map_type = ownership(property.atomic),
                node if !property.pointer && !property.omit_empty => {
                    schema.default = default.take().or_else(|| super::types::scalar(node));
                }
                _ => {}
            }
            schema.default = schema.default.take().or(default);
            schema.into()
        }
    };
    // Go always encodes structs that are not pointers, and fields that are not marked as omitted when empty.
    let is_struct = matches!(code, TypeCode::Definition(_)) && !property.pointer;
    property.always = if is_struct { !omit_zero } else { !property.omit_empty };
    property
}

fn patch_strategy(strategies: &str, merge_key: Option<Arc<str>>) -> PatchStrategy {
    let has = |name: &str| strategies.split(',').any(|one| one == name);
    PatchStrategy { merge: has("merge"), replace: has("replace"), retain_keys: has("retainKeys"), merge_key }
}

fn list_type(kind: &str, keys: &str) -> ListType {
    match kind {
        "set" => ListType::Set,
        "map" => ListType::Map(keys.split(',').map(Into::into).collect()),
        "atomic" => ListType::Atomic,
        _ => ListType::Unspecified,
    }
}

/// Returns the schema for use in a field, in items or in values.
fn inline(code: TypeCode) -> Schema {
    let (node, go) = match code {
        TypeCode::Definition(_) => (Node::Any, None),
        TypeCode::Scalar(kind, go) => (scalar_node(kind), go),
        TypeCode::List(items, go) => {
            (Node::List(List { items: reference(items), list_type: ListType::Unspecified }), go)
        }
        TypeCode::Map(values, go) => {
            (Node::Map(MapNode { values: reference(values), map_type: Ownership::Granular }), go)
        }
    };
    let go = go.map(|text| {
        let mut parts = text.split('|');
        let name = parts.next().unwrap_or_default();
        Box::new(GoType { name, enumeration: parts.collect() })
    });
    Schema { go, ..Schema::of(node) }
}

fn scalar_node(kind: char) -> Node {
    match kind {
        'b' => Node::Boolean,
        'i' => Node::Integer(IntegerFormat::Int32),
        'l' => Node::Integer(IntegerFormat::Int64),
        'd' => Node::Number,
        'y' => Node::String(StringFormat::Byte),
        _ => Node::String(StringFormat::Plain),
    }
}

fn reference(code: &'static str) -> SchemaRef {
    match facts::type_code(code) {
        TypeCode::Definition(name) => SchemaRef::named(format!("{}{name}", facts::PREFIX).into()),
        code => inline(code).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::descriptions::descriptions;

    /// Every kind must have a definition, every definition may only refer to definitions in the table, and list and merge keys must
    /// name fields of the items.
    #[test]
    fn the_table_is_complete_and_coherent() {
        for (group, version, kind) in kinds() {
            let schema = builtin(group, version, kind).unwrap_or_else(|| panic!("{group}/{version} {kind}"));
            assert!(schema.field("metadata").is_some(), "{kind} has no metadata");
        }
        for name in facts::names() {
            let schema = definition_named(&format!("{}{name}", facts::PREFIX)).expect("listed");
            let Node::Object(object) = &schema.node else { continue };
            for (field, property) in &object.properties {
                assert_refers(&property.schema, &format!("{name}.{field}"));
                let Node::List(list) = &property.schema.node else {
                    assert_eq!(property.patch.merge_key, None, "{name}.{field}");
                    continue;
                };
                let keys = match &list.list_type {
                    ListType::Map(keys) => keys.clone(),
                    _ => Vec::new(),
                };
                for key in keys.iter().chain(&property.patch.merge_key) {
                    assert!(list.items.field(key).is_some(), "{name}.{field} has no key {key}");
                }
            }
        }
    }

    /// Checks the table of each version without building its schemas, because a process has a single version.
    #[test]
    fn the_table_of_each_version_refers_to_its_own_types() {
        for version in KubernetesVersion::ALL {
            let types: BTreeMap<&str, Fact> = facts::types_of(version).collect();
            for (name, fact) in &types {
                for line in fact.fields() {
                    let (field, mut code, _) = facts::field(line).unwrap_or_else(|| panic!("{name}: {line}"));
                    while let TypeCode::List(inner, _) | TypeCode::Map(inner, _) = code {
                        code = facts::type_code(inner);
                    }
                    if let TypeCode::Definition(of) = code {
                        assert!(types.contains_key(of), "{version}: {name}.{field} refers to {of}");
                    }
                }
            }
            for (group, in_version, kind) in table::of(version) {
                let name = definition_name(group, in_version, kind);
                let known = name.strip_prefix(facts::PREFIX).is_some_and(|name| types.contains_key(name));
                assert!(known, "{version}: {name}");
            }
        }
    }

    fn assert_refers(schema: &SchemaRef, place: &str) {
        match &schema.node {
            Node::List(list) => assert_refers(&list.items, place),
            Node::Map(map) => assert_refers(&map.values, place),
            _ => assert_ne!(**schema, Schema::default(), "{place} refers to nothing"),
        }
    }

    /// The descriptions come from another source than the facts: both must contain the same definitions and fields.
    #[test]
    fn facts_and_descriptions_know_the_same_fields() {
        let mut missing = Vec::new();
        for (name, fields) in descriptions() {
            let Some(schema) = definition_named(name) else {
                missing.push(name.clone());
                continue;
            };
            let Node::Object(object) = &schema.node else { continue };
            for field in fields.keys().filter(|field| !field.is_empty()) {
                if !object.properties.contains_key(field.as_str()) {
                    missing.push(format!("{name}.{field}"));
                }
            }
        }
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn unknown_kinds_have_no_schema() {
        for (group, version, kind) in
            [("", "v2", "Pod"), ("apps", "v1", "Pod"), ("example.com", "v1", "Widget")]
        {
            assert_eq!(builtin(group, version, kind), None, "{group} {version} {kind}");
        }
    }
}
