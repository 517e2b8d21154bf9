#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::crd;
use crate::resource::ResourceDefinition;

fn widgets(schema: &Value) -> Vec<Arc<ResourceDefinition>> {
    let definition = json!({"spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
        }],
    }});
    crd::definitions(&definition).unwrap().into_iter().map(Arc::new).collect()
}

fn catalog() -> Catalog {
    Catalog::with_custom(&widgets(&json!({"type": "object", "description": "A widget.", "properties": {
        "spec": {"type": "object", "properties": {"n": {"type": "integer", "nullable": true}}},
    }})))
}

/// Collects all references of a document that lead nowhere.
fn dangling(document: &Value, schemas: &Value, prefix: &str, found: &mut Vec<String>) {
    match document {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                let name = reference.strip_prefix(prefix).unwrap_or_default();
                if schemas.get(name).is_none_or(Value::is_null) {
                    found.push(reference.clone());
                }
            }
            map.values().for_each(|value| dangling(value, schemas, prefix, found));
        }
        Value::Array(items) => items.iter().for_each(|value| dangling(value, schemas, prefix, found)),
        _ => {}
    }
}

#[test]
fn every_document_is_closed_under_references() {
    let catalog = catalog();
    let index = v3_index(&catalog);
    assert!(index["paths"].as_object().unwrap().len() > 20);
    for group in catalog.groups() {
        for version in &group.versions {
            let path = group_version_path(&group.name, &version.version);
            let hash = v3_hash(&catalog, &path).unwrap();
            assert_eq!(index["paths"][&path]["serverRelativeURL"], format!("/openapi/v3/{path}?hash={hash}"));
            let document = v3_document(&catalog, &path).unwrap();
            let mut missing = Vec::new();
            dangling(&document, &document["components"]["schemas"], "#/components/schemas/", &mut missing);
            assert_eq!(missing, Vec::<String>::new(), "{path}");
            for resource in &version.resources {
                let gvk =
                    json!([{"group": *resource.group, "version": *resource.version, "kind": *resource.kind}]);
                let schemas = document["components"]["schemas"].as_object().unwrap();
                let described =
                    schemas.values().any(|schema| schema["x-kubernetes-group-version-kind"] == gvk);
                assert!(described, "{path} {}", resource.kind);
            }
        }
    }
    let document = v2_document(&catalog);
    let mut missing = Vec::new();
    dangling(&document, &document["definitions"], "#/definitions/", &mut missing);
    let shared = document["parameters"].as_object().unwrap();
    missing.retain(|reference| {
        !reference.strip_prefix("#/parameters/").is_some_and(|name| shared.contains_key(name))
    });
    assert_eq!(missing, Vec::<String>::new());
    assert_eq!(v3_document(&catalog, "apis/absent.example.com/v1"), None);
    assert_eq!(v3_hash(&catalog, "apis/absent.example.com/v1"), None);
}

