//! `kubegc node` against a real containerd, on small filesystems whose thresholds are really crossed.
//!
//! Needs root, containerd, runc and a static busybox (`scripts/setup` installs them), and newer releases of containerd, which
//! `scripts/containerd` unpacks. Without them the tests say so loudly and pass; with `CI=true` they fail.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

#[path = "../../gc-cri/tests/support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-cri")]
mod messages;
#[path = "support/containerd.rs"]
mod runtime;
mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use http::Method;
use runtime::{
    CREATED, Containerd, EXITED, Pod, RUNNING, Release, TestImage, UNKNOWN, unavailable, unavailable_release,
    wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Never crosses a threshold, and lets every image be removed once it has been seen.
const OBSERVE: [&str; 8] = [
    "--once",
    "--collect",
    "images",
    "--minimum-image-ttl-duration=0s",
    "--image-gc-high-threshold",
    "100",
    "--image-gc-low-threshold",
    "99",
];
/// Always crosses it, so everything removable is removed.
const ALL: [&str; 8] = [
    "--once",
    "--collect",
    "images",
    "--minimum-image-ttl-duration=0s",
    "--image-gc-high-threshold",
    "1",
    "--image-gc-low-threshold",
    "0",
];

/// One test for each release of containerd.
macro_rules! on_each_release {
    ($($body:ident),+ $(,)?) => {
        on_each_release!(@ installed Release::Installed; $($body)+);
        on_each_release!(@ release_1_7 Release::V1_7; $($body)+);
        on_each_release!(@ release_2 Release::V2; $($body)+);
    };
    (@ $name:ident $release:expr; $($body:ident)+) => {
        mod $name {
            use super::{Release, unavailable_release};
            $(#[test]
            fn $body() {
                if unavailable_release($release).is_none() {
                    super::$body($release);
                }
            })+
        }
    };
}

on_each_release!(
    images_go_down_to_the_low_mark_least_recently_used_first,
    dead_containers_go_and_live_ones_stay,
    somebody_else_may_remove_the_same,
    ages_count_on_over_restarts,
    images_go_when_inodes_are_short,
    a_dry_run_counts_as_a_pass_does,
    generated_disks_are_cleared_as_their_dry_runs_say,
    what_is_below_cri_is_accounted_for_and_removed,
    what_comes_into_use_or_dies_during_a_pass_does_no_harm,
    a_policy_removes_in_force_what_its_dry_run_says,
);

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, text)
}

fn succeed(command: &mut Command) -> String {
    let (output, text) = output(command);
    assert!(output.status.success(), "{text}");
    text
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    gc_types::hexadecimal(&sha2::Sha256::digest(bytes))
}

fn numbered(name: &str, count: u64, bytes: usize) -> Vec<TestImage> {
    let seed = u64::from(name.bytes().map(u32::from).sum::<u32>()) << 32;
    (0..count).map(|n| TestImage::unique(&format!("localhost/{name}:{n}"), seed + n, bytes)).collect()
}

/// Returns the total and available bytes.
fn space(path: &Path) -> (u64, u64) {
    let found = rustix::fs::statvfs(path).unwrap();
    (found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)
}

/// Returns the saved times of first sight and last use by identifier.
fn ages(containerd: &Containerd) -> BTreeMap<String, (i64, Option<i64>)> {
    let text = std::fs::read(containerd.state_directory().join("images.json")).unwrap();
    let saved: Value = serde_json::from_slice(&text).unwrap();
    let records = saved["images"].as_object().unwrap().iter();
    records
        .map(|(id, one)| (id.clone(), (one["firstSeen"].as_i64().unwrap(), one["lastUsed"].as_i64())))
        .collect()
}

