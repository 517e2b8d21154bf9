//! The policies of a simulated collector: the real engines of `RetentionPolicy` objects, and between them and the server
//! what the adapter to a real one does: watches of their own, shared by the policies about one kind, and statuses.

use std::collections::BTreeMap;

use gc_registry::api::Object;
use gc_retention::policies::engine::PolicyEngine;
use gc_retention::policies::{KIND, Look};
use gc_types::{Effect, EffectId, Event, Outcome, ResourceId, Timestamp};
use serde_json::{Value, json};

use crate::defects::{self, Defect};
use crate::kinds::{KINDS, kind_index};
use crate::server::Server;
use crate::story::StreamFault;
use crate::watching::Watcher;

/// A status is written at most so often, milliseconds.
const STATUS_PAUSE: i64 = 1_000;
/// After a status could not be written, it is tried again so much later, milliseconds.
const STATUS_RETRY: i64 = 5_000;
/// A policy that has just come gets so long for its first list, milliseconds.
const FIRST_LIST: i64 = 500;

/// On behalf of which policy something is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The generation that the collector goes by.
    pub generation: i64,
    /// Which making of its engine in the collector this is.
    pub epoch: u64,
}

/// A status on its way to the server.
#[derive(Clone, Debug)]
pub struct StatusWrite {
    /// Name of the policy.
    pub name: String,
    /// The merge patch.
    pub body: Value,
    epoch: u64,
}

struct Active {
    uid: String,
    engine: PolicyEngine,
    /// The status as it is stored.
    stored: Value,
    epoch: u64,
    seen: bool,
    writing: bool,
    write_after: i64,
}

/// A kind, and whether its objects are read whole.
type Target = (usize, bool);

struct Shared {
    watcher: Watcher,
    listing: bool,
    members: Vec<(String, u64)>,
}

/// The policies of one collector.
pub struct Policies {
    defect: Option<Defect>,
    own: Watcher,
    listing: bool,
    synced: bool,
    active: BTreeMap<String, Active>,
    watches: BTreeMap<Target, Shared>,
    /// Statuses on their way.
    pub statuses: Vec<StatusWrite>,
    epoch: u64,
    now: i64,
}

impl std::fmt::Debug for Policies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policies").field("active", &self.active.len()).finish_non_exhaustive()
    }
}

/// A kind as the resource number of its objects.
fn resource(kind: usize) -> ResourceId {
    ResourceId(u32::try_from(kind).unwrap_or(0))
}

fn whole(object: &Object) -> Value {
    let mut json = Vec::new();
    let written = object.write_json(&mut json, false).is_ok();
    if written { serde_json::from_slice(&json).unwrap_or_default() } else { Value::Null }
}

impl Policies {
    /// None is known yet.
    #[must_use]
    pub fn new(defect: Option<Defect>) -> Self {
        Self {
            defect,
            own: Watcher::new(kind_index(KIND)),
            listing: false,
            synced: false,
            active: BTreeMap::new(),
            watches: BTreeMap::new(),
            statuses: Vec::new(),
            epoch: 0,
            now: 0,
        }
    }

    /// Tells the time; never an earlier one than before.
    pub fn tick(&mut self, now: i64) {
        self.now = self.now.max(now);
        for active in self.active.values_mut() {
            active.engine.tick(Timestamp(self.now));
        }
    }

    /// Lets the watch at a position tell at most so many events. Returns how many there were.
    pub fn deliver(&mut self, position: usize, most: usize, server: &Server) -> usize {
        let position = position % (1 + self.watches.len());
        let told = match position.checked_sub(1) {
            None => self.deliver_policies(most, server),
            Some(shared) => {
                let target = self.watches.keys().nth(shared).copied();
                target.map_or(0, |target| self.deliver_objects(target, most, server))
            }
        };
        self.tick(self.now);
        told
    }

    /// How many watches there are.
    #[must_use]
    pub fn watched(&self) -> usize {
        1 + self.watches.len()
    }

