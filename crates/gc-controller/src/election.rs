//! Leader election like that of Kubernetes' controllers, as a pure decision: from a Lease and a clock to the next request, and to
//! the time until which the candidate may act.
//!
//! A candidate that finds the Lease free, or not renewed for the duration that its holder wrote to it (measured on the candidate's
//! own clock from the last observed change), writes itself as the holder, with the version as precondition. Clocks of different
//! machines are never compared: a moment here is a duration since a fixed point of this process. Two candidates never act at once
//! as long as the speeds of their clocks differ by less than the factor of [`Election`]'s lease duration to its renew deadline (15
//! s to 10 s by default).

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

/// Contents of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Holder of the Lease; empty if there is none.
    pub holder: String,
    /// Validity after a change, seconds.
    pub duration_seconds: u64,
    /// Time at which the holder acquired it, as written.
    pub acquired: String,
    /// Time at which the holder last renewed it, as written.
    pub renewed: String,
    /// Number of changes of holder.
    pub transitions: u64,
}

impl Record {
    /// Parses `.spec` of a Lease; missing fields are empty.
    #[must_use]
    pub fn of_lease(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| spec[name].as_u64().unwrap_or_default();
        Self {
            holder: text("holderIdentity"),
            duration_seconds: number("leaseDurationSeconds"),
            acquired: text("acquireTime"),
            renewed: text("renewTime"),
            transitions: number("leaseTransitions"),
        }
    }

    /// Returns the `.spec` to write.
    #[must_use]
    pub fn spec(&self) -> Value {
        json!({
            "holderIdentity": self.holder, "leaseDurationSeconds": self.duration_seconds,
            "acquireTime": self.acquired, "renewTime": self.renewed, "leaseTransitions": self.transitions,
        })
    }
}

/// A request about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// GET.
    Read,
    /// POST this.
    Create(Record),
    /// PUT this, with the last version that was read or written as precondition.
    Replace(Record),
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The Lease as read.
    Found(Record),
    /// There is no Lease.
    Missing,
    /// The write was applied.
    Written,
    /// The request was refused or its outcome is unknown, for this reason.
    Failed(String),
}

/// Consequence of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// The next request of the same round.
    Ask(Ask),
    /// The round is over.
    Over(Round),
}

/// Result of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// This candidate holds the Lease.
    Holds,
    /// Another candidate holds the Lease: send nothing.
    HeldByOther,
    /// The state is unknown, for this reason.
    Failed(String),
}

/// Last request.
#[derive(Clone, Debug)]
enum Pending {
    Nothing,
    Renewal(Record),
    Read,
    Write(Record),
}

/// One candidate: its knowledge of the Lease, and the time until which it may act.
///
/// It works in rounds of a few requests: [`Election::begin`], then [`Election::answered`] with each reply. An aborted round is
/// followed by another.
#[derive(Clone, Debug)]
pub struct Election {
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    /// Lease as last read, and when that state was first seen.
    observed: Option<(Record, Duration)>,
    pending: Pending,
    /// Time at which the round began.
    asked: Duration,
    acts_until: Option<Duration>,
}

impl Election {
    /// Creates a candidate without knowledge. It writes `lease_duration` to the Lease, in whole seconds, and acts for the shorter
    /// `renew_deadline`, counted from the beginning of the round that renewed it.
    #[must_use]
    pub fn new(identity: String, lease_duration: Duration, renew_deadline: Duration) -> Self {
        Self {
            identity,
            lease_duration,
            renew_deadline,
            observed: None,
            pending: Pending::Nothing,
            asked: Duration::ZERO,
            acts_until: None,
        }
    }

    /// Reports whether the last record that was read or written names this candidate. That alone permits nothing: see
    /// [`Election::may_act`].
    #[must_use]
    pub fn leads(&self) -> bool {
        self.observed.as_ref().is_some_and(|(record, _)| record.holder == self.identity)
    }

