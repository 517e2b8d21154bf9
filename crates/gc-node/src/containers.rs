//! One pass over dead containers, sandboxes, log directories and dead links.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use gc_collectors::ages::WallDates;
use gc_collectors::containers::logs::{
    LogEntry, Lookup, container_of_link, files_of_log, link_name, plan_directories, pod_of_log_directory,
    removes_dead_link,
};
use gc_collectors::containers::plan::{ContainerPlan, ContainerRemoval, ContainerRemovalReason};
use gc_collectors::containers::pods::{PodView, RunningContainers};
use gc_collectors::containers::sandboxes::SandboxRemoval;
use gc_collectors::containers::{Container, ContainerId, ContainerState, PodUid, Sandbox, plan, sandboxes};
use gc_cri::{CriClient, ListedContainer, Names};
use gc_types::{GoDuration, UnixNanoseconds};
use tracing::{info, warn};

use crate::clock::{Ages, Stop};
use crate::config::NodeConfig;
use crate::parallel::each;
use crate::progress::Progress;
use crate::stops::Stops;

/// Number of log directories for each thread that is started, and the maximum number of threads.
const DIRECTORIES_PER_THREAD: usize = 32;
const MAX_DIRECTORY_THREADS: usize = 4;
/// Minimum age of sandboxes of unknown pods, and of log directories: one that is being created may appear dead.
const MINIMUM_LEFTOVER_AGE: GoDuration = GoDuration::from_seconds(60);
/// Maximum number of concurrent removals: a runtime handles them one after the other, so more would not be faster. (containerd
/// collects the layers of images that are removed together in one step, which is why images have their own bound.)
const MAX_PARALLEL_REMOVALS: usize = 8;
/// Grace period for a container in an unknown state whose own period is unknown.
const UNKNOWN_GRACE_SECONDS: i64 = 2;

/// Result of one observation.
#[derive(Debug)]
pub(crate) struct Observation {
    /// Time of the observation, and the conversion of its dates.
    pub dates: WallDates,
    /// Containers, as dated by the runtime.
    pub containers: Vec<ListedContainer>,
    /// Sandboxes, listed after the containers and dated by the age clock.
    pub sandboxes: Vec<Sandbox>,
}

/// A container that was, or was to be, removed.
#[derive(Debug)]
pub(crate) struct GoneContainer {
    pub id: ContainerId,
    pub names: Names,
    pub reason: ContainerRemovalReason,
    /// Reason why the container still exists, if it does.
    pub failure: Option<String>,
}

/// Result of a pass.
#[derive(Debug, Default)]
pub(crate) struct ContainerReport {
    /// Containers that were, or were to be, removed, each with its failure if there was one.
    pub containers: Vec<GoneContainer>,
    /// Sandboxes that were, or were to be, removed, likewise.
    pub sandboxes: Vec<(SandboxRemoval, Option<String>)>,
    /// Removed log directories.
    pub log_directories: Vec<PathBuf>,
    /// Removed dead links.
    pub links: Vec<PathBuf>,
    /// Failures of listing and reading, which make the pass a partial failure.
    pub errors: Vec<String>,
}

/// Lists the existing containers and sandboxes.
pub(crate) async fn observe(client: &CriClient, ages: &Ages) -> Result<Observation> {
    let before = client.sandboxes().await.context("cannot list sandboxes")?;
    let containers = client.containers(&before).await.context("cannot list containers")?;
    let mut sandboxes = client.sandboxes().await.context("cannot list sandboxes")?;
    let dates = ages.wall_dates();
    for sandbox in &mut sandboxes {
        sandbox.created_at = dates.read(sandbox.created_at);
    }
    Ok(Observation { dates, containers, sandboxes })
}

impl Observation {
    /// Returns the time of the observation by the age clock.
    pub(crate) fn at(&self) -> UnixNanoseconds {
        self.dates.now()
    }

