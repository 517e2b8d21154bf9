//! Effects as calls to an API server, and its responses as outcomes (spec `ownership-gc.md`, 4.5 to 4.7, 8 and 9).
//!
//! A request about one object is an [`Exchange`]: it returns the call to send, takes the response, and returns what follows, until
//! there is an outcome. It neither sends nor waits; `gc-kube` does that over HTTP, and `gc-sim` over the registry.

use std::time::Duration;

use gc_types::{
    Change, FinalizerName, ObjectKey, ObservedObject, Outcome, OwnerReference, PropagationPolicy, Request,
    ResourceInfo, ResourceVersion, Uid,
};
use serde_json::{Value, json};

use crate::concurrency::Signal;

/// Pauses before the second, third and fourth attempt to remove a finalizer (spec section 8), after a conflict and after a
/// temporary failure. The removal takes two requests, after a third that led to it, and would rarely succeed otherwise where many
/// requests fail.
pub const FINALIZER_PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// An outcome, and the evidence about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerformedRequest {
    /// Outcome for the engine.
    pub outcome: Outcome,
    /// Evidence for the concurrency limit.
    pub signal: Signal,
    /// Number of calls.
    pub round_trips: u32,
}

impl PerformedRequest {
    /// Creates a result that needed no call.
    #[must_use]
    pub fn without_a_call(outcome: Outcome) -> Self {
        Self { outcome, signal: Signal::Answered, round_trips: 0 }
    }

    /// Creates a result of unknown outcome, where the fault is only this process's.
    #[must_use]
    pub fn failed(message: &str) -> Self {
        Self::without_a_call(failed(message))
    }
}

/// Kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET
    Get,
    /// DELETE with `DeleteOptions`
    Delete,
    /// PATCH with a JSON merge patch
    MergePatch,
    /// PATCH with a strategic merge patch
    StrategicPatch,
}

/// One call about the object of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The verb.
    pub verb: Verb,
    /// Subresource; empty for the object itself.
    pub subresource: &'static str,
    /// Body; null for a GET.
    pub body: Value,
}

/// `Status` of a response, as far as it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `reason`
    pub reason: String,
    /// `message`
    pub message: String,
    /// `details.name`
    pub name: String,
    /// `details.group`
    pub group: String,
    /// `details.kind`
    pub kind: String,
    /// `details.retryAfterSeconds`
    pub retry_after_seconds: u64,
}

impl Status {
    /// reports whether it has reason NotFound, and names the requested object, or the namespace it would be in. A 404 of any
    /// other form comes from a path that is not served, from a proxy, or is the response to another request.
    #[must_use]
    pub fn proves_absence(&self, object: &RequestedObject<'_>) -> bool {
        let names_object =
            self.is_about(object.group, object.resource, object.kind) && self.name == object.name;
        let names_namespace = self.is_about("", "namespaces", "namespaces")
            && !object.namespace.is_empty()
            && self.name == object.namespace;
        names_object || names_namespace
    }

    /// Reports whether it has reason NotFound, and names this resource but no object of it, so the resource is not served.
    #[must_use]
    pub fn proves_unserved(&self, group: &str, resource: &str, kind: &str) -> bool {
        self.is_about(group, resource, kind) && self.name.is_empty()
    }

    /// Reports whether it names this resource. Servers name a resource by its plural or by its kind.
    fn is_about(&self, group: &str, resource: &str, kind: &str) -> bool {
        self.reason == "NotFound" && self.group == group && (self.kind == resource || self.kind == kind)
    }
}

/// An object, as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedObject<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name of its resource.
    pub resource: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// Namespace; empty at cluster scope.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

impl<'a> RequestedObject<'a> {
    fn of(resource: &'a ResourceInfo, key: &'a ObjectKey) -> Self {
        Self {
            group: &resource.gvr.group,
            resource: &resource.gvr.resource,
            kind: &resource.kind,
            namespace: &key.namespace,
            name: &key.name,
        }
    }
}

/// The object in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredObject {
    /// Observation for the engine.
    pub observed: ObservedObject,
    /// `metadata.resourceVersion` as the server wrote it.
    pub resource_version: String,
    /// `metadata.deletionGracePeriodSeconds`
    pub grace_seconds: Option<i64>,
    /// `metadata.finalizers`
    pub finalizers: Vec<String>,
}

