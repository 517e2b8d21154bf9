//! Fields of a volume and a claim that verdicts use.

pub(crate) mod in_tree;
pub mod topology;

use std::sync::Arc;

use gc_types::Uid;
use in_tree::{WireInTree, WireStorage};
use serde::Deserialize;
use topology::{Affinity, WireAffinity};

use super::meta::{HasMeta, Meta, WireCondition, WireMeta};

/// Condition that shows whether pods refer to a claim.
pub(crate) const UNUSED_CONDITION: &str = "Unused";

/// Fields of a PersistentVolume that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireVolume")]
pub struct Volume {
    /// Metadata of the volume.
    pub meta: Meta,
    /// Finalizers of the volume, in order.
    pub finalizers: Vec<Arc<str>>,
    /// `status.phase`
    pub phase: Arc<str>,
    /// `status.message`
    pub message: Arc<str>,
    /// `spec.persistentVolumeReclaimPolicy`
    pub policy: Arc<str>,
    /// `spec.claimRef`
    pub claim: Option<ClaimReference>,
    /// The annotation `pv.kubernetes.io/provisioned-by`.
    pub provisioned_by: Option<Arc<str>>,
    /// The annotation `pv.kubernetes.io/migrated-to`.
    pub migrated_to: Option<Arc<str>>,
    /// Location of its data.
    pub source: Source,
    /// `spec.storageClassName`
    pub class: Arc<str>,
    /// `spec.volumeMode`
    pub mode: Arc<str>,
    /// The annotations `volume.kubernetes.io/provisioner-deletion-secret-name` and `-namespace`.
    pub secret: (Option<Arc<str>>, Option<Arc<str>>),
    /// `spec.nodeAffinity.required`; `None` if the volume can be reached from everywhere.
    pub affinity: Option<Arc<Affinity>>,
    /// `spec.volumeAttributesClassName`
    pub attributes_class: Arc<str>,
}

/// Current or former claim of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimReference {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID; `None` if the volume is only reserved for it.
    pub uid: Option<Uid>,
}

/// Location of a volume's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// With a CSI driver.
    Csi {
        /// The driver.
        driver: Arc<str>,
        /// Handle of the volume in the driver.
        handle: Arc<str>,
    },
    /// With an in-tree plugin that a CSI driver has replaced.
    InTree {
        /// The driver.
        driver: Arc<str>,
        /// Handle of the volume in the driver.
        handle: Arc<str>,
    },
    /// In a directory on a machine.
    HostPath {
        /// The directory.
        path: Arc<str>,
    },
    /// Anywhere else.
    Other,
}

impl Volume {
    /// Reports whether its phase is `Bound`.
    #[must_use]
    pub fn bound(&self) -> bool {
        *self.phase == *"Bound"
    }
}

