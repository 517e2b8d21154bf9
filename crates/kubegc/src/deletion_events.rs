//! Kubernetes Events about deletions, which upstream does not write: one Event per reason for the objects that a collector deletes
//! in a namespace, whose count rises while deletions continue. Cluster-scoped objects have an Event each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_collectors::permissions::Controller;
use gc_collectors::policies::named_in;
use gc_explain::text::count;
use gc_kube::connection::Answer;
use gc_kube::{ApiClient, Observer, ResourceTable, push_segment};
use gc_process::preflight;
use gc_types::{Change, Effect, ObjectKey, Outcome, Reason, Request, Uid};
use http::{Method, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// Time for which deletions are counted before an Event reports them.
const PERIOD: Duration = Duration::from_secs(10);
/// Maximum number of Events written per period; further deletions are only in the journal.
const EVENTS_AT_ONCE: usize = 100;
/// Time without changes after which an Event is finished; later deletions start another one.
const SERIES_IDLE: Duration = Duration::from_mins(10);
/// Maximum number of Events remembered in order to raise their count.
const SERIES_REMEMBERED: usize = 1_000;
/// Maximum number of objects of one kind that a message names.
const NAMES_SHOWN: usize = 3;
/// Maximum number of kinds that a message names.
const KINDS_SHOWN: usize = 8;
/// Pause after a namespace refuses an Event; doubles with each further refusal, up to the longest.
const FIRST_SILENCE: Duration = Duration::from_mins(1);
const LONGEST_SILENCE: Duration = Duration::from_hours(1);
/// Maximum number of namespaces remembered for refusing Events.
const SILENCES_REMEMBERED: usize = 1_000;
/// Namespace of Events about cluster-scoped objects, and about namespaces that are gone. The latter Events name no objects, because
/// readers of Events here may not be allowed to see them.
const DEFAULT_NAMESPACE: &str = "default";
/// Collectors that write their own Event about each deletion, as upstream does.
const WITH_OWN_EVENTS: [Controller; 2] = [Controller::LegacyTokenCleaner, Controller::NodeLifecycle];
/// Resources whose deletion is not reported: Events about deleted Events would never end.
const UNREPORTED: [&str; 2] = ["events", "events.events.k8s.io"];

/// Subject of an Event, with the collector and its reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    about: EventSubject,
    controller: &'static str,
    code: &'static str,
    message: &'static str,
    /// The retention policy by which the object was due.
    policy: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventSubject {
    /// The objects in a namespace.
    Namespace(Arc<str>),
    /// One cluster-scoped object: apiVersion, kind, name and UID.
    Object(String, Arc<str>, Arc<str>, Uid),
}

/// Deleted objects by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts(BTreeMap<Arc<str>, DeletedObjects>);

/// Deleted objects of one kind: their number, and the names of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DeletedObjects {
    number: usize,
    names: Vec<Arc<str>>,
}

impl Counts {
    fn add(&mut self, kind: Arc<str>, number: usize, names: &[Arc<str>]) {
        let deleted = self.0.entry(kind).or_default();
        deleted.number += number;
        let room = NAMES_SHOWN.saturating_sub(deleted.names.len());
        deleted.names.extend(names.iter().take(room).cloned());
    }

    fn extend(&mut self, more: Self) {
        for (kind, deleted) in more.0 {
            self.add(kind, deleted.number, &deleted.names);
        }
    }

    /// Returns the total for the field `count` of Events.
    fn total(&self) -> i32 {
        i32::try_from(self.0.values().map(|deleted| deleted.number).sum::<usize>()).unwrap_or(i32::MAX)
    }

