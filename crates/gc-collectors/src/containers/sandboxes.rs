//! Pod sandboxes (spec `node-gc.md`, section 10).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gc_types::{GoDuration, UnixNanoseconds};

use super::pods::{PodStanding, PodView, RunningContainers};
use super::{Container, PodUid, Sandbox, SandboxId, SandboxState};

/// Reason why a sandbox is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxRemovalReason {
    /// Its pod is gone.
    PodGone,
    /// Its pod is finished, and disk space is needed.
    PodFinished,
    /// The pod has a newer sandbox.
    Superseded,
}

/// One sandbox to remove: stopped, then removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRemoval {
    /// ID of the sandbox.
    pub id: SandboxId,
    /// Reason.
    pub reason: SandboxRemovalReason,
}

/// Plans one pass over a listing in which containers were listed **before** sandboxes. Sandboxes of deleted pods must be at least
/// `minimum_age` old: one that is being created may look dead, and its pod may not be known yet.
#[must_use]
pub fn plan(
    sandboxes: &[Sandbox],
    containers: &[Container],
    pods: &PodView,
    minimum_age: GoDuration,
    pressure: bool,
    now: UnixNanoseconds,
) -> Vec<SandboxRemoval> {
    let with_containers: BTreeSet<&SandboxId> =
        containers.iter().filter_map(|c| c.sandbox.as_ref()).collect();
    let active = |s: &Sandbox| s.state == SandboxState::Ready || with_containers.contains(&s.id);
    let running = RunningContainers::of(containers, sandboxes);
    let mut by_pod: BTreeMap<&PodUid, Vec<&Sandbox>> = BTreeMap::new();
    for sandbox in sandboxes.iter().filter(|s| s.managed) {
        if let Some(pod) = &sandbox.pod {
            by_pod.entry(pod).or_default().push(sandbox);
        }
    }
    let mut removals = Vec::new();
    for (pod, mut members) in by_pod {
        members.sort_by(|a, b| Reverse(a.created_at).cmp(&Reverse(b.created_at)).then(a.id.cmp(&b.id)));
        let standing = pods.standing(pod, &running, now);
        let (kept, reason) = match standing {
            PodStanding::Gone => (0, SandboxRemovalReason::PodGone),
            PodStanding::Terminated if pressure => (0, SandboxRemovalReason::PodFinished),
            _ => (1, SandboxRemovalReason::Superseded),
        };
        let old_enough =
            |s: &Sandbox| standing != PodStanding::Gone || now.since(s.created_at) >= minimum_age;
        let going = members.into_iter().skip(kept).filter(|s| !active(s) && old_enough(s));
        removals.extend(going.rev().map(|s| SandboxRemoval { id: s.id.clone(), reason }));
    }
    removals
}

#[cfg(test)]
mod tests {
    use super::super::pods::testing::view;
    use super::super::{ContainerId, ContainerState};
    use super::SandboxState::{NotReady, Ready};
    use super::*;

    const MINUTE: i64 = 60_000_000_000;
    const NOW: UnixNanoseconds = UnixNanoseconds(100 * MINUTE);

    fn sandbox(id: &str, pod: &str, state: SandboxState, created_at: i64) -> Sandbox {
        Sandbox {
            id: SandboxId::new(id).expect("not empty"),
            pod: PodUid::new(pod),
            state,
            created_at: UnixNanoseconds(created_at),
            managed: true,
        }
    }

    fn exited_in(sandbox: &str) -> Container {
        Container {
            id: ContainerId::new("c").expect("not empty"),
            sandbox: SandboxId::new(sandbox),
            pod: None,
            name: Some("c".into()),
            state: ContainerState::Exited,
            created_at: UnixNanoseconds(0),
            attempt: 0,
            managed: true,
        }
    }

    /// T77 to T85 and T88 to T90.
    #[test]
    fn sandboxes_are_removed_as_upstream_except_young_and_foreign_ones() {
        type Case<'a> = (&'a str, Vec<Sandbox>, Vec<Container>, bool, &'a [&'a str]);
        let foreign = Sandbox { managed: false, ..sandbox("f", "gone", NotReady, 1) };
        let cases: [Case<'_>; 13] = [
            ("T77", vec![sandbox("a", "gone", NotReady, 1)], vec![], false, &["a"]),
            ("T78", vec![sandbox("a", "p", Ready, 1), sandbox("b", "q", NotReady, 1)], vec![], false, &[]),
            ("T79", vec![sandbox("a", "gone", Ready, 1)], vec![], false, &[]),
            (
                "T80",
                vec![sandbox("a", "p", NotReady, 1), sandbox("b", "p", NotReady, 2)],
                vec![],
                false,
                &["a"],
            ),
            (
                "T81",
                vec![sandbox("a", "p", NotReady, 1), sandbox("b", "p", NotReady, 2)],
                vec![exited_in("a")],
                false,
                &[],
            ),
            (
                "T82",
                vec![sandbox("a", "done", Ready, 1), sandbox("b", "done", NotReady, 2)],
                vec![],
                true,
                &["b"],
            ),
            (
                "T82, without pressure",
                vec![sandbox("a", "done", NotReady, 1), sandbox("b", "done", NotReady, 2)],
                vec![],
                false,
                &["a"],
            ),
            ("T83", vec![sandbox("a", "gone", NotReady, 1)], vec![exited_in("a")], false, &[]),
            (
                "T84",
                vec![
                    sandbox("a-new", "p", Ready, 2),
                    sandbox("a-old", "p", NotReady, 1),
                    sandbox("b-new", "q", NotReady, 2),
                    sandbox("b-old", "q", NotReady, 1),
                    sandbox("c", "gone", NotReady, 1),
                ],
                vec![exited_in("b-new")],
                false,
                &["c", "a-old", "b-old"],
            ),
            ("T85", vec![sandbox("a", "p", NotReady, 2), sandbox("b", "p", Ready, 1)], vec![], false, &[]),
            ("T88", vec![sandbox("a", "gone", NotReady, NOW.0 - MINUTE + 1)], vec![], false, &[]),
            ("T89", vec![sandbox("a", "", NotReady, 1)], vec![], true, &[]),
            ("T90", vec![foreign], vec![], true, &[]),
        ];
        let pods = view(&["p", "q"], &["done"], &["gone"]);
        for (case, sandboxes, containers, pressure, expected) in cases {
            let found = plan(&sandboxes, &containers, &pods, GoDuration(MINUTE), pressure, NOW);
            let ids: Vec<_> = found.iter().map(|removal| removal.id.as_str()).collect();
            assert_eq!(ids, expected, "{case}");
        }
    }

    /// T92: without an oracle, only the rule about the newest sandbox applies.
    #[test]
    fn without_an_oracle_the_newest_stays() {
        let sandboxes =
            [sandbox("a", "x", NotReady, 1), sandbox("b", "x", NotReady, 2), sandbox("c", "y", NotReady, 1)];
        let found = plan(&sandboxes, &[], &PodView::standalone(), GoDuration(MINUTE), true, NOW);
        let id = SandboxId::new("a").expect("not empty");
        assert_eq!(found, [SandboxRemoval { id, reason: SandboxRemovalReason::Superseded }]);
    }
}
