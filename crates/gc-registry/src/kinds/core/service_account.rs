//! Service accounts: nothing but their metadata is checked.

use crate::kinds::kind::prelude::*;

const COLUMNS: &[Heading] = &[H::NAME, H::AGE];

pub(crate) struct ServiceAccount;

impl Kind for ServiceAccount {
    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }

    fn validate(&self, _: &Field<'_, '_>, _: &mut Report) {}
}
