//! Tests updates.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod declared;
mod world;

use gc_registry::api::{DeleteOptions, ListOptions, Operation, PatchType, WriteOptions};
use gc_registry::kubernetes::KubernetesVersion;
use serde_json::{Value, json};
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
        // The labels of the template are shown only if there are no others.
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
    for (replicas, wanted) in [(3, vec![json!("scale")]), (0, vec![]), (1, vec![])] {
        let scale =
            json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": replicas}});
        world.update("apps/v1/deployments/scale", "default/a", scale).unwrap();
        assert_eq!(owners(), wanted, "{replicas}");
    }
}

/// Every verb must answer a dry run like a write, with the stored version, and store nothing.
#[test]
fn a_dry_run_of_any_verb_stores_nothing() {
    let world = World::default();
    let stored =
        world.create("v1/configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).unwrap();
    let options =
        || WriteOptions { dry_run: true, field_manager: "m".into(), force: None, ..WriteOptions::default() };
    let dry_delete = || DeleteOptions { dry_run: vec!["All".into()], ..DeleteOptions::default() };
    let named = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"l": "w"}});
    let patch =
        |kind: PatchType, patch: serde_json::Value| Operation::Patch(kind, world::request(patch), options());
    let json_patch = json!([{"op": "add", "path": "/data/l", "value": "w"}]);
    let data = json!({"data": {"l": "w"}});
    let both = json!({"k": "v", "l": "w"});
    let replaced = json!({"l": "w"});
    let (before, uid) = (world.version(), &stored["metadata"]["uid"]);
    let mut watch = world
        .watch(
            "v1/configmaps",
            "default",
            &ListOptions { resource_version: before.clone(), ..ListOptions::default() },
        )
        .unwrap();
    for (what, place, operation, code, expected) in [
        (
            "create",
            "default/b",
            Operation::Create(world::request(named("b")), options()),
            201,
            Some((&replaced, false)),
        ),
        ("apply", "default/b", patch(PatchType::Apply, named("b")), 201, Some((&replaced, false))),
        (
            "update",
            "default/a",
            Operation::Update(world::request(named("a")), options()),
            200,
            Some((&replaced, true)),
        ),
        ("json", "default/a", patch(PatchType::Json, json_patch), 200, Some((&both, true))),
        ("merge", "default/a", patch(PatchType::Merge, data.clone()), 200, Some((&both, true))),
        ("strategic", "default/a", patch(PatchType::StrategicMerge, data), 200, Some((&both, true))),
        ("apply", "default/a", patch(PatchType::Apply, named("a")), 200, Some((&both, true))),
        ("delete", "default/a", Operation::Delete(dry_delete()), 200, None),
        ("all", "default", Operation::DeleteCollection(ListOptions::default(), dry_delete()), 200, None),
    ] {
        let place = if what == "create" { "default" } else { place };
        let answer = world.run("v1/configmaps", place, operation).unwrap();
        assert_eq!(answer.code, code, "{what} {place}");
        if let Some((data, exists)) = expected {
            let object = world::body(&answer);
            let metadata = &object["metadata"];
            assert_eq!(&object["data"], data, "{what} {place}");
            assert!(
                metadata["uid"].is_string() && metadata["creationTimestamp"].is_string(),
                "{what} {place}"
            );
            assert_eq!(&metadata["uid"] == uid, exists, "{what} {place}");
            // An object that is not stored has no version.
            let known = exists.then(|| stored["metadata"]["resourceVersion"].clone());
            assert_eq!(metadata.get("resourceVersion").cloned(), known, "{what} {place}");
        }
    }
    assert_eq!(world.version(), before);
    assert_eq!(world.events(&mut watch), []);
    assert_eq!(world.get("v1/configmaps", "default/a").unwrap(), stored);
    assert_eq!(world.get("v1/configmaps", "default/b").unwrap_err().code, 404);
}

