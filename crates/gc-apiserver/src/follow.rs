//! Follows objects in the server's own store: aggregated servers, priority and fairness, lengths of lists.

pub(crate) mod aggregated;
pub(crate) mod fairness;
pub(crate) mod list_lengths;

use std::sync::Arc;
use std::time::Duration;

use gc_registry::api::{ListOptions, Operation, RequestTarget, ResponseBody};
use gc_registry::error::ApiError;
use gc_registry::object::Object;
use serde_json::Value;

use crate::state::State;

/// Delay before a broken watch is restarted.
const PAUSE: Duration = Duration::from_millis(200);
/// Minimum time between two readings; short enough that conditions are up to date at a client's next request, as upstream.
pub(crate) const MOMENT: Duration = Duration::from_millis(10);

/// Returns the collection of a resource in version `v1`.
pub(crate) fn target(state: &State, group: &str, resource: &str) -> Result<RequestTarget, ApiError> {
    let catalog = state.registry.catalog();
    let definition = catalog
        .find(group, "v1", resource)
        .ok_or_else(|| ApiError::internal(format!("{resource}.{group} is not served")))?;
    Ok(RequestTarget::collection(definition))
}

/// Lists all objects of a resource.
pub(crate) fn list(state: &State, group: &str, resource: &str) -> Result<Vec<Value>, ApiError> {
    list_at(state, &target(state, group, resource)?)
}

/// Lists the objects of a collection.
pub(crate) fn list_at(state: &State, target: &RequestTarget) -> Result<Vec<Value>, ApiError> {
    values(&objects_at(state, target)?)
}

/// Lists the objects of a collection as they are stored.
pub(crate) fn objects_at(state: &State, target: &RequestTarget) -> Result<Vec<Arc<Object>>, ApiError> {
    let operation = Operation::List(ListOptions::default());
    let answer = state.as_server("", |registry, context| registry.handle(target, operation, context))?;
    let ResponseBody::List(list) = answer.body else {
        return Err(ApiError::internal("a list was not answered with a list"));
    };
    Ok(list.items)
}

/// Decodes objects.
pub(crate) fn values(objects: &[Arc<Object>]) -> Result<Vec<Value>, ApiError> {
    objects.iter().map(|object| object.to_value()).collect()
}

/// Restarts `follow` whenever it ends, for as long as the server runs.
pub(crate) async fn keep_following<F>(what: &str, mut follow: impl FnMut() -> F)
where
    F: Future<Output = Result<(), ApiError>>,
{
    loop {
        if let Err(error) = follow().await {
            tracing::warn!(%error, "{what} cannot be read, and what was read last applies");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
