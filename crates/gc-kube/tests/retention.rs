//! Runs each retention collector against the embedded server, with the test's own clock and exactly the permissions in
//! `gc_collectors::permissions`. The collector must do its work, never be refused anything, and need all of its permissions.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
#![allow(clippy::needless_pass_by_value)] // literals read better without references

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use gc_apiserver::{RunningServer, Server, ServerConfig};
use gc_collectors::certificates::CertificateCollector;
use gc_collectors::engine::{Collector, Engine, MachineState, StorageFailure};
use gc_collectors::jobs::JobCollector;
use gc_collectors::leases::LeaseCollector;
use gc_collectors::measures::Measurement;
use gc_collectors::nodes::{NodeLifecycle, NodePolicy};
use gc_collectors::permissions::{Controller, Rule};
use gc_collectors::pods::PodCollector;
use gc_collectors::volumes::reclaim::{Deleters, VolumeReclaim};
use gc_collectors::volumes::{AttributesClassProtection, ClaimProtection, VolumeProtection};
use gc_kube::concurrency::ConcurrencyOptions;
use gc_kube::{
    ApiClient, NothingOutside, Observer, Outside, OutsideAnswer, RetentionCollector, system_clock,
};
use gc_registry::{Config, Registry};
use gc_store::MemoryStorage;
use gc_types::{Effect, ObjectKey, Outcome, OutsideCall, Timestamp};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

#[path = "retention/aggregated.rs"]
mod aggregated;
#[path = "retention/clocks.rs"]
mod clocks;
#[path = "retention/liars.rs"]
mod liars;
#[path = "retention/policies.rs"]
mod policies;
#[path = "retention/small.rs"]
mod small;
#[path = "retention/watches.rs"]
mod watches;

/// Timeout of all waits.
const PATIENCE: Duration = Duration::from_mins(1);
const HOUR: i64 = 3_600_000;
const EVENTS: &str = "/api/v1/namespaces/default/events";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// Returns the permission that a request needs, such as `get nodes`, `patch pods/status` or `list leases.coordination.k8s.io`.
fn asked(request: &Request<Full<Bytes>>) -> String {
    let segments: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
    let (group, mut rest) = match segments.as_slice() {
        // Discovery is open to everybody.
        ["api" | "apis"] | ["api", _] | ["apis", _, _] => return String::new(),
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        other => panic!("{other:?}"),
    };
    if let ["namespaces", _, behind @ ..] = rest
        && !behind.is_empty()
    {
        rest = behind;
    }
    let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let verb = match (request.method(), rest.len()) {
        (&Method::GET, 1) if watches => "watch",
        (&Method::GET, 1) => "list",
        (&Method::GET, _) => "get",
        (&Method::POST, _) => "create",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, _) => "delete",
        other => panic!("{other:?}"),
    };
    let subresource = rest.get(2).map_or(String::new(), |name| format!("/{name}"));
    let dot = if group.is_empty() { "" } else { "." };
    // The contents of Secrets must never be read.
    let accept = request.headers().get("accept").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let contents = rest[0] == "secrets"
        && request.method() == Method::GET
        && accept
            .split(',')
            .any(|one| !one.contains("as=PartialObjectMetadata") && one != "application/json");
    let contents = if contents { " with contents" } else { "" };
    format!("{verb} {}{subresource}{dot}{group}{contents}", rest[0])
}

/// Returns all permissions that rules grant, in the same form.
fn granted(rules: &[Rule]) -> BTreeSet<String> {
    let words = rules.iter().flat_map(|rule| {
        let dot = if rule.group.is_empty() { "" } else { "." };
        rule.verbs.iter().map(move |verb| format!("{verb} {}{dot}{}", rule.resource, rule.group))
    });
    words.collect()
}

/// Measurements of a collector, and outcomes of its effects.
#[derive(Default)]
struct Recorder {
    measured: Mutex<BTreeSet<String>>,
    /// Names of the objects whose deletion was withheld.
    held: Mutex<Vec<String>>,
    failed: Mutex<Vec<String>>,
}

