//! `kubegc stuck`: lists stuck deletions with their causes, one row per root cause.

use std::time::Duration;

use clap::Args;
use gc_inspect::attached::{AttachFlags, Query};
use gc_inspect::gather::{self, Gatherer, Scope};
use gc_inspect::output::{self, Output};
use gc_inspect::sources::JournalFlags;
use gc_inspect::stuck::{self, StuckAnswer};
use gc_inspect::target::{FileFlags, Partial};
use gc_kube::ApiClient;
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::tasks::block_on;
use gc_types::GoDuration;

use super::scope::{ScopeFlags, WatchFlag};

/// Something is stuck, and `--exit-code` was given.
#[derive(Debug, thiserror::Error)]
#[error("something is stuck")]
pub(crate) struct StuckObjectsFound;

/// Options of `kubegc stuck`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc stuck                       list all stuck deletions, oldest first
  kubegc stuck -n shop --for 5m      only in one namespace, stuck for at least five minutes
  kubegc stuck -f app.yaml           only what holds up the objects of a manifest
  kubegc stuck --exit-code -o name   for scripts: exit with 1 if anything is stuck
  kubegc stuck -w                    repeat every five seconds")]
pub(crate) struct StuckOptions {
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    files: FileFlags,
    /// Only deletions stuck for at least this time
    #[arg(long = "for", value_name = "DURATION", default_value = "0s")]
    at_least: String,
    #[command(flatten)]
    watch: WatchFlag,
    /// Exit with 1 if anything is stuck
    #[arg(long)]
    exit_code: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    attach: AttachFlags,
    #[command(flatten)]
    access: Access,
}

/// `kubegc stuck`
pub(crate) fn run(options: &StuckOptions) -> anyhow::Result<()> {
    let at_least = GoDuration::parse_with_days(&options.at_least)
        .map_err(|error| UsageError::new(format!("--for: {error}")))?;
    let patience = options.access.patience()?;
    let anything = block_on(async {
        let client = options.access.connect().await?;
        options.watch.repeat(async || one(options, &client, at_least, patience).await).await
    })?;
    if anything && options.exit_code { Err(StuckObjectsFound.into()) } else { Ok(()) }
}

/// Queries the cluster, and the journal for refusals by the server where those are the cause.
pub(super) async fn ask_whole(
    gatherer: Gatherer,
    scope: &Scope,
    patience: Duration,
    (journal, access, client): (&JournalFlags, &Access, &ApiClient),
) -> anyhow::Result<StuckAnswer> {
    let answer = stuck::ask(&gatherer, scope, patience).await?;
    if !answer.rows.iter().any(|row| row.cause.code.is_absence()) {
        return Ok(answer);
    }
    let refused = stuck::refusals(journal, access, client).await;
    stuck::ask(&gatherer.knowing_refusals(refused), scope, patience).await
}

/// Queries once and prints the answer. Reports whether anything is stuck.
async fn one(
    options: &StuckOptions,
    client: &ApiClient,
    at_least: GoDuration,
    patience: Duration,
) -> anyhow::Result<bool> {
    let scope = options.scope.scope();
    // A collector's graph has no labels, and always answers about everything.
    if scope.selector.is_empty() && options.files.is_empty() {
        let question = || Query::Stuck { namespace: scope.namespace.clone(), at_least: at_least.to_string() };
        let answer = options.attach.ask(&options.access, client, &options.output, question).await?;
        // The graph does not record which requests the server refused.
        if let Some(answer) = answer.filter(|answer| !answer.mentions_any(&stuck::absences())) {
            gather::warn(&answer.unseen);
            output::print(&answer, &options.output)?;
            return Ok(answer.found);
        }
    }
    let gatherer = Gatherer::new(client.clone(), gather::clock(client).await).await?;
    let Partial { found: named, failures } = options.files.named(&gatherer, &scope.namespace)?;
    let sources = (&JournalFlags::default(), &options.access, client);
    let mut answer = ask_whole(gatherer, &scope, patience, sources).await?;
    answer.keep_older(at_least);
    if !options.files.is_empty() {
        answer.rows.retain(|row| row.places().any(|place| named.iter().any(|named| named.is_at(place))));
    }
    gather::warn(&answer.unseen);
    output::print(&answer, &options.output)?;
    gather::fail(failures)?;
    Ok(!answer.rows.is_empty())
}
