//! Quantities in Kubernetes' text form (`100Mi`, `1.5G`, `2e3`), as whole units.

/// Reads a quantity and rounds it up to a whole number of units (bytes, inodes, …), as Kubernetes' `Value()` does.
/// `None` if the text is not a quantity.
///
/// ```
/// use gc_types::parse_quantity;
/// assert_eq!(parse_quantity("100Mi"), Some(104_857_600));
/// assert_eq!(parse_quantity("1.5k"), Some(1_500));
/// assert_eq!(parse_quantity("1m"), Some(1));
/// assert_eq!(parse_quantity("10 Mi"), None);
/// ```
#[must_use]
pub fn parse_quantity(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_length = unsigned.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, suffix) = unsigned.split_at(number_length);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Beyond this many digits Kubernetes could not represent the value either.
    if whole.len() + fraction.len() == 0 || whole.len() + fraction.len() > 30 || fraction.contains('.') {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (base, exponent) = scale(suffix)?;
    let exponent = exponent - if base == 10 { i32::try_from(fraction.len()).ok()? } else { 0 };
    let mut numerator = digits;
    let mut denominator = 1_i128;
    if base == 2 {
        denominator = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    }
    let power = i128::from(base).checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 {
        numerator = numerator.checked_mul(power)?;
    } else {
        denominator = denominator.checked_mul(power)?;
    }
    let rounded_up = numerator / denominator + i128::from(numerator % denominator != 0);
    Some(if negative { -rounded_up } else { rounded_up })
}

/// Base and exponent of a suffix.
fn scale(suffix: &str) -> Option<(u8, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let plain =
                !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            (10, plain.then(|| exponent.parse().ok()).flatten()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_whole_units_rounded_up() {
        for (text, value) in [
            ("0", Some(0)),
            ("100Mi", Some(104_857_600)),
            ("1Ki", Some(1024)),
            ("1.5Ki", Some(1536)),
            ("0.0001Ki", Some(1)),
            ("1500m", Some(2)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("1e3", Some(1000)),
            ("12E+2", Some(1200)),
            ("5e-1", Some(1)),
            (".5k", Some(500)),
            ("5.", Some(5)),
            ("-5Mi", Some(-5_242_880)),
            ("+1k", Some(1000)),
            ("", None),
            ("-", None),
            (".", None),
            ("Mi", None),
            ("1K", None),
            ("1mi", None),
            ("1 Mi", None),
            ("1.2.3", None),
            ("1e", None),
            ("1e999", None),
            ("1_000", None),
        ] {
            assert_eq!(parse_quantity(text), value, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,30}|[-+]?[0-9.]{0,40}([eE][-+]?[0-9]{0,3}|[a-zA-Z]{0,3})") {
            let _ = parse_quantity(&text);
        }
    }
}
