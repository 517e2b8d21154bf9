//! The embedded cluster as a library: what `kubegc up` runs, for the crate `kubegc-testing`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gc_apiserver::InProcess;
use gc_kube::ApiClient;
use serde_json::Value;

use crate::activity::{Activity, Going, Movement};
use crate::apiserver::ServerOptions;
use crate::clock::CollectorClock;
use crate::collectors::{ControllerOptions, Surroundings};
use crate::up::Up;
use crate::workloads::WorkloadOptions;

/// The name under which requests of the cluster's users are counted.
const CLIENTS: &str = "clients";

/// Whether a path and query ask for a watch, whose answer does not end.
#[must_use]
pub fn is_watch(uri: &http::Uri) -> bool {
    crate::activity::is_watch(uri)
}

/// Why an embedded cluster does not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct EmbeddedError(#[from] anyhow::Error);

/// A server with its collectors, in memory. Must be used within the tokio runtime that it was started in.
pub struct EmbeddedCluster {
    up: Up,
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
    /// Starts with these collectors, in the words of `--controllers` (`["*"]` is all of them).
    pub async fn start(controllers: &[String]) -> Result<Self, EmbeddedError> {
        let activity = Activity::default();
        let clients = activity.named(CLIENTS);
        let server = ServerOptions::ephemeral(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let settings =
            ControllerOptions { controllers: controllers.to_vec(), ..ControllerOptions::default() };
        let surroundings = Surroundings { activity, ..Surroundings::default() };
        let up = Up::start(
            &server,
            &settings,
            &WorkloadOptions::off(),
            None,
            &CollectorClock::default(),
            surroundings,
        )
        .await?;
        Ok(Self { up, clients })
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

    /// The kubeconfig of the administrator, over TLS.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.up.server.credentials().kubeconfig()
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
        Ok(crate::questions::stuck_in(client, patience).await?)
    }

    /// Stops the collectors, then the server.
    pub async fn shutdown(self) {
        self.up.shutdown().await;
    }
}
