//! The storage beside an impostor: which requests it sends, and what it makes of their answers.
#![allow(clippy::unwrap_used)] // tests

use bytes::Bytes;
use gc_store_api::Condition;
use prost::Message;

use super::impostor::{Answers, Body, Impostor, Responder, framed, pieces, refusal, script, whole};
use super::protocol::{
    CompactionRequest, Compare, DeleteRangeRequest, KeyValue as Stored, Operation, OperationAnswer,
    PutRequest, PutResponse, RangeResponse, ResponseHeader, ResponseOp, StatusResponse, TxnRequest,
};
use super::*;

/// Revision at which the impostor answers, unless a test says otherwise.
pub(super) const NOW: i64 = 10;
/// Status codes of gRPC.
pub(super) const OUT_OF_RANGE: u16 = 11;
pub(super) const RESOURCE_EXHAUSTED: u16 = 8;
pub(super) const UNAVAILABLE: u16 = 14;
pub(super) const PERMISSION_DENIED: u16 = 7;
pub(super) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
pub(super) const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
pub(super) const FULL: &str = "etcdserver: mvcc: database space exceeded";

pub(super) fn header(revision: i64) -> ResponseHeader {
    ResponseHeader { revision, ..ResponseHeader::default() }
}

/// Returns a value as etcd stores it, under a key of the data.
pub(super) fn stored(key: &str, value: &str, revision: i64) -> Stored {
    Stored {
        key: format!("/kubegc/data{key}").into(),
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        value: value.into(),
    }
}

pub(super) fn found(kvs: Vec<Stored>) -> RangeResponse {
    let count = i64::try_from(kvs.len()).unwrap();
    RangeResponse { header: Some(header(NOW)), kvs, count }
}

/// Returns the answer to a transaction whose conditions held.
pub(super) fn performed(revision: i64) -> Body {
    whole(&TxnResponse { header: Some(header(revision)), succeeded: true, responses: Vec::new() })
}

/// Returns the answer to a transaction whose conditions did not hold, or that only reads.
pub(super) fn read(revision: i64, found: Vec<Option<Stored>>) -> Body {
    let read = |kv: Option<Stored>| {
        let kvs: Vec<Stored> = kv.into_iter().collect();
        let range = RangeResponse { header: None, count: i64::try_from(kvs.len()).unwrap(), kvs };
        ResponseOp { response: Some(OperationAnswer::Range(range)) }
    };
    let responses = found.into_iter().map(read).collect();
    whole(&TxnResponse { header: Some(header(revision)), succeeded: false, responses })
}

pub(super) fn put(key: &str, value: &'static str) -> Write {
    Write::Put(key.into(), Bytes::from_static(value.as_bytes()))
}

pub(super) fn transaction(conditions: &[(&str, u64)], writes: Vec<Write>) -> Transaction {
    let condition =
        |(key, revision): &(&str, u64)| Condition { key: (*key).into(), mod_revision: Revision(*revision) };
    Transaction { conditions: conditions.iter().map(condition).collect(), writes }
}

/// Answers a call as a function of its decoded request.
pub(super) fn by<Q: Message + Default>(answer: impl Fn(Q) -> Body + Send + Sync + 'static) -> Responder {
    Arc::new(move |bytes| answer(Q::decode(bytes).unwrap()))
}

