//! Keeps the last state of deleted objects from the DELETED events of watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use gc_explain::text::count;
use gc_explain::undo::Record;
use gc_inspect::gather;
use gc_kube::discovery::{Discovery, ServedResource, discover};
use gc_kube::{ApiClient, ObjectNews, QUEUED_BATCHES, WatchState, watch_objects_noting, watch_served};
use gc_types::{ResourceId, ResourceInfo};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use super::bucket::FLUSH_PERIOD;
use super::changes::send;
use super::heartbeat::{self, Coverage, Heartbeat, RecorderLease};
use super::policy::RecordingPolicy;
use super::records::Sink;
use super::status::{ErrorCode, GapReason, RecorderStatus};

/// Interval of discovery.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// Number of additional discoveries after a sign that the served resources have changed: a server takes a moment to serve a new
/// definition.
const SETTLING_ROUNDS: u32 = 8;
/// Time before each of these.
const SETTLING_PERIOD: Duration = Duration::from_millis(250);
/// Time for which a resource that is no longer served is still watched, because the removals of its last objects may be in flight.
const VANISHED_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which records that are too old are removed.
const PRUNE_PERIOD: Duration = Duration::from_mins(10);

/// Records until dropped, or until the disk is full.
pub async fn record(client: ApiClient, policy: RecordingPolicy, store: &mut Sink) -> anyhow::Result<()> {
    record_with_lease(client, policy, store, None).await
}

/// Records until dropped, or until the disk is full, and renews a Lease that shows the recorded resources.
pub async fn record_with_lease(
    client: ApiClient,
    policy: RecordingPolicy,
    store: &mut Sink,
    lease: Option<RecorderLease>,
) -> anyhow::Result<()> {
    let (coverage, status) = (Coverage::default(), store.status.clone());
    let mut heartbeat = lease.map(Heartbeat::of);
    let recording =
        Recording { policy: Arc::new(policy), coverage: coverage.clone(), status: status.clone() };
    let done = follow_deletions(&client, &recording, store, &mut heartbeat, DISCOVERY_PERIOD).await;
    if let Err(error) = &done {
        status.failed(ErrorCode::Stopped, &format!("{error:#}"));
        // The Lease should show why it is no longer renewed.
        coverage.clear();
        if let Some(heartbeat) = &mut heartbeat {
            heartbeat.renew(&client, &coverage, &status).await;
        }
    }
    done
}

async fn follow_deletions(
    client: &ApiClient,
    recording: &Recording,
    store: &mut Sink,
    heartbeat: &mut Option<Heartbeat>,
    discovery_period: Duration,
) -> anyhow::Result<()> {
    let Recording { coverage, status, .. } = recording;
    let mut beat = tokio::time::interval(heartbeat::PERIOD);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (sink, mut records) = mpsc::channel(QUEUED_BATCHES);
    let mut watches = Watches::default();
    let mut look = tokio::time::interval(discovery_period);
    let mut prune = tokio::time::interval(PRUNE_PERIOD);
    let mut flush = tokio::time::interval(FLUSH_PERIOD);
    let (mut is_reported, mut rounds) = (false, 0);
    loop {
        tokio::select! {
            Some(record) = records.recv() => {
                let record: Record = record;
                tracing::debug!(object = %record.place().reference(), "recorded");
                store.append(&record)?;
            }
            _ = flush.tick() => store.flush(),
            _ = beat.tick(), if heartbeat.is_some() => if let Some(heartbeat) = heartbeat {
                heartbeat.renew(client, coverage, status).await;
            },
            _ = prune.tick() => store.prune(gather::now())?,
            () = watches.changed.notified() => {
                rounds = SETTLING_ROUNDS;
                look.reset_after(SETTLING_PERIOD);
            }
            _ = look.tick() => {
                match discover(client).await {
                    Ok(served) => {
                        watches.follow(client, recording, &sink, &served);
                        if !std::mem::replace(&mut is_reported, true) {
                            let recorded = check(client, recording, &served).await?;
                            status.set_ready();
                            tracing::info!(resources = recorded, server = client.address(), "recording deletions");
                        }
                    }
                    Err(error) => {
                        status.failed(ErrorCode::DiscoveryFailing, &error);
                        tracing::warn!(%error, "discovery failed; recording continues for the known resources");
                    }
                }
                if rounds > 0 {
                    rounds -= 1;
                    look.reset_after(SETTLING_PERIOD);
                }
            }
        }
    }
}

