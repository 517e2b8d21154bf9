//! The graph as data and as DOT (spec 11.3).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gc_types::Uid;
use serde::Serialize;

use super::{NodeView, Presence};
use crate::engine::Engine;
use crate::graph::NodeId;

/// One node of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DumpNode {
    /// UID.
    pub uid: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Proven gone, but others refer to it.
    pub missing: bool,
    /// True if it has a deletionTimestamp.
    pub being_deleted: bool,
    /// True if it also has `foregroundDeletion`.
    pub deleting_dependents: bool,
    /// Not observed yet, but others refer to it.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
}

/// One reference of a dump.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DumpEdge {
    /// UID of the dependent.
    pub from: String,
    /// UID of the owner.
    pub to: String,
}

/// The graph, or the part of it around some objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GraphDump {
    /// Nodes, sorted by UID.
    pub nodes: Vec<DumpNode>,
    /// Edges, sorted by dependent, then owner.
    pub edges: Vec<DumpEdge>,
}

impl From<NodeView> for DumpNode {
    fn from(view: NodeView) -> Self {
        let (group, version) = view.api_version.split_once('/').unwrap_or(("", &view.api_version));
        let missing = view.presence == Presence::Gone;
        Self {
            uid: view.uid.to_string(),
            group: group.to_owned(),
            version: version.to_owned(),
            kind: view.kind.to_string(),
            namespace: match view.key {
                Some(key) if !missing => key.namespace.to_string(),
                _ => String::new(),
            },
            name: view.name.to_string(),
            missing,
            being_deleted: view.deletion.deleting,
            deleting_dependents: view.deletion.deleting && view.deletion.foreground,
            is_virtual: view.presence == Presence::Unseen,
        }
    }
}

impl Engine {
    /// Returns the nodes that can be reached from these UIDs over references in both directions, or all if none is given, except
    /// for nodes that have neither owners nor dependents.
    #[must_use]
    pub fn dump(&self, around: &[Uid]) -> GraphDump {
        let connected = |node: NodeId| self.graph.has_references(node) || self.graph.has_dependents(node);
        let nodes: BTreeSet<NodeId> = if around.is_empty() {
            self.graph.slots().filter(|&node| self.graph.is_live(node) && connected(node)).collect()
        } else {
            self.reachable(
                around.iter().filter_map(|uid| self.graph.find(uid)).filter(|&node| connected(node)),
            )
        };
        let mut dump = GraphDump::default();
        for &node in &nodes {
            let from = self.graph.uid(node).to_string();
            let owners = self.graph.edges_of(node).map(|edge| self.graph.owner(edge));
            dump.edges.extend(
                owners.map(|owner| DumpEdge { from: from.clone(), to: self.graph.uid(owner).to_string() }),
            );
            dump.nodes.push(self.view(node).into());
        }
        dump.nodes.sort_by(|left, right| left.uid.cmp(&right.uid));
        dump.edges.sort();
        dump.edges.dedup();
        dump
    }

    fn reachable(&self, from: impl Iterator<Item = NodeId>) -> BTreeSet<NodeId> {
        let mut open: Vec<NodeId> = from.collect();
        let mut seen: BTreeSet<NodeId> = open.iter().copied().collect();
        while let Some(node) = open.pop() {
            let owners = self.graph.edges_of(node).map(|edge| self.graph.owner(edge));
            let dependents = self.graph.dependents_of(node).map(|edge| self.graph.dependent(edge));
            for next in owners.chain(dependents) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    }
}

impl GraphDump {
    /// Formats as Graphviz, like `/debug/controllers/garbage-collector-controller/graph`.
    #[must_use]
    pub fn dot(&self) -> String {
        let mut text = String::from("strict digraph full {\n");
        if !self.nodes.is_empty() {
            text.push_str("  // Node definitions.\n");
        }
        for node in &self.nodes {
            node.write_dot(&mut text);
        }
        if !self.edges.is_empty() {
            text.push_str("  // Edge definitions.\n");
        }
        for edge in &self.edges {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {} -> {};", quoted(&edge.from), quoted(&edge.to));
        }
        text.push_str("}\n");
        text
    }
}

impl DumpNode {
    fn label(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let mut label = format!(
            "uid={}\nnamespace={}\n{}.{}{group}/{}\n",
            self.uid, self.namespace, self.kind, self.version, self.name
        );
        let states = [
            (self.being_deleted, "beingDeleted"),
            (self.deleting_dependents, "deletingDependents"),
            (self.is_virtual, "virtual"),
            (self.missing, "missingFromGraph"),
        ];
        let states: Vec<&str> = states.iter().filter(|(on, _)| *on).map(|&(_, name)| name).collect();
        if !states.is_empty() {
            label.push_str(&states.join(","));
            label.push('\n');
        }
        label
    }

    fn write_dot(&self, text: &mut String) {
        let flag = |on: bool| if on { "true" } else { "false" }.to_owned();
        let attributes = [
            ("label", self.label()),
            ("group", self.group.clone()),
            ("version", self.version.clone()),
            ("kind", self.kind.clone()),
            ("namespace", self.namespace.clone()),
            ("name", self.name.clone()),
            ("uid", self.uid.clone()),
            ("missing", flag(self.missing)),
            ("beingDeleted", flag(self.being_deleted)),
            ("deletingDependents", flag(self.deleting_dependents)),
            ("virtual", flag(self.is_virtual)),
        ];
        let _ = writeln!(text, "  {} [", quoted(&self.uid));
        for (name, value) in attributes {
            let _ = writeln!(text, "    {name}={}", quoted(&value));
        }
        text.push_str("  ];\n");
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
