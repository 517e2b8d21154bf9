//! A command that knows the machines, run once per lookup.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use gc_collectors::engine::MachineState;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use crate::cloud::protocol::{self, AnswerError};
use crate::cloud::{MAX_ANSWER_BYTES, Machine, Provider, ProviderError, shortened};

/// Maximum number of concurrent commands.
const COMMANDS_AT_A_TIME: usize = 8;
/// Maximum number of bytes of a command's standard error that are kept; the rest is read and dropped.
const MAX_ERROR_BYTES: u64 = 4 << 10;

/// Reason why a command gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The path is not absolute.
    #[error("command {0}: expected an absolute path")]
    Relative(PathBuf),
    /// Cannot be started.
    #[error("command {path}: {error}")]
    Start {
        /// The command.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// Did not finish in time, and was killed with all processes that it had started.
    #[error("command {path}: not done within {limit:?}")]
    Timeout {
        /// The command.
        path: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// Its output is larger than any valid answer.
    #[error("command {0}: the answer is larger than 64 KiB")]
    TooLarge(PathBuf),
    /// Failed.
    #[error("command {path}: {status}: {text}")]
    Failed {
        /// The command.
        path: PathBuf,
        /// Exit status of the command.
        status: std::process::ExitStatus,
        /// The beginning of its standard error.
        text: String,
    },
    /// Its output is not an answer to the lookup.
    #[error("command {path}: {error}")]
    Answer {
        /// The command.
        path: PathBuf,
        /// The error.
        error: AnswerError,
    },
}

/// A command.
#[derive(Debug)]
pub struct Exec {
    path: PathBuf,
    arguments: Vec<String>,
    timeout: Duration,
    places: Arc<Semaphore>,
}

/// A process that is killed with its whole group if this is dropped before it has ended.
struct Group(Child);

impl Group {
    fn id(&self) -> Option<Pid> {
        self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    fn kill(&self) {
        // `None` once its status was taken.
        if let Some(group) = self.id() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Waits for the end of the process, and kills the processes that it left behind, which may hold its output open.
    async fn end(&self) -> std::io::Result<()> {
        let Some(id) = self.id() else { return Ok(()) };
        // It is not reaped yet, so its number cannot belong to another group.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let wait = move || rustix::io::retry_on_intr(|| waitid(WaitId::Pid(id), options));
        tokio::task::spawn_blocking(wait).await.map_err(std::io::Error::other)??;
        // There may be nothing left.
        let _ = kill_process_group(id, Signal::KILL);
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a stream to its end, so that its writer never fails, and keeps the beginning.
async fn beginning(stream: Option<impl AsyncRead + Unpin>, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(limit).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(kept)
}

impl Exec {
    /// Creates a command, which runs without a shell.
    pub fn new(path: PathBuf, arguments: Vec<String>, timeout: Duration) -> Result<Self, ExecError> {
        if !path.is_absolute() {
            return Err(ExecError::Relative(path));
        }
        Ok(Self { path, arguments, timeout, places: Arc::new(Semaphore::new(COMMANDS_AT_A_TIME)) })
    }

    async fn ask(&self, machine: &Machine) -> Result<MachineState, ExecError> {
        let start = |error| ExecError::Start { path: self.path.clone(), error };
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(start)?;
        let mut group = Group(child);
        let (input, output, errors) = (group.0.stdin.take(), group.0.stdout.take(), group.0.stderr.take());
        let question = protocol::question(machine);
        let say = async {
            if let Some(mut input) = input {
                // The command need not read its input.
                let _ = input.write_all(question.as_bytes()).await;
            }
        };
        let receive = async {
            let mut said = Vec::new();
            if let Some(mut output) = output {
                (&mut output).take(MAX_ANSWER_BYTES as u64 + 1).read_to_end(&mut said).await?;
            }
            if said.len() > MAX_ANSWER_BYTES {
                // It may never end, and its output is not an answer.
                group.kill();
            }
            std::io::Result::Ok(said)
        };
        let complaints = beginning(errors, MAX_ERROR_BYTES);
        let ((), said, complained, ended) = tokio::join!(say, receive, complaints, group.end());
        ended.map_err(start)?;
        let said = said.map_err(start)?;
        // If it cannot be read, the error just lacks it.
        let complained = complained.unwrap_or_default();
        if said.len() > MAX_ANSWER_BYTES {
            return Err(ExecError::TooLarge(self.path.clone()));
        }
        let status = group.0.wait().await.map_err(start)?;
        if !status.success() {
            let text = shortened(&String::from_utf8_lossy(&complained));
            return Err(ExecError::Failed { path: self.path.clone(), status, text });
        }
        protocol::answer(machine, &said).map_err(|error| ExecError::Answer { path: self.path.clone(), error })
    }
}

impl Provider for Exec {
    fn look_up(&self, machine: Machine) -> BoxFuture<'_, Result<MachineState, ProviderError>> {
        Box::pin(async move {
            // The semaphore is never closed.
            let _place = self.places.acquire().await;
            let limit = self.timeout;
            let answer = tokio::time::timeout(limit, self.ask(&machine)).await;
            Ok(answer.unwrap_or_else(|_| Err(ExecError::Timeout { path: self.path.clone(), limit }))?)
        })
    }
}
