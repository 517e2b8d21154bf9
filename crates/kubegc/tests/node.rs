//! `kubegc node` against a runtime that misbehaves: its messages, its end, and everything that it leaves alone.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

#[path = "../../gc-cri/tests/support/fake.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-cri")]
mod fake;
#[path = "../../gc-cri/tests/support/grpc.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-cri and gc-external")]
mod grpc;
#[path = "../../gc-cri/tests/support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-cri")]
mod messages;
mod support;

#[path = "node/cluster.rs"]
mod cluster;
#[path = "node/configuration.rs"]
mod configuration;
#[path = "node/doubts.rs"]
mod doubts;
#[path = "node/limits.rs"]
mod limits;
#[path = "node/policies.rs"]
mod policies;
#[path = "node/silent.rs"]
mod silent;
#[path = "node/stops.rs"]
mod stops;
#[path = "node/terminal.rs"]
mod terminal;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use fake::{Answer, Fake, code, container, image, image_id, sandbox};
use rustix::process::{Pid, Signal, kill_process};

const EXITED: i32 = 2;
const UNKNOWN: i32 = 3;
/// Flags with a threshold that every filesystem always exceeds.
const ALL: [&str; 7] =
    ["--once", "--collect", "images", "--image-gc-high-threshold", "1", "--image-gc-low-threshold", "0"];
const CONTAINERS: [&str; 3] = ["--once", "--collect", "containers"];

fn agent(fake: &Fake, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
    command.args(["node", "--kubeconfig", ""]);
    if !arguments.contains(&"--bind-address") {
        command.args(["--bind-address", "127.0.0.1:0"]);
    }
    if !arguments.contains(&"--kubelet-config") {
        command.args(["--kubelet-config", "/nonexistent"]);
    }
    // The free space on this machine's disk must not matter.
    if !arguments.iter().any(|argument| argument.starts_with("--eviction-hard")) {
        command.args(["--eviction-hard", ""]);
    }
    for (flag, name) in
        [("--data-dir", "state"), ("--pod-logs-dir", "logs"), ("--container-log-links-dir", "links")]
    {
        if !arguments.contains(&flag) {
            command.arg(flag).arg(fake.folder().join(name));
        }
    }
    if !arguments.contains(&"--container-runtime-endpoint") {
        command.args(["--container-runtime-endpoint", &fake.endpoint()]);
    }
    command.args(arguments);
    command
}

