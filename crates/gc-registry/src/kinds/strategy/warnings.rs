//! Warnings about what works, but not as its author may think.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::kinds::access::{at, integer, list, text};
use crate::resource::Target;

/// A certificate and its key, as far as they are read without cryptography.
fn certificate(secret: &Value, texts: &mut Vec<String>) {
    if text(secret, &["type"]) != "kubernetes.io/tls" {
        return;
    }
    for (key, what) in [("tls.crt", "certificate"), ("tls.key", "key")] {
        let bytes = BASE64.decode(text(secret, &["data", key])).unwrap_or_default();
        let pem = String::from_utf8_lossy(&bytes);
        if !(pem.contains("-----BEGIN ") && pem.contains("-----END ")) {
            texts.push(format!("tls: failed to find any PEM data in {what} input"));
            return;
        }
    }
}

/// The texts of Warning headers that creating (`old` is `None`) or updating an object calls for.
#[must_use]
pub fn warnings(target: Target<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    if target.subresource.is_some() {
        return Vec::new();
    }
    let mut texts = Vec::new();
    match (target.group, target.resource) {
        ("", "pods") if old.is_none() => pod_spec("spec", new.get("spec"), &mut texts),
        ("", "secrets") => certificate(new, &mut texts),
        ("", "podtemplates") => template("template", new.get("template"), &mut texts),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => {
            // An update warns only when it changes the template.
            let path = ["spec", "template"];
            if old.is_none_or(|old| at(old, &path) != at(new, &path)) {
                template("spec.template", at(new, &path), &mut texts);
            }
        }
        ("batch", "cronjobs") => {
            let path = ["spec", "jobTemplate", "spec", "template"];
            if old.is_none_or(|old| at(old, &path) != at(new, &path)) {
                template("spec.jobTemplate.spec.template", at(new, &path), &mut texts);
            }
            if text(new, &["spec", "schedule"]).contains("TZ") {
                texts.push(
                    "CRON_TZ or TZ used in spec.schedule is not officially supported, see \
                     https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                        .into(),
                );
            }
        }
        ("", "persistentvolumes") => {
            if text(new, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
                texts.push(
                    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                     recommended approach is to use dynamic provisioning."
                        .into(),
                );
            }
            if let Some(spec) = new.get("spec") {
                gone_source("spec", spec, false, &mut texts);
            }
        }
        ("", "services") => service(new, &mut texts),
        ("", "nodes") if !text(new, &["spec", "externalID"]).is_empty() => {
            texts.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
        }
        ("storage.k8s.io", "csidrivers") => {
            let spec = |key: &str| at(new, &["spec", key]);
            if !list(new, &["spec", "tokenRequests"]).is_empty()
                && spec("serviceAccountTokenInSecrets").is_none()
            {
                texts.push(
                    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to \
                     prevent possible logging of tokens in volume attributes"
                        .into(),
                );
            }
        }
        ("storage.k8s.io", "storageclasses") => topologies(new, &mut texts),
        _ => {}
    }
    texts
}

