//! Lists and watches of complete objects for the retention collectors, and the loop that performs their decisions.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use gc_collectors::engine::{Collector, Decision, Engine as Schedule, MachineState, Observation};
use gc_collectors::objects::{Facts, Kind};
use gc_kube::concurrency::ConcurrencyOptions;
use gc_kube::{Observer, Outside, OutsideAnswer, RetentionCollector};
use gc_types::{
    ObjectKey, Outcome, OutsideCall, PropagationPolicy, Reason, Request, ResourceVersion, Uid, Verdict,
    WithheldBy,
};

use super::*;

/// Decision of a test's collector about each node, once.
type ScriptedDecision = fn(&ObjectKey, u64) -> Request;

/// A collector that records its observations.
struct ReportingCollector {
    lines: mpsc::UnboundedSender<String>,
    wish: Option<ScriptedDecision>,
    seen: BTreeMap<ObjectKey, u64>,
}

impl Collector for ReportingCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Node]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        let line = match observation {
            Observation::ListStarted(_) => "list".to_owned(),
            Observation::Synced(_) => "synced".to_owned(),
            Observation::Observed(Facts::Node(node)) => {
                let key = Kind::Node.key(&"".into(), &node.meta.name);
                self.seen.insert(key.clone(), node.meta.resource_version.0);
                dirty.push(key);
                format!("{} {} {}", node.meta.name, node.meta.resource_version, node.ready)
            }
            Observation::Removed(key) => format!("-{}", key.name),
            Observation::Machine { node, state, .. } => format!("machine {} {state:?}", node.name),
            other => format!("{other:?}"),
        };
        let _ = self.lines.send(line);
    }

    fn decide(&mut self, key: &ObjectKey, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let reason = Reason {
            verdict: Verdict::Retention("the test wants it"),
            owners: Vec::new(),
            evidence: Vec::new(),
        };
        match (self.seen.remove(key), self.wish) {
            (Some(version), Some(wish)) => Decision::Act(wish(key, version), reason),
            _ => Decision::Leave,
        }
    }
}

/// Records how effects end.
struct Outcomes(mpsc::UnboundedSender<String>);

impl Observer for Outcomes {
    fn finished(&self, _effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        let word = match outcome {
            Outcome::Applied(_) => "applied",
            Outcome::Conflict => "conflict",
            Outcome::Absent => "absent",
            Outcome::Withheld(WithheldBy::DryRun) => "dry run",
            _ => "otherwise",
        };
        let _ = self.0.send(word.to_owned());
    }
}

/// Every machine is running.
struct Runs;

impl Outside for Runs {
    fn call(&self, _key: ObjectKey, _call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        Box::pin(async { OutsideAnswer::Machine(Ok(MachineState::Running)) })
    }
}

struct CollectedNodes {
    reported: mpsc::UnboundedReceiver<String>,
    ended: mpsc::UnboundedReceiver<String>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl CollectedNodes {
    async fn expect(&mut self, expected: &[&str]) {
        for (index, line) in expected.iter().enumerate() {
            let reported = tokio::time::timeout(Duration::from_secs(20), self.reported.recv()).await;
            let reported = reported
                .unwrap_or_else(|_| panic!("nothing was reported where {line:?} ({index}) was expected"));
            assert_eq!(reported.unwrap(), *line, "at {index} of {expected:?}");
        }
    }

    async fn ends(&mut self, expected: &str) {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.ended.recv()).await.unwrap();
        assert_eq!(ended.unwrap(), expected);
    }
}

/// Collects nodes from a server that follows the script for lists and watches, and answers reads of a node with `live`.
fn collect(
    script: Vec<Script>,
    live: Value,
    wish: Option<ScriptedDecision>,
    dry_run: bool,
) -> CollectedNodes {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let client = ApiClient::in_process(move |request| {
        let (script, log, live) = (Arc::clone(&script), Arc::clone(&log), live.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            // The duration of a watch is random.
            let query: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("timeoutSeconds")).collect();
            let line = format!("{} {} {}", request.method(), request.uri().path(), query.join("&"));
            log.lock().unwrap().push(line.trim_end().to_owned());
            if request.uri().path() != "/api/v1/nodes" {
                return whole(200, &live);
            }
            let next = script.lock().unwrap().pop_front();
            match next {
                Some(Script::Answer(code, body)) => whole(code, &body),
                Some(Script::Watch(events, end)) => stream(events, end),
                Some(Script::Raw(text)) => raw(text),
                None => std::future::pending().await,
            }
        }
    });
    let (lines, reported) = mpsc::unbounded_channel();
    let (ends, ended) = mpsc::unbounded_channel();
    let rules = ReportingCollector { lines, wish, seen: BTreeMap::new() };
    let collector =
        RetentionCollector::new(client, Schedule::new(rules), ConcurrencyOptions::default(), dry_run)
            .with_outside(Arc::new(Runs));
    tokio::spawn(async move { collector.run(Arc::new(Outcomes(ends)), std::future::pending()).await });
    CollectedNodes { reported, ended, asked }
}

