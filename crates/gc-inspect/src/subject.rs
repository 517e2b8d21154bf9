//! Subject of a query, and the confirmation of its answer.

use gc_explain::plan::{BlastRadius, Fate};

/// An object, as a query names it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subject {
    /// `deployments.apps`, or any other word for it that kubectl knows.
    pub resource: String,
    /// Namespace; empty at cluster scope.
    #[serde(default)]
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// Figures of a plan that the user has seen and confirms.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmedPlan {
    /// The UID of the object.
    pub uid: String,
    /// Number of objects that the plan deletes.
    pub objects: usize,
    /// Number of volumes whose storage it loses.
    pub lost_volumes: usize,
}

impl ConfirmedPlan {
    /// Returns the figures to confirm for this target.
    #[must_use]
    pub fn of(radius: &BlastRadius, target: &gc_explain::plan::Target) -> Self {
        Self {
            uid: target.uid.to_string(),
            objects: radius.items.len() - radius.count(Fate::Released),
            lost_volumes: radius.lost_volumes.len(),
        }
    }
}