/// An update that changes one part of the metadata must report each field as often as upstream does.
#[test]
fn metadata_is_looked_at_as_often_as_upstream_does() {
    let world = World::default();
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let volume =
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    for (resource, mut object) in [
        ("v1/configmaps", json!({})),
        ("v1/podtemplates", json!({"template": {"spec": pod}})),
        ("v1/limitranges", json!({})),
        ("v1/persistentvolumes", json!({"spec": volume})),
    ] {
        object["metadata"] = json!({"name": "a", "labels": {"k": "v"}});
        world.create(resource, object).unwrap();
    }
    let long = json!([{"manager": "m".repeat(129), "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:k": {}}}}}]);
    let table = [
        (json!({"annotations": {"Bad Key!": "v"}}), "metadata.annotations", [4, 3, 3, 4]),
        (json!({"generateName": "a/"}), "metadata.generateName", [2, 1, 2, 3]),
        (json!({"generateName": "Bad"}), "metadata.generateName", [1, 0, 1, 2]),
        (json!({"finalizers": ["a b/c"]}), "metadata.finalizers", [2, 1, 2, 3]),
        (json!({"finalizers": ["plain"]}), "metadata.finalizers[0]", [2, 1, 1, 2]),
        (json!({"managedFields": long}), "metadata.managedFields[0].manager", [4, 3, 3, 4]),
        (json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}), "metadata.deletionTimestamp", [2, 2, 1, 1]),
    ];
    let places = [
        ("v1/configmaps", "default/a"),
        ("v1/podtemplates", "default/a"),
        ("v1/limitranges", "default/a"),
        ("v1/persistentvolumes", "/a"),
    ];
    for (change, field, wanted) in table {
        let named = places.map(|(resource, place)| {
            let causes = match world.merge(resource, place, json!({"metadata": change})) {
                Err(error) => error.details.map(|details| details.causes).unwrap_or_default(),
                Ok(_) => Vec::new(),
            };
            causes.iter().filter(|cause| cause.field == field).count()
        });
        assert_eq!(named, wanted, "{change}");
        for (resource, place) in places {
            world.merge(resource, place, json!({"metadata": {"generateName": null}})).unwrap();
        }
    }
}

#[test]
fn what_is_absent_and_what_is_null_are_one_generation() {
    let world = World::default();
    let backend = json!({"defaultBackend": {"resource": {"kind": "Secret", "name": "s"}}});
    let created = world
        .create("networking.k8s.io/v1/ingresses", json!({"metadata": {"name": "a"}, "spec": backend}))
        .unwrap();
    let updated = world.update("networking.k8s.io/v1/ingresses", "default/a", created.clone()).unwrap();
    assert_eq!(updated, created);
    let changed = world.merge(
        "networking.k8s.io/v1/ingresses",
        "default/a",
        json!({"spec": {"ingressClassName": "c"}}),
    );
    assert_eq!(changed.unwrap()["metadata"]["generation"], 2);
}

#[test]
fn an_update_that_leaves_out_the_priority_keeps_it() {
    let world = World::default();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = world.create("v1/pods", pod).unwrap();
    let mut sent = created.clone();
    for name in ["priority", "preemptionPolicy"] {
        sent["spec"].as_object_mut().unwrap().remove(name).unwrap();
    }
    assert_eq!(world.update("v1/pods", "default/a", sent).unwrap(), created);
}

#[test]
fn odd_sources_of_claims_are_dropped_where_none_was_in_use() {
    let world = World::default();
    let claim = |name: &str, source: serde_json::Value| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": source});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let odd = json!({"apiGroup": "x.io", "kind": "K", "name": "n"});
    let resource = "v1/persistentvolumeclaims";
    let created = world.create(resource, claim("a", odd.clone())).unwrap();
    assert_eq!(created["spec"].get("dataSource"), None);
    let patched = world.merge(resource, "default/a", json!({"spec": {"dataSource": odd}})).unwrap();
    assert_eq!(patched["spec"], created["spec"]);
    world.create(resource, claim("b", json!({"kind": "PersistentVolumeClaim", "name": "a"}))).unwrap();
    assert_eq!(
        world.merge(resource, "default/b", json!({"spec": {"dataSource": odd}})).unwrap_err().code,
        422
    );
}

