//! The rule `unused`: what every look has found unused for long enough. The looks are those of `kubegc garbage --quarantine`, which
//! marks what is certainly unused; here the marks are read. A mark counts for an hour after the look that has confirmed it, so that
//! nothing is deleted that came into use since, and only while a recorder keeps what is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::objects::parse_time;

/// The annotation with the time since when every look has found the object certainly unused.
pub const UNUSED_SINCE: &str = "kubegc.io/unused-since";
/// The annotation with the time of the last of these looks.
pub const UNUSED_SEEN: &str = "kubegc.io/unused-seen";
/// The annotation of a recorder's Lease that names the kinds of which it records every deletion, such as `ConfigMap,Deployment.apps`.
pub const RECORDED: &str = "kubegc.io/recorded";
/// The annotation that names what of its policy a recorder does not record, and why, such as `configmap=NotServed`.
pub const NOT_RECORDED: &str = "kubegc.io/not-recorded";
/// The annotation with the time, the code and the text of a recorder's last error.
pub const RECORDER_ERROR: &str = "kubegc.io/recorder-error";
/// The Lease of a recorder, unless a policy names another one.
pub const RECORDER: &str = "kube-system/kubegc-recorder";
/// Time after a look for which its findings count, milliseconds.
pub const LOOK_MILLISECONDS: i64 = 3_600_000;
/// Longest time between two looks; after a longer one, what was unused before counts no more, milliseconds.
pub const BETWEEN_LOOKS_MILLISECONDS: i64 = 48 * 3_600_000;
/// Time between two renewals of its Lease by a recorder, milliseconds.
pub const HEARTBEAT_MILLISECONDS: i64 = 15_000;
/// Time after a renewal was first seen for which a recorder counts as running, milliseconds.
pub const RECORDER_MILLISECONDS: i64 = 60_000;

/// The rule of a policy.
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

/// The mark of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnusedMark {
    pub(super) since: Timestamp,
    pub(super) seen: Timestamp,
}

impl UnusedMark {
    /// Reads it from the metadata of an object. What is not complete, or cannot be parsed, is none.
    pub(super) fn of(metadata: &Value) -> Option<Self> {
        let at = |name: &str| parse_time(metadata["annotations"][name].as_str());
        let (since, seen) = (at(UNUSED_SINCE)?, at(UNUSED_SEEN)?);
        (since <= seen).then_some(Self { since, seen })
    }
}

/// Reports whether a look is so recent that its findings count.
pub(super) fn is_recent(seen: Timestamp, now: Timestamp) -> bool {
    now.since(seen).abs() < LOOK_MILLISECONDS
}

/// A kind as the Lease of a recorder names it: `ConfigMap`, `Deployment.apps`.
#[must_use]
pub fn kind_name(api_version: &str, kind: &str) -> String {
    match api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.to_owned(),
    }
}

/// Namespace and name of the Lease of a recorder, from `NAMESPACE/NAME`; `None` if that is something else.
#[must_use]
pub fn lease_name(text: &str) -> Option<(&str, &str)> {
    let is_usual = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_name = |part: &str| !part.is_empty() && part.chars().all(is_usual);
    text.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name))
}

/// The Lease of a recorder, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// `spec.renewTime`.
    pub renewed: String,
    /// The kinds of which it records every deletion.
    pub recorded: BTreeSet<String>,
}

impl Heartbeat {
    /// Reads a Lease.
    #[must_use]
    pub fn of(lease: &Value) -> Self {
        let kinds = lease["metadata"]["annotations"][RECORDED].as_str().unwrap_or_default();
        Self {
            renewed: lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned(),
            recorded: kinds.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
        }
    }
}

/// The recorders that policies need. One runs if its Lease was renewed a moment ago, by what was read here: no clock of another machine
/// counts.
#[derive(Debug, Default)]
pub(super) struct Recorders(BTreeMap<Arc<str>, KnownRecorder>);

#[derive(Debug)]
struct KnownRecorder {
    heartbeat: Heartbeat,
    /// Until when it counts as running, by a monotonic clock; nothing before a renewal was seen.
    until: Option<Timestamp>,
}

impl Recorders {
    /// Takes what was read of a Lease; nothing if there is none, or it could not be read.
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

    /// Reports whether a recorder runs and records every deletion of a kind, by its [`kind_name`].
    pub(super) fn record(&self, lease: &str, kind: &str, steady: Timestamp) -> bool {
        self.0.get(lease).is_some_and(|known| {
            known.until.is_some_and(|until| steady < until) && known.heartbeat.recorded.contains(kind)
        })
    }

    /// When the next of them counts as stopped, unless its Lease is renewed.
    pub(super) fn next_end(&self, steady: Timestamp) -> Option<Timestamp> {
        self.0.values().filter_map(|known| known.until).filter(|until| *until > steady).min()
    }

    /// Forgets those that are not needed.
    pub(super) fn keep(&mut self, needed: &BTreeSet<Arc<str>>) {
        self.0.retain(|lease, _| needed.contains(lease));
    }
}
