//! Dead containers (spec `node-gc.md`, sections 9.2 to 9.6 and 12.3).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use gc_types::{GoDuration, UnixNanoseconds};
use hashbrown::HashMap;

use super::pods::{PodStanding, PodView, RunningContainers};
use super::{Container, ContainerState, PodUid, Sandbox};
use crate::FixedState;
use crate::numbers::Numbers;

/// Number of dead containers to keep, and their minimum age before removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// `MinAge`, counted from creation; zero means no limit.
    pub minimum_age: GoDuration,
    /// `MaxPerPodContainer`: per pod and container name; `None` means no limit.
    pub maximum_per_pod_container: Option<u32>,
    /// `MaxContainers`: on the node; `None` means no limit.
    pub maximum_containers: Option<u32>,
    /// True if the newest dead container of each name in a live pod is kept regardless of the limits. The kubelet reads restart
    /// counts, exit codes and the progress of initialization from it, and runs it again if it is missing. Turning this off matches
    /// upstream, and has to be chosen explicitly.
    pub keep_newest_of_live_pods: bool,
}

impl Default for ContainerPolicy {
    fn default() -> Self {
        Self {
            minimum_age: GoDuration::ZERO,
            maximum_per_pod_container: Some(1),
            maximum_containers: None,
            keep_newest_of_live_pods: true,
        }
    }
}

/// Reason why a container is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerRemovalReason {
    /// Its pod is gone.
    PodGone,
    /// Its pod is finished, and disk space is needed.
    PodFinished,
    /// There are more dead containers of this name than `MaxPerPodContainer`.
    PerPodContainerLimit,
    /// There are more dead containers on the node than `MaxContainers`.
    NodeLimit,
}

/// One container to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRemoval {
    /// Its index in the list that the plan was made from.
    pub place: usize,
    /// Reason.
    pub reason: ContainerRemovalReason,
    /// True if it may be running: it must be stopped first, and stays if that fails.
    pub stop_first: bool,
}

/// Reason why a container is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerKeepReason {
    /// Running.
    Running,
    /// Younger than `MinAge`.
    TooYoung,
    /// The kubelet did not create it.
    Foreign,
    /// Has no name, so no limit applies to it.
    Unidentified,
    /// Within the limits.
    WithinLimits,
    /// Newest dead container of its name in a pod that may need it.
    NewestOfLivePod,
    /// Its pod has not started a regular container yet, and this container shows how far initialization has come.
    InitialisationUnderWay,
}

/// Containers to remove, in order, and those to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerPlan {
    /// In the order of removal.
    pub removals: Vec<ContainerRemoval>,
    /// Indexes of kept containers in the list, with the reason.
    pub kept: Vec<(usize, ContainerKeepReason)>,
    /// Number of containers beyond `MaxContainers` that are kept because live pods need them.
    pub over_node_limit: usize,
}

/// Plans one pass. Under `pressure`, the leftovers of finished pods are removed as well.
#[must_use]
pub fn plan(
    containers: &[Container],
    sandboxes: &[Sandbox],
    pods: &PodView,
    policy: ContainerPolicy,
    pressure: bool,
    now: UnixNanoseconds,
) -> ContainerPlan {
    let mut planner = Planner::new(containers, sandboxes, pods, policy, now);
    planner.take_pods_that_are_gone(pressure);
    planner.enforce_per_pod_container_limit();
    planner.enforce_node_limit();
    planner.finish()
}

/// Dead containers of one name in one pod.
struct Unit {
    /// Index in [`Planner::pods`].
    pod: usize,
    /// Number of its name.
    name: usize,
    /// Indexes in [`Planner::members`], newest first.
    members: Range<usize>,
}

/// A dead container with its sort key, so that sorting a hundred thousand of them touches nothing else.
#[derive(Clone, Copy, Default)]
struct Member {
    created_at: UnixNanoseconds,
    attempt: u32,
    /// Index in [`Planner::containers`].
    place: usize,
}

