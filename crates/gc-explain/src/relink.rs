//! Repairs owner references after a restore, when dependents name owners by UIDs that no longer exist, or name none: Velero removes
//! the owner references of everything it creates. Finds the objects that now stand in the owners' place, on the evidence of a
//! backup, a journal or a map. A name alone proves nothing: a recreated object does not own the dependents of its predecessor.

mod advice;
mod backup;
mod cluster;
mod owners;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::catalog::GroupResource;
use crate::stuck::Place;
use crate::text::thousands;
pub use advice::Advice;
pub use backup::Backup;
pub use cluster::Cluster;

/// Identity of an object without its UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty at cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Returns the group of an `apiVersion`.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl Identity {
    /// Returns the UID, which may be empty, and the identity of a whole object.
    fn in_object(object: &Value) -> Option<(String, Self)> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        (!kind.is_empty() && !name.is_empty()).then(|| {
            let identity = Self {
                group: group_of(text("/apiVersion")).to_owned(),
                kind: kind.to_owned(),
                namespace: text("/metadata/namespace").to_owned(),
                name: name.to_owned(),
            };
            (text("/metadata/uid").to_owned(), identity)
        })
    }

    /// Returns the same identity in another namespace; cluster-scoped ones have none to change.
    fn moved(&self, namespace: &str) -> Self {
        let namespace = if self.namespace.is_empty() { "" } else { namespace };
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }
}

/// Knowledge about former UIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Identities by former UID, from journals.
    pub identities: BTreeMap<String, Identity>,
    /// New UIDs by former UID, as given by the user.
    pub map: BTreeMap<String, String>,
    /// The backup that was restored, if one is compared.
    pub backup: Option<Backup>,
}

/// Reason why a reference is left as it is, or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Nothing is known about the UID.
    NoEvidence,
    /// No object exists where the owner was.
    OwnerAbsent,
    /// The object in the owner's place is being deleted.
    OwnerTerminating,
    /// The named owner has another kind, or is in a namespace that the object cannot refer to.
    OwnerUnfit,
    /// An object has the owner's name, but neither its UID nor a restore's label identifies it as the owner.
    OwnerRecreated,
    /// The owner's kind is not served.
    KindNotServed,
    /// The owner or the object may exist: its kind could not be listed.
    Unread,
    /// Another object already had the owner's name when the backup was made.
    StaleInBackup,
    /// The object is being deleted, which cannot be stopped.
    Terminating,
    /// The object does not exist.
    NotRestored,
    /// The object does not exist, because no restore creates finished Jobs and pods.
    Finished,
    /// The object does not exist, because it belongs to a node.
    OfNode,
    /// An object has its name, but neither its UID nor a restore's label identifies it as the one of the backup.
    ObjectRecreated,
    /// Another controller owns the object.
    OtherController,
    /// The volume is bound to another claim, or the claim to another volume.
    BoundElsewhere,
}

impl Left {
    /// Returns the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEvidence => "NoEvidence",
            Self::OwnerAbsent => "OwnerAbsent",
            Self::OwnerTerminating => "OwnerTerminating",
            Self::OwnerUnfit => "OwnerUnfit",
            Self::OwnerRecreated => "OwnerRecreated",
            Self::KindNotServed => "KindNotServed",
            Self::Unread => "Unread",
            Self::StaleInBackup => "StaleInBackup",
            Self::Terminating => "Terminating",
            Self::NotRestored => "NotRestored",
            Self::Finished => "Finished",
            Self::OfNode => "OfNode",
            Self::ObjectRecreated => "ObjectRecreated",
            Self::OtherController => "OtherController",
            Self::BoundElsewhere => "BoundElsewhere",
        }
    }

    /// Reports whether no restore ever brings the reference back. Such references do not count as missing: a restore that leaves
    /// only these is complete.
    #[must_use]
    pub const fn is_by_design(self) -> bool {
        matches!(self, Self::Finished | Self::OfNode | Self::StaleInBackup)
    }

    /// Returns the human-readable reason.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoEvidence => "nothing says what the UID was",
            Self::OwnerAbsent => "the owner was not restored",
            Self::OwnerTerminating => "the owner is being deleted",
            Self::OwnerUnfit => "the owner is of another kind, or in another namespace",
            Self::OwnerRecreated => "the owner was created again, not restored",
            Self::KindNotServed => "the owner's kind is not served",
            Self::Unread => "it could not be listed",
            Self::StaleInBackup => "it led nowhere in the backup",
            Self::Terminating => "the object is being deleted already",
            Self::NotRestored => "the object was not restored",
            Self::Finished => "no restore creates finished Jobs and pods",
            Self::OfNode => "the object belongs to a node",
            Self::ObjectRecreated => "the object was created again, not restored",
            Self::OtherController => "another controller owns the object",
            Self::BoundElsewhere => "the volume or the claim is bound to another one",
        }
    }
}