/// Returns the images of a dry run in the order of their removal.
fn names_of_plan(plan: &[u8]) -> Vec<String> {
    let plan: Value = serde_json::from_slice(plan).expect("a plan in JSON");
    plan["images"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn images_go_down_to_the_low_mark_least_recently_used_first(release: Release) {
    let containerd = Containerd::start_release(release, 64);
    let (name_of_app, app) = ("localhost/app:1", &["/bin/busybox", "sleep", "100000"]);
    containerd.import(&numbered("old", 100, 96 << 10));
    containerd.import(&[TestImage::with_busybox(name_of_app, 1, 1 << 10, app)]);
    succeed(&mut containerd.agent(&OBSERVE));
    containerd.import(&numbered("new", 100, 96 << 10));
    // One image was used a while ago, one is held by a container that never started, one by one that ended.
    let pod = Pod::new("user");
    let sandbox = containerd.run_sandbox(&pod);
    let once = containerd.create(&pod, &sandbox, "once", 0, "localhost/old:7", &["/none"]);
    containerd.create(&pod, &sandbox, "held", 0, "localhost/old:8", &["/none"]);
    let ended = containerd.run_to_end(&pod, &sandbox, "ended", 0, name_of_app);
    succeed(&mut containerd.agent(&OBSERVE));
    containerd.remove_container(&once);
    containerd.ctr(&["images", "label", "localhost/old:10", "io.cri-containerd.pinned=pinned"]);
    let before = containerd.images();
    let (capacity, available) = space(&containerd.folder);
    assert!(
        100 - available * 100 / capacity >= 50,
        "the filesystem is over its threshold: {available} of {capacity}"
    );
    let marks = ["--image-gc-high-threshold", "50", "--image-gc-low-threshold", "35"];
    let common =
        ["--collect", "images", "--minimum-image-ttl-duration=0s", "--protect-image", "localhost/old:9"];

    let dry = containerd.agent(&["--dry-run", "-o", "json"]).args(common).args(marks).output().unwrap();
    let planned = names_of_plan(&dry.stdout);
    // The number depends on the free space after each batch, which containerd frees in its own time: this is the order of all.
    let deep = ["--image-gc-high-threshold", "50", "--image-gc-low-threshold", "0"];
    let deep = containerd.agent(&["--dry-run", "-o", "json"]).args(common).args(deep).output().unwrap();
    let order = names_of_plan(&deep.stdout);
    assert!(order.starts_with(&planned), "a deeper plan begins like the other: {planned:?}, {order:?}");
    assert_eq!(containerd.images(), before, "a dry run removes nothing");

    let text = succeed(containerd.agent(&["--once"]).args(common).args(marks));
    let after = containerd.images();
    let gone: BTreeSet<&str> =
        before.keys().filter(|name| !after.contains_key(*name)).map(String::as_str).collect();
    let (_, available) = space(&containerd.folder);
    let wanted = capacity * 65 / 100;
    assert!(available >= wanted, "{available} of {wanted} bytes are available: {text}");
    // The last batch exceeds the goal only by the data that its images share between blobs and unpacked files.
    assert!(available - wanted < 32 * 2 * (100 << 10), "{available} of {wanted} bytes are available");
    assert!(gone.len() > 50 && gone.len() < 190, "{} images went: {text}", gone.len());
    assert!(gone.len().abs_diff(planned.len()) < 32, "{} went, {} were planned", gone.len(), planned.len());
    let first: BTreeSet<&str> = order.iter().take(gone.len()).map(String::as_str).collect();
    assert_eq!(gone, first, "they went in the planned order");
    for stays in ["localhost/old:7", "localhost/old:8", "localhost/old:9", name_of_app, runtime::PAUSE] {
        assert!(after.contains_key(stays), "{stays} stays");
    }
    let old_left = after.keys().filter(|name| name.starts_with("localhost/old:")).count();
    assert!(
        old_left <= 4 || gone.iter().all(|name| name.starts_with("localhost/old:")),
        "older images go first"
    );
    assert!(text.contains(&format!("Removed {} images (", gone.len())), "{text}");
    assert!(containerd.containers().iter().any(|one| one.id == ended && one.state == EXITED));
}

fn dead_containers_go_and_live_ones_stay(release: Release) {
    let mut containerd = Containerd::start_release(release, 64);
    let image = "localhost/app:1";
    containerd.import(&[TestImage::with_busybox(image, 1, 1 << 10, &["/bin/busybox", "true"])]);
    let pod = Pod::new("worker");
    let sandbox = containerd.run_sandbox(&pod);
    let dead: Vec<String> =
        (0..4).map(|attempt| containerd.run_to_end(&pod, &sandbox, "main", attempt, image)).collect();
    let runs = containerd.create(&pod, &sandbox, "runs", 0, image, &["/bin/busybox", "sleep", "100000"]);
    containerd.start_container(&runs);
    let created = containerd.create(&pod, &sandbox, "created", 0, image, &["/bin/busybox", "true"]);
    // In a state that the runtime does not know, both may run, so neither is removed without being stopped.
    let lost: Vec<String> =
        (0..2).map(|attempt| containerd.run_to_end(&pod, &sandbox, "lost", attempt, image)).collect();
    containerd.end(Signal::TERM);
    for id in &lost {
        containerd.forget_state(id);
    }
    containerd.start_again();
    for id in &lost {
        containerd.wait_for_state(id, UNKNOWN);
    }
    let foreign_pod = Pod { of_kubelet: false, ..Pod::new("foreign") };
    let foreign_sandbox = containerd.run_sandbox(&foreign_pod);
    let foreign: Vec<String> = (0..2)
        .map(|attempt| containerd.run_to_end(&foreign_pod, &foreign_sandbox, "main", attempt, image))
        .collect();
    let again = Pod::new("restarted");
    let sandboxes: Vec<String> = (0..2)
        .map(|attempt| {
            let id = containerd.run_sandbox(&Pod { attempt, ..again.clone() });
            containerd.stop_sandbox(&id);
            id
        })
        .collect();
    let logs = |attempt: u32| containerd.log_directory(&pod).join(format!("main/{attempt}.log"));
    assert!((0..4).all(|attempt| logs(attempt).exists()), "every run has its log");
    let stray = containerd.pod_logs().join("backup");
    std::fs::create_dir(&stray).unwrap();

    let listed = |containerd: &Containerd| -> BTreeMap<String, i32> {
        containerd.containers().into_iter().map(|one| (one.id, one.state)).collect()
    };
    let before = listed(&containerd);
    let containers = ["--collect", "containers"];
    let dry = succeed(containerd.agent(&["--dry-run"]).args(containers));
    assert!(dry.contains("remove: more dead ones of this name than are kept"), "{dry}");
    assert_eq!(listed(&containerd), before, "a dry run removes nothing");
    assert!((0..4).all(|attempt| logs(attempt).exists()), "a dry run deletes no file");

    let text = succeed(containerd.agent(&["--once"]).args(containers));
    let after = listed(&containerd);
    let gone: BTreeSet<&String> = before.keys().filter(|id| !after.contains_key(*id)).collect();
    let surplus = dead[..3].iter().chain([&lost[0]]).collect();
    assert_eq!(gone, surplus, "all but the newest run of `main` and of `lost`: {text}");
    assert_eq!(after[&lost[1]], UNKNOWN);
    assert_eq!((after[&runs], after[&created], after[&dead[3]]), (RUNNING, CREATED, EXITED));
    assert!(foreign.iter().all(|id| after.contains_key(id)), "what the kubelet did not make stays");
    assert_eq!((0..4).map(|attempt| logs(attempt).exists()).collect::<Vec<_>>(), [false, false, false, true]);
    let left: BTreeSet<String> = containerd.sandboxes().into_iter().map(|one| one.id).collect();
    assert!(!left.contains(&sandboxes[0]) && left.contains(&sandboxes[1]), "the older, empty sandbox went");
    assert!(left.contains(&sandbox) && left.contains(&foreign_sandbox) && stray.exists());

    // No limit removes the newest dead container of a pod that may be live.
    succeed(containerd.agent(&["--once", "--maximum-dead-containers", "0"]).args(containers));
    assert_eq!(listed(&containerd), after);
    // A label hands foreign containers over.
    succeed(
        containerd.agent(&["--once", "--managed-label", "io.kubernetes.pod.name=foreign"]).args(containers),
    );
    let after = listed(&containerd);
    assert_eq!(foreign.iter().filter(|id| after.contains_key(*id)).count(), 1);
}

/// T174: the kubelet (here the test) and the agent remove the same containers at the same time.
fn somebody_else_may_remove_the_same(release: Release) {
    let containerd = Containerd::start_release(release, 64);
    let image = "localhost/app:1";
    containerd.import(&[TestImage::with_busybox(image, 1, 1 << 10, &["/bin/busybox", "true"])]);
    let pod = Pod::new("worker");
    let sandbox = containerd.run_sandbox(&pod);
    let dead: Vec<String> = (0..60)
        .map(|attempt| containerd.create(&pod, &sandbox, "main", attempt, image, &["/none"]))
        .collect();
    let mut command = containerd.agent(&["--once", "--collect", "containers"]);
    let agent = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The kubelet begins with the oldest and the agent with the newest, so both meet.
    let mut refused = 0;
    for id in &dead[10..59] {
        refused += usize::from(containerd.try_to_remove_container(id).is_err());
    }
    let ended = agent.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{text}");
    // Items that one was refused because the other was removing them are gone in the next pass, or removed by it.
    succeed(&mut containerd.agent(&["--once", "--collect", "containers"]));
    let left: Vec<String> = containerd.containers().into_iter().map(|one| one.id).collect();
    assert_eq!(left, dead[59..], "{refused} refused: {text}");
}

/// T118 and T119: the maximum age continues over a restart, and no image is removed before it.
fn ages_count_on_over_restarts(release: Release) {
    let containerd = Containerd::start_release(release, 64);
    containerd.import(&numbered("idle", 2, 1 << 10));
    let began = std::time::Instant::now();
    let maximum = std::time::Duration::from_secs(3);
    let limits = ["--maximum-image-unused-duration=3s", "--minimum-image-ttl-duration=1s"];
    let pass = || succeed(containerd.agent(&OBSERVE[..3]).args(limits).args(&OBSERVE[4..]));
    pass();
    let first_seen = ages(&containerd);
    assert_eq!(containerd.images().len(), 3);
    // Each pass is its own process, so only saved state can make an image old.
    wait_for("the images to be too old", || {
        pass();
        (containerd.images().len() == 1).then_some(())
    });
    assert!(began.elapsed() > maximum, "not before their time");
    assert!(containerd.images().contains_key(runtime::PAUSE), "the sandbox image is protected");
    let left = ages(&containerd);
    assert_eq!(left.len(), 1);
    assert!(left.iter().all(|(id, record)| first_seen[id].0 == record.0));
}

/// T59: a filesystem that runs out of inodes is as full as one that runs out of bytes.
fn images_go_when_inodes_are_short(release: Release) {
    let containerd = Containerd::start_on(release, "size=64m,nr_inodes=1400");
    containerd.import(&numbered("small", 120, 1 << 10));
    let inodes = || {
        let found = rustix::fs::statvfs(&containerd.folder).unwrap();
        (found.f_files, found.f_ffree)
    };
    let (all, free) = inodes();
    assert!(100 - free * 100 / all >= 50, "inodes are short: {free} of {all}");
    let (bytes, available) = space(&containerd.folder);
    assert!(available * 2 > bytes, "bytes are not: {available} of {bytes}");
    let marks = ["--image-gc-high-threshold", "50", "--image-gc-low-threshold", "40"];
    let dry = succeed(containerd.agent(&["--dry-run"]).args(&OBSERVE[1..4]).args(marks));
    assert!(dry.contains(" inodes needed."), "{dry}");
    let (before, journal) = (containerd.images().len(), containerd.folder.with_file_name("journal"));
    let text = succeed(containerd.agent(&OBSERVE[..4]).args(marks).arg("--journal").arg(&journal));
    assert!(
        dry.contains(&format!("{} images would be removed", before - containerd.images().len())),
        "{dry}\n{text}"
    );
    let journal = std::fs::read_to_string(journal).unwrap();
    assert!(journal.contains(" inodes are needed on "), "{journal}");
    let (_, free) = inodes();
    assert!(free * 100 >= all * 60, "{free} of {all}: {text}");
    let left = containerd.images().len();
    assert!(left > 40 && left < 115, "{left} images are left: {text}");
}

/// With shared layers (20 images on one base, 10 others), a dry run names exactly the images that a pass then removes.
fn a_dry_run_counts_as_a_pass_does(release: Release) {
    let containerd = Containerd::start_release(release, 128);
    let own = |n: u64, kib: usize| (n, (kib + usize::try_from(n).unwrap() * 8) << 10);
    let based =
        (0..20).map(|n| TestImage::on_base(&format!("localhost/based:{n}"), (7, 8 << 20), own(100 + n, 64)));
    let others = (0..10).map(|n| {
        let (seed, bytes) = own(200 + n, 512);
        TestImage::unique(&format!("localhost/other:{n}"), seed, bytes)
    });
    containerd.import(&based.chain(others).collect::<Vec<_>>());
    succeed(&mut containerd.agent(&OBSERVE));
    let mut rounds = 0;
    loop {
        let used = used_percent(&containerd);
        if used < 10 || containerd.images().len() < 4 {
            break;
        }
        assert_pass_is_as_planned(&containerd, used, 7);
        rounds += 1;
    }
    assert!(rounds >= 3, "{rounds} rounds");
}

fn used_percent(containerd: &Containerd) -> u64 {
    let (capacity, available) = space(&containerd.folder);
    100 - available * 100 / capacity
}

/// Lowers the usage by `by` percent: a dry run and a pass remove the same images, and no more than needed.
fn assert_pass_is_as_planned(containerd: &Containerd, used: u64, by: u64) {
    let (capacity, _) = space(&containerd.folder);
    let before = containerd.images();
    let (high, low) = (used.to_string(), (used - by).to_string());
    let marks = ["--image-gc-high-threshold", &high, "--image-gc-low-threshold", &low];
    let dry = containerd.agent(&["--dry-run", "-o", "json"]).args(&OBSERVE[1..4]).args(marks).output();
    let dry = dry.unwrap();
    let plan: Value = serde_json::from_slice(&dry.stdout).expect("a plan in JSON");
    assert_eq!(plan["sizes"], "measured", "{plan}");
    let text = succeed(containerd.agent(&OBSERVE[..4]).args(marks));
    let after = containerd.images();
    let gone: BTreeSet<&str> =
        before.keys().filter(|name| !after.contains_key(*name)).map(String::as_str).collect();
    let planned = plan["images"].as_array().unwrap();
    let (fewest, most) = (plan["fewestImages"].as_u64(), plan["mostImages"].as_u64());
    let count = Some(gone.len() as u64);
    assert!(fewest <= count && count <= most, "{count:?} went: {plan}\n{text}");
    assert!(most <= fewest.map(|fewest| fewest + 1), "a range of one image at most: {plan}");
    let first: BTreeSet<&str> =
        planned.iter().take(gone.len()).map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(gone, first, "they went in the planned order");
    // The last one was needed: without it, the target would have been missed.
    let (_, available) = space(&containerd.folder);
    let wanted = capacity * (100 - used + by) / 100;
    let last = planned[gone.len() - 1]["expectedFreedBytes"].as_u64().unwrap();
    assert!(available >= wanted && available - wanted <= last + (64 << 10), "{available} {wanted} {plan}");
}

/// Disks with images of random sizes on random bases, some of them in use: with three releases, 21 in all.
fn generated_disks_are_cleared_as_their_dry_runs_say(release: Release) {
    const DISKS: u64 = 7;
    let containerd = Containerd::start_release(release, 128);
    let own = containerd.images();
    for disk in 0..DISKS {
        let mut state = disk + 1;
        // splitmix64, below a bound
        let mut below = |bound: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31) % bound
        };
        let kib = |number: u64| usize::try_from(number << 10).unwrap();
        let bases: Vec<(u64, usize)> =
            (0..=below(3)).map(|base| (disk << 32 | base << 16, kib(1024 + below(3072)))).collect();
        let images: Vec<TestImage> = (0..10 + below(8))
            .map(|number| {
                let (name, seed) = (format!("localhost/disk-{disk}:{number}"), disk << 32 | (number + 1));
                match bases.get(usize::try_from(below(bases.len() as u64 + 1)).unwrap()) {
                    Some(base) => TestImage::on_base(&name, *base, (seed, kib(64 + below(960)))),
                    None => TestImage::unique(&name, seed, kib(256 + below(1280))),
                }
            })
            .collect();
        containerd.import(&images);
        let pod = Pod::new(&format!("user-{disk}"));
        let sandbox = containerd.run_sandbox(&pod);
        let used_image = format!("localhost/disk-{disk}:{}", below(10));
        containerd.create(&pod, &sandbox, "held", 0, &used_image, &["/none"]);
        succeed(&mut containerd.agent(&OBSERVE));
        let used = used_percent(&containerd);
        assert_pass_is_as_planned(&containerd, used, 3 + below(used / 4));
        assert!(containerd.images().contains_key(&used_image));
        containerd.remove_pods();
        let mut left = containerd.images();
        left.retain(|name, _| !own.contains_key(name));
        // CRI also knows each image by its identifier, and answers once the space is free.
        for id in left.values() {
            containerd.remove_image(id);
        }
    }
}

