//! Available storage by topology.

use gc_types::Quantity;

use crate::kinds::prelude::*;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::names::subdomain;
use crate::kinds::shared::warnings::node_labels;

pub(crate) struct CsiStorageCapacity;

impl Kind for CsiStorageCapacity {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = Column::PLAIN;

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.created()]
    }

    fn defaults(_: &mut Members) {}

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        node_labels::in_selector("nodeTopology", at(new, &["nodeTopology"]), texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        selector(&object.get("nodeTopology"), report);
        subdomain(&object.get("storageClassName"), report);
        let size = object.get("capacity");
        if size.quantity().is_some_and(Quantity::is_negative) {
            report.invalid(&size, NOT_NEGATIVE);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        report.immutable(&new.get("nodeTopology"), &old.get("nodeTopology"));
        report.immutable_text(&new.get("storageClassName"), &old.get("storageClassName"));
    }
}
