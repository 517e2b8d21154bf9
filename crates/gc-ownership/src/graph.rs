//! The ownership graph: which object refers to which, keyed by UID, in as few bytes as possible.
//!
//! A node takes 48 bytes, a reference (edge) 28, a name its length rounded up to a slot, the index of UIDs about ten. Dependents
//! are intrusive doubly linked lists, so removing one costs the same whether its owner has one or ten million of them. Text that
//! references repeat (the name of the owner) is stored once.

mod intern;
mod names;
mod recreators;
mod resources;
mod slab;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{
    Coordinates, DeletionState, ObjectKey, ObservedObject, OwnerReference, Recreator, ResourceId,
    ResourceVersion, Uid,
};
use hashbrown::HashTable;

use intern::Interner;
use names::{NameAt, Names};
use recreators::Recreators;
use slab::Slab;

pub(crate) use intern::KindText;
pub(crate) use resources::{NO_RESOURCE, Resource, ResourceIndex, Resources};
pub(crate) use slab::NONE;

/// Number of a node. Reused after the node is gone; to remember a node longer, use the UID.
pub(crate) type NodeId = u32;
/// Number of a reference.
pub(crate) type EdgeId = u32;
/// Number of a namespace.
pub(crate) type NamespaceId = u32;

/// States of a node, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flag(u16);

impl Flag {
    /// Observed on a watch and not removed since.
    pub(crate) const OBSERVED: Self = Self(1);
    /// Proven gone; stored because dependents refer to it.
    pub(crate) const GONE: Self = Self(1 << 1);
    /// With `GONE`: proven by a live read; the version field holds the time in milliseconds.
    pub(crate) const GONE_BY_READ: Self = Self(1 << 2);
    pub(crate) const DELETING: Self = Self(1 << 3);
    pub(crate) const FOREGROUND: Self = Self(1 << 4);
    pub(crate) const ORPHAN: Self = Self(1 << 5);
    pub(crate) const FOREIGN: Self = Self(1 << 6);
    /// Queued.
    pub(crate) const QUEUED: Self = Self(1 << 7);
    /// A request about it is in flight.
    pub(crate) const IN_FLIGHT: Self = Self(1 << 8);
    /// It changed while a request was in flight.
    pub(crate) const DIRTY: Self = Self(1 << 9);
    /// A request was applied; none further is made until the object is observed changed.
    pub(crate) const GRANTED: Self = Self(1 << 10);
    /// The server disagreed with the observations: read it before anything else. With `GONE`: only its watch has reported the
    /// removal.
    pub(crate) const UNCLEAR: Self = Self(1 << 11);
    /// Just read; an unknown version is no reason to read it again.
    pub(crate) const FRESH: Self = Self(1 << 12);
    /// Waits for its dependents (it has a row in the engine's table of waiting owners).
    pub(crate) const WAITING: Self = Self(1 << 13);
    /// Mark of the list in which it was last contained.
    pub(crate) const PARITY: Self = Self(1 << 14);
    /// The UID is not a UUID; its text is interned.
    const TEXT_UID: Self = Self(1 << 15);
}

#[derive(Clone, Copy, Debug)]
struct Node {
    uid: [u8; 16],
    version: u64,
    namespace: NamespaceId,
    name: NameAt,
    first_edge: EdgeId,
    first_dependent: EdgeId,
    resource: ResourceIndex,
    flags: u16,
}

/// Every object of a cluster has one.
const _: () = assert!(size_of::<Node>() == 48, "a node takes more memory than it should");

/// States of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgeFlag(u8);

impl EdgeFlag {
    const CONTROLLER_SET: u8 = 1;
    const CONTROLLER: u8 = 1 << 1;
    const BLOCK_SET: u8 = 1 << 2;
    const BLOCK: u8 = 1 << 3;
    /// The name differs from the owner node's and is stored separately.
    const NAME_DIFFERS: u8 = 1 << 4;
    /// A Kubernetes Event about it was written.
    pub(crate) const NOTED: Self = Self(1 << 5);
    /// It counts as blocking in the engine's table of waiting owners.
    pub(crate) const COUNTED: Self = Self(1 << 6);
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    owner: NodeId,
    dependent: NodeId,
    next: EdgeId,
    previous: EdgeId,
    next_of_dependent: EdgeId,
    kind: u32,
    flags: u8,
}

