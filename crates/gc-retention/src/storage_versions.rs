//! The collector of StorageVersions (spec `cluster-collectors.md`, section 14): entries of API servers that are gone
//! are removed, and a StorageVersion without entries is deleted. Where the API server does not serve them, nothing is
//! ever observed.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{Change, ObjectKey, Outcome, PropagationPolicy, Request, ResourceVersion, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::{Collector, Decision, Observation, reason};
use crate::leases::{IDENTITY_NAMESPACE, Lease};
use crate::objects::{Cache, Facts, HasMeta, Kind, Meta, WireMeta, time_text};

/// The condition that says whether all servers use the same encoding.
const AGREEMENT: &str = "AllEncodingVersionsEqual";
/// How long a live read of a lease counts, milliseconds.
const CONFIRMATION_MILLISECONDS: i64 = 20_000;
/// How long to wait for the watch to deliver a lease that a live read has found, milliseconds.
const RECHECK_MILLISECONDS: i64 = 1_000;

/// The entry of one API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its identity: the name of its lease.
    pub server: Arc<str>,
    /// The version that it encodes with.
    pub encoding: Arc<str>,
    /// The whole entry.
    pub whole: Value,
}

/// What verdicts need of a StorageVersion.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireStorageVersion")]
pub struct StorageVersion {
    /// Its metadata.
    pub meta: Meta,
    /// `metadata.generation`
    pub generation: i64,
    /// `status.storageVersions`
    pub entries: Vec<Entry>,
    /// `status.commonEncodingVersion`
    pub common: Option<Arc<str>>,
    /// `status.conditions`
    pub conditions: Vec<Value>,
}

impl HasMeta for StorageVersion {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStorageVersion {
    metadata: WireMeta,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    storage_versions: Option<Vec<Value>>,
    common_encoding_version: Option<String>,
    conditions: Option<Vec<Value>>,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl From<WireStorageVersion> for StorageVersion {
    fn from(wire: WireStorageVersion) -> Self {
        let entry = |whole: Value| Entry {
            server: text(&whole, "apiServerID").into(),
            encoding: text(&whole, "encodingVersion").into(),
            whole,
        };
        Self {
            generation: wire.metadata.generation,
            entries: wire.status.storage_versions.into_iter().flatten().map(entry).collect(),
            common: wire.status.common_encoding_version.map(Into::into),
            conditions: wire.status.conditions.unwrap_or_default(),
            meta: Meta::from(&wire.metadata),
        }
    }
}

/// The status with the remaining entries.
fn status(version: &StorageVersion, left: &[&Entry], now: Timestamp) -> Value {
    let first = left.first().map(|entry| &entry.encoding);
    let common = first.filter(|encoding| left.iter().all(|entry| entry.encoding == **encoding));
    let (truth, why, message) = if common.is_some() {
        ("True", "CommonEncodingVersionSet", "Common encoding version set")
    } else {
        ("False", "CommonEncodingVersionUnset", "Common encoding version unset")
    };
    let before = version.conditions.iter().find(|condition| text(condition, "type") == AGREEMENT);
    let replaced = version.common.is_some() && common.is_some() && version.common.as_ref() != common;
    let since = before
        .filter(|condition| text(condition, "status") == truth && !replaced)
        .map(|condition| text(condition, "lastTransitionTime"))
        .filter(|time| !time.is_empty())
        .map_or_else(|| time_text(now), str::to_owned);
    let condition = json!({
        "type": AGREEMENT, "status": truth, "observedGeneration": version.generation,
        "lastTransitionTime": since, "reason": why, "message": message,
    });
    let mut conditions = version.conditions.clone();
    match conditions.iter_mut().find(|condition| text(condition, "type") == AGREEMENT) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    let entries: Vec<&Value> = left.iter().map(|entry| &entry.whole).collect();
    json!({
        "storageVersions": entries, "commonEncodingVersion": common.map(|version| &**version),
        "conditions": conditions,
    })
}

/// The decision when the servers of these entries are gone.
#[must_use]
pub fn without(version: &StorageVersion, gone: &[Arc<str>], now: Timestamp) -> Decision {
    let left: Vec<&Entry> = version.entries.iter().filter(|entry| !gone.contains(&entry.server)).collect();
    if left.len() == version.entries.len() {
        return Decision::Leave;
    }
    let meta = &version.meta;
    let facts: Vec<String> = gone.iter().map(|server| format!("API server {server} has no lease")).collect();
    let why = reason(gc_types::codes::API_SERVER_GONE, meta.resource_version, &facts);
    let key = Kind::StorageVersion.key(&meta.namespace, &meta.name);
    let request = if left.is_empty() {
        Request::Delete {
            key,
            uid: meta.uid.clone(),
            resource_version: Some(meta.resource_version),
            policy: PropagationPolicy::Background,
        }
    } else {
        Request::Guarded {
            key,
            uid: meta.uid.clone(),
            resource_version: meta.resource_version,
            change: Change::MergeStatus(status(version, &left, now).to_string().into()),
        }
    };
    Decision::Act(request, why)
}

/// The state of an API server's lease.
enum Server {
    Lives,
    Gone,
    /// It must be read.
    Unknown,
    /// The watch has not yet delivered what was read.
    Behind,
}

/// The collector.
#[derive(Debug)]
pub struct StorageVersionCollector {
    versions: Cache<StorageVersion>,
    leases: Cache<Lease>,
    /// The results of live reads of leases, and when they were read: the version, if the lease exists.
    looked_up: BTreeMap<Arc<str>, (Option<ResourceVersion>, Timestamp)>,
    /// The lease that is being read on behalf of a StorageVersion.
    reading: BTreeMap<ObjectKey, Arc<str>>,
}

impl Default for StorageVersionCollector {
    fn default() -> Self {
        Self {
            versions: Cache::new(Kind::StorageVersion),
            leases: Cache::new(Kind::SystemLease),
            looked_up: BTreeMap::new(),
            reading: BTreeMap::new(),
        }
    }
}

fn lease_key(server: &Arc<str>) -> ObjectKey {
    Kind::SystemLease.key(&IDENTITY_NAMESPACE.into(), server)
}

impl StorageVersionCollector {
    fn server(&self, server: &Arc<str>, now: Timestamp) -> Server {
        let lease = self.leases.get(&lease_key(server));
        if lease.is_some_and(|lease| lease.identity) {
            return Server::Lives;
        }
        let read = self.looked_up.get(server);
        match read.filter(|(_, at)| now.since(*at) <= CONFIRMATION_MILLISECONDS) {
            Some((None, _)) => Server::Gone,
            // It exists, and is not an API server's.
            Some((Some(found), _)) if lease.is_some_and(|lease| lease.meta.resource_version == *found) => {
                Server::Gone
            }
            Some((Some(_), at)) if now.since(*at) < RECHECK_MILLISECONDS => Server::Behind,
            None | Some((Some(_), _)) => Server::Unknown,
        }
    }

