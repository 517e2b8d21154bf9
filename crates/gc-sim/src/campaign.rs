//! Campaigns: very many worlds in slices. Each slice is recorded when it is finished, so an interrupted campaign continues where it
//! was.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::violation::Violation;
use crate::{runner, workloads};

/// Number of seeds in a slice: an interruption loses less than a minute's work.
pub const SLICE_SEEDS: u64 = 10_000;
/// Number of seeds in a slice of worlds with workload controllers, which take longer.
pub const WORKLOAD_SLICE_SEEDS: u64 = 1_000;

/// A world that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Seed of the world.
    pub seed: u64,
    /// Oracle that noticed a violation, and its description.
    pub violation: String,
}

/// Result of one slice of a campaign, or of the whole campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// True if workload controllers run in its worlds.
    #[serde(default)]
    pub workloads: bool,
    /// First seed.
    pub from: u64,
    /// Seed after the last.
    pub to: u64,
    /// Number of worlds that ran: less than the number of seeds if there were many failures.
    pub worlds: u64,
    /// Number of events that engines got; not counted in worlds with workload controllers.
    pub events: u64,
    /// Number of requests that reached the server from collectors, or from workload controllers.
    pub requests: u64,
    /// Number of objects that collectors deleted.
    pub collected: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Worlds that failed.
    pub failures: Vec<Failure>,
}

impl From<&runner::Summary> for Slice {
    fn from(summary: &runner::Summary) -> Self {
        Self {
            worlds: summary.seeds,
            events: summary.events,
            requests: summary.requests,
            collected: summary.collected,
            failures: failures(&summary.failures),
            ..Self::default()
        }
    }
}

impl From<&workloads::Summary> for Slice {
    fn from(summary: &workloads::Summary) -> Self {
        Self {
            workloads: true,
            worlds: summary.seeds,
            requests: summary.requests,
            collected: summary.collected,
            failures: failures(&summary.failures),
            ..Self::default()
        }
    }
}

fn failures(found: &[(u64, Violation)]) -> Vec<Failure> {
    found.iter().map(|(seed, violation)| Failure { seed: *seed, violation: violation.to_string() }).collect()
}

impl Slice {
    /// Returns this slice with these seeds and this duration.
    #[must_use]
    pub fn of(self, seeds: &Range<u64>, seconds: f64) -> Self {
        Self { from: seeds.start, to: seeds.end, seconds, ..self }
    }

    /// Returns an empty result of a campaign that begins at the first seed.
    #[must_use]
    pub fn none_of(seeds: &Range<u64>, workloads: bool) -> Self {
        Self { workloads, from: seeds.start, to: seeds.start, ..Self::default() }
    }

    /// Adds the next slice.
    pub fn add(&mut self, next: Self) {
        self.to = next.to;
        self.worlds += next.worlds;
        self.events += next.events;
        self.requests += next.requests;
        self.collected += next.collected;
        self.seconds += next.seconds;
        self.failures.extend(next.failures);
    }

    /// Returns one line for users.
    #[must_use]
    pub fn line(&self) -> String {
        #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
        let rate = self.worlds as f64 / self.seconds.max(0.001);
        let Self { workloads, from, to, worlds, events, requests, collected, seconds, failures } = self;
        let events = if *workloads { String::new() } else { format!("{events} events, ") };
        format!(
            "seeds {from}..{to}: {worlds} worlds, {} violations, {events}{requests} requests, \
             {collected} objects collected, {seconds:.0} s, {rate:.0} worlds/s",
            failures.len()
        )
    }
}

/// Reads a file with one slice per line, up to the first missing seed. The last line may be incomplete.
///
/// # Errors
///
/// Fails if the file belongs to another campaign, or is not a campaign's.
pub fn recorded(seeds: &Range<u64>, workloads: bool, text: &str) -> Result<Slice, String> {
    let mut total = Slice::none_of(seeds, workloads);
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for (number, line) in (1..).zip(complete.lines()) {
        let slice: Slice = serde_json::from_str(line)
            .map_err(|error| format!("line {number} is not the record of a slice: {error}"))?;
        if slice.workloads != workloads {
            let with = if workloads { "without" } else { "with" };
            return Err(format!(
                "line {number} is about worlds {with} workload controllers; record them in another file"
            ));
        }
        if slice.from != total.to || slice.to > seeds.end || slice.to <= slice.from {
            let Range { start, end } = seeds;
            let (from, to) = (slice.from, slice.to);
            return Err(format!(
                "line {number} is about seeds {from}..{to}, which do not continue {start}..{end} from {}; \
                 remove the file to begin again",
                total.to
            ));
        }
        total.add(slice);
    }
    Ok(total)
}

