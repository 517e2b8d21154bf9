//! DefaultIngressClass.

use serde_json::Value;

use super::storage::newest_default;
use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::{at, put, text};

/// Annotation with the class, from before it was a field.
const ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Sets the default class of an Ingress without a class.
pub(crate) fn default_class(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.creates("networking.k8s.io", "ingresses")
        || at(new, &["spec", "ingressClassName"]).is_some()
        || at(new, &["metadata", "annotations", ANNOTATION]).is_some()
    {
        return Ok(());
    }
    let classes = request.all("networking.k8s.io", "ingressclasses", "")?;
    let is_default = |class: &Value| {
        text(class, &["metadata", "annotations", "ingressclass.kubernetes.io/is-default-class"]) == "true"
    };
    if let Some(name) = newest_default(&classes, is_default) {
        put(new, &["spec", "ingressClassName"], name.into());
    }
    Ok(())
}
