//! Effects as requests to the server, and answers as outcomes: what the adapter to a real API server does (spec
//! `ownership-gc.md`, 4.5 to 4.7, 8 and 9), without a network.

use gc_registry::api::{DeleteOptions, PatchType};
use gc_registry::error::ApiError;
use gc_retention::engine::Observation;
use gc_retention::objects;
use gc_types::{
    Change, Event, FinalizerName, ObjectKey, Outcome, OwnerReference, PropagationPolicy, Request,
    ResourceVersion, Uid,
};
use serde_json::{Value, json};

use crate::defects::{Defect, Saboteur};
use crate::kinds::Kind;
use crate::metadata::{Metadata, observed};
use crate::retention::read_facts;
use crate::server::Server;

/// So often is the removal of a finalizer tried (spec section 8).
const FINALIZER_TRIES: usize = 4;
/// How far behind the cache of the defect `stale-reads` is.
const STALE_BY: u64 = 12;

/// An outcome, and what a barrier found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Performed {
    /// Told first.
    pub found: Vec<Event>,
    /// The same for retention.
    pub observations: Vec<Observation>,
    /// Told then.
    pub outcome: Outcome,
}

impl From<Outcome> for Performed {
    fn from(outcome: Outcome) -> Self {
        Self { found: Vec::new(), observations: Vec::new(), outcome }
    }
}

/// What an error of the server means to a collector.
fn outcome_of(error: &ApiError) -> Outcome {
    match error.code {
        404 if error.reason == "NotFound" => Outcome::Absent,
        404 => Outcome::NotServed,
        409 => Outcome::Conflict,
        429 | 500.. => {
            let seconds = error.details.as_ref().and_then(|details| details.retry_after_seconds);
            Outcome::Failed {
                message: error.message.clone(),
                retry_after_milliseconds: seconds.map(|seconds| u64::from(seconds) * 1000),
            }
        }
        code => Outcome::Refused { code, message: error.message.clone() },
    }
}

/// One collector's requests about objects of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Performer<'a> {
    /// The server.
    pub server: &'a Server,
    /// The kind.
    pub kind: &'a Kind,
    /// Who may spoil it.
    pub saboteur: &'a Saboteur,
}

