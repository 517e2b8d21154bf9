//! `kubegc node`: image and container collection on this node, over CRI.

mod agent;
mod clock;
mod config;
mod containers;
mod events;
mod filesystem;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod health;
mod images;
mod journal;
mod metrics;
mod output;
mod parallel;
#[cfg(test)]
mod pass_tests;
mod pods;
mod state;
mod uses;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use gc_cri::{CallObserver, CriClient, Endpoint};
use gc_retention::pressure::{self, Amount, EvictionSettings, Measure, Role, Signal, Threshold};
use serde_json::Value;
use tracing::{info, warn};

use crate::logging::LogOptions;
use crate::operations::{Protection, TlsFlags};
use agent::Agent;
use config::{NodeConfig, NodeFlags};
use metrics::Metrics;
use output::Format;
use pods::{PodSource, Pods};

/// Which collectors run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Collect {
    /// Unused images
    Images,
    /// Dead containers, sandboxes and logs
    Containers,
}

impl Collect {
    /// As the flag has it.
    fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Containers => "containers",
        }
    }
}

/// Collect unused images and dead containers on this node, over the container runtime's socket
#[derive(Args, Debug)]
#[command(
    // Every option may also follow the subcommand, where people look for it.
    mut_args(|argument| argument.global(true)),
    after_help = "Without a subcommand, runs as a daemon: images every five minutes, containers every minute.\n\
    See docs/node.md for how to hand collection over from a kubelet on the same node."
)]
pub(crate) struct NodeOptions {
    #[command(subcommand)]
    command: Option<NodeCommand>,
    #[command(flatten)]
    flags: NodeFlags,
    /// Directory for the ages of images [default: /var/lib/kubegc]
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubegc", hide_default_value = true)]
    state_dir: PathBuf,
    /// Collectors to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Collect::Images, Collect::Containers])]
    collect: Vec<Collect>,
    /// Make one pass of each collector and exit
    #[arg(long)]
    once: bool,
    /// Show what would be removed, in which order and why; remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Name of this node, for Events and to find its pods [default: the host name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// Kubeconfig file, to read the pods of this node; "" for none [default: the service account of this pod, else none]
    // Not clap's own parser of paths, which refuses an empty one.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    kubeconfig: Option<PathBuf>,
    /// Directory of static pod manifests, whose images are kept without a cluster
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: Option<PathBuf>,
    /// Address for /metrics, /healthz, /livez and /readyz; on an address other than loopback, TLS and (but for health) a
    /// token of the cluster are needed
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10358")]
    listen: SocketAddr,
    /// Configuration file of the kubelet, to check whether it also collects
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    kubelet_config: PathBuf,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    journal: journal::JournalFlags,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// List every image: age, last use, size, shared size, and whether it would be removed
    Images,
    /// List every container: age, state, and whether it would be removed
    Containers,
}

