//! Observers of the decisions and outcomes of collectors.

use std::sync::Arc;
use std::time::Duration;

use gc_collectors::engine::CollectorState;
use gc_collectors::measures::Measurement;
use gc_types::{Effect, Event, ObjectKey, Outcome};

use crate::breaker::Trip;

/// Observes decisions and outcomes: the journal, the metrics, the demonstration. Called on the collector's task, so it must not
/// block.
pub trait Observer: Send + Sync + 'static {
    /// Called before the engine receives this event.
    fn observed(&self, _event: &Event) {}
    /// Called when a watch of narrow facts shows that an object is gone; the metadata watches report that by an event.
    fn gone(&self, _key: &ObjectKey) {}
    /// Called when an effect is decided.
    fn decided(&self, _effect: &Effect) {}
    /// Called when an effect has an outcome, after a number of requests and a duration.
    fn finished(&self, _effect: &Effect, _outcome: &Outcome, _round_trips: u32, _took: Duration) {}
    /// Called when the breaker has stopped the collection of a resource.
    fn tripped(&self, _trip: &Trip) {}
    /// Called when a retention collector has measured something.
    fn measured(&self, _measurement: &Measurement) {}
    /// Called about once a second with the state of a retention collector.
    fn standing(&self, _standing: &CollectorState) {}
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// Several observers, called in this order.
#[derive(Clone, Default)]
pub struct Observers(pub Vec<Arc<dyn Observer>>);

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

impl Observer for Observers {
    fn observed(&self, event: &Event) {
        self.0.iter().for_each(|observer| observer.observed(event));
    }

    fn gone(&self, key: &ObjectKey) {
        self.0.iter().for_each(|observer| observer.gone(key));
    }

    fn decided(&self, effect: &Effect) {
        self.0.iter().for_each(|observer| observer.decided(effect));
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        self.0.iter().for_each(|observer| observer.finished(effect, outcome, round_trips, took));
    }

    fn tripped(&self, trip: &Trip) {
        self.0.iter().for_each(|observer| observer.tripped(trip));
    }

    fn measured(&self, measurement: &Measurement) {
        self.0.iter().for_each(|observer| observer.measured(measurement));
    }

    fn standing(&self, standing: &CollectorState) {
        self.0.iter().for_each(|observer| observer.standing(standing));
    }
}
