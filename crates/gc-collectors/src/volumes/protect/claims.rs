//! Protection of claims that pods use (spec `cluster-collectors.md`, section 7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{ObjectKey, Outcome, Reason, Request, Timestamp, Uid};

use super::{LIST_AGAIN_MILLISECONDS, Protection, change, protection, unused};
use crate::engine::{Collector, Decision, EndedRequest, Observation, reason};
use crate::entry::{CollectorEntry, WATCH, WATCH_PATCH, Watches, rule};
use crate::objects::{Cache, Claim, Facts, Kind, Pod, drop_from};

/// Finalizer of claims.
pub const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "protection of claims",
    name: "persistentvolumeclaim-protection-controller",
    alias: Some("pvc-protection"),
    account: "pvc-protection-controller",
    event_source: "persistentvolumeclaim-protection-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::Claim, Kind::Pod]),
    flags: &["claim-unused-condition"],
    rules: &[
        rule("", "persistentvolumeclaims", WATCH_PATCH),
        rule("", "persistentvolumeclaims/status", &["patch"]),
        rule("", "pods", WATCH),
    ],
};

/// Reports whether a pod blocks the deletion of a claim in its namespace. A finished pod does as long as it exists; one without a
/// node does not, because no kubelet starts a pod whose claim is terminating.
#[must_use]
pub fn in_use(claim: &Claim, pod: &Pod) -> bool {
    let shut_down = pod.meta.deleting && pod.without_grace;
    let own = claim.controller.as_ref() == Some(&pod.meta.uid);
    pod.node.is_some()
        && pod.meta.namespace == claim.meta.namespace
        && pod
            .claims
            .iter()
            .any(|used| used.claim == claim.meta.name && (!used.ephemeral || (own && !shut_down)))
}

/// Question about a claim that a live list of pods answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// A pod may block the terminating claim.
    Held,
    /// A pod may refer to the live claim.
    Referred,
}

impl Question {
    fn answers(self, claim: &Claim, pod: &Pod) -> bool {
        match self {
            Self::Held => in_use(claim, pod),
            Self::Referred => unused::refers(claim, pod),
        }
    }
}

/// A live list of the pods of a namespace, in progress.
#[derive(Debug, Default)]
struct LiveList {
    /// Claims that no observed pod used before it began.
    asked: BTreeSet<(Question, ObjectKey)>,
    /// Those of these claims that it has found in use.
    used: BTreeSet<(Question, ObjectKey)>,
}

/// The PVC protection controller.
#[derive(Debug)]
pub struct ClaimProtection {
    claims: Cache<Claim>,
    /// Pods that have claims.
    pods: Cache<Pod>,
    users: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    lists: BTreeMap<Arc<str>, LiveList>,
    /// Claims for the next list of each namespace.
    waiting: BTreeMap<Arc<str>, BTreeSet<(Question, ObjectKey)>>,
    not_before: BTreeMap<Arc<str>, Timestamp>,
    /// Claims that no pod used: when they were already terminating, and while they were living.
    unused: BTreeMap<(Question, ObjectKey), Uid>,
    /// True if living claims get the condition `Unused`.
    reports_unused: bool,
    /// Pending value of that condition, and since when.
    noticed: BTreeMap<ObjectKey, (bool, Timestamp)>,
}

impl Default for ClaimProtection {
    fn default() -> Self {
        Self::new(false)
    }
}

impl ClaimProtection {
    /// Creates the controller. With `reports_unused`, living claims also get the condition `Unused`.
    #[must_use]
    pub fn new(reports_unused: bool) -> Self {
        Self {
            claims: Cache::new(Kind::Claim),
            pods: Cache::new(Kind::Pod),
            users: BTreeMap::new(),
            lists: BTreeMap::new(),
            waiting: BTreeMap::new(),
            not_before: BTreeMap::new(),
            unused: BTreeMap::new(),
            reports_unused,
            noticed: BTreeMap::new(),
        }
    }

