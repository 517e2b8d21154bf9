//! The group discovery.k8s.io.

mod endpoint_slice;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[("v1", "endpointslices", Rules::of::<endpoint_slice::EndpointSlice>())];