    fn deliver_policies(&mut self, most: usize, server: &Server) -> usize {
        let events = self.own.read(resource(self.own.kind), most, server);
        let told = events.len();
        for (event, object) in events {
            match (event, object) {
                (Event::ListStarted(_), _) => {
                    (self.listing, self.synced) = (true, false);
                    for active in self.active.values_mut() {
                        active.seen = false;
                    }
                }
                (Event::Synced { .. }, _) if std::mem::take(&mut self.listing) => {
                    self.synced = true;
                    self.active.retain(|_, active| active.seen);
                    self.rewatch();
                }
                (Event::Observed(_), Some(object)) => self.take_policy(whole(&object)),
                (Event::Removed { key, .. }, _) => {
                    self.active.remove(&*key.name);
                    self.rewatch();
                }
                _ => {}
            }
        }
        told
    }

    fn take_policy(&mut self, mut object: Value) {
        defects::policy(self.defect, &mut object);
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        let is_same = |active: &Active| match self.defect {
            Some(Defect::PolicyNeverNew) => true,
            Some(Defect::PolicySpecAssumed) => {
                active.engine.generation() == metadata["generation"].as_i64().unwrap_or_default()
            }
            _ => active.engine.is_of(&object),
        };
        if let Some(active) = self.active.get_mut(&name)
            && active.uid == uid
            && is_same(active)
        {
            active.seen = true;
            active.stored = object["status"].clone();
            return;
        }
        let target = target_of(&object);
        let mut engine = PolicyEngine::new(&object, resource(target.unwrap_or(0)));
        if self.defect == Some(Defect::PolicyUnshown) {
            engine.shown();
        }
        engine.tick(Timestamp(self.now));
        self.epoch += 1;
        let active = Active {
            uid,
            engine,
            stored: object["status"].clone(),
            epoch: self.epoch,
            seen: true,
            writing: false,
            write_after: self.now + FIRST_LIST,
        };
        self.active.insert(name, active);
        self.rewatch();
    }

    /// Brings the watches in line with the policies, once those are known.
    fn rewatch(&mut self) {
        if !self.synced {
            return;
        }
        let mut wanted: BTreeMap<Target, Vec<(String, u64)>> = BTreeMap::new();
        for (name, active) in &self.active {
            if let Some(policy) = active.engine.policy() {
                let kind = usize::try_from(active.engine.resource().0).unwrap_or(0);
                wanted.entry((kind, policy.needs_content())).or_default().push((name.clone(), active.epoch));
            }
        }
        self.watches.retain(|target, shared| wanted.get(target) == Some(&shared.members));
        for (target, members) in wanted {
            let watch = || Shared { watcher: Watcher::new(target.0), listing: false, members };
            self.watches.entry(target).or_insert_with(watch);
        }
    }

    fn deliver_objects(&mut self, target: Target, most: usize, server: &Server) -> usize {
        let Some(shared) = self.watches.get_mut(&target) else { return 0 };
        let events = shared.watcher.read(resource(target.0), most, server);
        let told = events.len();
        let listing = &mut shared.listing;
        for (event, object) in events {
            let ended = matches!(event, Event::Synced { .. }) && std::mem::take(listing);
            *listing |= matches!(event, Event::ListStarted(_));
            let object = object.map(|object| {
                let all = whole(&object);
                if target.1 { all } else { json!({"metadata": all["metadata"]}) }
            });
            for (name, _) in &shared.members {
                let Some(active) = self.active.get_mut(name) else { continue };
                match (&event, &object) {
                    (Event::ListStarted(_), _) => {
                        active.engine.list_started();
                        if self.defect == Some(Defect::PolicyListUnfinished) {
                            active.engine.synced();
                        }
                    }
                    (Event::Synced { .. }, _) if ended => {
                        active.engine.synced();
                        active.write_after = active.write_after.min(self.now);
                    }
                    (Event::Observed(observed), Some(object)) => {
                        let policy = active.engine.policy();
                        let look = policy.map_or(Look::Aside, |policy| policy.look(object));
                        active.engine.observed(&observed.key.namespace, &observed.key.name, look);
                    }
                    (Event::Removed { key, .. }, _) => active.engine.removed(&key.namespace, &key.name),
                    _ => {}
                }
            }
        }
        told
    }

