//! Worlds with several collectors, where a Lease lets only one act at a time.

use gc_types::Request;

use super::{World, observe_all};
use crate::candidates::{LEADER_MILLISECONDS, Term, Times};
use crate::collector::{Collector, Flight};
use crate::defects::Defect;
use crate::performed::PerformedRequest;
use crate::random::Random;
use crate::show::show_request;
use crate::story::Story;
use crate::violation::Violation;
use crate::violation::broken;

/// Times that pass in a step, in milliseconds.
pub(super) const STEPS_MILLISECONDS: [i64; 8] = [100, 300, 1_000, 2_500, 4_000, 7_000, 12_000, 17_000];
/// Steps in which time passes, in milliseconds: normally, and when much of it passes.
const SLICE_MILLISECONDS: (i64, i64) = (100, 250);
/// Time above which the coarser steps are used, in milliseconds.
const MUCH_TIME_MILLISECONDS: i64 = 20_000;
/// Interval at which a rest checks that a candidate leads, in milliseconds.
const LOOKED_EVERY_MILLISECONDS: i64 = 1_000;
/// Durations of a partition between a collector and the server, in milliseconds.
const PARTITION_MILLISECONDS: [i64; 4] = [3_000, 8_000, 12_000, 20_000];
/// Number of suspended leaders per thousand that have just made decisions, and the maximum number of these requests.
const SUSPENDED_AT_WORK: u32 = 900;
const DECIDED_AT_ONCE: usize = 4;
/// Number of suspended leaders per thousand that first send their earlier decisions when they continue.
const SENDS_FIRST: u32 = 900;
/// Number of collectors per thousand that keep their graph when they cannot renew the Lease; the others end.
const KEEPS_GRAPH: u32 = 700;
/// Number per thousand of orderly ends in worlds of shards that begin another number of them.
const RENUMBERED: u32 = 500;
/// Time after which a candidate leads in most worlds, and the story begins.
const BEGINNING_MILLISECONDS: i64 = 1_000;

/// Number of candidates of each shard.
const CANDIDATES_OF_SHARD: usize = 2;

/// Returns the number of collectors of each shard.
pub(super) fn collectors_of_shard(story: &Story) -> usize {
    if story.election && story.shards { CANDIDATES_OF_SHARD } else { 1 }
}

/// Returns the number of candidates in the world of a seed.
pub(super) fn candidates(seed: u64) -> usize {
    if seed.is_multiple_of(3) { 3 } else { 2 }
}

/// Reports whether a request must pass the gate.
fn changes(request: &Request) -> bool {
    !matches!(request, Request::Read { .. } | Request::Barrier { .. } | Request::RecordEvent(_))
}

