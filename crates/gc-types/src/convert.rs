//! Conversions that several crates need.

use std::fmt::Write as _;
use std::time::Duration;

/// Formats bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// Returns a duration in milliseconds; the largest number if it does not fit.
#[must_use]
pub fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_keep_every_digit_and_saturate() {
        assert_eq!(hexadecimal(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert_eq!(milliseconds(Duration::from_micros(1_999)), 1);
        assert_eq!(milliseconds(Duration::MAX), i64::MAX);
    }
}
