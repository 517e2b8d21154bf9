//! The Lease of the simulated cluster and its candidates. The candidates make the real decisions of leader election, each by its
//! own clock, which is too fast or too slow, over a network that delays and loses requests. The holder of the Lease at any time is
//! taken from the store's own log.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_collectors::leases::IDENTITY_NAMESPACE;
use gc_controller::election::{After, Ask, Election, Record, Reply, Round, Timing};
use gc_ownership::Shard;
use gc_registry::api::Object;
use gc_registry::storage::Change;
use serde_json::{Value, json};

use crate::defects::Defect;
use crate::kinds::{KINDS, Kind};
use crate::random::Random;
use crate::server::Server;
use crate::story::{Weather, scaled};
use crate::violation::{Violation, broken};

/// Name of the Lease, in [`IDENTITY_NAMESPACE`].
pub const LEASE_NAME: &str = "kubegc";
/// What the name of a shard's Lease has after that name.
const OF_SHARD: &str = "-shard-";
/// Longest durations, those of Kubernetes' own controllers.
const LONGEST: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
/// Shortest durations of a lease, in seconds: replicas may run with different flags, and with 15 a lease is never shortened.
const SHORTEST_SECONDS: [u64; 4] = [3, 5, 15, 15];
/// Reason for the failure of a request that was given up.
pub const NO_ANSWER: &str = "no answer in time";
/// Speed of clocks relative to the world's, in thousandths. (With the durations above, two candidates never lead at once as long as the
/// fastest clock is at most one and a half times as fast as the slowest.)
const RATES: [i64; 7] = [0, 0, 0, -30, 30, -150, 150];
/// Maximum delay of a request in one direction, and of a slow one, in milliseconds.
const DELAY_MILLISECONDS: usize = 150;
const LONG_DELAY_MILLISECONDS: (usize, usize) = (1_000, 19_000);
/// Faults per thousand requests in bad weather: lost, response lost, slow, refused.
const LOST: u32 = 80;
const ANSWER_LOST: u32 = 80;
const SLOW: u32 = 80;
const REFUSED: u32 = 40;
/// Maximum time at rest until a candidate leads, in milliseconds: a late request of a former leader renews the Lease once more; the
/// Lease then lasts for its duration by the slowest clock, a retry, and a request that is given up.
pub const LEADER_MILLISECONDS: i64 = 55_000;

fn lease_kind() -> &'static Kind {
    let found = KINDS.iter().find(|kind| kind.resource == "leases");
    found.unwrap_or(&KINDS[0])
}

/// Returns the name of the Lease on which a shard elects its leader.
fn lease_name(shard: Shard) -> String {
    if shard.is_whole() {
        LEASE_NAME.to_owned()
    } else {
        format!("{LEASE_NAME}{OF_SHARD}{}-of-{}", shard.index(), shard.count())
    }
}

/// Returns the name of the Lease of an election whose key in the store this is.
#[must_use]
pub fn lease_of(key: &str) -> Option<&str> {
    let in_namespace = key.strip_prefix(&*lease_kind().prefix())?;
    let name = in_namespace.strip_prefix(IDENTITY_NAMESPACE)?.strip_prefix('/')?;
    let of_shard = name.strip_prefix(LEASE_NAME)?;
    (of_shard.is_empty() || of_shard.starts_with(OF_SHARD)).then_some(name)
}

/// Reports whether a key of the store is that of a Lease of an election.
#[must_use]
pub fn is_lease(key: &str) -> bool {
    lease_of(key).is_some()
}

/// A request about the Lease, in flight or answered.
#[derive(Clone, Debug)]
struct Mail {
    number: u64,
    /// Name of the Lease.
    lease: String,
    ask: Ask,
    sent: i64,
    /// Lease that a replacement is based on.
    seen: Option<SeenLease>,
    /// Time of arrival at the server; `None` if it has arrived, or never will.
    arrives: Option<i64>,
    /// Time of the response; `None` if it never arrives.
    returns: Option<i64>,
    refused: bool,
    answer: Option<Answer>,
}

/// The Lease as a candidate saw it: its UID and version, which guard the replacement.
#[derive(Clone, Debug)]
struct SeenLease {
    uid: Value,
    version: Value,
    /// Time at which the server returned it.
    at: i64,
}

