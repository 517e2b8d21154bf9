//! Durations in Go's text form, as in Kubernetes' configuration (spec `node-gc.md`, section 16).

use std::fmt;
use std::str::FromStr;

/// A signed span of nanoseconds, parsed and printed like Go's `time.Duration`.
///
/// ```
/// use gc_types::GoDuration;
/// let age: GoDuration = "1h30m".parse().unwrap();
/// assert_eq!(age.to_string(), "1h30m0s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

/// Reason why a text is not a duration. Displays what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoDurationError {
    /// A number is missing.
    #[error("{0:?} is not a duration; expected numbers with units, such as \"2m\" or \"1h30m\"")]
    Invalid(String),
    /// A number has no unit.
    #[error("{text:?} lacks a unit; expected one of {units} after each number")]
    MissingUnit {
        /// The whole text.
        text: String,
        /// The known units.
        units: Units,
    },
    /// A unit is unknown; Go has no days or weeks.
    #[error("{text:?} has the unknown unit {unit:?}; expected one of {units}")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The unknown unit.
        unit: String,
        /// The known units.
        units: Units,
    },
    /// Longer than about 292 years.
    #[error("{0:?} is out of range; the longest duration is 2562047h47m16.854775807s")]
    OutOfRange(String),
}

/// Permitted units of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Go's units, up to hours.
    Go,
    /// Also days of 24 hours and weeks of seven days.
    GoAndDays,
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Go => "ns, us, ms, s, m, h",
            Self::GoAndDays => "ns, us, ms, s, m, h, d, w",
        })
    }
}

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

impl GoDuration {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(i64::MAX);

    /// Creates a duration of whole seconds; saturates.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOSECONDS_PER_SECOND))
    }

    /// Parses a retention duration: Go's text form, plus days (`d`) and weeks (`w`).
    ///
    /// ```
    /// use gc_types::GoDuration;
    /// assert_eq!(GoDuration::parse_with_days("1w2d"), "216h".parse());
    /// ```
    pub fn parse_with_days(text: &str) -> Result<Self, GoDurationError> {
        parse(text, Units::GoAndDays)
    }

    /// Returns it in milliseconds, rounded up.
    #[must_use]
    pub const fn to_milliseconds_rounded_up(self) -> i64 {
        self.0 / 1_000_000 + (self.0 % 1_000_000 > 0) as i64
    }

    /// Converts it to the standard library's duration; negative spans become zero.
    #[must_use]
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, Units::Go)
    }
}

fn parse(text: &str, units: Units) -> Result<GoDuration, GoDurationError> {
    let invalid = || GoDurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(GoDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (segment, after) = segment(text, rest, units)?;
        total += segment;
        // The magnitude of the smallest value is one more than that of the largest.
        if total > i64::MAX as u128 + u128::from(negative) {
            return Err(GoDurationError::OutOfRange(text.to_owned()));
        }
        rest = after;
    }
    let signed = if negative { -(total.cast_signed()) } else { total.cast_signed() };
    i64::try_from(signed).map(GoDuration).map_err(|_| GoDurationError::OutOfRange(text.to_owned()))
}

/// Parses one number with its unit at the start of `rest`: returns its nanoseconds, and the remaining text.
fn segment<'a>(text: &str, rest: &'a str, units: Units) -> Result<(u128, &'a str), GoDurationError> {
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let whole_length = digits(rest);
    let (whole, mut after) = rest.split_at(whole_length);
    let mut fraction = "";
    if let Some(behind_point) = after.strip_prefix('.') {
        (fraction, after) = behind_point.split_at(digits(behind_point));
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(GoDurationError::Invalid(text.to_owned()));
    }
    let unit_length = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (unit, after) = after.split_at(unit_length);
    let scale: u128 = match unit {
        "" => return Err(GoDurationError::MissingUnit { text: text.to_owned(), units }),
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" if units == Units::GoAndDays => 86_400_000_000_000,
        "w" if units == Units::GoAndDays => 604_800_000_000_000,
        _ => {
            return Err(GoDurationError::UnknownUnit { text: text.to_owned(), unit: unit.to_owned(), units });
        }
    };
    let out_of_range = || GoDurationError::OutOfRange(text.to_owned());
    // Apart from leading zeros, twenty digits are more than any nanosecond count in range.
    let significant = whole.trim_start_matches('0');
    if significant.len() > 20 {
        return Err(out_of_range());
    }
    let whole: u128 =
        if significant.is_empty() { 0 } else { significant.parse().map_err(|_| out_of_range())? };
    // Digits below a nanosecond of the largest unit are truncated.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = fraction.parse::<u128>().unwrap_or(0) * scale
        / 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    Ok((whole * scale + part, after))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        if magnitude == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match magnitude {
            0..1_000 => write!(f, "{magnitude}ns"),
            1_000..1_000_000 => write_decimal(f, magnitude, 1_000, "µs"),
            1_000_000..1_000_000_000 => write_decimal(f, magnitude, 1_000_000, "ms"),
            _ => {
                let (minutes, below) = (magnitude / 60_000_000_000, magnitude % 60_000_000_000);
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write_decimal(f, below, 1_000_000_000, "s")
            }
        }
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, scale: u64, unit: &str) -> fmt::Result {
    write!(f, "{}", value / scale)?;
    let mut rest = value % scale;
    if rest > 0 {
        f.write_str(".")?;
        let mut place = scale / 10;
        while rest > 0 {
            write!(f, "{}", rest / place)?;
            rest %= place;
            place /= 10;
        }
    }
    f.write_str(unit)
}

