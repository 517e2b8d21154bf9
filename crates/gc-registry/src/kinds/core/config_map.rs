//! ConfigMaps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::kinds::prelude::*;
use crate::kinds::shared::names::config_key;

/// Maximum number of bytes in the values of a ConfigMap or Secret.
pub(crate) const DATA_MAX_BYTES: usize = 1024 * 1024;
const SEALED: &str = "field is immutable when `immutable` is set";

pub(crate) struct ConfigMap;

impl Kind for ConfigMap {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("Data", F("api.core.v1.ConfigMap", "data")), H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let count = |key: &str| members(row.object, &[key]).map_or(0, serde_json::Map::len);
        vec![row.name(), (count("data") + count("binaryData")).into(), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let (data, binary) = (object.get("data"), object.get("binaryData"));
        let mut bytes = 0;
        for (key, value) in data.entries() {
            report.each_of(&value, key, config_key(key));
            if binary.has(key) {
                report.invalid_text(&value, key, "duplicate of key present in binaryData");
            }
            bytes += value.text().len();
        }
        for (key, value) in binary.entries() {
            report.each_of(&value, key, config_key(key));
            bytes += decoded_length(value.text());
        }
        if bytes > DATA_MAX_BYTES {
            report.too_long(object, DATA_MAX_BYTES);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        sealed_data(&["data", "binaryData"], new, old, report);
        Self::validate(new, report);
    }
}

/// Returns the number of bytes that a base64 text decodes to.
pub(crate) fn decoded_length(text: &str) -> usize {
    BASE64.decode(text).map_or(text.len(), |bytes| bytes.len())
}

/// Refuses changes to data that was made immutable.
pub(crate) fn sealed_data(members: &[&str], new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    if !old.get("immutable").flag() {
        return;
    }
    if !new.get("immutable").flag() {
        report.forbidden(&new.get("immutable"), SEALED);
    }
    for member in members {
        if new.member(member) != old.member(member) {
            report.forbidden(&new.get(member), SEALED);
        }
    }
}
