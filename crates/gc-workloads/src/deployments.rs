//! Deployments: which ReplicaSet is the new one, and how the others are scaled down in its favour.

mod arithmetic;
mod progress;
mod revisions;
mod rolling;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::claims::ClaimedObjects;
use crate::kinds::{Key, Kind};
use crate::object::{Object, int};
use crate::plan::{FailedAction, FailureReason, Note, Plan, Request, View};
use crate::selector;
use crate::store::Change;
pub(crate) use arithmetic::scaled;
use arithmetic::{max_surge, replicas_of};

pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Label that distinguishes the pods of a Deployment's ReplicaSets.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";

/// A ReplicaSet, with what this plan changes.
#[derive(Clone, Debug)]
struct Set {
    /// The object, unless this plan creates it.
    object: Option<Arc<Object>>,
    value: Value,
    created: i64,
}

impl Set {
    fn of(object: &Arc<Object>) -> Self {
        Self { object: Some(Arc::clone(object)), value: object.value.clone(), created: object.created }
    }

    fn name(&self) -> &str {
        crate::object::text(&self.value["metadata"]["name"])
    }

    fn wanted(&self) -> i64 {
        replicas_of(&self.value)
    }

    /// Returns the number of replicas before this plan.
    fn wanted_before(&self) -> i64 {
        self.object.as_ref().map_or_else(|| self.wanted(), |object| replicas_of(&object.value))
    }

    fn counted(&self, field: &str) -> i64 {
        int(&self.value["status"][field], 0)
    }

    fn terminating(&self) -> Option<i64> {
        self.value["status"]["terminatingReplicas"].as_i64()
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["annotations"][name].as_str()
    }

    fn number(&self, annotation: &str) -> Option<i64> {
        self.annotation(annotation)?.parse().ok()
    }
}

/// A Deployment in a reconciliation: its observed state, and the changes of this plan so far.
struct Rollout<'a> {
    view: &'a View<'a>,
    deployment: &'a Arc<Object>,
    /// The Deployment with the changes of this plan.
    value: Value,
    new: Option<Set>,
    old: Vec<Set>,
    /// True if this plan shows in the status that the Deployment was paused or resumed.
    shows_pause: bool,
    plan: Plan,
}

/// Adds the Deployments to reconcile after a change.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Deployment => keys.push(object.key.clone()),
        Kind::ReplicaSet => crate::replicasets::wake_owners(view, change, Kind::Deployment, keys),
        // A Deployment with strategy Recreate waits for the last of the old pods.
        Kind::Pod if change.after.is_none() => {
            let set = view.store.controller_of(object).filter(|set| set.key.kind == Kind::ReplicaSet);
            let deployment = set.and_then(|set| view.store.controller_of(set));
            let recreates = |deployment: &&Arc<Object>| deployment.spec()["strategy"]["type"] == "Recreate";
            keys.extend(deployment.filter(recreates).map(|deployment| deployment.key.clone()));
        }
        _ => {}
    }
}

/// Plans one reconciliation.
pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let Some(deployment) = view.store.get(key) else { return Plan::default() };
    if selector::selects_all(&deployment.spec()["selector"]) {
        return selecting_all(deployment);
    }
    let claimed = ClaimedObjects::by_selector(view.store, deployment, Kind::ReplicaSet);
    if let Some(plan) = claimed.settle(deployment) {
        return plan;
    }
    let mut rollout = Rollout::new(view, deployment, &claimed.mine);
    if let Some(failure) = view.failure
        && failure.action == FailedAction::Create(Kind::ReplicaSet)
        && rollout.new_set_refused(failure.reason, &failure.message)
    {
        return rollout.plan;
    }
    rollout.run();
    rollout.plan
}

/// Plans for a Deployment that selects every pod in its namespace, which is left alone.
fn selecting_all(deployment: &Arc<Object>) -> Plan {
    let mut plan = Plan::default();
    let message = "This deployment is selecting all pods. A non-empty selector is required.";
    plan.notes.push(Note::warning(deployment, "SelectingAll", message));
    if int(&deployment.status()["observedGeneration"], 0) < deployment.generation() {
        let mut value = deployment.value.clone();
        value["status"]["observedGeneration"] = deployment.generation().into();
        plan.then(Request::update_status(&deployment.key, value, "status"));
    }
    plan
}