/// Returns the exit code and the whole output.
fn said(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// An agent that runs until it is stopped.
struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    /// Starts an agent, and reads its listener's address.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("the daemon says where it listens").unwrap();
            if let Some(at) = line.find("127.0.0.1:") {
                break line[at..].split(|c: char| c.is_whitespace() || c == '"').next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Returns the response to a request, including its head.
    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// Each problem is reported in one clear line, with the right exit code.
#[test]
fn what_is_wrong_is_said_in_one_line() {
    let fake = Fake::start();
    std::fs::create_dir(fake.folder().join("logs")).unwrap();
    let at = |name: &str| fake.folder().join(name).display().to_string();
    let garbage = std::os::unix::net::UnixListener::bind(at("garbage.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in garbage.incoming() {
            let _ = stream.unwrap().write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    std::fs::write(at("types.yaml"), format!("{header}imageGCHighThresholdPercent: much\n")).unwrap();
    std::fs::write(at("twice.yaml"), format!("{header}maxPods: 1\nmaxPods: 2\n")).unwrap();
    std::fs::write(at("broken.yaml"), "a: [").unwrap();
    std::fs::write(at("misspelled.yaml"), format!("{header}imageGCHighTresholdPercent: 1\n")).unwrap();
    let (misspelled, twice) = (at("misspelled.yaml"), at("twice.yaml"));
    let endpoint = |name: &str| format!("unix://{}", at(name));
    let (missing, other, types, broken, absent) = (
        endpoint("absent.sock"),
        endpoint("garbage.sock"),
        at("types.yaml"),
        at("broken.yaml"),
        at("absent.yaml"),
    );
    let socket = "--container-runtime-endpoint";
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--once", socket, &missing], 1, "cannot reach the container runtime at unix://"),
        (&["--once", socket, &other], 1, "does not speak CRI v1"),
        (&["--once", socket, "npipe:////./pipe/containerd"], 2, "scheme \"npipe\" is not supported"),
        (&["--once", socket, "run/x.sock"], 2, "the socket path must be absolute"),
        (
            &["--once", "--image-gc-high-threshold", "70", "--image-gc-low-threshold", "70"],
            2,
            "70 must be less than",
        ),
        (&["--once", "--image-gc-high-threshold", "101"], 2, "101 must be between 0 and 100, inclusive"),
        (&["--once", "--minimum-image-ttl-duration", "2d"], 2, "unknown unit"),
        (&["--once", "--minimum-container-ttl-duration=-1s"], 2, "-1s; must not be negative"),
        (&["--once", "--eviction-hard", "imagefs.available"], 2, "expected SIGNAL<LIMIT"),
        (
            &["--once", "--config", &types],
            2,
            "types.yaml: line 3, column 1: imageGCHighThresholdPercent: expected an integer, found the string",
        ),
        (
            &["--once", "--config", &twice],
            2,
            "twice.yaml is not valid YAML: duplicate mapping key: maxPods at line 4, column 1",
        ),
        (
            &["--once", "--config", &misspelled],
            2,
            "line 3, column 1: unknown field \"imageGCHighTresholdPercent\"; did you mean \"imageGCHighThresholdPercent\"?",
        ),
        (
            &["--test-clock", "--bind-address", "0.0.0.0:0"],
            2,
            "--test-clock needs --bind-address on a loopback address",
        ),
        (
            &["images", "--once"],
            2,
            "--once is for collecting; `images` and `containers` only show what is there",
        ),
        (&["containers", "--dry-run"], 2, "--dry-run is for collecting"),
        (&["--once", "--config", &broken], 2, "is not valid YAML"),
        (&["--once", "--config", &absent], 2, "cannot read"),
    ];
    for (arguments, exit, expected) in cases {
        let (found, text) = said(&mut agent(&fake, arguments));
        assert_eq!(found, Some(*exit), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(expected), "{arguments:?}: {text}");
    }

    let error =
        |text: &str| text.lines().filter(|line| line.starts_with("error: ")).collect::<Vec<_>>().join("|");
    fake.state().api = "runtime.v1alpha2.";
    let (exit, text) = said(&mut agent(&fake, &["--once"]));
    assert_eq!((exit, error(&text).contains("v1alpha2 alone is not enough")), (Some(1), true), "{text}");
    fake.state().api = "runtime.v1.";
    fake.state().ready = false;
    fake.state().images = vec![image(1, 1)];
    let (exit, text) = said(agent(&fake, &ALL).args(["--minimum-image-ttl-duration", "0s"]));
    assert_eq!((exit, error(&text).contains("says that it is not ready")), (Some(1), true), "T150: {text}");
    assert_eq!(fake.state().images.len(), 1);
    fake.state().ready = true;

    // The state file is missing, belongs to another program, or is in a directory that cannot contain it.
    std::fs::create_dir_all(at("dir-state/images.json")).unwrap();
    let (exit, text) = said(&mut agent(&fake, &["--once", "--data-dir", &at("dir-state")]));
    assert_eq!((exit, error(&text).contains("images.json")), (Some(1), true), "{text}");
    let (exit, text) = said(&mut agent(&fake, &["--once", "--data-dir", &at("types.yaml/state")]));
    assert_eq!((exit, error(&text).contains("cannot create the state directory")), (Some(1), true), "{text}");
    std::fs::write(at("state/images.json"), "{half").unwrap();
    let (exit, text) =
        said(&mut agent(&fake, &["--once", "--collect", "images", "--image-gc-high-threshold", "100"]));
    assert_eq!((exit, text.contains("it was renamed to")), (Some(0), true), "{text}");
}

/// Only root and its group may use the socket of a runtime.
#[test]
fn a_socket_without_permission_is_said_to_be_one() {
    let fake = Fake::start();
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    unprivileged.arg(env!("CARGO_BIN_EXE_kubegc"));
    let possible = unprivileged.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!(
            "SKIPPED: cannot run the binary as another user (needs root, setpriv, and a path that others can read)"
        );
        return;
    }
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        env!("CARGO_BIN_EXE_kubegc"),
        "node",
    ]);
    let (exit, text) = said(unprivileged.args([
        "--once",
        "--kubeconfig",
        "",
        "--container-runtime-endpoint",
        &fake.endpoint(),
    ]));
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.starts_with("error: permission denied on unix://") && text.lines().count() == 1, "{text}");
}

