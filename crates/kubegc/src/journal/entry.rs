//! Entries of the journal: what an effect asked for, why, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use gc_kube::breaker::Trip;
use gc_kube::{Observer, ResourceTable};
use gc_retention::permissions::Controller;
use gc_types::{
    Change, Effect, FinalizerName, HeldBy, ObjectKey, Outcome, OutsideCall, PropagationPolicy, Request,
};
use serde_json::{Map, Value, json};

use super::Journal;

/// Writes down what one collector does; the table says what the resources of its effects are called.
pub(crate) struct JournalObserver {
    pub(crate) journal: Arc<Journal>,
    pub(crate) controller: Controller,
    pub(crate) table: ResourceTable,
}

impl Observer for JournalObserver {
    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let mut entry = entry(effect, outcome, round_trips, took, &self.table);
        entry["controller"] = self.controller.name().into();
        self.journal.append(entry);
    }

    fn tripped(&self, trip: &Trip) {
        self.journal.record(json!({
            "verb": "stop", "outcome": "tripped", "resource": &*trip.resource, "verdict": "BreakerTripped", "message": &*trip.why,
            "controller": self.controller.name(),
        }));
    }
}

/// The time of an entry.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// `delete`, `set-owners`, …: what an effect asks for, in one word.
pub(crate) fn verb(request: &Request) -> &'static str {
    match request {
        Request::Delete { .. } => "delete",
        Request::SetOwners { .. } => "set-owners",
        Request::RemoveFinalizer { .. } => "remove-finalizer",
        Request::Read { .. } => "read",
        Request::Barrier { .. } => "barrier",
        Request::RecordEvent(_) => "event",
        Request::Guarded { change: Change::ForceDelete, .. } => "force-delete",
        Request::Guarded { change: Change::Finalizers(_), .. } => "set-finalizers",
        Request::Guarded { change: Change::Status(_) | Change::MergeStatus(_), .. } => "set-status",
        Request::Guarded { change: Change::Merge(_), .. } => "patch",
        Request::Outside { call: OutsideCall::DeleteStorage(_), .. } => "delete-storage",
        Request::Outside { call: OutsideCall::LookUpMachine { .. }, .. } => "look-up-machine",
    }
}

/// What became of it, in one word.
pub(crate) fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied(_) => "applied",
        Outcome::Found(_) => "found",
        Outcome::Absent => "absent",
        Outcome::Conflict => "conflict",
        Outcome::NotServed => "not-served",
        Outcome::Held(HeldBy::DryRun) => "dry-run",
        Outcome::Held(HeldBy::Observe) => "observed",
        Outcome::Held(HeldBy::Breaker) => "held-by-breaker",
        Outcome::Held(HeldBy::Configuration) => "held-by-configuration",
        Outcome::Held(HeldBy::Clock) => "held-by-clock",
        Outcome::Refused { .. } => "refused",
        Outcome::Failed { .. } => "failed",
    }
}

/// The object that a request is about, if it is about one.
pub(crate) fn subject(request: &Request) -> Option<&ObjectKey> {
    match request {
        Request::Delete { key, .. }
        | Request::SetOwners { key, .. }
        | Request::RemoveFinalizer { key, .. }
        | Request::Guarded { key, .. }
        | Request::Outside { key, .. }
        | Request::Read { key } => Some(key),
        Request::RecordEvent(note) => Some(&note.about),
        Request::Barrier { .. } => None,
    }
}

/// What is asked for, as data.
fn request_value(request: &Request, table: &ResourceTable) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    set("verb", verb(request).into());
    let resource_name = |id| table.get(id).map_or_else(String::new, |route| route.display_name());
    if let Some(key) = subject(request) {
        set("resource", resource_name(key.resource).into());
        if let Some(route) = table.get(key.resource) {
            set("kind", (*route.info.kind).into());
        }
        set("namespace", (*key.namespace).into());
        set("name", (*key.name).into());
    }
    match request {
        Request::Delete { uid, resource_version, policy, .. } => {
            set("uid", uid.to_string().into());
            set("resourceVersion", resource_version.map(|version| version.to_string()).into());
            let policy = match policy {
                PropagationPolicy::Background => "Background",
                PropagationPolicy::Foreground => "Foreground",
                PropagationPolicy::Orphan => "Orphan",
            };
            set("propagationPolicy", policy.into());
        }
        Request::SetOwners { uid, resource_version, remaining, .. } => {
            set("uid", uid.to_string().into());
            set("resourceVersion", resource_version.to_string().into());
            let uids = remaining.iter().map(|owner| owner.coordinates.uid.to_string());
            set("remainingOwners", uids.collect());
        }
        Request::RemoveFinalizer { uid, finalizer, .. } => {
            set("uid", uid.to_string().into());
            let finalizer = match finalizer {
                FinalizerName::Orphan => "orphan",
                FinalizerName::ForegroundDeletion => "foregroundDeletion",
            };
            set("finalizer", finalizer.into());
        }
        Request::Barrier { resource, namespace, at_least } => {
            set("resource", resource_name(*resource).into());
            set("namespace", namespace.as_deref().unwrap_or_default().into());
            set("resourceVersion", at_least.to_string().into());
        }
        Request::RecordEvent(note) => {
            set("uid", note.uid.to_string().into());
            set("eventReason", note.reason.into());
            set("message", note.message.clone().into());
        }
        Request::Guarded { uid, resource_version, .. } | Request::Outside { uid, resource_version, .. } => {
            set("uid", uid.to_string().into());
            set("resourceVersion", resource_version.to_string().into());
        }
        Request::Read { .. } => {}
    }
    fields
}

pub(crate) fn entry(
    effect: &Effect,
    outcome: &Outcome,
    round_trips: u32,
    took: Duration,
    table: &ResourceTable,
) -> Value {
    let mut fields = request_value(&effect.request, table);
    let owners: Vec<Value> = effect
        .reason
        .owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name,
                   "uid": owner.uid.to_string()})
        })
        .collect();
    let evidence: Vec<String> = effect.reason.evidence.iter().map(ToString::to_string).collect();
    let (code, text) = match outcome {
        Outcome::Refused { code, message } => (Some(*code), Some(message.as_str())),
        Outcome::Failed { message, .. } => (None, Some(message.as_str())),
        _ => (None, None),
    };
    let rest = json!({
        "time": now(),
        "effect": effect.id.0, "verdict": effect.reason.code(), "message": effect.reason.message(), "owners": owners,
        "evidence": evidence, "outcome": word(outcome), "requests": round_trips,
        "durationSeconds": took.as_secs_f64(),
    });
    if let Value::Object(rest) = rest {
        fields.extend(rest);
    }
    if let Some(code) = code.filter(|code| *code != 0) {
        fields.insert("code".into(), code.into());
    }
    if let Some(text) = text {
        fields.insert("failure".into(), text.into());
    }
    Value::Object(fields)
}
