//! The servers on one store: each renews a record, and the servers with a record form the endpoints of the Service `kubernetes`.
//!
//! A record contains no time, because the clocks of machines differ. Each server measures, by its own clock, the time since it saw
//! a record change, and removes a record that has not changed for the duration of a lease. Time in which it could not read the
//! records does not count: after an outage of the store, no server is considered dead only because none could renew its record.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gc_registry::api::{DeleteOptions, Operation, RequestBody, RequestTarget, WriteOptions};
use gc_registry::error::ApiError;
use gc_registry::records::ServerRecord;
use gc_registry::storage::Revision;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::follow;
use crate::state::State;
use crate::work::Weight;

/// Path of the records.
const RECORDS: &str = "living/";
const NAMESPACE: &str = "default";
const SERVICE: &str = "kubernetes";
const SLICES: &str = "discovery.k8s.io";
/// Label that marks further slices as managed by these servers.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "kubegc-apiserver";
/// Maximum number of attempts to write the endpoints while other servers write them.
const MAX_TURNS: usize = 8;
/// Maximum time that a stopping server spends on removing its record.
const FAREWELL: Duration = Duration::from_millis(500);

/// Intervals of the record of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTiming {
    /// Time between two renewals.
    pub renewal: Duration,
    /// Time without a renewal after which a server is considered dead.
    pub expiry: Duration,
}

impl Default for PeerTiming {
    /// Returns intervals that tolerate two missed renewals.
    fn default() -> Self {
        Self { renewal: Duration::from_secs(3), expiry: Duration::from_secs(10) }
    }
}

/// A server as its record describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Peer {
    address: IpAddr,
    port: u16,
    /// Hash of the server's certificate authority.
    authority: String,
}

/// Contents of a record.
#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    #[serde(flatten)]
    peer: Peer,
    /// Number of the renewal, which makes each renewal a change.
    renewal: u64,
}

impl Peer {
    /// Describes the server at this address, with this authority.
    pub(crate) fn new(address: IpAddr, port: u16, authority: &str) -> Self {
        let authority = STANDARD.encode(&Sha256::digest(authority)[..9]);
        Self { address, port, authority }
    }

    fn record(&self) -> String {
        format!("{RECORDS}{}", SocketAddr::new(self.address, self.port))
    }

    fn family(&self) -> &'static str {
        if self.address.is_ipv4() { "IPv4" } else { "IPv6" }
    }
}

/// One server's view of the others.
pub(crate) struct Peers {
    own: Peer,
    expiry: Duration,
    renewals: u64,
    /// Revision of each record, and the time at which this server first saw it.
    seen: BTreeMap<String, (Revision, Instant)>,
    /// Time of the last read of the records.
    looked: Option<Instant>,
    /// Servers with other keys that have been logged.
    strangers: BTreeSet<Peer>,
}

impl Peers {
    /// Creates a view without other servers.
    pub(crate) fn new(own: Peer, timing: PeerTiming) -> Self {
        let (seen, strangers) = (BTreeMap::new(), BTreeSet::new());
        Self { own, expiry: timing.expiry, renewals: 0, seen, looked: None, strangers }
    }

    /// Writes the record of a server that starts. A failure is logged, and retried at the first renewal.
    pub(crate) fn begin(mut self, state: &State) -> Self {
        if let Err(error) = self.tend(state, Instant::now()) {
            tracing::warn!(%error, "cannot write the lease of this API server yet");
        }
        self
    }

    /// Renews the record, removes the records of dead servers, and publishes the others as endpoints of the Service.
    pub(crate) fn tend(&mut self, state: &State, now: Instant) -> Result<(), ApiError> {
        self.renew(state)?;
        agree(state, |records| {
            let (living, dead) = self.judge(records, now);
            for record in dead {
                let name = &record.name;
                tracing::warn!(
                    server = name,
                    "an API server no longer renews its lease, and is removed from the endpoints"
                );
                // Has no effect if the record was renewed in the meantime, or removed by another server.
                let removed = state.registry.write_server_record(name, None, record.revision);
                removed.map_err(ApiError::internal)?;
            }
            self.warn_of_strangers(&living);
            Ok(living)
        })
    }

    fn renew(&mut self, state: &State) -> Result<(), ApiError> {
        self.renewals += 1;
        let announcement = Announcement { peer: self.own.clone(), renewal: self.renewals };
        let text = serde_json::to_vec(&announcement).map_err(ApiError::internal)?;
        let name = self.own.record();
        let before = state.registry.server_record(&name).map_err(ApiError::internal)?;
        let before = before.map_or(Revision(0), |record| record.revision);
        // Another server may just have removed the record; the next renewal writes it again.
        let written = state.registry.write_server_record(&name, Some(text.into()), before);
        written.map(drop).map_err(ApiError::internal)
    }

