//! Engines that share the objects of a server: together they decide what one engine decides, each only about its own objects, also
//! while their number changes.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs, reason = "tests may panic")]

mod support;

use std::collections::{BTreeMap, VecDeque};

use gc_ownership::model::Model;
use gc_ownership::{Config, Engine, Shard};
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{
    DeletionState, Effect, Event, ObjectKey, OwnerReference, PropagationPolicy, Request, ResourceId,
    Timestamp,
};
use support::{Choices, KINDS, confirms, info, key, object, owner, show, show_request};

/// Longest time that is simulated after a change, milliseconds.
const LONG: i64 = 1_000_000;

/// One shard with what is on its way to it and from it.
struct Member {
    shard: Shard,
    engine: Engine,
    pipes: BTreeMap<ResourceId, VecDeque<Event>>,
    requests: Vec<Effect>,
    answers: Vec<Event>,
}

impl Member {
    /// Starts a shard, which lists everything.
    fn new(shard: Shard, model: &Model, now: i64) -> Self {
        let config = Config { shard, conflicts_before_uid_only: u32::MAX, ..Config::default() };
        let mut engine = Engine::new(config);
        engine.handle(Event::Tick(Timestamp(now)));
        for row in KINDS {
            let info = info(row.0);
            let id = info.id;
            engine.handle(Event::ResourceServed(info));
            engine.handle(Event::ListStarted(id));
            for object in model.list(id, None) {
                engine.handle(Event::Observed(object));
            }
            engine.handle(Event::Synced { resource: id, resource_version: model.version() });
        }
        engine.handle(Event::Discovered);
        Self { shard, engine, pipes: BTreeMap::new(), requests: Vec::new(), answers: Vec::new() }
    }
}

/// A server and the shards that collect on it.
struct Cluster {
    model: Model,
    members: Vec<Member>,
    now: i64,
    /// Requests that changed something or looked for an unknown owner, as `INDEX: request`.
    log: Vec<String>,
}

impl Cluster {
    fn new(count: u32) -> Self {
        let mut cluster = Self { model: Model::new(), members: Vec::new(), now: 1_000, log: Vec::new() };
        cluster.start((0..count).map(|index| Shard::new(index, count).unwrap()));
        cluster
    }

    fn start(&mut self, shards: impl IntoIterator<Item = Shard>) {
        for shard in shards {
            self.members.push(Member::new(shard, &self.model, self.now));
        }
    }

    /// Delivers an event of the server to every shard, each in its own time.
    fn emit(&mut self, event: &Event) {
        let (Event::Observed(gc_types::ObservedObject { key, .. }) | Event::Removed { key, .. }) = event
        else {
            panic!("{event:?} is no event of a watch");
        };
        for member in &mut self.members {
            member.pipes.entry(key.resource).or_default().push_back(event.clone());
        }
    }

    fn add(&mut self, text: &str, owners: &[&str]) {
        let event = self.model.put(object(text, owners));
        self.emit(&event);
    }

    fn delete(&mut self, text: &str, policy: PropagationPolicy) {
        let event = self.model.delete(&key(text), Some(policy)).unwrap();
        self.emit(&event);
    }

    fn serve(&mut self, index: usize, effect: &Effect) {
        let shard = self.members[index].shard;
        if let Request::Delete { key, .. }
        | Request::SetOwners { key, .. }
        | Request::RemoveFinalizer { key, .. } = &effect.request
        {
            assert!(shard.holds(&key.namespace), "shard {shard}: {}", show_request(&effect.request));
        }
        if !confirms(effect) && !matches!(effect.request, Request::Barrier { .. }) {
            self.log.push(format!("{}: {}", shard.index(), show_request(&effect.request)));
        }
        let answer = self.model.answer(&effect.request);
        for event in answer.events {
            match event {
                Event::Found(_) => self.members[index].engine.handle(event),
                event => self.emit(&event),
            }
        }
        self.members[index].answers.push(Event::Done(effect.id, answer.outcome));
    }

    /// Lets one thing happen to one shard. Returns false if there was nothing of its kind.
    fn step(&mut self, index: usize, what: usize, choices: &mut Choices) -> bool {
        let member = &mut self.members[index];
        match what {
            0 => {
                let full = member.pipes.iter().filter(|(_, pipe)| !pipe.is_empty());
                let full: Vec<ResourceId> = full.map(|(&id, _)| id).collect();
                if full.is_empty() {
                    return false;
                }
                let id = full[choices.next(full.len())];
                let event = member.pipes.get_mut(&id).and_then(VecDeque::pop_front).unwrap();
                member.engine.handle(event);
            }
            1 => {
                let Some(effect) = member.engine.poll_effect() else { return false };
                member.requests.push(effect);
            }
            2 => {
                if member.requests.is_empty() {
                    return false;
                }
                let effect = member.requests.swap_remove(choices.next(member.requests.len()));
                self.serve(index, &effect);
            }
            _ => {
                if member.answers.is_empty() {
                    return false;
                }
                let answer = member.answers.swap_remove(choices.next(member.answers.len()));
                member.engine.handle(answer);
            }
        }
        true
    }

