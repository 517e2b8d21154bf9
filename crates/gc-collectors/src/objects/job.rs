//! Fields of a Job that verdicts use.

use gc_types::Timestamp;
use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireCondition, WireMeta, parse_time};

/// Fields of a Job that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireJob")]
pub struct Job {
    /// Metadata of the Job.
    pub meta: Meta,
    /// `spec.ttlSecondsAfterFinished`
    pub ttl_seconds: Option<i64>,
    /// Time at which it finished, if it did.
    pub finished: Option<Timestamp>,
}

impl HasMeta for Job {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Job {
    /// Returns when to delete it: its finish time plus its time to live. `None` if it has not finished or has no time to live.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        let (finished, ttl) = (self.finished?, self.ttl_seconds?);
        Some(finished.after(ttl.saturating_mul(1000)))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireJob {
    metadata: WireMeta,
    spec: WireJobSpec,
    status: WireJobStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireJobSpec {
    ttl_seconds_after_finished: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireJobStatus {
    conditions: Option<Vec<WireCondition>>,
    start_time: Option<String>,
    completion_time: Option<String>,
}

impl From<WireJob> for Job {
    fn from(wire: WireJob) -> Self {
        let meta = Meta::from(&wire.metadata);
        let finished = finish_time(&wire.status, meta.created);
        Self { finished, ttl_seconds: wire.spec.ttl_seconds_after_finished, meta }
    }
}

/// Returns the transition time of the first such condition. If that is missing, returns the completion time, or else the latest
/// known time of the Job, before which it had not finished.
fn finish_time(status: &WireJobStatus, created: Option<Timestamp>) -> Option<Timestamp> {
    let conditions = || status.conditions.iter().flatten();
    let ends = |condition: &&WireCondition| {
        matches!(condition.r#type.as_str(), "Complete" | "Failed") && condition.status == "True"
    };
    let transition = |condition: &WireCondition| parse_time(condition.last_transition_time.as_deref());
    let end = conditions().find(ends)?;
    transition(end).or_else(|| parse_time(status.completion_time.as_deref())).or_else(|| {
        let known = conditions().filter_map(transition).chain(parse_time(status.start_time.as_deref()));
        known.chain(created).max()
    })
}
