//! An impostor in place of etcd, with answers that etcd would not give: a store must refuse or report them, within bounds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use gc_store::{EtcdOptions, EtcdStorage};
use gc_store_api::{RangeOptions, Revision, Storage, StorageError};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

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

type Body = BoxBody<Bytes, Infallible>;

/// Returns a body made of chunks; it ends after them, or never.
fn pieces(pieces: Vec<Vec<u8>>, ends: bool) -> Body {
    let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece))));
    let trailers = || {
        let mut trailers = hyper::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        Ok(Frame::trailers(trailers))
    };
    if ends {
        return BodyExt::boxed(StreamBody::new(pieces.chain(stream::iter([trailers()]))));
    }
    BodyExt::boxed(StreamBody::new(pieces.chain(stream::pending())))
}

/// Frames a message as gRPC does.
fn framed(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[0][..], &u32::try_from(bytes.len()).unwrap().to_be_bytes(), &bytes].concat()
}

fn whole(message: &impl Message) -> Body {
    pieces(vec![framed(message)], true)
}

fn answer(kvs: Vec<KeyValue>, count: i64) -> Body {
    whole(&Answer { header: Some(Header { revision: NOW }), kvs, count })
}

fn key(name: &str) -> KeyValue {
    KeyValue { key: format!("/kubegc/data{name}").into(), mod_revision: 5, version: 1, value: b"v".to_vec() }
}

/// Returns a message that announces 4 GiB, and begins.
fn enormous() -> Body {
    let start = [&[0][..], &u32::MAX.to_be_bytes(), &[0; 1024]].concat();
    pieces(vec![start], false)
}

/// Returns a body that repeats the same chunk forever.
fn endless(piece: Vec<u8>) -> Body {
    let piece = Bytes::from(piece);
    BodyExt::boxed(StreamBody::new(stream::repeat_with(move || Ok(Frame::data(piece.clone())))))
}

type Answers = BTreeMap<&'static str, fn() -> Body>;

/// Returns the impostor's answers by call: a put is answered properly, and all other calls get no answer.
fn answers(calls: &[(&'static str, fn() -> Body)]) -> Answers {
    let put: fn() -> Body = || answer(Vec::new(), 0);
    [("Put", put)].into_iter().chain(calls.iter().copied()).collect()
}

/// An impostor that listens until the runtime ends, and counts its calls.
struct Fake {
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Fake {
    fn start(answers: Answers) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let (address, asked) =
            (listener.local_addr().unwrap(), Arc::<Mutex<BTreeMap<String, usize>>>::default());
        let (answers, counted) = (Arc::new(answers), Arc::clone(&asked));
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answers, counted) = (Arc::clone(&answers), Arc::clone(&counted));
                let service =
                    hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                        let call = request.uri().path().rsplit('/').next().unwrap().to_owned();
                        *counted.lock().unwrap().entry(call.clone()).or_default() += 1;
                        let body = answers
                            .get(call.as_str())
                            .map_or_else(|| pieces(Vec::new(), false), |made| made());
                        let response =
                            hyper::Response::builder().header("content-type", "application/grpc").body(body);
                        async move { response }
                    });
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { runtime, address, asked }
    }

    fn connect(&self, timeout: Duration) -> Result<EtcdStorage, gc_store::ConnectError> {
        EtcdStorage::connect(&[format!("http://{}", self.address)], &EtcdOptions { timeout, ..quiet() })
    }

    fn asked(&self, call: &str) -> usize {
        self.asked.lock().unwrap().get(call).copied().unwrap_or_default()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        std::mem::replace(&mut self.runtime, other).shutdown_background();
    }
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
        let fake = Fake::start(answers(&[("Put", body)]));
        let error = fake.connect(timeout).err().unwrap_or_else(|| panic!("{what} is accepted")).to_string();
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
        let fake = Fake::start(answers(&[("Range", body)]));
        let store = fake.connect(PATIENT).unwrap();
        let error = list(&store).expect_err(what);
        assert!(matches!(error, StorageError::Broken(_)), "{what}: {error:?}");
        assert!(fake.asked("Range") <= 5, "{what}: asked {} times", fake.asked("Range"));
    }
}

#[test]
fn a_list_larger_than_its_bound_is_an_error() {
    let fake = Fake::start(answers(&[("Range", || {
        answer((0..8).map(|n| KeyValue { value: vec![0; 1 << 20], ..key(&format!("/p/{n}")) }).collect(), 8)
    })]));
    let options = EtcdOptions { timeout: PATIENT, largest_list: 4 << 20, ..quiet() };
    let store = EtcdStorage::connect(&[format!("http://{}", fake.address)], &options).unwrap();
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

/// Waits until a call has been received more often.
fn await_asked(fake: &Fake, call: &str, times: usize) {
    while fake.asked(call) < times {
        std::thread::sleep(Duration::from_millis(5));
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
        let fake = Fake::start(answers(&[("Watch", body)]));
        let store = fake.connect(PATIENT).unwrap();
        let mut watch = store.watch("/p/", Revision(u64::try_from(NOW).unwrap())).unwrap();
        // The store's watch is refused, and reopened.
        await_asked(&fake, "Watch", 3);
        assert!(next_within(&mut *watch, Duration::ZERO).is_none(), "{what}");
    }
}

/// Fragments of one revision that never ends must be held within a bound.
#[test]
fn a_revision_that_never_ends_is_refused() {
    let fake = Fake::start(answers(&[("Watch", || {
        let event = Event { kv: Some(KeyValue { mod_revision: 11, value: vec![0; 4 << 20], ..key("/p/a") }) };
        let answer =
            WatchAnswer { header: Some(Header { revision: 11 }), fragment: true, events: vec![event] };
        endless(framed(&answer))
    })]));
    let _store = fake.connect(PATIENT).unwrap();
    await_asked(&fake, "Watch", 2);
}

/// A store that waits for its history must not be blocked by an etcd that sends something else forever.
#[test]
fn catching_up_ends() {
    let fake = Fake::start(answers(&[
        ("Watch", || {
            endless(framed(&WatchAnswer { header: Some(Header { revision: 1 }), ..WatchAnswer::default() }))
        }),
        ("Range", || answer(Vec::new(), 0)),
    ]));
    let store = fake.connect(Duration::from_secs(1)).unwrap();
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
