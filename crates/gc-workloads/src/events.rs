//! Events: repetitions are counted, many similar ones are combined, and there is a limit for each object and each kubelet.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::object::text;
use crate::plan::{Action, Note, Severity};
use crate::time::{self, Milliseconds};
use crate::workloads::Workload;

/// Maximum number of Events that are remembered for counting repetitions.
pub const MAX_REMEMBERED: usize = 4096;
/// Maximum burst of Events about one object.
const BURST: i64 = 25;
/// Time after which an object that used up its Events may have another.
const REFILL: Milliseconds = 300_000;

/// Maximum burst of Events from a kubelet: its flag `--event-burst`.
const KUBELET_BURST: i64 = 100;
/// Time after which a kubelet that used up its Events may write another: its flag `--event-qps`, which is 50 a second.
const KUBELET_REFILL: Milliseconds = 20;

/// Number of different messages from which an object's Events with the same reason are combined into one.
const MAX_SIMILAR: usize = 10;
/// Maximum time between similar Events that are combined.
const SIMILAR_WITHIN: Milliseconds = 600_000;
/// Prefix of a combined Event's message.
const COMBINED: &str = "(combined from similar events): ";

/// An Event that was written.
#[derive(Debug)]
struct WrittenEvent {
    name: String,
    count: i64,
    last: Milliseconds,
}

/// Number of further Events that an object may have, or a kubelet may write.
#[derive(Debug)]
struct Budget {
    left: i64,
    since: Milliseconds,
}

impl Budget {
    /// Takes one; returns false if none is left.
    fn take(&mut self, burst: i64, refill: Milliseconds, now: Milliseconds) -> bool {
        let gained = (now - self.since) / refill;
        if gained > 0 {
            self.left = (self.left + gained).min(burst);
            self.since += gained * refill;
        }
        let is_left = self.left > 0;
        self.left -= i64::from(is_left);
        is_left
    }
}

/// Different messages with the same reason.
#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Milliseconds,
}

type EventSubject = (Workload, String, String);
/// An object, the type and reason of an Event, the part of the object, and the message; a combined Event has neither of the last
/// two.
type Topic = (EventSubject, Severity, Cow<'static, str>, Option<(String, String)>);

/// Converts notes to Events.
#[derive(Debug, Default)]
pub struct Recorder {
    written: BTreeMap<Topic, WrittenEvent>,
    similar: BTreeMap<(EventSubject, Severity, Cow<'static, str>), Similar>,
    budgets: BTreeMap<EventSubject, Budget>,
    /// Budgets of the nodes' kubelets.
    kubelets: BTreeMap<Arc<str>, Budget>,
    number: u64,
}

impl Recorder {
    /// Returns the requests for a note; `None` if its object or its kubelet has reached the limit.
    pub fn record(&mut self, workload: Workload, note: Note, now: Milliseconds) -> Option<Action> {
        let Note { about, severity, reason, message, host } = note;
        let namespace = text(&about["namespace"]).to_owned();
        let source: EventSubject =
            (workload, text(&about["uid"]).to_owned(), text(&about["name"]).to_owned());
        if !self.may_speak(&source, now) || !self.may_report(&host, now) {
            return None;
        }
        let at = time::format(now);
        let event_namespace = if namespace.is_empty() { "default" } else { &namespace };
        let combined = self.is_one_of_many((source.clone(), severity, reason.clone()), &message, now);
        let part = || text(&about["fieldPath"]).to_owned();
        let key = (source, severity, reason.clone(), (!combined).then(|| (part(), message.clone())));
        let message = if combined { format!("{COMBINED}{message}") } else { message };
        if let Some(written) = self.written.get_mut(&key) {
            written.count += 1;
            written.last = now;
            let mut patch = json!({"count": written.count, "lastTimestamp": at});
            if combined {
                patch["message"] = message.into();
            }
            let key = Kind::Event.key(event_namespace, &written.name);
            return Some(Action::Patch { key, subresource: "", patch });
        }
        self.number += 1;
        let nanoseconds =
            now.unsigned_abs().saturating_mul(1_000_000).saturating_add(self.number % 1_000_000);
        let name = format!("{}.{nanoseconds:x}", text(&about["name"]));
        self.remember(key, WrittenEvent { name: name.clone(), count: 1, last: now });
        let kind = match severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let component = workload.event_source();
        let mut event: Value = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": event_namespace},
            "involvedObject": about, "reason": reason, "message": message, "type": kind,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": &*host,
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        });
        if !host.is_empty() {
            event["source"]["host"] = (*host).into();
        }
        if combined {
            // Upstream's combined Events have no reporting controller.
            event["reportingComponent"] = "".into();
        }
        Some(Action::Create { kind: Kind::Event, namespace: event_namespace.into(), object: event })
    }

    fn may_speak(&mut self, source: &EventSubject, now: Milliseconds) -> bool {
        make_room(&mut self.budgets, source, |budget| now - budget.since < REFILL);
        let budget = self.budgets.entry(source.clone()).or_insert(Budget { left: BURST, since: now });
        budget.take(BURST, REFILL, now)
    }

    fn may_report(&mut self, host: &Arc<str>, now: Milliseconds) -> bool {
        if host.is_empty() {
            return true;
        }
        make_room(&mut self.kubelets, host, |budget| now - budget.since < KUBELET_BURST * KUBELET_REFILL);
        let fresh = Budget { left: KUBELET_BURST, since: now };
        self.kubelets.entry(Arc::clone(host)).or_insert(fresh).take(KUBELET_BURST, KUBELET_REFILL, now)
    }

    /// Reports whether there have been too many different messages with this reason to record them separately.
    fn is_one_of_many(
        &mut self,
        topic: (EventSubject, Severity, Cow<'static, str>),
        message: &str,
        now: Milliseconds,
    ) -> bool {
        make_room(&mut self.similar, &topic, |similar| now - similar.last <= SIMILAR_WITHIN);
        let similar = self.similar.entry(topic).or_insert(Similar { messages: BTreeSet::new(), last: now });
        if now - similar.last > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.to_owned());
        if similar.messages.len() < MAX_SIMILAR {
            return false;
        }
        similar.messages.pop_first();
        true
    }

    fn remember(&mut self, key: Topic, written: WrittenEvent) {
        if self.written.len() >= MAX_REMEMBERED {
            // The older half is probably no longer needed.
            let mut times: Vec<Milliseconds> = self.written.values().map(|written| written.last).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.written.retain(|_, written| written.last > middle);
        }
        self.written.insert(key, written);
    }
}

