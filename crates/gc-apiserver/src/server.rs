//! Starts and stops the server.

pub(crate) mod config;
pub(crate) mod in_process;
pub(crate) mod listener;
pub(crate) mod listener_tls;
pub(crate) mod peers;
mod unserved;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gc_registry::Registry;
use gc_registry::api::UserInfo;
use gc_registry::bootstrap::{FrontProxyFacts, ServerFacts};
use gc_registry::error::ApiError;
use gc_registry::storage::{Blocking, StorageError};
use http::Request;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::aggregator::Aggregator;
use crate::auth::access::Access;
use crate::auth::authentication;
use crate::auth::certificates::CertificateAuthority;
use crate::auth::client_certificates::{ClientAuthorities, ConnectionCertificate};
use crate::auth::cluster_keys;
use crate::auth::front_proxy::{CLIENT_NAME, FrontProxy};
use crate::auth::kubeconfig::ClientCredentials;
use crate::auth::pki::{Keep, Pki, PkiError, lock_folder};
use crate::auth::rbac::Rbac;
use crate::auth::static_tokens::Authenticator;
use crate::identity::{self, Identity};
use crate::serve::health;
use crate::serve::service;
use crate::serve::webhooks::Webhooks;
use crate::server::config::ServerConfig;
use crate::server::in_process::InProcess;
use crate::server::peers::{Peer, Peers, SharedPeers};
use crate::server::unserved::unserved;
use crate::state::State;
use crate::transport::arrivals;
use crate::transport::clients::{AdmittedConnection, Ending};
use crate::transport::connections::{Patience, converse};
use crate::transport::dial;
use crate::transport::lent::LentConnection;
use crate::transport::stop::Stop;

/// Maximum time to finish requests when the server stops.
const STOP_PATIENCE: Duration = Duration::from_millis(1500);
/// Period of the registry's maintenance.
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(5);
/// Delay before a broken watch on the store is restarted.
const PUMP_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of connections waiting to be accepted.
const BACKLOG: u32 = 1024;

/// Reason why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Cause.
        error: std::io::Error,
    },
    /// Keys or certificates are unusable.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The token file is unusable.
    #[error("cannot use the token file {path}: {detail}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Cause.
        detail: String,
    },
    /// The bootstrap objects could not be created.
    #[error("cannot create the objects that every cluster has: {0}")]
    Bootstrap(ApiError),
    /// The roles and bindings could not be read.
    #[error("cannot read roles and bindings: {0}")]
    Roles(ApiError),
    /// The flow schemas and priority levels could not be read.
    #[error("cannot read flow schemas and priority levels: {0}")]
    Fairness(ApiError),
    /// The APIServices could not be read.
    #[error("cannot read the APIServices: {0}")]
    Aggregator(ApiError),
}

/// Starts servers.
#[derive(Debug)]
pub struct Server;

/// A running server. Dropping it stops it immediately; see [`RunningServer::shutdown`].
pub struct RunningServer {
    credentials: AdministratorKeys,
    entrance: Mutex<Entrance>,
    authority: Arc<CertificateAuthority>,
    state: Arc<State>,
    /// Other servers on the store.
    peers: Option<SharedPeers>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Server {
    /// Starts to serve: creates or loads keys, creates the bootstrap objects, and listens if an address is configured. Requests are
    /// answered once this returns.
    #[must_use]
    pub fn start(
        config: ServerConfig,
        registry: Arc<Registry>,
    ) -> BoxFuture<'static, Result<RunningServer, StartError>> {
        // Boxed here so that the server is compiled in this crate, and not again in every crate that starts one.
        Self::start_with(Patience::default(), config, registry).boxed()
    }