/// Evidence that a living owner is the former one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Has the UID from the backup.
    NeverDeleted,
    /// Has a restore's labels, with the names of the backup and the restore.
    Restored(String, String),
    /// `kubegc undo` created it.
    Undone,
    /// At its place in the backup, and no restore has left labels.
    Place,
    /// At the place where a journal has recorded the owner.
    Journal,
    /// The user says so.
    Map,
}

impl Proof {
    /// Returns the code.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NeverDeleted => "NeverDeleted",
            Self::Restored(..) => "Restored",
            Self::Undone => "Undone",
            Self::Place => "Place",
            Self::Journal => "Journal",
            Self::Map => "Map",
        }
    }

    /// Returns the evidence in human-readable form.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::NeverDeleted => "the owner was never deleted".to_owned(),
            Self::Restored(backup, restore) => {
                format!("the owner was restored from backup {backup} (restore {restore})")
            }
            Self::Undone => "kubegc undo has created the owner".to_owned(),
            Self::Place => "the owner lives where the backup has it".to_owned(),
            Self::Journal => "the owner lives where the journal has it".to_owned(),
            Self::Map => "--map".to_owned(),
        }
    }
}

/// Fate of one reference that does not lead to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The object that refers to it, or should.
    pub place: Place,
    /// Owner as written in the reference.
    pub owner: String,
    /// UID in the reference or in the backup.
    pub old: String,
    /// New UID, or the reason why there is none.
    pub new: Result<String, Left>,
    /// Evidence for the new UID.
    pub proof: Option<Proof>,
    /// True if the object lacks the reference because a restore has removed it.
    pub is_missing: bool,
    /// True if the backup has the reference.
    pub is_of_backup: bool,
}

impl Link {
    /// Returns the action: `Add`, `Rewrite` or `Leave`.
    #[must_use]
    pub const fn action(&self) -> &'static str {
        match (&self.new, self.is_missing) {
            (Err(_), _) => "Leave",
            (Ok(_), true) => "Add",
            (Ok(_), false) => "Rewrite",
        }
    }

    fn value(&self) -> Value {
        json!({
            "object": self.place.value(), "owner": self.owner, "oldUID": self.old, "action": self.action(),
            "newUID": self.new.as_ref().ok(), "left": self.new.as_ref().err().map(|left| left.name()),
            "evidence": self.proof.as_ref().map(Proof::name), "inBackup": self.is_of_backup,
        })
    }
}

/// An object of the backup that a controller has replaced with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedObject {
    /// The object in the backup.
    pub place: Place,
    /// Replacement, as `Kind/name`.
    pub by: String,
}

/// A merge patch of one object, valid for one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The object.
    pub place: Place,
    /// Resource of the object.
    pub resource: GroupResource,
    /// The patch.
    pub body: Value,
}

/// Comparison of the references in a backup with those in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Number of owner references and claims of volumes in the backup.
    pub references: usize,
    /// Number of references that lead to their owners.
    pub in_place: usize,
    /// Objects that controllers have replaced; each counts as one reference.
    pub replaced: Vec<ReplacedObject>,
    /// Namespaces that were restored under other names.
    pub namespaces: Vec<(String, String)>,
}

impl Comparison {
    /// Returns the number of the backup's references that are in place or replaced.
    #[must_use]
    pub fn restored(&self) -> usize {
        self.in_place + self.replaced.len()
    }
}

