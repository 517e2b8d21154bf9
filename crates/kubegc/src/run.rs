//! `kubegc run`: the collectors on any cluster.

pub(crate) mod admission;
pub(crate) mod commands;
mod config;
pub(crate) mod control;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod lease;
mod metrics;
mod observe;
mod options;
mod resident;
mod work_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use gc_apiserver::ListenerTls;
use gc_collectors::permissions::Controller;
use gc_kube::breaker::{Breaker, SharedBreaker};
use gc_kube::concurrency::ConcurrencyOptions;
use gc_kube::namespaces::{NamespaceFeed, NamespaceNames};
use gc_kube::{
    ApiClient, MetadataCollector, Observer, Observers, ResourceTable, Restraints, StatusBoard, SyncState,
};
use gc_metrics::Catalogue;
use gc_types::WithheldBy;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::apiserver;
use crate::collector_metrics::CollectorMetrics;
use crate::collectors::{MakeSinks, NamespaceOptions, RunningCollectors, Surroundings};
use crate::deletion_events::DeletionEvents;
use crate::journal::{Journal, JournalObserver};
use crate::kubeconfig::Caller;
use crate::logging;
use crate::operations::{self, Protection, Shown, TlsFlags};
use crate::page::visitor::Cluster;
use crate::page::{Attached, Page, listener};
use crate::preflight;
use crate::questions::resident::Resident;
use crate::stuck_metrics::{StuckMetrics, Watched};
use control::Control;
use gc_process::audit_log::{DryRunReport, LogDecisions};
use lease::{Candidate, ShownPages};
pub(crate) use lease::{Leadership, host};
use metrics::{Metrics, RunPages, SharedEngine};
use observe::Observation;
pub(crate) use options::{
    DEFAULT_CONTROLLERS, DEFAULT_PAGES, Given, LeaseFlags, Options, default_journal, recorded_pages,
};
use options::{JournalPlace, Mode, Settings};
use resident::ResidentGraph;

/// How often readiness is checked until it is reached.
const READINESS_PAUSE: Duration = Duration::from_millis(50);
/// How long a terminating namespace is left alone first: other servers may not know yet that it terminates
/// (spec `api-deletion.md`, 12.5).
const NAMESPACE_SETTLE: Duration = Duration::from_secs(5);

/// Runs until SIGINT or SIGTERM, or until the lease is lost (an error).
pub(crate) fn run(options: &Options, given: &Given) -> anyhow::Result<()> {
    logging::start_unattended(&options.log)?;
    let settings = Settings::resolve(options, given)?;
    for notice in &settings.notices {
        tracing::info!("{notice}");
    }
    apiserver::raise_file_limit();
    let done = crate::tasks::block_on(collect(options, given, settings));
    // Whatever still runs is not waited for: after a lost lease nothing may be sent.
    done
}

/// The metrics of the collector of owner references.
pub(crate) fn metrics() -> Catalogue {
    let mut catalogue = Catalogue::default();
    Metrics::register("", &mut catalogue);
    catalogue
}

/// What ended the work.
enum End {
    Signal,
    Lost(lease::LeaseError),
}

/// What may change while running.
struct Live {
    breaker: SharedBreaker,
    concurrency: watch::Sender<ConcurrencyOptions>,
    /// What holds all writes, if anything does.
    holding: watch::Sender<Option<WithheldBy>>,
    leadership: Leadership,
    control: Control,
}

