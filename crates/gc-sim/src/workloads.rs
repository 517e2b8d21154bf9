//! Worlds with workloads: the real workload controllers, the real ownership collector and the real collector of finished Jobs over
//! the real registry. Deployments roll while their owner references are removed, CronJobs keep a history while Jobs expire,
//! StatefulSets retain claims while their namespace is deleted, and nodes stop responding. Watches are late, requests and responses
//! are lost, and controllers restart.

mod clients;
mod collectors;
mod feed;
mod judge;
mod requests;

use std::collections::BTreeSet;

use gc_types::Scope;
use gc_workloads::kinds::Kind as WorkloadKind;
use gc_workloads::plan::Settings;
use gc_workloads::runtime::{Answer, Observation, Runtime, Sent};
use gc_workloads::workloads::Workload;
use serde_json::Value;

use crate::kinds::Kind;
use crate::random::Random;
use crate::runner::in_threads;
use crate::server::Server;
use crate::violation::Violation;
use clients::{Parts, termination_latency};
use collectors::Collectors;
use feed::{Feed, News, value_of};

/// Number of steps in a story.
const STEPS: usize = 220;
/// Maximum number of requests of controllers in flight.
const MAX_FLIGHTS: usize = 24;
/// Number of requests per thousand that are lost, half of them after they were performed.
const LOST_PER_MILLE: u32 = 40;
/// Number of reads of a watch per thousand that find it broken.
const CUT_PER_MILLE: u32 = 15;
/// Durations that one step may take, in milliseconds.
const STEPS_MILLISECONDS: [i64; 6] = [10, 200, 1_000, 5_000, 20_000, 61_000];
/// Time until everything that exists at the start is ready, milliseconds.
const START_MILLISECONDS: i64 = 30_000;
/// Time after the last fault in which CronJobs create more Jobs than they keep, milliseconds.
const SCHEDULING_MILLISECONDS: i64 = 200_000;
/// Time after the last CronJob was suspended until everything must be in its final state, in milliseconds: the longest time to
/// live, and the longest backoff after faults.
const REST_MILLISECONDS: i64 = 180_000;
/// Number of watches that are read in one step.
const WATCHES_PER_STEP: usize = 4;
/// Maximum number of rounds of requests and responses in a rest.
const MAX_REST_ROUNDS: usize = 4_000;
/// Longest time that passes at once in a rest, in milliseconds.
const REST_STEP_MILLISECONDS: i64 = 61_000;

/// Controllers that run.
const WORKLOADS: [Workload; 12] = [
    Workload::ServiceAccount,
    Workload::Deployment,
    Workload::ReplicaSet,
    Workload::StatefulSet,
    Workload::Job,
    Workload::CronJob,
    Workload::Scheduler,
    Workload::Kubelet,
    Workload::NodeLifecycle,
    Workload::TaintEviction,
    Workload::VolumeBinding,
    Workload::Provisioning,
];

/// A defect that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Old ReplicaSets and revisions are never deleted.
    HistoryKept,
    /// CronJobs never delete finished Jobs.
    JobsKept,
    /// Objects are created with a reference to an owner that does not exist.
    OwnersMisnamed,
    /// Owners are not read before they adopt objects.
    AdoptedUnseen,
    /// Claims never get owners.
    ClaimsUnowned,
    /// Finished Jobs expire ten minutes early.
    JobsHurried,
    /// The finalizers of finished pods are never removed.
    PodsHeld,
}

/// Every defect with its name.
pub const DEFECTS: [(Defect, &str); 7] = [
    (Defect::HistoryKept, "history-kept"),
    (Defect::JobsKept, "jobs-kept"),
    (Defect::OwnersMisnamed, "owners-misnamed"),
    (Defect::AdoptedUnseen, "adopted-unseen"),
    (Defect::ClaimsUnowned, "claims-unowned"),
    (Defect::JobsHurried, "jobs-hurried"),
    (Defect::PodsHeld, "pods-held"),
];

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of deletions by collectors.
    pub collected: u64,
    /// Number of requests by workload controllers.
    pub requests: u64,
    /// Violation that an oracle found.
    pub violation: Option<Violation>,
    /// Trace of the run, if it was requested.
    pub trace: Vec<String>,
}

fn kind_of(kind: WorkloadKind) -> Kind {
    let served = kind.served();
    let scope = if served.namespaced { Scope::Namespaced } else { Scope::Cluster };
    let (group, resource, kind) = (served.group, served.resource, served.kind);
    Kind { group, versions: &["v1"], resource, kind, scope, custom: false }
}

