//! References that lead nowhere or elsewhere, and ownership cycles.

use std::collections::BTreeMap;

use gc_types::OwnerReference;

use super::NodeView;
use crate::engine::{Engine, ReferenceState};
use crate::graph::{Flag, NodeId, Target};

/// Fault of a wrong reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stray {
    /// No object has its UID.
    Absent,
    /// The kind is not served in the version that it names.
    UnknownKind,
    /// From a cluster-scoped object to a namespaced kind.
    ImpossibleScope,
    /// The object with its UID is in another namespace, or has another kind or name.
    Elsewhere(Box<NodeView>),
}

/// A reference that does not lead to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayReference {
    /// The object that carries it.
    pub dependent: NodeView,
    /// The reference.
    pub reference: OwnerReference,
    /// Fault of the reference.
    pub stray: Stray,
}

impl Engine {
    /// Returns the references of living objects that do not lead to their owners, by kind and key. Visits everything.
    #[must_use]
    pub fn stray_references(&self) -> Vec<StrayReference> {
        let graph = &self.graph;
        let mut strays = Vec::new();
        for node in graph.slots() {
            if !graph.has(node, Flag::OBSERVED) || graph.has(node, Flag::DELETING) {
                continue;
            }
            for edge in graph.edges_of(node) {
                let owner = graph.owner(edge);
                let stray = match graph.target(edge) {
                    _ if graph.has(owner, Flag::OBSERVED) && graph.matches(edge) => continue,
                    Target::UnknownKind => Stray::UnknownKind,
                    Target::InvalidScope => Stray::ImpossibleScope,
                    Target::Place(..) if graph.has(owner, Flag::OBSERVED) => {
                        Stray::Elsewhere(Box::new(self.view(owner)))
                    }
                    Target::Place(..) => match self.known_class(edge) {
                        Some(ReferenceState::Absent(_)) => Stray::Absent,
                        _ => continue,
                    },
                };
                strays.push(StrayReference {
                    dependent: self.view(node),
                    reference: graph.reference(edge),
                    stray,
                });
            }
        }
        strays.sort_by_key(|stray| order(&stray.dependent));
        strays
    }

    /// Returns cycles of objects that own each other, up to a maximum number, each from its first object by kind and key. Visits
    /// everything that has an owner.
    #[must_use]
    pub fn rings(&self, limit: usize) -> Vec<Vec<NodeView>> {
        let graph = &self.graph;
        let owners = |node: NodeId| -> Vec<NodeId> {
            let owners = graph.edges_of(node).map(|edge| graph.owner(edge));
            owners.filter(|&owner| graph.has(owner, Flag::OBSERVED)).collect()
        };
        // `true` once the search below an object has ended.
        let mut ended: BTreeMap<NodeId, bool> = BTreeMap::new();
        let mut rings = Vec::new();
        for start in graph.slots().filter(|&node| graph.has(node, Flag::OBSERVED)) {
            if ended.contains_key(&start) || graph.edges_of(start).next().is_none() {
                continue;
            }
            let mut path = vec![(start, owners(start))];
            ended.insert(start, false);
            while let Some((node, open)) = path.last_mut() {
                let Some(owner) = open.pop() else {
                    ended.insert(*node, true);
                    path.pop();
                    continue;
                };
                match ended.get(&owner) {
                    None => {
                        ended.insert(owner, false);
                        path.push((owner, owners(owner)));
                    }
                    Some(false) if rings.len() < limit => {
                        let begin = path.iter().position(|(node, _)| *node == owner).unwrap_or_default();
                        rings.push(self.ring(path[begin..].iter().map(|(node, _)| *node)));
                    }
                    Some(_) => {}
                }
            }
        }
        rings.sort_by_key(|ring| ring.first().map(order));
        rings
    }

    fn ring(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeView> {
        let mut ring: Vec<NodeView> = nodes.map(|node| self.view(node)).collect();
        let first = (0..ring.len()).min_by(|&left, &right| order(&ring[left]).cmp(&order(&ring[right])));
        ring.rotate_left(first.unwrap_or_default());
        ring
    }
}

fn order(view: &NodeView) -> (std::sync::Arc<str>, Option<gc_types::ObjectKey>) {
    (view.kind.clone(), view.key.clone())
}
