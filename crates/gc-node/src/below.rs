//! The image disk below CRI: its usage by cause, and the removal of provably unused items.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gc_collectors::images::account::{Holder, Orphans, orphans, shares};
use gc_collectors::images::stores::{Disk, blob_space};
use gc_cri::{ContainerdStores, CriClient};
use gc_types::{GoDuration, UnixNanoseconds};
use tracing::{info, warn};

use crate::clock::now;
use crate::filesystem::{self, Measurement};
use crate::images::ImageMemory;
use crate::storage::StoragePaths;
use crate::stores;

/// Usage of the image disk by cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskAccount {
    /// Path by which the runtime names the disk.
    pub path: String,
    /// Used bytes as counted by the kernel.
    pub used_bytes: u64,
    /// Bytes of each cause that is explained or found.
    pub causes: BTreeMap<Cause, u64>,
    /// Items that `--below-cri` would remove.
    pub orphans: Orphans,
}

/// A cause of used bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Items that containerd lists.
    Listed(Holder),
    /// Logs of pods.
    Logs,
    /// Files of the content store that belong to nothing listed by containerd.
    StrayContent,
    /// Files of snapshotters that belong to nothing listed by them.
    StraySnapshots,
}

impl Cause {
    /// Reports whether images, writable layers or logs explain the bytes.
    #[must_use]
    pub fn is_explained(self) -> bool {
        matches!(self, Self::Listed(Holder::Image | Holder::Container) | Self::Logs)
    }

    /// Returns the name of the cause for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed(Holder::Image) => "images",
            Self::Listed(Holder::Container) => "writableLayers",
            Self::Listed(Holder::Lease) => "leases",
            Self::Listed(Holder::Label) => "labels",
            Self::Listed(Holder::OtherNamespace) => "otherNamespaces",
            Self::Listed(Holder::Ingest) => "ingests",
            Self::Listed(Holder::Nothing) => "unreferenced",
            Self::Logs => "logs",
            Self::StrayContent => "strayContent",
            Self::StraySnapshots => "straySnapshots",
        }
    }

    /// Returns the description of the cause for users.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Listed(Holder::Image) => "images",
            Self::Listed(Holder::Container) => "writable layers of containers",
            Self::Listed(Holder::Lease) => "kept by a lease alone",
            Self::Listed(Holder::Label) => "kept by a label (containerd.io/gc.root) alone",
            Self::Listed(Holder::OtherNamespace) => "content of other containerd namespaces",
            Self::Listed(Holder::Ingest) => "uploads that have not ended",
            Self::Listed(Holder::Nothing) => "kept by nothing, and not collected by the runtime yet",
            Self::Logs => "logs of pods",
            Self::StrayContent => "files of the content store that the runtime does not list",
            Self::StraySnapshots => "directories of the snapshotter that it does not list",
        }
    }
}

impl DiskAccount {
    /// Returns the used bytes other than images, writable layers and logs.
    #[must_use]
    pub fn unexplained_bytes(&self) -> u64 {
        let explained = self.causes.iter().filter(|(cause, _)| cause.is_explained());
        self.used_bytes.saturating_sub(explained.map(|(_, bytes)| bytes).sum())
    }

    /// Returns the used bytes without any cause: other files on the same disk.
    #[must_use]
    pub fn other_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.causes.values().sum())
    }
}

