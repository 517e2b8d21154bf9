//! Kinds that run pods.

use serde_json::Value;

use super::names::{is_empty, selector, selects};
use super::pod::template;
use super::report::Report;
use crate::kinds::access::{at, flag, integer, list, members, text};
use crate::kinds::cron;

/// Longest name of a job: its pods get a suffix behind it.
const JOB_NAME: usize = 63;
/// Longest name of a cron job: its jobs get a suffix behind it.
const CRON_JOB_NAME: usize = 52;
/// Most parallel pods of an indexed job.
const INDEXED: i64 = 100_000;

const SELECTOR_MISMATCH: &str = "`selector` does not match template `labels`";
const EMPTY_SELECTOR: &str = "empty selector is invalid for";

/// Selector and template of a workload: the selector must not be empty and must select the template's labels.
fn selected_template(object: &Value, kind: &str, report: &mut Report) {
    let chosen = at(object, &["spec", "selector"]);
    match chosen {
        None => report.required("spec.selector", ""),
        Some(chosen) => {
            selector(Some(chosen), "spec.selector", report);
            if is_empty(chosen) {
                report.invalid("spec.selector", Some(chosen), &format!("{EMPTY_SELECTOR} {kind}"));
            }
        }
    }
    template(at(object, &["spec", "template"]), "spec.template", report);
    let have = at(object, &["spec", "template", "metadata", "labels"]);
    if let Some(chosen) = chosen
        && !is_empty(chosen)
        && !selects(chosen, have)
    {
        let empty = Value::Object(serde_json::Map::new());
        report.invalid("spec.template.metadata.labels", Some(have.unwrap_or(&empty)), SELECTOR_MISMATCH);
    }
}

/// The pods of a workload that keeps them running are always restarted.
fn always_restarted(object: &Value, report: &mut Report) {
    let policy = at(object, &["spec", "template", "spec", "restartPolicy"]);
    if policy.is_some_and(|policy| policy != "Always" && policy != "") {
        report.not_supported("spec.template.spec.restartPolicy", policy, &["Always"]);
    }
    let deadline = at(object, &["spec", "template", "spec", "activeDeadlineSeconds"]);
    if deadline.is_some() {
        report.forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            "activeDeadlineSeconds in ReplicaSet is not Supported",
        );
    }
}

fn spec_numbers(object: &Value, keys: &[&str], report: &mut Report) {
    for key in keys {
        report.not_negative(object, &["spec", key], &format!("spec.{key}"));
    }
}

pub(super) fn replication_controller(object: &Value, report: &mut Report) {
    spec_numbers(object, &["replicas", "minReadySeconds"], report);
    let chosen = members(object, &["spec", "selector"]).filter(|chosen| !chosen.is_empty());
    if chosen.is_none() {
        report.required("spec.selector", "");
    }
    template(at(object, &["spec", "template"]), "spec.template", report);
    let have = at(object, &["spec", "template", "metadata", "labels"]);
    let selected = chosen
        .into_iter()
        .flatten()
        .all(|(key, value)| have.and_then(|have| have.get(key)).is_some_and(|have| have == value));
    if !selected {
        let empty = Value::Object(serde_json::Map::new());
        report.invalid("spec.template.metadata.labels", Some(have.unwrap_or(&empty)), SELECTOR_MISMATCH);
    }
    always_restarted(object, report);
}

pub(super) fn replica_set(object: &Value, report: &mut Report) {
    spec_numbers(object, &["replicas", "minReadySeconds"], report);
    selected_template(object, "deployment", report);
    always_restarted(object, report);
}

