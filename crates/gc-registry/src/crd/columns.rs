//! Table cells of custom resources.

use std::sync::Arc;

use serde_json::Value;

use super::json_path::JsonPath;
use crate::kinds::human_duration;

/// A column in a table of custom resources.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumn {
    /// Header.
    pub name: Arc<str>,
    /// Type, such as `integer`.
    pub r#type: Arc<str>,
    /// Format, such as `name` or `int32`; may be empty.
    pub format: Arc<str>,
    /// Description.
    pub description: Arc<str>,
    /// 0 for columns that are always shown; others appear with `-o wide`.
    pub priority: i32,
    source: Source,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Name,
    Path(JsonPath),
    /// The path was not understood, so its cells are empty.
    Nothing,
}

const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, \
    although some resources may allow a client to request the generation of an appropriate name automatically. \
    Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More \
    info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object \
    was created. It is not guaranteed to be set in happens-before order across separate operations. Clients \
    may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. \
    Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Returns the columns of a version: its name, followed by the declared ones, or by its age if there are none.
pub(super) fn columns(version: &Value) -> Vec<CustomColumn> {
    let name = CustomColumn {
        name: "Name".into(),
        r#type: "string".into(),
        format: "name".into(),
        description: NAME_DESCRIPTION.into(),
        priority: 0,
        source: Source::Name,
    };
    let mut columns = vec![name];
    let declared = version["additionalPrinterColumns"].as_array().map(Vec::as_slice).unwrap_or_default();
    if declared.is_empty() {
        columns.push(column(&serde_json::json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": AGE_DESCRIPTION,
        })));
    }
    columns.extend(declared.iter().map(column));
    columns
}

fn column(declared: &Value) -> CustomColumn {
    let text = |key: &str| declared[key].as_str().unwrap_or_default();
    let path = text("jsonPath");
    let description = match text("description") {
        "" => format!("Custom resource definition column (in JSONPath format): {path}"),
        given => given.to_owned(),
    };
    CustomColumn {
        name: text("name").into(),
        r#type: text("type").into(),
        format: text("format").into(),
        description: description.into(),
        priority: declared["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or_default(),
        source: JsonPath::parse(path).map_or(Source::Nothing, Source::Path),
    }
}

impl CustomColumn {
    /// Returns the cell of an object.
    #[must_use]
    pub fn cell(&self, object: &Value, now: jiff::Timestamp) -> Value {
        let path = match &self.source {
            Source::Name => return object["metadata"]["name"].clone(),
            Source::Path(path) => path,
            Source::Nothing => return Value::Null,
        };
        let Some(value) = path.find(object).into_iter().next() else { return Value::Null };
        match (&*self.r#type, value) {
            ("string", value) => printed(value).into(),
            ("integer", Value::Number(number)) => match number.as_f64() {
                #[expect(clippy::cast_possible_truncation, reason = "cut off as kube-apiserver does")]
                Some(float) if number.is_f64() => (float as i64).into(),
                _ => value.clone(),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => age(text, now).into(),
            _ => Value::Null,
        }
    }
}

/// Formats a value in a text column.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        other => super::field::printed(other),
    }
}

/// Formats the time since a timestamp.
fn age(text: &str, now: jiff::Timestamp) -> String {
    match text.parse::<jiff::Timestamp>() {
        Ok(then) => human_duration(now.as_second() - then.as_second()),
        Err(_) if text.is_empty() => "<unknown>".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}
