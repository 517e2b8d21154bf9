//! Volumes that a CSI driver has and no PersistentVolume names.
//!
//! A driver lists everything it stores, for any cluster. A volume is therefore certainly orphaned only if an operator declares that
//! no other cluster uses the driver's storage and nothing in this cluster contradicts it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Certainty, Code, Finding, Report};
use crate::stuck::Place;

/// Kind that stands for these volumes, which are not API objects.
const KIND: &str = "CSIVolume";

/// A volume that a driver has listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVolume {
    /// Handle of the volume.
    pub handle: String,
    /// Size of the volume, if it is known.
    pub bytes: Option<u64>,
    /// Nodes that it is attached to, as far as the driver reports them.
    pub nodes: Vec<String>,
}

/// Driver storage that a cluster uses.
#[derive(Clone, Debug, Default)]
pub struct UsedStorage {
    /// Handles by driver.
    handles: BTreeSet<(String, String)>,
    /// Last parts of texts that may be handles of a driver in another form: migrated in-tree volumes, and sources of snapshots.
    parts: BTreeMap<String, String>,
    /// Provisioners of StorageClasses, by class name.
    classes: BTreeMap<String, String>,
    /// Classes of claims that have no volume yet, each with one of these claims.
    pending: BTreeMap<String, String>,
    /// Objects that could not be read.
    unseen: Vec<String>,
}

/// Returns the last part of a path, a URL or a name.
fn last_part(text: &str) -> &str {
    text.rsplit(['/', ':']).next().unwrap_or(text)
}

impl UsedStorage {
    /// Adds a PersistentVolume.
    pub fn volume(&mut self, volume: &Value) {
        let name = volume["metadata"]["name"].as_str().unwrap_or_default();
        let spec = &volume["spec"];
        let text = |field: &str| spec["csi"][field].as_str().unwrap_or_default().to_owned();
        if spec["csi"].is_object() {
            self.handles.insert((text("driver"), text("volumeHandle")));
        }
        // Drivers use other handles for volumes that were created before the migration to CSI.
        self.note_texts(spec, &format!("PersistentVolume {name}"));
    }

    /// Adds the content of a snapshot, which may have been taken of a volume that is to stay.
    pub fn snapshot(&mut self, content: &Value) {
        let name = content["metadata"]["name"].as_str().unwrap_or_default();
        self.note_texts(&content["spec"]["source"], &format!("VolumeSnapshotContent {name}"));
    }

    /// Adds a StorageClass.
    pub fn class(&mut self, class: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.classes.insert(text(&class["metadata"]["name"]), text(&class["provisioner"]));
    }

    /// Adds a PersistentVolumeClaim: if it has no volume, a driver may be creating one right now.
    pub fn claim(&mut self, claim: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if text(&claim["spec"]["volumeName"]).is_empty() {
            let metadata = &claim["metadata"];
            let title = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
            self.pending.insert(text(&claim["spec"]["storageClassName"]), title);
        }
    }

    /// Records something that could not be read, and may therefore use any volume.
    pub fn unseen(&mut self, what: String) {
        self.unseen.push(what);
    }

    fn note_texts(&mut self, value: &Value, of: &str) {
        match value {
            Value::String(text) if !last_part(text).is_empty() => {
                self.parts.insert(last_part(text).to_owned(), of.to_owned());
            }
            Value::Array(items) => items.iter().for_each(|item| self.note_texts(item, of)),
            Value::Object(fields) => fields.values().for_each(|item| self.note_texts(item, of)),
            _ => {}
        }
    }

    /// Returns a claim that a driver may be making a volume for.
    fn pending_of(&self, driver: &str) -> Option<&str> {
        let mut pending = self.pending.iter();
        let found = pending.find(|(class, _)| {
            // If the class is not known, any driver may be creating the volume.
            self.classes.get(*class).is_none_or(|provisioner| provisioner == driver)
        });
        found.map(|(_, claim)| claim.as_str())
    }

    /// Explains why a volume may be used although no PersistentVolume names it.
    fn doubt(&self, driver: &str, volume: &StoredVolume, is_exclusive: bool) -> Option<String> {
        if !self.unseen.is_empty() {
            return Some("not everything could be read that may name it".to_owned());
        }
        if let Some(node) = volume.nodes.first() {
            return Some(format!("it is attached to {node}"));
        }
        if let Some(of) = self.parts.get(last_part(&volume.handle)) {
            return Some(format!("{of} names it in another form"));
        }
        if let Some(claim) = self.pending_of(driver) {
            return Some(format!("claim {claim} has no volume yet, and this may become its"));
        }
        (!is_exclusive).then(|| "another cluster may use the storage of this driver".to_owned())
    }

