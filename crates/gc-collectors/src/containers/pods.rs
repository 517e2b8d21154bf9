//! Knowledge about pods, which decides whether their remains may be removed (spec `node-gc.md`, sections 9.1 and 14.4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{GoDuration, UnixNanoseconds};
use hashbrown::HashSet;

use super::{Container, ContainerState, PodUid, Sandbox, SandboxState};
use crate::FixedState;

/// Source of the knowledge about pods, and whether it can be trusted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OracleState {
    /// Complete and current: a pod that is not in it does not exist.
    Synced,
    /// Partial, stale or failing, so it proves nothing.
    Unsynced {
        /// Human-readable reason.
        why: String,
    },
    /// Absent, so only limits apply.
    Standalone,
}

/// One pod that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPod {
    /// True for phase Succeeded or Failed.
    pub finished: bool,
    /// True for phase Failed with reason `Evicted`.
    pub evicted: bool,
    /// True if it has a deletionTimestamp.
    pub deleting: bool,
    /// Names of its init containers (restartable ones included).
    pub init_containers: BTreeSet<Arc<str>>,
}

/// Standing of a pod, which decides about its remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStanding {
    /// The pod may still need them.
    Live,
    /// All of its containers have stopped for good, but the pod object still exists: they are removed under pressure only.
    Terminated,
    /// The pod is gone, or evicted, or deleted with everything stopped.
    Gone,
    /// Unknown: treated as live, and not even disk pressure removes its containers.
    Undetermined,
}

/// The pods of this node as currently known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// State of the knowledge.
    pub state: OracleState,
    /// The pods that exist, by the UID that the runtime knows.
    pub known: BTreeMap<PodUid, KnownPod>,
    /// Time since which each listed but unknown UID has been missing from a synced oracle.
    pub unknown_since: BTreeMap<PodUid, UnixNanoseconds>,
    /// Minimum time that a UID must be unknown before its pod counts as gone.
    pub safety_delay: GoDuration,
}

/// Running containers and sandboxes by pod, from one listing. Never iterated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningContainers {
    containers: HashSet<PodUid, FixedState>,
    sandboxes: HashSet<PodUid, FixedState>,
}

impl RunningContainers {
    /// Collects them from a listing. A container in an unknown state may be running.
    #[must_use]
    pub fn of(containers: &[Container], sandboxes: &[Sandbox]) -> Self {
        let runs = |c: &&Container| matches!(c.state, ContainerState::Running | ContainerState::Unknown);
        Self {
            containers: containers.iter().filter(runs).filter_map(|c| c.pod.clone()).collect(),
            sandboxes: sandboxes
                .iter()
                .filter(|s| s.state == SandboxState::Ready)
                .filter_map(|s| s.pod.clone())
                .collect(),
        }
    }
}

impl PodView {
    /// Creates a view without knowledge, under which only limits apply.
    #[must_use]
    pub fn standalone() -> Self {
        Self {
            state: OracleState::Standalone,
            known: BTreeMap::new(),
            unknown_since: BTreeMap::new(),
            safety_delay: GoDuration::ZERO,
        }
    }

    /// Returns the standing of a pod.
    #[must_use]
    pub fn standing(&self, pod: &PodUid, running: &RunningContainers, now: UnixNanoseconds) -> PodStanding {
        if self.state != OracleState::Synced {
            return PodStanding::Undetermined;
        }
        let sandbox_runs = running.sandboxes.contains(pod);
        let Some(known) = self.known.get(pod) else {
            // The kubelet stops pods that it does not know. If it leaves a sandbox running, it knows better than the oracle (for
            // example a static pod whose mirror could not be created).
            let gone =
                !sandbox_runs && self.unknown_since.get(pod).is_some_and(|&since| self.is_long(since, now));
            return if gone { PodStanding::Gone } else { PodStanding::Undetermined };
        };
        let containers_run = running.containers.contains(pod);
        if known.evicted || known.deleting && !containers_run && !sandbox_runs {
            PodStanding::Gone
        } else if known.finished && !containers_run {
            PodStanding::Terminated
        } else {
            PodStanding::Live
        }
    }

    /// Reports whether a UID has been unknown for long enough.
    fn is_long(&self, since: UnixNanoseconds, now: UnixNanoseconds) -> bool {
        now.since(since) >= self.safety_delay
    }

    /// Returns how many of the listed UIDs are unknown, but not for long enough yet.
    #[must_use]
    pub fn awaited(&self, now: UnixNanoseconds) -> usize {
        self.unknown_since.values().filter(|since| !self.is_long(**since, now)).count()
    }

    /// Reports whether the existing pods seem to be those of another node, because the kubelet's sandboxes run here and none of
    /// their pods is among them. (Or all of them were just deleted, in which case nothing will run here soon.)
    #[must_use]
    pub fn is_of_another_node(&self, sandboxes: &[Sandbox]) -> bool {
        let runs = |sandbox: &&Sandbox| sandbox.managed && sandbox.state == SandboxState::Ready;
        let mut running = sandboxes.iter().filter(runs).filter_map(|sandbox| sandbox.pod.as_ref()).peekable();
        running.peek().is_some() && !running.any(|pod| self.known.contains_key(pod))
    }

