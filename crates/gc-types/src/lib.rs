//! Shared types of garbage collection.
//!
//! Everything that crosses the boundary between decisions (pure crates) and actions (adapters) is defined here:
//! observations ([`Event`]), requests ([`Effect`]), their reasons ([`Reason`]) and outcomes ([`Outcome`]). This crate
//! depends on no other crate of the workspace.
//!
//! ```
//! use gc_types::{GoDuration, group_resource};
//!
//! let age: GoDuration = "1h30m".parse()?;
//! assert_eq!(age.to_string(), "1h30m0s");
//! assert_eq!(group_resource("apps", "deployments"), "deployments.apps");
//! # Ok::<(), gc_types::GoDurationError>(())
//! ```
#![doc(html_no_source)]

pub mod codes;
mod convert;
mod cron;
mod duration;
mod effect;
mod event;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod identity;
mod listed;
mod marks;
mod protected;
mod quantity;
mod quoted;
mod recreator;

pub use convert::{hexadecimal, milliseconds};
pub use cron::{Cron, JobSchedule};
pub use duration::{GoDuration, GoDurationError, Units, UnixNanoseconds};
pub use effect::{
    Change, DeletionSecret, Effect, EffectId, EventRecord, Evidence, FinalizerName, Outcome, OutsideCall,
    PropagationPolicy, Reason, Request, Severity, Storage, Verdict, WithheldBy,
};
pub use event::{DeletionState, Event, ObservedObject, ResourceInfo, Scope};
pub use identity::{
    Coordinates, FailedGroup, Gvk, Gvr, ObjectKey, OwnerReference, ResourceId, ResourceVersion, Timestamp,
    Uid, api_path, api_version, group_resource,
};
pub use listed::{ListHead, METADATA_LIST, METADATA_OBJECT, NotTheList, check_object_kind};
pub use marks::{ForeignMark, Marks, Texts, read_texts};
pub use protected::undeletable;
pub use quantity::{
    Quantity, QuantityError, QuantityForm, QuantityParts, QuantityScale, kept_quantity, parse_quantity,
};
pub use quoted::{quoted, quoted_with};
pub use recreator::{Recreator, TrackingMark};

/// Hasher with the same result in every process. Maps with it are never iterated in an order that is visible.
pub type FixedState = foldhash::fast::FixedState;