impl AnsweredObject {
    /// Reports whether the response to a deletion shows that the object still exists, because of finalizers, a grace period, or the
    /// contents of a namespace. An object that was removed immediately is shown without a deletion time, or with a grace period of
    /// 0.
    fn remains(&self) -> bool {
        self.observed.deletion.deleting && (!self.finalizers.is_empty() || self.grace_seconds != Some(0))
    }
}

/// A response of the server, which is decoded as far as it matters.
pub trait Answer {
    /// Returns the HTTP status code.
    fn code(&self) -> u16;
    /// Returns the header `Retry-After`.
    fn retry_after(&self) -> Option<Duration>;
    /// Reports whether the body is an object with its UID.
    fn is_object(&self) -> bool;
    /// Returns the object in the body.
    ///
    /// # Errors
    ///
    /// Returns why it cannot be parsed.
    fn object(&self) -> Result<AnsweredObject, String>;
    /// Returns the `Status` in the body, if it is one.
    fn status(&self) -> Option<Status>;
    /// Returns the beginning of the body in human-readable form.
    fn text(&self) -> String;
}

/// Checks whether an action outside may be taken on behalf of an object that was just read, because other systems know no
/// preconditions. `None` if the object is as it was decided on; otherwise the outcome.
#[must_use]
pub fn refuses_outside(read: &Outcome, uid: &Uid, version: ResourceVersion) -> Option<Outcome> {
    match read {
        Outcome::Found(found) if found.uid != *uid => Some(Outcome::Absent),
        Outcome::Found(found) if version == ResourceVersion::UNKNOWN || found.resource_version != version => {
            Some(Outcome::Conflict)
        }
        Outcome::Found(_) => None,
        other => Some(other.clone()),
    }
}

/// Next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this, then call [`Exchange::answered`] or [`Exchange::unanswered`].
    Send(Call),
    /// Wait for this long, then call [`Exchange::paused`].
    Pause(Duration),
    /// The exchange is over.
    Done(PerformedRequest),
}

/// Last call, to which the response belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The GET of a read.
    Read,
    /// The DELETE.
    Delete,
    /// The PATCH, which may remove the last finalizer of a terminating object.
    Patch { is_last: bool },
    /// The GET before a finalizer is removed.
    Finalizers,
    /// The GET after a change whose response cannot be parsed.
    Unreadable,
    /// The GET after a patch that was refused as invalid, with this outcome.
    Refused(Outcome),
}

/// A request in progress through its calls.
#[derive(Clone, Debug)]
pub struct Exchange<'a> {
    request: &'a Request,
    resource: &'a ResourceInfo,
    stage: Stage,
    signal: Signal,
    round_trips: u32,
    tries: usize,
}

impl<'a> Exchange<'a> {
    /// Begins a request. Barriers, Events and calls outside are not requests about one object: they are handled elsewhere, and fail
    /// here.
    #[must_use]
    pub fn begin(request: &'a Request, resource: &'a ResourceInfo) -> (Self, Step) {
        let first = first_call(request);
        let mut exchange = Self {
            request,
            resource,
            stage: Stage::Read,
            signal: Signal::Answered,
            round_trips: 0,
            tries: 0,
        };
        let step = match first {
            Ok((stage, call)) => exchange.send(stage, call),
            Err(outcome) => Step::Done(PerformedRequest::without_a_call(outcome)),
        };
        (exchange, step)
    }

    /// Returns the object that a request is about, if an exchange can handle it.
    #[must_use]
    pub fn subject(request: &Request) -> Option<&ObjectKey> {
        match request {
            Request::Delete { key, .. }
            | Request::SetOwners { key, .. }
            | Request::RemoveFinalizer { key, .. }
            | Request::Guarded { key, .. }
            | Request::Read { key } => Some(key),
            Request::Barrier { .. } | Request::RecordEvent(_) | Request::Outside { .. } => None,
        }
    }

    fn key(&self) -> Option<&ObjectKey> {
        Self::subject(self.request)
    }

