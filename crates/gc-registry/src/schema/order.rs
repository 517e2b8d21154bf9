//! Findings of strict decoding in a document of a built-in kind, in upstream's order.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::fields::{KnownFields, MAX_PROBLEMS, known};
use super::{Node, Schema, object_meta, unknown_fields};

/// Heading of the text that lists all duplicate keys of a YAML document, one per line.
pub const YAML_PROBLEMS: &str = "yaml: unmarshal errors:\n  ";

/// Returns the unknown and the duplicate fields of a document. Those of a JSON text are in its order; a YAML parser reports
/// duplicates before anything else; and if the text is unknown, duplicates come last. An unknown field is not also reported as a
/// duplicate.
#[must_use]
pub fn strict_problems(schema: &Schema, value: &Value, duplicates: &[String], text: &[u8]) -> Vec<String> {
    let unknown = unknown_fields(schema, value);
    // Documents are read a second time only if there is an order to determine.
    if unknown.len() + duplicates.len() > 1
        && let Some(problems) = in_order(schema, text)
    {
        return problems;
    }
    if duplicates.iter().any(|text| text.starts_with(YAML_PROBLEMS)) {
        return duplicates.iter().cloned().chain(unknown).collect();
    }
    let known = |text: &&String| !unknown.contains(&text.replacen("duplicate", "unknown", 1));
    let duplicates: Vec<String> = duplicates.iter().filter(known).cloned().collect();
    unknown.into_iter().chain(duplicates).collect()
}

/// Returns the findings in the order of the text; `None` if the text is not JSON.
fn in_order(schema: &Schema, text: &[u8]) -> Option<Vec<String>> {
    let (mut path, mut found) = (String::new(), Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let walk = Walk { schema, path: &mut path, found: &mut found };
    walk.deserialize(&mut deserializer).ok()?;
    Some(found)
}

/// Walks a text alongside its schema.
struct Walk<'a> {
    schema: &'a Schema,
    path: &'a mut String,
    found: &'a mut Vec<String>,
}

impl Walk<'_> {
    fn note(&mut self, what: &str) {
        if self.found.len() < MAX_PROBLEMS {
            let problem = format!("{what} field \"{}\"", self.path);
            if !self.found.contains(&problem) {
                self.found.push(problem);
            }
        }
    }

    fn below<'s>(&'s mut self, schema: &'s Schema) -> Walk<'s> {
        Walk { schema, path: self.path, found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<(), A::Error> {
        let Node::List(list) = &self.schema.node else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let length = self.path.len();
        for index in 0.. {
            // Writing to a String does not fail.
            let _ = write!(self.path, "[{index}]");
            let item = access.next_element_seed(self.below(&list.items))?;
            self.path.truncate(length);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<(), A::Error> {
        let schema = self.schema;
        let mut seen = BTreeSet::new();
        while let Some(name) = access.next_key::<String>()? {
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&name);
            let known = known(schema, &name);
            let repeated = !seen.insert(name);
            let below = match known {
                KnownFields::As(schema) => Some(schema),
                KnownFields::Metadata => Some(&**object_meta()),
                KnownFields::Anything | KnownFields::Not => None,
            };
            match (&known, repeated) {
                (KnownFields::Not, false) => self.note("unknown"),
                (KnownFields::Not, true) | (_, false) => {}
                (_, true) => self.note("duplicate"),
            }
            match below {
                Some(schema) => access.next_value_seed(self.below(schema))?,
                None => drop(access.next_value::<IgnoredAny>()?),
            }
            self.path.truncate(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn problems_are_in_the_order_of_the_document() {
        let pod = builtin("", "v1", "Pod").unwrap_or_default();
        let of = |text: &str, duplicates: &[&str]| {
            let value = serde_json::from_str(text).unwrap_or_default();
            let duplicates: Vec<String> = duplicates.iter().map(|text| (*text).to_owned()).collect();
            strict_problems(&pod, &value, &duplicates, text.as_bytes())
        };
        let (z, a) = ("unknown field \"z\"", "unknown field \"a\"");
        for (text, duplicates, wanted) in [
            (r#"{"z":1}"#, &[][..], vec![z]),
            (r#"{"z":{"b":1},"a":1}"#, &[], vec![z, a]),
            (r#"{"z":1,"a":1,"z":1}"#, &["duplicate field \"z\""], vec![z, a]),
            (
                r#"{"metadata":{"labels":{"l":"1","l":"2"},"q":1},"a":1,"spec":{"containers":[{"name":"a","x":1},{"y":1,"name":"b","name":"c"}],"x":1},"kind":"Pod","kind":"Pod"}"#,
                &["duplicate field \"metadata.labels.l\""],
                vec![
                    "duplicate field \"metadata.labels.l\"",
                    "unknown field \"metadata.q\"",
                    a,
                    "unknown field \"spec.containers[0].x\"",
                    "unknown field \"spec.containers[1].y\"",
                    "duplicate field \"spec.containers[1].name\"",
                    "unknown field \"spec.x\"",
                    "duplicate field \"kind\"",
                ],
            ),
        ] {
            assert_eq!(of(text, duplicates), wanted, "{text}");
        }
        let many: Vec<String> = (0..1000).map(|n| format!("\"k{n}\":1")).collect();
        assert_eq!(of(&format!("{{{}}}", many.join(",")), &[]).len(), MAX_PROBLEMS);
    }

    #[test]
    fn problems_of_yaml_begin_with_its_duplicates() {
        let pod = builtin("", "v1", "Pod").unwrap_or_default();
        let repeated = format!("{YAML_PROBLEMS}line 2: key \"kind\" already set in map");
        let value = serde_json::json!({"z": 1, "a": 1});
        assert_eq!(
            strict_problems(&pod, &value, std::slice::from_ref(&repeated), b""),
            [&*repeated, "unknown field \"a\"", "unknown field \"z\""]
        );
    }
}
