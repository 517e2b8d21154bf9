//! Queue of objects to reconcile, in order.
//!
//! Pods come before the objects that count them, so that a burst of changes of pods becomes one change of their owner's status. The
//! owners, and the pods that wait for a node, get their share however many pods there are. Within each of the three, namespaces
//! take turns with one object each, so a busy namespace does not delay the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::kinds::{Key, Kind};
use crate::workloads::Workload;

/// Share of owners while pods wait: one in this number of reconciliations is of an object that owns pods.
const POD_SHARE: u32 = 8;

/// A controller, and the object to reconcile.
pub(crate) type Work = (Workload, Key);

/// Work in order of arrival within each namespace; namespaces take turns. Cluster-scoped objects come first, because namespaced
/// ones depend on them, as claims do on volumes.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Work by namespace, with one entry for cluster-scoped objects.
    waiting: BTreeMap<Arc<str>, VecDeque<Work>>,
    /// The same namespaces in order, the next one first.
    order: VecDeque<Arc<str>>,
}

impl Turns {
    pub(crate) fn push(&mut self, work: Work) {
        self.of_namespace(&work.1.namespace).push_back(work);
    }

    /// Puts back unfinished work: it is the first of its namespace again, but other namespaces come before it.
    pub(crate) fn put_back(&mut self, work: Work) {
        self.of_namespace(&work.1.namespace).push_front(work);
    }

    pub(crate) fn pop(&mut self) -> Option<Work> {
        let namespace = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let work = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.take_turn(namespace);
        }
        work
    }

    fn take_turn(&mut self, namespace: Arc<str>) {
        if namespace.is_empty() { self.order.push_front(namespace) } else { self.order.push_back(namespace) }
    }

    fn of_namespace(&mut self, namespace: &Arc<str>) -> &mut VecDeque<Work> {
        if !self.waiting.contains_key(namespace) {
            self.take_turn(Arc::clone(namespace));
        }
        self.waiting.entry(Arc::clone(namespace)).or_default()
    }
}

/// Queue of objects to reconcile.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pods: Turns,
    /// Pods that wait for the scheduler. It places them one after the other, like kube-scheduler, because each placement affects
    /// the next.
    unplaced: Turns,
    others: Turns,
    /// Number of pods reconciled since the last reconciliation of anything else.
    streak: u32,
    is_placing: bool,
    /// True if the scheduler reconciled the last pod, in which case the next one is not its, if there is any other.
    has_placed: bool,
}

impl Queue {
    pub(crate) fn push(&mut self, work: Work) {
        match work {
            (Workload::Scheduler, _) => self.unplaced.push(work),
            (_, Key { kind: Kind::Pod, .. }) => self.pods.push(work),
            _ => self.others.push(work),
        }
    }

    /// Returns the next work, which counts as in progress until it has [ended](Self::ended).
    pub(crate) fn pop(&mut self) -> Option<Work> {
        if self.streak < POD_SHARE - 1
            && let Some(work) = self.next_pod()
        {
            self.streak += 1;
            return Some(work);
        }
        self.streak = 0;
        self.others.pop().or_else(|| self.next_pod())
    }

    pub(crate) fn ended(&mut self, work: &Work) {
        if work.0 == Workload::Scheduler {
            self.is_placing = false;
        }
    }

    fn next_pod(&mut self) -> Option<Work> {
        if self.has_placed
            && let Some(work) = self.pods.pop()
        {
            self.has_placed = false;
            return Some(work);
        }
        self.has_placed = false;
        if !self.is_placing
            && let Some(work) = self.unplaced.pop()
        {
            (self.is_placing, self.has_placed) = (true, true);
            return Some(work);
        }
        self.pods.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(work: Option<Work>) -> String {
        work.map_or_else(String::new, |(workload, key)| format!("{workload} {key}"))
    }

    #[test]
    fn namespaces_take_turns() {
        let mut turns = Turns::default();
        for (namespace, name) in [("busy", "a"), ("busy", "b"), ("busy", "c"), ("calm", "d"), ("", "e")] {
            turns.push((Workload::Kubelet, Kind::Pod.key(namespace, name)));
        }
        assert_eq!(shown(turns.pop()), "simulated-nodes pods/e");
        let first = turns.pop();
        assert_eq!(shown(first.clone()), "simulated-nodes pods/busy/a");
        turns.put_back(first.unwrap_or_else(|| unreachable!("it was shown")));
        let order: Vec<String> = std::iter::from_fn(|| turns.pop()).map(|(_, key)| key.to_string()).collect();
        assert_eq!(order, ["pods/calm/d", "pods/busy/a", "pods/busy/b", "pods/busy/c"]);
    }

    #[test]
    fn the_scheduler_and_the_owners_have_their_share() {
        let mut queue = Queue::default();
        for number in 0..9 {
            queue.push((Workload::Kubelet, Kind::Pod.key("busy", &format!("ending-{number}"))));
        }
        for name in ["new-0", "new-1"] {
            queue.push((Workload::Scheduler, Kind::Pod.key("busy", name)));
        }
        queue.push((Workload::ReplicaSet, Kind::ReplicaSet.key("busy", "web")));
        let mut order = Vec::new();
        while let Some(work) = queue.pop() {
            // Each placement ends immediately, so the scheduler is never in progress when its turn comes.
            queue.ended(&work);
            order.push(work.1.name.to_string());
        }
        let expected = [
            "new-0", "ending-0", "new-1", "ending-1", "ending-2", "ending-3", "ending-4", "web", "ending-5",
            "ending-6", "ending-7", "ending-8",
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn one_pod_is_placed_after_the_other() {
        let mut queue = Queue::default();
        for name in ["a", "b"] {
            queue.push((Workload::Scheduler, Kind::Pod.key("default", name)));
        }
        let first = queue.pop();
        assert_eq!(shown(first.clone()), "kube-scheduler pods/default/a");
        assert_eq!(queue.pop(), None);
        queue.ended(&first.unwrap_or_else(|| unreachable!("it was shown")));
        assert_eq!(shown(queue.pop()), "kube-scheduler pods/default/b");
    }
}
