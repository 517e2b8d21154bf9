//! The truth, derived only from the store's own log of changes, and never from a collector's beliefs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use gc_registry::storage::Change;
use gc_types::{Coordinates, ObservedObject, OwnerReference, ResourceId, Scope, Uid};

use serde_json::Value;

use crate::candidates::is_lease;
use crate::kinds::{KINDS, Kind, NAMESPACES};
use crate::metadata::Metadata;
use crate::server::Server;

/// Actor that caused a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A client, or the server itself.
    Others,
    /// A collector with this number.
    Collector(usize),
}

/// An object as it really is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrueObject {
    /// Index into [`KINDS`].
    pub kind: usize,
    /// Metadata of the object; the number of its resource is the index of the kind.
    pub object: ObservedObject,
    /// True if the object waits for its grace period to end.
    pub graceful: bool,
    /// Whole object, as stored.
    pub stored: Bytes,
}

impl TrueObject {
    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> &'static Kind {
        &KINDS[self.kind]
    }

    /// Returns the whole object, as clients get it.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut value: Value = serde_json::from_slice(&self.stored).unwrap_or_default();
        // The store adds to the version the schema by which a custom object was written. A client that sent it back would be
        // refused.
        if let Some((version, _)) = value["apiVersion"].as_str().and_then(|stored| stored.split_once('#')) {
            value["apiVersion"] = version.to_owned().into();
        }
        value
    }

    /// Returns `Kind/name@namespace`.
    #[must_use]
    pub fn show(&self) -> String {
        show(self.kind, &self.object.key.namespace, &self.object.key.name)
    }
}

/// Returns `Kind/name@namespace`, without `@` at cluster scope.
#[must_use]
pub fn show(kind: usize, namespace: &str, name: &str) -> String {
    let kind = KINDS[kind].kind;
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{name}@{namespace}") }
}

/// State of a reference according to the specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerState {
    /// The owner is alive.
    Lives,
    /// The owner waits in foreground deletion.
    Waits,
    /// The owner orphans its dependents.
    Orphans,
    /// No object with this UID exists where the reference leads.
    Absent,
    /// The reference cannot be followed, and counts as living.
    Undecidable,
}

/// All existing objects, and the parts of their past that the oracles need.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    objects: BTreeMap<Uid, TrueObject>,
    past: BTreeMap<Uid, TrueObject>,
    /// Time at which a reference of a dependent was written, and at which it became blocking. A reference with changed coordinates
    /// is a new one, whatever UID it names.
    written: BTreeMap<(Uid, Coordinates), u64>,
    blocks_since: BTreeMap<(Uid, Coordinates), u64>,
    /// Time at which an object was first marked for deletion with one of the two finalizers.
    orphaning_since: BTreeMap<Uid, u64>,
    waiting_since: BTreeMap<Uid, u64>,
    /// Objects whose waiting was ended, with the actors.
    unwaited: BTreeMap<Uid, BTreeSet<Actor>>,
    /// Objects whose deletion a client changed after it had begun.
    minds_changed: BTreeSet<Uid>,
    /// Newest revision.
    pub revision: u64,
    /// Every version of every object, oldest first.
    history: Vec<(u64, Uid, Option<TrueObject>)>,
    /// Versions of objects that a restore has taken back.
    taken_back: BTreeMap<(Uid, u64), TrueObject>,
}

/// One change of one object in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrueChange {
    /// Previous state; `None` if the object was created.
    pub before: Option<TrueObject>,
    /// New state; `None` if the object was removed.
    pub after: Option<TrueObject>,
    /// Revision of the change.
    pub revision: u64,
}

fn parse(kind: usize, bytes: &Bytes, revision: u64) -> Option<TrueObject> {
    let metadata = Metadata::stored(bytes, revision)?;
    let object = metadata.observed(ResourceId(u32::try_from(kind).unwrap_or(0)));
    let graceful = metadata.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
    Some(TrueObject { kind, object, graceful, stored: bytes.clone() })
}

fn kind_of(key: &str) -> Option<usize> {
    KINDS.iter().position(|kind| kind.has_key(key))
}

impl Truth {
    /// Returns every object, by UID.
    pub fn objects(&self) -> impl Iterator<Item = &TrueObject> {
        self.objects.values()
    }

    /// Returns the object with a UID.
    #[must_use]
    pub fn get(&self, uid: &Uid) -> Option<&TrueObject> {
        self.objects.get(uid)
    }

    /// Returns the object with these coordinates.
    #[must_use]
    pub fn at(&self, kind: usize, namespace: &str, name: &str) -> Option<&TrueObject> {
        self.objects.values().find(|known| {
            known.kind == kind && *known.object.key.namespace == *namespace && *known.object.key.name == *name
        })
    }

