//! The policies of a cluster at work: watches the `RetentionPolicy` objects and what they are about, performs what
//! their engines decide, and writes their status.
//!
//! Which watches there are, whose turn it is and which statuses are written is decided by
//! [`gc_retention::policies::roster::Roster`].

mod readers;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gc_retention::engine::Standing;
use gc_retention::measures;
use gc_retention::policies::roster::{Member, Roster, StatusWrite, Target, Told, Watch};
use gc_retention::policies::{GROUP, KIND, RESOURCE, VERSION};
use gc_types::{
    Effect, EffectId, EventNote, Evidence, Gvr, HeldBy, ObjectKey, Outcome, Reason, ResourceId, ResourceInfo,
    Scope, Severity, Timestamp, Uid, Verdict,
};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::clock::{Clock, ClockReader, machine_clock, moment, steady_now, system_clock, until};
use crate::collector::{QUEUED_BATCHES, SHUTDOWN_GRACE};
use crate::connection::ApiClient;
use crate::discovery::{Discovered, DiscoveryError, discover};
use crate::facts::FactsWatcher;
use crate::notes::{EVENT_SOURCE, Notes};
use crate::observer::Observer;
use crate::requests::{Performed, Performer};
use crate::resources::{ResourceTable, Route};
use crate::rest::Rest;
use crate::restraints::{ClockGuard, Deletion, Guard, Restraints, changed, deleted};
use crate::server_clock;
use crate::supervisor::DISCOVERY_PERIOD;
use gc_control::Moment;
use gc_control::clocks::{Reading, SteadyClock};
use gc_control::pacing::{Pacer, PacingOptions, Signal};
use readers::{ObjectReader, PolicyReader};

/// Minimum time between two reports of the policies' state.
const STANDING_PAUSE: Duration = Duration::from_secs(1);
/// After a discovery has failed, it is tried again so much later.
const DISCOVERY_RETRY: Duration = Duration::from_secs(5);
/// A discovery that is older may have missed a kind that has just been defined.
const DISCOVERY_FRESH: Duration = Duration::from_secs(2);
/// Maximum time between two ticks of the engines.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// What a watch has delivered.
enum News {
    PoliciesStarted,
    PoliciesSynced,
    Policy(Value),
    PolicyGone(String),
    Objects { watch: u64, told: Told },
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

struct Flying {
    member: Member,
    effect: Effect,
    begun: Moment,
}

struct Driver {
    client: ApiClient,
    observer: Arc<dyn Observer>,
    performer: Performer,
    table: ResourceTable,
    restraints: Restraints,
    guard: Guard,
    clock_guard: ClockGuard,
    pacer: Pacer,
    notes: Notes,
    told_standing: Option<Instant>,
    dry_run: bool,
    sink: mpsc::Sender<Vec<News>>,
    roster: Roster,
    resources: BTreeMap<(Arc<str>, Arc<str>), ResourceId>,
    /// The watches that are at work, of those that the roster wants.
    watches: HashMap<u64, AbortHandle>,
    /// The newest of those that were begun, or could not be for now.
    newest_watch: u64,
    /// What is served, and when that was asked.
    served: Option<(Discovered, Instant)>,
    discover_at: Option<Instant>,
    discovering: bool,
    notes_made: u64,
    flying: HashMap<tokio::task::Id, Flying>,
    requests: JoinSet<Performed>,
    statuses: JoinSet<(StatusWrite, Option<Value>)>,
    discoveries: JoinSet<Result<Discovered, DiscoveryError>>,
    tasks: JoinSet<()>,
    clock: ClockReader,
    steady: SteadyClock,
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

    /// The clock that it uses.
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
        tasks.spawn(server_clock::follow(self.client.clone()));
        let mut driver = Driver {
            performer: Performer::new(self.client.clone(), self.table.clone()),
            clock_guard: ClockGuard::new(&self.client),
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
            roster: Roster::default(),
            resources: BTreeMap::new(),
            watches: HashMap::new(),
            newest_watch: 0,
            served: None,
            discover_at: None,
            discovering: false,
            notes_made: 0,
            flying: HashMap::new(),
            requests: JoinSet::new(),
            statuses: JoinSet::new(),
            discoveries: JoinSet::new(),
            tasks,
            clock: ClockReader::new(self.clock),
            steady: SteadyClock::new(machine_clock(), moment()),
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
            let rest = self.act();
            self.write_statuses();
            self.tell();
            let wake = self.next_wake(rest);
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
        match self.clock.read() {
            Reading::Passed(now) => self.now = now,
            Reading::Set { now, .. } => {
                self.now = now;
                self.roster.set_clock(now);
                self.rewatch(0);
            }
        }
        self.roster.tick(self.now, self.steady.at(moment()));
        if self.discover_at.is_some_and(|at| at <= Instant::now()) && !self.discovering {
            (self.discover_at, self.discovering) = (None, true);
            let client = self.client.clone();
            self.discoveries.spawn(async move { discover(&client).await });
        }
    }

