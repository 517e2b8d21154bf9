//! Events: repetitions are counted, many similar ones are combined, and an object has a limited number of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::object::text;
use crate::plan::{Action, Note, Severity};
use crate::time::{self, Milliseconds};
use crate::workloads::Workload;

/// Maximum number of Events that are remembered to be counted up.
pub const MAX_REMEMBERED: usize = 4096;
/// Maximum number of Events that an object may have at once.
const BURST: i64 = 25;
/// After which time an object that used up its Events may have another.
const REFILL: Milliseconds = 300_000;

/// From this number of different messages on, the Events of an object with the same reason are combined into one.
const MAX_SIMILAR: usize = 10;
/// Similar Events further apart than this are not combined.
const SIMILAR_WITHIN: Milliseconds = 600_000;
/// How the message of a combined Event begins.
const COMBINED: &str = "(combined from similar events): ";

/// An Event that was written.
#[derive(Debug)]
struct Written {
    name: String,
    count: i64,
    last: Milliseconds,
}

/// How many Events an object may still have.
#[derive(Debug)]
struct Budget {
    left: i64,
    since: Milliseconds,
}

/// The different messages with the same reason.
#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Milliseconds,
}

type About = (Workload, String, String);
/// An object, the type and reason of an Event, and its message; a combined Event has none.
type Topic = (About, Severity, &'static str, Option<String>);

/// Makes Events of notes.
#[derive(Debug, Default)]
pub struct Recorder {
    written: BTreeMap<Topic, Written>,
    similar: BTreeMap<(About, Severity, &'static str), Similar>,
    budgets: BTreeMap<About, Budget>,
    number: u64,
}

impl Recorder {
    /// What to send for a note; `None` if its object has had too many.
    pub fn record(&mut self, workload: Workload, note: Note, now: Milliseconds) -> Option<Action> {
        let Note { about, severity, reason, message } = note;
        let namespace = text(&about["namespace"]).to_owned();
        let source: About = (workload, text(&about["uid"]).to_owned(), text(&about["name"]).to_owned());
        if !self.may_speak(&source, now) {
            return None;
        }
        let at = time::format(now);
        let event_namespace = if namespace.is_empty() { "default" } else { &namespace };
        let combined = self.is_one_of_many((source.clone(), severity, reason), &message, now);
        let key = (source, severity, reason, (!combined).then(|| message.clone()));
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
        self.remember(key, Written { name: name.clone(), count: 1, last: now });
        let kind = match severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let component = workload.event_source();
        let mut event: Value = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": event_namespace},
            "involvedObject": about, "reason": reason, "message": message, "type": kind,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        });
        if combined {
            // Upstream's combined Events have no reporting controller.
            event["reportingComponent"] = "".into();
        }
        Some(Action::Create { kind: Kind::Event, namespace: event_namespace.into(), object: event })
    }

    fn may_speak(&mut self, source: &About, now: Milliseconds) -> bool {
        if self.budgets.len() >= MAX_REMEMBERED && !self.budgets.contains_key(source) {
            self.budgets.retain(|_, budget| now - budget.since < REFILL);
            if self.budgets.len() >= MAX_REMEMBERED {
                self.budgets.clear();
            }
        }
        let budget = self.budgets.entry(source.clone()).or_insert(Budget { left: BURST, since: now });
        let gained = (now - budget.since) / REFILL;
        if gained > 0 {
            budget.left = (budget.left + gained).min(BURST);
            budget.since += gained * REFILL;
        }
        if budget.left == 0 {
            return false;
        }
        budget.left -= 1;
        true
    }

    /// Whether there have been so many different messages with this reason that they are combined.
    fn is_one_of_many(
        &mut self,
        topic: (About, Severity, &'static str),
        message: &str,
        now: Milliseconds,
    ) -> bool {
        if self.similar.len() >= MAX_REMEMBERED && !self.similar.contains_key(&topic) {
            self.similar.retain(|_, similar| now - similar.last <= SIMILAR_WITHIN);
            if self.similar.len() >= MAX_REMEMBERED {
                self.similar.clear();
            }
        }
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

    fn remember(&mut self, key: Topic, written: Written) {
        if self.written.len() >= MAX_REMEMBERED {
            // The older half has probably had its day.
            let mut times: Vec<Milliseconds> = self.written.values().map(|written| written.last).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.written.retain(|_, written| written.last > middle);
        }
        self.written.insert(key, written);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// What a note with this message makes of a ReplicaSet's Events: the verb, the message and the count.
    fn outcome(recorder: &mut Recorder, message: &str, now: Milliseconds) -> Option<(String, Value, Value)> {
        let about = json!({"kind": "ReplicaSet", "namespace": "default", "name": "web", "uid": "web-1"});
        let note =
            Note { about, severity: Severity::Warning, reason: "FailedCreate", message: message.into() };
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
        // After ten minutes without any, they are written one by one again.
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
}
