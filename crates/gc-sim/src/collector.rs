//! A collector of the world: the controllers that ship, each with its engine and all restraints, and an adapter between them and
//! the server that is as slow, and delivers in as odd an order, as the story requires.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_collectors::engine::Observation;
use gc_collectors::policies::roster::Member;
use gc_controller::Moment;
use gc_controller::barriers::{List, ListEnd};
use gc_controller::clocks::Reading;
use gc_controller::concurrency::{ConcurrencyOptions, Signal};
use gc_controller::controller::{Controller, Rest, Step};
use gc_controller::engines::ByEvents;
use gc_controller::requests;
use gc_ownership::{Config, Engine};
use gc_types::{
    Effect, EffectId, Event, Evidence, ObjectKey, Outcome, Reason, Request, ResourceId, ResourceInfo,
    ResourceVersion, Timestamp, Uid, Verdict,
};

use crate::candidates::Candidate;
use crate::clocks::{Clocks, ServerDate};
use crate::defects::Defect;
use crate::kinds::{KINDS, ORDINARY_KINDS, index_of};
use crate::liars::{Lie, LieChannel};
use crate::performed::Part;
use crate::performed::PerformedRequest;
use crate::policies::Policies;
use crate::process::Process;
use crate::retention::{LookUp, Retention, kind_of_key};
use crate::saboteur::Saboteur;
use crate::server::Server;
use crate::story::{DiscoveryFault, Story, StreamFault};
use crate::watching::Watcher;

/// A request in flight to the server.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Effect that the request performs.
    pub effect: Effect,
    /// Number with its controller; `None` for additional requests of a defect.
    pub number: Option<u64>,
    /// List of a barrier, if the request is one.
    pub list: Option<List>,
    /// Time of the decision, by a clock that only runs forward.
    pub moment: Moment,
    /// Server's revision at the time of the decision.
    pub decided: u64,
    /// Delivered version of each kind at that time, by index.
    pub delivered: Vec<u64>,
    /// Kinds that the collector knew at that time, by index.
    pub known: Vec<bool>,
    /// Number of times that part of a list, or an older change, had been delivered to the collector again.
    pub set_back: u64,
    /// Deciding collector.
    pub collector: usize,
    /// Kind of the target, if the collector knew it when the request was sent.
    pub kind: Option<usize>,
    /// Deciding part of the collector.
    pub part: Part,
    /// Reading of the collector's wall clock at that time.
    pub clock: i64,
    /// Reading at that time of a clock that is never set.
    pub steady: i64,
    /// Live reads of nodes that had been answered to that part by then.
    pub looks: BTreeMap<Arc<str>, LookUp>,
    /// Number of consecutive answers that the machine of the node is gone, and the time of the first.
    pub absences: (u32, i64),
    /// Time since which the node that it looks up had not been known.
    pub unknown_since: Option<i64>,
    /// True if the request has left its sender.
    pub handed: bool,
    /// Policy that decided it.
    pub policy: Option<Member>,
    /// Served kinds that discovery had hidden from the collector.
    pub withdrawn: BTreeMap<usize, Withdrawal>,
}

/// Time at which discovery hid a kind from a collector that knew it.
#[derive(Clone, Debug)]
pub struct Withdrawal {
    /// Time by a clock that is never set.
    pub since: i64,
    /// Delivered version of each kind at that time, by index.
    pub delivered: Vec<u64>,
}

impl Flight {
    /// Reports whether the decision relied on a resource that did not catch up.
    #[must_use]
    pub fn gave_up_on_a_gap(&self) -> bool {
        self.effect.reason.evidence.iter().any(|fact| matches!(fact, Evidence::GapGivenUp { .. }))
    }
}

/// A response on its way back.
#[derive(Clone, Debug)]
pub struct Return {
    /// Request that was performed.
    pub flight: Flight,
    /// Result of the request.
    pub performed: PerformedRequest,
    /// Evidence about the server's clock, if the server wrote the response.
    pub date: Option<ServerDate>,
}

