//! Carries out on the server the calls that requests consist of, as `gc-kube` does over HTTP: which they are, and what the
//! answers mean, is decided by [`gc_control::requests`]. Lists of barriers are made here.

use std::sync::Arc;
use std::time::Duration;

use gc_control::requests::{Answer, Answered, Call, Exchange, Status, Step, Verb};
use gc_registry::api::{DeleteOptions, Object, PatchType};
use gc_registry::error::ApiError;
use gc_retention::engine::Observation;
use gc_retention::objects;
use gc_types::{Event, ObjectKey, Outcome, Request, ResourceId, ResourceVersion, Uid};
use serde_json::Value;

use crate::defects::{Defect, Saboteur};
use crate::kinds::Kind;
use crate::metadata::{Metadata, observed};
use crate::retention::read_facts;
use crate::server::Server;

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

/// What the server answers to a call about an object, as a client sees it.
struct Said {
    resource: ResourceId,
    /// Nothing where the path is not served; no object where a Status says that it is done.
    result: Option<Result<Option<Arc<Object>>, ApiError>>,
}

impl Answer for Said {
    fn code(&self) -> u16 {
        match &self.result {
            None => 404,
            Some(Ok(_)) => 200,
            Some(Err(error)) => error.code,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        None
    }

    fn is_object(&self) -> bool {
        matches!(self.result, Some(Ok(Some(_))))
    }

    fn object(&self) -> Result<Answered, String> {
        let Some(Ok(Some(object))) = &self.result else { return Err("it is no object".to_owned()) };
        let metadata = Metadata::of(object).ok_or("it has no metadata")?;
        Ok(Answered {
            observed: metadata.observed(self.resource),
            resource_version: metadata.resource_version.to_string(),
            finalizers: metadata.finalizers.iter().map(ToString::to_string).collect(),
        })
    }

    fn status(&self) -> Option<Status> {
        match self.result.as_ref()? {
            Ok(Some(_)) => None,
            Ok(None) => Some(Status::default()),
            Err(error) => {
                let details = error.details.as_deref().cloned().unwrap_or_default();
                Some(Status {
                    reason: error.reason.to_owned(),
                    message: error.message.clone(),
                    name: details.name,
                    group: details.group,
                    kind: details.kind,
                    retry_after_seconds: details.retry_after_seconds.unwrap_or_default().into(),
                })
            }
        }
    }

    fn text(&self) -> String {
        "404 page not found".to_owned()
    }
}

/// What an error of the server means for a list.
fn outcome_of(error: &ApiError) -> Outcome {
    match error.code {
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
            // What leads outside is no request to the server.
            Request::Outside { .. } => Outcome::NotServed.into(),
            Request::Note(_) => Outcome::Applied(None).into(),
            _ => self.exchange(request).into(),
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

    /// Makes the calls of a request, one right after the other.
    fn exchange(&self, request: &Request) -> Outcome {
        let request = self.spoiled(request);
        let Some(key) = Exchange::subject(&request) else { return Outcome::NotServed };
        let resource = self.kind.info(key.resource);
        let (mut exchange, mut step) = Exchange::begin(&request, &resource);
        loop {
            step = match step {
                Step::Done(performed) => return performed.outcome,
                Step::Pause(_) => exchange.paused(),
                Step::Send(call) => {
                    let result = self.call(&request, key, call);
                    exchange.answered(&Said { resource: key.resource, result })
                }
            };
        }
    }

    /// What the defect makes of a request.
    fn spoiled(&self, request: &Request) -> Request {
        let mut request = request.clone();
        if let Request::RemoveFinalizer { key, uid, .. } = &mut request
            && self.saboteur.is(Defect::FinalizerByName)
            && let Some(Ok(object)) = self.server.get(self.kind, &key.namespace, &key.name)
            && let Some(metadata) = Metadata::of(&object)
        {
            *uid = Uid::new(metadata.uid);
        }
        request
    }

    fn call(
        &self,
        request: &Request,
        key: &ObjectKey,
        mut call: Call,
    ) -> Option<Result<Option<Arc<Object>>, ApiError>> {
        let place = (&*key.namespace, &*key.name, call.subresource);
        let patch_type = match call.verb {
            Verb::Get if matches!(request, Request::Read { .. }) => return self.read(key),
            Verb::Get => {
                return Some(self.server.get(self.kind, &key.namespace, &key.name)?.map(Some));
            }
            Verb::Delete => {
                let options = self.delete_options(request, &call.body);
                let answer = self.server.delete(self.kind, &key.namespace, &key.name, options)?;
                return Some(answer.map(|_| None));
            }
            Verb::MergePatch => PatchType::Merge,
            Verb::StrategicPatch => PatchType::StrategicMerge,
        };
        if self.saboteur.is(Defect::OwnersUnguarded)
            && matches!(request, Request::SetOwners { .. })
            && let Some(metadata) = call.body["metadata"].as_object_mut()
        {
            metadata.remove("uid");
            metadata.remove("resourceVersion");
        }
        Some(self.server.patch(self.kind, place, patch_type, call.body)?.map(Some))
    }

    fn delete_options(&self, request: &Request, body: &Value) -> DeleteOptions {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut options = DeleteOptions {
            precondition_uid: text(&body["preconditions"]["uid"]),
            precondition_resource_version: text(&body["preconditions"]["resourceVersion"]),
            propagation_policy: text(&body["propagationPolicy"]),
            grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
            ..DeleteOptions::default()
        };
        match request {
            Request::Delete { .. } if self.saboteur.is(Defect::NoGuardAtAll) => {
                options.precondition_uid = None;
            }
            Request::Guarded { .. } if self.saboteur.is(Defect::PodUnguarded) => {
                (options.precondition_uid, options.precondition_resource_version) = (None, None);
            }
            _ => {}
        }
        options
    }

    fn read(&self, key: &ObjectKey) -> Option<Result<Option<Arc<Object>>, ApiError>> {
        let mut namespace = &*key.namespace;
        if self.saboteur.is(Defect::OneNamespace) && !namespace.is_empty() {
            namespace = "n";
        }
        if self.saboteur.is(Defect::StaleReads) {
            let at = self.server.revision().saturating_sub(STALE_BY);
            let list = self.server.list(self.kind, namespace, Some(at))?;
            let found = list.map(|list| {
                let named =
                    |item: &&Arc<Object>| Metadata::of(item).is_some_and(|one| *one.name == *key.name);
                list.items.iter().find(named).cloned()
            });
            return match found {
                Ok(None) => Some(Err(ApiError::not_found(self.kind.group, self.kind.resource, &key.name))),
                found => Some(found),
            };
        }
        Some(self.server.get(self.kind, namespace, &key.name)?.map(Some))
    }
}