impl Observer for Recorder {
    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        if let (gc_types::Request::Delete { key, .. }, Outcome::Withheld(_)) = (&effect.request, outcome) {
            self.held.lock().unwrap().push(key.name.to_string());
        }
        if matches!(outcome, Outcome::Refused { .. } | Outcome::NotServed) {
            self.failed.lock().unwrap().push(format!("{:?}: {outcome:?}", effect.request));
        }
    }

    fn measured(&self, measurement: &Measurement) {
        let line = format!("{}{{{}}}", measurement.metric.name, measurement.labels.join(","));
        self.measured.lock().unwrap().insert(line);
    }
}

/// Storage and machines with scripted answers.
#[derive(Clone)]
struct Answers {
    storage: Arc<Mutex<Result<(), StorageFailure>>>,
    /// Machines by the prefix of their nodes' names: `off` is shut down, `fine` runs, all others are gone.
    calls: Arc<Mutex<Vec<String>>>,
}

impl Outside for Answers {
    fn call(&self, key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        self.calls.lock().unwrap().push(format!("{} {call:?}", key.name));
        let storage = self.storage.lock().unwrap().clone();
        Box::pin(async move {
            match call {
                OutsideCall::DeleteStorage(_) => OutsideAnswer::Storage(None, storage),
                OutsideCall::LookUpMachine { .. } if key.name.starts_with("off") => {
                    OutsideAnswer::Machine(Ok(MachineState::Shutdown))
                }
                OutsideCall::LookUpMachine { .. } if *key.name == *"fine" => {
                    OutsideAnswer::Machine(Ok(MachineState::Running))
                }
                OutsideCall::LookUpMachine { .. } => OutsideAnswer::Machine(Ok(MachineState::Absent)),
            }
        })
    }
}

fn answers() -> Answers {
    Answers { storage: Arc::new(Mutex::new(Ok(()))), calls: Arc::default() }
}

/// A server, its administrator, and the collectors' clock.
struct World {
    server: RunningServer,
    admin: ApiClient,
    ahead: Arc<AtomicI64>,
    /// Answers to the collectors that replace the server's.
    liars: Arc<liars::Liars>,
}

/// A running collector.
struct RunningCollector {
    controller: Controller,
    asked: Arc<Mutex<BTreeSet<String>>>,
    forbidden: Arc<Mutex<Vec<String>>>,
    recorder: Arc<Recorder>,
    stop: tokio::sync::oneshot::Sender<()>,
    work: tokio::task::JoinHandle<()>,
}

impl World {
    async fn start() -> Self {
        Self::start_as(ServerConfig::at("127.0.0.1:0".parse().unwrap())).await
    }

    async fn start_as(config: ServerConfig) -> Self {
        let registry = Registry::open(Arc::new(MemoryStorage::default()), Config::default()).unwrap();
        let server = Server::start(config, Arc::new(registry)).await.unwrap();
        let way = server.in_process("admin");
        let admin = ApiClient::in_process(move |request| way.call(request));
        Self { server, admin, ahead: Arc::default(), liars: Arc::default() }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .header("accept", "application/json")
            .body(Full::new(Bytes::from(text)))
            .unwrap();
        let answer = self.admin.call(request).await.unwrap();
        (answer.head.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let (code, made) = self.send(Method::POST, path, "application/json", &object).await;
        assert_eq!(code, 201, "{made}");
        made
    }

    async fn patch(&self, path: &str, patch: Value) {
        let (code, answer) = self.send(Method::PATCH, path, "application/merge-patch+json", &patch).await;
        assert_eq!(code, 200, "{answer}");
    }

    async fn delete(&self, path: &str) {
        let (code, answer) = self.send(Method::DELETE, path, "application/json", &Value::Null).await;
        assert!(code < 300, "{answer}");
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, "application/json", &Value::Null).await
    }