    /// Returns the last known holder of the Lease.
    #[must_use]
    pub fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |(record, _)| &record.holder)
    }

    /// Returns the time until which this candidate may act, if it leads.
    #[must_use]
    pub fn acts_until(&self) -> Option<Duration> {
        self.acts_until
    }

    /// Reports whether it may send requests that change anything.
    #[must_use]
    pub fn may_act(&self, now: Duration) -> bool {
        self.acts_until.is_some_and(|until| now < until)
    }

    /// Reports whether its time is over, so that the Lease is lost.
    #[must_use]
    pub fn is_overdue(&self, now: Duration) -> bool {
        self.acts_until.is_some_and(|until| now >= until)
    }

    /// Begins a round. A leader writes immediately, and reads only if that fails.
    pub fn begin(&mut self, now: Duration, wall: Timestamp) -> Ask {
        self.asked = now;
        match self.observed.as_ref().filter(|_| self.leads()) {
            Some((record, _)) => {
                let renewal = self.own(record.acquired.clone(), record.transitions, wall);
                self.pending = Pending::Renewal(renewal.clone());
                Ask::Replace(renewal)
            }
            None => self.read(),
        }
    }

    /// Takes the reply to the last request of the round.
    pub fn answered(&mut self, reply: Reply, now: Duration, wall: Timestamp) -> After {
        match (std::mem::replace(&mut self.pending, Pending::Nothing), reply) {
            (Pending::Renewal(record) | Pending::Write(record), Reply::Written) => {
                self.observed = Some((record, now));
                // Other candidates count from when they see the write, which is no earlier than the request.
                self.acts_until = Some(self.asked.saturating_add(self.renew_deadline));
                After::Over(Round::Holds)
            }
            (Pending::Renewal(_), _) => After::Ask(self.read()),
            (Pending::Read, Reply::Found(record)) => self.decide(record, now, wall),
            (Pending::Read, Reply::Missing) if self.is_held_by_other(now) => {
                // The holder may not have noticed the deletion yet.
                self.stand_by()
            }
            (Pending::Read, Reply::Missing) => {
                let record = self.own(micro_time(wall), 0, wall);
                self.pending = Pending::Write(record.clone());
                After::Ask(Ask::Create(record))
            }
            (_, Reply::Failed(why)) => After::Over(Round::Failed(why)),
            (_, reply) => After::Over(Round::Failed(format!("the answer to another question: {reply:?}"))),
        }
    }

    /// Ends its term, and returns what to write so that the Lease is free immediately. Nothing may be sent after it.
    pub fn release(&mut self, wall: Timestamp) -> Option<Record> {
        self.stop();
        let (record, _) = self.observed.as_ref().filter(|_| self.leads())?;
        let now = micro_time(wall);
        Some(Record {
            holder: String::new(),
            duration_seconds: 1,
            acquired: now.clone(),
            renewed: now,
            transitions: record.transitions,
        })
    }

    /// Ends its term.
    pub fn stop(&mut self) {
        self.acts_until = None;
    }

    fn read(&mut self) -> Ask {
        self.pending = Pending::Read;
        Ask::Read
    }

    fn decide(&mut self, record: Record, now: Duration, wall: Timestamp) -> After {
        if self.observed.as_ref().is_none_or(|(seen, _)| *seen != record) {
            self.observed = Some((record.clone(), now));
        }
        if self.is_held_by_other(now) {
            return self.stand_by();
        }
        let own = if record.holder == self.identity {
            self.own(record.acquired, record.transitions, wall)
        } else {
            self.own(micro_time(wall), record.transitions.saturating_add(1), wall)
        };
        self.pending = Pending::Write(own.clone());
        After::Ask(Ask::Replace(own))
    }

    /// Reports whether another candidate holds the Lease, as last read, and its duration is not over.
    fn is_held_by_other(&self, now: Duration) -> bool {
        self.observed.as_ref().is_some_and(|(record, seen_at)| {
            let valid_until = seen_at.saturating_add(Duration::from_secs(record.duration_seconds));
            !record.holder.is_empty() && record.holder != self.identity && valid_until > now
        })
    }

    fn stand_by(&mut self) -> After {
        self.stop();
        After::Over(Round::HeldByOther)
    }

    fn own(&self, acquired: String, transitions: u64, wall: Timestamp) -> Record {
        Record {
            holder: self.identity.clone(),
            duration_seconds: self.lease_duration.as_secs(),
            acquired,
            renewed: micro_time(wall),
            transitions,
        }
    }
}

