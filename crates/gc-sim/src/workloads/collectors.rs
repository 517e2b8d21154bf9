//! The owner-reference collector and the collector of finished Jobs: the deliveries of their watches, and their requests.

use gc_collectors::engine::{Engine as RetentionEngine, Observation};
use gc_collectors::jobs::JobCollector;
use gc_collectors::objects;
use gc_controller::barriers::ListScope;
use gc_controller::concurrency::Signal;
use gc_ownership::{Config, Engine};
use gc_registry::api::Object;
use gc_types::{Effect, Event, Gvr, Outcome, Request, ResourceId, ResourceInfo, ResourceVersion, Timestamp};

use super::feed::{Feed, News};
use super::{CUT_PER_MILLE, LOST_PER_MILLE, WATCHES_PER_STEP, WorkloadWorld};
use crate::kinds::Kind;
use crate::metadata::observed;
use crate::performed::PerformedRequest;
use crate::requests::Performer;
use crate::retention::read_facts;
use crate::saboteur::Saboteur;
use crate::violation::Violation;

/// Resource that the collector of finished Jobs watches.
const JOBS: &str = "jobs";

/// Collector that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collector {
    /// The owner-reference collector.
    Owners,
    /// The collector of finished Jobs.
    FinishedJobs,
}

/// Both collectors, with their watches and their requests in flight.
pub(super) struct Collectors {
    owners: Engine,
    jobs: RetentionEngine<JobCollector>,
    feeds: Vec<Feed>,
    effects: Vec<(Collector, Effect)>,
}

impl Collectors {
    pub(super) fn new(kinds: &[Kind]) -> Self {
        let mut owners = Engine::new(Config::default());
        for (index, kind) in kinds.iter().enumerate() {
            owners.handle(Event::ResourceServed(resource(index, kind)));
        }
        owners.handle(Event::Discovered);
        Self {
            owners,
            jobs: RetentionEngine::new(JobCollector::default()),
            feeds: kinds.iter().copied().map(Feed::new).collect(),
            effects: Vec::new(),
        }
    }

    /// Sets the time; the clock of the collector of finished Jobs is `early` milliseconds ahead.
    pub(super) fn tick(&mut self, now: i64, early: i64) {
        self.owners.handle(Event::Tick(Timestamp(now)));
        self.jobs.tick(Timestamp(now + early));
    }

    /// Takes the requests of both collectors. Notes are for the journal, and are done at once.
    fn poll(&mut self) {
        while let Some(effect) = self.owners.poll_effect() {
            match effect.request {
                Request::RecordEvent(_) => self.owners.handle(Event::Done(effect.id, Outcome::Applied(None))),
                _ => self.effects.push((Collector::Owners, effect)),
            }
        }
        while let Some(effect) = self.jobs.poll_effect() {
            match effect.request {
                Request::RecordEvent(_) => self.jobs.finish(effect.id, &Outcome::Applied(None)),
                _ => self.effects.push((Collector::FinishedJobs, effect)),
            }
        }
    }

    /// Returns the watch of the resource that a request concerns.
    fn feed(&self, collector: Collector, request: &Request) -> Option<&Feed> {
        let resource = match request {
            Request::Delete { key, .. }
            | Request::SetOwners { key, .. }
            | Request::RemoveFinalizer { key, .. }
            | Request::Read { key } => key.resource,
            Request::Barrier { resource, .. } => *resource,
            _ => return None,
        };
        match collector {
            Collector::Owners => self.feeds.get(usize::try_from(resource.0).ok()?.checked_sub(1)?),
            Collector::FinishedJobs => self.feeds.iter().find(|feed| feed.kind.resource == JOBS),
        }
    }

    fn observe(&mut self, id: ResourceId, is_job: bool, object: &Object) {
        if let Some(seen) = observed(object, id) {
            self.owners.handle(Event::Observed(seen));
        }
        if is_job && let Some(facts) = read_facts(objects::Kind::Job, object) {
            self.jobs.observe(Observation::Observed(facts));
        }
    }

    fn take_in(&mut self, id: ResourceId, is_job: bool, news: News) {
        match news {
            News::Listed(objects, version) => {
                self.owners.handle(Event::ListStarted(id));
                if is_job {
                    self.jobs.observe(Observation::ListStarted(objects::Kind::Job));
                }
                for object in &objects {
                    self.observe(id, is_job, object);
                }
                self.owners
                    .handle(Event::Synced { resource: id, resource_version: ResourceVersion(version) });
                if is_job {
                    self.jobs.observe(Observation::Synced(objects::Kind::Job));
                }
            }
            News::Present(object) => self.observe(id, is_job, &object),
            News::Gone(object) => {
                let Some(seen) = observed(&object, id) else { return };
                let (key, uid, resource_version) = (seen.key, seen.uid, seen.resource_version);
                if is_job {
                    let key = objects::Kind::Job.key(&key.namespace, &key.name);
                    self.jobs.observe(Observation::Removed(key));
                }
                self.owners.handle(Event::Removed { key, uid, resource_version });
            }
            News::Progress(version) => {
                let resource_version = ResourceVersion(version);
                self.owners.handle(Event::Progress { resource: id, resource_version });
            }
        }
    }
}

