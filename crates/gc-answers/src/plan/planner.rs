//! Which objects are deleted because of which others, by rules other than ownership, and the cascades over them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{NodeView, Plan, PlanError, Presence, Progress, Stage};
use gc_types::{ObjectKey, PropagationPolicy, Uid, parse_quantity};

use super::holds::Holds;
use super::{BlastRadius, LostVolume, Target};
use crate::catalog::GroupResource;
use crate::facts::Facts;
use crate::survey::Survey;
use crate::text;

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// How far a plan looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Horizon {
    /// Only what Kubernetes does by itself.
    AtOnce,
    /// Controllers that work remove their finalizers.
    InTime,
    /// Every finalizer is removed, by hand if need be.
    InTheEnd,
}

/// What makes an object be deleted other than its owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// It was asked for.
    Asked,
    /// What contains it is being deleted. All but the pods of a namespace wait for these pods.
    Contained { container: Uid, follows_pods: bool },
    /// What it belongs to is gone: the claim of a volume, the node of a pod.
    Gone(Uid),
}

/// An object that is deleted by a rule other than ownership.
pub(super) struct Root {
    key: ObjectKey,
    policy: Option<PropagationPolicy>,
    pub(super) reasons: Vec<When>,
}

/// What is deleted when everything in it is gone: a namespace, a definition.
pub(super) struct Container {
    pub(super) key: ObjectKey,
    pub(super) inside: Vec<Uid>,
    pods: Vec<Uid>,
    /// Why its contents cannot be listed, which holds it up.
    pub(super) unlisted: Option<String>,
}

/// A volume whose claim the deletion reaches.
pub(super) struct ReachedVolume {
    pub(super) claim: Uid,
    pub(super) volume: LostVolume,
    pub(super) is_retained: bool,
}

