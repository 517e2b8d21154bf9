//! More of the scenario catalogue (spec section 14): the bookkeeping of the graph, guessed coordinates, and cascades
//! that upstream tests end to end. `(A)` marks those where upstream fails or is silent.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::model::Model;
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{EffectId, Event, Outcome, ResourceVersion, Uid};
use support::{Bench, LONG, Meanwhile, Scenario, info, key, log_graph, object, owner, resource, run_all};

/// Makes a change just before a request is answered.
fn before(bench: &mut Bench, request: &str, change: impl FnMut(&mut Model) -> Vec<Event> + 'static) {
    let change: Meanwhile = Box::new(change);
    bench.before.entry(request.to_owned()).or_default().push_back(change);
}

/// Creates an object that no watch has delivered yet.
fn unseen(bench: &mut Bench, text: &str, uid: &str) -> Event {
    let mut late = object(text, &[]);
    late.uid = Uid::new(uid);
    bench.model.put(late)
}

#[rustfmt::skip]
const SCENARIOS: &[Scenario] = &[
    // ---- 14.1 graph bookkeeping ----
    Scenario {
        name: "G01 G02 references are linked as objects arrive; removing one gives its dependents a turn",
        run: |bench| {
            bench.add("Secret/1@n", &[]);
            log_graph(bench);
            bench.add("Secret/2@n", &["Secret/1"]);
            log_graph(bench);
            bench.add("Secret/3@n", &["Secret/1", "Secret/2"]).add("Secret/4@n", &["Secret/2"]);
            log_graph(bench);
            bench.delete("Secret/2@n", Background);
            log_graph(bench);
            bench.run_for(LONG);
            log_graph(bench);
        },
        log: &[
            "graph  | ",
            "graph 1 2 | 2>1",
            "graph 1 2 3 4 | 2>1 3>1 3>2 4>2",
            "graph 1 2+ 3 4 | 3>1 3>2 4>2",
            "delete Secret/4@n Background", "owners Secret/3@n [1]",
            "graph 1 3 | 3>1",
        ],
        world: &["Secret/1@n", "Secret/3@n[1]"],
    },
    Scenario {
        name: "G03 a reference moves, which closes a ring",
        run: |bench| {
            bench.add("Secret/1@n", &[]).add("Secret/2@n", &["Secret/1"]);
            bench.add("Secret/3@n", &["Secret/1", "Secret/2"]).add("Secret/4@n", &["Secret/3"]);
            bench.set_owners("Secret/2@n", &["Secret/4"]);
            log_graph(bench);
            bench.run_for(LONG);
        },
        log: &["graph 1 2 3 4 | 2>4 3>1 3>2 4>3"],
        world: &["Secret/1@n", "Secret/2@n[4]", "Secret/3@n[1,2]", "Secret/4@n[3]"],
    },
    Scenario {
        name: "G04 dependents before owners make the same graph",
        run: |bench| {
            bench.add("Secret/4@n", &["Secret/2"]).add("Secret/3@n", &["Secret/1", "Secret/2"]);
            log_graph(bench);
            bench.add("Secret/2@n", &["Secret/1"]).add("Secret/1@n", &[]);
            log_graph(bench);
            bench.run_for(LONG).delete("Secret/2@n", Background).run_for(LONG);
            log_graph(bench);
        },
        log: &[
            "graph 1? 2? 3 4 | 3>1 3>2 4>2",
            "graph 1 2 3 4 | 2>1 3>1 3>2 4>2",
            "owners Secret/3@n [1]", "delete Secret/4@n Background",
            "graph 1 3 | 3>1",
        ],
        world: &["Secret/1@n", "Secret/3@n[1]"],
    },
    Scenario {
        name: "G05 dependents come and go while their owner orphans them",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p1@n", &["Secret/a"]).add("Pod/p2@n", &["Secret/a"]);
            bench.add("Pod/p3@n", &["Secret/a"]).drain().delete("Secret/a@n", Orphan);
            bench.set_owners("Pod/p2@n", &[]).add("Pod/p4@n", &["Secret/a"]).delete("Pod/p3@n", Background);
            bench.run_for(LONG);
        },
        log: &["read Pod/p3@n", "read Pod/p2@n", "owners Pod/p1@n []", "owners Pod/p4@n []", "unfinalize Secret/a@n orphan"],
        world: &["Pod/p1@n", "Pod/p2@n", "Pod/p4@n"],
    },
    Scenario {
        name: "G06 what concerns nothing that is known changes nothing",
        run: |bench| {
            let version = ResourceVersion(9);
            bench.deliver(Event::Removed { key: key("Secret/x@n"), uid: Uid::new("x"), resource_version: version });
            bench.deliver(Event::Done(EffectId(77), Outcome::Absent));
            bench.run_for(LONG);
            log_graph(bench);
        },
        log: &["graph  | "],
        world: &[],
    },
    Scenario {
        name: "G07 a change of other metadata leads to nothing",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
            let (a, p) = (object("Secret/a@n", &[]), object("Pod/p@n", &["Secret/a"]));
            bench.put(a).put(p);
            log_graph(bench);
            bench.run_for(LONG);
        },
        log: &["graph a p | p>a"],
        world: &["Pod/p@n[a]", "Secret/a@n"],
    },
    Scenario {
        name: "G10 references added, removed and changed",
        run: |bench| {
            for name in ["1", "2", "3"] { bench.add(&format!("Secret/{name}@n"), &[]); }
            bench.add("Pod/p@n", &["Secret/1", "Secret/2"]);
            log_graph(bench);
            bench.set_owners("Pod/p@n", &["Secret/2", "Secret/3"]);
            log_graph(bench);
            bench.set_owners("Pod/p@n", &["Secret/2!", "Secret/3"]);
            log_graph(bench);
            let why = bench.engine.why(&Uid::new("p")).unwrap();
            for (reference, _) in why.references {
                bench.log.push(format!("{} {:?}", reference.coordinates.name, reference.block_owner_deletion));
            }
            bench.run_for(LONG);
        },
        log: &["graph 1 2 p | p>1 p>2", "graph 2 3 p | p>2 p>3", "graph 2 3 p | p>2 p>3", "2 Some(true)", "3 None"],
        world: &["Pod/p@n[2,3]", "Secret/1@n", "Secret/2@n", "Secret/3@n"],
    },
    // ---- 14.2 to 14.4 collection ----
    Scenario {
        name: "G16 what lost its references before its turn is left alone",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
            bench.delete("Secret/a@n", Background).set_owners("Pod/p@n", &[]).run_for(LONG);
        },
        log: &[],
        world: &["Pod/p@n"],
    },
    Scenario {
        name: "G18 G37 a conflict on what is gone: it is read as absent, and its dependents are next",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).add("Pod/p@n", &["ConfigMap/d"]).drain();
            bench.lag("ConfigMap");
            bench.script("delete ConfigMap/d@n Background", &[Outcome::Conflict]);
            before(bench, "read ConfigMap/d@n", |model| { model.force_remove(&key("ConfigMap/d@n")); Vec::new() });
            bench.delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &["delete ConfigMap/d@n Background", "read ConfigMap/d@n", "delete Pod/p@n Background"],
        world: &[],
    },
    Scenario {
        name: "G21 a DELETE for a waiting owner answered 404 ends it, and frees the owner",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a!"]).drain();
            bench.lag("Pod");
            bench.model.force_remove(&key("Pod/p@n"));
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
        },
        log: &["delete Pod/p@n Background", "unfinalize Secret/a@n foregroundDeletion"],
        world: &[],
    },
    Scenario {
        name: "G33 an owner seen to go with dependents is known to be absent also to later ones",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).delete("Secret/a@n", Background);
            bench.run_for(LONG).add("Pod/q@n", &["Secret/a"]).run_for(LONG);
        },
        log: &["delete Pod/p@n Background", "delete Pod/q@n Background"],
        world: &[],
    },
    Scenario {
        name: "G33 an owner seen to go without dependents is not remembered",
        run: |bench| {
            bench.add("Secret/a@n", &[]).delete("Secret/a@n", Background);
            bench.run_for(LONG).add("Pod/q@n", &["Secret/a"]).run_for(LONG);
        },
        log: &["read Secret/a@n", "delete Pod/q@n Background"],
        world: &[],
    },
    Scenario {
        name: "G41 the last of several dangling references is removed with the rest in one write",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).add("Pod/p@n", &["Secret/a", "Secret/b"]).drain();
            bench.delete("Secret/a@n", Orphan).delete("Secret/b@n", Orphan).run_for(LONG);
        },
        log: &["owners Pod/p@n []", "unfinalize Secret/a@n orphan", "unfinalize Secret/b@n orphan"],
        world: &["Pod/p@n"],
    },
    Scenario {
        name: "G42 an outdated view conflicts and no reference is lost",
        run: |bench| {
            for name in ["a", "b", "c"] { bench.add(&format!("Secret/{name}@n"), &[]); }
            bench.add("Pod/p@n", &["Secret/a", "Secret/b"]).drain().lag("Pod");
            before(bench, "owners Pod/p@n [b]", |model| {
                let owners = ["Secret/a", "Secret/b", "Secret/c"].map(owner).to_vec();
                model.set_owners(&key("Pod/p@n"), owners).into_iter().collect()
            });
            bench.delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &["owners Pod/p@n [b]", "read Pod/p@n", "owners Pod/p@n [b,c]"],
        world: &["Pod/p@n[b,c]", "Secret/b@n", "Secret/c@n"],
    },
    Scenario {
        name: "G44 (A) a reference removed by others is not added again when a cycle is broken",
        run: |bench| {
            bench.add_held("Pod/a@n", &["Pod/b!"]).add_held("Pod/b@n", &["Pod/a!"]).drain().lag("Pod");
            before(bench, "owners Pod/a@n [b]", |model| {
                model.set_owners(&key("Pod/a@n"), Vec::new()).into_iter().collect()
            });
            for name in ["Pod/a@n", "Pod/b@n"] {
                let event = bench.model.delete(&key(name), Some(Foreground)).unwrap();
                bench.engine.handle(event);
            }
            bench.run_for(LONG).catch_up("Pod");
            bench.run_for(LONG);
        },
        log: &[
            "owners Pod/a@n [b]", "owners Pod/b@n [a]", "read Pod/a@n", "unfinalize Pod/b@n foregroundDeletion",
            "unfinalize Pod/a@n foregroundDeletion",
        ],
        world: &["-Pod/a@n", "-Pod/b@n[a]"],
    },
    // ---- 14.5 coordinates ----
    Scenario {
        name: "G53 the real parent arrives while the wrong place is being read",
        run: |bench| {
            bench.add("Pod/bad@n", &["Secret/d"]).add("Pod/good@n", &["Deployment/d"]);
            before(bench, "read Secret/d@n", |model| vec![model.put(object("Deployment/d@n", &[]))]);
            bench.run_for(LONG);
        },
        log: &[
            "read Secret/d@n", "delete Pod/bad@n Background",
            "note Pod/bad@n OwnerRefInvalidCoordinates: ownerRef [v1/Secret, namespace: n, name: d, \
             uid: d] does not lead to the object with that uid, which is apps/v1/Deployment, namespace: n, name: d",
        ],
        world: &["Pod/good@n[d]", "Deployment/d@n"],
    },
    Scenario {
        name: "G54 the good child first",
        run: |bench| {
            let late = unseen(bench, "Deployment/d@n", "d");
            bench.add("Pod/good@n", &["Deployment/d"]).add("Pod/bad@n", &["Secret/d"]).run_for(90);
            bench.deliver(late);
            bench.run_for(LONG);
        },
        log: &["read Secret/d@n", "delete Pod/bad@n Background", "read Deployment/d@n"],
        world: &["Pod/good@n[d]", "Deployment/d@n"],
    },
    Scenario {
        name: "G55 every place at which a missing owner is claimed to be is read once",
        run: |bench| {
            bench.add("Pod/first@n", &["Deployment/d"]).add("Pod/version@n", &["apps/v1beta1:Deployment/d"]);
            bench.add("Pod/kind@n", &["Secret/d"]).add("Pod/name@n", &["Deployment/e=d"]);
            bench.add("Pod/namespace@m", &["Deployment/d"]).add("Node/scope", &["Node/d"]);
            bench.add("Pod/again@n", &["Deployment/d"]).run_for(LONG);
            bench.log.sort();
        },
        log: &[
            "delete Node/scope Background", "delete Pod/again@n Background", "delete Pod/first@n Background",
            "delete Pod/kind@n Background", "delete Pod/name@n Background", "delete Pod/namespace@m Background",
            "delete Pod/version@n Background", "read Deployment/d@m", "read Deployment/d@n", "read Deployment/e@n",
            "read Node/d", "read Secret/d@n",
        ],
        world: &[],
    },
    Scenario {
        name: "G56 the one right place among five is found",
        run: |bench| {
            unseen(bench, "Secret/v4@n", "u");
            for name in ["v1", "v2", "v3", "v4", "v5"] {
                bench.add(&format!("Pod/p-{name}@n"), &[&format!("Secret/{name}=u")]);
            }
            bench.run_for(60);
            bench.log.sort();
        },
        log: &[
            "delete Pod/p-v1@n Background", "delete Pod/p-v2@n Background", "delete Pod/p-v3@n Background",
            "delete Pod/p-v5@n Background", "read Secret/v1@n", "read Secret/v2@n", "read Secret/v3@n",
            "read Secret/v4@n", "read Secret/v5@n",
        ],
        world: &["Pod/p-v4@n[v4]", "Secret/v4@n"],
    },
    Scenario {
        name: "G57 issue 56121: an owner that came and went unseen is polled until it is gone",
        run: |bench| {
            unseen(bench, "Secret/a@n", "a");
            bench.add("Pod/p@n", &["Secret/a"]).run_for(300);
            bench.model.force_remove(&key("Secret/a@n"));
            bench.run_for(LONG);
            log_graph(bench);
        },
        log: &["read Secret/a@n", "read Secret/a@n", "read Secret/a@n", "delete Pod/p@n Background", "graph  | "],
        world: &[],
    },
    Scenario {
        name: "G58 an owner without dependents is not looked up",
        run: |bench| {
            bench.add("Pod/p@n", &["Secret/gone"]).drain().delete("Pod/p@n", Background).run_for(LONG);
            log_graph(bench);
        },
        log: &["graph  | "],
        world: &[],
    },
    // ---- 14.6 namespaces and scope ----
    Scenario {
        name: "G67 an owner in another namespace that was seen first is none either",
        run: |bench| { bench.add("Pod/p2@ns2", &[]).add("Pod/p1@ns1", &["Pod/p2"]).run_for(LONG); },
        log: &[
            "note Pod/p1@ns1 OwnerRefInvalidNamespace: ownerRef [v1/Pod, namespace: ns1, name: p2, uid: p2] does not \
             exist in namespace \"ns1\"",
            "read Pod/p2@ns1", "delete Pod/p1@ns1 Background",
        ],
        world: &["Pod/p2@ns2"],
    },
    Scenario {
        name: "G71 issue 98040: the good child's owner exists and is seen late",
        run: |bench| {
            let late = unseen(bench, "Pod/p1@ns1", "p1");
            bench.add("Node/n", &["Pod/p1"]).add("Pod/p2@ns1", &["Pod/p1"]).run_for(90);
            bench.deliver(late);
            bench.run_for(LONG);
        },
        log: &[
            "read Pod/p1@ns1",
            "note Node/n OwnerRefInvalidNamespace: ownerRef [v1/Pod, namespace: , name: p1, uid: p1] does not exist \
             in namespace \"\"",
        ],
        world: &["Pod/p1@ns1", "Pod/p2@ns1[p1]", "Node/n[p1]"],
    },
    Scenario {
        name: "G72 issue 98040: the good child first, its owner missing; (A) the rest is deleted with the bad child",
        run: |bench| {
            bench.add("Pod/p2@ns1", &["Pod/p1"]).add("Node/n", &["Pod/p1"]).run_for(LONG);
            log_graph(bench);
            bench.delete("Node/n", Background).run_for(LONG);
            log_graph(bench);
        },
        log: &["read Pod/p1@ns1", "delete Pod/p2@ns1 Background", "graph n p1? | n>p1", "graph  | "],
        world: &[],
    },
    Scenario {
        name: "G74 cluster-scoped owners: there, missing, of unknown kind",
        run: |bench| {
            unseen(bench, "PersistentVolume/there", "there");
            bench.add("ConfigMap/a@n", &["PersistentVolume/there"]).add("ConfigMap/b@n", &["PersistentVolume/gone"]);
            bench.add("ConfigMap/c@n", &["example.com/v1:Gadget/g"]).run_for(90);
        },
        log: &["read PersistentVolume/there", "read PersistentVolume/gone", "delete ConfigMap/b@n Background"],
        world: &["ConfigMap/a@n[there]", "ConfigMap/c@n[g]", "PersistentVolume/there"],
    },
    Scenario {
        // cluster-collectors.md, 11 and 19: leases of nodes and slices of services have no other collector.
        name: "NL-T08 NL-T09 NL-T10 EPS-T01 EPS-T04 what a node owns is deleted with it, also when another has its name by then",
        run: |bench| {
            bench.add("Node/n", &[]).add("ConfigMap/lease@leases", &["Node/n"]).add("ConfigMap/free@leases", &[]);
            bench.drain();
            let mut again = object("Node/n", &[]);
            again.uid = Uid::new("n2");
            bench.delete("Node/n", Background).put(again).run_for(LONG);
            bench.add("ConfigMap/new@leases", &["Node/n=n2"]).run_for(LONG);
        },
        log: &["delete ConfigMap/lease@leases Background"],
        world: &["ConfigMap/free@leases", "ConfigMap/new@leases[n]", "Node/n"],
    },
    // ---- 14.7, 14.8 foreground and cycles ----
    Scenario {
        name: "G85 an owner first seen waiting is finished, after its dependents",
        run: |bench| {
            let mut waiting = object("Secret/a@n", &[]);
            (waiting.deletion.deleting, waiting.deletion.foreground) = (true, true);
            bench.add("Pod/p@n", &["Secret/a!"]).put(waiting).run_for(LONG);
        },
        log: &["delete Pod/p@n Background", "unfinalize Secret/a@n foregroundDeletion"],
        world: &[],
    },
    Scenario {
        name: "G91 a waiting owner whose place is empty or another's is gone",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
            bench.script("delete Pod/p@n Background", &[Outcome::Absent]);
            bench.script("unfinalize Secret/a@n foregroundDeletion", &[Outcome::Absent]);
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
            log_graph(bench);
        },
        log: &["delete Pod/p@n Background", "unfinalize Secret/a@n foregroundDeletion", "graph  | "],
        world: &["Pod/p@n[a]", "-Secret/a@n"],
    },
    Scenario {
        name: "G95 (A) what is past its foreground deletion and held by others is no part of a ring",
        run: |bench| {
            bench.add_held("Secret/a@n", &[]).add_held("ConfigMap/b@n", &["Secret/a!"]);
            bench.add("Pod/c@n", &["ConfigMap/b!"]).drain();
            bench.delete("ConfigMap/b@n", Foreground).run_for(LONG);
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
            bench.log.push(bench.world().join(" "));
            bench.release("ConfigMap/b@n").run_for(LONG);
        },
        log: &[
            "delete Pod/c@n Background", "unfinalize ConfigMap/b@n foregroundDeletion", "-ConfigMap/b@n[a] -Secret/a@n",
            "unfinalize Secret/a@n foregroundDeletion",
        ],
        world: &["-Secret/a@n"],
    },
    Scenario {
        name: "G97 a cycle of three is deleted",
        run: |bench| {
            bench.add("Pod/a@n", &["Pod/c!"]).add("Pod/b@n", &["Pod/a!"]).add("Pod/c@n", &["Pod/b!"]).drain();
            bench.delete("Pod/a@n", Foreground).run_for(LONG);
        },
        log: &[
            "delete Pod/b@n Foreground", "delete Pod/c@n Foreground", "owners Pod/c@n [b]",
            "unfinalize Pod/b@n foregroundDeletion", "unfinalize Pod/a@n foregroundDeletion",
            "unfinalize Pod/c@n foregroundDeletion",
        ],
        world: &[],
    },
    // ---- 14.9 orphaning ----
    Scenario {
        name: "G103 G106 orphans keep their own dependents",
        run: |bench| {
            bench.add("Deployment/d@n", &[]).add("ReplicationController/r@n", &["Deployment/d!"]);
            bench.add("Pod/p@n", &["ReplicationController/r!"]).add("Pod/q@n", &["ReplicationController/r!"]).drain();
            bench.delete("Deployment/d@n", Orphan).run_for(LONG);
        },
        log: &["owners ReplicationController/r@n []", "unfinalize Deployment/d@n orphan"],
        world: &["Pod/p@n[r]", "Pod/q@n[r]", "ReplicationController/r@n"],
    },
    Scenario {
        name: "G107 at cluster scope as well",
        run: |bench| {
            bench.add("Node/a", &[]).add("PersistentVolume/v@", &["Node/a"]).drain().delete("Node/a", Orphan);
            bench.run_for(LONG);
        },
        log: &["owners PersistentVolume/v []", "unfinalize Node/a orphan"],
        world: &["PersistentVolume/v"],
    },
    Scenario {
        name: "G110 an owner without dependents only loses its finalizer",
        run: |bench| { bench.add("Secret/a@n", &[]).drain().delete("Secret/a@n", Orphan).run_for(LONG); },
        log: &["unfinalize Secret/a@n orphan"],
        world: &[],
    },
    Scenario {
        name: "G111 the watch of the freed dependent comes after the removal of its owner",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain().lag("Pod");
            bench.delete("Secret/a@n", Orphan).run_for(LONG);
            bench.catch_up("Pod");
            bench.run_for(LONG);
            log_graph(bench);
        },
        log: &["owners Pod/p@n []", "unfinalize Secret/a@n orphan", "graph  | "],
        world: &["Pod/p@n"],
    },
    // ---- 14.11 custom resources ----
    Scenario {
        name: "G135 cascades pass from core to custom objects and back",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Deployment/d@n", &["Secret/a"]).add("ConfigMap/c@n", &["Deployment/d"]);
            bench.drain().delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &["delete Deployment/d@n Background", "delete ConfigMap/c@n Background"],
        world: &[],
    },
];

