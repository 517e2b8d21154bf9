//! CronJobs: Jobs on a schedule, and the history of finished ones.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use gc_types::{JobSchedule, Timestamp};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::kinds::{Key, Kind};
use crate::object::{Object, has_condition, items, map, text};
use crate::plan::{Action, FailedAction, FailureReason, Note, Plan, Request, View};
use crate::store::Change;
use crate::time::{self, Milliseconds, SECOND};

/// Annotation with the scheduled time of a Job.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Number of missed times above which they are reported.
const MANY_MISSED: i64 = 100;
/// Delay after the scheduled time before a Job is started, so that a slightly slow clock does not miss it.
const DELAY: Milliseconds = 100;

pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::CronJob => keys.push(object.key.clone()),
        Kind::Job => {
            let owner = view.store.controller_of(object).filter(|owner| owner.key.kind == Kind::CronJob);
            keys.extend(owner.map(|owner| owner.key.clone()));
        }
        _ => {}
    }
}

/// A CronJob in a reconciliation.
struct Work<'a> {
    view: &'a View<'a>,
    cron: &'a Arc<Object>,
    jobs: Vec<Arc<Object>>,
    status: Value,
    plan: Plan,
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let Some(cron) = view.store.get(key) else { return Plan::default() };
    let jobs = view.store.controlled_by(&cron.uid, Kind::Job).cloned().collect();
    let status = map(cron.status()).into();
    let mut work = Work { view, cron, jobs, status, plan: Plan::default() };
    work.follow_jobs();
    let deleted = if cron.deleting { Vec::new() } else { work.start() };
    work.clean_up(&deleted);
    if work.status != Value::Object(map(cron.status())) {
        let value = cron.with_status(work.status.clone());
        // Starts and deletions come first.
        work.plan.then(Request::update_status(key, value, "status"));
    }
    work.plan
}

fn is_finished(job: &Object) -> bool {
    has_condition(job.status(), "Complete") || has_condition(job.status(), "Failed")
}

fn next(schedule: &JobSchedule, after: Milliseconds, zone: &TimeZone) -> Option<Milliseconds> {
    schedule.next_after(Timestamp(after), zone).map(|time| time.0)
}

fn scheduled_for(job: &Object) -> Option<Milliseconds> {
    time::parse(&job.annotation(SCHEDULED)?.into())
}

