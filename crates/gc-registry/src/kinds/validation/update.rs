//! What an update may not change.

use serde_json::{Value, json};

use super::check;
use super::cluster::namespace_finalizer;
use super::report::Report;
use crate::error::FieldError;
use crate::kinds::access::{Members, at, flag, integer, list, put, remove, text};
use crate::kinds::quantity;
use crate::resource::Target;

const POD_SPEC: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks a prepared update against the stored object.
#[must_use]
pub fn validate_update(target: Target<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    match target.subresource {
        None => {
            // What a finished or half-made object of before looks like is not the updater's fault.
            let skipped = (target.group, target.resource) == ("", "pods") || target.resource == "jobs";
            // The addresses of a slice whose type changed are of the other type: the change alone is told.
            let retyped = target.resource == "endpointslices"
                && text(new, &["addressType"]) != text(old, &["addressType"]);
            if !skipped && !retyped {
                check(target, new, &mut report);
            }
            main(target, new, old, &mut report);
        }
        Some("status") => status(target, new, old, &mut report),
        Some("approval") => check(target, new, &mut report),
        Some("finalize") => {
            for (index, finalizer) in list(new, &["spec", "finalizers"]).iter().enumerate() {
                let name = finalizer.as_str().unwrap_or_default();
                namespace_finalizer(name, &format!("spec.finalizers[{index}]"), &mut report);
            }
        }
        Some(_) => {}
    }
    report.errors
}

fn main(target: Target<'_>, new: &Value, old: &Value, report: &mut Report) {
    match (target.group, target.resource) {
        ("", "pods") => pod(new, old, report),
        ("", "configmaps") => data_is_kept(&["data", "binaryData"], new, old, report),
        ("", "secrets") => {
            report.immutable(new, old, &["type"]);
            data_is_kept(&["data"], new, old, report);
        }
        ("", "services") => service(new, old, report),
        ("", "persistentvolumes") => persistent_volume(new, old, report),
        ("", "persistentvolumeclaims") => claim(new, old, report),
        ("", "nodes") => {
            let path = ["spec", "providerID"];
            if !text(old, &path).is_empty() && text(old, &path) != text(new, &path) {
                report.forbidden(
                    "spec.providerID",
                    "node updates may not change providerID except from \"\" to valid",
                );
            }
        }
        ("", "resourcequotas") => report.immutable(new, old, &["spec", "scopes"]),
        ("apps", "deployments" | "replicasets" | "daemonsets") => {
            report.immutable(new, old, &["spec", "selector"]);
        }
        ("apps", "statefulsets") => stateful_set(new, old, report),
        ("apps", "controllerrevisions") => report.immutable(new, old, &["data"]),
        ("batch", "jobs") => job(target, new, old, report),
        ("discovery.k8s.io", "endpointslices") => report.immutable(new, old, &["addressType"]),
        ("networking.k8s.io", "ingressclasses") => report.immutable(new, old, &["spec", "controller"]),
        ("node.k8s.io", "runtimeclasses") => report.immutable(new, old, &["handler"]),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings")
            if at(new, &["roleRef"]) != at(old, &["roleRef"]) =>
        {
            report.invalid("roleRef", at(new, &["roleRef"]), "cannot change roleRef");
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            if at(new, &["value"]) != at(old, &["value"]) {
                report.forbidden("value", "may not be changed in an update.");
            }
            report.immutable(new, old, &["preemptionPolicy"]);
        }
        ("storage.k8s.io", "storageclasses") => storage_class(new, old, report),
        ("storage.k8s.io", "volumeattachments") => report.immutable(new, old, &["spec"]),
        ("storage.k8s.io", "volumeattributesclasses") => {
            for key in ["driverName", "parameters"] {
                if at(new, &[key]) != at(old, &[key]) {
                    report.forbidden(key, &format!("updates to {key} are forbidden."));
                }
            }
        }
        ("storage.k8s.io", "csistoragecapacities") => {
            for key in ["nodeTopology", "storageClassName"] {
                report.immutable(new, old, &[key]);
            }
        }
        ("certificates.k8s.io", "certificatesigningrequests") => request_conditions(target, new, old, report),
        _ => {}
    }
}

/// Data of an object that its author has sealed.
fn data_is_kept(keys: &[&str], new: &Value, old: &Value, report: &mut Report) {
    if flag(old, &["immutable"]) != Some(true) {
        return;
    }
    if flag(new, &["immutable"]) != Some(true) {
        report.forbidden("immutable", "field is immutable when `immutable` is set");
    }
    for key in keys {
        if at(new, &[key]) != at(old, &[key]) {
            report.forbidden(key, "field is immutable when `immutable` is set");
        }
    }
}