/// kubectl checks these before it sends `fieldValidation` or computes a strategic merge patch.
#[test]
fn patches_name_their_parameters_and_media_types() {
    let catalog = catalog();
    for (group, version, path, strategic) in [
        ("apps", "v1", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", true),
        ("", "v1", "/api/v1/namespaces/{name}", true),
        ("", "v1", "/api/v1/namespaces/{namespace}/pods/{name}/status", true),
        ("example.com", "v1", "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}", false),
    ] {
        let document = v3_document(&catalog, &group_version_path(group, version)).unwrap();
        let patch = &document["paths"][path]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["group"], group, "{path}");
        let names: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"], "{path}");
        let content = patch["requestBody"]["content"].as_object().unwrap();
        assert_eq!(content.contains_key("application/strategic-merge-patch+json"), strategic, "{path}");
        assert!(content.contains_key("application/apply-patch+yaml"), "{path}");
    }
    let two = v2_document(&catalog);
    let patch = &two["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(patch["consumes"].as_array().unwrap().len(), 4);
}

#[test]
fn schemas_carry_what_clients_read() {
    let catalog = catalog();
    let core = v3_document(&catalog, "api/v1").unwrap();
    let schemas = &core["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(
        (&containers["type"], &containers["items"], &containers["x-kubernetes-list-map-keys"]),
        (
            &json!("array"),
            &json!({"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}),
            &json!(["name"])
        )
    );
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert!(containers["description"].as_str().is_some_and(|text| text.starts_with("List of containers")));
    let metadata = &schemas["io.k8s.api.core.v1.Pod"]["properties"]["metadata"];
    assert_eq!(
        metadata["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}])
    );
    assert!(metadata["description"].is_string());
    assert_eq!(
        schemas["io.k8s.api.core.v1.PodList"]["properties"]["items"]["items"],
        json!({"$ref": "#/components/schemas/io.k8s.api.core.v1.Pod"})
    );
    let two = v2_document(&catalog);
    let metadata = &two["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["metadata"];
    assert_eq!(metadata["$ref"], "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
}

/// The same as in kube-apiserver 1.36.2.
#[test]
fn kinds_of_every_group_are_registered_where_the_document_is() {
    let catalog = catalog();
    let three = |path: &str| v3_document(&catalog, path).unwrap()["components"]["schemas"].clone();
    let two = v2_document(&catalog)["definitions"].clone();
    for (schemas, kind, count) in [
        (three("api/v1"), "DeleteOptions", 1),
        (three("api/v1"), "WatchEvent", 1),
        (three("apis/apps/v1"), "DeleteOptions", 2),
        (three("apis/apps/v1"), "WatchEvent", 2),
        (three("apis/apps/v1"), "Status", 1),
        (three("apis/example.com/v1"), "DeleteOptions", 53),
        (two.clone(), "DeleteOptions", 60),
        (two, "WatchEvent", 60),
    ] {
        let marks = schemas[format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")]
            ["x-kubernetes-group-version-kind"]
            .clone();
        let marks = marks.as_array().unwrap();
        assert_eq!(marks.len(), count, "{kind} {marks:?}");
        assert_eq!(marks[0], json!({"group": "", "version": "v1", "kind": kind}));
        let places: Vec<String> =
            marks.iter().map(|one| format!("{}/{}", one["group"], one["version"])).collect();
        assert!(places.is_sorted(), "{places:?}");
        if count == 2 {
            assert_eq!(marks[1], json!({"group": "apps", "version": "v1", "kind": kind}));
        }
    }
}

#[test]
fn descriptions_name_values_lists_and_events() {
    let catalog = catalog();
    let core = v3_document(&catalog, "api/v1").unwrap();
    let schemas = &core["components"]["schemas"];
    let description = |path: &str| schemas.pointer(path).unwrap()["description"].as_str().unwrap();
    let values = description("/io.k8s.api.core.v1.AzureDiskVolumeSource/properties/cachingMode");
    let wanted = "\n\nPossible enum values:\n - `\"None\"`\n - `\"ReadOnly\"`\n - `\"ReadWrite\"`";
    assert!(values.starts_with("cachingMode is the ") && values.ends_with(wanted), "{values}");
    for field in
        ["", "/properties/apiVersion", "/properties/kind", "/properties/metadata", "/properties/items"]
    {
        assert_ne!(description(&format!("/io.k8s.api.core.v1.PodList{field}")), "");
    }
    let event = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"];
    assert_eq!(event["description"], "Event represents a single event to a watched resource.");
    let object = &event["properties"]["object"];
    assert!(object["description"].as_str().unwrap().starts_with("Object is:\n"));
    let raw = "#/components/schemas/io.k8s.apimachinery.pkg.runtime.RawExtension";
    assert_eq!(object["allOf"], json!([{"$ref": raw}]));
    let groups = v3_document(&catalog, "apis").unwrap();
    for kind in ["APIGroupList", "APIGroup", "GroupVersionForDiscovery", "ServerAddressByClientCIDR"] {
        let schema = &groups["components"]["schemas"][format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")];
        assert!(schema["description"].is_string(), "{kind}");
    }
    let delete = &core["paths"]["/api/v1/namespaces/{name}"]["delete"];
    let begins = [
        ("dryRun", "When present, indicates that modifications"),
        ("gracePeriodSeconds", "The duration in seconds"),
        ("ignoreStoreReadErrorWithClusterBreakingPotential", "if set to true, it will trigger"),
        ("orphanDependents", "Deprecated: please use"),
        ("propagationPolicy", "Whether and how garbage collection"),
    ];
    for (parameter, (name, begin)) in delete["parameters"].as_array().unwrap().iter().zip(begins) {
        assert_eq!(parameter["name"], name);
        assert!(parameter["description"].as_str().unwrap().starts_with(begin), "{parameter}");
    }
    let deleted = &delete["responses"]["200"];
    assert_eq!(
        deleted["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Status"
    );
}

#[test]
fn custom_resources_stand_under_their_reversed_group() {
    let catalog = catalog();
    let document = v3_document(&catalog, "apis/example.com/v1").unwrap();
    let widget = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(widget["description"], "A widget.");
    assert_eq!(widget["properties"]["spec"]["properties"]["n"], json!({"type": "integer", "nullable": true}));
    assert!(widget["properties"]["metadata"]["allOf"].is_array());
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "example.com", "version": "v1", "kind": "Widget"}])
    );
    let scale = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/scale"]["get"];
    assert_eq!(
        scale["x-kubernetes-group-version-kind"],
        json!({"group": "example.com", "version": "v1", "kind": "Widget"})
    );
    assert_eq!(scale["parameters"][0]["name"], "resourceVersion");
    assert_eq!(document["info"], json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}));
    assert_eq!(document["components"]["securitySchemes"], Value::Null);
    let collection = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets"]["delete"];
    assert_eq!(collection["requestBody"], Value::Null);
    assert_eq!(collection["parameters"].as_array().unwrap().len(), 11);
    let two = v2_document(&catalog);
    assert_eq!(
        two["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]["n"],
        json!({"type": "integer"})
    );
}

#[test]
fn a_schema_that_keeps_unknown_fields_says_nothing_of_them_in_version_2() {
    let schema =
        json!({"type": "object", "description": "Anything.", "x-kubernetes-preserve-unknown-fields": true});
    let catalog = Catalog::with_custom(&widgets(&schema));
    let widget =
        |document: &Value, place: &str| document.pointer(place).unwrap()["com.example.v1.Widget"].clone();
    let kind = json!([{"group": "example.com", "version": "v1", "kind": "Widget"}]);
    assert_eq!(
        widget(&v2_document(&catalog), "/definitions"),
        json!({"type": "object", "x-kubernetes-group-version-kind": kind})
    );
    let three = v3_document(&catalog, "apis/example.com/v1").unwrap();
    assert_eq!(widget(&three, "/components/schemas")["x-kubernetes-preserve-unknown-fields"], true);
}

#[test]
fn a_hash_changes_with_its_document_only() {
    let (one, other) = (catalog(), Catalog::with_custom(&widgets(&json!({"type": "object"}))));
    assert_eq!(v3_hash(&one, "apis/apps/v1"), v3_hash(&other, "apis/apps/v1"));
    assert_ne!(v3_hash(&one, "apis/example.com/v1"), v3_hash(&other, "apis/example.com/v1"));
    assert_ne!(v2_hash(&one), v2_hash(&other));
}
