//! Whole passes of the agent over a fake runtime: failures, reports, and removals that happen nevertheless.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gc_collectors::images::ImageId;
use gc_collectors::images::history::{ImageHistory, ImageRecord};
use gc_collectors::images::plan::{AgePolicy, Removal};
use gc_collectors::images::space::Thresholds;
use gc_collectors::pressure::EvictionSettings;
use gc_cri::Endpoint;
use gc_types::{GoDuration, UnixNanoseconds};
use prost::Message as _;
use tokio::sync::watch;

use super::sole::{Cadence, IMAGE_PERIOD};
use super::*;
use crate::clock::Ages;
use crate::fake::{Answer, Fake, code, container, image, image_id, sandbox};
use crate::messages as cri;
use crate::metrics::{ImageLabel, ImageReason};
use crate::pods::PodSource;
use crate::uses;

/// An agent with a runtime, a state directory, and thresholds that are crossed and cannot be met.
struct World {
    fake: Fake,
    agent: Agent,
    state: StateDirectory,
    stop: Stop,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn new(images: u64, config: NodeConfig) -> Self {
        let fake = Fake::start();
        fake.state().images = (1..=images).map(|n| image(n, n)).collect();
        std::fs::create_dir(fake.folder().join("logs")).unwrap();
        let config = NodeConfig {
            thresholds: Thresholds { high_percent: 1, low_percent: 0 },
            pod_logs_dir: fake.folder().join("logs"),
            container_log_links_dir: fake.folder().join("links"),
            ..config
        };
        let endpoint = Endpoint::parse(&fake.endpoint()).unwrap();
        let (client, _) = CriClient::connect(endpoint, gc_cri::Options::default()).await.unwrap();
        let agent = Agent::new(client, config, Pods::new(PodSource::None), None, Metrics::default());
        let state = StateDirectory::open(&fake.folder().join("state")).unwrap();
        let (sender, stop) = Stop::new();
        Self { fake, agent, state, stop, _stop: sender }
    }

    /// Marks images as existing since 1970 and never used.
    fn ancient(&mut self, numbers: &[u64]) {
        let record =
            |&number: &u64| (ImageId::new(&image_id(number)).unwrap(), ImageRecord::new(UnixNanoseconds(0)));
        self.agent.memory.history =
            ImageHistory::restore(numbers.iter().map(record), self.agent.memory.ages.now());
    }

    fn fail(&self, failing: &'static str, what: Option<String>) {
        self.fake.state().rule(move |_, method, id| {
            let hit = method == failing && what.as_ref().is_none_or(|what| what == id);
            hit.then(|| Answer::failure(code::UNKNOWN, "no"))
        });
    }

    async fn pass(&mut self) -> Result<()> {
        self.agent.image_pass(&self.state, &self.stop).await
    }

    async fn pressure(&mut self) -> Result<()> {
        let both = [Collect::Containers, Collect::Images];
        self.agent.relieve_pressure(&both, &self.state, &self.stop).await
    }

    fn left(&self) -> Vec<String> {
        self.fake.state().images.iter().map(|one| one.id.clone()).collect()
    }

    fn collected(&self, reason: ImageReason) -> u64 {
        self.agent.metrics.images_collected.get_or_create(&ImageLabel { reason }).get()
    }
}

fn aged() -> NodeConfig {
    let ages = AgePolicy { minimum_age: GoDuration::ZERO, maximum_age: Some(GoDuration::from_seconds(3600)) };
    NodeConfig { ages, ..NodeConfig::of_tests() }
}

/// T40 and T41: without measurements nothing is removed for space, but observations are saved, and removal by age needs no
/// measurements.
#[tokio::test]
async fn a_filesystem_that_cannot_be_measured_fails_the_pass() {
    let mut world = World::new(2, aged()).await;
    world.ancient(&[1]);
    // The kernel reports no capacity for this filesystem.
    world.fake.state().filesystem = "/proc".into();
    let error = world.pass().await.unwrap_err().to_string();
    assert_eq!(error, "invalid capacity 0 on image filesystem /proc");
    assert!(world.agent.events.has_reported(EventReason::InvalidDiskCapacity));
    assert_eq!(world.left(), [image_id(2)], "T41: the one that was too old went");
    assert_eq!((world.collected(ImageReason::age), world.collected(ImageReason::space)), (1, 0), "T117");
    let mut world = World::new(1, NodeConfig::of_tests()).await;
    world.fail("ImageFsInfo", None);
    let error = format!("{:#}", world.pass().await.unwrap_err());
    assert!(error.contains("cannot ask for the image filesystems"), "{error}");
    assert_eq!((world.left().len(), world.agent.memory.history.len()), (1, 1), "T40");
    assert_eq!(world.state.load(&Ages::default()).unwrap().0.len(), 1, "what was seen is saved");
}

