//! Queries of the graph: why an object is (not) collected, its dependents, and stuck deletions.

mod contents;
mod dump;
mod plan;
mod references;

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_types::{DeletionState, ObjectKey, OwnerReference, ResourceId, ResourceVersion, Uid, Verdict};

use crate::engine::Engine;
pub use crate::engine::ReferenceState;
use crate::graph::{Flag, NodeId};

pub use contents::{Contents, Leaf};
pub use dump::{DumpEdge, DumpNode, GraphDump};
pub use plan::{Plan, PlanError, PlanStep, Progress, Stage, StageEnd};
pub use references::{Stray, StrayReference};

/// Maximum number of blocking dependents that `stuck` names for one owner.
pub const BLOCKERS_LISTED: usize = 8;
/// Maximum depth of paths.
pub const DEPTH_SHOWN: usize = 64;

/// Existence of a node's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Observed and exists.
    Observed,
    /// Proven gone, but others still refer to it.
    Gone,
    /// Others refer to it, but it was not observed (yet).
    Unseen,
}

/// One object, or one owner that is only referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// UID.
    pub uid: Uid,
    /// Current or former key; `None` if it was never observed.
    pub key: Option<ObjectKey>,
    /// `apiVersion` under which it is watched, or as a reference spells it.
    pub api_version: Arc<str>,
    /// Kind, likewise.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Existence of the object.
    pub presence: Presence,
    /// Last observed version.
    pub resource_version: ResourceVersion,
    /// Progress of its deletion.
    pub deletion: DeletionState,
}

/// Decision about an object, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Has no owner and is not garbage.
    NoOwners,
    /// An owner is living.
    OwnerLives,
    /// No owner is known to be living, and one cannot be resolved.
    Undecidable,
    /// An owner has not been verified yet.
    Unverified,
    /// To be deleted.
    ToBeDeleted(Verdict),
    /// Kept, and loses its dangling references.
    ToLoseReferences(Verdict),
    /// Terminating, and finalizers block it.
    BeingDeleted,
    /// Number of blocking dependents that it waits for.
    WaitsForDependents(usize),
    /// Waiting until its dependents are released.
    Orphans,
    /// Gone.
    Gone,
    /// Never observed.
    Unseen,
}

/// Answer to `why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The object in question.
    pub object: NodeView,
    /// References of the object, with the state of each.
    pub references: Vec<(OwnerReference, ReferenceState)>,
    /// Decision.
    pub conclusion: Conclusion,
    /// Owners of the object's owners, by first reference, up to one without (or [`DEPTH_SHOWN`], or a cycle).
    pub path: Vec<NodeView>,
    /// The server's message, if the last attempt failed.
    pub last_failure: Option<Arc<str>>,
}

/// A stuck deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The object.
    pub object: NodeView,
    /// Time since it got stuck, as far as this engine knows, in milliseconds.
    pub age_milliseconds: Option<i64>,
    /// Cause.
    pub cause: StuckCause,
}

/// Reason why a deletion is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StuckCause {
    /// Blocking dependents still exist.
    Blocked {
        /// Some of these dependents.
        by: Vec<NodeView>,
        /// Total number.
        total: usize,
    },
    /// Dependents still refer to an owner that orphans them.
    Orphaning {
        /// Number of these dependents.
        remaining: usize,
    },
    /// Resources have not caught up.
    Lagging(Vec<ResourceId>),
    /// Other finalizers block it.
    ForeignFinalizers,
    /// Requests about it fail.
    Failing {
        /// Number of consecutive failures.
        failures: u32,
        /// The server's message.
        message: Arc<str>,
    },
    /// Has a reference that cannot be resolved, and no living owner.
    UndecidableOwner,
}

impl Engine {
    pub(crate) fn view(&self, node: NodeId) -> NodeView {
        let graph = &self.graph;
        let presence = if graph.has(node, Flag::OBSERVED) {
            Presence::Observed
        } else if graph.has(node, Flag::GONE) {
            Presence::Gone
        } else {
            Presence::Unseen
        };
        let resource = graph.resources.get(graph.resource(node));
        // An object that was never observed is shown as the newest reference to it names it.
        let (api_version, kind, name): (Arc<str>, Arc<str>, Arc<str>) = match resource {
            Some(state) => {
                (state.info.gvr.api_version().into(), state.info.kind.clone(), graph.name(node).into())
            }
            None => graph.dependents_of(node).next().map_or_else(Default::default, |edge| {
                let coordinates = graph.coordinates(edge);
                (coordinates.api_version, coordinates.kind, coordinates.name)
            }),
        };
        NodeView {
            uid: graph.uid(node),
            key: resource.map(|_| graph.key(node)),
            api_version,
            kind,
            name,
            presence,
            resource_version: graph.version(node),
            deletion: graph.deletion(node),
        }
    }

