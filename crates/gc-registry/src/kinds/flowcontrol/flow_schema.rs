//! Flow schemas.

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{dns_label, dns_subdomain, label, subdomain};

const PRECEDENCE_MAX: i64 = 10_000;
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub(crate) struct FlowSchema;

impl Kind for FlowSchema {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("PriorityLevel", F("api.flowcontrol.v1.PriorityLevelConfigurationReference", "name")),
        H::text("MatchingPrecedence", F("api.flowcontrol.v1.FlowSchemaSpec", "matchingPrecedence")),
        H::text("DistinguisherMethod", F("api.flowcontrol.v1.FlowSchemaSpec", "distinguisherMethod")),
        H::AGE,
        H::text("MissingPL", T("references a broken or non-existent PriorityLevelConfiguration")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let conditions = row.list(&["status", "conditions"]);
        let dangling = conditions.iter().find(|condition| text(condition, &["type"]) == "Dangling");
        vec![
            row.name(),
            row.text(&["spec", "priorityLevelConfiguration", "name"]).into(),
            row.number(&["spec", "matchingPrecedence"]).into(),
            row.text_or(&["spec", "distinguisherMethod", "type"], NONE),
            row.age(),
            dangling.map_or("?", |condition| text(condition, &["status"])).into(),
        ]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        fill_zero(spec, "matchingPrecedence", 1000);
        child(spec, "priorityLevelConfiguration");
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let (metadata, spec) = (object.get("metadata"), object.get("spec"));
        let precedence = spec.get("matchingPrecedence");
        if precedence.number() <= 0 {
            report.invalid_number(&precedence, "must be a positive value");
        }
        if precedence.number() > PRECEDENCE_MAX {
            report.invalid(&precedence, &format!("must not be greater than {PRECEDENCE_MAX}"));
        }
        if precedence.number() == 1 && metadata.text_of("name") != "exempt" {
            let why = "only the schema named 'exempt' may have matchingPrecedence 1";
            report.invalid(&precedence, why);
        }
        let method = spec.get("distinguisherMethod");
        if method.is_set() && !matches!(method.text_of("type"), "ByNamespace" | "ByUser") {
            let shown = format!("{{\"Type\":{}}}", serde_json::Value::from(method.text_of("type")));
            report.not_supported_shown(&method.get("type"), &shown, &["ByNamespace", "ByUser"]);
        }
        let level = spec.get("priorityLevelConfiguration");
        let name = level.get("name");
        if name.text().is_empty() {
            report.required(&name, "must reference a priority level");
        } else {
            subdomain(&name, report);
        }
        for rule in spec.get("rules").items() {
            policy_rules(&rule, report);
        }
        conditions(object, report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        conditions(new, report);
    }
}

/// Checks the conditions of a status: each needs a type, and types must be unique.
pub(crate) fn conditions(object: &Field<'_, '_>, report: &mut Report) {
    let status = object.get("status");
    let mut types = BTreeSet::new();
    for condition in status.get("conditions").items() {
        let kind = condition.get("type");
        if !types.insert(kind.text()) {
            report.duplicate_text(&kind, kind.text());
        }
        if kind.text().is_empty() {
            report.required(&kind, "");
        }
    }
}

fn policy_rules(field: &Field<'_, '_>, report: &mut Report) {
    let subjects = field.get("subjects");
    if subjects.list().is_empty() {
        report.required(&subjects, "subjects must contain at least one value");
    }
    subjects.items().for_each(|item| subject(&item, report));
    let (resources, others) = (field.get("resourceRules"), field.get("nonResourceRules"));
    if resources.list().is_empty() && others.list().is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        report.required(field, why);
    }
    resources.items().for_each(|item| resource_rule(&item, report));
    others.items().for_each(|item| non_resource_rule(&item, report));
}

fn subject(field: &Field<'_, '_>, report: &mut Report) {
    const KINDS: [(&str, &str); 3] =
        [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let kind = field.get("kind");
    let Some((_, own)) = KINDS.iter().find(|(name, _)| *name == kind.text()) else {
        report.not_supported(&kind, &["Group", "ServiceAccount", "User"]);
        return;
    };
    let body = field.get(own);
    if !body.is_set() {
        report.required(&body, &format!("{own} is required when subject kind is '{}'", kind.text()));
    } else if body.text_of("name").is_empty() {
        report.required(&body.get("name"), "");
    } else if *own == "serviceAccount" && body.text_of("name") != "*" {
        report.each(&body.get("name"), dns_subdomain(body.text_of("name")));
    }
    if *own == "serviceAccount" && body.is_set() {
        let namespace = body.get("namespace");
        if namespace.text().is_empty() {
            report.required(&namespace, "must specify namespace for service account");
        } else {
            label(&namespace, report);
        }
    }
    for (name, other) in KINDS {
        if other != *own && field.has(other) {
            let why = format!("{other} is forbidden when subject kind is not '{name}'");
            report.forbidden(&field.get(other), &why);
        }
    }
}

fn only_wildcard(field: &Field<'_, '_>, what: &str, report: &mut Report) -> bool {
    let wild = field.texts().any(|text| text == "*");
    if wild && field.list().len() > 1 {
        report.invalid(field, &format!("if '*' is present, must not specify other {what}"));
    }
    wild
}

fn verbs(field: &Field<'_, '_>, report: &mut Report) {
    if field.list().is_empty() {
        report.required(field, "verbs must contain at least one value");
    } else if !only_wildcard(field, "verbs", report) && !field.texts().all(|verb| VERBS.contains(&verb)) {
        report.not_supported_shown(field, field.value(), &VERBS);
    }
}

fn resource_rule(field: &Field<'_, '_>, report: &mut Report) {
    verbs(&field.get("verbs"), report);
    for (member, one, many) in
        [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")]
    {
        let list = field.get(member);
        if list.list().is_empty() {
            report.required(&list, &format!("resource rules must supply at least one {one}"));
        } else {
            only_wildcard(&list, many, report);
        }
    }
    let namespaces = field.get("namespaces");
    if namespaces.list().is_empty() && !field.get("clusterScope").flag() {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        report.required(&namespaces, why);
    } else if !only_wildcard(&namespaces, "namespaces", report) {
        for namespace in namespaces.items() {
            for problem in dns_label(namespace.text()) {
                let why = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
                report.invalid(&namespace, &why);
            }
        }
    }
}

fn non_resource_rule(field: &Field<'_, '_>, report: &mut Report) {
    verbs(&field.get("verbs"), report);
    let paths = field.get("nonResourceURLs");
    if paths.list().is_empty() {
        report.required(&paths, "nonResourceURLs must contain at least one value");
    } else if !only_wildcard(&paths, "non-resource URLs", report) {
        for path in paths.items() {
            if let Some(why) = path_problem(path.text()) {
                report.invalid_text(&path, path.text(), why);
            }
        }
    }
}

fn path_problem(path: &str) -> Option<&'static str> {
    let wildcards = path.matches('*').count();
    if path.is_empty() {
        Some("must not be empty")
    } else if path == "/" {
        None
    } else if !path.starts_with('/') {
        Some("must start with slash")
    } else if path.contains(' ') {
        Some("must not contain white-space")
    } else if path.contains("//") {
        Some("must not contain double slash")
    } else if wildcards > 1 || (wildcards == 1 && !path.ends_with("/*")) {
        Some("wildcard can only do suffix matching")
    } else {
        None
    }
}
