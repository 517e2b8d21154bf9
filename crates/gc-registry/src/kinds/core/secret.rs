//! Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls_pki_types::pem::{PemObject as _, SectionKind};

use super::config_map::{DATA_MAX_BYTES, decoded_length, sealed_data};
use crate::kinds::prelude::*;
use crate::kinds::shared::names::config_key;

const ACCOUNT: &str = "kubernetes.io/service-account.name";
const REDACTED: &str = "<secret contents redacted>";

pub(crate) struct Secret;

impl Kind for Secret {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Type", F("api.core.v1.Secret", "type")),
        H::text("Data", F("api.core.v1.Secret", "data")),
        H::AGE,
    ];
    const FIELD_LABELS: &'static [&'static str] = &["type"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let count = members(row.object, &["data"]).map_or(0, serde_json::Map::len);
        vec![row.name(), row.shown(&["type"]), count.into(), row.age()]
    }

    /// Moves the texts in `stringData` to `data`; they are never returned.
    fn defaults(members: &mut Members) {
        fill(members, "type", "Opaque");
        let Some(Value::Object(texts)) = members.remove("stringData") else { return };
        let encoded = |(key, text): (String, Value)| Some((key, BASE64.encode(text.as_str()?).into()));
        let encoded: Members = texts.into_iter().filter_map(encoded).collect();
        // Without additions, no `data` is created: an empty one is not stored.
        if !encoded.is_empty()
            && let Some(data) = child(members, "data")
        {
            data.extend(encoded);
        }
    }

    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        if text(new, &["type"]).is_empty() {
            keep(new, old, "type");
        }
    }

    /// Warns about an invalid certificate or key, as far as this can be checked without cryptography: a PEM block must exist.
    fn warnings(secret: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        if text(secret, &["type"]) != "kubernetes.io/tls" {
            return;
        }
        for (key, what) in [("tls.crt", "certificate"), ("tls.key", "key")] {
            let bytes = BASE64.decode(text(secret, &["data", key])).unwrap_or_default();
            let mut blocks = <(SectionKind, Vec<u8>)>::pem_slice_iter(&bytes);
            if !blocks.any(|block| block.is_ok()) {
                texts.push(format!("tls: failed to find any PEM data in {what} input"));
                return;
            }
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let data = object.get("data");
        let mut bytes = 0;
        for (key, value) in data.entries() {
            report.each_of(&value, key, config_key(key));
            bytes += decoded_length(value.text());
        }
        if bytes > DATA_MAX_BYTES {
            report.too_long(&data, DATA_MAX_BYTES);
        }
        let mut needs = |keys: &[&str]| {
            for key in keys {
                report.required(&data.key(key, &Value::Null), "");
            }
        };
        match object.text_of("type") {
            "kubernetes.io/service-account-token" => {
                let metadata = object.get("metadata");
                let annotations = metadata.get("annotations");
                if annotations.text_of(ACCOUNT).is_empty() {
                    report.required(&annotations.key(ACCOUNT, &Value::Null), "");
                }
            }
            "kubernetes.io/dockercfg" => json_entry(&data, ".dockercfg", report),
            "kubernetes.io/dockerconfigjson" => json_entry(&data, ".dockerconfigjson", report),
            "kubernetes.io/basic-auth" if !data.has("username") && !data.has("password") => {
                needs(&["username", "password"]);
            }
            "kubernetes.io/ssh-auth" if data.text_of("ssh-privatekey").is_empty() => {
                needs(&["ssh-privatekey"]);
            }
            "kubernetes.io/tls" => {
                for key in ["tls.crt", "tls.key"] {
                    if !data.has(key) {
                        needs(&[key]);
                    }
                }
            }
            _ => {}
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        report.immutable_text(&new.get("type"), &old.get("type"));
        sealed_data(&["data"], new, old, report);
        Self::validate(new, report);
    }
}

fn json_entry(data: &Field<'_, '_>, key: &str, report: &mut Report) {
    let field = data.key(key, data.member(key));
    if !field.is_set() {
        report.required(&field, "");
        return;
    }
    let bytes = BASE64.decode(field.text()).unwrap_or_default();
    if let Err(why) = as_object(&bytes) {
        report.invalid_text(&field, REDACTED, &why);
    }
}

/// Parses a JSON object; the error is in Go's wording.
fn as_object(bytes: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(_) | Value::Null) => Ok(()),
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                _ => "bool",
            };
            Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
        }
        Err(_) => {
            let text = String::from_utf8_lossy(bytes);
            match text.trim_start().chars().next() {
                None | Some('{') => Err("unexpected end of JSON input".into()),
                Some(first) => Err(format!("invalid character '{first}' looking for beginning of value")),
            }
        }
    }
}
