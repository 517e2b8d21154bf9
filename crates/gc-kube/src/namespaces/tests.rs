//! Tests passes of the namespace controller over a server with scripted answers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::Mutex;

use bytes::Bytes;
use gc_collectors::namespaces::emptying::{CONFLICT_TRIES, OWN_TRIES};
use gc_controller::breaker::Trip;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;

mod dry_run;

/// Contents of the server, and its failures.
#[derive(Default)]
struct World {
    /// Resources shown by discovery: group, resource.
    served: Vec<(&'static str, &'static str)>,
    /// Groups that discovery marks as stale.
    stale: BTreeSet<&'static str>,
    /// Paths whose DELETE is answered with this code.
    refusals: BTreeMap<String, u16>,
    /// Collections with objects that remain after their deletion: their finalizers and grace period.
    stays: BTreeMap<String, (&'static str, i64)>,
    /// Number of status updates that are answered with a conflict before one is accepted.
    conflicts: usize,
    /// True if a conflict means that the namespace was deleted and recreated.
    replaced: bool,
    finalizers: Vec<&'static str>,
    terminating: bool,
    /// UID of the namespace; empty for `u`.
    uid: &'static str,
    /// Collections of which only a first, empty page can be read.
    broken_lists: BTreeSet<&'static str>,
    /// Collections whose deletion is never answered.
    silent: BTreeSet<&'static str>,
    /// Number of the next requests for the namespace itself, or for the list of all, that are answered with a 503.
    outage: usize,
    /// Number of discovery requests.
    discoveries: usize,
    /// True if discovery is answered with a 503.
    undiscovered: bool,
    log: Vec<String>,
}

type Shared = Arc<Mutex<World>>;

fn answer(world: &Shared, request: &Request<Full<Bytes>>) -> (u16, Value) {
    let mut world = world.lock().unwrap();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let group_value = |group: &str, resources: Vec<&str>, stale: bool| {
        let resources: Vec<_> = resources
            .iter()
            .map(|name| {
                json!({
                    "resource": name, "responseKind": {"group": group, "version": "v1", "kind": "Kind"},
                    "scope": "Namespaced", "verbs": ["list", "watch", "get", "delete", "deletecollection"],
                })
            })
            .collect();
        let freshness = if stale { "Stale" } else { "Current" };
        json!({"metadata": {"name": group}, "versions": [{
            "version": "v1", "freshness": freshness, "resources": if stale { Vec::new() } else { resources },
        }]})
    };
    let discovery = |core: bool| {
        let groups: BTreeSet<&str> =
            world.served.iter().map(|(group, _)| *group).filter(|group| group.is_empty() == core).collect();
        let items: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let resources = world.served.iter().filter(|(of, _)| *of == group).map(|(_, name)| *name);
                group_value(group, resources.collect(), world.stale.contains(group))
            })
            .collect();
        json!({"kind": "APIGroupDiscoveryList", "items": items})
    };
    match path.as_str() {
        "/api" | "/apis" if world.undiscovered => return (503, json!({"message": "not now"})),
        "/api" => {
            let document = discovery(true);
            world.discoveries += 1;
            return (200, document);
        }
        "/apis" => return (200, discovery(false)),
        _ => {}
    }
    let short = path.trim_start_matches("/api/v1/namespaces/n").trim_start_matches('/').to_owned();
    world.log.push(format!("{method} {}", if short.is_empty() { "n" } else { &short }));
    let is_own = short.is_empty() || short == "api/v1/namespaces" || method == Method::PUT;
    if is_own && world.outage > 0 {
        world.outage -= 1;
        return (503, json!({"message": "not now"}));
    }
    match (method, short.as_str()) {
        (Method::GET, "") => {
            let conflict_seen = world.log.iter().any(|line| line == "PUT status");
            let known = if world.uid.is_empty() { "u" } else { world.uid };
            let uid = if world.replaced && conflict_seen { "another" } else { known };
            let deleted = world.terminating.then(|| jiff::Timestamp::now().to_string());
            (
                200,
                json!({
                    "metadata": {"name": "n", "uid": uid, "deletionTimestamp": deleted},
                    "spec": {"finalizers": world.finalizers}, "status": {"phase": "Active"},
                }),
            )
        }
        (Method::PUT, "status") if world.conflicts > 0 => {
            world.conflicts -= 1;
            (409, json!({}))
        }
        (Method::PUT, _) => (200, json!({})),
        (Method::DELETE, collection) => match world.refusals.get(collection) {
            Some(code) => (*code, json!({"message": "refused"})),
            None => (200, json!({})),
        },
        (_, collection) if world.broken_lists.contains(collection) => {
            if request.uri().query().is_some_and(|query| query.contains("continue=")) {
                (500, json!({"message": "broken off"}))
            } else {
                (200, list(&json!({"resourceVersion": "1", "continue": "more"}), &[]))
            }
        }
        (_, collection) => match (world.refusals.get(collection), world.stays.get(collection)) {
            (Some(404), _) => (404, json!({})),
            (_, Some((finalizer, grace))) => {
                let finalizers: Vec<_> = [*finalizer].into_iter().filter(|name| !name.is_empty()).collect();
                let item = json!({"metadata": {
                    "name": "a", "finalizers": finalizers, "deletionGracePeriodSeconds": grace,
                }});
                (200, list(&json!({"resourceVersion": "1"}), &[item]))
            }
            _ => (200, list(&json!({"resourceVersion": "1"}), &[])),
        },
    }
}