#[test]
fn every_scenario_asks_and_ends_as_the_catalogue_says() {
    run_all(SCENARIOS);
}

#[test]
fn g62_objects_move_to_the_version_that_is_served_now() {
    let mut bench = Bench::new();
    bench.add("ConfigMap/a@n", &[]).add("Pod/p@n", &["ConfigMap/a"]).drain();
    // The same objects are served through another resource from now on.
    bench.deliver(Event::ResourceGone(resource("ConfigMap")));
    let moved = bench.model.put(object("Secret/a@n", &[]));
    bench.model.force_remove(&key("ConfigMap/a@n"));
    bench.deliver(moved);
    bench.set_owners("Pod/p@n", &["Secret/a"]).run_for(LONG);
    bench.delete("Secret/a@n", Foreground).run_for(LONG);
    assert_eq!(bench.log, ["delete Pod/p@n Background", "unfinalize Secret/a@n foregroundDeletion"]);
    assert_eq!(bench.world(), Vec::<String>::new());
}

#[test]
fn g73_wrong_references_never_take_the_right_dependents_along() {
    let mut bench = Bench::new();
    bench.add("ConfigMap/parent@b", &[]);
    for index in 0..10 {
        bench.add(&format!("Pod/valid{index}@b"), &["ConfigMap/parent"]);
        let mut odd: Vec<String> =
            (0..25).map(|number| format!("example.com/v{number}:Gadget/g{number}")).collect();
        odd.push("Secret/parent".to_owned());
        let odd: Vec<&str> = odd.iter().map(String::as_str).collect();
        bench.add(&format!("Pod/odd{index}@a"), &odd);
    }
    for index in 0..5 {
        bench.add(&format!("Secret/wrong{index}@a"), &["Secret/parent"]);
    }
    bench.run_for(10_000).add("Secret/later@a", &["Secret/parent"]).run_for(10_000);
    let count = |kind: &str| bench.model.objects().filter(|object| object.key.name.starts_with(kind)).count();
    assert_eq!(
        ["valid", "odd", "wrong", "later", "parent"].map(count),
        [10, 10, 0, 0, 1],
        "{:#?}",
        bench.world()
    );
}

