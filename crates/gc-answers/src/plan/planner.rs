//! Which objects are deleted because of which others, by rules other than ownership, and the cascades over them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{NodeView, Plan, PlanError, Presence};
use gc_types::{ObjectKey, PropagationPolicy, Uid, parse_quantity};

use super::holds::Holds;
use super::{BlastRadius, LostVolume, Target};
use crate::catalog::GroupResource;
use crate::facts::Facts;
use crate::survey::Survey;

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// How far a plan looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Only what Kubernetes does by itself.
    AtOnce,
    /// Controllers that work remove their finalizers.
    InTime,
    /// Every finalizer is removed, by hand if need be.
    InTheEnd,
}

/// How far a deletion has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) gone: BTreeSet<Uid>,
    /// Marked for deletion, or gone.
    pub(super) marked: BTreeSet<Uid>,
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

/// What goes when everything in it is gone: a namespace, a definition.
pub(super) struct Container {
    pub(super) key: ObjectKey,
    pub(super) is_namespace: bool,
    pub(super) inside: Vec<Uid>,
    pods: Vec<Uid>,
}

/// A volume whose claim the deletion reaches.
pub(super) struct ReachedVolume {
    pub(super) claim: Uid,
    pub(super) volume: LostVolume,
    pub(super) is_retained: bool,
}

