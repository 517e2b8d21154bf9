//! All consequences of a deletion.

mod container;
mod containers;
mod fates;
mod holds;
mod planner;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_ownership::PlanError;
use gc_types::{ObjectKey, PropagationPolicy, Uid};
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::facts::Facts;
use crate::stuck::Place;
use crate::survey::Survey;
use crate::text;
pub use fates::PUT_OFF;
use planner::Planner;

/// Planned fate of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Deleted.
    Deleted,
    /// Deleted once the controllers of its finalizers have done their work, or once what is stuck is released.
    Later,
    /// Marked for deletion, and never removed.
    Stuck,
    /// Kept, but loses owner references.
    Released,
}

impl Fate {
    /// Returns the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deleted => "Deleted",
            Self::Later => "DeletedLater",
            Self::Stuck => "Stuck",
            Self::Released => "Released",
        }
    }
}

/// Facts that objects of one resource share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemKind {
    /// `apiVersion`
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// `resource.group`, as command lines spell it.
    pub resource: String,
}

/// One object of a plan. There may be hundreds of thousands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Kind of the object.
    pub kind: Arc<ItemKind>,
    /// Namespace; empty at cluster scope.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Uid,
    /// Fate of the object.
    pub fate: Fate,
    /// Reasons why it is deleted later, is stuck, or is recreated; one remark each.
    pub remarks: Vec<String>,
    /// True if it was terminating already.
    pub is_terminating: bool,
}

impl Item {
    /// Returns the place of the object.
    #[must_use]
    pub fn place(&self) -> Place {
        let ItemKind { api_version, kind, resource } = &*self.kind;
        Place {
            api_version: api_version.clone(),
            kind: kind.clone(),
            resource: resource.clone(),
            namespace: self.namespace.to_string(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
        }
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut value = self.place().value();
        value["fate"] = self.fate.name().into();
        value["remarks"] = self.remarks.clone().into();
        value["terminating"] = self.is_terminating.into();
        value
    }

    /// Formats as `Kind/name`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.kind.kind, self.name)
    }

    /// Formats as `resource.group/name`, as command lines spell it.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}/{}", self.kind.resource, self.name)
    }
}

/// Storage that is lost with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostVolume {
    /// The PersistentVolume.
    pub name: String,
    /// The claim, `namespace/name`.
    pub claim: String,
    /// Capacity of the volume in bytes, if known.
    pub bytes: Option<i128>,
}

/// Consequences of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlastRadius {
    /// All affected objects, sorted by fate, kind and name.
    pub items: Vec<Item>,
    /// Volumes whose storage is lost.
    pub lost_volumes: Vec<LostVolume>,
    /// Volumes whose storage is lost once their stuck claims are released.
    pub lost_when_released: Vec<LostVolume>,
    /// Volumes that remain without a claim.
    pub retained_volumes: Vec<String>,
    /// Messages about deletions that would be stuck.
    pub stuck: Vec<String>,
    /// Objects that controllers recreate.
    pub recreated: Vec<String>,
    /// Deletions that the API server would refuse, with the reasons.
    pub refused: Vec<String>,
    /// Objects that the requesting user may not delete.
    pub forbidden: Vec<String>,
    /// Admission webhooks and policies that may still refuse some of the deletions.
    pub webhooks: Vec<String>,
    /// Objects whose deletion these webhooks and policies decide about.
    pub undecided: Vec<Place>,
    /// Edges for drawings: indexes of owner and dependent in `items`.
    pub edges: Vec<(u32, u32)>,
    /// Owners that could not be resolved and count as living.
    pub assumed_living: Vec<String>,
}

/// One requested deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Key of the object.
    pub key: ObjectKey,
    /// UID of the object.
    pub uid: Uid,
    /// Propagation to its dependents.
    pub policy: Option<PropagationPolicy>,
}

/// Plans these deletions, assuming that everything else stays as it is.
pub fn plan(
    survey: &Survey,
    facts: &Facts,
    targets: &[Target],
    limit: usize,
) -> Result<BlastRadius, PlanError> {
    let mut refused = Vec::new();
    let admission = Admission::new(survey, facts);
    let is_accepted = |target: &&Target| {
        let why = refusal(survey, &target.key).or_else(|| {
            let is_terminating = survey.terminating().contains_key(&target.key);
            let said = || facts.refused(&target.uid).map(str::to_owned);
            let why = admission.refuses(&target.key).or_else(said).filter(|_| !is_terminating)?;
            Some(format!("{}: {why}", title(survey, &target.key)))
        });
        refused.extend(why.clone());
        why.is_none()
    };
    let accepted: Vec<Target> = targets.iter().filter(is_accepted).cloned().collect();
    let radius = Planner::new(survey, facts, &accepted).plan(limit)?;
    Ok(BlastRadius { refused, ..radius })
}

