//! The configuration of the agent.

use std::path::PathBuf;

use gc_collectors::containers::plan::ContainerPolicy;
use gc_collectors::images::patterns::ImagePatterns;
use gc_collectors::images::plan::AgePolicy;
use gc_collectors::images::rules::ReferenceRules;
use gc_collectors::images::space::Thresholds;
use gc_collectors::pressure::Threshold;
use gc_types::GoDuration;

/// Images that are kept whatever the configuration: sandbox images that an old runtime does not pin.
pub const ALWAYS_PROTECTED_IMAGES: [&str; 4] = ["pause", "*/pause", "*/pause-amd64", "*/mirrored-pause"];

/// Validated settings of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Disk thresholds of images.
    pub thresholds: Thresholds,
    /// Ages of images.
    pub ages: AgePolicy,
    /// Limits of dead containers.
    pub containers: ContainerPolicy,
    /// Thresholds of disk pressure.
    pub eviction: Vec<Threshold>,
    /// Directory of pod logs.
    pub pod_logs_dir: PathBuf,
    /// Directory of links to container logs.
    pub container_log_links_dir: PathBuf,
    /// True if saved ages of images are ignored at the start.
    pub forget_ages: bool,
    /// True if images are collected periodically (off at high 100 with no maximum age, as upstream).
    pub image_loop: bool,
    /// Protected images.
    pub protection: ImagePatterns,
    /// Rules by reference: images to be removed last, and unwanted images.
    pub rules: ReferenceRules,
    /// Maximum number of images that are removed at once.
    pub parallel_removals: usize,
    /// True if unused items below CRI are removed.
    pub below_cri: bool,
    /// Minimum time since the last change of an item before it counts as left behind below CRI.
    pub below_cri_minimum_age: GoDuration,
    /// Limits of checkpoint archives.
    pub checkpoints: CheckpointPolicy,
}

/// Limits of the checkpoint archives that the kubelet writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// Directory of the archives.
    pub directory: PathBuf,
    /// Maximum age; `None` for no limit.
    pub maximum_age: Option<GoDuration>,
    /// Maximum number of archives of one container; `None` for no limit.
    pub most: Option<usize>,
}

impl CheckpointPolicy {
    /// Reports whether there is any limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.maximum_age.is_some() || self.most.is_some()
    }
}

#[cfg(test)]
impl NodeConfig {
    /// Returns the defaults of a kubelet without a configuration file, with no minimum age of images and two removals at once.
    pub(crate) fn of_tests() -> Self {
        Self {
            thresholds: Thresholds { high_percent: 85, low_percent: 80 },
            ages: AgePolicy { minimum_age: GoDuration::ZERO, maximum_age: None },
            containers: ContainerPolicy::default(),
            eviction: gc_collectors::pressure::parse(&gc_collectors::pressure::EvictionSettings::default())
                .expect("the defaults are valid"),
            pod_logs_dir: "/var/log/pods".into(),
            container_log_links_dir: "/var/log/containers".into(),
            forget_ages: false,
            image_loop: true,
            protection: ImagePatterns::new(ALWAYS_PROTECTED_IMAGES).expect("the patterns are valid"),
            rules: ReferenceRules::default(),
            parallel_removals: 2,
            below_cri: false,
            below_cri_minimum_age: GoDuration::from_seconds(24 * 3600),
            checkpoints: CheckpointPolicy::default(),
        }
    }
}
