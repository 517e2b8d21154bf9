//! Namespaces, nodes, storage, policy and configuration of the cluster.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::pod::{claim_spec, network_volume};
use super::{Members, child, existing, fill, fill_absent, fill_zero, is_unset, items};

/// API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn namespace(members: &mut Members) {
    let name = members.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
    if let Some(name) = name.filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
        && let Some(labels) = child(members, "metadata").and_then(|metadata| child(metadata, "labels"))
    {
        labels.insert("kubernetes.io/metadata.name".into(), name);
    }
    if let Some(status) = child(members, "status") {
        fill(status, "phase", "Active");
    }
}

pub(super) fn node(members: &mut Members) {
    if let Some(spec) = existing(members, "spec") {
        pod_ranges(spec);
    }
    let Some(status) = child(members, "status") else { return };
    if let Some(capacity) = status.get("capacity").cloned() {
        fill_absent(status, "allocatable", capacity);
    }
    for condition in items(status, "conditions") {
        for key in ["lastHeartbeatTime", "lastTransitionTime"] {
            fill_absent(condition, key, Value::Null);
        }
    }
    if let Some(daemon) = child(status, "daemonEndpoints")
        && let Some(kubelet) = child(daemon, "kubeletEndpoint")
    {
        fill_absent(kubelet, "Port", 0);
    }
    if let Some(info) = child(status, "nodeInfo") {
        for key in [
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ] {
            fill_absent(info, key, "");
        }
    }
}

/// The older name of a node's range of addresses is the first of all of its ranges, and wins where the two differ.
fn pod_ranges(spec: &mut Members) {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let one = text(spec.get("podCIDR"));
    let first = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned();
    match (one, first) {
        (Some(one), first) if first.as_ref().and_then(Value::as_str) != Some(&one) => {
            spec.insert("podCIDRs".into(), json!([one]));
        }
        (None, Some(first)) => {
            spec.insert("podCIDR".into(), first);
        }
        _ => {}
    }
}

/// Text of `stringData` becomes data, and is never shown again.
pub(super) fn secret(members: &mut Members) {
    fill(members, "type", "Opaque");
    let Some(Value::Object(texts)) = members.remove("stringData") else { return };
    let encoded = |(key, text): (String, Value)| Some((key, BASE64.encode(text.as_str()?).into()));
    let encoded: Members = texts.into_iter().filter_map(encoded).collect();
    // Nothing to add makes no `data`: an empty one is left out of what is stored.
    if !encoded.is_empty()
        && let Some(data) = child(members, "data")
    {
        data.extend(encoded);
    }
}

pub(super) fn persistent_volume(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        fill(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill_absent(spec, "volumeMode", "Filesystem");
        if let Some(path) = existing(spec, "hostPath") {
            fill_absent(path, "type", "");
        }
        network_volume(spec);
    }
    if let Some(status) = child(members, "status") {
        fill(status, "phase", "Pending");
    }
}

pub(super) fn persistent_volume_claim(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        claim_spec(spec);
    }
    if let Some(status) = child(members, "status") {
        fill(status, "phase", "Pending");
    }
}

pub(super) fn limit_range(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    fill_absent(spec, "limits", Value::Null);
    for item in items(spec, "limits") {
        if item.get("type").and_then(Value::as_str) != Some("Container") {
            continue;
        }
        let map =
            |item: &Members, key: &str| item.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
        let mut limits = map(item, "default");
        for (name, quantity) in map(item, "max") {
            limits.entry(name).or_insert(quantity);
        }
        let mut requests = map(item, "defaultRequest");
        for (name, quantity) in limits.clone().into_iter().chain(map(item, "min")) {
            requests.entry(name).or_insert(quantity);
        }
        for (key, quantities) in [("default", limits), ("defaultRequest", requests)] {
            if quantities.is_empty() {
                item.remove(key);
            } else {
                item.insert(key.into(), Value::Object(quantities));
            }
        }
    }
}

pub(super) fn resource_quota(members: &mut Members) {
    child(members, "spec");
}

/// Both forms of an event write their times and source always, set or not.
pub(super) fn event(group: &str, members: &mut Members) {
    fill_absent(members, "eventTime", Value::Null);
    let (times, source, object): ([&str; 2], &str, &str) = if group.is_empty() {
        fill_absent(members, "reportingComponent", "");
        fill_absent(members, "reportingInstance", "");
        (["firstTimestamp", "lastTimestamp"], "source", "involvedObject")
    } else {
        (["deprecatedFirstTimestamp", "deprecatedLastTimestamp"], "deprecatedSource", "regarding")
    };
    for key in times {
        fill_absent(members, key, Value::Null);
    }
    child(members, source);
    child(members, object);
}

pub(super) fn storage_class(members: &mut Members) {
    fill_absent(members, "provisioner", "");
    fill_absent(members, "reclaimPolicy", "Delete");
    fill_absent(members, "volumeBindingMode", "Immediate");
}

