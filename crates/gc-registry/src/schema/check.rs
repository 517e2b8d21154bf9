//! Checks a document against the types of a built-in kind, with the errors of Go's JSON decoder.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::metadata::names::quoted;

use super::{IntegerFormat, Node, Schema, StringFormat};

/// Go's layout of `metav1.MicroTime`.
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Position of the decoder: the innermost struct, and the fields that lead there.
struct DecoderPosition<'a> {
    struct_name: &'a str,
    fields: Vec<&'a str>,
}

/// Error of a type with its own decoder.
const SCHEMA_OR_BOOLEAN: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";

/// Checks the types of a document of a built-in kind. The error, which becomes a 400, has the wording of Go's decoder, such as
/// `json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string`. `null` is valid everywhere, and
/// unknown fields are not checked.
pub fn check_types(schema: &Schema, value: &Value) -> Result<(), String> {
    check(schema, value, &mut DecoderPosition { struct_name: "", fields: Vec::new() })
}

fn check<'a>(schema: &'a Schema, value: &'a Value, place: &mut DecoderPosition<'a>) -> Result<(), String> {
    match (&schema.node, value) {
        (Node::Any, Value::String(_) | Value::Number(_) | Value::Array(_))
            if schema.name.as_deref() == Some(SCHEMA_OR_BOOLEAN) =>
        {
            Err("boolean or JSON schema expected".into())
        }
        (_, Value::Null)
        | (Node::Any, _)
        | (Node::Boolean, Value::Bool(_))
        | (Node::Number | Node::Quantity, Value::Number(_))
        | (Node::IntOrString, Value::String(_)) => Ok(()),
        (Node::Object(object), Value::Object(fields)) => {
            let outer = std::mem::replace(&mut place.struct_name, type_name(schema));
            for (name, value) in fields {
                if let Some(property) = object.properties.get(name.as_str()) {
                    let depth = place.fields.len();
                    place.fields.extend(property.embedded_in.iter().copied());
                    if depth > 0
                        && matches!(name.as_str(), "kind" | "apiVersion")
                        && is_typed(place.struct_name)
                    {
                        place.fields.push("TypeMeta");
                    }
                    place.fields.push(name);
                    check(&property.schema, value, place)?;
                    place.fields.truncate(depth);
                }
            }
            place.struct_name = outer;
            Ok(())
        }
        (Node::Map(map), Value::Object(fields)) => {
            fields.values().try_for_each(|value| check(&map.values, value, place))
        }
        (Node::List(list), Value::Array(items)) => {
            items.iter().try_for_each(|item| check(&list.items, item, place))
        }
        (Node::String(format), Value::String(text)) => check_format(format, text),
        (Node::Integer(_) | Node::IntOrString, Value::Number(number)) => {
            let fits = match schema.node {
                Node::Integer(IntegerFormat::Int64) => number.is_i64(),
                _ => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            };
            if fits { Ok(()) } else { Err(mismatch(&format!("number {number}"), schema, place)) }
        }
        (Node::String(StringFormat::Byte), Value::Array(items)) => {
            items.iter().try_for_each(|item| check_byte(item, place))
        }
        (Node::Quantity, Value::String(text)) => check_quantity(text.trim()),
        (Node::Quantity, _) => check_quantity(&value.to_string()),
        (_, other) => Err(mismatch(json_type(other), schema, place)),
    }
}

/// Checks an item of bytes given as a list of numbers, which Go's decoder accepts.
fn check_byte(item: &Value, place: &DecoderPosition<'_>) -> Result<(), String> {
    match item {
        Value::Null => Ok(()),
        Value::Number(number) if number.as_u64().is_some_and(|number| number <= 255) => Ok(()),
        Value::Number(number) => Err(mismatch_of(&format!("number {number}"), "uint8", place)),
        other => Err(mismatch_of(json_type(other), "uint8", place)),
    }
}

/// Reports whether Go's type embeds the type information of a document, as for an object inside another.
fn is_typed(struct_name: &str) -> bool {
    matches!(struct_name, "DeleteOptions" | "PersistentVolumeClaim")
}

