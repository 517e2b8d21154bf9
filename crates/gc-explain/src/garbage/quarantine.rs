//! Marks on objects that nothing uses: annotations with the date and the evidence, which end when the object is used, or when that is no
//! longer certain.

use std::collections::BTreeMap;

use gc_types::Timestamp;
use serde_json::{Value, json};

use super::{Certainty, Report};
use crate::stuck::Place;

/// The annotation with the time since when every report found the object certainly unused.
pub const UNUSED_SINCE: &str = "kubegc.io/unused-since";
/// The annotation with the finding and its reason.
pub const UNUSED_BECAUSE: &str = "kubegc.io/unused-because";

/// Change of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkChange {
    /// It is set, with this evidence.
    Set(String),
    /// It stays, with the time that it has.
    Keep(String),
    /// It is removed.
    Remove,
}

/// The mark of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The object.
    pub place: Place,
    /// What becomes of its mark.
    pub change: MarkChange,
}

impl Mark {
    /// The merge patch that makes the change, for the object that was seen and no later one of its name; `None` if nothing changes.
    #[must_use]
    pub fn patch(&self, now: Timestamp) -> Option<Value> {
        let (since, because) = match &self.change {
            MarkChange::Set(why) => (json!(now.to_string()), json!(why)),
            MarkChange::Remove => (Value::Null, Value::Null),
            MarkChange::Keep(_) => return None,
        };
        let annotations = json!({UNUSED_SINCE: since, UNUSED_BECAUSE: because});
        Some(json!({"metadata": {"uid": self.place.uid, "annotations": annotations}}))
    }

    /// As data.
    #[must_use]
    pub fn value(&self) -> Value {
        let (change, detail) = match &self.change {
            MarkChange::Set(why) => ("Set", json!(why)),
            MarkChange::Keep(since) => ("Keep", json!(since)),
            MarkChange::Remove => ("Remove", Value::Null),
        };
        json!({"change": change, "object": self.place.value(), "detail": detail})
    }
}

impl Report {
    /// Marks of everything that is certainly unused, of objects that were created at or before a time if there is one, and the end of
    /// marks of everything else. What is unknown is never marked.
    #[must_use]
    pub fn quarantine(&self, created_until: Option<Timestamp>) -> Vec<Mark> {
        let certain = self
            .findings
            .iter()
            .filter(|finding| finding.code.is_disuse() && finding.certainty == Certainty::Certain);
        let mut marks: BTreeMap<&Place, MarkChange> =
            self.marked.keys().map(|place| (place, MarkChange::Remove)).collect();
        for finding in certain {
            let is_old =
                || created_until.is_none_or(|until| finding.created.is_some_and(|created| created <= until));
            if let Some(since) = self.marked.get(&finding.place) {
                marks.insert(&finding.place, MarkChange::Keep(since.clone()));
            } else if is_old() {
                let why = format!("{}: {}", finding.code.name(), finding.why);
                marks.insert(&finding.place, MarkChange::Set(why));
            }
        }
        marks.into_iter().map(|(place, change)| Mark { place: place.clone(), change }).collect()
    }

    /// The end of all marks.
    #[must_use]
    pub fn end_of_quarantine(&self) -> Vec<Mark> {
        self.marked.keys().map(|place| Mark { place: place.clone(), change: MarkChange::Remove }).collect()
    }
}
