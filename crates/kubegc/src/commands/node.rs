//! `kubegc node`: image and container collection on this node, over CRI.

mod below;
mod config;
mod fleet;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod journal;
mod output;
mod pages;
mod places;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use futures::FutureExt as _;
use gc_collectors::pressure::{self, Amount, EvictionSettings, Measure, Role, Signal, Threshold};
use gc_cri::{CallObserver, CriClient, Endpoint};
use gc_metrics::Catalogue;
use gc_node::{
    Agent, Health, Locks, Metrics, NodeConfig, PodSource, Pods, Progress, ReportTarget, Stop, TestClock,
};
use gc_process::access::{self, ContextFlags};
use gc_process::kubeconfig::{self, Caller};
use gc_process::logging::LogOptions;
use gc_process::operations::{self, OperationsPages, Pages, Protection, TlsFlags};
use serde_json::Value;
use tracing::{info, warn};

use config::{NodeFlags, Settings};
use output::Format;
use pages::NodePages;

/// Enabled collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Collect {
    /// Unused images
    Images,
    /// Dead containers, sandboxes and logs
    Containers,
}

impl From<Collect> for gc_node::Collect {
    fn from(collect: Collect) -> Self {
        match collect {
            Collect::Images => Self::Images,
            Collect::Containers => Self::Containers,
        }
    }
}

/// Collect unused images and dead containers on this node, over the container runtime's socket
#[derive(Args, Debug)]
#[command(
    // Every option may also follow the subcommand, where people expect it.
    mut_args(|argument| argument.global(true)),
    after_help = "Without a subcommand, runs as a daemon: images every five minutes, containers every minute.\n\
    See docs/node-agent.md for how to hand collection over from a kubelet on the same node."
)]
pub(crate) struct NodeOptions {
    #[command(subcommand)]
    command: Option<NodeCommand>,
    #[command(flatten)]
    flags: NodeFlags,
    /// Directory for the ages of images [default: /var/lib/kubegc]
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubegc", hide_default_value = true)]
    data_dir: PathBuf,
    /// Collectors to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Collect::Images, Collect::Containers])]
    collect: Vec<Collect>,
    /// Make one pass of each collector and exit
    #[arg(long)]
    once: bool,
    /// Show what would be removed, in which order and why; remove nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    below: below::BelowFlags,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Name of this node, for Events and to find its pods [default: the host name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// Kubeconfig file, to read the pods of this node; "" for none [default: in a pod $KUBECONFIG or its service account, else none]
    // clap's own parser of paths refuses an empty one.
    #[arg(long, help_heading = access::HEADING, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    kubeconfig: Option<PathBuf>,
    /// Give up and retry a request to the API server after this time
    #[arg(long, help_heading = access::HEADING, value_name = "DURATION", default_value = "30s")]
    request_timeout: String,
    /// Namespace of the Lease in which removals and due images are reported, for the page and `kubegc top`; "" for none
    /// [default: that of the kubeconfig's context, or of this pod]
    #[arg(long, value_name = "NAMESPACE")]
    report_namespace: Option<String>,
    /// Follow the NodeCollectionPolicies of the cluster that select this node, and write results into their status
    #[arg(long)]
    policies: bool,
    /// Directory of static pod manifests, whose images are kept without a cluster
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: Option<PathBuf>,
    /// Address for /metrics, /healthz, /livez and /readyz; on an address other than loopback, TLS and (but for health) a
    /// token of the cluster are needed
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10358")]
    bind_address: SocketAddr,
    /// Configuration file of the kubelet, to check whether it also collects
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    kubelet_config: PathBuf,
    /// Serve /kubegc/v1/clock, by which tests set the clock of ages ahead; only on a loopback address
    #[arg(long)]
    test_clock: bool,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    journal: journal::JournalFlags,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    cluster: ContextFlags,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// List every image: age, last use, size, shared size, and whether it would be removed
    Images(ImagesOptions),
    /// List every container: age, state, and whether it would be removed
    Containers,
    /// Account for the disk of the images by cause, also for what CRI does not list (containerd and CRI-O)
    Disk,
}

/// Options of `kubegc node images`.
#[derive(Args, Debug)]
struct ImagesOptions {
    /// Show the nodes of the cluster instead, as their agents report: disk, images, unexplained bytes, last pass, what was freed, and results of policies
    #[arg(short = 'A', long)]
    all_nodes: bool,
}