    /// The next thing that a policy wants.
    pub fn poll(&mut self) -> Option<(Claim, Effect)> {
        self.active.iter_mut().find_map(|(name, active)| {
            let effect = active.engine.poll_effect()?;
            let (uid, generation, epoch) = (active.uid.clone(), active.engine.generation(), active.epoch);
            Some((Claim { name: name.clone(), uid, generation, epoch }, effect))
        })
    }

    /// How far the objects that a policy is about had been told of, by kind.
    #[must_use]
    pub fn delivered(&self, claim: &Claim) -> Option<(usize, u64)> {
        let member = (claim.name.clone(), claim.epoch);
        let (target, shared) = self.watches.iter().find(|(_, shared)| shared.members.contains(&member))?;
        Some((target.0, shared.watcher.delivered))
    }

    /// Tells a policy what became of an effect.
    pub fn answered(&mut self, claim: &Claim, id: EffectId, outcome: &Outcome) {
        if let Some(active) = self.active.get_mut(&claim.name).filter(|active| active.epoch == claim.epoch) {
            active.engine.finish(id, outcome);
        }
        self.tick(self.now);
    }

    /// Sends what the status of each policy should say, where it does not, and not too often.
    pub fn write_statuses(&mut self) {
        if !self.synced {
            return;
        }
        for (name, active) in &mut self.active {
            if active.writing || active.write_after > self.now {
                continue;
            }
            active.write_after = self.now + STATUS_PAUSE;
            let Some(status) = active.engine.status_to_write(&active.stored, Timestamp(self.now)) else {
                continue;
            };
            active.writing = true;
            let body = json!({"metadata": {"uid": active.uid}, "status": status});
            self.statuses.push(StatusWrite { name: name.clone(), body, epoch: active.epoch });
        }
    }

    /// A status was written, and this is the policy now; or it was not, as far as is known.
    pub fn written(&mut self, write: &StatusWrite, mut written: Option<Value>) {
        if let Some(object) = &mut written {
            defects::policy(self.defect, object);
        }
        let Some(active) = self.active.get_mut(&write.name).filter(|active| active.epoch == write.epoch)
        else {
            return;
        };
        active.writing = false;
        match written {
            Some(mut object) if active.engine.written(&object) => active.stored = object["status"].take(),
            Some(_) if self.defect == Some(Defect::PolicyShownAssumed) => active.engine.shown(),
            _ => active.write_after = self.now + STATUS_RETRY,
        }
        self.tick(self.now);
    }

    /// When one of them wants to be told the time again, if any does.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let engines = self.active.values().filter_map(|active| active.engine.next_wakeup());
        let statuses = self.active.values().filter(|active| {
            let is_said = || active.engine.is_said_by(&active.stored, Timestamp(self.now));
            !active.writing && active.write_after > self.now && !is_said()
        });
        engines.chain(statuses.map(|active| Timestamp(active.write_after))).min()
    }

    /// The watch at a position breaks.
    pub fn break_stream(&mut self, position: usize, fault: StreamFault) {
        let position = position % (1 + self.watches.len());
        let watcher = match position.checked_sub(1) {
            None => Some(&mut self.own),
            Some(shared) => self.watches.values_mut().nth(shared).map(|shared| &mut shared.watcher),
        };
        if let Some(watcher) = watcher {
            watcher.break_off(fault);
        }
    }

    /// The server was replaced by one with an older store: every watch lists anew, and statuses are lost.
    pub fn disconnect(&mut self) {
        let shared = self.watches.values_mut().map(|shared| &mut shared.watcher);
        for watcher in shared.chain([&mut self.own]) {
            watcher.break_off(StreamFault::Expired);
            watcher.relisted = false;
        }
        for write in std::mem::take(&mut self.statuses) {
            self.written(&write, None);
        }
    }

    /// Whether every watch has listed since.
    #[must_use]
    pub fn is_relisted(&self) -> bool {
        self.own.relisted && self.watches.values().all(|shared| shared.watcher.relisted)
    }
}

fn target_of(policy: &Value) -> Option<usize> {
    let target = &policy["spec"]["target"];
    let text = |name: &str| target[name].as_str().unwrap_or_default();
    KINDS.iter().position(|row| row.kind == text("kind") && row.is_served_as(text("apiVersion")))
}
