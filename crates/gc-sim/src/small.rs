//! Small worlds, explored exhaustively: every ownership graph over a few objects, every object deleted under every policy, with and
//! without references that block and an object that a finalizer holds; and for each of them every order, up to a given depth, in
//! which watches, requests and responses can take their turns. The last object is created just before the deletion, so its
//! existence is news as well.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gc_ownership::model::Model;
use gc_ownership::{Config, Engine};
use gc_types::{
    Coordinates, DeletionState, Effect, Event, FinalizerName, Gvr, ObjectKey, ObservedObject, OwnerReference,
    PropagationPolicy, Request, ResourceId, ResourceInfo, ResourceVersion, Scope, Timestamp, Uid,
};

use crate::violation::Violation;

/// Maximum number of steps until a world rests.
const REST_STEPS: usize = 2_000;
/// Maximum simulated time until a world rests, in milliseconds.
const REST_MILLISECONDS: i64 = 600_000;

/// Number of violations that end an exploration.
const VIOLATIONS: usize = 10;

/// Counts of the visited worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Number of graphs times roots times policies times variants.
    pub worlds: u64,
    /// Number of states, which are prefixes of orders.
    pub states: u64,
    /// Number of orders that were followed to rest and judged there.
    pub rests: u64,
    /// Violations, each with its world and steps.
    pub violations: Vec<(String, Violation)>,
}

#[derive(Clone)]
struct State {
    engine: Engine,
    model: Model,
    pipes: BTreeMap<ResourceId, VecDeque<Event>>,
    requests: Vec<Effect>,
    answers: Vec<Event>,
    now: i64,
}

/// One turn.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Deliver(ResourceId),
    Effect,
    Serve(usize),
    Answer(usize),
}

fn uid(index: usize) -> Uid {
    Uid::new(&format!("u{index}"))
}

fn resource(index: usize) -> ResourceId {
    ResourceId(u32::try_from(index).unwrap_or(0))
}

fn object(index: usize, owners: &[usize], blocks: bool, held: bool) -> ObservedObject {
    let owners = owners.iter().map(|owner| OwnerReference {
        coordinates: Coordinates {
            api_version: "v1".into(),
            kind: format!("K{owner}").into(),
            name: format!("o{owner}").into(),
            uid: uid(*owner),
        },
        controller: None,
        block_owner_deletion: blocks.then_some(true),
    });
    ObservedObject {
        key: ObjectKey { resource: resource(index), namespace: "n".into(), name: format!("o{index}").into() },
        uid: uid(index),
        resource_version: ResourceVersion::UNKNOWN,
        owners: owners.collect(),
        deletion: DeletionState { foreign_finalizers: held, ..DeletionState::default() },
        recreator: None,
    }
}

/// A world; `shape` has one bit for each pair (dependent, owner).
#[derive(Clone, Copy, Debug)]
struct SmallWorld {
    objects: usize,
    shape: u32,
    blocks: bool,
    held: Option<usize>,
    root: usize,
    policy: PropagationPolicy,
}

impl SmallWorld {
    fn owners(&self, index: usize) -> Vec<usize> {
        (0..self.objects).filter(|owner| self.shape >> (index * self.objects + owner) & 1 == 1).collect()
    }

    fn begin(&self) -> State {
        let mut engine = Engine::new(Config { conflicts_before_uid_only: u32::MAX, ..Config::default() });
        let mut model = Model::new();
        let mut pipes: BTreeMap<ResourceId, VecDeque<Event>> = BTreeMap::new();
        for index in 0..self.objects {
            let id = resource(index);
            engine.handle(Event::ResourceServed(ResourceInfo {
                id,
                gvr: Gvr { group: "".into(), version: "v1".into(), resource: format!("k{index}").into() },
                kind: format!("K{index}").into(),
                scope: Scope::Namespaced,
                served_api_versions: vec!["v1".into()],
                watched: true,
                comparable_versions: true,
            }));
            engine.handle(Event::ListStarted(id));
            engine.handle(Event::Synced { resource: id, resource_version: model.version() });
            pipes.insert(id, VecDeque::new());
        }
        engine.handle(Event::Discovered);
        for index in 0..self.objects {
            let event = model.put(object(index, &self.owners(index), self.blocks, self.held == Some(index)));
            if index + 1 == self.objects {
                pipes.entry(resource(index)).or_default().push_back(event);
            } else {
                engine.handle(event);
            }
        }
        let key = object(self.root, &[], false, false).key;
        let mut state = State { engine, model, pipes, requests: Vec::new(), answers: Vec::new(), now: 0 };
        if let Some(event) = state.model.delete(&key, Some(self.policy)) {
            state.emit(event);
        }
        state
    }
}

impl State {
    fn emit(&mut self, event: Event) {
        let id = match &event {
            Event::Observed(object) => object.key.resource,
            Event::Removed { key, .. } => key.resource,
            _ => {
                self.engine.handle(event);
                return;
            }
        };
        self.pipes.entry(id).or_default().push_back(event);
    }

