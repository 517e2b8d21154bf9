//! Forecasts when an object will be deleted, and by which collector, by running the collectors' own engines ahead of time on the
//! gathered objects.

use gc_collectors::certificates::CertificateCollector;
use gc_collectors::engine::{AnyCollector, Collector, Engine, Observation};
use gc_collectors::expiry::{self, FinishedExpiry};
use gc_collectors::jobs::JobCollector;
use gc_collectors::lease_candidates::LeaseCandidateCollector;
use gc_collectors::leases::LeaseCollector;
use gc_collectors::objects::{Facts as Narrow, Kind};
use gc_collectors::permissions::Controller;
use gc_collectors::pod_certificates::PodCertificateCollector;
use gc_collectors::pods::{PodCollector, TERMINATED_POD_THRESHOLD};
use gc_collectors::policies::engine::PolicyEngine;
use gc_types::{Change, Evidence, Marks, ObjectKey, Outcome, Reason, Request, ResourceId, Timestamp, codes};
use serde_json::{Value, json};

use crate::catalog::{GroupResource, Resource};
use crate::facts::{Facts, Knowledge};
use crate::object::Object;
use crate::text;

/// Maximum time ahead: one year.
pub const HORIZON_MILLISECONDS: i64 = 365 * 86_400_000;
/// Maximum number of steps in one collector's rehearsal.
pub(crate) const MAX_STEPS: usize = 50_000;
/// Number of a policy's resource within its rehearsal.
pub(crate) const POLICY_RESOURCE: ResourceId = ResourceId(1_000);

/// An expected deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Time of the deletion; if not in the future, it is due.
    pub at: Timestamp,
    /// Stable code of the verdict.
    pub code: &'static str,
    /// Name of the collector.
    pub collector: &'static str,
    /// Evidence for the forecast.
    pub detail: String,
    /// True if Kubernetes itself has this collector. kubegc's own collectors act only where kubegc runs.
    pub is_upstream: bool,
}

impl Forecast {
    /// Describes the forecast in one sentence.
    #[must_use]
    pub fn message(&self, now: Timestamp) -> String {
        let Self { code, detail, collector, .. } = self;
        let when = match self.at.since(now) {
            ..=0 => "is due to be deleted now".to_owned(),
            ahead => format!("will be deleted in {}", text::ahead(ahead)),
        };
        let proviso = if self.is_upstream { "" } else { ", where kubegc runs it" };
        format!("{when}: {code}, {detail} ({collector}{proviso})")
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self, now: Timestamp) -> Value {
        json!({
            "at": self.at.to_string(), "inSeconds": self.at.since(now).max(0) / 1000, "code": self.code,
            "collector": self.collector, "detail": self.detail, "message": self.message(now),
        })
    }
}

/// Expected deletions, and the open questions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The first expected deletion.
    pub forecast: Option<Forecast>,
    /// Enforced policies that select the object and keep it, with the time.
    pub kept: Vec<String>,
    /// Questions that could not be answered.
    pub unknown: Vec<String>,
}

/// Returns the first expected deletion that does not depend on other objects of the same kind: by a collector of Kubernetes or by
/// annotation.
pub(crate) fn own_outlook(object: &Object, resource: &Resource, facts: &Facts) -> Option<Forecast> {
    let mut rehearsals =
        Rehearsals { object, facts, found: Vec::new(), kept: Vec::new(), unknown: Vec::new() };
    rehearsals.collectors(&resource.name);
    rehearsals.annotations(&resource.name);
    rehearsals.found.into_iter().min_by_key(|forecast| forecast.at)
}

/// Returns the verdict of every collector on an object that is not terminating yet.
#[must_use]
pub fn outlook(object: &Object, resource: &Resource, facts: &Facts) -> Outlook {
    let mut rehearsals =
        Rehearsals { object, facts, found: Vec::new(), kept: Vec::new(), unknown: Vec::new() };
    rehearsals.collectors(&resource.name);
    rehearsals.annotations(&resource.name);
    rehearsals.policies(resource);
    let Rehearsals { mut found, kept, unknown, .. } = rehearsals;
    found.sort_by_key(|forecast| forecast.at);
    Outlook { forecast: found.into_iter().next(), kept, unknown }
}

