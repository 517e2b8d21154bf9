//! Containers that are being stopped. A grace period may be long (an hour for a database, a year by mistake), and the agent has a
//! single loop: a pass waits a moment, and a later one removes the container once it has ended.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use gc_collectors::containers::ContainerId;
use gc_cri::CriClient;
use tokio::sync::oneshot;
use tracing::warn;

/// Time that a pass waits for a container to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that a process with a single pass waits.
const PATIENCE_ONCE: Duration = Duration::from_mins(5);
/// Maximum number of containers that are being stopped; others wait for a later pass.
const MAX_STOPS: usize = 64;

/// Containers that are being stopped.
#[derive(Debug)]
pub(crate) struct Stops {
    under_way: Arc<Mutex<BTreeSet<ContainerId>>>,
    patience: Duration,
}

impl Default for Stops {
    fn default() -> Self {
        Self { under_way: Arc::default(), patience: PATIENCE }
    }
}

fn lock(under_way: &Mutex<BTreeSet<ContainerId>>) -> MutexGuard<'_, BTreeSet<ContainerId>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stops {
    /// Waits longer, because no later pass of this process will remove the container.
    pub(crate) fn wait_longer(&mut self) {
        self.patience = PATIENCE_ONCE;
    }

    /// Reports whether a container is being stopped.
    pub(crate) fn includes(&self, container: &ContainerId) -> bool {
        lock(&self.under_way).contains(container)
    }

    /// Stops a container, and waits a moment for it. Fails if stopping failed or has not ended yet.
    pub(crate) async fn stop(
        &self,
        client: &CriClient,
        container: &ContainerId,
        grace_period_seconds: i64,
    ) -> Result<()> {
        {
            let mut under_way = lock(&self.under_way);
            if under_way.len() >= MAX_STOPS {
                bail!("{MAX_STOPS} other containers are being stopped; a later pass stops it");
            }
            under_way.insert(container.clone());
        }
        let (report, reported) = oneshot::channel();
        let (client, id, under_way) = (client.clone(), container.clone(), Arc::clone(&self.under_way));
        tokio::spawn(async move {
            let stopped = client.stop_container(&id, grace_period_seconds).await;
            lock(&under_way).remove(&id);
            // The receiver is gone if the pass has ended.
            if let Err(Err(error)) = report.send(stopped) {
                warn!(container = %id, "not stopped: {error}");
            }
        });
        match tokio::time::timeout(self.patience, reported).await {
            Ok(Ok(stopped)) => Ok(stopped?),
            _ => bail!(
                "it is being stopped, with a grace period of {grace_period_seconds} s; a later pass removes it"
            ),
        }
    }
}