    fn claims_of(pod: &Pod) -> impl Iterator<Item = ObjectKey> + '_ {
        pod.claims.iter().map(|used| Kind::Claim.key(&pod.meta.namespace, &used.claim))
    }

    /// Handles a pod that no longer uses its claims: those that are terminating may be removed.
    fn drop_pod(&mut self, key: &ObjectKey, pod: &Pod, dirty: &mut Vec<ObjectKey>) {
        for claim in Self::claims_of(pod) {
            drop_from(&mut self.users, &claim, key);
            if self.reports_unused || self.claims.get(&claim).is_some_and(|claim| claim.meta.deleting) {
                dirty.push(claim);
            }
        }
    }

    fn put_pod(&mut self, pod: Pod, dirty: &mut Vec<ObjectKey>) {
        let claims: Vec<ObjectKey> = Self::claims_of(&pod).collect();
        let (key, before) = if claims.is_empty() {
            let key = Kind::Pod.key(&pod.meta.namespace, &pod.meta.name);
            let before = self.pods.remove(&key);
            (key, before)
        } else {
            self.pods.put(pod)
        };
        if let Some(before) = before {
            self.drop_pod(&key, &before, dirty);
        }
        for claim in claims {
            if self.reports_unused {
                dirty.push(claim.clone());
            }
            self.users.entry(claim).or_default().insert(key.clone());
        }
    }

    fn remove_pod(&mut self, key: &ObjectKey, dirty: &mut Vec<ObjectKey>) {
        if let Some(pod) = self.pods.remove(key) {
            self.drop_pod(key, &pod, dirty);
        }
    }

    fn remove_claim(&mut self, key: &ObjectKey) {
        self.claims.remove(key);
        self.noticed.remove(key);
        for question in [Question::Held, Question::Referred] {
            self.unused.remove(&(question, key.clone()));
        }
        if let Some(waiting) = self.waiting.get_mut(&key.namespace) {
            waiting.retain(|(_, waits)| waits != key);
            if waiting.is_empty() {
                self.waiting.remove(&key.namespace);
            }
        }
    }

    /// Forgets earlier findings when claims are listed again, perhaps because a backup was restored: they belong to another
    /// history, in which other pods used the claims.
    fn doubt(&mut self) {
        self.unused.clear();
        for (namespace, list) in &mut self.lists {
            let asked = std::mem::take(&mut list.asked);
            self.waiting.entry(Arc::clone(namespace)).or_default().extend(asked);
        }
    }

    fn found(&mut self, pod: &Pod) {
        let Some(list) = self.lists.get_mut(&pod.meta.namespace) else { return };
        for key in Self::claims_of(pod) {
            let Some(claim) = self.claims.get(&key) else { continue };
            for question in [Question::Held, Question::Referred] {
                let asked = (question, key.clone());
                if list.asked.contains(&asked) && question.answers(claim, pod) {
                    list.used.insert(asked);
                }
            }
        }
    }

    /// Reports whether a pod uses a claim, as far as the watch has delivered.
    fn is_used(&self, question: Question, key: &ObjectKey, claim: &Claim) -> bool {
        let mut users = self.users.get(key).into_iter().flatten().filter_map(|pod| self.pods.get(pod));
        users.any(|pod| question.answers(claim, pod))
    }

    /// Returns the result of a live list, or a request for one.
    fn ask_pods(&mut self, question: Question, claim: &Claim, now: Timestamp) -> Decision {
        let namespace = &claim.meta.namespace;
        let asked = (question, Kind::Claim.key(namespace, &claim.meta.name));
        if self.lists.contains_key(namespace) {
            self.waiting.entry(Arc::clone(namespace)).or_default().insert(asked);
            return Decision::Leave;
        }
        if let Some(&time) = self.not_before.get(namespace) {
            if now < time {
                return Decision::Later(time);
            }
            self.not_before.remove(namespace);
        }
        self.waiting.entry(Arc::clone(namespace)).or_default().insert(asked);
        let version = claim.meta.resource_version;
        let request = Request::Barrier {
            resource: Kind::Pod.resource(),
            namespace: Some(Arc::clone(namespace)),
            at_least: version,
        };
        let fact = "no pod that uses it was observed".to_owned();
        Decision::Act(request, reason(gc_types::codes::CLAIM_USE_UNKNOWN, version, &[fact]))
    }

    fn decide_holding(&mut self, key: &ObjectKey, claim: &Claim, now: Timestamp) -> Decision {
        if self.is_used(Question::Held, key, claim) {
            return Decision::Leave;
        }
        if self.unused.get(&(Question::Held, key.clone())) == Some(&claim.meta.uid) {
            return change(Kind::Claim, &claim.meta, &claim.finalizers, CLAIM_FINALIZER, false);
        }
        self.ask_pods(Question::Held, claim, now)
    }

    /// Returns the update of the condition `Unused` for a living claim; `None` if it is up to date.
    fn decide_condition(&mut self, key: &ObjectKey, claim: &Claim, now: Timestamp) -> Option<Decision> {
        let proof = (Question::Referred, key.clone());
        let unused = if self.is_used(Question::Referred, key, claim) {
            self.unused.remove(&proof);
            false
        } else if claim.unused == Some(true) || self.unused.get(&proof) == Some(&claim.meta.uid) {
            true
        } else {
            return Some(self.ask_pods(Question::Referred, claim, now));
        };
        if claim.unused == Some(unused) {
            self.noticed.remove(key);
            return None;
        }
        let noticed = self.noticed.entry(key.clone()).or_insert((unused, now));
        if noticed.0 != unused {
            *noticed = (unused, now);
        }
        Some(unused::set(claim, unused, noticed.1))
    }
}