/// A remark about an object that holds if another one is deleted.
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
    pub(super) volumes: Vec<ReachedVolume>,
    /// What is said of an object, in order.
    pub(super) remarks: BTreeMap<Uid, Vec<String>>,
    /// What is said of an object if another one is deleted.
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
            volumes: Vec::new(),
            remarks: BTreeMap::new(),
            consequences: Vec::new(),
            holds: Holds::new(survey, facts),
        };
        for target in targets {
            planner.add(&target.key, &target.uid, target.policy, When::Asked);
        }
        planner
    }

    pub(super) fn plan(mut self, limit: usize) -> Result<BlastRadius, PlanError> {
        self.reach(limit)?;
        let candidates: Vec<Uid> = self
            .roots
            .iter()
            // What a survey of one namespace has not seen cannot be planned.
            .filter(|(uid, root)| {
                survey_view(self.survey, uid).is_some_and(|view| view.key.as_ref() == Some(&root.key))
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        let stages = [Horizon::AtOnce, Horizon::InTime, Horizon::InTheEnd].map(|horizon| At {
            planner: &self,
            horizon,
            begun: RefCell::default(),
        });
        let directed: Vec<&dyn Stage> = stages.iter().map(|stage| stage as &dyn Stage).collect();
        let plans = self.survey.engine.plan_stages(&candidates, &directed, limit)?;
        let [at_once, in_time, in_the_end] =
            <[Plan; 3]>::try_from(plans).map_err(|plans| PlanError::Endless(plans.len()))?;
        let [.., last] = stages;
        let begun = last.begun.into_inner();
        let reached = self.below(begun.iter());
        Ok(self.fates(&Stages { at_once, in_time, in_the_end, reached }))
    }

    /// Follows everything that may be deleted to what is deleted because of it.
    fn reach(&mut self, limit: usize) -> Result<(), PlanError> {
        let (mut seen, mut open) = (BTreeSet::new(), self.roots.keys().cloned().collect::<Vec<Uid>>());
        while let Some(uid) = open.pop() {
            if !seen.insert(uid.clone()) {
                continue;
            }
            if seen.len() > limit {
                return Err(PlanError::TooLarge(limit));
            }
            if let Some(view) = survey_view(self.survey, &uid) {
                open.extend(self.follow(&view));
            }
            open.extend(self.survey.engine.dependents(&uid).into_iter().map(|view| view.uid));
        }
        Ok(())
    }

    /// These objects and everything that depends on them.
    fn below<'u>(&self, roots: impl Iterator<Item = &'u Uid>) -> BTreeSet<Uid> {
        let (mut seen, mut open) = (BTreeSet::new(), roots.cloned().collect::<Vec<Uid>>());
        while let Some(uid) = open.pop() {
            if seen.insert(uid.clone()) {
                open.extend(self.survey.engine.dependents(&uid).into_iter().map(|view| view.uid));
            }
        }
        seen
    }

    pub(super) fn resource_of(&self, key: &ObjectKey) -> (&'a str, &'a str) {
        let resource = self.survey.resource(key);
        resource.map_or(("", ""), |resource| (&resource.name.group, &resource.name.resource))
    }

    fn add(&mut self, key: &ObjectKey, uid: &Uid, policy: Option<PropagationPolicy>, reason: When) {
        let is_asked = reason == When::Asked;
        let is_terminating = || survey_view(self.survey, uid).is_some_and(|view| view.deletion.deleting);
        // kube-apiserver pays no attention to the policy of the request that begins the deletion of a definition.
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

    /// Everything that Kubernetes deletes because an object is deleted, other than its dependents.
    fn follow(&mut self, view: &NodeView) -> Vec<Uid> {
        let Some(key) = view.key.clone() else { return Vec::new() };
        match self.resource_of(&key) {
            ("", "namespaces") => self.namespace(&view.uid, key),
            ("", "nodes") => self.node(&view.uid, &key.name),
            ("", "persistentvolumeclaims") => self.claim(&view.uid, &key).into_iter().collect(),
            resource if resource == DEFINITIONS => self.definition(&view.uid, key),
            _ => Vec::new(),
        }
    }

    fn namespace(&mut self, uid: &Uid, key: ObjectKey) -> Vec<Uid> {
        let inside = self.survey.engine.select(|inside| *inside.namespace == *key.name);
        let pods = self.survey.catalog.named(&GroupResource::new("", "pods")).map(|resource| resource.id);
        let is_pod = |view: &NodeView| view.key.as_ref().is_some_and(|key| Some(key.resource) == pods);
        let pods = inside.iter().filter(|view| is_pod(view)).map(|view| view.uid.clone()).collect();
        for view in &inside {
            let follows_pods = !is_pod(view);
            self.contained(view, When::Contained { container: uid.clone(), follows_pods });
        }
        let inside: Vec<Uid> = inside.into_iter().map(|view| view.uid).collect();
        let found = inside.clone();
        let failed = &self.survey.catalog.failed;
        let unlisted =
            (!failed.is_empty()).then(|| format!("discovery of {} fails", text::some_of(failed, 3)));
        let container = Container { key, inside, pods, unlisted };
        self.containers.insert(uid.clone(), container);
        found
    }

    fn definition(&mut self, uid: &Uid, key: ObjectKey) -> Vec<Uid> {
        let name = GroupResource::new(DEFINITIONS.0, DEFINITIONS.1);
        let (mut inside, mut unlisted) = (Vec::new(), None);
        if let Some(definition) = self.facts.present(&name, "", &key.name) {
            let kind =
                GroupResource::new(definition.text("/spec/group"), definition.text("/spec/names/plural"));
            if let Some(resource) = self.survey.catalog.named(&kind) {
                inside = self.survey.engine.select(|instance| instance.resource == resource.id);
                // What only this user may not list is no obstacle to the server.
                let why = self.survey.unlisted().get(&resource.id).filter(|why| why.starts_with('5'));
                unlisted = why.map(|why| format!("its objects cannot be listed ({why})"));
            }
        }
        for view in &inside {
            self.contained(view, When::Contained { container: uid.clone(), follows_pods: false });
        }
        let inside: Vec<Uid> = inside.into_iter().map(|view| view.uid).collect();
        let (pods, found) = (Vec::new(), inside.clone());
        let container = Container { key, inside, pods, unlisted };
        self.containers.insert(uid.clone(), container);
        found
    }

    fn contained(&mut self, view: &NodeView, reason: When) {
        if let Some(key) = &view.key {
            self.add(key, &view.uid, Some(PropagationPolicy::Background), reason);
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
            self.add(&key, &pod, Some(PropagationPolicy::Background), When::Gone(uid.clone()));
            found.push(pod);
        }
        found
    }

    /// The volume of a claim: it is deleted after it, or only released if it is being deleted already.
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
        let is_retained = volume.text("/spec/persistentVolumeReclaimPolicy") != "Delete";
        let lost = LostVolume {
            name: name.to_owned(),
            claim: format!("{}/{}", key.namespace, key.name),
            bytes: parse_quantity(volume.text("/spec/capacity/storage")),
        };
        self.volumes.push(ReachedVolume { claim: uid.clone(), volume: lost, is_retained });
        if is_retained && !volume.is_terminating() {
            return None;
        }
        let id = self.survey.catalog.named(&volumes).map(|resource| resource.id)?;
        let key = ObjectKey { resource: id, namespace: "".into(), name: name.into() };
        let volume = Uid::new(volume.uid());
        if !is_retained {
            let remark = "its storage is deleted by reclaim policy Delete".to_owned();
            self.consequences.push(Consequence { cause: uid.clone(), of: volume.clone(), remark });
        }
        let policy = (!is_retained).then_some(PropagationPolicy::Background);
        self.add(&key, &volume, policy, When::Gone(uid.clone()));
        Some(volume)
    }

    pub(super) fn is_due(&self, reason: &When, progress: &Progress) -> bool {
        match reason {
            When::Asked => true,
            When::Gone(other) => progress.gone.contains(other),
            When::Contained { container, follows_pods } => {
                let is_terminating =
                    |uid| survey_view(self.survey, uid).is_some_and(|view| view.deletion.deleting);
                let is_marked = progress.marked.contains(container) || is_terminating(container);
                let pods = self.containers.get(container).filter(|_| *follows_pods);
                is_marked
                    && pods
                        .is_none_or(|container| container.pods.iter().all(|pod| progress.gone.contains(pod)))
            }
        }
    }

    fn is_held(&self, horizon: Horizon, progress: &Progress, uid: &Uid, has_finalizers: bool) -> bool {
        let is_filled = self.containers.get(uid).is_some_and(|container| {
            container.unlisted.is_some()
                || container.inside.iter().any(|inner| !progress.gone.contains(inner))
        });
        is_filled || self.holds.is_held(horizon, progress, uid, has_finalizers)
    }

    /// The roots whose deletion begins at this state of things, each with the policy that it is asked for with.
    fn begun(&self, progress: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        let mut begun = Vec::new();
        for (uid, root) in &self.roots {
            let due = || root.reasons.iter().filter(|reason| self.is_due(reason, progress));
            if due().any(|reason| matches!(reason, When::Asked | When::Gone(_))) {
                begun.push((uid.clone(), root.policy));
            }
            // The controllers of namespaces and definitions delete in the background, whatever was asked for before.
            if due().any(|reason| matches!(reason, When::Contained { .. })) {
                begun.push((uid.clone(), Some(PropagationPolicy::Background)));
            }
        }
        begun
    }
}

/// One stage of a plan.
struct At<'p, 'a> {
    planner: &'p Planner<'a>,
    horizon: Horizon,
    /// The roots whose deletion has begun.
    begun: RefCell<BTreeSet<Uid>>,
}

impl Stage for At<'_, '_> {
    fn deletions(&self, progress: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        let begun = self.planner.begun(progress);
        self.begun.borrow_mut().extend(begun.iter().map(|(uid, _)| uid.clone()));
        begun
    }

    fn is_held(&self, uid: &Uid, has_finalizers: bool, progress: &Progress) -> bool {
        self.planner.is_held(self.horizon, progress, uid, has_finalizers)
    }
}

/// What the stages of a plan lead to.
pub(super) struct Stages {
    pub(super) at_once: Plan,
    pub(super) in_time: Plan,
    pub(super) in_the_end: Plan,
    /// What is deleted, and everything that depends on it.
    pub(super) reached: BTreeSet<Uid>,
}

/// An object of a survey, if it was seen.
pub(super) fn survey_view(survey: &Survey, uid: &Uid) -> Option<NodeView> {
    survey.engine.view_of(uid).filter(|view| view.presence == Presence::Observed)
}