pub(super) fn deployment(object: &Value, report: &mut Report) {
    spec_numbers(object, &["replicas", "minReadySeconds", "revisionHistoryLimit"], report);
    selected_template(object, "deployment", report);
    always_restarted(object, report);
    let strategy = at(object, &["spec", "strategy", "type"]);
    let update = at(object, &["spec", "strategy", "rollingUpdate"]);
    match strategy.and_then(Value::as_str).unwrap_or_default() {
        "Recreate" => {
            if update.is_some() {
                report.forbidden(
                    "spec.strategy.rollingUpdate",
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
        }
        "RollingUpdate" => match update {
            None => {
                report.required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil");
            }
            Some(update) => rolling_update(update, "spec.strategy.rollingUpdate", report),
        },
        _ => report.not_supported("spec.strategy.type", strategy, &["Recreate", "RollingUpdate"]),
    }
    let deadline = at(object, &["spec", "progressDeadlineSeconds"]);
    report.not_negative(object, &["spec", "progressDeadlineSeconds"], "spec.progressDeadlineSeconds");
    let ready = integer(object, &["spec", "minReadySeconds"]).unwrap_or_default();
    if deadline.and_then(Value::as_i64).is_some_and(|deadline| deadline <= ready) {
        report.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds");
    }
}

fn rolling_update(update: &Value, field: &str, report: &mut Report) {
    for key in ["maxUnavailable", "maxSurge"] {
        int_or_percent(at(update, &[key]), &format!("{field}.{key}"), report);
    }
    let is_zero = |key: &str| match at(update, &[key]) {
        None => true,
        Some(Value::String(text)) => text == "0%",
        Some(number) => number.as_i64() == Some(0),
    };
    if is_zero("maxUnavailable") && is_zero("maxSurge") {
        report.invalid(
            &format!("{field}.maxUnavailable"),
            at(update, &["maxUnavailable"]),
            "may not be 0 when `maxSurge` is 0",
        );
    }
    let percent = at(update, &["maxUnavailable"])
        .and_then(Value::as_str)
        .and_then(|text| text.strip_suffix('%'))
        .and_then(|text| text.parse::<i64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        report.invalid(
            &format!("{field}.maxUnavailable"),
            at(update, &["maxUnavailable"]),
            "must not be greater than 100%",
        );
    }
}

fn int_or_percent(value: Option<&Value>, field: &str, report: &mut Report) {
    match value {
        Some(Value::String(text)) => {
            let digits = text.strip_suffix('%').unwrap_or("x");
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                report.invalid(
                    field,
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                     '93%', regex used for validation is '[0-9]+%')",
                );
            }
        }
        Some(number) if number.as_i64().is_some_and(|number| number < 0) => {
            report.invalid(field, value, "must be greater than or equal to 0");
        }
        _ => {}
    }
}

