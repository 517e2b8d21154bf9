//! Policies and annotations. Their rules contain wildcards because they may concern every kind; the permissions for one kind are
//! tested with rules for that kind only.

use gc_collectors::expiry::{self, ExpiryEngine, FinishedExpiry};
use gc_collectors::policies::definition::definition;
use gc_collectors::policies::unused::{RECORDED, UNUSED_SEEN, UNUSED_SINCE};
use gc_kube::{CollectorOptions, MetadataCollector, PolicyCollector};

use super::*;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/kubegc.io/v1alpha1/retentionpolicies";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

const fn rule(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Rule {
    Rule { group, resource, names: &[], verbs }
}

/// Permissions for a policy about ConfigMaps; the last one is optional.
const ABOUT_CONFIG_MAPS: &[Rule] = &[
    rule("kubegc.io", "retentionpolicies", &["list", "watch"]),
    rule("kubegc.io", "retentionpolicies/status", &["patch"]),
    rule("", "configmaps", &["list", "watch", "delete"]),
    rule("apiregistration.k8s.io", "apiservices", &["list"]),
];

#[tokio::test]
async fn a_policy_needs_its_own_kind_and_goes_by_the_clock() {
    let world = World::start().await;
    world.create(DEFINITIONS, definition()).await;
    world.until("the kind", POLICIES, |code, _| code == 200).await;
    for name in ["old", "other"] {
        world.create(CONFIG_MAPS, json!({"metadata": {"name": name, "labels": {"is": name}}})).await;
    }
    let spec = json!({"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "maxAge": "24h", "enforce": true,
        "selector": {"matchLabels": {"is": "old"}}});
    let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "p"}, "spec": spec});
    world.create(POLICIES, policy).await;
    let Account { client, asked, forbidden } = world.account("policies", ABOUT_CONFIG_MAPS).await;
    let collector =
        PolicyCollector::new(client, ConcurrencyOptions::default(), false).with_clock(world.clock());
    let recorder = Arc::<Recorder>::default();
    let observer: Arc<dyn Observer> = Arc::<Recorder>::clone(&recorder);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(async move { collector.run(observer, async { drop(stopped.await) }).await });
    world
        .until("the first look", &format!("{POLICIES}/p"), |_, policy| policy["status"]["selected"] == 1)
        .await;
    assert_eq!(world.get(&format!("{CONFIG_MAPS}/old")).await.0, 200);
    world.pass(25 * HOUR);
    world.until_gone(&format!("{CONFIG_MAPS}/old")).await;
    assert_eq!(world.get(&format!("{CONFIG_MAPS}/other")).await.0, 200);
    world.until("the count", &format!("{POLICIES}/p"), |_, policy| policy["status"]["deleted"] == 1).await;
    stop.send(()).unwrap();
    work.await.unwrap();
    assert_eq!(*forbidden.lock().unwrap(), Vec::<String>::new());
    let mut used = asked.lock().unwrap().clone();
    used.remove("");
    assert_eq!(used, granted(ABOUT_CONFIG_MAPS));
    // The collector's own rules cover these.
    let has = Controller::RetentionPolicy.rules();
    for needed in ABOUT_CONFIG_MAPS {
        let covers = |rule: &Rule| {
            let all = (rule.group, rule.resource) == ("*", "*");
            (all || (rule.group, rule.resource) == (needed.group, needed.resource))
                && needed.verbs.iter().all(|verb| rule.verbs.contains(verb))
        };
        assert!(has.iter().any(covers), "{needed:?}");
    }
}

