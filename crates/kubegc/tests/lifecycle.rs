//! The life of the server's process: starts, ends of every kind, and the data that must survive.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

#[path = "lifecycle/full.rs"]
mod full;
#[path = "lifecycle/guide.rs"]
mod guide;
#[path = "lifecycle/history.rs"]
mod history;
#[path = "lifecycle/servers.rs"]
mod servers;
mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use support::etcd::EtcdServer;
use support::{Kubegc, Signal, TOKEN};

/// Maximum wait on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time for a server to stop: far less than the half an hour of a watch, which it would otherwise wait for.
const END: Duration = Duration::from_secs(30);

fn on_disk(subcommand: &str, folder: &Path) -> Kubegc {
    let folder = folder.as_os_str().to_owned();
    // The tests count the ConfigMaps of a namespace, so there must be none before.
    let off = (subcommand == "up").then(|| "--workloads=off".into());
    Kubegc::start_with(subcommand, ["--data-dir".into(), folder].into_iter().chain(off))
}

async fn config_maps(server: &Kubegc) -> Api<ConfigMap> {
    Api::default_namespaced(server.client().await)
}

fn config_map(name: &str, owner: Option<&ConfigMap>) -> ConfigMap {
    let owners = owner.map(|owner| {
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid().unwrap()}])
    });
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}})).unwrap()
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> ConfigMap {
    maps.create(&PostParams::default(), &config_map(name, None)).await.unwrap()
}

/// Returns the UID and version of everything in the namespace, by name.
async fn held(maps: &Api<ConfigMap>) -> BTreeMap<String, (String, String)> {
    let list = maps.list(&ListParams::default()).await.unwrap();
    list.iter().map(|map| (map.name_any(), (map.uid().unwrap(), map.resource_version().unwrap()))).collect()
}

/// Runs the binary to its end, which must be soon.
fn run(arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["20", env!("CARGO_BIN_EXE_kubegc")])
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

/// Returns the last error line of a failed start, and the exit code.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap(), text.trim_end().lines().last().unwrap_or_default().to_owned())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn a_server_that_is_told_to_end_does_so_cleanly() {
    for (subcommand, signal) in
        [("up", Signal::TERM), ("up", Signal::INT), ("apiserver", Signal::TERM), ("apiserver", Signal::INT)]
    {
        let folder = tempfile::tempdir().unwrap();
        let server = on_disk(subcommand, folder.path());
        let (status, after) = server.end(signal);
        assert!(status.success(), "{subcommand} {signal:?}: {status}");
        assert!(after < END, "{subcommand} {signal:?}: {after:?}");
    }
}

/// Idle watches, open connections and requests in flight do not delay the end.
#[tokio::test]
async fn clients_do_not_hold_up_the_end() {
    let server = Kubegc::start("up");
    let maps = config_maps(&server).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap()));
    }
    let (status, after) = tokio::task::spawn_blocking(move || server.end(Signal::TERM)).await.unwrap();
    assert!(status.success() && after < END, "{status} {after:?}");
    // Every watch has ended as well.
    for mut watch in watches {
        let rest = async { while let Ok(Some(_)) = watch.try_next().await {} };
        tokio::time::timeout(PATIENCE, rest).await.unwrap();
    }
}

#[tokio::test]
async fn objects_keys_and_tokens_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_disk("apiserver", folder.path());
    let authority = std::fs::read(&server.ca).unwrap();
    let maps = config_maps(&server).await;
    create(&maps, "a").await;
    let gone = create(&maps, "gone").await;
    maps.delete("gone", &DeleteParams::default()).await.unwrap();
    let before = held(&maps).await;
    drop(server);

    let server = on_disk("apiserver", folder.path());
    assert_eq!(std::fs::read(&server.ca).unwrap(), authority, "clients go on trusting the server");
    let maps = config_maps(&server).await;
    assert_eq!(held(&maps).await, before);
    let next: u64 = create(&maps, "next").await.resource_version().unwrap().parse().unwrap();
    let last: u64 = gone.resource_version().unwrap().parse().unwrap();
    assert!(next > last + 1, "versions go on after the deletion at {}: {next}", last + 1);
}

