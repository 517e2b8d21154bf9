//! Cron schedules: when the next time is.

use gc_types::GoDuration;
use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};

use crate::time::{Milliseconds, SECOND};

/// Number of years that are searched; a schedule that names no day within them has none.
const YEARS: i16 = 5;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// When something is to happen, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// At the times of a calendar that match.
    Calendar(Box<Calendar>),
    /// This many milliseconds after the last time.
    Every(Milliseconds),
}

/// The minutes, hours, days, months and weekdays that match, as sets of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Days and weekdays both have to match where one of them says nothing; either, where both say something.
    either_day: bool,
}

/// Reads a schedule in the standard form with five fields, or a descriptor.
pub(super) fn parse(text: &str) -> Result<Schedule, String> {
    let text = text.trim();
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => match other.strip_prefix("@every ") {
            Some(duration) => return every(duration),
            None => other,
        },
    };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields.as_slice() else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    };
    let says_nothing =
        |field: &str| field.split(',').any(|part| matches!(part.split('/').next(), Some("*" | "?")));
    Ok(Schedule::Calendar(Box::new(Calendar {
        minutes: bits(minute, 0, 59, &[])?,
        hours: bits(hour, 0, 23, &[])?,
        days: bits(day, 1, 31, &[])?,
        months: bits(month, 1, 12, &MONTHS)?,
        weekdays: bits(weekday, 0, 6, &DAYS)?,
        either_day: !says_nothing(day) && !says_nothing(weekday),
    })))
}

fn every(text: &str) -> Result<Schedule, String> {
    let duration: GoDuration = text.parse().map_err(|_| format!("failed to parse duration @every {text}"))?;
    // Whole seconds, one at least.
    let seconds = i64::try_from(duration.to_std().as_secs()).unwrap_or(i64::MAX / SECOND);
    Ok(Schedule::Every(seconds.max(1) * SECOND))
}

/// The values of a field: a list of numbers, ranges and steps.
fn bits(field: &str, least: u32, most: u32, names: &[&str]) -> Result<u64, String> {
    let mut all = 0;
    for part in field.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let value = |text: &str| -> Result<u32, String> {
            let name = names.iter().position(|name| name.eq_ignore_ascii_case(text));
            match name.and_then(|position| u32::try_from(position).ok()) {
                Some(position) => Ok(position + least),
                None => text.parse().map_err(|_| format!("failed to parse int from {text}")),
            }
        };
        let (first, last) = match range {
            "*" | "?" => (least, most),
            _ => match range.split_once('-') {
                Some((first, last)) => (value(first)?, value(last)?),
                // A number with a step runs to the end.
                None => (value(range)?, if step.is_some() { most } else { value(range)? }),
            },
        };
        let step = step.map_or(Ok(1), value)?;
        if first < least || last > most || first > last || step == 0 {
            return Err(format!("the range {part} is not within {least} to {most}"));
        }
        all |= (first..=last).step_by(step as usize).fold(0, |bits, number| bits | (1_u64 << number));
    }
    Ok(all)
}

impl Schedule {
    /// The first time after this one; `None` if there is none within the next years.
    pub(super) fn next(&self, after: Milliseconds, zone: &TimeZone) -> Option<Milliseconds> {
        match self {
            Self::Every(pause) => Some((after + pause).div_euclid(SECOND) * SECOND),
            Self::Calendar(calendar) => calendar.next(after, zone),
        }
    }
}

impl Calendar {
    fn next(&self, after: Milliseconds, zone: &TimeZone) -> Option<Milliseconds> {
        let minute = 60 * SECOND;
        let start = Timestamp::from_millisecond((after.div_euclid(minute) + 1) * minute).ok()?;
        let mut at = start.to_zoned(zone.clone());
        let last = at.year() + YEARS;
        while at.year() <= last {
            if !has(self.months, at.month()) {
                at = at.first_of_month().ok()?.checked_add(1.month()).ok()?.start_of_day().ok()?;
            } else if !self.has_day(&at) {
                at = at.checked_add(1.day()).ok()?.start_of_day().ok()?;
            } else if !has(self.hours, at.hour()) {
                // Real minutes, so that an hour that comes twice is checked twice.
                at = at.checked_add((60 - i64::from(at.minute())).minutes()).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(1.minute()).ok()?;
            } else {
                return Some(at.timestamp().as_millisecond());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn next(schedule: &str, after: &str, zone: &TimeZone) -> String {
        let after = after.parse::<Timestamp>().unwrap().as_millisecond();
        let next = parse(schedule).unwrap().next(after, zone);
        next.map_or("never".into(), |at| Timestamp::from_millisecond(at).unwrap().to_string())
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
            ("5 4 29 2 *", "2023-11-14T00:00:00Z", &utc, "2024-02-29T04:05:00Z"),
            ("0 0 31 2 *", "2023-11-14T00:00:00Z", &utc, "never"),
            ("@hourly", "2023-11-14T22:00:00Z", &utc, "2023-11-14T23:00:00Z"),
            ("@every 90s", "2023-11-14T22:00:00.5Z", &utc, "2023-11-14T22:01:30Z"),
            ("10/20 8 * * *", "2023-11-14T08:11:00Z", &utc, "2023-11-14T08:30:00Z"),
            ("30 9 * * *", "2023-11-14T09:00:00Z", &berlin, "2023-11-15T08:30:00Z"),
            // An hour that is left out has no times; one that comes twice has them twice.
            ("30 2 * * *", "2024-03-31T00:00:00Z", &berlin, "2024-04-01T00:30:00Z"),
            ("30 2 * * *", "2024-10-27T00:30:00Z", &berlin, "2024-10-27T01:30:00Z"),
        ] {
            assert_eq!(next(schedule, after, zone), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in
            ["", "* * * *", "60 * * * *", "* * 0 * *", "*/0 * * * *", "5-3 * * * *", "@never", "x * * * *"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
