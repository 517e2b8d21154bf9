//! The parts of a run that change at run time: leadership, orders, limits.

use std::sync::Arc;

use gc_console::page::{AttachedCollectors, Page};
use gc_inspect::resident::Resident;
use gc_kube::breaker::{Breaker, SharedBreaker};
use gc_kube::concurrency::ConcurrencyOptions;
use gc_kube::{ApiClient, Restraints};
use gc_process::journal::Journal;
use gc_process::lease::control::Control;
use gc_process::lease::election::Leadership;
use gc_types::WithheldBy;
use tokio::sync::watch;

use super::options::{self, JournalPlace, Mode, Settings};

/// Settings that may change while running.
pub(super) struct Live {
    pub(super) breaker: SharedBreaker,
    pub(super) concurrency: watch::Sender<ConcurrencyOptions>,
    /// Reason to withhold all writes, if any.
    pub(super) holding: watch::Sender<Option<WithheldBy>>,
    pub(super) leadership: Leadership,
    pub(super) control: Control,
}

impl Live {
    pub(super) fn new(settings: &Settings, server: &str) -> Self {
        let leadership = if settings.elects() { Leadership::none() } else { Leadership::always() };
        let breaker = SharedBreaker::new(Breaker::new(settings.breaker));
        breaker.change(|breaker| breaker.keep(settings.kept_resources.clone()));
        let holding = match settings.mode {
            Mode::Act => None,
            Mode::DryRun => Some(WithheldBy::DryRun),
            Mode::Observe | Mode::ObserveFor(_) => Some(WithheldBy::Observe),
        };
        let mut control = Control::new(leadership.clone(), breaker.clone());
        if let (JournalPlace::File(journal), false) = (&settings.journal, settings.mode.reads_only()) {
            control = control.remembering(&journal.file, server, &settings.lease.lease);
        }
        Self {
            concurrency: watch::Sender::new(settings.concurrency),
            holding: watch::Sender::new(holding),
            control,
            leadership,
            breaker,
        }
    }

    /// Returns the page of these collectors.
    pub(super) fn page(
        &self,
        client: &ApiClient,
        settings: &Settings,
        ui: options::Ui,
        (resident, journal): (Option<Arc<dyn Resident>>, Arc<Journal>),
    ) -> Page {
        let collectors = AttachedCollectors {
            client: client.clone(),
            lease: settings.lease.lease.clone(),
            leadership: self.leadership.clone(),
            holding: self.holding.subscribe(),
            breaker: self.breaker.clone(),
            journal,
            takes_orders: ui.takes_orders,
            resident,
        };
        let page = Page::attached(self.control.clone(), collectors);
        page.expect(&settings.controllers);
        page
    }

    /// Returns the restraints that stop every collector alike.
    pub(super) fn restraints(&self) -> Restraints {
        Restraints {
            held: self.leadership.held(),
            breaker: Some(self.breaker.clone()),
            bounds: Some(self.concurrency.subscribe()),
        }
    }
}
