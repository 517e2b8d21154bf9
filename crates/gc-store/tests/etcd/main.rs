//! Runs the shared suite on the etcd store, and tests the failures of a store over a network.
#![allow(clippy::unwrap_used)] // tests

mod authority;
mod cluster;
mod faults;
mod history;
mod hostile;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the unit tests")]
#[path = "../support/impostor.rs"]
mod impostor;
mod lost;
mod path;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of kubegc")]
#[path = "../support/etcd.rs"]
mod process;
mod server;
#[path = "../suite/mod.rs"]
mod suite;
mod users;

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use authority::certificates;
use gc_store::{ConnectError, EtcdOptions, EtcdStorage, EtcdTls, HistoryOptions};
use gc_store_api::{RangeOptions, Revision, Storage, StorageError, WatchItem, Write};
use process::port::Port;
use proptest::test_runner::{Config, TestRunner};
use server::{Server, quiet};
use suite::{next, next_change, put, write};

fn fresh() -> Option<(Box<dyn Storage>, Server)> {
    let server = Server::start()?;
    Some((Box::new(server.connect(&quiet())), server))
}

storage_suite!(fresh());

/// A port that was merely seen to be free may be given away before the server listens: a test then asked the server of another.
#[test]
fn a_reserved_port_is_given_to_its_server_alone() {
    let ports: Vec<Port> = (0..100).map(|_| Port::reserve()).collect();
    for _ in 0..5_000 {
        let other = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(ports.iter().all(|port| port.number() != other), "{other}");
    }
    let address = ("127.0.0.1", ports[0].number());
    for _ in 0..2 {
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let server = TcpListener::bind(address).unwrap();
        TcpStream::connect(server.local_addr().unwrap()).unwrap();
    }
}

#[test]
fn increments() {
    let Some((store, _server)) = fresh() else { return };
    suite::concurrent_increments_are_not_lost(&*store, 8, 15);
}

#[test]
fn behaves_like_the_model() {
    let Some(server) = Server::start() else { return };
    let cases = AtomicUsize::new(0);
    let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&suite::model::operations(60), |operations| {
            let case = cases.fetch_add(1, Ordering::Relaxed);
            let options = EtcdOptions { prefix: format!("/case-{case}"), ..quiet() };
            suite::model::check(Box::new(server.connect(&options)), &operations, |store| store);
            Ok(())
        })
        .unwrap();
}

#[test]
fn two_processes_see_each_other() {
    let Some(server) = Server::start() else { return };
    let one = server.connect(&quiet());
    let other = server.connect(&quiet());
    let base = other.revision().unwrap();
    let mut watch = other.watch("/p/", base).unwrap();
    let revision = write(&one, vec![put("/p/a", "1")]);
    // A write acknowledged by one server is visible to the other, because there is no cache in between.
    assert_eq!(other.get("/p/a", None).unwrap().item.unwrap().mod_revision.0, revision);
    assert_eq!(next_change(&mut *watch).revision.0, revision);
    // A watcher that knows a write before its feed does must not receive it again.
    let mut later = other.watch("/p/", Revision(revision)).unwrap();
    let second = write(&one, vec![put("/p/b", "1")]);
    assert_eq!(next_change(&mut *later).revision.0, second);
}

#[test]
fn prefixes_keep_clusters_apart() {
    let Some(server) = Server::start() else { return };
    let one = server.connect(&EtcdOptions { prefix: "/one".to_owned(), ..quiet() });
    let other = server.connect(&EtcdOptions { prefix: "/one-more".to_owned(), ..quiet() });
    write(&one, vec![put("a", "1")]);
    assert_eq!(other.range("", &RangeOptions::default()).unwrap().items, []);
    assert_eq!(one.range("", &RangeOptions::default()).unwrap().items.len(), 1);
}

