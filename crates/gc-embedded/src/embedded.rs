//! The embedded cluster as a library: the same as `kubegc up`, for the crate `kubegc-testing`.
//!
//! The first cluster of a process creates what every cluster contains, and each further one with the same collectors begins with
//! that. So does a fork, unless somebody has changed part of it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use gc_apiserver::{InProcess, SharedReadings};
use gc_kube::ApiClient;
use gc_registry::CompiledDefinitions;
use gc_registry::storage::RangeOptions;
use serde_json::Value;

use crate::apiserver::ServerOptions;
use crate::clock::CollectorClock;
use crate::up::Up;
use crate::up::reset::Contents;
use crate::workloads::WorkloadOptions;
use gc_process::activity::{Activity, ActivityTracker, InFlightGuard};
use gc_process::collectors::{ControllerOptions, Surroundings};

/// Name under which requests of the cluster's users are counted.
const CLIENTS: &str = "clients";

/// Reports whether a path and query request a watch, whose response does not end.
#[must_use]
pub fn is_watch(uri: &http::Uri) -> bool {
    gc_process::activity::is_watch(uri)
}

/// Reason why an embedded cluster did not do what was requested.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct EmbeddedError(#[from] anyhow::Error);

/// Maximum number of sets of collectors whose initial contents are kept.
const MOST_BEGINNINGS: usize = 8;
/// What the first cluster with these collectors contained when it had begun.
static BEGUN: LazyLock<Mutex<BTreeMap<Controllers, Contents>>> = LazyLock::new(Mutex::default);
/// What the definitions of all clusters compile to.
static COMPILED: LazyLock<Arc<CompiledDefinitions>> = LazyLock::new(Arc::default);
/// Readings of the objects that all clusters share.
static READINGS: LazyLock<Arc<SharedReadings>> = LazyLock::new(Arc::default);

/// The enabled collectors in the words of `--controllers`, and the workload controllers.
type Controllers = (Vec<String>, WorkloadOptions);

/// Start of a cluster: the enabled collectors, the stored objects, and the lead of the collectors' clock.
#[derive(Clone, Debug)]
pub struct Beginning {
    controllers: Vec<String>,
    workloads: WorkloadOptions,
    /// Absent for a cluster with nothing but what every cluster has.
    stored: Option<Stored>,
    /// Lead of the clock in milliseconds.
    ahead: i64,
}

#[derive(Clone, Debug)]
struct Stored {
    contents: Contents,
    /// The collectors whose accounts and definitions are there, as a cluster has put them there.
    furnished_for: Option<Controllers>,
}

impl Beginning {
    /// Creates a beginning without stored objects. The collectors are named like in `--controllers`; `["*"]` is all of them.
    #[must_use]
    pub fn empty(controllers: Vec<String>) -> Self {
        let workloads = WorkloadOptions::named(&controllers);
        Self { controllers, workloads, stored: None, ahead: 0 }
    }

    /// The same with workload controllers, a scheduler and a simulated node; `*` enables them as well.
    #[must_use]
    pub fn with_workloads(self) -> Self {
        Self { workloads: WorkloadOptions::default(), ..self }
    }

    /// The same with other collectors. Workload controllers run if they ran before, or if one is named.
    #[must_use]
    pub fn with_controllers(self, controllers: &[&str]) -> Self {
        let controllers: Vec<String> = controllers.iter().map(|word| (*word).to_owned()).collect();
        let had_none = self.workloads == WorkloadOptions::off();
        let workloads = if had_none { WorkloadOptions::named(&controllers) } else { self.workloads };
        Self { controllers, workloads, ..self }
    }

    fn all_controllers(&self) -> Controllers {
        (self.controllers.clone(), self.workloads.clone())
    }

    /// Returns the store to serve, and whether it is furnished.
    fn server(&self) -> ServerOptions {
        let begun = || {
            let begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
            let controllers = self.all_controllers();
            let contents = begun.get(&controllers)?.clone();
            Some(Stored { contents, furnished_for: Some(controllers) })
        };
        let stored = self.stored.clone().or_else(begun);
        let options = ServerOptions {
            compiled_definitions: Some(Arc::clone(&COMPILED)),
            readings: Some(Arc::clone(&READINGS)),
            ..ServerOptions::in_process()
        };
        let Some(Stored { contents, furnished_for }) = stored else { return options };
        let is_furnished = furnished_for == Some(self.all_controllers());
        ServerOptions { prepared: Some(contents.store()), is_furnished, ..options }
    }
}

/// Keeps what a cluster began with, if it is the first of these collectors.
fn remember(controllers: &Controllers, contents: &Contents) {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    if begun.len() < MOST_BEGINNINGS && !begun.contains_key(controllers) {
        begun.insert(controllers.clone(), contents.clone());
    }
}

/// A server with its collectors, in memory. Must be used within the tokio runtime in which it was started.
pub struct EmbeddedCluster {
    up: Up,
    controllers: Controllers,
    clients: Arc<ActivityTracker>,
}

impl std::fmt::Debug for EmbeddedCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedCluster").field("address", &self.up.server.address()).finish_non_exhaustive()
    }
}

/// Counts requests of clients, so that settling waits for them.
#[derive(Clone)]
pub struct ClientRequests(Arc<ActivityTracker>);

impl std::fmt::Debug for ClientRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientRequests")
    }
}

/// A client's request, in flight until this is dropped.
pub struct ClientRequest {
    _going: InFlightGuard,
}

