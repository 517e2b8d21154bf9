//! The only agent of its runtime: makes one pass, or passes until it is asked to stop.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use gc_collectors::node_report::Tally;
use gc_cri::Endpoint;
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::{Agent, Collect, aggregate};
use crate::clock::Stop;
use crate::health::Health;
use crate::state::{self, StateDirectory};
use crate::{images, uses};

/// Upstream's periods, counted from the end of a pass to the start of the next.
pub(super) const IMAGE_PERIOD: Duration = Duration::from_mins(5);
const CONTAINER_PERIOD: Duration = Duration::from_mins(1);
const PRESSURE_PERIOD: Duration = Duration::from_secs(10);
/// Interval at which uses from events are saved, if there were any.
const USES_PERIOD: Duration = Duration::from_mins(1);
/// Interval of reports to the cluster, if there were removals.
const REPORT_PERIOD: Duration = IMAGE_PERIOD;

/// An agent that runs alone and remembers the state of earlier ones.
pub struct SoleAgent {
    pub(super) agent: Agent,
    pub(super) state: StateDirectory,
    /// Files that are held for their locks, which end with the process in any case.
    _runtime: Option<Vec<File>>,
}

/// Locks that keep other agents from a runtime and from a state directory.
#[derive(Debug)]
pub struct Locks {
    state: StateDirectory,
    runtime: Option<Vec<File>>,
}

impl Locks {
    /// Takes both locks before the runtime is asked anything.
    pub fn take(endpoint: &Endpoint, state_dir: &Path) -> Result<Self> {
        let runtime = state::lock_runtime(endpoint)?;
        Ok(Self { state: StateDirectory::open(state_dir)?, runtime })
    }
}

/// Result of one pass of each collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Removals so far.
    pub tally: Tally,
    /// Failures, if any.
    pub failure: Option<String>,
}

impl Agent {
    /// Becomes the only agent of its runtime, and reads the saved state.
    pub fn alone(mut self, locks: Locks) -> Result<SoleAgent> {
        let Locks { state, runtime } = locks;
        self.restore(&state)?;
        Ok(SoleAgent { agent: self, state, _runtime: runtime })
    }

    fn restore(&mut self, state: &StateDirectory) -> Result<()> {
        let (history, unknown) = state.load(&self.memory.ages)?;
        if !self.config.forget_ages {
            self.memory.history = history;
        }
        self.pods.restore(unknown);
        self.saved_pods = self.pods.view.unknown_since.clone();
        Ok(())
    }

    /// Records and saves the uses from events: an agent that is killed loses no more than a minute of them.
    pub(super) async fn save_uses(&mut self, state: &StateDirectory) -> Result<()> {
        if self.memory.seen.is_empty() {
            return Ok(());
        }
        let listed = self.client.images().await.context("cannot list images")?;
        images::record_seen_uses(&mut self.memory, &listed.images);
        state.save_images(&self.memory.history, &self.memory.ages)
    }
}

impl SoleAgent {
    /// Makes one pass of each collector.
    pub async fn once(mut self, collect: &[Collect], stop: &Stop) -> Pass {
        let (agent, state) = (&mut self.agent, &self.state);
        agent.stops.wait_longer();
        let mut failures = Vec::new();
        if collect.contains(&Collect::Containers) {
            failures.extend(agent.container_pass(false, state, stop).await.err());
        }
        if collect.contains(&Collect::Images) {
            failures.extend(agent.image_pass(state, stop).await.err());
            failures.extend(agent.below_pass(stop).await.err());
        }
        failures.extend(agent.relieve_pressure(collect, state, stop).await.err());
        agent.report().await;
        if stop.is_requested() {
            failures.push(anyhow::anyhow!("stopped by a signal before the pass was complete"));
        }
        let failures: Vec<String> = failures.iter().map(|error| format!("{error:#}")).collect();
        Pass { tally: agent.tally, failure: aggregate(&failures) }
    }

    /// Makes passes until a stop is requested, and records their results in `health`.
    pub async fn run(mut self, collect: &[Collect], health: &Health, stop: &Stop) -> Result<()> {
        let agent = &mut self.agent;
        let (seen, ages) = (agent.memory.seen.clone(), agent.memory.ages.clone());
        uses::follow(agent.client.clone(), seen, ages, agent.metrics.dropped_uses.clone());
        let started = tokio::time::Instant::now();
        let loop_every = |period| Cadence { next: started, period };
        let (mut image_loop, mut container_loop) = (loop_every(IMAGE_PERIOD), loop_every(CONTAINER_PERIOD));
        let (mut pressure_loop, mut uses_loop) = (loop_every(PRESSURE_PERIOD), loop_every(USES_PERIOD));
        let mut report_loop = loop_every(REPORT_PERIOD);
        let (images, containers) =
            (collect.contains(&Collect::Images), collect.contains(&Collect::Containers));
        let mut set = agent.clock.changes();
        while !stop.is_requested() {
            tokio::select! {
                biased;
                () = stop.requested() => break,
                Ok(()) = set.changed() => {
                    let loops = [&mut container_loop, &mut image_loop, &mut pressure_loop, &mut uses_loop];
                    for one in loops.into_iter().chain([&mut report_loop]) {
                        one.next = tokio::time::Instant::now();
                    }
                }
                () = sleep_until(container_loop.next), if containers => {
                    let done = agent.container_pass(false, &self.state, stop).await;
                    if let Err(error) = &done {
                        warn!("container pass: {error:#}");
                    }
                    container_loop.ended(tokio::time::Instant::now());
                    health.ended(Collect::Containers, done.is_ok());
                }
                () = sleep_until(image_loop.next), if images => {
                    let done = agent.image_pass(&self.state, stop).await;
                    if let Err(error) = &done {
                        warn!("image pass: {error:#}");
                    }
                    if let Err(error) = agent.below_pass(stop).await {
                        warn!("pass below CRI: {error:#}");
                    }
                    image_loop.ended(tokio::time::Instant::now());
                    health.ended(Collect::Images, done.is_ok());
                }
                () = sleep_until(pressure_loop.next) => {
                    if let Err(error) = agent.relieve_pressure(collect, &self.state, stop).await {
                        warn!("disk pressure: {error:#}");
                        // Space that cannot be freed now cannot be freed ten seconds later either.
                        pressure_loop.next = tokio::time::Instant::now() + CONTAINER_PERIOD;
                    } else {
                        pressure_loop.ended(tokio::time::Instant::now());
                    }
                }
                () = sleep_until(uses_loop.next) => {
                    if let Err(error) = agent.save_uses(&self.state).await {
                        warn!("{error:#}");
                    }
                    uses_loop.ended(tokio::time::Instant::now());
                }
                // The report follows the passes that are due at the same time.
                () = sleep_until(report_loop.next) => {
                    agent.report().await;
                    report_loop.ended(tokio::time::Instant::now());
                }
            }
        }
        if let Err(error) = agent.save_uses(&self.state).await {
            warn!("{error:#}");
        }
        self.state.save_images(&agent.memory.history, &agent.memory.ages)?;
        info!("stopped");
        Ok(())
    }
}

/// Time of a loop's next run: its period counts from the end of a pass to the start of the next, so even long passes are separated
/// by a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cadence {
    pub(super) next: tokio::time::Instant,
    pub(super) period: Duration,
}

impl Cadence {
    pub(super) fn ended(&mut self, at: tokio::time::Instant) {
        self.next = at + self.period;
    }
}
