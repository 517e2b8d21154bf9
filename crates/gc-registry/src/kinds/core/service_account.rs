//! Service accounts: only their metadata is validated.

use crate::kinds::prelude::*;
use crate::kinds::shared::pod_spec::ENFORCE;

pub(crate) struct ServiceAccount;

impl Kind for ServiceAccount {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const COLUMNS: &'static [Column] = &[H::NAME, H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn prepare_create(object: &mut Value, _: &Context<'_>) {
        only_names_of_secrets(object);
    }

    fn prepare_update(new: &mut Value, _: &Value, _: &Context<'_>) {
        only_names_of_secrets(new);
    }

    /// Warns about a new annotation.
    fn warnings(account: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        let is_set = |account: &Value| at(account, &["metadata", "annotations", ENFORCE]).is_some();
        if is_set(account) && !old.is_some_and(is_set) {
            texts.push(format!(
                "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
                 mounted secrets"
            ));
        }
    }

    fn validate(_: &Field<'_, '_>, _: &mut Report) {}
}

/// Reduces the secrets of a service account to their names.
fn only_names_of_secrets(object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    for secret in items(members, "secrets") {
        secret.retain(|key, _| key == "name");
    }
}
