//! This version reads files and objects of earlier versions: data directories, the orders on a Lease, journals and backups.
//! `scripts/upgrade-data` writes them with the binary of a release.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{Kubegc, Signal, repository};
use support_cluster::{Admin, LEASE, QUICK_LEASE, until};

/// Returns the directories of `scripts/upgrade-data`, one for each version.
fn versions() -> Vec<PathBuf> {
    let folder = repository().join("crates/kubegc/tests/upgrade");
    let found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!found.is_empty());
    found
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn kubegc(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
    command.args(arguments);
    command
}

/// Returns the collections that existed, by path.
fn expected(version: &Path) -> serde_json::Map<String, Value> {
    serde_json::from_slice(&std::fs::read(version.join("objects.json")).unwrap()).unwrap()
}

/// Reports whether an object is the Lease by which the running server identifies itself.
fn is_identity(object: &Value) -> bool {
    object["metadata"]["labels"]["apiserver.kubernetes.io/identity"] == "kube-apiserver"
}

/// Checks that every object is unchanged; `change` adjusts the parts that may differ.
fn assert_same(server: &Kubegc, version: &Path, change: impl Fn(&mut Value)) {
    let admin = Admin::of(server);
    for (path, mut expected) in expected(version) {
        let (code, mut list) = admin.get(&path);
        assert_eq!(code, 200, "{path}: {list}");
        list["items"].as_array_mut().unwrap().retain(|object| !is_identity(object));
        for items in [&mut expected, &mut list["items"]] {
            items.as_array_mut().unwrap().iter_mut().for_each(&change);
        }
        assert_eq!(list["items"], expected, "{}: {path}", version.display());
    }
}

/// Unpacks a data directory of the version, as it was left.
fn unpacked(version: &Path, folder: &Path) -> PathBuf {
    let data = folder.join("data");
    std::fs::create_dir(&data).unwrap();
    succeed(Command::new("tar").arg("-xzpf").arg(version.join("data.tar.gz")).arg("-C").arg(&data));
    data
}

/// A collector that is ended when dropped.
struct Collector(Child);

impl Collector {
    fn start(server: &Kubegc, log: &Path) -> Self {
        let mut command = kubegc(&["run", "--kubeconfig"]);
        command.arg(&server.kubeconfig).args(QUICK_LEASE).env("KUBEGC_LOG", "info");
        let log = std::fs::File::create(log).unwrap();
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_data_directory_of_an_earlier_version_is_served() {
    for version in versions() {
        let folder = tempfile::tempdir().unwrap();
        let data = unpacked(&version, folder.path());
        let authority = std::fs::read(data.join("pki/ca.crt")).unwrap();
        let start = || Kubegc::start_with("apiserver", ["--data-dir".as_ref(), data.as_os_str()]);
        let server = start();
        assert_same(&server, &version, |_| ());
        let shown = String::from_utf8(std::fs::read(&server.ca).unwrap()).unwrap();
        let body = |pem: &str| pem.lines().filter(|line| !line.starts_with('-')).collect::<String>();
        assert_eq!(
            body(&shown),
            body(&String::from_utf8(authority).unwrap()),
            "clients trust the same authority"
        );
        // This version reads its own files again.
        assert!(server.end(Signal::TERM).0.success());
        assert_same(&start(), &version, |_| ());
    }
}

#[test]
fn orders_of_an_earlier_version_on_the_lease_are_obeyed() {
    for version in versions() {
        let folder = tempfile::tempdir().unwrap();
        let data = unpacked(&version, folder.path());
        let server = Kubegc::start_with("apiserver", ["--data-dir".as_ref(), data.as_os_str()]);
        let admin = Admin::of(&server);
        let left = || {
            let maps = admin.get("/api/v1/namespaces/shop/configmaps").1;
            let names = maps["items"].as_array().unwrap().iter().map(|map| map["metadata"]["name"].clone());
            names.filter(|name| name.as_str().unwrap().starts_with("paused-")).count()
        };
        assert!(admin.get(LEASE).1["metadata"]["annotations"]["kubegc.io/paused"].is_string());
        let log = folder.path().join("log");
        let _collector = Collector::start(&server, &log);
        until("the collector obeys the pause", || {
            std::fs::read_to_string(&log).unwrap().contains("an upgrade")
        });
        assert_eq!(left(), 3);
        let said = succeed(kubegc(&["resume", "--kubeconfig"]).arg(&server.kubeconfig));
        assert_eq!(said, "Resumed.\n");
        until("what waited is collected", || left() == 0);
    }
}

#[test]
fn a_journal_of_an_earlier_version_is_read() {
    for version in versions() {
        let journal = version.join("journal.jsonl");
        let written = std::fs::read_to_string(&journal).unwrap();
        let deletions = written.lines().filter(|line| line.contains(r#""verb":"delete""#)).count();
        assert!(deletions >= 3);
        let read = |arguments: &[&str]| {
            let mut command = kubegc(&["journal", "--verb=delete"]);
            succeed(command.arg("--journal").arg(&journal).args(arguments))
        };
        let json = read(&["-o", "json"]);
        let entries: Value = serde_json::from_str(&json).unwrap();
        let entries = entries["items"].as_array().unwrap();
        assert_eq!(entries.len(), deletions, "{json}");
        let text = read(&["--object", "ConfigMap/before-0", "-n", "shop"]);
        assert!(text.contains("before-0") && !text.contains("before-1"), "{text}");
    }
}

#[test]
fn a_backup_of_an_earlier_version_is_restored() {
    for version in versions() {
        let folder = tempfile::tempdir().unwrap();
        let (file, data) = (folder.path().join("cluster.backup"), folder.path().join("data"));
        let unpacked =
            Command::new("gzip").arg("-dc").arg(version.join("cluster.backup.gz")).output().unwrap();
        std::fs::write(&file, unpacked.stdout).unwrap();
        succeed(kubegc(&["restore"]).arg(&file).arg("--data-dir").arg(&data));
        let server = Kubegc::start_with("apiserver", ["--data-dir".as_ref(), data.as_os_str()]);
        assert_same(&server, &version, |object| {
            object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        });
    }
}
