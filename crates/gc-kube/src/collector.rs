//! A collector that learns from metadata watches of every resource: the adapter for event-driven engines.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gc_controller::concurrency::{ConcurrencyOptions, ConcurrencyState};
use gc_controller::controller::Controller;
use gc_controller::engines::{ByEvents, EventEngine};
use gc_types::{Event, Request, WithheldBy};
use tokio::sync::{Notify, mpsc, watch};

use crate::clock::Clock;
use crate::connection::ApiClient;
use crate::driver::{Adapter, FinishedRequest, QUEUED_BATCHES, Setup, set_up};
use crate::observer::Observer;
use crate::requests::Performer;
use crate::resources::ResourceTable;
use crate::restraints::Restraints;
use crate::status::StatusBoard;
use crate::supervisor::Supervisor;
use crate::watcher::WatchContext;

/// Settings of a collector.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// True if nothing is performed, only reported to the observer.
    pub dry_run: bool,
    /// Limits of the concurrency.
    pub concurrency: ConcurrencyOptions,
    /// `(group, resource)` pairs that are never collected.
    pub ignored_resources: Vec<(String, String)>,
    /// True if initial lists are requested as streams.
    pub streamed_lists: bool,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        let events = |group: &str| (group.to_owned(), "events".to_owned());
        Self {
            dry_run: false,
            concurrency: ConcurrencyOptions::default(),
            ignored_resources: vec![events(""), events("events.k8s.io")],
            streamed_lists: true,
        }
    }
}

/// A collector over one API server.
pub struct MetadataCollector {
    setup: Setup,
    ignored_resources: Vec<(String, String)>,
    streamed_lists: bool,
    board: StatusBoard,
}

impl std::fmt::Debug for MetadataCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetadataCollector").field("source", &self.setup.source).finish_non_exhaustive()
    }
}

impl MetadataCollector {
    /// Creates a collector, which sends nothing before [`MetadataCollector::run`].
    #[must_use]
    pub fn new(client: ApiClient, options: CollectorOptions) -> Self {
        let CollectorOptions { dry_run, concurrency, ignored_resources, streamed_lists } = options;
        let setup = Setup::new(client, ResourceTable::default(), concurrency, dry_run);
        Self { setup, ignored_resources, streamed_lists, board: StatusBoard::default() }
    }

    set_up!();

    /// Withholds every write while `holding` gives a reason; reads continue. Once it says `None` again, everything withheld is
    /// decided again.
    #[must_use]
    pub fn holding_writes(mut self, holding: watch::Receiver<Option<WithheldBy>>) -> Self {
        self.setup.hold_writes(holding);
        self
    }

    /// Returns the known resources.
    #[must_use]
    pub fn table(&self) -> ResourceTable {
        self.setup.table.clone()
    }

    /// Returns the status of each resource.
    #[must_use]
    pub fn board(&self) -> StatusBoard {
        self.board.clone()
    }

    /// Returns the state of the concurrency limit.
    #[must_use]
    pub fn concurrency(&self) -> watch::Receiver<ConcurrencyState> {
        self.setup.concurrency.subscribe()
    }

    /// Runs until `shutdown` is ready. Then sends nothing further, gives requests in flight
    /// [`SHUTDOWN_GRACE`](crate::SHUTDOWN_GRACE), and returns the engine.
    pub async fn run<E: EventEngine + Send + 'static>(
        self,
        mut engine: E,
        observer: Arc<dyn Observer>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> E {
        self.drive(&mut engine, observer, Box::pin(shutdown)).await;
        engine
    }

    /// Drives any engine. Boxed, so that this is compiled once, in this crate.
    fn drive<'a>(
        self,
        engine: AnyEngine<'a>,
        observer: Arc<dyn Observer>,
        shutdown: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, ()> {
        let (sink, events) = mpsc::channel(QUEUED_BATCHES);
        let Self { setup, ignored_resources, streamed_lists, board } = self;
        let rediscover = Arc::new(Notify::new());
        let context = WatchContext {
            client: setup.client.clone(),
            sink,
            board,
            rediscover: Arc::clone(&rediscover),
            streamed_lists,
        };
        let supervisor = Supervisor::new(context, setup.table.clone(), ignored_resources);
        let adapter = MetadataAdapter {
            performer: Performer::new(setup.client.clone(), setup.table.clone()),
            observer: Arc::clone(&observer),
            rediscover,
            engine: PhantomData,
        };
        let mut driver = setup.driver(ByEvents(engine), true, adapter, observer);
        driver.beside(supervisor.run());
        driver.run(events, shutdown).map(|_| ()).boxed()
    }
}

type AnyEngine<'a> = &'a mut (dyn EventEngine + Send);

/// Feeds an event-driven engine from metadata watches.
struct MetadataAdapter<'a> {
    performer: Performer,
    observer: Arc<dyn Observer>,
    /// Triggers another discovery.
    rediscover: Arc<Notify>,
    engine: PhantomData<fn(AnyEngine<'a>)>,
}

impl MetadataAdapter<'_> {
    fn observe(&self, event: Event, engine: &mut ByEvents<AnyEngine<'_>>) {
        self.observer.observed(&event);
        engine.0.handle(event);
    }
}

impl<'a> Adapter for MetadataAdapter<'a> {
    type Engine = ByEvents<AnyEngine<'a>>;
    type News = Event;
    type Found = ();

    const FURTHER_BATCHES: usize = 16;

    fn take(&mut self, batch: Vec<Event>, controller: &mut Controller<ByEvents<AnyEngine<'a>>>) {
        for event in batch {
            controller.delivered(&event);
            self.observe(event, controller.engine_mut());
        }
    }

    fn take_listed(&mut self, events: Vec<Event>, engine: &mut ByEvents<AnyEngine<'a>>) {
        for event in events {
            self.observe(event, engine);
        }
    }

    fn perform(&self, request: Request) -> impl Future<Output = FinishedRequest<()>> + Send + 'static {
        let performer = self.performer.clone();
        async move { FinishedRequest::of(performer.perform(&request).await) }
    }

    fn not_served(&self) {
        self.rediscover.notify_one();
    }
}