pub(super) fn csi_driver(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    fill_absent(spec, "attachRequired", true);
    fill_absent(spec, "podInfoOnMount", false);
    fill_absent(spec, "storageCapacity", false);
    fill_absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    fill_absent(spec, "volumeLifecycleModes", json!(["Persistent"]));
    fill_absent(spec, "requiresRepublish", false);
    fill_absent(spec, "seLinuxMount", false);
}

pub(super) fn volume_attachment(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        child(spec, "source");
    }
    if let Some(status) = child(members, "status") {
        fill_absent(status, "attached", false);
    }
}

pub(super) fn rbac(resource: &str, members: &mut Members) {
    match resource {
        "roles" | "clusterroles" => fill_absent(members, "rules", Value::Null),
        _ => {
            if let Some(role) = child(members, "roleRef") {
                fill(role, "apiGroup", RBAC);
            }
            for subject in items(members, "subjects") {
                if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
                    fill(subject, "apiGroup", RBAC);
                }
            }
        }
    }
}

pub(super) fn signing_request(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        fill_absent(spec, "request", Value::Null);
    }
    if let Some(status) = child(members, "status") {
        for condition in items(status, "conditions") {
            for key in ["lastUpdateTime", "lastTransitionTime"] {
                fill_absent(condition, key, Value::Null);
            }
        }
    }
}

pub(super) fn admission(resource: &str, members: &mut Members) {
    match resource {
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
            for webhook in items(members, "webhooks") {
                fill_absent(webhook, "failurePolicy", "Fail");
                fill_absent(webhook, "matchPolicy", "Equivalent");
                fill_absent(webhook, "timeoutSeconds", 10);
                child(webhook, "namespaceSelector");
                child(webhook, "objectSelector");
                if resource == "mutatingwebhookconfigurations" {
                    fill_absent(webhook, "reinvocationPolicy", "Never");
                }
                if let Some(service) =
                    child(webhook, "clientConfig").and_then(|config| existing(config, "service"))
                {
                    fill_absent(service, "port", 443);
                }
                items(webhook, "rules").for_each(any_scope);
            }
        }
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            let Some(spec) = child(members, "spec") else { return };
            fill_absent(spec, "failurePolicy", "Fail");
            match_resources(spec, "matchConstraints");
        }
        _ => {
            let Some(spec) = child(members, "spec") else { return };
            match_resources(spec, "matchResources");
        }
    }
}

fn match_resources(spec: &mut Members, key: &str) {
    let Some(rules) = existing(spec, key) else { return };
    fill_absent(rules, "matchPolicy", "Equivalent");
    child(rules, "namespaceSelector");
    child(rules, "objectSelector");
    for key in ["resourceRules", "excludeResourceRules"] {
        items(rules, key).for_each(any_scope);
    }
}

fn any_scope(rule: &mut Members) {
    fill_absent(rule, "scope", "*");
}

pub(super) fn api_service(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    if let Some(service) = existing(spec, "service") {
        fill_absent(service, "port", 443);
    }
    fill_absent(spec, "groupPriorityMinimum", 0);
    fill_absent(spec, "versionPriority", 0);
}

pub(super) fn flow_control(resource: &str, members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    if resource == "flowschemas" {
        fill_zero(spec, "matchingPrecedence", 1000);
        child(spec, "priorityLevelConfiguration");
        return;
    }
    match spec.get("type").and_then(Value::as_str) {
        Some("Limited") => {
            let Some(limited) = existing(spec, "limited") else { return };
            fill_absent(limited, "nominalConcurrencyShares", 30);
            fill_absent(limited, "lendablePercent", 0);
            let Some(response) = child(limited, "limitResponse") else { return };
            if !is_unset(response, "type")
                && response.get("type").and_then(Value::as_str) == Some("Queue")
                && let Some(queuing) = existing(response, "queuing")
            {
                fill_zero(queuing, "queues", 64);
                fill_zero(queuing, "handSize", 8);
                fill_zero(queuing, "queueLengthLimit", 50);
            }
        }
        Some("Exempt") => {
            if let Some(exempt) = child(spec, "exempt") {
                fill_absent(exempt, "nominalConcurrencyShares", 0);
                fill_absent(exempt, "lendablePercent", 0);
            }
        }
        _ => {}
    }
}

/// Claims to devices, and templates of them.
pub(super) fn device_claim(resource: &str, members: &mut Members) {
    let Some(spec) = existing(members, "spec") else { return };
    let spec = if resource == "resourceclaimtemplates" { existing(spec, "spec") } else { Some(spec) };
    let Some(devices) = spec.and_then(|spec| existing(spec, "devices")) else { return };
    for request in items(devices, "requests") {
        if let Some(exactly) = existing(request, "exactly") {
            device_request(exactly);
        }
        items(request, "firstAvailable").for_each(device_request);
    }
}

fn device_request(request: &mut Members) {
    fill(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").is_some_and(|mode| mode == "ExactCount") {
        fill_zero(request, "count", 1);
    }
    for toleration in items(request, "tolerations") {
        fill(toleration, "operator", "Equal");
    }
}
