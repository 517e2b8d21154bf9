#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use gc_types::{Effect, ResourceVersion};
use serde_json::Value;

type Answer = Result<MachineState, String>;

const RUNNING: Answer = Ok(MachineState::Running);
const SHUTDOWN: Answer = Ok(MachineState::Shutdown);
const ABSENT: Answer = Ok(MachineState::Absent);

fn failure() -> Answer {
    Err("throttled".to_owned())
}

fn at(milliseconds: i64) -> Timestamp {
    Timestamp(1_800_000_000_000 + milliseconds)
}

fn key(name: &str) -> ObjectKey {
    Kind::Node.key(&"".into(), &name.into())
}

/// Returns a node that was created long ago; `ready` is the status of its condition, if it has one.
fn node(name: &str, version: u64, ready: Option<&str>, taints: &Value) -> Node {
    let conditions: Vec<Value> =
        ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"taints": taints, "providerID": format!("cloud://{name}")},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn uid(name: &str) -> Uid {
    Uid::new(&format!("u-{name}"))
}

/// Returns a node without a provider ID, so the provider searches by its name.
fn nameless(mut node: Node) -> Node {
    node.provider_id = "".into();
    node
}

fn broken(name: &str) -> Node {
    node(name, 5, Some("False"), &Value::Null)
}

/// A ready node in every test, whose machine runs unless the answers differ.
const STEADY: &str = "steady";

/// A collector and its cloud.
struct World {
    engine: Engine<NodeLifecycle>,
    answers: BTreeMap<String, Answer>,
    now: i64,
    /// Number of lookups of other nodes than the steady one.
    lookups: usize,
    log: Vec<String>,
}

impl World {
    fn new(policy: NodePolicy, mut nodes: Vec<Node>) -> Self {
        nodes.push(node(STEADY, 5, Some("True"), &Value::Null));
        Self::of(policy, nodes)
    }

    fn of(policy: NodePolicy, nodes: Vec<Node>) -> Self {
        let mut engine = Engine::new(NodeLifecycle::new(policy));
        engine.tick(at(0));
        engine.observe(Observation::ListStarted(Kind::Node));
        for node in nodes {
            engine.observe(Observation::Observed(Facts::Node(node)));
        }
        engine.observe(Observation::Synced(Kind::Node));
        Self { engine, answers: BTreeMap::new(), now: 0, lookups: 0, log: Vec::new() }
    }

    fn answers(mut self, answers: &[(&str, Answer)]) -> Self {
        self.answers = answers.iter().map(|(name, answer)| ((*name).to_owned(), answer.clone())).collect();
        self
    }

    fn put(&mut self, node: Node) {
        self.engine.observe(Observation::Observed(Facts::Node(node)));
    }