/// Objects that observations have found unused are deleted while a recorder renews its Lease, and not before; those without a mark
/// stay.
#[tokio::test]
async fn what_is_unused_goes_while_a_recorder_runs() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let world = World::start().await;
    world.create(DEFINITIONS, definition()).await;
    world.until("the kind", POLICIES, |code, _| code == 200).await;
    let now = (world.clock())();
    let annotations =
        json!({UNUSED_SINCE: now.after(-8 * 24 * HOUR).to_string(), UNUSED_SEEN: now.to_string()});
    world.create(CONFIG_MAPS, json!({"metadata": {"name": "left", "annotations": annotations}})).await;
    world.create(CONFIG_MAPS, json!({"metadata": {"name": "used"}})).await;
    let renewal = |number: u32| json!({"spec": {"renewTime": format!("2027-01-01T00:00:00.{number:06}Z")}});
    let mut lease = renewal(0);
    lease["metadata"] = json!({"name": "recorder", "annotations": {RECORDED: "ConfigMap"}});
    world.create(LEASES, lease).await;
    let spec = json!({"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "enforce": true,
        "unused": {"for": "168h", "recorder": "default/recorder"}});
    let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "p"}, "spec": spec});
    world.create(POLICIES, policy).await;
    let mut rules = ABOUT_CONFIG_MAPS.to_vec();
    rules.push(rule("coordination.k8s.io", "leases", &["list"]));
    let Account { client, asked, forbidden } = world.account("policies", &rules).await;
    let collector =
        PolicyCollector::new(client, ConcurrencyOptions::default(), false).with_clock(world.clock());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let observer: Arc<dyn Observer> = Arc::<Recorder>::default();
    let work = tokio::spawn(async move { collector.run(observer, async { drop(stopped.await) }).await });
    let is_held = |_, policy: &Value| {
        let conditions = policy["status"]["conditions"].as_array().into_iter().flatten();
        policy["status"]["due"] == 1 && conditions.into_iter().any(|one| one["reason"] == "NotRecorded")
    };
    world.until("the first look", &format!("{POLICIES}/p"), is_held).await;
    let (path, deadline) = (format!("{CONFIG_MAPS}/left"), Instant::now() + PATIENCE);
    let mut renewals = 1;
    while world.get(&path).await.0 == 200 {
        assert!(Instant::now() < deadline, "nothing was deleted");
        world.patch(&format!("{LEASES}/recorder"), renewal(renewals)).await;
        renewals += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let undo = json!(["kubegc undo configmap/left -n default --records DIR"]);
    let is_said = |_, policy: &Value| policy["status"]["lastRun"]["undo"] == undo;
    world.until("the command that restores it", &format!("{POLICIES}/p"), is_said).await;
    assert_eq!(world.get(&format!("{CONFIG_MAPS}/used")).await.0, 200);
    stop.send(()).unwrap();
    work.await.unwrap();
    assert_eq!(*forbidden.lock().unwrap(), Vec::<String>::new());
    let mut used = asked.lock().unwrap().clone();
    used.remove("");
    assert_eq!(used, granted(&rules));
}

