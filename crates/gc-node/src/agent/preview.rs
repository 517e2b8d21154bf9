//! Previews of an agent: queries that change nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use gc_collectors::ages::WallDates;
use gc_collectors::containers::plan::ContainerPlan;
use gc_collectors::containers::sandboxes::SandboxRemoval;
use gc_collectors::images::Image;
use gc_collectors::images::forecast::Uncertainty;
use gc_collectors::images::history::ImageHistory;
use gc_collectors::images::plan::{AgePolicy, ImagePlan, KeepReason, Removal};
use gc_collectors::images::space::{Filesystem, Goal, SpaceNeed, Thresholds};
use gc_collectors::pressure::{self, Pressure, PressureMemory, Reclaim};
use gc_cri::ListedContainer;
use gc_types::{GoDuration, UnixNanoseconds};

use super::policies::forecast_pass;
use super::{Agent, Collect};
use crate::below::DiskAccount;
use crate::clock::Stop;
use crate::images::Observation;
use crate::{containers, filesystem, images, state};

/// Returns the reason why an image is kept, as text.
#[must_use]
pub fn keep_message(reason: &KeepReason) -> String {
    match reason {
        KeepReason::InUse => "in use".into(),
        KeepReason::Pinned => "pinned by the runtime".into(),
        KeepReason::Protected(pattern) => format!("protected by {pattern}"),
        KeepReason::LastCopy => "no other node has a copy".into(),
        KeepReason::TooYoung => "younger than the minimum age".into(),
        KeepReason::UsedDuringPass => "used a moment ago".into(),
        KeepReason::Unknown => "not observed completely yet".into(),
    }
}

/// All images, and the plan of a pass for each.
#[derive(Debug)]
pub struct ImageView {
    /// Images of the runtime.
    pub images: Vec<Image>,
    /// Times at which each was first seen and last used.
    pub history: ImageHistory,
    /// Plan for the images.
    pub plan: ImagePlan,
    /// True if no agent has saved ages here yet, so every image counts as old enough.
    pub first_contact: bool,
    /// Time from which ages are counted.
    pub now: UnixNanoseconds,
}

/// All containers and sandboxes, and the plan of a pass for each.
#[derive(Debug)]
pub struct ContainerView {
    /// Containers and sandboxes of the runtime.
    pub listed: Vec<ListedContainer>,
    /// Plan for the containers.
    pub plan: ContainerPlan,
    /// Sandboxes that would be removed.
    pub sandboxes: Vec<SandboxRemoval>,
    /// Message about the items that are kept while the existing pods are unknown.
    pub reservations: Option<String>,
    /// Converter for the dates of the listed objects.
    dates: WallDates,
}

impl ContainerView {
    /// Returns the age of a container.
    #[must_use]
    pub fn age(&self, listed: &ListedContainer) -> GoDuration {
        self.dates.now().since(self.dates.read(listed.container.created_at))
    }
}

/// Result of a dry run.
#[derive(Debug, Default)]
pub struct Preview {
    /// Images, if they are collected.
    pub images: Option<ImagePreview>,
    /// Containers and everything that belongs to them, if they are collected.
    pub leftovers: Option<LeftoverPreview>,
    /// Usage of the image disk by cause, if items below CRI are collected.
    pub disk: Option<DiskAccount>,
    /// Checkpoint archives that would be removed.
    pub checkpoints: Vec<PathBuf>,
}

/// Usage of an image filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// Mount point of the filesystem.
    pub path: Arc<str>,
    /// Percentage of used bytes.
    pub usage_percent: u8,
    /// Percentage of used inodes.
    pub inodes_usage_percent: u8,
    /// Usage at which collection begins and ends.
    pub thresholds: Thresholds,
    /// Missing bytes and inodes, if the usage is over its threshold.
    pub need: Option<SpaceNeed>,
}

/// Images that would be removed.
#[derive(Debug)]
pub struct ImagePreview {
    /// Removals in order.
    pub removals: Vec<Removal>,
    /// Minimum number of removals that would be made, counted from the first.
    pub fewest: usize,
    /// Reason why some of them may not be made; `None` if all are certain.
    pub uncertainty: Option<Uncertainty>,
    /// Usage of the image filesystems.
    pub disks: Vec<DiskUse>,
    /// Eviction signals that fire, each with the missing space.
    pub pressure: Vec<(pressure::Signal, Option<SpaceNeed>)>,
    /// True if no agent has saved ages here yet, so every image counts as old enough.
    pub first_contact: bool,
    /// Time from which ages are counted.
    pub now: UnixNanoseconds,
}

/// Containers, sandboxes, log directories and links that would be removed.
#[derive(Debug)]
pub struct LeftoverPreview {
    /// Containers, and the plan for them.
    pub containers: ContainerView,
    /// Log directories.
    pub log_directories: Vec<PathBuf>,
    /// Number of bytes that the log directories occupy.
    pub log_directory_bytes: u64,
    /// Dead links.
    pub links: Vec<PathBuf>,
}

impl Agent {
    /// Returns every image with the ages that a running agent saved, read without its lock.
    pub async fn image_view(mut self, state_dir: &Path) -> Result<ImageView> {
        let (observation, plan, first_contact) = self.look_at_images(state_dir).await?;
        let Observation { started, images, .. } = observation;
        Ok(ImageView { images, history: self.memory.history, plan, first_contact, now: started })
    }

