//! Reports the work of the namespace controller like that of other collectors, as one effect per object with its reason. Objects
//! that a server deletes with a CustomResourceDefinition are reported in the same way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_collectors::namespaces::emptying::{ContainedResource, Item, View};
use gc_types::{
    Change, DeletionState, Effect, EffectId, Evidence, Gvr, ObjectKey, ObservedObject, Outcome,
    PropagationPolicy, Reason, Request, ResourceId, ResourceInfo, ResourceVersion, Scope, Uid, Verdict,
};

use crate::observer::Observer;
use crate::resources::{ResourceTable, Route};

/// Maximum number of objects of one answer that are reported at once ...
const REPORTED_AT_ONCE: usize = 1_000;
/// ... followed by a pause for the journal to write them, because its queue is bounded, too.
const REPORT_PAUSE: Duration = Duration::from_millis(5);
/// Number of the resource `namespaces`; those of their contents follow.
const NAMESPACES: ResourceId = ResourceId(0);

/// Returns the outcome of a deletion that the server has accepted, depending on whether the object remains for now.
fn accepted(effect: &Effect, remains: bool) -> Outcome {
    let Request::Delete { key, uid, .. } = &effect.request else { return Outcome::Applied(None) };
    Outcome::Applied(remains.then(|| ObservedObject {
        key: key.clone(),
        uid: uid.clone(),
        resource_version: ResourceVersion::UNKNOWN,
        deletion: DeletionState { deleting: true, ..DeletionState::default() },
        owners: [].into_iter().collect(),
        recreator: None,
    }))
}

/// Reports whether an object of a deleted collection remains for now. Pods are given time to end.
fn remains(contained: &ContainedResource, item: &Item) -> bool {
    let is_pod = contained.gvr.group.is_empty() && *contained.gvr.resource == *"pods";
    is_pod || !item.finalizers.is_empty()
}

/// A namespace that is being emptied.
#[derive(Clone, Debug)]
pub(crate) struct TerminatingNamespace {
    pub(crate) name: Arc<str>,
    uid: Arc<str>,
    /// `metadata.deletionTimestamp`.
    since: Arc<str>,
    version: ResourceVersion,
}

impl TerminatingNamespace {
    /// Describes the namespace of that name, as last read.
    pub(crate) fn new(name: &Arc<str>, view: &View) -> Self {
        Self {
            name: Arc::clone(name),
            uid: view.uid.as_str().into(),
            since: view.deleted_at.as_deref().unwrap_or_default().into(),
            version: ResourceVersion::parse(&view.resource_version),
        }
    }
}

/// An object that a server deletes with the definition of its kind.
#[derive(Clone, Debug)]
pub struct DeletedWithDefinition {
    /// Resource, in the version in which the object was deleted.
    pub gvr: Gvr,
    /// Kind.
    pub kind: Arc<str>,
    /// Namespace; empty at cluster scope.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Uid,
    /// Version that was deleted.
    pub resource_version: ResourceVersion,
    /// Evidence for the deletion.
    pub evidence: String,
}

