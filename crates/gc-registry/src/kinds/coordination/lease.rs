//! Leases.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::resource::Target;

pub(crate) struct Lease;

impl Kind for Lease {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.positive(&spec.get("leaseDurationSeconds"));
        report.not_negative(&spec.get("leaseTransitions"));
        let holder = spec.get("preferredHolder");
        if !holder.text().is_empty() && spec.text_of("strategy").is_empty() {
            report.forbidden(&holder, "may only be specified when `strategy` is defined");
        }
    }
}
