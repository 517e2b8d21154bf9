//! The group apiregistration.k8s.io.

mod api_service;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[("v1", "apiservices", Rules::of::<api_service::ApiService>())];
