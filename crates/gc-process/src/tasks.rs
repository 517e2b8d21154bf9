//! Asynchronous tasks of the commands.

use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinError;

/// Maximum time by which running tasks may delay the exit of a command.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// Creates a runtime that uses all processors.
pub fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

/// Runs a command to its end. The future is boxed because tokio is compiled again for every type of future that it gets; for the
/// same reason, tasks are spawned `.boxed()`.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let work: LocalBoxFuture<'_, anyhow::Result<T>> = Box::pin(work);
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    done
}

/// Does work that takes a while, such as a response about a large graph, on a thread of its own, where it delays nothing else.
///
/// # Errors
/// Returns an error if the work panicked or the runtime ended.
pub async fn off_thread<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, JoinError>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(work().boxed_local())).await
}