    /// Returns the servers that are alive, and the records of those that are dead.
    fn judge(&mut self, records: Vec<ServerRecord>, now: Instant) -> (BTreeSet<Peer>, Vec<ServerRecord>) {
        // While this server or the store was suspended, the other servers were too, or their renewals could not be seen.
        let gap = self.looked.replace(now).map_or(Duration::ZERO, |before| now.duration_since(before));
        if gap > self.expiry / 2 {
            self.seen.clear();
        }
        let mut living = BTreeSet::from([self.own.clone()]);
        let mut dead = Vec::new();
        let mut seen = BTreeMap::new();
        for record in records {
            let known = self.seen.get(&record.name).filter(|(revision, _)| *revision == record.revision);
            let since = known.map_or(now, |(_, since)| *since);
            let is_alive = record.name == self.own.record() || now.duration_since(since) < self.expiry;
            seen.insert(record.name.clone(), (record.revision, since));
            match announced(&record) {
                Some(announcement) if is_alive => drop(living.insert(announcement.peer)),
                // The record may come from a newer server that uses another format.
                None if is_alive => {}
                _ => dead.push(record),
            }
        }
        self.seen = seen;
        (living, dead)
    }

    /// Logs, once for each server with another authority, that neither accepts the clients of the other.
    fn warn_of_strangers(&mut self, living: &BTreeSet<Peer>) {
        for peer in living.iter().filter(|peer| peer.authority != self.own.authority) {
            if self.strangers.insert(peer.clone()) {
                tracing::warn!(
                    server = %SocketAddr::new(peer.address, peer.port),
                    "another API server on this store has another certificate authority: tokens and kubeconfigs of one are \
                     refused by the other; give all of them the same --cluster-key-file"
                );
            }
        }
        self.strangers.retain(|peer| living.contains(peer));
    }
}

/// View of the other servers; `None` once this server has left.
pub(crate) type SharedPeers = Arc<Mutex<Option<Peers>>>;

fn lock(peers: &SharedPeers) -> MutexGuard<'_, Option<Peers>> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Renews the record until the server ends.
pub(crate) async fn keep(state: Arc<State>, peers: SharedPeers, renewal: Duration) {
    loop {
        tokio::time::sleep(renewal).await;
        let peers = Arc::clone(&peers);
        let tend = move |state: &State| match &mut *lock(&peers) {
            Some(peers) => peers.tend(state, Instant::now()),
            None => Ok(()),
        };
        if let Err(error) = state.perform(Weight::WriteMany, tend).await {
            tracing::warn!(%error, "cannot renew the lease of this API server");
        }
    }
}

/// Removes the record and the endpoint of a server before it stops, so that no further clients are sent to it.
pub(crate) async fn leave(state: &Arc<State>, peers: SharedPeers) {
    let left = state.perform(Weight::WriteMany, move |state| {
        // Taken out, so that the record is not renewed again.
        let Some(Peers { own, .. }) = lock(&peers).take() else { return Ok(()) };
        let name = own.record();
        if let Some(record) = state.registry.server_record(&name).map_err(ApiError::internal)? {
            let removed = state.registry.write_server_record(&name, None, record.revision);
            removed.map_err(ApiError::internal)?;
        }
        agree(state, |records| {
            let others = records.iter().filter(|record| record.name != name);
            Ok(others.filter_map(|record| announced(record).map(|found| found.peer)).collect())
        })
    });
    match tokio::time::timeout(FAREWELL, left).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot remove the lease of this API server"),
        Err(_) => tracing::warn!("cannot remove the lease of this API server in time: the store is slow"),
    }
}

/// Servers by address family and port: one EndpointSlice each.
type Groups<'a> = BTreeMap<(&'static str, u16), Vec<&'a Peer>>;

fn announced(record: &ServerRecord) -> Option<Announcement> {
    serde_json::from_slice(&record.value).ok()
}