#[test]
fn a_watch_from_before_this_process_catches_up() {
    let Some(server) = Server::start() else { return };
    let first = server.connect(&quiet());
    let base = first.revision().unwrap();
    for n in 0..50 {
        write(&first, vec![put(&format!("/p/{n}"), "1"), put(&format!("/q/{n}"), "1")]);
    }
    drop(first);
    // A window of three changes ensures that the rest comes from etcd.
    let history = HistoryOptions { changes: 3, bytes: 1 << 20 };
    let second = server.connect(&EtcdOptions { history, ..quiet() });
    let mut watch = second.watch("/p/", base).unwrap();
    for n in 50..60 {
        write(&second, vec![put(&format!("/p/{n}"), "1")]);
    }
    let mut late = second.watch("/p/", base).unwrap();
    for watch in [&mut watch, &mut late] {
        let mut last = base;
        for n in 0..60 {
            let change = next_change(&mut **watch);
            assert_eq!(*change.key, *format!("/p/{n}"));
            assert!(change.revision > last);
            last = change.revision;
        }
    }
}

#[test]
fn large_ranges_are_read_in_pages_of_one_revision() {
    let Some((store, _server)) = fresh() else { return };
    let count = 4100;
    for chunk in 0..count / 100 {
        let writes = (0..100).map(|n| put(&format!("/p/{:05}", chunk * 100 + n), "1")).collect();
        write(&*store, writes);
    }
    let all = store.range("/p/", &RangeOptions::default()).unwrap();
    assert_eq!((all.items.len(), all.more, all.remaining), (count, false, 0));
    assert!(all.items.is_sorted_by(|left, right| left.key < right.key));
    let most = store.range("/p/", &RangeOptions { limit: 4001, ..Default::default() }).unwrap();
    assert_eq!((most.items.len(), most.more, most.remaining), (4001, true, 99));
}

#[test]
fn an_outage_is_an_error_and_watches_survive_it() {
    let Some(mut server) = Server::start() else { return };
    let store = server.connect(&EtcdOptions { timeout: Duration::from_secs(1), ..quiet() });
    let mut watch = store.watch("/p/", store.revision().unwrap()).unwrap();
    let first = write(&store, vec![put("/p/a", "1")]);
    assert_eq!(next_change(&mut *watch).revision.0, first);
    server.kill();
    let errors = [
        store.revision().err(),
        store.get("/p/a", None).err(),
        store.range("/p/", &RangeOptions::default()).err(),
        store.commit(suite::when(&[], vec![put("/p/b", "1")])).err(),
        store.compact(Revision(first)).err(),
    ];
    for error in errors {
        assert!(matches!(error, Some(StorageError::Unavailable(_))), "{error:?}");
    }
    server.restart();
    let deadline = Instant::now() + Duration::from_secs(20);
    let second = loop {
        match store.commit(suite::when(&[], vec![put("/p/c", "1")])) {
            Ok(gc_store_api::Committed::Done(revision)) => break revision,
            other => assert!(Instant::now() < deadline, "still {other:?}"),
        }
    };
    loop {
        let change = next_change(&mut *watch);
        if &*change.key == "/p/c" {
            assert_eq!(change.revision, second);
            break;
        }
    }
}

#[test]
fn history_lost_in_an_outage_ends_watches() {
    let Some(mut server) = Server::start() else { return };
    let store = server.connect(&quiet());
    let mut watch = store.watch("/p/", store.revision().unwrap()).unwrap();
    write(&store, vec![put("/p/a", "1")]);
    assert_eq!(&*next_change(&mut *watch).key, "/p/a");
    server.kill();
    server.restart();
    // Another process compacts changes that this one may not have received; either it has received them, or it reports an error.
    let other = server.connect(&quiet());
    let last = (0..20).fold(0, |_, n| write(&other, vec![put("/p/b", &n.to_string())]));
    other.compact(Revision(last)).unwrap();
    let mut seen = 0;
    loop {
        match next(&mut *watch) {
            Ok(WatchItem::Change(change)) => {
                seen += 1;
                assert_eq!(
                    std::str::from_utf8(change.value.as_ref().unwrap()).unwrap(),
                    (seen - 1).to_string()
                );
                if change.revision.0 == last {
                    break;
                }
            }
            Ok(WatchItem::Progress(_)) => {}
            Err(error) => {
                assert!(matches!(error, StorageError::Compacted { .. }), "{error:?}");
                break;
            }
        }
    }
}