/// Accounts for the image disk. Fails if the runtime is not containerd, or if its files are not visible from here.
pub(crate) async fn account(
    client: &CriClient,
    memory: &mut ImageMemory,
    pod_logs: &Path,
    minimum_age: GoDuration,
) -> Result<DiskAccount> {
    if let Some((path, storage)) = cri_o_storage(client).await? {
        return account_of_storage(path, storage, pod_logs).await;
    }
    let ImageDisk { stores, path, device, disk } = image_disk(client, memory).await?;
    let at = now();
    let shares = shares(&stores.kubernetes, disk, at);
    let mut causes: BTreeMap<Cause, u64> =
        shares.iter().map(|(holder, space)| (Cause::Listed(*holder), space.bytes)).collect();
    let listed: u64 = shares.values().map(|space| space.bytes).sum();
    let content = listed_content(&stores, disk);
    let roots = stores.roots.clone();
    let logs = pod_logs.to_owned();
    let measured = tokio::task::spawn_blocking(move || {
        let mut seen = BTreeSet::new();
        let mut of = |path: &Path| filesystem::tree_bytes(path, device, &mut seen);
        let content =
            roots.content.iter().map(|root| of(&root.join("blobs")) + of(&root.join("ingest"))).sum();
        let snapshots = roots.snapshotters.values().flatten().map(|root| of(&root.join("snapshots"))).sum();
        [of(&logs), content, snapshots]
    });
    let [logs, all_content, all_snapshots]: [u64; 3] = measured.await.context("cannot measure files")?;
    causes.insert(Cause::Logs, logs);
    if disk.has_content {
        causes.insert(Cause::StrayContent, all_content.saturating_sub(content));
    }
    causes.insert(Cause::StraySnapshots, all_snapshots.saturating_sub(listed.saturating_sub(content)));
    causes.retain(|_, bytes| *bytes > 0);
    Ok(DiskAccount {
        used_bytes: filesystem::used_bytes(&path)?,
        path,
        causes,
        orphans: orphans(&stores.kubernetes, minimum_age, at),
    })
}

/// Returns the storage of CRI-O and the path by which CRI-O names it; `None` for another runtime.
async fn cri_o_storage(client: &CriClient) -> Result<Option<(String, StoragePaths)>> {
    let (paths, _) = client.filesystem_paths().await.context("cannot ask for the image filesystems")?;
    let path = paths.into_iter().next().unwrap_or_default();
    Ok(StoragePaths::of(Path::new(&path)).map(|storage| (path, storage)))
}

/// Accounts for the disk of a storage by its directories. Removes nothing from it.
async fn account_of_storage(path: String, storage: StoragePaths, pod_logs: &Path) -> Result<DiskAccount> {
    let Measurement { device, .. } = filesystem::measure(&path)?;
    let logs = pod_logs.to_owned();
    let measured = tokio::task::spawn_blocking(move || -> Result<BTreeMap<Cause, u64>> {
        let records = storage.read()?;
        let mut causes = storage.measure(&records, device);
        causes.insert(Cause::Logs, filesystem::tree_bytes(&logs, device, &mut BTreeSet::new()));
        Ok(causes)
    });
    let mut causes = measured.await.context("cannot measure files")??;
    causes.retain(|_, bytes| *bytes > 0);
    let used_bytes = filesystem::used_bytes(&path)?;
    Ok(DiskAccount { path, used_bytes, causes, orphans: Orphans::default() })
}

/// Returns the used bytes that are neither images nor writable layers nor logs of pods, like [`DiskAccount::unexplained_bytes`];
/// their causes are not determined, so no file of the stores is read.
pub(crate) async fn unexplained_bytes(
    client: &CriClient,
    memory: &mut ImageMemory,
    pod_logs: &Path,
) -> Result<u64> {
    if let Some((path, storage)) = cri_o_storage(client).await? {
        return Ok(account_of_storage(path, storage, pod_logs).await?.unexplained_bytes());
    }
    let ImageDisk { stores, path, device, disk } = image_disk(client, memory).await?;
    let listed = shares(&stores.kubernetes, disk, now()).into_iter();
    let explained = listed.filter(|(holder, _)| Cause::Listed(*holder).is_explained());
    let explained: u64 = explained.map(|(_, space)| space.bytes).sum();
    let logs = pod_logs.to_owned();
    let measured =
        tokio::task::spawn_blocking(move || filesystem::tree_bytes(&logs, device, &mut BTreeSet::new()));
    let logs = measured.await.context("cannot measure files")?;
    Ok(filesystem::used_bytes(&path)?.saturating_sub(explained).saturating_sub(logs))
}