/// Facts about a pod with containers, as far as the plan uses them.
struct Owner<'a> {
    standing: PodStanding,
    /// Its init containers, while no regular container is listed.
    initialising: Option<&'a BTreeSet<Arc<str>>>,
}

struct Planner<'a> {
    policy: ContainerPolicy,
    containers: &'a [Container],
    pods: Vec<Owner<'a>>,
    units: Vec<Unit>,
    members: Vec<Member>,
    plan: ContainerPlan,
}

impl<'a> Planner<'a> {
    fn new(
        containers: &'a [Container],
        sandboxes: &[Sandbox],
        pods: &'a PodView,
        policy: ContainerPolicy,
        now: UnixNanoseconds,
    ) -> Self {
        let running = RunningContainers::of(containers, sandboxes);
        let (mut uids, mut names) = (Numbers::new(), Numbers::new());
        let mut owners: Vec<Owner<'_>> = Vec::new();
        let mut places: HashMap<(usize, usize), usize, FixedState> = HashMap::default();
        let mut units: Vec<Unit> = Vec::new();
        let mut dead = Vec::with_capacity(containers.len());
        let mut plan = ContainerPlan::default();
        for (place, container) in containers.iter().enumerate() {
            let name = container.name.as_deref();
            let owner = container.pod.as_ref().map(|uid| {
                let owner = uids.of(uid);
                if owner == owners.len() {
                    owners.push(Owner::new(uid, pods, &running, now));
                }
                owners[owner].observe(name);
                owner
            });
            match unit_of(container, owner, policy, now) {
                Ok((pod, name)) => {
                    let name = names.of(name);
                    let unit = *places.entry((pod, name)).or_insert_with(|| {
                        units.push(Unit { pod, name, members: 0..0 });
                        units.len() - 1
                    });
                    let Container { created_at, attempt, .. } = *container;
                    dead.push((unit, Member { created_at, attempt, place }));
                }
                Err(reason) => plan.kept.push((place, reason)),
            }
        }
        let mut members = side_by_side(&mut units, &dead);
        for unit in &units {
            sort_newest_first(&mut members[unit.members.clone()], containers);
        }
        let (uids, names) = (uids.ranks(), names.ranks());
        units.sort_unstable_by_key(|unit| (uids[unit.pod], names[unit.name]));
        Self { policy, containers, pods: owners, units, members, plan }
    }

    fn take_pods_that_are_gone(&mut self, pressure: bool) {
        for unit in std::mem::take(&mut self.units) {
            let reason = match self.pods[unit.pod].standing {
                PodStanding::Gone => ContainerRemovalReason::PodGone,
                PodStanding::Terminated if pressure => ContainerRemovalReason::PodFinished,
                _ => {
                    self.units.push(unit);
                    continue;
                }
            };
            self.remove(unit.members, reason);
        }
    }

    /// Returns the number of a unit's newest containers that no limit may remove.
    fn protected(&self, unit: &Unit) -> usize {
        let pod = &self.pods[unit.pod];
        if !self.policy.keep_newest_of_live_pods {
            0
        } else if pod.initialising.is_some() {
            unit.members.len()
        } else {
            // The kubelet needs nothing more from a finished pod.
            usize::from(pod.standing != PodStanding::Terminated)
        }
    }

    fn enforce_per_pod_container_limit(&mut self) {
        if let Some(limit) = self.policy.maximum_per_pod_container {
            self.trim_units(as_usize(limit), ContainerRemovalReason::PerPodContainerLimit);
        }
    }

    fn trim_units(&mut self, limit: usize, reason: ContainerRemovalReason) {
        let mut units = std::mem::take(&mut self.units);
        for unit in &mut units {
            let keep = limit.max(self.protected(unit)).min(unit.members.len());
            let end = unit.members.start + keep;
            self.remove(end..unit.members.end, reason);
            unit.members.end = end;
        }
        units.retain(|unit| !unit.members.is_empty());
        self.units = units;
    }

    fn count(&self) -> usize {
        self.units.iter().map(|unit| unit.members.len()).sum()
    }

