//! A document that is nested too deeply to be read again must not be stored.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod world;

use gc_registry::api::DeleteOptions;
use serde_json::{Value, json};
use world::World;

const REVISIONS: &str = "apps/v1/controllerrevisions";
const PLACE: &str = "default/r";

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({"a": inner}))
}

fn created(world: &World, levels: usize) -> Result<Value, (u16, String)> {
    let revision = json!({"metadata": {"name": "r"}, "revision": 1, "data": nested(levels)});
    world.create(REVISIONS, revision).map_err(|error| (error.code, error.message))
}

/// The parser limits JSON to 128 levels; protobuf and patches may be nested more deeply.
#[test]
fn what_could_not_be_read_again_is_refused() {
    for levels in [127, 200, 1000] {
        let world = World::default();
        let (code, message) = created(&world, levels).unwrap_err();
        assert_eq!((code, message.contains("nested more than 127 levels deep")), (400, true), "{message}");
        assert_eq!(world.get(REVISIONS, PLACE).unwrap_err().code, 404);
    }
}

/// Every accepted document can be read, changed and deleted, including its managed fields.
#[test]
fn what_is_taken_in_can_be_read_again() {
    let mut refused = 0;
    for levels in 110..127 {
        let world = World::default();
        let Ok(revision) = created(&world, levels) else {
            refused += 1;
            continue;
        };
        assert_eq!(world.get(REVISIONS, PLACE).unwrap(), revision, "{levels}");
        world.merge(REVISIONS, PLACE, json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
        world.delete(REVISIONS, PLACE, DeleteOptions::default()).unwrap();
    }
    assert!(refused < 10, "{refused} refused");
}
