//! The group storagemigration.k8s.io, served since 1.37.

mod storage_version_migration;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] =
    &[("v1", "storageversionmigrations", Rules::of::<storage_version_migration::StorageVersionMigration>())];
