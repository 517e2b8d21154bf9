#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test

use std::task::{Context, Poll, Waker};

use gc_registry::api::{ListedCollection, Object};
use gc_registry::storage::{Revision, Storage as _, Transaction, Write};
use gc_store::MemoryStorage;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const PREFIX: &str = "/core/configmaps/";

struct Fixture {
    storage: Arc<MemoryStorage>,
    registry: Registry,
    lengths: ListLengths,
}

impl Fixture {
    fn new(counted_from: i64) -> Self {
        let storage = Arc::new(MemoryStorage::default());
        let registry = Registry::open(Arc::clone(&storage) as _, gc_registry::Config::default()).unwrap();
        let fixture = Self { storage, registry, lengths: ListLengths::counting_from(counted_from) };
        open(&fixture.registry, &fixture.lengths).unwrap();
        fixture
    }

    fn write(&self, writes: Vec<Write>) {
        self.storage.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
    }

    fn measure(&self) {
        while let Some(prefix) = self.lengths.next_large() {
            measure(&self.registry, &self.lengths, &prefix, &AtomicBool::new(false));
        }
    }

    fn known(&self, namespace: &str, revision: Revision, items: ProtobufItems) -> Option<usize> {
        let mut context = Context::from_waker(Waker::noop());
        let listed = ListedCollection { prefix: PREFIX.into(), namespace: namespace.into(), revision };
        loop {
            if let Poll::Ready(known) = self.lengths.poll_length(&mut context, &listed, items) {
                return known;
            }
        }
    }

    /// Returns the length of what is written.
    fn written(&self, namespace: &str, revision: Revision, items: ProtobufItems) -> usize {
        let prefix = if namespace.is_empty() { PREFIX.to_owned() } else { format!("{PREFIX}{namespace}/") };
        let range = RangeOptions { at: Some(revision), ..RangeOptions::default() };
        let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() });
        let mut out = Vec::new();
        for stored in self.registry.stored_objects(&prefix, &range).unwrap().items {
            let object = Object::from_stored(Arc::clone(&type_meta), stored.value, stored.mod_revision);
            let before = out.len();
            if items.write(&mut out, &object).is_err() {
                // A list fails at it.
                out.truncate(before);
            }
        }
        out.len()
    }
}

fn put(namespace: u8, name: u8, text: &str) -> Write {
    let key = format!("{PREFIX}n{namespace}/m{name}");
    let metadata =
        json!({"name": format!("m{name}"), "namespace": format!("n{namespace}"), "labels": {"a": text}});
    let object = match text {
        "broken" => "{\"metadata\":{\"name\":".into(),
        text => format!("{{\"metadata\":{metadata},\"data\":{}}}", json!({"k": text})),
    };
    Write::Put(key.into(), object.into())
}

fn delete(namespace: u8, name: u8) -> Write {
    Write::Delete(format!("{PREFIX}n{namespace}/m{name}").into())
}

fn forms() -> [ProtobufItems; 2] {
    [ProtobufItems::metadata(), ProtobufItems::of_kind("v1", "ConfigMap").unwrap()]
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, String),
    Delete(u8, u8),
    /// Several changes of one revision.
    Together(Vec<(u8, u8)>),
    Measure,
    Check,
}

fn step() -> impl Strategy<Value = Step> {
    let text = prop_oneof!["[a-zé\"]{0,20}", Just("broken".to_owned()), Just("long".repeat(60))];
    prop_oneof![
        4 => (0_u8..3, 0_u8..5, text).prop_map(|(namespace, name, text)| Step::Put(namespace, name, text)),
        2 => (0_u8..3, 0_u8..5).prop_map(|(namespace, name)| Step::Delete(namespace, name)),
        1 => proptest::collection::hash_set((0_u8..3, 5_u8..9), 1..4)
            .prop_map(|names| Step::Together(names.into_iter().collect())),
        1 => Just(Step::Measure),
        2 => Just(Step::Check),
    ]
}

