//! `kubegc resume`: resumes collection after a pause or a trip of the circuit breaker.

use std::io::Write as _;
use std::sync::Arc;

use clap::Args;
use gc_process::screen;

use super::orders::Target;

/// Options of `kubegc resume`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResumeOptions {
    /// Resume only this resource, which the circuit breaker has stopped; a pause remains
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// `kubegc resume`
pub(crate) fn run(options: &ResumeOptions) -> anyhow::Result<()> {
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
    let mut out = screen::stdout();
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
