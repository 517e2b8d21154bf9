//! Law: no two candidates may act at once, whatever durations they choose for their leases, whatever the network does, and however
//! far their clocks run apart within the proportion of lease duration to renew deadline.

use proptest::prelude::*;

use super::*;

/// World time that passes in a step, and the number of steps in a history.
const STEP: u64 = 50;
const STEPS: u64 = 2_400;
/// Speeds of clocks, in thousandths. The fastest is less than one and a half times as fast as the slowest.
const SPEEDS: [u64; 3] = [820, 1_000, 1_220];

/// Decisions of the network and the clocks, from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, number: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % number
    }

    /// Returns the delay of a message in milliseconds; `None` if it is lost.
    fn delay(&mut self) -> Option<u64> {
        match self.below(8) {
            0 => None,
            1 => Some(self.below(8_000)),
            _ => Some(self.below(200)),
        }
    }
}

/// A request on its way: its sender, the version that guards it, and when it and its answer arrive.
struct Message {
    sender: usize,
    round: u64,
    ask: Ask,
    version: u64,
    arrives: u64,
    answer: Option<(u64, Reply, u64)>,
    delay_of_answer: Option<u64>,
}

struct Member {
    election: Election,
    speed: u64,
    /// Version of the Lease that it saw last.
    version: u64,
    /// Number of the current request; a late answer to another is ignored.
    round: u64,
    /// Own times at which the round begins, or its request is given up.
    begins: Option<Duration>,
    gives_up: Duration,
    is_suspended: bool,
}

struct World {
    chance: Chance,
    now: u64,
    lease: Option<Record>,
    version: u64,
    members: Vec<Member>,
    messages: Vec<Message>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed | 1);
        let members = (0..3).map(|number| Member {
            election: candidate(["a", "b", "c"][number]),
            speed: SPEEDS[usize::try_from(chance.below(3)).unwrap()],
            version: 0,
            round: 0,
            begins: Some(Duration::ZERO),
            gives_up: Duration::ZERO,
            is_suspended: false,
        });
        let members = members.collect();
        Self { chance, now: 0, lease: None, version: 0, members, messages: Vec::new() }
    }

    fn clock(&self, member: usize) -> Duration {
        Duration::from_micros(self.now * self.members[member].speed)
    }

    fn send(&mut self, member: usize, ask: Ask) {
        let now = self.clock(member);
        let one = &mut self.members[member];
        one.round += 1;
        one.gives_up = now + one.election.timing().patience();
        one.begins = None;
        let (round, version) = (one.round, one.version);
        let Some(delay) = self.chance.delay() else { return };
        let delay_of_answer = self.chance.delay();
        let arrives = self.now + delay;
        self.messages.push(Message {
            sender: member,
            round,
            ask,
            version,
            arrives,
            answer: None,
            delay_of_answer,
        });
    }

    /// Applies the requests that have arrived.
    fn serve(&mut self) {
        for message in &mut self.messages {
            if message.answer.is_some() || message.arrives > self.now {
                continue;
            }
            let reply = match (&message.ask, &self.lease) {
                (Ask::Read, Some(record)) => Reply::Found(record.clone()),
                (Ask::Read, None) => Reply::Missing,
                (Ask::Create(record), None) => {
                    self.version += 1;
                    self.lease = Some(record.clone());
                    Reply::Written
                }
                (Ask::Replace(record), Some(_)) if message.version == self.version => {
                    self.version += 1;
                    self.lease = Some(record.clone());
                    Reply::Written
                }
                _ => Reply::Failed("a conflict".into()),
            };
            let at = message.delay_of_answer.map_or(u64::MAX, |delay| self.now + delay);
            message.answer = Some((at, reply, self.version));
        }
    }

    fn take_answer(&mut self, member: usize) -> Option<(Reply, u64)> {
        let (now, round) = (self.now, self.members[member].round);
        let found = self.messages.iter().position(|message| {
            message.sender == member
                && message.round == round
                && message.answer.as_ref().is_some_and(|(at, ..)| *at <= now)
        })?;
        self.messages.swap_remove(found).answer.map(|(_, reply, version)| (reply, version))
    }

    fn step(&mut self, member: usize) {
        if self.chance.below(100) == 0 {
            self.members[member].is_suspended = !self.members[member].is_suspended;
        }
        let (now, wall) = (self.clock(member), wall(i64::try_from(self.now / 1_000).unwrap()));
        if self.members[member].is_suspended {
            return;
        }
        if self.members[member].election.is_overdue(now) {
            // It has lost the Lease, and another process takes its place.
            let name = format!("{}{}", ["a", "b", "c"][member], self.now);
            self.members[member].election = candidate(&name);
            self.members[member].begins = Some(now);
            self.members[member].round += 1;
        }
        if let Some(begins) = self.members[member].begins {
            if begins <= now {
                let seconds = 1 + self.chance.below(20);
                let one = &mut self.members[member].election;
                paced(one, seconds, now);
                let ask = one.begin(now, wall);
                self.send(member, ask);
            }
            return;
        }
        let (reply, version) = match self.take_answer(member) {
            Some(answer) => answer,
            None if self.members[member].gives_up <= now => (Reply::Failed("no answer".into()), 0),
            None => return,
        };
        let one = &mut self.members[member];
        if matches!(reply, Reply::Found(_) | Reply::Written) {
            one.version = version;
        }
        match one.election.answered(reply, now, wall) {
            After::Ask(ask) => self.send(member, ask),
            After::Over(_) => one.begins = Some(now + one.election.rest(now)),
        }
    }

    /// Returns the members that may act now.
    fn acting(&self) -> Vec<usize> {
        let may_act = |member: &usize| self.members[*member].election.may_act(self.clock(*member));
        (0..self.members.len()).filter(may_act).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn law_no_two_candidates_act_at_once(seed: u64) {
        let mut world = World::new(seed);
        let mut led = std::collections::BTreeSet::new();
        for _ in 0..STEPS {
            world.now += STEP;
            world.serve();
            for member in 0..world.members.len() {
                world.step(member);
            }
            let acting = world.acting();
            prop_assert!(acting.len() <= 1, "{acting:?} act at {} ms", world.now);
            led.extend(acting);
        }
        prop_assert!(!led.is_empty(), "no candidate led");
    }
}