/// Publishes the servers that `living` selects among the records as endpoints of the Service.
///
/// Writes are conditional on the endpoints that were read *before* the records, so a server with an older view of the records never
/// replaces the endpoints of one with a newer view.
fn agree(
    state: &State,
    mut living: impl FnMut(Vec<ServerRecord>) -> Result<BTreeSet<Peer>, ApiError>,
) -> Result<(), ApiError> {
    for _ in 0..MAX_TURNS {
        let published = PublishedEndpoints::read(state)?;
        let records = state.registry.server_records(RECORDS).map_err(ApiError::internal)?;
        match published.publish(state, &living(records)?) {
            // Another server was faster.
            Err(error) if matches!(error.code, 404 | 409) => {}
            done => return done,
        }
    }
    // The next renewal tries again.
    Ok(())
}

/// Endpoints of the Service, as they are stored.
struct PublishedEndpoints {
    endpoints: Option<Value>,
    /// Slices by name.
    slices: BTreeMap<String, Value>,
}

impl PublishedEndpoints {
    fn read(state: &State) -> Result<Self, ApiError> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut endpoints = list(state, "", "endpoints")?.into_iter();
        let slices = list(state, SLICES, "endpointslices")?.into_iter();
        let is_ours =
            |slice: &Value| name(slice) == SERVICE || slice["metadata"]["labels"][MANAGED_BY] == MANAGER;
        Ok(Self {
            endpoints: endpoints.find(|found| name(found) == SERVICE),
            slices: slices.filter(is_ours).map(|slice| (name(&slice), slice)).collect(),
        })
    }

    /// Publishes these servers as the endpoints.
    fn publish(&self, state: &State, peers: &BTreeSet<Peer>) -> Result<(), ApiError> {
        put(state, "", "endpoints", self.endpoints.as_ref(), &endpoints(peers), &["subsets"])?;
        let mut groups = Groups::new();
        for peer in peers {
            groups.entry((peer.family(), peer.port)).or_default().push(peer);
        }
        let before = self.slices.get(SERVICE).and_then(group_of);
        if let (true, Some(before)) = (groups.is_empty(), before) {
            // The last server has left: its slice stays, without endpoints.
            groups.insert(before, Vec::new());
        }
        let first = before.filter(|before| groups.contains_key(before)).or(groups.keys().next().copied());
        let mut wanted = BTreeMap::new();
        for (group, peers) in &groups {
            let (family, port) = *group;
            let name = if Some(*group) == first {
                SERVICE.to_owned()
            } else {
                format!("{SERVICE}-{}-{port}", family.to_ascii_lowercase())
            };
            wanted.insert(name.clone(), slice(&name, family, port, peers));
        }
        for (name, live) in &self.slices {
            // The address family of a slice is immutable.
            if wanted.get(name).is_none_or(|wanted| wanted["addressType"] != live["addressType"]) {
                remove(state, live)?;
            }
        }
        for (name, wanted) in &wanted {
            let live = self.slices.get(name).filter(|live| wanted["addressType"] == live["addressType"]);
            put(state, SLICES, "endpointslices", live, wanted, &["endpoints", "ports"])?;
        }
        Ok(())
    }
}

fn ports(port: u16) -> Value {
    json!([{"name": "https", "port": port, "protocol": "TCP"}])
}

fn endpoints(peers: &BTreeSet<Peer>) -> Value {
    let mut by_port: BTreeMap<u16, Vec<&Peer>> = BTreeMap::new();
    for peer in peers {
        by_port.entry(peer.port).or_default().push(peer);
    }
    let subset = |(port, peers): (u16, Vec<&Peer>)| {
        let addresses: Vec<Value> =
            peers.iter().map(|peer| json!({"ip": peer.address.to_string()})).collect();
        json!({"addresses": addresses, "ports": ports(port)})
    };
    let subsets: Vec<Value> = by_port.into_iter().map(subset).collect();
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {
            "name": SERVICE, "namespace": NAMESPACE,
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": subsets,
    })
}

fn slice(name: &str, family: &str, port: u16, peers: &[&Peer]) -> Value {
    let endpoint =
        |peer: &&Peer| json!({"addresses": [peer.address.to_string()], "conditions": {"ready": true}});
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": SERVICE},
        },
        "addressType": family, "ports": ports(port),
        "endpoints": peers.iter().map(endpoint).collect::<Vec<_>>(),
    });
    if name != SERVICE {
        slice["metadata"]["labels"][MANAGED_BY] = MANAGER.into();
    }
    slice
}

/// Returns the family and port of a slice.
fn group_of(slice: &Value) -> Option<(&'static str, u16)> {
    let family = match slice["addressType"].as_str()? {
        "IPv4" => "IPv4",
        "IPv6" => "IPv6",
        _ => return None,
    };
    Some((family, slice["ports"][0]["port"].as_u64()?.try_into().ok()?))
}

