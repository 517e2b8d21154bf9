//! containerd's own API, at the socket that also serves CRI.

mod messages;

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures::{StreamExt, TryStreamExt, stream};
use gc_collectors::images::plan::Space;
use gc_collectors::images::stores::{
    Blob, ContainerRecord, ImageName, Ingest, LeaseRecord, Namespace, Snapshot,
};
use gc_types::UnixNanoseconds;
use prost::Message;

use crate::client::{done, method};
use crate::{CriClient, CriError, protocol::Empty};

/// Kubernetes' namespace in containerd.
const KUBERNETES: &str = "k8s.io";
/// Header that names the namespace of a call.
const NAMESPACE_HEADER: &str = "containerd-namespace";
/// Lease whose removal makes containerd collect its garbage.
const LEASE: &str = "kubegc-garbage-collection";
/// Maximum number of concurrent calls about single objects.
const PARALLEL_CALLS: usize = 16;
/// Kind of a snapshot that can no longer change.
const COMMITTED: i32 = 3;
const CONTENT_PLUGIN: &str = "io.containerd.content.v1";
const SNAPSHOTTER_PLUGIN: &str = "io.containerd.snapshotter.v1";

/// Usage of committed snapshots, which never change, by snapshotter and key.
pub type SnapshotUsages = BTreeMap<(String, String), Space>;

/// Locations of containerd's stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreRoots {
    /// Directory of the content store.
    pub content: Option<PathBuf>,
    /// Each snapshotter, with the directory of its snapshots if it has one.
    pub snapshotters: BTreeMap<String, Option<PathBuf>>,
}

/// Everything that containerd's API lists in the stores below CRI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerdStores {
    /// Kubernetes' namespace.
    pub kubernetes: Namespace,
    /// Locations of the stores.
    pub roots: StoreRoots,
}

impl CriClient {
    /// Reads the stores of Kubernetes' namespace. `None` if the runtime is not containerd. `usages` contains the known usage of
    /// snapshots, and is updated. Usage of snapshots that still change is read only with `all_usages`, because containerd walks
    /// their files.
    pub async fn containerd_stores(
        &self,
        usages: &mut SnapshotUsages,
        all_usages: bool,
    ) -> Result<Option<ContainerdStores>, CriError> {
        if !self.is_containerd() {
            return Ok(None);
        }
        let plugins: messages::PluginList =
            self.containerd("containerd.services.introspection.v1.Introspection/Plugins", Empty {}).await?;
        let roots = roots(plugins);
        let snapshots = self.snapshots(&roots, usages, all_usages).await?;
        let mut kubernetes = Namespace {
            name: KUBERNETES.into(),
            images: self.image_names().await?,
            containers: self.container_records().await?,
            leases: self.leases().await?,
            content: self.content(KUBERNETES).await?,
            snapshots,
            ingests: self.ingests().await?,
            ..Namespace::default()
        };
        let namespaces: messages::NamespaceList =
            self.containerd("containerd.services.namespaces.v1.Namespaces/List", Empty {}).await?;
        for other in namespaces.namespaces.iter().map(|one| &*one.name).filter(|name| *name != KUBERNETES) {
            let blobs = self.content(other).await?;
            kubernetes.foreign_content.extend(blobs.into_iter().map(|blob| (blob.digest, blob.bytes)));
            if all_usages {
                let mut snapshots = self.listed_snapshots(&roots, other).await?;
                for one in &mut snapshots {
                    one.usage = self.snapshot_usage(key(one), other).await?.map(|(_, usage)| usage);
                }
                kubernetes.foreign_snapshots.extend(snapshots);
            }
        }
        Ok(Some(ContainerdStores { kubernetes, roots }))
    }

    async fn image_names(&self) -> Result<Vec<ImageName>, CriError> {
        let listed: messages::ImageList =
            self.containerd("containerd.services.images.v1.Images/List", Empty {}).await?;
        let named = |image: messages::Image| ImageName {
            name: image.name,
            target: image.target.unwrap_or_default().digest,
            labels: image.labels,
        };
        Ok(listed.images.into_iter().map(named).collect())
    }

    async fn container_records(&self) -> Result<Vec<ContainerRecord>, CriError> {
        let listed: messages::ContainerList =
            self.containerd("containerd.services.containers.v1.Containers/List", Empty {}).await?;
        let record = |one: messages::Container| ContainerRecord {
            id: one.id,
            snapshotter: one.snapshotter,
            snapshot: one.snapshot_key,
            labels: one.labels,
        };
        Ok(listed.containers.into_iter().map(record).collect())
    }

