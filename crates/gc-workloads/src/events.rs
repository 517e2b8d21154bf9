//! Events: one per reason and object, counted up when it happens again, and no flood from one object.

use std::collections::BTreeMap;

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

type About = (Workload, String, String);

/// Makes Events of notes.
#[derive(Debug, Default)]
pub struct Recorder {
    written: BTreeMap<(About, &'static str, String), Written>,
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
        let key = (source, reason, message.clone());
        if let Some(written) = self.written.get_mut(&key) {
            written.count += 1;
            written.last = now;
            let patch = json!({"count": written.count, "lastTimestamp": at});
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
        let event: Value = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": event_namespace},
            "involvedObject": about, "reason": reason, "message": message, "type": kind,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        });
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

    fn remember(&mut self, key: (About, &'static str, String), written: Written) {
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
