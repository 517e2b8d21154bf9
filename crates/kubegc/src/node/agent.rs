//! The passes, their clocks, and what they tell.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gc_cri::CriClient;
use gc_kube::ApiClient;
use gc_retention::images::plan::{AgePolicy, ImagePlan, needed_by_the_books};
use gc_retention::images::space::{BinaryBytes, Filesystem, Goal, shortage_message};
use gc_retention::pressure::{self, Measured, Pressure, PressureMemory, Reclaim, Topology};
use gc_types::GoDuration;
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::Collect;
use super::clock::Stop;
use super::config::NodeConfig;
use super::containers::{self, Collector, ContainerReport};
use super::events::{NodeEvents, Told};
use super::filesystem::Measurement;
use super::health::Health;
use super::images::{self, ImageMemory, ImageReport, Observation, Outcome, Remover};
use super::journal::NodeJournal;
use super::metrics::{CollectorLabel, KindLabel, Metrics};
use super::output::{
    self, ContainerView, DiskUse, DryRun, Format, GoingImages, GoingLeftovers, Progress, Tally,
};
use super::pods::Pods;
use super::state::{StateDirectory, UnknownPods};
use super::{filesystem, state, uses};
use crate::operations::{self, Protection, Shown};

/// Upstream's periods, counted from the end of a pass to the start of the next.
const IMAGE_PERIOD: Duration = Duration::from_mins(5);
const CONTAINER_PERIOD: Duration = Duration::from_mins(1);
const PRESSURE_PERIOD: Duration = Duration::from_secs(10);
/// How often uses from events are saved, if there were any.
const USES_PERIOD: Duration = Duration::from_mins(1);
/// Images that stay, named when too little could be freed.
const MAX_NAMED_IMAGES: usize = 5;

/// Everything that a pass needs.
pub(super) struct Agent {
    client: CriClient,
    config: NodeConfig,
    pods: Pods,
    /// What was last saved of them.
    saved_pods: UnknownPods,
    events: NodeEvents,
    memory: ImageMemory,
    pressure: PressureMemory,
    metrics: Metrics,
    registry: Arc<prometheus_client::registry::Registry>,
    image_failures: Failures,
    tally: Tally,
    progress: Progress,
    journal: NodeJournal,
}

