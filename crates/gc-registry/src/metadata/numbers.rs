//! Numbers as Go writes them.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// Bound from which Go writes JSON numbers with an exponent.
const EXPONENT_FROM: f64 = 1e21;
const EXPONENT_BELOW: f64 = 1e-6;
/// Smallest float that is not a 64-bit integer.
const BEYOND_INTEGERS: f64 = 9_223_372_036_854_775_808.0;

/// Appends a value as JSON. A number outside the range of signed 64-bit integers becomes a float, however it was written.
///
/// # Errors
///
/// Fails like [`serde_json::to_writer`].
pub fn write_json(out: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, GoNumbers))
}

struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_u64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        if i64::try_from(value).is_ok() {
            return write!(writer, "{value}");
        }
        #[expect(clippy::cast_precision_loss, reason = "Go reads it as a float, too")]
        let float = value as f64;
        self.write_f64(writer, float)
    }

    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size != 0.0 && !(EXPONENT_BELOW..EXPONENT_FROM).contains(&size) {
            let text = format!("{value:e}");
            let sign = if size < 1.0 { "e" } else { "e+" };
            return writer.write_all(text.replace('e', sign).as_bytes());
        }
        // A smaller whole number only has a fraction here if it was sent with one and is kept unchanged.
        if value.fract() == 0.0 && size < BEYOND_INTEGERS {
            return write!(writer, "{value:.1}");
        }
        write!(writer, "{value}")
    }
}

/// Writes whole numbers without a fraction or an exponent, however they were written: `1e3` and `1000.0` become `1000`.
#[expect(clippy::cast_possible_truncation, reason = "a whole number within the range of the type")]
pub(crate) fn settle_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < BEYOND_INTEGERS);
            if let Some(whole) = whole {
                *value = (whole as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_whole),
        Value::Object(map) => map.values_mut().for_each(settle_whole),
        _ => {}
    }
}

/// Formats a float like Go's `%v`: with an exponent if the integral part has seven digits or more, or the number is very small.
pub(crate) fn go_float(float: f64) -> String {
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..=5).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => float.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        let cases = [
            ("1e-6", "0.000001"),
            ("1e-7", "1e-7"),
            ("0.1", "0.1"),
            ("1.10", "1.1"),
            ("-1.5", "-1.5"),
            ("1e19", "10000000000000000000"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1.5e300", "1.5e+300"),
            ("5e-324", "5e-324"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854776000"),
            ("12345678901234567890", "12345678901234567000"),
            ("-9223372036854775809", "-9223372036854776000"),
            ("1.0", "1.0"),
        ];
        for (sent, wanted) in cases {
            let value: Value = serde_json::from_str(sent).unwrap_or_default();
            let mut out = Vec::new();
            assert!(write_json(&mut out, &value).is_ok());
            assert_eq!(String::from_utf8_lossy(&out), wanted, "{sent}");
        }
        let mut value = json!({"a": [1e3, 1.0, 1.5, 1e19]});
        settle_whole(&mut value);
        assert_eq!(value, json!({"a": [1000, 1, 1.5, 1e19]}));
    }
}
