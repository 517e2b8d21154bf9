//! ControllerRevisions: the history of a StatefulSet's or DaemonSet's template.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::claims::ClaimedObjects;
use crate::hash::{fnv32, pod_template_hash, safe_encode};
use crate::kinds::Kind;
use crate::object::{Object, int, map};
use crate::plan::{FailedAction, FailureReason, Plan, Request, View};
use crate::store::Store;

/// Label that identifies a revision: its hash on a DaemonSet's pods, its name on a StatefulSet's.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";
/// Label on a StatefulSet's revision itself.
const OWN_HASH: &str = "controller.kubernetes.io/hash";
/// Maximum length of an owner's name at the start of its revisions' names.
const LONGEST_PREFIX: usize = 223;

/// Returns the revisions of an owner, the oldest first.
pub(crate) fn of(store: &Store, owner: &Object) -> Vec<Arc<Object>> {
    let mut all: Vec<Arc<Object>> =
        store.controlled_by(&owner.uid, Kind::ControllerRevision).cloned().collect();
    all.sort_by_key(|revision| (number(revision), revision.created, Arc::clone(&revision.key.name)));
    all
}

/// Adopts the ownerless revisions that the owner's selector selects, such as those of an owner that was deleted with its dependents
/// orphaned and then recreated.
pub(crate) fn adopt(store: &Store, owner: &Object) -> Option<Plan> {
    let mut claimed = ClaimedObjects::by_selector(store, owner, Kind::ControllerRevision);
    if owner.key.kind == Kind::StatefulSet {
        claimed.released.clear();
    }
    claimed.settle(owner)
}

/// Returns the number of a revision.
pub(crate) fn number(revision: &Object) -> i64 {
    int(&revision.value["revision"], 0)
}

/// Returns the data of a revision: the owner's template as a patch.
fn data(owner: &Object) -> Value {
    let mut template = map(&owner.spec()["template"]);
    template.insert("$patch".into(), "replace".into());
    json!({"spec": {"template": template}})
}

/// Returns the template in a revision.
pub(crate) fn template(revision: &Object) -> Value {
    let mut template = map(&revision.value["data"]["spec"]["template"]);
    template.remove("$patch");
    template.into()
}

/// Formats JSON like Go: keys sorted, and three characters escaped.
fn go_json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Returns the hash of the current template.
fn hash(owner: &Object, data: &Value) -> String {
    let collisions = owner.status()["collisionCount"].as_i64();
    if owner.key.kind == Kind::DaemonSet {
        return pod_template_hash(&owner.spec()["template"], collisions);
    }
    let collisions = collisions.unwrap_or_default().to_string();
    safe_encode(fnv32(&[go_json(data).as_bytes(), collisions.as_bytes()]))
}

/// Returns the revision of the current template, which the plan has to create first if it does not exist.
pub(crate) fn current(owner: &Object, known: &[Arc<Object>]) -> Result<Arc<Object>, Plan> {
    let data = data(owner);
    let next = known.last().map_or(1, |last| number(last) + 1);
    let mut plan = Plan::default();
    if let Some(same) = known.iter().rev().find(|revision| revision.value["data"] == data) {
        if known.last().is_some_and(|last| last.uid == same.uid) {
            return Ok(Arc::clone(same));
        }
        // A rollback makes the old revision the newest.
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

/// Handles a new revision whose name is taken by another object: the next hash includes the collision count.
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

/// Deletes the oldest unused revisions beyond the limit. There is no limit if it is negative.
pub(crate) fn clean_up(
    owner: &Object,
    counted: &[&Arc<Object>],
    is_used: impl Fn(&Object) -> bool,
    plan: &mut Plan,
) {
    let Ok(limit) = usize::try_from(int(&owner.spec()["revisionHistoryLimit"], 10)) else { return };
    let surplus = counted.len().saturating_sub(limit);
    let doomed = counted.iter().filter(|revision| !is_used(revision)).take(surplus);
    plan.together(doomed.map(|revision| Request::delete(revision, "revision-history-limit")).collect());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// Scenarios REV-T of the specification: how many revisions count towards which limit, which of them are in use, and which are
    /// deleted.
    #[test]
    fn history_limits_are_those_of_the_specification() {
        let table: [(&str, Value, usize, &[&str], &[&str]); 6] = [
            ("REV-T01", Value::Null, 13, &[], &["r1", "r2", "r3"]),
            ("REV-T02", json!(0), 2, &[], &["r1", "r2"]),
            ("REV-T03", json!(-1), 15, &[], &[]),
            ("within the limit", json!(3), 3, &[], &[]),
            ("REV-T05", json!(1), 3, &["r1"], &["r2", "r3"]),
            ("all in use", json!(0), 2, &["r1", "r2"], &[]),
        ];
        let object = |kind: Kind, name: &str, spec: Value| {
            let value =
                json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec});
            Arc::new(Object::new(kind, value).unwrap())
        };
        for (id, limit, count, used, expected) in table {
            let owner = object(Kind::StatefulSet, "db", json!({"revisionHistoryLimit": limit}));
            let revisions: Vec<Arc<Object>> = (1..=count)
                .map(|number| object(Kind::ControllerRevision, &format!("r{number}"), Value::Null))
                .collect();
            let counted: Vec<&Arc<Object>> = revisions.iter().collect();
            let mut plan = Plan::default();
            clean_up(&owner, &counted, |revision| used.contains(&revision.name()), &mut plan);
            let requests = plan.steps.into_iter().flatten();
            let deleted: Vec<String> = requests.map(|one| one.action.key().name.to_string()).collect();
            assert_eq!(deleted, expected, "{id}");
        }
    }
}