    async fn start_with(
        patience: Patience,
        config: ServerConfig,
        registry: Arc<Registry>,
    ) -> Result<RunningServer, StartError> {
        let listener = config.listen.map(bind).transpose()?;
        let address = listener.as_ref().map(|(_, address)| *address);
        let mut hosts = config.hosts.clone();
        hosts.push(address.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip()).to_string());
        hosts.extend(config.advertise.map(|address| address.to_string()));
        let keys = Keys::load(&config, hosts, &registry).await?;
        let (stop, stopped) = oneshot::channel();
        let stopped: Stop = stopped.map(|_| ()).boxed().shared();
        let acceptor = TlsAcceptor::from(Arc::new(keys.pki.server_config(&keys.clients)?));
        let static_tokens =
            Authenticator::load(config.admin_token.as_deref(), config.token_auth_file.as_deref())
                .map_err(|(path, detail)| StartError::TokenFile { path, detail })?;
        let authority = Arc::clone(&keys.pki.authority);
        let credentials = AdministratorKeys::of(&keys.pki);
        let facts = ServerFacts {
            // If there may be several servers, they maintain the endpoints of the Service together.
            address: config.reached(address).filter(|_| config.cluster.is_none()),
            port: address.map_or(0, |address| address.port()),
            client_ca: keys.pki.client_authorities_pem.clone(),
            front_proxy: keys.proxies,
        };
        let access = Access {
            static_tokens,
            signer: keys.pki.into_signer(config.access.tokens.clone()),
            front_proxy: config.access.request_headers.clone(),
            admits_anonymous: !config.access.refuses_anonymous,
            rbac: Arc::new(Rbac::new(config.access.authorization.clone())),
        };
        let aggregator = Aggregator::new(keys.aggregator);
        let state = Arc::new(config.state(Arc::clone(&registry), access, aggregator, address, stopped));
        registry.verify_requests_by(crate::x509::verify_request);
        registry.call_outside_by(Arc::new(Webhooks::new(state.metrics.webhooks.clone())));
        // The pump starts first because the tasks that follow rely on watches.
        let mut background = JoinSet::new();
        background.spawn(pump(Arc::clone(&state)).boxed());
        let peers = peers_of(&config, address, &credentials);
        let peers = bootstrap(&state, facts, config.is_bootstrapped, peers).await?;
        keep(&config, &state, peers.as_ref(), &mut background).await?;

        let accepting =
            ListenerSettings { state: Arc::clone(&state), acceptor, authorities: keys.clients, patience };
        let (mut entrance, opened) = Entrance::closed();
        if let Some((listener, _)) = listener {
            entrance.open(listener);
        }
        let serving = tokio::spawn(serve(accepting, opened, background).boxed());
        let entrance = Mutex::new(entrance);
        Ok(RunningServer { credentials, entrance, authority, state, peers, stop: Some(stop), serving })
    }
}

/// Returns this server's part among those on the store; `None` if the store belongs to this server alone, or no other machine can
/// reach it.
fn peers_of(
    config: &ServerConfig,
    address: Option<SocketAddr>,
    credentials: &AdministratorKeys,
) -> Option<Peers> {
    let timing = config.cluster.as_ref()?.timing;
    let peer = Peer::new(config.reached(address)?, address?.port(), &credentials.ca_pem);
    Some(Peers::new(peer, timing))
}

/// Creates the objects that every cluster has, and joins the other servers on the store.
async fn bootstrap(
    state: &Arc<State>,
    facts: ServerFacts,
    is_bootstrapped: bool,
    peers: Option<Peers>,
) -> Result<Option<SharedPeers>, StartError> {
    let starting = Arc::clone(state);
    let bootstrapping = move || {
        let made = starting.as_server("kubegc", |registry, context| {
            if is_bootstrapped {
                registry.follow_server(context, &facts)
            } else {
                registry.bootstrap(context, &facts)
            }
        });
        health::check_once(&starting);
        made.map(|()| peers.map(|peers| Arc::new(Mutex::new(Some(peers.begin(&starting))))))
    };
    // Webhooks are waited for on threads that may block.
    let made = if state.registry.blocks() == Blocking::Never && !state.registry.calls_outside() {
        bootstrapping()
    } else {
        run_blocking(bootstrapping).await
    };
    made.map_err(StartError::Bootstrap)
}

