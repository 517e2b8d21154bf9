//! Devices, and claims to them.

mod device;
pub(crate) mod device_class;
mod requests;
pub(crate) mod resource_claim;
pub(crate) mod resource_claim_template;
pub(crate) mod resource_slice;
mod status;
