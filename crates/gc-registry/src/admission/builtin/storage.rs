//! DefaultStorageClass, StorageObjectInUseProtection and PersistentVolumeClaimResize.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::{at, child, flag, put, text};
use crate::metadata::meta;
use crate::metadata::quantity;

/// Annotation with the class of a claim, from before it was a field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotations that mark the default class.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Returns the default class: the newest, and of several the first by name.
pub(crate) fn newest_default(classes: &[Value], is_default: impl Fn(&Value) -> bool) -> Option<String> {
    classes
        .iter()
        .filter(|class| is_default(class))
        .min_by_key(|class| (Reverse(meta::text(class, "creationTimestamp")), meta::name(class)))
        .map(|class| meta::name(class).to_owned())
}

/// Sets the default class of a claim without a class.
pub(crate) fn default_class(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.creates("", "persistentvolumeclaims")
        || at(new, &["spec", "storageClassName"]).is_some()
        || at(new, &["metadata", "annotations", BETA_CLASS]).is_some()
    {
        return Ok(());
    }
    let classes = request.all("storage.k8s.io", "storageclasses", "")?;
    let is_default = |class: &Value| {
        DEFAULT_CLASS.iter().any(|name| text(class, &["metadata", "annotations", name]) == "true")
    };
    if let Some(name) = newest_default(&classes, is_default) {
        put(new, &["spec", "storageClassName"], name.into());
    }
    Ok(())
}

/// Adds the finalizer that protects an object in use.
#[allow(clippy::unnecessary_wraps)] // all plugins have one form
pub(crate) fn protect(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    let finalizer = if request.creates("", "persistentvolumes") {
        "kubernetes.io/pv-protection"
    } else if request.creates("", "persistentvolumeclaims") {
        "kubernetes.io/pvc-protection"
    } else if request.creates("storage.k8s.io", "volumeattributesclasses") {
        "kubernetes.io/vac-protection"
    } else {
        return Ok(());
    };
    let Some(metadata) = new.as_object_mut().and_then(|members| child(members, "metadata")) else {
        return Ok(());
    };
    let finalizers = metadata.entry("finalizers").or_insert(Value::Null);
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|have| have == finalizer)
    {
        finalizers.push(finalizer.into());
    }
    Ok(())
}

/// Permits a claim to grow only if it is bound and its class allows it.
pub(crate) fn check_resize(request: &Request<'_>, new: &Value, _: &mut Vec<String>) -> Result<(), ApiError> {
    let Some(old) = request.old.filter(|_| request.writes("", "persistentvolumeclaims")) else {
        return Ok(());
    };
    let size = |claim: &Value| {
        at(claim, &["spec", "resources", "requests", "storage"])
            .and_then(quantity::of)
            .and_then(Result::ok)
            .unwrap_or_default()
    };
    if !size(new).exceeds(size(old)) {
        return Ok(());
    }
    if text(old, &["status", "phase"]) != "Bound" {
        return Err(request.forbidden(new, "Only bound persistent volume claims can be expanded"));
    }
    let class = |claim: &Value| {
        let beta = text(claim, &["metadata", "annotations", BETA_CLASS]);
        if beta.is_empty() { text(claim, &["spec", "storageClassName"]).to_owned() } else { beta.to_owned() }
    };
    let name = class(new);
    let same = !name.is_empty() && name == class(old);
    let class = if same { request.read("storage.k8s.io", "storageclasses", "", &name)? } else { None };
    if class.is_some_and(|class| flag(&class, &["allowVolumeExpansion"]) == Some(true)) {
        return Ok(());
    }
    Err(request.forbidden(
        new,
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}
