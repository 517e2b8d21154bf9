#![allow(clippy::unwrap_used, reason = "tests may panic")]

use gc_types::{
    Coordinates, DeletionState, Gvr, ObjectKey, ObservedObject, OwnerReference, ResourceInfo,
    ResourceVersion, Scope, Uid,
};

use super::*;

const OWNER: NodeId = 0;
const DEPENDENT: NodeId = 1;
/// Referred to by the dependent, and never observed.
const UNSEEN: NodeId = 2;

fn object(name: &str, owners: &[&str], deletion: DeletionState) -> Event {
    let reference = |name: &&str| OwnerReference {
        coordinates: Coordinates {
            api_version: "v1".into(),
            kind: "Secret".into(),
            name: (*name).into(),
            uid: Uid::new(name),
        },
        controller: None,
        block_owner_deletion: Some(true),
    };
    Event::Observed(ObservedObject {
        key: ObjectKey { resource: ResourceId(0), namespace: "n".into(), name: name.into() },
        uid: Uid::new(name),
        resource_version: ResourceVersion(1),
        owners: owners.iter().map(reference).collect(),
        deletion,
        recreator: None,
    })
}

/// Returns an engine with an owner in foreground deletion that waits for a dependent.
fn engine() -> Engine {
    let mut engine = Engine::new(Config::default());
    let info = ResourceInfo {
        id: ResourceId(0),
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: "secrets".into() },
        kind: "Secret".into(),
        scope: Scope::Namespaced,
        served_api_versions: vec!["v1".into()],
        watched: true,
        comparable_versions: true,
    };
    for event in [
        Event::ResourceServed(info),
        Event::ListStarted(ResourceId(0)),
        object("owner", &[], DeletionState { deleting: true, foreground: true, ..DeletionState::default() }),
        object("dependent", &["owner", "unseen"], DeletionState::default()),
        Event::Synced { resource: ResourceId(0), resource_version: ResourceVersion(1) },
        Event::Discovered,
    ] {
        engine.handle(event);
    }
    while engine.poll_effect().is_some() {}
    engine
}

/// The oracle that other tests rely on can fail, for each of its reasons.
#[test]
fn every_damage_to_the_tables_is_reported() {
    type Damage = fn(&mut Engine);
    let damages: &[(Damage, &[&str])] = &[
        (|_| (), &[]),
        (|engine| engine.graph.set(OWNER, Flag::GONE, true), &["node 0 is both there and gone"]),
        (
            |engine| engine.graph.set(DEPENDENT, Flag::IN_FLIGHT, true),
            &["node 1: it is not so whether something was asked about it"],
        ),
        (
            |engine| engine.waiting.get_mut(&OWNER).unwrap().blocking = 5,
            &["node 0: 1 references block, 5 counted"],
        ),
        (
            |engine| drop(engine.waiting.remove(&OWNER)),
            &["node 0: the table of waiting owners is wrong about it"],
        ),
        (
            |engine| {
                let waiting = WaitingOwner { blocking: 0, ..engine.waiting[&OWNER].clone() };
                engine.waiting.insert(DEPENDENT, waiting);
            },
            &["node 1: the table of waiting owners is wrong about it"],
        ),
        (
            |engine| {
                let waiting = engine.waiting[&OWNER].clone();
                engine.waiting.insert(UNSEEN, waiting);
            },
            &["node 2 is in a table and not there"],
        ),
        (|engine| _ = engine.views.insert(UNSEEN, 0), &["node 2 is in a table and not there"]),
        (|engine| _ = engine.ended.insert(UNSEEN), &["node 2 is in a table and not there"]),
        (|engine| _ = engine.rereads.insert(UNSEEN), &["node 2 is in a table and not there"]),
        (|engine| engine.retries.conflict(UNSEEN, Timestamp(0)), &["node 2 is in a table and not there"]),
        (|engine| engine.want_read(DEPENDENT), &["a decision was kept for later"]),
        (
            |engine| engine.graph.set(DEPENDENT, Flag::QUEUED, true),
            &["1 nodes wait for a turn, the queue says (0, 0)"],
        ),
        (|engine| engine.lanes.push(OWNER, DEPENDENT), &["0 nodes wait for a turn, the queue says (1, 0)"]),
        (
            |engine| (0..1_025).for_each(|_| engine.lanes.vacated()),
            &["0 nodes wait for a turn, the queue says (0, 1025)"],
        ),
    ];
    let mut wrong = Vec::new();
    for (number, (damage, expected)) in damages.iter().enumerate() {
        let mut engine = engine();
        damage(&mut engine);
        let broken = engine.verify();
        if broken != *expected {
            wrong.push(format!("damage {number}: {broken:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
