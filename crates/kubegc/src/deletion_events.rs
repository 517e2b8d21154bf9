//! Kubernetes Events about deletions, where upstream has none: what the collectors deleted in a namespace, counted over
//! a moment, as Events about the Namespace. Objects at cluster scope have an Event of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_answers::text::count;
use gc_kube::{ApiClient, Observer, ResourceTable};
use gc_retention::permissions::Controller;
use gc_types::{Change, Effect, ObjectKey, Outcome, Reason, Request, Uid};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::run::preflight;

/// How long deletions are counted before an Event tells of them.
const PERIOD: Duration = Duration::from_secs(10);
/// Maximum number of Events that one period brings; what exceeds this is in the journal alone.
const EVENTS_AT_ONCE: usize = 100;
/// Where Events about objects at cluster scope are.
const NAMESPACE: &str = "default";
/// The reason of these Events.
const REASON: &str = "Collected";

/// What an Event is about, and who did it why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    about: About,
    controller: &'static str,
    code: &'static str,
    message: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    /// The contents of a namespace.
    Namespace(Arc<str>),
    /// One object at cluster scope: apiVersion, kind, name and UID.
    Object(String, Arc<str>, Arc<str>, Uid),
}

/// How many objects of each resource were deleted.
type Counts = BTreeMap<String, usize>;

/// Counts deletions, and writes Events about them. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct DeletionEvents(Arc<Mutex<BTreeMap<Key, Counts>>>);

impl DeletionEvents {
    /// Counts what one collector deletes; the table says what the resources of its effects are called.
    pub(crate) fn observer(&self, controller: Controller, table: &ResourceTable) -> Arc<dyn Observer> {
        Arc::new(Counter { events: self.clone(), controller: controller.name(), table: table.clone() })
    }

    fn count(
        &self,
        controller: &'static str,
        table: &ResourceTable,
        deleted: (&ObjectKey, &Uid),
        reason: &Reason,
    ) {
        let (key, uid) = deleted;
        let route = table.get(key.resource);
        let resource = route.as_ref().map_or_else(String::new, |route| route.display_name());
        let about = if key.namespace.is_empty() {
            let (version, kind) = route.map_or_else(Default::default, |route| {
                (
                    route.info.served_api_versions.first().map(ToString::to_string),
                    Arc::clone(&route.info.kind),
                )
            });
            About::Object(version.unwrap_or_default(), kind, Arc::clone(&key.name), uid.clone())
        } else {
            About::Namespace(Arc::clone(&key.namespace))
        };
        let key = Key { about, controller, code: reason.code(), message: reason.message() };
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() < EVENTS_AT_ONCE || counted.contains_key(&key) {
            *counted.entry(key).or_default().entry(resource).or_default() += 1;
        }
    }

    fn take(&self) -> BTreeMap<Key, Counts> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes Events until it is dropped, or until the server forbids them.
    pub(crate) async fn write(self, client: ApiClient) {
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            for (key, counts) in self.take() {
                let uid = match &key.about {
                    About::Namespace(name) => uid_of_namespace(&client, name).await,
                    About::Object(_, _, _, uid) => uid.to_string(),
                };
                let event = event(&key, &counts, &uid, jiff::Timestamp::now());
                let path = format!("/api/v1/namespaces/{NAMESPACE}/events");
                match client.call(preflight::request(Method::POST, &path, Some(&event))).await {
                    Ok(answer) if answer.head.status == StatusCode::FORBIDDEN => {
                        tracing::info!(
                            "no Events about deletions are written: {}",
                            preflight::message(&answer)
                        );
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "an Event about deletions could not be written"),
                }
            }
        }
    }
}

async fn uid_of_namespace(client: &ApiClient, name: &str) -> String {
    let mut path = String::from("/api/v1/namespaces/");
    gc_kube::push_segment(&mut path, name);
    let answer = client.call(preflight::request(Method::GET, &path, None)).await;
    let namespace = answer.ok().and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    let uid = namespace.as_ref().and_then(|namespace| namespace["metadata"]["uid"].as_str());
    uid.unwrap_or_default().to_owned()
}

