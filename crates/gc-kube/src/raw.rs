//! Pages and lines of lists and watches as JSON, for any objects.

use gc_collectors::objects::FactsError;
use gc_types::{ListHead, NotTheList, ResourceInfo, check_object_kind};
use serde_json::{Map, Value};

use crate::facts::NewsLine;

/// A page of a list.
pub(crate) struct RawPage {
    pub(crate) resource_version: String,
    pub(crate) continue_token: String,
    pub(crate) items: Vec<Value>,
}

/// Reads a page of a list of `asked`. Anything else is refused, in which case no list was seen.
pub(crate) fn raw_page(json: &[u8], asked: &ResourceInfo) -> Result<RawPage, FactsError> {
    Ok(page_of(serde_json::from_slice(json)?, asked)?)
}

/// Reads a page from a parsed document.
pub(crate) fn page_of(mut page: Map<String, Value>, asked: &ResourceInfo) -> Result<RawPage, NotTheList> {
    let items = match page.remove("items") {
        Some(Value::Array(items)) => Some(items),
        Some(Value::Null) => Some(Vec::new()),
        _ => None,
    };
    let member = |name: &str| page.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = |name: &str| {
        let metadata = page.get("metadata").unwrap_or(&Value::Null);
        metadata[name].as_str().unwrap_or_default().to_owned()
    };
    let resource_version = text("resourceVersion");
    let head = ListHead {
        api_version: member("apiVersion"),
        kind: member("kind"),
        resource_version: &resource_version,
        has_items: items.is_some(),
        items_say_kind: items.iter().flatten().all(|item| item["kind"] == *asked.kind)
            && items.as_ref().is_some_and(|items| !items.is_empty()),
    };
    head.check(asked)?;
    let items = items.unwrap_or_default();
    if items.iter().any(|item| name_of(item).is_empty()) {
        return Err(NotTheList::NamelessItem);
    }
    Ok(RawPage { continue_token: text("continue"), resource_version, items })
}

/// Returns the name of an object; empty if it has none.
pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Reads a line of a watch of `asked`; returns the object, and whether it exists.
pub(crate) fn raw_line(
    json: &[u8],
    asked: &ResourceInfo,
) -> Result<(NewsLine<(bool, Value)>, String), FactsError> {
    let mut line: Map<String, Value> = serde_json::from_slice(json)?;
    let object = line.remove("object").unwrap_or_default();
    if matches!(line.get("type").and_then(Value::as_str), Some("ADDED" | "MODIFIED" | "DELETED")) {
        check_object_kind(object["kind"].as_str().unwrap_or_default(), asked)?;
    }
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
