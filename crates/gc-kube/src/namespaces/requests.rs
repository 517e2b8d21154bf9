//! Sends the requests of a pass and interprets the answers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gc_collectors::measures::{Measurement, NAMESPACE_REQUESTS};
use gc_collectors::namespaces::documents::{item, view, with_finalizers, with_status};
use gc_collectors::namespaces::emptying::{Ask, ContainedResource, Item, Reply};
use gc_controller::concurrency::Signal;
use gc_controller::namespaces::{Answer, Question};
use gc_types::{Gvr, Outcome, ResourceInfo};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

use super::documents::{collection_path, delete_options, info, problem, served};
use super::trace::{TerminatingNamespace, Trace};
use crate::clock::Clock;
use crate::connection::ApiClient;
use crate::discovery::discover;
use crate::raw::page_of;
use crate::watcher::{SAME_PAGE, retry_after};

const PAGE_SIZE: usize = 500;
const LIST_ACCEPT: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const OBJECT_ACCEPT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const JSON: &str = "application/json";

/// Sends the requests of one question.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) client: ApiClient,
    pub(crate) trace: Arc<Trace>,
    pub(crate) clock: Clock,
    /// Evidence about the server from the last call, and the number of calls.
    signal: Option<(Signal, u32)>,
    /// Number of objects deleted so far.
    deleted: u64,
}

/// Converts an unexpected answer to a reply.
fn refused(path: &str, code: u16, body: &Value) -> Reply {
    Reply::Refused { code, why: problem(path, code, body) }
}

/// Converts the answer to a failed deletion to an outcome: refused, or failed for now.
fn not_done(path: &str, code: u16, body: &Value) -> Outcome {
    let message = problem(path, code, body);
    if (400..500).contains(&code) && !matches!(code, 408 | 429) {
        return Outcome::Refused { code, message };
    }
    Outcome::Failed { message, retry_after_milliseconds: None }
}

/// Converts a deletion without an answer to an outcome.
fn unanswered(failed: &Reply) -> Outcome {
    Outcome::Failed { message: failed.clone().why(), retry_after_milliseconds: None }
}

impl Requests {
    pub(crate) fn new(client: ApiClient, trace: Trace, clock: Clock) -> Self {
        Self { client, trace: Arc::new(trace), clock, signal: None, deleted: 0 }
    }

    /// Performs a question, and reports what was deleted or finalized.
    pub(crate) async fn perform(mut self, question: &Question) -> Answer {
        let Question { namespace, ask, view, document, .. } = question;
        let namespace = TerminatingNamespace::new(namespace, view);
        let mut read = None;
        let result = match ask {
            Ask::Read => self.read(&namespace).await.map(|(reply, found)| {
                read = found;
                reply
            }),
            Ask::Discover => match discover(&self.client).await {
                Ok(discovered) => Ok(Reply::Served(Arc::new(served(&discovered)))),
                Err(error) => Err(Reply::Failed { why: error.to_string(), may_be_at_work: false }),
            },
            Ask::DeleteAll(resource) => self.delete_all(resource, &namespace).await,
            Ask::Delete(resource, item) => self.delete(resource, &namespace, item).await,
            Ask::List(resource) => {
                let items = self.list(&collection_path(resource, &namespace.name), &info(resource)).await;
                items.map(|items| Reply::Items(items.iter().map(item).collect()))
            }
            Ask::WriteStatus(conditions) => {
                let path = format!("{}/status", own_path(&namespace));
                self.put(&path, with_status(document, conditions)).await
            }
            Ask::Finalize(left) => self.finalize(&namespace, document, left).await,
        };
        let reply = result.unwrap_or_else(|failed| failed);
        Answer { reply, read, deleted: self.deleted, signal: self.signal }
    }

    /// Returns the names of all terminating namespaces; `None` if they cannot be listed, which is logged.
    pub(crate) async fn terminating(&self) -> Option<Vec<Arc<str>>> {
        let cannot = |reply: Reply| tracing::warn!(why = reply.why(), "namespaces cannot be listed");
        let gvr = Gvr { group: "".into(), version: "v1".into(), resource: "namespaces".into() };
        let asked = info(&ContainedResource { gvr, kind: "Namespace".into(), together: false });
        let namespaces = self.clone().list("/api/v1/namespaces", &asked).await.map_err(cannot).ok()?;
        let items = namespaces.iter().map(item).filter(|item| item.deleting && !item.name.is_empty());
        Some(items.map(|item| item.name.into()).collect())
    }

    async fn read(&mut self, namespace: &TerminatingNamespace) -> Result<(Reply, Option<Value>), Reply> {
        let path = own_path(namespace);
        match self.send(Method::GET, &path, JSON, None).await? {
            (200, found) if found["metadata"]["uid"].is_string() => {
                Ok((Reply::Namespace(Box::new(view(&found, (self.clock)()))), Some(found)))
            }
            (200, _) => {
                let why = format!("GET {path} was answered with no namespace");
                Err(Reply::Failed { why, may_be_at_work: false })
            }
            (code, body) => Ok((refused(&path, code, &body), None)),
        }
    }

    async fn delete_all(
        &mut self,
        resource: &ContainedResource,
        namespace: &TerminatingNamespace,
    ) -> Result<Reply, Reply> {
        let path = collection_path(resource, &namespace.name);
        let begun = Instant::now();
        let answered = self.send(Method::DELETE, &path, LIST_ACCEPT, Some(delete_options(None))).await;
        let trace = Arc::clone(&self.trace);
        let report =
            |outcome: &Outcome| trace.not_deleted_together(resource, namespace, outcome, begun.elapsed());
        match answered.inspect_err(|failed| report(&unanswered(failed)))? {
            (200..=299, body) => {
                // Objects that existed before. A server that does not list them has deleted them all the same.
                let items: Vec<Item> = body["items"].as_array().into_iter().flatten().map(item).collect();
                self.deleted = items.iter().filter(|item| !item.deleting).count() as u64;
                self.trace.deleted_together(resource, namespace, &items, begun.elapsed()).await;
                Ok(Reply::Done)
            }
            (code, body) => {
                // If there is no such request, objects are deleted one by one.
                if !matches!(code, 404 | 405) {
                    report(&not_done(&path, code, &body));
                }
                Ok(refused(&path, code, &body))
            }
        }
    }

