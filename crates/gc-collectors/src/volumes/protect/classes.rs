//! Protection of VolumeAttributesClasses in use (spec `cluster-collectors.md`, section 21): a finalizer keeps a class as long as a
//! claim or a volume names it.
//!
//! Upstream consults only its caches, so it may delete the class of a claim that has just been created. Here, live lists of claims
//! and volumes must show that none names it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{ObjectKey, Outcome, Reason, Request, Timestamp, Uid};

use super::{LIST_AGAIN_MILLISECONDS, Protection, change, protection};
use crate::engine::{Collector, Decision, EndedRequest, Observation, reason};
use crate::entry::{CollectorEntry, WATCH, WATCH_PATCH, Watches, rule};
pub use crate::objects::AttributesClass;
use crate::objects::{Cache, Claim, Facts, Kind, Volume, drop_from};

/// Finalizer of classes.
const FINALIZER: &str = "kubernetes.io/vac-protection";
/// Kinds whose objects name classes, in the order in which they are listed.
const USERS: [Kind; 2] = [Kind::Claim, Kind::Volume];

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "protection of VolumeAttributesClasses",
    name: "volumeattributesclass-protection-controller",
    alias: None,
    account: "volumeattributesclass-protection-controller",
    event_source: "volumeattributesclass-protection-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::AttributesClass, Kind::Claim, Kind::Volume]),
    flags: &[],
    rules: &[
        rule("storage.k8s.io", "volumeattributesclasses", WATCH_PATCH),
        rule("", "persistentvolumeclaims", WATCH),
        rule("", "persistentvolumes", WATCH),
    ],
};

/// Returns the classes that a claim names, in its specification or its status.
fn named_by_claim(claim: &Claim) -> BTreeSet<Arc<str>> {
    let all = std::iter::once(&claim.attributes_class).chain(&claim.status_attributes_classes);
    all.filter(|name| !name.is_empty()).cloned().collect()
}

/// Returns the class that a volume names.
fn named_by_volume(volume: &Volume) -> BTreeSet<Arc<str>> {
    Some(&volume.attributes_class).filter(|name| !name.is_empty()).cloned().into_iter().collect()
}

/// Live lists for a class that is being deleted.
#[derive(Debug)]
struct Search {
    uid: Uid,
    /// Kind that is being listed.
    listing: Option<Kind>,
    /// True if the list shows that the class is used.
    used: bool,
    /// Kinds without an object that names the class.
    without: BTreeSet<Kind>,
}

/// The VolumeAttributesClass protection controller.
#[derive(Debug)]
pub struct AttributesClassProtection {
    classes: Cache<AttributesClass>,
    /// Claims that name a class.
    claims: Cache<Claim>,
    /// Volumes that name a class.
    volumes: Cache<Volume>,
    /// Claims and volumes that name a class, by its name.
    users: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    searches: BTreeMap<ObjectKey, Search>,
    /// Time before which a class is not searched for again.
    not_before: BTreeMap<ObjectKey, Timestamp>,
}

impl Default for AttributesClassProtection {
    fn default() -> Self {
        Self {
            classes: Cache::new(Kind::AttributesClass),
            claims: Cache::new(Kind::Claim),
            volumes: Cache::new(Kind::Volume),
            users: BTreeMap::new(),
            searches: BTreeMap::new(),
            not_before: BTreeMap::new(),
        }
    }
}

impl AttributesClassProtection {
    /// Updates the classes that an object names.
    fn renamed(
        &mut self,
        user: &ObjectKey,
        before: &BTreeSet<Arc<str>>,
        after: &BTreeSet<Arc<str>>,
        dirty: &mut Vec<ObjectKey>,
    ) {
        for name in before.difference(after) {
            drop_from(&mut self.users, name, user);
            let class = Kind::AttributesClass.key(&"".into(), name);
            if self.classes.get(&class).is_some_and(|class| class.meta.deleting) {
                dirty.push(class);
            }
        }
        for name in after {
            self.users.entry(Arc::clone(name)).or_default().insert(user.clone());
        }
    }

    fn put_claim(&mut self, claim: Claim, dirty: &mut Vec<ObjectKey>) {
        let after = named_by_claim(&claim);
        let key = Kind::Claim.key(&claim.meta.namespace, &claim.meta.name);
        let before = if after.is_empty() { self.claims.remove(&key) } else { self.claims.put(claim).1 };
        let before = before.as_ref().map(named_by_claim).unwrap_or_default();
        self.renamed(&key, &before, &after, dirty);
    }

    fn put_volume(&mut self, volume: Volume, dirty: &mut Vec<ObjectKey>) {
        let after = named_by_volume(&volume);
        let key = Kind::Volume.key(&volume.meta.namespace, &volume.meta.name);
        let before = if after.is_empty() { self.volumes.remove(&key) } else { self.volumes.put(volume).1 };
        let before = before.as_ref().map(named_by_volume).unwrap_or_default();
        self.renamed(&key, &before, &after, dirty);
    }

