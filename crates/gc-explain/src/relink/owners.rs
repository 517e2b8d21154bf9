//! Fate of each owner reference.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::OwnerReference;
use serde_json::{Map, Value, json};

use super::backup::{Backup, SavedObject};
use super::cluster::{Cluster, LivingObject};
use super::{Comparison, Evidence, Identity, Left, Link, Patch, Proof, Relink, ReplacedObject, group_of};
use crate::stuck::Place;

/// An object of the backup, with the one in its place if there is one.
pub(super) struct Match<'a> {
    pub(super) identity: &'a Identity,
    pub(super) saved: &'a SavedObject,
    /// Namespace that it was restored into; empty at cluster scope.
    pub(super) namespace: String,
}

/// Owner of a reference, with the evidence.
pub(super) type Found = Result<(usize, Proof), Left>;

pub(super) struct Relinker<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) evidence: &'a Evidence,
    targets: BTreeMap<String, BTreeSet<String>>,
    /// True if a restore has labelled its objects, so that those without labels were not restored.
    is_labelled: bool,
}

/// Reports whether two references name the same owner, regardless of UID and version.
fn is_same_owner(one: &OwnerReference, other: &OwnerReference) -> bool {
    let (one, other) = (&one.coordinates, &other.coordinates);
    one.kind == other.kind
        && one.name == other.name
        && group_of(&one.api_version) == group_of(&other.api_version)
}

pub(super) fn title_of(reference: &OwnerReference) -> String {
    format!("{}/{}", reference.coordinates.kind, reference.coordinates.name)
}

impl<'a> Relinker<'a> {
    pub(super) fn new(cluster: &'a Cluster, evidence: &'a Evidence) -> Self {
        let targets = evidence.backup.as_ref().map(|backup| backup.targets(cluster)).unwrap_or_default();
        let mut relinker = Self { cluster, evidence, targets, is_labelled: false };
        // A label that is also in the backup comes from an earlier restore.
        let is_labelled = relinker.matches().any(|found| {
            let labels = relinker.living(&found).and_then(|living| living.labels.as_ref());
            labels.is_some() && labels != found.saved.labels.as_ref()
        });
        relinker.is_labelled = is_labelled;
        relinker
    }

