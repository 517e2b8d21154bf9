//! One pass over the images: observe, plan, remove, measure.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use gc_collectors::containers::{ContainerId, Sandbox};
use gc_collectors::images::history::ImageHistory;
use gc_collectors::images::needs::{NeededImages, Needs};
use gc_collectors::images::peers::KnownCopies;
use gc_collectors::images::plan::{
    AgePolicy, ImagePlan, KeepReason, Removal, RemovalReason, Snapshot, keep_reason, plan,
};
use gc_collectors::images::space::{
    Assessment, Batches, Filesystem, Goal, RemovalOutcome, SpaceNeed, SpaceRun, Step, assess,
};
use gc_collectors::images::usage::{ContainerImages, ImageIndex, Usage, usage};
use gc_collectors::images::{Image, ImageId, LayerId};
use gc_cri::{CriClient, CriError, SnapshotUsages};
use gc_types::{GoDuration, UnixNanoseconds};
use tracing::{debug, info, warn};

use crate::clock::{Ages, Stop};
use crate::config::NodeConfig;
use crate::filesystem;
use crate::metrics::{ImageLabel, ImageReason, Metrics};
use crate::parallel::each;
use crate::pods::Pods;
use crate::progress::Progress;
use crate::stores::find_freed_space;
use crate::uses::SeenUses;

/// Maximum number of concurrent status calls.
const PARALLEL_STATUSES: usize = 16;
/// Maximum number of images that are removed before the first measurement of the filesystem: until then, the accuracy of the
/// reported sizes is unknown.
const FIRST_BATCH: usize = 1;
/// Total time that a run waits for freed space which did not appear at once after a removal.
const SETTLING: Duration = Duration::from_secs(1);
/// Divisor of the expected freed space: once that part has appeared, nothing is still to come; shared layers may leave less.
const SETTLED_PART: u64 = 20;
/// Time between two measurements while it waits.
const SETTLING_PERIOD: Duration = Duration::from_millis(100);
/// Maximum number of images that are removed between two later measurements.
const MAX_BATCH: usize = 64;
/// Maximum time between listing the images in use and a removal that this list permits. (If listing alone takes longer, each list
/// permits as many removals as may run at the same time.)
const MAX_STALENESS: Duration = Duration::from_millis(250);
/// Time within which a runtime that did not answer about one image must report that it is ready.
const PROBE: Duration = Duration::from_secs(5);
/// First delay before a failed removal is tried again; doubles up to [`MAX_BACKOFF`].
const FIRST_BACKOFF: GoDuration = GoDuration::from_seconds(300);
/// Longest delay.
const MAX_BACKOFF: GoDuration = GoDuration::from_seconds(6 * 3600);

/// Result of one observation.
#[derive(Debug)]
pub(crate) struct Observation {
    /// Time at which the observation began.
    pub started: UnixNanoseconds,
    /// Images with their layers.
    pub images: Vec<Image>,
    /// Images in use.
    pub usage: Usage,
}

/// State that is kept from pass to pass. Each map is bounded by the number of items that the runtime lists.
#[derive(Debug, Default)]
pub(crate) struct ImageMemory {
    /// Clock of all dates in this state.
    pub ages: Ages,
    /// Ages of the images.
    pub history: ImageHistory,
    /// Uses that events have reported since the last observation.
    pub seen: SeenUses,
    /// Images that workloads will need.
    pub needs: Needs,
    /// Copies on other nodes, as of this pass.
    pub copies: KnownCopies,
    /// Image volumes of containers, which never change.
    volumes: BTreeMap<ContainerId, Vec<Arc<str>>>,
    /// Layers of images, which never change.
    layers: BTreeMap<ImageId, Arc<[LayerId]>>,
    /// Disk usage of image snapshots, which never changes.
    pub snapshot_usages: SnapshotUsages,
    /// Containers that count as gone: a dry run removes them first, as a pass does.
    pub leaving: BTreeSet<ContainerId>,
    /// Images whose removal failed, with the time until which they are skipped and the delay that led to it.
    backoff: BTreeMap<ImageId, (UnixNanoseconds, GoDuration)>,
}

