//! Faults between collector and server. While each fault lasts, owners are deleted in all three ways, replaced under their old
//! names, and given further dependents; then the fault ends. With every fault, nothing owned by a living owner is deleted, and all
//! garbage is gone within a bounded time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::broken::{DEFINITIONS, WIDGETS, owned_by_widget, owning_widgets, widget_definition};
use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, Run, least_privileged, until, within};
use crate::support_proxy::{Fault, Proxy};

/// Maximum time after the end of a fault until all garbage is gone. Pauses between retries grow with the duration of a fault, but
/// never exceed that duration or half a minute.
const AFTERWARDS: Duration = Duration::from_secs(20);
/// Number of dependents of each owner.
const DEPENDENTS: usize = 12;

fn is_watch(_: &Method, path: &str) -> bool {
    path.contains("watch=true")
}

fn is_watch_of_maps(method: &Method, path: &str) -> bool {
    is_watch(method, path) && path.contains("/configmaps?")
}

/// Reports whether a request is the first watch of ConfigMaps, without which nothing is written here: a stalled one comes back half
/// a minute later.
fn is_first_watch_of_maps(method: &Method, path: &str) -> bool {
    static SEEN: AtomicBool = AtomicBool::new(false);
    is_watch_of_maps(method, path) && !SEEN.swap(true, Ordering::Relaxed)
}

fn is_watch_of_others(method: &Method, path: &str) -> bool {
    is_watch(method, path) && !is_watch_of_maps(method, path)
}

fn is_resumed(method: &Method, path: &str) -> bool {
    is_watch(method, path) && path.contains("resourceVersion=") && !path.contains("sendInitialEvents")
}

fn is_read(method: &Method, _: &str) -> bool {
    *method == Method::GET
}

/// Reports whether a request writes objects, apart from the Lease and questions about permissions.
fn is_write(method: &Method, path: &str) -> bool {
    *method != Method::GET && is_any(method, path)
}

fn is_any(_: &Method, path: &str) -> bool {
    !path.contains("/leases/kubegc") && !path.contains("/selfsubject")
}

fn is_discovery(_: &Method, path: &str) -> bool {
    path == "/apis"
}

/// Objects that must stay, with their UIDs, and objects that must be deleted.
#[derive(Default)]
struct Story {
    living: Vec<(String, String)>,
    garbage: Vec<String>,
    /// UIDs that are replaced or gone.
    doomed: String,
    alive: String,
    swap: String,
}

impl Story {
    /// Creates the objects before the fault.
    fn begin(admin: &Admin) -> Self {
        let mut story = Self::default();
        let alive = admin.map("alive", None);
        let doomed = admin.map("doomed", None);
        let swap = admin.map("swap", None);
        let front = admin.map("front", None);
        let loose = admin.map("loose", None);
        for number in 0..DEPENDENTS {
            let own = |owner: (&str, &str), prefix: &str| {
                let name = format!("{prefix}-{number}");
                let uid = admin.map(&name, Some(owner));
                (name, uid)
            };
            story.living.push(own(("alive", &alive), "alive"));
            let (name, child) = own(("doomed", &doomed), "doomed");
            story.garbage.push(own((&name, &child), "doomed-leaf").0);
            story.garbage.push(name);
            story.garbage.push(own(("swap", &swap), "swap-old").0);
            story.garbage.push(own(("front", &front), "front").0);
            story.living.push(own(("loose", &loose), "loose"));
            let half = format!("half-{number}");
            let uid = admin.map_of(&half, &[("alive", &alive), ("doomed", &doomed)]);
            story.living.push((half, uid));
        }
        story.living.push(("alive".into(), alive.clone()));
        story.garbage.extend(["doomed", "front", "loose"].map(str::to_owned));
        Self { doomed, alive, swap, ..story }
    }

    /// Acts while the fault lasts, bypassing the proxy.
    fn happen(&mut self, admin: &Admin) {
        admin.delete("doomed", "Background");
        admin.delete("front", "Foreground");
        admin.delete("loose", "Orphan");
        admin.delete("swap", "Background");
        let again = admin.map("swap", None);
        assert_ne!(again, self.swap);
        for number in 0..DEPENDENTS {
            let own = |prefix: &str, owner: (&str, &str)| {
                let name = format!("{prefix}-{number}");
                let uid = admin.map(&name, Some(owner));
                (name, uid)
            };
            self.living.push(own("late-alive", ("alive", &self.alive)));
            self.living.push(own("late-swap", ("swap", &again)));
            self.garbage.push(own("late-doomed", ("doomed", &self.doomed)).0);
        }
        self.living.push(("swap".into(), again));
    }

