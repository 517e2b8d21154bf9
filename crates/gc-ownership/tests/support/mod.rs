//! A test bench for the engine: a model server whose watches can lag, whose responses can be replaced, and a notation for objects
//! and requests in which whole runs are compared.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "each test file uses a part; tests may panic"
)]

use std::collections::{BTreeMap, VecDeque};

use gc_ownership::model::Model;
use gc_ownership::{Config, Engine};
use gc_types::{
    Coordinates, DeletionState, Effect, Event, Gvr, ObjectKey, ObservedObject, Outcome, OwnerReference,
    PropagationPolicy, Request, ResourceId, ResourceInfo, ResourceVersion, Scope, Timestamp, Uid, Verdict,
};

/// kind, plural, apiVersions served (the first is watched), scope.
pub const KINDS: [(&str, &str, &[&str], Scope); 7] = [
    ("Pod", "pods", &["v1"], Scope::Namespaced),
    ("ReplicationController", "replicationcontrollers", &["v1"], Scope::Namespaced),
    ("ConfigMap", "configmaps", &["v1"], Scope::Namespaced),
    ("Secret", "secrets", &["v1"], Scope::Namespaced),
    ("Deployment", "deployments", &["apps/v1", "apps/v1beta1"], Scope::Namespaced),
    ("Node", "nodes", &["v1"], Scope::Cluster),
    ("PersistentVolume", "persistentvolumes", &["v1"], Scope::Cluster),
];

/// splitmix64, the source of all choices in a run.
pub struct Choices(pub u64);

impl Choices {
    pub fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap()
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.next(100) < percent
    }
}

pub fn resource(kind: &str) -> ResourceId {
    ResourceId(u32::try_from(KINDS.iter().position(|row| row.0 == kind).unwrap()).unwrap())
}

pub fn info(kind: &str) -> ResourceInfo {
    let row = KINDS.iter().find(|row| row.0 == kind).unwrap();
    let (group, version) = row.2[0].split_once('/').unwrap_or(("", row.2[0]));
    ResourceInfo {
        id: resource(kind),
        gvr: Gvr { group: group.into(), version: version.into(), resource: row.1.into() },
        kind: row.0.into(),
        scope: row.3,
        served_api_versions: row.2.iter().map(|&version| version.into()).collect(),
        watched: true,
        comparable_versions: true,
    }
}

/// Parses `Kind/name@namespace` (no `@` at cluster scope).
pub fn key(text: &str) -> ObjectKey {
    let (kind, rest) = text.split_once('/').unwrap();
    let (name, namespace) = rest.split_once('@').unwrap_or((rest, ""));
    ObjectKey { resource: resource(kind), namespace: namespace.into(), name: name.into() }
}

pub fn show(key: &ObjectKey) -> String {
    let kind = KINDS[key.resource.0 as usize].0;
    if key.namespace.is_empty() {
        format!("{kind}/{}", key.name)
    } else {
        format!("{kind}/{}@{}", key.name, key.namespace)
    }
}

/// Parses `Kind/name`, or `apiVersion:Kind/name`, with `=uid` if that is not the name, and `!` if it blocks.
pub fn owner(text: &str) -> OwnerReference {
    let (text, blocks) = text.strip_suffix('!').map_or((text, None), |text| (text, Some(true)));
    let (text, uid) = text.split_once('=').map_or((text, None), |(text, uid)| (text, Some(uid)));
    let (api_version, text) =
        text.split_once(':').map_or((None, text), |(version, text)| (Some(version), text));
    let (kind, name) = text.split_once('/').unwrap();
    let known = KINDS.iter().find(|row| row.0 == kind).map_or("v1", |row| row.2[0]);
    OwnerReference {
        coordinates: Coordinates {
            api_version: api_version.unwrap_or(known).into(),
            kind: kind.into(),
            name: name.into(),
            uid: Uid::new(uid.unwrap_or(name)),
        },
        controller: None,
        block_owner_deletion: blocks,
    }
}

/// Creates an object from `Kind/name@namespace` and its owners; the UID is the name.
pub fn object(text: &str, owners: &[&str]) -> ObservedObject {
    let key = key(text);
    ObservedObject {
        uid: Uid::new(&key.name),
        key,
        resource_version: ResourceVersion::UNKNOWN,
        owners: owners.iter().map(|text| owner(text)).collect(),
        deletion: DeletionState::default(),
        recreator: None,
    }
}

