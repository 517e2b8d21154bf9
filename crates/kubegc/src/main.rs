//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod apiserver;
mod collectors;
mod demo;
mod logging;
mod namespaces;
mod node;
mod operations;
mod up;

/// Kubernetes garbage collection, with an embedded API server to see it at work.
#[derive(Debug, Parser)]
#[command(name = "kubegc", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The embedded Kubernetes-compatible API server, alone
    Apiserver(apiserver::Options),
    /// Image and container collection on this node, over a CRI socket
    Node(Box<node::NodeOptions>),
    /// The embedded API server with all cluster collectors, in one process
    Up(up::Options),
    /// Build a shop on an ephemeral server, play three kinds of deletion on it, and check how they end
    Demo(demo::Options),
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Apiserver(options) => apiserver::run(&options),
        Command::Node(options) => node::run(*options),
        Command::Up(options) => up::run(&options),
        Command::Demo(options) => demo::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Options or a configuration that make no sense: ends with exit code 2, as clap's own errors do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

impl UsageError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
