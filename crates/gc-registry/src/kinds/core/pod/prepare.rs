//! Fields of pods that creates and updates may change.

use crate::kinds::prelude::*;
use crate::metadata::quantity;

/// Initializes the status of a new pod: pending, with its class, and possibly waiting for gates.
pub(super) fn create(object: &mut Value, context: &Context<'_>) {
    let class = quality_of_service(object);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !list(object, &["spec", "schedulingGates"]).is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": context.time(),
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    put(object, &["status"], status);
}

/// Returns the quality of service of a pod: `Guaranteed` if every container has equal requests and limits of CPU and memory,
/// `BestEffort` if none has any, otherwise `Burstable`.
pub(crate) fn quality_of_service(pod: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let read = |resources: Option<&Value>, kind: &str, name: &str| {
        let value = resources?.get(kind)?.get(name)?;
        quantity::of(value)?.ok().filter(|quantity| !quantity.is_zero() && !quantity.is_negative())
    };
    let containers: Vec<Option<&Value>> = match at(pod, &["spec", "resources"]) {
        Some(whole) => vec![Some(whole)],
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|key| list(pod, &["spec", key]))
            .map(|container| container.get("resources"))
            .collect(),
    };
    let mut any = false;
    let mut guaranteed = !containers.is_empty();
    for resources in containers {
        for name in COUNTED {
            let request = read(resources, "requests", name);
            let limit = read(resources, "limits", name);
            any |= request.is_some() || limit.is_some();
            guaranteed &= match (request, limit) {
                (Some(request), Some(limit)) => !request.exceeds(limit) && !limit.exceeds(request),
                (None, limit) => limit.is_some(),
                (Some(_), None) => false,
            };
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Prepares a status update, as sent by a kubelet.
pub(super) fn status(new: &mut Value, old: &Value) {
    // Old kubelets send back owners and the deletion mark as they last saw them.
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

pub(super) fn ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = at(new, &["spec", "ephemeralContainers"]).cloned();
    keep(new, old, "spec");
    keep(new, old, "status");
    keep_own_metadata(new, old);
    match containers {
        Some(containers) => put(new, &["spec", "ephemeralContainers"], containers),
        None => remove(new, &["spec", "ephemeralContainers"]),
    }
}

/// Restores everything except the resources of the pod and its containers, and their resize policies. Containers that have been
/// replaced stay, so that validation refuses them.
pub(super) fn resize(new: &mut Value, old: &Value) {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let wanted = new.get("spec").cloned().unwrap_or_else(|| json!({}));
    if LISTS.iter().any(|key| list(&wanted, &[key]).len() != list(old, &["spec", key]).len()) {
        return;
    }
    keep(new, old, "spec");
    keep(new, old, "status");
    keep_own_metadata(new, old);
    match at(&wanted, &["resources"]) {
        Some(resources) => put(new, &["spec", "resources"], resources.clone()),
        None => remove(new, &["spec", "resources"]),
    }
    for key in LISTS {
        let wanted = list(&wanted, &[key]);
        let Some(containers) = new.pointer_mut(&format!("/spec/{key}")).and_then(Value::as_array_mut) else {
            continue;
        };
        let is_other = |(ours, from): (&Value, &Value)| text(ours, &["name"]) != text(from, &["name"]);
        if containers.iter().zip(wanted).any(is_other) {
            *containers = wanted.to_vec();
            continue;
        }
        for (container, from) in containers.iter_mut().zip(wanted) {
            keep(container, from, "resources");
            keep(container, from, "resizePolicy");
        }
    }
}

/// Drops the statuses of image volumes.
pub(super) fn drop_volume_statuses(members: &mut Members) {
    let Some(status) = existing(members, "status") else { return };
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in items(status, list) {
            for mount in items(container, "volumeMounts") {
                mount.remove("volumeStatus");
            }
        }
    }
}
