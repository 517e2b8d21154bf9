//! Problems that a relink cannot solve, and the commands that do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::cluster::{ClaimReference, LivingObject};
use super::owners::Relinker;
use super::{Identity, Left, Link, Relink};
use crate::commands::kubectl;
use crate::stuck::Place;
use crate::text::{count, some_of};

/// Maximum number of objects that a command names.
const NAMED: usize = 50;
/// Maximum number of objects that a sentence names.
const SHOWN: usize = 3;
/// Controllers that remove surplus objects by themselves.
const TRIMMING: [&str; 5] = ["Deployment", "ReplicaSet", "ReplicationController", "DaemonSet", "Job"];

/// Advice about an object, with commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The object.
    pub place: Place,
    /// Human-readable text.
    pub text: String,
    /// Commands that solve the problem, in order.
    pub commands: Vec<String>,
}

impl Advice {
    pub(super) fn value(&self) -> Value {
        json!({"object": self.place.value(), "text": self.text, "commands": self.commands})
    }
}

/// Formats a `kubectl delete` of several objects in one namespace.
fn deletion<'a>(places: impl Iterator<Item = &'a Place>) -> String {
    let places: Vec<&Place> = places.take(NAMED).collect();
    let namespace = places.first().map(|place| place.namespace.as_str()).unwrap_or_default();
    let names: Vec<String> = places.iter().map(|place| place.reference()).collect();
    let mut words = vec!["delete"];
    words.extend(names.iter().map(String::as_str));
    kubectl(namespace, &words)
}

/// Formats a `kubectl patch` of an object, conditional on its UID.
fn merge(place: &Place, change: &Value) -> String {
    let mut patch = change.clone();
    patch["metadata"] = json!({"uid": place.uid});
    kubectl(&place.namespace, &["patch", &place.reference(), "--type=merge", "-p", &patch.to_string()])
}

