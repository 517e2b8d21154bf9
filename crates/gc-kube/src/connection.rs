//! Connections to an API server: few of them, HTTP/2 if the server supports it, with many requests in flight on each.
//!
//! kube-rs finds out how to reach a cluster (kubeconfig, in-cluster account, exec and OIDC credentials, tokens, proxies, TLS). Its
//! own HTTP client only supports HTTP/1.1, so the transport beneath its layers is implemented here. The embedded server in the same
//! process is reached without a connection: its HTTP service is called directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Response, Uri};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use kube::config::KubeconfigError;
use tokio::sync::watch;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use crate::clock::machine_moment;
use crate::server_clock::SharedServerClock;
use crate::streams::{Streams, WatchConnections};

/// Body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// Recipient of requests: one connection of a cluster, or the embedded server.
pub type HttpService = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, BoxError>;

/// Maximum number of connections that share the short requests (deletions, patches, reads).
pub const REQUEST_CONNECTIONS: usize = 4;
/// Maximum number of unused connections kept to a server without HTTP/2.
const IDLE_CONNECTIONS: usize = 16;
/// Default timeout of a short request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the head of the answer to a list or watch.
pub const LIST_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum size of a body that is read completely (a page of a list).
pub const MAX_BODY_BYTES: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const AGENT: &str = concat!("kubegc/", env!("CARGO_PKG_VERSION"));

/// Reason why a client could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig or the in-cluster account is unusable.
    #[error("no cluster is configured: {0}")]
    Configuration(String),
    /// The kubeconfig is unusable.
    #[error("{0}")]
    Kubeconfig(String),
    /// Credentials or certificates are unusable.
    #[error("the credentials are unusable: {0}")]
    Credentials(#[source] Box<kube::Error>),
    /// A proxy other than http, https or socks5.
    #[error("proxy {0} is of an unknown kind; http, https and socks5 are known")]
    Proxy(Uri),
    /// The certificate authority is not a certificate.
    #[error("the certificate authority is unusable: {0}")]
    Authority(String),
    /// An invalid address.
    #[error("{0:?} is not an address; expected HOST:PORT")]
    Address(String),
    /// An invalid URL of a server.
    #[error("--server {0:?} is not a URL such as https://HOST:PORT")]
    Server(String),
    /// An invalid server name.
    #[error("tls-server-name {0:?} is not a valid name")]
    ServerName(String),
    /// A token that cannot be sent in a header.
    #[error("the bearer token has characters that a header cannot have")]
    Token,
    /// A server in the same process has no connections without credentials.
    #[error("a server in this process is not reached by a connection")]
    InProcess,
}

/// Reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The connection failed or broke. It is unknown whether the request was performed.
    #[error("the connection failed: {0}")]
    Connection(#[source] BoxError),
    /// There was no answer in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The body broke off.
    #[error("the answer could not be read: {0}")]
    Body(#[source] BoxError),
    /// The body is too large.
    #[error("the answer is larger than {} MiB", MAX_BODY_BYTES >> 20)]
    TooLarge,
    /// Nothing was sent: the gate of [`ApiClient::gated`] is closed.
    #[error("not sent: this process does not lead, or changes nothing")]
    Gated,
    /// It was given up when this process ceased to lead ([`ApiClient::while_leading`]).
    #[error("given up: this process does not lead any more")]
    GivenUp,
}

impl RequestError {
    /// Reports whether the server may still perform the request: it was sent, as far as is known, and nothing has come back.
    #[must_use]
    pub fn may_be_at_work(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::GivenUp => true,
            Self::Connection(error) => !was_never_connected(&**error),
            // The head of an answer has arrived, or nothing was sent.
            Self::Body(_) | Self::TooLarge | Self::Gated => false,
        }
    }
}

fn was_never_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect)
    })
}

/// An answer with its complete body.
#[derive(Debug)]
pub struct Answer {
    /// Status line and headers.
    pub head: http::response::Parts,
    /// The body.
    pub body: Bytes,
}

type MakeService = dyn Fn() -> HttpService + Send + Sync;