    /// Waits until an object satisfies a condition.
    async fn until(&self, what: &str, path: &str, holds: impl Fn(u16, &Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (code, object) = self.get(path).await;
            if holds(code, &object) {
                return;
            }
            assert!(Instant::now() < deadline, "{what} did not come about: {object}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_gone(&self, path: &str) {
        self.until(&format!("the end of {path}"), path, |code, _| code == 404).await;
    }

    /// Advances the collectors' clock.
    fn pass(&self, milliseconds: i64) {
        self.ahead.fetch_add(milliseconds, Ordering::Relaxed);
    }

    /// Returns the reasons, types and sources of the Events about one object.
    async fn events_about(&self, name: &str) -> BTreeSet<String> {
        let (_, events) = self.get(EVENTS).await;
        let events = events["items"].as_array().unwrap().iter();
        events
            .filter(|event| event["involvedObject"]["name"] == name)
            .map(|event| {
                let part = |pointer: &str| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
                format!("{} {} {}", part("/type"), part("/reason"), part("/source/component"))
            })
            .collect()
    }

    /// Waits for exactly these Events about one object.
    async fn until_events(&self, name: &str, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events_about(name).await;
            if events == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{events:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the client of an account with exactly these permissions, once they are in force.
    async fn account(&self, identity: &str, rules: &[Rule]) -> Account {
        // Upstream's own name would have additional rules, which the server binds to it.
        let user = format!("system:serviceaccount:kube-system:kubegc-{identity}");
        let name = format!("exactly-{identity}");
        let written: Vec<Value> = rules
            .iter()
            .map(|rule| {
                json!({"apiGroups": [rule.group], "resources": [rule.resource], "resourceNames": rule.names,
                    "verbs": rule.verbs})
            })
            .collect();
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        self.create(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": name}, "rules": written}))
            .await;
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        self.create(&format!("{RBAC}/clusterrolebindings"), binding).await;

        let way = self.server.in_process_as(&user, &["system:serviceaccounts", "system:authenticated"]);
        // The server learns of the binding by a watch.
        let deadline = Instant::now() + PATIENCE;
        let attributes =
            json!({"group": rules[0].group, "resource": rules[0].resource, "verb": rules[0].verbs[0]});
        let review = json!({"spec": {"resourceAttributes": attributes}}).to_string();
        loop {
            let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(review.clone())));
            let answer = way.call(request.unwrap()).await.into_body().collect().await.unwrap().to_bytes();
            if serde_json::from_slice::<Value>(&answer).unwrap()["status"]["allowed"] == true {
                break;
            }
            assert!(Instant::now() < deadline, "the binding has no effect");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (asked_for, forbidden) =
            (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (log, refusals) = (Arc::clone(&asked_for), Arc::clone(&forbidden));
        let liars = Arc::clone(&self.liars);
        let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
            let words = asked(&request);
            log.lock().unwrap().insert(words.clone());
            let lie = liars.lie_to(&request);
            let (answer, refusals) = (way.call(request), Arc::clone(&refusals));
            async move {
                let answer = answer.await;
                if answer.status() == 403 {
                    refusals.lock().unwrap().push(words);
                }
                liars::told(lie, answer.map(BodyExt::boxed_unsync)).await
            }
        });
        Account { client, asked: asked_for, forbidden }
    }

    /// Returns the clock of the collectors.
    fn clock(&self) -> gc_kube::Clock {
        let (system, ahead) = (system_clock(), Arc::clone(&self.ahead));
        Arc::new(move || {
            let Timestamp(now) = system();
            Timestamp(now + ahead.load(Ordering::Relaxed))
        })
    }

    /// Grants the collector's account its rules, and starts the collector under that account.
    async fn collect<C: Collector + Send + 'static>(
        &self,
        controller: Controller,
        rules: C,
        outside: impl Outside,
    ) -> RunningCollector {
        let Account { client, asked, forbidden } =
            self.account(controller.account(), controller.rules()).await;
        let collector =
            RetentionCollector::new(client, Engine::new(rules), ConcurrencyOptions::default(), false)
                .named(controller.event_source())
                .with_clock(self.clock())
                .with_outside(Arc::new(outside));
        let recorder = Arc::<Recorder>::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let observer: Arc<dyn Observer> = Arc::<Recorder>::clone(&recorder);
        let work = tokio::spawn(async move {
            collector.run(observer, async { drop(stopped.await) }).await;
        });
        RunningCollector { controller, asked, forbidden, recorder, stop, work }
    }
}

/// A client with limited permissions, its requests, and the refused ones.
struct Account {
    client: ApiClient,
    asked: Arc<Mutex<BTreeSet<String>>>,
    forbidden: Arc<Mutex<Vec<String>>>,
}

impl RunningCollector {
    /// Ends the collector. It must never have been refused anything, have requested nothing beyond its rules, and have needed all
    /// of them except `spared`, which are for situations that did not occur here.
    async fn end(self, spared: &[&str], measured: &[&str]) {
        let _ = self.stop.send(());
        self.work.await.unwrap();
        assert_eq!(*self.forbidden.lock().unwrap(), Vec::<String>::new(), "{}", self.controller);
        assert_eq!(*self.recorder.failed.lock().unwrap(), Vec::<String>::new(), "{}", self.controller);
        let mut needed = self.asked.lock().unwrap().clone();
        needed.extend(spared.iter().map(ToString::to_string));
        assert_eq!(needed, granted(self.controller.rules()), "{}", self.controller);
        let taken = self.recorder.measured.lock().unwrap();
        let expected: BTreeSet<String> = measured.iter().map(ToString::to_string).collect();
        assert_eq!(*taken, expected, "{}", self.controller);
    }
}

fn pod(name: &str, node: &str) -> Value {
    let containers = json!([{"name": "c", "image": "i"}]);
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers}})
}

