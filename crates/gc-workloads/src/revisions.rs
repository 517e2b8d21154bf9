//! ControllerRevisions: the history of a StatefulSet's or DaemonSet's template.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::hash::{fnv32, pod_template_hash, safe_encode};
use crate::kinds::Kind;
use crate::object::{Object, int, map};
use crate::plan::{FailedAction, FailureReason, Plan, Request, View};
use crate::store::Store;

/// The label that names a revision: its hash on a DaemonSet's pods, its name on a StatefulSet's.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";
/// The label of a StatefulSet's revision itself.
const OWN_HASH: &str = "controller.kubernetes.io/hash";
/// The longest name of an owner that the name of its revisions begins with.
const LONGEST_PREFIX: usize = 223;

/// The revisions of an owner, the oldest first.
pub(crate) fn of(store: &Store, owner: &Object) -> Vec<Arc<Object>> {
    let mut all: Vec<Arc<Object>> =
        store.controlled_by(&owner.uid, Kind::ControllerRevision).cloned().collect();
    all.sort_by_key(|revision| (number(revision), revision.created, Arc::clone(&revision.key.name)));
    all
}

/// The number of a revision.
pub(crate) fn number(revision: &Object) -> i64 {
    int(&revision.value["revision"], 0)
}

/// What a revision keeps of an owner: its template, as a patch.
fn data(owner: &Object) -> Value {
    let mut template = map(&owner.spec()["template"]);
    template.insert("$patch".into(), "replace".into());
    json!({"spec": {"template": template}})
}

/// The template that a revision keeps.
pub(crate) fn template(revision: &Object) -> Value {
    let mut template = map(&revision.value["data"]["spec"]["template"]);
    template.remove("$patch");
    template.into()
}

/// As Go writes JSON: keys sorted, and three characters escaped.
fn go_json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The hash of the present template.
fn hash(owner: &Object, data: &Value) -> String {
    let collisions = owner.status()["collisionCount"].as_i64();
    if owner.key.kind == Kind::DaemonSet {
        return pod_template_hash(&owner.spec()["template"], collisions);
    }
    let collisions = collisions.unwrap_or_default().to_string();
    safe_encode(fnv32(&[go_json(data).as_bytes(), collisions.as_bytes()]))
}

/// The revision of the present template: known, or to be written by the plan first.
pub(crate) fn current(owner: &Object, known: &[Arc<Object>]) -> Result<Arc<Object>, Plan> {
    let data = data(owner);
    let next = known.last().map_or(1, |last| number(last) + 1);
    let mut plan = Plan::default();
    if let Some(same) = known.iter().rev().find(|revision| revision.value["data"] == data) {
        if known.last().is_some_and(|last| last.uid == same.uid) {
            return Ok(Arc::clone(same));
        }
        // Rolled back: the old revision is the newest now.
        let mut value = same.value.clone();
        value["revision"] = next.into();
        plan.then(Request::update(&same.key, value, "rolled-back"));
        return Err(plan);
    }
    let hash = hash(owner, &data);
    let name = owner.name().get(..LONGEST_PREFIX).unwrap_or(owner.name());
    let mut labels = map(&owner.spec()["template"]["metadata"]["labels"]);
    let label = if owner.key.kind == Kind::DaemonSet { REVISION_HASH } else { OWN_HASH };
    labels.insert(label.into(), hash.clone().into());
    let mut metadata = json!({
        "name": format!("{name}-{hash}"), "namespace": owner.namespace(), "labels": labels,
        "ownerReferences": [owner.controller_reference()],
    });
    let annotations = &owner.value["metadata"]["annotations"];
    if annotations.is_object() {
        metadata["annotations"] = annotations.clone();
    }
    let revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": data, "revision": next,
    });
    plan.then(Request::create(Kind::ControllerRevision, owner.namespace(), revision, "new-template"));
    Err(plan)
}

/// What follows where the new revision's name is taken by another object: the next hash takes the collision into account.
pub(crate) fn unless_taken(view: &View<'_>, owner: &Object, plan: Plan) -> Plan {
    let taken = view.failure.is_some_and(|failure| {
        failure.action == FailedAction::Create(Kind::ControllerRevision)
            && failure.reason == FailureReason::AlreadyExists
    });
    if !taken {
        return plan;
    }
    let mut status = map(owner.status());
    let count = int(&owner.status()["collisionCount"], 0) + 1;
    status.insert("collisionCount".into(), count.into());
    let mut plan = Plan::default();
    plan.then(Request::update_status(&owner.key, owner.with_status(status.into()), "collision"));
    plan
}

/// Deletes the oldest revisions beyond the limit that are in no use.
pub(crate) fn clean_up(
    owner: &Object,
    known: &[Arc<Object>],
    used: impl Fn(&Object) -> bool,
    plan: &mut Plan,
) {
    let limit = usize::try_from(int(&owner.spec()["revisionHistoryLimit"], 10)).unwrap_or_default();
    let unused: Vec<&Arc<Object>> = known.iter().filter(|revision| !used(revision)).collect();
    let surplus = unused.len().saturating_sub(limit);
    let doomed = unused.into_iter().take(surplus);
    plan.together(doomed.map(|revision| Request::delete(revision, "revision-history-limit")).collect());
}
