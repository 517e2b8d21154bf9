//! Defaults of pod templates and volumes, and of the kinds that contain them.

use serde_json::json;

use crate::kinds::access::{child, existing, fill, fill_absent, fill_zero, is_unset, items};
use crate::kinds::prelude::*;

/// Mode of files from the API: 0644.
const FILE_MODE: i64 = 420;

/// Grace period of a pod.
pub(crate) const GRACE: &str = "terminationGracePeriodSeconds";

/// Sets the defaults of the pod template in member `key`.
pub(crate) fn template(members: &mut Members, key: &str) {
    let Some(template) = child(members, key) else { return };
    child(template, "metadata");
    if let Some(spec) = child(template, "spec") {
        pod_spec(spec);
    }
}

pub(crate) fn pod_spec(spec: &mut Members) {
    fill(spec, "restartPolicy", "Always");
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "schedulerName", "default-scheduler");
    fill_absent(spec, GRACE, 30);
    child(spec, "securityContext");
    // The older name of the field is kept in step.
    let account = spec
        .get("serviceAccountName")
        .or_else(|| spec.get("serviceAccount"))
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .map(str::to_owned);
    if let Some(account) = account {
        spec.insert("serviceAccountName".into(), account.clone().into());
        spec.insert("serviceAccount".into(), account.into());
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, key).for_each(container);
    }
    items(spec, "volumes").for_each(volume);
}

fn container(container: &mut Members) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = pull_policy(image);
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    child(container, "resources");
    for port in items(container, "ports") {
        fill(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        if let Some(source) = existing(variable, "valueFrom") {
            if let Some(field) = existing(source, "fieldRef") {
                fill(field, "apiVersion", "v1");
            }
            if let Some(field) = existing(source, "resourceFieldRef") {
                fill(field, "divisor", "0");
            }
            if let Some(file) = existing(source, "fileKeyRef") {
                fill_absent(file, "optional", false);
            }
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing(container, key) {
            for (key, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                fill_zero(probe, key, value);
            }
            handler(probe);
        }
    }
    if let Some(lifecycle) = existing(container, "lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(hook) = existing(lifecycle, key) {
                handler(hook);
            }
        }
    }
}

fn handler(handler: &mut Members) {
    if let Some(get) = existing(handler, "httpGet") {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    }
    if let Some(grpc) = existing(handler, "grpc") {
        fill_absent(grpc, "service", "");
    }
}

/// Returns `Always` for images without a tag or digest and for `:latest`, otherwise `IfNotPresent`.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let slash = name.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match name[slash..].split_once(':') {
        Some((last, tag)) => (&name[..slash + last.len()], Some(tag)),
        None => (name, None),
    };
    match (tag, digest) {
        (Some("latest"), _) | (None, None) if is_image_name(name) => "Always",
        _ => "IfNotPresent",
    }
}

/// Reports whether a text names an image repository: a host, if the first part looks like one, followed by lower-case parts.
fn is_image_name(name: &str) -> bool {
    /// Includes the host and the folder that are added to a short name.
    const MAX_BYTES: usize = 255;
    let host = name.split_once('/').filter(|(first, _)| {
        first.contains(['.', ':']) || *first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase())
    });
    let (full, path) = match host {
        Some((_, path)) => (name.len(), path),
        None if name.contains('/') => (name.len() + "docker.io/".len(), name),
        None => (name.len() + "docker.io/library/".len(), name),
    };
    let is_host = host.is_none_or(|(host, _)| {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b))
    });
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    // Words separated by a dot, one or two underscores, or dashes.
    let is_part = |part: &str| {
        part.bytes().next().is_some_and(is_word)
            && part.bytes().next_back().is_some_and(is_word)
            && part.bytes().all(|b| is_word(b) || b"._-".contains(&b))
            && part
                .split(|c: char| c.is_ascii_alphanumeric())
                .all(|between| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-'))
    };
    full <= MAX_BYTES && is_host && path.split('/').all(is_part)
}

