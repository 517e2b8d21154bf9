//! The passes, and their reports.

mod below;
mod policies;
mod preview;
mod report;
mod sole;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use gc_collectors::images::patterns::ImagePatterns;
use gc_collectors::images::plan::{ImagePlan, KeepReason};
use gc_collectors::images::space::{BinaryBytes, Filesystem, Goal, shortage_message, sizes_message};
use gc_collectors::images::{Image, ImageId};
use gc_collectors::node_report::Tally;
use gc_collectors::pressure::{self, MeasuredFilesystems, Pressure, PressureMemory, Reclaim, Topology};
use gc_cri::CriClient;
use gc_kube::ApiClient;
use tracing::{info, warn};

use crate::clock::{Ages, Stop, TestClock};
use crate::config::NodeConfig;
use crate::containers::{self, Collector, ContainerReport};
use crate::events::{EventReason, NodeEvents};
use crate::filesystem::{self, Measurement};
use crate::images::{self, ImageMemory, ImageReport, Observation, Outcome, Remover};
use crate::journal::{NodeJournal, RecordRemoval};
use crate::metrics::{CollectorLabel, KindLabel, Metrics};
use crate::peers::Peers;
use crate::pods::Pods;
use crate::policies::{CheckKubelet, Policies};
use crate::progress::Progress;
use crate::reports::{ReportTarget, Reporter};
use crate::state::{StateDirectory, UnknownPods};
use crate::stops::Stops;

use self::policies::PolicyResults;
use report::ReportedState;

pub use preview::{ContainerView, DiskUse, ImagePreview, ImageView, LeftoverPreview, Preview, keep_message};
pub use sole::{Locks, Pass, SoleAgent};

/// Maximum number of kept images that are named when too little could be freed.
const MAX_NAMED_IMAGES: usize = 5;

/// Collectors to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collect {
    /// Unused images.
    Images,
    /// Dead containers, sandboxes and logs.
    Containers,
}

impl Collect {
    /// Returns the collector's name in flags, labels and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Containers => "containers",
        }
    }
}

/// Everything that a pass needs.
pub struct Agent {
    client: CriClient,
    config: NodeConfig,
    pods: Pods,
    /// State that was last saved.
    saved_pods: UnknownPods,
    events: NodeEvents,
    memory: ImageMemory,
    pressure: PressureMemory,
    metrics: Metrics,
    image_failures: Failures,
    tally: Tally,
    progress: Progress,
    journal: NodeJournal,
    clock: TestClock,
    reporter: Option<Reporter>,
    /// Cluster policies for this node, if they are followed.
    policies: Option<Policies>,
    results: PolicyResults,
    /// Mirrors on all nodes, if they are asked about copies.
    peers: Option<Peers>,
    stops: Stops,
    /// Images that could be removed for their age, as of the last pass, with their names. Bounded by the number of images that the
    /// runtime lists.
    aging: Vec<(ImageId, Arc<str>)>,
    reported: ReportedState,
}

