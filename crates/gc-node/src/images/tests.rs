//! Passes over the images of a runtime that changes and fails between observation, plan and removal.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gc_collectors::images::plan::{ImagePlan, KeepReason, Removal};
use gc_cri::{CriClient, Endpoint};
use tokio::sync::watch;

use crate::clock::Stop;
use crate::config::NodeConfig;
use crate::fake::{Answer, Fake, code, container, image, image_id};
use crate::images::{
    ImageMemory, ImageReport, Observation, Outcome, Remover, filesystems, observe, plan_pass,
};
use crate::messages;
use crate::metrics::Metrics;
use crate::pods::{PodSource, Pods};
use crate::progress::Progress;

/// A runtime, its client, and the state of an agent.
struct World {
    fake: Fake,
    client: CriClient,
    config: NodeConfig,
    memory: ImageMemory,
    pods: Pods,
    stop: Stop,
    _stop: watch::Sender<bool>,
}

impl World {
    /// Creates a runtime with this many images, all unused and old enough.
    async fn new(images: u64) -> Self {
        Self::with_limit(images, Duration::from_secs(20)).await
    }

    /// Creates a runtime with this timeout of calls.
    async fn with_limit(images: u64, request_timeout: Duration) -> Self {
        let fake = Fake::start();
        fake.state().images = (1..=images).map(|n| image(n, n)).collect();
        let options = gc_cri::Options { request_timeout, ..Default::default() };
        let endpoint = Endpoint::parse(&fake.endpoint()).unwrap();
        let (client, _) = CriClient::connect(endpoint, options).await.unwrap();
        let config = NodeConfig::of_tests();
        let (sender, stop) = Stop::new();
        let (memory, pods) = (ImageMemory::default(), Pods::new(PodSource::None));
        Self { fake, client, config, memory, pods, stop, _stop: sender }
    }

    async fn observe(&mut self) -> anyhow::Result<(Observation, ImagePlan)> {
        let observation = observe(&self.client, &mut self.memory, &[]).await?;
        let plan = plan_pass(&observation, &self.memory, &self.config, self.config.ages)?;
        Ok((observation, plan))
    }

    async fn remove(
        &mut self,
        list: Vec<Removal>,
        observation: &Observation,
    ) -> (anyhow::Result<()>, Vec<(u64, Outcome)>) {
        let mut report = ImageReport::default();
        let mut remover = Remover {
            client: &self.client,
            config: &self.config,
            memory: &mut self.memory,
            pods: &mut self.pods,
            stop: &self.stop,
            progress: &Progress::default(),
            metrics: &Metrics::default(),
        };
        let done = remover.remove_all(list, observation, &mut report).await;
        let number =
            |removal: &Removal| u64::from_str_radix(removal.id.digits().trim_start_matches('0'), 16).unwrap();
        (done, report.removals.into_iter().map(|(removal, outcome)| (number(&removal), outcome)).collect())
    }

    fn left(&self) -> Vec<String> {
        self.fake.state().images.iter().map(|one| one.id.clone()).collect()
    }
}