    /// Checks that the end state is right, and remains so.
    fn ended_well(&self, admin: &Admin, run: &Run) {
        let begun = Instant::now();
        let mut left = Vec::new();
        while begun.elapsed() < AFTERWARDS {
            let names = names(admin);
            left = self.garbage.iter().filter(|name| names.contains(name)).collect();
            if left.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(left.is_empty(), "left: {left:?}\n{}", run.log());
        eprintln!("all garbage was gone {:?} after the fault", begun.elapsed());
        until("everything is done", || run.is_idle() && run.is_synced());
        for (name, uid) in &self.living {
            let (code, object) = admin.get(&format!("{MAPS}/{name}"));
            assert_eq!((code, object["metadata"]["uid"].as_str()), (200, Some(uid.as_str())), "{name}");
        }
        for number in 0..DEPENDENTS {
            let owners = |name: String| {
                let object = admin.get(&format!("{MAPS}/{name}")).1;
                let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                owners.into_iter().map(|owner| owner["name"].clone()).collect::<Vec<_>>()
            };
            within(AFTERWARDS, "the absent owner is dropped", || {
                owners(format!("half-{number}")) == [Value::from("alive")]
            });
            assert_eq!(owners(format!("loose-{number}")), [Value::Null; 0], "loose-{number}");
        }
        assert_eq!(admin.refusals(403), [] as [String; 0]);
    }
}

fn names(admin: &Admin) -> Vec<String> {
    let list = admin.get(MAPS).1;
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Plays the story under a fault that lasts at least `hold` and until every rule has been applied, because the watch that all
/// writes depend on may be among the stalled ones. `begin` causes the fault; `during` is called repeatedly during `hold`.
fn play(arguments: &[&str], hold: Duration, begin: impl FnOnce(&Proxy), mut during: impl FnMut(&Proxy)) {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&least_privileged(&server));
    let mut run = Run::with(&proxy.kubeconfig(), arguments);
    let mut story = Story::begin(&admin);
    until("the graph is complete", || run.is_ready() && run.is_synced() && run.leads());
    begin(&proxy);
    let begun = Instant::now();
    story.happen(&admin);
    while begun.elapsed() < hold {
        during(&proxy);
        std::thread::sleep(Duration::from_millis(100));
    }
    // On a busy machine, connections that are cut again and again carry too few requests for every rule.
    until("every rule has been applied", || proxy.is_exercised());
    proxy.heal();
    story.ended_well(&admin, &run);
    run.signal(crate::support::Signal::TERM);
    assert_eq!(run.wait().code(), Some(0), "{}", run.log());
}

const HOLD: Duration = Duration::from_secs(3);

#[test]
fn without_a_fault_each_dependent_takes_one_request() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&least_privileged(&server));
    let root = admin.map("root", None);
    for number in 0..50 {
        admin.map(&format!("leaf-{number}"), Some(("root", &root)));
    }
    let run = Run::with(&proxy.kubeconfig(), &[]);
    until("the graph is complete", || run.is_ready() && run.is_synced() && run.leads());
    admin.delete("root", "Background");
    until("all are gone", || !names(&admin).iter().any(|name| name.starts_with("leaf-")));
    until("everything is done", || run.is_idle());
    let mut about: Vec<String> = proxy
        .forwarded()
        .iter()
        .filter(|request| request.path.starts_with(&format!("{MAPS}/leaf-")))
        .map(|request| format!("{} {}", request.method, request.path))
        .collect();
    about.sort();
    let mut expected: Vec<String> = (0..50).map(|number| format!("DELETE {MAPS}/leaf-{number}")).collect();
    expected.sort();
    assert_eq!(about, expected);
}

#[test]
fn connections_cut_in_the_middle_of_everything() {
    play(&[], HOLD, Proxy::cut, Proxy::cut);
}

#[test]
fn answers_that_break_off() {
    let begin = |proxy: &Proxy| {
        // At first all connections are cut, so everything is requested again.
        proxy.inject_every(2, is_watch, Fault::Truncate(700));
        proxy.inject_every(3, is_write, Fault::ResetAfter);
        proxy.inject_every(4, is_write, Fault::Reset);
        proxy.cut();
    };
    play(&[], HOLD, begin, |_| {});
}

#[test]
fn versions_that_are_gone_when_a_watch_resumes() {
    let begin = |proxy: &Proxy| {
        proxy.inject(is_resumed, Fault::Answer { code: 410, retry_after: None });
        proxy.cut();
    };
    play(&[], HOLD, begin, |_| {});
}

