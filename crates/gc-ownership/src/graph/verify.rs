//! Self-checks of the graph (spec 1.4). For tests: they visit everything.

use super::{EdgeFlag, Flag, Graph, NO_RESOURCE, NONE};

impl Graph {
    /// Returns every broken invariant, as text.
    pub(crate) fn verify(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut observed = 0;
        let mut own_edges = 0;
        let mut dependent_edges = 0;
        let mut nodes = 0;
        for id in self.slots().filter(|&id| self.is_live(id)) {
            nodes += 1;
            observed += usize::from(self.has(id, Flag::OBSERVED));
            if self.find(&self.uid(id)) != Some(id) {
                broken.push(format!("node {id} is not found under its uid"));
            }
            if self.has(id, Flag::OBSERVED) && self.has(id, Flag::GONE) {
                broken.push(format!("node {id} is both there and gone"));
            }
            if !self.has(id, Flag::OBSERVED) && !self.has_dependents(id) {
                broken.push(format!("node {id} does not exist and has no dependents"));
            }
            if !self.has(id, Flag::OBSERVED) && self.has_references(id) {
                broken.push(format!("node {id} is not there and has references"));
            }
            if self.has(id, Flag::OBSERVED) && self.resource(id) == NO_RESOURCE {
                broken.push(format!("node {id} is there without a resource"));
            }
            for edge in self.edges_of(id) {
                own_edges += 1;
                if self.dependent(edge) != id {
                    broken.push(format!("reference {edge} of node {id} names another dependent"));
                }
                if !self.is_live(self.owner(edge)) {
                    broken.push(format!("reference {edge} leads to a freed node"));
                }
                let aside = self.edge_names.contains_key(&edge);
                if aside != (self.edges.get(edge).flags & EdgeFlag::NAME_DIFFERS != 0) {
                    broken.push(format!("reference {edge} does not know where its name is"));
                }
            }
            let mut previous = NONE;
            for edge in self.dependents_of(id) {
                dependent_edges += 1;
                let stored = self.edges.get(edge);
                if stored.owner != id {
                    broken.push(format!("dependent {edge} of node {id} names another owner"));
                }
                if stored.previous != previous {
                    broken.push(format!("dependent {edge} of node {id} is linked wrongly"));
                }
                if !self.edges_of(stored.dependent).any(|own| own == edge) {
                    broken.push(format!("dependent {edge} of node {id} is no reference of its dependent"));
                }
                if self.edge_has(edge, EdgeFlag::COUNTED) && !self.has(id, Flag::WAITING) {
                    broken.push(format!("reference {edge} blocks node {id}, which does not wait"));
                }
                previous = edge;
            }
        }
        let (tracked, users) = self.recreators.census();
        let (there, gone): (Vec<_>, Vec<_>) = tracked.partition(|&id| self.has(id, Flag::OBSERVED));
        if !gone.is_empty() || there.len() != users {
            broken.push(format!("recreators of {there:?} and, not there, {gone:?}; {users} counted"));
        }
        if observed != self.observed {
            broken.push(format!("{observed} objects seen, {} counted", self.observed));
        }
        let by_resource: usize = self.resources.iter().map(|(_, state)| state.objects).sum();
        if observed != by_resource {
            broken.push(format!("{observed} objects seen, {by_resource} counted by resource"));
        }
        if nodes != self.nodes.len() || nodes != self.index.len() {
            broken.push(format!("{nodes} nodes, {} stored, {} indexed", self.nodes.len(), self.index.len()));
        }
        if own_edges != self.edges.len() || dependent_edges != self.edges.len() {
            broken.push(format!(
                "{own_edges} references, {dependent_edges} dependents, {} stored",
                self.edges.len()
            ));
        }
        broken
    }
}