    /// Formats the counts as `12 Pods (web-1, web-2, web-3, …), 1 Job (build)`, or without the names.
    fn shown(&self, are_named: bool) -> String {
        let one = |(kind, deleted): (&Arc<str>, &DeletedObjects)| {
            if !are_named {
                return count(deleted.number, kind);
            }
            let rest = if deleted.number > deleted.names.len() { ", …" } else { "" };
            format!("{} ({}{rest})", count(deleted.number, kind), deleted.names.join(", "))
        };
        let mut parts: Vec<String> = self.0.iter().take(KINDS_SHOWN).map(one).collect();
        let rest: usize = self.0.values().skip(KINDS_SHOWN).map(|deleted| deleted.number).sum();
        if rest > 0 {
            parts.push(format!("{} of other kinds", count(rest, "object")));
        }
        parts.join(", ")
    }
}

/// Deletions that are not reported yet.
#[derive(Debug, Default)]
struct Pending {
    counts: BTreeMap<Key, Counts>,
    /// Deletions beyond [`EVENTS_AT_ONCE`].
    left_out: u64,
}

/// Counts deletions, and writes Events about them. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct DeletionEvents(Arc<Mutex<Pending>>);

impl DeletionEvents {
    /// Returns an observer that counts the deletions of one collector, or `None` if the collector writes its own Events. The table
    /// names the resources of its effects.
    pub(crate) fn observer(
        &self,
        controller: Controller,
        table: &ResourceTable,
    ) -> Option<Arc<dyn Observer>> {
        if WITH_OWN_EVENTS.contains(&controller) {
            return None;
        }
        let controller = controller.event_source();
        Some(Arc::new(Counter { events: self.clone(), controller, table: table.clone() }))
    }

    fn count(
        &self,
        controller: &'static str,
        table: &ResourceTable,
        (key, uid): (&ObjectKey, &Uid),
        reason: &Reason,
    ) {
        let Some(route) = table.get(key.resource) else { return };
        if UNREPORTED.contains(&&*route.name) {
            return;
        }
        let kind = Arc::clone(&route.info.kind);
        let about = if key.namespace.is_empty() {
            let version = route.api_version.to_string();
            EventSubject::Object(version, Arc::clone(&kind), Arc::clone(&key.name), uid.clone())
        } else {
            EventSubject::Namespace(Arc::clone(&key.namespace))
        };
        let name = Arc::clone(&key.name);
        let policy = named_in(reason).map(Into::into);
        let key = Key { about, controller, code: reason.code(), message: reason.message(), policy };
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.counts.len() < EVENTS_AT_ONCE || pending.counts.contains_key(&key) {
            pending.counts.entry(key).or_default().add(kind, 1, &[name]);
        } else {
            pending.left_out += 1;
        }
    }

    fn take(&self) -> Pending {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes Events until the future is dropped.
    pub(crate) async fn write(self, client: ApiClient) {
        let mut writer = Writer::new(client);
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            writer.write(self.take()).await;
        }
    }
}

/// A written Event, and the counts that it reports.
struct Series {
    namespace: String,
    name: String,
    changed: Instant,
    counts: Counts,
}

/// A namespace that refuses Events because of missing permissions, a quota or admission.
struct Silence {
    until: Instant,
    lasts: Duration,
}

/// Result of a request.
enum Sent {
    /// The server answered, and did not forbid the request.
    Answered(Answer),
    /// The request was forbidden in this namespace or could not be sent, so there is no Event.
    Failed,
}

struct Writer {
    client: ApiClient,
    series: BTreeMap<Key, Series>,
    silent: BTreeMap<String, Silence>,
}

impl Writer {
    const fn new(client: ApiClient) -> Self {
        Self { client, series: BTreeMap::new(), silent: BTreeMap::new() }
    }

    async fn write(&mut self, pending: Pending) {
        if pending.left_out > 0 {
            let deletions = pending.left_out;
            tracing::info!(deletions, "too many Events at once; the journal has the other deletions");
        }
        self.series.retain(|_, series| series.changed.elapsed() < SERIES_IDLE);
        for (key, counts) in pending.counts {
            if !self.raise(&key, &counts).await {
                self.create(key, counts).await;
            }
        }
    }