impl Collector for ClaimProtection {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Claim, Kind::Pod]
    }

    fn clock_set(&mut self, by: i64) {
        for at in self.not_before.values_mut() {
            *at = at.after(by);
        }
        for (_, since) in self.noticed.values_mut() {
            *since = since.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Claim) => {
                self.claims.list_started();
                self.doubt();
            }
            Observation::ListStarted(Kind::Pod) => self.pods.list_started(),
            Observation::Observed(Facts::Claim(claim)) => dirty.push(self.claims.put(claim).0),
            Observation::Observed(Facts::Pod(pod)) => self.put_pod(pod, dirty),
            Observation::Found(Facts::Pod(pod)) => self.found(&pod),
            Observation::Removed(key) if key.resource == Kind::Claim.resource() => self.remove_claim(&key),
            Observation::Removed(key) if key.resource == Kind::Pod.resource() => self.remove_pod(&key, dirty),
            Observation::Synced(Kind::Claim) => {
                for key in self.claims.list_ended() {
                    self.remove_claim(&key);
                }
                dirty.extend(self.claims.keys().cloned());
            }
            Observation::Synced(Kind::Pod) => {
                for key in self.pods.list_ended() {
                    self.remove_pod(&key, dirty);
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(claim) = self.claims.get(key).cloned() else { return Decision::Leave };
        if self.reports_unused
            && !claim.meta.deleting
            && let Some(decision) = self.decide_condition(key, &claim, now)
        {
            return decision;
        }
        match protection(&claim.meta, &claim.finalizers, CLAIM_FINALIZER) {
            Protection::Settled => Decision::Leave,
            Protection::Missing => change(Kind::Claim, &claim.meta, &claim.finalizers, CLAIM_FINALIZER, true),
            Protection::Holding => self.decide_holding(key, &claim, now),
        }
    }

    fn sending(&mut self, key: &ObjectKey, request: &Request, _reason: &Reason, _now: Timestamp) {
        if let Request::Barrier { .. } = request {
            let asked = self.waiting.remove(&key.namespace).unwrap_or_default();
            self.lists.insert(Arc::clone(&key.namespace), LiveList { asked, used: BTreeSet::new() });
        }
    }

    fn skipped(&mut self, key: &ObjectKey, request: &Request) {
        if let Request::Barrier { .. } = request
            && let Some(list) = self.lists.remove(&key.namespace)
        {
            self.waiting.entry(Arc::clone(&key.namespace)).or_default().extend(list.asked);
        }
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, now }: EndedRequest<'_>,
        dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Barrier { .. } = request else { return };
        let Some(list) = self.lists.remove(&key.namespace) else { return };
        let listed = matches!(outcome, Outcome::Applied(_));
        if !listed || !list.used.is_empty() {
            self.not_before.insert(Arc::clone(&key.namespace), now.after(LIST_AGAIN_MILLISECONDS));
        }
        if listed {
            for asked in list.asked.difference(&list.used) {
                if let Some(facts) = self.claims.get(&asked.1) {
                    self.unused.insert(asked.clone(), facts.meta.uid.clone());
                }
            }
        }
        dirty.extend(list.asked.into_iter().map(|(_, claim)| claim));
        let waiting = self.waiting.get(&key.namespace).into_iter().flatten();
        dirty.extend(waiting.map(|(_, claim)| claim.clone()));
    }
}
