//! Effects as HTTP requests, and answers as outcomes (spec `ownership-gc.md`, 4.5 to 4.7, 8 and 9).

use std::time::Duration;

use bytes::Bytes;
use gc_types::{
    Change, FinalizerName, ObjectKey, Outcome, OwnerReference, PropagationPolicy, Request, ResourceVersion,
    Uid,
};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::connection::{Answer, ApiClient, RequestError};
use crate::resources::{ResourceTable, Route};
use crate::watcher::retry_after;
use crate::wire::interner::Interner;
use crate::wire::metadata::{Encoding, Metadata, Status, decode_object, decode_status};
use gc_control::pacing::Signal;

/// Only metadata is asked for, also where a server answers a write with the object.
const OBJECT_ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// The pauses before the second, third and fourth try to remove a finalizer (spec section 8), after a conflict and after
/// a failure of the moment: it takes two requests, after a third that led to it, and would hardly come about otherwise
/// where many fail.
const FINALIZER_PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// An outcome, and what it says about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Performed {
    /// For the engine.
    pub outcome: Outcome,
    /// For the pacing.
    pub signal: Signal,
    /// How many requests it took.
    pub round_trips: u32,
}

/// Performs requests against one API server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Performer {
    client: ApiClient,
    table: ResourceTable,
}

/// What one HTTP exchange came to.
enum Reply {
    /// 2xx
    Success(Encoding, Bytes),
    /// Anything else, or no answer.
    Failure(Performed),
}

impl Performer {
    /// Sends by this client to where this table says.
    #[must_use]
    pub fn new(client: ApiClient, table: ResourceTable) -> Self {
        Self { client, table }
    }

    /// Performs a request about one object. Barriers, notes and calls outside are not requests of this kind: they
    /// are answered elsewhere, and come back as failed from here.
    pub async fn perform(&self, request: &Request) -> Performed {
        let key = match request {
            Request::Delete { key, .. }
            | Request::SetOwners { key, .. }
            | Request::RemoveFinalizer { key, .. }
            | Request::Guarded { key, .. }
            | Request::Read { key } => key,
            Request::Barrier { .. } | Request::Note(_) | Request::Outside { .. } => {
                return answered(failed("not a request about one object"), 0);
            }
        };
        let Some(route) = self.table.get(key.resource) else {
            return answered(Outcome::NotServed, 0);
        };
        match request {
            Request::Delete { uid, resource_version, policy, .. } => {
                self.delete(&route, key, uid, *resource_version, *policy).await
            }
            Request::SetOwners { uid, resource_version, remaining, .. } => {
                self.set_owners(&route, key, uid, *resource_version, remaining).await
            }
            Request::RemoveFinalizer { uid, finalizer, .. } => {
                self.remove_finalizer(&route, key, uid, *finalizer).await
            }
            Request::Guarded { uid, resource_version, change, .. } => {
                self.change(&route, key, uid, *resource_version, change).await
            }
            _ => self.read(&route, key).await,
        }
    }

