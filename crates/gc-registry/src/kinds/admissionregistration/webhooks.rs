//! Webhooks, validating and mutating.

use std::collections::BTreeSet;

use super::expressions::{NamedVariables, match_conditions};
use super::matching::{MATCH_POLICIES, any_scope, rule};
use super::policy::FAILURE_POLICIES;
use super::webhook_client::client_config;
use crate::kinds::prelude::*;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::names::{dns_label_1035, fully_qualified};

/// Webhook configurations; `MUTATING` is true for webhooks that change objects.
pub(crate) struct Webhooks<const MUTATING: bool>;

impl<const MUTATING: bool> Kind for Webhooks<MUTATING> {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Counts(&[&["webhooks"]]);
    const METADATA: Metadata =
        Metadata { refuses_plain_finalizers: false, update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer(
            "Webhooks",
            T("Webhooks indicates the number of webhooks registered in this configuration"),
        ),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.list(&["webhooks"]).len().into(), row.age()]
    }

    fn defaults(members: &mut Members) {
        for webhook in items(members, "webhooks") {
            fill_absent(webhook, "failurePolicy", "Fail");
            fill_absent(webhook, "matchPolicy", "Equivalent");
            fill_absent(webhook, "timeoutSeconds", 10);
            child(webhook, "namespaceSelector");
            child(webhook, "objectSelector");
            if MUTATING {
                fill_absent(webhook, "reinvocationPolicy", "Never");
            }
            if let Some(service) =
                child(webhook, "clientConfig").and_then(|config| existing(config, "service"))
            {
                fill_absent(service, "port", 443);
            }
            items(webhook, "rules").for_each(any_scope);
        }
    }

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        warnings::static_name(new, texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let mut names = BTreeSet::new();
        for webhook in object.get("webhooks").items() {
            Self::webhook(&webhook, report);
            review_versions(&webhook.get("admissionReviewVersions"), report);
            let name = webhook.get("name");
            if !name.text().is_empty() && !names.insert(name.text()) {
                report.duplicate(&name);
            }
        }
    }
}

impl<const MUTATING: bool> Webhooks<MUTATING> {
    fn webhook(field: &Field<'_, '_>, report: &mut Report) {
        fully_qualified(&field.get("name"), report);
        field.get("rules").items().for_each(|item| rule(&item, report));
        report.one_of_if_set(&field.get("failurePolicy"), &FAILURE_POLICIES);
        report.one_of_if_set(&field.get("matchPolicy"), &MATCH_POLICIES);
        let effects = field.get("sideEffects");
        if effects.is_set() {
            report.one_of_if_set(&effects, &["None", "NoneOnDryRun"]);
        } else {
            report.required(&effects, "must specify one of None, NoneOnDryRun");
        }
        let timeout = field.get("timeoutSeconds");
        if timeout.integer().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            report.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
        }
        selector(&field.get("namespaceSelector"), report);
        selector(&field.get("objectSelector"), report);
        if MUTATING {
            report.one_of_if_set(&field.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
        }
        client_config(&field.get("clientConfig"), report);
        match_conditions(&field.get("matchConditions"), &NamedVariables::in_conditions(false), report);
    }
}

fn review_versions(field: &Field<'_, '_>, report: &mut Report) {
    if field.list().is_empty() {
        report.required(field, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = BTreeSet::new();
    for version in field.items() {
        if !seen.insert(version.text()) {
            report.invalid_text(&version, version.text(), "duplicate version");
            continue;
        }
        report.each(&version, dns_label_1035(version.text()));
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        report.invalid(field, "must include at least one of v1, v1beta1");
    }
}