/// A reply, and the Lease in it.
type Answer = (Reply, Option<SeenLease>);

/// Network between the candidates and the server.
#[derive(Clone, Debug)]
pub struct Network {
    random: Random,
    weather: Weather,
    mail: Vec<Mail>,
    next: u64,
}

impl Network {
    /// Creates a network whose faults come from a seed.
    #[must_use]
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self { random: Random::new(seed ^ 0x1ea5_e000), weather, mail: Vec::new(), next: 0 }
    }

    /// From now on, delays nothing for long and loses nothing.
    pub fn calm(&mut self) {
        self.weather = Weather::Calm;
    }

    fn fails(&mut self, rate: u32) -> bool {
        self.random.chance(scaled(rate, self.weather))
    }

    fn delay(&mut self) -> i64 {
        let long = if self.fails(SLOW) {
            LONG_DELAY_MILLISECONDS.0 + self.random.below(LONG_DELAY_MILLISECONDS.1)
        } else {
            0
        };
        i64::try_from(self.random.below(DELAY_MILLISECONDS) + long).unwrap_or(0)
    }

    fn send(&mut self, lease: &str, ask: Ask, seen: Option<SeenLease>, times: Times) -> u64 {
        let Times { now, is_cut_off, .. } = times;
        self.next += 1;
        let arrives = now + self.delay();
        let returns = arrives + self.delay();
        let lost = self.fails(LOST) || is_cut_off;
        let answer_lost = self.fails(ANSWER_LOST);
        let refused = self.fails(REFUSED);
        self.mail.push(Mail {
            number: self.next,
            lease: lease.to_owned(),
            ask,
            sent: now,
            seen,
            arrives: (!lost).then_some(arrives),
            returns: (!lost && !answer_lost).then_some(returns),
            refused,
            answer: None,
        });
        self.next
    }

    /// Delivers due requests to the server. Returns the earliest of their times for each Lease that they reached: for a request that
    /// wrote something, the time at which its sender had seen the Lease; for any other, `now`.
    pub fn arrive(&mut self, server: &Server, now: i64, unguarded: bool) -> BTreeMap<String, i64> {
        let mut first: BTreeMap<String, i64> = BTreeMap::new();
        for mail in &mut self.mail {
            if mail.arrives.is_some_and(|at| at <= now) {
                mail.arrives = None;
                let answer = if mail.refused {
                    (Reply::Failed("500: internal error".to_owned()), None)
                } else {
                    perform(server, &mail.lease, &mail.ask, mail.seen.as_ref(), unguarded)
                };
                let since = mail.seen.as_ref().map_or(mail.sent, |seen| seen.at);
                let since = if matches!(answer.0, Reply::Written) { since } else { now };
                first
                    .entry(mail.lease.clone())
                    .and_modify(|first| *first = since.min(*first))
                    .or_insert(since);
                mail.answer = Some(answer);
            }
        }
        first
    }

    /// Returns the response to a request if it has arrived by now.
    fn take(&mut self, number: u64, now: i64) -> Option<Answer> {
        let index = self.mail.iter().position(|mail| {
            mail.number == number && mail.answer.is_some() && mail.returns.is_some_and(|at| at <= now)
        })?;
        self.mail.swap_remove(index).answer
    }

    /// Forgets a request whose sender no longer waits for the response; the request itself may still arrive.
    fn forget(&mut self, number: u64) {
        self.mail.retain(|mail| mail.number != number || mail.arrives.is_some());
    }
}