fn mismatch(found: &str, schema: &Schema, place: &DecoderPosition<'_>) -> String {
    mismatch_of(found, &go_type(schema), place)
}

fn mismatch_of(found: &str, wanted: &str, place: &DecoderPosition<'_>) -> String {
    if place.fields.is_empty() {
        return format!("json: cannot unmarshal {found} into Go value of type {wanted}");
    }
    let path = place.fields.join(".");
    format!(
        "json: cannot unmarshal {found} into Go struct field {}.{path} of type {wanted}",
        place.struct_name
    )
}

/// Converts the result of a strategic merge patch to its types. Upstream does not decode it, but converts the generic document, and
/// truncates a number that does not fit its type. The error has upstream's wording.
pub(crate) fn restore(schema: &Schema, value: &mut Value) -> Result<(), String> {
    match (&schema.node, &mut *value) {
        (Node::String(StringFormat::Byte), Value::String(_)) => {
            check_types(schema, value).map_err(|why| format!("error decoding from json: {why}"))
        }
        (Node::String(StringFormat::DateTime | StringFormat::MicroTime), Value::String(_)) => {
            check_types(schema, value)
        }
        (_, Value::Null)
        | (Node::String(_), Value::String(_))
        | (Node::Boolean, Value::Bool(_))
        | (Node::Number, Value::Number(_))
        | (Node::String(StringFormat::Byte), Value::Array(_)) => Ok(()),
        (Node::Object(object), Value::Object(fields)) => fields.iter_mut().try_for_each(|(name, value)| {
            object.properties.get(name.as_str()).map_or(Ok(()), |property| restore(&property.schema, value))
        }),
        (Node::Map(map), Value::Object(fields)) => {
            fields.values_mut().try_for_each(|value| restore(&map.values, value))
        }
        (Node::List(list), Value::Array(items)) => {
            items.iter_mut().try_for_each(|item| restore(&list.items, item))
        }
        (Node::Integer(format), Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| {
                // Go converts a number that is too large for any integer to the smallest one.
                let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
                Some(float_to_integer(float))
            });
            match whole {
                Some(whole) => *value = cut(whole, *format).into(),
                None => return Err(format!("cannot convert float64 to {}", go_type(schema))),
            }
            Ok(())
        }
        (Node::IntOrString, Value::Number(number)) => {
            // The number is written and read again, and written without a fraction.
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
            let whole = whole.map(float_to_integer).filter(|whole| i32::try_from(*whole).is_ok());
            if let Some(whole) = whole {
                *value = whole.into();
            }
            check_types(schema, value)
        }
        (
            Node::Any
            | Node::IntOrString
            | Node::Quantity
            | Node::String(StringFormat::DateTime | StringFormat::MicroTime),
            _,
        ) => {
            // These types decode themselves.
            check_types(schema, value)
        }
        (Node::Object(_), other) => Err(format!("cannot restore struct from: {}", generic_type(other))),
        (Node::Map(_), other) => Err(format!("cannot restore map from {}", generic_type(other))),
        (Node::List(_) | Node::String(StringFormat::Byte), other) => {
            Err(format!("cannot restore slice from {}", generic_type(other)))
        }
        (Node::String(_), Value::Number(number)) if !number.is_f64() => {
            Err(format!("cannot convert int64 to {}", go_type(schema)))
        }
        (Node::String(_), _) => Err("unrecognized type: string".into()),
        (Node::Integer(IntegerFormat::Int64), _) => Err("unrecognized type: int64".into()),
        (Node::Integer(_), _) => Err("unrecognized type: int32".into()),
        (Node::Number, _) => Err("unrecognized type: float64".into()),
        (Node::Boolean, _) => Err("unrecognized type: bool".into()),
    }
}

/// Returns the kind of a value in Go's generic document.
fn generic_type(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "map",
        Value::Array(_) => "slice",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        other => json_type(other),
    }
}

/// Truncates an integer to a type with fewer bits.
#[allow(clippy::cast_possible_truncation)]
fn cut(whole: i64, format: IntegerFormat) -> i64 {
    match format {
        IntegerFormat::Int64 => whole,
        IntegerFormat::Int32 => i64::from(whole as i32),
    }
}

