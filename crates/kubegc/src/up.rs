//! `kubegc up`: the embedded API server and every collector of a cluster, in one process.

mod advisor;
mod cluster;
mod command;
pub(crate) mod control;
mod controllers;
mod deletions;
pub(crate) mod detach;
mod failures;
mod reset;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::FutureExt as _;
use gc_apiserver::RunningServer;
use gc_kube::{ApiClient, Observer};
use gc_metrics::Catalogue;
use gc_registry::api::UserInfo;
use gc_retention::permissions::Controller;
use gc_workloads::workloads::Workload;
use tokio::sync::{Mutex, mpsc};

use crate::UsageError;
use crate::apiserver::{self, ServerOptions};
use crate::clock::CollectorClock;
use crate::collector_metrics::CollectorMetrics;
use crate::collectors::{ControllerOptions, Surroundings};
use crate::deletion_events::DeletionEvents;
pub(crate) use crate::journal::SERVER_JOURNAL as JOURNAL;
use crate::journal::{InMemoryOnly, Journal, JournalOptions};
use crate::logging::{self, LogOptions};
use crate::operations::{self, Protection, Shown, TlsFlags};
use crate::run;
use crate::stuck_metrics::{StuckMetrics, Watched};
use crate::workloads::WorkloadOptions;
use advisor::RetentionAdvisor;
use cluster::{Cluster, Forks, Recipe};
use control::Control;
use controllers::{Controllers, Enabled};
pub(crate) use deletions::PATH as DELETIONS;
use reset::Baseline;

/// The embedded server knows at once that a namespace terminates, so nothing has to settle first.
const NAMESPACE_SETTLE: Duration = Duration::ZERO;

/// The parts of the control plane whose work is done here, as ComponentStatuses name them; the scheduler is one of the workload controllers.
const COMPONENTS: [&str; 2] = ["controller-manager", "scheduler"];

/// Kinds that would have an effect in a cluster with metrics, a network or devices, and have none here; whoever creates one is warned.
const UNATTENDED: [(&str, &str); 5] = [
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("resource.k8s.io", "ResourceClaim"),
];

/// What `*` switches on here besides the collectors that are on by default on a cluster.
const ALSO_ON: [Controller; 1] = [Controller::Expiry];

/// Who opens the page by the link that is printed.
const ADMINISTRATOR: &str = "kubegc-admin";

/// Size at which the journal is rotated.
const JOURNAL_BYTES: u64 = 32 << 20;
/// Number of rotated journals that are kept.
const OLDER_JOURNALS: u32 = 2;

/// Under this name requests of workload controllers are counted.
const WORKLOADS: &str = "workload-controllers";

/// Options of `kubegc up`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc up --ephemeral            serve until Ctrl-C and keep nothing
  kubegc up -- go test ./...       run a test suite against a server of its own
  kubegc up --detach               run in the background; kubegc down stops it")]
pub(crate) struct Options {
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    controllers: ControllerOptions,
    #[command(flatten)]
    workloads: WorkloadOptions,
    /// Address for the metrics of the collectors [default: none]; on an address other than loopback they need TLS and a
    /// token
    #[arg(long, help_heading = operations::PAGES_HEADING, value_name = "ADDRESS:PORT")]
    bind_address: Option<SocketAddr>,
    #[command(flatten)]
    tls: TlsFlags,
    /// Run in the background and return as soon as the server is ready; `kubegc down` stops it
    #[arg(long, help_heading = "API server", conflicts_with = "command")]
    detach: bool,
    /// This process is the one in the background.
    #[arg(long, hide = true)]
    detached: bool,
    #[command(flatten)]
    log: LogOptions,
    /// Command to run with $KUBECONFIG set; stops the server when it ends and returns its exit code. Keeps nothing
    /// without --data-dir, and uses a free port without --listen
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A server with its collectors.
pub(crate) struct Up {
    /// The server.
    pub(crate) server: RunningServer,
    /// Its clock, and whether it has settled.
    pub(crate) control: Control,
    cluster: Arc<Cluster>,
}

impl Up {
    /// Starts both. `observer` gets every decision about owners; the clock and the restraints of `surroundings` are
    /// those of `clock`.
    pub(crate) async fn start(
        options: &ServerOptions,
        settings: &ControllerOptions,
        workloads: &WorkloadOptions,
        observer: Option<Arc<dyn Observer>>,
        clock: &CollectorClock,
        surroundings: Surroundings,
    ) -> anyhow::Result<Self> {
        let recipe =
            Recipe { options: options.clone(), controllers: settings.clone(), workloads: workloads.clone() };
        Self::begin(&recipe, observer, clock, surroundings, Some(Forks::new(recipe.clone()))).await
    }

