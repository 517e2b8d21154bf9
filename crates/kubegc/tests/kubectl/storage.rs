//! Directories of host-path volumes: no link, mount or other spelling of the path leads to files outside the volume.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::collectors::{Up, bound};
use super::driver::{Driver, Mood};
use super::*;

/// A mount, undone when dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Mounts a small filesystem; `None`, with a clear message, if that is not possible.
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
    // A parent that was replaced by a link, a link in the directory, and a mount in it.
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

/// If two volumes share a directory, however its path is written, the directory stays as long as the other volume exists.
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

/// The driver of these tests.
const DRIVER: &str = "disk.example.com";

/// Runs `kubegc garbage --orphaned-volumes` with these flags; returns its exit code, its findings and its errors.
fn orphans(up: &Up, driver: &Driver, flags: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(["garbage", "-o", "json", "--orphaned-volumes", &driver.endpoint()])
        .args(flags)
        .env("KUBECONFIG", &up.server.kubeconfig)
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    (output.status.code(), items, String::from_utf8(output.stderr).unwrap())
}

/// A driver lists its volumes over several pages; those that no PersistentVolume names are reported with their size, and are
/// certain only if no other cluster uses the driver and there is no other doubt.
#[test]
fn volumes_that_only_the_driver_knows_are_orphans() {
    let driver = Driver::start(DRIVER);
    let Some(up) = Up::start(&[]) else { return };
    for handle in ["attached", "lost", "named", "snapped", "zero"] {
        driver.make_volume(handle);
    }
    driver.state().sizes.insert("lost".to_owned(), (20 << 30, Vec::new()));
    driver.state().sizes.insert("attached".to_owned(), (1 << 30, vec!["node-1".to_owned()]));
    let volume = |name: &str, source: &Value| {
        let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
        volume["spec"].as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        up.apply(&volume);
    };
    volume("bound", &json!({"csi": {"driver": DRIVER, "volumeHandle": "named"}}));
    let shown = |flags: &[&str]| -> Vec<String> {
        let (code, items, error) = orphans(&up, &driver, flags);
        assert_eq!(code, Some(0), "{error}");
        let one = |item: &Value| {
            assert_eq!(item["code"], "OrphanedVolume", "{item}");
            let bytes = item["bytes"].as_u64().map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            format!(
                "{} {bytes} {}",
                item["object"]["name"].as_str().unwrap(),
                item["certainty"].as_str().unwrap()
            )
        };
        items.iter().map(one).collect()
    };
    let unknown =
        ["attached 1073741824 Unknown", "lost 21474836480 Unknown", "snapped - Unknown", "zero - Unknown"];
    assert_eq!(shown(&[]), unknown);
    let certain =
        ["attached 1073741824 Unknown", "lost 21474836480 Certain", "snapped - Certain", "zero - Certain"];
    assert_eq!(shown(&["--exclusive-storage", DRIVER]), certain);
    // An older volume names its disk in another form, and a claim waits for a volume of the driver.
    volume("old", &json!({"awsElasticBlockStore": {"volumeID": "aws://zone/snapped"}}));
    assert_eq!(shown(&["--exclusive-storage", DRIVER])[2], "snapped - Unknown");
    up.apply(
        &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": DRIVER}),
    );
    up.apply(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
    assert_eq!(shown(&["--exclusive-storage", DRIVER]), unknown);
    assert!(driver.state().deletions.is_empty() && driver.has_volume("lost"), "nothing is deleted");
}

/// A driver that lists nothing is an error, not an empty report.
#[test]
fn a_driver_that_does_not_list_its_volumes_is_an_error() {
    let driver = Driver::start(DRIVER);
    let Some(up) = Up::start(&[]) else { return };
    driver.make_volume("lost");
    for (mood, words) in [
        (Mood::NoLists, "CSI driver disk.example.com does not advertise LIST_VOLUMES"),
        (Mood::Named("other.example.com".into()), "calls itself \"other.example.com\""),
        (Mood::Circle, "its list of volumes leads to a page that it has shown"),
    ] {
        driver.be(mood);
        let (code, items, error) = orphans(&up, &driver, &[]);
        assert!(code == Some(1) && items.is_empty() && error.contains(words), "{code:?} {error}");
    }
    driver.be(Mood::Good);
    let (code, _, error) = orphans(&up, &driver, &["--exclusive-storage", "another.example.com"]);
    assert!(code == Some(2) && error.contains("is no driver of --orphaned-volumes"), "{code:?} {error}");
}