    /// The StorageVersions with an entry of a server.
    fn naming(&self, server: &str, dirty: &mut Vec<ObjectKey>) {
        let named = |key: &&ObjectKey| {
            self.versions
                .get(key)
                .is_some_and(|version| version.entries.iter().any(|entry| *entry.server == *server))
        };
        dirty.extend(self.versions.keys().filter(named).cloned());
    }

    fn put_lease(&mut self, lease: Lease, dirty: &mut Vec<ObjectKey>) {
        let identity = lease.identity;
        let (key, before) = self.leases.put(lease);
        // Most leases of the namespace are no identity leases, and are renewed all the time.
        if before.is_none_or(|before| before.identity != identity) {
            self.naming(&key.name, dirty);
        }
    }

    fn remove_lease(&mut self, key: &ObjectKey, dirty: &mut Vec<ObjectKey>) {
        if self.leases.remove(key).is_some() {
            self.naming(&key.name, dirty);
        }
    }
}

impl Collector for StorageVersionCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::StorageVersion, Kind::SystemLease]
    }

    fn clock_set(&mut self, by: i64) {
        for (_, at) in self.looked_up.values_mut() {
            *at = at.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::StorageVersion) => self.versions.list_started(),
            Observation::ListStarted(Kind::SystemLease) => self.leases.list_started(),
            Observation::Observed(Facts::StorageVersion(version)) => dirty.push(self.versions.put(version).0),
            Observation::Observed(Facts::SystemLease(lease)) => self.put_lease(lease, dirty),
            Observation::Removed(key) if key.resource == Kind::StorageVersion.resource() => {
                self.versions.remove(&key);
                self.reading.remove(&key);
            }
            Observation::Removed(key) if key.resource == Kind::SystemLease.resource() => {
                self.remove_lease(&key, dirty);
            }
            Observation::Synced(Kind::StorageVersion) => {
                for key in self.versions.list_ended() {
                    self.versions.remove(&key);
                }
                dirty.extend(self.versions.keys().cloned());
            }
            Observation::Synced(Kind::SystemLease) => {
                for key in self.leases.list_ended() {
                    self.remove_lease(&key, dirty);
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        self.looked_up.retain(|_, (_, at)| now.since(*at) <= CONFIRMATION_MILLISECONDS);
        let Some(version) = self.versions.get(key).filter(|version| !version.meta.deleting) else {
            return Decision::Leave;
        };
        let mut gone = Vec::new();
        for Entry { server, .. } in &version.entries {
            match self.server(server, now) {
                Server::Lives => {}
                Server::Gone => gone.push(Arc::clone(server)),
                Server::Behind => return Decision::Later(now.after(RECHECK_MILLISECONDS)),
                Server::Unknown => {
                    let fact = format!("no lease of API server {server} was observed");
                    let verdict = gc_types::codes::API_SERVER_UNKNOWN;
                    let why = reason(verdict, version.meta.resource_version, &[fact]);
                    let read = Request::Read { key: lease_key(server) };
                    self.reading.insert(key.clone(), Arc::clone(server));
                    return Decision::Act(read, why);
                }
            }
        }
        without(version, &gone, now)
    }

    fn finished(
        &mut self,
        key: &ObjectKey,
        request: &Request,
        outcome: &Outcome,
        now: Timestamp,
        _dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Read { .. } = request else { return };
        let Some(server) = self.reading.remove(key) else { return };
        // Any other answer proves nothing (BEAT-SV-1).
        match outcome {
            Outcome::Absent => drop(self.looked_up.insert(server, (None, now))),
            Outcome::Found(found) => {
                self.looked_up.insert(server, (Some(found.resource_version), now));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::engine::Engine;
    use gc_types::{Effect, Uid};

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp((NOW + seconds) * 1000)
    }

    fn entries(of: &[(&str, &str)]) -> Vec<Value> {
        let entry = |(server, version): &(&str, &str)| json!({"apiServerID": server, "encodingVersion": version, "decodableVersions": [version]});
        of.iter().map(entry).collect()
    }

    fn version(of: &[(&str, &str)], common: Option<&str>) -> StorageVersion {
        let truth = if common.is_some() { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": "apps.deployments", "uid": "u", "resourceVersion": "7", "generation": 2},
            "status": {"storageVersions": entries(of), "commonEncodingVersion": common, "conditions": [
                {"type": "Other", "status": "True"},
                {"type": AGREEMENT, "status": truth, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap()
    }

    fn lease(server: &str, identity: &str) -> Facts {
        let json = json!({"metadata": {"namespace": "kube-system", "name": server, "uid": server,
            "resourceVersion": "3", "labels": {"apiserver.kubernetes.io/identity": identity}}});
        Facts::SystemLease(serde_json::from_value(json).unwrap())
    }

    fn engine(version: StorageVersion, servers: &[&str]) -> Engine<StorageVersionCollector> {
        let mut engine = Engine::new(StorageVersionCollector::default());
        engine.tick(at(0));
        let leases = servers.iter().map(|server| lease(server, "kube-apiserver")).collect();
        for (kind, facts) in
            [(Kind::StorageVersion, vec![Facts::StorageVersion(version)]), (Kind::SystemLease, leases)]
        {
            engine.observe(Observation::ListStarted(kind));
            for facts in facts {
                engine.observe(Observation::Observed(facts));
            }
            engine.observe(Observation::Synced(kind));
        }
        engine
    }

    /// Answers the requested read of a lease.
    fn answer(engine: &mut Engine<StorageVersionCollector>, server: &str, outcome: &Outcome) {
        let read = engine.poll_effect().unwrap();
        assert_eq!(read.request, Request::Read { key: lease_key(&server.into()) });
        engine.finish(read.id, outcome);
    }

    fn written(effect: &Effect) -> Value {
        let Request::Guarded { change: Change::MergeStatus(status), uid, resource_version, .. } =
            &effect.request
        else {
            panic!("{effect:?}")
        };
        assert_eq!((uid, *resource_version), (&Uid::new("u"), ResourceVersion(7)));
        serde_json::from_str(status).unwrap()
    }

    fn found() -> Outcome {
        let key = lease_key(&"1".into());
        let object = gc_types::ObservedObject {
            key,
            uid: Uid::new("1"),
            resource_version: ResourceVersion(3),
            owners: std::iter::empty().collect(),
            deletion: gc_types::DeletionState::default(),
        };
        Outcome::Found(object)
    }

    #[test]
    fn entries_of_servers_that_are_gone_are_removed() {
        let kept = |truth: &str, why: &str, since: Value, message: &str| {
            json!([{"type": "Other", "status": "True"}, {"type": AGREEMENT, "status": truth,
                "observedGeneration": 2, "lastTransitionTime": since, "reason": why, "message": message}])
        };
        let set =
            |since: Value| kept("True", "CommonEncodingVersionSet", since, "Common encoding version set");
        let unset = |since: Value| {
            kept("False", "CommonEncodingVersionUnset", since, "Common encoding version unset")
        };
        let (now, before) = (json!(time_text(at(0))), json!("2026-01-01T00:00:00Z"));
        for (scenario, of, common, gone, left, agreed, conditions) in [
            (
                "SV-T01",
                &[("1", "v1"), ("2", "v2"), ("3", "v2")][..],
                None,
                "1",
                &[("2", "v2"), ("3", "v2")][..],
                json!("v2"),
                set(now.clone()),
            ),
            (
                "SV-T03",
                &[("1", "v1"), ("2", "v2"), ("3", "v2"), ("4", "v2")],
                None,
                "4",
                &[("1", "v1"), ("2", "v2"), ("3", "v2")],
                Value::Null,
                unset(before.clone()),
            ),
            (
                "nothing changes but the entry",
                &[("1", "v1"), ("2", "v1")],
                Some("v1"),
                "2",
                &[("1", "v1")],
                json!("v1"),
                set(before),
            ),
            (
                "one version replaces another",
                &[("1", "v1"), ("2", "v2")],
                Some("v1"),
                "1",
                &[("2", "v2")],
                json!("v2"),
                set(now),
            ),
        ] {
            let servers: Vec<&str> = left.iter().map(|(server, _)| *server).collect();
            let mut engine = engine(version(of, common), &servers);
            answer(&mut engine, gone, &Outcome::Absent);
            let expected = json!({"storageVersions": entries(left), "commonEncodingVersion": agreed,
                "conditions": conditions});
            assert_eq!(written(&engine.poll_effect().unwrap()), expected, "{scenario}");
        }
    }

    #[test]
    fn what_has_no_entries_left_is_deleted() {
        // SV-T04: the removal of the lease is observed.
        let mut engine = engine(version(&[("1", "v1")], Some("v1")), &["1"]);
        assert_eq!(engine.poll_effect(), None);
        engine.observe(Observation::Removed(lease_key(&"1".into())));
        answer(&mut engine, "1", &Outcome::Absent);
        let effect = engine.poll_effect().unwrap();
        let Request::Delete { uid, resource_version, .. } = effect.request else { panic!("{effect:?}") };
        assert_eq!((uid, resource_version), (Uid::new("u"), Some(ResourceVersion(7))));
    }

    #[test]
    fn what_lives_or_may_live_is_left_alone() {
        // SV-T02: the lease of a server that no entry names.
        let mut engine = engine(version(&[("1", "v1"), ("3", "v2")], Some("v1")), &["1", "2", "3"]);
        engine.observe(Observation::Removed(lease_key(&"2".into())));
        assert_eq!(engine.poll_effect(), None);

        // SV-T05: deleted, and recreated before it was read.
        engine.observe(Observation::Removed(lease_key(&"1".into())));
        answer(&mut engine, "1", &found());
        assert_eq!(engine.poll_effect(), None);
        engine.observe(Observation::Observed(lease("1", "kube-apiserver")));
        engine.tick(at(5));
        assert_eq!(engine.poll_effect(), None);

        // SV-T07: no answer proves nothing.
        engine.observe(Observation::Removed(lease_key(&"3".into())));
        let away = Outcome::Failed { message: "503".into(), retry_after_milliseconds: None };
        for seconds in [6, 7, 8] {
            answer(&mut engine, "3", &away);
            engine.tick(at(seconds));
        }
        answer(&mut engine, "3", &Outcome::NotServed);
        assert_eq!(engine.poll_effect(), None);
    }

    /// SV-T06
    #[test]
    fn a_lease_that_is_not_an_api_servers_keeps_no_entry() {
        let mut engine = engine(version(&[("1", "v1"), ("2", "v1")], Some("v1")), &["2"]);
        engine.observe(Observation::Observed(lease("1", "someone-else")));
        answer(&mut engine, "1", &found());
        let effect = engine.poll_effect().unwrap();
        assert_eq!(written(&effect)["storageVersions"], json!(entries(&[("2", "v1")])));
    }
}
