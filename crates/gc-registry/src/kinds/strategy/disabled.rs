//! Fields of features that are off by default: a create or an update drops them.

use serde_json::Value;

use crate::kinds::access::{Members, existing, items};
use crate::resource::Target;

/// Drops what no feature that is on reads.
pub(super) fn drop_fields(target: Target<'_>, object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    if let Some(path) = pod_spec_path(target) {
        if let Some(spec) = within(members, path) {
            pod_spec(spec);
        }
        match (target.group, target.resource) {
            ("", "pods") => volume_statuses(members),
            ("apps", "statefulsets") => {
                if let Some(update) = within(members, &["spec", "updateStrategy", "rollingUpdate"]) {
                    update.remove("maxUnavailable");
                }
            }
            _ => {}
        }
        return;
    }
    match (target.group, target.resource) {
        ("coordination.k8s.io", "leases") => drop_from(members, "spec", &["strategy", "preferredHolder"]),
        ("discovery.k8s.io", "endpointslices") => {
            for endpoint in items(members, "endpoints") {
                endpoint.remove("deprecatedTopology");
            }
        }
        ("resource.k8s.io", "resourceslices") => {
            if let Some(spec) = existing(members, "spec") {
                for device in items(spec, "devices") {
                    device.remove("nodeAllocatableResourceMappings");
                }
            }
        }
        ("storage.k8s.io", "csidrivers") => drop_from(members, "spec", &["preventPodSchedulingIfMissing"]),
        ("", "nodes") => {
            drop_from(members, "spec", &["configSource"]);
            drop_from(members, "status", &["config"]);
        }
        ("", "persistentvolumeclaims") => {
            // A source in another namespace.
            if let Some(spec) = existing(members, "spec")
                && spec.get("dataSourceRef").and_then(|source| source.get("namespace")).is_some_and(is_text)
            {
                spec.remove("dataSourceRef");
            }
        }
        _ => {}
    }
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn drop_from(members: &mut Members, key: &str, names: &[&str]) {
    if let Some(inner) = existing(members, key) {
        for name in names {
            inner.remove(*name);
        }
    }
}

/// Where a kind has the spec of a pod.
fn pod_spec_path(target: Target<'_>) -> Option<&'static [&'static str]> {
    Some(match (target.group, target.resource) {
        ("", "pods") => &["spec"],
        ("", "podtemplates") => &["template", "spec"],
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => &["spec", "template", "spec"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => return None,
    })
}

fn within<'a>(members: &'a mut Members, path: &[&str]) -> Option<&'a mut Members> {
    path.iter().try_fold(members, |members, key| existing(members, key))
}

/// What images are mounted as volumes.
fn volume_statuses(members: &mut Members) {
    let Some(status) = existing(members, "status") else { return };
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in items(status, list) {
            for mount in items(container, "volumeMounts") {
                mount.remove("volumeStatus");
            }
        }
    }
}

fn pod_spec(spec: &mut Members) {
    spec.remove("schedulingGroup");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(spec, list) {
            stop_signal(container);
        }
    }
    for volume in items(spec, "volumes") {
        let Some(projected) = existing(volume, "projected") else { continue };
        for source in items(projected, "sources") {
            source.remove("clusterTrustBundle");
            source.remove("podCertificate");
        }
    }
}

/// The signal that stops a container; a lifecycle that says nothing else is removed with it.
fn stop_signal(container: &mut Members) {
    let Some(lifecycle) = existing(container, "lifecycle") else { return };
    if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
        container.remove("lifecycle");
    }
}
