//! The policies of a cluster at work: watches the `RetentionPolicy` objects and what they are about, performs what
//! their engines decide, and writes their status.
//!
//! Policies about one kind share a watch. A change of the set of policies that share it begins it anew; until its
//! list is complete, none of them deletes anything.

mod readers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gc_retention::engine::Standing;
use gc_retention::measures;
use gc_retention::policies::engine::PolicyEngine;
use gc_retention::policies::{GROUP, KIND, Look, RESOURCE, VERSION};
use gc_types::{
    Effect, EffectId, EventNote, Evidence, Gvr, HeldBy, ObjectKey, Outcome, Reason, ResourceId, ResourceInfo,
    Scope, Severity, Timestamp, Uid, Verdict,
};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::clock::{Clock, system_clock};
use crate::collector::{QUEUED_BATCHES, SHUTDOWN_GRACE};
use crate::connection::ApiClient;
use crate::discovery::{Discovered, DiscoveryError, discover};
use crate::facts::{FactsWatcher, METADATA, WHOLE};
use crate::notes::{EVENT_SOURCE, Notes};
use crate::observer::Observer;
use crate::pacing::{Pacer, PacingOptions, Signal};
use crate::requests::{Performed, Performer};
use crate::resources::{ResourceTable, Route};
use crate::restraints::{Deletion, Guard, Restraints, changed, deleted};
use crate::supervisor::DISCOVERY_PERIOD;
use readers::{ObjectReader, PolicyReader};

/// A status is written at most so often.
pub(crate) const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// After a status could not be written, it is tried again so much later.
const STATUS_RETRY: Duration = Duration::from_secs(5);
/// A policy that has just come gets so long for its first list, before its status says that there is none.
const FIRST_LIST: Duration = Duration::from_millis(500);
/// A discovery that is older may have missed a kind that has just been defined.
const DISCOVERY_FRESH: Duration = Duration::from_secs(2);
/// The engines are told the time at least so often.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// So many policies are at work at most; what is beyond them is told and left alone.
pub(crate) const MOST_POLICIES: usize = 1_000;

/// What a watch has told.
enum News {
    PoliciesStarted,
    PoliciesSynced,
    Policy(Value),
    PolicyGone(String),
    Objects { watch: u64, told: Told },
}

enum Told {
    Started,
    Synced,
    Failed(String),
    /// What each of the policies that share the watch makes of it.
    Observed {
        namespace: String,
        name: String,
        looks: Vec<Look>,
    },
    Removed {
        namespace: String,
        name: String,
    },
}

/// The policies of one API server.
pub struct PolicyCollector {
    client: ApiClient,
    pacing: PacingOptions,
    dry_run: bool,
    source: &'static str,
    table: ResourceTable,
    restraints: Restraints,
    clock: Clock,
}

/// A policy at work.
struct Active {
    uid: String,
    engine: PolicyEngine,
    /// The status as it is stored.
    stored: Value,
    /// Which making of the engine this is: outcomes of an earlier one are not its own.
    epoch: u64,
    seen: bool,
    writing: bool,
    write_after: Instant,
    /// The trouble that was told last.
    told: Option<String>,
}

/// What a watch is of.
type Target = (Arc<str>, Arc<str>, bool);

struct Watch {
    number: u64,
    members: Vec<(String, u64)>,
    task: Option<AbortHandle>,
}

struct Flying {
    policy: String,
    epoch: u64,
    effect: Effect,
    begun: std::time::Instant,
}

struct Driver {
    client: ApiClient,
    observer: Arc<dyn Observer>,
    performer: Performer,
    table: ResourceTable,
    restraints: Restraints,
    guard: Guard,
    pacer: Pacer,
    notes: Notes,
    told_standing: Option<Instant>,
    dry_run: bool,
    sink: mpsc::Sender<Vec<News>>,
    policies: BTreeMap<String, Active>,
    synced: bool,
    refused: usize,
    resources: BTreeMap<(Arc<str>, Arc<str>), ResourceId>,
    watches: BTreeMap<Target, Watch>,
    /// What is served, and when that was asked.
    served: Option<(Discovered, Instant)>,
    discover_at: Option<Instant>,
    discovering: bool,
    next_number: u64,
    pending: VecDeque<(String, u64, Effect)>,
    flying: HashMap<tokio::task::Id, Flying>,
    requests: JoinSet<Performed>,
    statuses: JoinSet<(String, u64, Option<Value>)>,
    discoveries: JoinSet<Result<Discovered, DiscoveryError>>,
    tasks: JoinSet<()>,
    clock: Clock,
    now: Timestamp,
}

