//! Tests admission configuration while the store fails and another server changes the configuration.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

use gc_registry::Config;
use gc_registry::api::ListOptions;
use gc_registry::storage::{
    Blocking, Committed, GetAnswer, RangeAnswer, RangeOptions, Revision, Storage, StorageError, Transaction,
    WatchItem, WatchStream,
};
use gc_store::MemoryStorage;
use serde_json::{Value, json};
use world::World;

const CM: &str = "v1/configmaps";
const WEBHOOKS: &str = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const DEFINITIONS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";

/// A gate that a thread waits at.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.moved.notify_all();
        drop(self.moved.wait_while(state, |state| state.is_closed).unwrap());
    }

    fn close(&self) {
        *self.state.lock().unwrap() = GateState { is_closed: true, waiting: 0 };
    }

    fn open(&self) {
        self.state.lock().unwrap().is_closed = false;
        self.moved.notify_all();
    }

    fn await_one(&self) {
        let state = self.state.lock().unwrap();
        drop(self.moved.wait_while(state, |state| state.waiting == 0).unwrap());
    }
}

/// A store that fails or blocks on a test's command.
struct Faulty {
    inner: Arc<MemoryStorage>,
    /// True if ranges of the configuration fail.
    fails: AtomicBool,
    /// True if the watch breaks with its next item.
    breaks: Arc<AtomicBool>,
    /// Gate of ranges over the configuration.
    ranges: Gate,
    /// Gate of new watches.
    watches: Gate,
}

impl Faulty {
    fn over(inner: &Arc<MemoryStorage>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            fails: AtomicBool::default(),
            breaks: Arc::default(),
            ranges: Gate::default(),
            watches: Gate::default(),
        })
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }
}

impl Storage for Faulty {
    fn blocks(&self) -> Blocking {
        self.inner.blocks()
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        self.inner.revision()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.inner.get(key, at)
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        let is_configuration =
            prefix.starts_with("/admissionregistration") || prefix.starts_with("/apiextensions");
        if is_configuration {
            self.ranges.pass();
        }
        if is_configuration && self.fails.load(Ordering::Relaxed) {
            return Err(StorageError::Unavailable("no answer".to_owned()));
        }
        self.inner.range(prefix, options)
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        self.inner.commit(transaction)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        self.watches.pass();
        let inner = self.inner.watch(prefix, after)?;
        Ok(Box::new(BreakingStore { inner, breaks: Arc::clone(&self.breaks) }))
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.inner.compact(revision)
    }
}

struct BreakingStore {
    inner: Box<dyn WatchStream>,
    breaks: Arc<AtomicBool>,
}

impl WatchStream for BreakingStore {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchItem, StorageError>> {
        if self.breaks.swap(false, Ordering::Relaxed) {
            return Poll::Ready(Err(StorageError::Unavailable("the stream broke".to_owned())));
        }
        self.inner.poll_next(context)
    }
}

fn pump(world: &World) -> Poll<StorageError> {
    world.registry.poll_pump(&mut Context::from_waker(Waker::noop()))
}

/// Returns two servers on one store, the first of which sees it with faults.
fn two() -> (World, World, Arc<Faulty>) {
    let storage = Arc::new(MemoryStorage::default());
    let faulty = Faulty::over(&storage);
    let first = World::over(Arc::clone(&faulty) as _, Arc::clone(&storage), Config::default());
    let other = World::over(Arc::clone(&storage) as _, storage, Config::default());
    while pump(&first).is_ready() {}
    (first, other, faulty)
}

/// Returns a webhook that must be called but cannot be reached.
fn webhook() -> Value {
    json!({"metadata": {"name": "all"}, "webhooks": [{
        "name": "all.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://nowhere.example.com/"}, "failurePolicy": "Fail",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
    }]})
}

fn code(answer: &Result<Value, gc_registry::error::ApiError>) -> u16 {
    answer.as_ref().map_or_else(|error| error.code, |_| 200)
}

