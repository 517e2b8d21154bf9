//! Cases in which our decisions and the cluster agree or disagree.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use gc_types::{
    Coordinates, DeletionState, EffectId, PropagationPolicy, ResourceId, ResourceVersion, Verdict,
};

use super::*;

const WINDOW: i64 = 1_000;

/// A graph with scripted answers.
#[derive(Default)]
struct ScriptedGraph {
    deleting: BTreeMap<Uid, bool>,
    owners: BTreeMap<Uid, Vec<(Uid, OwnerState)>>,
    states: BTreeMap<Uid, OwnerState>,
    unwanted: BTreeSet<Uid>,
}

impl Knowledge for ScriptedGraph {
    fn is_deleting(&self, uid: &Uid) -> Option<bool> {
        self.deleting.get(uid).copied()
    }

    fn owners(&self, uid: &Uid) -> Vec<(Uid, OwnerState)> {
        self.owners.get(uid).cloned().unwrap_or_default()
    }

    fn owner(&self, uid: &Uid) -> OwnerState {
        self.states.get(uid).copied().unwrap_or(OwnerState::Unknown)
    }

    fn is_wanted(&self, uid: &Uid, _kind: RequestKind) -> bool {
        !self.unwanted.contains(uid)
    }
}

fn uid(text: &str) -> Uid {
    Uid::new(text)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: ResourceId(1), namespace: "shop".into(), name: name.into() }
}

fn owner(name: &str) -> OwnerReference {
    OwnerReference {
        coordinates: Coordinates {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: name.into(),
            uid: uid(name),
        },
        controller: None,
        block_owner_deletion: None,
    }
}

fn effect(request: Request) -> Effect {
    let owners = vec![owner("dead").coordinates];
    Effect {
        id: EffectId(1),
        request,
        reason: Reason { verdict: Verdict::OwnersAbsent, owners, evidence: vec![] },
    }
}

fn delete(name: &str) -> Effect {
    effect(Request::Delete {
        key: key(name),
        uid: uid(name),
        resource_version: Some(ResourceVersion(1)),
        policy: PropagationPolicy::Background,
    })
}

fn set_owners(name: &str, remaining: &[&str]) -> Effect {
    let remaining = remaining.iter().map(|name| owner(name)).collect();
    effect(Request::SetOwners {
        key: key(name),
        uid: uid(name),
        resource_version: ResourceVersion(1),
        remaining,
    })
}

fn remove_finalizer(name: &str) -> Effect {
    effect(Request::RemoveFinalizer {
        key: key(name),
        uid: uid(name),
        finalizer: FinalizerName::ForegroundDeletion,
    })
}

fn object(name: &str, owners: &[&str], deletion: DeletionState) -> ObservedObject {
    ObservedObject {
        key: key(name),
        uid: uid(name),
        resource_version: ResourceVersion(2),
        owners: owners.iter().map(|name| owner(name)).collect(),
        deletion,
        recreator: None,
    }
}

const STAYS: DeletionState =
    DeletionState { deleting: false, foreground: false, orphan: false, foreign_finalizers: false };
const DELETING: DeletionState = DeletionState { deleting: true, ..STAYS };
const WAITING: DeletionState = DeletionState { foreground: true, ..DELETING };

/// Returns the comparisons that are due at a time, as `agreed kind name`.
fn compared(comparator: &mut Comparator, graph: &ScriptedGraph, at: i64) -> Vec<String> {
    let compared = comparator.compare(graph, at);
    compared
        .iter()
        .map(|comparison| {
            let word = if comparison.agreed { "agreed" } else { "disagreed" };
            format!("{word} {} {}", comparison.kind, comparison.key.name)
        })
        .collect()
}

#[test]
fn predictions_come_true_or_not() {
    enum Expectation {
        Nothing,
        Seen(ObservedObject),
        Gone,
    }
    use Expectation::{Gone, Nothing, Seen};
    for (name, decided, then, expected) in [
        ("deleted", delete("a"), Gone, &["agreed deletion a"][..]),
        ("marked for deletion", delete("a"), Seen(object("a", &["dead"], DELETING)), &["agreed deletion a"]),
        ("still there", delete("a"), Nothing, &["disagreed not-deleted a"]),
        ("touched", delete("a"), Seen(object("a", &["dead"], STAYS)), &["disagreed not-deleted a"]),
        ("adopted by another", delete("a"), Seen(object("a", &["alive"], STAYS)), &[]),
        ("released", set_owners("a", &["x"]), Seen(object("a", &["x"], STAYS)), &["agreed references a"]),
        ("all released", set_owners("a", &[]), Seen(object("a", &[], STAYS)), &["agreed references a"]),
        (
            "released in part",
            set_owners("a", &["x"]),
            Seen(object("a", &["x", "dead"], STAYS)),
            &["disagreed references-not-removed a"],
        ),
        ("not released", set_owners("a", &["x"]), Nothing, &["disagreed references-not-removed a"]),
        ("released by its end", set_owners("a", &["x"]), Gone, &[]),
        ("finalized, held", remove_finalizer("a"), Seen(object("a", &[], DELETING)), &["agreed finalizer a"]),
        ("finalized", remove_finalizer("a"), Gone, &["agreed finalizer a"]),
        (
            "not finalized",
            remove_finalizer("a"),
            Seen(object("a", &[], WAITING)),
            &["disagreed finalizer-not-removed a"],
        ),
    ] {
        let (mut comparator, graph) = (Comparator::new(WINDOW), ScriptedGraph::default());
        comparator.decided(&decided, 0);
        match then {
            Nothing => {}
            Seen(object) => comparator.observed(&object, &graph, 500),
            Gone => comparator.removed(&key("a"), &uid("a"), &graph, 500),
        }
        let early = compared(&mut comparator, &graph, WINDOW - 1);
        assert!(early.iter().all(|line| line.starts_with("agreed")), "{name}: {early:?}");
        let all: Vec<String> = early.into_iter().chain(compared(&mut comparator, &graph, WINDOW)).collect();
        assert_eq!(all, expected, "{name}");
        assert_eq!(compared(&mut comparator, &graph, 100 * WINDOW), [""; 0], "{name}: once");
        assert!(comparator.due.is_empty() && comparator.predictions.is_empty(), "{name}");
    }
}

