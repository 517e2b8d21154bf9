//! Requirements for every store, run against each of them.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // a test that fails here should fail loudly; not every store runs all

pub mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_store_api::{
    Change, Committed, Condition, KeyValue, RangeOptions, Revision, Storage, StorageError, Transaction,
    WatchItem, WatchStream, Write,
};

/// Timeout of everything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn put(key: &str, value: &str) -> Write {
    Write::Put(key.into(), Bytes::copy_from_slice(value.as_bytes()))
}

pub fn delete(key: &str) -> Write {
    Write::Delete(key.into())
}

pub fn when(conditions: &[(&str, u64)], writes: Vec<Write>) -> Transaction {
    let conditions = conditions
        .iter()
        .map(|(key, revision)| Condition { key: (*key).into(), mod_revision: Revision(*revision) })
        .collect();
    Transaction { conditions, writes }
}

pub fn write(store: &dyn Storage, writes: Vec<Write>) -> u64 {
    match store.commit(when(&[], writes)).unwrap() {
        Committed::Done(revision) => revision.0,
        Committed::Conflict(_) => unreachable!("there was no condition"),
    }
}

pub fn item(key: &str, value: &str, create: u64, modified: u64) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        create_revision: Revision(create),
        mod_revision: Revision(modified),
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the next item of a watch; panics if none comes in time.
pub fn next(stream: &mut dyn WatchStream) -> Result<WatchItem, StorageError> {
    next_within(stream, PATIENCE).expect("the watch delivers something in time")
}

pub fn next_within(
    stream: &mut dyn WatchStream,
    patience: Duration,
) -> Option<Result<WatchItem, StorageError>> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let deadline = Instant::now() + patience;
    loop {
        if let Poll::Ready(found) = stream.poll_next(&mut Context::from_waker(&waker)) {
            return Some(found);
        }
        let left = deadline.checked_duration_since(Instant::now())?;
        std::thread::park_timeout(left);
    }
}

/// Returns the next change of a watch, skipping progress.
pub fn next_change(stream: &mut dyn WatchStream) -> Change {
    loop {
        if let WatchItem::Change(change) = next(stream).unwrap() {
            return change;
        }
    }
}

fn change(revision: u64, key: &str, value: Option<&str>, previous: Option<KeyValue>) -> Change {
    Change {
        revision: Revision(revision),
        key: key.into(),
        value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
        previous,
    }
}

pub fn empty_store_is_readable(store: &dyn Storage) {
    let revision = store.revision().unwrap();
    assert!(revision >= Revision(1));
    assert_eq!(store.get("a", None).unwrap().item, None);
    let range = store.range("", &RangeOptions::default()).unwrap();
    assert_eq!((range.items, range.more, range.remaining), (vec![], false, 0));
    assert!(store.watch("", revision).is_ok());
}

pub fn reads_see_the_revision_they_ask_for(store: &dyn Storage) {
    let first = write(store, vec![put("a", "1")]);
    let second = write(store, vec![put("a", "2"), put("b", "1")]);
    let third = write(store, vec![delete("a")]);
    let fourth = write(store, vec![put("a", "3")]);
    assert_eq!([second, third, fourth], [first + 1, first + 2, first + 3]);
    let cases = [
        (Some(first - 1), None),
        (Some(first), Some(item("a", "1", first, first))),
        (Some(second), Some(item("a", "2", first, second))),
        (Some(third), None),
        (Some(fourth), Some(item("a", "3", fourth, fourth))),
        (None, Some(item("a", "3", fourth, fourth))),
    ];
    for (at, expected) in cases {
        let answer = store.get("a", at.map(Revision)).unwrap();
        assert_eq!(answer.item, expected, "at {at:?}");
        assert_eq!(answer.revision.0, at.unwrap_or(fourth));
        let range = store.range("a", &RangeOptions { at: at.map(Revision), ..Default::default() }).unwrap();
        assert_eq!(range.items, expected.into_iter().collect::<Vec<_>>(), "at {at:?}");
        assert_eq!(range.revision.0, at.unwrap_or(fourth));
    }
    assert_eq!(
        store.get("a", Some(Revision(fourth + 9))),
        Err(StorageError::Future { requested: Revision(fourth + 9), newest: Revision(fourth) })
    );
    assert_eq!(
        store.watch("a", Revision(fourth + 9)).err(),
        Some(StorageError::Future { requested: Revision(fourth + 9), newest: Revision(fourth) })
    );
}