/// Target of a reference according to its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A kind that is not served.
    UnknownKind,
    /// A namespaced kind, from a cluster-scoped object.
    InvalidScope,
    /// This resource, in this namespace (empty at cluster scope).
    Place(ResourceIndex, NamespaceId),
}

/// An owner that lost a reference, for the engine to check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlinkedOwner {
    pub(crate) owner: NodeId,
    pub(crate) counted: bool,
}

/// The graph.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    nodes: Slab<Node>,
    edges: Slab<Edge>,
    names: Names,
    index: HashTable<NodeId>,
    namespaces: Interner<Arc<str>>,
    kinds: Interner<KindText>,
    /// Resource by number of the kind text.
    kind_targets: Vec<ResourceIndex>,
    uid_texts: Interner<Arc<str>>,
    /// Names of references that differ from their owner's.
    edge_names: BTreeMap<EdgeId, Arc<str>>,
    recreators: Recreators,
    pub(crate) resources: Resources,
    observed: usize,
}

/// Namespace of cluster-scoped objects, interned permanently.
pub(crate) const CLUSTER: NamespaceId = 0;

/// Hashes a UID. The server creates UIDs at random; the multiplication spreads those of tests and interned texts. A
/// constant seed keeps runs repeatable.
fn hash(uid: [u8; 16]) -> u64 {
    let value = u128::from_le_bytes(uid);
    let folded = value ^ (value >> 64);
    let low = u64::try_from(folded & u128::from(u64::MAX)).unwrap_or_default();
    let product = low.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

impl Graph {
    pub(crate) fn new() -> Self {
        let mut namespaces = Interner::new();
        namespaces.intern("");
        Self {
            nodes: Slab::new(),
            edges: Slab::new(),
            names: Names::new(),
            index: HashTable::new(),
            namespaces,
            kinds: Interner::new(),
            kind_targets: Vec::new(),
            uid_texts: Interner::new(),
            edge_names: BTreeMap::new(),
            recreators: Recreators::new(),
            resources: Resources::default(),
            observed: 0,
        }
    }

    // ---- statistics ----

    pub(crate) fn objects(&self) -> usize {
        self.observed
    }

    pub(crate) fn virtual_owners(&self) -> usize {
        self.nodes.len() - self.observed
    }

    pub(crate) fn references(&self) -> usize {
        self.edges.len()
    }

    pub(crate) fn unknown_kind_references(&self) -> usize {
        self.kinds
            .iter()
            .filter(|(id, ..)| self.kind_targets[*id as usize] == NO_RESOURCE)
            .map(|(_, _, users)| users as usize)
            .sum()
    }

    // ---- nodes ----

    fn pack(&self, uid: &Uid) -> Option<([u8; 16], bool)> {
        if let Some(bytes) = uid.as_uuid() {
            return Some((bytes, false));
        }
        let id = self.uid_texts.find(uid.to_string().as_str())?;
        Some((text_uid(id), true))
    }

    pub(crate) fn find(&self, uid: &Uid) -> Option<NodeId> {
        let (bytes, is_text) = self.pack(uid)?;
        self.index
            .find(hash(bytes), |&id| {
                let node = self.nodes.get(id);
                node.uid == bytes && (node.flags & Flag::TEXT_UID.0 != 0) == is_text
            })
            .copied()
    }

    fn create(&mut self, uid: &Uid, name: &str) -> NodeId {
        let (bytes, flags) = match uid.as_uuid() {
            Some(bytes) => (bytes, 0),
            None => (text_uid(self.uid_texts.intern(uid.to_string().as_str())), Flag::TEXT_UID.0),
        };
        let node = Node {
            uid: bytes,
            version: 0,
            namespace: CLUSTER,
            name: self.names.insert(name),
            first_edge: NONE,
            first_dependent: NONE,
            resource: NO_RESOURCE,
            flags,
        };
        let id = self.nodes.insert(node);
        let nodes = &self.nodes;
        self.index.insert_unique(hash(bytes), id, |&other| hash(nodes.get(other).uid));
        id
    }

    /// Frees a node that has neither references nor dependents.
    fn free(&mut self, id: NodeId) {
        let node = *self.nodes.get(id);
        if let Ok(entry) = self.index.find_entry(hash(node.uid), |&other| other == id) {
            entry.remove();
        }
        if node.flags & Flag::TEXT_UID.0 != 0 {
            self.uid_texts.release(text_uid_id(node.uid));
        }
        self.release_namespace(node.namespace);
        self.names.remove(node.name);
        // A freed slot is recognized by its flags until it is reused.
        self.nodes.get_mut(id).flags = 0;
        self.nodes.remove(id);
    }

    pub(crate) fn has(&self, id: NodeId, flag: Flag) -> bool {
        self.nodes.get(id).flags & flag.0 != 0
    }

    pub(crate) fn set(&mut self, id: NodeId, flag: Flag, on: bool) {
        let flags = &mut self.nodes.get_mut(id).flags;
        *flags = if on { *flags | flag.0 } else { *flags & !flag.0 };
    }

    pub(crate) fn uid(&self, id: NodeId) -> Uid {
        let node = self.nodes.get(id);
        if node.flags & Flag::TEXT_UID.0 != 0 {
            let text = self.uid_texts.get(text_uid_id(node.uid));
            return Uid::new(text.map_or("", |text| text));
        }
        Uid::from_uuid(node.uid)
    }

    pub(crate) fn version(&self, id: NodeId) -> ResourceVersion {
        ResourceVersion(self.nodes.get(id).version)
    }

    pub(crate) fn resource(&self, id: NodeId) -> ResourceIndex {
        self.nodes.get(id).resource
    }

    pub(crate) fn namespace(&self, id: NodeId) -> NamespaceId {
        self.nodes.get(id).namespace
    }

    pub(crate) fn namespace_text(&self, id: NamespaceId) -> Arc<str> {
        self.namespaces.get(id).cloned().unwrap_or_default()
    }

    pub(crate) fn name(&self, id: NodeId) -> &str {
        self.names.get(self.nodes.get(id).name)
    }

    pub(crate) fn resource_id(&self, index: ResourceIndex) -> ResourceId {
        self.resources.get(index).map_or(ResourceId(u32::MAX), |resource| resource.info.id)
    }

    pub(crate) fn key(&self, id: NodeId) -> ObjectKey {
        ObjectKey {
            resource: self.resource_id(self.resource(id)),
            namespace: self.namespace_text(self.namespace(id)),
            name: self.name(id).into(),
        }
    }

    pub(crate) fn deletion(&self, id: NodeId) -> DeletionState {
        DeletionState {
            deleting: self.has(id, Flag::DELETING),
            foreground: self.has(id, Flag::FOREGROUND),
            orphan: self.has(id, Flag::ORPHAN),
            foreign_finalizers: self.has(id, Flag::FOREIGN),
        }
    }

    /// Returns a known object in the form of an observation.
    pub(crate) fn object(&self, id: NodeId) -> ObservedObject {
        ObservedObject {
            key: self.key(id),
            uid: self.uid(id),
            resource_version: self.version(id),
            owners: self.edges_of(id).map(|edge| self.reference(edge)).collect(),
            deletion: self.deletion(id),
            recreator: self.recreator(id).cloned(),
        }
    }

    /// Returns the recreator of an object, by its labels and annotations.
    pub(crate) fn recreator(&self, id: NodeId) -> Option<&Recreator> {
        self.recreators.get(id)
    }

    pub(crate) fn set_recreator(&mut self, id: NodeId, recreator: Option<&Recreator>) {
        self.recreators.set(id, recreator);
    }

    /// Returns every slot that may hold a node; freed ones have none of the flags that callers ask for.
    pub(crate) fn slots(&self) -> impl Iterator<Item = NodeId> + use<> {
        0..self.nodes.slots()
    }

    /// Reports whether a slot holds a node that is seen, proven gone, or referred to.
    pub(crate) fn is_live(&self, id: NodeId) -> bool {
        let node = self.nodes.get(id);
        self.index.find(hash(node.uid), |&other| other == id).is_some()
    }

    /// Reports whether only the watch of a node's resource has reported its removal.
    pub(crate) fn is_reported_gone(&self, id: NodeId) -> bool {
        self.has(id, Flag::GONE) && self.has(id, Flag::UNCLEAR)
    }

    /// Records that a second answer has confirmed the removal that a watch has reported.
    pub(crate) fn confirm_gone(&mut self, id: NodeId) {
        self.set(id, Flag::UNCLEAR, false);
    }

    // ---- observation ----

    /// Finds or creates the node of an observed object and sets its identity. Returns the node and whether its identity is new
    /// (observed for the first time, or at another place).
    pub(crate) fn place(&mut self, uid: &Uid, key: &ObjectKey, resource: ResourceIndex) -> (NodeId, bool) {
        let id = match self.find(uid) {
            Some(id) => id,
            None => self.create(uid, &key.name),
        };
        let node = self.nodes.get(id);
        let namespace = self.namespaces.find(&*key.namespace);
        let seen = node.flags & Flag::OBSERVED.0 != 0;
        if seen
            && node.resource == resource
            && Some(node.namespace) == namespace
            && self.name(id) == &*key.name
        {
            return (id, false);
        }
        self.rename(id, &key.name);
        let namespace = self.namespaces.intern(&*key.namespace);
        let former = self.nodes.get(id).namespace;
        self.release_namespace(former);
        if seen {
            self.count_object(self.nodes.get(id).resource, false);
        } else {
            self.observed += 1;
        }
        self.count_object(resource, true);
        let node = self.nodes.get_mut(id);
        node.namespace = namespace;
        node.resource = resource;
        node.flags |= Flag::OBSERVED.0;
        if !seen {
            self.forget_departure(id);
        }
        (id, true)
    }

    fn count_object(&mut self, resource: ResourceIndex, more: bool) {
        if let Some(state) = self.resources.get_mut(resource) {
            state.objects = if more { state.objects + 1 } else { state.objects.saturating_sub(1) };
        }
    }

    /// Releases a namespace, except for the empty one.
    fn release_namespace(&mut self, id: NamespaceId) {
        if id != CLUSTER {
            self.namespaces.release(id);
        }
    }

    /// Renames a node; references that meant the old name keep it.
    fn rename(&mut self, id: NodeId, name: &str) {
        if self.name(id) == name {
            return;
        }
        let former: Arc<str> = self.name(id).into();
        let mut cursor = self.nodes.get(id).first_dependent;
        while cursor != NONE {
            let edge = *self.edges.get(cursor);
            if edge.flags & EdgeFlag::NAME_DIFFERS == 0 {
                self.edge_names.insert(cursor, former.clone());
                self.edges.get_mut(cursor).flags |= EdgeFlag::NAME_DIFFERS;
            } else if self.edge_names.get(&cursor).is_some_and(|own| &**own == name) {
                self.edge_names.remove(&cursor);
                self.edges.get_mut(cursor).flags &= !EdgeFlag::NAME_DIFFERS;
            }
            cursor = edge.next;
        }
        let at = self.nodes.get(id).name;
        self.names.remove(at);
        self.nodes.get_mut(id).name = self.names.insert(name);
    }

    pub(crate) fn set_state(&mut self, id: NodeId, version: ResourceVersion, deletion: DeletionState) {
        self.nodes.get_mut(id).version = version.0;
        self.set(id, Flag::DELETING, deletion.deleting);
        self.set(id, Flag::FOREGROUND, deletion.foreground);
        self.set(id, Flag::ORPHAN, deletion.orphan);
        self.set(id, Flag::FOREIGN, deletion.foreign_finalizers);
    }

    /// Reports whether a node's references equal these.
    pub(crate) fn owners_equal(&self, id: NodeId, owners: &[OwnerReference]) -> bool {
        let mut cursor = self.nodes.get(id).first_edge;
        for owner in owners {
            if cursor == NONE || !self.edge_is(cursor, owner) {
                return false;
            }
            cursor = self.edges.get(cursor).next_of_dependent;
        }
        cursor == NONE
    }

    fn edge_is(&self, edge: EdgeId, reference: &OwnerReference) -> bool {
        let stored = self.edges.get(edge);
        let Some(kind) = self.kinds.get(stored.kind) else { return false };
        *kind.kind == *reference.coordinates.kind
            && *kind.api_version == *reference.coordinates.api_version
            && stored.flags & BOOLEANS == booleans(reference)
            && *self.edge_name(edge) == *reference.coordinates.name
            && self.uid(stored.owner) == reference.coordinates.uid
    }

    /// Replaces a node's references. Returns the owners that lost one; those without dependents that were never observed are kept
    /// until [`Graph::prune`].
    pub(crate) fn set_owners(&mut self, id: NodeId, owners: &[OwnerReference]) -> Vec<UnlinkedOwner> {
        let noted: Vec<OwnerReference> = self
            .edges_of(id)
            .filter(|&edge| self.edge_has(edge, EdgeFlag::NOTED))
            .map(|edge| self.reference(edge))
            .collect();
        let unlinked = self.unlink_all(id);
        let mut last = NONE;
        for reference in owners {
            let edge = self.link(id, reference);
            if noted.iter().any(|known| known.coordinates == reference.coordinates) {
                self.set_edge(edge, EdgeFlag::NOTED, true);
            }
            if last == NONE {
                self.nodes.get_mut(id).first_edge = edge;
            } else {
                self.edges.get_mut(last).next_of_dependent = edge;
            }
            last = edge;
        }
        unlinked
    }

    fn link(&mut self, dependent: NodeId, reference: &OwnerReference) -> EdgeId {
        let coordinates = &reference.coordinates;
        let owner = match self.find(&coordinates.uid) {
            Some(owner) => owner,
            None => self.create(&coordinates.uid, &coordinates.name),
        };
        let text = KindText { api_version: coordinates.api_version.clone(), kind: coordinates.kind.clone() };
        let kind = self.kinds.intern(&text);
        if self.kind_targets.len() <= kind as usize {
            self.kind_targets.resize(kind as usize + 1, NO_RESOURCE);
        }
        self.kind_targets[kind as usize] = self.resources.resolve(&text);
        let next = self.nodes.get(owner).first_dependent;
        let differs = self.name(owner) != &*coordinates.name;
        let edge = self.edges.insert(Edge {
            owner,
            dependent,
            next,
            previous: NONE,
            next_of_dependent: NONE,
            kind,
            flags: booleans(reference) | if differs { EdgeFlag::NAME_DIFFERS } else { 0 },
        });
        if differs {
            self.edge_names.insert(edge, coordinates.name.clone());
        }
        if next != NONE {
            self.edges.get_mut(next).previous = edge;
        }
        self.nodes.get_mut(owner).first_dependent = edge;
        edge
    }

    fn unlink_all(&mut self, id: NodeId) -> Vec<UnlinkedOwner> {
        let mut unlinked = Vec::new();
        let mut cursor = self.nodes.get(id).first_edge;
        self.nodes.get_mut(id).first_edge = NONE;
        while cursor != NONE {
            let edge = *self.edges.get(cursor);
            if edge.previous == NONE {
                self.nodes.get_mut(edge.owner).first_dependent = edge.next;
            } else {
                self.edges.get_mut(edge.previous).next = edge.next;
            }
            if edge.next != NONE {
                self.edges.get_mut(edge.next).previous = edge.previous;
            }
            self.edge_names.remove(&cursor);
            self.kinds.release(edge.kind);
            self.edges.remove(cursor);
            unlinked
                .push(UnlinkedOwner { owner: edge.owner, counted: edge.flags & EdgeFlag::COUNTED.0 != 0 });
            cursor = edge.next_of_dependent;
        }
        unlinked
    }

    /// Removes an object and its references; its node is kept, as gone or as never observed, if others refer to it.
    pub(crate) fn depart(&mut self, id: NodeId, how: Departure) -> Vec<UnlinkedOwner> {
        let unlinked = self.unlink_all(id);
        self.set_recreator(id, None);
        if self.has(id, Flag::OBSERVED) {
            self.observed -= 1;
            self.count_object(self.nodes.get(id).resource, false);
        }
        let node = self.nodes.get_mut(id);
        node.flags &= Flag::TEXT_UID.0 | Flag::QUEUED.0 | Flag::IN_FLIGHT.0 | Flag::DIRTY.0;
        match how {
            Departure::Removed(version) => {
                node.version = version.0;
                node.flags |= Flag::GONE.0;
            }
            Departure::Reported(version) => {
                node.version = version.0;
                node.flags |= Flag::GONE.0 | Flag::UNCLEAR.0;
            }
            Departure::ReadAbsent(milliseconds) => {
                node.version = u64::try_from(milliseconds).unwrap_or_default();
                node.flags |= Flag::GONE.0 | Flag::GONE_BY_READ.0;
            }
            Departure::Unproven => self.forget_place(id),
        }
        unlinked
    }

    /// Forgets that a node was known to be gone.
    pub(crate) fn forget_place(&mut self, id: NodeId) {
        self.forget_departure(id);
        let node = self.nodes.get_mut(id);
        node.version = 0;
        node.resource = NO_RESOURCE;
        let former = std::mem::replace(&mut node.namespace, CLUSTER);
        self.release_namespace(former);
    }

    fn forget_departure(&mut self, id: NodeId) {
        for flag in [Flag::GONE, Flag::GONE_BY_READ, Flag::UNCLEAR] {
            self.set(id, flag, false);
        }
    }

    /// Forgets a node that does not exist and has no dependents. Returns whether it did.
    pub(crate) fn prune(&mut self, id: NodeId) -> bool {
        let node = self.nodes.get(id);
        let idle = node.first_dependent == NONE && node.flags & Flag::OBSERVED.0 == 0;
        if idle {
            self.free(id);
        }
        idle
    }

    // ---- references ----

    /// Returns a node's references, in the order written.
    pub(crate) fn edges_of(&self, id: NodeId) -> Walk<'_> {
        Walk { graph: self, cursor: self.nodes.get(id).first_edge, along_dependents: false }
    }

    /// Returns the references to a node, newest first.
    pub(crate) fn dependents_of(&self, id: NodeId) -> Walk<'_> {
        Walk { graph: self, cursor: self.nodes.get(id).first_dependent, along_dependents: true }
    }

    /// Returns the first reference to a node, or `NONE`, for iterations that change the graph.
    pub(crate) fn first_dependent(&self, id: NodeId) -> EdgeId {
        self.nodes.get(id).first_dependent
    }

    pub(crate) fn next_dependent(&self, edge: EdgeId) -> EdgeId {
        self.edges.get(edge).next
    }

    pub(crate) fn has_dependents(&self, id: NodeId) -> bool {
        self.nodes.get(id).first_dependent != NONE
    }

    pub(crate) fn has_references(&self, id: NodeId) -> bool {
        self.nodes.get(id).first_edge != NONE
    }

    pub(crate) fn has_several_references(&self, id: NodeId) -> bool {
        let first = self.nodes.get(id).first_edge;
        first != NONE && self.edges.get(first).next_of_dependent != NONE
    }

    pub(crate) fn owner(&self, edge: EdgeId) -> NodeId {
        self.edges.get(edge).owner
    }

    pub(crate) fn dependent(&self, edge: EdgeId) -> NodeId {
        self.edges.get(edge).dependent
    }

    pub(crate) fn edge_has(&self, edge: EdgeId, flag: EdgeFlag) -> bool {
        self.edges.get(edge).flags & flag.0 != 0
    }

    pub(crate) fn set_edge(&mut self, edge: EdgeId, flag: EdgeFlag, on: bool) {
        let flags = &mut self.edges.get_mut(edge).flags;
        *flags = if on { *flags | flag.0 } else { *flags & !flag.0 };
    }

    pub(crate) fn blocks(&self, edge: EdgeId) -> bool {
        self.edges.get(edge).flags & EdgeFlag::BLOCK != 0
    }

    pub(crate) fn edge_name(&self, edge: EdgeId) -> &str {
        let stored = self.edges.get(edge);
        if stored.flags & EdgeFlag::NAME_DIFFERS != 0 {
            return self.edge_names.get(&edge).map_or("", |name| name);
        }
        self.name(stored.owner)
    }

    /// Returns the reference in its original form.
    pub(crate) fn reference(&self, edge: EdgeId) -> OwnerReference {
        let stored = self.edges.get(edge);
        let flag = |set: u8, value: u8| (stored.flags & set != 0).then_some(stored.flags & value != 0);
        OwnerReference {
            coordinates: self.coordinates(edge),
            controller: flag(EdgeFlag::CONTROLLER_SET, EdgeFlag::CONTROLLER),
            block_owner_deletion: flag(EdgeFlag::BLOCK_SET, EdgeFlag::BLOCK),
        }
    }

    pub(crate) fn coordinates(&self, edge: EdgeId) -> Coordinates {
        let stored = self.edges.get(edge);
        let kind = self.kinds.get(stored.kind);
        Coordinates {
            api_version: kind.map(|text| text.api_version.clone()).unwrap_or_default(),
            kind: kind.map(|text| text.kind.clone()).unwrap_or_default(),
            name: self.edge_name(edge).into(),
            uid: self.uid(stored.owner),
        }
    }

    /// Returns where a reference leads, by discovery and by the namespace of the object that carries it.
    pub(crate) fn target(&self, edge: EdgeId) -> Target {
        let stored = self.edges.get(edge);
        let resource = self.kind_targets.get(stored.kind as usize).copied().unwrap_or(NO_RESOURCE);
        if resource == NO_RESOURCE {
            return Target::UnknownKind;
        }
        if !self.resources.is_namespaced(resource) {
            return Target::Place(resource, CLUSTER);
        }
        let namespace = self.nodes.get(stored.dependent).namespace;
        if namespace == CLUSTER { Target::InvalidScope } else { Target::Place(resource, namespace) }
    }

    /// Reports whether a reference leads to where its owner is, or was.
    pub(crate) fn matches(&self, edge: EdgeId) -> bool {
        let stored = self.edges.get(edge);
        let owner = self.nodes.get(stored.owner);
        stored.flags & EdgeFlag::NAME_DIFFERS == 0
            && self.target(edge) == Target::Place(owner.resource, owner.namespace)
    }

    /// Reports whether a reference led to where the removal of its owner was observed, and the owner's kind was removed after it.
    /// That the kind is no longer served does not weaken the proof (a definition is removed right after its last object).
    pub(crate) fn matched_before_its_kind_went(&self, edge: EdgeId) -> bool {
        let stored = self.edges.get(edge);
        let owner = self.nodes.get(stored.owner);
        if stored.flags & EdgeFlag::NAME_DIFFERS != 0
            || self.target(edge) != Target::UnknownKind
            || (owner.namespace != CLUSTER && owner.namespace != self.nodes.get(stored.dependent).namespace)
        {
            return false;
        }
        let (Some(resource), Some(text)) = (self.resources.get(owner.resource), self.kinds.get(stored.kind))
        else {
            return false;
        };
        resource.info.kind == text.kind && resource.info.served_api_versions.contains(&text.api_version)
    }

    /// Resolves all kinds again. Returns whether any reference now leads elsewhere.
    pub(crate) fn resolve_kinds(&mut self) -> bool {
        let mut changed = false;
        for (id, text, _) in self.kinds.iter() {
            let target = self.resources.resolve(text);
            let slot = &mut self.kind_targets[id as usize];
            changed |= *slot != target;
            *slot = target;
        }
        changed
    }
}