    fn enforce_node_limit(&mut self) {
        let Some(limit) = self.policy.maximum_containers.map(as_usize) else { return };
        if self.count() <= limit {
            return;
        }
        let each = (limit / self.units.len()).max(1);
        self.trim_units(each, ContainerRemovalReason::NodeLimit);
        let mut surplus = self.count().saturating_sub(limit);
        if surplus == 0 {
            return;
        }
        let mut removable = Vec::new();
        for unit in &self.units {
            let first = unit.members.start + self.protected(unit).min(unit.members.len());
            removable.extend_from_slice(&self.members[first..unit.members.end]);
        }
        let id = |member: &Member| &self.containers[member.place].id;
        removable.sort_unstable_by(|a, b| a.created_at.cmp(&b.created_at).then_with(|| id(b).cmp(id(a))));
        removable.truncate(surplus);
        surplus -= removable.len();
        self.forget(&removable);
        let reason = ContainerRemovalReason::NodeLimit;
        let removals: Vec<_> = removable.iter().map(|member| self.removal(member, reason)).collect();
        self.plan.removals.extend(removals);
        self.plan.over_node_limit = surplus;
    }

    /// Removes members from their units.
    fn forget(&mut self, going: &[Member]) {
        let mut removed = vec![false; self.containers.len()];
        for member in going {
            removed[member.place] = true;
        }
        for unit in &mut self.units {
            let mut end = unit.members.start;
            for place in unit.members.clone() {
                let member = self.members[place];
                if !removed[member.place] {
                    self.members[end] = member;
                    end += 1;
                }
            }
            unit.members.end = end;
        }
    }

    fn removal(&self, member: &Member, reason: ContainerRemovalReason) -> ContainerRemoval {
        let stop_first = self.containers[member.place].state == ContainerState::Unknown;
        ContainerRemoval { place: member.place, reason, stop_first }
    }

    /// Removes these members, the oldest first.
    fn remove(&mut self, members: Range<usize>, reason: ContainerRemovalReason) {
        for place in members.rev() {
            let removal = self.removal(&self.members[place], reason);
            self.plan.removals.push(removal);
        }
    }

    fn finish(mut self) -> ContainerPlan {
        for unit in std::mem::take(&mut self.units) {
            let protected = self.protected(&unit);
            let initialising = self.pods[unit.pod].initialising.is_some();
            for (age, member) in self.members[unit.members].iter().enumerate() {
                let reason = match age {
                    age if age >= protected => ContainerKeepReason::WithinLimits,
                    _ if initialising => ContainerKeepReason::InitialisationUnderWay,
                    _ => ContainerKeepReason::NewestOfLivePod,
                };
                self.plan.kept.push((member.place, reason));
            }
        }
        self.plan
    }
}

/// Groups members by unit, in the order of the list.
fn side_by_side(units: &mut [Unit], dead: &[(usize, Member)]) -> Vec<Member> {
    for (unit, _) in dead {
        units[*unit].members.end += 1;
    }
    let mut start = 0;
    for unit in units.iter_mut() {
        let count = unit.members.end;
        unit.members = start..start;
        start += count;
    }
    let mut members = vec![Member::default(); dead.len()];
    for (unit, member) in dead {
        let end = &mut units[*unit].members.end;
        members[*end] = *member;
        *end += 1;
    }
    members
}

/// Sorts by creation time. If the runtime does not know it (state unknown, created at zero), the attempt decides which is the
/// newest; by its time it would be the oldest, and the first to be removed.
fn sort_newest_first(members: &mut [Member], containers: &[Container]) {
    let timed = members.iter().all(|member| member.created_at.0 > 0);
    let key = |member: &Member| {
        let by_time = if timed { member.created_at.0 } else { 0 };
        Reverse((by_time, member.attempt, member.created_at))
    };
    let id = |member: &Member| &containers[member.place].id;
    members.sort_unstable_by(|a, b| key(a).cmp(&key(b)).then_with(|| id(a).cmp(id(b))));
}