/// Starts the background tasks of a server. Roles, flow schemas and APIServices have been read once this returns.
async fn keep(
    config: &ServerConfig,
    state: &Arc<State>,
    peers: Option<&SharedPeers>,
    background: &mut JoinSet<()>,
) -> Result<(), StartError> {
    if let (Some(peers), Some(cluster)) = (peers, &config.cluster) {
        let keeping = peers::keep(Arc::clone(state), Arc::clone(peers), cluster.timing.renewal);
        background.spawn(keeping.boxed());
    }
    crate::auth::authentication::follow_roles(state, background).await.map_err(StartError::Roles)?;
    crate::follow::fairness::follow(state, background).await.map_err(StartError::Fairness)?;
    crate::follow::aggregated::follow(state, background).await.map_err(StartError::Aggregator)?;
    background.spawn(maintain(Arc::clone(state)).boxed());
    let lengths = Arc::clone(&state.list_lengths);
    background.spawn(crate::follow::list_lengths::follow(Arc::clone(&state.registry), lengths).boxed());
    if let Some(host) = &config.identity_host {
        let identity = Identity::new(host, state.advertised(), &state.uuid());
        background.spawn(identity::keep(Arc::clone(state), identity).boxed());
    }
    // An etcd may serve several servers, which must agree on who compacts it.
    let history_period = config.history_period.filter(|_| state.registry.blocks() != Blocking::Always);
    if let Some(period) = history_period {
        let periods = move || tokio::time::sleep(period);
        background.spawn(expire_history(Arc::clone(state), periods).boxed());
    }
    Ok(())
}

/// Keys and certificates of a server.
struct Keys {
    pki: Pki,
    /// Authorities of client certificates.
    clients: ClientAuthorities,
    /// Certificate that identifies this server to aggregated servers.
    aggregator: dial::Identity,
    /// Proxies that aggregated servers may trust.
    proxies: FrontProxyFacts,
}

impl Keys {
    async fn load(
        config: &ServerConfig,
        hosts: Vec<String>,
        registry: &Arc<Registry>,
    ) -> Result<Self, PkiError> {
        let (pki, front_proxy) = load_keys(config, hosts, registry).await?;
        let clients = pki.client_authorities(config.access.request_headers.as_ref())?;
        let proxies = proxy_facts(&front_proxy.ca_pem, config);
        let aggregator = match &config.keys.proxy_client {
            Some((certificate, key)) => FrontProxy::given(certificate, key)?,
            None => front_proxy.identity,
        };
        Ok(Self { pki, clients, aggregator, proxies })
    }
}

/// Loads the keys and certificates that the servers on the store share, or this server's own, and creates the missing ones.
async fn load_keys(
    config: &ServerConfig,
    hosts: Vec<String>,
    registry: &Arc<Registry>,
) -> Result<(Pki, FrontProxy), PkiError> {
    let is_in_memory = config.data_dir.is_none() && config.cluster.is_none();
    let (config, registry) = (config.clone(), Arc::clone(registry));
    let load = move || {
        let now = jiff::Timestamp::now();
        let folder = config.data_dir.as_ref().map(|folder| folder.join("pki"));
        let secret = config.cluster.as_ref().and_then(|cluster| cluster.secret.as_ref());
        let (pki, front_proxy) = if let Some(secret) = secret {
            cluster_keys::load_or_make(&registry, secret, folder.as_deref(), &hosts, now)?
        } else {
            if config.cluster.is_some() {
                cluster_keys::refuse_without_secret(&registry)?;
            }
            let _locked = folder.as_deref().map(lock_folder).transpose()?;
            let keep = folder.as_deref().map_or(Keep::InMemory, Keep::Folder);
            (Pki::load_or_make(&keep, &hosts, now)?, FrontProxy::load_or_make(&keep, now)?)
        };
        Ok((pki.with(&config.keys)?, front_proxy))
    };
    if is_in_memory {
        return load();
    }
    // The store, and the lock of a shared folder, may block.
    match tokio::task::spawn_blocking(load).await {
        Ok(loaded) => loaded,
        Err(failure) => Err(PkiError::Tls(failure.to_string())),
    }
}

