//! Running workload controllers: their runtime is fed from watches, and its requests are sent under each controller's own account.

mod certificates;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::FutureExt as _;
use gc_apiserver::CertificateAuthority;
use gc_kube::{ApiClient, Clock, ObjectNews, until, watch_objects};
use gc_types::{Gvr, ResourceId, ResourceInfo, Scope, Timestamp};
use gc_workloads::kinds::{Kind, ServedAt};
use gc_workloads::plan::Settings;
use gc_workloads::runtime::{Observation, Runtime};
use gc_workloads::workloads::{Workload, is_named};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use gc_process::activity::{ActivityTracker, PendingWork};
use gc_process::outside::positive;

/// Maximum number of batches of changes that wait for the runtime; beyond it, the watches wait.
const QUEUED_BATCHES: usize = 64;
/// Interval at which the runtime is polled if there is no timer.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// Default number of simulated nodes.
const DEFAULT_NODES: u32 = 1;
/// The default of `--pod-termination-latency`.
const POD_TERMINATION_LATENCY: Duration = Duration::from_millis(100);

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// Settings of the simulated workloads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Args)]
#[command(next_help_heading = "Workloads")]
pub struct WorkloadOptions {
    /// Run workload controllers, a scheduler and simulated nodes
    #[arg(long, value_enum, default_value = "on", value_name = "SWITCH")]
    pub workloads: Switch,
    /// Number of simulated nodes; 0 leaves pods to real nodes
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_NODES, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub nodes: u32,
    /// Time between the binding of a simulated pod and its readiness
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub pod_start_latency: Duration,
    /// Time between the deletion of a simulated pod and the end of its containers, within its grace period
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration)]
    pub pod_termination_latency: Duration,
}

/// The defaults of the flags.
impl Default for WorkloadOptions {
    fn default() -> Self {
        Self {
            workloads: Switch::On,
            nodes: DEFAULT_NODES,
            pod_start_latency: Duration::ZERO,
            pod_termination_latency: POD_TERMINATION_LATENCY,
        }
    }
}

impl WorkloadOptions {
    /// The defaults if a word of `controllers` enables a workload controller, otherwise nothing: where `*` means the collectors alone.
    /// With `*` beside such a word, all of them run.
    #[must_use]
    pub fn named(controllers: &[String]) -> Self {
        let enables = |word: &String| is_named(word) && !word.starts_with('-');
        if controllers.iter().any(enables) { Self::default() } else { Self::off() }
    }

    /// Nothing runs.
    #[must_use]
    pub fn off() -> Self {
        Self {
            workloads: Switch::Off,
            nodes: 0,
            pod_start_latency: Duration::ZERO,
            pod_termination_latency: Duration::ZERO,
        }
    }

    /// Returns the enabled workload controllers, given the list of `--controllers`.
    pub fn enabled(&self, controllers: &[String]) -> Result<Vec<Workload>, gc_process::UsageError> {
        let words = || controllers.iter().map(String::as_str);
        if self.workloads == Switch::Off {
            if let Some(word) = words().find(|word| is_named(word) && !word.starts_with('-')) {
                let why = format!("--controllers: {word} is a workload controller, and --workloads is off");
                return Err(gc_process::UsageError::new(why));
            }
            if self.nodes > DEFAULT_NODES {
                let why = format!("--nodes {}: nodes are simulated only if --workloads is on", self.nodes);
                return Err(gc_process::UsageError::new(why));
            }
            return Ok(Vec::new());
        }
        let on = |workload: &Workload| {
            let named = words().find_map(|word| match word.strip_prefix('-') {
                Some(name) => (name == workload.name()).then_some(false),
                None => (word == workload.name()).then_some(true),
            });
            named.unwrap_or_else(|| words().any(|word| word == "*"))
        };
        Ok(Workload::ALL.iter().copied().filter(on).collect())
    }

    /// Returns the settings of the runtime.
    #[must_use]
    pub fn settings(&self, root_certificates: String) -> Settings {
        Settings {
            nodes: self.nodes,
            pod_start_latency: gc_types::milliseconds(self.pod_start_latency),
            pod_termination_latency: gc_types::milliseconds(self.pod_termination_latency),
            root_certificates,
            ..Settings::default()
        }
    }
}

