//! The group batch.

pub(crate) mod cron_job;
mod indexes;
pub(crate) mod job;
mod job_status;
mod policies;
