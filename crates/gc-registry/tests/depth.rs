//! What is nested so deeply that it could not be read again is not stored.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod world;

use gc_registry::api::{DeleteOptions, Operation, PatchType, WriteOptions};
use serde_json::{Value, json};
use world::{World, request};

const REVISIONS: &str = "apps/v1/controllerrevisions";
const PLACE: &str = "default/r";

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({"a": inner}))
}

fn created(world: &World, levels: usize) -> Result<Value, (u16, String)> {
    let revision = json!({"metadata": {"name": "r"}, "revision": 1, "data": nested(levels)});
    world.create(REVISIONS, revision).map_err(|error| (error.code, error.message))
}

/// Bodies are stopped at 128 levels where they are parsed; operations of a patch may build more.
#[test]
fn patches_build_nothing_that_cannot_be_read() {
    let world = World::default();
    let before = created(&world, 90).unwrap();
    let path = format!("/data{}", "/a".repeat(90));
    let patch = json!([{"op": "copy", "from": "/data", "path": path}]);
    let operation = Operation::Patch(PatchType::Json, request(patch), WriteOptions::default());
    let error = world.run(REVISIONS, PLACE, operation).unwrap_err();
    assert_eq!((error.code, error.message.contains("nested more than 127 levels deep")), (400, true));
    assert_eq!(world.get(REVISIONS, PLACE).unwrap(), before);
}

/// Whatever was taken in can be read, changed and deleted; its managed fields are part of it.
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
