//! Warnings about pods and their templates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{addresses, fractional, node_labels, volumes};
use crate::kinds::access::{at, integer, list, text};
use crate::metadata::names::quoted;

const CRITICAL: &str = "non-functional in v1.16+; use the \"priorityClassName\" field instead";
const SYSCTLS: &str = "non-functional in v1.11+; use the \"sysctls\" field instead";
const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APP_ARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
const NO_SELECTOR: &str = "labelSelector: a null labelSelector results in matching no pod";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks a pod or a template; `path` is the position of the template, empty for a pod.
pub(crate) fn pod(path: &str, pod: &Value, texts: &mut Vec<String>) {
    let Some(spec) = pod.get("spec") else { return };
    let spec_path = super::below(path, "spec");
    nodes(&spec_path, spec, texts);
    annotations(path, pod, texts);
    volumes::volumes(&spec_path, spec, texts);
    names_of_hosts_and_secrets(&spec_path, spec, texts);
    for resource in ["memory", "ephemeral-storage"] {
        fractional(&format!("{spec_path}.overhead"), at(spec, &["overhead"]), resource, texts);
    }
    if at(spec, &["securityContext", "seccompProfile"]).is_none() {
        annotation(path, pod, "seccomp.security.alpha.kubernetes.io/pod", SECCOMP, texts);
    }
    containers(path, &spec_path, pod, texts);
    ports(&spec_path, spec, texts);
    if integer(spec, &["terminationGracePeriodSeconds"]).is_some_and(|seconds| seconds < 0) {
        texts.push(format!(
            "{spec_path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be \
             treated as 1"
        ));
    }
    affinity(&spec_path, spec, texts);
    addresses::ips(
        &format!("{spec_path}.dnsConfig.nameservers"),
        list(spec, &["dnsConfig", "nameservers"]),
        texts,
    );
    for (index, alias) in list(spec, &["hostAliases"]).iter().enumerate() {
        addresses::ip(&format!("{spec_path}.hostAliases[{index}].ip"), text(alias, &["ip"]), texts);
    }
}

/// Warns about old node labels, and about constraints that select no pods.
fn nodes(path: &str, spec: &Value, texts: &mut Vec<String>) {
    for (label, message) in node_labels::in_map(at(spec, &["nodeSelector"])) {
        texts.push(format!("{path}.nodeSelector[{label}]: {message}"));
    }
    let affinity = format!("{path}.affinity.nodeAffinity");
    let terms = list(spec, &["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"]);
    for (index, term) in terms.iter().enumerate() {
        let path = format!("{affinity}.{REQUIRED}.nodeSelectorTerms[{index}]");
        node_labels::in_term(&path, term, false, texts);
    }
    for (index, term) in list(spec, &["affinity", "nodeAffinity", PREFERRED]).iter().enumerate() {
        let path = format!("{affinity}.{PREFERRED}[{index}].preference");
        node_labels::in_term(&path, term.get("preference").unwrap_or(&Value::Null), true, texts);
    }
    for (index, constraint) in list(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{index}]");
        let key = text(constraint, &["topologyKey"]);
        if let Some(message) = node_labels::message(key) {
            texts.push(format!("{path}.topologyKey: {key} is {message}"));
        }
        if at(constraint, &["labelSelector"]).is_none() {
            texts.push(format!("{path}.{NO_SELECTOR}"));
        }
    }
}

fn annotation(path: &str, pod: &Value, key: &str, message: &str, texts: &mut Vec<String>) {
    if at(pod, &["metadata", "annotations", key]).is_some() {
        texts.push(format!("{}[{key}]: {message}", super::below(path, "metadata.annotations")));
    }
}

fn annotations(path: &str, pod: &Value, texts: &mut Vec<String>) {
    annotation(path, pod, "scheduler.alpha.kubernetes.io/critical-pod", CRITICAL, texts);
    annotation(path, pod, "security.alpha.kubernetes.io/sysctls", SYSCTLS, texts);
    annotation(path, pod, "security.alpha.kubernetes.io/unsafe-sysctls", SYSCTLS, texts);
}