/// Returns a list of metadata.
fn list(metadata: &Value, items: &[Value]) -> Value {
    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
}

fn controller(world: World) -> (NamespaceController, Shared) {
    controller_with(world, NamespaceSettings::default())
}

fn controller_with(world: World, settings: NamespaceSettings) -> (NamespaceController, Shared) {
    let world: Shared = Arc::new(Mutex::new(world));
    let shared = Arc::clone(&world);
    let client = ApiClient::in_process(move |request| {
        let (code, body) = answer(&shared, &request);
        let path = request.uri().path().trim_start_matches("/api/v1/namespaces/n/").trim_start_matches('/');
        let silent = request.method() == Method::DELETE && shared.lock().unwrap().silent.contains(path);
        async move {
            if silent {
                std::future::pending::<()>().await;
            }
            Response::builder().status(code).body(Full::new(Bytes::from(body.to_string()))).unwrap()
        }
    });
    let client = client.with_request_timeout(Duration::from_millis(100));
    (NamespaceController::new(client, settings), world)
}

/// Returns a clock by which two passes never begin at the same time.
fn ticking() -> Clock {
    let now = std::sync::atomic::AtomicI64::new(0);
    Arc::new(move || Timestamp(now.fetch_add(1, Ordering::Relaxed)))
}

/// Returns a world with a terminating namespace.
fn terminating(served: &[(&'static str, &'static str)]) -> World {
    World { served: served.to_vec(), finalizers: vec!["kubernetes"], terminating: true, ..World::default() }
}

const APPS: &str = "apis/apps/v1/namespaces/n/deployments";
const CORE: &[(&str, &str)] = &[("", "pods"), ("", "secrets"), ("apps", "deployments")];

/// Runs one pass over the namespace `n` immediately.
async fn one_pass(controller: &mut NamespaceController) -> EndedPass {
    let NamespaceController { requests, work, .. } = controller;
    let time = Arc::clone(&work.time);
    work.passes.listed(&"n".into(), time());
    work.hurry();
    let ended = loop {
        work.send(requests);
        match work.passes.poll_end() {
            Some(ended) => break ended,
            None => match work.next_wakeup().filter(|_| work.sent.is_empty()) {
                Some(wakeup) => sleep_until(&time, Some(wakeup)).await,
                None => {
                    let answer = work.sent.join_next_with_id().await.unwrap();
                    work.take(answer);
                }
            },
        }
    };
    controller.say(&ended);
    ended
}

