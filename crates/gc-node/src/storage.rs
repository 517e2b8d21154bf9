//! The storage of CRI-O (containers/storage), by its directories. It is only read: any writer must hold its locks and rewrite its
//! records in the same order as the library, and CRI-O keeps some of them in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use gc_collectors::images::account::Holder;
use gc_collectors::images::storage::Storage;

use crate::below::Cause;
use crate::filesystem::tree_bytes;

/// Maximum size of a file of records.
const LONGEST_RECORDS: u64 = 256 << 20;
/// End of the path of CRI-O's image filesystem; the name of the driver precedes it.
const OF_IMAGES: &str = "-images";
/// Prefix of files whose records need not survive a crash.
const VOLATILE: &str = "volatile-";
/// Directory of the overlay driver for layers that are not complete yet.
const STAGING: &str = "staging";
/// Directory of the overlay driver for items that are being removed.
const BEING_REMOVED: &str = "tempdirs";
/// Directory of a driver with one short link for each layer.
const LINKS: &str = "l";

/// Location of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoragePaths {
    root: PathBuf,
    driver: String,
}

impl StoragePaths {
    /// Finds the storage of an image filesystem as named by CRI-O: `/var/lib/containers/storage/overlay-images`.
    pub(crate) fn of(image_filesystem: &Path) -> Option<Self> {
        let driver = image_filesystem.file_name()?.to_str()?.strip_suffix(OF_IMAGES)?;
        let root = image_filesystem.parent()?;
        (!driver.is_empty()).then(|| Self { root: root.to_owned(), driver: driver.to_owned() })
    }

    fn directory(&self, of: &str) -> PathBuf {
        self.root.join(format!("{}{of}", self.driver))
    }

    /// Returns the records of a kind: those that survive a crash, and the others. CRI-O creates all its containers among the
    /// others, which containers/storage keeps in separate files since 1.44.
    fn records(&self, of: &str) -> Result<[String; 2]> {
        let name = of.trim_start_matches('-');
        let directory = self.directory(of);
        let read = |file: String| text(&directory.join(file));
        Ok([read(format!("{name}.json"))?, read(format!("{VOLATILE}{name}.json"))?])
    }

    /// Returns the directory with one directory for each layer.
    fn layers_directory(&self) -> PathBuf {
        let below = match self.driver.as_str() {
            "vfs" => "dir",
            "btrfs" => "subvolumes",
            _ => "",
        };
        self.root.join(&self.driver).join(below)
    }

    /// Reads the records. Fails if there are none at all: then this process does not see the storage.
    pub(crate) fn read(&self) -> Result<Storage> {
        ensure!(
            self.directory("-layers").is_dir(),
            "{} is not visible from here; in a container, mount it at the same path (read-only is enough)",
            self.directory("-layers").display()
        );
        let (images, layers) = (self.records("-images")?, self.records("-layers")?);
        let containers = self.records("-containers")?;
        Storage::read(&images, &layers, &containers)
            .with_context(|| format!("cannot understand the records in {}", self.root.display()))
    }

    /// Measures everything in the storage, by cause, each file once.
    pub(crate) fn measure(&self, storage: &Storage, device: u64) -> BTreeMap<Cause, u64> {
        let mut causes: BTreeMap<Cause, u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let layer = |id: &str| match storage.layers.get(id) {
            Some(holder) => Cause::Listed(*holder),
            // Layers that are being pulled, and those that are being removed.
            None if id == STAGING => Cause::Listed(Holder::Ingest),
            None if id == BEING_REMOVED => Cause::Listed(Holder::Nothing),
            None => Cause::StraySnapshots,
        };
        let image = |id: &str| {
            let is_known = storage.images.contains(id);
            if is_known { Cause::Listed(Holder::Image) } else { Cause::StrayContent }
        };
        let container = |id: &str| {
            let is_known = storage.containers.contains(id);
            if is_known { Cause::Listed(Holder::Container) } else { Cause::StraySnapshots }
        };
        // Files of a layer beside its directory, such as LAYER.tar-split.gz.
        let of_layer_file = |name: &str| layer(name.split('.').next().unwrap_or(name));
        let places: [(PathBuf, &dyn Fn(&str) -> Cause); 4] = [
            (self.layers_directory(), &layer),
            (self.directory("-images"), &image),
            (self.directory("-layers"), &of_layer_file),
            (self.directory("-containers"), &container),
        ];
        for (directory, cause) in places {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let Some(name) = name.to_str().filter(|name| !is_own(name)) else { continue };
                let bytes = tree_bytes(&entry.path(), device, &mut seen);
                *causes.entry(cause(name)).or_default() += bytes;
            }
        }
        causes.retain(|_, bytes| *bytes > 0);
        causes
    }
}