/// T115 and T117: a failed removal by age prevents neither the others nor the disk step.
#[tokio::test]
async fn a_failure_by_age_does_not_prevent_freeing_the_disk() {
    let mut world = World::new(3, aged()).await;
    world.ancient(&[1, 2]);
    world.fail("RemoveImage", Some(image_id(2)));
    let error = world.pass().await.unwrap_err().to_string();
    assert!(error.contains("registry.example/image-2:v1: RemoveImage: no"), "{error}");
    assert_eq!(world.left(), [image_id(2)]);
    assert_eq!((world.collected(ImageReason::age), world.collected(ImageReason::space)), (1, 1));
}

fn outcome(number: u64, failure: Option<&str>) -> (Removal, Outcome) {
    let removal = Removal {
        id: ImageId::new(&image_id(number)).unwrap(),
        name: format!("image-{number}").into(),
        runtime_handler: "".into(),
        reason: gc_collectors::images::plan::RemovalReason::Space,
        size_bytes: 1,
        expected_freed_bytes: 1,
        freed_space: None,
        first_seen: UnixNanoseconds(0),
        last_used: None,
        irreplaceable: false,
    };
    (removal, failure.map_or(Outcome::Removed, |why| Outcome::Failed(why.into())))
}

/// T43, T52, T53 and T55: the result of a run depends on the goals that it reached and the steps that failed.
#[tokio::test]
async fn the_result_of_a_pass_depends_on_what_it_reached() {
    let short = Filesystem {
        path: "/images".into(),
        capacity_bytes: 10 << 30,
        available_bytes: (10 << 30) / 20,
        inodes: 0,
        inodes_free: 0,
    };
    let shortage = "Insufficient free disk space on the node's image filesystem (95% of 10.0 GiB used). Failed to free \
                    sufficient space by deleting unused images (freed 524288000 bytes). Investigate disk usage, as it \
                    could be used by active images, logs, volumes, or other data. Largest: x";
    for (case, outcomes, met, reported, expected) in [
        (
            "T52: reached, with one failure",
            vec![outcome(1, Some("busy")), outcome(2, None)],
            true,
            false,
            None,
        ),
        (
            "T43: everything went, and it was too little",
            vec![outcome(2, None)],
            false,
            true,
            Some(shortage.to_owned()),
        ),
        (
            "T53: all fail",
            vec![outcome(1, Some("read-only")), outcome(2, Some("read-only"))],
            false,
            false,
            Some(format!("[image-1: read-only, image-2: read-only, {shortage}]")),
        ),
        ("T55: nothing to remove", vec![], false, true, Some(shortage.to_owned())),
    ] {
        let mut world = World::new(0, NodeConfig::of_tests()).await;
        // By the end of the run, space has become available.
        let full = [Filesystem { available_bytes: 0, ..short.clone() }];
        let removed = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Removed).count() as u64;
        let report = ImageReport {
            removals: outcomes,
            shortage: (!met).then(|| (short.clone(), 524_288_000)),
            ..ImageReport::default()
        };
        let done = world.agent.conclude(&full, report, Ok(met), " Largest: x", &world.stop).await;
        assert_eq!(done.err().map(|error| error.to_string()), expected, "{case}");
        assert_eq!(world.agent.events.has_reported(EventReason::FreeDiskSpaceFailed), reported, "{case}");
        assert_eq!(world.agent.tally.images, removed, "{case}");
        assert_eq!(
            world.agent.tally.freed_bytes > 0,
            removed > 0,
            "{case}: only what a run removed counts as freed"
        );
    }
}

