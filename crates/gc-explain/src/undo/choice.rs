//! Which recorded deletions a question is about: what one act has deleted, and of each name the last object alone.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Timestamp;
use serde_json::Value;

use super::Record;
use crate::object::parse_time;

/// What a recorder's clock and the server's may differ by, milliseconds. What went earlier than a namespace did not go with it.
const CLOCK_SLACK_MILLISECONDS: i64 = 2_000;
/// What a dependent may be recorded before its owner, milliseconds: each resource has a watch of its own.
const WATCH_SLACK_MILLISECONDS: i64 = 30_000;

/// Whether a choice is about a record.
pub type Selected<'a> = &'a dyn Fn(&Record) -> bool;

/// Which deletions are undone.
pub enum Choice<'a> {
    /// The last deletion of each selected object, with everything that went because of it.
    Last(Selected<'a>),
    /// The object with this UID, with everything that went because of it.
    Cascade(String),
    /// Every selected object that was deleted since then, with what went because of it.
    Since(Timestamp, Selected<'a>),
}

/// The records that a choice is about.
#[derive(Clone, Debug, Default)]
pub struct Chosen<'a> {
    /// One for each object, by UID.
    pub records: Vec<&'a Record>,
    /// UIDs of what was named, rather than found below it.
    pub named: BTreeSet<&'a str>,
    /// Earlier objects of the same name, by the UID of the one that is chosen.
    pub earlier: BTreeMap<&'a str, Vec<&'a Record>>,
}

/// When the deletion of an object began: with the request, if the object was there for a time after it.
fn begun(record: &Record) -> Timestamp {
    let grace = record.object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let requested = parse_time(record.text("/metadata/deletionTimestamp"))
        .map(|at| at.after(-grace.max(0).saturating_mul(1_000)));
    requested.map_or(record.at, |requested| requested.min(record.at))
}

/// Chooses the last record of each object by UID, and of objects of one name the last one.
#[must_use]
pub fn chosen<'a>(records: &'a [Record], choice: &Choice<'_>) -> Chosen<'a> {
    let mut last: BTreeMap<&str, &Record> = BTreeMap::new();
    for record in records.iter().filter(|record| !record.uid().is_empty()) {
        let known = last.entry(record.uid()).or_insert(record);
        if record.at >= known.at {
            *known = record;
        }
    }
    let roots: Vec<&Record> = match choice {
        Choice::Since(since, is_selected) => {
            last.retain(|_, record| record.at >= *since);
            last.values().copied().filter(|record| is_selected(record)).collect()
        }
        Choice::Cascade(uid) => last.get(uid.as_str()).copied().into_iter().collect(),
        Choice::Last(is_selected) => last.values().copied().filter(|record| is_selected(record)).collect(),
    };
    let mut chosen = Chosen::default();
    let roots = newest_of_each_name(roots, &mut chosen.earlier);
    if !matches!(choice, Choice::Since(..)) {
        chosen.named = roots.iter().map(|root| root.uid()).collect();
    }
    let taken = with_what_went_along(&roots, &last);
    chosen.records = newest_of_each_name(taken.into_values().collect(), &mut chosen.earlier);
    chosen.records.sort_by_key(|record| record.uid());
    chosen
}

/// Of several objects of one name, there can be one: the last.
fn newest_of_each_name<'a>(
    records: Vec<&'a Record>,
    earlier: &mut BTreeMap<&'a str, Vec<&'a Record>>,
) -> Vec<&'a Record> {
    let mut of_name: BTreeMap<(&str, &str, &str), Vec<&Record>> = BTreeMap::new();
    for record in records {
        let name =
            (record.resource.as_str(), record.text("/metadata/namespace"), record.text("/metadata/name"));
        of_name.entry(name).or_default().push(record);
    }
    let mut newest = Vec::new();
    for mut records in of_name.into_values() {
        records.sort_by_key(|record| (record.at, record.uid()));
        if let Some(last) = records.pop() {
            newest.push(last);
            if !records.is_empty() {
                earlier.entry(last.uid()).or_default().extend(records);
            }
        }
    }
    newest
}

/// Adds what was deleted because of these: the contents of namespaces, and dependents.
fn with_what_went_along<'a>(
    roots: &[&'a Record],
    last: &BTreeMap<&'a str, &'a Record>,
) -> BTreeMap<&'a str, &'a Record> {
    let (mut dependents, mut contents): (BTreeMap<&str, Vec<&Record>>, BTreeMap<&str, Vec<&Record>>) =
        Default::default();
    for record in last.values() {
        for owner in record.owners() {
            dependents.entry(owner["uid"].as_str().unwrap_or_default()).or_default().push(record);
        }
        contents.entry(record.text("/metadata/namespace")).or_default().push(record);
    }
    let mut taken: BTreeMap<&str, &Record> = roots.iter().map(|root| (root.uid(), *root)).collect();
    let mut open = roots.to_vec();
    for namespace in roots.iter().filter(|root| root.resource == "namespaces") {
        let (from, to) = (begun(namespace).after(-CLOCK_SLACK_MILLISECONDS), namespace.at);
        let inside = contents.get(namespace.text("/metadata/name")).into_iter().flatten();
        for record in inside
            .filter(|record| begun(record) >= from && begun(record) <= to.after(WATCH_SLACK_MILLISECONDS))
        {
            if taken.insert(record.uid(), record).is_none() {
                open.push(record);
            }
        }
    }
    while let Some(record) = open.pop() {
        let from = begun(record).after(-WATCH_SLACK_MILLISECONDS);
        for dependent in dependents.get(record.uid()).into_iter().flatten() {
            if dependent.at >= from && taken.insert(dependent.uid(), dependent).is_none() {
                open.push(dependent);
            }
        }
    }
    taken
}

/// Whether an object gives somebody rights.
pub(super) fn grants_rights(record: &Record) -> bool {
    let group = record.text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    match (group, record.text("/kind")) {
        ("rbac.authorization.k8s.io", _) => true,
        ("", "Secret") => {
            record.object.get("type").and_then(Value::as_str) == Some("kubernetes.io/service-account-token")
        }
        _ => false,
    }
}
