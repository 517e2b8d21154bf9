//! Fate of each object, with the reason as a message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_ownership::{NodeView, Progress};
use gc_types::{Coordinates, FixedState, ObjectKey, OwnerReference, Recreator, ResourceId, Uid};
use hashbrown::HashMap;

use super::container::{DeletionCause, Horizon};
use super::planner::{Planner, Stages, survey_view};
use super::{BlastRadius, Fate, Item, ItemKind};
use crate::admission::{Decider, Operation};
use crate::catalog::GroupResource;
use crate::stuck::Place;
use crate::survey::Survey;
use crate::text;

/// Remark on an object whose deletion begins only after something stuck is released, and which is then stuck itself.
pub const PUT_OFF: &str = "not deleted before what is stuck is released";

const LATER: &str = "later";
const LATER_BY_HAND: &str = "later, only when what is stuck is released";

/// Fates of the rehearsed objects.
type Fates = BTreeMap<Uid, Fate>;

impl Planner<'_> {
    /// Compares the immediate outcome with the one that controllers make possible, and both with the final one.
    pub(super) fn fates(mut self, stages: &Stages) -> BlastRadius {
        let Stages { at_once, in_time, in_the_end, assumed_living, reached, refused } = stages;
        let mut progress = Progress::default();
        progress.gone.extend(in_time.deleted.iter().cloned());
        let marked = in_time.deleted.iter().chain(&in_time.held).chain(&in_time.terminating);
        progress.marked.extend(marked.cloned());
        let (first, second): (BTreeSet<&Uid>, BTreeSet<&Uid>) =
            (at_once.deleted.iter().collect(), in_time.deleted.iter().collect());
        let stays: BTreeSet<&Uid> = in_time.held.iter().chain(&in_time.terminating).collect();
        // Objects that others still need even when everything stuck is released.
        let stays_at_last: BTreeSet<&Uid> = in_the_end.held.iter().chain(&in_the_end.terminating).collect();
        let mut fates = Fates::new();
        let concerned = in_the_end.deleted.iter().chain(stays.iter().copied());
        let concerned = concerned.chain(stays_at_last.iter().copied()).chain(refused.keys());
        for uid in concerned.filter(|uid| reached.contains(*uid)) {
            let fate = if first.contains(uid) {
                Fate::Deleted
            } else if second.contains(uid) {
                Fate::Later
            } else if refused.contains_key(uid) || stays.contains(uid) || stays_at_last.contains(uid) {
                Fate::Stuck
            } else {
                // The object waits for something that is stuck.
                Fate::Later
            };
            fates.insert(uid.clone(), fate);
        }
        for uid in in_time.released.iter().filter(|uid| reached.contains(*uid)) {
            fates.entry(uid.clone()).or_insert(Fate::Released);
        }
        let reached =
            |uid: &Uid| fates.get(uid).is_some_and(|fate| matches!(fate, Fate::Deleted | Fate::Later));
        for consequence in self.consequences.drain(..).filter(|consequence| reached(&consequence.cause)) {
            self.remarks.entry(consequence.of).or_default().push(consequence.remark);
        }
        let mut radius = BlastRadius::default();
        let owner = |uid: &Uid| match self.survey.engine.view_of(uid) {
            Some(view) => format!("{}/{} ({uid})", view.kind, view.name),
            None => uid.to_string(),
        };
        radius.assumed_living = assumed_living.iter().map(owner).collect();
        for (uid, fate) in fates.iter().filter(|(_, fate)| matches!(fate, Fate::Later | Fate::Stuck)) {
            let will_end = second.contains(uid);
            if let Some(view) = survey_view(self.survey, uid) {
                let refused = refused.get(uid).map(String::as_str);
                self.remark(&view, (*fate, refused), will_end, &progress, &mut radius.stuck);
            }
            if *fate == Fate::Stuck && !stays.contains(uid) && !refused.contains_key(uid) {
                self.remarks.entry(uid.clone()).or_default().insert(0, PUT_OFF.to_owned());
            }
        }
        let leaves = self.leaves();
        let going: Vec<&Uid> =
            fates.iter().filter(|(_, fate)| **fate != Fate::Released).map(|(uid, _)| uid).collect();
        for uid in going.into_iter().chain(leaves.iter().map(|leaf| &leaf.uid)) {
            self.recreated(uid, &fates, &mut radius.recreated);
        }
        let leaf_uids = leaves.iter().map(|leaf| &leaf.uid);
        (radius.webhooks, radius.undecided) = self.deciding_webhooks(
            fates.iter().filter(|(_, fate)| **fate != Fate::Released).map(|(uid, _)| uid).chain(leaf_uids),
        );
        for reached_volume in std::mem::take(&mut self.volumes) {
            if !reached(&reached_volume.claim) {
                let is_held = fates.get(&reached_volume.claim) == Some(&Fate::Stuck);
                let lost = Some(reached_volume.volume).filter(|_| is_held && !reached_volume.stays);
                radius.lost_when_released.extend(lost);
            } else if reached_volume.stays {
                radius.retained_volumes.push(reached_volume.volume.name);
            } else {
                radius.lost_volumes.push(reached_volume.volume);
            }
        }
        self.list_items(fates, leaves, &mut radius);
        // Objects were visited in the order of their UIDs, which means nothing to users.
        for lines in [&mut radius.recreated, &mut radius.retained_volumes, &mut radius.assumed_living] {
            lines.sort();
        }
        radius
            .lost_volumes
            .sort_by(|left, right| (&left.claim, &left.name).cmp(&(&right.claim, &right.name)));
        radius.lost_when_released.sort_by(|left, right| left.claim.cmp(&right.claim));
        radius.stuck.sort();
        radius.stuck.dedup();
        radius
    }

    /// Explains why an object is deleted later, or is stuck.
    fn remark(
        &mut self,
        view: &NodeView,
        (fate, refused): (Fate, Option<&str>),
        will_end: bool,
        progress: &Progress,
        stuck: &mut Vec<String>,
    ) {
        let Some(key) = &view.key else { return };
        let title = format!("{}/{}", view.kind, view.name);
        let mut remarks = Vec::new();
        if let Some(why) = self.holds.stuck(view, progress) {
            remarks.push(format!("stuck already: {why}"));
            stuck.push(format!("{title} is stuck already: {why}"));
        } else if let Some(why) = self.holds.silent_kubelet(view, progress).filter(|_| fate == Fate::Stuck) {
            remarks.push(format!("stuck: {why}"));
            stuck.push(format!("Pods wait: {why}"));
        }
        if let Some(why) = refused {
            remarks.push(format!("stuck: {why}"));
            let is_deletion = self.holds.refused(view).as_deref() == Some(why);
            let what = if is_deletion { "deleted" } else { "released from their owner" };
            stuck.push(format!("{} cannot be {what}: {why}", text::plural(2, &view.kind)));
        }
        for finalizer in self.holds.foreign(key) {
            if let Some(controller) = self.holds.releasing(finalizer, key) {
                remarks.push(format!("later, when {controller} removes {finalizer}"));
            } else if fate == Fate::Stuck {
                let why = format!("no working controller was found that removes {finalizer}");
                stuck.push(format!("{title}: {why}"));
                remarks.push(format!("stuck: {why}"));
            }
        }
        let users = self.resource_of(key) == ("", "persistentvolumeclaims") && fate == Fate::Stuck;
        let users = if users { self.holds.staying_users(key, progress) } else { Vec::new() };
        if !users.is_empty() {
            let names: Vec<String> = users.into_iter().map(|user| user.name).collect();
            let why = format!("in use by {} {}", text::plural(names.len(), "Pod"), text::some_of(&names, 3));
            stuck.push(format!("{title} is {why}"));
            remarks.push(format!("stuck: {why}"));
        }
        let is_volume = self.resource_of(key) == ("", "persistentvolumes") && fate == Fate::Stuck;
        if let Some(claim) = is_volume.then(|| self.holds.staying_claim(key, progress)).flatten() {
            stuck.push(format!("{title} is bound to PersistentVolumeClaim {claim}"));
            remarks.push(format!("stuck: bound to PersistentVolumeClaim {claim}"));
        }
        if let Some(why) = self.holds.kept_storage(&view.uid).filter(|_| fate == Fate::Stuck) {
            remarks.push(format!("stuck: its storage is not deleted: {why}"));
            stuck.push(format!("{title} stays with its storage: {why}"));
        }
        remarks.extend(self.container_remark(&view.uid, &title, fate, stuck));
        if remarks.is_empty() {
            remarks.push(self.waits(&view.uid, fate, will_end, progress));
        }
        self.remarks.entry(view.uid.clone()).or_default().extend(remarks);
    }

    fn container_remark(
        &self,
        uid: &Uid,
        title: &str,
        fate: Fate,
        stuck: &mut Vec<String>,
    ) -> Option<String> {
        let container = self.containers.get(uid)?;
        if let Some(why) = &container.unlisted {
            stuck.push(format!("{title}: {why}, so its remaining objects are unknown"));
            return Some(format!("stuck: {why}"));
        }
        match fate {
            _ if container.is_empty() => None,
            Fate::Stuck => Some("stuck with its contents".to_owned()),
            _ => Some("later, when its contents are gone".to_owned()),
        }
    }

    /// Explains why an object waits although it has no finalizers or causes of its own.
    fn waits(&self, uid: &Uid, fate: Fate, will_end: bool, progress: &Progress) -> String {
        if fate == Fate::Stuck {
            return "stuck: it waits for a dependent that is stuck".to_owned();
        }
        let when = if will_end { LATER } else { LATER_BY_HAND };
        let reasons = self.roots.get(uid).map_or(&[][..], |root| &root.reasons);
        let what = reasons.iter().find_map(|reason| match reason {
            DeletionCause::Asked => None,
            DeletionCause::Gone(other) => {
                survey_view(self.survey, other).map(|view| format!("{}/{} is gone", view.kind, view.name))
            }
            DeletionCause::Contained { container, .. } => {
                let container =
                    self.containers.get(container).filter(|_| !self.is_due(reason, progress) || will_end)?;
                Some(format!("the pods of namespace {} are gone", container.key.name))
            }
        });
        format!("{when}: when {}", what.unwrap_or_else(|| "its owner is released".to_owned()))
    }

    /// Returns the objects that were not rehearsed, each with its fate.
    fn leaves(&self) -> Vec<FatedLeaf> {
        let at_once = self.holds.at_once();
        let mut leaves: Vec<FatedLeaf> =
            at_once.map(|uid| FatedLeaf { uid: uid.clone(), fate: Fate::Deleted, follows: None }).collect();
        for container in self.containers.values() {
            let Some(horizon) = container.followed.get() else { continue };
            let fate = if horizon == Horizon::AtOnce { Fate::Deleted } else { Fate::Later };
            let when = if horizon == Horizon::InTime { LATER } else { LATER_BY_HAND };
            let remark: Option<Arc<str>> = (fate == Fate::Later).then(|| {
                format!("{when}: when the pods of namespace {} are gone", container.key.name).into()
            });
            // A definition may have deleted it already.
            let followers = container.followers.iter().filter(|leaf| !self.holds.is_at_once(&leaf.uid));
            leaves.extend(followers.map(|leaf| FatedLeaf {
                uid: leaf.uid.clone(),
                fate,
                follows: remark.clone(),
            }));
        }
        leaves
    }

    /// Collects the objects that are recreated: those whose controlling owner stays, and those that tools track.
    fn recreated(&mut self, uid: &Uid, fates: &Fates, recreated: &mut Vec<String>) {
        let is_leaf = !fates.contains_key(uid);
        let owner = self.controller_of(uid);
        let is_controlled = owner.is_some();
        let living_owner = owner.filter(|owner| {
            let owner = &owner.coordinates.uid;
            let is_going = fates.get(owner).is_some_and(|fate| *fate != Fate::Released);
            !is_going && survey_view(self.survey, owner).is_some_and(|view| !view.deletion.deleting)
        });
        let living_owner = living_owner.filter(|owner| {
            !is_cron_job(&owner.coordinates) && !self.is_finished_job(&owner.coordinates, uid)
        });
        // Dependents of an owner that a tool tracks are recreated by the owner.
        let is_root = is_leaf || self.roots.contains_key(uid);
        // On an object with a controller, the tool's mark is only a copy of the controller's.
        let recreator = if is_root && !is_controlled { self.survey.engine.recreator_of(uid) } else { None };
        let Some(view) = survey_view(self.survey, uid) else { return };
        let kubernetes = self.kubernetes_recreates(&view);
        let by_owner = living_owner.and_then(|owner| self.owner_recreates(&view, &owner.coordinates));
        // Objects that nothing recreates need no remark.
        for remark in by_owner.into_iter().chain(recreator.map(Recreator::message)).chain(kubernetes) {
            recreated.push(format!("{}/{}: {remark}", view.kind, view.name));
            self.remarks.entry(uid.clone()).or_default().push(remark);
        }
    }

    /// Describes how a living owner reacts to the deletion of a dependent. The behaviour of controllers outside Kubernetes is
    /// unknown.
    pub(super) fn owner_recreates(&self, view: &NodeView, owner: &Coordinates) -> Option<String> {
        let key = view.key.as_ref()?;
        let is_current = match (self.resource_of(key), &*owner.kind, is_of_kubernetes(owner)) {
            // Only the newest is recreated; the others are the history for rollbacks.
            (("apps", "replicasets"), "Deployment", true) => self.is_current_set(key, owner),
            (("apps", "controllerrevisions"), "StatefulSet" | "DaemonSet", true) => {
                self.is_current_revision(key, owner)
            }
            (("discovery.k8s.io", "endpointslices"), "Service", true) => {
                let services = GroupResource::new("", "services");
                let service = self.facts.present(&services, &key.namespace, &owner.name);
                service.filter(|service| service.value()["spec"]["selector"].is_object()).map(|_| true)
            }
            (resource, kind, true) => RECREATING.contains(&(kind, resource)).then_some(true),
            _ => None,
        };
        Some(match is_current {
            Some(true) => format!("{} {} will recreate this", owner.kind, owner.name),
            Some(false) => {
                format!("a revision of {} {} that cannot be rolled back to any more", owner.kind, owner.name)
            }
            None => format!("{} {} may recreate this", owner.kind, owner.name),
        })
    }

    /// Reports whether a ReplicaSet is the current revision of its Deployment; `None` if that cannot be read.
    fn is_current_set(&self, key: &ObjectKey, owner: &Coordinates) -> Option<bool> {
        const REVISION: &str = "deployment.kubernetes.io/revision";
        let read = |resource: &str, name: &str| {
            self.facts.present(&GroupResource::new("apps", resource), &key.namespace, name)
        };
        let (set, deployment) = (read("replicasets", &key.name), read("deployments", &owner.name));
        Some(set?.annotation(REVISION) == deployment?.annotation(REVISION))
    }

    /// Reports whether a ControllerRevision is the current one of its StatefulSet or DaemonSet; `None` if that cannot be read.
    fn is_current_revision(&self, key: &ObjectKey, owner: &Coordinates) -> Option<bool> {
        let revisions = GroupResource::new("apps", "controllerrevisions");
        let number = |revision: &crate::Object| revision.number("/revision").unwrap_or_default();
        let is_of_owner = |revision: &&crate::Object| {
            let owner = owner.uid.to_string();
            revision.items("/metadata/ownerReferences").any(|reference| reference["uid"] == *owner)
        };
        let all = self.facts.all(&revisions, &key.namespace);
        let newest = all.iter().filter(is_of_owner).max_by_key(|revision| number(revision));
        newest.map(|newest| newest.name() == &*key.name)
    }

    /// Returns the controlling owner of an object.
    pub(super) fn controller_of(&self, uid: &Uid) -> Option<OwnerReference> {
        self.survey.engine.owners_of(uid).into_iter().find(|owner| owner.controller == Some(true))
    }

    /// Reports whether the owner of an object is a finished Job, which creates no more pods.
    pub(super) fn is_finished_job(&self, owner: &Coordinates, dependent: &Uid) -> bool {
        if !is_of_batch(owner, "Job") {
            return false;
        }
        let Some((key, _)) = self.survey.engine.state_of(dependent) else { return false };
        let jobs = GroupResource::new("batch", "jobs");
        let job = self.facts.present(&jobs, &key.namespace, &owner.name);
        job.is_some_and(|job| {
            job.uid() == owner.uid.to_string() && (job.is_true("Complete") || job.is_true("Failed"))
        })
    }

    /// Returns the admission webhooks and policies that may still refuse some of these deletions, each with the number of objects.
    fn deciding_webhooks<'u>(&self, going: impl Iterator<Item = &'u Uid>) -> (Vec<String>, Vec<Place>) {
        let admission = self.holds.admission();
        let mut deciding: BTreeMap<String, (usize, Decider<'_, '_>)> = BTreeMap::new();
        let mut services: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
        let mut undecided = Vec::new();
        for uid in going {
            let Some((key, deletion)) = self.survey.engine.state_of(uid) else { continue };
            if self.resource_of(&key) == ("", "services") {
                services.insert((Arc::clone(&key.namespace), Arc::clone(&key.name)));
            }
            let is_free = admission.is_free(Operation::Delete, key.resource);
            let is_refused = || admission.refuses(&key).is_some() || self.facts.refused(uid).is_some();
            if deletion.deleting || is_free || is_refused() {
                continue;
            }
            let deciders = admission.decides(&key);
            if !deciders.is_empty() {
                let kind = item_kind(self.survey, &key);
                undecided.push(Place {
                    api_version: kind.api_version,
                    kind: kind.kind,
                    resource: kind.resource,
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    uid: uid.to_string(),
                });
            }
            for decider in deciders {
                deciding.entry(decider.title()).or_insert((0, decider)).0 += 1;
            }
        }
        let line = |(title, (number, decider)): (String, (usize, Decider<'_, '_>))| {
            let service = match decider {
                Decider::Webhook(webhook) => webhook.service().filter(|_| !webhook.may_be_ignored()),
                Decider::Policy(_) => None,
            };
            let gone =
                service.filter(|(namespace, name)| services.contains(&((*namespace).into(), (*name).into())));
            let remark = gone.map_or(String::new(), |(namespace, name)| {
                format!(
                    "; its Service {namespace}/{name} is deleted too, and what is still left by then may get stuck"
                )
            });
            format!("{title}, about {}{remark}", text::count(number, "object"))
        };
        (deciding.into_iter().map(line).collect(), undecided)
    }

    /// Returns the Kubernetes controller that recreates an object.
    fn kubernetes_recreates(&self, view: &NodeView) -> Option<String> {
        let is_asked =
            self.roots.get(&view.uid).is_some_and(|root| root.reasons.contains(&DeletionCause::Asked));
        let key = view.key.as_ref().filter(|_| is_asked)?;
        let who = match (self.resource_of(key), &*key.name) {
            (("", "serviceaccounts"), "default") => "the service account controller",
            (("", "configmaps"), "kube-root-ca.crt") => "the publisher of the root certificate",
            (("", "endpoints"), name) => {
                let services = GroupResource::new("", "services");
                let service = self.facts.present(&services, &key.namespace, name)?;
                let is_selecting =
                    service.value()["spec"]["selector"].is_object() && !service.is_terminating();
                is_selecting.then_some("the endpoints controller")?
            }
            (("apiregistration.k8s.io", "apiservices"), name) => {
                let services = GroupResource::new("apiregistration.k8s.io", "apiservices");
                let service = self.facts.present(&services, "", name)?;
                let is_local = service.value()["spec"]["service"].is_null();
                is_local.then_some("kube-apiserver, which serves this API itself,")?
            }
            _ => return None,
        };
        Some(format!("{who} will recreate this"))
    }

    fn list_items(&mut self, fates: Fates, leaves: Vec<FatedLeaf>, radius: &mut BlastRadius) {
        let mut kinds: BTreeMap<ResourceId, Arc<ItemKind>> = BTreeMap::new();
        radius.items.reserve_exact(fates.len() + leaves.len());
        let rehearsed = fates.into_iter().map(|(uid, fate)| (uid, fate, None));
        let leaves = leaves.into_iter().map(|leaf| (leaf.uid, leaf.fate, leaf.follows));
        for (uid, fate, follows) in rehearsed.chain(leaves) {
            let Some((key, deletion)) = self.survey.engine.state_of(&uid) else { continue };
            let kind = kinds.entry(key.resource).or_insert_with(|| Arc::new(item_kind(self.survey, &key)));
            let mut remarks = self.remarks.remove(&uid).unwrap_or_default();
            if let Some(follows) = follows {
                remarks.insert(0, follows.to_string());
            }
            radius.items.push(Item {
                kind: Arc::clone(kind),
                namespace: key.namespace,
                name: key.name,
                is_terminating: deletion.deleting,
                uid,
                fate,
                remarks,
            });
        }
        radius.items.sort_by(|left, right| left.order().cmp(&right.order()));
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let places: HashMap<&Uid, u32, FixedState> =
            radius.items.iter().enumerate().map(|(place, item)| (&item.uid, number(place))).collect();
        for (place, item) in radius.items.iter().enumerate() {
            for owner in self.survey.engine.owners_of(&item.uid) {
                let found = places.get(&owner.coordinates.uid);
                radius.edges.extend(found.map(|owner| (*owner, number(place))));
            }
        }
        radius.edges.sort_unstable();
        radius.edges.dedup();
    }
}

