//! Problems of a cluster in which nothing is stuck yet: dangling references, ownership cycles, and leftovers that are never
//! collected.

use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{Stray, StrayReference};
use gc_types::{ObjectKey, ResourceId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{GroupResource, Resource};
use crate::facts::Facts;
#[cfg(test)]
use crate::facts::Knowledge;
use crate::map::place_of_view;
use crate::object::Object;
use crate::stuck::Place;
use crate::survey::Survey;
use crate::text::count;

/// Maximum number of objects that one lint names; the others are counted.
pub const NAMED: usize = 20;
/// Maximum number of reported cycles.
const MAXIMUM_RINGS: usize = 100;
/// Maximum number of objects of a kind to read whole; larger kinds are reported as not examined.
pub const MAXIMUM_EXAMINED: usize = 20_000;
/// Number of finished pods in a namespace that is worth a finding.
const PILE_OF_PODS: usize = 100;
/// Number of finished Jobs in a namespace, without TTL and CronJob, that is worth a finding.
const PILE_OF_JOBS: usize = 20;
/// Minimum age of a finished Job to count as left behind, milliseconds.
const OLD_JOB_MILLISECONDS: i64 = 24 * 3_600 * 1_000;
/// Default of `revisionHistoryLimit`.
const HISTORY_LIMIT: i64 = 10;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something is kept or deleted that should not be.
    Error,
    /// Something is probably not as its owner wants it.
    Warning,
    /// Something takes up space.
    Notice,
}

/// Kind of a problem. The name is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// No object has the UID of a reference, nor its name.
    DanglingReference,
    /// Another object has the name of a reference.
    WrongUidReference,
    /// The owner is in another namespace.
    CrossNamespaceReference,
    /// The object with the UID has another kind or name.
    WrongCoordinatesReference,
    /// A cluster-scoped object refers to a namespaced kind.
    ImpossibleScopeReference,
    /// The kind is served, but not in this version.
    WrongVersionReference,
    /// The kind is not served.
    UnservedOwnerKind,
    /// Objects own each other.
    OwnerRing,
    /// Pods are left of a Job that was deleted without them.
    PodsOfDeletedJob,
    /// Many finished pods.
    FinishedPods,
    /// Many finished Jobs that nothing collects.
    FinishedJobs,
    /// A volume is retained although its claim is gone.
    ReleasedVolume,
    /// A volume that could not be reclaimed.
    FailedVolume,
    /// An admission webhook fails every deletion it is called for.
    FailingWebhook,
    /// A ValidatingAdmissionPolicy refuses every deletion it applies to, because its parameters do not exist.
    FailingPolicy,
    /// An EndpointSlice whose Service is gone.
    OrphanedEndpointSlice,
    /// More old ReplicaSets than the history limit of their Deployment.
    ReplicaSetsAboveLimit,
}

impl Code {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DanglingReference => "DanglingReference",
            Self::WrongUidReference => "WrongUidReference",
            Self::CrossNamespaceReference => "CrossNamespaceReference",
            Self::WrongCoordinatesReference => "WrongCoordinatesReference",
            Self::ImpossibleScopeReference => "ImpossibleScopeReference",
            Self::WrongVersionReference => "WrongVersionReference",
            Self::UnservedOwnerKind => "UnservedOwnerKind",
            Self::OwnerRing => "OwnerRing",
            Self::PodsOfDeletedJob => "PodsOfDeletedJob",
            Self::FinishedPods => "FinishedPods",
            Self::FinishedJobs => "FinishedJobs",
            Self::ReleasedVolume => "ReleasedVolume",
            Self::FailedVolume => "FailedVolume",
            Self::FailingWebhook => "FailingWebhook",
            Self::FailingPolicy => "FailingPolicy",
            Self::OrphanedEndpointSlice => "OrphanedEndpointSlice",
            Self::ReplicaSetsAboveLimit => "ReplicaSetsAboveLimit",
        }
    }

    /// Returns the severity.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::CrossNamespaceReference
            | Self::WrongCoordinatesReference
            | Self::ImpossibleScopeReference
            | Self::OwnerRing
            | Self::FailedVolume
            | Self::FailingWebhook
            | Self::FailingPolicy => Severity::Error,
            Self::DanglingReference
            | Self::WrongUidReference
            | Self::WrongVersionReference
            | Self::UnservedOwnerKind
            | Self::PodsOfDeletedJob
            | Self::OrphanedEndpointSlice => Severity::Warning,
            Self::FinishedPods | Self::FinishedJobs | Self::ReleasedVolume | Self::ReplicaSetsAboveLimit => {
                Severity::Notice
            }
        }
    }
}

