//! Leader election as Kubernetes' controllers do it, decided: a Lease and a clock in, the next write out.
//!
//! Whoever finds the Lease unheld, or unrenewed for the duration that its holder wrote into it (measured on our own
//! clock from when we saw the last change), writes itself in, guarded by the version. Clocks of different machines
//! are never compared.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Who holds it; empty if nobody does.
    pub(super) holder: String,
    /// For how long after a change, seconds.
    pub(super) duration_seconds: u64,
    /// When the holder got it, as written.
    pub(super) acquired: String,
    /// When the holder last renewed it, as written.
    pub(super) renewed: String,
    /// How often the holder has changed.
    pub(super) transitions: u64,
}

impl Record {
    /// Reads `.spec` of a Lease; what is missing is empty.
    pub(super) fn of_lease(lease: &Value) -> Self {
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

    /// The `.spec` to write.
    pub(super) fn spec(&self) -> Value {
        json!({
            "holderIdentity": self.holder, "leaseDurationSeconds": self.duration_seconds,
            "acquireTime": self.acquired, "renewTime": self.renewed, "leaseTransitions": self.transitions,
        })
    }
}

/// What to do about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Write this.
    Write(Record),
    /// Somebody else holds it.
    Wait,
}

/// One candidate's view of the Lease.
#[derive(Clone, Debug)]
pub(super) struct Election {
    identity: String,
    duration: Duration,
    observed: Option<(Record, Instant)>,
}

impl Election {
    /// A candidate that has seen nothing yet.
    pub(super) fn new(identity: String, duration: Duration) -> Self {
        Self { identity, duration, observed: None }
    }

    /// Whether the last record seen or written names us.
    pub(super) fn leads(&self) -> bool {
        self.observed.as_ref().is_some_and(|(record, _)| record.holder == self.identity)
    }

    /// Who holds the Lease, as last seen.
    pub(super) fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |(record, _)| &record.holder)
    }

    /// Takes in the Lease as read (`None`: there is none) and decides.
    pub(super) fn step(&mut self, read: Option<Record>, now: Instant, wall: Timestamp) -> Step {
        let Some(record) = read else { return Step::Write(self.own(micro_time(wall), 0, wall)) };
        if self.observed.as_ref().is_none_or(|(seen, _)| *seen != record) {
            self.observed = Some((record.clone(), now));
        }
        if record.holder == self.identity {
            return Step::Write(self.own(record.acquired, record.transitions, wall));
        }
        let seen_at = self.observed.as_ref().map_or(now, |(_, at)| *at);
        let valid_until = seen_at + Duration::from_secs(record.duration_seconds);
        if !record.holder.is_empty() && valid_until > now {
            return Step::Wait;
        }
        Step::Write(self.own(micro_time(wall), record.transitions + 1, wall))
    }

    /// What a leader writes without reading first, guarded by the version it wrote last.
    pub(super) fn renewal(&self, wall: Timestamp) -> Option<Record> {
        let (record, _) = self.observed.as_ref().filter(|_| self.leads())?;
        Some(self.own(record.acquired.clone(), record.transitions, wall))
    }

    /// What a leader writes when it ends: the Lease is free at once.
    pub(super) fn release(&self, wall: Timestamp) -> Option<Record> {
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

    /// A write has succeeded.
    pub(super) fn wrote(&mut self, record: Record, now: Instant) {
        self.observed = Some((record, now));
    }

    fn own(&self, acquired: String, transitions: u64, wall: Timestamp) -> Record {
        Record {
            holder: self.identity.clone(),
            duration_seconds: self.duration.as_secs(),
            acquired,
            renewed: micro_time(wall),
            transitions,
        }
    }
}

/// RFC 3339 with six digits, as `metav1.MicroTime` is written.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
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

    #[test]
    fn a_missing_lease_is_made_and_a_free_one_taken() {
        let now = Instant::now();
        let mut candidate = Election::new("a".into(), LEASE);
        assert_eq!(candidate.step(None, now, wall(0)), Step::Write(record("a", 0, 0)));
        assert!(!candidate.leads());
        let taken = candidate.step(Some(record("", 0, 4)), now, wall(0));
        assert_eq!(taken, Step::Write(record("a", 0, 5)));
    }

    #[test]
    fn a_held_lease_is_taken_when_it_has_not_changed_for_its_duration_on_our_clock() {
        let start = Instant::now();
        let mut candidate = Election::new("b".into(), LEASE);
        // The holder's clock is far off; only changes count.
        let held = record("a", -9999, 0);
        assert_eq!(candidate.step(Some(held.clone()), start, wall(0)), Step::Wait);
        let almost = start + Duration::from_millis(14_999);
        assert_eq!(candidate.step(Some(held.clone()), almost, wall(14)), Step::Wait);
        let renewed = record("a", -9990, 0);
        let over = start + LEASE;
        assert_eq!(candidate.step(Some(renewed.clone()), over, wall(15)), Step::Wait);
        let Step::Write(written) = candidate.step(Some(renewed), over + LEASE, wall(30)) else {
            panic!("the holder is gone")
        };
        assert_eq!((written.holder.as_str(), written.transitions), ("b", 1));
        candidate.wrote(written, over + LEASE);
        assert!(candidate.leads());
    }

    #[test]
    fn a_leader_renews_keeps_its_acquisition_and_releases() {
        let now = Instant::now();
        let mut leader = Election::new("a".into(), LEASE);
        assert_eq!(leader.renewal(wall(1)), None);
        leader.wrote(record("a", 0, 3), now);
        assert_eq!(leader.renewal(wall(2)), Some(record("a", 2, 3)));
        let released = leader.release(wall(4)).unwrap();
        assert_eq!((released.holder.as_str(), released.duration_seconds, released.transitions), ("", 1, 3));
        assert_eq!(leader.step(Some(record("b", 5, 4)), now, wall(5)), Step::Wait);
        assert!(!leader.leads());
        assert_eq!(leader.holder(), "b");
        assert_eq!(leader.release(wall(6)), None);
    }

    #[test]
    fn a_record_is_written_as_it_is_read() {
        let lease = json!({"spec": record("a", 7, 2).spec()});
        assert_eq!(Record::of_lease(&lease), record("a", 7, 2));
        assert_eq!(lease["spec"]["renewTime"], "2026-09-21T14:13:27.000000Z");
    }
}
