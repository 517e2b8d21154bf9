//! The storage of CRI-O (containers/storage) by its directories. It is only read: whoever changes it has to hold its locks and to
//! rewrite its records in the same order as the library does, and CRI-O keeps some of them in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use gc_collectors::images::account::Holder;
use gc_collectors::images::storage::Storage;

use crate::below::Cause;
use crate::filesystem::tree_bytes;

/// Longest file of records that is read.
const LONGEST_RECORDS: u64 = 256 << 20;
/// End of the path of the image filesystem that CRI-O reports: the driver comes before it.
const OF_IMAGES: &str = "-images";
/// Directory of a driver with one short link for each layer.
const LINKS: &str = "l";

/// Place of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoragePaths {
    root: PathBuf,
    driver: String,
}

impl StoragePaths {
    /// Finds the storage of an image filesystem as CRI-O names it: `/var/lib/containers/storage/overlay-images`.
    pub(crate) fn of(image_filesystem: &Path) -> Option<Self> {
        let driver = image_filesystem.file_name()?.to_str()?.strip_suffix(OF_IMAGES)?;
        let root = image_filesystem.parent()?;
        (!driver.is_empty()).then(|| Self { root: root.to_owned(), driver: driver.to_owned() })
    }

    fn directory(&self, of: &str) -> PathBuf {
        self.root.join(format!("{}{of}", self.driver))
    }

    fn records(&self, of: &str) -> Result<String> {
        let path = self.directory(of).join(format!("{}.json", of.trim_start_matches('-')));
        let file = match std::fs::File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
            other => other.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mut text = String::new();
        let read = file.take(LONGEST_RECORDS + 1).read_to_string(&mut text);
        let read = read.with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(read as u64 <= LONGEST_RECORDS, "{} is longer than {LONGEST_RECORDS} bytes", path.display());
        Ok(text)
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
        let layer =
            |id: &str| storage.layers.get(id).map_or(Cause::StraySnapshots, |holder| Cause::Listed(*holder));
        let image = |id: &str| {
            let is_known = storage.images.contains(id);
            if is_known { Cause::Listed(Holder::Image) } else { Cause::StrayContent }
        };
        let container = |id: &str| {
            let is_known = storage.containers.contains(id);
            if is_known { Cause::Listed(Holder::Container) } else { Cause::StraySnapshots }
        };
        // Files of a layer beside its directory: LAYER.tar-split.gz.
        let of_layer_file = |name: &str| layer(name.split('.').next().unwrap_or(name));
        let places: [(&str, &dyn Fn(&str) -> Cause); 4] =
            [("", &layer), ("-images", &image), ("-layers", &of_layer_file), ("-containers", &container)];
        for (of, cause) in places {
            for entry in std::fs::read_dir(self.directory(of)).into_iter().flatten().flatten() {
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

/// Reports whether a file is of the storage itself: its records, locks and links.
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
        for (layer, kib) in
            [("base", 400), ("app", 200), ("writable", 100), ("half", 60), ("lost", 80), ("stray", 300)]
        {
            write(&format!("overlay/{layer}/diff/file"), kib);
            write(&format!("overlay/{layer}/link"), 1);
        }
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

        let paths = StoragePaths::of(&root.join("overlay-images")).unwrap();
        let device = crate::filesystem::device(&root).unwrap();
        let found = paths.measure(&paths.read().unwrap(), device);
        let kib = |cause: Cause| found[&cause] >> 10;
        // Files of this size, and a few blocks for each of their directories.
        for (cause, least) in [
            (Cause::Listed(Holder::Image), 400 + 200 + 8 + 4),
            (Cause::Listed(Holder::Container), 100 + 4),
            (Cause::Listed(Holder::Ingest), 60),
            (Cause::Listed(Holder::Nothing), 80),
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
}