/// A collector.
pub struct Collector {
    /// Number of the collector.
    pub number: usize,
    /// Controller of the owner-reference collector.
    ownership: Controller<ByEvents<Engine>>,
    /// Result and time of its last turn.
    rest: Rest,
    moment: Moment,
    /// Restraints of all its controllers.
    pub process: Process,
    /// Retention collectors, if the story has them.
    pub retention: Option<Retention>,
    /// Policies, if the story has retention.
    pub policies: Option<Policies>,
    saboteur: Saboteur,
    watchers: BTreeMap<ResourceId, Watcher>,
    known: BTreeMap<usize, ResourceInfo>,
    withdrawn: BTreeMap<usize, Withdrawal>,
    next_resource: u32,
    announced: bool,
    /// Requests in flight.
    pub requests: Vec<Flight>,
    /// Responses in flight.
    pub returns: Vec<Return>,
    /// Clocks of the collector, and its knowledge of the server's.
    pub clocks: Clocks,
    /// True if the collector does not move for now.
    pub paused: bool,
    /// Candidate in the election, if there is one.
    pub candidate: Option<Candidate>,
    /// Number of events delivered.
    pub events: u64,
    next_own_effect: u64,
    /// Number of redeliveries by watches that have ended.
    redelivered: u64,
    /// Last version of each closed watch.
    former: Vec<u64>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Collector {
    /// Creates a collector that knows nothing yet.
    #[must_use]
    pub fn new(number: usize, config: Config, story: &Story, saboteur: Saboteur) -> Self {
        let Story { retention, breaker, .. } = *story;
        let concurrency = saboteur.concurrency(story.concurrency);
        Self {
            number,
            ownership: Controller::new(ByEvents(Engine::new(config)), concurrency).with_barriers(),
            rest: Rest::Idle,
            moment: Moment::default(),
            process: Process::new(breaker, saboteur.defect),
            retention: retention.then(|| Retention::new(concurrency, &saboteur)),
            policies: retention.then(|| Policies::new(concurrency, saboteur.defect)),
            saboteur,
            watchers: BTreeMap::new(),
            known: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            next_resource: 0,
            announced: false,
            requests: Vec::new(),
            returns: Vec::new(),
            clocks: Clocks::default(),
            paused: false,
            candidate: None,
            events: 0,
            next_own_effect: u64::MAX,
            redelivered: 0,
            former: vec![0; KINDS.len()],
        }
    }

    /// Returns the ownership engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.ownership.engine().0
    }

    /// Returns the saboteur of its work.
    #[must_use]
    pub fn saboteur(&self) -> &Saboteur {
        &self.saboteur
    }

    /// Reports whether a false event has shown an object in this version before the server gave it.
    pub(crate) fn has_foretold(&self, uid: &Uid, version: u64) -> bool {
        self.watchers.values().any(|watcher| watcher.foretold.as_ref() == Some(&(uid.clone(), version)))
    }

    /// Returns the kind that a resource number stands for.
    #[must_use]
    pub fn kind_of(&self, resource: ResourceId) -> Option<usize> {
        self.watchers.get(&resource).map(|watcher| watcher.kind)
    }

    /// Returns the number that the collector gave a kind, if it knows the kind now.
    #[must_use]
    pub fn resource_of(&self, kind: usize) -> Option<ResourceId> {
        self.known.get(&kind).map(|info| info.id)
    }

    /// Passes a delivery of a watch or of discovery to the ownership engine.
    fn observe(&mut self, event: Event, server: &Server) {
        self.tell_of(event, true, server);
    }

    fn tell_of(&mut self, event: Event, is_delivered: bool, server: &Server) {
        self.events += 1;
        if let Some(request) = self.saboteur.temptation(&event) {
            self.next_own_effect -= 1;
            let effect = unreasoned(self.next_own_effect, request);
            self.send(Part::Ownership, None, effect, server.revision());
        }
        for removal in self.saboteur.removals(&event) {
            self.deliver_event(removal, is_delivered);
        }
        let event = if self.saboteur.defect.is_some() { self.saboteur.event(event) } else { Some(event) };
        let guessed = match &event {
            Some(Event::Progress { resource_version, .. }) if self.saboteur.is(Defect::ProgressGuessed) => {
                Some(*resource_version)
            }
            _ => None,
        };
        if let Some(event) = event {
            self.deliver_event(event, is_delivered);
        }
        for resource in self.watchers.keys().copied().filter(|_| guessed.is_some()).collect::<Vec<_>>() {
            let resource_version = guessed.unwrap_or_default();
            self.deliver_event(Event::Progress { resource, resource_version }, true);
        }
    }

