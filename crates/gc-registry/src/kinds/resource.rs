//! Devices, and claims for them.

mod device;
mod device_class;
mod device_taint_rule;
mod requests;
mod resource_claim;
mod resource_claim_template;
mod resource_slice;
mod status;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "deviceclasses", Rules::of::<device_class::DeviceClass>()),
    ("v1", "devicetaintrules", Rules::of::<device_taint_rule::DeviceTaintRule>()),
    ("v1", "resourceclaims", Rules::of::<resource_claim::ResourceClaim>()),
    ("v1", "resourceclaimtemplates", Rules::of::<resource_claim_template::ResourceClaimTemplate>()),
    ("v1", "resourceslices", Rules::of::<resource_slice::ResourceSlice>()),
];
