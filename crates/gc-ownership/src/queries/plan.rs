//! Plans: the same engine, on a part of the graph, against a model of the server.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{
    Event, ObjectKey, ObservedObject, Outcome, PropagationPolicy, Reason, Request, ResourceId,
    ResourceVersion, Uid,
};

use super::NodeView;
use crate::engine::{Class, Config, Engine};
use crate::graph::{Flag, NodeId, Target};
use crate::model::{Answer, Model};

/// Maximum number of requests in a plan per object; a plan that needs more does not end.
const REQUESTS_PER_OBJECT: usize = 16;

/// One request of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// What would be sent to the server.
    pub request: Request,
    /// Why.
    pub reason: Reason,
}

/// The consequences of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The collector's writes, in a possible order.
    pub steps: Vec<PlanStep>,
    /// Objects that would be deleted, including the object itself.
    pub deleted: Vec<NodeView>,
    /// Objects that would be marked for deletion and blocked by finalizers.
    pub held: Vec<NodeView>,
    /// Objects that are terminating already, and still would be.
    pub terminating: Vec<NodeView>,
    /// Objects that would be kept and lose references.
    pub released: Vec<NodeView>,
    /// Owners that could not be looked up and count as living.
    pub assumed_living: Vec<Uid>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing is known under this UID.
    #[error("no object with uid {0} is known")]
    Unknown(Uid),
    /// The cascade concerns more objects than the caller allows.
    #[error("the deletion concerns more than {0} objects")]
    TooLarge(usize),
    /// The planned cascade did not end.
    #[error("the plan did not end after {0} requests")]
    Endless(usize),
}

impl Engine {
    /// The consequences of deleting an object (`None`: by the finalizers that it carries already), if everything else
    /// stayed the same. Covers at most `limit` objects.
    pub fn plan(
        &self,
        uid: &Uid,
        policy: Option<PropagationPolicy>,
        limit: usize,
    ) -> Result<Plan, PlanError> {
        self.plan_all(&[(uid.clone(), policy)], |_, is_held| is_held, limit)
    }

    /// The same for several deletions at once. `is_held` says of each object whether something other than this
    /// collector blocks its removal once it is deleted; its argument is whether the object carries other finalizers.
    pub fn plan_all(
        &self,
        roots: &[(Uid, Option<PropagationPolicy>)],
        is_held: impl Fn(&Uid, bool) -> bool,
        limit: usize,
    ) -> Result<Plan, PlanError> {
        let mut concerned = BTreeSet::new();
        let mut deletions = Vec::with_capacity(roots.len());
        for (uid, policy) in roots {
            let root = self
                .graph
                .find(uid)
                .filter(|&node| self.graph.has(node, Flag::OBSERVED))
                .ok_or_else(|| PlanError::Unknown(uid.clone()))?;
            self.add_below(root, limit, &mut concerned)?;
            deletions.push((self.graph.key(root), *policy));
        }
        let mut rehearsal = Rehearsal::new(self, &concerned, &is_held);
        rehearsal.run(&deletions, concerned.len())?;
        let mut plan = Plan {
            steps: rehearsal.steps,
            deleted: Vec::new(),
            held: Vec::new(),
            terminating: Vec::new(),
            released: Vec::new(),
            assumed_living: rehearsal.assumed.into_iter().collect(),
        };
        for &node in &concerned {
            match rehearsal.model.get(&self.graph.key(node)) {
                None => plan.deleted.push(self.view(node)),
                Some(now) if now.deletion.deleting && !self.graph.has(node, Flag::DELETING) => {
                    plan.held.push(self.view(node));
                }
                Some(now) if now.deletion.deleting => plan.terminating.push(self.view(node)),
                Some(now) if !self.graph.owners_equal(node, &now.owners) => {
                    plan.released.push(self.view(node));
                }
                Some(_) => {}
            }
        }
        Ok(plan)
    }

    /// Adds a node and everything that depends on it.
    fn add_below(&self, root: NodeId, limit: usize, seen: &mut BTreeSet<NodeId>) -> Result<(), PlanError> {
        if !seen.insert(root) {
            return Ok(());
        }
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            for edge in self.graph.dependents_of(node) {
                let dependent = self.graph.dependent(edge);
                if seen.insert(dependent) {
                    open.push(dependent);
                }
                if seen.len() > limit {
                    return Err(PlanError::TooLarge(limit));
                }
            }
        }
        Ok(())
    }
}

struct Rehearsal {
    engine: Engine,
    model: Model,
    steps: Vec<PlanStep>,
    /// The state of owners outside the plan, by where references claim them to be: the object that exists there, if
    /// any.
    outside: BTreeMap<ObjectKey, Option<Uid>>,
    assumed: BTreeSet<Uid>,
    /// Objects that may be on their way out, and that nothing may block any more.
    released: Vec<ObjectKey>,
}

