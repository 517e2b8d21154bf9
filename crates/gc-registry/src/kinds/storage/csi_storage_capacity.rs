//! What storage is left where.

use crate::kinds::access::at;
use crate::kinds::kind::prelude::*;
use crate::kinds::quantity::Quantity;
use crate::kinds::report::NOT_NEGATIVE;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::names::subdomain;
use crate::kinds::shared::warnings::node_labels;

pub(crate) struct CsiStorageCapacity;

impl Kind for CsiStorageCapacity {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Neither, generation: Generation::NONE }
    }

    fn columns(&self) -> &'static [Heading] {
        Heading::PLAIN
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.created()]
    }

    fn defaults(&self, _: &mut Members) {}

    fn warnings(&self, new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        node_labels::in_selector("nodeTopology", at(new, &["nodeTopology"]), texts);
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        selector(&object.get("nodeTopology"), report);
        subdomain(&object.get("storageClassName"), report);
        let size = object.get("capacity");
        if size.quantity().is_some_and(Quantity::is_negative) {
            report.invalid(&size, NOT_NEGATIVE);
        }
    }

    fn validate_update(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        self.validate(new, report);
        report.immutable(&new.get("nodeTopology"), &old.get("nodeTopology"));
        report.immutable_text(&new.get("storageClassName"), &old.get("storageClassName"));
    }
}
