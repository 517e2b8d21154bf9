//! Deletions within a time ahead, found by running the collectors' own engines ahead of time on everything in scope.

use std::collections::{BTreeMap, BinaryHeap};

use gc_collectors::expiry;
use gc_collectors::permissions::Controller;
use gc_collectors::policies::engine::PolicyEngine;
use gc_types::{ObjectKey, Outcome, Request, Timestamp, codes};
use serde_json::Value;

use crate::catalog::{GroupResource, Resource};
use crate::facts::{Facts, Knowledge};
use crate::forecast::{Forecast, MAX_STEPS, POLICY_RESOURCE, own_outlook};
use crate::object::Object;
use crate::stuck::Place;
use crate::survey::Survey;

/// Maximum number of objects of one resource to rehearse; the answer reports if there are more.
pub const MAX_REHEARSED: usize = 5_000;

/// Number of equal parts of the period in which deletions are counted.
pub const SLOTS: usize = 48;

/// Resources whose collectors wait for a time.
const TIMED: [(&str, &str); 3] = [
    ("batch", "jobs"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("certificates.k8s.io", "podcertificaterequests"),
];

/// One expected deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpcomingDeletion {
    /// The object.
    pub place: Place,
    /// Time and reason.
    pub forecast: Forecast,
}

impl UpcomingDeletion {
    /// Converts to JSON.
    #[must_use]
    pub fn value(&self, now: Timestamp) -> Value {
        let mut value = self.forecast.value(now);
        value["object"] = self.place.value();
        value["object"]["resource"] = self.place.resource.clone().into();
        value
    }
}

/// Deletions within a period, counted by namespace; the first in each are named.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    from: Timestamp,
    until: Timestamp,
    /// Maximum number of deletions to name in each namespace.
    limit: usize,
    /// Deletions by namespace; the empty one is for cluster-scoped objects and for images on nodes.
    parts: BTreeMap<String, Part>,
    /// Questions that could not be answered.
    pub unknown: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Part {
    /// The soonest deletions, with the latest of them on top.
    first: BinaryHeap<Entry>,
    total: usize,
    idle: usize,
    slots: BTreeMap<usize, usize>,
}

/// Deletions in one namespace, or everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The first deletions, soonest first, up to the limit.
    pub items: Vec<UpcomingDeletion>,
    /// Total number.
    pub total: usize,
    /// Number of further deletions if the disabled collectors ran.
    pub idle: usize,
    /// Number in each of [`SLOTS`] equal parts of the period.
    pub slots: Vec<usize>,
}

impl Outlook {
    /// Creates an empty outlook for the period between two times, which names up to `limit` deletions of each namespace.
    #[must_use]
    pub fn new(from: Timestamp, until: Timestamp, limit: usize) -> Self {
        Self { from, until, limit, ..Self::default() }
    }

    /// Returns the deletions in a namespace, or everywhere if it is empty.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Due {
        let mut due = Due { items: Vec::new(), total: 0, idle: 0, slots: vec![0; SLOTS] };
        let mut first: Vec<&Entry> = Vec::new();
        for (_, part) in self.parts.iter().filter(|(name, _)| namespace.is_empty() || *name == namespace) {
            first.extend(&part.first);
            due.total = due.total.saturating_add(part.total);
            due.idle += part.idle;
            for (slot, count) in &part.slots {
                due.slots[*slot] += count;
            }
        }
        first.sort();
        due.items = first.into_iter().take(self.limit).map(|entry| entry.0.clone()).collect();
        due
    }

    fn part(&mut self, namespace: &str) -> &mut Part {
        self.parts.entry(namespace.to_owned()).or_default()
    }

    /// Returns the index of the part that contains a time.
    fn slot(&self, at: Timestamp) -> usize {
        let (ahead, whole) = (i128::from(at.since(self.from)), i128::from(self.until.since(self.from)));
        let slots = i128::try_from(SLOTS).unwrap_or(i128::MAX);
        let slot = ahead.max(0) * slots / whole.max(1);
        usize::try_from(slot).unwrap_or(usize::MAX).min(SLOTS - 1)
    }

    fn name(&mut self, upcoming: UpcomingDeletion) {
        let (slot, limit) = (self.slot(upcoming.forecast.at), self.limit);
        let part = self.part(&upcoming.place.namespace);
        *part.slots.entry(slot).or_default() += 1;
        part.first.push(Entry(upcoming));
        if part.first.len() > limit {
            part.first.pop();
        }
    }

    /// Adds one deletion.
    fn add(&mut self, upcoming: UpcomingDeletion) {
        self.part(&upcoming.place.namespace).total += 1;
        self.name(upcoming);
    }

    /// Adds `total` more deletions of cluster-scoped objects, of which these come first.
    pub(crate) fn add_all(&mut self, first: impl Iterator<Item = UpcomingDeletion>, total: usize) {
        let part = self.part("");
        part.total = part.total.saturating_add(total);
        for upcoming in first {
            self.name(upcoming);
        }
    }
}

