//! Documents in Go's order: members of built-in types as these declare them, those of maps and custom resources by name.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};
use smallvec::SmallVec;

use crate::schema::declared::{self, Shape};

/// Number of members that most structs do not exceed in one object.
const INLINE: usize = 16;

/// Reports whether the members of objects with this apiVersion have a declared order, instead of that of their names.
#[must_use]
pub(crate) fn is_declared(api_version: &str) -> bool {
    declared::is_declared(api_version.split_once('/').map_or("", |(group, _)| group))
}

/// A document that is serialized with its members in order.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<'a> {
    value: &'a Value,
    shape: Shape,
}

impl<'a> InOrder<'a> {
    /// Wraps a complete document: an object, a list or a Status.
    #[must_use]
    pub fn of(value: &'a Value) -> Self {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { value, shape: Shape::of_kind(group, version, text("kind")) }
    }

    /// Wraps `metadata` that is shown without its object, which has a Go type for custom resources, too.
    #[must_use]
    pub fn of_metadata(value: &'a Value) -> Self {
        Self { value, shape: Shape::of_metadata() }
    }

    /// Wraps a value of a known shape.
    pub(crate) fn shaped(value: &'a Value, shape: Shape) -> Self {
        Self { value, shape }
    }

    /// Returns the members of an object in order; empty for anything else.
    pub(crate) fn members(self) -> impl Iterator<Item = (&'a str, Self)> {
        let object = self.value.as_object();
        let placed = object.filter(|_| self.shape.has_places()).map(|object| in_place(object, self.shape));
        let by_name = object.filter(|_| placed.is_none());
        let item = self.shape.item();
        placed.into_iter().flatten().map(|(_, name, member)| (name, member)).chain(
            by_name
                .into_iter()
                .flatten()
                .map(move |(name, value)| (name.as_str(), Self { value, shape: item })),
        )
    }
}

/// Returns the members of a struct with their positions, sorted by position.
fn in_place(object: &Map<String, Value>, shape: Shape) -> SmallVec<[(usize, &str, InOrder<'_>); INLINE]> {
    let place = |(name, value)| {
        let name: &String = name;
        let (place, shape) = shape.member(name);
        (place, name.as_str(), InOrder { value, shape })
    };
    let mut members: SmallVec<[_; INLINE]> = object.iter().map(place).collect();
    // Members without a position stay in the order of their names.
    members.sort_by_key(|(place, ..)| *place);
    members
}

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            value if self.shape.is_by_name() => value.serialize(serializer),
            Value::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                for (name, member) in self.members() {
                    map.serialize_entry(name, &member)?;
                }
                map.end()
            }
            Value::Array(items) => {
                let shape = self.shape.item();
                serializer.collect_seq(items.iter().map(|value| InOrder { value, shape }))
            }
            value => value.serialize(serializer),
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
            r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","namespace":"n","labels":{"a":"b"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"apps/v1","time":"t","fieldsType":"FieldsV1","fieldsV1":{"f:a":{},"f:b":{}},"subresource":"status"}]},"spec":{"replicas":1,"selector":{"matchLabels":{"z":"1","zz":"2"}},"template":{"metadata":{"labels":{}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"name":"p","containerPort":80,"protocol":"TCP"}],"env":[{"name":"E","value":"1"}],"resources":{"limits":{"cpu":"1","memory":"2"},"requests":{"cpu":"1"}}}],"restartPolicy":"Always"}},"strategy":{"type":"Recreate"}},"status":{"observedGeneration":1,"replicas":1,"conditions":[{"type":"Available","status":"True","lastUpdateTime":"t","lastTransitionTime":"t","reason":"r","message":"m"}]}}"#,
            r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"a"},"spec":{"group":"g","names":{"plural":"p","kind":"K"},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"z":{"description":"d","type":"object","items":{"a":1}}}}}}]}}"#,
            r#"{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"a"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}],"unknown":1,"zunknown":{"b":1,"c":2}}"#,
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"c"},"items":[{"metadata":{"name":"a","uid":"u"},"spec":{"volumes":[],"containers":[]}}]}"#,
            r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"labels":{},"name":"a"},"spec":{}}"#,
        ] {
            assert_eq!(written(ordered), ordered);
        }
    }
}