/// Returns the error with which the API server would refuse to delete the object, if it would.
fn refusal(survey: &Survey, key: &ObjectKey) -> Option<String> {
    let resource = survey.resource(key)?;
    let why = gc_types::undeletable(&resource.name.group, &resource.name.resource, &key.name)?;
    Some(format!("{}: {why}", title(survey, key)))
}

fn title(survey: &Survey, key: &ObjectKey) -> String {
    let kind = survey.resource(key).map(|resource| &*resource.kind).unwrap_or_default();
    format!("{kind}/{}", key.name)
}

impl BlastRadius {
    /// Reports whether a deletion would never complete, or would be refused.
    #[must_use]
    pub fn would_get_stuck(&self) -> bool {
        !self.refused.is_empty() || !self.forbidden.is_empty() || self.has_stuck()
    }

    fn has_stuck(&self) -> bool {
        !self.stuck.is_empty() || self.items.iter().any(|item| item.fate == Fate::Stuck)
    }

    /// Returns the number of objects with this fate.
    #[must_use]
    pub fn count(&self, fate: Fate) -> usize {
        self.items.iter().filter(|item| item.fate == fate).count()
    }

    /// Returns its objects by fate and kind.
    #[must_use]
    pub fn groups(&self) -> BTreeMap<(Fate, &str), Vec<&Item>> {
        let mut groups: BTreeMap<(Fate, &str), Vec<&Item>> = BTreeMap::new();
        for item in &self.items {
            groups.entry((item.fate, &item.kind.kind)).or_default().push(item);
        }
        groups
    }

    /// Summarizes in one line the number of objects by kind, the lost storage, and what gets stuck.
    #[must_use]
    pub fn summary(&self) -> String {
        if self.items.is_empty() && !self.refused.is_empty() {
            return "nothing: the server refuses the deletion".to_owned();
        }
        let forbidden = (!self.forbidden.is_empty())
            .then(|| format!("this user may not delete {}", text::some_of(&self.forbidden, 3)));
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        let going: Vec<&Item> = self.items.iter().filter(|item| item.fate != Fate::Released).collect();
        for item in &going {
            *kinds.entry(&item.kind.kind).or_default() += 1;
        }
        let mut kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(kind, number)| (std::cmp::Reverse(*number), *kind));
        let named: Vec<String> = kinds.iter().map(|(kind, number)| text::count(*number, kind)).collect();
        let mut parts = vec![format!("{}: {}", text::count(going.len(), "object"), text::some_of(&named, 6))];
        let volumes = self.lost_volumes.len();
        if volumes > 0 {
            let bytes: i128 = self.lost_volumes.iter().filter_map(|volume| volume.bytes).sum();
            let verb = if volumes == 1 { "is" } else { "are" };
            parts.push(format!("{} with {} {verb} lost", text::count(volumes, "volume"), gibibytes(bytes)));
        }
        let later = &self.lost_when_released;
        if !later.is_empty() {
            let bytes: i128 = later.iter().filter_map(|volume| volume.bytes).sum();
            let volumes = text::count(later.len(), "volume");
            parts.push(format!("lost when released: {volumes}, {}", gibibytes(bytes)));
        }
        for (fate, word) in [(Fate::Later, "deleted later"), (Fate::Released, "released")] {
            match self.count(fate) {
                0 => {}
                number => parts.push(format!("{} {word}", text::thousands(number))),
            }
        }
        if !self.refused.is_empty() {
            parts.push(format!("{} refused", text::thousands(self.refused.len())));
        }
        parts.extend(forbidden);
        parts.push(match self.count(Fate::Stuck) {
            0 if !self.has_stuck() => "nothing gets stuck".to_owned(),
            number => format!("{} stuck", text::thousands(number)),
        });
        parts.join("; ")
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        let volume = |volume: &LostVolume| {
            let bytes = volume.bytes.and_then(|bytes| i64::try_from(bytes).ok());
            json!({"name": volume.name, "claim": volume.claim, "bytes": bytes})
        };
        json!({
            "summary": self.summary(), "items": self.items.iter().map(Item::value).collect::<Vec<_>>(),
            "lostVolumes": self.lost_volumes.iter().map(volume).collect::<Vec<_>>(),
            "lostWhenReleased": self.lost_when_released.iter().map(volume).collect::<Vec<_>>(),
            "retainedVolumes": self.retained_volumes, "stuck": self.stuck, "recreated": self.recreated,
            "assumedLiving": self.assumed_living, "refused": self.refused, "webhooks": self.webhooks,
            "forbidden": self.forbidden,
        })
    }
}

/// Formats bytes in a suitable unit.
#[must_use]
pub fn gibibytes(bytes: i128) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB")] {
        if bytes >= 1 << shift {
            let tenths = (bytes * 10) >> shift;
            let fraction = if tenths % 10 == 0 { String::new() } else { format!(".{}", tenths % 10) };
            return format!("{}{fraction} {unit}", tenths / 10);
        }
    }
    format!("{bytes} bytes")
}
