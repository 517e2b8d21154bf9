//! Transitions of a Job's status.
//!
//! Most rules only consider members that an update changes, so that statuses stored by an older server stay writable.

use std::collections::BTreeSet;

use super::indexes;
use crate::kinds::prelude::*;

pub(super) fn status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let (now, before) = (JobConditions::of(new), JobConditions::of(old));
    let status = new.get("status");
    for member in ["active", "succeeded", "failed", "ready", "terminating"] {
        report.not_negative(&status.get(member));
    }
    uncounted(&status.get("uncountedTerminatedPods"), report);
    first_conditions(&status, &now, &before, report);
    times(new, old, &now, &before, report);
    outcomes(&status, &now, &before, report);
    finished(new, old, &now, &before, report);
    index_lists(new, old, report);
    let changed = |member: &str| is_changed(new, old, member);
    if changed("terminating") || now.finished() != before.finished() {
        nothing_left("terminating", &status, &now, report);
    }
    let ready = status.get("ready");
    if (changed("ready") || changed("active"))
        && ready.number() > status.number_of("active")
        && ready.is_set()
    {
        report.invalid(&ready, "cannot set more ready pods than active");
    }
    last_conditions(new, &now, report);
    transitions(new, old, &now, &before, report);
}

/// Conditions of a job that are true.
struct JobConditions {
    complete: bool,
    failed: bool,
    failure_target: bool,
    criteria_met: bool,
    suspended: Option<bool>,
}

impl JobConditions {
    fn of(job: &Field<'_, '_>) -> Self {
        let status = job.get("status");
        let conditions = status.get("conditions");
        let state = |kind: &str| {
            conditions
                .items()
                .find(|condition| condition.text_of("type") == kind)
                .map(|condition| condition.text_of("status"))
        };
        let is_true = |kind: &str| {
            conditions
                .items()
                .any(|condition| condition.text_of("type") == kind && condition.text_of("status") == "True")
        };
        Self {
            complete: is_true("Complete"),
            failed: is_true("Failed"),
            failure_target: is_true("FailureTarget"),
            criteria_met: is_true("SuccessCriteriaMet"),
            suspended: state("Suspended").and_then(|state| match state {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            }),
        }
    }

    fn finished(&self) -> bool {
        self.complete || self.failed
    }
}

fn is_changed(new: &Field<'_, '_>, old: &Field<'_, '_>, member: &str) -> bool {
    new.get("status").member(member) != old.get("status").member(member)
}

fn refuse(status: &Field<'_, '_>, is_bad: bool, why: &str, report: &mut Report) {
    if is_bad {
        report.invalid_without_value(&status.get("conditions"), why);
    }
}

fn uncounted(field: &Field<'_, '_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for member in ["succeeded", "failed"] {
        for id in field.get(member).items() {
            if id.text().is_empty() {
                report.invalid(&id, "must not be empty");
            } else if !seen.insert(id.text()) {
                report.duplicate(&id);
            }
        }
    }
}

fn first_conditions(
    status: &Field<'_, '_>,
    now: &JobConditions,
    before: &JobConditions,
    report: &mut Report,
) {
    let completed = now.complete != before.complete;
    let bad = (completed || now.failed != before.failed) && now.complete && now.failed;
    refuse(status, bad, "cannot set Complete=True and Failed=true conditions", report);
    let targeted = now.failure_target != before.failure_target;
    let bad = (completed || targeted) && now.complete && now.failure_target;
    refuse(status, bad, "cannot set Complete=True and FailureTarget=true conditions", report);
}

fn times(
    new: &Field<'_, '_>,
    old: &Field<'_, '_>,
    now: &JobConditions,
    before: &JobConditions,
    report: &mut Report,
) {
    let status = new.get("status");
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    let ended = is_changed(new, old, "completionTime");
    if now.complete != before.complete || ended {
        if end.is_set() && !now.complete {
            report.invalid(&end, "cannot set completionTime when there is no Complete=True condition");
        }
        if !end.is_set() && now.complete {
            report.required(&end, "completionTime is required for Complete jobs");
        }
    }
    // RFC 3339 times in UTC sort like texts.
    if (ended || is_changed(new, old, "startTime"))
        && start.is_set()
        && end.is_set()
        && end.text() < start.text()
    {
        report.invalid(&end, "must be equal to or after `startTime`");
    }
}

fn outcomes(status: &Field<'_, '_>, now: &JobConditions, before: &JobConditions, report: &mut Report) {
    let bad = now.failed != before.failed && now.failed && !now.failure_target;
    refuse(status, bad, "cannot set Failed=True condition without the FailureTarget=true condition", report);
    let changed = now.complete != before.complete || now.criteria_met != before.criteria_met;
    let bad = changed && now.complete && !now.criteria_met;
    let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
    refuse(status, bad, why, report);
}

