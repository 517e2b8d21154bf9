//! The settings of `kubegc run`: flags override the configuration file, which overrides the defaults.

mod shard;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, Args};
use gc_collectors::permissions::Controller;
use gc_inspect::garbage_metrics::SHORTEST_INTERVAL;
use gc_kube::CollectorOptions;
use gc_kube::breaker::BreakerOptions;
use gc_kube::concurrency::ConcurrencyOptions;
use gc_kube::election::Timing;
use gc_ownership::Shard;
use gc_process::UsageError;
use gc_process::access::{self, ContextFlags};
use gc_process::collectors::ControllerOptions;
use gc_process::journal::{InMemoryOnly, Journal, JournalOptions};
use gc_process::lease::election::LeaseOptions;
use gc_process::lease::{LeaseFlags, LeaseName};
use gc_process::logging::LogOptions;
use gc_process::operations::{self, TlsFlags};
use gc_types::GoDuration;

use super::config;
use super::standby::Standby;

/// Upstream's default of `--kube-api-burst`.
const DEFAULT_BURST: u32 = 30;
/// The collector that runs by default; kube-controller-manager keeps running the others until they are enabled here.
pub(crate) const DEFAULT_CONTROLLERS: &str = "garbage-collector-controller";

/// Headings in the help text.
const HEADING_MODE: &str = "Dry run and observation";
const HEADING_COLLECTORS: &str = gc_process::collectors::HEADING;
const HEADING_LIMITS: &str = "Rate limits";
const HEADING_SAFETY: &str = "Circuit breaker and kept resources";
const HEADING_LEADER: &str = gc_process::lease::HEADING;
const HEADING_JOURNAL: &str = "Journal";
const HEADING_PAGE: &str = "Page";

/// Options of `kubegc run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc run --observe                        compare decisions with kube-controller-manager and change nothing
  kubegc run                                  collect by owner references
  kubegc run '--controllers=*'                run every collector that is on by default