/// A pod runs what it was made with, but for a few fields.
fn pod(new: &Value, old: &Value, report: &mut Report) {
    for key in ["containers", "initContainers"] {
        let (ours, theirs) = (list(new, &["spec", key]), list(old, &["spec", key]));
        if ours.len() != theirs.len() {
            report.forbidden(&format!("spec.{key}"), "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in ours.iter().enumerate() {
            let image = text(container, &["image"]);
            if image.is_empty() {
                report.required(&format!("spec.{key}[{index}].image"), "");
            }
        }
    }
    active_deadline(new, old, report);
    tolerations(new, old, report);
    let mut munged = new.clone();
    for key in ["containers", "initContainers"] {
        let images: Vec<Option<Value>> =
            list(old, &["spec", key]).iter().map(|container| container.get("image").cloned()).collect();
        let Some(containers) = munged.pointer_mut(&format!("/spec/{key}")).and_then(Value::as_array_mut)
        else {
            continue;
        };
        for (container, image) in containers.iter_mut().filter_map(Value::as_object_mut).zip(images) {
            restore(container, "image", image);
        }
    }
    for key in ["activeDeadlineSeconds", "tolerations"] {
        keep_spec(&mut munged, old, key);
    }
    let grace = ["spec", "terminationGracePeriodSeconds"];
    if integer(old, &grace).is_some_and(|seconds| seconds < 0) && integer(new, &grace) == Some(1) {
        keep_spec(&mut munged, old, "terminationGracePeriodSeconds");
    }
    if gates_were_lifted(new, old) {
        keep_spec(&mut munged, old, "schedulingGates");
        // While it waits to be scheduled, a pod's selector and affinity may be narrowed.
        for key in ["nodeSelector", "affinity"] {
            keep_spec(&mut munged, old, key);
        }
    }
    if munged.get("spec") != old.get("spec") {
        report.forbidden("spec", POD_SPEC);
    }
}

fn restore(members: &mut Members, key: &str, value: Option<Value>) {
    match value {
        Some(value) => members.insert(key.into(), value),
        None => members.remove(key),
    };
}

fn keep_spec(object: &mut Value, old: &Value, key: &str) {
    match at(old, &["spec", key]) {
        Some(value) => put(object, &["spec", key], value.clone()),
        None => remove(object, &["spec", key]),
    }
}

/// Whether the pod is gated, and no gate was added.
fn gates_were_lifted(new: &Value, old: &Value) -> bool {
    let path = ["spec", "schedulingGates"];
    let before = list(old, &path);
    !before.is_empty() && list(new, &path).iter().all(|gate| before.contains(gate))
}

/// The deadline of a pod may come, and may get nearer.
fn active_deadline(new: &Value, old: &Value, report: &mut Report) {
    let path = ["spec", "activeDeadlineSeconds"];
    let field = "spec.activeDeadlineSeconds";
    match (at(new, &path), integer(old, &path)) {
        (Some(value), before) => {
            let seconds = value.as_i64().unwrap_or_default();
            if !(0..=i64::from(i32::MAX)).contains(&seconds) {
                report.invalid(field, Some(value), "must be between 0 and 2147483647, inclusive");
            } else if before.is_some_and(|before| before < seconds) {
                let why = "must be less than or equal to previous value";
                report.invalid(field, Some(value), why);
            }
        }
        (None, Some(_)) => {
            report.invalid(field, None, "must not update from a positive integer to nil value");
        }
        (None, None) => {}
    }
}

fn tolerations(new: &Value, old: &Value, report: &mut Report) {
    let path = ["spec", "tolerations"];
    let ours = list(new, &path);
    for before in list(old, &path) {
        let without_time = |toleration: &Value| {
            let mut toleration = toleration.clone();
            remove(&mut toleration, &["tolerationSeconds"]);
            toleration
        };
        if !ours.iter().any(|toleration| without_time(toleration) == without_time(before)) {
            report.forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            );
            return;
        }
    }
}

fn service(new: &Value, old: &Value, report: &mut Report) {
    let was_addressed = text(old, &["spec", "type"]) != "ExternalName";
    let is_addressed = text(new, &["spec", "type"]) != "ExternalName";
    let before = text(old, &["spec", "clusterIP"]);
    let after = text(new, &["spec", "clusterIP"]);
    if was_addressed && is_addressed && !before.is_empty() && before != after {
        report.invalid(
            "spec.clusterIPs[0]",
            at(new, &["spec", "clusterIPs"]).or(Some(&json!([]))),
            "may not change once set",
        );
    }
}

