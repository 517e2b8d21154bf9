//! Objects in protobuf requests, read into JSON values by a table of field numbers.
//!
//! kubectl and client-go send built-in kinds in protobuf. The table (`protobuf_fields.txt`, written by
//! `scripts/kubernetes-version`) has one line per message. A reader of a hundred lines walks it; generated types and their
//! conversions would take a hundred thousand.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gc_registry::kubernetes::KubernetesVersion;
use serde_json::{Map, Number, Value};

/// Maximum nesting of messages.
pub(super) const MAXIMUM_DEPTH: usize = 100;

/// Type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    Text,
    Integer,
    Boolean,
    Bytes,
    Double,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    Raw,
    Message(&'static str),
    InLine(&'static str),
    List(Box<FieldType>),
    Map(Box<FieldType>),
    /// `JSONSchemaPropsOrBool`
    SchemaOrBoolean,
    /// `JSONSchemaPropsOrArray`
    SchemaOrList,
    /// `JSONSchemaPropsOrStringArray`
    SchemaOrTexts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: FieldType,
    /// True if a zero value is omitted from JSON.
    drop_zero: bool,
}

/// Fields of a message by number.
pub(super) type Fields = BTreeMap<u32, Field>;

/// Returns the fields of a message by its name.
pub(super) fn fields_of(label: &str) -> Option<&'static Fields> {
    table().get(label)
}

/// All messages.
pub(super) fn messages() -> impl Iterator<Item = &'static Fields> {
    table().values()
}

/// Returns the message name of a kind: messages are named after the first part of the group.
pub(super) fn label_of(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    format!("{package}/{version}.{kind}")
}

fn table() -> &'static HashMap<&'static str, Fields> {
    static TABLE: OnceLock<HashMap<&'static str, Fields>> = OnceLock::new();
    TABLE.get_or_init(|| table_of(KubernetesVersion::chosen()))
}

fn table_of(version: KubernetesVersion) -> HashMap<&'static str, Fields> {
    let mut table = HashMap::new();
    for line in texts_of(version).into_iter().flat_map(str::lines) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        match name.strip_prefix('-') {
            Some(gone) => table.remove(gone),
            None => table.insert(name, words.filter_map(field).collect()),
        };
    }
    table
}

/// Returns the table of 1.36 and the differences of a version: the messages that it defines differently, and after `-` those that
/// it lacks.
fn texts_of(version: KubernetesVersion) -> [&'static str; 2] {
    let difference = match version {
        KubernetesVersion::V1_36 => "",
        KubernetesVersion::V1_37 => include_str!("protobuf_fields-1.37.txt"),
    };
    [include_str!("protobuf_fields.txt"), difference]
}

fn field(word: &'static str) -> Option<(u32, Field)> {
    let (number, rest) = word.split_once(':')?;
    let (name, kind) = rest.split_once(':')?;
    let (kind, drop_zero) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
    Some((number.parse().ok()?, Field { name, kind: parse_kind(kind)?, drop_zero }))
}

fn parse_kind(text: &'static str) -> Option<FieldType> {
    let (first, rest) = text.split_at_checked(1)?;
    Some(match first {
        "s" => FieldType::Text,
        "i" => FieldType::Integer,
        "b" => FieldType::Boolean,
        "y" => FieldType::Bytes,
        "d" => FieldType::Double,
        "T" => FieldType::Time,
        "U" => FieldType::MicroTime,
        "D" => FieldType::Duration,
        "Q" => FieldType::Quantity,
        "I" => FieldType::IntOrString,
        "R" => FieldType::Raw,
        "O" => FieldType::SchemaOrBoolean,
        "A" => FieldType::SchemaOrList,
        "P" => FieldType::SchemaOrTexts,
        "=" => FieldType::Message(rest),
        "~" => FieldType::InLine(rest),
        "[" => FieldType::List(Box::new(parse_kind(rest)?)),
        "{" => FieldType::Map(Box::new(parse_kind(rest)?)),
        _ => return None,
    })
}

/// One field on the wire.
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

type Problem = String;

