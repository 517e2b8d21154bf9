//! Compares container plans with a reference implementation written for readability: a map of units, and every rule as a loop over
//! it.

use std::collections::BTreeMap;

use gc_types::{GoDuration, UnixNanoseconds};
use proptest::prelude::*;

use super::plan::{
    ContainerKeepReason, ContainerPlan, ContainerPolicy, ContainerRemoval, ContainerRemovalReason, plan,
};
use super::pods::testing::{uid, view};
use super::pods::{KnownPod, OracleState, PodStanding, PodView, RunningContainers};
use super::{Container, ContainerId, ContainerState, PodUid, Sandbox, SandboxId, SandboxState};

const NOW: UnixNanoseconds = UnixNanoseconds(100);

/// Dead containers by pod and name, newest first.
type Units<'a> = BTreeMap<(&'a PodUid, &'a str), Vec<&'a Container>>;

struct Reference<'a> {
    containers: &'a [Container],
    pods: &'a PodView,
    running: RunningContainers,
    policy: ContainerPolicy,
    plan: ContainerPlan,
}

impl<'a> Reference<'a> {
    fn standing(&self, pod: &PodUid) -> PodStanding {
        self.pods.standing(pod, &self.running, NOW)
    }

    fn is_initialising(&self, pod: &PodUid) -> bool {
        let Some(known) = self.pods.known.get(pod) else { return false };
        let is_regular = |name: &&str| !known.init_containers.contains(*name);
        let of_pod = self.containers.iter().filter(|one| one.pod.as_ref() == Some(pod));
        !known.init_containers.is_empty()
            && !of_pod.filter_map(|one| one.name.as_deref()).any(|name| is_regular(&name))
    }

    fn protected(&self, pod: &PodUid, members: usize) -> usize {
        match () {
            () if !self.policy.keep_newest_of_live_pods => 0,
            () if self.is_initialising(pod) => members,
            () => usize::from(self.standing(pod) != PodStanding::Terminated).min(members),
        }
    }

    fn units(&mut self) -> Units<'a> {
        let mut units = Units::new();
        for (place, one) in self.containers.iter().enumerate() {
            let reason = match (&one.pod, one.name.as_deref()) {
                _ if one.state == ContainerState::Running => ContainerKeepReason::Running,
                _ if !one.managed => ContainerKeepReason::Foreign,
                (None, _) | (_, None) => ContainerKeepReason::Unidentified,
                _ if one.created_at > NOW || NOW.since(one.created_at) < self.policy.minimum_age => {
                    ContainerKeepReason::TooYoung
                }
                (Some(pod), Some(name)) => {
                    units.entry((pod, name)).or_default().push(one);
                    continue;
                }
            };
            self.plan.kept.push((place, reason));
        }
        for members in units.values_mut() {
            if members.iter().all(|one| one.created_at.0 > 0) {
                members.sort_by_key(|one| (-one.created_at.0, -i64::from(one.attempt), &one.id));
            } else {
                members.sort_by_key(|one| (-i64::from(one.attempt), -one.created_at.0, &one.id));
            }
        }
        units
    }

    fn place(&self, one: &Container) -> usize {
        self.containers.iter().position(|other| other.id == one.id).expect("listed")
    }

    fn remove(&mut self, one: &Container, reason: ContainerRemovalReason) {
        let stop_first = one.state == ContainerState::Unknown;
        self.plan.removals.push(ContainerRemoval { place: self.place(one), reason, stop_first });
    }

    fn trim(&mut self, units: &mut Units<'a>, limit: usize, reason: ContainerRemovalReason) {
        for ((pod, _), members) in units.iter_mut() {
            let keep = limit.max(self.protected(pod, members.len()));
            while members.len() > keep {
                // The oldest of the surplus comes first, then the newer ones.
                let oldest = members.pop().expect("one more than is kept");
                self.remove(oldest, reason);
            }
        }
        units.retain(|_, members| !members.is_empty());
    }

    fn run(mut self, pressure: bool) -> ContainerPlan {
        let mut units = self.units();
        for (key, members) in units.clone() {
            let reason = match self.standing(key.0) {
                PodStanding::Gone => ContainerRemovalReason::PodGone,
                PodStanding::Terminated if pressure => ContainerRemovalReason::PodFinished,
                _ => continue,
            };
            members.iter().rev().for_each(|one| self.remove(one, reason));
            units.remove(&key);
        }
        if let Some(limit) = self.policy.maximum_per_pod_container {
            self.trim(&mut units, limit as usize, ContainerRemovalReason::PerPodContainerLimit);
        }
        let count = |units: &Units<'_>| units.values().map(Vec::len).sum::<usize>();
        if let Some(limit) = self.policy.maximum_containers.map(|limit| limit as usize)
            && count(&units) > limit
        {
            let each = (limit / units.len()).max(1);
            self.trim(&mut units, each, ContainerRemovalReason::NodeLimit);
            let mut removable: Vec<&Container> = units
                .iter()
                .flat_map(|((pod, _), members)| &members[self.protected(pod, members.len())..])
                .copied()
                .collect();
            removable.sort_by(|a, b| a.created_at.cmp(&b.created_at).then(b.id.cmp(&a.id)));
            let surplus = count(&units).saturating_sub(limit);
            self.plan.over_node_limit = surplus.saturating_sub(removable.len());
            for one in removable.into_iter().take(surplus) {
                self.remove(one, ContainerRemovalReason::NodeLimit);
                for members in units.values_mut() {
                    members.retain(|other| other.id != one.id);
                }
            }
        }
        for ((pod, _), members) in &units {
            let protected = self.protected(pod, members.len());
            for (place, one) in members.iter().enumerate() {
                let reason = match () {
                    () if place >= protected => ContainerKeepReason::WithinLimits,
                    () if self.is_initialising(pod) => ContainerKeepReason::InitialisationUnderWay,
                    () => ContainerKeepReason::NewestOfLivePod,
                };
                self.plan.kept.push((self.place(one), reason));
            }
        }
        self.plan
    }
}

