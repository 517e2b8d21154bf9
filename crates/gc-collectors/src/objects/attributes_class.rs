//! Fields of a VolumeAttributesClass that verdicts use.

use std::sync::Arc;

use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireMeta};

/// Fields of a VolumeAttributesClass that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireClass")]
pub struct AttributesClass {
    /// Metadata of the class.
    pub meta: Meta,
    /// Finalizers of the class, in order.
    pub finalizers: Vec<Arc<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClass {
    metadata: WireMeta,
}

impl From<WireClass> for AttributesClass {
    fn from(wire: WireClass) -> Self {
        Self { finalizers: wire.metadata.finalizers(), meta: Meta::from(&wire.metadata) }
    }
}

impl HasMeta for AttributesClass {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}
