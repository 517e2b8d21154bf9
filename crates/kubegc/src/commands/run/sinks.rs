//! The observers that record every decision: the log, the journal, Events, the feed of the page, and spans.

use std::sync::Arc;

use gc_collectors::permissions::Controller;
use gc_console::page::Page;
use gc_kube::{Observer, ResourceTable};
use gc_process::audit_log::{DryRunReport, LogDecisions};
use gc_process::collectors::MakeSinks;
use gc_process::journal::{Journal, JournalObserver};
use gc_process::traces::Traces;

use super::options::Mode;
use crate::deletion_events::DeletionEvents;

/// Makes the audit sinks of a collector, so nothing is deleted without a trace.
#[derive(Clone)]
pub(super) struct AuditSinks {
    pub(super) journal: Arc<Journal>,
    /// `None` if Events are switched off.
    pub(super) events: Option<DeletionEvents>,
    pub(super) mode: Mode,
    /// The page whose feed also shows decisions.
    pub(super) page: Option<Page>,
    /// `None` without a receiver.
    pub(super) traces: Option<Arc<Traces>>,
}

/// Returns the audit sinks of collectors that run beside their server: the log, the journal, and Events.
pub(crate) fn sinks(journal: Arc<Journal>, events: Option<DeletionEvents>) -> Arc<MakeSinks> {
    AuditSinks { journal, events, mode: Mode::Act, page: None, traces: None }.for_others()
}

impl AuditSinks {
    /// Returns the audit sinks of one collector: the log with its audit lines, the journal, Events, the feed of the page, and
    /// spans.
    pub(super) fn of(&self, controller: Controller, table: &ResourceTable) -> Vec<Arc<dyn Observer>> {
        let journal = Arc::clone(&self.journal);
        let mut made: Vec<Arc<dyn Observer>> = vec![
            Arc::new(LogDecisions::new(controller, table.clone())),
            Arc::new(JournalObserver { journal, controller: controller.name(), table: table.clone() }),
        ];
        made.extend(self.events.as_ref().and_then(|events| events.observer(controller, table)));
        made.extend(self.page.as_ref().map(|page| page.observer(controller, table)));
        made.extend(self.traces.as_ref().map(|traces| traces.observer(controller.name(), table)));
        made
    }

    /// Returns the audit sinks of the collectors beyond owner references. These cannot be compared with another collector, so they
    /// report their decisions when nothing is performed.
    pub(super) fn for_others(&self) -> Arc<MakeSinks> {
        let sinks = self.clone();
        Arc::new(move |controller, table| {
            let mut made = sinks.of(controller, table);
            if sinks.mode.reads_only() {
                made.push(Arc::new(DryRunReport::new(table.clone())));
            }
            made
        })
    }
}
