//! Knowledge that passes over terminating namespaces keep for later ones: empty resources, groups that can be ignored, and requests
//! that the server may still be executing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::Timestamp;

use super::emptying::ServedResources;

/// Maximum number of namespaces that are remembered as empty of a group; further ones are not added.
pub const REMEMBERED_NAMESPACES: usize = 10_000;

/// Facts about API groups from when they were reachable (BEAT-NS-3): groups that cannot have objects in a namespace need not be
/// waited for while they are down.
#[derive(Debug, Default)]
pub struct Groups {
    /// Groups that were discovered completely, and whether they had deletable namespaced resources.
    deletable: BTreeMap<String, bool>,
    /// UIDs of terminating namespaces in which a group was found empty. Nothing can be created there any more.
    emptied: BTreeMap<String, BTreeSet<String>>,
}

impl Groups {
    /// Records a group that was discovered completely.
    pub fn discovered(&mut self, group: &str, deletable: bool) {
        self.deletable.insert(group.to_owned(), deletable);
    }

    /// Records that all resources of a group in this terminating namespace were listed and empty.
    pub fn emptied(&mut self, namespace: &str, group: &str) {
        if self.emptied.len() < REMEMBERED_NAMESPACES || self.emptied.contains_key(namespace) {
            self.emptied.entry(namespace.to_owned()).or_default().insert(group.to_owned());
        }
    }

    /// Forgets a namespace that is gone.
    pub fn forget(&mut self, namespace: &str) {
        self.emptied.remove(namespace);
    }

    /// Explains why an unreachable group has nothing in the namespace, if that is known.
    #[must_use]
    pub fn excuse(&self, namespace: &str, group: &str) -> Option<&'static str> {
        if self.deletable.get(group) == Some(&false) {
            return Some("it has nothing that could be deleted");
        }
        let emptied = self.emptied.get(namespace).is_some_and(|groups| groups.contains(group));
        emptied.then_some("it has nothing in the namespace")
    }
}

/// Maximum number of empty resources that are remembered, for all namespaces together; further ones are not added.
pub const REMEMBERED_LISTS: usize = 100_000;
/// Validity of an observation, milliseconds.
pub const BELIEVED_MILLISECONDS: i64 = 60_000;

/// Resources that passes over terminating namespaces found empty, so that after a partial failure the next pass continues with the
/// rest. Nothing can be created in such a namespace any more. Observations from before it was known to be terminating do not count,
/// and neither do old ones.
#[derive(Debug, Default)]
pub struct Learnt {
    /// Lists by the UID of the namespace.
    namespaces: BTreeMap<String, Lists>,
    lists: usize,
}

/// Time since which a namespace is known to be terminating, and request times of its empty resources.
#[derive(Debug)]
struct Lists {
    since: Timestamp,
    empty: BTreeMap<String, Timestamp>,
}

impl Learnt {
    /// Records that a pass over a terminating namespace begins.
    pub fn begin(&mut self, namespace: &str, now: Timestamp) {
        if self.namespaces.len() < REMEMBERED_NAMESPACES {
            let begun = || Lists { since: now, empty: BTreeMap::new() };
            self.namespaces.entry(namespace.to_owned()).or_insert_with(begun);
        }
    }

    /// Records that a resource, requested at that time, has nothing in the namespace according to the complete response.
    pub fn emptied(&mut self, namespace: &str, resource: &str, asked: Timestamp) {
        let Some(lists) = self.namespaces.get_mut(namespace).filter(|lists| lists.since <= asked) else {
            return;
        };
        let is_known = lists.empty.contains_key(resource);
        if is_known || self.lists < REMEMBERED_LISTS {
            self.lists += usize::from(!is_known);
            lists.empty.insert(resource.to_owned(), asked);
        }
    }

    /// Reports whether a response requested at that time shows the current state of the namespace.
    #[must_use]
    pub fn believes(&self, namespace: &str, asked: Timestamp, now: Timestamp) -> bool {
        let since = self.namespaces.get(namespace).map(|lists| lists.since);
        since.is_some_and(|since| since <= asked) && (0..=BELIEVED_MILLISECONDS).contains(&now.since(asked))
    }

    /// Reports whether a resource is known to have nothing in the namespace.
    #[must_use]
    pub fn is_empty(&self, namespace: &str, resource: &str, now: Timestamp) -> bool {
        let asked = self.namespaces.get(namespace).and_then(|lists| lists.empty.get(resource));
        asked.is_some_and(|asked| self.believes(namespace, *asked, now))
    }

