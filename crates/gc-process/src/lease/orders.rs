//! The orders themselves, as annotations hold them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_kube::breaker::Trip;
use gc_types::Timestamp;
use serde_json::{Value, json};

pub(crate) const PAUSED: &str = "kubegc.io/paused";
pub(crate) const TRIPPED: &str = "kubegc.io/tripped";
pub(crate) const OBSERVE_UNTIL: &str = "kubegc.io/observe-until";
const OBSERVED_BY: &str = "kubegc.io/observed-by";
pub(crate) const RESUMED_AT: &str = "kubegc.io/resumed-at";
/// Absence of renewals after which an ended observation counts as that of another installation.
const LONGEST_ABSENCE: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// Orders on a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Reason why everything is paused, if it is.
    pub paused: Option<String>,
    /// Resources that the breaker has stopped; `None` if the annotation cannot be read.
    pub tripped: Option<BTreeMap<Arc<str>, Trip>>,
    /// Text of the stopped resources if it cannot be read.
    pub unreadable: Option<String>,
    /// Time until which the first run only observes.
    pub observe_until: Option<jiff::Timestamp>,
    /// Installation that began this observation, if its user has a UID.
    pub observed_by: Option<String>,
    /// Time at which an operator last resumed.
    pub resumed_at: Option<jiff::Timestamp>,
}

impl Orders {
    /// Returns no orders.
    #[must_use]
    pub fn none() -> Self {
        Self { tripped: Some(BTreeMap::new()), ..Self::default() }
    }

    /// Reports whether nothing may be sent: because of a pause, or of stopped resources that cannot be read.
    pub(crate) fn hold_everything(&self) -> bool {
        self.paused.is_some() || self.tripped.is_none()
    }

    /// Reports whether an operator resumed after this pause was ordered. Its note begins with the time; a note without one counts
    /// from when it was seen.
    #[must_use]
    pub fn resumes(&self, pause: &str, seen: jiff::Timestamp) -> bool {
        let noted = pause.split_once(": ").and_then(|(time, _)| time.parse::<jiff::Timestamp>().ok());
        self.resumed_at.is_some_and(|at| at > noted.unwrap_or(seen))
    }

    /// Ends a pause and every trip.
    pub fn resume(&mut self, now: jiff::Timestamp) {
        self.paused = None;
        self.tripped = Some(BTreeMap::new());
        self.unreadable = None;
        self.resumed_at = Some(now);
    }

    /// Adds orders that a Lease has lost.
    pub fn restore(&mut self, lost: &Self) {
        if let Some(paused) = &lost.paused {
            self.paused.get_or_insert_with(|| paused.clone());
        }
        if self.observe_until < lost.observe_until {
            self.observe_until = lost.observe_until;
            self.observed_by.clone_from(&lost.observed_by);
        }
        if lost.unreadable.is_some() && self.tripped.is_some() {
            self.tripped = None;
            self.unreadable.clone_from(&lost.unreadable);
        }
        if let (Some(tripped), Some(lost)) = (&mut self.tripped, &lost.tripped) {
            tripped.extend(lost.iter().map(|(resource, trip)| (Arc::clone(resource), trip.clone())));
        }
    }

    /// Reads the annotations of a Lease; without a Lease there are no orders.
    pub fn of_lease(lease: &Value) -> Self {
        let text = |name: &str| lease["metadata"]["annotations"][name].as_str().unwrap_or_default().trim();
        let paused = text(PAUSED);
        let tripped = match text(TRIPPED) {
            "" => Some(BTreeMap::new()),
            json => read_trips(json),
        };
        let unreadable = tripped.is_none().then(|| text(TRIPPED).to_owned());
        Self {
            paused: (!paused.is_empty() && !paused.eq_ignore_ascii_case("false")).then(|| paused.to_owned()),
            tripped,
            unreadable,
            observe_until: text(OBSERVE_UNTIL).parse().ok(),
            observed_by: Some(text(OBSERVED_BY)).filter(|by| !by.is_empty()).map(str::to_owned),
            resumed_at: text(RESUMED_AT).parse().ok(),
        }
    }

    /// Returns the annotations for a merge patch. Stopped resources that cannot be read stay as they are.
    #[must_use]
    pub fn annotations(&self) -> Value {
        let tripped = self.tripped.as_ref().filter(|tripped| !tripped.is_empty()).map(|tripped| {
            let entries = tripped.values().map(|trip| {
                let since = jiff::Timestamp::from_millisecond(trip.since.0).unwrap_or_default();
                (trip.resource.to_string(), json!({"since": since.to_string(), "why": &*trip.why}))
            });
            Value::Object(entries.collect()).to_string()
        });
        let time = |at: Option<jiff::Timestamp>| at.map(|at| at.to_string());
        let mut annotations = json!({
            PAUSED: self.paused, OBSERVE_UNTIL: time(self.observe_until), OBSERVED_BY: self.observed_by,
            RESUMED_AT: time(self.resumed_at),
        });
        match (&self.tripped, &self.unreadable) {
            (Some(_), _) => annotations[TRIPPED] = tripped.into(),
            (None, Some(text)) => annotations[TRIPPED] = text.as_str().into(),
            (None, None) => {}
        }
        annotations
    }

    /// Returns the annotations of a new Lease.
    #[must_use]
    pub fn new_annotations(&self) -> Value {
        let mut annotations = self.annotations();
        if let Some(fields) = annotations.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        annotations
    }
}

fn read_trips(text: &str) -> Option<BTreeMap<Arc<str>, Trip>> {
    let entries: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let trip = |(resource, value): (String, Value)| {
        let resource: Arc<str> = resource.into();
        let since = value["since"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let since = Timestamp(since.unwrap_or_default().as_millisecond());
        let why = value["why"].as_str().unwrap_or("no reason is noted").into();
        (Arc::clone(&resource), Trip { resource, since, why })
    };
    Some(entries.into_iter().map(trip).collect())
}

/// Reports whether an ended observation was made by this installation: by the same service account or, if one of them has no UID,
/// by collectors that ran recently.
pub(crate) fn is_of_installation(
    orders: &Orders,
    installation: Option<&str>,
    renewed: Option<jiff::Timestamp>,
    now: jiff::Timestamp,
) -> bool {
    let is_recent = || renewed.is_some_and(|renewed| now.duration_since(renewed) < LONGEST_ABSENCE);
    orders.observe_until.is_some()
        && match (&orders.observed_by, installation) {
            (Some(theirs), Some(ours)) => theirs == ours,
            _ => is_recent(),
        }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn the_end_of_an_observation_counts_for_its_own_installation() {
        let now: jiff::Timestamp = "2026-09-21T14:00:00Z".parse().unwrap();
        let ago = |minutes: i64| now - jiff::SignedDuration::from_mins(minutes);
        for (observed_by, installation, renewed, expected) in [
            (Some("a"), Some("a"), None, true),
            (Some("a"), Some("b"), Some(ago(1)), false),
            (Some("a"), None, Some(ago(1)), true),
            (None, Some("a"), Some(ago(1)), true),
            (None, None, Some(ago(59)), true),
            (None, None, Some(ago(60)), false),
            (None, Some("a"), None, false),
            (None, None, None, false),
        ] {
            let ended = Orders {
                observe_until: Some(ago(10_000)),
                observed_by: observed_by.map(str::to_owned),
                ..Orders::none()
            };
            let found = is_of_installation(&ended, installation, renewed, now);
            assert_eq!(found, expected, "{observed_by:?} {installation:?} {renewed:?}");
        }
        assert!(!is_of_installation(&Orders::none(), Some("a"), Some(now), now));
    }
}