    /// Raises the count of an existing Event. Returns false if there is none, and a new one must be created.
    async fn raise(&mut self, key: &Key, counts: &Counts) -> bool {
        let Some(mut series) = self.series.remove(key) else { return false };
        series.counts.extend(counts.clone());
        series.changed = Instant::now();
        let patch = json!({"count": series.counts.total(), "message": message(key, &series.counts, &series.namespace),
            "lastTimestamp": seconds(jiff::Timestamp::now())});
        let mut path = events_in(&series.namespace);
        path.push('/');
        push_segment(&mut path, &series.name);
        let mut request = preflight::request(Method::PATCH, &path, Some(&patch));
        let merge = http::HeaderValue::from_static("application/merge-patch+json");
        request.headers_mut().insert(http::header::CONTENT_TYPE, merge);
        match self.send(&series.namespace, request).await {
            // The Event has expired, or was deleted with its namespace.
            Sent::Answered(answer) if answer.head.status == StatusCode::NOT_FOUND => false,
            Sent::Answered(_) | Sent::Failed => {
                self.series.insert(key.clone(), series);
                true
            }
        }
    }

    async fn create(&mut self, key: Key, counts: Counts) {
        let home = match &key.about {
            // A terminating namespace accepts no new Events.
            EventSubject::Namespace(name) if key.controller != Controller::Namespace.event_source() => {
                Some(Arc::clone(name))
            }
            EventSubject::Namespace(_) | EventSubject::Object(..) => None,
        };
        for namespace in home.into_iter().chain([DEFAULT_NAMESPACE.into()]) {
            let event = event(&key, &counts, &namespace, jiff::Timestamp::now());
            let request = preflight::request(Method::POST, &events_in(&namespace), Some(&event));
            let Sent::Answered(answer) = self.send(&namespace, request).await else { return };
            if takes_no_objects(&answer) {
                continue;
            }
            if answer.head.status.is_success() {
                if self.series.len() >= SERIES_REMEMBERED {
                    self.series.clear();
                }
                let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let namespace = namespace.to_string();
                self.series.insert(key, Series { namespace, name, changed: Instant::now(), counts });
            } else {
                tracing::debug!(why = preflight::message(&answer), "the server rejected an Event");
            }
            return;
        }
    }

    /// Sends a request about Events in a namespace, unless the namespace refused one recently.
    async fn send(&mut self, namespace: &str, request: http::Request<Full<Bytes>>) -> Sent {
        if self.silent.get(namespace).is_some_and(|silence| Instant::now() < silence.until) {
            return Sent::Failed;
        }
        match self.client.call(request).await {
            Ok(answer) if answer.head.status == StatusCode::FORBIDDEN && !takes_no_objects(&answer) => {
                self.silence(namespace, &preflight::message(&answer));
                Sent::Failed
            }
            Ok(answer) => {
                self.silent.remove(namespace);
                Sent::Answered(answer)
            }
            Err(error) => {
                tracing::debug!(%error, "an Event about deletions could not be written");
                Sent::Failed
            }
        }
    }

    fn silence(&mut self, namespace: &str, why: &str) {
        let known = self.silent.get(namespace).map(|silence| silence.lasts);
        let lasts = known.map_or(FIRST_SILENCE, |lasts| (lasts * 2).min(LONGEST_SILENCE));
        match known {
            None => tracing::warn!(
                namespace,
                why,
                "no Events about deletions are written in this namespace for now; the journal has every deletion"
            ),
            Some(_) => tracing::debug!(namespace, why, ?lasts, "the namespace still refuses Events"),
        }
        if known.is_none() && self.silent.len() >= SILENCES_REMEMBERED {
            self.silent.clear();
        }
        self.silent.insert(namespace.to_owned(), Silence { until: Instant::now() + lasts, lasts });
    }
}

/// Reports whether the namespace of a request is gone or terminating.
fn takes_no_objects(answer: &Answer) -> bool {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let causes = status["details"]["causes"].as_array();
    let is_terminating =
        || causes.is_some_and(|causes| causes.iter().any(|cause| cause["reason"] == "NamespaceTerminating"));
    answer.head.status == StatusCode::NOT_FOUND
        || (answer.head.status == StatusCode::FORBIDDEN && is_terminating())
}

