#![allow(clippy::unwrap_used)] // tests
use super::super::impostor::{Body, refusal, script, whole};
use super::super::protocol::{
    CompactionRequest, Empty, KeyValue, OperationAnswer, RangeResponse, ResponseOp, TxnResponse,
};
use super::super::tests::{COMPACTED, OUT_OF_RANGE, PERMISSION_DENIED, connect, header, impostor, performed};
use super::*;

/// Returns the answer of an etcd in which another process has written the key.
fn changed(version: i64, revision: i64) -> Body {
    let kv =
        KeyValue { key: "/kubegc/meta/compaction".into(), version, mod_revision: 9, ..KeyValue::default() };
    let range = RangeResponse { header: None, kvs: vec![kv], count: 1 };
    let responses = vec![ResponseOp { response: Some(OperationAnswer::Range(range)) }];
    whole(&TxnResponse { header: Some(header(revision)), succeeded: false, responses })
}

/// A process compacts to where its last turn was, if the key has not changed since.
#[test]
fn a_turn_compacts_to_the_revision_of_the_one_before() {
    let state = |version, revision| CompactorState { version, revision };
    type Row = (&'static str, CompactorState, Body, Option<Body>, Option<(CompactorState, Option<u64>)>);
    let rows: [Row; 6] = [
        ("the first turn", state(0, 0), performed(40), None, Some((state(1, 40), None))),
        ("the key of others", state(0, 0), changed(7, 40), None, Some((state(7, 40), None))),
        ("unchanged", state(7, 40), performed(60), Some(whole(&Empty {})), Some((state(8, 60), Some(40)))),
        ("changed", state(7, 40), changed(8, 60), None, Some((state(8, 60), None))),
        (
            "compacted by another",
            state(7, 40),
            performed(60),
            Some(refusal(OUT_OF_RANGE, COMPACTED)),
            Some((state(8, 60), None)),
        ),
        ("refused", state(7, 40), performed(60), Some(refusal(PERMISSION_DENIED, "denied")), None),
    ];
    for (name, seen, answer, compaction, expected) in rows {
        let compactions = usize::from(compaction.is_some());
        let impostor = impostor([("Txn", script([answer])), ("Compact", script(compaction))]);
        let store = connect(&impostor);
        let runtime = store.runtime.as_ref().unwrap();
        let result = runtime.block_on(turn(&store.client, &store.names, seen));
        let result = result.ok().map(|(next, compacted)| (next, compacted.map(|revision| revision.0)));
        assert_eq!(result, expected, "{name}");
        let put =
            PutRequest { key: "/kubegc/meta/compaction".into(), value: seen.revision.to_string().into() };
        let read = RangeRequest { key: "/kubegc/meta/compaction".into(), ..RangeRequest::default() };
        let request = TxnRequest::new(
            [Compare::version("/kubegc/meta/compaction", seen.version)],
            [Operation::Put(put)],
            [Operation::Range(read)],
        );
        assert_eq!(impostor.requests::<TxnRequest>("Txn"), [request], "{name}");
        let sent = impostor.requests::<CompactionRequest>("Compact");
        assert_eq!(sent, vec![CompactionRequest { revision: seen.revision }; compactions], "{name}");
    }
}
