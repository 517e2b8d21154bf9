//! Service accounts: nothing but their metadata is checked.

use crate::kinds::access::items;
use crate::kinds::kind::prelude::*;

const COLUMNS: &[Heading] = &[H::NAME, H::AGE];

pub(crate) struct ServiceAccount;

impl Kind for ServiceAccount {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Neither, generation: Generation::NONE }
    }

    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }

    fn defaults(&self, _: &mut Members) {}

    fn prepare_create(&self, object: &mut Value, _: &Context<'_>) {
        only_names_of_secrets(object);
    }

    fn prepare_update(&self, new: &mut Value, _: &Value, _: &Context<'_>) {
        only_names_of_secrets(new);
    }

    fn validate(&self, _: &Field<'_, '_>, _: &mut Report) {}
}

/// A service account names its secrets and says nothing else of them.
fn only_names_of_secrets(object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    for secret in items(members, "secrets") {
        secret.retain(|key, _| key == "name");
    }
}
