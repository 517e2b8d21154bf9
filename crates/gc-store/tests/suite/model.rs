//! Random operations are compared with a model that is obviously correct: a list of complete snapshots.

use std::collections::BTreeMap;

use gc_store_api::{
    Change, Committed, KeyValue, RangeAnswer, RangeOptions, Revision, Storage, StorageError, WatchStream,
    Write,
};
use proptest::prelude::*;

use super::{item, next_change, put, when};

/// Few keys, so that operations collide; nested ones, so that prefixes matter.
const KEYS: [&str; 7] = ["/a", "/a/x", "/a/y", "/a/y/z", "/b/x", "/b/y", "/bb"];
const PREFIXES: [&str; 6] = ["", "/a", "/a/", "/b", "/b/", "/none/"];
/// Key that sorts after all others.
const END: &str = "~end";
/// One key under each prefix.
const ENDS: [&str; 6] = ["~end", "/a~end", "/a/~end", "/b~end", "/b/~end", "/none/~end"];

/// A revision relative to the newest: the number of revisions before it (negative: in the future).
type Back = i64;

#[derive(Clone, Debug)]
pub enum Operation {
    /// Conditions (key, and whether the condition is correct) and writes (key, put or delete).
    Commit(Vec<(usize, bool)>, BTreeMap<usize, bool>),
    Get(usize, Option<Back>),
    Range {
        prefix: usize,
        at: Option<Back>,
        after: Option<usize>,
        limit: usize,
    },
    Watch(usize, Back),
    Compact(Back),
}

pub fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let key = 0..KEYS.len();
    let at = prop::option::of(-1..12_i64);
    let operation = prop_oneof![
        8 => (prop::collection::vec((key.clone(), prop::bool::weighted(0.9)), 0..3),
              prop::collection::btree_map(key.clone(), prop::bool::weighted(0.7), 0..4))
            .prop_map(|(conditions, writes)| Operation::Commit(conditions, writes)),
        3 => (key.clone(), at.clone()).prop_map(|(key, at)| Operation::Get(key, at)),
        3 => (0..PREFIXES.len(), at, prop::option::of(key), 0..4_usize)
            .prop_map(|(prefix, at, after, limit)| Operation::Range { prefix, at, after, limit }),
        2 => (0..PREFIXES.len(), -1..12_i64).prop_map(|(prefix, back)| Operation::Watch(prefix, back)),
        1 => (0..14_i64).prop_map(Operation::Compact),
    ];
    prop::collection::vec(operation, 1..most)
}

type Snapshot = BTreeMap<&'static str, KeyValue>;

struct Model {
    base: u64,
    compacted: u64,
    /// One snapshot per revision, from `base`.
    snapshots: Vec<Snapshot>,
    written: u64,
}

impl Model {
    fn newest(&self) -> u64 {
        self.base + self.snapshots.len() as u64 - 1
    }

    fn now(&self) -> &Snapshot {
        self.snapshots.last().unwrap()
    }

    fn resolve(&self, back: Back) -> Revision {
        Revision(self.newest().saturating_add_signed(-back).max(self.base))
    }

    fn readable(&self, at: Revision) -> Result<&Snapshot, StorageError> {
        if at.0 > self.newest() {
            return Err(StorageError::Future { requested: at, newest: Revision(self.newest()) });
        }
        if at.0 < self.compacted {
            return Err(StorageError::Compacted { requested: at, oldest: Revision(self.compacted) });
        }
        Ok(&self.snapshots[usize::try_from(at.0 - self.base).unwrap()])
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        let revision = options.at.unwrap_or(Revision(self.newest()));
        let mut items: Vec<KeyValue> = self
            .readable(revision)?
            .values()
            .filter(|item| item.key.starts_with(prefix))
            .filter(|item| options.after.as_ref().is_none_or(|after| item.key > *after))
            .cloned()
            .collect();
        let rest =
            items.split_off(if options.limit == 0 { items.len() } else { options.limit.min(items.len()) });
        Ok(RangeAnswer { items, more: !rest.is_empty(), remaining: rest.len() as u64, revision })
    }

    fn commit(
        &mut self,
        conditions: &[(&str, u64)],
        writes: &BTreeMap<usize, bool>,
    ) -> (Committed, Vec<Write>) {
        self.written += 1;
        let value = self.written.to_string();
        let made = writes.iter().map(|(key, is_put)| match is_put {
            true => put(KEYS[*key], &value),
            false => Write::Delete(KEYS[*key].into()),
        });
        let made = made.collect();
        let now = self.now();
        if conditions
            .iter()
            .any(|(key, wanted)| now.get(key).map_or(0, |item| item.mod_revision.0) != *wanted)
        {
            let present = conditions.iter().map(|(key, _)| now.get(key).cloned()).collect();
            return (Committed::Conflict(present), made);
        }
        let revision = self.newest() + 1;
        let mut next = now.clone();
        for (key, is_put) in writes {
            let key = KEYS[*key];
            if *is_put {
                let create = now.get(key).map_or(revision, |item| item.create_revision.0);
                next.insert(key, item(key, &value, create, revision));
            } else {
                next.remove(key);
            }
        }
        if next != *now {
            self.snapshots.push(next);
        }
        (Committed::Done(Revision(self.newest())), made)
    }