    /// Starts a fork of another server.
    async fn start_fork(
        recipe: &Recipe,
        clock: &CollectorClock,
        surroundings: Surroundings,
    ) -> anyhow::Result<Self> {
        Self::begin(recipe, None, clock, surroundings, None).await
    }

    async fn begin(
        recipe: &Recipe,
        observer: Option<Arc<dyn Observer>>,
        clock: &CollectorClock,
        surroundings: Surroundings,
        forks: Option<Forks>,
    ) -> anyhow::Result<Self> {
        let Recipe { options, controllers: settings, workloads } = recipe;
        let surroundings =
            Surroundings { clock: clock.clock(), restraints: clock.restraints(), ..surroundings };
        let living = workloads.enabled(&settings.controllers)?;
        let enabled = settings.enabled_with(&ALSO_ON)?;
        let control =
            Control::new(clock.clone(), surroundings.activity.clone(), surroundings.journal.clone());
        let sinks = control.page().sinks(Arc::clone(&surroundings.sinks));
        let surroundings = Surroundings { sinks, ..surroundings };
        let components: &[_] = if living.is_empty() { &COMPONENTS[..1] } else { &COMPONENTS };
        let unattended: &[_] = if living.is_empty() { &[] } else { &UNATTENDED };
        let advisor = RetentionAdvisor {
            expires: enabled.contains(&Controller::Expiry),
            tools: settings.foreign_expiry.clone(),
            simulates: living.contains(&Workload::Kubelet),
        };
        let advisor: Option<Arc<dyn gc_registry::advisor::Advisor>> = Some(Arc::new(advisor));
        let mut options = ServerOptions {
            creates_accounts: living.contains(&Workload::ServiceAccount),
            counts_quotas: true,
            aggregates_roles: true,
            checks_policy_types: true,
            components,
            unattended,
            advisor,
            deletion_observer: Some(control.deletions()),
            clock: clock.of_objects(),
            ..options.clone()
        };
        if options.is_in_memory() {
            options.prepared.get_or_insert_default();
        }
        let server = apiserver::serve(&options, Some(Arc::new(control.clone()))).await?;
        control.serve(server.registry());
        control.page().serve(&server.in_process(ADMINISTRATOR));
        let enabled = Enabled {
            collectors: enabled,
            settings: settings.clone(),
            workloads: living,
            workload_settings: workloads.settings(server.credentials().ca_pem),
        };
        let controllers = Controllers::bind(&server, enabled, observer, surroundings).await?;
        let baseline = options.prepared.as_ref().map(Baseline::of).transpose();
        let cluster = Arc::new(Cluster {
            controllers,
            baseline: baseline.context("cannot read what is stored")?,
            clock: clock.clone(),
            forks,
            resetting: Mutex::default(),
        });
        cluster.controllers.start().await;
        control.attach(&cluster);
        Ok(Self { server, control, cluster })
    }

    /// Stops the controllers and the forks, then the server.
    pub(crate) async fn shutdown(self) {
        self.cluster.stop().await;
        self.server.shutdown().await;
    }
}

/// Runs until SIGINT or SIGTERM, or until the command that was given ends. Answers the exit code.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.detach {
        return detach::start();
    }
    if options.command.is_empty() && std::env::args_os().next_back().is_some_and(|last| last == "--") {
        // Most likely a variable that should have held the command; a server would run until it is stopped.
        return Err(UsageError::new("no command after --; expected one, as in: kubegc up -- pytest").into());
    }
    let mut log = options.log.clone();
    if !options.command.is_empty() {
        // What the collectors do is not what its output is read for.
        log.log_level.get_or_insert_with(|| "warn".to_owned());
    }
    logging::start(&log)?;
    if options.detached {
        detach::leave_terminal()?;
    }
    apiserver::raise_file_limit();
    let mut options = options.clone();
    if !options.command.is_empty() {
        options.server.for_a_command();
    }
    let done = crate::tasks::block_on(serve(&options));
    // Calls that still wait for a disk or a network must not delay the exit.
    done
}