impl Rehearsal {
    fn new(real: &Engine, concerned: &BTreeSet<NodeId>, is_held: &impl Fn(&Uid, bool) -> bool) -> Self {
        let config = Config { startup_wait_milliseconds: 0, ..real.config().clone() };
        let mut rehearsal = Self {
            engine: Engine::new(config),
            model: Model::new(),
            steps: Vec::new(),
            outside: BTreeMap::new(),
            assumed: BTreeSet::new(),
            released: Vec::new(),
        };
        let used = Self::used(real, concerned);
        let resources =
            || real.graph.resources.iter().filter(|(_, state)| state.served && used.contains(&state.info.id));
        for (_, state) in resources() {
            rehearsal.engine.handle(Event::ResourceServed(state.info.clone()));
        }
        for &node in concerned {
            let mut object = real.graph.object(node);
            object.deletion.foreign_finalizers = is_held(&object.uid, object.deletion.foreign_finalizers);
            rehearsal.model.restore(object);
            rehearsal.released.push(real.graph.key(node));
            for edge in real.graph.edges_of(node) {
                let owner = real.graph.owner(edge);
                if real.graph.has(owner, Flag::OBSERVED) && !concerned.contains(&owner) {
                    // Its own owners are irrelevant.
                    let mut object = real.graph.object(owner);
                    object.owners.clear();
                    rehearsal.model.restore(object);
                }
                let lives = match real.known_class(edge) {
                    Some(Class::Lives | Class::Waiting(_) | Class::Orphaning(_)) => true,
                    Some(Class::Absent(_)) => false,
                    Some(Class::Undecidable | Class::Unverified) | None => {
                        rehearsal.assumed.insert(real.graph.uid(owner));
                        continue;
                    }
                };
                if let Target::Place(resource, namespace) = real.graph.target(edge) {
                    let key = ObjectKey {
                        resource: real.graph.resource_id(resource),
                        namespace: real.graph.namespace_text(namespace),
                        name: real.graph.edge_name(edge).into(),
                    };
                    let there = rehearsal.outside.entry(key).or_default();
                    if lives {
                        *there = Some(real.graph.uid(owner));
                    }
                }
            }
        }
        let objects: Vec<ObservedObject> = rehearsal.model.objects().cloned().collect();
        for object in objects {
            rehearsal.engine.handle(Event::Observed(object));
        }
        let version = rehearsal.model.version();
        for (_, state) in resources() {
            rehearsal.engine.handle(Event::Synced { resource: state.info.id, resource_version: version });
        }
        rehearsal.engine.handle(Event::Discovered);
        rehearsal
    }

    /// The resources of these objects and their references: of a hundred served ones, a handful.
    fn used(real: &Engine, concerned: &BTreeSet<NodeId>) -> BTreeSet<ResourceId> {
        let mut used = BTreeSet::new();
        for &node in concerned {
            used.insert(real.graph.key(node).resource);
            for edge in real.graph.edges_of(node) {
                let owner = real.graph.owner(edge);
                if real.graph.has(owner, Flag::OBSERVED) {
                    used.insert(real.graph.key(owner).resource);
                }
                if let Target::Place(resource, _) = real.graph.target(edge) {
                    used.insert(real.graph.resource_id(resource));
                }
            }
        }
        used
    }

    fn run(
        &mut self,
        deletions: &[(ObjectKey, Option<PropagationPolicy>)],
        objects: usize,
    ) -> Result<(), PlanError> {
        for (key, policy) in deletions {
            if let Some(event) = self.model.delete(key, *policy) {
                self.engine.handle(event);
            }
        }
        for key in std::mem::take(&mut self.released) {
            if let Some(event) = self.model.end(&key) {
                self.engine.handle(event);
            }
        }
        let limit = objects.saturating_mul(REQUESTS_PER_OBJECT).saturating_add(REQUESTS_PER_OBJECT * 64);
        for _ in 0..limit {
            if let Some(effect) = self.engine.poll_effect() {
                let answer = self.answer(&effect.request);
                for event in answer.events {
                    self.engine.handle(event);
                }
                self.engine.handle(Event::Done(effect.id, answer.outcome));
                if matches!(
                    effect.request,
                    Request::Delete { .. } | Request::SetOwners { .. } | Request::RemoveFinalizer { .. }
                ) {
                    self.steps.push(PlanStep { request: effect.request, reason: effect.reason });
                }
            } else if self.engine.only_polls_left() {
                return Ok(());
            } else if let Some(due) = self.engine.next_wakeup() {
                self.engine.handle(Event::Tick(due));
            } else {
                return Ok(());
            }
        }
        Err(PlanError::Endless(limit))
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let Request::Read { key } = request else { return self.model.answer(request) };
        if self.model.get(key).is_some() {
            return self.model.answer(request);
        }
        let outcome = match self.outside.get(key).cloned() {
            Some(Some(uid)) => Outcome::Found(ObservedObject {
                key: key.clone(),
                uid,
                resource_version: ResourceVersion::UNKNOWN,
                owners: smallvec::SmallVec::new(),
                deletion: gc_types::DeletionState::default(),
            }),
            Some(None) => Outcome::Absent,
            None => Outcome::Failed {
                message: "not known to this plan".to_owned(),
                retry_after_milliseconds: None,
            },
        };
        Answer { outcome, events: Vec::new() }
    }
}
