//! Clock by which a node's images age.
//!
//! A node's wall clock may be wrong after boot and corrected by days. Ages must not change with it: within one boot they grow with
//! the monotonic clock, and only the time between two boots is taken from the wall clock, up to [`LONGEST_GAP`]. When in doubt,
//! objects are assumed to be younger, and are kept.

use gc_types::UnixNanoseconds;
use serde::{Deserialize, Serialize};

/// Readings of the machine's clocks at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineTime {
    /// The identifier of the machine; empty if it has none.
    pub machine: String,
    /// The boot identifier; empty if the machine has none.
    pub boot: String,
    /// Nanoseconds since boot, including time spent in sleep.
    pub since_boot: i64,
    /// The wall clock.
    pub wall: UnixNanoseconds,
}

/// An age clock as saved together with the dates that it gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedAgeClock {
    /// Empty if saved by an older version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    machine: String,
    boot: String,
    since_boot: i64,
    /// Nanoseconds since the epoch, by the wall clock and by the age clock.
    wall: i64,
    shown: i64,
}

/// Reason why a saved clock was not simply continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The wall clock is earlier than when the clock was saved, by this many nanoseconds. No age has grown since.
    FromTheFuture(i64),
    /// According to the wall clock, more time than [`LONGEST_GAP`] has passed since the clock was saved, in nanoseconds. Ages have
    /// grown by the gap only.
    LongGap(i64),
    /// Another machine saved the clock, for example before the disk was turned into an image. None of its dates are valid here.
    OtherMachine,
}

/// Maximum time between two boots by which ages grow, in nanoseconds. A reboot takes minutes, whereas a wall clock that is not set
/// yet may be wrong by years and would make every image too old at once.
pub const LONGEST_GAP: i64 = 3_600_000_000_000;

/// Maximum number of wall clock settings that are remembered. Beyond it, all are forgotten, and dates that depend on them count as
/// now.
const MAX_OFFSETS: usize = 16;
/// Minimum difference between two settings: two clocks are not read at the same instant.
const SAME_OFFSET: i64 = 1_000_000_000;

/// A clock that starts with the wall clock at first contact and is continued from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgeClock {
    machine: String,
    boot: String,
    /// Lead of the wall clock over this one, for each observed setting.
    offsets: Vec<i64>,
    /// Dates before this moment are read as this moment.
    dates_from: i64,
    /// Its reading when it was resumed, without the time taken from the wall clock.
    shown: i64,
    since_boot: i64,
    wall: i64,
    /// Time since the previous boot by the wall clock. It counts up to [`LONGEST_GAP`], and is withdrawn if the wall clock is set
    /// back.
    unproven: i64,
}

impl AgeClock {
    /// Continues a saved clock, or starts with the wall clock.
    #[must_use]
    pub fn resume(saved: Option<&SavedAgeClock>, now: &MachineTime) -> (Self, Option<Doubt>) {
        let begin = |shown: i64, unproven: i64| {
            let clock = Self {
                machine: now.machine.clone(),
                boot: now.boot.clone(),
                offsets: saved.map(|saved| saved.wall.saturating_sub(saved.shown)).into_iter().collect(),
                dates_from: i64::MIN,
                shown,
                since_boot: now.since_boot,
                wall: now.wall.0,
                unproven,
            };
            clock.noticing(now)
        };
        let Some(saved) = saved else { return (begin(now.wall.0, 0), None) };
        let passed = now.since_boot.saturating_sub(saved.since_boot);
        if saved.boot == now.boot && !now.boot.is_empty() && passed >= 0 {
            return (begin(saved.shown.saturating_add(passed), 0), None);
        }
        if saved.machine != now.machine && !saved.machine.is_empty() && !now.machine.is_empty() {
            return (Self::resume(None, now).0, Some(Doubt::OtherMachine));
        }
        let by_wall = now.wall.0.saturating_sub(saved.wall);
        let doubt = match by_wall {
            ..0 => Some(Doubt::FromTheFuture(by_wall.saturating_neg())),
            0..=LONGEST_GAP => None,
            _ => Some(Doubt::LongGap(by_wall)),
        };
        (begin(saved.shown, by_wall.max(0)), doubt)
    }