fn events_in(namespace: &str) -> String {
    let mut path = String::from("/api/v1/namespaces/");
    push_segment(&mut path, namespace);
    path.push_str("/events");
    path
}

/// Returns the message for an Event in this namespace: `DeletedObjects 12 Pods (web-1, web-2, web-3, …): every owner is absent`. It
/// names objects only to readers of Events in the objects' own namespace.
fn message(key: &Key, counts: &Counts, namespace: &str) -> String {
    let policy = key.policy.as_ref().map_or_else(String::new, |name| format!(" (retention policy {name})"));
    match &key.about {
        EventSubject::Object(..) => format!("Deleted: {}{policy}", key.message),
        EventSubject::Namespace(own) => {
            format!("Deleted {}: {}{policy}", counts.shown(**own == *namespace), key.message)
        }
    }
}

/// Formats a time as RFC 3339 with whole seconds, as `metav1.Time` is written.
fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn event(key: &Key, counts: &Counts, namespace: &str, now: jiff::Timestamp) -> Value {
    let (mut involved, name) = match &key.about {
        EventSubject::Namespace(name) => {
            (json!({"apiVersion": "v1", "kind": "Namespace", "name": &**name}), name)
        }
        EventSubject::Object(api_version, kind, name, uid) => {
            let uid = uid.to_string();
            (json!({"apiVersion": api_version, "kind": &**kind, "name": &**name, "uid": uid}), name)
        }
    };
    // The server requires that an Event outside `default` names its own namespace here.
    if namespace != DEFAULT_NAMESPACE {
        involved["namespace"] = namespace.into();
    }
    // Names of roles may contain characters that names of Events may not.
    let prefix: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect();
    let prefix = prefix.trim_matches(['-', '.']).to_lowercase();
    let prefix = if prefix.is_empty() { "deleted" } else { prefix.as_str() };
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{prefix}.{:x}", now.as_nanosecond()), "namespace": namespace},
        "involvedObject": involved, "reason": key.code, "message": message(key, counts, namespace), "type": "Normal",
        "source": {"component": key.controller}, "reportingComponent": key.controller, "reportingInstance": "",
        "firstTimestamp": seconds(now), "lastTimestamp": seconds(now), "count": counts.total(), "eventTime": null,
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

    use std::sync::atomic::{AtomicUsize, Ordering};

    use gc_types::{EffectId, PropagationPolicy, ResourceId, Verdict};

    use super::*;
    use gc_embedded::apiserver::ServerOptions;
    use gc_embedded::clock::CollectorClock;
    use gc_embedded::up::Up;
    use gc_embedded::workloads::WorkloadOptions;
    use gc_process::collectors::{ControllerOptions, Surroundings};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn counter(events: &DeletionEvents, controller: Controller) -> Arc<dyn Observer> {
        let table = gc_kube::namespaces::Trace::new(|_| Arc::new(gc_kube::NoObserver)).table();
        events.observer(controller, &table).unwrap()
    }

    fn delete(counter: &Arc<dyn Observer>, namespace: &str, name: &str, outcome: &Outcome) {
        let reason = Reason { verdict: Verdict::OwnersAbsent, owners: Vec::new(), evidence: Vec::new() };
        delete_for(counter, reason, (namespace, name), outcome);
    }

    fn delete_for(
        counter: &Arc<dyn Observer>,
        reason: Reason,
        (namespace, name): (&str, &str),
        outcome: &Outcome,
    ) {
        let key = ObjectKey { resource: ResourceId(0), namespace: namespace.into(), name: name.into() };
        let policy = PropagationPolicy::Background;
        let effect = Effect {
            id: EffectId(1),
            request: Request::Delete { key, uid: Uid::new("u"), resource_version: None, policy },
            reason,
        };
        counter.finished(&effect, outcome, 1, Duration::ZERO);
    }

    /// Deletions by two policies become two Events, each with the name of its policy.
    #[test]
    fn a_policy_is_named() {
        let fact = |text: &str| gc_types::Evidence::Fact(text.into());
        let events = DeletionEvents::default();
        let counter = counter(&events, Controller::RetentionPolicy);
        for policy in ["builds", "builds", "previews"] {
            let evidence = vec![fact("older than 1 h"), fact(&format!("retention policy {policy}"))];
            let verdict = Verdict::Retention(gc_types::codes::DUE_BY_POLICY);
            let reason = Reason { verdict, owners: Vec::new(), evidence };
            delete_for(&counter, reason, ("shop", "a"), &Outcome::Applied(None));
        }
        let counts = events.take().counts;
        let messages: Vec<String> = counts.iter().map(|(key, counts)| message(key, counts, "shop")).collect();
        let ends = ["(retention policy builds)", "(retention policy previews)"];
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages.iter().zip(ends).all(|(message, end)| message.ends_with(end)), "{messages:?}");
    }

    #[test]
    fn deletions_of_a_namespace_are_counted_into_one_event() {
        let events = DeletionEvents::default();
        let counter = counter(&events, Controller::GarbageCollector);
        for name in ["a", "b", "c", "d"] {
            delete(&counter, "shop", name, &Outcome::Applied(None));
        }
        delete(&counter, "shop", "kept", &Outcome::Conflict);
        delete(&counter, "", "old:Role", &Outcome::Applied(None));
        let now = "2026-09-21T14:00:00Z".parse().unwrap();
        let written: Vec<Value> =
            events.take().counts.iter().map(|(key, counts)| event(key, counts, "shop", now)).collect();
        let common = |about: Value, count: i32, prefix: &str, message: &str| {
            json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": format!("{prefix}.{:x}", now.as_nanosecond()), "namespace": "shop"},
                "involvedObject": about, "reason": "OwnersAbsent", "message": message, "type": "Normal",
                "source": {"component": "garbage-collector-controller"},
                "reportingComponent": "garbage-collector-controller", "reportingInstance": "",
                "firstTimestamp": "2026-09-21T14:00:00Z", "lastTimestamp": "2026-09-21T14:00:00Z",
                "count": count, "eventTime": null,
            })
        };
        let about =
            |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "namespace": "shop"});
        let mut object = about("old:Role");
        object["uid"] = "u".into();
        assert_eq!(
            written,
            [
                common(about("shop"), 4, "shop", "Deleted 4 Namespaces (a, b, c, …): every owner is absent"),
                common(object, 1, "oldrole", "Deleted: every owner is absent"),
            ]
        );
        assert!(events.take().counts.is_empty());
    }

    #[test]
    fn what_exceeds_the_bounds_is_counted() {
        let events = DeletionEvents::default();
        let counter = counter(&events, Controller::GarbageCollector);
        for number in 0..EVENTS_AT_ONCE + 5 {
            delete(&counter, &format!("n{number}"), "a", &Outcome::Applied(None));
        }
        let pending = events.take();
        assert_eq!((pending.counts.len(), pending.left_out), (EVENTS_AT_ONCE, 5));
        let mut counts = Counts::default();
        for number in 0..KINDS_SHOWN + 2 {
            counts.add(format!("R{number}").into(), 2, &["a".into()]);
        }
        let shown = counts.shown(true);
        assert!(
            shown.starts_with("2 R0s (a, …), ") && shown.ends_with(", 4 objects of other kinds"),
            "{shown}"
        );
        assert_eq!(counts.total(), 20);
        let nameless = counts.shown(false);
        assert!(nameless.starts_with("2 R0s, 2 R1s, "), "{nameless}");
    }

    /// Each deletion is reported once, and deletions of Events are not reported, because that would never end.
    #[test]
    fn nothing_is_reported_twice() {
        let events = DeletionEvents::default();
        let table = gc_kube::retention_table();
        let silent: Vec<Controller> = Controller::ALL
            .into_iter()
            .filter(|controller| events.observer(*controller, &table).is_none())
            .collect();
        assert_eq!(silent, [Controller::LegacyTokenCleaner, Controller::NodeLifecycle]);
    }

    fn way(up: &Up, user: &str, groups: &[&str]) -> ApiClient {
        let way = up.server.in_process_as(user, groups);
        ApiClient::in_process(move |request| way.call(request))
    }

    /// Returns a client of this user that counts its refused requests.
    fn counting_refusals(up: &Up, user: &str, refused: &Arc<AtomicUsize>) -> ApiClient {
        let (way, refused) = (up.server.in_process_as(user, &[]), Arc::clone(refused));
        ApiClient::in_process(move |request| {
            let (answer, refused) = (way.call(request), Arc::clone(&refused));
            async move {
                let answer = answer.await;
                refused.fetch_add(usize::from(answer.status() == StatusCode::FORBIDDEN), Ordering::Relaxed);
                answer
            }
        })
    }

    async fn until(what: &str, is_true: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !is_true().await {
            assert!(begun.elapsed() < PATIENCE, "waited too long: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn call(client: &ApiClient, method: Method, path: &str, body: Option<&Value>) -> Value {
        let answer = client.call(preflight::request(method.clone(), path, body)).await.unwrap();
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        assert!(answer.head.status.is_success(), "{method} {path}: {value}");
        value
    }

    /// Returns the number of deletions in a namespace that are counted and not reported yet.
    fn counted_in(events: &DeletionEvents, namespace: &str) -> i32 {
        let about = EventSubject::Namespace(namespace.into());
        let pending = events.0.lock().unwrap();
        pending.counts.iter().filter(|(key, _)| key.about == about).map(|(_, counts)| counts.total()).sum()
    }

    /// Creates an owner with two dependents, deletes the owner, and waits until both deletions are counted. Settling alone is not
    /// enough: on a busy machine, the collector may be idle because it has not received the change yet.
    async fn collect(events: &DeletionEvents, up: &Up, client: &ApiClient, namespace: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let map = |name: &str, owners: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
        let owner = call(client, Method::POST, &path, Some(&map("owner", json!([])))).await;
        let uid = &owner["metadata"]["uid"];
        for name in ["a", "b"] {
            let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
            call(client, Method::POST, &path, Some(&map(name, owners))).await;
        }
        call(client, Method::DELETE, &format!("{path}/owner"), None).await;
        until("both deletions are counted", async || counted_in(events, namespace) == 2).await;
        let rest = || tokio::time::sleep(Duration::from_millis(5));
        up.control.settle(PATIENCE, rest).await.unwrap();
    }

    async fn shown(client: &ApiClient, namespace: &str) -> Vec<(String, i64, String)> {
        let list = call(client, Method::GET, &events_in(namespace), None).await;
        let ours = list["items"].as_array().unwrap().iter().map(|event| {
            let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
            (text("reason"), event["count"].as_i64().unwrap_or_default(), text("message"))
        });
        ours.collect()
    }

    /// On a server, the Event is in the namespace and its count rises; the Event about a namespace that is gone is in `default`.
    /// The permissions of `kubegc rbac` suffice; with fewer, fewer Events are written.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_collector_at_work_has_its_events() {
        let events = DeletionEvents::default();
        let counted = events.clone();
        let surroundings = Surroundings {
            sinks: Arc::new(move |controller, table| {
                counted.observer(controller, table).into_iter().collect()
            }),
            ..Surroundings::default()
        };
        let server = ServerOptions::in_process();
        let options = ControllerOptions {
            controllers: vec!["garbage-collector-controller".into(), "namespace-controller".into()],
            ..ControllerOptions::default()
        };
        let clock = CollectorClock::default();
        let up = Up::start(
            &server,
            &options,
            &WorkloadOptions::off(),
            None,
            &clock,
            surroundings,
            Some(gc_console::page::maker()),
        )
        .await
        .unwrap();
        let client = way(&up, "admin", &["system:masters"]);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        call(&client, Method::POST, "/api/v1/namespaces", Some(&namespace)).await;
        let rules: Vec<Value> = gc_collectors::permissions::needed(&[], true)
            .iter()
            .map(|rule| json!({"apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs}))
            .collect();
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "writer"}, "rules": rules});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "writer"}, "subjects": [{"kind": "User", "name": "writer"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}});
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        call(&client, Method::POST, &format!("{RBAC}/clusterroles"), Some(&role)).await;
        call(&client, Method::POST, &format!("{RBAC}/clusterrolebindings"), Some(&binding)).await;

        let mut writer = Writer::new(way(&up, "writer", &[]));
        for count in [2, 4] {
            collect(&events, &up, &client, "shop").await;
            writer.write(events.take()).await;
            let found = shown(&client, "shop").await;
            let [(reason, counted, message)] = &found[..] else { panic!("{found:?}") };
            assert_eq!((reason.as_str(), *counted), ("OwnersAbsent", count));
            assert!(message.starts_with(&format!("Deleted {count} ConfigMaps (")), "{message}");
            assert!(message.ends_with("): every owner is absent"), "{message}");
        }
        // A deleted Event is created again, with the new deletions only.
        call(&client, Method::DELETE, &events_in("shop"), None).await;
        collect(&events, &up, &client, "shop").await;
        writer.write(events.take()).await;
        assert_eq!(shown(&client, "shop").await[0].1, 2);

        // The server would refuse an Event in a terminating namespace, so the collector does not send one.
        let maps = "/api/v1/namespaces/shop/configmaps";
        for (name, finalizers) in [("left", json!([])), ("held", json!(["example.com/held"]))] {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "finalizers": finalizers}});
            call(&client, Method::POST, maps, Some(&map)).await;
        }
        call(&client, Method::DELETE, "/api/v1/namespaces/shop", None).await;
        until("both deletions are counted", async || counted_in(&events, "shop") == 2).await;
        let refused = Arc::new(AtomicUsize::new(0));
        writer.client = counting_refusals(&up, "writer", &refused);
        writer.write(events.take()).await;
        let about_shop = shown(&client, DEFAULT_NAMESPACE).await;
        assert_eq!(about_shop.len(), 1, "{about_shop:?}");
        assert_eq!(about_shop[0].0, "NamespaceTerminating");
        let message = &about_shop[0].2;
        assert!(message.starts_with("Deleted 2 ConfigMaps: "), "names are not for every tenant: {message}");
        assert_eq!(refused.load(Ordering::Relaxed), 0);
        let mut held = call(&client, Method::GET, &format!("{maps}/held"), None).await;
        held["metadata"]["finalizers"] = json!([]);
        call(&client, Method::PUT, &format!("{maps}/held"), Some(&held)).await;
        let shop = || preflight::request(Method::GET, "/api/v1/namespaces/shop", None);
        until("the namespace is gone", async || {
            client.call(shop()).await.unwrap().head.status == StatusCode::NOT_FOUND
        })
        .await;

        // If one namespace refuses Events, for example by a quota, the others still receive theirs.
        let refused = Arc::new(AtomicUsize::new(0));
        let mut stranger = Writer::new(counting_refusals(&up, "stranger", &refused));
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "writer"}, "subjects": [{"kind": "User", "name": "stranger"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}});
        call(&client, Method::POST, "/api/v1/namespaces", Some(&namespace)).await;
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings";
        call(&client, Method::POST, bindings, Some(&role)).await;
        let bound = way(&up, "stranger", &[]);
        let try_out = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "try"},
            "involvedObject": {"namespace": "mine"}});
        until("the binding is in effect", async || {
            let path = format!("{}?dryRun=All", events_in("mine"));
            let request = preflight::request(Method::POST, &path, Some(&try_out));
            bound.call(request).await.unwrap().head.status.is_success()
        })
        .await;
        for _ in 0..2 {
            collect(&events, &up, &client, "default").await;
            collect(&events, &up, &client, "mine").await;
            stranger.write(events.take()).await;
        }
        assert_eq!(refused.load(Ordering::Relaxed), 1, "it is not asked again at once");
        let found = shown(&client, "mine").await;
        assert_eq!((found.len(), found[0].1), (1, 4), "{found:?}");
        up.shutdown().await;
    }
}
