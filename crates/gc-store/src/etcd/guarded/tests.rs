#![allow(clippy::unwrap_used)] // tests
use gc_store_api::Transaction;

use super::super::impostor::{Body, refusal, script, whole};
use super::super::protocol::{KeyValue as Stored, RangeRequest, RangeResponse};
use super::super::tests::{
    COMPACTED, FULL, NOW, OUT_OF_RANGE, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE, by, connect,
    found, header, impostor, performed, put, read, stored, transaction,
};
use super::*;

const MINE: &str = "mine";

/// Returns the key of signatures as it was written at a revision.
fn signed(value: &str, revision: i64) -> Stored {
    Stored { key: "/kubegc/meta/signature".into(), ..stored("", value, revision) }
}

fn conflict(present: Option<(&str, u64)>) -> Committed {
    let item = present.map(|(value, revision)| KeyValue {
        key: "/a".into(),
        value: value.to_owned().into(),
        create_revision: Revision(revision),
        mod_revision: Revision(revision),
    });
    Committed::Conflict(vec![item])
}

fn unavailable() -> Body {
    refusal(UNAVAILABLE, "the connection broke")
}

fn full() -> Body {
    refusal(RESOURCE_EXHAUSTED, FULL)
}

/// A conflict counts as such only if no attempt before it can have been performed.
#[test]
fn the_result_of_a_guarded_write() {
    let update = || transaction(&[("/a", 4)], vec![put("/a", "new")]);
    let deletion = || transaction(&[("/a", 4)], vec![Write::Delete("/a".into())]);
    let done = |revision| Ok(Committed::Done(Revision(revision)));
    type Row = (&'static str, fn() -> Vec<Body>, Result<Committed, StorageError>);
    let updates: [Row; 8] = [
        ("performed", || vec![performed(11)], done(11)),
        (
            "changed by another",
            || vec![read(11, vec![Some(stored("/a", "theirs", 9))])],
            Ok(conflict(Some(("theirs", 9)))),
        ),
        ("deleted by another", || vec![read(11, vec![None])], Ok(conflict(None))),
        ("repeated", || vec![unavailable(), performed(11)], done(11)),
        // The feed does not know all since revision 9, so what is there decides.
        (
            "performed although not answered",
            || vec![unavailable(), read(11, vec![Some(stored("/a", "new", 11))])],
            done(11),
        ),
        ("unknown", || vec![unavailable(), read(11, vec![Some(stored("/a", "theirs", 11))])], Err(unknown())),
        ("full", || vec![full()], Err(StorageError::Full)),
        (
            "refused",
            || vec![refusal(PERMISSION_DENIED, "denied")],
            Err(StorageError::Broken("denied".to_owned())),
        ),
    ];
    let deletions: [Row; 4] = [
        ("full, then performed without its signature", || vec![full(), performed(11)], done(11)),
        ("full twice", || vec![full(), full()], Err(StorageError::Full)),
        // The attempt before etcd was full may have been performed.
        ("full, then gone", || vec![full(), read(10, vec![None])], Ok(conflict(None))),
        ("gone", || vec![read(10, vec![None])], Ok(conflict(None))),
    ];
    let updates = updates.into_iter().map(|row| (row, update(), 9));
    let deletions = deletions.into_iter().map(|row| (row, deletion(), 10));
    for ((name, bodies, expected), asked, since) in updates.chain(deletions) {
        let bodies = bodies();
        let sent = bodies.len();
        let signatures = by(|_: RangeRequest| whole(&found(Vec::new())));
        let impostor = impostor([("Txn", script(bodies)), ("Range", signatures)]);
        let store = connect(&impostor);
        let committed = store.commit_guarded(&mut Sent::new(&asked, &store.signatures, Revision(since)));
        assert_eq!(committed, expected, "{name}");
        assert_eq!(impostor.asked("Txn"), sent, "{name}");
        let requests = impostor.requests::<TxnRequest>("Txn");
        let writes: Vec<usize> = requests.iter().map(|request| request.success.len()).collect();
        let is_signed = matches!(asked.writes[..], [Write::Delete(_)]);
        assert_eq!(writes[0], 1 + usize::from(is_signed), "{name}");
        assert!(writes[1..].iter().all(|writes| *writes == 1), "{name}: {writes:?}");
    }
}

#[test]
fn an_answer_without_a_revision_is_refused() {
    let impostor = impostor([("Txn", script([performed(0)]))]);
    let asked = transaction(&[("/a", 4)], vec![put("/a", "new")]);
    let store = connect(&impostor);
    let committed = store.commit_guarded(&mut Sent::new(&asked, &store.signatures, Revision(10)));
    assert!(matches!(committed, Err(StorageError::Broken(_))), "{committed:?}");
}

/// A transaction that deletes, for which the signature is the one of the test.
fn sent(transaction: &Transaction, is_signed: bool, writes_signature: bool, since: u64) -> Sent<'_> {
    let signature = is_signed.then(|| MINE.to_owned());
    Sent { transaction, signature, writes_signature, since: Revision(since) }
}

