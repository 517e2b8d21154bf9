#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test

use std::sync::Arc;

use gc_registry::object::Object;
use gc_registry::storage::Revision;
use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::encode::protobuf_request::label_of;

/// Kinds with every type of field among them.
const KINDS: [(&str, &str); 12] = [
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Event"),
    ("v1", "PersistentVolume"),
    ("apps/v1", "Deployment"),
    ("networking.k8s.io/v1", "Ingress"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("coordination.k8s.io/v1", "Lease"),
];

/// Decisions of a sample; zeros at the end.
struct Choices(std::vec::IntoIter<u16>);

impl Choices {
    fn next(&mut self, below: u16) -> u16 {
        self.0.next().unwrap_or_default() % below
    }

    fn text(&mut self) -> Value {
        let texts = ["", "a", "é\n\"\\\u{1}🦀", "0", "aGk=", "aGk", "100m", "1h2m3s", "2026-01-02T03:04:05Z"];
        let times = usize::from(self.next(40)) * usize::from(self.next(2)) + 1;
        texts[usize::from(self.next(9))].repeat(times).into()
    }

    fn number(&mut self) -> Value {
        match self.next(7) {
            0 => 0.into(),
            1 => (-1).into(),
            2 => i64::MIN.into(),
            3 => u64::MAX.into(),
            4 => 1.5.into(),
            5 => 300.into(),
            _ => i64::MAX.into(),
        }
    }

    /// Returns a value of any type.
    fn anything(&mut self, depth: u16) -> Value {
        match self.next(if depth > 4 { 4 } else { 6 }) {
            0 => Value::Null,
            1 => (self.next(2) == 0).into(),
            2 => self.number(),
            3 => self.text(),
            4 => (0..self.next(3)).map(|_| self.anything(depth + 1)).collect::<Vec<_>>().into(),
            _ => {
                let count = self.next(4);
                let member = |_| (format!("a\"{}", self.next(9)), self.anything(depth + 1));
                Value::Object((0..count).map(member).collect())
            }
        }
    }

    /// Returns a value of a field; now and then one that it cannot have.
    fn value(&mut self, kind: &FieldType, depth: u16) -> Value {
        if depth > 12 || self.next(12) == 0 {
            return self.anything(4);
        }
        match kind {
            FieldType::Text | FieldType::Bytes | FieldType::Duration | FieldType::Quantity => self.text(),
            FieldType::Integer | FieldType::Double => self.number(),
            FieldType::Boolean => (self.next(2) == 0).into(),
            FieldType::Time | FieldType::MicroTime => {
                ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000006Z"][usize::from(self.next(2))].into()
            }
            FieldType::IntOrString => {
                if self.next(2) == 0 {
                    self.number()
                } else {
                    self.text()
                }
            }
            FieldType::Raw
            | FieldType::SchemaOrBoolean
            | FieldType::SchemaOrList
            | FieldType::SchemaOrTexts => self.anything(0),
            FieldType::Message(label) | FieldType::InLine(label) => {
                let mut members = Map::new();
                self.members(fields_of(label).unwrap(), &mut members, depth + 1);
                members.into()
            }
            FieldType::List(item) => {
                (0..self.next(3)).map(|_| self.value(item, depth + 1)).collect::<Vec<_>>().into()
            }
            FieldType::Map(item) => {
                let mut members = Map::new();
                for _ in 0..self.next(3) {
                    let Value::String(key) = self.text() else { continue };
                    members.insert(key, self.value(item, depth + 1));
                }
                members.into()
            }
        }
    }

    fn members(&mut self, fields: &Fields, members: &mut Map<String, Value>, depth: u16) {
        for field in fields.values() {
            match &field.kind {
                FieldType::InLine(label) => self.members(fields_of(label).unwrap(), members, depth + 1),
                kind if self.next(3) > 0 => {
                    members.insert(field.name.to_owned(), self.value(kind, depth));
                }
                _ => {}
            }
        }
    }
}

/// Compares the length of a stored object with what is written of it.
fn check((api_version, kind): (&str, &str), text: &str, revision: u64) -> Result<(), TestCaseError> {
    let type_meta = Arc::new(TypeMeta { api_version: api_version.into(), kind: kind.into() });
    let fields = fields_of(&label_of(api_version, kind)).unwrap();
    let measured = of_object(&type_meta, fields, text.as_bytes(), &revision.to_string()).ok();
    let object = Object::from_stored(type_meta, text.to_owned().into(), Revision(revision));
    let written = object.to_value().ok().map(|value| {
        let mut out = Vec::new();
        protobuf_answer::members(&mut Writer(&mut out), fields, value.as_object().unwrap());
        out.len()
    });
    prop_assert_eq!(measured, written, "{}", text);
    Ok(())
}

proptest! {
    /// The length is that of what is written, for objects of every kind of field, also with values that these cannot have.
    #[test]
    fn the_length_is_that_of_what_is_written(
        kind in 0..KINDS.len(),
        choices in proptest::collection::vec(any::<u16>(), 0..600),
        revision in any::<u64>(),
    ) {
        let (api_version, name) = KINDS[kind];
        let mut members = Map::new();
        let mut choices = Choices(choices.into_iter());
        choices.members(fields_of(&label_of(api_version, name)).unwrap(), &mut members, 0);
        if choices.next(4) > 0 {
            let metadata = choices.value(&FieldType::Message("meta/v1.ObjectMeta"), 0);
            members.insert("metadata".into(), metadata);
        }
        check((api_version, name), &Value::Object(members).to_string(), revision)?;
    }

    #[test]
    fn a_broken_object_has_no_length(text in "\\PC{0,40}", cut in 0_usize..60) {
        let whole = json!({"metadata": {"name": text, "labels": {"a": text}}, "data": {"k": text}}).to_string();
        let end = (0..=cut.min(whole.len())).rev().find(|end| whole.is_char_boundary(*end)).unwrap();
        for part in [&whole[..end], &text, &whole] {
            check(("v1", "ConfigMap"), part, 7)?;
        }
        check(("v1", "ConfigMap"), &format!("{whole}x"), 7)?;
    }
}

/// Both end at the same depth.
#[test]
fn messages_nested_too_deeply_end_where_the_written_ones_do() {
    for depth in [1, 50, 90, 93, 94, 95, 96, 97, 98, 99, 100, 101, 110, 117] {
        let schema =
            (0..depth).fold(json!({"type": "string"}), |inner, _| json!({"not": inner, "title": "t"}));
        let versions = json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}]);
        let object = json!({"metadata": {"name": "a"}, "spec": {"group": "b", "versions": versions}});
        check(("apiextensions.k8s.io/v1", "CustomResourceDefinition"), &object.to_string(), 9).unwrap();
    }
}
