//! `kubegc completion`: shell completions, generated from the command line.

use std::io::Write as _;

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

/// Writes the completion script of a shell to standard output. In these three shells the script calls this program, which also
/// completes the names of objects.
pub(crate) fn run(mut command: Command, options: &CompletionOptions) -> anyhow::Result<()> {
    let mut text = Vec::new();
    match options.shell {
        Shell::Bash => text.extend_from_slice(include_bytes!("completion/kubegc.bash")),
        Shell::Zsh => text.extend_from_slice(include_bytes!("completion/kubegc.zsh")),
        Shell::Fish => text.extend_from_slice(include_bytes!("completion/kubegc.fish")),
        shell => clap_complete::generate(shell, &mut command, "kubegc", &mut text),
    }
    std::io::stdout().write_all(&text)?;
    Ok(())
}
