//! What a create sets by itself.

use serde_json::{Value, json};

use super::{Context, disabled, has_generation, has_status};
use crate::kinds::access::{Members, at, child, fill_absent, flag, items, list, put, remove, text};
use crate::kinds::{apply_defaults, defaults, quantity};
use crate::names;
use crate::resource::Target;

/// Annotation in which a daemon set counts the versions of its template.
pub(super) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Prepares a decoded and defaulted object for its creation: what the client may not set is removed (status,
/// generation), what the server sets comes (initial phases, finalizers of namespaces, selectors of jobs,
/// addresses of services, the requester of a certificate).
///
/// `metadata.name` and `metadata.uid` must be set already. Objects of kinds without rules stay as they are.
pub fn prepare_for_create(target: Target<'_>, object: &mut Value, context: &Context<'_>) {
    if target.subresource.is_some() || crate::kinds::kind::of(target).is_none() {
        return;
    }
    // Where a kind does not count generations, the one that the client sent is kept.
    if has_generation(target) {
        put(object, &["metadata", "generation"], 1.into());
    }
    // A node brings its first status with it, when its kubelet registers it.
    if has_status(target) && (target.group, target.resource) != ("", "nodes") {
        remove(object, &["status"]);
    }
    disabled::drop_fields(target, object);
    match (target.group, target.resource) {
        ("", "pods") => pod(object, context),
        ("", "namespaces") => namespace(object),
        ("", "serviceaccounts") => only_names_of_secrets(object),
        ("", "persistentvolumeclaims") => {
            // Only claims and snapshots are sources in the old sense.
            if at(object, &["spec", "dataSource"]).is_some_and(|source| !is_claim_or_snapshot(source)) {
                remove(object, &["spec", "dataSource"]);
            }
            claim_sources(object);
        }
        ("resource.k8s.io", "resourceslices") => stamp_taints(object, context),
        ("", "persistentvolumes") => {
            put(object, &["status", "lastPhaseTransitionTime"], context.time().into());
        }
        ("apps", "daemonsets") => {
            put(object, &["metadata", "annotations", TEMPLATE_GENERATION], "1".into());
        }
        ("batch", "jobs") => {
            // The job gets the labels of its template with the answer only: a name that is no label is refused before.
            if !names::label_value(text(object, &["metadata", "name"])).is_empty() {
                apply_defaults(target, object);
                job(object);
                return;
            }
            job(object);
        }
        ("certificates.k8s.io", "certificatesigningrequests") => requester(object, context),
        ("apiregistration.k8s.io", "apiservices") => local_api_service(object, context),
        _ => {}
    }
    apply_defaults(target, object);
}

fn pod(object: &mut Value, context: &Context<'_>) {
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

fn is_claim_or_snapshot(source: &Value) -> bool {
    let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default();
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

/// Keeps the two ways to name the source of a claim in step.
pub(super) fn claim_sources(object: &mut Value) {
    if let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) {
        defaults::claim_sources(spec);
    }
}

/// Taints of devices say since when they are there.
pub(super) fn stamp_taints(object: &mut Value, context: &Context<'_>) {
    let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    for device in items(spec, "devices") {
        for taint in items(device, "taints") {
            fill_absent(taint, "timeAdded", context.time());
        }
    }
}

/// A service account names its secrets and says nothing else of them.
pub(super) fn only_names_of_secrets(object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    for secret in items(members, "secrets") {
        secret.retain(|key, _| key == "name");
    }
}

/// The quality of service of a pod: `Guaranteed` when every container has equal requests and limits of CPU and
/// memory, `BestEffort` when none has any, else `Burstable`.
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

fn namespace(object: &mut Value) {
    put(object, &["status"], json!({"phase": "Active"}));
    let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
}

/// Labels the template with the identity of the job, and selects by it, unless the client wants its own selector.
fn job(object: &mut Value) {
    if flag(object, &["spec", "manualSelector"]) == Some(true) {
        return;
    }
    let name = text(object, &["metadata", "name"]).to_owned();
    let uid = text(object, &["metadata", "uid"]).to_owned();
    let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    let labels = child(spec, "template")
        .and_then(|template| child(template, "metadata"))
        .and_then(|metadata| child(metadata, "labels"));
    if let Some(labels) = labels {
        for prefix in ["", "batch.kubernetes.io/"] {
            labels.entry(format!("{prefix}job-name")).or_insert_with(|| name.clone().into());
            labels.entry(format!("{prefix}controller-uid")).or_insert_with(|| uid.clone().into());
        }
    }
    if let Some(labels) = child(spec, "selector").and_then(|selector| child(selector, "matchLabels")) {
        labels.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| uid.into());
    }
}

/// A certificate request says who made it, whatever the client wrote.
fn requester(object: &mut Value, context: &Context<'_>) {
    let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    if !context.user.name.is_empty() {
        spec.insert("username".into(), context.user.name.as_str().into());
    }
    if !context.user.uid.is_empty() {
        spec.insert("uid".into(), context.user.uid.as_str().into());
    }
    if !context.user.groups.is_empty() {
        spec.insert("groups".into(), context.user.groups.clone().into());
    }
    if !context.user.extra.is_empty() {
        let extra: Members =
            context.user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
        spec.insert("extra".into(), Value::Object(extra));
    }
}

/// An API without a service is served by this server itself, and available.
fn local_api_service(object: &mut Value, context: &Context<'_>) {
    if at(object, &["spec", "service"]).is_none() {
        put(
            object,
            &["status"],
            json!({"conditions": [{
                "type": "Available", "status": "True", "reason": "Local",
                "message": "Local APIServices are always available",
                "lastTransitionTime": context.time(),
            }]}),
        );
    }
}

/// Takes a member of the metadata over from the stored object.
pub(super) fn keep_metadata(new: &mut Value, old: &Value, key: &str) {
    let path = ["metadata", key];
    // Not `at`: a stored null stays what it is, and an update that changes nothing writes nothing.
    match old.get("metadata").and_then(|metadata| metadata.get(key)) {
        Some(value) => put(new, &path, value.clone()),
        None => remove(new, &path),
    }
}
