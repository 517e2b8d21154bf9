//! Rows of what runs pods.

use serde_json::Value;

use super::duration::{between, human_duration, parse, since};
use super::{NONE, Row, UNSET, int_or_string, labels, selector};
use crate::kinds::access::{at, flag, integer, text};
use crate::kinds::scale::label_selector_text;
use crate::resource::Target;

/// Metrics of an autoscaler that are shown; the others are counted.
const METRICS_SHOWN: usize = 2;

pub(super) fn cells(target: Target<'_>, row: &Row<'_>) -> Vec<Value> {
    let replicas = [["spec", "replicas"], ["status", "replicas"], ["status", "readyReplicas"]];
    let spec = ["spec", "template", "spec"];
    let selected = at(row.object, &["spec", "selector"]);
    match target.resource {
        "replicationcontrollers" | "replicasets" => {
            let [names, images] = row.containers(&spec);
            let selected = if target.group.is_empty() { labels(selected) } else { selector(selected) };
            let mut cells = vec![row.name()];
            cells.extend(replicas.map(|path| row.number(&path).into()));
            cells.extend([row.age(), names, images, selected]);
            cells
        }
        "deployments" => {
            let [names, images] = row.containers(&spec);
            let ready = format!("{}/{}", row.number(&replicas[2]), row.number(&replicas[0]));
            vec![
                row.name(),
                ready.into(),
                row.number(&["status", "updatedReplicas"]).into(),
                row.number(&["status", "availableReplicas"]).into(),
                row.age(),
                names,
                images,
                selected.map(label_selector_text).unwrap_or_default().into(),
            ]
        }
        "statefulsets" => {
            let [names, images] = row.containers(&spec);
            let ready = format!("{}/{}", row.number(&replicas[2]), row.number(&replicas[0]));
            vec![row.name(), ready.into(), row.age(), names, images]
        }
        "daemonsets" => daemon_set(row),
        "controllerrevisions" => {
            let owner = controller(row).unwrap_or_else(|| NONE.into());
            vec![row.name(), owner.into(), row.number(&["revision"]).into(), row.age()]
        }
        "jobs" => job(row),
        "cronjobs" => cron_job(row),
        "horizontalpodautoscalers" => autoscaler(target.version, row),
        "poddisruptionbudgets" => {
            let bound =
                |key: &str| int_or_string(at(row.object, &["spec", key])).unwrap_or_else(|| "N/A".into());
            vec![
                row.name(),
                bound("minAvailable").into(),
                bound("maxUnavailable").into(),
                row.number(&["status", "disruptionsAllowed"]).into(),
                row.age(),
            ]
        }
        _ => vec![row.name(), row.created()],
    }
}

fn daemon_set(row: &Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(&["spec", "template", "spec"]);
    let mut cells = vec![row.name()];
    for key in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ] {
        cells.push(row.number(&["status", key]).into());
    }
    cells.extend([
        labels(at(row.object, &["spec", "template", "spec", "nodeSelector"])),
        row.age(),
        names,
        images,
        selector(at(row.object, &["spec", "selector"])),
    ]);
    cells
}

/// `kind.group/name` of the controller, in small letters.
fn controller(row: &Row<'_>) -> Option<String> {
    let owners = row.list(&["metadata", "ownerReferences"]);
    let owner = owners.iter().find(|owner| flag(owner, &["controller"]) == Some(true))?;
    let group = text(owner, &["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let kind = text(owner, &["kind"]).to_lowercase();
    let name = text(owner, &["name"]);
    Some(if group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{group}/{name}") })
}

fn job(row: &Row<'_>) -> Vec<Value> {
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
        selector(at(row.object, &["spec", "selector"])),
    ]
}

fn cron_job(row: &Row<'_>) -> Vec<Value> {
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
        selector(at(row.object, &["spec", "jobTemplate", "spec", "selector"])),
    ]
}

fn autoscaler(version: &str, row: &Row<'_>) -> Vec<Value> {
    // Tables are made of the newest form of the object.
    let converted;
    let object = if version == "v1" {
        let mut object = row.object.clone();
        if let Some(members) = object.as_object_mut() {
            members.insert("apiVersion".into(), "autoscaling/v1".into());
        }
        converted = crate::kinds::convert::convert("autoscaling", "v2", "HorizontalPodAutoscaler", &object);
        &converted
    } else {
        row.object
    };
    let row = &Row { object, now: row.now };
    let reference = format!(
        "{}/{}",
        row.text(&["spec", "scaleTargetRef", "kind"]),
        row.text(&["spec", "scaleTargetRef", "name"])
    );
    let least =
        integer(object, &["spec", "minReplicas"]).map_or_else(|| UNSET.into(), |least| least.to_string());
    vec![
        row.name(),
        reference.into(),
        metrics(row).into(),
        least.into(),
        row.number(&["spec", "maxReplicas"]).into(),
        row.number(&["status", "currentReplicas"]).into(),
        row.age(),
    ]
}

/// The row of a Scale.
pub(super) fn scale(row: &Row<'_>) -> Vec<Value> {
    let replicas = |part: &str| row.number(&[part, "replicas"]).into();
    vec![row.name(), replicas("spec"), replicas("status"), row.age()]
}

fn metrics(row: &Row<'_>) -> String {
    let wanted = row.list(&["spec", "metrics"]);
    if wanted.is_empty() {
        return NONE.into();
    }
    let have = row.list(&["status", "currentMetrics"]);
    let shown: Vec<String> = wanted
        .iter()
        .take(METRICS_SHOWN)
        .enumerate()
        .map(|(index, metric)| one_metric(metric, have.get(index)))
        .collect();
    let text = shown.join(", ");
    if wanted.len() > METRICS_SHOWN {
        return format!("{text} + {} more...", wanted.len() - METRICS_SHOWN);
    }
    text
}

fn one_metric(metric: &Value, status: Option<&Value>) -> String {
    let source = match text(metric, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let target = |key: &str| int_or_string(at(metric, &[source, "target", key]));
    let current = |key: &str| {
        status
            .and_then(|status| int_or_string(at(status, &[source, "current", key])))
            .unwrap_or_else(|| "<unknown>".into())
    };
    match source {
        "pods" => format!("{}/{}", current("averageValue"), target("averageValue").unwrap_or_default()),
        "external" | "object" => match target("averageValue") {
            Some(average) => format!("{}/{average} (avg)", current("averageValue")),
            None => format!("{}/{}", current("value"), target("value").unwrap_or_default()),
        },
        _ => {
            let name = text(metric, &[source, "name"]);
            if let Some(average) = target("averageValue") {
                return format!("{name}: {}/{average}", current("averageValue"));
            }
            let percent = |text: String| if text.starts_with('<') { text } else { format!("{text}%") };
            let wanted = target("averageUtilization").map_or_else(|| "<auto>".into(), percent);
            format!("{name}: {}/{wanted}", percent(current("averageUtilization")))
        }
    }
}