    /// Records which of the listed UIDs are missing from a synced oracle, and since when; forgets those that are no longer listed.
    /// Call it once per listing. Bounded by the runtime's listing.
    pub fn record_unknown(&mut self, listed: &BTreeSet<PodUid>, now: UnixNanoseconds) {
        if self.state != OracleState::Synced {
            // While the oracle is not synced, no UID comes closer to removal.
            self.unknown_since.clear();
            return;
        }
        let before = std::mem::take(&mut self.unknown_since);
        for pod in listed.iter().filter(|pod| !self.known.contains_key(*pod)) {
            let since = before.get(pod).copied().unwrap_or(now).min(now);
            self.unknown_since.insert(pod.clone(), since);
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) fn uid(text: &str) -> PodUid {
        PodUid::new(text).expect("not empty")
    }

    /// Returns a synced view in which `live` pods exist, `finished` ones exist and are finished, and `gone` ones have long been
    /// unknown.
    pub(crate) fn view(live: &[&str], finished: &[&str], gone: &[&str]) -> PodView {
        let known =
            |names: &[&str], pod: KnownPod| names.iter().map(|n| (uid(n), pod.clone())).collect::<Vec<_>>();
        let finished = known(finished, KnownPod { finished: true, ..KnownPod::default() });
        PodView {
            state: OracleState::Synced,
            known: known(live, KnownPod::default()).into_iter().chain(finished).collect(),
            unknown_since: gone.iter().map(|n| (uid(n), UnixNanoseconds(i64::MIN))).collect(),
            safety_delay: GoDuration::from_seconds(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SandboxId;
    use super::testing::{uid, view};
    use super::*;

    const fn at(time: i64) -> UnixNanoseconds {
        UnixNanoseconds(time)
    }

    #[test]
    fn a_standing_needs_a_sure_oracle() {
        let idle = RunningContainers::default();
        let busy = RunningContainers {
            containers: [uid("p")].into_iter().collect(),
            sandboxes: [uid("p")].into_iter().collect(),
        };
        let pod =
            |finished, evicted, deleting| KnownPod { finished, evicted, deleting, ..KnownPod::default() };
        for (case, known, running, expected) in [
            ("alive", pod(false, false, false), &idle, PodStanding::Live),
            ("finished", pod(true, false, false), &idle, PodStanding::Terminated),
            ("finished, still running", pod(true, false, false), &busy, PodStanding::Live),
            ("evicted", pod(true, true, false), &busy, PodStanding::Gone),
            ("deleting", pod(false, false, true), &idle, PodStanding::Gone),
            ("deleting, still running", pod(false, false, true), &busy, PodStanding::Live),
        ] {
            let mut view = view(&[], &[], &[]);
            view.known.insert(uid("p"), known);
            assert_eq!(view.standing(&uid("p"), running, at(0)), expected, "{case}");
            for state in [OracleState::Standalone, OracleState::Unsynced { why: "stale".into() }] {
                view.state = state;
                assert_eq!(view.standing(&uid("p"), running, at(0)), PodStanding::Undetermined, "{case}");
            }
        }
    }

    fn sandbox(pod: &str, state: SandboxState, managed: bool) -> Sandbox {
        Sandbox {
            id: SandboxId::new(&format!("of-{pod}")).expect("not empty"),
            pod: PodUid::new(pod),
            state,
            created_at: at(1),
            managed,
        }
    }

    /// A pod that the kubelet keeps running is never gone, whatever the oracle says; and an oracle that knows none of the running
    /// pods is about another node.
    #[test]
    fn what_runs_is_not_gone() {
        use SandboxState::{NotReady, Ready};
        let pods = view(&["known"], &[], &["stranger"]);
        for (state, expected) in [(Ready, PodStanding::Undetermined), (NotReady, PodStanding::Gone)] {
            let running = RunningContainers::of(&[], &[sandbox("stranger", state, true)]);
            assert_eq!(pods.standing(&uid("stranger"), &running, at(0)), expected, "{state:?}");
        }
        for (case, sandboxes, elsewhere) in [
            ("nothing runs", vec![sandbox("stranger", NotReady, true)], false),
            (
                "one that is known runs",
                vec![sandbox("stranger", Ready, true), sandbox("known", Ready, true)],
                false,
            ),
            (
                "only unknown ones run",
                vec![sandbox("stranger", Ready, true), sandbox("known", NotReady, true)],
                true,
            ),
            ("not the kubelet's", vec![sandbox("stranger", Ready, false)], false),
        ] {
            assert_eq!(pods.is_of_another_node(&sandboxes), elsewhere, "{case}");
        }
    }

    /// T92, and the safety delay of an unknown UID.
    #[test]
    fn an_unknown_pod_is_gone_only_after_the_delay() {
        let mut view = view(&["known"], &[], &[]);
        let listed = [uid("known"), uid("stranger")].into();
        view.record_unknown(&listed, at(1_000));
        let later = at(1_000 + view.safety_delay.0);
        let standing =
            |view: &PodView, when| view.standing(&uid("stranger"), &RunningContainers::default(), when);
        assert_eq!(
            (standing(&view, at(later.0 - 1)), view.awaited(at(later.0 - 1))),
            (PodStanding::Undetermined, 1)
        );
        assert_eq!((standing(&view, later), view.awaited(later)), (PodStanding::Gone, 0));
        view.state = OracleState::Unsynced { why: "connection lost".into() };
        view.record_unknown(&listed, later);
        view.state = OracleState::Synced;
        view.record_unknown(&listed, later);
        assert_eq!(standing(&view, later), PodStanding::Undetermined, "an outage restarts the delay");
        view.record_unknown(&[uid("known")].into(), later);
        assert!(view.unknown_since.is_empty());
    }
}
