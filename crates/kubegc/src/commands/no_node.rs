//! `kubegc node` where there is no agent: refused.

use clap::Args;
use gc_metrics::Catalogue;
use gc_process::UsageError;

/// Collect unused images and dead containers on a node; not on this system
#[derive(Args, Debug)]
pub(crate) struct NodeOptions {
    /// Anything that the command takes elsewhere
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<String>,
}

/// Registers no metrics: there is no agent.
pub(crate) fn register_metrics(_catalogue: &mut Catalogue) {}

/// Refuses `kubegc node`.
pub(crate) fn run(_options: NodeOptions) -> anyhow::Result<()> {
    Err(UsageError::new(
        "kubegc node needs a node with Linux: it collects over the socket of a container runtime",
    )
    .into())
}