/// Returns the selected resources that can be watched, by name.
fn wanted(policy: &RecordingPolicy, served: &Discovery) -> BTreeMap<String, ResourceInfo> {
    let resources = served.resources.values().filter(|resource| resource.is_collectable());
    let named = resources.map(|resource| {
        let name = gc_types::group_resource(&resource.group, &resource.resource);
        (name, resource.info(ResourceId(0), true))
    });
    named.filter(|(name, _)| policy.watches(name)).collect()
}

/// Notes the entries of the policy that match nothing that can be watched.
fn compare(recording: &Recording, served: &Discovery, wanted: &BTreeMap<String, ResourceInfo>) {
    let Recording { policy, status, .. } = recording;
    let names = |is_wanted: fn(&ServedResource) -> bool| -> Vec<String> {
        let resources = served.resources.values().filter(|resource| is_wanted(resource));
        resources.map(|resource| gc_types::group_resource(&resource.group, &resource.resource)).collect()
    };
    let (all, watchable) = (names(|_| true), names(ServedResource::is_collectable));
    let is_unserved: BTreeSet<&str> = policy.unmatched(&all).collect();
    let mut open = BTreeSet::new();
    let mut miss = |name: &str, reason: GapReason, why: &str| {
        status.miss(name, reason, &why);
        open.insert(name.to_owned());
    };
    for pattern in policy.unmatched(&watchable) {
        let group = pattern.split_once('.').map_or("", |(_, group)| group);
        let reason = match () {
            () if served.is_unclear(group) => GapReason::DiscoveryFailing,
            () if is_unserved.contains(pattern) => GapReason::NotServed,
            () => GapReason::NotWatchable,
        };
        miss(pattern, reason, "");
    }
    for failed in served.failed.iter().filter(|failed| policy.may_concern(&failed.group)) {
        // Known resources of the group are still watched.
        miss(&format!("*.{}", failed.group), GapReason::DiscoveryFailing, &failed.message);
    }
    status.close_others(&open);
    tracing::trace!(resources = wanted.len(), gaps = open.len(), "discovered");
}

/// Reports at the start which parts of the policy are not recorded, and fails if nothing is. Returns the number of recorded
/// resources.
async fn check(client: &ApiClient, recording: &Recording, served: &Discovery) -> anyhow::Result<usize> {
    let wanted = wanted(&recording.policy, served);
    let mut recorded = wanted.len();
    for (resource, ResourceInfo { gvr, .. }) in &wanted {
        let path = format!("{}/{}?limit=1", gc_types::api_path(&gvr.group, &gvr.version), gvr.resource);
        // The watch of the resource retries after other failures.
        if let Err(error) = send(client, Method::GET, &path, None).await
            && error.is(StatusCode::FORBIDDEN)
        {
            recorded -= 1;
            recording.status.miss(resource, GapReason::Forbidden, &error);
        }
    }
    anyhow::ensure!(
        recorded > 0,
        "nothing would be recorded: the policy matches {} of this server, and this account may list none",
        count(wanted.len(), "resource")
    );
    Ok(recorded)
}

/// Resources that are to be recorded, and those that are.
#[derive(Clone)]
struct Recording {
    policy: Arc<RecordingPolicy>,
    coverage: Coverage,
    status: RecorderStatus,
}

/// Watch of a resource.
struct ResourceWatch {
    task: AbortHandle,
    api_version: String,
    kind: String,
    /// Time since which it has not been served.
    missing_since: Option<Instant>,
}

/// Watches of everything that is recorded, and of what is served.
#[derive(Default)]
struct Watches {
    watches: BTreeMap<String, ResourceWatch>,
    tasks: JoinSet<()>,
    /// Notified when the served resources have changed.
    changed: Arc<Notify>,
    follows_definitions: bool,
}