/// Makes room for a key in a map of at most [`MAX_REMEMBERED`] entries, by first forgetting what no longer matters.
fn make_room<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K, matters: impl Fn(&V) -> bool) {
    if map.len() >= MAX_REMEMBERED && !map.contains_key(key) {
        map.retain(|_, value| matters(value));
        if map.len() >= MAX_REMEMBERED {
            map.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// Records a note with this message about a ReplicaSet, and returns the verb, the message and the count.
    fn outcome(recorder: &mut Recorder, message: &str, now: Milliseconds) -> Option<(String, Value, Value)> {
        let about = json!({"kind": "ReplicaSet", "namespace": "default", "name": "web", "uid": "web-1"});
        let note = Note {
            about,
            severity: Severity::Warning,
            reason: "FailedCreate".into(),
            message: message.into(),
            host: "".into(),
        };
        Some(match recorder.record(Workload::ReplicaSet, note, now)? {
            Action::Create { object, .. } => {
                ("create".to_owned(), object["message"].clone(), object["reportingComponent"].clone())
            }
            Action::Patch { patch, .. } => {
                ("patch".to_owned(), patch["message"].clone(), patch["count"].clone())
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn from_the_tenth_message_on_similar_events_are_combined() {
        let mut recorder = Recorder::default();
        let component = json!("replicaset-controller");
        for number in 1..10 {
            let message = format!("pod {number} is forbidden");
            let expected = ("create".to_owned(), json!(message), component.clone());
            assert_eq!(outcome(&mut recorder, &message, 0), Some(expected));
        }
        let combined =
            |number: u32| json!(format!("(combined from similar events): pod {number} is forbidden"));
        let first = ("create".to_owned(), combined(10), json!(""));
        assert_eq!(outcome(&mut recorder, "pod 10 is forbidden", 0), Some(first));
        let second = ("patch".to_owned(), combined(11), json!(2));
        assert_eq!(outcome(&mut recorder, "pod 11 is forbidden", 0), Some(second));
        // After ten minutes without any, they are written separately again.
        let later = ("create".to_owned(), json!("pod 12 is forbidden"), component);
        assert_eq!(outcome(&mut recorder, "pod 12 is forbidden", 600_001), Some(later));
    }

    #[test]
    fn the_same_event_is_counted() {
        let mut recorder = Recorder::default();
        let first = ("create".to_owned(), json!("no"), json!("replicaset-controller"));
        assert_eq!(outcome(&mut recorder, "no", 0), Some(first));
        assert_eq!(outcome(&mut recorder, "no", 1), Some(("patch".to_owned(), Value::Null, json!(2))));
    }

    #[test]
    fn a_kubelet_writes_as_many_events_as_its_defaults_allow() {
        let mut recorder = Recorder::default();
        let mut written = |host: &str, now: Milliseconds| {
            let note = |number: i64| Note {
                about: json!({"kind": "Pod", "namespace": "default", "name": format!("{host}-{now}-{number}")}),
                severity: Severity::Normal,
                reason: "Started".into(),
                message: "Container started".into(),
                host: host.into(),
            };
            (0..1_000)
                .filter(|number| recorder.record(Workload::Kubelet, note(*number), now).is_some())
                .count()
        };
        let counts = [("a", 0), ("a", 0), ("b", 0), ("a", 1_000), ("a", 1_019), ("a", 60_000)]
            .map(|(host, now)| written(host, now));
        assert_eq!(counts, [100, 0, 100, 50, 0, 100]);
    }

    #[test]
    fn an_event_of_a_kubelet_names_its_node_and_the_part_of_the_pod() {
        let mut recorder = Recorder::default();
        let mut outcome = |container: &str| {
            let about = json!({"kind": "Pod", "name": "web", "uid": "1",
                "fieldPath": format!("spec.containers{{{container}}}")});
            let (severity, reason, host) = (Severity::Normal, "Started".into(), "node-1".into());
            let note = Note { about, severity, reason, message: "Container started".into(), host };
            match recorder.record(Workload::Kubelet, note, 0) {
                Some(Action::Create { object, .. }) => json!([
                    object["source"],
                    object["reportingComponent"],
                    object["reportingInstance"],
                    object["involvedObject"]["fieldPath"],
                ]),
                Some(Action::Patch { patch, .. }) => patch["count"].clone(),
                other => panic!("{other:?}"),
            }
        };
        let of = |path: &str| json!([{"component": "kubelet", "host": "node-1"}, "kubelet", "node-1", path]);
        assert_eq!(outcome("web"), of("spec.containers{web}"));
        assert_eq!(outcome("log"), of("spec.containers{log}"), "another container is not a repetition");
        assert_eq!(outcome("web"), 2);
    }
}
