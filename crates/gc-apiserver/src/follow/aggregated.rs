//! Keeps the table of aggregated servers in step with the stored APIServices, and their conditions in step with the results of
//! checks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use gc_registry::api::{
    ListOptions, Operation, RequestBody, RequestTarget, ResponseBody, WatchEvent, WriteOptions,
};
use gc_registry::error::ApiError;
use gc_registry::watch::Watch;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::aggregator::{ApiService, Availability, Key, Table};
use crate::follow;
use crate::serve::forward::check;
use crate::state::State;
use crate::work::Weight;

const GROUP: &str = "apiregistration.k8s.io";
const RESOURCE: &str = "apiservices";
/// Period of checks without a trigger.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
/// Maximum number of concurrent checks.
const CHECKS_AT_ONCE: usize = 8;

/// Reads the APIServices, and keeps following them in the background.
pub(crate) async fn follow(state: &Arc<State>, background: &mut JoinSet<()>) -> Result<(), ApiError> {
    // No request is answered yet, so nothing is read on another thread.
    let watch = watch(state, GROUP, RESOURCE, Weight::Read).await?;
    let mut first = Some((watch, read(state, Weight::Read).await?));
    let state = Arc::clone(state);
    let follow = follow::keep_following("APIServices", move || {
        let (state, first) = (Arc::clone(&state), first.take());
        async move { follow_once(&state, first).await }
    });
    background.spawn(follow.boxed());
    Ok(())
}

/// Follows them until a watch ends: `first`, and the table that was read since it began, or new ones.
async fn follow_once(state: &Arc<State>, first: Option<(Watch, Arc<Table>)>) -> Result<(), ApiError> {
    let (watch_of_services, mut known) = match first {
        Some((watch, table)) => (watch, Some(table)),
        None => (watch(state, GROUP, RESOURCE, Weight::ReadMany).await?, None),
    };
    let mut watches = vec![watch_of_services];
    let mut checks = Checks::new(state);
    loop {
        // Deleted or redirected services take effect before any check, which may take minutes.
        let table = match known.take() {
            Some(table) => table,
            None => read(state, Weight::ReadMany).await?,
        };
        // Services and endpoints are only followed while an APIService names one.
        if table.is_empty() {
            watches.truncate(1);
        } else if watches.len() == 1 {
            watches.push(watch(state, "", "services", Weight::ReadMany).await?);
            watches.push(watch(state, "discovery.k8s.io", "endpointslices", Weight::ReadMany).await?);
        }
        checks.plan(&table);
        // A round of checks follows a change or the end of the period.
        let period = if table.is_empty() { Duration::MAX } else { CHECK_PERIOD };
        tokio::select! {
            never = checks.run() => match never {},
            changed = tokio::time::timeout(period, changed(&mut watches, &table)) => {
                changed.unwrap_or(Ok(()))?;
            }
        }
        // Changes seldom come alone, so those of one moment are handled together.
        tokio::time::sleep(follow::MOMENT).await;
        while let Some(more) = changed(&mut watches, &table).now_or_never() {
            more?;
        }
    }
}

