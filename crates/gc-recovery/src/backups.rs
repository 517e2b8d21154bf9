//! Sources that a relink compares with the cluster: a Velero backup, a file of `kubegc backup`, the records of `kubegc recorder`,
//! or manifests. The type of a file is detected from its contents.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gc_explain::relink::Backup;
use gc_explain::{Catalog, GroupResource};
use gc_inspect::target::objects_in;
use gc_process::UsageError;
use serde_json::Value;

use super::seal::Reader;
use super::store;
use super::velero::{self, MAX_OBJECTS};
use crate::backup::format::{Entry, Reader as SavedReader};

/// First bytes of a compressed archive.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// First bytes of a `kubegc backup` file.
const SAVED: &[u8] = b"{\"format\":\"kubegc.io/backup";
/// Suffixes of the files in a directory that are manifests.
const MANIFEST_ENDS: [&str; 3] = ["json", "yaml", "yml"];
/// Maximum depth of directories below a directory of manifests.
const DEEPEST: usize = 16;
/// Name that a file of `kubegc backup` uses for the core group.
const CORE: &str = "core";

/// Reads a backup; `-` is standard input. The catalog supplies what a file of `kubegc backup` omits.
pub(crate) fn read(path: &Path, reader: &mut Reader, catalog: &Catalog) -> anyhow::Result<Backup> {
    let shown = path.display();
    let mut backup = Backup::default();
    if path.is_dir() {
        directory(path, reader, &mut backup)?;
    } else if path.as_os_str() == "-" {
        stream(BufReader::new(std::io::stdin().lock()), &mut backup, catalog).context("standard input")?;
    } else {
        let file = File::open(path).map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
        stream(BufReader::new(file), &mut backup, catalog)
            .with_context(|| format!("{shown} cannot be read"))?;
    }
    if backup.is_empty() {
        bail!("{shown} has no object, so that there is nothing to compare");
    }
    Ok(backup)
}

fn stream(mut input: impl BufRead, backup: &mut Backup, catalog: &Catalog) -> anyhow::Result<()> {
    let beginning = input.fill_buf()?;
    if beginning.starts_with(&GZIP) {
        velero::read(input, backup)
    } else if beginning.starts_with(SAVED) {
        saved(input, backup, catalog)
    } else {
        manifests(input, "the file", backup)
    }
}

/// Adds the objects in a file of `kubegc backup`, whose keys name the resources.
fn saved(input: impl BufRead, backup: &mut Backup, catalog: &Catalog) -> anyhow::Result<()> {
    for entry in SavedReader::begin(input)? {
        let Entry::Object(item) = entry? else { continue };
        let mut parts = item.key.split('/').skip(1);
        let (Some(group), Some(name)) = (parts.next(), parts.next()) else { continue };
        let group = if group == CORE { "" } else { group };
        // A resource that is no longer served has no kind, and nothing to link to.
        let Some(resource) = catalog.named(&GroupResource::new(group, name)) else { continue };
        let Ok(mut object) = serde_json::from_slice::<Value>(&item.value) else { continue };
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = (&*resource.kind).into();
        backup.add(&object);
        anyhow::ensure!(backup.len() <= MAX_OBJECTS, "it has more than {MAX_OBJECTS} objects");
    }
    Ok(())
}

fn manifests(input: impl Read, shown: &str, backup: &mut Backup) -> anyhow::Result<()> {
    for object in objects_in(input, shown)? {
        backup.add(&object);
    }
    Ok(())
}

/// Adds the records of a recorder, or the manifests in a directory and below it.
fn directory(path: &Path, reader: &mut Reader, backup: &mut Backup) -> anyhow::Result<()> {
    if store::has_records(path)? {
        backup.is_partial = true;
        store::each(path, reader, |record| {
            backup.add(&record.object);
        })?;
        if let Some(warning) = reader.end()? {
            eprintln!("warning: {warning}");
        }
        return Ok(());
    }
    let mut files = Vec::new();
    manifest_files(path, DEEPEST, &mut files)?;
    files.sort();
    for file in files {
        let shown = file.display().to_string();
        let open = File::open(&file).map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
        manifests(open, &shown, backup)?;
    }
    Ok(())
}

fn manifest_files(directory: &Path, deepest: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let shown = || format!("cannot read {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(shown)? {
        let entry = entry.with_context(shown)?;
        let path = entry.path();
        let kind = entry.file_type().with_context(shown)?;
        let is_manifest = path.extension().is_some_and(|end| MANIFEST_ENDS.iter().any(|known| end == *known));
        if kind.is_dir() && deepest > 0 {
            manifest_files(&path, deepest - 1, files)?;
        } else if kind.is_file() && is_manifest {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_explain::undo::Record;
    use gc_registry::storage::{KeyValue, Revision};
    use gc_types::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::backup::format::{Head, Writer};
    use crate::seal::{self, Trust};

    fn catalog() -> Catalog {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
            "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
        Catalog::read(core, br#"{"items":[]}"#).unwrap()
    }

    #[test]
    fn every_source_is_the_same_backup() {
        let folder = tempfile::tempdir().unwrap();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n", "name": "a", "uid": "u",
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "v"}]}});
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let archive = write("nightly.tar.gz", &velero::tests::backup(&[("configmaps", object.clone())]));
        let mut file =
            Writer::begin(Vec::new(), &Head::new(Revision(4), jiff::Timestamp::UNIX_EPOCH)).unwrap();
        let stored = json!({"metadata": object["metadata"]}).to_string();
        for key in ["/core/configmaps/n/a", "/core/events/n/unserved"] {
            file.write(&Entry::Object(KeyValue {
                key: key.into(),
                value: stored.clone().into(),
                create_revision: Revision(1),
                mod_revision: Revision(2),
            }))
            .unwrap();
        }
        let saved = write("saved", &file.finish().unwrap().0);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [object]});
        let manifest = write("list.yaml", list.to_string().as_bytes());
        write("manifests/base/deep/list.json", list.to_string().as_bytes());
        write("manifests/README.md", b"no manifest");
        let record = Record { at: Timestamp(5), resource: "configmaps".into(), object: object.clone() };
        let (identity, key) = seal::tests::key();
        let identity = write("identity", identity.as_bytes());
        write("records/deleted-1.jsonl", seal::Writer::to(&[key]).line(&record).unwrap().as_bytes());
        let read = |path: &Path| {
            let lax = Trust { accepts_unsigned: true, ..Trust::default() };
            read(path, &mut Reader::with(Some(&identity), lax).unwrap(), &catalog())
                .map_err(|error| format!("{error:#}"))
        };
        let mut expected = Backup::default();
        expected.add(&object);
        for path in [&archive, &saved, &manifest, &folder.path().join("manifests")] {
            assert_eq!(read(path).as_ref(), Ok(&expected), "{}", path.display());
        }
        expected.is_partial = true;
        assert_eq!(read(&folder.path().join("records")), Ok(expected));
        let empty = write("empty/none.yaml", b"");
        for path in [empty.parent().unwrap(), &empty] {
            let error = read(path).unwrap_err();
            assert!(error.ends_with("has no object, so that there is nothing to compare"), "{error}");
        }
        assert!(read(&folder.path().join("absent")).is_err());
    }
}
