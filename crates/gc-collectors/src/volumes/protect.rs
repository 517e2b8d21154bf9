//! Protection of PersistentVolumes and PersistentVolumeClaims in use (spec `cluster-collectors.md`, 7 and 8): their finalizers are
//! removed when nothing uses them, and added where they are missing.

pub(crate) mod claims;
pub(crate) mod classes;
#[cfg(test)]
mod tests;
mod unused;
pub(crate) mod volumes;

use std::sync::Arc;

use gc_types::Change;

pub use claims::{CLAIM_FINALIZER, ClaimProtection, in_use};
pub use classes::{AttributesClass, AttributesClassProtection};
pub use volumes::{VOLUME_FINALIZER, VolumeProtection, volume_verdict};

use crate::engine::{Decision, reason};
use crate::objects::{Kind, Meta};

/// Delay before the next list after one that failed or disagreed with the watch, milliseconds.
pub(crate) const LIST_AGAIN_MILLISECONDS: i64 = 1_000;

/// State of an object's protection finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// The object is living and has it, or is terminating without it.
    Settled,
    /// The object is living without it.
    Missing,
    /// The object is terminating, and has it.
    Holding,
}

pub(crate) fn protection(meta: &Meta, finalizers: &[Arc<str>], finalizer: &str) -> Protection {
    let present = finalizers.iter().any(|name| **name == *finalizer);
    match (meta.deleting, present) {
        (false, false) => Protection::Missing,
        (true, true) => Protection::Holding,
        _ => Protection::Settled,
    }
}

/// Returns the change that adds or removes the finalizer.
pub(crate) fn change(
    kind: Kind,
    meta: &Meta,
    finalizers: &[Arc<str>],
    finalizer: &str,
    add: bool,
) -> Decision {
    let mut left: Vec<Arc<str>> = finalizers.iter().filter(|name| ***name != *finalizer).cloned().collect();
    if add {
        left.push(finalizer.into());
    }
    let request = kind.guarded(meta, Change::Finalizers(left));
    let (verdict, fact) = match (kind, add) {
        (_, true) => (gc_types::codes::PROTECTION_MISSING, format!("it lives without {finalizer}")),
        (Kind::Volume, false) => (gc_types::codes::VOLUME_UNUSED, "its phase is not Bound".to_owned()),
        (Kind::AttributesClass, false) => (
            gc_types::codes::ATTRIBUTES_CLASS_UNUSED,
            "live lists found no claim and no volume that names it".to_owned(),
        ),
        (_, false) => {
            (gc_types::codes::CLAIM_UNUSED, "a live list found no pod on a node that uses it".to_owned())
        }
    };
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact]))
}
