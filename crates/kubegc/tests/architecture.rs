//! Keeps the pure crates pure: what they may depend on, checked over `cargo metadata`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Crates that decide. None of them may reach a runtime, a client, a server or a disk, directly or through others.
const PURE: [&str; 5] = ["gc-types", "gc-cel", "gc-ownership", "gc-retention", "gc-registry"];

/// What would make a pure crate able to act.
const FORBIDDEN: [&str; 16] = [
    "tokio",
    "async-std",
    "smol",
    "kube",
    "kube-client",
    "hyper",
    "reqwest",
    "tonic",
    "axum",
    "redb",
    "etcd-client",
    "rand",
    "getrandom",
    "chrono",
    "rustix",
    "mio",
];

/// Who may use whom among ours (ARCHITECTURE.md, "Rooms"); development dependencies are free.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("gc-types", &[]),
    ("gc-ownership", &["gc-types"]),
    ("gc-cel", &[]),
    ("gc-retention", &["gc-types", "gc-cel"]),
    ("gc-registry", &["gc-types", "gc-cel"]),
    ("gc-store", &["gc-registry", "gc-types"]),
    ("gc-apiserver", &["gc-registry", "gc-types"]),
    ("gc-kube", &["gc-types", "gc-ownership", "gc-retention"]),
    ("gc-cri", &["gc-types", "gc-retention"]),
    ("gc-csi", &[]),
    ("gc-cloud", &["gc-retention"]),
    ("gc-sim", &["gc-types", "gc-ownership", "gc-retention", "gc-registry", "gc-store"]),
];

#[test]
fn pure_crates_reach_nothing_that_acts() {
    let metadata = MetadataCommand::new().exec().unwrap();
    let resolve = metadata.resolve.as_ref().unwrap();
    let name_of: BTreeMap<_, _> = metadata.packages.iter().map(|p| (&p.id, p.name.to_string())).collect();
    let normal: BTreeMap<_, Vec<_>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let edges = node.deps.iter().filter(|dep| {
                dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal && kind.target.is_none())
            });
            (&node.id, edges.map(|dep| &dep.pkg).collect())
        })
        .collect();
    for root in PURE {
        let start = name_of.iter().find(|(_, name)| name.as_str() == root).unwrap().0;
        let (mut seen, mut queue) = (BTreeSet::new(), vec![*start]);
        while let Some(id) = queue.pop() {
            if seen.insert(name_of[id].clone()) {
                queue.extend(&normal[id]);
            }
        }
        let reached: Vec<_> = FORBIDDEN.iter().filter(|name| seen.contains(**name)).collect();
        assert!(reached.is_empty(), "{root} reaches {reached:?}");
    }
}

#[test]
fn crates_use_only_the_rooms_below_them() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let ours: BTreeSet<_> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    for (name, allowed) in MAY_USE {
        let package = metadata.packages.iter().find(|p| p.name.as_str() == name).unwrap();
        let used: Vec<_> = package
            .dependencies
            .iter()
            .filter(|dep| dep.kind == DependencyKind::Normal && ours.contains(&dep.name))
            .map(|dep| dep.name.as_str())
            .filter(|dep| !allowed.contains(dep))
            .collect();
        assert!(used.is_empty(), "{name} may not use {used:?}");
    }
}

/// docs/defects.md: each limit of upstream, in order, with a test that exists.
#[test]
fn every_known_limit_of_upstream_has_its_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/defects.md")).unwrap();
    let mut limits = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| L") || line.starts_with("| S")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [limit, _, _, test] = cells.as_slice() else { panic!("{row}") };
        let (file, name) = test.trim_matches('`').split_once("`: `").unwrap();
        let source = std::fs::read_to_string(root.join("crates").join(file)).unwrap();
        assert!(source.contains(name), "{limit}: {file} has no {name}");
        limits.push((*limit).to_owned());
    }
    let owner_references: Vec<String> = (1..=29).map(|number| format!("L{number:02}")).collect();
    let namespaces = ["S14", "S15", "S16", "S18"].map(str::to_owned);
    assert_eq!(limits, [&owner_references[..], &namespaces].concat());
}
