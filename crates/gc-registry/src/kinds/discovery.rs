//! The group discovery.k8s.io.

mod endpoint_slice;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] =
    &[("v1", "endpointslices", Rules::of::<endpoint_slice::EndpointSlice>())];