/// Checks for pods that a finished job must not have.
fn nothing_left(member: &str, status: &Field<'_, '_>, now: &JobConditions, report: &mut Report) {
    if now.finished() && status.number_of(member) > 0 {
        report.invalid(&status.get(member), &format!("{member}>0 is invalid for finished job"));
    }
}

fn finished(
    new: &Field<'_, '_>,
    old: &Field<'_, '_>,
    now: &JobConditions,
    before: &JobConditions,
    report: &mut Report,
) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let ended = now.finished() != before.finished();
    if ended || is_changed(new, old, "active") {
        nothing_left("active", &status, now, report);
    }
    let is_idle = spec.get("suspend").flag() && spec.get("completions").integer() == Some(0);
    if (ended || is_changed(new, old, "startTime")) && !is_idle && now.finished() && !status.has("startTime")
    {
        report.required(&status.get("startTime"), "startTime is required for finished job");
    }
    let uncounted = status.get("uncountedTerminatedPods");
    let is_rest = !uncounted.get("failed").is_empty() || !uncounted.get("succeeded").is_empty();
    if (ended || is_changed(new, old, "uncountedTerminatedPods")) && now.finished() && is_rest {
        report.invalid(&uncounted, "must be empty for finished job");
    }
}

fn index_lists(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let is_limited = spec.has("backoffLimitPerIndex");
    let (completed, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let (completed_changed, failed_changed) =
        (is_changed(new, old, "completedIndexes"), is_changed(new, old, "failedIndexes"));
    let mut parse = |field: &Field<'_, '_>, name: &str, is_reported: bool| {
        let all = spec.get("completions").integer()?;
        match indexes::parse(field.text(), all) {
            Ok(intervals) => Some(intervals),
            Err(why) => {
                if is_reported {
                    report.invalid(field, &format!("error parsing {name}: {why}"));
                }
                None
            }
        }
    };
    let successes = parse(&completed, "completedIndexes", completed_changed);
    let failures = parse(&failed, "failedIndexes", failed_changed && is_limited && failed.is_set());
    if completed_changed && !completed.text().is_empty() && spec.text_of("completionMode") != "Indexed" {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        report.invalid(&completed, why);
    }
    if failed_changed && failed.is_set() && !is_limited {
        report.invalid(&failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if (completed_changed || failed_changed)
        && let (Some(successes), Some(failures)) = (successes, failures)
        && let Some(index) = indexes::overlap(&successes, &failures)
    {
        report.invalid(&failed, &format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

fn last_conditions(new: &Field<'_, '_>, now: &JobConditions, report: &mut Report) {
    let status = new.get("status");
    let bad = now.criteria_met && now.failed;
    refuse(&status, bad, "cannot set SuccessCriteriaMet=True and Failed=true conditions", report);
    let bad = now.criteria_met && now.failure_target;
    refuse(&status, bad, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", report);
    let bad = new.get("spec").has("successPolicy") && !now.criteria_met && now.complete;
    let why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
    refuse(&status, bad, why, report);
}

/// Checks transitions from the stored status.
fn transitions(
    new: &Field<'_, '_>,
    old: &Field<'_, '_>,
    now: &JobConditions,
    before: &JobConditions,
    report: &mut Report,
) {
    let (spec, status, was) = (new.get("spec"), new.get("status"), old.get("status"));
    for (kind, before, now) in [
        ("Failed", before.failed, now.failed),
        ("Complete", before.complete, now.complete),
        ("FailureTarget", before.failure_target, now.failure_target),
    ] {
        let why = format!("cannot disable the terminal {kind}=True condition");
        refuse(&status, before && !now, &why, report);
    }
    // An indexed job whose pods all run at once can be scaled down.
    let is_elastic = spec.text_of("completionMode") == "Indexed"
        && spec.member("completions") == spec.member("parallelism");
    for (member, is_fixed) in [("failed", true), ("succeeded", !is_elastic)] {
        if is_fixed && status.number_of(member) < was.number_of(member) {
            let why = format!("cannot decrease the {member} counter");
            report.invalid_number(&status.get(member), &why);
        }
    }
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    if end.is_set() && was.has("completionTime") && is_changed(new, old, "completionTime") {
        report.invalid(&end, IMMUTABLE);
    }
    let is_resuming = before.suspended == Some(true) && now.suspended == Some(false);
    if is_changed(new, old, "startTime")
        && was.has("startTime")
        && !is_resuming
        && !spec.get("suspend").flag()
    {
        report.invalid(&start, "field is immutable for unsuspended job once set");
    }
    let gone = before.criteria_met && !now.criteria_met;
    refuse(&status, gone, "cannot disable the SuccessCriteriaMet=True condition", report);
    let late = before.complete && !before.criteria_met && now.criteria_met;
    let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
    refuse(&status, late, why, report);
}
