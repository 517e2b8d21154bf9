//! Folders of host-path volumes: neither a link, nor a mount, nor another spelling of the path leads to what is not the volume's.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::collectors::{Up, bound};
use super::*;

/// A mount, undone when dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Mounts a small filesystem; `None`, said loudly, if that is not possible.
fn mount(folder: PathBuf) -> Option<Mounted> {
    std::fs::create_dir_all(&folder).unwrap();
    let mut mounting = Command::new("mount");
    mounting.args(["-t", "tmpfs", "-o", "size=64k", "kubegc-test"]).arg(&folder).stderr(Stdio::null());
    if mounting.status().is_ok_and(|status| status.success()) {
        return Some(Mounted(folder));
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs root");
    eprintln!("SKIPPED: cannot mount a small filesystem; needs root");
    None
}

#[test]
fn links_and_mounts_lead_out_of_no_volume() {
    let host = tempfile::Builder::new().prefix("kubegc-host").tempdir_in("/tmp").unwrap();
    let at = |name: &str| host.path().join(name);
    let Some(up) = Up::start(&["--enable-hostpath-provisioner".to_owned()]) else { return };
    // A parent that was replaced by a link, a link in the folder, and a mount in it.
    std::fs::create_dir_all(at("precious/data")).unwrap();
    std::fs::write(at("precious/data/file"), "x").unwrap();
    std::os::unix::fs::symlink(at("precious"), at("swapped")).unwrap();
    std::fs::create_dir(at("plain")).unwrap();
    std::os::unix::fs::symlink(at("precious"), at("plain/link")).unwrap();
    let mounted = mount(at("crossed/inner/mounted"));
    let mut volumes = vec![("swapped", at("swapped/data")), ("plain", at("plain"))];
    if let Some(Mounted(folder)) = &mounted {
        std::fs::write(folder.join("file"), "x").unwrap();
        std::fs::write(at("crossed/file"), "x").unwrap();
        volumes.push(("crossed", at("crossed")));
    }
    for (name, path) in &volumes {
        bound(&up, name, "Delete", &json!({"hostPath": {"path": path}}), &json!({}));
    }
    let names: Vec<&str> = volumes.iter().map(|(name, _)| *name).collect();
    up.run(&[&["delete", "pvc"], &names[..], &["--timeout=20s"]].concat());
    up.until_gone("pv/plain");
    let failed = |name: &str, words: &str| {
        up.until(words, || up.field(&format!("pv/{name}"), ".status.message").contains(words));
        assert_eq!(up.field(&format!("pv/{name}"), ".status.phase"), "Failed");
    };
    failed("swapped", "leads through a link, or has become one; it is not deleted");
    assert!(!at("plain").exists() && at("precious/data/file").exists());
    if let Some(Mounted(folder)) = &mounted {
        failed("crossed", "is a mount point, or has one in it; it is not deleted");
        assert!(folder.join("file").exists() && at("crossed/file").exists(), "all is as it was");
    }
}

/// Two volumes with one folder, however its path is written: the folder stays as long as the other one is there.
#[test]
fn a_folder_that_another_volume_has_as_well_stays() {
    let host = tempfile::Builder::new().prefix("kubegc-host").tempdir_in("/tmp").unwrap();
    let Some(up) = Up::start(&["--enable-hostpath-provisioner".to_owned()]) else { return };
    let folder = host.path().join("data");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    for (name, path, policy) in [("first", "/data", "Delete"), ("second", "//./data/sub/", "Retain")] {
        let path = format!("{}{path}", host.path().display());
        bound(&up, name, policy, &json!({"hostPath": {"path": path}}), &json!({}));
    }
    up.run(&["delete", "pvc", "first", "--timeout=20s"]);
    let shared = "persistentvolume second has the same storage";
    up.until(shared, || up.field("pv/first", ".status.message").contains(shared));
    assert!(folder.join("sub").exists());
    up.run(&["delete", "pvc", "second", "--timeout=20s"]);
    up.run(&["delete", "pv", "second", "--timeout=20s"]);
    up.until("the end of the first", || {
        up.pass(Duration::from_mins(5));
        !up.exists("pv/first")
    });
    assert!(!folder.exists());
}
