//! A Kubernetes-compatible cluster inside a test.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ObjectMeta, PostParams};
//! use kubegc_testing::Cluster;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let cluster = Cluster::start().await?;
//!     let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
//!
//!     let named = |name: &str| ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
//!     let owner = maps.create(&PostParams::default(), &ConfigMap { metadata: named("owner"), ..ConfigMap::default() }).await?;
//!     let mut dependent = ConfigMap { metadata: named("dependent"), ..ConfigMap::default() };
//!     dependent.metadata.owner_references = Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
//!         api_version: "v1".into(),
//!         kind: "ConfigMap".into(),
//!         name: "owner".into(),
//!         uid: owner.metadata.uid.unwrap_or_default(),
//!         ..Default::default()
//!     }]);
//!     maps.create(&PostParams::default(), &dependent).await?;
//!
//!     maps.delete("owner", &Default::default()).await?;
//!     cluster.settle().await?; // returns when nothing is left to do
//!     assert!(maps.get_opt("dependent").await?.is_none());
//!     Ok(())
//! }
//! ```
//!
//! The API server, its store and every collector run in this process, on a thread of their own that ends with the
//! [`Cluster`]. [`Cluster::client`] calls the server directly, without a connection. Pods are objects here, not processes:
//! nothing schedules or starts containers. [`ClusterBuilder::workloads`] simulates both.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gc_apiserver::InProcess;
use gc_embedded::embedded::{Beginning, ClientRequests, EmbeddedCluster, EmbeddedError};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tower::BoxError;

/// Maximum wait of [`Cluster::settle`] before it reports the work in progress.
pub const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a controller under test must have been quiet. While a client of the test has a watch open, the controller behind
/// it may be about to act.
pub const CONTROLLER_QUIET: Duration = Duration::from_millis(20);
/// Maximum time that [`Cluster::stuck`] may take to list everything.
const STUCK_PATIENCE: Duration = Duration::from_secs(10);
/// User name of [`Cluster::client`].
const ADMINISTRATOR: &str = "kubegc-testing";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The reason why an operation on a cluster failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The thread of the cluster could not be started.
    #[error("cannot start the thread of the cluster: {0}")]
    Thread(#[source] std::io::Error),
    /// The server or a collector did not start, or a query was not answered.
    #[error(transparent)]
    Cluster(#[from] EmbeddedError),
    /// A file with definitions cannot be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The server refused a definition.
    #[error("the definition {name} of {path} was refused: {message}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Name of the CustomResourceDefinition.
        name: String,
        /// The server's message.
        message: String,
    },
    /// Work was still in progress when the wait ended.
    #[error("not settled within {patience:?}: {}", moving.join("; "))]
    NotSettled {
        /// Maximum wait.
        patience: Duration,
        /// Remaining work of each part.
        moving: Vec<String>,
    },
    /// The thread of the cluster has panicked.
    #[error("the cluster has ended")]
    Ended,
}

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    controllers: Vec<String>,
    runs_workloads: bool,
    definitions: Vec<PathBuf>,
}

impl ClusterBuilder {
    /// Sets the collectors to run, as in `kubegc up --controllers`: a name enables one, `-name` disables it, and `*` stands for all
    /// others.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), kubegc_testing::Error> {
    /// use kubegc_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().controllers(["garbage-collector-controller", "namespace"]).start().await?;
    /// # cluster.settle().await
    /// # }
    /// ```
    #[must_use]
    pub fn controllers<T: Into<String>>(mut self, controllers: impl IntoIterator<Item = T>) -> Self {
        self.controllers = controllers.into_iter().map(Into::into).collect();
        self
    }

    /// Runs the workload controllers of `kubegc up` as well: Deployments get ReplicaSets and these pods, which a scheduler binds to a
    /// simulated node, where they become ready. Settling waits for them. Without this, those run that `controllers` names.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
    /// use kube::api::{Api, ListParams, PostParams};
    ///
    /// let cluster = kubegc_testing::Cluster::builder().workloads().start().await?;
    /// let jobs: Api<Job> = Api::namespaced(cluster.client(), "default");
    /// let job = serde_json::json!({
    ///     "metadata": {"name": "once"},
    ///     "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    /// });
    /// jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    /// cluster.settle().await?;
    /// let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    /// assert_eq!(pods.list(&ListParams::default()).await?.items.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn workloads(mut self) -> Self {
        self.runs_workloads = true;
        self
    }

    /// Installs the CustomResourceDefinitions of a file, or of the files of a directory (YAML or JSON).
    #[must_use]
    pub fn crds(mut self, path: impl Into<PathBuf>) -> Self {
        self.definitions.push(path.into());
        self
    }

    /// Starts the cluster.
    pub async fn start(self) -> Result<Cluster, Error> {
        let beginning = Beginning::empty(self.controllers);
        let beginning = if self.runs_workloads { beginning.with_workloads() } else { beginning };
        let cluster = Cluster::run(beginning).await?;
        for path in &self.definitions {
            cluster.crds(path).await?;
        }
        Ok(cluster)
    }
}