/// A leaf with its fate.
struct FatedLeaf {
    uid: Uid,
    fate: Fate,
    /// Reason for a later deletion, if it is later.
    follows: Option<Arc<str>>,
}

fn item_kind(survey: &Survey, key: &ObjectKey) -> ItemKind {
    survey.resource(key).map_or_else(ItemKind::default, |resource| ItemKind {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        resource: resource.name.to_string(),
    })
}

impl Item {
    fn order(&self) -> (Fate, &str, &str, &str, &Uid) {
        (self.fate, &self.kind.kind, &self.namespace, &self.name, &self.uid)
    }
}

fn is_of_batch(owner: &Coordinates, kind: &str) -> bool {
    *owner.kind == *kind && owner.api_version.split('/').next() == Some("batch")
}

/// Built-in kinds whose controllers recreate their dependents.
const RECREATING: [(&str, (&str, &str)); 7] = [
    ("DaemonSet", ("", "pods")),
    ("Job", ("", "pods")),
    ("ReplicaSet", ("", "pods")),
    ("ReplicationController", ("", "pods")),
    ("StatefulSet", ("", "pods")),
    ("Service", ("", "endpoints")),
    ("Endpoints", ("discovery.k8s.io", "endpointslices")),
];

/// Reports whether an owner belongs to an API group of Kubernetes itself.
fn is_of_kubernetes(owner: &Coordinates) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    matches!(group, "" | "apps" | "batch" | "autoscaling")
}

/// Reports whether an owner is a CronJob, which creates Jobs on schedule and does not replace deleted ones.
fn is_cron_job(owner: &Coordinates) -> bool {
    is_of_batch(owner, "CronJob")
}
