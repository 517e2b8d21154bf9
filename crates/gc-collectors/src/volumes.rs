//! Volumes, claims and the classes that they name: their protection while in use ([`protect`]), and the storage of released volumes
//! ([`reclaim`]).

pub mod protect;
pub mod reclaim;
pub mod secrets;

pub use crate::objects::topology;
pub use crate::objects::{Claim, ClaimReference, Source, Volume};
pub use protect::{
    AttributesClass, AttributesClassProtection, CLAIM_FINALIZER, ClaimProtection, VOLUME_FINALIZER,
    VolumeProtection, in_use, volume_verdict,
};