/// Registers the metrics of the agent, for their documentation.
pub(crate) fn register_metrics(catalogue: &mut Catalogue) {
    Metrics::register(catalogue);
}

/// Runs the command.
pub(crate) fn run(options: NodeOptions) -> Result<()> {
    gc_process::logging::start(&options.log)?;
    let (file, text) = match &options.flags.config {
        Some(path) => read_file(path).map_err(|error| gc_process::UsageError::new(format!("{error:#}")))?,
        None => (Value::Null, String::new()),
    };
    let misspelled = places::misspelled(&file, &text);
    if let (Some(path), false) = (&options.flags.config, misspelled.is_empty()) {
        return Err(
            gc_process::UsageError::new(format!("{}: {}", path.display(), misspelled.join("; "))).into()
        );
    }
    if options.command.is_some() && (options.once || options.dry_run) {
        let flag = if options.once { "--once" } else { "--dry-run" };
        let why = format!(
            "{flag} is for collecting; `images` and `containers` only show what is there, as `disk` does"
        );
        return Err(gc_process::UsageError::new(why).into());
    }
    let is_list = matches!(options.command, Some(NodeCommand::Images(_) | NodeCommand::Containers));
    if options.output == Format::Name && !is_list {
        return Err(gc_process::UsageError::new("-o name is for lists: `images` and `containers`").into());
    }
    if matches!(&options.command, Some(NodeCommand::Images(images)) if images.all_nodes) {
        return in_runtime(fleet_of(options));
    }
    if options.test_clock && !options.bind_address.ip().to_canonical().is_loopback() {
        return Err(
            gc_process::UsageError::new("--test-clock needs --bind-address on a loopback address").into()
        );
    }
    let (settings, notices) = config::resolve(&file, &options.flags).map_err(|errors| {
        let errors = match &options.flags.config {
            Some(path) => errors.located(path, &text, &options.flags),
            None => errors,
        };
        gc_process::UsageError::new(errors)
    })?;
    for notice in &notices {
        info!("{notice}");
    }
    in_runtime(start(options, settings))
}

fn in_runtime(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(work.boxed_local())
}

/// Reports on all nodes. It queries the cluster, as a person would, and no container runtime.
async fn fleet_of(options: NodeOptions) -> Result<()> {
    let kubeconfig = options.kubeconfig.as_ref().filter(|path| !path.as_os_str().is_empty());
    let timeout = access::patience(&options.request_timeout)?;
    let client = options.cluster.client(kubeconfig, Caller::Person).await?.with_request_timeout(timeout);
    let namespace = options.report_namespace.as_deref().unwrap_or_default();
    fleet::show(client, namespace, options.output, &mut gc_process::screen::stdout()).await
}

/// Reads a file, and returns its parsed document and its text.
fn read_file(path: &PathBuf) -> Result<(Value, String)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let value = parse_file(&text).with_context(|| format!("{} is not valid YAML", path.display()))?;
    Ok((value, text))
}

fn parse_file(text: &str) -> Result<Value> {
    Ok(gc_process::yaml::from_str(text)?)
}

