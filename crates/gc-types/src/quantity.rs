//! Quantities in Kubernetes' text form (`100Mi`, `1.5G`, `500m`): parsing, and the canonical text that a server writes.

/// Maximum length of a text that is parsed as a [`Quantity`]; longer ones are refused rather than computed with.
const LONGEST: usize = 64;
/// Number of billionths, the unit in which quantities are stored, in one.
const NANO: i128 = 1_000_000_000;
/// Number of decimal places of a billionth.
const NANO_PLACES: i32 = 9;
/// The greatest quantity.
const GREATEST: i128 = i64::MAX as i128 * NANO;

/// Notation of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantityForm {
    /// `k`, `M`, `m` …
    #[default]
    Decimal,
    /// `Ki`, `Mi` …
    Binary,
    /// `e3`
    Exponent,
}

/// Factor of a quantity's suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityScale {
    /// Power of ten.
    Ten(i32),
    /// Power of two.
    Two(u32),
}

/// Reason why a text is not a quantity, in kube-apiserver's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the form of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix does not exist.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The parts of a quantity's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantityParts<'a> {
    /// True if it begins with a minus.
    pub negative: bool,
    /// Digits before the point.
    pub whole: &'a str,
    /// Digits after the point; this and `whole` are not both empty.
    pub fraction: &'a str,
    /// Meaning of the suffix.
    pub scale: QuantityScale,
    /// Form of the suffix.
    pub form: QuantityForm,
}

impl<'a> QuantityParts<'a> {
    /// Splits a text of any length.
    pub fn of(text: &'a str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Format);
        }
        let (scale, form) = scale_of(suffix)?;
        Ok(Self { negative, whole, fraction, scale, form })
    }

    /// Returns the amount in billionths, rounded away from zero; `None` if it is too large to compute with.
    #[must_use]
    pub fn billionths(&self) -> Option<i128> {
        let nano = self.nano();
        (nano != i128::MAX).then_some(if self.negative { -nano } else { nano })
    }

    /// Returns the amount without its sign, in billionths, rounded up; `i128::MAX` if it does not fit.
    fn nano(&self) -> i128 {
        match self.scale {
            QuantityScale::Ten(exponent) => {
                let places = i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
                let exponent = exponent.saturating_add(NANO_PLACES).saturating_sub(places);
                decimal(&format!("{}{}", self.whole, self.fraction), exponent)
            }
            QuantityScale::Two(power) => binary(self.whole, self.fraction, 1 << power),
        }
    }
}

/// A quantity, in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    nano: i128,
    form: QuantityForm,
}

impl Quantity {
    /// Parses a quantity; anything above the greatest one becomes that.
    ///
    /// ```
    /// use gc_types::Quantity;
    /// assert_eq!(Quantity::parse("1024Mi").unwrap().to_string(), "1Gi");
    /// assert_eq!(Quantity::parse("0.5").unwrap().to_string(), "500m");
    /// assert!(Quantity::parse("much").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.len() > LONGEST {
            return Err(QuantityError::Format);
        }
        let parts = QuantityParts::of(text)?;
        let nano = parts.nano().min(GREATEST);
        Ok(Self { nano: if parts.negative { -nano } else { nano }, form: parts.form })
    }

    /// Creates a whole number.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self { nano: i128::from(units) * NANO, form: QuantityForm::Decimal }
    }

    /// Subtracts another quantity, down to zero.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_sub(other.nano).max(0), ..self }
    }

    /// Reports whether it is less than zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Reports whether it is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Reports whether it is a whole number.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }

    /// Returns the value, rounded away from zero, as Kubernetes does.
    #[must_use]
    pub fn value(self) -> i128 {
        in_units(self.nano, NANO)
    }

    /// Returns the value in thousandths, rounded away from zero.
    #[must_use]
    pub fn milli_value(self) -> i128 {
        in_units(self.nano, NANO / 1000)
    }

    /// Reports whether both are the same amount, however they are written.
    #[must_use]
    pub fn same_as(self, other: Self) -> bool {
        self.nano == other.nano
    }

    /// Reports whether `self` is more than `other`.
    #[must_use]
    pub fn exceeds(self, other: Self) -> bool {
        self.nano > other.nano
    }

    /// Returns this quantity, rounded away from zero to a thousandth.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        const MILLI: i128 = NANO / 1000;
        if self.nano % MILLI == 0 {
            return self;
        }
        let nano = (self.nano / MILLI + self.nano.signum()) * MILLI;
        Self { nano, form: QuantityForm::Decimal }
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// Returns the sum, written in the form of the first summand that is not zero.
    fn add(self, other: Self) -> Self {
        let form = if self.is_zero() { other.form } else { self.form };
        Self { nano: self.nano.saturating_add(other.nano), form }
    }
}

fn in_units(nano: i128, unit: i128) -> i128 {
    nano / unit + (nano % unit).signum()
}

fn scale_of(suffix: &str) -> Result<(QuantityScale, QuantityForm), QuantityError> {
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((QuantityScale::Ten(*exponent), QuantityForm::Decimal));
    }
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Ok((QuantityScale::Two(*power), QuantityForm::Binary));
    }
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .filter(|rest| {
            let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        })
        .ok_or(QuantityError::Suffix)?;
    let exponent = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    Ok((QuantityScale::Ten(exponent), QuantityForm::Exponent))
}

