//! Three members, of which one fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gc_store::{ConnectError, EtcdStorage};
use gc_store_api::{Committed, RangeOptions, Revision, Storage, StorageError};

use crate::path::Path;
use crate::process::{EtcdServer, START};
use crate::server::{patient, quiet};
use crate::suite::{self, next_change, put, when};

/// Number of requests of each kind in each phase.
const REQUESTS: usize = 16;

/// Maximum time for forty requests that are refused immediately; each waiting request would take four seconds.
const REFUSALS_PATIENCE: Duration = Duration::from_secs(80);

struct Cluster {
    members: Vec<EtcdServer>,
    /// Network path to each member.
    paths: Vec<Path>,
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
        let paths: Vec<Path> = members.iter().map(|member| Path::to(member.port())).collect();
        let endpoints: Vec<String> = paths.iter().map(Path::endpoint).collect();
        let deadline = Instant::now() + START;
        loop {
            match EtcdStorage::connect(&endpoints, &patient()) {
                Ok(store) => return Some(Self { members, paths, store }),
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
                    let update = when(&condition, vec![put(counter, &next)]);
                    match self.store.commit(update) {
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

/// Regression test: only the dead member received requests.
#[test]
fn a_dead_member_costs_no_request() {
    let Some(mut cluster) = Cluster::start() else { return };
    suite::write(&cluster.store, vec![put("/n/counter", "0")]);
    let mut watch = cluster.store.watch("/n/counter", cluster.store.revision().unwrap()).unwrap();
    assert_eq!(cluster.use_it("all"), Failures::default());
    for member in 0..3 {
        cluster.members[member].kill();
        assert_eq!(cluster.use_it(&format!("without{member}")), Failures::default(), "without {member}");
        cluster.members[member].restart();
        assert_eq!(cluster.use_it(&format!("with{member}")), Failures::default(), "with {member} again");
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

/// A member that is stopped or behind a network that loses everything keeps its connections, and no sign shows that it does not
/// answer; one behind a slow network answers.
#[test]
fn a_member_that_is_stopped_cut_off_or_slow_costs_no_request() {
    type Fault = fn(&Cluster, usize, bool);
    let Some(cluster) = Cluster::start() else { return };
    suite::write(&cluster.store, vec![put("/n/counter", "0")]);
    let mut watch = cluster.store.watch("/n/counter", cluster.store.revision().unwrap()).unwrap();
    let faults: [(&str, Fault); 3] = [
        ("stopped", |cluster, member, is_on| cluster.members[member].freeze(is_on)),
        ("cut", |cluster, member, is_on| cluster.paths[member].cut(is_on)),
        ("slow", |cluster, member, is_on| {
            cluster.paths[member].slow_down(Duration::from_millis(if is_on { 40 } else { 0 }));
        }),
    ];
    for (number, (name, fault)) in faults.into_iter().enumerate() {
        fault(&cluster, number, true);
        assert_eq!(cluster.use_it(name), Failures::default(), "{name}");
        fault(&cluster, number, false);
        assert_eq!(cluster.use_it(&format!("not-{name}")), Failures::default(), "not {name} any more");
    }
    // The watch continues at another member.
    let change = next_change(&mut *watch);
    assert_eq!(change.value.as_deref(), Some(&b"1"[..]));
}

/// Regression test: a creation failed if its member died during the request, because it cannot simply be repeated. Each creation
/// must be answered, and none performed twice.
#[test]
fn creations_outlive_the_members_that_were_asked() {
    let Some(mut cluster) = Cluster::start() else { return };
    let mut watch = cluster.store.watch("/c/", cluster.store.revision().unwrap()).unwrap();
    let Cluster { members, store, .. } = &mut cluster;
    let store = &*store;
    let (created, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failed: Mutex<Vec<String>> = Mutex::default();
    let create = |thread: usize| {
        for number in 0.. {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            let key = format!("/c/{thread}-{number}");
            match store.commit(when(&[(&key, 0)], vec![put(&key, &key)])) {
                Ok(Committed::Done(_)) => drop(created.fetch_add(1, Ordering::SeqCst)),
                other => return failed.lock().unwrap().push(format!("{key}: {other:?}")),
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let create = &create;
            scope.spawn(move || create(thread));
        }
        for member in members.iter_mut() {
            for is_back in [false, true] {
                let before = created.load(Ordering::SeqCst);
                if is_back {
                    member.restart();
                } else {
                    member.kill();
                }
                while created.load(Ordering::SeqCst) < before + 40 && failed.lock().unwrap().is_empty() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(failed.lock().unwrap().as_slice(), &[] as &[String]);
    let all = store.range("/c/", &RangeOptions::default()).unwrap().items;
    assert_eq!(all.len(), created.load(Ordering::SeqCst));
    // There are as many changes as objects, so each was created once.
    let last = all.iter().map(|item| item.mod_revision).max().unwrap();
    let mut changes = 0;
    loop {
        let change = next_change(&mut *watch);
        assert_eq!(change.value.as_deref(), Some(change.key.as_bytes()));
        changes += 1;
        if change.revision == last {
            break;
        }
    }
    assert_eq!(changes, all.len());
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
    // Once no leader is known to be elected, requests are refused immediately.
    let begun = Instant::now();
    for number in 0..40 {
        let refused = if number % 2 == 0 {
            cluster.store.get("/n/counter", None).err()
        } else {
            cluster.store.commit(when(&[("/n/new", 0)], vec![put("/n/new", "1")])).err()
        };
        assert!(matches!(refused, Some(StorageError::Unavailable(_))), "{refused:?}");
    }
    let took = begun.elapsed();
    // If each of the forty waited as long as an election may take, they would need forty times as long.
    assert!(took < REFUSALS_PATIENCE, "40 refusals took {took:?}");
    cluster.members[1].restart();
    let deadline = Instant::now() + START;
    while let Err(error) = cluster.store.get("/n/counter", None) {
        assert!(Instant::now() < deadline, "{error}");
    }
    assert_eq!(cluster.use_it("majority").reads, vec![]);
}

/// Otherwise, requests would alternate between the clusters.
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
            // One of them does not answer yet; it must not be used once it does.
            Ok(store) => {
                drop(store);
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        assert!(Instant::now() < deadline, "both are taken");
    }
}