    fn turns(&self) -> Vec<Turn> {
        let mut turns: Vec<Turn> = self
            .pipes
            .iter()
            .filter(|(_, pipe)| !pipe.is_empty())
            .map(|(id, _)| Turn::Deliver(*id))
            .collect();
        if self.engine.clone().poll_effect().is_some() {
            turns.push(Turn::Effect);
        }
        turns.extend((0..self.requests.len()).map(Turn::Serve));
        turns.extend((0..self.answers.len()).map(Turn::Answer));
        turns
    }

    fn take(&mut self, turn: Turn) -> Result<(), Violation> {
        match turn {
            Turn::Deliver(id) => {
                if let Some(event) = self.pipes.get_mut(&id).and_then(VecDeque::pop_front) {
                    self.engine.handle(event);
                }
            }
            Turn::Effect => {
                if let Some(effect) = self.engine.poll_effect() {
                    self.requests.push(effect);
                }
            }
            Turn::Serve(index) => {
                let effect = self.requests.remove(index);
                self.judge(&effect.request)?;
                let answer = self.model.answer(&effect.request);
                for event in answer.events {
                    self.emit(event);
                }
                self.answers.push(Event::Done(effect.id, answer.outcome));
            }
            Turn::Answer(index) => {
                let answer = self.answers.remove(index);
                self.engine.handle(answer);
            }
        }
        Ok(())
    }

    /// Reports whether an owner of an object neither waits nor is gone.
    fn protects(&self, owner: &Uid) -> bool {
        self.model.by_uid(owner).is_some_and(|owner| !(owner.deletion.deleting && owner.deletion.foreground))
    }

    fn judge(&self, request: &Request) -> Result<(), Violation> {
        let broken = |oracle, message| Err(Violation { oracle, message });
        match request {
            Request::Delete { key, uid, resource_version, .. } => {
                let Some(target) = self.model.get(key).filter(|target| target.uid == *uid) else {
                    return Ok(());
                };
                if *resource_version != Some(target.resource_version) {
                    return Ok(());
                }
                if target.owners.is_empty()
                    || target.owners.iter().any(|owner| self.protects(&owner.coordinates.uid))
                {
                    return broken("safety", format!("{} is deleted", key.name));
                }
            }
            Request::SetOwners { key, uid, resource_version, remaining } => {
                let Some(target) = self.model.get(key).filter(|target| target.uid == *uid) else {
                    return Ok(());
                };
                if *resource_version != target.resource_version {
                    return Ok(());
                }
                for owner in &target.owners {
                    let kept = remaining.iter().any(|kept| kept.coordinates == owner.coordinates);
                    let orphans = self
                        .model
                        .by_uid(&owner.coordinates.uid)
                        .is_some_and(|owner| owner.deletion.deleting && owner.deletion.orphan);
                    if !kept && !orphans && self.protects(&owner.coordinates.uid) {
                        return broken("safety", format!("{} loses an owner", key.name));
                    }
                }
            }
            Request::RemoveFinalizer { key, uid, finalizer } => {
                // Everything here existed before the deletion, so nothing may be left to do.
                let others = self.model.objects().filter(|other| other.uid != *uid);
                let mut unfinished = others.filter(|other| {
                    other.owners.iter().any(|owner| {
                        owner.coordinates.uid == *uid
                            && (*finalizer == FinalizerName::Orphan
                                || owner.block_owner_deletion == Some(true))
                    })
                });
                if let Some(other) = unfinished.next() {
                    return broken(
                        "finalizers",
                        format!("{} loses {finalizer} before {}", key.name, other.key.name),
                    );
                }
            }
            Request::Read { .. }
            | Request::Barrier { .. }
            | Request::RecordEvent(_)
            | Request::Guarded { .. }
            | Request::Outside { .. } => {}
        }
        Ok(())
    }

    /// Takes the next turn of the single order in which worlds come to rest. Returns false if there is none.
    fn go_on(&mut self) -> Result<bool, Violation> {
        let waiting = self.pipes.iter().find(|(_, pipe)| !pipe.is_empty()).map(|(id, _)| *id);
        let turn = if let Some(id) = waiting {
            Turn::Deliver(id)
        } else if let Some(effect) = self.engine.poll_effect() {
            self.requests.push(effect);
            return Ok(true);
        } else if !self.requests.is_empty() {
            Turn::Serve(0)
        } else if !self.answers.is_empty() {
            Turn::Answer(0)
        } else {
            return Ok(false);
        };
        self.take(turn)?;
        Ok(true)
    }

