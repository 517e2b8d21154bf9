//! Tests which values are in memory, and which leave it.

use super::*;

/// Revision up to which nothing is known of the loaded keys' history.
const LOADED: Revision = Revision(9);

fn key(number: usize) -> Key {
    format!("/{number}").into()
}

fn revisions(number: usize) -> OnDisk {
    let revision = Revision(number as u64 + 2);
    OnDisk { create_revision: revision, mod_revision: revision }
}

/// Returns an item as it was loaded, with a value of this size.
fn item(number: usize, bytes: usize) -> KeyValue {
    KeyValue { value: vec![b'v'; bytes].into(), ..revisions(number).to_unread(&key(number)) }
}

/// Loads keys with values of these sizes.
fn loaded(budget: u64, sizes: &[usize]) -> Mvcc {
    let mut loading = Loading::new(LOADED, budget);
    for (number, size) in sizes.iter().enumerate() {
        loading.add(key(number), &vec![b'v'; *size], revisions(number));
    }
    loading.finish(std::iter::empty())
}

/// Stores a value of this size, or deletes the key.
fn put(data: &mut Mvcc, revision: u64, number: usize, bytes: Option<usize>) -> Arc<Change> {
    let key = key(number);
    let change = Change {
        revision: Revision(revision),
        value: bytes.map(|bytes| vec![b'n'; bytes].into()),
        previous: data.current(&key),
        key,
    };
    let change = Arc::new(change);
    data.apply(std::slice::from_ref(&change));
    change
}

fn on_disk(data: &Mvcc) -> Vec<&str> {
    data.cold.keys().map(|key| &**key).collect()
}

fn sizes(all: u64, in_memory: u64, logged: u64) -> ValueSizes {
    ValueSizes { all, in_memory, logged }
}

#[test]
fn values_stay_on_disk_once_the_budget_is_spent() {
    for (budget, cold, in_memory) in
        [(101, vec![], 101), (100, vec!["/2"], 100), (59, vec!["/1"], 41), (0, vec!["/0", "/1", "/2"], 0)]
    {
        let data = loaded(budget, &[40, 60, 1, 0]);
        assert_eq!(on_disk(&data), cold, "{budget}");
        assert_eq!(data.value_sizes(), sizes(101, in_memory, 0), "{budget}");
        assert_eq!((data.key_bytes(), data.key_count(), data.bytes()), (8, 4, 109), "{budget}");
        assert_eq!((data.has_cold(), data.exceeds_budget()), (!cold.is_empty(), budget < 101), "{budget}");
        let last = data.cold("/2");
        assert_eq!(last, data.is_cold("/2").then(|| revisions(2).to_unread(&key(2))), "{budget}");
    }
    let mut loading = Loading::new(LOADED, 10);
    loading.add_on_disk(key(0), revisions(0));
    loading.add_on_disk(key(1), revisions(1));
    loading.add_sizes(30);
    let data = loading.finish(std::iter::once(item(2, 5)));
    assert_eq!((on_disk(&data), data.value_sizes()), (vec!["/0", "/1"], sizes(35, 5, 0)));
    assert_eq!((data.key_bytes(), data.key_count(), data.bytes()), (6, 3, 41));
}

#[test]
fn a_value_comes_back_in_the_version_that_the_map_knows() {
    let mut data = loaded(100, &[60, 60]);
    let other = KeyValue { mod_revision: Revision(2), ..item(1, 60) };
    for (read, cold, in_memory) in [
        (other, vec!["/1"], 60),
        (item(0, 60), vec!["/1"], 60),
        (item(1, 60), vec![], 120),
        (item(1, 60), vec![], 120),
    ] {
        data.warm(read);
        assert_eq!((on_disk(&data), data.value_sizes()), (cold, sizes(120, in_memory, 0)));
    }
    assert_eq!(data.current("/1"), Some(item(1, 60)));
}

#[test]
fn a_value_that_was_read_is_kept_if_there_is_room() {
    // The budget of 160 may be exceeded by 10.
    for (bytes, in_memory, is_crowded) in
        [(10, 160, false), (11, 161, true), (20, 170, true), (21, 150, false)]
    {
        let mut data = loaded(160, &[150, 30]);
        assert_eq!(data.keep(item(1, bytes)), is_crowded, "{bytes}");
        assert_eq!(data.value_sizes().in_memory, in_memory, "{bytes}");
    }
    let mut data = Mvcc::restore(LOADED, [item(0, 1000)]);
    assert!(!data.keep(item(0, 1000)), "without a disk, everything is in memory");
}

#[test]
fn values_leave_in_turn_until_the_rest_fits() {
    let mut data = loaded(60, &[10; 6]);
    assert!(!data.sweep(10));
    // No more records are searched than may be, and the next search continues behind them.
    data.budget = Some(35);
    assert!(data.sweep(2));
    assert_eq!(on_disk(&data), ["/0", "/1"]);
    assert!(!data.sweep(10));
    assert_eq!((on_disk(&data), data.value_sizes()), (vec!["/0", "/1", "/2"], sizes(60, 30, 0)));
    // What was read stays for a round.
    assert!(matches!(data.find("/3", LOADED), Some(Found::InMemory(_))));
    assert!(matches!(data.find("/0", LOADED), Some(Found::OnDisk(_))));
    data.budget = Some(15);
    assert!(!data.sweep(10));
    assert_eq!(on_disk(&data), ["/0", "/1", "/2", "/4", "/5"]);
    data.budget = Some(0);
    assert!(data.sweep(10), "nothing is left after the last key that was searched");
    assert!(!data.sweep(10));
    assert_eq!((on_disk(&data).len(), data.value_sizes()), (6, sizes(60, 0, 0)));
}

