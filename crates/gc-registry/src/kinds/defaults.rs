//! The defaults of every built-in kind, and the form that a typed server gives to what it stores: no nulls, no
//! empty lists, the members that are always written.
//!
//! Applying them twice is the same as applying them once.

pub(crate) mod normal;

use serde_json::Value;

use super::access::child;
use super::served;
use crate::target::Target;

/// Fills in what kube-apiserver fills in when it decodes an object of this resource, and puts the object into
/// the form in which a typed server writes it. To be called after every decoding: of a request body, of the
/// outcome of a patch, and before comparing with a stored object.
///
/// Scale, eviction, binding and other subresources with a body of their own are left alone.
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
