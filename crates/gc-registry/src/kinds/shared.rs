//! Rules shared by several kinds, in upstream's wording.

pub(crate) mod claims;
pub(crate) mod conditions;
pub(crate) mod containers;
pub(crate) mod diff;
pub(crate) mod disabled;
pub(crate) mod downward;
pub(crate) mod labels;
pub(crate) mod names;
pub(crate) mod pod_defaults;
pub(crate) mod pod_spec;
pub(crate) mod resources;
pub(crate) mod scheduling;
pub(crate) mod security;
pub(crate) mod selector_text;
pub(crate) mod signers;
pub(crate) mod volume_cells;
pub(crate) mod volumes;
pub(crate) mod warnings;
pub(crate) mod workloads;
