//! The world: one thread in which a story happens to a server, its clients, and its collectors.

mod clocks;
mod election;
mod operator;
mod policies;
mod serving;
mod shards;

use std::collections::BTreeMap;

use gc_ownership::{Config, Shard};

use crate::candidates::{Candidate, CutOff, Network, Reign, lease_of};
use crate::clients;
use crate::collector::{Collector, Flight};
use crate::defects::Defect;
use crate::kinds::{KINDS, ORDINARY_KINDS, kind_index};
use crate::liars::{Liar, Lie, LieChannel};
use crate::losses::is_loss;
use crate::oracle::{self, Exemptions, Oracle};
use crate::performed::Part;
use crate::policies::Policies;
use crate::policy_verdicts::PolicyBook;
use crate::process::Orders;
use crate::provider::Provider;
use crate::random::Random;
use crate::restraints::RestraintBook;
use crate::saboteur::Saboteur;
use crate::server::{BEGINNING_MILLISECONDS, Server};
use crate::show::show_request;
use crate::story::{Step, Story, StreamFault};
use crate::tenants::Tenants;
use crate::truth::{Actor, TrueChange, Truth};
use crate::verdicts;
use crate::violation::Violation;

/// Maximum time that passes in an ordinary step, in milliseconds.
const STEP_MILLISECONDS: usize = 200;
/// Times that pass in some steps with retention, in milliseconds.
const RETENTION_STEPS_MILLISECONDS: [i64; 8] =
    [2_000, 6_000, 6_000, 21_000, 41_000, 65_000, 3_700_000, 90_000_000];
/// Maximum number of transactions by which a store is put back.
const RESTORED_BACK: usize = 25;
/// Maximum time until everything rests once faults have stopped, simulated milliseconds.
pub const REST_MILLISECONDS: i64 = 12_000_000;
/// The same maximum with retention, which waits for a day.
pub const RETENTION_REST_MILLISECONDS: i64 = 100_000_000;
/// Time without changes after which a collector that only repeats its reads of owners counts as resting in a world in which an answer
/// lied: three times the longest delay between these reads. A lie may hide a living owner, which is then read for ever.
const POLLS_MILLISECONDS: i64 = 360_000;
/// Maximum number of rounds of deliveries, requests and responses until then.
pub const REST_ROUNDS: usize = 3_000;
/// Maximum number of items for which the trace of a violation explains why the collector waits.
const STUCK_TOLD: usize = 10;
/// Number of lies about nodes per thousand in a world with retention.
const LIES_ABOUT_NODES: u32 = 300;
/// Number of steps between two checks of the invariants.
const VERIFIED_EVERY: usize = 16;

/// Settings of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Defect to plant.
    pub defect: Option<Defect>,
    /// True if the transport tells a lie (see [`crate::liars`]).
    pub liars: bool,
    /// True if the collectors are shards.
    pub shards: bool,
    /// True if each shard elects its leader.
    pub elections: bool,
    /// True if a trace is recorded.
    pub trace: bool,
}

