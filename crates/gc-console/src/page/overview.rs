//! The first screen as JSON.

use std::collections::{BTreeMap, BTreeSet};

use gc_explain::Survey;
use gc_explain::nodes::Nodes;
use gc_explain::stuck::{Place, Row};
use gc_inspect::view::View;
use gc_types::Timestamp;
use serde_json::{Value, json};

use super::feed::{HourlyDeletions, NodeBreaker};

/// Maximum number of terminating objects that are named.
const TERMINATING_NAMED: usize = 100;
/// Maximum number of root causes that are shown.
const ROWS_SHOWN: usize = 100;
/// Maximum number of objects that one row names.
const OBJECTS_OF_ROW: usize = 20;
/// Maximum number of objects that a search returns.
const FOUND: usize = 50;
/// Maximum length of a search text.
const LONGEST_SEARCH: usize = 256;

/// Mode of the collectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unknown, because no collector was queried.
    #[cfg_attr(not(unix), allow(dead_code, reason = "only the terminal view has it"))]
    Unknown,
    /// Collecting.
    Acting,
    /// Another replica holds the Lease.
    Standby,
    /// Deletions are only reported.
    DryRun,
    /// Decisions are compared with those of kube-controller-manager.
    Observing,
    /// Somebody has paused them.
    Paused {
        /// Reason, in the user's words.
        reason: String,
        /// The user.
        by: String,
        /// Time.
        since: String,
    },
}

/// Formats the note on the Lease about a pause that a user has ordered on the page.
pub(super) fn pause_note(time: &str, reason: &str, user: &str) -> String {
    format!("{time}: {reason} (by {user})")
}

impl Mode {
    /// Parses a note, which the page, `kubegc pause`, or anybody with kubectl may have written. Missing parts are taken from the
    /// time of reading.
    pub(crate) fn paused(note: &str, now: jiff::Timestamp) -> Self {
        let noted = note.split_once(": ").and_then(|(time, rest)| Some((time.parse().ok()?, rest)));
        let (since, rest) = noted.unwrap_or((now, note));
        let by_user = rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (by "));
        let (reason, by) = by_user.unwrap_or((rest, "an annotation of the Lease"));
        Self::Paused { reason: reason.to_owned(), by: by.to_owned(), since: since.to_string() }
    }

    /// Converts to JSON.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Unknown => json!({"state": "Unknown"}),
            Self::Acting => json!({"state": "Acting"}),
            Self::Standby => json!({"state": "Standby"}),
            Self::DryRun => json!({"state": "DryRun"}),
            Self::Observing => json!({"state": "Observing"}),
            Self::Paused { reason, by, since } => {
                json!({"state": "Paused", "reason": reason, "by": by, "since": since})
            }
        }
    }
}

/// Inputs of the first screen other than the view.
pub(crate) struct Surroundings<'a> {
    /// The user.
    pub(crate) user: &'a str,
    /// True if the user may see everything.
    pub(crate) sees_all: bool,
    /// Number of the user's namespaces that are not shown.
    pub(crate) namespaces_omitted: usize,
    /// True if the user may pause the collectors.
    pub(crate) may_pause: bool,
    /// True if the page accepts orders to delete.
    pub(crate) may_delete: bool,
    /// Mode of the collectors.
    pub(crate) mode: Mode,
    /// Resources that the circuit breaker has stopped.
    pub(crate) stopped: Vec<StoppedResource>,
    /// Reason why no node is deleted, for users who may list nodes.
    pub(crate) node_breaker: Option<NodeBreaker>,
    /// Recent deletions.
    pub(crate) collected: Vec<HourlyDeletions>,
    /// Lead of their clock in seconds.
    pub(crate) clock_ahead_seconds: i64,
}

/// A resource whose collection the circuit breaker has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoppedResource {
    /// Name of the resource.
    pub(crate) resource: String,
    /// Time.
    pub(crate) since: Timestamp,
    /// Reason, for users who may see everything, because it counts objects of all namespaces.
    pub(crate) why: Option<String>,
}

/// Returns the first screen of one namespace or, if that is empty, of all that the user sees.
pub(crate) fn overview(view: &View, namespace: &str, around: &Surroundings<'_>) -> Value {
    let terminating = terminating(&view.survey, namespace);
    let due = view.due.within(namespace);
    let mut unseen = view.unseen.clone();
    unseen.extend(view.due.unknown.iter().cloned());
    if around.namespaces_omitted > 0 {
        let namespaces = gc_explain::text::count(around.namespaces_omitted, "namespace");
        unseen.push(format!(
            "{namespaces} were not checked: too many, or the API server does not say what you may list"
        ));
    }
    if due.idle > 0 {
        let objects = gc_explain::text::count(due.idle, "object");
        unseen.push(format!("{objects} would be due if the collector did run: see --controllers"));
    }
    json!({
        "now": view.now.to_string(), "clock": view.clock.to_string(), "clockAheadSeconds": around.clock_ahead_seconds,
        "tookMilliseconds": u64::try_from(view.took.as_millis()).unwrap_or(u64::MAX),
        "user": {"name": around.user, "seesAll": around.sees_all, "mayPause": around.may_pause,
                 "mayDelete": around.may_delete},
        "mode": around.mode.value(),
        "stopped": around.stopped.iter().map(stopped).collect::<Vec<_>>(),
        "nodeBreaker": around.node_breaker.map(|one| json!({"missing": one.missing, "since": one.since.to_string()})),
        "namespaces": namespaces(&view.survey),
        "kinds": kinds(&view.survey, namespace),
        "collected": around.collected.iter().map(collected).collect::<Vec<_>>(),
        "terminating": {
            "total": terminating.len(),
            "items": terminating.into_iter().take(TERMINATING_NAMED).collect::<Vec<_>>(),
        },
        "stuck": stuck(view, namespace),
        "due": {
            "total": due.total, "slots": due.slots,
            "items": due.items.iter().map(|item| item.value(view.clock)).collect::<Vec<_>>(),
        },
        // Nodes are cluster-scoped.
        "nodes": if namespace.is_empty() { view.nodes.value() } else { Nodes::default().value() },
        "unseen": unseen,
    })
}

