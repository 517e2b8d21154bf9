//! What will be deleted within a time: the collectors' own engines, run ahead over everything in scope.

use std::collections::BinaryHeap;

use gc_retention::expiry;
use gc_retention::permissions::Controller;
use gc_retention::policies::engine::PolicyEngine;
use gc_types::{ObjectKey, Outcome, Request, Timestamp, codes};
use serde_json::Value;

use crate::catalog::{GroupResource, Resource};
use crate::facts::{Facts, Known};
use crate::forecast::{Forecast, MAX_STEPS, POLICY_RESOURCE, own_outlook};
use crate::object::Object;
use crate::stuck::Place;
use crate::survey::Survey;

/// Objects of one resource that are rehearsed at most; of more, the answer says so.
pub const MAX_REHEARSED: usize = 5_000;

/// Resources whose collectors wait for a time.
const TIMED: [(&str, &str); 3] = [
    ("batch", "jobs"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("certificates.k8s.io", "podcertificaterequests"),
];

/// One deletion to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upcoming {
    /// The object.
    pub place: Place,
    /// When and why.
    pub forecast: Forecast,
}

impl Upcoming {
    /// As data.
    #[must_use]
    pub fn value(&self, now: Timestamp) -> Value {
        let mut value = self.forecast.value(now);
        value["object"] = self.place.value();
        value["object"]["resource"] = self.place.resource.clone().into();
        value
    }
}

/// What is to come within a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The first deletions, soonest first, at most as many as were asked for.
    pub items: Vec<Upcoming>,
    /// How many there are in all.
    pub total: usize,
    /// How many more there would be, if the collectors that do not run did.
    pub idle: usize,
    /// What could not be asked.
    pub unknown: Vec<String>,
}

impl Outlook {
    /// Adds `total` more deletions, of which these come first; at most `limit` of all are listed.
    pub(crate) fn add(&mut self, more: Vec<Upcoming>, total: usize, limit: usize) {
        self.items.extend(more);
        self.items
            .sort_by(|left, right| (left.forecast.at, &left.place).cmp(&(right.forecast.at, &right.place)));
        self.items.truncate(limit);
        self.total = self.total.saturating_add(total);
    }
}

/// What is asked.
pub struct Horizon<'a> {
    /// In these namespaces; an empty one means everywhere.
    pub namespaces: &'a [String],
    /// Until then.
    pub until: Timestamp,
    /// The number of deletions that are listed.
    pub limit: usize,
    /// Whether a collector runs.
    pub runs: &'a dyn Fn(&str) -> bool,
}

struct Gathering<'a> {
    horizon: &'a Horizon<'a>,
    survey: &'a Survey,
    facts: &'a Facts,
    /// The soonest, of which the latest is on top.
    found: BinaryHeap<Entry>,
    total: usize,
    idle: usize,
    unknown: Vec<String>,
}

struct Entry(Upcoming);

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

/// What will be deleted within a time, if everything stays as it is.
#[must_use]
pub fn upcoming(survey: &Survey, facts: &Facts, horizon: &Horizon<'_>) -> Outlook {
    let mut gathering = Gathering {
        horizon,
        survey,
        facts,
        found: BinaryHeap::new(),
        total: 0,
        idle: 0,
        unknown: Vec::new(),
    };
    let namespaces = horizon.namespaces;
    for (group, resource) in TIMED {
        gathering.timed(&GroupResource::new(group, resource), namespaces);
    }
    gathering.marked();
    let policies = GroupResource::new("kubegc.io", "retentionpolicies");
    match facts.list(&policies, "") {
        Some(Known::Present(all)) => {
            for policy in all {
                gathering.policy(policy, namespaces);
            }
        }
        Some(Known::Unreadable(why)) => {
            gathering.unknown.push(format!("what retention policies delete: {why}"));
        }
        Some(Known::Absent) | None => {}
    }
    let Gathering { found, total, idle, unknown, .. } = gathering;
    let mut items: Vec<Upcoming> = found.into_vec().into_iter().map(|entry| entry.0).collect();
    items.sort_by(|left, right| (left.forecast.at, &left.place).cmp(&(right.forecast.at, &right.place)));
    Outlook { items, total, idle, unknown }
}

impl Gathering<'_> {
    fn add(&mut self, place: Place, forecast: Forecast) {
        if forecast.at > self.horizon.until {
            return;
        }
        if !(self.horizon.runs)(forecast.collector) {
            self.idle += 1;
            return;
        }
        self.total += 1;
        self.found.push(Entry(Upcoming { place, forecast }));
        if self.found.len() > self.horizon.limit {
            self.found.pop();
        }
    }

    /// Objects of a resource in these namespaces, at most [`MAX_REHEARSED`].
    fn objects(&mut self, name: &GroupResource, namespaces: &[String]) -> Vec<Object> {
        let Some(resource) = self.survey.catalog.named(name) else { return Vec::new() };
        let mut objects = Vec::new();
        for namespace in namespaces {
            if !resource.is_namespaced() && !namespace.is_empty() {
                continue;
            }
            match self.facts.list(name, namespace) {
                Some(Known::Present(items)) => {
                    objects.extend(items.iter().filter(|object| !object.is_terminating()).cloned());
                }
                Some(Known::Unreadable(why)) => self.unknown.push(format!("which {name} are due: {why}")),
                Some(Known::Absent) | None => {}
            }
        }
        if objects.len() > MAX_REHEARSED {
            let left = objects.len() - MAX_REHEARSED;
            self.unknown.push(format!("when {left} more {name} are due: only {MAX_REHEARSED} are checked"));
            objects.truncate(MAX_REHEARSED);
        }
        objects
    }

    /// Objects whose own collector deletes them at a time.
    fn timed(&mut self, name: &GroupResource, namespaces: &[String]) {
        let (survey, facts) = (self.survey, self.facts);
        let Some(resource) = survey.catalog.named(name) else { return };
        for object in self.objects(name, namespaces) {
            if let Some(forecast) = own_outlook(&object, resource, facts) {
                self.add(place(resource, &object), forecast);
            }
        }
    }

    /// Objects that expire by annotation from their creation on. Jobs and Pods expire from when they finish.
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

    /// What one retention policy deletes.
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

    /// What is due within an hour after 1970: a Job in 10 s, a ConfigMap in 60 s, others later or never.
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
        facts.tell_list(GroupResource::new("batch", "jobs"), "", Known::Present(jobs));
        let horizon = Horizon { namespaces: &[String::new()], until: now.after(3_600_000), limit, runs };
        let outlook = upcoming(&survey, &facts, &horizon);
        let items =
            outlook.items.iter().map(|item| (item.place.name.clone(), item.forecast.at.since(now) / 1000));
        (items.collect(), outlook.total, outlook.idle)
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
