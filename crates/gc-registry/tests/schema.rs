//! Tests schemas against documents: unknown fields, types, pruning, defaulting.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use gc_registry::schema::{
    Empties, IntegerFormat, List, MapNode, Node, Object, Property, Schema, SchemaRef, apply_defaults,
    builtin, check_types, normalize, prune, unknown_fields,
};
use serde_json::{Value, json};

fn object(properties: Vec<(&str, Schema)>) -> Schema {
    Schema::of(Node::Object(Object {
        properties: properties
            .into_iter()
            .map(|(name, schema)| (name.into(), Property { schema: schema.into(), ..Property::default() }))
            .collect(),
        ..Object::default()
    }))
}

fn string() -> Schema {
    Schema::of(Node::String(gc_registry::schema::StringFormat::Plain))
}

fn list(items: Schema) -> Schema {
    Schema::of(Node::List(List { items: SchemaRef::from(items), ..List::default() }))
}

fn map(values: Schema) -> Schema {
    Schema::of(Node::Map(MapNode { values: values.into(), ..MapNode::default() }))
}

#[test]
fn unknown_fields_of_built_in_kinds() {
    for (kind, document, want, left) in [
        (
            ("", "v1", "ConfigMap"),
            json!({"apiVersion": "v1", "metadata": {"name": "a", "colour": "red"}, "data": {"any": "key"}, "size": 3}),
            vec!["metadata.colour", "size"],
            json!({"apiVersion": "v1", "metadata": {"name": "a"}, "data": {"any": "key"}}),
        ),
        (
            ("", "v1", "Pod"),
            json!({"spec": {"containers": [
                {"name": "a", "ports": [{"containerPort": 1, "x": 1}]}, {"Name": "b", "resources": {"limits": {"x": 1}}}]}}),
            vec!["spec.containers[0].ports[0].x", "spec.containers[1].Name"],
            json!({"spec": {"containers": [
                {"name": "a", "ports": [{"containerPort": 1}]}, {"resources": {"limits": {"x": 1}}}]}}),
        ),
        (
            ("apps", "v1", "ControllerRevision"),
            json!({"data": {"anything": [{"fits": null}]}, "revision": 1, "metadata": {"managedFields": [
                {"fieldsV1": {"f:any": {}}, "x": 1}]}}),
            vec!["metadata.managedFields[0].x"],
            json!({"data": {"anything": [{"fits": null}]}, "revision": 1, "metadata": {"managedFields": [
                {"fieldsV1": {"f:any": {}}}]}}),
        ),
        (
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "deep": {"type": "object", "properties": {"deeper": {"x": 1, "default": {"y": 1}}}}}}}}]}}),
            vec!["spec.versions[0].schema.openAPIV3Schema.properties.deep.properties.deeper.x"],
            json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "deep": {"type": "object", "properties": {"deeper": {"default": {"y": 1}}}}}}}}]}}),
        ),
    ] {
        let schema = builtin(kind.0, kind.1, kind.2).unwrap();
        let want: Vec<String> = want.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
        assert_eq!(unknown_fields(&schema, &document), want);
        let (mut dropped, mut left) = (document, left);
        normalize(&schema, &mut dropped, Empties::Kept);
        // Fields that Go always encodes are present in both.
        normalize(&schema, &mut left, Empties::Kept);
        assert_eq!(dropped, left);
        assert_eq!(unknown_fields(&schema, &dropped), Vec::<String>::new());
    }
}

#[test]
fn null_is_what_go_makes_of_it() {
    let schema = builtin("apps", "v1", "Deployment").unwrap();
    let mut document = json!({
        "metadata": {"labels": {"a": null}, "annotations": null, "finalizers": [null], "ownerReferences": []},
        "spec": {"replicas": null, "strategy": {}, "template": {"spec": {
            "nodeSelector": {}, "containers": [], "volumes": [{"name": "v", "emptyDir": {}}, null]}}},
        "status": null,
    });
    normalize(&schema, &mut document, Empties::Null);
    let want = json!({
        "metadata": {"labels": {"a": ""}, "finalizers": [""]},
        "spec": {"selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {
            "containers": null, "volumes": [{"name": "v", "emptyDir": {}}, {"name": ""}]}}},
        "status": {},
    });
    assert_eq!(document, want);
}

