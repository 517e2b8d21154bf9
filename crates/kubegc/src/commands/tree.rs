//! `kubegc tree`: shows the dependents of an object.

use clap::Args;
use gc_inspect::attached::{self, AttachFlags, Query};
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Output};
use gc_inspect::target::{Partial, Targets};
use gc_inspect::tree::{Forest, Shape};
use gc_process::access::Access;
use gc_process::tasks::block_on;

use super::scope::WatchFlag;

/// Options of `kubegc tree`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc tree deploy/web              show what depends on a Deployment
  kubegc tree --owners pod/web-1      show what a pod depends on, up to the roots
  kubegc tree deploy/web --depth 1    fold what is below its ReplicaSets
  kubegc tree cronjob/backup --full   list every Job, however many there are
  kubegc tree deploy/web -o mermaid   draw it")]
pub(crate) struct TreeOptions {
    #[command(flatten)]
    targets: Targets,
    /// Show owners up to the roots, in place of dependents
    #[arg(long)]
    owners: bool,
    /// Levels to show; what is below is counted [default: all]
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
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

/// `kubegc tree`
pub(crate) fn run(options: &TreeOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    let TreeOptions { owners, depth, full, .. } = *options;
    block_on(async {
        let client = options.access.connect().await?;
        let repeated = options.watch.repeat(async || {
            let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
            let Partial { found: named, mut failures } = options.targets.resolve(&gatherer).await?;
            if named.is_empty() {
                return gather::fail(failures);
            }
            let question = || Query::Tree { objects: attached::subjects(&named), owners, depth, full };
            match options.attach.ask(&options.access, &client, &options.output, question).await? {
                Some(answer) => {
                    gather::warn(&answer.unseen);
                    output::print(&answer, &options.output)?;
                }
                None => {
                    let mut forest = Forest::new(gatherer.now, Shape { owners, depth, full });
                    for named in &named {
                        match forest.add(&gatherer, named, patience).await {
                            Ok(unseen) => gather::warn(unseen.as_slice()),
                            Err(error) => failures.push(error),
                        }
                    }
                    if !forest.is_empty() {
                        output::print(&forest, &options.output)?;
                    }
                }
            }
            gather::fail(failures)
        });
        repeated.await
    })
}