/// Returns an object in this version.
pub fn at(version: u64, object: ObservedObject) -> ObservedObject {
    ObservedObject { resource_version: ResourceVersion(version), ..object }
}

pub fn show_request(request: &Request) -> String {
    match request {
        Request::Delete { key, resource_version, policy, .. } => {
            let guard = if resource_version.is_some() { "" } else { " uid-only" };
            format!("delete {} {}{guard}", show(key), policy.name())
        }
        Request::SetOwners { key, remaining, .. } => {
            let owners: Vec<String> = remaining
                .iter()
                .map(|owner| {
                    let blocks = if owner.block_owner_deletion == Some(true) { "!" } else { "" };
                    format!("{}{blocks}", owner.coordinates.name)
                })
                .collect();
            format!("owners {} [{}]", show(key), owners.join(","))
        }
        Request::RemoveFinalizer { key, finalizer, .. } => format!("unfinalize {} {finalizer}", show(key)),
        Request::Read { key } => format!("read {}", show(key)),
        Request::Barrier { resource, namespace, .. } => {
            let plural = KINDS.get(resource.0 as usize).map_or("others", |row| row.1);
            format!("barrier {plural} {}", namespace.as_deref().unwrap_or("*"))
        }
        Request::RecordEvent(note) => format!("note {} {}: {}", show(&note.about), note.reason, note.message),
        Request::Guarded { key, change, .. } => format!("change {} {change:?}", show(key)),
        Request::Outside { key, call, .. } => format!("outside {} {call:?}", show(key)),
    }
}

/// Reports whether an effect is a read that confirms a watch's report about an owner.
pub fn confirms(effect: &Effect) -> bool {
    effect.reason.verdict == Verdict::OwnerUnknown && !effect.reason.evidence.is_empty()
}

/// A change just before a request is answered.
pub type Meanwhile = Box<dyn FnMut(&mut Model) -> Vec<Event>>;

pub struct Bench {
    pub engine: Engine,
    pub model: Model,
    pub log: Vec<String>,
    /// Undelivered events of resources whose watch lags.
    pub lagging: BTreeMap<ResourceId, VecDeque<Event>>,
    /// Responses that replace the model's, by the request as formatted; each is used once, in order.
    pub scripted: BTreeMap<String, VecDeque<Outcome>>,
    /// Changes just before a request is answered, once.
    pub before: BTreeMap<String, VecDeque<Meanwhile>>,
    pub now: i64,
    /// False if barriers are answered immediately, and left out of the log.
    pub log_barriers: bool,
    /// False if reads that confirm a watch's report about an owner are made, but left out of the log.
    pub log_confirmations: bool,
    steps: usize,
    /// True to skip checking the invariants, for very many small worlds.
    pub unchecked: bool,
}