pub(super) fn stateful_set(object: &Value, report: &mut Report) {
    report.one_of(
        "spec.podManagementPolicy",
        at(object, &["spec", "podManagementPolicy"]),
        &["OrderedReady", "Parallel"],
    );
    let strategy = at(object, &["spec", "updateStrategy", "type"]);
    match strategy.and_then(Value::as_str).unwrap_or_default() {
        "" => report.required("spec.updateStrategy", ""),
        "OnDelete" => {
            if at(object, &["spec", "updateStrategy", "rollingUpdate"]).is_some() {
                report.invalid(
                    "spec.updateStrategy.rollingUpdate",
                    at(object, &["spec", "updateStrategy", "rollingUpdate"]),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => report.not_negative(
            object,
            &["spec", "updateStrategy", "rollingUpdate", "partition"],
            "spec.updateStrategy.rollingUpdate.partition",
        ),
        _ => report.invalid("spec.updateStrategy", strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    for key in ["whenDeleted", "whenScaled"] {
        let field = format!("spec.persistentVolumeClaimRetentionPolicy.{key}");
        let value = at(object, &["spec", "persistentVolumeClaimRetentionPolicy", key]);
        report.one_of_if_set(&field, value, &["Retain", "Delete"]);
    }
    spec_numbers(object, &["replicas", "minReadySeconds", "revisionHistoryLimit"], report);
    selected_template(object, "statefulset", report);
    always_restarted(object, report);
}

pub(super) fn daemon_set(object: &Value, report: &mut Report) {
    selected_template(object, "daemonset", report);
    always_restarted(object, report);
    spec_numbers(object, &["minReadySeconds", "revisionHistoryLimit"], report);
    let strategy = at(object, &["spec", "updateStrategy", "type"]);
    match strategy.and_then(Value::as_str).unwrap_or_default() {
        "OnDelete" => {}
        "RollingUpdate" => match at(object, &["spec", "updateStrategy", "rollingUpdate"]) {
            None => report.required("spec.updateStrategy.rollingUpdate", ""),
            Some(update) => rolling_update(update, "spec.updateStrategy.rollingUpdate", report),
        },
        _ => {
            report.not_supported("spec.updateStrategy.type", strategy, &["RollingUpdate", "OnDelete"]);
        }
    }
}

pub(super) fn controller_revision(object: &Value, report: &mut Report) {
    if at(object, &["data"]).is_none() {
        report.required("data", "data is mandatory");
    }
    report.not_negative(object, &["revision"], "revision");
}

pub(super) fn job(object: &Value, report: &mut Report) {
    let name = text(object, &["metadata", "name"]);
    if name.len() > JOB_NAME {
        report.invalid_text("metadata.name", name, "must be no more than 63 characters");
    }
    job_spec(at(object, &["spec"]).unwrap_or(&Value::Null), "spec", report);
    if at(object, &["spec", "selector"]).is_none() {
        report.required("spec.selector", "");
    }
    generated_selector(object, report);
    let have = at(object, &["spec", "template", "metadata", "labels"]);
    if let Some(chosen) = at(object, &["spec", "selector"])
        && !selects(chosen, have)
    {
        let empty = Value::Object(serde_json::Map::new());
        report.invalid("spec.template.metadata.labels", Some(have.unwrap_or(&empty)), SELECTOR_MISMATCH);
    }
}

/// What the server generates must not be something else already.
fn generated_selector(object: &Value, report: &mut Report) {
    if flag(object, &["spec", "manualSelector"]) == Some(true) {
        return;
    }
    let uid = text(object, &["metadata", "uid"]);
    let name = text(object, &["metadata", "name"]);
    let labels_at = ["spec", "template", "metadata", "labels"];
    for prefix in ["", "batch.kubernetes.io/"] {
        for (key, wanted) in [("controller-uid", uid), ("job-name", name)] {
            let key = format!("{prefix}{key}");
            let have = at(object, &[&labels_at[..], &[&key]].concat());
            match have.and_then(Value::as_str) {
                Some(have) if have == wanted => {}
                // An object that was stored before the prefixed labels existed has the others.
                None if !prefix.is_empty() => {}
                _ => report.invalid(
                    "spec.template.metadata.labels",
                    at(object, &labels_at),
                    &format!("must be '{wanted}'"),
                ),
            }
        }
    }
}

/// The spec of a job, or of the jobs that a cron job makes.
fn job_spec(spec: &Value, field: &str, report: &mut Report) {
    for key in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        report.not_negative(spec, &[key], &format!("{field}.{key}"));
    }
    report.not_negative(spec, &["backoffLimitPerIndex"], &format!("{field}.backoffLimitPerIndex"));
    report.not_negative(spec, &["maxFailedIndexes"], &format!("{field}.maxFailedIndexes"));
    selector(at(spec, &["selector"]), &format!("{field}.selector"), report);
    report.one_of_if_set(
        &format!("{field}.completionMode"),
        at(spec, &["completionMode"]),
        &["NonIndexed", "Indexed"],
    );
    let indexed = text(spec, &["completionMode"]) == "Indexed";
    if indexed {
        if at(spec, &["completions"]).is_none() {
            report.required(&format!("{field}.completions"), "when completion mode is Indexed");
        }
        let parallel = at(spec, &["parallelism"]);
        if parallel.and_then(Value::as_i64).is_some_and(|number| number > INDEXED) {
            let why = format!("must be less than or equal to {INDEXED} when completion mode is Indexed");
            report.invalid(&format!("{field}.parallelism"), parallel, &why);
        }
    } else {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if at(spec, &[key]).is_some() {
                report.invalid(
                    &format!("{field}.{key}"),
                    at(spec, &[key]),
                    "requires indexed completion mode",
                );
            }
        }
    }
    report.one_of_if_set(
        &format!("{field}.podReplacementPolicy"),
        at(spec, &["podReplacementPolicy"]),
        &["Failed", "TerminatingOrFailed"],
    );
    let manager = text(spec, &["managedBy"]);
    if !manager.is_empty() && !manager.contains('/') {
        report.invalid_text(
            &format!("{field}.managedBy"),
            manager,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        );
    }
    template(at(spec, &["template"]), &format!("{field}.template"), report);
    let restart = at(spec, &["template", "spec", "restartPolicy"]);
    let path = format!("{field}.template.spec.restartPolicy");
    match restart.and_then(Value::as_str).unwrap_or_default() {
        "Always" => {
            // The default means that the author said nothing.
            report.required(&path, "valid values: \"OnFailure\", \"Never\"");
        }
        "OnFailure" if at(spec, &["podFailurePolicy"]).is_some() => {
            report.invalid(&path, restart, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        _ => {}
    }
}

pub(super) fn cron_job(object: &Value, report: &mut Report) {
    let name = text(object, &["metadata", "name"]);
    if name.len() > CRON_JOB_NAME {
        report.invalid_text("metadata.name", name, "must be no more than 52 characters");
    }
    let schedule = text(object, &["spec", "schedule"]);
    if schedule.is_empty() {
        report.required("spec.schedule", "");
    } else if let Err(problem) = cron::check(schedule) {
        report.invalid_text("spec.schedule", schedule, &problem);
    } else if schedule.contains("TZ=") && at(object, &["spec", "timeZone"]).is_some() {
        report.invalid_text(
            "spec.schedule",
            schedule,
            "cannot use both timeZone field and TZ or CRON_TZ in schedule",
        );
    } else if schedule.contains("TZ=") {
        report.invalid_text(
            "spec.schedule",
            schedule,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    }
    let zone = at(object, &["spec", "timeZone"]);
    match zone.and_then(Value::as_str) {
        Some("") => report.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string"),
        Some("Local") => {
            report.invalid(
                "spec.timeZone",
                zone,
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            );
        }
        _ => {}
    }
    report.one_of(
        "spec.concurrencyPolicy",
        at(object, &["spec", "concurrencyPolicy"]),
        &["Allow", "Forbid", "Replace"],
    );
    spec_numbers(
        object,
        &["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"],
        report,
    );
    let jobs = at(object, &["spec", "jobTemplate", "spec"]).unwrap_or(&Value::Null);
    if let Some(chosen) = at(jobs, &["selector"]) {
        report.invalid("spec.jobTemplate.spec.selector", Some(chosen), "`selector` will be auto-generated");
    }
    if flag(jobs, &["manualSelector"]) == Some(true) {
        report.not_supported(
            "spec.jobTemplate.spec.manualSelector",
            at(jobs, &["manualSelector"]),
            &["nil", "false"],
        );
    }
    job_spec(jobs, "spec.jobTemplate.spec", report);
}

pub(super) fn autoscaler(version: &str, object: &Value, report: &mut Report) {
    let least = at(object, &["spec", "minReplicas"]);
    if least.and_then(Value::as_i64).is_some_and(|least| least < 1) {
        report.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    let most = at(object, &["spec", "maxReplicas"]);
    let greatest = most.and_then(Value::as_i64).unwrap_or_default();
    if greatest < 1 {
        report.invalid("spec.maxReplicas", Some(&greatest.into()), "must be greater than 0");
    }
    if least.and_then(Value::as_i64).is_some_and(|least| greatest < least) {
        report.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`");
    }
    for key in ["kind", "name"] {
        if text(object, &["spec", "scaleTargetRef", key]).is_empty() {
            report.required(&format!("spec.scaleTargetRef.{key}"), "");
        }
    }
    if version == "v1" {
        report.positive(
            object,
            &["spec", "targetCPUUtilizationPercentage"],
            "spec.targetCPUUtilizationPercentage",
        );
        return;
    }
    for (index, metric) in list(object, &["spec", "metrics"]).iter().enumerate() {
        let field = format!("spec.metrics[{index}]");
        report.one_of(
            &format!("{field}.type"),
            metric.get("type"),
            &["ContainerResource", "External", "Object", "Pods", "Resource"],
        );
        for source in ["containerResource", "external", "object", "pods", "resource"] {
            let target = at(metric, &[source, "target"]);
            if let Some(target) = target {
                report.positive(
                    target,
                    &["averageUtilization"],
                    &format!("{field}.{source}.target.averageUtilization"),
                );
            }
        }
    }
}

pub(super) fn disruption_budget(object: &Value, report: &mut Report) {
    let least = at(object, &["spec", "minAvailable"]);
    let most = at(object, &["spec", "maxUnavailable"]);
    if least.is_some() && most.is_some() {
        report.invalid("spec", at(object, &["spec"]), "minAvailable and maxUnavailable cannot be both set");
    }
    for (key, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        int_or_percent(value, &format!("spec.{key}"), report);
    }
    selector(at(object, &["spec", "selector"]), "spec.selector", report);
    report.one_of_if_set(
        "spec.unhealthyPodEvictionPolicy",
        at(object, &["spec", "unhealthyPodEvictionPolicy"]),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}