/// Returns the key of a namespace.
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
    /// Creates a trace to the observer that `observer` builds for the table in which effects name resources.
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

    /// Returns the observer.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer)
    }

    /// Returns the resources by number.
    #[must_use]
    pub fn table(&self) -> ResourceTable {
        self.table.clone()
    }

    /// Returns the number of a resource, which stays the same.
    fn number(&self, gvr: &Gvr, kind: &Arc<str>, scope: Scope) -> ResourceId {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = ResourceId(u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX));
        let name = (Arc::clone(&gvr.group), Arc::clone(&gvr.resource));
        let number = *numbers.entry(name).or_insert(next);
        if self.table.get(number).is_none() {
            self.table.insert(Arc::new(Route::new(ResourceInfo {
                id: number,
                gvr: gvr.clone(),
                kind: Arc::clone(kind),
                scope,
                served_api_versions: vec![gvr.api_version().into()],
                watched: false,
                comparable_versions: true,
            })));
        }
        number
    }

    /// Returns the number of a namespaced resource.
    fn of(&self, contained: &ContainedResource) -> ResourceId {
        self.number(&contained.gvr, &contained.kind, Scope::Namespaced)
    }

    fn effect(&self, request: Request, observed: ResourceVersion, facts: Vec<String>) -> Effect {
        let mut evidence = vec![Evidence::ObservedAt { resource_version: observed }];
        evidence.extend(facts.into_iter().map(|fact| Evidence::Fact(fact.into())));
        self.effect_by(gc_types::codes::NAMESPACE_TERMINATING, request, evidence)
    }

    fn effect_by(&self, code: &'static str, request: Request, evidence: Vec<Evidence>) -> Effect {
        let id = EffectId(self.next_effect.fetch_add(1, Ordering::Relaxed));
        let verdict = Verdict::Retention(code);
        Effect { id, request, reason: Reason { verdict, owners: Vec::new(), evidence } }
    }

    fn deletion(
        &self,
        resource: ResourceId,
        namespace: &TerminatingNamespace,
        item: &Item,
        how: &str,
    ) -> Effect {
        let TerminatingNamespace { name, uid, since, .. } = namespace;
        let key = ObjectKey { resource, namespace: Arc::clone(name), name: item.name.as_str().into() };
        let request = Request::Delete {
            key,
            uid: Uid::new(item.uid.as_deref().unwrap_or_default()),
            // The verdict concerns the namespace: no version of the object would change it.
            resource_version: None,
            policy: PropagationPolicy::Background,
        };
        let why = format!("namespace {name} ({uid}) has been terminating since {since}");
        self.effect(request, ResourceVersion::parse(&item.resource_version), vec![why, how.to_owned()])
    }

    /// Reports that an object was deleted and may remain for now, or that its deletion failed.
    pub(crate) fn deleted(
        &self,
        contained: &ContainedResource,
        namespace: &TerminatingNamespace,
        (item, remains): (&Item, bool),
        outcome: &Outcome,
        took: Duration,
    ) {
        let effect = self.deletion(self.of(contained), namespace, item, "by a request of its own");
        let accepted = matches!(outcome, Outcome::Applied(_)).then(|| accepted(&effect, remains));
        self.observer.finished(&effect, accepted.as_ref().unwrap_or(outcome), 1, took);
    }

    /// Reports the deletion of an entire collection with these objects. Objects that were already terminating are not reported
    /// again.
    pub(crate) async fn deleted_together(
        &self,
        contained: &ContainedResource,
        namespace: &TerminatingNamespace,
        items: &[Item],
        took: Duration,
    ) {
        let resource = self.of(contained);
        // A single request, however many objects it deleted.
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
                let outcome = accepted(&effect, remains(contained, item));
                self.observer.finished(&effect, &outcome, requests, took);
                requests = 0;
            }
        }
    }

    /// Reports that the request for an entire collection was refused, or had no answer: nothing is known about its objects.
    pub(crate) fn not_deleted_together(
        &self,
        contained: &ContainedResource,
        namespace: &TerminatingNamespace,
        outcome: &Outcome,
        took: Duration,
    ) {
        let how = "one request for all objects of its kind in the namespace";
        let effect = self.deletion(self.of(contained), namespace, &Item::default(), how);
        self.observer.finished(&effect, outcome, 1, took);
    }

    /// Reports that an object was deleted with the definition of its kind, or could not be; it had no request of its own.
    pub fn deleted_with_definition(&self, gone: &DeletedWithDefinition, outcome: &Outcome) {
        let DeletedWithDefinition { gvr, kind, namespace, name, uid, resource_version, evidence } = gone;
        let scope = if namespace.is_empty() { Scope::Cluster } else { Scope::Namespaced };
        let resource = self.number(gvr, kind, scope);
        let key = ObjectKey { resource, namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let policy = PropagationPolicy::Background;
        let request = Request::Delete { key, uid: uid.clone(), resource_version: None, policy };
        let evidence = vec![
            Evidence::ObservedAt { resource_version: *resource_version },
            Evidence::Fact(evidence.as_str().into()),
        ];
        let effect = self.effect_by(gc_types::codes::DEFINITION_TERMINATING, request, evidence);
        self.observer.finished(&effect, outcome, 0, Duration::ZERO);
    }

    /// Reports that the namespace itself was finalized, with these finalizers left.
    pub(crate) fn finalized(&self, namespace: &TerminatingNamespace, left: &[String], took: Duration) {
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
