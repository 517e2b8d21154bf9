//! Keeps the configuration of priority and fairness in step with the stored objects.

use std::sync::Arc;

use futures::FutureExt as _;
use gc_registry::api::{
    ListOptions, Operation, PatchType, RequestBody, RequestTarget, VersionMatch, WatchEvent, WriteOptions,
};
use gc_registry::error::ApiError;
use gc_registry::object::Object;
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
    // No request is answered yet, so nothing is read on another thread.
    let mut opened = Vec::new();
    for resource in RESOURCES {
        opened.push((resource, watch(state, resource, Weight::Read).await?));
    }
    let (objects, schemas) = state.perform(Weight::Read, list).await?;
    let known = state.readings.as_ref().and_then(|readings| readings.configuration(&objects));
    if let Some(configuration) = known {
        state.work.configure(configuration);
    } else if let Some(configuration) = apply(state, &objects, schemas).await?
        && let Some(readings) = &state.readings
    {
        readings.keep_configuration(objects, &configuration);
    }
    for (resource, watch) in opened {
        let mut first = Some(watch);
        let state = Arc::clone(state);
        let follow = follow::keep_following(resource, move || {
            let (state, first) = (Arc::clone(&state), first.take());
            async move { follow_once(&state, resource, first).await }
        });
        background.spawn(follow.boxed());
    }
    Ok(())
}

/// Lists schemas and, after them, levels; says how many schemas there are.
fn list(state: &State) -> Result<(Vec<Arc<Object>>, usize), ApiError> {
    let mut objects = follow::objects_at(state, &follow::target(state, GROUP, RESOURCES[0])?)?;
    let schemas = objects.len();
    objects.extend(follow::objects_at(state, &follow::target(state, GROUP, RESOURCES[1])?)?);
    Ok((objects, schemas))
}

async fn read(state: &Arc<State>) -> Result<(), ApiError> {
    let (objects, schemas) = state.perform(Weight::ReadMany, list).await?;
    apply(state, &objects, schemas).await.map(drop)
}

/// Puts the configuration of these objects in force, and has their conditions say what they should. Returns the configuration if
/// they say so already.
async fn apply(
    state: &Arc<State>,
    objects: &[Arc<Object>],
    schemas: usize,
) -> Result<Option<Arc<Configuration>>, ApiError> {
    let values = follow::values(objects)?;
    let (schemas, levels) = values.split_at(schemas);
    let configuration = Arc::new(Configuration::new(schemas, levels));
    state.work.configure(Arc::clone(&configuration));
    let changed = dangling::changed(schemas, levels, state.clock.now());
    let is_settled = changed.is_empty();
    for (name, status) in changed {
        let written = state.perform(Weight::Write, move |state| write_status(state, &name, &status)).await;
        // A concurrent change to the schema triggers its own event, so a conflict needs no retry.
        if let Err(error) = written
            && !matches!(error.code, 404 | 409)
        {
            tracing::warn!(%error, "the condition of a flow schema cannot be written");
        }
    }
    Ok(is_settled.then_some(configuration))
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

async fn watch(state: &Arc<State>, resource: &'static str, weight: Weight) -> Result<Watch, ApiError> {
    state
        .perform(weight, move |state| {
            let options = ListOptions {
                send_initial_events: Some(false),
                resource_version_match: Some(VersionMatch::NotOlderThan),
                ..ListOptions::default()
            };
            state.registry.watch(&follow::target(state, GROUP, resource)?, &options)
        })
        .await
}

/// Reads the configuration again on every change, until the watch ends. That is `opened`, after which the configuration was read, or a
/// new one.
async fn follow_once(
    state: &Arc<State>,
    resource: &'static str,
    opened: Option<Watch>,
) -> Result<(), ApiError> {
    let mut watch = match opened {
        Some(watch) => watch,
        None => {
            let watch = watch(state, resource, Weight::ReadMany).await?;
            read(state).await?;
            watch
        }
    };
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