impl Watches {
    /// Starts watches of selected resources that are served now, and ends those of resources that are no longer served.
    fn follow(
        &mut self,
        client: &ApiClient,
        recording: &Recording,
        sink: &mpsc::Sender<Record>,
        served: &Discovery,
    ) {
        let wanted = wanted(&recording.policy, served);
        compare(recording, served, &wanted);
        self.watches.retain(|name, watch| {
            let group = name.split_once('.').map_or("", |(_, group)| group);
            // A failed discovery says nothing about what is missing.
            if wanted.contains_key(name) || served.is_unclear(group) {
                watch.missing_since = None;
                return true;
            }
            let stays = watch.missing_since.get_or_insert_with(Instant::now).elapsed() < VANISHED_PATIENCE;
            if !stays {
                watch.task.abort();
                recording.coverage.forget(&watch.api_version, &watch.kind);
                recording.status.forget(name);
            }
            stays
        });
        while self.tasks.try_join_next().is_some() {}
        for (name, info) in wanted {
            if !self.watches.contains_key(&name) {
                let watch = watch(client, recording, sink, &name, info, &mut self.tasks);
                self.watches.insert(name, watch);
            }
        }
        let names = served.resources.values();
        let names: Vec<String> =
            names.map(|resource| gc_types::group_resource(&resource.group, &resource.resource)).collect();
        if !self.follows_definitions && recording.policy.may_gain(&names) {
            self.follows_definitions = true;
            let (client, changed) = (client.clone(), Arc::clone(&self.changed));
            self.tasks.spawn(watch_served(client, move || changed.notify_one()).boxed());
        }
    }
}

/// Starts recording a resource.
fn watch(
    client: &ApiClient,
    recording: &Recording,
    sink: &mpsc::Sender<Record>,
    name: &str,
    info: ResourceInfo,
    tasks: &mut JoinSet<()>,
) -> ResourceWatch {
    let (news_sink, news) = mpsc::channel(QUEUED_BATCHES);
    let (api_version, kind) = (info.gvr.api_version(), info.kind.to_string());
    let identity = (name.to_owned(), api_version.clone(), kind.clone());
    recording.status.watch(name);
    let noted = {
        let (recording, (resource, api_version, kind)) = (recording.clone(), identity.clone());
        let keeps_all = recording.policy.keeps_all(&resource);
        move |state| {
            let Recording { coverage, status, .. } = &recording;
            if keeps_all && state != WatchState::Listed {
                // A list counts once it has been processed completely.
                coverage.note(&api_version, &kind, state == WatchState::Resumed);
            }
            match state {
                WatchState::Failing { code: Some(401 | 403), message } => {
                    status.miss(&resource, GapReason::Forbidden, &message);
                }
                WatchState::Failing { message, .. } => {
                    status.miss(&resource, GapReason::WatchFailing, &message);
                }
                WatchState::Listed | WatchState::Resumed => status.close(&resource),
            }
        }
    };
    let watch = watch_objects_noting(client.clone(), info, news_sink, noted);
    let sorted =
        sort(news, Arc::clone(&recording.policy), sink.clone(), identity, recording.coverage.clone());
    let task = tasks.spawn(
        async move {
            futures::join!(watch, sorted);
        }
        .boxed(),
    );
    ResourceWatch { task, api_version, kind, missing_since: None }
}

/// Passes on deleted objects; living ones are dropped immediately.
async fn sort(
    mut news: mpsc::Receiver<Vec<ObjectNews>>,
    policy: Arc<RecordingPolicy>,
    sink: mpsc::Sender<Record>,
    (resource, api_version, kind): (String, String, String),
    coverage: Coverage,
) {
    let keeps_all = policy.keeps_all(&resource);
    while let Some(batch) = news.recv().await {
        for item in batch {
            let mut object = match item {
                ObjectNews::Gone(object) => object,
                ObjectNews::ListStarted | ObjectNews::Synced if keeps_all => {
                    coverage.note(&api_version, &kind, item == ObjectNews::Synced);
                    continue;
                }
                _ => continue,
            };
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            if !policy.keeps(&resource, text("namespace"), text("name")) {
                continue;
            }
            complete(&mut object, &api_version, &kind);
            let record = Record { at: gather::now(), resource: resource.clone(), object };
            if sink.send(record).await.is_err() {
                return;
            }
        }
    }
}