/// Runs one pass; returns how it ended, and the requests except the GETs of the namespace itself.
async fn pass(controller: &mut NamespaceController, world: &Shared) -> (String, Vec<String>) {
    let end = match one_pass(controller).await.end {
        End::Done { .. } => "done".to_owned(),
        End::Again { milliseconds, .. } => format!("again in {} s", milliseconds / 1_000),
        End::Failed { .. } => "failed".to_owned(),
        End::DryRun(_) => "dry run".to_owned(),
    };
    let log = std::mem::take(&mut world.lock().unwrap().log);
    // Discovery reads which groups have a separate store.
    let aside = |line: &&String| *line != "GET n" && !line.ends_with("/apiservices");
    (end, log.iter().filter(aside).cloned().collect())
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test]
async fn the_scenarios_of_a_pass() {
    let with = |change: &dyn Fn(&mut World)| {
        let mut world = terminating(CORE);
        change(&mut world);
        world
    };
    let stays = |name: &str, finalizer: &'static str, grace: i64| {
        let name = name.to_owned();
        move |world: &mut World| {
            world.stays.insert(name.clone(), (finalizer, grace));
        }
    };
    let refused = |name: &str, code: u16| {
        let name = name.to_owned();
        move |world: &mut World| {
            world.refusals.insert(name.clone(), code);
        }
    };
    let all = &[
        "DELETE apis/apps/v1/namespaces/n/deployments",
        "DELETE pods",
        "DELETE secrets",
        "GET apis/apps/v1/namespaces/n/deployments",
        "GET pods",
        "GET secrets",
    ][..];
    for (scenario, world, end, requests, finalized) in [
        ("NS-T02", with(&|_| ()), "done", all, true),
        ("NS-T03", with(&|world| world.finalizers.clear()), "done", &[], false),
        (
            "NS-T04",
            with(&|world| {
                world.finalizers.clear();
                world.stale.insert("apps");
            }),
            "done",
            &[],
            false,
        ),
        (
            "NS-T05",
            with(&|world| {
                world.stale.insert("apps");
            }),
            "failed",
            &["DELETE pods", "DELETE secrets", "GET pods", "GET secrets"],
            false,
        ),
        ("NS-T06", with(&|world| world.terminating = false), "done", &[], false),
        ("NS-T08", with(&refused(APPS, 404)), "done", all, true),
        (
            "NS-T12",
            with(&stays("pods", "example.com/hold", 0)),
            "again in 8 s",
            &["DELETE pods", "GET pods"],
            false,
        ),
        ("NS-T14", with(&stays("pods", "", 30)), "again in 16 s", &["DELETE pods", "GET pods"], false),
        ("NS-T15", with(&stays("secrets", "example.com/hold", 0)), "again in 8 s", all, false),
        ("NS-T16", with(&stays("secrets", "", 0)), "failed", all, false),
        ("NS-T18", with(&refused("pods", 500)), "failed", &["DELETE pods"], false),
        (
            "BEAT-NS-2: pods cannot be looked for",
            with(&|world| {
                world.stale.insert("");
            }),
            "failed",
            &[],
            false,
        ),
    ] {
        let (mut controller, world) = controller(world);
        let (ended, log) = pass(&mut controller, &world).await;
        let (writes, mut rest): (Vec<_>, Vec<_>) = log.into_iter().partition(|line| line.starts_with("PUT"));
        rest.sort();
        rest.dedup();
        assert_eq!((ended.as_str(), rest), (end, lines(requests)), "{scenario}");
        assert_eq!(writes.contains(&"PUT finalize".to_owned()), finalized, "{scenario}: {writes:?}");
    }
}

