//! Events, in both groups. Errors name the fields as upstream's internal type does.

use crate::kinds::convert::{convert, event_field};
use crate::kinds::prelude::*;
use crate::kinds::printers::duration::since;
use crate::kinds::shared::names::{dns_subdomain, qualified_name};

const NAME_MAX_BYTES: usize = 128;
const MESSAGE_MAX_BYTES: usize = 1024;
const OTHER_NAMESPACE: &str = "does not match event.namespace";

/// Events; `CORE` is true for the core group.
pub(crate) struct Event<const CORE: bool>;

impl<const CORE: bool> Kind for Event<CORE> {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = if CORE {
        Metadata::LAST
    } else {
        Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT }
    };
    const COLUMNS: &'static [Column] = &[
        H::text("Last Seen", F("api.core.v1.Event", "lastTimestamp")),
        H::text("Type", F("api.core.v1.Event", "type")),
        H::text("Reason", F("api.core.v1.Event", "reason")),
        H::text("Object", F("api.core.v1.Event", "involvedObject")),
        H::wide("Subobject", F("api.core.v1.ObjectReference", "fieldPath")),
        H::wide("Source", F("api.core.v1.Event", "source")),
        H::text("Message", F("api.core.v1.Event", "message")),
        H::wide("First Seen", F("api.core.v1.Event", "firstTimestamp")),
        H::wide("Count", F("api.core.v1.Event", "count")),
        H::wide_name("Name"),
    ];
    const FIELD_LABELS: &'static [&'static str] = if CORE {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    } else {
        &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ]
    };

    fn cells(row: &Row<'_>) -> Vec<Value> {
        // Both groups show the core form.
        let converted;
        let object = if CORE {
            row.object
        } else {
            let mut object = row.object.clone();
            if let Some(members) = object.as_object_mut() {
                members.insert("apiVersion".into(), "events.k8s.io/v1".into());
            }
            converted = convert("", "v1", "Event", &object);
            &converted
        };
        let row = &Row { object, now: row.now };
        let moment = |path: &[&str]| at(object, path);
        let first = moment(&["firstTimestamp"]).or_else(|| moment(&["eventTime"]));
        let mut last = moment(&["lastTimestamp"]).or(first);
        let mut count = integer(object, &["count"]).filter(|count| *count != 0).unwrap_or(1);
        if let Some(series) = at(object, &["series"]) {
            last = at(series, &["lastObservedTime"]);
            count = integer(series, &["count"]).unwrap_or_default();
        }
        let kind = row.text(&["involvedObject", "kind"]).to_lowercase();
        let name = row.text(&["involvedObject", "name"]);
        let about = if name.is_empty() { kind } else { format!("{kind}/{name}") };
        let either = |first: &[&str], second: &[&str]| {
            let text_of_first = row.text(first);
            if text_of_first.is_empty() { row.text(second) } else { text_of_first }
        };
        let component = either(&["source", "component"], &["reportingComponent"]);
        let instance = either(&["source", "host"], &["reportingInstance"]);
        let source =
            if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
        vec![
            since(last, row.now).into(),
            row.text(&["type"]).into(),
            row.text(&["reason"]).into(),
            about.into(),
            row.text(&["involvedObject", "fieldPath"]).into(),
            source.into(),
            row.text(&["message"]).trim().into(),
            since(first, row.now).into(),
            count.into(),
            row.name(),
        ]
    }

    /// Sets the times and the source, which both forms of an event always write.
    fn defaults(members: &mut Members) {
        if CORE {
            fill_absent(members, "reportingComponent", "");
            fill_absent(members, "reportingInstance", "");
        }
        for key in ["eventTime", "firstTimestamp", "lastTimestamp"] {
            fill_absent(members, event_field(CORE, key), Value::Null);
        }
        for key in ["source", "involvedObject"] {
            child(members, event_field(CORE, key));
        }
    }

    fn field_label(name: &str, object: &Value) -> String {
        match name {
            "source" if text_label("source.component", object).is_empty() => {
                text_label("reportingComponent", object)
            }
            "source" => text_label("source.component", object),
            _ => text_label(name, object),
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        legacy(CORE, object, report);
        if CORE {
            return;
        }
        series(object, report);
        if !object.has("eventTime") {
            report.required(&object.get("eventTime"), "");
        }
        kind(object, report);
        for name in ["firstTimestamp", "lastTimestamp", "count", "source"] {
            let value = object.member(event_field(CORE, name));
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

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        legacy(CORE, new, report);
        if CORE {
            return;
        }
        let mut sealed = |name, shown: fn(&Field<'_, '_>) -> String| {
            let member = event_field(CORE, name);
            let field = new.named(name, new.member(member));
            if field.value() != old.member(member) {
                report.invalid_shown(&field, &shown(&field), IMMUTABLE);
            }
        };
        sealed("involvedObject", reference);
        sealed("reason", text);
        sealed("message", text);
        sealed("source", source);
        sealed("firstTimestamp", json);
        sealed("lastTimestamp", json);
        sealed("count", number);
        // Upstream checks this twice.
        sealed("reason", text);
        sealed("type", text);
        sealed("eventTime", json);
        sealed("action", text);
        sealed("related", pointer);
        sealed("reportingController", text);
        sealed("reportingInstance", text);
        series(new, report);
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

/// Validates the requirements of both groups. Old clients set neither time nor reporter.
fn legacy(core: bool, object: &Field<'_, '_>, report: &mut Report) {
    let metadata = object.get("metadata");
    let namespace = metadata.text_of("namespace");
    let about = object.named("involvedObject", object.member(event_field(core, "involvedObject")));
    let named = about.get("namespace");
    if object.has("eventTime") {
        if named.text().is_empty() && !matches!(namespace, "default" | "kube-system") {
            report.invalid_text(&named, named.text(), OTHER_NAMESPACE);
        }
        let controller = object.get(event_field(core, "reportingComponent"));
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
        let message = object.named("message", object.member(event_field(core, "message")));
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
