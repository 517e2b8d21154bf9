//! A command that knows the machines, run once per lookup.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use gc_collectors::engine::MachineState;
use gc_host::ProcessGroup;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
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
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = ProcessGroup::spawn(&mut command).map_err(start)?;
        let child = group.leader();
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
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
        let status = group.leader().wait().await.map_err(start)?;
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