/// The newest signature decides; after it, what the feed knows; and without a signature, what is there.
#[test]
fn the_result_of_earlier_attempts() {
    let deletion = transaction(&[("/a", 4)], vec![Write::Delete("/a".into())]);
    let update = transaction(&[("/a", 4)], vec![put("/a", "new")]);
    let present = |value: &str| {
        let key = stored("/a", value, 9);
        vec![Some(convert::item("/a".into(), key))]
    };
    let performed = |revision| Ok(Earlier::Performed(Revision(revision)));
    let rows = [
        ("own signature", sent(&deletion, true, true, 10), signed(MINE, 8), present("x"), performed(8)),
        (
            "no deletion since",
            sent(&deletion, true, true, 10),
            signed("theirs", 8),
            present("x"),
            Ok(Earlier::NotPerformed),
        ),
        (
            "the feed knows too little",
            sent(&deletion, true, true, 9),
            signed("theirs", 8),
            present("x"),
            Ok(Earlier::Unknown),
        ),
        (
            "no write since",
            sent(&update, false, true, 10),
            signed("theirs", 8),
            present("new"),
            Ok(Earlier::NotPerformed),
        ),
        ("present", sent(&update, false, true, 9), signed("theirs", 8), present("new"), performed(9)),
        (
            "another is present",
            sent(&update, false, true, 9),
            signed("theirs", 8),
            present("x"),
            Ok(Earlier::Unknown),
        ),
    ];
    for (name, sent, signature, present, expected) in rows {
        let impostor = impostor([("Range", script([whole(&found(vec![signature]))]))]);
        let store = connect(&impostor);
        assert_eq!(store.earlier(&sent, Revision(10), &present), expected, "{name}");
        assert_eq!(impostor.asked("Range"), usize::from(sent.signature.is_some()), "{name}");
    }
}

/// A search that finds deletions reads the signature at the revision of each.
#[test]
fn a_deletion_is_ones_own_if_it_wrote_the_signature() {
    let not = Ok(Earlier::NotPerformed);
    let unknown = Ok(Earlier::Unknown);
    let mine = |revision| Ok(Earlier::Performed(Revision(revision)));
    // Deletions found, revisions of own signatures, whether all attempts were signed; result, and signatures read.
    type Row = (&'static str, Vec<u64>, &'static [i64], bool, Result<Earlier, StorageError>, usize);
    let rows: [Row; 10] = [
        ("none", vec![], &[], true, not.clone(), 0),
        ("none, and an attempt without a signature", vec![], &[], false, not.clone(), 0),
        ("the first", vec![5, 7], &[5], true, mine(5), 1),
        ("the second", vec![5, 7], &[7], true, mine(7), 2),
        ("of others", vec![5, 7], &[], true, not.clone(), 2),
        ("of others, and an attempt without a signature", vec![5, 7], &[], false, unknown.clone(), 2),
        ("of another, after an own one", vec![6], &[5], true, not.clone(), 1),
        ("as many as are read", vec![5; SIGNATURE_READS], &[], true, not, SIGNATURE_READS),
        ("more than are read", vec![5; SIGNATURE_READS + 1], &[], true, unknown.clone(), SIGNATURE_READS),
        ("compacted", vec![3, 5], &[5], true, unknown, 1),
    ];
    for (name, deletions, own, all_are_signed, expected, reads) in rows {
        let range = by(|request: RangeRequest| {
            if request.revision < 4 {
                return refusal(OUT_OF_RANGE, COMPACTED);
            }
            let last = own.iter().filter(|revision| **revision <= request.revision).max();
            let kv =
                last.map_or_else(|| signed("theirs", request.revision), |revision| signed(MINE, *revision));
            whole(&RangeResponse { header: Some(header(NOW)), kvs: vec![kv], count: 1 })
        });
        let impostor = impostor([("Range", range)]);
        let store = connect(&impostor);
        let deletions: Vec<Revision> = deletions.into_iter().map(Revision).collect();
        assert_eq!(store.own(&deletions, MINE, all_are_signed), expected, "{name}");
        assert_eq!(impostor.asked("Range"), reads, "{name}");
    }
}

#[test]
fn a_signature_that_cannot_be_read_is_an_error() {
    let impostor = impostor([("Range", script([refusal(PERMISSION_DENIED, "denied")]))]);
    let error = connect(&impostor).own(&[Revision(5)], MINE, true).unwrap_err();
    assert_eq!(error, StorageError::Broken("denied".to_owned()));
}