fn containers() -> impl Strategy<Value = Vec<Container>> {
    let pod = prop::sample::select(vec!["live", "initialising", "done", "gone", "late", "evicted", ""]);
    let name = prop::sample::select(vec![Some("setup"), Some("main"), Some("sidecar"), None]);
    let state = prop::sample::select(vec![
        ContainerState::Created,
        ContainerState::Running,
        ContainerState::Exited,
        ContainerState::Exited,
        ContainerState::Unknown,
    ]);
    let times = prop_oneof![4 => 1_i64..20, 1 => Just(0), 1 => 95_i64..105];
    let one = (pod, name, state, times, 0_u32..3, prop::bool::weighted(0.9));
    prop::collection::vec(one, 0..50).prop_map(|specs| {
        let make = |(number, (pod, name, state, created, attempt, managed)): (
            usize,
            (&str, Option<&str>, _, _, _, _),
        )| Container {
            // Not in list order, so that ties matter.
            id: ContainerId::new(&format!("id-{}", (number * 37) % 101)).expect("not empty"),
            sandbox: None,
            pod: PodUid::new(pod),
            name: name.map(Into::into),
            state,
            created_at: UnixNanoseconds(created),
            attempt,
            managed,
        };
        specs.into_iter().enumerate().map(make).collect()
    })
}

fn pods() -> PodView {
    let mut pods = view(&["live", "initialising"], &["done"], &["gone"]);
    pods.known.insert(uid("evicted"), KnownPod { evicted: true, ..KnownPod::default() });
    for pod in ["initialising", "live"] {
        let known = KnownPod { init_containers: ["setup".into()].into(), ..KnownPod::default() };
        pods.known.insert(uid(pod), known);
    }
    pods
}

proptest! {
    #[test]
    fn a_plan_is_that_of_the_rules_as_they_read(
        containers in containers(),
        ready in prop::bool::ANY,
        (per, all) in (prop::option::of(0_u32..4), prop::option::of(0_u32..20)),
        (keep, pressure, synced) in (prop::bool::ANY, prop::bool::ANY, prop::bool::weighted(0.8)),
        minimum in prop::sample::select(vec![0_i64, 85, 90]),
    ) {
        let policy = ContainerPolicy {
            minimum_age: GoDuration(minimum),
            maximum_per_pod_container: per,
            maximum_containers: all,
            keep_newest_of_live_pods: keep,
        };
        let mut pods = pods();
        if !synced {
            pods.state = OracleState::Unsynced { why: "stale".into() };
        }
        let sandboxes = [Sandbox {
            id: SandboxId::new("s").expect("not empty"),
            pod: PodUid::new("gone"),
            state: if ready { SandboxState::Ready } else { SandboxState::NotReady },
            created_at: UnixNanoseconds(1),
            managed: true,
        }];
        let running = RunningContainers::of(&containers, &sandboxes);
        let reference = Reference { containers: &containers, pods: &pods, running, policy, plan: ContainerPlan::default() };
        let expected = reference.run(pressure);
        prop_assert_eq!(plan(&containers, &sandboxes, &pods, policy, pressure, NOW), expected);
    }
}