async fn start(options: NodeOptions, mut settings: Settings) -> Result<()> {
    options.below.apply(&mut settings.node)?;
    let endpoint = settings.endpoint.clone().map_or_else(Endpoint::discover, Ok)?;
    let mut catalogue = Catalogue::default();
    let metrics = Metrics::register(&mut catalogue);
    let registry = Arc::new(catalogue.into());
    let node = options.node_name.clone().unwrap_or_else(host_name);
    let api = api_client(&options).await?;
    let source = match (&api, &options.pod_manifest_path) {
        (Some(client), _) => PodSource::Api {
            client: client.clone(),
            node: node.clone(),
            protected_namespaces: settings.protected_namespaces.clone(),
        },
        (None, Some(folder)) => PodSource::Manifests(folder.clone()),
        (None, None) => PodSource::None,
    };
    if api.is_none() && !settings.protected_namespaces.is_empty() {
        warn!("--protect-namespace needs a cluster to ask; name one with --kubeconfig");
    }
    if api.is_none() && settings.workload_images.is_some() {
        warn!("--keep-workload-images needs a cluster to ask; name one with --kubeconfig");
    }
    if api.is_none() && options.policies {
        warn!("--policies needs a cluster to ask; name one with --kubeconfig");
    }
    warn_of_kubelet(&options.kubelet_config, &options.collect, &settings.node);
    let collect: Vec<_> = options.collect.iter().map(|one| gc_node::Collect::from(*one)).collect();
    let standing = match (&options.command, options.dry_run) {
        (None, false) => Some(Standing::take(&options, &endpoint, &collect, api.as_ref(), registry).await?),
        _ => None,
    };
    let stop = standing.as_ref().map(|standing| &standing.stop);
    let Some(client) = connect(endpoint, client_options(&settings, &metrics), stop).await? else {
        // A stopped daemon has done its work; an interrupted pass has not.
        return if options.once {
            Err(anyhow::anyhow!("stopped before the runtime answered"))
        } else {
            Ok(())
        };
    };
    let target = api.map(|client| (client, node));
    let reports = target.as_ref().and_then(|(client, node)| {
        let namespace = options.report_namespace.clone().unwrap_or_else(|| client.namespace().to_owned());
        let target = ReportTarget { client: client.clone(), node: node.clone(), namespace };
        (!target.namespace.is_empty()).then_some(target)
    });
    let mut pods = Pods::new(source);
    if let Some(within) = settings.workload_images {
        pods = pods.keeping_workload_images(within);
    }
    let peers = options.flags.peer_mirror.clone();
    let policies = target.clone().filter(|_| options.policies);
    let agent = Agent::new(client, settings.node, pods, target, metrics);
    let agent = match policies {
        Some((client, node)) => {
            let (path, collect) = (options.kubelet_config.clone(), options.collect.clone());
            let check = move |config: &NodeConfig| match read_kubelet(&path) {
                Ok(Some(kubelet)) => kubelet_conflicts(&kubelet, &collect, config),
                Ok(None) | Err(_) => Vec::new(),
            };
            agent.with_policies(client, node, Box::new(check))
        }
        None => agent,
    };
    let agent = if peers.is_empty() { agent } else { agent.with_peers(peers) };
    let agent = match reports {
        Some(target) => agent.with_reports(target),
        None => agent,
    };
    match standing {
        Some(standing) => standing.collect(agent, &options, &collect).await,
        None => answer(agent, &options, &collect).await,
    }
}

fn client_options(settings: &Settings, metrics: &Metrics) -> gc_cri::Options {
    let counted = metrics.clone();
    gc_cri::Options {
        request_timeout: settings.request_timeout,
        managed_label: settings.managed_label.clone(),
        observer: CallObserver::new(move |call, took, failed| counted.operation(call, took, failed)),
    }
}

/// Connects to the runtime. Returns `None` if a stop was requested before the runtime answered.
async fn connect(
    endpoint: Endpoint,
    client_options: gc_cri::Options,
    stop: Option<&Stop>,
) -> Result<Option<CriClient>> {
    let connecting = CriClient::connect(endpoint, client_options);
    let (client, version) = match stop {
        None => connecting.await?,
        Some(stop) => tokio::select! {
            biased;
            () = stop.requested() => return Ok(None),
            connected = connecting => connected?,
        },
    };
    info!(endpoint = %client.endpoint(), runtime = version.name, version = version.version, "connected");
    Ok(Some(client))
}

/// Answers a query.
async fn answer(mut agent: Agent, options: &NodeOptions, collect: &[gc_node::Collect]) -> Result<()> {
    let (data_dir, format, out) = (&options.data_dir, options.output, &mut gc_process::screen::stdout());
    match options.command {
        Some(NodeCommand::Images(_)) => output::write_images(&agent.image_view(data_dir).await?, format, out),
        Some(NodeCommand::Containers) => {
            output::write_containers(&agent.container_view(data_dir).await?, format, out)
        }
        Some(NodeCommand::Disk) => below::write_account(&agent.disk_account().await?, format, out),
        None => output::write_preview(&agent.preview(data_dir, collect).await?, format, out),
    }
}

/// State of an agent that removes something. It exists from the start, even before the runtime answers.
struct Standing {
    locks: Locks,
    stop: Stop,
    health: Arc<Health>,
    clock: Option<TestClock>,
}