fn perform(server: &Server, lease: &str, ask: &Ask, seen: Option<&SeenLease>, unguarded: bool) -> Answer {
    let kind = lease_kind();
    let place = (IDENTITY_NAMESPACE, lease);
    let current =
        || server.get(kind, place.0, place.1).and_then(Result::ok).map(|lease| seen_in(&lease, server));
    let result = match ask {
        Ask::Read => server.get(kind, place.0, place.1),
        Ask::Create(record) => {
            let metadata = json!({"name": lease});
            server.create(kind, place.0, json!({"metadata": metadata, "spec": record.spec()}))
        }
        Ask::Replace(record) => {
            let seen = if unguarded { current() } else { seen.cloned() };
            let (uid, version) = seen.map_or((Value::Null, Value::Null), |seen| (seen.uid, seen.version));
            let metadata = json!({"name": lease, "namespace": IDENTITY_NAMESPACE,
                "uid": uid, "resourceVersion": version});
            server.replace(kind, place, json!({"metadata": metadata, "spec": record.spec()}))
        }
    };
    match (result, ask) {
        (Some(Ok(lease)), Ask::Read) => {
            (Reply::Found(Record::of_lease(&lease_value(&lease))), Some(seen_in(&lease, server)))
        }
        (Some(Ok(lease)), _) => (Reply::Written, Some(seen_in(&lease, server))),
        (Some(Err(error)), Ask::Read) if error.code == 404 => (Reply::Missing, None),
        (Some(Err(error)), _) => (Reply::Failed(format!("{}: {}", error.code, error.message)), None),
        (None, _) => (Reply::Failed("leases are not served".to_owned()), None),
    }
}

fn lease_value(lease: &Object) -> Value {
    let mut json = Vec::new();
    match lease.write_json(&mut json, false) {
        Ok(()) => serde_json::from_slice(&json).unwrap_or_default(),
        Err(_) => Value::Null,
    }
}

fn seen_in(lease: &Object, server: &Server) -> SeenLease {
    let metadata = &lease_value(lease)["metadata"];
    SeenLease { uid: metadata["uid"].clone(), version: metadata["resourceVersion"].clone(), at: server.now }
}

/// Stage of a candidate.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Resting until the next round begins, by its own clock.
    Resting(Duration),
    /// Waiting since then for the response to this request.
    Asking(u64, Duration),
}

/// A collector that is a candidate for the Lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    election: Election,
    /// Identity on the Lease.
    pub identity: String,
    /// Name of the Lease.
    lease: String,
    seen: Option<SeenLease>,
    /// World time at which its clock began, and the clock's excess speed in thousandths.
    born: i64,
    rate: i64,
    stage: Stage,
    /// World times at which the current round began, and the round through which it leads.
    round_begun: i64,
    granted: i64,
    /// True if it acts whatever the Lease says.
    is_unelected: bool,
    defect: Option<Defect>,
}

/// Consequence of a moment for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// It is a candidate as before.
    Continues,
    /// It has led and could not renew the Lease in time.
    NotRenewed,
    /// It has led, and finds another holder on the Lease.
    Taken,
}

/// Readings of a candidate's clocks in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time of the world.
    pub now: i64,
    /// Reading of its wall clock, which is only written to the Lease.
    pub wall: i64,
    /// True if no request of the candidate reaches the server now.
    pub is_cut_off: bool,
}

impl Candidate {
    /// Makes collector `number` a candidate in the election of its shard.
    #[must_use]
    pub fn new(number: usize, shard: Shard, now: i64, network: &mut Network, defect: Option<Defect>) -> Self {
        let identity = format!("collector-{number}");
        let elects = if defect == Some(Defect::ShardLeaseShared) { Shard::WHOLE } else { shard };
        let is_of_first_shard = shard.index() == 0;
        Self {
            election: Election::new(
                identity.clone(),
                LONGEST,
                Duration::from_secs(network.random.pick(&SHORTEST_SECONDS)),
            ),
            identity,
            lease: lease_name(elects),
            is_unelected: defect == Some(Defect::ShardUnelected) && !is_of_first_shard,
            seen: None,
            born: now,
            rate: network.random.pick(&RATES),
            stage: Stage::Resting(Duration::ZERO),
            round_begun: now,
            granted: now,
            defect,
        }
    }

    /// Returns the candidate's own time.
    fn clock(&self, now: i64) -> Duration {
        let passed = (now - self.born) * (1_000 + self.rate) / 1_000;
        Duration::from_millis(u64::try_from(passed).unwrap_or(0))
    }

