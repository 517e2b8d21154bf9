//! Deletions that follow by rules other than ownership, and the cascades that result.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{NodeView, PlanError, Presence, Progress, Stage, StageEnd};
use gc_types::{ObjectKey, PropagationPolicy, Request, Uid, parse_quantity};

use super::container::{Container, DeletionCause, Horizon};
use super::holds::Holds;
use super::{BlastRadius, LostVolume, Target};
use crate::catalog::GroupResource;
use crate::facts::Facts;
use crate::storage::{self, Deleter};
use crate::survey::Survey;

pub(super) const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// An object that is deleted by a rule other than ownership.
pub(super) struct Root {
    key: ObjectKey,
    policy: Option<PropagationPolicy>,
    pub(super) reasons: Vec<DeletionCause>,
}

/// A volume whose claim is deleted.
pub(super) struct ReachedVolume {
    pub(super) claim: Uid,
    pub(super) volume: LostVolume,
    /// True if it stays, with its storage.
    pub(super) stays: bool,
}

/// A remark about an object that applies if another one is deleted.
pub(super) struct Consequence {
    pub(super) cause: Uid,
    pub(super) of: Uid,
    pub(super) remark: String,
}

pub(super) struct Planner<'a> {
    pub(super) survey: &'a Survey,
    pub(super) facts: &'a Facts,
    pub(super) roots: BTreeMap<Uid, Root>,
    pub(super) containers: BTreeMap<Uid, Container>,
    /// Number of contents that are not rehearsed.
    pub(super) leaves: usize,
    pub(super) volumes: Vec<ReachedVolume>,
    /// Remarks about an object, in order.
    pub(super) remarks: BTreeMap<Uid, Vec<String>>,
    /// Remarks about an object that apply if another one is deleted.
    pub(super) consequences: Vec<Consequence>,
    pub(super) holds: Holds<'a>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(survey: &'a Survey, facts: &'a Facts, targets: &[Target]) -> Self {
        let mut planner = Self {
            survey,
            facts,
            roots: BTreeMap::new(),
            containers: BTreeMap::new(),
            leaves: 0,
            volumes: Vec::new(),
            remarks: BTreeMap::new(),
            consequences: Vec::new(),
            holds: Holds::new(survey, facts),
        };
        for target in targets {
            planner.add(&target.key, &target.uid, target.policy, DeletionCause::Asked);
        }
        planner
    }

    /// Plans the deletions. Rehearses nothing until all required facts have been read; until then, the plan is empty.
    pub(super) fn plan(mut self, limit: usize) -> Result<BlastRadius, PlanError> {
        self.reach(limit)?;
        if self.facts.has_needs() {
            return Ok(BlastRadius::default());
        }
        let candidates = self.candidates();
        self.prefetch_facts(&candidates);
        if self.facts.has_needs() {
            return Ok(BlastRadius::default());
        }
        let stages = [Horizon::AtOnce, Horizon::InTime, Horizon::InTheEnd].map(|horizon| At {
            planner: &self,
            horizon,
            begun: RefCell::default(),
            refused: RefCell::default(),
        });
        let directed: Vec<&dyn Stage> = stages.iter().map(|stage| stage as &dyn Stage).collect();
        let is_at_once = |uid: &Uid| self.holds.is_at_once(uid);
        let (ends, assumed_living) =
            self.survey.engine.plan_stages(&candidates, &is_at_once, &directed, limit)?;
        let [at_once, in_time, in_the_end] =
            <[StageEnd; 3]>::try_from(ends).map_err(|ends| PlanError::Endless(ends.len()))?;
        let [.., then, last] = stages;
        let (refused, begun) = (then.refused.into_inner(), last.begun.into_inner());
        let reached = self.below(begun.iter());
        Ok(self.fates(&Stages { at_once, in_time, in_the_end, assumed_living, reached, refused }))
    }

    /// Returns the roots that are rehearsed.
    pub(super) fn candidates(&self) -> Vec<Uid> {
        self.roots
            .iter()
            .filter(|(uid, _)| !self.holds.is_at_once(uid))
            // A survey of one namespace cannot plan for objects that it has not seen.
            .filter(|(uid, root)| self.survey.engine.key_of(uid).as_ref() == Some(&root.key))
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    /// Evaluates every rule that a rehearsal applies, so that missing facts are requested in one round instead of one object at a
    /// time. Rules record the facts they lack; their results are ignored here.
    fn prefetch_facts(&self, candidates: &[Uid]) {
        let nothing_yet = Progress::default();
        for (uid, root) in &self.roots {
            let Some(owner) = self.controller_of(uid) else { continue };
            // The Job's conditions decide whether it replaces its pod.
            let _ = self.is_finished_job(&owner.coordinates, uid);
            // Other deleted objects mostly have an owner that is deleted with them.
            if root.reasons.contains(&DeletionCause::Asked)
                && let Some(view) = survey_view(self.survey, uid)
            {
                let _ = self.owner_recreates(&view, &owner.coordinates);
            }
        }
        for uid in &self.below(candidates.iter()) {
            let Some(view) = survey_view(self.survey, uid) else { continue };
            self.holds.stuck(&view, &nothing_yet);
            self.holds.silent_kubelet(&view, &nothing_yet);
            self.holds.refused(&view);
            if let Some(key) = &view.key {
                self.holds.unreleasable(key);
            }
            if let Some(key) = view.key.as_ref().filter(|_| view.deletion.foreign_finalizers) {
                self.holds.foreign(key).for_each(|finalizer| drop(self.holds.releasing(finalizer, key)));
                self.holds.is_held(Horizon::InTheEnd, &nothing_yet, uid, true);
            }
        }
    }

    /// Follows deletions to everything that is deleted because of them.
    pub(super) fn reach(&mut self, limit: usize) -> Result<(), PlanError> {
        let (mut seen, mut open) = (BTreeSet::new(), self.roots.keys().cloned().collect::<Vec<Uid>>());
        while let Some(uid) = open.pop() {
            if self.holds.is_at_once(&uid) || !seen.insert(uid.clone()) {
                continue;
            }
            if let Some(view) = survey_view(self.survey, &uid) {
                open.extend(self.follow(&view));
            }
            if seen.len() + self.leaves > limit {
                return Err(PlanError::TooLarge(limit));
            }
            open.extend(self.survey.engine.dependent_uids(&uid));
        }
        Ok(())
    }

    /// Returns these objects and all their direct and indirect dependents.
    fn below<'u>(&self, roots: impl Iterator<Item = &'u Uid>) -> BTreeSet<Uid> {
        let (mut seen, mut open) = (BTreeSet::new(), roots.cloned().collect::<Vec<Uid>>());
        while let Some(uid) = open.pop() {
            if !self.holds.is_at_once(&uid) && seen.insert(uid.clone()) {
                open.extend(self.survey.engine.dependent_uids(&uid));
            }
        }
        seen
    }

    pub(super) fn resource_of(&self, key: &ObjectKey) -> (&'a str, &'a str) {
        let resource = self.survey.resource(key);
        resource.map_or(("", ""), |resource| (&resource.name.group, &resource.name.resource))
    }

    pub(super) fn add(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        policy: Option<PropagationPolicy>,
        reason: DeletionCause,
    ) {
        let is_asked = reason == DeletionCause::Asked;
        let is_terminating = || survey_view(self.survey, uid).is_some_and(|view| view.deletion.deleting);
        // kube-apiserver ignores the propagation policy of a request that begins the deletion of a definition.
        let is_ignored = self.resource_of(key) == DEFINITIONS && !is_terminating();
        let policy = policy.filter(|_| !is_ignored);
        let root = self.roots.entry(uid.clone()).or_insert_with(|| Root {
            key: key.clone(),
            policy,
            reasons: Vec::new(),
        });
        if is_asked {
            root.policy = policy;
        }
        if !root.reasons.contains(&reason) {
            root.reasons.push(reason);
        }
    }

    /// Returns everything that Kubernetes deletes because of an object's deletion, other than its dependents.
    fn follow(&mut self, view: &NodeView) -> Vec<Uid> {
        let Some(key) = view.key.clone() else { return Vec::new() };
        match self.resource_of(&key) {
            ("", "namespaces") => self.namespace(&view.uid, key),
            ("", "nodes") => self.node(&view.uid, &key.name),
            ("", "persistentvolumeclaims") => self.claim(&view.uid, &key).into_iter().collect(),
            ("", "services") => self.service(&view.uid, &key).into_iter().collect(),
            resource if resource == DEFINITIONS => self.definition(&view.uid, key),
            _ => Vec::new(),
        }
    }

    fn node(&mut self, uid: &Uid, node: &str) -> Vec<Uid> {
        let pods = GroupResource::new("", "pods");
        let facts = self.facts;
        let Some(id) = self.survey.catalog.named(&pods).map(|resource| resource.id) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for pod in facts.all(&pods, "").iter().filter(|pod| pod.text("/spec/nodeName") == node) {
            let key = ObjectKey { resource: id, namespace: pod.namespace().into(), name: pod.name().into() };
            let pod = Uid::new(pod.uid());
            let remark = format!("deleted by the pod garbage collector, about a minute after node {node}");
            self.consequences.push(Consequence { cause: uid.clone(), of: pod.clone(), remark });
            self.holds.on_node(pod.clone(), uid.clone());
            self.add(&key, &pod, Some(PropagationPolicy::Background), DeletionCause::Gone(uid.clone()));
            found.push(pod);
        }
        found
    }

    /// Returns the volume of a claim: it is deleted after the claim, or only released if it is terminating already.
    fn claim(&mut self, uid: &Uid, key: &ObjectKey) -> Option<Uid> {
        let (claims, volumes) =
            (GroupResource::new("", "persistentvolumeclaims"), GroupResource::new("", "persistentvolumes"));
        let facts = self.facts;
        let claim = facts.present(&claims, &key.namespace, &key.name)?;
        let name = Some(claim.text("/spec/volumeName")).filter(|name| !name.is_empty())?;
        let volume = facts.present(&volumes, "", name)?;
        if volume.text("/spec/claimRef/uid") != claim.uid() {
            return None;
        }
        let policy = volume.text("/spec/persistentVolumeReclaimPolicy");
        let is_deleted = policy == "Delete";
        let deleter = is_deleted.then(|| storage::deleter(volume, facts));
        // A recycled volume stays, but its data does not.
        let is_retained = !is_deleted && policy != "Recycle";
        let stays = is_retained || matches!(deleter, Some(Deleter::Missing(_)));
        let lost = LostVolume {
            name: name.to_owned(),
            claim: format!("{}/{}", key.namespace, key.name),
            bytes: parse_quantity(volume.text("/spec/capacity/storage")),
        };
        self.volumes.push(ReachedVolume { claim: uid.clone(), volume: lost, stays });
        // If nothing can delete its storage, now or ever, a volume is marked Failed and stays.
        let fails = matches!(deleter, Some(Deleter::Missing(_))) && !storage::has_driver(volume);
        if (!is_deleted || fails) && !volume.is_terminating() {
            return None;
        }
        let id = self.survey.catalog.named(&volumes).map(|resource| resource.id)?;
        let key = ObjectKey { resource: id, namespace: "".into(), name: name.into() };
        let volume = Uid::new(volume.uid());
        let remark = match deleter {
            Some(Deleter::Seen(_)) => Some("its storage is deleted by reclaim policy Delete".to_owned()),
            Some(Deleter::Unseen(who)) => Some(format!(
                "its storage is deleted by reclaim policy Delete, if {who} is at work, which cannot be seen"
            )),
            Some(Deleter::Missing(why)) => {
                self.holds.keeps_storage(volume.clone(), why);
                None
            }
            None => None,
        };
        let consequence = remark.map(|remark| Consequence { cause: uid.clone(), of: volume.clone(), remark });
        self.consequences.extend(consequence);
        let policy = is_deleted.then_some(PropagationPolicy::Background);
        self.add(&key, &volume, policy, DeletionCause::Gone(uid.clone()));
        Some(volume)
    }

    /// Returns the Endpoints of a Service, which the endpoints controller deletes. They have the same name instead of an owner
    /// reference.
    fn service(&mut self, uid: &Uid, key: &ObjectKey) -> Option<Uid> {
        let name = GroupResource::new("", "endpoints");
        let id = self.survey.catalog.named(&name)?.id;
        let endpoints = Uid::new(self.facts.present(&name, &key.namespace, &key.name)?.uid());
        let key = ObjectKey { resource: id, ..key.clone() };
        self.add(&key, &endpoints, Some(PropagationPolicy::Background), DeletionCause::Gone(uid.clone()));
        Some(endpoints)
    }

    pub(super) fn is_due(&self, reason: &DeletionCause, progress: &Progress) -> bool {
        match reason {
            DeletionCause::Asked => true,
            DeletionCause::Gone(other) => progress.gone.contains(other),
            DeletionCause::Contained { container, follows_pods } => {
                let pods = self.containers.get(container).filter(|_| *follows_pods);
                self.is_marked(container, progress)
                    && pods.is_none_or(|container| container.has_no_pods(progress))
            }
        }
    }

    fn is_marked(&self, uid: &Uid, progress: &Progress) -> bool {
        let is_terminating = || survey_view(self.survey, uid).is_some_and(|view| view.deletion.deleting);
        progress.marked.contains(uid) || is_terminating()
    }

    /// Reports whether the contents that wait for the pods of a container are being deleted.
    fn is_followed(&self, uid: &Uid, container: &Container, progress: &Progress) -> bool {
        self.is_marked(uid, progress) && container.has_no_pods(progress)
    }

    fn is_held(&self, horizon: Horizon, progress: &Progress, uid: &Uid, has_finalizers: bool) -> bool {
        let is_filled = self.containers.get(uid).is_some_and(|container| {
            let waits = || !container.followers.is_empty() && !self.is_followed(uid, container, progress);
            container.unlisted.is_some()
                || container.inside.iter().any(|inner| !progress.gone.contains(inner))
                || waits()
        });
        is_filled || self.holds.is_held(horizon, progress, uid, has_finalizers)
    }

    /// Returns the propagation policy of the requests that empty a container. Namespaces use background; requests for definitions
    /// name none, so finalizers of another policy stay.
    pub(super) fn policy_within(&self, container: &Uid) -> Option<PropagationPolicy> {
        let key = self.survey.engine.key_of(container);
        let is_definition = key.is_some_and(|key| self.resource_of(&key) == DEFINITIONS);
        (!is_definition).then_some(PropagationPolicy::Background)
    }

    /// Returns the roots whose deletion has begun at this point, each with its requested propagation policy.
    fn begun(&self, progress: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        let mut begun = Vec::new();
        // Evaluated once per container.
        let mut known: BTreeMap<(Uid, bool), bool> = BTreeMap::new();
        let mut is_due = |reason: &'_ DeletionCause| match reason {
            DeletionCause::Contained { container, follows_pods } => *known
                .entry((container.clone(), *follows_pods))
                .or_insert_with(|| self.is_due(reason, progress)),
            DeletionCause::Asked | DeletionCause::Gone(_) => self.is_due(reason, progress),
        };
        for (uid, root) in &self.roots {
            let due: Vec<&DeletionCause> = root.reasons.iter().filter(|reason| is_due(reason)).collect();
            if due.iter().any(|reason| matches!(reason, DeletionCause::Asked | DeletionCause::Gone(_))) {
                begun.push((uid.clone(), root.policy));
            }
            // Emptying a container requests the deletion again, whatever was requested before.
            begun.extend(due.iter().filter_map(|reason| match reason {
                DeletionCause::Contained { container, .. } => {
                    Some((uid.clone(), self.policy_within(container)))
                }
                DeletionCause::Asked | DeletionCause::Gone(_) => None,
            }));
        }
        begun
    }
}

