//! Information about the removal of one finalizer by hand, for `kubegc release` and for the page.

pub mod removal;

use std::time::Duration;

use anyhow::Context as _;
use gc_explain::release::{Query, Release, release};
use gc_explain::stuck::Place;
use gc_explain::{GroupResource, Knowledge, Metadata, Resource};
use gc_kube::{ApiClient, push_segment};
use gc_process::preflight;
use gc_types::ObjectKey;
use http::Method;
use serde_json::Value;

use crate::gather::{self, Gatherer, Scope};
use crate::unanswered::UnansweredReason;

/// Field manager of the removal, which the audit log of a server records too.
const FIELD_MANAGER: &str = "kubegc-release";
/// Reason of the Events about finalizers that were removed by hand.
const REASON: &str = "FinalizerReleased";
/// Annotation of these Events with the user.
const USER: &str = "kubegc.io/released-by";
/// Annotation of these Events with the finalizer.
const FINALIZER: &str = "kubegc.io/released-finalizer";
/// Annotation of these Events with the resource of the object.
const RESOURCE: &str = "kubegc.io/released-resource";
/// Annotation of these Events with the UID of the object.
const UID: &str = "kubegc.io/released-uid";
/// Namespace of Events about cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";
/// Maximum number of Events to read about one object.
const EVENTS_READ: usize = 100;

/// Answer about one finalizer.
pub struct ReleaseAnswer {
    /// The answer.
    pub release: Release,
    /// The object as it was read.
    pub object: Value,
    /// Messages about everything that could not be read.
    pub unseen: Vec<String>,
}

/// Gathers and decides. The finalizer can be omitted if the object has only one.
///
/// # Errors
/// The object does not exist or cannot be read, or the choice of finalizer is invalid.
pub async fn ask(
    gatherer: &Gatherer,
    resource: &Resource,
    (namespace, name): (&str, &str),
    finalizer: Option<&str>,
    patience: Duration,
) -> anyhow::Result<ReleaseAnswer> {
    let object = match gatherer.object(&resource.name, namespace, name).await {
        Knowledge::Present(object) => object,
        Knowledge::Absent => return Err(UnansweredReason::no_object(resource, namespace, name).into()),
        Knowledge::Unreadable(why) => return Err(UnansweredReason::unreadable(resource, name, why).into()),
    };
    let metadata: Metadata =
        serde_json::from_value(object.clone()).context("the object's metadata cannot be read")?;
    let is_namespace = resource.name == GroupResource::new("", "namespaces");
    // Dependents of a namespaced object are in its namespace.
    let inner = if is_namespace { name } else { namespace };
    let scope = Scope { namespace: inner.to_owned(), ..Scope::default() };
    let mut survey = gatherer.survey(&scope, patience).await?;
    survey.observe(resource.id, metadata);
    let mut facts = gatherer.facts();
    facts.tell_object(resource.name.clone(), namespace, name, Knowledge::Present(object.clone()));
    let key = ObjectKey { resource: resource.id, namespace: namespace.into(), name: name.into() };
    let has_collectors = preflight::has_collectors(gatherer.client()).await;
    let query = Query { key: &key, finalizer, has_collectors };
    let answer = gatherer.answer(&mut facts, |facts| release(&survey, facts, &query)).await;
    let release = answer.context("the object cannot be examined")??;
    Ok(ReleaseAnswer { release, object, unseen: gather::unlisted_summary(&survey).into_iter().collect() })
}

/// Returns the path of the Events in a namespace.
fn events_in(namespace: &str) -> String {
    let mut path = "/api/v1/namespaces/".to_owned();
    push_segment(&mut path, namespace);
    path.push_str("/events");
    path
}

/// Returns a line for each finalizer of an object that was removed with `kubegc release`, as far as the Events still exist and may
/// be read. An empty UID means any object of the name.
pub async fn removals(client: &ApiClient, place: &Place) -> Vec<String> {
    let own = if place.namespace.is_empty() { DEFAULT_NAMESPACE } else { &place.namespace };
    let mut found = read(client, own, &place.name).await;
    if !place.namespace.is_empty() {
        found.extend(read(client, DEFAULT_NAMESPACE, &place.namespace).await);
    }
    let of = |event: &Value, name: &str| {
        event["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned()
    };
    found.retain(|event| {
        of(event, RESOURCE) == place.resource && (place.uid.is_empty() || of(event, UID) == place.uid)
    });
    found.sort_by_key(|event| event["lastTimestamp"].as_str().unwrap_or_default().to_owned());
    let line = |event: &Value| {
        let at = event["lastTimestamp"].as_str().unwrap_or_default();
        format!("{} removed the finalizer {} at {at} (Event {REASON})", of(event, USER), of(event, FINALIZER))
    };
    found.iter().map(line).collect()
}

async fn read(client: &ApiClient, namespace: &str, name: &str) -> Vec<Value> {
    let mut path = events_in(namespace);
    path.push_str("?limit=");
    path.push_str(&EVENTS_READ.to_string());
    path.push_str("&fieldSelector=");
    push_segment(&mut path, &format!("involvedObject.name={name},reason={REASON}"));
    let answer = client.call(preflight::request(Method::GET, &path, None)).await;
    let list = answer.ok().filter(|answer| answer.head.status.is_success());
    let list = list.and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    list.and_then(|mut list| list["items"].as_array_mut().map(std::mem::take)).unwrap_or_default()
}