/// Lists the objects of a resource in the namespace of the Service.
fn list(state: &State, group: &str, resource: &str) -> Result<Vec<Value>, ApiError> {
    follow::list_at(state, &target(state, group, resource, "")?)
}

fn target(state: &State, group: &str, resource: &str, name: &str) -> Result<RequestTarget, ApiError> {
    let collection = follow::target(state, group, resource)?;
    Ok(RequestTarget { namespace: NAMESPACE.to_owned(), name: name.to_owned(), ..collection })
}

/// Creates an object, or updates these fields of the one that was read.
fn put(
    state: &State,
    group: &str,
    resource: &str,
    live: Option<&Value>,
    wanted: &Value,
    members: &[&str],
) -> Result<(), ApiError> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let (target, operation) = match live {
        None => {
            let body = RequestBody::from(wanted.clone());
            (target(state, group, resource, "")?, Operation::Create(body, WriteOptions::default()))
        }
        Some(live) => {
            let mut new = live.clone();
            for member in members {
                new[*member] = wanted[*member].clone();
            }
            if new == *live {
                return Ok(());
            }
            let update = Operation::Update(RequestBody::from(new), WriteOptions::default());
            (target(state, group, resource, name)?, update)
        }
    };
    state.as_server(MANAGER, |registry, context| registry.handle(&target, operation, context)).map(drop)
}

