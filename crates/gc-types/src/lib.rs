//! The nouns of garbage collection.
//!
//! Everything that crosses the line between deciding (pure crates) and acting (adapters) is defined here:
//! what was observed ([`Event`]), what is to be done ([`Effect`]), why ([`Reason`]) and what became of it
//! ([`Outcome`]). No crate of ours is below this one.
#![doc(html_no_source)]

pub mod codes;
mod duration;
mod effect;
mod event;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod identity;
mod marks;
mod quantity;

pub use duration::{GoDuration, GoDurationError, Units, UnixNanoseconds};
pub use effect::{
    Change, DeletionSecret, Effect, EffectId, EventNote, Evidence, FinalizerName, HeldBy, Outcome,
    OutsideCall, PropagationPolicy, Reason, Request, Severity, Storage, Verdict,
};
pub use event::{DeletionState, Event, ObservedObject, ResourceInfo, Scope};
pub use identity::{
    Coordinates, FailedGroup, Gvk, Gvr, ObjectKey, OwnerReference, ResourceId, ResourceVersion, Timestamp,
    Uid,
};
pub use marks::{ForeignMark, Marks};
pub use quantity::parse_quantity;
