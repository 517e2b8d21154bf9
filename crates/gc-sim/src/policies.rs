//! The policies of a simulated process: the controller of the real roster, and an adapter between it and the server, with watches
//! and status writes in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_collectors::policies::engine::digest;
use gc_collectors::policies::roster::{Member, Observation, Roster, StatusWrite};
use gc_collectors::policies::{KIND, Policy};
use gc_controller::Moment;
use gc_controller::clocks::Reading;
use gc_controller::concurrency::ConcurrencyOptions;
use gc_controller::controller::{Controller, Rest, Step};
use gc_controller::engines;
use gc_controller::requests::PerformedRequest;
use gc_registry::api::Object;
use gc_types::{Effect, Event, ResourceId, Timestamp};
use serde_json::{Value, json};

use crate::defects::Defect;
use crate::kinds::{KINDS, kind_index};
use crate::process::Process;
use crate::saboteur;
use crate::server::Server;
use crate::story::StreamFault;
use crate::watching::Watcher;

/// A policy as last delivered to its collector.
struct KnownPolicy {
    uid: Value,
    generation: Value,
    spec: Value,
    /// Digest of its true specification.
    digest: String,
}

/// Policies of one collector.
pub struct Policies {
    defect: Option<Defect>,
    own: Watcher,
    /// Controller of the policies.
    pub controller: Controller<engines::Policies>,
    /// Result of its last turn.
    rest: Rest,
    watchers: BTreeMap<u64, Watcher>,
    /// Status writes in flight.
    pub statuses: Vec<StatusWrite>,
    known: BTreeMap<String, KnownPolicy>,
    /// With a defect: the newest specification of each policy, by name, and those by which the first list of a watch is assessed.
    newest: BTreeMap<Arc<str>, Arc<Policy>>,
    former: BTreeMap<u64, Vec<Arc<Policy>>>,
    /// Time by a clock that is never set.
    steady: Timestamp,
}

impl std::fmt::Debug for Policies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policies").field("watched", &self.watched()).finish_non_exhaustive()
    }
}

/// Returns the kind of a policy's resource number.
fn kind_of(resource: ResourceId) -> Option<usize> {
    usize::try_from(resource.0).ok()
}

/// Returns the resource number for objects of a kind.
fn resource(kind: usize) -> ResourceId {
    ResourceId(u32::try_from(kind).unwrap_or(0))
}

fn whole(object: &Object) -> Value {
    let mut json = Vec::new();
    let written = object.write_json(&mut json, false).is_ok();
    if written { serde_json::from_slice(&json).unwrap_or_default() } else { Value::Null }
}

/// Returns the number of a policy's target kind.
fn number(api_version: &str, kind: &str) -> ResourceId {
    let about = |row: &crate::kinds::Kind| row.kind == kind && row.is_served_as(api_version);
    resource(KINDS.iter().position(about).unwrap_or(0))
}

impl Policies {
    /// Creates the policies, without knowing any yet.
    #[must_use]
    pub fn new(concurrency: ConcurrencyOptions, defect: Option<Defect>) -> Self {
        Self {
            defect,
            own: Watcher::new(kind_index(KIND)),
            controller: Controller::new(engines::Policies::default(), concurrency),
            rest: Rest::Idle,
            watchers: BTreeMap::new(),
            statuses: Vec::new(),
            known: BTreeMap::new(),
            newest: BTreeMap::new(),
            former: BTreeMap::new(),
            steady: Timestamp::default(),
        }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn roster(&self) -> &Roster {
        &self.controller.engine().roster
    }

    fn roster_mut(&mut self) -> &mut Roster {
        &mut self.controller.engine_mut().roster
    }

    /// Sets the time by which objects age, and the time by a clock that is never set.
    pub fn tick(&mut self, reading: Reading, steady: Timestamp, process: &Process) {
        self.steady = steady;
        self.controller.tick(reading, steady, &process.around(&kind_of).ticking());
        if let Reading::Set { .. } = reading {
            self.rewatch();
        }
    }

    fn go_on(&mut self) {
        self.controller.engine_mut().settle();
    }

    /// Lets the watch at a position deliver at most `most` events. Returns the number of events.
    pub fn deliver(&mut self, position: usize, most: usize, server: &Server) -> usize {
        let delivered = match (position % self.watched()).checked_sub(1) {
            None => self.deliver_policies(most, server),
            Some(place) => {
                let number = self.watchers.keys().nth(place).copied();
                number.map_or(0, |number| self.deliver_objects(number, most, server))
            }
        };
        self.go_on();
        delivered
    }

    /// Returns the number of watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        1 + self.watchers.len()
    }

