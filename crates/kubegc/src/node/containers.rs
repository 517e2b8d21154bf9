//! One pass over dead containers, sandboxes, log directories and dead links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use gc_cri::{CriClient, ListedContainer, Names};
use gc_retention::containers::logs::{
    LogEntry, Lookup, container_of_link, dead_link_goes, files_of_log, link_name, plan_directories,
    pod_of_log_directory,
};
use gc_retention::containers::plan::{ContainerPlan, ContainerRemoval};
use gc_retention::containers::pods::{PodView, Running};
use gc_retention::containers::sandboxes::SandboxRemoval;
use gc_retention::containers::{Container, ContainerId, PodUid, Sandbox, plan, sandboxes};
use gc_types::{GoDuration, UnixNanoseconds};
use tracing::{info, warn};

use super::clock::{Stop, now};
use super::config::NodeConfig;

/// Sandboxes of unknown pods and log directories must be at least so old: what is being made may look dead.
const MINIMUM_LEFTOVER_AGE: GoDuration = GoDuration::from_seconds(60);
/// Grace for a container in an unknown state whose own is not known.
const UNKNOWN_GRACE_SECONDS: i64 = 2;

/// What one observation found.
#[derive(Debug)]
pub(super) struct Observation {
    /// When.
    pub at: UnixNanoseconds,
    /// The containers.
    pub containers: Vec<ListedContainer>,
    /// The sandboxes, listed after the containers.
    pub sandboxes: Vec<Sandbox>,
}

/// What a pass did.
#[derive(Debug, Default)]
pub(super) struct ContainerReport {
    /// Containers that went or should have gone; with the failure if there was one.
    pub containers: Vec<(ContainerRemoval, Option<String>)>,
    /// Sandboxes likewise.
    pub sandboxes: Vec<(SandboxRemoval, Option<String>)>,
    /// Log directories that went.
    pub log_directories: Vec<PathBuf>,
    /// Dead links that went.
    pub links: Vec<PathBuf>,
    /// Problems of listing and reading: the pass failed in part.
    pub errors: Vec<String>,
}

/// Sees what there is.
pub(super) async fn observe(client: &CriClient) -> Result<Observation> {
    let before = client.sandboxes().await.context("cannot list sandboxes")?;
    let containers = client.containers(&before).await.context("cannot list containers")?;
    let sandboxes = client.sandboxes().await.context("cannot list sandboxes")?;
    Ok(Observation { at: now(), containers, sandboxes })
}

impl Observation {
    fn plain(&self) -> Vec<Container> {
        self.containers.iter().map(|listed| listed.container.clone()).collect()
    }

    /// The pods that something listed belongs to.
    #[must_use]
    pub(super) fn pods(&self) -> BTreeSet<PodUid> {
        let of_sandboxes = self.sandboxes.iter().filter_map(|sandbox| sandbox.pod.clone());
        self.containers.iter().filter_map(|listed| listed.container.pod.clone()).chain(of_sandboxes).collect()
    }

    /// What would go.
    #[must_use]
    pub(super) fn plan(&self, pods: &PodView, config: &NodeConfig, pressure: bool) -> ContainerPlan {
        plan::plan(&self.plain(), &self.sandboxes, pods, config.containers, pressure, self.at)
    }

    /// The sandboxes that would go, were the planned containers gone.
    #[must_use]
    pub(super) fn plan_sandboxes(
        &self,
        pods: &PodView,
        pressure: bool,
        gone: &BTreeSet<ContainerId>,
    ) -> Vec<SandboxRemoval> {
        let left: Vec<Container> =
            self.plain().into_iter().filter(|container| !gone.contains(&container.id)).collect();
        sandboxes::plan(&self.sandboxes, &left, pods, MINIMUM_LEFTOVER_AGE, pressure, self.at)
    }
}

/// The pods that log directories belong to: what the runtime has forgotten may still have logs.
pub(super) fn pods_with_logs(root: &Path) -> BTreeSet<PodUid> {
    // A root that cannot be read fails the step that would remove from it, and is told there.
    let entries = fs::read_dir(root).into_iter().flatten();
    entries.filter_map(|entry| pod_of_log_directory(entry.ok()?.file_name().to_str()?)).collect()
}

/// Carries a pass out.
pub(super) struct Collector<'a> {
    pub client: &'a CriClient,
    pub config: &'a NodeConfig,
    pub pods: &'a PodView,
    pub stop: &'a Stop,
}