See docs/operating.md for how to switch over from kube-controller-manager.")]
pub(crate) struct Options {
    /// Configuration file (KubeControllerManagerConfiguration); flags override it, SIGHUP reloads it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Kubeconfig file [default: $KUBECONFIG, the service account of this pod, or ~/.kube/config]
    #[arg(long, help_heading = access::HEADING, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Report what would be done and change nothing; takes no Lease
    #[arg(long, help_heading = HEADING_MODE)]
    dry_run: bool,
    /// Change nothing and compare decisions with an active kube-controller-manager; takes no Lease
    #[arg(long, help_heading = HEADING_MODE, conflicts_with = "dry_run")]
    observe: bool,
    /// Observe for this long after the installation, then act
    #[arg(long, help_heading = HEADING_MODE, value_name = "DURATION", conflicts_with_all = ["dry_run", "observe"])]
    observe_for: Option<String>,
    /// Count a prediction that has not come true within this time as a disagreement
    #[arg(long, help_heading = HEADING_MODE, value_name = "DURATION", default_value = "10m")]
    observe_window: String,
    /// Act only on the objects of this shard, numbered from 0: namespaces are divided by a hash of their names
    #[arg(long, help_heading = HEADING_COLLECTORS, value_name = "INDEX/COUNT")]
    shard: Option<Shard>,
    /// Collect by owner references; must match the API server's flag of the same name
    #[arg(long, help_heading = HEADING_COLLECTORS, value_name = "BOOL", default_value_t = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_garbage_collector: bool,
    /// Give up and retry a request without an answer after this time
    #[arg(long, help_heading = HEADING_LIMITS, value_name = "DURATION", default_value = "30s")]
    request_timeout: String,
    /// Maximum number of requests in flight [default: adapts to the server's latency, up to 128]
    #[arg(long, help_heading = HEADING_LIMITS, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrent_gc_syncs: Option<u16>,
    /// Never delete objects of this resource, such as secrets or widgets.example.com (repeatable)
    #[arg(long, help_heading = HEADING_SAFETY, value_name = "RESOURCE")]
    keep_resource: Vec<String>,
    /// Maximum number of requests per second [default: no fixed rate]
    #[arg(long, help_heading = HEADING_LIMITS, value_name = "RATE")]
    kube_api_qps: Option<f64>,
    /// Number of requests that may exceed --kube-api-qps in a burst
    #[arg(long, help_heading = HEADING_LIMITS, value_name = "N", default_value_t = DEFAULT_BURST)]
    kube_api_burst: u32,
    /// Stop collecting a resource after this many deletions within the window; 0 means no limit
    #[arg(long, help_heading = HEADING_SAFETY, value_name = "N", default_value_t = 300_000)]
    breaker_max_deletions: u64,
    /// Stop collecting a resource after deleting this share of it because owners were found absent without an observed
    /// deletion; 0 means no limit
    #[arg(long, help_heading = HEADING_SAFETY, value_name = "SHARE", default_value_t = 0.5)]
    breaker_max_share: f64,
    /// Minimum number of deletions before --breaker-max-share can trip; 0 is the same as 1
    #[arg(long, help_heading = HEADING_SAFETY, value_name = "N", default_value_t = 1_000)]
    breaker_share_floor: u64,
    /// Window over which the circuit breaker counts deletions
    #[arg(long, help_heading = HEADING_SAFETY, value_name = "DURATION", default_value = "10m")]
    breaker_window: String,
    /// Address for metrics, health, journal and debugging pages; on an address other than loopback they need TLS and a token
    #[arg(long, value_name = "ADDRESS:PORT", default_value = gc_process::local::DEFAULT_PAGES)]
    bind_address: SocketAddr,
    /// Look for what nothing uses, as `kubegc garbage` does, at least this long after the last time, and show how much there is as metrics; reads every object [default: never]
    #[arg(long, help_heading = operations::PAGES_HEADING, value_name = "DURATION")]
    garbage_metrics_interval: Option<String>,
    /// Address for the page (/ui) and its API; always TLS, for users with a bearer token of the cluster [default: no page]
    #[arg(long, help_heading = HEADING_PAGE, value_name = "ADDRESS:PORT")]
    ui_bind_address: Option<SocketAddr>,
    /// Let users of the page delete objects, release finalizers and pause the collectors, as far as their permissions allow
    #[arg(long, help_heading = HEADING_PAGE)]
    ui_orders: bool,
    /// Act only while holding a Lease, so that other replicas can stand by
    #[arg(long, help_heading = HEADING_LEADER, value_name = "BOOL", default_value_t = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    leader_elect: bool,
    /// State that this replica keeps while another one leads
    #[arg(long, help_heading = HEADING_LEADER, value_enum, default_value = "warm")]
    standby: Standby,
    /// Longest time that standbys wait after the leader's last renewal, on a slow server
    #[arg(long, help_heading = HEADING_LEADER, value_name = "DURATION", default_value = "15s")]
    leader_elect_lease_duration: String,
    /// Shortest such time, on a server that answers quickly; the renew deadline and the retry period shrink with it. The value of
    /// --leader-elect-lease-duration turns this off
    #[arg(long, help_heading = HEADING_LEADER, value_name = "DURATION", default_value = "3s")]
    leader_elect_shortest_lease_duration: String,
    /// Time that a leader acts without a renewal before it exits
    #[arg(long, help_heading = HEADING_LEADER, value_name = "DURATION", default_value = "10s")]
    leader_elect_renew_deadline: String,
    /// Time between attempts to acquire or renew the Lease
    #[arg(long, help_heading = HEADING_LEADER, value_name = "DURATION", default_value = "2s")]
    leader_elect_retry_period: String,
    #[command(flatten)]
    lease: LeaseFlags,
    /// Append every request with its reason and outcome to this file, as JSON lines; `none` keeps only the newest entries,
    /// in memory [default: run-journal.jsonl in the user's data directory]
    #[arg(long, help_heading = HEADING_JOURNAL, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Size at which the journal is rotated, in MiB
    #[arg(long, help_heading = HEADING_JOURNAL, value_name = "MIB", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..))]
    journal_max_size: u32,
    /// Number of rotated journals to keep
    #[arg(long, help_heading = HEADING_JOURNAL, value_name = "N", default_value_t = 2)]
    journal_max_files: u32,
    /// Send a span for each verdict and its requests to this receiver of OpenTelemetry (OTLP over HTTP) [default: no traces]
    #[arg(long, help_heading = HEADING_JOURNAL, value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,
    #[command(flatten)]
    pub(super) tls: TlsFlags,
    #[command(flatten)]
    controllers: ControllerOptions,
    #[command(flatten)]
    pub(super) log: LogOptions,
    #[command(flatten)]
    pub(super) cluster: ContextFlags,
}

