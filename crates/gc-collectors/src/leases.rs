//! Leases that are no longer renewed (spec `cluster-collectors.md`, 11 and 12): identity leases of API servers that are gone and,
//! if enabled, ownerless node leases whose node is gone. Node leases with an owner are left to the owner-reference collector. Stale
//! leader election leases are only reported, because their holder may come back.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{
    EventRecord, ObjectKey, Outcome, PropagationPolicy, Reason, Request, ResourceVersion, Severity,
    Timestamp, Uid,
};

use crate::engine::{Collector, Decision, EndedRequest, Observation, reason};
use crate::entry::{CollectorEntry, READ, WATCH_DELETE, WRITE_EVENTS, Watches, rule};
use crate::measures::{LEASES_STALE, Measurement, ReportQueue, Tally};
use crate::objects::{Cache, Facts, Kind, Node, time_text};
pub use crate::objects::{IDENTITY, Lease, NODE_LEASE_NAMESPACE};

/// Namespace of identity leases.
pub const IDENTITY_NAMESPACE: &str = "kube-system";
/// Minimum time without renewal before an ownerless node lease is deleted, milliseconds.
pub const OWNERLESS_MILLISECONDS: i64 = 24 * 3_600_000;

/// Time beyond its duration after which an unrenewed leader election lease is stale, milliseconds.
pub const STALE_MILLISECONDS: i64 = 24 * 3_600_000;

/// Validity of a live read that found no node, milliseconds.
const CONFIRMATION_MILLISECONDS: i64 = 20_000;

/// Delay before a node that exists although it was not observed is read again, milliseconds.
const RECHECK_MILLISECONDS: i64 = 3_600_000;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "leases",
    name: "stale-lease-controller",
    alias: None,
    account: "stale-lease-controller",
    event_source: "stale-lease-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::Lease, Kind::Node]),
    flags: &["ownerless-node-leases"],
    rules: &[rule("coordination.k8s.io", "leases", WATCH_DELETE), rule("", "nodes", READ), WRITE_EVENTS],
};

fn delete(lease: &Lease, verdict: &'static str, fact: String) -> Decision {
    let meta = &lease.meta;
    let request = Kind::Lease.deletion(meta, PropagationPolicy::Background);
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact]))
}

/// Returns the decision about an identity lease whose current `renewTime` was first seen at `unchanged_since`. Its duration must be
/// over by both the lease's time and the local clock, so that a single wrong clock does not decide (BEAT-AL-3).
#[must_use]
pub fn identity_verdict(lease: &Lease, unchanged_since: Timestamp, now: Timestamp) -> Decision {
    const VERDICT: &str = gc_types::codes::IDENTITY_LEASE_EXPIRED;
    if lease.meta.deleting || !lease.identity || *lease.meta.namespace != *IDENTITY_NAMESPACE {
        return Decision::Leave;
    }
    let (Some(renewed), Some(seconds)) = (lease.renewed, lease.duration_seconds) else {
        return delete(lease, VERDICT, "it has no renewTime or no duration".to_owned());
    };
    let end = renewed.max(unchanged_since).after(seconds.saturating_mul(1000)).after(1);
    if now < end {
        return Decision::Later(end);
    }
    delete(lease, VERDICT, format!("renewed last at {}, for {seconds} s", time_text(renewed)))
}

/// Returns when an ownerless node lease may be checked, if ever.
fn ownerless_due(lease: &Lease) -> Option<Timestamp> {
    let candidate = !lease.owned && !lease.meta.deleting && *lease.meta.namespace == *NODE_LEASE_NAMESPACE;
    let last = lease.renewed.or(lease.meta.created)?;
    candidate.then(|| last.after(OWNERLESS_MILLISECONDS))
}