fn names_of_hosts_and_secrets(path: &str, spec: &Value, texts: &mut Vec<String>) {
    for (members, key, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let mut seen = BTreeSet::new();
        for (index, item) in list(spec, &[members]).iter().enumerate() {
            let name = text(item, &[key]);
            if !seen.insert(name) {
                texts.push(format!("{path}.{members}[{index}].{key}: duplicate {what} {}", quoted(name)));
            }
        }
    }
    for (index, secret) in list(spec, &["imagePullSecrets"]).iter().enumerate() {
        if text(secret, &["name"]).is_empty() {
            texts.push(format!("{path}.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
}

/// Returns all containers of a spec with their paths, in upstream's order.
fn all_containers<'s>(path: &str, spec: &'s Value) -> Vec<(String, &'s Value)> {
    let kinds = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    kinds
        .flat_map(|kind| {
            let containers = list(spec, &[kind]).iter().enumerate();
            containers.map(move |(index, container)| (format!("{path}.{kind}[{index}]"), container))
        })
        .collect()
}

fn containers(path: &str, spec_path: &str, pod: &Value, texts: &mut Vec<String>) {
    let Some(spec) = pod.get("spec") else { return };
    let pod_profile = at(spec, &["securityContext", "appArmorProfile"]).is_some();
    for (place, container) in all_containers(spec_path, spec) {
        let name = text(container, &["name"]);
        if at(container, &["securityContext", "seccompProfile"]).is_none() {
            let key = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
            annotation(path, pod, &key, SECCOMP, texts);
        }
        let has_profile = pod_profile || at(container, &["securityContext", "appArmorProfile"]).is_some();
        if !path.is_empty() && !has_profile {
            let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
            annotation(path, pod, &key, APP_ARMOR, texts);
        }
        for resource in ["memory", "ephemeral-storage"] {
            for kind in ["limits", "requests"] {
                let path = format!("{place}.resources.{kind}");
                fractional(&path, at(container, &["resources", kind]), resource, texts);
            }
        }
        variables(&place, container, texts);
    }
}

/// Warns about variables that are set twice, unless the second value uses the first.
fn variables(path: &str, container: &Value, texts: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in list(container, &["env"]).iter().enumerate() {
        let (name, value) = (text(variable, &["name"]), text(variable, &["value"]));
        let reference = format!("$({name})");
        let continues =
            at(variable, &["valueFrom"]).is_none() && value != reference && value.contains(&reference);
        if !seen.insert(name) && !continues {
            texts.push(format!(
                "{path}.env[{index}]: hides previous definition of {}, which may be dropped when using apply",
                quoted(name)
            ));
        }
    }
}

/// Warns about ports of any containers that are equal, or may conflict.
fn ports(path: &str, spec: &Value, texts: &mut Vec<String>) {
    let containers = all_containers(path, spec);
    let all: Vec<(String, &Value)> = containers
        .iter()
        .flat_map(|(path, container)| {
            let ports = list(container, &["ports"]).iter().enumerate();
            ports.map(move |(index, port)| (format!("{path}.ports[{index}]"), port))
        })
        .collect();
    let mut by_number: BTreeMap<(i64, &str), Vec<(&str, &str, i64)>> = BTreeMap::new();
    for (path, port) in &all {
        let number = |key: &str| integer(port, &[key]).unwrap_or_default();
        let (ip, host_port) = (text(port, &["hostIP"]), number("hostPort"));
        if !ip.is_empty() && host_port == 0 {
            texts.push(format!("{path}: hostIP set without hostPort: {}", printed(port)));
        }
        let same = by_number.entry((number("containerPort"), text(port, &["protocol"]))).or_default();
        for (other, other_ip, other_port) in same.iter() {
            let what = if (ip, host_port) == (*other_ip, *other_port) {
                "duplicate"
            } else if host_port == 0 || *other_port == 0 {
                "overlapping"
            } else if host_port == *other_port && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            texts.push(format!("{path}: {what} port definition with {other}"));
        }
        same.push((path, ip, host_port));
    }
    let mut by_name: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, port) in &all {
        let name = text(port, &["name"]);
        if name.is_empty() {
            continue;
        }
        match by_name.get(name) {
            Some(other) => texts.push(format!(
                "{path}: duplicate port name {} with {other}, services and probes that select ports by name will use \
                 {other}",
                quoted(name)
            )),
            None => {
                by_name.insert(name, path);
            }
        }
    }
}

/// Formats a port as Go prints its type.
fn printed(port: &Value) -> String {
    let number = |key: &str| integer(port, &[key]).unwrap_or_default();
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        text(port, &["name"]),
        number("hostPort"),
        number("containerPort"),
        text(port, &["protocol"]),
        text(port, &["hostIP"])
    )
}

/// Warns about terms that select no pods.
fn affinity(path: &str, spec: &Value, texts: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in list(spec, &["affinity", kind, REQUIRED]).iter().enumerate() {
            if at(term, &["labelSelector"]).is_none() {
                texts.push(format!("{path}.affinity.{kind}.{REQUIRED}[{index}].{NO_SELECTOR}"));
            }
        }
        for (index, term) in list(spec, &["affinity", kind, PREFERRED]).iter().enumerate() {
            if at(term, &["podAffinityTerm", "labelSelector"]).is_none() {
                let place = format!("{path}.affinity.{kind}.{PREFERRED}[{index}]");
                texts.push(format!("{place}.podAffinityTerm.{NO_SELECTOR}"));
            }
        }
    }
}
