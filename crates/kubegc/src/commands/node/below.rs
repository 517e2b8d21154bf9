//! Storage below CRI: the flags, and the account of the disk.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use gc_collectors::images::space::BinaryBytes;
use gc_node::{Cause, CheckpointPolicy, DiskAccount, NodeConfig};
use gc_process::UsageError;
use gc_process::table::Table;
use gc_types::GoDuration;
use serde_json::{Map, Value, json};

use super::output::{Format, write_value};

const HEADING: &str = "Below CRI";

/// The flags about what CRI does not list.
#[derive(Args, Clone, Debug)]
pub(super) struct BelowFlags {
    /// Also remove what nothing refers to below CRI: expired leases, uploads and snapshots that are left behind (containerd only)
    #[arg(long, help_heading = HEADING)]
    below_cri: bool,
    /// Minimum time since the last change of such an upload or snapshot
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "24h")]
    below_cri_minimum_age: String,
    /// Directory of the archives of checkpoints
    #[arg(long, help_heading = HEADING, value_name = "DIR", default_value = "/var/lib/kubelet/checkpoints")]
    checkpoint_dir: PathBuf,
    /// Remove archives of checkpoints that are older; 0s for no limit
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "0s")]
    maximum_checkpoint_age: String,
    /// Remove the oldest archives of a container beyond this number; negative for no limit
    #[arg(long, help_heading = HEADING, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    maximum_checkpoints_per_container: i64,
}

impl BelowFlags {
    /// Adds the flags to the configuration.
    pub(super) fn apply(&self, config: &mut NodeConfig) -> Result<()> {
        let minimum_age = duration("--below-cri-minimum-age", &self.below_cri_minimum_age)?;
        let maximum_age = duration("--maximum-checkpoint-age", &self.maximum_checkpoint_age)?;
        config.below_cri = self.below_cri;
        config.below_cri_minimum_age = minimum_age;
        config.checkpoints = CheckpointPolicy {
            directory: self.checkpoint_dir.clone(),
            maximum_age: (maximum_age > GoDuration::ZERO).then_some(maximum_age),
            most: usize::try_from(self.maximum_checkpoints_per_container).ok(),
        };
        Ok(())
    }
}

fn duration(flag: &str, text: &str) -> Result<GoDuration> {
    match text.parse::<GoDuration>() {
        Ok(duration) if duration >= GoDuration::ZERO => Ok(duration),
        Ok(_) => Err(UsageError::new(format!("{flag} {text:?} is negative")).into()),
        Err(error) => Err(UsageError::new(format!("{flag} {text:?}: {error}")).into()),
    }
}

/// Writes an account of the disk.
pub(super) fn write_account(account: &DiskAccount, format: Format, out: &mut impl Write) -> Result<()> {
    if format.is_for_programs() {
        return write_value(&json!({"disk": account_value(account)}), format, out);
    }
    let mut table = Table::new(&["BYTES", "CAUSE"]);
    let bytes = |bytes: u64| BinaryBytes(bytes).to_string();
    let (explained, found): (Vec<_>, Vec<_>) =
        account.causes.iter().partition(|(cause, _)| Cause::is_explained(**cause));
    for (cause, amount) in explained {
        table.row(vec![bytes(*amount), cause.description().to_owned()]);
    }
    table.row(vec![bytes(account.unexplained_bytes()), "unexplained, of which:".to_owned()]);
    for (cause, amount) in found {
        table.row(vec![bytes(*amount), format!("  {}", cause.description())]);
    }
    table.row(vec![bytes(account.other_bytes()), "  other files on this disk".to_owned()]);
    writeln!(out, "{}: {} used.", account.path, bytes(account.used_bytes))?;
    table.write(out)?;
    let orphans = &account.orphans;
    if !orphans.is_empty() {
        let (ingests, leases) = (orphans.ingests.len(), orphans.leases.len());
        let snapshots = orphans.snapshots.len();
        writeln!(
            out,
            "--below-cri removes {ingests} uploads, {leases} leases and {snapshots} snapshots to which nothing refers."
        )?;
    }
    Ok(())
}

/// Returns an account as a document for programs.
pub(super) fn account_value(account: &DiskAccount) -> Value {
    let causes: Map<String, Value> =
        account.causes.iter().map(|(cause, bytes)| (cause.name().to_owned(), (*bytes).into())).collect();
    let orphans = &account.orphans;
    let snapshots = orphans.snapshots.iter();
    let snapshots = snapshots.map(|(snapshotter, key)| json!({"snapshotter": snapshotter, "key": key}));
    json!({
        "path": account.path, "usedBytes": account.used_bytes, "causes": causes,
        "unexplainedBytes": account.unexplained_bytes(), "otherBytes": account.other_bytes(),
        "orphans": {
            "ingests": orphans.ingests, "leases": orphans.leases, "snapshots": snapshots.collect::<Vec<_>>(),
        },
    })
}