    fn changes(&self, prefix: &str, after: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for revision in after + 1..=self.newest() {
            let index = usize::try_from(revision - self.base).unwrap();
            let (before, now) = (&self.snapshots[index - 1], &self.snapshots[index]);
            for key in KEYS.iter().filter(|key| key.starts_with(prefix) && before.get(*key) != now.get(*key))
            {
                changes.push(Change {
                    revision: Revision(revision),
                    key: (*key).into(),
                    value: now.get(key).map(|item| item.value.clone()),
                    previous: before.get(key).cloned(),
                });
            }
        }
        changes
    }
}

/// Runs operations against an empty store. `reopen` is called occasionally, and may return another handle of the same store.
pub fn check(
    store: Box<dyn Storage>,
    operations: &[Operation],
    mut reopen: impl FnMut(Box<dyn Storage>) -> Box<dyn Storage>,
) {
    let mut store = store;
    let base = store.revision().unwrap().0;
    let mut model = Model { base, compacted: 0, snapshots: vec![Snapshot::new()], written: 0 };
    let mut watches: Vec<(&str, u64, Box<dyn WatchStream>)> = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        if number % 16 == 15 {
            finish(&*store, &mut model, std::mem::take(&mut watches));
            store = reopen(store);
        }
        match operation {
            Operation::Commit(conditions, writes) => {
                let conditions: Vec<(&str, u64)> = conditions
                    .iter()
                    .map(|(key, truly)| {
                        let held = model.now().get(KEYS[*key]).map_or(0, |item| item.mod_revision.0);
                        (KEYS[*key], if *truly { held } else { held + 1 })
                    })
                    .collect();
                let (expected, made) = model.commit(&conditions, writes);
                assert_eq!(store.commit(when(&conditions, made)).unwrap(), expected);
            }
            Operation::Get(key, at) => {
                let at = at.map(|back| model.resolve(back));
                let snapshot = model.readable(at.unwrap_or(Revision(model.newest())));
                let expected = snapshot.map(|snapshot| snapshot.get(KEYS[*key]).cloned());
                assert_same(store.get(KEYS[*key], at).map(|answer| answer.item), expected);
            }
            Operation::Range { prefix, at, after, limit } => {
                let at = at.map(|back| model.resolve(back));
                let options = RangeOptions {
                    at,
                    after: after.map(|key| KEYS[key].into()),
                    limit: *limit,
                    skips_count: false,
                };
                let expected = model.range(PREFIXES[*prefix], &options);
                assert_same(store.range(PREFIXES[*prefix], &options), expected);
            }
            Operation::Watch(prefix, back) => {
                let after = model.resolve(*back);
                let watch = store.watch(PREFIXES[*prefix], after);
                match model.readable(after) {
                    Ok(_) => watches.push((PREFIXES[*prefix], after.0, watch.unwrap())),
                    Err(expected) => assert_same(watch.map(|_| ()), Err(expected)),
                }
            }
            Operation::Compact(back) => {
                let revision = model.resolve(*back);
                delivered(&*store, &model);
                store.compact(revision).unwrap();
                model.compacted = model.compacted.max(revision.0);
            }
        }
        assert_eq!(store.revision().unwrap().0, model.newest());
    }
    finish(&*store, &mut model, watches);
}

/// Compares results, except that a store may only know that the oldest revision is later than the requested one.
#[allow(clippy::needless_pass_by_value)] // a test reads better without the borrows
fn assert_same<T: std::fmt::Debug + PartialEq>(
    found: Result<T, StorageError>,
    expected: Result<T, StorageError>,
) {
    match (&found, &expected) {
        (
            Err(StorageError::Compacted { requested, oldest }),
            Err(StorageError::Compacted { requested: asked, oldest: truly }),
        ) => assert!(requested == asked && oldest > asked && oldest <= truly, "{found:?} for {expected:?}"),
        _ => assert_eq!(found, expected),
    }
}

/// Waits until the newest change has reached the watchers. A store that receives its changes from elsewhere (etcd) may otherwise
/// have lost earlier ones to the compaction, and then rightly ends its watches.
fn delivered(store: &dyn Storage, model: &Model) {
    let newest = model.newest();
    if newest > model.base.max(model.compacted) {
        let mut watch = store.watch("", Revision(newest - 1)).unwrap();
        assert_eq!(next_change(&mut *watch).revision.0, newest);
    }
}

/// Ends the watches with a change that each of them sees, and compares everything before it. Takes two revisions.
fn finish(store: &dyn Storage, model: &mut Model, watches: Vec<(&str, u64, Box<dyn WatchStream>)>) {
    let revision = super::write(store, ENDS.iter().map(|end| put(end, "")).collect());
    let mut with_ends = model.now().clone();
    with_ends.extend(ENDS.iter().map(|end| (*end, item(end, "", revision, revision))));
    let without = model.now().clone();
    for (prefix, after, mut watch) in watches {
        let mut found = Vec::new();
        loop {
            let change = next_change(&mut *watch);
            if change.revision.0 == revision && change.key.strip_prefix(prefix) == Some(END) {
                break;
            }
            found.push(change);
        }
        found.retain(|change| !change.key.ends_with(END));
        assert_eq!(found, model.changes(prefix, after), "watch of {prefix:?} after {after}");
    }
    super::write(store, ENDS.iter().map(|end| Write::Delete((*end).into())).collect());
    model.snapshots.extend([with_ends, without]);
}