/// A pass skips resources that an earlier, partly failed pass found empty, unless that was long ago or another namespace has the
/// name. It lists those again that could not be listed to their end.
#[tokio::test]
async fn a_pass_goes_on_where_the_last_one_failed() {
    type Change = fn(&mut World);
    let (apps, pods) = (["DELETE", "GET"].map(|verb| format!("{verb} {APPS}")), ["DELETE pods", "GET pods"]);
    let secrets = ["DELETE secrets", "GET secrets"].map(str::to_owned);
    let all: Vec<String> = [&apps[..], &pods.map(str::to_owned), &secrets].concat();
    let refused: Change = |world| world.refusals.extend([(APPS.into(), 500)]);
    let broken: Change = |world| world.broken_lists.extend([APPS]);
    let unlisted: Change = |world| {
        world.refusals.extend([(APPS.into(), 500), ("secrets".into(), 404)]);
    };
    let nothing: Change = |_| ();
    for (scenario, at_first, then, seconds, mut expected, discoveries) in [
        ("its deletion was refused", refused, nothing, 1, apps.to_vec(), 1),
        ("its list broke off", broken, nothing, 1, apps.to_vec(), 1),
        ("almost too long ago", refused, nothing, 60, apps.to_vec(), 1),
        ("too long ago", refused, nothing, 61, all.clone(), 2),
        ("a clock that was set back", refused, nothing, -1, all.clone(), 2),
        ("recreated under its name", refused, |world| world.uid = "another", 1, all.clone(), 2),
        ("what cannot be listed", unlisted, nothing, 1, [&apps[..], &secrets].concat(), 1),
    ] {
        let mut first = terminating(CORE);
        at_first(&mut first);
        let (mut controller, world) = controller(first);
        let began = Timestamp(jiff::Timestamp::now().as_millisecond());
        let now = Arc::new(Mutex::new(began));
        let clock = Arc::clone(&now);
        controller.work.time = Arc::new(move || *clock.lock().unwrap());
        assert_eq!(pass(&mut controller, &world).await.0, "failed", "{scenario}");
        {
            let mut world = world.lock().unwrap();
            (world.refusals, world.broken_lists) = Default::default();
            then(&mut world);
            *now.lock().unwrap() = began.after(seconds * 1000);
        }
        let (end, mut log) = pass(&mut controller, &world).await;
        log.retain(|line| !line.starts_with("PUT"));
        log.sort();
        log.dedup();
        expected.sort();
        assert_eq!((end.as_str(), log), ("done", expected), "{scenario}");
        assert_eq!(world.lock().unwrap().discoveries, discoveries, "{scenario}");
    }
}

/// An unanswered DELETECOLLECTION may still be performed after the next pass finds nothing left. If the namespace were then deleted
/// and recreated, it would delete the new contents.
#[tokio::test]
async fn a_namespace_stays_while_a_deletion_without_an_answer_may_be_at_work() {
    for (silent, code) in [(true, 0), (false, 504)] {
        let mut first = terminating(CORE);
        if silent {
            first.silent.insert(APPS);
        } else {
            first.refusals.insert(APPS.into(), code);
        }
        let (mut controller, world) = controller(first);
        let began = Timestamp(jiff::Timestamp::now().as_millisecond());
        let now = Arc::new(Mutex::new(began));
        let clock = Arc::clone(&now);
        controller.work.time = Arc::new(move || *clock.lock().unwrap());
        assert_eq!(pass(&mut controller, &world).await.0, "failed");
        world.lock().unwrap().silent.clear();
        world.lock().unwrap().refusals.clear();
        *now.lock().unwrap() = began.after(20_000);
        let (end, log) = pass(&mut controller, &world).await;
        let finalized = log.contains(&"PUT finalize".to_owned());
        let expected = if silent { ("again in 40 s", false) } else { ("done", true) };
        assert_eq!((end.as_str(), finalized), expected, "silent: {silent}");
        *now.lock().unwrap() = began.after(60_000);
        assert_eq!(pass(&mut controller, &world).await.0, "done");
    }
}

/// If nothing has failed and the remaining objects take time, the next pass checks everything again, and finds objects that were
/// created late.
#[tokio::test]
async fn a_pass_after_a_wait_looks_at_everything() {
    let mut first = terminating(CORE);
    first.stays.insert("secrets".into(), ("example.com/hold", 0));
    let (mut controller, world) = controller(first);
    controller.work.time = ticking();
    let mut passes = Vec::new();
    for _ in 0..2 {
        let (end, mut asked) = pass(&mut controller, &world).await;
        assert_eq!((end.as_str(), asked.len()), ("again in 8 s", 7), "{asked:?}");
        asked.sort();
        passes.push(asked);
    }
    assert_eq!(passes[0], passes[1]);
    assert_eq!(world.lock().unwrap().discoveries, 2);
}

/// The delay grows only while passes make no progress.
#[tokio::test]
async fn a_pass_that_comes_further_is_followed_soon() {
    let mut stuck = terminating(CORE);
    stuck.refusals.insert(APPS.into(), 500);
    stuck.refusals.insert("secrets".into(), 500);
    let (mut controller, world) = controller(stuck);
    for (mended, expected) in [("", true), ("", false), ("secrets", true), ("", false)] {
        world.lock().unwrap().refusals.remove(mended);
        let End::Failed { further, .. } = one_pass(&mut controller).await.end else { panic!("emptied") };
        assert_eq!(further, expected, "after {mended:?} was mended");
    }
}