/// Parses zero, or a positive Go duration.
fn duration(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { positive(text) }
}

/// Clients with which the controllers act.
pub struct Clients {
    /// Client that reads and watches for all.
    pub informers: ApiClient,
    /// Client of each controller, for writes under its own account.
    pub of_workloads: BTreeMap<Workload, ApiClient>,
    /// Authority that signs certificates for them.
    pub authority: Arc<CertificateAuthority>,
}

/// Changes of objects of one kind.
struct Batch {
    kind: Kind,
    news: Vec<ObjectNews>,
}

/// Runs the controllers until `stopped`. They read the time again when `clock_changed` is written to.
pub async fn run(
    clients: Clients,
    mut runtime: Runtime,
    clock: Clock,
    mut clock_changed: watch::Receiver<bool>,
    movement: Arc<ActivityTracker>,
    stopped: impl Future<Output = ()>,
) {
    let (sink, mut news) = mpsc::channel::<Batch>(QUEUED_BATCHES);
    let mut watches = JoinSet::new();
    for kind in runtime.kinds() {
        let (client, sink) = (clients.informers.clone(), sink.clone());
        watches.spawn(follow(client, kind, sink).boxed());
    }
    drop(sink);
    let mut lists: BTreeMap<Kind, Vec<Value>> = BTreeMap::new();
    let mut answers = JoinSet::new();
    let authority = clients.authority;
    let clients = Arc::new(clients.of_workloads);
    tokio::pin!(stopped);
    loop {
        let now = clock();
        while let Some(sent) = runtime.next_request(now.0) {
            let (clients, authority) = (Arc::clone(&clients), Arc::clone(&authority));
            // On a separate task, so that all threads work on requests.
            answers
                .spawn(async move { (sent.id, requests::perform(&clients, &authority, sent).await) }.boxed());
        }
        let due = runtime.next_timer().map(Timestamp);
        movement.set_waiting(PendingWork { moving: runtime.moving(), due, ..PendingWork::default() });
        let sleep = due.map_or(LONGEST_SLEEP, |at| until(at, now).min(LONGEST_SLEEP));
        tokio::select! {
            () = &mut stopped => break,
            Some(answered) = answers.join_next() => match answered {
                Ok((id, answer)) => runtime.answered(id, answer, clock().0),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            },
            batch = news.recv() => match batch {
                Some(batch) => observe(&mut runtime, &mut lists, batch, clock().0),
                None => break,
            },
            Ok(()) = clock_changed.changed() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
    watches.shutdown().await;
    tracing::debug!(counts = ?runtime.counts(), "the workload controllers have ended");
}

/// Passes on the deliveries of a watch, with their kind.
async fn follow(client: ApiClient, kind: Kind, sink: mpsc::Sender<Batch>) {
    let (inner, mut batches) = mpsc::channel(1);
    let watch = watch_objects(client, resource(kind), kind.field_selector(), inner);
    let pass_on = async {
        while let Some(news) = batches.recv().await {
            if sink.send(Batch { kind, news }).await.is_err() {
                return;
            }
        }
    };
    futures::join!(watch, pass_on);
}

fn resource(kind: Kind) -> ResourceInfo {
    let ServedAt { group, version, resource, namespaced, .. } = kind.served();
    ResourceInfo {
        id: ResourceId(kind as u32),
        gvr: Gvr { group: group.into(), version: version.into(), resource: resource.into() },
        kind: kind.name().into(),
        scope: if namespaced { Scope::Namespaced } else { Scope::Cluster },
        served_api_versions: vec![kind.api_version().into()],
        watched: true,
        comparable_versions: true,
    }
}

fn observe(runtime: &mut Runtime, lists: &mut BTreeMap<Kind, Vec<Value>>, batch: Batch, now: i64) {
    let kind = batch.kind;
    for news in batch.news {
        match news {
            ObjectNews::ListStarted => {
                lists.insert(kind, Vec::new());
            }
            ObjectNews::Present(value) => {
                if kind == Kind::CronJob {
                    learn_time_zone(runtime, &value);
                }
                match lists.get_mut(&kind) {
                    Some(list) => list.push(value),
                    None => runtime.observe(Observation::Present(kind, value), now),
                }
            }
            ObjectNews::Gone(value) => runtime.observe(Observation::Gone(kind, value), now),
            ObjectNews::Synced => {
                let listed = lists.remove(&kind).unwrap_or_default();
                runtime.observe(Observation::Listed(kind, listed), now);
            }
        }
    }
}

/// Directory of this machine's time zones.
const ZONES: &str = "/usr/share/zoneinfo";
/// Maximum size of a file that is read as a time zone.
const MAX_ZONE_BYTES: u64 = 64 << 10;

/// Reads the rules of the time zone that a CronJob names, once.
fn learn_time_zone(runtime: &mut Runtime, value: &Value) {
    let Some(name) = value["spec"]["timeZone"].as_str() else { return };
    if !runtime.knows_time_zone(name)
        && let Some(zone) = read_time_zone(name)
    {
        runtime.learn_time_zone(name, zone);
    }
}

/// Reads a time zone by a name such as `Europe/Berlin`; no path leads out of the directory.
fn read_time_zone(name: &str) -> Option<jiff::tz::TimeZone> {
    let plain = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+'))
    };
    if !name.split('/').all(plain) {
        return None;
    }
    let path = std::path::Path::new(ZONES).join(name);
    let metadata = std::fs::metadata(&path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_ZONE_BYTES {
        return None;
    }
    jiff::tz::TimeZone::tzif(name, &std::fs::read(path).ok()?).ok()
}

/// Returns the kinds that these controllers observe.
#[must_use]
pub fn kinds(workloads: &[Workload]) -> BTreeSet<Kind> {
    workloads.iter().flat_map(|workload| workload.observes()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gc_process::collectors::ControllerOptions;

    fn options(workloads: Switch, nodes: u32) -> WorkloadOptions {
        WorkloadOptions { workloads, nodes, ..WorkloadOptions::off() }
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let off = "--controllers: job-controller is a workload controller, and --workloads is off";
        let nodes = "--nodes 3: nodes are simulated only if --workloads is on";
        for (switch, count, words, expected) in [
            (Switch::On, 3, &["job-controller"][..], Ok(&[Workload::Job][..])),
            (Switch::Off, 0, &["*"], Ok(&[])),
            (Switch::Off, 1, &["*", "-job-controller"], Ok(&[])),
            (Switch::Off, 1, &["*", "job-controller"], Err(off)),
            (Switch::Off, 3, &["job-controller"], Err(off)),
            (Switch::Off, 3, &["*"], Err(nodes)),
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let found = options(switch, count).enabled(&words).map_err(|error| error.to_string());
            assert_eq!(found, expected.map(<[_]>::to_vec).map_err(str::to_owned), "{words:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_that_are_known() {
        let named =
            |word: &str| ControllerOptions { controllers: vec![word.to_owned()], ..Default::default() };
        let also = [gc_collectors::permissions::Controller::Expiry];
        let said = named("nosuch").enabled_with(&also).map_err(|error| error.to_string());
        let said = said.err().unwrap_or_default();
        assert!(
            said.contains("garbage-collector-controller, ")
                && said.ends_with(&gc_workloads::workloads::names()),
            "{said}"
        );
        let on_a_cluster = named("nosuch").enabled().map_err(|error| error.to_string());
        assert!(on_a_cluster.is_err_and(|said| !said.contains("job-controller")));
        let here = named("job-controller");
        assert!(here.enabled_with(&also).is_ok_and(|collectors| collectors.is_empty()));
        assert_eq!(
            here.enabled().map_err(|error| error.to_string()),
            Err("--controllers: \"job-controller\" is about a workload controller; only `kubegc up` has those, a cluster \
                 has kube-controller-manager for it"
                .to_owned())
        );
    }
}
