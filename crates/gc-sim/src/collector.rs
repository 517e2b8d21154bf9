//! A collector of the world: the real engine, and an adapter between it and the server that keeps the promises which
//! `gc_types::Event` asks of an adapter, as slowly and in as odd an order as the story wants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_control::clocks::Reading;
use gc_ownership::{Config, Engine};
use gc_retention::engine::Observation;
use gc_retention::policies::roster::Member;
use gc_types::{
    Effect, EffectId, Event, Evidence, ObjectKey, Outcome, Reason, Request, ResourceId, ResourceInfo,
    Timestamp, Uid, Verdict,
};

use crate::candidates::Candidate;
use crate::clocks::{Clocks, Told};
use crate::defects::{Defect, Saboteur};
use crate::kinds::{KINDS, ORDINARY_KINDS, index_of};
use crate::policies::Policies;
use crate::retention::{LookUp, Part, Retention, kind_of_key};
use crate::server::Server;
use crate::story::{DiscoveryFault, StreamFault};
use crate::watching::Watcher;

/// So often is what is held looked at, milliseconds.
const HELD_MILLISECONDS: i64 = 1_000;

/// A request on its way to the server.
#[derive(Clone, Debug)]
pub struct Flight {
    /// What is asked for.
    pub effect: Effect,
    /// The server's revision when it was decided.
    pub decided: u64,
    /// How far each kind had been told then, by index.
    pub delivered: Vec<u64>,
    /// Which kinds the collector knew then, by index.
    pub known: Vec<bool>,
    /// How often the collector had been told part of a list, or anew of a change that it had been told before.
    pub set_back: u64,
    /// Whether it was decided while a restored store was not yet known completely.
    pub bewildered: bool,
    /// Who decided.
    pub collector: usize,
    /// The kind that it is about, if the collector knew it when it was sent.
    pub kind: Option<usize>,
    /// Which part of the collector decided.
    pub part: Part,
    /// What the collector's wall clock showed then.
    pub clock: i64,
    /// The same by a clock that nobody sets.
    pub steady: i64,
    /// The looks at nodes that had been answered to that part then.
    pub looks: BTreeMap<Arc<str>, LookUp>,
    /// How many answers in a row had said that the machine of the node it is about is gone, and when the first came.
    pub absences: (u32, i64),
    /// Since when the node that it looks up had not been known.
    pub unknown_since: Option<i64>,
    /// Whether it has left its sender.
    pub handed: bool,
    /// By which policy it was decided.
    pub policy: Option<Member>,
}

impl Flight {
    /// Whether the decision says of itself that it rests on a resource that did not catch up.
    #[must_use]
    pub fn gave_up_on_a_gap(&self) -> bool {
        self.effect.reason.evidence.iter().any(|fact| matches!(fact, Evidence::GapGivenUp { .. }))
    }
}

/// An answer on its way back.
#[derive(Clone, Debug)]
pub struct Return {
    /// What a barrier found, told first.
    pub found: Vec<Event>,
    /// The same for retention.
    pub observations: Vec<Observation>,
    /// What was asked for.
    pub flight: Flight,
    /// What became of it.
    pub outcome: Outcome,
    /// What the answer says of the server's clock, if the server wrote it.
    pub told: Option<Told>,
}