pub fn ranges_page_and_count(store: &dyn Storage) {
    let names: Vec<String> = (0..25).map(|n| format!("/p/{n:02}")).collect();
    let revision = write(store, names.iter().map(|name| put(name, name)).collect());
    write(store, vec![put("/o", "x"), put("/p", "x"), put("/q", "x"), put("/p0", "x")]);
    write(store, vec![put("/p/99", "late"), delete("/p/00")]);
    let at = Some(Revision(revision));
    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = store
            .range("/p/", &RangeOptions { at, after: after.take(), limit: 7, skips_count: false })
            .unwrap();
        seen.extend(page.items.iter().map(|item| item.key.to_string()));
        assert_eq!(page.remaining, (names.len() - seen.len()) as u64);
        assert_eq!(page.more, page.remaining > 0);
        assert_eq!(page.revision.0, revision);
        if !page.more {
            break;
        }
        after = page.items.last().map(|item| Arc::clone(&item.key));
    }
    assert_eq!(seen, names);
    let newest = store.range("/p/", &RangeOptions { limit: 1, ..Default::default() }).unwrap();
    assert_eq!((&*newest.items[0].key, newest.remaining), ("/p/01", 24));
    for (limit, more) in [(1, true), (24, true), (25, false)] {
        let page =
            store.range("/p/", &RangeOptions { limit, skips_count: true, ..Default::default() }).unwrap();
        assert_eq!((page.items.len(), page.more, page.remaining > 0), (limit, more, more), "{limit}");
    }
    let none =
        store.range("/p/", &RangeOptions { after: Some("/p/99".into()), ..Default::default() }).unwrap();
    assert_eq!((none.items, none.more, none.remaining), (vec![], false, 0));
    let all = store.range("/p/", &RangeOptions { after: Some("/a".into()), ..Default::default() }).unwrap();
    assert_eq!(all.items.len(), 25);
}

/// Conditions, writes, and the expected state afterwards.
type ContestedTransaction = (Vec<(&'static str, u64)>, Vec<Write>, Vec<Option<KeyValue>>);

pub fn transactions_compare_and_set(store: &dyn Storage) {
    let first = write(store, vec![put("a", "1"), put("b", "1")]);
    let a = Some(item("a", "1", first, first));
    let b = Some(item("b", "1", first, first));
    let cases: Vec<ContestedTransaction> = vec![
        (vec![("a", 0)], vec![put("a", "x")], vec![a.clone()]),
        (vec![("a", first + 1)], vec![put("a", "x")], vec![a.clone()]),
        (vec![("c", first)], vec![put("c", "x")], vec![None]),
        (vec![("a", first), ("c", 7)], vec![delete("a")], vec![a.clone(), None]),
        (vec![("b", first), ("a", 0), ("c", 0)], vec![delete("a")], vec![b, a, None]),
    ];
    for (conditions, writes, expected) in cases {
        let answer = store.commit(when(&conditions, writes)).unwrap();
        assert_eq!(answer, Committed::Conflict(expected), "{conditions:?}");
        assert_eq!(store.revision().unwrap().0, first, "a conflict takes no revision");
    }
    let answer = store.commit(when(&[("a", first), ("c", 0)], vec![put("c", "1"), delete("b")])).unwrap();
    assert_eq!(answer, Committed::Done(Revision(first + 1)));
    assert_eq!(store.get("b", None).unwrap().item, None);
    assert_eq!(store.get("c", None).unwrap().item, Some(item("c", "1", first + 1, first + 1)));
    for nothing in [vec![], vec![delete("absent")]] {
        assert_eq!(store.commit(when(&[], nothing)).unwrap(), Committed::Done(Revision(first + 1)));
    }
    assert!(store.commit(when(&[], vec![put("a", "1"), delete("a")])).is_err(), "no key is written twice");
    assert_eq!(store.revision().unwrap().0, first + 1);
}

pub fn watches_replay_and_follow(store: &dyn Storage) {
    let base = store.revision().unwrap();
    let first = write(store, vec![put("/p/b", "1"), put("/p/a", "1"), put("/q/a", "1")]);
    let mut all = store.watch("/p/", base).unwrap();
    let mut later = store.watch("/p/", Revision(first)).unwrap();
    let second = write(store, vec![put("/p/a", "2")]);
    let third = write(store, vec![delete("/p/a"), put("/q/b", "1")]);
    let expected = [
        change(first, "/p/a", Some("1"), None),
        change(first, "/p/b", Some("1"), None),
        change(second, "/p/a", Some("2"), Some(item("/p/a", "1", first, first))),
        change(third, "/p/a", None, Some(item("/p/a", "2", first, second))),
    ];
    for expected in &expected {
        assert_eq!(&next_change(&mut *all), expected);
    }
    for expected in &expected[2..] {
        assert_eq!(&next_change(&mut *later), expected);
    }
}

pub fn idle_watches_hear_of_progress(store: &dyn Storage) {
    let base = store.revision().unwrap();
    let mut watch = store.watch("/p/", base).unwrap();
    let revision = write(store, vec![put("/q/a", "1")]);
    let deadline = Instant::now() + PATIENCE;
    // An idle watch is not woken for progress: progress is requested.
    loop {
        match next_within(&mut *watch, Duration::from_millis(20)) {
            Some(found) => break assert_eq!(found, Ok(WatchItem::Progress(Revision(revision)))),
            None => assert!(Instant::now() < deadline, "no progress"),
        }
    }
    let revision = write(store, vec![put("/p/a", "1")]);
    assert_eq!(next(&mut *watch), Ok(WatchItem::Change(change(revision, "/p/a", Some("1"), None))));
}

/// Waker that reports each wake-up.
struct Notify(Sender<()>);

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        self.0.send(()).unwrap_or_default();
    }
}