impl Standing {
    /// Installs the signal handlers, keeps other agents out and, for a daemon, serves metrics and health.
    async fn take(
        options: &NodeOptions,
        endpoint: &Endpoint,
        collect: &[gc_node::Collect],
        api: Option<&gc_kube::ApiClient>,
        metrics: Arc<prometheus_client::registry::Registry>,
    ) -> Result<Self> {
        let stop = stop_on_signals()?;
        // Report first if the runtime is not running, or not accessible to this user.
        CriClient::reach(endpoint).await?;
        let standing = Self {
            stop,
            locks: Locks::take(endpoint, &options.data_dir)?,
            health: Arc::new(Health::new(collect)),
            clock: options.test_clock.then(TestClock::default),
        };
        if !options.once {
            let protection = Protection::of(options.bind_address, &options.tls, api)?;
            let health = Arc::clone(&standing.health);
            let ready = Arc::clone(&health.ready);
            let pages: Arc<dyn Pages> = Arc::new(NodePages { health, clock: standing.clock.clone() });
            let shown = OperationsPages { metrics, ready, pages: Some(pages) };
            let address = operations::serve(options.bind_address, shown, Arc::new(protection)).await?;
            info!(%address, "metrics and health");
        }
        Ok(standing)
    }

    /// Makes one pass, or passes until a stop is requested.
    async fn collect(self, agent: Agent, options: &NodeOptions, collect: &[gc_node::Collect]) -> Result<()> {
        let journal = journal::open(&options.journal)?;
        let agent = match &journal {
            Some(journal) => agent.with_journal(journal.recorder()),
            None => agent,
        };
        let agent = match self.clock {
            Some(clock) => agent.with_clock(clock),
            None => agent,
        };
        if !options.once {
            return agent.alone(self.locks)?.run(collect, &self.health, &self.stop).await;
        }
        let agent = agent.with_progress(Progress::on_a_terminal()).alone(self.locks)?;
        let pass = agent.once(collect, &self.stop).await;
        output::write_tally(&pass.tally, options.output, &mut gc_process::screen::stdout())?;
        pass.failure.map_or(Ok(()), |failure| Err(anyhow::anyhow!(failure)))
    }
}

fn stop_on_signals() -> Result<Stop> {
    let (sender, stop) = Stop::new();
    let mut signals = gc_host::StopSignals::new().context("cannot wait for signals")?;
    tokio::spawn(
        async move {
            signals.recv().await;
            info!("asked to stop; removals in progress finish, and no new ones begin");
            // If the receiver is gone, the process is already ending.
            let _ = sender.send(true);
            std::future::pending::<()>().await;
        }
        .boxed(),
    );
    Ok(stop)
}

fn host_name() -> String {
    gc_host::host_name().to_lowercase()
}

async fn api_client(options: &NodeOptions) -> Result<Option<gc_kube::ApiClient>> {
    let is_given = options.cluster.is_given();
    let kubeconfig = match &options.kubeconfig {
        Some(path) if path.as_os_str().is_empty() => {
            if is_given {
                let why = "--kubeconfig \"\" asks no cluster, and another flag says which one to ask";
                return Err(gc_process::UsageError::new(why).into());
            }
            return Ok(None);
        }
        None if !is_given && !kubeconfig::is_in_pod() => return Ok(None),
        kubeconfig => kubeconfig.as_ref(),
    };
    let timeout = access::patience(&options.request_timeout)?;
    Ok(Some(options.cluster.client(kubeconfig, Caller::Controller).await?.with_request_timeout(timeout)))
}

/// Warns of a kubelet that still collects beside this agent: two collectors on one node fight (section 19).
fn warn_of_kubelet(path: &Path, collect: &[Collect], config: &NodeConfig) {
    match read_kubelet(path) {
        Ok(Some(kubelet)) => {
            for warning in kubelet_conflicts(&kubelet, collect, config) {
                warn!(kubelet = %path.display(), "{warning}");
            }
        }
        Ok(None) => {}
        Err(error) => {
            warn!(kubelet = %path.display(), "cannot find out whether the kubelet on this node collects as well: {error:#}");
        }
    }
}

/// Reads the configuration of the kubelet; `None` if this path has none.
fn read_kubelet(path: &Path) -> Result<Option<Value>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(gc_process::yaml::from_str::<Value>(&text)?)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

