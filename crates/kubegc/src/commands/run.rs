//! `kubegc run`: runs the collectors on any cluster.

mod config;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod live;
mod metrics;
mod observe;
mod options;
mod others;
mod reload;
mod resident;
mod sinks;
mod standby;
mod work_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::FutureExt as _;
use gc_apiserver::ListenerTls;
use gc_collectors::permissions::Controller;
use gc_console::page::requester::Cluster;
use gc_console::page::{Page, listener};
use gc_embedded::apiserver;
use gc_inspect::garbage_metrics::GarbageMetrics;
use gc_inspect::resident::Resident;
use gc_inspect::stuck_metrics::{StuckMetrics, WatchedCluster};
use gc_kube::namespaces::NamespaceFeed;
use gc_kube::{ApiClient, MetadataCollector, Observer, Observers, system_clock};
use gc_metrics::Catalogue;
use gc_ownership::Shard;
use gc_process::audit_log::DryRunReport;
use gc_process::collector_metrics::CollectorMetrics;
use gc_process::collectors::Surroundings;
use gc_process::journal::Journal;
use gc_process::kubeconfig::Caller;
use gc_process::lease::control::{self, Control};
use gc_process::lease::election::{self, Candidate, ShownPages};
use gc_process::lease::shards;
use gc_process::operations::{self, OperationsPages, Protection, TlsFlags};
use gc_process::traces::Traces;
use gc_process::{logging, preflight};
use tokio::task::{JoinHandle, JoinSet};

use crate::deletion_events::DeletionEvents;
use live::Live;
use metrics::{Metrics, RunPages, SharedEngine};
use observe::Observation;
pub(crate) use options::{DEFAULT_CONTROLLERS, ExplicitFlags, Options};
use options::{Mode, Settings};
use others::Others;
use reload::reload;
use resident::ResidentGraph;
use sinks::AuditSinks;
pub(crate) use sinks::sinks;
use standby::{GraphCollector, Readiness, beginning};

/// Interval of readiness checks until the collector is ready.
const READINESS_PAUSE: Duration = Duration::from_millis(50);
/// Interval at which a leader notices that one of its collectors has ended.
const COLLECTORS_EXAMINED_EVERY: Duration = Duration::from_millis(250);
/// Error of a run whose collector has ended by itself.
const PANICKED: &str =
    "a collector ended by a panic; the lease is released so that another replica takes over";
/// Delay before the first pass over a terminating namespace, because other API servers may not know yet that it is terminating
/// (spec `api-deletion.md`, 12.5).
const NAMESPACE_SETTLE: Duration = Duration::from_secs(5);

/// Runs until SIGINT or SIGTERM, or until the Lease is lost for good ([`lead`]), which is an error.
pub(crate) fn run(options: &Options, given: &ExplicitFlags) -> anyhow::Result<()> {
    logging::start_unattended(&options.log)?;
    let settings = Settings::resolve(options, given)?;
    for notice in &settings.notices {
        tracing::info!("{notice}");
    }
    apiserver::raise_file_limit();
    let done = gc_process::tasks::block_on(collect(options, given, settings));
    // Do not wait for the remaining tasks: nothing may be sent after the Lease is lost.
    done
}

/// Returns the metrics of the owner-reference collector.
pub(crate) fn metrics() -> Catalogue {
    let mut catalogue = Catalogue::default();
    Metrics::register("", Shard::WHOLE, &mut catalogue);
    catalogue
}

/// Reason why a run ended.
enum End {
    Signal,
    /// A collector has ended by a panic, so this process must not lead without it.
    Panic,
    Lost(election::LeaseError),
}

/// Parts of a run, built before anything is sent.
struct Parts {
    client: ApiClient,
    /// The same client, which sends requests only while this process leads.
    gated: ApiClient,
    live: Live,
    collector: MetadataCollector,
    engine: SharedEngine,
    /// The collector's graph, for queries, if it collects by owners.
    graph: Option<Arc<dyn Resident>>,
    journal: Arc<Journal>,
    events: Option<DeletionEvents>,
    page: Option<Page>,
    /// `None` without a receiver.
    traces: Option<Arc<Traces>>,
    catalogue: Catalogue,
    metrics: Metrics,
    collectors: CollectorMetrics,
    stuck: StuckMetrics,
    garbage: GarbageMetrics,
}