#[cfg(test)]
impl ImageMemory {
    /// Expires every delay after a failure.
    pub(crate) fn expire_backoffs(&mut self) {
        self.backoff.values_mut().for_each(|(until, _)| *until = UnixNanoseconds(0));
    }
}

/// Outcome of one planned removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Removed.
    Removed,
    /// Kept after all.
    Kept(KeepReason),
    /// Failed in the runtime.
    Failed(String),
}

/// Result of a pass.
#[derive(Debug, Default)]
pub(crate) struct ImageReport {
    /// Images that were, or were to be, removed, in order.
    pub removals: Vec<(Removal, Outcome)>,
    /// Bytes that became available on the image filesystems, as measured.
    pub freed_bytes: u64,
    /// Goal that was not reached: the filesystem, and the nominal size of the removed images.
    pub shortage: Option<(Filesystem, u64)>,
    /// Reason why space is needed.
    pub need: Option<SpaceNeed>,
}

/// Observes the images and their use. Images are listed before containers, so an image that comes into use between the two lists is
/// seen as used.
pub(crate) async fn observe(
    client: &CriClient,
    memory: &mut ImageMemory,
    named_by_pods: &[Arc<str>],
) -> Result<Observation> {
    let started = memory.ages.now();
    let listed = client.images().await.context("cannot list images")?;
    if listed.without_identifier > 0 {
        warn!(count = listed.without_identifier, "images without a full identifier are left alone");
    }
    let mut images = listed.images;
    let sandboxes = client.sandboxes().await.context("cannot list sandboxes")?;
    let usage = look_at_use(client, memory, &images, &sandboxes, named_by_pods).await?;
    fill_in_layers(client, memory, &mut images).await;
    let known: BTreeSet<&ImageId> = images.iter().map(|image| &image.id).collect();
    memory.backoff.retain(|id, _| known.contains(id));
    let seen_at = memory.ages.now();
    memory.history.observe(&images, &usage.in_use, started, seen_at);
    record_seen_uses(memory, &images);
    Ok(Observation { started, images, usage })
}

/// Records the uses that events have reported since the last observation: an image that was used only in between counts as used.
pub(crate) fn record_seen_uses(memory: &mut ImageMemory, images: &[Image]) {
    let seen = memory.seen.take();
    if seen.is_empty() {
        return;
    }
    let index = ImageIndex::new(images);
    for (reference, at) in seen {
        for image in index.resolve(&reference) {
            memory.history.record_use(&image, at);
        }
    }
}

async fn look_at_use(
    client: &CriClient,
    memory: &mut ImageMemory,
    images: &[Image],
    sandboxes: &[Sandbox],
    named_by_pods: &[Arc<str>],
) -> Result<Usage> {
    let mut listed = client.containers(sandboxes).await.context("cannot list containers")?;
    listed.retain(|one| !memory.leaving.contains(&one.container.id));
    let unknown =
        listed.iter().map(|c| &c.container.id).filter(|id| !memory.volumes.contains_key(*id)).cloned();
    let found: Vec<(ContainerId, Vec<Arc<str>>)> = stream::iter(unknown.collect::<Vec<_>>())
        .map(|id| async move {
            let details = client.container_details(&id).await?;
            // A container that has disappeared by now uses nothing.
            Ok::<_, gc_cri::CriError>((id, details.map(|details| details.volumes).unwrap_or_default()))
        })
        .buffer_unordered(PARALLEL_STATUSES)
        .try_collect()
        .await
        .context("cannot read the image volumes of a container, so nothing is removed")?;
    memory.volumes.extend(found);
    let present: BTreeSet<&ContainerId> = listed.iter().map(|c| &c.container.id).collect();
    memory.volumes.retain(|id, _| present.contains(id));
    let containers: Vec<ContainerImages> = listed
        .iter()
        .map(|container| ContainerImages {
            volumes: memory.volumes.get(&container.container.id).cloned().unwrap_or_default(),
            ..container.images.clone()
        })
        .collect();
    let index = ImageIndex::new(images);
    let needed = NeededImages { copies: memory.copies.clone(), ..memory.needs.resolve(&index) };
    Ok(Usage { needed, ..usage(&index, &containers, named_by_pods) })
}

