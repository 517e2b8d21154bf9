//! Tables: the columns of each resource and the cells of each object, as `kubectl get` shows them.

mod columns;
mod core;
mod duration;
mod other;
mod pod;
mod workload;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};

pub use duration::human_duration;

use crate::kinds::access::{at, list, text};
use crate::resource::Target;
use crate::schema::description;

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
    /// The column as a member of `columnDefinitions`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format,
               "description": self.description, "priority": self.priority})
    }
}

/// One column of a built-in resource, whose description is looked up when it is first shown.
struct Heading {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    says: Says,
    priority: i32,
}

/// What describes a column.
#[derive(Clone, Copy)]
enum Says {
    Nothing,
    Text(&'static str),
    /// The description of a field: a definition without its prefix, and the field.
    Field(&'static str, &'static str),
}

const NAMED: Says = Says::Field("apimachinery.pkg.apis.meta.v1.ObjectMeta", "name");
const CREATED: Says = Says::Field("apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp");

impl Heading {
    const NAME: Self = Self::new("Name", "string", "name", NAMED, 0);
    const AGE: Self = Self::new("Age", "string", "", CREATED, 0);
    const CREATED_AT: Self = Self::new("Created At", "date", "", CREATED, 0);

    const fn new(
        name: &'static str,
        kind: &'static str,
        format: &'static str,
        says: Says,
        priority: i32,
    ) -> Self {
        Self { name, kind, format, says, priority }
    }
    const fn text(name: &'static str, says: Says) -> Self {
        Self::new(name, "string", "", says, 0)
    }
    const fn integer(name: &'static str, says: Says) -> Self {
        Self::new(name, "integer", "", says, 0)
    }
    const fn boolean(name: &'static str, says: Says) -> Self {
        Self::new(name, "boolean", "", says, 0)
    }
    const fn named(name: &'static str, says: Says) -> Self {
        Self::new(name, "string", "name", says, 0)
    }
    const fn wide(name: &'static str, says: Says) -> Self {
        Self::new(name, "string", "", says, 1)
    }
    const fn wide_name(name: &'static str) -> Self {
        Self::new(name, "string", "name", NAMED, 1)
    }

    fn column(&self) -> Column {
        let description = match self.says {
            Says::Nothing => Cow::Borrowed(""),
            Says::Text(text) => Cow::Borrowed(text),
            Says::Field(definition, field) => {
                description(definition, field).map_or(Cow::Borrowed(""), |text| Cow::Owned(text.into()))
            }
        };
        Column {
            name: Cow::Borrowed(self.name),
            kind: Cow::Borrowed(self.kind),
            format: Cow::Borrowed(self.format),
            description,
            priority: self.priority,
        }
    }
}

/// The columns of a resource; for resources without a printer, and custom ones without columns, the name and the
/// time of creation.
#[must_use]
pub fn columns(target: Target<'_>) -> &'static [Column] {
    /// Made at the first table of a resource and kept: there are as many as there are tables in `columns.rs`.
    static MADE: Mutex<BTreeMap<usize, &'static [Column]>> = Mutex::new(BTreeMap::new());
    let headings = columns::of(target.group, target.resource).unwrap_or_else(columns::plain);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(headings.as_ptr().addr())
        .or_insert_with(|| Vec::leak(headings.iter().map(Heading::column).collect()))
}

/// Whether a resource is one of those whose rules are written here. Definitions of custom resources have their own.
pub(crate) fn is_built_in(target: Target<'_>) -> bool {
    !matches!(target.resource, "customresourcedefinitions" | columns::SCALES)
        && columns::of(target.group, target.resource).is_some()
}

/// The cells of an object in the columns of its resource, wide ones included.
#[must_use]
pub fn cells(target: Target<'_>, object: &Value, now: Timestamp) -> Vec<Value> {
    let row = Row { object, now };
    match (target.group, target.resource) {
        ("", "pods") => pod::pod(&row),
        ("autoscaling", columns::SCALES) => workload::scale(&row),
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
