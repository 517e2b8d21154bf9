//! Documents as Go writes them: members in the order in which its types declare them, as far as people and comparing clients see
//! it first. Whatever has no place here follows by name, and custom resources are written by name alone, as in Go.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

const DOCUMENT: &[&str] = &["kind", "apiVersion", "metadata"];
const STATUS: &[&str] = &["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"];
const DETAILS: &[&str] = &["name", "group", "kind", "uid", "causes", "retryAfterSeconds"];
const CAUSE: &[&str] = &["reason", "message", "field"];
const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "continue",
    "remainingItemCount",
];
/// The groups of Kubernetes whose names have two parts before `.k8s.io`; definitions of others have such names as well.
const LONG_GROUPS: [&str; 3] =
    ["flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "rbac.authorization.k8s.io"];

/// Returns whether a group is one of Kubernetes itself, whose types are declared in Go.
fn is_declared(group: &str) -> bool {
    let short = group.strip_suffix(".k8s.io").unwrap_or(group);
    !short.contains('.') || LONG_GROUPS.contains(&group)
}

/// A document that is serialized with its members in order.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<'a> {
    value: &'a Value,
    part: Part,
}

/// The type of a part of a document, as far as it has an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Document,
    Items,
    Metadata,
    Status,
    Details,
    Causes,
    Cause,
    ByName,
}

impl<'a> InOrder<'a> {
    /// A whole document: an object, a list or a Status.
    #[must_use]
    pub fn of(value: &'a Value) -> Self {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let part = match text("kind") {
            "Status" if group.is_empty() => Part::Status,
            _ if is_declared(group) => Part::Document,
            _ => Part::ByName,
        };
        Self { value, part }
    }
}

impl Part {
    fn order(self) -> &'static [&'static str] {
        match self {
            Self::Document => DOCUMENT,
            Self::Metadata => METADATA,
            Self::Status => STATUS,
            Self::Details => DETAILS,
            Self::Cause => CAUSE,
            Self::Items | Self::Causes | Self::ByName => &[],
        }
    }

    /// The type of a member.
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Document | Self::Status, "metadata") => Self::Metadata,
            (Self::Document, "items") => Self::Items,
            (Self::Status, "details") => Self::Details,
            (Self::Details, "causes") => Self::Causes,
            _ => Self::ByName,
        }
    }

    /// The type of an item.
    fn item(self) -> Self {
        match self {
            Self::Items => Self::Document,
            Self::Causes => Self::Cause,
            _ => Self::ByName,
        }
    }
}

fn members(members: &Map<String, Value>, part: Part) -> impl Iterator<Item = (&String, InOrder<'_>)> {
    let order = part.order();
    let placed = order.iter().filter_map(|name| members.get_key_value(*name));
    let others = members.iter().filter(|(name, _)| !order.contains(&name.as_str()));
    placed.chain(others).map(move |(name, value)| (name, InOrder { value, part: part.member(name) }))
}

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.value, self.part) {
            (value, Part::ByName) => value.serialize(serializer),
            (Value::Object(object), part) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                for (name, member) in members(object, part) {
                    map.serialize_entry(name, &member)?;
                }
                map.end()
            }
            (Value::Array(items), part) => {
                serializer.collect_seq(items.iter().map(|value| InOrder { value, part: part.item() }))
            }
            (value, _) => value.serialize(serializer),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn members_stand_where_go_writes_them() {
        let written = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            serde_json::to_string(&InOrder::of(&value)).unwrap()
        };
        for ordered in [
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"Invalid","details":{"name":"a","group":"g","kind":"k","causes":[{"reason":"r","message":"m","field":"f"}]},"code":422}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1","creationTimestamp":"t","labels":{"b":"c"}},"data":{"kind":"x"}}"#,
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"c"},"items":[{"metadata":{"name":"a","uid":"u"},"spec":{}}]}"#,
            r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"labels":{},"name":"a"},"spec":{}}"#,
        ] {
            assert_eq!(written(ordered), ordered);
        }
    }
}
