//! Passes below CRI, and the accounting of disk usage.

use std::path::Path;

use anyhow::{Context as _, Result};
use tracing::{info, warn};

use super::{Agent, aggregate};
use crate::below::{self, DiskAccount, OrphanRemoval};
use crate::clock::{Stop, now};
use crate::metrics::{CollectorLabel, KindLabel};

impl Agent {
    /// Accounts for the image disk by cause. Removes nothing.
    pub async fn disk_account(&mut self) -> Result<DiskAccount> {
        let minimum_age = self.config.below_cri_minimum_age;
        below::account(&self.client, &mut self.memory, &self.config.pod_logs_dir, minimum_age).await
    }

    /// Returns the checkpoint archives that a pass would remove.
    pub(super) fn checkpoints_to_remove(&self) -> Result<Vec<std::path::PathBuf>> {
        let policy = &self.config.checkpoints;
        if !policy.is_limited() {
            return Ok(Vec::new());
        }
        below::checkpoints_to_remove(&policy.directory, policy.maximum_age, policy.most, now())
    }

    /// Removes unused items below CRI, and checkpoint archives beyond their limits, as far as the configuration allows.
    pub(super) async fn below_pass(&mut self, stop: &Stop) -> Result<()> {
        if stop.is_requested() {
            return Ok(());
        }
        let mut failures = Vec::new();
        if self.config.below_cri {
            let minimum_age = self.config.below_cri_minimum_age;
            self.require_ready_runtime().await?;
            match below::remove_orphans(&self.client, &mut self.memory, minimum_age).await {
                Ok(done) => failures.extend(self.count_orphans(&done)),
                Err(error) => failures.push(format!("below CRI: {error:#}")),
            }
        }
        match self.checkpoints_to_remove() {
            Ok(archives) => {
                failures.extend(archives.iter().filter_map(|path| self.remove_checkpoint(path).err()));
            }
            Err(error) => failures.push(format!("{error:#}")),
        }
        aggregate(&failures).map_or(Ok(()), |failure| Err(anyhow::anyhow!(failure)))
    }

    /// Records removals, and returns the failures.
    fn count_orphans(&self, done: &[OrphanRemoval]) -> Vec<String> {
        self.journal.orphans(done);
        let mut failures = Vec::new();
        for one in done {
            if let Some(why) = &one.failure {
                failures.push(format!("{} {}: {why}", one.kind, one.name));
                self.metrics.failures.get_or_create(&CollectorLabel { collector: "images" }).inc();
                continue;
            }
            let kind = match one.kind {
                "Ingest" => "ingest",
                "Lease" => "lease",
                _ => "snapshot",
            };
            self.metrics.removed.get_or_create(&KindLabel { kind }).inc();
        }
        failures
    }

    fn remove_checkpoint(&self, path: &Path) -> Result<(), String> {
        let removed = std::fs::remove_file(path).context("cannot remove the archive of a checkpoint");
        let failure = removed.err().map(|error| format!("{}: {error:#}", path.display()));
        let done =
            OrphanRemoval { kind: "Checkpoint", name: path.display().to_string(), failure: failure.clone() };
        self.journal.orphans(&[done]);
        if let Some(failure) = failure {
            warn!("{failure}");
            return Err(failure);
        }
        info!(path = %path.display(), "removed the archive of a checkpoint");
        self.metrics.removed.get_or_create(&KindLabel { kind: "checkpoint" }).inc();
        Ok(())
    }
}
