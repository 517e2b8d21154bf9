//! A retention collector: the adapter for engines that learn from narrow facts of a few kinds.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gc_collectors::engine::{AnyCollector, Counts, MachineState, Observation, StorageFailure};
use gc_collectors::objects::Kind;
use gc_controller::concurrency::{ConcurrencyOptions, Signal};
use gc_controller::controller::Controller;
use gc_controller::engines::ByFacts;
use gc_controller::requests::refuses_outside;
use gc_types::{ObjectKey, Outcome, OutsideCall, Request, ResourceVersion, Uid};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::{Clock, moment, system_clock};
use crate::connection::ApiClient;
use crate::driver::{Adapter, ControllerSurroundings, FinishedRequest, QUEUED_BATCHES, Setup, set_up};
use crate::facts::{FactsReader, FactsWatcher, list_live};
use crate::observer::Observer;
use crate::requests::{PerformedRequest, Performer};
use crate::resources::ResourceTable;
use crate::restraints::Restraints;

/// Time between two reports of the collector's state.
const STANDING_PERIOD: Duration = Duration::from_secs(1);

/// Systems other than the API server: storage, machines.
pub trait Outside: Send + Sync + 'static {
    /// Performs a call on behalf of an object, which is known to be unchanged since the decision. Must end by itself within a
    /// bounded time.
    fn call(&self, key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer>;
}

/// Answer from an outside system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutsideAnswer {
    /// Answer to a deletion of storage: an optional message, and whether it was done.
    Storage(Option<String>, Result<(), StorageFailure>),
    /// Answer to a question about a machine: its state, or why it is unknown.
    Machine(Result<MachineState, String>),
}

/// Stands for the absence of outside systems.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingOutside;

impl Outside for NothingOutside {
    fn call(&self, _key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        let message = "nothing outside the API server is configured".to_owned();
        Box::pin(async move {
            match call {
                OutsideCall::DeleteStorage(_) => {
                    OutsideAnswer::Storage(None, Err(StorageFailure { in_use: false, message }))
                }
                OutsideCall::LookUpMachine { .. } => OutsideAnswer::Machine(Err(message)),
            }
        })
    }
}

/// Returns the routes of all resources of retention collectors, which name them in effects.
#[must_use]
pub fn retention_table() -> ResourceTable {
    ResourceTable::of(Kind::ALL.iter().map(|kind| kind.info()))
}

/// A retention collector over one API server.
pub struct RetentionCollector {
    setup: Setup,
    collecting: Box<dyn AnyCollector>,
    outside: Arc<dyn Outside>,
}

impl std::fmt::Debug for RetentionCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetentionCollector").field("source", &self.setup.source).finish_non_exhaustive()
    }
}

impl RetentionCollector {
    /// Creates a collector, which sends nothing before [`RetentionCollector::run`]; with `dry_run`, it changes nothing at all.
    #[must_use]
    pub fn new(
        client: ApiClient,
        collecting: impl AnyCollector,
        concurrency: ConcurrencyOptions,
        dry_run: bool,
    ) -> Self {
        let mut setup = Setup::new(client, retention_table(), concurrency, dry_run);
        setup.clock = Some(system_clock());
        Self { setup, collecting: Box::new(collecting), outside: Arc::new(NothingOutside) }
    }

    set_up!();

    /// Sets the recipient of outside calls.
    #[must_use]
    pub fn with_outside(self, outside: Arc<dyn Outside>) -> Self {
        Self { outside, ..self }
    }

    /// Runs until `shutdown` is ready. Then sends nothing further, gives requests in flight
    /// [`SHUTDOWN_GRACE`](crate::SHUTDOWN_GRACE), and returns its counts.
    pub async fn run(self, observer: Arc<dyn Observer>, shutdown: impl Future<Output = ()> + Send) -> Counts {
        self.drive(observer, Box::pin(shutdown)).await
    }

    /// Runs the loop. Boxed so that it is compiled in this crate, and not in every crate that runs a collector.
    fn drive(self, observer: Arc<dyn Observer>, shutdown: BoxFuture<'_, ()>) -> BoxFuture<'_, Counts> {
        let (sink, observations) = mpsc::channel(QUEUED_BATCHES);
        let Self { setup, collecting, outside } = self;
        let client = setup.client.clone();
        let adapter = FactsAdapter {
            performer: Performer::new(client.clone(), setup.table.clone()),
            client: client.clone(),
            outside,
            observer: Arc::clone(&observer),
            reported: None,
        };
        let (kinds, table) = (collecting.kinds(), setup.table.clone());
        let mut driver = setup.driver(ByFacts(collecting), false, adapter, observer);
        for kind in kinds {
            let reader = Arc::new(FactsReader::new(*kind, table.clone()));
            driver.beside(FactsWatcher::new(client.clone(), reader, sink.clone()).run());
        }
        drop(sink);
        async move { driver.run(observations, shutdown).await.0.counts() }.boxed()
    }
}

/// Feeds a retention collector from watches of its kinds.
struct FactsAdapter {
    client: ApiClient,
    performer: Performer,
    outside: Arc<dyn Outside>,
    observer: Arc<dyn Observer>,
    /// Time of the last report of the collector's state.
    reported: Option<Instant>,
}

impl Adapter for FactsAdapter {
    type Engine = ByFacts<dyn AnyCollector>;
    type News = Observation;
    type Found = Observation;

