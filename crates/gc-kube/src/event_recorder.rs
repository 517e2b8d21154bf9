//! Kubernetes Events about objects (spec `ownership-gc.md`, 10.2), merged and limited by the rules of Kubernetes' own event client.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_types::{EventRecord, Severity};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::connection::{Answer, ApiClient, RequestError};
use crate::resources::{ResourceTable, push_segment};

/// Component that Events of the owner-reference collector name as their source.
pub const EVENT_SOURCE: &str = "garbage-collector-controller";
/// Maximum number of queued Events; further ones are dropped.
pub const QUEUED_EVENTS: usize = 1000;
/// Maximum number of Events, subjects and buckets remembered.
const REMEMBERED: usize = 4096;
/// From this number of different messages about one subject ...
const MESSAGES_BEFORE_FOLDING: usize = 10;
/// ... within this time, they are folded into one Event.
const FOLDING_INTERVAL: Duration = Duration::from_mins(10);
/// Number of Events about one object that are permitted at once ...
const BUCKET_SIZE: f64 = 25.0;
/// ... and the number of seconds until another one is.
const BUCKET_SECONDS: f64 = 300.0;
/// Number of attempts on connection errors, and the pause between them.
const TRIES: usize = 12;
const TRY_PAUSE: Duration = Duration::from_secs(10);

/// Involved object, as Events name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

/// A write to perform: a new Event, or a higher count of an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Write {
    subject: Subject,
    severity: Severity,
    reason: &'static str,
    message: String,
    /// Name of the existing Event, and its count including this one.
    raised: Option<(String, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    subject: Subject,
    reason: &'static str,
    /// `None` for a folded Event, whatever its message.
    message: Option<String>,
}

/// Merges equal Events, folds similar ones and limits their number per object.
#[derive(Debug, Default)]
struct Correlator {
    buckets: HashMap<Subject, (f64, Instant)>,
    messages: HashMap<(Subject, &'static str), (BTreeSet<String>, Instant)>,
    written: HashMap<EventKey, (String, u64)>,
}

impl Correlator {
    /// Returns the write for one note, if any.
    fn correlate(
        &mut self,
        subject: Subject,
        (severity, reason): (Severity, &'static str),
        message: String,
        now: Instant,
    ) -> Option<Write> {
        let seen = bounded(&mut self.messages, (subject.clone(), reason), || (BTreeSet::new(), now));
        if now.saturating_duration_since(seen.1) > FOLDING_INTERVAL {
            seen.0.clear();
        }
        seen.1 = now;
        seen.0.insert(message.clone());
        let folded = seen.0.len() >= MESSAGES_BEFORE_FOLDING;
        if folded {
            seen.0.pop_first();
        }
        let bucket = bounded(&mut self.buckets, subject.clone(), || (BUCKET_SIZE, now));
        let refill = now.saturating_duration_since(bucket.1).as_secs_f64() / BUCKET_SECONDS;
        *bucket = ((bucket.0 + refill).min(BUCKET_SIZE), now);
        if bucket.0 < 1.0 {
            return None;
        }
        bucket.0 -= 1.0;
        let key = EventKey { subject: subject.clone(), reason, message: (!folded).then(|| message.clone()) };
        let message = if folded { format!("(combined from similar events): {message}") } else { message };
        let raised = self.written.get_mut(&key).map(|(name, count)| {
            *count += 1;
            (name.clone(), *count)
        });
        Some(Write { subject, severity, reason, message, raised })
    }

    fn wrote(&mut self, write: &Write, name: String) {
        let folded = write.message.starts_with("(combined from similar events): ");
        let key = EventKey {
            subject: write.subject.clone(),
            reason: write.reason,
            message: (!folded).then(|| write.message.clone()),
        };
        bounded(&mut self.written, key, || (name, 1));
    }

    fn forget(&mut self, write: &Write) {
        self.written.retain(|key, _| key.subject != write.subject || key.reason != write.reason);
    }
}

/// Returns the entry of a map that is cleared when full.
fn bounded<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: K, make: impl FnOnce() -> V) -> &mut V {
    if map.len() >= REMEMBERED && !map.contains_key(&key) {
        map.clear();
    }
    map.entry(key).or_insert_with(make)
}

/// Queues Events to be written, and drops those that exceed the queue.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    queue: mpsc::Sender<EventRecord>,
}