impl Work<'_> {
    fn active(&self) -> Vec<Value> {
        items(&self.status["active"]).cloned().collect()
    }

    fn set_active(&mut self, active: Vec<Value>) {
        if active.is_empty() {
            self.status.as_object_mut().and_then(|status| status.remove("active"));
        } else {
            self.status["active"] = active.into();
        }
    }

    fn last_scheduled(&self) -> Option<Milliseconds> {
        time::parse(&self.status["lastScheduleTime"])
    }

    /// Updates the list of active Jobs.
    fn follow_jobs(&mut self) {
        let mut active = self.active();
        for job in self.jobs.clone() {
            let listed = active.iter().any(|entry| entry["uid"] == *job.uid);
            if !listed && !is_finished(&job) {
                let newer =
                    scheduled_for(&job).filter(|at| self.last_scheduled().is_none_or(|last| *at > last));
                match newer {
                    // The Job has just been created.
                    Some(at) => {
                        active.push(job.reference());
                        self.status["lastScheduleTime"] = time::format(at);
                    }
                    None => {
                        let message =
                            format!("Saw a job that the controller did not create or forgot: {}", job.name());
                        self.plan.notes.push(Note::warning(self.cron, "UnexpectedJob", message));
                    }
                }
            } else if listed && is_finished(&job) {
                let condition = if has_condition(job.status(), "Complete") { "Complete" } else { "Failed" };
                active.retain(|entry| entry["uid"] != *job.uid);
                let message = format!("Saw completed job: {}, condition: {condition}", job.name());
                self.plan.notes.push(Note::normal(self.cron, "SawCompletedJob", message));
            } else if !listed
                && let Some(at) =
                    scheduled_for(&job).filter(|at| self.last_scheduled().is_none_or(|last| *at > last))
            {
                // The Job had finished before it was listed.
                self.status["lastScheduleTime"] = time::format(at);
            }
            let completed = &job.status()["completionTime"];
            if has_condition(job.status(), "Complete")
                && time::parse(completed) > time::parse(&self.status["lastSuccessfulTime"])
            {
                self.status["lastSuccessfulTime"] = completed.clone();
            }
        }
        active.retain(|entry| {
            let known = self.jobs.iter().any(|job| entry["uid"] == *job.uid);
            if !known {
                let message = format!("Active job went missing: {}", text(&entry["name"]));
                self.plan.notes.push(Note::normal(self.cron, "MissingJob", message));
            }
            known
        });
        self.set_active(active);
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.plan.notes.push(Note::warning(self.cron, reason, message));
    }

    /// Starts the Job that is due, if any, and returns the Jobs that it deletes for that.
    fn start(&mut self) -> Vec<Arc<str>> {
        let spec = self.cron.spec();
        let zone = match spec["timeZone"].as_str() {
            None => TimeZone::UTC,
            Some(name) => match self.view.settings.time_zones.get(name) {
                Some(zone) => zone.clone(),
                None => {
                    self.warn(
                        "UnknownTimeZone",
                        format!("invalid timeZone: {name:?}: unknown time zone {name}"),
                    );
                    return Vec::new();
                }
            },
        };
        if spec["suspend"] == true {
            return Vec::new();
        }
        let schedule = match JobSchedule::parse(text(&spec["schedule"]).trim()) {
            Ok(schedule) => schedule,
            Err(error) => {
                self.warn(
                    "UnparseableSchedule",
                    format!("unparseable schedule: {:?} : {error}", text(&spec["schedule"])),
                );
                return Vec::new();
            }
        };
        let (due, from) = self.due(&schedule, &zone);
        if let Some(next) = next(&schedule, due.unwrap_or(from), &zone) {
            self.plan.again_at(next + DELAY);
        }
        let Some(due) = due.filter(|due| self.last_scheduled() != Some(*due)) else { return Vec::new() };
        self.start_at(due, &zone)
    }

    /// Returns the last scheduled time that has passed without a Job, and the time from which the next one is searched.
    fn due(&mut self, schedule: &JobSchedule, zone: &TimeZone) -> (Option<Milliseconds>, Milliseconds) {
        let now = self.view.now;
        let mut from = self.last_scheduled().unwrap_or(self.cron.created);
        if let Some(seconds) = self.cron.spec()["startingDeadlineSeconds"].as_i64() {
            from = from.max(now - seconds * SECOND);
        }
        let Some(first) = next(schedule, from, zone).filter(|first| *first <= now) else {
            return (None, from);
        };
        let Some(second) = next(schedule, first, zone).filter(|second| *second <= now) else {
            return (Some(first), from);
        };
        let between = (second - first).max(SECOND);
        let missed = (now - first) / between + 1;
        if missed > MANY_MISSED {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.warn("TooManyMissedTimes", message.to_owned());
        }
        // Scheduled times are not evenly spaced, so the last ones are checked one by one.
        let mut last = second;
        let mut at = next(schedule, first + (missed - 2) * between - 1, zone);
        while let Some(time) = at.filter(|time| *time <= now) {
            last = last.max(time);
            at = next(schedule, time, zone);
        }
        (Some(last), from)
    }

    fn start_at(&mut self, due: Milliseconds, zone: &TimeZone) -> Vec<Arc<str>> {
        let name = format!("{}-{}", self.cron.name(), due / (60 * SECOND));
        let failed = self.view.failure.filter(|failure| failure.action == FailedAction::Create(Kind::Job));
        if let Some(failure) = failed
            && failure.reason != FailureReason::AlreadyExists
        {
            self.plan.still_failing = true;
            return Vec::new();
        }
        let listed = items(&self.status["active"]).any(|entry| entry["name"] == *name);
        if listed
            || self.view.store.find(Kind::Job, self.cron.namespace(), &name).is_some()
            || failed.is_some()
        {
            return Vec::new();
        }
        let active = self.active();
        let mut deleted = Vec::new();
        match text(&self.cron.spec()["concurrencyPolicy"]) {
            "Forbid" if !active.is_empty() => {
                let message =
                    "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.plan.notes.push(Note::normal(self.cron, "JobAlreadyActive", message));
                return deleted;
            }
            "Replace" => {
                for job in self.jobs.clone() {
                    if active.iter().any(|entry| entry["uid"] == *job.uid) {
                        self.plan.then(self.deletion(&job));
                        deleted.push(Arc::clone(&job.uid));
                    }
                }
                self.set_active(Vec::new());
            }
            _ => {}
        }
        let job = self.new_job(&name, due, zone);
        let request = Request::create(Kind::Job, self.cron.namespace(), job, "due").noting(
            Note::normal(self.cron, "SuccessfulCreate", "Created job {}"),
            Note::warning(self.cron, "FailedCreate", "Error creating job: {}"),
        );
        self.plan.then(request);
        deleted
    }

    fn new_job(&self, name: &str, due: Milliseconds, zone: &TimeZone) -> Value {
        let template = &self.cron.spec()["jobTemplate"];
        let mut annotations = map(&template["metadata"]["annotations"]);
        let at = jiff::Timestamp::from_millisecond(due).unwrap_or_default();
        let shown = if *zone == TimeZone::UTC {
            at.to_string()
        } else {
            at.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        };
        annotations.insert(SCHEDULED.into(), shown.into());
        let mut metadata = json!({
            "name": name, "namespace": self.cron.namespace(), "annotations": annotations,
            "ownerReferences": [self.cron.controller_reference()],
        });
        if template["metadata"]["labels"].is_object() {
            metadata["labels"] = template["metadata"]["labels"].clone();
        }
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"].clone()})
    }

    fn deletion(&self, job: &Object) -> Request {
        let mut request = Request::delete(job, "cron");
        if let Action::Delete { propagation, .. } = &mut request.action {
            *propagation = Some("Background");
        }
        let deleted = Note::normal(self.cron, "SuccessfulDelete", format!("Deleted job {}", job.name()));
        let failed = Note::warning(self.cron, "FailedDelete", "Deleted job: {}");
        request.noting(deleted, failed)
    }

    /// Deletes the finished Jobs beyond the limits, the oldest first.
    fn clean_up(&mut self, deleted: &[Arc<str>]) {
        let mut doomed = Vec::new();
        for (condition, limit) in
            [("Failed", "failedJobsHistoryLimit"), ("Complete", "successfulJobsHistoryLimit")]
        {
            let Some(limit) = self.cron.spec()[limit].as_i64() else { continue };
            let mut ended: Vec<Arc<Object>> = self
                .jobs
                .iter()
                .filter(|job| {
                    has_condition(job.status(), condition) && !job.deleting && !deleted.contains(&job.uid)
                })
                .cloned()
                .collect();
            // A Job that never started is the last to be deleted.
            let started = |job: &Object| time::parse(&job.status()["startTime"]).unwrap_or(Milliseconds::MAX);
            ended.sort_by_key(|job| (started(job), Arc::clone(&job.key.name)));
            let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
            doomed.extend(ended.into_iter().take(surplus).map(|job| self.deletion(&job)));
        }
        // In one step, so that one failure does not prevent the other deletions.
        self.plan.together(doomed);
    }
}
