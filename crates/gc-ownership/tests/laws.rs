//! Properties: whatever the world, the order of events and the faults, nothing is deleted that has a living owner or never had one,
//! finalizers are removed only when their work is done, orphans survive, and when the faults end, all garbage is deleted. A seed
//! reproduces any failure.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::needless_for_each,
    missing_docs,
    reason = "tests may panic"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gc_ownership::model::Model;
use gc_ownership::{Config, Engine};
use gc_types::{
    Effect, Event, FinalizerName, ObservedObject, Outcome, PropagationPolicy, Request, ResourceId,
    ResourceVersion, Scope, Timestamp, Uid,
};
use proptest::prelude::*;
use support::{Choices, KINDS, info, object, owner, show, show_request};

/// Meaning of a reference to the server, by the rules of the specification alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Lives,
    Waits,
    Orphans,
    Absent,
    Undecidable,
}

fn owner_state(model: &Model, dependent: &ObservedObject, index: usize) -> Owner {
    let reference = &dependent.owners[index].coordinates;
    let Some(row) =
        KINDS.iter().find(|row| row.0 == &*reference.kind && row.2.contains(&&*reference.api_version))
    else {
        return Owner::Undecidable;
    };
    if row.3 == Scope::Namespaced && dependent.key.namespace.is_empty() {
        return Owner::Undecidable;
    }
    let namespace = if row.3 == Scope::Namespaced { &*dependent.key.namespace } else { "" };
    let found = model.objects().find(|object| {
        object.uid == reference.uid
            && KINDS[object.key.resource.0 as usize].0 == row.0
            && *object.key.namespace == *namespace
            && object.key.name == reference.name
    });
    match found {
        None => Owner::Absent,
        Some(owner) if owner.deletion.deleting && owner.deletion.orphan => Owner::Orphans,
        Some(owner) if owner.deletion.deleting && owner.deletion.foreground => Owner::Waits,
        Some(_) => Owner::Lives,
    }
}

