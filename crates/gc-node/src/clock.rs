//! The time, and the wish to stop.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gc_retention::ages::{AgeClock, Doubt, MachineTime, SavedAgeClock};
use gc_types::UnixNanoseconds;
use tokio::sync::watch;
use tracing::warn;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const UPTIME: &str = "/proc/uptime";

/// The wall clock.
#[must_use]
pub(crate) fn now() -> UnixNanoseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanoseconds(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// What this machine's clocks show. Where it tells neither its boot nor its uptime, each process is a boot of its own.
fn machine_time() -> MachineTime {
    static BOOT: LazyLock<String> =
        LazyLock::new(|| std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default());
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let uptime = std::fs::read_to_string(UPTIME).ok().and_then(|text| read_uptime(&text));
    let (boot, since_boot) = match uptime {
        Some(uptime) => (BOOT.clone(), uptime),
        None => (String::new(), i64::try_from(START.elapsed().as_nanos()).unwrap_or(i64::MAX)),
    };
    MachineTime { boot, since_boot, wall: now() }
}

/// The first number of `/proc/uptime`: seconds since the boot, those included in which the machine slept.
fn read_uptime(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_whitespace().next()?.split_once('.')?;
    let digits = fraction.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let hundredths = seconds.parse::<i64>().ok()?.checked_mul(100)?.checked_add(digits.parse().ok()?)?;
    hundredths.checked_mul(10_000_000)
}

/// The clock by which images age, and pods count as unknown. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Ages(Arc<Mutex<AgeClock>>);

impl Default for Ages {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(AgeClock::resume(None, &machine_time()).0)))
    }
}

impl Ages {
    fn lock(&self) -> MutexGuard<'_, AgeClock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries on what was saved, if anything was.
    pub(crate) fn resume(&self, saved: &SavedAgeClock) {
        let (clock, doubt) = AgeClock::resume(Some(saved), &machine_time());
        *self.lock() = clock;
        if let Some(Doubt::FromTheFuture(by)) = doubt {
            let seconds = by / 1_000_000_000;
            warn!(
                seconds,
                "the saved ages are from the future of this machine's clock; none has grown since"
            );
        }
    }

    /// What it shows.
    pub(crate) fn now(&self) -> UnixNanoseconds {
        self.lock().now(&machine_time())
    }

    /// By how many nanoseconds the wall clock is ahead of it.
    pub(crate) fn wall_ahead(&self) -> i64 {
        let time = machine_time();
        time.wall.0.saturating_sub(self.lock().now(&time).0)
    }

    /// What is to be saved of it.
    pub(crate) fn save(&self) -> SavedAgeClock {
        self.lock().save(&machine_time())
    }
}

/// Whether the process was asked to end. Work under way ends; nothing new begins.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A pair: sending true requests a stop.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Whether it was.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Ends when it is requested (or can no longer be).
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
    fn this_machine_tells_its_boot() {
        let (one, other) = (machine_time(), machine_time());
        assert!(
            !one.boot.is_empty() && one.boot == other.boot && one.since_boot <= other.since_boot,
            "{one:?}"
        );
    }
}
