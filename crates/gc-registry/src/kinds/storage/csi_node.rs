//! CSI nodes.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{csi_driver_name, qualified_name};
use crate::target::Target;

const NODE_ID_MAX_BYTES: usize = 256;

pub(crate) struct CsiNode;

impl Kind for CsiNode {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer("Drivers", T("Drivers indicates the number of CSI drivers registered on the node")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.list(&["spec", "drivers"]).len().into(), row.age()]
    }

    /// Does nothing: nulls and empty lists stay.
    fn normalize(_: Target<'_>, _: &mut Value) {}

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let mut names = BTreeSet::new();
        for driver in spec.get("drivers").items() {
            let (name, id) = (driver.get("name"), driver.get("nodeID"));
            csi_driver_name(&name, report);
            if id.text().is_empty() {
                report.required(&id, "");
            } else if id.text().len() > NODE_ID_MAX_BYTES {
                report.invalid(&id, &format!("must be {NODE_ID_MAX_BYTES} characters or less"));
            }
            report.not_negative(&driver.get("allocatable").get("count"));
            if !names.insert(name.text()) {
                report.duplicate_text(&name, name.text());
            }
            let keys = driver.get("topologyKeys");
            let mut seen = BTreeSet::new();
            // Upstream's path is that of the driver, not of its keys.
            for key in keys.texts() {
                if key.is_empty() {
                    report.required(&driver, "");
                }
                if !seen.insert(key) {
                    report.duplicate_text(&driver, key);
                }
                report.each_of(&driver, key, qualified_name(key));
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        let (spec, before) = (new.get("spec"), old.get("spec"));
        let before = before.get("drivers");
        let was: BTreeMap<&str, &Value> =
            before.items().map(|driver| (driver.text_of("name"), driver.value())).collect();
        let drivers = spec.get("drivers");
        for driver in drivers.items() {
            let Some(was) = was.get(driver.text_of("name")) else { continue };
            if ["nodeID", "topologyKeys"]
                .iter()
                .any(|member| driver.member(member) != was.get(*member).unwrap_or(&Value::Null))
            {
                // Mutable fields are neither compared nor shown.
                let shown = format!(
                    "{{\"Name\":{},\"NodeID\":{},\"TopologyKeys\":{},\"Allocatable\":null}}",
                    Value::from(driver.text_of("name")),
                    Value::from(driver.text_of("nodeID")),
                    driver.member("topologyKeys"),
                );
                report.invalid_shown(&drivers, &shown, IMMUTABLE);
            }
        }
    }
}
