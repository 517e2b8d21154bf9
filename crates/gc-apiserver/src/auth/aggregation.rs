//! Aggregated ClusterRoles: stores in them the rules of the roles that they select, as upstream's controller does.

use std::sync::Arc;
use std::time::Duration;

use gc_registry::api::{Operation, PatchType, RequestBody, RequestTarget, WriteOptions};
use gc_registry::error::ApiError;
use serde_json::{Value, json};

use crate::auth::rbac::{GROUP, OutdatedAggregate, Rule};
use crate::state::State;
use crate::work::Weight;

const MANAGER: &str = "clusterrole-aggregation-controller";
/// Pause after a failed write.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the rules of aggregated roles up to date for as long as the server lives.
pub(crate) async fn keep(state: Arc<State>) {
    loop {
        let outdated = state.access.rbac.rules().outdated_aggregates();
        let mut failed = false;
        for role in outdated {
            let name = role.name.clone();
            match state.perform(Weight::Write, move |state| write(state, &role)).await {
                // The role was deleted in the meantime.
                Err(error) if matches!(error.code, 404 | 409) => {}
                Err(error) => {
                    tracing::warn!(%error, role = name, "cannot store the rules of an aggregated ClusterRole");
                    failed = true;
                }
                Ok(()) => {}
            }
        }
        if failed {
            tokio::time::sleep(PAUSE).await;
        } else {
            state.access.rbac.changed().await;
        }
    }
}

fn write(state: &State, role: &OutdatedAggregate) -> Result<(), ApiError> {
    let catalog = state.registry.catalog();
    let Some(definition) = catalog.find(GROUP, "v1", "clusterroles") else { return Ok(()) };
    let target = RequestTarget { name: role.name.clone(), ..RequestTarget::collection(definition) };
    let rules: Vec<Value> = role.rules.iter().map(Rule::to_value).collect();
    let configuration = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
        "metadata": {"name": role.name, "uid": role.uid}, "rules": rules});
    let body = RequestBody::from(configuration);
    let options =
        WriteOptions { field_manager: MANAGER.into(), force: Some(true), ..WriteOptions::default() };
    let operation = Operation::Patch(PatchType::Apply, body, options);
    state.as_server(MANAGER, |registry, context| registry.handle(&target, operation, context)).map(|_| ())
}
