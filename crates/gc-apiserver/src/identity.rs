//! The identity Lease of the server, `apiserver-…` in `kube-system`, which shows other servers that it is alive.
//!
//! Once the Lease has not been renewed for its duration, a collector deletes it: `gc_collectors::leases`, or upstream's.

use std::sync::Arc;
use std::time::Duration;

use gc_registry::api::{Operation, PatchType, RequestBody, RequestTarget, WriteOptions};
use gc_registry::error::ApiError;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::follow;
use crate::state::State;
use crate::work::Weight;

/// Upstream's values.
pub(crate) const RENEWAL_PERIOD: Duration = Duration::from_secs(10);
const DURATION_SECONDS: u32 = 3600;
const NAMESPACE: &str = "kube-system";
/// Label of the Lease, and its field manager.
const COMPONENT: &str = "kube-apiserver";
const GROUP: &str = "coordination.k8s.io";
/// Number of hash bytes in a name.
const HASH_BYTES: usize = 16;

/// Identity of this server among others on the same store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    name: String,
    host: String,
    holder: String,
    /// `host:port` at which the server can be reached.
    address: String,
}

impl Identity {
    /// Creates the identity of a server on this host. The name outlives the process; the holder does not.
    pub(crate) fn new(host: &str, address: String, process: &str) -> Self {
        let name = name(host);
        Self { holder: format!("{name}_{process}"), name, host: host.to_owned(), address }
    }

    fn lease(&self, renewed: jiff::Timestamp) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Lease",
            "metadata": {
                "name": self.name, "namespace": NAMESPACE,
                "labels": {"apiserver.kubernetes.io/identity": COMPONENT, "kubernetes.io/hostname": self.host},
                "annotations": {"kubernetes.io/peer-advertise-address": self.address},
            },
            "spec": {
                "holderIdentity": self.holder, "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            },
        })
    }
}

/// Returns the name of the Lease, which upstream derives from the host name.
fn name(host: &str) -> String {
    let mut hash = Sha256::new();
    for part in [host, COMPONENT] {
        hash.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        hash.update(part);
    }
    format!("apiserver-{}", base32(&hash.finalize()[..HASH_BYTES]))
}

/// Encodes bytes by RFC 4648, in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bit = |index: usize| bytes.get(index / 8).map_or(0, |byte| usize::from(byte >> (7 - index % 8) & 1));
    let letter = |start| LETTERS[(start..start + 5).fold(0, |value, index| value << 1 | bit(index))];
    (0..bytes.len() * 8).step_by(5).map(|start| char::from(letter(start))).collect()
}

/// Renews the Lease for as long as the server lives.
pub(crate) async fn keep(state: Arc<State>, identity: Identity) {
    loop {
        let renewed = identity.clone();
        if let Err(error) = state.perform(Weight::Write, move |state| renew(state, &renewed)).await {
            tracing::warn!(%error, lease = identity.name, "the identity Lease of this server is not renewed");
        }
        tokio::time::sleep(RENEWAL_PERIOD).await;
    }
}

/// Renews the Lease, and creates it if necessary.
pub(crate) fn renew(state: &State, identity: &Identity) -> Result<(), ApiError> {
    let collection = follow::target(state, GROUP, "leases")?;
    let collection = RequestTarget { namespace: NAMESPACE.to_owned(), ..collection };
    let target = RequestTarget { name: identity.name.clone(), ..collection.clone() };
    let body = || RequestBody::from(identity.lease(state.clock.now()));
    let send = |target: &RequestTarget, operation| {
        state
            .as_server(COMPONENT, |registry, context| registry.handle(target, operation, context))
            .map(|_| ())
    };
    match send(&target, Operation::Patch(PatchType::Merge, body(), WriteOptions::default())) {
        Err(error) if error.code == 404 => {
            send(&collection, Operation::Create(body(), WriteOptions::default()))
        }
        answered => answered,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use gc_registry::Registry;
    use gc_store::MemoryStorage;

    use super::*;
    use crate::{Clock, Server, ServerConfig};

    #[test]
    fn names_are_those_of_upstream() {
        assert_eq!(name("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
        for (bytes, text) in [("", ""), ("f", "my"), ("fo", "mzxq"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
    }

    /// Returns the Leases without the metadata that the server adds to each object.
    fn shown(state: &State) -> Vec<Value> {
        let mut leases = follow::list(state, GROUP, "leases").unwrap();
        for lease in &mut leases {
            let metadata = lease["metadata"].as_object_mut().unwrap();
            metadata
                .retain(|name, _| matches!(name.as_str(), "name" | "namespace" | "labels" | "annotations"));
        }
        leases
    }

    #[tokio::test]
    async fn a_lease_is_renewed_and_comes_back() {
        let seconds = Arc::new(AtomicI64::new(1_000));
        let read = Arc::clone(&seconds);
        let clock = Clock::new(move || jiff::Timestamp::from_second(read.load(Ordering::Relaxed)).unwrap());
        let registry = Registry::open(Arc::new(MemoryStorage::default()), gc_registry::Config::default());
        let config = ServerConfig { clock, ..ServerConfig::at("127.0.0.1:0".parse().unwrap()) };
        let server = Server::start(config, Arc::new(registry.unwrap())).await.unwrap();
        let state = server.state();
        assert_eq!(shown(state), [Value::Null; 0], "a server keeps a Lease only where it is asked to");
        let identity = Identity::new("vm", "127.0.0.1:1".into(), "process");
        let lease = |identity: &Identity, renewed: &str| {
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": "apiserver-wlv32tlttr4jl3gtroqexyxapa", "namespace": "kube-system",
                    "labels": {
                        "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "vm",
                    },
                    "annotations": {"kubernetes.io/peer-advertise-address": identity.address},
                },
                "spec": {
                    "holderIdentity": identity.holder, "leaseDurationSeconds": 3600, "renewTime": renewed,
                },
            })
        };
        renew(state, &identity).unwrap();
        assert_eq!(shown(state), [lease(&identity, "1970-01-01T00:16:40.000000Z")]);
        seconds.store(1_010, Ordering::Relaxed);
        renew(state, &identity).unwrap();
        assert_eq!(shown(state), [lease(&identity, "1970-01-01T00:16:50.000000Z")]);
        // The next process on the same host takes the Lease over.
        let next = Identity::new("vm", "127.0.0.1:2".into(), "next");
        assert_eq!(next.holder, "apiserver-wlv32tlttr4jl3gtroqexyxapa_next");
        renew(state, &next).unwrap();
        assert_eq!(shown(state), [lease(&next, "1970-01-01T00:16:50.000000Z")]);
        let target = follow::target(state, GROUP, "leases").unwrap();
        let target = RequestTarget { namespace: NAMESPACE.into(), name: next.name.clone(), ..target };
        let gone = state.as_server("", |registry, context| {
            registry.handle(&target, Operation::Delete(gc_registry::api::DeleteOptions::default()), context)
        });
        assert!(gone.is_ok() && shown(state).is_empty());
        renew(state, &next).unwrap();
        assert_eq!(shown(state), [lease(&next, "1970-01-01T00:16:50.000000Z")]);
    }
}
