//! Determines the result of transaction attempts that a member of etcd did not answer.
//!
//! A put is recognized by its value. The deletion of an object looks the same whoever performed it, so a transaction that deletes a
//! specific version is signed: it also writes a unique signature to one key that all processes share. The value of that key at the
//! revision of a deletion identifies the transaction that deleted.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gc_store_api::{Change, Key, KeyValue, Revision, Transaction, Write};

/// Result of an attempt without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    Performed(Revision),
    NotPerformed,
    /// The result cannot be determined.
    Unknown,
}

pub(super) fn write_key(write: &Write) -> &Key {
    match write {
        Write::Put(key, _) | Write::Delete(key) => key,
    }
}

/// Source of the signatures of one process.
#[derive(Debug)]
pub(super) struct Signatures {
    process: u64,
    next: AtomicU64,
}

impl Signatures {
    pub(super) fn new() -> Self {
        // The seed of a hasher is random.
        Self { process: RandomState::new().hash_one(std::process::id()), next: AtomicU64::new(0) }
    }

    /// Returns a new signature for a transaction that deletes a specific version of a key. Returns `None` for others: deleting an
    /// absent key writes nothing, and deleting any version does not depend on which process was faster.
    pub(super) fn sign(&self, transaction: &Transaction) -> Option<String> {
        let is_guarded = |key: &Key| {
            let mut conditions = transaction.conditions.iter();
            conditions.any(|condition| condition.key == *key && condition.mod_revision > Revision(0))
        };
        let deletes =
            transaction.writes.iter().any(|write| matches!(write, Write::Delete(key) if is_guarded(key)));
        deletes.then(|| format!("{:016x}-{}", self.process, self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

/// A transaction in progress.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) transaction: &'a Transaction,
    /// Signature, if the transaction deletes a specific version of a key.
    pub(super) signature: Option<String>,
    /// False once etcd was full: it then refuses every put, but performs deletions.
    pub(super) writes_signature: bool,
    /// Revision from before the first attempt.
    pub(super) since: Revision,
}

impl<'a> Sent<'a> {
    pub(super) fn new(transaction: &'a Transaction, signatures: &Signatures, since: Revision) -> Self {
        Self { transaction, signature: signatures.sign(transaction), writes_signature: true, since }
    }

    /// Omits the signature from further attempts. Returns `true` if it was still included before.
    pub(super) fn leave_out_signature(&mut self) -> bool {
        std::mem::replace(&mut self.writes_signature, false) && self.signature.is_some()
    }
}

/// Returns the revisions whose changes match the writes of a transaction. Deletions among them may belong to other processes.
pub(super) fn search<'a>(
    transaction: &Transaction,
    changes: impl IntoIterator<Item = &'a Arc<Change>>,
) -> Vec<Revision> {
    let mut changes = changes.into_iter().peekable();
    let (mut group, mut found): (Vec<&Change>, Vec<Revision>) = (Vec::new(), Vec::new());
    while let Some(change) = changes.next() {
        group.push(change);
        if changes.peek().is_some_and(|next| next.revision == change.revision) {
            continue;
        }
        if is_of(transaction, &group) {
            found.push(change.revision);
        }
        group.clear();
    }
    found
}

/// Reports whether the changes of one revision match the writes of a transaction.
fn is_of(transaction: &Transaction, group: &[&Change]) -> bool {
    let mut found = 0;
    let all = transaction.writes.iter().all(|write| {
        let key = write_key(write);
        let guard = transaction.conditions.iter().find(|condition| condition.key == *key);
        let Some(change) = group.iter().find(|change| change.key == *key) else {
            // The deletion of an absent key makes no change.
            return matches!(write, Write::Delete(_)) && guard.is_none_or(|guard| guard.mod_revision.0 == 0);
        };
        found += 1;
        let replaced = change.previous.as_ref().map_or(Revision(0), |before| before.mod_revision);
        let value = match write {
            Write::Put(_, value) => Some(value),
            Write::Delete(_) => None,
        };
        change.value.as_ref() == value && guard.is_none_or(|guard| guard.mod_revision == replaced)
    });
    all && found > 0
}

/// Judges by the current states of the keys of all conditions, which no longer hold.
pub(super) fn judge(transaction: &Transaction, present: &[Option<KeyValue>]) -> Earlier {
    let mut at = None;
    for write in &transaction.writes {
        let number = transaction.conditions.iter().position(|condition| condition.key == *write_key(write));
        let found = number.and_then(|number| present.get(number)?.as_ref());
        match (write, found) {
            (Write::Put(_, value), Some(found))
                if found.value == *value && at.is_none_or(|at| at == found.mod_revision) =>
            {
                at = Some(found.mod_revision);
            }
            (Write::Delete(_), None) => {}
            // The transaction may have been performed, followed by another write.
            _ => return Earlier::Unknown,
        }
    }
    at.map_or(Earlier::Unknown, Earlier::Performed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::tests::{put, transaction};
    use super::*;

    fn item(key: &str, revision: u64) -> KeyValue {
        let (create_revision, mod_revision) = (Revision(revision), Revision(revision));
        KeyValue { key: key.into(), value: Bytes::from_static(b"before"), create_revision, mod_revision }
    }

    fn change(revision: u64, key: &str, value: Option<&'static str>, replaced: u64) -> Arc<Change> {
        let previous = (replaced > 0).then(|| item(key, replaced));
        let value = value.map(|value| Bytes::from_static(value.as_bytes()));
        Arc::new(Change { revision: Revision(revision), key: key.into(), value, previous })
    }

    #[test]
    fn the_writes_of_an_attempt_are_found_although_others_wrote_after_it() {
        let creation = transaction(&[("a", 0)], vec![put("a", "mine")]);
        let update = transaction(&[("a", 4)], vec![put("a", "mine")]);
        let two = transaction(&[("a", 0), ("b", 3)], vec![put("a", "mine"), put("b", "mine")]);
        let deletion = transaction(&[("a", 4)], vec![Write::Delete("a".into())]);
        let mixed = transaction(&[("a", 4)], vec![put("a", "mine"), Write::Delete("absent".into())]);
        let mine = |revision, replaced| change(revision, "a", Some("mine"), replaced);
        let unguarded = transaction(&[], vec![Write::Delete("a".into())]);
        let none = transaction(&[("absent", 0)], vec![Write::Delete("absent".into())]);
        let beside = |guard| transaction(&[("b", guard)], vec![put("a", "mine"), Write::Delete("b".into())]);
        let (absent, present) = (beside(0), beside(3));
        let cases: [(&str, &Transaction, Vec<Arc<Change>>, &[u64]); 16] = [
            ("created", &creation, vec![mine(5, 0)], &[5]),
            ("then replaced", &creation, vec![mine(5, 0), change(6, "a", Some("x"), 5)], &[5]),
            ("then deleted", &creation, vec![mine(5, 0), change(6, "a", None, 5)], &[5]),
            ("by another", &creation, vec![change(5, "a", Some("theirs"), 0)], &[]),
            ("of another version", &creation, vec![mine(6, 5)], &[]),
            ("updated", &update, vec![change(5, "z", None, 1), mine(6, 4)], &[6]),
            ("two keys", &two, vec![mine(5, 0), change(5, "b", Some("mine"), 3)], &[5]),
            ("apart", &two, vec![mine(5, 0), change(6, "b", Some("mine"), 3)], &[]),
            ("deleted", &deletion, vec![change(5, "a", None, 4)], &[5]),
            ("not deleted", &deletion, vec![change(5, "a", Some("x"), 4)], &[]),
            ("nothing to delete", &mixed, vec![mine(5, 4)], &[5]),
            (
                "deleted twice",
                &unguarded,
                vec![change(5, "a", None, 4), mine(6, 0), change(7, "a", None, 6)],
                &[5, 7],
            ),
            ("nothing", &creation, vec![], &[]),
            ("what is absent, beside another's change", &none, vec![mine(5, 4)], &[]),
            ("with a deletion that had nothing to do", &absent, vec![mine(5, 4)], &[5]),
            ("without its deletion", &present, vec![mine(5, 4)], &[]),
        ];
        for (name, transaction, changes, expected) in cases {
            let expected: Vec<Revision> = expected.iter().copied().map(Revision).collect();
            assert_eq!(search(transaction, &changes), expected, "{name}");
        }
    }

    /// After the conditions have ceased to hold, the present states show that the attempt was performed only if all of its writes are
    /// there as it would have left them, in one revision.
    #[test]
    fn present_states_show_an_earlier_attempt_only_if_all_its_writes_are_there() {
        let present = |key: &str, revision: u64| Some(item(key, revision));
        let two = transaction(&[("a", 0), ("b", 3)], vec![put("a", "before"), put("b", "before")]);
        let other = transaction(&[("a", 4)], vec![put("a", "other")]);
        let mixed = transaction(&[("a", 4), ("b", 3)], vec![put("a", "before"), Write::Delete("b".into())]);
        let deletion = transaction(&[("b", 3)], vec![Write::Delete("b".into())]);
        let unguarded = transaction(&[("b", 3)], vec![put("a", "before")]);
        let (performed, unknown) = (Earlier::Performed(Revision(5)), Earlier::Unknown);
        let rows: [(&str, &Transaction, Vec<Option<KeyValue>>, Earlier); 8] = [
            ("both in one revision", &two, vec![present("a", 5), present("b", 5)], performed),
            ("in two revisions", &two, vec![present("a", 5), present("b", 6)], unknown),
            ("one of them", &two, vec![present("a", 5), None], unknown),
            ("another value", &other, vec![present("a", 5)], unknown),
            ("with a deletion", &mixed, vec![present("a", 5), None], performed),
            ("without its deletion", &mixed, vec![present("a", 5), present("b", 5)], unknown),
            ("a deletion alone, which others may have made", &deletion, vec![None], unknown),
            ("a write whose state was not read", &unguarded, vec![present("b", 5)], unknown),
        ];
        for (name, transaction, present, expected) in rows {
            assert_eq!(judge(transaction, &present), expected, "{name}");
        }
    }

    /// A write may be sent twice if its key must have a revision, which never recurs; a key may be absent again.
    #[test]
    fn only_writes_that_need_a_revision_may_be_repeated() {
        let rows = [
            (transaction(&[("a", 4)], vec![put("a", "x")]), true),
            (transaction(&[("a", 1)], vec![Write::Delete("a".into())]), true),
            (transaction(&[("a", 0)], vec![put("a", "x")]), false),
            (transaction(&[("b", 4)], vec![put("a", "x")]), false),
            (transaction(&[("a", 4)], vec![put("a", "x"), put("b", "x")]), false),
            (transaction(&[("a", 4), ("b", 5)], vec![put("a", "x"), put("b", "x")]), true),
        ];
        for (transaction, expected) in rows {
            assert_eq!(super::super::may_be_repeated(&transaction), expected, "{transaction:?}");
        }
    }

    #[test]
    fn only_what_deletes_is_signed_and_never_twice_alike() {
        let (one, other) = (Signatures::new(), Signatures::new());
        let update = transaction(&[("a", 4)], vec![put("a", "mine")]);
        let mixed = transaction(&[("a", 4)], vec![put("b", "mine"), Write::Delete("a".into())]);
        let any_version =
            transaction(&[("a", 0)], vec![Write::Delete("a".into()), Write::Delete("b".into())]);
        for unsigned in [&update, &any_version] {
            assert_eq!(one.sign(unsigned), None);
        }
        let signed: std::collections::BTreeSet<String> =
            [&one, &other, &one, &other].into_iter().filter_map(|process| process.sign(&mixed)).collect();
        assert_eq!(signed.len(), 4, "{signed:?}");
    }
}