/// A collector.
pub struct Collector {
    /// Its number.
    pub number: usize,
    /// The engine.
    pub engine: Engine,
    /// The retention collectors, if the story has them.
    pub retention: Option<Retention>,
    /// The policies, if the story has retention.
    pub policies: Option<Policies>,
    saboteur: Saboteur,
    watchers: BTreeMap<ResourceId, Watcher>,
    known: BTreeMap<usize, ResourceInfo>,
    next_resource: u32,
    announced: bool,
    /// Requests on their way.
    pub requests: Vec<Flight>,
    /// Answers on their way.
    pub returns: Vec<Return>,
    /// Its clocks, and what it knows of the server's.
    pub clocks: Clocks,
    /// The resources of which something was held because clocks disagree, by who wanted it.
    held: BTreeSet<(Part, ResourceId)>,
    /// It does not move for now.
    pub paused: bool,
    /// It stands for election, if there is one.
    pub candidate: Option<Candidate>,
    /// Events told.
    pub events: u64,
    /// Whether a restored store has not been listed completely yet.
    pub bewildered: bool,
    next_own_effect: u64,
    /// What watches that are no more have told anew.
    retold: u64,
    /// How far the last watch of each kind had come that is no more.
    former: Vec<u64>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Collector {
    /// A collector that knows nothing yet.
    #[must_use]
    pub fn new(number: usize, config: Config, retention: bool, saboteur: Saboteur) -> Self {
        Self {
            number,
            engine: Engine::new(config),
            retention: retention.then(|| Retention::new(&saboteur)),
            policies: retention.then(|| Policies::new(saboteur.defect)),
            saboteur,
            watchers: BTreeMap::new(),
            known: BTreeMap::new(),
            next_resource: 0,
            announced: false,
            requests: Vec::new(),
            returns: Vec::new(),
            clocks: Clocks::default(),
            held: BTreeSet::new(),
            paused: false,
            candidate: None,
            events: 0,
            bewildered: false,
            next_own_effect: u64::MAX,
            retold: 0,
            former: vec![0; KINDS.len()],
        }
    }

    /// Who spoils its work.
    #[must_use]
    pub fn saboteur(&self) -> &Saboteur {
        &self.saboteur
    }

    /// The kind that a resource number stands for.
    #[must_use]
    pub fn kind_of(&self, resource: ResourceId) -> Option<usize> {
        self.watchers.get(&resource).map(|watcher| watcher.kind)
    }

    /// The number that the collector gave a kind, if it knows the kind now.
    #[must_use]
    pub fn resource_of(&self, kind: usize) -> Option<ResourceId> {
        self.known.get(&kind).map(|info| info.id)
    }

    /// Up to which version a resource has been told, if it is not being listed.
    #[must_use]
    pub fn delivered(&self, resource: ResourceId) -> Option<u64> {
        let watcher = self.watchers.get(&resource)?;
        (watcher.is_listed() && watcher.ever_synced).then_some(watcher.delivered)
    }

    fn tell(&mut self, event: Event, server: &Server) {
        self.events += 1;
        if let Some(request) = self.saboteur.temptation(&event) {
            self.next_own_effect -= 1;
            self.send(Part::Ownership, unreasoned(self.next_own_effect, request), server.revision());
        }
        let event = if self.saboteur.defect.is_some() { self.saboteur.event(event) } else { Some(event) };
        let guessed = match &event {
            Some(Event::Progress { resource_version, .. }) if self.saboteur.is(Defect::ProgressGuessed) => {
                Some(*resource_version)
            }
            _ => None,
        };
        if let Some(event) = event {
            self.engine.handle(event);
        }
        for resource in self.watchers.keys().copied().filter(|_| guessed.is_some()).collect::<Vec<_>>() {
            let resource_version = guessed.unwrap_or_default();
            self.engine.handle(Event::Progress { resource, resource_version });
        }
    }

    fn send(&mut self, part: Part, effect: Effect, revision: u64) {
        // Retention goes on with what it was told last when discovery takes a kind away.
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
            Request::Note(_) | Request::Guarded { .. } | Request::Outside { .. } => None,
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
        let (bewildered, collector) = (self.bewildered, self.number);
        self.requests.push(Flight {
            effect,
            decided: revision,
            delivered,
            known,
            set_back: self.retold + self.watchers.values().map(|watcher| watcher.retold).sum::<u64>(),
            bewildered,
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
        });
    }

    /// Sends what a policy wants.
    fn send_by_policy(&mut self, member: Member, effect: Effect, policies: &Policies, revision: u64) {
        self.send(Part::Policies, effect, revision);
        let Some(flight) = self.requests.last_mut() else { return };
        if let Some((kind, delivered)) = policies.delivered(&member) {
            flight.delivered[kind] = delivered;
        }
        flight.policy = Some(member);
    }

    /// Tells the time: the engine by a clock that nobody sets, and whoever goes by the time in objects by the wall clock.
    pub fn tick(&mut self, now: i64) {
        let reading = self.clocks.read(now, &self.saboteur);
        let steady = self.clocks.steady();
        self.engine.handle(Event::Tick(Timestamp(steady)));
        let (passed, set) = match reading {
            Reading::Passed(now) => (now.0, None),
            Reading::Set { expected, now } => (expected.0, Some(now.0)),
        };
        if let Some(retention) = &mut self.retention {
            retention.tick(passed, &self.saboteur);
            if let Some(now) = set {
                retention.set_clock(now);
            }
        }
        if let Some(policies) = &mut self.policies {
            match set {
                Some(now) => policies.set_clock(now, steady),
                None => policies.tick(passed, steady),
            }
        }
        self.release(now);
    }

    /// What was held because clocks disagreed is decided again once they agree.
    fn release(&mut self, now: i64) {
        if self.held.is_empty() || self.is_paused(now) || self.saboteur.is(Defect::ClockHeldForEver) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        if let Some(retention) = &mut self.retention {
            for (part, resource) in held {
                retention.release(part, resource);
            }
        }
    }

    /// Whether what depends on the time pauses.
    fn is_paused(&mut self, now: i64) -> bool {
        !self.saboteur.is(Defect::ClockUncompared) && self.clocks.is_paused(now)
    }

    /// What its wall clock shows.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.clocks.shown()
    }