/// Reads a file of records; a missing file is empty.
fn text(path: &Path) -> Result<String> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        other => other.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut text = String::new();
    let read = file.take(LONGEST_RECORDS + 1).read_to_string(&mut text);
    let read = read.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(read as u64 <= LONGEST_RECORDS, "{} is longer than {LONGEST_RECORDS} bytes", path.display());
    Ok(text)
}

/// Reports whether a file belongs to the storage itself: its records, locks and links.
fn is_own(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
    name == LINKS || name.starts_with('.') || matches!(ending, Some("json" | "lock"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    #[test]
    fn the_storage_of_cri_o_is_accounted_for_by_cause() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("storage");
        let write = |path: &str, kib: usize| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1; kib << 10]).unwrap();
        };
        for (layer, kib) in [
            ("base", 400),
            ("app", 200),
            ("writable", 100),
            ("volatile", 70),
            ("half", 60),
            ("lost", 80),
            ("stray", 300),
        ] {
            write(&format!("overlay/{layer}/diff/file"), kib);
            write(&format!("overlay/{layer}/link"), 1);
        }
        write("overlay/staging/x/file", 40);
        write("overlay/tempdirs/y/file", 20);
        write("overlay/l/SHORT", 1);
        write("overlay-layers/base.tar-split.gz", 8);
        write("overlay-layers/gone.tar-split.gz", 16);
        write("overlay-images/i1/manifest", 4);
        write("overlay-images/i9/manifest", 32);
        write("overlay-containers/c1/userdata/config.json", 4);
        let record = |name: &str, value: serde_json::Value| {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), value.to_string()).unwrap();
        };
        record("overlay-images/images.json", json!([{"id": "i1", "layer": "app"}]));
        record(
            "overlay-layers/layers.json",
            json!([{"id": "base"}, {"id": "app", "parent": "base"}, {"id": "lost"},
            {"id": "writable", "parent": "app"}, {"id": "half", "flags": {"incomplete": true}}]),
        );
        record("overlay-containers/containers.json", json!([{"id": "c1", "layer": "writable"}]));
        record("overlay-layers/volatile-layers.json", json!([{"id": "volatile", "parent": "app"}]));
        record("overlay-containers/volatile-containers.json", json!([{"id": "c2", "layer": "volatile"}]));

        let paths = StoragePaths::of(&root.join("overlay-images")).unwrap();
        let device = crate::filesystem::device(&root).unwrap();
        let found = paths.measure(&paths.read().unwrap(), device);
        let kib = |cause: Cause| found[&cause] >> 10;
        // The files have at least this size, plus a few blocks for each of their directories.
        for (cause, least) in [
            (Cause::Listed(Holder::Image), 400 + 200 + 8 + 4),
            (Cause::Listed(Holder::Container), 100 + 70 + 4),
            (Cause::Listed(Holder::Ingest), 60 + 40),
            (Cause::Listed(Holder::Nothing), 80 + 20),
            (Cause::StraySnapshots, 300 + 16),
            (Cause::StrayContent, 32),
        ] {
            assert!((least..=least + 48).contains(&kib(cause)), "{cause:?}: {} for {least}", kib(cause));
        }
        let all: u64 = found.values().sum();
        let du = tree_bytes(&root, device, &mut BTreeSet::new());
        assert!(all <= du && du - all <= du / 50 + (48 << 10), "{all} of {du}");

        let elsewhere = StoragePaths::of(&folder.path().join("overlay-images")).unwrap().read().unwrap_err();
        assert!(elsewhere.to_string().contains("not visible from here"), "{elsewhere}");
        for other in ["/var/lib/containerd", "/-images", "/"] {
            assert_eq!(StoragePaths::of(Path::new(other)), None, "{other}");
        }
        std::fs::write(root.join("overlay-images/images.json"), "{").unwrap();
        assert!(paths.read().is_err());
    }

    /// Accounts for a storage that containers/storage itself has created, if its command is installed (Debian:
    /// `containers-storage`).
    #[test]
    fn a_genuine_storage_is_accounted_for() {
        for driver in ["vfs", "overlay"] {
            let Some(storage) = GenuineStorage::start(driver) else {
                // The overlay driver needs a kernel and a filesystem that allow it; vfs only needs the command.
                assert!(
                    driver != "vfs" || std::env::var("CI").as_deref() != Ok("true"),
                    "no containers-storage"
                );
                eprintln!(
                    "SKIPPED: {driver}: no containers-storage, not root, or the driver does not work here"
                );
                continue;
            };
            let base = storage.layer("base", None, 3000);
            storage.layer("app", Some("base"), 2000);
            storage.run(&["create-image", "-n", "image", "app"]);
            storage.run(&["create-container", "-n", "container", "image"]);
            let records = storage.graph().join(format!("{driver}-containers/containers.json"));
            let records = std::fs::read_to_string(records).unwrap();
            let records: serde_json::Value = serde_json::from_str(&records).unwrap();
            storage.add(records[0]["layer"].as_str().unwrap(), 700);
            let lost = storage.layer("lost", Some("base"), 1000);
            let paths = StoragePaths::of(&storage.graph().join(format!("{driver}-images"))).unwrap();
            let device = crate::filesystem::device(&storage.graph()).unwrap();
            let measure = || paths.measure(&paths.read().unwrap(), device);
            let near = |found: &BTreeMap<Cause, u64>, cause: Cause, kib: u64| {
                let bytes = found.get(&cause).copied().unwrap_or(0);
                assert!(
                    bytes.abs_diff(kib << 10) <= (kib << 10) / 50 + (48 << 10),
                    "{cause:?}: {kib} KiB of {found:?}"
                );
            };
            let found = measure();
            // Without overlays, each layer has a copy of the layers below it.
            let below = |kib: u64| if driver == "vfs" { kib } else { 0 };
            near(&found, Cause::Listed(Holder::Image), 3000 + 2000 + below(3000));
            near(&found, Cause::Listed(Holder::Container), 700 + below(5000));
            near(&found, Cause::Listed(Holder::Nothing), 1000 + below(3000));
            let du = tree_bytes(&storage.graph(), device, &mut BTreeSet::new());
            let all: u64 = found.values().sum();
            assert!(all <= du && du - all <= du / 50 + (64 << 10), "{all} of {du}: {found:?}");
            // This is a directory whose layer is no longer in the records.
            storage.run(&["delete-layer", &lost]);
            std::fs::create_dir_all(paths.layers_directory().join(&lost)).unwrap();
            std::fs::write(paths.layers_directory().join(&lost).join("file"), vec![1; 500 << 10]).unwrap();
            let found = measure();
            near(&found, Cause::StraySnapshots, 500);
            near(&found, Cause::Listed(Holder::Nothing), 0);
            assert!(paths.read().unwrap().layers.contains_key(&base));
        }
    }

    /// A storage in its own directory, changed by the command `containers-storage`.
    struct GenuineStorage {
        folder: tempfile::TempDir,
        driver: &'static str,
    }

    /// Unmounts the directory, which the overlay driver mounts onto itself.
    impl Drop for GenuineStorage {
        fn drop(&mut self) {
            let _ = self.command(&["shutdown"]).output();
        }
    }

    impl GenuineStorage {
        /// Creates the storage; `None` without root, without the command, or if it cannot use this driver here.
        fn start(driver: &'static str) -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                return None;
            }
            let this = Self { folder: tempfile::tempdir().unwrap(), driver };
            this.command(&["status"]).output().ok().filter(|output| output.status.success()).map(|_| this)
        }

        fn graph(&self) -> PathBuf {
            self.folder.path().join("graph")
        }

        fn command(&self, arguments: &[&str]) -> std::process::Command {
            let mut command = std::process::Command::new("containers-storage");
            command.arg("-g").arg(self.graph()).arg("-R").arg(self.folder.path().join("run"));
            command.args(["-s", self.driver]).args(arguments);
            command
        }

        /// Runs the command and returns its first line, which is the identifier of the new item.
        fn run(&self, arguments: &[&str]) -> String {
            let output = self.command(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
        }

        fn layer(&self, name: &str, parent: Option<&str>, kib: usize) -> String {
            let id = self.run(&[&["create-layer", "-n", name], parent.as_slice()].concat());
            self.add(name, kib);
            id
        }

        fn add(&self, to: &str, kib: usize) {
            let file = self.folder.path().join(format!("{kib}"));
            std::fs::write(&file, vec![1; kib << 10]).unwrap();
            self.run(&["copy", file.to_str().unwrap(), &format!("{to}:/{kib}")]);
        }
    }
}