/// Disk that holds images, and everything that containerd keeps on it.
struct ImageDisk {
    stores: ContainerdStores,
    /// Path as the runtime names it.
    path: String,
    device: u64,
    disk: Disk,
}

async fn image_disk(client: &CriClient, memory: &mut ImageMemory) -> Result<ImageDisk> {
    let stores = read_stores(client, memory, true).await?;
    let (paths, _) = client.filesystem_paths().await.context("cannot ask for the image filesystems")?;
    let path = paths.into_iter().next().unwrap_or_default();
    let Measurement { device, .. } = filesystem::measure(&path)?;
    let disk = stores::disk(std::slice::from_ref(&path), &stores)
        .context("the files of containerd's stores are not visible from here, or are on several disks")?;
    Ok(ImageDisk { stores, path, device, disk })
}

/// Returns the bytes of all content that containerd lists, including uploads.
fn listed_content(stores: &ContainerdStores, disk: Disk) -> u64 {
    if !disk.has_content {
        return 0;
    }
    let namespace = &stores.kubernetes;
    let own = namespace.content.iter().map(|blob| (blob.digest.clone(), blob.bytes));
    let blobs: BTreeMap<String, u64> = own.chain(namespace.foreign_content.clone()).collect();
    let blobs = blobs.into_values().map(|bytes| blob_space(bytes).bytes);
    blobs.chain(namespace.ingests.iter().map(|ingest| ingest.bytes)).sum()
}

async fn read_stores(client: &CriClient, memory: &mut ImageMemory, all: bool) -> Result<ContainerdStores> {
    let found = client.containerd_stores(&mut memory.snapshot_usages, all).await;
    found
        .context("cannot read containerd's stores")?
        .context("what is below CRI is known of containerd and, to be read only, of CRI-O")
}

/// An item below CRI that was removed, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrphanRemoval {
    /// `Ingest`, `Lease`, `Snapshot` or `Checkpoint`.
    pub kind: &'static str,
    /// Reference, identifier or key of the item.
    pub name: String,
    /// Reason why the item was not removed.
    pub failure: Option<String>,
}

/// Removes the items that no container, image or lease can refer to, and then has containerd collect what this has freed.
pub(crate) async fn remove_orphans(
    client: &CriClient,
    memory: &mut ImageMemory,
    minimum_age: GoDuration,
) -> Result<Vec<OrphanRemoval>> {
    let stores = read_stores(client, memory, false).await?;
    let Orphans { ingests, leases, snapshots } = orphans(&stores.kubernetes, minimum_age, now());
    let mut done = Vec::new();
    let mut note = |kind: &'static str, name: String, result: Result<(), gc_cri::CriError>| {
        let failure = result.err().map(|error| error.to_string());
        match &failure {
            None => info!(kind, name, "removed below CRI"),
            Some(why) => warn!(kind, name, "not removed below CRI: {why}"),
        }
        done.push(OrphanRemoval { kind, name, failure });
    };
    for reference in ingests {
        let result = client.abort_ingest(&reference).await;
        note("Ingest", reference, result);
    }
    for (snapshotter, key) in snapshots {
        let result = client.remove_snapshot(&snapshotter, &key).await;
        note("Snapshot", key, result);
    }
    for id in leases {
        let result = client.remove_lease(&id).await;
        note("Lease", id, result);
    }
    if !done.is_empty() {
        client.collect_garbage().await.context("containerd does not collect its garbage")?;
    }
    let used: BTreeSet<&str> = stores.kubernetes.snapshots.iter().map(|one| &*one.snapshotter).collect();
    for snapshotter in used {
        // Removes directories that earlier removals have left behind.
        if let Err(error) = client.clean_snapshotter(snapshotter).await {
            info!(snapshotter, "the snapshotter does not clean up: {error}");
        }
    }
    Ok(done)
}

