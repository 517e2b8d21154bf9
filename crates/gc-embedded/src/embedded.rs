//! The embedded cluster as a library: what `kubegc up` runs, for the crate `kubegc-testing`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gc_apiserver::InProcess;
use gc_kube::ApiClient;
use gc_registry::storage::{RangeAnswer, RangeOptions};
use gc_store::MemoryStorage;
use serde_json::Value;

use crate::apiserver::ServerOptions;
use crate::clock::CollectorClock;
use crate::up::Up;
use crate::workloads::WorkloadOptions;
use gc_process::activity::{Activity, Going, Movement};
use gc_process::collectors::{ControllerOptions, Surroundings};

/// The name under which requests of the cluster's users are counted.
const CLIENTS: &str = "clients";

/// Whether a path and query ask for a watch, whose answer does not end.
#[must_use]
pub fn is_watch(uri: &http::Uri) -> bool {
    gc_process::activity::is_watch(uri)
}

/// Why an embedded cluster does not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct EmbeddedError(#[from] anyhow::Error);

/// What a cluster is started from: which collectors run, what is stored, and how far the collectors' clock is ahead.
#[derive(Clone, Debug)]
pub struct Beginning {
    controllers: Vec<String>,
    store: Arc<MemoryStorage>,
    /// Milliseconds.
    ahead: i64,
}

impl Beginning {
    /// Nothing is stored. The collectors are named in the words of `--controllers`; `["*"]` is all of them.
    #[must_use]
    pub fn empty(controllers: Vec<String>) -> Self {
        Self { controllers, store: Arc::default(), ahead: 0 }
    }

    /// The same with other collectors.
    #[must_use]
    pub fn with_controllers(self, controllers: &[&str]) -> Self {
        Self { controllers: controllers.iter().map(|word| (*word).to_owned()).collect(), ..self }
    }
}

/// A server with its collectors, in memory. Must be used within the tokio runtime that it was started in.
pub struct EmbeddedCluster {
    up: Up,
    controllers: Vec<String>,
    clients: Arc<Movement>,
}

impl std::fmt::Debug for EmbeddedCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedCluster").field("address", &self.up.server.address()).finish_non_exhaustive()
    }
}

/// Counts requests of clients, so that settling waits for them.
#[derive(Clone)]
pub struct ClientRequests(Arc<Movement>);

impl std::fmt::Debug for ClientRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientRequests")
    }
}

/// A request of a client, on its way until this is dropped.
pub struct ClientRequest {
    _going: Going,
}

impl std::fmt::Debug for ClientRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientRequest")
    }
}

impl ClientRequests {
    /// A request is sent.
    #[must_use]
    pub fn begin(&self) -> ClientRequest {
        ClientRequest { _going: self.0.request() }
    }

    /// A watch has brought something.
    pub fn brought(&self) {
        self.0.happened();
    }
}

impl EmbeddedCluster {
    /// Starts a server with its collectors.
    pub async fn start(beginning: Beginning) -> Result<Self, EmbeddedError> {
        let Beginning { controllers, store, ahead } = beginning;
        let activity = Activity::default();
        let clients = activity.named(CLIENTS);
        let server = ServerOptions { prepared: Some(store), ..ServerOptions::in_process() };
        let settings = ControllerOptions { controllers: controllers.clone(), ..ControllerOptions::default() };
        let surroundings = Surroundings { activity, ..Surroundings::default() };
        let clock = CollectorClock::default();
        clock.set(ahead);
        let up =
            Up::start(&server, &settings, &WorkloadOptions::off(), None, &clock, surroundings, None).await?;
        Ok(Self { up, controllers, clients })
    }

    /// What another cluster with the same objects, collectors and clock can be started from. The stored values are shared, not
    /// copied.
    pub fn fork(&self) -> Result<Beginning, EmbeddedError> {
        let stored = self.up.server.registry().stored(&RangeOptions::default());
        let RangeAnswer { items, revision, .. } = stored.context("cannot read what is stored")?;
        Ok(Beginning {
            controllers: self.controllers.clone(),
            store: Arc::new(MemoryStorage::with_items(revision, items)),
            ahead: self.up.control.clock().ahead(),
        })
    }

    /// The service as an administrator of this name.
    #[must_use]
    pub fn in_process(&self, user: &str) -> InProcess {
        self.up.server.in_process(user)
    }

    /// The service as a user of these groups, who may do what roles allow.
    #[must_use]
    pub fn in_process_as(&self, user: &str, groups: &[&str]) -> InProcess {
        self.up.server.in_process_as(user, groups)
    }

    /// The counter of requests of clients.
    #[must_use]
    pub fn client_requests(&self) -> ClientRequests {
        ClientRequests(Arc::clone(&self.clients))
    }

    /// The kubeconfig of the administrator, over TLS. The server listens from then on.
    pub fn kubeconfig(&self) -> Result<String, EmbeddedError> {
        self.up.server.listen().map_err(anyhow::Error::from)?;
        Ok(self.up.server.credentials().kubeconfig())
    }

    /// Sets the clock of the collectors ahead.
    pub fn advance(&self, by: Duration) {
        self.up.control.clock().advance(by);
    }

    /// Waits until no collector has anything left to do. `rest` returns when everything that can run in the runtime has
    /// run; the error says who is still moving after `patience`.
    pub async fn settle<R: Future<Output = ()>>(
        &self,
        patience: Duration,
        rest: impl Fn() -> R,
    ) -> Result<(), Vec<String>> {
        self.up.control.settle(patience, rest).await
    }

    /// What `kubegc stuck -o json` answers.
    pub async fn stuck(&self, patience: Duration) -> Result<Value, EmbeddedError> {
        let way = self.up.server.in_process("kubegc");
        let client = ApiClient::in_process(move |request| way.call(request));
        Ok(gc_inspect::stuck::stuck_in(client, patience).await?)
    }

    /// Stops the collectors, then the server.
    pub async fn shutdown(self) {
        self.up.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[tokio::test]
    async fn a_cluster_that_has_ended_is_gone_from_memory() {
        let beginning = Beginning {
            controllers: vec!["*".to_owned()],
            store: Arc::new(MemoryStorage::default()),
            ahead: 0,
        };
        let cluster = EmbeddedCluster::start(beginning).await.unwrap();
        let server = cluster.in_process("tester").downgrade();
        assert!(server.upgrade().is_some());
        cluster.shutdown().await;
        // Work on other threads may end a moment later.
        let is_gone = async {
            while server.upgrade().is_some() {
                tokio::task::yield_now().await;
            }
        };
        let gone = tokio::time::timeout(Duration::from_secs(30), is_gone).await;
        assert!(gone.is_ok(), "something that the server keeps keeps the server");
    }
}
