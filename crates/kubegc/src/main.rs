//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod apiserver;
mod logging;

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
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Apiserver(options) => apiserver::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
