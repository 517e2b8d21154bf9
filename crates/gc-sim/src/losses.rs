//! Losses in a world with a lying transport: the findings of the oracles that count there, and a law of its own.

use gc_types::Verdict;

use crate::kinds::KINDS;
use crate::oracle::Scene;
use crate::performed::Part;
use crate::truth::{TrueChange, TrueObject};
use crate::violation::{Violation, broken};

/// Reports whether the finding of an oracle is a loss regardless of what the collector was delivered. The other findings depend on
/// what was sent to it, or on its remaining work.
#[must_use]
pub fn is_loss(violation: &Violation, part: Part) -> bool {
    match violation.oracle {
        "safety" | "identity" | "orphans" | "law" | "panic" => true,
        "finalizers" => part == Part::Claims,
        _ => false,
    }
}

/// The law of worlds with a liar, where the other oracles depend on what was delivered: no pod and no lease is deleted because of a
/// node that is alive, and has been since before the collector's watch claimed to know all nodes.
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
