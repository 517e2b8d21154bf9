//! A recorder, a cascade and its undo, and a restore with a relink, on an embedded server with a running collector.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gc_embedded::embedded::{Beginning, EmbeddedCluster};
use gc_explain::relink::{Backup, Evidence};
use gc_explain::undo::{Choice, Record};
use gc_inspect::gather::{self, Gatherer};
use gc_kube::ApiClient;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::changes::send;
use super::policy::RecordingPolicy;
use super::records::{Sink, Store};
use super::seal::{self, Reader, Trust};
use super::signing::SigningKey;
use super::status::RecorderStatus;
use super::{recorder, relink, store, undo};

/// Name of the identity file in the directory of a recorder.
const IDENTITY: &str = "identity";
const RECORDS: &str = "records";
const PATIENCE: Duration = Duration::from_mins(1);
const REST: Duration = Duration::from_millis(10);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MIDDLE: usize = 10;
const LEAVES: usize = 989;

mod restores;

struct World {
    cluster: EmbeddedCluster,
    client: ApiClient,
}

impl World {
    async fn start(controllers: &[&str]) -> Self {
        Self::from(Beginning::empty(Vec::new()).with_controllers(controllers)).await
    }

    async fn from(beginning: Beginning) -> Self {
        let cluster = EmbeddedCluster::start(beginning).await.unwrap();
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        Self { cluster, client }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Value {
        send(&self.client, method.clone(), path, Some(&body))
            .await
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Returns a client whose requests are answered this many times, and never again.
    fn mortal_client(&self, answers: usize) -> (ApiClient, Arc<Notify>) {
        let (way, killed) = (self.cluster.in_process("tester"), Arc::new(Notify::new()));
        let (sent, notify) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&killed));
        let client = ApiClient::in_process(move |request| {
            let is_dead = sent.fetch_add(1, Ordering::Relaxed) >= answers;
            let (answer, notify) = (way.call(request), Arc::clone(&notify));
            async move {
                if is_dead {
                    notify.notify_one();
                    futures::future::pending::<()>().await;
                }
                answer.await
            }
        });
        (client, killed)
    }

    async fn gatherer(&self) -> Gatherer {
        Gatherer::new(self.client.clone(), gather::now()).await.unwrap()
    }

    /// Waits until no collector has anything left to do, now and five minutes later.
    async fn settle(&self) {
        for _ in 0..2 {
            self.cluster.settle(PATIENCE, || tokio::time::sleep(REST)).await.unwrap();
            self.cluster.advance(Duration::from_mins(5));
        }
    }

    /// Returns the names of the ConfigMaps of these tests, with the names and UIDs of their owners.
    async fn config_maps(&self) -> Vec<Value> {
        let list = send(&self.client, Method::GET, &format!("{CONFIG_MAPS}?labelSelector=test"), None).await;
        list.unwrap()["items"].as_array().unwrap().clone()
    }
}

fn config_map(name: &str, owner: Option<(&str, &str)>) -> Value {
    let owners: Vec<Value> = owner
        .iter()
        .map(|(name, uid)| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}))
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"test": ""},
        "finalizers": [], "ownerReferences": owners}, "data": {"name": name}})
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Creates three levels with a thousand objects, and returns the root's UID.
async fn build(world: &World) -> String {
    let root = uid(&world.send(Method::POST, CONFIG_MAPS, config_map("root", None)).await);
    let mut middle = Vec::new();
    for number in 0..MIDDLE {
        let object = config_map(&format!("middle-{number}"), Some(("root", &root)));
        middle.push(uid(&world.send(Method::POST, CONFIG_MAPS, object).await));
    }
    for number in 0..LEAVES {
        let place = number % MIDDLE;
        let object =
            config_map(&format!("leaf-{number}"), Some((&format!("middle-{place}"), &middle[place])));
        world.send(Method::POST, CONFIG_MAPS, object).await;
    }
    root
}

/// Asserts that every object exists, and refers to existing objects.
fn is_whole(objects: &[Value]) {
    assert_eq!(objects.len(), 1 + MIDDLE + LEAVES);
    let living: BTreeSet<(String, String)> = objects
        .iter()
        .map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), uid(object)))
        .collect();
    for object in objects {
        assert_eq!(object["data"]["name"], object["metadata"]["name"]);
        for owner in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            let owner =
                (owner["name"].as_str().unwrap().to_owned(), owner["uid"].as_str().unwrap().to_owned());
            assert!(living.contains(&owner), "{} refers to {owner:?}", object["metadata"]["name"]);
        }
    }
}

/// Reads the records, as far as the identity in the directory decrypts them.
fn records(folder: &Path) -> Vec<Record> {
    let mut reader = Reader::with(Some(&folder.join(IDENTITY)), Trust::default()).unwrap();
    let mut records = Vec::new();
    store::each(&folder.join(RECORDS), &mut reader, |record| records.push(record)).unwrap();
    assert_eq!(reader.end().unwrap(), None);
    records
}