impl WorkloadWorld {
    /// Lets some watches deliver to the collectors.
    pub(super) fn deliver_to_collectors(&mut self) {
        for _ in 0..WATCHES_PER_STEP {
            let index = self.chance.below(self.collectors.feeds.len());
            if !self.calm && self.chance.chance(CUT_PER_MILLE) && self.collectors.feeds[index].cut() {
                self.collectors.owners.handle(Event::Stale(id_of(index)));
            }
            let most = 1 + self.chance.below(6);
            self.deliver_to_collectors_from(index, most);
        }
    }

    /// Lets one watch deliver at most this number of events. Returns true if there were any.
    pub(super) fn deliver_to_collectors_from(&mut self, index: usize, most: usize) -> bool {
        let is_job = self.collectors.feeds[index].kind.resource == JOBS;
        let news = self.collectors.feeds[index].read(most, &self.server);
        let any = !news.is_empty();
        for one in news {
            self.collectors.take_in(id_of(index), is_job, one);
        }
        any
    }

    /// Performs and answers one request of a collector, or loses it. Returns true if there was one.
    pub(super) fn collect(&mut self) -> Result<bool, Violation> {
        self.collectors.poll();
        if self.collectors.effects.is_empty() {
            return Ok(false);
        }
        let index = self.chance.below(self.collectors.effects.len());
        let (collector, effect) = self.collectors.effects.swap_remove(index);
        let is_lost = !self.calm && self.chance.chance(LOST_PER_MILLE);
        let is_performed = !is_lost || self.chance.chance(500);
        let timed_out = || Outcome::Failed { message: "timed out".into(), retry_after_milliseconds: None };
        let (mut outcome, mut found) = (timed_out(), Vec::new());
        if is_performed {
            (outcome, found) = self.perform_for_collector(collector, &effect)?;
        }
        if is_lost {
            (outcome, found) = (timed_out(), Vec::new());
        }
        match collector {
            Collector::FinishedJobs => self.collectors.jobs.finish(effect.id, &outcome),
            Collector::Owners => {
                for event in found {
                    self.collectors.owners.handle(event);
                }
                self.collectors.owners.handle(Event::Done(effect.id, outcome));
            }
        }
        Ok(true)
    }

    fn perform_for_collector(
        &mut self,
        collector: Collector,
        effect: &Effect,
    ) -> Result<(Outcome, Vec<Event>), Violation> {
        let Some(feed) = self.collectors.feed(collector, &effect.request) else {
            return Ok((Outcome::NotServed, Vec::new()));
        };
        let (kind, delivered) = (feed.kind, feed.version());
        let verdict = self.judge_collection(collector, &kind, effect);
        let saboteur = Saboteur::new(None);
        let performer =
            Performer { server: &self.server, kind: &kind, saboteur: &saboteur, trouble: None, lie: None };
        let performed = match &effect.request {
            Request::Barrier { at_least, .. }
                if *at_least != ResourceVersion::UNKNOWN
                    && delivered.is_some_and(|delivered| delivered >= at_least.0) =>
            {
                PerformedRequest::of(Outcome::Applied(None), Signal::Answered)
            }
            Request::Barrier { resource, namespace, .. } => {
                performer.list(&ListScope { resource: *resource, namespace: namespace.clone() }, false)
            }
            request => performer.perform(request),
        };
        let is_deletion = matches!(effect.request, Request::Delete { .. });
        if !is_deletion {
            self.note(|| {
                format!("{collector:?} {} {:?}: {:?}", kind.resource, effect.request, performed.outcome)
            });
        }
        if let (Request::Delete { key, .. }, Outcome::Applied(_)) = (&effect.request, &performed.outcome) {
            self.report.collected += 1;
            self.note(|| format!("{collector:?} collects {} {}/{}", kind.resource, key.namespace, key.name));
            verdict?;
        }
        Ok((performed.outcome, performed.found))
    }
}

/// Returns the identifier of a resource; identifiers begin with 1.
fn id_of(index: usize) -> ResourceId {
    ResourceId(u32::try_from(index + 1).unwrap_or(u32::MAX))
}

fn resource(index: usize, kind: &Kind) -> ResourceInfo {
    ResourceInfo {
        id: id_of(index),
        gvr: Gvr { group: kind.group.into(), version: "v1".into(), resource: kind.resource.into() },
        kind: kind.kind.into(),
        scope: kind.scope,
        served_api_versions: vec![kind.api_version("v1").into()],
        watched: true,
        comparable_versions: true,
    }
}