/// Reads missing layers. They only refine the expected size of a removal, so a runtime that does not report them is not an error.
async fn fill_in_layers(client: &CriClient, memory: &mut ImageMemory, images: &mut [Image]) {
    let unknown = images.iter().map(|image| &image.id).filter(|id| !memory.layers.contains_key(*id)).cloned();
    let found: Vec<(ImageId, Arc<[LayerId]>)> = stream::iter(unknown.collect::<Vec<_>>())
        .map(|id| async move {
            let layers = client.image_layers(&id).await;
            // The next pass asks again, since an image without layers would count as unshared.
            let layers = layers.inspect_err(|error| debug!(%id, "layers unknown: {error}"));
            Some((id.clone(), layers.ok()?.into()))
        })
        .buffer_unordered(PARALLEL_STATUSES)
        .filter_map(std::future::ready)
        .collect()
        .await;
    memory.layers.extend(found);
    let present: BTreeSet<&ImageId> = images.iter().map(|image| &image.id).collect();
    memory.layers.retain(|id, _| present.contains(id));
    for image in images {
        image.layers = memory.layers.get(&image.id).cloned().unwrap_or_default();
    }
}

/// Returns the removals for this observation and these ages.
pub(crate) fn plan_pass(
    observation: &Observation,
    memory: &ImageMemory,
    config: &NodeConfig,
    ages: AgePolicy,
) -> Result<ImagePlan> {
    let mut plan = plan(snapshot(observation, memory, config), ages, observation.started)?;
    let waiting = |removal: &Removal| {
        memory.backoff.get(&removal.id).is_some_and(|(until, _)| *until > observation.started)
    };
    for list in [&mut plan.by_age, &mut plan.by_space] {
        list.retain(|removal| !waiting(removal));
        // Images that failed before are tried last, so one whose removal gets no answer does not delay the others.
        list.sort_by_key(|removal| memory.backoff.contains_key(&removal.id));
    }
    Ok(plan)
}

fn snapshot<'a>(
    observation: &'a Observation,
    memory: &'a ImageMemory,
    config: &'a NodeConfig,
) -> Snapshot<'a> {
    Snapshot {
        images: &observation.images,
        history: &memory.history,
        usage: &observation.usage,
        protection: &config.protection,
        rules: &config.rules,
    }
}

/// Returns every image filesystem, as measured now.
pub(crate) async fn filesystems(client: &CriClient) -> Result<Vec<Filesystem>> {
    let (paths, _) = client.filesystem_paths().await.context("cannot ask for the image filesystems")?;
    let mut devices = BTreeSet::new();
    let mut measured = Vec::new();
    for path in paths {
        let measurement = filesystem::measure(&path)?;
        // A device that reports different capacities is divided by quota, and counts as several.
        if devices.insert((measurement.device, measurement.filesystem.capacity_bytes)) {
            measured.push(measurement.filesystem);
        }
    }
    Ok(measured)
}

/// Returns the filesystems over their threshold.
pub(crate) fn assess_all(
    measured: &[Filesystem],
    config: &NodeConfig,
) -> Result<Vec<(Filesystem, Assessment)>> {
    measured.iter().map(|one| Ok((one.clone(), assess(one, config.thresholds)?))).collect()
}