    fn send(&mut self, stage: Stage, call: Call) -> Step {
        self.stage = stage;
        self.round_trips += 1;
        Step::Send(call)
    }

    fn look(&mut self, stage: Stage) -> Step {
        self.send(stage, GET)
    }

    /// Handles a last call without a response: it is unknown whether the server executed it.
    pub fn unanswered(&mut self, error: &str) -> Step {
        match std::mem::replace(&mut self.stage, Stage::Read) {
            Stage::Unreadable => self.conclude(failed(UNREADABLE)),
            Stage::Refused(outcome) => self.conclude(outcome),
            _ => {
                self.signal = Signal::Busy(None);
                self.conclude(failed(error))
            }
        }
    }

    /// Takes the response to the last call.
    pub fn answered(&mut self, answer: &impl Answer) -> Step {
        let stage = std::mem::replace(&mut self.stage, Stage::Read);
        let is_success = (200..300).contains(&answer.code());
        let signal = if is_success { Signal::Answered } else { signal_of(answer) };
        let is_aside = matches!(stage, Stage::Unreadable | Stage::Refused(_));
        if !is_aside {
            self.signal = signal;
        }
        let is_change = matches!(stage, Stage::Delete | Stage::Patch { .. });
        if is_success && !self.shows_object(answer) && !(is_change && answer.status().is_some()) {
            // A proxy's page, a truncated response, or the response to another request says nothing about what the server did.
            return match stage {
                Stage::Delete | Stage::Patch { .. } => self.look(Stage::Unreadable),
                Stage::Refused(outcome) => self.conclude(outcome),
                Stage::Read | Stage::Finalizers | Stage::Unreadable => self.conclude(failed(UNREADABLE)),
            };
        }
        let refusal = (!is_success).then(|| self.refused(answer));
        match (stage, refusal) {
            // Only that the object is gone, if it is, needs no second attempt.
            (Stage::Unreadable, Some(Outcome::Absent)) => self.conclude(Outcome::Absent),
            (Stage::Unreadable, _) => self.conclude(failed(UNREADABLE)),
            (Stage::Refused(outcome), read) => {
                let outcome = self.or_recreated(outcome, answer, read);
                self.conclude(outcome)
            }
            // A patch that was refused because the object has another UID now found nothing to patch.
            (Stage::Patch { .. }, Some(refused @ Outcome::Refused { code: 422, .. })) => {
                self.look(Stage::Refused(refused))
            }
            (_, Some(refused)) => self.conclude(refused),
            (Stage::Read, None) => self.conclude(object(answer, Outcome::Found)),
            // The watch delivers the consequences; the response to a patch that removes the last finalizer still shows the object.
            (Stage::Patch { is_last: true }, None) => self.conclude(Outcome::Applied(None)),
            (Stage::Delete, None) => {
                let shown = self.shows_object(answer).then(|| answer.object().ok()).flatten();
                let shown = shown.filter(AnsweredObject::remains);
                self.conclude(Outcome::Applied(shown.map(|shown| shown.observed)))
            }
            (Stage::Patch { is_last: false }, None) => {
                let shown = self.shows_object(answer).then(|| answer.object().ok()).flatten();
                self.conclude(Outcome::Applied(shown.map(|shown| shown.observed)))
            }
            (Stage::Finalizers, None) => self.patch_finalizers(answer),
        }
    }

    /// Reports whether the response is the requested object, by namespace and name; its UID may be another one.
    fn shows_object(&self, answer: &impl Answer) -> bool {
        let is_subject = |shown: &AnsweredObject| {
            self.key().is_some_and(|key| {
                (&shown.observed.key.namespace, &shown.observed.key.name) == (&key.namespace, &key.name)
            })
        };
        answer.is_object() && answer.object().is_ok_and(|shown| is_subject(&shown))
    }