    /// Returns the number of resources that were found empty there.
    #[must_use]
    pub fn number(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).map_or(0, |lists| lists.empty.len())
    }

    /// Forgets a namespace, because its next pass starts over or none follows.
    pub fn forget(&mut self, namespace: &str) {
        if let Some(lists) = self.namespaces.remove(namespace) {
            self.lists -= lists.empty.len();
        }
    }
}

/// Maximum time that a server executes a request (`--request-timeout` of kube-apiserver), milliseconds, even if the client no
/// longer waits for the response.
pub const AT_WORK_MILLISECONDS: i64 = 60_000;

/// Unanswered requests of one kind.
///
/// DELETECOLLECTION carries no precondition, and deletes by name: if it is still being executed when the namespace is recreated, it
/// deletes the contents of the new one. A namespace of that name therefore stays until such requests must have ended.
///
/// A finalization that is still being executed may remove the namespace at any moment, and it may be recreated. Until the
/// finalization must have ended, objects in a namespace of that name are therefore only deleted by UID.
#[derive(Debug, Default)]
pub struct UnansweredRequests {
    /// Time of the last such request, by the name of the namespace.
    sent: BTreeMap<Arc<str>, Timestamp>,
    /// Time of the last request for all namespaces beyond [`REMEMBERED_NAMESPACES`].
    beyond: Option<Timestamp>,
}

impl UnansweredRequests {
    /// Records a request sent at that time that was not answered.
    pub fn record(&mut self, namespace: &Arc<str>, sent: Timestamp) {
        if self.sent.len() >= REMEMBERED_NAMESPACES {
            self.sent.retain(|_, last| is_at_work(*last, sent));
        }
        if self.sent.len() < REMEMBERED_NAMESPACES || self.sent.contains_key(namespace) {
            let last = self.sent.entry(Arc::clone(namespace)).or_insert(sent);
            *last = sent.max(*last);
        } else {
            self.beyond = self.beyond.max(Some(sent));
        }
    }

    /// Reports whether a request may still be executed in a namespace of that name.
    #[must_use]
    pub fn may_be_at_work(&self, namespace: &str, now: Timestamp) -> bool {
        self.wait_milliseconds(namespace, now) > 0
    }

    /// Returns how long the namespace must stay, in milliseconds; 0 if no request can still be executed in it.
    #[must_use]
    pub fn wait_milliseconds(&self, namespace: &str, now: Timestamp) -> i64 {
        let last = self.sent.get(namespace).copied().max(self.beyond);
        // A clock that was set back proves nothing: wait for the full time.
        last.map_or(0, |last| (AT_WORK_MILLISECONDS - now.since(last).max(0)).max(0))
    }
}

fn is_at_work(sent: Timestamp, now: Timestamp) -> bool {
    now.since(sent) < AT_WORK_MILLISECONDS
}

/// Everything that passes remember.
#[derive(Debug, Default)]
pub struct Memory {
    /// Groups that may be unreachable by now.
    pub groups: Groups,
    /// Resources that partly failed passes found empty.
    pub learnt: Learnt,
    /// DELETECOLLECTION requests that may still be executed although their response was lost.
    pub unanswered: UnansweredRequests,
    /// Finalizations that may still be executed although their response was lost.
    pub finalizing: UnansweredRequests,
    /// The last discovery without failures, and when it was requested.
    discovered: Option<(Timestamp, Arc<ServedResources>)>,
    /// Namespaces about which something may be remembered.
    uids: BTreeMap<Arc<str>, String>,
}

impl Memory {
    /// Records namespaces that were terminating before the first pass: a previous controller may have sent requests whose responses
    /// it never received.
    pub fn inherit(&mut self, terminating: &[Arc<str>], then: Timestamp) {
        for name in terminating {
            self.unanswered.record(name, then);
            self.finalizing.record(name, then);
        }
    }

    /// Records that a pass over a terminating namespace begins.
    pub fn begin(&mut self, name: &Arc<str>, uid: &str, now: Timestamp) {
        if self.uids.get(name).is_some_and(|known| known != uid) {
            self.gone(name);
        }
        if self.uids.len() < REMEMBERED_NAMESPACES || self.uids.contains_key(name) {
            self.uids.insert(Arc::clone(name), uid.to_owned());
            self.learnt.begin(uid, now);
        }
    }