    fn plain(&self) -> Vec<Container> {
        self.containers.iter().map(|listed| self.dated(&listed.container)).collect()
    }

    /// Returns a container with its dates by the age clock.
    fn dated(&self, container: &Container) -> Container {
        Container { created_at: self.dates.read(container.created_at), ..container.clone() }
    }

    /// Returns the pods to which any listed item belongs.
    #[must_use]
    pub(crate) fn pods(&self) -> BTreeSet<PodUid> {
        let of_sandboxes = self.sandboxes.iter().filter_map(|sandbox| sandbox.pod.clone());
        self.containers.iter().filter_map(|listed| listed.container.pod.clone()).chain(of_sandboxes).collect()
    }

    /// Plans the removals.
    #[must_use]
    pub(crate) fn plan(&self, pods: &PodView, config: &NodeConfig, pressure: bool) -> ContainerPlan {
        plan::plan(&self.plain(), &self.sandboxes, pods, config.containers, pressure, self.at())
    }

    /// Returns the sandboxes that would be removed if the planned containers were gone.
    #[must_use]
    pub(crate) fn plan_sandboxes(
        &self,
        pods: &PodView,
        pressure: bool,
        going: &[ContainerRemoval],
    ) -> Vec<SandboxRemoval> {
        let going: BTreeSet<usize> = going.iter().map(|removal| removal.place).collect();
        let left = self.containers.iter().enumerate().filter(|(place, _)| !going.contains(place));
        let left: Vec<Container> = left.map(|(_, listed)| self.dated(&listed.container)).collect();
        sandboxes::plan(&self.sandboxes, &left, pods, MINIMUM_LEFTOVER_AGE, pressure, self.at())
    }
}

/// Returns the pods of log directories: a pod that the runtime has forgotten may still have logs.
pub(crate) fn pods_with_logs(root: &Path) -> BTreeSet<PodUid> {
    // If a root cannot be read, the step that would remove from it fails and reports this.
    let entries = fs::read_dir(root).into_iter().flatten();
    entries.filter_map(|entry| pod_of_log_directory(entry.ok()?.file_name().to_str()?)).collect()
}

/// Performs a pass.
pub(crate) struct Collector<'a> {
    pub client: &'a CriClient,
    pub config: &'a NodeConfig,
    pub ages: &'a Ages,
    pub pods: &'a PodView,
    pub stop: &'a Stop,
    pub progress: &'a Progress,
    pub stops: &'a Stops,
}