impl PolicyCollector {
    /// Nothing is sent before [`PolicyCollector::run`]; with `dry_run` nothing is changed at all.
    #[must_use]
    pub fn new(client: ApiClient, pacing: PacingOptions, dry_run: bool) -> Self {
        let table = ResourceTable::default();
        table.insert(Arc::new(policy_route()));
        Self {
            client,
            pacing,
            dry_run,
            source: EVENT_SOURCE,
            table,
            restraints: Restraints::default(),
            clock: system_clock(),
        }
    }

    /// Its Events name this component as their source.
    #[must_use]
    pub fn named(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    /// It goes by this clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Obeys these.
    #[must_use]
    pub fn restrained_by(self, restraints: Restraints) -> Self {
        Self { restraints, ..self }
    }

    /// The resources that policies are about, by which its effects name them.
    #[must_use]
    pub fn table(&self) -> ResourceTable {
        self.table.clone()
    }

    /// Runs until `shutdown` is ready; then sends nothing further, and gives what is in flight [`SHUTDOWN_GRACE`].
    pub async fn run(mut self, observer: Arc<dyn Observer>, shutdown: impl Future<Output = ()>) {
        let (sink, news) = mpsc::channel(QUEUED_BATCHES);
        let mut tasks = JoinSet::new();
        let reader = Arc::new(PolicyReader { route: policy_route() });
        tasks.spawn(FactsWatcher::new(self.client.clone(), reader, sink.clone()).run());
        let (notes, writer) = Notes::new(self.client.clone(), self.table.clone(), self.source);
        tasks.spawn(writer);
        let mut driver = Driver {
            performer: Performer::new(self.client.clone(), self.table.clone()),
            client: self.client,
            observer,
            table: self.table,
            guard: Guard::new(self.restraints.breaker.take()),
            restraints: self.restraints,
            pacer: Pacer::new(self.pacing),
            notes,
            told_standing: None,
            dry_run: self.dry_run,
            sink,
            policies: BTreeMap::new(),
            synced: false,
            refused: 0,
            resources: BTreeMap::new(),
            watches: BTreeMap::new(),
            served: None,
            discover_at: None,
            discovering: false,
            next_number: 0,
            pending: VecDeque::new(),
            flying: HashMap::new(),
            requests: JoinSet::new(),
            statuses: JoinSet::new(),
            discoveries: JoinSet::new(),
            tasks,
            clock: self.clock,
            now: Timestamp::default(),
        };
        driver.run(news, shutdown).await;
        driver.land().await;
        driver.tasks.abort_all();
    }
}

/// The first of the numbers of resources; the watch of the policies has the one before.
const FIRST_RESOURCE: u32 = 1;

fn policy_route() -> Route {
    Route::new(ResourceInfo {
        id: ResourceId(0),
        gvr: Gvr { group: GROUP.into(), version: VERSION.into(), resource: RESOURCE.into() },
        kind: KIND.into(),
        scope: Scope::Cluster,
        served_api_versions: Vec::new(),
        watched: true,
        comparable_versions: true,
    })
}

impl Driver {
    async fn run(&mut self, mut news: mpsc::Receiver<Vec<News>>, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        self.tick();
        loop {
            let paused_until = self.act();
            self.write_statuses();
            self.tell();
            let wake = self.next_wake(paused_until);
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                Ok(()) = self.restraints.held.changed() => self.tick(),
                () = self.guard.changed() => self.tick(),
                () = changed(&mut self.restraints.bounds) => self.take_bounds(),
                Some(done) = self.requests.join_next_with_id() => self.take_done(done),
                Some(Ok(written)) = self.statuses.join_next() => self.take_written(written),
                Some(Ok(discovered)) = self.discoveries.join_next() => self.take_discovered(discovered),
                batch = news.recv() => {
                    let Some(batch) = batch else { return };
                    self.tick();
                    for news in batch {
                        self.take_news(news);
                    }
                    self.tick();
                }
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
        }
    }