/// Returns a configuration whose signal fires on any disk.
fn pressed() -> NodeConfig {
    let hard = [("imagefs.available".to_owned(), "1Ei".to_owned())].into();
    let settings = EvictionSettings { hard: Some(hard), ..EvictionSettings::default() };
    NodeConfig { eviction: pressure::parse(&settings).unwrap(), ..NodeConfig::of_tests() }
}

/// T120 to T123, T130 and T137: pressure removes everything that may be removed, and nothing is requested twice.
#[tokio::test]
async fn pressure_removes_what_may_be_removed() {
    let mut world = World::new(5, pressed()).await;
    {
        let mut state = world.fake.state();
        state.sandboxes = vec![sandbox("pod", 0)];
        state.containers = (0..3).map(|n| container("pod", "c", n, 2, 3)).collect();
        state.images[3].pinned = true;
    }
    world.fail("RemoveImage", Some(image_id(2)));
    let error = world.pressure().await.unwrap_err().to_string();
    assert!(error.contains("image-2:v1: RemoveImage: no"), "T123: {error}");
    assert!(world.agent.events.has_reported(EventReason::EvictionThresholdMet));
    assert_eq!(world.left(), [2, 3, 4].map(image_id), "T120, T122: in use and pinned ones stay");
    assert_eq!(world.fake.state().containers.len(), 1, "dead containers before images");
    world.pass().await.unwrap_err();
    let mut asked = world.fake.state().called("RemoveImage");
    asked.sort();
    assert_eq!(
        asked,
        [1, 2, 5].map(image_id),
        "T137: each was asked for once, and the refused one is left alone"
    );

    let mut world = World::new(2, pressed()).await;
    world.fail("ListPodSandbox", None);
    let error = world.pressure().await.unwrap_err().to_string();
    assert!(error.contains("cannot list sandboxes"), "{error}");
    let asked_for_images = world.fake.state().called("ListImages").len();
    assert_eq!(asked_for_images, 1, "T130: images are tried although containers failed");

    let ages = AgePolicy { minimum_age: GoDuration::from_seconds(3), maximum_age: None };
    let young = NodeConfig { ages, ..pressed() };
    let mut world = World::new(2, young).await;
    world.pressure().await.unwrap_err();
    assert_eq!(world.left().len(), 2, "T121: too young");
    world.ancient(&[1, 2]);
    world.pressure().await.unwrap_err();
    assert!(world.left().is_empty(), "T121: old enough");
}

/// Whatever the concurrency, only one image is removed before the filesystem is measured for the first time after removals.
#[tokio::test]
async fn the_first_batch_of_images_is_small() {
    let mut world = World::new(100, pressed()).await;
    world.agent.config.parallel_removals = 32;
    let measured = Arc::<Mutex<Vec<usize>>>::default();
    let recorded = Arc::clone(&measured);
    world.fake.state().rule(move |state, method, _| {
        if method == "ImageFsInfo" {
            recorded.lock().unwrap().push(state.called("RemoveImage").len());
        }
        None
    });
    world.pressure().await.unwrap_err();
    let mut measured = measured.lock().unwrap().clone();
    measured.dedup();
    assert_eq!((measured[..2].to_vec(), measured.last()), (vec![0, 1], Some(&100)), "{measured:?}");
    assert!(measured.windows(2).all(|two| two[1] - two[0] <= 64), "{measured:?}");
}

/// Eight containers are removed at the same time, whatever the concurrency of images, and no removal starts after a stop was
/// requested.
#[tokio::test]
async fn few_containers_are_removed_at_once() {
    let mut world = World::new(0, NodeConfig::of_tests()).await;
    world.agent.config.parallel_removals = 32;
    let options = gc_cri::Options { request_timeout: Duration::from_millis(300), ..Default::default() };
    let endpoint = Endpoint::parse(&world.fake.endpoint()).unwrap();
    world.agent.client = CriClient::connect(endpoint, options).await.unwrap().0;
    let (sender, stop) = Stop::new();
    world.stop = stop;
    {
        let mut state = world.fake.state();
        state.sandboxes = vec![sandbox("pod", 0)];
        state.containers = (0..30).map(|n| container("pod", "c", n, 2, 1)).collect();
        state.rule(move |state, method, _| {
            let removal = method == "RemoveContainer";
            if removal && state.called("RemoveContainer").len() == 8 {
                sender.send(true).unwrap();
            }
            removal.then_some(Answer::Silence)
        });
    }
    // The result is unknown because there was no answer.
    drop(world.agent.container_pass(false, &world.state, &world.stop).await);
    assert_eq!(world.fake.state().called("RemoveContainer").len(), 8);
}

