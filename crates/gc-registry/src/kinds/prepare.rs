//! Prepares writes: restricts the fields that a request may set, and sets those of the server, including the generation.

use serde_json::Value;

use super::access::{integer, keep, keep_metadata, keep_own_metadata, put, text};
use super::context::Context;
use super::kind::{Parts, Rules};
use super::{apply_defaults, served};
use crate::kubernetes::KubernetesVersion;
use crate::schema;
use crate::target::Target;

/// Prepares a decoded and defaulted object for its creation: removes fields that the client may not set (status, generation), and
/// sets those of the server (initial phases, finalizers of namespaces, selectors of jobs, addresses of services, the requester of a
/// certificate).
///
/// `metadata.name` and `metadata.uid` must already be set. Objects of kinds without rules are not changed.
pub fn prepare_for_create(target: Target<'_>, object: &mut Value, context: &Context<'_>) {
    let (Some(kind), None) = (served::of(target), target.subresource) else { return };
    let (parts, generation) = (kind.parts, kind.generation);
    if generation.is_counted() {
        put(object, &["metadata", "generation"], 1.into());
    }
    if parts.has_status() {
        (kind.reset_status)(object);
    }
    drop_disabled(kind, target, object);
    (kind.prepare_create)(object, context);
    apply_defaults(target, object);
    (kind.complete_create)(object);
}

/// Drops the fields of disabled features: those of 1.36 by the rules of the kind, those of later versions by a table.
fn drop_disabled(kind: &Rules, target: Target<'_>, object: &mut Value) {
    if let Some(members) = object.as_object_mut() {
        (kind.drop_disabled)(members);
    }
    if KubernetesVersion::chosen() > KubernetesVersion::V1_36 {
        let name = text(object, &["kind"]).to_owned();
        if let Some(schema) = schema::builtin(target.group, target.version, &name) {
            schema::drop_off(&schema, object);
        }
    }
}

/// Prepares a decoded and defaulted object for an update: restores fields that the endpoint may not change from the stored object.
/// The generation is the stored one, plus one if the desired state has changed.
pub fn prepare_for_update(target: Target<'_>, new: &mut Value, old: &Value, context: &Context<'_>) {
    let Some(kind) = served::of(target) else { return };
    let (parts, generation) = (kind.parts, kind.generation);
    keep_metadata(new, old, "generation");
    let is_sent_changed =
        target.subresource.is_none() && generation.counts_sent() && generation.is_raised(new, old);
    drop_disabled(kind, target, new);
    match target.subresource {
        None => {
            if parts.has_status() {
                keep(new, old, "status");
            }
            (kind.prepare_update)(new, old, context);
        }
        Some("status") => {
            keep(new, old, "spec");
            if parts == Parts::StatusOnly {
                keep_metadata(new, old, "deletionTimestamp");
                keep_own_metadata(new, old);
            }
            (kind.prepare_status)(new, old, context);
        }
        Some(name) if kind.subresources.contains(&name) => {
            (kind.prepare_subresource)(name, new, old, context);
        }
        Some(_) => return,
    }
    apply_defaults(target, new);
    if target.subresource != Some("status") && (is_sent_changed || generation.is_raised(new, old)) {
        let generation = integer(old, &["metadata", "generation"]).unwrap_or_default() + 1;
        put(new, &["metadata", "generation"], generation.into());
    }
}
