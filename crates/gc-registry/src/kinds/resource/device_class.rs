//! Device classes.

use super::requests::{opaque, selectors};
use crate::kinds::kind::prelude::*;
use crate::kinds::shared::names::qualified_name;

const CONFIG_MAX: usize = 32;

const COLUMNS: &[Heading] = &[H::NAME, H::AGE];

pub(crate) struct DeviceClass;

impl Kind for DeviceClass {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Spec, generation: Generation::SPEC }
    }

    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }

    fn defaults(&self, _: &mut Members) {}

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
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
