//! Output of each answer: in a pipe, and on terminals of 80 and 160 columns.

use gc_explain::relink::Evidence;
use gc_explain::undo::{Choice, Record};
use gc_inspect::garbage::{self, GarbageAnswer};
use gc_inspect::gather::Scope;
use gc_inspect::output::{Answer, screens};
use gc_inspect::plan::{self, ShownPlan};
use gc_inspect::sources::Source;
use gc_inspect::tree::{Forest, Shape};
use gc_inspect::{stuck, why};
use gc_process::journal::Found;
use gc_recovery::relink::{self, RelinkAnswer};
use gc_recovery::undo::{self, UndoAnswer};
use gc_types::{PropagationPolicy, Timestamp};
use serde_json::{Value, json};

use super::PATIENCE;
use super::shared::{Situation, World, deployment, held, map, node, pod};

const NAMESPACE: &str = "shop";
/// A day later, all ages are the same.
const LATER_SECONDS: i64 = 86_400;
/// More objects than are read singly.
const MANY: usize = 25;

/// An answer in which each UID of the cluster is replaced by a number.
struct Numbered<'a, T>(&'a World, &'a T);

impl<T: Answer> Answer for Numbered<'_, T> {
    fn value(&self) -> Value {
        self.1.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut plain = Vec::new();
        self.1.text(is_wide, &mut plain)?;
        let mut plain = String::from_utf8(plain)?;
        for (number, uid) in self.0.uids.values().enumerate() {
            plain = plain.replace(uid, &format!("{number:08}-0000-4000-8000-000000000000"));
        }
        out.extend_from_slice(plain.as_bytes());
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.1.names()
    }
}

/// Compares an answer with the expected output, in which only UIDs are replaced.
fn shows(world: &World, name: &str, answer: &impl Answer) {
    insta::assert_snapshot!(name, screens(&Numbered(world, answer)).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_look_as_they_should() {
    let mut world = World::start().await;
    let mut make = vec![
        map("owner", json!({})),
        map("left", json!({"owners": ["ConfigMap/owner"]})),
        map("right", json!({"owners": ["ConfigMap/owner!"]})),
        map(
            "leaf",
            json!({"owners": ["ConfigMap/left", "ConfigMap/right"], "finalizers": ["widgets.acme.dev/hold"]}),
        ),
        map("stray", json!({"owners": ["ConfigMap/lost"]})),
        map("held", held()),
        deployment("web", 1),
        node("silent", "Unknown"),
        pod("web-1", "silent", json!({"owners": ["Deployment/web*!"]})),
    ];
    make.extend(
        (0..MANY).map(|number| map(&format!("many-{number:02}"), json!({"owners": ["ConfigMap/owner"]}))),
    );
    let situation = Situation {
        name: "a shop",
        make,
        delete: &[("cm/held", "Background"), ("cm/leaf", "Background"), ("pod/web-1", "Background")],
        ask: "",
        later_seconds: 0,
        stuck: &[],
        why: ("", ""),
        plan: "",
    };
    world.build(&situation, NAMESPACE).await;
    let gatherer = world.gatherer(LATER_SECONDS).await;
    let named = |object: &str| World::named(&gatherer, NAMESPACE, object);
    let scope = Scope { namespace: NAMESPACE.to_owned(), ..Scope::default() };

    shows(&world, "stuck", &stuck::ask(&gatherer, &scope, PATIENCE).await.unwrap());
    let mut answers = why::Answers::at(gatherer.now);
    for object in ["cm/held", "cm/many-00", "pod/web-1"] {
        answers.add(&gatherer, &named(object), PATIENCE).await.unwrap();
    }
    shows(&world, "why", &answers);
    for (name, object, owners) in [("tree", "cm/owner", false), ("tree_of_owners", "cm/leaf", true)] {
        let mut forest = Forest::new(gatherer.now, Shape { owners, ..Shape::default() });
        assert_eq!(forest.add(&gatherer, &named(object), PATIENCE).await.unwrap(), None);
        shows(&world, name, &forest);
    }
    let targets = vec![named("cm/owner"), named("deploy/web")];
    let planning = plan::ask(&gatherer, targets, PropagationPolicy::Foreground, PATIENCE).await.unwrap();
    let planning = planning.complete().unwrap();
    assert_eq!(planning.unseen, [""; 0]);
    shows(&world, "plan_delete", &ShownPlan { radius: &planning.radius, full: false });
    let report = garbage::ask(&gatherer, &scope, PATIENCE).await.unwrap();
    shows(&world, "garbage", &GarbageAnswer { report });
    let entries = vec![entry(1, "web-1", "delete", "conflict"), entry(2, "web-1", "delete", "applied")];
    shows(&world, "journal", &Found::of(entries.into()));
    let lost = "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6".to_owned();
    let owner = world.uids[&format!("{NAMESPACE} ConfigMap/owner")].clone();
    let mut evidence = Evidence { map: [(lost, owner)].into(), ..Evidence::default() };
    let (found, _) = relink::plan(&gatherer, "", &mut evidence, PATIENCE).await.unwrap();
    shows(&world, "relink", &RelinkAnswer { found: &found, is_done: false, is_partial: false });
    let record = |name: &str, owners: Value| Record {
        at: Timestamp(0),
        resource: "configmaps".to_owned(),
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE, "name": name,
            "uid": format!("uid-{name}"), "finalizers": ["acme.dev/hold"], "ownerReferences": owners}}),
    };
    let of = |name: &str| json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("uid-{name}")}]);
    let records = [record("past", json!([])), record("below", of("past")), record("owner", json!([]))];
    let undone = undo::ask(&gatherer, &records, &Choice::Since(Timestamp(0), &|_| true)).await;
    shows(&world, "undo", &UndoAnswer { undo: &undone, is_done: false });
    shows(&world, "why_gone", &why::Answers::of_deletion(deletion()));
    world.end().await;
}

/// Returns an entry of a journal.
fn entry(number: u32, name: &str, verb: &str, outcome: &str) -> Value {
    json!({
        "time": format!("2026-09-21T14:0{number}:00.000000Z"), "verb": verb, "resource": "replicasets.apps",
        "kind": "ReplicaSet", "namespace": "shop", "name": name, "uid": format!("uid-{name}"),
        "outcome": outcome, "verdict": "OwnersAbsent", "message": "every owner is absent", "durationSeconds": 0.0021, "requests": 1,
        "owners": [{"kind": "Deployment", "name": "web", "uid": "u"}], "evidence": ["owner u: removal seen"],
    })
}

/// Returns a journal's entry about an object that is gone.
fn deletion() -> Value {
    let found = Found::of(
        vec![entry(1, "web-1", "delete", "conflict"), entry(2, "web-1", "delete", "applied")].into(),
    );
    gc_inspect::journal::why_gone(&found, &Source::of_file("/var/lib/kubegc/journal"), "pods/web-1").unwrap()
}