    /// Reads a change. Returns `None` if its kind is not in the world.
    #[must_use]
    pub fn read(change: &Change) -> Option<TrueChange> {
        let kind = kind_of(&change.key)?;
        let before = change
            .previous
            .as_ref()
            .and_then(|previous| parse(kind, &previous.value, previous.mod_revision.0));
        let after = change.value.as_ref().and_then(|value| parse(kind, value, change.revision.0));
        Some(TrueChange { before, after, revision: change.revision.0 })
    }

    /// Takes in a change.
    pub fn apply(&mut self, change: &TrueChange, actor: Actor) {
        self.revision = self.revision.max(change.revision);
        if let Some(gone) = &change.before
            && change.after.as_ref().is_none_or(|after| after.object.uid != gone.object.uid)
        {
            self.objects.remove(&gone.object.uid);
            self.past.insert(gone.object.uid.clone(), gone.clone());
        }
        self.remember(change, actor);
        let changed = change.after.as_ref().or(change.before.as_ref());
        if let Some(object) = changed {
            let uid = object.object.uid.clone();
            self.history.push((change.revision, uid, change.after.clone()));
        }
        if let Some(present) = &change.after {
            self.objects.insert(present.object.uid.clone(), present.clone());
        }
    }

    /// Returns the objects of a kind as they were at a revision.
    #[must_use]
    pub fn at_revision(&self, kind: &str, revision: u64) -> Vec<&TrueObject> {
        let mut objects: BTreeMap<&Uid, &TrueObject> = BTreeMap::new();
        for (_, uid, object) in self.history.iter().take_while(|(at, ..)| *at <= revision) {
            match object {
                Some(object) if object.kind().kind == kind => drop(objects.insert(uid, object)),
                _ => drop(objects.remove(uid)),
            }
        }
        objects.into_values().collect()
    }

    /// Returns the revision since which a condition has held for an object without interruption, if it holds now.
    #[must_use]
    pub fn since(&self, uid: &Uid, is_so: impl Fn(&TrueObject) -> bool) -> Option<u64> {
        let mut since = None;
        for (at, _, object) in self.history.iter().filter(|(_, known, _)| known == uid) {
            let holds = object.as_ref().is_some_and(&is_so);
            since = if holds { since.or(Some(*at)) } else { None };
        }
        since
    }

    /// Returns an object at a version that a restore has taken back.
    #[must_use]
    pub fn taken_back(&self, uid: &Uid, version: u64) -> Option<&TrueObject> {
        self.taken_back.get(&(uid.clone(), version))
    }

    /// Returns the last state of a removed object.
    #[must_use]
    pub fn past(&self, uid: &Uid) -> Option<&TrueObject> {
        self.past.get(uid)
    }

    /// Reports whether a reference of `dependent` leads to this object.
    #[must_use]
    pub fn leads_to(dependent: &ObservedObject, owner: &OwnerReference, target: &TrueObject) -> bool {
        let reference = &owner.coordinates;
        let kind = target.kind();
        let reachable =
            kind.scope == Scope::Cluster || target.object.key.namespace == dependent.key.namespace;
        reference.uid == target.object.uid
            && kind.kind == &*reference.kind
            && kind.is_served_as(&reference.api_version)
            && target.object.key.name == reference.name
            && reachable
    }

    fn remember(&mut self, change: &TrueChange, actor: Actor) {
        let Some(after) = &change.after else {
            if let Some(before) = &change.before {
                let uid = &before.object.uid;
                let former = before.object.deletion;
                if actor == Actor::Others && former.deleting && (former.foreground || former.orphan) {
                    self.minds_changed.insert(uid.clone());
                }
                self.written.retain(|(dependent, _), _| dependent != uid);
                self.blocks_since.retain(|(dependent, _), _| dependent != uid);
            }
            return;
        };
        let object = &after.object;
        let mut edges = BTreeSet::new();
        let mut blocking = BTreeSet::new();
        for owner in &object.owners {
            let edge = (object.uid.clone(), owner.coordinates.clone());
            if owner.block_owner_deletion == Some(true) {
                blocking.insert(edge.clone());
            }
            edges.insert(edge);
        }
        self.written.retain(|edge, _| edge.0 != object.uid || edges.contains(edge));
        self.blocks_since.retain(|edge, _| edge.0 != object.uid || blocking.contains(edge));
        for edge in edges {
            self.written.entry(edge).or_insert(change.revision);
        }
        for edge in blocking {
            self.blocks_since.entry(edge).or_insert(change.revision);
        }
        let former = change.before.as_ref().map(|before| before.object.deletion).unwrap_or_default();
        let present = object.deletion;
        if present.deleting && present.orphan {
            self.orphaning_since.entry(object.uid.clone()).or_insert(change.revision);
        }
        if present.deleting && present.foreground {
            self.waiting_since.entry(object.uid.clone()).or_insert(change.revision);
        }
        if former.deleting && former.foreground && !present.foreground {
            self.unwaited.entry(object.uid.clone()).or_default().insert(actor);
        }
        if former.deleting
            && actor == Actor::Others
            && (former.foreground, former.orphan) != (present.foreground, present.orphan)
        {
            self.minds_changed.insert(object.uid.clone());
        }
    }

