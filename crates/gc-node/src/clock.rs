//! The time, and requests to stop.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gc_collectors::ages::{AgeClock, Doubt, LONGEST_GAP, MachineTime, SavedAgeClock, WallDates};
use gc_types::UnixNanoseconds;
use tokio::sync::watch;
use tracing::{info, warn};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Files that identify a machine: its installation, and its hardware or virtual machine. A copied disk shares only the first.
const MACHINE_IDS: [&str; 2] = ["/etc/machine-id", "/sys/class/dmi/id/product_uuid"];
const UPTIME: &str = "/proc/uptime";

/// Returns the wall clock.
#[must_use]
pub(crate) fn now() -> UnixNanoseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanoseconds(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Returns the readings of this machine's clocks, shifted by `ahead` nanoseconds. If neither its boot nor its uptime is known, each
/// process counts as a boot of its own.
fn machine_time(ahead: i64) -> MachineTime {
    static BOOT: LazyLock<String> =
        LazyLock::new(|| std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default());
    static MACHINE: LazyLock<String> = LazyLock::new(|| {
        let ids = MACHINE_IDS.map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let ids: Vec<&str> = ids.iter().map(|id| id.trim()).filter(|id| !id.is_empty()).collect();
        ids.join("/")
    });
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let uptime = std::fs::read_to_string(UPTIME).ok().and_then(|text| read_uptime(&text));
    let (boot, since_boot) = match uptime {
        Some(uptime) => (BOOT.clone(), uptime),
        None => (String::new(), i64::try_from(START.elapsed().as_nanos()).unwrap_or(i64::MAX)),
    };
    let wall = UnixNanoseconds(now().0.saturating_add(ahead));
    MachineTime { machine: MACHINE.clone(), boot, since_boot: since_boot.saturating_add(ahead), wall }
}

/// Returns the first number of `/proc/uptime`: seconds since boot, including time in sleep.
fn read_uptime(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_whitespace().next()?.split_once('.')?;
    let digits = fraction.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let hundredths = seconds.parse::<i64>().ok()?.checked_mul(100)?.checked_add(digits.parse().ok()?)?;
    hundredths.checked_mul(10_000_000)
}

/// Clock for the age of images, leftovers of pods, and unknown pods. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    clock: Arc<Mutex<AgeClock>>,
    ahead: TestClock,
}

impl Default for Ages {
    fn default() -> Self {
        Self::with(TestClock::default())
    }
}

/// Sets the clock of an agent ahead so that tests need not wait. Clones share it.
#[derive(Clone, Debug)]
pub struct TestClock(watch::Sender<i64>);

impl Default for TestClock {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl TestClock {
    /// Sets the clock further ahead. Every pass that is not in progress begins.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        self.0.send_modify(|ahead| *ahead = ahead.saturating_add(by));
    }

    /// Returns the duration by which the clock is ahead.
    #[must_use]
    pub fn ahead(&self) -> Duration {
        Duration::from_nanos(u64::try_from(*self.0.borrow()).unwrap_or_default())
    }

    /// Returns a receiver that changes when the clock is set.
    pub(crate) fn changes(&self) -> watch::Receiver<i64> {
        self.0.subscribe()
    }

    fn machine_time(&self) -> MachineTime {
        machine_time(*self.0.borrow())
    }
}

impl Ages {
    /// Creates a clock that a test may set ahead.
    pub(crate) fn with(ahead: TestClock) -> Self {
        let clock = AgeClock::resume(None, &ahead.machine_time()).0;
        Self { clock: Arc::new(Mutex::new(clock)), ahead }
    }

    fn lock(&self) -> MutexGuard<'_, AgeClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues a saved clock. Returns `false` if another machine saved it: dates from there mean nothing here.
    pub(crate) fn resume(&self, saved: &SavedAgeClock) -> bool {
        let (clock, doubt) = AgeClock::resume(Some(saved), &self.ahead.machine_time());
        *self.lock() = clock;
        let seconds = |nanoseconds: i64| nanoseconds / 1_000_000_000;
        match doubt {
            None => {}
            Some(Doubt::FromTheFuture(by)) => {
                let seconds = seconds(by);
                warn!(seconds, "the saved ages are later than this machine's clock; they do not grow");
            }
            Some(Doubt::LongGap(by)) => {
                let (seconds, counted) = (seconds(by), seconds(LONGEST_GAP));
                info!(
                    seconds,
                    counted,
                    "this machine was off for long, or its clock was set; ages grow by a part of that"
                );
            }
            Some(Doubt::OtherMachine) => {
                warn!("the saved ages are those of another machine; they are counted from now");
                return false;
            }
        }
        true
    }

    /// Returns the current reading.
    pub(crate) fn now(&self) -> UnixNanoseconds {
        self.lock().now(&self.ahead.machine_time())
    }

    /// Converts dates that the runtime and the filesystem record by the wall clock.
    pub(crate) fn wall_dates(&self) -> WallDates {
        self.lock().wall_dates(&self.ahead.machine_time())
    }

    /// Returns the state to save.
    pub(crate) fn save(&self) -> SavedAgeClock {
        self.lock().save(&self.ahead.machine_time())
    }
}

/// Signal that the process was asked to stop. Work in progress ends; no new work begins.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns a sender and a stop: sending true requests it.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Reports whether a stop was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Ends when a stop is requested, or can no longer be.
    pub async fn requested(&self) {
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_are_read() {
        for (text, expected) in [
            ("13824.17 27000.33\n", Some(13_824_170_000_000)),
            ("0.05 0.00", Some(50_000_000)),
            ("", None),
            ("13824 27000", None),
            ("1.x", None),
            ("99999999999999999999.00 1", None),
        ] {
            assert_eq!(read_uptime(text), expected, "{text}");
        }
    }

    #[test]
    fn this_machine_has_a_boot_identifier() {
        let (one, other) = (machine_time(0), machine_time(0));
        assert!(
            !one.boot.is_empty() && one.boot == other.boot && one.since_boot <= other.since_boot,
            "{one:?}"
        );
    }
}
