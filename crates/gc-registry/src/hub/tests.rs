use super::*;

use serde_json::json;

fn put(revision: u64, key: &str, bytes: usize) -> Change {
    let value = Some(Bytes::from(vec![b'x'; bytes]));
    Change { revision: Revision(revision), key: key.into(), value, previous: None }
}

fn definition(revision: u64, plural: &str, is_deleted: bool) -> Change {
    let value =
        Bytes::from(json!({"spec": {"group": "example.com", "names": {"plural": plural}}}).to_string());
    let key: Key = format!("{}{plural}.example.com", persist::DEFINITIONS).into();
    let at = Revision(revision);
    if !is_deleted {
        return Change { revision: at, key, value: Some(value), previous: None };
    }
    let stored = crate::storage::KeyValue {
        key: Arc::clone(&key),
        value,
        create_revision: Revision(1),
        mod_revision: Revision(1),
    };
    Change { revision: at, key, value: None, previous: Some(stored) }
}

fn held(state: &State) -> usize {
    let bytes: usize = state.windows.values().map(|window| window.bytes).sum();
    assert_eq!(bytes, state.bytes, "the sum is kept");
    let entries = state.windows.values().flat_map(|window| &window.entries).map(|entry| entry.size());
    assert_eq!(entries.sum::<usize>(), bytes);
    bytes
}

fn things(plural: &str) -> String {
    format!("/example.com/{plural}/")
}

/// Regression test: changes were only forgotten when a watch ended, and there may be none.
#[test]
fn a_deleted_definition_leaves_no_changes_behind() {
    let mut state = State::new(Revision(1), Limits::default());
    for n in 0..10 {
        let at = 2 + 2 * n;
        state.take_change(put(at, &format!("{}ns/{n}", things("things")), 1000));
    }
    let before = held(&state);
    assert!(before >= 10_000);
    state.take_change(definition(100, "things", true));
    assert!(state.windows[&*things("things")].entries.is_empty());
    held(&state);
    // A watch that resumes from before that must list again.
    assert_eq!(state.windows[&*things("things")].complete_after, Revision(100));
    // The resource may be defined again.
    state.take_change(put(101, &format!("{}ns/a", things("things")), 1000));
    assert_eq!(state.windows[&*things("things")].entries.len(), 1);
}

#[test]
fn all_windows_together_are_bounded() {
    let limits = Limits { all_bytes: 10_000, ..Limits::default() };
    let mut state = State::new(Revision(1), limits);
    let mut at = 1;
    let mut push = |state: &mut State, plural: &str| {
        at += 1;
        state.take_change(put(at, &format!("{}ns/a", things(plural)), 100));
        assert!(held(state) <= 10_000);
    };
    (0..5).for_each(|_| push(&mut state, "quiet"));
    for n in 0..500 {
        push(&mut state, ["busy", "busier", "busier"][n % 3]);
    }
    let count = |state: &State, plural: &str| state.windows[&*things(plural)].entries.len();
    assert_eq!(count(&state, "quiet"), 5, "who has little loses nothing");
    assert!(count(&state, "busy") > 10 && count(&state, "busier") > 10);
    // A single value may exceed the limit.
    state.take_change(put(1000, &format!("{}ns/a", things("large")), 50_000));
    assert_eq!(count(&state, "large"), 1);
    push_small_after(&mut state);
}

fn push_small_after(state: &mut State) {
    state.take_change(put(1001, &format!("{}ns/a", things("large")), 10));
    assert!(held(state) <= 10_000, "the large one goes first");
}

#[test]
fn definitions_that_come_and_go_are_forgotten() {
    let limits = Limits { windows: 20, ..Limits::default() };
    let mut state = State::new(Revision(1), limits);
    for n in 0..100 {
        let (plural, at) = (format!("things{n}"), 10 * (n + 1));
        state.take_change(definition(at, &plural, false));
        state.take_change(put(at + 1, &format!("{}ns/a", things(&plural)), 10));
        state.take_change(definition(at + 2, &plural, true));
        assert!(state.windows.len() <= 20, "{} windows", state.windows.len());
    }
    // A forgotten window must not claim to be complete.
    state.take_change(put(2000, &format!("{}ns/a", things("things3")), 10));
    assert!(state.windows[&*things("things3")].complete_after >= Revision(42));
}