/// Scope of the question.
pub struct Horizon<'a> {
    /// Namespaces; an empty one means everywhere.
    pub namespaces: &'a [String],
    /// End of the period.
    pub until: Timestamp,
    /// Maximum number of deletions to name in each namespace.
    pub limit: usize,
    /// Reports whether a collector runs.
    pub runs: &'a dyn Fn(&str) -> bool,
}

struct UpcomingCollector<'a> {
    horizon: &'a Horizon<'a>,
    survey: &'a Survey,
    facts: &'a Facts,
    outlook: Outlook,
}

#[derive(Clone, Debug)]
struct Entry(UpcomingDeletion);

impl Entry {
    fn order(&self) -> (Timestamp, &Place) {
        (self.0.forecast.at, &self.0.place)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// Returns the deletions within a period, if everything stays as it is.
#[must_use]
pub fn upcoming(survey: &Survey, facts: &Facts, horizon: &Horizon<'_>) -> Outlook {
    let outlook = Outlook::new(facts.now(), horizon.until, horizon.limit);
    let mut gathering = UpcomingCollector { horizon, survey, facts, outlook };
    let namespaces = horizon.namespaces;
    for (group, resource) in TIMED {
        gathering.timed(&GroupResource::new(group, resource), namespaces);
    }
    gathering.marked();
    let policies = GroupResource::new("kubegc.io", "retentionpolicies");
    match facts.list(&policies, "") {
        Some(Knowledge::Present(all)) => {
            for policy in all {
                gathering.policy(policy, namespaces);
            }
        }
        Some(Knowledge::Unreadable(why)) => {
            gathering.outlook.unknown.push(format!("what retention policies delete: {why}"));
        }
        Some(Knowledge::Absent) | None => {}
    }
    gathering.outlook
}

impl UpcomingCollector<'_> {
    fn add(&mut self, place: Place, forecast: Forecast) {
        if forecast.at > self.horizon.until {
            return;
        }
        if !(self.horizon.runs)(forecast.collector) {
            self.outlook.part(&place.namespace).idle += 1;
            return;
        }
        self.outlook.add(UpcomingDeletion { place, forecast });
    }

    /// Returns the objects of a resource in these namespaces, at most [`MAX_REHEARSED`].
    fn objects(&mut self, name: &GroupResource, namespaces: &[String]) -> Vec<Object> {
        let Some(resource) = self.survey.catalog.named(name) else { return Vec::new() };
        let mut objects = Vec::new();
        for namespace in namespaces {
            if !resource.is_namespaced() && !namespace.is_empty() {
                continue;
            }
            match self.facts.list(name, namespace) {
                Some(Knowledge::Present(items)) => {
                    objects.extend(items.iter().filter(|object| !object.is_terminating()).cloned());
                }
                Some(Knowledge::Unreadable(why)) => {
                    self.outlook.unknown.push(format!("which {name} are due: {why}"));
                }
                Some(Knowledge::Absent) | None => {}
            }
        }
        if objects.len() > MAX_REHEARSED {
            let left = objects.len() - MAX_REHEARSED;
            self.outlook
                .unknown
                .push(format!("when {left} more {name} are due: only {MAX_REHEARSED} are checked"));
            objects.truncate(MAX_REHEARSED);
        }
        objects
    }

    /// Adds objects that their own collector deletes at a certain time.
    fn timed(&mut self, name: &GroupResource, namespaces: &[String]) {
        let (survey, facts) = (self.survey, self.facts);
        let Some(resource) = survey.catalog.named(name) else { return };
        for object in self.objects(name, namespaces) {
            if let Some(forecast) = own_outlook(&object, resource, facts) {
                self.add(place(resource, &object), forecast);
            }
        }
    }

    /// Adds objects that expire by annotation. Jobs and Pods expire after they finish, others after their creation.
    fn marked(&mut self) {
        let survey = self.survey;
        for (key, (uid, marks)) in survey.marks() {
            let Some(resource) = survey.resource(key) else { continue };
            let finishes = expiry::FINISHING.contains(&(&*resource.name.group, &*resource.name.resource));
            if finishes || survey.terminating().contains_key(key) {
                continue;
            }
            if let Ok(Some((at, detail))) = expiry::expiry(marks, marks.created, &[]) {
                let (code, collector) = (codes::EXPIRED_BY_ANNOTATION, Controller::Expiry.name());
                let forecast = Forecast { at, code, collector, detail, is_upstream: false };
                self.add(place_of(resource, key, uid.to_string()), forecast);
            }
        }
    }

    /// Adds the deletions of one retention policy.
    fn policy(&mut self, policy: &Object, namespaces: &[String]) {
        let (survey, facts) = (self.survey, self.facts);
        let mut engine = PolicyEngine::new(policy.value(), POLICY_RESOURCE);
        let Some(compiled) = engine.policy().cloned().filter(|compiled| compiled.enforce) else { return };
        let Some(resource) = survey.catalog.of_kind(&compiled.api_version, &compiled.kind) else { return };
        let objects = self.objects(&resource.name, namespaces);
        let mut now = facts.now();
        engine.tick(now);
        engine.list_started();
        for object in &objects {
            engine.observed(object.namespace(), object.name(), compiled.look(object.value(), now));
        }
        engine.synced();
        engine.shown();
        for _ in 0..MAX_STEPS {
            engine.tick(now);
            while let Some(effect) = engine.poll_effect() {
                engine.finish(effect.id, &Outcome::Applied(None));
                let Request::Delete { key, uid, .. } = &effect.request else { continue };
                engine.removed(&key.namespace, &key.name);
                let detail = format!("retention policy {}", policy.name());
                let (code, collector) = (effect.reason.code(), Controller::RetentionPolicy.name());
                let forecast = Forecast { at: now, code, collector, detail, is_upstream: false };
                self.add(place_of(resource, key, uid.to_string()), forecast);
            }
            match engine.next_wakeup().filter(|at| *at <= self.horizon.until) {
                Some(at) => now = at.max(now.after(1)),
                None => return,
            }
        }
    }
}

fn place(resource: &Resource, object: &Object) -> Place {
    let key =
        ObjectKey { resource: resource.id, namespace: object.namespace().into(), name: object.name().into() };
    place_of(resource, &key, object.uid().to_owned())
}

fn place_of(resource: &Resource, key: &ObjectKey, uid: String) -> Place {
    Place {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        resource: resource.name.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        uid,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::catalog::Catalog;
    use gc_types::ResourceVersion;
    use serde_json::json;

    const CORE: &[u8] = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
        "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
    const NAMED: &[u8] = br#"{"items":[{"metadata":{"name":"batch"},"versions":[{"version":"v1","freshness":"Current",
        "resources":[{"resource":"jobs","responseKind":{"kind":"Job"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;

    /// Returns the deletions within an hour after 1970: a Job in 10 s, a ConfigMap in 60 s, others later or never.
    fn asked(limit: usize, runs: &dyn Fn(&str) -> bool) -> (Vec<(String, i64)>, usize, usize) {
        let now = Timestamp(100_000);
        let mut survey = Survey::new(Catalog::read(CORE, NAMED).unwrap(), now);
        let maps = survey.catalog.named(&GroupResource::new("", "configmaps")).unwrap().id;
        for (name, ttl) in [("soon", "2m40s"), ("late", "48h"), ("bad", "soon"), ("none", "")] {
            let mut map = json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
                "creationTimestamp": "1970-01-01T00:00:00Z"}});
            if !ttl.is_empty() {
                map["metadata"]["annotations"] = json!({"kubegc.io/ttl": ttl});
            }
            survey.observe(maps, serde_json::from_value(map).unwrap());
        }
        survey.listed(maps, ResourceVersion(1));
        survey.complete();
        let mut facts = Facts::at(now);
        let job = |name: &str, ttl: Option<i64>, ended: bool| {
            let conditions = if ended {
                json!([{"type": "Complete", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"}])
            } else {
                json!([])
            };
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "n", "name": name, "uid": name,
                "resourceVersion": "1", "creationTimestamp": "1970-01-01T00:00:00Z"},
                "spec": {"ttlSecondsAfterFinished": ttl}, "status": {"conditions": conditions,
                "completionTime": "1970-01-01T00:01:40Z"}})
        };
        let jobs =
            vec![job("done", Some(10), true), job("kept", None, true), job("running", Some(10), false)];
        facts.tell_list(GroupResource::new("batch", "jobs"), "", Knowledge::Present(jobs));
        let horizon = Horizon { namespaces: &[String::new()], until: now.after(3_600_000), limit, runs };
        let due = upcoming(&survey, &facts, &horizon).within("n");
        let items =
            due.items.iter().map(|item| (item.place.name.clone(), item.forecast.at.since(now) / 1000));
        (items.collect(), due.total, due.idle)
    }

    #[test]
    fn a_namespace_has_its_own_first_ones_and_everything_is_counted() {
        let hour = 3_600_000;
        let mut outlook = Outlook::new(Timestamp(0), Timestamp(24 * hour), 2);
        let due = |namespace: &str, name: &str, hours: i64| UpcomingDeletion {
            place: Place {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                resource: "configmaps".into(),
                namespace: namespace.into(),
                name: name.into(),
                uid: String::new(),
            },
            forecast: Forecast {
                at: Timestamp(hours * hour),
                code: codes::EXPIRED_BY_ANNOTATION,
                collector: "c",
                detail: String::new(),
                is_upstream: false,
            },
        };
        for number in 0..5 {
            outlook.add(due("busy", &format!("b{number}"), 1));
        }
        outlook.add(due("rare", "r", 23));
        outlook.add_all(std::iter::once(due("", "image", 24)), 7);
        let shown = |namespace: &str| {
            let due = outlook.within(namespace);
            let names: Vec<String> = due.items.iter().map(|item| item.place.name.clone()).collect();
            let slots = due.slots.iter().enumerate().filter(|(_, count)| **count > 0);
            (names.join(" "), due.total, slots.map(|(slot, count)| (slot, *count)).collect::<Vec<_>>())
        };
        assert_eq!(shown(""), ("b0 b1".into(), 13, vec![(2, 5), (46, 1), (47, 1)]));
        assert_eq!(shown("rare"), ("r".into(), 1, vec![(46, 1)]));
        assert_eq!(shown("empty"), (String::new(), 0, vec![]));
    }

    #[test]
    fn the_soonest_are_named_and_all_are_counted() {
        let soon = ("soon".to_owned(), 60);
        let done = ("done".to_owned(), 10);
        assert_eq!(asked(10, &|_| true), (vec![done.clone(), soon.clone()], 2, 0));
        assert_eq!(asked(1, &|_| true), (vec![done.clone()], 2, 0));
        assert_eq!(asked(10, &|collector| collector != "expiry-controller"), (vec![done], 1, 1));
    }
}