struct World {
    engine: Engine,
    model: Model,
    choices: Choices,
    /// Undelivered events per resource, in order.
    pipes: BTreeMap<ResourceId, VecDeque<Event>>,
    /// Effects on their way to the server, and responses on their way back.
    requests: Vec<Effect>,
    answers: Vec<Event>,
    now: i64,
    faults: usize,
    /// Time at which each reference (dependent, owner) was written, and each owner was marked.
    written: BTreeMap<(Uid, Uid), u64>,
    marked: BTreeMap<Uid, u64>,
    /// Owners that were deleted with Orphan.
    orphaning: BTreeSet<Uid>,
    trace: Vec<String>,
    next_name: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let config =
            Config { conflicts_before_uid_only: u32::MAX, effects_in_flight: 4, ..Config::default() };
        let mut engine = Engine::new(config);
        for row in KINDS {
            let mut info = info(row.0);
            // One of them has incomparable versions.
            info.comparable_versions = row.0 != "Secret";
            engine.handle(Event::ResourceServed(info.clone()));
            engine.handle(Event::ListStarted(info.id));
            engine.handle(Event::Synced { resource: info.id, resource_version: ResourceVersion::UNKNOWN });
        }
        engine.handle(Event::Discovered);
        Self {
            engine,
            model: Model::new(),
            choices: Choices(seed),
            pipes: BTreeMap::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            now: 0,
            faults: 0,
            written: BTreeMap::new(),
            marked: BTreeMap::new(),
            orphaning: BTreeSet::new(),
            trace: Vec::new(),
            next_name: 0,
        }
    }

    fn emit(&mut self, event: Event) {
        match &event {
            Event::Observed(object) => {
                for reference in &object.owners {
                    let edge = (object.uid.clone(), reference.coordinates.uid.clone());
                    self.written.entry(edge).or_insert(object.resource_version.0);
                }
                if object.deletion.deleting {
                    self.marked.entry(object.uid.clone()).or_insert(object.resource_version.0);
                }
                let id = object.key.resource;
                self.pipes.entry(id).or_default().push_back(event);
            }
            Event::Removed { key, .. } => {
                let id = key.resource;
                self.pipes.entry(id).or_default().push_back(event);
            }
            _ => self.engine.handle(event),
        }
    }

    /// Performs an action of a client.
    fn act(&mut self) {
        let keys: Vec<_> = self.model.objects().map(|object| object.key.clone()).collect();
        match self.choices.next(10) {
            0..4 => {
                let kind = ["ConfigMap", "Secret", "Pod", "Node"][self.choices.next(4)];
                let namespace = ["@n", "@n", "@n", "@m"][self.choices.next(4)];
                let namespace = if kind == "Node" { "" } else { namespace };
                let name = format!("{}{}", kind.to_lowercase(), self.next_name);
                self.next_name += 1;
                let mut new = object(&format!("{kind}/{name}{namespace}"), &[]);
                new.owners = self.references(&name).into();
                new.deletion.foreign_finalizers = self.choices.chance(15);
                self.trace.push(format!("create {} {:?}", show(&new.key), names(&new)));
                let event = self.model.put(new);
                self.emit(event);
            }
            4..7 if !keys.is_empty() => {
                let key = &keys[self.choices.next(keys.len())];
                let object = self.model.get(key).unwrap();
                // Another deletion during a running one is a race of its own.
                if !object.deletion.deleting {
                    let policy = [
                        PropagationPolicy::Background,
                        PropagationPolicy::Foreground,
                        PropagationPolicy::Orphan,
                    ][self.choices.next(3)];
                    self.trace.push(format!("delete {} {policy:?}", show(key)));
                    if policy == PropagationPolicy::Orphan {
                        self.orphaning.insert(object.uid.clone());
                    }
                    let event = self.model.delete(key, Some(policy));
                    event.into_iter().for_each(|event| self.emit(event));
                }
            }
            7 if !keys.is_empty() => {
                let key = &keys[self.choices.next(keys.len())];
                let uid = self.model.get(key).unwrap().uid.to_string();
                let owners = self.references(&uid);
                let uid = Uid::new(&uid);
                self.written.retain(|(dependent, _), _| *dependent != uid);
                let event = self.model.set_owners(key, owners);
                self.trace.push(format!(
                    "set owners {} {:?}",
                    show(key),
                    names(self.model.get(key).unwrap())
                ));
                event.into_iter().for_each(|event| self.emit(event));
            }
            8 if !keys.is_empty() => {
                let key = &keys[self.choices.next(keys.len())];
                self.trace.push(format!("release {}", show(key)));
                let event = self.model.release(key);
                event.into_iter().for_each(|event| self.emit(event));
            }
            _ => {}
        }
    }

    fn references(&mut self, own: &str) -> Vec<gc_types::OwnerReference> {
        let count = [0, 1, 1, 1, 2, 3][self.choices.next(6)];
        let objects: Vec<ObservedObject> = self.model.objects().cloned().collect();
        let mut references: Vec<gc_types::OwnerReference> = Vec::new();
        for _ in 0..count {
            let block = if self.choices.chance(50) { "!" } else { "" };
            let text = match self.choices.next(12) {
                0 => format!("ConfigMap/ghost{}{block}", self.choices.next(3)),
                1 => format!("example.com/v1:Gadget/g{block}"),
                2 => format!("ConfigMap/{own}{block}"),
                3 if !objects.is_empty() => {
                    format!("Secret/wrong={}{block}", objects[self.choices.next(objects.len())].uid)
                }
                _ if !objects.is_empty() => {
                    let target = &objects[self.choices.next(objects.len())];
                    let kind = KINDS[target.key.resource.0 as usize].0;
                    format!("{kind}/{}={}{block}", target.key.name, target.uid)
                }
                _ => continue,
            };
            let reference = owner(&text);
            if references.iter().all(|known| known.coordinates.uid != reference.coordinates.uid) {
                references.push(reference);
            }
        }
        references
    }

    /// Executes a request as the server, unless there is a fault.
    fn serve(&mut self, effect: &Effect) -> Outcome {
        let lost = Outcome::Failed { message: "lost".to_owned(), retry_after_milliseconds: None };
        if self.choices.chance(self.faults) {
            self.trace.push(format!("  fault before {}", show_request(&effect.request)));
            return match self.choices.next(4) {
                0 => Outcome::Refused { code: 403, message: "no".to_owned() },
                1 => Outcome::NotServed,
                2 if !matches!(effect.request, Request::Read { .. } | Request::Barrier { .. }) => {
                    Outcome::Conflict
                }
                _ => lost,
            };
        }
        self.check_request(&effect.request);
        let answer = self.model.answer(&effect.request);
        self.trace.push(format!(
            "  {} -> {:?}",
            show_request(&effect.request),
            outcome_name(&answer.outcome)
        ));
        answer.events.into_iter().for_each(|event| self.emit(event));
        if self.choices.chance(self.faults) {
            return lost;
        }
        answer.outcome
    }

    /// Checks safety at the moment at which a request takes effect.
    fn check_request(&self, request: &Request) {
        match request {
            Request::Delete { key, uid, resource_version, .. } => {
                let Some(object) = self.model.get(key).filter(|object| object.uid == *uid) else { return };
                if *resource_version != Some(object.resource_version) {
                    assert!(resource_version.is_some(), "a delete without version: {:#?}", self.trace);
                    return;
                }
                let states: Vec<Owner> =
                    (0..object.owners.len()).map(|index| owner_state(&self.model, object, index)).collect();
                assert!(!states.is_empty(), "{} has no owner: {:#?}", show(key), self.trace);
                assert!(
                    states.iter().all(|state| matches!(state, Owner::Waits | Owner::Absent)),
                    "{} has {states:?}: {:#?}",
                    show(key),
                    self.trace
                );
            }
            Request::SetOwners { key, uid, resource_version, remaining } => {
                let Some(object) = self.model.get(key).filter(|object| object.uid == *uid) else { return };
                if *resource_version != object.resource_version {
                    return;
                }
                // Only `blockOwnerDeletion` is added or changed, and no living owner is removed.
                let kept: BTreeSet<&Uid> = remaining.iter().map(|owner| &owner.coordinates.uid).collect();
                for index in 0..object.owners.len() {
                    let state = owner_state(&self.model, object, index);
                    let uid = &object.owners[index].coordinates.uid;
                    // A dependent written while its owner's orphaning ends may be released as well: that removes nothing living.
                    let orphaned = self.orphaning.contains(uid);
                    assert!(
                        kept.contains(uid)
                            || orphaned
                            || matches!(state, Owner::Waits | Owner::Absent | Owner::Orphans),
                        "{} loses a living owner ({state:?}): {:#?}",
                        show(key),
                        self.trace
                    );
                }
                assert!(
                    remaining.iter().all(|owner| {
                        object.owners.iter().any(|known| known.coordinates == owner.coordinates)
                    }),
                    "{} gains an owner: {:#?}",
                    show(key),
                    self.trace
                );
            }
            Request::RemoveFinalizer { key, uid, finalizer } => {
                let Some(owner) = self.model.get(key).filter(|object| object.uid == *uid) else { return };
                let mark = self.marked[&owner.uid];
                for dependent in self.model.objects().filter(|object| object.uid != *uid) {
                    for (index, reference) in dependent.owners.iter().enumerate() {
                        let before = self
                            .written
                            .get(&(dependent.uid.clone(), uid.clone()))
                            .is_some_and(|&at| at <= mark);
                        let state = owner_state(&self.model, dependent, index);
                        let matters = match finalizer {
                            FinalizerName::Orphan => state == Owner::Orphans,
                            FinalizerName::ForegroundDeletion => {
                                reference.block_owner_deletion == Some(true) && state == Owner::Waits
                            }
                        };
                        assert!(
                            !(reference.coordinates.uid == *uid && before && matters),
                            "{} loses {finalizer} before {}: {:#?}",
                            show(key),
                            show(&dependent.key),
                            self.trace
                        );
                    }
                }
            }
            Request::Read { .. }
            | Request::Barrier { .. }
            | Request::RecordEvent(_)
            | Request::Guarded { .. }
            | Request::Outside { .. } => {}
        }
    }

    /// Lets one thing happen somewhere.
    fn step(&mut self) {
        match self.choices.next(8) {
            0..3 => {
                let pipes: Vec<ResourceId> =
                    self.pipes.iter().filter(|(_, pipe)| !pipe.is_empty()).map(|(&id, _)| id).collect();
                if !pipes.is_empty() {
                    let id = pipes[self.choices.next(pipes.len())];
                    if self.faults > 0 && self.choices.chance(3) {
                        self.relist(id);
                    } else if let Some(event) = self.pipes.get_mut(&id).and_then(VecDeque::pop_front) {
                        self.engine.handle(event);
                    }
                }
            }
            3..5 => {
                if let Some(effect) = self.engine.poll_effect() {
                    self.requests.push(effect);
                }
            }
            5 if !self.requests.is_empty() => {
                let index = self.choices.next(self.requests.len());
                let effect = self.requests.swap_remove(index);
                let outcome = self.serve(&effect);
                self.answers.push(Event::Done(effect.id, outcome));
            }
            6 if !self.answers.is_empty() => {
                let index = self.choices.next(self.answers.len());
                let answer = self.answers.swap_remove(index);
                self.engine.handle(answer);
            }
            7 => {
                self.now += self.choices.next(200) as i64;
                self.engine.handle(Event::Tick(Timestamp(self.now)));
            }
            _ => {}
        }
        let broken = self.engine.verify();
        assert!(broken.is_empty(), "{broken:#?}\n{:#?}", self.trace);
    }

    /// Loses the watch of a resource with its undelivered events; the resource is listed again.
    fn relist(&mut self, id: ResourceId) {
        self.trace.push(format!("  relist {}", KINDS[id.0 as usize].1));
        self.pipes.remove(&id);
        self.engine.handle(Event::Stale(id));
        self.engine.handle(Event::ListStarted(id));
        for object in self.model.list(id, None) {
            self.engine.handle(Event::Observed(object));
        }
        self.engine.handle(Event::Synced { resource: id, resource_version: self.model.version() });
    }

    /// Ends the faults: everything arrives, and time passes until only slow polls are left.
    fn settle(&mut self) {
        self.faults = 0;
        let end = self.now + 10_000_000;
        for _ in 0..200_000 {
            let mut idle = true;
            for pipe in self.pipes.values_mut() {
                while let Some(event) = pipe.pop_front() {
                    self.engine.handle(event);
                    idle = false;
                }
            }
            for answer in std::mem::take(&mut self.answers) {
                self.engine.handle(answer);
                idle = false;
            }
            for effect in std::mem::take(&mut self.requests) {
                let outcome = self.serve(&effect);
                self.answers.push(Event::Done(effect.id, outcome));
                idle = false;
            }
            while let Some(effect) = self.engine.poll_effect() {
                self.requests.push(effect);
                idle = false;
            }
            if idle {
                match self.engine.next_wakeup() {
                    Some(due) if due.0 <= end => {
                        self.now = self.now.max(due.0);
                        self.engine.handle(Event::Tick(Timestamp(self.now)));
                    }
                    _ => return,
                }
            }
        }
        panic!("the engine does not come to rest: {:#?}", self.trace);
    }

    /// Checks liveness: all garbage is deleted, and no owner waits without a reason.
    fn check_rest(&self) {
        for object in self.model.objects() {
            let states: Vec<Owner> =
                (0..object.owners.len()).map(|index| owner_state(&self.model, object, index)).collect();
            let garbage = !states.is_empty()
                && states.iter().all(|state| matches!(state, Owner::Waits | Owner::Absent | Owner::Orphans));
            assert!(
                object.deletion.deleting || !garbage,
                "{} is garbage ({states:?}) and still there: {:#?}",
                show(&object.key),
                self.trace
            );
            assert!(
                !(object.deletion.deleting && object.deletion.orphan),
                "{} still waits to orphan: {:#?}",
                show(&object.key),
                self.trace
            );
            assert!(
                !(object.deletion.deleting && object.deletion.foreground)
                    || self.is_held(object, &mut BTreeSet::new()),
                "{} waits for nothing: {:#?}",
                show(&object.key),
                self.trace
            );
        }
        assert_eq!(self.engine.stats().objects, self.model.objects().count(), "{:#?}", self.trace);
    }

    /// Reports whether a foreground deletion rightly waits for a dependent that other finalizers block.
    fn is_held(&self, owner: &ObservedObject, seen: &mut BTreeSet<Uid>) -> bool {
        seen.insert(owner.uid.clone())
            && self.model.objects().filter(|object| object.uid != owner.uid).any(|dependent| {
                let blocks = dependent.owners.iter().enumerate().any(|(index, reference)| {
                    reference.coordinates.uid == owner.uid
                        && reference.block_owner_deletion == Some(true)
                        && owner_state(&self.model, dependent, index) == Owner::Waits
                });
                blocks
                    && dependent.deletion.deleting
                    && (dependent.deletion.foreign_finalizers || self.is_held(dependent, seen))
            })
    }
}

