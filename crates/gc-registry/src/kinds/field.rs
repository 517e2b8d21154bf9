//! A position in an object: its value, and the path that error messages name.
//!
//! Fields are created while descending and borrow their parents, so a valid object costs no paths.

use std::fmt;

use gc_types::Quantity;
use serde_json::Value;

use crate::metadata::quantity;
use crate::schema::Step;

/// Value of an absent field.
static ABSENT: Value = Value::Null;

/// A position in an object. A position without a value has the value `null`, as a typed server does not distinguish the two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'v, 'p> {
    value: &'v Value,
    parent: Option<&'p Field<'v, 'p>>,
    step: Step<'p>,
}

impl<'v, 'p> Field<'v, 'p> {
    /// Creates the field of the whole object.
    pub(crate) fn root(value: &'v Value) -> Self {
        Self { value, parent: None, step: Step::Here }
    }

    fn child<'s>(&'s self, step: Step<'s>, value: &'v Value) -> Field<'v, 's> {
        Field { value, parent: Some(self), step }
    }

    /// Returns the member `name`.
    pub(crate) fn get<'s>(&'s self, name: &'s str) -> Field<'v, 's> {
        self.child(Step::Name(name), self.value.get(name).unwrap_or(&ABSENT))
    }

    /// Returns another value under the name `name`, for fields that upstream names differently than the document.
    pub(crate) fn named<'s>(&'s self, name: &'s str, value: &'v Value) -> Field<'v, 's> {
        self.child(Step::Name(name), value)
    }

    /// Returns another value under this path.
    pub(crate) fn with<'s>(&'s self, value: &'v Value) -> Field<'v, 's> {
        self.child(Step::Here, value)
    }

    /// Returns the value `value` at the key `key`.
    pub(crate) fn key<'s>(&'s self, key: &'s str, value: &'v Value) -> Field<'v, 's> {
        self.child(Step::Key(key), value)
    }

    /// Returns the item at `index`.
    pub(crate) fn index<'s>(&'s self, index: usize) -> Field<'v, 's> {
        self.child(Step::Index(index), self.value.get(index).unwrap_or(&ABSENT))
    }

    /// Returns the items of a list.
    pub(crate) fn items<'s>(&'s self) -> impl Iterator<Item = Field<'v, 's>> + use<'s, 'v, 'p> {
        self.list().iter().enumerate().map(|(index, value)| self.child(Step::Index(index), value))
    }

    /// Returns the entries of a map.
    pub(crate) fn entries<'s>(&'s self) -> impl Iterator<Item = (&'v str, Field<'v, 's>)> + use<'s, 'v, 'p> {
        self.value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), self.child(Step::Key(key), value)))
    }

    pub(crate) fn value(&self) -> &'v Value {
        self.value
    }

    /// Reports whether there is a value.
    pub(crate) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Reports whether the member `name` has a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns the value of the member `name`.
    pub(crate) fn member(&self, name: &str) -> &'v Value {
        self.value.get(name).unwrap_or(&ABSENT)
    }

    /// Returns the text; empty if there is none.
    pub(crate) fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// Returns the text of the member `name`.
    pub(crate) fn text_of(&self, name: &str) -> &'v str {
        self.member(name).as_str().unwrap_or_default()
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// Returns the integer; 0 if there is none.
    pub(crate) fn number(&self) -> i64 {
        self.value.as_i64().unwrap_or_default()
    }

    pub(crate) fn number_of(&self, name: &str) -> i64 {
        self.member(name).as_i64().unwrap_or_default()
    }

    /// Reports whether the value is `true`.
    pub(crate) fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    pub(crate) fn list(&self) -> &'v [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the texts of a list.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        self.list().iter().map(|value| value.as_str().unwrap_or_default())
    }

    /// Reports whether this is an empty list or map, or absent.
    pub(crate) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        }
    }

    /// Returns the quantity, if it is one.
    pub(crate) fn quantity(&self) -> Option<Quantity> {
        quantity::of(self.value)?.ok()
    }

    /// Returns the steps from the object to this position.
    pub(crate) fn steps(&self) -> Vec<Step<'p>> {
        let mut steps = Vec::new();
        let mut here = Some(self);
        while let Some(field) = here {
            steps.push(field.step);
            here = field.parent;
        }
        steps.reverse();
        steps
    }

    /// Returns the path in the form that errors use.
    pub(crate) fn path(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Field<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for step in self.steps() {
            match step {
                Step::Here => continue,
                Step::Name(name) if first => f.write_str(name)?,
                Step::Name(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
            first = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_written_as_upstream_writes_them() {
        let object = json!({"spec": {"ports": [{"name": "a"}], "limits": {"cpu": "1"}}});
        let root = Field::root(&object);
        let spec = root.get("spec");
        let ports = spec.get("ports");
        let first = ports.items().next().unwrap();
        assert_eq!(first.get("name").path(), "spec.ports[0].name");
        let limits = spec.get("limits");
        let (key, limit) = limits.entries().next().unwrap();
        assert_eq!((key, limit.path(), limit.text()), ("cpu", "spec.limits[cpu]".to_owned(), "1"));
        assert_eq!(spec.named("other", &object).with(&object).path(), "spec.other");
        assert!(!spec.get("absent").is_set());
    }
}
