//! The invariant of orders on a Lease, as the body of a fuzz target (`fuzz/` at the root); it also runs as a test.

use serde_json::{Value, json};

use crate::lease::orders::Orders;

/// Checks that the orders in the annotations of a Lease are the same after they are written again.
pub fn lease_orders(data: &[u8]) {
    let Ok(lease) = serde_json::from_slice::<Value>(data) else { return };
    let orders = Orders::of_lease(&lease);
    let again = Orders::of_lease(&json!({"metadata": {"annotations": orders.annotations()}}));
    assert_eq!(again.paused, orders.paused);
    assert_eq!(again.observe_until, orders.observe_until);
    if orders.tripped.is_some() {
        assert_eq!(again.tripped, orders.tripped);
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(lease_orders);