#[test]
fn what_is_wanted_no_more_says_nothing_and_what_is_decided_again_keeps_its_time() {
    let mut comparator = Comparator::new(WINDOW);
    let graph = ScriptedGraph { unwanted: BTreeSet::from([uid("b")]), ..ScriptedGraph::default() };
    for (name, at) in [("a", 0), ("b", 0), ("a", 900), ("c", 900)] {
        comparator.decided(&delete(name), at);
    }
    // Changing from a deletion to a mere patch starts another prediction.
    comparator.decided(&set_owners("c", &["x"]), 1_000);
    assert_eq!(compared(&mut comparator, &graph, 1_500), ["disagreed not-deleted a"]);
    assert_eq!(compared(&mut comparator, &graph, 1_999), [""; 0]);
    assert_eq!(compared(&mut comparator, &graph, 2_000), ["disagreed references-not-removed c"]);
}

#[test]
fn deletions_by_others_count_only_if_owners_could_explain_them() {
    use OwnerState::{Dead, Lives, Unknown};
    // Owners as the graph knew them at the deletion, the owners removed within the window, and the graph's state at its end.
    for (name, then, removed, later, expected) in [
        ("no owner", &[][..], &[][..], &[][..], &[][..]),
        ("its owner lives: a user did it", &[("o", Lives)], &[], &[("o", Lives)], &[]),
        ("one owner lives", &[("o", Lives), ("p", Dead)], &[], &[("o", Lives)], &[]),
        ("its owner was dead: they were faster", &[("o", Dead)], &[], &[], &["agreed deletion a"]),
        ("its owner's removal was observed later", &[("o", Lives)], &["o"], &[], &["agreed deletion a"]),
        ("its owner waits by now", &[("o", Lives)], &[], &[("o", Dead)], &["agreed deletion a"]),
        ("of a kind that is not served", &[("o", Unknown)], &[], &[], &["disagreed deleted-unexpectedly a"]),
        (
            "one dead, one unknown",
            &[("o", Dead), ("p", Unknown)],
            &[],
            &[],
            &["disagreed deleted-unexpectedly a"],
        ),
        ("unknown then, seen alive later", &[("o", Unknown)], &[], &[("o", Lives)], &[]),
    ] {
        for is_marked_first in [false, true] {
            let mut comparator = Comparator::new(WINDOW);
            let named = |list: &[(&str, OwnerState)]| -> Vec<(Uid, OwnerState)> {
                list.iter().map(|(name, state)| (uid(name), *state)).collect()
            };
            let mut graph = ScriptedGraph {
                deleting: BTreeMap::from([(uid("a"), false)]),
                owners: BTreeMap::from([(uid("a"), named(then))]),
                ..ScriptedGraph::default()
            };
            if is_marked_first {
                comparator.observed(&object("a", &["o"], DELETING), &graph, 0);
                graph.deleting.insert(uid("a"), true);
            }
            comparator.removed(&key("a"), &uid("a"), &graph, 10);
            for owner in removed {
                comparator.removed(&key(owner), &uid(owner), &graph, 500);
            }
            graph.states = named(later).into_iter().collect();
            assert_eq!(compared(&mut comparator, &graph, 10 + WINDOW), expected, "{name}, {is_marked_first}");
        }
    }
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let (mut comparator, graph) = (Comparator::new(WINDOW), ScriptedGraph::default());
    for number in 0..COMPARED + 3 {
        comparator.decided(&delete(&format!("n{number}")), 0);
    }
    assert_eq!((comparator.predictions.len(), comparator.uncompared), (COMPARED, 3));
    for number in 0..COMPARED + 3 {
        comparator.removed(&key("n"), &uid(&format!("n{number}")), &graph, 1);
    }
    assert_eq!((comparator.gone.len(), comparator.gone_in_order.len()), (COMPARED, COMPARED));
    assert_eq!(compared(&mut comparator, &graph, 2).len(), COMPARED);
    assert_eq!(compared(&mut comparator, &graph, 3 * WINDOW), [""; 0]);
    assert!(comparator.gone.is_empty());
}
