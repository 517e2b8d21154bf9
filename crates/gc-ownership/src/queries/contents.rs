//! Lists of objects that block an owner, depend on it, or are in a namespace.

use std::collections::BTreeMap;

use gc_types::{DeletionState, ObjectKey, ObservedObject, OwnerReference, Recreator, ResourceId, Uid};

use super::NodeView;
use crate::engine::Engine;
use crate::graph::{Flag, NodeId};

/// An object without dependents that is removed as soon as its deletion is requested.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leaf {
    /// UID of the object.
    pub uid: Uid,
    /// Resource of the object.
    pub resource: ResourceId,
    /// True if it has owner references.
    pub has_owners: bool,
}

/// Objects of a namespace or a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Objects without finalizers and dependents that are not terminating, in no particular order.
    pub leaves: Vec<Leaf>,
    /// All others, by kind and key.
    pub others: Vec<NodeView>,
}

impl Engine {
    /// Returns the objects whose resource and namespace match. Visits everything.
    pub fn contents(&self, mut fits: impl FnMut(ResourceId, &str) -> bool) -> Contents {
        let (mut leaves, mut others) = (Vec::new(), Vec::new());
        for node in self.graph.slots().filter(|&node| self.graph.has(node, Flag::OBSERVED)) {
            let resource = self.graph.resource_id(self.graph.resource(node));
            if !fits(resource, &self.graph.namespace_text(self.graph.namespace(node))) {
                continue;
            }
            let is_leaf =
                self.graph.deletion(node) == DeletionState::default() && !self.graph.has_dependents(node);
            if is_leaf {
                let has_owners = self.graph.has_references(node);
                leaves.push(Leaf { uid: self.graph.uid(node), resource, has_owners });
            } else {
                others.push(node);
            }
        }
        Contents { leaves, others: self.sorted(others.into_iter()) }
    }

    /// Returns the key of the object with a UID, if it was observed and exists.
    #[must_use]
    pub fn key_of(&self, uid: &Uid) -> Option<ObjectKey> {
        self.state_of(uid).map(|(key, _)| key)
    }

    /// Returns the key of the object with a UID and the progress of its deletion, if it was observed and exists.
    #[must_use]
    pub fn state_of(&self, uid: &Uid) -> Option<(ObjectKey, DeletionState)> {
        let node = self.graph.find(uid).filter(|&node| self.graph.has(node, Flag::OBSERVED))?;
        Some((self.graph.key(node), self.graph.deletion(node)))
    }

    /// Returns the recreator of an object, by its labels and annotations.
    #[must_use]
    pub fn recreator_of(&self, uid: &Uid) -> Option<&Recreator> {
        self.graph.recreator(self.graph.find(uid)?)
    }

    /// Returns the UIDs of the dependents of an object that exist.
    #[must_use]
    pub fn dependent_uids(&self, owner: &Uid) -> Vec<Uid> {
        let Some(owner) = self.graph.find(owner) else { return Vec::new() };
        let dependents = self.graph.dependents_of(owner).map(|edge| self.graph.dependent(edge));
        let existing = dependents.filter(|&node| self.graph.has(node, Flag::OBSERVED));
        existing.map(|node| self.graph.uid(node)).collect()
    }

    /// Returns the references of an object to its owners.
    #[must_use]
    pub fn owners_of(&self, uid: &Uid) -> Vec<OwnerReference> {
        let Some(node) = self.graph.find(uid) else { return Vec::new() };
        self.graph.edges_of(node).map(|edge| self.graph.reference(edge)).collect()
    }

    fn sorted(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeView> {
        let mut views: Vec<NodeView> = nodes.map(|node| self.view(node)).collect();
        views.sort_by(|left, right| (&left.kind, &left.key).cmp(&(&right.kind, &right.key)));
        views
    }

    /// Returns the dependents that block the foreground deletion of an owner, by kind and key.
    #[must_use]
    pub fn blocking_dependents(&self, owner: &Uid) -> Vec<NodeView> {
        let Some(owner) = self.graph.find(owner) else { return Vec::new() };
        let blocking = self.graph.dependents_of(owner).filter(|&edge| {
            let is_there = self.graph.has(self.graph.dependent(edge), Flag::OBSERVED);
            is_there && self.graph.blocks(edge) && self.graph.matches(edge)
        });
        self.sorted(blocking.map(|edge| self.graph.dependent(edge)))
    }

    /// Returns the dependents of an owner that exist, by kind and key.
    #[must_use]
    pub fn dependents(&self, owner: &Uid) -> Vec<NodeView> {
        let Some(owner) = self.graph.find(owner) else { return Vec::new() };
        let dependents = self.graph.dependents_of(owner).map(|edge| self.graph.dependent(edge));
        self.sorted(dependents.filter(|&node| self.graph.has(node, Flag::OBSERVED)))
    }

    /// Returns the owners that have waited for their dependents the longest, with the milliseconds: the longest first, up to this
    /// number.
    #[must_use]
    pub fn longest_waiting(&self, most: usize) -> Vec<(ObjectKey, i64)> {
        let mut waiting: Vec<(i64, NodeId)> =
            self.waiting.iter().map(|(&node, waiting)| (self.now().since(waiting.since), node)).collect();
        waiting.sort_by_key(|&(waited, node)| (std::cmp::Reverse(waited), node));
        waiting.into_iter().take(most).map(|(waited, node)| (self.graph.key(node), waited)).collect()
    }

    /// Returns the object with a UID.
    #[must_use]
    pub fn view_of(&self, uid: &Uid) -> Option<NodeView> {
        self.graph.find(uid).map(|node| self.view(node))
    }

    /// Returns the number of objects of each resource in each namespace (cluster scope: the empty name). Visits
    /// everything.
    #[must_use]
    pub fn population(&self) -> BTreeMap<(String, ResourceId), usize> {
        let mut population = BTreeMap::new();
        for node in self.graph.slots().filter(|&node| self.graph.has(node, Flag::OBSERVED)) {
            let key = self.graph.key(node);
            *population.entry((key.namespace.to_string(), key.resource)).or_default() += 1;
        }
        population
    }

    /// Returns the objects whose key matches, by kind and key. Visits everything.
    pub fn select(&self, mut fits: impl FnMut(&ObjectKey) -> bool) -> Vec<NodeView> {
        let nodes = self
            .graph
            .slots()
            .filter(|&node| self.graph.has(node, Flag::OBSERVED) && fits(&self.graph.key(node)));
        self.sorted(nodes)
    }

    /// Returns the objects whose key matches, as they were last observed. Visits everything.
    pub fn observed_objects(&self, mut fits: impl FnMut(&ObjectKey) -> bool) -> Vec<ObservedObject> {
        let observed = self.graph.slots().filter(|&node| self.graph.has(node, Flag::OBSERVED));
        let fitting = observed.filter(|&node| fits(&self.graph.key(node)));
        fitting.map(|node| self.graph.object(node)).collect()
    }

    /// Returns the objects without an owner known to be living, but with one that cannot be resolved. Visits everything.
    #[must_use]
    pub fn undecidable(&self) -> Vec<NodeView> {
        let nodes = self.graph.slots().filter(|&node| {
            let is_living = self.graph.has(node, Flag::OBSERVED) && !self.graph.has(node, Flag::DELETING);
            is_living && self.has_only_undecidable_owners(node)
        });
        self.sorted(nodes)
    }
}