/// T32, T141, T142 and a pin: an image that comes into use or is pinned after the plan is kept, and the runtime gets no request.
#[tokio::test]
async fn what_comes_into_use_after_the_plan_stays() {
    let mut world = World::new(4).await;
    let (observation, plan) = world.observe().await.unwrap();
    assert_eq!(plan.by_space.len(), 4);
    world.fake.state().containers.push(container("pod", "late", 0, 0, 2));
    world.fake.state().images[2].pinned = true;
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    let expected = [
        (4, Outcome::Removed),
        (3, Outcome::Kept(KeepReason::Pinned)),
        (2, Outcome::Kept(KeepReason::InUse)),
        (1, Outcome::Removed),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(world.left(), [image_id(2), image_id(3)]);
    let mut asked = world.fake.state().called("RemoveImage");
    asked.sort();
    assert_eq!(asked, [image_id(1), image_id(4)], "full identifiers, and nothing else");
}

/// The list of images in use is the last call before a removal, so it includes an image that comes into use while another one is
/// read.
#[tokio::test]
async fn what_comes_into_use_while_an_image_is_read_stays() {
    let mut world = World::new(2).await;
    let (observation, plan) = world.observe().await.unwrap();
    world.fake.state().rule(|state, method, id| {
        if method == "ImageStatus" && id == image_id(1) {
            state.containers = vec![container("pod", "late", 0, 0, 1)];
        }
        None
    });
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    assert_eq!(outcomes, [(2, Outcome::Removed), (1, Outcome::Kept(KeepReason::InUse))]);
    assert_eq!(world.left(), [image_id(1)]);
}

/// A pod that is bound to the node during the pass has no container yet, and may be unable to pull its image again.
#[tokio::test]
async fn what_a_pod_that_was_bound_during_the_pass_names_stays() {
    let bound = Arc::new(AtomicBool::new(false));
    let (seen, answers) = (Arc::clone(&bound), Arc::new(AtomicBool::new(true)));
    let answering = Arc::clone(&answers);
    let client = gc_kube::ApiClient::in_process(
        move |_: http::Request<http_body_util::Full<bytes::Bytes>>| {
            let image = if seen.load(Ordering::SeqCst) { "registry.example/image-1:v1" } else { "other:v1" };
            let pods = serde_json::json!({"kind": "PodList", "metadata": {}, "items": [{"metadata": {"uid": "u"},
            "spec": {"containers": [{"name": "c", "image": image}]}}]});
            let code = if answering.load(Ordering::SeqCst) { 200 } else { 500 };
            let answer = http::Response::builder()
                .status(code)
                .body(http_body_util::Full::<bytes::Bytes>::from(pods.to_string()));
            async move { answer.unwrap() }
        },
    );
    let mut world = World::new(2).await;
    world.pods = Pods::new(PodSource::Api { client, node: "n".into(), protected_namespaces: Vec::new() });
    assert!(world.pods.names_unknown().is_some(), "not asked yet");
    world.pods.refresh().await;
    let (observation, plan) = world.observe().await.unwrap();
    assert_eq!(plan.by_space.len(), 2);
    let by_age: Vec<Removal> = plan
        .by_space
        .iter()
        .map(|removal| Removal { reason: gc_collectors::images::plan::RemovalReason::Age, ..removal.clone() })
        .collect();
    // While the server does not answer, no image is removed for its age.
    answers.store(false, Ordering::SeqCst);
    let (done, outcomes) = world.remove(by_age, &observation).await;
    done.unwrap();
    assert_eq!((outcomes, world.left().len()), (vec![], 2));
    answers.store(true, Ordering::SeqCst);
    world.pods.refresh().await;
    bound.store(true, Ordering::SeqCst);
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    assert_eq!(outcomes, [(2, Outcome::Removed), (1, Outcome::Kept(KeepReason::InUse))]);
}

/// The next pass reads the layers of an image whose status could not be read: without them the image would count as unshared.
#[tokio::test]
async fn layers_that_could_not_be_read_are_read_again() {
    let mut world = World::new(1).await;
    {
        let mut state = world.fake.state();
        state.layers.insert(image_id(1), vec![format!("sha256:{:064x}", 7)]);
        state.rule(|_, method, _| {
            (method == "ImageStatus").then(|| Answer::failure(code::UNKNOWN, "not now"))
        });
    }
    let layers = |observation: &Observation| observation.images[0].layers.len();
    let (observation, _) = world.observe().await.unwrap();
    assert_eq!(layers(&observation), 0);
    world.fake.state().no_rule();
    let (observation, _) = world.observe().await.unwrap();
    assert_eq!(layers(&observation), 1);
}

/// A runtime that reports one image as unavailable is not itself unavailable.
#[tokio::test]
async fn one_image_that_is_unavailable_ends_no_pass() {
    for method in ["RemoveImage", "ImageStatus"] {
        let mut world = World::new(3).await;
        let (observation, plan) = world.observe().await.unwrap();
        world.fake.state().rule(move |_, called, id| {
            let fails = called == method && id == image_id(2);
            fails.then(|| Answer::failure(code::UNAVAILABLE, "its content is busy"))
        });
        let (done, mut outcomes) = world.remove(plan.by_space, &observation).await;
        done.unwrap();
        outcomes.sort_by_key(|(number, _)| *number);
        assert!(matches!(&outcomes[1], (2, Outcome::Failed(why)) if why.contains("busy")), "{outcomes:?}");
        assert_eq!(world.left(), [image_id(2)], "{method}");
    }
}

/// A runtime that does not answer is given up after the first calls, not after a timeout for each image.
#[tokio::test]
async fn a_runtime_that_does_not_answer_is_given_up() {
    for unanswered in ["ImageStatus", "RemoveImage"] {
        let mut world = World::with_limit(61, Duration::from_millis(400)).await;
        let (observation, plan) = world.observe().await.unwrap();
        let mut is_silent = false;
        world.fake.state().rule(move |_, method, _| {
            is_silent |= method == unanswered;
            is_silent.then_some(Answer::Silence)
        });
        let before = world.fake.state().called(unanswered).len();
        let (done, outcomes) = world.remove(plan.by_space, &observation).await;
        let error = done.unwrap_err().to_string();
        assert!(error.starts_with("the runtime went away during the pass: "), "{error}");
        let calls = world.fake.state().called(unanswered).len() - before;
        assert!(calls <= 16 && outcomes.len() <= 16, "{calls} calls for {} images", outcomes.len());
        assert_eq!(world.left().len(), 61);
    }
}

/// A removal without an answer concerns only its image: the others are removed in the same pass, and it is tried last later.
#[tokio::test]
async fn one_removal_without_an_answer_delays_no_other() {
    let mut world = World::with_limit(4, Duration::from_millis(400)).await;
    world
        .fake
        .state()
        .rule(|_, method, id| (method == "RemoveImage" && id == image_id(4)).then_some(Answer::Silence));
    let (observation, plan) = world.observe().await.unwrap();
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    let unanswered = Outcome::Failed("RemoveImage: no answer within 400ms".into());
    let expected = [(4, unanswered), (3, Outcome::Removed), (2, Outcome::Removed), (1, Outcome::Removed)];
    assert_eq!(outcomes, expected);
    assert_eq!(world.left(), [image_id(4)]);
    world.fake.state().images.extend((5..=6).map(|n| image(n, n)));
    let planned = |plan: ImagePlan| plan.by_space.iter().map(|one| one.size_bytes).collect::<Vec<_>>();
    assert_eq!(planned(world.observe().await.unwrap().1), [6, 5], "left alone for a while");
    world.memory.expire_backoffs();
    assert_eq!(
        planned(world.observe().await.unwrap().1),
        [6, 5, 4],
        "then tried last, although it is the oldest"
    );
}

/// An image may get a protected name after the list; the last check before its removal sees it.
#[tokio::test]
async fn an_image_that_gets_a_protected_name_stays() {
    let mut world = World::new(2).await;
    world.config.protection =
        gc_collectors::images::patterns::ImagePatterns::new(["registry.example/base/*"]).unwrap();
    let (observation, plan) = world.observe().await.unwrap();
    assert_eq!(plan.by_space.len(), 2);
    world.fake.state().images[0].repo_tags.push("registry.example/base/os:1".into());
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    let kept = Outcome::Kept(KeepReason::Protected("registry.example/base/*".into()));
    assert_eq!(outcomes, [(2, Outcome::Removed), (1, kept)]);
}

/// Images are listed before containers: an image that comes into use between the two lists is seen in use.
#[tokio::test]
async fn what_comes_into_use_while_the_runtime_is_asked_is_in_use() {
    let mut world = World::new(2).await;
    world.fake.state().rule(|state, method, _| {
        if method == "ListImages" {
            state.containers.push(container("pod", "late", 0, 0, 2));
        }
        None
    });
    let (_, plan) = world.observe().await.unwrap();
    let going: Vec<&str> = plan.by_space.iter().map(|removal| removal.id.as_str()).collect();
    assert_eq!(going, [image_id(1)]);
}

/// T27 once more: a container that cannot be read may appear between plan and removal.
#[tokio::test]
async fn what_cannot_be_understood_after_the_plan_stops_the_removals() {
    let mut world = World::new(2).await;
    let (observation, plan) = world.observe().await.unwrap();
    world
        .fake
        .state()
        .containers
        .push(messages::Container { image: None, ..container("pod", "odd", 0, 0, 1) });
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    let error = done.unwrap_err().to_string();
    assert!(error.contains("container container-pod-odd-0 does not name its image"), "{error}");
    assert_eq!((outcomes, world.left().len()), (vec![], 2));
}

/// T32 again: a batch that takes long needs another check.
#[tokio::test]
async fn a_list_of_images_in_use_expires() {
    let mut world = World::new(8).await;
    world.fake.state().rule(|state, method, id| {
        if method == "RemoveImage" && id == image_id(8) {
            // During this slow removal, the last image of the batch comes into use.
            std::thread::sleep(Duration::from_millis(300));
            state.containers.push(container("pod", "late", 0, 0, 1));
        }
        None
    });
    let (observation, plan) = world.observe().await.unwrap();
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    assert_eq!(outcomes.last(), Some(&(1, Outcome::Kept(KeepReason::InUse))));
    assert_eq!(world.left(), [image_id(1)]);
}

/// T176: an image that is pulled again right after its removal counts as wanted, and is kept for the minimum age.
#[tokio::test]
async fn an_image_that_is_pulled_again_is_young_again() {
    let mut world = World::new(2).await;
    let (observation, plan) = world.observe().await.unwrap();
    world.remove(plan.by_space, &observation).await.0.unwrap();
    world.fake.state().images.push(image(2, 2));
    world.config.ages.minimum_age = gc_types::GoDuration::from_seconds(60);
    let (_, plan) = world.observe().await.unwrap();
    let kept: Vec<_> = plan.kept.iter().map(|(id, why)| (id.as_str().to_owned(), why.clone())).collect();
    assert_eq!((kept, plan.by_space.len()), (vec![(image_id(2), KeepReason::TooYoung)], 0));
}

/// T132 and T133: every image filesystem is measured once; a runtime that names none is an error.
#[tokio::test]
async fn every_image_filesystem_is_measured_once() {
    let world = World::new(0).await;
    let here = world.fake.folder().display().to_string();
    for (paths, expected) in [
        (vec![here.clone()], Some(vec![here.clone()])),
        (vec![here.clone(), "/proc".to_owned(), here.clone()], Some(vec![here.clone(), "/proc".to_owned()])),
        (vec![String::new(), here.clone()], Some(vec![here.clone()])),
        (vec![], None),
    ] {
        world.fake.state().rule(move |_, method, _| {
            let of = |path: &String| messages::FilesystemUsage {
                fs_id: Some(messages::FilesystemIdentifier { mountpoint: path.clone() }),
            };
            let image_filesystems = paths.iter().map(of).collect();
            let answer = messages::ImageFsInfoResponse { image_filesystems, ..Default::default() };
            (method == "ImageFsInfo").then(|| Answer::one(&answer))
        });
        let found = filesystems(&world.client).await.ok();
        let found = found.map(|list| list.iter().map(|one| one.path.to_string()).collect::<Vec<_>>());
        assert_eq!(found, expected);
    }
}

/// T153 at a tenth of its size (unoptimized, with a fake runtime; the benchmark has the full size): 1,000 images, 500 containers,
/// 100 removals, in order.
#[tokio::test]
async fn a_large_node_is_no_trouble() {
    let mut world = World::new(1_000).await;
    world.config.parallel_removals = 8;
    world.fake.state().containers = (1..=500).map(|n| container(&format!("pod-{n}"), "c", 0, 2, n)).collect();
    let (observation, mut plan) = world.observe().await.unwrap();
    assert_eq!((plan.by_space.len(), plan.kept.len()), (500, 500));
    plan.by_space.truncate(100);
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    // The largest come first, since all are equally old.
    assert_eq!(outcomes, (901..=1_000).rev().map(|n| (n, Outcome::Removed)).collect::<Vec<_>>());
    assert_eq!(world.left().len(), 900);
}

/// CRI-O answers as in its releases: identifiers without an algorithm, references that are repo digests, a pause image that it
/// pins, and the image filesystem listed again as that of containers.
#[tokio::test]
async fn images_of_cri_o_are_handled_as_those_of_containerd() {
    let bare = |number| image_id(number).trim_start_matches("sha256:").to_owned();
    let digest = image(1, 1).repo_digests[0].clone();
    for (release, id, reference, asked) in [
        ("1.29", String::new(), bare(1), bare(1)),
        ("1.30", bare(1), digest.clone(), bare(1)),
        ("1.30, an image without a digest", bare(1), bare(1), bare(1)),
        ("1.36, asked for by digest", bare(1), digest.clone(), digest.clone()),
        ("1.36, asked for by tag", bare(1), digest.clone(), "registry.example/image-1:v1".to_owned()),
    ] {
        let mut world = World::new(0).await;
        {
            let mut state = world.fake.state();
            state.images = (1..=4).map(|n| messages::Image { id: bare(n), ..image(n, n) }).collect();
            state.images[3].pinned = true;
            let named = Some(messages::ImageSpec { image: asked });
            let own = container("pod", "c", 0, 2, 1);
            state.containers =
                vec![messages::Container { image_id: id, image_ref: reference, image: named, ..own }];
        }
        let (observation, plan) = world.observe().await.unwrap();
        let (done, _) = world.remove(plan.by_space, &observation).await;
        done.unwrap();
        assert_eq!(world.left(), [1, 4].map(bare), "{release}");
        let mut asked = world.fake.state().called("RemoveImage");
        asked.sort();
        assert_eq!(asked, [2, 3].map(bare), "{release}: full identifiers, as it writes them");
    }
}

/// T140: an image whose removal was refused is skipped for a while, and the others are removed.
#[tokio::test]
async fn a_refused_image_is_left_alone_for_a_while() {
    let mut world = World::new(3).await;
    world.fake.state().rule(|_, method, id| {
        let refused = method == "RemoveImage" && id == image_id(2);
        refused.then(|| Answer::failure(code::UNKNOWN, "image used by c: image is in use by a container"))
    });
    let (observation, plan) = world.observe().await.unwrap();
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    assert_eq!(outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Removed).count(), 2);
    assert!(matches!(&outcomes[1], (2, Outcome::Failed(why)) if why.contains("in use by a container")));
    let (_, plan) = world.observe().await.unwrap();
    assert!(plan.by_space.is_empty(), "not tried again in the next pass");
    assert_eq!(world.left(), [image_id(2)]);
}

