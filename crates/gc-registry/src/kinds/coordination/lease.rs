//! Leases.

use crate::kinds::prelude::*;

pub(crate) struct Lease;

impl Kind for Lease {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { refuses_plain_finalizers: false, update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("Holder", F("api.coordination.v1.LeaseSpec", "holderIdentity")), H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.shown(&["spec", "holderIdentity"]), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn drop_disabled(members: &mut Members) {
        disabled::drop_from(members, "spec", &["strategy", "preferredHolder"]);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        report.positive(&spec.get("leaseDurationSeconds"));
        report.not_negative(&spec.get("leaseTransitions"));
        let holder = spec.get("preferredHolder");
        if !holder.text().is_empty() && spec.text_of("strategy").is_empty() {
            report.forbidden(&holder, "may only be specified when `strategy` is defined");
        }
    }
}