/// Returns root causes, and the number of objects that all of them block, each counted once.
fn stuck(view: &View, namespace: &str) -> Value {
    let rows = view.stuck.iter().filter(|row| namespace.is_empty() || row.concerns(namespace));
    let held: BTreeSet<&Place> = rows.clone().flat_map(Row::places).collect();
    let items: Vec<Value> = rows.clone().take(ROWS_SHOWN).map(|row| row_value(row, view.now)).collect();
    json!({"total": rows.count(), "objects": held.len(), "items": items})
}

fn stopped(one: &StoppedResource) -> Value {
    json!({"resource": one.resource, "since": one.since.to_string(), "why": one.why})
}

fn collected(one: &HourlyDeletions) -> Value {
    json!({"controller": one.controller, "total": one.minutes.iter().sum::<u64>(), "minutes": one.minutes})
}

/// Returns a root cause with the first of its objects, which can be queried.
pub(super) fn row_value(row: &Row, now: Timestamp) -> Value {
    let mut value = row.value(now);
    let places = |all: &mut dyn Iterator<Item = &Place>| -> Vec<Value> {
        all.take(OBJECTS_OF_ROW).map(Place::full_value).collect()
    };
    value["objects"] = places(&mut row.objects.iter().map(|(place, _)| place)).into();
    value["waiting"] = places(&mut row.waiting.iter()).into();
    value["objectCount"] = row.objects.len().into();
    value["waitingCount"] = row.waiting.len().into();
    value
}

/// Lists terminating objects, the oldest first.
fn terminating(survey: &Survey, namespace: &str) -> Vec<Value> {
    let mut all: Vec<_> = survey
        .terminating()
        .iter()
        .filter(|(key, _)| namespace.is_empty() || *key.namespace == *namespace)
        .collect();
    all.sort_by_key(|(key, metadata)| (metadata.deleted, (*key).clone()));
    all.into_iter()
        .filter_map(|(key, metadata)| {
            let resource = survey.resource(key)?;
            Some(json!({
                "object": {
                    "apiVersion": resource.api_version(), "kind": &*resource.kind,
                    "resource": resource.name.to_string(), "namespace": &*key.namespace, "name": &*key.name,
                    "uid": metadata.uid.to_string(),
                },
                "since": metadata.deleted.map(|at| at.to_string()), "finalizers": metadata.finalizers,
            }))
        })
        .collect()
}

/// Returns the namespaces in which there is something, with the number of objects.
fn namespaces(survey: &Survey) -> Vec<Value> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for ((namespace, _), count) in survey.engine.population() {
        if !namespace.is_empty() {
            *counts.entry(namespace).or_default() += count;
        }
    }
    counts.into_iter().map(|(name, objects)| json!({"name": name, "objects": objects})).collect()
}

/// Counts the objects of each kind, in descending order.
fn kinds(survey: &Survey, namespace: &str) -> Vec<Value> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for ((inside, resource), count) in survey.engine.population() {
        if (namespace.is_empty() || inside == namespace)
            && let Some(resource) = survey.catalog.get(resource)
        {
            *counts.entry(resource.kind.to_string()).or_default() += count;
        }
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|left, right| (right.1, &left.0).cmp(&(left.1, &right.0)));
    counts.into_iter().map(|(kind, objects)| json!({"kind": kind, "objects": objects})).collect()
}

/// Returns objects whose kind, name or namespace contain all words, with names that begin with them first.
pub(crate) fn search(survey: &Survey, text: &str) -> Value {
    let text: String = text.chars().take(LONGEST_SEARCH).collect::<String>().to_lowercase();
    let words: Vec<&str> = text.split(['/', ' ']).filter(|word| !word.is_empty()).collect();
    let fits = |key: &gc_types::ObjectKey| {
        let Some(resource) = survey.resource(key) else { return false };
        let title = format!(
            "{} {} {} {} {}",
            resource.kind,
            resource.name,
            resource.short_names.join(" "),
            key.namespace,
            key.name
        )
        .to_lowercase();
        words.iter().all(|word| title.contains(word))
    };
    let mut found = if words.is_empty() { Vec::new() } else { survey.engine.select(fits) };
    let last = words.last().copied().unwrap_or_default();
    let total = found.len();
    found.sort_by_key(|view| (!view.name.to_lowercase().starts_with(last), view.name.len()));
    let items: Vec<Value> = found
        .iter()
        .take(FOUND)
        .map(|view| gc_explain::map::place_of_view(survey, view).full_value())
        .collect();
    json!({"items": items, "total": total})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_pause_is_read_as_it_was_noted() {
        let now = "2026-09-21T15:00:00Z";
        let time = "2026-09-21T14:13:20Z";
        let of_page = pause_note(time, "lunch (late)", "ann");
        for (note, reason, by, since) in [
            (of_page.as_str(), "lunch (late)", "ann", time),
            ("2026-09-21T14:13:20Z: kubegc pause", "kubegc pause", "an annotation of the Lease", time),
            ("true", "true", "an annotation of the Lease", now),
            ("why: because", "why: because", "an annotation of the Lease", now),
        ] {
            let read = Mode::paused(note, now.parse().unwrap());
            let text = |text: &str| text.to_owned();
            assert_eq!(
                read,
                Mode::Paused { reason: text(reason), by: text(by), since: text(since) },
                "{note}"
            );
        }
    }
}
