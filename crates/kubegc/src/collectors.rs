//! The collectors of a cluster, wired: the ownership engine over gc-kube, and the namespace controller.

use std::sync::Arc;

use gc_kube::{ApiClient, Collector, CollectorOptions, Observer};
use gc_types::{Effect, Event, Outcome, Timestamp};

use crate::namespaces::{NamespaceController, NamespaceFeed};

/// The ownership engine as gc-kube drives it.
pub(crate) struct OwnershipEngine(pub(crate) gc_ownership::Engine);

impl gc_kube::Engine for OwnershipEngine {
    fn handle(&mut self, event: Event) {
        self.0.handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.0.poll_effect()
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.0.next_wakeup()
    }
}

/// Several observers as one.
struct Observers(Vec<Arc<dyn Observer>>);

impl Observer for Observers {
    fn told(&self, event: &Event) {
        for observer in &self.0 {
            observer.told(event);
        }
    }

    fn decided(&self, effect: &Effect) {
        for observer in &self.0 {
            observer.decided(effect);
        }
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: std::time::Duration) {
        for observer in &self.0 {
            observer.finished(effect, outcome, round_trips, took);
        }
    }
}

/// One line per decision at debug, one per failure at warn.
struct LogObserver;

impl Observer for LogObserver {
    fn decided(&self, effect: &Effect) {
        tracing::debug!(effect = effect.id.0, request = ?effect.request, reason = %effect.reason, "decided");
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, took: std::time::Duration) {
        match outcome {
            Outcome::Refused { .. } | Outcome::Failed { .. } => {
                tracing::warn!(effect = effect.id.0, request = ?effect.request, ?outcome, "not done");
            }
            _ => tracing::debug!(effect = effect.id.0, ?outcome, ?took, "done"),
        }
    }
}

/// Collectors at work on one cluster.
pub(crate) struct RunningCollectors {
    stop: tokio::sync::watch::Sender<bool>,
    ownership: tokio::task::JoinHandle<OwnershipEngine>,
    namespaces: tokio::task::JoinHandle<()>,
}

impl RunningCollectors {
    /// Starts them. `settle` is how long a terminating namespace is left alone first.
    pub(crate) fn start(
        client: ApiClient,
        options: CollectorOptions,
        settle: std::time::Duration,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (feed, terminating) = NamespaceFeed::new();
        let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::new(LogObserver), Arc::new(feed)];
        observers.extend(observer);
        let collector = Collector::new(client.clone(), options);
        let engine = OwnershipEngine(gc_ownership::Engine::new(gc_ownership::Config::default()));
        let shutdown = until(stopped.clone());
        let ownership =
            tokio::spawn(
                async move { collector.run(engine, Arc::new(Observers(observers)), shutdown).await },
            );
        let controller = NamespaceController::new(client, settle);
        let namespaces = tokio::spawn(controller.run(terminating, until(stopped)));
        Self { stop, ownership, namespaces }
    }

    /// Nothing further is sent; what is in flight gets a moment.
    pub(crate) async fn shutdown(self) {
        self.stop.send_replace(true);
        let (ownership, namespaces) = futures::join!(self.ownership, self.namespaces);
        if ownership.is_err() || namespaces.is_err() {
            tracing::error!("a collector ended by a panic");
        }
    }
}

async fn until(mut stopped: tokio::sync::watch::Receiver<bool>) {
    // An error says that the sender is gone, which is a stop as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}