    fn tick(&mut self) {
        self.now = self.now.max((self.clock)());
        for active in self.policies.values_mut() {
            active.engine.tick(self.now);
        }
        if self.discover_at.is_some_and(|at| at <= Instant::now()) && !self.discovering {
            (self.discover_at, self.discovering) = (None, true);
            let client = self.client.clone();
            self.discoveries.spawn(async move { discover(&client).await });
        }
    }

    fn take_news(&mut self, news: News) {
        match news {
            News::PoliciesStarted => {
                self.synced = false;
                for active in self.policies.values_mut() {
                    active.seen = false;
                }
            }
            News::PoliciesSynced => {
                self.synced = true;
                let gone = self.policies.iter().filter(|(_, active)| !active.seen);
                let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
                for name in &gone {
                    self.policies.remove(name);
                }
                self.rewatch();
            }
            News::Policy(object) => self.take_policy(&object),
            News::PolicyGone(name) => {
                self.policies.remove(&name);
                self.rewatch();
            }
            News::Objects { watch, told } => self.take_told(watch, told),
        }
    }

    fn take_policy(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let uid = metadata["uid"].as_str().unwrap_or_default();
        if let Some(active) = self.policies.get_mut(&name)
            && active.uid == uid
            && active.engine.is_of(object)
        {
            active.seen = true;
            active.stored = object["status"].clone();
            return;
        }
        if self.policies.len() >= MOST_POLICIES && !self.policies.contains_key(&name) {
            self.refused += 1;
            tracing::warn!(policy = %name, refused = self.refused, "too many policies: this one is left alone");
            return;
        }
        let resource = match object["spec"]["target"].as_object() {
            Some(target) => {
                let text = |name: &str| target.get(name).and_then(Value::as_str).unwrap_or_default();
                self.resource(text("apiVersion"), text("kind"))
            }
            None => ResourceId(0),
        };
        let mut engine = PolicyEngine::new(object, resource);
        engine.tick(self.now);
        self.next_number += 1;
        let active = Active {
            uid: uid.to_owned(),
            engine,
            stored: object["status"].clone(),
            epoch: self.next_number,
            seen: true,
            writing: false,
            write_after: Instant::now() + FIRST_LIST,
            told: None,
        };
        self.policies.insert(name, active);
        self.rewatch();
    }

    /// The number of a kind, which stays the same.
    fn resource(&mut self, api_version: &str, kind: &str) -> ResourceId {
        let next = ResourceId(FIRST_RESOURCE + u32::try_from(self.resources.len()).unwrap_or(u32::MAX / 2));
        *self.resources.entry((api_version.into(), kind.into())).or_insert(next)
    }

    /// Brings the watches in line with the policies, once those are known.
    fn rewatch(&mut self) {
        if !self.synced {
            return;
        }
        let mut wanted: BTreeMap<Target, Vec<(String, u64)>> = BTreeMap::new();
        for (name, active) in &self.policies {
            if let Some(policy) = active.engine.policy() {
                let target =
                    (Arc::clone(&policy.api_version), Arc::clone(&policy.kind), policy.needs_content());
                wanted.entry(target).or_default().push((name.clone(), active.epoch));
            }
        }
        self.watches.retain(|target, watch| {
            let stays = wanted.get(target) == Some(&watch.members) && watch.task.is_some();
            if !stays && let Some(task) = &watch.task {
                task.abort();
            }
            stays
        });
        while self.tasks.try_join_next().is_some() {}
        for (target, members) in wanted {
            if !self.watches.contains_key(&target) {
                self.watch(target, members);
            }
        }
    }