/// Flags that were given explicitly, rather than left at their defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExplicitFlags(BTreeSet<String>);

impl ExplicitFlags {
    /// Reads the explicit flags from the matches of the subcommand.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        use clap::parser::ValueSource::{CommandLine, EnvVariable};
        let is_given = |id: &str| matches!(matches.value_source(id), Some(CommandLine | EnvVariable));
        Self(matches.ids().map(clap::Id::as_str).filter(|id| is_given(id)).map(str::to_owned).collect())
    }

    /// Returns the flag if it was given, else the file's value if it has one, else the flag's default.
    fn pick<T>(&self, id: &str, flag: T, file: Option<T>) -> T {
        if self.0.contains(id) { flag } else { file.unwrap_or(flag) }
    }
}

/// Treatment of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Performs them.
    Act,
    /// Only reports them.
    DryRun,
    /// Compares them with the actions of another collector.
    Observe,
    /// Compares them for this time, then performs them.
    ObserveFor(Duration),
}

impl Mode {
    /// Reports whether the collectors never write anything.
    pub(super) fn reads_only(self) -> bool {
        matches!(self, Self::DryRun | Self::Observe)
    }
}

/// All settings of `run`, validated.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) mode: Mode,
    pub(super) observe_window: Duration,
    pub(super) bind_address: SocketAddr,
    pub(super) ui: Option<Ui>,
    pub(super) shard: Shard,
    pub(super) controllers: Vec<Controller>,
    pub(super) retention: ControllerOptions,
    pub(super) leader_elect: bool,
    pub(super) lease: LeaseOptions,
    standby: Standby,
    pub(super) concurrency: ConcurrencyOptions,
    pub(super) ignored_resources: Vec<(String, String)>,
    pub(super) kept_resources: BTreeSet<Arc<str>>,
    pub(super) breaker: BreakerOptions,
    pub(super) journal: JournalPlace,
    /// Interval at which garbage is counted, if that is enabled.
    pub(super) garbage_interval: Option<Duration>,
    /// Notices to log once at startup.
    pub(super) notices: Vec<String>,
}

/// Settings of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ui {
    pub(super) bind_address: SocketAddr,
    /// True if the page accepts orders.
    pub(super) takes_orders: bool,
}

/// Minimum of `--request-timeout`; no server answers reliably within less.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);

impl Options {
    /// Returns the time after which the client gives up a request.
    pub(super) fn request_timeout(&self) -> Result<Duration, UsageError> {
        let timeout = duration("--request-timeout", &self.request_timeout)?;
        if timeout < SHORTEST_TIMEOUT {
            return Err(UsageError::new(format!("--request-timeout must be at least {SHORTEST_TIMEOUT:?}")));
        }
        Ok(timeout)
    }
}

fn duration(flag: &str, text: &str) -> Result<Duration, UsageError> {
    match text.parse::<GoDuration>() {
        Ok(duration) if duration >= GoDuration::ZERO => Ok(duration.to_std()),
        Ok(_) => Err(UsageError::new(format!("{flag}: {text} is negative"))),
        Err(error) => Err(UsageError::new(format!("{flag}: {error}"))),
    }
}

/// Parses the interval at which garbage is counted, which may be in days.
fn garbage_interval(text: &str) -> Result<Duration, UsageError> {
    let refused = |why: String| UsageError::new(format!("--garbage-metrics-interval: {why}"));
    let interval = GoDuration::parse_with_days(text).map_err(|error| refused(error.to_string()))?;
    if interval < GoDuration::ZERO || interval.to_std() < SHORTEST_INTERVAL {
        return Err(refused(format!("{text} is shorter than {} s", SHORTEST_INTERVAL.as_secs())));
    }
    Ok(interval.to_std())
}

