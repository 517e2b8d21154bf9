//! Results of attempts at a transaction that a member of etcd did not answer.

use std::sync::Arc;

use gc_store_api::{Change, Key, KeyValue, Revision, Transaction, Write};

/// Result of an attempt without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    Performed(Revision),
    NotPerformed,
    /// It cannot be determined.
    Unknown,
}

pub(super) fn write_key(write: &Write) -> &Key {
    match write {
        Write::Put(key, _) | Write::Delete(key) => key,
    }
}

/// Searches all changes since before the attempt for its writes. A deletion may be that of another process, which is
/// indistinguishable.
pub(super) fn search<'a>(
    transaction: &Transaction,
    changes: impl IntoIterator<Item = &'a Arc<Change>>,
) -> Earlier {
    let mut changes = changes.into_iter().peekable();
    let mut group: Vec<&Change> = Vec::new();
    while let Some(change) = changes.next() {
        group.push(change);
        if changes.peek().is_some_and(|next| next.revision == change.revision) {
            continue;
        }
        if is_of(transaction, &group) {
            let has_put = transaction.writes.iter().any(|write| matches!(write, Write::Put(..)));
            return if has_put { Earlier::Performed(change.revision) } else { Earlier::Unknown };
        }
        group.clear();
    }
    Earlier::NotPerformed
}

/// Reports whether the changes of one revision are the writes of a transaction.
fn is_of(transaction: &Transaction, group: &[&Change]) -> bool {
    let mut found = 0;
    let all = transaction.writes.iter().all(|write| {
        let key = write_key(write);
        let guard = transaction.conditions.iter().find(|condition| condition.key == *key);
        let Some(change) = group.iter().find(|change| change.key == *key) else {
            // The deletion of an absent key is no change.
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

/// Judges by the present states of the keys of all conditions, which do not hold any more.
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
            // It may have been performed, and another write after it.
            _ => return Earlier::Unknown,
        }
    }
    at.map_or(Earlier::Unknown, Earlier::Performed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use gc_store_api::Condition;

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

    fn put(key: &str, value: &'static str) -> Write {
        Write::Put(key.into(), Bytes::from_static(value.as_bytes()))
    }

    fn transaction(conditions: &[(&str, u64)], writes: Vec<Write>) -> Transaction {
        let condition = |(key, revision): &(&str, u64)| Condition {
            key: (*key).into(),
            mod_revision: Revision(*revision),
        };
        Transaction { conditions: conditions.iter().map(condition).collect(), writes }
    }

    #[test]
    fn the_writes_of_an_attempt_are_found_although_others_wrote_after_it() {
        let creation = transaction(&[("a", 0)], vec![put("a", "mine")]);
        let update = transaction(&[("a", 4)], vec![put("a", "mine")]);
        let two = transaction(&[("a", 0), ("b", 3)], vec![put("a", "mine"), put("b", "mine")]);
        let deletion = transaction(&[("a", 4)], vec![Write::Delete("a".into())]);
        let mixed = transaction(&[("a", 4)], vec![put("a", "mine"), Write::Delete("absent".into())]);
        let mine = |revision, replaced| change(revision, "a", Some("mine"), replaced);
        let cases = [
            ("created", &creation, vec![mine(5, 0)], Earlier::Performed(Revision(5))),
            (
                "then replaced",
                &creation,
                vec![mine(5, 0), change(6, "a", Some("x"), 5)],
                Earlier::Performed(Revision(5)),
            ),
            (
                "then deleted",
                &creation,
                vec![mine(5, 0), change(6, "a", None, 5)],
                Earlier::Performed(Revision(5)),
            ),
            ("by another", &creation, vec![change(5, "a", Some("theirs"), 0)], Earlier::NotPerformed),
            ("of another version", &creation, vec![mine(6, 5)], Earlier::NotPerformed),
            ("updated", &update, vec![change(5, "z", None, 1), mine(6, 4)], Earlier::Performed(Revision(6))),
            (
                "two keys",
                &two,
                vec![mine(5, 0), change(5, "b", Some("mine"), 3)],
                Earlier::Performed(Revision(5)),
            ),
            ("apart", &two, vec![mine(5, 0), change(6, "b", Some("mine"), 3)], Earlier::NotPerformed),
            ("deleted by whom", &deletion, vec![change(5, "a", None, 4)], Earlier::Unknown),
            ("not deleted", &deletion, vec![change(5, "a", Some("x"), 4)], Earlier::NotPerformed),
            ("nothing to delete", &mixed, vec![mine(5, 4)], Earlier::Performed(Revision(5))),
            ("nothing", &creation, vec![], Earlier::NotPerformed),
        ];
        for (name, transaction, changes, expected) in cases {
            assert_eq!(search(transaction, &changes), expected, "{name}");
        }
    }
}
