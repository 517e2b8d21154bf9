//! One pass over the images: observe, plan, remove, measure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use gc_cri::CriClient;
use gc_retention::containers::{ContainerId, Sandbox};
use gc_retention::images::history::ImageHistory;
use gc_retention::images::plan::{AgePolicy, ImagePlan, KeepReason, Removal, Snapshot, keep_reason, plan};
use gc_retention::images::protection::ProtectionList;
use gc_retention::images::space::{Assessment, Filesystem, Goal, Removed, SpaceRun, Step, assess};
use gc_retention::images::usage::{ContainerImages, ImageIndex, Usage, usage};
use gc_retention::images::{Image, ImageId};
use gc_types::{GoDuration, UnixNanoseconds};
use tracing::{debug, warn};

use super::clock::{Stop, now};
use super::config::NodeConfig;
use super::filesystem;
use super::output::Progress;

/// Statuses asked for at once.
const PARALLEL_STATUSES: usize = 16;
/// Images removed between two looks at what is in use.
const RECHECK_EVERY: usize = 32;
/// First wait before an image whose removal failed is tried again; doubles up to [`MAX_BACKOFF`].
const FIRST_BACKOFF: GoDuration = GoDuration::from_seconds(300);
/// Longest wait.
const MAX_BACKOFF: GoDuration = GoDuration::from_seconds(6 * 3600);

/// Everything that one observation found.
#[derive(Debug)]
pub(super) struct Observation {
    /// When it began.
    pub started: UnixNanoseconds,
    /// The images, with their layers.
    pub images: Vec<Image>,
    /// What is in use.
    pub usage: Usage,
}

/// What is kept from pass to pass. Each map is bounded by what the runtime lists.
#[derive(Debug, Default)]
pub(super) struct ImageMemory {
    /// Ages.
    pub history: ImageHistory,
    /// Image volumes of a container never change.
    volumes: BTreeMap<ContainerId, Vec<Arc<str>>>,
    /// Layers of an image never change.
    layers: BTreeMap<ImageId, Vec<Arc<str>>>,
    /// Images whose removal failed: until when they are left alone, and after which wait.
    backoff: BTreeMap<ImageId, (UnixNanoseconds, GoDuration)>,
}

/// What became of one planned removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Gone.
    Removed,
    /// It had to stay after all.
    Kept(KeepReason),
    /// The runtime failed.
    Failed(String),
}

/// What a pass did.
#[derive(Debug, Default)]
pub(super) struct ImageReport {
    /// What went or should have gone, in order.
    pub removals: Vec<(Removal, Outcome)>,
    /// Bytes that became available on the image filesystems, as measured.
    pub freed_bytes: u64,
    /// A goal that was not reached: the filesystem, and the book size of what was removed.
    pub shortage: Option<(Filesystem, u64)>,
}

/// Sees which images there are and which are in use. Lists images before containers: an image that comes into use
/// between the two is seen as used.
pub(super) async fn observe(
    client: &CriClient,
    memory: &mut ImageMemory,
    named_by_pods: &[Arc<str>],
) -> Result<Observation> {
    let started = now();
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
    memory.history.observe(&images, &usage.in_use, started, now());
    Ok(Observation { started, images, usage })
}