#[test]
fn g133_g137_a_type_that_goes_and_comes_again_works_every_time_and_is_told_once() {
    let mut bench = Bench::new();
    bench.run_for(LONG);
    for round in 0..10 {
        bench.add("Deployment/d@n", &[]).add("ConfigMap/c@n", &["Deployment/d"]).drain();
        // The server deletes the objects of a type with the type.
        bench.delete("Deployment/d@n", Background);
        bench.deliver(Event::ResourceGone(resource("Deployment")));
        // Nothing watches definitions here, and discovery may have left the type out.
        bench.run_for(299_000);
        assert_eq!(bench.take_log(), Vec::<String>::new(), "round {round}");
        bench.run_for(1_000);
        assert_eq!(bench.take_log(), ["delete ConfigMap/c@n Background"], "round {round}");
        assert_eq!(bench.world(), Vec::<String>::new(), "round {round}");
        bench.deliver(Event::ResourceServed(info("Deployment")));
        bench.sync("Deployment");
        assert_eq!(bench.engine.next_wakeup(), None, "round {round}");
    }
}

#[test]
fn an_owner_that_is_not_watched_is_polled_at_one_pace_however_its_dependents_come_and_go() {
    let mut bench = Bench::new();
    unseen(&mut bench, "Secret/a@n", "a");
    for round in 0..50 {
        let name = format!("Pod/p{round}@n");
        bench.add(&name, &["Secret/a"]).run_for(1_000).delete(&name, Background).run_for(10);
    }
    assert_eq!(bench.engine.next_wakeup(), None, "no live read is left behind");
    bench.add("Pod/last@n", &["Secret/a"]).run_for(3_600_000);
    bench.take_log();
    bench.run_for(3_600_000);
    assert_eq!(bench.take_log().len(), 30, "one live read in two minutes");
}

#[test]
fn an_item_that_changes_while_it_is_refused_leaves_no_timers_behind() {
    let mut bench = Bench::new();
    bench.run_for(LONG).add("Secret/a@n", &[]).add("Secret/b@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("delete Pod/p@n Background", &vec![support::refused(); 40]);
    bench.delete("Secret/a@n", Background).run_for(1_000);
    for _ in 0..10 {
        bench.set_owners("Pod/p@n", &["Secret/a"]).run_for(100);
        bench.set_owners("Pod/p@n", &["Secret/a", "Secret/a"]).run_for(100);
    }
    bench.set_owners("Pod/p@n", &["Secret/b"]).run_for(1);
    assert_eq!(bench.engine.next_wakeup(), None);
    assert_eq!(bench.engine.stats().retrying, 0);
}
