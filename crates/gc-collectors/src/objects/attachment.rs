//! Fields of a VolumeAttachment that verdicts use.

use std::sync::Arc;

use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireMeta};

/// Fields of a VolumeAttachment that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireAttachment")]
pub struct Attachment {
    /// Metadata of the attachment.
    pub meta: Meta,
    /// The volume that is, will be, or was attached; `None` if it is inline in a pod.
    pub volume: Option<Arc<str>>,
    /// The node.
    pub node: Arc<str>,
}

impl HasMeta for Attachment {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireAttachment {
    metadata: WireMeta,
    spec: WireAttachmentSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireAttachmentSpec {
    node_name: String,
    source: WireAttachmentSource,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireAttachmentSource {
    persistent_volume_name: Option<String>,
}

impl From<WireAttachment> for Attachment {
    fn from(wire: WireAttachment) -> Self {
        let volume = wire.spec.source.persistent_volume_name;
        Self {
            volume: volume.filter(|name| !name.is_empty()).map(Into::into),
            node: wire.spec.node_name.into(),
            meta: Meta::from(&wire.metadata),
        }
    }
}