/// Adds apiVersion and kind to an object.
fn complete(object: &mut Value, api_version: &str, kind: &str) {
    for (field, value) in [("apiVersion", api_version), ("kind", kind)] {
        if object[field].as_str().is_none_or(str::is_empty) {
            object[field] = value.into();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_embedded::definitions::call;
    use gc_embedded::embedded::{Beginning, EmbeddedCluster};
    use serde_json::json;

    use super::super::records::Store;
    use super::super::seal::Writer;
    use super::super::store::RecordStore;
    use super::*;

    /// Nothing is discovered again within a test, unless a watch requests it.
    const NEVER: Duration = Duration::from_hours(1);
    const WIDGETS: &str = "/apis/acme.dev/v1/namespaces/default/widgets";

    #[tokio::test]
    async fn a_definition_is_noticed_by_its_watch() {
        let cluster =
            EmbeddedCluster::start(Beginning::empty(Vec::new()).with_controllers(&[])).await.unwrap();
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let folder = tempfile::tempdir().unwrap();
        let policy = RecordingPolicy::read("resources: [configmaps, widgets.acme.dev]").unwrap();
        let status = RecorderStatus::default();
        let store = RecordStore::open(folder.path(), policy.bounds(), gather::now(), status.clone()).unwrap();
        let (store, writer) = (Store::Directory(store), Writer::default());
        let mut sink = Sink { store, writer, status: status.clone() };
        let recording =
            Recording { policy: Arc::new(policy), coverage: Coverage::default(), status: status.clone() };
        let recorded = client.clone();
        let recorder = tokio::spawn(async move {
            follow_deletions(&recorded, &recording, &mut sink, &mut None, NEVER).await
        });
        let until = async |wanted: &str| {
            while status.not_recorded() != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        until("widgets.acme.dev=NotServed").await;
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.acme.dev"}, "spec": {"group": "acme.dev", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(call(&client, Method::POST, definitions, Some(&definition)).await.unwrap().0, 201);
        until("").await;
        let widget = json!({"apiVersion": "acme.dev/v1", "kind": "Widget", "metadata": {"name": "w"}});
        assert_eq!(call(&client, Method::POST, WIDGETS, Some(&widget)).await.unwrap().0, 201);
        assert_eq!(call(&client, Method::DELETE, &format!("{WIDGETS}/w"), None).await.unwrap().0, 200);
        let stored = || {
            let files = std::fs::read_dir(folder.path()).unwrap();
            files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect::<String>()
        };
        while !stored().contains("widgets.acme.dev") {
            assert!(!recorder.is_finished());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        recorder.abort();
        cluster.shutdown().await;
    }

    /// The server's response for each resource, by the code of the reason.
    #[tokio::test]
    async fn what_is_not_recorded_is_named_with_its_reason() {
        let cluster =
            EmbeddedCluster::start(Beginning::empty(Vec::new()).with_controllers(&[])).await.unwrap();
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let served = discover(&client).await.unwrap();
        let recording = |policy: &str| Recording {
            policy: Arc::new(RecordingPolicy::read(policy).unwrap()),
            coverage: Coverage::default(),
            status: RecorderStatus::default(),
        };
        let compared = |policy: &str, served: &Discovery| {
            let recording = recording(policy);
            compare(&recording, served, &wanted(&recording.policy, served));
            recording.status.not_recorded()
        };
        assert_eq!(compared("resources: [configmaps]", &served), "");
        assert_eq!(
            compared("resources: [configmap, tokenreviews.authentication.k8s.io, pods]", &served),
            "configmap=NotServed,tokenreviews.authentication.k8s.io=NotWatchable"
        );
        let mut unclear = served.clone();
        let failed = |group: &str| gc_types::FailedGroup {
            group: group.to_owned(),
            version: None,
            message: "503".to_owned(),
        };
        unclear.failed = vec![failed("metrics.k8s.io"), failed("acme.dev")];
        assert_eq!(
            compared("resources: [pods, widgets.acme.dev]", &unclear),
            "*.acme.dev=DiscoveryFailing,widgets.acme.dev=DiscoveryFailing"
        );
        cluster.shutdown().await;
    }
}
