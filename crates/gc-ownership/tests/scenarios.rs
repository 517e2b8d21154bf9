//! The scenario catalogue (spec section 14), as far as it concerns the engine: the requests to the server, in order, and the
//! objects at the end. `(A)` marks those where upstream fails or is silent.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{Event, Outcome, ResourceVersion, Uid};
use support::{LONG, Scenario, failed, key, object, owner, refused, touch};

#[rustfmt::skip]
const SCENARIOS: &[Scenario] = &[
    // ---- 14.2 basic collection ----
    Scenario {
        name: "G12 an owner that never existed is looked up once, and the dependent is deleted",
        run: |bench| { bench.add("Pod/p@ns1", &["ReplicationController/owner1"]).run_for(LONG); },
        log: &["read ReplicationController/owner1@ns1", "delete Pod/p@ns1 Background"],
        world: &[],
    },
    Scenario {
        name: "G15 only the reference to the absent owner is removed while another owner lives",
        run: |bench| {
            bench.add("ReplicationController/rc1@n", &[]).add("ReplicationController/rc2@n", &[]);
            bench.add("Pod/pod1@n", &["ReplicationController/rc1"]).add("Pod/pod2@n", &[]);
            bench.add("Pod/pod3@n", &["ReplicationController/rc1", "ReplicationController/rc2"]).drain();
            bench.delete("ReplicationController/rc1@n", Background).run_for(LONG);
        },
        log: &["owners Pod/pod3@n [rc2]", "delete Pod/pod1@n Background"],
        world: &["Pod/pod2@n", "Pod/pod3@n[rc2]", "ReplicationController/rc2@n"],
    },
    Scenario {
        name: "G17 what is being deleted already is not asked about",
        run: |bench| {
            bench.add_held("Pod/p@n", &["ReplicationController/gone"]).delete("Pod/p@n", Background).run_for(LONG);
        },
        log: &[],
        world: &["-Pod/p@n[gone]"],
    },
    Scenario {
        name: "G20 a DELETE answered 404 ends it",
        run: |bench| {
            bench.add("ReplicationController/a@n", &[]).add("Pod/p@n", &["ReplicationController/a"]).drain();
            bench.script("delete Pod/p@n Background", &[Outcome::Absent]);
            bench.delete("ReplicationController/a@n", Background).run_for(LONG);
        },
        log: &["delete Pod/p@n Background"],
        world: &["Pod/p@n[a]"],
    },
    Scenario {
        name: "G22 an owner of that name with another uid is no owner, and is not touched",
        run: |bench| {
            bench.add("ReplicationController/a@n", &[]);
            bench.add("Pod/p@n", &["ReplicationController/a=other"]).run_for(LONG);
        },
        log: &["read ReplicationController/a@n", "delete Pod/p@n Background"],
        world: &["ReplicationController/a@n"],
    },
    Scenario {
        name: "G23 the dependent's own finalizer chooses the policy",
        run: |bench| {
            let mut orphaning = object("ConfigMap/o@n", &["Secret/gone"]);
            orphaning.deletion.orphan = true;
            let mut foreground = object("ConfigMap/f@n", &["Secret/gone"]);
            foreground.deletion.foreground = true;
            bench.put(orphaning).put(foreground).run_for(LONG);
        },
        log: &[
            "read Secret/gone@n", "delete ConfigMap/f@n Foreground", "delete ConfigMap/o@n Orphan",
            "unfinalize ConfigMap/f@n foregroundDeletion", "unfinalize ConfigMap/o@n orphan",
        ],
        world: &[],
    },
    Scenario {
        name: "G24 an owner held in deletion by others' finalizers still is an owner",
        run: |bench| {
            bench.add_held("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).delete("Secret/a@n", Background);
            bench.run_for(LONG);
        },
        log: &[],
        world: &["ConfigMap/d@n[a]", "-Secret/a@n"],
    },
    Scenario {
        name: "G26 a waiting reference is removed where another owner lives",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]);
            bench.add("ConfigMap/d@n", &["Secret/a!", "Secret/b"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
        },
        log: &["owners ConfigMap/d@n [b]", "unfinalize Secret/a@n foregroundDeletion"],
        world: &["ConfigMap/d@n[b]", "Secret/b@n"],
    },
    Scenario {
        name: "two references to one owner are one deletion",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a", "Secret/a"]).drain();
            bench.delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &["delete ConfigMap/d@n Background"],
        world: &[],
    },
    // ---- 14.3 absent owners ----
    Scenario {
        name: "G31 G32 an absent owner is looked up once for all who refer to it, however",
        run: |bench| {
            bench.add("Pod/p1@n", &["ReplicationController/rc1"]).add("Pod/p2@n", &["ReplicationController/rc1!"]);
            bench.run_for(LONG);
            bench.add("Pod/p3@n", &["ReplicationController/rc1"]).run_for(LONG);
        },
        log: &[
            "read ReplicationController/rc1@n", "delete Pod/p2@n Background", "delete Pod/p1@n Background",
            "delete Pod/p3@n Background",
        ],
        world: &[],
    },
    Scenario {
        name: "G34 absent in one namespace says nothing about another",
        run: |bench| {
            bench.add("Pod/p1@n1", &["ReplicationController/rc"]).run_for(LONG);
            bench.add("Pod/p2@n2", &["ReplicationController/rc"]).run_for(LONG);
        },
        log: &[
            "read ReplicationController/rc@n1", "delete Pod/p1@n1 Background",
            "read ReplicationController/rc@n2", "delete Pod/p2@n2 Background",
        ],
        world: &[],
    },
    Scenario {
        name: "G35 (A) an owner that comes back is an owner again",
        run: |bench| {
            bench.add("Pod/p1@n", &["ReplicationController/rc"]).run_for(LONG);
            bench.add("ReplicationController/rc@n", &[]).add("Pod/p2@n", &["ReplicationController/rc"]);
            bench.run_for(LONG);
        },
        log: &["read ReplicationController/rc@n", "delete Pod/p1@n Background"],
        world: &["Pod/p2@n[rc]", "ReplicationController/rc@n"],
    },
    // ---- 14.4 conflicts ----
    Scenario {
        name: "G36 after a conflict the object is read again; one that is only busy is deleted",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
            bench.lag("ConfigMap");
            touch(bench, "delete ConfigMap/d@n Background", "ConfigMap/d@n", 1);
            bench.delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &["delete ConfigMap/d@n Background", "read ConfigMap/d@n", "delete ConfigMap/d@n Background"],
        world: &[],
    },
    Scenario {
        name: "G36 an object that changes at every turn is deleted with the uid alone",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
            bench.lag("ConfigMap");
            touch(bench, "delete ConfigMap/d@n Background", "ConfigMap/d@n", 100);
            bench.delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &[
            "delete ConfigMap/d@n Background", "read ConfigMap/d@n", "delete ConfigMap/d@n Background",
            "read ConfigMap/d@n", "delete ConfigMap/d@n Background", "read ConfigMap/d@n",
            "delete ConfigMap/d@n Background uid-only",
        ],
        world: &[],
    },
    Scenario {
        name: "L16 (A) a dependent adopted in the meantime stays",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
            bench.lag("ConfigMap");
            bench.before.entry("delete ConfigMap/d@n Background".to_owned()).or_default().push_back(Box::new(
                |model| model.set_owners(&key("ConfigMap/d@n"), vec![owner("Secret/b")]).into_iter().collect(),
            ));
            bench.delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &["delete ConfigMap/d@n Background", "read ConfigMap/d@n"],
        world: &["ConfigMap/d@n[b]", "Secret/b@n"],
    },
    Scenario {
        name: "G19 G38 a successor of the same name is not touched",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
            bench.lag("ConfigMap");
            bench.script("delete ConfigMap/d@n Background", &[Outcome::Conflict]);
            bench.before.entry("read ConfigMap/d@n".to_owned()).or_default().push_back(Box::new(|model| {
                let mut successor = object("ConfigMap/d@n", &[]);
                successor.uid = Uid::new("successor");
                model.force_remove(&key("ConfigMap/d@n")).into_iter().chain([model.put(successor)]).collect()
            }));
            bench.delete("Secret/a@n", Background).run_for(LONG);
            bench.catch_up("ConfigMap");
            bench.run_for(LONG);
        },
        log: &["delete ConfigMap/d@n Background", "read ConfigMap/d@n"],
        world: &["ConfigMap/d@n"],
    },
    Scenario {
        name: "G43 (A) of two references with one uid only the wrong one is removed",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/wrong=a", "Secret/a"]).run_for(LONG);
        },
        log: &[
            "read Secret/wrong@n", "owners ConfigMap/d@n [a]",
            "note ConfigMap/d@n OwnerRefInvalidCoordinates: ownerRef [v1/Secret, namespace: n, \
             name: wrong, uid: a] does not lead to the object with that uid, which is v1/Secret, namespace: n, name: a",
        ],
        world: &["ConfigMap/d@n[a]", "Secret/a@n"],
    },
    // ---- 14.5 virtual nodes, coordinates ----
    Scenario {
        name: "G46 an owner seen late costs nothing if it comes in time",
        run: |bench| { bench.add("Pod/p@ns1", &["Node/n"]).drain().add("Node/n", &[]).run_for(LONG); },
        log: &[],
        world: &["Pod/p@ns1[n]", "Node/n"],
    },
    Scenario {
        name: "G47 another served version leads to the same owner",
        run: |bench| {
            bench.add("Pod/p@n", &["apps/v1beta1:Deployment/d"]).add("Deployment/d@n", &[]).run_for(LONG);
            bench.delete("Deployment/d@n", Background).run_for(LONG);
        },
        log: &["delete Pod/p@n Background"],
        world: &[],
    },
    Scenario {
        name: "G48 G49 a version that is not served proves nothing",
        run: |bench| {
            bench.add("Pod/p@n", &["extensions/v1beta1:Deployment/d"]).add("Deployment/d@n", &[]).run_for(LONG);
            bench.delete("Deployment/d@n", Background).run_for(LONG);
        },
        log: &[],
        world: &["Pod/p@n[d]"],
    },
    Scenario {
        name: "G50 G51 served and unserved coordinates of one missing owner are distinguished",
        run: |bench| {
            bench.add("Pod/p1@n", &["extensions/v1beta1:Deployment/d"]).add("Pod/p2@n", &["Deployment/d"]);
            bench.run_for(LONG);
        },
        log: &["read Deployment/d@n", "delete Pod/p2@n Background"],
        world: &["Pod/p1@n[d]"],
    },
    Scenario {
        name: "G52 a bad child is deleted, the good child and the owner stay",
        run: |bench| {
            bench.add("Pod/bad@n", &["Secret/d"]).add("Pod/good@n", &["Deployment/d"]).drain();
            bench.add("Deployment/d@n", &[]).run_for(LONG);
        },
        log: &[
            "read Secret/d@n", "delete Pod/bad@n Background",
            "note Pod/bad@n OwnerRefInvalidCoordinates: ownerRef [v1/Secret, namespace: n, name: d, \
             uid: d] does not lead to the object with that uid, which is apps/v1/Deployment, namespace: n, name: d",
        ],
        world: &["Pod/good@n[d]", "Deployment/d@n"],
    },
    Scenario {
        name: "G60 a kind in lower case is resolved, other spellings are not",
        run: |bench| {
            bench.add("ConfigMap/lower@n", &["v1:secret/a"]).add("ConfigMap/odd@n", &["v1:sEcret/a"]);
            bench.add("Secret/a@n", &[]).run_for(LONG).delete("Secret/a@n", Background).run_for(LONG);
        },
        log: &["delete ConfigMap/lower@n Background"],
        world: &["ConfigMap/odd@n[a]"],
    },
    Scenario {
        name: "G61 (A) a path that is not served proves nothing",
        run: |bench| {
            bench.script("read ReplicationController/a@n", &vec![Outcome::NotServed; 10_000]);
            bench.add("Pod/p@n", &["ReplicationController/a"]).run_for(1_000);
            bench.take_log();
        },
        log: &[],
        world: &["Pod/p@n[a]"],
    },
    Scenario {
        name: "G64 (A) a reference changed in place is verified again",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
            bench.set_owners("ConfigMap/d@n", &["ConfigMap/a"]).run_for(LONG);
        },
        log: &[
            "read ConfigMap/a@n", "delete ConfigMap/d@n Background",
            "note ConfigMap/d@n OwnerRefInvalidCoordinates: ownerRef [v1/ConfigMap, namespace: n, \
             name: a, uid: a] does not lead to the object with that uid, which is v1/Secret, namespace: n, name: a",
        ],
        world: &["Secret/a@n"],
    },
    // ---- 14.6 namespaces and scope ----
    Scenario {
        name: "G66 an owner in another namespace does not count, and an event says so",
        run: |bench| { bench.add("Pod/p1@ns1", &["Pod/p2"]).add("Pod/p2@ns2", &[]).run_for(LONG); },
        log: &[
            "note Pod/p1@ns1 OwnerRefInvalidNamespace: ownerRef [v1/Pod, namespace: ns1, name: p2, uid: p2] does not \
             exist in namespace \"ns1\"",
            "read Pod/p2@ns1", "delete Pod/p1@ns1 Background",
        ],
        world: &["Pod/p2@ns2"],
    },
    Scenario {
        name: "G68 G69 a cluster-scoped object is never collected for a namespaced owner",
        run: |bench| {
            bench.add("Node/n", &["Pod/p1"]).add("Pod/p1@ns1", &[]).run_for(LONG);
            bench.delete("Pod/p1@ns1", Background).run_for(LONG);
        },
        log: &["note Node/n OwnerRefInvalidNamespace: ownerRef [v1/Pod, namespace: , name: p1, uid: p1] does not exist \
                in namespace \"\""],
        world: &["Node/n[p1]"],
    },
    Scenario {
        name: "G70 issue 98040: a bad cluster-scoped child does not save a good one",
        run: |bench| { bench.add("Node/n", &["Pod/p1"]).add("Pod/p2@ns1", &["Pod/p1"]).run_for(LONG); },
        log: &["read Pod/p1@ns1", "delete Pod/p2@ns1 Background"],
        world: &["Node/n[p1]"],
    },
    Scenario {
        name: "G75 (A) beside a reference of invalid scope the dangling one is removed",
        run: |bench| { bench.add("Node/n", &["Pod/p", "PersistentVolume/gone"]).run_for(LONG); },
        log: &["read PersistentVolume/gone", "owners Node/n [p]"],
        world: &["Node/n[p]"],
    },
    Scenario {
        name: "G76 G77 (A) one event per wrong reference, none again after a relist",
        run: |bench| {
            bench.add("Secret/x@b", &[]).add("Secret/y@b", &[]).add("Secret/here@a", &[]);
            bench.script("owners ConfigMap/d@a [here]", &vec![refused(); 1000]);
            bench.add("ConfigMap/d@a", &["Secret/x", "Secret/y", "Secret/here"]).run_for(500);
            bench.sync("ConfigMap");
            bench.run_for(500);
            bench.log.retain(|line| line.starts_with("note"));
        },
        log: &[
            "note ConfigMap/d@a OwnerRefInvalidNamespace: ownerRef [v1/Secret, namespace: a, name: x, uid: x] does not \
             exist in namespace \"a\"",
            "note ConfigMap/d@a OwnerRefInvalidNamespace: ownerRef [v1/Secret, namespace: a, name: y, uid: y] does not \
             exist in namespace \"a\"",
        ],
        world: &["ConfigMap/d@a[x,y,here]", "Secret/here@a", "Secret/x@b", "Secret/y@b"],
    },
    // ---- 14.7 foreground ----
    Scenario {
        name: "G80 what does not block is deleted and not waited for",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add_held("Pod/p1@n", &["Secret/a"]).add_held("Pod/p2@n", &["Secret/a"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
        },
        log: &["delete Pod/p2@n Background", "delete Pod/p1@n Background", "unfinalize Secret/a@n foregroundDeletion"],
        world: &["-Pod/p1@n[a]", "-Pod/p2@n[a]"],
    },
    Scenario {
        name: "G81 G89 a held blocking dependent holds the owner until it is gone",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
            bench.log.push(bench.world().join(" "));
            bench.release("Pod/p@n").run_for(LONG);
        },
        log: &["delete Pod/p@n Background", "-Pod/p@n[a] -Secret/a@n", "unfinalize Secret/a@n foregroundDeletion"],
        world: &[],
    },
    Scenario {
        name: "G82 each foreground deletion is finished again",
        run: |bench| {
            bench.add_held("Pod/p@n", &[]).delete("Pod/p@n", Foreground).run_for(LONG);
            bench.delete("Pod/p@n", Foreground).run_for(LONG).release("Pod/p@n").run_for(LONG);
        },
        log: &["unfinalize Pod/p@n foregroundDeletion", "unfinalize Pod/p@n foregroundDeletion"],
        world: &[],
    },
    Scenario {
        name: "G86 a tree of blocking references disappears leaves first",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/b@n", &["Secret/a!"]).add("Pod/c@n", &["ConfigMap/b!"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
        },
        log: &[
            "delete ConfigMap/b@n Foreground", "delete Pod/c@n Background",
            "unfinalize ConfigMap/b@n foregroundDeletion", "unfinalize Secret/a@n foregroundDeletion",
        ],
        world: &[],
    },
    Scenario {
        name: "G87 G88 the last blocking reference becomes non-blocking, or is removed",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).add_held("Pod/q@n", &["Secret/a!"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
            bench.set_owners("Pod/p@n", &["Secret/a"]).run_for(LONG).set_owners("Pod/q@n", &[]).run_for(LONG);
        },
        log: &["delete Pod/q@n Background", "delete Pod/p@n Background", "unfinalize Secret/a@n foregroundDeletion"],
        world: &["-Pod/p@n[a]", "-Pod/q@n"],
    },
    Scenario {
        name: "G92 (A) a blocking dependent created while the owner waits is deleted promptly",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
            bench.delete("Secret/a@n", Foreground).drain().add("Pod/late@n", &["Secret/a!"]).drain();
        },
        log: &["delete Pod/p@n Background", "delete Pod/late@n Background"],
        world: &["-Pod/p@n[a]", "-Secret/a@n"],
    },
    Scenario {
        name: "G93 (A) a blocking dependent not seen yet is waited for",
        run: |bench| {
            bench.add("Secret/a@n", &[]).drain().lag("Pod");
            bench.add_held("Pod/p@n", &["Secret/a!"]).delete("Secret/a@n", Foreground).run_for(LONG);
            bench.log.push(bench.world().join(" "));
            bench.release("Pod/p@n").catch_up("Pod");
            bench.run_for(LONG);
        },
        log: &["delete Pod/p@n Background", "-Pod/p@n[a] -Secret/a@n", "unfinalize Secret/a@n foregroundDeletion"],
        world: &[],
    },
    Scenario {
        name: "G94 (A) an unknown reference beside the waiting one keeps the dependent and frees the owner",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a!", "example.com/v1:Gadget/g"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
        },
        log: &["owners Pod/p@n [g]", "unfinalize Secret/a@n foregroundDeletion"],
        world: &["Pod/p@n[g]"],
    },
    Scenario {
        name: "G96 a second deletion with Orphan frees the rest, also what is being deleted",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG).delete("Secret/a@n", Orphan).run_for(LONG);
        },
        log: &["delete Pod/p@n Background", "owners Pod/p@n []", "unfinalize Secret/a@n orphan"],
        world: &["-Pod/p@n"],
    },
    Scenario {
        name: "G134 dependents that do not block are handled before the owner all the same",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
            bench.delete("Secret/a@n", Foreground).run_for(LONG);
        },
        log: &["delete Pod/p@n Background", "unfinalize Secret/a@n foregroundDeletion"],
        world: &[],
    },
    Scenario {
        name: "an unserved reference that blocks does not block the owner forever",
        run: |bench| {
            bench.add("Deployment/d@n", &[]).add("Pod/p@n", &["extensions/v1beta1:Deployment/d!"]).drain();
            bench.delete("Deployment/d@n", Foreground).run_for(LONG);
        },
        log: &["unfinalize Deployment/d@n foregroundDeletion"],
        world: &["Pod/p@n[d]"],
    },
    // ---- 14.8 cycles ----
    Scenario {
        name: "G98 (A) a ring of two opens at the first attempt",
        run: |bench| {
            bench.add("Pod/a@n", &["Pod/b!"]).add("Pod/b@n", &["Pod/a!"]).drain();
            bench.delete("Pod/a@n", Foreground).run_for(LONG);
        },
        log: &[
            "delete Pod/b@n Foreground", "owners Pod/b@n [a]", "unfinalize Pod/a@n foregroundDeletion",
            "unfinalize Pod/b@n foregroundDeletion",
        ],
        world: &[],
    },
    Scenario {
        name: "G99 (A) a ring whose members were all put in foreground deletion from outside opens",
        run: |bench| {
            bench.add("Pod/a@n", &["Pod/b!"]).add("Pod/b@n", &["Pod/a!"]).drain();
            bench.delete("Pod/a@n", Foreground).delete("Pod/b@n", Foreground).run_for(LONG);
        },
        log: &[
            "owners Pod/a@n [b]", "unfinalize Pod/b@n foregroundDeletion", "unfinalize Pod/a@n foregroundDeletion",
        ],
        world: &[],
    },
    Scenario {
        name: "G100 (A) an object that owns itself is deleted",
        run: |bench| {
            bench.add("Pod/a@n", &["Pod/a!"]).add("Pod/b@n", &["Pod/b!"]).drain();
            bench.delete("Pod/a@n", Foreground).delete("Pod/b@n", Background).run_for(LONG);
        },
        log: &["unfinalize Pod/a@n foregroundDeletion"],
        world: &[],
    },
    Scenario {
        name: "G101 (A) a dependent that waits for its own reasons is no ring",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("ConfigMap/b@n", &["Secret/a!"]);
            bench.add("ConfigMap/c@n", &["ConfigMap/b!"]).add_held("Pod/d@n", &["ConfigMap/c!"]).drain();
            bench.delete("ConfigMap/c@n", Foreground).run_for(LONG).delete("Secret/a@n", Foreground).run_for(LONG);
        },
        log: &["delete Pod/d@n Background", "delete ConfigMap/b@n Foreground"],
        world: &["-Pod/d@n[c]", "-ConfigMap/b@n[a]", "-ConfigMap/c@n[b]", "-Secret/a@n"],
    },
    // ---- 14.9 orphaning ----
    Scenario {
        name: "G108 a conflict on one dependent keeps the finalizer until it is freed",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &["Secret/a"]).drain();
            bench.script("owners Pod/q@n []", &[Outcome::Conflict]);
            bench.delete("Secret/a@n", Orphan).run_for(LONG);
        },
        log: &[
            "owners Pod/q@n []", "owners Pod/p@n []", "read Pod/q@n", "owners Pod/q@n []",
            "unfinalize Secret/a@n orphan",
        ],
        world: &["Pod/p@n", "Pod/q@n"],
    },
    Scenario {
        name: "G109 a dependent that is gone needs no freeing",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
            bench.lag("Pod");
            bench.model.force_remove(&key("Pod/p@n"));
            bench.delete("Secret/a@n", Orphan).run_for(LONG);
        },
        log: &["owners Pod/p@n []", "unfinalize Secret/a@n orphan"],
        world: &[],
    },
    Scenario {
        name: "G112 (A) a dependent not seen yet is orphaned all the same",
        run: |bench| {
            bench.add("Secret/a@n", &[]).drain().lag("Pod");
            bench.add("Pod/p@n", &["Secret/a"]).delete("Secret/a@n", Orphan).run_for(LONG);
            bench.catch_up("Pod");
            bench.run_for(LONG);
        },
        log: &["owners Pod/p@n []", "unfinalize Secret/a@n orphan"],
        world: &["Pod/p@n"],
    },
    Scenario {
        name: "G114 (A) the successor of a force-removed owner keeps its finalizer",
        run: |bench| {
            bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain().lag("Secret");
            bench.catch_up("Secret");
            bench.before.entry("unfinalize Secret/a@n orphan".to_owned()).or_default().push_back(Box::new(|model| {
                let mut successor = object("Secret/a@n", &[]);
                successor.uid = Uid::new("successor");
                successor.deletion.orphan = true;
                model.force_remove(&key("Secret/a@n")).into_iter().chain([model.put(successor)]).collect()
            }));
            bench.delete("Secret/a@n", Orphan).run_for(LONG);
            assert!(bench.model.get(&key("Secret/a@n")).unwrap().deletion.orphan);
        },
        log: &["owners Pod/p@n []", "unfinalize Secret/a@n orphan"],
        world: &["Pod/p@n", "Secret/a@n"],
    },
    Scenario {
        name: "a ring that is orphaned opens",
        run: |bench| {
            bench.add("Pod/a@n", &["Pod/b!"]).add("Pod/b@n", &["Pod/a!"]).drain();
            bench.delete("Pod/a@n", Orphan).run_for(LONG);
        },
        log: &["owners Pod/b@n []", "unfinalize Pod/a@n orphan"],
        world: &["Pod/b@n"],
    },
    // ---- 14.10 errors and retries ----
    Scenario {
        name: "G119 errors on the owner prove nothing",
        run: |bench| {
            bench.script("read Secret/a@n", &[refused(), failed(), Outcome::NotServed]);
            bench.add("Secret/a@n", &[]);
            bench.lag("Secret");
            bench.engine.handle(Event::Removed {
                key: key("Secret/b@n"), uid: Uid::new("b"), resource_version: ResourceVersion(9),
            });
            bench.add("Secret/c@n", &[]);
            bench.add("Pod/p@n", &["Secret/c"]);
            bench.script("read Secret/c@n", &[refused(), failed(), Outcome::NotServed]);
            bench.run_for(2_000);
            bench.log.truncate(4);
        },
        log: &["read Secret/c@n", "read Secret/c@n", "read Secret/c@n", "read Secret/c@n"],
        world: &["Pod/p@n[c]", "Secret/a@n", "Secret/c@n"],
    },
];

#[test]
fn every_scenario_asks_and_ends_as_the_catalogue_says() {
    support::run_all(SCENARIOS);
}
