//! The group apiregistration.k8s.io.

mod api_service;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[("v1", "apiservices", Rules::of::<api_service::ApiService>())];
