//! Runs many worlds one after the other, and shortens the story of a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::ScopedJoinHandle;

use crate::defects::Defect;
use crate::namespaces;
use crate::oracle::Exemptions;
use crate::story::{Step, Story};
use crate::violation::Violation;
use crate::world::{self, Options, Report};

/// Maximum number of runs to shorten a story.
pub const SHRINK_RUNS: usize = 600;

/// Runs a story; a panic counts as a violation like any other.
#[must_use]
pub fn run_story(story: &Story, options: Options) -> Report {
    let happen = if story.namespaces { namespaces::run } else { world::run };
    let attempt = catch_unwind(AssertUnwindSafe(|| happen(story, options)));
    attempt.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let message = text.unwrap_or_else(|| "a panic".to_owned());
        Report { violation: Some(Violation { oracle: "panic", message }), ..Report::default() }
    })
}

/// Runs the story of a seed.
#[must_use]
pub fn run_seed(seed: u64, options: Options) -> Report {
    run_story(&options.story(seed), options)
}

/// Returns the shortest story found in which the same oracle is violated: client actions, faults and all other steps are left out
/// as long as it still is.
#[must_use]
pub fn shrink(story: &Story, options: Options, oracle: &str) -> Story {
    let mut best = story.clone();
    let mut runs = 0;
    let fails = |candidate: &Story, runs: &mut usize| {
        *runs += 1;
        let report = run_story(candidate, Options { trace: false, ..options });
        report.violation.is_some_and(|violation| violation.oracle == oracle)
    };
    let mut size = best.steps.len().div_ceil(2);
    while size > 0 && runs < SHRINK_RUNS {
        let mut start = 0;
        while start < best.steps.len() && runs < SHRINK_RUNS {
            let mut candidate = best.clone();
            candidate.steps.drain(start..(start + size).min(best.steps.len()));
            if fails(&candidate, &mut runs) {
                best = candidate;
            } else {
                start += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    for index in 0..best.steps.len() {
        let mut candidate = best.clone();
        match &mut candidate.steps[index] {
            Step::Serve(_, fault @ Some(_)) => *fault = None,
            _ => continue,
        }
        if runs < SHRINK_RUNS && fails(&candidate, &mut runs) {
            best = candidate;
        }
    }
    best
}

/// Result of many worlds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of worlds that ran.
    pub seeds: u64,
    /// See [`Report`].
    pub events: u64,
    /// See [`Report`].
    pub requests: u64,
    /// See [`Report`].
    pub collected: u64,
    /// See [`Report`].
    pub exemptions: Exemptions,
    /// See [`Report`].
    pub happened: std::collections::BTreeMap<&'static str, u64>,
    /// A number that two runs of the same seeds share only if all their worlds were alike.
    pub digest: u64,
    /// The seeds that failed, and how.
    pub failures: Vec<(u64, Violation)>,
}

impl Summary {
    /// Adds the report of one world.
    pub fn add(&mut self, seed: u64, report: Report) {
        self.seeds += 1;
        self.events += report.events;
        self.requests += report.requests;
        self.collected += report.collected;
        // Whichever thread ran it, and in whichever order.
        let seed_bits = u32::try_from(seed % u64::from(u64::BITS)).unwrap_or_default();
        self.digest = self.digest.wrapping_add(report.digest.rotate_left(seed_bits));
        self.exemptions.add(&report.exemptions);
        for (what, count) in report.happened {
            *self.happened.entry(what).or_default() += count;
        }
        if let Some(violation) = report.violation {
            self.failures.push((seed, violation));
        }
    }

    /// Adds the summary of another thread.
    pub fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.requests += other.requests;
        self.collected += other.collected;
        self.digest = self.digest.wrapping_add(other.digest);
        self.exemptions.add(&other.exemptions);
        for (what, count) in other.happened {
            *self.happened.entry(what).or_default() += count;
        }
        self.failures.extend(other.failures);
    }
}

/// Runs `work` in this many threads. Panics if one of them panics.
pub(crate) fn in_threads<T: Send>(threads: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let done = workers.into_iter().map(ScopedJoinHandle::join);
        done.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Runs a number of seeds in a number of threads; each world stays in one thread. Stops a thread at its tenth failure.
#[must_use]
pub fn run_seeds(from: u64, count: u64, threads: u64, options: Options) -> Summary {
    const FAILURES_PER_THREAD: usize = 10;
    let threads = threads.clamp(1, 64);
    let mut total = Summary::default();
    let summaries = in_threads(threads, |thread| {
        let mut summary = Summary::default();
        let mut seed = from + thread;
        while seed < from + count && summary.failures.len() < FAILURES_PER_THREAD {
            summary.add(seed, run_seed(seed, options));
            seed += threads;
        }
        summary
    });
    for summary in summaries {
        total.merge(summary);
    }
    total.failures.sort_by_key(|(seed, _)| *seed);
    total
}

/// Discovery of a planted defect.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Number of seeds that were needed in each successful try.
    pub needed: Vec<u64>,
    /// Oracles that noticed, in the order of the tries.
    pub oracles: Vec<&'static str>,
    /// Number of tries.
    pub tries: u64,
}

impl Finding {
    /// Returns the median number of seeds needed, if most tries found the defect: the others needed more than they had.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        let mut needed = self.needed.clone();
        needed.sort_unstable();
        needed.get(usize::try_from(self.tries / 2).ok()?).copied()
    }
}

/// Plants a defect in the world of a seed. Returns the oracle that notices it, if one does. A world in which the defect cannot show is
/// not run.
#[must_use]
pub fn noticed(defect: Defect, seed: u64) -> Option<&'static str> {
    let (liars, shards) = (defect.is_credulity(), defect.is_of_shards());
    let elections = defect.is_of_elected_shards();
    let options = Options { defect: Some(defect), liars, shards, elections, trace: false };
    let story = options.story(seed);
    let violation = if defect.can_show_in(&story) { run_story(&story, options).violation } else { None };
    violation.map(|violation| violation.oracle)
}

/// Plants a defect, and counts the seeds until it is noticed, in several tries with different seeds and a maximum number of them
/// each.
#[must_use]
pub fn hunt(defect: Defect, tries: u64, seeds: u64) -> Finding {
    let mut finding = Finding { needed: Vec::new(), oracles: Vec::new(), tries };
    for attempt in 0..tries {
        let from = 1_000_000 * (attempt + 1);
        let found = (1..=seeds).find_map(|needed| Some((needed, noticed(defect, from + needed)?)));
        if let Some((needed, oracle)) = found {
            finding.needed.push(needed);
            finding.oracles.push(oracle);
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_does_its_part() {
        assert_eq!(in_threads(3, |thread| thread * 2), [0, 2, 4]);
    }

    #[test]
    #[should_panic(expected = "a world has panicked")]
    fn a_panic_in_a_thread_is_not_lost() {
        let _ = in_threads(2, |thread| assert_eq!(thread, 0, "a world has panicked"));
    }
}
