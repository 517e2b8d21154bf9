//! Measures events per second, and the cost of one deletion with ten or ten million siblings.
#![allow(missing_docs, reason = "a benchmark")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gc_ownership::{Config, Engine};
use gc_types::{
    Coordinates, DeletionState, Event, Gvr, ObjectKey, ObservedObject, Outcome, OwnerReference, ResourceId,
    ResourceInfo, ResourceVersion, Scope, Uid,
};

const RESOURCE: ResourceId = ResourceId(0);

fn uid(number: u64) -> Uid {
    let mixed = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Uid::from_uuid(mixed.to_be_bytes())
}

fn object(number: u64, owner: Option<u64>, version: u64) -> ObservedObject {
    let reference = |owner: u64| OwnerReference {
        coordinates: Coordinates {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: format!("configmap-{owner:010}").into(),
            uid: uid(owner),
        },
        controller: None,
        block_owner_deletion: None,
    };
    ObservedObject {
        key: ObjectKey {
            resource: RESOURCE,
            namespace: "default".into(),
            name: format!("configmap-{number:010}").into(),
        },
        uid: uid(number),
        resource_version: ResourceVersion(version),
        owners: owner.map(reference).into_iter().collect(),
        deletion: DeletionState::default(),
        recreator: None,
    }
}

fn engine(dependents: u64) -> Engine {
    let mut engine = Engine::new(Config::default());
    engine.handle(Event::ResourceServed(ResourceInfo {
        id: RESOURCE,
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: "configmaps".into() },
        kind: "ConfigMap".into(),
        scope: Scope::Namespaced,
        served_api_versions: vec!["v1".into()],
        watched: true,
        comparable_versions: true,
    }));
    engine.handle(Event::ListStarted(RESOURCE));
    engine.handle(Event::Observed(object(0, None, 1)));
    for number in 1..=dependents {
        engine.handle(Event::Observed(object(number, Some(0), number + 1)));
    }
    engine.handle(Event::Synced { resource: RESOURCE, resource_version: ResourceVersion(dependents + 1) });
    engine.handle(Event::Discovered);
    engine
}

fn fan_out(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one of many siblings");
    for size in [10_000_u64, 100_000, 1_000_000] {
        let mut engine = engine(size);
        let mut next = 0;
        group.bench_function(format!("remove and add again, of {size}"), |bencher| {
            bencher.iter_batched(
                || {
                    next += 1;
                    let number = next * 7919 % size + 1;
                    let version = size + 1 + next;
                    (object(number, Some(0), version), object(number, Some(0), version))
                },
                |(gone, back)| {
                    engine.handle(Event::Removed {
                        key: gone.key,
                        uid: gone.uid,
                        resource_version: gone.resource_version,
                    });
                    engine.handle(Event::Observed(back));
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn cascade(criterion: &mut Criterion) {
    let ready = engine(10_000);
    criterion.bench_function("background cascade of 10000, requests answered at once", |bencher| {
        bencher.iter_batched(
            || ready.clone(),
            |mut engine| {
                let removed = Event::Removed {
                    key: object(0, None, 1).key,
                    uid: uid(0),
                    resource_version: ResourceVersion(20_000),
                };
                engine.handle(removed);
                while let Some(effect) = engine.poll_effect() {
                    if let gc_types::Request::Delete { key, uid, .. } = effect.request {
                        engine.handle(Event::Removed { key, uid, resource_version: ResourceVersion(30_000) });
                    }
                    engine.handle(Event::Done(effect.id, Outcome::Applied(None)));
                }
                black_box(engine.stats())
            },
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, fan_out, cascade);
criterion_main!(benches);