/// A request for the namespace itself is repeated a few times before the pass is given up.
#[tokio::test]
async fn a_moment_without_answers_does_not_cost_the_pass() {
    let tries = usize::try_from(OWN_TRIES).unwrap();
    for (outage, end) in [(tries - 1, "done"), (tries, "failed")] {
        let (mut controller, world) = controller(World { outage, ..terminating(CORE) });
        assert_eq!(pass(&mut controller, &world).await.0, end, "{outage} failures");
    }
}

/// A dry run checks again every few minutes, and reports only news.
#[tokio::test]
async fn a_dry_run_says_what_is_in_a_namespace_once() {
    let settings = NamespaceSettings { dry_run: true, ..NamespaceSettings::default() };
    let (mut controller, world) = controller_with(terminating(CORE), settings);
    let seen = |secrets: usize| {
        let found = (secrets > 0).then(|| ("secrets.".to_owned(), secrets));
        Contents { found: found.into_iter().collect(), problems: String::new() }
    };
    for (uid, contents, said) in [
        ("one", seen(0), false),
        ("one", seen(0), true),
        ("one", seen(2), false),
        ("one", seen(2), true),
        ("another", seen(2), false),
        ("one", Contents { problems: "apps is dead".into(), ..seen(2) }, false),
    ] {
        assert_eq!(controller.has_said(uid, &contents), said, "{uid} {contents:?}");
    }
    assert_eq!(pass(&mut controller, &world).await.0, "dry run");
    assert_eq!(controller.said.len(), 3, "a pass has said something too");
}

#[tokio::test]
async fn what_is_left_is_listed_in_pages() {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&asked);
    let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let more = if query.contains("continue=") { "" } else { "b" };
        log.lock().unwrap().push(query);
        let item = json!({"metadata": {"name": "a"}});
        let page = list(&json!({"resourceVersion": "1", "continue": more}), &[item]);
        async move { Response::new(Full::new(Bytes::from(page.to_string()))) }
    });
    let gvr = gc_types::Gvr { group: "".into(), version: "v1".into(), resource: "pods".into() };
    let pods = documents::info(&gc_collectors::namespaces::emptying::ContainedResource {
        gvr,
        kind: "Pod".into(),
        together: true,
    });
    let mut controller = NamespaceController::new(client, NamespaceSettings::default());
    let items = controller.requests.list("/api/v1/namespaces/n/pods", &pods).await.unwrap();
    assert_eq!(items.len(), 2);
    assert_eq!(*asked.lock().unwrap(), ["limit=500", "limit=500&continue=%62"]);
}

/// NS-T07, with a limit that upstream's loop lacks.
#[tokio::test]
async fn a_conflict_is_retried_a_few_times() {
    let tries = usize::try_from(CONFLICT_TRIES).unwrap();
    for (conflicts, writes, expected) in [(1, 2, "done"), (100, tries, "failed")] {
        let (mut controller, world) = controller(World { conflicts, ..terminating(&[]) });
        let (end, log) = pass(&mut controller, &world).await;
        assert_eq!(end, expected);
        assert_eq!(log.iter().filter(|line| *line == "PUT status").count(), writes);
    }
}

/// NS-T17: a recreated namespace is left alone.
#[tokio::test]
async fn a_namespace_that_was_recreated_meanwhile_is_not_touched() {
    let (mut controller, world) = controller(World { conflicts: 1, replaced: true, ..terminating(&[]) });
    let End::Failed { why, .. } = one_pass(&mut controller).await.end else { panic!("it succeeded") };
    assert!(why.contains("recreated"), "{why}");
    let log = std::mem::take(&mut world.lock().unwrap().log);
    assert!(log.iter().all(|line| !line.contains("finalize")), "{log:?}");
}

/// Records measurements.
#[derive(Default)]
struct Recorder(Mutex<BTreeMap<String, f64>>);

impl Observer for Recorder {
    fn measured(&self, measurement: &Measurement) {
        let name = format!("{}{{{}}}", measurement.metric.name, measurement.labels.join(","));
        *self.0.lock().unwrap().entry(name).or_default() += measurement.value;
    }

