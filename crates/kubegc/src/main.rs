//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod apiserver;
mod clock;
mod collector_metrics;
mod collectors;
mod demo;
mod logging;
mod namespaces;
mod node;
mod operations;
mod outside;
mod questions;
mod run;
mod table;
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
    Up(Box<up::Options>),
    /// The owner-reference collector on any cluster, in place of kube-controller-manager's
    Run(Box<run::Options>),
    /// What hangs on an object, as a tree
    Tree(questions::TreeOptions),
    /// Why an object is, or is not, collected
    Why(questions::WhyOptions),
    /// What does not get on, and why
    Stuck(questions::StuckOptions),
    /// What would happen, without doing it
    #[command(subcommand)]
    Plan(questions::PlanCommand),
    /// Build a shop on an ephemeral server, play three kinds of deletion on it, and check how they end
    Demo(demo::Options),
}

/// Reads the command line. Called `kubectl-gc`, the binary is kubectl's plugin, and its help says so.
fn command_line() -> CommandLine {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_plugin = std::path::Path::new(&called)
        .file_stem()
        .is_some_and(|name| name == "kubectl-gc" || name == "kubectl_gc");
    if !is_plugin {
        return CommandLine::parse();
    }
    let matches = CommandLine::command().bin_name("kubectl gc").get_matches();
    CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn main() -> ExitCode {
    let done = match command_line().command {
        Command::Apiserver(options) => apiserver::run(&options),
        Command::Node(options) => node::run(*options),
        Command::Up(options) => up::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Tree(options) => questions::tree(&options),
        Command::Why(options) => questions::why(&options),
        Command::Stuck(options) => questions::stuck(&options),
        Command::Plan(command) => questions::plan(&command),
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
