//! `kubegc backup`: saves the objects of an embedded server, and its keys.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use gc_process::access::Access;
use gc_process::kubeconfig;
use gc_recovery::backup;

/// Options of `kubegc backup`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BackupOptions {
    /// File to write (mode 0600: it contains every Secret)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Save the keys of this data directory, too, and read its store directly if no server runs on it
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    access: Access,
}

/// `kubegc backup`
pub(crate) fn run(options: &BackupOptions) -> anyhow::Result<()> {
    ensure!(
        options.force || !options.file.exists(),
        "{} exists; say --force to replace it, or name another file",
        options.file.display()
    );
    let access = server_access(options);
    let saved = backup::save(&options.file, options.data_dir.as_deref(), async || access.connect().await)?;
    let file = options.file.display();
    let keys = if saved.has_keys { "" } else { "; keys are not in it: say --data-dir DIR to save them, too" };
    writeln!(
        std::io::stdout(),
        "saved {} objects at revision {} to {file}{keys}",
        saved.objects,
        saved.revision
    )?;
    Ok(())
}

/// Returns how to reach the server. By default, the server on a data directory is the one that left its kubeconfig there.
fn server_access(options: &BackupOptions) -> Access {
    let mut access = options.access.clone();
    let left = options.data_dir.as_ref().map(|folder| folder.join(kubeconfig::FILE_NAME));
    access.kubeconfig = access.kubeconfig.or_else(|| left.filter(|file| file.exists()));
    access
}