    fn take_news(&mut self, news: News) {
        match news {
            News::Objects { watch, told } => return self.roster.told(watch, told),
            News::PoliciesStarted => self.roster.list_started(),
            News::PoliciesSynced => self.roster.synced(),
            News::Policy(object) => self.take_policy(&object),
            News::PolicyGone(name) => self.roster.removed(&name),
        }
        // What could not be begun before waits for the next discovery: statuses come here as well, all the time.
        self.rewatch(self.newest_watch);
    }

    fn take_policy(&mut self, object: &Value) {
        let resources = &mut self.resources;
        let number = |api_version: &str, kind: &str| {
            let next = ResourceId(FIRST_RESOURCE + u32::try_from(resources.len()).unwrap_or(u32::MAX / 2));
            *resources.entry((api_version.into(), kind.into())).or_insert(next)
        };
        if let Err(error) = self.roster.observed(object, number) {
            tracing::warn!(policy = %object["metadata"]["name"], %error, "this policy is ignored");
        }
    }

    /// Ends the watches that the roster does not want any more, and begins those that it wants since.
    fn rewatch(&mut self, since: u64) {
        let wanted = self.roster.watches();
        self.watches.retain(|number, task| {
            let stays = wanted.contains_key(number);
            if !stays {
                task.abort();
            }
            stays
        });
        while self.tasks.try_join_next().is_some() {}
        let newer = wanted.range((Bound::Excluded(since), Bound::Unbounded));
        let missing = newer.filter(|(number, _)| !self.watches.contains_key(number));
        let missing: Vec<(u64, Watch)> = missing.map(|(number, watch)| (*number, watch.clone())).collect();
        for (number, watch) in missing {
            self.newest_watch = self.newest_watch.max(number);
            self.watch(number, watch);
        }
    }

    /// Begins a watch if its kind is served. If that is not known, discovery is asked; what it says comes back here.
    fn watch(&mut self, number: u64, watch: Watch) {
        let found = self.served.as_ref().map(|(served, at)| {
            (find(served, &watch.target, watch.resource), at.elapsed() < DISCOVERY_FRESH)
        });
        match found {
            // Not discovered yet, or perhaps served since.
            None | Some((Err(_), false)) => self.discover_at = Some(Instant::now()),
            Some((Err(why), true)) => {
                self.roster.told(number, Told::Failed(why));
                self.discover_at.get_or_insert_with(|| Instant::now() + DISCOVERY_PERIOD);
            }
            Some((Ok(info), _)) => {
                let route = Route::new(info);
                self.table.insert(Arc::new(route.clone()));
                let reader = Arc::new(ObjectReader { number, route, watch });
                let watcher = FactsWatcher::new(self.client.clone(), reader, self.sink.clone());
                self.watches.insert(number, self.tasks.spawn(watcher.run()));
            }
        }
    }

    fn take_discovered(&mut self, discovered: Result<Discovered, DiscoveryError>) {
        self.discovering = false;
        match discovered {
            Ok(discovered) => {
                self.served = Some((discovered, Instant::now()));
                self.rewatch(0);
            }
            Err(error) => {
                tracing::warn!(%error, "discovery failed; policies about kinds that are not known wait");
                self.discover_at = Some(Instant::now() + DISCOVERY_RETRY);
            }
        }
    }

    fn take_bounds(&mut self) {
        if let Some(bounds) = &self.restraints.bounds {
            self.pacer.set_options(*bounds.borrow());
        }
    }

    /// Asks for effects, one by one while they may go, and sends them.
    fn act(&mut self) -> Rest {
        if self.restraints.is_held() {
            return Rest::Idle;
        }
        loop {
            let now = moment();
            if let Err(until) = self.pacer.check(now) {
                return Rest::Full(until);
            }
            // A run pauses while its resource is stopped, and continues from there.
            let may_act = may_act(&self.table, &self.guard, &self.clock_guard);
            let polled = self.roster.poll_effect(may_act);
            let Some((member, effect)) = polled else { return Rest::Idle };
            self.observer.decided(&effect);
            let route = deleted(&effect).and_then(|key| self.table.get(key.resource));
            let held = match route {
                _ if self.dry_run => Some(HeldBy::DryRun),
                Some(route) => {
                    let deletion = Deletion { resource: &route.name, inferred: false, objects: usize::MAX };
                    self.guard.admit(deletion, steady_now(), &*self.observer)
                }
                None => None,
            };
            if let Some(by) = held {
                let outcome = Outcome::Held(by);
                self.observer.finished(&effect, &outcome, 0, Duration::ZERO);
                self.roster.finish(&member, effect.id, &outcome);
                continue;
            }
            self.pacer.begin();
            let (performer, request) = (self.performer.clone(), effect.request.clone());
            let task = self.requests.spawn(async move { performer.perform(&request).await });
            self.flying.insert(task.id(), Flying { member, effect, begun: now });
        }
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
        let Some(Flying { member, effect, begun }) = self.flying.remove(&id) else { return };
        let now = moment();
        let took = now.since(begun);
        let Performed { outcome, signal, round_trips } = performed;
        self.pacer.finish(now.before(took / round_trips.max(1)), now, signal);
        if let Some(route) = deleted(&effect).and_then(|key| self.table.get(key.resource)) {
            self.guard.finished(&route.name, false, &outcome);
        }
        self.observer.finished(&effect, &outcome, round_trips, took);
        self.roster.finish(&member, effect.id, &outcome);
        self.tick();
    }