fn node(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": version.to_string()},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn page(version: u64, next: &str, nodes: &[Value]) -> Script {
    Script::Answer(
        200,
        json!({"kind": "NodeList", "metadata": {"resourceVersion": version.to_string(), "continue": next},
            "items": nodes}),
    )
}

fn change(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: u64) -> Value {
    change("BOOKMARK", &json!({"kind": "Node", "metadata": {"resourceVersion": version.to_string()}}))
}

#[tokio::test]
async fn pages_are_listed_and_changes_watched_from_there() {
    let mut run = collect(
        vec![
            page(10, "a b", &[node("n1", 3)]),
            page(10, "", &[node("n2", 4)]),
            Script::Watch(
                vec![change("MODIFIED", &node("n1", 11)), change("DELETED", &node("n2", 12)), bookmark(20)],
                End::Cut,
            ),
            // An unreachable server may have been restored from a backup, so its version is read.
            page(20, "", &[]),
            Script::Watch(vec![change("ADDED", &node("n3", 21))], End::Open),
        ],
        Value::Null,
        None,
        false,
    );
    run.expect(&["list", "n1 3 true", "n2 4 true", "synced", "n1 11 true", "-n2", "n3 21 true"]).await;
    assert_eq!(
        *run.asked.lock().unwrap(),
        [
            "GET /api/v1/nodes limit=500",
            "GET /api/v1/nodes limit=500&continue=a%20b",
            "GET /api/v1/nodes watch=true&allowWatchBookmarks=true&resourceVersion=10",
            "GET /api/v1/nodes limit=1",
            "GET /api/v1/nodes watch=true&allowWatchBookmarks=true&resourceVersion=20",
        ]
    );
}

#[tokio::test]
async fn a_version_that_is_too_old_leads_to_another_list() {
    let expired = json!({"kind": "Status", "code": 410, "message": "too old", "metadata": {}});
    for answer in
        [Script::Watch(vec![change("ERROR", &expired)], End::Open), Script::Answer(410, expired.clone())]
    {
        let mut run = collect(
            vec![page(10, "", &[node("n1", 3)]), answer, page(30, "", &[node("n2", 25)])],
            Value::Null,
            None,
            false,
        );
        run.expect(&["list", "n1 3 true", "synced", "list", "n2 25 true", "synced"]).await;
    }
}

#[tokio::test]
async fn what_fails_is_tried_again_and_nothing_is_skipped() {
    let mut run = collect(
        vec![
            Script::Answer(500, json!({"message": "oops"})),
            Script::Answer(200, json!("no list")),
            page(10, "", &[]),
            // An unreadable event is requested again, from the version before it.
            Script::Watch(
                vec![change("ADDED", &node("n1", 11)), change("ADDED", &json!("no node"))],
                End::Open,
            ),
            Script::Watch(vec![change("ADDED", &node("n2", 12))], End::Open),
        ],
        Value::Null,
        None,
        false,
    );
    // Events that arrived with it, in front of it, are delivered.
    run.expect(&["list", "list", "list", "synced", "n1 11 true", "n2 12 true"]).await;
}

/// Returns an outside look-up on behalf of the object's version 5.
fn look_up(key: &ObjectKey, version: u64) -> Request {
    Request::Outside {
        key: key.clone(),
        uid: Uid::new("u-n"),
        resource_version: ResourceVersion(version),
        call: OutsideCall::LookUpMachine { provider_id: "".into() },
    }
}

#[tokio::test]
async fn nothing_is_asked_outside_for_what_has_changed() {
    let run = |live: Value| collect(vec![page(10, "", &[node("n", 5)])], live, Some(look_up), false);
    let mut current = run(node("n", 5));
    current.expect(&["list", "n 5 true", "synced", "machine n Ok(Running)"]).await;
    current.ends("applied").await;
    let mut changed = run(node("n", 6));
    changed.ends("conflict").await;
    let mut other = node("n", 5);
    other["metadata"]["uid"] = "another".into();
    let mut replaced = run(other);
    replaced.ends("absent").await;
    for mut run in [changed, replaced] {
        run.expect(&["list", "n 5 true", "synced"]).await;
        assert!(run.reported.try_recv().is_err(), "it was asked all the same");
    }
}

fn delete(key: &ObjectKey, version: u64) -> Request {
    Request::Delete {
        key: key.clone(),
        uid: Uid::new("u-n"),
        resource_version: Some(ResourceVersion(version)),
        policy: PropagationPolicy::Background,
    }
}

#[tokio::test]
async fn a_dry_run_decides_once_for_each_version_and_sends_nothing() {
    let mut run = collect(
        vec![
            page(10, "", &[node("n", 5)]),
            Script::Watch(vec![change("MODIFIED", &node("n", 11))], End::Open),
        ],
        Value::Null,
        Some(delete),
        true,
    );
    run.ends("dry run").await;
    run.ends("dry run").await;
    run.expect(&["list", "n 5 true", "synced", "n 11 true"]).await;
    assert!(run.ended.try_recv().is_err());
    assert!(run.asked.lock().unwrap().iter().all(|line| line.starts_with("GET /api/v1/nodes ")));
}
