//! Kinds that run pods.

use serde_json::{Value, json};

use super::pod::{claim_spec, template};
use super::{Members, child, existing, fill, fill_absent, is_unset, items};

/// Upstream's default of `backoffLimit` where failures are counted per index.
const UNLIMITED: i64 = i32::MAX as i64;

pub(super) fn replication_controller(members: &mut Members) {
    let labels = template_labels(members, &["spec", "template"]);
    if let Some(spec) = child(members, "spec") {
        fill_absent(spec, "replicas", 1);
        if spec.get("template").is_some() {
            template(spec, "template");
        }
        if let Some(labels) = &labels {
            fill_absent(spec, "selector", labels.clone());
        }
    }
    inherit_labels(members, labels);
    if let Some(status) = child(members, "status") {
        fill_absent(status, "replicas", 0);
    }
}

pub(super) fn deployment(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    fill_absent(spec, "replicas", 1);
    template(spec, "template");
    rolling(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
    fill_absent(spec, "revisionHistoryLimit", 10);
    fill_absent(spec, "progressDeadlineSeconds", 600);
}

pub(super) fn replica_set(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        fill_absent(spec, "replicas", 1);
        template(spec, "template");
    }
    if let Some(status) = child(members, "status") {
        fill_absent(status, "replicas", 0);
    }
}

pub(super) fn stateful_set(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        fill(spec, "podManagementPolicy", "OrderedReady");
        if let Some(strategy) = child(spec, "updateStrategy") {
            // Whoever names the strategy may leave its parameters out.
            if is_unset(strategy, "type") {
                fill(strategy, "type", "RollingUpdate");
                child(strategy, "rollingUpdate");
            }
            if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
                && let Some(update) = existing(strategy, "rollingUpdate")
            {
                fill_absent(update, "partition", 0);
            }
        }
        if let Some(policy) = child(spec, "persistentVolumeClaimRetentionPolicy") {
            fill(policy, "whenDeleted", "Retain");
            fill(policy, "whenScaled", "Retain");
        }
        fill_absent(spec, "replicas", 1);
        fill_absent(spec, "revisionHistoryLimit", 10);
        fill_absent(spec, "serviceName", "");
        template(spec, "template");
        for claim in items(spec, "volumeClaimTemplates") {
            // Whatever the client wrote: a template is of one kind.
            claim.insert("apiVersion".into(), "v1".into());
            claim.insert("kind".into(), "PersistentVolumeClaim".into());
            child(claim, "metadata");
            if let Some(spec) = child(claim, "spec") {
                claim_spec(spec);
            }
            if let Some(status) = child(claim, "status") {
                fill(status, "phase", "Pending");
            }
        }
    }
    if let Some(status) = child(members, "status") {
        fill_absent(status, "replicas", 0);
        fill_absent(status, "availableReplicas", 0);
    }
}

pub(super) fn daemon_set(members: &mut Members) {
    // The version that has no field for it has it as an annotation, always.
    if let Some(annotations) = child(members, "metadata").and_then(|metadata| child(metadata, "annotations"))
    {
        annotations.entry("deprecated.daemonset.template.generation").or_insert_with(|| "0".into());
    }
    if let Some(spec) = child(members, "spec") {
        rolling(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
        fill_absent(spec, "revisionHistoryLimit", 10);
        template(spec, "template");
    }
    if let Some(status) = child(members, "status") {
        for key in ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"] {
            fill_absent(status, key, 0);
        }
    }
}

/// A rolling update is the default strategy, and gets these parameters.
fn rolling(spec: &mut Members, key: &str, parameters: &[(&str, Value)]) {
    let Some(strategy) = child(spec, key) else { return };
    fill(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
        && let Some(update) = child(strategy, "rollingUpdate")
    {
        for (key, value) in parameters {
            fill_absent(update, key, value.clone());
        }
    }
}

pub(super) fn job(members: &mut Members) {
    let labels = template_labels(members, &["spec", "template"]);
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

/// A condition that a failure policy looks for is true, unless it says otherwise.
fn failure_policy(job_spec: &mut Members) {
    let Some(policy) = existing(job_spec, "podFailurePolicy") else { return };
    for rule in items(policy, "rules") {
        for pattern in items(rule, "onPodConditions") {
            fill(pattern, "status", "True");
        }
    }
}

pub(super) fn cron_job(members: &mut Members) {
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

pub(super) fn autoscaler(version: &str, members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    fill_absent(spec, "minReplicas", 1);
    if version == "v1" {
        let custom = members
            .get("metadata")
            .and_then(|metadata| metadata.get("annotations"))
            .and_then(|annotations| annotations.get("autoscaling.alpha.kubernetes.io/metrics"))
            .is_some();
        if !custom && let Some(spec) = existing(members, "spec") {
            fill_absent(spec, "targetCPUUtilizationPercentage", 80);
        }
        if let Some(status) = child(members, "status") {
            fill_absent(status, "currentReplicas", 0);
            fill_absent(status, "desiredReplicas", 0);
        }
        return;
    }
    if spec.get("metrics").is_none() {
        spec.insert(
            "metrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        );
    }
    if let Some(behavior) = existing(spec, "behavior") {
        scaling_rules(behavior, "scaleUp", Some(0), &[("Pods", 4, 15), ("Percent", 100, 15)]);
        scaling_rules(behavior, "scaleDown", None, &[("Percent", 100, 15)]);
    }
    if let Some(status) = child(members, "status") {
        // The two members that v2 always writes.
        fill_absent(status, "desiredReplicas", 0);
        fill_absent(status, "currentMetrics", Value::Null);
    }
}

fn scaling_rules(behavior: &mut Members, key: &str, window: Option<i64>, policies: &[(&str, i64, i64)]) {
    let Some(rules) = child(behavior, key) else { return };
    if let Some(seconds) = window {
        fill_absent(rules, "stabilizationWindowSeconds", seconds);
    }
    fill_absent(rules, "selectPolicy", "Max");
    if rules.get("policies").is_none() {
        let policies = policies
            .iter()
            .map(|(kind, value, seconds)| json!({"type": kind, "value": value, "periodSeconds": seconds}))
            .collect();
        rules.insert("policies".into(), Value::Array(policies));
    }
}

pub(super) fn disruption_budget(members: &mut Members) {
    if let Some(status) = child(members, "status") {
        for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            fill_absent(status, key, 0);
        }
    }
}

fn template_labels(members: &Members, path: &[&str]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    let template = rest.iter().try_fold(members.get(*first)?, |value, key| value.get(key))?;
    template.get("metadata")?.get("labels").filter(|labels| labels.is_object()).cloned()
}

/// An object without labels gets those of its template.
fn inherit_labels(members: &mut Members, labels: Option<Value>) {
    if let Some(labels) = labels
        && let Some(metadata) = child(members, "metadata")
    {
        fill_absent(metadata, "labels", labels);
    }
}