impl Performer<'_> {
    /// Performs a request. `delivered` is how far the watch of the kind has come, unless it is being listed.
    #[must_use]
    pub fn perform(&self, request: &Request, delivered: Option<u64>) -> Performed {
        match request {
            Request::Delete { key, uid, resource_version, policy } => {
                self.delete(key, uid, *resource_version, *policy).into()
            }
            Request::SetOwners { key, uid, resource_version, remaining } => {
                self.set_owners(key, uid, *resource_version, remaining).into()
            }
            Request::RemoveFinalizer { key, uid, finalizer } => {
                for _ in 1..FINALIZER_TRIES {
                    match self.remove_finalizer(key, uid, *finalizer) {
                        Outcome::Conflict => {}
                        other => return other.into(),
                    }
                }
                self.remove_finalizer(key, uid, *finalizer).into()
            }
            Request::Read { key } => self.read(key).into(),
            Request::Barrier { resource, namespace, at_least } => {
                let reached = *at_least != ResourceVersion::UNKNOWN
                    && delivered.is_some_and(|delivered| delivered >= at_least.0);
                if reached || self.saboteur.is(Defect::BarrierNotMade) {
                    return Outcome::Applied(None).into();
                }
                match self.server.list(self.kind, namespace.as_deref().unwrap_or(""), None) {
                    None => Outcome::NotServed.into(),
                    Some(Err(error)) => outcome_of(&error).into(),
                    Some(Ok(list)) => {
                        let items = list.items.iter().filter_map(|item| observed(item, *resource));
                        let found = items.map(Event::Found).collect();
                        Performed { found, ..Outcome::Applied(None).into() }
                    }
                }
            }
            Request::Guarded { key, uid, resource_version, change } => {
                self.change(key, uid, *resource_version, change).into()
            }
            // What leads outside is no request to the server.
            Request::Outside { .. } => Outcome::NotServed.into(),
            Request::Note(_) => Outcome::Applied(None).into(),
        }
    }

    /// The live list that a retention collector asks for.
    #[must_use]
    pub fn list_live(&self, facts: objects::Kind, namespace: Option<&str>) -> Performed {
        match self.server.list(self.kind, namespace.unwrap_or(""), None) {
            None => Outcome::NotServed.into(),
            Some(Err(error)) => outcome_of(&error).into(),
            Some(Ok(list)) => {
                let items = list.items.iter().filter_map(|item| read_facts(facts, item));
                let observations = items.map(Observation::Found).collect();
                Performed { observations, ..Outcome::Applied(None).into() }
            }
        }
    }

    fn change(&self, key: &ObjectKey, uid: &Uid, version: ResourceVersion, change: &Change) -> Outcome {
        let guards = json!({"uid": uid.to_string(), "resourceVersion": version.to_string()});
        match change {
            Change::ForceDelete => {
                let guarded = !self.saboteur.is(Defect::PodUnguarded);
                let options = DeleteOptions {
                    precondition_uid: guarded.then(|| uid.to_string()),
                    precondition_resource_version: guarded.then(|| version.to_string()),
                    grace_period_seconds: Some(0),
                    ..DeleteOptions::default()
                };
                match self.server.delete(self.kind, &key.namespace, &key.name, options) {
                    None => Outcome::NotServed,
                    Some(Ok(_)) => Outcome::Applied(None),
                    Some(Err(error)) => outcome_of(&error),
                }
            }
            Change::Finalizers(finalizers) => {
                let left = match finalizers.as_slice() {
                    [] => Value::Null,
                    some => some.iter().map(|finalizer| &**finalizer).collect(),
                };
                let mut metadata = guards;
                metadata["finalizers"] = left;
                self.patch(key, uid, ("", PatchType::Merge), json!({"metadata": metadata}))
            }
            Change::Status(status) | Change::MergeStatus(status) => {
                let status: Value = serde_json::from_str(status).unwrap_or_default();
                let patch = json!({"metadata": guards, "status": status});
                let kind = match change {
                    Change::MergeStatus(_) => PatchType::Merge,
                    _ => PatchType::StrategicMerge,
                };
                self.patch(key, uid, ("status", kind), patch)
            }
            Change::Merge(patch) => {
                let mut patch: Value = serde_json::from_str(patch).unwrap_or_default();
                patch["metadata"] = guards;
                self.patch(key, uid, ("", PatchType::Merge), patch)
            }
        }
    }

    fn delete(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        version: Option<ResourceVersion>,
        policy: PropagationPolicy,
    ) -> Outcome {
        let policy = match policy {
            PropagationPolicy::Background => "Background",
            PropagationPolicy::Foreground => "Foreground",
            PropagationPolicy::Orphan => "Orphan",
        };
        let mut options = DeleteOptions {
            precondition_uid: Some(uid.to_string()),
            precondition_resource_version: version.map(|version| version.to_string()),
            propagation_policy: Some(policy.to_owned()),
            ..DeleteOptions::default()
        };
        if self.saboteur.is(Defect::NoGuardAtAll) {
            options.precondition_uid = None;
        }
        match self.server.delete(self.kind, &key.namespace, &key.name, options) {
            None => Outcome::NotServed,
            Some(Ok(_)) => Outcome::Applied(None),
            Some(Err(error)) => outcome_of(&error),
        }
    }

    fn read(&self, key: &ObjectKey) -> Outcome {
        let mut namespace = &*key.namespace;
        if self.saboteur.is(Defect::OneNamespace) && !namespace.is_empty() {
            namespace = "n";
        }
        if self.saboteur.is(Defect::StaleReads) {
            let at = self.server.revision().saturating_sub(STALE_BY);
            let Some(Ok(list)) = self.server.list(self.kind, namespace, Some(at)) else {
                return Outcome::NotServed;
            };
            let items = list.items.iter().filter_map(|item| observed(item, key.resource));
            let mut found = items.filter(|item| item.key.name == key.name);
            return found.next().map_or(Outcome::Absent, Outcome::Found);
        }
        match self.server.get(self.kind, namespace, &key.name) {
            None => Outcome::NotServed,
            Some(Ok(object)) => observed(&object, key.resource).map_or(Outcome::NotServed, Outcome::Found),
            Some(Err(error)) => outcome_of(&error),
        }
    }

    fn patch(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        (subresource, patch_type): (&str, PatchType),
        patch: Value,
    ) -> Outcome {
        let place = (&*key.namespace, &*key.name, subresource);
        match self.server.patch(self.kind, place, patch_type, patch) {
            None => Outcome::NotServed,
            Some(Ok(object)) => Outcome::Applied(observed(&object, key.resource)),
            Some(Err(error)) => match outcome_of(&error) {
                // A patch that was refused because the object has another UID now found nothing to patch.
                Outcome::Refused { code: 422, message } => match self.read(key) {
                    Outcome::Found(found) if found.uid == *uid => Outcome::Refused { code: 422, message },
                    Outcome::Found(_) | Outcome::Absent => Outcome::Absent,
                    _ => Outcome::Refused { code: 422, message },
                },
                other => other,
            },
        }
    }

    fn set_owners(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        version: ResourceVersion,
        remaining: &[OwnerReference],
    ) -> Outcome {
        let references = match remaining {
            [] => Value::Null,
            some => some.iter().map(OwnerReference::to_json).collect(),
        };
        let patch = if self.saboteur.is(Defect::OwnersUnguarded) {
            json!({"metadata": {"ownerReferences": references}})
        } else {
            json!({"metadata": {"uid": uid.to_string(), "resourceVersion": version.to_string(),
                "ownerReferences": references}})
        };
        self.patch(key, uid, ("", PatchType::Merge), patch)
    }

    fn remove_finalizer(&self, key: &ObjectKey, uid: &Uid, finalizer: FinalizerName) -> Outcome {
        let object = match self.server.get(self.kind, &key.namespace, &key.name) {
            None => return Outcome::NotServed,
            Some(Err(error)) => return outcome_of(&error),
            Some(Ok(object)) => object,
        };
        let Some(metadata) = Metadata::of(&object) else { return Outcome::NotServed };
        if metadata.uid != uid.to_string() && !self.saboteur.is(Defect::FinalizerByName) {
            return Outcome::Absent;
        }
        let finalizer = finalizer.to_string();
        if !metadata.finalizers.contains(&&*finalizer) {
            return Outcome::Applied(Some(metadata.observed(key.resource)));
        }
        let left: Vec<&str> =
            metadata.finalizers.iter().copied().filter(|carried| *carried != finalizer).collect();
        let is_last = left.is_empty();
        let left = if is_last { Value::Null } else { json!(left) };
        let patch = json!({"metadata": {"uid": metadata.uid,
            "resourceVersion": metadata.resource_version.to_string(), "finalizers": left}});
        match self.patch(key, uid, ("", PatchType::Merge), patch) {
            // The last finalizer takes the object along.
            Outcome::Applied(_) if is_last && metadata.deletion_timestamp.is_some() => Outcome::Applied(None),
            other => other,
        }
    }
}