    /// Lets everything happen, in any order, until nothing is left to do.
    fn settle(&mut self, choices: &mut Choices) {
        let end = self.now + LONG;
        let mut idle = 0;
        for _ in 0..1_000_000 {
            let (index, what) = (choices.next(self.members.len()), choices.next(4));
            idle = if self.step(index, what, choices) { 0 } else { idle + 1 };
            // Long without anything, all are asked in order.
            if idle < self.members.len() * 8 {
                continue;
            }
            let places = (0..self.members.len()).flat_map(|index| (0..4).map(move |what| (index, what)));
            if places.collect::<Vec<_>>().into_iter().any(|(index, what)| self.step(index, what, choices)) {
                continue;
            }
            let wakeups = self.members.iter().filter_map(|member| member.engine.next_wakeup());
            match wakeups.min().filter(|due| due.0 <= end) {
                Some(due) => self.now = self.now.max(due.0),
                None => return,
            }
            for member in &mut self.members {
                member.engine.handle(Event::Tick(Timestamp(self.now)));
                let broken = member.engine.verify();
                assert!(broken.is_empty(), "shard {}: {broken:#?}", member.shard);
            }
        }
        panic!("the shards do not come to rest: {:#?}", self.log);
    }

    fn objects(&self) -> Vec<(ObjectKey, Vec<OwnerReference>, DeletionState)> {
        let objects = self.model.objects();
        objects.map(|object| (object.key.clone(), object.owners.to_vec(), object.deletion)).collect()
    }

    fn shown(&self) -> Vec<String> {
        self.model.objects().map(|object| show(&object.key)).collect()
    }
}

/// What a client does.
enum Act {
    Add(String, Vec<String>),
    Delete(ObjectKey, PropagationPolicy),
    SetOwners(ObjectKey, Vec<String>),
}

fn references(model: &Model, namespace: &str, choices: &mut Choices) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for _ in 0..[0, 1, 1, 1, 2, 3][choices.next(6)] {
        let block = if choices.chance(50) { "!" } else { "" };
        let targets: Vec<_> = model
            .objects()
            .filter(|target| target.key.namespace.is_empty() || *target.key.namespace == *namespace)
            .collect();
        let text = match choices.next(12) {
            0 => format!("Node/ghost{}{block}", choices.next(3)),
            1 => format!("example.com/v1:Gadget/g{block}"),
            _ if !targets.is_empty() => {
                let target = targets[choices.next(targets.len())];
                format!("{}/{}{block}", KINDS[target.key.resource.0 as usize].0, target.key.name)
            }
            _ => continue,
        };
        if !texts.iter().any(|known| known.trim_end_matches('!') == text.trim_end_matches('!')) {
            texts.push(text);
        }
    }
    texts
}

fn act(model: &Model, number: usize, choices: &mut Choices) -> Act {
    let keys: Vec<ObjectKey> = model.objects().map(|object| object.key.clone()).collect();
    match choices.next(10) {
        5..9 if !keys.is_empty() => {
            let policy = [Background, Foreground, Orphan][choices.next(3)];
            // Most deletions are of owners that have dependents everywhere.
            let wide: Vec<&ObjectKey> = keys.iter().filter(|key| key.namespace.is_empty()).collect();
            let target = if wide.is_empty() || choices.chance(40) {
                keys[choices.next(keys.len())].clone()
            } else {
                wide[choices.next(wide.len())].clone()
            };
            Act::Delete(target, policy)
        }
        9 if !keys.is_empty() => {
            let key = keys[choices.next(keys.len())].clone();
            let owners = references(model, &key.namespace, choices);
            Act::SetOwners(key, owners)
        }
        _ => {
            let kind = ["ConfigMap", "Secret", "Pod", "Node", "PersistentVolume"][choices.next(5)];
            let namespace = match kind {
                "Node" | "PersistentVolume" => "",
                _ => ["a", "b", "m", "n"][choices.next(4)],
            };
            let owners = references(model, namespace, choices);
            let at = if namespace.is_empty() { String::new() } else { format!("@{namespace}") };
            Act::Add(format!("{kind}/{}{number}{at}", kind.to_lowercase()), owners)
        }
    }
}

fn perform(cluster: &mut Cluster, act: &Act) {
    let texts = |owners: &[String]| owners.iter().map(|text| owner(text)).collect::<Vec<_>>();
    let event = match act {
        Act::Add(text, owners) => {
            let mut new = object(text, &[]);
            new.owners = texts(owners).into();
            Some(cluster.model.put(new))
        }
        Act::Delete(key, policy) => cluster.model.delete(key, Some(*policy)),
        Act::SetOwners(key, owners) => cluster.model.set_owners(key, texts(owners)),
    };
    if let Some(event) = event {
        cluster.emit(&event);
    }
}

