//! `kubegc up`: the embedded API server and every collector of a cluster, in one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use gc_kube::{ApiClient, CollectorOptions, Observer};
use gc_retention::permissions::Controller;
use gc_workloads::runtime::Runtime;
use prometheus_client::registry::Registry;

use crate::accounts::{self, Account};
use crate::apiserver::{self, ServerOptions, StartedServer};
use crate::clock::collector_clock;
use crate::collector_metrics::CollectorMetrics;
use crate::collectors::{ControllerOptions, NamespaceOptions, RunningCollectors, Surroundings};
use crate::definitions;
use crate::logging::{self, LogOptions};
use crate::operations::{self, Shown};
use crate::workloads::{self, WorkloadOptions};

/// The embedded server knows at once that a namespace terminates, so nothing has to settle first.
const NAMESPACE_SETTLE: Duration = Duration::ZERO;

/// Options of `kubegc up`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    controllers: ControllerOptions,
    #[command(flatten)]
    workloads: WorkloadOptions,
    /// Where to serve the metrics of the collectors [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind_address: Option<SocketAddr>,
    /// A file with a duration, such as 36h, by which the clock of the collectors is ahead; it is read again as it
    /// changes, so that a test need not wait
    #[arg(long, value_name = "FILE")]
    collector_clock_offset: Option<PathBuf>,
    #[command(flatten)]
    log: LogOptions,
}

/// A server with its collectors.
pub(crate) struct Up {
    /// The server.
    pub(crate) started: StartedServer,
    collectors: RunningCollectors,
}

impl Up {
    /// Starts both. `observer` hears of every decision about owners.
    pub(crate) async fn start(
        options: &ServerOptions,
        settings: &ControllerOptions,
        workloads: &WorkloadOptions,
        observer: Option<Arc<dyn Observer>>,
        surroundings: &Surroundings,
    ) -> anyhow::Result<Self> {
        let living = workloads.enabled(&settings.controllers);
        let mut settings = settings.clone();
        settings.controllers.retain(|word| !workloads::is_named(word));
        let enabled = settings.enabled()?;
        let started = apiserver::start(options).await?;
        let client_of = |account: &Account| {
            let way = started.server.in_process_as(&account.user(), &accounts::GROUPS);
            ApiClient::in_process(move |request| way.call(request))
        };
        let way = started.server.in_process("kubegc");
        let admin = ApiClient::in_process(move |request| way.call(request));
        let informers = Account::of_informers(workloads::kinds(&living));
        let mut bound: Vec<Account> = enabled.iter().copied().map(Account::from).collect();
        if !living.is_empty() {
            bound.push(informers.clone());
            bound.extend(living.iter().copied().map(Account::from));
        }
        accounts::bind(&admin, client_of, &bound).await?;
        if enabled.contains(&Controller::RetentionPolicy) {
            definitions::install(&admin).await?;
        }
        let mut collectors = RunningCollectors::start(
            |controller| client_of(&controller.into()),
            &enabled,
            &settings,
            &CollectorOptions::default(),
            NamespaceOptions { settle: NAMESPACE_SETTLE, is_first: true, heard: None },
            observer,
            surroundings,
        );
        if !living.is_empty() {
            let of_workloads =
                living.iter().map(|&workload| (workload, client_of(&workload.into()))).collect();
            let clients = workloads::Clients { informers: client_of(&informers), of_workloads };
            let runtime =
                Runtime::new(workloads.settings(started.server.credentials().ca_pem.clone()), living);
            let clock = Arc::clone(&surroundings.clock);
            collectors.add(|stopped| workloads::run(clients, runtime, clock, stopped));
        }
        Ok(Self { started, collectors })
    }

    /// Stops the collectors, then the server.
    pub(crate) async fn shutdown(self) {
        self.collectors.shutdown().await;
        self.started.shutdown().await;
    }
}

/// Runs until SIGINT or SIGTERM.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    logging::start(&options.log)?;
    apiserver::raise_file_limit();
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut ended = apiserver::stop_signals()?;
        let mut registry = Registry::default();
        let surroundings = Surroundings {
            clock: collector_clock(options.collector_clock_offset.as_ref())?,
            metrics: Some(CollectorMetrics::register(&mut registry)),
            ..Surroundings::default()
        };
        let up =
            Up::start(&options.server, &options.controllers, &options.workloads, None, &surroundings).await?;
        if let Some(address) = options.bind_address {
            let ready = Arc::new(AtomicBool::new(true));
            let shown = Shown { metrics: Arc::new(registry), ready, pages: None };
            let address = operations::serve(address, shown).await?;
            tracing::info!(%address, "metrics of the collectors");
        }
        apiserver::print_kubeconfig(&up.started);
        ended.recv().await;
        up.shutdown().await;
        anyhow::Ok(())
    });
    // What still waits for a disk or a network must not hold up the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

/// The runtime of everything that serves.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}
