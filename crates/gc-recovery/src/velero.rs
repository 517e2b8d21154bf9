//! Objects of a Velero backup: `resources/<resource>/namespaces/<namespace>/<name>.json` and
//! `resources/<resource>/cluster/<name>.json` in a compressed archive, and the same again below each version.

use std::io::Read;

use anyhow::Context as _;
use flate2::read::GzDecoder;
use gc_explain::relink::Backup;

/// Maximum number of objects in a backup.
pub(crate) const MAX_OBJECTS: usize = 2_000_000;
/// Maximum size of an object that is read, bytes.
const LARGEST_OBJECT: u64 = 16 << 20;
/// Maximum unpacked size of an archive, bytes: a small one can expand to any size.
const LARGEST_ARCHIVE: u64 = 256 << 30;

/// Adds the objects of an archive to a backup.
pub(crate) fn read(archive: impl Read, backup: &mut Backup) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive).take(LARGEST_ARCHIVE));
    let entries = archive.entries().context("it is not a compressed archive")?;
    for entry in entries {
        let entry = entry.context("the archive is damaged")?;
        let path = entry.path().context("a name in the archive is damaged")?.into_owned();
        let is_object = path.strip_prefix("./").unwrap_or(&path).starts_with("resources")
            && path.extension().is_some_and(|extension| extension == "json");
        if !is_object || !entry.header().entry_type().is_file() {
            continue;
        }
        anyhow::ensure!(
            entry.header().size().unwrap_or_default() <= LARGEST_OBJECT,
            "{} is larger than any object",
            path.display()
        );
        let object = serde_json::from_reader(entry)
            .with_context(|| format!("{} in the archive is no object", path.display()))?;
        backup.add(&object);
        anyhow::ensure!(backup.len() <= MAX_OBJECTS, "it has more than {MAX_OBJECTS} objects");
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeMap;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use gc_explain::relink::Identity;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a backup as Velero writes it: each object twice, once below its preferred version.
    pub(crate) fn backup(objects: &[(&str, Value)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut add = |path: &str, text: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, text).unwrap();
        };
        add("metadata/version", b"1.1.0\n");
        for (resource, object) in objects {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let place = match text("namespace") {
                "" => "cluster".to_owned(),
                namespace => format!("namespaces/{namespace}"),
            };
            for version in ["", "v1-preferredversion/"] {
                let path = format!("resources/{resource}/{version}{place}/{}.json", text("name"));
                add(&path, object.to_string().as_bytes());
            }
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn objects_are_found_by_their_uids() {
        let object = |kind: &str, namespace: &str, name: &str| json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"namespace": namespace, "name": name, "uid": format!("u-{name}")}});
        let archive = backup(&[
            ("deployments.apps", object("Deployment", "shop", "web")),
            ("things.apps", object("Thing", "", "global")),
        ]);
        let read = |archive: &[u8]| {
            let mut found = Backup::default();
            read(archive, &mut found).map(|()| found)
        };
        let expected = |kind: &str, namespace: &str, name: &str| {
            let identity = Identity {
                group: "apps".into(),
                kind: kind.into(),
                namespace: namespace.into(),
                name: name.into(),
            };
            (format!("u-{name}"), identity)
        };
        let found = read(archive.as_slice()).unwrap();
        assert_eq!(
            (found.len(), found.identities()),
            (2, &BTreeMap::from([expected("Deployment", "shop", "web"), expected("Thing", "", "global")]))
        );
        assert!(read(&b"no archive"[..]).is_err());
        assert!(read(&archive[..archive.len() / 2]).is_err());
    }
}