impl Settings {
    /// Combines the flags and the file.
    pub(super) fn resolve(options: &Options, given: &ExplicitFlags) -> Result<Self, UsageError> {
        let file = options.config.as_deref().map(config::read).transpose()?.unwrap_or_default();
        let ours = &file.kubegc;
        let (controllers, retention) = controllers(options, given, &file)?;
        let mut notices = Vec::new();
        if !file.others.is_empty() {
            notices.push(format!("sections of other controllers are ignored: {}", file.others.join(", ")));
        }
        let kept = given.pick("keep_resource", options.keep_resource.clone(), ours.kept_resources.clone());
        let settings = Self {
            kubeconfig: given.pick(
                "kubeconfig",
                options.kubeconfig.clone(),
                file.generic
                    .client_connection
                    .kubeconfig
                    .clone()
                    .filter(|path| !path.as_os_str().is_empty())
                    .map(Some),
            ),
            mode: mode(options, &file)?,
            observe_window: duration("--observe-window", &options.observe_window)?,
            bind_address: given.pick("bind_address", options.bind_address, ours.bind_address),
            ui: ui(options, &ours.ui)?,
            shard: options.shard.or(ours.shard).unwrap_or_default(),
            controllers,
            retention,
            leader_elect: given.pick(
                "leader_elect",
                options.leader_elect,
                file.generic.leader_election.leader_elect,
            ),
            lease: lease(options, given, &file.generic.leader_election)?,
            standby: options.standby,
            concurrency: concurrency(options, given, &file)?,
            ignored_resources: ignored(&file),
            kept_resources: kept.iter().map(|resource| resource.to_lowercase().into()).collect(),
            breaker: breaker(options, given, &ours.breaker)?,
            journal: journal(options, given, &ours.journal),
            garbage_interval: options
                .garbage_metrics_interval
                .as_deref()
                .map(garbage_interval)
                .transpose()?,
            notices,
        };
        shard::restricted(settings)
    }

    /// Returns the election of this shard; orders are on the Lease of the settings.
    pub(super) fn election(&self) -> LeaseOptions {
        LeaseOptions { lease: self.lease.lease.of_shard(self.shard), ..self.lease.clone() }
    }

    /// Reports whether the Lease decides who acts.
    pub(super) fn elects(&self) -> bool {
        self.leader_elect && !self.mode.reads_only()
    }

    /// Reports whether this replica lists nothing before it leads.
    pub(super) fn waits_cold(&self) -> bool {
        self.elects() && self.standby == Standby::Cold
    }

    /// Returns the collector's options.
    pub(super) fn collector(&self) -> CollectorOptions {
        CollectorOptions {
            dry_run: self.mode == Mode::DryRun,
            concurrency: self.concurrency,
            ignored_resources: self.ignored_resources.clone(),
            ..CollectorOptions::default()
        }
    }

    pub(super) fn collects_by_owners(&self) -> bool {
        self.controllers.contains(&Controller::GarbageCollector)
    }

    /// Returns the collectors beyond owner references.
    pub(super) fn other_controllers(&self) -> Vec<Controller> {
        let others = self.controllers.iter().copied();
        others.filter(|controller| *controller != Controller::GarbageCollector).collect()
    }

    /// Returns the settings that differ: name, value here, value there, and whether it can change at run time.
    pub(super) fn differences(&self, other: &Self) -> Vec<Difference> {
        let (ours, theirs) = (self.shown(), other.shown());
        let pairs = ours.into_iter().zip(theirs).filter(|(from, to)| from.1 != to.1);
        pairs.map(|((name, from, is_live), (_, to, _))| Difference { name, from, to, is_live }).collect()
    }

    fn shown(&self) -> Vec<(&'static str, String, bool)> {
        let list = |items: &BTreeSet<Arc<str>>| items.iter().cloned().collect::<Vec<_>>().join(",");
        let breaker = &self.breaker;
        vec![
            ("concurrency (concurrent syncs, qps, burst)", format!("{:?}", self.concurrency), true),
            ("breaker window", format!("{:?}", breaker.window), true),
            ("breaker deletions", format!("{:?}", breaker.largest_number), true),
            ("breaker share", format!("{:?}", breaker.largest_share), true),
            ("breaker share floor", breaker.share_floor.to_string(), true),
            ("kept resources", list(&self.kept_resources), true),
            ("kubeconfig", format!("{:?}", self.kubeconfig), false),
            ("mode", format!("{:?}", self.mode), false),
            ("observe window", format!("{:?}", self.observe_window), false),
            ("bind address", self.bind_address.to_string(), false),
            ("garbage metrics interval", format!("{:?}", self.garbage_interval), false),
            ("page", format!("{:?}", self.ui), false),
            ("shard", self.shard.to_string(), false),
            ("controllers", format!("{:?}", self.controllers), false),
            ("settings of controllers", format!("{:?}", self.retention), false),
            ("leader election", format!("{} {:?}", self.leader_elect, self.lease), false),
            ("standby", format!("{:?}", self.standby), false),
            ("ignored resources", format!("{:?}", self.ignored_resources), false),
            ("journal", format!("{:?}", self.journal), false),
        ]
    }
}