#[test]
fn a_strategic_merge_patch_makes_its_kind_whatever_it_says() {
    let world = World::default();
    world.create("v1/configmaps", json!({"metadata": {"name": "a"}})).unwrap();
    let patch = json!({"apiVersion": "x/v9", "kind": "X", "data": {"k": "v"}});
    let patch =
        |kind: PatchType| Operation::Patch(kind, world::request(patch.clone()), WriteOptions::default());
    let answer = world.run("v1/configmaps", "default/a", patch(PatchType::StrategicMerge)).unwrap();
    let object = world::body(&answer);
    assert_eq!((&object["kind"], &object["data"]), (&json!("ConfigMap"), &json!({"k": "v"})));
    assert_eq!(world.run("v1/configmaps", "default/a", patch(PatchType::Merge)).unwrap_err().code, 422);
}

#[test]
fn a_status_for_an_object_is_read_before_it_is_refused() {
    let world = World::default();
    world.create("v1/configmaps", json!({"metadata": {"name": "a"}})).unwrap();
    let refused = |body| world.update("v1/configmaps", "default/a", body).unwrap_err().message;
    let status = |rest: serde_json::Value| {
        let mut status = json!({"apiVersion": "v1", "kind": "Status"});
        status.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        status
    };
    assert_eq!(
        refused(status(json!({}))),
        "Status in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Status) to (core.ConfigMap): unknown \
         conversion"
    );
    assert_eq!(
        refused(status(json!({"status": {}}))),
        "Status in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal object into Go struct field \
         Status.status of type string"
    );
}

/// The storage path is known only when something is stored, and only storing drops selfLink.
#[test]
fn a_dry_run_is_answered_from_before_the_store() {
    let world = World::default();
    let stored = world.create("v1/configmaps", json!({"metadata": {"name": "a"}})).unwrap();
    let update = |object: &serde_json::Value, dry_run| {
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        let operation = Operation::Update(world::request(object.clone()), options);
        world.run("v1/configmaps", "default/a", operation)
    };
    for (dry_run, root, link) in
        [(true, "Key: /configmaps/", json!("/x")), (false, "Key: /registry/", json!(null))]
    {
        let mut other = stored.clone();
        other["metadata"]["uid"] = "x".into();
        let conflict = update(&other, dry_run).unwrap_err().message;
        assert!(conflict.contains(root), "{conflict}");
        let mut linked = stored.clone();
        linked["metadata"]["selfLink"] = "/x".into();
        assert_eq!(world::body(&update(&linked, dry_run).unwrap())["metadata"]["selfLink"], link);
    }
}

/// A patched Scale must remain the Scale of the same object.
#[test]
fn a_patch_makes_no_other_scale() {
    let world = World::default();
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let made = world.create("apps/v1/deployments", json!({"metadata": {"name": "d"}, "spec": spec})).unwrap();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let refused = |patch: Value| {
        let error = world.merge("apps/v1/deployments/scale", "default/d", patch).unwrap_err();
        let why = error.message.rsplit("}\": ").next().unwrap_or_default().to_owned();
        (error.code, why)
    };
    let unknown = "no kind \"Scale\" is registered for version \"autoscaling/v2\" in scheme \
                   \"pkg/api/legacyscheme/scheme.go:30\"";
    let other = format!(
        "Operation cannot be fulfilled on deployments/scale.apps \"d\": Precondition failed: UID in precondition: x, UID \
         in object meta: {uid}"
    );
    for (patch, expected) in [
        (json!({"apiVersion": "autoscaling/v2"}), (422, unknown.to_owned())),
        (
            json!({"apiVersion": "v1", "kind": "Pod"}),
            (422, "converting (v1.Pod) to (autoscaling.Scale): unknown conversion".to_owned()),
        ),
        (json!({"metadata": {"uid": "x"}}), (409, other)),
    ] {
        assert_eq!(refused(patch.clone()), expected, "{patch}");
    }
    world.merge("apps/v1/deployments/scale", "default/d", json!({"metadata": {"uid": uid}})).unwrap();
}

/// What 1.37 refuses by rules that are declared with the types, 1.36 refuses by written ones.
#[test]
fn declared_rules_of_1_37_are_written_ones_of_1_36() {
    declared::check(KubernetesVersion::V1_36);
}
