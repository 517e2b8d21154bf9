//! Pods that the sweeps search. There may be hundreds of thousands, so each is stored once, with only the fields that a sweep
//! reads, and every index points to it: about 240 bytes per pod, including its name and the indexes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gc_types::{ObjectKey, ResourceVersion, Timestamp, Uid};

use crate::division::Division;
use crate::objects::{Kind, Phase, Pod};

/// Maximum difference between the clocks of this machine and the API server, milliseconds, when the creation of a pod is compared.
const CLOCKS_APART_MILLISECONDS: i64 = 60_000;

/// Progress of a pod's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// Not requested.
    None,
    /// Requested, with the grace period running.
    WithGrace,
    /// Requested without grace period, or the grace period is over.
    WithoutGrace,
}

/// Fields of a pod that the sweeps read, and the preconditions of its removal.
#[derive(Debug)]
pub(crate) struct KeptPod {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) resource_version: ResourceVersion,
    /// `metadata.generation`
    pub(crate) generation: i64,
    /// `creationTimestamp` in seconds; a pod without one counts as the oldest.
    pub(crate) created_seconds: i64,
    /// `spec.nodeName`, if it has one.
    pub(crate) node: Option<Arc<str>>,
    /// Time since which `DisruptionTarget` has been `True`, which is rare.
    pub(crate) disrupted_since: Option<Box<Timestamp>>,
    pub(crate) deletion: Deletion,
    /// `status.phase`
    pub(crate) phase: Phase,
    /// True if `status.reason` is `Evicted`.
    pub(crate) evicted: bool,
    /// True if `kubegc.io/keep` forbids kubegc to delete it.
    pub(crate) keeps: bool,
    /// Number of the list that contained it, or after which a watch delivered it.
    round: u32,
}

impl From<Pod> for KeptPod {
    fn from(pod: Pod) -> Self {
        Self {
            keeps: pod.meta.keeps(),
            namespace: pod.meta.namespace,
            name: pod.meta.name,
            uid: pod.meta.uid,
            resource_version: pod.meta.resource_version,
            generation: pod.generation,
            created_seconds: pod.meta.created.map_or(i64::MIN, |created| created.0.div_euclid(1000)),
            node: pod.node,
            disrupted_since: pod.disrupted_since.map(Box::new),
            deletion: match (pod.meta.deleting, pod.without_grace) {
                (false, _) => Deletion::None,
                (true, false) => Deletion::WithGrace,
                (true, true) => Deletion::WithoutGrace,
            },
            phase: pod.phase,
            evicted: pod.evicted,
            round: 0,
        }
    }
}

impl KeptPod {
    pub(crate) fn key(&self) -> ObjectKey {
        Kind::Pod.key(&self.namespace, &self.name)
    }

    /// Reports whether it may have been created after this time, given the difference between clocks.
    pub(crate) fn may_be_created_after(&self, time: Timestamp) -> bool {
        self.created_seconds.saturating_mul(1000) >= time.0.saturating_sub(CLOCKS_APART_MILLISECONDS)
    }

    pub(crate) fn deleting(&self) -> bool {
        self.deletion != Deletion::None
    }

    /// Returns its position in the order in which finished pods are deleted (spec 2.5), with the namespace to make that total.
    fn turn(&self) -> (bool, i64, &str, &str) {
        (!self.evicted, self.created_seconds, &self.name, &self.namespace)
    }

