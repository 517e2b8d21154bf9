//! Tables: columns and the cells of a row, as shown by `kubectl get`.

pub(crate) mod duration;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};

pub use duration::human_duration;

use crate::kinds::access::{at, flag, integer, list, text};
use crate::kinds::shared::selector_text::{label_selector_text, map_text};
use crate::schema::description;

/// A column of a kind's tables.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean`, `date` or `number`.
    pub kind: &'static str,
    /// `name` for the column that names the object, otherwise mostly empty.
    pub format: &'static str,
    /// Description of the column, looked up when it is first shown.
    says: Says,
    /// 0 for columns that are always shown; others appear only in wide output.
    pub priority: i32,
}

/// Source of a column's description.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    Nothing,
    Text(&'static str),
    /// Description of a field, given by a definition without its prefix, and the field.
    Field(&'static str, &'static str),
}

pub(crate) const NAMED: Says = Says::Field("apimachinery.pkg.apis.meta.v1.ObjectMeta", "name");
const CREATED: Says = Says::Field("apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp");

impl Column {
    pub(crate) const NAME: Self = Self::new("Name", "string", "name", NAMED, 0);
    pub(crate) const AGE: Self = Self::new("Age", "string", "", CREATED, 0);
    pub(crate) const CREATED_AT: Self = Self::new("Created At", "date", "", CREATED, 0);
    /// The columns of kinds without a printer of their own.
    pub(crate) const PLAIN: &[Self] = &[Self::NAME, Self::CREATED_AT];
    pub(crate) const CONTAINERS: Says = Says::Text("Names of each container in the template.");
    pub(crate) const IMAGES: Says = Says::Text("Images referenced by each container in the template.");

    const fn new(
        name: &'static str,
        kind: &'static str,
        format: &'static str,
        says: Says,
        priority: i32,
    ) -> Self {
        Self { name, kind, format, says, priority }
    }
    pub(crate) const fn text(name: &'static str, says: Says) -> Self {
        Self::new(name, "string", "", says, 0)
    }
    pub(crate) const fn integer(name: &'static str, says: Says) -> Self {
        Self::new(name, "integer", "", says, 0)
    }
    pub(crate) const fn boolean(name: &'static str, says: Says) -> Self {
        Self::new(name, "boolean", "", says, 0)
    }
    pub(crate) const fn named(name: &'static str, says: Says) -> Self {
        Self::new(name, "string", "name", says, 0)
    }
    pub(crate) const fn wide(name: &'static str, says: Says) -> Self {
        Self::new(name, "string", "", says, 1)
    }
    pub(crate) const fn wide_boolean(name: &'static str, says: Says) -> Self {
        Self::new(name, "boolean", "", says, 1)
    }
    pub(crate) const fn wide_name(name: &'static str) -> Self {
        Self::new(name, "string", "name", NAMED, 1)
    }

    /// Returns the column as a member of `columnDefinitions`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format,
               "description": self.description(), "priority": self.priority})
    }

    fn description(&self) -> String {
        /// Cache of descriptions, with at most one per column.
        static FOUND: Mutex<BTreeMap<(&str, &str), String>> = Mutex::new(BTreeMap::new());
        let (definition, field) = match self.says {
            Says::Nothing => return String::new(),
            Says::Text(text) => return text.to_owned(),
            Says::Field(definition, field) => (definition, field),
        };
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let look_up = || description(definition, field).map(String::from).unwrap_or_default();
        found.entry((definition, field)).or_insert_with(look_up).clone()
    }
}

/// An object to be shown in a table.
pub(crate) struct Row<'a> {
    pub(crate) object: &'a Value,
    pub(crate) now: Timestamp,
}

/// Cell of an empty value.
pub(crate) const NONE: &str = "<none>";
/// Cell of an unset field.
pub(crate) const UNSET: &str = "<unset>";

