//! `kubegc up --detach` and `kubegc down` where a process cannot leave its terminal: both are refused.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::UsageError;

/// Options of `kubegc down`.
#[derive(Clone, Debug, Args)]
pub struct DownOptions {}

/// Mark of the background process, for as long as it lives. None is ever made.
pub struct Mark(());

impl Mark {
    /// Refuses to take the mark.
    pub fn set(_kubeconfig: &Path, _added: Option<String>) -> anyhow::Result<Self> {
        Err(refused())
    }

    /// Keeps nothing.
    pub fn keep_until_exit(self) {}
}

fn refused() -> anyhow::Error {
    UsageError::new("a server in the background needs Unix: run `kubegc up` in a window of its own, and end it with Ctrl-C").into()
}

/// Refuses to leave the terminal.
pub fn leave_terminal() -> anyhow::Result<()> {
    Err(refused())
}

/// Returns `None`: no server runs in the background.
#[must_use]
pub fn kubeconfig() -> Option<PathBuf> {
    None
}

/// Refuses to start in the background.
pub fn start() -> anyhow::Result<ExitCode> {
    Err(refused())
}

/// Refuses `kubegc down`.
pub fn down(_options: &DownOptions) -> anyhow::Result<()> {
    Err(refused())
}