/// A wall-clock time in nanoseconds since the Unix epoch, as in CRI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanoseconds(pub i64);

impl UnixNanoseconds {
    /// Returns the time since `earlier`; zero if that is later (a clock that was set back).
    #[must_use]
    pub fn since(self, earlier: Self) -> GoDuration {
        GoDuration(self.0.saturating_sub(earlier.0).max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: i64 = 3_600 * NANOSECONDS_PER_SECOND;
    const MINUTE: i64 = 60 * NANOSECONDS_PER_SECOND;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanoseconds) in [
            ("2m", 2 * MINUTE),
            ("2m0s", 2 * MINUTE),
            ("120s", 2 * MINUTE),
            ("1h30m", HOUR + 30 * MINUTE),
            ("90m", 90 * MINUTE),
            ("1.5h", 90 * MINUTE),
            (".5h", 30 * MINUTE),
            ("1.h", HOUR),
            ("1m1h", HOUR + MINUTE),
            ("1h1h", 2 * HOUR),
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("+5s", 5 * NANOSECONDS_PER_SECOND),
            ("-5s", -5 * NANOSECONDS_PER_SECOND),
            ("1µs", 1_000),
            ("1μs", 1_000),
            ("1us", 1_000),
            ("3ms", 3_000_000),
            ("7ns", 7),
            ("2562047h47m16.854775807s", i64::MAX),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("1.0000000001s", NANOSECONDS_PER_SECOND),
            ("0.0333333333h", 119_999_999_880),
            ("00000000000000000000000000001s", NANOSECONDS_PER_SECOND),
        ] {
            assert_eq!(text.parse(), Ok(GoDuration(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        let invalid = |t: &str| GoDurationError::Invalid(t.into());
        let unknown = |t: &str, u: &str| GoDurationError::UnknownUnit {
            text: t.into(),
            unit: u.into(),
            units: Units::Go,
        };
        for (text, error) in [
            ("", invalid("")),
            ("s", invalid("s")),
            (".s", invalid(".s")),
            (".", invalid(".")),
            ("-", invalid("-")),
            ("+", invalid("+")),
            ("10", GoDurationError::MissingUnit { text: "10".into(), units: Units::Go }),
            ("1d", unknown("1d", "d")),
            ("1w", unknown("1w", "w")),
            ("1M", unknown("1M", "M")),
            ("1H", unknown("1H", "H")),
            ("1min", unknown("1min", "min")),
            ("1 h", unknown("1 h", " h")),
            (" 1h", invalid(" 1h")),
            ("1h ", unknown("1h ", "h ")),
            ("1h-5m", unknown("1h-5m", "h-")),
            ("1e3s", unknown("1e3s", "e")),
            ("0x10s", unknown("0x10s", "x")),
            ("1_000s", unknown("1_000s", "_")),
            ("1,5h", unknown("1,5h", ",")),
            ("2562047h47m16.854775808s", GoDurationError::OutOfRange("2562047h47m16.854775808s".into())),
            ("99999999999999999999999h", GoDurationError::OutOfRange("99999999999999999999999h".into())),
        ] {
            assert_eq!(text.parse::<GoDuration>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn retention_has_days_and_weeks_as_well() {
        for (text, expected) in [
            ("7d", Ok(7 * 24 * HOUR)),
            ("2w", Ok(14 * 24 * HOUR)),
            ("1w1d1h1m", Ok(8 * 24 * HOUR + HOUR + MINUTE)),
            ("0.5d", Ok(12 * HOUR)),
            ("36h", Ok(36 * HOUR)),
            (
                "7",
                Err("\"7\" lacks a unit; expected one of ns, us, ms, s, m, h, d, w after each number"
                    .to_owned()),
            ),
            (
                "1mo",
                Err("\"1mo\" has the unknown unit \"mo\"; expected one of ns, us, ms, s, m, h, d, w"
                    .to_owned()),
            ),
        ] {
            let parsed = GoDuration::parse_with_days(text).map(|duration| duration.0);
            assert_eq!(parsed.map_err(|error| error.to_string()), expected, "{text}");
        }
    }

    #[test]
    fn prints_as_go_prints() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_000, "1µs"),
            (1_500, "1.5µs"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (2 * MINUTE, "2m0s"),
            (HOUR, "1h0m0s"),
            (-1, "-1ns"),
            (HOUR + 30 * MINUTE + 5, "1h30m0.000000005s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(GoDuration(nanoseconds).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(nanoseconds: i64) {
            let text = GoDuration(nanoseconds).to_string();
            prop_assert_eq!(text.parse(), Ok(GoDuration(nanoseconds)));
        }
    }
}