#[test]
fn too_many_requests_with_a_time_to_wait() {
    let begin = |proxy: &Proxy| {
        proxy.inject_every(2, is_any, Fault::Answer { code: 429, retry_after: Some(1) });
        proxy.cut();
    };
    play(&[], HOLD, begin, |_| {});
}

#[test]
fn bursts_of_server_errors() {
    let begin = |proxy: &Proxy| {
        proxy.inject_every(5, is_write, Fault::AnswerAfter { code: 504 });
        proxy.inject_every(2, is_any, Fault::Answer { code: 500, retry_after: None });
        proxy.inject_every(3, is_any, Fault::Answer { code: 503, retry_after: Some(1) });
        proxy.inject_every(2, is_any, Fault::Answer { code: 504, retry_after: None });
    };
    play(&[], HOLD, begin, Proxy::cut);
}

#[test]
fn requests_and_answers_that_stall() {
    let begin = |proxy: &Proxy| {
        proxy.inject_every(3, is_write, Fault::StallAfter);
        proxy.inject_every(2, is_write, Fault::Stall);
    };
    // This is far longer than the time after which a request is given up.
    play(&["--request-timeout=500ms"], Duration::from_secs(5), begin, |_| {});
}

#[test]
fn watches_that_stall() {
    let begin = |proxy: &Proxy| {
        proxy.inject(is_watch, Fault::Stall);
        proxy.cut();
    };
    play(&[], HOLD, begin, |_| {});
}

/// With the default settings, requests are given up after half a minute, and shorter silences are waited out.
#[test]
fn half_a_minute_of_silence() {
    let begin = |proxy: &Proxy| {
        proxy.inject_every(2, is_write, Fault::Stall);
        proxy.inject(is_first_watch_of_maps, Fault::Stall);
        proxy.inject_every(2, is_watch_of_others, Fault::Stall);
        proxy.inject_every(3, is_write, Fault::StallAfter);
        proxy.cut();
    };
    play(&[], Duration::from_secs(33), begin, |_| {});
}

#[test]
fn answers_that_come_twice_and_out_of_order() {
    let begin = |proxy: &Proxy| {
        proxy.inject_every(2, is_write, Fault::Twice);
        proxy.inject(is_watch, Fault::RepeatEvents);
        proxy.inject(is_any, Fault::Shuffle(Duration::from_millis(400)));
        proxy.cut();
    };
    play(&[], HOLD, begin, |_| {});
}

#[test]
fn discovery_that_fails() {
    let begin = |proxy: &Proxy| {
        proxy.inject(is_discovery, Fault::Answer { code: 503, retry_after: None });
        proxy.inject_every(2, is_read, Fault::Delay(Duration::from_millis(300)));
        proxy.cut();
    };
    // New definitions make the collector read discovery again.
    play(&[], HOLD, begin, |_| {});
}

/// Removes the group of widgets from a discovery document.
fn without_widgets(document: &mut Value) {
    if let Some(items) = document["items"].as_array_mut() {
        items.retain(|group| group["metadata"]["name"] != "example.com");
    }
    if let Some(groups) = document["groups"].as_array_mut() {
        groups.retain(|group| group["name"] != "example.com");
    }
}

/// Marks the group of widgets as stale, as for an aggregated server that could not be refreshed.
fn with_stale_widgets(document: &mut Value) {
    for group in document["items"].as_array_mut().into_iter().flatten() {
        if group["metadata"]["name"] == "example.com" {
            group["versions"] = json!([{"version": "v1", "freshness": "Stale"}]);
        }
    }
}

