//! Leases.

use crate::kinds::kind::prelude::*;
use crate::kinds::shared::disabled;

const COLUMNS: &[Heading] =
    &[H::NAME, H::text("Holder", F("api.coordination.v1.LeaseSpec", "holderIdentity")), H::AGE];

pub(crate) struct Lease;

impl Kind for Lease {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Spec, generation: Generation::NONE }
    }

    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.shown(&["spec", "holderIdentity"]), row.age()]
    }

    fn defaults(&self, _: &mut Members) {}

    fn drop_disabled(&self, members: &mut Members) {
        disabled::drop_from(members, "spec", &["strategy", "preferredHolder"]);
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.positive(&spec.get("leaseDurationSeconds"));
        report.not_negative(&spec.get("leaseTransitions"));
        let holder = spec.get("preferredHolder");
        if !holder.text().is_empty() && spec.text_of("strategy").is_empty() {
            report.forbidden(&holder, "may only be specified when `strategy` is defined");
        }
    }
}
