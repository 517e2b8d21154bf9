//! TTL-after-finished controller (spec `cluster-collectors.md`, section 3): deletes a finished Job when its time to live is over.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gc_types::{ObjectKey, Outcome, PropagationPolicy, Request, Timestamp};

use crate::engine::{Collector, Decision, EndedRequest, Observation, reason};
use crate::entry::{CollectorEntry, WATCH_DELETE, Watches, rule};
use crate::measures::{JOB_DELETION_LATENESS, ReportQueue};
pub use crate::objects::Job;
use crate::objects::{Cache, Facts, Kind, time_text};

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "finished Jobs",
    name: "ttl-after-finished-controller",
    alias: Some("ttl-after-finished"),
    account: "ttl-after-finished-controller",
    event_source: "ttl-after-finished-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::Job]),
    flags: &[],
    rules: &[rule("batch", "jobs", WATCH_DELETE)],
};

/// Returns the decision about a Job. The deletion has its version as a precondition, so that a time to live that is extended at the
/// last moment is respected.
#[must_use]
pub fn verdict(job: &Job, now: Timestamp) -> Decision {
    let Some(expires) = job.expires().filter(|_| !job.meta.deleting) else { return Decision::Leave };
    if now < expires {
        return Decision::Later(expires);
    }
    let request = Kind::Job.deletion(&job.meta, PropagationPolicy::Foreground);
    let fact =
        format!("its time to live of {} s ended at {}", job.ttl_seconds.unwrap_or(0), time_text(expires));
    Decision::Act(request, reason(gc_types::codes::TTL_EXPIRED, job.meta.resource_version, &[fact]))
}

/// The controller.
#[derive(Debug)]
pub struct JobCollector {
    jobs: Cache<Job>,
    /// Expiry times of Jobs whose deletion is in flight: the Jobs may be gone before the response arrives.
    expired: BTreeMap<ObjectKey, Timestamp>,
    reports: ReportQueue,
}

impl Default for JobCollector {
    fn default() -> Self {
        Self { jobs: Cache::new(Kind::Job), expired: BTreeMap::new(), reports: ReportQueue::default() }
    }
}

impl Collector for JobCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Job]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Job) => self.jobs.list_started(),
            Observation::Observed(Facts::Job(job)) => {
                let wanted = job.expires().is_some();
                let (key, _) = self.jobs.put(job);
                if wanted {
                    dirty.push(key);
                }
            }
            Observation::Removed(key) => drop(self.jobs.remove(&key)),
            Observation::Synced(Kind::Job) => {
                self.jobs.forget_unlisted();
                dirty.extend(self.jobs.keys().cloned());
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(job) = self.jobs.get(key) else { return Decision::Leave };
        let decision = verdict(job, now);
        if let (Decision::Act(..), Some(expires)) = (&decision, job.expires()) {
            self.expired.insert(key.clone(), expires);
        }
        decision
    }

    fn finished(
        &mut self,
        EndedRequest { key, outcome, now, .. }: EndedRequest<'_>,
        _dirty: &mut Vec<ObjectKey>,
    ) {
        let expired = self.expired.remove(key);
        if let (Outcome::Applied(_), Some(expires)) = (outcome, expired) {
            let late = u32::try_from(now.since(expires).max(0)).unwrap_or(u32::MAX);
            self.reports.observe(&JOB_DELETION_LATENESS, Vec::new(), f64::from(late) / 1000.0);
        }
    }

    fn skipped(&mut self, key: &ObjectKey, _request: &Request) {
        self.expired.remove(key);
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }
}
