//! Writes whose request or answer is lost with its connection are repeated, and each must be answered with its result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gc_store::EtcdStorage;
use gc_store_api::{Committed, Revision, Storage, Write};

use crate::path::Path;
use crate::server::{Server, patient};
use crate::suite::{delete, put, when, write};

fn through(path: &Path) -> EtcdStorage {
    EtcdStorage::connect(&[path.endpoint()], &patient()).unwrap()
}

/// Regression test: a deletion whose answer was lost failed although it was performed, because another client might have deleted
/// the same object.
#[test]
fn a_write_whose_answer_is_lost_is_answered_and_performed_once() {
    let Some(server) = Server::start() else { return };
    let path = Path::to(server.port());
    let store = through(&path);
    let mut made = write(&store, vec![put("/k/a", "1"), put("/k/b", "1"), put("/k/c", "1")]);
    let cases = [
        ("created", when(&[("/k/new", 0)], vec![put("/k/new", "1")])),
        ("updated", when(&[("/k/a", made)], vec![put("/k/a", "2")])),
        ("deleted", when(&[("/k/b", made)], vec![delete("/k/b")])),
        ("deleted without a guard", when(&[], vec![delete("/k/new")])),
        (
            "one deleted, another made",
            when(&[("/k/c", made), ("/k/b", 0)], vec![delete("/k/c"), put("/k/b", "1")]),
        ),
    ];
    for (name, transaction) in cases {
        let (breaks, before) = (path.breaks(), made);
        let (keys, deleted): (Vec<_>, Vec<_>) = transaction
            .writes
            .iter()
            .map(|write| match write {
                Write::Put(key, _) => (key.clone(), false),
                Write::Delete(key) => (key.clone(), true),
            })
            .unzip();
        path.lose_answer();
        let committed = store.commit(transaction).unwrap();
        let Committed::Done(revision) = committed else { panic!("{name}: {committed:?}") };
        assert!(path.breaks() > breaks, "{name}: nothing was lost");
        assert!(revision.0 > before, "{name}");
        made = revision.0;
        for (key, is_deleted) in keys.iter().zip(deleted) {
            let found = store.get(key, None).unwrap().item;
            assert_eq!(found.is_none(), is_deleted, "{name}: {key}");
            assert!(found.is_none_or(|found| found.mod_revision == revision), "{name}: {key}");
            let earlier = store.get(key, Some(Revision(made - 1))).unwrap().item;
            assert_eq!(
                earlier.is_some(),
                is_deleted || name == "updated",
                "{name}: {key} at the revision before"
            );
        }
    }
}

/// The opposite case: a deletion that another server has performed in the meantime must not be reported as ours.
#[test]
fn a_deletion_of_another_server_is_not_taken_for_ones_own() {
    let Some(server) = Server::start() else { return };
    let path = Path::to(server.port());
    let (store, other) = (through(&path), server.connect(&patient()));
    let made = write(&other, vec![put("/k/a", "1")]);
    let deletion = || when(&[("/k/a", made)], vec![delete("/k/a")]);
    path.lose_requests(true);
    let is_answered = AtomicBool::new(false);
    let committed = std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let committed = store.commit(deletion());
            is_answered.store(true, Ordering::SeqCst);
            committed
        });
        while path.breaks() == 0 {
            assert!(!is_answered.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(other.commit(deletion()).unwrap(), Committed::Done(_)));
        // Further deletions overwrite the last signature.
        let next = write(&other, vec![put("/k/b", "1")]);
        other.commit(when(&[("/k/b", next)], vec![delete("/k/b")])).unwrap();
        path.lose_requests(false);
        sent.join().unwrap()
    });
    assert_eq!(committed, Ok(Committed::Conflict(vec![None])));
}