    /// Returns the current reading.
    #[must_use]
    pub fn now(&self, now: &MachineTime) -> UnixNanoseconds {
        let passed = now.since_boot.saturating_sub(self.since_boot).max(0);
        let expected = self.wall.saturating_add(passed);
        let set_back = expected.saturating_sub(now.wall.0).max(0);
        let between = self.unproven.saturating_sub(set_back).clamp(0, LONGEST_GAP);
        UnixNanoseconds(self.shown.saturating_add(between).saturating_add(passed))
    }

    /// Records the current setting of the wall clock.
    fn noticing(mut self, now: &MachineTime) -> Self {
        let offset = now.wall.0.saturating_sub(self.now(now).0);
        let is_same = |known: &i64| known.abs_diff(offset) < SAME_OFFSET.unsigned_abs();
        if self.offsets.iter().any(is_same) {
            return self;
        }
        if self.offsets.len() >= MAX_OFFSETS {
            self.offsets.clear();
            self.dates_from = self.now(now).0;
        }
        self.offsets.push(offset);
        self
    }

    /// Returns the conversion for dates that the runtime and the filesystem write by the wall clock. Call it at each observation,
    /// so that every setting of the wall clock is recorded.
    #[must_use]
    pub fn wall_dates(&mut self, now: &MachineTime) -> WallDates {
        *self = self.clone().noticing(now);
        WallDates { offsets: self.offsets.clone(), from: self.dates_from, now: self.now(now) }
    }

    /// Returns the state to save.
    #[must_use]
    pub fn save(&self, now: &MachineTime) -> SavedAgeClock {
        SavedAgeClock {
            machine: self.machine.clone(),
            boot: self.boot.clone(),
            since_boot: now.since_boot,
            wall: now.wall.0,
            shown: self.now(now).0,
        }
    }
}

/// Converts dates of a wall clock that may have been set since then, to the latest moment that they can mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WallDates {
    offsets: Vec<i64>,
    from: i64,
    now: UnixNanoseconds,
}

impl WallDates {
    /// Returns the time from which ages are counted.
    #[must_use]
    pub fn now(&self) -> UnixNanoseconds {
        self.now
    }