fn persistent_volume(new: &Value, old: &Value, report: &mut Report) {
    // What may change of a volume: everything that does not say what it is.
    const FREE: [&str; 9] = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    let source = |object: &Value| -> Members {
        let spec = at(object, &["spec"]).and_then(Value::as_object).cloned().unwrap_or_default();
        spec.into_iter().filter(|(key, _)| !FREE.contains(&key.as_str())).collect()
    };
    if source(new) != source(old) {
        report.forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        );
    }
    report.immutable(new, old, &["spec", "volumeMode"]);
    if at(old, &["spec", "nodeAffinity"]).is_some() {
        report.immutable(new, old, &["spec", "nodeAffinity"]);
    }
}

fn claim(new: &Value, old: &Value, report: &mut Report) {
    let storage = ["spec", "resources", "requests", "storage"];
    let bound = text(old, &["status", "phase"]) == "Bound";
    let mut ours = new.get("spec").cloned().unwrap_or_else(|| json!({}));
    let theirs = old.get("spec").cloned().unwrap_or_else(|| json!({}));
    let size = |object: &Value| at(object, &storage).and_then(quantity::of).and_then(Result::ok);
    if let (Some(before), Some(after)) = (size(old), size(new)) {
        if before.exceeds(after) {
            report.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity");
        } else if bound && let Some(value) = at(&theirs, &storage[1..]) {
            put(&mut ours, &storage[1..], value.clone());
        }
    }
    // The binder writes the volume's name once; a class may come late.
    if text(&theirs, &["volumeName"]).is_empty() {
        remove(&mut ours, &["volumeName"]);
    }
    for key in ["storageClassName", "volumeAttributesClassName"] {
        if at(&theirs, &[key]).is_none() || (key == "volumeAttributesClassName" && bound) {
            remove(&mut ours, &[key]);
            if key == "volumeAttributesClassName"
                && let Some(value) = at(&theirs, &[key])
            {
                put(&mut ours, &[key], value.clone());
            }
        }
    }
    if ours != theirs {
        report.forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        );
    }
}

fn stateful_set(new: &Value, old: &Value, report: &mut Report) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let sealed = |object: &Value| -> Members {
        let spec = at(object, &["spec"]).and_then(Value::as_object).cloned().unwrap_or_default();
        spec.into_iter().filter(|(key, _)| !FREE.contains(&key.as_str())).collect()
    };
    if sealed(new) != sealed(old) {
        report.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
             'minReadySeconds' are forbidden",
        );
    }
}

/// A job's pods, their number (unless indexed) and its selector are settled when it is made.
fn job(target: Target<'_>, new: &Value, old: &Value, report: &mut Report) {
    // A job that was stored without what is demanded today may still be finished and deleted.
    let mut before = Report::default();
    check(target, old, &mut before);
    if before.errors.is_empty() {
        check(target, new, report);
    }
    let suspended = flag(old, &["spec", "suspend"]) == Some(true);
    let started = at(old, &["status", "startTime"]).is_some();
    let completions = ["spec", "completions"];
    if at(new, &completions) != at(old, &completions) {
        let indexed = text(new, &["spec", "completionMode"]) == "Indexed";
        let elastic = integer(new, &completions) == integer(new, &["spec", "parallelism"]);
        if !(indexed && elastic) {
            let why = if indexed {
                "fields completions and parallelism must be equal and cannot be changed separately"
            } else {
                "field is immutable"
            };
            report.invalid("spec.completions", at(new, &completions), why);
        }
    }
    for key in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        report.immutable(new, old, &["spec", key]);
    }
    let template = ["spec", "template"];
    let mut ours = at(new, &template).cloned().unwrap_or_else(|| json!({}));
    let theirs = at(old, &template).cloned().unwrap_or_else(|| json!({}));
    if suspended && !started {
        // Queueing controllers place a job before they let it start.
        for path in [
            &["spec", "nodeSelector"][..],
            &["spec", "affinity"],
            &["spec", "tolerations"],
            &["spec", "schedulingGates"],
            &["metadata", "labels"],
            &["metadata", "annotations"],
        ] {
            match at(&theirs, path) {
                Some(value) => put(&mut ours, path, value.clone()),
                None => remove(&mut ours, path),
            }
        }
    }
    if ours != theirs {
        report.invalid("spec.template", at(new, &template), "field is immutable");
    }
}

fn storage_class(new: &Value, old: &Value, report: &mut Report) {
    if at(new, &["parameters"]) != at(old, &["parameters"]) {
        report.forbidden("parameters", "updates to parameters are forbidden.");
    }
    if text(new, &["provisioner"]) != text(old, &["provisioner"]) {
        report.forbidden("provisioner", "updates to provisioner are forbidden.");
    }
    if text(new, &["reclaimPolicy"]) != text(old, &["reclaimPolicy"]) {
        report.forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden.");
    }
    report.immutable(new, old, &["volumeBindingMode"]);
}