#[test]
fn keys_are_the_owners_alone_and_no_secret_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("new/folder");
    let server = on_disk("apiserver", &data);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    let mut private = 0;
    for file in files(&data).iter().chain([&server.kubeconfig]) {
        let content = std::fs::read(file).unwrap();
        let secret = |needle: &str| content.windows(needle.len()).any(|part| part == needle.as_bytes());
        if secret("PRIVATE KEY") || secret("client-key-data") || secret(TOKEN) {
            assert_eq!(mode(file), 0o600, "{}", file.display());
            private += 1;
        }
    }
    assert!(private >= 3, "the key of the authority, that of the server and the kubeconfig: {private}");
    drop(server);

    // Even with every log enabled, no token is logged.
    let output = Command::new("timeout")
        .args(["--signal=TERM", "1", env!("CARGO_BIN_EXE_kubegc"), "up", "--ephemeral"])
        .args(["--bind-address", "127.0.0.1:0", "--token", "hunter2-is-secret"])
        .env("RUST_LOG", "trace")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("ready on"), "{text}");
    assert!(!text.contains("hunter2-is-secret") && !text.contains("PRIVATE KEY"), "a secret was logged");
}

#[test]
fn one_data_directory_has_one_server() {
    let folder = tempfile::tempdir().unwrap();
    let first = on_disk("up", folder.path());
    let path = folder.path().to_str().unwrap();
    for subcommand in ["up", "apiserver"] {
        let (code, line) = refused(&[subcommand, "--bind-address", "127.0.0.1:0", "--data-dir", path]);
        assert_eq!(code, 1, "{line}");
        assert!(line.contains(path) && line.contains("another"), "{line}");
    }
    let (status, _) = first.end(Signal::KILL);
    assert!(!status.success());
    // A lock is released with its process, however that process ended.
    drop(on_disk("up", folder.path()));
}

/// Killed in the middle of many writes, again and again, the server keeps every acknowledged write as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    const ROUNDS: usize = 8;
    const WRITERS: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut writes = 0;
    for round in 0..ROUNDS {
        let server = on_disk("apiserver", folder.path());
        let maps = config_maps(&server).await;
        for (name, version) in held(&maps).await {
            // A write in flight when the server was killed may have happened; an acknowledged one certainly has.
            if let Some(known) = acknowledged.get(&name) {
                assert_eq!(&version, known, "{name} in round {round}");
            }
            acknowledged.insert(name, version);
        }
        let there = held(&maps).await;
        let lost: Vec<_> = acknowledged.keys().filter(|name| !there.contains_key(*name)).collect();
        assert_eq!(lost, Vec::<&String>::new(), "in round {round}");

        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (maps, send) = (maps.clone(), send.clone());
                tokio::spawn(async move {
                    for number in 0.. {
                        let name = format!("r{round}-w{writer}-{number}");
                        let made = maps.create(&PostParams::default(), &config_map(&name, None)).await;
                        let Ok(made) = made else { break };
                        let _ = send.send((name, (made.uid().unwrap(), made.resource_version().unwrap())));
                    }
                })
            })
            .collect();
        drop(send);
        // The server ends at the moment of a response, a different one in each round.
        let mut server = Some(server);
        let mut answers = 0;
        while let Some((name, version)) = receive.recv().await {
            acknowledged.insert(name, version);
            answers += 1;
            if answers == 50 + 7 * round
                && let Some(server) = server.take()
            {
                server.end(Signal::KILL);
            }
        }
        writes += answers;
        for writer in writers {
            writer.await.unwrap();
        }
    }
    assert!(writes >= ROUNDS * 50, "the rounds wrote something: {writes}");
}