/// A bearer token, which is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Returns the value of the header `Authorization`.
    fn header(&self) -> Result<HeaderValue, ConnectError> {
        let mut header =
            HeaderValue::try_from(format!("Bearer {}", self.0)).map_err(|_| ConnectError::Token)?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Returns the token itself, to send it to a server that verifies it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl std::str::FromStr for Token {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

/// Cluster and user as selected by kubectl's flags. Everything else is taken from the kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Kubeconfig to use instead of `$KUBECONFIG` and `~/.kube/config`.
    pub kubeconfig: Option<std::path::PathBuf>,
    /// True to use this pod's account instead of `~/.kube/config`.
    pub account: bool,
    /// Context.
    pub context: Option<String>,
    /// Cluster to use instead of the context's.
    pub cluster: Option<String>,
    /// User to use instead of the context's.
    pub user: Option<String>,
    /// URL of the server to use instead of the cluster's.
    pub server: Option<String>,
    /// Bearer token to use instead of the user's credentials.
    pub token: Option<Token>,
    /// User to impersonate.
    pub impersonate: Option<String>,
    /// Groups to impersonate.
    pub impersonate_groups: Vec<String>,
}

/// Merges the kubeconfigs in `$KUBECONFIG`. Files in the list that do not exist are skipped, as kubectl does.
impl From<KubeconfigError> for ConnectError {
    fn from(error: KubeconfigError) -> Self {
        Self::Kubeconfig(kubeconfig_message(&error))
    }
}

impl From<kube::config::InferConfigError> for ConnectError {
    fn from(error: kube::config::InferConfigError) -> Self {
        // It does not matter why this is not a pod, only why there is no kubeconfig.
        let kubeconfig = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
        Self::Configuration(kubeconfig.map_or_else(|| error.to_string(), kubeconfig_message))
    }
}

/// Describes an error in a kubeconfig, with the names used in the file.
fn kubeconfig_message(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::CurrentContextNotSet => {
            "the kubeconfig has no current context; name one with --context".to_owned()
        }
        KubeconfigError::LoadContext(name) => {
            format!("the kubeconfig has no context {name:?}; `kubectl config get-contexts` lists them")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("the kubeconfig has no cluster {name:?}; `kubectl config get-clusters` lists them")
        }
        KubeconfigError::ReadConfig(why, path) => format!("cannot read {}: {why}", path.display()),
        error => format!("the kubeconfig is unusable: {error}"),
    }
}

fn kubeconfig_from_environment() -> Result<Option<kube::config::Kubeconfig>, ConnectError> {
    let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) else { return Ok(None) };
    let mut merged: Option<kube::config::Kubeconfig> = None;
    for file in std::env::split_paths(&list).filter(|file| file.exists()) {
        let next = kube::config::Kubeconfig::read_from(file)?;
        merged = Some(match merged {
            Some(before) => before.merge(next)?,
            None => next,
        });
    }
    if merged.is_none() {
        let list = list.to_string_lossy();
        return Err(ConnectError::Configuration(format!("$KUBECONFIG is {list:?}, and no such file exists")));
    }
    Ok(merged)
}

/// Returns the cluster selected by kubectl's flags.
async fn configuration(access: &Access) -> Result<kube::Config, ConnectError> {
    let options = kube::config::KubeConfigOptions {
        context: access.context.clone(),
        cluster: access.cluster.clone(),
        user: access.user.clone(),
    };
    let chosen = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    let kubeconfig = match &access.kubeconfig {
        Some(file) => Some(kube::config::Kubeconfig::read_from(file)?),
        None => kubeconfig_from_environment()?,
    };
    let mut config = match kubeconfig {
        Some(kubeconfig) => kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?,
        None if chosen => kube::Config::from_kubeconfig(&options).await?,
        None => match &access.server {
            // The account of this pod is only for its own cluster, and a server that needs no credentials needs no kubeconfig.
            Some(server) => match kube::Config::from_kubeconfig(&options).await {
                Ok(config) => config,
                Err(_) => kube::Config::new(server_url(server)?),
            },
            None if access.account => kube::Config::incluster().map_err(|error| {
                ConnectError::Configuration(format!("the service account of this pod is unusable: {error}"))
            })?,
            None => kube::Config::infer().await?,
        },
    };
    if let Some(server) = &access.server {
        config.cluster_url = server_url(server)?;
    }
    if let Some(token) = &access.token {
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.0.clone().into()),
            ..kube::config::AuthInfo::default()
        };
    }
    if access.impersonate.is_some() || !access.impersonate_groups.is_empty() {
        config.auth_info.impersonate.clone_from(&access.impersonate);
        config.auth_info.impersonate_groups = Some(access.impersonate_groups.clone());
    }
    Ok(config)
}