/// Regression test: the change counted as known before it was read, so after one failed read the webhook was not enforced until the
/// next change of any configuration.
#[test]
fn a_webhook_of_another_server_is_enforced_after_a_read_that_failed() {
    let (first, other, faulty) = two();
    other.create(WEBHOOKS, webhook()).unwrap();
    faulty.fail(true);
    for _ in 0..3 {
        assert!(pump(&first).is_ready(), "it says that it cannot read what has changed");
        let problem = first.registry.configuration_problem().unwrap();
        assert!(problem.contains("webhooks") && problem.contains("no answer"), "{problem}");
        let refused = first.create(CM, json!({"metadata": {"name": "a"}})).unwrap_err();
        assert_eq!((refused.code, &*refused.reason), (503, "ServiceUnavailable"));
        assert_eq!(code(&first.get(CM, "default/kube-root-ca.crt")), 404, "reads are judged by nothing");
    }
    faulty.fail(false);
    while pump(&first).is_ready() {}
    assert_eq!(first.registry.configuration_problem(), None);
    let refused = first.create(CM, json!({"metadata": {"name": "a"}})).unwrap_err();
    assert!(refused.message.contains("all.example.com"), "{}", refused.message);
    first.delete(WEBHOOKS, "/all", gc_registry::api::DeleteOptions::default()).unwrap();
    assert_eq!(code(&first.create(CM, json!({"metadata": {"name": "a"}}))), 200);
}

/// A server that cannot read an admission configuration must still be usable to repair it.
#[test]
fn a_stored_webhook_that_cannot_be_decoded_can_be_deleted() {
    let (first, other, _faulty) = two();
    other.create(WEBHOOKS, webhook()).unwrap();
    let key = "/admissionregistration.k8s.io/validatingwebhookconfigurations/broken";
    let writes = vec![gc_registry::storage::Write::Put(key.into(), "not JSON".into())];
    first.storage.commit(Transaction { conditions: vec![], writes }).unwrap();
    assert!(pump(&first).is_ready());
    assert_eq!(code(&first.create(CM, json!({"metadata": {"name": "a"}}))), 503);
    let writes = vec![gc_registry::storage::Write::Delete(key.into())];
    first.storage.commit(Transaction { conditions: vec![], writes }).unwrap();
    while pump(&first).is_ready() {}
    first.delete(WEBHOOKS, "/all", gc_registry::api::DeleteOptions::default()).unwrap();
    assert_eq!(code(&first.create(CM, json!({"metadata": {"name": "a"}}))), 200);
}

#[test]
fn a_definition_of_another_server_is_in_force_after_a_read_that_failed() {
    let (first, other, faulty) = two();
    let definition = |size: Value| {
        json!({"metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"size": size}}}}],
        }})
    };
    let things = "example.com/v1/things";
    other.create(DEFINITIONS, definition(json!({"type": "integer"}))).unwrap();
    while pump(&first).is_ready() {}
    let thing = |name: &str| json!({"metadata": {"name": name}, "size": 5});
    assert_eq!(code(&first.create(things, thing("a"))), 200);
    let narrower = json!({"spec": definition(json!({"type": "integer", "maximum": 3}))["spec"]});
    other.merge(DEFINITIONS, "/things.example.com", narrower).unwrap();
    faulty.fail(true);
    assert!(pump(&first).is_ready());
    assert_eq!(code(&first.create(things, thing("b"))), 503, "the old schema would accept it");
    assert_eq!(code(&first.create(CM, json!({"metadata": {"name": "a"}}))), 200);
    faulty.fail(false);
    while pump(&first).is_ready() {}
    assert_eq!(code(&first.create(things, thing("b"))), 422);
}

/// Regression test: callers that needed the configuration waited while it was being read.
#[test]
fn requests_do_not_wait_while_the_configuration_is_read() {
    let (first, other, faulty) = two();
    other.create(WEBHOOKS, webhook()).unwrap();
    faulty.ranges.close();
    std::thread::scope(|scope| {
        scope.spawn(|| while pump(&first).is_ready() {});
        faulty.ranges.await_one();
        assert!(!first.registry.calls_outside(), "the configuration that was in force before");
        assert_eq!(code(&first.create(CM, json!({"metadata": {"name": "a"}}))), 200);
        faulty.ranges.open();
    });
    assert!(first.registry.calls_outside());
}

/// Regression test: all watches, including new ones, waited until the broken watch on the store was reopened.
#[test]
fn watches_do_not_wait_while_the_watch_on_the_store_is_opened() {
    let (first, _other, faulty) = two();
    let from = |version: String| ListOptions { resource_version: version, ..ListOptions::default() };
    let mut watch = first.watch(CM, "default", &from(first.version())).unwrap();
    faulty.breaks.store(true, Ordering::Relaxed);
    assert!(pump(&first).is_ready());
    faulty.watches.close();
    first.config_map("a", &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| while pump(&first).is_ready() {});
        faulty.watches.await_one();
        assert!(watch.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(first.watch(CM, "default", &from(String::new())).unwrap());
        faulty.watches.open();
    });
    assert_eq!(world::kinds(&first.events(&mut watch)), ["ADDED a"]);
}
