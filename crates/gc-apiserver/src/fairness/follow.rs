//! Keeps the configuration of priority and fairness what the stored objects say.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use gc_registry::api::{
    ListOptions, Operation, PatchType, RequestBody, RequestTarget, ResponseBody, WatchEvent, WriteOptions,
};
use gc_registry::error::ApiError;
use gc_registry::watch::Watch;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::configuration::Configuration;
use super::dangling;
use crate::state::{State, system_user};
use crate::work::Weight;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const RESOURCES: [&str; 2] = ["flowschemas", "prioritylevelconfigurations"];
/// How long to wait before a watch that broke is taken up again.
const PAUSE: Duration = Duration::from_millis(200);
/// The least time between two readings: upstream's conditions are there when a client asks next.
const MOMENT: Duration = Duration::from_millis(10);

/// Reads schemas and levels, and keeps following them in the background.
pub(crate) async fn follow(state: &Arc<State>, background: &mut JoinSet<()>) -> Result<(), ApiError> {
    read(state).await?;
    for resource in RESOURCES {
        background.spawn(keep_following(Arc::clone(state), resource).boxed());
    }
    Ok(())
}

fn target(state: &State, resource: &str) -> Result<RequestTarget, ApiError> {
    let catalog = state.registry.catalog();
    let definition = catalog
        .find(GROUP, "v1", resource)
        .ok_or_else(|| ApiError::internal(format!("{resource}.{GROUP} is not served")))?;
    Ok(RequestTarget::collection(definition))
}

async fn read(state: &Arc<State>) -> Result<(), ApiError> {
    let [schemas, levels] = state
        .perform(Weight::ReadMany, |state| Ok([list(state, RESOURCES[0])?, list(state, RESOURCES[1])?]))
        .await?;
    state.work.configure(Configuration::new(&schemas, &levels));
    for (name, status) in dangling::changed(&schemas, &levels, jiff::Timestamp::now()) {
        let written = state.perform(Weight::Write, move |state| write_status(state, &name, &status)).await;
        // Whoever changed the schema meanwhile made another event.
        if let Err(error) = written
            && !matches!(error.code, 404 | 409)
        {
            tracing::warn!(%error, "the condition of a flow schema cannot be written");
        }
    }
    Ok(())
}

/// Applies a status to a schema, as the manager that upstream has for it.
fn write_status(state: &State, name: &str, status: &Value) -> Result<(), ApiError> {
    let target =
        RequestTarget { name: name.into(), subresource: "status".into(), ..target(state, RESOURCES[0])? };
    let value = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "FlowSchema", "metadata": {"name": name}, "status": status,
    });
    let options =
        WriteOptions { field_manager: MANAGER.into(), force: Some(true), ..WriteOptions::default() };
    let body = RequestBody::from(value);
    let operation = Operation::Patch(PatchType::Apply, body, options);
    state
        .with_context(&system_user(), MANAGER, |registry, context| {
            registry.handle(&target, operation, context)
        })
        .map(drop)
}

fn list(state: &State, resource: &str) -> Result<Vec<Value>, ApiError> {
    let target = target(state, resource)?;
    let operation = Operation::List(ListOptions::default());
    let answer = state
        .with_context(&system_user(), "", |registry, context| registry.handle(&target, operation, context))?;
    let ResponseBody::List(list) = answer.body else {
        return Err(ApiError::internal("a list was not answered with a list"));
    };
    list.items.iter().map(|item| Ok((**item.value()?).clone())).collect()
}

async fn keep_following(state: Arc<State>, resource: &'static str) {
    loop {
        if let Err(error) = follow_once(&state, resource).await {
            tracing::warn!(%error, resource, "priority and fairness cannot be read, and what was read last applies");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads again whenever something changes, until the watch ends.
async fn follow_once(state: &Arc<State>, resource: &'static str) -> Result<(), ApiError> {
    let mut watch: Watch = state
        .perform(Weight::ReadMany, move |state| {
            state.registry.watch(&target(state, resource)?, &ListOptions::default())
        })
        .await?;
    read(state).await?;
    let mut next = std::future::poll_fn(|cx| watch.poll_next(cx)).await;
    while let Some(event) = next {
        if let WatchEvent::Error(error) = event {
            return Err(error);
        }
        read(state).await?;
        // Changes seldom come alone: those of a moment are read once.
        tokio::time::sleep(MOMENT).await;
        let mut is_newer = false;
        while let Some(Some(event)) = std::future::poll_fn(|cx| watch.poll_next(cx)).now_or_never() {
            if let WatchEvent::Error(error) = event {
                return Err(error);
            }
            is_newer = true;
        }
        if is_newer {
            read(state).await?;
        }
        next = std::future::poll_fn(|cx| watch.poll_next(cx)).await;
    }
    Ok(())
}
