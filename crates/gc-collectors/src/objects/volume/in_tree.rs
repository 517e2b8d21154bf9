//! Storage of in-tree plugins that CSI drivers have replaced: the driver, and its handle of the storage (upstream:
//! `staging/src/k8s.io/csi-translation-lib`).

use serde::Deserialize;

/// In-tree plugins, with the CSI drivers that have replaced them.
const MIGRATED: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// Returns the driver that has replaced a plugin: for `kubernetes.io/aws-ebs`, it is `ebs.csi.aws.com`.
pub(crate) fn driver(plugin: &str) -> Option<&'static str> {
    MIGRATED.iter().find(|(old, _)| *old == plugin).map(|(_, new)| *new)
}

/// Field of an in-tree source that identifies the storage.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireStorage {
    #[serde(rename = "volumeID", alias = "diskURI", alias = "pdName", alias = "volumePath")]
    name: String,
}

/// In-tree sources of a PersistentVolume whose handles are known. Azure file shares are missing, because their handle contains the
/// storage account, which only the Secret of the share names.
#[derive(Default)]
pub(crate) struct WireInTree {
    pub(crate) block_store: Option<WireStorage>,
    pub(crate) azure_disk: Option<WireStorage>,
    pub(crate) cinder: Option<WireStorage>,
    pub(crate) persistent_disk: Option<WireStorage>,
    pub(crate) portworx: Option<WireStorage>,
    pub(crate) vsphere: Option<WireStorage>,
}

impl WireInTree {
    /// Returns the driver and its handle of the storage; `None` if unknown. `zones` is the volume's zone label.
    pub(crate) fn handle(&self, zones: Option<&str>) -> Option<(&'static str, String)> {
        let named = |source: &Option<WireStorage>| {
            source.as_ref().map(|storage| storage.name.clone()).filter(|name| !name.is_empty())
        };
        let (plugin, handle) = if let Some(name) = named(&self.block_store) {
            ("kubernetes.io/aws-ebs", block_store_handle(&name)?.to_owned())
        } else if let Some(name) = named(&self.persistent_disk) {
            ("kubernetes.io/gce-pd", persistent_disk_handle(&name, zones?)?)
        } else if let Some(name) = named(&self.azure_disk) {
            ("kubernetes.io/azure-disk", name)
        } else if let Some(name) = named(&self.cinder) {
            ("kubernetes.io/cinder", name)
        } else if let Some(name) = named(&self.portworx) {
            ("kubernetes.io/portworx-volume", name)
        } else {
            ("kubernetes.io/vsphere-volume", named(&self.vsphere)?)
        };
        Some((driver(plugin)?, handle))
    }
}

/// Returns `vol-1` for `vol-1`, `aws:///vol-1` and `aws://ZONE/vol-1`.
fn block_store_handle(name: &str) -> Option<&str> {
    let id = match name.strip_prefix("aws://") {
        Some(rest) => rest.split_once('/')?.1,
        None => name,
    };
    let digits = id.strip_prefix("vol-")?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(id)
}

/// Returns the handle of a disk in one zone, or in a region of several (`a__b`). The driver adds its own project.
fn persistent_disk_handle(name: &str, zones: &str) -> Option<String> {
    let zones: Vec<&str> = zones.split("__").filter(|zone| !zone.is_empty()).collect();
    let region = |zone: &str| zone.rsplit_once('-').map(|(region, _)| region.to_owned());
    match zones.as_slice() {
        [] => None,
        [zone] => Some(format!("projects/UNSPECIFIED/zones/{zone}/disks/{name}")),
        [first, others @ ..] => {
            let first = region(first)?;
            let is_one = others.iter().all(|zone| region(zone).as_ref() == Some(&first));
            is_one.then(|| format!("projects/UNSPECIFIED/regions/{first}/disks/{name}"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::{Value, json};

    use crate::objects::{Source, Volume};

    #[test]
    fn drivers_know_in_tree_storage_by_their_own_names() {
        let zone = "topology.kubernetes.io/zone";
        let beta = "failure-domain.beta.kubernetes.io/zone";
        let block = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
        let disk = json!({"gcePersistentDisk": {"pdName": "d"}});
        let none = json!({});
        for (spec, labels, expected) in [
            (block("vol-02399"), none.clone(), Some(("ebs.csi.aws.com", "vol-02399"))),
            (block("aws:///vol-02399"), none.clone(), Some(("ebs.csi.aws.com", "vol-02399"))),
            (block("aws://us-west-2a/vol-02399"), none.clone(), Some(("ebs.csi.aws.com", "vol-02399"))),
            (block("aws://us-west-2a/02399"), none.clone(), None),
            (block("aws://vol-02399"), none.clone(), None),
            (block("vol-"), none.clone(), None),
            (block("vol-1/../vol-2"), none.clone(), None),
            (
                disk.clone(),
                json!({ zone: "us-east1-a" }),
                Some(("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/us-east1-a/disks/d")),
            ),
            (
                disk.clone(),
                json!({ beta: "us-central1-a__us-central1-c" }),
                Some(("pd.csi.storage.gke.io", "projects/UNSPECIFIED/regions/us-central1/disks/d")),
            ),
            (disk.clone(), json!({ zone: "us-central1-a__us-east1-c" }), None),
            (disk, none.clone(), None),
            (
                json!({"azureDisk": {"diskName": "n", "diskURI": "/subscriptions/s/disks/n"}}),
                none.clone(),
                Some(("disk.csi.azure.com", "/subscriptions/s/disks/n")),
            ),
            (json!({"cinder": {"volumeID": "c"}}), none.clone(), Some(("cinder.csi.openstack.org", "c"))),
            (json!({"portworxVolume": {"volumeID": "p"}}), none.clone(), Some(("pxd.portworx.com", "p"))),
            (
                json!({"vsphereVolume": {"volumePath": "[ds] a.vmdk"}}),
                none.clone(),
                Some(("csi.vsphere.vmware.com", "[ds] a.vmdk")),
            ),
            (json!({"azureFile": {"shareName": "s", "secretName": "n"}}), none.clone(), None),
            (json!({"cinder": {}}), none, None),
        ] {
            let object: Value = json!({"metadata": {"name": "v", "labels": labels}, "spec": spec});
            let volume: Volume = serde_json::from_value(object).unwrap();
            let expected = expected.map_or(Source::Other, |(driver, handle)| Source::InTree {
                driver: driver.into(),
                handle: handle.into(),
            });
            assert_eq!(volume.source, expected, "{spec} {labels}");
        }
    }
}