/// One stage of a plan.
struct At<'p, 'a> {
    planner: &'p Planner<'a>,
    horizon: Horizon,
    /// Roots whose deletion has begun.
    begun: RefCell<BTreeSet<Uid>>,
    /// Objects whose deletion, or whose release from an owner, was refused.
    refused: RefCell<BTreeMap<Uid, String>>,
}

impl At<'_, '_> {
    /// Records a refusal, and reports whether there was one.
    fn note_refusal(&self, uid: &Uid, why: Option<String>) -> bool {
        let why = why.filter(|_| self.horizon != Horizon::InTheEnd);
        let is_refused = why.is_some();
        self.refused.borrow_mut().extend(why.map(|why| (uid.clone(), why)));
        is_refused
    }
}

impl Stage for At<'_, '_> {
    fn deletions(&self, progress: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        let mut begun = self.planner.begun(progress);
        let holds = &self.planner.holds;
        begun.retain(|(uid, _)| {
            let view = survey_view(self.planner.survey, uid);
            !self.note_refusal(uid, view.and_then(|view| holds.refused(&view)))
        });
        for (uid, container) in &self.planner.containers {
            if container.followed.get().is_none() && self.planner.is_followed(uid, container, progress) {
                container.followed.set(Some(self.horizon));
            }
        }
        self.begun.borrow_mut().extend(begun.iter().map(|(uid, _)| uid.clone()));
        begun
    }