/// Returns when a leader election lease becomes stale unless it is renewed; `None` for one without a holder, and for all other
/// leases.
#[must_use]
pub fn stale_from(lease: &Lease) -> Option<Timestamp> {
    let renewed = lease.renewed.filter(|_| !lease.holder.is_empty() && !lease.meta.deleting)?;
    let duration = lease.duration_seconds.unwrap_or_default().saturating_mul(1000);
    Some(renewed.after(duration).after(STALE_MILLISECONDS))
}

/// The collector of leases.
#[derive(Debug)]
pub struct LeaseCollector {
    ownerless: bool,
    /// Stale leader election leases that have been reported.
    stale: BTreeSet<ObjectKey>,
    stale_count: Tally,
    reports: ReportQueue,
    leases: Cache<Lease>,
    nodes: Cache<Node>,
    /// Time since which an identity lease has had its `renewTime`.
    unchanged: BTreeMap<ObjectKey, (Uid, Option<Timestamp>, Timestamp)>,
    /// Results of live reads of nodes: whether the node exists, and when the read was sent.
    looked_up: BTreeMap<Arc<str>, (bool, Timestamp)>,
    /// Live reads of nodes in flight. If nodes have been listed since then, the answer is about another history and is ignored.
    reading: BTreeMap<Arc<str>, Timestamp>,
}

impl LeaseCollector {
    /// Creates the collector. `ownerless` also deletes ownerless node leases whose node is gone (BEAT-NL-1).
    #[must_use]
    pub fn new(ownerless: bool) -> Self {
        Self {
            ownerless,
            stale: BTreeSet::new(),
            stale_count: Tally::new(&LEASES_STALE),
            reports: ReportQueue::default(),
            leases: Cache::new(Kind::Lease),
            nodes: Cache::new(Kind::Node),
            unchanged: BTreeMap::new(),
            looked_up: BTreeMap::new(),
            reading: BTreeMap::new(),
        }
    }

    fn put(&mut self, lease: Lease, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        let wanted = lease.identity || (self.ownerless && ownerless_due(&lease).is_some());
        let (identity, uid, renewed) = (lease.identity, lease.meta.uid.clone(), lease.renewed);
        let elected = stale_from(&lease).is_some();
        let (key, before) = self.leases.put(lease);
        let recovered = before.as_ref().is_some_and(|before| before.renewed != renewed) && self.recover(&key);
        // Renewals arrive every few seconds, and the scheduled time is early enough.
        let first = before.is_none_or(|before| stale_from(&before).is_none());
        if identity {
            match self.unchanged.get(&key) {
                Some((known, time, _)) if *known == uid && *time == renewed => {}
                _ => drop(self.unchanged.insert(key.clone(), (uid, renewed, now))),
            }
        }
        if wanted || (elected && (first || recovered)) {
            dirty.push(key);
        }
    }

    /// Handles a lease that is no longer stale, or is gone. Returns whether it was stale.
    fn recover(&mut self, key: &ObjectKey) -> bool {
        let was_stale = self.stale.remove(key);
        if was_stale {
            self.stale_count.remove(&vec![Arc::clone(&key.namespace)]);
        }
        was_stale
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.recover(key);
        if self.leases.remove(key).is_some() {
            self.unchanged.remove(key);
            self.looked_up.remove(&key.name);
            self.reading.remove(&key.name);
        }
    }

    /// Reports a stale leader election lease.
    fn decide_elected(&mut self, key: &ObjectKey, now: Timestamp) -> Decision {
        let Some(lease) = self.leases.get(key) else { return Decision::Leave };
        let (Some(from), Some(renewed)) = (stale_from(lease), lease.renewed) else { return Decision::Leave };
        if now < from {
            return Decision::Later(from);
        }
        if self.stale.insert(key.clone()) {
            self.stale_count.add(vec![Arc::clone(&key.namespace)]);
            let message = format!(
                "{} holds this lease, and has not renewed it since {}; kubegc does not delete it",
                lease.holder,
                time_text(renewed)
            );
            let why = reason(
                gc_types::codes::LEASE_NOT_RENEWED,
                lease.meta.resource_version,
                std::slice::from_ref(&message),
            );
            let note = EventRecord {
                about: key.clone(),
                uid: lease.meta.uid.clone(),
                severity: Severity::Warning,
                reason: "StaleLease",
                message,
            };
            self.reports.event(note, why);
        }
        Decision::Leave
    }