    fn backup(&self) -> Option<&'a Backup> {
        self.evidence.backup.as_ref()
    }

    /// Returns the namespaces to which a namespace of the backup was restored.
    pub(super) fn namespaces(&self, original: &str) -> Vec<String> {
        match self.targets.get(original) {
            Some(targets) => targets.iter().cloned().collect(),
            None => vec![original.to_owned()],
        }
    }

    /// Returns every object of the backup, once for each namespace that it was restored into.
    fn matches(&self) -> impl Iterator<Item = Match<'a>> {
        let objects = self.backup().into_iter().flat_map(|backup| &backup.objects);
        objects.flat_map(|(identity, saved)| {
            let namespaces = self.namespaces(&identity.namespace).into_iter();
            namespaces.map(move |namespace| Match { identity, saved, namespace })
        })
    }

    pub(super) fn living(&self, found: &Match<'_>) -> Option<&'a LivingObject> {
        let number = self.cluster.at(&found.identity.moved(&found.namespace))?;
        self.cluster.objects.get(number)
    }

    /// Returns the evidence that an object in the place of one from the backup is the same, or was created from it.
    pub(super) fn proof(&self, saved: Option<&SavedObject>, living: &LivingObject) -> Option<Proof> {
        let uid = saved.map(|saved| saved.uid.as_str()).filter(|uid| !uid.is_empty());
        // Velero creates namespaces without labels.
        let is_namespace = living.identity.group.is_empty() && living.identity.kind == "Namespace";
        if uid == Some(&living.place.uid) {
            Some(Proof::NeverDeleted)
        } else if uid.is_some_and(|uid| uid == living.undone) {
            Some(Proof::Undone)
        } else if let Some(labels) = &living.labels {
            Some(Proof::Restored(labels.backup.clone(), labels.restore.clone()))
        } else {
            (saved.is_some() && (is_namespace || !self.is_labelled)).then_some(Proof::Place)
        }
    }

    /// Returns the owner of a reference in the backup, for an object that was in one namespace and is now in another.
    fn owner(&self, reference: &OwnerReference, original: &str, namespace: &str) -> Found {
        let owner = &reference.coordinates;
        let (group, uid) = (group_of(&owner.api_version), owner.uid.to_string());
        if let Some(new) = self.evidence.map.get(&uid) {
            let number = self.cluster.with_uid(new).ok_or(Left::OwnerAbsent)?;
            return self.fit(number, reference, namespace).map(|number| (number, Proof::Map));
        }
        // In another namespace, the object with the old UID is the original and not the copy.
        if let Some(number) =
            self.cluster.with_uid(&uid).filter(|number| self.cluster.sees(namespace, *number))
        {
            return self.fit(number, reference, namespace).map(|number| (number, Proof::NeverDeleted));
        }
        let unserved =
            if self.cluster.is_unread(group, &owner.kind) { Left::Unread } else { Left::KindNotServed };
        let is_namespaced = self.cluster.is_namespaced(group, &owner.kind).ok_or(unserved)?;
        let identity = Identity {
            group: group.to_owned(),
            kind: owner.kind.to_string(),
            namespace: if is_namespaced { original.to_owned() } else { String::new() },
            name: owner.name.to_string(),
        };
        let saved = self.backup().and_then(|backup| backup.objects.get(&identity));
        if saved.is_some_and(|saved| !saved.uid.is_empty() && saved.uid != uid) {
            return Err(Left::StaleInBackup);
        }
        let Some(number) = self.cluster.at(&identity.moved(namespace)) else {
            let is_unread = self.cluster.is_unread(group, &owner.kind);
            return Err(if is_unread { Left::Unread } else { Left::OwnerAbsent });
        };
        let proof = self.proof(saved, &self.cluster.objects[number]).ok_or(Left::OwnerRecreated)?;
        self.fit(number, reference, namespace).map(|number| (number, proof))
    }

    /// Returns the object that now stands in the place of a former UID.
    pub(super) fn successor(&self, old: &str) -> Found {
        let of_backup = self.backup().and_then(|backup| backup.by_uid.get(old));
        let lives = self.cluster.with_uid(old);
        let (number, proof) = match (self.evidence.map.get(old), self.evidence.identities.get(old)) {
            (Some(new), _) => (self.cluster.with_uid(new), Proof::Map),
            (None, Some(identity)) => (self.cluster.at(identity), Proof::Journal),
            (None, None) if lives.is_some() => (lives, Proof::NeverDeleted),
            (None, None) => {
                let identity = of_backup.ok_or(Left::NoEvidence)?;
                let saved = self.backup().and_then(|backup| backup.objects.get(identity));
                let namespaces = self.namespaces(&identity.namespace);
                let mut living = namespaces.iter().filter_map(|into| self.cluster.at(&identity.moved(into)));
                let number = living.next().ok_or(Left::OwnerAbsent)?;
                let proof = self.proof(saved, &self.cluster.objects[number]).ok_or(Left::OwnerRecreated)?;
                (Some(number), proof)
            }
        };
        let number = number.ok_or(Left::OwnerAbsent)?;
        let is_terminating = self.cluster.objects[number].is_terminating;
        if is_terminating { Err(Left::OwnerTerminating) } else { Ok((number, proof)) }
    }

    /// Checks whether an object can be the owner of a reference from this namespace.
    fn fit(&self, number: usize, reference: &OwnerReference, namespace: &str) -> Result<usize, Left> {
        let living = &self.cluster.objects[number];
        let Identity { group, kind, .. } = &living.identity;
        let is_fit = group == group_of(&reference.coordinates.api_version)
            && *kind == *reference.coordinates.kind
            && self.cluster.sees(namespace, number);
        match (is_fit, living.is_terminating) {
            (false, _) => Err(Left::OwnerUnfit),
            (true, true) => Err(Left::OwnerTerminating),
            (true, false) => Ok(number),
        }
    }

    /// Decides about all objects in a namespace, or everywhere if it is empty.
    pub(super) fn decide(&self, namespace: &str) -> Relink {
        let mut found =
            Relink { comparison: self.backup().map(|_| Comparison::default()), ..Relink::default() };
        let is_wanted = |of: &str| namespace.is_empty() || of == namespace;
        let mut matched: BTreeMap<&str, Match<'a>> = BTreeMap::new();
        let mut replacements = Replacements::default();
        for one in self.matches().filter(|one| is_wanted(&one.namespace)) {
            match self.living(&one) {
                Some(living) => drop(matched.insert(&living.place.uid, one)),
                None => self.absent(&one, &mut replacements, &mut found),
            }
        }
        for living in self.cluster.objects.iter().filter(|living| is_wanted(&living.place.namespace)) {
            let of_backup = matched.get(living.place.uid.as_str());
            let mut patch = self.references(living, of_backup, &mut found);
            if living.identity.kind == "PersistentVolume" && living.identity.group.is_empty() {
                patch.extend(self.claim(living, of_backup, &mut found));
            }
            if !patch.is_empty() {
                found.patches.push(patch_of(living, patch));
            }
        }
        found.links.sort_by(|a, b| (&a.place, &a.old).cmp(&(&b.place, &b.old)));
        if let Some(comparison) = &mut found.comparison {
            let renamed = self.targets.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
            comparison.namespaces = renamed.map(|(from, to)| (from.clone(), to.clone())).collect();
        }
        found.advice = self.advise(namespace, &found);
        found
    }

    /// Decides about the references of an object that does not exist.
    fn absent(&self, one: &Match<'_>, replacements: &mut Replacements, found: &mut Relink) {
        let Match { identity, saved, namespace } = one;
        let Some(comparison) = &mut found.comparison else { return };
        if self.backup().is_some_and(|backup| backup.is_partial) {
            return;
        }
        let api_version = self
            .cluster
            .catalog
            .all()
            .iter()
            .find(|resource| *resource.name.group == *identity.group && *resource.kind == *identity.kind);
        let place = Place {
            api_version: api_version.map_or_else(|| identity.group.clone(), crate::Resource::api_version),
            kind: identity.kind.clone(),
            resource: api_version.map(|resource| resource.name.to_string()).unwrap_or_default(),
            namespace: namespace.clone(),
            name: identity.name.clone(),
            uid: String::new(),
        };
        let is_unread = self.cluster.is_unread(&identity.group, &identity.kind);
        let why = if is_unread { Left::Unread } else { saved.left_out.unwrap_or(Left::NotRestored) };
        let mut leave = |owner: String, old: String| {
            let (place, new) = (place.clone(), Err(why));
            found.links.push(Link {
                place,
                owner,
                old,
                new,
                proof: None,
                is_missing: true,
                is_of_backup: true,
            });
        };
        for reference in &saved.owners {
            comparison.references += 1;
            let by = self.replacement(one, reference, replacements).filter(|_| why == Left::NotRestored);
            match by {
                Some(by) => comparison.replaced.push(ReplacedObject { place: place.clone(), by }),
                None => leave(title_of(reference), reference.coordinates.uid.to_string()),
            }
        }
        if let Some(claim) = saved.claim.as_ref().filter(|claim| !claim.uid.is_empty()) {
            comparison.references += 1;
            match self.other_volume(claim) {
                Some(by) => comparison.replaced.push(ReplacedObject { place: place.clone(), by }),
                None => leave(format!("PersistentVolumeClaim/{}", claim.name), claim.uid.clone()),
            }
        }
    }

    /// Finds the replacement that the object's controller has created. Each replacement stands for one object.
    fn replacement(
        &self,
        one: &Match<'_>,
        reference: &OwnerReference,
        replacements: &mut Replacements,
    ) -> Option<String> {
        if reference.controller != Some(true) {
            return None;
        }
        let (number, _) = self.owner(reference, &one.identity.namespace, &one.namespace).ok()?;
        let owner = &self.cluster.objects[number].place.uid;
        let kind = (owner.clone(), one.identity.group.clone(), one.identity.kind.clone());
        let new = replacements.0.entry(kind).or_insert_with(|| {
            let is_new = |living: &&LivingObject| {
                (&living.identity.group, &living.identity.kind) == (&one.identity.group, &one.identity.kind)
                    && !self.is_in_backup(living)
            };
            self.cluster.controlled_by(owner).filter(is_new).map(|living| living.place.title()).collect()
        });
        new.pop_first()
    }

    /// Reports whether the backup has an object with this identity.
    pub(super) fn is_in_backup(&self, living: &LivingObject) -> bool {
        let Some(backup) = self.backup() else { return false };
        let namespace = &living.identity.namespace;
        let renamed = self.targets.iter().filter(|(_, to)| to.contains(namespace)).map(|(from, _)| from);
        let originals = renamed.chain([namespace]);
        originals.into_iter().any(|original| backup.objects.contains_key(&living.identity.moved(original)))
    }

    /// Decides about the owner references of an object, and the labels that depend on them; no change if they stay.
    fn references(
        &self,
        living: &LivingObject,
        of_backup: Option<&Match<'_>>,
        found: &mut Relink,
    ) -> Map<String, Value> {
        let mut draft = Draft { owners: Vec::new(), labels: Map::new(), is_changed: false };
        let mut rest: Vec<&OwnerReference> = living.owners.iter().collect();
        // The order is that of the backup, followed by the others.
        for wanted in of_backup.iter().flat_map(|one| &one.saved.owners) {
            let Some(one) = of_backup else { break };
            if let Some(comparison) = &mut found.comparison {
                comparison.references += 1;
            }
            let is_it = |present: &&OwnerReference| {
                is_same_owner(present, wanted)
                    && (self.cluster.lives(present, &living.place.namespace)
                        || present.coordinates.uid == wanted.coordinates.uid)
            };
            let present = rest.iter().position(is_it).map(|place| rest.remove(place));
            if let Some(present) =
                present.filter(|present| self.cluster.lives(present, &living.place.namespace))
            {
                draft.keep(present.to_json());
                if let Some(comparison) = &mut found.comparison {
                    comparison.in_place += 1;
                }
                continue;
            }
            let new = match present {
                _ if living.is_terminating => Err(Left::Terminating),
                Some(_) => self.owner(wanted, &one.identity.namespace, &one.namespace),
                None => self.missing(living, one, wanted),
            };
            match &new {
                Ok((number, _)) => {
                    if let Some(present) =
                        rest.iter().position(|present| self.is_reference_to(present, *number))
                    {
                        rest.remove(present);
                    }
                    draft.add(wanted, &self.cluster.objects[*number], living, self.cluster);
                }
                Err(_) => present.into_iter().for_each(|present| draft.keep(present.to_json())),
            }
            found.links.push(self.link(living, wanted, new, present.is_none(), true));
        }
        for present in rest {
            if self.cluster.lives(present, &living.place.namespace) {
                draft.keep(present.to_json());
                continue;
            }
            let new = if living.is_terminating {
                Err(Left::Terminating)
            } else {
                self.successor(&present.coordinates.uid.to_string()).and_then(|(number, proof)| {
                    Ok((self.fit(number, present, &living.place.namespace)?, proof))
                })
            };
            match &new {
                Ok((number, _)) => draft.add(present, &self.cluster.objects[*number], living, self.cluster),
                Err(_) => draft.keep(present.to_json()),
            }
            found.links.push(self.link(living, present, new, false, false));
        }
        draft.into_patch()
    }

    fn is_reference_to(&self, present: &OwnerReference, number: usize) -> bool {
        self.cluster.objects[number].place.uid == present.coordinates.uid.to_string()
    }

    /// Finds the owner of a reference that an object lacks, if the reference may be added.
    fn missing(&self, living: &LivingObject, one: &Match<'_>, wanted: &OwnerReference) -> Found {
        self.proof(Some(one.saved), living).ok_or(Left::ObjectRecreated)?;
        let (number, proof) = self.owner(wanted, &one.identity.namespace, &one.namespace)?;
        let owner = &self.cluster.objects[number];
        let is_controller = |other: &OwnerReference| {
            other.controller == Some(true) && other.coordinates.uid.to_string() != owner.place.uid
        };
        if wanted.controller == Some(true) && living.owners.iter().any(is_controller) {
            return Err(Left::OtherController);
        }
        Ok((number, proof))
    }

    fn link(
        &self,
        living: &LivingObject,
        reference: &OwnerReference,
        new: Found,
        is_missing: bool,
        is_of_backup: bool,
    ) -> Link {
        let (new, proof) = match new {
            Ok((number, proof)) => (Ok(self.cluster.objects[number].place.uid.clone()), Some(proof)),
            Err(left) => (Err(left), None),
        };
        let old = reference.coordinates.uid.to_string();
        let (place, owner) = (living.place.clone(), title_of(reference));
        Link { place, owner, old, new, proof, is_missing, is_of_backup }
    }
}