/// Performs removals, and checks right before each which images are in use.
pub(crate) struct Remover<'a> {
    pub client: &'a CriClient,
    pub config: &'a NodeConfig,
    pub memory: &'a mut ImageMemory,
    pub pods: &'a mut Pods,
    pub stop: &'a Stop,
    pub progress: &'a Progress,
    pub metrics: &'a Metrics,
}

impl Remover<'_> {
    /// Removes a whole list of images (those that have been idle for too long).
    pub(crate) async fn remove_all(
        &mut self,
        list: Vec<Removal>,
        observation: &Observation,
        report: &mut ImageReport,
    ) -> Result<()> {
        let mut list = list.into_iter().peekable();
        while list.peek().is_some() && !self.stop.is_requested() {
            let batch = list.by_ref().take(MAX_BATCH).collect();
            self.remove_batch(batch, observation, report).await?;
        }
        Ok(())
    }

    /// Removes from a list until the goals are met, as measured.
    pub(crate) async fn remove_until(
        &mut self,
        mut list: Vec<Removal>,
        goals: Vec<Goal>,
        observation: &Observation,
        report: &mut ImageReport,
    ) -> Result<bool> {
        find_freed_space(self.client, self.memory, &mut list).await;
        let batches = Batches { first: FIRST_BATCH, most: MAX_BATCH };
        let mut run = SpaceRun::new(list, goals.clone(), batches);
        let mut patience = None;
        loop {
            let measured = filesystems(self.client).await?;
            if report.need.is_none() {
                report.need = SpaceNeed::of(&goals, &measured);
            }
            match run.next(&measured) {
                Step::Met => return Ok(true),
                Step::Remove(batch) if !self.stop.is_requested() => {
                    let done = self.remove_batch(batch, observation, report).await?;
                    let mut expected = 0_u64;
                    for (removal, outcome) in &done {
                        run.report(removal, *outcome);
                        if *outcome == RemovalOutcome::Yes {
                            expected = expected.saturating_add(removal.expected_freed_bytes);
                        }
                    }
                    let patience =
                        patience.get_or_insert_with(|| filesystem::settling_time(&measured, SETTLING));
                    self.settle(&measured, expected, patience).await?;
                }
                Step::Remove(_) => return Ok(false),
                Step::Exhausted => {
                    let short = measured
                        .into_iter()
                        .find(|f| goals.iter().any(|g| g.path == f.path && !g.is_met_by(f)));
                    report.shortage = short.map(|filesystem| (filesystem, run.freed_book_bytes()));
                    return Ok(false);
                }
            }
        }
    }

    /// Waits until a part of the space that a batch should have freed appears, as long as the run has patience left. Btrfs, ZFS and
    /// some snapshotters free space later; removing more meanwhile would remove too much.
    async fn settle(&self, before: &[Filesystem], expected: u64, patience: &mut Duration) -> Result<()> {
        let available = |list: &[Filesystem]| list.iter().map(|one| one.available_bytes).sum::<u64>();
        while *patience > Duration::ZERO && expected > 0 && !self.stop.is_requested() {
            let freed = available(&filesystems(self.client).await?).saturating_sub(available(before));
            if freed >= expected / SETTLED_PART {
                break;
            }
            tokio::time::sleep(SETTLING_PERIOD).await;
            *patience = patience.saturating_sub(SETTLING_PERIOD);
        }
        Ok(())
    }

    /// Removes the images that may still be removed, several at the same time. The images are read first, and their users last: no
    /// call comes between that list and the removals that it permits. When the list is too old, both are read again.
    async fn remove_batch(
        &mut self,
        batch: Vec<Removal>,
        observation: &Observation,
        report: &mut ImageReport,
    ) -> Result<Vec<(Removal, RemovalOutcome)>> {
        let mut waiting = VecDeque::from(batch);
        let mut done = Vec::new();
        while !waiting.is_empty() && !self.stop.is_requested() {
            let mut ended = Vec::new();
            let mut ready = self.read_images(std::mem::take(&mut waiting), &mut ended).await;
            if !ready.is_empty() && !ended.iter().any(|(_, _, outage)| *outage) {
                let listed_at = Instant::now();
                let fresh = self.look_again(observation).await?;
                if self.pods.names_unknown().is_some() {
                    // A pod may name any of them.
                    ready.retain(|(removal, _)| removal.reason == RemovalReason::Space);
                }
                ended.extend(self.remove_while_fresh(&mut ready, listed_at, &fresh, report).await);
            }
            waiting = ready.into_iter().map(|(removal, _)| removal).collect();
            let mut lost = None;
            for (removal, outcome, outage) in ended {
                if let (true, Outcome::Failed(why)) = (outage, &outcome) {
                    lost.get_or_insert_with(|| why.clone());
                }
                done.push((removal.clone(), self.record_outcome(&removal, &outcome, outage)));
                report.removals.push((removal, outcome));
            }
            if let Some(why) = lost {
                anyhow::bail!("the runtime went away during the pass: {why}");
            }
        }
        Ok(done)
    }

    /// Reads images as they are now, and reports those that are gone or cannot be read: one may have been pinned, or got a
    /// protected name, a moment ago.
    async fn read_images(
        &self,
        waiting: VecDeque<Removal>,
        ended: &mut Vec<(Removal, Outcome, bool)>,
    ) -> VecDeque<(Removal, Image)> {
        let (client, lost) = (self.client, &AtomicBool::new(false));
        let go_on = |_: &Removal| !self.stop.is_requested() && !lost.load(Ordering::Relaxed);
        let work = |removal: Removal| async move {
            match client.image(&removal.id).await {
                Ok(Some(image)) => Ok((removal, image)),
                Ok(None) => Err((removal, Outcome::Removed, false)),
                Err(error) => {
                    let failed = not_removed(client, removal, &error).await;
                    lost.fetch_or(failed.2, Ordering::Relaxed);
                    Err(failed)
                }
            }
        };
        let mut ready = VecDeque::new();
        let to_read = waiting.into_iter().take_while(go_on);
        for read in each(to_read, PARALLEL_STATUSES, work, || {}).await {
            match read {
                Ok(image) => ready.push_back(image),
                Err(failed) => ended.push(failed),
            }
        }
        ready
    }

    async fn look_again(&mut self, observation: &Observation) -> Result<Observation> {
        // A pod that was bound during the pass may name any image that is about to be removed.
        self.pods.refresh_in_pass().await;
        let sandboxes = self.client.sandboxes().await.context("cannot list sandboxes")?;
        let usage =
            look_at_use(self.client, self.memory, &observation.images, &sandboxes, &self.pods.named_images)
                .await?;
        if let Some(container) = usage.unreadable.first() {
            anyhow::bail!("container {container} does not name its image, so that any image may be in use");
        }
        let seen_at = self.memory.ages.now();
        self.memory.history.record_uses(&usage.in_use, seen_at);
        Ok(Observation { started: observation.started, images: Vec::new(), usage })
    }

    /// Begins removals until the list is too old, the runtime is lost or a stop is requested; finishes those in progress.
    async fn remove_while_fresh(
        &self,
        ready: &mut VecDeque<(Removal, Image)>,
        listed_at: Instant,
        fresh: &Observation,
        report: &ImageReport,
    ) -> Vec<(Removal, Outcome, bool)> {
        let still = snapshot(fresh, self.memory, self.config);
        let (client, ages, at_once) = (self.client, self.config.ages, self.config.parallel_removals);
        let lost = AtomicBool::new(false);
        let mut begun = 0;
        let next = std::iter::from_fn(|| {
            let is_fresh = begun < at_once || listed_at.elapsed() < MAX_STALENESS;
            begun += 1;
            let go_on = is_fresh && !self.stop.is_requested() && !lost.load(Ordering::Relaxed);
            go_on.then(|| ready.pop_front()).flatten()
        });
        let work = |(removal, image): (Removal, Image)| {
            let (still, lost) = (&still, &lost);
            async move {
                let ended = remove_one(client, &image, still, ages, fresh.started, removal).await;
                lost.fetch_or(ended.2, Ordering::Relaxed);
                ended
            }
        };
        let mut ended = report.removals.len();
        let show = || {
            ended += 1;
            self.progress.show("images", ended);
        };
        each(next, at_once, work, show).await
    }

    /// Records an outcome: an image whose removal failed is skipped for a while, unless the whole runtime failed.
    fn record_outcome(&mut self, removal: &Removal, outcome: &Outcome, outage: bool) -> RemovalOutcome {
        match outcome {
            Outcome::Removed => {
                self.memory.history.forget(&removal.id);
                self.memory.backoff.remove(&removal.id);
                let reason = match removal.reason {
                    RemovalReason::Age => ImageReason::age,
                    RemovalReason::Space => ImageReason::space,
                    RemovalReason::Unwanted => ImageReason::policy,
                };
                self.metrics.images_collected.get_or_create(&ImageLabel { reason }).inc();
                RemovalOutcome::Yes
            }
            Outcome::Kept(_) => RemovalOutcome::KeptAfterAll,
            Outcome::Failed(_) if outage => RemovalOutcome::Failed,
            Outcome::Failed(_) => {
                let wait =
                    self.memory.backoff.get(&removal.id).map_or(FIRST_BACKOFF, |(_, wait)| {
                        GoDuration(wait.0.saturating_mul(2)).min(MAX_BACKOFF)
                    });
                let until = UnixNanoseconds(self.memory.ages.now().0.saturating_add(wait.0));
                self.memory.backoff.insert(removal.id.clone(), (until, wait));
                RemovalOutcome::Failed
            }
        }
    }
}