/// A policy names images by digest and by pattern: its dry run removes none; in force, it removes only these, once unused.
fn a_policy_removes_in_force_what_its_dry_run_says(release: Release) {
    let containerd = Containerd::start_release(release, 64);
    let app = "localhost/app:1";
    containerd.import(&[TestImage::with_busybox(app, 1, 64 << 10, &["/bin/busybox", "sleep", "100000"])]);
    containerd.import(&numbered("bad", 3, 96 << 10));
    containerd.import(&numbered("good", 3, 96 << 10));
    let pod = Pod::new("user");
    let sandbox = containerd.run_sandbox(&pod);
    let held = containerd.create(&pod, &sandbox, "held", 0, "localhost/bad:1", &["/none"]);
    let server = support::Kubegc::start_with("apiserver", ["--ephemeral"]);
    let admin = support_cluster::Admin::of(&server);
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "node-1"}}));
    let definition = gc_collectors::node_policies::definition::definition();
    admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    let by_identifier = containerd.images()["localhost/bad:0"].clone();
    let spec = |enforce: bool| {
        json!({"enforce": enforce, "removeImages": [by_identifier, "localhost/bad:1", "localhost/good:2*"],
            "protectedImages": ["localhost/good:2"]})
    };
    let policies = "/apis/kubegc.io/v1alpha1/nodecollectionpolicies";
    let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "NodeCollectionPolicy", "metadata": {"name": "cve"}, "spec": spec(false)});
    wait_for("the resource to be served", || {
        (admin.send(Method::POST, policies, &policy).0 == 201).then_some(())
    });
    let kubeconfig = server.kubeconfig.display().to_string();
    let pass = || {
        let flags =
            ["--kubeconfig", &kubeconfig, "--node-name", "node-1", "--policies", "--report-namespace", ""];
        succeed(&mut containerd.agent(&[&OBSERVE[..], &flags[..]].concat()));
        admin.get(&format!("{policies}/cve")).1["status"]["nodes"][0].clone()
    };
    let names = || containerd.images().into_keys().collect::<BTreeSet<String>>();
    // The first pass only starts to count ages.
    pass();
    let before = names();
    let dry = pass();
    assert_eq!((&dry["state"], &dry["images"]), (&json!("DryRun"), &json!(1)), "{dry}");
    assert_eq!(dry["firstImages"], json!(["localhost/bad:0"]), "the one that nothing uses or protects");
    assert!(dry["bytes"].as_u64() > Some(90 << 10), "{dry}");
    assert_eq!(names(), before, "a dry run removes nothing");
    let (_, mut stored) = admin.get(&format!("{policies}/cve"));
    stored["spec"] = spec(true);
    assert_eq!(admin.send(Method::PUT, &format!("{policies}/cve"), &stored).0, 200);
    let enforced = pass();
    assert_eq!((&enforced["state"], &enforced["images"]), (&json!("Enforced"), &json!(1)), "{enforced}");
    let gone: Vec<String> = before.difference(&names()).cloned().collect();
    assert_eq!(gone, ["localhost/bad:0"]);
    containerd.remove_container(&held);
    assert_eq!(pass()["firstImages"], json!(["localhost/bad:1"]));
    let gone: Vec<String> = before.difference(&names()).cloned().collect();
    assert_eq!(gone, ["localhost/bad:0", "localhost/bad:1"]);
}