/// A dry run of an enforced policy must report each object that would be deleted once, not again at each run.
#[tokio::test]
async fn a_dry_run_of_a_policy_tells_each_object_once() {
    let world = World::start().await;
    world.create(DEFINITIONS, definition()).await;
    world.until("the kind", POLICIES, |code, _| code == 200).await;
    let old = |name: &str| json!({"metadata": {"name": name, "labels": {"is": "old"}}});
    world.create(CONFIG_MAPS, old("first")).await;
    let spec = json!({"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "maxAge": "1ns", "enforce": true,
        "selector": {"matchLabels": {"is": "old"}}});
    world
        .create(POLICIES, json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "p"}, "spec": spec.clone()}))
        .await;
    // A collector that acts has already published its findings.
    let digest = gc_collectors::policies::engine::digest(&spec);
    let shown = json!({"status": {"observedGeneration": 1, "observedSpec": digest, "due": 1, "selected": 1}});
    world.patch(&format!("{POLICIES}/p/status"), shown).await;
    let collector = PolicyCollector::new(world.admin.clone(), ConcurrencyOptions::default(), true)
        .with_clock(world.clock());
    let recorder = Arc::<Recorder>::default();
    let observer: Arc<dyn Observer> = Arc::<Recorder>::clone(&recorder);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(async move { collector.run(observer, async { drop(stopped.await) }).await });
    let reported = |name: &'static str| {
        let recorder = Arc::clone(&recorder);
        async move {
            let deadline = Instant::now() + PATIENCE;
            while !recorder.held.lock().unwrap().iter().any(|held| held == name) {
                assert!(Instant::now() < deadline, "{name} is not reported");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    reported("first").await;
    for name in ["second", "third", "fourth"] {
        // Enough time for many runs; later changes prove that there was one.
        world.pass(60_000);
        world.create(CONFIG_MAPS, old(name)).await;
        reported(name).await;
    }
    assert_eq!(*recorder.held.lock().unwrap(), ["first", "second", "third", "fourth"]);
    stop.send(()).unwrap();
    work.await.unwrap();
    assert_eq!(world.get(&format!("{CONFIG_MAPS}/first")).await.0, 200);
}

/// A kind that is not served is looked up again when discovery brings news, but not with every change of a policy, because the
/// policies' own status updates are changes, too.
#[tokio::test]
async fn what_is_not_served_is_not_looked_for_at_every_change() {
    let world = World::start().await;
    world.create(DEFINITIONS, definition()).await;
    world.until("the kind", POLICIES, |code, _| code == 200).await;
    let target = json!({"apiVersion": "example.com/v1", "kind": "Nothing"});
    let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "p"},
        "spec": {"target": target, "maxAge": "24h"}});
    world.create(POLICIES, policy).await;
    let (discoveries, way) = (Arc::new(AtomicI64::new(0)), world.server.in_process("admin"));
    let counted = Arc::clone(&discoveries);
    let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
        counted.fetch_add(i64::from(request.uri().path() == "/api"), Ordering::Relaxed);
        way.call(request)
    });
    let collector =
        PolicyCollector::new(client, ConcurrencyOptions::default(), false).with_clock(world.clock());
    let observer: Arc<dyn Observer> = Arc::<Recorder>::default();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(async move { collector.run(observer, async { drop(stopped.await) }).await });
    let path = format!("{POLICIES}/p");
    let is_told = |policy: &Value| {
        let observing = &policy["status"]["conditions"][1];
        observing["message"] == "the server serves no Nothing in example.com/v1"
    };
    world.until("the reason", &path, |_, policy| is_told(policy)).await;
    // Several times longer than a discovery counts as fresh.
    for change in 0..35 {
        world.patch(&path, json!({"metadata": {"annotations": {"change": change.to_string()}}})).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(discoveries.load(Ordering::Relaxed) <= 2, "{discoveries:?} discoveries");
    stop.send(()).unwrap();
    work.await.unwrap();
}

#[tokio::test]
async fn annotations_need_the_rules_that_they_have_and_go_by_the_clock() {
    let world = World::start().await;
    let annotated =
        |name: &str, ttl: &str| json!({"metadata": {"name": name, "annotations": {"kubegc.io/ttl": ttl}}});
    world.create(CONFIG_MAPS, annotated("soon", "24h")).await;
    world.create(CONFIG_MAPS, annotated("late", "48h")).await;
    world.create(CONFIG_MAPS, annotated("wrong", "1y")).await;
    let controller = Controller::Expiry;
    let Account { client, asked, forbidden } = world.account(controller.account(), controller.rules()).await;
    let mut options = CollectorOptions::default();
    options.ignored_resources.extend(expiry::FINISHING.map(|(group, name)| (group.into(), name.into())));
    let by_metadata =
        MetadataCollector::new(client.clone(), options).named(controller.name()).with_clock(world.clock());
    let by_end = RetentionCollector::new(
        client,
        Engine::new(FinishedExpiry::default()),
        ConcurrencyOptions::default(),
        false,
    )
    .with_clock(world.clock());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let until = |mut stopped: tokio::sync::watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let (one, other) = (until(stopped.clone()), until(stopped));
    let observer = || -> Arc<dyn Observer> { Arc::<Recorder>::default() };
    let (first, second) = (observer(), observer());
    let work = tokio::spawn(async move {
        let engine = ExpiryEngine::default();
        futures::join!(by_metadata.run(engine, first, one), by_end.run(second, other));
    });
    let events = ["Warning InvalidRetentionAnnotation expiry-controller"];
    world.until_events("wrong", &events).await;
    assert_eq!(world.get(&format!("{CONFIG_MAPS}/soon")).await.0, 200);
    world.pass(25 * HOUR);
    world.until_gone(&format!("{CONFIG_MAPS}/soon")).await;
    for name in ["late", "wrong"] {
        assert_eq!(world.get(&format!("{CONFIG_MAPS}/{name}")).await.0, 200, "{name}");
    }
    stop.send_replace(true);
    work.await.unwrap();
    assert_eq!(*forbidden.lock().unwrap(), Vec::<String>::new());
    let mut verbs: BTreeSet<String> = BTreeSet::from(["patch events".into()]);
    for words in asked.lock().unwrap().iter().filter(|words| !words.is_empty()) {
        let verb = words.split(' ').next().unwrap();
        verbs.insert(if words.ends_with(" events") && verb == "create" {
            words.clone()
        } else {
            format!("{verb} *.*")
        });
    }
    assert_eq!(verbs, granted(controller.rules()));
}