    /// When the engine wants to be told the time again, and when everything else does, by the world's time.
    #[must_use]
    pub fn next_wakeups(&self, now: i64) -> (Option<i64>, Option<i64>) {
        let later = |due: Timestamp, shown: i64| now + (due.0 - shown).max(0);
        let (shown, steady) = (self.clocks.shown(), self.clocks.steady());
        let (by_wall, by_steady) = self.policies.as_ref().map(Policies::next_wakeups).unwrap_or_default();
        let retention = self.retention.as_ref().and_then(Retention::next_wakeup);
        let by_wall = retention.into_iter().chain(by_wall).map(|due| later(due, shown));
        // What is held is looked at again and again.
        let held = (!self.held.is_empty()).then_some(now + HELD_MILLISECONDS);
        (
            self.engine.next_wakeup().map(|due| later(due, steady)),
            by_wall.chain(by_steady.map(|due| later(due, steady))).chain(held).min(),
        )
    }

    /// Asks for effects, at most so many. Returns how many there were.
    pub fn take_effects(&mut self, most: usize, server: &Server, now: i64) -> usize {
        if self.candidate.as_ref().is_some_and(Candidate::is_held) {
            return 0;
        }
        let mut taken = 0;
        while taken < most
            && let Some(mut effect) = self.engine.poll_effect()
        {
            taken += 1;
            if let Request::Note(_) = effect.request {
                self.engine.handle(Event::Done(effect.id, Outcome::Applied(None)));
                continue;
            }
            if self.saboteur.effect(&mut effect) {
                let mut twin = effect.clone();
                self.next_own_effect -= 1;
                twin.id = EffectId(self.next_own_effect);
                self.send(Part::Ownership, twin, server.revision());
            }
            self.send(Part::Ownership, effect, server.revision());
        }
        taken += self.take_retention_effects(most - taken, server, now);
        taken + self.take_policy_effects(most - taken, server, now)
    }

