//! The length of an object in protobuf, from its stored text: what precedes a list in protobuf is the sum of these.
//!
//! The result must be exactly the length of what [`protobuf_answer::members`](super::protobuf_answer::members) writes for the same
//! text. No value is built and nothing is written, which takes a tenth of the time: every write to a large collection is measured.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gc_registry::object::TypeMeta;
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor, value};
use serde_json::{Error, Value};

use super::protobuf_answer;
use super::protobuf_request::{FieldType, Fields, MAXIMUM_DEPTH, fields_of, messages};
use super::protobuf_writer::Writer;
use super::stored_metadata::JsonText;

/// Returns the length of an object in its version, from its stored text and its resourceVersion.
pub(crate) fn of_object(
    type_meta: &TypeMeta,
    fields: &'static Fields,
    stored: &[u8],
    version: &str,
) -> Result<usize, Error> {
    let added = [("apiVersion", &*type_meta.api_version), ("kind", &*type_meta.kind)];
    let measured =
        Members { plan: plan_of(fields), depth: MAXIMUM_DEPTH, added: &added, version: Some(version) };
    let mut reader = serde_json::Deserializer::from_slice(stored);
    let length = reader.deserialize_map(measured)?;
    reader.end()?;
    Ok(length)
}

/// Returns the length of a message or string of this length, together with its field number and its length prefix.
pub(crate) fn delimited(number: u32, length: usize) -> usize {
    varint(u64::from(number) << 3) + varint(length as u64) + length
}

fn varint(value: u64) -> usize {
    // Seven bits in each byte.
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Place of a field: a message that is in line has its fields among those of the message around it.
struct Target {
    name: &'static str,
    /// Index of the message in [`Plan::messages`].
    message: usize,
    number: u32,
    kind: &'static FieldType,
}

/// A message that is in line.
struct InLine {
    /// Index of the message around it, which is a lower one.
    parent: usize,
    number: u32,
    /// Number of messages around it.
    level: usize,
}

/// Fields of a message by their names.
struct Plan {
    /// In the order of their names.
    targets: Vec<Target>,
    /// The message itself, and those in line.
    messages: Vec<InLine>,
}

impl Plan {
    fn new(fields: &'static Fields) -> Self {
        let mut plan = Self { targets: Vec::new(), messages: Vec::new() };
        plan.add(fields, InLine { parent: 0, number: 0, level: 0 });
        plan.targets.sort_by_key(|target| target.name);
        plan
    }

    fn add(&mut self, fields: &'static Fields, of: InLine) {
        let (message, level) = (self.messages.len(), of.level);
        self.messages.push(of);
        for (number, field) in fields {
            let number = *number;
            match &field.kind {
                FieldType::InLine(label) => {
                    if let Some(inner) = fields_of(label).filter(|_| level < MAXIMUM_DEPTH) {
                        self.add(inner, InLine { parent: message, number, level: level + 1 });
                    }
                }
                kind => self.targets.push(Target { name: field.name, message, number, kind }),
            }
        }
    }

    /// Returns the fields of a name.
    fn named(&self, name: &str) -> &[Target] {
        let begin = self.targets.partition_point(|target| target.name < name);
        let length = self.targets[begin..].iter().take_while(|target| target.name == name).count();
        &self.targets[begin..begin + length]
    }
}

/// Returns the plan of a message of the table.
fn plan_of(fields: &'static Fields) -> &'static Plan {
    /// Plans by the addresses of the fields, which live as long as the program.
    static PLANS: OnceLock<HashMap<usize, Plan>> = OnceLock::new();
    static NONE: Plan = Plan { targets: Vec::new(), messages: Vec::new() };
    let address = |fields: &'static Fields| std::ptr::from_ref(fields).addr();
    let plans = PLANS.get_or_init(|| messages().map(|fields| (address(fields), Plan::new(fields))).collect());
    plans.get(&address(fields)).unwrap_or(&NONE)
}

/// Returns the length of a value that is rare or short, by writing it.
fn written(number: u32, kind: &FieldType, value: &Value, depth: usize) -> usize {
    let mut out = Vec::new();
    protobuf_answer::write(&mut Writer(&mut out), number, kind, value, depth);
    out.len()
}

/// The members of a message.
struct Members<'a> {
    plan: &'static Plan,
    depth: usize,
    /// Members that are not in the text, or otherwise.
    added: &'a [(&'static str, &'a str)],
    /// The resourceVersion of the object, of which this is the outermost message.
    version: Option<&'a str>,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
        let Self { plan, depth, added, version } = self;
        // Most messages have no message in line.
        let (mut single, mut several) = ([0], Vec::new());
        let lengths: &mut [usize] = if plan.messages.len() > 1 {
            several.resize(plan.messages.len(), 0);
            several.as_mut_slice()
        } else {
            &mut single
        };
        // Fields of a message in line are as much deeper as that is.
        let depth_of = |target: &Target| depth.checked_sub(1 + plan.messages[target.message].level);
        while let Some(found) = map.next_key_seed(Name { plan, added, is_root: version.is_some() })? {
            match found {
                Found::Nothing => {
                    map.next_value::<IgnoredAny>()?;
                }
                Found::Metadata(target) => {
                    let added = version.map(|version| ("resourceVersion", version));
                    let (depth, added) = (depth_of(target).unwrap_or_default(), added.as_slice());
                    let seed = Field { number: target.number, kind: target.kind, depth, added };
                    lengths[target.message] += map.next_value_seed(seed)?.unwrap_or_default();
                }
                Found::One(target) => match depth_of(target) {
                    Some(depth) => {
                        let seed = Field { number: target.number, kind: target.kind, depth, added: &[] };
                        lengths[target.message] += map.next_value_seed(seed)?.unwrap_or_default();
                    }
                    None => {
                        map.next_value::<IgnoredAny>()?;
                    }
                },
                Found::Several(targets) => {
                    let value: Value = map.next_value()?;
                    for target in targets.iter().filter(|_| !value.is_null()) {
                        let Some(depth) = depth_of(target) else { continue };
                        lengths[target.message] += written(target.number, target.kind, &value, depth);
                    }
                }
            }
        }
        for (name, text) in added {
            for target in plan.named(name).iter().filter(|target| depth_of(target).is_some()) {
                let depth = depth_of(target).unwrap_or_default();
                lengths[target.message] += match target.kind {
                    FieldType::Text => delimited(target.number, text.len()),
                    kind => written(target.number, kind, &(*text).into(), depth),
                };
            }
        }
        // Messages in line are written, however empty they are.
        for index in (1..lengths.len()).rev() {
            let InLine { parent, number, level } = plan.messages[index];
            if depth >= level {
                lengths[parent] += delimited(number, lengths[index]);
            }
        }
        Ok(lengths.first().copied().unwrap_or_default())
    }
}