/// X-T01: a node is removed, and its pods are deleted 40 s later; also covers a finished pod over the threshold, and one that never
/// had a node.
#[tokio::test]
async fn pods() {
    let world = World::start().await;
    world.create(NODES, json!({"metadata": {"name": "n"}})).await;
    for (name, node) in [("lost", "n"), ("old", "n"), ("done", "n")] {
        world.create(PODS, pod(name, node)).await;
    }
    world.patch(&format!("{PODS}/lost/status"), json!({"status": {"phase": "Running"}})).await;
    world
        .patch(&format!("{PODS}/old/status"), json!({"status": {"phase": "Failed", "reason": "Evicted"}}))
        .await;
    world.patch(&format!("{PODS}/done/status"), json!({"status": {"phase": "Succeeded"}})).await;
    world.patch(&format!("{PODS}/lost"), json!({"metadata": {"finalizers": ["example.com/keep"]}})).await;
    let running = world.collect(Controller::PodGarbageCollector, PodCollector::new(1), NothingOutside).await;
    world.until_gone(&format!("{PODS}/old")).await;
    world.delete(&format!("{NODES}/n")).await;
    // The quarantine begins with the watch's delivery.
    let lost = format!("{PODS}/lost");
    let deadline = Instant::now() + PATIENCE;
    while world.get(&lost).await.1["metadata"]["deletionTimestamp"].is_null() {
        assert!(Instant::now() < deadline, "the lost pod stays");
        world.pass(10_000);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_, found) = world.get(&lost).await;
    assert_eq!(found["status"]["phase"], "Failed");
    assert_eq!(found["status"]["conditions"][0]["reason"], "DeletionByPodGC");
    world.until_gone(&format!("{PODS}/done")).await;
    let of = |reason: &str| format!("pod_gc_collector_force_delete_pods{{default,{reason}}}");
    // Only a refused patch is followed by a read, and none was refused.
    running.end(&["get pods"], &[&of("terminated"), &of("orphaned")]).await;
}

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Creates a Job that finished long ago, with a TTL of two hours.
async fn finished_job(world: &World, name: &str) {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    world
        .create(JOBS, json!({"metadata": {"name": name}, "spec": {"ttlSecondsAfterFinished": 7200, "template": template}}))
        .await;
    let now = json!("2026-01-01T00:00:00Z");
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": now});
    let finished = json!({"status": {"startTime": now, "completionTime": now,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
    world.patch(&format!("{JOBS}/{name}/status"), finished).await;
}

/// While the server asks clients to wait, nothing is decided: what has changed in the meantime is not requested any more.
#[tokio::test]
async fn nothing_is_decided_before_it_can_be_sent() {
    let world = World::start().await;
    for name in ["a", "b"] {
        finished_job(&world, name).await;
    }
    let (deletions, way) = (Arc::<Mutex<Vec<String>>>::default(), world.server.in_process("admin"));
    let log = Arc::clone(&deletions);
    let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
        let is_deletion = request.method() == Method::DELETE;
        if is_deletion {
            log.lock().unwrap().push(request.uri().path().to_owned());
        }
        let is_first = is_deletion && log.lock().unwrap().len() == 1;
        let answer = way.call(request);
        async move {
            if !is_first {
                return answer.await.map(BodyExt::boxed_unsync);
            }
            let busy = http::Response::builder().status(429).header("retry-after", "2");
            busy.body(Full::new(Bytes::from("{}")).map_err(|never| match never {}).boxed_unsync()).unwrap()
        }
    });
    let one = ConcurrencyOptions { initial: 1, smallest: 1, largest: 1, ..ConcurrencyOptions::default() };
    let collector = RetentionCollector::new(client, Engine::new(JobCollector::default()), one, false)
        .with_clock(world.clock());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let observer: Arc<dyn Observer> = Arc::<Recorder>::default();
    let work = tokio::spawn(async move { collector.run(observer, async { drop(stopped.await) }).await });
    let deadline = Instant::now() + PATIENCE;
    while deletions.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "nothing is deleted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let first = deletions.lock().unwrap()[0].clone();
    let other = if first.ends_with("/a") { format!("{JOBS}/b") } else { format!("{JOBS}/a") };
    world.patch(&other, json!({"spec": {"ttlSecondsAfterFinished": 2_000_000_000}})).await;
    let is_going = |code: u16, job: &Value| code == 404 || !job["metadata"]["deletionTimestamp"].is_null();
    world.until("the deletion", &first, is_going).await;
    assert_eq!(*deletions.lock().unwrap(), [first.clone(), first]);
    let (code, job) = world.get(&other).await;
    assert!(!is_going(code, &job), "{job}");
    stop.send(()).unwrap();
    work.await.unwrap();
}

#[tokio::test]
async fn jobs() {
    let world = World::start().await;
    finished_job(&world, "j").await;
    let running = world.collect(Controller::TtlAfterFinished, JobCollector::default(), NothingOutside).await;
    world
        .until("the deletion", &format!("{JOBS}/j"), |code, job| {
            code == 404 || !job["metadata"]["deletionTimestamp"].is_null()
        })
        .await;
    running.end(&[], &["ttl_after_finished_controller_job_deletion_duration_seconds{}"]).await;
}

/// A certificate request that no one will sign.
const SIGNING_REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----\nMIHsMIGUAgEAMDIxFTATBgNVBAoMDHN5c3RlbTpub2RlczEZMBcGA1UEAwwQc3lz\ndGVtOm5vZGU6bm9kZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABE4nB68aukqi\n93rYSYfdjucRwACyEbH1aQNC83UDurp6Nj2Q72LoXaWjU5SmC6fmp3rwHI6ge10D\nKEfU635UCqugADAKBggqhkjOPQQDAgNHADBEAiAQ64vaTbXKCs4YEGJGXNJVhvOD\npSuboRCG+8HjEHxNywIgS0/ckw93zrjCikfZN62xABMH7j06Ot8UiujyAyDHJcw=\n-----END CERTIFICATE REQUEST-----\n";

#[tokio::test]
async fn certificates() {
    let world = World::start().await;
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    use base64::Engine as _;
    let request = base64::engine::general_purpose::STANDARD.encode(SIGNING_REQUEST);
    let spec = json!({"signerName": "example.com/signer", "usages": ["client auth"], "request": request});
    world.create(REQUESTS, json!({"metadata": {"name": "r"}, "spec": spec})).await;
    let running =
        world.collect(Controller::CertificateCleaner, CertificateCollector::default(), NothingOutside).await;
    world.pass(25 * HOUR);
    world.until_gone(&format!("{REQUESTS}/r")).await;
    running.end(&[], &[]).await;
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

fn volume(name: &str, policy: &str, claim_uid: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "disk.example.com"}},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": policy, "csi": {"driver": "disk.example.com", "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": "data", "uid": claim_uid}}})
}