    /// Records that no namespace of that name is terminating any more.
    pub fn gone(&mut self, name: &str) {
        if let Some(uid) = self.uids.remove(name) {
            self.groups.forget(&uid);
            self.learnt.forget(&uid);
        }
    }

    /// Returns the number of namespaces about which something is remembered, except for requests that may still be executed.
    #[must_use]
    pub fn namespaces(&self) -> usize {
        self.uids.len()
    }

    /// Returns the result of discovery, if a pass completed it since this namespace has been known to be terminating.
    #[must_use]
    pub fn served(&self, uid: &str, now: Timestamp) -> Option<Arc<ServedResources>> {
        let (asked, served) = self.discovered.as_ref()?;
        self.learnt.believes(uid, *asked, now).then(|| Arc::clone(served))
    }

    /// Records the result of a discovery requested at that time.
    pub fn discovered(&mut self, asked: Timestamp, served: &Arc<ServedResources>) {
        for (group, deletable) in &served.groups {
            self.groups.discovered(group, *deletable);
        }
        if served.failed.is_empty() {
            self.discovered = Some((asked, Arc::clone(served)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_stays_while_an_unanswered_deletion_may_be_at_work() {
        let at = Timestamp;
        let mut unanswered = UnansweredRequests::default();
        assert_eq!(unanswered.wait_milliseconds("a", at(0)), 0);
        unanswered.record(&"a".into(), at(5_000));
        unanswered.record(&"a".into(), at(1_000));
        for (now, expected) in [(5_000, 60_000), (64_999, 1), (65_000, 0), (90_000, 0), (0, 60_000)] {
            assert_eq!(unanswered.wait_milliseconds("a", at(now)), expected, "{now}");
        }
        assert_eq!(unanswered.wait_milliseconds("b", at(6_000)), 0, "another one");
        // Beyond the bound, no single namespace is remembered, and all of them wait.
        for number in 0..REMEMBERED_NAMESPACES {
            unanswered.record(&number.to_string().into(), at(7_000));
        }
        assert_eq!(unanswered.sent.len(), REMEMBERED_NAMESPACES);
        assert_eq!(unanswered.wait_milliseconds("b", at(8_000)), 59_000);
        // Requests that have ended make room.
        unanswered.record(&"c".into(), at(67_000));
        assert_eq!(unanswered.sent.len(), 1);
        assert_eq!(unanswered.wait_milliseconds("c", at(68_000)), 59_000);
        assert_eq!(unanswered.wait_milliseconds("b", at(68_000)), 0);
    }

    /// Only requests since the namespace was known to be terminating count, and only for a while.
    #[test]
    fn what_a_predecessor_may_have_sent_is_waited_for() {
        let at = Timestamp;
        for (terminating, expected) in [(vec!["a".into()], (50_000, 0)), (Vec::new(), (0, 0))] {
            let mut memory = Memory::default();
            memory.inherit(&terminating, at(5_000));
            let wait = |name| memory.unanswered.wait_milliseconds(name, at(15_000));
            assert_eq!((wait("a"), wait("b")), expected, "{terminating:?}");
            let removes = ["a", "b"].map(|name| memory.finalizing.may_be_at_work(name, at(15_000)));
            assert_eq!(removes, [expected.0 > 0, expected.1 > 0], "{terminating:?}");
        }
    }

    #[test]
    fn what_was_learnt_counts_for_a_while() {
        let at = |milliseconds| Timestamp(1_000_000 + milliseconds);
        let mut learnt = Learnt::default();
        learnt.emptied("u", "secrets.", at(0));
        assert_eq!(learnt.number("u"), 0, "it is not known to be terminating");
        learnt.begin("u", at(0));
        learnt.begin("u", at(5_000));
        learnt.emptied("u", "pods.", at(-1));
        learnt.emptied("u", "secrets.", at(0));
        learnt.emptied("u", "jobs.batch", at(10_000));
        learnt.emptied("u", "jobs.batch", at(20_000));
        for (namespace, resource, now, expected) in [
            ("u", "pods.", 0, false),
            ("u", "secrets.", 0, true),
            ("u", "secrets.", BELIEVED_MILLISECONDS, true),
            ("u", "secrets.", BELIEVED_MILLISECONDS + 1, false),
            ("u", "jobs.batch", BELIEVED_MILLISECONDS + 20_000, true),
            ("u", "jobs.batch", BELIEVED_MILLISECONDS + 20_001, false),
            ("u", "jobs.batch", 19_999, false),
            ("u", "deployments.apps", 0, false),
            ("another", "secrets.", 0, false),
        ] {
            assert_eq!(
                learnt.is_empty(namespace, resource, at(now)),
                expected,
                "{namespace} {resource} {now}"
            );
        }
        assert_eq!((learnt.number("u"), learnt.lists), (2, 2));
        for (asked, expected) in [(-1, false), (0, true), (1, true), (3, false)] {
            assert_eq!(learnt.believes("u", at(asked), at(2)), expected, "asked at {asked}");
        }
        learnt.forget("u");
        learnt.begin("u", at(30_000));
        assert!(!learnt.is_empty("u", "jobs.batch", at(30_000)));
        assert_eq!((learnt.number("u"), learnt.lists), (0, 0));
    }

    /// The memory must be bounded.
    #[test]
    fn what_is_learnt_is_bounded() {
        let mut learnt = Learnt::default();
        for number in 0..=REMEMBERED_NAMESPACES {
            let uid = number.to_string();
            learnt.begin(&uid, Timestamp(0));
            for resource in 0..11 {
                learnt.emptied(&uid, &resource.to_string(), Timestamp(0));
            }
        }
        assert_eq!((learnt.namespaces.len(), learnt.lists), (REMEMBERED_NAMESPACES, REMEMBERED_LISTS));
        learnt.forget("0");
        assert_eq!(
            (learnt.namespaces.len(), learnt.lists),
            (REMEMBERED_NAMESPACES - 1, REMEMBERED_LISTS - 11)
        );
    }

    #[test]
    fn what_is_remembered_of_namespaces_is_bounded() {
        let mut memory = Memory::default();
        for number in 0..=REMEMBERED_NAMESPACES {
            let uid = number.to_string();
            memory.begin(&uid.as_str().into(), &uid, Timestamp(0));
            memory.groups.emptied(&uid, "apps");
        }
        assert_eq!(
            (memory.namespaces(), memory.groups.emptied.len()),
            (REMEMBERED_NAMESPACES, REMEMBERED_NAMESPACES)
        );
        // One that is known may still change.
        memory.begin(&"0".into(), "another", Timestamp(1));
        memory.groups.emptied("1", "batch");
        assert_eq!(
            (memory.namespaces(), memory.groups.excuse("1", "batch").is_some()),
            (REMEMBERED_NAMESPACES, true)
        );
        memory.gone("1");
        assert_eq!(
            (memory.namespaces(), memory.groups.excuse("1", "batch")),
            (REMEMBERED_NAMESPACES - 1, None)
        );
        assert_eq!(memory.learnt.number("1"), 0);
    }

    /// The discovery of one pass is used by others, for namespaces that were terminating when it was requested.
    #[test]
    fn a_discovery_serves_several_passes() {
        let served = |failed: bool| {
            let failed = failed.then(|| gc_types::FailedGroup {
                group: "far".into(),
                version: None,
                message: "dead".into(),
            });
            Arc::new(ServedResources {
                groups: [("apps".to_owned(), true), ("empty".to_owned(), false)].into(),
                failed: failed.into_iter().collect(),
                ..ServedResources::default()
            })
        };
        let mut memory = Memory::default();
        memory.begin(&"n".into(), "u", Timestamp(5));
        assert_eq!(memory.served("u", Timestamp(9)), None);
        memory.discovered(Timestamp(6), &served(true));
        assert_eq!(memory.served("u", Timestamp(9)), None, "it was not complete");
        let excuses = ["apps", "empty"].map(|group| memory.groups.excuse("u", group));
        assert_eq!(excuses, [None, Some("it has nothing that could be deleted")]);
        memory.discovered(Timestamp(7), &served(false));
        assert_eq!(memory.served("u", Timestamp(9)), Some(served(false)));
        assert_eq!(memory.served("another", Timestamp(9)), None);
        memory.begin(&"m".into(), "later", Timestamp(8));
        assert_eq!(memory.served("later", Timestamp(9)), None);
        memory.gone("n");
        assert_eq!(memory.served("u", Timestamp(9)), None);
    }
}
