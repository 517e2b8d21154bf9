//! Descriptions of the published types, as `kubectl explain` shows them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::facts;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a broken assumption should stop the test
mod tests;

/// A line for each definition, sorted: `["io.k8s.…", {"field": "what it is"}]`. The empty field is the definition itself. Made from
/// `k8s-openapi` by the test beside it.
const FILE: &str = include_str!("descriptions.jsonl");

/// The descriptions of a definition, by field; the empty field is the definition itself.
pub(crate) type Fields = BTreeMap<String, Box<str>>;

/// The descriptions of the kinds' definitions, by definition. Parsed once, at the first request for a document that shows them.
#[must_use]
pub(crate) fn descriptions() -> &'static BTreeMap<String, Fields> {
    static DESCRIPTIONS: OnceLock<BTreeMap<String, Fields>> = OnceLock::new();
    DESCRIPTIONS.get_or_init(|| FILE.lines().filter_map(parsed).collect())
}

/// The description of one field of a definition (without prefix), for whoever needs few of them: nothing is kept.
#[must_use]
pub(crate) fn description(definition: &str, field: &str) -> Option<Box<str>> {
    let begin = format!("[\"{}{definition}\",", facts::PREFIX);
    let (_, mut fields) = FILE.lines().find(|line| line.starts_with(&begin)).and_then(parsed)?;
    fields.remove(field)
}

fn parsed(line: &str) -> Option<(String, Fields)> {
    serde_json::from_str(line).ok()
}
