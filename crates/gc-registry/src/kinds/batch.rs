//! The group batch.

mod cron_job;
mod indexes;
mod job;
mod job_status;
mod policies;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] =
    &[("v1", "cronjobs", Rules::of::<cron_job::CronJob>()), ("v1", "jobs", Rules::of::<job::Job>())];