    fn standing(&self, standing: &CollectorState) {
        self.0.lock().unwrap().insert("waiting".into(), f64::from(u32::try_from(standing.waiting).unwrap()));
    }
}

fn recorded_by(recorder: &Arc<Recorder>) -> NamespaceSettings {
    let trace = Trace::new(|_| Arc::<Recorder>::clone(recorder));
    NamespaceSettings { trace, ..NamespaceSettings::default() }
}

#[tokio::test]
async fn a_dry_run_lists_and_changes_nothing() {
    let mut full = terminating(CORE);
    full.stays.insert("pods".into(), ("", 0));
    let recorder = Arc::new(Recorder::default());
    let settings = NamespaceSettings { dry_run: true, ..recorded_by(&recorder) };
    let (mut controller, world) = controller_with(full, settings);
    let lists = ["GET apis/apps/v1/namespaces/n/deployments", "GET pods", "GET secrets"];
    let (end, mut log) = pass(&mut controller, &world).await;
    log.sort();
    assert_eq!((end.as_str(), log), ("dry run", lines(&lists)));
    let measured = recorder.0.lock().unwrap();
    assert!(measured.keys().all(|name| name.contains("{list,") || name.contains("{get,")), "{measured:?}");
}

#[tokio::test]
async fn what_cannot_be_emptied_is_counted_and_reported_once() {
    let mut stuck = terminating(CORE);
    stuck.refusals.insert("pods".into(), 500);
    let recorder = Arc::new(Recorder::default());
    let (mut controller, _world) = controller_with(stuck, recorded_by(&recorder));
    let name: Arc<str> = "n".into();
    let EndedPass { end: End::Failed { why, .. }, uid: Some(uid), .. } = one_pass(&mut controller).await
    else {
        panic!("it was emptied")
    };
    assert_eq!(why, "/api/v1/namespaces/n/pods was answered with 500: refused");
    let mut failing = FailingNamespace::begun();
    assert_eq!(failing.note(&name, &uid, &why), None, "it may be over in a moment");
    failing.since = failing.since.checked_sub(PATIENCE).unwrap();
    let note = failing.note(&name, &uid, &why).unwrap();
    assert_eq!((note.reason, note.message), ("NamespaceNotEmptied", format!("cannot be emptied: {why}")));
    assert_eq!(failing.note(&name, &uid, &why), None);
    assert!(failing.note(&name, &uid, "another reason").is_some());
    assert_eq!(recorder.0.lock().unwrap().get("kubegc_namespace_requests{delete,500}"), Some(&1.0));
}