fn volume(volume: &mut Members) {
    // A volume without a source is an empty directory.
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for key in ["secret", "configMap"] {
        if let Some(source) = existing(volume, key) {
            fill_absent(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(source) = existing(volume, "downwardAPI") {
        fill_absent(source, "defaultMode", FILE_MODE);
        downward_items(source);
    }
    if let Some(projected) = existing(volume, "projected") {
        fill_absent(projected, "defaultMode", FILE_MODE);
        for source in items(projected, "sources") {
            if let Some(token) = existing(source, "serviceAccountToken") {
                fill_absent(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = existing(source, "downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(path) = existing(volume, "hostPath") {
        fill_absent(path, "type", "");
    }
    network_volume(volume);
    if let Some(image) = existing(volume, "image") {
        let policy = pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        fill(image, "pullPolicy", policy);
    }
    if let Some(template) =
        existing(volume, "ephemeral").and_then(|source| existing(source, "volumeClaimTemplate"))
    {
        child(template, "metadata");
        if let Some(spec) = child(template, "spec") {
            claim_spec(spec);
        }
    }
}

/// Sets the defaults of the sources that pods and persistent volumes share.
pub(crate) fn network_volume(volume: &mut Members) {
    let defaults: [(&str, &[(&str, &str)]); 4] = [
        ("iscsi", &[("iscsiInterface", "default")]),
        ("rbd", &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")]),
        ("azureDisk", &[("cachingMode", "ReadWrite"), ("kind", "Shared"), ("fsType", "ext4")]),
        ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
    ];
    for (key, fields) in defaults {
        if let Some(source) = existing(volume, key) {
            for (field, value) in fields {
                // These are pointers, whose empty text is a value.
                if key == "azureDisk" {
                    fill_absent(source, field, *value);
                } else {
                    fill(source, field, *value);
                }
            }
            if key == "azureDisk" {
                fill_absent(source, "readOnly", false);
            }
        }
    }
}

fn downward_items(source: &mut Members) {
    for item in items(source, "items") {
        if let Some(field) = existing(item, "fieldRef") {
            fill(field, "apiVersion", "v1");
        }
        if let Some(field) = existing(item, "resourceFieldRef") {
            fill(field, "divisor", "0");
        }
    }
}

/// Sets the defaults of a volume claim's spec, standalone or in a template.
pub(crate) fn claim_spec(spec: &mut Members) {
    fill_absent(spec, "volumeMode", "Filesystem");
    child(spec, "resources");
}

/// Keeps the two fields for the source of a volume claim in step.
pub(crate) fn claim_sources(spec: &mut Members) {
    // The older field is copied to the newer one.
    if !is_unset(spec, "dataSource") && spec.get("dataSourceRef").is_none() {
        if let Some(source) = spec.get("dataSource").cloned() {
            spec.insert("dataSourceRef".into(), source);
        }
    } else if let Some(source) = spec.get("dataSourceRef").cloned()
        && spec.get("dataSource").is_none()
        && source.get("namespace").is_none()
    {
        spec.insert("dataSource".into(), source);
    }
}

/// Returns the labels of the template in the spec, if it has any.
pub(crate) fn labels_of_template(members: &Members) -> Option<Value> {
    let template = members.get("spec")?.get("template")?;
    template.get("metadata")?.get("labels").filter(|labels| labels.is_object()).cloned()
}

/// Sets the labels of an object without labels to those of its template.
pub(crate) fn inherit_labels(members: &mut Members, labels: Option<Value>) {
    if let Some(labels) = labels
        && let Some(metadata) = child(members, "metadata")
    {
        fill_absent(metadata, "labels", labels);
    }
}

/// Sets a rolling update as the default strategy, with these parameters.
pub(crate) fn rolling(spec: &mut Members, key: &str, parameters: &[(&str, Value)]) {
    let Some(strategy) = child(spec, key) else { return };
    fill(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
        && let Some(update) = child(strategy, "rollingUpdate")
    {
        for (key, value) in parameters {
            fill_absent(update, key, value.clone());
        }
    }
}

/// Sets the status of conditions in a failure policy to true, unless another is given.
pub(crate) fn failure_policy(job_spec: &mut Members) {
    let Some(policy) = existing(job_spec, "podFailurePolicy") else { return };
    for rule in items(policy, "rules") {
        for pattern in items(rule, "onPodConditions") {
            fill(pattern, "status", "True");
        }
    }
}

/// Drops a selector that is an empty map of labels.
pub(crate) fn drop_empty_selector(spec: &mut Members) {
    if spec.get("selector").and_then(Value::as_object).is_some_and(Members::is_empty) {
        spec.remove("selector");
    }
}