/// Runs the command.
pub(crate) fn run(options: NodeOptions) -> Result<()> {
    crate::logging::start(&options.log)?;
    let (file, text) = match &options.flags.config {
        Some(path) => read_file(path).map_err(|error| crate::UsageError::new(format!("{error:#}")))?,
        None => (Value::Null, String::new()),
    };
    let misspelled = config::misspelled(&file, &text);
    if let (Some(path), false) = (&options.flags.config, misspelled.is_empty()) {
        return Err(crate::UsageError::new(format!("{}: {}", path.display(), misspelled.join("; "))).into());
    }
    let (config, notices) = config::resolve(&file, &options.flags).map_err(crate::UsageError::new)?;
    for notice in &notices {
        info!("{notice}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(start(options, config))
}

/// What is in a file, and its text.
fn read_file(path: &PathBuf) -> Result<(Value, String)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let value = parse_file(&text).with_context(|| format!("{} is not valid YAML", path.display()))?;
    Ok((value, text))
}

fn parse_file(text: &str) -> Result<Value> {
    Ok(crate::yaml::from_str(text)?)
}

async fn start(options: NodeOptions, config: NodeConfig) -> Result<()> {
    let endpoint = config.endpoint.clone().map_or_else(Endpoint::discover, Ok)?;
    let (metrics, registry) = Metrics::register();
    let counted = metrics.clone();
    let client_options = gc_cri::Options {
        request_timeout: config.request_timeout,
        managed_label: config.managed_label.clone(),
        observer: CallObserver::new(move |call, took, failed| counted.operation(call, took, failed)),
    };
    let (client, version) = CriClient::connect(endpoint, client_options).await?;
    info!(endpoint = %client.endpoint(), runtime = version.name, version = version.version, "connected");
    let node = options.node_name.clone().unwrap_or_else(host_name);
    let api = api_client(&options).await?;
    let source = match (&api, &options.pod_manifest_path) {
        (Some(client), _) => PodSource::Api {
            client: client.clone(),
            node: node.clone(),
            protected_namespaces: config.protected_namespaces.clone(),
        },
        (None, Some(folder)) => PodSource::Manifests(folder.clone()),
        (None, None) => PodSource::None,
    };
    if api.is_none() && !config.protected_namespaces.is_empty() {
        warn!("--protect-namespace needs a cluster to ask; name one with --kubeconfig");
    }
    warn_of_kubelet(&options.kubelet_config, &options.collect, &config);
    let protection = Protection::of(options.listen, &options.tls, api.as_ref());
    let target = api.map(|client| (client, node));
    let agent = Agent::new(client, config, Pods::new(source), target, (metrics, registry));
    // Questions and previews remove nothing that could be noted.
    let acts = options.command.is_none() && !options.dry_run;
    let agent = if acts { agent.with_journal(journal::NodeJournal::open(&options.journal)?) } else { agent };
    match options.command {
        Some(NodeCommand::Images) => agent.show_images(&options.state_dir, options.output).await,
        Some(NodeCommand::Containers) => agent.show_containers(&options.state_dir, options.output).await,
        None if options.dry_run => agent.dry_run(&options.state_dir, &options.collect, options.output).await,
        None if options.once => agent.once(&options.state_dir, &options.collect, options.output).await,
        None => {
            let pages = (options.listen, protection?);
            agent.daemon(&options.state_dir, &options.collect, pages).await
        }
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

async fn api_client(options: &NodeOptions) -> Result<Option<gc_kube::ApiClient>> {
    match &options.kubeconfig {
        Some(path) if path.as_os_str().is_empty() => Ok(None),
        Some(path) => Ok(Some(gc_kube::ApiClient::from_kubeconfig(path).await?)),
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            Ok(Some(gc_kube::ApiClient::infer().await.context("cannot use the service account of this pod")?))
        }
        None => Ok(None),
    }
}

/// Two collectors on one node fight: names what a kubelet beside this agent still does (section 19).
fn warn_of_kubelet(path: &Path, collect: &[Collect], config: &NodeConfig) {
    let read = std::fs::read_to_string(path).map_err(anyhow::Error::from);
    let kubelet = read.and_then(|text| Ok(crate::yaml::from_str::<Value>(&text)?));
    match kubelet {
        Ok(kubelet) => {
            for warning in kubelet_conflicts(&kubelet, collect, config) {
                warn!(kubelet = %path.display(), "{warning}");
            }
        }
        // No kubelet here, or one that is configured in another place.
        Err(error) if error.downcast_ref().is_some_and(is_absent) => {}
        Err(error) => {
            warn!(kubelet = %path.display(), "cannot tell whether the kubelet on this node collects as well: {error:#}");
        }
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

/// The eviction thresholds of a kubelet. One that does not start with these settings evicts nothing.
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

/// At which share of available bytes a threshold on the image filesystem is crossed; 0 without one.
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

    /// T175: a kubelet that would fight is named, and one that would empty the cache before this agent acts.
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
            let (config, _) = config::resolve(&Value::Null, flags).unwrap();
            let found = kubelet_conflicts(&kubelet, collect, &config);
            assert_eq!(found.len(), usize::from(warned.is_some()), "{kubelet}: {found:?}");
            assert!(warned.is_none_or(|text| found[0].contains(text)), "{kubelet}: {found:?}");
        }
    }
}