/// Without a wake-up, the change would still be delivered at the next poll, so the wake-up itself is awaited.
pub fn a_blocked_watch_is_woken(store: &dyn Storage) {
    let mut watch = store.watch("/p/", store.revision().unwrap()).unwrap();
    let (sender, woken) = channel();
    let waker = Waker::from(Arc::new(Notify(sender)));
    while watch.poll_next(&mut Context::from_waker(&waker)).is_ready() {}
    write(store, vec![put("/p/a", "1")]);
    woken.recv_timeout(PATIENCE).expect("the watch is woken");
    let found = watch.poll_next(&mut Context::from_waker(&waker));
    let Poll::Ready(Ok(WatchItem::Change(change))) = found else { panic!("{found:?}") };
    assert_eq!(&*change.key, "/p/a");
}

pub fn compaction_forgets_what_was_before(store: &dyn Storage) {
    let first = write(store, vec![put("a", "1"), put("gone", "1")]);
    let second = write(store, vec![put("a", "2")]);
    let third = write(store, vec![delete("gone")]);
    let fourth = write(store, vec![put("a", "4")]);
    let mut running = store.watch("", Revision(first)).unwrap();
    // A store that receives its changes from elsewhere (etcd) loses those that it has not received to the compaction.
    assert_eq!(next_change(&mut *store.watch("", Revision(third)).unwrap()).revision.0, fourth);
    store.compact(Revision(third)).unwrap();
    for early in [first, second] {
        for error in [
            store.get("a", Some(Revision(early))).err(),
            store.range("", &RangeOptions { at: Some(Revision(early)), ..Default::default() }).err(),
            store.watch("", Revision(early)).err(),
        ] {
            assert!(
                matches!(error, Some(StorageError::Compacted { requested, oldest })
                    if requested.0 == early && oldest.0 > early && oldest.0 <= third),
                "at {early}: {error:?}"
            );
        }
    }
    assert_eq!(store.get("a", Some(Revision(third))).unwrap().item, Some(item("a", "2", first, second)));
    assert_eq!(store.get("gone", Some(Revision(third))).unwrap().item, None);
    assert_eq!(store.range("", &RangeOptions::default()).unwrap().items, [item("a", "4", first, fourth)]);
    let mut watch = store.watch("", Revision(third)).unwrap();
    assert_eq!(next_change(&mut *watch).revision.0, fourth);
    // A running watch already has its changes, or receives them.
    assert_eq!(next_change(&mut *running).revision.0, second);
    assert_eq!(store.compact(Revision(second)), Ok(()));
    assert_eq!(store.compact(Revision(third)), Ok(()));
    assert_eq!(
        store.compact(Revision(fourth + 1)),
        Err(StorageError::Future { requested: Revision(fourth + 1), newest: Revision(fourth) })
    );
    store.compact(Revision(fourth)).unwrap();
    assert_eq!(store.get("a", None).unwrap().item, Some(item("a", "4", first, fourth)));
    write(store, vec![put("a", "5")]);
}

