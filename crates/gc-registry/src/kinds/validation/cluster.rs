//! Configuration, storage, access and the objects of the cluster itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::names::{labels, qualified_name, selector, subdomain};
use super::report::Report;
use crate::kinds::access::{at, flag, integer, list, members, text};
use crate::kinds::quantity;

/// Most bytes in the values of a ConfigMap or Secret.
const DATA_BYTES: usize = 1024 * 1024;
/// Greatest priority of a class that users make.
const USER_PRIORITY: i64 = 1_000_000_000;
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// Problems of a key of a ConfigMap or Secret.
fn data_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 bytes".into());
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .into(),
        );
    }
    if key == "." || key == ".." {
        problems.push(format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".into());
    }
    problems
}

pub(super) fn config_map(object: &Value, report: &mut Report) {
    let mut bytes = 0;
    let data = members(object, &["data"]);
    for (key, value) in data.into_iter().flatten() {
        report.each(&format!("data[{key}]"), key, data_key(key));
        bytes += value.as_str().map_or(0, str::len);
    }
    for (key, value) in members(object, &["binaryData"]).into_iter().flatten() {
        let field = format!("binaryData[{key}]");
        report.each(&field, key, data_key(key));
        if data.is_some_and(|data| data.contains_key(key)) {
            report.invalid_text(&format!("data[{key}]"), key, "duplicate of key present in binaryData");
        }
        bytes += value.as_str().map_or(0, decoded_length);
    }
    if bytes > DATA_BYTES {
        report.too_long("", DATA_BYTES);
    }
}

fn decoded_length(text: &str) -> usize {
    BASE64.decode(text).map_or(text.len(), |bytes| bytes.len())
}

pub(super) fn secret(object: &Value, report: &mut Report) {
    let mut bytes = 0;
    for (key, value) in members(object, &["data"]).into_iter().flatten() {
        report.each(&format!("data[{key}]"), key, data_key(key));
        bytes += value.as_str().map_or(0, decoded_length);
    }
    if bytes > DATA_BYTES {
        report.too_long("data", DATA_BYTES);
    }
    let has = |key: &str| members(object, &["data"]).is_some_and(|data| data.contains_key(key));
    match text(object, &["type"]) {
        "kubernetes.io/service-account-token" => {
            let path = ["metadata", "annotations", "kubernetes.io/service-account.name"];
            if text(object, &path).is_empty() {
                report.required("metadata.annotations[kubernetes.io/service-account.name]", "");
            }
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    report.required(&format!("data[{key}]"), "");
                }
            }
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            report.required("data[username]", "");
            report.required("data[password]", "");
        }
        "kubernetes.io/ssh-auth" if !has("ssh-privatekey") => {
            report.required("data[ssh-privatekey]", "");
        }
        "kubernetes.io/dockerconfigjson" => json_entry(object, ".dockerconfigjson", report),
        "kubernetes.io/dockercfg" => json_entry(object, ".dockercfg", report),
        _ => {}
    }
}

fn json_entry(object: &Value, key: &str, report: &mut Report) {
    let field = format!("data[{key}]");
    match at(object, &["data", key]).and_then(Value::as_str) {
        None => report.required(&field, ""),
        Some(text) => {
            let bytes = BASE64.decode(text).unwrap_or_default();
            if !serde_json::from_slice::<Value>(&bytes).is_ok_and(|value| value.is_object()) {
                report.invalid_text(&field, "<secret contents redacted>", "invalid character in JSON");
            }
        }
    }
}

pub(super) fn namespace(object: &Value, report: &mut Report) {
    for (index, finalizer) in list(object, &["spec", "finalizers"]).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        namespace_finalizer(name, &format!("spec.finalizers[{index}]"), report);
    }
}

