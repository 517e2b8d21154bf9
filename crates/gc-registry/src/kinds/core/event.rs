//! Events, in both groups. Errors name the fields as upstream's internal type does.

use crate::kinds::access::{at, child, fill_absent, integer};
use crate::kinds::convert::convert;
use crate::kinds::fields::text_label;
use crate::kinds::kind::prelude::*;
use crate::kinds::printers::duration::since;
use crate::kinds::report::IMMUTABLE;
use crate::kinds::shared::names::{dns_subdomain, qualified_name};

const NAME_MAX_BYTES: usize = 128;
const MESSAGE_MAX_BYTES: usize = 1024;
const OTHER_NAMESPACE: &str = "does not match event.namespace";

const COLUMNS: &[Heading] = &[
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

pub(crate) struct Event {
    /// Whether it is served in the core group.
    pub(crate) core: bool,
}

impl Kind for Event {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Neither, generation: Generation::NONE }
    }

    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        // Both groups show the core form.
        let converted;
        let object = if self.core {
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

    /// Both forms of an event write their times and source always, set or not.
    fn defaults(&self, members: &mut Members) {
        fill_absent(members, "eventTime", Value::Null);
        let (times, source, object): ([&str; 2], &str, &str) = if self.core {
            fill_absent(members, "reportingComponent", "");
            fill_absent(members, "reportingInstance", "");
            (["firstTimestamp", "lastTimestamp"], "source", "involvedObject")
        } else {
            (["deprecatedFirstTimestamp", "deprecatedLastTimestamp"], "deprecatedSource", "regarding")
        };
        for key in times {
            fill_absent(members, key, Value::Null);
        }
        child(members, source);
        child(members, object);
    }

    fn field_labels(&self) -> &'static [&'static str] {
        if self.core {
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
        }
    }

    fn field_label(&self, name: &str, object: &Value) -> String {
        let label = |name| text_label(name, object);
        match name {
            "source" => Some(label("source.component"))
                .filter(|source| !source.is_empty())
                .unwrap_or_else(|| label("reportingComponent")),
            _ => label(name),
        }
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        let names = Names::of(self.core);
        legacy(&names, object, report);
        if self.core {
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

    fn validate_update(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let names = Names::of(self.core);
        legacy(&names, new, report);
        if self.core {
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
    fn of(core: bool) -> Self {
        if core {
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