    fn deliver_policies(&mut self, most: usize, server: &Server) -> usize {
        let events = self.own.read(resource(self.own.kind), most, server);
        let delivered = events.len();
        for (event, object) in events {
            match (event, object) {
                (Event::ListStarted(_), _) => self.roster_mut().list_started(),
                (Event::Synced { .. }, _) => self.roster_mut().synced(),
                (Event::Observed(_), Some(object)) => {
                    let object = self.disguised(whole(&object));
                    // There are never too many policies here.
                    let _ = self.roster_mut().observed(&object, number);
                }
                (Event::Removed { key, .. }, _) => self.roster_mut().removed(&key.name),
                _ => {}
            }
        }
        self.rewatch();
        delivered
    }

    /// Ends the watches that the roster no longer wants, and begins the new ones.
    fn rewatch(&mut self) {
        let wanted = self.controller.engine().roster.watches();
        self.watchers.retain(|number, _| wanted.contains_key(number));
        self.former.retain(|number, _| wanted.contains_key(number));
        for (number, watch) in wanted {
            self.watchers.entry(*number).or_insert_with(|| {
                let policies = watch.members.iter().zip(&watch.policies);
                let former = policies.map(|(member, policy)| {
                    let before = self.newest.insert(Arc::clone(&member.name), Arc::clone(policy));
                    before.unwrap_or_else(|| Arc::clone(policy))
                });
                self.former.insert(*number, former.collect());
                Watcher::new(usize::try_from(watch.resource.0).unwrap_or(0))
            });
        }
    }

    fn deliver_objects(&mut self, number: u64, most: usize, server: &Server) -> usize {
        let Some(mut watch) = self.roster().watches().get(&number).cloned() else { return 0 };
        if self.is(Defect::PolicyFormerDelivery)
            && let Some(former) = self.former.get(&number)
        {
            watch.policies.clone_from(former);
        }
        let Some(watcher) = self.watchers.get_mut(&number) else { return 0 };
        let events = watcher.read(watch.resource, most, server);
        let count = events.len();
        for (event, object) in events {
            let observation = match (event, object) {
                (Event::ListStarted(_), _) => Observation::ListStarted,
                (Event::Synced { .. }, _) => Observation::Synced,
                (Event::Observed(observed), Some(object)) => {
                    let object = whole(&object);
                    let object =
                        if watch.target.whole { object } else { json!({"metadata": object["metadata"]}) };
                    Observation::Observed {
                        namespace: observed.key.namespace.to_string(),
                        name: observed.key.name.to_string(),
                        looks: watch.looks(&object),
                    }
                }
                (Event::Removed { key, .. }, _) => {
                    Observation::Removed { namespace: key.namespace.to_string(), name: key.name.to_string() }
                }
                _ => continue,
            };
            if observation == Observation::Synced {
                self.former.remove(&number);
            }
            let unfinished = observation == Observation::ListStarted && self.is(Defect::PolicyListUnfinished);
            self.roster_mut().observe(number, observation);
            if unfinished {
                self.roster_mut().observe(number, Observation::Synced);
            }
        }
        count
    }

    /// Polls the policies for effects, at most `most`. Returns the requests to send.
    pub fn act(&mut self, most: usize, moment: Moment, process: &Process) -> Vec<(u64, Member, Effect)> {
        self.rest = self.controller.act(moment, most, &process.around(&kind_of));
        let mut wanted = Vec::new();
        while let Some(step) = self.controller.poll_step() {
            if let Step::Send { number, .. } = step
                && let Some(flight) = self.controller.flight(number)
            {
                wanted.push((number, flight.origin.clone(), flight.effect.clone()));
            }
        }
        wanted
    }

    /// Returns the delivered version of a policy's target objects, by kind.
    #[must_use]
    pub fn delivered(&self, member: &Member) -> Option<(usize, u64)> {
        let (number, _) = self.roster().watches().iter().find(|(_, watch)| watch.members.contains(member))?;
        self.watchers.get(number).map(|watcher| (watcher.kind, watcher.delivered))
    }

    /// Takes the result of a policy's request.
    pub fn finished(&mut self, number: u64, performed: PerformedRequest, moment: Moment, process: &Process) {
        self.controller.finished(number, performed, None, moment, &process.around(&kind_of));
    }

    /// Sends each policy's status if it is outdated, but not too often.
    pub fn write_statuses(&mut self, process: &Process) {
        if !Controller::<engines::Policies>::may_write(&process.around(&kind_of)) {
            return;
        }
        for mut write in self.roster_mut().statuses() {
            let status = &mut write.patch["status"];
            if let Some(known) = self.known.get(&*write.member.name)
                && status["observedSpec"] == *digest(&known.spec)
                && !self.mistakes_changes()
            {
                status["observedSpec"] = known.digest.as_str().into();
            }
            self.statuses.push(write);
        }
        self.go_on();
    }

