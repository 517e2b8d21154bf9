//! Log lines about decisions, and the report of a dry run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_collectors::permissions::Controller;
use gc_kube::{Observer, ResourceTable};
use gc_types::{Effect, Outcome, Request, WithheldBy};

use crate::collectors::MakeSinks;
use crate::journal::{subject, verb, word};

/// Maximum number of reported effects that are remembered so that each is reported only once.
const REMEMBERED: usize = 65_536;

/// Returns `pods shop/web-1`, for messages.
fn object(request: &Request, table: &ResourceTable) -> String {
    let Some(key) = subject(request) else { return String::new() };
    let resource = table.get(key.resource).map_or_else(String::new, |route| route.display_name());
    let slash = if key.namespace.is_empty() { "" } else { "/" };
    format!("{resource} {}{slash}{}", key.namespace, key.name)
}

/// Logs audit lines of writes at info (target `kubegc::audit`), failures at warn, and every decision and read at debug.
pub struct LogDecisions {
    controller: Controller,
    table: ResourceTable,
}

impl LogDecisions {
    /// Creates the log of one collector; `table` names the resources of its effects.
    #[must_use]
    pub fn new(controller: Controller, table: ResourceTable) -> Self {
        Self { controller, table }
    }
}

/// Returns only the log.
#[must_use]
pub fn log_sinks() -> Arc<MakeSinks> {
    Arc::new(|controller, table| vec![Arc::new(LogDecisions::new(controller, table.clone()))])
}

impl Observer for LogDecisions {
    fn decided(&self, effect: &Effect) {
        tracing::debug!(
            controller = %self.controller, effect = effect.id.0, verb = verb(&effect.request), object = %object(&effect.request, &self.table),
            verdict = effect.reason.code(), reason = %effect.reason, "decided"
        );
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let (verb, verdict, outcome_word) = (verb(&effect.request), effect.reason.code(), word(outcome));
        let is_write = !matches!(effect.request, Request::Read { .. } | Request::Barrier { .. });
        let controller = self.controller.name();
        match outcome {
            Outcome::Refused { message, .. } | Outcome::Failed { message, .. } => tracing::warn!(
                controller, effect = effect.id.0, verb, verdict, object = %object(&effect.request, &self.table),
                outcome = outcome_word, message, reason = %effect.reason, "not done"
            ),
            Outcome::Withheld(_) => {
                tracing::debug!(controller, effect = effect.id.0, outcome = outcome_word, "held");
            }
            _ if is_write => tracing::info!(
                target: "kubegc::audit", controller, effect = effect.id.0, verb, verdict,
                object = %object(&effect.request, &self.table), uid = %uid(&effect.request),
                outcome = outcome_word, requests = round_trips, ?took, reason = %effect.reason, "done"
            ),
            _ => tracing::debug!(controller, effect = effect.id.0, outcome = outcome_word, ?took, "done"),
        }
    }
}

/// Returns the UID that guards a write.
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

/// Reports once of each effect that it would be performed, and once more for another object under the same name.
pub struct DryRunReport {
    table: ResourceTable,
    said: Mutex<BTreeSet<(String, &'static str, String)>>,
}

impl DryRunReport {
    /// Creates the report; `table` names the resources.
    #[must_use]
    pub fn new(table: ResourceTable) -> Self {
        Self { table, said: Mutex::default() }
    }
}

impl Observer for DryRunReport {
    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        if !matches!(outcome, Outcome::Withheld(WithheldBy::DryRun)) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::Write;

    use gc_types::{
        Change, EffectId, FinalizerName, ObjectKey, Reason, ResourceId, ResourceVersion, Uid, Verdict,
    };
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// Returns the audit lines of these requests and outcomes: controller, verb, verdict and outcome.
    fn audited(controller: Controller, verdict: Verdict, done: &[(Request, Outcome)]) -> Vec<[String; 4]> {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let observer = LogDecisions::new(controller, ResourceTable::default());
            for (request, outcome) in done {
                let reason = Reason { verdict, owners: Vec::new(), evidence: Vec::new() };
                let effect = Effect { id: EffectId(1), request: request.clone(), reason };
                observer.finished(&effect, outcome, 1, Duration::ZERO);
            }
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines
            .filter(|line| line["target"] == "kubegc::audit")
            .map(|line| {
                ["controller", "verb", "verdict", "outcome"]
                    .map(|field| line["fields"][field].as_str().unwrap().to_owned())
            })
            .collect()
    }

    /// Every deletion and patch of every collector has a line with the code of its verdict; a request that was not sent has none.
    #[test]
    fn every_write_has_an_audit_line_with_its_code() {
        let key = ObjectKey { resource: ResourceId(0), namespace: "shop".into(), name: "a".into() };
        let (uid, resource_version) = (Uid::new("u"), ResourceVersion(7));
        let guarded =
            |change| Request::Guarded { key: key.clone(), uid: uid.clone(), resource_version, change };
        let finalizer = FinalizerName::Orphan;
        let orphaned = Request::RemoveFinalizer { key: key.clone(), uid: uid.clone(), finalizer };
        let done = [
            (guarded(Change::ForceDelete), Outcome::Applied(None)),
            (guarded(Change::Finalizers(Vec::new())), Outcome::Applied(None)),
            (orphaned, Outcome::Conflict),
            (guarded(Change::ForceDelete), Outcome::Withheld(WithheldBy::DryRun)),
            (Request::Read { key: key.clone() }, Outcome::Absent),
        ];
        let line = |controller: &str, verb: &str, verdict: &str, outcome: &str| {
            [controller, verb, verdict, outcome].map(str::to_owned)
        };
        for (controller, verdict) in [
            (Controller::GarbageCollector, Verdict::AllOrphaned),
            (Controller::ClaimProtection, Verdict::Retention("ClaimUnused")),
        ] {
            let (name, code) = (controller.name(), verdict.code());
            assert_eq!(
                audited(controller, verdict, &done),
                [
                    line(name, "force-delete", code, "applied"),
                    line(name, "set-finalizers", code, "applied"),
                    line(name, "remove-finalizer", code, "conflict"),
                ]
            );
        }
    }
}
