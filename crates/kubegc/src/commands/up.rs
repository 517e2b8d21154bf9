//! `kubegc up`: the embedded API server and every collector of a cluster, in one process.

mod command;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use futures::FutureExt as _;
use gc_console::page;
use gc_embedded::apiserver::{self, ServerOptions};
use gc_embedded::clock::CollectorClock;
use gc_embedded::up::{ADMINISTRATOR, Up};
use gc_embedded::workloads::WorkloadOptions;
use gc_inspect::stuck_metrics::{StuckMetrics, WatchedCluster};
use gc_kube::ApiClient;
use gc_metrics::Catalogue;
use gc_process::collector_metrics::CollectorMetrics;
use gc_process::collectors::{ControllerOptions, Surroundings};
use gc_process::journal::{InMemoryOnly, Journal, JournalOptions, SERVER_JOURNAL};
use gc_process::lease::{LeaseFlags, control};
use gc_process::logging::{self, LogOptions};
use gc_process::operations::{self, OperationsPages, Protection, TlsFlags};
use gc_process::{UsageError, background as detach};
use gc_registry::api::UserInfo;
use tokio::sync::mpsc;

use super::run;
use crate::deletion_events::DeletionEvents;

/// Size at which the journal is rotated.
const JOURNAL_BYTES: u64 = 32 << 20;
/// Number of rotated journals that are kept.
const OLDER_JOURNALS: u32 = 2;

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
    metrics_bind_address: Option<SocketAddr>,
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
    /// without --data-dir, and uses a free port without --bind-address
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs until SIGINT or SIGTERM, or until the given command ends. Returns the exit code.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.detach {
        return detach::start();
    }
    if options.command.is_empty() && std::env::args_os().next_back().is_some_and(|last| last == "--") {
        // Most likely, a shell variable that should hold the command is empty. Without this error the server would run until
        // stopped.
        return Err(UsageError::new("no command after --; expected one, as in: kubegc up -- pytest").into());
    }
    let mut log = options.log.clone();
    if !options.command.is_empty() {
        // Users read the command's output, not the actions of the collectors.
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
    let mut mark = None;
    // Calls that still wait for a disk or a network do not delay the exit.
    let done = gc_process::tasks::block_on(serve(&options, &mut mark));
    if let Some(mark) = mark {
        mark.keep_until_exit();
    }
    done
}

async fn serve(options: &Options, mark: &mut Option<detach::Mark>) -> anyhow::Result<ExitCode> {
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
    let (server, controllers, workloads) = (&options.server, &options.controllers, &options.workloads);
    let up =
        Up::start(server, controllers, workloads, None, &clock, surroundings, Some(page::maker())).await?;
    // If the data directory is in use, the start has failed with that error, and needs no second message.
    in_memory.iter().for_each(InMemoryOnly::log);
    let way = up.server.in_process("kubegc");
    let client = ApiClient::in_process(move |request| way.call(request));
    let events = events.map(|events| tokio::spawn(events.write(client.clone()).boxed()));
    control::offer(&client, &LeaseFlags::default_name()).await?;
    let orders = up.control.console().map(|page| tokio::spawn(page.follow_orders()));
    let is_shown = options.metrics_bind_address.is_some();
    let stuck = is_shown.then(|| {
        tokio::spawn(
            stuck.follow(WatchedCluster { client, resident: None, clock: clock.clock() }, || true).boxed(),
        )
    });
    let done = attend(options, &up, catalogue, &mut ended, mark).await;
    if let Some(orders) = orders {
        orders.abort();
    }
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

/// Opens the journal of the collectors' actions: in the data directory, if there is one, and in memory.
fn journal(options: &ServerOptions) -> anyhow::Result<(Journal, Option<InMemoryOnly>)> {
    // If the path is not a directory, the server reports that.
    let folder = options.data_dir()?.filter(|folder| folder.is_dir() || !folder.exists());
    let Some(folder) = folder else { return Ok((Journal::open(None, None)?, None)) };
    let file = folder.join(SERVER_JOURNAL);
    let options = JournalOptions { file, largest_bytes: JOURNAL_BYTES, older_files: OLDER_JOURNALS };
    Journal::open_default(options, None)
}

/// Serves until the process is stopped or the command ends.
async fn attend(
    options: &Options,
    up: &Up,
    catalogue: Catalogue,
    ended: &mut mpsc::Receiver<()>,
    mark: &mut Option<detach::Mark>,
) -> anyhow::Result<ExitCode> {
    // Dropping the value removes a temporary directory.
    let kubeconfig = apiserver::write_kubeconfig(&options.server, &up.server)?;
    if let Some(address) = options.metrics_bind_address {
        let ready = Arc::new(AtomicBool::new(true));
        let shown = OperationsPages { metrics: Arc::new(catalogue.into()), ready, pages: None };
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
    *mark = options.detached.then(|| detach::Mark::set(kubeconfig.path(), added)).transpose()?;
    let administrator = UserInfo {
        name: ADMINISTRATOR.to_owned(),
        groups: vec!["system:masters".to_owned()],
        ..UserInfo::default()
    };
    if let Some(link) = up.control.console().and_then(|page| page.link(administrator)) {
        writeln!(std::io::stdout(), "Page (the link works once and expires in ten minutes): {link}")?;
    }
    apiserver::print_ready(&up.server, kubeconfig.path())?;
    ended.recv().await;
    Ok(ExitCode::SUCCESS)
}
