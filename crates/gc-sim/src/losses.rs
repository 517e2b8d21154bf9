//! Losses in a world with a lying transport: findings of the oracles that count there, and a law of its own.

use gc_types::Verdict;

use crate::kinds::KINDS;
use crate::oracle::Scene;
use crate::performed::Part;
use crate::truth::{TrueChange, TrueObject};
use crate::violation::{Violation, broken};

/// Reports whether what an oracle noticed is a loss, whatever was delivered and answered to the collector. The others
/// go by what was sent to it, or by what it still has to do.
#[must_use]
pub fn is_loss(violation: &Violation, part: Part) -> bool {
    match violation.oracle {
        "safety" | "identity" | "orphans" | "law" | "panic" => true,
        "finalizers" => part == Part::Claims,
        _ => false,
    }
}

/// The law of worlds with a liar, where the other oracles go by what was delivered: no pod and no lease is deleted because of a node
/// that lives, and has lived since before the collector's watch says that it knows all nodes.
pub fn judge_law(scene: &Scene<'_>, change: &TrueChange) -> Result<(), Violation> {
    let Some(before) = &change.before else { return Ok(()) };
    let flight = scene.flight;
    let node = match flight.effect.reason.verdict {
        Verdict::Retention(gc_types::codes::NODE_GONE) => {
            before.value().pointer("/spec/nodeName").and_then(|name| name.as_str().map(str::to_owned))
        }
        Verdict::Retention(gc_types::codes::NODE_LEASE_ORPHANED) => Some(before.object.key.name.to_string()),
        _ => None,
    };
    let Some(node) = node else { return Ok(()) };
    let Some(kind) = KINDS.iter().position(|kind| kind.kind == "Node") else { return Ok(()) };
    let Some(lives) = scene.truth.at(kind, "", &node) else { return Ok(()) };
    let since = scene.truth.since(&lives.object.uid, |_: &TrueObject| true);
    if since.is_some_and(|since| since <= flight.delivered[kind].min(flight.decided)) {
        return broken("law", format!("{} goes, and its node {node} lives", before.show()));
    }
    Ok(())
}
