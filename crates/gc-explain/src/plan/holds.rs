//! Reasons other than dependents that keep a terminating object.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use gc_ownership::{NodeView, Progress};
use gc_types::{FixedState, ObjectKey, Uid};
use hashbrown::HashSet;

use super::container::Horizon;
use super::planner::survey_view;
use crate::admission::{Admission, Operation};
use crate::catalog::GroupResource;
use crate::facts::{Facts, Knowledge};
use crate::finalizers::{self, Controller};
use crate::stuck::{self, Code};
use crate::survey::Survey;

/// Finalizers that Kubernetes removes by itself as soon as their condition is met.
const SELF_RELEASING: [&str; 6] = [
    "batch.kubernetes.io/job-tracking",
    "customresourcecleanup.apiextensions.k8s.io",
    "foregroundDeletion",
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
    "orphan",
];
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Time that a plan gives a working controller to remove its finalizer, before expecting it to stay.
const CONTROLLER_PATIENCE_MILLISECONDS: i64 = 600_000;

/// A pod that uses a claim.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) uid: Uid,
    pub(super) name: String,
}

pub(super) struct Holds<'a> {
    survey: &'a Survey,
    facts: &'a Facts,
    /// Objects that are stuck for reasons that no plan changes; computed only if something is terminating already.
    stuck: OnceCell<BTreeMap<Uid, String>>,
    /// Leaves that are gone before anything else happens. A hash set, because all dependents of a large namespace are
    /// queried here several times, and a hash lookup is several times as fast as one in a sorted list.
    at_once: HashSet<Uid, FixedState>,
    /// Nodes that the plan deletes, by the UID of each pod on them.
    nodes: BTreeMap<Uid, Uid>,
    /// Volumes whose storage is never deleted, with the reason.
    kept_storage: BTreeMap<Uid, String>,
    /// Nodes whose kubelet does not report, with the reason.
    silent_nodes: OnceCell<BTreeMap<String, String>>,
    users: RefCell<BTreeMap<ObjectKey, Rc<Vec<User>>>>,
    controllers: RefCell<BTreeMap<String, Rc<Vec<Controller>>>>,
    admission: Admission<'a>,
}

impl<'a> Holds<'a> {
    pub(super) fn new(survey: &'a Survey, facts: &'a Facts) -> Self {
        Self {
            survey,
            facts,
            stuck: OnceCell::new(),
            at_once: HashSet::default(),
            nodes: BTreeMap::new(),
            kept_storage: BTreeMap::new(),
            silent_nodes: OnceCell::new(),
            users: RefCell::default(),
            controllers: RefCell::default(),
            admission: Admission::new(survey, facts),
        }
    }

    /// Records a leaf that is gone before anything else happens.
    pub(super) fn ends_at_once(&mut self, uid: Uid) {
        self.at_once.insert(uid);
    }

    /// Returns the leaves that are gone before anything else happens, in no particular order; callers sort them for display.
    pub(super) fn at_once(&self) -> impl Iterator<Item = &Uid> {
        self.at_once.iter()
    }

    pub(super) fn is_at_once(&self, uid: &Uid) -> bool {
        self.at_once.contains(uid)
    }

    /// Records that the plan deletes the node of a pod.
    pub(super) fn on_node(&mut self, pod: Uid, node: Uid) {
        self.nodes.insert(pod, node);
    }

    /// Records that nothing deletes the storage of a volume, so the volume stays with it.
    pub(super) fn keeps_storage(&mut self, volume: Uid, why: String) {
        self.kept_storage.insert(volume, why);
    }

    /// Explains why the storage of a volume is not deleted.
    pub(super) fn kept_storage(&self, volume: &Uid) -> Option<&str> {
        self.kept_storage.get(volume).map(String::as_str)
    }

    /// Explains why an object is stuck already, unless it only waits for a controller.
    pub(super) fn stuck(&self, view: &NodeView, progress: &Progress) -> Option<&str> {
        if !view.deletion.deleting || self.is_node_gone(view, progress) {
            return None;
        }
        let stuck = self.stuck.get_or_init(|| self.all_stuck());
        stuck.get(&view.uid).map(String::as_str)
    }

