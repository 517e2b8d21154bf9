//! Text of requests and outcomes in a trace.

use std::fmt::Write as _;

use gc_types::{Outcome, Request};

use crate::kinds::KINDS;
use crate::truth::show;

/// Formats a request about an object of a kind.
#[must_use]
pub fn show_request(kind: usize, request: &Request) -> String {
    let place = |key: &gc_types::ObjectKey| show(kind, &key.namespace, &key.name);
    match request {
        Request::Delete { key, resource_version, policy, .. } => match resource_version {
            Some(version) => format!("delete {} {policy:?} at {version}", place(key)),
            None => format!("delete {} {policy:?} by uid", place(key)),
        },
        Request::SetOwners { key, resource_version, remaining, .. } => {
            let mut names = String::new();
            for owner in remaining {
                // Writing to a string cannot fail.
                let _ = write!(names, " {}/{}", owner.coordinates.kind, owner.coordinates.name);
            }
            format!("owners of {} at {resource_version}:{names}", place(key))
        }
        Request::RemoveFinalizer { key, finalizer, .. } => format!("take {finalizer} off {}", place(key)),
        Request::Read { key } => format!("read {}", place(key)),
        Request::Barrier { at_least, namespace, .. } => {
            let namespace = namespace.as_deref().unwrap_or("*");
            format!("barrier {} {namespace} at {at_least}", KINDS[kind].resource)
        }
        Request::RecordEvent(note) => format!("note {} {}", place(&note.about), note.reason),
        Request::Guarded { key, resource_version, change, .. } => {
            format!("change {} at {resource_version}: {change:?}", place(key))
        }
        Request::Outside { key, .. } => format!("ask for the machine of {}", place(key)),
    }
}

/// Formats the outcome.
#[must_use]
pub fn show_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Applied(_) => "applied".to_owned(),
        Outcome::Found(object) => format!("found {} at {}", object.uid, object.resource_version),
        Outcome::Absent => "absent".to_owned(),
        Outcome::Conflict => "conflict".to_owned(),
        Outcome::NotServed => "not served".to_owned(),
        Outcome::Refused { code, message } => format!("{code}: {message}"),
        Outcome::Failed { message, .. } => format!("failed: {message}"),
        Outcome::Withheld(by) => format!("held: {by:?}"),
    }
}
