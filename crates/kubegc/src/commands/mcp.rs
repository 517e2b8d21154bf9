//! `kubegc mcp`: serves the queries as tools of the Model Context Protocol, over standard input and output. It changes nothing.

mod arguments;
mod tools;

use anyhow::Context as _;
use clap::Args;
use gc_inspect::sources::JournalFlags;
use gc_process::access::Access;
use gc_process::tasks::block_on;
use rmcp::ServiceExt as _;
use rmcp::transport::async_rw::AsyncRwTransport;

use tools::Tools;

/// Maximum size of a client's message, in bytes; queries are short.
const LONGEST_MESSAGE: usize = 1 << 20;

/// Options of `kubegc mcp`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc mcp                              serve the cluster of the kubeconfig's context
  kubegc mcp --context prod --as viewer   serve another one, with the rights of another user

A program that uses the protocol starts this command, and speaks to it over standard input and output. The tools are stuck, why, tree, plan, garbage and journal. They have the rights of the kubeconfig's user, change nothing, and never show what is in a Secret.")]
pub(crate) struct McpOptions {
    #[command(flatten)]
    journal: JournalFlags,
    #[command(flatten)]
    access: Access,
}

/// `kubegc mcp`
pub(crate) fn run(options: &McpOptions) -> anyhow::Result<()> {
    block_on(async {
        let tools = Tools::new(options.access.clone(), options.journal.clone()).await?;
        let (input, output) = rmcp::transport::io::stdio();
        let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(LONGEST_MESSAGE);
        let server = tools.serve(transport).await.context("the client did not begin the protocol")?;
        server.waiting().await.context("the server ended early")?;
        Ok(())
    })
}