/// One problem, with all objects that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lint {
    /// The code.
    pub code: Code,
    /// Subject in particular: findings with the same code and subject are one lint.
    pub subject: String,
    /// Human-readable message.
    pub message: String,
    /// The advice.
    pub advice: String,
    /// The first objects.
    pub objects: Vec<Place>,
    /// Total number of objects.
    pub total: usize,
}

impl Lint {
    /// Returns an identifier that stays the same while the problem persists.
    #[must_use]
    pub fn id(&self) -> String {
        if self.subject.is_empty() {
            self.code.name().to_owned()
        } else {
            format!("{}/{}", self.code.name(), self.subject)
        }
    }
}

/// Formats an object as an argument of commands: `pods/web-1 -n shop`.
#[must_use]
pub fn argument(place: &Place) -> String {
    match &*place.namespace {
        "" => place.reference(),
        namespace => format!("{} -n {namespace}", place.reference()),
    }
}

/// Returns all lints, in one namespace or, if that is empty, in all; the worst first.
#[must_use]
pub fn lint(survey: &Survey, facts: &Facts, namespace: &str) -> Vec<Lint> {
    let mut linter = Linter { survey, facts, namespace, totals: totals(survey), found: BTreeMap::new() };
    linter.references();
    linter.rings();
    linter.pods();
    linter.jobs();
    linter.volumes();
    linter.endpoint_slices();
    linter.replica_sets();
    linter.webhooks();
    linter.policies();
    let lints = linter.found.into_iter().map(|((code, subject), found)| found.lint(code, subject));
    let mut lints: Vec<Lint> = lints.collect();
    lints.sort_by_key(|lint| (lint.code.severity(), lint.code));
    lints
}

/// Returns the kinds with too many objects to be read whole, which were therefore not examined.
#[must_use]
pub fn unexamined(survey: &Survey) -> Vec<String> {
    let many = totals(survey).into_iter().filter(|(_, number)| *number > MAXIMUM_EXAMINED);
    let names = many.filter_map(|(id, number)| {
        let resource = survey.catalog.get(id)?;
        EXAMINED.contains(&(&*resource.name.group, &*resource.name.resource)).then(|| {
            format!("{} {} were not examined for leftovers: there are too many", number, resource.name)
        })
    });
    names.collect()
}

/// Returns the number of objects of each resource.
fn totals(survey: &Survey) -> BTreeMap<ResourceId, usize> {
    let mut totals = BTreeMap::new();
    for ((_, resource), number) in survey.engine.population() {
        *totals.entry(resource).or_default() += number;
    }
    totals
}

