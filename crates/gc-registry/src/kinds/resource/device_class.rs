//! Device classes.

use super::requests::{opaque, selectors};
use crate::kinds::prelude::*;
use crate::kinds::shared::names::qualified_name;
use crate::metadata::names::long_name;

const CONFIG_MAX: usize = 32;

pub(crate) struct DeviceClass;

impl Kind for DeviceClass {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata {
        name: long_name,
        checks_prefixes: false,
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] = &[H::NAME, H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        selectors(&spec.get("selectors"), report);
        let configuration = spec.get("config");
        if configuration.list().len() > CONFIG_MAX {
            report.too_many(&configuration, configuration.list().len(), CONFIG_MAX);
        }
        for entry in configuration.items() {
            opaque(&entry.get("opaque"), report);
        }
        let extended = spec.get("extendedResourceName");
        if extended.is_set() {
            let name = extended.text();
            let domain = name.split('/').next().unwrap_or_default();
            let known =
                !name.contains('/') || domain.ends_with("kubernetes.io") || name.starts_with("requests.");
            if known || !qualified_name(&format!("requests.{name}")).is_empty() {
                report.invalid(&extended, "must be a valid extended resource name");
            }
        }
    }
}