    fn decide_ownerless(&self, key: &ObjectKey, lease: &Lease, now: Timestamp) -> Decision {
        let Some(due) = ownerless_due(lease).filter(|_| self.ownerless) else { return Decision::Leave };
        if now < due {
            return Decision::Later(due);
        }
        let node = Kind::Node.key(&"".into(), &key.name);
        if self.nodes.get(&node).is_some() {
            return Decision::Later(now.after(RECHECK_MILLISECONDS));
        }
        match self.looked_up.get(&key.name) {
            Some((false, at)) if now.since(*at) <= CONFIRMATION_MILLISECONDS => {
                delete(lease, gc_types::codes::NODE_LEASE_ORPHANED, "a live read found no node".to_owned())
            }
            Some((true, at)) if now.since(*at) < RECHECK_MILLISECONDS => {
                Decision::Later(at.after(RECHECK_MILLISECONDS))
            }
            _ => {
                let fact = format!("no node {} was observed", key.name);
                let why = reason(gc_types::codes::NODE_UNKNOWN, ResourceVersion::UNKNOWN, &[fact]);
                Decision::Act(Request::Read { key: node }, why)
            }
        }
    }
}

impl Collector for LeaseCollector {
    fn kinds(&self) -> &'static [Kind] {
        if self.ownerless { &[Kind::Lease, Kind::Node] } else { &[Kind::Lease] }
    }

    fn clock_set(&mut self, by: i64) {
        for (_, _, since) in self.unchanged.values_mut() {
            *since = since.after(by);
        }
        for at in self.looked_up.values_mut().map(|(_, at)| at).chain(self.reading.values_mut()) {
            *at = at.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Lease) => self.leases.list_started(),
            Observation::ListStarted(Kind::Node) => {
                self.nodes.list_started();
                self.looked_up.clear();
                self.reading.clear();
            }
            Observation::Observed(Facts::Lease(lease)) => self.put(lease, now, dirty),
            Observation::Observed(Facts::Node(node)) => drop(self.nodes.put(node)),
            Observation::Removed(key) if key.resource == Kind::Lease.resource() => self.remove(&key),
            Observation::Removed(key) => drop(self.nodes.remove(&key)),
            Observation::Synced(Kind::Lease) => {
                for key in self.leases.list_ended() {
                    self.remove(&key);
                }
                dirty.extend(self.leases.keys().cloned());
            }
            Observation::Synced(Kind::Node) => {
                self.nodes.forget_unlisted();
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(lease) = self.leases.get(key) else { return Decision::Leave };
        match self.unchanged.get(key) {
            Some((_, _, since)) if lease.identity => identity_verdict(lease, *since, now),
            _ if !lease.holder.is_empty() => self.decide_elected(key, now),
            _ => self.decide_ownerless(key, lease, now),
        }
    }

    fn sending(&mut self, key: &ObjectKey, request: &Request, _reason: &Reason, now: Timestamp) {
        if let Request::Read { .. } = request {
            self.reading.insert(Arc::clone(&key.name), now);
        }
    }

    fn skipped(&mut self, key: &ObjectKey, request: &Request) {
        if let Request::Read { .. } = request {
            self.reading.remove(&key.name);
        }
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, .. }: EndedRequest<'_>,
        _dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Read { .. } = request else { return };
        let Some(sent) = self.reading.remove(&key.name) else { return };
        if let Outcome::Absent | Outcome::Found(_) = outcome {
            self.looked_up.insert(Arc::clone(&key.name), (matches!(outcome, Outcome::Found(_)), sent));
        }
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }

    fn gauges(&self, into: &mut Vec<Measurement>) {
        self.stale_count.read(into);
    }
}