#[tokio::test]
async fn protection() {
    let world = World::start().await;
    world.create(CLAIMS, claim("data")).await;
    world.create(VOLUMES, volume("v", "Retain", "gone")).await;
    let claims = world.collect(Controller::ClaimProtection, ClaimProtection::new(true), NothingOutside).await;
    // PVC-T23
    world
        .until("the condition", &format!("{CLAIMS}/data"), |_, claim| {
            let conditions = claim["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter().any(|one| (one["type"] == "Unused", &one["status"]) == (true, &json!("True")))
            })
        })
        .await;
    let volumes =
        world.collect(Controller::VolumeProtection, VolumeProtection::default(), NothingOutside).await;
    for path in [format!("{CLAIMS}/data"), format!("{VOLUMES}/v")] {
        world.delete(&path).await;
        world.until_gone(&path).await;
    }
    claims.end(&["get persistentvolumeclaims"], &[]).await;
    volumes.end(&["get persistentvolumes"], &[]).await;
}

#[tokio::test]
async fn attributes_classes() {
    const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let world = World::start().await;
    let class =
        json!({"metadata": {"name": "gold"}, "driverName": "disk.example.com", "parameters": {"iops": "9"}});
    world.create(CLASSES, class).await;
    let mut used = claim("data");
    used["spec"]["volumeAttributesClassName"] = "gold".into();
    world.create(CLAIMS, used).await;
    world.patch(&format!("{CLAIMS}/data"), json!({"metadata": {"finalizers": null}})).await;
    let running = world
        .collect(Controller::AttributesClassProtection, AttributesClassProtection::default(), NothingOutside)
        .await;
    let path = format!("{CLASSES}/gold");
    world.delete(&path).await;
    assert_eq!(world.get(&path).await.0, 200, "the claim holds it");
    world.delete(&format!("{CLAIMS}/data")).await;
    world.until_gone(&path).await;
    running.end(&["get volumeattributesclasses.storage.k8s.io"], &[]).await;
}

