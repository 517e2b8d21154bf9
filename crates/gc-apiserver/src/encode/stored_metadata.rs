//! Converts metadata from its stored text directly to protobuf.
//!
//! Collectors read the metadata of every object of a cluster, so no tree of values is built on the way, and nothing is cached with
//! the object. The texts of managedFields pass through unchanged.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Error;

use crate::encode::protobuf_writer::{Writer, time};

/// `metadata` as stored by the registry: without nulls and without resourceVersion.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    generate_name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    self_link: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    generation: Option<i64>,
    #[serde(borrow)]
    creation_timestamp: Cow<'a, str>,
    #[serde(borrow)]
    deletion_timestamp: Cow<'a, str>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Texts,
    annotations: Texts,
    #[serde(borrow)]
    owner_references: Vec<Owner<'a>>,
    finalizers: Vec<String>,
    #[serde(borrow)]
    managed_fields: Vec<ManagedFields<'a>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ManagedFields<'a> {
    #[serde(borrow)]
    manager: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    fields_type: Cow<'a, str>,
    #[serde(rename = "fieldsV1")]
    fields: Option<JsonText>,
    #[serde(borrow)]
    subresource: Cow<'a, str>,
}

/// Writes the fields of `ObjectMeta`. The text may continue after the metadata.
pub(crate) fn write(writer: &mut Writer<'_>, text: &[u8], resource_version: &str) -> Result<(), Error> {
    let meta = Metadata::deserialize(&mut serde_json::Deserializer::from_slice(text))?;
    writer.text(1, &meta.name);
    writer.text(2, &meta.generate_name);
    writer.text(3, &meta.namespace);
    writer.text(4, &meta.self_link);
    writer.text(5, &meta.uid);
    writer.text(6, resource_version);
    if let Some(generation) = meta.generation {
        writer.number(7, generation);
    }
    time(writer, 8, &meta.creation_timestamp);
    time(writer, 9, &meta.deletion_timestamp);
    if let Some(seconds) = meta.deletion_grace_period_seconds {
        writer.number(10, seconds);
    }
    meta.labels.write(writer, 11);
    meta.annotations.write(writer, 12);
    for owner in &meta.owner_references {
        writer.message(13, |writer| owner.write(writer));
    }
    for finalizer in &meta.finalizers {
        writer.bytes(14, finalizer.as_bytes());
    }
    for entry in &meta.managed_fields {
        writer.message(17, |writer| entry.write(writer));
    }
    Ok(())
}

impl Owner<'_> {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(1, &self.kind);
        writer.text(3, &self.name);
        writer.text(4, &self.uid);
        writer.text(5, &self.api_version);
        for (field, flag) in [(6, self.controller), (7, self.block_owner_deletion)] {
            if let Some(flag) = flag {
                writer.number(field, i64::from(flag));
            }
        }
    }
}

impl ManagedFields<'_> {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(1, &self.manager);
        writer.text(2, &self.operation);
        writer.text(3, &self.api_version);
        time(writer, 4, &self.time);
        writer.text(6, &self.fields_type);
        if let Some(fields) = &self.fields {
            writer.message(7, |writer| writer.bytes(1, &fields.0));
        }
        writer.text(8, &self.subresource);
    }
}

/// A map of texts in its original order.
#[derive(Default)]
struct Texts(Vec<(String, String)>);

impl Texts {
    fn write(&self, writer: &mut Writer<'_>, field: u32) {
        for (key, value) in &self.0 {
            writer.message(field, |writer| {
                writer.bytes(1, key.as_bytes());
                writer.bytes(2, value.as_bytes());
            });
        }
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut entries = Vec::with_capacity(map.size_hint().unwrap_or_default());
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Texts(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Any JSON, re-encoded while it is parsed. The parser limits the nesting.
pub(super) struct JsonText(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut out = Vec::new();
        deserializer.deserialize_any(CopiedMetadata(&mut out))?;
        Ok(Self(out))
    }
}

struct CopiedMetadata<'a>(&'a mut Vec<u8>);

impl CopiedMetadata<'_> {
    fn put<E: serde::de::Error>(self, value: &(impl serde::Serialize + ?Sized)) -> Result<(), E> {
        serde_json::to_writer(self.0, value).map_err(E::custom)
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for CopiedMetadata<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CopiedMetadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.put(&())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.put(&value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.put(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.put(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.put(&value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.put(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let begin = self.0.len();
        while items.next_element_seed(CopiedMetadata(self.0))?.is_some() {
            self.0.push(b',');
        }
        // Every item is followed by a comma, including the last.
        if self.0.len() > begin {
            self.0.pop();
        }
        self.0.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.push(b'{');
        let mut first = true;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if !first {
                self.0.push(b',');
            }
            first = false;
            CopiedMetadata(self.0).put(&*key)?;
            self.0.push(b':');
            map.next_value_seed(CopiedMetadata(self.0))?;
        }
        self.0.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a broken assumption should stop the test

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::encode::protobuf;

    /// Encodes metadata the slow way, through a tree of values.
    fn by_values(metadata: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        protobuf::object_meta(&mut Writer(&mut out), metadata.as_object().unwrap());
        out
    }

    fn by_text(metadata: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        let mut stored = metadata.clone();
        let version = stored.as_object_mut().unwrap().remove("resourceVersion");
        let version = version.as_ref().and_then(Value::as_str).unwrap_or_default();
        // In a stored object, further text follows the metadata.
        let text = format!("{stored},\"data\":{{}}}}");
        write(&mut Writer(&mut out), text.as_bytes(), version).unwrap();
        out
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[\\PC\"\\\\\n]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[\\PC\"\\\\]{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Both ways must write the same bytes.
        #[test]
        fn text_and_values_agree(
            name in "[\\PC\"\\\\]{0,12}",
            labels in proptest::collection::btree_map("[\\PC\"]{0,6}", "[\\PC\\\\]{0,6}", 0..4),
            fields in any_json(),
            owners in 0_usize..3,
            controller in any::<Option<bool>>(),
            generation in any::<Option<i64>>(),
        ) {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": controller});
            let mut metadata = json!({
                "name": name, "namespace": "n", "uid": "u", "resourceVersion": "12",
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
                "deletionGracePeriodSeconds": 30, "labels": labels, "annotations": {"a": "b"},
                "ownerReferences": vec![owner; owners], "finalizers": ["a/b", "c"],
                "managedFields": [{
                    "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:x": fields}, "subresource": "status",
                }],
            });
            if let Some(generation) = generation {
                metadata["generation"] = generation.into();
            }
            prop_assert_eq!(by_text(&metadata), by_values(&metadata));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = write(&mut Writer(&mut Vec::new()), text.as_bytes(), "1");
        }
    }
}
