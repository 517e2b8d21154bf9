//! Cost of a pattern in a definition: `cargo bench -p gc-registry --bench definitions`.
//!
//! Each creation asks the process for the compiled pattern. Compare `look up` with `create 1,000 objects`, which asks 1,000 times.
#![allow(missing_docs)] // of what criterion's macros generate
#![allow(clippy::unwrap_used)] // a benchmark that cannot go on has failed

#[path = "../tests/world/mod.rs"]
mod world;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gc_cel::compile_pattern;
use gc_registry::api::{Operation, WriteOptions};
use serde_json::{Value, json};
use world::World;

const DEFINITIONS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";
/// A pattern that many definitions have.
const NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const TEXT: &str = "worker-pool-3";
const OBJECTS: usize = 1_000;
/// Patterns that the process remembers besides the one in use, as of some large operators.
const OTHERS: usize = 1_000;

fn with_definition(plural: &str, pattern: Option<&str>) -> World {
    let mut text = json!({"type": "string"});
    if let Some(pattern) = pattern {
        text["pattern"] = pattern.into();
    }
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"pool": text}}}});
    let world = World::default();
    let definition = json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    world.create(DEFINITIONS, definition).unwrap();
    world
}

fn creations(c: &mut Criterion) {
    let mut group = c.benchmark_group("create 1,000 objects");
    group.sample_size(30);
    for (name, pattern) in [("without a pattern", None), ("with a pattern", Some(NAME))] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || {
                    let objects: Vec<Value> = (0..OBJECTS)
                        .map(|number| json!({"metadata": {"name": format!("thing-{number}")}, "spec": {"pool": TEXT}}))
                        .collect();
                    (with_definition("things", pattern), objects)
                },
                |(world, objects)| {
                    for object in objects.drain(..) {
                        let create = Operation::Create(world::request(object), WriteOptions::default());
                        world.run("example.com/v1/things", "default", create).unwrap();
                    }
                },
                BatchSize::PerIteration,
            );
        });
    }
}

fn patterns(c: &mut Criterion) {
    for number in 0..OTHERS {
        compile_pattern(&format!("^[a-z0-9]([-a-z0-9]*[a-z0-9])?{number}$")).unwrap();
    }
    let compiled = compile_pattern(NAME).unwrap();
    c.bench_function("match a compiled pattern", |b| b.iter(|| compiled.is_match(black_box(TEXT))));
    c.bench_function("look up a pattern", |b| b.iter(|| compile_pattern(black_box(NAME)).unwrap()));
    c.bench_function("look up a pattern, and match it", |b| {
        b.iter(|| compile_pattern(black_box(NAME)).unwrap().is_match(black_box(TEXT)));
    });
}

criterion_group!(benches, creations, patterns);
criterion_main!(benches);
