//! Collector of StorageVersions (spec `cluster-collectors.md`, section 14): removes the entries of API servers that are gone, and
//! deletes a StorageVersion without entries. If the API server does not serve them, nothing is ever observed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{Change, ObjectKey, Outcome, PropagationPolicy, Reason, Request, ResourceVersion, Timestamp};
use serde_json::{Value, json};

use crate::engine::{Collector, Decision, EndedRequest, Observation, reason};
use crate::entry::{CollectorEntry, READ, Watches, rule};
use crate::leases::{IDENTITY_NAMESPACE, Lease};
use crate::objects::{Cache, Facts, Kind, text_field, time_text};
pub use crate::objects::{Entry, StorageVersion};

/// Condition that shows whether all servers use the same encoding.
const AGREEMENT: &str = "AllEncodingVersionsEqual";

/// Validity of a live read of a lease, milliseconds.
const CONFIRMATION_MILLISECONDS: i64 = 20_000;

/// Maximum wait for the watch to deliver a lease that a live read has found, milliseconds.
const RECHECK_MILLISECONDS: i64 = 1_000;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "storage versions",
    name: "storageversion-garbage-collector-controller",
    alias: Some("storage-version-gc"),
    account: "storage-version-garbage-collector",
    event_source: "storageversion-garbage-collector-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::StorageVersion, Kind::SystemLease]),
    flags: &[],
    rules: &[
        rule("internal.apiserver.k8s.io", "storageversions", &["get", "list", "watch", "delete"]),
        rule("internal.apiserver.k8s.io", "storageversions/status", &["patch"]),
        rule("coordination.k8s.io", "leases", READ),
    ],
};

/// Returns the status with the remaining entries.
fn status(version: &StorageVersion, left: &[&Entry], now: Timestamp) -> Value {
    let first = left.first().map(|entry| &entry.encoding);
    let common = first.filter(|encoding| left.iter().all(|entry| entry.encoding == **encoding));
    let (truth, why, message) = if common.is_some() {
        ("True", "CommonEncodingVersionSet", "Common encoding version set")
    } else {
        ("False", "CommonEncodingVersionUnset", "Common encoding version unset")
    };
    let before = version.conditions.iter().find(|condition| text_field(condition, "type") == AGREEMENT);
    let replaced = version.common.is_some() && common.is_some() && version.common.as_ref() != common;
    let since = before
        .filter(|condition| text_field(condition, "status") == truth && !replaced)
        .map(|condition| text_field(condition, "lastTransitionTime"))
        .filter(|time| !time.is_empty())
        .map_or_else(|| time_text(now), str::to_owned);
    let condition = json!({
        "type": AGREEMENT, "status": truth, "observedGeneration": version.generation,
        "lastTransitionTime": since, "reason": why, "message": message,
    });
    let mut conditions = version.conditions.clone();
    match conditions.iter_mut().find(|condition| text_field(condition, "type") == AGREEMENT) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    let entries: Vec<&Value> = left.iter().map(|entry| &entry.whole).collect();
    json!({
        "storageVersions": entries, "commonEncodingVersion": common.map(|version| &**version),
        "conditions": conditions,
    })
}

/// Returns the decision for the case that the servers of these entries are gone.
#[must_use]
pub fn without(version: &StorageVersion, gone: &[Arc<str>], now: Timestamp) -> Decision {
    let left: Vec<&Entry> = version.entries.iter().filter(|entry| !gone.contains(&entry.server)).collect();
    if left.len() == version.entries.len() {
        return Decision::Leave;
    }
    let meta = &version.meta;
    let facts: Vec<String> = gone.iter().map(|server| format!("API server {server} has no lease")).collect();
    let why = reason(gc_types::codes::API_SERVER_GONE, meta.resource_version, &facts);
    let request = if left.is_empty() {
        Kind::StorageVersion.deletion(meta, PropagationPolicy::Background)
    } else {
        let status = status(version, &left, now).to_string();
        Kind::StorageVersion.guarded(meta, Change::MergeStatus(status.into()))
    };
    Decision::Act(request, why)
}

/// State of an API server's lease.
enum Server {
    Lives,
    Gone,
    /// Must be read.
    Unknown,
    /// The watch has not yet delivered what was read.
    Behind,
}

/// The collector.
#[derive(Debug)]
pub struct StorageVersionCollector {
    versions: Cache<StorageVersion>,
    leases: Cache<Lease>,
    /// Results of live reads of leases, and when they were sent: the version, if the lease exists.
    looked_up: BTreeMap<Arc<str>, (Option<ResourceVersion>, Timestamp)>,
    /// Lease that is being read on behalf of a StorageVersion, and since when. If leases have been listed since then, the answer is
    /// about another history and is ignored.
    reading: BTreeMap<ObjectKey, (Arc<str>, Timestamp)>,
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
            // It exists, but does not belong to an API server.
            Some((Some(found), _)) if lease.is_some_and(|lease| lease.meta.resource_version == *found) => {
                Server::Gone
            }
            Some((Some(_), at)) if now.since(*at) < RECHECK_MILLISECONDS => Server::Behind,
            None | Some((Some(_), _)) => Server::Unknown,
        }
    }

    /// Adds the StorageVersions with an entry of a server.
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
        // Most leases of the namespace are not identity leases, and are renewed all the time.
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
        let read = self.looked_up.values_mut().map(|(_, at)| at);
        for at in read.chain(self.reading.values_mut().map(|(_, at)| at)) {
            *at = at.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::StorageVersion) => self.versions.list_started(),
            Observation::ListStarted(Kind::SystemLease) => {
                self.leases.list_started();
                self.looked_up.clear();
                self.reading.clear();
            }
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
                self.versions.forget_unlisted();
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
                    return Decision::Act(read, why);
                }
            }
        }
        without(version, &gone, now)
    }

    fn sending(&mut self, key: &ObjectKey, request: &Request, _reason: &Reason, now: Timestamp) {
        if let Request::Read { key: lease } = request {
            self.reading.insert(key.clone(), (Arc::clone(&lease.name), now));
        }
    }

    fn skipped(&mut self, key: &ObjectKey, _request: &Request) {
        self.reading.remove(key);
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, .. }: EndedRequest<'_>,
        _dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Read { .. } = request else { return };
        let Some((server, sent)) = self.reading.remove(key) else { return };
        // Any other answer proves nothing (BEAT-SV-1).
        match outcome {
            Outcome::Absent => drop(self.looked_up.insert(server, (None, sent))),
            Outcome::Found(found) => {
                self.looked_up.insert(server, (Some(found.resource_version), sent));
            }
            _ => {}
        }
    }
}