/// Binds an address, and returns the actual one (for port 0).
fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server need not wait for the connections of its predecessor.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    listen().map_err(|error| StartError::Listen { address, error })
}

/// Passes the listener to the task that accepts connections: at the start, or when `listen` is called.
struct Entrance {
    runtime: Handle,
    opening: Option<oneshot::Sender<TcpListener>>,
}

impl Entrance {
    fn closed() -> (Self, oneshot::Receiver<TcpListener>) {
        let (opening, opened) = oneshot::channel();
        (Self { runtime: Handle::current(), opening: Some(opening) }, opened)
    }

    fn open(&mut self, listener: TcpListener) {
        if let Some(opening) = self.opening.take() {
            // A server that is stopping accepts no further connections.
            let _ = opening.send(listener);
        }
    }
}

/// Credentials of an administrator, and the authority that signed the server's certificate.
struct AdministratorKeys {
    ca_pem: String,
    certificate_pem: String,
    key_pem: String,
}

impl AdministratorKeys {
    fn of(pki: &Pki) -> Self {
        Self {
            ca_pem: pki.ca_pem.clone(),
            certificate_pem: pki.admin_certificate_pem.clone(),
            key_pem: pki.admin_key_pem.clone(),
        }
    }
}

/// Returns the proxies that aggregated servers may trust: this server, and those that this server trusts.
fn proxy_facts(own_ca: &str, config: &ServerConfig) -> FrontProxyFacts {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut facts = FrontProxyFacts {
        ca: own_ca.to_owned(),
        names: texts(&[CLIENT_NAME]),
        user_headers: texts(&["X-Remote-User"]),
        uid_headers: texts(&["X-Remote-Uid"]),
        group_headers: texts(&["X-Remote-Group"]),
        extra_prefixes: texts(&["X-Remote-Extra-"]),
    };
    let Some(given) = &config.access.request_headers else { return facts };
    let given_ca = String::from_utf8_lossy(&given.authorities);
    // A given certificate is signed by the given authority; a generated one by our own.
    if config.keys.proxy_client.is_some() {
        (facts.ca, facts.names) = (given_ca.into_owned(), given.allowed_names.clone());
    } else {
        facts.ca.push_str(&given_ca);
        if given.allowed_names.is_empty() {
            facts.names.clear();
        }
        facts.names.extend(given.allowed_names.iter().cloned());
    }
    facts.user_headers.clone_from(&given.user);
    facts.uid_headers.clone_from(&given.uid);
    facts.group_headers.clone_from(&given.groups);
    facts.extra_prefixes.clone_from(&given.extra_prefixes);
    facts
}

impl RunningServer {
    /// Returns the address on which the server listens, if it does, with the actual port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.state.address.get().copied()
    }

    /// Starts to listen on a free port of 127.0.0.1, unless the server already listens. The Service `kubernetes` only has endpoints
    /// if the server has listened from its start.
    pub fn listen(&self) -> Result<SocketAddr, StartError> {
        let mut entrance = self.entrance.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = self.address() {
            return Ok(address);
        }
        let runtime = entrance.runtime.clone();
        let _entered = runtime.enter();
        let (listener, address) = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        entrance.open(listener);
        Ok(*self.state.address.get_or_init(|| address))
    }

    /// Returns the administrator's credentials, for clients on this machine.
    #[must_use]
    pub fn credentials(&self) -> ClientCredentials {
        let AdministratorKeys { ca_pem, certificate_pem, key_pem } = &self.credentials;
        ClientCredentials {
            server: format!("https://{}", self.state.advertised()),
            ca_pem: ca_pem.clone(),
            certificate_pem: certificate_pem.clone(),
            key_pem: key_pem.clone(),
        }
    }

    /// Returns the authority whose client certificates the server accepts, so that the caller can sign certificates.
    #[must_use]
    pub fn certificate_authority(&self) -> &Arc<CertificateAuthority> {
        &self.authority
    }

    /// Returns the state that its requests share.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Returns the registry behind the server.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.state.registry
    }

    /// Returns access for this process: the same service, without a connection, as an administrator of this name.
    #[must_use]
    pub fn in_process(&self, user: &str) -> InProcess {
        InProcess::new(Arc::clone(&self.state), user)
    }

    /// Returns access for this process as a user who is not an administrator: anything that neither the user nor one of these
    /// groups may do is forbidden.
    #[must_use]
    pub fn in_process_as(&self, user: &str, groups: &[&str]) -> InProcess {
        InProcess::with_groups(Arc::clone(&self.state), user, groups)
    }

    /// Stops the server: accepts no new connections, ends watches, and gives requests a moment to finish. Takes at most two
    /// seconds.
    pub async fn shutdown(mut self) {
        if let Some(peers) = self.peers.take() {
            peers::leave(&self.state, peers).await;
        }
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if (&mut self.serving).await.is_err() {
            tracing::error!("the server ended by a panic");
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop.take();
        self.serving.abort();
    }
}

