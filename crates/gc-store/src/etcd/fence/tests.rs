#![allow(clippy::unwrap_used)] // tests
use gc_store_api::Write;

use super::super::impostor::{Body, refusal, script};
use super::super::protocol::KeyValue as Stored;
use super::super::tests::{
    FULL, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE, connect, impostor, performed, put, read,
    stored, transaction,
};
use super::*;

/// Returns the fence as it was raised at a revision.
fn fence(revision: i64) -> Stored {
    Stored { key: "/kubegc/meta/fence".into(), ..stored("", "", revision) }
}

fn lost() -> Body {
    refusal(UNAVAILABLE, "the connection broke")
}

/// Returns the revisions of the fence that the attempts at a creation required, and how many other transactions were sent.
fn fences(requests: &[TxnRequest]) -> (Vec<i64>, usize) {
    let is_attempt = |request: &&TxnRequest| request.compare.len() == 2;
    let required = |request: &TxnRequest| match request.compare.last()?.expected? {
        super::super::protocol::Expected::ModRevision(revision) => Some(revision),
        super::super::protocol::Expected::Version(_) => None,
    };
    let attempts: Vec<i64> = requests.iter().filter(is_attempt).filter_map(required).collect();
    let others = requests.len() - attempts.len();
    (attempts, others)
}

/// A creation without an answer ends by raising the fence, and is repeated only if it was not performed.
#[test]
fn the_result_of_a_creation() {
    let theirs = || Some(stored("/a", "theirs", 9));
    let mine = || Some(stored("/a", "new", 11));
    let conflict = || {
        let item = convert::item("/a".into(), stored("/a", "theirs", 9));
        Ok(Committed::Conflict(vec![Some(item)]))
    };
    let done = |revision| Ok(Committed::Done(Revision(revision)));
    let failed = "members of etcd failed one after the other";
    type Row = (&'static str, Vec<Body>, Result<Committed, StorageError>, &'static [i64], usize, u64);
    let rows: [Row; 9] = [
        ("performed", vec![performed(11)], done(11), &[0], 0, 0),
        ("there is another", vec![read(11, vec![theirs(), None])], conflict(), &[0], 0, 0),
        (
            "there is another, and a fence",
            vec![read(11, vec![theirs(), Some(fence(3))])],
            conflict(),
            &[0],
            0,
            3,
        ),
        ("fenced", vec![read(11, vec![None, Some(fence(3))]), performed(11)], done(11), &[0, 3], 0, 3),
        (
            "fenced for ever",
            (0..4).map(|turn| read(11, vec![None, Some(fence(3 + turn))])).collect(),
            Err(StorageError::Unavailable(failed.to_owned())),
            &[0, 3, 4, 5],
            0,
            6,
        ),
        (
            "lost and not performed",
            vec![lost(), performed(10), read(10, vec![None]), performed(11)],
            done(11),
            &[0, 10],
            2,
            10,
        ),
        (
            "lost and not performed, and there is another",
            vec![lost(), performed(10), read(10, vec![theirs()])],
            conflict(),
            &[0],
            2,
            10,
        ),
        (
            // The feed knows nothing after revision 10, so what is there decides.
            "lost and performed",
            vec![lost(), read(12, vec![Some(fence(12))]), read(12, vec![mine()])],
            done(11),
            &[0],
            2,
            12,
        ),
        (
            "refused",
            vec![refusal(PERMISSION_DENIED, "denied")],
            Err(StorageError::Broken("denied".to_owned())),
            &[0],
            0,
            0,
        ),
    ];
    for (name, bodies, expected, attempts, others, known) in rows {
        let impostor = impostor([("Txn", script(bodies))]);
        let store = connect(&impostor);
        let creation = transaction(&[("/a", 0)], vec![put("/a", "new")]);
        let mut sent = Sent::new(&creation, &store.signatures, Revision(0));
        assert_eq!(store.commit_once(&mut sent), expected, "{name}");
        let requests = impostor.requests::<TxnRequest>("Txn");
        assert_eq!(fences(&requests), (attempts.to_vec(), others), "{name}");
        assert_eq!(store.fence.load(Ordering::Acquire), known, "{name}");
    }
}

/// Without a signature, a full etcd performs what makes room, so a creation that also deletes is sent without it.
#[test]
fn a_full_etcd_is_asked_again_without_a_signature() {
    let full = || refusal(RESOURCE_EXHAUSTED, FULL);
    let deletes = transaction(&[("/a", 0), ("/b", 4)], vec![put("/a", "new"), Write::Delete("/b".into())]);
    let creates = transaction(&[("/a", 0)], vec![put("/a", "new")]);
    let rows: [(&str, &Transaction, Vec<Body>, Result<Committed, StorageError>, &[usize]); 3] = [
        ("room", &deletes, vec![full(), performed(11)], Ok(Committed::Done(Revision(11))), &[3, 2]),
        ("no room", &deletes, vec![full(), full()], Err(StorageError::Full), &[3, 2]),
        ("nothing to leave out", &creates, vec![full()], Err(StorageError::Full), &[1]),
    ];
    for (name, asked, bodies, expected, writes) in rows {
        let impostor = impostor([("Txn", script(bodies))]);
        let store = connect(&impostor);
        let mut sent = Sent::new(asked, &store.signatures, Revision(0));
        assert_eq!(store.commit_once(&mut sent), expected, "{name}");
        let requests = impostor.requests::<TxnRequest>("Txn");
        let sizes: Vec<usize> = requests.iter().map(|request| request.success.len()).collect();
        assert_eq!(sizes, writes, "{name}");
    }
}

/// The fence is written only if it is the one that the attempt required, so that it rises once for all processes.
#[test]
fn a_fence_is_raised_from_the_one_that_was_required() {
    let rows =
        [(performed(11), 11, 11), (read(11, vec![Some(fence(8))]), 11, 8), (read(11, vec![None]), 11, 0)];
    for (answer, revision, known) in rows {
        let impostor = impostor([("Txn", script([answer]))]);
        let store = connect(&impostor);
        assert_eq!(store.raise_fence(Revision(5)), Ok(Revision(revision)));
        assert_eq!(store.fence.load(Ordering::Acquire), known);
        let key = || "/kubegc/meta/fence".to_owned();
        let expected = TxnRequest::new(
            [Compare::mod_revision(key(), 5)],
            [Operation::Put(PutRequest { key: key().into(), ..PutRequest::default() })],
            [Operation::Range(one(key()))],
        );
        assert_eq!(impostor.requests::<TxnRequest>("Txn"), [expected]);
    }
}

#[test]
fn conditions_are_met_by_the_revisions_that_they_name() {
    let item = |revision| Some(convert::item("/a".into(), stored("/a", "v", revision)));
    for (required, present, expected) in
        [(0, None, true), (0, item(4), false), (4, item(4), true), (4, item(5), false), (4, None, false)]
    {
        let asked = transaction(&[("/a", required)], vec![]);
        assert_eq!(are_met(&asked, std::slice::from_ref(&present)), expected, "{required}: {present:?}");
    }
}
