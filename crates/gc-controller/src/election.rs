//! Leader election like that of Kubernetes' controllers, as a pure decision: from a Lease and a clock to the next request, and to
//! the time until which the candidate may act.
//!
//! A candidate that finds the Lease free, or not renewed for the duration that its holder wrote to it (measured on the candidate's
//! own clock from the last observed change), writes itself as the holder, with the version as precondition. Clocks of different
//! machines are never compared: a moment here is a duration since a fixed point of this process. Two candidates never act at once
//! as long as the speeds of their clocks differ by less than the factor of the lease duration to the renew deadline (15 s to 10 s
//! by default), which is the same for every duration that [`Pace`] chooses.
//!
//! A holder that writes a shorter duration than before shortens the time for which it acts when it *sends* that renewal: the write
//! may be applied although its answer is lost, and others then wait for the shorter duration only.

mod pace;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use pace::whole_seconds;
pub use pace::{Pace, Timing};

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
    pace: Pace,
    /// Lease as last read, and when that state was first seen.
    observed: Option<(Record, Duration)>,
    pending: Pending,
    /// Time at which the round began, and the durations that it writes.
    asked: Duration,
    timing: Timing,
    /// Time at which the next round is due.
    due: Duration,
    /// Time at which the first renewal was due that has not been granted yet.
    unanswered_since: Option<Duration>,
    acts_until: Option<Duration>,
}

impl Election {
    /// Creates a candidate without knowledge. Its leases last between `shortest` and the durations `longest`; it acts for the
    /// shorter renew deadline, counted from the beginning of the round that renewed the Lease.
    #[must_use]
    pub fn new(identity: String, longest: Timing, shortest: Duration) -> Self {
        Self {
            identity,
            pace: Pace::new(longest, shortest),
            observed: None,
            pending: Pending::Nothing,
            asked: Duration::ZERO,
            timing: longest,
            due: Duration::ZERO,
            unanswered_since: None,
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

    /// Returns the durations of the current round.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns the last known duration of the Lease, in seconds.
    #[must_use]
    pub fn lease_seconds(&self) -> u64 {
        self.observed.as_ref().map_or(0, |(record, _)| record.duration_seconds)
    }

    /// Begins a round. A leader writes immediately, and reads only if that fails. Its time may become shorter: ask
    /// [`Election::acts_until`] before the request is sent.
    pub fn begin(&mut self, now: Duration, wall: Timestamp) -> Ask {
        self.asked = now;
        let Some((record, _)) = self.observed.clone().filter(|_| self.leads()) else {
            self.timing = self.pace.timing(now);
            return self.read();
        };
        // A process that is late is as slow as a server that is.
        let since = *self.unanswered_since.get_or_insert(self.due.min(now));
        self.pace.renewed(now.saturating_sub(since), false, now);
        self.timing = self.pace.timing(now);
        let shortened = now.saturating_add(self.timing.renew_deadline);
        self.acts_until = self.acts_until.map(|until| until.min(shortened));
        let renewal = self.own(record.acquired, record.transitions, wall);
        self.pending = Pending::Renewal(renewal.clone());
        Ask::Replace(renewal)
    }

    /// Ends a round, and returns the time until the next one. A candidate that waits for a Lease asks as soon as it may take it.
    pub fn rest(&mut self, now: Duration) -> Duration {
        let other = self.observed.as_ref().filter(|(record, _)| !record.holder.is_empty() && !self.leads());
        let pause = other.map_or(self.timing.retry_period, |(record, seen_at)| {
            let retry = self.pace.of_other(record.duration_seconds).retry_period;
            let left = valid_until(record, *seen_at).saturating_sub(now);
            if left.is_zero() { retry } else { retry.min(left) }
        });
        self.due = now.saturating_add(pause);
        pause
    }

    /// Takes the reply to the last request of the round.
    pub fn answered(&mut self, reply: Reply, now: Duration, wall: Timestamp) -> After {
        match (std::mem::replace(&mut self.pending, Pending::Nothing), reply) {
            (Pending::Renewal(record) | Pending::Write(record), Reply::Written) => {
                if let Some(since) = self.unanswered_since.take() {
                    self.pace.renewed(now.saturating_sub(since), true, now);
                }
                self.observed = Some((record, now));
                // Other candidates count from when they see the write, which is no earlier than the request.
                self.acts_until = Some(self.asked.saturating_add(self.timing.renew_deadline));
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
        self.unanswered_since = None;
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
            !record.holder.is_empty() && record.holder != self.identity && valid_until(record, *seen_at) > now
        })
    }

    fn stand_by(&mut self) -> After {
        self.stop();
        After::Over(Round::HeldByOther)
    }

    fn own(&self, acquired: String, transitions: u64, wall: Timestamp) -> Record {
        Record {
            holder: self.identity.clone(),
            // Rounded up: others must not wait for less than the proportion that two clocks may differ by.
            duration_seconds: whole_seconds(self.timing.lease_duration),
            acquired,
            renewed: micro_time(wall),
            transitions,
        }
    }
}

fn valid_until(record: &Record, seen_at: Duration) -> Duration {
    seen_at.saturating_add(Duration::from_secs(record.duration_seconds))
}

/// Formats RFC 3339 with six digits, like `metav1.MicroTime`.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests;