impl Agent {
    /// Creates an agent without any observations. `api` is the server for Events, and the name of the node that they concern.
    #[must_use]
    pub fn new(
        client: CriClient,
        config: NodeConfig,
        pods: Pods,
        api: Option<(ApiClient, String)>,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            config,
            pods,
            saved_pods: UnknownPods::new(),
            events: NodeEvents::new(api),
            memory: ImageMemory::default(),
            pressure: PressureMemory::default(),
            metrics,
            image_failures: Failures::default(),
            tally: Tally::default(),
            progress: Progress::default(),
            journal: NodeJournal::default(),
            clock: TestClock::default(),
            reporter: None,
            policies: None,
            results: PolicyResults::default(),
            peers: None,
            stops: Stops::default(),
            aging: Vec::new(),
            reported: ReportedState::default(),
        }
    }

    /// Reports to a cluster which images were removed and are due here.
    #[must_use]
    pub fn with_reports(self, target: ReportTarget) -> Self {
        Self { reporter: Some(Reporter::new(target)), ..self }
    }

    /// Follows the policies of a cluster for a node, and writes the results into their status.
    #[must_use]
    pub fn with_policies(self, client: ApiClient, node: String, check_kubelet: CheckKubelet) -> Self {
        let own = self.config.image_settings();
        Self { policies: Some(Policies::new(client, node, own, check_kubelet)), ..self }
    }

    /// Keeps images of which no other node has a copy, according to the mirrors at all addresses of these hosts (`HOST:PORT`).
    #[must_use]
    pub fn with_peers(self, hosts: Vec<String>) -> Self {
        Self { peers: Some(Peers::new(hosts)), ..self }
    }

    /// Writes an entry for each removal.
    #[must_use]
    pub fn with_journal(self, record: RecordRemoval) -> Self {
        Self { journal: NodeJournal(Some(record)), ..self }
    }

    /// Uses a clock that a test may set ahead. The runtime and its files use the clock of the machine.
    #[must_use]
    pub fn with_clock(mut self, clock: TestClock) -> Self {
        self.memory.ages = Ages::with(clock.clone());
        self.clock = clock;
        self
    }

    /// Shows the progress of the passes.
    #[must_use]
    pub fn with_progress(self, progress: Progress) -> Self {
        Self { progress, ..self }
    }

    /// Returns the removals for this observation. Fails while it is unknown which images are protected, and removes nothing for its
    /// age while it is unknown which images the pods name.
    fn plan_images(&self, observation: &Observation) -> Result<ImagePlan> {
        self.plan_images_with(observation, &self.config)
    }

    fn plan_images_with(&self, observation: &Observation, config: &NodeConfig) -> Result<ImagePlan> {
        if let Some(why) = self.pods.blind_to_protection().or_else(|| self.blind_to_policies()) {
            bail!(why);
        }
        let mut ages = config.ages;
        if self.pods.names_unknown().is_none() {
            return images::plan_pass(observation, &self.memory, config, ages);
        }
        ages.maximum_age = None;
        let mut config = config.clone();
        config.rules.unwanted = ImagePatterns::default();
        images::plan_pass(observation, &self.memory, &config, ages)
    }

    /// Returns the plan for an observation, after other nodes were asked about copies of the images to be removed. They are asked
    /// in the order of removal, so that the answers are about the images that would be removed.
    async fn plan_beside_peers(
        &mut self,
        mut observation: Observation,
        pressure: bool,
    ) -> Result<(Observation, ImagePlan)> {
        let plan = self.plan_images(&observation)?;
        let Some(peers) = &self.peers else { return Ok((observation, plan)) };
        if plan.by_age.is_empty() && !pressure && !self.is_over_threshold().await {
            return Ok((observation, plan));
        }
        let by_id: BTreeMap<&ImageId, &Image> =
            observation.images.iter().map(|image| (&image.id, image)).collect();
        let going = plan.by_age.iter().chain(&plan.by_space);
        let going: Vec<Image> =
            going.filter_map(|removal| Some((*by_id.get(&removal.id)?).clone())).collect();
        self.memory.copies = peers.ask(&going).await;
        observation.usage.needed.copies = self.memory.copies.clone();
        let plan = self.plan_images(&observation)?;
        Ok((observation, plan))
    }

    /// Reports whether space is needed on a disk of images; also true if that is unknown.
    async fn is_over_threshold(&self) -> bool {
        let measured = images::filesystems(&self.client).await;
        let assessed = measured.and_then(|measured| images::assess_all(&measured, &self.config));
        assessed.map_or(true, |all| all.iter().any(|(_, found)| found.goal.is_some()))
    }

    async fn refresh_pods(&mut self) {
        self.pods.refresh().await;
        self.metrics.pods_known.set(i64::from(self.pods.is_synced()));
    }

    async fn container_pass(&mut self, pressure: bool, state: &StateDirectory, stop: &Stop) -> Result<()> {
        let began = Instant::now();
        let done = self.collect_containers(pressure, state, stop).await;
        let failure = match &done {
            Err(error) => Some(format!("{error:#}")),
            Ok(report) => aggregate(&report.errors),
        };
        self.metrics.pass("containers", began.elapsed().as_secs_f64(), failure.is_none());
        self.reported.ended(Collect::Containers, failure.is_none());
        if let Some(failure) = failure {
            self.events.warn(EventReason::ContainerGCFailed, &failure).await;
            bail!(failure);
        }
        Ok(())
    }

    async fn collect_containers(
        &mut self,
        pressure: bool,
        state: &StateDirectory,
        stop: &Stop,
    ) -> Result<ContainerReport> {
        self.require_ready_runtime().await?;
        let observation = self.observe_containers().await?;
        self.save_pods(state);
        let known = i64::try_from(observation.containers.len()).unwrap_or(i64::MAX);
        self.metrics.known.get_or_create(&CollectorLabel { collector: "containers" }).set(known);
        let report = self.collector(stop).run(&observation, pressure).await;
        self.progress.end();
        self.journal.containers(&report);
        self.count_containers(&report);
        Ok(report)
    }

    fn collector<'a>(&'a self, stop: &'a Stop) -> Collector<'a> {
        Collector {
            client: &self.client,
            config: &self.config,
            ages: &self.memory.ages,
            pods: &self.pods.view,
            stop,
            progress: &self.progress,
            stops: &self.stops,
        }
    }

    async fn observe_containers(&mut self) -> Result<containers::Observation> {
        self.refresh_pods().await;
        let observation = containers::observe(&self.client, &self.memory.ages).await?;
        let mut pods = observation.pods();
        pods.extend(containers::pods_with_logs(&self.config.pod_logs_dir));
        self.pods.compare(&observation.sandboxes, &pods, observation.at());
        self.metrics.pods_known.set(i64::from(self.pods.is_synced()));
        Ok(observation)
    }

    /// Saves the time since which pods have been unknown, so that passes of separate processes eventually find them gone. A disk
    /// that is too full to save it must still be freed.
    fn save_pods(&mut self, state: &StateDirectory) {
        let unknown = &self.pods.view.unknown_since;
        if self.saved_pods == *unknown {
            return;
        }
        match state.save_pods(unknown, &self.memory.ages) {
            Ok(()) => self.saved_pods.clone_from(unknown),
            Err(error) => warn!("{error:#}"),
        }
    }

    fn count_containers(&mut self, report: &ContainerReport) {
        let succeeded = |failures: Vec<bool>| failures.iter().filter(|failed| !**failed).count() as u64;
        let containers = report.containers.iter().map(|gone| gone.failure.is_some()).collect::<Vec<_>>();
        let sandboxes = report.sandboxes.iter().map(|(_, failure)| failure.is_some()).collect::<Vec<_>>();
        let failed = containers.iter().chain(&sandboxes).filter(|failed| **failed).count() as u64;
        self.metrics.failures.get_or_create(&CollectorLabel { collector: "containers" }).inc_by(failed);
        let counts = [
            ("container", succeeded(containers)),
            ("sandbox", succeeded(sandboxes)),
            ("log_directory", report.log_directories.len() as u64),
            ("log_link", report.links.len() as u64),
        ];
        for (kind, count) in counts {
            self.metrics.removed.get_or_create(&KindLabel { kind }).inc_by(count);
        }
        if counts.iter().any(|(_, count)| *count > 0) {
            let [(_, containers), (_, sandboxes), (_, directories), (_, links)] = counts;
            info!(containers, sandboxes, directories, links, "removed");
        }
        let tally = &mut self.tally;
        let totals =
            [&mut tally.containers, &mut tally.sandboxes, &mut tally.log_directories, &mut tally.links];
        for ((_, count), total) in counts.iter().zip(totals) {
            *total += count;
        }
    }

    async fn require_ready_runtime(&self) -> Result<()> {
        if self.client.is_ready().await.context("cannot ask the runtime whether it is ready")? {
            return Ok(());
        }
        bail!("the container runtime says that it is not ready, so nothing is removed");
    }

    /// Performs one image pass; the ages are saved whatever its result.
    async fn image_pass(&mut self, state: &StateDirectory, stop: &Stop) -> Result<()> {
        let began = Instant::now();
        let done = self.collect_images(state, stop).await;
        let saved = state.save_images(&self.memory.history, &self.memory.ages);
        self.metrics.pass("images", began.elapsed().as_secs_f64(), done.is_ok());
        self.reported.ended(Collect::Images, done.is_ok());
        self.report_policies(done.as_ref().err().map(|error| format!("{error:#}"))).await;
        if self.image_failures.ended(done.is_ok())
            && let Err(error) = &done
        {
            self.events.warn(EventReason::ImageGCFailed, &format!("{error:#}")).await;
        }
        done.and(saved)
    }

    async fn collect_images(&mut self, state: &StateDirectory, stop: &Stop) -> Result<()> {
        self.results = PolicyResults::default();
        self.apply_policies().await;
        let observation = self.observe_images(state).await?;
        self.rehearse_policies(&observation).await;
        if !self.config.image_loop {
            return self.blind_to_policies().map_or(Ok(()), |why| Err(anyhow::anyhow!(why)));
        }
        self.require_ready_runtime().await?;
        let (observation, plan) = self.plan_beside_peers(observation, false).await?;
        self.aging = aging(&observation, &plan);
        let before = images::filesystems(&self.client).await.unwrap_or_default();
        let mut report = ImageReport::default();
        let met = self.remove_images(&observation, &plan, &mut report, stop).await;
        self.conclude(&before, report, met, &largest_kept(&observation, &plan), stop).await
    }

    /// Removes images by age, then for space. A filesystem that cannot be measured fails the pass only after the first step.
    async fn remove_images(
        &mut self,
        observation: &Observation,
        plan: &ImagePlan,
        report: &mut ImageReport,
        stop: &Stop,
    ) -> Result<bool> {
        self.remover(stop).remove_all(plan.by_age.clone(), observation, report).await?;
        let goals = self.goals(stop, plan).await?;
        if goals.is_empty() {
            return Ok(true);
        }
        self.remover(stop).remove_until(plan.by_space.clone(), goals, observation, report).await
    }

    async fn observe_images(&mut self, state: &StateDirectory) -> Result<Observation> {
        self.memory.copies.clear();
        self.refresh_pods().await;
        self.memory.needs = self.pods.needs().await;
        let observation = images::observe(&self.client, &mut self.memory, &self.pods.named_images).await?;
        // The observations survive even if this process does not survive the pass. A disk that is too full to save them must still
        // be freed.
        if let Err(error) = state.save_images(&self.memory.history, &self.memory.ages) {
            warn!("{error:#}");
        }
        let known = i64::try_from(observation.images.len()).unwrap_or(i64::MAX);
        self.metrics.known.get_or_create(&CollectorLabel { collector: "images" }).set(known);
        Ok(observation)
    }

    fn remover<'a>(&'a mut self, stop: &'a Stop) -> Remover<'a> {
        Remover {
            client: &self.client,
            config: &self.config,
            memory: &mut self.memory,
            pods: &mut self.pods,
            stop,
            progress: &self.progress,
            metrics: &self.metrics,
        }
    }

    /// Returns the filesystems over their threshold, after removals by age.
    async fn goals(&mut self, stop: &Stop, plan: &ImagePlan) -> Result<Vec<Goal>> {
        if stop.is_requested() {
            return Ok(Vec::new());
        }
        let measured = images::filesystems(&self.client).await?;
        if let Some(unknown) = measured.iter().find(|filesystem| filesystem.capacity_bytes == 0) {
            let message = "invalid capacity 0 on image filesystem";
            self.events.warn(EventReason::InvalidDiskCapacity, message).await;
            bail!("{message} {}", unknown.path);
        }
        let mut goals = Vec::new();
        for (filesystem, assessment) in images::assess_all(&measured, &self.config)? {
            if let Some(goal) = assessment.goal {
                info!(
                    filesystem = %filesystem.path,
                    usage_percent = assessment.usage_percent,
                    inodes_usage_percent = assessment.inodes_usage_percent,
                    missing = %BinaryBytes(goal.missing_bytes(&filesystem)),
                    removable = plan.by_space.len(),
                    "the image filesystem is over its threshold"
                );
                goals.push(goal);
            }
        }
        Ok(goals)
    }

    /// Counts, measures and reports the result of a run over images.
    async fn conclude(
        &mut self,
        before: &[Filesystem],
        mut report: ImageReport,
        met: Result<bool>,
        largest_kept: &str,
        stop: &Stop,
    ) -> Result<()> {
        self.progress.end();
        // Space that others free in the meantime does not make a run that removed nothing a success.
        if report.removals.iter().any(|(_, outcome)| *outcome == Outcome::Removed) {
            let after = images::filesystems(&self.client).await.unwrap_or_default();
            let available = |list: &[Filesystem]| list.iter().map(|one| one.available_bytes).sum::<u64>();
            report.freed_bytes = available(&after).saturating_sub(available(before));
        }
        self.metrics.freed_bytes.inc_by(report.freed_bytes);
        self.tally.freed_bytes += report.freed_bytes;
        self.results.removed(&report);
        self.journal.images(&report);
        let left = i64::try_from(self.memory.history.len()).unwrap_or(i64::MAX);
        self.metrics.known.get_or_create(&CollectorLabel { collector: "images" }).set(left);
        let mut failures = Vec::new();
        for (removal, outcome) in &report.removals {
            match outcome {
                Outcome::Removed => self.tally.images += 1,
                Outcome::Kept(_) => {}
                Outcome::Failed(why) => failures.push(format!("{}: {why}", removal.name)),
            }
        }
        self.metrics
            .failures
            .get_or_create(&CollectorLabel { collector: "images" })
            .inc_by(failures.len() as u64);
        if met? || stop.is_requested() {
            return Ok(());
        }
        if let Some((filesystem, nominal)) = &report.shortage {
            let shortage = shortage_message(filesystem, self.config.thresholds, *nominal);
            let message = format!("{shortage}{largest_kept}");
            if failures.is_empty() {
                let event = format!("{message}{}", sizes_message(report.freed_bytes, *nominal));
                self.events.warn(EventReason::FreeDiskSpaceFailed, &event).await;
            }
            failures.push(message);
        }
        bail!(aggregate(&failures).unwrap_or_else(|| "not enough could be freed".into()));
    }

    /// Handles signals like those of kubelet eviction: frees space up to a goal, from containers before images.
    async fn relieve_pressure(
        &mut self,
        collect: &[Collect],
        state: &StateDirectory,
        stop: &Stop,
    ) -> Result<()> {
        if self.config.eviction.is_empty() {
            return Ok(());
        }
        let measured = self.measure().await?;
        let fired =
            pressure::observe(&self.config.eviction, &measured, &mut self.pressure, self.memory.ages.now());
        let mut failures = Vec::new();
        for Pressure { signal, reclaims, goal } in fired {
            let resource = if goal.inodes_free > 0 { "inodes" } else { "ephemeral-storage" };
            let message = format!("Attempting to reclaim {resource}");
            info!(%signal, "a disk threshold is crossed");
            self.events.warn(EventReason::EvictionThresholdMet, &message).await;
            for reclaim in reclaims {
                // A failure of one step does not prevent the other.
                let done = match reclaim {
                    Reclaim::Containers if collect.contains(&Collect::Containers) => {
                        self.container_pass(true, state, stop).await
                    }
                    Reclaim::Images if collect.contains(&Collect::Images) => {
                        self.free_images(goal.clone(), state, stop).await
                    }
                    Reclaim::Containers | Reclaim::Images => Ok(()),
                };
                failures.extend(done.err().map(|error| format!("{error:#}")));
            }
        }
        aggregate(&failures).map_or(Ok(()), |failure| Err(anyhow::anyhow!(failure)))
    }

    async fn free_images(&mut self, goal: Goal, state: &StateDirectory, stop: &Stop) -> Result<()> {
        self.require_ready_runtime().await?;
        // Signals fire every few seconds: the policies that an image pass has read are used, if there was one.
        if self.blind_to_policies().is_some() {
            self.apply_policies().await;
        }
        let observation = self.observe_images(state).await?;
        let (observation, plan) = self.plan_beside_peers(observation, true).await?;
        let before = images::filesystems(&self.client).await?;
        let kept = largest_kept(&observation, &plan);
        let goal = on_images(goal, &before);
        let list = plan.by_age.into_iter().chain(plan.by_space).collect();
        let mut report = ImageReport::default();
        let met = self.remover(stop).remove_until(list, vec![goal], &observation, &mut report).await;
        let saved = state.save_images(&self.memory.history, &self.memory.ages);
        self.conclude(&before, report, met, &kept, stop).await.and(saved)
    }

    async fn measure(&self) -> Result<MeasuredFilesystems> {
        let (image_paths, container_paths) = self.client.filesystem_paths().await?;
        let node = filesystem::measure(&self.config.pod_logs_dir.to_string_lossy())?;
        let first = image_paths.first().context("the runtime names no image filesystem")?;
        let images = filesystem::measure(first)?;
        let of = |measured: &Measurement| (measured.device, measured.filesystem.capacity_bytes);
        let writable = match container_paths.first() {
            Some(path) => of(&filesystem::measure(path)?),
            None => of(&images),
        };
        let topology = Topology::of(of(&node), of(&images), writable);
        Ok(MeasuredFilesystems { topology, node: node.filesystem, images: images.filesystem })
    }
}