/// T148: the pass ends together with the runtime, no image is blamed for it, and the next pass continues.
#[tokio::test]
async fn an_outage_ends_the_pass_and_blames_no_image() {
    let mut world = World::new(100).await;
    let mut removed = 0;
    world.fake.state().rule(move |_, method, _| {
        removed += usize::from(method == "RemoveImage");
        (removed > 5).then(|| Answer::failure(code::UNAVAILABLE, "restarting"))
    });
    let (observation, plan) = world.observe().await.unwrap();
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    let error = done.unwrap_err().to_string();
    assert!(error.starts_with("the runtime went away during the pass: "), "{error}");
    assert!(outcomes.len() <= 7, "nothing more is begun: {}", outcomes.len());
    assert_eq!(world.left().len(), 95);
    world.fake.state().no_rule();
    let (observation, plan) = world.observe().await.unwrap();
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    assert_eq!((outcomes.len(), world.left().len()), (95, 0));
}

/// T5, T26, T27 and T146: an incomplete observation decides nothing. T25: a container that is gone uses nothing.
#[tokio::test]
async fn only_a_complete_observation_counts() {
    let mut world = World::new(2).await;
    world.fake.state().containers = vec![container("pod", "c", 0, 2, 1)];
    world.observe().await.unwrap();
    let history = world.memory.history.clone();
    for failing in ["ListImages", "ListPodSandbox", "ListContainers"] {
        world
            .fake
            .state()
            .rule(move |_, method, _| (method == failing).then(|| Answer::failure(code::UNKNOWN, "no")));
        world.observe().await.unwrap_err();
        assert_eq!(world.memory.history, history, "{failing}");
    }
    world.fake.state().no_rule();
    world.fake.state().containers.push(container("pod", "new", 0, 2, 2));
    world
        .fake
        .state()
        .rule(|_, method, _| (method == "ContainerStatus").then(|| Answer::failure(code::UNAVAILABLE, "no")));
    let error = format!("{:#}", world.observe().await.unwrap_err());
    assert!(error.contains("so nothing is removed"), "{error}");
    world
        .fake
        .state()
        .rule(|_, method, _| (method == "ContainerStatus").then(|| Answer::failure(code::NOT_FOUND, "gone")));
    world.observe().await.unwrap();
    world.fake.state().no_rule();
    world.fake.state().containers[0].image = None;
    let error = world.observe().await.unwrap_err().to_string();
    assert!(error.contains("does not name its image"), "{error}");
}

/// T138: removals in progress finish, and no new ones begin.
#[tokio::test]
async fn a_request_to_stop_takes_effect_between_two_removals() {
    let mut world = World::new(50).await;
    let (sender, stop) = Stop::new();
    world.stop = stop;
    world.fake.state().rule(move |_, method, _| {
        if method == "RemoveImage" {
            sender.send(true).unwrap();
        }
        None
    });
    let (observation, plan) = world.observe().await.unwrap();
    let (done, outcomes) = world.remove(plan.by_space, &observation).await;
    done.unwrap();
    assert!(outcomes.len() <= 4, "{} removals for two at a time", outcomes.len());
}
