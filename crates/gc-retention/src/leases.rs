//! Leases that are no longer renewed (spec `cluster-collectors.md`, 11 and 12): identity leases of API servers that
//! are gone, and, if enabled, node leases without an owner whose node is gone. A node lease with an owner is left to
//! the owner-reference collector. Stale leases of leader elections are only reported: whether their holder comes back
//! cannot be known here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{
    EventRecord, ObjectKey, Outcome, PropagationPolicy, Request, ResourceVersion, Severity, Timestamp, Uid,
};
use serde::Deserialize;

use crate::engine::{Collector, Decision, Observation, reason};
use crate::measures::{LEASES_STALE, Measurement, ReportQueue, Tally};
use crate::objects::{Cache, Facts, HasMeta, Kind, Meta, WireMeta, parse_time, time_text};
use crate::pods::Node;

/// Where node leases are.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Where identity leases are.
pub const IDENTITY_NAMESPACE: &str = "kube-system";
/// The value of `apiserver.kubernetes.io/identity` of the leases that are collected.
pub const IDENTITY: &str = "kube-apiserver";
/// How long a node lease without owner must be unrenewed, milliseconds.
pub const OWNERLESS_MILLISECONDS: i64 = 24 * 3_600_000;
/// How long beyond its duration the lease of a leader election must be unrenewed to be stale, milliseconds.
pub const STALE_MILLISECONDS: i64 = 24 * 3_600_000;
/// How long a live read proves that a node is gone, milliseconds.
const CONFIRMATION_MILLISECONDS: i64 = 20_000;
/// Delay before a node that exists although it was not observed is read again, milliseconds.
const RECHECK_MILLISECONDS: i64 = 3_600_000;

/// What verdicts need of a Lease.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireLease")]
pub struct Lease {
    /// Its metadata.
    pub meta: Meta,
    /// The label `apiserver.kubernetes.io/identity` names an API server.
    pub identity: bool,
    /// It has an owner.
    pub owned: bool,
    /// `spec.renewTime`
    pub renewed: Option<Timestamp>,
    /// `spec.leaseDurationSeconds`
    pub duration_seconds: Option<i64>,
    /// `spec.holderIdentity`, if it is that of a leader election; empty if it has no holder.
    pub holder: Arc<str>,
}

impl HasMeta for Lease {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireLease {
    metadata: WireMeta,
    spec: WireLeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireLeaseSpec {
    renew_time: Option<String>,
    lease_duration_seconds: Option<i64>,
    holder_identity: Option<String>,
}

impl From<WireLease> for Lease {
    fn from(wire: WireLease) -> Self {
        let label = wire.metadata.labels.as_ref().and_then(|labels| labels.identity.as_deref());
        let meta = Meta::from(&wire.metadata);
        let elected = label.is_none() && *meta.namespace != *NODE_LEASE_NAMESPACE;
        Self {
            holder: wire.spec.holder_identity.filter(|_| elected).unwrap_or_default().into(),
            identity: label == Some(IDENTITY),
            owned: wire.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()),
            renewed: parse_time(wire.spec.renew_time.as_deref()),
            duration_seconds: wire.spec.lease_duration_seconds,
            meta,
        }
    }
}

fn delete(lease: &Lease, verdict: &'static str, fact: String) -> Decision {
    let meta = &lease.meta;
    let request = Request::Delete {
        key: Kind::Lease.key(&meta.namespace, &meta.name),
        uid: meta.uid.clone(),
        resource_version: Some(meta.resource_version),
        policy: PropagationPolicy::Background,
    };
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact]))
}

/// The decision about an identity lease whose present `renewTime` was first seen at `unchanged_since`. Its duration
/// must be over by its own time and by ours, so that a single wrong clock does not decide (BEAT-AL-3).
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

/// When a node lease without owner may be checked, if ever.
fn ownerless_due(lease: &Lease) -> Option<Timestamp> {
    let candidate = !lease.owned && !lease.meta.deleting && *lease.meta.namespace == *NODE_LEASE_NAMESPACE;
    let last = lease.renewed.or(lease.meta.created)?;
    candidate.then(|| last.after(OWNERLESS_MILLISECONDS))
}