    fn patch_finalizers(&mut self, answer: &impl Answer) -> Step {
        let Request::RemoveFinalizer { uid, finalizer, .. } = self.request else {
            return self.conclude(failed(UNREADABLE));
        };
        let shown = match answer.object() {
            Ok(shown) => shown,
            Err(error) => return self.conclude(failed(&format!("a malformed answer: {error}"))),
        };
        if shown.observed.uid != *uid {
            return self.conclude(Outcome::Absent);
        }
        match finalizer_patch(&shown, *finalizer) {
            None => self.conclude(Outcome::Applied(Some(shown.observed))),
            Some(patch) => {
                let is_last = shown.observed.deletion.deleting && shown.finalizers.len() == 1;
                let call = Call { verb: Verb::MergePatch, subresource: "", body: patch };
                self.send(Stage::Patch { is_last }, call)
            }
        }
    }

    fn or_recreated(&self, outcome: Outcome, answer: &impl Answer, read: Option<Outcome>) -> Outcome {
        let (Request::SetOwners { uid, .. }
        | Request::RemoveFinalizer { uid, .. }
        | Request::Guarded { uid, .. }) = self.request
        else {
            return outcome;
        };
        match read.unwrap_or_else(|| object(answer, Outcome::Found)) {
            Outcome::Found(found) if found.uid == *uid => outcome,
            Outcome::Found(_) | Outcome::Absent => Outcome::Absent,
            _ => outcome,
        }
    }

    /// Interprets a response that is not a success.
    fn refused(&self, answer: &impl Answer) -> Outcome {
        let status = answer.status();
        match answer.code() {
            404 => {
                let proven = status.zip(self.key());
                let proven = proven.is_some_and(|(status, key)| {
                    status.proves_absence(&RequestedObject::of(self.resource, key))
                });
                if proven { Outcome::Absent } else { Outcome::NotServed }
            }
            409 => Outcome::Conflict,
            code => {
                let message = status.as_ref().map_or_else(|| answer.text(), |status| status.message.clone());
                // 408 and 429 mean that it may be retried.
                if (400..500).contains(&code) && code != 408 && code != 429 {
                    return Outcome::Refused { code, message };
                }
                let wait = wait_of(answer, status.as_ref());
                Outcome::Failed {
                    message: format!("the server answered {code}: {message}"),
                    retry_after_milliseconds: wait
                        .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
                }
            }
        }
    }

    /// Ends an attempt with this outcome; the removal of a finalizer is attempted again.
    fn conclude(&mut self, outcome: Outcome) -> Step {
        let is_momentary = self.signal == Signal::Answered
            && matches!(outcome, Outcome::Failed { retry_after_milliseconds: None, .. });
        let again = matches!(self.request, Request::RemoveFinalizer { .. })
            && (outcome == Outcome::Conflict || is_momentary);
        if let Some(pause) = FINALIZER_PAUSES.get(self.tries).filter(|_| again) {
            self.tries += 1;
            return Step::Pause(*pause);
        }
        Step::Done(PerformedRequest { outcome, signal: self.signal, round_trips: self.round_trips })
    }

    /// Continues after a pause.
    pub fn paused(&mut self) -> Step {
        self.signal = Signal::Answered;
        self.look(Stage::Finalizers)
    }
}

const GET: Call = Call { verb: Verb::Get, subresource: "", body: Value::Null };
const UNREADABLE: &str = "the answer is not that of an API server";

fn failed(message: &str) -> Outcome {
    Outcome::Failed { message: message.to_owned(), retry_after_milliseconds: None }
}

fn object(answer: &impl Answer, known: impl FnOnce(ObservedObject) -> Outcome) -> Outcome {
    match answer.object() {
        Ok(shown) => known(shown.observed),
        Err(error) => failed(&format!("a malformed answer: {error}")),
    }
}

fn wait_of(answer: &impl Answer, status: Option<&Status>) -> Option<Duration> {
    answer.retry_after().or_else(|| {
        let seconds = status?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    })
}

fn signal_of(answer: &impl Answer) -> Signal {
    Signal::of_answer(answer.code(), || wait_of(answer, answer.status().as_ref()))
}

/// Returns the patch that removes a finalizer; `None` if the object does not carry it.
fn finalizer_patch(shown: &AnsweredObject, finalizer: FinalizerName) -> Option<Value> {
    let finalizer = finalizer.to_string();
    if !shown.finalizers.contains(&finalizer) {
        return None;
    }
    let left: Vec<&str> =
        shown.finalizers.iter().map(String::as_str).filter(|present| *present != finalizer).collect();
    let left = if left.is_empty() { Value::Null } else { left.into() };
    Some(json!({"metadata": {
        "uid": shown.observed.uid.to_string(), "resourceVersion": shown.resource_version, "finalizers": left,
    }}))
}