    fn watch(&mut self, target: Target, members: Vec<(String, u64)>) {
        self.next_number += 1;
        let number = self.next_number;
        let resource = self.resource(&target.0, &target.1);
        let found = self.served.as_ref().map(|(served, at)| {
            (find(served, &target.0, &target.1, resource), at.elapsed() < DISCOVERY_FRESH)
        });
        let task = match found {
            // Not discovered yet, or perhaps served since.
            None | Some((Err(_), false)) => {
                self.discover_at = Some(Instant::now());
                None
            }
            Some((Err(why), true)) => {
                for (name, _) in &members {
                    if let Some(active) = self.policies.get_mut(name) {
                        active.engine.unwatched(&why);
                    }
                }
                self.discover_at.get_or_insert_with(|| Instant::now() + DISCOVERY_PERIOD);
                None
            }
            Some((Ok(info), _)) => {
                let route = Route::new(info);
                self.table.insert(Arc::new(route.clone()));
                let policies = members
                    .iter()
                    .filter_map(|(name, _)| self.policies.get(name)?.engine.policy().cloned())
                    .collect();
                let accept = if target.2 { WHOLE } else { METADATA };
                let reader = Arc::new(ObjectReader { watch: number, route, accept, policies });
                let watcher = FactsWatcher::new(self.client.clone(), reader, self.sink.clone());
                Some(self.tasks.spawn(watcher.run()))
            }
        };
        self.watches.insert(target, Watch { number, members, task });
    }

    fn take_discovered(&mut self, discovered: Result<Discovered, DiscoveryError>) {
        self.discovering = false;
        match discovered {
            Ok(discovered) => {
                self.served = Some((discovered, Instant::now()));
                self.rewatch();
            }
            Err(error) => {
                tracing::warn!(%error, "discovery failed; policies about kinds that are not known wait");
                self.discover_at = Some(Instant::now() + STATUS_RETRY);
            }
        }
    }

    fn take_told(&mut self, number: u64, told: Told) {
        // What an earlier watch told is outdated.
        let Some(watch) = self.watches.values().find(|watch| watch.number == number) else { return };
        let names = watch.members.iter().map(|(name, _)| name);
        match told {
            Told::Observed { namespace, name, looks } => {
                for (policy, look) in names.zip(looks) {
                    if let Some(active) = self.policies.get_mut(policy) {
                        active.engine.observed(&namespace, &name, look);
                    }
                }
            }
            told => {
                for policy in names {
                    let Some(active) = self.policies.get_mut(policy) else { continue };
                    match &told {
                        Told::Started => active.engine.list_started(),
                        Told::Synced => {
                            active.engine.synced();
                            active.write_after = active.write_after.min(Instant::now());
                        }
                        Told::Failed(why) => active.engine.unwatched(why),
                        Told::Removed { namespace, name } => active.engine.removed(namespace, name),
                        Told::Observed { .. } => {}
                    }
                }
            }
        }
    }

    fn take_bounds(&mut self) {
        if let Some(bounds) = &self.restraints.bounds {
            self.pacer.set_options(*bounds.borrow());
        }
    }

    /// Asks for effects and sends what may go. Answers until when nothing may go, if the pacing says so.
    fn act(&mut self) -> Option<std::time::Instant> {
        if self.restraints.is_held() {
            return None;
        }
        for (name, active) in &mut self.policies {
            // A run rests where its resource is stopped, and goes on from there.
            while !rests(active, &self.table, &self.guard)
                && let Some(effect) = active.engine.poll_effect()
            {
                self.observer.decided(&effect);
                let route = deleted(&effect).and_then(|key| self.table.get(key.resource));
                let held = match route {
                    _ if self.dry_run => Some(HeldBy::DryRun),
                    Some(route) => {
                        let deletion =
                            Deletion { resource: &route.name, inferred: false, objects: usize::MAX };
                        self.guard.admit(deletion, self.now, &*self.observer)
                    }
                    None => None,
                };
                if let Some(by) = held {
                    let outcome = Outcome::Held(by);
                    self.observer.finished(&effect, &outcome, 0, Duration::ZERO);
                    active.engine.finish(effect.id, &outcome);
                } else {
                    self.pending.push_back((name.clone(), active.epoch, effect));
                }
            }
        }
        while let Some((policy, epoch, effect)) = self.pending.pop_front() {
            // It has been changed or taken back meanwhile: what it wanted before does not count.
            if self.policies.get(&policy).is_none_or(|active| active.epoch != epoch) {
                if let Some(route) = deleted(&effect).and_then(|key| self.table.get(key.resource)) {
                    self.guard.refund(&route.name, false);
                }
                continue;
            }
            let now = std::time::Instant::now();
            if let Err(until) = self.pacer.begin(now) {
                self.pending.push_front((policy, epoch, effect));
                return until;
            }
            let (performer, request) = (self.performer.clone(), effect.request.clone());
            let task = self.requests.spawn(async move { performer.perform(&request).await });
            self.flying.insert(task.id(), Flying { policy, epoch, effect, begun: now });
        }
        None
    }

