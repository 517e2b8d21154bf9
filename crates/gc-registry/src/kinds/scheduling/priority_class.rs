//! Priority classes.

use crate::kinds::prelude::*;

/// Maximum priority of a user-defined class.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

pub(crate) struct PriorityClass;

impl Kind for PriorityClass {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Counts(&[]);
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer("Value", F("api.scheduling.v1.PriorityClass", "value")),
        H::boolean("Global-Default", F("api.scheduling.v1.PriorityClass", "globalDefault")),
        H::AGE,
        H::text("PreemptionPolicy", F("api.scheduling.v1.PriorityClass", "preemptionPolicy")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name(),
            row.number(&["value"]).into(),
            row.flag_or(&["globalDefault"], false),
            row.age(),
            row.shown(&["preemptionPolicy"]),
        ]
    }

    fn defaults(members: &mut Members) {
        fill_absent(members, "value", 0);
        fill_absent(members, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let (metadata, value) = (object.get("metadata"), object.get("value"));
        let name = metadata.text_of("name");
        if name.starts_with("system-") {
            let known = matches!(
                (name, value.number()),
                ("system-node-critical", 2_000_001_000) | ("system-cluster-critical", 2_000_000_000)
            );
            if !known {
                report.forbidden(
                    &metadata.get("name"),
                    "priority class names with 'system-' prefix are reserved for system use only. error: only system \
                     priority classes are allowed to start with 'system-'",
                );
            }
        } else if value.number() > USER_PRIORITY_MAX {
            let why = format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
            report.forbidden(&value, &why);
        }
        let policy = object.get("preemptionPolicy");
        if policy.is_set() {
            report.one_of(&policy, &["PreemptLowerPriority", "Never"]);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        if new.number_of("value") != old.number_of("value") {
            report.forbidden(&new.get("value"), "may not be changed in an update.");
        }
        report.immutable(&new.get("preemptionPolicy"), &old.get("preemptionPolicy"));
    }
}