    fn rest(&mut self) -> Result<(), Violation> {
        for _ in 0..REST_STEPS {
            if self.go_on()? {
                continue;
            }
            match self.engine.next_wakeup() {
                Some(due) if due.0 <= REST_MILLISECONDS => {
                    self.now = self.now.max(due.0);
                    self.engine.handle(Event::Tick(Timestamp(self.now)));
                }
                _ => return Ok(()),
            }
        }
        Err(Violation { oracle: "liveness", message: "no rest".to_owned() })
    }

    /// Reports whether an object in foreground deletion waits for a blocking object that is held, or that waits itself.
    fn waits_for_held(&self, world: &SmallWorld, index: usize, seen: &mut BTreeSet<usize>) -> bool {
        let is_foreground = self.model.by_uid(&uid(index)).is_some_and(|left| left.deletion.foreground);
        if !world.blocks || !is_foreground || !seen.insert(index) {
            return false;
        }
        (0..world.objects).any(|dependent| {
            dependent != index
                && world.owners(dependent).contains(&index)
                && self.model.by_uid(&uid(dependent)).is_some()
                && (world.held == Some(dependent) || self.waits_for_held(world, dependent, seen))
        })
    }

    /// Compares the remaining objects with those that a computation over the graph predicts, without running anything.
    fn judge_rest(&self, world: &SmallWorld) -> Result<(), Violation> {
        let mut doomed = BTreeSet::from([world.root]);
        while world.policy != PropagationPolicy::Orphan
            && let Some(next) = (0..world.objects).find(|&index| {
                let owners = world.owners(index);
                !doomed.contains(&index)
                    && !owners.is_empty()
                    && owners.iter().all(|owner| doomed.contains(owner))
            })
        {
            doomed.insert(next);
        }
        let held = |index: usize| world.held == Some(index);
        for index in 0..world.objects {
            let present = self.model.by_uid(&uid(index));
            let fate = (
                doomed.contains(&index),
                present.is_some(),
                present.is_some_and(|left| left.deletion.deleting),
            );
            let right = match fate {
                (false, present, deleting) => present && !deleting,
                (true, false, _) => !held(index),
                (true, true, true) => held(index) || self.waits_for_held(world, index, &mut BTreeSet::new()),
                // An object that is marked and held, and does not wait for its dependents, still owns them.
                (true, true, false) => {
                    world.owners(index).iter().any(|&owner| owner != index && self.protects(&uid(owner)))
                }
            };
            if !right {
                let message = format!("o{index}: doomed, present, deleting: {fate:?}");
                return Err(Violation { oracle: "liveness", message });
            }
        }
        let broken = self.engine.verify();
        match broken.first() {
            Some(first) => Err(Violation { oracle: "invariants", message: first.clone() }),
            None => Ok(()),
        }
    }
}

/// Worlds to visit, and the depth of the orders.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of objects in each world; four at most.
    pub objects: usize,
    /// Number of turns whose every order is followed; after that, each world comes to rest in one fixed order.
    pub depth: usize,
    /// True if objects that refer to themselves are included.
    pub loops: bool,
    /// Step through the graphs: one in this many is visited (1 for all of them) …
    pub stride: u32,
    /// … beginning with this one.
    pub first: u32,
}

impl Plan {
    fn has(&self, shape: u32) -> bool {
        self.loops || (0..self.objects).all(|index| shape >> (index * self.objects + index) & 1 == 0)
    }
}

/// Visits every world of a plan.
#[must_use]
pub fn explore(plan: Plan) -> Census {
    let mut census = Census::default();
    let objects = plan.objects.min(4);
    let policies = [PropagationPolicy::Background, PropagationPolicy::Foreground, PropagationPolicy::Orphan];
    let shapes = (plan.first..1_u32 << (objects * objects)).step_by(plan.stride.max(1) as usize);
    for shape in shapes.filter(|&shape| plan.has(shape)) {
        for blocks in [false, true] {
            for held in std::iter::once(None).chain((0..objects).map(Some)) {
                for root in 0..objects {
                    for policy in policies {
                        let world = SmallWorld { objects, shape, blocks, held, root, policy };
                        census.worlds += 1;
                        let mut path = Vec::new();
                        if let Err(violation) =
                            visit(&world, world.begin(), plan.depth, &mut path, &mut census)
                        {
                            census.violations.push((format!("{world:?} {path:?}"), violation));
                        }
                        if census.violations.len() >= VIOLATIONS {
                            return census;
                        }
                    }
                }
            }
        }
    }
    census
}

fn visit(
    world: &SmallWorld,
    mut state: State,
    depth: usize,
    path: &mut Vec<Turn>,
    census: &mut Census,
) -> Result<(), Violation> {
    census.states += 1;
    let turns = if depth == 0 { Vec::new() } else { state.turns() };
    if turns.is_empty() {
        census.rests += 1;
        state.rest()?;
        return state.judge_rest(world);
    }
    for turn in turns {
        let mut next = state.clone();
        path.push(turn);
        next.take(turn)?;
        visit(world, next, depth - 1, path, census)?;
        path.pop();
    }
    Ok(())
}
