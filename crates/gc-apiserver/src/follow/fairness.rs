//! Keeps the configuration of priority and fairness in step with the stored objects.

use std::sync::Arc;

use futures::FutureExt as _;
use gc_registry::api::{
    ListOptions, Operation, PatchType, RequestBody, RequestTarget, WatchEvent, WriteOptions,
};
use gc_registry::error::ApiError;
use gc_registry::watch::Watch;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fairness::configuration::Configuration;
use crate::fairness::dangling;
use crate::follow;
use crate::state::State;
use crate::work::Weight;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const RESOURCES: [&str; 2] = ["flowschemas", "prioritylevelconfigurations"];

/// Reads schemas and levels, and keeps following them in the background.
pub(crate) async fn follow(state: &Arc<State>, background: &mut JoinSet<()>) -> Result<(), ApiError> {
    read(state).await?;
    for resource in RESOURCES {
        let state = Arc::clone(state);
        let follow = follow::keep_following(resource, move || {
            let state = Arc::clone(&state);
            async move { follow_once(&state, resource).await }
        });
        background.spawn(follow.boxed());
    }
    Ok(())
}

async fn read(state: &Arc<State>) -> Result<(), ApiError> {
    let [schemas, levels] = state
        .perform(Weight::ReadMany, |state| {
            Ok([follow::list(state, GROUP, RESOURCES[0])?, follow::list(state, GROUP, RESOURCES[1])?])
        })
        .await?;
    state.work.configure(Configuration::new(&schemas, &levels));
    for (name, status) in dangling::changed(&schemas, &levels, state.clock.now()) {
        let written = state.perform(Weight::Write, move |state| write_status(state, &name, &status)).await;
        // A concurrent change to the schema triggers its own event, so a conflict needs no retry.
        if let Err(error) = written
            && !matches!(error.code, 404 | 409)
        {
            tracing::warn!(%error, "the condition of a flow schema cannot be written");
        }
    }
    Ok(())
}

/// Applies a status to a schema, with the field manager that upstream uses.
fn write_status(state: &State, name: &str, status: &Value) -> Result<(), ApiError> {
    let target = RequestTarget {
        name: name.into(),
        subresource: "status".into(),
        ..follow::target(state, GROUP, RESOURCES[0])?
    };
    let value = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "FlowSchema", "metadata": {"name": name}, "status": status,
    });
    let options =
        WriteOptions { field_manager: MANAGER.into(), force: Some(true), ..WriteOptions::default() };
    let body = RequestBody::from(value);
    let operation = Operation::Patch(PatchType::Apply, body, options);
    state.as_server(MANAGER, |registry, context| registry.handle(&target, operation, context)).map(drop)
}

/// Reads the configuration again on every change, until the watch ends.
async fn follow_once(state: &Arc<State>, resource: &'static str) -> Result<(), ApiError> {
    let mut watch: Watch = state
        .perform(Weight::ReadMany, move |state| {
            state.registry.watch(&follow::target(state, GROUP, resource)?, &ListOptions::default())
        })
        .await?;
    read(state).await?;
    let mut next = std::future::poll_fn(|cx| watch.poll_next(cx)).await;
    while let Some(event) = next {
        if let WatchEvent::Error(error) = event {
            return Err(error);
        }
        read(state).await?;
        // Changes seldom come alone, so those of one moment are read once.
        tokio::time::sleep(follow::MOMENT).await;
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