#[tokio::test]
async fn a_cascade_that_a_kill_interrupts_is_finished_by_the_next_start() {
    const DEPENDENTS: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let server = on_disk("up", folder.path());
    let maps = config_maps(&server).await;
    let owner = create(&maps, "owner").await;
    let kept = create(&maps, "kept").await;
    let work = (0..DEPENDENTS).map(|number| {
        let map = config_map(&format!("d{number}"), Some(&owner));
        let maps = &maps;
        async move { maps.create(&PostParams::default(), &map).await.unwrap() }
    });
    futures::stream::iter(work).buffer_unordered(16).count().await;
    let mut events =
        Box::pin(maps.watch(&WatchParams::default(), &kept.resource_version().unwrap()).await.unwrap());
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    let mut deleted = 0;
    while deleted < DEPENDENTS / 4 {
        if let Some(WatchEvent::Deleted(_)) = events.try_next().await.unwrap() {
            deleted += 1;
        }
    }
    server.end(Signal::KILL);

    let server = on_disk("up", folder.path());
    let maps = config_maps(&server).await;
    let list = maps.list(&ListParams::default()).await.unwrap();
    let mut left: Vec<_> = list.iter().map(kube::ResourceExt::name_any).collect();
    let mut events = Box::pin(
        maps.watch(&WatchParams::default(), &list.metadata.resource_version.unwrap()).await.unwrap(),
    );
    let rest = async {
        while left.len() > 1 {
            if let Some(WatchEvent::Deleted(object)) = events.try_next().await.unwrap() {
                left.retain(|name| *name != object.name_any());
            }
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.unwrap();
    assert_eq!(left, ["kept"]);
}

#[test]
fn a_damaged_data_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    drop(on_disk("apiserver", folder.path()));
    let file =
        files(folder.path()).into_iter().find(|file| file.extension().is_some_and(|e| e == "redb")).unwrap();
    let whole = std::fs::read(&file).unwrap();
    let garbage: Vec<u8> = (0..=250).cycle().take(whole.len()).collect();
    for (what, content) in [
        ("empty", Vec::new()),
        ("cut off", whole[..whole.len() / 2].to_vec()),
        ("only its head", whole[..100].to_vec()),
        ("garbage", garbage),
        ("something else", b"SQLite format 3\0".to_vec()),
    ] {
        std::fs::write(&file, &content).unwrap();
        let path = folder.path().to_str().unwrap();
        let (code, line) = refused(&["apiserver", "--bind-address", "127.0.0.1:0", "--data-dir", path]);
        assert_eq!(code, 1, "{what}: {line}");
        assert!(line.contains(file.to_str().unwrap()), "{what}: {line}");
        assert_eq!(std::fs::read(&file).unwrap(), content, "{what}: nothing is mended behind one's back");
    }
    std::fs::write(&file, whole).unwrap();
    drop(on_disk("apiserver", folder.path()));
}

#[test]
fn what_cannot_be_started_says_why_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (file, below) = (file.to_str().unwrap(), file.join("below"));
    let below = below.to_str().unwrap();
    let table: [(&[&str], i32, &str); 8] = [
        (&["up", "--ephemeral", "--bind-address", &taken], 1, &taken),
        (&["up", "--bind-address", "127.0.0.1:0", "--data-dir", file], 1, file),
        (
            &["up", "--ephemeral", "--bind-address", "127.0.0.1:0", "--token-auth-file", "/nowhere"],
            1,
            "/nowhere",
        ),
        (&["up", "--ephemeral", "--bind-address", "127.0.0.1:0", "--write-kubeconfig", below], 1, file),
        (
            &["apiserver", "--ephemeral", "--storage", "etcd", "--etcd-endpoints", "http://127.0.0.1:1"],
            1,
            "127.0.0.1:1",
        ),
        (&["up", "--ephemeral", "--data-dir", "x"], 2, ""),
        (&["up", "--bind-address", "everywhere"], 2, ""),
        (&["up", "--storage", "floppy"], 2, ""),
    ];
    for (arguments, want, part) in table {
        let output = run(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(want), "{arguments:?}: {text}");
        assert!(text.contains(part) && !text.contains("panicked"), "{arguments:?}: {text}");
        if want == 1 {
            assert_eq!(text.trim_end().lines().count(), 1, "{arguments:?}: {text}");
        }
    }
}