impl Agent {
    /// An agent that has seen nothing yet.
    #[must_use]
    pub(super) fn new(
        client: CriClient,
        config: NodeConfig,
        pods: Pods,
        api: Option<(ApiClient, String)>,
        (metrics, registry): (Metrics, Arc<prometheus_client::registry::Registry>),
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
            registry,
            image_failures: Failures::default(),
            tally: Tally::default(),
            progress: Progress::default(),
            journal: NodeJournal::default(),
        }
    }

    /// Notes what it removes.
    pub(super) fn with_journal(self, journal: NodeJournal) -> Self {
        Self { journal, ..self }
    }

    fn restore(&mut self, state: &StateDirectory) -> Result<()> {
        let (history, unknown) = state.load(&self.memory.ages)?;
        if !self.config.forget_ages {
            self.memory.history = history;
        }
        self.pods.restore(unknown, self.memory.ages.wall_ahead());
        self.saved_pods = self.pods.view.unknown_since.clone();
        Ok(())
    }

    /// For questions: the ages that a running agent saved, read without its lock.
    async fn look_at_images(&mut self, state_dir: &Path) -> Result<(Observation, ImagePlan)> {
        self.memory.history = state::peek_all(state_dir, &self.memory.ages)?.0;
        self.refresh_pods().await;
        let observation = images::observe(&self.client, &mut self.memory, &self.pods.named_images).await?;
        let plan = self.plan_images(&observation)?;
        Ok((observation, plan))
    }

    /// What would go by this observation; refuses while it is not known what must stay.
    fn plan_images(&self, observation: &Observation) -> Result<ImagePlan> {
        if let Some(why) = self.pods.blind_to_protection() {
            bail!(why);
        }
        images::plan_pass(observation, &self.memory, &self.config)
    }

    async fn refresh_pods(&mut self) {
        self.pods.refresh().await;
        self.metrics.pods_known.set(i64::from(self.pods.is_synced()));
    }

    /// `kubegc node images`
    pub(super) async fn show_images(mut self, state_dir: &Path, format: Format) -> Result<()> {
        let (observation, plan) = self.look_at_images(state_dir).await?;
        output::write_images(&observation, &self.memory.history, &plan, format, &mut std::io::stdout().lock())
    }

    /// `kubegc node containers`
    pub(super) async fn show_containers(mut self, state_dir: &Path, format: Format) -> Result<()> {
        let observation = self.look_at_containers(state_dir).await?;
        self.view_containers(observation).write(format, &mut std::io::stdout().lock())
    }

    /// For questions: also with what a running agent saved.
    async fn look_at_containers(&mut self, state_dir: &Path) -> Result<containers::Observation> {
        let (_, unknown) = state::peek_all(state_dir, &self.memory.ages)?;
        self.pods.restore(unknown, self.memory.ages.wall_ahead());
        self.observe_containers().await
    }

    /// What would become of what was observed.
    fn view_containers(&self, observation: containers::Observation) -> ContainerView {
        let plan = observation.plan(&self.pods.view, &self.config, false);
        let sandboxes = observation.plan_sandboxes(&self.pods.view, false, &plan.removals);
        let reservations = self.pods.reservations(observation.at);
        ContainerView { listed: observation.containers, plan, sandboxes, reservations, now: observation.at }
    }

    /// `kubegc node --dry-run`
    pub(super) async fn dry_run(
        mut self,
        state_dir: &Path,
        collect: &[Collect],
        format: Format,
    ) -> Result<()> {
        let mut found = DryRun::default();
        if collect.contains(&Collect::Images) {
            found.images = Some(self.going_images(state_dir).await?);
        }
        if collect.contains(&Collect::Containers) {
            let observation = self.look_at_containers(state_dir).await?;
            let (_nobody_asks, stop) = Stop::new();
            let collector = self.collector(&stop);
            // A node on which no pod has run yet has no such folder; a pass would say so.
            let log_directories = if self.config.pod_logs_dir.exists() {
                collector.directories_to_remove(&observation)?
            } else {
                Vec::new()
            };
            let links = collector.links_to_remove().await?;
            let containers = self.view_containers(observation);
            found.leftovers = Some(GoingLeftovers { containers, log_directories, links });
        }
        found.write(format, &mut std::io::stdout().lock())
    }

    async fn going_images(&mut self, state_dir: &Path) -> Result<GoingImages> {
        let first_contact = state::peek_all(state_dir, &self.memory.ages)?.0.is_empty();
        if first_contact {
            // Every image would count as new, and the preview would say nothing of what a daemon does two minutes later.
            self.config.ages = AgePolicy { minimum_age: GoDuration::ZERO, maximum_age: None };
        }
        let (observation, plan) = self.look_at_images(state_dir).await?;
        let measured = images::filesystems(&self.client).await?;
        let mut disks = Vec::new();
        for (filesystem, found) in images::assess_all(&measured, &self.config)? {
            let goal = found.goal.filter(|_| self.config.image_loop);
            disks.push(DiskUse {
                path: filesystem.path.clone(),
                usage_percent: found.usage_percent,
                inodes_usage_percent: found.inodes_usage_percent,
                thresholds: self.config.thresholds,
                missing_bytes: goal.as_ref().map(|goal| missing_bytes(goal, &filesystem)),
            });
        }
        let pressure = self.pressure_on_images(&measured).await?;
        let missing = disks.iter().filter_map(|disk| disk.missing_bytes);
        let missing = missing.chain(pressure.iter().map(|(_, bytes)| *bytes)).max().unwrap_or(0);
        let freed_by_age: u64 = plan.by_age.iter().map(|removal| removal.expected_freed_bytes).sum();
        let needed = needed_by_the_books(&plan.by_space, missing.saturating_sub(freed_by_age)).len();
        let mut removals = if self.config.image_loop { plan.by_age } else { Vec::new() };
        removals.extend(plan.by_space.into_iter().take(needed));
        Ok(GoingImages { removals, disks, pressure, first_contact, now: observation.started })
    }

    /// The eviction signals that fire now and take images, and the bytes that each misses. Soft thresholds need time to
    /// fire, which a single look does not have.
    async fn pressure_on_images(&self, measured: &[Filesystem]) -> Result<Vec<(pressure::Signal, u64)>> {
        if self.config.eviction.is_empty() {
            return Ok(Vec::new());
        }
        let fired = pressure::observe(
            &self.config.eviction,
            &self.measure().await?,
            &mut PressureMemory::default(),
            self.memory.ages.now(),
        );
        let on_images = fired.into_iter().filter(|one| one.reclaims.contains(&Reclaim::Images));
        let missing = |one: &Pressure| {
            let filesystem = measured.iter().find(|disk| disk.path == one.goal.path).or(measured.first());
            filesystem.map_or(0, |filesystem| missing_bytes(&one.goal, filesystem))
        };
        Ok(on_images.map(|one| (one.signal, missing(&one))).collect())
    }

    /// `kubegc node --once`
    pub(super) async fn once(mut self, state_dir: &Path, collect: &[Collect], format: Format) -> Result<()> {
        let _only_one = state::lock_runtime(self.client.endpoint())?;
        let state = StateDirectory::open(state_dir)?;
        self.restore(&state)?;
        let stop = stop_on_signals()?;
        self.progress = Progress::on_a_terminal();
        let mut failures = Vec::new();
        if collect.contains(&Collect::Containers) {
            failures.extend(self.container_pass(false, &state, &stop).await.err());
        }
        if collect.contains(&Collect::Images) {
            failures.extend(self.image_pass(&state, &stop).await.err());
        }
        failures.extend(self.relieve_pressure(collect, &state, &stop).await.err());
        output::write_tally(&self.tally, format, &mut std::io::stdout().lock())?;
        if stop.is_requested() {
            failures.push(anyhow::anyhow!("stopped by a signal before the pass was complete"));
        }
        let failures: Vec<String> = failures.iter().map(|error| format!("{error:#}")).collect();
        aggregate(&failures).map_or(Ok(()), |failure| Err(anyhow::anyhow!(failure)))
    }

    /// `kubegc node`
    pub(super) async fn daemon(
        mut self,
        state_dir: &Path,
        collect: &[Collect],
        (listen, protection): (SocketAddr, Protection),
    ) -> Result<()> {
        let _only_one = state::lock_runtime(self.client.endpoint())?;
        let state = StateDirectory::open(state_dir)?;
        self.restore(&state)?;
        let stop = stop_on_signals()?;
        let health = Arc::new(Health::new(collect));
        let ready = Arc::clone(&health.ready);
        let shown = Shown { metrics: Arc::clone(&self.registry), ready, pages: Some(health.clone()) };
        let address = operations::serve(listen, shown, Arc::new(protection)).await?;
        info!(%address, "metrics and health");
        let (seen, ages) = (self.memory.seen.clone(), self.memory.ages.clone());
        uses::follow(self.client.clone(), seen, ages, self.metrics.dropped_uses.clone());
        let started = tokio::time::Instant::now();
        let loop_every = |period| Cadence { next: started, period };
        let (mut image_loop, mut container_loop) = (loop_every(IMAGE_PERIOD), loop_every(CONTAINER_PERIOD));
        let (mut pressure_loop, mut uses_loop) = (loop_every(PRESSURE_PERIOD), loop_every(USES_PERIOD));
        let (images, containers) =
            (collect.contains(&Collect::Images), collect.contains(&Collect::Containers));
        while !stop.is_requested() {
            tokio::select! {
                biased;
                () = stop.requested() => break,
                () = sleep_until(container_loop.next), if containers => {
                    let done = self.container_pass(false, &state, &stop).await;
                    if let Err(error) = &done {
                        warn!("container pass: {error:#}");
                    }
                    container_loop.ended(tokio::time::Instant::now());
                    health.ended(Collect::Containers, done.is_ok());
                }
                () = sleep_until(image_loop.next), if images => {
                    let done = self.image_pass(&state, &stop).await;
                    if let Err(error) = &done {
                        warn!("image pass: {error:#}");
                    }
                    image_loop.ended(tokio::time::Instant::now());
                    health.ended(Collect::Images, done.is_ok());
                }
                () = sleep_until(pressure_loop.next) => {
                    if let Err(error) = self.relieve_pressure(collect, &state, &stop).await {
                        warn!("disk pressure: {error:#}");
                        // What could not be freed now will not be in ten seconds either.
                        pressure_loop.next = tokio::time::Instant::now() + CONTAINER_PERIOD;
                    } else {
                        pressure_loop.ended(tokio::time::Instant::now());
                    }
                }
                () = sleep_until(uses_loop.next) => {
                    if let Err(error) = self.save_uses(&state).await {
                        warn!("{error:#}");
                    }
                    uses_loop.ended(tokio::time::Instant::now());
                }
            }
        }
        if let Err(error) = self.save_uses(&state).await {
            warn!("{error:#}");
        }
        state.save_images(&self.memory.history, &self.memory.ages)?;
        info!("stopped");
        Ok(())
    }

    /// Includes and saves the uses from events: an agent that is killed loses no more than a minute of them.
    async fn save_uses(&mut self, state: &StateDirectory) -> Result<()> {
        if self.memory.seen.is_empty() {
            return Ok(());
        }
        let listed = self.client.images().await.context("cannot list images")?;
        images::note_seen_uses(&mut self.memory, &listed.images);
        state.save_images(&self.memory.history, &self.memory.ages)
    }

    async fn container_pass(&mut self, pressure: bool, state: &StateDirectory, stop: &Stop) -> Result<()> {
        let began = Instant::now();
        let done = self.collect_containers(pressure, state, stop).await;
        let failure = match &done {
            Err(error) => Some(format!("{error:#}")),
            Ok(report) => aggregate(&report.errors),
        };
        self.metrics.pass("containers", began.elapsed().as_secs_f64(), failure.is_none());
        if let Some(failure) = failure {
            self.events.warn(Told::ContainerGCFailed, &failure).await;
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
            pods: &self.pods.view,
            stop,
            progress: &self.progress,
        }
    }

    async fn observe_containers(&mut self) -> Result<containers::Observation> {
        self.refresh_pods().await;
        let observation = containers::observe(&self.client).await?;
        let mut pods = observation.pods();
        pods.extend(containers::pods_with_logs(&self.config.pod_logs_dir));
        self.pods.follow_wall(self.memory.ages.wall_ahead());
        self.pods.compare(&observation.sandboxes, &pods, observation.at);
        self.metrics.pods_known.set(i64::from(self.pods.is_synced()));
        Ok(observation)
    }

    /// Since when pods have been unknown, so that passes of one process each find them gone in the end. A disk too full
    /// to note it is no reason not to free it.
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
        for ((_, count), total) in counts.iter().zip(self.tally.leftovers()) {
            *total += count;
        }
    }

    async fn require_ready_runtime(&self) -> Result<()> {
        if self.client.is_ready().await.context("cannot ask the runtime whether it is ready")? {
            return Ok(());
        }
        bail!("the container runtime says that it is not ready, so nothing is removed");
    }

    /// One image pass; the ages are saved whatever became of it.
    async fn image_pass(&mut self, state: &StateDirectory, stop: &Stop) -> Result<()> {
        let began = Instant::now();
        let done = self.collect_images(state, stop).await;
        let saved = state.save_images(&self.memory.history, &self.memory.ages);
        self.metrics.pass("images", began.elapsed().as_secs_f64(), done.is_ok());
        if self.image_failures.ended(done.is_ok())
            && let Err(error) = &done
        {
            self.events.warn(Told::ImageGCFailed, &format!("{error:#}")).await;
        }
        done.and(saved)
    }

    async fn collect_images(&mut self, state: &StateDirectory, stop: &Stop) -> Result<()> {
        let observation = self.observe_images(state).await?;
        if !self.config.image_loop {
            return Ok(());
        }
        self.require_ready_runtime().await?;
        let plan = self.plan_images(&observation)?;
        let before = images::filesystems(&self.client).await.unwrap_or_default();
        let mut report = ImageReport::default();
        let met = self.remove_images(&observation, &plan, &mut report, stop).await;
        self.conclude(&before, report, met, &largest_kept(&observation, &plan), stop).await
    }

    /// By age, then for space. A filesystem that cannot be measured fails the pass only after the first.
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
        self.refresh_pods().await;
        let observation = images::observe(&self.client, &mut self.memory, &self.pods.named_images).await?;
        // What was seen survives even if this process does not survive the pass. A disk too full to note it is no
        // reason not to free it.
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
            named_by_pods: &self.pods.named_images,
            stop,
            progress: &self.progress,
            metrics: &self.metrics,
        }
    }

    /// The filesystems over their threshold, after what went for its age.
    async fn goals(&mut self, stop: &Stop, plan: &ImagePlan) -> Result<Vec<Goal>> {
        if stop.is_requested() {
            return Ok(Vec::new());
        }
        let measured = images::filesystems(&self.client).await?;
        if let Some(unknown) = measured.iter().find(|filesystem| filesystem.capacity_bytes == 0) {
            let message = "invalid capacity 0 on image filesystem";
            self.events.warn(Told::InvalidDiskCapacity, message).await;
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

    /// Counts, measures and tells what a run over images did.
    async fn conclude(
        &mut self,
        before: &[Filesystem],
        mut report: ImageReport,
        met: Result<bool>,
        largest_kept: &str,
        stop: &Stop,
    ) -> Result<()> {
        self.progress.end();
        let after = images::filesystems(&self.client).await.unwrap_or_default();
        let available = |list: &[Filesystem]| list.iter().map(|one| one.available_bytes).sum::<u64>();
        report.freed_bytes = available(&after).saturating_sub(available(before));
        self.metrics.freed_bytes.inc_by(report.freed_bytes);
        self.tally.freed_bytes += report.freed_bytes;
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
        if let Some((filesystem, freed)) = &report.shortage {
            let message = format!("{}{largest_kept}", shortage_message(filesystem, *freed));
            if failures.is_empty() {
                self.events.warn(Told::FreeDiskSpaceFailed, &message).await;
            }
            failures.push(message);
        }
        bail!(aggregate(&failures).unwrap_or_else(|| "not enough could be freed".into()));
    }

    /// Eviction-style signals: frees to a target, containers before images.
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
            self.events.warn(Told::EvictionThresholdMet, &message).await;
            for reclaim in reclaims {
                // One that fails does not keep the other from being tried.
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

    async fn free_images(&mut self, mut goal: Goal, state: &StateDirectory, stop: &Stop) -> Result<()> {
        self.require_ready_runtime().await?;
        let observation = self.observe_images(state).await?;
        let plan = self.plan_images(&observation)?;
        let before = images::filesystems(&self.client).await?;
        let kept = largest_kept(&observation, &plan);
        // The signal may be about the node's filesystem, which the images share: measure it where they lie.
        if !before.iter().any(|filesystem| filesystem.path == goal.path)
            && let Some(first) = before.first()
        {
            goal.path = first.path.clone();
        }
        let list = plan.by_age.into_iter().chain(plan.by_space).collect();
        let mut report = ImageReport::default();
        let met = self.remover(stop).remove_until(list, vec![goal], &observation, &mut report).await;
        let saved = state.save_images(&self.memory.history, &self.memory.ages);
        self.conclude(&before, report, met, &kept, stop).await.and(saved)
    }

    async fn measure(&self) -> Result<Measured> {
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
        Ok(Measured { topology, node: node.filesystem, images: images.filesystem })
    }
}

/// How many bytes a goal misses. If only inodes are short, it is unknown beforehand how many each image uses.
fn missing_bytes(goal: &Goal, filesystem: &Filesystem) -> u64 {
    match goal.missing_bytes(filesystem) {
        0 => u64::MAX,
        bytes => bytes,
    }
}

/// When a loop runs next: its period counts from the end of a pass to the start of the next, so that a long pass
/// never makes passes follow each other without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cadence {
    next: tokio::time::Instant,
    period: Duration,
}

impl Cadence {
    fn ended(&mut self, at: tokio::time::Instant) {
        self.next = at + self.period;
    }
}

/// Failures in a row. The first may only be early (statistics that are not there yet), so upstream tells of it from
/// the second on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failures(u32);

impl Failures {
    /// Records how a pass ended; returns whether it is to be reported.
    fn ended(&mut self, succeeded: bool) -> bool {
        self.0 = if succeeded { 0 } else { self.0.saturating_add(1) };
        self.0 > 1
    }
}

/// Names the largest remaining images, to show where the space is used.
fn largest_kept(observation: &Observation, plan: &ImagePlan) -> String {
    let reasons: BTreeMap<_, _> = plan.kept.iter().map(|(id, reason)| (id, reason)).collect();
    let mut kept: Vec<_> =
        observation.images.iter().filter_map(|image| Some((image, reasons.get(&image.id)?))).collect();
    if kept.is_empty() {
        return String::new();
    }
    kept.sort_by(|(a, _), (b, _)| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.id.cmp(&b.id)));
    let named = kept.iter().take(MAX_NAMED_IMAGES).map(|(image, reason)| {
        format!("{} ({}, {})", image.display_name(), BinaryBytes(image.size_bytes), output::keep(reason))
    });
    format!(" Largest remaining images: {}.", named.collect::<Vec<_>>().join(", "))
}