    /// Reports the volumes of these drivers that no PersistentVolume names. `exclusive` lists the drivers whose storage no other
    /// cluster uses.
    #[must_use]
    pub fn orphans(
        self,
        listed: &BTreeMap<String, Vec<StoredVolume>>,
        exclusive: &BTreeSet<String>,
    ) -> Report {
        let mut findings = Vec::new();
        for (driver, volumes) in listed {
            for volume in volumes {
                if self.handles.contains(&(driver.clone(), volume.handle.clone())) {
                    continue;
                }
                let doubt = self.doubt(driver, volume, exclusive.contains(driver));
                let why = "no PersistentVolume names this volume of the driver";
                let place = Place {
                    api_version: "csi.v1".to_owned(),
                    kind: KIND.to_owned(),
                    resource: driver.clone(),
                    namespace: String::new(),
                    name: volume.handle.clone(),
                    uid: String::new(),
                };
                findings.push(Finding {
                    code: Code::OrphanedVolume,
                    place,
                    certainty: if doubt.is_none() { Certainty::Certain } else { Certainty::Unknown },
                    why: doubt.map_or_else(|| why.to_owned(), |doubt| format!("{why}; {doubt}")),
                    bytes: volume.bytes,
                    created: None,
                });
            }
        }
        Report { findings, unseen: self.unseen, ..Report::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DRIVER: &str = "disk.example.com";

    fn stored(handle: &str) -> StoredVolume {
        StoredVolume { handle: handle.to_owned(), bytes: Some(1 << 30), nodes: Vec::new() }
    }

    fn volume(source: &Value) -> Value {
        json!({"metadata": {"name": "pv"}, "spec": source})
    }

    /// Returns each orphan, with a question mark if it is not certain.
    fn orphans(used: UsedStorage, volumes: Vec<StoredVolume>, is_exclusive: bool) -> Vec<String> {
        let exclusive = is_exclusive.then(|| DRIVER.to_owned()).into_iter().collect();
        let report = used.orphans(&BTreeMap::from([(DRIVER.to_owned(), volumes)]), &exclusive);
        let shown = |finding: &Finding| {
            assert_eq!((finding.code, finding.bytes), (Code::OrphanedVolume, Some(1 << 30)));
            let doubt = if finding.certainty == Certainty::Certain { "" } else { "?" };
            format!("{}{doubt} {}", finding.place.name, finding.why.split("; ").nth(1).unwrap_or_default())
        };
        report.findings.iter().map(shown).collect()
    }

    #[test]
    fn what_a_volume_names_is_no_orphan_and_what_may_be_used_is_not_certain() {
        let csi = |driver: &str| volume(&json!({"csi": {"driver": driver, "volumeHandle": "a"}}));
        let mut used = UsedStorage::default();
        used.volume(&csi(DRIVER));
        assert_eq!(orphans(used.clone(), vec![stored("a"), stored("b")], true), ["b "]);
        assert_eq!(
            orphans(used, vec![stored("a"), stored("b")], false),
            ["b? another cluster may use the storage of this driver"]
        );
        // The same handle of another driver is another volume, but its text still raises a doubt.
        let mut used = UsedStorage::default();
        used.volume(&csi("other.example.com"));
        assert_eq!(
            orphans(used, vec![stored("a")], true),
            ["a? PersistentVolume pv names it in another form"]
        );
        let attached = StoredVolume { nodes: vec!["node-1".to_owned()], ..stored("b") };
        assert_eq!(orphans(UsedStorage::default(), vec![attached], true), ["b? it is attached to node-1"]);
    }

    #[test]
    fn volumes_that_were_made_before_their_driver_are_recognised() {
        for (source, handle) in [
            (json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}}), "vol-1"),
            (json!({"gcePersistentDisk": {"pdName": "pd-1"}}), "projects/UNSPECIFIED/zones/z/disks/pd-1"),
            (json!({"azureDisk": {"diskURI": "/subscriptions/s/disks/d-1"}}), "/subscriptions/S/disks/d-1"),
        ] {
            let mut used = UsedStorage::default();
            used.volume(&volume(&source));
            let found = orphans(used, vec![stored(handle)], true);
            assert!(found.len() == 1 && found[0].contains("names it in another form"), "{found:?}");
        }
        let mut used = UsedStorage::default();
        used.snapshot(&json!({"metadata": {"name": "s"}, "spec": {"source": {"volumeHandle": "b"}}}));
        assert_eq!(
            orphans(used, vec![stored("b")], true),
            ["b? VolumeSnapshotContent s names it in another form"]
        );
    }

    #[test]
    fn a_volume_that_is_being_made_is_not_certain() {
        let claim = |class: &str, volume: &str| {
            json!({"metadata": {"namespace": "shop", "name": "data"},
                "spec": {"storageClassName": class, "volumeName": volume}})
        };
        let class = |name: &str, driver: &str| json!({"metadata": {"name": name}, "provisioner": driver});
        for (claim, is_certain) in [
            (claim("fast", ""), false),
            (claim("fast", "pv-1"), true),
            (claim("other", ""), true),
            // The class does not exist, or is whatever default the reader of the claim applies.
            (claim("unknown", ""), false),
        ] {
            let mut used = UsedStorage::default();
            used.class(&class("fast", DRIVER));
            used.class(&class("other", "other.example.com"));
            used.claim(&claim);
            let found = orphans(used, vec![stored("b")], true);
            assert_eq!(found == ["b "], is_certain, "{claim}: {found:?}");
        }
        let mut used = UsedStorage::default();
        used.unseen("persistentvolumeclaims could not be listed".to_owned());
        assert_eq!(
            orphans(used, vec![stored("b")], true),
            ["b? not everything could be read that may name it"]
        );
    }
}