    /// Delivers an event as the adapter of the owner-reference collector does.
    fn deliver_event(&mut self, event: Event, is_delivered: bool) {
        if is_delivered {
            self.ownership.delivered(&event);
        }
        self.ownership.engine_mut().0.handle(event);
    }

    fn send(&mut self, part: Part, number: Option<u64>, effect: Effect, revision: u64) {
        // When discovery removes a kind, retention continues with its last deliveries.
        let mut delivered = match part {
            Part::Ownership => vec![0; KINDS.len()],
            _ => self.former.clone(),
        };
        for watcher in self.watchers.values().filter(|watcher| watcher.delivered > 0) {
            delivered[watcher.kind] = watcher.delivered;
        }
        let resource = match &effect.request {
            Request::Delete { key, .. }
            | Request::SetOwners { key, .. }
            | Request::RemoveFinalizer { key, .. }
            | Request::Read { key } => Some(key.resource),
            Request::Barrier { resource, .. } => Some(*resource),
            Request::RecordEvent(_) | Request::Guarded { .. } | Request::Outside { .. } => None,
        };
        let kind = match part {
            Part::Policies => resource.and_then(|resource| usize::try_from(resource.0).ok()),
            Part::Ownership | Part::Marked => resource.and_then(|resource| self.kind_of(resource)),
            _ => resource
                .or(guarded_key(&effect.request).map(|key| key.resource))
                .and_then(|resource| {
                    kind_of_key(&ObjectKey { resource, namespace: "".into(), name: "".into() })
                })
                .and_then(index_of),
        };
        let ledger = self.retention.as_ref().map(|retention| &retention.ledger);
        let looks = ledger.filter(|_| part != Part::Ownership).map(|ledger| ledger.looks(part));
        let about = about(&effect.request);
        let absences = about.and_then(|(_, uid)| Some(ledger?.absences(uid?)));
        let unknown_since = about.and_then(|(key, _)| ledger?.unknown_since(&key.name));
        let known = (0..KINDS.len()).map(|kind| self.known.contains_key(&kind)).collect();
        let collector = self.number;
        self.requests.push(Flight {
            effect,
            number,
            list: None,
            moment: self.moment,
            decided: revision,
            delivered,
            known,
            set_back: self.redelivered
                + self.watchers.values().map(|watcher| watcher.redelivered).sum::<u64>(),
            collector,
            kind,
            part,
            clock: self.clocks.shown(),
            steady: self.clocks.steady(),
            looks: looks.unwrap_or_default(),
            absences: absences.unwrap_or_default(),
            unknown_since,
            handed: self.candidate.is_none(),
            policy: None,
            withdrawn: self.withdrawn.clone(),
        });
    }

    /// Sets the time: by a clock that is never set for the ownership engine, and by the wall clock for everything that depends on
    /// times in objects.
    pub fn tick(&mut self, now: i64) {
        let reading = self.clocks.read(now, &self.saboteur);
        let steady = Timestamp(self.clocks.steady());
        self.look_around(now);
        let watchers = &self.watchers;
        let kind_of = |id: ResourceId| Some(watchers.get(&id)?.kind);
        let around = self.process.around(&kind_of).observing().ticking();
        self.ownership.tick(Reading::Passed(steady), steady, &around);
        if let Some(retention) = &mut self.retention {
            retention.tick(reading, steady, &self.process, &self.saboteur);
        }
        if let Some(policies) = &mut self.policies {
            policies.tick(reading, steady, &self.process);
        }
    }

    /// Updates the restraints of its controllers.
    fn look_around(&mut self, now: i64) {
        self.process.is_standby = self.candidate.as_ref().is_some_and(Candidate::stands_by);
        self.process.clocks_disagree =
            !self.saboteur.is(Defect::ClockUncompared) && self.clocks.is_paused(now);
    }