    fn take_policy_effects(&mut self, most: usize, server: &Server, now: i64) -> usize {
        let is_paused = self.is_paused(now);
        let Some(mut policies) = self.policies.take() else { return 0 };
        let mut taken = 0;
        while taken < most
            && let Some((member, mut effect)) = policies.poll(is_paused)
        {
            taken += 1;
            self.saboteur.retention_effect(Part::Policies, &mut effect);
            self.send_by_policy(member, effect, &policies, server.revision());
        }
        policies.write_statuses();
        self.policies = Some(policies);
        taken
    }

    fn take_retention_effects(&mut self, most: usize, server: &Server, now: i64) -> usize {
        let is_paused = self.is_paused(now);
        let Some(mut retention) = self.retention.take() else { return 0 };
        let mut taken = 0;
        while taken < most
            && let Some((part, mut effect)) = retention.poll(&self.saboteur)
        {
            taken += 1;
            if let Request::Note(_) = effect.request {
                retention.answered(part, effect.id, Vec::new(), Outcome::Applied(None));
                continue;
            }
            if is_paused && let Some(resource) = timed(&effect) {
                self.held.insert((part, resource));
                retention.hold(part, effect.id);
                continue;
            }
            self.saboteur.retention_effect(part, &mut effect);
            // What is sent notes what the ledger says.
            self.retention = Some(retention);
            self.send(part, effect, server.revision());
            let Some(back) = self.retention.take() else { return taken };
            retention = back;
        }
        self.retention = Some(retention);
        taken
    }

    /// Tells the engine an answer.
    pub fn take_return(&mut self, answer: Return, server: &Server, now: i64) {
        let Return { found, observations, flight, outcome, told } = answer;
        if let Some(told) = told {
            self.clocks.observe(&told, flight.steady, now);
        }
        if let (Some(member), Some(policies)) = (&flight.policy, &mut self.policies) {
            self.events += 1;
            policies.answered(member, flight.effect.id, &outcome);
            return;
        }
        if flight.part != Part::Ownership {
            self.take_retention_return(&flight, observations, outcome);
            return;
        }
        for event in found {
            self.tell(event, server);
        }
        self.tell(Event::Done(flight.effect.id, outcome), server);
    }

    fn take_retention_return(&mut self, flight: &Flight, observations: Vec<Observation>, outcome: Outcome) {
        self.events += 1;
        let Some(retention) = &mut self.retention else { return };
        let (steady, part) = (self.clocks.steady(), flight.part);
        if let (Request::Read { key }, Outcome::Absent | Outcome::Found(_)) =
            (&flight.effect.request, &outcome)
        {
            let absent = outcome == Outcome::Absent;
            let (decided, unknown_since) = (flight.steady, flight.unknown_since);
            let look = LookUp { decided, answered: steady, absent, unknown_since };
            retention.ledger.looked(part, &key.name, look);
        }
        for observation in &observations {
            if let Observation::Machine { uid, state, .. } = observation {
                retention.ledger.machine(uid, state, steady);
            }
        }
        let credulous = self.saboteur.is(Defect::NodeByOneAnswer);
        if let Some(outcome) = self.saboteur.retention_outcome(outcome) {
            retention.answered(part, flight.effect.id, observations, outcome);
            if credulous && part == Part::Nodes {
                retention.insist(self.clocks.shown());
            }
        }
    }