impl Parts {
    fn new(client: ApiClient, settings: &Settings, otlp: Option<&str>) -> anyhow::Result<Self> {
        let live = Live::new(settings, client.address());
        let permission = live.leadership.clone();
        let gated = client.gated(move || permission.may_act()).while_leading(live.leadership.led());
        let collector = MetadataCollector::new(gated.clone(), settings.collector())
            .holding_writes(live.holding.subscribe())
            .restrained_by(live.restraints());
        let engine = SharedEngine::new(settings.shard);
        let graph = settings.collects_by_owners().then(|| {
            let graph =
                ResidentGraph { engine: engine.clone(), table: collector.table(), board: collector.board() };
            Arc::new(graph) as Arc<dyn Resident>
        });
        let mut catalogue = Catalogue::default();
        let journal = Arc::new(settings.journal.clone().open(client.address())?);
        Ok(Self {
            events: settings.retention.deletion_events.then(DeletionEvents::default),
            traces: otlp.map(Traces::start).transpose()?.map(Arc::new),
            page: settings
                .ui
                .map(|ui| live.page(&client, settings, ui, (graph.clone(), Arc::clone(&journal)))),
            journal,
            metrics: Metrics::register(&settings.election().lease.name, settings.shard, &mut catalogue),
            collectors: CollectorMetrics::register(&mut catalogue),
            stuck: StuckMetrics::register(&mut catalogue),
            garbage: GarbageMetrics::register(&mut catalogue),
            catalogue,
            client,
            gated,
            live,
            collector,
            engine,
            graph,
        })
    }

    fn sinks(&self, mode: Mode) -> AuditSinks {
        let (journal, events) = (Arc::clone(&self.journal), self.events.clone());
        AuditSinks { journal, events, mode, page: self.page.clone(), traces: self.traces.clone() }
    }

    /// Returns the surroundings of the collectors beyond owner references.
    fn surroundings(&self, mode: Mode) -> Surroundings {
        Surroundings {
            metrics: Some(self.collectors.clone()),
            restraints: self.live.restraints(),
            sinks: self.sinks(mode).for_others(),
            ..Surroundings::default()
        }
    }

    /// Returns the observers of all decisions and outcomes of the owner-reference collector.
    fn observers(&self, settings: &Settings, tasks: &mut JoinSet<()>) -> Vec<Arc<dyn Observer>> {
        let (metrics, table) = (&self.metrics, self.collector.table());
        let mut observers: Vec<Arc<dyn Observer>> =
            vec![Arc::new(metrics.clone()), Arc::new(metrics.queues())];
        observers.extend(self.sinks(settings.mode).of(Controller::GarbageCollector, &table));
        match settings.mode {
            Mode::Act => {}
            Mode::DryRun => observers.push(Arc::new(DryRunReport::new(table))),
            Mode::Observe | Mode::ObserveFor(_) => {
                let (window, journal) = (settings.observe_window, Arc::clone(&self.journal));
                let observation =
                    Arc::new(Observation::new(window, self.engine.clone(), metrics.clone(), journal, table));
                tasks.spawn(Arc::<Observation>::clone(&observation).compare().boxed());
                observers.push(observation);
            }
        }
        if settings.collects_by_owners() {
            observers.push(self.collectors.observer(Controller::GarbageCollector));
        }
        observers
    }

    /// Serves metrics and operational pages, and the page if it is enabled. Returns their addresses, for the Lease.
    async fn serve_pages(
        &mut self,
        options: &Options,
        settings: &Settings,
        ready: &Arc<AtomicBool>,
    ) -> anyhow::Result<ShownPages> {
        let live = &self.live;
        let pages = RunPages {
            engine: self.engine.clone(),
            board: self.collector.board(),
            concurrency: self.collector.concurrency(),
            metrics: self.metrics.clone(),
            leadership: live.leadership.clone(),
            waits_cold: settings.waits_cold(),
            journal: Arc::clone(&self.journal),
            breaker: live.breaker.clone(),
            orders: live.control.orders(),
            holding: live.holding.subscribe(),
            table: self.collector.table(),
            clock: self.client.server_clock().cloned(),
            failed_rounds: AtomicU64::new(0),
        };
        let shown = OperationsPages {
            metrics: Arc::new(std::mem::take(&mut self.catalogue).into()),
            ready: Arc::clone(ready),
            pages: Some(Arc::new(pages)),
        };
        let protection = Arc::new(Protection::of(settings.bind_address, &options.tls, Some(&self.client))?);
        let mut tls = protection.tls();
        let address = operations::serve(settings.bind_address, shown, protection).await?;
        gc_process::local::record_pages(address);
        tracing::info!(%address, server = self.client.address(), mode = ?settings.mode, "kubegc run");
        if let (Some(page), Some(ui)) = (self.page.take(), settings.ui) {
            tls = Some(serve_page(page, ui, &self.client, tls, &options.tls).await?);
        }
        Ok(ShownPages {
            authority: tls.and_then(|tls| tls.authority_pem().map(str::to_owned)),
            address: Some(address).filter(|address| address.ip().is_loopback()),
        })
    }