    /// Applies new orders of the operator, or a resumed breaker: withheld effects are decided again.
    pub fn orders_changed(&mut self) {
        let watchers = &self.watchers;
        let kind_of = |id: ResourceId| Some(watchers.get(&id)?.kind);
        let around = self.process.around(&kind_of).observing();
        self.ownership.dry_run_changed(&around);
        if self.saboteur.is(Defect::BreakerForEver) {
            return;
        }
        self.ownership.breaker_changed(&around);
        if let Some(retention) = &mut self.retention {
            retention.breaker_changed(&self.process);
        }
    }

    /// Sets new bounds of the concurrency limit.
    pub fn set_concurrency(&mut self, concurrency: ConcurrencyOptions) {
        self.ownership.set_concurrency(concurrency);
        if let Some(retention) = &mut self.retention {
            retention.set_concurrency(concurrency);
        }
        if let Some(policies) = &mut self.policies {
            policies.controller.set_concurrency(concurrency);
        }
    }

    /// Returns the reading of the wall clock.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.clocks.shown()
    }

    /// Returns the world times at which the owner-reference collector has something to do again, and at which everything else does.
    #[must_use]
    pub fn next_wakeups(&self, now: i64) -> (Option<i64>, Option<i64>) {
        let moment = self.clocks.moment_at(now);
        let later = |due: Moment| {
            // The result is never earlier than the work is due.
            let wait = due.since(moment).as_nanos().div_ceil(1_000_000);
            now + i64::try_from(wait).unwrap_or(i64::MAX / 2)
        };
        let watchers = &self.watchers;
        let kind_of = |id: ResourceId| Some(watchers.get(&id)?.kind);
        let ownership =
            self.ownership.next_due(self.rest, moment, &self.process.around(&kind_of).observing());
        let retention =
            self.retention.as_ref().and_then(|retention| retention.next_due(moment, &self.process));
        let policies = self.policies.as_ref().and_then(|policies| policies.next_due(moment, &self.process));
        (ownership.map(later), retention.into_iter().chain(policies).min().map(later))
    }

    /// Polls for effects, at most `most`. Returns the number of effects and lists together.
    pub fn take_effects(&mut self, most: usize, server: &Server, now: i64) -> usize {
        self.look_around(now);
        self.moment = self.clocks.moment_at(now);
        let before = self.process.decided();
        let lists = self.take_ownership_effects(most, server, now);
        let taken = |process: &Process| process.decided() - before;
        let left = most.saturating_sub(taken(&self.process));
        self.take_retention_effects(left, server, now);
        let left = most.saturating_sub(taken(&self.process));
        self.take_policy_effects(left, server, now);
        taken(&self.process) + lists
    }

    fn take_ownership_effects(&mut self, most: usize, server: &Server, now: i64) -> usize {
        let moment = self.clocks.moment_at(now);
        let watchers = &self.watchers;
        let kind_of = |id: ResourceId| Some(watchers.get(&id)?.kind);
        self.rest = self.ownership.act(moment, most, &self.process.around(&kind_of).observing());
        let mut lists = 0;
        while let Some(step) = self.ownership.poll_step() {
            match step {
                Step::Send { number, .. } => self.send_ownership(number, server),
                Step::List(list) => {
                    lists += 1;
                    self.send_list(list, server, now);
                }
                Step::CancelList(number) => {
                    let is_of =
                        |flight: &Flight| flight.list.as_ref().is_some_and(|list| list.number == number);
                    self.requests.retain(|flight| !is_of(flight));
                    self.returns.retain(|answer| !is_of(&answer.flight));
                }
                Step::RecordEvent(_) => {}
            }
        }
        lists
    }

    fn send_ownership(&mut self, number: u64, server: &Server) {
        let Some(flight) = self.ownership.flight(number) else { return };
        let mut effect = flight.effect.clone();
        if self.saboteur.effect(&mut effect) {
            let mut twin = effect.clone();
            self.next_own_effect -= 1;
            twin.id = EffectId(self.next_own_effect);
            self.send(Part::Ownership, None, twin, server.revision());
        }
        self.send(Part::Ownership, Some(number), effect, server.revision());
    }

    fn send_list(&mut self, list: List, server: &Server, now: i64) {
        let is_second = list.not_older_than.is_none();
        let takes_for_made = match self.saboteur.defect {
            Some(Defect::BarrierNotMade) => true,
            Some(Defect::SecondListUnmade | Defect::BookmarkBelieved) => is_second,
            _ => false,
        };
        if takes_for_made {
            let (end, signal) = (ListEnd::Complete, Some(Signal::Answered));
            self.take_list_end(list.number, end, signal, now);
            return;
        }
        self.next_own_effect -= 1;
        let request = Request::Barrier {
            resource: list.place.resource,
            namespace: list.place.namespace.clone(),
            at_least: list.not_older_than.unwrap_or(ResourceVersion::UNKNOWN),
        };
        self.send(Part::Ownership, None, unreasoned(self.next_own_effect, request), server.revision());
        if let Some(flight) = self.requests.last_mut() {
            flight.list = Some(list);
        }
    }

    fn take_list_end(&mut self, number: u64, end: ListEnd, signal: Option<Signal>, now: i64) {
        let moment = self.clocks.moment_at(now);
        let watchers = &self.watchers;
        let kind_of = |id: ResourceId| Some(watchers.get(&id)?.kind);
        self.ownership.listed(number, end, signal, moment, &self.process.around(&kind_of).observing());
    }

    fn take_policy_effects(&mut self, most: usize, server: &Server, now: i64) {
        let moment = self.clocks.moment_at(now);
        let Some(mut policies) = self.policies.take() else { return };
        for (number, member, mut effect) in policies.act(most, moment, &self.process) {
            self.saboteur.retention_effect(Part::Policies, &mut effect);
            self.send(Part::Policies, Some(number), effect, server.revision());
            let mut twin = None;
            let Some(flight) = self.requests.last_mut() else { continue };
            if let Some((kind, delivered)) = policies.delivered(&member) {
                flight.delivered[kind] = delivered;
            }
            // Policies have their own watches.
            flight.set_back = policies.redelivered(&member);
            if self.saboteur.is(Defect::PolicyRepeats) {
                twin = Some(Flight { number: None, policy: Some(member.clone()), ..flight.clone() });
            }
            flight.policy = Some(member);
            self.requests.extend(twin);
        }
        policies.write_statuses(&self.process);
        self.policies = Some(policies);
    }

    fn take_retention_effects(&mut self, most: usize, server: &Server, now: i64) {
        let moment = self.clocks.moment_at(now);
        let Some(retention) = &mut self.retention else { return };
        let sent = retention.act(most, moment, &self.process, &self.saboteur);
        for (part, number, mut effect) in sent {
            self.saboteur.retention_effect(part, &mut effect);
            self.send(part, Some(number), effect, server.revision());
        }
    }

    /// Takes a response.
    pub fn take_return(&mut self, answer: Return, server: &Server, now: i64) {
        let Return { flight, performed, date } = answer;
        if let Some(date) = date {
            self.clocks.observe(&date, flight.steady, now);
        }
        self.events += 1;
        match flight.part {
            Part::Ownership => self.take_ownership_return(&flight, performed, server, now),
            Part::Policies => self.take_policy_return(&flight, performed, now),
            _ => self.take_retention_return(&flight, performed, now),
        }
    }

    fn take_ownership_return(
        &mut self,
        flight: &Flight,
        performed: PerformedRequest,
        server: &Server,
        now: i64,
    ) {
        if let Some(list) = &flight.list {
            for event in performed.found {
                self.tell_of(event, false, server);
            }
            let (end, signal) = performed.end.unwrap_or((ListEnd::Complete, None));
            let end = self.saboteur.list_end(end);
            self.take_list_end(list.number, end, signal, now);
            return;
        }
        let performed = self.saboteur.plain(performed);
        let Some(outcome) = self.saboteur.outcome(performed.outcome) else { return };
        let Some(number) = flight.number else { return };
        let moment = self.clocks.moment_at(now);
        let watchers = &self.watchers;
        let kind_of = |id: ResourceId| Some(watchers.get(&id)?.kind);
        let performed = requests::PerformedRequest { outcome, ..performed };
        self.ownership.finished(number, performed, None, moment, &self.process.around(&kind_of).observing());
    }

    fn take_policy_return(&mut self, flight: &Flight, performed: PerformedRequest, now: i64) {
        let (moment, performed) = (self.clocks.moment_at(now), self.saboteur.plain(performed));
        if let (Some(number), Some(policies)) = (flight.number, &mut self.policies) {
            policies.finished(number, performed, moment, &self.process);
        }
    }

    fn take_retention_return(&mut self, flight: &Flight, performed: PerformedRequest, now: i64) {
        let Some(retention) = &mut self.retention else { return };
        let (steady, part) = (self.clocks.steady(), flight.part);
        if let (Request::Read { key }, Outcome::Absent | Outcome::Found(_)) =
            (&flight.effect.request, &performed.outcome)
        {
            let absent = performed.outcome == Outcome::Absent;
            self.saboteur.looked(part, &key.name, absent);
            let (decided, unknown_since) = (flight.steady, flight.unknown_since);
            let look = LookUp { decided, answered: steady, absent, unknown_since };
            retention.ledger.looked(part, &key.name, look);
        }
        for observation in &performed.observations {
            if let Observation::Machine { uid, state, .. } = observation {
                retention.ledger.machine(uid, state, steady);
            }
        }
        let credulous = self.saboteur.is(Defect::NodeByOneAnswer);
        let moment = self.clocks.moment_at(now);
        if self.saboteur.loses_retention_answer() {
            return;
        }
        if let Some(number) = flight.number {
            let observations = performed.observations.clone();
            let performed = self.saboteur.plain(performed);
            retention.finished((part, number), observations, performed, moment, &self.process);
        }
        if credulous && part == Part::Nodes {
            retention.insist(self.clocks.shown());
        }
    }

    /// Performs one round of discovery.
    pub fn discover(&mut self, server: &Server, fault: Option<DiscoveryFault>, salt: u64) {
        if fault == Some(DiscoveryFault::Failed) {
            return;
        }
        let kinds = if self.retention.is_some() { &KINDS[..] } else { &KINDS[..ORDINARY_KINDS] };
        let victim = kinds[usize::try_from(salt % kinds.len() as u64).unwrap_or(0)].group;
        for (index, kind) in kinds.iter().enumerate() {
            let hidden = kind.group == victim;
            if hidden && fault == Some(DiscoveryFault::GroupFailed) {
                continue;
            }
            let served = server.serves(kind) && !(hidden && fault == Some(DiscoveryFault::Omitted));
            match (self.known.get(&index), served) {
                (None, true) => {
                    self.next_resource += 1;
                    let id = ResourceId(self.next_resource);
                    let info = kind.info(id);
                    self.known.insert(index, info.clone());
                    self.withdrawn.remove(&index);
                    self.watchers.insert(id, Watcher::new(index));
                    self.observe(Event::ResourceServed(info), server);
                }
                (Some(info), false) => {
                    let id = info.id;
                    self.known.remove(&index);
                    if server.serves(kind) {
                        self.note_withdrawal(index);
                    }
                    // All known changes will be delivered again.
                    let gone = self.watchers.remove(&id);
                    self.former[index] = gone.as_ref().map_or(0, |watcher| watcher.delivered);
                    self.redelivered += 1 + gone.map_or(0, |watcher| watcher.redelivered);
                    if let Some(retention) = &mut self.retention {
                        let gone = Event::ResourceGone(id);
                        retention.observe(index, &gone, None, self.clocks.steady(), &mut self.saboteur);
                    }
                    self.observe(Event::ResourceGone(id), server);
                }
                _ => {}
            }
        }
        if !self.announced {
            self.announced = true;
            self.observe(Event::Discovered, server);
        }
    }

    fn note_withdrawal(&mut self, kind: usize) {
        let mut delivered = vec![0; KINDS.len()];
        for watcher in self.watchers.values() {
            delivered[watcher.kind] = watcher.delivered;
        }
        self.withdrawn.insert(kind, Withdrawal { since: self.clocks.steady(), delivered });
    }

    /// Returns the number of watched resources.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.watchers.len()
    }

    /// Returns the resource at a position.
    #[must_use]
    pub fn resource_at(&self, position: usize) -> Option<ResourceId> {
        let count = self.watchers.len();
        if count == 0 { None } else { self.watchers.keys().nth(position % count).copied() }
    }

    /// Makes the watch of a resource lie next: in its list, which begins again, or in its deliveries.
    pub fn deceive(&mut self, id: ResourceId, lie: (Lie, u64), server: &Server) {
        if lie.0.channel() == LieChannel::Lists {
            self.saboteur.deceive();
            self.break_stream(id, StreamFault::Expired, server);
        }
        if let Some(watcher) = self.watchers.get_mut(&id) {
            watcher.lie = Some(lie);
            watcher.believes_anything = self.saboteur.is(Defect::EmptyObjectBelieved);
        }
    }

    /// Breaks the watch of a resource.
    pub fn break_stream(&mut self, id: ResourceId, fault: StreamFault, server: &Server) {
        if self.watchers.get_mut(&id).is_some_and(|watcher| watcher.break_off(fault)) {
            self.observe(Event::Stale(id), server);
        }
    }

    /// Reacts to a replaced server with an older store: every watch fails and lists again, and everything in flight is lost.
    pub fn disconnect(&mut self, server: &Server) {
        if let Some(policies) = &mut self.policies {
            policies.disconnect();
        }
        for id in self.watchers.keys().copied().collect::<Vec<_>>() {
            self.break_stream(id, StreamFault::Expired, server);
        }
        self.lose("connection refused", |_| true);
    }

    /// Answers these requests in flight, and those whose answer has not arrived, with a failure. Returns those that no server has
    /// performed yet.
    pub fn lose(&mut self, why: &str, is_lost: impl Fn(&Flight) -> bool) -> Vec<Flight> {
        let (answered, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.returns).into_iter().partition(|answer| is_lost(&answer.flight));
        self.returns = kept;
        let sent: Vec<Flight> = self.requests.extract_if(.., |flight| is_lost(flight)).collect();
        for flight in answered.into_iter().map(|answer| answer.flight).chain(sent.iter().cloned()) {
            let mut performed = PerformedRequest::unanswered(why);
            if flight.list.is_some() {
                let end = ListEnd::Failed(why.to_owned());
                performed.end = Some((end, Some(Signal::Busy(None))));
            }
            self.returns.push(Return { flight, performed, date: None });
        }
        sent
    }

    /// Lets the watch of a resource deliver at most `most` events. Returns true if it delivered any.
    pub fn deliver(&mut self, id: ResourceId, most: usize, server: &Server) -> bool {
        let Some(mut watcher) = self.watchers.remove(&id) else { return false };
        let events = watcher.read(id, most, server);
        // Put back before the engine acts on the delivery: requests record the position of the watches.
        let kind = watcher.kind;
        self.watchers.insert(id, watcher);
        let any = !events.is_empty();
        for (event, object) in events {
            if let Some(retention) = &mut self.retention {
                let steady = self.clocks.steady();
                retention.observe(kind, &event, object.as_deref(), steady, &mut self.saboteur);
            }
            self.observe(event, server);
        }
        any
    }

    /// Lets one of the watches of the policies deliver something. Returns true if it did.
    pub fn deliver_to_policies(&mut self, position: usize, most: usize, server: &Server) -> bool {
        let Some(policies) = &mut self.policies else { return false };
        let delivered = policies.deliver(position, most, server);
        self.events += delivered as u64;
        delivered > 0
    }
}

/// Returns an effect without a reason.
fn unreasoned(id: u64, request: Request) -> Effect {
    let reason = Reason { verdict: Verdict::NothingBlocks, owners: Vec::new(), evidence: Vec::new() };
    Effect { id: EffectId(id), request, reason }
}

fn guarded_key(request: &Request) -> Option<&ObjectKey> {
    match request {
        Request::Guarded { key, .. } | Request::Outside { key, .. } => Some(key),
        _ => None,
    }
}

/// Returns the object of a request, and its UID.
fn about(request: &Request) -> Option<(&ObjectKey, Option<&Uid>)> {
    match request {
        Request::Delete { key, uid, .. } => Some((key, Some(uid))),
        Request::Read { key } => Some((key, None)),
        _ => None,
    }
}