    /// Returns every container with the pod state that a running agent saved, read without its lock.
    pub async fn container_view(mut self, state_dir: &Path) -> Result<ContainerView> {
        let observation = self.look_at_containers(state_dir).await?;
        Ok(self.view_containers(observation))
    }

    /// Previews one pass of each collector.
    pub async fn preview(mut self, state_dir: &Path, collect: &[Collect]) -> Result<Preview> {
        let mut found = Preview::default();
        if collect.contains(&Collect::Containers) {
            let observation = self.look_at_containers(state_dir).await?;
            let (_nobody_asks, stop) = Stop::new();
            let collector = self.collector(&stop);
            let log_directories = collector.directories_to_remove(&observation)?;
            let links = collector.links_to_remove().await?;
            let containers = self.view_containers(observation);
            // A pass removes containers first, which frees their images for removal.
            let removals = containers.plan.removals.iter();
            let leaving = removals.filter_map(|one| containers.listed.get(one.place));
            self.memory.leaving = leaving.map(|one| one.container.id.clone()).collect();
            let log_directory_bytes = filesystem::disk_usage(&log_directories);
            found.leftovers =
                Some(LeftoverPreview { containers, log_directories, log_directory_bytes, links });
        }
        if collect.contains(&Collect::Images) {
            found.images = Some(self.image_preview(state_dir).await?);
            found.checkpoints = self.checkpoints_to_remove()?;
            if self.config.below_cri {
                found.disk = Some(self.disk_account().await?);
            }
        }
        Ok(found)
    }

    /// Reads, for queries, the ages that a running agent saved, without its lock; also returns whether there are none yet.
    async fn look_at_images(&mut self, state_dir: &Path) -> Result<(Observation, ImagePlan, bool)> {
        self.memory.history = state::peek_all(state_dir, &self.memory.ages)?.0;
        let first_contact = self.memory.history.is_empty();
        if first_contact {
            // Otherwise every image would count as new, and nothing would show what a daemon removes two minutes later.
            self.config.ages = AgePolicy { minimum_age: GoDuration::ZERO, maximum_age: None };
        }
        if !first_contact {
            self.apply_policies().await;
        }
        self.refresh_pods().await;
        self.memory.needs = self.pods.needs().await;
        let observation = images::observe(&self.client, &mut self.memory, &self.pods.named_images).await?;
        let (observation, plan) = self.plan_beside_peers(observation, false).await?;
        Ok((observation, plan, first_contact))
    }

    /// Reads, for queries, also the rest of the state that a running agent saved.
    async fn look_at_containers(&mut self, state_dir: &Path) -> Result<containers::Observation> {
        let (_, unknown) = state::peek_all(state_dir, &self.memory.ages)?;
        self.pods.restore(unknown);
        self.observe_containers().await
    }

    /// Returns the plan for an observation.
    fn view_containers(&self, observation: containers::Observation) -> ContainerView {
        let plan = observation.plan(&self.pods.view, &self.config, false);
        let sandboxes = observation.plan_sandboxes(&self.pods.view, false, &plan.removals);
        let reservations = self.pods.reservations(observation.at());
        let containers::Observation { dates, containers: listed, .. } = observation;
        ContainerView { listed, plan, sandboxes, reservations, dates }
    }

    /// Returns the plan of a pass, with the number of images that the pass would remove.
    async fn image_preview(&mut self, state_dir: &Path) -> Result<ImagePreview> {
        let (observation, plan, first_contact) = self.look_at_images(state_dir).await?;
        let measured = images::filesystems(&self.client).await?;
        let mut disks = Vec::new();
        for (filesystem, found) in images::assess_all(&measured, &self.config)? {
            let goal = found.goal.filter(|_| self.config.image_loop);
            disks.push(DiskUse {
                path: filesystem.path.clone(),
                usage_percent: found.usage_percent,
                inodes_usage_percent: found.inodes_usage_percent,
                thresholds: self.config.thresholds,
                need: goal.and_then(|goal| SpaceNeed::of(&[goal], &measured)),
            });
        }
        let fired = self.pressure_on_images(&measured).await?;
        let with = (&self.client, &mut self.memory, &self.config);
        let (removals, found) = forecast_pass(with, &observation, plan, &measured, &fired).await?;
        let pressure = fired
            .iter()
            .map(|(signal, goal)| (*signal, SpaceNeed::of(std::slice::from_ref(goal), &measured)));
        Ok(ImagePreview {
            removals,
            fewest: found.fewest,
            uncertainty: found.uncertainty,
            disks,
            pressure: pressure.collect(),
            first_contact,
            now: observation.started,
        })
    }

    /// Returns the eviction signals that fire now and remove images, each with its goal on an image filesystem. Soft thresholds
    /// need time to fire, which a single observation does not have.
    async fn pressure_on_images(&self, measured: &[Filesystem]) -> Result<Vec<(pressure::Signal, Goal)>> {
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
        Ok(on_images
            .map(|Pressure { signal, goal, .. }| (signal, super::on_images(goal, measured)))
            .collect())
    }
}
