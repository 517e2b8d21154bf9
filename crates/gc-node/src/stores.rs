//! Sizes of layers, if the runtime is containerd and gives access to its stores.

use std::path::{Path, PathBuf};

use gc_collectors::images::plan::Removal;
use gc_collectors::images::stores::{Disk, set_freed_space};
use gc_cri::{ContainerdStores, CriClient};
use tracing::debug;

use crate::clock::now;
use crate::filesystem;
use crate::images::ImageMemory;

/// Sets the space that each removal of a list frees after those before it. Returns false, without any change, if that is unknown. A
/// runtime that does not report it is not an error: a run then measures more often.
pub(crate) async fn find_freed_space(
    client: &CriClient,
    memory: &mut ImageMemory,
    list: &mut [Removal],
) -> bool {
    if list.is_empty() {
        return true;
    }
    let stores = match client.containerd_stores(&mut memory.snapshot_usages, false).await {
        Ok(Some(stores)) => stores,
        Ok(None) => return false,
        Err(error) => {
            debug!("the sizes of layers are unknown: {error}");
            return false;
        }
    };
    let Ok((paths, _)) = client.filesystem_paths().await else { return false };
    let Some(disk) = disk(&paths, &stores) else { return false };
    set_freed_space(list, &stores.kubernetes, disk, now())
}

/// Returns the image disk, if there is one and all snapshots are on it.
pub(crate) fn disk(paths: &[String], stores: &ContainerdStores) -> Option<Disk> {
    let [path] = paths else { return None };
    let device = |path: &Path| filesystem::device(path);
    let images = device(Path::new(path))?;
    let is_used = |name: &String| stores.kubernetes.snapshots.iter().any(|one| one.snapshotter == *name);
    let mut roots = stores.roots.snapshotters.iter().filter(|(name, _)| is_used(name));
    if !roots.all(|(_, root)| root.as_deref().and_then(device) == Some(images)) {
        return None;
    }
    let content: &PathBuf = stores.roots.content.as_ref()?;
    Some(Disk {
        directory_bytes: filesystem::allocated_bytes(Path::new(path))?,
        has_content: device(content)? == images,
    })
}
