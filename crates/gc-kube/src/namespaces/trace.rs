//! Reports what the namespace controller has done as other collectors do: one effect per object, with its reason.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_retention::namespaces::emptying::{Contained, Item, View};
use gc_types::{
    Change, Effect, EffectId, Evidence, Gvr, ObjectKey, Outcome, PropagationPolicy, Reason, Request,
    ResourceId, ResourceInfo, ResourceVersion, Scope, Uid, Verdict,
};

use crate::observer::Observer;
use crate::resources::{ResourceTable, Route};

/// Maximum number of objects of one answer that are reported at once …
const REPORTED_AT_ONCE: usize = 1_000;
/// … and then the time for the journal to write them: its queue is bounded, too.
const REPORT_PAUSE: Duration = Duration::from_millis(5);
/// The number of `namespaces`; those of their contents follow.
const NAMESPACES: ResourceId = ResourceId(0);

/// A namespace that is being emptied.
#[derive(Clone, Debug)]
pub(crate) struct Terminating {
    pub(crate) name: Arc<str>,
    uid: Arc<str>,
    /// `metadata.deletionTimestamp`.
    since: Arc<str>,
    version: ResourceVersion,
}

impl Terminating {
    /// The namespace of that name, as it was read last.
    pub(crate) fn new(name: &Arc<str>, view: &View) -> Self {
        Self {
            name: Arc::clone(name),
            uid: view.uid.as_str().into(),
            since: view.deleted_at.as_deref().unwrap_or_default().into(),
            version: ResourceVersion::parse(&view.resource_version),
        }
    }
}

/// The key of a namespace.
pub(crate) fn namespace_key(name: &str) -> ObjectKey {
    ObjectKey { resource: NAMESPACES, namespace: "".into(), name: name.into() }
}

/// Reports to an observer.
pub struct Trace {
    observer: Arc<dyn Observer>,
    table: ResourceTable,
    numbers: Mutex<BTreeMap<(Arc<str>, Arc<str>), ResourceId>>,
    next_effect: AtomicU64,
}

impl Trace {
    /// Reports to the observer that is made for the table by which effects name resources.
    pub fn new(observer: impl FnOnce(&ResourceTable) -> Arc<dyn Observer>) -> Self {
        let table = ResourceTable::default();
        table.insert(Arc::new(Route::new(ResourceInfo {
            id: NAMESPACES,
            gvr: Gvr { group: "".into(), version: "v1".into(), resource: "namespaces".into() },
            kind: "Namespace".into(),
            scope: Scope::Cluster,
            served_api_versions: vec!["v1".into()],
            watched: false,
            comparable_versions: true,
        })));
        let observer = observer(&table);
        Self { observer, table, numbers: Mutex::default(), next_effect: AtomicU64::new(0) }
    }

    /// The observers.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer)
    }

    /// What the numbers of resources mean.
    #[must_use]
    pub fn table(&self) -> ResourceTable {
        self.table.clone()
    }

    /// The number of a resource, which stays the same.
    fn number(&self, contained: &Contained) -> ResourceId {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = ResourceId(u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX));
        let gvr = &contained.gvr;
        let name = (Arc::clone(&gvr.group), Arc::clone(&gvr.resource));
        let number = *numbers.entry(name).or_insert(next);
        if self.table.get(number).is_none() {
            self.table.insert(Arc::new(Route::new(ResourceInfo {
                id: number,
                gvr: gvr.clone(),
                kind: Arc::clone(&contained.kind),
                scope: Scope::Namespaced,
                served_api_versions: vec![gvr.api_version().into()],
                watched: false,
                comparable_versions: true,
            })));
        }
        number
    }

    fn effect(&self, request: Request, observed: ResourceVersion, facts: Vec<String>) -> Effect {
        let id = EffectId(self.next_effect.fetch_add(1, Ordering::Relaxed));
        let mut evidence = vec![Evidence::ObservedAt { resource_version: observed }];
        evidence.extend(facts.into_iter().map(|fact| Evidence::Fact(fact.into())));
        let verdict = Verdict::Retention(gc_types::codes::NAMESPACE_TERMINATING);
        Effect { id, request, reason: Reason { verdict, owners: Vec::new(), evidence } }
    }

    fn deletion(&self, resource: ResourceId, namespace: &Terminating, item: &Item, how: &str) -> Effect {
        let Terminating { name, uid, since, .. } = namespace;
        let key = ObjectKey { resource, namespace: Arc::clone(name), name: item.name.as_str().into() };
        let request = Request::Delete {
            key,
            uid: Uid::new(item.uid.as_deref().unwrap_or_default()),
            // The verdict is the namespace's: no version of the object would change it.
            resource_version: None,
            policy: PropagationPolicy::Background,
        };
        let why = format!("namespace {name} ({uid}) has been terminating since {since}");
        self.effect(request, ResourceVersion::parse(&item.resource_version), vec![why, how.to_owned()])
    }

    /// One object was deleted, or a deletion failed.
    pub(crate) fn deleted(
        &self,
        contained: &Contained,
        namespace: &Terminating,
        item: &Item,
        outcome: &Outcome,
        took: Duration,
    ) {
        let effect = self.deletion(self.number(contained), namespace, item, "by a request of its own");
        self.observer.finished(&effect, outcome, 1, took);
    }

    /// A whole collection was deleted, and these objects were in it. Those that were already terminating are
    /// not reported again.
    pub(crate) async fn deleted_together(
        &self,
        contained: &Contained,
        namespace: &Terminating,
        items: &[Item],
        took: Duration,
    ) {
        let resource = self.number(contained);
        // One request, whatever it took along.
        let mut requests = 1;
        for (index, item) in items.iter().enumerate() {
            if index % REPORTED_AT_ONCE == REPORTED_AT_ONCE - 1 {
                tokio::time::sleep(REPORT_PAUSE).await;
            }
            if !item.deleting {
                let effect = self.deletion(
                    resource,
                    namespace,
                    item,
                    "one request deleted all objects of its kind in the namespace",
                );
                self.observer.finished(&effect, &Outcome::Applied(None), requests, took);
                requests = 0;
            }
        }
    }

    /// The namespace itself was given up to these finalizers.
    pub(crate) fn finalized(&self, namespace: &Terminating, left: &[String], took: Duration) {
        let request = Request::Guarded {
            key: namespace_key(&namespace.name),
            uid: Uid::new(&namespace.uid),
            resource_version: namespace.version,
            change: Change::Finalizers(left.iter().map(|finalizer| finalizer.as_str().into()).collect()),
        };
        let facts =
            vec![format!("it is empty; terminating since {}", namespace.since), "spec.finalizers".into()];
        let effect = self.effect(request, namespace.version, facts);
        self.observer.finished(&effect, &Outcome::Applied(None), 1, took);
    }
}