/// `3 pods and 1 replicasets.apps were collected: …`
fn message(key: &Key, counts: &Counts) -> String {
    let why = format!("{}, {}", key.code, key.message);
    match &key.about {
        About::Object(..) => format!("it was collected: {why}"),
        About::Namespace(_) => {
            let total: usize = counts.values().sum();
            let each: Vec<String> =
                counts.iter().map(|(resource, number)| format!("{number} {resource}")).collect();
            let were = if total == 1 { "was" } else { "were" };
            format!("{} {were} collected ({}): {why}", count(total, "object"), each.join(", "))
        }
    }
}

fn event(key: &Key, counts: &Counts, uid: &str, now: jiff::Timestamp) -> Value {
    let (api_version, kind, name) = match &key.about {
        About::Namespace(name) => ("v1", "Namespace", name),
        About::Object(api_version, kind, name, _) => (api_version.as_str(), &**kind, name),
    };
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // Names of roles may have characters that names of Events have not.
    let prefix: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect();
    let prefix = if prefix.is_empty() { "collected" } else { prefix.as_str() };
    let name_of_event =
        format!("{}.{:x}", prefix.trim_matches(['-', '.']).to_lowercase(), now.as_nanosecond());
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name_of_event, "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": api_version, "kind": kind, "name": &**name, "uid": uid},
        "reason": REASON, "message": message(key, counts), "type": "Normal",
        "source": {"component": key.controller}, "reportingComponent": key.controller, "reportingInstance": "",
        "firstTimestamp": time, "lastTimestamp": time, "count": 1, "eventTime": null,
    })
}

struct Counter {
    events: DeletionEvents,
    controller: &'static str,
    table: ResourceTable,
}

impl Observer for Counter {
    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        let deleted = match &effect.request {
            Request::Delete { key, uid, .. }
            | Request::Guarded { key, uid, change: Change::ForceDelete, .. } => (key, uid),
            _ => return,
        };
        if matches!(outcome, Outcome::Applied(_)) {
            self.events.count(self.controller, &self.table, deleted, &effect.reason);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use gc_types::{EffectId, PropagationPolicy, ResourceId, Verdict};

    use super::*;

    fn delete(counter: &Arc<dyn Observer>, namespace: &str, name: &str, outcome: &Outcome) {
        let key = ObjectKey { resource: ResourceId(0), namespace: namespace.into(), name: name.into() };
        let policy = PropagationPolicy::Background;
        let effect = Effect {
            id: EffectId(1),
            request: Request::Delete { key, uid: Uid::new("u"), resource_version: None, policy },
            reason: Reason { verdict: Verdict::OwnersAbsent, owners: Vec::new(), evidence: Vec::new() },
        };
        counter.finished(&effect, outcome, 1, Duration::ZERO);
    }

    #[test]
    fn deletions_of_a_namespace_are_counted_into_one_event() {
        let events = DeletionEvents::default();
        let counter = events.observer(
            Controller::GarbageCollector,
            &crate::namespace_trace::Trace::new(|_| Arc::new(gc_kube::NoObserver)).table(),
        );
        for name in ["a", "b"] {
            delete(&counter, "shop", name, &Outcome::Applied(None));
        }
        delete(&counter, "shop", "c", &Outcome::Conflict);
        delete(&counter, "", "old", &Outcome::Applied(None));
        let now = "2026-09-21T14:00:00Z".parse().unwrap();
        let written: Vec<Value> =
            events.take().iter().map(|(key, counts)| event(key, counts, "uid", now)).collect();
        let shown: Vec<(&str, &str, &str)> = written
            .iter()
            .map(|event| {
                let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap();
                (text("/involvedObject/kind"), text("/involvedObject/name"), text("/message"))
            })
            .collect();
        assert_eq!(
            shown,
            [
                (
                    "Namespace",
                    "shop",
                    "2 objects were collected (2 namespaces): OwnersAbsent, every owner is absent"
                ),
                ("Namespace", "old", "it was collected: OwnersAbsent, every owner is absent"),
            ]
        );
        assert!(events.take().is_empty());
        // What exceeds the bound is in the journal alone.
        for number in 0..EVENTS_AT_ONCE + 5 {
            delete(&counter, &format!("n{number}"), "a", &Outcome::Applied(None));
        }
        assert_eq!(events.take().len(), EVENTS_AT_ONCE);
    }
}
