//! Parses JSON and YAML into values, with the fields that occur twice.

use std::fmt;

use gc_registry::api::{RequestBody, YAML_PROBLEMS};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::encode::yaml::{self, Document};

/// Maximum number of duplicate fields to report; upstream's bound.
const MAXIMUM_DUPLICATES: usize = 100;
/// Maximum number of characters of a document that a message repeats.
const MAXIMUM_SHOWN: usize = 200;

/// Parses JSON. Invalid UTF-8 is replaced by U+FFFD, as Go's decoder does.
pub(crate) fn json(bytes: &[u8]) -> Result<RequestBody, String> {
    let replaced;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => {
            replaced = String::from_utf8_lossy(bytes);
            &replaced
        }
    };
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = ValueSeed { duplicates: &mut duplicates }
        .deserialize(&mut deserializer)
        .map_err(|error| json_problem(&error, text))?;
    if deserializer.end().is_err() {
        let rest = text.trim_end().chars().last().unwrap_or(' ');
        return Err(trailing(text)
            .unwrap_or_else(|| format!("invalid character {} after top-level value", quoted(rest))));
    }
    let duplicates =
        duplicates.into_iter().map(|path| format!("duplicate field \"{}\"", beginning(&path))).collect();
    Ok(RequestBody { value, duplicates, ..RequestBody::default() })
}

/// Returns the beginning of a text from outside, short enough for a message.
fn beginning(text: &str) -> &str {
    text.char_indices().nth(MAXIMUM_SHOWN).map_or(text, |(end, _)| &text[..end])
}

/// Returns the message about text that follows the document.
fn trailing(text: &str) -> Option<String> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    stream.next();
    let rest = text.get(stream.byte_offset()..)?.trim_start();
    Some(format!("invalid character {} after top-level value", quoted(rest.chars().next()?)))
}

/// Describes a syntax error as Go's decoder does.
fn json_problem(error: &serde_json::Error, document: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("control character", "in string literal"),
        ("invalid escape", "in string escape code"),
        ("expected value", "looking for beginning of value"),
        ("key must be a string", "looking for beginning of object key string"),
        ("trailing comma", "looking for beginning of value"),
        ("expected `:`", "after object key"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
    ];
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    let text = error.to_string();
    if text.starts_with("recursion limit exceeded") {
        return "exceeded max depth".into();
    }
    let line = document.split('\n').nth(error.line().saturating_sub(1));
    let rest = line.and_then(|line| line.get(error.column().saturating_sub(1)..));
    if let Some(problem) = number_problem(&text, line.unwrap_or_default(), error.column()) {
        return problem;
    }
    // An error at the start of a line is the newline that broke off a string on the line before.
    let found = if text.starts_with("control character") && error.column() == 0 {
        Some('\n')
    } else {
        rest.and_then(|rest| rest.chars().next())
    };
    match (WORDS.iter().find(|(ours, _)| text.starts_with(ours)), found) {
        // After a comma, Go expects another key.
        (Some(("trailing comma", _)), Some('}')) => {
            "invalid character '}' looking for beginning of object key string".into()
        }
        (Some((_, theirs)), Some(character)) => format!("invalid character {} {theirs}", quoted(character)),
        _ => text,
    }
}

/// Quotes a character as Go's decoder does, which sees bytes and escapes unprintable ones in Go's notation.
fn quoted(character: char) -> String {
    let mut bytes = [0; 4];
    let first = char::from(*character.encode_utf8(&mut bytes).as_bytes().first().unwrap_or(&0));
    match first {
        '\'' => r"'\''".to_owned(),
        '\u{7}' => r"'\a'".to_owned(),
        '\u{8}' => r"'\b'".to_owned(),
        '\u{b}' => r"'\v'".to_owned(),
        '\u{c}' => r"'\f'".to_owned(),
        '\n' | '\r' | '\t' | '\\' => format!("'{}'", first.escape_default()),
        '\0'..='\u{1f}' | '\u{7f}' => format!("'\\x{:02x}'", u32::from(first)),
        '\u{80}'..='\u{a0}' | '\u{ad}' => format!("'\\u{:04x}'", u32::from(first)),
        _ => format!("'{first}'"),
    }
}

/// Describes a malformed number as Go's decoder does. `column` is that of the last byte read.
fn number_problem(text: &str, line: &str, column: usize) -> Option<String> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    if text.starts_with("number out of range") {
        let end = line.len().min(column);
        let digits = line.as_bytes().get(..end)?.iter().rev().take_while(|byte| is_part(byte)).count();
        let number = line.get(end - digits..end)?;
        return Some(format!(
            "json: cannot unmarshal number {} into Go value of type float64",
            beginning(number)
        ));
    }
    if !text.starts_with("invalid number") {
        return None;
    }
    // The part after the readable number is the error.
    let at = column.saturating_sub(1);
    let found = line.get(at..)?.chars().next()?;
    let before = line.get(..at)?;
    let number = before.trim_end_matches(|c: char| u8::try_from(c).is_ok_and(|byte| is_part(&byte)));
    let place = match before.bytes().last() {
        Some(b'.') => "after decimal point in numeric literal",
        Some(b'e' | b'E' | b'+') => "in exponent of numeric literal",
        Some(b'-') if before.len() - number.len() > 1 => "in exponent of numeric literal",
        Some(b'-') => "in numeric literal",
        _ if number.trim_end().ends_with(':') => "after object key:value pair",
        _ if number.trim().is_empty() => "after top-level value",
        _ => "after array element",
    };
    Some(format!("invalid character {} {place}", quoted(found)))
}

struct ValueSeed<'a> {
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // Go reads `-0` as an integer, and so does this parser. It cannot tell `-0.0` from it, which is stored as an integer
        // anyway.
        if value == 0.0 && value.is_sign_negative() {
            return Ok(0.into());
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let mut known = self.duplicates.len();
        while let Some(item) = access.next_element_seed(ValueSeed { duplicates: self.duplicates })? {
            for path in &mut self.duplicates[known..] {
                *path = join(&format!("[{}]", items.len()), path);
            }
            known = self.duplicates.len();
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let begun = self.duplicates.len();
        let mut known = begun;
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(ValueSeed { duplicates: self.duplicates })?;
            // Paths are built on the way out, so documents without duplicates cost nothing extra.
            for path in &mut self.duplicates[known..] {
                *path = join(&key, path);
            }
            if self.duplicates.len() < MAXIMUM_DUPLICATES
                && map.contains_key(&key)
                && !self.duplicates[begun..].contains(&key)
            {
                // A duplicate key is reported before the duplicates inside its value.
                self.duplicates.insert(known, beginning(&key).to_owned());
            }
            known = self.duplicates.len();
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

fn join(outer: &str, inner: &str) -> String {
    if inner.starts_with('[') { format!("{outer}{inner}") } else { format!("{outer}.{inner}") }
}

/// Reads YAML. Duplicate keys are reported as upstream's strict parser does: all of them in one text.
pub(crate) fn yaml(bytes: &[u8]) -> Result<RequestBody, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let Document { value, repeated } = yaml::parse(text).map_err(|error| error.to_string())?;
    let duplicates = match repeated.as_slice() {
        [] => Vec::new(),
        lines => vec![format!("{YAML_PROBLEMS}{}", lines.join("\n  "))],
    };
    Ok(RequestBody { value, duplicates, ..RequestBody::default() })
}
