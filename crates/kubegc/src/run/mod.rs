//! `kubegc run`: the owner-reference collector on any cluster.

mod election;
mod journal;
mod lease;
mod metrics;
pub(crate) mod preflight;
mod report;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgAction, Args};
use gc_kube::pacing::PacingOptions;
use gc_kube::{ApiClient, Collector, CollectorOptions, Observer, StatusBoard, SyncState};
use gc_types::GoDuration;

use crate::UsageError;
use crate::apiserver;
use crate::logging::{self, LogOptions};
use crate::operations::{self, Shown};
use journal::{Journal, JournalOptions};
pub(crate) use journal::{request_value, verb, word};
use lease::{Candidate, Leadership, LeaseOptions};
use metrics::{Metrics, RunPages, SharedEngine};
use report::{DryRunReport, LogDecisions, Together};

/// How often readiness is looked at until it is there.
const READINESS_PAUSE: Duration = Duration::from_millis(50);
/// Upstream's default of `--kube-api-burst`.
const DEFAULT_BURST: u32 = 30;

/// Options of `kubegc run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The cluster [default: $KUBECONFIG, ~/.kube/config, or the service account of this pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Perform nothing and report everything; takes no lease
    #[arg(long)]
    dry_run: bool,
    /// Requests in flight at most [default: as many as the server carries, up to 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrent_gc_syncs: Option<u16>,
    /// Requests per second at most [default: no fixed rate]
    #[arg(long, value_name = "RATE")]
    kube_api_qps: Option<f64>,
    /// Requests at once on top of --kube-api-qps
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BURST, requires = "kube_api_qps")]
    kube_api_burst: u32,
    /// Where to serve metrics, health and debugging
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10357")]
    bind_address: SocketAddr,
    /// Act only while holding a Lease, so that replicas can stand by
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    leader_elect: bool,
    /// How long standbys wait for a leader that no longer renews
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    leader_elect_lease_duration: String,
    /// A leader that has not renewed for so long stops
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    leader_elect_renew_deadline: String,
    /// Time between tries to get or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    leader_elect_retry_period: String,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "kubegc-garbage-collector")]
    leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// Append every effect with its reason and outcome to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Size at which the journal is put aside and a new one begun, MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    journal_max_size: u32,
    /// How many older journals are kept
    #[arg(long, value_name = "N", default_value_t = 4)]
    journal_max_files: u32,
    #[command(flatten)]
    log: LogOptions,
}

impl Options {
    fn lease(&self) -> Result<LeaseOptions, UsageError> {
        let duration = |flag: &str, text: &str| match text.parse::<GoDuration>() {
            Ok(duration) => Ok(duration.to_std()),
            Err(error) => Err(UsageError::new(format!("{flag}: {error}"))),
        };
        let options = LeaseOptions {
            namespace: self.leader_elect_resource_namespace.clone(),
            name: self.leader_elect_resource_name.clone(),
            lease_duration: duration("--leader-elect-lease-duration", &self.leader_elect_lease_duration)?,
            renew_deadline: duration("--leader-elect-renew-deadline", &self.leader_elect_renew_deadline)?,
            retry_period: duration("--leader-elect-retry-period", &self.leader_elect_retry_period)?,
        };
        options.check().map_err(UsageError::new)?;
        Ok(options)
    }

    fn collector(&self) -> Result<CollectorOptions, UsageError> {
        let mut pacing = PacingOptions { burst: self.kube_api_burst, ..PacingOptions::default() };
        if let Some(rate) = self.kube_api_qps {
            if !rate.is_finite() || rate <= 0.0 {
                return Err(UsageError::new(
                    "--kube-api-qps must be more than 0; leave it out for no fixed rate",
                ));
            }
            pacing.queries_per_second = Some(rate);
        }
        if let Some(largest) = self.concurrent_gc_syncs.map(usize::from) {
            pacing.largest = largest;
            pacing.initial = pacing.initial.min(largest);
        }
        Ok(CollectorOptions { dry_run: self.dry_run, pacing, ..CollectorOptions::default() })
    }
}