async fn text(server: &Kubegc, path: &str) -> kube::Result<String> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    server.client().await.request_text(request).await
}

/// A server on a full filesystem refuses writes, keeps its data, and accepts writes again once there is space.
#[tokio::test]
async fn a_full_disk_refuses_writes_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let data = disk.folder.path().join("data");
    let server = on_disk("apiserver", &data);
    let maps = config_maps(&server).await;
    let mut acknowledged = BTreeMap::new();
    let large = |name: &str| {
        let mut map = config_map(name, None);
        map.data = Some(BTreeMap::from([("k".to_owned(), "x".repeat(200_000))]));
        map
    };
    let refusal = loop {
        let name = format!("m{}", acknowledged.len());
        match maps.create(&PostParams::default(), &large(&name)).await {
            Ok(made) => {
                acknowledged.insert(name, (made.uid().unwrap(), made.resource_version().unwrap()));
                assert!(acknowledged.len() < 1_000, "the disk is small");
            }
            Err(kube::Error::Api(status)) => break status,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(refusal.code, 500, "{refusal:?}");
    assert!(acknowledged.len() > 3, "{acknowledged:?}");
    assert_eq!(held(&maps).await, acknowledged, "reads go on");

    // It is alive but not ready; a start on the full disk does not change that.
    assert_eq!(text(&server, "/livez").await.unwrap(), "ok");
    let error = text(&server, "/readyz").await.unwrap_err().to_string();
    assert!(error.contains("no space left"), "{error}");
    server.end(Signal::KILL);
    let server = on_disk("apiserver", &data);
    let maps = config_maps(&server).await;
    assert_eq!(held(&maps).await, acknowledged);

    // Deletions work, and make room for everything else.
    let mut kept = acknowledged.clone();
    for number in 0..acknowledged.len() / 2 {
        let name = format!("m{number}");
        maps.delete(&name, &DeleteParams::default()).await.unwrap();
        kept.remove(&name);
    }
    let begun = std::time::Instant::now();
    while text(&server, "/readyz").await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "it never gets ready again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let again = maps.create(&PostParams::default(), &large("m0")).await.unwrap();
    kept.insert("m0".to_owned(), (again.uid().unwrap(), again.resource_version().unwrap()));
    let acknowledged = kept;

    // This also holds after a restart, and with free space writes continue.
    server.end(Signal::KILL);
    disk.grow();
    let server = on_disk("apiserver", &data);
    let maps = config_maps(&server).await;
    let there = held(&maps).await;
    for (name, version) in &acknowledged {
        assert_eq!(there.get(name), Some(version), "{name}");
    }
    create(&maps, "after").await;
}

/// A regression: after 21 objects were deleted on a full disk, writes were still refused; and if others made room, they were
/// refused until the whole length of the data file was free.
#[tokio::test]
async fn a_full_disk_is_not_ready_and_takes_writes_as_soon_as_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let ballast = disk.folder.path().join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let server = on_disk("apiserver", &disk.folder.path().join("data"));
    let maps = config_maps(&server).await;
    let map = |name: &str| {
        let mut map = config_map(name, None);
        map.data = Some(BTreeMap::from([("k".to_owned(), "x".repeat(20_000))]));
        map
    };
    let fill = async |prefix: &str| -> usize {
        for number in 0..1_000 {
            if maps.create(&PostParams::default(), &map(&format!("{prefix}-{number}"))).await.is_err() {
                return number;
            }
        }
        panic!("the disk is small");
    };
    let await_room = async |name: &str| {
        let begun = std::time::Instant::now();
        while let Err(error) = maps.create(&PostParams::default(), &map(name)).await {
            assert!(begun.elapsed() < PATIENCE, "{name}: {error}");
        }
    };
    let made = fill("first").await;
    assert!(made > 42, "only {made} fit");
    // This takes longer than the pause between two attempts to make room, none of which may report any.
    for round in 0..15 {
        assert!(text(&server, "/readyz").await.is_err(), "round {round}");
        assert!(maps.create(&PostParams::default(), &map("more")).await.is_err(), "round {round}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for number in 0..21 {
        maps.delete(&format!("first-{number}"), &DeleteParams::default()).await.unwrap();
    }
    await_room("after-deletions").await;
    assert_eq!(text(&server, "/readyz").await.unwrap(), "ok");
    fill("second").await;
    assert!(text(&server, "/readyz").await.is_err());
    // Another process makes room, but less than the size of the data file.
    std::fs::remove_file(&ballast).unwrap();
    await_room("after-ballast").await;
    assert_eq!(text(&server, "/readyz").await.unwrap(), "ok");
}

/// A filesystem of a few megabytes in memory, unmounted when dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let disk = Self { folder };
        if disk.call(&["-t", "tmpfs", "-o", "size=6m", "tmpfs"]) {
            return Some(disk);
        }
        assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot mount a tmpfs; run as root");
        eprintln!("SKIPPED: cannot mount a tmpfs; run as root");
        None
    }

    fn call(&self, arguments: &[&str]) -> bool {
        let output = Command::new("mount").args(arguments).arg(self.folder.path()).output();
        output.is_ok_and(|output| output.status.success())
    }

    fn grow(&self) {
        assert!(self.call(&["-o", "remount,size=64m"]));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The unmount is lazy because the server of a failed test may still have a file open.
        drop(Command::new("umount").arg("--lazy").arg(self.folder.path()).output());
    }
}