    fn is_held(&self, uid: &Uid, has_finalizers: bool, progress: &Progress) -> bool {
        self.planner.is_held(self.horizon, progress, uid, has_finalizers)
    }

    fn refuses(&self, request: &Request) -> bool {
        let holds = &self.planner.holds;
        match request {
            Request::Delete { uid, .. } => {
                let view = survey_view(self.planner.survey, uid);
                self.note_refusal(uid, view.and_then(|view| holds.refused(&view)))
            }
            Request::SetOwners { key, uid, .. } => self.note_refusal(uid, holds.unreleasable(key)),
            _ => false,
        }
    }
}

/// Results of the stages of a plan.
pub(super) struct Stages {
    pub(super) at_once: StageEnd,
    pub(super) in_time: StageEnd,
    pub(super) in_the_end: StageEnd,
    /// Owners that could not be resolved and count as living.
    pub(super) assumed_living: Vec<Uid>,
    /// Deleted objects, and all their dependents.
    pub(super) reached: BTreeSet<Uid>,
    /// Objects whose deletion, or whose release from an owner, is refused, with the reason.
    pub(super) refused: BTreeMap<Uid, String>,
}

/// Returns an object of a survey, if the survey has it.
pub(super) fn survey_view(survey: &Survey, uid: &Uid) -> Option<NodeView> {
    survey.engine.view_of(uid).filter(|view| view.presence == Presence::Observed)
}