#[test]
fn types_are_checked_in_the_words_of_go() {
    for (kind, document, want) in [
        ("ConfigMap", json!({"data": {"a": "b"}, "immutable": true, "unknown": 1, "metadata": null}), ""),
        (
            "ConfigMap",
            json!({"data": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "ConfigMap",
            json!({"data": "a"}),
            "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "ConfigMap",
            json!({"metadata": {"name": 1}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            "ConfigMap",
            json!({"metadata": []}),
            "json: cannot unmarshal array into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        ("ConfigMap", json!("x"), "json: cannot unmarshal string into Go value of type v1.ConfigMap"),
        ("ConfigMap", json!({"binaryData": {"a": "%"}}), "illegal base64 data at input byte 0"),
        (
            "ConfigMap",
            json!({"metadata": {"deletionTimestamp": "yesterday"}}),
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
        ),
        ("ConfigMap", json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"}}), ""),
        ("ConfigMap", json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05.5+02:00"}}), ""),
        (
            "Pod",
            json!({"spec": {"containers": {}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "Pod",
            json!({"spec": {"priority": 3_000_000_000_i64}}),
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            json!({"spec": {"activeDeadlineSeconds": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
        ),
        (
            "Service",
            json!({"spec": {"ports": [{"port": 1, "targetPort": "http"}, {"targetPort": true}]}}),
            "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            "ResourceQuota",
            json!({"spec": {"hard": {"cpu": 1, "memory": "1.5Gi", "a": "1e3", "b": "+5m"}}}),
            "",
        ),
        (
            "ResourceQuota",
            json!({"spec": {"hard": {"cpu": "much"}}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "ResourceQuota",
            json!({"spec": {"hard": {"cpu": "1KiB"}}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("ResourceQuota", json!({"spec": {"hard": {"cpu": "1mm"}}}), "unable to parse quantity's suffix"),
        ("Secret", json!({"data": {"a": [0, 255, null], "b": null}}), ""),
        (
            "Secret",
            json!({"data": {"a": [1, 256]}}),
            "json: cannot unmarshal number 256 into Go struct field Secret.data of type uint8",
        ),
        (
            "Secret",
            json!({"data": {"a": ["x"]}}),
            "json: cannot unmarshal string into Go struct field Secret.data of type uint8",
        ),
    ] {
        let group = if kind == "Lease" { "coordination.k8s.io" } else { "" };
        let schema = builtin(group, "v1", kind).unwrap();
        assert_eq!(check_types(&schema, &document).err().unwrap_or_default(), want, "{document}");
    }
}

/// Returns a custom resource with every shape that pruning and defaulting treat differently.
fn widget() -> Schema {
    let integer = |default: i64| Schema {
        default: Some(default.into()),
        ..Schema::of(Node::Integer(IntegerFormat::Int64))
    };
    let mut free = object(vec![("known", object(vec![("a", string())]))]);
    free.preserve_unknown = true;
    let mut embedded = object(vec![("spec", object(vec![("a", string())]))]);
    embedded.embedded_resource = true;
    let mut spec = object(vec![
        ("size", integer(3)),
        ("maybe", Schema { nullable: true, ..string() }),
        ("plain", string()),
        ("list", list(object(vec![("n", integer(1))]))),
        ("map", map(object(vec![("n", integer(2))]))),
        ("free", free),
        ("embedded", embedded),
    ]);
    spec.default = Some(json!({}));
    let mut root = object(vec![("spec", spec)]);
    root.embedded_resource = true;
    root
}

#[test]
fn structural_pruning() {
    let mut document = json!({
        "apiVersion": "a/v1", "kind": "Widget", "metadata": {"name": "w", "x": 1}, "extra": 1,
        "spec": {
            "unknown": 1, "list": [{"n": 1, "x": 1}], "map": {"any": {"x": 1}},
            "free": {"any": {"x": 1}, "known": {"a": "1", "b": "2"}},
            "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "y": 1}, "spec": {"b": 1}, "z": 1},
        },
    });
    let unknown: Vec<String> = [
        "extra",
        "metadata.x",
        "spec.embedded.metadata.y",
        "spec.embedded.spec.b",
        "spec.embedded.z",
        "spec.free.known.b",
        "spec.list[0].x",
        "spec.map.any.x",
        "spec.unknown",
    ]
    .map(|path| format!("unknown field \"{path}\""))
    .into();
    assert_eq!(unknown_fields(&widget(), &document), unknown);
    prune(&widget(), &mut document);
    let want = json!({
        "apiVersion": "a/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {
            "list": [{"n": 1}], "map": {"any": {}}, "free": {"any": {"x": 1}, "known": {"a": "1"}},
            "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
        },
    });
    assert_eq!(document, want);
}

#[test]
fn structural_defaulting() {
    for (document, want) in [
        (json!({}), json!({"spec": {"size": 3}})),
        (json!({"spec": null}), json!({"spec": {"size": 3}})),
        (json!({"spec": {"size": 5}}), json!({"spec": {"size": 5}})),
        (
            json!({"spec": {"size": null, "maybe": null, "plain": null}}),
            json!({"spec": {"size": 3, "maybe": null}}),
        ),
        (
            json!({"spec": {"size": 1, "list": [{}, {"n": 5}, null], "map": {"a": {}, "b": {"n": null}, "c": null}}}),
            json!({"spec": {"size": 1, "list": [{"n": 1}, {"n": 5}, null], "map": {"a": {"n": 2}, "b": {"n": 2}}}}),
        ),
    ] {
        let mut got: Value = document;
        apply_defaults(&widget(), &mut got);
        assert_eq!(got, want);
        let mut again = got.clone();
        apply_defaults(&widget(), &mut again);
        assert_eq!(again, got, "defaulting twice is defaulting once");
    }
}
