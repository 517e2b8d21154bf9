//! The condition `Unused` of claims (spec `cluster-collectors.md`, 7.6; upstream's gate `PersistentVolumeClaimUnusedSinceTime`):
//! since when no pod has referred to a claim, or that one does.

use std::sync::Arc;

use gc_types::{Change, Timestamp};
use serde_json::json;

use crate::engine::{Decision, reason};
use crate::objects::{Claim, Kind, Phase, Pod, UNUSED_CONDITION, time_text};

/// Reports whether a pod refers to a claim in its namespace and has not ended, with or without a node.
pub(crate) fn refers(claim: &Claim, pod: &Pod) -> bool {
    let own = claim.controller.as_ref() == Some(&pod.meta.uid);
    let ended = matches!(pod.phase, Phase::Succeeded | Phase::Failed) || (pod.meta.deleting && pod.idle);
    let names = |name: &Arc<str>| *name == claim.meta.name;
    !ended
        && pod.meta.namespace == claim.meta.namespace
        && pod.claims.iter().any(|used| names(&used.claim) && (!used.ephemeral || own))
}

/// Returns the update of the condition to `unused` since `since`.
pub(crate) fn set(claim: &Claim, unused: bool, since: Timestamp) -> Decision {
    let meta = &claim.meta;
    let (status, why, message) = if unused {
        ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    } else {
        ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
    };
    let condition = json!({"type": UNUSED_CONDITION, "status": status, "reason": why, "message": message,
        "lastTransitionTime": time_text(since)});
    let request =
        Kind::Claim.guarded(meta, Change::Status(json!({"conditions": [condition]}).to_string().into()));
    let fact = if unused { "a live list found no pod that refers to it" } else { "a pod refers to it" };
    let verdict = gc_types::codes::CLAIM_CONDITION_OUTDATED;
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact.to_owned()]))
}
