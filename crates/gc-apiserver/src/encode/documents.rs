//! JSON and YAML to values, with the fields that are there twice.

use std::fmt;

use gc_registry::api::RequestBody;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How deep a YAML document may nest; JSON is bound to 128 by its parser.
const MAXIMUM_YAML_DEPTH: usize = 128;
/// How many nodes a YAML document may unfold to, so that aliases cannot blow it up.
const MAXIMUM_YAML_NODES: usize = 1_000_000;
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
        .map_err(|error| json_problem(&error))?;
    if deserializer.end().is_err() {
        let rest = text.trim_end().chars().last().unwrap_or(' ');
        return Err(
            trailing(text).unwrap_or_else(|| format!("invalid character '{rest}' after top-level value"))
        );
    }
    let duplicates = duplicates.into_iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    Ok(RequestBody { value, duplicates })
}

/// The message on what follows the document.
fn trailing(text: &str) -> Option<String> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    stream.next();
    let rest = text.get(stream.byte_offset()..)?.trim_start();
    Some(format!("invalid character '{}' after top-level value", rest.chars().next()?))
}

fn json_problem(error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    let text = error.to_string();
    if text.starts_with("recursion limit exceeded") { "exceeded max depth".into() } else { text }
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
        let mut known = self.duplicates.len();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(ValueSeed { duplicates: self.duplicates })?;
            // Paths are put together on the way out, so that documents without duplicates pay nothing.
            for path in &mut self.duplicates[known..] {
                *path = join(&key, path);
            }
            if map.contains_key(&key) && !self.duplicates[known..].contains(&key) {
                self.duplicates.push(key.clone());
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

/// Parses YAML into the JSON data model. Duplicate keys are an error of YAML itself.
pub(crate) fn yaml(bytes: &[u8]) -> Result<RequestBody, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let document: serde_yaml_ng::Value = serde_yaml_ng::from_str(text)
        .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))?;
    let mut nodes = 0;
    let value = yaml_to_json(document, MAXIMUM_YAML_DEPTH, &mut nodes)?;
    Ok(RequestBody { value, duplicates: Vec::new() })
}

fn yaml_to_json(document: serde_yaml_ng::Value, depth: usize, nodes: &mut usize) -> Result<Value, String> {
    use serde_yaml_ng::Value as Yaml;
    *nodes += 1;
    if *nodes > MAXIMUM_YAML_NODES {
        return Err(format!("yaml: the document unfolds to more than {MAXIMUM_YAML_NODES} nodes"));
    }
    let inner = depth.checked_sub(1).ok_or("exceeded max depth")?;
    Ok(match document {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(flag),
        Yaml::Number(number) => {
            if let Some(integer) = number.as_i64() {
                integer.into()
            } else if let Some(integer) = number.as_u64() {
                integer.into()
            } else {
                number.as_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
            }
        }
        Yaml::String(text) => Value::String(text),
        Yaml::Sequence(items) => Value::Array(
            items.into_iter().map(|item| yaml_to_json(item, inner, nodes)).collect::<Result<_, _>>()?,
        ),
        Yaml::Mapping(mapping) => Value::Object(
            mapping
                .into_iter()
                .map(|(key, value)| {
                    let key = match key {
                        Yaml::String(text) => text,
                        Yaml::Bool(flag) => flag.to_string(),
                        Yaml::Number(number) => number.to_string(),
                        _ => return Err("yaml: keys must be text".to_owned()),
                    };
                    Ok((key, yaml_to_json(value, inner, nodes)?))
                })
                .collect::<Result<_, _>>()?,
        ),
        Yaml::Tagged(tagged) => yaml_to_json(tagged.value, inner, nodes)?,
    })
}
