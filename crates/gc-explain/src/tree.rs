//! Dependents of an object, or its owners, as a tree.

use std::collections::BTreeSet;

use gc_ownership::{NodeView, Presence, ReferenceState};
use gc_types::Uid;

use crate::survey::Survey;

/// Maximum number of objects in a tree.
pub const LARGEST_TREE: usize = 100_000;
/// Maximum number of levels in a tree.
pub const DEEPEST_TREE: usize = 64;

/// Direction of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards dependents.
    Dependents,
    /// Towards owners.
    Owners,
}

/// An object with the objects below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The object.
    pub view: NodeView,
    /// Fault of the reference between the object and the one above it, if any.
    pub fault: Option<&'static str>,
    /// Objects below it by kind and key; owners in the order of the references.
    pub below: Vec<Tree>,
    /// True if it is shown elsewhere in the tree, together with what is below it.
    pub is_repeated: bool,
    /// Number of objects below that were left out: too many, or too deep.
    pub omitted: usize,
}

impl Tree {
    /// Returns the number of objects in the tree below this one.
    #[must_use]
    pub fn count_below(&self) -> usize {
        self.below.iter().map(|tree| 1 + tree.count_below()).sum()
    }
}

/// Returns the tree of an object; `None` if the survey does not know it. An object that can be reached in several ways is listed
/// below each object that leads to it, but its own dependents are shown only once.
#[must_use]
pub fn tree(survey: &Survey, uid: &Uid, direction: Direction) -> Option<Tree> {
    let view = survey.engine.view_of(uid)?;
    Some(Growth { survey, direction, seen: BTreeSet::new(), size: 1 }.grow(view, None, 0))
}

struct Growth<'a> {
    survey: &'a Survey,
    direction: Direction,
    seen: BTreeSet<Uid>,
    size: usize,
}

impl Growth<'_> {
    fn grow(&mut self, view: NodeView, fault: Option<&'static str>, depth: usize) -> Tree {
        let is_repeated = !self.seen.insert(view.uid.clone());
        let next = if is_repeated { Vec::new() } else { self.next_to(&view) };
        let mut tree = Tree { view, fault, below: Vec::new(), is_repeated, omitted: 0 };
        for (view, fault) in next {
            if depth >= DEEPEST_TREE || self.size >= LARGEST_TREE {
                tree.omitted += 1;
            } else {
                self.size += 1;
                tree.below.push(self.grow(view, fault, depth + 1));
            }
        }
        tree
    }

    /// Returns the objects directly below, each with the fault of its reference.
    fn next_to(&self, view: &NodeView) -> Vec<(NodeView, Option<&'static str>)> {
        let engine = &self.survey.engine;
        let references = |uid: &Uid| engine.why(uid).map(|why| why.references).unwrap_or_default();
        match self.direction {
            Direction::Dependents => {
                let with_fault = |dependent: NodeView| {
                    let mut references = references(&dependent.uid).into_iter();
                    let own = references.find(|(owner, _)| owner.coordinates.uid == view.uid);
                    let fault = own.and_then(|(_, state)| fault(&state, view.presence));
                    (dependent, fault)
                };
                engine.dependents(&view.uid).into_iter().map(with_fault).collect()
            }
            Direction::Owners => {
                let known = |(owner, state): (gc_types::OwnerReference, ReferenceState)| {
                    let owner = engine.view_of(&owner.coordinates.uid)?;
                    let fault = fault(&state, owner.presence);
                    Some((owner, fault))
                };
                references(&view.uid).into_iter().filter_map(known).collect()
            }
        }
    }
}

/// Returns the fault of a reference to an owner.
fn fault(state: &ReferenceState, owner: Presence) -> Option<&'static str> {
    match state {
        ReferenceState::Absent(_) | ReferenceState::Undecidable if owner == Presence::Observed => {
            Some("invalid reference: the owner with this UID has another kind, name or namespace")
        }
        ReferenceState::Undecidable => Some("invalid reference: the owner cannot be looked up"),
        // An absent owner is not a fault of the reference.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_types::{ResourceId, Timestamp};
    use serde_json::{Value, json};

    use super::*;
    use crate::catalog::Catalog;

    /// Creates a survey of ConfigMaps, each with its owners; `name~` refers to one by another name, `name?` to one of an unserved
    /// kind.
    fn survey(objects: &[(&str, &[&str])]) -> Survey {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
            "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
        let mut survey = Survey::new(Catalog::read(core, br#"{"items":[]}"#).unwrap(), Timestamp(1_000));
        for (name, owners) in objects {
            let owner = |owner: &&str| {
                let name = owner.trim_end_matches(['~', '?']);
                let shown = if owner.ends_with('~') { "other" } else { name };
                let kind = if owner.ends_with('?') { "Unserved" } else { "ConfigMap" };
                json!({"apiVersion": "v1", "kind": kind, "name": shown, "uid": name})
            };
            let owners: Vec<Value> = owners.iter().map(owner).collect();
            let object = json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
                "ownerReferences": owners}});
            survey.observe(ResourceId(0), serde_json::from_value(object).unwrap());
        }
        survey.complete();
        // An owner is absent from its place unless it was observed there.
        while let Some((id, _)) = survey.next_read() {
            survey.answer_read(id, gc_types::Outcome::Absent);
        }
        survey
    }

    fn flat(tree: &Tree) -> String {
        let below: Vec<String> = tree.below.iter().map(flat).collect();
        let below = if below.is_empty() { String::new() } else { format!("({})", below.join(" ")) };
        let marks = [(tree.is_repeated, "^"), (tree.fault.is_some(), "!"), (tree.omitted > 0, "+")];
        let marks: String = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
        format!("{}{marks}{below}", tree.view.name)
    }

    #[test]
    fn trees_name_an_object_below_each_that_leads_to_it() {
        let diamond = survey(&[("root", &[]), ("a", &["root"]), ("b", &["root"]), ("leaf", &["a", "b"])]);
        let ring = survey(&[("root", &["b"]), ("a", &["root"]), ("b", &["a"])]);
        let invalid = survey(&[("root", &[]), ("a", &["root~"]), ("b", &["root", "gone?"])]);
        let levels: Vec<String> = (0..=DEEPEST_TREE + 1).map(|level| format!("c{level}")).collect();
        let owners: Vec<Vec<&str>> = (0..levels.len())
            .map(|level| levels[..level].last().map(String::as_str).into_iter().collect())
            .collect();
        let chain: Vec<(&str, &[&str])> =
            levels.iter().zip(&owners).map(|(name, owners)| (name.as_str(), owners.as_slice())).collect();
        let chain = survey(&chain);
        use Direction::{Dependents, Owners};
        for (survey, uid, direction, expected) in [
            (&diamond, "root", Dependents, "root(a(leaf) b(leaf^))"),
            (&diamond, "leaf", Owners, "leaf(a(root) b(root^))"),
            (&ring, "root", Dependents, "root(a(b(root^)))"),
            (&invalid, "root", Dependents, "root(a! b)"),
            (&invalid, "b", Owners, "b(root gone!)"),
        ] {
            assert_eq!(flat(&tree(survey, &Uid::new(uid), direction).unwrap()), expected);
        }
        assert_eq!(tree(&diamond, &Uid::new("unknown"), Dependents), None);
        let deep = tree(&chain, &Uid::new("c0"), Dependents).unwrap();
        assert_eq!((deep.count_below(), flat(&deep).contains("c64+")), (DEEPEST_TREE, true));
    }
}
