//! Plans: the same engine, on a part of the graph, against a model of the server.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{
    Event, ObjectKey, ObservedObject, Outcome, PropagationPolicy, Reason, Request, ResourceId,
    ResourceVersion, Uid, WithheldBy,
};

use super::NodeView;
use crate::engine::{Config, Engine, ReferenceState};
use crate::graph::{Flag, NodeId, Target};
use crate::model::{Answer, Model};

/// Maximum number of requests in a plan per object; a plan that needs more does not end.
const REQUESTS_PER_OBJECT: usize = 16;

/// One request of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// The request.
    pub request: Request,
    /// Reason.
    pub reason: Reason,
}

/// Consequences of a deletion.
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
    /// Owners that could not be resolved and count as living.
    pub assumed_living: Vec<Uid>,
}

/// Result of one stage of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageEnd {
    /// Objects that are gone.
    pub deleted: Vec<Uid>,
    /// Objects that were marked for deletion by the plan and are blocked by finalizers.
    pub held: Vec<Uid>,
    /// Objects that were terminating before the plan, and still are.
    pub terminating: Vec<Uid>,
    /// Objects that are kept and have lost references.
    pub released: Vec<Uid>,
}

/// Reason why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing is known under this UID.
    #[error("no object with uid {0} is known")]
    Unknown(Uid),
    /// The cascade affects more objects than the caller allows.
    #[error("the deletion concerns more than {0} objects")]
    TooLarge(usize),
    /// The planned cascade did not end.
    #[error("the plan did not end after {0} requests")]
    Endless(usize),
}

/// Progress of a planned deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects that are gone.
    pub gone: BTreeSet<Uid>,
    /// Objects that are terminating or gone.
    pub marked: BTreeSet<Uid>,
}

/// Actions of components other than the collector in one stage of a plan.
pub trait Stage {
    /// Returns the deletions that are requested in this state, including earlier ones.
    fn deletions(&self, progress: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)>;
    /// Reports whether something other than the collector keeps an object from being removed once it is deleted.
    fn is_held(&self, uid: &Uid, has_finalizers: bool, progress: &Progress) -> bool;
    /// Reports whether the server refuses a write of the collector in this stage. It is asked again in a later stage.
    fn refuses(&self, _request: &Request) -> bool {
        false
    }
}

/// One deletion, with finalizers of others that are never removed.
struct SingleDeletion(Uid, Option<PropagationPolicy>);

impl Stage for SingleDeletion {
    fn deletions(&self, _: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        vec![(self.0.clone(), self.1)]
    }

    fn is_held(&self, _: &Uid, has_finalizers: bool, _: &Progress) -> bool {
        has_finalizers
    }
}