/// One setting that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) name: &'static str,
    pub(super) from: String,
    pub(super) to: String,
    /// True if it takes effect without a restart.
    pub(super) is_live: bool,
}

fn mode(options: &Options, file: &config::File) -> Result<Mode, UsageError> {
    let observe_for = match &options.observe_for {
        Some(text) => Some(duration("--observe-for", text)?),
        None => file.kubegc.observe_for.map(|duration| duration.0),
    };
    Ok(match observe_for {
        _ if options.dry_run => Mode::DryRun,
        _ if options.observe => Mode::Observe,
        Some(period) if !period.is_zero() => Mode::ObserveFor(period),
        _ => Mode::Act,
    })
}

fn ui(options: &Options, file: &config::Ui) -> Result<Option<Ui>, UsageError> {
    let takes_orders = options.ui_orders || file.orders.unwrap_or_default();
    let address = options.ui_bind_address.or(file.bind_address);
    if takes_orders && address.is_none() {
        return Err(UsageError::new("--ui-orders needs --ui-bind-address: without it there is no page"));
    }
    Ok(address.map(|bind_address| Ui { bind_address, takes_orders }))
}

fn controllers(
    options: &Options,
    given: &ExplicitFlags,
    file: &config::File,
) -> Result<(Vec<Controller>, ControllerOptions), UsageError> {
    let mut retention = options.controllers.clone();
    let listed = given.pick("controllers", retention.controllers, file.generic.controllers.clone());
    retention.controllers = listed;
    retention.terminated_pod_gc_threshold = given.pick(
        "terminated_pod_gc_threshold",
        retention.terminated_pod_gc_threshold,
        file.pod_gc.terminated_pod_threshold,
    );
    retention.ownerless_node_leases = given.pick(
        "ownerless_node_leases",
        retention.ownerless_node_leases,
        file.kubegc.ownerless_node_leases,
    );
    retention.deletion_events =
        given.pick("deletion_events", retention.deletion_events, file.kubegc.deletion_events);
    retention.claim_unused_condition = given.pick(
        "claim_unused_condition",
        retention.claim_unused_condition,
        file.kubegc.claim_unused_condition,
    );
    let mut enabled = retention.enabled()?;
    let collects = given.pick(
        "enable_garbage_collector",
        options.enable_garbage_collector,
        file.garbage_collector.enable_garbage_collector,
    );
    if !collects {
        enabled.retain(|controller| *controller != Controller::GarbageCollector);
    }
    if enabled.is_empty() {
        return Err(UsageError::new(
            "no collector is enabled: see --controllers and --enable-garbage-collector",
        ));
    }
    Ok((enabled, retention))
}

fn lease(
    options: &Options,
    given: &ExplicitFlags,
    file: &config::LeaderElection,
) -> Result<LeaseOptions, UsageError> {
    let pick = |id: &str, flag: &str, text: &str, value: Option<config::Duration>| {
        Ok::<_, UsageError>(given.pick(id, duration(flag, text)?, value.map(|duration| duration.0)))
    };
    let flags = options.lease.name();
    let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let lease = LeaseOptions {
        lease: LeaseName {
            namespace: given.pick(
                "leader_elect_resource_namespace",
                flags.namespace,
                named(&file.resource_namespace),
            ),
            name: given.pick("leader_elect_resource_name", flags.name, named(&file.resource_name)),
        },
        longest: Timing {
            lease_duration: pick(
                "leader_elect_lease_duration",
                "--leader-elect-lease-duration",
                &options.leader_elect_lease_duration,
                file.lease_duration,
            )?,
            renew_deadline: pick(
                "leader_elect_renew_deadline",
                "--leader-elect-renew-deadline",
                &options.leader_elect_renew_deadline,
                file.renew_deadline,
            )?,
            retry_period: pick(
                "leader_elect_retry_period",
                "--leader-elect-retry-period",
                &options.leader_elect_retry_period,
                file.retry_period,
            )?,
        },
        shortest: duration(
            "--leader-elect-shortest-lease-duration",
            &options.leader_elect_shortest_lease_duration,
        )?,
    };
    lease.check().map_err(UsageError::new)?;
    Ok(lease)
}

