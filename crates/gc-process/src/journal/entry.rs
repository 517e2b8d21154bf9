//! Entries of the journal: what an effect asked for, the reason, and the result.

use std::sync::Arc;
use std::time::Duration;

use gc_collectors::node_report;
use gc_collectors::permissions::Controller;
use gc_collectors::policies::named_in;
use gc_kube::breaker::Trip;
use gc_kube::{Observer, ResourceTable};
use gc_types::{Change, Effect, FinalizerName, ObjectKey, Outcome, OutsideCall, Request, WithheldBy};
use serde_json::{Map, Value, json};

use super::Journal;

/// Component that deletes the objects of a CustomResourceDefinition along with it; in `kubegc up`, its API server.
pub const DEFINITIONS: &str = "custom-resource-cleanup";

/// Name of `kubegc release` in its entries, which stands for a user who removes a finalizer by hand.
pub const RELEASE: &str = "release";

/// Records the effects of one collector; the table names their resources.
pub struct JournalObserver {
    /// Journal that gets the entries.
    pub journal: Arc<Journal>,
    /// Name of the collector.
    pub controller: &'static str,
    /// Names of the resources in its effects.
    pub table: ResourceTable,
}

impl Observer for JournalObserver {
    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let mut entry = entry(effect, outcome, round_trips, took, &self.table);
        entry["controller"] = self.controller.into();
        self.journal.append(entry);
    }

    fn tripped(&self, trip: &Trip) {
        self.journal.record(json!({
            "verb": STOP, "outcome": TRIPPED, "resource": &*trip.resource, "verdict": "BreakerTripped", "message": &*trip.why,
            "controller": self.controller,
        }));
    }
}

/// Returns the current time in the form of entries.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Defines the words that entries use, each under a name, and the list of all of them: filters accept no others.
macro_rules! words {
    ($(#[$doc:meta])* $all:ident: $($name:ident = $word:literal,)*) => {
        $(#[doc = concat!("The word `", $word, "`.")] #[allow(unreachable_pub, reason = "some words are used here alone")] pub const $name: &str = $word;)*

        $(#[$doc])*
        pub const $all: &[&str] = &[$($name),*];
    };
}

words! {
    /// Verbs of entries.
    VERBS:
    BARRIER = "barrier",
    DELETE = "delete",
    DELETE_STORAGE = "delete-storage",
    EVENT = "event",
    FORCE_DELETE = "force-delete",
    LOOK_UP_MACHINE = "look-up-machine",
    OBSERVE = "observe",
    PATCH = "patch",
    READ = "read",
    REMOVE = "remove",
    REMOVE_FINALIZER = "remove-finalizer",
    SET_FINALIZERS = "set-finalizers",
    SET_OWNERS = "set-owners",
    SET_STATUS = "set-status",
    STOP = "stop",
}

words! {
    /// Outcomes of entries.
    OUTCOMES:
    ABSENT = "absent",
    AGREEMENT = "agreement",
    APPLIED = "applied",
    BREAKER_TRIPPED = "breaker-tripped",
    CLOCKS_DISAGREE = "clocks-disagree",
    CONFLICT = "conflict",
    DISAGREEMENT = "disagreement",
    DRY_RUN = "dry-run",
    FAILED = "failed",
    FOUND = "found",
    KEPT = "kept",
    NOT_SERVED = "not-served",
    OBSERVED = "observed",
    PROTECTED = "protected",
    REFUSED = "refused",
    REQUESTED = "requested",
    TRIPPED = "tripped",
}

/// Returns the names of all components that write entries.
pub fn collectors() -> impl Iterator<Item = &'static str> {
    let on_nodes = [node_report::COLLECTOR, node_report::COLLECTOR_OF_CONTAINERS];
    Controller::ALL.into_iter().map(Controller::name).chain(on_nodes).chain([DEFINITIONS, RELEASE])
}

/// Returns the word for what an effect asks for: `delete`, `set-owners`, ….
#[must_use]
pub fn verb(request: &Request) -> &'static str {
    match request {
        Request::Delete { .. } => DELETE,
        Request::SetOwners { .. } => SET_OWNERS,
        Request::RemoveFinalizer { .. } => REMOVE_FINALIZER,
        Request::Read { .. } => READ,
        Request::Barrier { .. } => BARRIER,
        Request::RecordEvent(_) => EVENT,
        Request::Guarded { change: Change::ForceDelete, .. } => FORCE_DELETE,
        Request::Guarded { change: Change::Finalizers(_), .. } => SET_FINALIZERS,
        Request::Guarded { change: Change::Status(_) | Change::MergeStatus(_), .. } => SET_STATUS,
        Request::Guarded { change: Change::Merge(_), .. } => PATCH,
        Request::Outside { call: OutsideCall::DeleteStorage(_), .. } => DELETE_STORAGE,
        Request::Outside { call: OutsideCall::LookUpMachine { .. }, .. } => LOOK_UP_MACHINE,
    }
}

/// Reports whether the server has accepted the request of an entry. A deletion may be only requested, if finalizers or a grace
/// period still kept the object.
#[must_use]
pub fn is_accepted(entry: &Value) -> bool {
    matches!(entry["outcome"].as_str(), Some(APPLIED | REQUESTED))
}

/// Returns the outcome of an effect as one word. A deletion after which the object still exists is only requested.
fn word_of(effect: &Effect, outcome: &Outcome) -> &'static str {
    let is_deletion = matches!(
        effect.request,
        Request::Delete { .. } | Request::Guarded { change: Change::ForceDelete, .. }
    );
    if is_deletion && matches!(outcome, Outcome::Applied(Some(_))) { REQUESTED } else { word(outcome) }
}

/// Returns the outcome as one word.
#[must_use]
pub fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied(_) => APPLIED,
        Outcome::Found(_) => FOUND,
        Outcome::Absent => ABSENT,
        Outcome::Conflict => CONFLICT,
        Outcome::NotServed => NOT_SERVED,
        Outcome::Withheld(WithheldBy::DryRun) => DRY_RUN,
        Outcome::Withheld(WithheldBy::Observe) => OBSERVED,
        Outcome::Withheld(WithheldBy::Breaker) => BREAKER_TRIPPED,
        Outcome::Withheld(WithheldBy::Configuration) => KEPT,
        Outcome::Withheld(WithheldBy::Clock) => CLOCKS_DISAGREE,
        Outcome::Refused { message, .. } if is_protected(message) => PROTECTED,
        Outcome::Refused { .. } => REFUSED,
        Outcome::Failed { .. } => FAILED,
    }
}

/// Reports whether a policy of `kubegc protect` has refused a request, judging by the server's message.
fn is_protected(message: &str) -> bool {
    message.contains("ValidatingAdmissionPolicy 'kubegc-protect'")
        || message.contains("ValidatingAdmissionPolicy 'kubegc-protect-")
}

/// Returns the object that a request concerns, if any.
#[must_use]
pub fn subject(request: &Request) -> Option<&ObjectKey> {
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

/// Returns the request as data.
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
            set("propagationPolicy", policy.name().into());
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

/// Creates the journal entry of a finished effect; `took` is the time since it was requested.
pub fn entry(
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
    let message = match named_in(&effect.reason) {
        Some(policy) => format!("{} (retention policy {policy})", effect.reason.message()),
        None => effect.reason.message().to_owned(),
    };
    let rest = json!({
        "time": now(),
        "effect": effect.id.0, "verdict": effect.reason.code(), "message": message, "owners": owners,
        "evidence": evidence, "outcome": word_of(effect, outcome), "requests": round_trips,
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
