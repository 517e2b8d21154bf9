//! Choice of the recorded deletions to undo: those of one act, and the last object of each name.
//!
//! A store of records may be larger than memory. An [`Index`] keeps only the parts of each record that the choice needs; the chosen
//! records are read a second time.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Timestamp;
use serde_json::Value;

use super::Record;
use crate::object::parse_time;

/// Maximum difference between the clocks of the recorder and the server, milliseconds. An object deleted earlier than that before a
/// namespace was not deleted with it.
const CLOCK_SLACK_MILLISECONDS: i64 = 2_000;
/// Maximum time by which a dependent may be recorded before its owner, milliseconds: each resource has its own watch.
const WATCH_SLACK_MILLISECONDS: i64 = 30_000;

/// Predicate that selects records.
pub type RecordPredicate<'a> = &'a dyn Fn(&Record) -> bool;

/// Selection of the deletions to undo.
pub enum Choice<'a> {
    /// The last deletion of each selected object, with everything that was deleted because of it.
    Last(RecordPredicate<'a>),
    /// The object with this UID, with everything that was deleted because of it.
    Cascade(String),
    /// Every selected object that was deleted since then, with everything that was deleted because of it.
    Since(Timestamp, RecordPredicate<'a>),
}

impl Choice<'_> {
    fn is_about(&self, record: &Record) -> bool {
        match self {
            Self::Last(is_selected) | Self::Since(_, is_selected) => is_selected(record),
            Self::Cascade(uid) => record.uid() == uid,
        }
    }
}

/// An earlier object of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Earlier {
    /// Time at which its deletion was seen.
    pub at: Timestamp,
    /// UID of the object.
    pub uid: String,
}

/// Records that a choice selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenRecords {
    /// Time at which the deletion was seen, by UID; for several records of one object, the last.
    pub records: BTreeMap<String, Timestamp>,
    /// UIDs that were named rather than found through them.
    pub named: BTreeSet<String>,
    /// Earlier objects of the same name, by the UID of the chosen one.
    pub earlier: BTreeMap<String, Vec<Earlier>>,
}

impl ChosenRecords {
    /// Reports whether this very record is chosen.
    #[must_use]
    pub fn takes(&self, record: &Record) -> bool {
        self.records.get(record.uid()) == Some(&record.at)
    }
}

/// The part of a record that a choice needs.
#[derive(Clone, Debug)]
struct Summary {
    at: Timestamp,
    begun: Timestamp,
    /// True if the start of its deletion comes from the server, and not from the recorder's clock.
    is_exact: bool,
    uid: Box<str>,
    resource: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
    owners: Box<[Box<str>]>,
    is_selected: bool,
}

/// Returns the start of an object's deletion: the time of the request, if the object remained for a while after it.
fn begun(record: &Record) -> Timestamp {
    let grace = record.object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let requested = parse_time(record.text("/metadata/deletionTimestamp"))
        .map(|at| at.after(-grace.max(0).saturating_mul(1_000)));
    requested.map_or(record.at, |requested| requested.min(record.at))
}

/// The parts of many records that a choice needs.
#[derive(Clone, Debug, Default)]
pub struct Index(BTreeMap<Box<str>, Summary>);

impl Index {
    /// Adds a record; the last one of the same object counts.
    pub fn add(&mut self, record: &Record, choice: &Choice<'_>) {
        let uid = record.uid();
        let is_wanted = !uid.is_empty() && !matches!(choice, Choice::Since(since, _) if record.at < *since);
        if !is_wanted || self.0.get(uid).is_some_and(|known| known.at > record.at) {
            return;
        }
        let owners = record.owners().filter_map(|owner| owner["uid"].as_str()).map(Into::into);
        let summary = Summary {
            at: record.at,
            begun: begun(record),
            is_exact: !record.text("/metadata/deletionTimestamp").is_empty(),
            uid: uid.into(),
            resource: record.resource.as_str().into(),
            namespace: record.text("/metadata/namespace").into(),
            name: record.text("/metadata/name").into(),
            owners: owners.collect(),
            is_selected: choice.is_about(record),
        };
        self.0.insert(uid.into(), summary);
    }

