//! Properties of configurations, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests.

pub use crate::commands::node::fuzz::kubelet_configuration;
pub use crate::commands::run::fuzz::controller_manager_configuration;

#[cfg(test)]
gc_fuzz_replay::replay_tests!(kubelet_configuration, controller_manager_configuration,);