async fn serve(options: &Options) -> anyhow::Result<ExitCode> {
    let mut ended = apiserver::stop_signals()?;
    apiserver::check_kubeconfig(&options.server)?;
    let mut catalogue = Catalogue::default();
    let clock = CollectorClock::default();
    let metrics = Some(CollectorMetrics::register(&mut catalogue));
    let stuck = StuckMetrics::register(&mut catalogue);
    let (journal, in_memory) = journal(&options.server)?;
    let journal = Arc::new(journal);
    let events = options.controllers.deletion_events.then(DeletionEvents::default);
    let surroundings = Surroundings {
        metrics,
        sinks: run::sinks(Arc::clone(&journal), events.clone()),
        journal: Some(Arc::clone(&journal)),
        ..Surroundings::default()
    };
    let up = Up::start(&options.server, &options.controllers, &options.workloads, None, &clock, surroundings)
        .await?;
    // Where the data directory is in use, the start has failed, and says so alone.
    in_memory.iter().for_each(InMemoryOnly::log);
    let way = up.server.in_process("kubegc");
    let client = ApiClient::in_process(move |request| way.call(request));
    let events = events.map(|events| tokio::spawn(events.write(client.clone()).boxed()));
    let orders = tokio::spawn(up.control.page().follow_orders().boxed());
    let is_shown = options.bind_address.is_some();
    let stuck =
        is_shown.then(|| tokio::spawn(stuck.follow(Watched { client, resident: None }, || true).boxed()));
    let done = attend(options, &up, catalogue, &mut ended).await;
    orders.abort();
    if let Some(stuck) = stuck {
        stuck.abort();
    }
    if let Some(events) = events {
        events.abort();
    }
    up.shutdown().await;
    journal.close();
    done
}

/// The journal of what the collectors do: in the data directory, if there is one, and in memory.
fn journal(options: &ServerOptions) -> anyhow::Result<(Journal, Option<InMemoryOnly>)> {
    // Something else at that place is the server's to report.
    let folder = options.data_dir()?.filter(|folder| folder.is_dir() || !folder.exists());
    let Some(folder) = folder else { return Ok((Journal::open(None, None)?, None)) };
    let file = folder.join(JOURNAL);
    let options = JournalOptions { file, largest_bytes: JOURNAL_BYTES, older_files: OLDER_JOURNALS };
    Journal::open_default(options, None)
}

/// Serves until the end of the process or of the command.
async fn attend(
    options: &Options,
    up: &Up,
    catalogue: Catalogue,
    ended: &mut mpsc::Receiver<()>,
) -> anyhow::Result<ExitCode> {
    // A temporary directory of its own is removed when this is dropped.
    let kubeconfig = apiserver::write_kubeconfig(&options.server, &up.server)?;
    if let Some(address) = options.bind_address {
        let ready = Arc::new(AtomicBool::new(true));
        let shown = Shown { metrics: Arc::new(catalogue.into()), ready, pages: None };
        let way = up.server.in_process("kubegc");
        let client = ApiClient::in_process(move |request| way.call(request));
        let protection = Protection::of(address, &options.tls, Some(&client))?;
        let address = operations::serve(address, shown, Arc::new(protection)).await?;
        tracing::info!(%address, "metrics of the collectors");
    }
    if !options.command.is_empty() {
        return command::run(&options.command, kubeconfig.path(), ended).await;
    }
    let added = options.server.write_kubeconfig.as_ref().map(|_| up.server.credentials().server);
    let _mark = options.detached.then(|| detach::Mark::set(kubeconfig.path(), added)).transpose()?;
    let administrator = UserInfo {
        name: ADMINISTRATOR.to_owned(),
        groups: vec!["system:masters".to_owned()],
        ..UserInfo::default()
    };
    if let Some(link) = up.control.page().link(administrator) {
        writeln!(std::io::stdout(), "Page (the link works once and expires in ten minutes): {link}")?;
    }
    apiserver::print_ready(&up.server, kubeconfig.path())?;
    ended.recv().await;
    Ok(ExitCode::SUCCESS)
}