fn concurrency(
    options: &Options,
    given: &ExplicitFlags,
    file: &config::File,
) -> Result<ConcurrencyOptions, UsageError> {
    let connection = &file.generic.client_connection;
    if options.kube_api_qps.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return Err(UsageError::new("--kube-api-qps must be more than 0; leave it out for no fixed rate"));
    }
    // Upstream's file always has a rate, in which 0 means no limit.
    let from_file = connection.qps.filter(|rate| rate.is_finite() && *rate > 0.0);
    let mut concurrency = ConcurrencyOptions {
        queries_per_second: options.kube_api_qps.or(from_file),
        burst: given.pick(
            "kube_api_burst",
            options.kube_api_burst,
            connection.burst.filter(|burst| *burst > 0),
        ),
        ..ConcurrencyOptions::default()
    };
    let syncs =
        options.concurrent_gc_syncs.or(file.garbage_collector.concurrent_syncs.filter(|syncs| *syncs > 0));
    if let Some(largest) = syncs.map(usize::from) {
        concurrency.largest = largest;
        concurrency.initial = concurrency.initial.min(largest);
    }
    Ok(concurrency)
}

/// Returns the ignored resources. They always include upstream's two defaults: Events are never collected, whatever the file says.
fn ignored(file: &config::File) -> Vec<(String, String)> {
    let mut ignored = CollectorOptions::default().ignored_resources;
    for entry in file.garbage_collector.ignored_resources.iter().flatten() {
        let pair = (entry.group.clone(), entry.resource.to_lowercase());
        if !ignored.contains(&pair) {
            ignored.push(pair);
        }
    }
    ignored
}

fn breaker(
    options: &Options,
    given: &ExplicitFlags,
    file: &config::Breaker,
) -> Result<BreakerOptions, UsageError> {
    let number = given.pick("breaker_max_deletions", options.breaker_max_deletions, file.max_deletions);
    let share = given.pick("breaker_max_share", options.breaker_max_share, file.max_share);
    if !(0.0..=1.0).contains(&share) {
        return Err(UsageError::new(format!("--breaker-max-share {share} must be between 0 and 1")));
    }
    let window = duration("--breaker-window", &options.breaker_window)?;
    let window = given.pick("breaker_window", window, file.window.map(|duration| duration.0));
    if window < Duration::from_secs(1) {
        return Err(UsageError::new("--breaker-window must be at least 1s"));
    }
    Ok(BreakerOptions {
        window,
        largest_number: (number > 0).then_some(number),
        largest_share: (share > 0.0).then_some(share),
        share_floor: given.pick("breaker_share_floor", options.breaker_share_floor, file.share_floor),
    })
}

/// Location of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JournalPlace {
    /// In memory, newest entries only.
    Memory,
    /// In this file, with the newest entries also in memory.
    File(JournalOptions),
    /// In this file if it can be written; no file was named.
    Default(JournalOptions),
}

impl JournalPlace {
    /// Opens the journal of the collectors on this server.
    pub(super) fn open(self, server: &str) -> anyhow::Result<Journal> {
        let server = Some(server.to_owned());
        match self {
            Self::Memory => Journal::open(None, server),
            Self::File(options) => Journal::open(Some(options), server),
            Self::Default(options) => {
                let (journal, in_memory) = Journal::open_default(options, server)?;
                in_memory.iter().for_each(InMemoryOnly::log);
                Ok(journal)
            }
        }
    }
}

