//! What the log says of decisions, and the report of a dry run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_kube::{Observer, ResourceTable};
use gc_types::{Effect, Event, HeldBy, Outcome, Request};

use super::journal::{subject, verb, word};

/// So many reported effects are remembered, so that each is reported once although it is wanted again and again.
const REMEMBERED: usize = 65_536;

/// Several observers as one.
pub(super) struct Together(pub(super) Vec<Arc<dyn Observer>>);

impl Observer for Together {
    fn told(&self, event: &Event) {
        self.0.iter().for_each(|observer| observer.told(event));
    }

    fn decided(&self, effect: &Effect) {
        self.0.iter().for_each(|observer| observer.decided(effect));
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        self.0.iter().for_each(|observer| observer.finished(effect, outcome, round_trips, took));
    }
}

/// `pods shop/web-1`, for people.
fn object(request: &Request, table: &ResourceTable) -> String {
    let Some(key) = subject(request) else { return String::new() };
    let resource = table.get(key.resource).map_or_else(String::new, |route| route.display_name());
    let slash = if key.namespace.is_empty() { "" } else { "/" };
    format!("{resource} {}{slash}{}", key.namespace, key.name)
}

/// One line per decision at debug, one per failure at warn.
pub(super) struct LogDecisions {
    table: ResourceTable,
}

impl LogDecisions {
    pub(super) fn new(table: ResourceTable) -> Self {
        Self { table }
    }
}

impl Observer for LogDecisions {
    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, took: Duration) {
        let (verb, outcome_word) = (verb(&effect.request), word(outcome));
        match outcome {
            Outcome::Refused { message, .. } | Outcome::Failed { message, .. } => tracing::warn!(
                verb, object = %object(&effect.request, &self.table), outcome = outcome_word, message,
                reason = %effect.reason, "not done"
            ),
            _ => tracing::debug!(
                verb, object = %object(&effect.request, &self.table), outcome = outcome_word, ?took,
                reason = %effect.reason, "done"
            ),
        }
    }
}

/// Says once of every effect that it would be performed.
pub(super) struct DryRunReport {
    table: ResourceTable,
    said: Mutex<BTreeSet<(String, &'static str)>>,
}

impl DryRunReport {
    pub(super) fn new(table: ResourceTable) -> Self {
        Self { table, said: Mutex::default() }
    }
}

impl Observer for DryRunReport {
    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        if !matches!(outcome, Outcome::Held(HeldBy::DryRun)) {
            return;
        }
        let (verb, object) = (verb(&effect.request), object(&effect.request, &self.table));
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= REMEMBERED {
            said.clear();
        }
        if said.insert((object.clone(), verb)) {
            tracing::info!(verb, object, reason = %effect.reason, "dry run: would do");
        }
    }
}