/// The wildcards are for annotations on any kind. If fewer rules are granted, less is done: resources that may not be watched are
/// left alone, and block nothing else.
#[tokio::test]
async fn annotations_of_one_kind_need_rules_for_that_kind_alone() {
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    const ABOUT_CONFIG_MAPS: &[Rule] = &[rule("", "configmaps", &["list", "watch", "delete"])];
    let world = World::start().await;
    let annotated = json!({"metadata": {"name": "soon", "annotations": {"kubegc.io/ttl": "24h"}}});
    world.create(CONFIG_MAPS, annotated.clone()).await;
    world.create(SECRETS, annotated).await;
    let Account { client, asked, forbidden } = world.account("few", ABOUT_CONFIG_MAPS).await;
    let collector = MetadataCollector::new(client, CollectorOptions::default()).with_clock(world.clock());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        let observer: Arc<dyn Observer> = Arc::<Recorder>::default();
        drop(collector.run(ExpiryEngine::default(), observer, async { drop(stopped.await) }).await);
    });
    let deadline = Instant::now() + PATIENCE;
    while !asked.lock().unwrap().contains("watch configmaps") {
        assert!(Instant::now() < deadline, "ConfigMaps are not watched");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.pass(25 * HOUR);
    world.until_gone(&format!("{CONFIG_MAPS}/soon")).await;
    assert_eq!(world.get(&format!("{SECRETS}/soon")).await.0, 200);
    stop.send(()).unwrap();
    work.await.unwrap();
    let refused = forbidden.lock().unwrap().clone();
    let reads = |words: &String| words.starts_with("list ") || words.starts_with("watch ");
    assert!(
        refused.iter().any(|words| words.ends_with(" secrets")) && refused.iter().all(reads),
        "{refused:?}"
    );
}

/// The collectors' clock was 25 h ahead and is corrected: an object created afterwards that is due in 10 h stays.
#[tokio::test]
async fn a_clock_that_is_corrected_deletes_only_what_is_due() {
    let world = World::start().await;
    let expiring = |name: &str, hours: i64| {
        let at = jiff::Timestamp::from_millisecond(system_clock()().0 + hours * HOUR).unwrap();
        json!({"metadata": {"name": name, "annotations": {"kubegc.io/expires-at": at.to_string()}}})
    };
    world.create(CONFIG_MAPS, expiring("ahead", 20)).await;
    world.pass(25 * HOUR);
    let controller = Controller::Expiry;
    let Account { client, .. } = world.account(controller.account(), controller.rules()).await;
    let mut options = CollectorOptions::default();
    options.ignored_resources.extend(expiry::FINISHING.map(|(group, name)| (group.into(), name.into())));
    let collector = MetadataCollector::new(client, options).with_clock(world.clock());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        let observer: Arc<dyn Observer> = Arc::<Recorder>::default();
        drop(collector.run(ExpiryEngine::default(), observer, async { drop(stopped.await) }).await);
    });
    world.until_gone(&format!("{CONFIG_MAPS}/ahead")).await;
    world.pass(-25 * HOUR);
    world.create(CONFIG_MAPS, expiring("late", 10)).await;
    for name in ["due", "due-too"] {
        world.create(CONFIG_MAPS, expiring(name, -1)).await;
        world.until_gone(&format!("{CONFIG_MAPS}/{name}")).await;
    }
    assert_eq!(world.get(&format!("{CONFIG_MAPS}/late")).await.0, 200);
    stop.send(()).unwrap();
    work.await.unwrap();
}