/// Runs the same story on a cluster with one collector and on one whose shards come and go.
fn run(seed: u64) {
    let mut choices = Choices(seed);
    let (mut one, mut many) = (Cluster::new(1), Cluster::new(1 + choices.next(4) as u32));
    for number in 0..40 {
        // One change at a time: what two that race lead to depends on which of them a collector sees first.
        let act = act(&one.model, number, &mut choices);
        perform(&mut one, &act);
        perform(&mut many, &act);
        one.settle(&mut choices);
        if choices.chance(30) {
            // Shards of another number start while the former ones still work; then these end, whatever they had asked.
            let former = many.members.len();
            let count = 1 + choices.next(5) as u32;
            let begun = choices.next(60);
            for _ in 0..begun {
                let (index, what) = (choices.next(former), choices.next(4));
                many.step(index, what, &mut choices);
            }
            many.start((0..count).map(|index| Shard::new(index, count).unwrap()));
            for _ in 0..choices.next(60) {
                let (index, what) = (choices.next(many.members.len()), choices.next(4));
                many.step(index, what, &mut choices);
            }
            many.members.drain(..former);
        }
        many.settle(&mut choices);
        assert_eq!(many.objects(), one.objects(), "seed {seed}: {:#?}", many.log);
    }
    for member in &many.members {
        assert_eq!(member.engine.stats().objects, many.model.objects().count(), "seed {seed}");
    }
}

#[test]
fn shards_that_come_and_go_decide_what_one_decides() {
    for seed in 0..300 {
        run(seed);
    }
}

/// In a world of two shards, `n` belongs to shard 0 and `a` to shard 1.
struct Case {
    name: &'static str,
    run: fn(&mut Cluster),
    log: &'static [&'static str],
    left: &'static [&'static str],
}

/// Starts with an owner in the cluster scope and dependents in both namespaces.
fn node_with_pods(cluster: &mut Cluster) {
    cluster.add("Node/x", &[]);
    cluster.add("Pod/p@n", &["Node/x!"]);
    cluster.add("Pod/q@a", &["Node/x!"]);
    cluster.settle(&mut Choices(1));
}

const CASES: &[Case] = &[
    Case {
        name: "each shard deletes the garbage of its namespaces",
        run: |cluster| {
            cluster.add("Pod/p@n", &["ConfigMap/gone"]);
            cluster.add("Pod/q@a", &["ConfigMap/lost"]);
        },
        log: &[
            "0: delete Pod/p@n Background",
            "0: read ConfigMap/gone@n",
            "1: delete Pod/q@a Background",
            "1: read ConfigMap/lost@a",
        ],
        left: &[],
    },
    Case {
        name: "dependents of an owner in the cluster scope are deleted by their own shards",
        run: |cluster| {
            node_with_pods(cluster);
            cluster.delete("Node/x", Background);
        },
        log: &["0: delete Pod/p@n Background", "1: delete Pod/q@a Background"],
        left: &[],
    },
    Case {
        name: "shard 0 ends a foreground deletion once the dependents of the other shard are gone",
        run: |cluster| {
            node_with_pods(cluster);
            cluster.delete("Node/x", Foreground);
        },
        log: &[
            "0: delete Pod/p@n Background",
            "0: unfinalize Node/x foregroundDeletion",
            "1: delete Pod/q@a Background",
        ],
        left: &[],
    },
    Case {
        name: "each shard orphans its dependents, and reads those of the other before the owner goes",
        run: |cluster| {
            node_with_pods(cluster);
            cluster.delete("Node/x", Orphan);
        },
        log: &[
            "0: owners Pod/p@n []",
            "0: read Pod/q@a",
            "0: unfinalize Node/x orphan",
            "1: owners Pod/q@a []",
            "1: read Pod/p@n",
        ],
        left: &["Pod/q@a", "Pod/p@n"],
    },
    Case {
        name: "objects of a shard that is not there wait for it, and so does the owner",
        run: |cluster| {
            node_with_pods(cluster);
            cluster.members.pop();
            cluster.delete("Node/x", Foreground);
            cluster.add("Pod/garbage@a", &["ConfigMap/gone"]);
            cluster.settle(&mut Choices(2));
            assert_eq!(cluster.shown(), ["Pod/garbage@a", "Pod/q@a", "Node/x"]);
            cluster.log.push("-- shard 1 is back".to_owned());
            cluster.start([Shard::new(1, 2).unwrap()]);
        },
        log: &[
            "-- shard 1 is back",
            "0: delete Pod/p@n Background",
            "0: unfinalize Node/x foregroundDeletion",
            "1: delete Pod/garbage@a Background",
            "1: delete Pod/q@a Background",
            "1: read ConfigMap/gone@a",
        ],
        left: &[],
    },
];

#[test]
fn each_shard_acts_on_its_objects_only() {
    for case in CASES {
        let mut cluster = Cluster::new(2);
        (case.run)(&mut cluster);
        cluster.settle(&mut Choices(3));
        // Shards work at the same time, so the order between them says nothing.
        cluster.log.sort();
        assert_eq!(cluster.log, case.log, "{}", case.name);
        assert_eq!(cluster.shown(), case.left, "{}", case.name);
    }
}
