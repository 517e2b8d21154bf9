//! `kubegc plan delete`: shows everything that a deletion would lead to.

use std::time::Duration;

use clap::{Args, Subcommand};
use gc_inspect::attached::{self, AttachFlags, Query};
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Output};
use gc_inspect::plan::{self, Cascade};
use gc_inspect::target::{Partial, Targets};
use gc_kube::ApiClient;
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::tasks::block_on;

use super::PlanWouldGetStuck;
use super::scope::WatchFlag;

/// Subjects of a plan.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Show everything that a deletion would lead to, without deleting anything
    Delete(Box<PlanOptions>),
    /// Anything else: most likely an object.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Options of `kubegc plan delete`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc plan delete ns/shop                  everything in a namespace, its volumes, and what would get stuck
  kubegc plan delete crd/widgets.acme.dev     a definition with its objects
  kubegc plan delete pods -l app=web -A       objects by their labels, in all namespaces
  kubegc plan delete -f app.yaml -o mermaid   a drawing
Exit codes: 0, everything would be deleted; 1, it could not be planned; 2, wrong flags; 3, part of the deletion would be refused or get stuck.")]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    targets: Targets,
    /// Select the deletion policy for dependents
    #[arg(long, value_enum, default_value_t = Cascade::Background)]
    cascade: Cascade,
    /// List every object instead of counting those of the same kind
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    watch: WatchFlag,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…, dot, mermaid
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    attach: AttachFlags,
    #[command(flatten)]
    access: Access,
}

/// `kubegc plan delete`
pub(crate) fn run(command: &PlanCommand) -> anyhow::Result<()> {
    let options = match command {
        PlanCommand::Delete(options) => options,
        PlanCommand::Other(given) => {
            let given = given.join(" ");
            let meant = format!("did you mean `kubegc plan delete {given}`?");
            return Err(
                UsageError::new(format!("plan {given}: deletions are what is planned; {meant}")).into()
            );
        }
    };
    let patience = options.access.patience()?;
    let would_get_stuck = block_on(async {
        let client = options.access.connect().await?;
        options.watch.repeat(async || one(options, &client, patience).await).await
    })?;
    if would_get_stuck { Err(PlanWouldGetStuck.into()) } else { Ok(()) }
}

/// Queries the cluster once and prints the plan. Reports whether something would get stuck.
async fn one(options: &PlanOptions, client: &ApiClient, patience: Duration) -> anyhow::Result<bool> {
    let gatherer = Gatherer::new(client.clone(), gather::clock(client).await).await?;
    let Partial { found: named, failures } = options.targets.resolve(&gatherer).await?;
    if named.is_empty() {
        gather::fail(failures)?;
        return Ok(false);
    }
    let question = || Query::Plan {
        objects: attached::subjects(&named),
        policy: options.cascade.name().to_lowercase(),
        full: options.full,
    };
    if let Some(answer) = options.attach.ask(&options.access, client, &options.output, question).await? {
        gather::warn(&answer.unseen);
        output::print(&answer, &options.output)?;
        gather::fail(failures)?;
        return Ok(answer.found);
    }
    let planning = plan::ask(&gatherer, named, options.cascade.policy(), patience).await?;
    planning.show(options.full, &options.output)?;
    gather::fail(failures.into_iter().chain(planning.failures).collect())?;
    Ok(planning.radius.would_get_stuck())
}
