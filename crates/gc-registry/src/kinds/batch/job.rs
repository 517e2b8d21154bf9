//! Jobs.

use super::{job_status, policies};
use crate::kinds::prelude::*;
use crate::kinds::printers::duration::{between, human_duration, parse};
use crate::kinds::shared::labels::{is_valid, selector, selects};
use crate::kinds::shared::names::{dns_label, domain_prefixed_path};
use crate::kinds::shared::pod_defaults::{failure_policy, inherit_labels, labels_of_template, template};
use crate::kinds::shared::pod_spec;
use crate::kinds::shared::workloads::{SELECTOR_MISMATCH, template_labels};
use crate::metadata::names::label_value;

/// Maximum number of parallel pods, and of failed indexes, of an indexed job.
const INDEXED_MAX: i64 = 100_000;
/// The same limits if there are more indexes than that and each has its own backoff limit.
const MANY_INDEXES_MAX: i64 = 10_000;
const MANAGER_MAX_BYTES: usize = 63;
/// Upstream's default of `backoffLimit` if failures are counted per index.
const UNLIMITED: i64 = i32::MAX as i64;

pub(crate) struct Job;

impl Kind for Job {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Change], ..Metadata::DEFAULT };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["spec", "template"]);
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Status", T("Status of the job.")),
        H::text("Completions", F("api.batch.v1.JobStatus", "succeeded")),
        H::text("Duration", T("Time required to complete the job.")),
        H::AGE,
        H::wide("Containers", H::CONTAINERS),
        H::wide("Images", H::IMAGES),
        H::wide("Selector", F("api.batch.v1.JobSpec", "selector")),
    ];
    const FIELD_LABELS: &'static [&'static str] = &["status.successful"];
    const UNKNOWN_FIELD_LABEL: &'static str = "field label \"{}\" not supported for Job";

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let done = row.number(&["status", "succeeded"]);
        let completions = match integer(row.object, &["spec", "completions"]) {
            Some(wanted) => format!("{done}/{wanted}"),
            None => match row.number(&["spec", "parallelism"]) {
                many @ 2.. => format!("{done}/1 of {many}"),
                _ => format!("{done}/1"),
            },
        };
        let start = parse(at(row.object, &["status", "startTime"]));
        let end = parse(at(row.object, &["status", "completionTime"]));
        let duration = start.map(|start| human_duration(between(start, end.unwrap_or(row.now))));
        let holds = |kind: &str| {
            let conditions = row.list(&["status", "conditions"]);
            let condition = conditions.iter().find(|condition| text(condition, &["type"]) == kind);
            condition.is_some_and(|condition| text(condition, &["status"]) == "True")
        };
        let status = if holds("Complete") {
            "Complete"
        } else if holds("Failed") {
            "Failed"
        } else if at(row.object, &["metadata", "deletionTimestamp"]).is_some() {
            "Terminating"
        } else if holds("Suspended") {
            "Suspended"
        } else if holds("FailureTarget") {
            "FailureTarget"
        } else if holds("SuccessCriteriaMet") {
            "SuccessCriteriaMet"
        } else {
            "Running"
        };
        let [names, images] = row.containers(&["spec", "template", "spec"]);
        vec![
            row.name(),
            status.into(),
            completions.into(),
            duration.unwrap_or_default().into(),
            row.age(),
            names,
            images,
            shown_selector(at(row.object, &["spec", "selector"])),
        ]
    }

    fn defaults(members: &mut Members) {
        let labels = labels_of_template(members);
        inherit_labels(members, labels);
        let Some(spec) = child(members, "spec") else { return };
        let is_set = |spec: &Members, key: &str| spec.get(key).is_some_and(|value| !value.is_null());
        if !is_set(spec, "completions") && !is_set(spec, "parallelism") {
            fill_absent(spec, "completions", 1);
        }
        fill_absent(spec, "parallelism", 1);
        let backoff = if is_set(spec, "backoffLimitPerIndex") { UNLIMITED } else { 6 };
        fill_absent(spec, "backoffLimit", backoff);
        fill_absent(spec, "completionMode", "NonIndexed");
        fill_absent(spec, "suspend", false);
        fill_absent(spec, "manualSelector", false);
        let replacement = if is_set(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        fill_absent(spec, "podReplacementPolicy", replacement);
        failure_policy(spec);
        template(spec, "template");
    }

    fn prepare_create(object: &mut Value, _: &Context<'_>) {
        if has_label_for_name(object) {
            select_own_pods(object);
        }
    }

    /// Labels the template only after defaulting if the job's name is not a valid label. The job itself would inherit these labels
    /// only in the answer, but it is refused before.
    fn complete_create(object: &mut Value) {
        if !has_label_for_name(object) {
            select_own_pods(object);
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        warnings::name_of_pods(new, old, texts);
        warnings::template(&["spec", "template"], new, old, texts);
    }

    fn field_label(name: &str, object: &Value) -> String {
        match name {
            "status.successful" => integer(object, &["status", "succeeded"]).unwrap_or_default().to_string(),
            _ => text_label(name, object),
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        generated_selector(object, report);
        whole_spec(&object.get("spec"), report);
        let spec = object.get("spec");
        let completions = spec.number_of("completions");
        if spec.text_of("completionMode") == "Indexed" && completions > 0 {
            let metadata = object.get("metadata");
            let name = metadata.get("name");
            let last = format!("{}-{}", name.text(), completions - 1);
            if !dns_label(&last).is_empty() {
                let why = format!("will not able to create pod with invalid DNS label: {last}");
                report.invalid(&name, &why);
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let (spec, before) = (new.get("spec"), old.get("spec"));
        // Upstream reports the errors of the spec twice.
        Self::validate(new, report);
        whole_spec(&spec, report);
        completions(&spec, &before, report);
        let sealed = |member: &str, report: &mut Report| {
            let field = spec.get(member);
            if field.value() != before.member(member) {
                report.invalid(&field, IMMUTABLE);
            }
        };
        sealed("selector", report);
        let (template, was) = (template_of(new, old), before.member("template"));
        if !before.get("suspend").flag() {
            sealed("template", report);
        } else if template.get("spec") != was.get("spec") {
            report.invalid(&spec.get("template").get("spec"), IMMUTABLE);
        }
        for member in
            ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
        {
            sealed(member, report);
        }
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        job_status::status(new, old, report);
    }
}

/// Checks that a generated selector does not conflict.
fn generated_selector(object: &Field<'_, '_>, report: &mut Report) {
    let (metadata, spec) = (object.get("metadata"), object.get("spec"));
    if spec.get("manualSelector").flag() || !spec.has("selector") {
        return;
    }
    let (name, uid) = (metadata.text_of("name"), metadata.text_of("uid"));
    let template = spec.get("template");
    let labels = template_labels(&template);
    let inner = template.get("metadata");
    let field = inner.named("labels", labels);
    for (key, wanted) in [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ] {
        match labels.get(key).and_then(Value::as_str) {
            Some(have) if have == wanted => {}
            Some(_) => {
                report.invalid(&field.key(key, labels), &format!("must be '{wanted}'"));
            }
            None => report.required(&field.key(key, labels), &format!("must be '{wanted}'")),
        }
    }
    let expected = json!({
        "controller-uid": uid, "job-name": name,
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
    });
    if !selects(spec.member("selector"), &expected) {
        report.invalid(&spec.get("selector"), "`selector` not auto-generated");
    }
}

/// Validates the spec of a standalone job.
fn whole_spec(spec: &Field<'_, '_>, report: &mut Report) {
    job_spec(spec, report);
    let field = spec.get("selector");
    if field.is_set() {
        selector(&field, report);
    } else {
        report.required(&field, "");
    }
    let template = spec.get("template");
    let labels = template_labels(&template);
    if is_valid(&field) && !selects(field.value(), labels) {
        let metadata = template.get("metadata");
        report.invalid(&metadata.named("labels", labels), SELECTOR_MISMATCH);
    }
}

/// Validates the spec of a job, or of a cron job's job template.
pub(crate) fn job_spec(spec: &Field<'_, '_>, report: &mut Report) {
    for member in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        report.not_negative(&spec.get(member));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        report.required(&spec.get("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    let manager = spec.get("managedBy");
    if manager.is_set() {
        domain_prefixed_path(&manager, report);
        if manager.text().len() > MANAGER_MAX_BYTES {
            report.too_long(&manager, MANAGER_MAX_BYTES);
        }
    }
    completion_mode(spec, report);
    policies::failure(spec, report);
    policies::success(spec, report);
    let replacement = spec.get("podReplacementPolicy");
    if spec.has("podFailurePolicy") {
        report.one_of_if_set(&replacement, &["Failed"]);
    } else {
        report.one_of_if_set(&replacement, &["Failed", "TerminatingOrFailed"]);
    }
    let template = spec.get("template");
    pod_spec::template(&template, report);
    let pod = template.get("spec");
    let policy = pod.get("restartPolicy");
    match policy.text() {
        // This is the default, so the author has not chosen a policy.
        "" | "Always" => report.required(&policy, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            report.invalid(&policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => report.not_supported(&policy, &["OnFailure", "Never"]),
    }
}

fn at_most(field: &Field<'_, '_>, most: i64, when: &str, report: &mut Report) {
    if field.number() > most {
        report.invalid(field, &format!("must be less than or equal to {most}{when}"));
    }
}

fn completion_mode(spec: &Field<'_, '_>, report: &mut Report) {
    let mode = spec.get("completionMode");
    report.one_of_if_set(&mode, &["NonIndexed", "Indexed"]);
    let (completions, parallel) = (spec.get("completions"), spec.get("parallelism"));
    let failed = spec.get("maxFailedIndexes");
    match mode.text() {
        "Indexed" => {
            if !completions.is_set() {
                report.required(&completions, "when completion mode is Indexed");
            }
            at_most(&parallel, INDEXED_MAX, " when completion mode is Indexed", report);
            if let (Some(all), Some(failures)) = (completions.integer(), failed.integer())
                && failures > all
            {
                report.invalid(&failed, "must be less than or equal to completions");
            }
            at_most(&failed, INDEXED_MAX, "", report);
            if completions.number() > INDEXED_MAX && spec.has("backoffLimitPerIndex") {
                let when = " when completions are above 100000 and used with backoff limit per index";
                at_most(&parallel, MANY_INDEXES_MAX, when, report);
                at_most(&failed, MANY_INDEXES_MAX, when, report);
                if !failed.is_set() {
                    report.required(&failed, "must be specified when completions is above 100000");
                }
            }
        }
        // An unset mode counts as the default, an empty one does not.
        kind if kind == "NonIndexed" || !mode.is_set() => {
            for member in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if spec.has(member) {
                    report.invalid(&spec.get(member), "requires indexed completion mode");
                }
            }
        }
        _ => {}
    }
}

/// Checks that the number of pods does not change, except for an indexed job whose pods all run at once.
fn completions(spec: &Field<'_, '_>, before: &Field<'_, '_>, report: &mut Report) {
    let field = spec.get("completions");
    if field.value() == before.member("completions") {
        return;
    }
    if spec.text_of("completionMode") != "Indexed" {
        report.invalid(&field, IMMUTABLE);
    } else if !field.is_set() || field.value() != spec.member("parallelism") {
        report.invalid(&field, "can only be modified in tandem with spec.parallelism");
    }
}

/// Returns the new template of a suspended job with its mutable fields as they were: where its pods run and which resources they
/// use.
fn template_of(new: &Field<'_, '_>, old: &Field<'_, '_>) -> Value {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let mut template = spec.member("template").clone();
    let was = before.member("template");
    let mut keep = |path: &[&str]| match at(was, path) {
        Some(value) => put(&mut template, path, value.clone()),
        None => remove(&mut template, path),
    };
    keep(&["metadata", "annotations"]);
    keep(&["metadata", "labels"]);
    for member in ["nodeSelector", "tolerations", "schedulingGates"] {
        keep(&["spec", member]);
    }
    keep(&["spec", "affinity", "nodeAffinity"]);
    let bare = |template: &Value| at(template, &["spec", "affinity"]) == Some(&json!({}));
    if bare(&template) && !bare(was) {
        remove(&mut template, &["spec", "affinity"]);
    }
    for member in ["containers", "initContainers"] {
        let theirs = crate::kinds::access::list(was, &["spec", member]).to_vec();
        let Some(ours) = template.pointer_mut(&format!("/spec/{member}")).and_then(Value::as_array_mut)
        else {
            continue;
        };
        if ours.len() != theirs.len() {
            continue;
        }
        for (container, was) in ours.iter_mut().zip(theirs) {
            crate::kinds::access::keep(container, &was, "resources");
        }
    }
    template
}

/// Reports whether the name of a job is valid as a label of its pods.
fn has_label_for_name(job: &Value) -> bool {
    label_value(text(job, &["metadata", "name"])).is_empty()
}

/// Labels the template with the identity of the job, and selects by it, unless the client provides its own selector.
fn select_own_pods(object: &mut Value) {
    if flag(object, &["spec", "manualSelector"]) == Some(true) {
        return;
    }
    let name = text(object, &["metadata", "name"]).to_owned();
    let uid = text(object, &["metadata", "uid"]).to_owned();
    let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    let labels = child(spec, "template")
        .and_then(|template| child(template, "metadata"))
        .and_then(|metadata| child(metadata, "labels"));
    if let Some(labels) = labels {
        for prefix in ["", "batch.kubernetes.io/"] {
            labels.entry(format!("{prefix}job-name")).or_insert_with(|| name.clone().into());
            labels.entry(format!("{prefix}controller-uid")).or_insert_with(|| uid.clone().into());
        }
    }
    if let Some(labels) = child(spec, "selector").and_then(|selector| child(selector, "matchLabels")) {
        labels.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| uid.into());
    }
}
