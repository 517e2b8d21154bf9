//! Keeps the last state of deleted objects, as the DELETED event of a watch has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use gc_explain::text::count;
use gc_explain::undo::Record;
use gc_inspect::gather;
use gc_kube::discovery::{Discovery, discover};
use gc_kube::{ApiClient, ObjectNews, QUEUED_BATCHES, watch_objects};
use gc_types::ResourceId;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use super::bucket::FLUSH_PERIOD;
use super::changes::send;
use super::heartbeat::{self, Coverage, Heartbeat, RecorderLease};
use super::policy::RecordingPolicy;
use super::records::Sink;

/// Time between two discoveries of what the server serves.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// Time between two removals of what is too old.
const PRUNE_PERIOD: Duration = Duration::from_mins(10);

/// Records until it is dropped, or until the disk is full.
pub async fn record(client: ApiClient, policy: RecordingPolicy, store: &mut Sink) -> anyhow::Result<()> {
    record_with_lease(client, policy, store, None).await
}

/// Records until it is dropped, or until the disk is full, and meanwhile renews a Lease that says what is recorded.
pub async fn record_with_lease(
    client: ApiClient,
    policy: RecordingPolicy,
    store: &mut Sink,
    lease: Option<RecorderLease>,
) -> anyhow::Result<()> {
    let policy = Arc::new(policy);
    let coverage = Coverage::default();
    let mut heartbeat = lease.map(Heartbeat::of);
    let mut beat = tokio::time::interval(heartbeat::PERIOD);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (sink, mut records) = mpsc::channel(QUEUED_BATCHES);
    let mut watches: BTreeMap<String, ResourceWatch> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut look = tokio::time::interval(DISCOVERY_PERIOD);
    let mut prune = tokio::time::interval(PRUNE_PERIOD);
    let mut flush = tokio::time::interval(FLUSH_PERIOD);
    let mut is_reported = false;
    loop {
        tokio::select! {
            Some(record) = records.recv() => {
                let record: Record = record;
                tracing::debug!(object = %record.place().reference(), "recorded");
                store.append(&record)?;
            }
            _ = flush.tick() => store.flush(),
            _ = beat.tick(), if heartbeat.is_some() => if let Some(heartbeat) = &mut heartbeat {
                heartbeat.renew(&client, &coverage).await;
            },
            _ = prune.tick() => store.prune(gather::now())?,
            _ = look.tick() => match discover(&client).await {
                Ok(served) => {
                    let recording = Recording { policy: &policy, sink: &sink, coverage: &coverage };
                    follow(&client, recording, &served, &mut watches, &mut tasks);
                    if !std::mem::replace(&mut is_reported, true) {
                        let recorded = check(&client, &policy, &served).await?;
                        tracing::info!(resources = recorded, server = client.address(), "recording deletions");
                    }
                }
                Err(error) => tracing::warn!(%error, "discovery failed; recording continues for the known resources"),
            },
        }
    }
}

/// Says at once what of the policy is not recorded, and fails if nothing is. Returns how many resources are.
async fn check(client: &ApiClient, policy: &RecordingPolicy, served: &Discovery) -> anyhow::Result<usize> {
    let all: Vec<String> = served
        .resources
        .values()
        .map(|resource| gc_types::group_resource(&resource.group, &resource.resource))
        .collect();
    for pattern in policy.unmatched(&all) {
        tracing::error!(
            resource = pattern,
            "the policy names what the server does not serve: none of it is recorded"
        );
    }
    let mut wanted = Vec::new();
    for resource in served.resources.values().filter(|resource| resource.is_collectable()) {
        let name = gc_types::group_resource(&resource.group, &resource.resource);
        if policy.watches(&name) {
            wanted.push((name, resource.info(ResourceId(0), true).gvr));
        }
    }
    let mut recorded = wanted.len();
    for (resource, gvr) in &wanted {
        let path = format!("{}/{}?limit=1", gc_types::api_path(&gvr.group, &gvr.version), gvr.resource);
        // Other failures are retried by the watch of the resource.
        if let Err(error) = send(client, Method::GET, &path, None).await
            && error.is(StatusCode::FORBIDDEN)
        {
            recorded -= 1;
            tracing::error!(%resource, %error, "its deletions are not recorded: this account may not list it");
        }
    }
    anyhow::ensure!(
        recorded > 0,
        "nothing would be recorded: the policy matches {} of this server, and this account may list none",
        count(wanted.len(), "resource")
    );
    Ok(recorded)
}

/// A recording: its policy, its destination, and the kinds that are recorded by now.
#[derive(Clone, Copy)]
struct Recording<'a> {
    policy: &'a Arc<RecordingPolicy>,
    sink: &'a mpsc::Sender<Record>,
    coverage: &'a Coverage,
}

/// The watch of a resource.
struct ResourceWatch {
    task: AbortHandle,
    api_version: String,
    kind: String,
}

/// Begins the watches of what is served now and selected, and ends those of what is not served any more.
fn follow(
    client: &ApiClient,
    Recording { policy, sink, coverage }: Recording<'_>,
    served: &Discovery,
    watches: &mut BTreeMap<String, ResourceWatch>,
    tasks: &mut JoinSet<()>,
) {
    let mut wanted = BTreeMap::new();
    for resource in served.resources.values().filter(|resource| resource.is_collectable()) {
        let name = gc_types::group_resource(&resource.group, &resource.resource);
        if policy.watches(&name) {
            wanted.insert(name, resource.info(ResourceId(0), true));
        }
    }
    watches.retain(|name, watch| {
        let group = name.split_once('.').map_or("", |(_, group)| group);
        // A failed discovery says nothing of what is missing.
        let stays = wanted.contains_key(name) || served.is_unclear(group);
        if !stays {
            watch.task.abort();
            coverage.forget(&watch.api_version, &watch.kind);
        }
        stays
    });
    while tasks.try_join_next().is_some() {}
    for (name, info) in wanted {
        if watches.contains_key(&name) {
            continue;
        }
        let (news_sink, news) = mpsc::channel(QUEUED_BATCHES);
        let (api_version, kind) = (info.gvr.api_version(), info.kind.to_string());
        let identity = (name.clone(), api_version.clone(), kind.clone());
        let watch = watch_objects(client.clone(), info, "", news_sink);
        let sorted = sort(news, Arc::clone(policy), sink.clone(), identity, coverage.clone());
        let task = tasks.spawn(
            async move {
                futures::join!(watch, sorted);
            }
            .boxed(),
        );
        watches.insert(name, ResourceWatch { task, api_version, kind });
    }
}

/// Hands on what was deleted; what lives is dropped at once.
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

/// An object that says what it is.
fn complete(object: &mut Value, api_version: &str, kind: &str) {
    for (field, value) in [("apiVersion", api_version), ("kind", kind)] {
        if object[field].as_str().is_none_or(str::is_empty) {
            object[field] = value.into();
        }
    }
}
