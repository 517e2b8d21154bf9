//! Latencies, and the resources that a process has used (from `/proc`).

use std::time::Duration;

use anyhow::Context as _;

/// Linux counts CPU time in hundredths of a second, whatever the rate of its own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// Recorded durations.
#[derive(Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds a duration.
    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns `p50 … p99 … longest …`.
    pub fn describe(&mut self) -> String {
        self.0.sort_unstable();
        let at =
            |percent: usize| self.0.get((self.0.len() * percent / 100).min(self.0.len().saturating_sub(1)));
        let text = |took: Option<&Duration>| {
            took.map_or_else(|| "-".into(), |took| format!("{:.2} ms", took.as_secs_f64() * 1000.0))
        };
        format!("p50 {}, p99 {}, longest {}", text(at(50)), text(at(99)), text(self.0.last()))
    }
}

/// Resources that a process has used so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// CPU time of all threads, user and system.
    pub cpu: Duration,
    /// Largest resident set, KiB.
    pub peak_kib: u64,
    /// Current resident set, KiB.
    pub resident_kib: u64,
}

impl Usage {
    /// Reads `/proc/PID`.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {path}: is there such a process?"))
        };
        Self::parse(&read("stat")?, &read("status")?)
            .with_context(|| format!("/proc/{pid} cannot be understood"))
    }

    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The name of the program, in parentheses, may contain any character.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<u32>().ok()? + fields.get(12)?.parse::<u32>().ok()?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().ok()
        };
        Some(Self {
            cpu: Duration::from_secs_f64(f64::from(ticks) / TICKS_PER_SECOND),
            peak_kib: kib("VmHWM")?,
            resident_kib: kib("VmRSS")?,
        })
    }
}

/// Prints the resources that a process used between two readings.
pub fn print_usage(before: Usage, after: Usage, wall: Duration) {
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    println!(
        "process     {cpu:.2} s of CPU ({:.1} % of one), peak {} MiB, now {} MiB",
        100.0 * cpu / wall.as_secs_f64().max(0.001),
        after.peak_kib >> 10,
        after.resident_kib >> 10
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 900 0 0 0 150 25 0 0 20 0 9 0 100 1 2 3";
        let status = "Name:\ta\nVmPeak:\t  9999 kB\nVmHWM:\t  61440 kB\nVmRSS:\t   51200 kB\n";
        let expected = Usage { cpu: Duration::from_millis(1750), peak_kib: 61_440, resident_kib: 51_200 };
        assert_eq!(Usage::parse(stat, status), Some(expected));
        assert!(Usage::of(std::process::id()).unwrap().peak_kib > 0);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.describe(), "p50 -, p99 -, longest -");
        (1..=100).rev().for_each(|ms| latencies.add(Duration::from_millis(ms)));
        assert_eq!(latencies.describe(), "p50 51.00 ms, p99 100.00 ms, longest 100.00 ms");
    }
}