#[tokio::test]
async fn leases() {
    let world = World::start().await;
    let leases = |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let renewed = "2026-01-01T00:00:00.000000Z";
    let spec = json!({"holderIdentity": "h", "leaseDurationSeconds": 40, "renewTime": renewed});
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    let (identity, node) = (leases("kube-system"), leases("kube-node-lease"));
    world
        .create(&identity, json!({"metadata": {"name": "apiserver-x", "labels": labels}, "spec": spec}))
        .await;
    world.create(&node, json!({"metadata": {"name": "n"}, "spec": spec})).await;
    let elected = leases("default");
    world.create(&elected, json!({"metadata": {"name": "leader"}, "spec": spec})).await;
    let running = world.collect(Controller::StaleLease, LeaseCollector::new(true), NothingOutside).await;
    world.until_gone(&format!("{node}/n")).await;
    // By the server's own clock, the lease has expired; by ours, only after it has been unchanged for that long.
    assert_eq!(world.get(&format!("{identity}/apiserver-x")).await.0, 200);
    world.pass(41_000);
    world.until_gone(&format!("{identity}/apiserver-x")).await;
    // The stale one is reported but kept.
    world.until_events("leader", &["Warning StaleLease stale-lease-controller"]).await;
    assert_eq!(world.get(&format!("{elected}/leader")).await.0, 200);
    running.end(&["patch events"], &[]).await;
}

