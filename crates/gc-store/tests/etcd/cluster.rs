//! Three members, of which one fails.

use std::time::{Duration, Instant};

use gc_store::{ConnectError, EtcdStorage};
use gc_store_api::{Committed, RangeOptions, Revision, Storage, StorageError};

use crate::process::{EtcdServer, START};
use crate::server::quiet;
use crate::suite::{self, next_change, put, when};

/// Requests of each kind in each phase.
const REQUESTS: usize = 60;

struct Cluster {
    members: Vec<EtcdServer>,
    store: EtcdStorage,
}

/// Number of failed requests of each kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Failures {
    reads: Vec<StorageError>,
    updates: Vec<StorageError>,
    creates: Vec<StorageError>,
}

impl Cluster {
    fn start() -> Option<Self> {
        let members = EtcdServer::start_cluster(3)?;
        let endpoints: Vec<String> = members.iter().map(EtcdServer::endpoint).collect();
        let deadline = Instant::now() + START;
        loop {
            match EtcdStorage::connect(&endpoints, &quiet()) {
                Ok(store) => return Some(Self { members, store }),
                Err(error) => assert!(Instant::now() < deadline, "etcd does not answer: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads, changes and creates objects; every answer must be right.
    fn use_it(&self, phase: &str) -> Failures {
        let mut failures = Failures::default();
        let counter = "/n/counter";
        for n in 0..REQUESTS {
            match self.store.range("/n/", &RangeOptions::default()) {
                Ok(_) => {}
                Err(error) => failures.reads.push(error),
            }
            match self.store.get(counter, None) {
                Err(error) => failures.reads.push(error),
                Ok(answer) => {
                    let found = answer.item.unwrap();
                    let value: u64 = std::str::from_utf8(&found.value).unwrap().parse().unwrap();
                    let next = (value + 1).to_string();
                    let condition = [(counter, found.mod_revision.0)];
                    match self.store.commit(when(&condition, vec![put(counter, &next)])) {
                        Ok(Committed::Done(revision)) => {
                            let read = self.store.get(counter, Some(revision)).unwrap().item.unwrap();
                            assert_eq!(read.value, next.as_bytes(), "{phase}: the update of {revision}");
                        }
                        Ok(Committed::Conflict(present)) => {
                            panic!("{phase}: nobody else writes, and there is {present:?}")
                        }
                        Err(error) => failures.updates.push(error),
                    }
                }
            }
            let key = format!("/n/{phase}/{n}");
            match self.store.commit(when(&[(&key, 0)], vec![put(&key, "1")])) {
                Ok(committed) => assert!(matches!(committed, Committed::Done(_)), "{phase}: {committed:?}"),
                Err(error) => failures.creates.push(error),
            }
        }
        failures
    }
}

/// A regression: the dead member was asked, and no other.
#[test]
fn a_dead_member_costs_no_request() {
    let Some(mut cluster) = Cluster::start() else { return };
    suite::write(&cluster.store, vec![put("/n/counter", "0")]);
    let mut watch = cluster.store.watch("/n/counter", cluster.store.revision().unwrap()).unwrap();
    assert_eq!(cluster.use_it("all"), Failures::default());
    for member in 0..3 {
        cluster.members[member].kill();
        let failures = cluster.use_it(&format!("without{member}"));
        assert_eq!((&failures.reads, &failures.updates), (&vec![], &vec![]), "without {member}");
        // One that was sent to the leader as it died may have been performed, and is not sent again.
        assert!(failures.creates.len() <= 1, "without {member}: {failures:?}");
        cluster.members[member].restart();
        let failures = cluster.use_it(&format!("with{member}"));
        assert_eq!((&failures.reads, &failures.updates), (&vec![], &vec![]), "with {member} again");
    }
    let last = cluster.store.get("/n/counter", None).unwrap().item.unwrap();
    let mut expected = 1_u64;
    loop {
        let change = next_change(&mut *watch);
        assert_eq!(change.value.unwrap(), expected.to_string().as_bytes(), "every change, once, in order");
        if change.revision == last.mod_revision {
            break;
        }
        expected += 1;
    }
}

/// A member that is stopped keeps its connections, and nothing says that it does not answer.
#[test]
fn a_stopped_member_costs_no_read_and_no_guarded_write() {
    let Some(cluster) = Cluster::start() else { return };
    suite::write(&cluster.store, vec![put("/n/counter", "0")]);
    let mut watch = cluster.store.watch("/n/counter", cluster.store.revision().unwrap()).unwrap();
    cluster.members[0].freeze(true);
    let failures = cluster.use_it("stopped");
    assert_eq!((failures.reads, failures.updates), (vec![], vec![]));
    // Its watch continues at another member.
    let change = next_change(&mut *watch);
    assert_eq!(change.value.as_deref(), Some(&b"1"[..]));
    cluster.members[0].freeze(false);
    let failures = cluster.use_it("resumed");
    assert_eq!((failures.reads, failures.updates), (vec![], vec![]));
}

#[test]
fn without_a_majority_requests_fail_and_with_one_they_work_again() {
    let Some(mut cluster) = Cluster::start() else { return };
    suite::write(&cluster.store, vec![put("/n/counter", "0")]);
    cluster.members[0].kill();
    cluster.members[1].kill();
    let refused = cluster.store.get("/n/counter", None);
    assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
    let refused = cluster.store.compact(Revision(2));
    assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
    cluster.members[1].restart();
    let deadline = Instant::now() + START;
    while let Err(error) = cluster.store.get("/n/counter", None) {
        assert!(Instant::now() < deadline, "{error}");
    }
    assert_eq!(cluster.use_it("majority").reads, vec![]);
}

/// Requests would go to one cluster or the other, in turn.
#[test]
fn endpoints_of_different_clusters_are_refused() {
    let (Some(one), Some(other)) = (EtcdServer::start(), EtcdServer::start()) else { return };
    let endpoints = [one.endpoint(), other.endpoint()];
    let deadline = Instant::now() + START;
    loop {
        match EtcdStorage::connect(&endpoints, &quiet()) {
            Err(ConnectError::Options { reason, .. }) => {
                assert!(reason.contains("different etcd clusters"), "{reason}");
                break;
            }
            // One of them does not answer yet; it is not asked once it does.
            Ok(store) => {
                drop(store);
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        assert!(Instant::now() < deadline, "both are taken");
    }
}