struct Rehearsals<'a> {
    object: &'a Object,
    facts: &'a Facts,
    found: Vec<Forecast>,
    kept: Vec<String>,
    unknown: Vec<String>,
}

/// Objects that a collector is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShownObjects {
    /// The object alone: its verdict does not depend on others.
    Alone,
    /// All objects of its kinds.
    All,
}

impl Rehearsals<'_> {
    fn collectors(&mut self, resource: &GroupResource) {
        let finished = matches!(self.object.text("/status/phase"), "Succeeded" | "Failed");
        match (&*resource.group, &*resource.resource) {
            ("batch", "jobs") => {
                self.ask(
                    Controller::TtlAfterFinished,
                    JobCollector::default(),
                    Kind::Job,
                    ShownObjects::Alone,
                );
            }
            ("", "pods") => {
                let collector = PodCollector::new(TERMINATED_POD_THRESHOLD);
                // Other objects matter only for the limit on the number of finished pods.
                let shown = if finished { ShownObjects::All } else { ShownObjects::Alone };
                self.ask(Controller::PodGarbageCollector, collector, Kind::Pod, shown);
            }
            ("certificates.k8s.io", "certificatesigningrequests") => {
                let collector = CertificateCollector::default();
                self.ask(
                    Controller::CertificateCleaner,
                    collector,
                    Kind::SigningRequest,
                    ShownObjects::Alone,
                );
            }
            ("certificates.k8s.io", "podcertificaterequests") => {
                let collector = PodCertificateCollector::default();
                self.ask(
                    Controller::PodCertificateCleaner,
                    collector,
                    Kind::PodCertificate,
                    ShownObjects::Alone,
                );
            }
            ("coordination.k8s.io", "leases") => {
                self.ask(
                    Controller::StaleLease,
                    LeaseCollector::new(false),
                    Kind::Lease,
                    ShownObjects::Alone,
                );
            }
            ("coordination.k8s.io", "leasecandidates") => {
                let collector = LeaseCandidateCollector::default();
                self.ask(Controller::LeaseCandidate, collector, Kind::LeaseCandidate, ShownObjects::Alone);
            }
            ("", "nodes") => {
                self.unknown.push("whether the cloud provider has deleted the machine of the node".into());
            }
            _ => {}
        }
    }

    fn ask<C: Collector + Send + 'static>(
        &mut self,
        controller: Controller,
        rules: C,
        kind: Kind,
        shown: ShownObjects,
    ) {
        let Some(own) = crate::stuck::narrow(kind, self.object) else { return };
        let key = own.key();
        let mut collector = Engine::new(rules);
        let now = self.facts.now();
        Engine::tick(&mut collector, now);
        for &watched in AnyCollector::kinds(&collector) {
            AnyCollector::observe(&mut collector, Observation::ListStarted(watched));
            for facts in self.shown(watched, kind, &own, shown) {
                AnyCollector::observe(&mut collector, Observation::Observed(facts));
            }
            AnyCollector::observe(&mut collector, Observation::Synced(watched));
        }
        if let Some((at, reason)) = self.rehearse(&mut collector, &key) {
            self.add(controller, at, &reason, None);
        }
    }

    /// Returns the objects of one kind that a collector is shown.
    fn shown(&mut self, watched: Kind, kind: Kind, own: &Narrow, shown: ShownObjects) -> Vec<Narrow> {
        let info = watched.info();
        let resource = GroupResource::new(&info.gvr.group, &info.gvr.resource);
        if watched == kind && shown == ShownObjects::Alone {
            return vec![own.clone()];
        }
        if watched == Kind::Node {
            // One node is enough to decide whether the pod's node exists.
            let name = self.object.text("/spec/nodeName");
            let node = if name.is_empty() { None } else { self.facts.present(&resource, "", name) };
            return node.and_then(|node| crate::stuck::narrow(watched, node)).into_iter().collect();
        }
        if watched != kind && shown == ShownObjects::Alone {
            return Vec::new();
        }
        match self.facts.list(&resource, "") {
            Some(Knowledge::Present(items)) => {
                items.iter().filter_map(|item| crate::stuck::narrow(watched, item)).collect()
            }
            Some(Knowledge::Unreadable(why)) => {
                self.unknown.push(format!("whether more {resource} exist than are kept: {why}"));
                vec![own.clone()]
            }
            Some(Knowledge::Absent) | None => vec![own.clone()],
        }
    }

    /// Advances time for a collector until it deletes the object.
    fn rehearse(&self, collector: &mut impl AnyCollector, key: &ObjectKey) -> Option<(Timestamp, Reason)> {
        let mut now = self.facts.now();
        let horizon = now.after(HORIZON_MILLISECONDS);
        for _ in 0..MAX_STEPS {
            if let Some(effect) = collector.poll_effect() {
                if is_end_of(&effect.request, key) {
                    return Some((now, effect.reason));
                }
                let outcome = self.outcome(&effect.request);
                collector.finish(effect.id, &outcome);
                if let Request::Delete { key, .. }
                | Request::Guarded { key, change: Change::ForceDelete, .. } = &effect.request
                {
                    collector.observe(Observation::Removed(key.clone()));
                }
                continue;
            }
            now = collector.next_wakeup().filter(|at| *at <= horizon)?.max(now.after(1));
            collector.tick(now);
        }
        None
    }

    fn outcome(&self, request: &Request) -> Outcome {
        let Request::Read { key } = request else { return Outcome::Applied(None) };
        let Some(kind) = Kind::ALL.iter().find(|kind| kind.resource() == key.resource) else {
            return Outcome::NotServed;
        };
        let info = kind.info();
        let resource = GroupResource::new(&info.gvr.group, &info.gvr.resource);
        match self.facts.object(&resource, &key.namespace, &key.name) {
            Some(Knowledge::Absent) => Outcome::Absent,
            Some(Knowledge::Present(_)) => Outcome::Applied(None),
            Some(Knowledge::Unreadable(why)) => Outcome::Refused { code: 403, message: why.message.clone() },
            None => Outcome::NotServed,
        }
    }

    fn add(&mut self, controller: Controller, at: Timestamp, reason: &Reason, detail: Option<String>) {
        let fact = reason.evidence.iter().rev().find_map(|fact| match fact {
            Evidence::Fact(text) => Some(text.to_string()),
            _ => None,
        });
        let detail = match (detail, reason.code()) {
            (Some(detail), _) => detail,
            (None, codes::TTL_EXPIRED) => {
                let seconds = self.object.number("/spec/ttlSecondsAfterFinished").unwrap_or_default();
                format!("Job ttlSecondsAfterFinished {seconds}")
            }
            _ => fact.unwrap_or_else(|| reason.message().to_owned()),
        };
        self.found.push(Forecast {
            at,
            code: reason.code(),
            collector: controller.name(),
            detail,
            is_upstream: !matches!(controller, Controller::Expiry | Controller::RetentionPolicy),
        });
    }

    /// Checks `kubegc.io/ttl` and `kubegc.io/expires-at`.
    fn annotations(&mut self, resource: &GroupResource) {
        let finishes = expiry::FINISHING.contains(&(&*resource.group, &*resource.resource));
        if finishes {
            let kind = if &*resource.resource == "jobs" { Kind::Job } else { Kind::Pod };
            self.ask(Controller::Expiry, FinishedExpiry::default(), kind, ShownObjects::Alone);
            return;
        }
        let annotation = |name: &str| match self.object.annotation(name) {
            "" => None,
            text => Some(text.into()),
        };
        let marks = Marks {
            created: self.object.time("/metadata/creationTimestamp"),
            ttl: annotation("kubegc.io/ttl"),
            expires_at: annotation("kubegc.io/expires-at"),
            keep: annotation("kubegc.io/keep"),
            ..Marks::default()
        };
        match expiry::expiry(&marks, marks.created, &[]) {
            Ok(Some((at, detail))) => self.found.push(Forecast {
                at,
                code: codes::EXPIRED_BY_ANNOTATION,
                collector: Controller::Expiry.name(),
                // In a forecast, the time is not over yet.
                detail: detail.trim_end_matches(" is over").to_owned(),
                is_upstream: false,
            }),
            Ok(None) => {}
            Err(error) => self.unknown.push(format!("{error}; it has no effect")),
        }
    }

    /// Rehearses the retention policies that apply to this resource.
    fn policies(&mut self, resource: &Resource) {
        let policies = GroupResource::new("kubegc.io", "retentionpolicies");
        match self.facts.list(&policies, "") {
            Some(Knowledge::Unreadable(why)) => {
                self.unknown.push(format!("whether a retention policy applies: {why}"));
            }
            Some(Knowledge::Present(policies)) => {
                for policy in policies {
                    self.policy(policy, resource);
                }
            }
            Some(Knowledge::Absent) | None => {}
        }
    }

    fn policy(&mut self, policy: &Object, resource: &Resource) {
        let mut engine = PolicyEngine::new(policy.value(), POLICY_RESOURCE);
        let Some(compiled) = engine.policy().cloned() else { return };
        let is_meant = *compiled.kind == *resource.kind
            && resource.served_api_versions.iter().any(|served| *served == compiled.api_version);
        if !is_meant || !compiled.enforce {
            return;
        }
        if compiled.depends_on_time() {
            self.unknown.push(format!(
                "whether retention policy {} selects it later: its condition depends on the time",
                policy.name()
            ));
        }
        let namespace = if resource.is_namespaced() { self.object.namespace() } else { "" };
        // Newer objects may matter; a user with few permissions sees only one namespace of them.
        let all = match self.facts.list(&resource.name, namespace) {
            Some(Knowledge::Present(items)) => items.clone(),
            _ => vec![self.object.clone()],
        };
        let mut now = self.facts.now();
        engine.tick(now);
        engine.list_started();
        for item in &all {
            engine.observed(item.namespace(), item.name(), compiled.look(item.value(), now));
        }
        engine.synced();
        engine.shown();
        let own = (self.object.namespace(), self.object.name());
        let is_selected = engine.selects(own.0, own.1);
        let horizon = now.after(HORIZON_MILLISECONDS);
        for _ in 0..MAX_STEPS {
            engine.tick(now);
            while let Some(effect) = engine.poll_effect() {
                if let Request::Delete { key, .. } = &effect.request {
                    if (&*key.namespace, &*key.name) == own {
                        let detail = format!("retention policy {}", policy.name());
                        self.add(Controller::RetentionPolicy, now, &effect.reason, Some(detail));
                        return;
                    }
                    let key = key.clone();
                    engine.finish(effect.id, &Outcome::Applied(None));
                    engine.removed(&key.namespace, &key.name);
                } else {
                    engine.finish(effect.id, &Outcome::Applied(None));
                }
            }
            match engine.next_wakeup().filter(|at| *at <= horizon) {
                Some(at) => now = at.max(now.after(1)),
                None => break,
            }
        }
        if is_selected {
            self.kept.push(match compiled.newest() {
                Some(1) => format!("kept by retention policy {}: it is the newest; due when a newer one exists", policy.name()),
                Some(newest) => format!(
                    "kept by retention policy {}: it is among the {newest} newest; due when {newest} newer ones exist",
                    policy.name()
                ),
                None => format!("kept by retention policy {}: it is not due within a year", policy.name()),
            });
        }
    }
}

/// Reports whether a request begins to remove an object: its deletion, or the phase that a pod is set to before it.
fn is_end_of(request: &Request, object: &ObjectKey) -> bool {
    match request {
        Request::Delete { key, .. }
        | Request::Guarded { key, change: Change::ForceDelete | Change::Status(_), .. } => key == object,
        _ => false,
    }
}