/// Formats RFC 3339 with six digits, like `metav1.MicroTime`.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);
    const DEADLINE: Duration = Duration::from_secs(10);

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn candidate(identity: &str) -> Election {
        Election::new(identity.into(), LEASE, DEADLINE)
    }

    fn record(holder: &str, renewed: i64, transitions: u64) -> Record {
        Record {
            holder: holder.into(),
            duration_seconds: if holder.is_empty() { 1 } else { 15 },
            acquired: micro_time(wall(0)),
            renewed: micro_time(wall(renewed)),
            transitions,
        }
    }

    /// Returns a candidate that has read the Lease at a moment.
    fn after_read(candidate: &mut Election, found: Reply, now: Duration, wall: Timestamp) -> After {
        assert_eq!(candidate.begin(now, wall), Ask::Read);
        candidate.answered(found, now, wall)
    }

    /// Returns a candidate that has led since the beginning.
    fn leader(identity: &str, transitions: u64) -> Election {
        let mut leader = candidate(identity);
        let taken = after_read(&mut leader, Reply::Found(record("", 0, transitions - 1)), at(0), wall(0));
        assert_eq!(taken, After::Ask(Ask::Replace(record(identity, 0, transitions))));
        assert_eq!(leader.answered(Reply::Written, at(0), wall(0)), After::Over(Round::Holds));
        leader
    }

    #[test]
    fn a_missing_lease_is_made_and_a_free_one_taken() {
        let mut one = candidate("a");
        assert_eq!(
            after_read(&mut one, Reply::Missing, at(0), wall(0)),
            After::Ask(Ask::Create(record("a", 0, 0)))
        );
        assert!(!one.leads() && !one.may_act(at(0)));
        let taken = after_read(&mut one, Reply::Found(record("", 0, 4)), at(0), wall(0));
        assert_eq!(taken, After::Ask(Ask::Replace(record("a", 0, 5))));
    }

    #[test]
    fn a_held_lease_is_taken_when_it_has_not_changed_for_its_duration_on_our_clock() {
        let mut one = candidate("b");
        // The holder's clock is far off; only changes count.
        let held = Reply::Found(record("a", -9999, 0));
        let renewed = Reply::Found(record("a", -9990, 0));
        for (found, now, expected) in [
            (&held, 0, After::Over(Round::HeldByOther)),
            (&held, 14_999, After::Over(Round::HeldByOther)),
            (&renewed, 15_000, After::Over(Round::HeldByOther)),
            (&renewed, 29_999, After::Over(Round::HeldByOther)),
            (
                &renewed,
                30_000,
                After::Ask(Ask::Replace(Record { acquired: micro_time(wall(30)), ..record("b", 30, 1) })),
            ),
        ] {
            assert_eq!(after_read(&mut one, found.clone(), at(now), wall(30)), expected, "at {now} ms");
        }
        assert_eq!(one.answered(Reply::Written, at(30_100), wall(30)), After::Over(Round::Holds));
        assert!(one.leads());
    }

    #[test]
    fn a_lease_that_was_deleted_is_held_as_long_as_one_that_is_there() {
        let mut one = candidate("b");
        let other = Reply::Found(record("a", 0, 3));
        assert_eq!(after_read(&mut one, other, at(1_000), wall(1)), After::Over(Round::HeldByOther));
        for (now, expected) in [(2_000, false), (15_999, false), (16_000, true)] {
            let after = after_read(&mut one, Reply::Missing, at(now), wall(16));
            assert_eq!(matches!(after, After::Ask(Ask::Create(_))), expected, "at {now} ms: {after:?}");
        }
        // A released Lease is recreated immediately, and so is its own.
        let mut one = candidate("b");
        let _ = after_read(&mut one, Reply::Found(record("", 0, 3)), at(0), wall(0));
        let after = after_read(&mut one, Reply::Missing, at(0), wall(0));
        assert_eq!(after, After::Ask(Ask::Create(record("b", 0, 0))));
        let mut one = leader("b", 3);
        let _ = one.begin(at(0), wall(0));
        assert_eq!(one.answered(Reply::Failed("404".into()), at(0), wall(0)), After::Ask(Ask::Read));
        let after = one.answered(Reply::Missing, at(0), wall(0));
        assert_eq!(after, After::Ask(Ask::Create(record("b", 0, 0))));
    }

    #[test]
    fn a_leader_acts_until_the_deadline_after_it_asked() {
        let mut one = leader("a", 3);
        assert_eq!(one.begin(at(2_000), wall(2)), Ask::Replace(record("a", 2, 3)));
        // The reply comes late: the time of the request counts.
        assert_eq!(one.answered(Reply::Written, at(6_000), wall(6)), After::Over(Round::Holds));
        assert_eq!(one.acts_until(), Some(at(12_000)));
        for (now, acts) in [(0, true), (11_999, true), (12_000, false), (20_000, false)] {
            assert_eq!((one.may_act(at(now)), one.is_overdue(at(now))), (acts, !acts), "at {now} ms");
        }
        one.stop();
        assert!(!one.may_act(at(0)) && !one.is_overdue(at(20_000)));
    }

    #[test]
    fn a_leader_whose_renewal_fails_reads_and_writes_again_or_stops() {
        let failed = || Reply::Failed("no answer".into());
        let mut one = leader("a", 3);
        let _ = one.begin(at(2_000), wall(2));
        assert_eq!(one.answered(failed(), at(3_000), wall(3)), After::Ask(Ask::Read));
        assert_eq!(
            one.answered(failed(), at(4_000), wall(4)),
            After::Over(Round::Failed("no answer".into()))
        );
        assert!(one.may_act(at(9_999)) && one.is_overdue(at(10_000)));
        // The write did happen.
        let _ = one.begin(at(6_000), wall(6));
        let _ = one.answered(failed(), at(6_000), wall(6));
        let again = one.answered(Reply::Found(record("a", 2, 3)), at(7_000), wall(7));
        assert_eq!(again, After::Ask(Ask::Replace(record("a", 7, 3))));
        assert_eq!(
            one.answered(Reply::Failed("a conflict".into()), at(7_000), wall(7)),
            After::Over(Round::Failed("a conflict".into()))
        );
        assert_eq!(one.acts_until(), Some(at(10_000)));
        // Another candidate has it.
        let _ = one.begin(at(8_000), wall(8));
        let _ = one.answered(failed(), at(8_000), wall(8));
        assert_eq!(
            one.answered(Reply::Found(record("b", 5, 4)), at(8_000), wall(8)),
            After::Over(Round::HeldByOther)
        );
        assert_eq!((one.leads(), one.holder(), one.acts_until()), (false, "b", None));
        assert_eq!(one.release(wall(9)), None);
    }

    #[test]
    fn a_leader_releases_what_it_holds() {
        let mut one = leader("a", 3);
        let released = one.release(wall(4)).unwrap();
        assert_eq!((released.holder.as_str(), released.duration_seconds, released.transitions), ("", 1, 3));
        assert!(!one.may_act(at(0)));
        assert_eq!(candidate("a").release(wall(4)), None);
    }

    #[test]
    fn what_a_lease_says_is_taken_as_it_comes() {
        let endless = Record { duration_seconds: u64::MAX, transitions: u64::MAX, ..record("a", 0, 0) };
        let mut one = candidate("b");
        let now = Duration::from_secs(u64::MAX / 2);
        assert_eq!(
            after_read(&mut one, Reply::Found(endless.clone()), now, wall(0)),
            After::Over(Round::HeldByOther)
        );
        let free = Record { holder: String::new(), ..endless };
        let After::Ask(Ask::Replace(taken)) = after_read(&mut one, Reply::Found(free), now, wall(0)) else {
            panic!("it is free")
        };
        assert_eq!(taken.transitions, u64::MAX);
        assert_eq!(after_read(&mut one, Reply::Written, now, wall(0)), {
            let why = "the answer to another question: Written";
            After::Over(Round::Failed(why.into()))
        });
    }

    #[test]
    fn a_record_is_written_as_it_is_read() {
        let lease = json!({"spec": record("a", 7, 2).spec()});
        assert_eq!(Record::of_lease(&lease), record("a", 7, 2));
        assert_eq!(lease["spec"]["renewTime"], "2026-09-21T14:13:27.000000Z");
        assert_eq!(Record::of_lease(&json!([])), Record::default());
    }
}