/// Settings for every connection.
#[derive(Clone)]
struct ListenerSettings {
    state: Arc<State>,
    acceptor: TlsAcceptor,
    authorities: ClientAuthorities,
    patience: Patience,
}

async fn serve(
    accepting: ListenerSettings,
    opened: oneshot::Receiver<TcpListener>,
    mut background: JoinSet<()>,
) {
    let mut connections = JoinSet::new();
    let mut stop = accepting.state.stop.clone();
    tokio::select! {
        biased;
        () = &mut stop => {}
        Ok(listener) = opened => accept(accepting, listener, stop, &mut connections).await,
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_PATIENCE, drained).await.is_err() {
        tracing::warn!(open = connections.len(), "connections were cut off at the end");
        connections.abort_all();
    }
    background.abort_all();
    while background.join_next().await.is_some() {}
}

/// Accepts connections until the server stops.
async fn accept(
    accepting: ListenerSettings,
    listener: TcpListener,
    mut stop: Stop,
    connections: &mut JoinSet<()>,
) {
    let clients = &accepting.state.clients;
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = &mut stop => break,
            arrived = arrivals::next(&listener, clients) => arrived,
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(accepting.clone(), stream, Arc::new(peer)));
    }
}

async fn connection(accepting: ListenerSettings, stream: TcpStream, admitted: Arc<AdmittedConnection>) {
    let ListenerSettings { state, acceptor, authorities, patience } = accepting;
    let client = admitted.client();
    let _ = stream.set_nodelay(true);
    let (stream, slot) = LentConnection::new(stream);
    let handshake = tokio::select! {
        shaken = tokio::time::timeout(patience.handshake, arrivals::shake_hands(client, acceptor, stream)) => shaken,
        () = client.asked(Ending::AtOnce) => return,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    state.metrics.connections.inc();
    let certificate = ConnectionCertificate::new(authorities, stream.get_ref().1.peer_certificates());
    if let Some(identity) = certificate.now().identity().filter(|identity| !identity.name.is_empty()) {
        let groups = identity.groups.clone();
        let user = authentication::authenticated(UserInfo { groups, ..UserInfo::default() });
        client.authenticated(&identity.name, authentication::standing(&user));
    }
    let answer = |mut request: Request<Incoming>| {
        // The certificate is judged for each request, because a connection may outlive it.
        let (state, certificate) = (Arc::clone(&state), certificate.now());
        request.extensions_mut().insert(Arc::clone(&admitted));
        async move {
            match unserved(&request) {
                Some(answer) => Ok(answer),
                None => service::serve(state, certificate, request).await,
            }
        }
    };
    converse(stream, client, patience, state.stop.clone(), answer).await;
    state.metrics.connections.dec();
    arrivals::stay_silent(client, &slot, state.stop.clone()).await;
}

/// Passes changes of the store to the watches, and reads the configuration when they affect it, for as long as the server lives.
async fn pump(state: Arc<State>) {
    if state.registry.blocks() != Blocking::Always {
        return repeat(|cx| state.registry.poll_pump(cx)).await;
    }
    // Opening the watch uses a network, so it happens on a thread that may block. Changed configuration is read on another thread,
    // so that watches need not wait for it.
    let (_alive, dropped) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let pumped = Arc::clone(&state);
    let pumping = tokio::task::spawn_blocking(move || {
        let pumping = repeat(|cx| pumped.registry.poll_changes(cx));
        runtime.block_on(futures::future::select(Box::pin(pumping), dropped));
    });
    tokio::select! {
        ended = pumping => if let Err(failure) = ended {
            tracing::error!(%failure, "watches get no more changes");
        },
        () = read_changes(state) => {}
    }
}

/// Polls a function that ends only when the watch on the store breaks, and starts it again after a pause.
async fn repeat(mut poll: impl FnMut(&mut Context<'_>) -> Poll<StorageError>) {
    loop {
        let broken = std::future::poll_fn(&mut poll).await;
        tracing::warn!(error = %broken, "the watch on the store failed and is restarted");
        tokio::time::sleep(PUMP_PAUSE).await;
    }
}

/// Reads the configuration whenever it has changed, on a thread that may block.
async fn read_changes(state: Arc<State>) {
    loop {
        std::future::poll_fn(|cx| state.registry.poll_stale(cx)).await;
        let reading = Arc::clone(&state);
        if let Err(error) = run_blocking(move || reading.registry.refresh_stale()).await {
            tracing::warn!(%error, "a changed configuration cannot be read and is read again");
            tokio::time::sleep(PUMP_PAUSE).await;
        }
    }
}

/// Maintains the registry on request and periodically.
async fn maintain(state: Arc<State>) {
    loop {
        let asked = std::future::poll_fn(|cx| state.registry.poll_maintenance(cx));
        let _ = tokio::time::timeout(MAINTENANCE_PERIOD, asked).await;
        let catalog = state.registry.catalog();
        state.metrics.forget_removed(|group, resource| catalog.serves(group, resource));
        let tending = Arc::clone(&state);
        let done = run_blocking(move || {
            if let Ok(status) = tending.registry.store_status() {
                tending.metrics.set_store(&status, tending.registry.blocks() == Blocking::Always);
            }
            tending.as_server("kubegc", gc_registry::Registry::maintain)
        });
        if let Err(error) = done.await {
            tracing::warn!(%error, "maintenance of the registry failed and is retried");
            tokio::time::sleep(PUMP_PAUSE).await;
        }
    }
}

/// Forgets history that is older than one to two periods, for as long as the server lives. `period` waits for one period to pass.
async fn expire_history<P: Future<Output = ()>>(state: Arc<State>, mut period: impl FnMut() -> P) {
    let mut newest = None;
    loop {
        period().await;
        let tending = Arc::clone(&state);
        let forgetting = move || tending.registry.forget_history(newest).map_err(ApiError::internal);
        match run_blocking(forgetting).await {
            Ok(revision) => newest = Some(revision),
            Err(error) => tracing::warn!(%error, "the history of the store could not be shortened"),
        }
    }
}

fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> impl Future<Output = Result<T, ApiError>> {
    tokio::task::spawn_blocking(work)
        .map(|done| done.unwrap_or_else(|failure| Err(ApiError::internal(failure))))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use crate::transport::connections::IdlePatience;
    use gc_registry::api::{Operation, RequestBody, RequestTarget, WriteOptions};
    use gc_registry::storage::{RangeOptions, Revision};
    use gc_store::MemoryStorage;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
    use tokio::sync::Semaphore;
    use tokio_rustls::TlsConnector;

    const SHORT: Duration = Duration::from_millis(200);

    async fn server(patience: Patience) -> RunningServer {
        let registry = Registry::open(Arc::new(MemoryStorage::default()), gc_registry::Config::default());
        let config = ServerConfig::at("127.0.0.1:0".parse().unwrap());
        Server::start_with(patience, config, Arc::new(registry.unwrap())).await.unwrap()
    }

    fn connector(server: &RunningServer) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.credentials().ca_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    /// Reports whether the listener closes the connection after a client sends this and then stays silent.
    async fn is_closed_after(mut stream: impl AsyncRead + AsyncWrite + Unpin, sent: &[u8]) -> bool {
        stream.write_all(sent).await.unwrap();
        stream.flush().await.unwrap();
        // An orderly close and a reset are both accepted, as long as the connection ends.
        let ended = async { drop(stream.read_to_end(&mut Vec::new()).await) };
        tokio::time::timeout(Duration::from_secs(20), ended).await.is_ok()
    }

    /// Creates a namespace; returns the revision of its creation.
    fn create(server: &RunningServer, name: &str) -> Revision {
        let resource = server.state.registry.catalog().find("", "v1", "namespaces").unwrap().clone();
        let body = RequestBody::from(serde_json::json!({"metadata": {"name": name}}));
        let operation = Operation::Create(body, WriteOptions::default());
        let target = RequestTarget::collection(&resource);
        let created =
            server.state.as_server("test", |registry, context| registry.handle(&target, operation, context));
        created.unwrap();
        server.state.registry.forget_history(None).unwrap()
    }

    #[tokio::test]
    async fn history_is_forgotten_after_one_to_two_periods() {
        let server = server(Patience::default()).await;
        // The clock is controlled by the test: a period ends on its command, and the next one begins when the work is done.
        let (begun, ended) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let clock = (Arc::clone(&begun), Arc::clone(&ended));
        let period = move || {
            let (begun, ended) = clock.clone();
            async move {
                begun.add_permits(1);
                ended.acquire().await.unwrap().forget();
            }
        };
        let expiring = tokio::spawn(expire_history(Arc::clone(&server.state), period));
        begun.acquire().await.unwrap().forget();
        let mut created = Vec::new();
        for (number, readable) in [&[true][..], &[false, true], &[false, false, true]].iter().enumerate() {
            created.push(create(&server, &format!("first-{number}")));
            create(&server, &format!("second-{number}"));
            ended.add_permits(1);
            begun.acquire().await.unwrap().forget();
            for (at, readable) in created.iter().zip(readable.iter()) {
                let options = RangeOptions { at: Some(*at), ..RangeOptions::default() };
                let found = server.state.registry.stored(&options);
                assert_eq!(found.is_ok(), *readable, "after {} periods: {found:?}", number + 1);
            }
        }
        expiring.abort();
    }

    #[tokio::test]
    async fn the_listener_closes_silent_connections() {
        let impatient = server(Patience { handshake: SHORT, ..Patience::default() }).await;
        // The beginning of a TLS record that announces 512 bytes, and of a preface.
        let before_tls: [(&str, &[u8]); 2] =
            [("nothing", b""), ("half a handshake", b"\x16\x03\x01\x02\x00\x01")];
        for (what, sent) in before_tls {
            let stream = TcpStream::connect(impatient.address().unwrap()).await.unwrap();
            assert!(is_closed_after(stream, sent).await, "{what}");
        }
        let within_tls: [(&str, &[u8]); 4] = [
            ("nothing after the handshake", b""),
            ("half a preface", b"PRI * HTTP/2.0\r\n\r\n"),
            ("half a header", b"GET / HTTP/1.1\r\nhost: a\r\n"),
            ("a request and nothing more", b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ];
        let idle = IdlePatience { first: SHORT, later: SHORT };
        let impatient = server(Patience { idle, ..Patience::default() }).await;
        let connector = connector(&impatient);
        for (what, sent) in within_tls {
            let stream = TcpStream::connect(impatient.address().unwrap()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let stream = connector.connect(name, stream).await.unwrap();
            assert!(is_closed_after(stream, sent).await, "{what}");
        }
    }
}