/// Returns a failed removal, and whether the runtime is lost.
async fn not_removed(client: &CriClient, removal: Removal, error: &CriError) -> (Removal, Outcome, bool) {
    warn!(image = %removal.name, id = %removal.id, "not removed: {error}");
    (removal, Outcome::Failed(error.to_string()), is_lost(client, error).await)
}

/// Reports whether a failure means that the runtime is lost. A runtime may give no answer about one image, or answer that it is
/// unavailable, while it serves others: then it reports that it is ready.
pub(crate) async fn is_lost(client: &CriClient, error: &CriError) -> bool {
    if !error.is_outage() || error.is_connection_lost() {
        return error.is_outage();
    }
    !matches!(tokio::time::timeout(PROBE, client.is_ready()).await, Ok(Ok(true)))
}

/// Removes one image if it may still be removed, and logs it. Nothing is awaited before the call. Also returns whether the runtime
/// is lost.
async fn remove_one(
    client: &CriClient,
    image: &Image,
    still: &Snapshot<'_>,
    ages: AgePolicy,
    started: UnixNanoseconds,
    removal: Removal,
) -> (Removal, Outcome, bool) {
    if let Err(why) = keep_reason(image, still, ages, started) {
        debug!(image = %removal.name, id = %removal.id, ?why, "kept after all");
        return (removal, Outcome::Kept(why), false);
    }
    if removal.irreplaceable {
        info!(image = %removal.name, id = %removal.id, "removing an image that cannot be pulled again");
    }
    if let Err(error) = client.remove_image(&removal.id, &removal.runtime_handler).await {
        return not_removed(client, removal, &error).await;
    }
    info!(
        image = %removal.name,
        id = %removal.id,
        reason = ?removal.reason,
        idle = %removal.last_used.map_or(started.since(removal.first_seen), |used| started.since(used)),
        size_bytes = removal.size_bytes,
        "removed"
    );
    (removal, Outcome::Removed, false)
}