    fn remove(&mut self, key: &ObjectKey, dirty: &mut Vec<ObjectKey>) {
        let claim = self.claims.remove(key);
        let volume = self.volumes.remove(key);
        let before = claim.as_ref().map(named_by_claim).or_else(|| volume.as_ref().map(named_by_volume));
        self.renamed(key, &before.unwrap_or_default(), &BTreeSet::new(), dirty);
        if self.classes.remove(key).is_some() {
            self.searches.remove(key);
            self.not_before.remove(key);
        }
    }

    /// Records that a live list of a kind shows an object that names these classes.
    fn found(&mut self, kind: Kind, names: &BTreeSet<Arc<str>>) {
        for (class, search) in &mut self.searches {
            search.used |= search.listing == Some(kind) && names.contains(&class.name);
        }
    }

    /// Forgets a kind's earlier findings when it is listed again, perhaps because a backup was restored.
    fn doubt(&mut self, kind: Kind) {
        for search in self.searches.values_mut() {
            search.without.remove(&kind);
        }
    }

    fn decide_holding(&mut self, key: &ObjectKey, class: &AttributesClass, now: Timestamp) -> Decision {
        if self.users.contains_key(&key.name) {
            self.searches.remove(key);
            return Decision::Leave;
        }
        if let Some(&time) = self.not_before.get(key) {
            if now < time {
                return Decision::Later(time);
            }
            self.not_before.remove(key);
        }
        let uid = &class.meta.uid;
        if self.searches.get(key).is_some_and(|search| search.uid != *uid) {
            self.searches.remove(key);
        }
        let search = self.searches.entry(key.clone()).or_insert_with(|| Search {
            uid: uid.clone(),
            listing: None,
            used: false,
            without: BTreeSet::new(),
        });
        let Some(kind) = USERS.into_iter().find(|kind| !search.without.contains(kind)) else {
            return change(Kind::AttributesClass, &class.meta, &class.finalizers, FINALIZER, false);
        };
        let version = class.meta.resource_version;
        let request = Request::Barrier { resource: kind.resource(), namespace: None, at_least: version };
        let fact = "no claim and no volume that names it was observed".to_owned();
        Decision::Act(request, reason(gc_types::codes::ATTRIBUTES_CLASS_USE_UNKNOWN, version, &[fact]))
    }
}

impl Collector for AttributesClassProtection {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::AttributesClass, Kind::Claim, Kind::Volume]
    }

    fn clock_set(&mut self, by: i64) {
        for at in self.not_before.values_mut() {
            *at = at.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(kind) => {
                match kind {
                    Kind::AttributesClass => self.classes.list_started(),
                    Kind::Claim => self.claims.list_started(),
                    Kind::Volume => self.volumes.list_started(),
                    _ => {}
                }
                self.doubt(kind);
            }
            Observation::Observed(Facts::AttributesClass(class)) => dirty.push(self.classes.put(class).0),
            Observation::Observed(Facts::Claim(claim)) => self.put_claim(claim, dirty),
            Observation::Observed(Facts::Volume(volume)) => self.put_volume(volume, dirty),
            Observation::Found(Facts::Claim(claim)) => self.found(Kind::Claim, &named_by_claim(&claim)),
            Observation::Found(Facts::Volume(volume)) => self.found(Kind::Volume, &named_by_volume(&volume)),
            Observation::Removed(key) => self.remove(&key, dirty),
            Observation::Synced(kind) => {
                let missing = match kind {
                    Kind::AttributesClass => self.classes.list_ended(),
                    Kind::Claim => self.claims.list_ended(),
                    Kind::Volume => self.volumes.list_ended(),
                    _ => Vec::new(),
                };
                for key in missing {
                    self.remove(&key, dirty);
                }
                if kind == Kind::AttributesClass {
                    dirty.extend(self.classes.keys().cloned());
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(class) = self.classes.get(key).cloned() else { return Decision::Leave };
        match protection(&class.meta, &class.finalizers, FINALIZER) {
            Protection::Settled => Decision::Leave,
            Protection::Missing => {
                change(Kind::AttributesClass, &class.meta, &class.finalizers, FINALIZER, true)
            }
            Protection::Holding => self.decide_holding(key, &class, now),
        }
    }

    fn sending(&mut self, key: &ObjectKey, request: &Request, _reason: &Reason, _now: Timestamp) {
        if let (Request::Barrier { resource, .. }, Some(search)) = (request, self.searches.get_mut(key)) {
            search.listing = USERS.into_iter().find(|kind| kind.resource() == *resource);
            search.used = false;
        }
    }

    fn skipped(&mut self, key: &ObjectKey, request: &Request) {
        if let (Request::Barrier { .. }, Some(search)) = (request, self.searches.get_mut(key)) {
            search.listing = None;
        }
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, now }: EndedRequest<'_>,
        dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Barrier { .. } = request else { return };
        let Some(search) = self.searches.get_mut(key) else { return };
        let Some(kind) = search.listing.take() else { return };
        if matches!(outcome, Outcome::Applied(_)) && !search.used {
            search.without.insert(kind);
        } else {
            self.searches.remove(key);
            self.not_before.insert(key.clone(), now.after(LIST_AGAIN_MILLISECONDS));
        }
        dirty.push(key.clone());
    }
}
