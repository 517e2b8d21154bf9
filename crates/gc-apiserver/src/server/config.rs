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
use crate::state::{Clock, State};
use crate::transport::account::{Account, MemoryBudget};
use crate::transport::clients::{Clients, Limits};
use crate::transport::stop::Stop;
use crate::work::Work;

/// The history of one to two such periods is kept, as kube-apiserver keeps it in etcd: page tokens expire by age, too.
const HISTORY_PERIOD: Duration = Duration::from_mins(5);

/// An address outside of every network (RFC 5737), by which the routing table is asked for this host's own address.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The configuration of the server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where to listen; `None` for a server that only this process calls ([`in_process`]), until [`listen`] is called.
    ///
    /// [`in_process`]: super::RunningServer::in_process
    /// [`listen`]: super::RunningServer::listen
    pub listen: Option<SocketAddr>,
    /// Where keys and certificates are kept; `None` keeps them in memory.
    pub data_dir: Option<PathBuf>,
    /// A bearer token of the administrator (`system:masters`).
    pub admin_token: Option<String>,
    /// A file of further tokens: `token,user,uid,"group1,group2"` per line.
    pub token_auth_file: Option<PathBuf>,
    /// Further names and addresses for the serving certificate.
    pub hosts: Vec<String>,
    /// Keys and certificates that are given, and not made.
    pub keys: GivenKeys,
    /// Authentication and authorization.
    pub access: AccessConfig,
    /// The flags that the server was started with, as `/flagz` shows them: without secrets.
    pub flags: BTreeMap<String, String>,
    /// The name of this host, for the identity Lease in `kube-system`, which is written every ten seconds; `None` keeps none.
    pub identity_host: Option<String>,
    /// Clock for the timestamps of objects.
    pub clock: Clock,
    /// Handler of further paths, if any.
    pub extension: Option<Arc<dyn Extension>>,
    /// Limit of the memory held for clients.
    pub memory_budget: MemoryBudget,
    /// The store has what every cluster has, from a server of this process, and has not changed since.
    pub is_bootstrapped: bool,
    /// Address of this server in the endpoints of the Service `kubernetes`; `None` for the address on which it listens, or this
    /// host's own if that is a loopback address.
    pub advertise: Option<IpAddr>,
    /// Settings for several servers on one store; `None` if the store is this server's alone.
    pub cluster: Option<ClusterConfig>,
    /// Superseded versions are forgotten after one to two of these periods; `None` keeps as many as the store has room for. A store
    /// that several servers share compacts itself.
    pub history_period: Option<Duration>,
}

/// Settings that the servers on one store share.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    /// The secret that seals their common keys; without it, each server has its own.
    pub secret: Option<ClusterSecret>,
    /// Intervals by which each knows that the others are alive.
    pub timing: PeerTiming,
}

/// Configuration of authentication and authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// Service-account tokens.
    pub tokens: TokenSettings,
    /// Proxies that are believed when they say who asks.
    pub request_headers: Option<RequestHeaders>,
    /// Requests without credentials are refused.
    pub refuses_anonymous: bool,
    /// Authorizers in order; roles alone if empty.
    pub authorization: Vec<AuthorizationMode>,
}

impl ServerConfig {
    /// Makes the state of a server with this configuration. `address` is where it listens from the start.
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
        // Without random bits nothing that follows would be safe: names, UIDs, token ids.
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
            clock: self.clock.clone(),
            facts: Facts::new(self.flags.clone()),
            stop,
            address: address.map_or_else(OnceLock::new, OnceLock::from),
            extension: self.extension.clone(),
            random,
        }
    }

    /// A server at this address that keeps its keys in memory, has no tokens, and asks roles alone.
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
        }
    }

    /// The address by which others reach a server that listens at `address`.
    pub(crate) fn reached(&self, address: Option<SocketAddr>) -> Option<IpAddr> {
        address.and_then(|address| self.advertise.or_else(|| reachable(address.ip())))
    }
}

/// The address that the Service `kubernetes` leads to: where the server listens, or this host's own address if that is
/// for this host alone. The socket only asks the routing table; it sends nothing.
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