    async fn delete(
        &self,
        route: &Route,
        key: &ObjectKey,
        uid: &Uid,
        resource_version: Option<ResourceVersion>,
        policy: PropagationPolicy,
    ) -> Performed {
        let mut preconditions = json!({ "uid": uid.to_string() });
        if let Some(version) = resource_version.filter(|version| *version != ResourceVersion::UNKNOWN) {
            preconditions["resourceVersion"] = version.to_string().into();
        }
        let policy = match policy {
            PropagationPolicy::Background => "Background",
            PropagationPolicy::Foreground => "Foreground",
            PropagationPolicy::Orphan => "Orphan",
        };
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1",
            "preconditions": preconditions, "propagationPolicy": policy,
        });
        match self.send(route, key, Method::DELETE, Some(("application/json", options))).await {
            // What it led to comes by the watch.
            Reply::Success(..) => answered(Outcome::Applied(None), 1),
            Reply::Failure(performed) => performed,
        }
    }

    async fn read(&self, route: &Route, key: &ObjectKey) -> Performed {
        match self.send(route, key, Method::GET, None).await {
            Reply::Failure(performed) => performed,
            Reply::Success(encoding, body) => match decode_object(encoding, &body) {
                Ok(metadata) => {
                    let found = metadata.observed(key.resource, &mut Interner::default());
                    answered(Outcome::Found(found), 1)
                }
                Err(error) => answered(failed(&format!("a malformed answer: {error}")), 1),
            },
        }
    }

    async fn set_owners(
        &self,
        route: &Route,
        key: &ObjectKey,
        uid: &Uid,
        version: ResourceVersion,
        remaining: &[OwnerReference],
    ) -> Performed {
        if version == ResourceVersion::UNKNOWN {
            return unguardable();
        }
        let references = match remaining {
            [] => Value::Null,
            some => some.iter().map(OwnerReference::to_json).collect(),
        };
        let patch = json!({"metadata": {
            "uid": uid.to_string(), "resourceVersion": version.to_string(), "ownerReferences": references,
        }});
        match self.send(route, key, Method::PATCH, Some((MERGE_PATCH, patch))).await {
            Reply::Success(encoding, body) => applied(key, encoding, &body, 1),
            Reply::Failure(performed) => self.or_recreated(route, key, uid, performed).await,
        }
    }

    async fn change(
        &self,
        route: &Route,
        key: &ObjectKey,
        uid: &Uid,
        version: ResourceVersion,
        change: &Change,
    ) -> Performed {
        if version == ResourceVersion::UNKNOWN {
            return unguardable();
        }
        let (uid_text, version) = (uid.to_string(), version.to_string());
        let reply = match change {
            Change::ForceDelete => {
                let options = json!({
                    "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                    "preconditions": {"uid": uid_text, "resourceVersion": version},
                });
                return match self.send(route, key, Method::DELETE, Some(("application/json", options))).await
                {
                    Reply::Success(..) => answered(Outcome::Applied(None), 1),
                    Reply::Failure(performed) => performed,
                };
            }
            Change::Finalizers(finalizers) => {
                let finalizers: Value = match finalizers.as_slice() {
                    [] => Value::Null,
                    some => some.iter().map(|finalizer| &**finalizer).collect(),
                };
                let patch = json!({"metadata": {
                    "uid": uid_text, "resourceVersion": version, "finalizers": finalizers,
                }});
                self.send(route, key, Method::PATCH, Some((MERGE_PATCH, patch))).await
            }
            Change::Merge(patch) => {
                let Ok(Value::Object(mut patch)) = serde_json::from_str::<Value>(patch) else {
                    return answered(failed("the patch to be sent is not a JSON object"), 0);
                };
                let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
                metadata["uid"] = uid_text.into();
                metadata["resourceVersion"] = version.into();
                self.send(route, key, Method::PATCH, Some((MERGE_PATCH, patch.into()))).await
            }
            Change::Status(status) | Change::MergeStatus(status) => {
                let Ok(status) = serde_json::from_str::<Value>(status) else {
                    return answered(failed("the status to be written is not JSON"), 0);
                };
                let patch = json!({
                    "metadata": {"uid": uid_text, "resourceVersion": version}, "status": status,
                });
                let path = format!("{}/status", route.object(key));
                let kind = match change {
                    Change::MergeStatus(_) => MERGE_PATCH,
                    _ => STRATEGIC_PATCH,
                };
                self.send_to(route, key, path, Method::PATCH, Some((kind, patch))).await
            }
        };
        match reply {
            Reply::Success(encoding, body) => applied(key, encoding, &body, 1),
            Reply::Failure(performed) => self.or_recreated(route, key, uid, performed).await,
        }
    }

    /// A patch that was refused because the object has another UID now found nothing to patch.
    async fn or_recreated(
        &self,
        route: &Route,
        key: &ObjectKey,
        uid: &Uid,
        performed: Performed,
    ) -> Performed {
        if !matches!(performed.outcome, Outcome::Refused { code: 422, .. }) {
            return performed;
        }
        let round_trips = performed.round_trips + 1;
        match self.read(route, key).await.outcome {
            Outcome::Found(found) if found.uid == *uid => performed,
            Outcome::Found(_) | Outcome::Absent => answered(Outcome::Absent, round_trips),
            _ => performed,
        }
    }

    async fn remove_finalizer(
        &self,
        route: &Route,
        key: &ObjectKey,
        uid: &Uid,
        finalizer: FinalizerName,
    ) -> Performed {
        let mut pauses = FINALIZER_PAUSES.iter();
        let mut round_trips = 0;
        loop {
            let mut performed = self.try_remove_finalizer(route, key, uid, finalizer).await;
            round_trips += performed.round_trips;
            performed.round_trips = round_trips;
            let again = performed.outcome == Outcome::Conflict || is_momentary(&performed);
            match pauses.next().filter(|_| again) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return performed,
            }
        }
    }

    async fn try_remove_finalizer(
        &self,
        route: &Route,
        key: &ObjectKey,
        uid: &Uid,
        finalizer: FinalizerName,
    ) -> Performed {
        let (encoding, body) = match self.send(route, key, Method::GET, None).await {
            Reply::Success(encoding, body) => (encoding, body),
            Reply::Failure(performed) => return performed,
        };
        let metadata = match decode_object(encoding, &body) {
            Ok(metadata) => metadata,
            Err(error) => return answered(failed(&format!("a malformed answer: {error}")), 1),
        };
        if Uid::new(&metadata.uid) != *uid {
            return answered(Outcome::Absent, 1);
        }
        let finalizer = finalizer.to_string();
        if !metadata.finalizers.iter().any(|present| *present == finalizer) {
            let object = metadata.observed(key.resource, &mut Interner::default());
            return answered(Outcome::Applied(Some(object)), 1);
        }
        let patch = finalizer_patch(&metadata, &finalizer);
        let mut performed = match self.send(route, key, Method::PATCH, Some((MERGE_PATCH, patch))).await {
            // The last finalizer takes the object along; the answer still shows it.
            Reply::Success(..) if metadata.deleting && metadata.finalizers.len() == 1 => {
                answered(Outcome::Applied(None), 1)
            }
            Reply::Success(encoding, body) => applied(key, encoding, &body, 1),
            Reply::Failure(performed) => self.or_recreated(route, key, uid, performed).await,
        };
        performed.round_trips += 1;
        performed
    }

    async fn send(
        &self,
        route: &Route,
        key: &ObjectKey,
        method: Method,
        body: Option<(&'static str, Value)>,
    ) -> Reply {
        self.send_to(route, key, route.object(key), method, body).await
    }

    async fn send_to(
        &self,
        route: &Route,
        key: &ObjectKey,
        path: String,
        method: Method,
        body: Option<(&'static str, Value)>,
    ) -> Reply {
        let mut request =
            http::Request::builder().method(method.clone()).uri(path).header(ACCEPT, OBJECT_ACCEPT);
        let mut bytes = Bytes::new();
        if let Some((content_type, value)) = body {
            request = request.header(CONTENT_TYPE, content_type);
            bytes = value.to_string().into();
        }
        let request = match request.body(Full::new(bytes)) {
            Ok(request) => request,
            Err(error) => return Reply::Failure(answered(failed(&error.to_string()), 0)),
        };
        let reply = match self.client.call(request).await {
            Ok(answer) => read_answer(route, key, answer),
            Err(error) => return Reply::Failure(no_answer(&error)),
        };
        match reply {
            // A proxy's page, or one that broke on the way: it says nothing about what the server did.
            Reply::Success(encoding, body) if method == Method::GET && !is_object(encoding, &body) => {
                Reply::Failure(unreadable(1))
            }
            Reply::Success(encoding, body)
                if !is_object(encoding, &body) && decode_status(encoding, &body).is_none() =>
            {
                Reply::Failure(self.read_after(route, key).await)
            }
            reply => reply,
        }
    }

    /// The outcome of a change is unknown: if the object turns out to be gone, no retry is needed.
    async fn read_after(&self, route: &Route, key: &ObjectKey) -> Performed {
        match Box::pin(self.read(route, key)).await.outcome {
            Outcome::Absent => answered(Outcome::Absent, 2),
            _ => unreadable(2),
        }
    }
}

/// Whether an answer is an object with its UID.
fn is_object(encoding: Encoding, body: &[u8]) -> bool {
    decode_object(encoding, body).is_ok_and(|metadata| !metadata.uid.is_empty())
}

fn unreadable(round_trips: u32) -> Performed {
    answered(failed("the answer is not that of an API server"), round_trips)
}

fn finalizer_patch(metadata: &Metadata<'_>, finalizer: &str) -> Value {
    let left: Vec<&str> = metadata
        .finalizers
        .iter()
        .map(|present| &**present)
        .filter(|present| *present != finalizer)
        .collect();
    let left = if left.is_empty() { Value::Null } else { left.into() };
    json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": left,
    }})
}

