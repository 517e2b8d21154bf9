//! Performs the calls of requests on the server, as `gc-kube` does over HTTP: [`gc_controller::requests`] and
//! [`gc_controller::barriers`] decide which calls are made, and what the responses mean. Faults affect single calls.

use std::sync::Arc;
use std::time::Duration;

use gc_collectors::engine::Observation;
use gc_collectors::objects;
use gc_controller::barriers::{ListEnd, ListScope, list_refused};
use gc_controller::concurrency::Signal;
use gc_controller::requests::{self, Answer, AnsweredObject, Call, Exchange, Status, Step, Verb};
use gc_registry::api::{DeleteOptions, Object, PatchType};
use gc_registry::error::ApiError;
use gc_types::{Event, ObjectKey, Outcome, Request, ResourceId, Uid};
use serde_json::Value;

use crate::defects::Defect;
use crate::performed::PerformedRequest;
use crate::performed::failed;

use crate::kinds::Kind;
use crate::liars::{LiarAnswer, Lie, barrier_instead, read_instead};
use crate::metadata::{Metadata, observed};
use crate::retention::read_facts;
use crate::saboteur::Saboteur;
use crate::server::Server;
use crate::story::RequestFault;

/// Lag of the cache of the defect `stale-reads`.
const STALE_BY: u64 = 12;

/// Reason for the failure of a request without a response.
pub const NO_ANSWER: &str = "timeout";
/// Response of the server for a path that it does not serve.
const NOT_FOUND: &str = "404 page not found";
/// Time for which a busy server asks to be left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Fault of one of a request's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Fault that happens.
    pub fault: RequestFault,
    /// Number of the affected call of a request about one object, from 0.
    pub call: u32,
}

/// Simulated response to a call about an object.
struct SimulatedResponse {
    resource: ResourceId,
    /// `None` if the path is not served; no object if a Status reports success.
    result: Option<Result<Option<Arc<Object>>, ApiError>>,
    /// True if a proxy has replaced the body of a success.
    is_garbled: bool,
    /// Object that a defect takes the response to be about.
    believed: Option<ObjectKey>,
}