/// Regression test: namespaces that were already terminating were listed only once, and an error counted as an answer, so none was
/// finalized for a minute.
#[tokio::test]
async fn passes_begin_when_what_they_inherit_is_known() {
    let recorder = Arc::new(Recorder::default());
    let (controller, world) =
        controller_with(World { outage: 2, ..terminating(CORE) }, recorded_by(&recorder));
    let (names, terminating) = mpsc::channel(1);
    names.send("n".into()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(controller.run(terminating, async { drop(stopped.await) }));
    let ended = || {
        let measured = recorder.0.lock().unwrap();
        measured.keys().find(|name| name.starts_with("kubegc_namespace_passes")).cloned()
    };
    let end = loop {
        match ended() {
            Some(end) => break end,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    stop.send(()).unwrap();
    work.await.unwrap();
    let log = world.lock().unwrap().log.clone();
    assert_eq!(end, "kubegc_namespace_passes{done}", "{log:?}");
    let list = "GET api/v1/namespaces";
    assert_eq!(log[..4], lines(&[list, list, list, "GET n"]));
}

/// A pause stops the controller, and so does a tripped breaker; it continues when either ends.
#[tokio::test]
async fn restraints_stop_the_passes_until_they_end() {
    let breaker = SharedBreaker::default();
    let trip = Trip { resource: "pods".into(), since: Timestamp(0), why: "a test".into() };
    breaker.lock().stop(trip);
    let (pause, held) = watch::channel(true);
    let restraints = Restraints { held, breaker: Some(breaker.clone()), bounds: None };
    let recorder = Arc::new(Recorder::default());
    let settings = NamespaceSettings { restraints, is_first: true, ..recorded_by(&recorder) };
    let (controller, world) = controller_with(terminating(CORE), settings);
    let (names, terminating) = mpsc::channel(1);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(controller.run(terminating, async { drop(stopped.await) }));
    let ended = async |end: &str| {
        let name = format!("kubegc_namespace_passes{{{end}}}");
        while !recorder.0.lock().unwrap().contains_key(&name) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        std::mem::take(&mut world.lock().unwrap().log)
    };
    names.send("n".into()).await.unwrap();
    while names.capacity() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.lock().unwrap().log, Vec::<String>::new(), "it is paused");
    pause.send_replace(false);
    let log = ended("failed").await;
    assert!(log.iter().all(|line| !line.starts_with("DELETE")), "{log:?}");
    assert!(breaker.change(|breaker| breaker.resume("pods")));
    let log = ended("done").await;
    assert!(log.contains(&"DELETE pods".to_owned()), "{log:?}");
    stop.send(()).unwrap();
    work.await.unwrap();
}

#[test]
fn a_namespace_that_stays_although_it_is_empty_has_an_event() {
    for (milliseconds, seconds) in [(1, 1), (999, 1), (59_000, 60)] {
        let note = stays(&"n".into(), Uid::new("u"), milliseconds);
        let message = format!(
            "is empty, and stays for {seconds} s, as a deletion of its contents may still be in progress"
        );
        assert_eq!((note.message, note.reason), (message, "NamespaceStays"));
    }
}

/// NS-T20: a dead group blocks nothing if it was empty here while it still answered; otherwise, it does.
#[tokio::test]
async fn a_dead_group_that_had_nothing_here_is_not_waited_for() {
    for (had, end) in [(false, "done"), (true, "failed")] {
        let mut first = terminating(&[("", "pods"), ("", "secrets"), ("far.example.com", "things")]);
        first.stays.insert("secrets".into(), ("example.com/hold", 0));
        let things = "apis/far.example.com/v1/namespaces/n/things";
        if had {
            first.stays.insert(things.into(), ("example.com/hold", 0));
        }
        let (mut controller, world) = controller(first);
        controller.work.time = ticking();
        assert_eq!(pass(&mut controller, &world).await.0, "again in 8 s");
        {
            let mut world = world.lock().unwrap();
            world.stale.insert("far.example.com");
            world.stays.remove("secrets");
        }
        assert_eq!(pass(&mut controller, &world).await.0, end, "it had something: {had}");
    }
}

/// A namespace controller of an embedded server with exactly its rules; records the permitted and the refused requests.
struct RestrictedController {
    server: gc_apiserver::RunningServer,
    admin: ApiClient,
    forbidden: Arc<Mutex<Vec<String>>>,
    verbs: Arc<Mutex<BTreeSet<String>>>,
}

impl RestrictedController {
    async fn start() -> Self {
        let storage = Arc::new(gc_store::MemoryStorage::default());
        let registry = gc_registry::Registry::open(storage, gc_registry::Config::default()).unwrap();
        let config = gc_apiserver::ServerConfig::at("127.0.0.1:0".parse().unwrap());
        let server = gc_apiserver::Server::start(config, Arc::new(registry)).await.unwrap();
        let way = server.in_process("admin");
        let admin = ApiClient::in_process(move |request| way.call(request));
        Self { server, admin, forbidden: Arc::default(), verbs: Arc::default() }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> u16 {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(Bytes::from(text))).unwrap();
        self.admin.call(request).await.unwrap().head.status.as_u16()
    }

    /// Returns a client of the collector's account, which is bound to its rules.
    async fn client(&self) -> ApiClient {
        let account = format!("system:serviceaccount:kube-system:kubegc-{}", Controller::Namespace.account());
        let rules: Vec<Value> = Controller::Namespace
            .rules()
            .iter()
            .map(|rule| json!({"apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs}))
            .collect();
        let role = json!({"metadata": {"name": "exactly"}, "rules": rules});
        let binding = json!({"metadata": {"name": "exactly"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "exactly"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": account}]});
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        for (path, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            assert_eq!(self.send(Method::POST, &format!("{RBAC}/{path}"), object).await, 201);
        }
        let way = self.server.in_process_as(&account, &["system:serviceaccounts", "system:authenticated"]);
        // The server learns of the binding by a watch.
        loop {
            let probe = Request::get("/api/v1/namespaces").body(Full::new(Bytes::new())).unwrap();
            if way.call(probe).await.status() != 403 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (forbidden, verbs) = (Arc::clone(&self.forbidden), Arc::clone(&self.verbs));
        ApiClient::in_process(move |request: Request<Full<Bytes>>| {
            let words = format!("{} {}", request.method(), request.uri().path());
            verbs.lock().unwrap().insert(asked(&request));
            let (answer, forbidden) = (way.call(request), Arc::clone(&forbidden));
            async move {
                let answer = answer.await;
                if answer.status() == 403 {
                    forbidden.lock().unwrap().push(words);
                }
                answer
            }
        })
    }
}

/// Returns the rule that a request needs; empty for discovery, which is open to everybody.
fn asked(request: &Request<Full<Bytes>>) -> String {
    let segments: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = segments.as_slice() else {
        return String::new();
    };
    match (request.method(), rest) {
        (&Method::GET, ["namespaces"]) => "list namespaces".into(),
        (&Method::GET, ["namespaces", _]) => "get namespaces".into(),
        (&Method::PUT, ["namespaces", _, part]) => format!("update namespaces/{part}"),
        (&Method::DELETE, ["namespaces", _, _]) => "deletecollection *".into(),
        (&Method::DELETE, _) => "delete *".into(),
        (&Method::GET, ["namespaces", _, _]) => "list *".into(),
        (&Method::GET, ["apiservices"]) => String::new(),
        other => format!("{other:?}"),
    }
}

/// NS-T13, in a tenth of upstream's time limit. Apart from the Event about a namespace that cannot be emptied, these are all the
/// permissions, and each is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_namespaces_go_under_exactly_the_rules() {
    const NAMESPACES: usize = 100;
    let allowed = RestrictedController::start().await;
    let client = allowed.client().await;
    for number in 0..NAMESPACES {
        let name = format!("n{number}");
        let namespace = json!({"metadata": {"name": name}});
        assert_eq!(allowed.send(Method::POST, "/api/v1/namespaces", namespace).await, 201);
        let within = format!("/api/v1/namespaces/{name}");
        for kind in ["configmaps", "services"] {
            let object = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
            let object = if kind == "services" { object } else { json!({"metadata": {"name": "a"}}) };
            assert_eq!(allowed.send(Method::POST, &format!("{within}/{kind}"), object).await, 201);
        }
        assert!(allowed.send(Method::DELETE, &within, Value::Null).await < 300);
    }
    let (_names, terminating) = mpsc::channel(1);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let recorder = Arc::new(Recorder::default());
    let settings = NamespaceSettings { is_first: true, ..recorded_by(&recorder) };
    let controller = NamespaceController::new(client, settings);
    let work = tokio::spawn(controller.run(terminating, async { drop(stopped.await) }));
    let deadline = std::time::Instant::now() + Duration::from_secs(150);
    for number in 0..NAMESPACES {
        while allowed.send(Method::GET, &format!("/api/v1/namespaces/n{number}"), Value::Null).await != 404 {
            assert!(std::time::Instant::now() < deadline, "namespace n{number} is still there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    // The last namespace disappears before the answer to its finalization has arrived.
    let passes = || recorder.0.lock().unwrap().get("kubegc_namespace_passes{done}").copied();
    while passes() != Some(100.0) {
        assert!(std::time::Instant::now() < deadline, "{:?} passes are done", passes());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.send(()).unwrap();
    work.await.unwrap();
    assert_eq!(*allowed.forbidden.lock().unwrap(), Vec::<String>::new());
    let mut needed = allowed.verbs.lock().unwrap().clone();
    needed.remove("");
    // Older servers have no collection deletion for services; Events are only for namespaces that remain; the watch belongs to
    // another controller.
    for spared in ["delete *", "create events", "patch events", "watch namespaces"] {
        needed.insert(spared.into());
    }
    let rules = Controller::Namespace.rules().iter();
    let granted: BTreeSet<String> = rules
        .flat_map(|rule| rule.verbs.iter().map(move |verb| format!("{verb} {}", rule.resource)))
        .collect();
    assert_eq!(needed, granted);
    assert_eq!(passes(), Some(100.0));
}