/// Objects that controllers have created besides those of the backup, by controller and kind.
#[derive(Default)]
struct Replacements(BTreeMap<(String, String, String), BTreeSet<String>>);

/// References that an object will have.
struct Draft {
    owners: Vec<Value>,
    labels: Map<String, Value>,
    is_changed: bool,
}

impl Draft {
    /// Adds a reference, merging two to the same owner.
    fn keep(&mut self, entry: Value) {
        if self.owners.iter().all(|known| known["uid"] != entry["uid"]) {
            self.owners.push(entry);
        }
    }

    /// Adds a reference to an owner that now has a new UID.
    fn add(
        &mut self,
        reference: &OwnerReference,
        owner: &LivingObject,
        living: &LivingObject,
        cluster: &Cluster,
    ) {
        let old = reference.coordinates.uid.to_string();
        let mut entry = reference.to_json();
        entry["uid"] = owner.place.uid.as_str().into();
        entry["name"] = owner.place.name.as_str().into();
        let written = &reference.coordinates;
        if cluster.catalog.of_kind(&written.api_version, &written.kind).is_none() {
            entry["apiVersion"] = owner.place.api_version.as_str().into();
        }
        self.keep(entry);
        self.is_changed = true;
        // A Job finds its pods by labels with its UID, and releases pods that do not have them.
        for (label, _) in living.uid_labels.iter().filter(|(_, value)| *value == old) {
            self.labels.insert((*label).to_owned(), owner.place.uid.as_str().into());
        }
    }

    fn into_patch(self) -> Map<String, Value> {
        let mut metadata = Map::new();
        if self.is_changed {
            metadata.insert("ownerReferences".to_owned(), self.owners.into());
            if !self.labels.is_empty() {
                metadata.insert("labels".to_owned(), self.labels.into());
            }
        }
        let patch = (!metadata.is_empty()).then(|| ("metadata".to_owned(), Value::from(metadata)));
        patch.into_iter().collect()
    }
}

/// Creates a merge patch for one version of an object.
fn patch_of(living: &LivingObject, patch: Map<String, Value>) -> Patch {
    let mut body = json!({"metadata": {"uid": living.place.uid, "resourceVersion": living.resource_version}});
    for (member, value) in patch {
        match (body.get_mut(&member).and_then(Value::as_object_mut), value) {
            (Some(known), Value::Object(more)) => known.extend(more),
            (_, value) => body[member] = value,
        }
    }
    Patch { place: living.place.clone(), resource: living.resource.clone(), body }
}
