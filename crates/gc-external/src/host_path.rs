//! Directories of host-path volumes.
//!
//! Anyone who may write beside such a directory could replace part of its path with a link between a check and the removal, so
//! nothing is resolved twice: each directory is opened without following links or entering mounts, and its contents are removed
//! relative to the open directory.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::{Errno, Result};

/// Maximum depth of nested directories. Each level keeps two files open.
const MAX_DEPTH: usize = 200;

/// Returns the directory `tmp`, and the path below it, which is what upstream's deleter of host paths accepts.
fn split(path: &Path) -> Option<(PathBuf, Vec<&OsStr>)> {
    let mut parts = path.components();
    if parts.next() != Some(Component::RootDir) {
        return None;
    }
    let names = parts.map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut names = names.collect::<Option<Vec<_>>>()?;
    let tmp = names.iter().position(|name| *name == "tmp")?;
    let below = names.split_off(tmp + 1);
    let root = Path::new("/").join(names.into_iter().collect::<PathBuf>());
    (!below.is_empty()).then_some((root, below))
}

/// Removes the directory of a host-path volume with all its contents; succeeds if it does not exist. A link in its place is itself
/// removed. Nothing is removed if the path leads through a link, or the directory is a mount point or contains one.
pub(crate) fn remove_folder(path: &Path) -> std::result::Result<(), String> {
    let shown = path.display();
    let unsupported = || format!("host_path deleter only supports /tmp/.+ but received provided {shown}");
    let (tmp, mut below) = split(path).ok_or_else(unsupported)?;
    let name = below.pop().ok_or_else(unsupported)?;
    // The administrator may have made the directory `tmp` itself a link.
    let root = match tmp.canonicalize() {
        Ok(root) => root,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{shown}: {error}")),
    };
    let leads_to = root.join(below.iter().collect::<PathBuf>()).join(name);
    if split(&leads_to).is_none() {
        return Err(format!("{shown} leads to {}, which is not below /tmp", leads_to.display()));
    }
    let in_root = root.strip_prefix("/").unwrap_or(&root);
    let removed = open_root(in_root)
        .and_then(|root| below.iter().try_fold(root, |folder, name| open(&folder, name, Crossing::Allowed)))
        .and_then(|parent| remove(&parent, name));
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            Err(format!("{shown} leads through a link, or has become one; it is not deleted"))
        }
        Err(Errno::XDEV) => Err(format!("{shown} is a mount point, or has one in it; it is not deleted")),
        Err(Errno::NAMETOOLONG) => Err(format!("{shown} has more than {MAX_DEPTH} levels of folders")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// Permission to enter another file system on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crossing {
    Allowed,
    Refused,
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory by its names from `/`, none of which is a link any more.
fn open_root(path: &Path) -> Result<OwnedFd> {
    let root = openat(CWD, "/", FLAGS, Mode::empty())?;
    path.iter().try_fold(root, |folder, name| open(&folder, name, Crossing::Allowed))
}

/// Opens a directory in a directory, unless it is a link or, if so requested, another mount. Mounts of the same file system count
/// as well.
#[cfg(target_os = "linux")]
fn open(folder: &OwnedFd, name: &OsStr, crossing: Crossing) -> Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if crossing == Crossing::Refused {
        resolve |= ResolveFlags::NO_XDEV;
    }
    openat2(folder, name, FLAGS, Mode::empty(), resolve)
}

/// On other systems, a mount is recognized by its device.
#[cfg(not(target_os = "linux"))]
fn open(folder: &OwnedFd, name: &OsStr, crossing: Crossing) -> Result<OwnedFd> {
    use rustix::fs::fstat;
    let opened = openat(folder, name, FLAGS, Mode::empty())?;
    if crossing == Crossing::Refused && fstat(folder)?.st_dev != fstat(&opened)?.st_dev {
        return Err(Errno::XDEV);
    }
    Ok(opened)
}

/// Removes an entry of a directory after its contents. Everything is visited before anything is removed, so that a mount deep
/// inside leaves everything as it was.
fn remove(parent: &OwnedFd, name: &OsStr) -> Result<()> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return unlinkat(parent, name, AtFlags::empty());
    }
    let folder = open(parent, name, Crossing::Refused)?;
    visit(&folder, Visit::Check, MAX_DEPTH)?;
    visit(&folder, Visit::Remove, MAX_DEPTH)?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Purpose of a visit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Check,
    Remove,
}

/// Visits the contents of a directory. Files that disappear in the meantime are not an error.
fn visit(folder: &OwnedFd, purpose: Visit, levels_left: usize) -> Result<()> {
    let levels_left = levels_left.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = name_of(entry.file_name());
        if name == "." || name == ".." {
            continue;
        }
        let done = visit_entry(folder, &name, entry.file_type(), purpose, levels_left);
        if done != Err(Errno::NOENT) {
            done?;
        }
    }
    Ok(())
}