impl Options {
    /// Returns the story of a seed.
    #[must_use]
    pub fn story(self, seed: u64) -> Story {
        match (self.shards, self.elections) {
            (true, true) => Story::of_elected_shards(seed),
            (true, false) => Story::of_shards(seed),
            (false, _) => Story::new(seed),
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// First violation.
    pub violation: Option<Violation>,
    /// Number of events that engines got.
    pub events: u64,
    /// Number of requests that reached the server from collectors.
    pub requests: u64,
    /// Number of objects that collectors deleted.
    pub collected: u64,
    /// Cases that were not judged.
    pub exemptions: Exemptions,
    /// Number of occurrences of each event.
    pub happened: BTreeMap<&'static str, u64>,
    /// Trace of the run, if it was requested.
    pub trace: Vec<String>,
    /// A number that two runs share only if they were equal.
    pub digest: u64,
}

impl Report {
    /// Counts an occurrence of an event.
    pub(crate) fn note_happened(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// Mixes a number into the digest.
    pub(crate) fn mix(&mut self, number: u64) {
        self.digest = (self.digest ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }
}

/// A world in which a story runs.
#[derive(Debug)]
pub struct World<'a> {
    story: &'a Story,
    options: Options,
    server: Server,
    truth: Truth,
    oracle: Oracle,
    collectors: Vec<Collector>,
    /// Number of shards that the operator wants.
    shards: u32,
    born: usize,
    /// Requests of collectors that have ended, still in flight.
    adrift: Vec<Flight>,
    now: i64,
    /// Difference between the server's clock and the world's.
    server_error: i64,
    /// Maximum lead that the server's clock had.
    server_ahead: i64,
    provider: Provider,
    network: Network,
    cut_off: CutOff,
    reign: Reign,
    book: PolicyBook,
    /// Orders of the operator of all collectors.
    orders: Orders,
    restraints: RestraintBook,
    /// Liar, until its lie was sent.
    liar: Option<Liar>,
    /// Lie in the next response to a live read or to the list of a barrier.
    lie: Option<(Lie, u64)>,
    /// True if a lie may have been believed, so only losses count.
    is_deceived: bool,
    report: Report,
}

/// Runs a story.
#[must_use]
pub fn run(story: &Story, options: Options) -> Report {
    let mut world = World::new(story, options);
    if let Err(violation) = world.happen() {
        for index in 0..world.collectors.len() {
            let said = world.collectors[index].engine().stuck(STUCK_TOLD);
            for stuck in said {
                world.note(|| format!("  collector waits: {stuck:?}"));
            }
        }
        world.note(|| format!("VIOLATION {violation}"));
        world.report.violation = Some(violation);
    }
    world.report.exemptions = world.oracle.exemptions;
    for collector in &world.collectors {
        world.report.events += collector.events;
        *world.report.happened.entry("breaker trips").or_default() += collector.process.trips();
    }
    let events = world.report.events;
    world.report.mix(events);
    world.report
}

impl<'a> World<'a> {
    fn new(story: &'a Story, options: Options) -> Self {
        let mut world = Self {
            story,
            options,
            server: Server::new(story.seed),
            truth: Truth::default(),
            oracle: Oracle::default(),
            collectors: Vec::new(),
            shards: shards::first_count(story),
            born: 0,
            adrift: Vec::new(),
            now: BEGINNING_MILLISECONDS,
            server_error: 0,
            server_ahead: 0,
            provider: Provider::default(),
            network: Network::new(story.seed, story.weather),
            cut_off: CutOff::default(),
            reign: Reign::default(),
            book: PolicyBook::default(),
            orders: Orders::default(),
            restraints: RestraintBook::new(story),
            liar: options.liars.then(|| Liar::of(story)),
            lie: None,
            is_deceived: false,
            report: Report::default(),
        };
        world.begin_missing_shards(election::collectors_of_shard(story));
        if story.election && !story.shards {
            for _ in 1..election::candidates(story.seed) {
                world.begin_collector();
            }
        }
        world
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.options.trace {
            self.report.trace.push(text());
        }
    }

    fn begin_collector(&mut self) {
        self.begin_shard(Shard::WHOLE);
    }

    fn begin_shard(&mut self, shard: Shard) {
        let shard = self.planted_shard(shard);
        let config = Config {
            effects_in_flight: self.story.effects_in_flight,
            withdrawn_wait_milliseconds: match self.options.defect {
                Some(Defect::WithdrawalUnawaited) => 0,
                _ => Config::default().withdrawn_wait_milliseconds,
            },
            conflicts_before_uid_only: if self.story.uid_only { 3 } else { u32::MAX },
            shard,
            ..Config::default()
        };
        let saboteur = Saboteur::new(self.options.defect).of_shard(shard);
        let mut collector = Collector::new(self.born, config, self.story, saboteur);
        collector.process.orders = self.orders;
        if self.story.election {
            let candidate =
                Candidate::new(self.born, shard, self.now, &mut self.network, self.options.defect);
            collector.candidate = Some(candidate);
        }
        self.born += 1;
        collector.tick(self.now);
        collector.discover(&self.server, None, 0);
        // Most collectors get all objects quickly; some are interrupted in the middle.
        if !self.born.is_multiple_of(4) {
            observe_all(&mut collector, &self.server);
        }
        self.collectors.push(collector);
    }

    fn happen(&mut self) -> Result<(), Violation> {
        if self.story.election {
            self.begin_elections()?;
        }
        for (index, step) in self.story.steps.iter().enumerate() {
            if self.liar.is_some_and(|liar| liar.at <= index) {
                self.deceive();
            }
            let done = self.step(*step);
            self.unless_deceived(done)?;
            if index.is_multiple_of(VERIFIED_EVERY) && !self.is_deceived {
                for collector in &self.collectors {
                    oracle::judge_bounds(collector)?;
                }
            }
            self.report.mix(self.server.revision());
        }
        self.note(|| "-- faults end, everything arrives".to_owned());
        let rested = self.rest();
        self.unless_deceived(rested)?;
        self.judge_rest()?;
        self.note(|| "-- clients take off their finalizers".to_owned());
        for target in self.truth.clone().objects().filter(|target| target.object.deletion.foreign_finalizers)
        {
            clients::release(&self.server, target, self.story.retention);
        }
        self.absorb_others();
        let rested = self.rest();
        self.unless_deceived(rested)?;
        self.judge_rest()
    }

    /// Prompts the liar to lie to a collector at the next opportunity.
    fn deceive(&mut self) {
        let Some(Liar { lie, salt, .. }) = self.liar else { return };
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return };
        // Nodes are one kind of many, but the loss of one leads to many deletions.
        let nodes = self.collectors[index].resource_of(kind_index("Node"));
        let nodes = nodes.filter(|_| self.story.retention && random.chance(LIES_ABOUT_NODES));
        let Some(id) = nodes.or_else(|| self.collectors[index].resource_at(random.below(64))) else { return };
        let collector = &mut self.collectors[index];
        match lie.channel() {
            LieChannel::Reads | LieChannel::Barriers => {
                self.lie = Some((lie, salt));
                // An object that an old list lacks leads to a live read.
                if lie.channel() == LieChannel::Reads && random.chance(700) {
                    collector.break_stream(id, StreamFault::StaleList, &self.server);
                }
            }
            LieChannel::Lists | LieChannel::Watches => collector.deceive(id, (lie, salt), &self.server),
        }
        (self.liar, self.is_deceived) = (None, true);
        self.report.note_happened(lie.name());
        self.note(|| format!("  the transport is about to lie: {lie:?}"));
    }

    /// After a lie, ignores violations for missing or repeated work; only losses count.
    fn unless_deceived(&self, done: Result<(), Violation>) -> Result<(), Violation> {
        match done {
            Err(violation) if self.is_deceived && !is_loss(&violation, Part::Claims) => Ok(()),
            done => done,
        }
    }

    fn judge_rest(&self) -> Result<(), Violation> {
        if self.is_deceived {
            return Ok(());
        }
        self.collectors.iter().try_for_each(|collector| oracle::judge_rest(&self.truth, collector))?;
        let Some(collector) = self.collectors.first() else { return Ok(()) };
        if self.story.retention {
            verdicts::judge_rest(&self.truth, collector, &self.provider)?;
            self.book.judge_rest(&self.truth, collector)?;
        }
        Ok(())
    }

    // ---- steps ----

    fn step(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Client(salt) => {
                let mut random = Random::new(salt);
                let what = if self.story.retention && random.chance(600) {
                    let (server, truth, provider) = (&self.server, &self.truth, &mut self.provider);
                    Tenants { server, truth, provider }.act(random.next())
                } else {
                    clients::act(&self.server, &self.truth, salt, self.story.retention)
                };
                self.note(|| what);
                self.absorb_others();
            }
            Step::Deliver(salt) => self.deliver(salt),
            Step::Effects(salt) => return self.take_effects(salt),
            Step::Serve(salt, fault) => return self.serve_some(salt, fault),
            Step::Answer(salt) => self.answer_some(salt),
            Step::Tick(salt) => {
                let mut random = Random::new(salt);
                let long = random.chance(40);
                let passed = if long { 31_000 } else { random.below(STEP_MILLISECONDS) };
                let passed = i64::try_from(passed).unwrap_or(0);
                // Retention works on a longer time scale.
                let longer = self.story.retention && random.chance(300);
                let passed = if longer { random.pick(&RETENTION_STEPS_MILLISECONDS) } else { passed };
                let electing = election::STEPS_MILLISECONDS;
                return self.pass(if self.story.election { random.pick(&electing) } else { passed });
            }
            Step::Break(salt, fault) => {
                let mut random = Random::new(salt);
                if let Some(index) = self.moving(&mut random) {
                    let collector = &mut self.collectors[index];
                    if let Some(policies) = collector.policies.as_mut().filter(|_| random.chance(300)) {
                        policies.break_stream(random.below(64), fault);
                        self.note(|| format!("  a watch of the policies: {fault:?}"));
                    } else if let Some(id) = collector.resource_at(random.below(64)) {
                        collector.break_stream(id, fault, &self.server);
                        let kind = collector.kind_of(id).unwrap_or(0);
                        self.report.note_happened("streams broken");
                        self.note(|| format!("  watch of {}: {fault:?}", KINDS[kind].resource));
                    }
                }
            }
            Step::Discover(salt, fault) => {
                let mut random = Random::new(salt);
                if let Some(index) = self.moving(&mut random) {
                    let mut collector = self.collectors.remove(index);
                    collector.discover(&self.server, fault, random.next());
                    self.collectors.insert(index, collector);
                    if let Some(fault) = fault {
                        self.report.note_happened("discoveries failed");
                        self.note(|| format!("  discovery: {fault:?}"));
                    }
                }
            }
            Step::Housekeeping(_) => self.keep_house(),
            Step::Definition(salt) => self.define(salt),
            Step::Compact => {
                self.server.compact();
                self.note(|| "  history is compacted".to_owned());
            }
            Step::Restore(salt) => self.restore(salt),
            Step::Crash(salt) => self.crash(salt),
            Step::Pause if self.story.election => return self.pause_leader(),
            Step::Resume if self.story.election => return self.wake_leaders(),
            Step::Retire if self.story.election => self.retire_leader(),
            Step::Partition(salt) => self.partition(salt),
            Step::Operate(salt) => self.operate(salt),
            Step::Pause if self.story.shards => self.suspend_shard(),
            Step::Resume if self.story.shards => self.wake_shards(),
            Step::Retire if self.story.shards => self.renumber_shards(),
            Step::Pause => {
                if self.collectors.len() == 1 {
                    self.collectors[0].paused = true;
                    self.begin_collector();
                    self.report.note_happened("leader changes");
                    self.note(|| "  the leader stops moving, another takes over".to_owned());
                }
            }
            Step::Resume => {
                if self.collectors.len() > 1 && std::mem::take(&mut self.collectors[0].paused) {
                    self.report.note_happened("old leaders woken");
                    self.note(|| "  the old leader continues, unaware".to_owned());
                }
            }
            Step::Retire => self.retire(),
            Step::ClockJump(salt) => return self.disturb_clocks(salt),
        }
        Ok(())
    }

    /// Returns a collector that moves.
    fn moving(&self, random: &mut Random) -> Option<usize> {
        let moving: Vec<usize> =
            (0..self.collectors.len()).filter(|&index| !self.collectors[index].paused).collect();
        (!moving.is_empty()).then(|| moving[random.below(moving.len())])
    }

    fn pass(&mut self, milliseconds: i64) -> Result<(), Violation> {
        if self.story.election {
            self.pass_electing(milliseconds)?;
        } else {
            self.now += milliseconds;
            self.server.now += milliseconds;
        }
        for collector in &mut self.collectors {
            collector.clocks.pass(milliseconds);
        }
        self.ask_for_the_time();
        for collector in self.collectors.iter_mut().filter(|collector| !collector.paused) {
            collector.tick(self.now);
        }
        Ok(())
    }

    fn deliver(&mut self, salt: u64) {
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return };
        for _ in 0..6 {
            let (position, most) = (random.below(64), 1 + random.below(4));
            let patience = random.chance(125);
            let collector = &mut self.collectors[index];
            let Some(id) = collector.resource_at(position) else { return };
            if self.cut_off.is(collector.number, self.now) {
                return;
            }
            if self.story.retention && random.chance(300) {
                if collector.deliver_to_policies(position, most, &self.server) {
                    self.note(|| "  delivered policies".to_owned());
                    return;
                }
                continue;
            }
            let kind = collector.kind_of(id).unwrap_or(0);
            if self.story.slow & (1 << kind) != 0 && !patience {
                continue;
            }
            if collector.deliver(id, most, &self.server) {
                self.note(|| format!("  delivered {}", KINDS[kind].resource));
                return;
            }
        }
    }