    /// Starts the tasks beside the collectors that follow the cluster and the Lease.
    async fn follow(&mut self, settings: &Settings, tasks: &mut JoinSet<()>) {
        if settings.controllers.iter().any(|controller| controller.collector().for_every_kind) {
            let begun = beginning(settings.waits_cold(), &self.live.leadership);
            let following = gc_kube::follow_definitions(self.client.clone(), self.live.breaker.clone());
            tasks.spawn(begun.then(|()| following).boxed());
        }
        if let Some(interval) = settings.garbage_interval {
            let (garbage, client, leadership) =
                (self.garbage.clone(), self.client.clone(), self.live.leadership.clone());
            tasks.spawn(garbage.follow(client, interval, move || leadership.leads()).boxed());
        }
        if !settings.mode.reads_only() {
            follow_orders(&self.client, settings, &self.live, tasks).await;
            if let Some(events) = self.events.take() {
                tasks.spawn(events.write(self.gated.clone()).boxed());
            }
        }
    }
}

async fn collect(options: &Options, given: &ExplicitFlags, settings: Settings) -> anyhow::Result<()> {
    let mut ended = apiserver::stop_signals()?;
    let hangups = gc_host::Hangups::new().context("cannot listen to SIGHUP")?;
    let timeout = options.request_timeout()?;
    let client = options.cluster.client(settings.kubeconfig.as_ref(), Caller::Controller).await?;
    let client = client.with_request_timeout(timeout);
    let mut parts = Parts::new(client, &settings, options.otlp_endpoint.as_deref())?;
    let mut tasks = JoinSet::new();
    let mut observers = parts.observers(&settings, &mut tasks);
    let (feed, terminating) = NamespaceFeed::new();
    observers.push(Arc::new(feed));
    let surroundings = parts.surroundings(settings.mode);
    let readiness = Readiness::new(!settings.collects_by_owners() || settings.waits_cold());
    let shown = parts.serve_pages(options, &settings, &readiness.ready).await?;

    // Nothing can start before the server answers and grants access, but a signal ends the wait.
    tokio::select! {
        checked = check_server(&parts.client, &settings) => checked?,
        _ = ended.recv() => return Ok(()),
    }
    parts.follow(&settings, &mut tasks).await;
    let others = Others::start(&parts.gated, &settings, &parts.live, terminating, surroundings);
    let Parts { client, live, collector, engine, graph, journal, metrics, stuck, traces, .. } = parts;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = settings.collects_by_owners().then(|| {
        let begun = beginning(settings.waits_cold(), &live.leadership);
        let (watched, leadership) = (
            WatchedCluster { client: client.clone(), resident: graph, clock: system_clock() },
            live.leadership.clone(),
        );
        let complete = Arc::clone(&readiness.complete);
        let acts = move || complete.load(Ordering::Acquire) && leadership.leads();
        // Each shard knows all objects: one of them counts those that are stuck.
        if settings.shard.index() == 0 {
            tasks.spawn(stuck.follow(watched, acts).boxed());
        }
        let shutdown = async move {
            let _ = stopped.await; // a dropped sender is a stop as well
        };
        let work = GraphCollector { collector, engine, observers: Observers(observers), readiness };
        tokio::spawn(work.run(begun, shutdown).boxed())
    });
    let (lease, elects, waits_cold) = (settings.election(), settings.elects(), settings.waits_cold());
    let is_observation = matches!(settings.mode, Mode::Observe | Mode::ObserveFor(_));
    let (control, leadership) = (live.control.clone(), live.leadership.clone());
    let mut candidate = if settings.shard.is_whole() {
        Candidate::new(client, lease, election::identity(), control, leadership)
    } else {
        let orders = settings.lease.lease.clone();
        Candidate::new(client, lease, election::identity(), Control::without_orders(), leadership)
            .following(control, orders)
    }
    .showing(shown);
    tasks.spawn(reload(hangups, options.clone(), given.clone(), settings, live).boxed());
    let has_ended = || work.as_ref().is_some_and(JoinHandle::is_finished) || others.has_ended();
    let end = tokio::select! {
        lost = lead(&mut candidate, elects, !waits_cold) => End::Lost(lost),
        _ = ended.recv() => End::Signal,
        () = until(has_ended) => End::Panic,
    };
    let result = match end {
        End::Signal | End::Panic => {
            let _ = stop.send(()); // an error says that the collector has ended already
            others.stop().await;
            let ended = match work {
                Some(work) => work.await.context("the collector ended by a panic"),
                None => Ok(()),
            };
            // Nothing is sent any more, so another replica may act at once.
            candidate.release().await;
            ended.and(if matches!(end, End::Panic) { Err(anyhow!(PANICKED)) } else { Ok(()) })
        }
        // The gate is closed, so no further request starts. Dropping the runtime ends those in flight.
        End::Lost(error) => {
            if let Some(work) = work {
                work.abort();
            }
            Err(error.into())
        }
    };
    journal.close();
    if let Some(traces) = traces {
        tokio::task::spawn_blocking(move || traces.end()).await.context("the traces ended by a panic")?;
    }
    if is_observation {
        report_observation(&metrics);
    }
    result
}

