//! Configuration of a server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gc_registry::Registry;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::aggregator::Aggregator;
use crate::api_documents::discovery::Discovery;
use crate::api_documents::openapi::OpenApi;
use crate::auth::access::Access;
use crate::auth::cluster_keys::ClusterSecret;
use crate::auth::pki::GivenKeys;
use crate::auth::rbac::AuthorizationMode;
use crate::auth::request_headers::RequestHeaders;
use crate::auth::tokens::TokenSettings;
use crate::metrics::Metrics;
use crate::server::peers::PeerTiming;
use crate::state::extension::Extension;
use crate::state::facts::Facts;
use crate::state::readings::SharedReadings;
use crate::state::{Clock, State};
use crate::transport::account::{Account, MemoryBudget};
use crate::transport::clients::{Clients, Limits};
use crate::transport::stop::Stop;
use crate::work::Work;

/// History is kept for one to two such periods, as kube-apiserver does in etcd: page tokens expire by age, too.
const HISTORY_PERIOD: Duration = Duration::from_mins(5);

/// An address outside every network (RFC 5737), used to ask the routing table for this host's own address.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Configuration of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address to listen on; `None` for a server that only this process calls ([`in_process`]), until [`listen`] is called.
    ///
    /// [`in_process`]: super::RunningServer::in_process
    /// [`listen`]: super::RunningServer::listen
    pub listen: Option<SocketAddr>,
    /// Folder for keys and certificates; `None` keeps them in memory.
    pub data_dir: Option<PathBuf>,
    /// A bearer token of the administrator (`system:masters`).
    pub admin_token: Option<String>,
    /// A file of further tokens: `token,user,uid,"group1,group2"` per line.
    pub token_auth_file: Option<PathBuf>,
    /// Further names and addresses for the serving certificate.
    pub hosts: Vec<String>,
    /// Given keys and certificates, in place of generated ones.
    pub keys: GivenKeys,
    /// Authentication and authorization.
    pub access: AccessConfig,
    /// Flags that the server was started with, as shown at `/flagz`; without secrets.
    pub flags: BTreeMap<String, String>,
    /// Name of this host for the identity Lease in `kube-system`, which is renewed every ten seconds; `None` for no Lease.
    pub identity_host: Option<String>,
    /// Clock for the timestamps of objects.
    pub clock: Clock,
    /// Handler of further paths, if any.
    pub extension: Option<Arc<dyn Extension>>,
    /// Limit of the memory held for clients.
    pub memory_budget: MemoryBudget,
    /// True if a server of this process has already created the bootstrap objects in the store, which has not changed since.
    pub is_bootstrapped: bool,
    /// Address of this server in the endpoints of the Service `kubernetes`; `None` for the address on which it listens, or this
    /// host's own if that is a loopback address.
    pub advertise: Option<IpAddr>,
    /// Settings for several servers on one store; `None` if the store is this server's alone.
    pub cluster: Option<ClusterConfig>,
    /// Period of history: superseded versions are forgotten after one to two periods; `None` keeps as many as the store has room
    /// for. A store that several servers share compacts itself.
    pub history_period: Option<Duration>,
    /// Where the servers of this process share what they read in objects that their stores share.
    pub readings: Option<Arc<SharedReadings>>,
}

/// Settings that the servers on one store share.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    /// Secret that encrypts their common keys; without it, each server has its own.
    pub secret: Option<ClusterSecret>,
    /// Intervals for detecting dead servers.
    pub timing: PeerTiming,
}

/// Configuration of authentication and authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// Service-account tokens.
    pub tokens: TokenSettings,
    /// Proxies that may name users in headers.
    pub request_headers: Option<RequestHeaders>,
    /// True if requests without credentials are refused.
    pub refuses_anonymous: bool,
    /// Authorizers in order; only RBAC if empty.
    pub authorization: Vec<AuthorizationMode>,
}

impl ServerConfig {
    /// Creates the state of a server with this configuration. `address` is the one on which it listens from the start.
    pub(crate) fn state(
        &self,
        registry: Arc<Registry>,
        access: Access,
        aggregator: Aggregator,
        address: Option<SocketAddr>,
        stop: Stop,
    ) -> State {
        let random = SystemRandom::new();
        let mut seed = [0; 8];
        // Without random bits, names, UIDs and token ids would not be safe.
        random.fill(&mut seed).expect("the operating system gives random bits");
        let metrics = Metrics::new();
        let account = Account::new(self.memory_budget);
        State {
            work: Work::new(u64::from_le_bytes(seed), &account),
            clients: Clients::new(Limits::of_process(), account, metrics.losses.clone()),
            registry,
            access,
            aggregator,
            discovery: Discovery::default(),
            openapi: OpenApi::default(),
            metrics,
            frames: Arc::default(),
            list_lengths: Arc::default(),
            clock: self.clock.clone(),
            facts: Facts::new(self.flags.clone()),
            stop,
            address: address.map_or_else(OnceLock::new, OnceLock::from),
            extension: self.extension.clone(),
            random,
            readings: self.readings.clone(),
            is_for_its_process: address.is_none(),
        }
    }

    /// Returns the configuration of a server at this address that keeps its keys in memory, has no static tokens, and authorizes by
    /// RBAC only.
    #[must_use]
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen: Some(listen),
            data_dir: None,
            admin_token: None,
            token_auth_file: None,
            hosts: Vec::new(),
            keys: GivenKeys::default(),
            access: AccessConfig::default(),
            flags: BTreeMap::new(),
            identity_host: None,
            clock: Clock::default(),
            extension: None,
            memory_budget: MemoryBudget::of_machine(),
            is_bootstrapped: false,
            advertise: None,
            cluster: None,
            history_period: Some(HISTORY_PERIOD),
            readings: None,
        }
    }

    /// Returns the address by which others reach a server that listens at `address`.
    pub(crate) fn reached(&self, address: Option<SocketAddr>) -> Option<IpAddr> {
        address.and_then(|address| self.advertise.or_else(|| reachable(address.ip())))
    }
}

/// Returns the address for the endpoints of the Service `kubernetes`: the one on which the server listens, or this host's own if
/// that is a loopback address. The socket only queries the routing table; it sends nothing.
fn reachable(address: IpAddr) -> Option<IpAddr> {
    if !address.is_loopback() && !address.is_unspecified() {
        return Some(address);
    }
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((ELSEWHERE, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConfig").field("listen", &self.listen).finish_non_exhaustive()
    }
}
