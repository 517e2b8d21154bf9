//! The laws of configurations, files and orders, as bodies of fuzz targets (`fuzz/` at the root), which run as tests too.

pub use crate::node::fuzz::kubelet_configuration;
pub use crate::questions::fuzz::journal_lines;
pub use crate::run::fuzz::{controller_manager_configuration, lease_orders};

#[cfg(test)]
gc_fuzz_replay::replay_tests!(
    kubelet_configuration,
    controller_manager_configuration,
    journal_lines,
    lease_orders,
);
