//! `kubegc restore`: creates a data directory from a backup.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use gc_process::kubeconfig;
use gc_recovery::backup;

/// Options of `kubegc restore`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RestoreOptions {
    /// The file that `kubegc backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data directory to create; it must not hold a store yet [default: that of `kubegc up`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// `kubegc restore`
pub(crate) fn run(options: &RestoreOptions) -> anyhow::Result<()> {
    let folder = match &options.data_dir {
        Some(folder) => folder.clone(),
        None => kubeconfig::default_data_dir()?,
    };
    let restored = backup::restore(&options.file, &folder)?;
    let without =
        if restored.has_keys { "" } else { "; it has no keys: new ones are made, and old tokens are void" };
    writeln!(
        std::io::stdout(),
        "restored {} objects of {} into {}{without}\nstart it with: kubegc up --data-dir {}",
        restored.objects,
        restored.taken_at,
        folder.display(),
        folder.display()
    )?;
    Ok(())
}
