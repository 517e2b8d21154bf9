//! Wording that several answers share.

use gc_types::Timestamp;

/// Formats an age as kubectl prints it: the two largest units that matter.
#[must_use]
pub fn age(milliseconds: i64) -> String {
    let seconds = milliseconds.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 > 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 > 0 => format!("{days}d{}h", hours % 24),
        _ if days < 730 => format!("{days}d"),
        _ => format!("{}y{}d", days / 365, days % 365),
    }
}

/// Formats the time since a moment.
#[must_use]
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} ago", age(now.since(then)))
}

/// Formats a time ahead: `58 s`, `12 min`, `3 h`, `2 days`.
#[must_use]
pub fn ahead(milliseconds: i64) -> String {
    let seconds = milliseconds.max(0).saturating_add(999) / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Formats a number with its noun: `1 object`, `2 objects`, `1,204 objects`.
#[must_use]
pub fn count(number: usize, noun: &str) -> String {
    format!("{} {}", thousands(number), plural(number, noun))
}

/// Returns the noun in singular or plural.
#[must_use]
pub fn plural(number: usize, noun: &str) -> String {
    match noun {
        _ if number == 1 => noun.to_owned(),
        _ if noun.ends_with("cy") || noun.ends_with("ry") || noun.ends_with("ty") => {
            format!("{}ies", &noun[..noun.len() - 1])
        }
        _ if noun.ends_with('s') || noun.ends_with("ch") || noun.ends_with('x') => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// Formats a number with commas between thousands.
#[must_use]
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Lists the first of several texts, and the number of further ones.
#[must_use]
pub fn some_of(all: &[String], shown: usize) -> String {
    let text = all.iter().take(shown).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > shown { format!("{text} and {} more", thousands(all.len() - shown)) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        let ages = [
            0, 119, 120, 599, 600, 10_799, 10_800, 28_740, 28_800, 172_799, 172_800, 691_199, 691_200,
            63_072_000,
        ];
        let expected = [
            "0s", "119s", "2m", "9m59s", "10m", "179m", "3h", "7h59m", "8h", "47h", "2d", "7d23h", "8d",
            "2y0d",
        ];
        assert_eq!(ages.map(|seconds| age(seconds * 1000)), expected);
    }

    #[test]
    fn numbers_have_their_nouns() {
        let texts = [
            count(1, "object"),
            count(1204, "Pod"),
            count(2, "NetworkPolicy"),
            count(2, "Ingress"),
            count(1_000_000, "Secret"),
        ];
        assert_eq!(
            texts,
            ["1 object", "1,204 Pods", "2 NetworkPolicies", "2 Ingresses", "1,000,000 Secrets"]
        );
    }
}
