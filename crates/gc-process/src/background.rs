//! `kubegc up --detach` and `kubegc down`: a background server, one for each user.
//!
//! The background process holds a lock on a file as long as it lives, and writes its identity and the location of its kubeconfig
//! into it. A process number is thus never mistaken for that of another process, and a crash leaves nothing to clean up.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::private_files;

/// Number of the log's last lines that are shown when the start fails.
const SHOWN_LOG_LINES: usize = 20;
/// Maximum time for the process to end, and the interval of the checks.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Maximum time that a process may hold the lock before it writes its identity or after it has removed it.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);
/// Largest mark that is read.
const MAXIMUM_MARK_BYTES: u64 = 64 * 1024;

/// Options of `kubegc down`.
#[derive(Clone, Debug, Args)]
pub struct DownOptions {}

/// A process in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Background {
    process: i32,
    kubeconfig: PathBuf,
    /// Address of the server, if it has added itself to a kubeconfig that was named.
    #[serde(default)]
    added: Option<String>,
}

/// Files of the background server, readable only by its user.
struct Place(PathBuf);

impl Place {
    fn of_user() -> anyhow::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        let user = rustix::process::geteuid().as_raw();
        let folder = match runtime {
            Some(folder) => PathBuf::from(folder).join("kubegc"),
            None => std::env::temp_dir().join(format!("kubegc-of-{user}")),
        };
        private_files::create_directory(&folder)?;
        let metadata = std::fs::symlink_metadata(&folder)?;
        // In a directory that all users can write to, another user may have created the file.
        anyhow::ensure!(
            metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o777 == 0o700,
            "{} is not a private directory of this user; remove it, or set $XDG_RUNTIME_DIR",
            folder.display()
        );
        Ok(Self(folder))
    }

    fn open_mark(&self) -> anyhow::Result<File> {
        let path = self.0.join("up.json");
        private_files::open(File::options().read(true).write(true), &path)
            .with_context(|| format!("cannot open {}", path.display()))
    }

    fn log(&self) -> PathBuf {
        self.0.join("up.log")
    }

    /// Returns the process that holds the lock, if any.
    fn running(&self) -> anyhow::Result<Option<Background>> {
        let mut text = String::new();
        // A process that is starting or ending holds the lock on an empty file for a moment.
        let deadline = Instant::now() + WRITE_PATIENCE;
        while text.is_empty() && Instant::now() < deadline {
            let file = self.open_mark()?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(None);
            }
            file.take(MAXIMUM_MARK_BYTES).read_to_string(&mut text)?;
            if text.is_empty() {
                std::thread::sleep(LOOK_PERIOD);
            }
        }
        serde_json::from_str(&text).map(Some).with_context(|| {
            format!(
                "{} is locked by another process, and does not say which",
                self.0.join("up.json").display()
            )
        })
    }
}

/// Mark of the background process, for as long as it lives.
pub struct Mark(File);

impl Mark {
    /// Takes the mark; `added` is the address of the server if its kubeconfig is one that was named.
    pub fn set(kubeconfig: &Path, added: Option<String>) -> anyhow::Result<Self> {
        let mut file = Place::of_user()?.open_mark()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .context("another server runs in the background; stop it with `kubegc down`")?;
        let process = i32::try_from(std::process::id()).context("the number of this process")?;
        let kubeconfig = std::path::absolute(kubeconfig)?;
        let text = serde_json::to_string(&Background { process, kubeconfig, added })?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        Ok(Self(file))
    }

    /// Keeps the lock until the system ends the process and releases its other files, such as those of the data directory: then
    /// `kubegc down` returns, and another server can start.
    pub fn keep_until_exit(self) {
        // The lock is what counts: a server that is locked and empty is ending.
        let _ = self.0.set_len(0);
        let _descriptor = self.0.into_raw_fd();
    }
}

/// Detaches from the terminal, whose signals are not meant for a background process.
pub fn leave_terminal() -> anyhow::Result<()> {
    rustix::process::setsid().context("cannot leave the terminal")?;
    Ok(())
}

/// Returns the kubeconfig of the background server, if one runs.
#[must_use]
pub fn kubeconfig() -> Option<PathBuf> {
    Some(Place::of_user().ok()?.running().ok()??.kubeconfig)
}

/// Starts this program again with the same arguments in the background, and waits until it is ready.
pub fn start() -> anyhow::Result<ExitCode> {
    let place = Place::of_user()?;
    if let Some(running) = place.running()? {
        anyhow::bail!(
            "a server is already running in the background (process {}); stop it with `kubegc down`",
            running.process
        );
    }
    let log_path = place.log();
    let log = private_files::open(File::options().write(true).truncate(true), &log_path)
        .with_context(|| format!("cannot write {}", log_path.display()))?;
    let arguments = std::env::args_os().skip(1).map(|argument| match argument.to_str() {
        Some("--detach") => "--detached".into(),
        _ => argument,
    });
    let mut child = std::process::Command::new(std::env::current_exe().context("where this program is")?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start in the background")?;
    let mut printed = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            printed.push(line?);
            if printed.last().is_some_and(|line| line.starts_with("kubegc API server is ready")) {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{}", printed.join("\n"))?;
                writeln!(
                    out,
                    "It runs in the background: `kubegc down` stops it, its log is {}",
                    log_path.display()
                )?;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    let status = child.wait()?;
    let text = std::fs::read_to_string(&log_path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LOG_LINES)..] {
        eprintln!("{line}");
    }
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs `kubegc down`: stops the background server and waits until it has ended.
pub fn down(_options: &DownOptions) -> anyhow::Result<()> {
    let place = Place::of_user()?;
    let Some(running) = place.running()? else {
        writeln!(std::io::stdout(), "No server runs in the background.")?;
        return Ok(());
    };
    let process = Pid::from_raw(running.process).context("the mark names no process")?;
    kill_process(process, Signal::TERM)
        .with_context(|| format!("cannot stop process {}", running.process))?;
    let deadline = Instant::now() + STOP_PATIENCE;
    while !matches!(place.running(), Ok(None)) {
        anyhow::ensure!(Instant::now() < deadline, "process {} does not end", running.process);
        std::thread::sleep(LOOK_PERIOD);
    }
    writeln!(std::io::stdout(), "The server in the background has ended.")?;
    match &running.added {
        Some(server) => crate::kubeconfig::remove(&running.kubeconfig, server),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// A server that is ending empties its mark before it releases the lock. Until then it is running, which is not a failure.
    #[test]
    fn a_mark_that_is_empty_for_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place(folder.path().to_owned());
        assert_eq!(place.running().unwrap(), None);
        let mut held = place.open_mark().unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let known = Background { process: 7, kubeconfig: "k".into(), added: None };
        let (looking, written) = std::thread::scope(|scope| {
            let looking = scope.spawn(|| place.running());
            std::thread::sleep(3 * LOOK_PERIOD);
            let written = held.write_all(serde_json::to_string(&known).unwrap().as_bytes());
            (looking.join().unwrap(), written)
        });
        written.unwrap();
        assert_eq!(looking.unwrap(), Some(known));
        drop(held);
        assert_eq!(place.running().unwrap(), None);
    }
}