struct WorkloadWorld {
    seed: u64,
    server: Server,
    chance: Random,
    parts: Parts,
    defect: Option<Defect>,
    traces: bool,
    runtime: Runtime,
    feeds: Vec<Feed>,
    flights: Vec<Sent>,
    /// UIDs of owners that were gone or being deleted when a controller read them to confirm an adoption.
    unconfirmed: BTreeSet<String>,
    /// UIDs of pods whose owner references clients have removed.
    cut_pods: BTreeSet<String>,
    collectors: Collectors,
    /// True if no faults happen.
    calm: bool,
    report: Report,
}

/// Runs the world of a seed.
#[must_use]
pub fn run(seed: u64, defect: Option<Defect>, traces: bool) -> Report {
    let mut world = WorkloadWorld::new(seed, defect, traces);
    if let Err(violation) = world.happen() {
        world.note(|| format!("VIOLATION {violation}"));
        world.report.violation = Some(violation);
    }
    world.report.requests = world.runtime.counts().requests;
    world.report
}

fn new_runtime(seed: u64) -> Runtime {
    let settings =
        Settings { nodes: 1, pod_termination_latency: termination_latency(seed), ..Settings::default() };
    Runtime::new(settings, WORKLOADS.to_vec())
}

impl WorkloadWorld {
    fn new(seed: u64, defect: Option<Defect>, traces: bool) -> Self {
        let runtime = new_runtime(seed);
        let kinds: Vec<Kind> = runtime.kinds().into_iter().map(kind_of).collect();
        let mut world = Self {
            seed,
            // Small numbers would give objects the UIDs of the initial objects of every world.
            server: Server::new(Random::new(seed).next()),
            chance: Random::new(seed ^ 0x6c69_7665),
            parts: Parts::of(seed),
            defect,
            traces,
            runtime,
            feeds: kinds.iter().copied().map(Feed::new).collect(),
            flights: Vec::new(),
            unconfirmed: BTreeSet::new(),
            cut_pods: BTreeSet::new(),
            collectors: Collectors::new(&kinds),
            calm: true,
            report: Report::default(),
        };
        world.tick(0);
        world
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.traces {
            self.report.trace.push(text());
        }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn happen(&mut self) -> Result<(), Violation> {
        self.create_first_objects();
        self.rest(START_MILLISECONDS)?;
        self.calm = false;
        for _ in 0..STEPS {
            match self.chance.weighted(&[10, 30, 30, 12, 30, 4, 1]) {
                0 => self.act(),
                1 => self.deliver(),
                2 => self.serve()?,
                3 => self.deliver_to_collectors(),
                4 => drop(self.collect()?),
                5 => {
                    let step = self.chance.pick(&STEPS_MILLISECONDS);
                    self.tick(step);
                }
                _ => self.restart(),
            }
        }
        self.note(|| "-- faults end".to_owned());
        self.calm = true;
        self.stop_node(false);
        if self.parts.cron_jobs {
            self.rest(SCHEDULING_MILLISECONDS)?;
        }
        self.suspend_cron_jobs();
        self.rest(REST_MILLISECONDS)?;
        self.judge()
    }

    /// Lets time pass.
    fn tick(&mut self, milliseconds: i64) {
        self.server.now += milliseconds;
        let early = if self.is(Defect::JobsHurried) { 600_000 } else { 0 };
        self.collectors.tick(self.server.now, early);
        if milliseconds > 1_000 {
            self.server.maintain();
        }
    }

    /// Ends the process of the controllers and starts another. Requests in flight may still be performed.
    fn restart(&mut self) {
        self.note(|| "the controllers restart".to_owned());
        for sent in std::mem::take(&mut self.flights) {
            if self.chance.chance(500) {
                let _ = self.perform(&sent);
            }
        }
        self.runtime = new_runtime(self.seed);
        for feed in &mut self.feeds {
            feed.cut();
        }
    }

    /// Lets some watches deliver to the controllers.
    fn deliver(&mut self) {
        for _ in 0..WATCHES_PER_STEP {
            let index = self.chance.below(self.feeds.len());
            if !self.calm && self.chance.chance(CUT_PER_MILLE) {
                self.feeds[index].cut();
            }
            let most = 1 + self.chance.below(6);
            self.deliver_from(index, most);
        }
        self.take_requests();
    }

    fn deliver_from(&mut self, index: usize, most: usize) -> bool {
        let kinds: Vec<WorkloadKind> = self.runtime.kinds().into_iter().collect();
        let kind = kinds[index];
        let news = self.feeds[index].read(most, &self.server);
        let any = !news.is_empty();
        for one in news {
            let observation = match one {
                News::Listed(objects, _) => {
                    Observation::Listed(kind, objects.iter().filter_map(|object| value_of(object)).collect())
                }
                News::Present(object) => match value_of(&object) {
                    Some(value) => Observation::Present(kind, value),
                    None => continue,
                },
                News::Gone(object) => match value_of(&object) {
                    Some(value) => Observation::Gone(kind, value),
                    None => continue,
                },
                News::Progress(_) => continue,
            };
            self.runtime.observe(observation, self.server.now);
        }
        any
    }

    fn take_requests(&mut self) {
        while self.flights.len() < MAX_FLIGHTS
            && let Some(sent) = self.runtime.next_request(self.server.now)
        {
            self.flights.push(sent);
        }
    }

    /// Performs and answers one request of a controller, or loses it.
    fn serve(&mut self) -> Result<(), Violation> {
        self.take_requests();
        if self.flights.is_empty() {
            return Ok(());
        }
        let index = self.chance.below(self.flights.len());
        let sent = self.flights.swap_remove(index);
        let lost = !self.calm && self.chance.chance(LOST_PER_MILLE);
        let performed = !lost || self.chance.chance(500);
        let answer = if performed { self.perform(&sent) } else { requests::unavailable() };
        let shown = if lost { requests::unavailable() } else { answer };
        self.note(|| {
            let outcome = match &shown {
                Answer::Done(_) => String::new(),
                Answer::Failed { reason, message } => format!(": {reason:?} {message}"),
            };
            format!("{} {} {}{outcome}", sent.workload, sent.why, sent.action.key())
        });
        self.runtime.answered(sent.id, shown, self.server.now);
        self.take_requests();
        self.judge_adoption(&sent)
    }

    // ---- rest ----

    /// Delivers and answers everything without faults for this long.
    fn rest(&mut self, milliseconds: i64) -> Result<(), Violation> {
        let end = self.server.now + milliseconds;
        for _ in 0..MAX_REST_ROUNDS {
            let mut any = false;
            for index in 0..self.feeds.len() {
                any |= self.deliver_from(index, usize::MAX);
                any |= self.deliver_to_collectors_from(index, usize::MAX);
            }
            self.take_requests();
            any |= !self.flights.is_empty();
            while !self.flights.is_empty() {
                self.serve()?;
            }
            while self.collect()? {
                any = true;
            }
            any |= self.empty_namespaces() | self.release_claims();
            if any {
                continue;
            }
            if self.server.now >= end {
                return Ok(());
            }
            let next = self.runtime.next_timer().unwrap_or(end).clamp(self.server.now + 1, end);
            self.tick((next - self.server.now).min(REST_STEP_MILLISECONDS));
        }
        Err(broken("rest", "the controllers and collectors do not settle".to_owned()))
    }
}

/// Results of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of runs.
    pub seeds: u64,
    /// Number of deletions by collectors.
    pub collected: u64,
    /// Number of requests by workload controllers.
    pub requests: u64,
    /// Seeds that failed, each with its violation.
    pub failures: Vec<(u64, Violation)>,
}