    fn take_done(&mut self, done: Result<(tokio::task::Id, Performed), tokio::task::JoinError>) {
        let (id, performed) = match done {
            Ok(answer) => answer,
            // A request that died without an answer: its fate is unknown.
            Err(error) => {
                let outcome = Outcome::Failed { message: error.to_string(), retry_after_milliseconds: None };
                (error.id(), Performed { outcome, signal: Signal::Answered, round_trips: 1 })
            }
        };
        let Some(Flying { policy, epoch, effect, begun }) = self.flying.remove(&id) else { return };
        let now = std::time::Instant::now();
        let took = now.saturating_duration_since(begun);
        let Performed { outcome, signal, round_trips } = performed;
        self.pacer.finish(now.checked_sub(took / round_trips.max(1)).unwrap_or(begun), now, signal);
        if let Some(route) = deleted(&effect).and_then(|key| self.table.get(key.resource)) {
            self.guard.finished(&route.name, false, &outcome);
        }
        self.observer.finished(&effect, &outcome, round_trips, took);
        if let Some(active) = self.policies.get_mut(&policy).filter(|active| active.epoch == epoch) {
            active.engine.finish(effect.id, &outcome);
        }
        self.tick();
    }

    /// Writes what the status of each policy should say, where it does not, and not too often.
    fn write_statuses(&mut self) {
        let now = Instant::now();
        if self.dry_run || !self.synced || self.restraints.is_held() {
            return;
        }
        for (name, active) in &mut self.policies {
            if active.writing || active.write_after > now {
                continue;
            }
            active.write_after = now + STATUS_PAUSE;
            let Some(status) = active.engine.status_to_write(&active.stored, self.now) else { continue };
            active.writing = true;
            let body = json!({"metadata": {"uid": active.uid}, "status": status});
            let (client, name, epoch) = (self.client.clone(), name.clone(), active.epoch);
            self.statuses.spawn(async move {
                let written = write_status(&client, &name, &body).await;
                (name, epoch, written)
            });
        }
    }

    /// Tells the trouble of each policy, once for each text, and from time to time how all of them stand.
    fn tell(&mut self) {
        let now = Instant::now();
        if self.told_standing.is_some_and(|told| now.saturating_duration_since(told) < STATUS_PAUSE) {
            return;
        }
        self.told_standing = Some(now);
        let mut states: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut standing = Standing { synced: self.synced, ..Standing::default() };
        let mut troubles = Vec::new();
        let may_tell = self.synced && !self.restraints.is_held();
        for (name, active) in &mut self.policies {
            *states.entry(active.engine.state()).or_default() += 1;
            standing.waiting += active.engine.due();
            standing.counts.judged += active.engine.judged();
            let trouble = active.engine.trouble();
            let message = trouble.as_ref().map(|(_, message)| message);
            if may_tell && message != active.told.as_ref() {
                active.told = message.cloned();
                troubles.extend(trouble.map(|trouble| (name.clone(), active.uid.clone(), trouble)));
            }
        }
        let state = |(state, count): (&'static str, usize)| {
            measures::reading_of(&measures::POLICIES, vec![Arc::from(state)], count)
        };
        standing.gauges = states.into_iter().map(state).collect();
        self.observer.standing(&standing);
        for (name, uid, (reason, message)) in troubles {
            self.note(&name, &uid, reason, message);
        }
    }

    /// An Event about a policy; what is held or only tried writes none.
    fn note(&mut self, name: &str, uid: &str, reason: &'static str, message: String) {
        self.next_number += 1;
        let about = ObjectKey { resource: ResourceId(0), namespace: "".into(), name: name.into() };
        let evidence = vec![Evidence::Fact(message.as_str().into())];
        let note = EventNote { about, uid: Uid::new(uid), severity: Severity::Warning, reason, message };
        let verdict = Verdict::Retention("the policy needs attention");
        let effect = Effect {
            id: EffectId(self.next_number),
            request: gc_types::Request::Note(note.clone()),
            reason: Reason { verdict, owners: Vec::new(), evidence },
        };
        self.observer.decided(&effect);
        let outcome = if self.dry_run {
            Outcome::Held(HeldBy::DryRun)
        } else {
            self.notes.take(note);
            Outcome::Applied(None)
        };
        self.observer.finished(&effect, &outcome, u32::from(!self.dry_run), Duration::ZERO);
    }