    fn take_effects(&mut self, salt: u64) -> Result<(), Violation> {
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return Ok(()) };
        let most = 1 + random.below(4);
        let before = self.decide(index, most)?;
        // Some requests wait for their turn before they are sent.
        for position in (before..self.collectors[index].requests.len()).rev() {
            if random.chance(400) {
                self.hand_over(index, position)?;
            }
        }
        Ok(())
    }

    /// Lets a collector decide on at most this many effects. Returns the number of requests that were in flight before.
    fn decide(&mut self, index: usize, most: usize) -> Result<usize, Violation> {
        let before = self.collectors[index].requests.len();
        self.collectors[index].take_effects(most, &self.server, self.now);
        self.note_decisions(index, before);
        self.judge_decisions(index, before)?;
        Ok(before)
    }

    fn judge_decisions(&self, index: usize, before: usize) -> Result<(), Violation> {
        if self.is_deceived {
            return Ok(());
        }
        let collector = &self.collectors[index];
        let new = || collector.requests.iter().skip(before);
        new().try_for_each(|flight| verdicts::judge_clocks(flight, collector))?;
        new().try_for_each(|flight| self.restraints.judge_decision(flight, self.orders))?;
        self.restraints.judge_limit(collector)?;
        new().filter(|flight| flight.policy.is_some()).try_for_each(|flight| self.book.judge_decision(flight))
    }

    fn note_decisions(&mut self, index: usize, before: usize) {
        if !self.options.trace {
            return;
        }
        let collector = &self.collectors[index];
        let new = collector.requests.iter().skip(before);
        let lines: Vec<String> = new
            .map(|flight| {
                let what = show_request(flight.kind.unwrap_or(0), &flight.effect.request);
                let (number, part) = (collector.number, flight.part);
                format!("  collector {number} ({part:?}) wants {what}: {}", flight.effect.reason)
            })
            .collect();
        self.report.trace.extend(lines);
    }

    fn keep_house(&mut self) {
        self.server.maintain();
        clients::end_pods(&self.server, &self.truth);
        self.absorb_others();
    }

    fn define(&mut self, salt: u64) {
        let there = if self.story.retention { KINDS.len() } else { ORDINARY_KINDS };
        let custom: Vec<usize> = (0..there).filter(|&index| KINDS[index].custom).collect();
        let mut random = Random::new(salt);
        let kind = &KINDS[custom[random.below(custom.len())]];
        if self.server.serves(kind) {
            self.server.undefine(kind);
            self.note(|| format!("the definition of {} is deleted", kind.resource));
        } else {
            self.server.define(kind);
            self.note(|| format!("the definition of {} is made again", kind.resource));
        }
        self.report.note_happened("definitions changed");
        self.keep_house();
    }

    fn restore(&mut self, salt: u64) {
        let mut random = Random::new(salt);
        let back = 1 + random.below(RESTORED_BACK);
        if self.story.retention && random.chance(500) {
            self.say_in_vain(&mut random);
        }
        let generations = self.generations();
        let newest = self.server.restore(back);
        self.truth.restored(&self.server);
        for object in self.truth.objects() {
            self.book.note(object);
        }
        self.oracle.restored(newest);
        self.reign.restored(&self.server, self.now);
        self.adrift.clear();
        self.note(|| format!("the store is put back to revision {newest}"));
        if self.story.retention && random.chance(700) {
            self.say_anew(&generations, &mut random);
        }
        let soon_heard = random.chance(500);
        let lost: usize = self.collectors.iter().map(|collector| collector.returns.len()).sum();
        *self.report.happened.entry("answers lost by restores").or_default() += lost as u64;
        for collector in &mut self.collectors {
            collector.disconnect(&self.server);
            if soon_heard && !collector.paused {
                observe_all(collector, &self.server);
            }
        }
        self.report.note_happened("stores restored");
    }

    /// Keeps the requests of a dead collector, which may still arrive.
    fn set_adrift(&mut self, collector: Collector, random: &mut Random) {
        self.report.events += collector.events;
        for flight in collector.requests {
            if flight.handed && random.chance(500) {
                self.adrift.push(flight);
            }
        }
    }

    fn crash(&mut self, salt: u64) {
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return };
        let collector = self.collectors.remove(index);
        self.report.note_happened("crashes");
        self.note(|| format!("  collector {} dies, another starts", collector.number));
        let shard = collector.engine().config().shard;
        self.set_adrift(collector, &mut random);
        if self.story.shards {
            self.replace_shard(shard, &mut random);
        } else {
            self.begin_collector();
        }
    }

    fn retire(&mut self) {
        if self.collectors.len() > 1 {
            let collector = self.collectors.remove(0);
            self.note(|| format!("  collector {} retires", collector.number));
            self.set_adrift(collector, &mut Random::new(self.story.seed));
        }
    }

    // ---- requests ----

    /// Returns the changes in the store, except those of the Lease, which are recorded separately.
    fn changes(&mut self) -> Vec<TrueChange> {
        let mut objects = Vec::new();
        for change in self.server.changes() {
            if let Some(lease) = lease_of(&change.key) {
                if let Some(holder) = self.reign.stored(lease, &change) {
                    self.report.note_happened("leases taken");
                    self.note(|| format!("the lease {lease} is held by {holder:?}"));
                }
            } else {
                objects.extend(Truth::read(&change));
            }
        }
        objects
    }

    /// Applies a change to the truth.
    fn apply(&mut self, change: &TrueChange, actor: Actor) {
        self.truth.apply(change, actor);
        if let Some(after) = &change.after {
            self.book.note(after);
        }
    }

    /// Applies the changes that no collector made.
    fn absorb_others(&mut self) {
        for change in self.changes() {
            for side in [&change.before, &change.after].into_iter().flatten() {
                self.oracle.excuse(&side.object.uid);
            }
            self.apply(&change, Actor::Others);
        }
    }

    // ---- rest ----

    /// Brings the world to rest after the last fault: everything arrives, and time passes until nothing more happens.
    fn rest(&mut self) -> Result<(), Violation> {
        self.end_surplus_collectors();
        for flight in std::mem::take(&mut self.adrift) {
            self.serve(None, &flight, None)?;
        }
        for collector in &mut self.collectors {
            collector.paused = false;
        }
        self.end_orders();
        if self.story.election {
            self.end_elections()?;
        }
        for kind in KINDS.iter().filter(|kind| kind.custom) {
            self.server.maintain();
            self.server.define(kind);
        }
        if self.story.retention {
            let (server, truth, provider) = (&self.server, &self.truth, &mut self.provider);
            Tenants { server, truth, provider }.repair();
        }
        self.keep_house();
        self.synchronize_clocks()?;
        // Objects with a timestamp in the future are due later, and meanwhile the provider is asked every five seconds.
        let begin = self.now + self.server_ahead;
        let (mut end, retention_end) = (begin + REST_MILLISECONDS, begin + RETENTION_REST_MILLISECONDS);
        let (mut revision, mut changed) = (self.truth.revision, begin);
        let rounds = REST_ROUNDS + usize::try_from(self.server_ahead / 1_000).unwrap_or_default();
        for _ in 0..rounds {
            if self.round()? || self.resume_breaker() {
                continue;
            }
            self.keep_house();
            // A definition that was still being deleted could not be created again before.
            for kind in KINDS.iter().filter(|kind| kind.custom) {
                if !self.server.serves(kind) {
                    self.server.define(kind);
                }
            }
            for collector in &mut self.collectors {
                collector.discover(&self.server, None, 0);
            }
            if self.round()? {
                continue;
            }
            if self.truth.revision > revision {
                // Deletions by retention, up to a day later, create work for the ownership collector, which may have to wait for
                // its turn.
                (revision, changed) = (self.truth.revision, self.now);
                end = end.max(self.now + REST_MILLISECONDS);
            }
            let wakeups = self.collectors.iter().flat_map(|collector| {
                let (ownership, others) = collector.next_wakeups(self.now);
                let only_polls = self.is_deceived && collector.engine().only_polls_left();
                let end = if only_polls { changed + POLLS_MILLISECONDS } else { end };
                ownership.filter(|at| *at <= end).into_iter().chain(others.filter(|at| *at <= retention_end))
            });
            let next = wakeups.min();
            match next {
                Some(at) => self.pass(at - self.now)?,
                // A request about the Lease that was in flight for long has cost its leader the Lease, so another one takes over.
                None if self.story.election && self.is_leaderless() => self.end_elections()?,
                None => return Ok(()),
            }
        }
        let message = format!("no rest after {rounds} rounds");
        Err(Violation { oracle: "liveness", message })
    }

    /// Delivers everything in flight. Returns false if there was nothing.
    fn round(&mut self) -> Result<bool, Violation> {
        let mut any = false;
        for index in 0..self.collectors.len() {
            any |= self.round_of(index)?;
        }
        Ok(any)
    }

    fn round_of(&mut self, index: usize) -> Result<bool, Violation> {
        let mut any = false;
        let collector = &mut self.collectors[index];
        for position in 0..collector.watched() {
            if let Some(id) = collector.resource_at(position) {
                any |= collector.deliver(id, 64, &self.server);
            }
        }
        for answer in std::mem::take(&mut collector.returns) {
            let moment = collector.clocks.moment_at(self.now);
            self.restraints.note_answer(&answer, moment);
            collector.take_return(answer, &self.server, self.now);
            any = true;
        }
        for position in (0..self.collectors[index].requests.len()).rev() {
            any |= !self.hand_over(index, position)?;
        }
        for flight in std::mem::take(&mut self.collectors[index].requests) {
            let performed = self.serve(Some(index), &flight, None)?;
            self.return_to(index, flight, performed);
            any = true;
        }
        any |= index == 0 && self.round_of_policies()?;
        let before = self.collectors[index].requests.len();
        any |= self.collectors[index].take_effects(usize::MAX, &self.server, self.now) > 0;
        self.note_decisions(index, before);
        self.judge_decisions(index, before)?;
        any |= self.collectors[index].policies.as_ref().is_some_and(|policies| !policies.statuses.is_empty());
        Ok(any)
    }
}

/// Lets every watch list and deliver all objects.
fn observe_all(collector: &mut Collector, server: &Server) {
    for position in 0..collector.watched() {
        for _ in 0..3 {
            if let Some(id) = collector.resource_at(position) {
                collector.deliver(id, 64, server);
            }
        }
    }
    for position in 0..collector.policies.as_ref().map_or(0, Policies::watched) {
        for _ in 0..3 {
            collector.deliver_to_policies(position, 64, server);
        }
    }
}
