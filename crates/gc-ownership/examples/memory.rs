//! Measures the bytes per object, and the cost of one deletion as the graph grows.
//!
//! `cargo run --release -p gc-ownership --example memory -- [objects …]` (default 10^4 to 10^7). Objects are
//! ConfigMaps with names of 20 characters in 100 namespaces, each owned by one of a hundred owners per namespace;
//! memory is the process's resident set from `/proc/self/statm`, before and after.
#![allow(
    clippy::disallowed_methods,
    clippy::similar_names,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "a report"
)]

use std::sync::Arc;
use std::time::Instant;

use gc_ownership::{Config, Engine};
use gc_types::{
    Coordinates, DeletionState, Event, Gvr, ObjectKey, ObservedObject, Outcome, OwnerReference, ResourceId,
    ResourceInfo, ResourceVersion, Scope, Uid,
};

const RESOURCE: ResourceId = ResourceId(0);
const OWNERS: usize = 10_000;
const PAGE: f64 = 4096.0;

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * PAGE
}

fn uid(number: usize) -> Uid {
    // Spread like random UUIDs.
    let mixed = (number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Uid::from_uuid(mixed.to_be_bytes())
}

struct Source {
    namespaces: Vec<Arc<str>>,
    api_version: Arc<str>,
    kind: Arc<str>,
}

impl Source {
    fn object(&self, number: usize) -> ObservedObject {
        let owned = number >= OWNERS;
        let owner = number % OWNERS;
        let reference = || OwnerReference {
            coordinates: Coordinates {
                api_version: self.api_version.clone(),
                kind: self.kind.clone(),
                name: format!("configmap-{owner:010}").into(),
                uid: uid(owner),
            },
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        ObservedObject {
            key: ObjectKey {
                resource: RESOURCE,
                namespace: self.namespaces[owner % self.namespaces.len()].clone(),
                name: format!("configmap-{number:010}").into(),
            },
            uid: uid(number),
            resource_version: ResourceVersion(number as u64 + 1),
            owners: owned.then(reference).into_iter().collect(),
            deletion: DeletionState::default(),
            recreator: None,
        }
    }
}

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![10_000, 100_000, 1_000_000, 10_000_000] } else { sizes };
    println!(
        "{:>10} {:>14} {:>14} {:>18} {:>16}",
        "objects", "bytes/object", "events/s", "ns per deletion", "deletes/s"
    );
    for size in sizes {
        report(size);
    }
}

fn report(size: usize) {
    let source = Source {
        namespaces: (0..100).map(|number| format!("namespace-{number}").into()).collect(),
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let before = resident_bytes();
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
    let total = size + OWNERS;
    let started = Instant::now();
    for number in 0..total {
        engine.handle(Event::Observed(source.object(number)));
    }
    let load = started.elapsed().as_secs_f64();
    engine.handle(Event::Synced { resource: RESOURCE, resource_version: ResourceVersion(total as u64) });
    engine.handle(Event::Discovered);
    let bytes = (resident_bytes() - before) / total as f64;

    // Single deletions of leaves, spread over the graph.
    let samples = 10_000.min(size);
    let leaves: Vec<ObservedObject> =
        (0..samples).map(|sample| source.object(OWNERS + sample * (size / samples))).collect();
    let started = Instant::now();
    for leaf in leaves {
        engine.handle(Event::Removed {
            key: leaf.key,
            uid: leaf.uid,
            resource_version: leaf.resource_version,
        });
    }
    let per_deletion = started.elapsed().as_nanos() as f64 / samples as f64;

    // Cascades: owners are removed, the deletion of their dependents is requested, and these are removed.
    let owners = 100;
    let mut version = total as u64;
    let started = Instant::now();
    let mut deletes = 0_u64;
    for number in 0..owners {
        let owner = source.object(number);
        version += 1;
        engine.handle(Event::Removed {
            key: owner.key,
            uid: owner.uid,
            resource_version: ResourceVersion(version),
        });
    }
    while let Some(effect) = engine.poll_effect() {
        if let gc_types::Request::Delete { key, uid, .. } = effect.request {
            deletes += 1;
            version += 1;
            engine.handle(Event::Removed { key, uid, resource_version: ResourceVersion(version) });
        }
        engine.handle(Event::Done(effect.id, Outcome::Applied(None)));
    }
    let cascade = started.elapsed().as_secs_f64();
    println!(
        "{size:>10} {bytes:>14.1} {:>14.0} {per_deletion:>18.0} {:>16.0}",
        total as f64 / load,
        deletes as f64 / cascade
    );
}
