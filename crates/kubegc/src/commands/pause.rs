//! `kubegc pause`: stops all requests of the collectors with a Lease.

use std::io::Write as _;

use clap::Args;
use gc_process::screen;

use super::orders::Target;

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

/// `kubegc pause`
pub(crate) fn run(options: &PauseOptions) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let note = format!("{now}: {}", options.reason);
    let (lease, before) = options.target.edit(!options.beforehand, |orders| {
        orders.paused.get_or_insert(note.clone());
    })?;
    let mut out = screen::stdout();
    match before.paused {
        Some(since) => writeln!(out, "Already paused ({since}).")?,
        None => {
            writeln!(out, "Paused: collectors with the Lease {lease} send nothing until `kubegc resume`.")?;
        }
    }
    Ok(())
}
