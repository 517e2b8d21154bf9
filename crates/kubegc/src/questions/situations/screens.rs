//! What people see of each answer: in a pipe, and on terminals of 80 and of 160 columns.

use std::fmt::Write as _;

use gc_explain::relink::Evidence;
use gc_explain::undo::{Choice, Record};
use gc_types::{PropagationPolicy, Timestamp};
use serde_json::{Value, json};

use super::objects::{deployment, held, map, node, pod};
use super::{PATIENCE, Situation, World};
use crate::journal::Found;
use crate::policy::Checked;
use crate::questions::doctor::Examined;
use crate::questions::doctor::tests::sick;
use crate::questions::garbage::{self, GarbageAnswer};
use crate::questions::gather::Scope;
use crate::questions::journal::tests::entry;
use crate::questions::output::{Answer, folded};
use crate::questions::plan::{self, Planned};
use crate::questions::recovery::relink::{self, RelinkAnswer};
use crate::questions::recovery::undo::{self, UndoAnswer};
use crate::questions::sources::Source;
use crate::questions::tree::{Forest, Shape};
use crate::questions::version::Versions;
use crate::questions::{stuck, why};

const NAMESPACE: &str = "shop";
/// All ages are the same a day later.
const LATER_SECONDS: i64 = 86_400;
/// More than are listed one by one.
const MANY: usize = 25;

/// Compares an answer with what is known of it, also where `-o wide` shows more; UIDs are replaced, and nothing else.
fn shows(world: &World, name: &str, answer: &impl Answer) {
    let mut text = String::new();
    let shown = |is_wide: bool| {
        let mut out = Vec::new();
        answer.text(is_wide, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let wide = Some(shown(true)).filter(|wide| *wide != shown(false)).map(|wide| (wide, ", -o wide"));
    for (mut plain, suffix) in [(shown(false), "")].into_iter().chain(wide) {
        for (number, uid) in world.uids.values().enumerate() {
            plain = plain.replace(uid, &format!("{number:08}-0000-4000-8000-000000000000"));
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "==> pipe{suffix}\n{plain}");
        for width in [80, 160] {
            let on_terminal = folded(&plain, width);
            let _ = if on_terminal == plain {
                writeln!(text, "==> {width} columns{suffix}: the same\n")
            } else {
                writeln!(text, "==> {width} columns{suffix}\n{on_terminal}")
            };
        }
    }
    insta::assert_snapshot!(name, text);
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
    shows(&world, "plan_delete", &Planned { radius: &planning.radius, full: false });
    let report = garbage::ask(&gatherer, &scope, PATIENCE).await.unwrap();
    shows(&world, "garbage", &GarbageAnswer { report });
    shows(&world, "doctor", &Examined(&sick()));
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
    let checked = Checked::with_preview(
        "metadata: {name: failed-pods}\napiVersion: kubegc.io/v1alpha1\nkind: RetentionPolicy\n\
         spec: {target: {apiVersion: v1, kind: Pod}, maxAge: 7d}\n---\n\
         metadata: {name: wrong}\napiVersion: kubegc.io/v1alpha1\nkind: RetentionPolicy\nspec: {maxage: 7d}\n",
        json!({"selected": 2, "due": 1, "kept": 0, "unclear": 0, "examples": [
            {"namespace": NAMESPACE, "name": "web-1", "why": "older than 7d"}]}),
    );
    shows(&world, "policy_check", &checked);
    shows(&world, "why_gone", &why::Answers::of_deletion(deletion()));
    shows(&world, "version", &Versions::of(json!({"gitVersion": "v1.36.2"})));
    world.end().await;
}

/// What a journal says about an object that is gone.
fn deletion() -> Value {
    let found = Found::of(
        vec![entry(1, "web-1", "delete", "conflict"), entry(2, "web-1", "delete", "applied")].into(),
    );
    crate::questions::journal::why_gone(&found, &Source::of_file("/var/lib/kubegc/journal"), "pods/web-1")
        .unwrap()
}