/// Returns the bytes below a path as counted by `du`; 0 if it does not exist.
fn du(path: &Path) -> u64 {
    let output = Command::new("du").args(["-s", "-x", "-B1"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Accounts for a blob kept by a label, an aborted upload, an unused snapshot and lease, and an unlisted directory.
fn what_is_below_cri_is_accounted_for_and_removed(release: Release) {
    const MIB: usize = 1 << 20;
    let mut containerd = Containerd::start_release(release, 96);
    // Otherwise containerd would remove some of this by itself, sooner or later.
    containerd.collect_only_when_asked();
    containerd.import(&numbered("image", 4, MIB));
    let pod = Pod::new("user");
    let sandbox = containerd.run_sandbox(&pod);
    containerd.create(&pod, &sandbox, "held", 0, "localhost/image:1", &["/none"]);
    // A blob with a label.
    let mut ingest = containerd.ctr_command(&["content", "ingest", "labelled"]);
    let mut labelled = ingest.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    labelled.stdin.take().unwrap().write_all(&vec![7_u8; 3 * MIB]).unwrap();
    assert!(labelled.wait().unwrap().success());
    let digest = "sha256:".to_owned() + &sha256(&vec![7_u8; 3 * MIB]);
    containerd.ctr(&["content", "label", &digest, "containerd.io/gc.root=test"]);
    // An upload that ends in the middle.
    let mut ingest = containerd.ctr_command(&["content", "ingest", "broken-off"]);
    let mut broken = ingest.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut pipe = broken.stdin.take().unwrap();
    pipe.write_all(&vec![8_u8; 4 * MIB]).unwrap();
    let root = containerd.folder.join("root");
    let uploads = root.join("io.containerd.content.v1.content/ingest");
    wait_for("the upload", || (du(&uploads) > 2 * MIB as u64).then_some(()));
    broken.kill().unwrap();
    broken.wait().unwrap();
    drop(pipe);
    // A snapshot, and a directory that is none.
    let snapshots = root.join("io.containerd.snapshotter.v1.overlayfs/snapshots");
    let list = || -> BTreeSet<std::path::PathBuf> {
        std::fs::read_dir(&snapshots).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let before = list();
    containerd.ctr(&["snapshots", "--snapshotter", "overlayfs", "prepare", "left"]);
    containerd.ctr(&["snapshots", "--snapshotter", "overlayfs", "label", "left", "containerd.io/gc.root="]);
    let left = list().difference(&before).next().unwrap().clone();
    std::fs::write(left.join("fs/file"), vec![9_u8; 2 * MIB]).unwrap();
    let stray = snapshots.join("99999");
    std::fs::create_dir_all(stray.join("fs")).unwrap();
    std::fs::write(stray.join("fs/file"), vec![9_u8; MIB]).unwrap();
    containerd.ctr(&["leases", "create", "--id", "stale", "--expires", "1s"]);

    let account = || -> Value {
        let asked =
            containerd.agent(&["disk", "-o", "json", "--below-cri-minimum-age", "0s"]).output().unwrap();
        let text = String::from_utf8_lossy(&asked.stderr).into_owned();
        let document: Value = serde_json::from_slice(&asked.stdout).unwrap_or_else(|_| panic!("{text}"));
        document["disk"].clone()
    };
    wait_for("the lease to expire", || {
        account()["orphans"]["leases"].as_array().unwrap().iter().any(|id| id == "stale").then_some(())
    });
    let found = account();
    let near = |what: &str, bytes: u64, expected: u64| {
        assert!(
            bytes.abs_diff(expected) <= expected / 50 + (32 << 10),
            "{what}: {bytes} of {expected}: {found}"
        );
    };
    let cause = |name: &str| found["causes"][name].as_u64().unwrap_or(0);
    near("the blob", cause("labels"), 3 * MIB as u64);
    near("the upload", cause("ingests"), du(&uploads));
    near("the snapshot", cause("unreferenced"), du(&left));
    near("the directory", cause("straySnapshots"), du(&stray));
    near("the logs", cause("logs"), du(&containerd.pod_logs()));
    let explained = cause("images") + cause("writableLayers") + cause("logs");
    let used = found["usedBytes"].as_u64().unwrap();
    assert_eq!(found["unexplainedBytes"].as_u64(), Some(used - explained), "{found}");
    // Everything else on the disk, measured separately.
    let stores = du(&root.join("io.containerd.content.v1.content/blobs")) + du(&uploads) + du(&snapshots);
    near("the rest", found["unexplainedBytes"].as_u64().unwrap(), {
        let left_over = cause("labels") + du(&uploads) + du(&left) + du(&stray);
        du(&containerd.folder) - stores - du(&containerd.pod_logs()) + left_over
    });
    assert_eq!(found["orphans"]["ingests"].as_array().map(Vec::len), Some(1), "{found}");

    let images = containerd.images();
    succeed(&mut containerd.agent(&OBSERVE));
    assert_eq!(
        account()["orphans"]["snapshots"].as_array().map(Vec::len),
        Some(1),
        "nothing without the flag"
    );
    let text = succeed(containerd.agent(&OBSERVE).args(["--below-cri", "--below-cri-minimum-age", "0s"]));
    let after = account();
    assert_eq!((containerd.images(), containerd.containers().len()), (images, 1), "{text}");
    let nothing = serde_json::json!({"ingests": [], "leases": [], "snapshots": []});
    assert_eq!(after["orphans"], nothing, "{text}");
    wait_for("the directories to go", || (!left.exists() && !stray.exists()).then_some(()));
    assert_eq!(
        after["causes"]["labels"], found["causes"]["labels"],
        "a label is a reason to keep it: {after}"
    );
}

fn what_comes_into_use_or_dies_during_a_pass_does_no_harm(release: Release) {
    let mut containerd = Containerd::start_release(release, 64);
    containerd.import(&numbered("image", 150, 8 << 10));
    let pod = Pod::new("user");
    let sandbox = containerd.run_sandbox(&pod);
    containerd.create(&pod, &sandbox, "held", 0, "localhost/image:5", &["/none"]);
    succeed(&mut containerd.agent(&OBSERVE));
    let start = ages(&containerd);
    let held = containerd.images()["localhost/image:5"].clone();
    let begin = |containerd: &Containerd| {
        let before = containerd.images().len();
        let mut command = containerd.agent(&ALL);
        let command =
            command.args(["--parallel-removals", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let agent = command.spawn().unwrap();
        wait_for("the pass to begin", || (containerd.images().len() < before).then_some(()));
        agent
    };
    let intact = |containerd: &Containerd, when: &str| {
        let images = containerd.images();
        assert!(images.contains_key("localhost/image:5") && images.contains_key(runtime::PAUSE), "{when}");
        for (id, (first_seen, last_used)) in ages(containerd) {
            let (first_before, used_before) = start[&id];
            assert_eq!(first_seen, first_before, "{when}: first sight of {id}");
            assert!(
                last_used >= used_before && (id == held || last_used == used_before),
                "{when}: last use of {id}"
            );
        }
    };

    // The agent is killed.
    let mut agent = begin(&containerd);
    kill_process(Pid::from_child(&agent), Signal::KILL).unwrap();
    agent.wait().unwrap();
    intact(&containerd, "after the agent was killed");
    assert!(containerd.images().len() > 10, "it was killed in the middle");

    // containerd is killed, and comes back.
    let agent = begin(&containerd);
    containerd.end(Signal::KILL);
    let ended = agent.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{text}");
    let (ended, text) = output(&mut containerd.agent(&ALL));
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot reach the container runtime at unix://"), "{text}");
    containerd.start_again();
    intact(&containerd, "after containerd was killed");
    assert!(containerd.images().len() > 10, "it was killed in the middle");

    // containerd is stopped in an orderly way in the middle of a pass.
    let agent = begin(&containerd);
    containerd.end(Signal::TERM);
    assert_eq!(agent.wait_with_output().unwrap().status.code(), Some(1));
    containerd.start_again();
    intact(&containerd, "after containerd was stopped");

    // A container comes into use between plan and removal.
    let dry = containerd.agent(&ALL[1..]).args(["--dry-run", "-o", "json"]).output().unwrap();
    let plan: Value = serde_json::from_slice(&dry.stdout).unwrap();
    let plan = plan["images"].as_array().unwrap();
    assert!(plan.len() > 40, "enough is left for more than one check of what is in use: {}", plan.len());
    let last = plan.last().unwrap()["name"].as_str().unwrap().to_owned();
    let agent = begin(&containerd);
    containerd.create(&pod, &sandbox, "late", 0, &last, &["/none"]);
    let ended = agent.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "less than everything is not enough for this threshold: {text}");
    assert!(text.contains("Failed to free sufficient space"), "{text}");
    assert!(text.contains("Largest remaining images"), "{text}");
    let left: BTreeSet<String> = containerd.images().into_keys().collect();
    let expected: BTreeSet<String> =
        [runtime::PAUSE, "localhost/image:5", &last].into_iter().map(String::from).collect();
    assert_eq!(left, expected, "the image that came into use stays, all others went");
}

/// The API server's view of pods decides about their leftovers: here the embedded server, with pods of every kind.
#[test]
fn leftovers_go_with_their_pods() {
    if unavailable().is_some() {
        return;
    }
    let server = support::Kubegc::start("apiserver");
    let kubectl = |arguments: &[&str]| -> String {
        let mut command = Command::new("kubectl");
        let output =
            command.arg("--kubeconfig").arg(&server.kubeconfig).args(arguments).output().expect("kubectl");
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let containerd = Containerd::start(64);
    let image = "localhost/app:1";
    containerd.import(&[TestImage::with_busybox(image, 1, 1 << 10, &["/bin/busybox", "true"])]);
    containerd.import(&numbered("pending", 1, 1 << 10));
    let hash = "0123456789abcdef0123456789abcdef";
    for (name, annotation, wanted) in [
        ("live", "x", image),
        ("evicted", "x", image),
        ("static", hash, image),
        ("waiting", "x", "localhost/pending:0"),
    ] {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": {"kubernetes.io/config.hash": annotation}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": wanted}]},
        });
        let file = server.folder.path().join("pod.json");
        std::fs::write(&file, pod.to_string()).unwrap();
        kubectl(&["create", "--validate=false", "-f", file.to_str().unwrap()]);
    }
    let evicted = serde_json::json!({"phase": "Failed", "reason": "Evicted"});
    let (path, changed) = support::with_status(&kubectl(&["get", "pod", "evicted", "-o", "json"]), &evicted);
    let file = server.folder.path().join("evicted.json");
    std::fs::write(&file, changed).unwrap();
    kubectl(&["replace", "--raw", &path, "-f", file.to_str().unwrap()]);
    let uid = |name: &str| kubectl(&["get", "pod", name, "-o", "jsonpath={.metadata.uid}"]);
    let pods = [
        Pod { uid: Some(uid("live")), ..Pod::new("live") },
        Pod { uid: Some(uid("evicted")), ..Pod::new("evicted") },
        Pod { uid: Some(hash.into()), ..Pod::new("static") },
        Pod::new("deleted"),
    ];
    let mut dead = Vec::new();
    for pod in &pods {
        let sandbox = containerd.run_sandbox(pod);
        dead.push(containerd.run_to_end(pod, &sandbox, "main", 0, image));
        containerd.stop_sandbox(&sandbox);
    }
    let leftover = containerd.pod_logs().join("default_old_aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee");
    std::fs::create_dir(&leftover).unwrap();
    let exists = |id: &String| containerd.containers().iter().any(|one| one.id == *id);

    let kubeconfig = server.kubeconfig.to_str().unwrap();
    let mut command = containerd.agent(&[
        "--kubeconfig",
        kubeconfig,
        "--node-name",
        "node-1",
        "--minimum-image-ttl-duration=0s",
    ]);
    command.args(["--image-gc-high-threshold=1", "--image-gc-low-threshold=0"]);
    let mut agent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the containers of the evicted pod to go", || (!exists(&dead[1])).then_some(()));
    assert!([0, 2, 3].iter().all(|pod| exists(&dead[*pod])), "a pod is not gone as soon as it is unknown");
    // The pod must have been unknown for a minute, and passes are a minute apart.
    runtime::wait_within(
        std::time::Duration::from_secs(150),
        "the containers of the deleted pod to go",
        || (!exists(&dead[3])).then_some(()),
    );
    wait_for("the logs of pods that are gone to go", || {
        (!containerd.log_directory(&pods[3]).exists() && !leftover.exists()).then_some(())
    });
    let left: BTreeSet<String> =
        containerd.sandboxes().into_iter().map(|one| one.metadata.unwrap().name).collect();
    assert_eq!(left, ["live", "static"].map(String::from).into());
    assert!(exists(&dead[0]) && exists(&dead[2]) && containerd.log_directory(&pods[0]).exists());
    assert!(
        containerd.images().contains_key("localhost/pending:0"),
        "an image that a bound pod waits for stays"
    );
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert!(agent.wait().unwrap().success());
}

/// The runtime accepts the image of scripts/image, and the same binary gives the same bytes.
#[test]
fn an_image_from_scratch_is_taken_by_the_runtime() {
    if unavailable().is_some() {
        return;
    }
    let containerd = Containerd::start(64);
    let build = |binary: &str, name: &str| {
        let file = containerd.folder.join(name);
        let output = Command::new(support::repository().join("scripts/image"))
            .args(["--name=localhost/kubegc:test", "--binary", binary, "--output"])
            .arg(&file)
            .output()
            .unwrap();
        (output, file)
    };
    let (output, file) = build("/bin/busybox", "image");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(build("/bin/busybox", "again").1).unwrap());
    let imported = containerd.ctr(&["images", "import", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    wait_for("the image", || containerd.images().contains_key("localhost/kubegc:test").then_some(()));
    // A binary that needs a dynamic linker would not start in an image without one.
    let (refused, _) = build(env!("CARGO_BIN_EXE_kubegc"), "dynamic");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("it asks for a dynamic linker"));
}
