//! Situations that users ask about, each created on an embedded server, with the right answers of `stuck`, `why` and `plan`.
//!
//! With `KUBEGC_TEST_KUBECONFIG`, they are created on that server instead, which must be an empty kube-apiserver without
//! controllers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better without references")]

mod screens;
mod shared;

use std::time::Duration;

use gc_explain::stuck::{Code, Row};
use gc_inspect::gather::Scope;
use gc_inspect::{plan, stuck, why};
use gc_types::PropagationPolicy;

use shared::{World, situations};

const PATIENCE: Duration = Duration::from_secs(30);

fn shown(row: &Row) -> String {
    let mut objects: Vec<String> = row.objects.iter().map(|(place, _)| place.title()).collect();
    objects.sort();
    let mut text = format!("{} {}", row.cause.code.name(), objects.join(","));
    if !row.waiting.is_empty() {
        let waiting: Vec<String> = row.waiting.iter().map(gc_explain::stuck::Place::title).collect();
        text = format!("{text} <- {}", waiting.join(","));
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_situation_has_its_right_answers() {
    let mut world = World::start().await;
    let situations = situations();
    assert!(situations.len() >= 77, "{}", situations.len());
    for (number, situation) in situations.iter().enumerate() {
        world.build(situation, &format!("s{number:02}")).await;
    }
    let mut wrong = Vec::new();
    for (number, situation) in situations.iter().enumerate() {
        let namespace = format!("s{number:02}");
        let title = |text: &str| text.replace("Namespace/.", &format!("Namespace/{namespace}"));
        let ask = situation.ask.replace("ns/.", &format!("ns/{namespace}"));
        let gatherer = world.gatherer(situation.later_seconds).await;
        let named = World::named(&gatherer, &namespace, &ask);
        let scope = if named.namespace.is_empty() && !ask.starts_with("ns/") { "" } else { &*namespace };
        let scope = Scope { namespace: scope.to_owned(), ..Scope::default() };
        let rows = stuck::ask(&gatherer, &scope, PATIENCE).await.unwrap().rows;
        let own = rows.iter().filter(|row| {
            let mut places = row.objects.iter().map(|(place, _)| place).chain(&row.waiting);
            !scope.namespace.is_empty() || places.any(|place| place.name == named.name)
        });
        let mut codes: Vec<String> = own.map(shown).collect();
        codes.sort();
        let expected: Vec<String> = situation.stuck.iter().map(|text| title(text)).collect();
        if codes != expected {
            wrong.push(format!("{}: stuck: {codes:?}, expected {expected:?}", situation.name));
        }
        let answer = why::ask(&gatherer, &named, PATIENCE).await.unwrap().unwrap();
        // Commands are about the first object, and about the requested one.
        let held = rows.iter().map(|row| (&row.objects[0].0, row));
        let held = held.chain(answer.holds.iter().filter_map(|row| {
            let mut places = row.objects.iter().map(|(place, _)| place);
            places.find(|place| place.uid == answer.place.uid).map(|place| (place, row))
        }));
        for (place, row) in held.filter(|(_, row)| row.cause.code == Code::FinalizerHeld) {
            let command = &row.cause.force.as_ref().unwrap().command;
            if !command.contains(&place.reference()) {
                wrong.push(format!("{}: {command:?} is not about {}", situation.name, place.reference()));
            }
        }
        let (code, part) = situation.why;
        if answer.code != code || !answer.message.contains(part) {
            wrong.push(format!(
                "{}: why: {} {:?}, expected {code} …{part:?}…",
                situation.name, answer.code, answer.message
            ));
        }
        let planning =
            plan::ask(&gatherer, vec![named], PropagationPolicy::Background, PATIENCE).await.unwrap();
        let radius = planning.complete().unwrap().radius;
        if radius.summary() != situation.plan {
            wrong.push(format!(
                "{}: plan: {:?}, expected {:?}",
                situation.name,
                radius.summary(),
                situation.plan
            ));
        }
    }
    world.end().await;
    assert!(
        wrong.is_empty(),
        "{} of {} answers are wrong:\n{}",
        wrong.len(),
        3 * situations.len(),
        wrong.join("\n")
    );
}