fn kubelet_conflicts(kubelet: &Value, collect: &[Collect], config: &NodeConfig) -> Vec<String> {
    if !collect.contains(&Collect::Images) || !config.image_loop {
        return Vec::new();
    }
    let high = kubelet.get("imageGCHighThresholdPercent").and_then(Value::as_i64).unwrap_or(85);
    let maximum = kubelet.get("imageMaximumGCAge").and_then(Value::as_str).unwrap_or("0s");
    if high < 100 || !matches!(maximum.parse(), Ok(gc_types::GoDuration::ZERO)) {
        return vec![format!(
            "the kubelet on this node also collects images (imageGCHighThresholdPercent {high}, imageMaximumGCAge \
             {maximum}); set imageGCHighThresholdPercent: 100, imageGCLowThresholdPercent: 99 and imageMaximumGCAge: 0s \
             there, or run this agent with --collect containers"
        )];
    }
    let (ours, theirs) = (highest_share(&config.eviction), highest_share(&eviction_of(kubelet)));
    let high = f64::from(config.thresholds.high_percent);
    if theirs > 0.0 && ours <= theirs && high >= 100.0 - theirs {
        return vec![format!(
            "the kubelet on this node removes every unused image once imagefs.available falls below {theirs}%, which a \
             high threshold of {high}% does not forestall; set --image-gc-high-threshold below {}",
            100.0 - theirs
        )];
    }
    Vec::new()
}

/// Returns the eviction thresholds of a kubelet. With settings that it refuses, the kubelet does not start, and evicts nothing.
fn eviction_of(kubelet: &Value) -> Vec<Threshold> {
    let map = |name: &str| {
        let map = kubelet.get(name)?.as_object()?.iter();
        Some(map.filter_map(|(signal, limit)| Some((signal.clone(), limit.as_str()?.to_owned()))).collect())
    };
    let settings = EvictionSettings {
        hard: map("evictionHard"),
        merge_defaults: kubelet.get("mergeDefaultEvictionSettings").and_then(Value::as_bool).unwrap_or(false),
        ..EvictionSettings::default()
    };
    pressure::parse(&settings).unwrap_or_default()
}

/// Returns the highest percentage of available bytes at which a threshold on the image filesystem is crossed; 0 without one.
fn highest_share(thresholds: &[Threshold]) -> f64 {
    let of_images = Signal { role: Role::Images, measure: Measure::Available };
    let share = |threshold: &Threshold| match threshold.limit {
        Amount::Percent(share) if threshold.signal == of_images => share,
        Amount::Percent(_) | Amount::Quantity(_) => 0.0,
    };
    thresholds.iter().map(share).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::json;

    /// T175: the agent warns of a kubelet that would also collect, and of one that would empty the cache before this agent acts.
    #[test]
    fn a_kubelet_that_would_fight_is_named() {
        let both = [Collect::Images, Collect::Containers];
        let with = |high, eviction: Option<&str>| NodeFlags {
            image_gc_high_threshold: Some(high),
            image_gc_low_threshold: Some(1),
            eviction_hard: eviction.map(String::from),
            ..NodeFlags::default()
        };
        let (early, late, guarded) =
            (with(80, None), with(85, None), with(85, Some("imagefs.available<18%")));
        let (fights, evicts) = ("also collects images", "removes every unused image once imagefs.available");
        let off = json!({"imageGCHighThresholdPercent": 100});
        let off_with = |hard: Value| json!({"imageGCHighThresholdPercent": 100, "evictionHard": hard});
        for (kubelet, collect, flags, warned) in [
            (json!({}), &both[..], &early, Some(fights)),
            (
                json!({"imageGCHighThresholdPercent": 100, "imageMaximumGCAge": "1h"}),
                &both[..],
                &early,
                Some(fights),
            ),
            (json!({"imageGCHighThresholdPercent": 100, "imageMaximumGCAge": "0s"}), &both[..], &early, None),
            (json!({}), &both[1..], &early, None),
            (json!({}), &both[..], &with(100, None), None),
            (off.clone(), &both[..], &late, Some(evicts)),
            (off.clone(), &both[..], &guarded, None),
            (off_with(json!({"imagefs.available": "20%"})), &both[..], &early, Some(evicts)),
            (off_with(json!({"nodefs.available": "20%"})), &both[..], &late, None),
        ] {
            let (settings, _) = config::resolve(&Value::Null, flags).unwrap();
            let found = kubelet_conflicts(&kubelet, collect, &settings.node);
            assert_eq!(found.len(), usize::from(warned.is_some()), "{kubelet}: {found:?}");
            assert!(warned.is_none_or(|text| found[0].contains(text)), "{kubelet}: {found:?}");
        }
    }
}