    fn take_written(&mut self, (name, epoch, written): (String, u64, Option<Value>)) {
        let Some(active) = self.policies.get_mut(&name).filter(|active| active.epoch == epoch) else {
            return;
        };
        active.writing = false;
        match written {
            Some(mut object) if active.engine.written(&object) => active.stored = object["status"].take(),
            // Not written, or under a policy that has changed.
            _ => active.write_after = Instant::now() + STATUS_RETRY,
        }
    }

    fn next_wake(&self, paused_until: Option<std::time::Instant>) -> Instant {
        let now = Instant::now();
        let mut wake = now + LONGEST_SLEEP;
        let is_held = self.restraints.is_held();
        for active in self.policies.values().filter(|_| !is_held) {
            let rests = rests(active, &self.table, &self.guard);
            if let Some(at) = active.engine.next_wakeup().filter(|_| !rests) {
                let milliseconds = u64::try_from(at.0.saturating_sub(self.now.0)).unwrap_or_default();
                wake = wake.min(now + Duration::from_millis(milliseconds.max(1)));
            }
            if !active.writing && active.write_after > now {
                wake = wake.min(active.write_after);
            }
        }
        let wake = self.discover_at.filter(|_| !self.discovering).map_or(wake, |at| wake.min(at));
        match paused_until {
            Some(until) => wake.min(until.into()),
            None => wake,
        }
    }

    /// Sends nothing further, and waits a little for what is in flight.
    async fn land(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        self.pending.clear();
        while let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.requests.join_next_with_id()).await
        {
            self.take_done(done);
        }
        self.requests.abort_all();
    }
}

/// Whether nothing of what a policy is about is deleted now: the breaker, or the configuration, says so.
fn rests(active: &Active, table: &ResourceTable, guard: &Guard) -> bool {
    table.get(active.engine.resource()).is_some_and(|route| guard.holds(&route.name).is_some())
}

/// The resource of a kind, in the version that a policy names.
fn find(served: &Discovered, api_version: &str, kind: &str, id: ResourceId) -> Result<ResourceInfo, String> {
    let of_kind = served.resources.values().find(|resource| {
        *resource.kind == *kind && resource.served_api_versions.iter().any(|served| **served == *api_version)
    });
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let Some(found) = of_kind else {
        if served.is_unclear(group) {
            return Err(format!("discovery of {group} fails, so that {kind} cannot be looked for"));
        }
        return Err(format!("the server serves no {kind} in {api_version}"));
    };
    if !found.is_collectable() {
        return Err(format!("{}.{group} cannot be listed, watched and deleted", found.resource));
    }
    Ok(ResourceInfo {
        id,
        gvr: Gvr { group: group.into(), version: version.into(), resource: Arc::clone(&found.resource) },
        kind: Arc::clone(&found.kind),
        scope: found.scope,
        served_api_versions: found.served_api_versions.clone(),
        watched: true,
        comparable_versions: found.comparable_versions,
    })
}

/// The policy as stored afterwards; `None` if its status could not be written.
async fn write_status(client: &ApiClient, name: &str, body: &Value) -> Option<Value> {
    let mut path = policy_route().collection("");
    path.push('/');
    crate::resources::push_segment(&mut path, name);
    path.push_str("/status");
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(Full::new(Bytes::from(body.to_string())))
        .ok()?;
    match client.call(request).await {
        Ok(answer) if answer.head.status.is_success() => serde_json::from_slice(&answer.body).ok(),
        Ok(answer) => {
            let body = String::from_utf8_lossy(&answer.body);
            let said: String = body.chars().take(200).collect();
            tracing::warn!(policy = name, code = answer.head.status.as_u16(), said, "no status written");
            None
        }
        Err(error) => {
            tracing::warn!(policy = name, %error, "no status written");
            None
        }
    }
}
