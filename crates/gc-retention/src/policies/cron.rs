//! When scheduled policies run: cron expressions and periods, in UTC.

use gc_types::{GoDuration, Timestamp};
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;

/// The shortest period of a schedule, milliseconds.
pub const SHORTEST_PERIOD_MILLISECONDS: i64 = 10_000;
/// Number of days that are searched for the next time: the 29th of February on a given weekday comes within
/// 40 years.
const DAYS_SEARCHED: usize = 366 * 40;

/// When a policy runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Whenever something is due.
    Continuous,
    /// This many milliseconds after the last run began.
    Every(i64),
    /// At the times of a cron expression.
    Cron(Cron),
}

impl Schedule {
    /// Reads `every 30m`, `30 4 * * *` or `@daily`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(period) = text.trim().strip_prefix("every ") else {
            return Cron::parse(text).map(Self::Cron);
        };
        let period = GoDuration::parse_with_days(period.trim()).map_err(|error| error.to_string())?;
        let milliseconds = period.0 / 1_000_000;
        if milliseconds < SHORTEST_PERIOD_MILLISECONDS {
            return Err(format!("a period of {period} is too short; the shortest is 10s"));
        }
        Ok(Self::Every(milliseconds))
    }

    /// When the next run begins. `last` is when the last one began; without one, `now` counts for cron expressions,
    /// and everything else begins at once.
    #[must_use]
    pub fn next(&self, last: Option<Timestamp>, pause_milliseconds: i64, now: Timestamp) -> Timestamp {
        match (self, last) {
            (Self::Continuous, Some(last)) => last.after(pause_milliseconds),
            (Self::Every(period), Some(last)) => last.after(*period),
            (Self::Continuous | Self::Every(_), None) => now,
            (Self::Cron(cron), last) => cron.next_after(last.unwrap_or(now)).unwrap_or(Timestamp(i64::MAX)),
        }
    }
}