/// Returns the goal of a signal as measured at the path of the images. The signal may concern the node's filesystem, which they
/// share.
fn on_images(goal: Goal, measured: &[Filesystem]) -> Goal {
    let is_measured = measured.iter().any(|filesystem| filesystem.path == goal.path);
    match measured.first().filter(|_| !is_measured) {
        Some(first) => Goal { path: first.path.clone(), ..goal },
        None => goal,
    }
}

/// Number of consecutive failures. The first may only mean that it is early (no statistics yet), so upstream reports from the
/// second on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failures(u32);

impl Failures {
    /// Records the result of a pass; returns whether to report it.
    fn ended(&mut self, succeeded: bool) -> bool {
        self.0 = if succeeded { 0 } else { self.0.saturating_add(1) };
        self.0 > 1
    }
}

/// Returns the images that only their age keeps.
fn aging(observation: &Observation, plan: &ImagePlan) -> Vec<(ImageId, Arc<str>)> {
    let is_young = |reason: &KeepReason| matches!(reason, KeepReason::TooYoung | KeepReason::UsedDuringPass);
    let young: BTreeSet<&ImageId> =
        plan.kept.iter().filter(|(_, reason)| is_young(reason)).map(|(id, _)| id).collect();
    let young = observation.images.iter().filter(|image| young.contains(&image.id));
    let young = young.map(|image| (image.id.clone(), image.display_name().clone()));
    let planned = plan.by_age.iter().chain(&plan.by_space);
    planned.map(|removal| (removal.id.clone(), removal.name.clone())).chain(young).collect()
}

/// Names the largest remaining images to show what uses the space.
fn largest_kept(observation: &Observation, plan: &ImagePlan) -> String {
    let reasons: BTreeMap<_, _> = plan.kept.iter().map(|(id, reason)| (id, reason)).collect();
    let mut kept: Vec<_> =
        observation.images.iter().filter_map(|image| Some((image, reasons.get(&image.id)?))).collect();
    if kept.is_empty() {
        return String::new();
    }
    kept.sort_by(|(a, _), (b, _)| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.id.cmp(&b.id)));
    let named = kept.iter().take(MAX_NAMED_IMAGES).map(|(image, reason)| {
        format!("{} ({}, {})", image.display_name(), BinaryBytes(image.size_bytes), keep_message(reason))
    });
    format!(" Largest remaining images: {}. Their sizes are nominal.", named.collect::<Vec<_>>().join(", "))
}

/// Joins several failures on one line: unique, in order (spec, 17.3).
fn aggregate(failures: &[String]) -> Option<String> {
    let mut unique: Vec<&str> = Vec::new();
    for failure in failures {
        if !unique.contains(&failure.as_str()) {
            unique.push(failure);
        }
    }
    match unique.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}