    /// Reports whether it asks its engines for nothing because it does not lead. It may not have noticed yet that its time is over.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.election.acts_until().is_none()
    }

    /// Reports whether its engines stand by.
    #[must_use]
    pub fn stands_by(&self) -> bool {
        self.is_held() && !self.is_unelected
    }

    /// Reports whether its gate lets any change pass.
    #[must_use]
    pub fn may_act(&self, now: i64) -> bool {
        if self.is_unelected {
            return true;
        }
        if self.defect == Some(Defect::ActsOn) {
            return self.election.leads() && !self.is_held();
        }
        self.election.may_act(self.clock(now))
    }

    /// Continues the election.
    pub fn go_on(&mut self, times: Times, network: &mut Network) -> Term {
        let clock = self.clock(times.now);
        let wall = jiff::Timestamp::from_millisecond(times.wall).unwrap_or_default();
        if let Stage::Asking(number, since) = self.stage {
            let answer = network.take(number, times.now);
            let reply = match answer {
                Some((reply, seen)) => {
                    self.seen = seen.or(self.seen.take());
                    reply
                }
                None if clock >= since + self.election.timing().patience() => {
                    network.forget(number);
                    Reply::Failed(NO_ANSWER.to_owned())
                }
                None => return self.term(clock),
            };
            let led = !self.is_held();
            match self.election.answered(lease_reply(self.defect, reply), clock, wall) {
                After::Ask(ask) => self.ask(ask, times, network),
                After::Over(round) => {
                    match round {
                        Round::Holds => self.granted = self.round_begun,
                        Round::HeldByOther if led => return Term::Taken,
                        Round::HeldByOther | Round::Failed(_) => {}
                    }
                    // Waiting candidates wait a little longer than a leader, each for a different time.
                    let spread = if self.is_held() { network.random.below(200) } else { 0 };
                    let pause = self.election.rest(clock);
                    let pause = pause + pause * u32::try_from(spread).unwrap_or(0) / 1_000;
                    self.stage = Stage::Resting(clock + pause);
                }
            }
        }
        if let Stage::Resting(until) = self.stage
            && clock >= until
        {
            self.round_begun = times.now;
            let ask = self.election.begin(clock, wall);
            self.ask(ask, times, network);
        }
        self.term(clock)
    }

    fn term(&self, clock: Duration) -> Term {
        let ends = self.defect != Some(Defect::ActsOn) && self.election.is_overdue(clock);
        if ends { Term::NotRenewed } else { Term::Continues }
    }

    /// Ends the candidate's time without ending the candidate. A round in progress is given up, and the next one begins.
    pub fn stand_by(&mut self, times: Times, network: &mut Network) {
        self.election.stop();
        if let Stage::Asking(number, _) = self.stage {
            network.forget(number);
        }
        self.stage = Stage::Resting(self.clock(times.now));
    }

    fn ask(&mut self, ask: Ask, times: Times, network: &mut Network) {
        let number = network.send(&self.lease, ask, self.seen.clone(), times);
        self.stage = Stage::Asking(number, self.clock(times.now));
    }

    /// Ends the candidate's time, and gives the Lease back if it holds it.
    pub fn release(&mut self, times: Times, network: &mut Network) {
        let wall = jiff::Timestamp::from_millisecond(times.wall).unwrap_or_default();
        if let Some(record) = self.election.release(wall) {
            network.send(&self.lease, Ask::Replace(record), self.seen.clone(), times);
        }
    }
}

/// Holder of each Lease according to the store's own log, and the time since which that log is valid.
#[derive(Clone, Debug, Default)]
pub struct Reign {
    holders: BTreeMap<String, String>,
    restored: i64,
    /// Leases that a candidate has taken since that had seen them before.
    taken: BTreeMap<String, i64>,
}

impl Reign {
    /// Takes in a change of a Lease. Returns the holder if it has changed.
    pub fn stored(&mut self, lease: &str, change: &Change) -> Option<String> {
        let value: Value =
            change.value.as_ref().and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default();
        let holder = Record::of_lease(&value).holder;
        let before = self.holders.insert(lease.to_owned(), holder.clone()).unwrap_or_default();
        (before != holder).then_some(holder)
    }