/// Writers race for counters; every increment must be stored exactly once, and a watcher must see each revision in order.
pub fn concurrent_increments_are_not_lost(store: &dyn Storage, writers: usize, each: usize) {
    let base = store.revision().unwrap();
    let mut watch = store.watch("/n/", base).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                let key = format!("/n/{}", writer % 3);
                for _ in 0..each {
                    increment(store, &key);
                }
            });
        }
    });
    let total: usize = store
        .range("/n/", &RangeOptions::default())
        .unwrap()
        .items
        .iter()
        .map(|item| std::str::from_utf8(&item.value).unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(total, writers * each);
    let mut last = base;
    for _ in 0..total {
        let change = next_change(&mut *watch);
        assert_eq!(change.revision.0, last.0 + 1, "every revision, once, in order");
        last = change.revision;
    }
}

/// A watcher that polled one change of a transaction must receive the others without waiting, because being idle means that the
/// revision is complete.
pub fn transactions_are_delivered_whole(store: &dyn Storage) {
    const TRANSACTIONS: u64 = 100;
    const KEYS: u64 = 16;
    let base = store.revision().unwrap();
    let mut watch = store.watch("/t/", base).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..TRANSACTIONS {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                write(store, (0..KEYS).map(|key| put(&format!("/t/{key:02}"), &n.to_string())).collect());
            }
        });
        let poll =
            |watch: &mut Box<dyn WatchStream>| watch.poll_next(&mut Context::from_waker(Waker::noop()));
        let mut follow = || -> Result<(), String> {
            let (mut complete, mut revision, mut part) = (0, base, KEYS);
            while complete < TRANSACTIONS {
                match poll(&mut watch) {
                    Poll::Ready(Ok(WatchItem::Change(change))) if change.revision == revision => part += 1,
                    Poll::Ready(Ok(WatchItem::Change(change))) => (revision, part) = (change.revision, 1),
                    Poll::Ready(Ok(WatchItem::Progress(to))) if part < KEYS => {
                        return Err(format!("progress to {to} after {part} changes of {revision}"));
                    }
                    Poll::Pending if part < KEYS => {
                        return Err(format!("idle after {part} changes of {revision}"));
                    }
                    Poll::Ready(Ok(WatchItem::Progress(_))) | Poll::Pending => std::thread::yield_now(),
                    Poll::Ready(Err(error)) => return Err(error.to_string()),
                }
                if revision > base && part == KEYS {
                    complete += 1;
                    (revision, part) = (base, KEYS);
                }
                if Instant::now() > deadline {
                    return Err(format!("{complete} transactions came in time"));
                }
            }
            Ok(())
        };
        let followed = follow();
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(followed, Ok(()));
    });
}

fn increment(store: &dyn Storage, key: &str) {
    let mut found = store.get(key, None).unwrap().item;
    loop {
        let (revision, value) = found.as_ref().map_or((0, 0), |item| {
            (item.mod_revision.0, std::str::from_utf8(&item.value).unwrap().parse::<usize>().unwrap())
        });
        let next = put(key, &(value + 1).to_string());
        match store.commit(when(&[(key, revision)], vec![next])).unwrap() {
            Committed::Done(_) => return,
            Committed::Conflict(mut present) => found = present.remove(0),
        }
    }
}

/// Creates one test of each table for a store that the given expression creates (with a guard that keeps it alive).
#[macro_export]
macro_rules! storage_suite {
    ($new:expr) => {
        $crate::storage_suite!(@each $new;
            empty_store_is_readable, reads_see_the_revision_they_ask_for, ranges_page_and_count,
            transactions_compare_and_set, watches_replay_and_follow, idle_watches_hear_of_progress,
            a_blocked_watch_is_woken, transactions_are_delivered_whole, compaction_forgets_what_was_before);
    };
    (@each $new:expr; $($name:ident),*) => {$(
        #[test]
        fn $name() {
            let Some((store, _guard)) = $new else { return };
            suite::$name(&*store);
        }
    )*};
}

/// Checks that a revision which is held outlives a history of four changes, and goes with the hold.
pub fn a_held_revision_stays_readable_a_while_longer(store: &dyn Storage) {
    let first = write(store, vec![put("a", "1")]);
    let hold = store.hold(Revision(first)).unwrap();
    for n in 0..5 {
        write(store, vec![put("a", &n.to_string())]);
    }
    assert!(store.get("a", Some(Revision(first))).is_ok());
    drop(hold);
    write(store, vec![put("a", "5")]);
    assert!(matches!(store.get("a", Some(Revision(first))), Err(StorageError::Compacted { .. })));
}
