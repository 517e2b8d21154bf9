//! Descriptions of the published types, as shown by `kubectl explain`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::facts;
use crate::kubernetes::KubernetesVersion;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a broken assumption should stop the test
mod tests;

/// Descriptions with one line per definition, sorted: `["io.k8s.…", {"field": "description"}]`. The empty field is the definition
/// itself. Written by `scripts/kubernetes-version`; a test compares it with `k8s-openapi`.
const FILE: &str = include_str!("descriptions.jsonl");
/// Texts that differ in 1.37; `null` for a field or a definition that it lacks.
const DIFFERENCE_1_37: &str = include_str!("descriptions-1.37.jsonl");

/// Descriptions of a definition by field; the empty field is the definition itself.
pub(crate) type Fields = BTreeMap<String, Box<str>>;

/// Returns the descriptions of all definitions. Parsed once, at the first request for a document that contains them.
#[must_use]
pub(crate) fn descriptions() -> &'static BTreeMap<String, Fields> {
    static DESCRIPTIONS: OnceLock<BTreeMap<String, Fields>> = OnceLock::new();
    DESCRIPTIONS.get_or_init(|| descriptions_of(KubernetesVersion::chosen()))
}

fn descriptions_of(version: KubernetesVersion) -> BTreeMap<String, Fields> {
    let mut all: BTreeMap<String, Fields> = FILE.lines().filter_map(parsed).collect();
    for (name, change) in version.difference(DIFFERENCE_1_37).lines().filter_map(parsed_change) {
        match change {
            Some(fields) => apply(fields, all.entry(name).or_default()),
            None => drop(all.remove(&name)),
        }
    }
    all
}

/// Returns the description of one field of a definition (without prefix), for callers that need only a few: nothing is cached.
#[must_use]
pub(crate) fn description(definition: &str, field: &str) -> Option<Box<str>> {
    let begin = format!("[\"{}{definition}\",", facts::PREFIX);
    let line_of = |text: &'static str| text.lines().find(|line| line.starts_with(&begin));
    let difference = KubernetesVersion::chosen().difference(DIFFERENCE_1_37);
    if let Some((_, change)) = line_of(difference).and_then(parsed_change) {
        // A field without a change has the same text in both versions.
        if let Some(changed) = change?.remove(field) {
            return changed;
        }
    }
    let (_, mut fields) = line_of(FILE).and_then(parsed)?;
    fields.remove(field)
}

/// Changed texts by field; `None` for a removed field.
type Changes = BTreeMap<String, Option<Box<str>>>;

fn apply(changes: Changes, fields: &mut Fields) {
    for (field, text) in changes {
        match text {
            Some(text) => fields.insert(field, text),
            None => fields.remove(&field),
        };
    }
}

fn parsed_change(line: &str) -> Option<(String, Option<Changes>)> {
    serde_json::from_str(line).ok()
}

fn parsed(line: &str) -> Option<(String, Fields)> {
    serde_json::from_str(line).ok()
}
