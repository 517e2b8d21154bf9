//! Cost of planning a pass over a large node with 10,000 images and 100,000 containers.
//!
//! `cargo bench -p gc-collectors --bench node_plans`; the target is 50 ms in all.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the measurement
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gc_collectors::containers::pods::{KnownPod, OracleState, PodView};
use gc_collectors::containers::{
    self, Container, ContainerId, ContainerState, PodUid, plan::ContainerPolicy,
};
use gc_collectors::images::history::ImageHistory;
use gc_collectors::images::patterns::ImagePatterns;
use gc_collectors::images::plan::{AgePolicy, Snapshot, plan};
use gc_collectors::images::rules::ReferenceRules;
use gc_collectors::images::usage::{ContainerImages, ImageIndex, usage};
use gc_collectors::images::{Image, ImageId, LayerId};
use gc_types::{GoDuration, UnixNanoseconds};

/// Number of rounds; the best time is reported, since the machine is shared.
const ROUNDS: usize = 30;

/// Returns 64 digits that differ from the first one on, like those of real digests.
fn digest(number: u64) -> String {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{mixed:016x}{:016x}{number:032x}", mixed.rotate_left(31))
}

fn main() {
    let now = UnixNanoseconds(1_000_000_000_000);
    let images: Vec<Image> = (0..10_000_u64)
        .map(|number| Image {
            id: ImageId::new(&format!("sha256:{}", digest(number))).unwrap(),
            repo_tags: vec![format!("registry.example/team/image-{number}:v1").into()],
            repo_digests: vec![
                format!("registry.example/team/image-{number}@sha256:{}", digest(number << 20)).into(),
            ],
            size_bytes: number * 1_000,
            pinned: false,
            runtime_handler: "".into(),
            layers: (0..6).filter_map(|layer| LayerId::new(&digest(layer << 32 | number >> layer))).collect(),
        })
        .collect();
    let listed: Vec<Container> = (0..100_000_i64)
        .map(|number| Container {
            id: ContainerId::new(&digest(number.cast_unsigned())).unwrap(),
            sandbox: None,
            pod: PodUid::new(&format!("pod-{}", number % 5_000)),
            name: Some(format!("c{}", number % 3).into()),
            state: if number % 10 == 0 { ContainerState::Running } else { ContainerState::Exited },
            created_at: UnixNanoseconds(number * 7_919 % 1_000_003),
            attempt: 0,
            managed: true,
        })
        .collect();
    let uses: Vec<ContainerImages> = (0..100_000_u64)
        .map(|number| ContainerImages {
            container: digest(number).into(),
            references: vec![format!("sha256:{}", digest(number % 5_000)).into()],
            volumes: Vec::new(),
        })
        .collect();
    let init = KnownPod { init_containers: ["setup".into()].into(), ..KnownPod::default() };
    let known = (0..5_000).filter_map(|number| PodUid::new(&format!("pod-{number}")));
    let pods = PodView {
        state: OracleState::Synced,
        known: known.map(|pod| (pod, init.clone())).collect(),
        ..PodView::standalone()
    };
    let mut history = ImageHistory::default();
    history.observe(&images, &BTreeSet::new(), UnixNanoseconds(0), UnixNanoseconds(1));
    let protection = ImagePatterns::new(["registry.k8s.io/pause", "*/pause"]).unwrap();
    let ages = AgePolicy { minimum_age: GoDuration::from_seconds(120), maximum_age: None };
    let limits = ContainerPolicy { maximum_containers: Some(1_000), ..ContainerPolicy::default() };
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let in_use = usage(&ImageIndex::new(&images), &uses, &[]);
        let used = began.elapsed();
        let rules = ReferenceRules::default();
        let snapshot = Snapshot {
            images: &images,
            history: &history,
            usage: &in_use,
            protection: &protection,
            rules: &rules,
        };
        let planned = plan(snapshot, ages, now).unwrap();
        assert_eq!(planned.by_space.len(), 5_000);
        let with_images = began.elapsed();
        let planned = containers::plan::plan(&listed, &[], &pods, limits, false, now);
        assert!(!planned.removals.is_empty());
        let all = began.elapsed();
        for (best, found) in
            best.iter_mut().zip([used, with_images.saturating_sub(used), all.saturating_sub(with_images)])
        {
            *best = found.min(*best);
        }
    }
    let [used, of_images, of_containers] = best;
    println!(
        "planning for 10000 images and 100000 containers: {:?} (what is in use {used:?}, images {of_images:?}, containers {of_containers:?}; best of {ROUNDS})",
        used + of_images + of_containers
    );
}