async fn recorded(folder: &Path, count: usize) -> Vec<Record> {
    let begun = Instant::now();
    loop {
        let records = records(folder);
        if records.len() >= count {
            return records;
        }
        assert!(begun.elapsed() < PATIENCE, "{} of {count} deletions were recorded", records.len());
        tokio::time::sleep(REST).await;
    }
}

/// A cascade of a thousand objects on three levels is recorded, encrypted, and undone, by a second run after the first one was
/// interrupted; everything still exists five minutes later with the collector running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cascade_is_undone_also_by_a_second_run() {
    let world = World::start(&["garbage-collector-controller"]).await;
    let folder = tempfile::tempdir().unwrap();
    let policy = RecordingPolicy::read("resources: [configmaps]\nsecrets: [default/listed]\n").unwrap();
    let (identity, public) = seal::tests::key();
    let key = SigningKey::open(&folder.path().join("key")).unwrap();
    // The identity file names the recorder as well.
    std::fs::write(folder.path().join(IDENTITY), format!("{identity}# {}\n", key.public())).unwrap();
    let status = RecorderStatus::default();
    let place = folder.path().join(RECORDS);
    let store = store::RecordStore::open(&place, policy.bounds(), gather::now(), status.clone()).unwrap();
    let (store, writer) = (Store::Directory(store), seal::Writer::to(&[public]).signed_by(key));
    let (client, mut sink) = (world.client.clone(), Sink { store, writer, status });
    let recorder = tokio::spawn(async move { recorder::record(client, policy, &mut sink).await });
    // The watches are working once a first deletion has been recorded.
    let probe = config_map("probe", None);
    let begun = Instant::now();
    while records(folder.path()).is_empty() {
        world.send(Method::POST, CONFIG_MAPS, probe.clone()).await;
        world.send(Method::DELETE, &format!("{CONFIG_MAPS}/probe"), json!({})).await;
        tokio::time::sleep(REST).await;
        assert!(begun.elapsed() < PATIENCE);
    }
    let before = records(folder.path()).len();
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["listed", "other"] {
        world.send(Method::POST, secrets, json!({"metadata": {"name": name}})).await;
    }
    let root = build(&world).await;
    is_whole(&world.config_maps().await);
    for name in ["listed", "other"] {
        world.send(Method::DELETE, &format!("{secrets}/{name}"), json!({})).await;
    }
    world
        .send(Method::DELETE, &format!("{CONFIG_MAPS}/root"), json!({"propagationPolicy": "Background"}))
        .await;
    let records = recorded(folder.path(), before + 1 + MIDDLE + LEAVES).await;
    assert_eq!(world.config_maps().await, Vec::<Value>::new());
    let names: Vec<&Value> = records.iter().map(|record| &record.object["metadata"]["name"]).collect();
    assert!(!names.contains(&&json!("other")), "a Secret that is not listed was recorded");

    let gatherer = world.gatherer().await;
    let choice = Choice::Cascade(root);
    let plan = undo::ask(&gatherer, &records, &choice).await;
    assert_eq!(plan.steps.len(), 1 + MIDDLE + LEAVES);
    // Killed in the middle: some requests were answered, some were in flight, and the others were never sent.
    let (mortal, killed) = world.mortal_client(300);
    tokio::select! {
        failures = undo::perform(&mortal, &gatherer.catalog, &plan) => panic!("it was to be killed: {failures:?}"),
        () = killed.notified() => {}
    }
    assert_eq!(world.config_maps().await.len(), 300);
    let gatherer = world.gatherer().await;
    let plan = undo::ask(&gatherer, &records, &choice).await;
    let failures = undo::perform(&world.client, &gatherer.catalog, &plan).await;
    assert_eq!(failures, [""; 0]);
    world.settle().await;
    is_whole(&world.config_maps().await);
    // A third run finds nothing to do.
    let plan = undo::ask(&world.gatherer().await, &records, &choice).await;
    let codes: BTreeSet<&str> = plan.steps.iter().map(|step| step.action.name()).collect();
    assert_eq!(codes, BTreeSet::from(["Complete"]));
    recorder.abort();
    world.cluster.shutdown().await;
}

