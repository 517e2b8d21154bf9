//! The report of an agent to its cluster.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gc_collectors::images::Image;
use gc_collectors::node_report::{DiskState, DueImage, LastPass, NodeState};
use gc_types::Timestamp;
use tracing::debug;

use super::{Agent, Collect};
use crate::clock::now;
use crate::{below, images};

/// Time between two measurements of unexplained bytes, which read every record of containerd and every file of the logs.
const UNEXPLAINED_EVERY: Duration = Duration::from_hours(1);

/// Facts for reports that outlast a pass.
#[derive(Debug, Default)]
pub(super) struct ReportedState {
    passes: BTreeMap<Collect, LastPass>,
    /// Time of the last measurement of unexplained bytes, and its result.
    unexplained: Option<(Instant, Option<u64>)>,
}

impl ReportedState {
    /// Records the end of a pass.
    pub(super) fn ended(&mut self, collector: Collect, succeeded: bool) {
        let pass = LastPass { collector: collector.name().into(), at: wall_time().0, failed: !succeeded };
        self.passes.insert(collector, pass);
    }
}

fn wall_time() -> Timestamp {
    Timestamp(now().0 / 1_000_000)
}

impl Agent {
    /// Reports the removals since the start, the images that are due, and the state of this node.
    pub(super) async fn report(&mut self) {
        if self.reporter.is_none() {
            return;
        }
        let state = self.node_state().await;
        let Some(reporter) = &mut self.reporter else { return };
        let wall = wall_time();
        let (aged, maximum) = (self.memory.ages.now(), self.config.ages.maximum_age);
        let due = self.aging.iter().filter_map(|(id, name)| {
            // An image without a history is gone.
            let idle = self.memory.history.get(id)?.idle(aged);
            let left = maximum?.0.saturating_sub(idle.0) / 1_000_000;
            Some(DueImage { at: wall.after(left).0, name: (**name).to_owned() })
        });
        reporter.report(wall, self.tally, due.collect(), state).await;
    }

    /// Measures the state of this node for a report. Values that the runtime does not report are omitted.
    async fn node_state(&mut self) -> NodeState {
        let disks = images::filesystems(&self.client).await.unwrap_or_else(|error| {
            debug!("the disks of images are not reported: {error:#}");
            Vec::new()
        });
        let disks = disks.iter().map(|disk| DiskState {
            path: (*disk.path).to_owned(),
            capacity_bytes: disk.capacity_bytes,
            used_bytes: disk.capacity_bytes.saturating_sub(disk.available_bytes),
        });
        let listed = self.client.images().await.ok().map(|listed| listed.images);
        let bytes = |image: &Image| image.size_bytes;
        NodeState {
            disks: disks.collect(),
            images: listed.as_ref().map(|images| images.len() as u64),
            image_bytes: listed.map(|images| images.iter().map(bytes).fold(0, u64::saturating_add)),
            unexplained_bytes: self.unexplained_bytes().await,
            passes: self.reported.passes.values().cloned().collect(),
            policies: self.results.reported(),
        }
    }

    /// Returns the used bytes that have no explanation, as measured within the last hour.
    async fn unexplained_bytes(&mut self) -> Option<u64> {
        if let Some((at, measured)) = self.reported.unexplained
            && at.elapsed() < UNEXPLAINED_EVERY
        {
            return measured;
        }
        let logs = &self.config.pod_logs_dir;
        let measured = below::unexplained_bytes(&self.client, &mut self.memory, logs).await;
        let measured = measured.inspect_err(|error| debug!("unexplained bytes are not reported: {error:#}"));
        let measured = measured.ok();
        self.reported.unexplained = Some((Instant::now(), measured));
        measured
    }
}
