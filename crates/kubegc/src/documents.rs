//! Documentation generated from the command line: shell completions and man pages.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

/// Options of `kubegc completion`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionOptions {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of `kubegc man`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManOptions {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the completions of a shell to the output.
pub(crate) fn completion(mut command: Command, options: &CompletionOptions) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut command, "kubegc", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(())
}

/// Writes one page for each command.
pub(crate) fn man(command: Command, options: &ManOptions) -> anyhow::Result<()> {
    let folder = &options.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("cannot write into {}", folder.display()))
}
