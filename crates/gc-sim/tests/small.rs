//! Small worlds, explored exhaustively (explained in docs/proof.md); each test states the number of states that it visits.

use gc_sim::small::{Census, Plan, explore};

fn visited(plan: Plan) -> (u64, u64) {
    let Census { worlds, states, violations, .. } = explore(plan);
    assert!(violations.is_empty(), "{violations:#?}");
    (worlds, states)
}

/// Returns every graph over this number of objects, including those with objects that own themselves.
const fn every(objects: usize, depth: usize) -> Plan {
    Plan { objects, depth, loops: true, stride: 1, first: 0 }
}

/// Returns one half of the graphs over four objects that do not own themselves.
const fn four(first: u32) -> Plan {
    Plan { objects: 4, depth: 0, loops: false, stride: 4, first }
}

#[test]
fn one_and_two_objects() {
    assert_eq!((visited(every(1, 8)), visited(every(2, 10))), ((24, 168), (576, 64_944)));
}

#[test]
fn three_objects() {
    assert_eq!(visited(every(3, 3)), (36_864, 273_152));
}

#[test]
fn four_objects_a() {
    assert_eq!(visited(four(0)), (245_760, 245_760));
}

#[test]
fn four_objects_b() {
    assert_eq!(visited(four(2)), (245_760, 245_760));
}