fn applied(key: &ObjectKey, encoding: Encoding, body: &[u8], round_trips: u32) -> Performed {
    let object = decode_object(encoding, body).ok().filter(|metadata| !metadata.uid.is_empty());
    let observed = object.map(|metadata| metadata.observed(key.resource, &mut Interner::default()));
    answered(Outcome::Applied(observed), round_trips)
}

fn answered(outcome: Outcome, round_trips: u32) -> Performed {
    Performed { outcome, signal: Signal::Answered, round_trips }
}

fn unguardable() -> Performed {
    let message = "its resourceVersion is not a number, so that the change cannot be guarded".into();
    answered(Outcome::Refused { code: 0, message }, 0)
}

fn failed(message: &str) -> Outcome {
    Outcome::Failed { message: message.to_owned(), retry_after_milliseconds: None }
}

/// Whether it failed at a server that answers, is not busy, and asks for no pause.
fn is_momentary(performed: &Performed) -> bool {
    matches!(
        performed,
        Performed {
            outcome: Outcome::Failed { retry_after_milliseconds: None, .. },
            signal: Signal::Answered,
            ..
        }
    )
}

fn no_answer(error: &RequestError) -> Performed {
    Performed { outcome: failed(&error.to_string()), signal: Signal::Busy(None), round_trips: 1 }
}