/// Returns digits with this number of zeros appended or, if negative, this number of last digits removed and rounded up;
/// `i128::MAX` if it does not fit.
fn decimal(digits: &str, exponent: i32) -> i128 {
    /// More zeros always give the greatest quantity, or zero.
    const MOST_ZEROS: i32 = 40;
    let cut = usize::try_from(exponent.saturating_neg()).unwrap_or(0);
    let (kept, dropped) = digits.split_at(digits.len().saturating_sub(cut));
    let mut nano: i128 = 0;
    for digit in kept.bytes() {
        nano = nano.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    for _ in 0..exponent.clamp(0, MOST_ZEROS) {
        nano = nano.saturating_mul(10);
    }
    nano.saturating_add(dropped.bytes().any(|digit| digit != b'0').into())
}

/// Returns `whole.fraction` times a power of two in billionths, rounded up; `i128::MAX` if it does not fit.
fn binary(whole: &str, fraction: &str, factor: i128) -> i128 {
    let mut nano: i128 = 0;
    for digit in whole.bytes() {
        nano = nano.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    nano = nano.saturating_mul(NANO).saturating_mul(factor);
    // Digits after the point, each worth a tenth of the one before; anything below a billionth rounds up.
    let mut place = NANO * factor;
    let (mut rest, mut more) = (0, false);
    for digit in fraction.bytes() {
        let here = i128::from(digit - b'0') * place;
        nano = nano.saturating_add(here / 10);
        rest += here % 10;
        more |= place == 0 && digit != b'0';
        place /= 10;
    }
    nano.saturating_add((rest != 0 || more).into())
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let whole = self.nano / NANO;
        if self.form == QuantityForm::Binary && self.nano % NANO == 0 && whole.abs() >= 1024 {
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
        if self.form == QuantityForm::Exponent && power != 3 {
            return write!(f, "{number}e{}", (i32::try_from(power).unwrap_or(0) - 3) * 3);
        }
        write!(f, "{number}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power])
    }
}

/// Parses a quantity and rounds it up to a whole number of units (bytes, inodes, …), like Kubernetes' `Value()`. `None` if the text
/// is not a quantity.
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
    Some(in_units(QuantityParts::of(text).ok()?.billionths()?, NANO))
}

/// Returns the text that Kubernetes keeps if it differs from that of [`Quantity`]: one that its fast path takes for canonical, or a
/// decimal number too large for that path, which has no limit.
#[must_use]
pub fn kept_quantity(text: &str) -> Option<String> {
    /// Number of digits that always fit into 64 bits.
    const FAST_DIGITS: usize = 18;
    if text.len() > LONGEST {
        return None;
    }
    let QuantityParts { negative, whole, fraction, scale, form } = QuantityParts::of(text).ok()?;
    let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
    match scale {
        QuantityScale::Two(power) => {
            let decimal_digits = i64::from(power) * 3 / 10;
            let is_fast = fraction.is_empty()
                && i64::try_from(digits.len()).is_ok_and(|length| 15 - length - decimal_digits > 0);
            let odd = digits.parse::<i64>().is_ok_and(|value| value & 7 != 0);
            (is_fast && odd).then(|| text.to_owned())
        }
        QuantityScale::Ten(exponent) => {
            let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
            let is_huge = exponent > 0 && digits.len() + usize::try_from(exponent).unwrap_or(0) > FAST_DIGITS;
            if digits.len() <= FAST_DIGITS && exponent >= -NANO_PLACES {
                let is_canonical = exponent % 3 == 0
                    && !digits.ends_with("000")
                    && !digits.starts_with('0')
                    && !digits.is_empty();
                if is_canonical || !is_huge {
                    return is_canonical.then(|| text.to_owned());
                }
            }
            large_decimal(negative, &digits, exponent, form)
        }
    }
}

/// Returns a decimal number of any size that is no finer than a billionth.
fn large_decimal(negative: bool, digits: &str, mut exponent: i32, form: QuantityForm) -> Option<String> {
    const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let mut digits = digits.trim_start_matches('0').to_owned();
    if digits.is_empty() || exponent < -NANO_PLACES {
        return None;
    }
    while digits.ends_with('0') {
        digits.pop();
        exponent += 1;
    }
    while exponent % 3 != 0 {
        digits.push('0');
        exponent -= 1;
    }
    let sign = if negative { "-" } else { "" };
    let suffix = match form {
        QuantityForm::Exponent if exponent == 0 => String::new(),
        QuantityForm::Exponent => format!("e{exponent}"),
        _ => usize::try_from(exponent / 3 + 3).ok().and_then(|at| SUFFIXES.get(at)).copied()?.to_owned(),
    };
    Some(format!("{sign}{digits}{suffix}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;

    use super::*;

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

        #[test]
        fn no_text_panics(text in "\\PC{0,30}|[-+]?[0-9.]{0,40}([eE][-+]?[0-9]{0,3}|[a-zA-Z]{0,3})") {
            let _ = parse_quantity(&text);
        }
    }
}
