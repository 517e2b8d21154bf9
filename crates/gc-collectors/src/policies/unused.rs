//! The rule `unused`: objects that every check has found unused for long enough. `kubegc garbage --quarantine` makes these checks
//! and marks objects that are certainly unused; here the marks are read. A mark counts for an hour after the check that confirmed
//! it, so that nothing is deleted that has come into use since, and only while a recorder records deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::objects::parse_time;

/// Annotation with the time since which every check has found the object certainly unused.
pub const UNUSED_SINCE: &str = "kubegc.io/unused-since";
/// Annotation with the time of the last of these checks.
pub const UNUSED_SEEN: &str = "kubegc.io/unused-seen";
/// Annotation of a recorder's Lease that names the kinds whose deletions it records completely, such as
/// `ConfigMap,Deployment.apps`.
pub const RECORDED: &str = "kubegc.io/recorded";
/// Annotation that names what a recorder does not record although its policy says so, with the reason, such as
/// `configmap=NotServed`.
pub const NOT_RECORDED: &str = "kubegc.io/not-recorded";
/// Annotation with the time, the code and the text of a recorder's last error.
pub const RECORDER_ERROR: &str = "kubegc.io/recorder-error";
/// Lease of the recorder, unless a policy names another one.
pub const RECORDER: &str = "kube-system/kubegc-recorder";
/// Time after a check for which its findings count, milliseconds.
pub const LOOK_MILLISECONDS: i64 = 3_600_000;
/// Maximum time between two checks, milliseconds; after a longer one, earlier findings no longer count.
pub const BETWEEN_LOOKS_MILLISECONDS: i64 = 48 * 3_600_000;
/// Interval at which a recorder renews its Lease, milliseconds.
pub const HEARTBEAT_MILLISECONDS: i64 = 15_000;
/// Time after an observed renewal for which a recorder counts as running, milliseconds.
pub const RECORDER_MILLISECONDS: i64 = 60_000;

/// Rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) milliseconds: i64,
    /// Namespace and name of the recorder's Lease.
    pub(super) recorder: Arc<str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireUnused {
    #[serde(rename = "for")]
    pub(super) duration: String,
    #[serde(default)]
    pub(super) recorder: Option<String>,
}

/// Mark of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnusedMark {
    pub(super) since: Timestamp,
    pub(super) seen: Timestamp,
}

impl UnusedMark {
    /// Parses the mark in the metadata of an object; `None` if it is incomplete or invalid.
    pub(super) fn of(metadata: &Value) -> Option<Self> {
        let at = |name: &str| parse_time(metadata["annotations"][name].as_str());
        let (since, seen) = (at(UNUSED_SINCE)?, at(UNUSED_SEEN)?);
        (since <= seen).then_some(Self { since, seen })
    }
}

/// Reports whether a check is recent enough for its findings to count.
pub(super) fn is_recent(seen: Timestamp, now: Timestamp) -> bool {
    now.since(seen).abs() < LOOK_MILLISECONDS
}

/// Returns a kind as a recorder's Lease names it: `ConfigMap`, `Deployment.apps`.
#[must_use]
pub fn kind_name(api_version: &str, kind: &str) -> String {
    match api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.to_owned(),
    }
}

/// Splits `NAMESPACE/NAME` of a recorder's Lease; `None` if it is anything else.
#[must_use]
pub fn lease_name(text: &str) -> Option<(&str, &str)> {
    let is_usual = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_name = |part: &str| !part.is_empty() && part.chars().all(is_usual);
    text.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name))
}

/// Lease of a recorder, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// `spec.renewTime`.
    pub renewed: String,
    /// Kinds whose deletions it records completely.
    pub recorded: BTreeSet<String>,
}

impl Heartbeat {
    /// Parses a Lease.
    #[must_use]
    pub fn of(lease: &Value) -> Self {
        let kinds = lease["metadata"]["annotations"][RECORDED].as_str().unwrap_or_default();
        Self {
            renewed: lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned(),
            recorded: kinds.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
        }
    }
}

/// Recorders that policies need. One counts as running if its Lease was seen to be renewed recently; the clocks of other machines
/// do not matter.
#[derive(Debug, Default)]
pub(super) struct Recorders(BTreeMap<Arc<str>, KnownRecorder>);

#[derive(Debug)]
struct KnownRecorder {
    heartbeat: Heartbeat,
    /// Time by a monotonic clock until which it counts as running; `None` before a renewal was seen.
    until: Option<Timestamp>,
}