/// T125, T126 and T132: the layout of filesystems as reported by containerd (no filesystem of containers) and CRI-O
/// (always one). The kernel's own filesystem serves as a second disk.
#[tokio::test]
async fn filesystems_are_distinguished_as_runtimes_name_them() {
    let world = World::new(0, NodeConfig::of_tests()).await;
    let here = world.fake.folder().display().to_string();
    let other = "/proc".to_owned();
    for (runtime, images, containers, expected) in [
        ("containerd", &here, None, Topology::Single),
        ("containerd, images apart", &other, None, Topology::DedicatedImages),
        ("CRI-O", &here, Some(&here), Topology::Single),
        ("CRI-O, images apart", &other, Some(&other), Topology::DedicatedImages),
        ("CRI-O, images and containers apart", &other, Some(&here), Topology::Split),
    ] {
        let of = |path: &String| cri::FilesystemUsage {
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: path.clone() }),
        };
        let answer = cri::ImageFsInfoResponse {
            image_filesystems: vec![of(images)],
            container_filesystems: containers.map(of).into_iter().collect(),
        };
        world.fake.state().rule(move |_, method, _| (method == "ImageFsInfo").then(|| Answer::one(&answer)));
        assert_eq!(world.agent.measure().await.unwrap().topology, expected, "{runtime}");
    }
}

/// T135 in the agent: failed passes cause Events.
#[tokio::test]
async fn a_second_failure_in_a_row_is_an_event() {
    let mut world = World::new(1, NodeConfig::of_tests()).await;
    world.fail("ListImages", None);
    world.pass().await.unwrap_err();
    assert!(!world.agent.events.has_reported(EventReason::ImageGCFailed));
    world.pass().await.unwrap_err();
    assert!(world.agent.events.has_reported(EventReason::ImageGCFailed));
    world.fail("ListContainers", None);
    world.agent.container_pass(false, &world.state, &world.stop).await.unwrap_err();
    assert!(
        world.agent.events.has_reported(EventReason::ContainerGCFailed),
        "of containers, every failure is reported"
    );
}