/// Decisions about a certificate request are not taken back.
fn request_conditions(target: Target<'_>, new: &Value, old: &Value, report: &mut Report) {
    let path = ["status", "conditions"];
    for kind in ["Approved", "Denied", "Failed"] {
        let count = |object: &Value| {
            list(object, &path).iter().filter(|condition| text(condition, &["type"]) == kind).count()
        };
        if target.subresource == Some("status") && count(new) < count(old) {
            report.forbidden(
                "status.conditions",
                &format!("updates may not remove a condition of type \"{kind}\""),
            );
        }
    }
}

fn status(target: Target<'_>, new: &Value, old: &Value, report: &mut Report) {
    match (target.group, target.resource) {
        ("", "namespaces") => {
            let deleting = at(new, &["metadata", "deletionTimestamp"]).is_some();
            let phase = text(new, &["status", "phase"]);
            if deleting && phase != "Terminating" {
                report.invalid(
                    "status.Phase",
                    at(new, &["status", "phase"]),
                    "may only be 'Terminating' if `deletionTimestamp` is not empty",
                );
            } else if !deleting && phase != "Active" {
                report.invalid(
                    "status.Phase",
                    at(new, &["status", "phase"]),
                    "may only be 'Active' if `deletionTimestamp` is empty",
                );
            }
        }
        ("", "pods") => pod_status(new, old, report),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            check(target, new, report);
            request_conditions(target, new, old, report);
            let path = ["status", "certificate"];
            if at(old, &path).is_some() {
                report.immutable(new, old, &path);
            }
        }
        ("batch", "jobs") => job_status(new, old, report),
        ("apps", "deployments" | "replicasets" | "statefulsets") | ("", "replicationcontrollers") => {
            for key in
                ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "observedGeneration"]
            {
                report.not_negative(new, &["status", key], &format!("status.{key}"));
            }
            let replicas = integer(new, &["status", "replicas"]).unwrap_or_default();
            for key in ["readyReplicas", "availableReplicas"] {
                let value = at(new, &["status", key]);
                if value.and_then(Value::as_i64).is_some_and(|value| value > replicas) {
                    report.invalid(&format!("status.{key}"), value, "cannot be greater than status.replicas");
                }
            }
        }
        ("policy", "poddisruptionbudgets") => {
            for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                report.not_negative(new, &["status", key], &format!("status.{key}"));
            }
        }
        _ => {}
    }
}

fn pod_status(new: &Value, old: &Value, report: &mut Report) {
    let quality = ["status", "qosClass"];
    if !text(old, &quality).is_empty() {
        report.immutable(new, old, &quality);
    }
    let nominated = text(new, &["status", "nominatedNodeName"]);
    if !nominated.is_empty() {
        report.each("status.nominatedNodeName", nominated, super::names::subdomain(nominated));
    }
    // A container that is never restarted does not come back from its end.
    if text(new, &["spec", "restartPolicy"]) == "Always" {
        return;
    }
    for (before_index, before) in list(old, &["status", "containerStatuses"]).iter().enumerate() {
        let Some(terminated) = at(before, &["state", "terminated"]) else { continue };
        if text(new, &["spec", "restartPolicy"]) == "OnFailure"
            && integer(terminated, &["exitCode"]).unwrap_or_default() != 0
        {
            continue;
        }
        let after = list(new, &["status", "containerStatuses"])
            .iter()
            .find(|after| text(after, &["name"]) == text(before, &["name"]));
        if after.is_some_and(|after| at(after, &["state", "terminated"]).is_none()) {
            report.forbidden(
                &format!("status.containerStatuses[{before_index}].state"),
                "may not be transitioned to non-terminated state",
            );
        }
    }
}

fn job_status(new: &Value, old: &Value, report: &mut Report) {
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        report.not_negative(new, &["status", key], &format!("status.{key}"));
    }
    let is = |object: &Value, kind: &str| {
        list(object, &["status", "conditions"])
            .iter()
            .any(|condition| text(condition, &["type"]) == kind && text(condition, &["status"]) == "True")
    };
    let conditions = at(new, &["status", "conditions"]);
    if is(new, "Complete") && is(new, "Failed") {
        report.invalid(
            "status.conditions",
            conditions,
            "cannot set Complete=True and Failed=true conditions",
        );
    }
    for kind in ["Complete", "Failed"] {
        if is(old, kind) && !is(new, kind) {
            report.invalid(
                "status.conditions",
                conditions,
                &format!("cannot disable the terminal {kind}=True condition"),
            );
        }
    }
}