fn journal(options: &Options, given: &ExplicitFlags, file: &config::Journal) -> JournalPlace {
    let size =
        given.pick("journal_max_size", options.journal_max_size, file.max_size.filter(|size| *size > 0));
    let largest_bytes = u64::from(size) << 20;
    let older_files = given.pick("journal_max_files", options.journal_max_files, file.max_files);
    match options.journal.clone().or_else(|| file.file.clone()) {
        Some(path) if path.as_os_str() == "none" => JournalPlace::Memory,
        Some(file) => JournalPlace::File(JournalOptions { file, largest_bytes, older_files }),
        None => match gc_process::local::default_journal() {
            Some(file) => JournalPlace::Default(JournalOptions { file, largest_bytes, older_files }),
            None => JournalPlace::Memory,
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use std::path::Path;

    use super::*;
    use clap::{Command, FromArgMatches as _};

    const HEADER: &str = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\nkind: KubeControllerManagerConfiguration\n";

    pub(super) fn settings(arguments: &[&str], file: Option<&str>) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut all: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        if let Some(text) = file {
            let path = folder.path().join("config.yaml");
            std::fs::write(&path, format!("{HEADER}{text}")).unwrap();
            all.push(format!("--config={}", path.display()));
        }
        let command = Options::augment_args(Command::new("run").no_binary_name(true));
        let command = command.mut_arg("controllers", |argument| argument.default_value(DEFAULT_CONTROLLERS));
        let matches = command.try_get_matches_from(all).map_err(|error| error.to_string())?;
        let options = Options::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        Settings::resolve(&options, &ExplicitFlags::of(&matches)).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        const FILE: &str = "generic:\n  controllers: [garbagecollector]\n  clientConnection: {qps: 50, burst: 100, kubeconfig: /k}\n  \
             leaderElection: {leaderElect: false, leaseDuration: 60s, resourceName: theirs}\n\
             garbageCollectorController: {concurrentGCSyncs: 7, gcIgnoredResources: [{group: a.b, resource: Things}]}\n\
             podGCController: {terminatedPodGCThreshold: 3}\n\
             kubegc:\n  keptResources: [Secrets]\n  observeFor: 24h\n  bindAddress: 0.0.0.0:1\n  \
             ui: {bindAddress: '0.0.0.0:2', orders: true}\n  \
             breaker: {maxDeletions: 5, maxShare: 0, window: 1m}\n  journal: {file: /j, maxSizeMiB: 2, maxFiles: 9}\n";
        let default = settings(&[], None).unwrap();
        assert_eq!(
            (
                default.mode,
                default.leader_elect,
                default.controllers.as_slice(),
                default.concurrency.queries_per_second
            ),
            (Mode::Act, true, &[Controller::GarbageCollector][..], None)
        );
        assert_eq!((default.breaker, default.kept_resources.len()), (BreakerOptions::default(), 0));
        assert_eq!(default.ignored_resources, CollectorOptions::default().ignored_resources);

        let file = settings(&[], Some(FILE)).unwrap();
        assert_eq!(default.ui, None);
        assert_eq!(file.ui, Some(Ui { bind_address: "0.0.0.0:2".parse().unwrap(), takes_orders: true }));
        assert_eq!(file.kubeconfig, Some("/k".into()));
        assert_eq!(file.mode, Mode::ObserveFor(Duration::from_hours(24)));
        assert_eq!((file.leader_elect, &*file.lease.lease.name), (false, "theirs"));
        assert_eq!(file.lease.longest.lease_duration, Duration::from_mins(1));
        assert_eq!(file.controllers, [Controller::GarbageCollector]);
        assert_eq!(file.retention.terminated_pod_gc_threshold, 3);
        assert_eq!(
            (file.concurrency.largest, file.concurrency.queries_per_second, file.concurrency.burst),
            (7, Some(50.0), 100)
        );
        assert!(file.ignored_resources.contains(&("a.b".into(), "things".into())));
        assert_eq!(file.kept_resources, BTreeSet::from(["secrets".into()]));
        let limits = (file.breaker.largest_number, file.breaker.largest_share, file.breaker.window);
        assert_eq!(limits, (Some(5), None, Duration::from_mins(1)));
        let JournalPlace::File(journal) = file.journal else { panic!("{:?}", file.journal) };
        assert_eq!((journal.file, journal.largest_bytes, journal.older_files), ("/j".into(), 2 << 20, 9));

        let flags = settings(
            &[
                "--kubeconfig=/f",
                "--leader-elect=true",
                "--leader-elect-resource-name=mine",
                "--controllers=podgc",
                "--concurrent-gc-syncs=9",
                "--kube-api-burst=30",
                "--keep-resource=pods",
                "--breaker-max-deletions=300000",
                "--breaker-max-share=0.5",
                "--journal=/x",
                "--bind-address=127.0.0.1:10357",
                "--ui-bind-address=127.0.0.1:3",
                "--observe",
            ],
            Some(FILE),
        )
        .unwrap();
        assert_eq!((flags.kubeconfig, flags.mode), (Some("/f".into()), Mode::Observe));
        assert_eq!((flags.leader_elect, &*flags.lease.lease.name), (true, "mine"));
        assert_eq!(flags.controllers, [Controller::PodGarbageCollector]);
        // A flag that is given with its default value still overrides the file.
        assert_eq!((flags.concurrency.largest, flags.concurrency.burst), (9, 30));
        assert_eq!(flags.kept_resources, BTreeSet::from(["pods".into()]));
        assert_eq!((flags.breaker.largest_number, flags.breaker.largest_share), (Some(300_000), Some(0.5)));
        assert_eq!(flags.bind_address.port(), 10_357);
        assert_eq!(flags.ui.map(|ui| ui.bind_address.port()), Some(3));
        assert!(matches!(flags.journal, JournalPlace::File(journal) if journal.file == Path::new("/x")));
        assert_eq!(settings(&["--journal=none"], None).unwrap().journal, JournalPlace::Memory);
    }

    #[test]
    fn the_example_of_the_documentation_is_accepted() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/run.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, example) = page.split_once(HEADER).expect("docs/reference/run.md has an example");
        let (example, _) = example.split_once("\n```").unwrap();
        let read = settings(&[], Some(example)).unwrap();
        assert_eq!(read.mode, Mode::ObserveFor(Duration::from_hours(72)));
        assert_eq!(read.bind_address.port(), 10_357);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (arguments, file, expected) in [
            (&["--kube-api-qps=0"][..], None, "--kube-api-qps must be more than 0"),
            (&["--kube-api-qps=NaN"], None, "--kube-api-qps must be more than 0"),
            (&["--breaker-max-share=1.5"], None, "--breaker-max-share 1.5 must be between 0 and 1"),
            (&["--breaker-window=0s"], None, "--breaker-window must be at least 1s"),
            (&["--breaker-window=soon"], None, "--breaker-window: "),
            (&["--observe-for=-1s"], None, "--observe-for: -1s is negative"),
            (&["--observe", "--dry-run"], None, "cannot be used with"),
            (&["--observe-for=1h", "--observe"], None, "cannot be used with"),
            (
                &["--controllers=garbagecollector", "--enable-garbage-collector=false"],
                None,
                "no collector is enabled",
            ),
            (&["--controllers=nothing"], None, "--controllers: "),
            (&["--leader-elect-renew-deadline=20s"], None, "must be longer than"),
            (&["--leader-elect-shortest-lease-duration=500ms"], None, "must be at least 1s"),
            (&["--concurrent-gc-syncs=0"], None, "--concurrent-gc-syncs"),
            (&["--ui-orders"], None, "--ui-orders needs --ui-bind-address"),
            (&["--shard=2/2"], None, "INDEX must be below COUNT, which is 2: shards are numbered from 0"),
            (&["--shard=two"], None, "expected INDEX/COUNT, such as 0/4"),
            (&[], Some("kubegc: {shard: 0/0}\n"), "COUNT must be 1 to 1024"),
            (
                &["--shard=1/2", "--controllers=podgc"],
                None,
                "--shard 1/2: shards other than 0 only collect by owner",
            ),
            (
                &["--controllers=garbagecollector"],
                Some("garbageCollectorController: {enableGarbageCollector: false}\n"),
                "no collector is enabled",
            ),
            (&[], Some("kubegc: {breaker: {maxShare: 2}}\n"), "--breaker-max-share 2 must be between"),
            (&[], Some("generic:\n  leaderElection: {renewDeadline: 20s}\n"), "must be longer than"),
            (&[], Some("kubegc:\n  brekaer: {}\n"), "config.yaml:4:3: kubegc: unknown field `brekaer`"),
            (&["--config=/nowhere/config.yaml"], None, "--config /nowhere/config.yaml: "),
        ] {
            let error = settings(arguments, file).unwrap_err();
            assert!(error.contains(expected), "{error:?} where {expected:?} was expected");
        }
        assert!(settings(&["--controllers=podgc", "--enable-garbage-collector=false"], None).is_ok());
    }

    #[test]
    fn a_reload_tells_what_takes_effect() {
        let before = settings(&[], Some("kubegc: {keptResources: [pods]}\n")).unwrap();
        assert_eq!(before.differences(&before), []);
        let after = settings(
            &[],
            Some("kubegc: {breaker: {maxDeletions: 5}, bindAddress: '127.0.0.1:1'}\ngeneric: {clientConnection: {qps: 5}}\n"),
        )
        .unwrap();
        let changed: Vec<_> = before
            .differences(&after)
            .into_iter()
            .map(|difference| (difference.name, difference.is_live))
            .collect();
        assert_eq!(
            changed,
            [
                ("concurrency (concurrent syncs, qps, burst)", true),
                ("breaker deletions", true),
                ("kept resources", true),
                ("bind address", false),
            ]
        );
    }
}