/// A cron expression: minute, hour, day of the month, month, day of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// If both day fields are restricted, either is enough, as in cron.
    either_day: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Cron {
    /// Reads five fields, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            text => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let &[minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!(
                "{text:?} is no schedule; expected \"every DURATION\", \"@daily\" or five fields (minute, hour, day \
                 of the month, month, day of the week), such as \"30 4 * * *\""
            ));
        };
        let sundays = field(weekdays, "day of the week", 0, 7, &WEEKDAYS, 0)?;
        let cron = Self {
            minutes: field(minutes, "minute", 0, 59, &[], 0)?,
            hours: field(hours, "hour", 0, 23, &[], 0)?,
            days: field(days, "day of the month", 1, 31, &[], 0)?,
            months: field(months, "month", 1, 12, &MONTHS, 1)?,
            // 7 is Sunday as well.
            weekdays: (sundays | sundays >> 7) & 0x7f,
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        };
        if cron.next_after(Timestamp(0)).is_none() {
            return Err(format!("{text:?} never comes"));
        }
        Ok(cron)
    }

    fn day_fits(&self, date: Date) -> bool {
        let weekday = match date.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        let (day, weekday) = (has(self.days, date.day()), has(self.weekdays, weekday));
        has(self.months, date.month()) && if self.either_day { day || weekday } else { day && weekday }
    }

    /// The first matching time after this one.
    #[must_use]
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        const MINUTE: i64 = 60_000;
        let start = time.0.div_euclid(MINUTE).checked_add(1)?.checked_mul(MINUTE)?;
        let start = jiff::Timestamp::from_millisecond(start).ok()?.to_zoned(TimeZone::UTC).datetime();
        let mut date = start.date();
        for number in 0..DAYS_SEARCHED {
            let (first_hour, first_minute) =
                if number == 0 { (start.hour(), start.minute()) } else { (0, 0) };
            if self.day_fits(date) {
                for hour in first_hour..24 {
                    let from = if hour == first_hour { first_minute } else { 0 };
                    let minute = has(self.hours, hour)
                        .then(|| (from..60).find(|minute| has(self.minutes, *minute)))
                        .flatten();
                    if let Some(minute) = minute {
                        let found = date.at(hour, minute, 0, 0).to_zoned(TimeZone::UTC).ok()?;
                        return Some(Timestamp(found.timestamp().as_millisecond()));
                    }
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }
}

fn has(set: u64, number: i8) -> bool {
    set & (1 << number) != 0
}

/// One field as a set of bits: `*`, numbers, names, ranges, steps and lists of them.
fn field(
    text: &str,
    what: &str,
    low: u32,
    high: u32,
    names: &[&str],
    first_name: u32,
) -> Result<u64, String> {
    let bad = |part: &str| Err(format!("{part:?} is no {what}; expected {low} to {high}"));
    let number = |text: &str| -> Option<u32> {
        let lower = text.to_ascii_lowercase();
        let named = names.iter().zip(first_name..).find(|(name, _)| **name == lower);
        named.map(|(_, number)| number).or_else(|| text.parse().ok()).filter(|n| (low..=high).contains(n))
    };
    let mut set = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => match step.parse::<usize>() {
                Ok(step) if step > 0 => (range, step),
                _ => return Err(format!("{part:?}: the step {step:?} is no positive number")),
            },
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => (first, last),
                _ => return bad(part),
            },
            None => match number(range) {
                // `5/10` means 5 to the end, in steps of 10.
                Some(only) => (only, if part.contains('/') { high } else { only }),
                None => return bad(part),
            },
        };
        for value in (first..=last).step_by(step) {
            set |= 1 << value;
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use proptest::prelude::*;

    fn time(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn the_next_time_of_a_schedule() {
        // 2026-11-21 is a Saturday.
        let now = "2026-11-21T10:17:30Z";
        for (text, expected) in [
            ("* * * * *", "2026-11-21T10:18:00Z"),
            ("30 4 * * *", "2026-11-22T04:30:00Z"),
            ("*/15 * * * *", "2026-11-21T10:30:00Z"),
            ("17 10 * * *", "2026-11-22T10:17:00Z"),
            ("18 10 * * *", "2026-11-21T10:18:00Z"),
            ("0 0 1 * *", "2026-12-01T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            ("0 12 * * mon-fri", "2026-11-23T12:00:00Z"),
            ("0 12 * * 7", "2026-11-22T12:00:00Z"),
            ("0 12 * * 0", "2026-11-22T12:00:00Z"),
            ("0 0 13 * fri", "2026-11-27T00:00:00Z"),
            ("0 0 */2 * fri", "2026-11-27T00:00:00Z"),
            ("5/20 11 * * *", "2026-11-21T11:05:00Z"),
            ("0 9,17 * JAN,jul *", "2027-01-01T09:00:00Z"),
            ("@hourly", "2026-11-21T11:00:00Z"),
            ("@yearly", "2027-01-01T00:00:00Z"),
        ] {
            let cron = Cron::parse(text).unwrap();
            assert_eq!(cron.next_after(time(now)), Some(time(expected)), "{text}");
        }
        assert_eq!(Schedule::parse("every 1h30m"), Ok(Schedule::Every(5_400_000)));
        let every = Schedule::Every(60_000);
        assert_eq!(every.next(Some(Timestamp(5)), 1, Timestamp(9)), Timestamp(60_005));
        assert_eq!(every.next(None, 1, Timestamp(9)), Timestamp(9));
        assert_eq!(Schedule::Continuous.next(Some(Timestamp(5)), 10, Timestamp(9)), Timestamp(15));
    }

    #[test]
    fn what_is_no_schedule_says_why() {
        for (text, expected) in [
            ("0 0 30 2 *", "\"0 0 30 2 *\" never comes"),
            ("60 * * * *", "\"60\" is no minute; expected 0 to 59"),
            ("* 5-3 * * *", "\"5-3\" is no hour; expected 0 to 23"),
            ("* * 0 * *", "\"0\" is no day of the month; expected 1 to 31"),
            ("* * * foo *", "\"foo\" is no month; expected 1 to 12"),
            ("*/0 * * * *", "\"*/0\": the step \"0\" is no positive number"),
            ("every 1s", "a period of 1s is too short; the shortest is 10s"),
            (
                "every day",
                "\"day\" is not a duration; expected numbers with units, such as \"2m\" or \"1h30m\"",
            ),
        ] {
            assert_eq!(Schedule::parse(text).unwrap_err(), expected, "{text}");
        }
        assert!(Schedule::parse("daily").unwrap_err().starts_with("\"daily\" is no schedule; expected"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-*/,0-9a-z@ ]{0,24}") {
            let _ = Schedule::parse(&text);
        }

        /// The next time is later, on a whole minute, and no earlier one matches: it is its own next.
        #[test]
        fn the_next_time_is_the_first(
            minute in 0_u32..60, hour in 0_u32..24, seconds in 0_i64..4_000_000_000,
        ) {
            let cron = Cron::parse(&format!("{minute} {hour} * * *")).unwrap();
            let now = Timestamp(seconds * 1000);
            let next = cron.next_after(now).unwrap();
            prop_assert!(next > now && next.since(now) <= 86_400_000 && next.0 % 60_000 == 0);
            prop_assert_eq!(cron.next_after(Timestamp(next.0 - 1)), Some(next));
        }
    }
}