impl Relinker<'_> {
    /// Returns the advice about a namespace, or about the cluster.
    pub(super) fn advise(&self, namespace: &str, found: &Relink) -> Vec<Advice> {
        let mut advice = self.recreated_owners(found);
        advice.extend(absent_owners(found));
        advice.extend(self.duplicates(found));
        for living in &self.cluster.objects {
            let is_wanted = namespace.is_empty() || living.place.namespace == namespace;
            if !is_wanted || !living.identity.group.is_empty() || living.is_terminating {
                continue;
            }
            match living.identity.kind.as_str() {
                "PersistentVolumeClaim" => advice.extend(self.lost_claim(living)),
                "PersistentVolume" => advice.extend(self.released_volume(living, found)),
                _ => {}
            }
        }
        advice
    }

    /// Reports owners that nothing identifies as those of the backup.
    fn recreated_owners(&self, found: &Relink) -> Vec<Advice> {
        let mut owners: BTreeMap<&str, (&LivingObject, usize)> = BTreeMap::new();
        for link in found.links.iter().filter(|link| link.new == Err(Left::OwnerRecreated)) {
            let is_owner = |living: &&LivingObject| {
                living.place.title() == link.owner
                    && (living.place.namespace.is_empty() || living.place.namespace == link.place.namespace)
            };
            if let Some(owner) = self.cluster.objects.iter().find(is_owner) {
                owners.entry(&link.old).or_insert((owner, 0)).1 += 1;
            }
        }
        let advice = |(old, (owner, number)): (&str, (&LivingObject, usize))| Advice {
            place: owner.place.clone(),
            text: format!(
                "it has the name of the owner of {}, but neither the UID nor the labels of a restore; if it is to own them, add:",
                count(number, "object")
            ),
            commands: vec![format!("--map {old}={}", owner.place.uid)],
        };
        owners.into_iter().map(advice).collect()
    }

    /// Reports objects that a controller has created besides those of the restore.
    fn duplicates(&self, found: &Relink) -> Vec<Advice> {
        let mut restored: BTreeMap<(&str, &str), Vec<&Place>> = BTreeMap::new();
        for link in found.links.iter().filter(|link| link.is_of_backup && link.is_missing) {
            if let Ok(owner) = &link.new {
                restored.entry((owner, &link.place.kind)).or_default().push(&link.place);
            }
        }
        let mut advice = Vec::new();
        for ((uid, kind), restored) in restored {
            let Some(owner) = self.cluster.with_uid(uid).map(|number| &self.cluster.objects[number]) else {
                continue;
            };
            // A CronJob creates one Job after the other anyway.
            if owner.place.kind == "CronJob" {
                continue;
            }
            let is_new = |living: &&LivingObject| living.place.kind == kind && !self.is_in_backup(living);
            let new: BTreeSet<String> =
                self.cluster.controlled_by(uid).filter(is_new).map(|living| living.place.title()).collect();
            if new.is_empty() {
                continue;
            }
            let then = if TRIMMING.contains(&owner.place.kind.as_str()) {
                "once those are its own, it removes or scales down what is too much; to keep the new ones, delete the restored ones first:"
            } else {
                "see which of them it uses, and delete the others, such as the restored ones:"
            };
            let new: Vec<String> = new.into_iter().collect();
            advice.push(Advice {
                place: owner.place.clone(),
                text: format!(
                    "it has made {} beside {} that the restore has created; {then}",
                    some_of(&new, SHOWN),
                    count(restored.len(), kind)
                ),
                commands: vec![deletion(restored.into_iter())],
            });
        }
        advice
    }

    /// Reports a claim whose volume does not exist.
    fn lost_claim(&self, claim: &LivingObject) -> Option<Advice> {
        let volume = Identity {
            group: String::new(),
            kind: "PersistentVolume".to_owned(),
            namespace: String::new(),
            name: claim.volume.clone(),
        };
        let is_lost = !claim.volume.is_empty()
            && !self.cluster.is_unread("", "PersistentVolume")
            && self.cluster.at(&volume).is_none();
        is_lost.then(|| Advice {
            place: claim.place.clone(),
            text: format!(
                "its volume {} does not exist: restore that first; to begin with an empty volume, delete the claim (a StatefulSet makes it \
                 again with its pod):",
                claim.volume
            ),
            commands: vec![deletion(std::iter::once(&claim.place))],
        })
    }

    /// Reports a volume whose storage is retained and whose claim is gone.
    fn released_volume(&self, volume: &LivingObject, found: &Relink) -> Option<Advice> {
        let claim = volume.claim.as_ref().filter(|_| volume.is_released)?;
        let is_bound_again = |link: &Link| link.place.uid == volume.place.uid && link.new.is_ok();
        if found.links.iter().any(is_bound_again) {
            return None;
        }
        let ClaimReference { namespace, name, uid } = claim;
        let identity = Identity {
            group: String::new(),
            kind: "PersistentVolumeClaim".to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
        };
        let living = self.cluster.at(&identity).map(|number| &self.cluster.objects[number]);
        let title = format!("{namespace}/{name}");
        let (text, command) = match living {
            Some(living) if living.volume.is_empty() || living.volume == volume.place.name => (
                format!(
                    "it is Released, and claim {title} lives under another UID; if that is to have its data:"
                ),
                format!("kubegc relink --map {uid}={} --yes", living.place.uid),
            ),
            Some(living) => (
                format!(
                    "it is Released, and claim {title} has volume {} now; to use its data, make it available to a claim that names it:",
                    living.volume
                ),
                merge(&volume.place, &json!({"spec": {"claimRef": null}})),
            ),
            None => (
                format!(
                    "it is Released, and claim {title} does not exist; to bind it to a claim of that name again:"
                ),
                merge(&volume.place, &json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}})),
            ),
        };
        Some(Advice { place: volume.place.clone(), text, commands: vec![command] })
    }
}

/// Reports objects that have lost their controllers.
fn absent_owners(found: &Relink) -> Vec<Advice> {
    let mut orphans: BTreeMap<(&str, &str), Vec<&Place>> = BTreeMap::new();
    let is_orphan =
        |link: &&Link| link.is_of_backup && link.new == Err(Left::OwnerAbsent) && !link.place.uid.is_empty();
    for link in found.links.iter().filter(is_orphan) {
        orphans.entry((&link.owner, &link.place.namespace)).or_default().push(&link.place);
    }
    let advice = |((owner, _), orphans): ((&str, &str), Vec<&Place>)| {
        Some(Advice {
            place: (*orphans.first()?).clone(),
            text: format!(
                "{owner} was not restored, so that nothing manages {}: restore it and relink again, or delete them:",
                count(orphans.len(), "object")
            ),
            commands: vec![deletion(orphans.into_iter())],
        })
    };
    orphans.into_iter().filter_map(advice).collect()
}