impl Live {
    fn new(settings: &Settings, server: &str) -> Self {
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

    /// The page of these collectors.
    fn page(
        &self,
        client: &ApiClient,
        settings: &Settings,
        ui: options::Ui,
        resident: Option<Arc<dyn Resident>>,
    ) -> Page {
        let collectors = Attached {
            client: client.clone(),
            lease: settings.lease.lease.clone(),
            leadership: self.leadership.clone(),
            holding: self.holding.subscribe(),
            breaker: self.breaker.clone(),
            takes_orders: ui.takes_orders,
            resident,
        };
        let page = Page::attached(self.control.clone(), collectors);
        page.expect(&settings.controllers);
        page
    }

    /// What stops every collector alike.
    fn restraints(&self) -> Restraints {
        Restraints {
            held: self.leadership.held(),
            breaker: Some(self.breaker.clone()),
            bounds: Some(self.concurrency.subscribe()),
        }
    }
}

/// Makes those who write down what a collector does: nothing is deleted without a trace.
#[derive(Clone)]
struct AuditSinks {
    journal: Arc<Journal>,
    /// None where they are switched off.
    events: Option<DeletionEvents>,
    mode: Mode,
    /// Whose feed shows it, too.
    page: Option<Page>,
}

/// The audit sinks of collectors that run beside their server: the log, the journal, and Events.
pub(crate) fn sinks(journal: Arc<Journal>, events: Option<DeletionEvents>) -> Arc<MakeSinks> {
    AuditSinks { journal, events, mode: Mode::Act, page: None }.for_others()
}

impl AuditSinks {
    /// The log with its audit lines, the journal, Events, and the feed of the page.
    fn of(&self, controller: Controller, table: &ResourceTable) -> Vec<Arc<dyn Observer>> {
        let journal = Arc::clone(&self.journal);
        let mut made: Vec<Arc<dyn Observer>> = vec![
            Arc::new(LogDecisions::new(controller, table.clone())),
            Arc::new(JournalObserver { journal, controller: controller.name(), table: table.clone() }),
        ];
        made.extend(self.events.as_ref().and_then(|events| events.observer(controller, table)));
        made.extend(self.page.as_ref().map(|page| page.observer(controller, table)));
        made
    }