proptest! {
    /// Whatever is written, and whenever the collection is measured: what is known of a list is the length of what is written.
    #[test]
    fn a_known_length_is_that_of_what_is_written(steps in proptest::collection::vec(step(), 1..60)) {
        let fixture = Fixture::new(0);
        let mut is_measured = false;
        let mut earlier = fixture.storage.revision().unwrap();
        for step in steps.into_iter().chain([Step::Measure, Step::Check]) {
            match step {
                Step::Put(namespace, name, text) => fixture.write(vec![put(namespace, name, &text)]),
                Step::Delete(namespace, name) => fixture.write(vec![delete(namespace, name)]),
                Step::Together(names) => {
                    let writes = names.into_iter().map(|(namespace, name)| put(namespace, name, "x")).collect();
                    fixture.write(writes);
                }
                Step::Measure => {
                    fixture.measure();
                    is_measured = true;
                }
                Step::Check => {
                    let newest = fixture.storage.revision().unwrap();
                    for items in forms() {
                        for namespace in ["", "n0", "n1", "n2", "none"] {
                            let known = fixture.known(namespace, newest, items);
                            let written = fixture.written(namespace, newest, items);
                            prop_assert_eq!(known, is_measured.then_some(written), "{}", namespace);
                            let known = fixture.known(namespace, earlier, items);
                            let written = fixture.written(namespace, earlier, items);
                            prop_assert!(known.is_none_or(|known| known == written), "{:?} {}", known, written);
                        }
                    }
                    earlier = newest;
                }
            }
        }
    }
}

/// A collection is counted once it is large, and not while it is small.
#[test]
fn collections_are_counted_while_they_are_large() {
    let fixture = Fixture::new(5000);
    let [_, items] = forms();
    let is_known = || {
        let newest = fixture.storage.revision().unwrap();
        let known = fixture.known("", newest, items);
        assert!(known.is_none_or(|known| known == fixture.written("", newest, items)));
        fixture.measure();
        fixture.known("", newest, items).is_some()
    };
    assert!(!is_known());
    for number in 0..20 {
        fixture.write(vec![put(0, number, &"x".repeat(300))]);
    }
    assert!(is_known());
    for number in 0..20 {
        fixture.write(vec![delete(0, number)]);
    }
    assert!(!is_known());
    fixture.write((0..20).map(|number| put(1, number, &"y".repeat(300))).collect());
    assert!(is_known());
}

/// Writes pay for counting only where somebody lists: a collection that is only written is not counted, and no longer once it was
/// changed as much as it is large.
#[test]
fn collections_that_are_not_listed_are_not_counted() {
    let fixture = Fixture::new(5000);
    let [_, items] = forms();
    let known = || fixture.known("", fixture.storage.revision().unwrap(), items).is_some();
    fixture.measure();
    fixture.write((0..20).map(|number| put(0, number, &"x".repeat(300))).collect());
    // Counting the changes asks for nothing to be measured; a list does.
    let newest = fixture.storage.revision().unwrap();
    let other =
        ListedCollection { prefix: "/core/secrets/".into(), namespace: String::new(), revision: newest };
    let _ = fixture.lengths.poll_length(&mut Context::from_waker(Waker::noop()), &other, items);
    assert_eq!(fixture.lengths.next_large(), None);
    assert!(!known());
    fixture.measure();
    assert!(known());
    let change = |times: u32| {
        for time in 0..times {
            fixture.write((0..20).map(|number| put(0, number, &format!("{time}").repeat(100))).collect());
        }
    };
    change(100);
    assert!(known());
    change(300);
    assert!(!known());
    fixture.measure();
    assert!(known());
}

/// What is counted stays right, although versions that are too old, and too many namespaces, are not.
#[test]
fn a_length_that_is_not_known_is_not_guessed() {
    let fixture = Fixture::new(0);
    fixture.measure();
    let [items, _] = forms();
    let begun = fixture.storage.revision().unwrap();
    for part in 0..110_u32 {
        let key = |number: u32| format!("{PREFIX}n{part}-{number}/m").into();
        let text = "{\"metadata\":{\"name\":\"m\"}}";
        fixture.write((0..100).map(|number| Write::Put(key(number), text.into())).collect());
    }
    let newest = fixture.storage.revision().unwrap();
    assert_eq!(fixture.known("", newest, items), Some(fixture.written("", newest, items)));
    assert_eq!(fixture.known("", begun, items), None);
    assert_eq!(fixture.known("n0-1", newest, items), None);
}

/// After a break the collections are measured again, but for those of which a list was wrong.
#[test]
fn a_length_that_was_wrong_is_not_used_again() {
    let fixture = Fixture::new(0);
    let [items, _] = forms();
    fixture.write(vec![put(0, 0, "a")]);
    let newest = fixture.storage.revision().unwrap();
    let is_known = || {
        fixture.measure();
        fixture.known("", newest, items).is_some()
    };
    assert!(is_known());
    open(&fixture.registry, &fixture.lengths).unwrap();
    assert!(is_known());
    fixture.lengths.distrust(PREFIX);
    assert!(!is_known());
    open(&fixture.registry, &fixture.lengths).unwrap();
    assert!(!is_known());
}
