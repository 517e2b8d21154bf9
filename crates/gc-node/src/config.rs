//! The configuration of the agent.

use std::path::PathBuf;

use gc_collectors::containers::plan::ContainerPolicy;
use gc_collectors::images::plan::AgePolicy;
use gc_collectors::images::protection::ProtectionList;
use gc_collectors::images::space::Thresholds;
use gc_collectors::pressure::Threshold;

/// Images that are kept whatever the configuration says: a sandbox image that an old runtime does not pin.
pub const ALWAYS_PROTECTED_IMAGES: [&str; 4] = ["pause", "*/pause", "*/pause-amd64", "*/mirrored-pause"];

/// The validated settings of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Disk thresholds of images.
    pub thresholds: Thresholds,
    /// Ages of images.
    pub ages: AgePolicy,
    /// Limits of dead containers.
    pub containers: ContainerPolicy,
    /// Disk pressure.
    pub eviction: Vec<Threshold>,
    /// Where pod logs are.
    pub pod_logs_dir: PathBuf,
    /// Where container logs are linked.
    pub container_log_links_dir: PathBuf,
    /// True if saved ages of images are ignored at the start.
    pub forget_ages: bool,
    /// True if images are collected periodically (off at high 100 with no maximum age, as upstream).
    pub image_loop: bool,
    /// Protected images.
    pub protection: ProtectionList,
    /// Maximum number of images to remove at once.
    pub parallel_removals: usize,
}

#[cfg(test)]
impl NodeConfig {
    /// The defaults of a kubelet without a configuration file, with no minimum age of images, and two removals at
    /// once.
    pub(crate) fn of_tests() -> Self {
        Self {
            thresholds: Thresholds { high_percent: 85, low_percent: 80 },
            ages: AgePolicy { minimum_age: gc_types::GoDuration::ZERO, maximum_age: None },
            containers: ContainerPolicy::default(),
            eviction: gc_collectors::pressure::parse(&gc_collectors::pressure::EvictionSettings::default())
                .expect("the defaults are valid"),
            pod_logs_dir: "/var/log/pods".into(),
            container_log_links_dir: "/var/log/containers".into(),
            forget_ages: false,
            image_loop: true,
            protection: ProtectionList::new(ALWAYS_PROTECTED_IMAGES).expect("the patterns are valid"),
            parallel_removals: 2,
        }
    }
}