impl HasMeta for Volume {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// Fields of a PersistentVolumeClaim that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireClaim")]
pub struct Claim {
    /// Metadata of the claim.
    pub meta: Meta,
    /// Finalizers of the claim, in order.
    pub finalizers: Vec<Arc<str>>,
    /// UID of the owner that is its controller, if any.
    pub controller: Option<Uid>,
    /// `spec.volumeName`
    pub volume: Arc<str>,
    /// True if `status.phase` is `Bound`.
    pub bound: bool,
    /// `spec.storageClassName`
    pub class: Arc<str>,
    /// `spec.volumeAttributesClassName`
    pub attributes_class: Arc<str>,
    /// VolumeAttributesClasses in its status: the current one, and the target of a modification.
    pub status_attributes_classes: Vec<Arc<str>>,
    /// True if its condition `Unused` is `True`; `None` if absent.
    pub unused: Option<bool>,
}

impl HasMeta for Claim {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireVolume {
    metadata: WireMeta,
    spec: WireVolumeSpec,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolumeSpec {
    persistent_volume_reclaim_policy: String,
    claim_ref: Option<WireClaimReference>,
    csi: Option<WireCsi>,
    host_path: Option<WireHostPath>,
    aws_elastic_block_store: Option<WireStorage>,
    azure_disk: Option<WireStorage>,
    cinder: Option<WireStorage>,
    gce_persistent_disk: Option<WireStorage>,
    portworx_volume: Option<WireStorage>,
    vsphere_volume: Option<WireStorage>,
    storage_class_name: String,
    volume_mode: Option<String>,
    node_affinity: Option<WireAffinity>,
    volume_attributes_class_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaimReference {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCsi {
    driver: String,
    volume_handle: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireHostPath {
    path: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaim {
    metadata: WireMeta,
    spec: WireClaimSpec,
    status: WireClaimStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaimStatus {
    phase: String,
    conditions: Option<Vec<WireCondition>>,
    current_volume_attributes_class_name: Option<String>,
    modify_volume_status: Option<WireModification>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireModification {
    target_volume_attributes_class_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaimSpec {
    volume_name: String,
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
}

impl From<WireVolume> for Volume {
    fn from(wire: WireVolume) -> Self {
        let spec = wire.spec;
        let in_tree = WireInTree {
            block_store: spec.aws_elastic_block_store,
            azure_disk: spec.azure_disk,
            cinder: spec.cinder,
            persistent_disk: spec.gce_persistent_disk,
            portworx: spec.portworx_volume,
            vsphere: spec.vsphere_volume,
        };
        let zones = wire.metadata.labels.zones();
        let source = match (spec.csi, spec.host_path, in_tree.handle(zones)) {
            (Some(csi), _, _) => Source::Csi { driver: csi.driver.into(), handle: csi.volume_handle.into() },
            (None, Some(host), _) => Source::HostPath { path: host.path.into() },
            (None, None, Some((driver, handle))) => {
                Source::InTree { driver: driver.into(), handle: handle.into() }
            }
            (None, None, None) => Source::Other,
        };
        let meta = Meta::from(&wire.metadata);
        let finalizers = wire.metadata.finalizers();
        let annotations = wire.metadata.annotations;
        Self {
            finalizers,
            phase: wire.status.phase.into(),
            message: wire.status.message.into(),
            policy: spec.persistent_volume_reclaim_policy.into(),
            claim: spec.claim_ref.map(|claim| ClaimReference {
                namespace: claim.namespace.into(),
                name: claim.name.into(),
                uid: (!claim.uid.is_empty()).then(|| Uid::new(&claim.uid)),
            }),
            provisioned_by: annotations.provisioned_by,
            migrated_to: annotations.migrated_to,
            source,
            class: spec.storage_class_name.into(),
            mode: spec.volume_mode.map_or_else(|| "Filesystem".into(), Into::into),
            secret: (annotations.secret_name, annotations.secret_namespace),
            affinity: spec.node_affinity.and_then(WireAffinity::read).map(Arc::new),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default().into(),
            meta,
        }
    }
}

impl From<WireClaim> for Claim {
    fn from(wire: WireClaim) -> Self {
        let mut owners = wire.metadata.owner_references.iter().flatten();
        let mut conditions = wire.status.conditions.iter().flatten();
        let target = wire
            .status
            .modify_volume_status
            .and_then(|modification| modification.target_volume_attributes_class_name);
        let in_status = wire.status.current_volume_attributes_class_name.into_iter().chain(target);
        Self {
            status_attributes_classes: in_status.filter(|name| !name.is_empty()).map(Arc::from).collect(),
            unused: conditions
                .find(|condition| condition.r#type == UNUSED_CONDITION)
                .map(|condition| condition.status == "True"),
            finalizers: wire.metadata.finalizers(),
            controller: owners.find(|owner| owner.controller == Some(true)).map(|owner| Uid::new(&owner.uid)),
            volume: wire.spec.volume_name.into(),
            bound: wire.status.phase == "Bound",
            class: wire.spec.storage_class_name.unwrap_or_default().into(),
            attributes_class: wire.spec.volume_attributes_class_name.unwrap_or_default().into(),
            meta: Meta::from(&wire.metadata),
        }
    }
}