    async fn leases(&self) -> Result<Vec<LeaseRecord>, CriError> {
        let listed: messages::LeaseList =
            self.containerd("containerd.services.leases.v1.Leases/List", Empty {}).await?;
        let with_resources = |lease: messages::Lease| async move {
            let request = messages::LeaseRequest { id: lease.id.clone(), sync: false };
            let held: Result<messages::ResourceList, CriError> =
                self.containerd("containerd.services.leases.v1.Leases/ListResources", request).await;
            let held = match held {
                Err(error) if error.is_not_found() => messages::ResourceList::default(),
                other => other?,
            };
            let resources = held.resources.into_iter().map(|one| (one.id, one.r#type)).collect();
            Ok::<_, CriError>(LeaseRecord { id: lease.id, labels: lease.labels, resources })
        };
        stream::iter(listed.leases).map(with_resources).buffer_unordered(PARALLEL_CALLS).try_collect().await
    }

    async fn content(&self, namespace: &str) -> Result<Vec<Blob>, CriError> {
        let parts: Vec<messages::ContentList> =
            self.containerd_list("containerd.services.content.v1.Content/List", Empty {}, namespace).await?;
        let blob = |info: messages::ContentInfo| Blob {
            digest: info.digest,
            bytes: info.size.try_into().unwrap_or(0),
            labels: info.labels,
        };
        Ok(parts.into_iter().flat_map(|part| part.info).map(blob).collect())
    }

    async fn ingests(&self) -> Result<Vec<Ingest>, CriError> {
        let listed: messages::IngestList =
            self.containerd("containerd.services.content.v1.Content/ListStatuses", Empty {}).await?;
        let ingest = |one: messages::IngestStatus| Ingest {
            reference: one.reference,
            bytes: one.offset.try_into().unwrap_or(0),
            updated: moment(one.updated_at),
        };
        Ok(listed.statuses.into_iter().map(ingest).collect())
    }

    /// Returns the snapshots of a namespace, without their usage.
    async fn listed_snapshots(&self, roots: &StoreRoots, namespace: &str) -> Result<Vec<Snapshot>, CriError> {
        let mut found = Vec::new();
        for snapshotter in roots.snapshotters.keys() {
            let request = messages::SnapshotListRequest { snapshotter: snapshotter.clone() };
            let call = "containerd.services.snapshots.v1.Snapshots/List";
            let parts: Vec<messages::SnapshotList> = self.containerd_list(call, request, namespace).await?;
            found.extend(parts.into_iter().flat_map(|part| part.info).map(|info| Snapshot {
                snapshotter: snapshotter.clone(),
                name: info.name,
                parent: info.parent,
                is_committed: info.kind == COMMITTED,
                labels: info.labels,
                updated: moment(info.updated_at),
                usage: None,
            }));
        }
        Ok(found)
    }

    async fn snapshots(
        &self,
        roots: &StoreRoots,
        usages: &mut SnapshotUsages,
        all_usages: bool,
    ) -> Result<Vec<Snapshot>, CriError> {
        let mut found = self.listed_snapshots(roots, KUBERNETES).await?;
        let unknown = found.iter().filter(|one| one.is_committed || all_usages).map(key);
        let unknown: Vec<_> = unknown.filter(|key| !usages.contains_key(key)).collect();
        let read: Vec<Option<((String, String), Space)>> = stream::iter(unknown)
            .map(|key| self.snapshot_usage(key, KUBERNETES))
            .buffer_unordered(PARALLEL_CALLS)
            .try_collect()
            .await?;
        usages.extend(read.into_iter().flatten());
        for one in &mut found {
            one.usage = usages.get(&key(one)).copied();
        }
        let lasting = found.iter().filter(|one| one.is_committed);
        *usages = lasting.filter_map(|one| Some((key(one), one.usage?))).collect();
        Ok(found)
    }

    /// Returns the usage of a snapshot; `None` if it is gone.
    async fn snapshot_usage(
        &self,
        key: (String, String),
        namespace: &str,
    ) -> Result<Option<((String, String), Space)>, CriError> {
        let request = messages::SnapshotRequest { snapshotter: key.0.clone(), key: key.1.clone() };
        let (call, limit) = ("containerd.services.snapshots.v1.Snapshots/Usage", self.request_timeout());
        let answer: Result<messages::SnapshotUsage, CriError> = self
            .call_within::<messages::SnapshotRequest, _>(call, in_namespace(request, namespace), limit)
            .await;
        let usage = match answer {
            Err(error) if error.is_not_found() => return Ok(None),
            other => other?,
        };
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(Some((key, Space { bytes: count(usage.size), inodes: count(usage.inodes) })))
    }

    /// Makes one call in Kubernetes' namespace.
    async fn containerd<Q, A>(&self, call: &'static str, request: Q) -> Result<A, CriError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.call_within::<Q, A>(call, in_namespace(request, KUBERNETES), self.request_timeout()).await
    }

    /// Returns all messages of a stream, or an error.
    async fn containerd_list<Q, A>(
        &self,
        call: &'static str,
        request: Q,
        namespace: &str,
    ) -> Result<Vec<A>, CriError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let limit = self.request_timeout();
        let read = async {
            let stream: tonic::Streaming<A> =
                self.open_stream::<Q, A>(call, in_namespace(request, namespace)).await?;
            stream.map_err(|status| CriError::of(method(call), limit, &status)).try_collect().await
        };
        let timeout = CriError::Timeout { call: method(call), limit };
        tokio::time::timeout(limit, read).await.unwrap_or(Err(timeout))
    }

    /// Runs containerd's garbage collection and waits for it, by creating a lease whose removal triggers it.
    pub async fn collect_garbage(&self) -> Result<(), CriError> {
        let expiry = ("containerd.io/gc.expire".to_owned(), "2020-01-01T00:00:00Z".to_owned());
        let lease = messages::Lease { id: LEASE.into(), labels: [expiry].into() };
        let made: Result<messages::LeaseAnswer, CriError> =
            self.containerd("containerd.services.leases.v1.Leases/Create", lease).await;
        // A lease that is left from an earlier attempt serves as well.
        if let Err(error) = made
            && !matches!(error, CriError::Refused { .. })
        {
            return Err(error);
        }
        self.remove_lease(LEASE).await
    }

    /// Makes a snapshotter remove directories that it does not list.
    pub async fn clean_snapshotter(&self, snapshotter: &str) -> Result<(), CriError> {
        let request = messages::SnapshotListRequest { snapshotter: snapshotter.into() };
        done(self.containerd("containerd.services.snapshots.v1.Snapshots/Cleanup", request).await)
    }

    /// Aborts an ingest. Succeeds if it is already gone.
    pub async fn abort_ingest(&self, reference: &str) -> Result<(), CriError> {
        let request = messages::IngestRequest { reference: reference.into() };
        done(self.containerd("containerd.services.content.v1.Content/Abort", request).await)
    }

    /// Removes a lease, and waits for the garbage collection of everything it held. Succeeds if it is already gone.
    pub async fn remove_lease(&self, id: &str) -> Result<(), CriError> {
        let request = messages::LeaseRequest { id: id.into(), sync: true };
        done(self.containerd("containerd.services.leases.v1.Leases/Delete", request).await)
    }

    /// Removes a snapshot. containerd refuses one that has children. Succeeds if it is already gone.
    pub async fn remove_snapshot(&self, snapshotter: &str, key: &str) -> Result<(), CriError> {
        let request = messages::SnapshotRequest { snapshotter: snapshotter.into(), key: key.into() };
        done(self.containerd("containerd.services.snapshots.v1.Snapshots/Remove", request).await)
    }
}

fn key(snapshot: &Snapshot) -> (String, String) {
    (snapshot.snapshotter.clone(), snapshot.name.clone())
}

fn moment(at: Option<messages::Moment>) -> UnixNanoseconds {
    let at = at.unwrap_or_default();
    let nanoseconds = at.seconds.saturating_mul(1_000_000_000);
    UnixNanoseconds(nanoseconds.saturating_add(at.nanoseconds.into()))
}

fn in_namespace<Q>(request: Q, namespace: &str) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(request);
    // The names of namespaces are identifiers, which are valid header values.
    if let Ok(value) = namespace.parse() {
        request.metadata_mut().insert(NAMESPACE_HEADER, value);
    }
    request
}

fn roots(plugins: messages::PluginList) -> StoreRoots {
    let mut roots = StoreRoots::default();
    for plugin in plugins.plugins.into_iter().filter(|plugin| plugin.init_error.is_none()) {
        let root = plugin.exports.get("root").map(PathBuf::from);
        match (&*plugin.r#type, root) {
            (CONTENT_PLUGIN, root) => roots.content = root,
            (SNAPSHOTTER_PLUGIN, root) => {
                roots.snapshotters.insert(plugin.id, root);
            }
            _ => {}
        }
    }
    roots
}
