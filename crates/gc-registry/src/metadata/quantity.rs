//! Quantities in documents: reads them, and writes them as a server does.

use gc_types::{Quantity, QuantityError, kept_quantity};
use serde_json::Value;

/// Returns the quantity in a value, which may be a text or a number.
#[must_use]
pub(crate) fn of(value: &Value) -> Option<Result<Quantity, QuantityError>> {
    match value {
        Value::String(text) => Some(Quantity::parse(text.trim())),
        Value::Number(number) => Some(Quantity::parse(&number.to_string())),
        _ => None,
    }
}

/// Writes a quantity in canonical form; an invalid one is left for the validation to refuse.
pub(crate) fn canonicalize(value: &mut Value) {
    if let Value::String(text) = value
        && let Some(canonical) = kept_quantity(text.trim())
    {
        if canonical != *text {
            *value = canonical.into();
        }
    } else if let Value::Number(number) = value
        && let Some(canonical) = kept_quantity(&number.to_string())
    {
        *value = canonical.into();
    } else if let Some(Ok(quantity)) = of(value) {
        *value = quantity.to_string().into();
    }
}

/// Rounds a quantity that is finer than a thousandth up, as every list of resources does.
pub(crate) fn round_up_to_milli(value: &mut Value) {
    if let Some(Ok(quantity)) = of(value)
        && quantity.rounded_to_milli() != quantity
    {
        *value = quantity.rounded_to_milli().to_string().into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_keep_what_upstream_takes_for_canonical() {
        for (text, written) in [
            ("1E3", "1E3"),
            ("+1", "+1"),
            ("5.", "5."),
            (" 1", "1"),
            ("1 ", "1"),
            ("00", "0"),
            ("-0", "0"),
            ("1.0", "1"),
            ("1024Ki", "1Mi"),
            ("1000m", "1"),
            ("123456789m", "123456789m"),
            ("1000000", "1M"),
            ("1e-3", "1e-3"),
            ("1.5e3", "1500"),
            ("1e20", "100e18"),
            ("1e30", "1e30"),
            ("999999999999999999999", "999999999999999999999"),
            ("10Ei", "9223372036854775807"),
            ("nonsense", "nonsense"),
        ] {
            let mut value = Value::from(text);
            canonicalize(&mut value);
            assert_eq!(value, written, "{text}");
        }
        for (number, written) in
            [(json!(1), "1"), (json!(1.5), "1500m"), (json!(1_000_000), "1M"), (json!(1e20), "100e18")]
        {
            let mut value = number;
            canonicalize(&mut value);
            assert_eq!(value, written);
        }
        for (text, rounded) in
            [("1n", "1m"), ("0.0001", "1m"), ("1.23456789Gi", "1325607178061m"), ("1Gi", "1Gi")]
        {
            let mut value = Value::from(text);
            canonicalize(&mut value);
            round_up_to_milli(&mut value);
            assert_eq!(value, rounded, "{text}");
        }
    }
}