/// Converts a whole number to an integer; one that is too large becomes the smallest integer.
#[allow(clippy::cast_possible_truncation)]
fn float_to_integer(float: f64) -> i64 {
    if float.abs() < 9.2e18 { float as i64 } else { i64::MIN }
}

/// Returns Go's name for the type of a JSON value.
#[must_use]
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_name(schema: &Schema) -> &str {
    schema.name.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default()
}

fn go_type(schema: &Schema) -> String {
    if let Some(go) = &schema.go {
        return go.name.into();
    }
    match &schema.node {
        Node::Any | Node::Object(_) => {
            let Some(name) = schema.name.as_deref() else { return "interface {}".into() };
            let mut parts = name.rsplit('.');
            let last = parts.next().unwrap_or_default();
            format!("{}.{last}", parts.next().unwrap_or_default())
        }
        Node::Map(map) => format!("map[string]{}", go_element(&map.values)),
        Node::List(list) => format!("[]{}", go_element(&list.items)),
        Node::String(StringFormat::Byte) => "[]uint8".into(),
        Node::String(_) => "string".into(),
        Node::Integer(IntegerFormat::Int64) => "int64".into(),
        Node::Integer(IntegerFormat::Int32) | Node::IntOrString => "int32".into(),
        Node::Number => "float64".into(),
        Node::Boolean => "bool".into(),
        Node::Quantity => "resource.Quantity".into(),
    }
}

/// Returns the type of items and values. Only the decoder of a time itself treats it as a text.
fn go_element(schema: &Schema) -> String {
    match schema.node {
        Node::String(StringFormat::DateTime) => "v1.Time".into(),
        Node::String(StringFormat::MicroTime) => "v1.MicroTime".into(),
        _ => go_type(schema),
    }
}

fn check_format(format: &StringFormat, text: &str) -> Result<(), String> {
    match format {
        StringFormat::Byte => {
            let plain = without_line_breaks(text);
            match STANDARD.decode(&*plain) {
                Ok(_) => Ok(()),
                Err(error) => {
                    let offset = with_line_breaks(text, base64_offset(&error, &plain));
                    Err(format!("illegal base64 data at input byte {offset}"))
                }
            }
        }
        StringFormat::DateTime => check_time(text, "2006-01-02T15:04:05Z07:00"),
        StringFormat::MicroTime => {
            // In contrast to times in seconds, there must be exactly six digits.
            let digits = text
                .get("2006-01-02T15:04:05".len()..)
                .and_then(|rest| rest.strip_prefix('.'))
                .map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
            if digits == Some(6) {
                check_time(text, MICRO_LAYOUT)
            } else {
                Err(time_error(text, MICRO_LAYOUT, &time_problem(text, MICRO_LAYOUT)))
            }
        }
        _ => Ok(()),
    }
}

/// Returns a base64 text without its line breaks, which Go's decoder skips.
pub(crate) fn without_line_breaks(text: &str) -> Cow<'_, str> {
    if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], "").into() } else { text.into() }
}

/// Converts an offset in a text without line breaks to the offset in the same text with them.
fn with_line_breaks(text: &str, offset: usize) -> usize {
    let rest = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    rest.map(|(at, _)| at).nth(offset).unwrap_or(text.len())
}

/// Returns the offset at which Go reports an error in a base64 text.
pub(crate) fn base64_offset(error: &base64::DecodeError, text: &str) -> usize {
    match error {
        // Go reports the byte after the padding, not the padding.
        base64::DecodeError::InvalidByte(offset, b'=') if offset % 4 == 3 => offset + 1,
        base64::DecodeError::InvalidByte(offset, b'=')
            if offset % 4 == 2 && text.as_bytes().get(offset + 1) == Some(&b'=') =>
        {
            offset + 2
        }
        base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _) => {
            *offset
        }
        _ => text.len() / 4 * 4,
    }
}

fn check_time(text: &str, layout: &str) -> Result<(), String> {
    match time_problem(text, layout) {
        TimeProblem::OutOfRange("day") if has_day(text) => Ok(()),
        problem => Err(time_error(text, layout, &problem)),
    }
}