/// Actions of a relink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relink {
    /// References that lead nowhere, or that the backup has and the object lacks.
    pub links: Vec<Link>,
    /// The changes to make.
    pub patches: Vec<Patch>,
    /// Comparison with the backup, if there is one.
    pub comparison: Option<Comparison>,
    /// Problems that a relink cannot solve, with the commands that do.
    pub advice: Vec<Advice>,
}

impl Relink {
    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        let comparison = self.comparison.as_ref().map(|comparison| {
            let named = |reasons: BTreeMap<Left, usize>| -> BTreeMap<&str, usize> {
                reasons.into_iter().map(|(left, count)| (left.name(), count)).collect()
            };
            let (impossible, by_design) = (named(self.impossible()), named(self.by_design()));
            let replaced =
                |replaced: &ReplacedObject| json!({"object": replaced.place.value(), "by": replaced.by});
            let namespaces: Vec<Value> =
                comparison.namespaces.iter().map(|(from, to)| json!({"from": from, "to": to})).collect();
            json!({
                "references": comparison.references, "restored": comparison.restored(),
                "restorable": self.restorable(), "impossible": impossible, "byDesign": by_design,
                "replaced": comparison.replaced.iter().map(replaced).collect::<Vec<_>>(),
                "namespaces": namespaces,
            })
        });
        json!({
            "items": self.links.iter().map(Link::value).collect::<Vec<_>>(), "patches": self.patches.len(),
            "backup": comparison, "advice": self.advice.iter().map(Advice::value).collect::<Vec<_>>(),
        })
    }

    /// Returns the number of the backup's references that can be restored.
    #[must_use]
    pub fn restorable(&self) -> usize {
        self.links.iter().filter(|link| link.is_of_backup && link.new.is_ok()).count()
    }

    /// Counts the backup's references that are missing and cannot be restored, by reason.
    #[must_use]
    pub fn impossible(&self) -> BTreeMap<Left, usize> {
        self.left(|left| !left.is_by_design())
    }

    /// Counts the backup's references that no restore brings back, by reason.
    #[must_use]
    pub fn by_design(&self) -> BTreeMap<Left, usize> {
        self.left(Left::is_by_design)
    }

    fn left(&self, is_meant: impl Fn(Left) -> bool) -> BTreeMap<Left, usize> {
        let mut reasons = BTreeMap::new();
        let of_backup = self.links.iter().filter(|link| link.is_of_backup);
        for left in of_backup.filter_map(|link| link.new.as_ref().err()).filter(|left| is_meant(**left)) {
            *reasons.entry(*left).or_default() += 1;
        }
        reasons
    }

    /// Reports whether no reference of the backup is missing; also true if no backup was compared.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let by_design: usize = self.by_design().values().sum();
        self.comparison
            .as_ref()
            .is_none_or(|comparison| comparison.restored() + by_design == comparison.references)
    }

    /// Describes the outcome in one sentence; `None` if no backup was compared.
    #[must_use]
    pub fn outcome(&self) -> Option<String> {
        let comparison = self.comparison.as_ref()?;
        let mut text = format!(
            "{} of {} references of the backup restored",
            thousands(comparison.restored()),
            thousands(comparison.references)
        );
        let restorable = self.restorable();
        if restorable > 0 {
            let _ = write!(text, ", {} can be", thousands(restorable)); // writing to a String cannot fail, here and below
        }
        for (reasons, what) in [(self.impossible(), "impossible"), (self.by_design(), "left out by design")] {
            if !reasons.is_empty() {
                let total: usize = reasons.values().sum();
                let _ = write!(text, ", {} {what} because {}", thousands(total), because(&reasons));
            }
        }
        Some(text)
    }
}

/// Formats the reasons in words, with numbers if there are several.
fn because(reasons: &BTreeMap<Left, usize>) -> String {
    let one = |(left, number): (&Left, &usize)| match reasons.len() {
        1 => left.message().to_owned(),
        _ => format!("{} ({})", left.message(), thousands(*number)),
    };
    reasons.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Decides about every owner reference in the cluster and the backup, and about the claims of volumes; with a namespace, only about
/// the objects in it.
#[must_use]
pub fn relink(cluster: &Cluster, evidence: &Evidence, namespace: &str) -> Relink {
    owners::Relinker::new(cluster, evidence).decide(namespace)
}
