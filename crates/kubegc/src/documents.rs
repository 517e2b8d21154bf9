//! Documentation generated from the command line: shell completions and man pages.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

/// Options of `kubegc completion`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  source <(kubegc completion bash)                                      for this shell
  kubegc completion fish > ~/.config/fish/completions/kubegc.fish       for all
bash, zsh and fish complete names of objects, too. For `kubectl gc`, link the binary as kubectl_complete-gc in a folder on $PATH.")]
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

/// Writes the completions of a shell to the output. In these three shells the program completes itself, with names of objects.
pub(crate) fn completion(mut command: Command, options: &CompletionOptions) -> anyhow::Result<()> {
    let mut text = Vec::new();
    match options.shell {
        Shell::Bash => text.extend_from_slice(include_bytes!("completions/kubegc.bash")),
        Shell::Zsh => text.extend_from_slice(include_bytes!("completions/kubegc.zsh")),
        Shell::Fish => text.extend_from_slice(include_bytes!("completions/kubegc.fish")),
        shell => clap_complete::generate(shell, &mut command, "kubegc", &mut text),
    }
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