impl Bench {
    /// Creates a bench on which everything is served and synced, without objects.
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        let mut bench = Self::unstarted(config);
        for row in KINDS {
            bench.engine.handle(Event::ResourceServed(info(row.0)));
            bench.sync(row.0);
        }
        bench.engine.handle(Event::Discovered);
        bench
    }

    pub fn unstarted(config: Config) -> Self {
        let mut bench = Self {
            engine: Engine::new(config),
            model: Model::new(),
            log: Vec::new(),
            lagging: BTreeMap::new(),
            scripted: BTreeMap::new(),
            before: BTreeMap::new(),
            now: 1_000,
            log_barriers: false,
            log_confirmations: false,
            steps: 0,
            unchecked: false,
        };
        bench.engine.handle(Event::Tick(Timestamp(1_000)));
        bench
    }

    /// Delivers a complete list of a kind.
    pub fn sync(&mut self, kind: &str) {
        let id = resource(kind);
        self.engine.handle(Event::ListStarted(id));
        for object in self.model.list(id, None) {
            self.engine.handle(Event::Observed(object));
        }
        self.engine.handle(Event::Synced { resource: id, resource_version: self.model.version() });
        self.check();
    }

    /// Creates such a bench, on which barriers wait for this long.
    pub fn gathering(milliseconds: i64) -> Self {
        Self::with(Config {
            barrier_quiet_milliseconds: milliseconds,
            barrier_gathers_milliseconds: milliseconds,
            ..Config::default()
        })
    }

    /// Delivers a complete list that consists of these objects and claims a version.
    pub fn list(&mut self, kind: &str, objects: &[ObservedObject], version: u64) {
        let resource = resource(kind);
        self.engine.handle(Event::ListStarted(resource));
        for object in objects {
            self.engine.handle(Event::Observed(object.clone()));
        }
        self.engine.handle(Event::Synced { resource, resource_version: ResourceVersion(version) });
        self.check();
    }

    /// Verifies the engine's invariants: at every step of a small world, sometimes in a large one.
    pub fn check(&mut self) {
        self.steps += 1;
        if self.unchecked {
            return;
        }
        if self.engine.stats().objects > 64 && !self.steps.is_multiple_of(256) {
            return;
        }
        let broken = self.engine.verify();
        assert!(broken.is_empty(), "{broken:#?}\nafter {:#?}", self.log);
    }

    /// Delivers an event, unless the watch of its resource lags.
    pub fn deliver(&mut self, event: Event) {
        let id = match &event {
            Event::Observed(object) => Some(object.key.resource),
            Event::Removed { key, .. } => Some(key.resource),
            _ => None,
        };
        if let Some(held) = id.and_then(|id| self.lagging.get_mut(&id)) {
            held.push_back(event);
            return;
        }
        self.engine.handle(event);
        self.check();
    }

    pub fn lag(&mut self, kind: &str) {
        self.lagging.insert(resource(kind), VecDeque::new());
    }

    pub fn catch_up(&mut self, kind: &str) {
        for event in self.lagging.remove(&resource(kind)).unwrap_or_default() {
            self.deliver(event);
        }
    }

    /// Creates an object.
    pub fn add(&mut self, text: &str, owners: &[&str]) -> &mut Self {
        self.put(object(text, owners))
    }

    pub fn put(&mut self, object: ObservedObject) -> &mut Self {
        let event = self.model.put(object);
        self.deliver(event);
        self
    }

    /// Creates an object with a finalizer that is not the collector's.
    pub fn add_held(&mut self, text: &str, owners: &[&str]) -> &mut Self {
        let mut held = object(text, owners);
        held.deletion.foreign_finalizers = true;
        self.put(held)
    }

    pub fn delete(&mut self, text: &str, policy: PropagationPolicy) -> &mut Self {
        if let Some(event) = self.model.delete(&key(text), Some(policy)) {
            self.deliver(event);
        }
        self
    }

    pub fn release(&mut self, text: &str) -> &mut Self {
        let event = self.model.release(&key(text)).unwrap();
        self.deliver(event);
        self
    }

    pub fn set_owners(&mut self, text: &str, owners: &[&str]) -> &mut Self {
        let event =
            self.model.set_owners(&key(text), owners.iter().map(|text| owner(text)).collect()).unwrap();
        self.deliver(event);
        self
    }

    pub fn script(&mut self, request: &str, outcomes: &[Outcome]) -> &mut Self {
        self.scripted.entry(request.to_owned()).or_default().extend(outcomes.iter().cloned());
        self
    }

    /// Performs one effect; logs it.
    pub fn perform(&mut self, effect: &Effect) {
        let shown = show_request(&effect.request);
        let is_logged = match effect.request {
            Request::Barrier { .. } => self.log_barriers,
            Request::Read { .. } => self.log_confirmations || !confirms(effect),
            _ => true,
        };
        if is_logged {
            self.log.push(shown.clone());
        }
        if let Some(mut change) = self.before.get_mut(&shown).and_then(VecDeque::pop_front) {
            for event in change(&mut self.model) {
                self.deliver(event);
            }
        }
        if let Some(outcome) = self.scripted.get_mut(&shown).and_then(VecDeque::pop_front) {
            self.deliver(Event::Done(effect.id, outcome));
            return;
        }
        let answer = self.model.answer(&effect.request);
        for event in answer.events {
            self.deliver(event);
        }
        self.deliver(Event::Done(effect.id, answer.outcome));
    }

    /// Returns the engine's next effect after any reads that confirm a watch's report about an owner.
    pub fn next_effect(&mut self) -> Option<Effect> {
        while let Some(effect) = self.engine.poll_effect() {
            if !confirms(&effect) {
                return Some(effect);
            }
            self.perform(&effect);
        }
        None
    }

    /// Performs the engine's current effects, without advancing the time.
    pub fn drain(&mut self) -> &mut Self {
        let mut steps = 0;
        while let Some(effect) = self.engine.poll_effect() {
            self.check();
            self.perform(&effect);
            steps += 1;
            assert!(steps < 100_000, "the engine does not come to rest: {:#?}", &self.log[..50]);
        }
        self
    }

    /// Advances the time by this much, performing effects on the way.
    pub fn run_for(&mut self, milliseconds: i64) -> &mut Self {
        let end = self.now + milliseconds;
        self.drain();
        while let Some(due) = self.engine.next_wakeup().filter(|due| due.0 <= end) {
            self.now = self.now.max(due.0);
            self.engine.handle(Event::Tick(Timestamp(self.now)));
            self.drain();
        }
        self.now = end;
        self.engine.handle(Event::Tick(Timestamp(end)));
        self.drain();
        self
    }

    /// Performs effects up to the removal of a finalizer, which it returns.
    pub fn next_finalizer_removal(&mut self) -> Effect {
        loop {
            let effect = self.next_effect().unwrap();
            if matches!(effect.request, Request::RemoveFinalizer { .. }) {
                return effect;
            }
            self.perform(&effect);
        }
    }

    /// Advances the time by this much, and returns the requests on the way, each with the milliseconds that had passed.
    pub fn requests_within(&mut self, milliseconds: i64) -> Vec<String> {
        let begun = self.now;
        let mut requests = Vec::new();
        self.drain();
        while self.now <= begun + milliseconds {
            let after = self.now - begun;
            requests.extend(self.take_log().into_iter().map(|line| format!("{after} {line}")));
            self.run_for(1);
        }
        requests
    }

    /// Returns the existing objects, with owners, as `Kind/name@namespace[owners]`, `-` in front if terminating.
    pub fn world(&self) -> Vec<String> {
        self.model
            .objects()
            .map(|object| {
                let owners: Vec<&str> = object.owners.iter().map(|owner| &*owner.coordinates.name).collect();
                let deleting = if object.deletion.deleting { "-" } else { "" };
                let owners =
                    if owners.is_empty() { String::new() } else { format!("[{}]", owners.join(",")) };
                format!("{deleting}{}{owners}", show(&object.key))
            })
            .collect()
    }

    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