    /// Returns the age clock's reading at a wall clock time. A date after all settings stays in the future, so its object is too
    /// young for any removal. Absent dates (zero) stay absent.
    #[must_use]
    pub fn read(&self, wall: UnixNanoseconds) -> UnixNanoseconds {
        if wall.0 <= 0 {
            return wall;
        }
        let meant = self.offsets.iter().map(|offset| wall.0.saturating_sub(*offset));
        let latest_possible = self.now.0.saturating_add(SAME_OFFSET);
        let past = meant.clone().filter(|moment| *moment <= latest_possible).max();
        // Zero would mean that there is no date.
        let read = past
            .map(|moment| moment.max(self.from).min(self.now.0))
            .or_else(|| meant.min())
            .unwrap_or(wall.0);
        UnixNanoseconds(read.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: i64 = 60_000_000_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    fn at(boot: &str, since_boot: i64, wall: i64) -> MachineTime {
        MachineTime { machine: "m".into(), boot: boot.to_owned(), since_boot, wall: UnixNanoseconds(wall) }
    }

    /// First contact in boot `a` at day 100, saved an hour later; the clock's readings after that.
    #[test]
    fn ages_grow_by_what_has_really_passed() {
        let first = at("a", DAY, 100 * DAY);
        let (clock, doubt) = AgeClock::resume(None, &first);
        assert_eq!((clock.now(&first).0, doubt), (100 * DAY, None));
        let saved = clock.save(&at("a", DAY + 60 * MINUTE, 100 * DAY + 60 * MINUTE));
        let hour = 100 * DAY + 60 * MINUTE;
        for (what, resumed, later, grown, doubt) in [
            (
                "the same boot",
                at("a", DAY + 70 * MINUTE, hour + 10 * MINUTE),
                at("a", DAY + 75 * MINUTE, hour + 15 * MINUTE),
                15 * MINUTE,
                None,
            ),
            (
                "the wall clock was two days ahead before the restart",
                at("a", DAY + 70 * MINUTE, hour + 2 * DAY),
                at("a", DAY + 75 * MINUTE, hour + 2 * DAY),
                15 * MINUTE,
                None,
            ),
            (
                "it is set two days ahead later",
                at("a", DAY + 70 * MINUTE, hour + 10 * MINUTE),
                at("a", DAY + 75 * MINUTE, hour + 2 * DAY),
                15 * MINUTE,
                None,
            ),
            ("it is behind", at("a", DAY + 70 * MINUTE, 0), at("a", DAY + 75 * MINUTE, 0), 15 * MINUTE, None),
            (
                "another boot",
                at("b", MINUTE, hour + 20 * MINUTE),
                at("b", 2 * MINUTE, hour + 21 * MINUTE),
                21 * MINUTE,
                None,
            ),
            (
                "another boot, after a year or with a clock that is a year ahead",
                at("b", MINUTE, hour + 365 * DAY),
                at("b", 2 * MINUTE, hour + 365 * DAY + MINUTE),
                LONGEST_GAP + MINUTE,
                Some(Doubt::LongGap(365 * DAY)),
            ),
            (
                "another boot, with a clock from long ago, corrected later",
                at("b", MINUTE, 0),
                at("b", 2 * MINUTE, hour + 3 * DAY),
                MINUTE,
                Some(Doubt::FromTheFuture(hour)),
            ),
            (
                "another boot, with a clock two days ahead, corrected later",
                at("b", MINUTE, hour + 20 * MINUTE + 2 * DAY),
                at("b", 2 * MINUTE, hour + 21 * MINUTE),
                21 * MINUTE,
                Some(Doubt::LongGap(20 * MINUTE + 2 * DAY)),
            ),
            (
                "another boot that was longer ago",
                at("b", 2 * DAY, hour + 20 * MINUTE),
                at("b", 2 * DAY + MINUTE, hour + 21 * MINUTE),
                21 * MINUTE,
                None,
            ),
            (
                "the same boot, with less time since",
                at("a", MINUTE, hour + 20 * MINUTE),
                at("a", 2 * MINUTE, hour + 21 * MINUTE),
                21 * MINUTE,
                None,
            ),
            (
                "a machine that names no boot",
                at("", DAY + 70 * MINUTE, hour + 10 * MINUTE),
                at("", DAY + 75 * MINUTE, hour + 15 * MINUTE),
                15 * MINUTE,
                None,
            ),
        ] {
            let (clock, doubted) = AgeClock::resume(Some(&saved), &resumed);
            assert_eq!((clock.now(&later).0 - hour, doubted), (grown, doubt), "{what}");
        }
    }

    /// The machine was created from an image that included the state directory.
    #[test]
    fn the_clock_of_another_machine_is_not_continued() {
        let (clock, _) = AgeClock::resume(None, &at("a", DAY, 100 * DAY));
        let saved = clock.save(&at("a", DAY + MINUTE, 100 * DAY + MINUTE));
        let on = |machine: &str, boot: &str| {
            let now = MachineTime { machine: machine.into(), ..at(boot, MINUTE, 400 * DAY) };
            let (clock, doubt) = AgeClock::resume(Some(&saved), &now);
            (clock.now(&now).0, doubt)
        };
        let begun = (400 * DAY, Some(Doubt::OtherMachine));
        let continued = (100 * DAY + MINUTE + LONGEST_GAP, Some(Doubt::LongGap(300 * DAY - MINUTE)));
        assert_eq!(on("other", "b"), begun);
        assert_eq!(on("m", "b"), continued);
        // Without an identifier the machine is unknown; within the same boot it is certainly the same one.
        assert_eq!(on("", "b"), continued);
        let later = MachineTime { machine: "other".into(), ..at("a", DAY + 2 * MINUTE, 100 * DAY) };
        assert_eq!(AgeClock::resume(Some(&saved), &later).1, None);
    }

    /// A container was created at noon of day 100, and the wall clock was set before or after.
    #[test]
    fn dates_of_the_wall_clock_are_read_as_the_latest_that_they_can_mean() {
        let noon = 100 * DAY;
        let hour = 60 * MINUTE;
        for (what, settings, date, age) in [
            ("it was never set", &[0][..], noon, hour),
            ("two days ahead since", &[0, 2 * DAY], noon, hour),
            ("two days ahead, and created after that", &[0, 2 * DAY], noon + 2 * DAY, hour),
            ("ahead by a week and back, and created in between", &[0, 7 * DAY, 0], noon + 7 * DAY, hour),
            ("two days behind since", &[0, -2 * DAY], noon, hour),
            ("two days behind, and created after that", &[0, -2 * DAY], noon - 2 * DAY, hour),
            ("created by a setting that nothing has seen", &[0], noon + 30 * DAY, hour - 30 * DAY),
            ("created a moment ago, and read a moment late", &[0], noon + hour + 5_000_000, 0),
        ] {
            let (mut clock, _) = AgeClock::resume(None, &at("a", DAY, noon));
            let mut dates = None;
            for (passes, set) in settings.iter().enumerate() {
                let last = passes + 1 == settings.len();
                let since = if last { hour } else { i64::try_from(passes).unwrap_or_default() };
                dates = Some(clock.wall_dates(&at("a", DAY + since, noon + since + set)));
            }
            let dates = dates.expect("one setting at least");
            assert_eq!(dates.now().0 - dates.read(UnixNanoseconds(date)).0, age, "{what}");
            assert_eq!(dates.read(UnixNanoseconds(0)), UnixNanoseconds(0), "{what}");
        }
        // The setting before a restart is remembered.
        let (clock, _) = AgeClock::resume(None, &at("a", DAY, noon));
        let saved = clock.save(&at("a", DAY + MINUTE, noon + MINUTE));
        let ahead = at("a", DAY + hour, noon + hour + 2 * DAY);
        let dates = AgeClock::resume(Some(&saved), &ahead).0.wall_dates(&ahead);
        assert_eq!(dates.now().0 - dates.read(UnixNanoseconds(noon)).0, hour);
    }

    /// Two clocks are not read at the same instant, so a second is the least that counts as a setting.
    #[test]
    fn a_setting_differs_by_a_second() {
        let first = at("a", DAY, 100 * DAY);
        for (set, settings) in
            [(0, 1), (SAME_OFFSET - 1, 1), (1 - SAME_OFFSET, 1), (SAME_OFFSET, 2), (-SAME_OFFSET, 2)]
        {
            let (mut clock, _) = AgeClock::resume(None, &first);
            for _ in 0..3 {
                let _ = clock.wall_dates(&at("a", DAY, 100 * DAY + set));
            }
            assert_eq!(clock.offsets.len(), settings, "{set}");
        }
    }

    proptest! {
        /// However the wall clock is set, its dates never make anything older than it is.
        #[test]
        fn no_date_is_read_as_too_old(
            steps in proptest::collection::vec((0_i64..DAY, -3 * DAY..3 * DAY), 1..40),
            created in 0_usize..40,
        ) {
            let mut machine = at("a", DAY, 100 * DAY);
            let (mut clock, _) = AgeClock::resume(None, &machine);
            let mut date = None;
            for (number, (passed, set)) in steps.iter().enumerate() {
                machine.since_boot += passed;
                machine.wall.0 += passed + set;
                let dates = clock.wall_dates(&machine);
                if number == created {
                    date = Some((machine.wall, dates.now()));
                }
                if let Some((wall, truth)) = date {
                    prop_assert!(dates.read(wall) >= UnixNanoseconds(truth.0 - 2 * SAME_OFFSET));
                }
            }
        }

        /// Within a boot, no age grows by more than the elapsed monotonic time, however the wall clock is set and however often the
        /// agent restarts.
        #[test]
        fn no_age_grows_by_more_than_has_passed(
            steps in proptest::collection::vec((0_i64..DAY, -3 * DAY..3 * DAY, any::<bool>()), 1..20),
        ) {
            let mut machine = at("a", DAY, 100 * DAY);
            let (mut clock, _) = AgeClock::resume(None, &machine);
            let mut shown = clock.now(&machine).0;
            for (passed, set, restarts) in steps {
                machine.since_boot += passed;
                machine.wall.0 += passed + set;
                if restarts {
                    clock = AgeClock::resume(Some(&clock.save(&machine)), &machine).0;
                }
                let now = clock.now(&machine).0;
                prop_assert!(now - shown <= passed, "{} in {passed}", now - shown);
                shown = now;
            }
        }
    }
}