impl EventRecorder {
    /// Creates a recorder. `table` describes the objects' resources; `source` is the component to name. The writer runs until every
    /// clone of the recorder has been dropped.
    pub fn new(
        client: ApiClient,
        table: ResourceTable,
        source: &'static str,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, events) = mpsc::channel(QUEUED_EVENTS);
        let writer = Writer { client, table, events, source, correlator: Correlator::default() };
        (Self { queue }, writer.run())
    }

    /// Queues an Event, which is written once those before it are. A bounded number of them waits.
    pub fn record(&self, event: EventRecord) {
        if let Err(error) = self.queue.try_send(event) {
            tracing::warn!(%error, "an Event was dropped: too many wait to be written");
        }
    }
}

struct Writer {
    client: ApiClient,
    table: ResourceTable,
    source: &'static str,
    events: mpsc::Receiver<EventRecord>,
    correlator: Correlator,
}

impl Writer {
    async fn run(mut self) {
        while let Some(event) = self.events.recv().await {
            let Some(route) = self.table.get(event.about.resource) else { continue };
            let subject = Subject {
                api_version: route.api_version.to_string(),
                kind: route.info.kind.to_string(),
                namespace: event.about.namespace.to_string(),
                name: event.about.name.to_string(),
                uid: event.uid.to_string(),
            };
            let kind = (event.severity, event.reason);
            if let Some(write) = self.correlator.correlate(subject, kind, event.message, Instant::now()) {
                self.write(write).await;
            }
        }
    }

    async fn write(&mut self, write: Write) {
        let now = jiff::Timestamp::now();
        if let Some((name, count)) = &write.raised {
            let patch = json!({
                "count": count, "lastTimestamp": seconds(now), "message": write.message,
            });
            let path = event_path(&write.subject, Some(name));
            let answer = self.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await;
            // On a 404, the Event has expired, and is created again.
            if answer.is_none_or(|answer| answer.head.status != StatusCode::NOT_FOUND) {
                return;
            }
            self.correlator.forget(&write);
        }
        let name = format!("{}.{:x}", write.subject.name, now.as_nanosecond());
        let event = event_value(&write, self.source, &name, now);
        let path = event_path(&write.subject, None);
        let answer = self.send(Method::POST, &path, "application/json", &event).await;
        match answer {
            Some(answer) if answer.head.status.is_success() => self.correlator.wrote(&write, name),
            Some(answer) => {
                tracing::warn!(code = answer.head.status.as_u16(), about = %write.subject.name,
                    "the server rejected an Event");
            }
            None => {}
        }
    }

    /// Sends a request, and retries only on connection errors: what a server rejects once, it rejects again.
    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Option<Answer> {
        for attempt in 1..=TRIES {
            let request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header(ACCEPT, "application/json")
                .header(CONTENT_TYPE, content_type)
                .body(Full::new(Bytes::from(body.to_string())))
                .ok()?;
            match self.client.call(request).await {
                Ok(answer) => return Some(answer),
                Err(error @ RequestError::Body(_)) => {
                    tracing::debug!(%error, "the answer to an Event was lost");
                    return None;
                }
                // The next leader writes its own Events, and a dry run has none.
                Err(error @ RequestError::Gated) => {
                    tracing::debug!(%error, "an Event is not written");
                    return None;
                }
                Err(error) => {
                    tracing::debug!(%error, attempt, "an Event could not be written yet");
                    tokio::time::sleep(TRY_PAUSE).await;
                }
            }
        }
        None
    }
}

/// Events about cluster-scoped objects are kept in `default`.
fn event_namespace(subject: &Subject) -> &str {
    if subject.namespace.is_empty() { "default" } else { &subject.namespace }
}

fn event_path(subject: &Subject, name: Option<&str>) -> String {
    let mut path = String::from("/api/v1/namespaces/");
    push_segment(&mut path, event_namespace(subject));
    path.push_str("/events");
    if let Some(name) = name {
        path.push('/');
        push_segment(&mut path, name);
    }
    path
}

