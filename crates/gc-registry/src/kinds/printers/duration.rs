//! Durations in kubectl's format.

use jiff::Timestamp;
use serde_json::Value;

/// Formats a duration in seconds as kubectl formats ages: with two units if both matter, otherwise with one, such as `45s`,
/// `5m10s`, `3h20m`, `2d`, `2y30d`.
///
/// ```
/// use gc_registry::kinds::human_duration;
/// assert_eq!(human_duration(3 * 60), "3m");
/// assert_eq!(human_duration(8 * 86_400), "8d");
/// ```
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    // The clocks of two machines differ slightly, so a time slightly in the future counts as now.
    if seconds < -1 {
        return "<invalid>".into();
    }
    if seconds < 0 {
        return "0s".into();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |first: i64, one: &str, second: i64, other: &str| {
        if second == 0 { format!("{first}{one}") } else { format!("{first}{one}{second}{other}") }
    };
    if seconds < 60 * 2 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 60 * 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        two(hours / 24, "d", hours % 24, "h")
    } else if hours < 24 * 365 * 2 {
        format!("{}d", hours / 24)
    } else if hours < 24 * 365 * 8 {
        two(hours / 24 / 365, "y", hours / 24 % 365, "d")
    } else {
        format!("{}y", hours / 24 / 365)
    }
}

/// Formats the time since the moment in a value; `<unknown>` if there is none.
pub(crate) fn since(moment: Option<&Value>, now: Timestamp) -> String {
    match parse(moment) {
        Some(moment) => human_duration(between(moment, now)),
        None => "<unknown>".into(),
    }
}

/// Returns the whole seconds from one moment to another, rounded towards zero.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

/// Parses the moment in a value.
pub(crate) fn parse(moment: Option<&Value>) -> Option<Timestamp> {
    moment?.as_str()?.parse().ok()
}