/// Waits until a collector has ended.
async fn until(has_ended: impl Fn() -> bool) {
    while !has_ended() {
        tokio::time::sleep(COLLECTORS_EXAMINED_EVERY).await;
    }
}

/// Waits for the server, and checks its version and the permissions.
async fn check_server(client: &ApiClient, settings: &Settings) -> anyhow::Result<()> {
    preflight::reach(client, true).await?;
    preflight::check_version(client).await;
    gc_process::admission::warn_of_unguarded(client, &settings.controllers).await;
    let needed = (settings.controllers.as_slice(), settings.retention.deletion_events);
    preflight::check_permissions(client, needed, settings.mode.reads_only()).await
}

/// Leads until the Lease is lost for good; never returns without an election.
///
/// A replica that could not renew the Lease in time, because the server or its storage did not answer, stands by if it may keep its
/// graph: it would list everything again if it ended, on a server that has only just recovered.
async fn lead(candidate: &mut Candidate, elects: bool, keeps_graph: bool) -> election::LeaseError {
    if !elects {
        std::future::pending::<()>().await;
    }
    loop {
        if let Err(error) = candidate.acquire().await {
            return error;
        }
        let lost = candidate.keep().await;
        if !keeps_graph || !matches!(lost, election::LeaseError::NotRenewed { .. }) {
            return lost;
        }
        tracing::warn!("{lost}; standing by");
    }
}

fn report_observation(metrics: &Metrics) {
    let (agreements, disagreements) = metrics.comparisons();
    tracing::info!(
        agreements,
        disagreements,
        "the observation has ended; `kubegc journal --verb observe` lists each comparison"
    );
}

/// Serves the page, with the certificate of the metrics if they have one. Returns the certificate.
async fn serve_page(
    page: Page,
    ui: options::Ui,
    client: &ApiClient,
    tls: Option<Arc<ListenerTls>>,
    flags: &TlsFlags,
) -> anyhow::Result<Arc<ListenerTls>> {
    let tls = match tls {
        Some(tls) => tls,
        None => Arc::new(flags.load()?),
    };
    let cluster = Cluster::new(client.clone())?;
    let bound = listener::serve(ui.bind_address, Arc::clone(&tls), page, cluster).await?;
    tracing::info!(
        page = %format!("https://{bound}/ui"),
        takes_orders = ui.takes_orders,
        "the page is served; `kubegc ui --collector {bound}` prints a link to it"
    );
    Ok(tls)
}

/// Applies the orders in the Lease before the collectors do anything, and follows them from then on.
async fn follow_orders(client: &ApiClient, settings: &Settings, live: &Live, tasks: &mut JoinSet<()>) {
    let lease = &settings.lease.lease;
    if let Err(error) = live.control.look(client, lease).await {
        tracing::warn!("cannot read the lease; orders to pause and resume are not seen: {error:#}");
    }
    if !settings.shard.is_whole() {
        let (shard, orders) = (settings.shard, live.control.orders());
        tasks.spawn(shards::keep_announced(client.clone(), lease.clone(), shard, orders).boxed());
    } else if !settings.elects()
        && let Err(error) = control::offer(client, lease).await
    {
        tracing::warn!("cannot create the lease that takes orders: {error:#}");
    }
    tasks.spawn(live.control.clone().follow(client.clone(), lease.clone()).boxed());
    tasks.spawn(live.control.clone().announce(client.clone(), lease.clone()).boxed());
    let Mode::ObserveFor(period) = settings.mode else { return };
    let (control, holding) = (live.control.clone(), live.holding.clone());
    let (client, lease) = (client.clone(), lease.clone());
    tasks.spawn(
        async move {
            let until = control.observe_until(&client, &lease, period).await;
            tracing::info!(%until, "observing first");
            while jiff::Timestamp::now() < until {
                tokio::time::sleep(READINESS_PAUSE).await;
            }
            tracing::info!("observation ended; acting from now on");
            holding.send_replace(None);
        }
        .boxed(),
    );
}
