//! Warnings about what works, but not as its author may think.

use serde_json::Value;

use crate::kinds::access::{at, list, text};
use crate::resource::Target;

/// The texts of Warning headers that creating (`old` is `None`) or updating an object calls for.
#[must_use]
pub fn warnings(target: Target<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    if target.subresource.is_some() {
        return Vec::new();
    }
    let mut texts = Vec::new();
    match (target.group, target.resource) {
        ("", "pods") if old.is_none() => pod_spec("spec", new.get("spec"), &mut texts),
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
        ("", "persistentvolumes") if text(new, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" => {
            texts.push(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                     recommended approach is to use dynamic provisioning."
                    .into(),
            );
        }
        _ => {}
    }
    texts
}

fn template(path: &str, template: Option<&Value>, texts: &mut Vec<String>) {
    if let Some(template) = template {
        pod_spec(&format!("{path}.spec"), template.get("spec"), texts);
    }
}

fn pod_spec(path: &str, spec: Option<&Value>, texts: &mut Vec<String>) {
    let Some(spec) = spec else { return };
    if let Some(selector) = at(spec, &["nodeSelector"]).and_then(Value::as_object) {
        for (old, new) in [
            ("beta.kubernetes.io/os", "kubernetes.io/os"),
            ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
            ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
            ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
            ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ] {
            if selector.contains_key(old) {
                texts.push(format!("{path}.nodeSelector[{old}]: deprecated; use \"{new}\" instead"));
            }
        }
    }
    for key in ["initContainers", "containers"] {
        for (index, container) in list(spec, &[key]).iter().enumerate() {
            let variables = list(container, &["env"]);
            for (at, variable) in variables.iter().enumerate() {
                let name = text(variable, &["name"]);
                if variables[..at].iter().any(|before| text(before, &["name"]) == name) {
                    texts.push(format!(
                        "{path}.{key}[{index}].env[{at}]: hides previous definition of \"{name}\", which may be \
                         dropped when using apply"
                    ));
                }
            }
        }
    }
}
