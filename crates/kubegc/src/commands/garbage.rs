//! `kubegc garbage`: what nothing uses, with sizes. It never deletes anything.

use clap::Args;
use gc_inspect::garbage::{self, GarbageAnswer};
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Output};
use gc_process::access::Access;
use gc_process::tasks::block_on;

use super::scope::ScopeFlags;

/// Options of `kubegc garbage`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc garbage                          report what nothing uses, everywhere but in the namespaces of Kubernetes
  kubegc garbage -n shop                  only in one namespace
  kubegc garbage -l app=web               only objects with these labels
  kubegc garbage -o html > garbage.html   a page to share
  kubegc garbage -o json | jq '.items[] | select(.certainty == \"Certain\") | .object'

A ConfigMap, Secret, claim or ServiceAccount is unused if it has no owner and no field of any object refers to it. It is Unknown if a custom resource contains its name in a field whose meaning is not known. Programs that read objects over the API, and arguments of containers, are not seen. The contents of Secrets are never read. Nothing is deleted.")]
pub(crate) struct GarbageOptions {
    #[command(flatten)]
    scope: ScopeFlags,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…, html
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// `kubegc garbage`
pub(crate) fn run(options: &GarbageOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
        let scope = options.scope.scope();
        let report = tokio::time::timeout(patience, garbage::ask(&gatherer, &scope, patience)).await;
        let report = report.map_err(|_| {
            anyhow::anyhow!(
                "not everything was read within {} s; --request-timeout allows more",
                patience.as_secs()
            )
        })??;
        gather::warn(&report.unseen);
        output::print(&GarbageAnswer { report }, &options.output)
    })?;
    Ok(())
}
