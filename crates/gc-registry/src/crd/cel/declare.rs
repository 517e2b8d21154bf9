//! Types of a schema's values, and the maximum number of values.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_cel::{DeclaredType, Shape, Type};
use serde_json::{Map, Value};

type Source = Map<String, Value>;

/// Returns the declaration of a schema; `None` if expressions cannot see its values. The root of a resource has its name regardless
/// of the schema.
pub(in crate::crd) fn declared(source: &Source, is_resource: bool) -> Option<Arc<DeclaredType>> {
    /// Maximum number of bytes of a code point.
    const BYTES_OF_A_CHARACTER: u64 = 4;
    let flag = |key: &str| source.get(key) == Some(&Value::Bool(true));
    let count = |key: &str| source.get(key).and_then(Value::as_i64).map(|count| count.max(0).unsigned_abs());
    let text = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or_default();
    let longest = || count("maxLength").map(|most| most.saturating_mul(BYTES_OF_A_CHARACTER));
    if flag("x-kubernetes-int-or-string") {
        let most = longest().unwrap_or(DeclaredType::LONGEST_TEXT);
        return Some(DeclaredType::scalar(Type::Dyn, most, 1).into());
    }
    let found = match text("type") {
        "array" => {
            let items = source.get("items")?.as_object()?;
            DeclaredType::list(declared(items, is_embedded(items))?, count("maxItems"))
        }
        "object" => match source.get("additionalProperties").and_then(Value::as_object) {
            Some(values) => DeclaredType::map(declared(values, is_embedded(values))?, count("maxProperties")),
            None => object(source, is_resource),
        },
        "string" => match text("format") {
            "byte" => {
                DeclaredType::scalar(Type::Bytes, count("maxLength").unwrap_or(DeclaredType::LONGEST_TEXT), 2)
            }
            "duration" => DeclaredType::scalar(Type::Duration, 32, 3),
            "date" => DeclaredType::scalar(Type::Timestamp, 12, 12),
            "date-time" => DeclaredType::scalar(Type::Timestamp, 32, 21),
            _ => {
                let of_enum = || {
                    let values = source.get("enum")?.as_array().filter(|values| !values.is_empty())?;
                    values.iter().map(|value| value.as_str().unwrap_or_default().len() as u64).max()
                };
                let most = longest().or_else(of_enum).unwrap_or(DeclaredType::LONGEST_TEXT);
                DeclaredType::scalar(Type::Text, most, 2)
            }
        },
        "boolean" => DeclaredType::scalar(Type::Bool, 0, 4),
        "number" => DeclaredType::scalar(Type::Double, 0, 1),
        "integer" => DeclaredType::scalar(Type::Int, 0, 1),
        _ => return None,
    };
    Some(found.into())
}

pub(in crate::crd) fn is_embedded(source: &Source) -> bool {
    source.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
}

fn object(source: &Source, is_resource: bool) -> DeclaredType {
    /// Cost of a member, excluding its name and value.
    const MEMBER: u64 = 4;
    let mut fields: BTreeMap<String, Arc<DeclaredType>> = BTreeMap::new();
    let mut least_bytes = 2;
    let required = source.get("required").and_then(Value::as_array);
    for (name, property) in source.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let Some(property) = property.as_object() else { continue };
        let Some(field) = declared(property, is_embedded(property)) else { continue };
        let is_required = required.is_some_and(|names| names.iter().any(|known| known == name));
        if is_required && property.get("default").is_none_or(Value::is_null) {
            least_bytes += name.len() as u64 + field.least_bytes + MEMBER;
        }
        fields.insert(name.clone(), field);
    }
    if is_resource {
        let text = || Arc::new(DeclaredType::scalar(Type::Text, DeclaredType::LONGEST_TEXT, 2));
        let names = ["name", "generateName"].map(|name| (name.to_owned(), text())).into();
        let metadata = DeclaredType { shape: Shape::Object(names), most_elements: 0, least_bytes: 2 };
        fields.insert("apiVersion".to_owned(), text());
        fields.insert("kind".to_owned(), text());
        fields.insert("metadata".to_owned(), metadata.into());
    }
    DeclaredType { shape: Shape::Object(fields), most_elements: 0, least_bytes }
}
