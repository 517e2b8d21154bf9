//! A story: everything that will happen in a world, decided in advance by its seed. Each step carries the number from which all its
//! choices come, so a story with some steps removed is still a story.

use std::time::Duration;

use gc_controller::breaker::BreakerOptions;
use gc_controller::concurrency::ConcurrencyOptions;

use crate::random::Random;

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestFault {
    /// Times out without having happened.
    LostBefore,
    /// Times out after it has happened.
    LostAfter,
    /// Conflicts, because a client writes the object just before.
    Conflict,
    /// 409 although nothing has changed.
    MereConflict,
    /// 429 with Retry-After.
    TooMany,
    /// 500.
    Internal,
    /// 403.
    Forbidden,
    /// 404 without a Status: the path is not served.
    PlainNotFound,
    /// Succeeds, but a proxy replaces the body of the response.
    Garbled,
}

/// A fault of the watch of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamFault {
    /// Cut, and resumed where it was.
    Cut,
    /// Cut until the collector considers it stale.
    Stale,
    /// 410: the resource is listed again, and removals in between are never delivered.
    Expired,
    /// Listed again from a stale cache: earlier events are taken back, and delivered again.
    StaleList,
}

/// A fault of one round of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoveryFault {
    /// Not answered at all.
    Failed,
    /// One group cannot be read.
    GroupFailed,
    /// One group is missing from a response that claims to be complete.
    Omitted,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client performs an action.
    Client(u64),
    /// The watch of one resource delivers something.
    Deliver(u64),
    /// A collector is asked for effects.
    Effects(u64),
    /// One request reaches the server.
    Serve(u64, Option<RequestFault>),
    /// One answer reaches its collector.
    Answer(u64),
    /// Time passes.
    Tick(u64),
    /// The watch of one resource breaks.
    Break(u64, StreamFault),
    /// A round of discovery runs.
    Discover(u64, Option<DiscoveryFault>),
    /// The server does the work that no request triggers, and nodes end their pods.
    Housekeeping(u64),
    /// A definition is deleted or created again.
    Definition(u64),
    /// The store forgets its history.
    Compact,
    /// The store is put back to an earlier revision.
    Restore(u64),
    /// The collector dies and another starts.
    Crash(u64),
    /// The leader stops moving, and another one takes over.
    Pause,
    /// The paused leader continues where it was, without knowing of the pause.
    Resume,
    /// The leader notices that it no longer leads. With an election: the leader ends, and gives its Lease back. With shards: another
    /// number of them begins. With both: either.
    Retire,
    /// The collector's clock jumps.
    ClockJump(u64),
    /// Nothing passes between a collector and the server for a while (only with an election).
    Partition(u64),
    /// The operator pauses a collector, begins a dry run, resumes what the breaker has stopped, or changes the bounds of the
    /// concurrency limit.
    Operate(u64),
}

/// Faults and their frequency per thousand steps (for those of requests, per thousand requests) in bad weather.
pub const REQUEST_FAULTS: [(RequestFault, u32); 9] = [
    (RequestFault::LostBefore, 50),
    (RequestFault::LostAfter, 60),
    (RequestFault::Conflict, 70),
    (RequestFault::MereConflict, 20),
    (RequestFault::TooMany, 25),
    (RequestFault::Internal, 30),
    (RequestFault::Forbidden, 15),
    (RequestFault::PlainNotFound, 30),
    (RequestFault::Garbled, 15),
];

/// See [`REQUEST_FAULTS`].
pub const STREAM_FAULTS: [(StreamFault, u32); 4] = [
    (StreamFault::Cut, 10),
    (StreamFault::Stale, 8),
    (StreamFault::Expired, 16),
    (StreamFault::StaleList, 8),
];

/// See [`REQUEST_FAULTS`].
pub const DISCOVERY_FAULTS: [(DiscoveryFault, u32); 3] =
    [(DiscoveryFault::Failed, 4), (DiscoveryFault::GroupFailed, 5), (DiscoveryFault::Omitted, 5)];

/// Frequency per thousand steps in bad weather of a new or deleted definition, forgotten history, a crash, a change of leaders, a
/// jump of the clock, and an operator's action.
pub const RARE_FAULTS: [(&str, u32); 6] = [
    ("definition", 5),
    ("compact", 3),
    ("crash", 4),
    ("leader change", 6),
    ("clock jump", 3),
    ("operator", 15),
];

/// Additional faults in worlds with an election.
pub const ELECTION_FAULTS: [(&str, u32); 2] = [("leader change", 40), ("partition", 20)];