fn on_etcd(etcd: &EtcdServer) -> Kubegc {
    Kubegc::start_with(
        "apiserver",
        ["--ephemeral", "--storage", "etcd", "--etcd-endpoints", &etcd.endpoint()],
    )
}

/// Two servers over one etcd are one cluster: each sees the other's changes at once, and their writes conflict properly.
#[tokio::test]
async fn two_servers_share_one_etcd() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let (one, two) = (on_etcd(&etcd), on_etcd(&etcd));
    let (first, second) = (config_maps(&one).await, config_maps(&two).await);
    let made = create(&first, "shared").await;
    // There are no stale reads: a write that one server has acknowledged is visible in the other.
    let seen = second.get("shared").await.unwrap();
    assert_eq!(seen.metadata, made.metadata);

    let mut events =
        Box::pin(second.watch(&WatchParams::default(), &made.resource_version().unwrap()).await.unwrap());
    let patch = Patch::Merge(json!({"data": {"by": "first"}}));
    let changed = first.patch("shared", &PatchParams::default(), &patch).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.try_next()).await.unwrap().unwrap();
    assert!(
        matches!(&event, Some(WatchEvent::Modified(map)) if map.metadata == changed.metadata),
        "{event:?}"
    );

    // An update based on the state before the other's change is a conflict, and only one of two creations of a name succeeds.
    let stale = second.replace("shared", &PostParams::default(), &seen).await;
    assert!(matches!(&stale, Err(kube::Error::Api(status)) if status.code == 409), "{stale:?}");
    let (post, map) = (PostParams::default(), config_map("raced", None));
    let raced = futures::join!(first.create(&post, &map), second.create(&post, &map));
    assert!(raced.0.is_ok() != raced.1.is_ok(), "{raced:?}");

    // A finalizer that was set through one server holds the deletion through the other.
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    first.patch("shared", &PatchParams::default(), &finalizers).await.unwrap();
    let deleting = second.delete("shared", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(deleting.metadata.deletion_timestamp.is_some());
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    first.patch("shared", &PatchParams::default(), &none).await.unwrap();
    assert_eq!(second.get_opt("shared").await.unwrap(), None);

    // Without etcd nothing is acknowledged; once it is back, everything continues without a restart.
    etcd.kill();
    let lost = config_map("lost", None);
    let refused = tokio::time::timeout(PATIENCE, first.create(&post, &lost)).await.unwrap();
    assert!(refused.is_err());
    etcd.restart();
    let back = async {
        while first.create(&PostParams::default(), &config_map("back", None)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    let found = async {
        while second.get_opt("back").await.ok().flatten().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap();
}

/// Saved while the server runs, and again after it has stopped: a restored server has the same objects and keys, and its revisions
/// start far beyond any that a client of the first one has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_restored_into_another_directory() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let server = on_disk("up", &data);
    let maps = config_maps(&server).await;
    for number in 0..450 {
        create(&maps, &format!("m{number:03}")).await;
    }
    let before = held(&maps).await;
    let kubeconfig = server.kubeconfig.to_str().unwrap().to_owned();
    let saved = run(&["backup", &path("live"), "--data-dir", &path("data"), "--kubeconfig", &kubeconfig]);
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    let mode = std::fs::metadata(path("live")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let (code, line) = refused(&["backup", &path("live"), "--kubeconfig", &kubeconfig]);
    assert_eq!((code, line.contains("--force")), (1, true), "{line}");
    let ca = std::fs::read(&server.ca).unwrap();
    let _ = server.end(Signal::TERM);
    let saved = run(&["backup", &path("stopped"), "--data-dir", &path("data")]);
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    let (code, line) = refused(&["restore", &path("live"), "--data-dir", &path("data")]);
    assert_eq!((code, line.contains("another directory")), (1, true), "{line}");

    for name in ["live", "stopped"] {
        let target = folder.path().join(format!("{name}-data"));
        let done = run(&["restore", &path(name), "--data-dir", target.to_str().unwrap()]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let server = on_disk("up", &target);
        assert_eq!(std::fs::read(&server.ca).unwrap(), ca, "{name}: other keys");
        let after = held(&config_maps(&server).await).await;
        let names = |held: &BTreeMap<String, (String, String)>| {
            held.iter().map(|(name, (uid, _))| (name.clone(), uid.clone())).collect::<Vec<_>>()
        };
        assert_eq!(names(&after), names(&before), "{name}");
        let version = |held: &BTreeMap<String, (String, String)>| {
            held.values().map(|(_, version)| version.parse::<u64>().unwrap()).max().unwrap()
        };
        assert!(version(&after) >= version(&before) + 1_000_000_000, "{name}");
    }
}

/// A role that may read every path, as monitoring has, must not let its user read every Secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_needs_more_than_reading_all_paths() {
    let server = Kubegc::start("apiserver");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup");
    let client = server.client().await;
    let apply = |path: &str, object: serde_json::Value| {
        let request = http::Request::post(path).body(serde_json::to_vec(&object).unwrap()).unwrap();
        let client = client.clone();
        async move { client.request::<serde_json::Value>(request).await.unwrap() }
    };
    apply(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
            "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]}),
    )
    .await;
    apply(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "monitor"}]}),
    )
    .await;
    let file = file.to_str().unwrap();
    let kubeconfig = server.kubeconfig.to_str().unwrap();
    let (code, line) = refused(&["backup", file, "--kubeconfig", kubeconfig, "--as", "monitor"]);
    assert_eq!((code, line.contains("needs the verb post")), (1, true), "{line}");
    assert!(!Path::new(file).exists() && !Path::new(&format!("{file}.partial")).exists());
    let saved = run(&["backup", file, "--kubeconfig", kubeconfig]);
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    assert!(String::from_utf8_lossy(&saved.stdout).contains("keys are not in it"));
}
