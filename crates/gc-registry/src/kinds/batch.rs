//! The group batch.

mod cron_job;
mod indexes;
mod job;
mod job_status;
mod policies;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] =
    &[("v1", "cronjobs", Rules::of::<cron_job::CronJob>()), ("v1", "jobs", Rules::of::<job::Job>())];