    fn is_node_gone(&self, pod: &NodeView, progress: &Progress) -> bool {
        self.nodes.get(&pod.uid).is_some_and(|node| progress.gone.contains(node))
    }

    /// Explains why no kubelet confirms the end of a pod.
    pub(super) fn silent_kubelet(&self, view: &NodeView, progress: &Progress) -> Option<String> {
        let pods = GroupResource::new("", "pods");
        let key = view.key.as_ref()?;
        let is_pod = self.survey.resource(key).is_some_and(|resource| resource.name == pods);
        if !is_pod || self.is_node_gone(view, progress) {
            return None;
        }
        let silent = self.silent_nodes.get_or_init(|| self.find_silent_nodes());
        if silent.is_empty() || self.facts.list(&pods, &key.namespace).is_none() {
            return None;
        }
        let pod = self.facts.present(&pods, &key.namespace, &key.name)?;
        let has_ended = matches!(pod.text("/status/phase"), "Succeeded" | "Failed");
        let node = pod.text("/spec/nodeName");
        let reason = silent.get(node).filter(|_| !has_ended)?;
        Some(format!("the kubelet on node {node} is not ready ({reason})"))
    }

    /// Returns the admission webhooks that are called for deletions.
    pub(super) const fn admission(&self) -> &Admission<'a> {
        &self.admission
    }

    /// Explains why no request to delete an object can succeed. Objects that are terminating already need none.
    pub(super) fn refused(&self, view: &NodeView) -> Option<String> {
        let key = view.key.as_ref().filter(|_| !view.deletion.deleting)?;
        if self.admission.is_free(Operation::Delete, key.resource) {
            return None;
        }
        self.admission.refuses(key).or_else(|| self.facts.refused(&view.uid).map(str::to_owned))
    }

    /// Explains why no request to remove owner references from an object can succeed.
    pub(super) fn unreleasable(&self, key: &ObjectKey) -> Option<String> {
        if self.admission.is_free(Operation::Update, key.resource) {
            return None;
        }
        self.admission.refusal(Operation::Update, key).map(|refusal| refusal.why)
    }

    /// Returns the nodes with a silent kubelet. A node without the condition is not counted, because no controller monitors it.
    fn find_silent_nodes(&self) -> BTreeMap<String, String> {
        let nodes = self.facts.all(&GroupResource::new("", "nodes"), "").iter();
        let silent = nodes.filter(|node| !node.is_true("Ready")).filter_map(|node| {
            let reason = node.condition("Ready")?["reason"].as_str().unwrap_or_default();
            Some((node.name().to_owned(), reason.to_owned()))
        });
        silent.collect()
    }

    fn all_stuck(&self) -> BTreeMap<Uid, String> {
        let mut stuck = BTreeMap::new();
        for row in stuck::diagnose(self.survey, self.facts).into_iter().filter(|row| row.since.is_some()) {
            // These depend on what else is deleted, and on the controllers of finalizers.
            let is_decided_here =
                matches!(row.cause.code, Code::FinalizerHeld | Code::ClaimInUse | Code::VolumeInUse);
            if is_decided_here || is_for_collector(row.cause.code) {
                continue;
            }
            let is_of_admission =
                matches!(row.cause.code, Code::AdmissionPolicyRefuses | Code::AdmissionWebhookFails);
            for (place, _) in &row.objects {
                // Objects that wait for something that admission protects are rehearsed; a namespace reports failures itself.
                if is_of_admission && place.kind != "Namespace" {
                    continue;
                }
                stuck.entry(Uid::new(&place.uid)).or_insert_with(|| row.cause.message.clone());
            }
        }
        stuck
    }

    /// Reports whether a deleted object remains for now.
    pub(super) fn is_held(
        &self,
        horizon: Horizon,
        progress: &Progress,
        uid: &Uid,
        has_finalizers: bool,
    ) -> bool {
        let Some(view) = survey_view(self.survey, uid) else { return has_finalizers };
        let waits = || {
            self.stuck(&view, progress).is_some()
                || self.silent_kubelet(&view, progress).is_some()
                || self.kept_storage.contains_key(uid)
        };
        if horizon != Horizon::InTheEnd && waits() {
            return true;
        }
        let Some(key) = view.key.filter(|_| has_finalizers) else { return has_finalizers };
        self.survey.finalizers(&key).iter().any(|finalizer| match finalizer.as_str() {
            CLAIM_PROTECTION => !self.staying_users(&key, progress).is_empty(),
            VOLUME_PROTECTION => self.staying_claim(&key, progress).is_some(),
            name if SELF_RELEASING.contains(&name) => false,
            name => match horizon {
                Horizon::AtOnce => true,
                Horizon::InTime => self.releasing(name, &key).is_none(),
                Horizon::InTheEnd => false,
            },
        })
    }

    /// Returns the finalizers of an object that Kubernetes does not remove by itself.
    pub(super) fn foreign(&self, key: &ObjectKey) -> impl Iterator<Item = &'a String> {
        let finalizers = self.survey.finalizers(key).iter();
        finalizers.filter(|finalizer| !SELF_RELEASING.contains(&finalizer.as_str()))
    }

    /// Describes the controller that is expected to remove a finalizer from an object.
    pub(super) fn releasing(&self, finalizer: &str, key: &ObjectKey) -> Option<String> {
        let controllers = Rc::clone(
            self.controllers
                .borrow_mut()
                .entry(finalizer.to_owned())
                .or_insert_with(|| Rc::new(finalizers::responsible(finalizer, &[], self.facts))),
        );
        let works = controllers.iter().find(|controller| controller.works).map(Controller::message);
        let Some(metadata) = self.survey.terminating().get(key) else {
            let known = finalizers::known_controller(finalizer).filter(|_| controllers.is_empty());
            return works.or_else(|| known.map(str::to_owned));
        };
        let waits = metadata.deleted.map_or(0, |deleted| self.facts.now().since(deleted));
        works.filter(|_| waits < CONTROLLER_PATIENCE_MILLISECONDS)
    }

    /// Returns the pods that use a claim and are not deleted.
    pub(super) fn staying_users(&self, key: &ObjectKey, progress: &Progress) -> Vec<User> {
        let known = self.users.borrow().get(key).cloned();
        let users = known.unwrap_or_else(|| {
            let claims = GroupResource::new("", "persistentvolumeclaims");
            let claim = self.facts.present(&claims, &key.namespace, &key.name);
            let users = claim.map_or_else(Vec::new, |claim| stuck::users(claim, self.facts));
            let user = |pod: &crate::Object| User { uid: Uid::new(pod.uid()), name: pod.name().to_owned() };
            let users: Rc<Vec<User>> = Rc::new(users.into_iter().map(user).collect());
            self.users.borrow_mut().insert(key.clone(), Rc::clone(&users));
            users
        });
        let is_gone = |uid: &Uid| progress.gone.contains(uid) || self.is_at_once(uid);
        users.iter().filter(|user| !is_gone(&user.uid)).cloned().collect()
    }

    /// Returns the claim that a volume is bound to, if the claim is not deleted.
    pub(super) fn staying_claim(&self, key: &ObjectKey, progress: &Progress) -> Option<String> {
        let volume = self.facts.present(&GroupResource::new("", "persistentvolumes"), "", &key.name)?;
        let (namespace, name) = (volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"));
        if volume.text("/status/phase") != "Bound" || name.is_empty() {
            return None;
        }
        let claims = GroupResource::new("", "persistentvolumeclaims");
        match self.facts.object(&claims, namespace, name)? {
            Knowledge::Present(claim) if claim.uid() != volume.text("/spec/claimRef/uid") => None,
            Knowledge::Present(claim) if progress.gone.contains(&Uid::new(claim.uid())) => None,
            Knowledge::Absent => None,
            Knowledge::Present(_) | Knowledge::Unreadable(_) => Some(format!("{namespace}/{name}")),
        }
    }
}

/// Reports whether the cause is a missing garbage collector, which a plan assumes to be running.
fn is_for_collector(code: Code) -> bool {
    matches!(code, Code::CollectorAbsent | Code::DependentNotDeleted | Code::ForegroundFinalizerApplied)
}