    fn perform(&mut self, effect: &Effect) -> Outcome {
        match &effect.request {
            Request::Outside { key, uid, call: OutsideCall::LookUpMachine { .. }, .. } => {
                self.lookups += usize::from(*key.name != *STEADY);
                let state = self.answers.get(&*key.name).cloned().unwrap_or(RUNNING);
                let outcome = match &state {
                    Ok(_) => Outcome::Applied(None),
                    Err(message) => {
                        Outcome::Failed { message: message.clone(), retry_after_milliseconds: None }
                    }
                };
                self.engine.observe(Observation::Machine { node: key.clone(), uid: uid.clone(), state });
                outcome
            }
            Request::Delete { key, uid, resource_version, .. } => {
                let version = resource_version.unwrap();
                self.log.push(format!("delete {} {uid} at {version}", key.name));
                Outcome::Applied(None)
            }
            Request::Guarded { key, change: Change::Merge(patch), .. } => {
                self.log.push(format!("patch {} {patch}", key.name));
                Outcome::Applied(None)
            }
            Request::RecordEvent(note) => {
                // CNL-T15: the request names its node.
                assert_eq!((&note.about, note.uid.clone()), (&key(&note.about.name), uid(&note.about.name)));
                self.log.push(format!("{} {} {}", note.severity, note.reason, note.message));
                Outcome::Applied(None)
            }
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self) {
        for _ in 0..10_000 {
            let Some(effect) = self.engine.poll_effect() else { return };
            let outcome = self.perform(&effect);
            self.engine.finish(effect.id, &outcome);
        }
        panic!("it never rests: {:?}", self.log.iter().rev().take(4).collect::<Vec<_>>());
    }

    fn pass(&mut self, milliseconds: i64) {
        let until = self.now + milliseconds;
        while self.now < until {
            self.now = (self.now + 1_000).min(until);
            self.engine.tick(at(self.now));
            self.run();
        }
    }

    fn took(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn deletions(&self) -> usize {
        self.log.iter().filter(|line| line.starts_with("delete")).count()
    }
}

const DELETED: [&str; 2] = [
    "Normal DeletingNode Deleting node n because it does not exist in the cloud provider",
    "delete n u-n at 5",
];

fn tainted() -> Value {
    json!([{"key": "other", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}])
}

#[test]
fn the_scenarios_of_nodes() {
    let taint =
        format!(r#"patch n {{"spec":{{"taints":[{{"effect":"NoSchedule","key":"{SHUTDOWN_TAINT}"}}]}}}}"#);
    let untaint = r#"patch n {"spec":{"taints":[{"effect":"NoExecute","key":"other","timeAdded":"2026-01-01T00:00:00Z","value":"v"}]}}"#;
    let failed = "Warning NodeLookupFailed cannot find out whether the machine exists: throttled";
    let (none, with) = (Value::Null, tainted());
    for (scenario, node, answer, expected) in [
        ("CNL-T01", node("n", 5, Some("False"), &none), ABSENT, &DELETED[..]),
        ("CNL-T02", node("n", 5, Some("False"), &none), failure(), &[failed]),
        ("CNL-T03", node("n", 5, Some("False"), &none), RUNNING, &[]),
        ("CNL-T04", node("n", 5, Some("Unknown"), &none), ABSENT, &DELETED),
        ("CNL-T05", node("n", 5, Some("Unknown"), &none), RUNNING, &[]),
        ("CNL-T06", node("n", 5, Some("True"), &none), ABSENT, &[]),
        ("CNL-T07", node("n", 5, Some("False"), &none), SHUTDOWN, &[taint.as_str()]),
        ("CNL-T08", nameless(node("n", 5, Some("False"), &none)), SHUTDOWN, &[taint.as_str()]),
        ("CNL-T09", nameless(node("n", 5, Some("False"), &none)), ABSENT, &DELETED),
        ("CNL-T10", nameless(node("n", 5, Some("False"), &none)), failure(), &[failed]),
        ("CNL-T11", nameless(node("n", 5, Some("Unknown"), &none)), ABSENT, &DELETED),
        // One lookup and one answer: a machine that is gone is not checked for shutdown.
        ("CNL-T12", node("n", 5, Some("False"), &none), ABSENT, &DELETED),
        ("CNL-T13", node("n", 5, Some("True"), &none), SHUTDOWN, &[]),
        ("CNL-T14", node("n", 5, Some("Unknown"), &none), ABSENT, &DELETED),
        ("CNL-T16", node("n", 5, Some("True"), &with), SHUTDOWN, &[untaint]),
        ("CNL-T18", node("n", 5, None, &none), ABSENT, &DELETED),
        ("shut down, and known to be", node("n", 5, Some("False"), &with), SHUTDOWN, &[]),
        ("BEAT-CNL-5", node("n", 5, Some("False"), &with), RUNNING, &[untaint]),
    ] {
        let mut world = World::new(NodePolicy::default(), vec![node]).answers(&[("n", answer)]);
        world.run();
        world.pass(600_000);
        assert_eq!(world.took(), expected, "{scenario}");
    }
}

/// CNL-T17: each attempt uses the current version of the node.
#[test]
fn a_taint_that_meets_conflicts_is_tried_again_on_the_newer_node() {
    let mut world = World::new(NodePolicy::default(), vec![broken("n")]).answers(&[("n", SHUTDOWN)]);
    let mut attempted = Vec::new();
    for second in 1..30 {
        while let Some(effect) = world.engine.poll_effect() {
            let outcome = match &effect.request {
                Request::Guarded { resource_version: ResourceVersion(version), .. } => {
                    attempted.push(*version);
                    if attempted.len() < 3 {
                        world.put(node("n", version + 1, Some("False"), &Value::Null));
                        Outcome::Conflict
                    } else {
                        world.put(node("n", version + 1, Some("False"), &tainted()));
                        Outcome::Applied(None)
                    }
                }
                _ => world.perform(&effect),
            };
            world.engine.finish(effect.id, &outcome);
        }
        world.engine.tick(at(second * 1_000));
    }
    assert_eq!(attempted, [5, 6, 7]);
}

#[test]
fn no_single_answer_deletes_a_node() {
    let mut world = World::new(NodePolicy::default(), vec![broken("n")]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(59_000);
    assert_eq!((world.deletions(), world.lookups), (0, 12));
    // Another answer, or none, starts the count over.
    for other in [RUNNING, failure()] {
        world.answers.insert("n".into(), other);
        world.pass(6_000);
        world.answers.insert("n".into(), ABSENT);
        world.pass(60_000);
        assert_eq!(world.deletions(), 0);
    }
    world.pass(10_000);
    assert_eq!(world.deletions(), 1);
    // At least two, whatever is configured.
    let eager = NodePolicy { confirmations: 0, missing_milliseconds: 0, ..NodePolicy::default() };
    let mut world = World::new(eager, vec![broken("n")]).answers(&[("n", ABSENT)]);
    world.run();
    assert_eq!((world.deletions(), world.lookups), (0, 1));
    world.pass(5_000);
    assert_eq!((world.deletions(), world.lookups), (1, 2));
}

#[test]
fn a_young_node_is_given_time() {
    let mut young = broken("n");
    young.meta.created = Some(at(0));
    let policy = NodePolicy { missing_milliseconds: 60_000, ..NodePolicy::default() };
    let mut world = World::new(policy, vec![young]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(59_000);
    assert_eq!(world.deletions(), 0);
    world.pass(2_000);
    assert_eq!(world.deletions(), 1);
}

/// CNL-T19, BEAT-CNL-6
#[test]
fn a_node_that_came_back_or_is_terminating_is_left_alone() {
    let mut world = World::new(NodePolicy::default(), vec![broken("n")]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(59_000);
    // Registered again under the same name: the count belonged to another node.
    let mut other = broken("n");
    other.meta.uid = Uid::new("other");
    world.put(other);
    world.pass(30_000);
    assert_eq!(world.deletions(), 0);
    world.put(node("n", 9, Some("True"), &Value::Null));
    let before = world.lookups;
    world.pass(600_000);
    assert_eq!((world.took(), world.lookups), (vec![], before));

    let mut deleting = broken("n");
    deleting.meta.deleting = true;
    let mut world = World::new(NodePolicy::default(), vec![deleting]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(600_000);
    assert_eq!((world.took(), world.lookups), (vec![], 0));
}

/// CNL-T20
#[test]
fn many_at_once_trip_the_breaker() {
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let world = |missing: usize, policy: NodePolicy| {
        let nodes = names.iter().map(|name| broken(name)).collect();
        let answers: Vec<_> = names.iter().take(missing).map(|name| (name.as_str(), ABSENT)).collect();
        World::new(policy, nodes).answers(&answers)
    };
    let is_open = |world: &World| {
        let gauges = world.engine.standing().gauges;
        gauges.iter().any(|gauge| gauge.metric.name == "kubegc_node_breaker_open" && gauge.value > 0.0)
    };
    for (missing, fraction, deleted) in
        [(10, 0.2, 0), (3, 0.2, 0), (2, 0.2, 2), (1, 0.0, 1), (2, 0.0, 0), (10, 1.0, 10)]
    {
        let policy = NodePolicy { breaker_fraction: fraction, ..NodePolicy::default() };
        let mut world = world(missing, policy);
        world.run();
        world.pass(300_000);
        assert_eq!(world.deletions(), deleted, "{missing} of 10 with {fraction}");
        let open = is_open(&world);
        assert_eq!(open, deleted == 0, "{missing} of 10 with {fraction}");
        let halted = world.log.iter().filter(|line| line.contains("NodeDeletionHalted")).count();
        assert_eq!(halted, if open { missing } else { 0 }, "one Event per node");
    }
    // With few nodes left, the breaker is open only because of deleted nodes; it closes if no other one is missing.
    let mut few = world(2, NodePolicy::default());
    few.run();
    few.pass(120_000);
    for number in 0..7 {
        few.engine.observe(Observation::Removed(key(&format!("n{number}"))));
    }
    assert!(is_open(&few));
    few.pass(BREAKER_WINDOW_MILLISECONDS);
    assert!(!is_open(&few));
    // When machines come back, the breaker closes by itself; deleted nodes count for a while.
    let mut world = world(3, NodePolicy::default());
    world.run();
    world.pass(120_000);
    assert_eq!(world.deletions(), 0);
    world.answers.insert("n0".into(), RUNNING);
    world.pass(10_000);
    assert_eq!(world.deletions(), 2);
    world.answers.insert("n5".into(), ABSENT);
    world.pass(120_000);
    assert_eq!(world.deletions(), 2);
    for name in ["n1", "n2"] {
        world.engine.observe(Observation::Removed(key(name)));
    }
    world.pass(BREAKER_WINDOW_MILLISECONDS);
    assert_eq!(world.deletions(), 3);
}

#[test]
fn a_dry_run_says_what_it_would_do_once() {
    let policy = NodePolicy { dry_run: true, ..NodePolicy::default() };
    let mut world = World::new(policy, vec![broken("n")]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(600_000);
    assert_eq!(
        world.took(),
        ["Normal DeletingNodeDryRun Node n would be deleted: its machine does not exist"]
    );
}

#[test]
fn failing_answers_are_asked_for_less_and_less() {
    let mut world = World::new(NodePolicy::default(), vec![broken("n")]).answers(&[("n", failure())]);
    world.run();
    world.pass(3_600_000);
    // After 5, 10, 20, 40, 80, 160 s, and then every 300 s.
    assert_eq!(world.lookups, 1 + 6 + 10);
    assert_eq!(world.took().len(), 1);
}

#[test]
fn a_deletion_that_fails_is_said() {
    let mut world = World::new(NodePolicy::default(), vec![broken("n")]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(59_000);
    world.now += 1_000;
    world.engine.tick(at(world.now));
    let delete = loop {
        let effect = world.engine.poll_effect().unwrap();
        if matches!(effect.request, Request::Delete { .. }) {
            break effect;
        }
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    };
    let Request::Delete { resource_version, .. } = &delete.request else { unreachable!() };
    assert_eq!(*resource_version, Some(ResourceVersion(5)));
    world.took();
    let message = "forbidden".to_owned();
    world.engine.finish(delete.id, &Outcome::Refused { code: 403, message });
    world.run();
    assert_eq!(world.took(), ["Warning DeletingNodeFailed Failed to delete node n: forbidden"]);
    world.pass(10);
    assert_eq!(world.deletions(), 1);
}

/// A node that carries `kubegc.io/keep` is looked up as before, and no Event says that it is deleted; nor does it keep others from
/// being deleted.
#[test]
fn a_node_that_is_kept_is_still_looked_up() {
    let kept = |version| {
        let mut node = node("kept", version, Some("False"), &Value::Null);
        node.meta = serde_json::from_value::<Node>(json!({"metadata": {"name": "kept", "uid": "u-kept",
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"kubegc.io/keep": "true"}}}))
        .unwrap()
        .meta;
        node
    };
    let mut world =
        World::new(NodePolicy::default(), vec![kept(5)]).answers(&[("kept", ABSENT), ("n", ABSENT)]);
    world.run();
    world.pass(600_000);
    assert_eq!((world.lookups, world.took()), (121, vec![]));
    world.put(broken("n"));
    world.run();
    world.pass(120_000);
    assert_eq!(world.took(), DELETED);
    // Without the annotation, it is deleted as well.
    world.engine.observe(Observation::Removed(key("n")));
    world.pass(BREAKER_WINDOW_MILLISECONDS + 1_000);
    world.put(node("kept", 7, Some("False"), &Value::Null));
    world.pass(10_000);
    assert_eq!(world.took().last().map(String::as_str), Some("delete kept u-kept at 7"));
}

/// The provider is queried in another account, where it finds no machine at all. One node reboots.
#[test]
fn a_provider_that_finds_no_ready_node_deletes_none() {
    let ready = |name: &str| node(name, 5, Some("True"), &Value::Null);
    let names = ["r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"];
    let halted = "Warning NodeDeletionHalted";
    let of = |answers: &[(&'static str, Answer)], ready_nodes: &[&'static str]| {
        let nodes = ready_nodes.iter().map(|name| ready(name)).chain([broken("n")]).collect();
        let mut all = vec![("n", ABSENT)];
        all.extend(answers.iter().cloned());
        let mut world = World::of(NodePolicy::default(), nodes).answers(&all);
        world.run();
        world.pass(1_200_000);
        world
    };
    let each = |answer: &Answer| names.map(|name| (name, answer.clone()));
    for (scenario, answers, ready_nodes, words) in [
        ("no machine is found", &each(&ABSENT)[..], &names[..], "10 of 10 machines are missing"),
        (
            "one of a few is found",
            &[("r2", ABSENT), ("r3", ABSENT)],
            &names[..3],
            "3 of 4 machines are missing",
        ),
        (
            "it answers about none",
            &each(&failure()),
            &names,
            "no node that is ready (throttled), so no node is deleted",
        ),
        (
            "ready machines are shut down",
            &each(&SHUTDOWN),
            &names,
            "the machine of no node that is ready, so",
        ),
        ("there is no ready node", &[], &[], "the machine of no node that is ready, so"),
    ] {
        let world = of(answers, ready_nodes);
        assert_eq!(world.deletions(), 0, "{scenario}");
        let said = |line: &String| line.starts_with(halted) && line.contains(words);
        assert!(world.log.iter().any(said), "{scenario}: {:?}", world.log);
    }
    // From now on, the provider is queried in the right account.
    let mut world = of(&each(&ABSENT), &names);
    for name in names {
        world.answers.insert(name.into(), RUNNING);
    }
    world.pass(60_000);
    assert_eq!(world.deletions(), 1);
    assert_eq!(of(&[("r1", RUNNING)], &names[..1]).deletions(), 1, "one that is found is enough");
    // If no node is ready, another one whose machine runs shows that the provider knows this cluster.
    let nodes = vec![broken("n"), broken("m")];
    let mut world = World::of(NodePolicy::default(), nodes).answers(&[("n", ABSENT), ("m", RUNNING)]);
    world.run();
    world.pass(120_000);
    assert_eq!(world.deletions(), 1);
}

/// Only some of many nodes are looked up, so errors about them are extrapolated to all.
#[test]
fn the_share_of_ready_nodes_that_are_not_found_counts_for_all() {
    let names: Vec<String> = (0..200).map(|number| format!("r{number:03}")).collect();
    for (absent, deleted) in [(0, 1), (3, 1), (100, 0)] {
        let mut nodes: Vec<Node> =
            names.iter().map(|name| node(name, 5, Some("True"), &Value::Null)).collect();
        nodes.push(broken("n"));
        let gone = names.iter().take(absent).map(|name| (name.as_str(), ABSENT));
        let answers: Vec<_> = gone.chain([("n", ABSENT)]).collect();
        let mut world = World::of(NodePolicy::default(), nodes).answers(&answers);
        world.run();
        world.pass(120_000);
        assert_eq!(world.deletions(), deleted, "{absent} of 200");
        let most = controls::CONTROL_NODES * 8 + 30;
        assert!(world.lookups <= most, "{} lookups", world.lookups);
        if absent == 100 {
            let share =
                "according to the provider, 5 of 10 machines of nodes that are ready do not exist either";
            assert!(world.log.iter().any(|line| line.contains(share)), "{:?}", world.log);
        }
    }
}

/// A node may be newer than the provider's data.
#[test]
fn a_node_is_as_old_as_an_answer_may_be_before_it_is_deleted() {
    let mut young = broken("n");
    young.meta.created = Some(at(0));
    let policy = NodePolicy { provider_delay_milliseconds: 900_000, ..NodePolicy::default() };
    let mut world = World::new(policy, vec![young]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(899_000);
    assert_eq!(world.deletions(), 0);
    world.pass(10_000);
    assert_eq!(world.deletions(), 1);
}

fn gauge(world: &World, name: &str) -> f64 {
    world.engine.standing().gauges.iter().find(|gauge| gauge.metric.name == name).unwrap().value
}

fn kept(mut node: Node) -> Node {
    let annotated = json!({"metadata": {"name": &*node.meta.name, "uid": format!("u-{}", node.meta.name),
        "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"kubegc.io/keep": "true"}}});
    node.meta = serde_json::from_value::<Node>(annotated).unwrap().meta;
    node
}

/// Nodes are missing while their machines are, unless they are kept or gone; ready ones count as well.
#[test]
fn missing_nodes_are_counted() {
    let mut missing = Vec::new();
    let mut world = World::new(NodePolicy::default(), vec![broken("n"), broken("m")]).answers(&[
        ("n", ABSENT),
        ("m", RUNNING),
        (STEADY, ABSENT),
    ]);
    let mut count = |world: &mut World, milliseconds: i64| {
        world.pass(milliseconds);
        missing.push(gauge(world, "kubegc_nodes_missing"));
    };
    world.run();
    count(&mut world, 21_000);
    // Neither a node that is kept nor one that is no longer kept makes another one missing.
    for node in [kept(broken("n")), broken("n"), kept(broken("m")), broken("m")] {
        world.put(node);
        count(&mut world, 1);
    }
    world.engine.observe(Observation::Removed(key("n")));
    count(&mut world, 1);
    assert_eq!(missing, [2.0, 1.0, 2.0, 2.0, 2.0, 1.0]);
    assert!(!world.engine.collector().machines.contains_key(&key("n")));
}

/// A kept node is decided about when its machine is looked up again.
#[test]
fn a_kept_node_waits_for_its_next_lookup() {
    let mut world = World::new(NodePolicy::default(), vec![kept(broken("n"))]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(61_000);
    assert!(world.engine.counts().kept > 0);
    assert_eq!(world.engine.next_wakeup(), Some(at(65_000)));
}

/// A deletion counts for exactly ten minutes.
#[test]
fn a_deleted_node_counts_for_a_while() {
    let mut world = World::new(NodePolicy::default(), vec![broken("n")]).answers(&[("n", ABSENT)]);
    world.run();
    world.pass(60_000);
    assert_eq!(world.deletions(), 1);
    let deleted_at = world.now;
    world.engine.observe(Observation::Removed(key("n")));
    let counts = [0, 1].map(|later| {
        world.engine.tick(at(deleted_at + BREAKER_WINDOW_MILLISECONDS + later));
        world.put(node(STEADY, 5, Some("True"), &Value::Null));
        world.run();
        world.engine.collector().deleted.len()
    });
    assert_eq!(counts, [1, 0]);
}

/// Only the taint that keeps pods from being scheduled says that a machine is shut down.
#[test]
fn a_taint_with_another_effect_is_not_ours() {
    let foreign = json!([{"key": SHUTDOWN_TAINT, "effect": "NoExecute"}]);
    let broken = node("n", 5, Some("False"), &foreign);
    let mut world = World::new(NodePolicy::default(), vec![broken]).answers(&[("n", SHUTDOWN)]);
    world.run();
    let taint = |effect: &str| json!({"effect": effect, "key": SHUTDOWN_TAINT});
    let patch = json!({"spec": {"taints": [taint("NoExecute"), taint("NoSchedule")]}});
    assert_eq!(world.took(), [format!("patch n {patch}")]);
}
