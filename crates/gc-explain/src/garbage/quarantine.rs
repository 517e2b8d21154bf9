//! Marks on unused objects: annotations with the date and the evidence, which are removed when the object is used or its disuse is
//! no longer certain.

use std::collections::BTreeMap;

use gc_collectors::policies::unused::{
    BETWEEN_LOOKS_MILLISECONDS, LOOK_MILLISECONDS, UNUSED_SEEN, UNUSED_SINCE,
};
use gc_types::Timestamp;
use serde_json::{Value, json};

use super::{Certainty, Report};
use crate::object::parse_time;
use crate::stuck::Place;

/// Annotation with the finding and its reason.
pub const UNUSED_BECAUSE: &str = "kubegc.io/unused-because";

/// Minimum age in milliseconds of a confirmation before it is written again, because each write touches every marked object.
const CONFIRMED_AGAIN_MILLISECONDS: i64 = LOOK_MILLISECONDS / 6;

/// Change of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkChange {
    /// The mark is set, with this evidence.
    Set(String),
    /// The mark stays, with its original time.
    Keep(String),
    /// The mark is removed.
    Remove,
}

/// The mark of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The object.
    pub place: Place,
    /// Change of its mark.
    pub change: MarkChange,
    /// Last time its current mark was confirmed.
    pub seen: Option<String>,
}

impl Mark {
    /// Returns the merge patch that makes the change, conditional on the object that was seen; `None` if nothing changes.
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

    /// Returns the merge patch that makes the change and records the time of this check, which policies about unused objects rely
    /// on. If the last check is too long ago, the mark starts over, because the object may have been used in the meantime. `None`
    /// if nothing changes.
    #[must_use]
    pub fn patch_of_look(&self, now: Timestamp) -> Option<Value> {
        let seen = self.seen.as_deref().and_then(parse_time);
        let mut patch = match (&self.change, seen) {
            (MarkChange::Keep(_), Some(seen)) if now.since(seen).abs() < CONFIRMED_AGAIN_MILLISECONDS => {
                return None;
            }
            (MarkChange::Keep(_), _) => json!({"metadata": {"uid": self.place.uid, "annotations": {}}}),
            _ => self.patch(now)?,
        };
        let annotations = &mut patch["metadata"]["annotations"];
        let is_removed = self.change == MarkChange::Remove;
        annotations[UNUSED_SEEN] = if is_removed { Value::Null } else { json!(now.to_string()) };
        let is_late = seen.is_some_and(|seen| now.since(seen) > BETWEEN_LOOKS_MILLISECONDS);
        if is_late && matches!(self.change, MarkChange::Keep(_)) {
            annotations[UNUSED_SINCE] = json!(now.to_string());
        }
        Some(patch)
    }

    /// Converts to JSON.
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
    /// Marks everything that is certainly unused (if a time is given, only objects created at or before it), and removes the marks
    /// of everything else. Uncertain findings are never marked.
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
        marks.into_iter().map(|(place, change)| self.mark(place, change)).collect()
    }

    /// Removes all marks.
    #[must_use]
    pub fn end_of_quarantine(&self) -> Vec<Mark> {
        self.marked.keys().map(|place| self.mark(place, MarkChange::Remove)).collect()
    }

    fn mark(&self, place: &Place, change: MarkChange) -> Mark {
        Mark { place: place.clone(), change, seen: self.seen.get(place).cloned() }
    }
}