/// Parses the URL of a server; without a scheme, TLS is used.
fn server_url(server: &str) -> Result<Uri, ConnectError> {
    let url = if server.contains("://") { server.to_owned() } else { format!("https://{server}") };
    url.parse::<Uri>()
        .ok()
        .filter(|url| url.host().is_some_and(|host| !host.is_empty()))
        .ok_or_else(|| ConnectError::Server(server.to_owned()))
}

/// Returns the certificates in a PEM text.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, ConnectError> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let found: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(pem)
        .map(|found| found.map(|certificate| certificate.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| ConnectError::Authority(error.to_string()))?;
    if found.is_empty() { Err(ConnectError::Authority("it holds no certificate".into())) } else { Ok(found) }
}

/// A client of one API server. Cheap to clone.
#[derive(Clone)]
pub struct ApiClient {
    shared: Arc<ConnectionPool>,
    gate: Option<Arc<Gate>>,
    /// Credentials for each request, if the connections have none.
    authorization: Option<HeaderValue>,
    request_timeout: Duration,
}

/// Condition of requests that change something.
struct Gate {
    /// Predicate: they may be sent.
    is_open: Box<dyn Fn() -> bool + Send + Sync>,
    /// True while this process leads, if those in flight depend on that.
    leads: Option<watch::Receiver<bool>>,
    /// Gate of the client that this one was made from.
    outer: Option<Arc<Self>>,
}

impl Gate {
    fn is_open(&self) -> bool {
        (self.is_open)() && self.outer.as_ref().is_none_or(|outer| outer.is_open())
    }