    /// Explains why an object is, or is not, collected. `None` if nothing is known under this UID.
    #[must_use]
    pub fn why(&self, uid: &Uid) -> Option<Why> {
        let node = self.graph.find(uid)?;
        let references: Vec<(OwnerReference, ReferenceState)> = self
            .graph
            .edges_of(node)
            .map(|edge| {
                let state = self.known_class(edge).unwrap_or(ReferenceState::Unverified);
                (self.graph.reference(edge), state)
            })
            .collect();
        let conclusion = self.conclusion(node, &references);
        let mut path = Vec::new();
        let mut seen = BTreeSet::from([node]);
        let mut cursor = self.graph.edges_of(node).next();
        while let Some(edge) = cursor {
            let owner = self.graph.owner(edge);
            path.push(self.view(owner));
            if !seen.insert(owner) || path.len() >= DEPTH_SHOWN {
                break;
            }
            cursor = self.graph.edges_of(owner).next();
        }
        let last_failure = self.retries.get(node).map(|retry| retry.message.clone());
        Some(Why { object: self.view(node), references, conclusion, path, last_failure })
    }

    fn conclusion(&self, node: NodeId, references: &[(OwnerReference, ReferenceState)]) -> Conclusion {
        if self.graph.has(node, Flag::GONE) {
            return Conclusion::Gone;
        }
        if !self.graph.has(node, Flag::OBSERVED) {
            return Conclusion::Unseen;
        }
        let any = |wanted: fn(&ReferenceState) -> bool| references.iter().any(|(_, state)| wanted(state));
        if any(|state| matches!(state, ReferenceState::Orphaning(_))) {
            return Conclusion::ToLoseReferences(Verdict::OwnerOrphans);
        }
        if let Some(waiting) = self.waiting.get(&node) {
            return if waiting.orphan {
                Conclusion::Orphans
            } else {
                Conclusion::WaitsForDependents(waiting.blocking)
            };
        }
        if self.graph.has(node, Flag::DELETING) {
            return Conclusion::BeingDeleted;
        }
        if references.is_empty() {
            return Conclusion::NoOwners;
        }
        if any(|state| matches!(state, ReferenceState::Unverified)) {
            return Conclusion::Unverified;
        }
        let waits = any(|state| matches!(state, ReferenceState::Waiting(_)));
        let dead = waits || any(|state| matches!(state, ReferenceState::Absent(_)));
        let lives = any(|state| matches!(state, ReferenceState::Lives));
        let undecidable = any(|state| matches!(state, ReferenceState::Undecidable));
        match (lives || undecidable, dead) {
            (true, true) => Conclusion::ToLoseReferences(Verdict::ReferencesDead),
            (true, false) if lives => Conclusion::OwnerLives,
            (true, false) => Conclusion::Undecidable,
            (false, _) if waits => Conclusion::ToBeDeleted(Verdict::OwnerWaiting),
            (false, _) => Conclusion::ToBeDeleted(Verdict::OwnersAbsent),
        }
    }

    /// Returns stuck deletions up to a limit, waiting owners first. Visits everything.
    #[must_use]
    pub fn stuck(&self, limit: usize) -> Vec<Stuck> {
        let mut found: Vec<Stuck> = Vec::new();
        for (&node, waiting) in &self.waiting {
            let remaining = if waiting.orphan { self.other_dependents(node).count() } else { 0 };
            let cause = if remaining > 0 {
                StuckCause::Orphaning { remaining }
            } else if waiting.blocking > 0 {
                let by = self
                    .graph
                    .dependents_of(node)
                    .filter(|&edge| self.graph.blocks(edge) && self.graph.matches(edge))
                    .take(BLOCKERS_LISTED)
                    .map(|edge| self.view(self.graph.dependent(edge)))
                    .collect();
                StuckCause::Blocked { by, total: waiting.blocking }
            } else {
                let lagging = self.lagging_resources(node);
                if lagging.is_empty() {
                    // Its finalizer is being removed; if that fails, it is listed because of that.
                    continue;
                }
                StuckCause::Lagging(lagging)
            };
            let age_milliseconds = Some(self.now().since(waiting.since));
            found.push(Stuck { object: self.view(node), age_milliseconds, cause });
        }
        for (node, retry) in self.retries.iter().filter(|(_, retry)| retry.failures > 0) {
            let cause = StuckCause::Failing { failures: retry.failures, message: retry.message.clone() };
            found.push(Stuck { object: self.view(node), age_milliseconds: None, cause });
        }
        found.truncate(limit);
        for node in self.graph.slots().filter(|&node| self.graph.has(node, Flag::OBSERVED)) {
            if found.len() >= limit {
                break;
            }
            let deleting = self.graph.has(node, Flag::DELETING);
            let cause = if deleting && self.graph.has(node, Flag::FOREIGN) {
                StuckCause::ForeignFinalizers
            } else if !deleting && self.has_only_undecidable_owners(node) {
                StuckCause::UndecidableOwner
            } else {
                continue;
            };
            found.push(Stuck { object: self.view(node), age_milliseconds: None, cause });
        }
        found
    }

    fn has_only_undecidable_owners(&self, node: NodeId) -> bool {
        let mut undecidable = false;
        for edge in self.graph.edges_of(node) {
            match self.known_class(edge) {
                Some(ReferenceState::Undecidable) => undecidable = true,
                Some(ReferenceState::Lives) => return false,
                _ => {}
            }
        }
        undecidable
    }
}