#[test]
fn one_of_two_processes_compacts() {
    let Some(server) = Server::start() else { return };
    let interval = Duration::from_millis(300);
    let eager = EtcdOptions { compaction_interval: Some(interval), ..EtcdOptions::default() };
    let begin = Instant::now();
    let one = server.connect(&eager);
    let _other = server.connect(&eager);
    let base = one.revision().unwrap();
    write(&one, vec![put("a", "1")]);
    let deadline = begin + Duration::from_secs(20);
    while one.get("a", Some(base)).is_ok() {
        assert!(Instant::now() < deadline, "no process compacts");
        std::thread::sleep(Duration::from_millis(20));
    }
    let observer = server.connect(&EtcdOptions { prefix: "/observer".to_owned(), ..quiet() });
    let writes = observer.revision().unwrap().0 - base.0;
    let turns = begin.elapsed().as_millis() / interval.as_millis() + 1;
    // Apart from the object and the observer's mark, only compaction turns write: one per interval, not one per process.
    assert!(u128::from(writes) <= turns + 2, "{writes} writes in {turns} intervals");
}

#[test]
fn oversized_values_are_refused() {
    let Some((store, _server)) = fresh() else { return };
    for size in [2 << 20, 3 << 20, 9 << 20] {
        let put = Write::Put("a".into(), vec![b'x'; size].into());
        let error = store.commit(suite::when(&[], vec![put])).unwrap_err();
        assert_eq!(error, StorageError::TooLarge { size, limit: 3 << 19 });
    }
    assert_eq!(store.get("a", None).unwrap().item, None);
}

#[test]
fn an_unreachable_etcd_is_reported_in_one_line() {
    let options = EtcdOptions { timeout: Duration::from_millis(500), ..quiet() };
    let error = EtcdStorage::connect(&["http://127.0.0.1:1".to_owned()], &options).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("cannot reach etcd at http://127.0.0.1:1: "), "{message}");
    assert!(!message.contains('\n'));
    let error = EtcdStorage::connect(&["http://not a url".to_owned()], &options).unwrap_err();
    assert!(matches!(error, ConnectError::Options { .. }), "{error:?}");
    assert!(EtcdStorage::connect(&[], &options).is_err());
}

#[test]
fn works_inside_another_runtime() {
    let Some(server) = Server::start() else { return };
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap().block_on(async move {
        let store = server.connect(&quiet());
        write(&store, vec![put("a", "1")]);
        drop(store);
    });
}

#[test]
fn speaks_tls_with_client_certificates() {
    let mut material = None;
    let Some(server) = Server::start_with(|directory| {
        let (files, tls) = certificates(directory);
        material = Some(tls);
        Some(files)
    }) else {
        return;
    };
    let tls = material.unwrap();
    let options = EtcdOptions { timeout: Duration::from_secs(10), tls: Some(tls.clone()), ..quiet() };
    let store = server.connect(&options);
    let revision = write(&store, vec![put("a", "1")]);
    assert_eq!(store.get("a", None).unwrap().revision.0, revision);
    // Connecting must fail without a client certificate, and without trust in the server's.
    let anonymous = Some(EtcdTls { identity: None, ..tls.clone() });
    let stranger = Some(certificates(tempfile::TempDir::new().unwrap().path()).1);
    for tls in [anonymous, stranger] {
        let options = EtcdOptions { timeout: Duration::from_secs(2), tls, ..options.clone() };
        let error = EtcdStorage::connect(&server.endpoints(), &options).unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    }
}
