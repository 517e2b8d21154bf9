//! Values as text.

use crate::text;
use crate::time::printed_duration;
use crate::value::Val;

/// Converts a value to text, for `string()` and messages.
#[must_use]
pub fn printed(value: &Val<'_>) -> String {
    match value {
        Val::Null => "null".into(),
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => value.to_string(),
        Val::Double(value) => text::double(*value),
        Val::Text(text) => text.to_string(),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Duration(nanoseconds) => printed_duration(*nanoseconds),
        Val::Timestamp(timestamp) => timestamp.to_string(),
        Val::Type(name) | Val::Format(name) => (*name).to_owned(),
        Val::Json(value, _) => value.to_string(),
        Val::Quantity(billionths) => {
            let (whole, rest) = (billionths / 1_000_000_000, (billionths % 1_000_000_000).abs());
            if rest == 0 {
                whole.to_string()
            } else {
                format!("{whole}.{rest:09}").trim_end_matches('0').into()
            }
        }
        Val::List(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(", ")),
        Val::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}: {}", printed(key), printed(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Val::Check(check) => check.type_name().to_owned(),
        Val::Decision(allowed) => allowed.to_string(),
        Val::Url(url) => url.to_string(),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(address, bits) => format!("{address}/{bits}"),
        Val::Semver(version) => version.to_string(),
        Val::Optional(Some(value)) => format!("optional({})", printed(value)),
        Val::Optional(None) => "optional.none()".into(),
    }
}