impl Recorders {
    /// Takes what was read of a Lease; `None` if there is none, or it could not be read.
    pub(super) fn read(&mut self, lease: &str, heartbeat: Option<Heartbeat>, steady: Timestamp) {
        let Some(heartbeat) = heartbeat else {
            self.0.remove(lease);
            return;
        };
        match self.0.get_mut(lease) {
            Some(known) => {
                if known.heartbeat.renewed != heartbeat.renewed {
                    known.until = Some(steady.after(RECORDER_MILLISECONDS));
                }
                known.heartbeat = heartbeat;
            }
            None => drop(self.0.insert(lease.into(), KnownRecorder { heartbeat, until: None })),
        }
    }

    /// Reports whether a recorder runs and records every deletion of a kind, given by its [`kind_name`].
    pub(super) fn record(&self, lease: &str, kind: &str, steady: Timestamp) -> bool {
        self.0.get(lease).is_some_and(|known| {
            known.until.is_some_and(|until| steady < until) && known.heartbeat.recorded.contains(kind)
        })
    }

    /// Returns when the next of them counts as stopped, unless its Lease is renewed.
    pub(super) fn next_end(&self, steady: Timestamp) -> Option<Timestamp> {
        self.0.values().filter_map(|known| known.until).filter(|until| *until > steady).min()
    }

    /// Forgets recorders that are not needed.
    pub(super) fn keep(&mut self, needed: &BTreeSet<Arc<str>>) {
        self.0.retain(|lease, _| needed.contains(lease));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It runs from the first renewal that is seen until its time is over, whatever its own clock says, and records what it names.
    #[test]
    fn a_recorder_runs_until_its_time_is_over() {
        let heartbeat = |renewed: &str| {
            Some(Heartbeat { renewed: renewed.into(), recorded: BTreeSet::from(["Job.batch".to_owned()]) })
        };
        let mut recorders = Recorders::default();
        recorders.read("ops/recorder", heartbeat("first"), Timestamp(0));
        assert_eq!(recorders.next_end(Timestamp(0)), None);
        assert!(!recorders.record("ops/recorder", "Job.batch", Timestamp(0)), "no renewal was seen");
        for seen in [10, 20] {
            recorders.read("ops/recorder", heartbeat("second"), Timestamp(seen));
        }
        let end = 10 + RECORDER_MILLISECONDS;
        for (now, lease, kind, runs) in [
            (20, "ops/recorder", "Job.batch", true),
            (end - 1, "ops/recorder", "Job.batch", true),
            (end, "ops/recorder", "Job.batch", false),
            (20, "ops/recorder", "Job", false),
            (20, "ops/other", "Job.batch", false),
        ] {
            assert_eq!(recorders.record(lease, kind, Timestamp(now)), runs, "{now} {lease} {kind}");
        }
        let ends = [end - 1, end].map(|now| recorders.next_end(Timestamp(now)));
        assert_eq!(ends, [Some(Timestamp(end)), None]);
        recorders.keep(&BTreeSet::from(["ops/other".into()]));
        assert_eq!(recorders.next_end(Timestamp(20)), None, "it is not needed");
        recorders.read("ops/recorder", heartbeat("first"), Timestamp(0));
        recorders.read("ops/recorder", heartbeat("second"), Timestamp(1));
        recorders.read("ops/recorder", None, Timestamp(2));
        assert_eq!(recorders.next_end(Timestamp(2)), None, "it is gone");
    }

    #[test]
    fn a_check_counts_for_an_hour_by_either_clock() {
        let found = [0, LOOK_MILLISECONDS - 1, LOOK_MILLISECONDS, 1 - LOOK_MILLISECONDS, -LOOK_MILLISECONDS]
            .map(|passed| is_recent(Timestamp(0), Timestamp(passed)));
        assert_eq!(found, [true, true, false, true, false]);
    }

    #[test]
    fn a_lease_is_named_with_its_namespace() {
        for (text, expected) in [
            ("kube-system/recorder", Some(("kube-system", "recorder"))),
            ("a-1/b.c", Some(("a-1", "b.c"))),
            ("", None),
            ("a", None),
            ("/b", None),
            ("a/", None),
            ("A/b", None),
            ("a/B", None),
            ("a/b/c", None),
        ] {
            assert_eq!(lease_name(text), expected, "{text}");
        }
    }
}