/// Finalizers of a namespace's spec are named like those of metadata.
pub(super) fn namespace_finalizer(name: &str, field: &str, report: &mut Report) {
    let problems = qualified_name(name);
    let is_standard = matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
    if problems.is_empty() && !name.contains('/') && !is_standard {
        report.invalid_text(
            field,
            name,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
    report.each(field, name, problems);
}

pub(super) fn node(object: &Value, report: &mut Report) {
    for (index, taint) in list(object, &["spec", "taints"]).iter().enumerate() {
        let field = format!("spec.taints[{index}]");
        let key = text(taint, &["key"]);
        report.each(&format!("{field}.key"), key, qualified_name(key));
        report.one_of(
            &format!("{field}.effect"),
            taint.get("effect"),
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
        let same = |other: &&Value| {
            text(other, &["key"]) == key && text(other, &["effect"]) == text(taint, &["effect"])
        };
        if list(object, &["spec", "taints"])[..index].iter().any(|other| same(&other)) {
            report.duplicate(&field, taint);
        }
    }
    for key in ["capacity", "allocatable"] {
        report.quantities(at(object, &["status", key]), &format!("status.{key}"));
    }
}

fn access_modes(modes: &[Value], field: &str, report: &mut Report) {
    if modes.is_empty() {
        report.required(field, "");
    }
    for mode in modes {
        report.one_of(field, Some(mode), &ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        report.forbidden(field, "may not use ReadWriteOncePod with other access modes");
    }
}

pub(super) fn persistent_volume(object: &Value, report: &mut Report) {
    access_modes(list(object, &["spec", "accessModes"]), "spec.accessModes", report);
    let capacity = members(object, &["spec", "capacity"]);
    match capacity {
        None => report.required("spec.capacity", ""),
        Some(capacity) if !(capacity.len() == 1 && capacity.contains_key("storage")) => {
            report.not_supported("spec.capacity", at(object, &["spec", "capacity"]), &["storage"]);
        }
        Some(capacity) => {
            let storage = capacity.get("storage");
            match storage.and_then(quantity::of) {
                Some(Ok(size)) if !size.is_negative() && !size.is_zero() => {}
                Some(Err(error)) => report.invalid("spec.capacity[storage]", storage, &error.to_string()),
                _ => report.invalid("spec.capacity[storage]", storage, "must be greater than zero"),
            }
        }
    }
    report.one_of_if_set(
        "spec.persistentVolumeReclaimPolicy",
        at(object, &["spec", "persistentVolumeReclaimPolicy"]),
        &["Delete", "Recycle", "Retain"],
    );
    report.one_of_if_set("spec.volumeMode", at(object, &["spec", "volumeMode"]), &["Block", "Filesystem"]);
    const OTHER: [&str; 10] = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
        "resources",
    ];
    let sources: Vec<&String> = members(object, &["spec"])
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
        .filter(|key| !OTHER.contains(&key.as_str()))
        .collect();
    match sources.as_slice() {
        [] => report.required("spec", "must specify a volume type"),
        [_] => {}
        [_, others @ ..] => {
            for other in others {
                report.forbidden(&format!("spec.{other}"), "may not specify more than 1 volume type");
            }
        }
    }
    let path = text(object, &["spec", "hostPath", "path"]);
    if path == "/" && text(object, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
        report.forbidden(
            "spec.persistentVolumeReclaimPolicy",
            "may not be 'recycle' for a hostPath mount of '/'",
        );
    }
    if at(object, &["spec", "hostPath"]).is_some() && path.is_empty() {
        report.required("spec.hostPath.path", "");
    }
    if at(object, &["spec", "local"]).is_some() && at(object, &["spec", "nodeAffinity"]).is_none() {
        report.required("spec.nodeAffinity", "Local volume requires node affinity");
    }
    let class = text(object, &["spec", "storageClassName"]);
    if !class.is_empty() {
        report.each("spec.storageClassName", class, subdomain(class));
    }
}

pub(super) fn persistent_volume_claim(object: &Value, report: &mut Report) {
    selector(at(object, &["spec", "selector"]), "spec.selector", report);
    access_modes(list(object, &["spec", "accessModes"]), "spec.accessModes", report);
    let storage = at(object, &["spec", "resources", "requests", "storage"]);
    match storage.and_then(quantity::of) {
        None => report.required("spec.resources[storage]", ""),
        Some(Ok(size)) if size.is_negative() || size.is_zero() => {
            report.invalid("spec.resources[storage]", storage, "must be greater than zero");
        }
        Some(Err(error)) => report.invalid("spec.resources[storage]", storage, &error.to_string()),
        Some(Ok(_)) => {}
    }
    let class = text(object, &["spec", "storageClassName"]);
    if !class.is_empty() {
        report.each("spec.storageClassName", class, subdomain(class));
    }
    report.one_of_if_set("spec.volumeMode", at(object, &["spec", "volumeMode"]), &["Block", "Filesystem"]);
}

pub(super) fn resource_quota(object: &Value, report: &mut Report) {
    for (part, key) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
        report.quantities(at(object, &[part, key]), &format!("{part}.{key}"));
    }
}

pub(super) fn limit_range(object: &Value, report: &mut Report) {
    for (index, item) in list(object, &["spec", "limits"]).iter().enumerate() {
        let field = format!("spec.limits[{index}]");
        let kind = text(item, &["type"]);
        report.each(&format!("{field}.type"), kind, qualified_name(kind));
        for key in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            report.quantities(item.get(key), &format!("{field}.{key}"));
        }
        for (name, least) in members(item, &["min"]).into_iter().flatten() {
            let most = at(item, &["max", name]);
            if let (Some(Ok(least_size)), Some(Some(Ok(most_size)))) =
                (quantity::of(least), most.map(quantity::of))
                && least_size.exceeds(most_size)
            {
                let why = format!(
                    "min value {} is greater than max value {}",
                    least.as_str().unwrap_or_default(),
                    most.and_then(Value::as_str).unwrap_or_default()
                );
                report.invalid(&format!("{field}.min[{name}]"), Some(least), &why);
            }
        }
    }
}

/// Events are about objects of their own namespace; those of cluster-scoped objects are in `default`.
pub(super) fn event(group: &str, object: &Value, report: &mut Report) {
    let about = if group.is_empty() { "involvedObject" } else { "regarding" };
    let field = "involvedObject.namespace";
    let namespace = text(object, &["metadata", "namespace"]);
    let named = text(object, &[about, "namespace"]);
    // The core group's own clients of old give neither time nor reporter, and keep being served.
    let is_old = group.is_empty() && at(object, &["eventTime"]).is_none();
    if is_old {
        if (named.is_empty() && namespace != "default") || (!named.is_empty() && named != namespace) {
            report.invalid_text(field, named, "does not match event.namespace");
        }
        return;
    }
    if (named.is_empty() && namespace != "default" && namespace != "kube-system")
        || (!named.is_empty() && named != namespace)
    {
        report.invalid_text(field, named, "does not match event.namespace");
    }
    if group.is_empty() {
        return;
    }
    if at(object, &["eventTime"]).is_none() {
        report.required("eventTime", "");
    }
    for (key, field) in [("type", "type"), ("reason", "reason"), ("action", "action")] {
        if text(object, &[key]).is_empty() {
            if key == "type" {
                report.invalid_text("", "", "has invalid value: ");
            } else {
                report.required(field, "");
            }
        }
    }
    let controller = text(object, &["reportingController"]);
    if controller.is_empty() {
        report.required("reportingController", "");
    } else {
        report.each("reportingController", controller, qualified_name(controller));
    }
    if text(object, &["reportingInstance"]).is_empty() {
        report.required("reportingInstance", "");
    }
}

pub(super) fn lease(object: &Value, report: &mut Report) {
    report.positive(object, &["spec", "leaseDurationSeconds"], "spec.leaseDurationSeconds");
    report.not_negative(object, &["spec", "leaseTransitions"], "spec.leaseTransitions");
    let strategy = at(object, &["spec", "strategy"]);
    let preferred = at(object, &["spec", "preferredHolder"]);
    if let Some(holder) = preferred
        && strategy.is_none()
    {
        report.invalid(
            "spec.preferredHolder",
            Some(holder),
            "strategy must be set when preferredHolder is set",
        );
    }
}

pub(super) fn priority_class(object: &Value, report: &mut Report) {
    let name = text(object, &["metadata", "name"]);
    let value = integer(object, &["value"]).unwrap_or_default();
    let is_system = matches!(
        (name, value),
        ("system-node-critical", 2_000_001_000) | ("system-cluster-critical", 2_000_000_000)
    );
    if !is_system {
        if name.starts_with("system-") {
            report.forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only. error: only system \
                 priority classes are allowed to start with 'system-'",
            );
        }
        if value > USER_PRIORITY {
            report.forbidden(
                "value",
                &format!("maximum allowed value of a user defined priority is {USER_PRIORITY}"),
            );
        }
    }
    report.one_of_if_set(
        "preemptionPolicy",
        at(object, &["preemptionPolicy"]),
        &["Never", "PreemptLowerPriority"],
    );
}