/// T17: a container that was created, ran and was removed between two passes has used its image.
#[tokio::test]
async fn a_use_that_only_an_event_reported_counts_and_survives() {
    let mut world = World::new(2, NodeConfig::of_tests()).await;
    world.ancient(&[1, 2]);
    world.fake.state().rule(|_, method, _| {
        let status = cri::ContainerStatus { id: "c".into(), image_ref: image_id(1), ..Default::default() };
        let event = cri::ContainerEvent {
            container_id: "c".into(),
            container_event_type: 2,
            created_at: 77,
            containers_statuses: vec![status],
        };
        (method == "GetContainerEvents").then(|| Answer::Messages(vec![event.encode_to_vec()]))
    });
    let seen = world.agent.memory.seen.clone();
    let ages = world.agent.memory.ages.clone();
    uses::follow(world.agent.client.clone(), seen.clone(), ages, world.agent.metrics.dropped_uses.clone());
    tokio::time::timeout(Duration::from_secs(20), async {
        while seen.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    world.agent.config.parallel_removals = 1;
    world.agent.save_uses(&world.state).await.unwrap();
    let (saved, _) = world.state.load(&Ages::default()).unwrap();
    let used = |history: &ImageHistory, number| {
        history.get(&ImageId::new(&image_id(number)).unwrap()).and_then(ImageRecord::last_used)
    };
    // The time is that of the age clock, not of the runtime.
    let used_at = used(&saved, 1).unwrap();
    assert!(used_at > UnixNanoseconds(77) && used(&saved, 2).is_none());
    // The machine's uptime advances in steps of 10 ms, and an image that is used as the pass begins is kept.
    tokio::time::timeout(Duration::from_secs(20), async {
        while world.agent.memory.ages.now() <= used_at {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    world.pass().await.unwrap_err();
    let order = world.fake.state().called("RemoveImage");
    assert_eq!(order, [2, 1].map(image_id), "never used before once used, although both are as old");
}

/// Every removal is recorded with its reason and outcome.
#[tokio::test]
async fn removals_are_in_the_journal() {
    let mut world = World::new(2, aged()).await;
    world.ancient(&[1, 2]);
    world.fail("RemoveImage", Some(image_id(2)));
    let entries = Arc::<Mutex<Vec<serde_json::Value>>>::default();
    let taken = Arc::clone(&entries);
    world.agent.journal = NodeJournal(Some(Box::new(move |entry| taken.lock().unwrap().push(entry))));
    world.pass().await.unwrap_err();
    let entries = entries.lock().unwrap();
    let recorded: Vec<(String, String, String)> = entries
        .iter()
        .map(|line| {
            let field = |name: &str| line[name].as_str().unwrap().to_owned();
            assert_eq!((field("controller"), field("kind")), ("node-images".into(), "Image".into()));
            (field("uid"), field("verdict"), field("outcome"))
        })
        .collect();
    for expected in [
        (image_id(1), "ImageUnusedTooLong".to_owned(), "applied".to_owned()),
        (image_id(2), "ImageUnusedTooLong".to_owned(), "failed".to_owned()),
    ] {
        assert!(recorded.contains(&expected), "{recorded:?}");
    }
}

/// T135: the second failure in a row is reported, and a success resets the count.
#[test]
fn a_first_failure_is_not_reported() {
    let mut failures = Failures::default();
    let reported: Vec<bool> = [false, false, false, true, false, true, false, false]
        .into_iter()
        .map(|succeeded| failures.ended(succeeded))
        .collect();
    assert_eq!(reported, [false, true, true, false, false, false, false, true]);
}

/// T136: a pass of seven minutes delays the next one instead of being followed at once.
#[test]
fn a_period_counts_from_the_end_of_a_pass() {
    let start = tokio::time::Instant::now();
    let mut cadence = Cadence { next: start, period: IMAGE_PERIOD };
    cadence.ended(start + Duration::from_mins(7));
    assert_eq!(cadence.next, start + Duration::from_mins(12));
}

/// T167: each failure appears once.
#[test]
fn failures_are_reported_once_each() {
    let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (failures, text) in [
        (own(&[]), None),
        (own(&["a"]), Some("a")),
        (own(&["a", "b"]), Some("[a, b]")),
        (own(&["a", "a"]), Some("a")),
        (own(&["a", "b", "a"]), Some("[a, b]")),
    ] {
        assert_eq!(aggregate(&failures).as_deref(), text);
    }
}

/// A daemon whose clock is set ahead starts its passes and finds its images old enough.
#[tokio::test]
async fn a_clock_that_is_set_ahead_ages_images_and_begins_passes() {
    let ages = AgePolicy { minimum_age: GoDuration::from_seconds(3600), maximum_age: None };
    let World { fake, agent, state, .. } = World::new(2, NodeConfig { ages, ..NodeConfig::of_tests() }).await;
    drop(state);
    let (clock, (sender, stop)) = (TestClock::default(), Stop::new());
    let locks = Locks::take(agent.client.endpoint(), &fake.folder().join("state")).unwrap();
    let agent = agent.with_clock(clock.clone()).alone(locks).unwrap();
    let health = crate::health::Health::new(&[Collect::Images]);
    let running = async { Box::pin(agent.run(&[Collect::Images], &health, &stop)).await.unwrap() };
    let test = async {
        // Its thresholds cannot be met, so not being ready shows that the first pass has ended; it removed nothing.
        while health.unready().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(fake.state().images.len(), 2);
        clock.advance(Duration::from_mins(59));
        assert_eq!(clock.ahead(), Duration::from_mins(59));
        clock.advance(Duration::from_mins(2));
        while !fake.state().images.is_empty() {
            tokio::task::yield_now().await;
        }
        sender.send(true).unwrap();
    };
    tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(running, test) }).await.unwrap();
}

/// The directory does not exist on a node on which no pod has run yet.
#[tokio::test]
async fn a_log_directory_that_does_not_exist_is_empty() {
    let mut world = World::new(0, NodeConfig::of_tests()).await;
    std::fs::remove_dir(world.fake.folder().join("logs")).unwrap();
    world.agent.container_pass(false, &world.state, &world.stop).await.unwrap();
}