/// Additional faults in worlds with retention, which depends on clocks.
pub const RETENTION_FAULTS: [(&str, u32); 1] = [("clock jump", 15)];

/// Additional faults in worlds of shards.
pub const SHARD_FAULTS: [(&str, u32); 1] = [("leader change", 40)];

/// Number of worlds with a restored store, per thousand worlds with faults.
pub const WORLDS_WITH_A_RESTORE: u32 = 200;

/// Frequency of faults in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Everything arrives, but late.
    Calm,
    /// Some faults.
    Changing,
    /// All faults, at the full rates.
    Bad,
}

/// Minimum number of steps in a story, and the maximum number of further ones.
const LENGTH: (usize, usize) = (60, 180);

/// Everything that will happen.
#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    /// Seed of the story.
    pub seed: u64,
    /// Frequency of faults.
    pub weather: Weather,
    /// True if a DELETE may be sent with only the UID after conflicts (spec 4.5), which leaves a window (L16).
    pub uid_only: bool,
    /// Maximum number of effects in flight.
    pub effects_in_flight: usize,
    /// Bounds of each collector's concurrency limit.
    pub concurrency: ConcurrencyOptions,
    /// Limits of the breaker.
    pub breaker: BreakerOptions,
    /// Kinds whose watches lag far behind, one bit for each.
    pub slow: u64,
    /// True if the retention collectors run as well, and clients give them work.
    pub retention: bool,
    /// True if there are several collectors, and a Lease lets only one act at a time, or one of each shard. (With retention, time
    /// passes in hours, in which no Lease can be kept.)
    pub election: bool,
    /// True if this is a world of namespaces only.
    pub namespaces: bool,
    /// True if the collectors are shards, which all act at once, each on its own objects, and whose number changes.
    pub shards: bool,
    /// Steps of the story.
    pub steps: Vec<Step>,
}

/// Number of worlds of namespaces, per thousand.
pub const WORLDS_OF_NAMESPACES: u32 = 120;
/// Number per thousand of the worlds of namespaces that have operators, and the limits and breakers of the other worlds: slowing
/// passes down hides other defects.
pub const RESTRAINED_WORLDS_OF_NAMESPACES: u32 = 300;
/// Number of worlds with retention, per thousand others.
pub const WORLDS_WITH_RETENTION: u32 = 400;
/// Number of worlds with an election, per thousand of the remaining ones.
pub const WORLDS_WITH_AN_ELECTION: u32 = 400;

impl Story {
    /// Creates the story of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::written(seed, false, false)
    }

    /// Creates the story of a seed in which the collectors are shards.
    #[must_use]
    pub fn of_shards(seed: u64) -> Self {
        Self::written(seed, true, false)
    }

    /// Creates the story of a seed in which the collectors are shards, each with an election.
    #[must_use]
    pub fn of_elected_shards(seed: u64) -> Self {
        Self::written(seed, true, true)
    }

    fn written(seed: u64, shards: bool, is_elected: bool) -> Self {
        let mut random = Random::new(seed);
        let weather = [Weather::Calm, Weather::Changing, Weather::Bad][random.weighted(&[2, 3, 5])];
        let uid_only = random.chance(300);
        let effects_in_flight = random.pick(&[1, 2, 4, 16, 256]);
        let namespaces = Random::new(seed ^ 0x006e_616d_6573).chance(WORLDS_OF_NAMESPACES) && !shards;
        let retention = random.chance(WORLDS_WITH_RETENTION) && !namespaces && !shards;
        let alone = retention || namespaces || shards;
        let election = is_elected || (!alone && random.chance(WORLDS_WITH_AN_ELECTION));
        let (concurrency, breaker) = (concurrency(seed), breaker(seed));
        let length = LENGTH.0 + random.below(LENGTH.1);
        // Worlds differ in the speed of the network: in some, watches lag far behind.
        let deliver = random.pick(&[10, 30, 60]);
        let busy = random.pick(&[12, 25]);
        let slow = if random.chance(500) { random.next() & random.next() } else { 0 };
        let weights = [busy, deliver, 18, 24, 20, if election { 16 } else { 6 }, 3];
        let mut steps = vec![Step::Discover(random.next(), None)];
        let restore = weather == Weather::Bad && random.chance(WORLDS_WITH_A_RESTORE);
        let restore_at = restore.then(|| length / 3 + random.below(length / 2));
        for index in 0..length {
            if restore_at == Some(index) {
                steps.push(Step::Restore(random.next()));
            }
            let more: &[(&str, u32)] = match (election, retention, shards) {
                (true, ..) => &ELECTION_FAULTS,
                (_, true, _) => &RETENTION_FAULTS,
                (.., true) => &SHARD_FAULTS,
                _ => &[],
            };
            if let Some(fault) = rare(&mut random, weather, more) {
                steps.push(fault);
                continue;
            }
            let salt = random.next();
            steps.push(match random.weighted(&weights) {
                0 => Step::Client(salt),
                1 => Step::Deliver(salt),
                2 => Step::Effects(salt),
                3 => Step::Serve(salt, request_fault(&mut random, weather)),
                4 => Step::Answer(salt),
                5 => Step::Tick(salt),
                _ if random.chance(300) => Step::Discover(salt, None),
                _ => Step::Housekeeping(salt),
            });
        }
        Self {
            seed,
            weather,
            uid_only,
            effects_in_flight,
            concurrency,
            breaker,
            slow,
            retention,
            election,
            namespaces,
            shards,
            steps,
        }
    }

    /// Returns the restraints of the passes over namespaces, if they differ from the defaults.
    #[must_use]
    pub fn namespace_restraints(&self) -> Option<(ConcurrencyOptions, BreakerOptions)> {
        let is_restrained = Random::new(self.seed ^ 0x7265_7374).chance(RESTRAINED_WORLDS_OF_NAMESPACES);
        (self.namespaces && is_restrained).then_some((self.concurrency, self.breaker))
    }

    /// Reports whether its breaker trips after few deletions.
    #[must_use]
    pub fn has_narrow_breaker(&self) -> bool {
        self.breaker != BreakerOptions::default()
    }
}