/// A full disk is the reason for the agent to run: not being able to save state must not keep it from freeing space.
#[test]
fn a_full_disk_does_not_keep_it_from_freeing() {
    let fake = Fake::start();
    let state = fake.folder().join("small");
    std::fs::create_dir(&state).unwrap();
    let mut mounting = Command::new("mount");
    mounting.args(["-t", "tmpfs", "-o", "size=16k", "kubegc-test"]).arg(&state).stderr(Stdio::null());
    if !mounting.status().is_ok_and(|status| status.success()) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs root");
        eprintln!("SKIPPED: cannot mount a small filesystem; needs root");
        return;
    }
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let _unmount = Unmount(&state);
    let mut file = std::fs::File::create(state.join("filler")).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
    fake.state().images = (1..=3).map(|n| image(n, 1)).collect();
    let mut arguments = ALL.to_vec();
    arguments.extend(["--minimum-image-ttl-duration", "0s", "--data-dir", state.to_str().unwrap()]);
    let (exit, text) = said(&mut agent(&fake, &arguments));
    assert_eq!(exit, Some(1), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{text}");
    assert!(text.contains("cannot save") && text.contains("No space left on device"), "{text}");
    assert!(fake.state().images.is_empty(), "the images went all the same: {text}");
    let left: Vec<_> = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "images.json.new"), "no half file stays: {left:?}");
}