impl Collector<'_> {
    /// Removes containers, then sandboxes, then logs; each step runs even if the previous one failed in part.
    pub(crate) async fn run(&self, observation: &Observation, pressure: bool) -> ContainerReport {
        let mut report = ContainerReport::default();
        self.remove_containers(observation, pressure, &mut report).await;
        if !self.stop.is_requested() {
            self.remove_sandboxes(pressure, &mut report).await;
        }
        if !self.stop.is_requested() {
            self.remove_logs(&mut report).await;
        }
        report
    }

    async fn remove_containers(
        &self,
        observation: &Observation,
        pressure: bool,
        report: &mut ContainerReport,
    ) {
        let plan = observation.plan(self.pods, self.config, pressure);
        if plan.over_node_limit > 0 {
            warn!(
                above_limit = plan.over_node_limit,
                "--maximum-dead-containers cannot be kept: live pods need the newest dead containers of their names"
            );
        }
        let work = |removal: ContainerRemoval| async move {
            let listed = &observation.containers[removal.place];
            let (id, names) = (&listed.container.id, &listed.names);
            let result = self.remove_container(id, names, removal.stop_first).await;
            match &result {
                Ok(()) => info!(
                    namespace = %names.namespace,
                    pod = %names.pod,
                    container = %names.container,
                    %id,
                    reason = ?removal.reason,
                    "removed"
                ),
                Err(error) => warn!(container = %id, "not removed: {error:#}"),
            }
            GoneContainer {
                id: id.clone(),
                names: names.clone(),
                reason: removal.reason,
                failure: result.err().map(|error| format!("{error:#}")),
            }
        };
        let is_stopping = |removal: &ContainerRemoval| {
            removal.stop_first && self.stops.includes(&observation.containers[removal.place].container.id)
        };
        let mut removals = plan.removals;
        removals.retain(|removal| !is_stopping(removal));
        report.containers = self.each_while_wanted("containers", removals, work).await;
    }

    /// Processes several items at the same time until a stop is requested.
    async fn each_while_wanted<T, O, F: Future<Output = O>>(
        &self,
        what: &str,
        items: Vec<T>,
        work: impl Fn(T) -> F,
    ) -> Vec<O> {
        let mut ended = 0;
        let show = || {
            ended += 1;
            self.progress.show(what, ended);
        };
        let items = items.into_iter().take_while(|_| !self.stop.is_requested());
        let at_once = self.config.parallel_removals.min(MAX_PARALLEL_REMOVALS);
        each(items, at_once, work, show).await
    }

    /// Removes the container first and then its logs, so a failed removal leaves no container without logs.
    async fn remove_container(&self, id: &ContainerId, names: &Names, stop_first: bool) -> Result<()> {
        let details = self.client.container_details(id).await?;
        if stop_first {
            let grace =
                details.as_ref().and_then(|d| d.grace_period_seconds).unwrap_or(UNKNOWN_GRACE_SECONDS);
            info!(container = %id, "in an unknown state; stopping it before removal");
            self.stops.stop(self.client, id, grace).await?;
        }
        self.client.remove_container(id).await?;
        let log_path = details.map(|details| details.log_path).unwrap_or_default();
        if let Err(error) = self.remove_logs_of(id, &log_path, names) {
            // The container is gone; its directory will be removed with its pod, and its link as a dead one.
            warn!(container = %id, "its logs were not removed: {error:#}");
        }
        Ok(())
    }

    fn remove_logs_of(&self, container: &ContainerId, log_path: &str, names: &Names) -> Result<()> {
        remove_log_files(log_path, &self.config.pod_logs_dir)?;
        if names.pod.is_empty() || names.container.is_empty() {
            return Ok(());
        }
        let name = link_name(&names.pod, &names.namespace, &names.container, container.as_str());
        remove_link(&self.config.container_log_links_dir.join(name))
    }

    /// Lists again, so a sandbox that became empty in this pass can be removed in the same pass.
    async fn remove_sandboxes(&self, pressure: bool, report: &mut ContainerReport) {
        let observation = match observe(self.client, self.ages).await {
            Ok(observation) => observation,
            Err(error) => return report.errors.push(format!("{error:#}")),
        };
        let going = observation.plan_sandboxes(self.pods, pressure, &[]);
        let work = |removal: SandboxRemoval| async move {
            let result = self.client.remove_sandbox(&removal.id).await;
            match &result {
                Ok(()) => info!(sandbox = %removal.id, reason = ?removal.reason, "removed"),
                Err(error) => warn!(sandbox = %removal.id, "not removed: {error}"),
            }
            (removal, result.err().map(|error| error.to_string()))
        };
        report.sandboxes = self.each_while_wanted("sandboxes", going, work).await;
    }

    async fn remove_logs(&self, report: &mut ContainerReport) {
        match observe(self.client, self.ages).await {
            Ok(observation) => match self.directories_to_remove(&observation) {
                Ok(going) => {
                    let gone = tokio::task::spawn_blocking(move || remove_directories(&going)).await;
                    // The task neither panics nor is cancelled.
                    report.log_directories = gone.unwrap_or_default();
                }
                Err(error) => return report.errors.push(format!("{error:#}")),
            },
            Err(error) => return report.errors.push(format!("{error:#}")),
        }
        let going = match self.links_to_remove().await {
            Ok(going) => going,
            Err(error) => return report.errors.push(format!("{error:#}")),
        };
        for path in going {
            match remove_link(&path) {
                Ok(()) => {
                    info!(link = %path.display(), "removed: its container is gone");
                    report.links.push(path);
                }
                Err(error) => warn!("{error:#}"),
            }
        }
    }

    /// Returns the log directories of deleted pods in the order of their names.
    pub(crate) fn directories_to_remove(&self, observation: &Observation) -> Result<Vec<PathBuf>> {
        let root = &self.config.pod_logs_dir;
        let listed = match fs::read_dir(root) {
            Ok(listed) => listed,
            // No pod has run on this node yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read the pod log directory {}", root.display()));
            }
        };
        let mut entries: Vec<LogEntry> =
            listed.filter_map(|entry| log_entry(&entry.ok()?, &observation.dates)).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let running = RunningContainers::of(&observation.plain(), &observation.sandboxes);
        let (listed, age) = (observation.pods(), MINIMUM_LEFTOVER_AGE);
        let going = plan_directories(&entries, self.pods, &running, &listed, age, observation.at());
        Ok(going.into_iter().map(|name| root.join(name)).collect())
    }

    /// Returns the dead links whose containers are certainly gone. Returns none if the link of a running container appears dead as
    /// well: then the agent cannot see the targets of links, and all of them appear dead.
    pub(crate) async fn links_to_remove(&self) -> Result<Vec<PathBuf>> {
        let mut going = Vec::new();
        for path in dead_links(&self.config.container_log_links_dir)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let lookup = match container_of_link(&name).and_then(ContainerId::new) {
                None => Lookup::NotFound,
                Some(id) => match self.client.container_details(&id).await {
                    Ok(Some(details)) => Lookup::Found(details.state),
                    Ok(None) => Lookup::NotFound,
                    Err(error) => {
                        warn!(link = %path.display(), "kept, because its container cannot be looked up: {error}");
                        Lookup::Failed
                    }
                },
            };
            if lookup == Lookup::Found(ContainerState::Running) {
                warn!(
                    link = %path.display(),
                    "no link is removed: that of a container that runs leads nowhere, so that the logs are not visible here"
                );
                return Ok(Vec::new());
            }
            if removes_dead_link(lookup) {
                going.push(path);
            }
        }
        Ok(going)
    }
}