    /// Waits until this process does not lead any more; forever if that does not matter.
    async fn closed(&self) {
        let gates = std::iter::successors(Some(self), |gate| gate.outer.as_deref());
        for leads in gates.filter_map(|gate| gate.leads.as_ref()) {
            if leads.clone().wait_for(|leads| !leads).await.is_ok() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

struct ConnectionPool {
    requests: Vec<HttpService>,
    /// Requests in flight on each connection.
    streams: Streams,
    watches: WatchConnections<HttpService>,
    make: Box<MakeService>,
    address: String,
    namespace: String,
    /// Clock of a server that is reached over a network.
    server_clock: Option<SharedServerClock>,
    /// Configuration for connecting to the server without credentials.
    anonymous: Option<kube::Config>,
}

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiClient").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

impl ApiClient {
    /// Connects to the cluster of `$KUBECONFIG`, of `~/.kube/config`, or of the pod that this process runs in.
    pub async fn infer() -> Result<Self, ConnectError> {
        Self::new(&kube::Config::infer().await?)
    }

    /// Connects to the cluster of a kubeconfig file.
    pub async fn from_kubeconfig(path: &std::path::Path) -> Result<Self, ConnectError> {
        let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
        let options = kube::config::KubeConfigOptions::default();
        Self::new(&kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?)
    }

    /// Connects to the cluster selected by kubectl's flags.
    pub async fn configured(access: &Access) -> Result<Self, ConnectError> {
        Self::new(&configuration(access).await?)
    }

    /// Connects to another server that accepts the tokens of this cluster, such as the pages of a collector. Uses the credentials
    /// of kubectl's flags, except for client certificates. The server's certificate is verified with this authority (PEM), under
    /// `server_name` if given.
    pub async fn configured_elsewhere(
        access: &Access,
        authority: &str,
        authority_pem: &[u8],
        server_name: Option<&str>,
    ) -> Result<Self, ConnectError> {
        let mut config = configuration(access).await?;
        let url = format!("https://{authority}");
        config.cluster_url = url.parse().map_err(|_| ConnectError::Address(authority.to_owned()))?;
        config.root_cert = Some(certificates(authority_pem)?);
        config.accept_invalid_certs = false;
        config.tls_server_name = server_name.map(str::to_owned);
        config.proxy_url = None;
        let who = &mut config.auth_info;
        (who.client_certificate, who.client_certificate_data) = (None, None);
        (who.client_key, who.client_key_data) = (None, None);
        (who.impersonate, who.impersonate_groups) = (None, None);
        Self::new(&config)
    }

    /// Creates a client from kube-rs' description of a cluster. Connects with the first request.
    pub fn new(config: &kube::Config) -> Result<Self, ConnectError> {
        let make = cluster_services(config)?;
        let clock = Some(SharedServerClock::default());
        let mut anonymous = config.clone();
        anonymous.auth_info = kube::config::AuthInfo::default();
        let (address, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
        Ok(Self::over(make, address, namespace, clock, Some(anonymous)))
    }

    /// Returns a client of the same server with separate connections and without any credentials.
    pub fn without_credentials(&self) -> Result<Self, ConnectError> {
        let config = self.shared.anonymous.as_ref().ok_or(ConnectError::InProcess)?;
        Ok(Self::new(config)?.with_request_timeout(self.request_timeout))
    }

    /// Returns a client over the same connections that sends this token with each request. The connections must have no credentials
    /// ([`ApiClient::without_credentials`]), which would replace the token.
    pub fn with_token(&self, token: &Token) -> Result<Self, ConnectError> {
        Ok(Self { authorization: Some(token.header()?), ..self.clone() })
    }

    fn authorize(&self, request: &mut Request<Full<Bytes>>) {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
    }

    /// Returns a client of the same server, with separate connections, that observes the server's clock in its answers: for a
    /// server in this process whose clock is not this machine's.
    #[must_use]
    pub fn with_server_clock(&self) -> Self {
        let make: Box<MakeService> = {
            let shared = Arc::clone(&self.shared);
            Box::new(move || (shared.make)())
        };
        let (address, namespace) = (self.shared.address.clone(), self.shared.namespace.clone());
        let (clock, anonymous) = (Some(SharedServerClock::default()), self.shared.anonymous.clone());
        let client = Self::over(make, address, namespace, clock, anonymous);
        Self { shared: client.shared, ..self.clone() }
    }

    /// Creates a client of a server without TLS and credentials, such as the pages of a collector on this machine.
    pub fn plain(authority: &str) -> Result<Self, ConnectError> {
        let url = format!("http://{authority}");
        let uri = url.parse().map_err(|_| ConnectError::Address(authority.to_owned()))?;
        Self::new(&kube::Config::new(uri))
    }

    /// Creates a client of a server in the same process: each request is a call of its HTTP service.
    pub fn in_process<F, A, B>(serve: F) -> Self
    where
        F: Fn(Request<Full<Bytes>>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<B>> + Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let make = move || {
            let serve = serve.clone();
            BoxCloneSyncService::new(boxed(tower::service_fn(move |mut request: Request<Full<Bytes>>| {
                request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
                let answer = serve(request);
                async move { Ok::<_, std::convert::Infallible>(answer.await) }
            })))
        };
        Self::over(Box::new(make), "the server in this process".into(), "default".into(), None, None)
    }

    fn over(
        make: Box<MakeService>,
        address: String,
        namespace: String,
        server_clock: Option<SharedServerClock>,
        anonymous: Option<kube::Config>,
    ) -> Self {
        let requests = (0..REQUEST_CONNECTIONS).map(|_| make()).collect();
        let streams = Streams::new(REQUEST_CONNECTIONS);
        let watches = WatchConnections::new();
        let shared =
            ConnectionPool { requests, streams, watches, make, address, namespace, server_clock, anonymous };
        Self { shared: Arc::new(shared), gate: None, authorization: None, request_timeout: REQUEST_TIMEOUT }
    }

    /// Returns a client over the same connections that sends requests other than GET only while `gate`, and every existing gate of
    /// this client, returns true. Gates are checked immediately before a request is passed to a connection.
    #[must_use]
    pub fn gated(&self, gate: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.behind(Gate { is_open: Box::new(gate), leads: None, outer: self.gate.clone() })
    }

    /// Returns a client over the same connections that gives up requests other than GET when `leads` becomes false, so that what
    /// has not reached the server yet never does. A request that the server has begun may still be performed.
    #[must_use]
    pub fn while_leading(&self, leads: watch::Receiver<bool>) -> Self {
        self.behind(Gate { is_open: Box::new(|| true), leads: Some(leads), outer: self.gate.clone() })
    }

    fn behind(&self, gate: Gate) -> Self {
        Self { gate: Some(Arc::new(gate)), ..self.clone() }
    }

    /// Returns a client over the same connections with this timeout of short requests instead of [`REQUEST_TIMEOUT`].
    #[must_use]
    pub fn with_request_timeout(self, request_timeout: Duration) -> Self {
        Self { request_timeout, ..self }
    }

    /// Returns the namespace of the kubeconfig's context, or of this pod; `default` otherwise.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Returns the server's clock as observed in its answers; `None` for a server in this process, which uses this machine's clock.
    #[must_use]
    pub fn server_clock(&self) -> Option<&SharedServerClock> {
        self.shared.server_clock.as_ref()
    }

    /// Returns the address of the server, for people.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Sends a short request and reads the complete answer.
    pub fn call(&self, request: Request<Full<Bytes>>) -> BoxFuture<'static, Result<Answer, RequestError>> {
        self.call_apart(request, None).1
    }

    /// Sends a short request on a connection other than the one with this number. Also returns the number of the connection used.
    pub(crate) fn call_apart(
        &self,
        mut request: Request<Full<Bytes>>,
        apart_from: Option<usize>,
    ) -> (usize, BoxFuture<'static, Result<Answer, RequestError>>) {
        self.authorize(&mut request);
        let (connection, stream) = self.shared.streams.begin(apart_from);
        let service = self.shared.requests[connection].clone();
        let gate = self.gate.clone().filter(|_| request.method() != http::Method::GET);
        let clock = self.shared.server_clock.clone();
        let whole = async move {
            let sent = machine_moment();
            let response = service.oneshot(request).await.map_err(RequestError::Connection)?;
            if let Some(clock) = clock {
                clock.observe(response.headers(), sent);
            }
            let answer = collect(response).await;
            drop(stream);
            answer
        };
        let limit = self.request_timeout;
        let whole = async move {
            tokio::time::timeout(limit, whole).await.map_err(|_| RequestError::Timeout(limit))?
        };
        let answer = async move {
            let Some(gate) = gate else { return whole.await };
            if !gate.is_open() {
                return Err(RequestError::Gated);
            }
            tokio::select! {
                biased;
                answer = whole => answer,
                () = gate.closed() => Err(RequestError::GivenUp),
            }
        };
        (connection, Box::pin(answer))
    }

    /// Sends a list or a watch. The caller reads the body of the answer, which occupies its place on the connection until dropped.
    pub fn open(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> BoxFuture<'static, Result<Response<Body>, RequestError>> {
        self.authorize(&mut request);
        let (service, stream) = self.shared.watches.begin(|| (self.shared.make)());
        let clock = self.shared.server_clock.clone();
        Box::pin(async move {
            let sent = machine_moment();
            let response = tokio::time::timeout(LIST_TIMEOUT, service.oneshot(request))
                .await
                .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))?
                .map_err(RequestError::Connection)?;
            if let Some(clock) = clock {
                clock.observe(response.headers(), sent);
            }
            let hold = move |frame| {
                let _ = &stream;
                frame
            };
            Ok(response.map(|body| body.map_frame(hold).boxed_unsync()))
        })
    }
}

/// Reads a complete answer, up to [`MAX_BODY_BYTES`].
#[must_use]
pub fn collect(response: Response<Body>) -> BoxFuture<'static, Result<Answer, RequestError>> {
    Box::pin(async move {
        let (head, mut body) = response.into_parts();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(chunk) = frame.map_err(RequestError::Body)?.into_data() else { continue };
            if body.is_end_stream() && whole.is_empty() {
                return Ok(Answer { head, body: chunk });
            }
            if whole.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(RequestError::TooLarge);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(Answer { head, body: whole.freeze() })
    })
}