/// Nothing is overwritten, statuses are restored, and objects that a controller recreates are left to it.
#[tokio::test]
async fn an_undo_is_careful() {
    let world = World::start(&["garbage-collector-controller"]).await;
    let records = |name: &str, kind: &str, resource: &str, api_version: &str, more: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "finalizers": ["acme.io/x"]}});
        for (field, value) in more.as_object().unwrap() {
            object[field] = value.clone();
        }
        Record { at: gather::now(), resource: resource.to_owned(), object }
    };
    let records = [
        records("taken", "ConfigMap", "configmaps", "v1", json!({"data": {"k": "old"}})),
        records(
            "budget",
            "PodDisruptionBudget",
            "poddisruptionbudgets.policy",
            "policy/v1",
            json!({"spec": {"maxUnavailable": 1}, "status": {"currentHealthy": 3, "desiredHealthy": 2,
                "disruptionsAllowed": 1, "expectedPods": 3, "observedGeneration": 1}}),
        ),
        records("gone", "Widget", "widgets.example.com", "example.com/v1", json!({})),
    ];
    let living = json!({"metadata": {"name": "taken"}, "data": {"k": "new"}});
    world.send(Method::POST, CONFIG_MAPS, living).await;
    let gatherer = world.gatherer().await;
    let plan = undo::ask(&gatherer, &records, &Choice::Since(gc_types::Timestamp(0), &|_| true)).await;
    let failures = undo::perform(&world.client, &gatherer.catalog, &plan).await;
    assert_eq!(failures, ["Widget/gone: example.com/v1 Widget is not served"]);
    let get = async |path: &str| send(&world.client, Method::GET, path, None).await.unwrap();
    assert_eq!(get(&format!("{CONFIG_MAPS}/taken")).await["data"], json!({"k": "new"}));
    let budget = get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/budget").await;
    assert_eq!(
        (&budget["status"]["currentHealthy"], &budget["metadata"]["finalizers"]),
        (&json!(3), &Value::Null)
    );
    world.cluster.shutdown().await;
}

/// A backup is restored into another cluster, where every owner has a new UID; after a relink, the collector keeps everything that
/// it would otherwise delete. The first run is killed after half of its patches, and a second run finishes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_is_relinked() {
    // No collector runs during the restore.
    let world = World::start(&["-garbage-collector-controller"]).await;
    let object = |name: &str, owner: Option<(&str, &str)>| {
        let mut object = config_map(name, owner);
        object["metadata"]["namespace"] = "default".into();
        object["metadata"]["uid"] = format!("old-{name}").into();
        object
    };
    let mut backup = vec![("configmaps", object("root", None))];
    for number in 0..MIDDLE {
        backup.push(("configmaps", object(&format!("middle-{number}"), Some(("root", "old-root")))));
    }
    for number in 0..LEAVES {
        let middle = format!("middle-{}", number % MIDDLE);
        let owner = (middle.as_str(), format!("old-{middle}"));
        backup.push(("configmaps", object(&format!("leaf-{number}"), Some((owner.0, &owner.1)))));
    }
    for (_, object) in &backup {
        world.send(Method::POST, CONFIG_MAPS, object.clone()).await;
    }
    let restored = world.cluster.fork().unwrap();
    let archive = super::velero::tests::backup(&backup);
    let mut saved = Backup::default();
    super::velero::read(archive.as_slice(), &mut saved).unwrap();
    let mut evidence = Evidence { backup: Some(saved), ..Evidence::default() };
    let gatherer = world.gatherer().await;
    let (found, unseen) = relink::plan(&gatherer, "", &mut evidence, PATIENCE).await.unwrap();
    assert_eq!((found.patches.len(), unseen.len()), (MIDDLE + LEAVES, 0));
    let half = found.patches.len() / 2;
    let (mortal, killed) = world.mortal_client(half);
    tokio::select! {
        failures = relink::perform(&mortal, &gatherer.catalog, &found.patches) => panic!("it was to be killed: {failures:?}"),
        () = killed.notified() => {}
    }
    let (again, _) = relink::plan(&world.gatherer().await, "", &mut evidence, PATIENCE).await.unwrap();
    assert_eq!(again.patches.len(), found.patches.len() - half);
    // A concurrent change is not overwritten.
    let stale = relink::perform(&world.client, &gatherer.catalog, &found.patches[..1]).await;
    assert!(stale.len() == 1 && stale[0].message.contains("409"), "{stale:?}");
    assert_eq!(relink::perform(&world.client, &gatherer.catalog, &again.patches).await, []);
    is_whole(&world.config_maps().await);
    let (last, _) = relink::plan(&world.gatherer().await, "", &mut evidence, PATIENCE).await.unwrap();
    assert_eq!((last.links.as_slice(), last.is_complete()), (&[][..], true));
    // The collector starts on the restored objects, and has nothing to delete, neither now nor five minutes later.
    let collected = World::from(world.cluster.fork().unwrap().with_controllers(&["*"])).await;
    collected.settle().await;
    is_whole(&collected.config_maps().await);
    // Without the relink it deletes everything but the root.
    let unlinked = World::from(restored.with_controllers(&["*"])).await;
    unlinked.settle().await;
    let left: Vec<Value> = unlinked.config_maps().await;
    let names: Vec<&str> = left.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["root"]);
    collected.cluster.shutdown().await;
    unlinked.cluster.shutdown().await;
    world.cluster.shutdown().await;
}
