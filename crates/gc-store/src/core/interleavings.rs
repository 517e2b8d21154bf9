//! Every interleaving of a reader of values on disk with a short run of the committer.
#![allow(clippy::unwrap_used)] // tests

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use bytes::Bytes;
use gc_store_api::{Change, Key, KeyValue, RangeOptions, Revision, StorageError, Transaction, Write};

use super::{Core, ValueSource};
use crate::hub::lock;
use crate::mvcc::{Loading, TransactionResult, evaluate, result_of};
use crate::record::OnDisk;

/// Revision of the state at the beginning, before which nothing is known.
const BASE: Revision = Revision(5);

/// Steps of the committer for one transaction.
#[derive(Clone, Copy, Debug)]
enum Step {
    Warm,
    WriteFile,
    Publish,
    Sweep,
}

const STEPS: [Step; 4] = [Step::Warm, Step::WriteFile, Step::Publish, Step::Sweep];

/// Choices of one run, and how many there were at each point.
#[derive(Debug, Default)]
struct Choices {
    made: Vec<(usize, usize)>,
    used: usize,
}

impl Choices {
    fn choose(&mut self, number: usize) -> usize {
        if self.used == self.made.len() {
            self.made.push((0, number));
        }
        let (choice, of) = self.made[self.used];
        assert_eq!(of, number, "a run depends on its choices alone");
        self.used += 1;
        choice
    }

    /// Prepares the next run. Returns false after the last.
    fn advance(&mut self) -> bool {
        self.used = 0;
        while let Some((choice, number)) = self.made.pop() {
            if choice + 1 < number {
                self.made.push((choice + 1, number));
                return true;
            }
        }
        false
    }
}

type State = BTreeMap<Key, KeyValue>;

/// The committer, and the file that it writes.
#[derive(Debug)]
struct World {
    core: OnceLock<Weak<Core>>,
    inner: Mutex<Inner>,
    /// Number of changes that the history keeps.
    kept: u64,
    transactions: Vec<Vec<Write>>,
}

#[derive(Debug, Default)]
struct Inner {
    choices: Choices,
    file: State,
    /// Number of steps taken.
    steps: usize,
    /// True while the committer itself reads.
    is_committing: bool,
    batch: Vec<Arc<Change>>,
    /// State at each revision.
    states: BTreeMap<Revision, State>,
}

impl World {
    fn new(choices: Choices, kept: u64, transactions: &[Vec<Write>]) -> (Arc<Self>, Arc<Core>) {
        let items = [("k", "k2", 2), ("l", "l3", 3), ("m", "m4", 4)];
        let mut data = Loading::new(BASE, 0);
        let mut file = State::new();
        for (key, value, revision) in items {
            let revision = Revision(revision);
            let revisions = OnDisk { create_revision: revision, mod_revision: revision };
            data.add(key.into(), value.as_bytes(), revisions);
            file.insert(key.into(), KeyValue { value: value.into(), ..revisions.to_unread(&key.into()) });
        }
        let states = BTreeMap::from([(BASE, file.clone())]);
        let inner = Inner { choices, file, states, ..Inner::default() };
        let world = Arc::new(Self {
            core: OnceLock::new(),
            inner: Mutex::new(inner),
            kept,
            transactions: transactions.to_vec(),
        });
        let core = Arc::new(Core::with_source(data.finish(std::iter::empty()), 100, world.clone()));
        world.core.set(Arc::downgrade(&core)).unwrap();
        (world, core)
    }

    /// Takes any number of steps.
    fn advance(&self) {
        let left = self.transactions.len() * STEPS.len() - lock(&self.inner).steps;
        let chosen = lock(&self.inner).choices.choose(left + 1);
        for _ in 0..chosen {
            let core = self.core.get().unwrap().upgrade().unwrap();
            let number = lock(&self.inner).steps;
            let step = STEPS[number % STEPS.len()];
            // A locked map stops the committer, unless the step needs no lock.
            if !matches!(step, Step::WriteFile) && core.data.try_write().is_err() {
                return;
            }
            lock(&self.inner).is_committing = true;
            self.perform(&core, step, &self.transactions[number / STEPS.len()]);
            let mut inner = lock(&self.inner);
            inner.is_committing = false;
            inner.steps += 1;
        }
    }