fn read_answer(route: &Route, key: &ObjectKey, answer: Answer) -> Reply {
    let encoding = Encoding::of_content_type(answer.head.headers.get(CONTENT_TYPE));
    let code = answer.head.status;
    if code.is_success() {
        return Reply::Success(encoding, answer.body);
    }
    let status = decode_status(encoding, &answer.body);
    let message = status.as_ref().map_or_else(
        || String::from_utf8_lossy(&answer.body).chars().take(200).collect(),
        |status| status.message.clone(),
    );
    let wait = retry_after(&answer.head.headers).or_else(|| {
        let seconds = status.as_ref()?.details.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    });
    let failure = |signal| {
        let retry_after_milliseconds = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let message = format!("the server answered {}: {message}", code.as_u16());
        Performed { outcome: Outcome::Failed { message, retry_after_milliseconds }, signal, round_trips: 1 }
    };
    Reply::Failure(match code {
        StatusCode::NOT_FOUND => {
            let proven = status.is_some_and(|status| proves_absence(route, key, &status));
            answered(if proven { Outcome::Absent } else { Outcome::NotServed }, 1)
        }
        StatusCode::CONFLICT => answered(Outcome::Conflict, 1),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            failure(Signal::Busy(wait))
        }
        code if code.is_client_error() && code != StatusCode::REQUEST_TIMEOUT => {
            answered(Outcome::Refused { code: code.as_u16(), message: message.clone() }, 1)
        }
        _ => failure(Signal::Answered),
    })
}

/// a Status with reason NotFound that names the object asked for, or the namespace it would be in.
fn proves_absence(route: &Route, key: &ObjectKey, status: &Status) -> bool {
    let details = &status.details;
    if status.reason != "NotFound" {
        return false;
    }
    let gvr = &route.info.gvr;
    let names_object = *details.name == *key.name
        && details.group == *gvr.group
        && (*details.kind == *gvr.resource || *details.kind == *route.info.kind);
    let names_namespace =
        details.kind == "namespaces" && !key.namespace.is_empty() && *details.name == *key.namespace;
    names_object || names_namespace
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