fn time_error(text: &str, layout: &str, problem: &TimeProblem<'_>) -> String {
    let what = quoted(text);
    match problem {
        TimeProblem::Elsewhere(rest, element) => {
            format!("parsing time {what} as {layout:?}: cannot parse {} as {element:?}", quoted(rest))
        }
        TimeProblem::OutOfRange(part) => format!("parsing time {what}: {part} out of range"),
        TimeProblem::Extra(rest) => format!("parsing time {what}: extra text: {}", quoted(rest)),
    }
}

/// Error of Go's time parser.
enum TimeProblem<'t> {
    /// The rest of the text does not match the next element of the layout.
    Elsewhere(&'t str, &'static str),
    OutOfRange(&'static str),
    /// Text follows the time.
    Extra(&'t str),
}

/// Explains why a text is not a time in a layout of `metav1`, checking from left to right like Go's parser.
fn time_problem<'t>(text: &'t str, layout: &str) -> TimeProblem<'t> {
    const ELEMENTS: [(&str, usize, &str, u32, u32); 6] = [
        ("2006", 4, "-", 0, 9999),
        ("01", 2, "-", 1, 12),
        ("02", 2, "T", 0, 99),
        ("15", 2, ":", 0, 23),
        ("04", 2, ":", 0, 59),
        ("05", 2, "", 0, 59),
    ];
    const RANGES: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];
    let mut rest = text;
    for ((element, digits, separator, least, most), part) in ELEMENTS.into_iter().zip(RANGES) {
        let Some((number, after)) = rest
            .split_at_checked(digits)
            .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            return TimeProblem::Elsewhere(rest, element);
        };
        if !(least..=most).contains(&number.parse().unwrap_or(u32::MAX)) {
            return TimeProblem::OutOfRange(part);
        }
        rest = match after.strip_prefix(separator) {
            Some(rest) => rest,
            None => return TimeProblem::Elsewhere(after, separator),
        };
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let fraction = rest.strip_prefix(['.', ',']).map_or(0, digits);
    if layout == MICRO_LAYOUT {
        if fraction < 6 {
            return TimeProblem::Elsewhere(rest, ".000000");
        }
        rest = &rest[1 + 6..];
    } else if fraction > 0 {
        rest = &rest[1 + fraction..];
    }
    let zone = rest.strip_prefix('Z').or_else(|| {
        let (zone, after) = rest.split_at_checked("+07:00".len())?;
        let bytes = zone.as_bytes();
        let shaped = matches!(bytes[0], b'+' | b'-') && bytes[3] == b':';
        (shaped && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit())).then_some(after)
    });
    match zone {
        None => TimeProblem::Elsewhere(rest, "Z07:00"),
        Some("") => TimeProblem::OutOfRange("day"),
        Some(rest) => TimeProblem::Extra(rest),
    }
}

/// Reports whether the day exists in its month, in a text that begins with date and time. Go has no leap seconds.
fn has_day(text: &str) -> bool {
    text.get(.."2006-01-02T15:04:05".len()).is_some_and(|text| text.parse::<jiff::civil::DateTime>().is_ok())
}