/// Removes the files of one container log: the log and its rotations, but no target of a link.
fn remove_log_files(log_path: &str, root: &Path) -> Result<()> {
    let Some(folder) = Path::new(log_path).parent().filter(|folder| is_really_below(folder, root)) else {
        return Ok(());
    };
    let names: Vec<String> = match fs::read_dir(folder) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
    };
    for name in files_of_log(log_path, &root.to_string_lossy(), &names) {
        let path = folder.join(name);
        ignore_absence(fs::remove_file(&path))
            .with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Reports whether a path is below the root with no link in between.
fn is_really_below(folder: &Path, root: &Path) -> bool {
    let Ok(below) = folder.strip_prefix(root) else { return false };
    match (fs::canonicalize(folder), fs::canonicalize(root)) {
        (Ok(folder), Ok(root)) => folder == root.join(below),
        _ => false,
    }
}

/// Removes a path only if it is a symbolic link.
fn remove_link(path: &Path) -> Result<()> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    if is_link {
        ignore_absence(fs::remove_file(path)).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn ignore_absence(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns the links `*.log` whose target certainly does not exist.
fn dead_links(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
    };
    let mut dead: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()))
        .filter(|path| fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound))
        .collect();
    dead.sort();
    Ok(dead)
}

/// Removes directories and returns those that were removed. One that cannot be removed does not affect the others.
fn remove_directories(going: &[PathBuf]) -> Vec<PathBuf> {
    let next = AtomicUsize::new(0);
    // Several threads work at the same time, since each call waits for the disk.
    let work = || {
        let mut gone = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = going.get(place) else { return gone };
            // This removes links in the directory, not their targets.
            match fs::remove_dir_all(path) {
                Ok(()) => {
                    info!(directory = %path.display(), "removed: its pod is gone");
                    gone.push((place, path.clone()));
                }
                Err(error) => warn!(directory = %path.display(), "not removed: {error}"),
            }
        }
    };
    let threads = going.len().div_ceil(DIRECTORIES_PER_THREAD).min(MAX_DIRECTORY_THREADS);
    let mut gone: Vec<(usize, PathBuf)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        own.into_iter().chain(others.into_iter().flat_map(|one| one.join().unwrap_or_default())).collect()
    });
    gone.sort();
    gone.into_iter().map(|(_, path)| path).collect()
}

