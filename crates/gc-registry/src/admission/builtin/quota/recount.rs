//! Periodically recounts the usage of quotas, because a deletion does not return the usage of its object.

use std::sync::Arc;

use gc_types::Quantity;
use serde_json::Value;

use super::pods::{self, Amounts};
use super::{COUNTED_BY_NAME, PER_DEVICE_CLASS, in_scopes, usage, written};
use crate::error::ApiError;
use crate::kinds::access::{at, members, text};
use crate::persist;
use crate::registry::Registry;
use crate::resource::ResourceDefinition;
use crate::storage::{Condition, KeyValue, RangeOptions, Transaction, Write};

impl Registry {
    /// Updates the status of all quotas. A quota that is charged concurrently is left for the next time.
    pub(crate) fn recount_quotas(&self) -> Result<(), ApiError> {
        let catalog = self.catalog();
        let Some(definition) = catalog.find("", "v1", "resourcequotas").filter(|_| self.config.counts_quotas)
        else {
            return Ok(());
        };
        for stored in self.stored_under(&persist::resource_prefix(definition))? {
            let mut quota = persist::decode(definition, &stored)?;
            let (hard, used) = self.counted(&quota)?;
            let status = |member: &str| at(&quota, &["status", member]).cloned().unwrap_or_default();
            if (status("hard"), status("used")) == (hard.clone(), used.clone()) {
                continue;
            }
            quota["status"] = serde_json::json!({"hard": hard, "used": used});
            let write = Write::Put(Arc::clone(&stored.key), persist::encode(definition, &quota)?);
            let condition = Condition { key: stored.key, mod_revision: stored.mod_revision };
            let transaction = Transaction { conditions: vec![condition], writes: vec![write] };
            self.storage.commit(transaction).map_err(persist::storage_error)?;
        }
        Ok(())
    }

    fn stored_under(&self, prefix: &str) -> Result<Vec<KeyValue>, ApiError> {
        let answer = self.storage.range(prefix, &RangeOptions::default());
        answer.map(|answer| answer.items).map_err(persist::storage_error)
    }

    /// Returns the limits of a quota, and the usage of the limited resources.
    fn counted(&self, quota: &Value) -> Result<(Value, Value), ApiError> {
        let hard = pods::amounts(members(quota, &["spec", "hard"]));
        let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::default())).collect();
        let namespace = text(quota, &["metadata", "namespace"]);
        let catalog = self.catalog();
        for group in catalog.groups() {
            // All versions of a resource are stored in the same form.
            let Some(version) = group.versions.first() else { continue };
            for resource in version.resources.iter().filter(|resource| bounds(&hard, resource)) {
                for stored in self.stored_under(&persist::collection_prefix(resource, namespace))? {
                    let object = persist::decode(resource, &stored)?;
                    if in_scopes(resource, &object, quota) {
                        let mut amounts = usage(resource, &object);
                        amounts.retain(|name, _| hard.contains_key(name));
                        pods::add(&mut used, &amounts);
                    }
                }
            }
        }
        Ok((written(&hard), written(&used)))
    }
}

/// Reports whether a quota limits anything about a resource.
fn bounds(hard: &Amounts, resource: &ResourceDefinition) -> bool {
    if !resource.namespaced() || !resource.has_verb("create") {
        return false;
    }
    let counted = format!("count/{}", gc_types::group_resource(&resource.group, &resource.resource));
    let is_core = resource.group.is_empty();
    hard.keys().any(|name| {
        *name == counted
            || (is_core && COUNTED_BY_NAME.contains(&name.as_str()) && *name == *resource.resource)
            || (resource.is("", "services") && name.starts_with("services."))
            || (resource.is("", "persistentvolumeclaims") && name.contains("storage"))
            || (resource.is("resource.k8s.io", "resourceclaims") && name.ends_with(PER_DEVICE_CLASS))
            || (resource.is("", "pods")
                && !name.starts_with("count/")
                && !COUNTED_BY_NAME.contains(&name.as_str()))
    })
}
