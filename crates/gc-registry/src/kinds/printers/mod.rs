//! Tables: the columns of each resource and the cells of each object, as `kubectl get` shows them.

mod columns;
mod core;
mod duration;
mod other;
mod pod;
mod workload;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use duration::human_duration;

use crate::kinds::access::{at, list, text};
use crate::resource::Target;

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: Cow<'static, str>,
    /// `string`, `integer`, `boolean`, `date` or `number`.
    pub kind: Cow<'static, str>,
    /// `name` for the column that names the object, else mostly empty.
    pub format: Cow<'static, str>,
    /// What the column shows.
    pub description: Cow<'static, str>,
    /// 0 is always shown; more only in wide output.
    pub priority: i32,
}

impl Column {
    const NAME: Self = Self::new("Name", "string", "name", NAMED, 0);
    const AGE: Self = Self::new("Age", "string", "", CREATED, 0);
    const CREATED_AT: Self = Self::new("Created At", "date", "", CREATED, 0);

    const fn new(
        name: &'static str,
        kind: &'static str,
        format: &'static str,
        description: &'static str,
        priority: i32,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            kind: Cow::Borrowed(kind),
            format: Cow::Borrowed(format),
            description: Cow::Borrowed(description),
            priority,
        }
    }
    const fn text(name: &'static str) -> Self {
        Self::new(name, "string", "", "", 0)
    }
    const fn integer(name: &'static str) -> Self {
        Self::new(name, "integer", "", "", 0)
    }
    const fn boolean(name: &'static str) -> Self {
        Self::new(name, "boolean", "", "", 0)
    }
    const fn named(name: &'static str) -> Self {
        Self::new(name, "string", "name", "", 0)
    }
    const fn wide(name: &'static str) -> Self {
        Self::new(name, "string", "", "", 1)
    }
    const fn wide_name(name: &'static str) -> Self {
        Self::new(name, "string", "name", NAMED, 1)
    }

    /// The column as a member of `columnDefinitions`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format,
               "description": self.description, "priority": self.priority})
    }
}

const NAMED: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
    intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. \
    It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this \
    value. It is represented in RFC3339 form and is in UTC.";

/// The columns of a resource; for resources without a printer, and custom ones without columns, the name and the
/// time of creation.
#[must_use]
pub fn columns(target: Target<'_>) -> &'static [Column] {
    columns::of(target.group, target.resource).unwrap_or_else(columns::plain)
}

/// Whether a resource is one of those whose rules are written here. Definitions of custom resources have their own.
pub(crate) fn is_built_in(target: Target<'_>) -> bool {
    target.resource != "customresourcedefinitions" && columns::of(target.group, target.resource).is_some()
}

/// The cells of an object in the columns of its resource, wide ones included.
#[must_use]
pub fn cells(target: Target<'_>, object: &Value, now: Timestamp) -> Vec<Value> {
    let row = Row { object, now };
    match (target.group, target.resource) {
        ("", "pods") => pod::pod(&row),
        ("", "podtemplates") => pod::template(&row),
        ("", "replicationcontrollers") | ("apps" | "batch" | "autoscaling" | "policy", _) => {
            workload::cells(target, &row)
        }
        ("", _) | ("events.k8s.io", "events") => core::cells(target, &row),
        _ => other::cells(target, &row),
    }
}

/// The `conditions` of the row of an object: finished pods and jobs are marked as completed.
#[must_use]
pub fn row_conditions(target: Target<'_>, object: &Value) -> Vec<Value> {
    if (target.group, target.resource) != ("", "pods") {
        return Vec::new();
    }
    let (reason, message) = match text(object, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

/// One object on its way into a table.
struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

/// What stands in a cell where there is nothing.
const NONE: &str = "<none>";
/// What stands in a cell that the object says nothing about.
const UNSET: &str = "<unset>";

impl Row<'_> {
    fn name(&self) -> Value {
        self.text(&["metadata", "name"]).into()
    }
    fn age(&self) -> Value {
        duration::since(at(self.object, &["metadata", "creationTimestamp"]), self.now).into()
    }
    /// The time of creation, for the columns of resources without a printer.
    fn created(&self) -> Value {
        at(self.object, &["metadata", "creationTimestamp"]).cloned().unwrap_or(Value::Null)
    }
    fn text(&self, path: &[&str]) -> &str {
        text(self.object, path)
    }
    /// The text at a path, or what stands for none.
    fn text_or(&self, path: &[&str], other: &str) -> Value {
        let text = self.text(path);
        if text.is_empty() { other.into() } else { text.into() }
    }
    fn number(&self, path: &[&str]) -> i64 {
        super::access::integer(self.object, path).unwrap_or_default()
    }
    fn list(&self, path: &[&str]) -> &[Value] {
        list(self.object, path)
    }
    /// Names and images of the containers of a pod spec.
    fn containers(&self, path: &[&str]) -> [Value; 2] {
        let spec = at(self.object, path).unwrap_or(&Value::Null);
        ["name", "image"].map(|key| {
            let texts: Vec<&str> =
                list(spec, &["containers"]).iter().map(|item| text(item, &[key])).collect();
            texts.join(",").into()
        })
    }
}

/// A text or a number as text; `None` when it is neither.
fn int_or_string(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Labels as text, `<none>` when there are none.
fn labels(labels: Option<&Value>) -> Value {
    let text = labels.map(super::scale::map_text).unwrap_or_default();
    if text.is_empty() { NONE.into() } else { text.into() }
}

/// A label selector as text, `<none>` when it is empty or absent.
fn selector(selector: Option<&Value>) -> Value {
    let text = selector.map(super::scale::label_selector_text).unwrap_or_default();
    if text.is_empty() { NONE.into() } else { text.into() }
}