/// Reads the name of a member.
struct Name<'a> {
    plan: &'static Plan,
    added: &'a [(&'static str, &'a str)],
    is_root: bool,
}

/// Fields of a name.
enum Found {
    Nothing,
    /// Metadata of an object.
    Metadata(&'static Target),
    One(&'static Target),
    Several(&'static [Target]),
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Found, E> {
        if self.added.iter().any(|(added, _)| *added == name) {
            return Ok(Found::Nothing);
        }
        Ok(match self.plan.named(name) {
            [] => Found::Nothing,
            [target] if self.is_root && name == "metadata" => Found::Metadata(target),
            [target] => Found::One(target),
            several => Found::Several(several),
        })
    }
}

/// Reads the value of a field; `None` for null.
#[derive(Clone, Copy)]
struct Field<'a> {
    number: u32,
    kind: &'static FieldType,
    depth: usize,
    /// Members of a message that are not in its text.
    added: &'a [(&'static str, &'a str)],
}

impl Field<'_> {
    fn written(self, value: &Value) -> usize {
        written(self.number, self.kind, value, self.depth)
    }
}

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        match self.kind {
            FieldType::Raw => {
                let JsonText(text) = JsonText::deserialize(deserializer)?;
                let is_null = text == b"null";
                Ok((!is_null).then(|| delimited(self.number, delimited(1, text.len()))))
            }
            FieldType::SchemaOrBoolean | FieldType::SchemaOrList | FieldType::SchemaOrTexts => {
                let value = Value::deserialize(deserializer)?;
                Ok((!value.is_null()).then(|| self.written(&value)))
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(self.written(&value.into())))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(self.written(&value.into())))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(self.written(&value.into())))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(self.written(&value.into())))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(match self.kind {
            FieldType::Text => delimited(self.number, text.len()),
            FieldType::Bytes => delimited(self.number, STANDARD.decode(text).map_or(0, |bytes| bytes.len())),
            FieldType::Quantity => delimited(self.number, delimited(1, text.len())),
            _ => self.written(&text.into()),
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let FieldType::List(kind) = self.kind else {
            let value = Value::deserialize(value::SeqAccessDeserializer::new(items))?;
            return Ok(Some(self.written(&value)));
        };
        let item = Field { kind, ..self };
        let mut length = 0;
        while let Some(measured) = items.next_element_seed(item)? {
            length += measured.unwrap_or_else(|| item.written(&Value::Null));
        }
        Ok(Some(length))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        match self.kind {
            FieldType::Message(label) => {
                let Some(fields) = fields_of(label) else {
                    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                    return Ok(Some(0));
                };
                let Self { depth, added, .. } = self;
                let members = Members { plan: plan_of(fields), depth, added, version: None };
                Ok(Some(delimited(self.number, members.visit_map(map)?)))
            }
            FieldType::Map(kind) => {
                let mut length = 0;
                while let Some(KeyLength(key)) = map.next_key()? {
                    let value = Field { number: 2, kind, ..self };
                    let value = map.next_value_seed(value)?.unwrap_or_default();
                    length += delimited(self.number, delimited(1, key) + value);
                }
                Ok(Some(length))
            }
            _ => {
                let value = Value::deserialize(value::MapAccessDeserializer::new(map))?;
                Ok(Some(self.written(&value)))
            }
        }
    }
}

/// Length of the key of a map.
struct KeyLength(usize);

impl<'de> serde::Deserialize<'de> for KeyLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl Visitor<'_> for Key {
            type Value = KeyLength;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<KeyLength, E> {
                Ok(KeyLength(key.len()))
            }
        }
        deserializer.deserialize_str(Key)
    }
}

#[cfg(test)]
mod tests;