impl Engine {
    /// Returns the consequences of deleting an object (`None`: by the finalizers that it carries already), if everything else stays
    /// the same. Covers at most `limit` objects.
    pub fn plan(
        &self,
        uid: &Uid,
        policy: Option<PropagationPolicy>,
        limit: usize,
    ) -> Result<Plan, PlanError> {
        let stage = SingleDeletion(uid.clone(), policy);
        let concerned = self.concerned(std::slice::from_ref(uid), &|_| false, limit)?;
        let mut rehearsal = Rehearsal::new(self, &concerned, &stage);
        rehearsal.steps = Some(Vec::new());
        rehearsal.perform(&stage)?;
        let [deleted, held, terminating, released] = self.outcome(&rehearsal, &concerned);
        let views = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| self.view(node)).collect();
        Ok(Plan {
            steps: rehearsal.steps.unwrap_or_default(),
            deleted: views(deleted),
            held: views(held),
            terminating: views(terminating),
            released: views(released),
            assumed_living: rehearsal.assumed.into_iter().collect(),
        })
    }

    /// Runs the stages one after the other, and returns their results with the owners that could not be resolved and count as
    /// living. Only `candidates` and their dependents may be deleted; `left_out` are leaves that are removed before the collector
    /// acts.
    pub fn plan_stages(
        &self,
        candidates: &[Uid],
        left_out: &dyn Fn(&Uid) -> bool,
        stages: &[&dyn Stage],
        limit: usize,
    ) -> Result<(Vec<StageEnd>, Vec<Uid>), PlanError> {
        let concerned = self.concerned(candidates, left_out, limit)?;
        let Some(first) = stages.first() else { return Ok((Vec::new(), Vec::new())) };
        let mut rehearsal = Rehearsal::new(self, &concerned, *first);
        let mut ends = Vec::with_capacity(stages.len());
        for stage in stages {
            rehearsal.perform(*stage)?;
            let uids = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| self.graph.uid(node)).collect();
            let [deleted, held, terminating, released] = self.outcome(&rehearsal, &concerned).map(uids);
            ends.push(StageEnd { deleted, held, terminating, released });
        }
        Ok((ends, rehearsal.assumed.into_iter().collect()))
    }

    /// Returns the objects that are deleted, blocked, still terminating, and released.
    fn outcome(&self, rehearsal: &Rehearsal, concerned: &BTreeSet<NodeId>) -> [Vec<NodeId>; 4] {
        let [mut deleted, mut held, mut terminating, mut released] = [const { Vec::new() }; 4];
        for &node in concerned {
            match rehearsal.model.get(&self.graph.key(node)) {
                None => deleted.push(node),
                Some(now) if now.deletion.deleting && !self.graph.has(node, Flag::DELETING) => {
                    held.push(node);
                }
                Some(now) if now.deletion.deleting => terminating.push(node),
                Some(now) if !self.graph.owners_equal(node, &now.owners) => released.push(node),
                Some(_) => {}
            }
        }
        [deleted, held, terminating, released]
    }

    /// Returns these objects and all their direct and indirect dependents.
    fn concerned(
        &self,
        candidates: &[Uid],
        left_out: &dyn Fn(&Uid) -> bool,
        limit: usize,
    ) -> Result<BTreeSet<NodeId>, PlanError> {
        let mut concerned = BTreeSet::new();
        for uid in candidates {
            let root = self
                .graph
                .find(uid)
                .filter(|&node| self.graph.has(node, Flag::OBSERVED))
                .ok_or_else(|| PlanError::Unknown(uid.clone()))?;
            self.add_below(root, left_out, limit, &mut concerned)?;
        }
        Ok(concerned)
    }

    /// Adds a node and all its direct and indirect dependents.
    fn add_below(
        &self,
        root: NodeId,
        left_out: &dyn Fn(&Uid) -> bool,
        limit: usize,
        seen: &mut BTreeSet<NodeId>,
    ) -> Result<(), PlanError> {
        if !seen.insert(root) {
            return Ok(());
        }
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            for edge in self.graph.dependents_of(node) {
                let dependent = self.graph.dependent(edge);
                // An object with dependents is not a leaf.
                let is_leaf = !self.graph.has_dependents(dependent);
                if is_leaf && left_out(&self.graph.uid(dependent)) {
                    continue;
                }
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
    /// The collector's writes, if requested.
    steps: Option<Vec<PlanStep>>,
    /// State of owners outside the plan, by where references claim them to be: the object that exists there, if any.
    outside: BTreeMap<ObjectKey, Option<Uid>>,
    assumed: BTreeSet<Uid>,
    /// Objects of the plan, each with whether it carries finalizers of others.
    objects: BTreeMap<Uid, (ObjectKey, bool)>,
    /// Keys of these objects.
    places: BTreeSet<ObjectKey>,
    /// Deletions that were requested.
    asked: BTreeSet<(Uid, Option<PropagationPolicy>)>,
    progress: Progress,
    /// True if a write was refused, which the engine repeats in the next stage.
    was_refused: bool,
}

impl Rehearsal {
    fn new(real: &Engine, concerned: &BTreeSet<NodeId>, first: &dyn Stage) -> Self {
        let config = Config { startup_wait_milliseconds: 0, ..real.config().clone() };
        let mut rehearsal = Self {
            engine: Engine::new(config),
            model: Model::new(),
            steps: None,
            outside: BTreeMap::new(),
            assumed: BTreeSet::new(),
            objects: BTreeMap::new(),
            places: BTreeSet::new(),
            asked: BTreeSet::new(),
            progress: Progress::default(),
            was_refused: false,
        };
        let used = Self::used(real, concerned);
        let resources =
            || real.graph.resources.iter().filter(|(_, state)| state.served && used.contains(&state.info.id));
        for (_, state) in resources() {
            rehearsal.engine.handle(Event::ResourceServed(state.info.clone()));
        }
        // The owners of objects to delete, or of terminating ones, need not be living.
        let asked: BTreeSet<Uid> =
            first.deletions(&rehearsal.progress).into_iter().map(|(uid, _)| uid).collect();
        for &node in concerned {
            let mut object = real.graph.object(node);
            let has_finalizers = object.deletion.foreign_finalizers;
            rehearsal.objects.insert(object.uid.clone(), (object.key.clone(), has_finalizers));
            rehearsal.places.insert(object.key.clone());
            let is_marked = object.deletion.deleting;
            if is_marked {
                rehearsal.progress.marked.insert(object.uid.clone());
            }
            let is_held = first.is_held(&object.uid, has_finalizers, &rehearsal.progress);
            object.deletion.foreign_finalizers = is_held;
            rehearsal.model.restore(object);
            for edge in real.graph.edges_of(node) {
                let owner = real.graph.owner(edge);
                if real.graph.has(owner, Flag::OBSERVED) && !concerned.contains(&owner) {
                    // Its own owners are irrelevant.
                    let mut object = real.graph.object(owner);
                    object.owners.clear();
                    rehearsal.model.restore(object);
                }
                let lives = match real.known_class(edge) {
                    Some(
                        ReferenceState::Lives | ReferenceState::Waiting(_) | ReferenceState::Orphaning(_),
                    ) => true,
                    Some(ReferenceState::Absent(_)) => false,
                    Some(ReferenceState::Undecidable | ReferenceState::Unverified) | None => {
                        if !asked.contains(&real.graph.uid(node)) && !is_marked {
                            rehearsal.assumed.insert(real.graph.uid(owner));
                        }
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
        let Self { engine, model, .. } = &mut rehearsal;
        for object in model.objects() {
            engine.handle(Event::Observed(object.clone()));
        }
        let version = rehearsal.model.version();
        for (_, state) in resources() {
            rehearsal.engine.handle(Event::Synced { resource: state.info.id, resource_version: version });
        }
        rehearsal.engine.handle(Event::Discovered);
        rehearsal
    }

    /// Returns the resources of these objects and their references: of a hundred served ones, a handful.
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

    /// Continues until a stage requests nothing further. Everything that others do at one time is done before the collector acts on
    /// it.
    fn perform(&mut self, stage: &dyn Stage) -> Result<(), PlanError> {
        let mut is_repeated = std::mem::take(&mut self.was_refused);
        if is_repeated {
            self.engine.handle(Event::Released(None));
        }
        loop {
            let mut has_changed = std::mem::take(&mut is_repeated);
            while self.begin(stage) {
                has_changed = true;
                self.note_progress();
            }
            if !has_changed {
                return Ok(());
            }
            let before = self.progress_made();
            self.run(stage)?;
            self.note_progress();
            // Refused requests are retried: another request may be due by now, such as a deletion in place of a release.
            if self.was_refused && self.progress_made() != before {
                self.was_refused = false;
                self.engine.handle(Event::Released(None));
                is_repeated = true;
            }
        }
    }

    /// Returns the numbers of objects that are marked and gone, which only increase.
    fn progress_made(&self) -> (usize, usize) {
        (self.progress.marked.len(), self.progress.gone.len())
    }

    /// Releases objects that nothing blocks any more, and begins the deletions that are due. Returns whether there was anything to
    /// do.
    fn begin(&mut self, stage: &dyn Stage) -> bool {
        let mut has_changed = false;
        for (uid, (key, has_finalizers)) in &self.objects {
            let is_held = self.model.get(key).map(|object| object.deletion).is_some_and(|deletion| {
                // Objects that were terminating when the plan began and are not blocked are removed by themselves.
                let is_ending = deletion.deleting && !deletion.foreground && !deletion.orphan;
                deletion.foreign_finalizers || is_ending
            });
            if is_held
                && !stage.is_held(uid, *has_finalizers, &self.progress)
                && let Some(event) = self.model.release(key)
            {
                self.engine.handle(event);
                has_changed = true;
            }
        }
        for (uid, policy) in stage.deletions(&self.progress) {
            let Some((key, _)) = self.objects.get(&uid) else { continue };
            if self.asked.insert((uid, policy)) {
                has_changed = true;
                if let Some(event) = self.model.delete(key, policy) {
                    self.engine.handle(event);
                }
            }
        }
        has_changed
    }

    fn note_progress(&mut self) {
        for (uid, (key, _)) in &self.objects {
            let object = self.model.get(key);
            if object.is_none() {
                self.progress.gone.insert(uid.clone());
            }
            if object.is_none_or(|object| object.deletion.deleting) {
                self.progress.marked.insert(uid.clone());
            }
        }
    }

    fn run(&mut self, stage: &dyn Stage) -> Result<(), PlanError> {
        let objects = self.objects.len();
        let limit = objects.saturating_mul(REQUESTS_PER_OBJECT).saturating_add(REQUESTS_PER_OBJECT * 64);
        for _ in 0..limit {
            if let Some(effect) = self.engine.poll_effect() {
                let answer = self.answer(stage, &effect.request);
                for event in answer.events {
                    self.engine.handle(event);
                }
                self.engine.handle(Event::Done(effect.id, answer.outcome));
                let is_write = matches!(
                    effect.request,
                    Request::Delete { .. } | Request::SetOwners { .. } | Request::RemoveFinalizer { .. }
                );
                if let Some(steps) = self.steps.as_mut().filter(|_| is_write) {
                    steps.push(PlanStep { request: effect.request, reason: effect.reason });
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

    fn answer(&mut self, stage: &dyn Stage, request: &Request) -> Answer {
        let Request::Read { key } = request else {
            if stage.refuses(request) {
                self.was_refused = true;
                // The engine keeps it, and does not request it again and again.
                return Answer { outcome: Outcome::Withheld(WithheldBy::Observe), events: Vec::new() };
            }
            return self.model.answer(request);
        };
        if self.model.get(key).is_some() {
            return self.model.answer(request);
        }
        let outcome = match self.outside.get(key).cloned() {
            // Whatever really exists there, in this plan it is gone.
            _ if self.places.contains(key) => Outcome::Absent,
            Some(Some(uid)) => Outcome::Found(ObservedObject {
                key: key.clone(),
                uid,
                resource_version: ResourceVersion::UNKNOWN,
                owners: smallvec::SmallVec::new(),
                deletion: gc_types::DeletionState::default(),
                recreator: None,
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
