//! Machines at a provider.

use std::sync::Arc;

use futures::future::BoxFuture;
use gc_collectors::engine::StorageFailure;
use gc_kube::{Outside, OutsideAnswer};
use gc_types::{ObjectKey, OutsideCall};

use crate::cloud::{Machine, Provider};

/// Machines of a provider.
pub struct MachinesOutside(pub Arc<dyn Provider>);

impl Outside for MachinesOutside {
    fn call(&self, key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        let provider = Arc::clone(&self.0);
        Box::pin(async move {
            let OutsideCall::LookUpMachine { provider_id } = call else {
                let message = "storage is not known here".to_owned();
                return OutsideAnswer::Storage(None, Err(StorageFailure { in_use: false, message }));
            };
            let machine = Machine { node: key.name.to_string(), provider_id: provider_id.to_string() };
            OutsideAnswer::Machine(provider.look_up(machine).await.map_err(|error| error.to_string()))
        })
    }
}
