//! An impostor in place of etcd, with answers that etcd would not give: a store must refuse or report them, within bounds.

use std::sync::Arc;
use std::time::Duration;

use gc_store::{ConnectError, EtcdOptions, EtcdStorage};
use gc_store_api::{RangeOptions, Revision, Storage, StorageError};
use prost::Message;

use crate::impostor::{Answers, Body, Impostor, Responder, endless, enormous, framed, pieces, whole};
use crate::server::{Server, quiet};
use crate::suite::{next_change, next_within, put, write};

/// Revision of the answers.
const NOW: i64 = 10;

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(int64, tag = "4")]
    version: i64,
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

/// An answer to a put, a range or a transaction, whose headers have the same field number.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
    #[prost(int64, tag = "4")]
    count: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, optional, tag = "2")]
    kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "7")]
    fragment: bool,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

fn answer(kvs: Vec<KeyValue>, count: i64) -> Body {
    whole(&Answer { header: Some(Header { revision: NOW }), kvs, count })
}

fn key(name: &str) -> KeyValue {
    KeyValue { key: format!("/kubegc/data{name}").into(), mod_revision: 5, version: 1, value: b"v".to_vec() }
}

/// Returns the impostor's answers by call: a put is answered properly, and all other calls get no answer.
fn answers(calls: &[(&'static str, fn() -> Body)]) -> Answers {
    let put: fn() -> Body = || answer(Vec::new(), 0);
    let all = [("Put", put)].into_iter().chain(calls.iter().copied());
    all.map(|(call, body)| (call, Arc::new(move |_: &[u8]| body()) as Responder)).collect()
}

fn connect(impostor: &Impostor, timeout: Duration) -> Result<EtcdStorage, ConnectError> {
    EtcdStorage::connect(&[impostor.endpoint()], &EtcdOptions { timeout, ..quiet() })
}

/// Timeout that suffices for an answer on a machine under load...
const PATIENT: Duration = Duration::from_secs(20);
/// ...and one for an answer that never comes.
const IMPATIENT: Duration = Duration::from_millis(300);

#[test]
fn a_store_without_answers_is_refused() {
    let table: [(&str, fn() -> Body, &str, Duration); 5] = [
        ("nothing", || pieces(Vec::new(), false), "did not answer within", IMPATIENT),
        ("a message of 4 GiB", enormous, "too large", PATIENT),
        (
            "half a message",
            || pieces(vec![vec![0, 0, 0, 0, 9, 1]], true),
            "Missing response message",
            PATIENT,
        ),
        ("no message", || pieces(vec![b"<html>no</html>".to_vec()], true), "compression", PATIENT),
        ("empty messages for ever", || endless(vec![0; 5]), "did not answer within", IMPATIENT),
    ];
    for (what, body, expected, timeout) in table {
        let impostor = Impostor::start(answers(&[("Put", body)]));
        let error =
            connect(&impostor, timeout).err().unwrap_or_else(|| panic!("{what} is accepted")).to_string();
        println!("{what}: {error}");
        assert!(
            error.starts_with("cannot reach etcd at")
                && error.to_lowercase().contains(&expected.to_lowercase()),
            "{what}: {error}"
        );
    }
}

/// For an endpoint with TLS, the timeout includes the handshake.
#[test]
fn an_endpoint_that_never_shakes_hands_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = Some(crate::certificates(tempfile::TempDir::new().unwrap().path()).1);
    let options = EtcdOptions { timeout: IMPATIENT, tls, ..quiet() };
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let error = EtcdStorage::connect(&[endpoint], &options).unwrap_err().to_string();
    assert!(error.starts_with("cannot reach etcd at https://"), "{error}");
}

/// Lists everything under one prefix.
fn list(store: &EtcdStorage) -> Result<usize, StorageError> {
    store.range("/p/", &RangeOptions::default()).map(|found| found.items.len())
}

#[test]
fn lists_that_cannot_be_true_are_errors() {
    let table: [(&str, fn() -> Body); 12] = [
        ("more keys than are there", || answer(Vec::new(), i64::MAX)),
        ("the same page for ever", || answer(vec![key("/p/a")], 1_000)),
        ("no order", || answer(vec![key("/p/b"), key("/p/a")], 2)),
        ("one key twice", || answer(vec![key("/p/a"), key("/p/a")], 2)),
        ("keys of others", || answer(vec![key("/q/a")], 1)),
        ("more keys than it counts", || answer(vec![key("/p/a")], 0)),
        ("fewer than none", || answer(Vec::new(), -1)),
        ("a key of the future", || answer(vec![KeyValue { mod_revision: NOW + 1, ..key("/p/a") }], 1)),
        ("a key of no revision", || answer(vec![KeyValue { mod_revision: -1, ..key("/p/a") }], 1)),
        ("no revision", || whole(&Answer { header: None, kvs: Vec::new(), count: 0 })),
        ("a key that is no text", || {
            let mut key = key("/p/a");
            key.key.push(0xff);
            answer(vec![key], 1)
        }),
        ("a message of 4 GiB", enormous),
    ];
    for (what, body) in table {
        let impostor = Impostor::start(answers(&[("Range", body)]));
        let store = connect(&impostor, PATIENT).unwrap();
        let error = list(&store).expect_err(what);
        assert!(matches!(error, StorageError::Broken(_)), "{what}: {error:?}");
        assert!(impostor.asked("Range") <= 5, "{what}: asked {} times", impostor.asked("Range"));
    }
}

#[test]
fn a_list_larger_than_its_bound_is_an_error() {
    let impostor = Impostor::start(answers(&[("Range", || {
        answer((0..8).map(|n| KeyValue { value: vec![0; 1 << 20], ..key(&format!("/p/{n}")) }).collect(), 8)
    })]));
    let options = EtcdOptions { timeout: PATIENT, largest_list: 4 << 20, ..quiet() };
    let store = EtcdStorage::connect(&[impostor.endpoint()], &options).unwrap();
    let error = list(&store).unwrap_err().to_string();
    assert!(error.contains("larger than 4 MiB"), "{error}");
}

fn watch_answer(fragment: bool, revisions: &[i64]) -> WatchAnswer {
    let event = |revision: &i64| Event { kv: Some(KeyValue { mod_revision: *revision, ..key("/p/a") }) };
    WatchAnswer {
        header: Some(Header { revision: NOW }),
        fragment,
        events: revisions.iter().map(event).collect(),
    }
}

#[test]
fn changes_that_cannot_be_true_reach_no_watcher() {
    let table: [(&str, fn() -> Body); 5] = [
        ("changes of the past", || pieces(vec![framed(&watch_answer(false, &[3]))], false)),
        ("changes that go back", || pieces(vec![framed(&watch_answer(false, &[13, 12]))], false)),
        ("a message of 4 GiB", enormous),
        ("no messages", || pieces(vec![b"<html>".to_vec()], false)),
        ("an end", || pieces(Vec::new(), true)),
    ];
    for (what, body) in table {
        let impostor = Impostor::start(answers(&[("Watch", body)]));
        let store = connect(&impostor, PATIENT).unwrap();
        let mut watch = store.watch("/p/", Revision(u64::try_from(NOW).unwrap())).unwrap();
        // The store's watch is refused, and reopened.
        impostor.await_asked("Watch", 3);
        assert!(next_within(&mut *watch, Duration::ZERO).is_none(), "{what}");
    }
}

/// Fragments of one revision that never ends must be held within a bound.
#[test]
fn a_revision_that_never_ends_is_refused() {
    let impostor = Impostor::start(answers(&[("Watch", || {
        let event = Event { kv: Some(KeyValue { mod_revision: 11, value: vec![0; 4 << 20], ..key("/p/a") }) };
        let answer =
            WatchAnswer { header: Some(Header { revision: 11 }), fragment: true, events: vec![event] };
        endless(framed(&answer))
    })]));
    let _store = connect(&impostor, PATIENT).unwrap();
    impostor.await_asked("Watch", 2);
}

/// A store that waits for its history must not be blocked by an etcd that sends something else forever.
#[test]
fn catching_up_ends() {
    let impostor = Impostor::start(answers(&[
        ("Watch", || {
            endless(framed(&WatchAnswer { header: Some(Header { revision: 1 }), ..WatchAnswer::default() }))
        }),
        ("Range", || answer(Vec::new(), 0)),
    ]));
    let store = connect(&impostor, Duration::from_secs(1)).unwrap();
    let error = store.watch("/p/", Revision(2)).err().expect("history that is never sent");
    assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
}

/// A real etcd sends large changes in parts, and pages of a list that exceed the maximum message.
#[test]
fn large_objects_are_listed_and_watched() {
    const OBJECTS: usize = 70;
    let Some(server) = Server::start() else { return };
    let store = server.connect(&quiet());
    let base = store.revision().unwrap();
    let large = "x".repeat(1 << 20);
    for number in 0..OBJECTS {
        write(&store, vec![put(&format!("/p/{number:03}"), &large)]);
    }
    let other = server.connect(&EtcdOptions { timeout: PATIENT, ..quiet() });
    assert_eq!(other.range("/p/", &RangeOptions::default()).unwrap().items.len(), OBJECTS);
    // The watch begins before the other store did, so it reads through its own watch, which etcd answers with everything at once.
    let mut watch = other.watch("/p/", base).unwrap();
    for number in 0..OBJECTS {
        assert_eq!(&*next_change(&mut *watch).key, format!("/p/{number:03}"));
    }
}