/// Several failures in one line: unique, in order (spec, 17.3).
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

fn stop_on_signals() -> Result<Stop> {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, stop) = Stop::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("asked to stop; removals in progress finish, and no new ones begin");
        // If the receiver is gone, the process is already ending.
        let _ = sender.send(true);
        std::future::pending::<()>().await;
    });
    Ok(stop)
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod agent_tests;

#[cfg(test)]
mod tests {
    use super::*;

    /// T135: the second failure in a row is reported, a success resets.
    #[test]
    fn a_first_failure_is_not_told() {
        let mut failures = Failures::default();
        let told: Vec<bool> = [false, false, false, true, false, true, false, false]
            .into_iter()
            .map(|succeeded| failures.ended(succeeded))
            .collect();
        assert_eq!(told, [false, true, true, false, false, false, false, true]);
    }

    /// T136: a pass of seven minutes moves the next one; it does not follow at once.
    #[test]
    fn a_period_counts_from_the_end_of_a_pass() {
        let start = tokio::time::Instant::now();
        let mut cadence = Cadence { next: start, period: IMAGE_PERIOD };
        cadence.ended(start + Duration::from_mins(7));
        assert_eq!(cadence.next, start + Duration::from_mins(12));
    }

    /// T167.
    #[test]
    fn failures_are_told_once_each() {
        let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (failures, text) in [
            (own(&[]), None),
            (own(&["a"]), Some("a")),
            (own(&["a", "b"]), Some("[a, b]")),
            (own(&["a", "a"]), Some("a")),
            (own(&["a", "b", "a"]), Some("[a, b]")),
        ] {
            assert_eq!(aggregate(&failures).as_deref(), text);
        }
    }
}
