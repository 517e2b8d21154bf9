//! Events, in both groups. Errors name the fields as upstream's internal type does.

use serde_json::Value;

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::{IMMUTABLE, Report};
use crate::kinds::shared::names::{dns_subdomain, qualified_name};
use crate::resource::Target;

const NAME_MAX_BYTES: usize = 128;
const MESSAGE_MAX_BYTES: usize = 1024;
const OTHER_NAMESPACE: &str = "does not match event.namespace";

pub(crate) struct Event;

impl Kind for Event {
    fn validate(&self, target: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let names = Names::of(target);
        legacy(&names, object, report);
        if target.group.is_empty() {
            return;
        }
        series(object, report);
        if !object.has("eventTime") {
            report.required(&object.get("eventTime"), "");
        }
        kind(object, report);
        for (name, member) in [
            ("firstTimestamp", names.first_timestamp),
            ("lastTimestamp", names.last_timestamp),
            ("count", names.count),
            ("source", names.source),
        ] {
            let value = object.member(member);
            let unset = match value {
                Value::Number(number) => number.as_i64() == Some(0),
                Value::Object(members) => members.values().all(|value| value == ""),
                other => other.is_null(),
            };
            if !unset {
                report.invalid_text(&object.get(name), "", "needs to be unset");
            }
        }
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        let names = Names::of(target);
        legacy(&names, new, report);
        if target.group.is_empty() {
            return;
        }
        let mut sealed = |name, member, shown: fn(&Field<'_, '_>) -> String| {
            let field = new.named(name, new.member(member));
            if field.value() != old.member(member) {
                report.invalid_shown(&field, &shown(&field), IMMUTABLE);
            }
        };
        sealed("involvedObject", names.about, reference);
        sealed("reason", "reason", text);
        sealed("message", names.message, text);
        sealed("source", names.source, source);
        sealed("firstTimestamp", names.first_timestamp, json);
        sealed("lastTimestamp", names.last_timestamp, json);
        sealed("count", names.count, number);
        // Upstream asks twice.
        sealed("reason", "reason", text);
        sealed("type", "type", text);
        sealed("eventTime", "eventTime", json);
        sealed("action", "action", text);
        sealed("related", "related", pointer);
        sealed("reportingController", names.controller, text);
        sealed("reportingInstance", "reportingInstance", text);
        series(new, report);
    }
}

/// What the members are called in each of the groups.
struct Names {
    about: &'static str,
    message: &'static str,
    source: &'static str,
    first_timestamp: &'static str,
    last_timestamp: &'static str,
    count: &'static str,
    controller: &'static str,
}

impl Names {
    fn of(target: Target<'_>) -> Self {
        if target.group.is_empty() {
            Self {
                about: "involvedObject",
                message: "message",
                source: "source",
                first_timestamp: "firstTimestamp",
                last_timestamp: "lastTimestamp",
                count: "count",
                controller: "reportingComponent",
            }
        } else {
            Self {
                about: "regarding",
                message: "note",
                source: "deprecatedSource",
                first_timestamp: "deprecatedFirstTimestamp",
                last_timestamp: "deprecatedLastTimestamp",
                count: "deprecatedCount",
                controller: "reportingController",
            }
        }
    }
}

fn text(field: &Field<'_, '_>) -> String {
    Value::from(field.text()).to_string()
}

fn number(field: &Field<'_, '_>) -> String {
    field.number().to_string()
}

fn json(field: &Field<'_, '_>) -> String {
    field.value().to_string()
}

fn pointer(field: &Field<'_, '_>) -> String {
    if field.is_set() { reference(field) } else { "null".into() }
}

fn reference(field: &Field<'_, '_>) -> String {
    members(
        field,
        &[
            ("Kind", "kind"),
            ("Namespace", "namespace"),
            ("Name", "name"),
            ("UID", "uid"),
            ("APIVersion", "apiVersion"),
            ("ResourceVersion", "resourceVersion"),
            ("FieldPath", "fieldPath"),
        ],
    )
}

fn source(field: &Field<'_, '_>) -> String {
    members(field, &[("Component", "component"), ("Host", "host")])
}

fn members(field: &Field<'_, '_>, names: &[(&str, &str)]) -> String {
    let parts: Vec<String> = names
        .iter()
        .map(|(shown, member)| format!("\"{shown}\":{}", Value::from(field.text_of(member))))
        .collect();
    format!("{{{}}}", parts.join(","))
}

/// What both groups demand. Clients of old give neither time nor reporter.
fn legacy(names: &Names, object: &Field<'_, '_>, report: &mut Report) {
    let metadata = object.get("metadata");
    let namespace = metadata.text_of("namespace");
    let about = object.named("involvedObject", object.member(names.about));
    let named = about.get("namespace");
    if object.has("eventTime") {
        if named.text().is_empty() && !matches!(namespace, "default" | "kube-system") {
            report.invalid_text(&named, named.text(), OTHER_NAMESPACE);
        }
        let controller = object.get(names.controller);
        if controller.text().is_empty() {
            report.required(&controller, "");
        }
        report.each(&controller, qualified_name(controller.text()));
        for name in ["reportingInstance", "action", "reason"] {
            let field = object.get(name);
            if field.text().is_empty() {
                report.required(&field, "");
            }
            if field.text().len() > NAME_MAX_BYTES {
                let why = format!("can have at most {NAME_MAX_BYTES} characters");
                report.invalid_text(&field, "", &why);
            }
        }
        let message = object.named("message", object.member(names.message));
        if message.text().len() > MESSAGE_MAX_BYTES {
            let why = format!("can have at most {MESSAGE_MAX_BYTES} characters");
            report.invalid_text(&message, "", &why);
        }
    } else {
        let fits = if named.text().is_empty() {
            matches!(namespace, "" | "default")
        } else {
            named.text() == namespace
        };
        if !fits {
            report.invalid_text(&named, named.text(), OTHER_NAMESPACE);
        }
    }
    report.each_of(&object.get("namespace"), namespace, dns_subdomain(namespace));
}

fn series(object: &Field<'_, '_>, report: &mut Report) {
    let series = object.get("series");
    if !series.is_set() {
        return;
    }
    if series.number_of("count") < 2 {
        report.invalid_text(&series.get("count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        report.required(&series.get("lastObservedTime"), "");
    }
}

fn kind(object: &Field<'_, '_>, report: &mut Report) {
    let kind = object.get("type");
    if !matches!(kind.text(), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", kind.text());
        report.invalid_text(&kind, "", &why);
    }
}
