//! Built-in kinds with more than one form, of which one is stored: events as core/v1, and HorizontalPodAutoscalers as
//! autoscaling/v2.

use serde_json::Value;

use crate::kinds;
use crate::resource::ResourceDefinition;

/// Conversion between the requested and the stored form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// None, except for apiVersion.
    Same,
    /// Stored in another group or version with the same kind.
    StoredAs(&'static str, &'static str),
}

/// Returns the conversion of a resource.
pub(crate) fn conversion(resource: &ResourceDefinition) -> Conversion {
    if resource.custom.is_some() {
        return Conversion::Same;
    }
    match (&*resource.group, &*resource.version, &*resource.resource) {
        ("events.k8s.io", _, "events") => Conversion::StoredAs("", "v1"),
        ("autoscaling", "v1", "horizontalpodautoscalers") => Conversion::StoredAs("autoscaling", "v2"),
        _ => Conversion::Same,
    }
}

/// Reports whether objects of a built-in kind are served as they are stored.
pub(crate) fn is_as_stored(resource: &ResourceDefinition) -> bool {
    resource.custom.is_none() && conversion(resource) == Conversion::Same
}

/// From the form that is served, with its apiVersion, to the stored one. `None` if they are the same.
pub(crate) fn to_stored(resource: &ResourceDefinition, object: &Value) -> Option<Value> {
    match conversion(resource) {
        Conversion::Same => None,
        Conversion::StoredAs(group, version) => {
            Some(kinds::convert::convert(group, version, &resource.kind, object))
        }
    }
}

/// Converts an object from the stored form, which has no apiVersion, to the served one, which has.
pub(crate) fn from_stored(resource: &ResourceDefinition, mut object: Value) -> Value {
    if let Conversion::StoredAs(group, version) = conversion(resource)
        && let Some(map) = object.as_object_mut()
    {
        let stored = gc_types::api_version(group, version);
        map.insert("apiVersion".into(), stored.into());
        return kinds::convert::convert(&resource.group, &resource.version, &resource.kind, &object);
    }
    object
}