    /// Chooses the selected records with everything that was deleted because of them. For objects of the same name, chooses the
    /// last one.
    #[must_use]
    pub fn chosen(&self, choice: &Choice<'_>) -> ChosenRecords {
        let roots: Vec<&Summary> = self.0.values().filter(|summary| summary.is_selected).collect();
        let mut chosen = ChosenRecords::default();
        let roots = newest_of_each_name(roots, &mut chosen.earlier);
        if !matches!(choice, Choice::Since(..)) {
            chosen.named = roots.iter().map(|root| root.uid.to_string()).collect();
        }
        let taken = self.with_what_went_along(&roots);
        let newest = newest_of_each_name(taken.into_values().collect(), &mut chosen.earlier);
        chosen.records = newest.iter().map(|summary| (summary.uid.to_string(), summary.at)).collect();
        chosen
    }

    /// Adds objects that were deleted because of these: the contents of namespaces, and dependents.
    fn with_what_went_along<'a>(&'a self, roots: &[&'a Summary]) -> BTreeMap<&'a str, &'a Summary> {
        let (mut dependents, mut contents): (BTreeMap<&str, Vec<&Summary>>, BTreeMap<&str, Vec<&Summary>>) =
            Default::default();
        for summary in self.0.values() {
            for owner in &summary.owners {
                dependents.entry(owner).or_default().push(summary);
            }
            contents.entry(&summary.namespace).or_default().push(summary);
        }
        let mut taken: BTreeMap<&str, &Summary> = roots.iter().map(|root| (&*root.uid, *root)).collect();
        let mut open = roots.to_vec();
        for namespace in roots.iter().filter(|root| &*root.resource == "namespaces") {
            let from = namespace.begun.after(-CLOCK_SLACK_MILLISECONDS);
            let to = namespace.at.after(WATCH_SLACK_MILLISECONDS);
            let inside = contents.get(&*namespace.name).into_iter().flatten();
            for summary in inside.filter(|summary| summary.begun >= from && summary.begun <= to) {
                if taken.insert(&summary.uid, summary).is_none() {
                    open.push(summary);
                }
            }
        }
        while let Some(summary) = open.pop() {
            for dependent in dependents.get(&*summary.uid).into_iter().flatten() {
                // Watches are delayed by different times; the server's dates are not.
                let is_exact = summary.is_exact && dependent.is_exact;
                let slack = if is_exact { CLOCK_SLACK_MILLISECONDS } else { WATCH_SLACK_MILLISECONDS };
                let went = if is_exact { dependent.begun } else { dependent.at };
                if went >= summary.begun.after(-slack) && taken.insert(&dependent.uid, dependent).is_none() {
                    open.push(dependent);
                }
            }
        }
        taken
    }
}

/// Chooses among records that are in memory.
#[must_use]
pub fn chosen(records: &[Record], choice: &Choice<'_>) -> ChosenRecords {
    let mut index = Index::default();
    for record in records {
        index.add(record, choice);
    }
    index.chosen(choice)
}

/// Only one of several objects with the same name can be restored: the last.
fn newest_of_each_name<'a>(
    summaries: Vec<&'a Summary>,
    earlier: &mut BTreeMap<String, Vec<Earlier>>,
) -> Vec<&'a Summary> {
    let mut of_name: BTreeMap<(&str, &str, &str), Vec<&Summary>> = BTreeMap::new();
    for summary in summaries {
        of_name.entry((&summary.resource, &summary.namespace, &summary.name)).or_default().push(summary);
    }
    let mut newest = Vec::new();
    for mut summaries in of_name.into_values() {
        summaries.sort_by_key(|summary| (summary.at, &summary.uid));
        let Some(last) = summaries.pop() else { continue };
        newest.push(last);
        if !summaries.is_empty() {
            let one = |summary: &Summary| Earlier { at: summary.at, uid: summary.uid.to_string() };
            earlier.entry(last.uid.to_string()).or_default().extend(summaries.into_iter().map(one));
        }
    }
    newest
}

/// Reports whether an object grants permissions, is a credential of the cluster, or makes the server consult something about every
/// request.
#[must_use]
pub fn grants_rights(object: &Value) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    match (group, text("kind")) {
        (
            "rbac.authorization.k8s.io" | "admissionregistration.k8s.io" | "apiregistration.k8s.io"
            // OpenShift's permissions, and who may run privileged containers.
            | "authorization.openshift.io" | "security.openshift.io" | "oauth.openshift.io" | "user.openshift.io",
            _,
        )
        | ("certificates.k8s.io", "CertificateSigningRequest" | "ClusterTrustBundle") => true,
        ("", "Secret") => {
            matches!(text("type"), "kubernetes.io/service-account-token" | "bootstrap.kubernetes.io/token")
        }
        _ => false,
    }
}