/// File in which a campaign is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a>(pub &'a Path);

impl Record<'_> {
    /// Reads the recorded slices; empty if there is no such file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or does not belong to this campaign.
    pub fn read(&self, seeds: &Range<u64>, workloads: bool) -> Result<Slice, String> {
        let text = match std::fs::read_to_string(self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", self.0.display())),
        };
        let total =
            recorded(seeds, workloads, &text).map_err(|why| format!("{}: {why}", self.0.display()))?;
        // An incomplete line would spoil the next one, so it is cut off.
        let length = text.rfind('\n').map_or(0, |end| end + 1);
        if length < text.len() {
            std::fs::write(self.0, &text[..length])
                .map_err(|error| format!("{}: {error}", self.0.display()))?;
        }
        Ok(total)
    }

    /// Records one more slice.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn append(&self, slice: &Slice) -> Result<(), String> {
        let mut line = serde_json::to_string(slice).map_err(|error| error.to_string())?;
        line.push('\n');
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.0)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|error| format!("{}: {error}", self.0.display()))
    }
}

/// Parses the seeds in an argument: `A..B`, or a number of seeds from `first` on.
///
/// # Errors
///
/// Fails if the argument names no seeds.
pub fn seeds_of(text: &str, first: u64) -> Result<Range<u64>, String> {
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    let range = match text.split_once("..") {
        Some((from, to)) => number(from).zip(number(to)).map(|(from, to)| from..to),
        None => number(text).map(|count| first..first.saturating_add(count)),
    };
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| format!("--seeds: expected A..B or a number of seeds, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(from: u64, to: u64) -> Slice {
        let failures = vec![Failure { seed: from, violation: "safety: x".to_owned() }];
        Slice {
            workloads: false,
            from,
            to,
            worlds: to - from,
            events: 7,
            requests: 5,
            collected: 3,
            seconds: 2.0,
            failures,
        }
    }

    fn lines(slices: &[Slice]) -> String {
        slices.iter().map(|slice| serde_json::to_string(slice).unwrap_or_default() + "\n").collect()
    }

    #[test]
    fn a_campaign_continues_after_its_last_complete_line() {
        let (one, two) = (slice(10, 20), slice(20, 30));
        let mut both = one.clone();
        both.add(two.clone());
        let whole = lines(&[one.clone(), two.clone()]);
        for (text, expected) in [
            (String::new(), Slice::none_of(&(10..40), false)),
            (lines(std::slice::from_ref(&one)), one.clone()),
            (whole.clone(), both),
            (whole[..whole.len() - 1].to_owned(), one),
        ] {
            assert_eq!(recorded(&(10..40), false, &text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_of_a_campaign_is_refused() {
        for (text, workloads) in [
            (lines(&[slice(0, 10)]), false),
            (lines(&[slice(10, 50)]), false),
            (lines(&[slice(10, 10)]), false),
            (lines(&[slice(10, 20)]), true),
            ("x\n".into(), false),
        ] {
            assert!(recorded(&(10..40), workloads, &text).is_err(), "{workloads} {text}");
        }
    }

    #[test]
    fn a_line_counts_only_what_was_counted() {
        let with = Slice { workloads: true, events: 0, ..slice(10, 20) };
        for (slice, expected) in [
            (
                slice(10, 20),
                "seeds 10..20: 10 worlds, 1 violations, 7 events, 5 requests, 3 objects collected, 2 s, 5 worlds/s",
            ),
            (with, "seeds 10..20: 10 worlds, 1 violations, 5 requests, 3 objects collected, 2 s, 5 worlds/s"),
        ] {
            assert_eq!(slice.line(), expected);
        }
    }

    #[test]
    fn seeds_are_a_range_or_a_count() {
        for (text, expected) in [
            ("10_000..20_000", Some(10_000..20_000)),
            ("500", Some(7..507)),
            ("5..5", None),
            ("0", None),
            ("5..", None),
            ("..", None),
            ("many", None),
        ] {
            assert_eq!(seeds_of(text, 7).ok(), expected, "{text}");
        }
    }
}