impl World<'_> {
    pub(super) fn begin_elections(&mut self) -> Result<(), Violation> {
        self.pass(if self.story.seed.is_multiple_of(5) { 0 } else { BEGINNING_MILLISECONDS })
    }

    /// Ends the faults of elections: a candidate must lead before long.
    pub(super) fn end_elections(&mut self) -> Result<(), Violation> {
        self.network.calm();
        self.cut_off.heal();
        let end = self.now + LEADER_MILLISECONDS;
        self.begin_missing_shards(1);
        while self.is_leaderless() {
            if self.now >= end {
                return broken("lease", format!("no candidate leads after {LEADER_MILLISECONDS} ms"));
            }
            self.begin_missing_shards(1);
            self.pass(LOOKED_EVERY_MILLISECONDS)?;
        }
        Ok(())
    }

    /// Lets time pass while the election continues.
    pub(super) fn pass_electing(&mut self, milliseconds: i64) -> Result<(), Violation> {
        let (fine, rough) = SLICE_MILLISECONDS;
        let slice = if milliseconds > MUCH_TIME_MILLISECONDS { rough } else { fine };
        let end = self.now + milliseconds;
        self.elect()?;
        while self.now < end {
            self.now = end.min(self.now + slice);
            self.server.now = self.now;
            self.elect()?;
        }
        Ok(())
    }

    /// Delivers requests about the Lease, and lets every candidate that is not suspended continue the election.
    fn elect(&mut self) -> Result<(), Violation> {
        let unguarded = self.options.defect == Some(Defect::LeaseUnguarded);
        let landed = self.network.arrive(&self.server, self.now, unguarded);
        if !landed.is_empty() {
            for (lease, since) in &landed {
                self.reign.landed(lease, *since, self.now);
            }
            self.absorb_others();
        }
        let mut index = 0;
        while index < self.collectors.len() {
            let times = self.times(index);
            let collector = &mut self.collectors[index];
            let term = match &mut collector.candidate {
                Some(candidate) if !collector.paused => candidate.go_on(times, &mut self.network),
                _ => Term::Continues,
            };
            if term == Term::Continues {
                index += 1;
                continue;
            }
            self.report.note_happened("leases lost");
            let mut random = Random::new(self.story.seed ^ self.now.unsigned_abs());
            if term == Term::NotRenewed && random.chance(KEEPS_GRAPH) {
                self.stand_by(index, &mut random);
                index += 1;
            } else {
                self.end_collector(index, "has lost the lease and ends");
            }
        }
        let candidates = self.collectors.iter().filter_map(|collector| collector.candidate.as_ref());
        self.reign.judge_together(candidates, self.now)
    }

    /// Lets a collector that has lost the Lease stand by with its graph. It gives up what it has sent, which may still arrive.
    fn stand_by(&mut self, index: usize, random: &mut Random) {
        let times = self.times(index);
        let collector = &mut self.collectors[index];
        if let Some(candidate) = &mut collector.candidate {
            candidate.stand_by(times, &mut self.network);
        }
        let unread = collector.returns.iter().map(|answer| &answer.flight);
        for flight in unread.filter(|flight| changes(&flight.effect.request)) {
            self.oracle.give_up(flight);
        }
        let given_up = collector.lose("given up", |flight| changes(&flight.effect.request));
        self.adrift.extend(given_up.into_iter().filter(|flight| flight.handed && random.chance(500)));
        self.report.note_happened("lost leases with a graph kept");
        let number = self.collectors[index].number;
        self.note(|| format!("  collector {number} has lost the lease and stands by"));
    }

    /// Ends a collector, and starts another.
    fn end_collector(&mut self, index: usize, why: &str) {
        let collector = self.collectors.remove(index);
        let shard = collector.engine().config().shard;
        self.note(|| format!("  collector {} {why}", collector.number));
        let mut random = Random::new(self.story.seed ^ self.now.unsigned_abs());
        self.set_adrift(collector, &mut random);
        if self.story.shards {
            self.replace_shard(shard, &mut random);
        } else {
            self.begin_collector();
        }
    }

    fn times(&self, index: usize) -> Times {
        let collector = &self.collectors[index];
        let is_cut_off = self.cut_off.is(collector.number, self.now);
        Times { now: self.now, wall: self.now + collector.clocks.error, is_cut_off }
    }

    /// Reports whether a collector acts, or would act if it moved.
    fn leads(&self, collector: &Collector) -> bool {
        collector.candidate.as_ref().is_some_and(|candidate| candidate.may_act(self.now))
    }

    /// Reports whether nothing leads, or nothing of some shard.
    pub(super) fn is_leaderless(&self) -> bool {
        self.wanted().any(|shard| {
            let shard = self.planted_shard(shard);
            let is_of = |collector: &&Collector| collector.engine().config().shard == shard;
            !self.collectors.iter().filter(is_of).any(|collector| self.leads(collector))
        })
    }

    /// Returns a leader that moves: of several shards, any.
    fn moving_leader(&self) -> Option<usize> {
        let leads = |&index: &usize| self.leads(&self.collectors[index]);
        let leaders: Vec<usize> = (0..self.collectors.len()).filter(leads).collect();
        let leader = match &*leaders {
            [first, ..] if !self.story.shards => *first,
            [] => return None,
            several => several[self.choices().below(several.len())],
        };
        (!self.collectors[leader].paused).then_some(leader)
    }

    pub(super) fn pause_leader(&mut self) -> Result<(), Violation> {
        let moving = self.collectors.iter().filter(|collector| !collector.paused).count();
        let Some(index) = self.moving_leader().filter(|_| moving > 1) else { return Ok(()) };
        let number = self.collectors[index].number;
        // The leader is suspended in the middle of its work: it has made decisions, but sent none of them yet.
        let mut random = Random::new(self.story.seed ^ self.now.unsigned_abs());
        if random.chance(SUSPENDED_AT_WORK) && !self.cut_off.is(number, self.now) {
            observe_all(&mut self.collectors[index], &self.server);
            self.decide(index, DECIDED_AT_ONCE)?;
        }
        self.collectors[index].paused = true;
        self.report.note_happened("leader changes");
        self.note(|| format!("  collector {number}, which leads, stops moving"));
        Ok(())
    }

    pub(super) fn wake_leaders(&mut self) -> Result<(), Violation> {
        let mut random = Random::new(self.story.seed ^ self.now.unsigned_abs());
        for index in 0..self.collectors.len() {
            if std::mem::take(&mut self.collectors[index].paused) {
                let number = self.collectors[index].number;
                self.report.note_happened("old leaders woken");
                self.note(|| format!("  collector {number} continues, unaware"));
                // The tasks of a process continue in any order: earlier decisions may be sent before the election reads the clock.
                if random.chance(SENDS_FIRST) {
                    self.hand_over_all(index)?;
                }
            }
        }
        if self.story.shards {
            self.begin_missing_shards(CANDIDATES_OF_SHARD);
        }
        Ok(())
    }

    /// Lets every waiting request leave its collector, or be refused by the gate.
    fn hand_over_all(&mut self, index: usize) -> Result<(), Violation> {
        for position in (0..self.collectors[index].requests.len()).rev() {
            self.hand_over(index, position)?;
        }
        Ok(())
    }

    /// Ends a leader in an orderly way, and starts another collector; or begins shards of another number.
    pub(super) fn retire_leader(&mut self) {
        if self.story.shards && self.choices().chance(RENUMBERED) {
            self.renumber_shards();
        } else {
            self.abdicate();
        }
    }

    fn abdicate(&mut self) {
        let Some(index) = self.moving_leader() else { return };
        let times = self.times(index);
        if let Some(candidate) = &mut self.collectors[index].candidate {
            candidate.release(times, &mut self.network);
        }
        self.report.note_happened("leases given back");
        self.end_collector(index, "gives the lease back and ends");
    }

    /// Cuts off a collector from the server for a while.
    pub(super) fn partition(&mut self, salt: u64) {
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return };
        let (number, passed) = (self.collectors[index].number, random.pick(&PARTITION_MILLISECONDS));
        self.cut_off.cut(number, self.now + passed);
        self.report.note_happened("partitions");
        self.note(|| format!("  collector {number} is cut off for {passed} ms"));
    }

    /// Lets a request leave its collector if the gate permits it; otherwise the collector gets the refusal at once. Returns true if
    /// the request has left.
    pub(super) fn hand_over(&mut self, index: usize, position: usize) -> Result<bool, Violation> {
        let collector = &self.collectors[index];
        let flight = &collector.requests[position];
        let Some(candidate) = collector.candidate.as_ref().filter(|_| !flight.handed) else {
            return Ok(true);
        };
        if changes(&flight.effect.request) {
            let unasked = self.options.defect == Some(Defect::GateUnasked);
            if !unasked && !candidate.may_act(self.now) {
                let flight = self.collectors[index].requests.swap_remove(position);
                self.report.note_happened("requests held back at the gate");
                let refused = PerformedRequest::unanswered("not sent: this process does not lead");
                self.return_to(index, flight, refused);
                return Ok(false);
            }
            let what = show_request(flight.kind.unwrap_or(0), &flight.effect.request);
            self.oracle.exemptions.forgotten += u64::from(self.reign.judge_sent(candidate, &what)?);
        }
        self.collectors[index].requests[position].handed = true;
        Ok(true)
    }

    /// Notes a request that was sent under the Lease and arrives when another collector holds it: its preconditions guard it then.
    pub(super) fn note_late(&mut self, flight: &Flight) {
        let is_late =
            self.story.election && self.reign.has_passed_on(&format!("collector-{}", flight.collector));
        self.oracle.exemptions.late += u64::from(is_late && changes(&flight.effect.request));
    }
}
