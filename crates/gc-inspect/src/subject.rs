//! Subject of a question, and the confirmation of its answer.

use gc_explain::plan::{BlastRadius, Fate};

/// An object as a question names it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subject {
    /// `deployments.apps`, or any other word for it that kubectl knows.
    pub resource: String,
    /// Empty at cluster scope.
    #[serde(default)]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Confirmed figures of a shown plan.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmedPlan {
    /// The UID of the object.
    pub uid: String,
    /// Number of objects that the plan deletes.
    pub objects: usize,
    /// Number of volumes that it loses.
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