/// Adapts any HTTP service to boxed bodies and errors.
#[derive(Clone)]
struct BoxedService<S>(S);

fn boxed<S>(service: S) -> BoxedService<S> {
    BoxedService(service)
}

impl<S, B> Service<Request<Full<Bytes>>> for BoxedService<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let response = answer.await.map_err(Into::into)?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}

fn cluster_services(config: &kube::Config) -> Result<Box<MakeService>, ConnectError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(config.connect_timeout.unwrap_or(CONNECT_TIMEOUT)));
    let Some(proxy) = config.proxy_url.clone() else {
        return with_connector(config, http);
    };
    match proxy.scheme_str() {
        Some("http") => {
            with_connector(config, with_proxy_credentials(Tunnel::new(proxy.clone(), http), &proxy))
        }
        Some("https") => {
            let to_proxy = https_connector(&kube::Config::new(proxy.clone()), http)?;
            with_connector(config, with_proxy_credentials(Tunnel::new(proxy.clone(), to_proxy), &proxy))
        }
        Some("socks5") => with_connector(config, SocksV5::new(proxy, http)),
        _ => Err(ConnectError::Proxy(proxy)),
    }
}

fn with_proxy_credentials<C>(tunnel: Tunnel<C>, proxy: &Uri) -> Tunnel<C> {
    let credentials = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
    let header = credentials.and_then(|(user, _)| basic_authorization(user));
    match header {
        Some(header) => tunnel.with_auth(header),
        None => tunnel,
    }
}

