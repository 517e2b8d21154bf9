//! Health of the agent, derived from the results of its passes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Collect;

/// A pass that takes longer than this is stuck, and a restart helps. The longest observed passes took minutes.
const LONGEST_PASS: Duration = Duration::from_hours(1);

/// Answers of `/readyz` and `/healthz`.
pub struct Health {
    /// `true` if the last pass of every collector succeeded.
    pub ready: Arc<AtomicBool>,
    passes: Mutex<BTreeMap<Collect, LastPass>>,
}

/// Result of a collector's last pass.
#[derive(Clone, Copy, Debug)]
struct LastPass {
    /// Time at which the pass ended; before the first one, the start of the process.
    at: Instant,
    /// Result of the pass; `None` before the first one.
    succeeded: Option<bool>,
}

impl Health {
    /// Creates the health before any pass.
    #[must_use]
    pub fn new(collect: &[Collect]) -> Self {
        let none = LastPass { at: Instant::now(), succeeded: None };
        let passes = collect.iter().map(|one| (*one, none)).collect();
        Self { ready: Arc::default(), passes: Mutex::new(passes) }
    }

    /// Records the result of a pass.
    pub(crate) fn ended(&self, collector: Collect, succeeded: bool) {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        passes.insert(collector, LastPass { at: Instant::now(), succeeded: Some(succeeded) });
        let all = passes.values().all(|pass| pass.succeeded == Some(true));
        self.ready.store(all, Ordering::Relaxed);
    }

    /// Explains why the process should be restarted, if it should.
    #[must_use]
    pub fn unhealthy(&self) -> Option<String> {
        self.stuck_at(Instant::now())
    }

    /// Returns the collector whose last pass failed, if any.
    #[must_use]
    pub fn unready(&self) -> Option<String> {
        let passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = passes.iter().find(|(_, pass)| pass.succeeded == Some(false));
        failed.map(|(collector, _)| format!("the last pass over {} failed; see the log", collector.name()))
    }

    fn stuck_at(&self, now: Instant) -> Option<String> {
        let passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        passes.iter().find_map(|(collector, pass)| {
            let silent = now.saturating_duration_since(pass.at);
            (silent > LONGEST_PASS).then(|| {
                let minutes = silent.as_secs() / 60;
                format!("no pass over {} has ended for {minutes} minutes", collector.name())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The agent is ready while the last pass of every collector succeeded, and unhealthy when passes have stopped.
    #[test]
    fn health_follows_the_passes() {
        let health = Health::new(&[Collect::Images, Collect::Containers]);
        let state = |health: &Health| (health.ready.load(Ordering::Relaxed), health.unready());
        assert_eq!(state(&health), (false, None));
        health.ended(Collect::Images, true);
        assert_eq!(state(&health), (false, None), "there was no pass over containers yet");
        health.ended(Collect::Containers, true);
        assert_eq!(state(&health), (true, None));
        health.ended(Collect::Images, false);
        let failed = "the last pass over images failed; see the log";
        assert_eq!(state(&health), (false, Some(failed.to_owned())));
        health.ended(Collect::Images, true);
        assert_eq!(state(&health), (true, None));
        assert_eq!(health.stuck_at(Instant::now() + Duration::from_mins(59)), None);
        let stuck = health.stuck_at(Instant::now() + LONGEST_PASS + Duration::from_mins(1));
        assert_eq!(stuck.as_deref(), Some("no pass over images has ended for 61 minutes"));
    }
}
