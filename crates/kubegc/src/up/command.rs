//! `kubegc up -- COMMAND`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;

/// What shells add to the number of a signal that ended a command.
const ENDED_BY_SIGNAL: i32 = 128;

/// Runs a command with this kubeconfig, and answers its exit code. A signal to stop is passed on to it.
pub(super) async fn run(
    command: &[OsString],
    kubeconfig: &Path,
    stop: &mut mpsc::Receiver<()>,
) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command is given")?;
    let kubeconfig = std::path::absolute(kubeconfig)?;
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", &kubeconfig)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            Some(()) = stop.recv() => {
                let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
                // It may have ended just now.
                let _ = id.map(|id| kill_process(id, Signal::TERM));
            }
        }
    };
    let code = status.code().or_else(|| status.signal().map(|signal| ENDED_BY_SIGNAL + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