fn basic_authorization(user_and_password: &str) -> Option<HeaderValue> {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(user_and_password);
    HeaderValue::try_from(format!("Basic {encoded}")).ok()
}

/// True once it has been logged that a certificate is not verified: every client of a process has the same configuration.
static UNVERIFIED: AtomicBool = AtomicBool::new(false);

fn https_connector<C>(
    config: &kube::Config,
    connector: C,
) -> Result<hyper_rustls::HttpsConnector<C>, ConnectError> {
    let tls = config.rustls_client_config().map_err(|error| ConnectError::Credentials(Box::new(error)))?;
    if config.accept_invalid_certs && !UNVERIFIED.swap(true, Ordering::Relaxed) {
        tracing::warn!(server = %config.cluster_url, "the server's certificate is not verified");
    }
    let mut builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let parsed = name.clone().try_into().map_err(|_| ConnectError::ServerName(name.clone()))?;
        builder = builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(parsed));
    }
    Ok(builder.enable_all_versions().wrap_connector(connector))
}

fn with_connector<C>(config: &kube::Config, connector: C) -> Result<Box<MakeService>, ConnectError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper_util::client::legacy::connect::Connection
        + hyper::rt::Read
        + hyper::rt::Write
        + Send
        + Unpin
        + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = https_connector(config, connector)?;
    let base = config.base_uri_layer();
    let authorization = config.auth_layer().map_err(credentials_error)?.map(Arc::new);
    let mut headers: Vec<(HeaderName, HeaderValue)> = vec![(USER_AGENT, HeaderValue::from_static(AGENT))];
    headers.extend(config.headers.iter().cloned());
    let impersonation = config.extra_headers_layer().map_err(credentials_error)?;
    let make = move || -> HttpService {
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build::<_, Full<Bytes>>(connector.clone());
        let headers = headers.clone();
        let named = boxed(client).map_request(move |mut request: Request<_>| {
            for (name, value) in &headers {
                request.headers_mut().append(name.clone(), value.clone());
            }
            request
        });
        let placed = ServiceBuilder::new().layer(base.clone()).layer(impersonation.clone()).service(named);
        match &authorization {
            None => BoxCloneSyncService::new(placed),
            Some(layer) => BoxCloneSyncService::new(tower::Layer::layer(&**layer, placed)),
        }
    };
    Ok(Box::new(make))
}

fn credentials_error(error: kube::Error) -> ConnectError {
    ConnectError::Credentials(Box::new(error))
}

#[cfg(test)]
mod tests;