fn log_entry(entry: &fs::DirEntry, dates: &WallDates) -> Option<LogEntry> {
    let metadata = entry.metadata().ok()?;
    let modified = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Some(LogEntry {
        name: entry.file_name().into_string().ok()?,
        is_directory: metadata.is_dir(),
        modified_at: dates.read(UnixNanoseconds(i64::try_from(modified.as_nanos()).unwrap_or(i64::MAX))),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use std::os::unix::fs::symlink;

    /// T106: only the files of one container are removed.
    #[test]
    fn only_the_files_of_the_log_go() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("ns_pod_uid/c");
        fs::create_dir_all(&folder).unwrap();
        for name in ["0.log", "0.log.20260101-000000.gz", "1.log", "10.log"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        let log = folder.join("0.log");
        remove_log_files(log.to_str().unwrap(), root.path()).unwrap();
        remove_log_files("", root.path()).unwrap();
        remove_log_files(folder.join("1.log").to_str().unwrap(), Path::new("/somewhere/else")).unwrap();
        symlink(root.path().join("ns_pod_uid"), root.path().join("ns_link_uid")).unwrap();
        let through_a_link = root.path().join("ns_link_uid/c/1.log");
        remove_log_files(through_a_link.to_str().unwrap(), root.path()).unwrap();
        remove_log_files("relative/0.log", root.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["1.log", "10.log"]);
    }

    /// T96: a directory that cannot be removed does not affect the others.
    #[test]
    fn a_failure_concerns_one_directory_only() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["a", "c"] {
            fs::create_dir_all(at(name).join("main")).unwrap();
            fs::write(at(name).join("main/0.log"), "x").unwrap();
        }
        let gone = remove_directories(&["a", "b", "c"].map(at));
        assert_eq!(gone, ["a", "c"].map(at));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        // These are as many as several threads share, in the order of their names.
        let many: Vec<PathBuf> = (0..200).map(|number| at(&format!("{number:03}"))).collect();
        for path in many.iter().filter(|path| !path.ends_with("077")) {
            fs::create_dir(path).unwrap();
        }
        let gone = remove_directories(&many);
        let expected: Vec<PathBuf> = many.into_iter().filter(|path| !path.ends_with("077")).collect();
        assert_eq!(gone, expected);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    /// T98 and T99: an entry that is not a link, or not dead, is kept.
    #[test]
    fn only_dead_links_are_found_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("target"), "x").unwrap();
        fs::write(at("file.log"), "x").unwrap();
        symlink(at("target"), at("alive-abcdef.log")).unwrap();
        symlink(at("absent"), at("dead-abcdef.log")).unwrap();
        symlink(at("absent"), at("dead-abcdef.txt")).unwrap();
        assert_eq!(dead_links(folder.path()).unwrap(), [at("dead-abcdef.log")]);
        remove_link(&at("file.log")).unwrap();
        remove_link(&at("dead-abcdef.log")).unwrap();
        assert!(at("file.log").exists() && fs::symlink_metadata(at("dead-abcdef.log")).is_err());
        assert!(dead_links(&at("no-such-folder")).unwrap().is_empty());
    }
}
