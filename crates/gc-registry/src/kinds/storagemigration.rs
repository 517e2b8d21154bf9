//! The group storagemigration.k8s.io, which 1.37 serves.

mod storage_version_migration;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] =
    &[("v1", "storageversionmigrations", Rules::of::<storage_version_migration::StorageVersionMigration>())];