/// Discovery lies about a group whose objects own others, while some of these owners are deleted.
fn discovery_lies(fault: &Fault) {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let (living, kept) = owning_widgets(&admin);
    let proxy = Proxy::start(&least_privileged(&server));
    let run = Run::with(&proxy.kubeconfig(), &[]);
    until("the graph is complete", || run.is_ready() && run.leads());
    let bystander = admin.map("bystander", None);
    admin.map("bystander-child", Some(("bystander", &bystander)));

    proxy.inject(is_discovery, fault.clone());
    // Each definition makes the collector read discovery again, so it sees the lie at once instead of after half a minute.
    let mut other = widget_definition();
    other["metadata"]["name"] = "gadgets.example.org".into();
    other["spec"]["group"] = "example.org".into();
    other["spec"]["names"] =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"});
    admin.create(DEFINITIONS, &other);
    until("the wrong answer has arrived", || {
        proxy.forwarded().iter().filter(|request| is_discovery(&request.method, &request.path)).count() >= 5
    });
    // Objects without a widget are still collected.
    admin.delete("bystander", "Background");
    within(AFTERWARDS, "the bystander's child is gone", || !admin.exists("bystander-child"));
    admin.delete_at(&format!("{WIDGETS}/doomed"), "Background");
    let late = owned_by_widget(&admin, "late", "living", &living);
    until("it has reconciled what came", || run.page("/debug/kubegc/graph").contains(&late) && run.is_idle());

    assert!(proxy.heal()[0] > 0);
    admin.delete_at(&format!("{DEFINITIONS}/gadgets.example.org"), "Background");
    // Without a sign of change, discovery is read every half a minute.
    within(AFTERWARDS + Duration::from_secs(30), "the garbage is gone", || !admin.exists("garbage"));
    until("everything is done", || run.is_idle());
    for (name, uid) in [("kept", kept), ("late", late)] {
        assert_eq!(admin.get(&format!("{MAPS}/{name}")).1["metadata"]["uid"], *uid, "{name}");
    }
    assert_eq!(admin.get(&format!("{WIDGETS}/living")).0, 200);
}

#[test]
fn discovery_without_a_group() {
    discovery_lies(&Fault::Rewrite(without_widgets));
}

#[test]
fn discovery_with_a_group_that_failed() {
    discovery_lies(&Fault::Rewrite(with_stale_widgets));
}

#[test]
fn discovery_that_is_slow() {
    discovery_lies(&Fault::Delay(Duration::from_secs(2)));
}

/// Copies the files of a server that has ended.
pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_server_that_is_restored_from_an_older_backup() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let start = |data: &Path| Kubegc::start_with("apiserver", ["--data-dir".as_ref(), data.as_os_str()]);
    let server = start(&data);
    let admin = Admin::of(&server);
    let account = least_privileged(&server);
    let token = std::fs::read_to_string(account).unwrap();
    let token: Value = serde_json::from_str(&token).unwrap();
    let token = token["users"][0]["user"]["token"].as_str().unwrap();
    let account_of = |server: &Kubegc| {
        let file = server.folder.path().join("account");
        crate::support_cluster::kubeconfig(&file, &server.url, &server.ca, token);
        file
    };
    // The backup contains owners that live on, and one that is deleted later.
    let (kept, undone) = (admin.map("kept", None), admin.map("undone", None));
    let child = admin.map("kept-child", Some(("kept", &kept)));
    let undone_child = admin.map("undone-child", Some(("undone", &undone)));
    drop(admin);
    drop(server);
    copy(&data, &backup);

    let server = start(&data);
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&account_of(&server));
    let run = Run::with(&proxy.kubeconfig(), &["--leader-elect=false"]);
    until("the graph is complete", || run.is_ready() && run.is_synced());
    // After the backup, an owner is deleted, which the collector observes, with its dependents; others are created.
    admin.delete("undone", "Background");
    until("its child is gone", || !admin.exists("undone-child"));
    let newer = admin.map("newer", None);
    admin.map("newer-child", Some(("newer", &newer)));
    // These are more writes than the restored server makes before it is asked for its revision.
    for number in 0..100 {
        admin.map(&format!("lost-{number}"), None);
    }
    until("it sees them", || run.page("/debug/kubegc/graph").contains(&newer));
    until("everything is done", || run.is_idle());

    drop(admin);
    drop(server);
    let server = start(&backup);
    proxy.redirect(&account_of(&server));
    let admin = Admin::of(&server);
    // Objects that were deleted after the backup exist again; later ones never existed.
    let after = admin.map("after", Some(("undone", &undone)));
    let stray = admin.map("stray", Some(("newer", &newer)));
    let deadline = Instant::now() + AFTERWARDS;
    while admin.exists("stray") {
        assert!(Instant::now() < deadline, "the stray stays: {}", run.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_ne!(stray, after);
    until("everything is done", || run.is_idle() && run.is_synced());
    for (name, uid) in [
        ("kept", kept),
        ("undone", undone),
        ("kept-child", child),
        ("undone-child", undone_child),
        ("after", after),
    ] {
        assert_eq!(admin.get(&format!("{MAPS}/{name}")).1["metadata"]["uid"], *uid, "{name}\n{}", run.log());
    }
    // The collector works as before.
    admin.delete("kept", "Foreground");
    within(AFTERWARDS, "the owner and its child are gone", || {
        !admin.exists("kept") && !admin.exists("kept-child")
    });
}