/// Returns an impostor that answers these calls, and a put.
pub(super) fn impostor(answers: impl IntoIterator<Item = (&'static str, Responder)>) -> Impostor {
    let put = by(|_: PutRequest| whole(&PutResponse { header: Some(header(NOW)) }));
    Impostor::start([("Put", put)].into_iter().chain(answers).collect::<Answers>())
}

/// Returns options without background activity, and with a timeout that suffices on a machine under load.
pub(super) fn options() -> EtcdOptions {
    EtcdOptions { timeout: Duration::from_secs(20), compaction_interval: None, ..EtcdOptions::default() }
}

pub(super) fn connect(impostor: &Impostor) -> EtcdStorage {
    EtcdStorage::connect(&[impostor.endpoint()], &options()).unwrap()
}

/// etcd says only that a revision is compacted. The oldest known one never goes back.
#[test]
fn the_oldest_revision_is_known_from_refusals() {
    let impostor = impostor([("Range", by(|_: RangeRequest| refusal(OUT_OF_RANGE, COMPACTED)))]);
    let store = connect(&impostor);
    for (requested, oldest) in [(5, 6), (3, 6), (8, 9)] {
        let (requested, oldest) = (Revision(requested), Revision(oldest));
        let error = store.get("/a", Some(requested)).unwrap_err();
        assert_eq!(error, StorageError::Compacted { requested, oldest });
    }
    // Without a revision, nothing can be compacted.
    assert_eq!(store.get("/a", None).unwrap_err(), StorageError::Broken(COMPACTED.to_owned()));
}

#[test]
fn a_future_revision_is_an_error_that_names_the_newest() {
    let range = by(|request: RangeRequest| match request.revision {
        0 => whole(&found(Vec::new())),
        _ => refusal(OUT_OF_RANGE, FUTURE),
    });
    let impostor = impostor([("Range", range), ("Compact", script([refusal(OUT_OF_RANGE, FUTURE)]))]);
    let store = connect(&impostor);
    let expected = StorageError::Future { requested: Revision(12), newest: Revision(10) };
    assert_eq!(store.get("/a", Some(Revision(12))), Err(expected.clone()));
    assert_eq!(store.compact(Revision(12)), Err(expected));
    // Both the newest revision and the oldest are read as such: etcd takes 0 for the newest.
    let revisions: Vec<i64> =
        impostor.requests::<RangeRequest>("Range").iter().map(|request| request.revision).collect();
    assert_eq!(revisions, [12, 0, 0]);
    let expected = StorageError::Future { requested: Revision(0), newest: Revision(10) };
    assert_eq!(store.get("/a", Some(Revision(0))), Err(expected));
    assert_eq!(impostor.requests::<RangeRequest>("Range")[3].revision, 1);
}

#[test]
fn a_compaction_is_done_also_by_another_and_is_remembered() {
    let rows: [(Body, Result<(), StorageError>, Option<Revision>); 4] = [
        (whole(&protocol::Empty {}), Ok(()), Some(Revision(7))),
        (refusal(OUT_OF_RANGE, COMPACTED), Ok(()), None),
        (refusal(PERMISSION_DENIED, "denied"), Err(StorageError::Broken("denied".to_owned())), None),
        (refusal(RESOURCE_EXHAUSTED, FULL), Err(StorageError::Full), None),
    ];
    for (answer, expected, oldest) in rows {
        let status = by(|_: protocol::Empty| {
            whole(&StatusResponse { header: Some(header(NOW)), ..Default::default() })
        });
        let impostor = impostor([("Compact", script([answer])), ("Status", status)]);
        let store = connect(&impostor);
        assert_eq!(store.compact(Revision(7)), expected);
        assert_eq!(store.status().unwrap().oldest, oldest, "{expected:?}");
        let sent = impostor.requests::<CompactionRequest>("Compact");
        assert_eq!(sent.iter().map(|request| request.revision).collect::<Vec<_>>(), [7]);
    }
}

#[test]
fn a_status_names_only_what_etcd_names() {
    let status = |db_size, db_size_in_use, errors: &[&str]| StatusResponse {
        header: Some(header(NOW)),
        db_size,
        db_size_in_use,
        errors: errors.iter().map(|error| (*error).to_owned()).collect(),
    };
    let expected = |bytes, bytes_in_use, is_full| StoreStatus {
        newest: Revision(10),
        bytes,
        bytes_in_use,
        is_full,
        ..StoreStatus::default()
    };
    let rows = [
        (status(0, 0, &[]), expected(None, None, false)),
        (status(-1, 1, &["memberID:1 alarm:CORRUPT"]), expected(None, Some(1), false)),
        (status(2, -1, &["other", "memberID:1 alarm:NOSPACE"]), expected(Some(2), None, true)),
    ];
    for (answer, expected) in rows {
        let impostor = impostor([("Status", script([whole(&answer)]))]);
        assert_eq!(connect(&impostor).status(), Ok(expected), "{answer:?}");
    }
}

/// An etcd that holds a number of keys, and whose answers may have a limited number of them.
fn keys(count: usize, largest_answer: usize) -> Responder {
    by(move |request: RangeRequest| {
        let all = (0..count).map(|number| stored(&format!("/p/{number:04}"), "v", 5));
        let inside = |kv: &Stored| kv.key >= request.key && kv.key < request.range_end;
        let mut kvs: Vec<Stored> = all.filter(inside).collect();
        let count = i64::try_from(kvs.len()).unwrap();
        if request.count_only {
            kvs.clear();
        }
        kvs.truncate(usize::try_from(request.limit).unwrap());
        if kvs.len() > largest_answer {
            let length = u32::try_from(LARGEST_MESSAGE + 1).unwrap();
            return pieces(vec![[&[0][..], &length.to_be_bytes()].concat()], false);
        }
        whole(&RangeResponse { header: Some(header(NOW)), kvs, count })
    })
}

/// Whole pages are read until there are enough keys; a page that is too large is read again with a sixteenth of the keys.
#[test]
fn a_list_is_read_in_pages_that_fit_into_a_message() {
    const ALL: usize = usize::MAX;
    // Keys there, keys in an answer, limit of the list; limits of the requests, keys found, keys that remain.
    type Row = (usize, usize, usize, &'static [i64], usize, u64);
    let rows: [Row; 9] = [
        (0, ALL, 0, &[2000], 0, 0),
        (2000, ALL, 0, &[2000], 2000, 0),
        (2001, ALL, 0, &[2000, 2000], 2001, 0),
        (2001, ALL, 2000, &[2000], 2000, 1),
        (2001, ALL, 2001, &[2000, 1], 2001, 0),
        (300, 130, 0, &[2000, 125, 125, 125], 300, 0),
        (300, 8, 9, &[9, 1, 1, 1, 1, 1, 1, 1, 1, 1], 9, 291),
        (9, 7, 0, &[2000, 125, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1], 9, 0),
        (5, ALL, 2, &[2], 2, 3),
    ];
    for (count, largest, limit, limits, listed, remaining) in rows {
        let impostor = impostor([("Range", keys(count, largest))]);
        let store = connect(&impostor);
        let answer = store.range("/p/", &RangeOptions { limit, ..RangeOptions::default() }).unwrap();
        let name = format!("{count} keys, {largest} in an answer, limit {limit}");
        let summary = (answer.items.len(), answer.more, answer.remaining, answer.revision);
        assert_eq!(summary, (listed, remaining > 0, remaining, Revision(10)), "{name}");
        for (number, item) in answer.items.iter().enumerate() {
            assert_eq!(*item.key, format!("/p/{number:04}"), "{name}");
        }
        let requests = impostor.requests::<RangeRequest>("Range");
        assert_eq!(requests.iter().map(|request| request.limit).collect::<Vec<_>>(), limits, "{name}");
        // All pages after an answer are of its revision.
        let is_later = |request: &RangeRequest| !request.key.ends_with(b"/p/");
        let revisions = requests.iter().map(|request| if is_later(request) { NOW } else { 0 });
        assert!(requests.iter().map(|request| request.revision).eq(revisions), "{name}");
    }
}

#[test]
fn one_key_that_fits_into_no_message_is_an_error() {
    let impostor = impostor([("Range", keys(2, 0))]);
    let error = connect(&impostor).range("/p/", &RangeOptions::default()).unwrap_err();
    assert_eq!(error, StorageError::Broken("etcd's answer is larger than 64 MiB".to_owned()));
    let limits: Vec<i64> =
        impostor.requests::<RangeRequest>("Range").iter().map(|request| request.limit).collect();
    assert_eq!(limits, [2000, 125, 8, 1]);
}

#[test]
fn a_list_may_be_as_large_as_its_bound() {
    // Each has a key of seven bytes and a value of one.
    for (largest_list, is_refused) in [(16, false), (15, true)] {
        let impostor = impostor([("Range", keys(2, 2))]);
        let options = EtcdOptions { largest_list, ..options() };
        let store = EtcdStorage::connect(&[impostor.endpoint()], &options).unwrap();
        assert_eq!(store.range("/p/", &RangeOptions::default()).is_err(), is_refused, "{largest_list}");
    }
}

#[test]
fn a_list_continues_after_a_key() {
    let rows: [(&str, usize, &[u8]); 4] = [
        ("/p/0000", 2, b"/kubegc/data/p/0000\0"),
        ("/o/zzzz", 3, b"/kubegc/data/p/"),
        ("/p/", 3, b"/kubegc/data/p/\0"),
        ("/q/", 0, b"/kubegc/data/q/\0"),
    ];
    for (after, listed, start) in rows {
        let impostor = impostor([("Range", keys(3, 3))]);
        let options = RangeOptions { after: Some(after.into()), ..RangeOptions::default() };
        let answer = connect(&impostor).range("/p/", &options).unwrap();
        assert_eq!(
            (answer.items.len(), answer.more, answer.revision),
            (listed, false, Revision(10)),
            "{after}"
        );
        let [request] = &impostor.requests::<RangeRequest>("Range")[..] else { panic!("{after}") };
        assert_eq!(request.key, start, "{after}");
        // Nothing can follow the last of these, and etcd would refuse a range that ends before it begins.
        assert_eq!(request.count_only, after == "/q/", "{after}");
    }
}

#[test]
fn a_transaction_is_sent_with_its_conditions_writes_signature_and_reads() {
    let impostor = impostor([]);
    let store = connect(&impostor);
    let asked = transaction(&[("/a", 4), ("/b", 0)], vec![put("/b", "x"), Write::Delete("/a".into())]);
    let mut sent = Sent::new(&asked, &store.signatures, Revision(10));
    let signature = sent.signature.clone().unwrap();
    let key = |key: &str| format!("/kubegc/data{key}");
    let request = |puts: &[PutRequest]| {
        let writes = [
            Operation::Put(PutRequest { key: key("/b").into(), value: "x".into() }),
            Operation::Delete(DeleteRangeRequest { key: key("/a").into() }),
        ];
        let signed = puts.iter().cloned().map(Operation::Put);
        TxnRequest::new(
            [Compare::mod_revision(key("/a"), 4), Compare::mod_revision(key("/b"), 0)],
            writes.into_iter().chain(signed),
            [Operation::Range(one(key("/a"))), Operation::Range(one(key("/b")))],
        )
    };
    let signed = PutRequest { key: "/kubegc/meta/signature".into(), value: signature.into() };
    assert_eq!(store.request(&sent), request(&[signed]));
    assert!(sent.leave_out_signature());
    assert_eq!(store.request(&sent), request(&[]));
    assert!(!sent.leave_out_signature(), "it was left out before");
    let update = transaction(&[("/a", 4)], vec![put("/a", "x")]);
    let mut unsigned = Sent::new(&update, &store.signatures, Revision(10));
    assert!(!unsigned.leave_out_signature(), "there is none");
}

#[test]
fn refusals_become_errors() {
    let asked = transaction(&[], vec![put("/a", "four"), put("/b", "xx"), Write::Delete("/c".into())]);
    let error = CallError::Endpoint("described".to_owned());
    let broken = |reason: &str| StorageError::Broken(reason.to_owned());
    let unavailable = |reason: &str| StorageError::Unavailable(reason.to_owned());
    let too_large = StorageError::TooLarge { size: 6, limit: 3 << 19 };
    let rows: [(fn() -> Refusal, StorageError, StorageError); 7] = [
        (|| Refusal::Full, StorageError::Full, StorageError::Full),
        (|| Refusal::Broken("b".to_owned()), broken("b"), broken("b")),
        (|| Refusal::Unavailable("u".to_owned()), unavailable("u"), unavailable("u")),
        (|| Refusal::TooLarge, broken("described"), too_large),
        (|| Refusal::LargeAnswer, broken("described"), broken("described")),
        (|| Refusal::Compacted, broken("described"), broken("described")),
        (|| Refusal::Future, broken("described"), broken("described")),
    ];
    for (refusal, of_any, of_transaction) in rows {
        assert_eq!(plain(refusal(), &error), of_any);
        assert_eq!(refused(&asked, refusal(), &error), of_transaction);
    }
}

#[test]
fn a_prefix_ends_before_its_successor() {
    assert_eq!(after_prefix("/a/"), b"/a0");
    assert_eq!(after_prefix("/a\u{7f}"), b"/a\x80");
}

#[test]
fn a_wait_ends_with_its_patience_and_with_its_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    assert_eq!(wait(&runtime, Duration::MAX, async { 7 }), Ok(7));
    let patience = Duration::from_millis(20);
    let late = StorageError::Unavailable("etcd did not answer within 20ms".to_owned());
    assert_eq!(wait(&runtime, patience, std::future::pending::<()>()), Err(late));
}

/// A watch from a revision that the window has needs no request to etcd; one from before it reads the gap.
#[test]
fn a_watch_asks_etcd_only_for_what_the_window_lacks() {
    let watch = by(|_: protocol::WatchRequest| {
        let event = |revision| protocol::Event {
            kv: Some(stored("/p/a", "v", revision)),
            prev_kv: None,
            ..protocol::Event::default()
        };
        let events = vec![event(6), event(10)];
        pieces(
            vec![framed(&protocol::WatchResponse {
                header: Some(header(NOW)),
                events,
                ..Default::default()
            })],
            false,
        )
    });
    let impostor = impostor([("Watch", watch), ("Range", by(|_: RangeRequest| whole(&found(Vec::new()))))]);
    let store = connect(&impostor);
    impostor.await_asked("Watch", 1);
    drop(store.watch("/p/", Revision(10)).unwrap());
    assert_eq!(impostor.asked("Range"), 0);
    let mut stream = store.watch("/p/", Revision(5)).unwrap();
    let [checked] = &impostor.requests::<RangeRequest>("Range")[..] else { panic!("it is checked once") };
    assert_eq!((checked.revision, checked.count_only), (5, true));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut next = || match stream.poll_next(&mut context) {
        std::task::Poll::Ready(Ok(gc_store_api::WatchItem::Change(change))) => change.revision.0,
        other => panic!("{other:?}"),
    };
    assert_eq!([next(), next()], [6, 10]);
}

/// A full etcd refuses the mark, and still serves reads and deletions.
#[test]
fn a_full_etcd_can_be_used() {
    let unavailable = || refusal(UNAVAILABLE, "broken");
    let rows = [
        ("full", refusal(RESOURCE_EXHAUSTED, FULL), whole(&found(Vec::new())), None, 1),
        (
            "full and unreadable",
            refusal(RESOURCE_EXHAUSTED, FULL),
            refusal(PERMISSION_DENIED, "denied"),
            Some("cannot use the etcd endpoints ENDPOINT: denied"),
            1,
        ),
        (
            "refused",
            refusal(PERMISSION_DENIED, "denied"),
            unavailable(),
            Some("cannot use the etcd endpoints ENDPOINT: denied"),
            0,
        ),
        (
            "too large",
            refusal(RESOURCE_EXHAUSTED, "larger than max"),
            unavailable(),
            Some("cannot reach etcd at ENDPOINT: storage failed: larger than max"),
            0,
        ),
    ];
    for (name, put, range, expected, reads) in rows {
        let impostor = impostor([("Put", script([put])), ("Range", script([range]))]);
        let connected = EtcdStorage::connect(&[impostor.endpoint()], &options());
        let message =
            connected.as_ref().err().map(|error| error.to_string().replace(&impostor.endpoint(), "ENDPOINT"));
        assert_eq!(message.as_deref(), expected, "{name}");
        assert_eq!(impostor.asked("Range"), reads, "{name}");
        let reached = connected.map(|store| store.feed.reached());
        assert_eq!(reached.ok(), expected.is_none().then_some(Revision(10)), "{name}");
    }
}

#[test]
fn no_key_is_printed() {
    let tls =
        EtcdTls { ca: b"authority".to_vec(), identity: Some((b"certificate".to_vec(), b"secret".to_vec())) };
    assert_eq!(format!("{tls:?}"), "EtcdTls { identity: true, .. }");
    let impostor = impostor([]);
    let printed = format!("{:?}", connect(&impostor));
    assert!(printed.starts_with("EtcdStorage { names: Names { all: \"/kubegc/\""), "{printed}");
}

/// A runtime must not end in a thread of another one, which would panic.
#[test]
fn a_store_may_be_dropped_within_another_runtime() {
    let impostor = impostor([]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(connect(&impostor)) });
}
