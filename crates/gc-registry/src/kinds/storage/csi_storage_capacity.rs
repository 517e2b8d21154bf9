//! What storage is left where.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::quantity::Quantity;
use crate::kinds::report::{NOT_NEGATIVE, Report};
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::names::subdomain;
use crate::resource::Target;

pub(crate) struct CsiStorageCapacity;

impl Kind for CsiStorageCapacity {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        selector(&object.get("nodeTopology"), report);
        subdomain(&object.get("storageClassName"), report);
        let size = object.get("capacity");
        if size.quantity().is_some_and(Quantity::is_negative) {
            report.invalid(&size, NOT_NEGATIVE);
        }
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        self.validate(target, new, report);
        report.immutable(&new.get("nodeTopology"), &old.get("nodeTopology"));
        report.immutable_text(&new.get("storageClassName"), &old.get("storageClassName"));
    }
}
