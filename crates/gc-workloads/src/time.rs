//! Times as objects contain them.

use serde_json::Value;

/// Milliseconds since 1970.
pub type Milliseconds = i64;

/// A second.
pub const SECOND: Milliseconds = 1000;

/// Parses `metav1.Time` or `metav1.MicroTime`.
#[must_use]
pub fn parse(value: &Value) -> Option<Milliseconds> {
    value.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// Formats `metav1.Time`: whole seconds.
#[must_use]
pub fn format(at: Milliseconds) -> Value {
    let seconds = at.div_euclid(SECOND);
    jiff::Timestamp::from_second(seconds).map_or(Value::Null, |at| at.to_string().into())
}

/// Formats `metav1.MicroTime`.
#[must_use]
pub fn format_micro(at: Milliseconds) -> Value {
    jiff::Timestamp::from_millisecond(at).map_or(Value::Null, |at| format!("{at:.6}").into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_written_as_upstream_writes_them() {
        assert_eq!(format(1_700_000_000_999), json!("2023-11-14T22:13:20Z"));
        assert_eq!(format_micro(1_700_000_000_012), json!("2023-11-14T22:13:20.012000Z"));
        assert_eq!(parse(&json!("2023-11-14T22:13:20Z")), Some(1_700_000_000_000));
        assert_eq!(parse(&json!("2023-11-14T22:13:20.012000Z")), Some(1_700_000_000_012));
        assert_eq!(parse(&Value::Null), None);
    }
}
