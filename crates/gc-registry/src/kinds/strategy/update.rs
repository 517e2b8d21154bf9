//! What an update may touch.

use serde_json::{Value, json};

use super::create::{TEMPLATE_GENERATION, claim_sources, keep_metadata, only_names_of_secrets, stamp_taints};
use super::{Context, disabled, has_generation, has_status, service};
use crate::kinds::access::{at, integer, keep, list, put, remove, text};
use crate::kinds::apply_defaults;
use crate::resource::Target;

/// Prepares a decoded and defaulted object for an update: what the endpoint may not change is taken from the
/// stored object, and the generation is the stored one, plus one if what is wanted has changed.
pub fn prepare_for_update(target: Target<'_>, new: &mut Value, old: &Value, context: &Context<'_>) {
    if crate::kinds::kind::of(target).is_none() {
        return;
    }
    keep_metadata(new, old, "generation");
    // These kinds count what the client wrote, even where it is dropped afterwards.
    let counts_dropped = matches!(target.resource, "endpointslices" | "resourceslices");
    let is_dropped_wanted =
        counts_dropped && target.subresource.is_none() && is_wanted_changed(target, new, old);
    disabled::drop_fields(target, new);
    match target.subresource {
        None => main(target, new, old, context),
        Some("status") => status(target, new, old, context),
        Some("finalize") => keep(new, old, "status"),
        Some("approval") => approval(new, old, context),
        Some("ephemeralcontainers") => ephemeral_containers(new, old),
        Some("resize") => resize(new, old),
        Some(_) => return,
    }
    apply_defaults(target, new);
    let is_changed = is_dropped_wanted || is_wanted_changed(target, new, old);
    if target.subresource != Some("status") && has_generation(target) && is_changed {
        let generation = integer(old, &["metadata", "generation"]).unwrap_or_default() + 1;
        put(new, &["metadata", "generation"], generation.into());
    }
}

fn main(target: Target<'_>, new: &mut Value, old: &Value, context: &Context<'_>) {
    if has_status(target) {
        keep(new, old, "status");
    }
    match (target.group, target.resource) {
        ("", "namespaces") => match at(old, &["spec", "finalizers"]) {
            Some(finalizers) => put(new, &["spec", "finalizers"], finalizers.clone()),
            None => remove(new, &["spec", "finalizers"]),
        },
        ("", "serviceaccounts") => only_names_of_secrets(new),
        ("", "persistentvolumeclaims") => claim_sources(new),
        ("resource.k8s.io", "resourceslices") => stamp_taints(new, context),
        ("", "services") => service::drop_dependent(new, old),
        ("storage.k8s.io", "csidrivers") => csi_driver_generation(new, old),
        ("", "secrets") if text(new, &["type"]).is_empty() => keep(new, old, "type"),
        ("apps", "daemonsets") => {
            let path = ["metadata", "annotations", TEMPLATE_GENERATION];
            let mut generation = text(old, &path).parse::<i64>().unwrap_or_default();
            if at(new, &["spec", "template"]) != at(old, &["spec", "template"]) {
                generation += 1;
            }
            put(new, &path, generation.to_string().into());
        }
        ("certificates.k8s.io", "certificatesigningrequests") => keep(new, old, "spec"),
        _ => {}
    }
}

/// A driver counts the changes of its spec; at first it has no generation.
fn csi_driver_generation(new: &mut Value, old: &Value) {
    if new.get("spec") != old.get("spec") {
        let generation = integer(old, &["metadata", "generation"]).unwrap_or_default() + 1;
        put(new, &["metadata", "generation"], generation.into());
    }
}

fn status(target: Target<'_>, new: &mut Value, old: &Value, context: &Context<'_>) {
    match (target.group, target.resource) {
        ("", "pods") => {
            keep(new, old, "spec");
            // Old kubelets send owners and the mark of deletion back as they last saw them.
            for key in ["ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                keep_metadata(new, old, key);
            }
            remove(new, &["status", "nodeAllocatableResourceClaimStatuses"]);
            if text(new, &["status", "qosClass"]).is_empty()
                && let Some(class) = at(old, &["status", "qosClass"])
            {
                put(new, &["status", "qosClass"], class.clone());
            }
        }
        ("", "persistentvolumes") => {
            keep(new, old, "spec");
            let phase = ["status", "phase"];
            let time = ["status", "lastPhaseTransitionTime"];
            let (stamped, before) = (at(new, &time), at(old, &time));
            if text(new, &phase) != text(old, &phase) && (stamped.is_none() || stamped == before) {
                put(new, &time, context.time().into());
            } else if let (None, Some(before)) = (stamped, before) {
                put(new, &time, before.clone());
            }
        }
        ("apps", "deployments") => {
            keep(new, old, "spec");
            keep_metadata(new, old, "labels");
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            keep(new, old, "spec");
            stamp_conditions(new, old, context);
        }
        (
            "storage.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "admissionregistration.k8s.io"
            | "resource.k8s.io",
            _,
        )
        | ("networking.k8s.io", "servicecidrs") => {
            keep(new, old, "spec");
            keep_for_status(new, old);
        }
        ("apiregistration.k8s.io", "apiservices") => {
            keep(new, old, "spec");
            keep_own_metadata(new, old);
        }
        _ => keep(new, old, "spec"),
    }
}

