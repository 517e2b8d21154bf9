//! Warnings about what works, but not as its author may think.

mod addresses;
mod node_labels;
mod pod;
mod volumes;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::kinds::access::{at, integer, list, text};
use crate::kinds::quantity;
use crate::meta;
use crate::names::{dns_label, quoted};
use crate::resource::Target;

const IN_POD_NAMES: &str = "this is used in Pod names and hostnames, which can result in surprising behavior";
const IN_THE_HOSTNAME: &str = "this is used in the Pod's hostname, which can result in surprising behavior";
const OLD_CLASS: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";
const OLD_OPTIONS: &str = "deprecated since v1.31; use \"mountOptions\" attribute instead";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

/// The texts of Warning headers that creating (`old` is `None`) or updating an object calls for.
#[must_use]
pub fn warnings(target: Target<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    if target.subresource.is_some() {
        return Vec::new();
    }
    let mut texts = Vec::new();
    match (target.group, target.resource) {
        // People seldom update pods, and controllers do it often.
        ("", "pods") if old.is_none() => {
            name(new, IN_THE_HOSTNAME, &mut texts);
            pod::pod("", new, &mut texts);
        }
        ("", "podtemplates") => pod::pod("template", new.get("template").unwrap_or(&Value::Null), &mut texts),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs" | "cronjobs") => workload(target, new, old, &mut texts),
        ("", "secrets") => certificate(new, &mut texts),
        ("", "persistentvolumes") => persistent_volume(new, &mut texts),
        ("", "persistentvolumeclaims") => {
            annotation(new, CLASS_ANNOTATION, OLD_CLASS, &mut texts);
            volumes::claim("spec", new.get("spec"), &mut texts);
        }
        ("", "services") => service(new, &mut texts),
        ("", "nodes") => node(new, &mut texts),
        ("", "endpoints") => addresses::endpoints(new, &mut texts),
        ("discovery.k8s.io", "endpointslices") => addresses::endpoint_slice(new, old.is_none(), &mut texts),
        ("networking.k8s.io", "networkpolicies") => addresses::network_policy(new, &mut texts),
        ("networking.k8s.io", "ingresses") if old.is_none() => ingress(new, &mut texts),
        ("node.k8s.io", "runtimeclasses") => {
            let labels = node_labels::in_map(at(new, &["scheduling", "nodeSelector"]));
            texts.extend(labels.map(|(_, message)| format!("scheduling.nodeSelector: {message}")));
        }
        ("storage.k8s.io", "csidrivers") => csi_driver(new, old, &mut texts),
        ("storage.k8s.io", "csistoragecapacities") => {
            node_labels::in_selector("nodeTopology", at(new, &["nodeTopology"]), &mut texts);
        }
        ("storage.k8s.io", "storageclasses") => topologies(new, &mut texts),
        ("resource.k8s.io", "resourceslices") => {
            let driver = text(new, &["spec", "driver"]);
            if driver != driver.to_lowercase() {
                let shown = quoted(driver);
                texts.push(format!(
                    "spec.driver: driver names should be lowercase; {shown} contains uppercase characters"
                ));
            }
        }
        _ => {}
    }
    texts
}

/// The path of a member; a path of nothing is left out.
fn below(path: &str, member: &str) -> String {
    if path.is_empty() { member.to_owned() } else { format!("{path}.{member}") }
}

/// A number of bytes of a list of resources that is none.
fn fractional(path: &str, resources: Option<&Value>, resource: &str, texts: &mut Vec<String>) {
    let Some(value) = resources.and_then(|resources| resources.get(resource)) else { return };
    if let Some(Ok(amount)) = quantity::of(value)
        && amount.is_fractional()
    {
        texts.push(format!(
            "{path}[{resource}]: fractional byte value \"{amount}\" is invalid, must be an integer"
        ));
    }
}

fn annotation(object: &Value, key: &str, message: &str, texts: &mut Vec<String>) {
    if at(object, &["metadata", "annotations", key]).is_some() {
        texts.push(format!("metadata.annotations[{key}]: {message}"));
    }
}

/// A name that becomes a part of names of hosts should be one.
fn name(object: &Value, why: &str, texts: &mut Vec<String>) {
    let problems = dns_label(meta::name(object));
    if !problems.is_empty() {
        texts.push(format!("metadata.name: {why}; a DNS label is recommended: [{}]", problems.join(" ")));
    }
}