impl Answer for SimulatedResponse {
    fn code(&self) -> u16 {
        match &self.result {
            None => 404,
            Some(Ok(_)) => 200,
            Some(Err(error)) => error.code,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        (self.code() == 429).then_some(RETRY_AFTER)
    }

    fn is_object(&self) -> bool {
        matches!(self.result, Some(Ok(Some(_)))) && !self.is_garbled
    }

    fn object(&self) -> Result<AnsweredObject, String> {
        let Some(Ok(Some(object))) = self.result.as_ref().filter(|_| !self.is_garbled) else {
            return Err("it is no object".to_owned());
        };
        let metadata = Metadata::of(object).ok_or("it has no metadata")?;
        let mut observed = metadata.observed(self.resource);
        if let Some(key) = &self.believed {
            observed.key = key.clone();
        }
        Ok(AnsweredObject {
            observed,
            resource_version: metadata.resource_version.to_string(),
            grace_seconds: metadata.deletion_grace_period_seconds,
            finalizers: metadata.finalizers.iter().map(ToString::to_string).collect(),
        })
    }

    fn status(&self) -> Option<Status> {
        match self.result.as_ref().filter(|_| !self.is_garbled)? {
            Ok(Some(_)) => None,
            Ok(None) => Some(Status::default()),
            Err(error) => {
                let details = error.details.as_deref().cloned().unwrap_or_default();
                Some(Status {
                    reason: error.reason.clone().into_owned(),
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
        NOT_FOUND.to_owned()
    }
}

/// Response that a fault gives in place of the server's.
enum Refusal {
    /// 404 without a Status: the path is not served.
    NotServed,
    Error(ApiError),
}

impl Refusal {
    fn of(fault: RequestFault) -> Option<Self> {
        let error = |code, reason, message: &str| {
            let message = message.to_owned();
            Some(Self::Error(ApiError::new(code, reason, message)))
        };
        match fault {
            RequestFault::MereConflict => error(409, "Conflict", "it has changed"),
            RequestFault::TooMany => error(429, "TooManyRequests", "too many requests"),
            RequestFault::Internal => error(500, "InternalError", "internal error"),
            RequestFault::Forbidden => error(403, "Forbidden", "forbidden"),
            RequestFault::PlainNotFound => Some(Self::NotServed),
            RequestFault::LostBefore
            | RequestFault::LostAfter
            | RequestFault::Conflict
            | RequestFault::Garbled => None,
        }
    }
}

/// Outcome of a list.
enum ListResult {
    Items(Vec<Arc<Object>>),
    Refused(u16, String),
    Unanswered,
}

/// Performs one collector's requests about objects of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Performer<'a> {
    /// Server that carries out the calls.
    pub server: &'a Server,
    /// Kind of the objects.
    pub kind: &'a Kind,
    /// Saboteur of the request.
    pub saboteur: &'a Saboteur,
    /// Fault on its way, if any.
    pub trouble: Option<Trouble>,
    /// Lie in response to its first GET or to the list of a barrier, with the seed of its choices.
    pub lie: Option<(Lie, u64)>,
}

impl Performer<'_> {
    /// Performs a request about one object.
    #[must_use]
    pub fn perform(&self, request: &Request) -> PerformedRequest {
        if matches!(request, Request::Read { .. }) && self.saboteur.is(Defect::AbsenceUnread) {
            return PerformedRequest::of(Outcome::Absent, Signal::Answered);
        }
        let request = self.spoiled(request);
        let Some(key) = Exchange::subject(&request) else {
            return PerformedRequest::of(Outcome::NotServed, Signal::Answered);
        };
        let resource = self.kind.info(key.resource);
        let (mut exchange, mut step) = Exchange::begin(&request, &resource);
        let (mut calls, mut is_lie) = (0, false);
        loop {
            step = match step {
                Step::Done(performed) => {
                    let requests::PerformedRequest { outcome, signal, round_trips } = performed;
                    return PerformedRequest { round_trips, is_lie, ..PerformedRequest::of(outcome, signal) };
                }
                // Pauses take no time here.
                Step::Pause(_) => exchange.paused(),
                Step::Send(call) => {
                    let fault =
                        self.trouble.filter(|trouble| trouble.call == calls).map(|trouble| trouble.fault);
                    let lie = self.lie.filter(|_| calls == 0 && call.verb == Verb::Get);
                    calls += 1;
                    if let Some(lied) = lie.and_then(|lie| self.lied(lie, key)) {
                        is_lie = true;
                        step = exchange.answered(&lied);
                        continue;
                    }
                    match self.answer(&request, key, call, fault) {
                        Some(said) => exchange.answered(&said),
                        None => exchange.unanswered(NO_ANSWER),
                    }
                }
            };
        }
    }

    /// Returns a liar's response to a live read, as the collector takes it; `None` if there is no such lie.
    fn lied(&self, lie: (Lie, u64), key: &ObjectKey) -> Option<SimulatedResponse> {
        let lied = read_instead(lie, self.kind, (&key.namespace, &key.name), self.server)?;
        let believes = self.saboteur.believes(lie.0);
        let believed = (believes && lie.0 == Lie::Crossed).then(|| key.clone());
        let result = match lied {
            LiarAnswer::Object(object) => Some(Ok(Some(object))),
            _ if believes => Some(Err(ApiError::not_found(self.kind.group, self.kind.resource, &key.name))),
            LiarAnswer::Error(error) => Some(Err(error)),
            LiarAnswer::Nothing => Some(Ok(None)),
            LiarAnswer::Page => None,
        };
        Some(SimulatedResponse { resource: key.resource, result, is_garbled: false, believed })
    }

    /// Returns the response to one call; `None` if it does not arrive.
    fn answer(
        &self,
        request: &Request,
        key: &ObjectKey,
        call: Call,
        fault: Option<RequestFault>,
    ) -> Option<SimulatedResponse> {
        if fault == Some(RequestFault::LostBefore) {
            return None;
        }
        let result = match fault.and_then(Refusal::of) {
            Some(Refusal::NotServed) => None,
            Some(Refusal::Error(error)) => Some(Err(error)),
            None => self.call(request, key, call),
        };
        if fault == Some(RequestFault::LostAfter) {
            return None;
        }
        let is_garbled = fault == Some(RequestFault::Garbled);
        Some(SimulatedResponse { resource: key.resource, result, is_garbled, believed: None })
    }

    /// Returns the list of a barrier.
    #[must_use]
    pub fn list(&self, place: &ListScope, from_cache: bool) -> PerformedRequest {
        let namespace = place.namespace.as_deref().unwrap_or("");
        let mut is_lie = false;
        let (end, signal, found) = match self.listed(namespace, from_cache) {
            ListResult::Items(mut items) => {
                if let Some((lie, _)) = self.lie {
                    let count = items.len();
                    barrier_instead(lie, &mut items);
                    is_lie = items.len() < count;
                }
                let items = items.iter().filter_map(|item| observed(item, place.resource));
                (ListEnd::Complete, Some(Signal::Answered), items.map(Event::Found).collect())
            }
            ListResult::Refused(code, message) => {
                let wait = (code == 429).then_some(RETRY_AFTER);
                let (end, signal) = list_refused(code, &message, wait, from_cache);
                (end, signal, Vec::new())
            }
            ListResult::Unanswered => {
                (ListEnd::Failed(NO_ANSWER.to_owned()), Some(Signal::Busy(None)), Vec::new())
            }
        };
        let outcome = match &end {
            ListEnd::Complete => Outcome::Applied(None),
            ListEnd::Failed(message) => failed(message),
            ListEnd::CacheBehind => failed("the cache is behind"),
            ListEnd::NotServed => Outcome::NotServed,
        };
        let performed = PerformedRequest::of(outcome, signal.unwrap_or(Signal::Answered));
        PerformedRequest { found, end: Some((end, signal)), is_lie, ..performed }
    }

    /// Returns the live list that a retention collector requests.
    #[must_use]
    pub fn list_live(&self, facts: objects::Kind, namespace: Option<&str>) -> PerformedRequest {
        match self.listed(namespace.unwrap_or(""), false) {
            ListResult::Items(items) => {
                let items = items.iter().filter_map(|item| read_facts(facts, item));
                let observations = items.map(Observation::Found).collect();
                let performed = PerformedRequest::of(Outcome::Applied(None), Signal::Answered);
                PerformedRequest { observations, ..performed }
            }
            ListResult::Refused(code, message) => {
                PerformedRequest::of(failed(&format!("{code}: {message}")), Signal::Answered)
            }
            ListResult::Unanswered => PerformedRequest::of(failed(NO_ANSWER), Signal::Answered),
        }
    }

    fn listed(&self, namespace: &str, from_cache: bool) -> ListResult {
        match self.trouble.map(|trouble| trouble.fault) {
            Some(RequestFault::LostBefore | RequestFault::LostAfter) => return ListResult::Unanswered,
            // The cache does not reach the requested revision.
            Some(RequestFault::Internal) if from_cache => {
                return ListResult::Refused(504, "Too large resource version".to_owned());
            }
            Some(fault) => match Refusal::of(fault) {
                Some(Refusal::Error(error)) => return ListResult::Refused(error.code, error.message),
                Some(Refusal::NotServed) => return ListResult::Refused(404, NOT_FOUND.to_owned()),
                None => {}
            },
            None => {}
        }
        match self.server.list(self.kind, namespace, None) {
            None => ListResult::Refused(404, NOT_FOUND.to_owned()),
            Some(Err(error)) => ListResult::Refused(error.code, error.message),
            Some(Ok(list)) => ListResult::Items(list.items),
        }
    }

    /// Applies the defect to a request.
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
        if self.saboteur.is(Defect::FinalizersAll)
            && matches!(request, Request::RemoveFinalizer { .. })
            && let Some(metadata) = call.body["metadata"].as_object_mut()
            && metadata.contains_key("finalizers")
        {
            metadata.insert("finalizers".to_owned(), Value::Array(Vec::new()));
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