fn event_value(write: &Write, source: &str, name: &str, now: jiff::Timestamp) -> Value {
    let subject = &write.subject;
    let mut involved = json!({
        "kind": subject.kind, "apiVersion": subject.api_version, "name": subject.name, "uid": subject.uid,
    });
    if !subject.namespace.is_empty() {
        involved["namespace"] = subject.namespace.as_str().into();
    }
    json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": event_namespace(subject)},
        "involvedObject": involved, "reason": write.reason, "message": write.message,
        "type": write.severity.to_string(), "source": {"component": source},
        "reportingComponent": source, "reportingInstance": "",
        "firstTimestamp": seconds(now), "lastTimestamp": seconds(now), "count": 1, "eventTime": null,
    })
}

/// Formats a time by RFC 3339 with whole seconds, as `metav1.Time` does.
fn seconds(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    const REASON: (Severity, &str) = (Severity::Warning, "OwnerRefInvalidNamespace");

    fn subject(name: &str) -> Subject {
        Subject {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: name.into(),
            uid: "u".into(),
        }
    }

    #[test]
    fn equal_events_raise_a_count() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        let first = correlator.correlate(subject("a"), REASON, "m".into(), now).unwrap();
        assert_eq!(first.raised, None);
        correlator.wrote(&first, "a.1".into());
        let second = correlator.correlate(subject("a"), REASON, "m".into(), now).unwrap();
        assert_eq!(second.raised, Some(("a.1".into(), 2)));
        let other = correlator.correlate(subject("b"), REASON, "m".into(), now).unwrap();
        assert_eq!(other.raised, None);
    }

    #[test]
    fn many_different_messages_are_folded() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        let messages: Vec<_> = (0..11)
            .map(|n| {
                let write = correlator.correlate(subject("a"), REASON, format!("m{n:02}"), now).unwrap();
                correlator.wrote(&write, format!("e{n}"));
                (write.message, write.raised)
            })
            .collect();
        assert_eq!(messages[8], ("m08".into(), None));
        assert_eq!(messages[9], ("(combined from similar events): m09".into(), None));
        assert_eq!(messages[10], ("(combined from similar events): m10".into(), Some(("e9".into(), 2))));
    }

    #[test]
    fn one_object_gets_so_many_events_and_then_one_in_five_minutes() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        let written =
            (0..40).filter(|_| correlator.correlate(subject("a"), REASON, "m".into(), now).is_some());
        assert_eq!(written.count(), 25);
        let later = now + Duration::from_mins(5);
        assert!(correlator.correlate(subject("a"), REASON, "m".into(), later).is_some());
        assert!(correlator.correlate(subject("a"), REASON, "m".into(), later).is_none());
    }

    #[test]
    fn an_event_is_written_as_upstream_writes_it() {
        let (severity, reason) = REASON;
        let write = Write { subject: subject("web-1"), severity, reason, message: "m".into(), raised: None };
        let now = jiff::Timestamp::from_second(1_790_000_000).unwrap();
        assert_eq!(
            event_value(&write, EVENT_SOURCE, "web-1.18", now),
            json!({
                "kind": "Event", "apiVersion": "v1",
                "metadata": {"name": "web-1.18", "namespace": "shop"},
                "involvedObject": {
                    "kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": "web-1", "uid": "u",
                },
                "reason": reason, "message": "m", "type": "Warning",
                "source": {"component": "garbage-collector-controller"},
                "reportingComponent": "garbage-collector-controller", "reportingInstance": "",
                "firstTimestamp": "2026-09-21T14:13:20Z", "lastTimestamp": "2026-09-21T14:13:20Z",
                "count": 1, "eventTime": null,
            })
        );
    }

    #[test]
    fn events_about_cluster_scoped_objects_go_to_default() {
        let node = Subject { namespace: String::new(), ..subject("n") };
        assert_eq!(event_path(&node, Some("n.1")), "/api/v1/namespaces/default/events/n.1");
    }
}
