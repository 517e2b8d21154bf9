//! ResourceClaims of a pod, which waits until each exists and has devices.

use serde_json::Value;

use crate::kinds::Kind;
use crate::object::{Object, items};
use crate::plan::View;
use crate::selector;

/// ResourceClaims of a pod, as its scheduling sees them.
pub(super) enum Devices<'a> {
    /// A claim does not exist yet. Nothing is written, so that the claim's creator finds the pod unchanged.
    Missing,
    /// These claims exist.
    Claims(Vec<&'a Object>),
}

/// Returns the names of a pod's claims; `None` for one that is to be created from a template. There is none if the status says that
/// no claim is needed.
fn names(pod: &Object) -> impl Iterator<Item = Option<&str>> {
    items(&pod.spec()["resourceClaims"]).filter_map(|reference| {
        if let Some(name) = reference["resourceClaimName"].as_str() {
            return Some(Some(name));
        }
        let mut statuses = items(&pod.status()["resourceClaimStatuses"]);
        match statuses.find(|status| status["name"] == reference["name"]) {
            None => Some(None),
            Some(status) => status["resourceClaimName"].as_str().map(Some),
        }
    })
}

/// Reports whether a pod uses a claim in its namespace.
pub(super) fn uses(pod: &Object, claim: &str) -> bool {
    names(pod).any(|name| name == Some(claim))
}

/// Returns the claims of a pod, if all of them exist.
pub(super) fn of_pod<'a>(view: &View<'a>, pod: &Object) -> Devices<'a> {
    let find = |name: Option<&str>| {
        let claim = view.store.find(Kind::ResourceClaim, pod.namespace(), name?)?;
        (!claim.deleting).then_some(&**claim)
    };
    names(pod).map(find).collect::<Option<Vec<_>>>().map_or(Devices::Missing, Devices::Claims)
}

/// Explains why claims prevent a pod from running on a node; `None` if they do not.
pub(super) fn reason_against(claims: &[&Object], node: &Object) -> Option<&'static str> {
    claims.iter().find_map(|claim| {
        let allocation = &claim.status()["allocation"];
        if allocation == &Value::Null {
            return Some("cannot allocate all claims");
        }
        let is_near = selector::selects_terms(&allocation["nodeSelector"], node);
        (!is_near).then_some("resourceclaim not available on the node")
    })
}