pub(super) fn storage_class(object: &Value, report: &mut Report) {
    let provisioner = text(object, &["provisioner"]);
    if provisioner.is_empty() {
        report.required("provisioner", "");
    } else {
        report.each("provisioner", provisioner, qualified_name(&provisioner.to_lowercase()));
    }
    report.one_of_if_set("reclaimPolicy", at(object, &["reclaimPolicy"]), &["Delete", "Retain"]);
    let mode = at(object, &["volumeBindingMode"]);
    if mode.is_none() {
        report.required("volumeBindingMode", "");
    }
    report.one_of_if_set("volumeBindingMode", mode, &["Immediate", "WaitForFirstConsumer"]);
}

pub(super) fn volume_attachment(object: &Value, report: &mut Report) {
    let attacher = text(object, &["spec", "attacher"]);
    if attacher.is_empty() {
        report.required("spec.attacher", "");
    }
    if text(object, &["spec", "nodeName"]).is_empty() {
        report.required("spec.nodeName", "");
    }
    let source = at(object, &["spec", "source"]);
    let named = at(object, &["spec", "source", "persistentVolumeName"]).is_some();
    let inline = at(object, &["spec", "source", "inlineVolumeSpec"]).is_some();
    match (named, inline) {
        (false, false) => report
            .required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"),
        (true, true) => report.invalid(
            "spec.source",
            source,
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        _ => {}
    }
}

pub(super) fn runtime_class(object: &Value, report: &mut Report) {
    let handler = text(object, &["handler"]);
    report.each("handler", handler, super::names::label(handler));
    report.quantities(at(object, &["overhead", "podFixed"]), "overhead.podFixed");
    labels(at(object, &["scheduling", "nodeSelector"]), "scheduling.nodeSelector", report);
}

pub(super) fn signing_request(object: &Value, report: &mut Report) {
    let request = text(object, &["spec", "request"]);
    let decoded = BASE64.decode(request).unwrap_or_default();
    if !String::from_utf8_lossy(&decoded).contains("-----BEGIN CERTIFICATE REQUEST-----")
        && !String::from_utf8_lossy(&decoded).contains("-----BEGIN NEW CERTIFICATE REQUEST-----")
    {
        report.invalid(
            "spec.request",
            at(object, &["spec", "request"]),
            "PEM block type must be CERTIFICATE REQUEST",
        );
    }
    let usages = list(object, &["spec", "usages"]);
    if usages.is_empty() {
        report.required("spec.usages", "usages must contain one or more of the key usages");
    }
    for (index, usage) in usages.iter().enumerate() {
        if usages[..index].contains(usage) {
            report.duplicate(&format!("spec.usages[{index}]"), usage);
        }
    }
    let signer = text(object, &["spec", "signerName"]);
    let (domain, path) = signer.split_once('/').unwrap_or((signer, ""));
    if signer.is_empty() {
        report.required("spec.signerName", "");
    } else if path.is_empty() || !domain.contains('.') || !subdomain(domain).is_empty() {
        report.invalid_text(
            "spec.signerName",
            signer,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
    }
    let seconds = at(object, &["spec", "expirationSeconds"]);
    if seconds.and_then(Value::as_i64).is_some_and(|seconds| seconds < 600) {
        report.invalid(
            "spec.expirationSeconds",
            seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
    conditions_of_request(object, report);
}

fn conditions_of_request(object: &Value, report: &mut Report) {
    let conditions = list(object, &["status", "conditions"]);
    let has = |kind: &str| conditions.iter().any(|condition| text(condition, &["type"]) == kind);
    for (index, condition) in conditions.iter().enumerate() {
        let field = format!("status.conditions[{index}]");
        let kind = text(condition, &["type"]);
        if kind.is_empty() {
            report.required(&format!("{field}.type"), "");
        }
        if text(condition, &["status"]) != "True" && matches!(kind, "Approved" | "Denied" | "Failed") {
            report.not_supported(&format!("{field}.status"), condition.get("status"), &["True"]);
        }
        if conditions[..index].iter().any(|other| text(other, &["type"]) == kind) {
            report.duplicate(&format!("{field}.type"), &kind.into());
        }
        if kind == "Denied" && has("Approved") {
            report.invalid_text(
                &format!("{field}.type"),
                kind,
                "Approved and Denied conditions are mutually exclusive",
            );
        }
    }
}

pub(super) fn rbac(resource: &str, object: &Value, report: &mut Report) {
    match resource {
        "roles" | "clusterroles" => {
            let namespaced = resource == "roles";
            for (index, rule) in list(object, &["rules"]).iter().enumerate() {
                policy_rule(rule, &format!("rules[{index}]"), namespaced, report);
            }
        }
        _ => {
            if text(object, &["roleRef", "apiGroup"]) != RBAC {
                report.not_supported("roleRef.apiGroup", at(object, &["roleRef", "apiGroup"]), &[RBAC]);
            }
            let kinds: &[&str] =
                if resource == "rolebindings" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
            let kind = at(object, &["roleRef", "kind"]);
            if !kinds.contains(&text(object, &["roleRef", "kind"])) {
                report.not_supported("roleRef.kind", Some(kind.unwrap_or(&"".into())), kinds);
            }
            if text(object, &["roleRef", "name"]).is_empty() {
                report.required("roleRef.name", "");
            }
            for (index, subject) in list(object, &["subjects"]).iter().enumerate() {
                binding_subject(subject, resource, &format!("subjects[{index}]"), report);
            }
        }
    }
}

fn policy_rule(rule: &Value, field: &str, namespaced: bool, report: &mut Report) {
    if list(rule, &["verbs"]).is_empty() {
        report.required(&format!("{field}.verbs"), "verbs must contain at least one value");
    }
    let urls = list(rule, &["nonResourceURLs"]);
    if !urls.is_empty() {
        if namespaced {
            report.invalid(
                &format!("{field}.nonResourceURLs"),
                rule.get("nonResourceURLs"),
                "namespaced rules cannot apply to non-resource URLs",
            );
        }
        let also = ["apiGroups", "resources", "resourceNames"];
        if also.iter().any(|key| !list(rule, &[key]).is_empty()) {
            report.invalid(
                &format!("{field}.nonResourceURLs"),
                rule.get("nonResourceURLs"),
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        return;
    }
    if list(rule, &["apiGroups"]).is_empty() {
        report.required(&format!("{field}.apiGroups"), "resource rules must supply at least one api group");
    }
    if list(rule, &["resources"]).is_empty() {
        report.required(&format!("{field}.resources"), "resource rules must supply at least one resource");
    }
}

fn binding_subject(subject: &Value, resource: &str, field: &str, report: &mut Report) {
    let name = text(subject, &["name"]);
    if name.is_empty() {
        report.required(&format!("{field}.name"), "");
    }
    let group = at(subject, &["apiGroup"]);
    match text(subject, &["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                report.each(&format!("{field}.name"), name, subdomain(name));
            }
            if group.is_some_and(|group| group != "") {
                report.not_supported(&format!("{field}.apiGroup"), group, &[""]);
            }
            if text(subject, &["namespace"]).is_empty() && resource == "clusterrolebindings" {
                report.required(&format!("{field}.namespace"), "");
            }
        }
        "User" | "Group" => {
            if group.is_none_or(|group| group != RBAC) {
                report.not_supported(&format!("{field}.apiGroup"), group, &[RBAC]);
            }
        }
        _ => report.not_supported(
            &format!("{field}.kind"),
            Some(subject.get("kind").unwrap_or(&"".into())),
            &["ServiceAccount", "User", "Group"],
        ),
    }
}

pub(super) fn admission(resource: &str, object: &Value, report: &mut Report) {
    if !resource.ends_with("webhookconfigurations") {
        return;
    }
    let webhooks = list(object, &["webhooks"]);
    for (index, webhook) in webhooks.iter().enumerate() {
        let field = format!("webhooks[{index}]");
        let name = text(webhook, &["name"]);
        if name.is_empty() {
            report.required(&format!("{field}.name"), "");
        } else if name.split('.').count() < 3 {
            report.invalid_text(
                &format!("{field}.name"),
                name,
                "should be a domain with at least three segments separated by dots",
            );
        }
        if webhooks[..index].iter().any(|other| text(other, &["name"]) == name) {
            report.duplicate(&format!("{field}.name"), &name.into());
        }
        if list(webhook, &["admissionReviewVersions"]).is_empty() {
            report.required(&format!("{field}.admissionReviewVersions"), "must specify one of v1, v1beta1");
        }
        match text(webhook, &["sideEffects"]) {
            "" => report.required(&format!("{field}.sideEffects"), "must specify one of None, NoneOnDryRun"),
            _ => report.one_of(
                &format!("{field}.sideEffects"),
                webhook.get("sideEffects"),
                &["None", "NoneOnDryRun"],
            ),
        }
        report.one_of_if_set(
            &format!("{field}.failurePolicy"),
            webhook.get("failurePolicy"),
            &["Fail", "Ignore"],
        );
        report.one_of_if_set(
            &format!("{field}.matchPolicy"),
            webhook.get("matchPolicy"),
            &["Equivalent", "Exact"],
        );
        if let Some(seconds) = integer(webhook, &["timeoutSeconds"])
            && !(1..=30).contains(&seconds)
        {
            report.invalid(
                &format!("{field}.timeoutSeconds"),
                Some(&seconds.into()),
                "the timeout value must be between 1 and 30 seconds",
            );
        }
        let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
        if at(config, &["url"]).is_some() == at(config, &["service"]).is_some() {
            report.required(&format!("{field}.clientConfig"), "exactly one of url or service is required");
        }
        selector(at(webhook, &["namespaceSelector"]), &format!("{field}.namespaceSelector"), report);
        selector(at(webhook, &["objectSelector"]), &format!("{field}.objectSelector"), report);
    }
}

pub(super) fn api_service(object: &Value, report: &mut Report) {
    let group = text(object, &["spec", "group"]);
    let version = text(object, &["spec", "version"]);
    let name = text(object, &["metadata", "name"]);
    if name != format!("{version}.{group}") {
        report.invalid_text(
            "metadata.name",
            name,
            &format!("must be `spec.version+\".\"+spec.group`: \"{version}.{group}\""),
        );
    }
    if version.is_empty() {
        report.required("spec.version", "");
    }
    for (key, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let value = integer(object, &["spec", key]).unwrap_or_default();
        if value <= 0 || value > most {
            report.invalid(
                &format!("spec.{key}"),
                Some(&value.into()),
                &format!("must be positive and less than {most}"),
            );
        }
    }
    let has_service = at(object, &["spec", "service"]).is_some();
    if !has_service && flag(object, &["spec", "insecureSkipTLSVerify"]) == Some(true) {
        report.invalid(
            "spec.insecureSkipTLSVerify",
            Some(&true.into()),
            "local APIServices may not have TLS settings",
        );
    }
    for key in ["namespace", "name"] {
        if has_service && text(object, &["spec", "service", key]).is_empty() {
            report.required(&format!("spec.service.{key}"), "");
        }
    }
}