    /// One round of discovery.
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
                    self.watchers.insert(id, Watcher::new(index));
                    self.tell(Event::ResourceServed(info), server);
                }
                (Some(info), false) => {
                    let id = info.id;
                    self.known.remove(&index);
                    // Whatever is known of it will be told anew.
                    let gone = self.watchers.remove(&id);
                    self.former[index] = gone.as_ref().map_or(0, |watcher| watcher.delivered);
                    self.retold += 1 + gone.map_or(0, |watcher| watcher.retold);
                    if let Some(retention) = &mut self.retention {
                        let gone = Event::ResourceGone(id);
                        retention.told(index, &gone, None, self.clocks.steady(), &mut self.saboteur);
                    }
                    self.tell(Event::ResourceGone(id), server);
                }
                _ => {}
            }
        }
        if !self.announced {
            self.announced = true;
            self.tell(Event::Discovered, server);
        }
    }

    /// How many resources it watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.watchers.len()
    }

    /// The resource at a position.
    #[must_use]
    pub fn resource_at(&self, position: usize) -> Option<ResourceId> {
        let count = self.watchers.len();
        if count == 0 { None } else { self.watchers.keys().nth(position % count).copied() }
    }

    /// Breaks the watch of a resource.
    pub fn break_stream(&mut self, id: ResourceId, fault: StreamFault, server: &Server) {
        if self.watchers.get_mut(&id).is_some_and(|watcher| watcher.break_off(fault)) {
            self.tell(Event::Stale(id), server);
        }
    }

    /// The server was replaced by one with an older store: every watch fails and lists anew, and what was on its way
    /// is lost.
    pub fn disconnect(&mut self, server: &Server) {
        if let Some(policies) = &mut self.policies {
            policies.disconnect();
        }
        for id in self.watchers.keys().copied().collect::<Vec<_>>() {
            self.break_stream(id, StreamFault::Expired, server);
            if let Some(watcher) = self.watchers.get_mut(&id) {
                watcher.relisted = false;
            }
        }
        self.bewildered = true;
        let answered = std::mem::take(&mut self.returns).into_iter().map(|answer| answer.flight);
        let lost: Vec<Flight> = answered.chain(std::mem::take(&mut self.requests)).collect();
        for flight in lost {
            let message = "connection refused".to_owned();
            let outcome = Outcome::Failed { message, retry_after_milliseconds: None };
            let (found, observations) = (Vec::new(), Vec::new());
            self.returns.push(Return { found, observations, flight, outcome, told: None });
        }
    }

    /// Lets the watch of a resource tell at most so many events. Returns whether anything was told.
    pub fn deliver(&mut self, id: ResourceId, most: usize, server: &Server) -> bool {
        let Some(mut watcher) = self.watchers.remove(&id) else { return false };
        let events = watcher.read(id, most, server);
        // Back before the engine acts on what it is told: requests note how far the watches are.
        let kind = watcher.kind;
        self.watchers.insert(id, watcher);
        let any = !events.is_empty();
        for (event, object) in events {
            if let Some(retention) = &mut self.retention {
                let steady = self.clocks.steady();
                retention.told(kind, &event, object.as_deref(), steady, &mut self.saboteur);
            }
            self.tell(event, server);
        }
        self.come_to_itself();
        any
    }

    /// Lets one of the watches of the policies tell something. Returns whether anything was told.
    pub fn deliver_to_policies(&mut self, position: usize, most: usize, server: &Server) -> bool {
        let Some(policies) = &mut self.policies else { return false };
        let told = policies.deliver(position, most, server);
        self.events += told as u64;
        self.come_to_itself();
        told > 0
    }

    /// A restored store has been listed by everyone.
    fn come_to_itself(&mut self) {
        if self.bewildered
            && self.watchers.values().all(|watcher| watcher.relisted)
            && self.policies.as_ref().is_none_or(Policies::is_relisted)
        {
            self.bewildered = false;
        }
    }
}

/// The resource of what an effect changes, if it depends on the time.
fn timed(effect: &Effect) -> Option<ResourceId> {
    let (Request::Delete { key, .. } | Request::Guarded { key, .. }) = &effect.request else { return None };
    effect.reason.is_timed().then_some(key.resource)
}

/// What nobody reasoned.
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

/// What a request is about, and under which UID.
fn about(request: &Request) -> Option<(&ObjectKey, Option<&Uid>)> {
    match request {
        Request::Delete { key, uid, .. } => Some((key, Some(uid))),
        Request::Read { key } => Some((key, None)),
        _ => None,
    }
}
