//! Replicas that wait for the Lease: with a complete graph, or without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use futures::future::BoxFuture;
use futures::{FutureExt as _, pin_mut};
use gc_kube::{MetadataCollector, Observers, StatusBoard, SyncState};
use gc_process::lease::election::Leadership;

use super::READINESS_PAUSE;
use super::metrics::SharedEngine;

/// State that a replica keeps while another one leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Standby {
    /// Nothing but the Lease: it lists everything once it leads
    Cold,
    /// The complete graph: it lists and watches everything, and acts at once when it leads
    Warm,
}

/// Readiness of this replica.
#[derive(Clone, Debug)]
pub(super) struct Readiness {
    /// True if the replica does all that it has to at present: a cold standby has only to wait.
    pub(super) ready: Arc<AtomicBool>,
    /// True once the graph is complete.
    pub(super) complete: Arc<AtomicBool>,
}

impl Readiness {
    /// Creates the readiness of a replica that has no graph yet, and is ready nevertheless if it has none to wait for.
    pub(super) fn new(is_ready: bool) -> Self {
        Self { ready: Arc::new(AtomicBool::new(is_ready)), complete: Arc::default() }
    }

    /// Reports readiness once every resource is either listed or known to be unavailable.
    async fn follow(self, board: StatusBoard) {
        self.ready.store(false, Ordering::Release);
        loop {
            let states = board.all();
            if !states.is_empty() && states.values().all(|status| status.state != SyncState::Listing) {
                self.complete.store(true, Ordering::Release);
                self.ready.store(true, Ordering::Release);
                tracing::info!(resources = states.len(), "the graph is complete");
                return;
            }
            tokio::time::sleep(READINESS_PAUSE).await;
        }
    }
}

/// Returns a future that is ready when this replica may list and watch: at once, or with the Lease if it stands by cold.
pub(super) fn beginning(waits_cold: bool, leadership: &Leadership) -> BoxFuture<'static, ()> {
    let leadership = leadership.clone();
    async move {
        if waits_cold {
            leadership.acquired().await;
        }
    }
    .boxed()
}

/// The owner-reference collector with its graph.
pub(super) struct GraphCollector {
    pub(super) collector: MetadataCollector,
    pub(super) engine: SharedEngine,
    pub(super) observers: Observers,
    pub(super) readiness: Readiness,
}

impl GraphCollector {
    /// Waits for the beginning, and runs until `shutdown` is ready.
    pub(super) async fn run(
        self,
        beginning: BoxFuture<'static, ()>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let Self { collector, engine, observers, readiness } = self;
        pin_mut!(shutdown);
        tokio::select! {
            () = beginning => {}
            () = &mut shutdown => return,
        }
        let following = readiness.follow(collector.board()).then(|()| std::future::pending());
        tokio::select! {
            _ = collector.run(engine, Arc::new(observers), shutdown) => {}
            () = following => {}
        }
    }
}