/// An agent that is killed in the middle of a pass loses no age, and the next one continues from there.
#[test]
fn an_agent_that_is_killed_has_noted_what_it_saw() {
    let fake = Fake::start();
    fake.state().images = (1..=4).map(|n| image(n, n)).collect();
    fake.state().containers = vec![container("pod", "c", 0, EXITED, 2)];
    fake.state().rule(|_, method, _| (method == "RemoveImage").then_some(Answer::Silence));
    let pass = || {
        let mut command = agent(&fake, &ALL);
        command.args(["--minimum-image-ttl-duration", "0s"]);
        command
    };
    let mut doomed = pass().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = std::time::Instant::now();
    while fake.state().called("RemoveImage").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "the removal does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&doomed), Signal::KILL).unwrap();
    doomed.wait().unwrap();
    let saved = || -> serde_json::Value {
        let text = std::fs::read(fake.folder().join("state/images.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()["images"].clone()
    };
    let before = saved();
    assert_eq!(before.as_object().unwrap().len(), 4);
    assert!(
        before[image_id(2)]["lastUsed"].is_i64() && before[image_id(1)]["lastUsed"].is_null(),
        "{before}"
    );
    fake.state().no_rule();
    let (_, text) = said(&mut pass());
    let left: Vec<String> = fake.state().images.iter().map(|one| one.id.clone()).collect();
    assert_eq!(left, [image_id(2)], "{text}");
    let after = saved();
    assert_eq!(after[image_id(2)]["firstSeen"], before[image_id(2)]["firstSeen"]);
    assert_eq!(after.as_object().unwrap().len(), 1);
}

/// T177 and T179: a dry run and a first observation remove nothing.
#[test]
fn a_dry_run_and_a_first_look_remove_nothing() {
    let fake = Fake::start();
    std::fs::create_dir_all(fake.folder().join("logs")).unwrap();
    // Each image is smaller than the used space of any disk, so one of them does not suffice.
    fake.state().images = (1..=3).map(|n| image(n, n << 20)).collect();
    fake.state().sandboxes = vec![sandbox("pod", 0)];
    fake.state().containers = (0..3).map(|n| container("pod", "c", n, EXITED, 1)).collect();
    let (exit, text) = said(&mut agent(&fake, &ALL));
    assert_eq!(exit, Some(1), "nothing is older than two minutes yet: {text}");
    assert!(
        text.contains("Failed to free sufficient space by deleting unused images (freed 0 bytes)"),
        "{text}"
    );
    let stay = "Largest remaining images: registry.example/image-3:v1 (3.0 MiB, younger than the minimum age), \
                registry.example/image-2:v1 (2.0 MiB, younger than the minimum age), \
                registry.example/image-1:v1 (1.0 MiB, in use).";
    assert!(text.contains(stay), "T180: {text}");
    let age = ["--minimum-image-ttl-duration", "0s"];
    let dry = agent(&fake, &ALL[3..]).args(age).args(["--dry-run", "-o", "json"]).output().unwrap();
    let text = String::from_utf8(dry.stdout).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let named = |list: &serde_json::Value, key: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(named(&document["images"], "id"), [image_id(3), image_id(2)]);
    assert_eq!(document["expectedFreedBytes"], 5 << 20);
    assert_eq!(named(&document["containers"], "id"), ["container-pod-c-0", "container-pod-c-1"]);
    assert_eq!(named(&document["containers"], "reason"), ["PerPodContainerLimit"; 2]);
    let empty = serde_json::json!([]);
    assert_eq!([&document["sandboxes"], &document["logDirectories"], &document["links"]], [&empty; 3]);
    assert_eq!(document["filesystems"][0]["overThreshold"], true);
    assert_eq!((&document["firstContact"], &document["evictionSignals"]), (&false.into(), &empty));
    let pressed = ["--collect", "images", "--dry-run", "--eviction-hard", "imagefs.available<1Ei"];
    let (_, text) = said(agent(&fake, &pressed).args(age));
    assert!(text.contains("The eviction threshold of imagefs.available is crossed."), "{text}");
    assert!(text.contains("2 images would be removed"), "pressure takes them below the threshold: {text}");
    let (exit, text) = said(agent(&fake, &ALL[3..]).args(age).arg("--dry-run"));
    assert_eq!(exit, Some(0), "{text}");
    for words in [
        "2 images would be removed, which is expected to free 5.0 MiB.",
        "disk space is needed",
        "remove: more dead ones of this name than are kept",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let state = fake.state();
    let removes = |method: &str| method.starts_with("Remove") || method.starts_with("Stop");
    let removals: Vec<_> = state.calls.iter().filter(|(method, _)| removes(method)).collect();
    assert!(removals.is_empty(), "{removals:?}");
}

/// On a node without earlier agents or pods, a dry run predicts the removals of a pass, instead of treating everything as young.
#[test]
fn a_first_dry_run_says_what_will_go() {
    let fake = Fake::start();
    fake.state().images = (1..=2).map(|n| image(n, n)).collect();
    let (exit, text) = said(agent(&fake, &ALL[3..]).arg("--dry-run"));
    assert_eq!(exit, Some(0), "{text}");
    assert!(
        text.contains("No ages are saved here yet") && text.contains("2 images would be removed"),
        "{text}"
    );
    assert!(text.contains(", threshold 1 → 0: ") && text.contains(" needed."), "{text}");
}

/// `--once` respects eviction thresholds, gives programs JSON, and fails if it was interrupted.
#[test]
fn one_pass_relieves_pressure_and_reports() {
    let fake = Fake::start();
    std::fs::create_dir(fake.folder().join("logs")).unwrap();
    fake.state().images = (1..=2).map(|n| image(n, n)).collect();
    let pass = ["--once", "--collect", "images", "--minimum-image-ttl-duration=0s", "-o", "json"];
    let pressed = [&pass[..], &["--eviction-hard=imagefs.available<1Ei"]].concat();
    let done = agent(&fake, &pressed).output().unwrap();
    assert_eq!(fake.state().images.len(), 0);
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["removed"]["images"], 2, "{document}");

    fake.state().images = (1..=2).map(|n| image(n, n)).collect();
    fake.state().rule(|_, method, _| (method == "RemoveImage").then_some(Answer::Silence));
    let limits = ["--image-gc-high-threshold=1", "--image-gc-low-threshold=0"];
    let mut interrupted = agent(&fake, &pass);
    interrupted.args(limits).args(["--runtime-request-timeout", "1s"]).stderr(Stdio::piped());
    let interrupted = interrupted.stdout(Stdio::piped()).spawn().unwrap();
    let began = std::time::Instant::now();
    while fake.state().called("RemoveImage").len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(30), "no removal begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&interrupted), Signal::TERM).unwrap();
    let ended = interrupted.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("stopped by a signal before the pass was complete"), "{text}");
}

/// Options may precede or follow a query.
#[test]
fn questions_take_the_options_of_the_agent() {
    let fake = Fake::start();
    fake.state().images = (1..=3).map(|n| image(n, n << 30)).collect();
    fake.state().images[2].repo_digests.clear();
    fake.state().sandboxes = vec![sandbox("pod", 0)];
    fake.state().containers = (0..2).map(|n| container("pod", "c", n, EXITED, 1)).collect();
    let state = fake.folder().join("state").display().to_string();
    let logs = fake.folder().join("logs").display().to_string();
    let ask = |before: &[&str], question: &str, after: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
        let (exit, text) = said(command.arg("node").args(before).arg(question).args(after));
        assert_eq!(exit, Some(0), "{before:?} {question} {after:?}: {text}");
        text
    };
    let endpoint = fake.endpoint();
    let options = [
        "--container-runtime-endpoint",
        &endpoint,
        "--kubeconfig",
        "",
        "--data-dir",
        &state,
        "--pod-logs-dir",
        &logs,
        "--protect-image",
        "registry.example/image-2",
        "--minimum-image-ttl-duration=0s",
        "--log-level",
        "warn",
        "-o",
        "json",
    ];
    let verdicts = |text: &str, list: &str| -> Vec<String> {
        let document: serde_json::Value = serde_json::from_str(text).expect("one document");
        let all = document[list].as_array().unwrap().iter();
        all.map(|one| one["verdict"].as_str().unwrap().to_owned()).collect()
    };
    let images = ["in use", "protected by registry.example/image-2", "remove when space is needed"];
    let containers = [
        "remove: more dead ones of this name than are kept",
        "keep: newest of its name in a pod that may be live",
    ];
    for (before, after) in [(&options[..], &[][..]), (&[], &options), (&options[..8], &options[8..])] {
        assert_eq!(verdicts(&ask(before, "images", after), "images"), images);
        assert_eq!(verdicts(&ask(before, "containers", after), "containers"), containers);
    }
    let mut table = options;
    table[14] = "table";
    let text = ask(&[], "images", &table);
    assert!(text.starts_with("IMAGE ") && text.contains("3.0 GiB"), "{text}");
    assert!(!Path::new(&state).exists(), "a question leaves nothing behind");
    let removals = fake.state().calls.iter().filter(|(method, _)| method.starts_with("Remove")).count();
    assert_eq!(removals, 0);
}