/// Returns the first call of a request, or its outcome if there is none.
#[allow(clippy::result_large_err, reason = "it is the answer, made once per request")]
fn first_call(request: &Request) -> Result<(Stage, Call), Outcome> {
    let patch = |verb, subresource, body| (Stage::Patch { is_last: false }, Call { verb, subresource, body });
    match request {
        Request::Read { .. } => Ok((Stage::Read, GET)),
        Request::RemoveFinalizer { .. } => Ok((Stage::Finalizers, GET)),
        Request::Delete { uid, resource_version, policy, .. } => {
            let body = delete_options(uid, *resource_version, *policy);
            Ok((Stage::Delete, Call { verb: Verb::Delete, subresource: "", body }))
        }
        Request::SetOwners { uid, resource_version, remaining, .. } => {
            let references = match remaining.as_slice() {
                [] => Value::Null,
                some => some.iter().map(OwnerReference::to_json).collect(),
            };
            let mut metadata = guards(uid, *resource_version)?;
            metadata["ownerReferences"] = references;
            Ok(patch(Verb::MergePatch, "", json!({ "metadata": metadata })))
        }
        Request::Guarded { uid, resource_version, change, .. } => {
            let mut metadata = guards(uid, *resource_version)?;
            Ok(match change {
                Change::ForceDelete => {
                    let body = json!({
                        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                        "preconditions": metadata,
                    });
                    (Stage::Delete, Call { verb: Verb::Delete, subresource: "", body })
                }
                Change::Finalizers(finalizers) => {
                    metadata["finalizers"] = match finalizers.as_slice() {
                        [] => Value::Null,
                        some => some.iter().map(|finalizer| &**finalizer).collect(),
                    };
                    patch(Verb::MergePatch, "", json!({ "metadata": metadata }))
                }
                Change::Merge(body) => {
                    let Ok(Value::Object(mut body)) = serde_json::from_str::<Value>(body) else {
                        return Err(failed("the patch to be sent is not a JSON object"));
                    };
                    let own = body.entry("metadata").or_insert_with(|| json!({}));
                    own["uid"] = metadata["uid"].take();
                    own["resourceVersion"] = metadata["resourceVersion"].take();
                    patch(Verb::MergePatch, "", body.into())
                }
                Change::Status(status) | Change::MergeStatus(status) => {
                    let Ok(status) = serde_json::from_str::<Value>(status) else {
                        return Err(failed("the status to be written is not JSON"));
                    };
                    let verb = match change {
                        Change::MergeStatus(_) => Verb::MergePatch,
                        _ => Verb::StrategicPatch,
                    };
                    patch(verb, "status", json!({"metadata": metadata, "status": status}))
                }
            })
        }
        Request::Barrier { .. } | Request::RecordEvent(_) | Request::Outside { .. } => {
            Err(failed("not a request about one object"))
        }
    }
}

fn delete_options(uid: &Uid, version: Option<ResourceVersion>, policy: PropagationPolicy) -> Value {
    let mut preconditions = json!({ "uid": uid.to_string() });
    if let Some(version) = version.filter(|version| *version != ResourceVersion::UNKNOWN) {
        preconditions["resourceVersion"] = version.to_string().into();
    }
    json!({
        "kind": "DeleteOptions", "apiVersion": "v1",
        "preconditions": preconditions, "propagationPolicy": policy.name(),
    })
}

/// Returns the preconditions of a change: UID and resourceVersion.
#[allow(clippy::result_large_err, reason = "it is the answer, made once per request")]
fn guards(uid: &Uid, version: ResourceVersion) -> Result<Value, Outcome> {
    if version == ResourceVersion::UNKNOWN {
        let message = "its resourceVersion is not a number, so that the change cannot be guarded".into();
        return Err(Outcome::Refused { code: 0, message });
    }
    Ok(json!({"uid": uid.to_string(), "resourceVersion": version.to_string()}))
}

#[cfg(test)]
mod tests;
