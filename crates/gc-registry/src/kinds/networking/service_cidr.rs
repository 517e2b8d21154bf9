//! Ranges of the addresses of services.

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{canonical_cidr, parse_cidr};

pub(crate) struct ServiceCidr;

impl Kind for ServiceCidr {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("CIDRs", F("api.networking.v1.ServiceCIDRSpec", "cidrs")), H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let ranges: Vec<&str> = row.list(&["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
        vec![row.name(), ranges.join(",").into(), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let ranges = spec.get("cidrs");
        match ranges.list().len() {
            0 => {
                report.required(&ranges, "at least one CIDR required");
                return;
            }
            1 | 2 => {}
            _ => {
                let shown = format!("{{\"CIDRs\":{}}}", ranges.value());
                report.invalid_shown(&ranges, &shown, "may only hold up to 2 values");
                return;
            }
        }
        ranges.items().for_each(|range| canonical_cidr(&range, report));
        let parsed: Option<Vec<_>> = ranges.texts().map(parse_cidr).collect();
        if let Some([(one, _), (other, _)]) = parsed.as_deref()
            && one.is_ipv4() == other.is_ipv4()
        {
            report.invalid(
                &ranges,
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            );
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let spec = new.get("spec");
        let ranges = spec.get("cidrs");
        let before = old.get("spec");
        let before = before.get("cidrs").list();
        if ranges.list().len() == before.len() {
            for (range, was) in ranges.items().zip(before) {
                if range.value() != was {
                    report.invalid(&range, IMMUTABLE);
                }
            }
        } else if before.len() == 1 && ranges.list().len() == 2 {
            if ranges.list()[0] != before[0] {
                report.invalid(&ranges.index(0), IMMUTABLE);
            }
            Self::validate(new, report);
        } else {
            report.invalid(&ranges, IMMUTABLE);
        }
    }
}