pub(super) struct Planner<'a> {
    pub(super) survey: &'a Survey,
    pub(super) facts: &'a Facts,
    pub(super) roots: BTreeMap<Uid, Root>,
    pub(super) containers: BTreeMap<Uid, Container>,
    pub(super) volumes: Vec<ReachedVolume>,
    pub(super) remarks: BTreeMap<Uid, Vec<String>>,
    pub(super) holds: Holds<'a>,
    /// Objects whose consequences are known.
    followed: BTreeSet<Uid>,
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
            holds: Holds::new(survey, facts),
            followed: BTreeSet::new(),
        };
        for target in targets {
            planner.add(&target.key, &target.uid, target.policy, When::Asked);
        }
        planner
    }

    pub(super) fn plan(mut self, limit: usize) -> Result<BlastRadius, PlanError> {
        let asked: Vec<NodeView> =
            self.roots.keys().filter_map(|uid| survey_view(self.survey, uid)).collect();
        for view in asked {
            self.follow(&view);
        }
        // What the deletion reaches may bring further objects; each brings them once.
        loop {
            let known = self.followed.len();
            let plan = self.settle(Stage::InTheEnd, &mut Progress::default(), limit)?;
            for view in plan.deleted.iter().chain(&plan.held) {
                self.follow(view);
            }
            if self.followed.len() == known {
                return self.fates(&plan, limit);
            }
        }
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
    fn follow(&mut self, view: &NodeView) {
        let Some(key) = view.key.clone() else { return };
        let resource = self.resource_of(&key);
        let followed = [("", "namespaces"), ("", "nodes"), ("", "persistentvolumeclaims"), DEFINITIONS];
        if !followed.contains(&resource) || !self.followed.insert(view.uid.clone()) {
            return;
        }
        match resource.1 {
            "namespaces" => self.namespace(&view.uid, key),
            "nodes" => self.node(&view.uid, &key.name),
            "persistentvolumeclaims" => self.claim(&view.uid, &key),
            _ => self.definition(&view.uid, key),
        }
    }

    fn namespace(&mut self, uid: &Uid, key: ObjectKey) {
        let inside = self.survey.engine.select(|inside| *inside.namespace == *key.name);
        let pods = self.survey.catalog.named(&GroupResource::new("", "pods")).map(|resource| resource.id);
        let is_pod = |view: &NodeView| view.key.as_ref().is_some_and(|key| Some(key.resource) == pods);
        let pods = inside.iter().filter(|view| is_pod(view)).map(|view| view.uid.clone()).collect();
        for view in &inside {
            let follows_pods = !is_pod(view);
            self.contained(view, When::Contained { container: uid.clone(), follows_pods });
        }
        let inside = inside.into_iter().map(|view| view.uid).collect();
        self.containers.insert(uid.clone(), Container { key, is_namespace: true, inside, pods });
    }

    fn definition(&mut self, uid: &Uid, key: ObjectKey) {
        let name = GroupResource::new(DEFINITIONS.0, DEFINITIONS.1);
        let mut inside = Vec::new();
        if let Some(definition) = self.facts.present(&name, "", &key.name) {
            let kind =
                GroupResource::new(definition.text("/spec/group"), definition.text("/spec/names/plural"));
            if let Some(resource) = self.survey.catalog.named(&kind) {
                inside = self.survey.engine.select(|instance| instance.resource == resource.id);
            }
        }
        for view in &inside {
            self.contained(view, When::Contained { container: uid.clone(), follows_pods: false });
        }
        let inside = inside.into_iter().map(|view| view.uid).collect();
        let pods = Vec::new();
        self.containers.insert(uid.clone(), Container { key, is_namespace: false, inside, pods });
    }

    fn contained(&mut self, view: &NodeView, reason: When) {
        if let Some(key) = &view.key {
            self.add(key, &view.uid, Some(PropagationPolicy::Background), reason);
        }
    }

    fn node(&mut self, uid: &Uid, node: &str) {
        let pods = GroupResource::new("", "pods");
        let facts = self.facts;
        let Some(id) = self.survey.catalog.named(&pods).map(|resource| resource.id) else { return };
        for pod in facts.all(&pods, "").iter().filter(|pod| pod.text("/spec/nodeName") == node) {
            let key = ObjectKey { resource: id, namespace: pod.namespace().into(), name: pod.name().into() };
            let pod = Uid::new(pod.uid());
            let remark = format!("deleted by the pod garbage collector, about a minute after node {node}");
            self.remarks.entry(pod.clone()).or_default().push(remark);
            self.holds.on_node(pod.clone(), uid.clone());
            self.add(&key, &pod, Some(PropagationPolicy::Background), When::Gone(uid.clone()));
        }
    }

    /// The volume of a claim.
    fn claim(&mut self, uid: &Uid, key: &ObjectKey) {
        let (claims, volumes) =
            (GroupResource::new("", "persistentvolumeclaims"), GroupResource::new("", "persistentvolumes"));
        let facts = self.facts;
        let Some(claim) = facts.present(&claims, &key.namespace, &key.name) else { return };
        let name = claim.text("/spec/volumeName");
        let Some(volume) = Some(name).filter(|name| !name.is_empty()).and_then(|name| {
            facts
                .present(&volumes, "", name)
                .filter(|volume| volume.text("/spec/claimRef/uid") == claim.uid())
        }) else {
            return;
        };
        let is_retained = volume.text("/spec/persistentVolumeReclaimPolicy") != "Delete";
        let lost = LostVolume {
            name: name.to_owned(),
            claim: format!("{}/{}", key.namespace, key.name),
            bytes: parse_quantity(volume.text("/spec/capacity/storage")),
        };
        self.volumes.push(ReachedVolume { claim: uid.clone(), volume: lost, is_retained });
        let id = self.survey.catalog.named(&volumes).map(|resource| resource.id);
        if let Some(id) = id.filter(|_| !is_retained) {
            let key = ObjectKey { resource: id, namespace: "".into(), name: name.into() };
            let volume = Uid::new(volume.uid());
            let remark = "its storage is deleted by reclaim policy Delete".to_owned();
            self.remarks.entry(volume.clone()).or_default().push(remark);
            self.add(&key, &volume, Some(PropagationPolicy::Background), When::Gone(uid.clone()));
        }
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

    fn is_held(&self, stage: Stage, progress: &Progress, uid: &Uid, has_finalizers: bool) -> bool {
        let is_filled = self.containers.get(uid).is_some_and(|container| {
            let failed = container.is_namespace && !self.survey.catalog.failed.is_empty();
            failed || container.inside.iter().any(|inner| !progress.gone.contains(inner))
        });
        is_filled || self.holds.is_held(stage, progress, uid, has_finalizers)
    }

    /// The roots whose deletion begins. Those that nothing holds up and that wait for no dependents go at once, which may be
    /// what others wait for.
    fn begun(&self, stage: Stage, progress: &mut Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        loop {
            let mut begun = Vec::new();
            let known = (progress.gone.len(), progress.marked.len());
            for (uid, root) in &self.roots {
                // What a survey of one namespace has not seen cannot be planned.
                let Some(view) =
                    survey_view(self.survey, uid).filter(|view| view.key.as_ref() == Some(&root.key))
                else {
                    continue;
                };
                let is_due = root.reasons.iter().any(|reason| self.is_due(reason, progress));
                if !is_due && !view.deletion.deleting {
                    continue;
                }
                // What is being deleted already goes on as it was asked for then.
                let policy = root.policy.filter(|_| is_due);
                progress.marked.insert(uid.clone());
                let has_finalizers =
                    !self.survey.finalizers(&root.key).is_empty() || view.deletion.foreign_finalizers;
                if policy == Some(PropagationPolicy::Background)
                    && !self.is_held(stage, progress, uid, has_finalizers)
                {
                    progress.gone.insert(uid.clone());
                }
                begun.push((uid.clone(), policy));
            }
            if known == (progress.gone.len(), progress.marked.len()) {
                return begun;
            }
        }
    }

    /// The cascade by the collector's own engine, with everything that it leads to at this stage.
    pub(super) fn settle(
        &self,
        stage: Stage,
        progress: &mut Progress,
        limit: usize,
    ) -> Result<Plan, PlanError> {
        loop {
            let roots = self.begun(stage, progress);
            let assumed: RefCell<Vec<(Uid, bool, bool)>> = RefCell::default();
            let is_held = |uid: &Uid, has_finalizers: bool| {
                let is_held = self.is_held(stage, progress, uid, has_finalizers);
                if is_held {
                    assumed.borrow_mut().push((uid.clone(), has_finalizers, is_held));
                }
                is_held
            };
            let plan = self.survey.engine.plan_all(&roots, is_held, limit)?;
            let gone = plan.deleted.iter().map(|view| view.uid.clone());
            progress.gone.extend(gone);
            let marked = plan.deleted.iter().chain(&plan.held).map(|view| view.uid.clone());
            progress.marked.extend(marked);
            let mut holding = assumed.into_inner().into_iter();
            let is_same = holding
                .all(|(uid, has_finalizers, was)| self.is_held(stage, progress, &uid, has_finalizers) == was);
            if is_same && self.begun(stage, progress).len() == roots.len() {
                return Ok(plan);
            }
        }
    }
}

/// An object of a survey, if it was seen.
pub(super) fn survey_view(survey: &Survey, uid: &Uid) -> Option<NodeView> {
    survey.engine.view_of(uid).filter(|view| view.presence == Presence::Observed)
}