    async fn delete(
        &mut self,
        resource: &ContainedResource,
        namespace: &TerminatingNamespace,
        item: &Item,
    ) -> Result<Reply, Reply> {
        let path = format!("{}/{}", collection_path(resource, &namespace.name), item.name);
        let begun = Instant::now();
        let options = delete_options(item.uid.as_deref());
        let answered = self.send(Method::DELETE, &path, OBJECT_ACCEPT, Some(options)).await;
        let outcome = match &answered {
            Ok((200..=299, _)) => Outcome::Applied(None),
            Ok((404, _)) => Outcome::Absent,
            Ok((409, _)) => Outcome::Conflict,
            Ok((code, body)) => not_done(&path, *code, body),
            Err(failed) => unanswered(failed),
        };
        self.deleted = u64::from(!item.deleting && matches!(outcome, Outcome::Applied(_)));
        // For an object that is already terminating, only a failure is news.
        if !item.deleting || matches!(outcome, Outcome::Refused { .. } | Outcome::Failed { .. }) {
            let remains = answered.as_ref().is_ok_and(|(_, body)| remains(body));
            self.trace.deleted(resource, namespace, (item, remains), &outcome, begun.elapsed());
        }
        let (code, body) = answered?;
        Ok(if code < 300 { Reply::Done } else { refused(&path, code, &body) })
    }

    /// Lists the metadata of an entire collection.
    pub(crate) async fn list(&mut self, path: &str, asked: &ResourceInfo) -> Result<Vec<Value>, Reply> {
        // A document other than the requested list says nothing about the contents.
        let no_list = |why: &dyn std::fmt::Display| Reply::Failed {
            why: format!("GET {path} was answered with no list: {why}"),
            may_be_at_work: false,
        };
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let mut page = format!("{path}?limit={PAGE_SIZE}");
            if !token.is_empty() {
                page.push_str("&continue=");
                for byte in token.bytes() {
                    let _ = write!(page, "%{byte:02X}"); // writing to a String cannot fail
                }
            }
            let (code, body) = self.send(Method::GET, &page, LIST_ACCEPT, None).await?;
            if code != 200 {
                return Err(refused(path, code, &body));
            }
            let Value::Object(body) = body else { return Err(no_list(&"it is no object")) };
            let page = page_of(body, asked).map_err(|error| no_list(&error))?;
            items.extend(page.items);
            if page.continue_token.is_empty() {
                return Ok(items);
            }
            if page.continue_token == token {
                return Err(no_list(&SAME_PAGE));
            }
            token = page.continue_token;
        }
    }

    async fn finalize(
        &mut self,
        namespace: &TerminatingNamespace,
        document: &Value,
        left: &[String],
    ) -> Result<Reply, Reply> {
        let begun = Instant::now();
        let path = format!("{}/finalize", own_path(namespace));
        let reply = self.put(&path, with_finalizers(document, left)).await?;
        if reply == Reply::Done {
            self.trace.finalized(namespace, left, begun.elapsed());
        }
        Ok(reply)
    }

    async fn put(&mut self, path: &str, document: Value) -> Result<Reply, Reply> {
        match self.send(Method::PUT, path, JSON, Some(document)).await? {
            (200..=299, _) => Ok(Reply::Done),
            (code, body) => Ok(refused(path, code, &body)),
        }
    }

    /// Sends one request; `Err` is [`Reply::Failed`].
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<Value>,
    ) -> Result<(u16, Value), Reply> {
        let list = method == Method::GET && path.contains("?limit=");
        let verb = if list { "list" } else { verb_of(&method) };
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let mut bytes = Bytes::new();
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, JSON);
            bytes = body.to_string().into();
        }
        let unsent = |error: http::Error| Reply::Failed { why: error.to_string(), may_be_at_work: false };
        let request = request.body(Full::new(bytes)).map_err(unsent)?;
        let answer = self.client.call(request).await;
        let calls = self.signal.map_or(0, |(_, calls)| calls) + 1;
        let signal = answer.as_ref().map_or(Signal::Answered, |answer| {
            Signal::of_answer(answer.head.status.as_u16(), || retry_after(&answer.head.headers))
        });
        self.signal = Some((signal, calls));
        let code =
            answer.as_ref().map_or_else(|_| "none".into(), |answer| answer.head.status.as_str().into());
        let labels = vec![verb.into(), code];
        self.trace.observer().measured(&Measurement { metric: &NAMESPACE_REQUESTS, labels, value: 1.0 });
        let answer = answer.map_err(|error| Reply::Failed {
            why: format!("{path}: {error}"),
            may_be_at_work: error.may_be_at_work(),
        })?;
        let value = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok((answer.head.status.as_u16(), value))
    }
}

/// Reports whether the answer to a deletion shows an object that remains for now.
fn remains(answer: &Value) -> bool {
    let shown = item(answer);
    shown.deleting && (!shown.finalizers.is_empty() || shown.grace_seconds > 0)
}

fn own_path(namespace: &TerminatingNamespace) -> String {
    format!("/api/v1/namespaces/{}", namespace.name)
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::DELETE => "delete",
        Method::PUT => "update",
        _ => "get",
    }
}