impl std::fmt::Debug for ClientRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientRequest")
    }
}

impl ClientRequests {
    /// Counts a request that is sent.
    #[must_use]
    pub fn begin(&self) -> ClientRequest {
        ClientRequest { _going: self.0.request() }
    }

    /// Counts an event of a watch.
    pub fn brought(&self) {
        self.0.happened();
    }
}

impl EmbeddedCluster {
    /// Starts a server with its collectors.
    pub async fn start(beginning: Beginning) -> Result<Self, EmbeddedError> {
        let server = beginning.server();
        let controllers = beginning.all_controllers();
        let Beginning { stored, ahead, .. } = beginning;
        let activity = Activity::default();
        let clients = activity.named(CLIENTS);
        let settings =
            ControllerOptions { controllers: controllers.0.clone(), ..ControllerOptions::default() };
        let surroundings = Surroundings { activity, ..Surroundings::default() };
        let clock = CollectorClock::default();
        clock.set(ahead);
        let up = Up::start(&server, &settings, &controllers.1, None, &clock, surroundings, None).await?;
        if let (None, Some(begun)) = (&stored, up.begun()) {
            remember(&controllers, begun);
        }
        Ok(Self { up, controllers, clients })
    }

    /// Copies the objects, collectors and clock, to start another cluster from them. The stored values are shared, not copied.
    pub fn fork(&self) -> Result<Beginning, EmbeddedError> {
        let stored = self.up.server.registry().stored(&RangeOptions::default());
        let contents = Contents::from(stored.context("cannot read what is stored")?);
        let is_furnished = self.up.begun().is_some_and(|begun| begun.is_part_of(&contents));
        let furnished_for = is_furnished.then(|| self.controllers.clone());
        let (controllers, workloads) = self.controllers.clone();
        Ok(Beginning {
            controllers,
            workloads,
            stored: Some(Stored { contents, furnished_for }),
            ahead: self.up.control.clock().ahead(),
        })
    }

    /// Returns access for an administrator of this name.
    #[must_use]
    pub fn in_process(&self, user: &str) -> InProcess {
        self.up.server.in_process(user)
    }

    /// Returns access for a user in these groups, with the permissions that roles grant.
    #[must_use]
    pub fn in_process_as(&self, user: &str, groups: &[&str]) -> InProcess {
        self.up.server.in_process_as(user, groups)
    }

    /// Returns the counter of requests of clients.
    #[must_use]
    pub fn client_requests(&self) -> ClientRequests {
        ClientRequests(Arc::clone(&self.clients))
    }

    /// Returns the kubeconfig of the administrator, over TLS. The server listens from then on.
    pub fn kubeconfig(&self) -> Result<String, EmbeddedError> {
        self.up.server.listen().map_err(anyhow::Error::from)?;
        Ok(self.up.server.credentials().kubeconfig())
    }

    /// Sets the clock of the collectors ahead.
    pub fn advance(&self, by: Duration) {
        self.up.control.clock().advance(by);
    }

    /// Waits until no collector has anything left to do. `rest` returns when everything that can run in the runtime has run; the
    /// error names those that are still active after `patience`.
    pub async fn settle<R: Future<Output = ()>>(
        &self,
        patience: Duration,
        rest: impl Fn() -> R,
    ) -> Result<(), Vec<String>> {
        self.up.control.settle(patience, rest).await
    }

    /// Returns the answer of `kubegc stuck -o json`.
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

    use http::Method;

    use super::*;

    #[tokio::test]
    async fn a_cluster_that_has_ended_is_gone_from_memory() {
        let cluster = EmbeddedCluster::start(Beginning::empty(vec!["*".to_owned()])).await.unwrap();
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

    async fn ask(cluster: &EmbeddedCluster, method: Method, path: &str) -> (u16, Value) {
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        crate::definitions::call(&client, method, path, None).await.unwrap()
    }

    #[tokio::test]
    async fn later_clusters_begin_with_what_the_first_one_made() {
        const ROLE: &str =
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/kubegc:garbage-collector-controller";
        const AUTHENTICATION: &str =
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let beginning = || Beginning::empty(vec!["garbage-collector-controller".to_owned()]);
        let first = EmbeddedCluster::start(beginning()).await.unwrap();
        assert!(beginning().server().is_furnished);
        let second = EmbeddedCluster::start(beginning()).await.unwrap();
        for path in [ROLE, "/api/v1/namespaces/default"] {
            let (of_first, of_second) =
                (ask(&first, Method::GET, path).await, ask(&second, Method::GET, path).await);
            assert_eq!((of_first.0, &of_first), (200, &of_second), "{path}");
        }
        // Each cluster has its own keys.
        for cluster in [&first, &second] {
            let (_, map) = ask(cluster, Method::GET, AUTHENTICATION).await;
            assert_eq!(map["data"]["client-ca-file"], cluster.up.server.credentials().ca_pem, "{map}");
        }
        assert!(second.fork().unwrap().server().is_furnished);

        // Deleted objects are created again.
        assert_eq!(ask(&second, Method::DELETE, ROLE).await.0, 200);
        let fork = second.fork().unwrap();
        assert!(!fork.server().is_furnished);
        let fork = EmbeddedCluster::start(fork).await.unwrap();
        assert_eq!(ask(&fork, Method::GET, ROLE).await.0, 200);
        assert!(!second.fork().unwrap().with_controllers(&["*"]).server().is_furnished);
        for cluster in [first, second, fork] {
            cluster.shutdown().await;
        }
    }
}
