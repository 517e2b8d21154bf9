//! Self-checks of the graph (spec 1.4). For tests: they visit everything.

use std::collections::BTreeMap;

use super::{CLUSTER, EdgeFlag, Flag, Graph, NO_RESOURCE, NONE, text_uid_id};

/// Number of users by number of an interned text.
type Users = BTreeMap<u32, u32>;

impl Graph {
    /// Returns every broken invariant, as text.
    pub(crate) fn verify(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut observed = 0;
        let mut own_edges = 0;
        let mut dependent_edges = 0;
        let mut nodes = 0;
        let (mut namespaces, mut kinds, mut uids) = (Users::new(), Users::new(), Users::new());
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
            if self.has(id, Flag::OBSERVED)
                && self.resources.get(self.resource(id)).is_some_and(|state| !state.served)
            {
                broken.push(format!("node {id} is there and its resource is not served"));
            }
            let node = self.nodes.get(id);
            if node.namespace != CLUSTER {
                *namespaces.entry(node.namespace).or_default() += 1;
            }
            if self.has(id, Flag::TEXT_UID) {
                *uids.entry(text_uid_id(node.uid)).or_default() += 1;
            }
            for edge in self.edges_of(id) {
                own_edges += 1;
                *kinds.entry(self.edges.get(edge).kind).or_default() += 1;
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
        // The empty namespace is interned permanently.
        let of_namespaces = self.namespaces.users().filter(|&(id, _)| id != CLUSTER).collect();
        for (of, found, counted) in [
            ("namespaces", namespaces, of_namespaces),
            ("kinds", kinds, self.kinds.users().collect()),
            ("uids", uids, self.uid_texts.users().collect()),
        ] {
            if found != counted {
                broken.push(format!("users of {of} are {found:?}, counted {counted:?}"));
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use gc_types::{
        Coordinates, Gvr, ObjectKey, OwnerReference, Recreator, ResourceId, ResourceInfo, Scope, Uid,
    };

    use super::*;
    use crate::graph::{KindText, text_uid};

    const A: u32 = 0;
    const P: u32 = 1;
    /// Reference of P to A, under another name.
    const FIRST: u32 = 0;

    /// Returns a graph in which P has two references to A, the first of them under another name.
    fn graph() -> Graph {
        let mut graph = Graph::new();
        let info = ResourceInfo {
            id: ResourceId(7),
            gvr: Gvr { group: "".into(), version: "v1".into(), resource: "secrets".into() },
            kind: "Secret".into(),
            scope: Scope::Namespaced,
            served_api_versions: vec!["v1".into()],
            watched: true,
            comparable_versions: true,
        };
        let resource = graph.resources.serve(info).unwrap();
        for name in ["a", "p"] {
            let key = ObjectKey { resource: ResourceId(7), namespace: "n".into(), name: name.into() };
            graph.place(&Uid::new(name), &key, resource);
        }
        let reference = |name: &str| OwnerReference {
            coordinates: Coordinates {
                api_version: "v1".into(),
                kind: "Secret".into(),
                name: name.into(),
                uid: Uid::new("a"),
            },
            controller: None,
            block_owner_deletion: None,
        };
        graph.set_owners(P, &[reference("other"), reference("a")]);
        graph.set_recreator(P, Some(&Recreator::Helm("web".into())));
        graph
    }

    /// Every damage is reported, and nothing else that it does not break as well.
    #[test]
    fn every_damage_to_a_graph_is_reported() {
        type Damage = fn(&mut Graph);
        let damages: &[(Damage, &[&str])] = &[
            (|_| (), &[]),
            (|graph| graph.set(A, Flag::GONE, true), &["node 0 is both there and gone"]),
            (
                |graph| graph.set(P, Flag::OBSERVED, false),
                &[
                    "node 1 does not exist and has no dependents",
                    "node 1 is not there and has references",
                    "recreators of [] and, not there, [1]; 1 counted",
                    "1 objects seen, 2 counted",
                    "1 objects seen, 2 counted by resource",
                ],
            ),
            (|graph| graph.nodes.get_mut(A).resource = NO_RESOURCE, &["node 0 is there without a resource"]),
            (
                |graph| graph.resources.get_mut(0).unwrap().served = false,
                &[
                    "node 0 is there and its resource is not served",
                    "node 1 is there and its resource is not served",
                ],
            ),
            (
                |graph| graph.edges.get_mut(FIRST).dependent = A,
                &[
                    "dependent 0 of node 0 is no reference of its dependent",
                    "reference 0 of node 1 names another dependent",
                ],
            ),
            (|graph| graph.edges.get_mut(FIRST).owner = P, &["dependent 0 of node 0 names another owner"]),
            (
                |graph| graph.edges.get_mut(FIRST).flags &= !EdgeFlag::NAME_DIFFERS,
                &["reference 0 does not know where its name is"],
            ),
            (|graph| drop(graph.edge_names.remove(&FIRST)), &["reference 0 does not know where its name is"]),
            (
                |graph| graph.edges.get_mut(FIRST).previous = NONE,
                &["dependent 0 of node 0 is linked wrongly"],
            ),
            (
                |graph| graph.set_edge(FIRST, EdgeFlag::COUNTED, true),
                &["reference 0 blocks node 0, which does not wait"],
            ),
            (
                |graph| {
                    graph.set_edge(FIRST, EdgeFlag::COUNTED, true);
                    graph.set(A, Flag::WAITING, true);
                },
                &[],
            ),
            (
                |graph| graph.nodes.get_mut(A).first_dependent = NONE,
                &["2 references, 0 dependents, 2 stored"],
            ),
            (
                |graph| graph.nodes.get_mut(P).first_edge = NONE,
                &[
                    "dependent 1 of node 0 is no reference of its dependent",
                    "dependent 0 of node 0 is no reference of its dependent",
                    "users of kinds are {}, counted {0: 2}",
                    "0 references, 2 dependents, 2 stored",
                ],
            ),
            (|graph| graph.set_recreator(A, Some(&Recreator::Helm("web".into()))), &[]),
            (
                |graph| {
                    _ = graph.kinds.intern(&KindText { api_version: "v1".into(), kind: "Secret".into() });
                },
                &["users of kinds are {0: 2}, counted {0: 3}"],
            ),
            (|graph| _ = graph.namespaces.intern("n"), &["users of namespaces are {1: 2}, counted {1: 3}"]),
            (
                |graph| _ = graph.uid_texts.intern("p"),
                &["users of uids are {0: 1, 1: 1}, counted {0: 1, 1: 2}"],
            ),
            (|graph| graph.observed += 1, &["2 objects seen, 3 counted"]),
            (|graph| graph.count_object(0, true), &["2 objects seen, 3 counted by resource"]),
            (
                |graph| {
                    let unknown = *graph.nodes.get(A);
                    graph.nodes.insert(unknown);
                },
                &["2 nodes, 3 stored, 2 indexed"],
            ),
            (
                |graph| graph.nodes.get_mut(A).uid = text_uid(7),
                &[
                    "reference 0 leads to a freed node",
                    "reference 1 leads to a freed node",
                    "users of namespaces are {1: 1}, counted {1: 2}",
                    "users of uids are {1: 1}, counted {0: 1, 1: 1}",
                    "1 objects seen, 2 counted",
                    "1 objects seen, 2 counted by resource",
                    "1 nodes, 2 stored, 2 indexed",
                    "2 references, 0 dependents, 2 stored",
                ],
            ),
            (
                |graph| _ = graph.uid_texts.release(0),
                &["node 0 is not found under its uid", "users of uids are {0: 1, 1: 1}, counted {1: 1}"],
            ),
        ];
        let mut wrong = Vec::new();
        for (number, (damage, expected)) in damages.iter().enumerate() {
            let mut graph = graph();
            damage(&mut graph);
            let broken = graph.verify();
            if broken != *expected {
                wrong.push(format!("damage {number}: {broken:#?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