/// Resources that are read whole.
const EXAMINED: [(&str, &str); 6] = [
    ("", "pods"),
    ("", "persistentvolumes"),
    ("batch", "jobs"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Members of `metadata` that lints read.
const METADATA: &[&str] = &["name", "namespace", "uid", "labels", "ownerReferences", "deletionTimestamp"];

/// Returns the part of a listed object that lints use; `None` if no lint can be about it. This saves memory where there are many
/// thousands.
#[must_use]
pub fn relevant(resource: &GroupResource, object: Value) -> Option<Value> {
    if webhooks::CONFIGURATIONS.iter().chain(&webhooks::POLICIES).any(|name| *name == &*resource.resource) {
        return Some(object);
    }
    let object = Object::new(object);
    let is_one_of = |pointer: &str, values: [&str; 2]| values.contains(&object.text(pointer));
    let is_empty = |pointer: &str| object.number(pointer).unwrap_or_default() == 0;
    let (is_relevant, spec, status): (bool, &[&str], &[&str]) = match (&*resource.group, &*resource.resource)
    {
        ("", "pods") => (is_finished(&object) || is_left(&object), &[], &["phase"]),
        ("", "persistentvolumes") => (
            is_one_of("/status/phase", ["Released", "Failed"]),
            &["capacity", "persistentVolumeReclaimPolicy"],
            &["phase", "message"],
        ),
        ("batch", "jobs") => (
            object.is_true("Complete") || object.is_true("Failed"),
            &["ttlSecondsAfterFinished"],
            &["conditions"],
        ),
        ("apps", "deployments") => (true, &["revisionHistoryLimit"], &[]),
        ("apps", "replicasets") => (
            object.number("/spec/replicas") == Some(0) && is_empty("/status/replicas"),
            &["replicas"],
            &["replicas"],
        ),
        _ => (true, &[], &[]),
    };
    let sections = [("metadata", METADATA), ("spec", spec), ("status", status)];
    let kept = sections.into_iter().map(|(section, fields)| {
        let members = fields.iter().filter_map(|field| {
            let value = object.value().get(section)?.get(*field)?;
            Some(((*field).to_owned(), value.clone()))
        });
        (section.to_owned(), Value::Object(members.collect()))
    });
    let endpoints = object.value().get("endpoints").map(|all| ("endpoints".to_owned(), all.clone()));
    is_relevant.then(|| Value::Object(kept.chain(endpoints).collect()))
}

/// Returns the Job that a pod's label names; empty if there is none.
fn job_of(pod: &Object) -> &str {
    match pod.label("batch.kubernetes.io/job-name") {
        "" => pod.label("job-name"),
        name => name,
    }
}

/// Reports whether a pod of a Job has no owner.
fn is_left(pod: &Object) -> bool {
    !job_of(pod).is_empty() && pod.items("/metadata/ownerReferences").next().is_none()
}

fn is_finished(pod: &Object) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

/// Findings with one code and subject.
struct Found {
    /// Message, given the number of objects.
    message: Box<dyn Fn(usize) -> String>,
    advice: Box<dyn Fn(&Place) -> String>,
    objects: Vec<Place>,
    total: usize,
}

impl Found {
    fn lint(self, code: Code, subject: String) -> Lint {
        let message = (self.message)(self.total);
        let advice = self.objects.first().map(|first| (self.advice)(first)).unwrap_or_default();
        Lint { code, subject, message, advice, objects: self.objects, total: self.total }
    }
}

struct Linter<'a> {
    survey: &'a Survey,
    facts: &'a Facts,
    /// Namespace; empty for all.
    namespace: &'a str,
    totals: BTreeMap<ResourceId, usize>,
    found: BTreeMap<(Code, String), Found>,
}

fn why(first: &Place) -> String {
    format!("`kubegc why {}` explains one of them", argument(first))
}

impl Linter<'_> {
    fn add(
        &mut self,
        code: Code,
        subject: &str,
        place: Place,
        message: impl Fn(usize) -> String + 'static,
        advice: impl Fn(&Place) -> String + 'static,
    ) {
        let found = self.found.entry((code, subject.to_owned())).or_insert_with(|| Found {
            message: Box::new(message),
            advice: Box::new(advice),
            objects: Vec::new(),
            total: 0,
        });
        found.total += 1;
        if found.objects.len() < NAMED {
            found.objects.push(place);
        }
    }

    /// Returns all objects of a resource, unless there are too many.
    fn all(&self, group: &str, name: &str) -> &[Object] {
        let resource = GroupResource::new(group, name);
        let Some(served) = self.survey.catalog.named(&resource) else { return &[] };
        let number = self.totals.get(&served.id).copied().unwrap_or_default();
        let namespace = if served.is_namespaced() { self.namespace } else { "" };
        if number == 0 || number > MAXIMUM_EXAMINED { &[] } else { self.facts.all(&resource, namespace) }
    }

    fn place(&self, group: &str, name: &str, object: &Object) -> Place {
        let served = self.survey.catalog.named(&GroupResource::new(group, name));
        Place {
            api_version: served.map(Resource::api_version).unwrap_or_default(),
            kind: served.map(|served| served.kind.to_string()).unwrap_or_default(),
            resource: GroupResource::new(group, name).to_string(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
        }
    }

    fn references(&mut self) {
        let strays = self.survey.engine.stray_references();
        // Another object may have the name of an absent owner.
        let wanted: BTreeSet<ObjectKey> =
            strays.iter().filter_map(|stray| self.key_of_owner(stray)).collect();
        let taken = self.present(&wanted);
        for stray in strays {
            let owner = &stray.reference.coordinates;
            let title = format!("{} {}", owner.api_version, owner.kind);
            let namespace = stray.dependent.key.as_ref().map(|key| key.namespace.to_string());
            let of_kind = move |what: &str| {
                let (title, what) = (title.clone(), what.to_owned());
                move |total: usize| {
                    let refer = if total == 1 { "refers" } else { "refer" };
                    format!("{} {refer} to {title} {what}", count(total, "object"))
                }
            };
            let place = place_of_view(self.survey, &stray.dependent);
            let subject = format!("{}.{}", owner.kind, owner.api_version);
            let (code, what) = match &stray.stray {
                Stray::Absent if self.key_of_owner(&stray).is_some_and(|key| taken.contains(&key)) => (
                    Code::WrongUidReference,
                    "by the UID of another object than the one of that name, as after a restore: they are collected",
                ),
                Stray::Absent => (Code::DanglingReference, "that does not exist: they are collected"),
                Stray::ImpossibleScope => {
                    (Code::ImpossibleScopeReference, "from cluster scope, where no namespace can be meant")
                }
                Stray::Elsewhere(found) => {
                    let theirs = found.key.as_ref().map(|key| key.namespace.to_string());
                    if theirs.as_deref().is_some_and(|name| !name.is_empty()) && theirs != namespace {
                        (
                            Code::CrossNamespaceReference,
                            "in another namespace, which is not followed: they are collected",
                        )
                    } else {
                        (Code::WrongCoordinatesReference, "by the UID of an object of another kind or name")
                    }
                }
                Stray::UnknownKind if self.is_served_otherwise(&owner.api_version, &owner.kind) => (
                    Code::WrongVersionReference,
                    "in a version that is not served: such owners count as living",
                ),
                Stray::UnknownKind => {
                    (Code::UnservedOwnerKind, "which is not served: such owners count as living")
                }
            };
            self.add(code, &subject, place, of_kind(what), why);
        }
    }

    /// Returns those of these keys at which an object exists.
    fn present(&self, wanted: &BTreeSet<ObjectKey>) -> BTreeSet<ObjectKey> {
        let found = self.survey.engine.select(|key| wanted.contains(key));
        found.into_iter().filter_map(|view| view.key).collect()
    }

    /// Returns the key at which an owner would be.
    fn key_of_owner(&self, stray: &StrayReference) -> Option<ObjectKey> {
        let owner = &stray.reference.coordinates;
        let resource = self.survey.catalog.of_kind(&owner.api_version, &owner.kind)?;
        let namespace = match (resource.is_namespaced(), &stray.dependent.key) {
            (true, Some(key)) => key.namespace.clone(),
            _ => "".into(),
        };
        Some(ObjectKey { resource: resource.id, namespace, name: owner.name.clone() })
    }

    /// Reports whether a kind is served in another version of its group.
    fn is_served_otherwise(&self, api_version: &str, kind: &str) -> bool {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let all = self.survey.catalog.all();
        all.iter().any(|resource| &*resource.kind == kind && &*resource.name.group == group)
    }

    fn rings(&mut self) {
        for ring in self.survey.engine.rings(MAXIMUM_RINGS) {
            let places: Vec<Place> = ring.iter().map(|view| place_of_view(self.survey, view)).collect();
            let Some(first) = places.first().cloned() else { continue };
            let subject = argument(&first);
            let names: Vec<String> = places.iter().map(argument).collect();
            let message = format!("{} own each other: {}", count(names.len(), "object"), names.join(", "));
            for place in places {
                let (message, remedy) = (message.clone(), format!("`kubegc tree {subject}` shows it"));
                self.add(
                    Code::OwnerRing,
                    &subject,
                    place,
                    move |_| message.clone(),
                    move |_| format!("remove one of the references; {remedy}"),
                );
            }
        }
    }

    fn pods(&mut self) {
        let jobs = GroupResource::new("batch", "jobs");
        let Some(jobs) = self.survey.catalog.named(&jobs).map(|jobs| jobs.id) else { return };
        let pods: Vec<Object> = self.all("", "pods").to_vec();
        let key_of_job = |pod: &Object| ObjectKey {
            resource: jobs,
            namespace: pod.namespace().into(),
            name: job_of(pod).into(),
        };
        let wanted = pods.iter().filter(|pod| is_left(pod)).map(key_of_job).collect();
        let living = self.present(&wanted);
        let mut finished: BTreeMap<String, Vec<&Object>> = BTreeMap::new();
        for pod in &pods {
            if is_left(pod) && !living.contains(&key_of_job(pod)) {
                let place = self.place("", "pods", pod);
                let namespace = pod.namespace().to_owned();
                let message = move |total| {
                    format!(
                        "{} of deleted Jobs are left in namespace {namespace}: a Job that is deleted without a \
                             propagation policy by an old client leaves them",
                        count(total, "pod")
                    )
                };
                let advice = |first: &Place| {
                    format!(
                        "`kubectl delete pod -n {} -l batch.kubernetes.io/job-name=NAME` deletes those of one Job",
                        first.namespace
                    )
                };
                self.add(Code::PodsOfDeletedJob, pod.namespace(), place, message, advice);
            } else if is_finished(pod) {
                finished.entry(pod.namespace().to_owned()).or_default().push(pod);
            }
        }
        for (namespace, pods) in finished.into_iter().filter(|(_, pods)| pods.len() > PILE_OF_PODS) {
            for pod in pods {
                let (place, shown) = (self.place("", "pods", pod), namespace.clone());
                let message =
                    move |total| format!("{} have finished in namespace {shown}", count(total, "pod"));
                let advice = |first: &Place| {
                    format!(
                        "set ttlSecondsAfterFinished on their Jobs, lower --terminated-pod-gc-threshold, or `kubectl delete \
                         pod -n {} --field-selector status.phase=Succeeded`",
                        first.namespace
                    )
                };
                self.add(Code::FinishedPods, &namespace, place, message, advice);
            }
        }
    }

    fn jobs(&mut self) {
        let now = self.facts.now();
        let is_old = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) > OLD_JOB_MILLISECONDS);
        let mut piles: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        for job in self.all("batch", "jobs") {
            let is_finished = job.is_true("Complete") || job.is_true("Failed");
            let at = ["Complete", "Failed"]
                .into_iter()
                .find_map(|kind| job.condition(kind))
                .and_then(|condition| condition["lastTransitionTime"].as_str())
                .and_then(crate::object::parse_time);
            let is_collected = job.number("/spec/ttlSecondsAfterFinished").is_some()
                || job.items("/metadata/ownerReferences").next().is_some();
            if is_finished && !is_collected && is_old(at) {
                let place = self.place("batch", "jobs", job);
                piles.entry(place.namespace.clone()).or_default().push(place);
            }
        }
        for (namespace, places) in piles.into_iter().filter(|(_, places)| places.len() > PILE_OF_JOBS) {
            for place in places {
                let shown = namespace.clone();
                let message = move |total| {
                    format!(
                        "{} finished more than a day ago in namespace {shown}, and nothing collects them",
                        count(total, "Job")
                    )
                };
                let advice = |_: &Place| "set ttlSecondsAfterFinished in their templates".to_owned();
                self.add(Code::FinishedJobs, &namespace, place, message, advice);
            }
        }
    }

    fn volumes(&mut self) {
        let volumes: Vec<Object> = self.all("", "persistentvolumes").to_vec();
        for volume in &volumes {
            let place = self.place("", "persistentvolumes", volume);
            let name = volume.name().to_owned();
            let size = match volume.text("/spec/capacity/storage") {
                "" => String::new(),
                size => format!(" of {size}"),
            };
            match volume.text("/status/phase") {
                "Released" if volume.text("/spec/persistentVolumeReclaimPolicy") == "Retain" => {
                    let message = move |_| format!("volume {name}{size} is kept although its claim is gone");
                    let advice = |first: &Place| {
                        format!(
                            "after saving its data, `kubectl delete pv {}` (the storage stays), or remove its claimRef to use it again",
                            first.name
                        )
                    };
                    self.add(Code::ReleasedVolume, volume.name(), place, message, advice);
                }
                "Failed" => {
                    let why = match volume.text("/status/message") {
                        "" => "without a reason".to_owned(),
                        message => message.to_owned(),
                    };
                    let message = move |_| format!("volume {name}{size} could not be reclaimed: {why}");
                    self.add(Code::FailedVolume, volume.name(), place, message, self::why);
                }
                _ => {}
            }
        }
    }

    fn endpoint_slices(&mut self) {
        let services = GroupResource::new("", "services");
        let Some(services) = self.survey.catalog.named(&services).map(|services| services.id) else { return };
        if self.survey.unlisted().contains_key(&services) {
            return;
        }
        let slices: Vec<Object> = self.all("discovery.k8s.io", "endpointslices").to_vec();
        let wanted: BTreeSet<ObjectKey> = slices
            .iter()
            .filter(|slice| !slice.label("kubernetes.io/service-name").is_empty())
            .map(|slice| ObjectKey {
                resource: services,
                namespace: slice.namespace().into(),
                name: slice.label("kubernetes.io/service-name").into(),
            })
            .collect();
        let present = self.present(&wanted);
        for slice in &slices {
            let service = slice.label("kubernetes.io/service-name");
            let key =
                ObjectKey { resource: services, namespace: slice.namespace().into(), name: service.into() };
            if service.is_empty() || present.contains(&key) {
                continue;
            }
            let place = self.place("discovery.k8s.io", "endpointslices", slice);
            let message =
                |total| format!("{} are of Services that do not exist", count(total, "EndpointSlice"));
            let advice =
                |first: &Place| format!("`kubectl delete {}` if nothing manages it", argument(first));
            self.add(Code::OrphanedEndpointSlice, slice.namespace(), place, message, advice);
        }
    }

    fn replica_sets(&mut self) {
        let mut old: BTreeMap<String, Vec<Object>> = BTreeMap::new();
        for set in self.all("apps", "replicasets") {
            let controller = set.items("/metadata/ownerReferences").find(|owner| owner["controller"] == true);
            let deployment = controller.filter(|owner| owner["kind"] == "Deployment");
            if let Some(uid) = deployment.and_then(|owner| owner["uid"].as_str())
                && set.number("/spec/replicas").unwrap_or(1) == 0
                && set.number("/status/replicas").unwrap_or_default() == 0
                && !set.is_terminating()
            {
                old.entry(uid.to_owned()).or_default().push(set.clone());
            }
        }
        if old.is_empty() {
            return;
        }
        let deployments: Vec<Object> = self.all("apps", "deployments").to_vec();
        for deployment in &deployments {
            let limit = deployment.number("/spec/revisionHistoryLimit").unwrap_or(HISTORY_LIMIT);
            let Some(sets) = old.remove(deployment.uid()) else { continue };
            // While a Deployment rolls out, one ReplicaSet is about to be deleted.
            if i64::try_from(sets.len()).unwrap_or(i64::MAX) <= limit.saturating_add(1) {
                continue;
            }
            let subject = format!("{}/{}", deployment.namespace(), deployment.name());
            for set in sets {
                let (place, shown) = (self.place("apps", "replicasets", &set), subject.clone());
                let message = move |total| {
                    format!("Deployment {shown} has {}, and keeps {limit}", count(total, "old ReplicaSet"))
                };
                let advice = |first: &Place| {
                    format!(
                        "its controller does not collect them: check its status, and `kubegc why {}`",
                        argument(first)
                    )
                };
                self.add(Code::ReplicaSetsAboveLimit, &subject, place, message, advice);
            }
        }
    }
}

mod webhooks;

#[cfg(test)]
mod tests;