/// An image that cannot be pulled again is named before its removal, and every removal is recorded with its reason.
#[test]
fn every_removal_leaves_a_trace() {
    let fake = Fake::start();
    fake.state().images = vec![image(1, 1), image(2, 2)];
    fake.state().images[0].repo_digests.clear();
    let (_, text) = said(agent(&fake, &ALL).args(["--minimum-image-ttl-duration", "0s"]));
    let line = |words: &[&str]| {
        let found = text.lines().position(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("no line with {words:?}: {text}"))
    };
    let warned = line(&["INFO", "cannot be pulled again", "registry.example/image-1:v1"]);
    assert!(warned < line(&["INFO", "removed", "registry.example/image-1:v1", "reason=Space"]));
    line(&["INFO", "removed", "registry.example/image-2:v1", &image_id(2), "reason=Space"]);
    assert!(!text.lines().any(|line| line.contains("pulled again") && line.contains("image-2")), "{text}");
}

/// T73 to T76, T86, T108 to T110 and T151: the failure of one container or sandbox does not affect the others.
#[test]
fn each_container_and_sandbox_fails_for_itself() {
    let fake = Fake::start();
    let logs = fake.folder().join("logs");
    std::fs::create_dir_all(logs.join("default_pod_uid/c")).unwrap();
    let log = |name: &str| logs.join("default_pod_uid/c").join(name);
    for name in ["0.log", "0.log.20260101-000000.gz", "1.log", "9.log"] {
        std::fs::write(log(name), "x").unwrap();
    }
    let outside = fake.folder().join("outside.log");
    std::fs::write(&outside, "x").unwrap();
    {
        let mut state = fake.state();
        state.sandboxes = vec![sandbox("pod", 0), sandbox("old", 1)];
        let newer = messages::PodSandbox {
            id: "sandbox-old-2".into(),
            created_at: 2_000_000_000,
            ..sandbox("old", 1)
        };
        state.sandboxes.push(newer);
        // c: exited runs 0 to 4, of which only the newest stays; u: in an unknown state, two of them too many.
        state.containers = (0..5).map(|n| container("pod", "c", n, EXITED, 1)).collect();
        state.containers.extend((0..3).map(|n| container("pod", "u", n, UNKNOWN, 1)));
        let paths = [
            ("0", log("0.log").display().to_string()),
            ("2", outside.display().to_string()),
            ("1", "0.log".into()),
        ];
        state.log_paths = paths.into_iter().map(|(n, path)| (format!("container-pod-c-{n}"), path)).collect();
        state.rule(|_, method, id| match (method, id) {
            ("StopContainer", "container-pod-u-0") => Some(Answer::failure(code::UNKNOWN, "does not stop")),
            ("RemoveContainer", "container-pod-c-1") => {
                Some(Answer::failure(code::UNKNOWN, "already being removed"))
            }
            ("ContainerStatus", "container-pod-c-3") => Some(Answer::failure(code::NOT_FOUND, "gone")),
            ("StopPodSandbox", _) => Some(Answer::failure(code::UNKNOWN, "netns is busy")),
            _ => None,
        });
    }
    let (exit, text) = said(&mut agent(&fake, &CONTAINERS));
    assert_eq!(exit, Some(0), "single failures do not fail the pass: {text}");
    let left: BTreeSet<String> = fake.state().containers.iter().map(|one| one.id.clone()).collect();
    let stay = ["c-1", "c-4", "u-0", "u-2"].map(|name| format!("container-pod-{name}"));
    assert_eq!(left, stay.into(), "{text}");
    assert!(text.contains("pod=pod container=c id=container-pod-c-0 reason=PerPodContainerLimit"), "{text}");
    {
        let state = fake.state();
        let of_u1: Vec<&str> = state
            .calls
            .iter()
            .filter(|(_, id)| id == "container-pod-u-1")
            .map(|(method, _)| method.as_str())
            .collect();
        assert_eq!(of_u1, ["ContainerStatus", "StopContainer", "RemoveContainer"], "T73");
        assert!(!state.called("RemoveContainer").contains(&"container-pod-u-0".to_owned()), "T74");
        assert!(state.called("RemoveContainer").contains(&"container-pod-c-3".to_owned()), "T110");
        assert_eq!(state.called("StopPodSandbox"), ["sandbox-old"]);
        assert!(state.called("RemovePodSandbox").is_empty(), "T86");
    }
    let logs_left = ["0.log", "0.log.20260101-000000.gz", "1.log", "9.log"].map(|name| log(name).exists());
    assert_eq!((logs_left, outside.exists()), ([false, false, true, true], true), "T106 to T109");

    fake.state()
        .rule(|_, method, _| (method == "ListContainers").then(|| Answer::failure(code::UNKNOWN, "broken")));
    let (exit, text) = said(&mut agent(&fake, &CONTAINERS));
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.contains("cannot list containers: ListContainers: broken"), "T76: {text}");
}

