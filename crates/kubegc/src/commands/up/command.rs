//! `kubegc up -- COMMAND`.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::sync::mpsc;

/// Exit codes that shells, `env` and `timeout` use for a program that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Runs a command with this kubeconfig, and returns its exit code. Forwards a stop signal to it; a second one kills it.
pub(super) async fn run(
    command: &[OsString],
    kubeconfig: &Path,
    stop: &mut mpsc::Receiver<()>,
) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command is given")?;
    let kubeconfig = std::path::absolute(kubeconfig)?;
    let started = tokio::process::Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", &kubeconfig)
        .kill_on_drop(true)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            // Returning an error would exit with 1, as failed tests do.
            writeln!(std::io::stderr(), "error: cannot run {}: {error}", program.display())?;
            let is_absent = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_absent { NOT_FOUND } else { NOT_EXECUTABLE }));
        }
    };
    let mut is_asked = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            Some(()) = stop.recv() => {
                gc_host::end_process(&mut child, is_asked);
                is_asked = true;
            }
        }
    };
    Ok(gc_host::exit_code(status)
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