impl Summary {
    fn add(&mut self, seed: u64, report: Report) {
        self.seeds += 1;
        self.collected += report.collected;
        self.requests += report.requests;
        self.failures.extend(report.violation.map(|violation| (seed, violation)));
    }

    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.collected += other.collected;
        self.requests += other.requests;
        self.failures.extend(other.failures);
    }
}

/// Runs seeds in several threads.
#[must_use]
pub fn run_seeds(from: u64, count: u64, threads: u64) -> Summary {
    let threads = threads.clamp(1, 64);
    let mut total = Summary::default();
    let summaries = in_threads(threads, |thread| {
        let mut summary = Summary::default();
        let seeds = (from..from + count).skip(usize::try_from(thread).unwrap_or(0));
        for seed in seeds.step_by(usize::try_from(threads).unwrap_or(1)) {
            summary.add(seed, run(seed, None, false));
        }
        summary
    });
    for summary in summaries {
        total.merge(summary);
    }
    total.failures.sort_by_key(|(seed, _)| *seed);
    total
}

/// Returns the number of seeds until a defect is noticed, and the oracle that notices it; `None` if no oracle does.
#[must_use]
pub fn hunt(defect: Defect, limit: u64) -> Option<(u64, &'static str)> {
    (0..limit).find_map(|seed| {
        let violation = run(seed, Some(defect), false).violation?;
        Some((seed + 1, violation.oracle))
    })
}

const fn broken(oracle: &'static str, message: String) -> Violation {
    Violation { oracle, message }
}

/// Returns a field of an object, by its JSON pointer.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}
