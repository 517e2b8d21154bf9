//! Cron schedules: five fields, as parsed by the library that Kubernetes uses.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};

use crate::{GoDuration, Timestamp};

/// Milliseconds in a minute.
const MINUTE: i64 = 60_000;
/// Milliseconds in a second.
const SECOND: i64 = 1000;
/// Number of years that are searched for the next time of a CronJob; a schedule without a day within them has none.
const JOB_YEARS: i16 = 5;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Schedule of a CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSchedule {
    /// At the times that match.
    Cron(Box<Cron>),
    /// This many milliseconds after the last time.
    Every(i64),
}

impl JobSchedule {
    /// Parses five fields, a descriptor such as `@daily`, or `@every` and a duration. Errors have upstream's wording.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".into());
        }
        let Some(duration) = text.strip_prefix("@every ") else {
            return Cron::parse(text, 6).map(|cron| Self::Cron(Box::new(cron)));
        };
        let duration: GoDuration =
            duration.parse().map_err(|_| format!("failed to parse duration {text}"))?;
        // Whole seconds, at least one.
        Ok(Self::Every((duration.0 / 1_000_000_000).max(1) * SECOND))
    }

    /// Returns the first time after this one; `None` if there is none within the next years.
    #[must_use]
    pub fn next_after(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(pause) => Some(Timestamp((time.0 + pause).div_euclid(SECOND) * SECOND)),
            Self::Cron(cron) => cron.next_after(time, zone, JOB_YEARS),
        }
    }
}

/// Sets of matching minutes, hours, days, months and weekdays, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if either the day or the weekday has to match, because both are restricted; otherwise both have to.
    either_day: bool,
}

impl Cron {
    /// Parses five fields, or a descriptor such as `@daily`. `last_weekday` is 6, or 7 if that also means Sunday. Errors have
    /// upstream's wording.
    pub fn parse(text: &str, last_weekday: u32) -> Result<Self, String> {
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(format!("unrecognized descriptor: {other}")),
            other => other,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        let says_nothing = |field: &str| field.split(',').any(is_any);
        let (minutes, hours) = (bits(minute, 0, 59, &[])?, bits(hour, 0, 23, &[])?);
        let (days, months) = (bits(day, 1, 31, &[])?, bits(month, 1, 12, &MONTHS)?);
        let weekdays = bits(weekday, 0, last_weekday, &WEEKDAYS)?;
        Ok(Self {
            minutes,
            hours,
            days,
            months,
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either_day: !says_nothing(day) && !says_nothing(weekday),
        })
    }

    /// Returns the first time after this one; `None` if there is none within this many years.
    #[must_use]
    pub fn next_after(&self, time: Timestamp, zone: &TimeZone, years: i16) -> Option<Timestamp> {
        let start = time.0.div_euclid(MINUTE).checked_add(1)?.checked_mul(MINUTE)?;
        let mut at = jiff::Timestamp::from_millisecond(start).ok()?.to_zoned(zone.clone());
        let last = at.year() + years;
        while at.year() <= last {
            if !has(self.months, at.month()) {
                at = at.first_of_month().ok()?.checked_add(1.month()).ok()?.start_of_day().ok()?;
            } else if !self.has_day(&at) {
                at = at.checked_add(1.day()).ok()?.start_of_day().ok()?;
            } else if !has(self.hours, at.hour()) {
                // Real minutes, so that an hour that occurs twice is checked twice.
                at = at.checked_add((60 - i64::from(at.minute())).minutes()).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(1.minute()).ok()?;
            } else {
                return Some(Timestamp(at.timestamp().as_millisecond()));
            }
        }
        None
    }

    fn has_day(&self, at: &Zoned) -> bool {
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, weekday_number(at.weekday()));
        if self.either_day { day || weekday } else { day && weekday }
    }
}

