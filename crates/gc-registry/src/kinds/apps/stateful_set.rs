//! Stateful sets.

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kinds::shared::labels::{is_empty, is_valid, selects};
use crate::kinds::shared::names::label;
use crate::kinds::shared::pod_defaults::{claim_spec, template};
use crate::kinds::shared::workloads::{
    self, MORE_THAN_REPLICAS, SELECTOR_MISMATCH, at_most_all, is_zero, not_decremented, number_or_percent,
    template_labels, workload_selector,
};
use crate::kinds::shared::{claims, pod_spec};
use crate::kubernetes::FeatureGate;
use crate::metadata::names;

/// Fields that an update may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(crate) struct StatefulSet;

impl Kind for StatefulSet {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata =
        Metadata { name: names::dns_label, update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const TEMPLATE: Option<&'static [&'static str]> = Some(&["spec", "template"]);
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Ready", T("Number of the pod with ready state")),
        H::AGE,
        H::wide("Containers", H::CONTAINERS),
        H::wide("Images", H::IMAGES),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let [names, images] = row.containers(&["spec", "template", "spec"]);
        vec![row.name(), row.ready_replicas(), row.age(), names, images]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            fill(spec, "podManagementPolicy", "OrderedReady");
            if let Some(strategy) = child(spec, "updateStrategy") {
                // An update that names the strategy may omit its parameters.
                if is_unset(strategy, "type") {
                    fill(strategy, "type", "RollingUpdate");
                    child(strategy, "rollingUpdate");
                }
                if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
                    && let Some(update) = existing(strategy, "rollingUpdate")
                {
                    fill_absent(update, "partition", 0);
                    if FeatureGate::MaxUnavailableStatefulSet.is_on() {
                        fill_absent(update, "maxUnavailable", 1);
                    }
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
                // The client's kind is overwritten, because a template has only one.
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

    fn drop_disabled(members: &mut Members) {
        disabled::template(members, &["spec", "template"]);
        if FeatureGate::MaxUnavailableStatefulSet.is_on() {
            return;
        }
        if let Some(update) = disabled::within(members, &["spec", "updateStrategy", "rollingUpdate"]) {
            update.remove("maxUnavailable");
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        warnings::template(&["spec", "template"], new, old, texts);
        if integer(new, &["spec", "revisionHistoryLimit"]).is_some_and(|limit| limit < 0) {
            texts.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                 recommended"
                    .into(),
            );
        }
        for (index, claim) in list(new, &["spec", "volumeClaimTemplates"]).iter().enumerate() {
            let path = format!("spec.volumeClaimTemplates[{index}]");
            warnings::volumes::claim(&path, claim.get("spec"), texts);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        spec_rules(&object.get("spec"), Age::New, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let spec = new.get("spec");
        spec_rules(&spec, Age::Stored, report);
        let sealed = |object: &Field<'_, '_>| -> Members {
            let mut spec = object.member("spec").as_object().cloned().unwrap_or_default();
            spec.retain(|key, _| !MUTABLE.contains(&key.as_str()));
            spec
        };
        if sealed(new) != sealed(old) {
            report.forbidden(
                &spec,
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden",
            );
        }
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        for member in [
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ] {
            report.not_negative(&status.get(member));
        }
        for member in ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
            if status.number_of(member) > status.number_of("replicas") {
                report.invalid(&status.get(member), MORE_THAN_REPLICAS);
            }
        }
        if status.number_of("availableReplicas") > status.number_of("readyReplicas") {
            let why = "cannot be greater than status.readyReplicas";
            report.invalid(&status.get("availableReplicas"), why);
        }
        let before = old.get("status");
        not_decremented(&status.get("collisionCount"), &before.get("collisionCount"), report);
    }
}

/// Age of the set: a stored one may keep service names and claims that a new one may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    New,
    Stored,
}

fn spec_rules(spec: &Field<'_, '_>, age: Age, report: &mut Report) {
    let management = spec.get("podManagementPolicy");
    if management.text().is_empty() {
        report.required(&management, "");
    } else if !matches!(management.text(), "OrderedReady" | "Parallel") {
        report.invalid(&management, "must be 'OrderedReady' or 'Parallel'");
    }
    update_strategy(&spec.get("updateStrategy"), report);
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    for member in ["whenDeleted", "whenScaled"] {
        let policy = retention.get(member);
        if policy.is_set() && !matches!(policy.text(), "Retain" | "Delete") {
            report.not_supported(&policy, &["Retain", "Delete"]);
        }
    }
    if age == Age::New {
        for claim in spec.get("volumeClaimTemplates").items() {
            claims::spec(&claim.get("spec"), report);
        }
    }
    report.not_negative(&spec.get("replicas"));
    report.not_negative(&spec.get("minReadySeconds"));
    report.not_negative(&spec.get("ordinals").get("start"));
    let service = spec.get("serviceName");
    if age == Age::New && !service.text().is_empty() {
        label(&service, report);
    }
    workload_selector(spec, "statefulset", report);
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    if is_valid(&selector) {
        selected_template(spec, report);
    } else {
        report.invalid_without_detail(&selector);
    }
    workloads::always_restarted(&template, "StatefulSet", report);
}

fn selected_template(spec: &Field<'_, '_>, report: &mut Report) {
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    let labels = template_labels(&template);
    // An empty selector selects everything, an absent one nothing.
    let is_everything = selector.is_set() && is_empty(selector.value());
    if !is_everything && !selects(selector.value(), labels) {
        let metadata = template.get("metadata");
        report.invalid(&metadata.named("labels", labels), SELECTOR_MISMATCH);
    }
    let of_pods = of_pods(spec, template.value());
    pod_spec::template(&template.with(&of_pods), report);
    // Upstream reports these errors twice.
    pod_spec::template_metadata(&template, report);
}

/// Returns the template in the form of its pods: each claim becomes a volume, preceding the template's own volumes with other
/// names, and pods are named after the set.
fn of_pods(spec: &Field<'_, '_>, template: &Value) -> Value {
    let mut template = template.clone();
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.remove("hostname");
    pod.remove("subdomain");
    let claims = spec.get("volumeClaimTemplates");
    let names = claims.items().map(|claim| claim.get("metadata").text_of("name").to_owned());
    let mut names: Vec<String> = names.collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    if names.is_empty() {
        return template;
    }
    let volumes = pod.entry("volumes").or_insert(Value::Null);
    let mut own = volumes.as_array().cloned().unwrap_or_default();
    own.retain(|volume| !seen.contains(text(volume, &["name"])));
    let of_claim =
        |name: String| serde_json::json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    *volumes = names.into_iter().map(of_claim).chain(own).collect();
    template
}

fn update_strategy(field: &Field<'_, '_>, report: &mut Report) {
    let rolling = field.get("rollingUpdate");
    match field.text_of("type") {
        "" => report.required(field, ""),
        "OnDelete" => {
            if rolling.is_set() {
                let partition = Value::from(rolling.number_of("partition"));
                let unavailable = rolling.member("maxUnavailable");
                let shown = format!("{{\"Partition\":{partition},\"MaxUnavailable\":{unavailable}}}");
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                report.invalid_shown(&rolling, &shown, why);
            }
        }
        "RollingUpdate" => {
            report.not_negative(&rolling.get("partition"));
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.is_set() {
                number_or_percent(&unavailable, report);
                if is_zero(&unavailable) {
                    report.invalid(&unavailable, "cannot be 0");
                }
                at_most_all(&unavailable, report);
            }
        }
        kind => {
            let partition = if rolling.is_set() {
                format!(
                    "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
                    rolling.number_of("partition"),
                    rolling.member("maxUnavailable")
                )
            } else {
                "null".into()
            };
            let shown = format!("{{\"Type\":{},\"RollingUpdate\":{partition}}}", Value::from(kind));
            report.invalid_shown(field, &shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}
