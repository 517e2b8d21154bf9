//! Cost of patches and of the ownership of fields: `cargo bench -p gc-registry --bench patch`.
#![allow(missing_docs)] // of what criterion's macros generate
#![allow(clippy::unwrap_used)] // a benchmark that cannot go on has failed

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gc_registry::patch::managed_fields::{ManagerRequest, apply, update};
use gc_registry::patch::{json_patch, merge_patch, strategic_merge_patch};
use gc_registry::schema::{Empties, Schema, builtin, check_types, normalize, unknown_fields};
use serde_json::{Value, json};

fn request<'a>(schema: &'a Schema, api_version: &'a str, kind: &'a str) -> ManagerRequest<'a> {
    ManagerRequest {
        manager: "bench",
        api_version,
        kind,
        subresource: "",
        now: jiff::Timestamp::from_second(1_700_000_000).unwrap(),
        schema: Some(schema),
        reset: &[&["status"]],
    }
}

fn config_map() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "uid": "11111111-2222-3333-4444-555555555555",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "data": {"key": "value"}})
}

fn deployment() -> Value {
    let env: Vec<Value> = (0..10).map(|n| json!({"name": format!("E{n}"), "value": "v"})).collect();
    let probe = json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 10, "failureThreshold": 3});
    let container = |name: &str| {
        json!({"name": name, "image": "registry/image:1", "env": env, "livenessProbe": probe, "readinessProbe": probe,
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default", "labels": {"app": "d", "tier": "web"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [container("a"), container("b"), container("c")],
                "volumes": [{"name": "v", "emptyDir": {}}]}}}})
}

fn ownership(c: &mut Criterion) {
    let schema = builtin("", "v1", "ConfigMap").unwrap();
    let config_map_request = request(&schema, "v1", "ConfigMap");
    c.bench_function("update: create a ConfigMap", |b| {
        b.iter_batched_ref(config_map, |new| update(None, new, &config_map_request), BatchSize::SmallInput);
    });
    let mut live = config_map();
    update(None, &mut live, &config_map_request);
    c.bench_function("update: a ConfigMap without change", |b| {
        b.iter_batched_ref(
            || live.clone(),
            |new| update(Some(&live), new, &config_map_request),
            BatchSize::SmallInput,
        );
    });
    let mut changed = live.clone();
    changed["data"]["key"] = "changed".into();
    c.bench_function("update: change a ConfigMap", |b| {
        b.iter_batched_ref(
            || changed.clone(),
            |new| update(Some(&live), new, &config_map_request),
            BatchSize::SmallInput,
        );
    });

    let schema = builtin("apps", "v1", "Deployment").unwrap();
    let deployment_request = request(&schema, "apps/v1", "Deployment");
    c.bench_function("update: create a Deployment", |b| {
        b.iter_batched_ref(deployment, |new| update(None, new, &deployment_request), BatchSize::SmallInput);
    });
    let mut live = deployment();
    update(None, &mut live, &deployment_request);
    let mut changed = live.clone();
    changed["spec"]["replicas"] = 5.into();
    c.bench_function("update: change a Deployment", |b| {
        b.iter_batched_ref(
            || changed.clone(),
            |new| update(Some(&live), new, &deployment_request),
            BatchSize::SmallInput,
        );
    });
    let live = apply(None, &deployment(), &deployment_request, false).unwrap();
    let mut config = deployment();
    config["spec"]["template"]["spec"]["containers"][1]["image"] = "registry/image:2".into();
    c.bench_function("apply: change a Deployment", |b| {
        b.iter(|| apply(Some(&live), &config, &deployment_request, false).unwrap());
    });
}

fn patches(c: &mut Criterion) {
    let schema = builtin("apps", "v1", "Deployment").unwrap();
    let live = deployment();
    let merge =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "registry/image:2"}]}}}});
    c.bench_function("strategic merge patch of a Deployment", |b| {
        b.iter_batched_ref(
            || live.clone(),
            |object| strategic_merge_patch(&schema, object, &merge).unwrap(),
            BatchSize::SmallInput,
        );
    });
    let small = json!({"metadata": {"finalizers": null, "labels": {"a": "b"}}});
    c.bench_function("merge patch of a Deployment", |b| {
        b.iter_batched_ref(
            || live.clone(),
            |object| merge_patch(object, &small).unwrap(),
            BatchSize::SmallInput,
        );
    });
    let operations =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/1/image", "value": "i"}]);
    c.bench_function("JSON patch of a Deployment", |b| {
        b.iter_batched_ref(
            || live.clone(),
            |object| json_patch(object, &operations).unwrap(),
            BatchSize::SmallInput,
        );
    });
}

fn schemas(c: &mut Criterion) {
    for (group, kind, object) in [("", "ConfigMap", config_map()), ("apps", "Deployment", deployment())] {
        let schema = builtin(group, "v1", kind).unwrap();
        c.bench_function(&format!("decode: check and normalise a {kind}"), |b| {
            b.iter_batched_ref(
                || object.clone(),
                |object| {
                    check_types(&schema, object).unwrap();
                    black_box(unknown_fields(&schema, object));
                    normalize(&schema, object, Empties::Kept);
                },
                BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(benches, ownership, patches, schemas);
criterion_main!(benches);
