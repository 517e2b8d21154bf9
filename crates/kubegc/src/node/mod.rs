//! `kubegc node`: image and container collection on this node, over CRI.

mod agent;
mod clock;
mod config;
mod containers;
mod events;
mod filesystem;
mod images;
mod metrics;
mod output;
#[cfg(test)]
mod pass_tests;
mod pods;
mod state;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use gc_cri::{CriClient, Endpoint};
use serde_json::Value;
use tracing::{info, warn};

use crate::logging::LogOptions;
use agent::Agent;
use config::{NodeConfig, NodeFlags};
use output::Format;
use pods::{PodSource, Pods};

/// Which collectors run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Collect {
    /// Unused images.
    Images,
    /// Dead containers, sandboxes and logs.
    Containers,
}

/// Collects unused images and dead containers on this node, over the container runtime's socket.
#[derive(Args, Debug)]
#[command(
    after_help = "Without a subcommand, runs as a daemon: images every five minutes, containers every minute.\n\
    See docs/node.md for how to make a kubelet on the same node hand over."
)]
pub(crate) struct NodeOptions {
    #[command(subcommand)]
    command: Option<NodeCommand>,
    #[command(flatten)]
    flags: NodeFlags,
    /// Where the ages of images are kept [default: /var/lib/kubegc]
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/kubegc",
        hide_default_value = true,
        global = true
    )]
    state_dir: PathBuf,
    /// Which collectors run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Collect::Images, Collect::Containers])]
    collect: Vec<Collect>,
    /// One pass of each, then end
    #[arg(long)]
    once: bool,
    /// Say what would go, in which order and why; remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    output: Format,
    /// Name of this node, for events and to know its pods [default: the host name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME", global = true)]
    node_name: Option<String>,
    /// The cluster whose pods are asked for; "" for none [default: that of the pod that this runs in, else none]
    // Not clap's own parser of paths, which refuses an empty one.
    #[arg(long, value_name = "FILE", global = true, value_parser = OsStringValueParser::new().map(PathBuf::from))]
    kubeconfig: Option<PathBuf>,
    /// Static pod manifests, whose images are kept when no cluster is asked
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: Option<PathBuf>,
    /// Address of /metrics, /healthz, /livez and /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10358")]
    listen: SocketAddr,
    /// The kubelet's configuration, to find out whether it collects as well
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    kubelet_config: PathBuf,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// Every image: age, last use, size, what it shares, and what would become of it
    Images,
    /// Every container: age, state, and what would become of it
    Containers,
}

/// Runs the command.
pub(crate) fn run(options: NodeOptions) -> Result<()> {
    crate::logging::start(&options.log)?;
    let file = match &options.flags.config {
        Some(path) => read_file(path).map_err(|error| crate::UsageError::new(format!("{error:#}")))?,
        None => Value::Null,
    };
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

fn read_file(path: &PathBuf) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_yaml_ng::from_str(&text).with_context(|| format!("{} is not valid YAML", path.display()))
}

async fn start(options: NodeOptions, config: NodeConfig) -> Result<()> {
    let endpoint = config.endpoint.clone().map_or_else(Endpoint::discover, Ok)?;
    let client_options = gc_cri::Options {
        request_timeout: config.request_timeout,
        managed_label: config.managed_label.clone(),
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
    warn_of_kubelet(&options.kubelet_config, &options.collect);
    let agent = Agent::new(client, config, Pods::new(source), api.map(|client| (client, node)));
    match options.command {
        Some(NodeCommand::Images) => agent.show_images(&options.state_dir, options.output).await,
        Some(NodeCommand::Containers) => agent.show_containers(options.output).await,
        None if options.dry_run => agent.dry_run(&options.state_dir, &options.collect, options.output).await,
        None if options.once => agent.once(&options.state_dir, &options.collect).await,
        None => agent.daemon(&options.state_dir, &options.collect, options.listen).await,
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
fn warn_of_kubelet(path: &PathBuf, collect: &[Collect]) {
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let Ok(kubelet) = serde_yaml_ng::from_str::<Value>(&text) else { return };
    for warning in kubelet_conflicts(&kubelet, collect) {
        warn!(kubelet = %path.display(), "{warning}");
    }
}

fn kubelet_conflicts(kubelet: &Value, collect: &[Collect]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !collect.contains(&Collect::Images) {
        return warnings;
    }
    let high = kubelet.get("imageGCHighThresholdPercent").and_then(Value::as_i64).unwrap_or(85);
    let maximum = kubelet.get("imageMaximumGCAge").and_then(Value::as_str).unwrap_or("0s");
    if high < 100 || !matches!(maximum.parse(), Ok(gc_types::GoDuration::ZERO)) {
        warnings.push(format!(
            "the kubelet on this node also collects images (imageGCHighThresholdPercent {high}, imageMaximumGCAge \
             {maximum}); set imageGCHighThresholdPercent: 100, imageGCLowThresholdPercent: 99 and imageMaximumGCAge: 0s \
             there, or run this agent with --collect containers"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// T175.
    #[test]
    fn a_kubelet_that_would_fight_is_named() {
        let both = [Collect::Images, Collect::Containers];
        for (kubelet, collect, warned) in [
            (json!({}), &both[..], true),
            (json!({"imageGCHighThresholdPercent": 100}), &both[..], false),
            (json!({"imageGCHighThresholdPercent": 100, "imageMaximumGCAge": "1h"}), &both[..], true),
            (json!({"imageGCHighThresholdPercent": 100, "imageMaximumGCAge": "0s"}), &both[..], false),
            (json!({}), &both[1..], false),
        ] {
            assert_eq!(!kubelet_conflicts(&kubelet, collect).is_empty(), warned, "{kubelet}");
        }
    }
}