/// A running cluster, which stops when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    embedded: Option<Arc<EmbeddedCluster>>,
    handle: Handle,
    parked: watch::Receiver<u64>,
    /// Number of watches that clients have open.
    watches: Arc<AtomicUsize>,
    /// Ends the thread when dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Cluster {
    /// Starts a cluster with every collector.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Returns a builder with the options of a cluster to start.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder { controllers: vec!["*".to_owned()], runs_workloads: false, definitions: Vec::new() }
    }

    /// Starts another cluster with the same objects, collectors and clock. One prepared cluster can serve many tests: each works on
    /// its own fork, and changes nothing for the others. Forks share stored data until one of them writes.
    ///
    /// The fork has its own keys and, if its kubeconfig is requested, its own port. Kubeconfigs and tokens of this cluster are not
    /// valid there.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
    ///
    /// let prepared = kubegc_testing::Cluster::start().await?;
    /// let maps: Api<ConfigMap> = Api::namespaced(prepared.client(), "default");
    /// let metadata = ObjectMeta { name: Some("settings".into()), ..ObjectMeta::default() };
    /// maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await?;
    ///
    /// let fork = prepared.fork().await?;
    /// let forked: Api<ConfigMap> = Api::namespaced(fork.client(), "default");
    /// forked.delete("settings", &DeleteParams::default()).await?;
    /// assert!(maps.get_opt("settings").await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fork(&self) -> Result<Self, Error> {
        Self::run(self.embedded()?.fork()?).await
    }

    async fn run(beginning: Beginning) -> Result<Self, Error> {
        let (parks, parked) = watch::channel(0);
        // With a single thread, everything that can run has run once the thread parks.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || parks.send_modify(|count| *count += 1))
            .build()
            .map_err(Error::Thread)?;
        let handle = runtime.handle().clone();
        let (started, start) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("kubegc-testing".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let embedded = EmbeddedCluster::start(beginning).await.map(Arc::new);
                    // The caller may have stopped waiting.
                    let _ = started.send(embedded);
                    let _ = stopped.await;
                });
                // Requests of clients that the test has dropped may still be in flight.
                runtime.shutdown_background();
            })
            .map_err(Error::Thread)?;
        let embedded = start.await.map_err(|_| Error::Ended)??;
        let watches = Arc::default();
        Ok(Self { embedded: Some(embedded), handle, parked, watches, stop: Some(stop), thread: Some(thread) })
    }

    fn embedded(&self) -> Result<&Arc<EmbeddedCluster>, Error> {
        self.embedded.as_ref().ok_or(Error::Ended)
    }

    /// Returns an administrator's client.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_of(self.embedded.as_ref().map(|embedded| embedded.in_process(ADMINISTRATOR)))
    }

    /// Returns the client of a user in these groups, with the permissions that its roles and bindings grant.
    #[must_use]
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        self.client_of(self.embedded.as_ref().map(|embedded| embedded.in_process_as(user, groups)))
    }

    fn client_of(&self, way: Option<InProcess>) -> kube::Client {
        let service = Service {
            way,
            handle: self.handle.clone(),
            requests: self.embedded.as_ref().map(|embedded| embedded.client_requests()),
            watches: Arc::clone(&self.watches),
        };
        kube::Client::new(service, "default")
    }

    /// The kubeconfig of an administrator, for programs outside this process. The cluster listens on a free port of
    /// 127.0.0.1, with TLS, from the first call on; before, nothing outside this process reaches it.
    pub fn kubeconfig(&self) -> Result<String, Error> {
        Ok(self.embedded()?.kubeconfig()?)
    }

    /// Installs the CustomResourceDefinitions in a file, or in the files of a directory (YAML or JSON), and skips other documents.
    /// When this returns, the server serves the resources.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("kubegc-testing-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # std::fs::write(folder.join("widget.yaml"), "
    /// # apiVersion: apiextensions.k8s.io/v1
    /// # kind: CustomResourceDefinition
    /// # metadata: {name: widgets.example.com}
    /// # spec:
    /// #   group: example.com
    /// #   scope: Namespaced
    /// #   names: {plural: widgets, kind: Widget}
    /// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
    /// # ")?;
    /// let cluster = kubegc_testing::Cluster::start().await?;
    /// cluster.crds(&folder).await?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # let served = cluster.client().list_api_group_resources("example.com/v1").await?;
    /// # assert_eq!(served.resources[0].name, "widgets");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn crds(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let client = self.client();
        for (path, definition) in definitions(path.as_ref())? {
            let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let refused =
                |message: String| Error::Refused { path: path.clone(), name: name.clone(), message };
            let request = Request::builder()
                .method(Method::POST)
                .uri(DEFINITIONS)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(definition.to_string().into_bytes())
                .map_err(|error| refused(error.to_string()))?;
            client.request::<Value>(request).await.map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    }

    /// Sets the collectors' clock ahead, so that objects become due by age or TTL. Call [`Cluster::settle`] afterwards.
    pub fn advance(&self, by: Duration) {
        if let Some(embedded) = &self.embedded {
            embedded.advance(by);
        }
    }

    /// Waits until no collector has anything left to do: no request is in flight, every change has been observed and decided on,
    /// and nothing is due. Also waits for a controller of the test that watches through a client of this cluster, until it has
    /// neither received nor sent anything for [`CONTROLLER_QUIET`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotSettled`], which names the parts that are still busy, after [`SETTLE_PATIENCE`].
    pub async fn settle(&self) -> Result<(), Error> {
        self.settle_within(SETTLE_PATIENCE).await
    }

    /// Like [`Cluster::settle`], with another maximum wait.
    pub async fn settle_within(&self, patience: Duration) -> Result<(), Error> {
        let embedded = Arc::clone(self.embedded()?);
        let (parked, watches) = (self.parked.clone(), Arc::clone(&self.watches));
        let settled = self.handle.spawn(async move {
            let rest = || rest(parked.clone(), Arc::clone(&watches));
            embedded.settle(patience, rest).await
        });
        match settled.await {
            Ok(settled) => settled.map_err(|moving| Error::NotSettled { patience, moving }),
            Err(_) => Err(Error::Ended),
        }
    }

    /// Returns the stuck deletions, as in `kubegc stuck -o json`.
    pub async fn stuck(&self) -> Result<Value, Error> {
        let embedded = Arc::clone(self.embedded()?);
        let handle = self.handle.clone();
        // The future borrows, and so cannot move between threads; run it on a thread of its own.
        let asked = self.handle.spawn_blocking(move || handle.block_on(embedded.stuck(STUCK_PATIENCE)));
        asked.await.map_err(|_| Error::Ended)?.map_err(Error::Cluster)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.embedded.take();
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

/// Returns once the thread of the cluster has nothing left to run, and controllers of the test have been quiet.
async fn rest(mut parked: watch::Receiver<u64>, watches: Arc<AtomicUsize>) {
    if watches.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(CONTROLLER_QUIET).await;
    }
    parked.mark_unchanged();
    // The sender lives as long as the runtime of this task.
    let _ = parked.changed().await;
}