    fn own_name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

/// A pod with a specific order, in which equal pods are the same.
macro_rules! ordered {
    ($($(#[doc = $doc:literal])* $order:ident by $by:ident;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        struct $order(Arc<KeptPod>);

        impl Ord for $order {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.$by().cmp(&other.0.$by())
            }
        }

        impl PartialOrd for $order {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $order {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $order {}
    )*};
}

ordered! {
    /// Within a namespace, by name.
    Named by own_name;
    /// By namespace and name.
    Placed by place;
    /// In the order in which finished pods are deleted.
    Turn by turn;
}

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

/// Result of storing a pod.
pub(crate) struct Put {
    /// The pod as stored.
    pub(crate) pod: Arc<KeptPod>,
    /// The pod that it replaces.
    pub(crate) before: Option<Arc<KeptPod>>,
    /// Finished pods that are newly surplus.
    pub(crate) going: Vec<ObjectKey>,
}

/// All pods, by key, by node, and the finished ones in order of deletion.
#[derive(Debug)]
pub(crate) struct KeptPods {
    by_namespace: BTreeMap<Arc<str>, BTreeSet<Named>>,
    by_node: BTreeMap<Arc<str>, BTreeSet<Placed>>,
    /// The finished pods, divided into surplus and kept ones; `None` keeps all.
    finished: Option<Division<Turn>>,
    /// Objects of the last list that have not been reconciled yet.
    undecided: VecDeque<Arc<KeptPod>>,
    round: u32,
    listing: bool,
    synced: bool,
}

impl KeptPods {
    /// Creates an empty store that keeps this number of finished pods; `None` keeps all.
    pub(crate) fn new(finished_kept: Option<usize>) -> Self {
        Self {
            by_namespace: BTreeMap::new(),
            by_node: BTreeMap::new(),
            finished: finished_kept.map(Division::new),
            undecided: VecDeque::new(),
            round: 0,
            listing: true,
            synced: false,
        }
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<KeptPod>> {
        self.by_namespace.get(&key.namespace)?.get(&*key.name).map(|named| &named.0)
    }

    /// Returns the pods of a node.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<KeptPod>> {
        self.by_node.get(node).into_iter().flatten().map(|placed| &placed.0)
    }

    /// Reports whether any pod is bound to the node.
    pub(crate) fn has_node(&self, node: &str) -> bool {
        self.by_node.contains_key(node)
    }

    /// Returns every node that pods are bound to.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.keys()
    }

    /// Reports whether it is a surplus finished pod.
    pub(crate) fn is_over_threshold(&self, pod: &Arc<KeptPod>) -> bool {
        let division = self.finished.as_ref().filter(|_| pod.phase.finished());
        division.is_some_and(|division| division.is_surplus(&Turn(Arc::clone(pod))))
    }

    /// Stores a pod. Names of namespaces and nodes are shared with other pods there.
    pub(crate) fn put(&mut self, pod: Pod) -> Put {
        let mut pod = KeptPod::from(pod);
        pod.round = self.round;
        if let Some((namespace, _)) = self.by_namespace.get_key_value(&pod.namespace) {
            pod.namespace = Arc::clone(namespace);
        }
        if let Some(node) = &mut pod.node
            && let Some((shared, _)) = self.by_node.get_key_value(node)
        {
            *node = Arc::clone(shared);
        }
        let pod = Arc::new(pod);
        let named = self.by_namespace.entry(Arc::clone(&pod.namespace)).or_default();
        let before = named.replace(Named(Arc::clone(&pod))).map(|named| named.0);
        if let Some(before) = &before {
            self.drop_from_indexes(before, Some(&pod));
        }
        if let Some(node) = &pod.node {
            self.by_node.entry(Arc::clone(node)).or_default().replace(Placed(Arc::clone(&pod)));
        }
        let mut going = Vec::new();
        let turn = Turn(Arc::clone(&pod));
        if let Some(division) = self.finished.as_mut().filter(|_| pod.phase.finished())
            && !division.replace(&turn)
        {
            going.extend(division.insert(turn).going.iter().map(|turn| turn.0.key()));
        }
        Put { pod, before, going }
    }

    /// Removes a pod from the indexes that its new state does not belong to.
    fn drop_from_indexes(&mut self, pod: &Arc<KeptPod>, after: Option<&KeptPod>) {
        if let Some(node) = &pod.node
            && after.is_none_or(|after| after.node.as_ref() != Some(node))
            && let Some(pods) = self.by_node.get_mut(node)
        {
            pods.remove(&Placed(Arc::clone(pod)));
            if pods.is_empty() {
                self.by_node.remove(node);
            }
        }
        let stays = |after: &KeptPod| after.phase.finished() && after.turn() == pod.turn();
        if let Some(division) = self.finished.as_mut().filter(|_| pod.phase.finished())
            && !after.is_some_and(stays)
        {
            division.remove(&Turn(Arc::clone(pod)));
        }
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<KeptPod>> {
        let pods = self.by_namespace.get_mut(&key.namespace)?;
        let Named(pod) = pods.take(&*key.name)?;
        if pods.is_empty() {
            self.by_namespace.remove(&key.namespace);
        }
        self.drop_from_indexes(&pod, None);
        Some(pod)
    }

    pub(crate) fn list_started(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.listing = true;
    }

    /// Completes a list, and returns the pods that it did not contain. All others are to be reconciled.
    pub(crate) fn list_ended(&mut self) -> Vec<ObjectKey> {
        (self.listing, self.synced) = (false, true);
        let pods = || self.by_namespace.values().flatten().map(|named| &named.0);
        let gone = pods().filter(|pod| pod.round != self.round).map(|pod| pod.key()).collect();
        self.undecided = pods().filter(|pod| pod.round == self.round).cloned().collect();
        gone
    }

    /// Reports whether a list is in progress, at the end of which all of its pods are reconciled.
    pub(crate) fn listing(&self) -> bool {
        self.listing
    }

    /// Reports whether a list has been completed.
    pub(crate) fn synced(&self) -> bool {
        self.synced
    }

    /// Returns the next pod of the last list that has not been reconciled.
    pub(crate) fn next_undecided(&mut self) -> Option<ObjectKey> {
        let pod = self.undecided.pop_front();
        if pod.is_none() {
            self.undecided = VecDeque::new();
        }
        pod.map(|pod| pod.key())
    }

    pub(crate) fn undecided(&self) -> usize {
        self.undecided.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use serde_json::json;

    fn pod(name: &str, version: &str, node: &str, phase: &str) -> Pod {
        let object = json!({
            "metadata": {"namespace": "shop", "name": name, "resourceVersion": version,
                "uid": "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "status": {"phase": phase},
        });
        serde_json::from_value(object).unwrap()
    }

    /// The memory for 360,000 pods is their number times this size, plus their names.
    #[test]
    fn a_pod_takes_few_bytes() {
        let counts_of_references = 2 * size_of::<usize>();
        assert_eq!(size_of::<KeptPod>() + counts_of_references, 128);
        let indexes = [size_of::<Named>(), size_of::<Placed>(), size_of::<Turn>()];
        assert_eq!(indexes, [size_of::<usize>(); 3]);
    }

    /// However a pod changes or moves, no index keeps an older state of it, and what it shares with its neighbours is stored once.
    #[test]
    fn a_pod_is_kept_once() {
        let mut pods = KeptPods::new(Some(1));
        let neighbour = pods.put(pod("b", "1", "n", "Failed")).pod;
        let mut last = pods.put(pod("a", "1", "n", "Pending")).pod;
        for (version, node, phase, indexes) in [
            ("2", "n", "Running", 2),
            ("3", "n", "Running", 2),
            ("4", "n", "Failed", 3),
            ("5", "n", "Failed", 3),
            ("6", "m", "Succeeded", 3),
            ("7", "", "Succeeded", 2),
            ("8", "", "Pending", 1),
            ("9", "n", "Failed", 3),
        ] {
            let put = pods.put(pod("a", version, node, phase));
            assert!(Arc::ptr_eq(&put.before.unwrap(), &last), "version {version}");
            assert_eq!(Arc::strong_count(&last), 1, "version {version}");
            assert_eq!(Arc::strong_count(&put.pod), indexes + 1, "version {version}");
            assert!(Arc::ptr_eq(&put.pod.namespace, &neighbour.namespace));
            if node == "n" {
                assert!(Arc::ptr_eq(put.pod.node.as_ref().unwrap(), neighbour.node.as_ref().unwrap()));
            }
            last = put.pod;
        }
        for key in [last.key(), neighbour.key()] {
            assert!(pods.remove(&key).is_some());
        }
        assert_eq!((Arc::strong_count(&last), Arc::strong_count(&neighbour)), (1, 1));
        assert!(pods.by_namespace.is_empty() && pods.by_node.is_empty() && pods.finished.unwrap().is_empty());
    }

    /// Each pod of a list is reconciled once, and nothing of the list is retained.
    #[test]
    fn a_list_leaves_nothing_behind() {
        let mut pods = KeptPods::new(None);
        pods.list_started();
        let kept: Vec<_> = ["a", "b"].map(|name| pods.put(pod(name, "1", "n", "Running")).pod).into();
        assert_eq!(pods.list_ended(), []);
        pods.list_started();
        let again = pods.put(pod("b", "1", "n", "Running")).pod;
        assert_eq!((pods.listing(), pods.undecided()), (true, 2));
        assert_eq!(pods.list_ended(), [kept[0].key()]);
        assert_eq!((pods.listing(), pods.undecided()), (false, 1));
        assert_eq!(pods.next_undecided(), Some(again.key()));
        assert_eq!((pods.next_undecided(), pods.undecided()), (None, 0));
        assert_eq!(Arc::strong_count(&kept[1]), 1);
    }

    /// A pod that was created at another time has another turn, and leaves nothing at the former one.
    #[test]
    fn a_pod_that_is_replaced_leaves_its_turn() {
        let mut pods = KeptPods::new(Some(0));
        for (version, created) in [("1", 5), ("2", 5), ("3", 9), ("4", 2)] {
            let mut one = pod("a", version, "n", "Failed");
            one.meta.created = Some(gc_types::Timestamp(created * 60_000));
            pods.put(one);
            let division = pods.finished.as_mut().unwrap();
            assert!(!division.is_empty(), "version {version}");
        }
        let key = pods.put(pod("a", "5", "n", "Running")).pod.key();
        assert!(pods.finished.as_ref().unwrap().is_empty());
        assert!(pods.has_node("n") && !pods.has_node("m"));
        pods.remove(&key);
        assert!(!pods.has_node("n"));
    }
}