/// T95 and T99 to T104: only links of containers that are certainly gone are removed.
#[test]
fn only_links_of_containers_that_are_surely_gone_go() {
    let fake = Fake::start();
    let links = fake.folder().join("links");
    std::fs::create_dir(&links).unwrap();
    let names =
        ["a_ns_c-aaaaaa.log", "a_ns_c-exited.log", "a_ns_c-running.log", "a_ns_c-failing.log", "dummy.log"];
    for name in names {
        symlink("/nonexistent/target", links.join(name)).unwrap();
    }
    symlink("/", links.join("alive_ns_c-aaaaaa.log")).unwrap();
    {
        let mut state = fake.state();
        for (id, number) in [("exited", EXITED), ("running", 1)] {
            state
                .containers
                .push(messages::Container { id: id.into(), ..container("pod", id, 0, number, 1) });
        }
        state.sandboxes = vec![sandbox("pod", 0)];
        state.rule(|_, method, id| {
            (method == "ContainerStatus" && id == "failing")
                .then(|| Answer::failure(code::UNKNOWN, "ambiguous prefix"))
        });
    }
    let logs = fake.folder().join("logs");
    std::fs::write(&logs, "no directory").unwrap();
    let (exit, text) = said(&mut agent(&fake, &CONTAINERS));
    assert_eq!(exit, Some(1), "T95: {text}");
    assert!(text.contains("cannot read the pod log directory"), "{text}");
    assert_eq!(std::fs::read_dir(&links).unwrap().count(), 6, "links are not cleaned then");
    // A missing directory is empty. The link of a running container appears dead, so its target, and perhaps those of others,
    // cannot be seen from here.
    std::fs::remove_file(&logs).unwrap();
    let (_, text) = said(&mut agent(&fake, &CONTAINERS));
    assert_eq!(std::fs::read_dir(&links).unwrap().count(), 6, "{text}");
    std::fs::remove_file(links.join("a_ns_c-running.log")).unwrap();
    symlink("/", links.join("a_ns_c-running.log")).unwrap();
    let (exit, text) = said(&mut agent(&fake, &CONTAINERS));
    assert_eq!(exit, Some(0), "{text}");
    let mut left: Vec<String> = std::fs::read_dir(&links)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["a_ns_c-failing.log", "a_ns_c-running.log", "alive_ns_c-aaaaaa.log"]);
    assert!(text.contains("3 dead links"), "{text}");
}

