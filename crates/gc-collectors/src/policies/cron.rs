//! Schedules of policies: cron expressions and periods, in UTC.

use gc_types::{Cron, GoDuration, Timestamp};
use jiff::tz::TimeZone;

/// Minimum period of a schedule, milliseconds.
pub const SHORTEST_PERIOD_MILLISECONDS: i64 = 10_000;
/// Number of years that are searched for the next time: the 29th of February on a given weekday occurs within 40 years.
const YEARS: i16 = 40;

/// Schedule of a policy.
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
    /// Parses `every 30m`, `30 4 * * *` or `@daily`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some(period) = text.strip_prefix("every ") else {
            // 7 means Sunday as well.
            let cron = Cron::parse(text, 7).map_err(|why| {
                format!(
                    "{text:?} is no schedule: {why}; expected \"every DURATION\", \"@daily\" or five fields \
                     (minute, hour, day of the month, month, day of the week), such as \"30 4 * * *\""
                )
            })?;
            return match next_time(&cron, Timestamp(0)) {
                Some(_) => Ok(Self::Cron(cron)),
                None => Err(format!("{text:?} never comes")),
            };
        };
        let period = GoDuration::parse_with_days(period.trim()).map_err(|error| error.to_string())?;
        let milliseconds = period.0 / 1_000_000;
        if milliseconds < SHORTEST_PERIOD_MILLISECONDS {
            return Err(format!("a period of {period} is too short; the shortest is 10s"));
        }
        Ok(Self::Every(milliseconds))
    }

    /// Returns when the next run begins. `last` is when the last one began; if there is none, cron expressions count from `now`,
    /// and everything else begins immediately.
    #[must_use]
    pub fn next(&self, last: Option<Timestamp>, pause_milliseconds: i64, now: Timestamp) -> Timestamp {
        match (self, last) {
            (Self::Continuous, Some(last)) => last.after(pause_milliseconds),
            (Self::Every(period), Some(last)) => last.after(*period),
            (Self::Continuous | Self::Every(_), None) => now,
            (Self::Cron(cron), last) => next_time(cron, last.unwrap_or(now)).unwrap_or(Timestamp(i64::MAX)),
        }
    }
}

/// Returns the first time after this one at which a policy with this schedule runs.
pub(crate) fn next_time(cron: &Cron, after: Timestamp) -> Option<Timestamp> {
    cron.next_after(after, &TimeZone::UTC, YEARS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_shortest_period_is_ten_seconds() {
        assert_eq!(Schedule::parse("every 10s"), Ok(Schedule::Every(SHORTEST_PERIOD_MILLISECONDS)));
        let refused = "a period of 9.999s is too short; the shortest is 10s".to_owned();
        assert_eq!(Schedule::parse("every 9999ms"), Err(refused));
    }

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
            ("0 0 */2 * fri", "2026-11-23T00:00:00Z"),
            ("0 0 */1 * fri", "2026-11-27T00:00:00Z"),
            ("5/20 11 * * *", "2026-11-21T11:05:00Z"),
            ("0 9,17 * JAN,jul *", "2027-01-01T09:00:00Z"),
            ("@hourly", "2026-11-21T11:00:00Z"),
            ("@yearly", "2027-01-01T00:00:00Z"),
        ] {
            let schedule = Schedule::parse(text).unwrap();
            assert_eq!(schedule.next(None, 0, time(now)), time(expected), "{text}");
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
            ("every 1s", "a period of 1s is too short; the shortest is 10s"),
            (
                "every day",
                "\"day\" is not a duration; expected numbers with units, such as \"2m\" or \"1h30m\"",
            ),
        ] {
            assert_eq!(Schedule::parse(text).unwrap_err(), expected, "{text}");
        }
        for (text, why) in [
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* 5-3 * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * foo *", "failed to parse int from foo: strconv.Atoi: parsing \"foo\": invalid syntax"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("* * * * 8", "end of range (8) above maximum (7): 8"),
            ("daily", "expected exactly 5 fields, found 1: [daily]"),
        ] {
            let expected = format!(
                "{text:?} is no schedule: {why}; expected \"every DURATION\", \"@daily\" or five fields (minute, hour, \
                 day of the month, month, day of the week), such as \"30 4 * * *\""
            );
            assert_eq!(Schedule::parse(text), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-*/,0-9a-z@ ]{0,24}") {
            let _ = Schedule::parse(&text);
        }

        /// The next time is later, on a whole minute, and no earlier one matches: from just before it, it is found again.
        #[test]
        fn the_next_time_is_the_first(
            minute in 0_u32..60, hour in 0_u32..24, seconds in 0_i64..4_000_000_000,
        ) {
            let schedule = Schedule::parse(&format!("{minute} {hour} * * *")).unwrap();
            let now = Timestamp(seconds * 1000);
            let next = schedule.next(None, 0, now);
            prop_assert!(next > now && next.since(now) <= 86_400_000 && next.0 % 60_000 == 0);
            prop_assert_eq!(schedule.next(None, 0, Timestamp(next.0 - 1)), next);
        }
    }
}