/// Checks a decimal number with a suffix, such as `100m`, `1.5Gi` or `1e3`.
fn check_quantity(text: &str) -> Result<(), String> {
    const SUFFIXES: [&str; 16] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const EXPRESSION: &str = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
    let refused = || format!("quantities must match the regular expression '{EXPRESSION}'");
    let is_digit = |c: char| c.is_ascii_digit();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let after_whole = unsigned.trim_start_matches(is_digit);
    let suffix = after_whole.strip_prefix('.').map_or(after_whole, |rest| rest.trim_start_matches(is_digit));
    let rest = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    if !rest.trim_start_matches(is_digit).is_empty() {
        return Err(refused());
    }
    let exponent = suffix.strip_prefix(['e', 'E']).filter(|exponent| !exponent.is_empty());
    let exponent_fits = exponent.is_some_and(|exponent| exponent.parse::<i32>().is_ok());
    if !SUFFIXES.contains(&suffix) && !exponent_fits {
        return Err("unable to parse quantity's suffix".into());
    }
    let has_digits = unsigned.strip_suffix(suffix).is_some_and(|number| number.contains(is_digit));
    if has_digits { Ok(()) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    #[test]
    fn a_patched_document_is_converted_as_go_converts_it() {
        let schema = builtin("apps", "v1", "Deployment").expect("built in");
        let spec = |field: &str, value: Value| json!({"spec": {field: value}});
        for (sent, want) in [
            (spec("replicas", json!(2.0)), Ok(spec("replicas", json!(2)))),
            (spec("replicas", json!(4_294_967_297_i64)), Ok(spec("replicas", json!(1)))),
            (spec("replicas", json!(1e30)), Ok(spec("replicas", json!(0)))),
            (spec("replicas", json!(1.5)), Err("cannot convert float64 to int32")),
            (spec("replicas", json!("1")), Err("unrecognized type: int32")),
            (spec("paused", json!(1)), Err("unrecognized type: bool")),
            (spec("template", json!(1)), Err("cannot restore struct from: int64")),
            (json!({"metadata": {"labels": {"a": 5}}}), Err("cannot convert int64 to string")),
            (json!({"metadata": {"labels": {"a": true}}}), Err("unrecognized type: string")),
            (json!({"metadata": {"labels": "x"}}), Err("cannot restore map from string")),
            (spec("strategy", json!({"type": 7})), Err("cannot convert int64 to v1.DeploymentStrategyType")),
            (
                spec("strategy", json!({"rollingUpdate": {"maxSurge": 1.5}})),
                Err("json: cannot unmarshal number 1.5 into Go value of type int32"),
            ),
            (
                json!({"metadata": {"creationTimestamp": 7}}),
                Err("json: cannot unmarshal number into Go value of type string"),
            ),
        ] {
            let mut document = sent.clone();
            let got = restore(&schema, &mut document).map(|()| document);
            assert_eq!(got, want.map_err(str::to_owned), "{sent}");
        }
    }

    #[test]
    fn types_have_their_names_in_go() {
        for (group, kind, sent, wanted) in [
            (
                "",
                "PersistentVolumeClaim",
                json!({"status": {"allocatedResourceStatuses": "x"}}),
                "PersistentVolumeClaimStatus.status.allocatedResourceStatuses of type \
                 map[v1.ResourceName]v1.ClaimResourceStatus",
            ),
            (
                "policy",
                "PodDisruptionBudget",
                json!({"status": {"disruptedPods": "x"}}),
                "PodDisruptionBudgetStatus.status.disruptedPods of type map[string]v1.Time",
            ),
            (
                "certificates.k8s.io",
                "CertificateSigningRequest",
                json!({"spec": {"usages": "x"}}),
                "CertificateSigningRequestSpec.spec.usages of type []v1.KeyUsage",
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"enum": "x"}}}]}}),
                "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.enum of type []v1.JSON",
            ),
        ] {
            let schema = builtin(group, "v1", kind).expect("built in");
            let wanted = format!("json: cannot unmarshal string into Go struct field {wanted}");
            assert_eq!(check_types(&schema, &sent), Err(wanted));
        }
    }

    #[test]
    fn bytes_that_a_patch_has_made_are_refused_in_other_words() {
        let schema = builtin("", "v1", "Secret").expect("built in");
        let mut secret = json!({"data": {"k": "b"}});
        let wanted = "error decoding from json: illegal base64 data at input byte 0";
        assert_eq!(restore(&schema, &mut secret), Err(wanted.to_owned()));
    }

    #[test]
    fn bytes_may_be_a_list_of_numbers() {
        let schema = builtin("", "v1", "Secret").expect("built in");
        let secret = |value: Value| json!({"data": {"k": value}});
        assert_eq!(check_types(&schema, &secret(json!([1, null, 255]))), Ok(()));
        assert!(check_types(&schema, &secret(json!([256]))).is_err());
        let mut document = secret(json!([1]));
        crate::schema::normalize(&schema, &mut document, crate::schema::Empties::Kept);
        assert_eq!(document["data"]["k"], "AQ==");
    }
}