/// The service behind a client.
#[derive(Clone)]
struct Service {
    /// `None` after the cluster has ended.
    way: Option<InProcess>,
    handle: Handle,
    requests: Option<ClientRequests>,
    watches: Arc<AtomicUsize>,
}

/// An open watch.
struct OpenWatch(Arc<AtomicUsize>);

impl OpenWatch {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl tower::Service<Request<kube::client::Body>> for Service {
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { way, handle, requests, watches } = self.clone();
        Box::pin(async move {
            let (Some(way), Some(requests)) = (way, requests) else { return Err(Error::Ended.into()) };
            let open = gc_embedded::embedded::is_watch(request.uri()).then(|| OpenWatch::new(&watches));
            let going = requests.begin();
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            // Run on the cluster's runtime: the test's runtime may be blocked, or have no timers.
            let answered =
                handle.spawn(async move { way.call(Request::from_parts(head, Full::new(body))).await });
            let answer = answered.await.map_err(|_| Error::Ended)?;
            drop(going);
            Ok(answer.map(|body| {
                let body = body.map_err(BoxError::from).map_frame(move |frame| {
                    if open.is_some() {
                        requests.brought();
                    }
                    frame
                });
                body.boxed_unsync()
            }))
        })
    }
}

/// Reads the definitions in a file or directory, in the order of the files.
fn definitions(path: &Path) -> Result<Vec<(PathBuf, Value)>, Error> {
    let failed = |path: &Path, reason: String| Error::Read { path: path.to_owned(), reason };
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|error| failed(path, error.to_string()))? {
            let file = entry.map_err(|error| failed(path, error.to_string()))?.path();
            if file
                .extension()
                .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
            {
                files.push(file);
            }
        }
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| failed(&file, error.to_string()))?;
        let options = serde_saphyr::options! { with_snippet: false };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(&text, options)
            .map_err(|error| failed(&file, error.to_string()))?;
        let wanted = documents.into_iter().filter(|document| document["kind"] == "CustomResourceDefinition");
        found.extend(wanted.map(|document| (file.clone(), document)));
    }
    if found.is_empty() {
        return Err(failed(path, "it holds no CustomResourceDefinition".to_owned()));
    }
    Ok(found)
}
