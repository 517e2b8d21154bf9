//! Questions to any cluster, answered from the same graph that the collector decides by: `tree`, `why`, `stuck`,
//! `plan delete`. They read metadata and change nothing.

mod doctor;
pub(crate) mod examine;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod graph;
pub(crate) mod journal;
mod show;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use gc_kube::ApiClient;
use gc_types::{GoDuration, PropagationPolicy};
use serde_json::Value;

use crate::UsageError;
use crate::run::{connect, preflight};
use graph::Graph;

/// So many objects a tree shows and a plan concerns at most.
const LARGEST_ANSWER: usize = 100_000;

/// Forms of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned text
    #[default]
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// What all questions share.
#[derive(Clone, Debug, Args)]
struct Common {
    /// The cluster [default: $KUBECONFIG, ~/.kube/config, or the service account of this pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// How long to wait for the lists of all resources
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    timeout: String,
}

/// The object asked about.
#[derive(Clone, Debug, Args)]
struct Subject {
    /// Such as deploy/web, replicasets.apps/web-5d4f or Widget/w
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Options of `kubegc tree`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TreeOptions {
    #[command(flatten)]
    subject: Subject,
}

/// Options of `kubegc why`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhyOptions {
    #[command(flatten)]
    subject: Subject,
    /// Where to look if the object is gone: the journal of `kubegc run --journal FILE`
    #[arg(long, value_name = "FILE", env = "KUBEGC_JOURNAL")]
    journal: Option<PathBuf>,
}

/// Options of `kubegc stuck`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StuckOptions {
    /// Only in this namespace [default: everywhere]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// What can be planned.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// What deleting an object would lead to
    Delete(PlanOptions),
}

/// Options of `kubegc plan delete`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    subject: Subject,
    /// What is to become of dependents
    #[arg(long, value_enum, default_value_t = Cascade::Background)]
    cascade: Cascade,
}

/// kubectl's names of propagation policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cascade {
    /// The object goes at once, its dependents after it
    Background,
    /// The object goes after the dependents that block it
    Foreground,
    /// The object goes, its dependents stay
    Orphan,
}

/// `kubegc tree`
pub(crate) fn tree(options: &TreeOptions) -> anyhow::Result<()> {
    let (graph, uid) = load_with(&options.subject)?;
    let Some(tree) = graph.engine.tree(&uid, LARGEST_ANSWER) else { bail!("the object is gone") };
    answer(&options.subject.common, || show::tree_value(&tree), |out| show::tree(&tree, out))
}

/// `kubegc why`
pub(crate) fn why(options: &WhyOptions) -> anyhow::Result<()> {
    let subject = &options.subject;
    let (kind, name) = subject.parts()?;
    let graph = load(&subject.common)?;
    let missing = match graph.find(kind, subject.namespace.as_deref(), name) {
        Ok(uid) => match graph.engine.why(&uid) {
            Some(why) => {
                return answer(&subject.common, || show::why_value(&why), |out| show::why(&why, out));
            }
            None => anyhow::anyhow!("the object is gone"),
        },
        Err(error) => error,
    };
    let Some(file) = &options.journal else {
        return Err(missing);
    };
    let namespace = subject.namespace.as_deref();
    let gone = journal::why_gone(file, journal::Object::named(namespace, kind, name), &subject.object)?;
    answer(&subject.common, || gone.clone(), |out| journal::why_gone_text(&gone, out))
}

/// `kubegc stuck`
pub(crate) fn stuck(options: &StuckOptions) -> anyhow::Result<()> {
    let graph = load(&options.common)?;
    let mut stuck = graph.engine.stuck(LARGEST_ANSWER);
    if let Some(namespace) = &options.namespace {
        stuck.retain(|item| item.object.key.as_ref().is_some_and(|key| *key.namespace == **namespace));
    }
    answer(
        &options.common,
        || show::stuck_value(&stuck, &graph.table),
        |out| show::stuck(&stuck, &graph.table, out),
    )
}

/// What `kubegc stuck -o json` answers about the cluster of a client.
pub(crate) async fn stuck_in(client: ApiClient, patience: Duration) -> anyhow::Result<Value> {
    let graph = Graph::load(client, patience).await?;
    Ok(show::stuck_value(&graph.engine.stuck(LARGEST_ANSWER), &graph.table))
}

/// `kubegc plan delete`
pub(crate) fn plan(command: &PlanCommand) -> anyhow::Result<()> {
    let PlanCommand::Delete(options) = command;
    let (graph, uid) = load_with(&options.subject)?;
    let policy = match options.cascade {
        Cascade::Background => PropagationPolicy::Background,
        Cascade::Foreground => PropagationPolicy::Foreground,
        Cascade::Orphan => PropagationPolicy::Orphan,
    };
    let plan = graph.engine.plan(&uid, Some(policy), LARGEST_ANSWER)?;
    answer(
        &options.subject.common,
        || show::plan_value(&plan, &graph.table),
        |out| show::plan(&plan, &graph.table, out),
    )
}

fn load(common: &Common) -> anyhow::Result<Graph> {
    let patience = match common.timeout.parse::<GoDuration>() {
        Ok(duration) => duration.to_std(),
        Err(error) => return Err(UsageError::new(format!("--timeout: {error}")).into()),
    };
    let runtime = crate::up::runtime()?;
    let graph = runtime.block_on(async {
        let client = connect(common.kubeconfig.as_ref()).await?;
        preflight::reach(&client, false).await?;
        Graph::load(client, patience).await
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    let graph = graph?;
    for missing in &graph.missing {
        eprintln!("warning: {missing}");
    }
    Ok(graph)
}

impl Subject {
    fn parts(&self) -> Result<(&str, &str), UsageError> {
        let parts = self.object.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
        parts
            .ok_or_else(|| UsageError::new(format!("{:?} is not KIND/NAME, such as deploy/web", self.object)))
    }
}

fn load_with(subject: &Subject) -> anyhow::Result<(Graph, gc_types::Uid)> {
    let (kind, name) = subject.parts()?;
    let graph = load(&subject.common)?;
    let uid = graph.find(kind, subject.namespace.as_deref(), name)?;
    Ok((graph, uid))
}

fn answer(
    common: &Common,
    value: impl FnOnce() -> Value,
    text: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = Vec::new();
    match common.output {
        Format::Text => text(&mut out)?,
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&value())?)?,
        Format::Yaml => write!(out, "{}", crate::yaml::to_string(&value())?)?,
    }
    print(&out)
}

fn print(out: &[u8]) -> anyhow::Result<()> {
    match std::io::stdout().write_all(out) {
        // Whoever reads may have read enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
