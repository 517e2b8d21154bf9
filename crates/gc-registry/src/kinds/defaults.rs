//! Defaults of every built-in kind, and the form that a typed server gives to stored objects: no nulls, no empty lists, and the
//! members that are always written.
//!
//! Both are idempotent.

pub(crate) mod normal;

use serde_json::Value;

use super::access::child;
use super::served;
use crate::target::Target;

/// Sets the defaults that kube-apiserver sets when it decodes an object of this resource, and normalizes the object as a typed
/// server writes it. Must be called after every decoding: of a request body, of the result of a patch, and before a comparison with
/// a stored object.
///
/// Scale, eviction, binding and other subresources with their own body are not changed.
pub fn apply_defaults(target: Target<'_>, object: &mut Value) {
    let Some(kind) = served::of(target) else { return };
    let is_whole = |name| name == "status" || kind.subresources.contains(&name);
    if !target.subresource.is_none_or(is_whole) {
        return;
    }
    (kind.normalize)(target, object);
    let Some(members) = object.as_object_mut() else { return };
    (kind.defaults)(members);
    for part in kind.parts.written() {
        child(members, part);
    }
}