impl Row<'_> {
    pub(crate) fn name(&self) -> Value {
        self.text(&["metadata", "name"]).into()
    }
    pub(crate) fn age(&self) -> Value {
        duration::since(at(self.object, &["metadata", "creationTimestamp"]), self.now).into()
    }
    /// Returns the time of creation, for resources without a printer.
    pub(crate) fn created(&self) -> Value {
        at(self.object, &["metadata", "creationTimestamp"]).cloned().unwrap_or(Value::Null)
    }
    pub(crate) fn text(&self, path: &[&str]) -> &str {
        text(self.object, path)
    }
    /// Returns the text at a path, or `other` if there is none.
    pub(crate) fn text_or(&self, path: &[&str], other: &str) -> Value {
        let text = self.text(path);
        if text.is_empty() { other.into() } else { text.into() }
    }
    pub(crate) fn number(&self, path: &[&str]) -> i64 {
        integer(self.object, path).unwrap_or_default()
    }
    pub(crate) fn list(&self, path: &[&str]) -> &[Value] {
        list(self.object, path)
    }
    pub(crate) fn shown(&self, path: &[&str]) -> Value {
        self.text(path).into()
    }
    /// Returns the boolean at a path, or `other` if there is none.
    pub(crate) fn flag_or(&self, path: &[&str], other: bool) -> Value {
        flag(self.object, path).unwrap_or(other).into()
    }
    /// Returns the name, marked if annotations make it the default.
    pub(crate) fn name_of_default(&self, annotations: &[&str]) -> Value {
        let is_default =
            annotations.iter().any(|name| self.text(&["metadata", "annotations", name]) == "true");
        let name = self.text(&["metadata", "name"]);
        if is_default { format!("{name} (default)").into() } else { name.into() }
    }
    /// Returns the cell with ready and desired replicas.
    pub(crate) fn ready_replicas(&self) -> Value {
        let (ready, wanted) = (self.number(&["status", "readyReplicas"]), self.number(&["spec", "replicas"]));
        format!("{ready}/{wanted}").into()
    }
    /// Returns the cells of a workload that maintains a number of replicas of a template.
    pub(crate) fn replicas(&self, selector: Value) -> Vec<Value> {
        let [names, images] = self.containers(&["spec", "template", "spec"]);
        let mut cells = vec![self.name()];
        for path in [["spec", "replicas"], ["status", "replicas"], ["status", "readyReplicas"]] {
            cells.push(self.number(&path).into());
        }
        cells.extend([self.age(), names, images, selector]);
        cells
    }
    /// Returns the addresses and host names that a load balancer reports, sorted.
    pub(crate) fn load_balancer(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self
            .list(&["status", "loadBalancer", "ingress"])
            .iter()
            .map(|ingress| {
                let address = text(ingress, &["ip"]);
                if address.is_empty() { text(ingress, &["hostname"]) } else { address }
            })
            .filter(|name| !name.is_empty())
            .collect();
        names.into_iter().map(str::to_owned).collect()
    }
    /// Returns names and images of the containers of a pod spec.
    pub(crate) fn containers(&self, path: &[&str]) -> [Value; 2] {
        let spec = at(self.object, path).unwrap_or(&Value::Null);
        ["name", "image"].map(|key| {
            let texts: Vec<&str> =
                list(spec, &["containers"]).iter().map(|item| text(item, &[key])).collect();
            texts.join(",").into()
        })
    }
}

/// Returns a text or a number as text; `None` if it is neither.
pub(crate) fn int_or_string(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Formats labels as text; `<none>` if there are none.
pub(crate) fn shown_labels(labels: Option<&Value>) -> Value {
    let text = labels.map(map_text).unwrap_or_default();
    if text.is_empty() { NONE.into() } else { text.into() }
}

/// Formats a label selector as text; `<none>` if it is empty or absent.
pub(crate) fn shown_selector(selector: Option<&Value>) -> Value {
    let text = selector.map(label_selector_text).unwrap_or_default();
    if text.is_empty() { NONE.into() } else { text.into() }
}

/// Joins the first texts of a list, and the number of the others.
pub(crate) fn shortened(texts: &[String], most: usize) -> String {
    if texts.is_empty() {
        return NONE.into();
    }
    let shown = texts.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(",");
    if texts.len() > most { format!("{shown} + {} more...", texts.len() - most) } else { shown }
}
