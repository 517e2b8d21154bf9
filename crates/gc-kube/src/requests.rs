//! Sends the calls that make up requests over HTTP (see [`gc_controller::requests`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gc_controller::requests::{AnsweredObject, Call, Exchange, Status, Step, Verb};
use gc_types::{ObjectKey, Outcome, Request, ResourceInfo};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use crate::connection::{self, ApiClient};
use crate::discovery::{DiscoveryError, discover};
use crate::resources::{ResourceTable, Route};
use crate::watcher::retry_after;
use crate::wire::interner::Interner;
use crate::wire::metadata::{Encoding, decode_object, decode_status};

pub use gc_controller::requests::{PerformedRequest, RequestedObject};

/// Accept header that requests only metadata without managedFields, even where a server answers a write with the object.
const OBJECT_ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1\
     ;drop=metadata.managedFields,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;drop=metadata.managedFields,\
     application/json";
/// Maximum number of characters shown of a body that is not a Status.
const SHOWN_CHARACTERS: usize = 200;

/// Performs requests against one API server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Performer {
    client: ApiClient,
    table: ResourceTable,
    absences: Arc<Mutex<Absences>>,
}

/// Connections on which objects were recently not found. A second read of such an object uses another connection, so that a proxy
/// in front of one server cannot confirm its own answer.
#[derive(Debug, Default)]
struct Absences {
    connections: BTreeMap<ObjectKey, usize>,
    oldest_first: VecDeque<ObjectKey>,
}

/// Maximum number of objects for which that connection is remembered.
const ABSENCES_REMEMBERED: usize = 1_024;

impl Absences {
    fn note(&mut self, key: &ObjectKey, connection: usize) {
        if self.connections.insert(key.clone(), connection).is_some() {
            return;
        }
        self.oldest_first.push_back(key.clone());
        if self.oldest_first.len() > ABSENCES_REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.connections.remove(&oldest);
        }
    }
}

impl Performer {
    /// Creates a performer that sends by this client, to the routes of this table.
    #[must_use]
    pub fn new(client: ApiClient, table: ResourceTable) -> Self {
        Self { client, table, absences: Arc::default() }
    }

    /// Performs a request for one object. Barriers, Events and outside calls are answered elsewhere, and fail here.
    pub async fn perform(&self, request: &Request) -> PerformedRequest {
        let Some(key) = Exchange::subject(request) else {
            return PerformedRequest::failed("not a request about one object");
        };
        let Some(route) = self.table.get(key.resource) else {
            return PerformedRequest::without_a_call(Outcome::NotServed);
        };
        let (mut exchange, mut step) = Exchange::begin(request, &route.info);
        loop {
            step = match step {
                Step::Done(performed) => return performed,
                Step::Pause(pause) => {
                    tokio::time::sleep(pause).await;
                    exchange.paused()
                }
                Step::Send(call) => match self.send(&route, key, call).await {
                    Ok(answer) => exchange.answered(&answer),
                    Err(error) => exchange.unanswered(&error),
                },
            };
        }
    }

    fn absences(&self) -> MutexGuard<'_, Absences> {
        self.absences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send<'k>(&self, route: &'k Route, key: &'k ObjectKey, call: Call) -> Result<Answer<'k>, String> {
        let (method, content_type) = match call.verb {
            Verb::Get => (Method::GET, None),
            Verb::Delete => (Method::DELETE, Some("application/json")),
            Verb::MergePatch => (Method::PATCH, Some("application/merge-patch+json")),
            Verb::StrategicPatch => (Method::PATCH, Some("application/strategic-merge-patch+json")),
        };
        let mut path = route.object(key);
        if !call.subresource.is_empty() {
            path.push('/');
            path.push_str(call.subresource);
        }
        let mut request = http::Request::builder().method(method).uri(path).header(ACCEPT, OBJECT_ACCEPT);
        let mut bytes = Bytes::new();
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
            bytes = call.body.to_string().into();
        }
        let request = request.body(Full::new(bytes)).map_err(|error| error.to_string())?;
        let is_read = call.verb == Verb::Get;
        let apart_from = is_read.then(|| self.absences().connections.get(key).copied()).flatten();
        let (connection, answer) = self.client.call_apart(request, apart_from);
        let answer = answer.await.map_err(|error| error.to_string())?;
        if is_read && answer.head.status == StatusCode::NOT_FOUND {
            self.absences().note(key, connection);
        }
        let encoding = Encoding::of_content_type(answer.head.headers.get(CONTENT_TYPE));
        let (code, headers) = (answer.head.status.as_u16(), answer.head.headers);
        Ok(Answer { key, resource: &route.info, code, headers, encoding, body: answer.body })
    }
}