    /// Notes that the store was put back: it repeats its earlier state, without anything that was granted since.
    pub fn restored(&mut self, server: &Server, now: i64) {
        self.restored = now;
        self.taken.clear();
        for (lease, holder) in &mut self.holders {
            *holder = match perform(server, lease, &Ask::Read, None, false) {
                (Reply::Found(record), _) => record.holder,
                _ => String::new(),
            };
        }
    }

    /// Returns the time since which the log of a Lease is valid.
    fn valid_since(&self, lease: &str) -> i64 {
        self.taken.get(lease).copied().unwrap_or(self.restored)
    }

    /// Notes that a request has changed a Lease whose sender had last seen it at `since`. Versions repeat after a restore: the
    /// sender had seen a different Lease, and takes it from a candidate that was granted it since.
    pub fn landed(&mut self, lease: &str, since: i64, now: i64) {
        if since <= self.valid_since(lease) && self.restored > 0 {
            self.taken.insert(lease.to_owned(), now);
        }
    }

    /// Reports whether this candidate's time is based on a renewal that the store has forgotten.
    fn is_forgotten(&self, candidate: &Candidate) -> bool {
        candidate.granted <= self.valid_since(&candidate.lease)
    }

    /// Reports whether the Lease has passed from the sender of a request to another candidate since the request was sent.
    #[must_use]
    pub fn has_passed_on(&self, identity: &str) -> bool {
        !self.holders.values().any(|holder| holder == identity)
    }

    /// Judges a candidate that sends a change to the cluster. Returns true if the case is exempt.
    pub fn judge_sent(&self, candidate: &Candidate, what: &str) -> Result<bool, Violation> {
        if self.is_forgotten(candidate) {
            return Ok(true);
        }
        if self.has_passed_on(&candidate.identity) {
            let Candidate { identity, lease, .. } = candidate;
            let holder = self.holders.get(lease).map_or("", |holder| holder);
            return broken("lease", format!("{identity} sends {what}, and {lease} is held by {holder:?}"));
        }
        Ok(false)
    }

    /// Checks that no two candidates for one Lease may act at once, whether they move or not.
    pub fn judge_together<'c>(
        &self,
        candidates: impl Iterator<Item = &'c Candidate>,
        now: i64,
    ) -> Result<(), Violation> {
        let mut acting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for candidate in
            candidates.filter(|candidate| candidate.may_act(now) && !self.is_forgotten(candidate))
        {
            acting.entry(&candidate.lease).or_default().push(&candidate.identity);
        }
        match acting.values().find(|acting| acting.len() > 1) {
            Some(several) => broken("lease", format!("{} may act at once", several.join(" and "))),
            None => Ok(()),
        }
    }
}

/// Collectors whose requests do not reach the server, with the time until then.
#[derive(Clone, Debug, Default)]
pub struct CutOff(BTreeMap<usize, i64>);

impl CutOff {
    /// Cuts off collector `number` until then.
    pub fn cut(&mut self, number: usize, until: i64) {
        self.0.insert(number, until);
    }

    /// Reports whether a collector is cut off.
    #[must_use]
    pub fn is(&self, number: usize, now: i64) -> bool {
        self.0.get(&number).is_some_and(|until| now < *until)
    }

    /// Ends all partitions.
    pub fn heal(&mut self) {
        self.0.clear();
    }
}

/// Replaces the reply to an election if the defect requires it.
fn lease_reply(defect: Option<Defect>, reply: Reply) -> Reply {
    match (reply, defect) {
        (Reply::Found(record), Some(Defect::LeaseDurationUnawaited)) => {
            Reply::Found(Record { duration_seconds: 0, ..record })
        }
        (Reply::Failed(why), Some(Defect::RenewalAssumed)) if why == NO_ANSWER => Reply::Written,
        (reply, _) => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_lease_is_known() {
        for (key, expected) in [
            ("/coordination.k8s.io/leases/kube-system/kubegc", true),
            ("/coordination.k8s.io/leases/kube-system/kubegc-shard-1-of-2", true),
            ("/coordination.k8s.io/leases/kube-system/kubegc-2", false),
            ("/coordination.k8s.io/leases/m/kubegc", false),
            ("/core/configmaps/kube-system/kubegc", false),
        ] {
            assert_eq!(is_lease(key), expected, "{key}");
        }
    }
}