/// Removes a slice, unless it changed since it was read.
fn remove(state: &State, slice: &Value) -> Result<(), ApiError> {
    let text = |name: &str| slice["metadata"][name].as_str().unwrap_or_default();
    let target = target(state, SLICES, "endpointslices", text("name"))?;
    let delete = Operation::Delete(DeleteOptions {
        precondition_uid: Some(text("uid").to_owned()),
        precondition_resource_version: Some(text("resourceVersion").to_owned()),
        ..DeleteOptions::default()
    });
    state.as_server(MANAGER, |registry, context| registry.handle(&target, delete, context)).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use gc_registry::Registry;
    use gc_registry::storage::Storage;
    use gc_store::MemoryStorage;

    use super::*;
    use crate::{RunningServer, Server, ServerConfig};

    const TIMING: PeerTiming =
        PeerTiming { renewal: Duration::from_secs(1), expiry: Duration::from_secs(10) };

    /// Starts a server that does not renew its record by itself.
    async fn server(store: &Arc<MemoryStorage>) -> RunningServer {
        let store = Arc::clone(store) as Arc<dyn Storage>;
        let registry = Registry::open(store, gc_registry::Config::default()).unwrap();
        let config = ServerConfig { listen: None, ..ServerConfig::at("127.0.0.1:0".parse().unwrap()) };
        Server::start(config, Arc::new(registry)).await.unwrap()
    }

    fn peer(address: &str, authority: &str) -> Peer {
        let address: SocketAddr = address.parse().unwrap();
        Peer::new(address.ip(), address.port(), authority)
    }

    /// Returns the addresses of the Endpoints, and those of each EndpointSlice.
    fn endpoints_of(state: &State) -> (Vec<String>, BTreeMap<String, Vec<String>>) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let listed = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let endpoints = PublishedEndpoints::read(state).unwrap().endpoints.unwrap_or_default();
        let mut addresses = Vec::new();
        for subset in listed(&endpoints["subsets"]) {
            let port = subset["ports"][0]["port"].as_u64().unwrap();
            addresses.extend(
                listed(&subset["addresses"]).iter().map(|one| format!("{}:{port}", text(&one["ip"]))),
            );
        }
        let slices = follow::list(state, SLICES, "endpointslices").unwrap();
        let slice = |slice: &Value| {
            let port = slice["ports"][0]["port"].as_u64().unwrap();
            let one = |one: &Value| format!("{}:{port}", text(&one["addresses"][0]));
            (text(&slice["metadata"]["name"]), listed(&slice["endpoints"]).iter().map(one).collect())
        };
        (addresses, slices.iter().map(slice).collect())
    }

    #[tokio::test]
    async fn the_service_leads_to_the_servers_that_live() {
        let store = Arc::new(MemoryStorage::default());
        let (one, two) = (server(&store).await, server(&store).await);
        let [mut of_first, mut of_second, mut of_third] = ["10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"]
            .map(|address| Peers::new(peer(address, "a"), TIMING));
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        of_first.tend(one.state(), at(0)).unwrap();
        of_second.tend(two.state(), at(0)).unwrap();
        of_third.tend(two.state(), at(0)).unwrap();
        let all = ["10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"].map(str::to_owned).to_vec();
        let expected =
            |which: &[String]| (which.to_vec(), BTreeMap::from([(SERVICE.to_owned(), which.to_vec())]));
        assert_eq!(endpoints_of(one.state()), expected(&all));
        // The third server dies. A server that has observed it for less than the lease keeps its record.
        of_first.tend(one.state(), at(1)).unwrap();
        of_second.tend(two.state(), at(9)).unwrap();
        assert_eq!(endpoints_of(one.state()), expected(&all));
        of_first.tend(one.state(), at(6)).unwrap();
        of_first.tend(one.state(), at(11)).unwrap();
        assert_eq!(endpoints_of(one.state()), expected(&all[..2]), "the second was renewed at 9");
        // A newly started server considers all records new.
        let mut again = Peers::new(peer("10.0.0.3:6443", "a"), TIMING);
        again.tend(two.state(), at(100)).unwrap();
        assert_eq!(endpoints_of(one.state()), expected(&all));
        // A stopping server removes its record.
        let shared = |peers| Arc::new(Mutex::new(Some(peers)));
        let leaving = shared(of_second);
        leave(two.state(), Arc::clone(&leaving)).await;
        assert!(lock(&leaving).is_none(), "not renewed again");
        assert_eq!(endpoints_of(one.state()), expected(&[all[0].clone(), all[2].clone()]));
        leave(one.state(), shared(of_first)).await;
        leave(one.state(), shared(again)).await;
        assert_eq!(endpoints_of(one.state()).0, Vec::<String>::new());
        assert_eq!(endpoints_of(one.state()).1[SERVICE], Vec::<String>::new());
    }

    /// Regression test: after an outage of the store, the first server that renewed its record removed all others.
    #[tokio::test]
    async fn no_server_is_dead_because_the_store_could_not_be_read() {
        let store = Arc::new(MemoryStorage::default());
        let server = server(&store).await;
        let mut all =
            ["10.0.0.1:6443", "10.0.0.2:6443"].map(|address| Peers::new(peer(address, "a"), TIMING));
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        for peers in &mut all {
            peers.tend(server.state(), at(0)).unwrap();
        }
        let [first, _] = &mut all;
        let both = ["10.0.0.1:6443", "10.0.0.2:6443"];
        // Nothing was read or written for a minute.
        for seconds in [60, 64, 68] {
            first.tend(server.state(), at(seconds)).unwrap();
            assert_eq!(endpoints_of(server.state()).0, both, "at {seconds}");
        }
        first.tend(server.state(), at(70)).unwrap();
        assert_eq!(endpoints_of(server.state()).0, both[..1], "the second could have renewed it since");
    }

    #[tokio::test]
    async fn other_ports_and_families_have_slices_of_their_own() {
        let store = Arc::new(MemoryStorage::default());
        let server = server(&store).await;
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut all: Vec<Peers> = ["10.0.0.1:6443", "10.0.0.1:7443", "[fd00::1]:6443"]
            .map(|address| Peers::new(peer(address, "a"), TIMING))
            .into();
        for peers in &mut all {
            peers.tend(server.state(), at(0)).unwrap();
        }
        let slices = endpoints_of(server.state()).1;
        let names: Vec<&str> = slices.keys().map(String::as_str).collect();
        assert_eq!(names, ["kubernetes", "kubernetes-ipv4-7443", "kubernetes-ipv6-6443"]);
        assert_eq!(slices["kubernetes"], ["10.0.0.1:6443"]);
        // The servers of the first slice die: the next group takes over its name, and no other slice is left.
        let last = all.last_mut().unwrap();
        for seconds in [5, 10] {
            last.tend(server.state(), at(seconds)).unwrap();
        }
        let slices = endpoints_of(server.state()).1;
        assert_eq!(slices, BTreeMap::from([("kubernetes".to_owned(), vec!["fd00::1:6443".to_owned()])]));
    }

    #[test]
    fn a_server_with_other_keys_is_named_once() {
        let mut peers = Peers::new(peer("10.0.0.1:1", "a"), TIMING);
        let stranger = BTreeSet::from([peer("10.0.0.2:1", "b"), peer("10.0.0.3:1", "a")]);
        peers.warn_of_strangers(&stranger);
        assert_eq!(peers.strangers, BTreeSet::from([peer("10.0.0.2:1", "b")]));
        peers.warn_of_strangers(&BTreeSet::new());
        assert!(peers.strangers.is_empty());
    }
}