fn truncated() -> Problem {
    "the message is cut off".into()
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Problem> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or_else(truncated)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number has more than 64 bits".into())
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], Problem> {
    let length = usize::try_from(length).map_err(|_| truncated())?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or_else(truncated)?;
    *bytes = rest;
    Ok(taken)
}

/// Returns the next field; `None` at the end.
fn next_field<'a>(bytes: &mut &'a [u8]) -> Result<Option<(u32, Wire<'a>)>, Problem> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let key = varint(bytes)?;
    let number = u32::try_from(key >> 3).map_err(|_| "a field number is too large".to_owned())?;
    let wire = match key & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => Wire::Fixed64(u64::from_le_bytes(take(bytes, 8)?.try_into().map_err(|_| truncated())?)),
        2 => {
            let length = varint(bytes)?;
            Wire::Bytes(take(bytes, length)?)
        }
        5 => {
            Wire::Fixed64(u64::from(u32::from_le_bytes(take(bytes, 4)?.try_into().map_err(|_| truncated())?)))
        }
        other => return Err(format!("wire type {other} is unknown")),
    };
    Ok(Some((number, wire)))
}

/// Reads a built-in kind. Returns `None` if the table has no message for it.
pub(crate) fn object(api_version: &str, kind: &str, raw: &[u8]) -> Option<Result<Value, Problem>> {
    let (label, fields) = table().get_key_value(label_of(api_version, kind).as_str())?;
    Some(message(label, fields, raw, MAXIMUM_DEPTH).map(|mut map| {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
        Value::Object(map)
    }))
}

fn message(
    label: &str,
    fields: &Fields,
    mut bytes: &[u8],
    depth: usize,
) -> Result<Map<String, Value>, Problem> {
    let depth = depth.checked_sub(1).ok_or("exceeded max depth")?;
    let mut map = Map::new();
    while let Some((number, wire)) = next_field(&mut bytes)? {
        // Fields missing from the table are dropped, as upstream drops unknown fields.
        let Some(field) = fields.get(&number) else { continue };
        put(&mut map, field, &wire, depth).map_err(|problem| format!("{label} {}: {problem}", field.name))?;
    }
    Ok(map)
}

fn put(map: &mut Map<String, Value>, field: &Field, wire: &Wire<'_>, depth: usize) -> Result<(), Problem> {
    match &field.kind {
        FieldType::InLine(label) => {
            for (key, value) in nested(label, wire, depth)? {
                map.insert(key, value);
            }
        }
        FieldType::List(item) => {
            let list = map.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            if let (Value::Array(list), value) = (list, value(item, wire, depth)?) {
                list.push(value);
            }
        }
        FieldType::Map(item) => {
            let Wire::Bytes(entry) = wire else { return Err("expected a map entry".into()) };
            let mut entry = *entry;
            let (mut key, mut found) = (String::new(), None);
            while let Some((number, wire)) = next_field(&mut entry)? {
                match number {
                    1 => key = text(&wire)?,
                    2 => found = Some(value(item, &wire, depth)?),
                    _ => {}
                }
            }
            let entries = map.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(entries) = entries {
                let zero = || {
                    if matches!(**item, FieldType::Text | FieldType::Bytes) { "".into() } else { Value::Null }
                };
                entries.insert(key, found.unwrap_or_else(zero));
            }
        }
        kind => {
            let value = value(kind, wire, depth)?;
            let left_out = value.is_null() || (field.drop_zero && is_zero(&value));
            if !left_out {
                map.insert(field.name.into(), value);
            }
        }
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Object(_) => false,
    }
}

fn text(wire: &Wire<'_>) -> Result<String, Problem> {
    match wire {
        Wire::Bytes(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err("expected a text".into()),
    }
}

fn nested(label: &'static str, wire: &Wire<'_>, depth: usize) -> Result<Map<String, Value>, Problem> {
    let Wire::Bytes(bytes) = wire else { return Err("expected a message".into()) };
    let fields = table().get(label).ok_or_else(|| format!("{label} is not in the table"))?;
    message(label, fields, bytes, depth)
}

/// A message of numbers and one text, which times, quantities and similar types consist of.
struct Small<'a> {
    numbers: [i64; 4],
    bytes: Option<&'a [u8]>,
}