/// T137, T138, T152 and T178: the daemon keeps others out, requests events with pauses, exports metrics, and ends when asked to.
#[test]
fn the_daemon_serves_waits_and_ends() {
    let fake = Fake::start();
    std::fs::create_dir(fake.folder().join("logs")).unwrap();
    fake.state().images = (1..=3).map(|n| image(n, n)).collect();
    fake.state().sandboxes = vec![sandbox("pod", 0)];
    fake.state().containers = vec![container("pod", "c", 0, 1, 2)];
    let arguments = [
        "--minimum-image-ttl-duration=0s",
        "--image-gc-high-threshold=1",
        "--image-gc-low-threshold=0",
        "--eviction-hard=imagefs.available<1Ei",
    ];
    let daemon = Daemon::start(&mut agent(&fake, &arguments));
    let get = |path: &str| daemon.ask("GET", path);
    let began = std::time::Instant::now();
    // Its thresholds cannot be met, so its image passes fail, and it reports that.
    while fake.state().images.len() > 1 || !get("/readyz").contains("the last pass over images failed") {
        assert!(began.elapsed() < Duration::from_secs(30), "the first passes take too long");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (exit, text) = said(&mut agent(&fake, &ALL));
    assert_eq!((exit, text.contains("another agent uses")), (Some(1), true), "T178: {text}");
    std::thread::sleep(Duration::from_secs(2).saturating_sub(began.elapsed()));
    let metrics = get("/metrics");
    assert!(metrics.contains("kubelet_image_garbage_collected_total{reason=\"space\"} 2"), "{metrics}");
    for expected in [
        "kubegc_node_known{collector=\"images\"} 1",
        "kubelet_runtime_operations_total{operation_type=\"remove_image\"} 2",
        "kubelet_runtime_operations_duration_seconds_bucket{le=\"0.005\",operation_type=\"list_images\"}",
        "kubegc_node_last_success_timestamp_seconds{collector=\"containers\"}",
        "kubegc_node_pass_duration_seconds_count{collector=\"images\"}",
        "kubegc_node_freed_bytes_total",
        "kubegc_node_pods_known 0",
    ] {
        assert!(metrics.contains(expected), "{expected}: {metrics}");
    }
    assert!(!metrics.contains("kubelet_runtime_operations_errors_total{"), "{metrics}");
    let mut removed = fake.state().called("RemoveImage");
    removed.sort();
    assert_eq!(removed, [image_id(1), image_id(3)], "T137: the periodic pass and pressure ask for each once");
    assert!(get("/healthz").contains("200 OK") && get("/else").contains("404"));
    assert!(fake.state().called("GetContainerEvents").len() <= 4, "no storm of questions for events");
    assert_eq!(fake.state().images[0].id, image_id(2), "what is in use stays");
    daemon.stop();
    let saved = std::fs::read_to_string(fake.folder().join("state/images.json")).unwrap();
    assert!(saved.contains(&image_id(2)) && saved.contains("lastUsed"), "{saved}");
}

/// Tests set the clock ahead over the API, so images age without waiting.
#[test]
fn images_age_by_the_clock_of_a_test() {
    let fake = Fake::start();
    std::fs::create_dir(fake.folder().join("logs")).unwrap();
    fake.state().images = (1..=2).map(|n| image(n, n)).collect();
    let limits =
        ["--image-gc-high-threshold=1", "--image-gc-low-threshold=0", "--minimum-image-ttl-duration=48h"];
    let daemon = Daemon::start(agent(&fake, &limits).arg("--test-clock"));
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what} does not come");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("the first pass", &|| daemon.ask("GET", "/readyz").contains("the last pass over images failed"));
    assert_eq!(fake.state().images.len(), 2);
    assert!(daemon.ask("GET", "/kubegc/v1/clock").ends_with(r#"{"ahead":"0s"}"#));
    for (query, refused) in [
        ("", "expected one parameter"),
        ("?advance=soon", "expected numbers with units"),
        ("?ahead=1h", "expected advance=DURATION"),
        ("?advance=-1h", "not negative"),
    ] {
        let answer = daemon.ask("POST", &format!("/kubegc/v1/clock{query}"));
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(refused), "{query}: {answer}");
    }
    let set = daemon.ask("POST", "/kubegc/v1/clock?advance=49h");
    assert!(set.ends_with(r#"{"ahead":"49h0m0s"}"#), "{set}");
    until("the end of the images", &|| fake.state().images.is_empty());
    daemon.stop();

    let daemon = Daemon::start(&mut agent(&fake, &limits));
    for method in ["GET", "POST"] {
        assert!(daemon.ask(method, "/kubegc/v1/clock?advance=1h").starts_with("HTTP/1.1 404"), "{method}");
    }
    daemon.stop();
}
