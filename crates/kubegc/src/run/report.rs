//! What the log says of decisions, and the report of a dry run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_kube::{Observer, ResourceTable};
use gc_retention::permissions::Controller;
use gc_types::{Effect, HeldBy, Outcome, Request};

use crate::collectors::MakeSinks;
use crate::journal::{subject, verb, word};

/// Maximum number of reported effects that are remembered, so that each is reported only once.
const REMEMBERED: usize = 65_536;

/// `pods shop/web-1`, for people.
fn object(request: &Request, table: &ResourceTable) -> String {
    let Some(key) = subject(request) else { return String::new() };
    let resource = table.get(key.resource).map_or_else(String::new, |route| route.display_name());
    let slash = if key.namespace.is_empty() { "" } else { "/" };
    format!("{resource} {}{slash}{}", key.namespace, key.name)
}

/// Which writes have an audit line at info.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audited {
    /// Every write.
    Writes,
    /// Only deletions.
    Deletions,
}

/// The audit lines of writes at info (target `kubegc::audit`), failures at warn; every decision and read at debug.
pub(super) struct LogDecisions {
    controller: Controller,
    table: ResourceTable,
    audited: Audited,
}

impl LogDecisions {
    /// Of one collector, whose effects name resources by this table.
    pub(super) fn new(controller: Controller, table: ResourceTable, audited: Audited) -> Self {
        Self { controller, table, audited }
    }
}

/// The log alone.
pub(crate) fn log_sinks() -> Arc<MakeSinks> {
    Arc::new(|controller, table| {
        vec![Arc::new(LogDecisions::new(controller, table.clone(), Audited::Deletions))]
    })
}

impl Observer for LogDecisions {
    fn decided(&self, effect: &Effect) {
        tracing::debug!(
            controller = %self.controller, effect = effect.id.0, verb = verb(&effect.request), object = %object(&effect.request, &self.table),
            reason = %effect.reason, "decided"
        );
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let (verb, outcome_word) = (verb(&effect.request), word(outcome));
        let is_write = !matches!(effect.request, Request::Read { .. } | Request::Barrier { .. });
        let controller = self.controller.name();
        match outcome {
            Outcome::Refused { message, .. } | Outcome::Failed { message, .. } => tracing::warn!(
                controller, effect = effect.id.0, verb, object = %object(&effect.request, &self.table), outcome = outcome_word,
                message, reason = %effect.reason, "not done"
            ),
            Outcome::Held(_) => {
                tracing::debug!(controller, effect = effect.id.0, outcome = outcome_word, "held");
            }
            // An object that was gone already, or has changed since, was not deleted.
            _ if self.audited == Audited::Deletions => {
                if effect.request.deletes() && matches!(outcome, Outcome::Applied(_)) {
                    tracing::info!(
                        target: "kubegc::audit", controller, object = %object(&effect.request, &self.table),
                        reason = %effect.reason, "deleted"
                    );
                }
            }
            _ if is_write => tracing::info!(
                target: "kubegc::audit", controller, effect = effect.id.0, verb,
                object = %object(&effect.request, &self.table), uid = %uid(&effect.request),
                outcome = outcome_word, requests = round_trips, ?took, reason = %effect.reason, "done"
            ),
            _ => tracing::debug!(controller, effect = effect.id.0, outcome = outcome_word, ?took, "done"),
        }
    }
}

/// The UID that a write is guarded by.
fn uid(request: &Request) -> String {
    match request {
        Request::Delete { uid, .. }
        | Request::SetOwners { uid, .. }
        | Request::RemoveFinalizer { uid, .. }
        | Request::Guarded { uid, .. }
        | Request::Outside { uid, .. } => uid.to_string(),
        Request::RecordEvent(note) => note.uid.to_string(),
        Request::Read { .. } | Request::Barrier { .. } => String::new(),
    }
}

/// Says once of every effect that it would be performed; of another object under the same name, once more.
pub(super) struct DryRunReport {
    table: ResourceTable,
    said: Mutex<BTreeSet<(String, &'static str, String)>>,
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
        if said.insert((object.clone(), verb, uid(&effect.request))) {
            tracing::info!(verb, object, reason = %effect.reason, "dry run: would do");
        }
    }
}
