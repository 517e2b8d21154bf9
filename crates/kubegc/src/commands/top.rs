//! `kubegc top`: shows what is stuck, deleted and due, live on a terminal.

use std::io::IsTerminal as _;

use clap::Args;
use gc_console::top;
use gc_inspect::attached::AttachFlags;
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::tasks::block_on;

use super::scope::NamespaceFlags;

/// Options of `kubegc top`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc top                                watch all namespaces
  kubegc top -n shop                        watch one namespace
  kubegc top --collector 127.0.0.1:10358    ask the page of `kubegc run --ui-bind-address`
Press ? for the keys.")]
pub(crate) struct TopOptions {
    #[command(flatten)]
    namespaces: NamespaceFlags,
    #[command(flatten)]
    attach: AttachFlags,
    #[command(flatten)]
    access: Access,
}

/// `kubegc top`
pub(crate) fn run(options: &TopOptions) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let message = "kubegc top needs a terminal; `kubegc stuck` prints what is stuck";
        return Err(UsageError::new(message).into());
    }
    let patience = options.access.patience()?;
    block_on(async {
        let client = options.access.connect().await?;
        let asks = options.attach.page(&options.access, &client).await?;
        top::show(client, asks, options.namespaces.namespace(), patience).await
    })
}