    /// Takes the result of a status write: the stored policy, or `None` if it was not written as far as is known.
    pub fn written(&mut self, write: &StatusWrite, stored: Option<Value>) {
        let stored = stored.map(|mut object| {
            let Some(known) = self.known.get(&*write.member.name) else { return object };
            if self.is(Defect::PolicyShownAssumed) {
                object["metadata"]["generation"] = known.generation.clone();
                object["spec"] = known.spec.clone();
                return object;
            }
            self.mistaken(object)
        });
        self.roster_mut().written(write, stored.as_ref());
        self.go_on();
    }

    /// Returns the time at which a policy has something to do again, if any does.
    #[must_use]
    pub fn next_due(&self, moment: Moment, process: &Process) -> Option<Moment> {
        let around = process.around(&kind_of);
        let due = self.controller.next_due(self.rest, moment, &around);
        let may_write = Controller::<engines::Policies>::may_write(&around);
        let status = self.controller.engine().next_status().filter(|_| may_write);
        let status = status.map(|at| moment.after(gc_controller::controller::until(at, self.steady)));
        // While clocks disagree, policies are not withheld but also not polled; the clocks are compared again and again.
        let paused = process.clocks_disagree.then(|| moment.after(gc_controller::controller::LONGEST_SLEEP));
        due.into_iter().chain(status).chain(paused).min()
    }

    /// Breaks the watch at a position.
    pub fn break_stream(&mut self, position: usize, fault: StreamFault) {
        let watcher = match (position % self.watched()).checked_sub(1) {
            None => Some(&mut self.own),
            Some(place) => self.watchers.values_mut().nth(place),
        };
        if let Some(watcher) = watcher {
            watcher.break_off(fault);
        }
    }

    /// Reacts to a replaced server with an older store: every watch lists again, and status writes are lost.
    pub fn disconnect(&mut self) {
        for watcher in self.watchers.values_mut().chain([&mut self.own]) {
            watcher.break_off(StreamFault::Expired);
        }
        for write in std::mem::take(&mut self.statuses) {
            self.written(&write, None);
        }
    }

    /// Returns the number of list parts and earlier changes that were delivered again to a policy.
    #[must_use]
    pub fn redelivered(&self, member: &Member) -> u64 {
        let watches = self.roster().watches().iter().filter(|(_, watch)| watch.members.contains(member));
        watches.filter_map(|(number, _)| self.watchers.get(number)).map(|watcher| watcher.redelivered).sum()
    }

    // ---- planted defects ----

    /// Returns a policy as its watch delivers it to a collector with a defect.
    fn disguised(&mut self, object: Value) -> Value {
        if self.defect.is_none() {
            return object;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let real = digest(&object["spec"]);
        let mut object = self.mistaken(object);
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let (uid, generation, spec) = (metadata["uid"].clone(), metadata["generation"].clone(), spec.clone());
        let is_known = self
            .known
            .get(&name)
            .is_some_and(|known| (&known.uid, &known.generation, &known.spec) == (&uid, &generation, &spec));
        if self.is(Defect::PolicyUnshown) && !is_known {
            object["status"] =
                json!({"observedGeneration": generation, "observedSpec": digest(&spec), "due": 0});
        }
        self.known.insert(name, KnownPolicy { uid, generation, spec, digest: real });
        object
    }

    /// Reports whether the defect takes a changed policy for the same: its statuses then concern another one. (With all other
    /// defects, the collector believes that it sees the policy as it is.)
    fn mistakes_changes(&self) -> bool {
        self.is(Defect::PolicyNeverNew) || self.is(Defect::PolicySpecAssumed)
    }

    /// Returns the policy as a collector with a defect sees it.
    fn mistaken(&self, mut object: Value) -> Value {
        let real = digest(&object["spec"]);
        saboteur::policy(self.defect, &mut object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let is_same = |known: &&KnownPolicy| {
            known.uid == object["metadata"]["uid"] || self.is(Defect::PolicySpecAssumed)
        };
        let same = self.known.get(name).filter(is_same);
        if let Some(known) = same {
            let same_generation = known.generation == object["metadata"]["generation"];
            if self.is(Defect::PolicyNeverNew) || self.is(Defect::PolicySpecAssumed) && same_generation {
                object["metadata"]["generation"] = known.generation.clone();
                object["spec"] = known.spec.clone();
            }
        }
        if self.defect.is_some() && !self.mistakes_changes() && object["status"]["observedSpec"] == *real {
            object["status"]["observedSpec"] = digest(&object["spec"]).into();
        }
        object
    }
}