pub struct Scenario {
    pub name: &'static str,
    pub run: fn(&mut Bench),
    pub log: &'static [&'static str],
    pub world: &'static [&'static str],
}

pub fn failed() -> Outcome {
    Outcome::Failed { message: "timeout".to_owned(), retry_after_milliseconds: None }
}

pub fn refused() -> Outcome {
    Outcome::Refused { code: 403, message: "forbidden".to_owned() }
}

/// Longer than every delay, milliseconds.
pub const LONG: i64 = 2_000_000;

/// Changes the object's version but keeps its references, like a busy status writer.
pub fn touch(bench: &mut Bench, request: &str, object: &'static str, times: usize) {
    for _ in 0..times {
        bench.before.entry(request.to_owned()).or_default().push_back(Box::new(move |model| {
            let copy = model.get(&key(object)).unwrap().clone();
            vec![model.put(copy)]
        }));
    }
}

/// Runs every scenario on its own bench, and compares the requests and the remaining objects.
pub fn run_all(scenarios: &[Scenario]) {
    let mut wrong = Vec::new();
    for scenario in scenarios {
        let mut bench = Bench::new();
        (scenario.run)(&mut bench);
        if bench.log != scenario.log || bench.world() != scenario.world {
            wrong.push(format!(
                "{}\n  asked {:#?}\n  expected {:#?}\n  left {:?}\n  expected {:?}",
                scenario.name,
                bench.log,
                scenario.log,
                bench.world(),
                scenario.world
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Pushes the graph to the log: nodes (`?` unseen, `+` gone), and references from dependent to owner.
pub fn log_graph(bench: &mut Bench) {
    let dump = bench.engine.dump(&[]);
    let nodes: Vec<String> = dump
        .nodes
        .iter()
        .map(|node| {
            let state = if node.is_virtual {
                "?"
            } else if node.missing {
                "+"
            } else {
                ""
            };
            format!("{}{state}", node.uid)
        })
        .collect();
    let edges: Vec<String> = dump.edges.iter().map(|edge| format!("{}>{}", edge.from, edge.to)).collect();
    bench.log.push(format!("graph {} | {}", nodes.join(" "), edges.join(" ")));
}