impl<'a> Rollout<'a> {
    fn new(view: &'a View<'a>, deployment: &'a Arc<Object>, sets: &[Arc<Object>]) -> Self {
        let mut sorted: Vec<Set> = sets.iter().map(Set::of).collect();
        sorted.sort_by(|a, b| (a.created, a.name()).cmp(&(b.created, b.name())));
        let template = &deployment.spec()["template"];
        let position =
            sorted.iter().position(|set| revisions::same_template(&set.value["spec"]["template"], template));
        let new = position.map(|position| sorted.remove(position));
        Self {
            view,
            deployment,
            value: deployment.value.clone(),
            new,
            old: sorted,
            shows_pause: false,
            plan: Plan::default(),
        }
    }

    fn run(&mut self) {
        if self.deployment.deleting {
            return self.show_status();
        }
        self.note_pause();
        if self.value["spec"]["paused"] == true || self.is_scaling() {
            return self.synchronize();
        }
        if self.value["spec"]["strategy"]["type"] == "Recreate" { self.recreate() } else { self.roll() }
    }

    /// Returns old and new sets; the new one is last.
    fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    fn sum(&self, count: impl Fn(&Set) -> i64) -> i64 {
        self.all().map(count).sum()
    }

    fn wanted(&self) -> i64 {
        replicas_of(&self.value)
    }

    /// Sends the status, and the Deployment's annotations as changed by this plan.
    fn send_status(&mut self) {
        let request = Request::update_status(&self.deployment.key, self.value.clone(), "status");
        self.plan.then(request);
    }

    /// Reports whether `replicas` has changed since the sets were sized.
    fn is_scaling(&mut self) -> bool {
        self.find_new_set();
        let wanted = self.wanted();
        self.all()
            .filter(|set| set.wanted() > 0)
            .any(|set| set.number(DESIRED_REPLICAS).is_some_and(|n| n != wanted))
    }

    /// Sizes the sets of a Deployment that is paused or was scaled, without rolling.
    fn synchronize(&mut self) {
        self.find_new_set();
        self.scale();
        if self.value["spec"]["paused"] == true {
            self.clean_up();
        }
        self.show_status();
    }

    /// Resizes a set, and returns whether the size changed.
    fn resize(&mut self, set: &mut Set, size: i64) -> bool {
        let (wanted, before) = (self.wanted(), set.wanted());
        let most = wanted + max_surge(&self.value);
        let annotated =
            set.number(DESIRED_REPLICAS) == Some(wanted) && set.number(MAX_REPLICAS) == Some(most);
        if before == size && annotated {
            return false;
        }
        set.value["spec"]["replicas"] = size.into();
        annotate_replicas(&mut set.value, wanted, most);
        let Some(object) = &set.object else { return before != size };
        let direction = if size > before { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {} from {before} to {size}", set.name());
        let note = (before != size).then(|| Note::normal(self.deployment, "ScalingReplicaSet", message));
        let request = Request::update(&object.key, set.value.clone(), "scale").noting(note, None);
        self.plan.then(request);
        before != size
    }

    fn resize_new(&mut self, size: i64) -> bool {
        let Some(mut set) = self.new.take() else { return false };
        let changed = set.wanted() != size && self.resize(&mut set, size);
        self.new = Some(set);
        changed
    }

    fn resize_old(&mut self, index: usize, size: i64) -> bool {
        let mut set = self.old[index].clone();
        let changed = set.wanted() != size && self.resize(&mut set, size);
        self.old[index] = set;
        changed
    }
}

/// Annotates a set with the wanted and the maximum number of its Deployment's replicas.
fn annotate_replicas(value: &mut Value, wanted: i64, most: i64) {
    if !value["metadata"]["annotations"].is_object() {
        value["metadata"]["annotations"] = json!({});
    }
    value["metadata"]["annotations"][DESIRED_REPLICAS] = wanted.to_string().into();
    value["metadata"]["annotations"][MAX_REPLICAS] = most.to_string().into();
}

impl Rollout<'_> {
    /// Handles a new set that could not be created, and returns whether that ends the plan.
    fn new_set_refused(&mut self, reason: FailureReason, message: &str) -> bool {
        if self.new.is_some() {
            return false;
        }
        if reason == FailureReason::AlreadyExists {
            // Another object has this name; the next hash includes the collision count.
            let count = int(&self.value["status"]["collisionCount"], 0);
            self.value["status"]["collisionCount"] = (count + 1).into();
            self.send_status();
            return true;
        }
        let name = revisions::set_name(&self.value);
        let text = format!("Failed to create new replica set \"{name}\": {message}");
        if progress::has_deadline(&self.value) {
            let failed = self.condition("Progressing", "False", "ReplicaSetCreateError", &text);
            progress::set_condition(&mut self.value["status"], failed);
            if self.value["status"] != *self.deployment.status() {
                self.send_status();
            }
        }
        self.plan.notes.push(Note::warning(self.deployment, "ReplicaSetCreateError", text));
        self.plan.still_failing = true;
        true
    }
}