async fn look_at_use(
    client: &CriClient,
    memory: &mut ImageMemory,
    images: &[Image],
    sandboxes: &[Sandbox],
    named_by_pods: &[Arc<str>],
) -> Result<Usage> {
    let listed = client.containers(sandboxes).await.context("cannot list containers")?;
    let unknown =
        listed.iter().map(|c| &c.container.id).filter(|id| !memory.volumes.contains_key(*id)).cloned();
    let found: Vec<(ContainerId, Vec<Arc<str>>)> = stream::iter(unknown.collect::<Vec<_>>())
        .map(|id| async move {
            let details = client.container_details(&id).await?;
            // A container that is gone by now uses nothing.
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
    Ok(usage(&ImageIndex::new(images), &containers, named_by_pods))
}

/// Layers only sharpen what a removal is expected to free, so a runtime that does not tell them is no trouble.
async fn fill_in_layers(client: &CriClient, memory: &mut ImageMemory, images: &mut [Image]) {
    let unknown = images.iter().map(|image| &image.id).filter(|id| !memory.layers.contains_key(*id)).cloned();
    let found: Vec<(ImageId, Vec<Arc<str>>)> = stream::iter(unknown.collect::<Vec<_>>())
        .map(|id| async move {
            let layers = client.image_layers(&id).await.unwrap_or_else(|error| {
                debug!(%id, "layers unknown: {error}");
                Vec::new()
            });
            (id, layers)
        })
        .buffer_unordered(PARALLEL_STATUSES)
        .collect()
        .await;
    memory.layers.extend(found);
    let present: BTreeSet<&ImageId> = images.iter().map(|image| &image.id).collect();
    memory.layers.retain(|id, _| present.contains(id));
    for image in images {
        image.layers = memory.layers.get(&image.id).cloned().unwrap_or_default();
    }
}

/// What would go by this observation.
pub(super) fn plan_pass(
    observation: &Observation,
    memory: &ImageMemory,
    config: &NodeConfig,
) -> Result<ImagePlan> {
    let mut plan = plan(snapshot(observation, memory, &config.protection), config.ages, observation.started)?;
    let waiting = |removal: &Removal| {
        memory.backoff.get(&removal.id).is_some_and(|(until, _)| *until > observation.started)
    };
    plan.by_age.retain(|removal| !waiting(removal));
    plan.by_space.retain(|removal| !waiting(removal));
    Ok(plan)
}

fn snapshot<'a>(
    observation: &'a Observation,
    memory: &'a ImageMemory,
    protection: &'a ProtectionList,
) -> Snapshot<'a> {
    Snapshot { images: &observation.images, history: &memory.history, usage: &observation.usage, protection }
}

/// Every image filesystem, as measured now.
pub(super) async fn filesystems(client: &CriClient) -> Result<Vec<Filesystem>> {
    let (paths, _) = client.filesystem_paths().await.context("cannot ask for the image filesystems")?;
    let mut devices = BTreeSet::new();
    let mut measured = Vec::new();
    for path in paths {
        let measurement = filesystem::measure(&path)?;
        if devices.insert(measurement.device) {
            measured.push(measurement.filesystem);
        }
    }
    Ok(measured)
}

/// Which filesystems are over their threshold.
pub(super) fn assess_all(
    measured: &[Filesystem],
    config: &NodeConfig,
) -> Result<Vec<(Filesystem, Assessment)>> {
    measured.iter().map(|one| Ok((one.clone(), assess(one, config.thresholds)?))).collect()
}

/// Carries out removals. Everything that it needs to look again right before each.
pub(super) struct Remover<'a> {
    pub client: &'a CriClient,
    pub config: &'a NodeConfig,
    pub memory: &'a mut ImageMemory,
    pub named_by_pods: &'a [Arc<str>],
    pub stop: &'a Stop,
    pub progress: &'a Progress,
}