#[tokio::test]
async fn volumes() {
    let world = World::start().await;
    let made = world.create(CLAIMS, claim("data")).await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    world
        .patch(
            &format!("{CLAIMS}/data"),
            json!({"metadata": {"finalizers": null}, "spec": {"volumeName": "v"}}),
        )
        .await;
    world.create(VOLUMES, volume("v", "Delete", uid)).await;
    world.create(VOLUMES, volume("kept", "Retain", "long gone")).await;
    for name in ["v", "kept"] {
        world.patch(&format!("{VOLUMES}/{name}/status"), json!({"status": {"phase": "Bound"}})).await;
    }
    // No protection controller runs here.
    world.patch(&format!("{VOLUMES}/v"), json!({"metadata": {"finalizers": null}})).await;
    let outside = answers();
    let failure = StorageFailure { in_use: false, message: "the disk is on fire".into() };
    *outside.storage.lock().unwrap() = Err(failure);
    let deleters = Deleters { drivers: ["disk.example.com".into()].into(), ..Deleters::default() };
    let running =
        world.collect(Controller::VolumeReclaim, VolumeReclaim::new(deleters), outside.clone()).await;
    let path = format!("{VOLUMES}/v");
    let finalizer = json!(["external-provisioner.volume.kubernetes.io/finalizer"]);
    world.until("the finalizer", &path, |_, volume| volume["metadata"]["finalizers"] == finalizer).await;
    world
        .until("the release", &format!("{VOLUMES}/kept"), |_, volume| volume["status"]["phase"] == "Released")
        .await;
    assert_eq!(world.get(&path).await.1["status"]["phase"], "Bound");
    world.delete(&format!("{CLAIMS}/data")).await;
    world.until("the message", &path, |_, volume| volume["status"]["message"] == "the disk is on fire").await;
    assert_eq!(world.get(&path).await.1["status"]["phase"], "Released");
    *outside.storage.lock().unwrap() = Ok(());
    world.pass(2_000);
    world.until_gone(&path).await;
    world.until_events("v", &["Warning VolumeFailedDelete persistentvolume-controller"]).await;
    assert_eq!(world.get(&format!("{VOLUMES}/kept")).await.0, 200);
    let calls = outside.calls.lock().unwrap().clone();
    assert!(
        calls.iter().all(|call| call.starts_with("v DeleteStorage(Csi { driver: \"disk.example.com\"")),
        "{calls:?}"
    );
    running
        .end(
            // The caller of the driver reads Secrets and classes; a repeated Event is patched.
            &["get secrets", "get storageclasses.storage.k8s.io", "patch events"],
            &[
                "controller_persistentvolume_delete{fast}",
                "controller_persistentvolume_delete_failed{fast}",
                "controller_persistentvolume_delete_duration_seconds{fast}",
                "volume_operation_errors{disk.example.com,delete}",
                "volume_operation_total_seconds{disk.example.com,delete}",
            ],
        )
        .await;
}

#[tokio::test]
async fn nodes() {
    let world = World::start().await;
    for name in ["gone", "off", "fine"] {
        world
            .create(
                NODES,
                json!({"metadata": {"name": name}, "spec": {"providerID": format!("rack://{name}")}}),
            )
            .await;
    }
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    world.patch(&format!("{NODES}/fine/status"), ready).await;
    let outside = answers();
    let running = world
        .collect(Controller::NodeLifecycle, NodeLifecycle::new(NodePolicy::default()), outside.clone())
        .await;
    let taint = json!("node.cloudprovider.kubernetes.io/shutdown");
    world
        .until("the taint", &format!("{NODES}/off"), |_, node| {
            node["spec"]["taints"].as_array().is_some_and(|all| all.iter().any(|one| one["key"] == taint))
        })
        .await;
    // The collector reads its clock once a second, and each answer must be requested again.
    let deadline = Instant::now() + PATIENCE;
    while world.get(&format!("{NODES}/gone")).await.0 != 404 {
        assert!(Instant::now() < deadline, "the node stays");
        world.pass(30_000);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.get(&format!("{NODES}/fine")).await.0, 200);
    world.until_events("gone", &["Normal DeletingNode cloud-node-lifecycle-controller"]).await;
    let lookups = outside.calls.lock().unwrap().iter().filter(|call| call.starts_with("gone")).count();
    assert!(lookups >= 3, "{lookups}");
    // A ready node is looked up, too: finding its machine proves that the provider knows this cluster.
    assert!(outside.calls.lock().unwrap().iter().any(|call| call.starts_with("fine")));
    let lookups = ["absent", "running", "shutdown"].map(|answer| format!("kubegc_node_lookups{{{answer}}}"));
    running.end(&["patch events"], &lookups.each_ref().map(String::as_str)).await;
}