    fn perform(&self, core: &Core, step: Step, writes: &[Write]) {
        let key = |write: &Write| match write {
            Write::Put(key, _) | Write::Delete(key) => Arc::clone(key),
        };
        match step {
            Step::Warm => {
                let keys: Vec<Key> = writes.iter().map(key).collect();
                core.warm(keys.iter().map(|key| &**key)).unwrap();
                let revision = Revision(core.revision().0 + 1);
                let transaction = Transaction { conditions: vec![], writes: writes.to_vec() };
                let made = evaluate(transaction, revision, |key| core.current(key)).unwrap();
                let TransactionResult::Changes(changes) = made else { panic!("there is no condition") };
                lock(&self.inner).batch = changes.into_iter().map(Arc::new).collect();
            }
            Step::WriteFile => {
                let mut inner = lock(&self.inner);
                let Inner { file, batch, states, .. } = &mut *inner;
                for change in batch.iter() {
                    match result_of(change) {
                        Some(item) => drop(file.insert(Arc::clone(&change.key), item)),
                        None => drop(file.remove(&change.key)),
                    }
                    states.insert(change.revision, file.clone());
                }
            }
            Step::Publish => {
                let batch = std::mem::take(&mut lock(&self.inner).batch);
                let newest = batch.last().unwrap().revision.0;
                let target = Revision(newest.saturating_sub(self.kept).max(BASE.0));
                core.publish(core.write(), &batch, |_| Some(target));
            }
            Step::Sweep => while core.sweep() {},
        }
    }
}

impl ValueSource for World {
    fn read(&self, items: &[&KeyValue]) -> Result<Vec<Option<Bytes>>, StorageError> {
        let is_reader = !lock(&self.inner).is_committing;
        if is_reader {
            self.advance();
        }
        let value = |inner: &Inner, item: &KeyValue| {
            let found = inner.file.get(&item.key)?;
            (found.mod_revision == item.mod_revision).then(|| found.value.clone())
        };
        let inner = lock(&self.inner);
        let values = items.iter().map(|item| value(&inner, item)).collect();
        drop(inner);
        if is_reader {
            self.advance();
        }
        Ok(values)
    }
}

/// Runs a read in every interleaving. Returns the number of runs.
fn check(kept: u64, transactions: &[Vec<Write>], at: Option<Revision>, is_range: bool) -> usize {
    let (mut choices, mut runs) = (Choices::default(), 0);
    loop {
        let (world, core) = World::new(choices, kept, transactions);
        let before = core.revision();
        let found = if is_range {
            core.range("", &RangeOptions { at, ..RangeOptions::default() })
                .map(|answer| (answer.revision, answer.items))
        } else {
            core.get("k", at).map(|answer| (answer.revision, answer.item.into_iter().collect()))
        };
        let mut inner = lock(&world.inner);
        match found {
            Ok((revision, items)) => {
                assert_eq!(at.unwrap_or(revision), revision);
                assert!(revision >= before && revision <= core.revision());
                let state = &inner.states[&revision];
                let expected = state.values().filter(|item| is_range || &*item.key == "k");
                assert_eq!(items, expected.cloned().collect::<Vec<_>>(), "{:?}", inner.choices);
            }
            Err(StorageError::Compacted { requested, oldest }) => {
                assert!(at == Some(requested) && requested < oldest, "{:?}", inner.choices);
                assert!(core.read().compacted() >= oldest);
            }
            Err(error) => panic!("{error}: {:?}", inner.choices),
        }
        runs += 1;
        choices = std::mem::take(&mut inner.choices);
        if !choices.advance() {
            return runs;
        }
    }
}

#[test]
fn a_reader_gets_the_version_that_it_wants_in_every_interleaving() {
    let put = |key: &str, value: &'static str| Write::Put(key.into(), value.into());
    let transactions = [
        vec![put("k", "k6")],
        vec![Write::Delete("k".into()), put("l", "l7")],
        vec![put("k", "k8"), put("n", "n8")],
    ];
    let mut runs = 0;
    for kept in 0..3 {
        for at in [None, Some(BASE)] {
            for is_range in [false, true] {
                runs += check(kept, &transactions, at, is_range);
            }
        }
    }
    assert!(runs > 1000, "only {runs} interleavings");
}