/// The client of a kubeconfig, or of where we are. An unusable configuration is a usage error.
pub(crate) async fn connect(kubeconfig: Option<&PathBuf>) -> anyhow::Result<ApiClient> {
    let client = match kubeconfig {
        Some(file) => ApiClient::from_kubeconfig(file).await,
        None => ApiClient::infer().await,
    };
    client.map_err(|error| {
        let said = preflight::one_line(&error);
        UsageError::new(match kubeconfig {
            Some(file) => format!("{}: {said}", file.display()),
            None => format!("{said}; say --kubeconfig FILE or set $KUBECONFIG"),
        })
        .into()
    })
}

/// Runs until SIGINT or SIGTERM, or until the lease is lost (an error).
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    logging::start(&options.log)?;
    let (lease, collector) = (options.lease()?, options.collector()?);
    apiserver::raise_file_limit();
    let runtime = crate::up::runtime()?;
    let done = runtime.block_on(collect(options, lease, collector));
    // Whatever still runs is not waited for: after a lost lease nothing may be sent.
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

/// What ended the work.
enum End {
    Signal,
    Lost(lease::LeaseError),
}

async fn collect(
    options: &Options,
    lease: LeaseOptions,
    collector_options: CollectorOptions,
) -> anyhow::Result<()> {
    let mut ended = apiserver::stop_signals()?;
    let client = connect(options.kubeconfig.as_ref()).await?;
    let elects = options.leader_elect && !options.dry_run;
    let leadership = if elects { Leadership::none() } else { Leadership::always() };
    let permission = leadership.clone();
    let gated = client.gated(move || permission.may_act());
    let collector = Collector::new(gated, collector_options).held_while(leadership.held());
    let journal = match &options.journal {
        None => None,
        Some(file) => {
            let largest_bytes = u64::from(options.journal_max_size) << 20;
            let older_files = options.journal_max_files;
            let opened = JournalOptions { file: file.clone(), largest_bytes, older_files };
            Some(Arc::new(Journal::open(opened, collector.table())?))
        }
    };
    let engine = SharedEngine::default();
    let (metrics, registry) = Metrics::register(&lease.name);
    let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::new(metrics.clone())];
    if options.dry_run {
        observers.push(Arc::new(DryRunReport::new(collector.table())));
    } else {
        observers.push(Arc::new(LogDecisions::new(collector.table())));
    }
    if let Some(journal) = &journal {
        let journal: Arc<dyn Observer> = Arc::<Journal>::clone(journal);
        observers.push(journal);
    }
    let ready = Arc::new(AtomicBool::new(false));
    let pages = RunPages {
        engine: engine.clone(),
        board: collector.board(),
        pacing: collector.pacing(),
        metrics,
        leadership: leadership.clone(),
        journal: journal.clone(),
    };
    let shown = Shown { metrics: registry, ready: Arc::clone(&ready), pages: Some(Arc::new(pages)) };
    let address = operations::serve(options.bind_address, shown).await?;
    tracing::info!(%address, server = client.address(), dry_run = options.dry_run, "kubegc run");

    // Until the server is there and lets us, nothing else makes sense; but a signal ends the wait.
    let checked = async {
        preflight::reach(&client, true).await?;
        preflight::check_permissions(&client, options.dry_run).await
    };
    tokio::select! {
        checked = checked => checked?,
        _ = ended.recv() => return Ok(()),
    }
    tokio::spawn(watch_readiness(collector.board(), ready));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async move {
        let _ = stopped.await; // a dropped sender is a stop as well
    };
    let work = tokio::spawn(collector.run(engine, Arc::new(Together(observers)), shutdown));
    let mut candidate = Candidate::new(client, lease, lease::identity(), leadership);
    let led = async {
        if !elects {
            std::future::pending::<()>().await;
        }
        match candidate.acquire().await {
            Ok(()) => candidate.keep().await,
            Err(error) => error,
        }
    };
    let end = tokio::select! {
        lost = led => End::Lost(lost),
        _ = ended.recv() => End::Signal,
    };
    let result = match end {
        End::Signal => {
            let _ = stop.send(()); // an error says that the collector has ended already
            work.await.context("the collector ended by a panic")?;
            candidate.release().await;
            Ok(())
        }
        // No further request is begun: the gate is shut. Dropping the runtime ends what is in flight.
        End::Lost(error) => {
            work.abort();
            Err(error.into())
        }
    };
    if let Some(journal) = journal {
        journal.close();
    }
    result
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