fn weekday_number(weekday: Weekday) -> i8 {
    weekday.to_sunday_zero_offset()
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

/// Reports whether a part of a field matches every value. One with a step above 1 does not.
fn is_any(part: &str) -> bool {
    let (range, step) = part.split_once('/').unwrap_or((part, "1"));
    matches!(range, "*" | "?") && step.parse() == Ok(1)
}

/// Parses the values of a field: a list of numbers, names, ranges and steps.
fn bits(field: &str, least: u32, most: u32, names: &[&str]) -> Result<u64, String> {
    field.split(',').try_fold(0, |bits, part| Ok(bits | part_bits(part, least, most, names)?))
}

fn part_bits(text: &str, least: u32, most: u32, names: &[&str]) -> Result<u64, String> {
    let (range, step) = match text.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {text}")),
        Some((range, step)) => (range, Some(step)),
        None => (text, None),
    };
    let value = |text: &str| -> Result<u32, String> {
        if let Some((_, number)) = names.iter().zip(least..).find(|(name, _)| text.eq_ignore_ascii_case(name))
        {
            return Ok(number);
        }
        text.parse::<u32>().map_err(|_| {
            format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
        })
    };
    let (from, to) = match range {
        "*" | "?" => (least, most),
        _ => match range.split_once('-') {
            Some((_, to)) if to.contains('-') => return Err(format!("too many hyphens: {text}")),
            Some((from, to)) => (value(from)?, value(to)?),
            None => {
                let from = value(range)?;
                // A number with a step runs to the end.
                (from, if step.is_some() { most } else { from })
            }
        },
    };
    if from < least {
        return Err(format!("beginning of range ({from}) below minimum ({least}): {text}"));
    }
    if to > most {
        return Err(format!("end of range ({to}) above maximum ({most}): {text}"));
    }
    if from > to {
        return Err(format!("beginning of range ({from}) beyond end of range ({to}): {text}"));
    }
    match step.map_or(Ok(1), value)? {
        0 => Err(format!("step of range should be a positive number: {text}")),
        step => Ok((from..=to).step_by(step as usize).fold(0, |bits, number| bits | 1 << number)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn next(schedule: &str, after: &str, zone: &TimeZone) -> String {
        let after = Timestamp(after.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        let next = JobSchedule::parse(schedule).unwrap().next_after(after, zone);
        next.map_or("never".into(), |at| at.to_string())
    }

    #[test]
    fn the_next_time_matches() {
        // The rules of Central Europe, as POSIX writes them.
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let utc = TimeZone::UTC;
        for (schedule, after, zone, expected) in [
            ("*/15 * * * *", "2023-11-14T22:13:20Z", &utc, "2023-11-14T22:15:00Z"),
            ("0 0 1 1 *", "2023-11-14T22:13:20Z", &utc, "2024-01-01T00:00:00Z"),
            ("0 12 * * mon-FRI", "2023-11-17T12:00:00Z", &utc, "2023-11-20T12:00:00Z"),
            ("0 0 13 * 5", "2023-11-14T00:00:00Z", &utc, "2023-11-17T00:00:00Z"),
            ("0 0 */2 * 1", "2023-11-14T00:00:00Z", &utc, "2023-11-15T00:00:00Z"),
            ("0 0 */1 * 1", "2023-11-14T00:00:00Z", &utc, "2023-11-20T00:00:00Z"),
            ("5 4 29 2 *", "2023-11-14T00:00:00Z", &utc, "2024-02-29T04:05:00Z"),
            ("0 0 31 2 *", "2023-11-14T00:00:00Z", &utc, "never"),
            ("@hourly", "2023-11-14T22:00:00Z", &utc, "2023-11-14T23:00:00Z"),
            ("@every 90s", "2023-11-14T22:00:00.5Z", &utc, "2023-11-14T22:01:30Z"),
            ("10/20 8 * * *", "2023-11-14T08:11:00Z", &utc, "2023-11-14T08:30:00Z"),
            ("30 9 * * *", "2023-11-14T09:00:00Z", &berlin, "2023-11-15T08:30:00Z"),
            // An hour that is skipped has no times; one that occurs twice has them twice.
            ("30 2 * * *", "2024-03-31T00:00:00Z", &berlin, "2024-04-01T00:30:00Z"),
            ("30 2 * * *", "2024-10-27T00:30:00Z", &berlin, "2024-10-27T01:30:00Z"),
        ] {
            assert_eq!(next(schedule, after, zone), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn schedules_are_distinguished_from_other_texts() {
        for good in [
            "* * * * *",
            "*/5 0-6/2 1,15 jan-MAR mon",
            "0 0 ? * SUN",
            "5/15 * * * *",
            "@hourly",
            "@every 1h30m",
        ] {
            assert!(JobSchedule::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* 7-3 * * *", "beginning of range (7) beyond end of range (3): 7-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every day", "failed to parse duration @every day"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ] {
            assert_eq!(JobSchedule::parse(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
