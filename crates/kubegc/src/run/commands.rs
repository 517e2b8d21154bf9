//! `kubegc pause` and `kubegc resume`: orders to a running collector, written to its Lease.

use std::io::Write as _;
use std::sync::Arc;

use clap::Args;
use gc_kube::ApiClient;

use super::LeaseFlags;
use super::control::{self, LeaseName, Orders};
use crate::preflight;
use crate::questions::access::Access;

/// What both share.
#[derive(Clone, Debug, Args)]
struct Target {
    #[command(flatten)]
    lease: LeaseFlags,
    #[command(flatten)]
    access: Access,
}

/// Options of `kubegc pause`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PauseOptions {
    /// Reason, shown by `kubegc doctor` and the log
    #[arg(long, value_name = "TEXT", default_value = "kubegc pause")]
    reason: String,
    /// Pause even if no collector holds the Lease: one that starts later, or runs without leader election, obeys it
    #[arg(long)]
    beforehand: bool,
    #[command(flatten)]
    target: Target,
}

/// Options of `kubegc resume`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResumeOptions {
    /// Resume only this resource, which the circuit breaker has stopped; a pause remains
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Target {
    /// Changes the orders; answers which Lease it was, and the orders before. An error if a collector has to obey them, and
    /// none does.
    fn edit(
        &self,
        needs_collector: bool,
        change: impl Fn(&mut Orders),
    ) -> anyhow::Result<(LeaseName, Orders)> {
        let lease = self.lease.name();
        let before = crate::tasks::block_on(async {
            let client = self.access.connect().await?;
            if needs_collector && !is_obeyed(&client, &lease).await? {
                let LeaseName { namespace, name } = &lease;
                anyhow::bail!(
                    "nothing is paused: no collector holds the Lease {namespace}/{name}, and this server runs none. \
                     Name another Lease with --leader-elect-resource-name, or use --beforehand for a collector that \
                     starts later or runs without leader election"
                );
            }
            anyhow::Ok(control::edit(&client, &lease, change).await?.0)
        });
        Ok((lease, before?))
    }
}

/// Whether a collector obeys a Lease: one holds it, or the server is `kubegc up`, whose collectors obey the default one.
async fn is_obeyed(client: &ApiClient, lease: &LeaseName) -> anyhow::Result<bool> {
    let present = control::read(client, lease).await?;
    let is_held = present.is_some_and(|lease| {
        lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
    });
    Ok(is_held || (*lease == LeaseFlags::default_name() && preflight::has_collectors(client).await))
}

/// `kubegc pause`
pub(crate) fn pause(options: &PauseOptions) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let note = format!("{now}: {}", options.reason);
    let (lease, before) = options.target.edit(!options.beforehand, |orders| {
        orders.paused.get_or_insert(note.clone());
    })?;
    let mut out = crate::screen::stdout();
    match before.paused {
        Some(since) => writeln!(out, "Already paused ({since}).")?,
        None => {
            writeln!(out, "Paused: collectors with the Lease {lease} send nothing until `kubegc resume`.")?;
        }
    }
    Ok(())
}

/// `kubegc resume`
pub(crate) fn resume(options: &ResumeOptions) -> anyhow::Result<()> {
    let resource: Option<Arc<str>> = options.resource.as_ref().map(|name| name.to_lowercase().into());
    let now = jiff::Timestamp::now();
    let (_, before) = options.target.edit(false, |orders| match &resource {
        Some(resource) => {
            if let Some(tripped) = &mut orders.tripped {
                tripped.remove(resource);
            }
        }
        None => orders.resume(now),
    })?;
    if let (None, Some(resource)) = (&before.tripped, &resource) {
        anyhow::bail!(
            "{resource} cannot be resumed alone: the annotation kubegc.io/tripped of the Lease cannot be parsed. Correct it, or \
             resume everything with `kubegc resume`"
        );
    }
    let was_unreadable = before.tripped.is_none();
    let tripped = before.tripped.unwrap_or_default();
    let resumed: Vec<&str> = match &resource {
        Some(resource) => tripped.contains_key(resource).then_some(&**resource).into_iter().collect(),
        None => tripped.keys().map(|resource| &**resource).collect(),
    };
    let mut out = crate::screen::stdout();
    match (&before.paused, &resource) {
        (Some(_), None) => writeln!(out, "Resumed.")?,
        (None, None) if was_unreadable => writeln!(out, "Resumed: what was stopped could not be read.")?,
        (Some(why), Some(_)) => writeln!(out, "Everything is still paused ({why}).")?,
        (None, _) => {}
    }
    if !resumed.is_empty() {
        writeln!(out, "Collection resumed for: {}.", resumed.join(", "))?;
    } else if before.paused.is_none() && !was_unreadable {
        match &resource {
            Some(resource) => writeln!(out, "{resource} was not stopped by the circuit breaker.")?,
            None => writeln!(out, "Nothing was paused or stopped.")?,
        }
    }
    Ok(())
}
