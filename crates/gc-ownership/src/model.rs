//! A model of an API server for the requests of this engine: preconditions, finalizers, versions.
//!
//! Plans run the engine against it, and tests and simulators drive the engine with it. It stores metadata only and
//! keeps no history; tests that need delays, losses or faults put them between its events and the engine.

use std::collections::BTreeMap;

use gc_types::{
    DeletionState, Event, FinalizerName, ObjectKey, ObservedObject, Outcome, OwnerReference,
    PropagationPolicy, Request, ResourceId, ResourceVersion, Uid,
};

/// Objects, and the version of the newest change.
#[derive(Clone, Debug, Default)]
pub struct Model {
    objects: BTreeMap<ObjectKey, ObservedObject>,
    version: u64,
}

/// The response to a request, and the watch events that it caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// To be reported to the engine as `Event::Done`.
    pub outcome: Outcome,
    /// To be reported unchanged, in this order.
    pub events: Vec<Event>,
}

impl Answer {
    fn plain(outcome: Outcome) -> Self {
        Self { outcome, events: Vec::new() }
    }
}

impl Model {
    /// Creates a model without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the version of the newest change.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        ResourceVersion(self.version)
    }

    /// Returns every object, by key.
    pub fn objects(&self) -> impl Iterator<Item = &ObservedObject> {
        self.objects.values()
    }

    /// Returns the object at a key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&ObservedObject> {
        self.objects.get(key)
    }

    /// Returns the object with a UID.
    #[must_use]
    pub fn by_uid(&self, uid: &Uid) -> Option<&ObservedObject> {
        self.objects.values().find(|object| object.uid == *uid)
    }

    /// Stores an object unchanged, with its own version, to restore snapshots.
    pub fn restore(&mut self, object: ObservedObject) {
        self.version = self.version.max(object.resource_version.0);
        self.objects.insert(object.key.clone(), object);
    }

    /// Stores an object (new or changed) under the next version.
    pub fn put(&mut self, mut object: ObservedObject) -> Event {
        self.version += 1;
        object.resource_version = ResourceVersion(self.version);
        self.objects.insert(object.key.clone(), object.clone());
        Event::Observed(object)
    }

    /// Removes an object regardless of its finalizers.
    pub fn force_remove(&mut self, key: &ObjectKey) -> Option<Event> {
        let object = self.objects.remove(key)?;
        self.version += 1;
        Some(Event::Removed {
            key: object.key,
            uid: object.uid,
            resource_version: ResourceVersion(self.version),
        })
    }

    /// Changes the references of an object, as a client may at any time.
    pub fn set_owners(&mut self, key: &ObjectKey, owners: Vec<OwnerReference>) -> Option<Event> {
        let mut object = self.objects.get(key)?.clone();
        object.owners = owners.into();
        Some(self.put(object))
    }

    /// Removes every finalizer that is not the collector's. The object is removed if it is terminating and has none left.
    pub fn release(&mut self, key: &ObjectKey) -> Option<Event> {
        let mut object = self.objects.get(key)?.clone();
        object.deletion.foreign_finalizers = false;
        Some(self.finish(object))
    }

    fn finish(&mut self, object: ObservedObject) -> Event {
        let deletion = object.deletion;
        let held = deletion.foreground || deletion.orphan || deletion.foreign_finalizers;
        if deletion.deleting && !held {
            self.objects.remove(&object.key);
            self.version += 1;
            let resource_version = ResourceVersion(self.version);
            return Event::Removed { key: object.key, uid: object.uid, resource_version };
        }
        self.put(object)
    }

    /// Executes a DELETE by any client. `None` if there is no such object or nothing changes.
    pub fn delete(&mut self, key: &ObjectKey, policy: Option<PropagationPolicy>) -> Option<Event> {
        let mut object = self.objects.get(key)?.clone();
        let before = object.deletion;
        let state = &mut object.deletion;
        state.deleting = true;
        match policy {
            Some(PropagationPolicy::Background) => (state.foreground, state.orphan) = (false, false),
            Some(PropagationPolicy::Foreground) => (state.foreground, state.orphan) = (true, false),
            Some(PropagationPolicy::Orphan) => (state.foreground, state.orphan) = (false, true),
            None => {}
        }
        (object.deletion != before || !(before.foreground || before.orphan || before.foreign_finalizers))
            .then(|| self.finish(object))
    }

    /// Returns the server's reaction to a request.
    pub fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Delete { key, uid, resource_version, policy } => {
                if let Err(outcome) = self.guard(key, uid, *resource_version) {
                    return Answer::plain(outcome);
                }
                let event = self.delete(key, Some(*policy));
                let left = self.objects.get(key).cloned();
                Answer { outcome: Outcome::Applied(left), events: event.into_iter().collect() }
            }
            Request::SetOwners { key, uid, resource_version, remaining } => {
                let version = (*resource_version != ResourceVersion::UNKNOWN).then_some(*resource_version);
                if let Err(outcome) = self.guard(key, uid, version) {
                    return Answer::plain(outcome);
                }
                let event = self.set_owners(key, remaining.clone());
                let now = self.objects.get(key).cloned();
                Answer { outcome: Outcome::Applied(now), events: event.into_iter().collect() }
            }
            Request::RemoveFinalizer { key, uid, finalizer } => {
                if let Err(outcome) = self.guard(key, uid, None) {
                    return Answer::plain(outcome);
                }
                let Some(mut object) = self.objects.get(key).cloned() else {
                    return Answer::plain(Outcome::Absent);
                };
                let state: &mut DeletionState = &mut object.deletion;
                let carried = match finalizer {
                    FinalizerName::Orphan => std::mem::take(&mut state.orphan),
                    FinalizerName::ForegroundDeletion => std::mem::take(&mut state.foreground),
                };
                if !carried {
                    return Answer::plain(Outcome::Applied(Some(object)));
                }
                let event = self.finish(object);
                let left = self.objects.get(key).cloned();
                Answer { outcome: Outcome::Applied(left), events: vec![event] }
            }
            Request::Read { key } => {
                Answer::plain(self.objects.get(key).cloned().map_or(Outcome::Absent, Outcome::Found))
            }
            Request::Barrier { resource, namespace, .. } => Answer {
                outcome: Outcome::Applied(None),
                events: self.list(*resource, namespace.as_deref()).map(Event::Found).collect(),
            },
            Request::RecordEvent(_) => Answer::plain(Outcome::Applied(None)),
            // Only retention modules send these; the model knows owners only.
            Request::Guarded { .. } | Request::Outside { .. } => Answer::plain(Outcome::NotServed),
        }
    }

    /// Returns the objects of a resource, in one namespace or in all.
    pub fn list<'a>(
        &'a self,
        resource: ResourceId,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = ObservedObject> + 'a {
        self.objects
            .values()
            .filter(move |object| object.key.resource == resource)
            .filter(move |object| namespace.is_none_or(|namespace| *object.key.namespace == *namespace))
            .cloned()
    }

    #[allow(clippy::result_large_err, reason = "it is the answer, made once per request")]
    fn guard(&self, key: &ObjectKey, uid: &Uid, version: Option<ResourceVersion>) -> Result<(), Outcome> {
        match self.objects.get(key) {
            Some(object) if object.uid != *uid => Err(Outcome::Absent),
            Some(object) if version.is_some_and(|version| version != object.resource_version) => {
                Err(Outcome::Conflict)
            }
            Some(_) => Ok(()),
            None => Err(Outcome::Absent),
        }
    }
}