#[test]
fn an_empty_value_and_one_whose_change_is_in_the_log_stay() {
    let mut data = loaded(100, &[0, 20]);
    put(&mut data, 10, 2, Some(30));
    data.budget = Some(0);
    assert_eq!(data.excess(), 20);
    assert!(!data.sweep(10));
    assert_eq!((on_disk(&data), data.value_sizes()), (vec!["/1"], sizes(50, 30, 30)));
    data.compact(Revision(10));
    assert!(!data.sweep(10));
    assert_eq!((on_disk(&data), data.value_sizes()), (vec!["/1", "/2"], sizes(50, 0, 0)));
}

#[test]
fn a_value_leaves_with_its_change_where_few_others_may() {
    for (logged, cold) in [(29, vec![]), (30, vec![]), (34, vec!["/0"])] {
        let mut data = loaded(10, &[]);
        put(&mut data, 10, 0, Some(10));
        put(&mut data, 11, 1, Some(logged));
        assert_eq!((data.excess(), data.has_cold()), (0, false), "{logged}");
        data.compact(Revision(10));
        assert_eq!(on_disk(&data), cold, "{logged}");
    }
}

#[test]
fn values_in_the_log_are_counted_while_they_are_current() {
    let mut data = loaded(100, &[60]);
    let first = put(&mut data, 10, 1, Some(50));
    assert_eq!((data.value_sizes(), data.excess()), (sizes(110, 110, 50), 10));
    let (logged, bound) = (data.logged_beyond_budget(), |bytes, times| {
        data.most_logged(&HistoryOptions { changes: 100, bytes }, times)
    });
    assert_eq!((logged, bound(10, 1), bound(10, 3), bound(80, 1)), (50, 50, 150, 80));
    assert_eq!(data.logged_bytes(&first), 50);
    let history = HistoryOptions { changes: 100, bytes: 10 << 20 };
    assert_eq!(data.overdue(&history, 1), None);
    let second = put(&mut data, 11, 1, Some(70));
    let third = put(&mut data, 12, 2, None);
    let logged = [&first, &second, &third].map(|change| data.logged_bytes(change));
    assert_eq!((logged, data.value_sizes()), ([0, 70, 0], sizes(130, 130, 70)));
    put(&mut data, 13, 1, None);
    assert_eq!((data.value_sizes(), data.logged_beyond_budget()), (sizes(60, 60, 0), 0));
    let unbounded = Mvcc::restore(LOADED, [item(0, 1000)]);
    assert_eq!((unbounded.logged_beyond_budget(), unbounded.excess()), (0, 0));
    assert_eq!(unbounded.most_logged(&history, 2), u64::MAX);
}

#[test]
fn history_is_forgotten_once_its_values_take_too_much() {
    let mut data = loaded(100, &[60]);
    put(&mut data, 10, 1, Some(30));
    put(&mut data, 11, 2, Some(20));
    // Half of the budget, and not more than the history may take.
    let history = |bytes| HistoryOptions { changes: 100, bytes };
    let generous = |bytes: usize, times| data.overdue(&history(bytes), times);
    assert_eq!(generous(4096, 1), None);
    let mut data = loaded(40, &[60]);
    for (revision, number) in [(10, 1), (11, 2), (12, 3)] {
        put(&mut data, revision, number, Some(2048));
    }
    assert_eq!(data.overdue(&history(4096), 1), Some(Revision(10)));
    assert_eq!(data.overdue(&history(4096), 2), None);
    assert_eq!(data.overdue(&history(2047), 1), Some(Revision(12)));
}

/// What follows a page is counted in the version of the list, wherever the values are.
#[test]
fn a_page_counts_what_follows_it_on_disk() {
    let data = loaded(2, &[1; 6]);
    assert_eq!(on_disk(&data).len(), 4);
    for (at, items, remaining) in [(2, 1, 0), (4, 3, 0), (5, 3, 1), (7, 3, 3), (9, 3, 3)] {
        let options = gc_store_api::RangeOptions { limit: 3, ..Default::default() };
        let mut visit = super::super::Visit::new(&options);
        assert_eq!(data.visit("/", None, Revision(at), 100, &mut visit), None);
        assert_eq!((visit.items.len(), visit.remaining), (items, remaining), "at {at}");
    }
}

#[test]
fn nothing_is_left_of_a_deleted_key_once_its_history_is_forgotten() {
    let mut data = loaded(100, &[5]);
    put(&mut data, 10, 1, Some(5));
    put(&mut data, 11, 1, None);
    put(&mut data, 12, 0, None);
    for (forgotten, keys) in [(10, 2), (11, 1), (12, 0)] {
        data.compact(Revision(forgotten));
        assert_eq!(data.key_count(), keys, "{forgotten}");
    }
    assert_eq!(data.bytes(), 0);
}

/// A value of the very revision up to which history is forgotten is not in the log.
#[test]
fn a_value_that_left_the_log_is_not_subtracted_from_it() {
    for (number, revision) in [(7, LOADED), (6, Revision(8))] {
        let mut data = loaded(1000, &[10; 8]);
        assert_eq!(data.current(&key(number)).map(|item| item.mod_revision), Some(revision));
        put(&mut data, 10, 20, Some(50));
        put(&mut data, 11, number, Some(5));
        assert_eq!(data.value_sizes().logged, 55, "{number}");
        put(&mut data, 12, number, Some(6));
        assert_eq!(data.value_sizes().logged, 56, "{number}");
    }
}