/// Answer to a request for an object.
struct Answer<'k> {
    key: &'k ObjectKey,
    resource: &'k ResourceInfo,
    code: u16,
    headers: HeaderMap,
    encoding: Encoding,
    body: Bytes,
}

impl gc_controller::requests::Answer for Answer<'_> {
    fn code(&self) -> u16 {
        self.code
    }

    fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers)
    }

    fn is_object(&self) -> bool {
        let object = decode_object(self.encoding, &self.body, self.resource);
        object.is_ok_and(|metadata| !metadata.uid.is_empty())
    }

    fn object(&self) -> Result<AnsweredObject, String> {
        let metadata =
            decode_object(self.encoding, &self.body, self.resource).map_err(|error| error.to_string())?;
        Ok(AnsweredObject {
            observed: metadata.observed(self.key.resource, &mut Interner::default()),
            resource_version: metadata.resource_version.to_string(),
            grace_seconds: metadata.grace_seconds,
            finalizers: metadata.finalizers.iter().map(ToString::to_string).collect(),
        })
    }

    fn status(&self) -> Option<Status> {
        decoded_status(self.encoding, &self.body)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(SHOWN_CHARACTERS).collect()
    }
}

/// Returns the `Status` in an answer; `None` if it contains something else, such as a page of a proxy.
#[must_use]
pub fn answered_status(answer: &connection::Answer) -> Option<Status> {
    decoded_status(Encoding::of_content_type(answer.head.headers.get(CONTENT_TYPE)), &answer.body)
}

/// Result of reading one object as JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectAnswer {
    /// The object that was asked for.
    Found(Value),
    /// The server proves that there is none.
    Absent,
    /// Anything else: a refusal, a 404 of a gateway, the answer to another request. It says nothing about the object.
    Doubtful,
}

/// Judges the answer to a read or a write of one object in JSON. A success counts only with the kind and the name that were asked for,
/// a 404 only if it proves the absence of that object.
#[must_use]
pub fn answered_object(answer: &connection::Answer, asked: &RequestedObject<'_>) -> ObjectAnswer {
    let status = answer.head.status;
    if status == StatusCode::NOT_FOUND
        && answered_status(answer).is_some_and(|status| status.proves_absence(asked))
    {
        return ObjectAnswer::Absent;
    }
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(found)
            if status.is_success()
                && found["kind"] == *asked.kind
                && found["metadata"]["name"] == *asked.name =>
        {
            ObjectAnswer::Found(found)
        }
        _ => ObjectAnswer::Doubtful,
    }
}

/// Reason for which it is not certain that a resource is not served.
#[derive(Debug, thiserror::Error)]
pub enum UnservedDoubt {
    /// Discovery failed.
    #[error("discovery failed")]
    Failed(#[from] DiscoveryError),
    /// The group of the resource could not be seen.
    #[error("discovery does not tell about {0}")]
    Unclear(String),
    /// It lacks what every API server serves.
    #[error("discovery is incomplete")]
    Incomplete,
    /// It names the resource.
    #[error("discovery names {0}")]
    Served(String),
}

/// Confirms that a 404 to a list means that the server does not serve the resource. A Status that names the resource proves it; an API
/// server without the group answers with a page of text, as any gateway would, so that its discovery has to confirm that.
pub async fn confirm_unserved(
    client: &ApiClient,
    answer: &connection::Answer,
    (group, resource, kind): (&str, &str, &str),
) -> Result<(), UnservedDoubt> {
    if answered_status(answer).is_some_and(|status| status.proves_unserved(group, resource, kind)) {
        return Ok(());
    }
    let found = discover(client).await?;
    if found.is_unclear(group) {
        return Err(UnservedDoubt::Unclear(group.to_owned()));
    }
    let serves = |group: &str, resource: &str| found.resources.contains_key(&(group.into(), resource.into()));
    let has_groups = found.resources.keys().any(|(group, _)| !group.is_empty());
    if !serves("", "nodes") || !has_groups {
        return Err(UnservedDoubt::Incomplete);
    }
    if serves(group, resource) { Err(UnservedDoubt::Served(resource.to_owned())) } else { Ok(()) }
}

fn decoded_status(encoding: Encoding, body: &[u8]) -> Option<Status> {
    let status = decode_status(encoding, body)?;
    Some(Status {
        reason: status.reason,
        message: status.message,
        name: status.details.name,
        group: status.details.group,
        kind: status.details.kind,
        retry_after_seconds: status.details.retry_after_seconds,
    })
}

#[cfg(test)]
mod tests;
