//! `kubegc man`: man pages, generated from the command line.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};

/// Options of `kubegc man`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManOptions {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes one page per command.
pub(crate) fn run(command: Command, options: &ManOptions) -> anyhow::Result<()> {
    let folder = &options.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("cannot write into {}", folder.display()))
}
