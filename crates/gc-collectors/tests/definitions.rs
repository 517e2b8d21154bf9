//! The definitions of kinds are those that `deploy/crds` contains.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_collectors::{node_policies, policies};
use serde_json::Value;

#[test]
fn the_definitions_are_those_that_are_deployed() {
    for (name, definition) in [
        (policies::RESOURCE, policies::definition::definition()),
        (node_policies::RESOURCE, node_policies::definition::definition()),
    ] {
        let path = format!("{}/../../deploy/crds/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        let deployed: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(definition, deployed, "{path}");
    }
}
