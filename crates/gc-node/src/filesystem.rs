//! Measurements of filesystems by the kernel.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gc_collectors::images::space::Filesystem;

/// One measurement, and the device that it was made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measurement {
    /// Filesystem that was measured.
    pub filesystem: Filesystem,
    /// Number of the device.
    pub device: u64,
}

/// Measures the filesystem of a path. A path that does not exist yet is measured at its parent. If the parent does not exist
/// either, this process does not see the runtime's files (it runs in a container without that mount), and would measure another
/// filesystem.
pub(crate) fn measure(path: &str) -> Result<Measurement> {
    let existing = existing_or_parent(Path::new(path)).with_context(|| {
        format!(
            "{path} is not visible from here; in a container, mount it at the same path (read-only is enough)"
        )
    })?;
    let stat = rustix::fs::stat(&existing).with_context(|| format!("cannot read {}", existing.display()))?;
    let space = rustix::fs::statvfs(&existing)
        .with_context(|| format!("cannot measure the filesystem of {}", existing.display()))?;
    Ok(Measurement {
        filesystem: Filesystem {
            path: Arc::from(path),
            capacity_bytes: space.f_frsize.saturating_mul(space.f_blocks),
            available_bytes: space.f_frsize.saturating_mul(space.f_bavail),
            inodes: space.f_files,
            inodes_free: space.f_ffree,
        },
        device: stat.st_dev,
    })
}

/// Returns the device of a path; `None` if it is not visible from here.
pub(crate) fn device(path: &Path) -> Option<u64> {
    rustix::fs::stat(path).ok().map(|stat| stat.st_dev)
}

/// Returns the bytes that a file or directory itself occupies; `None` if it is not visible from here.
pub(crate) fn allocated_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::lstat(path).ok()?;
    u64::try_from(stat.st_blocks).ok().map(|blocks| blocks * 512)
}

/// Returns the used bytes of a filesystem, excluding those reserved for root.
pub(crate) fn used_bytes(path: &str) -> Result<u64> {
    let space =
        rustix::fs::statvfs(path).with_context(|| format!("cannot measure the filesystem of {path}"))?;
    Ok(space.f_frsize.saturating_mul(space.f_blocks.saturating_sub(space.f_bfree)))
}

/// Returns the bytes of a file or of everything below a directory, as counted by `du`: in blocks, each file once even if it has
/// several names, and only on one device. Unreadable files count as empty.
pub(crate) fn tree_bytes(path: &Path, device: u64, seen: &mut BTreeSet<u64>) -> u64 {
    let (mut sum, mut waiting) = (0_u64, vec![path.to_owned()]);
    while let Some(path) = waiting.pop() {
        let Ok(stat) = rustix::fs::lstat(&path) else { continue };
        if stat.st_dev != device || (stat.st_nlink > 1 && !seen.insert(stat.st_ino)) {
            continue;
        }
        sum = sum.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512));
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()));
        }
    }
    sum
}

/// Returns the bytes of everything below these directories.
pub(crate) fn disk_usage(directories: &[PathBuf]) -> u64 {
    let of = |path: &PathBuf| device(path).map_or(0, |device| tree_bytes(path, device, &mut BTreeSet::new()));
    directories.iter().map(of).sum()
}

/// Returns the time that freed space may take to appear: half a minute on filesystems that commit later, otherwise `default`.
pub(crate) fn settling_time(measured: &[Filesystem], default: Duration) -> Duration {
    const LATE: Duration = Duration::from_secs(35);
    if measured.iter().any(|one| frees_late(&one.path)) { LATE } else { default }
}

#[cfg(target_os = "linux")]
fn frees_late(path: &str) -> bool {
    /// Magic numbers of Btrfs and ZFS.
    const MAGIC: [u32; 2] = [0x9123_683e, 0x2fc1_2fc1];
    let Ok(stat) = rustix::fs::statfs(path) else { return false };
    MAGIC.iter().any(|magic| u32::try_from(stat.f_type).is_ok_and(|found| found == *magic))
}

#[cfg(not(target_os = "linux"))]
fn frees_late(_path: &str) -> bool {
    false
}

fn existing_or_parent(path: &Path) -> Option<PathBuf> {
    path.ancestors().take(2).find(|ancestor| ancestor.exists()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_path_that_does_not_exist_yet_is_measured_at_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let here = measure(folder.path().to_str().unwrap()).unwrap();
        let below = folder.path().join("not-yet");
        let there = measure(below.to_str().unwrap()).unwrap();
        assert_eq!(here.device, there.device);
        assert_eq!(here.filesystem.capacity_bytes, there.filesystem.capacity_bytes);
        assert!(here.filesystem.capacity_bytes >= here.filesystem.available_bytes);
        let elsewhere = measure(below.join("at/all").to_str().unwrap()).unwrap_err().to_string();
        assert!(elsewhere.contains("not visible from here"), "{elsewhere}");
    }
}
