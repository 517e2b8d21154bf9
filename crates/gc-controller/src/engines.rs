//! Engines of garbage collection, as a [`Controller`](crate::controller::Controller) drives them.

use gc_collectors::engine::AnyCollector;
use gc_collectors::expiry::ExpiryEngine;
use gc_collectors::policies::roster::{Member, Roster};
use gc_types::{Effect, EffectId, Event, Outcome, ResourceId, Timestamp};

use crate::controller::Engine;

/// An engine that learns everything from events, including the time and outcomes.
pub trait EventEngine {
    /// Takes one event.
    fn handle(&mut self, event: Event);
    /// Returns the next thing to do, or `None` if there is nothing to do now.
    fn poll_effect(&mut self) -> Option<Effect>;
    /// Returns when it needs the next tick, if at all.
    fn next_wakeup(&self) -> Option<Timestamp>;
    /// Sets the time after the clock that its ticks follow was set.
    fn set_clock(&mut self, now: Timestamp);
    /// Returns the number of known objects of a resource, if it is counted.
    fn objects_of(&self, resource: ResourceId) -> Option<usize>;
}

impl<E: EventEngine + ?Sized> EventEngine for &mut E {
    fn handle(&mut self, event: Event) {
        (**self).handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        (**self).poll_effect()
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        (**self).next_wakeup()
    }

    fn set_clock(&mut self, now: Timestamp) {
        (**self).set_clock(now);
    }

    fn objects_of(&self, resource: ResourceId) -> Option<usize> {
        (**self).objects_of(resource)
    }
}

impl EventEngine for gc_ownership::Engine {
    fn handle(&mut self, event: Event) {
        self.handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.poll_effect()
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.next_wakeup()
    }

    /// Does nothing, because its timers follow a clock that is never set.
    fn set_clock(&mut self, _now: Timestamp) {}

    fn objects_of(&self, resource: ResourceId) -> Option<usize> {
        Some(self.objects_of(resource))
    }
}

impl EventEngine for ExpiryEngine {
    fn handle(&mut self, event: Event) {
        self.handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.poll_effect()
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.next_wakeup()
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.set_clock(now);
    }

    fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
        None
    }
}

/// Adapter for an [`EventEngine`].
#[derive(Debug)]
pub struct ByEvents<E>(pub E);

impl<E: EventEngine> Engine for ByEvents<E> {
    type Origin = ();

    fn tick(&mut self, now: Timestamp, _steady: Timestamp) {
        self.0.handle(Event::Tick(now));
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.0.set_clock(now);
    }

    fn poll_effect(&mut self, _may_delete: &dyn Fn(ResourceId) -> bool) -> Option<((), Effect)> {
        self.0.poll_effect().map(|effect| ((), effect))
    }

    fn finish(&mut self, (): &(), id: EffectId, outcome: Outcome) {
        self.0.handle(Event::Done(id, outcome));
    }

    fn release(&mut self, resource: Option<ResourceId>) {
        self.0.handle(Event::Released(resource));
    }

    fn next_wakeup(&self, _may_delete: &dyn Fn(ResourceId) -> bool) -> Option<Timestamp> {
        self.0.next_wakeup()
    }

    fn objects_of(&self, resource: ResourceId) -> Option<usize> {
        self.0.objects_of(resource)
    }
}

/// Adapter for a retention collector with its schedule, which learns from narrow facts.
pub struct ByFacts<C: ?Sized>(pub Box<C>);

impl<C: ?Sized> std::fmt::Debug for ByFacts<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByFacts").finish_non_exhaustive()
    }
}

impl<C: AnyCollector + ?Sized> Engine for ByFacts<C> {
    type Origin = ();

    fn tick(&mut self, now: Timestamp, _steady: Timestamp) {
        self.0.tick(now);
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.0.set_clock(now);
    }

    fn poll_effect(&mut self, _may_delete: &dyn Fn(ResourceId) -> bool) -> Option<((), Effect)> {
        self.0.poll_effect().map(|effect| ((), effect))
    }

    fn finish(&mut self, (): &(), id: EffectId, outcome: Outcome) {
        match outcome {
            Outcome::Withheld(_) => self.0.skip(id),
            outcome => self.0.finish(id, &outcome),
        }
    }

    fn release(&mut self, resource: Option<ResourceId>) {
        self.0.release(resource);
    }

    fn next_wakeup(&self, _may_delete: &dyn Fn(ResourceId) -> bool) -> Option<Timestamp> {
        self.0.next_wakeup()
    }

    fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
        None
    }
}

/// Retention policies of a cluster. Changes of the roster take effect at the next [`Policies::settle`].
#[derive(Debug, Default)]
pub struct Policies {
    /// The roster.
    pub roster: Roster,
    now: Timestamp,
    steady: Timestamp,
}

impl Policies {
    /// Applies changes of the roster, at the time of the last tick.
    pub fn settle(&mut self) {
        self.roster.tick(self.now, self.steady);
    }

    /// Returns when a status may have to be written, by the clock that is never set.
    #[must_use]
    pub fn next_status(&self) -> Option<Timestamp> {
        self.roster.next_wakeup(|_| false).1
    }
}

impl Engine for Policies {
    type Origin = Member;

    fn tick(&mut self, now: Timestamp, steady: Timestamp) {
        (self.now, self.steady) = (self.now.max(now), steady);
        self.settle();
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.now = now;
        self.roster.set_clock(now);
    }

    fn poll_effect(&mut self, may_delete: &dyn Fn(ResourceId) -> bool) -> Option<(Member, Effect)> {
        self.roster.poll_effect(may_delete)
    }

    fn finish(&mut self, member: &Member, id: EffectId, outcome: Outcome) {
        self.roster.finish(member, id, &outcome);
        self.settle();
    }

    /// Does nothing: a run pauses while its resource is stopped, and continues from there without withheld effects.
    fn release(&mut self, _resource: Option<ResourceId>) {}

    fn next_wakeup(&self, may_delete: &dyn Fn(ResourceId) -> bool) -> Option<Timestamp> {
        self.roster.next_wakeup(may_delete).0
    }

    fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests;