fn visit_entry(
    folder: &OwnedFd,
    name: &OsStr,
    listed: FileType,
    purpose: Visit,
    levels_left: usize,
) -> Result<()> {
    let kind = match listed {
        FileType::Unknown => {
            FileType::from_raw_mode(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
        }
        known => known,
    };
    if kind == FileType::Directory {
        visit(&open(folder, name, Crossing::Refused)?, purpose, levels_left)?;
    }
    let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match purpose {
        Visit::Check => Ok(()),
        Visit::Remove => unlinkat(folder, name, flags),
    }
}

fn name_of(name: &CStr) -> OsString {
    use std::os::unix::ffi::OsStrExt as _;
    OsStr::from_bytes(name.to_bytes()).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    /// Returns a directory, and the directory `tmp` in it.
    fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let held = tempfile::tempdir().unwrap();
        let root = held.path().canonicalize().unwrap();
        let tmp = root.join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        (held, root, tmp)
    }

    fn make(path: &Path) {
        std::fs::create_dir_all(path.join("sub")).unwrap();
        std::fs::write(path.join("sub/file"), "x").unwrap();
    }

    #[test]
    fn only_folders_below_tmp_are_removed() {
        let (_held, root, tmp) = folders();
        make(&tmp.join("a"));
        make(&root.join("outside/b"));
        symlink(root.join("outside"), tmp.join("link")).unwrap();
        symlink(root.join("outside"), tmp.join("a/link")).unwrap();
        remove_folder(&tmp.join("a")).unwrap();
        assert!(!tmp.join("a").exists() && tmp.exists());
        remove_folder(&tmp.join("a")).unwrap();
        remove_folder(&tmp.join("never/was")).unwrap();
        // The link itself is removed.
        remove_folder(&tmp.join("link")).unwrap();
        assert!(root.join("outside/b/sub/file").exists() && !tmp.join("link").exists());
        for path in [
            "/etc",
            "/tmp",
            "/tmp/",
            "/tmp//",
            "/tmp/.",
            "tmp/a",
            "/tmp/../etc",
            "/tmp/a/../../etc",
            "/temp/x",
            "/",
        ] {
            let why = remove_folder(Path::new(path)).unwrap_err();
            assert!(why.starts_with("host_path deleter only supports /tmp/.+"), "{path}: {why}");
        }
    }

    /// Even links to somewhere below `tmp` are not followed: another volume may have its directory there.
    #[test]
    fn a_path_that_leads_through_a_link_is_left_alone() {
        let (_held, root, tmp) = folders();
        make(&root.join("outside/b"));
        make(&tmp.join("other/b"));
        for target in [root.join("outside"), tmp.join("other"), PathBuf::from("other")] {
            symlink(&target, tmp.join("link")).unwrap();
            let why = remove_folder(&tmp.join("link/b")).unwrap_err();
            assert!(why.ends_with("leads through a link, or has become one; it is not deleted"), "{why}");
            std::fs::remove_file(tmp.join("link")).unwrap();
        }
        assert!(root.join("outside/b/sub/file").exists() && tmp.join("other/b/sub/file").exists());
    }

    /// A parent is repeatedly replaced with a link while the directory below it is removed.
    #[test]
    fn a_parent_that_is_replaced_leads_nowhere_else() {
        let (_held, root, tmp) = folders();
        make(&root.join("outside/b"));
        make(&tmp.join("parent/b"));
        symlink(root.join("outside"), tmp.join("link")).unwrap();
        let (stop, asked) = std::sync::mpsc::channel::<()>();
        let swapped = tmp.clone();
        let swapping = std::thread::spawn(move || {
            while matches!(asked.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
                for (from, to) in
                    [("parent", "aside"), ("link", "parent"), ("parent", "link"), ("aside", "parent")]
                {
                    std::fs::rename(swapped.join(from), swapped.join(to)).unwrap();
                }
            }
        });
        for _ in 0..2_000 {
            let _ = remove_folder(&tmp.join("parent/b"));
        }
        stop.send(()).unwrap();
        swapping.join().unwrap();
        assert!(root.join("outside/b/sub/file").exists());
    }

    #[test]
    fn folders_that_are_nested_too_deep_are_left_alone() {
        let (_held, _root, tmp) = folders();
        let deep = (0..=MAX_DEPTH).fold(tmp.join("a"), |folder, _| folder.join("d"));
        std::fs::create_dir_all(deep).unwrap();
        std::fs::write(tmp.join("a/file"), "x").unwrap();
        let why = remove_folder(&tmp.join("a")).unwrap_err();
        assert!(why.ends_with("more than 200 levels of folders"), "{why}");
        assert!(tmp.join("a/file").exists());
        remove_folder(&tmp.join("a/d/d")).unwrap();
        remove_folder(&tmp.join("a")).unwrap();
    }

    /// A mount that is removed with this test.
    struct Mounted(PathBuf);

    impl Mounted {
        /// Returns `None` if this user may not mount.
        fn bind(from: &Path, to: &Path) -> Option<Self> {
            let mounted = Command::new("mount").arg("--bind").args([from, to]).output();
            mounted.is_ok_and(|output| output.status.success()).then(|| Self(to.to_owned()))
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        }
    }

    /// A mount of the same file system has the same device.
    #[test]
    fn a_mount_inside_is_not_entered() {
        let (_held, root, tmp) = folders();
        make(&root.join("data"));
        make(&tmp.join("a"));
        std::fs::create_dir(tmp.join("a/sub/mount")).unwrap();
        for place in ["a/sub/mount", "a"] {
            let Some(_mounted) = Mounted::bind(&root.join("data"), &tmp.join(place)) else {
                return eprintln!("SKIPPED: this user may not mount");
            };
            let why = remove_folder(&tmp.join("a")).unwrap_err();
            assert!(why.ends_with("is a mount point, or has one in it; it is not deleted"), "{why}");
            assert!(root.join("data/sub/file").exists());
        }
        assert!(tmp.join("a/sub/file").exists(), "nothing was removed");
        remove_folder(&tmp.join("a")).unwrap();
    }
}