fn names(object: &ObservedObject) -> Vec<String> {
    object
        .owners
        .iter()
        .map(|owner| {
            let block = if owner.block_owner_deletion == Some(true) { "!" } else { "" };
            format!("{}/{}={}{block}", owner.coordinates.kind, owner.coordinates.name, owner.coordinates.uid)
        })
        .collect()
}

fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied(_) => "applied",
        Outcome::Found(_) => "found",
        Outcome::Absent => "absent",
        Outcome::Conflict => "conflict",
        _ => "failed",
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    world.faults = [0, 10, 30][world.choices.next(3)];
    let length = 40 + world.choices.next(300);
    for _ in 0..length {
        if world.choices.chance(12) {
            world.act();
        }
        world.step();
    }
    world.settle();
    world.check_rest();
}

#[test]
fn seeded_worlds_keep_the_laws() {
    for seed in 0..500 {
        run(seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_worlds_keep_the_laws(seed in any::<u64>()) {
        run(seed);
    }
}

/// In every world of three objects `a`, `b`, `c` that refer to each other in any way, with one of them deleted in every way, the
/// remaining objects and references are exactly those that the rules require.
#[test]
fn every_world_of_three_objects_ends_as_the_rules_say() {
    use PropagationPolicy::{Background, Foreground, Orphan};
    let names = ["a", "b", "c"];
    for shape in 0..512_usize {
        for block in ["", "!"] {
            for root in 0..3 {
                for policy in [Background, Foreground, Orphan] {
                    let refers = |from: usize, to: usize| shape >> (from * 3 + to) & 1 == 1;
                    let mut bench = support::Bench::new();
                    bench.unchecked = true;
                    for (from, name) in names.iter().enumerate() {
                        let owners: Vec<String> = (0..3)
                            .filter(|&to| refers(from, to))
                            .map(|to| format!("ConfigMap/{}{block}", names[to]))
                            .collect();
                        let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
                        bench.add(&format!("ConfigMap/{name}@n"), &owners);
                    }
                    bench.drain();
                    bench.delete(&format!("ConfigMap/{}@n", names[root]), policy).run_for(60_000);

                    let mut gone = [false; 3];
                    gone[root] = true;
                    let orphaned = policy == Orphan;
                    while !orphaned
                        && let Some(next) = (0..3).find(|&from| {
                            !gone[from]
                                && (0..3).any(|to| refers(from, to))
                                && (0..3).all(|to| !refers(from, to) || gone[to])
                        })
                    {
                        gone[next] = true;
                    }
                    let expected: Vec<String> = (0..3)
                        .filter(|&from| !gone[from])
                        .map(|from| {
                            let owners: Vec<&str> = (0..3)
                                .filter(|&to| refers(from, to) && !gone[to])
                                .map(|to| names[to])
                                .collect();
                            let owners = if owners.is_empty() {
                                String::new()
                            } else {
                                format!("[{}]", owners.join(","))
                            };
                            format!("ConfigMap/{}@n{owners}", names[from])
                        })
                        .collect();
                    assert_eq!(
                        bench.world(),
                        expected,
                        "shape {shape:09b} {block} root {root} {policy:?} {:#?}",
                        bench.log
                    );
                }
            }
        }
    }
}