    const FURTHER_BATCHES: usize = 0;

    fn take(&mut self, batch: Vec<Observation>, controller: &mut Controller<ByFacts<dyn AnyCollector>>) {
        self.take_found(batch, controller.engine_mut());
    }

    fn take_found(&mut self, found: Vec<Observation>, engine: &mut ByFacts<dyn AnyCollector>) {
        for observation in found {
            if let Observation::Removed(key) = &observation {
                self.observer.gone(key);
            }
            engine.0.observe(observation);
        }
    }

    fn perform(
        &self,
        request: Request,
    ) -> impl Future<Output = FinishedRequest<Observation>> + Send + 'static {
        let (client, performer) = (self.client.clone(), self.performer.clone());
        let outside = Arc::clone(&self.outside);
        async move { perform(&client, &performer, &*outside, &request).await }
    }

    fn acted(
        &mut self,
        _may_write: bool,
        engine: &mut ByFacts<dyn AnyCollector>,
        surroundings: &ControllerSurroundings,
    ) {
        while let Some(measurement) = engine.0.take_measurement() {
            surroundings.observer.measured(&measurement);
        }
        let now = Instant::now();
        if self.reported.is_none_or(|last| now.saturating_duration_since(last) >= STANDING_PERIOD) {
            self.reported = Some(now);
            surroundings.observer.standing(&engine.0.standing());
        }
    }
}

async fn perform(
    client: &ApiClient,
    performer: &Performer,
    outside: &dyn Outside,
    request: &Request,
) -> FinishedRequest<Observation> {
    if let Request::Outside { key, uid, resource_version, call } = request {
        return call_outside(performer, outside, (key, uid, *resource_version), call).await;
    }
    let Request::Barrier { resource, namespace, .. } = request else {
        return FinishedRequest::of(performer.perform(request).await);
    };
    let Some(kind) = Kind::ALL.iter().copied().find(|kind| kind.resource() == *resource) else {
        return FinishedRequest::unknown("no such resource is watched".to_owned());
    };
    match list_live(client, kind, namespace.as_deref().unwrap_or_default()).await {
        Ok(found) => {
            let found = found.into_iter().map(Observation::Found).collect();
            let outcome = Outcome::Applied(None);
            let performed = PerformedRequest { outcome, signal: Signal::Answered, round_trips: 1 };
            FinishedRequest { found, ..FinishedRequest::of(performed) }
        }
        Err(error) => FinishedRequest::of(error.performed()),
    }
}

/// Preconditions cannot guard changes to other systems, so the object is read from the store immediately before.
async fn call_outside(
    performer: &Performer,
    outside: &dyn Outside,
    (key, uid, version): (&ObjectKey, &Uid, ResourceVersion),
    call: &OutsideCall,
) -> FinishedRequest<Observation> {
    let begun = moment();
    let read = performer.perform(&Request::Read { key: key.clone() }).await;
    if let Some(outcome) = refuses_outside(&read.outcome, uid, version) {
        return FinishedRequest::of(PerformedRequest { outcome, ..read });
    }
    let server_took = Some(moment().since(begun));
    let failed =
        |message: &String| Outcome::Failed { message: message.clone(), retry_after_milliseconds: None };
    let (key, uid) = (key.clone(), uid.clone());
    let (failure, found) = match outside.call(key.clone(), call.clone()).await {
        OutsideAnswer::Storage(remark, result) => {
            let failure = result.as_ref().err().map(|failure| failed(&failure.message));
            (failure, Observation::StorageDeletion { volume: key, uid, remark, result })
        }
        OutsideAnswer::Machine(state) => {
            let failure = state.as_ref().err().map(failed);
            (failure, Observation::Machine { node: key, uid, state })
        }
    };
    let outcome = failure.unwrap_or(Outcome::Applied(None));
    FinishedRequest { performed: PerformedRequest { outcome, ..read }, found: vec![found], server_took }
}