fn small<'a>(wire: &Wire<'a>) -> Result<Small<'a>, Problem> {
    let Wire::Bytes(bytes) = wire else { return Err("expected a message".into()) };
    let mut bytes = *bytes;
    let mut small = Small { numbers: [0; 4], bytes: None };
    while let Some((number, wire)) = next_field(&mut bytes)? {
        match (usize::try_from(number).ok(), wire) {
            (Some(index @ 1..4), Wire::Varint(value)) => small.numbers[index] = value.cast_signed(),
            (_, Wire::Bytes(bytes)) => small.bytes = Some(bytes),
            _ => {}
        }
    }
    Ok(small)
}

fn value(kind: &FieldType, wire: &Wire<'_>, depth: usize) -> Result<Value, Problem> {
    Ok(match (kind, wire) {
        (FieldType::Text, _) => Value::String(text(wire)?),
        (FieldType::Integer, Wire::Varint(number)) => number.cast_signed().into(),
        (FieldType::Boolean, Wire::Varint(number)) => Value::Bool(*number != 0),
        (FieldType::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (FieldType::Double, Wire::Fixed64(bits)) => {
            Number::from_f64(f64::from_bits(*bits)).map_or(Value::Null, Value::Number)
        }
        (FieldType::Time | FieldType::MicroTime, Wire::Bytes([])) => Value::Null,
        (FieldType::Time, _) => {
            let time = jiff::Timestamp::from_second(small(wire)?.numbers[1]);
            time.map_err(|error| error.to_string())?.to_string().into()
        }
        (FieldType::MicroTime, _) => {
            let [_, seconds, nanos, _] = small(wire)?.numbers;
            let nanos = i32::try_from(nanos).map_err(|_| "the time is out of range")?;
            let time = jiff::Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?;
            format!("{time:.6}").into()
        }
        (FieldType::Duration, _) => format!("{}ns", small(wire)?.numbers[1]).into(),
        (FieldType::Quantity, _) => {
            String::from_utf8_lossy(small(wire)?.bytes.unwrap_or_default()).into_owned().into()
        }
        (FieldType::IntOrString, _) => {
            let small = small(wire)?;
            if small.numbers[1] == 0 {
                small.numbers[2].into()
            } else {
                String::from_utf8_lossy(small.bytes.unwrap_or_default()).into_owned().into()
            }
        }
        (FieldType::Raw, _) => match small(wire)?.bytes {
            None | Some([]) => Value::Null,
            Some(bytes) => crate::encode::documents::json(bytes)?.value,
        },
        (FieldType::SchemaOrBoolean | FieldType::SchemaOrList | FieldType::SchemaOrTexts, _) => {
            choice(kind, wire, depth)?
        }
        (FieldType::Message(label) | FieldType::InLine(label), _) => {
            let mut map = nested(label, wire, depth)?;
            // A message with a single nameless field represents a named list type.
            match map.remove("") {
                Some(list) => list,
                None => Value::Object(map),
            }
        }
        _ => return Err("the field is of another type".into()),
    })
}

/// Reads a schema or an alternative to it, as JSON schemas allow in some places.
fn choice(kind: &FieldType, wire: &Wire<'_>, depth: usize) -> Result<Value, Problem> {
    const SCHEMA: FieldType = FieldType::Message("apiextensions/v1.JSONSchemaProps");
    let depth = depth.checked_sub(1).ok_or("exceeded max depth")?;
    let Wire::Bytes(bytes) = wire else { return Err("expected a message".into()) };
    let mut bytes = *bytes;
    let (mut allows, mut schema, mut list) = (false, None, Vec::new());
    while let Some((number, wire)) = next_field(&mut bytes)? {
        match (kind, number) {
            (FieldType::SchemaOrBoolean, 1) => allows = matches!(wire, Wire::Varint(value) if value != 0),
            (FieldType::SchemaOrBoolean, 2) | (FieldType::SchemaOrList | FieldType::SchemaOrTexts, 1) => {
                schema = Some(value(&SCHEMA, &wire, depth)?);
            }
            (FieldType::SchemaOrList, 2) => list.push(value(&SCHEMA, &wire, depth)?),
            (FieldType::SchemaOrTexts, 2) => list.push(text(&wire)?.into()),
            _ => {}
        }
    }
    Ok(match (schema, kind) {
        (Some(schema), _) => schema,
        (None, FieldType::SchemaOrBoolean) => allows.into(),
        (None, _) => list.into(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Writes a message: numbers as varints, the rest with a length.
    fn bytes(fields: &[(u8, &[u8])]) -> Vec<u8> {
        fields
            .iter()
            .flat_map(|(number, content)| {
                [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], *content].concat()
            })
            .collect()
    }

    #[test]
    fn every_message_that_is_named_is_in_the_table() {
        fn labels<'a>(kind: &'a FieldType, found: &mut Vec<&'a str>) {
            match kind {
                FieldType::Message(label) | FieldType::InLine(label) => found.push(label),
                FieldType::List(item) | FieldType::Map(item) => labels(item, found),
                _ => {}
            }
        }
        for version in KubernetesVersion::ALL {
            let table = table_of(version);
            let mut found = Vec::new();
            for field in table.values().flat_map(BTreeMap::values) {
                labels(&field.kind, &mut found);
            }
            assert!(found.len() > 500);
            for label in found {
                assert!(table.contains_key(label), "{version}: {label}");
            }
        }
        for word in texts_of(KubernetesVersion::V1_37).into_iter().flat_map(str::lines) {
            for word in word.split(' ').skip(1) {
                assert!(field(word).is_some(), "{word} is not understood");
            }
        }
    }

    #[test]
    fn a_config_map_is_read() {
        let metadata =
            bytes(&[(1, b"settings"), (2, b""), (8, b""), (11, &bytes(&[(1, b"app"), (2, b"shop")]))]);
        let raw = bytes(&[
            (1, &metadata),
            (2, &bytes(&[(1, b"a"), (2, b"1")])),
            (2, &bytes(&[(1, b"b"), (2, b"")])),
            (3, &bytes(&[(1, b"x"), (2, &[0xff])])),
        ]);
        assert_eq!(
            object("v1", "ConfigMap", &raw).unwrap().unwrap(),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "settings", "labels": {"app": "shop"}},
                "data": {"a": "1", "b": ""}, "binaryData": {"x": "/w=="},
            })
        );
    }

    #[test]
    fn in_line_messages_quantities_and_ports_are_read() {
        // Service.spec.ports[0]: name, and a targetPort that is an IntOrString with a text.
        let port = bytes(&[(1, b"web"), (4, &[&[0x08, 1, 0x10, 0][..], &bytes(&[(3, b"http")])].concat())]);
        let service = object("v1", "Service", &bytes(&[(2, &bytes(&[(1, &port)]))])).unwrap().unwrap();
        assert_eq!(service["spec"]["ports"], json!([{"name": "web", "targetPort": "http"}]));
        // Pod.spec.volumes[0]: JSON inlines the volume source.
        let source = bytes(&[(2, &bytes(&[(2, &bytes(&[(1, b"1Gi")]))]))]);
        let volume = bytes(&[(1, b"v"), (2, &source)]);
        let pod = object("v1", "Pod", &bytes(&[(2, &bytes(&[(1, &volume)]))])).unwrap().unwrap();
        assert_eq!(pod["spec"]["volumes"], json!([{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]));
    }

    #[test]
    fn kinds_without_a_message_are_told() {
        assert!(object("v1", "Thing", b"").is_none());
        assert!(object("example.com/v1", "ConfigMap", b"").is_none());
        assert!(object("v1", "ConfigMap", b"\xff\xff").unwrap().is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for kind in ["Pod", "ConfigMap", "Service"] {
                let _ = object("v1", kind, &bytes);
            }
        }
    }
}