fn service(object: &Value, texts: &mut Vec<String>) {
    if !list(object, &["spec", "externalIPs"]).is_empty() {
        texts.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    if !text(object, &["spec", "externalName"]).is_empty()
        && text(object, &["spec", "type"]) != "ExternalName"
    {
        texts.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
}

/// Labels of nodes that have newer names.
const OLD_LABELS: [(&str, &str); 5] = [
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Sources of volumes that do nothing any more: the name in a volume, since when deprecated, since when gone.
const GONE_SOURCES: [(&str, &str, &str); 8] = [
    ("photonPersistentDisk", "v1.11", "v1.16+"),
    ("scaleIO", "v1.16", "v1.22+"),
    ("storageos", "v1.22", "v1.25+"),
    ("glusterfs", "v1.25", "v1.26+"),
    ("flocker", "v1.22", "v1.25+"),
    ("quobyte", "v1.22", "v1.25+"),
    ("cephfs", "v1.28", "v1.31+"),
    ("rbd", "v1.28", "v1.31+"),
];

fn gone_source(path: &str, volume: &Value, in_pod: bool, texts: &mut Vec<String>) {
    if in_pod && at(volume, &["gitRepo"]).is_some() {
        texts.push(format!("{path}.gitRepo: deprecated in v1.11, and disabled by default in v1.33+"));
    }
    for (source, deprecated, gone) in GONE_SOURCES {
        // Upstream does not warn of these two in persistent volumes.
        let is_silent = !in_pod && matches!(source, "flocker" | "quobyte");
        if !is_silent && at(volume, &[source]).is_some() {
            let name = if source == "storageos" { "storageOS" } else { source };
            texts.push(format!("{path}.{name}: deprecated in {deprecated}, non-functional in {gone}"));
        }
    }
}

fn topologies(class: &Value, texts: &mut Vec<String>) {
    for (index, term) in list(class, &["allowedTopologies"]).iter().enumerate() {
        for (number, expression) in list(term, &["matchLabelExpressions"]).iter().enumerate() {
            let key = text(expression, &["key"]);
            if let Some((_, new)) = OLD_LABELS.iter().find(|(old, _)| *old == key) {
                texts.push(format!(
                    "allowedTopologies[{index}].matchLabelExpressions[{number}].key: deprecated since v1.17; use \
                     \"{new}\" instead"
                ));
            }
        }
    }
}

fn volumes(path: &str, spec: &Value, texts: &mut Vec<String>) {
    for (index, volume) in list(spec, &["volumes"]).iter().enumerate() {
        gone_source(&format!("{path}.volumes[{index}]"), volume, true, texts);
        let sources = list(volume, &["projected", "sources"]);
        if !sources.is_empty()
            && sources.iter().all(|source| source.as_object().is_none_or(serde_json::Map::is_empty))
        {
            texts.push(format!("volume \"{}\" (Projected) has no sources provided", text(volume, &["name"])));
        }
    }
}

/// Terms that select no pods.
fn affinity(path: &str, spec: &Value, texts: &mut Vec<String>) {
    const NONE: &str = "labelSelector: a null labelSelector results in matching no pod";
    for kind in ["podAffinity", "podAntiAffinity"] {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(spec, &["affinity", kind, required]).iter().enumerate() {
            if at(term, &["labelSelector"]).is_none() {
                texts.push(format!("{path}.affinity.{kind}.{required}[{index}].{NONE}"));
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(spec, &["affinity", kind, preferred]).iter().enumerate() {
            if at(term, &["podAffinityTerm", "labelSelector"]).is_none() {
                texts.push(format!("{path}.affinity.{kind}.{preferred}[{index}].podAffinityTerm.{NONE}"));
            }
        }
    }
    for (index, constraint) in list(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        if at(constraint, &["labelSelector"]).is_none() {
            texts.push(format!("{path}.topologySpreadConstraints[{index}].{NONE}"));
        }
    }
}

fn host_aliases(path: &str, spec: &Value, texts: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, alias) in list(spec, &["hostAliases"]).iter().enumerate() {
        let ip = text(alias, &["ip"]);
        if !seen.insert(ip) {
            texts.push(format!("{path}.hostAliases[{index}].ip: duplicate ip \"{ip}\""));
        }
    }
}

/// Ports of a container that are the same twice.
fn ports(path: &str, container: &Value, texts: &mut Vec<String>) {
    let mut seen = BTreeMap::new();
    for (index, port) in list(container, &["ports"]).iter().enumerate() {
        let number = |key: &str| integer(port, &[key]).unwrap_or_default();
        let key =
            (text(port, &["hostIP"]), text(port, &["protocol"]), number("hostPort"), number("containerPort"));
        match seen.get(&key) {
            Some(first) => texts
                .push(format!("{path}.ports[{index}]: duplicate port definition with {path}.ports[{first}]")),
            None => {
                seen.insert(key, index);
            }
        }
    }
}

fn template(path: &str, template: Option<&Value>, texts: &mut Vec<String>) {
    if let Some(template) = template {
        pod_spec(&format!("{path}.spec"), template.get("spec"), texts);
    }
}

fn pod_spec(path: &str, spec: Option<&Value>, texts: &mut Vec<String>) {
    let Some(spec) = spec else { return };
    if let Some(selector) = at(spec, &["nodeSelector"]).and_then(Value::as_object) {
        for (old, new) in OLD_LABELS {
            if selector.contains_key(old) {
                texts.push(format!("{path}.nodeSelector[{old}]: deprecated; use \"{new}\" instead"));
            }
        }
    }
    affinity(path, spec, texts);
    host_aliases(path, spec, texts);
    volumes(path, spec, texts);
    for key in ["initContainers", "containers"] {
        for (index, container) in list(spec, &[key]).iter().enumerate() {
            ports(&format!("{path}.{key}[{index}]"), container, texts);
            let variables = list(container, &["env"]);
            let mut seen = BTreeSet::new();
            for (at, variable) in variables.iter().enumerate() {
                let name = text(variable, &["name"]);
                if !seen.insert(name) {
                    texts.push(format!(
                        "{path}.{key}[{index}].env[{at}]: hides previous definition of \"{name}\", which may be \
                         dropped when using apply"
                    ));
                }
            }
        }
    }
}
