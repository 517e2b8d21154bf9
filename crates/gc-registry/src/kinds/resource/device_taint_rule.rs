//! Taints of devices set by an administrator, served since 1.37.

use super::device::device_taint;
use super::requests::driver_name;
use super::status::pool_name;
use crate::kinds::prelude::*;
use crate::kinds::printers::duration::since;
use crate::kinds::shared::conditions::conditions;
use crate::kinds::shared::names::label;

const CONDITIONS_MAX: usize = 8;
const TAINT: &str = "api.resource.v1.DeviceTaint";

pub(crate) struct DeviceTaintRule;

impl Kind for DeviceTaintRule {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Key", F(TAINT, "key")),
        H::text("Value", F(TAINT, "value")),
        H::text("Effect", F(TAINT, "effect")),
        H::text("TimeAdded", F(TAINT, "timeAdded")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let added = at(row.object, &["spec", "taint", "timeAdded"]);
        let added = added.map_or_else(String::new, |time| since(Some(time), row.now));
        let shown = |name: &str| row.shown(&["spec", "taint", name]);
        vec![row.name(), shown("key"), shown("value"), shown("effect"), added.into(), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn prepare_create(object: &mut Value, context: &Context<'_>) {
        if let Some(taint) = taint(object) {
            fill_absent(taint, "timeAdded", context.time());
        }
    }

    /// Updates the time along with the effect: if a client changes only the effect, the time becomes that of the change.
    fn prepare_update(new: &mut Value, old: &Value, context: &Context<'_>) {
        let before = |name: &str| at(old, &["spec", "taint", name]);
        let Some(taint) = taint(new) else { return };
        if taint.get("effect") != before("effect") && taint.get("timeAdded") == before("timeAdded") {
            taint.insert("timeAdded".into(), context.time().into());
        }
        fill_absent(taint, "timeAdded", context.time());
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let selector = spec.get("deviceSelector");
        for (name, check) in [
            ("driver", driver_name as fn(&Field<'_, '_>, &mut Report)),
            ("pool", pool_name),
            ("device", label),
        ] {
            let field = selector.get(name);
            if field.is_set() {
                check(&field, report);
            }
        }
        device_taint(&spec.get("taint"), report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        let list = status.get("conditions");
        conditions(&list, report);
        if list.list().len() > CONDITIONS_MAX {
            report.too_many(&list, list.list().len(), CONDITIONS_MAX);
        }
    }
}

fn taint(object: &mut Value) -> Option<&mut Members> {
    let spec = object.as_object_mut().and_then(|members| existing(members, "spec"))?;
    existing(spec, "taint")
}