    /// Whether anything may be written into a status.
    fn may_write(&self) -> bool {
        !self.dry_run && !self.restraints.is_held()
    }

    fn write_statuses(&mut self) {
        if !self.may_write() {
            return;
        }
        for write in self.roster.statuses() {
            let client = self.client.clone();
            self.statuses.spawn(async move {
                let written = write_status(&client, &write.member.name, &write.patch).await;
                (write, written)
            });
        }
    }

    /// Tells the trouble of each policy, once for each text, and from time to time how all of them stand.
    fn tell(&mut self) {
        let now = Instant::now();
        if self.told_standing.is_some_and(|told| now.saturating_duration_since(told) < STANDING_PAUSE) {
            return;
        }
        self.told_standing = Some(now);
        let mut states: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut standing = Standing { synced: self.roster.is_synced(), ..Standing::default() };
        for (_, engine) in self.roster.engines() {
            *states.entry(engine.state()).or_default() += 1;
            standing.waiting += engine.due();
            standing.counts.judged += engine.judged();
        }
        let state = |(state, count): (&'static str, usize)| {
            measures::reading_of(&measures::POLICIES, vec![Arc::from(state)], count)
        };
        standing.gauges = states.into_iter().map(state).collect();
        self.observer.standing(&standing);
        if self.roster.is_synced() && !self.restraints.is_held() {
            for (member, reason, message) in self.roster.new_troubles() {
                self.note(&member, reason, message);
            }
        }
    }

    /// An Event about a policy; what is held or only tried writes none.
    fn note(&mut self, member: &Member, reason: &'static str, message: String) {
        self.notes_made += 1;
        let name = Arc::clone(&member.name);
        let about = ObjectKey { resource: ResourceId(0), namespace: "".into(), name };
        let evidence = vec![Evidence::Fact(message.as_str().into())];
        let note =
            EventNote { about, uid: Uid::new(&member.uid), severity: Severity::Warning, reason, message };
        let verdict = Verdict::Retention(gc_types::codes::POLICY_NEEDS_ATTENTION);
        let effect = Effect {
            id: EffectId(self.notes_made),
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

    fn take_written(&mut self, (write, written): (StatusWrite, Option<Value>)) {
        self.roster.written(&write, written.as_ref());
        self.tick();
    }

    fn next_wake(&self, rest: Rest) -> Instant {
        let now = Instant::now();
        let may_act = may_act(&self.table, &self.guard, &self.clock_guard);
        let (at, written_at) = self.roster.next_wakeup(may_act);
        let after = |at, from| now + until(at, from).max(Duration::from_millis(1));
        // While it is held, what is due stays due.
        let due = at.filter(|_| !self.restraints.is_held());
        let acted = rest.ends(due.map(|at| after(at, self.now)));
        let written = written_at.filter(|_| self.may_write()).map(|at| after(at, self.steady.at(moment())));
        let discovered = self.discover_at.filter(|_| !self.discovering);
        let wakes = acted.into_iter().chain(written).chain(discovered);
        wakes.fold(now + LONGEST_SLEEP, Instant::min)
    }

    /// Sends nothing further, and waits a little for what is in flight.
    async fn land(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        while let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.requests.join_next_with_id()).await
        {
            self.take_done(done);
        }
        self.requests.abort_all();
    }
}

/// Whether objects of a resource may be deleted now: the breaker, the configuration or clocks that disagree may say no.
fn may_act<'a>(
    table: &'a ResourceTable,
    guard: &'a Guard,
    clocks: &ClockGuard,
) -> impl Fn(ResourceId) -> bool + 'a {
    let is_paused = clocks.is_paused();
    move |resource| !is_paused && table.get(resource).is_none_or(|route| guard.holds(&route.name).is_none())
}

/// The resource of a kind, in the version that a policy names.
fn find(served: &Discovered, target: &Target, id: ResourceId) -> Result<ResourceInfo, String> {
    let Target { api_version, kind, .. } = target;
    let of_kind = served.resources.values().find(|resource| {
        resource.kind == *kind && resource.served_api_versions.iter().any(|served| served == api_version)
    });
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let Some(found) = of_kind else {
        if served.is_unclear(group) {
            return Err(format!("discovery of {group} fails, so {kind} cannot be found"));
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