    /// The same for collectors other than that of owner references, which cannot be compared with another one: where
    /// nothing is performed, they report.
    fn for_others(&self) -> Arc<MakeSinks> {
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

async fn collect(options: &Options, given: &Given, settings: Settings) -> anyhow::Result<()> {
    let mut ended = apiserver::stop_signals()?;
    let hangups = tokio::signal::unix::signal(SignalKind::hangup()).context("cannot listen to SIGHUP")?;
    let timeout = options.request_timeout()?;
    let client = options
        .cluster
        .client(settings.kubeconfig.as_ref(), Caller::Controller)
        .await?
        .with_request_timeout(timeout);
    let live = Live::new(&settings, client.address());
    let permission = live.leadership.clone();
    let gated = client.gated(move || permission.may_act());
    let collector = MetadataCollector::new(gated.clone(), settings.collector())
        .holding_writes(live.holding.subscribe())
        .restrained_by(live.restraints());
    let journal = Arc::new(settings.journal.clone().open(client.address())?);
    let events = settings.retention.deletion_events.then(DeletionEvents::default);
    let engine = SharedEngine::default();
    let graph = settings.collects_by_owners().then(|| {
        let graph =
            ResidentGraph { engine: engine.clone(), table: collector.table(), board: collector.board() };
        Arc::new(graph) as Arc<dyn Resident>
    });
    let page = settings.ui.map(|ui| live.page(&client, &settings, ui, graph.clone()));
    let sinks = AuditSinks {
        journal: Arc::clone(&journal),
        events: events.clone(),
        mode: settings.mode,
        page: page.clone(),
    };
    let mut catalogue = Catalogue::default();
    let metrics = Metrics::register(&settings.lease.lease.name, &mut catalogue);
    let counted = metrics.clone();
    let is_observation = matches!(settings.mode, Mode::Observe | Mode::ObserveFor(_));
    let collectors = CollectorMetrics::register(&mut catalogue);
    let stuck = StuckMetrics::register(&mut catalogue);
    let surroundings = Surroundings {
        metrics: Some(collectors.clone()),
        restraints: live.restraints(),
        sinks: sinks.for_others(),
        ..Surroundings::default()
    };
    let mut tasks = JoinSet::new();
    let mut observers = observers(&settings, &engine, &metrics, &sinks, &collector.table(), &mut tasks);
    if settings.collects_by_owners() {
        observers.push(collectors.observer(Controller::GarbageCollector));
    }
    let (feed, terminating) = NamespaceFeed::new();
    observers.push(Arc::new(feed));
    let ready = Arc::new(AtomicBool::new(!settings.collects_by_owners()));
    let pages = RunPages {
        engine: engine.clone(),
        board: collector.board(),
        concurrency: collector.concurrency(),
        metrics,
        leadership: live.leadership.clone(),
        journal: Arc::clone(&journal),
        breaker: live.breaker.clone(),
        orders: live.control.orders(),
        holding: live.holding.subscribe(),
        table: collector.table(),
        clock: client.server_clock().cloned(),
        failed_rounds: AtomicU64::new(0),
    };
    let shown = Shown {
        metrics: Arc::new(catalogue.into()),
        ready: Arc::clone(&ready),
        pages: Some(Arc::new(pages)),
    };
    let protection = Arc::new(Protection::of(settings.bind_address, &options.tls, Some(&client))?);
    let mut tls = protection.tls();
    let address = operations::serve(settings.bind_address, shown, protection).await?;
    options::record_pages(address);
    tracing::info!(%address, server = client.address(), mode = ?settings.mode, "kubegc run");
    if let (Some(page), Some(ui)) = (page, settings.ui) {
        tls = Some(serve_page(page, ui, &client, tls, &options.tls).await?);
    }
    let authority = tls.and_then(|tls| tls.authority_pem().map(str::to_owned));

    // Until the server is there and lets us, nothing else makes sense; but a signal ends the wait.
    tokio::select! {
        checked = check_server(&client, &settings) => checked?,
        _ = ended.recv() => return Ok(()),
    }
    if settings.controllers.iter().any(|controller| controller.collector().for_every_kind) {
        tasks.spawn(gc_kube::follow_definitions(client.clone(), live.breaker.clone()).boxed());
    }
    if !settings.mode.reads_only() {
        follow_orders(&client, &settings, &live, &mut tasks).await;
        if let Some(events) = events {
            tasks.spawn(events.write(gated.clone()).boxed());
        }
    }
    let others = start_others(&gated, &settings, &live, terminating, surroundings);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async move {
        let _ = stopped.await; // a dropped sender is a stop as well
    };
    let work = settings.collects_by_owners().then(|| {
        tasks.spawn(watch_readiness(collector.board(), Arc::clone(&ready)).boxed());
        let (watched, leadership) =
            (Watched { client: client.clone(), resident: graph }, live.leadership.clone());
        let acts = move || ready.load(Ordering::Acquire) && leadership.leads();
        tasks.spawn(stuck.follow(watched, acts).boxed());
        tokio::spawn(collector.run(engine, Arc::new(Observers(observers)), shutdown).boxed())
    });
    let (lease, elects) = (settings.lease.clone(), settings.elects());
    let mut candidate =
        Candidate::new(client, lease, lease::identity(), live.control.clone(), live.leadership.clone())
            .showing(ShownPages {
                authority,
                address: Some(address).filter(|address| address.ip().is_loopback()),
            });
    tasks.spawn(reload(hangups, options.clone(), given.clone(), settings, live).boxed());
    let end = tokio::select! {
        lost = lead(&mut candidate, elects) => End::Lost(lost),
        _ = ended.recv() => End::Signal,
    };
    let result = match end {
        End::Signal => {
            let _ = stop.send(()); // an error says that the collector has ended already
            others.stop().await;
            if let Some(work) = work {
                work.await.context("the collector ended by a panic")?;
            }
            candidate.release().await;
            Ok(())
        }
        // No further request is begun: the gate is shut. Dropping the runtime ends what is in flight.
        End::Lost(error) => {
            if let Some(work) = work {
                work.abort();
            }
            Err(error.into())
        }
    };
    journal.close();
    if is_observation {
        report_observation(&counted);
    }
    result
}

/// Waits for the server, and checks its version and what it permits.
async fn check_server(client: &ApiClient, settings: &Settings) -> anyhow::Result<()> {
    preflight::reach(client, true).await?;
    preflight::check_version(client).await;
    admission::warn_of_unguarded(client, &settings.controllers).await;
    let needed = (settings.controllers.as_slice(), settings.retention.deletion_events);
    preflight::check_permissions(client, needed, settings.mode.reads_only()).await
}

/// Leads until the lease is lost; without an election, for ever.
async fn lead(candidate: &mut Candidate, elects: bool) -> lease::LeaseError {
    if !elects {
        std::future::pending::<()>().await;
    }
    match candidate.acquire().await {
        Ok(()) => candidate.keep().await,
        Err(error) => error,
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

/// Serves the page, with the certificate that metrics have, if they have one. Answers the certificate.
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

/// The observers of all decisions and outcomes.
fn observers(
    settings: &Settings,
    engine: &SharedEngine,
    metrics: &Metrics,
    sinks: &AuditSinks,
    table: &ResourceTable,
    tasks: &mut JoinSet<()>,
) -> Vec<Arc<dyn Observer>> {
    let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::new(metrics.clone()), Arc::new(metrics.queues())];
    observers.extend(sinks.of(Controller::GarbageCollector, table));
    let table = table.clone();
    match settings.mode {
        Mode::Act => {}
        Mode::DryRun => observers.push(Arc::new(DryRunReport::new(table))),
        Mode::Observe | Mode::ObserveFor(_) => {
            let (window, journal) = (settings.observe_window, Arc::clone(&sinks.journal));
            let observation =
                Arc::new(Observation::new(window, engine.clone(), metrics.clone(), journal, table));
            tasks.spawn(Arc::<Observation>::clone(&observation).compare().boxed());
            observers.push(observation);
        }
    }
    observers
}

/// Takes in what the Lease orders before anything is done, and follows it from then on.
async fn follow_orders(client: &ApiClient, settings: &Settings, live: &Live, tasks: &mut JoinSet<()>) {
    let lease = &settings.lease.lease;
    if let Err(error) = live.control.look(client, lease).await {
        tracing::warn!("cannot read the lease; orders to pause and resume are not seen: {error:#}");
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

/// The collectors beyond owner references, which run on the leader only.
struct Others {
    stop: tokio::sync::oneshot::Sender<()>,
    work: tokio::task::JoinHandle<()>,
}

impl Others {
    async fn stop(self) {
        let _ = self.stop.send(()); // an error says that they have ended already
        if self.work.await.is_err() {
            tracing::error!("the other collectors ended by a panic");
        }
    }
}

fn start_others(
    gated: &ApiClient,
    settings: &Settings,
    live: &Live,
    terminating: NamespaceNames,
    surroundings: Surroundings,
) -> Others {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let enabled = settings.other_controllers();
    let mut options = settings.collector();
    options.dry_run = settings.mode.reads_only();
    if settings.mode == Mode::Observe && !enabled.is_empty() {
        tracing::info!(
            controllers = ?enabled.iter().map(|controller| controller.name()).collect::<Vec<_>>(),
            "these collectors report what they would do, without a comparison"
        );
    }
    let (client, retention) = (gated.clone(), settings.retention.clone());
    let (mut held, mut holding) = (live.leadership.held(), live.holding.subscribe());
    let waits = !options.dry_run;
    let work = tokio::spawn(
        async move {
            let begun = async {
                // Nothing of theirs can be compared: they begin when an observation is over.
                let observed = holding.wait_for(|holding| !waits || holding.is_none()).await.is_ok();
                observed && held.wait_for(|held| !*held).await.is_ok()
            };
            tokio::pin!(stopped);
            tokio::select! {
                // Otherwise the election has ended, and the process with it.
                begun = begun => if !begun { return },
                _ = &mut stopped => return,
            }
            let running = RunningCollectors::start(
                |_| client.clone(),
                &enabled,
                &retention,
                &options,
                NamespaceOptions { settle: NAMESPACE_SETTLE, is_first: false, names: Some(terminating) },
                None,
                &surroundings,
            );
            let _ = stopped.await;
            running.shutdown().await;
        }
        .boxed(),
    );
    Others { stop, work }
}

/// Reads the configuration again on each SIGHUP, and says what takes effect and what needs a restart.
async fn reload(mut hangups: Signal, options: Options, given: Given, mut settings: Settings, live: Live) {
    while hangups.recv().await.is_some() {
        let Some(file) = &options.config else {
            tracing::info!("SIGHUP: there is no --config to reload");
            continue;
        };
        let read = match Settings::resolve(&options, &given) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(file = %file.display(), "the configuration is unchanged: {error}");
                continue;
            }
        };
        let differences = settings.differences(&read);
        if differences.is_empty() {
            tracing::info!(file = %file.display(), "the configuration has not changed");
        }
        for change in &differences {
            let effect = if change.is_live { "takes effect" } else { "needs a restart" };
            tracing::info!(setting = change.name, from = change.from, to = change.to, "{effect}");
        }
        live.breaker.change(|breaker| {
            breaker.set_options(read.breaker);
            breaker.keep(read.kept_resources.clone());
        });
        live.concurrency.send_replace(read.concurrency);
        // What needs a restart is reported again the next time.
        settings.breaker = read.breaker;
        settings.kept_resources = read.kept_resources;
        settings.concurrency = read.concurrency;
    }
}

/// Ready is who knows, of every resource, either its objects or that they cannot be known.
async fn watch_readiness(board: StatusBoard, ready: Arc<AtomicBool>) {
    loop {
        let states = board.all();
        if !states.is_empty() && states.values().all(|status| status.state != SyncState::Listing) {
            ready.store(true, Ordering::Relaxed);
            tracing::info!(resources = states.len(), "the graph is complete");
            return;
        }
        tokio::time::sleep(READINESS_PAUSE).await;
    }
}
