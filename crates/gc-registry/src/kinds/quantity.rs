//! Quantities, such as `500m` or `1Gi`: reading, and the canonical text that a server writes.

use serde_json::Value;

/// Longest text that is read as a quantity; longer ones are refused rather than computed with.
const LONGEST: usize = 64;
/// Quantities are kept in billionths, the smallest unit that they have.
const NANO: i128 = 1_000_000_000;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `k`, `M`, `m` …
    Decimal,
    /// `Ki`, `Mi` …
    Binary,
    /// `e3`
    Exponent,
}

/// A quantity, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nano: i128,
    form: Form,
}

/// Why a text is no quantity; the words are kube-apiserver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the form of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is none that exists.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// ```
    /// use gc_registry::kinds::quantity::Quantity;
    /// assert_eq!(Quantity::parse("1024Mi").unwrap().to_string(), "1Gi");
    /// assert_eq!(Quantity::parse("0.5").unwrap().to_string(), "500m");
    /// assert!(Quantity::parse("much").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(QuantityError::Format);
        }
        let (negative, digits) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
        let (number, suffix) = digits.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Format);
        }
        let (factor, form) = suffix_factor(suffix)?;
        let nano = scale(whole, fraction, factor);
        Ok(Self { nano: if negative { -nano } else { nano }, form })
    }

    /// Whether it is less than zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Whether it is a whole number.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }

    /// The value, rounded away from zero, as Kubernetes does.
    #[must_use]
    pub fn value(self) -> i128 {
        in_units(self.nano, NANO)
    }

    /// The value in thousandths, rounded away from zero.
    #[must_use]
    pub fn milli_value(self) -> i128 {
        in_units(self.nano, NANO / 1000)
    }

    /// Whether `self` is more than `other`.
    #[must_use]
    pub fn exceeds(self, other: Self) -> bool {
        self.nano > other.nano
    }
}

fn in_units(nano: i128, unit: i128) -> i128 {
    nano / unit + (nano % unit).signum()
}

/// What a suffix multiplies by, as a fraction of whole numbers: (numerator, denominator).
type Factor = (i128, i128);

fn suffix_factor(suffix: &str) -> Result<(Factor, Form), QuantityError> {
    const DECIMAL: [(&str, Factor); 10] = [
        ("n", (1, 1_000_000_000)),
        ("u", (1, 1_000_000)),
        ("m", (1, 1000)),
        ("", (1, 1)),
        ("k", (1000, 1)),
        ("M", (1_000_000, 1)),
        ("G", (1_000_000_000, 1)),
        ("T", (1_000_000_000_000, 1)),
        ("P", (1_000_000_000_000_000, 1)),
        ("E", (1_000_000_000_000_000_000, 1)),
    ];
    if let Some((_, factor)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((*factor, Form::Decimal));
    }
    if let Some(power) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|name| *name == suffix) {
        return Ok(((1 << (10 * (power + 1)), 1), Form::Binary));
    }
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .filter(|rest| {
            let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        })
        .ok_or(QuantityError::Suffix)?;
    let exponent: i32 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    // Beyond these the value is the greatest or the smallest anyway.
    let power = 10_i128.pow(exponent.unsigned_abs().min(18));
    Ok((if exponent < 0 { (1, power) } else { (power, 1) }, Form::Exponent))
}

/// `whole.fraction` times the factor in billionths, rounded up, and no more than the greatest quantity.
fn scale(whole: &str, fraction: &str, (up, down): Factor) -> i128 {
    const GREATEST: i128 = i64::MAX as i128 * NANO;
    let mut total: i128 = 0;
    for digit in whole.bytes() {
        total = total.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    // Many digits may come with a small unit, so the limit is applied at the end.
    let mut nano = total.saturating_mul(NANO).saturating_mul(up);
    let mut rest = nano % down;
    nano /= down;
    // Digits after the point, each a tenth of the one before; what is below a billionth rounds up.
    let mut place = NANO.saturating_mul(up);
    let mut more = false;
    for digit in fraction.bytes() {
        let here = i128::from(digit - b'0') * place;
        nano = nano.saturating_add(here / (10 * down));
        rest += here % (10 * down);
        more |= place == 0 && digit != b'0';
        place /= 10;
    }
    if rest != 0 || more {
        nano = nano.saturating_add(1);
    }
    nano.min(GREATEST)
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let whole = self.nano / NANO;
        if self.form == Form::Binary && self.nano % NANO == 0 && whole.abs() >= 1024 {
            let mut number = whole;
            let mut power = 0;
            while number % 1024 == 0 && power < 6 {
                number /= 1024;
                power += 1;
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let mut number = self.nano;
        let mut power = 0;
        while number % 1000 == 0 && power < 9 {
            number /= 1000;
            power += 1;
        }
        if self.form == Form::Exponent && power != 3 {
            return write!(f, "{number}e{}", (i32::try_from(power).unwrap_or(0) - 3) * 3);
        }
        write!(f, "{number}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power])
    }
}

/// The quantity in a value: a text or a number.
#[must_use]
pub fn of(value: &Value) -> Option<Result<Quantity, QuantityError>> {
    match value {
        Value::String(text) => Some(Quantity::parse(text)),
        Value::Number(number) => Some(Quantity::parse(&number.to_string())),
        _ => None,
    }
}

/// Writes a quantity the way a server does; what is none stays as it is, for the validation to refuse.
pub fn canonicalize(value: &mut Value) {
    if let Some(Ok(quantity)) = of(value) {
        *value = quantity.to_string().into();
    }
}

#[cfg(test)]
mod tests {
    // Tests may unwrap: a failure is the report.
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_written_canonically() {
        for (text, canonical) in [
            ("0", "0"),
            ("1", "1"),
            ("0.5", "500m"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1e0", "1"),
            ("100k", "100k"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("+5", "5"),
            ("-1Gi", "-1Gi"),
            ("128974848", "128974848"),
            ("123Mi", "123Mi"),
            ("64Gi", "64Gi"),
            (".5", "500m"),
            ("5.", "5"),
            ("9223372036854775807", "9223372036854775807"),
            ("99999999999999999999", "9223372036854775807"),
            ("10000.0001Ti", "10995116387711162777600u"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_quantities() {
        for text in ["", "much", "1 Gi", "1gi", "1K", "--1", "1.2.3", "1e", "1e+", ".", "+", "1ee3", "Ki"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn canonical_text_reads_as_the_same_quantity(text in "[+-]?[0-9]{1,12}(\\.[0-9]{0,12})?(n|u|m|k|M|G|Ki|Mi|Gi|Ti|e-?[0-9])?") {
            let quantity = Quantity::parse(&text).unwrap();
            let again = Quantity::parse(&quantity.to_string()).unwrap();
            prop_assert_eq!(again.nano, quantity.nano);
            prop_assert_eq!(again.to_string(), quantity.to_string());
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,80}") {
            let _ = Quantity::parse(&text);
        }
    }
}