/// Number of worlds whose breaker trips after few deletions, per thousand.
pub const WORLDS_WITH_A_NARROW_BREAKER: u32 = 250;

/// Returns the bounds of the concurrency limit in the world of a seed: often narrow enough to be reached.
fn concurrency(seed: u64) -> ConcurrencyOptions {
    let mut random = Random::new(seed ^ 0x7061_6365);
    let largest = random.pick(&[1, 2, 4, 128, 128]);
    ConcurrencyOptions {
        initial: random.pick(&[1, 2, 32]),
        smallest: random.pick(&[1, 2, 8]),
        largest,
        queries_per_second: random.chance(200).then(|| random.pick(&[5.0, 20.0])),
        burst: random.pick(&[1, 10]),
    }
}

/// Returns the limits of the breaker in the world of a seed.
fn breaker(seed: u64) -> BreakerOptions {
    let mut random = Random::new(seed ^ 0x6272_6561);
    if !random.chance(WORLDS_WITH_A_NARROW_BREAKER) {
        return BreakerOptions::default();
    }
    BreakerOptions {
        window: Duration::from_secs(random.pick(&[1, 10, 600])),
        largest_number: random.chance(700).then(|| random.pick(&[1, 2, 5])),
        largest_share: random.chance(700).then(|| random.pick(&[0.1, 0.5])),
        share_floor: random.pick(&[1, 2]),
    }
}

/// Returns a rate scaled to a weather.
#[must_use]
pub fn scaled(rate: u32, weather: Weather) -> u32 {
    match weather {
        Weather::Calm => 0,
        Weather::Changing => rate.div_ceil(3),
        Weather::Bad => rate,
    }
}

fn request_fault(random: &mut Random, weather: Weather) -> Option<RequestFault> {
    REQUEST_FAULTS.into_iter().find(|(_, rate)| random.chance(scaled(*rate, weather))).map(|(fault, _)| fault)
}

fn rare(random: &mut Random, weather: Weather, more: &[(&str, u32)]) -> Option<Step> {
    for (fault, rate) in STREAM_FAULTS {
        if random.chance(scaled(rate, weather)) {
            return Some(Step::Break(random.next(), fault));
        }
    }
    for (fault, rate) in DISCOVERY_FAULTS {
        if random.chance(scaled(rate, weather)) {
            return Some(Step::Discover(random.next(), Some(fault)));
        }
    }
    for (fault, rate) in RARE_FAULTS.into_iter().chain(more.iter().copied()) {
        if random.chance(scaled(rate, weather)) {
            return Some(match fault {
                "definition" => Step::Definition(random.next()),
                "compact" => Step::Compact,
                "crash" => Step::Crash(random.next()),
                "leader change" => [Step::Pause, Step::Resume, Step::Retire][random.weighted(&[3, 5, 2])],
                "partition" => Step::Partition(random.next()),
                "operator" => Step::Operate(random.next()),
                _ => Step::ClockJump(random.next()),
            });
        }
    }
    None
}
