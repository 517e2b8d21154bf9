//! Restraints of the controllers of a simulated process: the operator's orders, leadership, the breaker, and
//! disagreeing clocks.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gc_controller::breaker::{Breaker, BreakerOptions, Trip};
use gc_controller::controller::Surroundings;
use gc_types::{Effect, Outcome, ResourceId, WithheldBy};

use crate::defects::Defect;
use crate::kinds::KINDS;

/// Orders of a process's operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// True if nothing may be decided.
    pub is_paused: bool,
    /// True if the owner-reference collector changes nothing. (All other dry runs last as long as their process.)
    pub is_dry_run: bool,
}

/// Restraints that the controllers of one process share.
#[derive(Debug)]
pub struct Process {
    /// Orders of the operator.
    pub orders: Orders,
    /// True if another process leads.
    pub is_standby: bool,
    /// True if deletions that depend on the time pause.
    pub clocks_disagree: bool,
    breaker: RefCell<Breaker>,
    defect: Option<Defect>,
    decided: Cell<usize>,
    trips: Cell<u64>,
}

/// Names of the kinds in the breaker.
static NAMES: LazyLock<Vec<Arc<str>>> = LazyLock::new(|| {
    KINDS.iter().map(|kind| gc_types::group_resource(kind.group, kind.resource).into()).collect()
});

impl Process {
    /// Creates a process restrained only by a breaker with these limits.
    #[must_use]
    pub fn new(breaker: BreakerOptions, defect: Option<Defect>) -> Self {
        Self {
            orders: Orders::default(),
            is_standby: false,
            clocks_disagree: false,
            breaker: RefCell::new(Breaker::new(breaker)),
            defect,
            decided: Cell::new(0),
            trips: Cell::new(0),
        }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Returns the number of effects that its engines have requested.
    #[must_use]
    pub fn decided(&self) -> usize {
        self.decided.get()
    }

    /// Returns the number of trips of its breaker.
    #[must_use]
    pub fn trips(&self) -> u64 {
        self.trips.get()
    }

    /// Resumes everything that the breaker has stopped. Returns the number of resources.
    pub fn resume(&mut self) -> usize {
        let breaker = self.breaker.get_mut();
        let tripped = breaker.tripped();
        tripped.iter().filter(|trip| breaker.resume(&trip.resource)).count()
    }

    /// Returns the restraints as seen by a controller that uses these numbers for kinds.
    pub fn around<'a>(
        &'a self,
        kind_of: &'a dyn Fn(ResourceId) -> Option<usize>,
    ) -> ControllerRestraints<'a> {
        ControllerRestraints { process: self, kind_of, is_ticking: false, may_dry_run: false }
    }
}

/// Restraints as seen by one controller.
pub struct ControllerRestraints<'a> {
    process: &'a Process,
    kind_of: &'a dyn Fn(ResourceId) -> Option<usize>,
    is_ticking: bool,
    may_dry_run: bool,
}

impl std::fmt::Debug for ControllerRestraints<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").field("process", self.process).finish_non_exhaustive()
    }
}

impl ControllerRestraints<'_> {
    /// Returns the restraints for the owner-reference collector, whose dry run begins and ends while it runs.
    #[must_use]
    pub fn observing(self) -> Self {
        Self { may_dry_run: true, ..self }
    }

    /// Returns the restraints during a tick.
    #[must_use]
    pub fn ticking(self) -> Self {
        Self { is_ticking: true, ..self }
    }
}

impl Surroundings for ControllerRestraints<'_> {
    fn is_held(&self) -> bool {
        let Orders { is_paused, .. } = self.process.orders;
        let obeys =
            ![Defect::PauseIgnored, Defect::NamespacePauseIgnored].map(Some).contains(&self.process.defect);
        self.process.is_standby || is_paused && obeys
    }

    fn dry_run(&self) -> Option<WithheldBy> {
        let is_dry_run = self.process.orders.is_dry_run && self.may_dry_run;
        let ignores = [Defect::DryRunIgnored, Defect::NamespaceDryRunIgnored].map(Some);
        (is_dry_run && !ignores.contains(&self.process.defect)).then_some(WithheldBy::DryRun)
    }

    fn clocks_disagree(&self) -> bool {
        self.process.clocks_disagree || self.is_ticking && self.process.is(Defect::ClockHeldForEver)
    }

    fn ask_breaker<T>(&self, ask: impl FnOnce(&mut Breaker) -> T) -> Option<T> {
        let ignores = [Defect::BreakerUnasked, Defect::NamespaceBreakerUnasked].map(Some);
        (!ignores.contains(&self.process.defect)).then(|| ask(&mut self.process.breaker.borrow_mut()))
    }

    fn resource_name(&self, resource: ResourceId) -> Option<Arc<str>> {
        (self.kind_of)(resource).and_then(|kind| NAMES.get(kind)).cloned()
    }

    fn decided(&self, _effect: &Effect) {
        self.process.decided.set(self.process.decided.get() + 1);
    }

    fn finished(&self, _effect: &Effect, _outcome: &Outcome, _round_trips: u32, _took: Duration) {}

    fn tripped(&self, _trip: &Trip) {
        self.process.trips.set(self.process.trips.get() + 1);
    }
}