/// Way in which a node is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Departure {
    /// Its removal was observed at this version, after our DELETE of it was answered.
    Removed(ResourceVersion),
    /// Its watch has reported the removal at this version. One event proves nothing.
    Reported(ResourceVersion),
    /// A live read proved it absent at this time (milliseconds since the epoch).
    ReadAbsent(i64),
    /// Its resource is no longer served, or a list does not contain it, which proves nothing.
    Unproven,
}

/// Iterates over references.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    graph: &'a Graph,
    cursor: EdgeId,
    along_dependents: bool,
}

impl Iterator for Walk<'_> {
    type Item = EdgeId;

    fn next(&mut self) -> Option<EdgeId> {
        let edge = self.cursor;
        if edge == NONE {
            return None;
        }
        let stored = self.graph.edges.get(edge);
        self.cursor = if self.along_dependents { stored.next } else { stored.next_of_dependent };
        Some(edge)
    }
}

const BOOLEANS: u8 = EdgeFlag::CONTROLLER_SET | EdgeFlag::CONTROLLER | EdgeFlag::BLOCK_SET | EdgeFlag::BLOCK;

fn booleans(reference: &OwnerReference) -> u8 {
    let bits = |value: Option<bool>, set: u8, on: u8| match value {
        None => 0,
        Some(false) => set,
        Some(true) => set | on,
    };
    bits(reference.controller, EdgeFlag::CONTROLLER_SET, EdgeFlag::CONTROLLER)
        | bits(reference.block_owner_deletion, EdgeFlag::BLOCK_SET, EdgeFlag::BLOCK)
}

fn text_uid(id: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&id.to_le_bytes());
    bytes
}

fn text_uid_id(bytes: [u8; 16]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