impl Remover<'_> {
    /// Removes all of a list (those that are too long idle).
    pub(super) async fn remove_all(
        &mut self,
        list: Vec<Removal>,
        observation: &Observation,
        report: &mut ImageReport,
    ) -> Result<()> {
        let mut list = list.into_iter().peekable();
        while list.peek().is_some() && !self.stop.is_requested() {
            let batch = list.by_ref().take(RECHECK_EVERY).collect();
            self.remove_batch(batch, observation, report).await?;
        }
        Ok(())
    }

    /// Removes from a list until the goals are met, as measured.
    pub(super) async fn remove_until(
        &mut self,
        list: Vec<Removal>,
        goals: Vec<Goal>,
        observation: &Observation,
        report: &mut ImageReport,
    ) -> Result<bool> {
        let mut run = SpaceRun::new(list, goals.clone(), RECHECK_EVERY);
        loop {
            let measured = filesystems(self.client).await?;
            match run.next(&measured) {
                Step::Met => return Ok(true),
                Step::Remove(batch) if !self.stop.is_requested() => {
                    let done = self.remove_batch(batch, observation, report).await?;
                    for (removal, outcome) in &done {
                        run.report(removal, *outcome);
                    }
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

    /// Looks again at what is in use, then removes what still may go, several at a time.
    async fn remove_batch(
        &mut self,
        batch: Vec<Removal>,
        observation: &Observation,
        report: &mut ImageReport,
    ) -> Result<Vec<(Removal, Removed)>> {
        let sandboxes = self.client.sandboxes().await.context("cannot list sandboxes")?;
        let usage =
            look_at_use(self.client, self.memory, &observation.images, &sandboxes, self.named_by_pods)
                .await?;
        let fresh = Observation { started: observation.started, images: Vec::new(), usage };
        if let Some(container) = fresh.usage.unreadable.first() {
            anyhow::bail!("container {container} does not name its image, so that any image may be in use");
        }
        self.memory.history.note_uses(&fresh.usage.in_use, now());
        let by_id: BTreeMap<&ImageId, &Image> =
            observation.images.iter().map(|image| (&image.id, image)).collect();
        let (client, stop) = (self.client, self.stop);
        let (ages, protection) = (self.config.ages, &self.config.protection);
        let still = snapshot(&fresh, self.memory, protection);
        let outcomes: Vec<(Removal, Outcome, bool)> = stream::iter(batch)
            .map(|removal| {
                let image = by_id.get(&removal.id).copied();
                async move {
                    let (outcome, outage) =
                        remove_one(client, image, &still, ages, fresh.started, &removal).await;
                    (removal, outcome, outage)
                }
            })
            .take_while(|_| std::future::ready(!stop.is_requested()))
            .buffered(self.config.parallel_removals)
            .collect()
            .await;
        let mut done = Vec::new();
        let mut lost = None;
        for (removal, outcome, outage) in outcomes {
            done.push((removal.clone(), self.note(&removal, &outcome, outage)));
            if let (true, Outcome::Failed(why)) = (outage, &outcome) {
                lost.get_or_insert_with(|| why.clone());
            }
            report.removals.push((removal, outcome));
        }
        self.progress.show("images", report.removals.len());
        match lost {
            Some(why) => anyhow::bail!("the runtime went away during the pass: {why}"),
            None => Ok(done),
        }
    }

    /// An image is left alone for a while if its removal failed, but not if the whole runtime did.
    fn note(&mut self, removal: &Removal, outcome: &Outcome, outage: bool) -> Removed {
        match outcome {
            Outcome::Removed => {
                self.memory.history.forget(&removal.id);
                self.memory.backoff.remove(&removal.id);
                Removed::Yes
            }
            Outcome::Kept(_) => Removed::KeptAfterAll,
            Outcome::Failed(_) if outage => Removed::Failed,
            Outcome::Failed(_) => {
                let wait =
                    self.memory.backoff.get(&removal.id).map_or(FIRST_BACKOFF, |(_, wait)| {
                        GoDuration(wait.0.saturating_mul(2)).min(MAX_BACKOFF)
                    });
                let until = UnixNanoseconds(now().0.saturating_add(wait.0));
                self.memory.backoff.insert(removal.id.clone(), (until, wait));
                Removed::Failed
            }
        }
    }
}

async fn remove_one(
    client: &CriClient,
    image: Option<&Image>,
    still: &Snapshot<'_>,
    ages: AgePolicy,
    started: UnixNanoseconds,
    removal: &Removal,
) -> (Outcome, bool) {
    let Some(image) = image else { return (Outcome::Kept(KeepReason::Unknown), false) };
    if let Err(reason) = keep_reason(image, still, ages, started) {
        return (Outcome::Kept(reason), false);
    }
    // The pin is the runtime's, and may have been set a moment ago.
    match client.is_pinned(&removal.id).await {
        Ok(None) => return (Outcome::Removed, false),
        Ok(Some(true)) => return (Outcome::Kept(KeepReason::Pinned), false),
        Ok(Some(false)) => {}
        Err(error) => return (Outcome::Failed(error.to_string()), error.is_outage()),
    }
    match client.remove_image(&removal.id, &removal.runtime_handler).await {
        Ok(()) => (Outcome::Removed, false),
        Err(error) => (Outcome::Failed(error.to_string()), error.is_outage()),
    }
}
