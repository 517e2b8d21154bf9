//! `kubegc garbage`: reports unused objects, with sizes. It never deletes anything; `--quarantine` marks them.

mod quarantine;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use gc_explain::garbage::StoredVolume;
use gc_external::csi::{self, CsiClient, DriverEndpoint, DriverVolume};
use gc_inspect::garbage::{self, GarbageAnswer};
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::orphans;
use gc_inspect::output::{self, Output};
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::outside;
use gc_process::screen::complain;
use gc_process::tasks::block_on;
use gc_types::GoDuration;

use super::Incomplete;
use super::scope::ScopeFlags;
use quarantine::{MarksAnswer, change};

/// Options of `kubegc garbage`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc garbage                          report what nothing uses, everywhere but in the namespaces of Kubernetes
  kubegc garbage -n shop                  only in one namespace
  kubegc garbage -l app=web               only objects with these labels
  kubegc garbage --older-than 30d         only what was created more than thirty days ago
  kubegc garbage --quarantine --yes       mark what is certainly unused with the date and the evidence, and end marks of what is used
  kubegc garbage --end-quarantine --yes   remove all marks
  kubegc garbage --orphaned-volumes disk.example.com=unix:///csi/csi.sock
                                          ask a CSI driver what it stores, and report what no PersistentVolume names
  kubegc garbage -o html > garbage.html   a page to share
  kubegc garbage -o json | jq '.items[] | select(.certainty == \"Certain\") | .object'

A ConfigMap, Secret, claim or ServiceAccount is unused if it has no owner, no field of any object refers to it, and no controller that kubegc knows selects it. It is Unknown if a custom resource, an argument, a variable or an annotation contains its name where the meaning is not known. Programs that read objects over the API are not seen. Objects of twenty other kinds are reported if they select nothing, lead nowhere, are bound to nobody, or have ended. The contents of Secrets are never read. Nothing is deleted; --quarantine only marks, and never what is unknown.")]
pub(crate) struct GarbageOptions {
    #[command(flatten)]
    scope: ScopeFlags,
    /// Only what nothing uses and was created at least this long ago, such as 168h or 30d
    #[arg(long, value_name = "DURATION")]
    older_than: Option<String>,
    /// Mark what is certainly unused with annotations (kubegc.io/unused-since and -because), and end marks of everything else
    #[arg(long, conflicts_with = "selector")]
    quarantine: bool,
    /// Remove all marks
    #[arg(long, conflicts_with_all = ["quarantine", "selector"])]
    end_quarantine: bool,
    /// Report instead the volumes that this CSI driver lists at the socket of its controller and no PersistentVolume names: DRIVER=unix:///PATH (repeatable)
    #[arg(long, value_name = "DRIVER=SOCKET", value_parser = DriverEndpoint::parse, help_heading = HEADING_VOLUMES,
          conflicts_with_all = ["quarantine", "end_quarantine", "selector", "older_than", "namespace"])]
    orphaned_volumes: Vec<DriverEndpoint>,
    /// No other cluster uses the storage of this driver: what no PersistentVolume names is certainly orphaned (repeatable)
    #[arg(long, value_name = "DRIVER", help_heading = HEADING_VOLUMES, requires = "orphaned_volumes")]
    exclusive_storage: Vec<String>,
    /// Timeout of each call to a CSI driver
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = outside::positive, help_heading = HEADING_VOLUMES)]
    csi_timeout: Duration,
    /// Change the marks; without it, they are only shown
    #[arg(short, long)]
    yes: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…, html
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// Heading in the help text.
const HEADING_VOLUMES: &str = "Volumes of CSI drivers";

/// `kubegc garbage`
pub(crate) fn run(options: &GarbageOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    if !options.orphaned_volumes.is_empty() {
        return block_on(orphaned_volumes(options));
    }
    let older_than = options.older_than.as_deref().map(GoDuration::parse_with_days).transpose();
    let older_than = older_than.map_err(|error| UsageError::new(format!("--older-than: {error}")))?;
    block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
        let scope = options.scope.scope();
        let report = tokio::time::timeout(patience, garbage::ask(&gatherer, &scope, patience)).await;
        let mut report = report.map_err(|_| {
            anyhow::anyhow!(
                "not everything was read within {} s; --request-timeout allows more",
                patience.as_secs()
            )
        })??;
        let until = older_than.map(|age| gatherer.now.after(-age.to_milliseconds_rounded_up()));
        gather::warn(&report.unseen);
        if options.quarantine || options.end_quarantine {
            let marks =
                if options.quarantine { report.quarantine(until) } else { report.end_of_quarantine() };
            output::print(&MarksAnswer { marks: &marks, is_done: options.yes }, &options.output)?;
            let failures = if options.yes { change(&client, &gatherer, &marks).await } else { Vec::new() };
            for failure in &failures {
                complain!("error: {failure}");
            }
            return if failures.is_empty() { Ok(()) } else { Err(Incomplete.into()) };
        }
        if let Some(until) = until {
            report.keep_older_than(until);
        }
        output::print(&GarbageAnswer { report }, &options.output)
    })?;
    Ok(())
}

/// Asks the drivers which volumes they store, and then the cluster which of them it uses. A driver that cannot list its volumes
/// causes an error, and the others are still reported.
async fn orphaned_volumes(options: &GarbageOptions) -> anyhow::Result<()> {
    let exclusive: BTreeSet<String> = options.exclusive_storage.iter().cloned().collect();
    let drivers: BTreeSet<&str> = options.orphaned_volumes.iter().map(DriverEndpoint::driver).collect();
    if let Some(unknown) = exclusive.iter().find(|driver| !drivers.contains(driver.as_str())) {
        let message = format!("--exclusive-storage: {unknown} is no driver of --orphaned-volumes");
        return Err(UsageError::new(message).into());
    }
    let client = options.access.connect().await?;
    let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
    let (mut listed, mut failures) = (BTreeMap::new(), 0);
    for endpoint in &options.orphaned_volumes {
        let calls = csi::Options { call_timeout: options.csi_timeout };
        match CsiClient::new(endpoint.clone(), calls).list_volumes().await {
            Ok(volumes) => {
                let volumes: Vec<StoredVolume> = volumes.into_iter().map(stored).collect();
                listed.insert(endpoint.driver().to_owned(), volumes);
            }
            Err(error) => {
                complain!("error: {error}");
                failures += 1;
            }
        }
    }
    if !listed.is_empty() {
        let report = orphans::ask(&gatherer, &listed, &exclusive).await?;
        gather::warn(&report.unseen);
        output::print(&GarbageAnswer { report }, &options.output)?;
    }
    if failures == 0 { Ok(()) } else { Err(Incomplete.into()) }
}

fn stored(volume: DriverVolume) -> StoredVolume {
    let DriverVolume { handle, bytes, nodes } = volume;
    StoredVolume { handle, bytes, nodes }
}