/// The newer status endpoints change no metadata but managed fields.
fn keep_for_status(new: &mut Value, old: &Value) {
    for key in ["deletionTimestamp", "generation"] {
        keep_metadata(new, old, key);
    }
    keep_own_metadata(new, old);
}

fn approval(new: &mut Value, old: &Value, context: &Context<'_>) {
    keep(new, old, "spec");
    let conditions = at(new, &["status", "conditions"]).cloned();
    keep(new, old, "status");
    let path = ["status", "conditions"];
    match conditions {
        Some(conditions) => put(new, &path, conditions),
        None => remove(new, &path),
    }
    stamp_conditions(new, old, context);
}

/// Conditions that came or changed get the time of the request.
fn stamp_conditions(new: &mut Value, old: &Value, context: &Context<'_>) {
    let before = list(old, &["status", "conditions"]).to_vec();
    let Some(conditions) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return;
    };
    for condition in conditions.iter_mut().filter(|condition| condition.is_object()) {
        let kind = text(condition, &["type"]).to_owned();
        let same = before.iter().find(|old| text(old, &["type"]) == kind);
        for key in ["lastUpdateTime", "lastTransitionTime"] {
            if at(condition, &[key]).is_none() {
                let unchanged = same.filter(|old| text(old, &["status"]) == text(condition, &["status"]));
                let time = unchanged.and_then(|old| at(old, &[key])).cloned();
                condition[key] = time.unwrap_or_else(|| context.time().into());
            }
        }
    }
}

fn ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = at(new, &["spec", "ephemeralContainers"]).cloned();
    keep(new, old, "spec");
    keep(new, old, "status");
    keep_own_metadata(new, old);
    match containers {
        Some(containers) => put(new, &["spec", "ephemeralContainers"], containers),
        None => remove(new, &["spec", "ephemeralContainers"]),
    }
}

/// Metadata that these subresources do not change.
fn keep_own_metadata(new: &mut Value, old: &Value) {
    for key in ["labels", "annotations", "ownerReferences", "finalizers"] {
        keep_metadata(new, old, key);
    }
}

/// Only the resources of the pod and its containers change, and how they may be changed.
fn resize(new: &mut Value, old: &Value) {
    let wanted = new.get("spec").cloned().unwrap_or_else(|| json!({}));
    keep(new, old, "spec");
    keep(new, old, "status");
    keep_own_metadata(new, old);
    match at(&wanted, &["resources"]) {
        Some(resources) => put(new, &["spec", "resources"], resources.clone()),
        None => remove(new, &["spec", "resources"]),
    }
    for key in ["containers", "initContainers"] {
        let Some(containers) = new.pointer_mut(&format!("/spec/{key}")).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in containers {
            let name = text(container, &["name"]).to_owned();
            let from = list(&wanted, &[key]).iter().find(|from| text(from, &["name"]) == name);
            if let Some(from) = from {
                keep(container, from, "resources");
                keep(container, from, "resizePolicy");
            }
        }
    }
}

/// Whether what the generation counts has changed.
fn is_wanted_changed(target: Target<'_>, new: &Value, old: &Value) -> bool {
    let differs = |path: &[&str]| at(new, path) != at(old, path);
    match (target.group, target.resource) {
        ("apps", "deployments") => differs(&["spec"]) || differs(&["metadata", "annotations"]),
        ("", "podtemplates") => differs(&["template"]),
        ("discovery.k8s.io", "endpointslices") => {
            differs(&["metadata", "labels"])
                || ["addressType", "endpoints", "ports"].iter().any(|key| differs(&[key]))
        }
        ("scheduling.k8s.io", "priorityclasses") => false,
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations",
        ) => differs(&["webhooks"]),
        _ => differs(&["spec"]),
    }
}
