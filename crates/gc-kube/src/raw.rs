//! Pages and lines of lists and watches as JSON, whatever their objects are.

use gc_retention::objects::FactsError;
use serde_json::{Map, Value};

use crate::facts::NewsLine;

/// A page of a list.
pub(crate) struct RawPage {
    pub(crate) resource_version: String,
    pub(crate) continue_token: String,
    pub(crate) items: Vec<Value>,
}

/// What is no object is refused; then no list was seen.
pub(crate) fn raw_page(json: &[u8]) -> Result<RawPage, FactsError> {
    let mut page: Map<String, Value> = serde_json::from_slice(json)?;
    let items = match page.remove("items") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let text = |name: &str| {
        let metadata = page.get("metadata").unwrap_or(&Value::Null);
        metadata[name].as_str().unwrap_or_default().to_owned()
    };
    Ok(RawPage { resource_version: text("resourceVersion"), continue_token: text("continue"), items })
}

/// What a line of a watch says of an object: whether it is there, and the object.
pub(crate) fn raw_line(json: &[u8]) -> Result<(NewsLine<(bool, Value)>, String), FactsError> {
    let mut line: Map<String, Value> = serde_json::from_slice(json)?;
    let object = line.remove("object").unwrap_or_default();
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    Ok(match line.get("type").and_then(Value::as_str).unwrap_or_default() {
        "ADDED" | "MODIFIED" => (NewsLine::Object((true, object)), version),
        "DELETED" => (NewsLine::Object((false, object)), version),
        "ERROR" => {
            let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
            let message = object["message"].as_str().unwrap_or_default().to_owned();
            (NewsLine::Error { code, message }, String::new())
        }
        "BOOKMARK" => (NewsLine::Nothing, version),
        _ => (NewsLine::Nothing, String::new()),
    })
}

pub(crate) fn map_object<N>(
    line: NewsLine<(bool, Value)>,
    read: impl FnOnce(bool, Value) -> N,
) -> NewsLine<N> {
    match line {
        NewsLine::Object((present, object)) => NewsLine::Object(read(present, object)),
        NewsLine::Error { code, message } => NewsLine::Error { code, message },
        NewsLine::Nothing => NewsLine::Nothing,
    }
}
