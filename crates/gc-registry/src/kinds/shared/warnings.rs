//! Warnings about settings that work, but not as their author may expect.

pub(crate) mod addresses;
pub(crate) mod node_labels;
pub(crate) mod pod;
pub(crate) mod volumes;

use serde_json::Value;

use crate::kinds::access::{at, integer};
use crate::metadata::meta;
use crate::metadata::names::dns_label;
use crate::metadata::quantity;

const IN_POD_NAMES: &str = "this is used in Pod names and hostnames, which can result in surprising behavior";
pub(crate) const IN_THE_HOSTNAME: &str =
    "this is used in the Pod's hostname, which can result in surprising behavior";
const OLD_CLASS: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Suffix of webhooks and policies that kube-apiserver reads from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// Returns the path of a member; an empty parent path is omitted.
fn below(path: &str, member: &str) -> String {
    if path.is_empty() { member.to_owned() } else { format!("{path}.{member}") }
}

/// Warns about a fractional number of bytes in a list of resources.
fn fractional(path: &str, resources: Option<&Value>, resource: &str, texts: &mut Vec<String>) {
    let Some(value) = resources.and_then(|resources| resources.get(resource)) else { return };
    if let Some(Ok(amount)) = quantity::of(value)
        && !amount.is_whole()
    {
        texts.push(format!(
            "{path}[{resource}]: fractional byte value \"{amount}\" is invalid, must be an integer"
        ));
    }
}

/// Warns about an annotation that should not be used.
pub(crate) fn annotation(object: &Value, key: &str, message: &str, texts: &mut Vec<String>) {
    if at(object, &["metadata", "annotations", key]).is_some() {
        texts.push(format!("metadata.annotations[{key}]: {message}"));
    }
}

/// Warns about a name that is not valid in host names although it becomes part of one.
pub(crate) fn name(object: &Value, why: &str, texts: &mut Vec<String>) {
    let problems = dns_label(meta::name(object));
    if !problems.is_empty() {
        texts.push(format!("metadata.name: {why}; a DNS label is recommended: [{}]", problems.join(" ")));
    }
}

/// Warns about a name that is reserved for configuration from files.
pub(crate) fn static_name(object: &Value, texts: &mut Vec<String>) {
    if meta::name(object).ends_with(STATIC_SUFFIX) {
        texts.push(format!(
            "metadata.name: names ending with {STATIC_SUFFIX:?} are reserved for static manifest-based configurations \
             and cannot be managed via the API"
        ));
    }
}

/// Warns about the name of an object from which its pods' names derive.
pub(crate) fn name_of_pods(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
    if old.is_none() {
        name(new, IN_POD_NAMES, texts);
    }
}

/// Warns about a pod template. For an update, only if it changes the desired state, and thus the generation.
pub(crate) fn template(path: &[&str], new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
    let generation = |object: &Value| integer(object, &["metadata", "generation"]);
    if old.is_none_or(|old| generation(old) != generation(new))
        && let Some(template) = at(new, path)
    {
        pod::pod(&path.join("."), template, texts);
    }
}

/// Warns about the former way to name the class of a volume or claim.
pub(crate) fn storage_class(object: &Value, texts: &mut Vec<String>) {
    annotation(object, CLASS_ANNOTATION, OLD_CLASS, texts);
}