impl Collector<'_> {
    /// Containers, then sandboxes, then logs; each step runs even if the one before failed in part.
    pub(super) async fn run(&self, observation: &Observation, pressure: bool) -> ContainerReport {
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
        let names: BTreeMap<&ContainerId, &Names> =
            observation.containers.iter().map(|listed| (&listed.container.id, &listed.names)).collect();
        report.containers = stream::iter(plan.removals)
            .take_while(|_| std::future::ready(!self.stop.is_requested()))
            .map(|removal| async {
                let result = self.remove_container(&removal, names.get(&removal.id).copied()).await;
                if let Err(error) = &result {
                    warn!(container = %removal.id, "not removed: {error:#}");
                }
                (removal, result.err().map(|error| format!("{error:#}")))
            })
            .buffered(self.config.parallel_removals)
            .collect()
            .await;
    }

    /// The container first and its logs after it, so that a failed removal leaves no container without logs.
    async fn remove_container(&self, removal: &ContainerRemoval, names: Option<&Names>) -> Result<()> {
        let details = self.client.container_details(&removal.id).await?;
        if removal.stop_first {
            let grace =
                details.as_ref().and_then(|d| d.grace_period_seconds).unwrap_or(UNKNOWN_GRACE_SECONDS);
            info!(container = %removal.id, "in an unknown state; stopping it before removal");
            self.client.stop_container(&removal.id, grace).await?;
        }
        self.client.remove_container(&removal.id).await?;
        if let Some(details) = details {
            remove_log_files(&details.log_path, &self.config.pod_logs_dir)?;
        }
        if let Some(names) = names.filter(|names| !names.pod.is_empty() && !names.container.is_empty()) {
            let name = link_name(&names.pod, &names.namespace, &names.container, removal.id.as_str());
            remove_link(&self.config.container_log_links_dir.join(name))?;
        }
        Ok(())
    }

    /// Lists anew, so that a sandbox emptied in this pass can go in it.
    async fn remove_sandboxes(&self, pressure: bool, report: &mut ContainerReport) {
        let observation = match observe(self.client).await {
            Ok(observation) => observation,
            Err(error) => return report.errors.push(format!("{error:#}")),
        };
        let going = observation.plan_sandboxes(self.pods, pressure, &BTreeSet::new());
        report.sandboxes = stream::iter(going)
            .take_while(|_| std::future::ready(!self.stop.is_requested()))
            .map(|removal| async {
                let result = self.client.remove_sandbox(&removal.id).await;
                if let Err(error) = &result {
                    warn!(sandbox = %removal.id, "not removed: {error}");
                }
                (removal, result.err().map(|error| error.to_string()))
            })
            .buffered(self.config.parallel_removals)
            .collect()
            .await;
    }

    async fn remove_logs(&self, report: &mut ContainerReport) {
        match observe(self.client).await {
            Ok(observation) => {
                let running = Running::of(&observation.plain(), &observation.sandboxes);
                let root = &self.config.pod_logs_dir;
                match remove_directories(root, self.pods, &running, &observation.pods(), observation.at) {
                    Ok(gone) => report.log_directories = gone,
                    Err(error) => return report.errors.push(format!("{error:#}")),
                }
            }
            Err(error) => return report.errors.push(format!("{error:#}")),
        }
        match self.remove_dead_links().await {
            Ok(gone) => report.links = gone,
            Err(error) => report.errors.push(format!("{error:#}")),
        }
    }

    async fn remove_dead_links(&self) -> Result<Vec<PathBuf>> {
        let mut gone = Vec::new();
        for path in dead_links(&self.config.container_log_links_dir)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let lookup = match container_of_link(&name).and_then(ContainerId::new) {
                None => Lookup::NotFound,
                Some(id) => match self.client.container_details(&id).await {
                    Ok(Some(details)) => Lookup::Found(details.state),
                    Ok(None) => Lookup::NotFound,
                    Err(error) => {
                        warn!(link = %path.display(), "kept, for its container cannot be looked up: {error}");
                        Lookup::Failed
                    }
                },
            };
            if dead_link_goes(lookup) {
                remove_link(&path)?;
                gone.push(path);
            }
        }
        Ok(gone)
    }
}

/// Removes the files of one container log: the log and its rotations, and no link's target.
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

/// Whether a path lies below the root without a link on the way.
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

/// Links `*.log` whose target surely does not exist.
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

fn remove_directories(
    root: &Path,
    pods: &PodView,
    running: &Running,
    listed: &BTreeSet<PodUid>,
    at: UnixNanoseconds,
) -> Result<Vec<PathBuf>> {
    let mut entries: Vec<LogEntry> = fs::read_dir(root)
        .with_context(|| format!("cannot read the pod log directory {}", root.display()))?
        .filter_map(|entry| log_entry(&entry.ok()?))
        .collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut gone = Vec::new();
    for name in plan_directories(&entries, pods, running, listed, MINIMUM_LEFTOVER_AGE, at) {
        let path = root.join(name);
        // Removes links in it, not what they point to.
        match fs::remove_dir_all(&path) {
            Ok(()) => gone.push(path),
            Err(error) => warn!(directory = %path.display(), "not removed: {error}"),
        }
    }
    Ok(gone)
}

fn log_entry(entry: &fs::DirEntry) -> Option<LogEntry> {
    let metadata = entry.metadata().ok()?;
    let modified = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Some(LogEntry {
        name: entry.file_name().into_string().ok()?,
        is_directory: metadata.is_dir(),
        modified_at: UnixNanoseconds(i64::try_from(modified.as_nanos()).unwrap_or(i64::MAX)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use std::os::unix::fs::symlink;

    /// T106: the files of one container, and no others.
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

    /// T98 and T99: what is not a link, or not dead, stays.
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