/// Returns the checkpoint archives in a directory that are too old, or exceed the number for a container, oldest first.
pub(crate) fn checkpoints_to_remove(
    directory: &Path,
    maximum_age: Option<GoDuration>,
    most: Option<usize>,
    now: UnixNanoseconds,
) -> Result<Vec<PathBuf>> {
    let mut of_container: BTreeMap<String, Vec<(UnixNanoseconds, PathBuf)>> = BTreeMap::new();
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("cannot read {}", directory.display()))?,
    };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(container) = name.to_str().and_then(checkpointed) else { continue };
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        if metadata.is_file() {
            let age = metadata.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let at = age.and_then(|age| i64::try_from(age.as_nanos()).ok()).unwrap_or(now.0);
            of_container.entry(container.to_owned()).or_default().push((UnixNanoseconds(at), path));
        }
    }
    let mut going = Vec::new();
    for (_, mut archives) in of_container {
        archives.sort();
        let surplus = most.map_or(0, |most| archives.len().saturating_sub(most));
        for (index, (at, path)) in archives.into_iter().enumerate() {
            if index < surplus || maximum_age.is_some_and(|maximum| now.since(at) > maximum) {
                going.push((at, path));
            }
        }
    }
    going.sort();
    Ok(going.into_iter().map(|(_, path)| path).collect())
}

/// Returns the pod, namespace and container in the name of an archive that the kubelet wrote:
/// `checkpoint-POD_NAMESPACE-CONTAINER-TIME.tar`.
fn checkpointed(name: &str) -> Option<&str> {
    let name = name.strip_prefix("checkpoint-")?.strip_suffix(".tar")?;
    // RFC 3339: 2026-11-28T18:52:55Z, or with an offset.
    let (at, _) = name.match_indices('-').find(|(at, _)| {
        let time = &name[at + 1..];
        time.get(..11).is_some_and(|date| {
            let digits = date.bytes().enumerate();
            digits.into_iter().all(|(index, byte)| match index {
                4 | 7 => byte == b'-',
                10 => byte == b'T',
                _ => byte.is_ascii_digit(),
            })
        })
    })?;
    Some(&name[..at])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn archives_of_checkpoints_go_by_age_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        let hours = |hours: u64| std::time::Duration::from_secs(hours * 3600);
        let of = |container: &str, age: u64| {
            let name = format!("checkpoint-web-1_default-{container}-2026-11-{:02}T10:00:00Z.tar", 28 - age);
            let path = folder.path().join(name);
            let file = std::fs::File::create(&path).unwrap();
            file.set_modified(now - hours(age * 24)).unwrap();
            path
        };
        let app: Vec<PathBuf> = (1..=4).map(|age| of("app", age)).collect();
        let sidecar = of("side-car", 9);
        std::fs::File::create(folder.path().join("checkpoint-notes.tar")).unwrap();
        std::fs::create_dir(folder.path().join("checkpoint-a_b-c-2020-01-01T00:00:00Z.tar")).unwrap();
        let moment = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let moment = UnixNanoseconds(i64::try_from(moment).unwrap());
        let find = |age: Option<u64>, most| {
            let age = age.map(|days| GoDuration::from_seconds(i64::try_from(days * 86400 + 3600).unwrap()));
            checkpoints_to_remove(folder.path(), age, most, moment).unwrap()
        };
        assert_eq!(find(None, None), Vec::<PathBuf>::new());
        assert_eq!(find(None, Some(2)), [app[3].clone(), app[2].clone()]);
        assert_eq!(find(Some(3), None), [sidecar.clone(), app[3].clone()]);
        assert_eq!(find(Some(3), Some(1)), [sidecar, app[3].clone(), app[2].clone(), app[1].clone()]);
        let absent = folder.path().join("absent");
        assert!(checkpoints_to_remove(&absent, None, Some(0), moment).unwrap().is_empty());
    }
}
