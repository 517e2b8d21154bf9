//! What an update writes.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod world;

use serde_json::json;
use world::{World, version};

#[test]
fn what_an_object_shows_by_default_is_stored_with_its_first_update() {
    let world = World::default();
    let job = |name: &str, labels: serde_json::Value| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"template": {"spec": pod}}})
    };
    let claim = json!({"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    for (resource, object, is_write) in [
        ("v1/persistentvolumeclaims", claim, true),
        ("batch/v1/jobs", job("a", json!({})), true),
        // The labels of the template are shown only where there are none.
        ("batch/v1/jobs", job("b", json!({"own": "label"})), false),
        ("v1/configmaps", json!({"metadata": {"name": "a"}}), false),
    ] {
        let created = world.create(resource, object).unwrap();
        let place = format!("default/{}", created["metadata"]["name"].as_str().unwrap());
        let first = world.update(resource, &place, created.clone()).unwrap();
        assert_eq!(version(&first) != version(&created), is_write, "{resource} {place}");
        let second = world.merge(resource, &place, json!({})).unwrap();
        assert_eq!(second, first, "{resource} {place}");
    }
}

#[test]
fn managers_do_not_own_what_the_server_keeps_of_an_absent_field() {
    let world = World::default();
    let claim = json!({"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "b"}, "resources": {"requests": {"storage": "1Gi"}}}});
    let owned =
        |object: &serde_json::Value| object["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].clone();
    let mut created = world.create("v1/persistentvolumeclaims", claim).unwrap();
    let rest = json!({"f:accessModes": {}, "f:resources": {"f:requests": {".": {}, "f:storage": {}}}, "f:volumeMode": {}});
    let mut all = rest.clone();
    all["f:dataSource"] = json!({});
    assert_eq!(owned(&created), all);
    created["spec"].as_object_mut().unwrap().remove("dataSource");
    let updated = world.update("v1/persistentvolumeclaims", "default/a", created).unwrap();
    assert_eq!(updated["spec"]["dataSource"]["name"], "b");
    assert_eq!(owned(&updated), rest);
}

#[test]
fn nobody_manages_the_replicas_of_what_is_scaled_to_nothing() {
    let world = World::default();
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pod});
    world.create("apps/v1/deployments", json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    let owners = || {
        let object = world.get("apps/v1/deployments", "default/a").unwrap();
        let entries = object["metadata"]["managedFields"].as_array().unwrap().clone();
        let owns = |entry: &&serde_json::Value| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some();
        entries.iter().filter(owns).map(|entry| entry["subresource"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(owners(), [json!(null)]);
    for (replicas, wanted) in [(3, vec![json!("scale")]), (0, vec![]), (1, vec![json!("scale")])] {
        let scale =
            json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": replicas}});
        world.update("apps/v1/deployments/scale", "default/a", scale).unwrap();
        assert_eq!(owners(), wanted, "{replicas}");
    }
}