    /// Notes that the store was put back: reads the existing objects again, and puts the later history aside.
    pub fn restored(&mut self, server: &Server) {
        let newest = server.revision();
        let (kept, lost): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.history).into_iter().partition(|(at, ..)| *at <= newest);
        self.history = kept;
        let lost = lost.into_iter().filter_map(|(_, _, object)| object);
        for object in lost.chain(std::mem::take(&mut self.objects).into_values()) {
            let version = object.object.resource_version.0;
            if version > newest {
                self.taken_back.insert((object.object.uid.clone(), version), object);
            }
        }
        for (index, kind) in KINDS.iter().enumerate() {
            for stored in server.stored(&kind.prefix()).into_iter().filter(|stored| !is_lease(&stored.key)) {
                if let Some(object) = parse(index, &stored.value, stored.mod_revision.0) {
                    self.objects.insert(object.object.uid.clone(), object);
                }
            }
        }
        for memory in [&mut self.written, &mut self.blocks_since] {
            memory.retain(|_, revision| *revision <= newest);
        }
        for memory in [&mut self.orphaning_since, &mut self.waiting_since] {
            memory.retain(|_, revision| *revision <= newest);
        }
        let present: Vec<TrueObject> = self.objects.values().cloned().collect();
        for object in present {
            let revision = object.object.resource_version.0;
            let change = TrueChange { before: Some(object.clone()), after: Some(object), revision };
            self.remember(&change, Actor::Others);
        }
        self.revision = newest;
    }

    /// Returns the kind that a reference means.
    #[must_use]
    pub fn kind_meant(owner: &OwnerReference) -> Option<usize> {
        let reference = &owner.coordinates;
        KINDS
            .iter()
            .position(|kind| kind.kind == &*reference.kind && kind.is_served_as(&reference.api_version))
    }

    /// Returns the state of one reference of an object.
    #[must_use]
    pub fn owner_state(&self, dependent: &ObservedObject, owner: &OwnerReference) -> OwnerState {
        let reference = &owner.coordinates;
        let Some(kind) = Self::kind_meant(owner) else { return OwnerState::Undecidable };
        let namespaced = KINDS[kind].scope == Scope::Namespaced;
        if namespaced && dependent.key.namespace.is_empty() {
            return OwnerState::Undecidable;
        }
        let namespace = if namespaced { &*dependent.key.namespace } else { "" };
        let found = self.objects.get(&reference.uid).filter(|found| {
            found.kind == kind
                && *found.object.key.namespace == *namespace
                && found.object.key.name == reference.name
        });
        match found {
            None => OwnerState::Absent,
            Some(owner) if owner.object.deletion.deleting && owner.object.deletion.orphan => {
                OwnerState::Orphans
            }
            Some(owner) if owner.object.deletion.deleting && owner.object.deletion.foreground => {
                OwnerState::Waits
            }
            Some(_) => OwnerState::Lives,
        }
    }

    /// Returns the state of every reference of an object.
    #[must_use]
    pub fn owner_states(&self, dependent: &ObservedObject) -> Vec<OwnerState> {
        dependent.owners.iter().map(|owner| self.owner_state(dependent, owner)).collect()
    }

    /// Returns the revision at which an object got its reference to an owner.
    #[must_use]
    pub fn written(&self, dependent: &Uid, owner: &Coordinates) -> Option<u64> {
        self.written.get(&(dependent.clone(), owner.clone())).copied()
    }

    /// Returns the revision since which an object has blocked that owner.
    #[must_use]
    pub fn blocks_since(&self, dependent: &Uid, owner: &Coordinates) -> Option<u64> {
        self.blocks_since.get(&(dependent.clone(), owner.clone())).copied()
    }

    /// Returns the revision at which an object was first marked to orphan its dependents.
    #[must_use]
    pub fn orphaning_since(&self, uid: &Uid) -> Option<u64> {
        self.orphaning_since.get(uid).copied()
    }

    /// Returns the revision at which an object was first marked to wait for its dependents.
    #[must_use]
    pub fn waiting_since(&self, uid: &Uid) -> Option<u64> {
        self.waiting_since.get(uid).copied()
    }

    /// Reports whether something other than this collector ended the object's waiting, so the collector could not know.
    #[must_use]
    pub fn unwaited_by_another(&self, uid: &Uid, collector: usize) -> bool {
        self.unwaited
            .get(uid)
            .is_some_and(|actors| actors.iter().any(|actor| *actor != Actor::Collector(collector)))
    }

    /// Reports whether a client changed the way in which the object's deletion treats dependents, after it had begun.
    #[must_use]
    pub fn mind_changed(&self, uid: &Uid) -> bool {
        self.minds_changed.contains(uid)
    }

    /// Returns a namespace by number.
    #[must_use]
    pub fn namespace(index: usize) -> &'static str {
        NAMESPACES[index % NAMESPACES.len()]
    }
}