/// Checks that are due and checks in progress. A change interrupts none of them, and nothing waits for all of them.
struct Checks {
    state: Arc<State>,
    due: VecDeque<Key>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Checks {
    fn new(state: &Arc<State>) -> Self {
        Self { state: Arc::clone(state), due: VecDeque::new(), running: FuturesUnordered::new() }
    }

    /// Plans a check of each server, the new ones first.
    fn plan(&mut self, table: &Table) {
        let mut services: Vec<&ApiService> = table.services().collect();
        services.sort_by_key(|service| service.availability != Availability::pending());
        for service in services {
            if !self.due.contains(&service.key()) {
                self.due.push_back(service.key());
            }
        }
    }

    /// Runs the checks that are due, for as long as it is polled.
    async fn run(&mut self) -> Infallible {
        loop {
            while self.running.len() < CHECKS_AT_ONCE
                && let Some(key) = self.due.pop_front()
            {
                self.running.push(check_one(Arc::clone(&self.state), key).boxed());
            }
            if self.running.next().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Checks a server, publishes the result, and writes it as the server's condition, unless the server has been replaced.
async fn check_one(state: Arc<State>, key: Key) {
    let Some(service) = state.aggregator.table().get(&key).cloned() else { return };
    let (availability, resources) = check(&state, &service).await;
    let resources = resources.or_else(|| service.resources.clone());
    let service = ApiService { availability, resources, ..service };
    state.aggregator.change(|table| table.with(&service));
    if let Err(error) = report(&state, &service).await {
        tracing::warn!(%error, name = service.name, "the status of an APIService cannot be written");
    }
}

async fn watch(
    state: &Arc<State>,
    group: &'static str,
    resource: &'static str,
    weight: Weight,
) -> Result<Watch, ApiError> {
    state
        .perform(weight, move |state| {
            let options = ListOptions { send_initial_events: Some(false), ..ListOptions::default() };
            let options = ListOptions {
                resource_version_match: Some(gc_registry::api::VersionMatch::NotOlderThan),
                ..options
            };
            state.registry.watch(&follow::target(state, group, resource)?, &options)
        })
        .await
}

/// Waits until something changes that affects the table.
async fn changed(watches: &mut [Watch], table: &Table) -> Result<(), ApiError> {
    std::future::poll_fn(|context| poll_changed(watches, table, context)).await
}

fn poll_changed(
    watches: &mut [Watch],
    table: &Table,
    context: &mut Context<'_>,
) -> Poll<Result<(), ApiError>> {
    for (index, watch) in watches.iter_mut().enumerate() {
        while let Poll::Ready(event) = watch.poll_next(context) {
            let object = match event {
                Some(
                    WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object),
                ) => object,
                Some(WatchEvent::Bookmark { .. }) => continue,
                Some(WatchEvent::Error(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(ApiError::internal("a watch of the server itself ended"))),
            };
            if index == 0 || object.metadata().is_ok_and(|metadata| is_behind(metadata, table)) {
                return Poll::Ready(Ok(()));
            }
        }
    }
    Poll::Pending
}

/// Reports whether a Service or EndpointSlice belongs to an aggregated server.
fn is_behind(metadata: &Value, table: &Table) -> bool {
    let label = &metadata["labels"]["kubernetes.io/service-name"];
    table.services().any(|service| {
        let (namespace, name, _) = &service.service;
        metadata["namespace"] == **namespace && (metadata["name"] == **name || *label == **name)
    })
}

/// Reads the table, and publishes it with the known check results of its servers.
async fn read(state: &Arc<State>, weight: Weight) -> Result<Arc<Table>, ApiError> {
    let objects = state.perform(weight, |state| follow::list(state, GROUP, RESOURCE)).await?;
    Ok(state.aggregator.change(|before| Table::read(&objects, before)))
}

/// Writes the condition of an APIService, if it has changed.
async fn report(state: &Arc<State>, service: &ApiService) -> Result<(), ApiError> {
    let (service, availability) = (service.clone(), service.availability.clone());
    let name = service.name.clone();
    state
        .perform(Weight::Write, move |state| {
            let target = RequestTarget { name, ..follow::target(state, GROUP, RESOURCE)? };
            let status = RequestTarget { subresource: "status".into(), ..target.clone() };
            state.as_server("kube-aggregator", |registry, context| {
                let read = Operation::Get { resource_version: String::new() };
                let ResponseBody::Object(object) = registry.handle(&target, read, context)?.body else {
                    return Ok(());
                };
                let mut object = (**object.value()?).clone();
                if !ApiService::read(&object).is_some_and(|stored| stored.is_same_server(&service)) {
                    return Ok(());
                }
                let found = json!({
                    "type": "Available", "status": if availability.is_available { "True" } else { "False" },
                    "reason": availability.reason, "message": availability.message,
                });
                if !set_condition(&mut object, found, context.now) {
                    return Ok(());
                }
                let body = RequestBody::from(object);
                match registry.handle(&status, Operation::Update(body, WriteOptions::default()), context) {
                    // The APIService was changed or deleted in the meantime, and that change triggers another check.
                    Err(error) if matches!(error.code, 404 | 409) => Ok(()),
                    other => other.map(drop),
                }
            })
        })
        .await
}

/// Replaces the condition of the same type; returns `false` if nothing changes.
fn set_condition(object: &mut Value, mut found: Value, now: jiff::Timestamp) -> bool {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let before = conditions.iter().find(|condition| condition["type"] == found["type"]);
    let is_same = |key: &str| before.is_some_and(|before| before[key] == found[key]);
    if ["status", "reason", "message"].into_iter().all(is_same) {
        return false;
    }
    let since = before.filter(|before| before["status"] == found["status"]);
    let since = since.map(|before| before["lastTransitionTime"].clone());
    found["lastTransitionTime"] =
        since.unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    let kind = found["type"].clone();
    let mut rest: Vec<Value> = conditions.into_iter().filter(|condition| condition["type"] != kind).collect();
    rest.push(found);
    object["status"]["conditions"] = rest.into();
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_condition_changes_its_time_with_its_status() {
        let at = |text: &str| -> jiff::Timestamp { text.parse().unwrap() };
        let found = |status: &str, reason: &str| json!({"type": "Available", "status": status, "reason": reason, "message": "m"});
        let mut object = json!({"status": {}});
        let time = |object: &Value| object["status"]["conditions"][0]["lastTransitionTime"].clone();
        assert!(set_condition(&mut object, found("False", "A"), at("2026-01-01T00:00:00Z")));
        assert!(!set_condition(&mut object, found("False", "A"), at("2026-01-01T00:00:01Z")));
        assert!(set_condition(&mut object, found("False", "B"), at("2026-01-01T00:00:02Z")));
        assert_eq!(time(&object), "2026-01-01T00:00:00Z");
        assert!(set_condition(&mut object, found("True", "C"), at("2026-01-01T00:00:03Z")));
        assert_eq!(time(&object), "2026-01-01T00:00:03Z");
        assert_eq!(object["status"]["conditions"].as_array().unwrap().len(), 1);
    }
}