/// When the lease of a leader election is stale, unless it is renewed before; `None` for one without a holder, and
/// for all other leases.
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
    /// Stale leases of leader elections that have been reported.
    stale: BTreeSet<ObjectKey>,
    stale_count: Tally,
    reports: ReportQueue,
    leases: Cache<Lease>,
    nodes: Cache<Node>,
    /// Since when an identity lease has had its `renewTime`.
    unchanged: BTreeMap<ObjectKey, (Uid, Option<Timestamp>, Timestamp)>,
    /// The results of live reads of nodes: whether the node exists, and when it was read.
    looked_up: BTreeMap<Arc<str>, (bool, Timestamp)>,
}

impl LeaseCollector {
    /// `ownerless`: whether node leases without owner whose node is gone are deleted as well (BEAT-NL-1).
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
        }
    }

    fn put(&mut self, lease: Lease, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        let wanted = lease.identity || (self.ownerless && ownerless_due(&lease).is_some());
        let (identity, uid, renewed) = (lease.identity, lease.meta.uid.clone(), lease.renewed);
        let elected = stale_from(&lease).is_some();
        let (key, before) = self.leases.put(lease);
        let recovered = before.as_ref().is_some_and(|before| before.renewed != renewed) && self.recover(&key);
        // Renewals come every few seconds: the scheduled time is early enough.
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

    /// It is no longer stale, or gone. Returns whether it was stale.
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
        }
    }

    /// Reports a stale lease of a leader election.
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
        for (_, at) in self.looked_up.values_mut() {
            *at = at.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Lease) => self.leases.list_started(),
            Observation::ListStarted(Kind::Node) => self.nodes.list_started(),
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
                for key in self.nodes.list_ended() {
                    self.nodes.remove(&key);
                }
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

    fn finished(
        &mut self,
        key: &ObjectKey,
        request: &Request,
        outcome: &Outcome,
        now: Timestamp,
        _dirty: &mut Vec<ObjectKey>,
    ) {
        if let (Request::Read { .. }, Outcome::Absent | Outcome::Found(_)) = (request, outcome)
            && self.leases.get(key).is_some()
        {
            self.looked_up.insert(Arc::clone(&key.name), (matches!(outcome, Outcome::Found(_)), now));
        }
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }

    fn gauges(&self, into: &mut Vec<Measurement>) {
        self.stale_count.read(into);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::engine::Engine;
    use serde_json::{Value, json};

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp((NOW + seconds) * 1000)
    }

    fn lease(
        namespace: &str,
        name: &str,
        identity: Option<&str>,
        renewed: Option<i64>,
        duration: Option<i64>,
        owner: &Value,
    ) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "3",
                "labels": {"apiserver.kubernetes.io/identity": identity}, "ownerReferences": owner},
            "spec": {"holderIdentity": name, "renewTime": renewed.map(|seconds| time_text(at(seconds))), "leaseDurationSeconds": duration},
        }))
        .unwrap()
    }

    fn identity(renewed: Option<i64>, duration: Option<i64>) -> Lease {
        lease("kube-system", "apiserver-a", Some("kube-apiserver"), renewed, duration, &Value::Null)
    }

    #[test]
    fn the_scenarios_of_identity_leases() {
        let other = lease("kube-system", "a", Some("other"), Some(-60), Some(10), &Value::Null);
        for (scenario, lease, is_deleted) in [
            ("AL-T01", identity(Some(0), Some(10)), false),
            ("AL-T02", other, false),
            ("AL-T03", identity(Some(-60), Some(10)), true),
            ("AL-T04", identity(None, Some(10)), true),
            ("AL-T05", identity(Some(0), None), true),
            (
                "elsewhere",
                lease("shop", "a", Some("kube-apiserver"), Some(-60), Some(10), &Value::Null),
                false,
            ),
        ] {
            let decision = identity_verdict(&lease, at(-1000), at(0));
            assert_eq!(matches!(decision, Decision::Act(..)), is_deleted, "{scenario}: {decision:?}");
        }
    }

    fn engine(ownerless: bool, leases: Vec<Lease>, nodes: &[&str]) -> Engine<LeaseCollector> {
        let mut engine = Engine::new(LeaseCollector::new(ownerless));
        engine.tick(at(0));
        engine.observe(Observation::ListStarted(Kind::Lease));
        for lease in leases {
            engine.observe(Observation::Observed(Facts::Lease(lease)));
        }
        engine.observe(Observation::Synced(Kind::Lease));
        engine.observe(Observation::ListStarted(Kind::Node));
        for name in nodes {
            let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            engine.observe(Observation::Observed(Facts::Node(node)));
        }
        engine.observe(Observation::Synced(Kind::Node));
        engine
    }

    /// AL-T06, AL-T08, and a wrong clock: a renewal counts from when it was observed.
    #[test]
    fn a_lease_that_is_seen_renewed_stays() {
        let mut engine = engine(false, vec![identity(Some(-60), Some(10))], &[]);
        assert_eq!(engine.poll_effect(), None);
        assert_eq!(engine.next_wakeup(), Some(at(10).after(1)));
        engine.tick(at(8));
        // By its own clock it expired long ago.
        engine.observe(Observation::Observed(Facts::Lease(identity(Some(-50), Some(10)))));
        engine.tick(at(11));
        assert_eq!(engine.poll_effect(), None);
        engine.tick(at(18).after(1));
        let effect = engine.poll_effect().unwrap();
        let Request::Delete { resource_version, uid, .. } = effect.request else { panic!() };
        assert_eq!((uid, resource_version), (Uid::new("apiserver-a"), Some(ResourceVersion(3))));
        // AL-T07: another collector was faster.
        engine.finish(effect.id, &Outcome::Absent);
        assert_eq!(engine.poll_effect(), None);
    }

    /// A recreated lease starts over, even with the `renewTime` of the former one.
    #[test]
    fn a_recreated_identity_lease_starts_over() {
        let mut engine = engine(false, vec![identity(Some(-60), Some(10))], &[]);
        assert_eq!(engine.poll_effect(), None);
        engine.tick(at(8));
        let mut successor = identity(Some(-60), Some(10));
        successor.meta.uid = Uid::new("another");
        engine.observe(Observation::Observed(Facts::Lease(successor)));
        engine.tick(at(11));
        assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(18).after(1))));
    }

    /// A proof counts for 20 s, and only for the lease that it was obtained for. A lease that was never renewed
    /// counts from its creation.
    #[test]
    fn a_proof_that_a_node_is_gone_grows_old() {
        let stale = node_lease(-25 * 3600, &Value::Null);
        let reads = |engine: &mut Engine<LeaseCollector>| {
            matches!(engine.poll_effect().unwrap().request, Request::Read { .. })
        };
        for (seconds, expected) in [(20, false), (21, true)] {
            let mut engine = engine(true, vec![stale.clone()], &[]);
            let read = engine.poll_effect().unwrap();
            engine.finish(read.id, &Outcome::Absent);
            engine.tick(at(seconds));
            assert_eq!(reads(&mut engine), expected, "after {seconds} s");
        }
        let mut engine = engine(true, vec![stale.clone()], &[]);
        let read = engine.poll_effect().unwrap();
        engine.finish(read.id, &Outcome::Absent);
        engine.observe(Observation::Removed(Kind::Lease.key(&"kube-node-lease".into(), &"n".into())));
        engine.observe(Observation::Observed(Facts::Lease(stale)));
        assert!(reads(&mut engine));
        let made = |hours: i64, renewed: Option<i64>| {
            let mut lease = lease("kube-node-lease", "n", None, renewed, Some(40), &Value::Null);
            lease.meta.created = Some(at(-3600 * hours));
            ownerless_due(&lease)
        };
        assert_eq!([made(48, Some(-60)), made(25, None)], [Some(at(86_400 - 60)), Some(at(-3600))]);
    }

    fn node_lease(renewed: i64, owner: &Value) -> Lease {
        lease("kube-node-lease", "n", None, Some(renewed), Some(40), owner)
    }

    /// NL-T10, NL-T11
    #[test]
    fn an_ownerless_lease_is_deleted_only_if_enabled_stale_and_without_node() {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "x"}]);
        let stale = -25 * 3600;
        for (enabled, lease, nodes, looked_at) in [
            (false, node_lease(stale, &Value::Null), &[][..], false),
            (true, node_lease(stale, &owner), &[], false),
            (true, node_lease(-23 * 3600, &Value::Null), &[], false),
            (true, node_lease(stale, &Value::Null), &["n"], false),
            (true, node_lease(stale, &Value::Null), &[], true),
        ] {
            let mut engine = engine(enabled, vec![lease], nodes);
            let Some(read) = engine.poll_effect() else {
                assert!(!looked_at);
                continue;
            };
            assert_eq!(read.request, Request::Read { key: Kind::Node.key(&"".into(), &"n".into()) });
            engine.finish(read.id, &Outcome::Absent);
            assert!(matches!(engine.poll_effect().unwrap().request, Request::Delete { .. }));
            assert!(looked_at);
        }
    }

    fn elected(renewed: Option<i64>, holder: &str) -> Lease {
        let mut lease = lease("shop", "leader", None, renewed, Some(15), &Value::Null);
        lease.holder = holder.into();
        lease
    }

    #[test]
    fn leases_of_leader_elections_are_stale_a_day_after_their_end() {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "x"}]);
        let mut deleted = elected(Some(0), "a");
        deleted.meta.deleting = true;
        for (case, lease, expected) in [
            ("held", elected(Some(0), "a"), Some(at(15 + 86_400))),
            ("given up", elected(Some(0), ""), None),
            ("being deleted", deleted, None),
            ("never renewed", elected(None, "a"), None),
            ("of a node", node_lease(0, &owner), None),
            ("of an API server", identity(Some(0), Some(10)), None),
        ] {
            assert_eq!(stale_from(&lease), expected, "{case}");
        }
    }

    #[test]
    fn a_stale_lease_is_reported_once_counted_and_never_deleted() {
        let gauge = |engine: &Engine<LeaseCollector>| {
            let gauges = engine.standing().gauges;
            gauges.first().map(|reading| (reading.labels.clone(), reading.value))
        };
        let mut engine = engine(false, vec![elected(Some(-86_400), "a")], &[]);
        assert_eq!(engine.poll_effect(), None);
        assert_eq!(engine.next_wakeup(), Some(at(15)));
        // Renewals do not move what is scheduled.
        engine.observe(Observation::Observed(Facts::Lease(elected(Some(-86_390), "a"))));
        assert_eq!(engine.next_wakeup(), Some(at(15)));
        engine.tick(at(15));
        assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(25))));
        assert_eq!(gauge(&engine), None);
        engine.tick(at(25));
        let effect = engine.poll_effect().unwrap();
        let Request::RecordEvent(note) = &effect.request else { panic!("{effect:?}") };
        assert_eq!((note.severity, note.reason), (Severity::Warning, "StaleLease"));
        assert_eq!(gauge(&engine), Some((vec!["shop".into()], 1.0)));
        engine.finish(effect.id, &Outcome::Applied(None));
        engine.observe(Observation::ListStarted(Kind::Lease));
        engine.observe(Observation::Observed(Facts::Lease(elected(Some(-86_390), "a"))));
        engine.observe(Observation::Synced(Kind::Lease));
        assert_eq!(engine.poll_effect(), None);
        // Taken over by another one.
        engine.observe(Observation::Observed(Facts::Lease(elected(Some(20), "b"))));
        assert_eq!((engine.poll_effect(), gauge(&engine)), (None, None));
        assert_eq!(engine.next_wakeup(), Some(at(20 + 15 + 86_400)));
        engine.tick(at(20 + 15 + 86_400));
        assert!(matches!(engine.poll_effect().unwrap().request, Request::RecordEvent(_)));
        engine.observe(Observation::Removed(Kind::Lease.key(&"shop".into(), &"leader".into())));
        assert_eq!(gauge(&engine), None);
    }
}