/// What has a template of pods. An update warns when it changes what is wanted, which its generation counts.
fn workload(target: Target<'_>, new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
    let generation = |object: &Value| integer(object, &["metadata", "generation"]);
    let is_changed = old.is_none_or(|old| generation(old) != generation(new));
    if old.is_none() && !matches!(target.resource, "statefulsets" | "daemonsets") {
        name(new, IN_POD_NAMES, texts);
    }
    let path: &[&str] = match target.resource {
        "cronjobs" => &["spec", "jobTemplate", "spec", "template"],
        _ => &["spec", "template"],
    };
    if is_changed && let Some(template) = at(new, path) {
        pod::pod(&path.join("."), template, texts);
    }
    match target.resource {
        "cronjobs" if text(new, &["spec", "schedule"]).contains("TZ") => texts.push(
            "CRON_TZ or TZ used in spec.schedule is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .into(),
        ),
        "statefulsets" => {
            if integer(new, &["spec", "revisionHistoryLimit"]).is_some_and(|limit| limit < 0) {
                texts.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                     recommended"
                        .into(),
                );
            }
            for (index, claim) in list(new, &["spec", "volumeClaimTemplates"]).iter().enumerate() {
                volumes::claim(&format!("spec.volumeClaimTemplates[{index}]"), claim.get("spec"), texts);
            }
        }
        _ => {}
    }
}

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

fn persistent_volume(volume: &Value, texts: &mut Vec<String>) {
    annotation(volume, CLASS_ANNOTATION, OLD_CLASS, texts);
    annotation(volume, OPTIONS_ANNOTATION, OLD_OPTIONS, texts);
    if text(volume, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
        texts.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .into(),
        );
    }
    let terms = list(volume, &["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    for (index, term) in terms.iter().enumerate() {
        let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]");
        node_labels::in_term(&path, term, false, texts);
    }
    if let Some(spec) = volume.get("spec") {
        volumes::gone_source("spec", spec, false, texts);
    }
}

fn service(object: &Value, texts: &mut Vec<String>) {
    let spec = |key: &str| text(object, &["spec", key]);
    let external = list(object, &["spec", "externalIPs"]);
    let (kind, headless) = (spec("type"), spec("type") == "ClusterIP" && spec("clusterIP") == "None");
    let hints = "service.kubernetes.io/topology-aware-hints";
    if at(object, &["metadata", "annotations", hints]).is_some() {
        texts.push(format!(
            "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    if !matches!(spec("clusterIP"), "" | "None") {
        addresses::ips("spec.clusterIPs", list(object, &["spec", "clusterIPs"]), texts);
    }
    if headless {
        for (ignored, is_set) in [
            ("loadBalancerIP", !spec("loadBalancerIP").is_empty()),
            ("externalIPs", !external.is_empty()),
            ("SessionAffinity", spec("sessionAffinity") != "None"),
        ] {
            if is_set {
                texts.push(format!("spec.{ignored} is ignored for headless services"));
            }
        }
    }
    addresses::ips("spec.externalIPs", external, texts);
    if !external.is_empty() && !headless && kind != "ExternalName" {
        texts.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    addresses::ip("spec.loadBalancerIP", spec("loadBalancerIP"), texts);
    let ranges = list(object, &["spec", "loadBalancerSourceRanges"]);
    addresses::cidrs("spec.loadBalancerSourceRanges", ranges, texts);
    if kind == "ExternalName" && !external.is_empty() {
        texts.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if kind != "ExternalName" && !spec("externalName").is_empty() {
        texts.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if spec("trafficDistribution") == "PreferClose" {
        texts.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
}

fn node(object: &Value, texts: &mut Vec<String>) {
    if !text(object, &["spec", "externalID"]).is_empty() {
        texts.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
    }
    addresses::cidrs("spec.podCIDRs", list(object, &["spec", "podCIDRs"]), texts);
}

fn ingress(object: &Value, texts: &mut Vec<String>) {
    let key = "kubernetes.io/ingress.class";
    if at(object, &["metadata", "annotations", key]).is_some() {
        texts.push(format!(
            "annotation {} is deprecated, please use 'spec.ingressClassName' instead",
            quoted(key)
        ));
    }
}

/// Tokens that a create or a change of their requests puts where drivers may log them.
fn csi_driver(object: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
    let requests = |object| list(object, &["spec", "tokenRequests"]);
    if !requests(object).is_empty()
        && old.is_none_or(|old| requests(old) != requests(object))
        && at(object, &["spec", "serviceAccountTokenInSecrets"]).is_none()
    {
        texts.push(
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
             possible logging of tokens in volume attributes"
                .into(),
        );
    }
}

fn topologies(class: &Value, texts: &mut Vec<String>) {
    for (index, term) in list(class, &["allowedTopologies"]).iter().enumerate() {
        for (number, expression) in list(term, &["matchLabelExpressions"]).iter().enumerate() {
            if let Some(message) = node_labels::message(text(expression, &["key"])) {
                texts.push(format!(
                    "allowedTopologies[{index}].matchLabelExpressions[{number}].key: {message}"
                ));
            }
        }
    }
}