fn as_usize(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Returns the unit of a dead, old enough, managed container of this owner; otherwise the reason why it is kept.
fn unit_of(
    container: &Container,
    owner: Option<usize>,
    policy: ContainerPolicy,
    now: UnixNanoseconds,
) -> Result<(usize, &str), ContainerKeepReason> {
    if container.state == ContainerState::Running {
        return Err(ContainerKeepReason::Running);
    }
    if !container.managed {
        return Err(ContainerKeepReason::Foreign);
    }
    let (Some(owner), Some(name)) = (owner, &container.name) else {
        return Err(ContainerKeepReason::Unidentified);
    };
    // A container created in the future has no age, so not even a minimum of zero is reached.
    if container.created_at > now || now.since(container.created_at) < policy.minimum_age {
        return Err(ContainerKeepReason::TooYoung);
    }
    Ok((owner, &**name))
}

impl<'a> Owner<'a> {
    fn new(uid: &PodUid, pods: &'a PodView, running: &RunningContainers, now: UnixNanoseconds) -> Self {
        let init_containers = pods.known.get(uid).map(|known| &known.init_containers);
        Self {
            standing: pods.standing(uid, running, now),
            initialising: init_containers.filter(|names| !names.is_empty()),
        }
    }

    /// Notes a listed container: a regular one, in any state, proves that initialization is complete.
    fn observe(&mut self, container: Option<&str>) {
        if let (Some(init_containers), Some(name)) = (self.initialising, container)
            && !init_containers.contains(name)
        {
            self.initialising = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ContainerId;
    use super::super::pods::testing::{uid, view};
    use super::super::pods::{KnownPod, OracleState};
    use super::*;
    use ContainerState::{Exited, Running as Runs, Unknown};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const HOUR: i64 = 3_600_000_000_000;
    const NOW: UnixNanoseconds = UnixNanoseconds(1_000 * HOUR);

    /// Parses `pod/name/number` into a container created `number` nanoseconds after the epoch, so a larger number is newer.
    fn container(spec: &str, state: ContainerState) -> Container {
        let parts: Vec<&str> = spec.split('/').collect();
        Container {
            id: ContainerId::new(spec).expect("not empty"),
            sandbox: None,
            pod: PodUid::new(parts[0]),
            name: Some(parts[1].into()),
            state,
            created_at: UnixNanoseconds(parts[2].parse().expect("a number")),
            attempt: 0,
            managed: true,
        }
    }

    fn dead(specs: &[&str]) -> Vec<Container> {
        specs.iter().map(|spec| container(spec, Exited)).collect()
    }

    fn limits(per: Option<u32>, all: Option<u32>) -> ContainerPolicy {
        ContainerPolicy {
            maximum_per_pod_container: per,
            maximum_containers: all,
            keep_newest_of_live_pods: false,
            ..ContainerPolicy::default()
        }
    }

    fn removed(
        containers: &[Container],
        pods: &PodView,
        policy: ContainerPolicy,
        pressure: bool,
    ) -> Vec<String> {
        let plan = plan(containers, &[], pods, policy, pressure, NOW);
        assert_eq!(plan.removals.len() + plan.kept.len(), containers.len(), "each has one verdict");
        plan.removals.iter().map(|removal| containers[removal.place].id.to_string()).collect()
    }

    type Case<'a> = (&'a str, Vec<Container>, Option<u32>, Option<u32>, &'a [&'a str]);

    /// T60 to T69: upstream's own table of limits, all pods live, nothing protected.
    #[test]
    fn limits_equal_upstreams() {
        let five = ["p/a/1", "p/a/2", "p/a/3", "p/a/4", "p/a/5"];
        let three_by_three =
            ["p/a/1", "p/a/2", "p/a/3", "q/b/4", "q/b/5", "q/b/6", "r/c/7", "r/c/8", "r/c/9"];
        let five_by_two =
            ["p/a/1", "p/a/2", "q/b/3", "q/b/4", "r/c/5", "r/c/6", "s/d/7", "s/d/8", "t/e/9", "t/e/10"];
        let eight =
            ["p/a/1", "p/a/2", "q/b/3", "q/b/4", "r/c/5", "s/d/6", "t/e/7", "u/f/8", "v/g/9", "w/h/10"];
        let cases: [Case<'_>; 8] = [
            ("T60", dead(&["p/a/1"]), Some(1), Some(0), &["p/a/1"]),
            ("T61", dead(&five), None, Some(4), &["p/a/1"]),
            ("T62", dead(&five[..3]), None, None, &[]),
            ("T64", dead(&five[..3]), Some(2), Some(6), &["p/a/1"]),
            ("T66", dead(&five[..2]), Some(2), None, &[]),
            ("T67", dead(&three_by_three), Some(2), Some(6), &["p/a/1", "q/b/4", "r/c/7"]),
            ("T68", dead(&five_by_two), Some(2), Some(6), &["p/a/1", "q/b/3", "r/c/5", "s/d/7", "t/e/9"]),
            ("T69", dead(&eight), Some(2), Some(6), &["p/a/1", "q/b/3", "p/a/2", "q/b/4"]),
        ];
        let everybody = view(&["p", "q", "r", "s", "t", "u", "v", "w"], &[], &[]);
        for (case, containers, per, all, expected) in cases {
            assert_eq!(removed(&containers, &everybody, limits(per, all), false), expected, "{case}");
        }
        let with_a_running_one = [dead(&["p/a/1", "p/a/2"]), vec![container("p/a/3", Runs)]].concat();
        assert!(removed(&with_a_running_one, &everybody, limits(Some(2), None), false).is_empty(), "T65");
    }

    /// T63 and T71: MinAge counts from creation, also for deleted pods.
    #[test]
    fn young_containers_stay() {
        let policy = ContainerPolicy { minimum_age: GoDuration(HOUR), ..limits(Some(0), None) };
        let mut containers = dead(&["gone/a/1", "gone/b/2", "gone/c/3"]);
        containers[2].created_at = NOW;
        assert_eq!(removed(&containers, &view(&[], &[], &["gone"]), policy, false), ["gone/a/1", "gone/b/2"]);
        containers[1].created_at = UnixNanoseconds(NOW.0 - HOUR);
        assert_eq!(
            removed(&containers, &view(&[], &[], &["gone"]), policy, false).len(),
            2,
            "exactly old enough"
        );
        containers[1].created_at = UnixNanoseconds(NOW.0 + 1);
        let anything = limits(Some(0), Some(0));
        assert_eq!(
            removed(&containers, &view(&[], &[], &["gone"]), anything, false).len(),
            2,
            "future: no candidate"
        );
    }

    /// T70 and T72: under pressure, the leftovers of finished pods are removed.
    #[test]
    fn pressure_takes_what_finished_pods_left() {
        let containers =
            [dead(&["live/a/1", "done/a/2", "done/b/3"]), vec![container("live/a/4", Runs)]].concat();
        let mut pods = view(&["live"], &["done"], &["gone"]);
        let policy = ContainerPolicy::default();
        assert_eq!(removed(&containers, &pods, policy, true), ["done/a/2", "done/b/3"]);
        assert!(removed(&containers, &pods, policy, false).is_empty());
        pods.state = OracleState::Unsynced { why: "not yet".into() };
        assert!(removed(&[containers, dead(&["gone/a/1"])].concat(), &pods, policy, true).is_empty(), "T72");
    }

    /// T73: an unknown container may be running, so it is stopped first.
    #[test]
    fn an_unknown_container_is_stopped_first() {
        let containers = [container("p/a/1", Unknown)];
        let plan = plan(&containers, &[], &view(&["p"], &[], &[]), limits(Some(0), Some(0)), false, NOW);
        let reason = ContainerRemovalReason::PerPodContainerLimit;
        assert_eq!(plan.removals, [ContainerRemoval { place: 0, reason, stop_first: true }]);
    }

    /// A runtime that has lost a container's record does not know when it was created, so the attempt decides.
    #[test]
    fn without_a_time_the_attempt_decides_which_is_newest() {
        let run = |attempt, state, created_at| Container {
            attempt,
            id: ContainerId::new(&format!("run-{attempt}")).expect("not empty"),
            ..container(&format!("p/a/{created_at}"), state)
        };
        let pods = view(&["p"], &[], &[]);
        for (containers, expected) in [
            ([run(4, Exited, 40), run(5, Unknown, 0)], "run-4"),
            ([run(4, Unknown, 0), run(5, Exited, 50)], "run-4"),
            ([run(5, Unknown, 0), run(4, Unknown, 0)], "run-4"),
            ([run(5, Exited, 40), run(4, Exited, 50)], "run-5"),
            ([run(5, Exited, 40), run(4, Exited, 40)], "run-4"),
        ] {
            assert_eq!(
                removed(&containers, &pods, ContainerPolicy::default(), false),
                [expected],
                "{containers:?}"
            );
        }
    }

    /// The hard rule of 12.3: even a node limit of zero does not remove what a live pod needs.
    #[test]
    fn what_a_live_pod_needs_stays() {
        let containers = dead(&["live/a/1", "live/a/2", "done/a/3", "gone/a/4"]);
        let policy = ContainerPolicy { keep_newest_of_live_pods: true, ..limits(Some(0), Some(0)) };
        let found = plan(&containers, &[], &view(&["live"], &["done"], &["gone"]), policy, false, NOW);
        let ids: Vec<_> =
            found.removals.iter().map(|r| (containers[r.place].id.as_str(), r.reason)).collect();
        assert_eq!(
            ids,
            [
                ("gone/a/4", ContainerRemovalReason::PodGone),
                ("done/a/3", ContainerRemovalReason::PerPodContainerLimit),
                ("live/a/1", ContainerRemovalReason::PerPodContainerLimit),
            ]
        );
        assert_eq!(found.kept.len(), 1);
        assert_eq!((found.kept[0].1, found.over_node_limit), (ContainerKeepReason::NewestOfLivePod, 1));
    }

    /// T168 to T171: regardless of limits and disk usage, a live pod keeps what the kubelet reads.
    #[test]
    fn no_limit_and_no_pressure_takes_what_a_live_pod_needs() {
        let runs: Vec<String> = (1..=10).map(|run| format!("live/main/{run}")).collect();
        let ten: Vec<&str> = runs.iter().map(String::as_str).collect();
        let known = |init: &[&str]| KnownPod {
            init_containers: init.iter().map(|&name| name.into()).collect(),
            ..KnownPod::default()
        };
        type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);
        let cases: [Case<'_>; 4] = [
            ("T168: its only container has ended", &[], &["live/main/1"], &[]),
            (
                "T169: initialised, not started",
                &["a", "b", "c"],
                &["live/a/1", "live/b/2", "live/b/3", "live/c/4"],
                &[],
            ),
            ("T170: an ephemeral container has ended", &[], &["live/debug/1", "live/main/2"], &[]),
            ("T171: a crash loop", &[], &ten, &ten[..9]),
        ];
        for (case, init, containers, expected) in cases {
            for (per, all) in [(Some(1), Some(0)), (Some(1), None), (None, Some(0)), (Some(0), Some(0))] {
                let mut pods = view(&[], &[], &[]);
                pods.known.insert(uid("live"), known(init));
                let policy = ContainerPolicy { keep_newest_of_live_pods: true, ..limits(per, all) };
                for pressure in [false, true] {
                    assert_eq!(
                        removed(&dead(containers), &pods, policy, pressure),
                        expected,
                        "{case} {per:?} {all:?}"
                    );
                }
            }
        }
    }

    /// T172 and T173: the rule of the kubelet's container deletor equals the limit per name; without a name it removes all
    /// containers of a deleted pod. (It would also count all names of a live pod as one, but nothing here does that.)
    #[test]
    fn a_limit_counts_the_dead_of_one_name() {
        let mut containers = dead(&["p/foo/1", "p/bar/2", "p/bar/3", "p/bar/4"]);
        containers.push(container("p/bar/5", Runs));
        let pods = view(&["p"], &[], &[]);
        for (limit, expected) in [
            (2, &["p/bar/2"][..]),
            (1, &["p/bar/2", "p/bar/3"]),
            (0, &["p/bar/2", "p/bar/3", "p/bar/4", "p/foo/1"]),
        ] {
            assert_eq!(
                removed(&containers, &pods, limits(Some(limit), None), false),
                expected,
                "keep {limit}"
            );
        }
        let pods = view(&[], &[], &["p"]);
        assert_eq!(removed(&containers, &pods, limits(Some(9), None), false).len(), 4, "the pod is gone");
    }

    #[test]
    fn a_pod_that_initialises_keeps_every_run() {
        let mut pods = view(&[], &[], &[]);
        let known = KnownPod { init_containers: [Arc::from("setup")].into(), ..KnownPod::default() };
        pods.known.insert(uid("p"), known);
        let runs = ["p/setup/1", "p/setup/2"];
        let found = plan(&dead(&runs), &[], &pods, ContainerPolicy::default(), false, NOW);
        let reasons: Vec<_> = found.kept.iter().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, [ContainerKeepReason::InitialisationUnderWay; 2]);
        let started = [dead(&runs), vec![container("p/main/3", Runs)]].concat();
        assert_eq!(removed(&started, &pods, ContainerPolicy::default(), false), ["p/setup/1"]);
    }

    #[test]
    fn foreign_and_nameless_containers_are_left_alone() {
        let mut containers = dead(&["gone/a/1", "gone/b/2", "gone/c/3"]);
        containers[0].managed = false;
        containers[1].name = None;
        containers[2].pod = None;
        assert!(removed(&containers, &view(&[], &[], &["gone"]), limits(Some(0), Some(0)), true).is_empty());
    }

    proptest! {
        #[test]
        fn limits_hold_and_live_pods_keep_their_newest(
            specs in prop::collection::vec((0_usize..6, 0_usize..3, 0_i64..50, 0_usize..4), 0..60),
            per in prop::option::of(0_u32..4), all in prop::option::of(0_u32..20), pressure: bool,
        ) {
            let names = ["live-a", "live-b", "done", "gone", "late", "other"];
            let pods = view(&["live-a", "live-b"], &["done"], &["gone"]);
            let containers: Vec<_> = specs.iter().enumerate().map(|(n, &(pod, name, created, state))| {
                let state = [Exited, Runs, Unknown, ContainerState::Created][state];
                let mut one = container(&format!("{}/c{name}/{created}", names[pod]), state);
                one.id = ContainerId::new(&format!("id-{n}")).expect("not empty");
                one
            }).collect();
            let policy = ContainerPolicy { keep_newest_of_live_pods: true, ..limits(per, all) };
            let found = plan(&containers, &[], &pods, policy, pressure, NOW);
            let going: BTreeSet<_> = found.removals.iter().map(|r| containers[r.place].id.clone()).collect();
            prop_assert_eq!(going.len(), found.removals.len(), "nothing is removed twice");
            prop_assert_eq!(going.len() + found.kept.len(), containers.len());
            let mut units: BTreeMap<_, Vec<&Container>> = BTreeMap::new();
            for one in containers.iter().filter(|c| c.state != Runs) {
                units.entry((one.pod.clone(), one.name.clone())).or_default().push(one);
            }
            let (mut staying, mut protected) = (0, 0);
            for ((pod, _), members) in units {
                let pod = pod.expect("has one");
                let kept = members.iter().filter(|c| !going.contains(&c.id)).count();
                staying += kept;
                if let Some(limit) = per { prop_assert!(kept <= (limit as usize).max(1)); }
                if pod.as_str() == "gone" { prop_assert_eq!(kept, 0); continue; }
                // A finished pod with a container in an unknown state counts as live.
                protected += 1;
                if pod.as_str() == "done" {
                    continue;
                }
                let newest = members.iter().map(|c| c.created_at).max();
                prop_assert!(members.iter().any(|c| Some(c.created_at) == newest && !going.contains(&c.id)));
            }
            if let Some(limit) = all { prop_assert!(staying <= (limit as usize).max(protected)); }
            for one in containers.iter().filter(|c| c.state == Runs) { prop_assert!(!going.contains(&one.id)); }
        }
    }
}
