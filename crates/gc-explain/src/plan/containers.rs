//! Contents of namespaces and definitions, which are deleted with them.
//!
//! Most contents are removed as soon as their deletion is requested, because they have no finalizers and no dependents. Such leaves
//! are not rehearsed, so the cost of a plan depends only on the other objects.

use gc_ownership::{Contents, Leaf, NodeView, Progress};
use gc_types::{ObjectKey, PropagationPolicy, ResourceId, Uid};

use std::cell::Cell;

use super::container::{Container, DeletionCause};
use super::planner::{DEFINITIONS, Planner, survey_view};
use crate::admission::Operation;
use crate::catalog::GroupResource;
use crate::text;
use crate::unread::UnlistedReason;

/// First minor version of Kubernetes 1 in which everything else in a namespace waits for its pods.
const PODS_FIRST_MINOR: u32 = 33;

impl Planner<'_> {
    fn resource(&self, group: &str, resource: &str) -> Option<ResourceId> {
        self.survey.catalog.named(&GroupResource::new(group, resource)).map(|resource| resource.id)
    }

    /// Reports whether the deletion of a container begins before anything else happens.
    fn begins_at_once(&self, uid: &Uid) -> bool {
        let is_asked = self.roots.get(uid).is_some_and(|root| root.reasons.contains(&DeletionCause::Asked));
        is_asked || survey_view(self.survey, uid).is_some_and(|view| view.deletion.deleting)
    }

    pub(super) fn namespace(&mut self, uid: &Uid, key: ObjectKey) -> Vec<Uid> {
        let contents = self.survey.engine.contents(|_, namespace| *namespace == *key.name);
        let (pods, claims) = (self.resource("", "pods"), self.resource("", "persistentvolumeclaims"));
        let is_pod = |resource| Some(resource) == pods;
        let (leaves, mut others) = self.split(uid, contents, |leaf| Some(leaf.resource) != claims);
        let (running, rest): (Vec<Leaf>, Vec<Leaf>) =
            leaves.into_iter().partition(|leaf| is_pod(leaf.resource));
        let nothing_yet = Progress::default();
        for pod in running {
            // The pod's kubelet may have to confirm its termination.
            match survey_view(self.survey, &pod.uid) {
                Some(view) if self.holds.silent_kubelet(&view, &nothing_yet).is_some() => others.push(view),
                _ => self.holds.ends_at_once(pod.uid),
            }
        }
        let is_view_of_pod = |view: &&NodeView| view.key.as_ref().is_some_and(|key| is_pod(key.resource));
        // Older servers empty a namespace in no particular order.
        let is_ordered = self.facts.server_minor().is_none_or(|minor| minor >= PODS_FIRST_MINOR);
        let pods = others.iter().filter(is_view_of_pod).map(|view| view.uid.clone());
        let pods: Vec<Uid> = pods.filter(|_| is_ordered).collect();
        let mut followers = Vec::new();
        for leaf in rest {
            if pods.is_empty() {
                self.holds.ends_at_once(leaf.uid);
            } else if leaf.has_owners {
                // The leaf may be removed with its owner before that.
                others.extend(survey_view(self.survey, &leaf.uid));
            } else {
                followers.push(leaf);
            }
        }
        for view in &others {
            let follows_pods = !is_view_of_pod(&view);
            self.contained(view, DeletionCause::Contained { container: uid.clone(), follows_pods });
        }
        let failed = &self.survey.catalog.failed;
        let unlisted =
            (!failed.is_empty()).then(|| format!("discovery of {} fails", text::some_of(failed, 3)));
        self.contain(
            uid,
            Container { key, inside: Vec::new(), pods, followers, followed: Cell::default(), unlisted },
            others,
        )
    }

    pub(super) fn definition(&mut self, uid: &Uid, key: ObjectKey) -> Vec<Uid> {
        let name = GroupResource::new(DEFINITIONS.0, DEFINITIONS.1);
        let (mut contents, mut unlisted) = (Contents::default(), None);
        if let Some(definition) = self.facts.present(&name, "", &key.name) {
            let kind =
                GroupResource::new(definition.text("/spec/group"), definition.text("/spec/names/plural"));
            if let Some(resource) = self.survey.catalog.named(&kind) {
                self.rehearse_followers(resource.id);
                contents = self.survey.engine.contents(|instance, _| instance == resource.id);
                // If only this user may not list a resource, that does not stop the server.
                let why = self.survey.unlisted().get(&resource.id);
                let why = why.filter(|why| matches!(why, UnlistedReason::Failed { code: 500.., .. }));
                unlisted = why.map(|why| format!("its objects cannot be listed ({why})"));
            }
        }
        let (leaves, others) = self.split(uid, contents, |_| true);
        for leaf in leaves {
            self.holds.ends_at_once(leaf.uid);
        }
        for view in &others {
            self.contained(view, DeletionCause::Contained { container: uid.clone(), follows_pods: false });
        }
        let (pods, followers) = (Vec::new(), Vec::new());
        self.contain(
            uid,
            Container { key, inside: Vec::new(), pods, followers, followed: Cell::default(), unlisted },
            others,
        )
    }

    /// Rehearses these leaves, because a definition may delete its objects before or after their namespace does.
    fn rehearse_followers(&mut self, resource: ResourceId) {
        let mut both = Vec::new();
        for (uid, container) in &mut self.containers {
            let is_defined = |leaf: &mut Leaf| leaf.resource == resource;
            for leaf in container.followers.extract_if(.., is_defined) {
                container.inside.push(leaf.uid.clone());
                both.push((uid.clone(), leaf.uid));
            }
        }
        for (container, leaf) in both {
            if let Some(view) = survey_view(self.survey, &leaf) {
                self.contained(&view, DeletionCause::Contained { container, follows_pods: true });
            }
        }
    }

    /// Returns the leaves that need not be rehearsed, and everything else.
    fn split(
        &mut self,
        container: &Uid,
        contents: Contents,
        is_plain: impl Fn(&Leaf) -> bool,
    ) -> (Vec<Leaf>, Vec<NodeView>) {
        let begins_at_once = self.begins_at_once(container);
        // Objects that are deleted for another reason are rehearsed; those that are already gone by then do not matter.
        let (leaves, rest): (Vec<Leaf>, Vec<Leaf>) =
            contents.leaves.into_iter().filter(|leaf| !self.holds.is_at_once(&leaf.uid)).partition(|leaf| {
                let is_root = self.roots.contains_key(&leaf.uid);
                begins_at_once && is_plain(leaf) && !is_root && !self.is_refused(leaf)
            });
        self.leaves += leaves.len();
        let mut others = contents.others;
        others.extend(rest.iter().filter_map(|leaf| survey_view(self.survey, &leaf.uid)));
        (leaves, others)
    }

    /// Reports whether an admission webhook or policy refuses the deletion of a leaf.
    fn is_refused(&self, leaf: &Leaf) -> bool {
        !self.holds.admission().is_free(Operation::Delete, leaf.resource)
            && survey_view(self.survey, &leaf.uid).is_some_and(|view| self.holds.refused(&view).is_some())
    }

    /// Registers a container, and returns the contents that are rehearsed.
    fn contain(&mut self, uid: &Uid, container: Container, others: Vec<NodeView>) -> Vec<Uid> {
        let inside: Vec<Uid> = others.into_iter().map(|view| view.uid).collect();
        self.containers.insert(uid.clone(), Container { inside: inside.clone(), ..container });
        inside
    }

    fn contained(&mut self, view: &NodeView, reason: DeletionCause) {
        if let Some(key) = &view.key {
            let policy = match &reason {
                DeletionCause::Contained { container, .. } => self.policy_within(container),
                DeletionCause::Asked | DeletionCause::Gone(_) => Some(PropagationPolicy::Background),
            };
            self.add(key, &view.uid, policy, reason);
        }
    }
}
