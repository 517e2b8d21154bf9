//! The group storage.k8s.io.

mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
mod storage_class;
mod volume_attachment;
mod volume_attributes_class;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "csidrivers", Rules::of::<csi_driver::CsiDriver>()),
    ("v1", "csinodes", Rules::of::<csi_node::CsiNode>()),
    ("v1", "csistoragecapacities", Rules::of::<csi_storage_capacity::CsiStorageCapacity>()),
    ("v1", "storageclasses", Rules::of::<storage_class::StorageClass>()),
    ("v1", "volumeattachments", Rules::of::<volume_attachment::VolumeAttachment>()),
    ("v1", "volumeattributesclasses", Rules::of::<volume_attributes_class::VolumeAttributesClass>()),
];
